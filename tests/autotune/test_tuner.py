"""The search as a user sees it: hazards cost their trial, wrong results never win, a log is gone on with, the same seed proposes the same."""

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tilewright import autotune, te
from tilewright.autotune.database import Database
from tilewright.autotune.process import WorkerPool
from tilewright.autotune.record import decisions_key
from tilewright.tir.errors import ArgumentError, LogError, ScheduleError, TuningError
from tilewright.tir.target import Target

HAZARD = """
import os, sys, time
from tilewright import autotune, te
@autotune.template("hazard", reference=lambda a: a + 1)
def hazard(cfg, n):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    what = cfg.define_knob("what", ["fine", "illegal", "raise", "die", "hang", "wrong", "leave"]).val
    if what == "illegal":
        s[B].vectorize(te.reduce_axis((0, 4), "z"))
    if what == "raise":
        raise ValueError("template bug")
    if what == "die":
        os.abort()
    if what == "hang":
        time.sleep(3600)
    if what == "leave":
        sys.exit("gone")
    if what == "wrong":
        B = te.compute((n,), lambda i: A[0], name="B")
        s = te.create_schedule(B.op)
    print("noise")
    return s, [A, B]
if __name__ == "__main__":
    run = autotune.tune(autotune.Task("hazard", (64,), target="c"), trials=9, log=sys.argv[1], seed=0, timeout_s=5, progress=False)
    print(run.stats["stopped"], run.best.decisions)
"""


def test_every_hazard_costs_its_own_trial(tmp_path: Path) -> None:
    script, log = tmp_path / "hazard.py", tmp_path / "t.db"
    script.write_text(HAZARD)
    out = subprocess.run([sys.executable, str(script), str(log)], capture_output=True, text=True, timeout=120, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1] == "space exhausted {'what': 'fine'}"
    rows = {json.loads(row[0])["what"]: row[1:] for row in sqlite3.connect(log).execute("select decisions, status, stage, error from trials")}
    assert rows["fine"][:2] == ("ok", None)
    assert rows["illegal"][:2] == ("lower_error", "lower") and "ScheduleError: vectorize" in rows["illegal"][2]
    assert rows["raise"][:2] == ("lower_error", "lower") and "ValueError: template bug" in rows["raise"][2]
    assert rows["die"][:2] == ("crashed", "lower") and "SIGABRT" in rows["die"][2]
    assert rows["leave"][:2] == ("crashed", "lower") and "gone" in rows["leave"][2]
    assert rows["hang"][:2] == ("timeout", "lower") and "5 s" in rows["hang"][2]
    assert rows["wrong"][:2] == ("wrong_result", "verify") and "elements are wrong" in rows["wrong"][2]
    assert len(rows) == 7


@autotune.template("toy")
def toy(cfg, n, broken=False):
    """64 candidates that all compute the same."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    s = te.create_schedule(b.op)
    cfg.define_split("tile", s[b].op.axis[0], candidates=[[size] for size in range(1, 17)]).apply(s, b, s[b].op.axis[0])
    unroll = cfg.define_knob("unroll", [False, True]).val
    cfg.define_knob("nothing", [0, 1])
    cfg.suggest(tile=[8])
    if broken and cfg.decisions != cfg.space.default():
        raise ValueError("never right")
    if unroll:
        s[b].unroll(s[b].leaf_iter_vars[-1])
    return s, [a, b]


def pretend(candidates):
    """Tiles of 8 are fast."""
    return [1e-3 * (1 + abs(candidate.decisions["tile"][0] - 8) + candidate.decisions["unroll"]) for candidate in candidates]


def keys(run) -> list[str]:
    return [decisions_key(trial.decisions) for trial in run.trials]


def test_the_same_seed_proposes_the_same(tmp_path: Path) -> None:
    runs = [
        autotune.tune(autotune.Task("toy", (64,)), 24, tmp_path / f"{number}.db", seed=seed, measure=pretend, progress=False)
        for number, seed in enumerate((0, 0, 1))
    ]
    assert keys(runs[0]) == keys(runs[1]) != keys(runs[2]) and len(set(keys(runs[0]))) == 24
    first = runs[0].trials
    assert [trial.generator for trial in first[:2]] == ["default", "suggested"] and first[1].decisions["tile"] == [8]
    assert all(trial.predicted is None for trial in first[:8]) and all(trial.predicted is not None for trial in first[8:])
    assert runs[0].best.decisions["tile"] == [8] and abs(runs[0].stats["rank_correlation"]) <= 1
    assert runs[0].best.trace["steps"] and runs[0].stats["scored_per_s"] > 0


def test_a_search_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    task, log = autotune.Task("toy", (64,)), tmp_path / "t.db"
    first = autotune.tune(task, 12, log, measure=pretend, progress=False)
    again = autotune.tune(task, 12, log, measure=lambda candidates: pytest.fail("nothing is left to measure"), progress=False)
    assert keys(again) == keys(first) and again.best.decisions == first.best.decisions
    more = autotune.tune(task, 20, log, measure=pretend, progress=False)
    assert keys(more)[:12] == keys(first) and len(set(keys(more))) == 20
    with Database(log) as database:
        assert [row["n"] for row in database.rows("select count(*) as n from trials")] == [20]
        assert [row["n"] for row in database.rows("select count(*) as n from sessions")] == [2]


@pytest.mark.parametrize("search", ["random", "grid"])
def test_the_baseline_searches_run_too(tmp_path: Path, search: str) -> None:
    run = autotune.tune(autotune.Task("toy", (64,)), 20, tmp_path / "t.db", search=search, measure=pretend, progress=False)
    assert len(set(keys(run))) == 20 and run.stats["model"] is None


def test_no_valid_candidate_stops_with_the_diagnosis(tmp_path: Path) -> None:
    task = autotune.Task("toy", (64,), broken=True)
    words = r"not one of 24 candidates of toy\(64, broken=True\) was valid: 23 x lower_error: ValueError: never right; 1 x run_error: measure= gave"
    with pytest.raises(TuningError, match=words):
        autotune.tune(task, 64, tmp_path / "t.db", measure=lambda candidates: [None] * len(candidates), progress=False)


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    rounds = iter(range(2))

    def interrupted(candidates):
        if next(rounds, None) is None:
            raise KeyboardInterrupt
        return pretend(candidates)

    run = autotune.tune(autotune.Task("toy", (64,)), 60, tmp_path / "t.db", measure=interrupted, progress=False)
    assert run.stats["stopped"] == "interrupted" and len(run.trials) == 16 and run.best.decisions["tile"] == [8]
    with Database(tmp_path / "t.db") as database:
        assert len(database.trial_table(99)) == 16


def test_an_interrupt_before_anything_was_measured_goes_on(tmp_path: Path) -> None:
    def interrupted(candidates):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        autotune.tune(autotune.Task("toy", (64,)), 60, tmp_path / "t.db", measure=interrupted, progress=False)


def test_failures_are_counted_on_screen_and_a_run_prints_as_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = autotune.tune(
        autotune.Task("toy", (64,)), 8, tmp_path / "t.db", progress=True, measure=lambda candidates: [1.0, None, float("inf"), *[2.0] * (len(candidates) - 3)]
    )
    assert "8/8 trials, 6 valid (2 run_error), best 1 s" in capsys.readouterr().err
    assert str(run).startswith("toy(64): 1 s, 0.0 GFLOP/s after 8 trials (75% valid, stopped: trials)\n") and "failures: 2 x run_error" in str(run)
    assert repr(run) == str(run) and run._repr_html_().startswith("<pre>toy(64)") and repr(run.task).startswith("<Task toy(64) on c ")
    assert "decisions=" in repr(run.best) and "trace" not in repr(run.best)


def test_a_measure_that_gives_too_few_times_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="measure= gave 1 times for 8 candidates"):
        autotune.tune(autotune.Task("toy", (64,)), 8, tmp_path / "t.db", measure=lambda candidates: [1.0], progress=False)


def test_a_reference_that_fails_leaves_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*inputs):
        raise KeyboardInterrupt

    pools = []
    monkeypatch.setattr("tilewright.autotune.measure.WorkerPool.start", lambda pool, start=WorkerPool.start: (pools.append(pool), start(pool)))
    task = autotune.Task("toy", (64,))
    task.reference = interrupted
    with pytest.raises(KeyboardInterrupt):
        autotune.tune(task, 8, tmp_path / "t.db", progress=False)
    assert pools and all(worker._process is None for pool in pools for worker in pool._workers)


def test_a_time_that_is_none_is_a_failed_run(tmp_path: Path) -> None:
    run = autotune.tune(
        autotune.Task("toy", (64,)), 8, tmp_path / "t.db", progress=False, measure=lambda candidates: [1.0, None, float("inf"), *[2.0] * (len(candidates) - 3)]
    )
    assert run.stats["statuses"] == {"ok": 6, "run_error": 2} and run.stats["valid_fraction"] == 0.75


def test_what_is_tuned_is_replayed_to_the_letter(tmp_path: Path) -> None:
    task, log = autotune.Task("matmul", (24, 32, 40)), tmp_path / "t.db"
    run = autotune.tune(task, 10, log, timeout_s=60, progress=False)
    assert run.stats["statuses"] == {"ok": 10}, autotune.record.diagnosis(run.trials)
    assert run.best.seconds <= run.baseline.seconds and run.best.gflops >= run.baseline.gflops
    modules = [autotune.load_best(autotune.Task("matmul", (24, 32, 40)), log) for _ in range(2)]
    assert modules[0].get_source() == modules[1].get_source()
    a, b, c = (np.random.default_rng(0).standard_normal(shape).astype("f") for shape in ((24, 40), (40, 32), (24, 32)))
    modules[0](a, b, c)
    np.testing.assert_allclose(c, task.reference(a, b), rtol=1e-5, atol=1e-5)
    with pytest.raises(LogError, match=r"no tuned schedule of matmul\(24, 32, 41\).*tilewright tune matmul 24 32 41 --target c --log"):
        autotune.load_best(autotune.Task("matmul", (24, 32, 41)), log)


def test_any_computation_is_tuned_in_workers(tmp_path: Path) -> None:
    x = te.placeholder((6, 40), name="X")
    k = te.reduce_axis((0, 40), "k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="total")
    scaled = te.compute((6, 40), lambda i, j: x[i, j] / total[i], name="scaled")
    task = autotune.Task.from_compute([x, scaled])
    assert task.name == "scaled" and task.flops == 480 and task.bytes == 4 * 480
    run = autotune.tune(task, 6, tmp_path / "t.db", timeout_s=60, progress=False)
    assert run.stats["valid_fraction"] == 1, autotune.record.diagnosis(run.trials)
    again = autotune.Task.from_compute([x, scaled])
    assert again.key == task.key and again.dag_hash == task.dag_hash
    autotune.load_best(again, tmp_path / "t.db")


def test_a_hostile_trace_in_a_log_is_never_executed(tmp_path: Path) -> None:
    task, log = autotune.Task("toy", (64,)), tmp_path / "t.db"
    autotune.tune(task, 2, log, measure=pretend, progress=False)
    plain = sqlite3.connect(log)
    plain.execute("update trials set trace = replace(trace, '\"split\"', '\"__import__\"')")
    plain.commit()
    plain.close()
    with pytest.raises(ScheduleError, match="__import__"):
        autotune.load_best(task, log)


def test_a_record_of_another_target_serves_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "t.db"
    autotune.tune(autotune.Task("toy", (64,), target=Target("c", threads=1)), 2, log, measure=pretend, progress=False)
    task = autotune.Task("toy", (64,), target=Target("c", threads=3))
    for _ in range(2):
        autotune.load_best(task, log)
    said = capsys.readouterr().err
    assert said.count("was measured on another target") == 1 and f"--threads 3 --templates {os.path.relpath(__file__)} --log {log}\n" in said


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: autotune.Task("nosuch", (1,)), "'nosuch'; known are .*matmul.*toy"),
        (lambda: autotune.Task("matmul", (1, 2)), "matmul takes M, N, K and the options"),
        (lambda: autotune.Task("matmul", (1, 2, "x")), "K is 'x': expected a positive int"),
        (lambda: autotune.Task("conv2d", (1, 4, 8, 8, 4, 3, 3), pading=1), "unknown option 'pading'.*padding"),
        (lambda: autotune.Task("matmul", (1, 2, 3), name="x"), "unknown option 'name'"),
        (lambda: autotune.Task("attention", (1, 8, 4, 4, 4), kv_heads=3), "^attention: kv_heads=3 must divide"),
        (lambda: autotune.Task("toy", ()), "toy takes n and the options broken"),
        (lambda: autotune.Task.from_compute([te.placeholder((4,), name="A")]), "none of these is computed: A"),
        (lambda: autotune.tune(autotune.Task("toy", (8,)), 0, "unused.db"), "at least 1, found 0"),
        (lambda: autotune.tune(autotune.Task("toy", (8,)), 1, "unused.db", search="luck"), "no search 'luck'"),
        (lambda: autotune.tune(autotune.Task("toy", (8,)), 1, "unused.db", timeout_s=0), "timeout_s must be .* above 0, found 0"),
        (lambda: autotune.tune("matmul", 1, "unused.db"), "expected a task, .*found 'matmul'"),
        (lambda: autotune.default_schedule(3), "default_schedule takes an operator .*found 3"),
        (lambda: autotune.default_schedule([]), "default_schedule takes an operator"),
    ],
)
def test_wrong_requests_get_a_sentence(call, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        call()


def test_options_and_keys_are_readable() -> None:
    task = autotune.Task("conv2d", (1, 4, 8, 8, 6, 3, 3), padding=1, stride=(2, 1))
    assert task.command("tune", "my log.db") == "tilewright tune conv2d 1 4 8 8 6 3 3 --opt padding=1 --opt 'stride=[2,1]' --target c --log 'my log.db'"
    for target, words in ((Target("c", threads=77), "--threads 77"), (Target("c", march="x86-64"), "--march x86-64")):
        assert autotune.Task("relu", (8,), target=target).command("replay") == f"tilewright replay relu 8 {words}"
    key = json.loads(task.key)
    assert key["name"] == "conv2d" and key["options"] == {"padding": 1, "stride": [2, 1]} and "float32" in key["arguments"][0]
    again = autotune.Task.from_spec(json.loads(json.dumps(task.to_spec())))
    assert again.key == task.key and again.dag_hash == task.dag_hash


def test_notebook_style_templates_work(tmp_path: Path) -> None:
    """Code that is run without a file of its own, as a notebook runs it: the source is known to linecache only."""
    cell = textwrap.dedent("""
        from tilewright import autotune, te
        WIDTH = 4
        @autotune.template("cell")
        def cell(cfg, n):
            a = te.placeholder((n,), name="A")
            b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
            s = te.create_schedule(b.op)
            s[b].split(s[b].op.axis[0], factor=WIDTH * cfg.define_knob("k", [1, 2]).val)
            return s, [a, b]
        run = autotune.tune(autotune.Task("cell", (32,)), 2, LOG, timeout_s=60, progress=False)
        print(run.stats["statuses"])
    """)
    driver = (
        "import linecache, sys; source = sys.argv[1]; linecache.cache['<cell>'] = (len(source), None, source.splitlines(True), '<cell>')\n"
        "LOG = sys.argv[2]; exec(compile(source, '<cell>', 'exec'), globals())"
    )
    out = subprocess.run([sys.executable, "-c", driver, cell, str(tmp_path / "t.db")], capture_output=True, text=True, timeout=120, check=False)
    assert out.returncode == 0 and out.stdout.strip() == "{'ok': 2}", out.stderr


def test_the_template_of_the_docs_is_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
    (code,) = [block.partition("```")[0] for block in text.split("```python\n")[1:] if "@autotune.template" in block]
    exec(compile(code.partition("run = ")[0], "docs/tuning.md", "exec"), {})
    task = autotune.Task("scaled", (512, 512))
    assert len(task.space) == 10 and task.space.suggestions() == [{"columns": [16], "parallel": True}]
    np.testing.assert_array_equal(task.reference(np.ones(3)), 2 * np.ones(3))
