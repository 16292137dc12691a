/* The runtime's own data: a launch as Python hands it over, the workers that run its blocks, their threads and warps.

   A worker is a thread of the process that runs whole blocks, one after the other; the CUDA threads of its block take turns on it, each until it
   waits or ends. So the threads of a block never run at the same time, and their order is always the same. */
#pragma once

#include <pthread.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/emulator_abi.h"
#include "fiber.h"

namespace emulator {

constexpr unsigned MAX_THREADS = 1024, WARP = 32, MAX_WARPS = MAX_THREADS / WARP;
constexpr size_t STACK_BYTES = 256 << 10, PAGE_BYTES = 4096;

enum Check : uint32_t { CHECK_NONE, CHECK_RACE, CHECK_MEMORY };

/* What was found. Python has the same numbers in findings.py. */
enum Kind : uint32_t {
  RACE_SHARED = 1, RACE_GLOBAL, RACE_BLOCKS, UNINITIALISED, OUT_OF_BOUNDS, READ_ONLY, WILD,
  BARRIER_SITES, BARRIER_STUCK, BARRIER_EXITED, INACTIVE_LANE, FOREIGN_MASK, FENCED, INDEX, WARP_SITES, MISALIGNED
};

struct Finding { /* one for each kind, pair of places and memory; `count` says how often */
  uint32_t kind, memory;            /* memory: index of a Memory, or ~0 */
  uint64_t place, other_place;      /* return addresses in the kernel's library */
  uint64_t offset;                  /* bytes from the start of `memory`, or an address */
  uint64_t block, other_block;      /* linear */
  uint32_t thread, other_thread;    /* linear in the block */
  uint32_t size, access, other_access; /* access: 0 reads, 1 writes, 2 atomic, 3 not known */
  uint32_t extra;
  uint64_t count;
};

struct Traffic { /* of one place in the source, in one memory */
  uint64_t place;
  uint32_t memory, access, size, ways; /* ways: the worst bank conflict */
  uint64_t warps, moved, ideal;        /* moved: sectors of 32 bytes, or passes through the banks of shared memory */
};

enum MemoryKind : uint32_t { MEMORY_ARGUMENT, MEMORY_SHARED, MEMORY_DYNAMIC, MEMORY_DEVICE, MEMORY_IGNORED, MEMORY_CONSTANT };

struct Memory { /* an array that the kernel may touch */
  uint64_t address; /* of shared memory: the offset in the library's thread-local storage */
  uint64_t size, zone_low, zone_high; /* zone: the addresses around it that are nobody else's */
  uint32_t kind, read_only;
};

struct Launch { /* Python has the same in launch.py */
  void (*entry)(void**);
  void** arguments;
  uint32_t grid[3], block[3];
  uint64_t dynamic_bytes;
  uint32_t workers, check;
  /* where something is checked */
  char* (*tls_anchor)(void);
  uint64_t tls_anchor_offset, tls_bytes;
  const Memory* memories;
  uint32_t memory_count, granule_shift; /* a granule: the smallest access the kernel makes, up to 4 bytes */
  uint64_t image_low, image_high; /* of the kernel's library */
  /* results */
  Finding* findings;
  Traffic* traffic;
  uint32_t finding_capacity, traffic_capacity;
  uint32_t finding_count, traffic_count;
  uint64_t error_place, error_block, error_address;
  uint32_t error_thread, error_kind; /* error_kind: see Error */
  uint32_t touched_locals, unused; /* whether an array on a thread's stack was indexed */
  char error_text[256];
};

enum Error : uint32_t { ERROR_NONE, ERROR_TRAP, ERROR_STUCK, ERROR_SIGNAL, ERROR_TIMEOUT, ERROR_STACK, ERROR_WILD, ERROR_RESOURCES };

struct Thread {
  Fiber* fiber;
  uint3 index;
  uint32_t where;            /* 0: runs or may run; else what it waits for */
  const void* place;         /* ... and from where */
  int line;                  /* of the barrier or __activemask() it waits at */
  unsigned mask;             /* the mask of the collective it waits in */
  uint32_t last_place;       /* its latest access since the last barrier, from the start of the library; 0: none */
  uint64_t visited[4];       /* places of accesses since the last barrier, hashed */
  uint32_t fence_time, atomic_time, end_time;
  uint32_t spins;            /* accesses to one address in a row */
  uintptr_t spin_address;
  uint32_t known[WARP];      /* time of the latest synchronisation with a lane of its warp, other than by the whole warp */
};
enum { WAITS_BARRIER = 1, WAITS_COLLECTIVE, WAITS_CONVERGENCE, ENDED };

struct Slot { /* a collective that some lanes have reached */
  EmulatorComplete* complete;
  unsigned long long argument;
  const void* place; /* from where the first lane came */
  uint32_t mask, arrived;
  void* lanes[WARP];
};

struct Warp {
  uint32_t live; /* lanes that have not ended */
  uint32_t slot_count;
  uint32_t synchronised; /* time of the latest synchronisation of all its live lanes */
  Slot slots[WARP];
};

/* What is remembered of a granule of memory: the latest plain write, the latest reads, the latest atomic operations. Times are those of Worker::time; 0:
   never. HiRace (arXiv 2401.04701) has such a state machine in 8 bytes; this one is larger and tells more. */
struct Accessors { /* threads that read, or that made atomic operations, without excluding each other */
  uint32_t time, place; /* of the latest */
  uint32_t lanes;       /* of the latest one's warp, since the last barrier; where several warps did it, a thread of another one and its place */
  uint16_t thread, flags;
};
enum AccessorFlags : uint16_t { BY_WARPS = 1, BY_BLOCKS = 2 };
struct Cell {
  uint32_t write_time, write_place;
  uint16_t writer, flags;
  Accessors reads, atomics;
};
enum CellFlags : uint16_t { EVER_READ = 1, EVER_WRITTEN = 2, EVER_ATOMIC = 4 };

struct Zone { /* one memory with the addresses around it that belong to nobody else */
  uintptr_t low, high, zone_low, zone_high;
  uint32_t memory, read_only, ignored;
  Cell* cells; /* of the worker */
};

struct Shadow { /* of a worker */
  uintptr_t tls_low;
  size_t tls_bytes, dynamic_low_cell;
  uint16_t* owner;     /* of each granule of the library's thread-local storage: 0: nobody, else index of a Memory + 1; IGNORED_OWNER */
  Cell* shared;        /* thread-local storage, then dynamic shared memory */
  size_t shared_bytes; /* of `shared` */
  Zone* zones;         /* global memory, by address */
  uint32_t zone_count, latest_zone, dynamic_memory;
};
constexpr uint16_t IGNORED_OWNER = 0xffff;

struct Run;
struct ThreadCopies;
struct MemoryState;

struct Worker {
  Run* run;
  Launch* launch;
  pthread_t thread;
  Fiber main;
  uint32_t current;                   /* thread */
  uint32_t block_threads, live, warps;
  uint64_t block;                     /* linear */
  uint64_t ready[MAX_THREADS / 64], waiting[MAX_THREADS / 64]; /* may run; wait at the barrier */
  uint32_t arrived, votes, vote_result; /* of the barrier that is gathering; and of the latest one */
  bool vote_was_unanimous;
  const void* barrier_place;
  uint32_t time, barrier_time, block_time; /* synchronisations so far; the latest barrier; the block's start */
  bool ended_since_barrier;
  struct Stacks* stacks;
  uintptr_t stacks_low;
  size_t stacks_bytes;
  char* signal_stack;
  bool done;
  uint32_t fiber_count;
  Fiber* free_fibers;
  Thread* threads;
  Warp* warp;
  Fiber* fibers;
  char* dynamic;                      /* dynamic shared memory with a zone before and behind it */
  sigjmp_buf rescue;                  /* where a thread of the kernel that cannot go on leaves to */
  Shadow shadow;
  ThreadCopies* copies;               /* asynchronous copies of the block's threads; null before the first */
  MemoryState* memory;
  uint32_t* block_times;              /* of its blocks so far, when they began, and which they were */
  uint64_t* block_numbers;
  uint32_t blocks_run, blocks_capacity;
  bool fenced, used_atomics;          /* some thread, in this launch, with other blocks in mind */
};

struct Run {
  Launch* launch;
  Worker* workers;
  uint64_t blocks;
  uint64_t next_block;
  uint32_t running;
  volatile uint32_t stop;
  pthread_mutex_t mutex;
  pthread_cond_t finished;
};

constexpr size_t DYNAMIC_ZONE = 4096;

/* stacks.cpp */
struct Stacks {
  char* low; /* `count` times STACK_BYTES */
  unsigned count, fenced;
  Stacks* next;
};
Stacks* stacks_take(unsigned count);
void stacks_give_back(Stacks*);
char* stacks_use(Stacks*, unsigned i);

extern thread_local Worker* current_worker;

/* scheduler.cpp */
[[noreturn]] void abandon(Worker*);                  /* leaves the kernel where it is; the launch ends */
void fail(Worker*, Error, const void* place, const char* text); /* the launch's error, if it is the first one */
void yield_to_others(Worker*);
void run_blocks(Worker*);                            /* until there are none left; returns also after `abandon` */

/* faults.cpp */
void faults_begin();
void faults_end();
void faults_interrupt(Run*);                         /* makes workers that never call the runtime abandon their kernel */
void faults_thread_begin(Worker*);
void faults_thread_end(Worker*);

/* shadow.cpp: what the kernel may touch, and where what is remembered of it is kept */
enum Space : uint32_t { SPACE_LOCAL, SPACE_SHARED, SPACE_GLOBAL, SPACE_IGNORED, SPACE_OUTSIDE };
struct Where {
  Space space;
  uint32_t memory;                     /* index of a Memory */
  uint32_t cell;                       /* of the first byte, in the space's cells */
  uint64_t offset;                     /* bytes from the start of the memory */
};
bool shadow_begin(Worker*);
void shadow_free(Worker*);
/* Finds an access and judges its bounds. False: it must not be looked at further. Leaves the kernel where the access would harm the process. */
bool shadow_find(Worker*, uintptr_t address, size_t size, int kind, uintptr_t place, Where* where);

/* race.cpp: called by the scheduler and hooks.cpp where something is checked */
void race_access(Worker*, const Where&, size_t size, int kind, uint32_t place);
uint32_t race_tick(Worker*);
void race_block(Worker*);
void race_collective(Worker*, uint32_t warp, uint32_t arrived);
void race_released(Worker*);
void race_between_workers(Run*);
void race_forget(Worker*, uintptr_t address, size_t size, uintptr_t place); /* shared words become as if nobody had written them, without an access */

/* memory.cpp */
bool memory_begin(Worker*);
void memory_end(Run*);
void memory_free(Worker*);
void memory_flush(Worker*, uint32_t warp);
void memory_access(Worker*, const Where&, uintptr_t address, size_t size, int kind, uint32_t place);

/* copies.cpp */
void copies_block(Worker*);
void copies_free(Worker*);

/* findings.cpp: keeps one of each kind, pair of places and memory, and counts. */
Finding finding_here(const Worker*); /* of the running thread, in its block, in no memory */
void found(Worker*, Finding finding);

}  // namespace emulator
