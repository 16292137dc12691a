/* Which accesses nothing orders, and what follows from barriers and from collectives of a warp for that.

   Worker::time counts synchronisations of the block. Two accesses of different threads are ordered if a barrier lies between them, or, in one warp, a
   collective in which both lanes took part (Warp::synchronised, Thread::known). Nothing orders two blocks of a launch. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

namespace emulator {

constexpr uint32_t LAST_TIME = ~uint32_t(0) - 1;

static bool ordered(const Worker* worker, uint32_t now, uint32_t before, uint32_t time) {
  if (now / WARP != before / WARP) return false;
  return time < worker->warp[now / WARP].synchronised || time < worker->threads[now].known[before % WARP];
}

static void report(Worker* worker, Kind kind, const Where& where, size_t size, int access, uint32_t place, uint32_t other_thread, int other_access,
                   uint32_t other_place,
                   uint64_t other_block) {
  const Launch* launch = worker->launch;
  Finding finding = finding_here(worker);
  finding.kind = kind;
  finding.memory = where.space == SPACE_GLOBAL ? worker->shadow.zones[where.memory].memory : where.memory;
  finding.offset = where.offset;
  finding.size = uint32_t(size);
  finding.access = uint32_t(access);
  finding.place = launch->image_low + place;
  finding.other_place = other_place ? launch->image_low + other_place : 0;
  finding.other_thread = other_thread;
  finding.other_access = uint32_t(other_access);
  finding.other_block = other_block;
  found(worker, finding);
}

/* Between threads of one block. A flag in memory may order them where the first made a fence after its access and the second an atomic operation before:
   that is not looked into. */
static void conflict(Worker* worker, const Where& where, size_t size, int access, uint32_t place, uint32_t other, int other_access,
                     uint32_t other_place, uint32_t other_time) {
  const bool flagged = other != ~0u && worker->threads[other].fence_time > other_time && worker->threads[worker->current].atomic_time >= worker->barrier_time;
  const Kind kind = flagged ? FENCED : where.space == SPACE_SHARED ? RACE_SHARED : RACE_GLOBAL;
  report(worker, kind, where, size, access, place, other, other_access, other_place, worker->block);
}

/* The block that this worker ran at a time; ~0: not known. */
static uint64_t block_at(const Worker* worker, uint32_t time) {
  uint32_t low = 0, high = worker->blocks_run; /* the last one that began at `time` or before */
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (worker->block_times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low ? worker->block_numbers[low - 1] : ~uint64_t(0);
}

/* With a thread of another block, which this worker ran before. */
static void conflict_of_blocks(Worker* worker, const Where& where, size_t size, int access, uint32_t place, uint32_t other, int other_access, uint32_t other_place,
                               uint32_t other_time) {
  const bool earlier = other_time < worker->block_time; /* else several blocks did it, and only the latest is remembered */
  report(worker, worker->fenced && worker->used_atomics ? FENCED : RACE_BLOCKS, where, size, access, place, earlier ? other : ~0u, other_access, other_place,
         earlier ? block_at(worker, other_time) : ~uint64_t(0));
}

static void remember_block(Worker* worker) {
  if (worker->blocks_run == worker->blocks_capacity) {
    const uint32_t capacity = worker->blocks_capacity ? 2 * worker->blocks_capacity : 64;
    uint32_t* times = static_cast<uint32_t*>(realloc(worker->block_times, capacity * sizeof(uint32_t)));
    if (times) worker->block_times = times;
    uint64_t* numbers = static_cast<uint64_t*>(realloc(worker->block_numbers, capacity * sizeof(uint64_t)));
    if (numbers) worker->block_numbers = numbers;
    if (!times || !numbers) return;
    worker->blocks_capacity = capacity;
  }
  worker->block_times[worker->blocks_run] = worker->time;
  worker->block_numbers[worker->blocks_run++] = worker->block;
}

/* Whether the latest plain write is one that `self` may meet. */
static inline bool unordered_write(const Worker* worker, const Cell& cell, uint32_t self) {
  return cell.write_time >= worker->barrier_time && cell.writer != self && !ordered(worker, self, cell.writer, cell.write_time);
}

/* A thread and a place in one word; a place beyond 4 MB of code is not known afterwards. */
static inline uint32_t pack(uint32_t thread, uint32_t place) { return thread | (place >> 22 ? 0 : place << 10); }

/* One of the accessors that `self` may meet, and its place; -1: none. */
static inline int unordered_accessor(const Worker* worker, const Accessors& accessors, uint32_t self, uint32_t* place) {
  if (accessors.time < worker->barrier_time) return -1;
  *place = accessors.place;
  if (accessors.thread / WARP != self / WARP) return accessors.thread;
  if (accessors.flags & BY_WARPS) {
    *place = accessors.lanes >> 10;
    return int(accessors.lanes & (MAX_THREADS - 1));
  }
  if (accessors.time < worker->warp[self / WARP].synchronised) return -1;
  for (uint32_t others = accessors.lanes & ~(1u << (self % WARP)); others; others &= others - 1) {
    const uint32_t other = self / WARP * WARP + uint32_t(__builtin_ctz(others));
    if (!ordered(worker, self, other, accessors.time)) return int(other);
  }
  return -1;
}

static inline void remember(const Worker* worker, Accessors& accessors, uint32_t self, uint32_t place) {
  const uint32_t bit = 1u << (self % WARP);
  if (accessors.time < worker->barrier_time) {
    if (accessors.time && accessors.time < worker->block_time) accessors.flags |= BY_BLOCKS;
    accessors.flags &= uint16_t(~BY_WARPS);
    accessors.lanes = bit;
  } else if (accessors.flags & BY_WARPS) {
    if (accessors.thread / WARP != self / WARP) accessors.lanes = pack(accessors.thread, accessors.place);
  } else if (accessors.thread / WARP != self / WARP) {
    accessors.flags |= BY_WARPS;
    accessors.lanes = pack(accessors.thread, accessors.place);
  } else {
    accessors.lanes = accessors.time < worker->warp[self / WARP].synchronised ? bit : accessors.lanes | bit;
  }
  accessors.thread = uint16_t(self);
  accessors.time = worker->time;
  accessors.place = place;
}

static inline bool of_another_block(const Worker* worker, const Accessors& accessors) {
  return accessors.time && (accessors.time < worker->block_time || accessors.flags & BY_BLOCKS);
}

/* The access of one granule against what is remembered of it; true: nothing is wrong. Only the first conflict is reported. */
static inline bool judge(Worker* worker, const Cell& cell, const Where& where, size_t size, int kind, uint32_t place, uint32_t self) {
  const bool shared = where.space == SPACE_SHARED;
  const bool meets_reads = kind != 0, meets_atomics = kind != 2;
  bool clean = true;
  if (shared && kind != 1 && cell.write_time < worker->block_time && cell.atomics.time < worker->block_time) { /* an atomic operation reads too */
    report(worker, UNINITIALISED, where, size, kind, place, 0, 0, 0, worker->block);
    clean = false;
  }
  if (!shared) {
    if (cell.write_time && cell.write_time < worker->block_time) {
      conflict_of_blocks(worker, where, size, kind, place, cell.writer, 1, cell.write_place, cell.write_time);
      return false;
    }
    if (meets_atomics && of_another_block(worker, cell.atomics)) {
      conflict_of_blocks(worker, where, size, kind, place, cell.atomics.thread, 2, cell.atomics.place, cell.atomics.time);
      return false;
    }
    if (meets_reads && of_another_block(worker, cell.reads)) {
      conflict_of_blocks(worker, where, size, kind, place, cell.reads.thread, 0, cell.reads.place, cell.reads.time);
      return false;
    }
  }
  if (unordered_write(worker, cell, self)) {
    conflict(worker, where, size, kind, place, cell.writer, 1, cell.write_place, cell.write_time);
    return false;
  }
  int other;
  uint32_t other_place;
  if (meets_atomics && (other = unordered_accessor(worker, cell.atomics, self, &other_place)) >= 0) {
    conflict(worker, where, size, kind, place, uint32_t(other), 2, other_place, cell.atomics.time);
    return false;
  }
  if (meets_reads && (other = unordered_accessor(worker, cell.reads, self, &other_place)) >= 0) {
    conflict(worker, where, size, kind, place, uint32_t(other), 0, other_place, cell.reads.time);
    return false;
  }
  return clean;
}

static inline void record(const Worker* worker, Cell& cell, int kind, uint32_t place, uint32_t self) {
  if (kind == 0) {
    remember(worker, cell.reads, self, place);
    cell.flags |= EVER_READ;
  } else if (kind == 2) {
    remember(worker, cell.atomics, self, place);
    cell.flags |= EVER_ATOMIC;
  } else {
    cell.reads.time = cell.atomics.time = 0; /* who is ordered after this write is ordered after those too, or it was reported */
    cell.write_time = worker->time;
    cell.write_place = place;
    cell.writer = uint16_t(self);
    cell.flags |= EVER_WRITTEN;
  }
}

void race_access(Worker* worker, const Where& where, size_t size, int kind, uint32_t place) {
  const uint32_t self = worker->current;
  Cell* cell = (where.space == SPACE_SHARED ? worker->shadow.shared : worker->shadow.zones[where.memory].cells) + where.cell;
  const uint64_t first_byte = where.offset & ((uint64_t(1) << worker->launch->granule_shift) - 1);
  const Cell* end = cell + ((first_byte + size - 1) >> worker->launch->granule_shift) + 1;
  bool clean = true; /* one report for an access is enough */
  for (; cell != end; ++cell) {
    clean = clean && judge(worker, *cell, where, size, kind, place, self);
    record(worker, *cell, kind, place, self);
  }
}

void race_forget(Worker* worker, uintptr_t address, size_t size, uintptr_t place) {
  Where where;
  where.space = SPACE_LOCAL;
  if (!shadow_find(worker, address, size, 1, place, &where) || where.space != SPACE_SHARED) return;
  Cell* cell = worker->shadow.shared + where.cell;
  const unsigned shift = worker->launch->granule_shift;
  for (size_t i = 0; i < (size + (size_t(1) << shift) - 1) >> shift; ++i) cell[i].write_time = cell[i].atomics.time = 0;
}

/* ---- what orders */

/* The time of the next synchronisation. */
uint32_t race_tick(Worker* worker) {
  if (++worker->time < LAST_TIME) return worker->time;
  fail(worker, ERROR_RESOURCES, nullptr, "more than four thousand million synchronisations in one launch are too many for a check: launch fewer blocks");
  abandon(worker);
}

void race_block(Worker* worker) {
  worker->block_time = worker->barrier_time = race_tick(worker);
  if (worker->launch->check == CHECK_RACE) remember_block(worker);
  for (unsigned i = 0; i < worker->warps; ++i) worker->warp[i].synchronised = worker->time;
  for (unsigned i = 0; i < worker->block_threads; ++i) {
    Thread& thread = worker->threads[i];
    memset(thread.known, 0, sizeof thread.known);
    memset(thread.visited, 0, sizeof thread.visited);
    thread.last_place = thread.fence_time = thread.atomic_time = thread.end_time = 0;
  }
}

void race_collective(Worker* worker, uint32_t warp_index, uint32_t arrived) {
  Warp& warp = worker->warp[warp_index];
  const uint32_t time = race_tick(worker);
  if (arrived == warp.live) {
    warp.synchronised = time;
    return;
  }
  Thread* lanes = worker->threads + warp_index * WARP;
  uint32_t known[WARP] = {}; /* what any of them knows, all of them know now */
  for (uint32_t rest = arrived; rest; rest &= rest - 1) {
    const Thread& lane = lanes[__builtin_ctz(rest)];
    for (unsigned i = 0; i < WARP; ++i) known[i] = lane.known[i] > known[i] ? lane.known[i] : known[i];
  }
  for (uint32_t rest = arrived; rest; rest &= rest - 1) known[__builtin_ctz(rest)] = time;
  for (uint32_t rest = arrived; rest; rest &= rest - 1) memcpy(lanes[__builtin_ctz(rest)].known, known, sizeof known);
}

/* A barrier lets its threads go: were they all at the same one, and did those that ended leave before it, or go around it? */
void race_released(Worker* worker) {
  const Thread* first = nullptr;
  uint64_t visited[4] = {};
  for (unsigned i = 0; i < worker->block_threads; ++i) {
    Thread& thread = worker->threads[i];
    if (!(worker->waiting[i / 64] >> (i % 64) & 1)) continue;
    if (!first) first = &thread;
    if (thread.line != first->line) {
      Finding finding = finding_here(worker);
      finding.kind = BARRIER_SITES;
      finding.place = uint64_t(first->line); /* lines and not addresses here: the compiler may have made one call of two */
      finding.other_place = uint64_t(thread.line);
      finding.thread = uint32_t(first - worker->threads);
      finding.other_thread = i;
      found(worker, finding);
    }
    for (unsigned word = 0; word < 4; ++word) visited[word] |= thread.visited[word];
    memset(thread.visited, 0, sizeof thread.visited);
  }
  for (unsigned i = 0; worker->ended_since_barrier && i < worker->block_threads; ++i) {
    const Thread& thread = worker->threads[i];
    if (thread.where != ENDED || thread.end_time < worker->barrier_time || !thread.last_place) continue;
    if (visited[thread.last_place / 4 % 256 / 64] >> (thread.last_place / 4 % 64) & 1) continue;
    Finding finding = finding_here(worker);
    finding.kind = BARRIER_EXITED;
    finding.place = uint64_t(first->place);
    finding.other_place = worker->launch->image_low + thread.last_place;
    finding.thread = uint32_t(first - worker->threads);
    finding.other_thread = i;
    found(worker, finding);
  }
  for (unsigned i = 0; i < worker->block_threads; ++i)
    if (worker->threads[i].where != ENDED) worker->threads[i].last_place = 0;
}

/* ---- blocks that different workers ran */

/* That some block of a worker read (0), wrote (1) or atomically changed (2) a granule, and where. */
struct Deed {
  uint32_t access, place, thread;
  uint64_t block;
};

static int deeds_of(const Worker* worker, const Cell& cell, Deed* deeds) {
  int count = 0;
  if (cell.flags & EVER_WRITTEN) deeds[count++] = Deed{1, cell.write_place, cell.writer, block_at(worker, cell.write_time)};
  const Accessors &reads = cell.reads, &atomics = cell.atomics;
  if (cell.flags & EVER_ATOMIC) deeds[count++] = Deed{2, atomics.place, atomics.thread, atomics.time ? block_at(worker, atomics.time) : ~uint64_t(0)};
  if (cell.flags & EVER_READ) deeds[count++] = Deed{0, reads.place, reads.thread, reads.time ? block_at(worker, reads.time) : ~uint64_t(0)};
  return count;
}

/* Two deeds of different workers that conflict, if there are such. */
static bool find_conflict(Run* run, uint32_t zone, uint64_t cell, Deed* first, Deed* second) {
  Deed before[3], now[3];
  for (uint32_t i = 1; i < run->launch->workers; ++i) {
    const Worker& worker = run->workers[i];
    if (!worker.shadow.zones || !worker.shadow.zones[zone].cells || !worker.shadow.zones[zone].cells[cell].flags) continue;
    const int count = deeds_of(&worker, worker.shadow.zones[zone].cells[cell], now);
    for (uint32_t j = 0; j < i; ++j) {
      const Worker& other = run->workers[j];
      if (!other.shadow.zones || !other.shadow.zones[zone].cells) continue;
      const int others = deeds_of(&other, other.shadow.zones[zone].cells[cell], before);
      for (int a = 0; a < others; ++a)
        for (int b = 0; b < count; ++b) {
          if (before[a].access == now[b].access && now[b].access != 1) continue; /* both read, or both are atomic */
          *first = before[a];
          *second = now[b];
          return true;
        }
    }
  }
  return false;
}

void race_between_workers(Run* run) {
  Launch* launch = run->launch;
  Worker* worker = &run->workers[0];
  bool flagged = false;
  for (uint32_t i = 0; i < launch->workers; ++i) flagged = flagged || (run->workers[i].fenced && run->workers[i].used_atomics);
  for (uint32_t z = 0; z < worker->shadow.zone_count; ++z) {
    const Zone& zone = worker->shadow.zones[z];
    if (zone.ignored) continue;
    const uint64_t cells = (zone.high - zone.low + (uint64_t(1) << launch->granule_shift) - 1) >> launch->granule_shift;
    for (uint64_t c = 0; c < cells; ++c) {
      Deed first, second;
      if (!find_conflict(run, z, c, &first, &second)) continue;
      Finding finding = finding_here(worker);
      finding.kind = flagged ? FENCED : RACE_BLOCKS;
      finding.memory = zone.memory;
      finding.offset = c << launch->granule_shift;
      finding.size = 1u << launch->granule_shift;
      finding.access = second.access;
      finding.place = second.place ? launch->image_low + second.place : 0;
      finding.thread = second.thread;
      finding.block = second.block;
      finding.other_access = first.access;
      finding.other_place = first.place ? launch->image_low + first.place : 0;
      finding.other_thread = first.thread;
      finding.other_block = first.block;
      found(worker, finding);
    }
  }
}

}  // namespace emulator
