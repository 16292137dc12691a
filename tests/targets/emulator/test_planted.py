"""Every planted fault is found, at its place and under its name; its correct twin gives no report and right numbers; nvcc accepts both."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

import numpy as np
import pytest

from tilewright.targets.emulator import Program

from .planted import PLANTED, Planted, together

SEED = 20261129
LISTS = ("races", "out_of_bounds", "uninitialised", "divergence")
TOGETHER = together(PLANTED)


@cache
def program() -> Program:
    return Program(TOGETHER.source, list(dict.fromkeys(name for name, _ in TOGETHER.names.values())), check="race")


def launch(case: Planted, broken: bool):
    """The report, the arguments after the launch, what they should be, and the number of lines before the kernel's own."""
    name, lines_before = TOGETHER.names[case.name, broken]
    arguments, expected = case.arguments(np.random.default_rng(SEED))
    program().clear_report()
    program().launch(name, case.grid, case.block, case.shared_bytes[broken], arguments, timeout_s=20)
    return program().report, arguments, expected, lines_before


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_the_correct_twin_is_clean_and_right(case):
    report, arguments, expected, _ = launch(case, broken=False)
    for name in LISTS:
        assert getattr(report, name) == [], report
    for found, wanted in zip(arguments, expected, strict=False):
        if wanted is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: case.name)
def test_the_fault_is_found(case):
    report, _, _, lines_before = launch(case, broken=True)
    entries = [str(entry) for entry in getattr(report, case.finding)]
    assert entries, report
    lines = {line + lines_before for line in case.lines}
    named = [entry for entry in entries if any(re.search(rf"(?<!\d){line}(?!\d)", entry) for line in lines)]
    assert named, (lines, entries)
    if case.array is not None:
        assert any(re.search(rf"(?<!\w){case.array}(?!\w)", entry) for entry in named), (case.array, named)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvcc_accepts_every_kernel(tmp_path):
    (tmp_path / "planted.cu").write_text(TOGETHER.source)
    command = ["nvcc", "-cubin", "-arch=sm_80", "-Xptxas", "-O0", "-o", str(tmp_path / "planted.cubin"), str(tmp_path / "planted.cu")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_are_enough():
    assert len({case.name for case in PLANTED}) == len(PLANTED) >= 30
