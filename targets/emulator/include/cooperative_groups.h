/* <cooperative_groups.h>: blocks, tiles of a warp, and the threads that are here together. Everything is made of barriers and warp functions, and inlined,
   so that reports name the line of the kernel. A grid cannot be synchronised: the emulator runs its blocks one after the other. */
#pragma once

#include "cuda_emulator.h"

#define EMULATOR_METHOD __attribute__((always_inline)) inline

namespace cooperative_groups {

struct thread_block {
  EMULATOR_METHOD void sync(int line = __builtin_LINE()) const { emulator_barrier(0, 0, line); }
  EMULATOR_METHOD static unsigned int thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
  EMULATOR_METHOD static unsigned int size() { return blockDim.x * blockDim.y * blockDim.z; }
  EMULATOR_METHOD static unsigned int num_threads() { return size(); }
  EMULATOR_METHOD static dim3 group_index() { return blockIdx; }
  EMULATOR_METHOD static dim3 thread_index() { return threadIdx; }
  EMULATOR_METHOD static dim3 group_dim() { return blockDim; }
  EMULATOR_METHOD static dim3 dim_threads() { return blockDim; }
};
EMULATOR_METHOD thread_block this_thread_block() { return thread_block(); }

struct grid_group {
  EMULATOR_METHOD void sync() const { emulator_trap("grid.sync() is not supported: the blocks of a launch run one after the other"); }
  EMULATOR_METHOD static bool is_valid() { return false; }
  EMULATOR_METHOD static unsigned long long block_rank() { return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z); }
  EMULATOR_METHOD static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  EMULATOR_METHOD static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
  EMULATOR_METHOD static unsigned long long size() { return num_blocks() * thread_block::size(); }
  EMULATOR_METHOD static unsigned long long num_threads() { return size(); }
};
EMULATOR_METHOD grid_group this_grid() { return grid_group(); }

/* N neighbouring lanes of a warp. */
template <unsigned int N, class Parent = void> struct thread_block_tile {
  static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "tiles of a warp have 1, 2, 4, 8, 16 or 32 threads; larger ones are not supported");
  EMULATOR_METHOD static unsigned int mask() { return N == 32 ? 0xffffffffu : ((1u << (N & 31)) - 1) << (emulator_lane() & ~(N - 1)); }
  EMULATOR_METHOD static unsigned int thread_rank() { return emulator_lane() & (N - 1); }
  EMULATOR_METHOD static constexpr unsigned int size() { return N; }
  EMULATOR_METHOD static constexpr unsigned int num_threads() { return N; }
  EMULATOR_METHOD static unsigned int meta_group_rank() { return thread_block::thread_rank() / N; }
  EMULATOR_METHOD static unsigned int meta_group_size() { return (thread_block::size() + N - 1) / N; }
  EMULATOR_METHOD void sync() const { __syncwarp(mask()); }
  template <class T> EMULATOR_METHOD T shfl(T value, int rank) const { return __shfl_sync(mask(), value, rank, N); }
  template <class T> EMULATOR_METHOD T shfl_up(T value, unsigned int delta) const { return __shfl_up_sync(mask(), value, delta, N); }
  template <class T> EMULATOR_METHOD T shfl_down(T value, unsigned int delta) const { return __shfl_down_sync(mask(), value, delta, N); }
  template <class T> EMULATOR_METHOD T shfl_xor(T value, unsigned int ranks) const { return __shfl_xor_sync(mask(), value, (int)ranks, N); }
  EMULATOR_METHOD int any(int predicate) const { return __any_sync(mask(), predicate); }
  EMULATOR_METHOD int all(int predicate) const { return __all_sync(mask(), predicate); }
  EMULATOR_METHOD unsigned int ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> (emulator_lane() & ~(N - 1)); }
  template <class T> EMULATOR_METHOD unsigned int match_any(T value) const { return __match_any_sync(mask(), value) >> (emulator_lane() & ~(N - 1)); }
};
template <unsigned int N, class Parent> EMULATOR_METHOD thread_block_tile<N, Parent> tiled_partition(const Parent&) { return thread_block_tile<N, Parent>(); }

/* The lanes that came here together. */
struct coalesced_group {
  unsigned int lanes;
  EMULATOR_METHOD unsigned int lane_of(unsigned int rank) const {
    unsigned int rest = lanes;
    for (unsigned int i = 0; i < rank % size(); ++i) rest &= rest - 1;
    return (unsigned int)__builtin_ctz(rest);
  }
  EMULATOR_METHOD unsigned int packed(unsigned int ballot) const { /* bits of the lanes in the order of their ranks */
    unsigned int result = 0, rank = 0;
    for (unsigned int rest = lanes; rest; rest &= rest - 1, ++rank)
      if (ballot & rest & -rest) result |= 1u << rank;
    return result;
  }
  EMULATOR_METHOD unsigned int thread_rank() const { return (unsigned int)__builtin_popcount(lanes & ((1u << emulator_lane()) - 1)); }
  EMULATOR_METHOD unsigned int size() const { return (unsigned int)__builtin_popcount(lanes); }
  EMULATOR_METHOD unsigned int num_threads() const { return size(); }
  EMULATOR_METHOD void sync() const { __syncwarp(lanes); }
  template <class T> EMULATOR_METHOD T shfl(T value, int rank) const { return __shfl_sync(lanes, value, (int)lane_of((unsigned int)rank)); }
  template <class T> EMULATOR_METHOD T shfl_up(T value, unsigned int delta) const {
    const unsigned int rank = thread_rank();
    return __shfl_sync(lanes, value, (int)lane_of(rank >= delta ? rank - delta : rank));
  }
  template <class T> EMULATOR_METHOD T shfl_down(T value, unsigned int delta) const {
    const unsigned int rank = thread_rank();
    return __shfl_sync(lanes, value, (int)lane_of(rank + delta < size() ? rank + delta : rank));
  }
  EMULATOR_METHOD int any(int predicate) const { return __any_sync(lanes, predicate); }
  EMULATOR_METHOD int all(int predicate) const { return __all_sync(lanes, predicate); }
  EMULATOR_METHOD unsigned int ballot(int predicate) const { return packed(__ballot_sync(lanes, predicate)); }
  template <class T> EMULATOR_METHOD unsigned int match_any(T value) const { return packed(__match_any_sync(lanes, value)); }
};
EMULATOR_METHOD coalesced_group coalesced_threads(int line = __builtin_LINE()) { return coalesced_group{emulator_active_mask(line)}; }

template <class Group> EMULATOR_METHOD void sync(const Group& group) { group.sync(); }
EMULATOR_METHOD void sync(const thread_block& block, int line = __builtin_LINE()) { block.sync(line); }

template <class T> struct plus { EMULATOR_METHOD T operator()(T x, T y) const { return x + y; } };
template <class T> struct less { EMULATOR_METHOD T operator()(T x, T y) const { return y < x ? y : x; } };
template <class T> struct greater { EMULATOR_METHOD T operator()(T x, T y) const { return x < y ? y : x; } };
template <class T> struct bit_and { EMULATOR_METHOD T operator()(T x, T y) const { return x & y; } };
template <class T> struct bit_or { EMULATOR_METHOD T operator()(T x, T y) const { return x | y; } };
template <class T> struct bit_xor { EMULATOR_METHOD T operator()(T x, T y) const { return x ^ y; } };

/* All threads of the group get the value. */
template <unsigned int N, class Parent, class T, class F> EMULATOR_METHOD T reduce(const thread_block_tile<N, Parent>& tile, T value, F&& combine) {
  for (unsigned int ranks = N / 2; ranks > 0; ranks /= 2) value = combine(value, tile.shfl_xor(value, ranks));
  return value;
}
template <class Group, class T, class F> EMULATOR_METHOD T reduce(const Group& group, T value, F&& combine) {
  T result = group.shfl(value, 0);
  for (unsigned int rank = 1; rank < group.size(); ++rank) result = combine(result, group.shfl(value, (int)rank));
  return result;
}
template <class Group, class T, class F> EMULATOR_METHOD T inclusive_scan(const Group& group, T value, F&& combine) {
  for (unsigned int delta = 1; delta < group.size(); delta *= 2) {
    const T other = group.shfl_up(value, delta);
    if (group.thread_rank() >= delta) value = combine(other, value);
  }
  return value;
}
template <class Group, class T> EMULATOR_METHOD T inclusive_scan(const Group& group, T value) { return inclusive_scan(group, value, plus<T>()); }
template <class Group, class T, class F> EMULATOR_METHOD T exclusive_scan(const Group& group, T value, F&& combine) {
  const T before = group.shfl_up(inclusive_scan(group, value, combine), 1);
  return group.thread_rank() ? before : T();
}
template <class Group, class T> EMULATOR_METHOD T exclusive_scan(const Group& group, T value) { return exclusive_scan(group, value, plus<T>()); }

}  // namespace cooperative_groups
#undef EMULATOR_METHOD
