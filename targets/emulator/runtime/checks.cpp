/* stub */
#include "runtime.h"
namespace emulator {
bool race_begin(Worker*) { return true; }
void race_end(Run*) {}
void race_free(Worker*) {}
void race_block(Worker*) {}
void race_collective(Worker*, uint32_t, uint32_t) {}
void race_released(Worker*, bool) {}
void race_forget(Worker*, uintptr_t, size_t) {}
void race_access(Worker*, uintptr_t, size_t, int, uintptr_t) {}
bool memory_begin(Worker*) { return true; }
void memory_end(Run*) {}
void memory_free(Worker*) {}
void memory_warp_done(Worker*, uint32_t) {}
void found(Worker*, const Finding&) {}
}
extern "C" void emulator_inactive(unsigned, unsigned, const void*) {}
extern "C" void emulator_access(const volatile void*, unsigned long, int, const void*) {}
extern "C" void emulator_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
