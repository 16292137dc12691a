/* Atomic functions. Blocks run in several threads of the process, so they are atomic here too; a thread that makes many of them lets others run,
   since it may be waiting for them. */
#pragma once

#include "emulator_abi.h"

EMULATOR_QUIET __attribute__((always_inline)) static inline void emulator_before_atomic(const volatile void* address, unsigned long size, const void* where) {
#ifdef EMULATOR_CHECKED
  emulator_access(address, size, 2, where);
#else
  (void)address, (void)size, (void)where;
#endif
  if (++emulator_position.patience > 64) emulator_yield();
}

template <int size> struct EmulatorBits;
template <> struct EmulatorBits<2> { typedef unsigned short type; };
template <> struct EmulatorBits<4> { typedef unsigned int type; };
template <> struct EmulatorBits<8> { typedef unsigned long long type; };

/* old -> change(old), until nobody came between. */
template <class T, class F> EMULATOR_QUIET static inline T emulator_update(T* address, F change) {
  typedef typename EmulatorBits<sizeof(T)>::type Bits;
  Bits* bits = (Bits*)address;
  Bits old = __atomic_load_n(bits, __ATOMIC_SEQ_CST);
  for (;;) {
    T value;
    __builtin_memcpy(&value, &old, sizeof value);
    const T changed = change(value);
    Bits wanted;
    __builtin_memcpy(&wanted, &changed, sizeof wanted);
    if (__atomic_compare_exchange_n(bits, &old, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return value;
  }
}

#define EMULATOR_ATOMIC(name, type, expression)                                                  \
  EMULATOR_FUNCTION type name(type* address, type value) {                                        \
    emulator_before_atomic(address, sizeof(type), EMULATOR_HERE);                                 \
    return emulator_update(address, [=](type old) EMULATOR_QUIET -> type { return expression; }); \
  }                                                                                               \
  EMULATOR_FUNCTION type name##_block(type* address, type value) {                                \
    emulator_before_atomic(address, sizeof(type), EMULATOR_HERE);                                 \
    return emulator_update(address, [=](type old) EMULATOR_QUIET -> type { return expression; }); \
  }                                                                                               \
  EMULATOR_FUNCTION type name##_system(type* address, type value) {                               \
    emulator_before_atomic(address, sizeof(type), EMULATOR_HERE);                                 \
    return emulator_update(address, [=](type old) EMULATOR_QUIET -> type { return expression; }); \
  }
EMULATOR_ATOMIC(atomicAdd, int, (int)((unsigned int)old + (unsigned int)value))
EMULATOR_ATOMIC(atomicAdd, unsigned int, old + value)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + value)
EMULATOR_ATOMIC(atomicAdd, float, old + value)
EMULATOR_ATOMIC(atomicAdd, double, old + value)
EMULATOR_ATOMIC(atomicSub, int, (int)((unsigned int)old - (unsigned int)value))
EMULATOR_ATOMIC(atomicSub, unsigned int, old - value)
EMULATOR_ATOMIC(atomicExch, int, ((void)old, value))
EMULATOR_ATOMIC(atomicExch, unsigned int, ((void)old, value))
EMULATOR_ATOMIC(atomicExch, unsigned long long, ((void)old, value))
EMULATOR_ATOMIC(atomicExch, float, ((void)old, value))
EMULATOR_ATOMIC(atomicMin, int, value < old ? value : old)
EMULATOR_ATOMIC(atomicMin, unsigned int, value < old ? value : old)
EMULATOR_ATOMIC(atomicMin, long long, value < old ? value : old)
EMULATOR_ATOMIC(atomicMin, unsigned long long, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, int, value > old ? value : old)
EMULATOR_ATOMIC(atomicMax, unsigned int, value > old ? value : old)
EMULATOR_ATOMIC(atomicMax, long long, value > old ? value : old)
EMULATOR_ATOMIC(atomicMax, unsigned long long, value > old ? value : old)
EMULATOR_ATOMIC(atomicAnd, int, old & value)
EMULATOR_ATOMIC(atomicAnd, unsigned int, old & value)
EMULATOR_ATOMIC(atomicAnd, unsigned long long, old & value)
EMULATOR_ATOMIC(atomicOr, int, old | value)
EMULATOR_ATOMIC(atomicOr, unsigned int, old | value)
EMULATOR_ATOMIC(atomicOr, unsigned long long, old | value)
EMULATOR_ATOMIC(atomicXor, int, old ^ value)
EMULATOR_ATOMIC(atomicXor, unsigned int, old ^ value)
EMULATOR_ATOMIC(atomicXor, unsigned long long, old ^ value)
EMULATOR_ATOMIC(atomicInc, unsigned int, old >= value ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, unsigned int, old == 0 || old > value ? value : old - 1)
#undef EMULATOR_ATOMIC

#define EMULATOR_SWAP(name, type)                                                                                          \
  EMULATOR_FUNCTION type name(type* address, type compare, type value) {                                                   \
    emulator_before_atomic(address, sizeof(type), EMULATOR_HERE);                                                          \
    return emulator_update(address, [=](type old) EMULATOR_QUIET -> type { return old == compare ? value : old; });        \
  }
EMULATOR_SWAP(atomicCAS, int)
EMULATOR_SWAP(atomicCAS, unsigned int)
EMULATOR_SWAP(atomicCAS, unsigned long long)
EMULATOR_SWAP(atomicCAS, unsigned short)
EMULATOR_SWAP(atomicCAS_block, int)
EMULATOR_SWAP(atomicCAS_block, unsigned int)
EMULATOR_SWAP(atomicCAS_block, unsigned long long)
EMULATOR_SWAP(atomicCAS_system, int)
EMULATOR_SWAP(atomicCAS_system, unsigned int)
EMULATOR_SWAP(atomicCAS_system, unsigned long long)
#undef EMULATOR_SWAP
