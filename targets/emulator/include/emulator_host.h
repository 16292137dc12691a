/* The host's side of a .cu file: main(), cudaMalloc and <<<>>> are compiled, so that the file can be read as it is, and never run. The emulator launches
   kernels itself. Included where the source has such code. */
#pragma once

#include <stddef.h>

typedef int cudaError_t;
typedef int CUresult;
typedef struct EmulatorStream* cudaStream_t;
typedef struct EmulatorEvent* cudaEvent_t;
enum { cudaSuccess = 0, cudaErrorNotSupported = 801 };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2, cudaMemAttachGlobal = 1 };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int major, minor, multiProcessorCount, clockRate, warpSize, maxThreadsPerBlock, memoryBusWidth, memoryClockRate, l2CacheSize;
};

#define EMULATOR_HOST(name) \
  template <class... A> static inline cudaError_t name(A...) { return cudaErrorNotSupported; }
EMULATOR_HOST(cudaMalloc) EMULATOR_HOST(cudaMallocManaged) EMULATOR_HOST(cudaMallocHost) EMULATOR_HOST(cudaHostAlloc) EMULATOR_HOST(cudaMallocAsync)
EMULATOR_HOST(cudaFree) EMULATOR_HOST(cudaFreeHost) EMULATOR_HOST(cudaFreeAsync) EMULATOR_HOST(cudaMemcpy) EMULATOR_HOST(cudaMemcpyAsync)
EMULATOR_HOST(cudaMemset) EMULATOR_HOST(cudaMemsetAsync) EMULATOR_HOST(cudaMemcpy2D) EMULATOR_HOST(cudaMemGetInfo) EMULATOR_HOST(cudaMemPrefetchAsync)
template <class T, class... A> static inline cudaError_t cudaMemcpyToSymbol(T&, A...) { return cudaErrorNotSupported; }
template <class... A> static inline cudaError_t cudaMemcpyFromSymbol(A...) { return cudaErrorNotSupported; }
EMULATOR_HOST(cudaDeviceSynchronize) EMULATOR_HOST(cudaDeviceReset) EMULATOR_HOST(cudaGetLastError) EMULATOR_HOST(cudaPeekAtLastError)
EMULATOR_HOST(cudaSetDevice) EMULATOR_HOST(cudaGetDevice) EMULATOR_HOST(cudaGetDeviceCount) EMULATOR_HOST(cudaGetDeviceProperties) EMULATOR_HOST(cudaDeviceGetAttribute)
EMULATOR_HOST(cudaStreamCreate) EMULATOR_HOST(cudaStreamCreateWithFlags) EMULATOR_HOST(cudaStreamDestroy) EMULATOR_HOST(cudaStreamSynchronize) EMULATOR_HOST(cudaStreamWaitEvent)
EMULATOR_HOST(cudaEventCreate) EMULATOR_HOST(cudaEventCreateWithFlags) EMULATOR_HOST(cudaEventRecord) EMULATOR_HOST(cudaEventSynchronize) EMULATOR_HOST(cudaEventElapsedTime)
EMULATOR_HOST(cudaEventDestroy) EMULATOR_HOST(cudaFuncSetAttribute) EMULATOR_HOST(cudaFuncSetCacheConfig) EMULATOR_HOST(cudaOccupancyMaxActiveBlocksPerMultiprocessor)
#undef EMULATOR_HOST
static inline const char* cudaGetErrorString(cudaError_t) { return "the emulator runs no host code"; }
static inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorNotSupported"; }
