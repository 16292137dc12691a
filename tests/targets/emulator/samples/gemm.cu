// C[M, N] = A[M, K] B[K, N]: tiles of 64 x 64 in dynamic shared memory, 4 x 4 results a thread, vector loads, two buffers.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

#define TILE 64
#define STEP 8
#define CHECK(call)                                                                      \
  do {                                                                                   \
    cudaError_t error = (call);                                                          \
    if (error != cudaSuccess) {                                                          \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));     \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

extern "C" __global__ void __launch_bounds__(256) gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
  extern __shared__ __align__(16) float buffer[];
  float(*a)[STEP][TILE + 4] = reinterpret_cast<float(*)[STEP][TILE + 4]>(buffer);                                  // [2]: A, transposed
  float(*b)[STEP][TILE] = reinterpret_cast<float(*)[STEP][TILE]>(buffer + 2 * STEP * (TILE + 4));                  // [2]
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
  const int arow = threadIdx.x / 2, acol = threadIdx.x % 2 * 4, brow = threadIdx.x / 16, bcol = threadIdx.x % 16 * 4;
  float sums[4][4] = {};
  for (int k = 0, turn = 0; k < K; k += STEP, turn ^= 1) {
    if (threadIdx.x < 128) {
      const float4 v = *reinterpret_cast<const float4*>(&A[(row + arow) * K + k + acol]);
      a[turn][acol + 0][arow] = v.x;
      a[turn][acol + 1][arow] = v.y;
      a[turn][acol + 2][arow] = v.z;
      a[turn][acol + 3][arow] = v.w;
      *reinterpret_cast<float4*>(&b[turn][brow][bcol]) = *reinterpret_cast<const float4*>(&B[(k + brow) * N + column + bcol]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < STEP; ++i) {
      const float4 x = *reinterpret_cast<const float4*>(&a[turn][i][ty * 4]), y = *reinterpret_cast<const float4*>(&b[turn][i][tx * 4]);
      const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[r][c] = fmaf(xs[r], ys[c], sums[r][c]);
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r)
    *reinterpret_cast<float4*>(&C[(row + ty * 4 + r) * N + column + tx * 4]) = make_float4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
}

int main() {
  const int n = 256;
  float *a, *b, *c;
  CHECK(cudaMalloc(&a, n * n * sizeof(float)));
  CHECK(cudaMalloc(&b, n * n * sizeof(float)));
  CHECK(cudaMalloc(&c, n * n * sizeof(float)));
  const size_t bytes = 2 * STEP * (2 * TILE + 4) * sizeof(float);
  gemm<<<dim3(n / TILE, n / TILE), 256, bytes>>>(a, b, c, n, n, n);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaFree(a));
  return 0;
}
