/* Which array an address belongs to, and whether an access stays inside of it.

   Shared arrays are thread-local variables of the kernel's library, with 4096 bytes of nobody's between them (library.py puts them there); dynamic
   shared memory, and the copies of array arguments, lie between zones of the runtime. An access that misses its array by less than such a zone is
   reported and does no harm. One that hits no zone either could hit anything of the process: it is reported, and the launch ends before it happens. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace emulator {

static Cell* map_cells(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Cell*>(memory);
}

static size_t granules(const Launch* launch, uint64_t bytes) { return (bytes >> launch->granule_shift) + 2; }

bool shadow_begin(Worker* worker) {
  Launch* launch = worker->launch;
  Shadow& shadow = worker->shadow;
  shadow.tls_low = uintptr_t(launch->tls_anchor()) - launch->tls_anchor_offset;
  shadow.tls_bytes = launch->tls_bytes;
  const size_t tls_granules = granules(launch, shadow.tls_bytes);
  shadow.dynamic_low_cell = tls_granules;
  shadow.shared_bytes = (tls_granules + granules(launch, launch->dynamic_bytes)) * sizeof(Cell);
  shadow.shared = map_cells(shadow.shared_bytes / sizeof(Cell));
  shadow.owner = static_cast<uint16_t*>(calloc(tls_granules, sizeof(uint16_t)));
  shadow.zones = static_cast<Zone*>(calloc(launch->memory_count + 1, sizeof(Zone)));
  if (!shadow.shared || !shadow.owner || !shadow.zones) return false;
  shadow.dynamic_memory = ~0u;
  for (uint32_t i = 0; i < launch->memory_count; ++i) {
    const Memory& memory = launch->memories[i];
    const bool in_tls = memory.kind == MEMORY_SHARED || (memory.kind == MEMORY_IGNORED && memory.address < launch->tls_bytes);
    if (in_tls) {
      const uint16_t owner = memory.kind == MEMORY_SHARED ? uint16_t(i + 1) : IGNORED_OWNER;
      const uint32_t shift = launch->granule_shift;
      for (uint64_t granule = memory.address >> shift; granule << shift < memory.address + memory.size; ++granule) shadow.owner[granule] = owner;
    } else if (memory.kind == MEMORY_DYNAMIC) {
      shadow.dynamic_memory = i;
    } else {
      Zone& zone = shadow.zones[shadow.zone_count++];
      zone.low = memory.address;
      zone.high = memory.address + memory.size;
      zone.zone_low = memory.zone_low;
      zone.zone_high = memory.zone_high;
      zone.memory = i;
      zone.read_only = memory.read_only;
      zone.ignored = memory.kind == MEMORY_IGNORED;
      if (launch->check == CHECK_RACE && !zone.ignored && !(zone.cells = map_cells(granules(launch, memory.size)))) return false;
    }
  }
  return true;
}

void shadow_free(Worker* worker) {
  Shadow& shadow = worker->shadow;
  for (uint32_t i = 0; i < shadow.zone_count; ++i)
    if (shadow.zones[i].cells) munmap(shadow.zones[i].cells, granules(worker->launch, shadow.zones[i].high - shadow.zones[i].low) * sizeof(Cell));
  if (shadow.shared) munmap(shadow.shared, shadow.shared_bytes);
  free(shadow.owner);
  free(shadow.zones);
}

static void report(Worker* worker, Kind kind, uint32_t memory, uint64_t offset, size_t size, int access, uintptr_t place) {
  Finding finding = finding_here(worker);
  finding.kind = kind;
  finding.memory = memory;
  finding.offset = offset;
  finding.size = uint32_t(size);
  finding.access = uint32_t(access);
  finding.place = place;
  found(worker, finding);
}

/* The shared array nearest to an address that belongs to none. */
static uint32_t nearest_shared(const Worker* worker, uint64_t offset) {
  const Launch* launch = worker->launch;
  uint32_t best = ~0u;
  uint64_t distance = ~uint64_t(0);
  for (uint32_t i = 0; i < launch->memory_count; ++i) {
    const Memory& memory = launch->memories[i];
    if (memory.kind != MEMORY_SHARED) continue;
    const uint64_t away = offset < memory.address ? memory.address - offset : offset - (memory.address + memory.size) + 1;
    if (away < distance) distance = away, best = i;
  }
  return best;
}

static bool find_shared(Worker* worker, uint64_t offset, size_t size, int kind, uintptr_t place, Where* where) {
  Launch* launch = worker->launch;
  const Shadow& shadow = worker->shadow;
  const uint32_t first = uint32_t(offset >> launch->granule_shift), last = uint32_t((offset + size - 1) >> launch->granule_shift);
  const uint16_t owner = shadow.owner[first];
  if (owner == IGNORED_OWNER) return false;
  if (owner == 0 || shadow.owner[last] != owner) {
    const uint32_t memory = owner ? owner - 1u : nearest_shared(worker, offset);
    if (memory == ~0u) return false; /* no shared array at all: a variable of the library's own */
    report(worker, OUT_OF_BOUNDS, memory, offset - launch->memories[memory].address, size, kind, place);
    return false;
  }
  where->space = SPACE_SHARED;
  where->memory = owner - 1u;
  where->cell = first;
  where->offset = offset - launch->memories[where->memory].address;
  return true;
}

static bool find_global(Worker* worker, uintptr_t address, size_t size, int kind, uintptr_t place, Where* where) {
  Shadow& shadow = worker->shadow;
  const Zone* zone = &shadow.zones[shadow.latest_zone];
  if (!(address >= zone->low && address + size <= zone->high)) {
    uint32_t i = 0;
    while (i < shadow.zone_count && !(address >= shadow.zones[i].zone_low && address < shadow.zones[i].zone_high)) ++i;
    if (i == shadow.zone_count) {
      where->space = SPACE_OUTSIDE;
      return false;
    }
    zone = &shadow.zones[i];
    shadow.latest_zone = i;
    if (zone->ignored) return false;
    if (!(address >= zone->low && address + size <= zone->high)) {
      report(worker, OUT_OF_BOUNDS, zone->memory, address - zone->low, size, kind, place);
      return false;
    }
  }
  if (zone->ignored) return false;
  if (zone->read_only && kind != 0) {
    report(worker, READ_ONLY, zone->memory, address - zone->low, size, kind, place);
    if (worker->launch->memories[zone->memory].kind == MEMORY_CONSTANT) { /* no copy, but what other launches read */
      fail(worker, ERROR_WILD, reinterpret_cast<const void*>(place), "a write to constant memory");
      abandon(worker);
    }
  }
  where->space = SPACE_GLOBAL;
  where->memory = shadow.latest_zone;
  where->offset = address - zone->low;
  where->cell = uint32_t(where->offset >> worker->launch->granule_shift);
  return true;
}

bool shadow_find(Worker* worker, uintptr_t address, size_t size, int kind, uintptr_t place, Where* where) {
  Launch* launch = worker->launch;
  const Shadow& shadow = worker->shadow;
  if (worker->run->stop) abandon(worker);
  if (address - shadow.tls_low < shadow.tls_bytes) return find_shared(worker, address - shadow.tls_low, size, kind, place, where);
  if (address - worker->stacks_low < worker->stacks_bytes) {
    launch->touched_locals = 1;
    return false;
  }
  const uintptr_t dynamic = uintptr_t(worker->dynamic);
  if (address - dynamic < launch->dynamic_bytes + 2 * DYNAMIC_ZONE) {
    const uint64_t offset = address - dynamic - DYNAMIC_ZONE; /* wraps in the zone before */
    if (offset < launch->dynamic_bytes && offset + size <= launch->dynamic_bytes) {
      where->space = SPACE_SHARED;
      where->memory = shadow.dynamic_memory;
      where->offset = offset;
      where->cell = uint32_t(shadow.dynamic_low_cell + (offset >> launch->granule_shift));
      return true;
    }
    report(worker, OUT_OF_BOUNDS, shadow.dynamic_memory, offset, size, kind, place);
    return false;
  }
  if (find_global(worker, address, size, kind, place, where)) return true;
  if (where->space != SPACE_OUTSIDE) return false;
  if (kind == 0 && address >= launch->image_low && address + size <= launch->image_high) return false; /* a table of constants */
  report(worker, WILD, ~0u, address, size, kind, place);
  fail(worker, ERROR_WILD, reinterpret_cast<const void*>(place), "an address that belongs to no array of the kernel");
  abandon(worker);
}

}  // namespace emulator
