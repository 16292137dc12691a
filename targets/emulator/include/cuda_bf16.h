// __nv_bfloat16 and __nv_bfloat162 for the emulator, under the name that CUDA sources include. Arithmetic is that of the hardware: rounded once,
// with denormals. Only what kernels use; the functions shared with __half are in emulator_half_functions.h.
#pragma once
#include "emulator_small_floats.h"

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __nv_bfloat162_raw {
  unsigned short x, y;
};

#define TW_SCALAR __nv_bfloat16
#define TW_PAIR __nv_bfloat162
#define TW_RAW __nv_bfloat16_raw
#define TW_PAIR_RAW __nv_bfloat162_raw
#define TW_FORMAT emulator::BFloat16
#include "emulator_half_functions.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define TW_CONVERSIONS(type, name)                                                                                     \
  inline __nv_bfloat16 __##name##2bfloat16_rn(type x) { return __nv_bfloat16(x); }                                                   \
  inline type __bfloat162##name##_rz(__nv_bfloat16 x) { return emulator::to_integer<type>((float)x); }                        \
  inline type __bfloat162##name##_rn(__nv_bfloat16 x) { return emulator::to_integer<type>(__builtin_rintf((float)x)); }       \
  inline type __bfloat162##name##_rd(__nv_bfloat16 x) { return emulator::to_integer<type>(__builtin_floorf((float)x)); }      \
  inline type __bfloat162##name##_ru(__nv_bfloat16 x) { return emulator::to_integer<type>(__builtin_ceilf((float)x)); }
#define TW_DIRECTED(suffix, direction)                                                                                 \
  inline __nv_bfloat16 __float2bfloat16_##suffix(float x) { return __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)emulator::BFloat16::narrow_directed(x, direction)}); }

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
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
inline signed char __bfloat162char_rz(__nv_bfloat16 x) { return emulator::to_integer<signed char>((float)x); }
inline unsigned char __bfloat162uchar_rz(__nv_bfloat16 x) { return emulator::to_integer<unsigned char>((float)x); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return __nv_bfloat16_raw(x).x; }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return (short)__nv_bfloat16_raw(x).x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16(__nv_bfloat16_raw{bits}); }
inline __nv_bfloat16 __short_as_bfloat16(short bits) { return __nv_bfloat16(__nv_bfloat16_raw{(unsigned short)bits}); }

inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return __nv_bfloat162(low, high); }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) { return __nv_bfloat162(low, high); }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162(x, x); }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return __nv_bfloat162(__nv_bfloat16(x), __nv_bfloat16(x)); }
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return __nv_bfloat162(__nv_bfloat16(low), __nv_bfloat16(high)); }
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return __nv_bfloat162(__nv_bfloat16(x.x), __nv_bfloat16(x.y)); }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return float2{(float)x.x, (float)x.y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 x) { return __nv_bfloat162(x.x, x.x); }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 x) { return __nv_bfloat162(x.y, x.y); }
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.x, b.x); }
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.y, b.y); }
