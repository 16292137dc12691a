"""What the doctor finds, and that nothing it misses is an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.targets import doctor
from tilewright.tir import config
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


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    report = doctor.examine()
    assert report.fma_peak_gflops is None and not report.compilers
    assert "no C compiler found" in report.problem and "no C compiler found" in str(report) and "GFLOP" not in str(report)
