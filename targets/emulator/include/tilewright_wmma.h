// The wmma functions of Tilewright's generated kernels (targets/cuda_helpers.py has the PTX), for the emulator: those of mma.h on untyped memory and registers.
#pragma once
#include "mma.h"

namespace emulator {

// What a lane has of a fragment is what memory must be aligned to (PTX ISA, "Matrix Storage for WMMA"), and rows to 16 bytes (CUDA C++ Programming Guide).
template <typename Fragment>
EMULATOR_QUIET inline void check_tile(const void* memory, unsigned long row_bytes) {
#ifdef EMULATOR_CHECKED
  constexpr unsigned long alignment = sizeof(Fragment);
#else
  constexpr unsigned long alignment = sizeof(Fragment) < 16 ? sizeof(Fragment) : 16;  // as arrays of the host are
#endif
  if ((unsigned long)memory % alignment != 0 || row_bytes % 16 != 0)
    emulator_trap("wmma: the address of a matrix must be a multiple of what a lane has of its fragment, and the leading dimension of 16 bytes");
}

template <typename Fragment, bool by_columns>
EMULATOR_QUIET inline void load_tile(void* registers, const void* source, int stride, const void* where) {
  typedef typename Fragment::storage_element_type Element;
  check_tile<Fragment>(source, stride * sizeof(Element));
  load_fragment<Fragment, by_columns>(*(Fragment*)registers, (const Element*)source, (unsigned)stride, by_columns, where);
}

template <typename Fragment, bool by_columns>
EMULATOR_QUIET inline void store_tile(void* target, const void* registers, int stride, const void* where) {
  typedef typename Fragment::storage_element_type Element;
  check_tile<Fragment>(target, stride * sizeof(Element));
  store_fragment((Element*)target, *(const Fragment*)registers, (unsigned)stride, by_columns, where);
}

namespace wmma_names {
using nvcuda::wmma::fragment;
using nvcuda::wmma::accumulator;
typedef nvcuda::wmma::matrix_a a;
typedef nvcuda::wmma::matrix_b b;
typedef nvcuda::wmma::row_major row;
typedef nvcuda::wmma::col_major col;
typedef nvcuda::wmma::precision::tf32 tf32;
typedef __half f16;
typedef __nv_bfloat16 bf16;
typedef signed char s8;
typedef unsigned char u8;
typedef float f32;
typedef int s32;
}  // namespace wmma_names

}  // namespace emulator

// Templates, so that only what a kernel calls is compiled. Their return address is the place in the kernel.
#define EMULATOR_WMMA_FUNCTION template <int = 0> EMULATOR_FUNCTION void
#define EMULATOR_WMMA_LOAD(M, N, K, type, operand, order)                                                                                             \
  EMULATOR_WMMA_FUNCTION tw_wmma_load_##operand##_##order##_m##M##n##N##k##K##_##type(void* registers, const void* source, int stride) {             \
    using namespace emulator::wmma_names;                                                                                                             \
    emulator::load_tile<fragment<operand, M, N, K, type, order>, std::is_same<order, col>::value>(registers, source, stride, EMULATOR_HERE);          \
  }
#define EMULATOR_WMMA_STORE(M, N, K, type, order)                                                                                                     \
  EMULATOR_WMMA_FUNCTION tw_wmma_store_##order##_m##M##n##N##k##K##_##type(void* target, const void* registers, int stride) {                         \
    using namespace emulator::wmma_names;                                                                                                             \
    emulator::store_tile<fragment<accumulator, M, N, K, type>, std::is_same<order, col>::value>(target, registers, stride, EMULATOR_HERE);            \
  }
#define EMULATOR_WMMA_PRODUCT(M, N, K, type, sums, first, second)                                                                                     \
  EMULATOR_WMMA_FUNCTION tw_wmma_mma_##first##_##second##_m##M##n##N##k##K##_##type##_##sums(void* d, const void* x, const void* y, const void* c) {  \
    using namespace emulator::wmma_names;                                                                                                             \
    emulator::FragmentOperands mine = {d, x, y, c};                                                                                                   \
    emulator::whole_warp<emulator::complete_fragments<M, N, K, type, first, second, sums, sums>>(&mine, 0, EMULATOR_HERE);                            \
  }
#define EMULATOR_WMMA_LOADS(M, N, K, type)     \
  EMULATOR_WMMA_LOAD(M, N, K, type, a, row)    \
  EMULATOR_WMMA_LOAD(M, N, K, type, a, col)    \
  EMULATOR_WMMA_LOAD(M, N, K, type, b, row)    \
  EMULATOR_WMMA_LOAD(M, N, K, type, b, col)
#define EMULATOR_WMMA_STORES(M, N, K, type)    \
  EMULATOR_WMMA_STORE(M, N, K, type, row)      \
  EMULATOR_WMMA_STORE(M, N, K, type, col)
#define EMULATOR_WMMA_PRODUCTS(M, N, K, type, sums)     \
  EMULATOR_WMMA_PRODUCT(M, N, K, type, sums, row, row)  \
  EMULATOR_WMMA_PRODUCT(M, N, K, type, sums, row, col)  \
  EMULATOR_WMMA_PRODUCT(M, N, K, type, sums, col, row)  \
  EMULATOR_WMMA_PRODUCT(M, N, K, type, sums, col, col)
#define EMULATOR_WMMA_SHAPE(M, N, K)           \
  EMULATOR_WMMA_LOADS(M, N, K, f16)            \
  EMULATOR_WMMA_LOADS(M, N, K, bf16)           \
  EMULATOR_WMMA_LOADS(M, N, K, s8)             \
  EMULATOR_WMMA_LOADS(M, N, K, u8)             \
  EMULATOR_WMMA_STORES(M, N, K, f16)           \
  EMULATOR_WMMA_STORES(M, N, K, f32)           \
  EMULATOR_WMMA_STORES(M, N, K, s32)           \
  EMULATOR_WMMA_PRODUCTS(M, N, K, f16, f32)    \
  EMULATOR_WMMA_PRODUCTS(M, N, K, f16, f16)    \
  EMULATOR_WMMA_PRODUCTS(M, N, K, bf16, f32)   \
  EMULATOR_WMMA_PRODUCTS(M, N, K, s8, s32)     \
  EMULATOR_WMMA_PRODUCTS(M, N, K, u8, s32)
EMULATOR_WMMA_SHAPE(16, 16, 16)
EMULATOR_WMMA_SHAPE(32, 8, 16)
EMULATOR_WMMA_SHAPE(8, 32, 16)
EMULATOR_WMMA_LOADS(16, 16, 8, tf32)
EMULATOR_WMMA_STORES(16, 16, 8, f32)
EMULATOR_WMMA_PRODUCTS(16, 16, 8, tf32, f32)
#undef EMULATOR_WMMA_FUNCTION
#undef EMULATOR_WMMA_LOAD
#undef EMULATOR_WMMA_STORE
#undef EMULATOR_WMMA_PRODUCT
#undef EMULATOR_WMMA_LOADS
#undef EMULATOR_WMMA_STORES
#undef EMULATOR_WMMA_PRODUCTS
#undef EMULATOR_WMMA_SHAPE
