"""Cooperative groups, pipelines and atomic operations of small floats: what CUDA sources include and the emulator supplies."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import tilewright as tw

ml_dtypes = pytest.importorskip("ml_dtypes")
SEED = 3
GROUPS = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const int *x, int *sums, unsigned *ballots, int *largest) {
  __shared__ int part[8];
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto eight = cg::tiled_partition<8>(warp);
  int value = x[block.thread_rank()];
  int sum = cg::reduce(warp, value, cg::plus<int>());
  if (warp.thread_rank() == 0) part[warp.meta_group_rank()] = sum;
  block.sync();
  int total = 0;
  for (int i = 0; i < warp.meta_group_size(); ++i) total += part[i];
  sums[block.thread_rank()] = total;
  ballots[block.thread_rank()] = eight.ballot(value > 0);
  for (int o = eight.size() / 2; o > 0; o /= 2) value = max(value, eight.shfl_down(value, o));
  largest[block.thread_rank()] = eight.shfl(value, 0);
  cg::sync(block);
}
"""


def arguments():
    x = np.random.default_rng(SEED).integers(-9, 10, 96).astype(np.int32)
    return [x, np.empty(96, np.int32), np.empty(96, np.uint32), np.empty(96, np.int32)]


@pytest.mark.parametrize("check", [None, "race"])
def test_groups(check):
    x, sums, ballots, largest = args = arguments()
    report = tw.emulate_cuda(GROUPS, "k", grid=1, block=(16, 6), args=args, check=check)
    assert report.faults == []
    eights = x.reshape(-1, 8)
    np.testing.assert_array_equal(sums, np.full(96, x.sum()))
    np.testing.assert_array_equal(ballots, ((eights > 0) << np.arange(8)).sum(1).repeat(8))
    np.testing.assert_array_equal(largest, eights.max(1).repeat(8))


def test_a_missing_sync_of_a_group_is_found():
    report = tw.emulate_cuda(GROUPS.replace("  block.sync();\n", "\n"), "k", grid=1, block=96, args=arguments(), check="race")
    assert "part" in str(report.races[0]) and set(report.races[0].lines) == {11, 14}, report
    report = tw.emulate_cuda(
        GROUPS.replace("  block.sync();", "  if (block.thread_rank() < 32) block.sync();"), "k", grid=1, block=96, args=arguments(), check="race"
    )
    assert "line 12" in str(report.divergence[0]), report


@pytest.mark.parametrize("check", [None, "race"])
@pytest.mark.parametrize(
    ("scalar", "pair", "header", "dtype"),
    [("__half", "__half2", "cuda_fp16.h", np.float16), ("__nv_bfloat16", "__nv_bfloat162", "cuda_bf16.h", ml_dtypes.bfloat16)],
)
def test_atomic_sums_of_small_floats(scalar, pair, header, dtype, check):
    source = f"""#include <{header}>
extern "C" __global__ void k(const {scalar} *x, {scalar} *sum, {pair} *pairs) {{
  int i = blockIdx.x * 32 + threadIdx.x;
  atomicAdd(sum, x[i]);
  atomicAdd(pairs, {pair}(x[i], -x[i]));
}}
"""
    x = np.arange(-31, 65).astype(np.float32).astype(dtype)
    total, pairs = np.zeros(1, dtype), np.zeros(2, dtype)
    report = tw.emulate_cuda(source, "k", grid=3, block=32, args=[x.view(np.uint16), total.view(np.uint16), pairs.view(np.uint16)], check=check)
    assert report.faults == []
    exact = x.astype(np.float32).sum()
    assert float(total[0]) == pytest.approx(exact, rel=0.1) and pairs.astype(np.float32) == pytest.approx([exact, -exact], rel=0.1)
    if dtype is np.float16:
        assert float(total[0]) == exact  # every partial sum fits


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_nvcc_accepts_it(tmp_path):
    (tmp_path / "groups.cu").write_text(GROUPS)
    done = subprocess.run(
        ["nvcc", "-cubin", "-arch=sm_80", "-o", str(tmp_path / "groups.cubin"), str(tmp_path / "groups.cu")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
