/* Stacks for the fibers of a block. They are kept from one launch to the next: making a thousand of them, each with a fence of a page that must not be
   touched, takes longer than most launches. */
#include "runtime.h"

#include <stdlib.h>
#include <sys/mman.h>

namespace emulator {

constexpr unsigned MOST_KEPT = 64;

static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
static Stacks* kept = nullptr;
static unsigned kept_count = 0;

static unsigned rounded(unsigned count) { /* few sizes, so that what is kept fits again */
  unsigned size = 32;
  while (size < count) size *= 2;
  return size;
}

Stacks* stacks_take(unsigned count) {
  pthread_mutex_lock(&keeping);
  for (Stacks** link = &kept; *link; link = &(*link)->next) {
    Stacks* stacks = *link;
    if (stacks->count != rounded(count)) continue;
    *link = stacks->next;
    --kept_count;
    pthread_mutex_unlock(&keeping);
    return stacks;
  }
  pthread_mutex_unlock(&keeping);
  Stacks* stacks = static_cast<Stacks*>(calloc(1, sizeof(Stacks)));
  if (!stacks) return nullptr;
  stacks->count = rounded(count);
  void* memory = mmap(nullptr, stacks->count * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    free(stacks);
    return nullptr;
  }
  stacks->low = static_cast<char*>(memory);
  return stacks;
}

void stacks_give_back(Stacks* stacks) {
  if (!stacks) return;
  pthread_mutex_lock(&keeping);
  const bool keep = kept_count < MOST_KEPT;
  if (keep) {
    stacks->next = kept;
    kept = stacks;
    ++kept_count;
  }
  pthread_mutex_unlock(&keeping);
  if (keep) return;
  munmap(stacks->low, stacks->count * STACK_BYTES);
  free(stacks);
}

/* The i-th stack, fenced. Where a fence cannot be had (the system limits how many pieces a process's memory has), there is none. */
char* stacks_use(Stacks* stacks, unsigned i) {
  for (; stacks->fenced <= i; ++stacks->fenced) mprotect(stacks->low + stacks->fenced * STACK_BYTES, PAGE_BYTES, PROT_NONE);
  return stacks->low + i * STACK_BYTES;
}

}  // namespace emulator
