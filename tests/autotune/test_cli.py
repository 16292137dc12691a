"""The command line: its main job from tuning to replay, and a sentence for every request that cannot be met."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import cli
from tilewright.autotune import registry, task
from tilewright.autotune.database import Database
from tilewright.autotune.record import Trial


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command, in this process."""
    monkeypatch.setattr(sys, "argv", ["tilewright", *map(str, words)])
    status = 0
    try:
        cli.main()
    except SystemExit as error:
        status = int(error.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    return lambda *words: run(monkeypatch, capsys, *words)


def test_tune_then_replay(command, tmp_path: Path) -> None:
    log = tmp_path / "t.db"
    status, out, err = command("tune", "matmul", 16, 24, 32, "--trials", 9, "--log", log, "--seed", 3, "--timeout", 60)
    assert status == 0 and "GFLOP/s after 9 trials (100% valid, stopped: trials)" in out and "the best is" in out, err
    assert f"replay it: tilewright replay matmul 16 24 32 --log {log}" in out
    assert "tuning matmul(16, 24, 32): 9 trials" in err and "round 1: 9/9 trials" in err and "rank correlation" in err
    assert sqlite3.connect(log).execute("select count(*), count(predicted), min(seed) from trials, sessions").fetchone() == (9, 1, 3)
    status, out, _ = command("replay", "matmul", 16, 24, 32, "--log", log)
    assert status == 0 and "when it was tuned" in out and "result right (exactly)" in out and "GFLOP/s" in out
    assert "NumPy: " in out and " x as fast" in out and "s = te.create_schedule(C.op)" in out
    for emit, word in (("c", "#include"), ("tir", "for "), ("python", "s = te.create_schedule(C.op)")):
        status, out, _ = command("replay", "matmul", 16, 24, 32, "--log", log, "--emit", emit)
        assert status == 0 and word in out
    status, out, _ = command("log", "best", "--log", log)
    assert status == 0 and "matmul" in out and "16 24 32" in out and "9/9" in out
    status, out, _ = command("log", "list", "--log", log, "--limit", 4)
    assert status == 0 and out.count("matmul") == 4 and '"rows"' in out
    status, out, _ = command("run", "matmul", 16, 24, 32, "--log", log)
    assert status == 0 and "result right" in out
    status, out, err = command("replay", "matmul", 16, 24, 33, "--log", log)
    assert status == 1 and out == "" and f"tilewright tune matmul 16 24 33 --target c --log {log}" in err and err.count("\n") == 1


def test_show_and_run_need_no_tuning(command) -> None:
    for stage, word in (("tir", "parallel("), ("c", "#include"), ("python", "cache_write"), ("schedule", "C")):
        status, out, _ = command("show", "matmul", 128, 128, 128, "--stage", stage, "--threads", 2)
        assert status == 0 and word in out, stage
    status, out, _ = command("run", "conv2d", 1, 4, 8, 8, 6, 3, 3, "--opt", "padding=1", "--opt", "stride=[2,1]", "--threads", 1)
    assert cli._option("causal=False") == cli._option("causal=false") == ("causal", False) and cli._option("mode=max") == ("mode", "max")
    assert status == 0 and "conv2d(1, 4, 8, 8, 6, 3, 3, padding=1, stride=(2, 1))" in out and "right (exactly)" in out


def test_templates_of_a_file(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's templates are known to every command; its main program does not run; the commands that are printed name it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "TEMPLATES", dict(registry.TEMPLATES))
    monkeypatch.setattr(task, "TEMPLATES", registry.TEMPLATES)
    (tmp_path / "random.py").write_text("""from tilewright import autotune, te
@autotune.template("tripled")
def tripled(cfg, n):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 3.0, name="B")
    s = te.create_schedule(B.op)
    inner = cfg.define_split("t", B.op.axis[0], policy="power2", max_factor=8).apply(s, B, B.op.axis[0])[1]
    s[B].vectorize(inner)
    return s, [A, B]
if __name__ == "__main__":
    raise SystemExit("the main program ran")
""")
    (tmp_path / "empty.py").write_text("x = 1\n")
    status, out, err = command("tune", "tripled", 40, "--templates", "random.py", "--trials", 2, "--log", "t.db", "--timeout", 60)
    assert status == 0 and "replay it: tilewright replay tripled 40 --templates random.py --log t.db" in out, err
    status, out, _ = command("replay", "tripled", 40, "--templates", "random.py", "--log", "t.db")
    assert status == 0 and "result right" in out
    status, _, err = command("replay", "tripled", 41, "--templates", "random.py", "--log", "t.db")
    assert status == 1 and "tilewright tune tripled 41 --target c --templates random.py --log t.db" in err
    for file, says in (("nosuch.py", "there is no file 'nosuch.py'"), ("empty.py", "'empty.py' defines no template")):
        status, _, err = command("show", "tripled", 40, "--templates", file)
        assert status == 1 and says in err


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["tune", "nosuch", 1, 2], 1, "no operator or template 'nosuch'; known are"),
        (["run", "nosuch", 1, 2], 1, "a template of your own is known once the file that defines it is imported (on the command line: --templates FILE)"),
        (["tune", "matmul", 1, 2], 1, "matmul takes M, N, K"),
        (["tune", "matmul", "x", 2, 3], 1, "M is 'x': expected a positive int"),
        (["tune", "matmul", 8, 8, 8, "--target", "nosuch"], 1, "nosuch"),
        (["tune", "matmul", 8, 8, 8, "--trials", -1], 2, "-1 is not in the range"),
        (["tune", "matmul", 8, 8, 8, "--opt", "padding"], 1, "KEY=VALUE"),
        (["run", "matmul", 8, 8, 8, "--opt", "name=x"], 1, "unknown option 'name'"),
        (["run", "matmul", 8, 8, 8, "--opt", "target=x"], 1, "chosen by --target"),
        (["tune", "matmul", 8, 8, 8, "--opt", "padding=1"], 1, "unknown option 'padding': matmul takes"),
        (["replay", "matmul", 8, 8, 8, "--log", "/nonexistent/x.db"], 1, "no tuning log at '/nonexistent/x.db'"),
        (["log", "best", "--log", "/nonexistent/x.db"], 1, "no tuning log at"),
        (["show", "softmax"], 1, "softmax"),
        (["tune", "matmul", 8, 8, 8, "--log", "/proc/nowhere/t.db"], 1, "cannot make a tuning log"),
        (["launch"], 2, "No such command 'launch'"),
        (["show", "matmul", 8, 8, 8, "--stage", "spirv"], 2, "'spirv' is not one of"),
        (["run", "matmul", 8, 8, 8, "--march", "-rm"], 1, "march '-rm'"),
    ],
)
def test_bad_requests_get_a_sentence(command, words, status: int, says: str) -> None:
    found, out, err = command(*words)
    assert (found, out) == (status, "") and says in err and "Traceback" not in err


def test_damaged_and_newer_logs_get_a_sentence(command, tmp_path: Path) -> None:
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"not a database at all" * 100)
    for words in (["tune", "matmul", 8, 8, 8], ["replay", "matmul", 8, 8, 8], ["log", "list"]):
        status, _, err = command(*words, "--log", bad)
        assert status == 1 and "is no tuning log" in err and bad.read_bytes() == b"not a database at all" * 100
    Database(tmp_path / "new.db", create=True).close()
    plain = sqlite3.connect(tmp_path / "new.db")
    plain.execute("pragma user_version = 999999")
    plain.commit()
    plain.close()
    status, _, err = command("log", "list", "--log", tmp_path / "new.db")
    assert status == 1 and "newer" in err


def test_what_a_log_says_is_shown_as_text(command, tmp_path: Path) -> None:
    """Neither markup nor control characters from a log reach the terminal."""
    with Database(tmp_path / "t.db", create=True) as log:
        workload = log.add_workload("key", "hash", name="[red]evil[/red]", args="\x1b[2J[bold]", flops=1.0, bytes_moved=1.0)
        log.add_trial(workload, log.add_target("c", "{}"), log.add_session("h", {}, {}, 0), Trial({}, "crashed", "run", "\x1b]0;title\x07 [link=x]y"))
    status, out, _ = command("log", "list", "--log", tmp_path / "t.db")
    assert status == 0 and "[red]evil[/red]" in out and "\x1b" not in out and "[link=x]y" in out
    status, out, _ = command("log", "best", "--log", tmp_path / "t.db")
    assert status == 0 and "holds no valid trial yet" in out


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_search_that_is_told_to_end_keeps_what_was_measured(tmp_path: Path, sent: signal.Signals) -> None:
    """No worker and no folder is left, the log is whole, and the best so far is printed."""
    words = ["tune", "matmul", "16", "24", "32", "--trials", "4000", "--log", str(tmp_path / "t.db")]
    (tmp_path / "scratch").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("round 0"):
            break
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "stopped: interrupted" in out and "interrupted; the log holds" in err and "Traceback" not in err
    assert sqlite3.connect(tmp_path / "t.db").execute("select count(*) >= 8, min(status) from trials").fetchone() == (1, "ok")
    assert not list((tmp_path / "scratch").glob("tilewright*"))


def test_a_time_of_the_emulator_is_not_compared_with_numpy(command) -> None:
    status, out, _ = command("run", "matmul", 8, 8, 8, "--target", "cuda", "--device", "emulator")
    assert status == 0 and "result right" in out and "says nothing about that of a GPU" in out and "NumPy" not in out


@pytest.mark.parametrize("words", [[], ["tune"], ["replay"], ["show"], ["run"], ["log"], ["log", "best"], ["log", "list"], ["doctor"]])
def test_help_has_an_example(command, words: list[str]) -> None:
    status, out, _ = command(*words, "--help")
    assert status == 0 and "Usage:" in out and ("Example" in out or words == ["log"])


def test_the_module_runs_as_a_program() -> None:
    out = subprocess.run([sys.executable, "-m", "tilewright", "show", "relu", "8", "--stage", "python"], capture_output=True, text=True, check=False)
    assert out.returncode == 0 and out.stdout.startswith("s = te.create_schedule(")
    out = subprocess.run([sys.executable, "-m", "tilewright", "tune", "nosuch"], capture_output=True, text=True, check=False)
    assert out.returncode == 1 and "Traceback" not in out.stderr
