"""Faults of compilers that place barriers and share memory between arrays, as users reported them: tilelang #1822, #2416, #2556, #2612, #2698,
#2703, triton #11411, intel-xpu-backend-for-triton #7494. The kernels are ours."""

from __future__ import annotations

import numpy as np

from .case import Planted, empty, floats

# tilelang #2556, #2612: a barrier among 48 of 64 threads was dropped; it has to be outside of the condition.
GUARDED = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float s[64];
  int i = threadIdx.x;
  s[i] = x[i];
  for (int t = 0; t < 3; ++t) {
    __syncthreads();  // sums of the round before are there
    float left = i > 0 && i < 48 ? s[i - 1] : 0;
    __syncthreads();  // all have read
    if (i < 48) s[i] += left;
  }
  y[i] = s[i];
}
"""


def guarded(rng, n=64):
    x = floats(rng, n)
    y = x.copy()
    for _ in range(3):
        y[1:48] = y[1:48] + y[:47]
    return [x, empty(n)], [None, y]


# tilelang #2698, #2703: a tile is cleared by all threads, then filled in part by others.
CLEAR_THEN_FILL = """extern "C" __global__ void k(const float *x, float *y, int rows) {
  __shared__ float4 tile[8][8];
  int i = threadIdx.x;
  tile[i / 8][i % 8] = make_float4(0, 0, 0, 0);
  __syncthreads();  // cleared
  float *elements = &tile[0][0].x;
  for (int row = i / 32; row < rows; row += 2) elements[row * 32 + i % 32] = x[row * 32 + i % 32];
  __syncthreads();  // filled
  float sum = 0;
  if (i < 32)
    for (int row = 0; row < 8; ++row) sum += elements[row * 32 + i];
  if (i < 32) y[i] = sum;
}
"""


def clear_then_fill(rng, rows=5):
    x = floats(rng, rows, 32)
    return [x, empty(32), rows], [None, x.sum(0)]


# tilelang #2416, triton #11411: two arrays that lie in the same memory, one after the other.
ALIASED = """extern "C" __global__ void k(const float *x, float *y) {
  extern __shared__ char pool[];
  float *first = (float *)pool;
  double *second = (double *)pool;
  int i = threadIdx.x;
  first[i] = x[i];
  __syncthreads();
  double value = first[(i + 1) % 64];
  __syncthreads();  // the memory of the first becomes that of the second
  second[i] = value * 3;
  __syncthreads();
  y[i] = (float)second[63 - i];
}
"""


def aliased(rng, n=64):
    x = floats(rng, n)
    return [x, empty(n)], [None, 3 * np.roll(x, -1)[::-1]]


# intel-xpu-backend-for-triton #7494: a buffer in global memory is written and read back by other threads of the block.
READ_BACK = """extern "C" __global__ void k(const float *x, float *scratch, float *y) {
  int i = threadIdx.x, row = i / 8, column = i % 8;
  float *mine = scratch + blockIdx.x * 64;
  mine[i] = 2 * x[blockIdx.x * 64 + i];
  __syncthreads();
  y[blockIdx.x * 64 + i] = mine[column * 8 + row];
}
"""


def read_back(rng, blocks=3):
    x = floats(rng, blocks, 8, 8)
    return [x, empty(blocks, 8, 8), empty(blocks, 8, 8)], [None, 2 * x, 2 * x.transpose(0, 2, 1)]


# tilelang #1822: a mask of bytes. Threads that write different bytes of one word do not race.
MASK = """extern "C" __global__ void k(const float *x, unsigned char *y) {
  __shared__ unsigned char mask[64];
  __shared__ int kept[8];
  int i = threadIdx.x;
  mask[i] = x[i] > 0;
  __syncthreads();  // the mask is complete
  if (i < 8) {
    int count = 0;
    for (int j = 0; j < 8; ++j) count += mask[i * 8 + j];
    kept[i] = count;
  }
  __syncthreads();  // rows are counted
  if (kept[i / 8] > 4) mask[i] = 0;
  y[i] = mask[i];
}
"""


def mask(rng):
    x = floats(rng, 8, 8)
    keep = (x > 0) & ((x > 0).sum(1, keepdims=True) <= 4)
    return [x, np.full((8, 8), 9, np.uint8)], [None, keep.astype(np.uint8)]


# A queue in shared memory: what one warp gives, the other takes.
TWO_WARPS = """extern "C" __global__ void k(const float *x, float *y, int rounds) {
  __shared__ float slot[32];
  int i = threadIdx.x, lane = i % 32;
  float sum = 0;
  for (int t = 0; t < rounds; ++t) {
    if (i < 32) slot[lane] = x[t * 32 + lane];
    __syncthreads();  // given
    if (i >= 32) sum += slot[31 - lane];
    __syncthreads();  // taken
  }
  if (i >= 32) y[lane] = sum;
}
"""


def two_warps(rng, rounds=4):
    x = floats(rng, rounds, 32)
    return [x, empty(32), rounds], [None, x[:, ::-1].sum(0)]


REUSE_FAULTS = [
    Planted("guarded: the barrier among 48 threads was dropped", GUARDED, (("    __syncthreads();  // all have read\n", "\n"),),
            "races", "s", ("left =", "s[i] += left"), guarded),
    Planted("guarded: one barrier before the loop", GUARDED,
            (("    __syncthreads();  // sums of the round before are there\n", "\n"), ("  s[i] = x[i];\n", "  s[i] = x[i];\n  __syncthreads();\n")),
            "races", "s", ("left =", "s[i] += left"), guarded),
    Planted("guarded: the barrier is under the condition", GUARDED,
            (("    __syncthreads();  // all have read\n    if (i < 48) s", "    if (i < 48) __syncthreads();\n    if (i < 48) s"),),
            "divergence", None, ("__syncthreads",), guarded),
    Planted("clear then fill: the fill does not wait", CLEAR_THEN_FILL, (("  __syncthreads();  // cleared\n", "\n"),),
            "races", "tile", ("= make_float4", "elements[row * 32 + i % 32] ="), clear_then_fill),
    Planted("clear then fill: rows that are not filled are not cleared", CLEAR_THEN_FILL,
            (("  tile[i / 8][i % 8] =", "  if (i / 8 < rows - 1) tile[i / 8][i % 8] ="),),
            "uninitialised", "tile", ("sum += elements",), clear_then_fill),
    Planted("aliased: the second array overwrites the first", ALIASED, (("  __syncthreads();  // the memory of the first becomes that of the second\n", "\n"),),
            "races", "pool", ("value = first", "second[i] ="), aliased, 1, 64, (512, 512)),
    Planted("aliased: room for the smaller array only", ALIASED, (), "out_of_bounds", "pool", ("second[i] =", "second[63 - i]"), aliased, 1, 64, (512, 256)),
    Planted("read back: global memory without a barrier", READ_BACK, (("  __syncthreads();\n", "\n"),),
            "races", "scratch", ("mine[i] =", "= mine["), read_back, 3),
    Planted("read back: blocks share the buffer", READ_BACK, (("scratch + blockIdx.x * 64", "scratch"),),
            "races", "scratch", ("mine[i] =", "= mine["), read_back, 3),
    Planted("mask: counted before it is complete", MASK, (("  __syncthreads();  // the mask is complete\n", "\n"),),
            "races", "mask", ("mask[i] = x", "count += mask"), mask),
    Planted("mask: changed while it is counted", MASK, (("  __syncthreads();  // rows are counted\n", "\n"),),
            "races", "mask", ("mask[i] = 0", "count += mask", "kept["), mask),
    Planted("two warps: given before the last was taken", TWO_WARPS, (("    __syncthreads();  // taken\n", "\n"),),
            "races", "slot", ("slot[lane] =", "sum += slot"), two_warps),
]  # fmt: skip
