/* Runs the blocks of a launch: which thread goes on when one waits or ends, barriers, warp collectives, and what happens when all wait.

   A fiber runs threads one after the other. One that never waits needs no switch at all: the next thread starts on the same stack. Only a thread
   that waits keeps its fiber; the others go on on a fresh one. */
#include "runtime.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

__thread EmulatorPosition emulator_position; /* extern "C", as emulator_abi.h says */

namespace emulator {

thread_local Worker* current_worker __attribute__((tls_model("initial-exec"))) = nullptr;

void fail(Worker* worker, Error kind, const void* place, const char* text) {
  Launch* launch = worker->launch;
  pthread_mutex_lock(&worker->run->mutex);
  if (launch->error_kind == ERROR_NONE) {
    launch->error_kind = kind;
    launch->error_place = uint64_t(place);
    launch->error_block = worker->block;
    launch->error_thread = worker->current;
    snprintf(launch->error_text, sizeof launch->error_text, "%s", text);
  }
  worker->run->stop = 1;
  pthread_mutex_unlock(&worker->run->mutex);
}

[[noreturn]] void abandon(Worker* worker) {
  Fiber nobody;
  switch_fiber(&nobody, &worker->main);
  __builtin_unreachable();
}

/* ---- which thread runs */

static void set_bit(uint64_t* bits, unsigned i) { bits[i / 64] |= uint64_t(1) << (i % 64); }
static void clear_bit(uint64_t* bits, unsigned i) { bits[i / 64] &= ~(uint64_t(1) << (i % 64)); }

/* The next thread after the current one that may run, round robin; -1: none. */
static int next_ready(const Worker* worker) {
  const unsigned words = (worker->block_threads + 63) / 64, start = worker->current + 1;
  const unsigned first = start / 64 % words;
  uint64_t bits = start / 64 < words ? worker->ready[first] & (~uint64_t(0) << (start % 64)) : worker->ready[0];
  for (unsigned i = 0, word = first; i <= words; ++i) {
    if (bits) return int(word * 64 + unsigned(__builtin_ctzll(bits)));
    word = word + 1 == words ? 0 : word + 1;
    bits = worker->ready[word];
  }
  return -1;
}

static void enter(Worker* worker, unsigned next) {
  worker->current = next;
  emulator_position.thread_index = worker->threads[next].index;
  emulator_position.lane = next % WARP;
  emulator_position.patience = 0;
}

static void fiber_main();

static Fiber* take_fiber(Worker* worker) {
  if (Fiber* fiber = worker->free_fibers) {
    worker->free_fibers = fiber->next_free;
    return fiber;
  }
  unsigned i = worker->fiber_count++;
  char* low = stacks_use(worker->stacks, i);
  /* Tops that are all the same number of bytes from a page would share a few lines of the first-level cache. */
  prepare_fiber(&worker->fibers[i], low, low + STACK_BYTES - (i % 32) * 192, fiber_main);
  return &worker->fibers[i];
}

/* Goes on with thread `next`, on its own fiber, and returns when the current thread is to go on. */
static void run_instead(Worker* worker, Fiber* self, unsigned next) {
  Thread& thread = worker->threads[next];
  enter(worker, next);
  if (!thread.fiber) thread.fiber = take_fiber(worker);
  if (thread.fiber != self) switch_fiber(self, thread.fiber);
}

static void resolve_stuck(Worker* worker);

static void wait_here(Worker* worker) {
  Fiber* self = worker->threads[worker->current].fiber;
  if (worker->run->stop) abandon(worker);
  int next;
  while ((next = next_ready(worker)) < 0) resolve_stuck(worker);
  run_instead(worker, self, unsigned(next));
}

void yield_to_others(Worker* worker) {
  if (worker->run->stop) abandon(worker);
  emulator_position.patience = 0;
  int next = next_ready(worker);
  if (unsigned(next) == worker->current) sched_yield(); /* what it waits for can only come from another block */
  else run_instead(worker, worker->threads[worker->current].fiber, unsigned(next));
}

/* ---- barriers */

static void release_barrier(Worker* worker) {
  for (unsigned i = 0; i < (worker->block_threads + 63) / 64; ++i) worker->ready[i] |= worker->waiting[i];
  if (worker->launch->check) {
    if (worker->launch->check == CHECK_RACE) race_released(worker);
    for (unsigned i = 0; worker->memory && i < worker->warps; ++i) memory_flush(worker, i);
    worker->barrier_time = race_tick(worker);
  }
  memset(worker->waiting, 0, sizeof worker->waiting);
  worker->vote_result = worker->votes;
  worker->vote_was_unanimous = worker->votes == worker->arrived;
  worker->arrived = worker->votes = 0;
  worker->ended_since_barrier = false;
}

/* ---- collectives of a warp */

static void complete_slot(Worker* worker, unsigned warp_index, unsigned slot_index) {
  Warp& warp = worker->warp[warp_index];
  Slot slot = warp.slots[slot_index]; /* a copy: what lanes do next may need the place */
  if (slot_index != --warp.slot_count) warp.slots[slot_index] = warp.slots[warp.slot_count];
  if (slot.complete) slot.complete(slot.lanes, slot.arrived, slot.argument);
  if (worker->launch->check) race_collective(worker, warp_index, slot.arrived);
  if (worker->memory && slot.arrived == warp.live) memory_flush(worker, warp_index);
  for (uint32_t lanes = slot.arrived; lanes; lanes &= lanes - 1) {
    unsigned thread = warp_index * WARP + unsigned(__builtin_ctz(lanes));
    worker->threads[thread].where = 0;
    set_bit(worker->ready, thread);
  }
}

static void arrive(Worker* worker, unsigned mask, void* mine, EmulatorComplete* complete, unsigned long long argument, const void* place) {
  const unsigned self = worker->current, warp_index = self / WARP, lane = self % WARP;
  Warp& warp = worker->warp[warp_index];
  Thread& thread = worker->threads[self];
  if (!(mask >> lane & 1)) {
    char text[160];
    snprintf(text, sizeof text, "lane %u calls a warp function with the mask 0x%08x, which does not name it", lane, mask);
    Finding finding = finding_here(worker);
    finding.kind = FOREIGN_MASK;
    finding.place = uint64_t(place);
    finding.extra = mask;
    found(worker, finding);
    fail(worker, ERROR_STUCK, place, text);
    abandon(worker);
  }
  unsigned i = 0;
  while (i < warp.slot_count && (warp.slots[i].mask != mask || warp.slots[i].complete != complete || warp.slots[i].argument != argument)) ++i;
  Slot& slot = warp.slots[i];
  if (i == warp.slot_count) {
    ++warp.slot_count;
    slot.complete = complete;
    slot.argument = argument;
    slot.mask = mask;
    slot.arrived = 0;
    slot.place = place;
    memset(slot.lanes, 0, sizeof slot.lanes);
  } else if (slot.place != place && complete && worker->launch->check) { /* __syncwarp, which has nothing to complete, may be called at several places */
    Finding finding = finding_here(worker);
    finding.kind = WARP_SITES;
    finding.place = uint64_t(place);
    finding.other_place = uint64_t(slot.place);
    finding.other_thread = warp_index * WARP + unsigned(__builtin_ctz(slot.arrived));
    found(worker, finding);
  }
  slot.lanes[lane] = mine;
  slot.arrived |= 1u << lane;
  if (slot.arrived == (mask & warp.live)) {
    complete_slot(worker, warp_index, i);
    return;
  }
  thread.where = WAITS_COLLECTIVE;
  thread.place = place;
  thread.mask = mask;
  clear_bit(worker->ready, self);
  wait_here(worker);
}

/* ---- a thread ends; all wait */

static void end_thread(Worker* worker) {
  const unsigned self = worker->current, warp_index = self / WARP;
  Warp& warp = worker->warp[warp_index];
  worker->threads[self].where = ENDED;
  worker->threads[self].fiber = nullptr;
  clear_bit(worker->ready, self);
  warp.live &= ~(1u << (self % WARP));
  --worker->live;
  for (unsigned i = 0; i < warp.slot_count;) {
    if (warp.slots[i].arrived == (warp.slots[i].mask & warp.live)) complete_slot(worker, warp_index, i);
    else ++i;
  }
  if (!warp.live && worker->memory) memory_flush(worker, warp_index);
  worker->ended_since_barrier = true;
  worker->threads[self].end_time = worker->time;
  if (worker->live && worker->arrived == worker->live) release_barrier(worker);
}

/* Nobody can run. Lanes that asked who is with them get their answer; else the block waits for ever, which is an error. */
static void resolve_stuck(Worker* worker) {
  for (unsigned first = 0; first < worker->block_threads; ++first) {
    Thread& thread = worker->threads[first];
    if (thread.where != WAITS_CONVERGENCE) continue;
    const unsigned warp_start = first / WARP * WARP;
    unsigned together = 0;
    for (unsigned i = first; i < warp_start + WARP && i < worker->block_threads; ++i)
      if (worker->threads[i].where == WAITS_CONVERGENCE && worker->threads[i].line == thread.line) together |= 1u << (i - warp_start);
    for (unsigned i = first; i < warp_start + WARP && i < worker->block_threads; ++i)
      if (together >> (i - warp_start) & 1) {
        worker->threads[i].where = 0;
        worker->threads[i].mask = together;
        set_bit(worker->ready, i);
      }
    return;
  }
  unsigned barrier = 0, collective = 0, at_barrier = 0, in_collective = 0;
  for (unsigned i = 0; i < worker->block_threads; ++i) {
    if (worker->threads[i].where == WAITS_BARRIER && !barrier++) at_barrier = i;
    if (worker->threads[i].where == WAITS_COLLECTIVE && !collective++) in_collective = i;
  }
  char text[256];
  int length = snprintf(text, sizeof text, "%u of the %u threads that have not ended wait in a warp function", collective, worker->live);
  if (barrier) length += snprintf(text + length, sizeof text - size_t(length), ", %u at a barrier", barrier);
  snprintf(text + length, sizeof text - size_t(length), ": thread %u waits for lanes of the mask 0x%08x that never come", in_collective,
           worker->threads[in_collective].mask);
  Finding finding = finding_here(worker);
  finding.kind = BARRIER_STUCK;
  finding.place = uint64_t(worker->threads[in_collective].place);
  finding.other_place = barrier ? uint64_t(worker->threads[at_barrier].place) : 0;
  finding.thread = in_collective;
  finding.other_thread = at_barrier;
  finding.extra = worker->threads[in_collective].mask;
  found(worker, finding);
  worker->current = in_collective;
  fail(worker, ERROR_STUCK, worker->threads[in_collective].place, text);
  abandon(worker);
}

/* ---- blocks */

static bool begin_block(Worker* worker) {
  Run* run = worker->run;
  Launch* launch = worker->launch;
  const uint64_t block = __atomic_fetch_add(&run->next_block, 1, __ATOMIC_RELAXED);
  if (block >= run->blocks || run->stop) return false;
  worker->block = block;
  const unsigned threads = worker->block_threads;
  worker->live = threads;
  worker->arrived = worker->votes = 0;
  worker->ended_since_barrier = false;
  memset(worker->ready, 0, sizeof worker->ready);
  memset(worker->waiting, 0, sizeof worker->waiting);
  for (unsigned i = 0; i < threads / 64; ++i) worker->ready[i] = ~uint64_t(0);
  if (threads % 64) worker->ready[threads / 64] = (uint64_t(1) << (threads % 64)) - 1;
  for (unsigned i = 0; i < worker->warps; ++i) {
    const unsigned lanes = threads - i * WARP;
    worker->warp[i].live = lanes >= WARP ? ~0u : (1u << lanes) - 1;
    worker->warp[i].slot_count = 0;
  }
  for (unsigned i = 0; i < threads; ++i) {
    worker->threads[i].where = 0;
    worker->threads[i].fiber = nullptr;
  }
  emulator_position.block_index = {unsigned(block % launch->grid[0]), unsigned(block / launch->grid[0] % launch->grid[1]),
                                   unsigned(block / launch->grid[0] / launch->grid[1])};
  copies_block(worker);
  if (launch->check) race_block(worker);
  enter(worker, 0);
  return true;
}

/* What a fiber does: the current thread, then the next one, until the last block is done. */
static void fiber_main() {
  Worker* worker = current_worker;
  for (;;) {
    Thread& thread = worker->threads[worker->current];
    Fiber* self = thread.fiber;
    worker->launch->entry(worker->launch->arguments);
    end_thread(worker);
    if (worker->run->stop) abandon(worker);
    if (!worker->live) {
      if (!begin_block(worker)) abandon(worker);
      worker->threads[worker->current].fiber = self;
      continue;
    }
    int next;
    while ((next = next_ready(worker)) < 0) resolve_stuck(worker);
    enter(worker, unsigned(next));
    Thread& successor = worker->threads[next];
    if (!successor.fiber) {
      successor.fiber = self;
      continue;
    }
    self->next_free = worker->free_fibers;
    worker->free_fibers = self;
    switch_fiber(self, successor.fiber); /* whoever takes this fiber has made a fresh thread the current one */
  }
}

void run_blocks(Worker* worker) {
  if (!begin_block(worker)) return;
  worker->threads[worker->current].fiber = take_fiber(worker);
  switch_fiber(&worker->main, worker->threads[worker->current].fiber);
}

}  // namespace emulator

using namespace emulator;

/* ---- what kernels call */

#pragma GCC visibility push(default)
extern "C" {

int emulator_barrier(int vote, int predicate, int line) {
  Worker* worker = current_worker;
  const unsigned self = worker->current;
  worker->votes += predicate != 0;
  ++worker->arrived;
  set_bit(worker->waiting, self);
  worker->threads[self].where = WAITS_BARRIER;
  worker->threads[self].place = __builtin_return_address(0);
  worker->threads[self].line = line;
  if (worker->arrived == worker->live) {
    release_barrier(worker);
  } else {
    clear_bit(worker->ready, self);
    wait_here(worker);
  }
  worker->threads[self].where = 0;
  if (vote == 0) return 0;
  return vote == 1 ? int(worker->vote_result) : vote == 2 ? worker->vote_was_unanimous : worker->vote_result != 0;
}

void emulator_collective(unsigned mask, void* mine, EmulatorComplete* complete, unsigned long long argument) {
  arrive(current_worker, mask, mine, complete, argument, __builtin_return_address(0));
}

void emulator_collective_at(unsigned mask, void* mine, EmulatorComplete* complete, unsigned long long argument, const void* where) {
  arrive(current_worker, mask, mine, complete, argument, where ? where : __builtin_return_address(0));
}

unsigned emulator_active_mask(int line) {
  Worker* worker = current_worker;
  Thread& thread = worker->threads[worker->current];
  thread.where = WAITS_CONVERGENCE;
  thread.line = line;
  clear_bit(worker->ready, worker->current);
  wait_here(worker);
  return thread.mask;
}

void emulator_yield(void) { yield_to_others(current_worker); }

unsigned long long emulator_clock(void) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

void emulator_trap(const char* why) {
  Worker* worker = current_worker;
  fail(worker, ERROR_TRAP, __builtin_return_address(0), why);
  abandon(worker);
}
}
#pragma GCC visibility pop
