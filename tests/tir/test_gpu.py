"""Limits of GPUs, and occupancy."""

from __future__ import annotations

import pytest

from tilewright.tir.gpu import GPUS, INDEX_LIMITS, STATIC_SHARED_BYTES


def test_every_architecture_is_consistent():
    for name, gpu in GPUS.items():
        assert name == f"sm_{gpu.capability}"
        assert STATIC_SHARED_BYTES < gpu.shared_bytes_per_block <= gpu.shared_bytes_per_multiprocessor - gpu.reserved_shared_bytes
        assert gpu.threads_per_block == INDEX_LIMITS["threadIdx.x"] == 1024


@pytest.mark.parametrize(
    "arch, threads, registers, shared_bytes, occupancy",
    [
        ("sm_90", 256, 32, 0, 1.0),
        ("sm_90", 1024, 64, 0, 0.5),  # 64 registers x 1024 threads fill the multiprocessor
        ("sm_90", 256, 255, 0, 0.125),
        ("sm_90", 32, 16, 0, 0.5),  # 32 blocks of a warp
        ("sm_90", 128, 32, 100 << 10, 8 / 64),  # two blocks by shared memory
        ("sm_86", 128, 40, 0, 1.0),
        ("sm_86", 256, 32, 48 << 10, 16 / 48),
        ("sm_75", 1024, 32, 0, 1.0),
        ("sm_75", 256, 32, 32 << 10, 0.5),
        ("sm_90", 96, 168, 0, 9 / 64),  # warps by registers are handed out in fours: 12, of which three blocks of (3 -> 4) take all
        ("sm_90", 256, 32, 228 << 10, 0.0),
        ("sm_90", 2048, 32, 0, 0.0),
    ],
)
def test_occupancy(arch, threads, registers, shared_bytes, occupancy):
    assert GPUS[arch].occupancy(threads, registers, shared_bytes) == pytest.approx(occupancy)
