// Cooperative groups for the emulator, under the name that CUDA sources include: the block, and tiles of 1 to 32 lanes of a warp. There are no
// groups of a grid or of a cluster, which need a cooperative launch, and no coalesced groups.
#pragma once
#include "emulator_abi.h"

#define EMULATOR_MEMBER __attribute__((always_inline)) inline  // the caller's line is that of the kernel

namespace cooperative_groups {

struct thread_block {
  EMULATOR_MEMBER static void sync(int line = __builtin_LINE()) { emulator_barrier(0, 0, line); }
  EMULATOR_MEMBER static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  EMULATOR_MEMBER static unsigned num_threads() { return size(); }
  EMULATOR_MEMBER static unsigned thread_rank() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
  EMULATOR_MEMBER static dim3 group_index() { return blockIdx; }
  EMULATOR_MEMBER static dim3 thread_index() { return threadIdx; }
  EMULATOR_MEMBER static dim3 group_dim() { return blockDim; }
  EMULATOR_MEMBER static dim3 dim_threads() { return blockDim; }
};

EMULATOR_MEMBER thread_block this_thread_block() { return thread_block(); }

template <unsigned lanes, typename Parent = void>
struct thread_block_tile {
  static_assert(lanes <= 32 && (lanes & (lanes - 1)) == 0, "the emulator has tiles of 1, 2, 4, 8, 16 and 32 threads");
  EMULATOR_MEMBER static unsigned mask() { return (lanes == 32 ? 0xffffffffu : (1u << lanes % 32) - 1) << (emulator_lane() / lanes * lanes % 32); }
  EMULATOR_MEMBER static void sync() { __syncwarp(mask()); }
  EMULATOR_MEMBER static constexpr unsigned size() { return lanes; }
  EMULATOR_MEMBER static constexpr unsigned num_threads() { return lanes; }
  EMULATOR_MEMBER static unsigned thread_rank() { return emulator_lane() % lanes; }
  EMULATOR_MEMBER static unsigned meta_group_rank() { return thread_block::thread_rank() / lanes; }
  EMULATOR_MEMBER static unsigned meta_group_size() { return (thread_block::size() + lanes - 1) / lanes; }
  template <typename T> EMULATOR_MEMBER static T shfl(T value, int source) { return __shfl_sync(mask(), value, source, lanes); }
  template <typename T> EMULATOR_MEMBER static T shfl_up(T value, unsigned delta) { return __shfl_up_sync(mask(), value, delta, lanes); }
  template <typename T> EMULATOR_MEMBER static T shfl_down(T value, unsigned delta) { return __shfl_down_sync(mask(), value, delta, lanes); }
  template <typename T> EMULATOR_MEMBER static T shfl_xor(T value, unsigned bits) { return __shfl_xor_sync(mask(), value, (int)bits, lanes); }
  EMULATOR_MEMBER static int any(int predicate) { return __any_sync(mask(), predicate); }
  EMULATOR_MEMBER static int all(int predicate) { return __all_sync(mask(), predicate); }
  EMULATOR_MEMBER static unsigned ballot(int predicate) { return __ballot_sync(mask(), predicate) >> (emulator_lane() / lanes * lanes % 32); }
};

template <unsigned lanes, typename Parent>
EMULATOR_MEMBER thread_block_tile<lanes, Parent> tiled_partition(const Parent&) {
  return thread_block_tile<lanes, Parent>();
}

EMULATOR_MEMBER void sync(const thread_block&, int line = __builtin_LINE()) { thread_block::sync(line); }
template <unsigned lanes, typename Parent>
EMULATOR_MEMBER void sync(const thread_block_tile<lanes, Parent>& tile) { tile.sync(); }

#define EMULATOR_OPERATION(name, expression)                                \
  template <typename T>                                                     \
  struct name {                                                             \
    EMULATOR_MEMBER T operator()(T a, T b) const { return expression; }     \
  };
EMULATOR_OPERATION(plus, a + b)
EMULATOR_OPERATION(less, b < a ? b : a)
EMULATOR_OPERATION(greater, a < b ? b : a)
EMULATOR_OPERATION(bit_and, a & b)
EMULATOR_OPERATION(bit_or, a | b)
EMULATOR_OPERATION(bit_xor, a ^ b)
#undef EMULATOR_OPERATION

template <unsigned lanes, typename Parent, typename T, typename Operation>
EMULATOR_MEMBER T reduce(const thread_block_tile<lanes, Parent>& tile, T value, Operation operation) {
  for (unsigned bits = lanes / 2; bits > 0; bits /= 2) value = operation(value, tile.shfl_xor(value, bits));
  return value;
}

}  // namespace cooperative_groups

#undef EMULATOR_MEMBER
