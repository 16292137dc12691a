"""benchmarks/gpu.py without a GPU: it has a row for every operator, its checks run on the emulator, and no row keeps another from running.

How it runs through the packages for GPUs is in test_rehearsal.py.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tilewright.te.library.operator import OPERATORS


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "benchmarks")
    return importlib.import_module("gpu")


def run(script, monkeypatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
    return script.main()


def test_every_operator_has_a_row(script):
    assert {name for name, _, _ in script.CHECKS} == set(OPERATORS)


def test_the_most_telling_rows_come_first(script):
    machine = {"arch": "sm_90", "torch": True}
    options = script.argparse.Namespace(speed=False, checks=False, small=False, only="", emulator=False)
    rows = [(request["action"], request["operator"]) for request in script.requests_of(options, machine)]
    timed = {operator for operator, _, _ in script.SPEEDS}
    first, last = rows.index(("copy", "copy")), len(rows) - rows[::-1].index(("speed", "matmul"))
    assert {operator for _, operator in rows[:first]} == timed and not timed & {operator for _, operator in rows[last:]}
    assert len(rows) == len(script.CHECKS) + len(script.SPEEDS) + 1


def test_its_checks_run_on_the_emulator(script, monkeypatch, capsys, tmp_path):
    assert run(script, monkeypatch, "--checks", "--emulator", "--only", "argmax", "--out", str(tmp_path)) == 0
    assert "ok    argmax 65 1001" in capsys.readouterr().out
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["rows"] == [{"row": "argmax 65 1001", "kind": "check", "problem": None}] and written["machine"]["name"] == "the emulator"


def test_a_wrong_row_is_told_and_the_others_run(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "CHECKS", [("argmax", (0, 0, 0, 0, 0), {"no_such": 1}), ("relu", (4, 8), {})])
    assert run(script, monkeypatch, "--checks", "--emulator") == 1
    shown = capsys.readouterr().out
    assert "WRONG argmax" in shown and "ok    relu 4 8" in shown and "1 rows right, 1 wrong" in shown


def test_a_row_that_hangs_or_dies_is_told_and_the_others_run(script, monkeypatch, capsys, tmp_path):
    """The rows of this module die and hang where those of gpu_rows.py work."""
    (tmp_path / "bad_rows.py").write_text(
        "import os, time\n"
        "import gpu_rows\n"
        "from tilewright.autotune.process import serve\n"
        "def start(init, mark):\n"
        "    answer = gpu_rows.start(init, mark)\n"
        "    def bad(request):\n"
        "        if request['action'] == 'check' and request['operator'] == 'gelu':\n"
        "            mark('run')\n"
        "            time.sleep(600)\n"
        "        if request['action'] == 'check' and request['operator'] == 'silu':\n"
        "            raise SystemExit('the context is lost')\n"
        "        return answer(request)\n"
        "    return bad\n"
        "def main(parent):\n"
        "    serve(parent, start)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    pool = script.WorkerPool
    monkeypatch.setattr(script, "WorkerPool", lambda size, module, init: pool(size, "bad_rows", init))
    monkeypatch.setattr(script, "EMULATED_ROW_S", 5.0)
    monkeypatch.setattr(script, "CHECKS", [(operator, (4, 8), {}) for operator in ("gelu", "silu", "relu")])
    assert run(script, monkeypatch, "--checks", "--emulator") == 1
    shown = capsys.readouterr().out
    assert "WRONG gelu 4 8: no answer within" in shown and "(during: run)" in shown
    assert "WRONG silu 4 8: the worker process died (exit status 1): the context is lost" in shown and "ok    relu 4 8" in shown


def test_no_time_left_is_told(script, monkeypatch, capsys):
    assert run(script, monkeypatch, "--checks", "--emulator", "--only", "relu", "--limit-s", "0.01") == 1 and "no time left" in capsys.readouterr().out


def test_a_speed_without_its_peer_is_shown(script):
    row = {"row": "matmul 8 8 8", "problem": None, "unit": "GFLOP/s", "ours": 2.0, "torch": None, "note": "PyTorch: not supported"}
    assert script.line_of(row).endswith("2.0 GFLOP/s   (torch: none); PyTorch: not supported")
    assert "ratio 2.00; differs" in script.line_of(row | {"torch": 1.0, "problem": "differs", "note": None})


def test_without_a_gpu_it_says_so(script, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SystemExit, match=r"GPU.*cannot be used|no GPU can be used|no GPU number 0"):
        run(script, monkeypatch)
