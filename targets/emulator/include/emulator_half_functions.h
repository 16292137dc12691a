// What __half and __nv_bfloat16 have in common, included once for each: TW_SCALAR, TW_PAIR and their raw forms name the types, TW_FORMAT the
// bits. Sums, products, quotients and square roots of such numbers, rounded to float and then again, are right (24 >= 2 * 11 + 2 bits: Figueroa,
// "When is double rounding innocuous?"); multiply-adds are not, and go through round-to-odd. No include guard: it is meant to be included twice.

#ifndef TW_HALF_ONCE
#define TW_HALF_ONCE
#include <limits>
#include <type_traits>

namespace emulator {

// A float as an integer, as cvt does it: rounded towards zero, what does not fit becomes the nearest integer that does, NaN 0.
template <typename Integer>
inline Integer to_integer(float x) {
  constexpr Integer top = std::numeric_limits<Integer>::max(), bottom = std::numeric_limits<Integer>::min();
  if (x != x) return 0;
  if (x >= (float)top) return top;
  if (x <= (float)bottom) return bottom;
  return (Integer)x;
}

// Integers above 2^24 must not be rounded twice.
inline float narrowable(double x) { return round_to_odd(x); }
inline float narrowable(float x) { return x; }
inline float narrowable(int x) { return round_to_odd((double)x); }
inline float narrowable(unsigned x) { return round_to_odd((double)x); }
template <typename Integer>
inline float narrowable(Integer x) {
  if (sizeof(Integer) < 8) return (float)x;
  unsigned long long magnitude = x < 0 ? 0ull - (unsigned long long)x : (unsigned long long)x;
  if (magnitude >> 53) magnitude = magnitude >> 11 << 11 | (unsigned long long)((magnitude & 0x7ff) != 0) << 11;
  float value = round_to_odd((double)magnitude);
  return x < 0 ? -value : value;
}

}  // namespace emulator
#endif

struct TW_SCALAR {
  unsigned short bits;

  TW_SCALAR() = default;
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic<Number>::value>>
  TW_SCALAR(Number x) : bits((unsigned short)TW_FORMAT::narrow(emulator::narrowable(x))) {}
  TW_SCALAR(TW_RAW raw) : bits(raw.x) {}
  operator TW_RAW() const { return TW_RAW{bits}; }
  operator float() const { return TW_FORMAT::widen(bits); }
};

struct alignas(4) TW_PAIR {
  TW_SCALAR x, y;

#ifdef EMULATOR_CHECKED  // copied as one access, as a GPU does
  typedef unsigned Word __attribute__((may_alias));
  __attribute__((always_inline)) TW_PAIR(const TW_PAIR& other) { *(Word*)this = *(const Word*)&other; }
  __attribute__((always_inline)) TW_PAIR& operator=(const TW_PAIR& other) { *(Word*)this = *(const Word*)&other; return *this; }
#endif
  TW_PAIR() = default;
  TW_PAIR(TW_SCALAR low, TW_SCALAR high) : x(low), y(high) {}
  TW_PAIR(TW_PAIR_RAW raw) : x(TW_RAW{raw.x}), y(TW_RAW{raw.y}) {}
  operator TW_PAIR_RAW() const { return TW_PAIR_RAW{x.bits, y.bits}; }
};

inline float __low2float(TW_PAIR p) { return (float)p.x; }
inline float __high2float(TW_PAIR p) { return (float)p.y; }
inline TW_PAIR __lowhigh2highlow(TW_PAIR p) { return TW_PAIR(p.y, p.x); }

// ---- arithmetic: of scalars, of pairs, as operators

#define TW_BINARY(scalar, pair, expression)                                                        \
  inline TW_SCALAR scalar(TW_SCALAR a, TW_SCALAR b) {                                            \
    float x = (float)a, y = (float)b;                                                          \
    return TW_SCALAR((float)(expression));                                                     \
  }                                                                                              \
  inline TW_PAIR pair(TW_PAIR a, TW_PAIR b) { return TW_PAIR(scalar(a.x, b.x), scalar(a.y, b.y)); }

#define TW_SATURATED(scalar, pair, expression)                                                     \
  inline TW_SCALAR scalar(TW_SCALAR a, TW_SCALAR b) {                                            \
    float x = (float)a, y = (float)b, r = (float)TW_SCALAR((float)(expression));               \
    return TW_SCALAR(r > 0 ? r < 1 ? r : 1.0f : 0.0f);                                         \
  }                                                                                              \
  inline TW_PAIR pair(TW_PAIR a, TW_PAIR b) { return TW_PAIR(scalar(a.x, b.x), scalar(a.y, b.y)); }

#define TW_OPERATOR(sign, scalar, pair)                                                            \
  inline TW_SCALAR operator sign(TW_SCALAR a, TW_SCALAR b) { return scalar(a, b); }              \
  inline TW_PAIR operator sign(TW_PAIR a, TW_PAIR b) { return pair(a, b); }                      \
  inline TW_SCALAR &operator sign##=(TW_SCALAR &a, TW_SCALAR b) { return a = scalar(a, b); }     \
  inline TW_PAIR &operator sign##=(TW_PAIR &a, TW_PAIR b) { return a = pair(a, b); }

TW_BINARY(__hadd, __hadd2, x + y)
TW_BINARY(__hsub, __hsub2, x - y)
TW_BINARY(__hmul, __hmul2, x *y)
TW_BINARY(__hdiv, __h2div, x / y)
TW_BINARY(__hadd_rn, __hadd2_rn, x + y)
TW_BINARY(__hsub_rn, __hsub2_rn, x - y)
TW_BINARY(__hmul_rn, __hmul2_rn, x *y)
TW_SATURATED(__hadd_sat, __hadd2_sat, x + y)
TW_SATURATED(__hsub_sat, __hsub2_sat, x - y)
TW_SATURATED(__hmul_sat, __hmul2_sat, x *y)
// Of a number and NaN the number; of the two zeros +0 is the larger.
TW_BINARY(__hmax, __hmax2, x != x ? y : y != y ? x : x == y ? (__builtin_signbit(x) ? y : x) : x > y ? x : y)
TW_BINARY(__hmin, __hmin2, x != x ? y : y != y ? x : x == y ? (__builtin_signbit(x) ? x : y) : x < y ? x : y)
TW_BINARY(__hmax_nan, __hmax2_nan, x != x ? x : y != y ? y : x == y ? (__builtin_signbit(x) ? y : x) : x > y ? x : y)
TW_BINARY(__hmin_nan, __hmin2_nan, x != x ? x : y != y ? y : x == y ? (__builtin_signbit(x) ? x : y) : x < y ? x : y)
TW_OPERATOR(+, __hadd, __hadd2)
TW_OPERATOR(-, __hsub, __hsub2)
TW_OPERATOR(*, __hmul, __hmul2)
TW_OPERATOR(/, __hdiv, __h2div)

inline TW_SCALAR __hneg(TW_SCALAR x) { return TW_SCALAR(TW_RAW{(unsigned short)(x.bits ^ 0x8000)}); }
inline TW_PAIR __hneg2(TW_PAIR p) { return TW_PAIR(__hneg(p.x), __hneg(p.y)); }
inline TW_SCALAR __habs(TW_SCALAR x) { return TW_SCALAR(TW_RAW{(unsigned short)(x.bits & 0x7fff)}); }
inline TW_PAIR __habs2(TW_PAIR p) { return TW_PAIR(__habs(p.x), __habs(p.y)); }
inline TW_SCALAR operator+(TW_SCALAR x) { return x; }
inline TW_SCALAR operator-(TW_SCALAR x) { return __hneg(x); }
inline TW_PAIR operator+(TW_PAIR p) { return p; }
inline TW_PAIR operator-(TW_PAIR p) { return __hneg2(p); }
inline TW_SCALAR &operator++(TW_SCALAR &x) { return x = __hadd(x, TW_SCALAR(1.0f)); }
inline TW_SCALAR &operator--(TW_SCALAR &x) { return x = __hsub(x, TW_SCALAR(1.0f)); }

inline TW_SCALAR __hfma(TW_SCALAR a, TW_SCALAR b, TW_SCALAR c) { return TW_SCALAR(emulator::fused_to_odd((float)a, (float)b, (float)c)); }
inline TW_PAIR __hfma2(TW_PAIR a, TW_PAIR b, TW_PAIR c) { return TW_PAIR(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }
inline TW_SCALAR __hfma_relu(TW_SCALAR a, TW_SCALAR b, TW_SCALAR c) { return __hmax_nan(__hfma(a, b, c), TW_SCALAR(0.0f)); }
inline TW_PAIR __hfma2_relu(TW_PAIR a, TW_PAIR b, TW_PAIR c) { return TW_PAIR(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); }
inline TW_SCALAR __hfma_sat(TW_SCALAR a, TW_SCALAR b, TW_SCALAR c) {
  float r = (float)__hfma(a, b, c);
  return TW_SCALAR(r > 0 ? r < 1 ? r : 1.0f : 0.0f);
}
inline TW_PAIR __hfma2_sat(TW_PAIR a, TW_PAIR b, TW_PAIR c) { return TW_PAIR(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); }
// a * b + c of complex numbers, in the order of CUDA's
inline TW_PAIR __hcmadd(TW_PAIR a, TW_PAIR b, TW_PAIR c) {
  return TW_PAIR(__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y)));
}

#ifdef EMULATOR_ARCH
EMULATOR_FUNCTION TW_SCALAR atomicAdd(TW_SCALAR* address, TW_SCALAR value) {
  emulator_before_atomic(address, sizeof value, EMULATOR_HERE);
  return emulator_update(address, [=](TW_SCALAR old) EMULATOR_QUIET -> TW_SCALAR { return __hadd(old, value); });
}
EMULATOR_FUNCTION TW_PAIR atomicAdd(TW_PAIR* address, TW_PAIR value) {
  emulator_before_atomic(address, sizeof value, EMULATOR_HERE);
  return emulator_update(address, [=](TW_PAIR old) EMULATOR_QUIET -> TW_PAIR { return __hadd2(old, value); });
}
#endif

// ---- comparisons: of scalars; of pairs, giving a pair of 0 and 1, a mask, or whether it holds for both

#define TW_PAIRWISE(name, both)                                                                                                        \
  inline TW_PAIR name##2(TW_PAIR a, TW_PAIR b) { return TW_PAIR(TW_SCALAR(name(a.x, b.x) ? 1.0f : 0.0f), TW_SCALAR(name(a.y, b.y) ? 1.0f : 0.0f)); } \
  inline unsigned name##2_mask(TW_PAIR a, TW_PAIR b) { return (name(a.x, b.x) ? 0xffffu : 0) | (name(a.y, b.y) ? 0xffff0000u : 0); }      \
  inline bool both(TW_PAIR a, TW_PAIR b) { return name(a.x, b.x) && name(a.y, b.y); }

#define TW_COMPARISON(word, sign)                                                                                                      \
  inline bool __h##word(TW_SCALAR a, TW_SCALAR b) { return (float)a sign(float) b; }                                                  \
  inline bool __h##word##u(TW_SCALAR a, TW_SCALAR b) { return (float)a sign(float) b || (float)a != (float)a || (float)b != (float)b; } \
  TW_PAIRWISE(__h##word, __hb##word##2)                                                                                                \
  TW_PAIRWISE(__h##word##u, __hb##word##u2)                                                                                            \
  inline bool operator sign(TW_SCALAR a, TW_SCALAR b) { return __h##word(a, b); }                                                     \
  inline bool operator sign(TW_PAIR a, TW_PAIR b) { return __hb##word##2(a, b); }

TW_COMPARISON(eq, ==)
TW_COMPARISON(lt, <)
TW_COMPARISON(le, <=)
TW_COMPARISON(gt, >)
TW_COMPARISON(ge, >=)
// Ordered, as in CUDA: __hne of a NaN is false; the operator's is true.
inline bool __hne(TW_SCALAR a, TW_SCALAR b) { return (float)a < (float)b || (float)a > (float)b; }
inline bool __hneu(TW_SCALAR a, TW_SCALAR b) { return (float)a != (float)b; }
TW_PAIRWISE(__hne, __hbne2)
TW_PAIRWISE(__hneu, __hbneu2)
inline bool operator!=(TW_SCALAR a, TW_SCALAR b) { return __hneu(a, b); }
inline bool operator!=(TW_PAIR a, TW_PAIR b) { return __hbneu2(a, b); }
inline bool __hisnan(TW_SCALAR x) { return (float)x != (float)x; }
inline TW_PAIR __hisnan2(TW_PAIR p) { return __hneu2(p, p); }
inline int __hisinf(TW_SCALAR x) { return __builtin_isinf((float)x) ? (x.bits & 0x8000 ? -1 : 1) : 0; }

// ---- functions, by those of float. The hardware's are approximations too: h2exp and its like are not the same to the last bit.

#define TW_FUNCTION(name, expression)                                                              \
  inline TW_SCALAR h##name(TW_SCALAR a) {                                                        \
    float x = (float)a;                                                                        \
    return TW_SCALAR((float)(expression));                                                     \
  }                                                                                              \
  inline TW_PAIR h2##name(TW_PAIR p) { return TW_PAIR(h##name(p.x), h##name(p.y)); }

TW_FUNCTION(sqrt, __builtin_sqrtf(x))
TW_FUNCTION(rsqrt, 1.0 / __builtin_sqrt(x))
TW_FUNCTION(rcp, 1.0f / x)
TW_FUNCTION(exp, __builtin_expf(x))
TW_FUNCTION(exp2, __builtin_exp2f(x))
TW_FUNCTION(exp10, __builtin_pow(10.0, x))
TW_FUNCTION(log, __builtin_logf(x))
TW_FUNCTION(log2, __builtin_log2f(x))
TW_FUNCTION(log10, __builtin_log10f(x))
TW_FUNCTION(sin, __builtin_sinf(x))
TW_FUNCTION(cos, __builtin_cosf(x))
TW_FUNCTION(tanh, __builtin_tanhf(x))
TW_FUNCTION(ceil, __builtin_ceilf(x))
TW_FUNCTION(floor, __builtin_floorf(x))
TW_FUNCTION(rint, __builtin_rintf(x))
TW_FUNCTION(trunc, __builtin_truncf(x))

#undef TW_BINARY
#undef TW_SATURATED
#undef TW_OPERATOR
#undef TW_COMPARISON
#undef TW_PAIRWISE
#undef TW_FUNCTION
#undef TW_SCALAR
#undef TW_PAIR
#undef TW_RAW
#undef TW_PAIR_RAW
#undef TW_FORMAT
