/* Asynchronous copies from global to shared memory (cp.async, __pipeline_memcpy_async). They land when their thread waits for their group and not
   before, so that a kernel which does not wait computes with what was there, as it may on a GPU.

   A GPU may write at any time from the copy to the wait. So both count as writes by the thread, and from the first to the second the words are as if
   nobody had written them. Copies that nobody waits for never land. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

namespace emulator {

struct Copy {
  char* shared;
  const char* global;
  uint32_t size, bytes, group; /* bytes come from global memory, the rest of size is zero */
  uintptr_t place;
};

struct ThreadCopies {
  Copy* list;
  uint32_t first, count, capacity; /* those from `first` on have not landed */
  uint32_t committed;              /* groups */
};

static void no_memory(Worker* worker) {
  fail(worker, ERROR_RESOURCES, nullptr, "not enough memory for the asynchronous copies of a block's threads");
  abandon(worker);
}

static ThreadCopies* of_current_thread(Worker* worker) {
  if (!worker->copies) worker->copies = static_cast<ThreadCopies*>(calloc(worker->block_threads, sizeof(ThreadCopies)));
  if (!worker->copies) no_memory(worker);
  return &worker->copies[worker->current];
}

void copies_block(Worker* worker) {
  if (!worker->copies) return;
  for (unsigned i = 0; i < worker->block_threads; ++i) worker->copies[i].first = worker->copies[i].count = worker->copies[i].committed = 0;
}

void copies_free(Worker* worker) {
  if (!worker->copies) return;
  for (unsigned i = 0; i < worker->block_threads; ++i) free(worker->copies[i].list);
  free(worker->copies);
}

static void append(Worker* worker, ThreadCopies* mine, const Copy& copy) {
  if (mine->first == mine->count) mine->first = mine->count = 0;
  if (mine->count == mine->capacity) {
    const uint32_t capacity = mine->capacity ? 2 * mine->capacity : 16;
    Copy* list = static_cast<Copy*>(realloc(mine->list, capacity * sizeof(Copy)));
    if (!list) no_memory(worker);
    mine->list = list;
    mine->capacity = capacity;
  }
  mine->list[mine->count++] = copy;
}

static void land(Worker* worker, const Copy& copy) {
  if (worker->launch->check == CHECK_RACE) emulator_access(copy.shared, copy.size, 1, reinterpret_cast<const void*>(copy.place));
  memcpy(copy.shared, copy.global, copy.bytes);
  memset(copy.shared + copy.bytes, 0, copy.size - copy.bytes);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

void emulator_async_copy(void* shared, const void* global, unsigned size, unsigned bytes, const void* where) {
  Worker* worker = current_worker;
  if (uintptr_t(shared) % size || (bytes && uintptr_t(global) % size)) {
    fail(worker, ERROR_TRAP, where, "an asynchronous copy of 4, 8 or 16 bytes needs addresses that are multiples of that");
    abandon(worker);
  }
  if (bytes) emulator_access(global, bytes, 0, where);
  emulator_access(shared, size, 1, where);
  if (worker->launch->check == CHECK_RACE) race_forget(worker, uintptr_t(shared), size, uintptr_t(where));
  ThreadCopies* mine = of_current_thread(worker);
  append(worker, mine, Copy{static_cast<char*>(shared), static_cast<const char*>(global), size, bytes, mine->committed, uintptr_t(where)});
}

void emulator_async_commit(void) { ++of_current_thread(current_worker)->committed; }

/* Until no more than the latest `groups` groups are on their way. */
void emulator_async_wait(unsigned groups) {
  Worker* worker = current_worker;
  ThreadCopies* mine = of_current_thread(worker);
  while (mine->first < mine->count && mine->list[mine->first].group + uint64_t(groups) < mine->committed) land(worker, mine->list[mine->first++]);
}
}
