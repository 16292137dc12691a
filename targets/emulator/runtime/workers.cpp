/* A launch: its workers are started, waited for, and what they made is collected. */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

namespace emulator {

static void initialise_threads(Worker* worker) {
  const uint32_t* block = worker->launch->block;
  uint3 index = {0, 0, 0};
  for (unsigned i = 0; i < worker->block_threads; ++i) {
    worker->threads[i].index = index;
    if (++index.x == block[0]) {
      index.x = 0;
      if (++index.y == block[1]) index.y = 0, ++index.z;
    }
  }
}

static char* map(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

static bool prepare_worker(Worker* worker) {
  Launch* launch = worker->launch;
  const unsigned threads = worker->block_threads;
  worker->threads = static_cast<Thread*>(calloc(threads, sizeof(Thread)));
  worker->warp = static_cast<Warp*>(calloc(worker->warps, sizeof(Warp)));
  worker->fibers = static_cast<Fiber*>(calloc(threads, sizeof(Fiber)));
  worker->dynamic = map((launch->dynamic_bytes + 2 * DYNAMIC_ZONE + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
  worker->stacks = stacks_take(threads);
  if (!worker->threads || !worker->warp || !worker->fibers || !worker->dynamic || !worker->stacks) return false;
  worker->stacks_low = uintptr_t(worker->stacks->low);
  worker->stacks_bytes = worker->stacks->count * STACK_BYTES;
  initialise_threads(worker);
  if (launch->check == CHECK_NONE) return true;
  return shadow_begin(worker) && (launch->check != CHECK_MEMORY || memory_begin(worker));
}

static void free_worker(Worker* worker) {
  const Launch* launch = worker->launch;
  free(worker->threads);
  free(worker->warp);
  free(worker->fibers);
  free(worker->block_times);
  free(worker->block_numbers);
  if (worker->dynamic) munmap(worker->dynamic, (launch->dynamic_bytes + 2 * DYNAMIC_ZONE + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
  stacks_give_back(worker->stacks);
  copies_free(worker);
  shadow_free(worker);
  memory_free(worker);
}

static void* worker_main(void* argument) {
  Worker* worker = static_cast<Worker*>(argument);
  Launch* launch = worker->launch;
  current_worker = worker;
  emulator_position = {};
  emulator_position.block_dim = {launch->block[0], launch->block[1], launch->block[2]};
  emulator_position.grid_dim = {launch->grid[0], launch->grid[1], launch->grid[2]};
  if (!prepare_worker(worker)) {
    fail(worker, ERROR_RESOURCES, nullptr, "not enough memory for the stacks of a block's threads, or for what is remembered of the memory they touch");
  } else {
    emulator_position.dynamic_shared = worker->dynamic + DYNAMIC_ZONE;
    faults_thread_begin(worker);
    if (sigsetjmp(worker->rescue, 1) == 0) run_blocks(worker);
    faults_thread_end(worker);
  }
  current_worker = nullptr;
  Run* run = worker->run;
  pthread_mutex_lock(&run->mutex);
  worker->done = true;
  if (--run->running == 0) pthread_cond_signal(&run->finished);
  pthread_mutex_unlock(&run->mutex);
  return nullptr;
}

}  // namespace emulator

using namespace emulator;

/* ---- what Python calls */
#pragma GCC visibility push(default)
extern "C" {

Run* emulator_start(Launch* launch) {
  Run* run = static_cast<Run*>(calloc(1, sizeof(Run)));
  if (!run) return nullptr;
  run->launch = launch;
  run->blocks = uint64_t(launch->grid[0]) * launch->grid[1] * launch->grid[2];
  run->workers = static_cast<Worker*>(calloc(launch->workers, sizeof(Worker)));
  if (!run->workers) {
    free(run);
    return nullptr;
  }
  pthread_mutex_init(&run->mutex, nullptr);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&run->finished, &monotonic);
  pthread_condattr_destroy(&monotonic);
  faults_begin();
  pthread_mutex_lock(&run->mutex);
  for (unsigned i = 0; i < launch->workers; ++i) {
    Worker* worker = &run->workers[i];
    worker->run = run;
    worker->launch = launch;
    worker->block_threads = launch->block[0] * launch->block[1] * launch->block[2];
    worker->warps = (worker->block_threads + WARP - 1) / WARP;
    if (pthread_create(&worker->thread, nullptr, worker_main, worker) != 0) {
      launch->workers = i; /* fewer do the same work */
      break;
    }
    ++run->running;
  }
  if (!run->running) {
    launch->error_kind = ERROR_RESOURCES;
    snprintf(launch->error_text, sizeof launch->error_text, "no thread could be started");
  }
  pthread_mutex_unlock(&run->mutex);
  return run;
}

int emulator_wait(Run* run, double seconds) {
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  const long nanoseconds = until.tv_nsec + long((seconds - double(long(seconds))) * 1e9);
  until.tv_sec += long(seconds) + nanoseconds / 1000000000;
  until.tv_nsec = nanoseconds % 1000000000;
  pthread_mutex_lock(&run->mutex);
  while (run->running && pthread_cond_timedwait(&run->finished, &run->mutex, &until) == 0) {
  }
  const int done = run->running == 0;
  pthread_mutex_unlock(&run->mutex);
  return done;
}

void emulator_stop(Run* run) {
  pthread_mutex_lock(&run->mutex);
  if (run->launch->error_kind == ERROR_NONE) run->launch->error_kind = ERROR_TIMEOUT;
  run->stop = 1;
  faults_interrupt(run);
  pthread_mutex_unlock(&run->mutex);
}

/* After emulator_wait said that all is done. */
void emulator_finish(Run* run) {
  for (unsigned i = 0; i < run->launch->workers; ++i) pthread_join(run->workers[i].thread, nullptr);
  faults_end();
  if (run->launch->check == CHECK_RACE) race_between_workers(run);
  if (run->launch->check == CHECK_MEMORY) memory_end(run);
  for (unsigned i = 0; i < run->launch->workers; ++i) free_worker(&run->workers[i]);
  pthread_mutex_destroy(&run->mutex);
  pthread_cond_destroy(&run->finished);
  free(run->workers);
  free(run);
}

unsigned long emulator_launch_bytes(void) { return sizeof(Launch); }
}
#pragma GCC visibility pop
