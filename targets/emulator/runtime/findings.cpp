/* Collects what the checks find: one record for each kind, pair of places and memory, with the first block and thread that showed it, and a count. */
#include "runtime.h"

namespace emulator {

static bool same(const Finding& a, const Finding& b) {
  return a.place == b.place && a.other_place == b.other_place && a.kind == b.kind && a.memory == b.memory;
}

static bool earlier(const Finding& a, const Finding& b) { return a.block != b.block ? a.block < b.block : a.thread < b.thread; }

Finding finding_here(const Worker* worker) {
  Finding finding = {};
  finding.memory = ~0u;
  finding.thread = worker->current;
  finding.block = finding.other_block = worker->block;
  finding.count = 1;
  return finding;
}

void found(Worker* worker, Finding finding) {
  Launch* launch = worker->launch;
  const uint32_t known = __atomic_load_n(&launch->finding_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < known; ++i) {
    Finding& old = launch->findings[i];
    if (!same(old, finding)) continue;
    __atomic_fetch_add(&old.count, 1, __ATOMIC_RELAXED);
    if (!earlier(finding, old)) return;
    pthread_mutex_lock(&worker->run->mutex); /* workers are at different blocks; the report shall not depend on which was faster */
    if (earlier(finding, old)) {
      finding.count = old.count;
      old = finding;
    }
    pthread_mutex_unlock(&worker->run->mutex);
    return;
  }
  pthread_mutex_lock(&worker->run->mutex);
  for (uint32_t i = known; i < launch->finding_count; ++i) {
    if (!same(launch->findings[i], finding)) continue;
    launch->findings[i].count += 1;
    pthread_mutex_unlock(&worker->run->mutex);
    return;
  }
  if (launch->finding_count < launch->finding_capacity) {
    launch->findings[launch->finding_count] = finding;
    __atomic_store_n(&launch->finding_count, launch->finding_count + 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&worker->run->mutex);
}

}  // namespace emulator
