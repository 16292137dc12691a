"""Faults of warps and of asynchronous copies: a missing __syncwarp, shuffles that not all lanes reach, copies that are not waited for."""

from __future__ import annotations

import numpy as np

from tilewright.targets.cuda_helpers import CudaHelpers

from .case import Planted, empty, floats


def helpers(*names: str) -> str:
    used = CudaHelpers()
    for name in names:
        used.use(name)
    return used.emit()


def row_sums(rng, rows=3, n=1024):
    x = floats(rng, rows, n)
    return [x, empty(rows)], [None, x.sum(1)]


def warp_sums(rng, warps=2):
    x = floats(rng, warps, 32)
    return [x, empty(warps)], [None, x.sum(1)]


# ---- warps

WARP_SUM = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float part[64];
  int i = threadIdx.x, lane = i % 32;
  part[i] = x[i];
  __syncwarp();  // before the first step
  for (int half = 16; half > 0; half /= 2) {
    float other = lane < half ? part[i + half] : 0;
    __syncwarp();  // all have read
    if (lane < half) part[i] += other;
    __syncwarp();  // all have written
  }
  if (lane == 0) y[i / 32] = part[i];
}
"""

SHUFFLE_SUM = """extern "C" __global__ void k(const float *x, float *y) {
  int i = threadIdx.x, lane = i % 32;
  float sum = x[i];
  for (int half = 16; half > 0; half /= 2)
    sum += __shfl_down_sync(0xffffffffu, sum, half);
  if (lane == 0) y[i / 32] = sum;
}
"""

TWO_LEVELS = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float part[8], total;
  int i = threadIdx.x;
  float mine = x[blockIdx.x * 256 + i], sum = mine;
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
  if (i % 32 == 0) part[i / 32] = sum;
  __syncthreads();  // the warps' sums
  if (i < 32) {
    sum = i < 8 ? part[i] : 0;
    for (int half = 4; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (i == 0) total = sum;
  }
  __syncthreads();
  y[blockIdx.x * 256 + i] = mine - total;
}
"""


def block_sums(rng, blocks=3):
    x = floats(rng, blocks, 256)
    return [x, empty(blocks, 256)], [None, x - x.sum(1, keepdims=True)]


PAIRS = """extern "C" __global__ void k(const float *x, float *y, int n) {
  float sum = 0;
  for (int t = 0; t < n; t += 32) {
    int j = t + threadIdx.x;
    float value = j < n ? x[j] : 0;
    sum += fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  }
  unsigned large = __ballot_sync(0xffffffffu, sum > 8);
  if (threadIdx.x == 0) *y = __popc(large);
}
"""


def pairs(rng, n=100):
    x = floats(rng, n)
    padded = np.concatenate([x, np.zeros(28, np.float32)]).reshape(4, 16, 2)
    return [x, empty(1), n], [None, np.array([2 * (padded.max(2).sum(0) > 8).sum()])]


MASKED = """extern "C" __global__ void k(const float *x, float *y) {
  int i = threadIdx.x;
  float value = x[i];
  if (i < 16) {
    value += __shfl_xor_sync(0x0000ffffu, value, 8);
  } else {
    value -= __shfl_xor_sync(0xffff0000u, value, 8);
  }
  y[i] = value;
}
"""


def masked(rng):
    x = floats(rng, 2, 2, 8)
    swapped = x[:, ::-1]
    return [x, empty(2, 2, 8)], [None, np.stack([x[0] + swapped[0], x[1] - swapped[1]])]


# ---- asynchronous copies

TWO_STAGES = """#include <cuda_pipeline.h>
extern "C" __global__ void k(const float *x, float *y) {
  __shared__ __align__(16) float buffer[2][256];
  const float *row = x + blockIdx.x * 1024;
  int i = threadIdx.x;
  float sum = 0;
  __pipeline_memcpy_async(&buffer[0][4 * i], &row[4 * i], 16);
  __pipeline_commit();  // the first
  for (int t = 0; t < 4; ++t) {
    if (t + 1 < 4)
      __pipeline_memcpy_async(&buffer[(t + 1) % 2][4 * i], &row[(t + 1) * 256 + 4 * i], 16);
    __pipeline_commit();  // the next
    __pipeline_wait_prior(1);
    __syncthreads();  // all copies of this stage are there
    for (int j = 0; j < 256; ++j) sum += buffer[t % 2][j];
    __syncthreads();  // the stage is free again
  }
  if (i == 0) y[blockIdx.x] = sum;
}
"""

THREE_STAGES = (
    helpers("tw_cp_async_4", "tw_cp_async_commit", "tw_cp_async_wait")
    + """
extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float ring[3][64];
  const float *row = x + blockIdx.x * 1024;
  int i = threadIdx.x;
  float sum = 0;
  for (int t = 0; t < 2; ++t) {
    tw_cp_async_4(&ring[t][i], &row[t * 64 + i]);
    tw_cp_async_commit();
  }
  for (int t = 0; t < 16; ++t) {
    tw_cp_async_wait<1>();
    __syncthreads();  // this stage is there, the one before it is free
    if (t + 2 < 16) tw_cp_async_4(&ring[(t + 2) % 3][i], &row[(t + 2) * 64 + i]);
    tw_cp_async_commit();
    for (int j = 0; j < 64; ++j) sum += ring[t % 3][j];
  }
  if (i == 0) y[blockIdx.x] = sum;
}
"""
)

OWN_COPY = """#include <cuda_pipeline.h>
extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float s[64];
  int i = threadIdx.x;
  __pipeline_memcpy_async(&s[i], &x[i], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  y[i] = 2 * s[i];
}
"""


def doubled(rng, n=64):
    x = floats(rng, n)
    return [x, empty(n)], [None, 2 * x]


# ---- tensor cores

WMMA = """#include <mma.h>
extern "C" __global__ void k(const __half *a, const __half *b, const float *bias, float *y) {
  using namespace nvcuda::wmma;
  __shared__ __align__(32) float tile[16 * 16];
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __half, row_major> fb;
  fragment<accumulator, 16, 16, 16, float> fc;
  fill_fragment(fc, 0.0f);
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(tile, fc, 16, mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) y[i] = tile[i] + bias[i % 16];
}
"""


def wmma(rng):
    a, b, bias = floats(rng, 16, 16), floats(rng, 16, 16), floats(rng, 16)
    return [a.astype(np.float16), b.astype(np.float16), bias, empty(16, 16)], [None, None, None, a @ b + bias]


LDMATRIX = (
    helpers("tw_ldmatrix_x4", "tw_ldmatrix_x2_trans", "tw_mma_m16n8k16_f16_f32")
    + """
#include <cuda_fp16.h>
extern "C" __global__ void k(const __half *a, const __half *b, float *c) {
  __shared__ __align__(16) __half as[16][24], bs[16][8];
  int i = threadIdx.x, lane = i % 32;
  for (int l = i; l < 256; l += 64) as[l / 16][l % 16] = a[l];
  for (int l = i; l < 128; l += 64) bs[l / 8][l % 8] = b[l];
  __syncthreads();
  if (i >= 32) return;
  unsigned fa[4], fb[2];
  float fc[4] = {0, 0, 0, 0};
  tw_ldmatrix_x4(fa, &as[lane % 16][lane / 16 * 8]);
  tw_ldmatrix_x2_trans(fb, &bs[lane % 16][0]);
  tw_mma_m16n8k16_f16_f32(fc, fa, fb, fc);
  for (int l = 0; l < 4; ++l) c[(lane / 4 + l / 2 * 8) * 8 + lane % 4 * 2 + l % 2] = fc[l];
}
"""
)


def ldmatrix(rng):
    a, b = floats(rng, 16, 16), floats(rng, 16, 8)
    return [a.astype(np.float16), b.astype(np.float16), empty(16, 8)], [None, None, a @ b]


WARP_FAULTS = [
    Planted("warp sum: words are read before they are there", WARP_SUM, (("  __syncwarp();  // before the first step\n", "\n"),),
            "races", "part", ("part[i] = x[i]", "other = "), warp_sums),
    Planted("warp sum: a step reads before the one before has written", WARP_SUM, (("    __syncwarp();  // all have written\n", "\n"),),
            "races", "part", ("other =", "part[i] += other"), warp_sums),
    Planted("shuffle sum: only half of the lanes shuffle", SHUFFLE_SUM, (("    sum += __shfl", "    if (lane < half) sum += __shfl"),),
            "divergence", None, ("__shfl_down_sync",), warp_sums),
    Planted("two levels: the warps' sums are not waited for", TWO_LEVELS, (("  __syncthreads();  // the warps' sums\n", "\n"),),
            "races", "part", ("part[i / 32] = sum", "part[i] : 0"), block_sums, 3, 256),
    Planted("two levels: more sums than warps", TWO_LEVELS, (("i < 8 ? part[i]", "i < 32 ? part[i]"),),
            "out_of_bounds", "part", ("part[i] : 0",), block_sums, 3, 256),
    Planted("two levels: shuffles of eight lanes with the mask of all", TWO_LEVELS, (("  if (i < 32) {", "  if (i < 8) {"),),
            "divergence", None, ("half = 4",), block_sums, 3, 256),
    Planted("pairs: lanes past the end leave the loop to vote", PAIRS,
            (("t = 0; t < n; t += 32", "t = threadIdx.x; t < n; t += 32"), ("int j = t + threadIdx.x", "int j = t")),
            "divergence", None, ("large = ", "sum += fmaxf"), pairs, 1, 32),
    Planted("two levels: each branch has a shuffle of its own", TWO_LEVELS,
            (("    sum = i < 8 ? part[i] : 0;\n", ""), ("half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);\n    if",
              "half /= 2) {\n      if (i < 8)\n        sum = (half == 4 ? part[i] : sum) + __shfl_xor_sync(0xffffffffu, half == 4 ? part[i] : sum, half);\n"
              "      else\n        sum = __shfl_xor_sync(0xffffffffu, 0.0f, half);\n    }\n    if")),
            "divergence", None, ("sum = (half == 4", "sum = __shfl_xor"), block_sums, 3, 256),
    Planted("masked: a lane of the other half is read", MASKED, (("0x0000ffffu, value, 8)", "0x0000ffffu, value, 16)"),),
            "divergence", None, ("0x0000ffffu",), masked, 1, 32),
    Planted("masked: the mask is that of the other half", MASKED, (("0xffff0000u", "0x0000ffff"),), "divergence", None, ("0x0000ffff, value",), masked, 1, 32),
    Planted("two stages: no wait", TWO_STAGES, (("    __pipeline_wait_prior(1);\n", "\n"),), "uninitialised", "buffer", ("sum += buffer",), row_sums, 3),
    Planted("two stages: waits for the stage before only", TWO_STAGES, (("__pipeline_wait_prior(1)", "__pipeline_wait_prior(2)"),),
            "uninitialised", "buffer", ("sum += buffer",), row_sums, 3),
    Planted("two stages: copies are never committed", TWO_STAGES, (("    __pipeline_commit();  // the next\n", "\n"),),
            "uninitialised", "buffer", ("sum += buffer",), row_sums, 3),
    Planted("two stages: the barrier comes before the wait", TWO_STAGES,
            (("    __pipeline_wait_prior(1);\n", ""), ("    for (int j = 0;", "    __pipeline_wait_prior(1);\n    for (int j = 0;")),
            "races", "buffer", ("sum += buffer", "&buffer["), row_sums, 3),
    Planted("two stages: a copy lands in the stage in use", TWO_STAGES, (("    __syncthreads();  // the stage is free again\n", "\n"),),
            "races", "buffer", ("sum += buffer", "&buffer["), row_sums, 3),
    Planted("three stages: a ring of two", THREE_STAGES, (("ring[(t + 2) % 3]", "ring[(t + 3) % 3]"),),
            "races", "ring", ("sum += ring", "ring[(t + 3) % 3]"), row_sums, 3),
    Planted("three stages: the wait comes too late", THREE_STAGES, (("tw_cp_async_wait<1>()", "tw_cp_async_wait<2>()"),),
            "uninitialised", "ring", ("sum += ring",), row_sums, 3),
    Planted("own copy: read before the wait", OWN_COPY, (("  __pipeline_wait_prior(0);\n", "\n"),), "uninitialised", "s", ("y[i] =",), doubled),
    Planted("wmma: other lanes' elements are read without __syncwarp", WMMA, (("  __syncwarp();\n", "\n"),),
            "races", "tile", ("store_matrix_sync", "y[i] ="), wmma, 1, 32),
    Planted("wmma: the tile is smaller than its leading dimension says", WMMA, (("store_matrix_sync(tile, fc, 16,", "store_matrix_sync(tile, fc, 24,"),),
            "out_of_bounds", "tile", ("store_matrix_sync",), wmma, 1, 32),
    Planted("ldmatrix: another warp's rows are not waited for", LDMATRIX, (("  __syncthreads();\n", "\n"),),
            "races", "as", ("tw_ldmatrix", "as[l / 16]", "bs[l / 8]"), ldmatrix, 1, 64),
    Planted("ldmatrix: the pitch is that of another array", LDMATRIX, (("&as[lane % 16][lane / 16 * 8]", "&as[0][0] + lane % 16 * 32 + lane / 16 * 8"),),
            "out_of_bounds", "as", ("tw_ldmatrix_x4",), ldmatrix, 1, 64),
    Planted("mma: a lane stays away", LDMATRIX, (("  tw_mma_m16n8k16_f16_f32(fc", "  if (lane != 3) tw_mma_m16n8k16_f16_f32(fc"),),
            "divergence", None, ("tw_mma_m16n8k16_f16_f32(fc",), ldmatrix, 1, 64),
]  # fmt: skip
