"""Programs as people write them (samples/*.cu): the emulator runs them, they are clean, nvcc accepts them too, and a barrier less in each is found."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

SAMPLES = Path(__file__).parent / "samples"
rng = np.random.default_rng(11)


def histogram():
    data, bins = rng.integers(0, 256, 5000).astype("uint8"), np.zeros(32, "uint32")
    return {"kernel": "histogram", "grid": 5, "block": 96, "args": [data, bins, 5000]}, lambda: np.testing.assert_array_equal(
        bins, np.bincount(data % 32, minlength=32)
    )


def scan():
    x, y = rng.integers(-9, 9, 1500).astype("int32"), np.zeros(1500, "int32")

    def right():
        np.testing.assert_array_equal(y, np.concatenate([np.cumsum(x[:1024]), np.cumsum(x[1024:])]))

    return {"kernel": "scan<int>", "grid": 2, "block": 1024, "args": [x, y, 1500]}, right


def gemm():
    a, b, c = (rng.standard_normal(shape).astype("float32") for shape in ((128, 48), (48, 64), (128, 64)))
    call = {"kernel": "gemm", "grid": (1, 2), "block": 256, "args": [a, b, c, 128, 64, 48], "shared_bytes": 2 * 8 * (2 * 64 + 4) * 4}
    return call, lambda: np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def bitonic():
    keys = rng.integers(0, 1000, 512).astype("int32")
    wanted = np.sort(keys.reshape(2, 256))
    return {"kernel": "bitonic", "grid": 2, "block": 128, "args": [keys]}, lambda: np.testing.assert_array_equal(keys.reshape(2, 256), wanted)


def softmax():
    x, y = rng.standard_normal((3, 500)).astype("float16"), np.zeros((3, 500), "float16")
    e = np.exp(x.astype("float64"))
    return {"kernel": "softmax", "grid": 3, "block": 128, "args": [x, y, 500]}, lambda: np.testing.assert_allclose(
        y, e / e.sum(1, keepdims=True), rtol=2e-3, atol=1e-5
    )


PROGRAMS = [histogram, scan, gemm, bitonic, softmax]


def text_of(program):
    return (SAMPLES / f"{program.__name__}.cu").read_text()


@pytest.mark.parametrize("check", [None, "race", "memory"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_samples_run_and_are_clean(program, check):
    call, right = program()
    report = tw.emulate_cuda(text_of(program), check=check, **call)
    right()
    assert report.faults == [] and report.stopped is None, report


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_barrier_is_missed(program):
    text = text_of(program)
    for barrier in re.finditer(r"__syncthreads\(\);", text):
        call, _ = program()
        report = tw.emulate_cuda(text[: barrier.start()] + text[barrier.end() :], check="race", **call)
        assert report.races, f"without the barrier of line {text[: barrier.start()].count(chr(10)) + 1}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_nvcc_accepts_them(program, tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc")
    done = subprocess.run(
        [nvcc, "-cubin", "-arch=sm_80", "-o", tmp_path / "out.cubin", SAMPLES / f"{program.__name__}.cu"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_gemm_is_coalesced():
    call, _ = gemm()
    report = tw.emulate_cuda(text_of(gemm), check="memory", **call)
    assert all(record.sectors == record.ideal for record in report.transactions)
    assert {record.size for record in report.transactions} == {16}
