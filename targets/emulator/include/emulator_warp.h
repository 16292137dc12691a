/* Shuffles, votes, matches and reductions of a warp. Each is one meeting of the lanes in `mask`; the last lane to arrive works out the results of all.

   They are functions and not macros where they return a value of the caller's type; in an instrumented build they tell the runtime by whom they
   were called. */
#pragma once

#include "emulator_abi.h"

namespace emulator_warp {

template <class T> struct Exchange { /* what one lane gives to a shuffle, and gets */
  T value, result;
  unsigned int source;
  const void* place;
};

template <class T> EMULATOR_QUIET void shuffle(void* const* lanes, unsigned int arrived, unsigned long long) {
  for (unsigned int i = 0; i < 32; ++i) {
    if (!(arrived >> i & 1)) continue;
    Exchange<T>& mine = *(Exchange<T>*)lanes[i];
    if (arrived >> mine.source & 1) {
      mine.result = ((Exchange<T>*)lanes[mine.source])->value;
    } else {
      mine.result = mine.value;
      emulator_inactive(i, mine.source, mine.place);
    }
  }
}

struct Vote {
  unsigned int value, result;
};

/* Argument: 0: ballot, 1: all, 2: any, 3: are all equal? */
EMULATOR_QUIET inline void vote(void* const* lanes, unsigned int arrived, unsigned long long which) {
  unsigned int ballot = 0;
  for (unsigned int i = 0; i < 32; ++i)
    if (arrived >> i & 1 && ((Vote*)lanes[i])->value) ballot |= 1u << i;
  const unsigned int result = which == 0 ? ballot : which == 1 ? ballot == arrived : ballot != 0;
  for (unsigned int i = 0; i < 32; ++i)
    if (arrived >> i & 1) ((Vote*)lanes[i])->result = result;
}

struct Match {
  unsigned long long value;
  unsigned int any, all; /* lanes with the same value; all lanes, if they have the same, else none */
};

EMULATOR_QUIET inline void match(void* const* lanes, unsigned int arrived, unsigned long long) {
  bool same = true;
  for (unsigned int i = 0; i < 32; ++i) {
    if (!(arrived >> i & 1)) continue;
    Match& mine = *(Match*)lanes[i];
    mine.any = 0;
    for (unsigned int j = 0; j < 32; ++j)
      if (arrived >> j & 1 && ((Match*)lanes[j])->value == mine.value) mine.any |= 1u << j;
    same = same && mine.any == arrived;
  }
  for (unsigned int i = 0; i < 32; ++i)
    if (arrived >> i & 1) ((Match*)lanes[i])->all = same ? arrived : 0;
}

template <class T> struct Reduction {
  T value, result;
};

/* Argument: 0: add, 1: min, 2: max, 3: and, 4: or, 5: xor. */
template <class T> EMULATOR_QUIET void reduce(void* const* lanes, unsigned int arrived, unsigned long long which) {
  T result = 0;
  bool first = true;
  for (unsigned int i = 0; i < 32; ++i) {
    if (!(arrived >> i & 1)) continue;
    const T value = ((Reduction<T>*)lanes[i])->value;
    result = first ? value
             : which == 0 ? T((unsigned int)result + (unsigned int)value)
             : which == 1 ? (value < result ? value : result)
             : which == 2 ? (value > result ? value : result)
             : which == 3 ? result & value
             : which == 4 ? result | value
                          : result ^ value;
    first = false;
  }
  for (unsigned int i = 0; i < 32; ++i)
    if (arrived >> i & 1) ((Reduction<T>*)lanes[i])->result = result;
}

}  // namespace emulator_warp

#define EMULATOR_MEET(mask, mine, complete, argument) emulator_collective_at(mask, mine, complete, argument, EMULATOR_HERE)

template <class T> EMULATOR_QUIET static inline T emulator_shuffle(unsigned int mask, T value, unsigned int source, const void* place) {
  emulator_warp::Exchange<T> mine = {value, value, source & 31, place};
  emulator_collective_at(mask, &mine, emulator_warp::shuffle<T>, 0, place);
  return mine.result;
}
/* The source stays in the group of `width` lanes; outside of it a lane gets its own value. */
template <class T> EMULATOR_FUNCTION T __shfl_sync(unsigned int mask, T value, int source, int width = 32) {
  const unsigned int lane = emulator_lane();
  return emulator_shuffle(mask, value, (lane & ~(width - 1u)) | ((unsigned int)source & (width - 1u)), EMULATOR_HERE);
}
template <class T> EMULATOR_FUNCTION T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  const unsigned int lane = emulator_lane(), start = lane & ~(width - 1u);
  return emulator_shuffle(mask, value, lane >= start + delta ? lane - delta : lane, EMULATOR_HERE);
}
template <class T> EMULATOR_FUNCTION T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
  const unsigned int lane = emulator_lane(), end = (lane & ~(width - 1u)) + (unsigned int)width;
  return emulator_shuffle(mask, value, lane + delta < end ? lane + delta : lane, EMULATOR_HERE);
}
template <class T> EMULATOR_FUNCTION T __shfl_xor_sync(unsigned int mask, T value, int lanes, int width = 32) {
  const unsigned int lane = emulator_lane(), source = lane ^ (unsigned int)lanes;
  /* A source in a later group gives the own value; one in an earlier group may be read. */
  return emulator_shuffle(mask, value, source >= (lane & ~(width - 1u)) + (unsigned int)width ? lane : source, EMULATOR_HERE);
}

EMULATOR_FUNCTION void emulator_sync_warp(unsigned int mask = 0xffffffffu) { EMULATOR_MEET(mask, nullptr, nullptr, 0); }
#define __syncwarp(...) emulator_sync_warp(__VA_ARGS__)
#define __activemask() emulator_active_mask(__LINE__)

EMULATOR_FUNCTION unsigned int __ballot_sync(unsigned int mask, int predicate) {
  emulator_warp::Vote mine = {predicate != 0, 0};
  EMULATOR_MEET(mask, &mine, emulator_warp::vote, 0);
  return mine.result;
}
EMULATOR_FUNCTION int __all_sync(unsigned int mask, int predicate) {
  emulator_warp::Vote mine = {predicate != 0, 0};
  EMULATOR_MEET(mask, &mine, emulator_warp::vote, 1);
  return (int)mine.result;
}
EMULATOR_FUNCTION int __any_sync(unsigned int mask, int predicate) {
  emulator_warp::Vote mine = {predicate != 0, 0};
  EMULATOR_MEET(mask, &mine, emulator_warp::vote, 2);
  return (int)mine.result;
}
template <class T> EMULATOR_FUNCTION unsigned int __match_any_sync(unsigned int mask, T value) {
  emulator_warp::Match mine = {0, 0, 0};
  __builtin_memcpy(&mine.value, &value, sizeof value);
  EMULATOR_MEET(mask, &mine, emulator_warp::match, 0);
  return mine.any;
}
template <class T> EMULATOR_FUNCTION unsigned int __match_all_sync(unsigned int mask, T value, int* same) {
  emulator_warp::Match mine = {0, 0, 0};
  __builtin_memcpy(&mine.value, &value, sizeof value);
  EMULATOR_MEET(mask, &mine, emulator_warp::match, 0);
  *same = mine.all != 0;
  return mine.all;
}

#define EMULATOR_REDUCE(name, type, which)                                      \
  EMULATOR_FUNCTION type __reduce_##name##_sync(unsigned int mask, type value) { \
    emulator_warp::Reduction<type> mine = {value, value};                       \
    EMULATOR_MEET(mask, &mine, emulator_warp::reduce<type>, which);             \
    return mine.result;                                                         \
  }
EMULATOR_REDUCE(add, unsigned int, 0)
EMULATOR_REDUCE(add, int, 0)
EMULATOR_REDUCE(min, unsigned int, 1)
EMULATOR_REDUCE(min, int, 1)
EMULATOR_REDUCE(max, unsigned int, 2)
EMULATOR_REDUCE(max, int, 2)
EMULATOR_REDUCE(and, unsigned int, 3)
EMULATOR_REDUCE(or, unsigned int, 4)
EMULATOR_REDUCE(xor, unsigned int, 5)
#undef EMULATOR_REDUCE
