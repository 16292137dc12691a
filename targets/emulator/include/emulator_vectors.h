/* The vector types: char1 to double4, with their alignments, and make_*.

   In an instrumented build those of up to 16 bytes are copied as one access, as a GPU does; a compiler would take a struct apart into its members. Where that
   stands in the way (a union with such a member cannot be copied any more), EMULATOR_PLAIN_VECTORS is defined. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emulator_abi.h"

#define EMULATOR_INLINE __attribute__((always_inline, unused)) static inline

#if defined(EMULATOR_CHECKED) && !defined(EMULATOR_PLAIN_VECTORS)
#define EMULATOR_WHOLE(name, word)                                                                    \
  typedef word name##_word;                                                                            \
  name() = default;                                                                                    \
  __attribute__((always_inline)) name(const name& other) { *(name##_word*)this = *(const name##_word*)&other; }           \
  __attribute__((always_inline)) name& operator=(const name& other) { *(name##_word*)this = *(const name##_word*)&other; return *this; }
#define EMULATOR_VECTOR2(name, type, word, bytes)                                                     \
  struct __attribute__((aligned(bytes))) name {                                                        \
    type x, y;                                                                                         \
    EMULATOR_WHOLE(name, word __attribute__((vector_size(bytes), may_alias)))                                                            \
    __attribute__((always_inline)) constexpr name(type x, type y = 0) : x(x), y(y) {}             \
  };
#define EMULATOR_VECTOR4(name, type, word, bytes)                                                     \
  struct __attribute__((aligned(bytes))) name {                                                        \
    type x, y, z, w;                                                                                   \
    EMULATOR_WHOLE(name, word __attribute__((vector_size(bytes), may_alias)))                                                            \
    __attribute__((always_inline)) constexpr name(type x, type y = 0, type z = 0, type w = 0) : x(x), y(y), z(z), w(w) {} \
  };
#define EMULATOR_SMALL2(name, type, bytes)                                                            \
  struct __attribute__((aligned(bytes))) name {                                                        \
    type x, y;                                                                                         \
    EMULATOR_WHOLE(name, emulator_word_##bytes)                                                           \
    __attribute__((always_inline)) constexpr name(type x, type y = 0) : x(x), y(y) {}             \
  };
#define EMULATOR_SMALL4(name, type, bytes)                                                            \
  struct __attribute__((aligned(bytes))) name {                                                        \
    type x, y, z, w;                                                                                   \
    EMULATOR_WHOLE(name, emulator_word_##bytes)                                                           \
    __attribute__((always_inline)) constexpr name(type x, type y = 0, type z = 0, type w = 0) : x(x), y(y), z(z), w(w) {} \
  };
typedef uint16_t emulator_word_2 __attribute__((may_alias));
typedef uint32_t emulator_word_4 __attribute__((may_alias));
#else
#define EMULATOR_VECTOR2(name, type, word, bytes) struct __attribute__((aligned(bytes))) name { type x, y; };
#define EMULATOR_VECTOR4(name, type, word, bytes) struct __attribute__((aligned(bytes))) name { type x, y, z, w; };
#define EMULATOR_SMALL2(name, type, bytes) struct __attribute__((aligned(bytes))) name { type x, y; };
#define EMULATOR_SMALL4(name, type, bytes) struct __attribute__((aligned(bytes))) name { type x, y, z, w; };
#endif
#define EMULATOR_LONG4(name, type) struct __attribute__((aligned(16))) name { type x, y, z, w; };
struct char1 { signed char x; };
EMULATOR_SMALL2(char2, signed char, 2)
EMULATOR_SMALL4(char4, signed char, 4)
struct char3 { signed char x, y, z; };
struct uchar1 { unsigned char x; };
EMULATOR_SMALL2(uchar2, unsigned char, 2)
EMULATOR_SMALL4(uchar4, unsigned char, 4)
struct uchar3 { unsigned char x, y, z; };
struct short1 { short x; };
EMULATOR_SMALL2(short2, short, 4)
EMULATOR_VECTOR4(short4, short, short, 8)
struct short3 { short x, y, z; };
struct ushort1 { unsigned short x; };
EMULATOR_SMALL2(ushort2, unsigned short, 4)
EMULATOR_VECTOR4(ushort4, unsigned short, unsigned short, 8)
struct ushort3 { unsigned short x, y, z; };
struct int1 { int x; };
EMULATOR_VECTOR2(int2, int, int, 8)
EMULATOR_VECTOR4(int4, int, int, 16)
struct int3 { int x, y, z; };
struct uint1 { unsigned int x; };
EMULATOR_VECTOR2(uint2, unsigned int, unsigned int, 8)
EMULATOR_VECTOR4(uint4, unsigned int, unsigned int, 16)
struct long1 { long x; };
EMULATOR_VECTOR2(long2, long, long, 16)
EMULATOR_LONG4(long4, long)
struct long3 { long x, y, z; };
struct ulong1 { unsigned long x; };
EMULATOR_VECTOR2(ulong2, unsigned long, unsigned long, 16)
EMULATOR_LONG4(ulong4, unsigned long)
struct ulong3 { unsigned long x, y, z; };
struct longlong1 { long long x; };
EMULATOR_VECTOR2(longlong2, long long, long long, 16)
EMULATOR_LONG4(longlong4, long long)
struct longlong3 { long long x, y, z; };
struct ulonglong1 { unsigned long long x; };
EMULATOR_VECTOR2(ulonglong2, unsigned long long, unsigned long long, 16)
EMULATOR_LONG4(ulonglong4, unsigned long long)
struct ulonglong3 { unsigned long long x, y, z; };
struct float1 { float x; };
EMULATOR_VECTOR2(float2, float, float, 8)
EMULATOR_VECTOR4(float4, float, float, 16)
struct float3 { float x, y, z; };
struct double1 { double x; };
EMULATOR_VECTOR2(double2, double, double, 16)
EMULATOR_LONG4(double4, double)
struct double3 { double x, y, z; };
#undef EMULATOR_VECTOR2
#undef EMULATOR_VECTOR4
#undef EMULATOR_SMALL2
#undef EMULATOR_SMALL4
#undef EMULATOR_LONG4

#define EMULATOR_MAKE(name, type)                                                                     \
  EMULATOR_INLINE name##1 make_##name##1(type x) { return name##1{x}; }                              \
  EMULATOR_INLINE name##2 make_##name##2(type x, type y) { return name##2{x, y}; }                   \
  EMULATOR_INLINE name##3 make_##name##3(type x, type y, type z) { return name##3{x, y, z}; }        \
  EMULATOR_INLINE name##4 make_##name##4(type x, type y, type z, type w) { return name##4{x, y, z, w}; }
EMULATOR_MAKE(char, signed char)
EMULATOR_MAKE(uchar, unsigned char)
EMULATOR_MAKE(short, short)
EMULATOR_MAKE(ushort, unsigned short)
EMULATOR_MAKE(int, int)
EMULATOR_MAKE(uint, unsigned int)
EMULATOR_MAKE(long, long)
EMULATOR_MAKE(ulong, unsigned long)
EMULATOR_MAKE(longlong, long long)
EMULATOR_MAKE(ulonglong, unsigned long long)
EMULATOR_MAKE(float, float)
EMULATOR_MAKE(double, double)
#undef EMULATOR_MAKE
