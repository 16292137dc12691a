"""check="memory": sectors of global memory and passes through the banks of shared memory, against counts made here from the addresses."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

LANES = np.arange(32)


def memory(source, args, grid=1, block=32, **options):
    return tw.emulate_cuda(source, "k", grid, block, args, check="memory", **options)


def expected_sectors(offsets, size):
    """Sectors of 32 bytes that accesses of `size` bytes at `offsets` touch, and the fewest that hold as many bytes."""
    touched = {int(offset) + byte for offset in offsets for byte in range(size)}
    return len({byte // 32 for byte in touched}), -(-len(touched) // 32)


def expected_ways(offsets, size):
    """The worst conflict and all passes; 128 bytes' worth of lanes go together."""
    group = min(32, 128 // size) if size > 4 else 32
    ways = []
    for first in range(0, 32, group):
        words = {(int(offset) + byte) // 4 for offset in offsets[first : first + group] for byte in range(0, size, min(4, size))}
        ways.append(max(np.bincount([word % 32 for word in words])))
    return max(ways), sum(ways), len(ways)


INDICES = {
    "t": LANES,
    "2 * t": 2 * LANES,
    "t / 4": LANES // 4,
    "(t * 17 + 3) % 64": (LANES * 17 + 3) % 64,
    "63 - t": 63 - LANES,
    "0": 0 * LANES,
    "8 * t % 61": 8 * LANES % 61,
}
TYPES = {"float": 4, "float2": 8, "float4": 16, "double": 8, "unsigned char": 1, "short": 2, "double2": 16}


@pytest.mark.parametrize("name, size", TYPES.items())
def test_sectors_and_conflicts_of_one_access(name, size):
    """Every index of the table in one kernel, each on a line of its own, loaded from global and then from shared memory."""
    loads = "\n".join(f"sum += pick(x[{text}]);" for text in INDICES)
    shared = "\n".join(f"sum += pick(s[{text}]);" for text in INDICES)
    source = f"""template <class T> __device__ float pick(T copy) {{ return *(const unsigned char*)&copy; }}
__global__ void k(const {name}* x, float* y) {{
__shared__ {name} s[64]; int t = threadIdx.x; float sum = 0;
for (int i = t; i < 64; i += 32) s[i] = x[i];
__syncthreads();
{loads}
{shared}
y[t] = sum; }}"""
    x = np.zeros(64 * size, "uint8").view({"float": "float32", "double": "float64"}.get(name, "uint8" if size == 1 else "int16" if size == 2 else "uint8"))
    report = memory(source, [x, np.zeros(32, "float32")])
    assert report.faults == []
    for line, (text, index) in enumerate(INDICES.items(), start=6):
        (record,) = [record for record in report.transactions if record.line == line]
        assert (record.buffer, record.kind, record.size, record.warps) == ("x", "read", size, 1), text
        assert (record.sectors, record.ideal) == expected_sectors(index * size, size), (text, name)
        (conflict,) = [record for record in report.bank_conflicts if record.line == line + len(INDICES)]
        assert (conflict.ways, conflict.passes, conflict.ideal) == expected_ways(index * size, size), (text, name)


def test_accesses_of_a_loop_are_put_together_by_iteration():
    source = """__global__ void k(const float* x, float* y, int n) {
      float sum = 0;
      for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += x[i];
      y[threadIdx.x] = sum;
    }"""
    report = memory(source, [np.ones(20000, "float32"), np.zeros(64, "float32"), 20000], block=64)
    loads, stores = report.transactions
    assert (loads.line, loads.sectors, loads.ideal, loads.warps) == (4, 2500, 2500, 625)
    assert (stores.kind, stores.sectors, stores.ideal) == ("write", 8, 8)
    assert "100 % of what is moved is used" in str(loads)


def test_strided_columns_are_seen_as_such():
    source = """__global__ void k(const float* x, float* y) {
      y[threadIdx.x * 32 + blockIdx.x] =
        x[blockIdx.x * 32 + threadIdx.x];
    }"""
    report = memory(source, [np.ones(1024, "float32"), np.zeros(1024, "float32")], grid=32)
    stores, loads = report.transactions
    assert (stores.line, stores.sectors, stores.ideal, stores.warps) == (2, 1024, 128, 32)
    assert (loads.line, loads.sectors, loads.ideal) == (3, 128, 128)


def test_lanes_far_ahead_wait_for_the_others():
    """More accesses than are remembered at once: each lane loads 20,000 times, all of them the same element."""
    source = """__global__ void k(const float* x, float* y, int n) {
      float sum = 0;
      #pragma GCC unroll 1
      for (int i = 0; i < n; ++i) sum += x[i] + threadIdx.x;
      y[threadIdx.x] = sum;
    }"""
    report = memory(source, [np.ones(20000, "float32"), np.zeros(32, "float32"), 20000])
    loads = report.transactions[0]
    assert (loads.warps, loads.sectors) == (20000, 20000)


def test_lanes_that_go_different_ways():
    source = """__global__ void k(const float* x, float* y) {
      float v = 0;
      if (threadIdx.x < 8)
        v = x[threadIdx.x];
      else if (threadIdx.x >= 24)
        v = x[threadIdx.x * 8];
      y[threadIdx.x] = v;
    }"""
    report = memory(source, [np.ones(256, "float32"), np.zeros(32, "float32")])
    assert [(record.line, record.warps, record.sectors, record.ideal) for record in report.transactions] == [(4, 1, 1, 1), (6, 1, 8, 1), (7, 1, 4, 4)]


def test_workers_add_up_and_launches_too():
    source = "__global__ void k(const float* x, float* y) { y[blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x]; }"
    for threads in (1, 3):
        report = memory(source, [np.ones(512, "float32"), np.zeros(512, "float32")], grid=16, threads=threads)
        assert [(record.warps, record.sectors) for record in report.transactions] == [(16, 64), (16, 64)]


def test_atomics_count():
    source = "__global__ void k(int* y) { __shared__ int s[32]; atomicExch(&s[0], 1); atomicAdd(&y[threadIdx.x * 8], 1); }"
    report = memory(source, [np.zeros(256, "int32")])
    assert [(record.kind, record.sectors) for record in report.transactions] == [("atomic", 32)]
    assert [(record.kind, record.ways) for record in report.bank_conflicts] == [("atomic", 1)]


def test_a_transposition_with_and_without_padding():
    source = """__global__ void k(const float* x, float* y) {
      __shared__ float s[32][WIDTH];
      for (int i = threadIdx.y; i < 32; i += 8) s[i][threadIdx.x] = x[i * 32 + threadIdx.x];
      __syncthreads();
      for (int i = threadIdx.y; i < 32; i += 8) y[i * 32 + threadIdx.x] = s[threadIdx.x][i];
    }"""
    x = np.arange(1024, dtype="float32").reshape(32, 32)
    for width, ways in ((32, 32), (33, 1)):
        y = np.zeros((32, 32), "float32")
        report = memory(source.replace("WIDTH", str(width)), [x, y], block=(32, 8))
        np.testing.assert_array_equal(y, x.T)
        assert report.max_bank_conflict == ways
        assert all(record.sectors == record.ideal for record in report.transactions)
        assert ("32-way bank conflict" in str(report)) == (ways == 32)


def test_out_of_bounds_is_found_here_too_and_races_are_not_judged():
    report = memory("__global__ void k(float* y) { y[threadIdx.x + 1] = 1; }", [np.zeros(32, "float32")])
    assert [record.element for record in report.out_of_bounds] == [32]
    assert any("does not look for them" in str(record) for record in report.not_judged)
    assert tw.emulate_cuda("__global__ void k() {}", "k", 1, 1, [], check="race").max_bank_conflict is None
