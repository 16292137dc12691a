"""The pass manager: wrong orders and what is said about them, insertion, dumps, instruments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tilewright.tir import config
from tilewright.tir.errors import InternalError, PipelineError, TargetError
from tilewright.tir.expr import Buffer, Var, add, const, load
from tilewright.tir.passes import (
    PASSES,
    CountersInstrument,
    Dump,
    Flatten,
    Pass,
    Pipeline,
    StopAfter,
    Storage,
    Times,
    Unroll,
    Verify,
    default_instruments,
    pipeline_for,
)
from tilewright.tir.stmt import Allocate, For, Func, Store, seq
from tilewright.tir.target import Target
from tilewright.tir.verify import CLOSED, FACTS, FLAT, IN_BOUNDS, NARROW, PLACED, RACE_FREE, TYPED

TARGET = Target("c", threads=1)
START = (TYPED, CLOSED, IN_BOUNDS, RACE_FREE)


@dataclass(frozen=True)
class Widen(Pass):
    """A pass of a user: it changes nothing, and breaks what narrow gave."""

    name: ClassVar[str] = "widen"
    breaks: ClassVar[tuple[str, ...]] = (NARROW, FLAT)

    def run(self, func, target):
        return func


@dataclass(frozen=True)
class Breaks(Pass):
    """Raises, or gives what it should not."""

    name: ClassVar[str] = "breaks"
    how: str

    def run(self, func, target):
        if self.how == "raises":
            raise ValueError("no idea")
        i = Var("i", "int32", (0, 3))
        output = func.params[-1]
        index = {"unknown variable": Var("x"), "outside": i + 100, "race": i * 0, "wrong dtype": i}[self.how]
        value = const(1 if self.how == "wrong dtype" else 1.0, "int32" if self.how == "wrong dtype" else "float32")
        kind = "parallel" if self.how == "race" else "serial"
        return func.with_body(For(i, const(4), kind, Store(output, (index,), value)))


def example() -> Func:
    a, t, b = Buffer("A", (4, 8)), Buffer("T", (4, 8)), Buffer("B", (4, 8))
    stages = []
    for number, (source, target) in enumerate(((a, t), (t, b))):
        i, k = Var(f"i{number}", "int32", (0, 3)), Var(f"k{number}", "int32", (0, 7))
        body = Store(target, (i, k), add(load(source, (i, k)), const(1.0, "float32")))
        stages.append(For(i, const(4), "serial", For(k, const(8), "serial", body)))
    return Func("example", (a, b), frozenset([b]), Allocate(t, seq(*stages)))


def test_the_pipeline_of_each_target_is_right_and_no_order_of_it_is_arbitrary():
    pipeline = pipeline_for("c")
    assert pipeline_for(TARGET) is pipeline
    assert {p.name for p in pipeline.passes} <= set(PASSES)
    with pytest.raises(PipelineError, match="pipeline 'reversed': pass 'legalize' "):
        Pipeline("reversed", start=pipeline.start, passes=pipeline.passes[::-1], end=pipeline.end)
    with pytest.raises(TargetError, match="no pipeline for the kind of target 'abacus'"):
        pipeline_for("abacus")


def test_a_missing_fact_names_the_passes_that_give_it():
    with pytest.raises(PipelineError) as caught:
        Pipeline("short", start=START, passes=[Flatten(), Unroll()], end=())
    text = str(caught.value)
    assert text.startswith("pipeline 'short': pass 'unroll' (number 2 of 2) requires the fact 'no_vector_loops' (vectorised loops have become")
    assert "no earlier pass gives it, nor do functions come with it. Passes that give it: 'vectorize'. Put it after one of them." in text


def test_a_broken_fact_names_who_broke_it():
    with pytest.raises(PipelineError, match=r"pass 'storage' \(number 3 of 3\) requires the fact 'flat' .*: it was broken by 'widen' \(number 2\)"):
        Pipeline("broken", start=START, passes=[Flatten(), Widen(), Storage()], end=())
    with pytest.raises(PipelineError, match=r"'late' must end with the fact 'flat' .*: it was broken by 'widen' \(number 2\).*that give it: 'flatten'"):
        Pipeline("late", start=START, passes=[Flatten(), Widen()], end=(FLAT,))
    assert Pipeline("mended", start=START, passes=[Flatten(), Widen(), Flatten()], end=(FLAT,)).facts[-1] == {*START, FLAT}


def test_unknown_facts_are_refused_with_a_suggestion():
    with pytest.raises(PipelineError, match="pipeline 'x' names the unknown fact 'flatt'; did you mean 'flat'"):
        Pipeline("x", start=START, passes=[], end=("flatt",))


def test_insertion_gives_a_checked_pipeline_and_leaves_the_old_one():
    pipeline = Pipeline("p", start=START, passes=[Flatten(), Storage()], end=(PLACED,))
    longer = pipeline.insert_after("storage", Widen())
    assert [p.name for p in longer.passes] == ["flatten", "storage", "widen"] and len(pipeline.passes) == 2
    twice = longer.insert_before("flatten", Widen(), Flatten())
    assert twice.labels == ("widen", "flatten", "flatten#2", "storage", "widen#2")
    assert twice.insert_after("flatten#2", Widen(), Flatten()).labels[3] == "widen#2"
    with pytest.raises(PipelineError, match=r"'storage'.* requires the fact 'flat'.*broken by 'widen'"):
        pipeline.insert_before("storage", Widen())
    with pytest.raises(PipelineError, match="has no pass 'hoist'; it has flatten, storage"):
        pipeline.insert_after("hoist", Widen())
    assert str(longer).splitlines()[0] == "flatten; requires typed, closed; gives flat; breaks -"


def test_dump_writes_every_state_diffs_and_an_index(tmp_path):
    pipeline = Pipeline("p", start=START, passes=[Flatten(), Widen(), Flatten(), Storage()], end=(PLACED,))
    result = pipeline.run(example(), TARGET, [Dump(tmp_path / "d")])
    names = ["00_start.txt", "01_flatten.diff", "01_flatten.txt", "02_widen.txt", "03_flatten_2.txt", "04_storage.diff", "04_storage.txt", "index.txt"]
    assert sorted(os.listdir(tmp_path / "d")) == names
    read = {name: (tmp_path / "d" / name).read_text() for name in names}
    assert read["00_start.txt"] == f"{example()}\n"
    assert read["04_storage.txt"] == f"{result}\n"
    assert read["02_widen.txt"] == "unchanged since 01_flatten.txt\n"
    assert "-    allocate T: float32[32]\n+    allocate T: float32[32] at call + 0\n" in read["04_storage.diff"]
    assert read["index.txt"].splitlines()[1:] == [
        "00_start", "01_flatten: +4 -4 lines", "02_widen: unchanged", "03_flatten_2: unchanged", "04_storage: +1 -1 lines",
    ]  # fmt: skip


def test_dump_keeps_what_a_failing_pass_was_given(tmp_path):
    pipeline = Pipeline("p", start=START, passes=[Flatten(), Breaks("raises")], end=())
    with pytest.raises(ValueError, match="no idea") as caught:
        pipeline.run(example(), TARGET, [Dump(tmp_path)])
    assert caught.value.__notes__ == ["in pass 'breaks' (number 2) of pipeline 'p', function 'example'"]
    text = (tmp_path / "02_breaks.failed.txt").read_text()
    assert text.startswith("def example(A: float32[32]") and text.endswith("ValueError: no idea\n")
    assert (tmp_path / "index.txt").read_text().endswith("02_breaks: raised ValueError\n")


def test_times_counters_and_an_early_end():
    times, counters = Times(), CountersInstrument()
    pipeline = Pipeline("p", start=START, passes=[Flatten(), Storage(), Widen()], end=())
    stopped = pipeline.run(example(), TARGET, [StopAfter("storage"), times, counters])
    assert list(times.seconds) == list(counters.counts) == ["flatten", "storage"]
    assert all(0 < s < 1 for s in times.seconds.values()) and str(times).splitlines()[-1].startswith("all")
    assert counters.counts["flatten"]["nodes_built"] > 0 == counters.counts["storage"]["nodes_built"]
    assert "nodes_built" in str(counters)
    assert "at call + 0" in str(stopped)
    with pytest.raises(PipelineError, match="cannot stop after 'hoist': pipeline 'p' has flatten, storage, widen"):
        pipeline.run(example(), TARGET, [StopAfter("hoist")])


@pytest.mark.parametrize(
    ("how", "level", "message"),
    [
        ("unknown variable", 1, "is not 'closed'.*\n.*x is used in x, where it is not known"),
        ("wrong dtype", 1, "is not 'typed'.*\n.*holds float32, so the value is float32, found int32"),
        ("outside", 2, r"is not 'in_bounds'.*\n.*B\[i \+ 100\] is B\[100\], outside B: float32\[32\], at i = 0"),
        ("race", 2, r"is not 'race_free'.*\n.*iteration i = 1 of a parallel loop writes B\[0\], which iteration i = 0 writes"),
    ],
)
def test_verify_finds_what_a_pass_broke(how, level, message):
    pipeline = Pipeline("p", start=START, passes=[Flatten(), Breaks(how)], end=())
    with pytest.raises(InternalError, match=f"what pass 'breaks' made in pipeline 'p' {message}"):
        pipeline.run(example(), TARGET, [Verify(level)])
    pipeline.run(example(), TARGET, [Verify(level - 1)])


def test_verify_looks_at_the_function_it_is_given():
    i = Var("i", "int32", (0, 3))
    b = Buffer("B", (3,))
    func = Func("bad", (b,), frozenset([b]), For(i, const(4), "serial", Store(b, (i,), const(1.0, "float32"))))
    with pytest.raises(InternalError, match="the function given to pipeline 'p' is not 'in_bounds'"):
        Pipeline("p", start=START, passes=[], end=()).run(func, TARGET, [Verify(2)])


def test_verify_level_3_interprets():
    @dataclass(frozen=True)
    class AddsTwo(Pass):
        name: ClassVar[str] = "adds two"

        def run(self, func, target):
            i = Var("i", "int32", (0, 31))
            b = func.params[1]
            return func.with_body(seq(func.body, For(i, const(32), "serial", Store(b, (i,), load(b, (i,)) + 2.0))))

    pipeline = Pipeline("p", start=START, passes=[Flatten(), AddsTwo()], end=())
    with pytest.raises(InternalError, match=r"'adds two' made in pipeline 'p' gives other values \(32 of 32 elements of B; element 0 is"):
        pipeline.run(example(), TARGET, [Verify(3)])
    pipeline.run(example(), TARGET, [Verify(2)])


def test_verify_level_3_finds_memory_that_was_not_written():
    i = Var("i", "int32", (0, 3))
    b, t = Buffer("B", (4,), "int32"), Buffer("T", (4,), "int32")
    func = Func("bad", (b,), frozenset([b]), Allocate(t, For(i, const(4), "serial", Store(b, (i,), load(t, (i,))))))
    with pytest.raises(InternalError, match=r"the function given to pipeline 'p' depends on poison \(4 of 4 elements of B"):
        Pipeline("p", start=START, passes=[], end=()).run(func, TARGET, [Verify(3)])


def test_the_switches_choose_the_instruments(monkeypatch, tmp_path):
    monkeypatch.setenv(config.VERIFY.name, "0")
    monkeypatch.setenv(config.DUMP.name, "")
    assert default_instruments() == []
    monkeypatch.setenv(config.VERIFY.name, "2")
    monkeypatch.setenv(config.DUMP.name, str(tmp_path / "a"))
    verify, dump = default_instruments()
    assert verify.level == 2 and dump.folder == str(tmp_path / "a")
    assert default_instruments(tmp_path / "b")[1].folder == str(tmp_path / "b")


def test_every_fact_has_a_meaning_and_every_pass_knows_its_facts():
    assert all(fact.meaning for fact in FACTS.values())
    for name, each in PASSES.items():
        assert each.name == name and set(each.requires) | set(each.gives) | set(each.breaks) <= FACTS.keys()
