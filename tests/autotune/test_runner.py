"""The child that runs candidates: kernels that are wrong, crash, hang or write where they must not, written by hand in C."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.autotune import runner as runner_module
from tilewright.autotune.process import Reply, WorkerPool
from tilewright.autotune.verify import Check
from tilewright.targets.generated import ArgumentSpec, Generated
from tilewright.targets.module import compile_module
from tilewright.tir.errors import TargetError
from tilewright.tir.target import Target

N = 64
BODIES = {
    "right": "for (int i = 0; i < 64; i++) B[i] = A[i] + 1.0f;",
    "wrong": "for (int i = 0; i < 64; i++) B[i] = A[i];",
    "unwritten": "for (int i = 0; i < 63; i++) B[i] = A[i] + 1.0f;",
    "writes_input": "for (int i = 0; i < 64; i++) B[i] = A[i] + 1.0f; ((float *)A)[3] = 7.0f;",
    "later_wrong": "static int calls; for (int i = 0; i < 64; i++) B[i] = A[i] + 1.0f; if (++calls > 3) B[9] = 0.0f;",
    "abort": "__builtin_trap();",
    "segfault": "*(volatile int *)8 = 1;",
    "exit": "extern void _exit(int); _exit(5);",
    "hang": "for (volatile long i = 0; ; i++) {}",
    "no_memory": "return 1;",
}


def library(name: str) -> str:
    source = f"#include <stdint.h>\nint32_t {name}(const float *A, float *B) {{ {BODIES[name]} return 0; }}\n"
    arguments = (ArgumentSpec("A", "float32", (N,), False), ArgumentSpec("B", "float32", (N,), True))
    module = compile_module(Generated(name, source, arguments), Target("c", threads=1))
    path = module.library_path
    module.close()
    return path


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory):
    values = np.arange(N, dtype="float32")
    check = Check((values, values + 1), (False, True), exact=True)
    folder: Path = tmp_path_factory.mktemp("check")
    with WorkerPool(1, "tilewright.autotune.runner", {"check": check.save(folder)}) as pool:
        yield pool


def run(runner: WorkerPool, path: str, limit_s: float = 60.0, give_up_s: float | None = None) -> Reply:
    return runner.map([{"library": path, "min_repeat_ms": 1.0, "give_up_s": give_up_s}], limit_s)[0]


def test_a_right_kernel_is_timed(runner: WorkerPool) -> None:
    reply = run(runner, library("right"))
    assert reply.status == "ok" and reply.data["status"] == "ok"
    assert len(reply.data["repeats"]) in (5, 10) and all(1e-8 < seconds < 1e-2 for seconds in reply.data["repeats"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "64 of 64 elements are wrong, the first at [0]: 0.0, expected 1.0"),
        ("unwritten", "1 of 64 elements are wrong, the first at [63]: nan, expected 64.0"),
        ("writes_input", "input 0 was written to"),
        ("later_wrong", "the first at [9]"),
    ],
)
def test_a_wrong_kernel_is_never_timed_as_right(runner: WorkerPool, name: str, words: str) -> None:
    reply = run(runner, library(name))
    assert reply.status == "ok" and reply.data["status"] == "wrong_result" and words in reply.data["error"]
    assert run(runner, library("right")).data["status"] == "ok"  # the inputs are as before


@pytest.mark.parametrize(("name", "words"), [("abort", "SIG"), ("segfault", "SIGSEGV"), ("exit", "exit status 5")])
def test_a_crash_costs_one_run(runner: WorkerPool, name: str, words: str) -> None:
    reply = run(runner, library(name))
    assert (reply.status, reply.stage) == ("crashed", "run") and words in reply.text
    assert run(runner, library("right")).data["status"] == "ok"


def test_a_kernel_that_hangs_is_ended(runner: WorkerPool) -> None:
    reply = run(runner, library("hang"), limit_s=1.5)
    assert (reply.status, reply.stage) == ("timeout", "run")
    assert run(runner, library("right")).data["status"] == "ok"


def test_what_cannot_run_says_where(runner: WorkerPool, tmp_path: Path) -> None:
    reply = run(runner, library("no_memory"))
    assert (reply.status, reply.stage) == ("failed", "run") and "MemoryError" in reply.text
    (tmp_path / "junk.so").write_bytes(b"no library")
    reply = run(runner, str(tmp_path / "junk.so"))
    assert (reply.status, reply.stage) == ("failed", "load") and "junk.so" in reply.text


def test_a_slow_candidate_is_not_timed_with_care(runner: WorkerPool) -> None:
    assert len(run(runner, library("right"), give_up_s=1e-12).data["repeats"]) == 1


def test_candidates_are_compared_in_turns(runner: WorkerPool) -> None:
    (reply,) = runner.map([{"libraries": [library("right"), library("wrong")], "rounds": 4, "min_repeat_ms": 0.5}], 60)
    assert [len(repeats) for repeats in reply.data["repeats"]] == [4, 4]


def test_a_gpu_that_is_lost_ends_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else every candidate after the one that failed would fail too; one that is refused costs itself only."""
    check = Check((np.zeros(N, "f"),), (True,), exact=True)
    answer = runner_module.start({"check": check.save(tmp_path)}, lambda stage: None)

    def refuse(path: str) -> None:
        raise TargetError("a kernel failed")

    monkeypatch.setattr(runner_module, "load_module", refuse)
    with pytest.raises(TargetError, match="a kernel failed"):
        answer({"library": "x"})
    monkeypatch.setattr(runner_module, "gpu_is_lost", lambda: True)
    with pytest.raises(SystemExit, match="a kernel failed"):
        answer({"library": "x"})
