/* Faults of kernels: an address that is not mapped, a division by zero, a stack that is full, a loop without end. Each ends the launch with an
   error and leaves the process as it was. Signals of threads that are not ours go to whoever handled them before. */
#include "runtime.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

namespace emulator {

static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int FAULT_COUNT = 4;
constexpr size_t SIGNAL_STACK_BYTES = 64 << 10;
static struct sigaction previous[FAULT_COUNT + 1];
static int launches = 0;
static bool interrupts = false; /* whether the handler of interrupt_signal() is there */
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;

static int interrupt_signal() { return SIGRTMIN + 8; }

static const void* interrupted_at(const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<const void*>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<const void*>(machine.pc);
#else
  (void)machine;
  return nullptr;
#endif
}

static void pass_on(int index, int signal, siginfo_t* info, void* context) {
  const struct sigaction& old = previous[index];
  if (old.sa_flags & SA_SIGINFO) old.sa_sigaction(signal, info, context);
  else if (old.sa_handler == SIG_DFL) ::signal(signal, SIG_DFL); /* it happens again, and then as if we were not here */
  else if (old.sa_handler != SIG_IGN) old.sa_handler(signal);
}

static void on_fault(int signal, siginfo_t* info, void* context) {
  Worker* worker = current_worker;
  int index = 0;
  while (index < FAULT_COUNT && FAULTS[index] != signal) ++index;
  if (!worker) {
    pass_on(index, signal, info, context);
    return;
  }
  const uintptr_t address = uintptr_t(info->si_addr);
  const bool stack = (signal == SIGSEGV || signal == SIGBUS) && address - worker->stacks_low < worker->stacks_bytes;
  worker->launch->error_address = uint64_t(address);
  const char* what = signal == SIGFPE ? "an integer division by zero" : signal == SIGILL ? "an illegal instruction" : "an address that is not mapped";
  fail(worker, stack ? ERROR_STACK : ERROR_SIGNAL, interrupted_at(context), what);
  siglongjmp(worker->rescue, 1);
}

static void on_interrupt(int signal, siginfo_t* info, void* context) {
  Worker* worker = current_worker;
  if (!worker) { /* one that has just ended, or a signal of somebody else's: nobody's is nothing, and must not end the process */
    const struct sigaction& old = previous[FAULT_COUNT];
    if (old.sa_flags & SA_SIGINFO || (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN)) pass_on(FAULT_COUNT, signal, info, context);
    return;
  }
  Dl_info here, kernel;
  const void* place = interrupted_at(context);
  if (!worker->run->stop || !place || !dladdr(place, &here) || !dladdr(reinterpret_cast<void*>(worker->launch->entry), &kernel)) return;
  if (here.dli_fbase != kernel.dli_fbase) return; /* inside the runtime or libc, which must be left in order */
  if (!worker->launch->error_place) {
    worker->launch->error_place = uint64_t(place);
    worker->launch->error_block = worker->block;
    worker->launch->error_thread = worker->current;
  }
  siglongjmp(worker->rescue, 1);
}

void faults_begin() {
  pthread_mutex_lock(&installing);
  if (launches++ == 0) {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = on_fault;
    for (int i = 0; i < FAULT_COUNT; ++i) sigaction(FAULTS[i], &action, &previous[i]);
    if (!interrupts) { /* stays: a worker may be told to stop while it ends */
      action.sa_sigaction = on_interrupt;
      sigaction(interrupt_signal(), &action, &previous[FAULT_COUNT]);
      interrupts = true;
    }
  }
  pthread_mutex_unlock(&installing);
}

void faults_end() {
  pthread_mutex_lock(&installing);
  if (--launches == 0)
    for (int i = 0; i < FAULT_COUNT; ++i) sigaction(FAULTS[i], &previous[i], nullptr);
  pthread_mutex_unlock(&installing);
}

void faults_interrupt(Run* run) {
  for (unsigned i = 0; i < run->launch->workers; ++i)
    if (!run->workers[i].done) pthread_kill(run->workers[i].thread, interrupt_signal());
}

void faults_thread_begin(Worker* worker) {
  worker->signal_stack = static_cast<char*>(malloc(SIGNAL_STACK_BYTES));
  stack_t stack = {};
  stack.ss_sp = worker->signal_stack;
  stack.ss_size = SIGNAL_STACK_BYTES;
  if (worker->signal_stack) sigaltstack(&stack, nullptr);
}

void faults_thread_end(Worker* worker) {
  stack_t stack = {};
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
  free(worker->signal_stack);
}

}  // namespace emulator
