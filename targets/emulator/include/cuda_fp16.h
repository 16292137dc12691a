// __half and __half2 for the emulator, under the name that CUDA sources include. Arithmetic is that of the hardware: rounded once, with
// denormals. Only what kernels use; the functions that __half shares with __nv_bfloat16 are in emulator_half_functions.h.
#pragma once
#include "emulator_small_floats.h"

struct __half_raw {
  unsigned short x;
};

struct __half2_raw {
  unsigned short x, y;
};

#define TW_SCALAR __half
#define TW_PAIR __half2
#define TW_RAW __half_raw
#define TW_PAIR_RAW __half2_raw
#define TW_FORMAT emulator::Float16
#include "emulator_half_functions.h"

typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;

#define TW_CONVERSIONS(type, name)                                                                                     \
  inline __half __##name##2half_rn(type x) { return __half(x); }                                                   \
  inline type __half2##name##_rz(__half x) { return emulator::to_integer<type>((float)x); }                        \
  inline type __half2##name##_rn(__half x) { return emulator::to_integer<type>(__builtin_rintf((float)x)); }       \
  inline type __half2##name##_rd(__half x) { return emulator::to_integer<type>(__builtin_floorf((float)x)); }      \
  inline type __half2##name##_ru(__half x) { return emulator::to_integer<type>(__builtin_ceilf((float)x)); }
#define TW_DIRECTED(suffix, direction)                                                                                 \
  inline __half __float2half_##suffix(float x) { return __half(__half_raw{(unsigned short)emulator::Float16::narrow_directed(x, direction)}); }

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __double2half(double x) { return __half(x); }
inline float __half2float(__half x) { return (float)x; }
TW_CONVERSIONS(int, int)
TW_CONVERSIONS(unsigned, uint)
TW_CONVERSIONS(short, short)
TW_CONVERSIONS(unsigned short, ushort)
TW_CONVERSIONS(long long, ll)
TW_CONVERSIONS(unsigned long long, ull)
TW_DIRECTED(rz, 0)
TW_DIRECTED(rd, -1)
TW_DIRECTED(ru, 1)
#undef TW_CONVERSIONS
#undef TW_DIRECTED
inline signed char __half2char_rz(__half x) { return emulator::to_integer<signed char>((float)x); }
inline unsigned char __half2uchar_rz(__half x) { return emulator::to_integer<unsigned char>((float)x); }
inline unsigned short __half_as_ushort(__half x) { return __half_raw(x).x; }
inline short __half_as_short(__half x) { return (short)__half_raw(x).x; }
inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
inline __half __short_as_half(short bits) { return __half(__half_raw{(unsigned short)bits}); }

inline __half2 __halves2half2(__half low, __half high) { return __half2(low, high); }
inline __half2 make_half2(__half low, __half high) { return __half2(low, high); }
inline __half2 __half2half2(__half x) { return __half2(x, x); }
inline __half2 __float2half2_rn(float x) { return __half2(__half(x), __half(x)); }
inline __half2 __floats2half2_rn(float low, float high) { return __half2(__half(low), __half(high)); }
inline __half2 __float22half2_rn(float2 x) { return __half2(__half(x.x), __half(x.y)); }
inline float2 __half22float2(__half2 x) { return float2{(float)x.x, (float)x.y}; }
inline __half __low2half(__half2 x) { return x.x; }
inline __half __high2half(__half2 x) { return x.y; }
inline __half2 __low2half2(__half2 x) { return __half2(x.x, x.x); }
inline __half2 __high2half2(__half2 x) { return __half2(x.y, x.y); }
inline __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
inline __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
