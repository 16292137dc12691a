"""benchmarks/gpu.py without a GPU: it has a row for every operator, and its checks run on the emulator."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tilewright.te.library.operator import OPERATORS


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_benchmark"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_operator_has_a_row(script):
    assert {name for name, _, _ in script.CHECKS} == set(OPERATORS)


def test_its_checks_run_on_the_emulator(script, monkeypatch, capsys, tmp_path):
    figures = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--checks", "--emulator", "--only", "argmax", "--json", str(figures)])
    assert script.main() == 0
    assert "ok    argmax 65 1001" in capsys.readouterr().out and '"argmax 65 1001"' in figures.read_text()


def test_a_wrong_row_is_told_and_the_others_run(script, monkeypatch, capsys):
    monkeypatch.setattr(script, "CHECKS", [("argmax", (0, 0, 0, 0, 0), {"no_such": 1}), ("relu", (4, 8), {})])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--checks", "--emulator"])
    assert script.main() == 1
    shown = capsys.readouterr().out
    assert "WRONG argmax" in shown and "ok    relu 4 8" in shown and "1 rows right, 1 wrong" in shown


def test_no_time_left_is_told(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--checks", "--emulator", "--only", "relu", "--limit-s", "0"])
    assert script.main() == 1 and "no time left" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(script, monkeypatch):
    monkeypatch.setattr(script, "driver", lambda: (_ for _ in ()).throw(script.tw.TargetError("no GPU can be used")))
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    with pytest.raises(SystemExit, match="no GPU can be used"):
        script.main()
