// What a warp computes together on matrices in registers, for mma.h (fragments of any layout) and tilewright_ptx.h (those of the PTX ISA).
//
// Products of small floats are exact in double and their sum is rounded once to the accumulator's type. The hardware adds them in an order and
// with a rounding of its own, which NVIDIA does not document: its results differ in the last bits. Integers wrap, as on the hardware.
#pragma once
#include "emulator_abi.h"
#include "emulator_small_floats.h"

namespace emulator {

constexpr unsigned WHOLE_WARP = 0xffffffffu;

// Waits for all 32 lanes. A warp of fewer, or one with lanes that have ended, cannot do these instructions: that is reported, or an error where
// nothing is checked.
struct WarpOperand {
  void* operand;
  const void* place;
};

template <EmulatorComplete* complete>
EMULATOR_QUIET inline void complete_for_whole_warp(void* const* lanes, unsigned arrived, unsigned long long argument) {
  if (arrived == WHOLE_WARP) {
    void* operands[32];
    for (int lane = 0; lane < 32; ++lane) operands[lane] = ((const WarpOperand*)lanes[lane])->operand;
    complete(operands, arrived, argument);
    return;
  }
#ifdef EMULATOR_CHECKED
  unsigned first = (unsigned)__builtin_ctz(arrived);
  emulator_inactive(first, (unsigned)__builtin_ctz(~arrived), ((const WarpOperand*)lanes[first])->place);
#else
  emulator_trap("a matrix instruction needs all 32 lanes of the warp; some do not exist or have ended");
#endif
}

template <EmulatorComplete* complete>
EMULATOR_QUIET inline void whole_warp(void* operand, unsigned long long argument, const void* place) {
  WarpOperand mine = {operand, place};
  emulator_collective_at(WHOLE_WARP, &mine, complete_for_whole_warp<complete>, argument, place);
}

EMULATOR_QUIET inline void complete_nothing(void* const*, unsigned, unsigned long long) {}

// d[m, n] = a[m, k] * b[k, n] + c[m, n], with b given transposed.
template <int m, int n, int k>
EMULATOR_QUIET inline void multiply(const double (&a)[m][k], const double (&b)[n][k], double (&c)[m][n]) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) sum += a[i][l] * b[j][l];
      c[i][j] += sum;
    }
}

template <int m, int n, int k>
EMULATOR_QUIET inline void multiply(const int (&a)[m][k], const int (&b)[n][k], int (&c)[m][n]) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      unsigned sum = (unsigned)c[i][j];
      for (int l = 0; l < k; ++l) sum += (unsigned)(a[i][l] * b[j][l]);
      c[i][j] = (int)sum;
    }
}

// How an element is kept in a register of 32 bits, and the type that it is computed in.
template <typename Format, int width>
struct PackedFloat {
  typedef double Value;
  static constexpr int per_register = 32 / width;
  EMULATOR_QUIET static double get(unsigned bits, int i) { return Format::widen(bits >> (i * width) & ((1u << width) - 1)); }
};

struct PackedF16 : PackedFloat<Float16, 16> {};
struct PackedBF16 : PackedFloat<BFloat16, 16> {};
struct PackedE4M3 : PackedFloat<Float8E4M3, 8> {};
struct PackedE5M2 : PackedFloat<Float8E5M2, 8> {};

struct PackedTF32 {
  typedef double Value;
  static constexpr int per_register = 1;
  EMULATOR_QUIET static double get(unsigned bits, int) { return float_of(bits & ~0x1fffu); }  // the hardware does not look at the others
};

struct PackedS8 {
  typedef int Value;
  static constexpr int per_register = 4;
  EMULATOR_QUIET static int get(unsigned bits, int i) { return (signed char)(bits >> (8 * i)); }
};

struct PackedU8 {
  typedef int Value;
  static constexpr int per_register = 4;
  EMULATOR_QUIET static int get(unsigned bits, int i) { return (int)(bits >> (8 * i) & 0xff); }
};

}  // namespace emulator
