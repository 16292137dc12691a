// Sorts each block's 256 keys in place.
__device__ inline void compare(int& a, int& b, bool up) {
  if ((a > b) == up) {
    const int swap = a;
    a = b;
    b = swap;
  }
}

extern "C" __global__ void bitonic(int* keys) {
  __shared__ int s[256];
  s[threadIdx.x] = keys[blockIdx.x * 256 + threadIdx.x];
  s[threadIdx.x + 128] = keys[blockIdx.x * 256 + threadIdx.x + 128];
  for (int size = 2; size <= 256; size *= 2)
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int i = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      compare(s[i], s[i + stride], (i & size) == 0);
    }
  __syncthreads();
  keys[blockIdx.x * 256 + threadIdx.x] = s[threadIdx.x];
  keys[blockIdx.x * 256 + threadIdx.x + 128] = s[threadIdx.x + 128];
}
