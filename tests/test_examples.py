"""Every example runs, on small odd sizes, in a process of its own, and checks its own result."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright

ROOT = Path(__file__).resolve().parent.parent
RUNS = {
    "matmul.py": ["--size", "37"],
    "conv2d.py": ["--channels", "3", "--size", "13", "--filters", "5", "--stride", "2", "--show"],
    "attention.py": ["--heads", "2", "--length", "19", "--depth", "12", "--show"],
    "rows.py": ["--small", "--show"],
    "conv_bn_relu.py": ["--channels", "3", "--size", "13", "--filters", "5", "--trials", "4"],
    "cuda_matmul.py": ["--size", "48"],
    "own_template.py": ["--size", "20", "24", "16", "--trials", "2"],
    "blas.py": ["--size", "17", "19", "37"],
    "c_program.py": ["--rows", "19", "--columns", "37"],
}


def test_every_example_is_run():
    scripts = {p.name for p in (ROOT / "examples").glob("*.py") if "__main__" in p.read_text()}
    assert scripts == set(RUNS)


@pytest.mark.parametrize("script", RUNS)
def test_example(script):
    # the package is found where this process found it, installed or not
    where = os.pathsep.join([str(Path(tilewright.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    rounds = ["--rounds", "1"] if "--rounds" in (ROOT / "examples" / script).read_text() else []
    command = [sys.executable, str(ROOT / "examples" / script), *RUNS[script], *rounds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": where})
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"\d [mu]s\b", done.stdout)
