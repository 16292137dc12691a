"""Faults of addresses and of what is read: swapped indices, arrays too small, tails, words nobody wrote, words that two write."""

from __future__ import annotations

import numpy as np

from .case import Planted, empty, floats

COPY = """extern "C" __global__ void k(const float *x, float *y, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""


def doubled(rng, n=150):
    x = floats(rng, n)
    return [x, empty(n), n], [None, 2 * x]


STENCIL = """extern "C" __global__ void k(const float *x, float *y, int n) {
  __shared__ float s[66];
  int i = blockIdx.x * 64 + threadIdx.x, at = threadIdx.x + 1;
  s[at] = x[i];
  if (threadIdx.x == 0) s[0] = i > 0 ? x[i - 1] : 0;
  if (threadIdx.x == 63) s[65] = i + 1 < n ? x[i + 1] : 0;
  __syncthreads();
  y[i] = s[at - 1] + s[at] + s[at + 1];
}
"""


def stencil(rng, n=256):
    x = floats(rng, n)
    padded = np.pad(x, 1)
    return [x, empty(n), n], [None, padded[:-2] + padded[1:-1] + padded[2:]]


REVERSE = """extern "C" __global__ void k(const float *x, float *y) {
  extern __shared__ float s[];
  int i = threadIdx.x;
  s[i] = x[i];
  __syncthreads();
  y[i] = s[127 - i];
}
"""


def reverse(rng, n=128):
    x = floats(rng, n)
    return [x, empty(n)], [None, x[::-1].copy()]


TRANSPOSE = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float tile[8 * 33];
  int tx = threadIdx.x, ty = threadIdx.y;
  tile[ty * 33 + tx] = x[ty * 32 + tx];
  __syncthreads();
  int i = ty * 32 + tx;
  y[i] = tile[i % 8 * 33 + i / 8];
}
"""


def transpose(rng):
    x = floats(rng, 8, 32)
    return [x, empty(32, 8)], [None, x.T.copy()]


SUM = """extern "C" __global__ void k(const float *x, float *y, int n) {
  __shared__ float part[128];
  int i = threadIdx.x;
  part[i] = i < n ? x[i] : 0;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (i < half) part[i] += part[i + half];
    __syncthreads();
  }
  if (i == 0) y[0] = part[0];
}
"""


def total(rng, n=100):
    x = floats(rng, n)
    return [x, empty(1), n], [None, x.sum(keepdims=True)]


HISTOGRAM = """extern "C" __global__ void k(const int *x, int *counts, int n) {
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) atomicAdd(&counts[x[i]], 1);
}
"""

SHARED_HISTOGRAM = """extern "C" __global__ void k(const int *x, int *counts, int n) {
  __shared__ int bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;  // clear
  __syncthreads();  // cleared
  int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) atomicAdd(&bins[x[i]], 1);
  __syncthreads();  // counted
  if (threadIdx.x < 8) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
}
"""


def histogram(rng, n=500):
    x = rng.integers(0, 8, n).astype(np.int32)
    return [x, np.zeros(8, np.int32), n], [None, np.bincount(x, minlength=8).astype(np.int32)]


BLOCK_SUMS = """extern "C" __global__ void k(const float *x, float *y) {
  float sum = 0;
  for (int j = 0; j < 64; ++j) sum += x[blockIdx.x * 64 + j];
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""


def block_sums(rng, blocks=4):
    x = floats(rng, blocks, 64)
    return [x, empty(blocks)], [None, x.sum(1)]


LAST_BLOCK = """extern "C" __global__ void k(const float *x, float *part, unsigned *done, float *y) {
  float sum = 0;
  for (int j = threadIdx.x; j < 64; j += 32) sum += x[blockIdx.x * 64 + j];
  for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = sum;
    __threadfence();
    if (atomicAdd(done, 1u) == gridDim.x - 1) {  // the last block adds them up
      __threadfence();
      float all = 0;
      for (int b = 0; b < gridDim.x; ++b) all += part[b];
      *y = all;
    }
  }
}
"""


def last_block(rng, blocks=6):
    x = floats(rng, blocks, 64)
    return [x, empty(blocks), np.zeros(1, np.uint32), empty(1)], [None, None, None, x.sum(keepdims=True)[0]]


GATHER = """extern "C" __global__ void k(const float *x, const int *index, float *y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[index[i]] = x[i];
}
"""


def scatter(rng, n=256):
    x, index = floats(rng, n), rng.permutation(n).astype(np.int32)
    y = np.empty_like(x)
    y[index] = x
    return [x, index, empty(n)], [None, None, y]


MEMORY_FAULTS = [
    Planted("copy: no test for the end", COPY, (("  if (i < n) y", "  y"),), "out_of_bounds", "x", ("y[i] = 2 * x[i]",), doubled, 3),
    Planted("copy: one too many at the end", COPY, (("i < n", "i <= n"),), "out_of_bounds", "y", ("y[i] = 2 * x[i]",), doubled, 3),
    Planted("stencil: the element before the first", STENCIL, (("i > 0 ? x[i - 1] : 0", "x[i - 1]"),), "out_of_bounds", "x", ("s[0] =",), stencil, 4),
    Planted("stencil: shared array without room for the halo", STENCIL, (("s[66]", "s[64]"),),
            "out_of_bounds", "s", ("s[65] =", "s[at] =", "y[i] ="), stencil, 4),
    Planted("stencil: the right halo is not loaded", STENCIL, (("threadIdx.x == 63", "threadIdx.x == 64"),), "uninitialised", "s", ("y[i] =",), stencil, 4),
    Planted("reverse: one past the end", REVERSE, (("s[127 - i]", "s[128 - i]"),), "out_of_bounds", "s", ("y[i] =",), reverse, 1, 128, (512, 512)),
    Planted("reverse: dynamic shared memory too small", REVERSE, (), "out_of_bounds", "s", ("y[i] =", "s[i] ="), reverse, 1, 128, (512, 384)),
    Planted("transpose: swapped indices in the store", TRANSPOSE, (("tile[ty * 33 + tx] =", "tile[tx * 33 + ty] ="),),
            "out_of_bounds", "tile", ("tile[tx * 33 + ty] =",), transpose, 1, (32, 8)),
    Planted("transpose: rows that overlap", TRANSPOSE, (("tile[ty * 33 + tx] =", "tile[ty * 8 + tx] ="),),
            "races", "tile", ("tile[ty * 8 + tx] =",), transpose, 1, (32, 8)),
    Planted("transpose: the load forgets the padding", TRANSPOSE, (("tile[i % 8 * 33 + i / 8]", "tile[i % 8 * 34 + i / 8]"),),
            "uninitialised", "tile", ("y[i] =",), transpose, 1, (32, 8)),
    Planted("sum: threads past the end leave their word unset", SUM, (("part[i] = i < n ? x[i] : 0;", "if (i < n) part[i] = x[i];"),),
            "uninitialised", "part", ("part[i] +=",), total, 1, 128),
    Planted("sum: the whole array is read where a part was written", SUM, (("half = 64", "half = 128"),),
            "out_of_bounds", "part", ("part[i] +=",), total, 1, 128),
    Planted("histogram: plain addition", HISTOGRAM, (("atomicAdd(&counts[x[i]], 1)", "counts[x[i]] += 1"),),
            "races", "counts", ("counts[x[i]] += 1",), histogram, 8),
    Planted("shared histogram: bins are not cleared", SHARED_HISTOGRAM, (("  if (threadIdx.x < 8) bins[threadIdx.x] = 0;  // clear\n", "\n"),),
            "uninitialised", "bins", ("atomicAdd(&bins",), histogram, 8),
    Planted("shared histogram: counted before all is cleared", SHARED_HISTOGRAM, (("  __syncthreads();  // cleared\n", "\n"),),
            "races", "bins", ("bins[threadIdx.x] = 0", "atomicAdd(&bins"), histogram, 8),
    Planted("shared histogram: read before all is counted", SHARED_HISTOGRAM, (("  __syncthreads();  // counted\n", "\n"),),
            "races", "bins", ("atomicAdd(&counts", "atomicAdd(&bins"), histogram, 8),
    Planted("two blocks write one word", BLOCK_SUMS, (("y[blockIdx.x] = sum", "y[blockIdx.x / 2] = sum"),),
            "races", "y", ("y[blockIdx.x / 2] =",), block_sums, 4),
    Planted("all threads write one word", BLOCK_SUMS, (("if (threadIdx.x == 0) y[blockIdx.x] = sum", "y[blockIdx.x] = sum + threadIdx.x"),),
            "races", "y", ("y[blockIdx.x] =",), block_sums, 4),
    Planted("a block reads what another one writes", LAST_BLOCK, (("if (atomicAdd(done, 1u) == gridDim.x - 1)", "if (blockIdx.x == gridDim.x - 1)"),),
            "races", "part", ("all += part[b]", "part[blockIdx.x] ="), last_block, 6, 32),
    Planted("scatter: an index twice", GATHER, (("y[index[i]]", "y[index[i] / 2]"),), "races", "y", ("y[index[i] / 2] =",), scatter, 4),
]  # fmt: skip
