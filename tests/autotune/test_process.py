"""Worker processes: a child that raises, dies or hangs costs its own request only; none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.autotune.process import WorkerPool

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def pool():
    sys.path.insert(0, HERE)
    with WorkerPool(2, "echo_worker", {"greeting": "hello"}) as workers:
        workers.start()
        yield workers
    sys.path.remove(HERE)


def test_replies_come_back_in_order(pool: WorkerPool) -> None:
    heard = []
    replies = pool.map([{"do": "echo", "n": n} for n in range(20)], 60, lambda number, reply: heard.append(number))
    assert [reply.data["echo"]["n"] for reply in replies] == list(range(20)) and sorted(heard) == list(range(20))
    assert all(reply.status == "ok" and reply.data["init"] == {"greeting": "hello"} for reply in replies)
    assert len({reply.data["pid"] for reply in replies}) == 2


def test_big_answers_and_prints_do_not_break_the_pipe(pool: WorkerPool) -> None:
    big, noisy = pool.map([{"do": "big"}, {"do": "print"}], 60)
    assert len(big.data["text"]) == 3_000_000 and noisy.status == "ok"


def test_each_disaster_costs_one_request(pool: WorkerPool) -> None:
    deeds = [{"do": "echo"}, {"do": "raise"}, {"do": "abort"}, {"do": "segfault"}, {"do": "exit"}, {"do": "sleep", "s": 60}, {"do": "echo"}]
    started = time.perf_counter()
    replies = pool.map(deeds, 4.0)
    assert [reply.status for reply in replies] == ["ok", "failed", "crashed", "crashed", "crashed", "timeout", "ok"]
    assert all(reply.stage == "working" for reply in replies)
    _, raised, aborted, segfault, left, slept, _ = replies
    assert raised.text == "ValueError: told to" and raised.data["kind"] == "ValueError"
    assert "SIGABRT" in aborted.text and "last words" in aborted.text
    assert "SIGSEGV" in segfault.text and "exit status 3" in left.text and "4 s" in slept.text
    assert time.perf_counter() - started < 60


def test_a_worker_that_cannot_start_says_why(pool: WorkerPool) -> None:
    with WorkerPool(1, "echo_worker", {"fail": True}) as broken:
        (reply,) = broken.map([{"do": "echo"}], 60)
        assert reply.status == "failed" and "cannot start" in reply.text
    with WorkerPool(1, "no_such_module", {}) as broken:
        (reply,) = broken.map([{"do": "echo"}], 60)
        assert reply.status == "crashed" and "no_such_module" in reply.text


def processes_with(mark: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def test_no_child_outlives_a_killed_parent() -> None:
    mark = f"TILEWRIGHT_TEST_MARK={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = mark.partition("=")
    code = (
        f"import sys; sys.path.insert(0, {HERE!r})\nfrom tilewright.autotune.process import WorkerPool\n"
        "with WorkerPool(2, 'echo_worker', {}) as pool:\n"
        "    pool.map([{'do': 'echo'}, {'do': 'echo'}], 30); print('ready', flush=True)\n"
        "    pool.map([{'do': 'sleep', 's': 60}, {'do': 'sleep', 's': 60}], 60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, name: value})
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    assert len(processes_with(mark)) == 3
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    for _ in range(50):
        if not processes_with(mark):
            break
        time.sleep(0.1)
    assert processes_with(mark) == []


def test_what_a_worker_started_ends_with_it(pool: WorkerPool) -> None:
    mark = f"TILEWRIGHT_TEST_MARK={time.monotonic_ns()}"
    name, _, value = mark.partition("=")
    os.environ[name] = value
    try:
        with WorkerPool(1, "echo_worker", {}) as own:
            (reply,) = own.map([{"do": "spawn"}], 1.0)
            assert reply.status == "timeout"
        time.sleep(0.2)
        assert processes_with(mark) == []
    finally:
        del os.environ[name]
