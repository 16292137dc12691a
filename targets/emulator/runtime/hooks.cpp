/* Where instrumented code arrives before each access: the functions that compilers call with -fsanitize=thread, and those of our own headers.

   ThreadSanitizer's own runtime is not linked; only its interface is used. The return address of a call is the place of the access. */
#include "runtime.h"

#include <string.h>

namespace emulator {

constexpr uint32_t MANY_SPINS = 2000; /* accesses to one address in a row: perhaps it waits for another thread */

static void touch(uintptr_t address, size_t size, int kind, uintptr_t place) {
  Worker* worker = current_worker;
  if (!worker || !size || !worker->launch->check) return;
  Where where;
  where.space = SPACE_LOCAL;
  if (!shadow_find(worker, address, size, kind, place, &where)) return;
  Thread& thread = worker->threads[worker->current];
  const uint32_t relative = uint32_t(place - worker->launch->image_low);
  thread.last_place = relative;
  thread.visited[relative / 4 % 256 / 64] |= uint64_t(1) << (relative / 4 % 64);
  if (kind == 2) {
    thread.atomic_time = worker->time;
    worker->used_atomics = true;
  }
  if (worker->memory) memory_access(worker, where, address, size, kind, relative);
  else race_access(worker, where, size, kind, relative);
  if (address != thread.spin_address) {
    thread.spin_address = address;
    thread.spins = 0;
  } else if (++thread.spins > MANY_SPINS) {
    thread.spins = 0;
    yield_to_others(worker);
  }
}

}  // namespace emulator

using namespace emulator;

#define PLACE uintptr_t(__builtin_return_address(0))
#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT void emulator_access(const volatile void* address, unsigned long size, int kind, const void* where) {
  touch(uintptr_t(address), size, kind, where ? uintptr_t(where) : PLACE);
}

EXPORT void emulator_fence(int scope) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  Worker* worker = current_worker;
  if (!worker) return;
  worker->threads[worker->current].fence_time = race_tick(worker);
  if (scope) worker->fenced = true;
}

EXPORT void emulator_inactive(unsigned lane, unsigned source, const void* where) {
  Worker* worker = current_worker;
  if (!worker->launch->check) return;
  Finding finding = finding_here(worker);
  finding.kind = INACTIVE_LANE;
  finding.place = uint64_t(where);
  finding.thread = worker->current / WARP * WARP + lane;
  finding.other_thread = worker->current / WARP * WARP + source;
  found(worker, finding);
}

EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_vptr_update(void**, void*) {}
EXPORT void __tsan_vptr_read(void**) {}
EXPORT void __tsan_read_range(void* address, unsigned long size) { touch(uintptr_t(address), size, 0, PLACE); }
EXPORT void __tsan_write_range(void* address, unsigned long size) { touch(uintptr_t(address), size, 1, PLACE); }

#define HOOKS(size)                                                                                          \
  EXPORT void __tsan_read##size(void* address) { touch(uintptr_t(address), size, 0, PLACE); }                 \
  EXPORT void __tsan_write##size(void* address) { touch(uintptr_t(address), size, 1, PLACE); }                \
  EXPORT void __tsan_unaligned_read##size(void* address) { touch(uintptr_t(address), size, 0, PLACE); }       \
  EXPORT void __tsan_unaligned_write##size(void* address) { touch(uintptr_t(address), size, 1, PLACE); }      \
  EXPORT void __tsan_volatile_read##size(void* address) { touch(uintptr_t(address), size, 0, PLACE); }        \
  EXPORT void __tsan_volatile_write##size(void* address) { touch(uintptr_t(address), size, 1, PLACE); }       \
  EXPORT void __tsan_read_write##size(void* address) {                                                        \
    touch(uintptr_t(address), size, 0, PLACE);                                                                \
    touch(uintptr_t(address), size, 1, PLACE);                                                                \
  }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

#define UPDATE(bits, type, name)                                                            \
  EXPORT type __tsan_atomic##bits##_##name(volatile type* address, type value, int) {       \
    touch(uintptr_t(address), sizeof(type), 2, PLACE);                                      \
    return __atomic_##name(address, value, __ATOMIC_SEQ_CST);                               \
  }
#define COMPARE(bits, type, name)                                                                                              \
  EXPORT int __tsan_atomic##bits##_compare_exchange_##name(volatile type* address, type* expected, type value, int, int) {      \
    touch(uintptr_t(address), sizeof(type), 2, PLACE);                                                                          \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                    \
  }
#define ATOMICS(bits, type)                                                        \
  EXPORT type __tsan_atomic##bits##_load(const volatile type* address, int) {      \
    touch(uintptr_t(address), sizeof(type), 2, PLACE);                             \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                             \
  }                                                                                \
  EXPORT void __tsan_atomic##bits##_store(volatile type* address, type value, int) { \
    touch(uintptr_t(address), sizeof(type), 2, PLACE);                             \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                            \
  }                                                                                \
  EXPORT type __tsan_atomic##bits##_exchange(volatile type* address, type value, int) { \
    touch(uintptr_t(address), sizeof(type), 2, PLACE);                             \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                  \
  }                                                                                \
  UPDATE(bits, type, fetch_add)                                                    \
  UPDATE(bits, type, fetch_sub)                                                    \
  UPDATE(bits, type, fetch_and)                                                    \
  UPDATE(bits, type, fetch_or)                                                     \
  UPDATE(bits, type, fetch_xor)                                                    \
  UPDATE(bits, type, fetch_nand)                                                   \
  COMPARE(bits, type, strong)                                                      \
  COMPARE(bits, type, weak)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
EXPORT void __tsan_atomic_thread_fence(int) { emulator_fence(1); }
EXPORT void __tsan_atomic_signal_fence(int) {}

/* ---- -fsanitize=bounds: an index beyond an array whose extent the compiler knows, which may be local, or an inner dimension */

constexpr uint64_t FAR_BEYOND = 1024; /* elements: so far beyond a local array lies the memory of other threads, or of the process */

struct BoundsType {
  uint16_t kind, info; /* kind 0: an integer, of 2^(info / 2) bits, signed if info is odd */
  char name[1];
};
struct BoundsPlace {
  const char* file;
  uint32_t line, column;
  const BoundsType *array, *index;
};

static uint64_t extent_of(const char* type) { /* "'float [4][8]'": 4 */
  const char* bracket = strchr(type, '[');
  uint64_t extent = 0;
  for (const char* at = bracket ? bracket + 1 : ""; *at >= '0' && *at <= '9'; ++at) extent = 10 * extent + uint64_t(*at - '0');
  return extent;
}

static void index_out_of_bounds(const BoundsPlace* where, uintptr_t value, uintptr_t place, bool may_go_on) {
  Worker* worker = current_worker;
  if (!worker) return;
  const unsigned bits = 1u << (where->index->info >> 1);
  const bool is_signed = where->index->info & 1;
  const int64_t index = !is_signed || bits >= 64 ? int64_t(value) : int64_t(value << (64 - bits)) >> (64 - bits);
  const uint64_t extent = extent_of(where->array->name);
  Finding finding = finding_here(worker);
  finding.kind = INDEX;
  finding.place = place;
  finding.offset = uint64_t(index);
  finding.other_place = uint64_t(where->array->name);
  found(worker, finding);
  if (may_go_on && (index >= 0 ? uint64_t(index) - extent < FAR_BEYOND : uint64_t(-index) < FAR_BEYOND)) return;
  fail(worker, ERROR_WILD, reinterpret_cast<const void*>(place), may_go_on ? "an index far beyond its array" : "an index beyond its array");
  abandon(worker);
}

EXPORT void __ubsan_handle_out_of_bounds(const BoundsPlace* where, uintptr_t value) { index_out_of_bounds(where, value, PLACE, true); }
EXPORT void __ubsan_handle_out_of_bounds_abort(const BoundsPlace* where, uintptr_t value) { index_out_of_bounds(where, value, PLACE, false); }

/* ---- -fsanitize=alignment: a vector at an address that is no multiple of what its type needs, where a GPU ends the kernel */

struct AlignmentPlace {
  const char* file;
  uint32_t line, column;
  const BoundsType* type;
  uint8_t shift, kind; /* kind 0: a load, 1: a store, others: a reference, a member, `this` */
};

static void misaligned(const AlignmentPlace* what, uintptr_t address, uintptr_t place) {
  Worker* worker = current_worker;
  if (!worker) return;
  Where where;
  Finding finding = finding_here(worker);
  finding.kind = MISALIGNED;
  finding.place = place;
  finding.access = what->kind < 2 ? what->kind : 3;
  finding.extra = 1u << what->shift;
  finding.offset = address;
  if (shadow_find(worker, address, 1, 0, place, &where)) {
    finding.memory = where.space == SPACE_GLOBAL ? worker->shadow.zones[where.memory].memory : where.memory;
    finding.offset = where.offset;
  }
  found(worker, finding);
  fail(worker, ERROR_WILD, reinterpret_cast<const void*>(place), "a misaligned address");
  abandon(worker);
}

EXPORT void __ubsan_handle_type_mismatch_v1(const AlignmentPlace* what, uintptr_t address) { misaligned(what, address, PLACE); }
EXPORT void __ubsan_handle_type_mismatch_v1_abort(const AlignmentPlace* what, uintptr_t address) { misaligned(what, address, PLACE); }

/* ---- functions of the C library that a kernel may call (the linker's --wrap brings them here) */

EXPORT void* __wrap_memcpy(void* to, const void* from, size_t size) {
  touch(uintptr_t(from), size, 0, PLACE);
  touch(uintptr_t(to), size, 1, PLACE);
  return memmove(to, from, size);
}
EXPORT void* __wrap_memmove(void* to, const void* from, size_t size) {
  touch(uintptr_t(from), size, 0, PLACE);
  touch(uintptr_t(to), size, 1, PLACE);
  return memmove(to, from, size);
}
EXPORT void* __wrap_memset(void* to, int value, size_t size) {
  touch(uintptr_t(to), size, 1, PLACE);
  return memset(to, value, size);
}
EXPORT void __wrap___assert_fail(const char* assertion, const char*, unsigned, const char*) {
  Worker* worker = current_worker;
  fail(worker, ERROR_TRAP, reinterpret_cast<const void*>(PLACE), assertion);
  abandon(worker);
}
#define ENDING(name, ...)                                                                    \
  EXPORT void __wrap_##name(__VA_ARGS__) {                                                    \
    Worker* worker = current_worker;                                                          \
    fail(worker, ERROR_TRAP, reinterpret_cast<const void*>(PLACE), #name "()");               \
    abandon(worker);                                                                          \
  }
ENDING(abort)
ENDING(exit, int)
ENDING(_exit, int)
ENDING(_Exit, int)
ENDING(quick_exit, int)
}
