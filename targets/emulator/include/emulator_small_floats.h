// Floats of 8 and 16 bits as bits: to float32 and back, rounded to nearest (ties to even), and a fused multiply-add rounded once.
// The types of CUDA that hold them are in cuda_fp16.h, cuda_bf16.h and cuda_fp8.h. Needs gradual underflow: no -ffast-math.
#pragma once
#include <stdint.h>

namespace emulator {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline uint64_t bits_of(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

inline double double_of(uint64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

// double to float so that a second rounding, to a type of at most 22 bits, is right: of the two neighbours the one with an odd last bit.
inline float round_to_odd(double x) {
  float nearest = (float)x;
  double magnitude = x < 0 ? -x : x, rounded = nearest < 0 ? -(double)nearest : (double)nearest;
  if (!(rounded < magnitude || rounded > magnitude)) return nearest;
  return float_of((bits_of(nearest) - (rounded > magnitude)) | 1);
}

// a * b + c, rounded to odd. The product of two numbers of at most 11 bits is exact in double; what the sum loses is Knuth's error term.
inline float fused_to_odd(float a, float b, float c) {
  double product = (double)a * b, addend = c, sum = product + addend, part = sum - product;
  double lost = (product - (sum - part)) + (addend - part);
  uint64_t bits = bits_of(sum);
  if (sum - sum == 0 && lost != 0 && (bits & 1) == 0) sum = double_of((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
  return round_to_odd(sum);
}

// overflow: the code of what is too large: infinity, or NaN in a format without infinities. not_a_number: the code that the hardware makes.
template <int width, int mantissa, int bias, uint32_t overflow, uint32_t not_a_number>
struct SmallFloat {
  static constexpr uint32_t sign_bit = 1u << (width - 1), magnitude_bits = sign_bit - 1, largest = overflow - 1;
  static constexpr bool has_infinity = overflow != not_a_number;

  // Exact. The multiplication puts the exponent right and makes denormals normal.
  static float widen(uint32_t code) {
    uint32_t magnitude = code & magnitude_bits, sign = (code & sign_bit) << (32 - width);
    uint32_t value = bits_of(float_of(magnitude << (23 - mantissa)) * float_of((uint32_t)(254 - bias) << 23));
    if (magnitude >= overflow) value = has_infinity && magnitude == overflow ? 0x7f800000u : 0x7fffffffu;
    return float_of(value | sign);
  }

  // Normal results are rounded as integers; adding a float whose last place is the least denormal rounds the others.
  static uint32_t narrow(float x) {
    constexpr int drop = 23 - mantissa;
    constexpr uint32_t least_normal = (uint32_t)(128 - bias) << 23, magic = (uint32_t)(127 - bias - mantissa + 1 + 23) << 23;
    uint32_t value = bits_of(x) & 0x7fffffffu, sign = bits_of(x) >> 31 << (width - 1), code;
    if (value > 0x7f800000u) return not_a_number;
    if (value < least_normal)
      code = bits_of(float_of(value) + float_of(magic)) - magic;
    else
      code = (value - ((uint32_t)(127 - bias) << 23) + ((1u << (drop - 1)) - 1) + (value >> drop & 1)) >> drop;
    return (code > overflow ? overflow : code) | sign;
  }

  // The nearest number not above x (direction -1), not below it (1), or not beyond it from zero (0).
  static uint32_t narrow_directed(float x, int direction) {
    uint32_t code = narrow(x);
    float value = widen(code);
    if (direction == 0) direction = x < 0 ? 1 : -1;
    bool is_beyond = direction < 0 ? value > x : value < x;
    return is_beyond ? ((code & sign_bit) != 0) == (direction < 0) ? code + 1 : code - 1 : code;
  }

  // As narrow, but what is too large (infinities too) becomes the largest finite number.
  static uint32_t narrow_saturated(float x) {
    uint32_t code = narrow(x);
    return x == x && (code & magnitude_bits) >= overflow ? (code & sign_bit) | largest : code;
  }
};

typedef SmallFloat<16, 10, 15, 0x7c00, 0x7fff> Float16;
typedef SmallFloat<16, 7, 127, 0x7f80, 0x7fff> BFloat16;
typedef SmallFloat<8, 3, 7, 0x7f, 0x7f> Float8E4M3;
typedef SmallFloat<8, 2, 15, 0x7c, 0x7f> Float8E5M2;

// float32 with the mantissa of tf32, as cvt.rna.tf32 rounds it: to nearest, ties away from zero.
inline float round_tf32(float x) {
  uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return float_of(0x7fffffffu);
  if ((bits & 0x7fffffffu) == 0x7f800000u) return x;
  return float_of((bits + 0x1000u) & ~0x1fffu);
}

}  // namespace emulator
