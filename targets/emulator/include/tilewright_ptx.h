// The functions that Tilewright's generated kernels have instead of PTX instructions (targets/cuda_helpers.py has the PTX), for the emulator:
// tensor cores and ldmatrix with the register layouts of the PTX ISA, asynchronous copies that land when they are waited for, dp4a, and halves.
#pragma once
#include "emulator_warp_matrix.h"

namespace emulator {

struct ProductOperands {
  void* d;
  const void *a, *b, *c;
};

// mma.sync of shape m16n8k*: `registers` of a (2 or 4); b has half as many. PTX ISA, "Matrix Fragments for mma": lanes are eight groups of four. A
// register of a holds row group (even ones) or group + 8 (odd ones), one of b column group; both the same columns or rows of k: those of
// the lane's place in its group, then (registers 2 and 3 of a, 1 of b) those of the upper half of k. c: rows group and group + 8, two columns.
template <typename A, typename B, int registers, bool half_accumulator>
EMULATOR_QUIET inline void complete_product(void* const* lanes, unsigned, unsigned long long) {
  typedef typename A::Value Value;
  constexpr int per_register = A::per_register, depth = registers * 2 * per_register;
  Value a[16][depth], b[8][depth], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const ProductOperands& mine = *(const ProductOperands*)lanes[lane];
    int group = lane / 4, member = lane % 4;
    for (int r = 0; r < registers; ++r)
      for (int i = 0; i < per_register; ++i) {
        int column = (r / 2 * 4 + member) * per_register + i;
        a[group + 8 * (r % 2)][column] = A::get(((const unsigned*)mine.a)[r], i);
        if (r % 2 == 0) b[group][column] = B::get(((const unsigned*)mine.b)[r / 2], i);
      }
    for (int i = 0; i < 4; ++i) {
      Value& element = c[group + 8 * (i / 2)][member * 2 + i % 2];
      if (half_accumulator)
        element = Float16::widen(((const unsigned short*)mine.c)[i]);
      else if (sizeof(Value) == sizeof(int))
        element = ((const int*)mine.c)[i];
      else
        element = ((const float*)mine.c)[i];
    }
  }
  multiply(a, b, c);
  for (int lane = 0; lane < 32; ++lane) {
    void* d = ((const ProductOperands*)lanes[lane])->d;
    for (int i = 0; i < 4; ++i) {
      Value element = c[lane / 4 + 8 * (i / 2)][lane % 4 * 2 + i % 2];
      if (half_accumulator)
        ((unsigned short*)d)[i] = (unsigned short)Float16::narrow(round_to_odd(element));
      else if (sizeof(Value) == sizeof(int))
        ((int*)d)[i] = (int)element;
      else
        ((float*)d)[i] = (float)element;
    }
  }
}

template <typename A, typename B, int registers, bool half_accumulator>
EMULATOR_QUIET inline void product(void* d, const void* a, const void* b, const void* c, const void* place) {
  ProductOperands mine = {d, a, b, c};
  whole_warp<complete_product<A, B, registers, half_accumulator>>(&mine, 0, place);
}

struct LoadedRows {
  void* registers;
  const void* row;
};

// ldmatrix: lane 8 * i + j gives row j of matrix i, eight elements of 16 bits; a lane receives two neighbours of row lane / 4, or of column
// lane / 4 where matrices are transposed. PTX ISA, "Warp-level matrix load instruction: ldmatrix".
template <int count, bool transposed>
EMULATOR_QUIET inline void complete_ldmatrix(void* const* lanes, unsigned, unsigned long long) {
  for (int matrix = 0; matrix < count; ++matrix) {
    unsigned short element[8][8];
    for (int row = 0; row < 8; ++row) __builtin_memcpy(element[row], ((const LoadedRows*)lanes[matrix * 8 + row])->row, 16);
    for (int lane = 0; lane < 32; ++lane) {
      int group = lane / 4, pair = lane % 4 * 2;
      unsigned low = transposed ? element[pair][group] : element[group][pair], high = transposed ? element[pair + 1][group] : element[group][pair + 1];
      ((unsigned*)((const LoadedRows*)lanes[lane])->registers)[matrix] = low | high << 16;
    }
  }
}

}  // namespace emulator

// Noinline where accesses are checked: the return address is the place in the kernel.
template <int count, bool transposed>
EMULATOR_FUNCTION void emulator_ldmatrix(void* registers, const void* row) {
  emulator::LoadedRows mine = {registers, row};
  if (emulator_position.lane < 8 * count) {
    if ((unsigned long)row % 16 != 0) emulator_trap("ldmatrix: the address of a row must be a multiple of 16");
    emulator_access(row, 16, 0, EMULATOR_HERE);
  }
  emulator::whole_warp<emulator::complete_ldmatrix<count, transposed>>(&mine, 0, EMULATOR_HERE);
}

#define tw_ldmatrix_x1 emulator_ldmatrix<1, false>
#define tw_ldmatrix_x2 emulator_ldmatrix<2, false>
#define tw_ldmatrix_x4 emulator_ldmatrix<4, false>
#define tw_ldmatrix_x1_trans emulator_ldmatrix<1, true>
#define tw_ldmatrix_x2_trans emulator_ldmatrix<2, true>
#define tw_ldmatrix_x4_trans emulator_ldmatrix<4, true>

#define EMULATOR_PRODUCT(name, accumulator, ...)                                                      \
  EMULATOR_FUNCTION void name(accumulator* d, const void* a, const void* b, const accumulator* c) { \
    emulator::product<__VA_ARGS__>(d, a, b, c, EMULATOR_HERE);                                                       \
  }
EMULATOR_PRODUCT(tw_mma_m16n8k8_f16_f32, float, emulator::PackedF16, emulator::PackedF16, 2, false)
EMULATOR_PRODUCT(tw_mma_m16n8k16_f16_f32, float, emulator::PackedF16, emulator::PackedF16, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k8_f16_f16, void, emulator::PackedF16, emulator::PackedF16, 2, true)
EMULATOR_PRODUCT(tw_mma_m16n8k16_f16_f16, void, emulator::PackedF16, emulator::PackedF16, 4, true)
EMULATOR_PRODUCT(tw_mma_m16n8k8_bf16_f32, float, emulator::PackedBF16, emulator::PackedBF16, 2, false)
EMULATOR_PRODUCT(tw_mma_m16n8k16_bf16_f32, float, emulator::PackedBF16, emulator::PackedBF16, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k4_tf32_f32, float, emulator::PackedTF32, emulator::PackedTF32, 2, false)
EMULATOR_PRODUCT(tw_mma_m16n8k8_tf32_f32, float, emulator::PackedTF32, emulator::PackedTF32, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k16_s8_s32, int, emulator::PackedS8, emulator::PackedS8, 2, false)
EMULATOR_PRODUCT(tw_mma_m16n8k16_u8_s32, int, emulator::PackedU8, emulator::PackedU8, 2, false)
EMULATOR_PRODUCT(tw_mma_m16n8k16_s8_u8_s32, int, emulator::PackedS8, emulator::PackedU8, 2, false)
EMULATOR_PRODUCT(tw_mma_m16n8k16_u8_s8_s32, int, emulator::PackedU8, emulator::PackedS8, 2, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_s8_s32, int, emulator::PackedS8, emulator::PackedS8, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_u8_s32, int, emulator::PackedU8, emulator::PackedU8, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_s8_u8_s32, int, emulator::PackedS8, emulator::PackedU8, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_u8_s8_s32, int, emulator::PackedU8, emulator::PackedS8, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_e4m3_f32, float, emulator::PackedE4M3, emulator::PackedE4M3, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_e5m2_f32, float, emulator::PackedE5M2, emulator::PackedE5M2, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_e4m3_e5m2_f32, float, emulator::PackedE4M3, emulator::PackedE5M2, 4, false)
EMULATOR_PRODUCT(tw_mma_m16n8k32_e5m2_e4m3_f32, float, emulator::PackedE5M2, emulator::PackedE4M3, 4, false)
#undef EMULATOR_PRODUCT

#define EMULATOR_COPY(size)                                                                                                 \
  EMULATOR_FUNCTION void tw_cp_async_##size(void* shared, const void* global) {                                             \
    emulator_async_copy(shared, global, size, size, EMULATOR_HERE);                                           \
  }                                                                                                                         \
  EMULATOR_FUNCTION void tw_cp_async_zfill_##size(void* shared, const void* global, int bytes) {                            \
    emulator_async_copy(shared, global, size, bytes < 0 ? 0 : bytes < size ? (unsigned)bytes : size, EMULATOR_HERE);    \
  }
EMULATOR_COPY(4)
EMULATOR_COPY(8)
EMULATOR_COPY(16)
#undef EMULATOR_COPY
EMULATOR_FUNCTION void tw_cp_async_commit() { emulator_async_commit(); }
template <int groups>
EMULATOR_FUNCTION void tw_cp_async_wait() { emulator_async_wait(groups); }

#define EMULATOR_DOT(name, result, first, first_byte, second, second_byte)                                                  \
  inline result name(first a, second b, result c) {                                                                         \
    for (int i = 0; i < 32; i += 8) c = (result)((unsigned)c + (unsigned)((first_byte)(a >> i) * (second_byte)(b >> i)));    \
    return c;                                                                                                               \
  }
EMULATOR_DOT(tw_dp4a_s8, int, int, signed char, int, signed char)
EMULATOR_DOT(tw_dp4a_u8, unsigned, unsigned, unsigned char, unsigned, unsigned char)
EMULATOR_DOT(tw_dp4a_s8_u8, int, int, signed char, unsigned, unsigned char)
EMULATOR_DOT(tw_dp4a_u8_s8, int, unsigned, unsigned char, int, signed char)
#undef EMULATOR_DOT

inline float tw_widen_float_float16(unsigned short x) { return emulator::Float16::widen(x); }
inline unsigned short tw_narrow_float_float16(float x) { return (unsigned short)emulator::Float16::narrow(x); }
inline float tw_widen_float_bfloat16(unsigned short x) { return emulator::BFloat16::widen(x); }
inline unsigned short tw_narrow_float_bfloat16(float x) { return (unsigned short)emulator::BFloat16::narrow(x); }
inline float tw_widen_float_float8_e4m3(unsigned char x) { return emulator::Float8E4M3::widen(x); }
inline unsigned char tw_narrow_float_float8_e4m3(float x) { return (unsigned char)emulator::Float8E4M3::narrow(x); }
inline float tw_widen_float_float8_e5m2(unsigned char x) { return emulator::Float8E5M2::widen(x); }
inline unsigned char tw_narrow_float_float8_e5m2(float x) { return (unsigned char)emulator::Float8E5M2::narrow(x); }
#define EMULATOR_ATOMIC_ADD(name, format)                                                                                     \
  EMULATOR_FUNCTION void name(unsigned short* address, unsigned short x) {                                                    \
    emulator_before_atomic(address, sizeof x, EMULATOR_HERE);                                                                 \
    emulator_update(address, [=](unsigned short old) EMULATOR_QUIET -> unsigned short {                                       \
      return (unsigned short)emulator::format::narrow(emulator::format::widen(old) + emulator::format::widen(x));             \
    });                                                                                                                       \
  }
EMULATOR_ATOMIC_ADD(tw_atomic_add_float16, Float16)
EMULATOR_ATOMIC_ADD(tw_atomic_add_bfloat16, BFloat16)
#undef EMULATOR_ATOMIC_ADD
inline float tw_round_tf32(float x) { return emulator::round_tf32(x); }

// Arithmetic of 16-bit floats as bits, rounded once, and the same of two in a word. Comparisons of pairs give ones where they hold.
inline unsigned tw_pair(unsigned short a, unsigned short b) { return (unsigned)a | (unsigned)b << 16; }
inline unsigned tw_select2(unsigned where, unsigned a, unsigned b) { return (where & a) | (~where & b); }

#define EMULATOR_HALVES(name, element, Format, expression)                                                                             \
  inline unsigned short tw_##name##_##element(unsigned short a, unsigned short b) {                                                    \
    float x = emulator::Format::widen(a), y = emulator::Format::widen(b);                                                            \
    return (unsigned short)emulator::Format::narrow(expression);                                                                      \
  }                                                                                                                                    \
  inline unsigned tw_##name##2_##element(unsigned a, unsigned b) {                                                                     \
    return tw_pair(tw_##name##_##element((unsigned short)a, (unsigned short)b), tw_##name##_##element((unsigned short)(a >> 16), (unsigned short)(b >> 16))); \
  }
#define EMULATOR_HALF_SIGN(name, element, Format, expression)                                                                          \
  inline unsigned short tw_##name##_##element(unsigned short a) { return (unsigned short)(expression); }                               \
  inline unsigned tw_##name##2_##element(unsigned a) { return tw_pair(tw_##name##_##element((unsigned short)a), tw_##name##_##element((unsigned short)(a >> 16))); }
#define EMULATOR_HALF_TEST(name, element, Format, sign)                                                                                \
  inline bool tw_##name##_##element(unsigned short a, unsigned short b) { return emulator::Format::widen(a) sign emulator::Format::widen(b); } \
  inline unsigned tw_##name##2_##element(unsigned a, unsigned b) {                                                                     \
    return (tw_##name##_##element((unsigned short)a, (unsigned short)b) ? 0xffffu : 0) |                                               \
           (tw_##name##_##element((unsigned short)(a >> 16), (unsigned short)(b >> 16)) ? 0xffff0000u : 0);                            \
  }
#define EMULATOR_ALL_OF_HALVES(element, Format)                                                                                        \
  EMULATOR_HALVES(add, element, Format, x + y)                                                                                         \
  EMULATOR_HALVES(sub, element, Format, x - y)                                                                                         \
  EMULATOR_HALVES(mul, element, Format, x *y)                                                                                          \
  EMULATOR_HALVES(max, element, Format, x != x ? x : y != y ? y : x == y ? (__builtin_signbit(x) ? y : x) : x > y ? x : y)             \
  EMULATOR_HALVES(min, element, Format, x != x ? x : y != y ? y : x == y ? (__builtin_signbit(x) ? x : y) : x < y ? x : y)             \
  EMULATOR_HALF_SIGN(neg, element, Format, a ^ 0x8000)                                                                                 \
  EMULATOR_HALF_SIGN(abs, element, Format, a & 0x7fff)                                                                                 \
  EMULATOR_HALF_TEST(eq, element, Format, ==)                                                                                          \
  EMULATOR_HALF_TEST(ne, element, Format, !=)                                                                                          \
  EMULATOR_HALF_TEST(lt, element, Format, <)                                                                                           \
  EMULATOR_HALF_TEST(le, element, Format, <=)                                                                                          \
  inline unsigned tw_narrow_pair_##element(float a, float b) { return tw_pair(tw_narrow_float_##element(a), tw_narrow_float_##element(b)); }
EMULATOR_ALL_OF_HALVES(float16, Float16)
EMULATOR_ALL_OF_HALVES(bfloat16, BFloat16)
#undef EMULATOR_ALL_OF_HALVES
#undef EMULATOR_HALVES
#undef EMULATOR_HALF_SIGN
#undef EMULATOR_HALF_TEST
