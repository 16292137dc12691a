/* What the accesses of a warp cost: 32-byte sectors of global memory, passes through the banks of shared memory, places read in constant memory.

   The lanes of a warp run one after the other here, so an access of the warp is put together afterwards: the n-th time that each lane comes to a place
   since the last synchronisation of the warp. A lane that is far ahead waits for the others, so that little has to be kept. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace emulator {

constexpr uint32_t SLOTS = 8192, FAR_AHEAD = 4096, SECTOR_BYTES = 32, BANKS = 32, BANK_BYTES = 4, ROW_BYTES = BANKS * BANK_BYTES;

struct Access { /* of a warp */
  uint32_t arrived;
  uint32_t offsets[WARP];
};

struct Pending { /* of one warp and place */
  uint32_t base, count, capacity; /* accesses[0] is the base-th */
  Access* accesses;
  uint32_t times[WARP]; /* how often each lane was here */
};

struct MemoryState {
  uint32_t count;        /* of `traffic` */
  uint32_t slots[SLOTS]; /* hash of place and memory -> index in `traffic` + 1 */
  Traffic* traffic;
  MemoryKind* kinds;
  Pending* pending;      /* one for each traffic and warp */
  size_t pending_bytes;
};

bool memory_begin(Worker* worker) {
  MemoryState* state = worker->memory = static_cast<MemoryState*>(calloc(1, sizeof(MemoryState)));
  if (!state) return false;
  const uint32_t capacity = worker->launch->traffic_capacity;
  state->traffic = static_cast<Traffic*>(calloc(capacity, sizeof(Traffic)));
  state->kinds = static_cast<MemoryKind*>(calloc(capacity, sizeof(MemoryKind)));
  state->pending_bytes = size_t(capacity) * worker->warps * sizeof(Pending); /* most of it is never touched */
  void* pending = mmap(nullptr, state->pending_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pending != MAP_FAILED) state->pending = static_cast<Pending*>(pending);
  return state->traffic && state->kinds && state->pending;
}

void memory_free(Worker* worker) {
  MemoryState* state = worker->memory;
  if (!state) return;
  for (uint32_t i = 0; state->pending && i < state->count * worker->warps; ++i) free(state->pending[i].accesses);
  if (state->pending) munmap(state->pending, state->pending_bytes);
  free(state->traffic);
  free(state->kinds);
  free(state);
}

/* Sectors that the lanes touch, and the fewest that hold as many bytes. */
static void count_sectors(Traffic& traffic, const Access& access) {
  uint64_t keys[256];
  uint32_t masks[256], used = 0;
  uint8_t table[256] = {};
  for (uint32_t lanes = access.arrived; lanes; lanes &= lanes - 1) {
    uint64_t low = access.offsets[__builtin_ctz(lanes)];
    const uint64_t end = low + traffic.size;
    while (low < end && used < 255) {
      const uint64_t sector = low / SECTOR_BYTES, sector_end = (sector + 1) * SECTOR_BYTES;
      const uint64_t bytes = (end < sector_end ? end : sector_end) - low;
      uint32_t slot = uint32_t(sector * 0x9e3779b1u >> 8) & 255;
      while (table[slot] && keys[table[slot] - 1] != sector) slot = (slot + 1) & 255;
      if (!table[slot]) {
        keys[used] = sector;
        masks[used] = 0;
        table[slot] = uint8_t(++used);
      }
      masks[table[slot] - 1] |= uint32_t(((uint64_t(1) << bytes) - 1) << (low % SECTOR_BYTES));
      low += bytes;
    }
  }
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < used; ++i) bytes += uint32_t(__builtin_popcount(masks[i]));
  traffic.moved += used;
  traffic.ideal += (bytes + SECTOR_BYTES - 1) / SECTOR_BYTES;
}

/* Passes through the banks: a pass gives one word of each bank; lanes that want the same word share it. 128 bytes at a time are looked at: all lanes of 4
   bytes, half a warp of 8, a quarter of 16. */
static void count_passes(Traffic& traffic, const Access& access) {
  const uint32_t group = traffic.size <= BANK_BYTES ? WARP : traffic.size < ROW_BYTES ? ROW_BYTES / traffic.size : 1;
  for (uint32_t first = 0; first < WARP; first += group) {
    uint32_t words[BANKS][WARP];
    uint8_t counts[BANKS] = {};
    uint32_t ways = 0;
    for (uint32_t lane = first; lane < first + group; ++lane) {
      if (!(access.arrived >> lane & 1)) continue;
      const uint32_t last = (access.offsets[lane] + traffic.size - 1) / BANK_BYTES;
      for (uint32_t word = access.offsets[lane] / BANK_BYTES; word <= last; ++word) {
        const uint32_t bank = word % BANKS;
        uint32_t i = 0;
        while (i < counts[bank] && words[bank][i] != word) ++i;
        if (i == counts[bank] && i < WARP) words[bank][counts[bank]++] = word;
        if (counts[bank] > ways) ways = counts[bank];
      }
    }
    traffic.moved += ways;
    traffic.ideal += ways != 0;
    if (ways > traffic.ways) traffic.ways = ways;
  }
}

/* A pass through constant memory serves the lanes that read one place. */
static void count_places(Traffic& traffic, const Access& access) {
  uint32_t ways = 0;
  for (uint32_t lanes = access.arrived; lanes; ++ways) {
    const uint32_t first = access.offsets[__builtin_ctz(lanes)];
    for (uint32_t others = lanes; others; others &= others - 1)
      if (access.offsets[__builtin_ctz(others)] == first) lanes &= ~(others & -others);
  }
  traffic.moved += ways;
  ++traffic.ideal;
  if (ways > traffic.ways) traffic.ways = ways;
}

static void finish(MemoryState* state, uint32_t index, const Access& access) {
  if (!access.arrived) return;
  Traffic& traffic = state->traffic[index];
  ++traffic.warps;
  switch (state->kinds[index]) {
    case MEMORY_SHARED: count_passes(traffic, access); break;
    case MEMORY_CONSTANT: count_places(traffic, access); break;
    default: count_sectors(traffic, access);
  }
}

static void drop_front(MemoryState* state, uint32_t index, Pending& pending, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) finish(state, index, pending.accesses[i]);
  memmove(pending.accesses, pending.accesses + count, (pending.count - count) * sizeof(Access));
  pending.base += count;
  pending.count -= count;
}

/* The warp synchronises, or ended: whatever some lanes did and others did not, they did alone. */
void memory_flush(Worker* worker, uint32_t warp) {
  MemoryState* state = worker->memory;
  for (uint32_t i = 0; i < state->count; ++i) {
    Pending& pending = state->pending[i * worker->warps + warp];
    if (pending.count) drop_front(state, i, pending, pending.count);
    if (pending.base) memset(pending.times, 0, sizeof pending.times);
    pending.base = 0;
  }
}

static uint32_t find_traffic(Worker* worker, const Where& where, size_t size, int kind, uint32_t place) {
  MemoryState* state = worker->memory;
  const bool shared = where.space == SPACE_SHARED;
  const uint32_t memory = shared ? where.memory : worker->shadow.zones[where.memory].memory;
  uint32_t slot = (place * 0x9e3779b1u ^ memory * 0x85ebca6bu) >> 7 & (SLOTS - 1);
  while (state->slots[slot]) {
    const Traffic& traffic = state->traffic[state->slots[slot] - 1];
    if (traffic.place == place && traffic.memory == memory && traffic.size == size && traffic.access == uint32_t(kind)) return state->slots[slot] - 1;
    slot = (slot + 1) & (SLOTS - 1);
  }
  if (state->count == worker->launch->traffic_capacity) return ~0u;
  const uint32_t index = state->count++;
  state->slots[slot] = index + 1;
  state->kinds[index] = shared ? MEMORY_SHARED : static_cast<MemoryKind>(worker->launch->memories[memory].kind);
  Traffic& traffic = state->traffic[index];
  traffic.place = place;
  traffic.memory = memory;
  traffic.access = uint32_t(kind);
  traffic.size = uint32_t(size);
  return index;
}

void memory_access(Worker* worker, const Where& where, uintptr_t, size_t size, int kind, uint32_t place) {
  MemoryState* state = worker->memory;
  const uint32_t index = find_traffic(worker, where, size, kind, place);
  if (index == ~0u) return;
  const uint32_t lane = worker->current % WARP, warp_index = worker->current / WARP;
  Pending& pending = state->pending[index * worker->warps + warp_index];
  const uint32_t time = pending.times[lane]++;
  if (time < pending.base) { /* the others were not waited for any longer */
    Access alone = {};
    alone.arrived = 1u << lane;
    alone.offsets[lane] = uint32_t(where.offset);
    finish(state, index, alone);
    return;
  }
  const uint32_t i = time - pending.base;
  if (i >= pending.capacity) {
    const uint32_t capacity = i < 16 ? 32 : 2 * i;
    Access* larger = static_cast<Access*>(realloc(pending.accesses, capacity * sizeof(Access)));
    if (!larger) return;
    pending.accesses = larger;
    pending.capacity = capacity;
  }
  for (; pending.count <= i; ++pending.count) pending.accesses[pending.count].arrived = 0;
  Access& access = pending.accesses[i];
  access.arrived |= 1u << lane;
  access.offsets[lane] = uint32_t(where.offset);
  const uint32_t live = worker->warp[warp_index].live;
  if ((access.arrived & live) == live && i + 1 == pending.count) { /* the last lane is here: all before it are as complete as they get */
    drop_front(state, index, pending, pending.count);
  } else if (i + 1 >= FAR_AHEAD && i + 1 == pending.count) {
    const uint32_t base = pending.base;
    yield_to_others(worker);
    if (pending.base == base && pending.count >= 2 * FAR_AHEAD) drop_front(state, index, pending, FAR_AHEAD);
  }
}

void memory_end(Run* run) {
  Launch* launch = run->launch;
  for (uint32_t w = 0; w < launch->workers; ++w) {
    const MemoryState* state = run->workers[w].memory;
    for (uint32_t i = 0; state && i < state->count; ++i) {
      const Traffic& mine = state->traffic[i];
      uint32_t j = 0;
      while (j < launch->traffic_count && (launch->traffic[j].place != launch->image_low + mine.place || launch->traffic[j].memory != mine.memory ||
                                           launch->traffic[j].access != mine.access || launch->traffic[j].size != mine.size))
        ++j;
      if (j == launch->traffic_capacity) continue;
      Traffic& sum = launch->traffic[j];
      if (j == launch->traffic_count) {
        ++launch->traffic_count;
        sum = mine;
        sum.place += launch->image_low;
        continue;
      }
      sum.warps += mine.warps;
      sum.moved += mine.moved;
      sum.ideal += mine.ideal;
      if (mine.ways > sum.ways) sum.ways = mine.ways;
    }
  }
}

}  // namespace emulator
