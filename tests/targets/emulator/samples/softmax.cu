// Softmax of rows, a block a row: online maximum and sum, combined over lanes and then over warps. half in, half out.
#include <cuda_fp16.h>
#include <math.h>

struct Pair {
  float maximum, sum;
};

__device__ Pair combine(Pair a, Pair b) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  return {maximum, a.sum * __expf(a.maximum - maximum) + b.sum * __expf(b.maximum - maximum)};
}

__device__ Pair reduce_warp(Pair p) {
  for (int offset = warpSize / 2; offset > 0; offset /= 2) {
    const Pair other = {__shfl_xor_sync(0xffffffffu, p.maximum, offset), __shfl_xor_sync(0xffffffffu, p.sum, offset)};
    p = combine(p, other);
  }
  return p;
}

__global__ void softmax(const __half* __restrict__ x, __half* __restrict__ y, int columns) {
  __shared__ Pair pairs[32];
  const __half* row = x + (size_t)blockIdx.x * columns;
  Pair p = {-1e30f, 0.0f};
  for (int i = threadIdx.x; i < columns; i += blockDim.x) p = combine(p, {__half2float(row[i]), 1.0f});
  p = reduce_warp(p);
  if (threadIdx.x % warpSize == 0) pairs[threadIdx.x / warpSize] = p;
  __syncthreads();
  const Pair nothing = {-1e30f, 0.0f};
  p = reduce_warp(threadIdx.x % warpSize < blockDim.x / warpSize ? pairs[threadIdx.x % warpSize] : nothing);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) y[(size_t)blockIdx.x * columns + i] = __float2half(__expf(__half2float(row[i]) - p.maximum) / p.sum);
}
