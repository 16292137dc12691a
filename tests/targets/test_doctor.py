"""What the doctor finds, and that nothing it misses is an error."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewright.targets import doctor
from tilewright.tir import config
from tilewright.tir.errors import TargetError
from tilewright.tir.target import Target


@pytest.fixture(scope="module")
def report():
    return doctor.examine(Target("c", threads=2))


def test_it_measures(report):
    assert report.problem is None
    assert 0.5 < report.fma_peak_gflops < 1e5 and 0.1 < report.bandwidth_gbs < 1e5
    assert report.compilers and report.cpus >= 1


def test_the_peak_grows_with_the_vectors(report):
    """Wide vectors reach more than narrow ones."""
    narrow = min(doctor.measure_fma_peak(Target("c", threads=1, vector_bytes=16)) for _ in range(2))
    wide = max(doctor.measure_fma_peak(Target("c", threads=1)) for _ in range(2))
    assert wide > 1.3 * narrow or Target("c").vector_bytes == 16


def test_its_text(report):
    text = str(replace(report, fma_peak_gflops=200.0, bandwidth_gbs=20.0))
    for words in (
        "200 GFLOP/s",
        "20.0 GB/s",
        "10 operations a byte",
        report.cpu,
        report.compilers[0].version,
        config.CACHE_DIR.name,
        "threads: 2",
    ):
        assert words in text


def test_what_cuda_offers_here(monkeypatch):
    """The fake GPU is another test's; here is what the lines say."""
    monkeypatch.setattr(doctor, "find_cuda_compiler", lambda: "nvcc 13.0 (/usr/bin/nvcc)")
    monkeypatch.setattr(doctor, "driver", lambda: SimpleNamespace(name="Example", capability=90, l2_bytes=50 << 20, package="pycuda"))
    assert doctor._cuda_compiler() == "nvcc 13.0 (/usr/bin/nvcc)" and doctor._gpu() == "Example, sm_90, L2 50 MiB (through pycuda)"

    def refuse():
        raise TargetError("nothing here")

    monkeypatch.setattr(doctor, "find_cuda_compiler", refuse)
    monkeypatch.setattr(doctor, "driver", refuse)
    assert doctor._cuda_compiler() == doctor._gpu() == "none: nothing here"


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    report = doctor.examine()
    assert report.fma_peak_gflops is None and not report.compilers
    assert "no C compiler found" in report.problem and "no C compiler found" in str(report) and "GFLOP" not in str(report)
