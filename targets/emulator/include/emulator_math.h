/* Mathematical functions, intrinsics and bit functions. The fast intrinsics (__expf and the like) are as exact here as the plain functions; a GPU's are
   not, so results differ by the few units that CUDA's manual allows.

   <cmath> is not included, which would cost more time than most kernels take to compile. Where a source includes standard headers,
   EMULATOR_STANDARD_MATH is defined and the overloads come from there. */
#pragma once

#include "emulator_abi.h"
#include "emulator_vectors.h"

#ifdef EMULATOR_STANDARD_MATH
#include <math.h>
#include <stdlib.h>
#endif

extern "C" {
#define EMULATOR_C1(name) float name##f(float) noexcept; double name(double) noexcept;
#define EMULATOR_C2(name) float name##f(float, float) noexcept; double name(double, double) noexcept;
EMULATOR_C1(exp) EMULATOR_C1(exp2) EMULATOR_C1(expm1) EMULATOR_C1(log) EMULATOR_C1(log2) EMULATOR_C1(log10) EMULATOR_C1(log1p)
EMULATOR_C1(sin) EMULATOR_C1(cos) EMULATOR_C1(tan) EMULATOR_C1(asin) EMULATOR_C1(acos) EMULATOR_C1(atan)
EMULATOR_C1(sinh) EMULATOR_C1(cosh) EMULATOR_C1(tanh) EMULATOR_C1(asinh) EMULATOR_C1(acosh) EMULATOR_C1(atanh)
EMULATOR_C1(sqrt) EMULATOR_C1(cbrt) EMULATOR_C1(erf) EMULATOR_C1(erfc) EMULATOR_C1(tgamma) EMULATOR_C1(lgamma)
EMULATOR_C1(floor) EMULATOR_C1(ceil) EMULATOR_C1(trunc) EMULATOR_C1(round) EMULATOR_C1(rint) EMULATOR_C1(nearbyint) EMULATOR_C1(fabs)
EMULATOR_C2(pow) EMULATOR_C2(fmod) EMULATOR_C2(atan2) EMULATOR_C2(fmin) EMULATOR_C2(fmax) EMULATOR_C2(hypot) EMULATOR_C2(copysign)
EMULATOR_C2(remainder) EMULATOR_C2(fdim) EMULATOR_C2(nextafter)
float fmaf(float, float, float) noexcept;
double fma(double, double, double) noexcept;
float ldexpf(float, int) noexcept;
double ldexp(double, int) noexcept;
float frexpf(float, int*) noexcept;
double frexp(double, int*) noexcept;
float modff(float, float*) noexcept;
double modf(double, double*) noexcept;
long lrintf(float) noexcept;
long lrint(double) noexcept;
long lroundf(float) noexcept;
long lround(double) noexcept;
float exp10f(float) noexcept;
double exp10(double) noexcept;
void sincosf(float, float*, float*) noexcept;
void sincos(double, double*, double*) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
}
#undef EMULATOR_C1
#undef EMULATOR_C2

#ifndef EMULATOR_STANDARD_MATH /* the overloads for float that CUDA has, as <cmath> does */
#define EMULATOR_F1(name) EMULATOR_INLINE float name(float x) { return name##f(x); }
#define EMULATOR_F2(name) EMULATOR_INLINE float name(float x, float y) { return name##f(x, y); }
EMULATOR_F1(exp) EMULATOR_F1(exp2) EMULATOR_F1(expm1) EMULATOR_F1(log) EMULATOR_F1(log2) EMULATOR_F1(log10) EMULATOR_F1(log1p)
EMULATOR_F1(sin) EMULATOR_F1(cos) EMULATOR_F1(tan) EMULATOR_F1(asin) EMULATOR_F1(acos) EMULATOR_F1(atan)
EMULATOR_F1(sinh) EMULATOR_F1(cosh) EMULATOR_F1(tanh) EMULATOR_F1(asinh) EMULATOR_F1(acosh) EMULATOR_F1(atanh)
EMULATOR_F1(sqrt) EMULATOR_F1(cbrt) EMULATOR_F1(erf) EMULATOR_F1(erfc) EMULATOR_F1(tgamma) EMULATOR_F1(lgamma)
EMULATOR_F1(floor) EMULATOR_F1(ceil) EMULATOR_F1(trunc) EMULATOR_F1(round) EMULATOR_F1(rint) EMULATOR_F1(nearbyint) EMULATOR_F1(fabs)
EMULATOR_F2(pow) EMULATOR_F2(fmod) EMULATOR_F2(atan2) EMULATOR_F2(fmin) EMULATOR_F2(fmax) EMULATOR_F2(hypot) EMULATOR_F2(copysign)
EMULATOR_F2(remainder) EMULATOR_F2(fdim) EMULATOR_F2(nextafter)
#undef EMULATOR_F1
#undef EMULATOR_F2
EMULATOR_INLINE float fma(float x, float y, float z) { return fmaf(x, y, z); }
EMULATOR_INLINE float ldexp(float x, int n) { return ldexpf(x, n); }
EMULATOR_INLINE float abs(float x) { return __builtin_fabsf(x); }
EMULATOR_INLINE double abs(double x) { return __builtin_fabs(x); }
EMULATOR_INLINE long abs(long x) { return labs(x); }
EMULATOR_INLINE long long abs(long long x) { return llabs(x); }
EMULATOR_INLINE bool isnan(float x) { return __builtin_isnan(x); }
EMULATOR_INLINE bool isnan(double x) { return __builtin_isnan(x); }
EMULATOR_INLINE bool isinf(float x) { return __builtin_isinf(x); }
EMULATOR_INLINE bool isinf(double x) { return __builtin_isinf(x); }
EMULATOR_INLINE bool isfinite(float x) { return __builtin_isfinite(x); }
EMULATOR_INLINE bool isfinite(double x) { return __builtin_isfinite(x); }
EMULATOR_INLINE bool signbit(float x) { return __builtin_signbit(x); }
EMULATOR_INLINE bool signbit(double x) { return __builtin_signbit(x); }
#endif

/* ---- functions that only CUDA has */
EMULATOR_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
EMULATOR_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
EMULATOR_INLINE float rsqrt(float x) { return 1.0f / sqrtf(x); }
EMULATOR_INLINE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
EMULATOR_INLINE float sinpif(float x) { return (float)sin((double)x * 3.14159265358979323846); }
EMULATOR_INLINE float cospif(float x) { return (float)cos((double)x * 3.14159265358979323846); }
EMULATOR_INLINE float normcdff(float x) { return 0.5f * erfcf(x * -0.70710678118654752440f); }
EMULATOR_INLINE float erfinvf(float y) { /* Giles' start, then two steps of Newton's method in double */
  const float w = -logf((1.0f - y) * (1.0f + y));
  double x = y * 0.886 * (1.0 + 0.2 * w);
  for (int i = 0; i < 30; ++i) x -= (erf(x) - y) / (1.1283791670955126 * exp(-x * x));
  return (float)x;
}
EMULATOR_INLINE float saturate(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
EMULATOR_INLINE float __saturatef(float x) { return saturate(x); }
EMULATOR_INLINE float fdividef(float x, float y) { return x / y; }
EMULATOR_INLINE float __fdividef(float x, float y) { return x / y; }
/* glibc declares functions of these names in its own headers */
#define __expf emulator_expf
#define __exp10f emulator_exp10f
#define __logf emulator_logf
#define __log2f emulator_log2f
#define __log10f emulator_log10f
#define __sinf emulator_sinf
#define __cosf emulator_cosf
#define __tanf emulator_tanf
#define __sincosf emulator_sincosf
#define __powf emulator_powf
#define __tanhf emulator_tanhf
EMULATOR_INLINE float __expf(float x) { return expf(x); }
EMULATOR_INLINE float __exp10f(float x) { return exp10f(x); }
EMULATOR_INLINE float __logf(float x) { return logf(x); }
EMULATOR_INLINE float __log2f(float x) { return log2f(x); }
EMULATOR_INLINE float __log10f(float x) { return log10f(x); }
EMULATOR_INLINE float __sinf(float x) { return sinf(x); }
EMULATOR_INLINE float __cosf(float x) { return cosf(x); }
EMULATOR_INLINE float __tanf(float x) { return tanf(x); }
EMULATOR_INLINE void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
EMULATOR_INLINE float __powf(float x, float y) { return powf(x, y); }
EMULATOR_INLINE float __tanhf(float x) { return tanhf(x); }

/* Rounding to nearest: volatile keeps the compiler from making a fused multiply-add of a product that shall be rounded by itself. */
#define EMULATOR_ROUNDED(name, type, suffix, operation) \
  EMULATOR_INLINE type name##suffix(type x, type y) { volatile type result = x operation y; return result; }
EMULATOR_ROUNDED(__fadd_r, float, n, +) EMULATOR_ROUNDED(__fsub_r, float, n, -) EMULATOR_ROUNDED(__fmul_r, float, n, *) EMULATOR_ROUNDED(__fdiv_r, float, n, /)
EMULATOR_ROUNDED(__dadd_r, double, n, +) EMULATOR_ROUNDED(__dsub_r, double, n, -) EMULATOR_ROUNDED(__dmul_r, double, n, *) EMULATOR_ROUNDED(__ddiv_r, double, n, /)
#undef EMULATOR_ROUNDED
EMULATOR_INLINE float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
EMULATOR_INLINE double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
EMULATOR_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
EMULATOR_INLINE double __dsqrt_rn(double x) { return sqrt(x); }
EMULATOR_INLINE float __frcp_rn(float x) { return 1.0f / x; }
EMULATOR_INLINE float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }

/* ---- conversions; those to integers stop at the ends of the range, and a NaN gives 0, as on a GPU */
#define EMULATOR_TO_INTEGER(name, from, to, low, high, rounded)  \
  EMULATOR_INLINE to name(from x) {                              \
    const double r = rounded((double)x);                         \
    return x != x ? 0 : r <= low ? (to)low : r >= high ? (to)(high > 4294967296.0 ? ~0ull >> (low < 0) : (unsigned long long)high) : (to)r; \
  }
#define EMULATOR_TO_INTEGERS(prefix, from)                                                            \
  EMULATOR_TO_INTEGER(prefix##2int_rn, from, int, -2147483648.0, 2147483647.0, rint)                  \
  EMULATOR_TO_INTEGER(prefix##2int_rz, from, int, -2147483648.0, 2147483647.0, trunc)                 \
  EMULATOR_TO_INTEGER(prefix##2int_rd, from, int, -2147483648.0, 2147483647.0, floor)                 \
  EMULATOR_TO_INTEGER(prefix##2int_ru, from, int, -2147483648.0, 2147483647.0, ceil)                  \
  EMULATOR_TO_INTEGER(prefix##2uint_rn, from, unsigned int, 0.0, 4294967295.0, rint)                  \
  EMULATOR_TO_INTEGER(prefix##2uint_rz, from, unsigned int, 0.0, 4294967295.0, trunc)                 \
  EMULATOR_TO_INTEGER(prefix##2uint_rd, from, unsigned int, 0.0, 4294967295.0, floor)                 \
  EMULATOR_TO_INTEGER(prefix##2uint_ru, from, unsigned int, 0.0, 4294967295.0, ceil)                  \
  EMULATOR_TO_INTEGER(prefix##2ll_rn, from, long long, -9223372036854775808.0, 9223372036854775808.0, rint)   \
  EMULATOR_TO_INTEGER(prefix##2ll_rz, from, long long, -9223372036854775808.0, 9223372036854775808.0, trunc)
EMULATOR_TO_INTEGERS(__float, float)
EMULATOR_TO_INTEGERS(__double, double)
#undef EMULATOR_TO_INTEGERS
#undef EMULATOR_TO_INTEGER
EMULATOR_INLINE float __int2float_rn(int x) { return (float)x; }
EMULATOR_INLINE float __uint2float_rn(unsigned int x) { return (float)x; }
EMULATOR_INLINE float __ll2float_rn(long long x) { return (float)x; }
EMULATOR_INLINE double __int2double_rn(int x) { return (double)x; }
EMULATOR_INLINE float __double2float_rn(double x) { return (float)x; }
template <class To, class From> EMULATOR_INLINE To emulator_bits(From value) {
  To result;
  static_assert(sizeof result == sizeof value, "");
  __builtin_memcpy(&result, &value, sizeof result);
  return result;
}
EMULATOR_INLINE int __float_as_int(float x) { return emulator_bits<int>(x); }
EMULATOR_INLINE unsigned int __float_as_uint(float x) { return emulator_bits<unsigned int>(x); }
EMULATOR_INLINE float __int_as_float(int x) { return emulator_bits<float>(x); }
EMULATOR_INLINE float __uint_as_float(unsigned int x) { return emulator_bits<float>(x); }
EMULATOR_INLINE long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
EMULATOR_INLINE double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
EMULATOR_INLINE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
EMULATOR_INLINE int __double2loint(double x) { return (int)__double_as_longlong(x); }
EMULATOR_INLINE double __hiloint2double(int high, int low) { return __longlong_as_double((long long)((unsigned long long)(unsigned int)high << 32 | (unsigned int)low)); }

/* ---- integers and bits */
#define EMULATOR_MINMAX(type)                                                \
  EMULATOR_INLINE type min(type x, type y) { return y < x ? y : x; }         \
  EMULATOR_INLINE type max(type x, type y) { return x < y ? y : x; }
EMULATOR_MINMAX(int) EMULATOR_MINMAX(unsigned int) EMULATOR_MINMAX(long) EMULATOR_MINMAX(unsigned long) EMULATOR_MINMAX(long long) EMULATOR_MINMAX(unsigned long long)
#undef EMULATOR_MINMAX
EMULATOR_INLINE unsigned int min(int x, unsigned int y) { return min((unsigned int)x, y); }
EMULATOR_INLINE unsigned int min(unsigned int x, int y) { return min(x, (unsigned int)y); }
EMULATOR_INLINE unsigned int max(int x, unsigned int y) { return max((unsigned int)x, y); }
EMULATOR_INLINE unsigned int max(unsigned int x, int y) { return max(x, (unsigned int)y); }
EMULATOR_INLINE float min(float x, float y) { return fminf(x, y); }
EMULATOR_INLINE float max(float x, float y) { return fmaxf(x, y); }
EMULATOR_INLINE double min(double x, double y) { return fmin(x, y); }
EMULATOR_INLINE double max(double x, double y) { return fmax(x, y); }
EMULATOR_INLINE double min(float x, double y) { return fmin((double)x, y); }
EMULATOR_INLINE double min(double x, float y) { return fmin(x, (double)y); }
EMULATOR_INLINE double max(float x, double y) { return fmax((double)x, y); }
EMULATOR_INLINE double max(double x, float y) { return fmax(x, (double)y); }
EMULATOR_INLINE unsigned int umin(unsigned int x, unsigned int y) { return min(x, y); }
EMULATOR_INLINE unsigned int umax(unsigned int x, unsigned int y) { return max(x, y); }
EMULATOR_INLINE int __popc(unsigned int x) { return __builtin_popcount(x); }
EMULATOR_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMULATOR_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
EMULATOR_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
EMULATOR_INLINE int __ffs(int x) { return __builtin_ffs(x); }
EMULATOR_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
EMULATOR_INLINE unsigned int __brev(unsigned int x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
EMULATOR_INLINE unsigned long long __brevll(unsigned long long x) { return (unsigned long long)__brev((unsigned int)x) << 32 | __brev((unsigned int)(x >> 32)); }
/* Byte i of the result is byte (selector >> 4 i) & 7 of y:x, or its sign eight times where bit 3 is set. */
EMULATOR_INLINE unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
  const unsigned long long both = (unsigned long long)y << 32 | x;
  unsigned int result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned int which = selector >> (4 * i) & 15, byte = (unsigned int)(both >> (8 * (which & 7))) & 255;
    result |= (which & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}
EMULATOR_INLINE int __mul24(int x, int y) { return (int)((unsigned int)(x << 8 >> 8) * (unsigned int)(y << 8 >> 8)); }
EMULATOR_INLINE unsigned int __umul24(unsigned int x, unsigned int y) { return (x & 0xffffffu) * (y & 0xffffffu); }
EMULATOR_INLINE int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
EMULATOR_INLINE unsigned int __umulhi(unsigned int x, unsigned int y) { return (unsigned int)((unsigned long long)x * y >> 32); }
EMULATOR_INLINE long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
EMULATOR_INLINE unsigned long long __umul64hi(unsigned long long x, unsigned long long y) { return (unsigned long long)((unsigned __int128)x * y >> 64); }
EMULATOR_INLINE unsigned int __sad(int x, int y, unsigned int z) { return z + (unsigned int)(x > y ? (unsigned int)x - (unsigned int)y : (unsigned int)y - (unsigned int)x); }
EMULATOR_INLINE int __hadd(int x, int y) { return (int)(((long long)x + y) >> 1); }
EMULATOR_INLINE unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
  return (unsigned int)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
EMULATOR_INLINE unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
  return (unsigned int)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

/* ---- loads and stores with a hint for the caches: ordinary accesses here */
template <class T> EMULATOR_INLINE T __ldg(const T* address) { return *address; }
template <class T> EMULATOR_INLINE T __ldcg(const T* address) { return *address; }
template <class T> EMULATOR_INLINE T __ldca(const T* address) { return *address; }
template <class T> EMULATOR_INLINE T __ldcs(const T* address) { return *address; }
template <class T> EMULATOR_INLINE T __ldlu(const T* address) { return *address; }
template <class T> EMULATOR_INLINE T __ldcv(const T* address) { return *address; }
template <class T> EMULATOR_INLINE void __stcg(T* address, T value) { *address = value; }
template <class T> EMULATOR_INLINE void __stcs(T* address, T value) { *address = value; }
template <class T> EMULATOR_INLINE void __stwb(T* address, T value) { *address = value; }
template <class T> EMULATOR_INLINE void __stwt(T* address, T value) { *address = value; }
#define __builtin_assume(condition) ((void)0)
