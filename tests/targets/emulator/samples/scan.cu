// Inclusive sums of a block of 1024, by shuffles in each warp and then over the warps.
#include <cuda_runtime.h>

template <typename T> __device__ __forceinline__ T warp_scan(T value) {
#pragma unroll
  for (int offset = 1; offset < 32; offset <<= 1) {
    const T other = __shfl_up_sync(0xffffffffu, value, offset);
    if ((threadIdx.x & 31) >= offset) value += other;
  }
  return value;
}

template <typename T> __global__ void __launch_bounds__(1024) scan(const T* __restrict__ in, T* __restrict__ out, int n) {
  __shared__ T sums[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, i = blockIdx.x * blockDim.x + threadIdx.x;
  T value = warp_scan(i < n ? in[i] : T(0));
  if (lane == 31) sums[warp] = value;
  __syncthreads();
  if (warp == 0) sums[lane] = warp_scan(lane < blockDim.x / 32 ? sums[lane] : T(0));
  __syncthreads();
  if (warp > 0) value += sums[warp - 1];
  if (i < n) out[i] = value;
}

template __global__ void scan<int>(const int*, int*, int);
