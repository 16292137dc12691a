// Privatised histogram: a copy in shared memory for each block, added up with atomics. Warps agree on who adds for lanes with the same bin.
#include <cuda_runtime.h>

constexpr int BINS = 32;

__global__ void histogram(const unsigned char* __restrict__ data, unsigned int* __restrict__ bins, int n) {
  __shared__ unsigned int local[BINS];
  for (int i = threadIdx.x; i < BINS; i += blockDim.x) local[i] = 0;
  __syncthreads();
  const int stride = blockDim.x * gridDim.x;
  const int rounds = (n + stride - 1) / stride;
  for (int round = 0; round < rounds; ++round) {
    const int i = round * stride + blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned int active = __ballot_sync(0xffffffffu, i < n);
    if (i < n) {
      const int bin = data[i] % BINS;
      const unsigned int same = __match_any_sync(active, bin);
      if ((threadIdx.x & 31) == __ffs(same) - 1) atomicAdd(&local[bin], __popc(same));
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < BINS; i += blockDim.x)
    if (local[i]) atomicAdd(&bins[i], local[i]);
}
