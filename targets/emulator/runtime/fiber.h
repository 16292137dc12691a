/* Stacks and the switch between them: one fiber holds one CUDA thread that waits.

   The switch saves what the calling convention says a call keeps, and nothing else: about two nanoseconds. glibc's swapcontext does the same and a
   system call for the signal mask. It stands in for processors that have no switch here. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define EMULATOR_UCONTEXT 1
#include <ucontext.h>
#endif

namespace emulator {

struct Fiber {
  void* stack_pointer;
  Fiber* next_free;
#ifdef EMULATOR_UCONTEXT
  ucontext_t context;
#endif
};

#ifdef EMULATOR_UCONTEXT

inline void switch_fiber(Fiber* from, Fiber* to) { swapcontext(&from->context, &to->context); }

#else

extern "C" void emulator_switch(void** save, void* load);
inline void switch_fiber(Fiber* from, Fiber* to) { emulator_switch(&from->stack_pointer, to->stack_pointer); }

#endif

/* A fiber that starts in `entry`, which never returns, on the stack [low, high); `high` is a multiple of 16. */
void prepare_fiber(Fiber* fiber, char* low, char* high, void (*entry)());

}  // namespace emulator
