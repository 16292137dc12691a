/* The switch between stacks, for each processor, and what a stack holds before its fiber first runs. */
#include "fiber.h"

namespace emulator {

#ifdef EMULATOR_UCONTEXT

void prepare_fiber(Fiber* fiber, char* low, char* high, void (*entry)()) {
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = low;
  fiber->context.uc_stack.ss_size = size_t(high - low);
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, entry, 0);
}

#else

#if defined(__x86_64__)
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, .-emulator_switch
)");
constexpr int SAVED_WORDS = 6, RETURN_WORD = 6;
#else
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
.type emulator_switch, %function
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emulator_switch, .-emulator_switch
)");
constexpr int SAVED_WORDS = 20, RETURN_WORD = 11;
#endif

void prepare_fiber(Fiber* fiber, char* low, char* high, void (*entry)()) {
  (void)low;
  void** top = reinterpret_cast<void**>(high) - 2; /* a function starts with its stack 8 below a multiple of 16 on x86-64, at one on aarch64 */
  top[0] = top[1] = nullptr;
#if defined(__x86_64__)
  *--top = nullptr; /* where a return address would be */
  top -= SAVED_WORDS + 1;
#else
  top -= SAVED_WORDS;
#endif
  for (int i = 0; i < SAVED_WORDS; ++i) top[i] = nullptr;
  top[RETURN_WORD] = reinterpret_cast<void*>(entry);
  fiber->stack_pointer = top;
}

#endif

}  // namespace emulator
