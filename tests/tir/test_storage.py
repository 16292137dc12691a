"""Storage and liveness: who lives where, who shares bytes with whom, and that values survive it."""

from __future__ import annotations

import random
import sys
from itertools import pairwise

import numpy as np
import pytest

from tilewright.tir.expr import Buffer, Const, Var, add, as_expr, const, load
from tilewright.tir.interp import interpret
from tilewright.tir.liveness import LiveRange, Meetings, live_ranges, overlapping_places
from tilewright.tir.passes import Storage
from tilewright.tir.stmt import Allocate, For, Func, Place, Prefetch, Produce, Stmt, Store, seq
from tilewright.tir.target import Target
from tilewright.tir.verify import FACTS
from tilewright.tir.visit import substitute, walk

TARGET = Target("c", threads=1)
ONE = const(1.0, "float32")


def step(source: Buffer, target: Buffer, extent, kind: str = "serial") -> Stmt:
    """target[i] = source[i] + 1"""
    extent = as_expr(extent)
    i = Var("i", "int32", (0, extent.value - 1 if isinstance(extent, Const) else None))
    return For(i, extent, kind, Store(target, (i,), add(load(source, (i,)), ONE)))


def chain(sizes: list) -> Func:
    """A -> T0 -> T1 ... -> B, each a copy of min(size) elements."""
    a, b = Buffer("A", (8,)), Buffer("B", (8,))
    temporaries = [Buffer(f"T{n}", (size,)) for n, size in enumerate(sizes)]
    every = [a, *temporaries, b]
    body: Stmt = seq(*[Produce(y.name, step(x, y, 8)) for x, y in pairwise(every)])
    for t in reversed(temporaries):
        body = Allocate(t, body)
    return Func("chain", (a, b), frozenset([b]), body)


def places(func: Func) -> dict[str, str]:
    return {n.buffer.name: str(n.place) for n in walk(func.body) if isinstance(n, Allocate)}


def run(func: Func, sizes=()) -> np.ndarray:
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    interpret(func, [a, b], sizes)
    return b - a


def checked(func: Func, **options) -> Func:
    placed = Storage(**options).run(func, TARGET)
    assert FACTS["placed"].check(placed) == []
    assert Storage(**options).run(placed, TARGET) is placed
    return placed


def test_five_intermediates_of_one_size_take_two_slots():
    func = checked(chain([100, 100, 100, 100, 100]))
    assert places(func) == {"T0": "call + 0", "T1": "call + 448", "T2": "call + 0", "T3": "call + 448", "T4": "call + 0"}
    assert func.workspace_bytes == (896, 0)
    assert (run(func) == 6).all()


def test_largest_first_and_offsets_are_multiples_of_64():
    func = checked(chain([8, 100, 9, 1000, 16]))
    assert places(func) == {"T0": "call + 448", "T1": "call + 0", "T2": "call + 4032", "T3": "call + 0", "T4": "call + 4032"}
    assert (run(func) == 6).all()


def test_two_readers_keep_a_buffer_alive():
    a, b = Buffer("A", (8,)), Buffer("B", (8,))
    t = [Buffer(f"T{n}", (8,)) for n in range(3)]
    body = seq(step(a, t[0], 8), step(t[0], t[1], 8), step(t[1], t[2], 8), step(t[0], b, 8))
    for buffer in t:
        body = Allocate(buffer, body)
    func = checked(Func("f", (a, b), frozenset([b]), body))
    assert places(func) == {"T0": "call + 0", "T1": "call + 64", "T2": "call + 128"}
    assert (run(func) == 2).all()


def test_what_an_iteration_leaves_for_the_next_is_kept_through_the_loop():
    a, b, kept, brief = Buffer("A", (8,)), Buffer("B", (8,)), Buffer("kept", (8,)), Buffer("brief", (8,))
    round_ = Var("round", "int32", (0, 2))
    inside = Allocate(brief, seq(step(kept, brief, 8), step(brief, kept, 8)))
    func = checked(Func("f", (a, b), frozenset([b]), Allocate(kept, seq(step(a, kept, 8), For(round_, const(3), "serial", inside), step(kept, b, 8)))))
    assert places(func) == {"kept": "call + 0", "brief": "call + 64"}
    assert (run(func) == 8).all()


def test_buffers_of_one_iteration_share_with_those_of_other_loops():
    a, b = Buffer("A", (8,)), Buffer("B", (8,))
    loops = []
    for number in range(3):
        t, round_ = Buffer(f"T{number}", (8,)), Var(f"r{number}", "int32", (0, 1))
        loops.append(For(round_, const(2), "serial", Allocate(t, seq(step(a, t, 8), step(t, b, 8)))))
    func = checked(Func("f", (a, b), frozenset([b]), seq(*loops)))
    assert set(places(func).values()) == {"call + 0"} and func.workspace_bytes == (64, 0)
    assert (run(func) == 2).all()


def test_inside_a_parallel_loop_each_thread_has_its_own():
    a, b, shared, own = Buffer("A", (8,)), Buffer("B", (8,)), Buffer("shared", (8,)), Buffer("own", (20,))
    p = Var("p", "int32", (0, 7))
    each = Allocate(own, seq(Store(own, (const(3),), load(shared, (p,))), Store(b, (p,), load(own, (const(3),)) + 1.0)))
    func = checked(Func("f", (a, b), frozenset([b]), Allocate(shared, seq(step(a, shared, 8), For(p, const(8), "parallel", each)))))
    assert places(func) == {"shared": "call + 0", "own": "thread + 0"}
    assert func.workspace_bytes == (64, 128)
    assert (run(func) == 2).all()


def test_small_local_buffers_go_on_the_stack_and_large_ones_do_not():
    a, b = Buffer("A", (8,)), Buffer("B", (8,))
    n = Var("n", "int32", (8, None))
    t = [Buffer("T0", (16,), scope="local"), Buffer("T1", (1024,), scope="local"), Buffer("T2", (n,), scope="local"), Buffer("T3", (8,))]
    every = [a, *t, b]
    body: Stmt = seq(*[step(x, y, 8) for x, y in pairwise(every)])
    for buffer in reversed(t):
        body = Allocate(buffer, body)
    func = checked(Func("f", (a, b), frozenset([b]), body, (n,)), stack_bytes=2048)
    assert places(func) == {"T0": "stack", "T1": "call + 0", "T2": "call + 4096", "T3": "call + 0"}
    assert (run(func, [9]) == 5).all()


def test_symbolic_sizes_share_with_their_like():
    n = Var("n", "int32", (1, None))
    a, b = Buffer("A", (8,)), Buffer("B", (8,))
    t = [Buffer("T0", (n * 4,)), Buffer("T1", (n * 4,)), Buffer("T2", (n * 4,)), Buffer("T3", (n,)), Buffer("T4", (100,))]
    every = [a, *t, b]
    body: Stmt = seq(*[step(x, y, n) for x, y in pairwise(every)])
    for buffer in reversed(t):
        body = Allocate(buffer, body)
    func = checked(Func("f", (a, b), frozenset([b]), body, (n,)))
    found = {s.buffer.name: s.place for s in walk(func.body) if isinstance(s, Allocate)}
    assert found["T0"].offset is found["T2"].offset and found["T1"].offset is not found["T0"].offset
    assert found["T4"] == Place("call", 0)
    total = func.workspace_bytes[0]
    assert total.dtype == "int64" and substitute(total, {n: const(7)}).value == 448 + 128 + 128 + 64
    for size in (1, 5, 8):
        a_, b_ = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
        interpret(func, [a_, b_], [size])
        assert (b_[:size] - a_[:size] == 6).all()


def test_what_is_never_accessed_goes_away_and_nothing_to_do_changes_nothing():
    plain = chain([])
    assert Storage().run(plain, TARGET) is plain
    b = Buffer("B", (8,))
    i = Var("i", "int32", (0, 7))
    func = Func("f", (b,), frozenset([b]), Allocate(Buffer("T", (8,)), For(i, const(8), "serial", Store(b, (i,), ONE))))
    assert str(checked(func)) == "def f(B: float32[8] out):\n    for i in range(8):\n        B[i] = 1.0"


@pytest.mark.parametrize("offset", [0, 32, 60])
def test_the_check_sees_buffers_that_share_bytes(offset):
    func = chain([16, 16])
    t0 = func.body
    wrong = func.with_body(Allocate(t0.buffer, Allocate(t0.body.buffer, t0.body.body, Place("call", offset)), Place("call", 0)))
    wrong = Func(wrong.name, wrong.params, wrong.outputs, wrong.body, (), (124, 0))
    assert [(x.name, y.name) for x, y in overlapping_places(wrong)] == [("T0", "T1")]
    assert any("share bytes" in problem for problem in FACTS["placed"].check(wrong))


def test_ranges_are_in_program_order():
    ranges = live_ranges(chain([8, 8, 8]))
    assert [r.allocate.buffer.name for r in ranges] == ["T0", "T1", "T2"]
    assert [ranges[0].meets(ranges[1]), ranges[1].meets(ranges[2]), ranges[0].meets(ranges[2])] == [True, True, False]


def test_a_buffer_that_is_only_prefetched_goes_with_its_prefetches():
    a, t = Buffer("A", (8,)), Buffer("T", (8,))
    body = seq(Prefetch(t, (const(3),)), Prefetch(a, (const(2),)), Store(a, (const(0),), ONE))
    new = Storage().run(Func("f", (a,), frozenset([a]), Allocate(t, body)), TARGET)
    assert str(new).splitlines()[1:] == ["    prefetch A[2]", "    A[0] = 1.0"]


def test_ranges_that_meet_are_those_of_the_definition():
    rng = random.Random(11)
    for _ in range(200):
        ranges = [
            LiveRange(None, False, 0, first, rng.choice([-1, first + rng.randint(0, 6)])) for first in (rng.randint(0, 20) for _ in range(rng.randint(1, 12)))
        ]
        meetings, added = Meetings(ranges), []
        for each in rng.sample(ranges, len(ranges)):
            found = meetings.of(each)
            assert len(found) == len(set(found)) and set(found) == {other for other in added if other.meets(each)}, ranges
            meetings.add(each)
            added.append(each)


def test_work_grows_linearly_where_few_ranges_meet():
    """Calls of functions, Python's and C's: comparing every buffer with every other shows here."""

    def calls(stages):
        func, found = chain([8] * stages), 0

        def count(frame, event, argument):
            nonlocal found
            found += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            overlapping_places(Storage().run(func, TARGET))
        finally:
            sys.setprofile(None)
        return found

    small, large = calls(50), calls(400)
    assert large <= 8.5 * small, (small, large)
