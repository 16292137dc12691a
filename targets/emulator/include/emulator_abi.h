/* What the headers that CUDA source is compiled against and the emulator's runtime have in common: the position of the running thread, and the
   entry points of the runtime. Not for users: they include nothing, or <cuda_runtime.h>.

   Everything here must be callable from code that is compiled with access instrumentation, without being instrumented itself: EMULATOR_QUIET. */
#pragma once

#ifndef __cplusplus
#error "CUDA source is C++"
#endif

#ifdef __clang__ /* whose no_sanitize leaves atomic operations instrumented */
#define EMULATOR_QUIET __attribute__((no_sanitize("thread"), disable_sanitizer_instrumentation))
#else
#define EMULATOR_QUIET __attribute__((no_sanitize("thread")))
#endif
#ifdef EMULATOR_CHECKED /* an instrumented build: an inlined function would be instrumented, and calls tell where they come from */
#define EMULATOR_FUNCTION EMULATOR_QUIET __attribute__((noinline, unused)) static
#define EMULATOR_HERE __builtin_return_address(0) /* in an EMULATOR_FUNCTION: the line that called it */
#else
#define EMULATOR_FUNCTION __attribute__((always_inline, unused)) static inline
#define EMULATOR_HERE nullptr
#endif

struct uint3 {
  unsigned int x, y, z;
};

struct EmulatorPosition { /* of the thread that a worker is running */
  uint3 thread_index, block_index, block_dim, grid_dim;
  void* dynamic_shared;  /* the block's dynamic shared memory */
  unsigned int lane;     /* of the thread in its warp */
  unsigned int patience; /* atomic operations and fences until this thread lets others run: what it waits for may be theirs to do */
};

#pragma GCC visibility push(default) /* kernels find these in the runtime's library */
extern "C" {
extern __thread EmulatorPosition emulator_position __attribute__((tls_model("initial-exec")));

/* All threads of the block wait for each other. The result of a vote over `predicate`: 0: none, 1: how many, 2: all, 3: any. The line tells barriers apart
   that the compiler would make one. */
int emulator_barrier(int vote, int predicate, int line);

/* The lanes of `mask` wait for each other; those that ended do not count. The last to arrive calls complete(lanes, arrived, argument), where lanes[i] is the `mine` of
   lane i (null for a lane that is not in `arrived`): it may read and write what every lane gave. Lanes match by `complete`, `mask` and `argument`. */
typedef void EmulatorComplete(void* const* lanes, unsigned int arrived, unsigned long long argument);
void emulator_collective(unsigned int mask, void* mine, EmulatorComplete* complete, unsigned long long argument);
void emulator_collective_at(unsigned int mask, void* mine, EmulatorComplete* complete, unsigned long long argument, const void* where);
void emulator_inactive(unsigned int lane, unsigned int source, const void* where); /* a lane gets the value of one that takes no part */

unsigned int emulator_active_mask(int line); /* the lanes that are here together */
void emulator_fence(int scope);          /* 0: block, 1: device, 2: system */
void emulator_yield(void);               /* lets the other threads of the block run */
unsigned long long emulator_clock(void); /* nanoseconds */
void emulator_trap(const char* why);     /* ends the launch with an error */

/* A check of an access that the compiler does not see, made on behalf of the running thread at the place that called the caller: kind 0 reads,
   1 writes, 2 is atomic. Nothing happens where nothing is checked. */
void emulator_access(const volatile void* address, unsigned long size, int kind, const void* where);

/* cp.async: `bytes` of `size` come from global memory, the rest is zero. The copy lands when its thread waits for its group. */
void emulator_async_copy(void* shared, const void* global, unsigned size, unsigned bytes, const void* where);
void emulator_async_commit(void);
void emulator_async_wait(unsigned groups); /* all but the latest `groups` groups */
}
#pragma GCC visibility pop
