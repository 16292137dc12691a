"""Faults of barriers: missing, misplaced, under a condition that not all threads share."""

from __future__ import annotations

import numpy as np

from .case import Planted, empty, floats

SYNC = "  __syncthreads();\n"


def reverse(rng, n=64, blocks=4):
    x = floats(rng, blocks * n)
    return [x, empty(blocks * n)], [None, x.reshape(blocks, n)[:, ::-1].reshape(-1)]


REVERSE = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float s[64];
  int i = threadIdx.x, base = blockIdx.x * 64;
  s[i] = x[base + i];
  __syncthreads();
  y[base + i] = s[63 - i];
}
"""


def row_sums(rng, rows=3, n=256):
    x = floats(rng, rows, n)
    return [x, empty(rows)], [None, x.sum(1)]


TILES = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float tile[64];
  float sum = 0;
  for (int t = 0; t < 4; ++t) {
    tile[threadIdx.x] = x[blockIdx.x * 256 + t * 64 + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += tile[j];
    __syncthreads();  // before the next tile overwrites this one
  }
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""

TREE = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float part[256];
  int i = threadIdx.x;
  part[i] = x[blockIdx.x * 256 + i];
  __syncthreads();  // the sums read what others wrote
  for (int half = 128; half > 0; half /= 2) {
    if (i < half) part[i] += part[i + half];
    __syncthreads();  // each step reads the one before
  }
  if (i == 0) y[blockIdx.x] = part[0];
}
"""


def matmul(rng, m=32, n=48, k=40):
    a, b = floats(rng, m, k), floats(rng, k, n)
    return [a, b, empty(m, n), m, n, k], [None, None, a @ b]


MATMUL = """extern "C" __global__ void k(const float *a, const float *b, float *c, int m, int n, int depth) {
  __shared__ float as[16][8], bs[8][16];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int t = 0; t < depth; t += 8) {
    if (tx < 8) as[ty][tx] = a[row * depth + t + tx];
    if (ty < 8) bs[ty][tx] = b[(t + ty) * n + column];
    __syncthreads();  // tiles are there
    for (int l = 0; l < 8; ++l) sum += as[ty][l] * bs[l][tx];
    __syncthreads();  // tiles are used up
  }
  c[row * n + column] = sum;
}
"""


def softmax(rng, rows=3, n=128):
    x = floats(rng, rows, n)
    e = np.exp(x - x.max(1, keepdims=True))
    return [x, empty(rows, n)], [None, e / e.sum(1, keepdims=True)]


SOFTMAX = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float part[128];
  int i = threadIdx.x;
  float value = x[blockIdx.x * 128 + i];
  part[i] = value;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (i < half) part[i] = fmaxf(part[i], part[i + half]);
    __syncthreads();
  }
  float largest = part[0];
  __syncthreads();  // all have the maximum before the array is used again
  value = expf(value - largest);
  part[i] = value;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (i < half) part[i] += part[i + half];
    __syncthreads();
  }
  y[blockIdx.x * 128 + i] = value / part[0];
}
"""


def prefix(rng, n=64):
    x = floats(rng, n)
    return [x, empty(n)], [None, np.cumsum(x)]


SCAN = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float sums[64];
  int i = threadIdx.x;
  sums[i] = x[i];
  __syncthreads();
  for (int step = 1; step < 64; step *= 2) {
    float left = i >= step ? sums[i - step] : 0;
    __syncthreads();  // all have read
    sums[i] += left;
    __syncthreads();  // all have written
  }
  y[i] = sums[i];
}
"""

# Two buffers: one is filled while the other is read.
DOUBLE_BUFFER = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float buffer[2][64];
  const float *row = x + blockIdx.x * 256;
  int i = threadIdx.x;
  float sum = 0;
  buffer[0][i] = row[i];
  __syncthreads();
  for (int t = 0; t < 4; ++t) {
    if (t + 1 < 4) buffer[(t + 1) % 2][i] = row[(t + 1) * 64 + i];
    for (int j = 0; j < 64; ++j) sum += buffer[t % 2][j];
    __syncthreads();  // the next tile is there, this one is free
  }
  if (i == 0) y[blockIdx.x] = sum;
}
"""


def broadcast(rng, n=128):
    x = floats(rng, n)
    return [x, empty(n)], [None, x + x[5]]


BROADCAST = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float pivot;
  int i = threadIdx.x;
  if (i == 5) pivot = x[i];
  __syncthreads();
  y[i] = x[i] + pivot;
}
"""


def transpose(rng, rows=32, columns=64):
    x = floats(rng, rows, columns)
    return [x, empty(columns, rows), rows, columns], [None, x.T.copy()]


TRANSPOSE = """extern "C" __global__ void k(const float *x, float *y, int rows, int columns) {
  __shared__ float tile[16][17];
  int tx = threadIdx.x, ty = threadIdx.y;
  tile[ty][tx] = x[(blockIdx.y * 16 + ty) * columns + blockIdx.x * 16 + tx];
  __syncthreads();
  y[(blockIdx.x * 16 + ty) * rows + blockIdx.y * 16 + tx] = tile[tx][ty];
}
"""


def tail_sums(rng, n=100):
    x = floats(rng, n)
    padded = np.concatenate([x, np.zeros(28, np.float32)])
    return [x, empty(n), n], [None, (padded + padded.reshape(2, 64)[:, ::-1].reshape(-1))[:n]]


TAIL = """extern "C" __global__ void k(const float *x, float *y, int n) {
  __shared__ float s[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  bool inside = i < n;
  s[threadIdx.x] = inside ? x[i] : 0;
  __syncthreads();
  if (inside) y[i] = s[threadIdx.x] + s[63 - threadIdx.x];
}
"""


def neighbours(rng, n=64):
    x = floats(rng, n)
    y = x.copy()
    for _ in range(3):
        y = y + np.roll(y, -1)
    return [x, empty(n)], [None, y]


RELAX = """extern "C" __global__ void k(const float *x, float *y) {
  __shared__ float now[64], next[64];
  int i = threadIdx.x;
  float *from = now, *to = next;
  from[i] = x[i];
  for (int t = 0; t < 3; ++t) {
    __syncthreads();
    to[i] = from[i] + from[(i + 1) % 64];
    float *other = from;
    from = to;
    to = other;
  }
  y[i] = from[i];
}
"""

BARRIER_FAULTS = [
    Planted("reverse: no barrier between the write and the read", REVERSE, ((SYNC, "\n"),), "races", "s", ("s[63 - i]", "s[i] ="), reverse, 4),
    Planted("reverse: the barrier comes before the write", REVERSE, (("  s[i] = x[base + i];\n" + SYNC, SYNC + "  s[i] = x[base + i];\n"),),
            "races", "s", ("s[63 - i]", "s[i] ="), reverse, 4),
    Planted("tiles: the next one overwrites the one in use", TILES, (("    __syncthreads();  // before the next tile overwrites this one\n", "\n"),),
            "races", "tile", ("tile[threadIdx.x] =", "sum += tile[j]"), row_sums, 3),
    Planted("tree: the first barrier is missing", TREE, (("  __syncthreads();  // the sums read what others wrote\n", "\n"),),
            "races", "part", ("part[i] +=", "part[i] = x"), row_sums, 3, 256),
    Planted("tree: one barrier after the loop", TREE, (("    __syncthreads();  // each step reads the one before\n  }\n", "  }\n  __syncthreads();\n"),),
            "races", "part", ("part[i] +=",), row_sums, 3, 256),
    Planted("matmul: tiles are read before all is written", MATMUL, (("    __syncthreads();  // tiles are there\n", "\n"),),
            "races", "as", ("sum += as", "as[ty][tx] =", "bs[ty][tx] ="), matmul, (3, 2), (16, 16)),
    Planted("matmul: tiles are overwritten while read", MATMUL, (("    __syncthreads();  // tiles are used up\n", "\n"),),
            "races", "bs", ("sum += as", "as[ty][tx] =", "bs[ty][tx] ="), matmul, (3, 2), (16, 16)),
    Planted("softmax: the maximum is overwritten before all have read it", SOFTMAX,
            (("  __syncthreads();  // all have the maximum before the array is used again\n", "\n"),),
            "races", "part", ("largest = part[0]", "part[i] = value"), softmax, 3, 128),
    Planted("scan: reads and writes of one step mix", SCAN, (("    __syncthreads();  // all have read\n", "\n"),),
            "races", "sums", ("left =", "sums[i] += left"), prefix),
    Planted("scan: a step reads what the step before has not written", SCAN, (("    __syncthreads();  // all have written\n", "\n"),),
            "races", "sums", ("left =", "sums[i] += left"), prefix),
    Planted("double buffer: no barrier at all in the loop", DOUBLE_BUFFER, (("    __syncthreads();  // the next tile is there, this one is free\n", "\n"),),
            "races", "buffer", ("buffer[(t + 1) % 2][i] =", "sum += buffer"), row_sums, 3),
    Planted("double buffer: the buffer being filled is read", DOUBLE_BUFFER, (("sum += buffer[t % 2][j]", "sum += buffer[(t + 1) % 2][j]"),),
            "races", "buffer", ("buffer[(t + 1) % 2][i] =", "sum += buffer"), row_sums, 3),
    Planted("double buffer: the buffer in use is filled", DOUBLE_BUFFER, (("buffer[(t + 1) % 2][i] =", "buffer[t % 2][i] ="),),
            "races", "buffer", ("buffer[t % 2][i] =", "sum += buffer"), row_sums, 3),
    Planted("broadcast: one thread writes, the others do not wait", BROADCAST, ((SYNC, "\n"),),
            "races", "pivot", ("pivot = x[i]", "+ pivot"), broadcast, 1, 128),
    Planted("transpose: no barrier", TRANSPOSE, ((SYNC, "\n"),), "races", "tile", ("tile[ty][tx] =", "= tile[tx][ty]"), transpose, (4, 2), (16, 16)),
    Planted("relax: the barrier is taken once, before the loop", RELAX,
            (("    __syncthreads();\n", "\n"), ("  from[i] = x[i];\n", "  from[i] = x[i];\n  __syncthreads();\n")),
            "races", "next", ("to[i] =",), neighbours),
    Planted("a barrier that half of the threads reach", REVERSE, (("  __syncthreads();", "  if (i < 32) __syncthreads();"),),
            "divergence", None, ("if (i < 32)",), reverse, 4),
    Planted("threads past the end return before they have written", TAIL, (("  bool inside = i < n;\n", "  bool inside = i < n;\n  if (i >= n) return;\n"),),
            "uninitialised", "s", ("y[i] =",), tail_sums, 2),  # the barrier itself does not wait for threads that have ended
    Planted("as many barriers as the thread has elements", RELAX, (("t < 3; ++t", "t < 3 + i % 2; ++t"),), "divergence", None, ("__syncthreads",), neighbours),
    Planted("each branch has its own barrier", REVERSE,
            (("  __syncthreads();", "  if (i % 2) __syncthreads();\n  else { __syncthreads(); base += 0 * s[0]; }"),),
            "divergence", None, ("__syncthreads",), reverse, 4),
]  # fmt: skip
