// nvcuda::wmma for the emulator, under the name that CUDA sources include: half, bfloat16, int8, uint8 and tf32 fragments of the legal shapes.
// CUDA leaves open which lane holds which element; the number of elements that a lane holds is the hardware's.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "emulator_warp_matrix.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

template <typename Use, int m, int n, int k, typename T, typename Layout = void>
struct fragment;

}  // namespace wmma
}  // namespace nvcuda

namespace emulator {

template <int m, int n, int k>
constexpr bool is_shape_of_16 = k == 16 && ((m == 16 && n == 16) || (m == 32 && n == 8) || (m == 8 && n == 32));

// What a fragment's element type is stored as, computed in and allowed for. `least`: elements that a lane has of a multiplicand at least, some of them twice
// or more often; 0 where it has just its share.
template <typename T>
struct WarpMatrixType;

template <>
struct WarpMatrixType<__half> {
  typedef __half Stored;
  typedef double Value;
  static constexpr int least = 16;
};

template <>
struct WarpMatrixType<__nv_bfloat16> {
  typedef __nv_bfloat16 Stored;
  typedef double Value;
  static constexpr int least = 0;
};

template <>
struct WarpMatrixType<nvcuda::wmma::precision::tf32> {
  typedef float Stored;
  typedef double Value;
  static constexpr int least = 0;
};

template <>
struct WarpMatrixType<signed char> {
  typedef signed char Stored;
  typedef int Value;
  static constexpr int least = 0;
};

template <>
struct WarpMatrixType<unsigned char> {
  typedef unsigned char Stored;
  typedef int Value;
  static constexpr int least = 0;
};

template <typename T>
constexpr int elements_of_lane(int share) {
  return share > WarpMatrixType<T>::least ? share : WarpMatrixType<T>::least;
}

template <int count, typename Stored>
struct FragmentStorage {
  static constexpr int num_elements = count;
  static constexpr int num_storage_elements = count;
  typedef Stored element_type;
  typedef Stored storage_element_type;
  Stored x[count];
};

}  // namespace emulator

namespace nvcuda {
namespace wmma {

#define EMULATOR_LEGAL(T)                                                                                                     \
  static_assert(std::is_same<T, precision::tf32>::value ? m == 16 && n == 16 && k == 8 : emulator::is_shape_of_16<m, n, k>, \
                "wmma has the shapes 16x16x16, 32x8x16 and 8x32x16, and 16x16x8 for tf32")

template <int m, int n, int k, typename T, typename Layout>
struct fragment<matrix_a, m, n, k, T, Layout> : emulator::FragmentStorage<emulator::elements_of_lane<T>(m * k / 32), typename emulator::WarpMatrixType<T>::Stored> {
  EMULATOR_LEGAL(T);
  static constexpr int rows = m, columns = k;
};

template <int m, int n, int k, typename T, typename Layout>
struct fragment<matrix_b, m, n, k, T, Layout> : emulator::FragmentStorage<emulator::elements_of_lane<T>(k * n / 32), typename emulator::WarpMatrixType<T>::Stored> {
  EMULATOR_LEGAL(T);
  static constexpr int rows = k, columns = n;
};

template <int m, int n, int k, typename T>
struct fragment<accumulator, m, n, k, T, void> : emulator::FragmentStorage<m * n / 32, T> {
  static_assert(emulator::is_shape_of_16<m, n, k> || (m == 16 && n == 16 && k == 8 && std::is_same<T, float>::value),
                "wmma has the shapes 16x16x16, 32x8x16 and 8x32x16, and 16x16x8 for tf32");
  static_assert(std::is_same<T, float>::value || std::is_same<T, __half>::value || std::is_same<T, int>::value, "wmma accumulates in float, half or int");
  static constexpr int rows = m, columns = n;
};
#undef EMULATOR_LEGAL

}  // namespace wmma
}  // namespace nvcuda

namespace emulator {

// Element i of lane is at this place of its matrix, counted along the rows (or columns, where `by_columns`) of memory; second copies come after.
template <typename Fragment>
EMULATOR_QUIET inline int fragment_place(int lane, int i) {
  return (lane * Fragment::num_elements + i) % (Fragment::rows * Fragment::columns);
}

// Calls access(element, count, offset) for runs of a lane's elements that lie side by side in memory.
template <typename Fragment, bool by_columns_in_fragment, typename Access>
EMULATOR_QUIET inline void each_run(unsigned leading, bool by_columns_in_memory, Access access) {
  constexpr int length = by_columns_in_fragment ? Fragment::rows : Fragment::columns;
  int lane = (int)emulator_position.lane;
  bool along = by_columns_in_fragment == by_columns_in_memory;
  for (int i = 0; i < Fragment::num_elements;) {
    int place = fragment_place<Fragment>(lane, i), line = place / length, at = place % length;
    int count = along ? (length - at < Fragment::num_elements - i ? length - at : Fragment::num_elements - i) : 1;
    access(i, count, along ? (unsigned long)line * leading + at : (unsigned long)at * leading + line);
    i += count;
  }
}

// An array of the host's begins at a multiple of 16 bytes; where accesses are checked it has been copied to one of 4096.
EMULATOR_QUIET inline void check_matrix(const void* memory, unsigned long leading_bytes) {
#ifdef EMULATOR_CHECKED
  constexpr unsigned long alignment = 32;
#else
  constexpr unsigned long alignment = 16;
#endif
  if ((unsigned long)memory % alignment != 0 || leading_bytes % 16 != 0)
    emulator_trap("wmma: the address must be a multiple of 32 bytes, and the leading dimension of 16 bytes");
}

template <typename Fragment, bool by_columns_in_fragment, typename T>
EMULATOR_QUIET inline void load_fragment(Fragment& fragment, const T* memory, unsigned leading, bool by_columns_in_memory, const void* where) {
  whole_warp<complete_nothing>(nullptr, 1, where);
  each_run<Fragment, by_columns_in_fragment>(leading, by_columns_in_memory, [&](int i, int count, unsigned long offset) EMULATOR_QUIET {
    emulator_access(memory + offset, count * sizeof(T), 0, where);
    for (int j = 0; j < count; ++j) fragment.x[i + j] = memory[offset + j];  // memcpy would be checked
  });
}

template <typename Fragment, typename T>
EMULATOR_QUIET inline void store_fragment(T* memory, const Fragment& fragment, unsigned leading, bool by_columns_in_memory, const void* where) {
  whole_warp<complete_nothing>(nullptr, 2, where);
  each_run<Fragment, false>(leading, by_columns_in_memory, [&](int i, int count, unsigned long offset) EMULATOR_QUIET {
    emulator_access(memory + offset, count * sizeof(T), 1, where);
    for (int j = 0; j < count; ++j) memory[offset + j] = fragment.x[i + j];
  });
}

// A fragment's element as it is multiplied: tf32 is what the hardware reads of a float.
template <typename T>
EMULATOR_QUIET inline typename WarpMatrixType<T>::Value multiplicand(typename WarpMatrixType<T>::Stored x) {
  if constexpr (std::is_same<T, nvcuda::wmma::precision::tf32>::value)
    return PackedTF32::get(bits_of(x), 0);
  else
    return (typename WarpMatrixType<T>::Value)x;
}

struct FragmentOperands {
  void* d;
  const void *a, *b, *c;
};

template <int m, int n, int k, typename T, typename LayoutA, typename LayoutB, typename D, typename C>
EMULATOR_QUIET inline void complete_fragments(void* const* lanes, unsigned, unsigned long long) {
  using namespace nvcuda::wmma;
  typedef fragment<matrix_a, m, n, k, T, LayoutA> A;
  typedef fragment<matrix_b, m, n, k, T, LayoutB> B;
  typedef fragment<accumulator, m, n, k, C> Accumulator;
  typedef typename WarpMatrixType<T>::Value Value;
  static Value thread_local a[m][k], b[n][k], c[m][n];
  for (int lane = 0; lane < 32; ++lane) {
    const FragmentOperands& mine = *(const FragmentOperands*)lanes[lane];
    for (int i = 0; i < A::num_elements; ++i) {
      int place = fragment_place<A>(lane, i);
      bool by_columns = std::is_same<LayoutA, col_major>::value;
      a[by_columns ? place % m : place / k][by_columns ? place / m : place % k] = multiplicand<T>(((const A*)mine.a)->x[i]);
    }
    for (int i = 0; i < B::num_elements; ++i) {
      int place = fragment_place<B>(lane, i);
      bool by_columns = std::is_same<LayoutB, col_major>::value;
      b[by_columns ? place / k : place % n][by_columns ? place % k : place / n] = multiplicand<T>(((const B*)mine.b)->x[i]);
    }
    for (int i = 0; i < Accumulator::num_elements; ++i) {
      int place = fragment_place<Accumulator>(lane, i);
      c[place / n][place % n] = (Value)((const Accumulator*)mine.c)->x[i];
    }
  }
  multiply(a, b, c);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < Accumulator::num_elements; ++i) {
      int place = fragment_place<Accumulator>(lane, i);
      ((fragment<accumulator, m, n, k, D>*)((const FragmentOperands*)lanes[lane])->d)->x[i] = (D)c[place / n][place % n];
    }
}

}  // namespace emulator

namespace nvcuda {
namespace wmma {

// An operand of tf32 is loaded from float; everything else from its own type.
template <typename Use, int m, int n, int k, typename T, typename Layout>
EMULATOR_FUNCTION void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& a, const typename fragment<Use, m, n, k, T, Layout>::storage_element_type* memory, unsigned leading) {
  constexpr bool by_columns = std::is_same<Layout, col_major>::value;
  emulator::check_matrix(memory, leading * sizeof(*memory));
  emulator::load_fragment<fragment<Use, m, n, k, T, Layout>, by_columns>(a, memory, leading, by_columns, EMULATOR_HERE);
}

template <int m, int n, int k, typename T>
EMULATOR_FUNCTION void load_matrix_sync(fragment<accumulator, m, n, k, T>& c, const T* memory, unsigned leading, layout_t layout) {
  emulator::check_matrix(memory, leading * sizeof(T));
  emulator::load_fragment<fragment<accumulator, m, n, k, T>, false>(c, memory, leading, layout == mem_col_major, EMULATOR_HERE);
}

template <int m, int n, int k, typename T>
EMULATOR_FUNCTION void store_matrix_sync(T* memory, const fragment<accumulator, m, n, k, T>& c, unsigned leading, layout_t layout) {
  emulator::check_matrix(memory, leading * sizeof(T));
  emulator::store_fragment(memory, c, leading, layout == mem_col_major, EMULATOR_HERE);
}

template <typename Use, int m, int n, int k, typename T, typename Layout, typename Value>
EMULATOR_QUIET inline void fill_fragment(fragment<Use, m, n, k, T, Layout>& f, const Value& value) {
  for (auto& element : f.x) element = value;
}

template <int m, int n, int k, typename T, typename LayoutA, typename LayoutB, typename D, typename C>
EMULATOR_FUNCTION void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, T, LayoutA>& a, const fragment<matrix_b, m, n, k, T, LayoutB>& b,
                                    const fragment<accumulator, m, n, k, C>& c) {
  static_assert(std::is_same<typename emulator::WarpMatrixType<T>::Value, int>::value == std::is_same<D, int>::value, "wmma: integers accumulate in int, floats in float or half");
  static_assert(std::is_same<D, float>::value || std::is_same<D, int>::value || std::is_same<T, __half>::value, "wmma: only half accumulates in half");
  emulator::FragmentOperands mine = {&d, &a, &b, &c};
  emulator::whole_warp<emulator::complete_fragments<m, n, k, T, LayoutA, LayoutB, D, C>>(&mine, 0, EMULATOR_HERE);
}

inline float __float_to_tf32(float x) { return emulator::round_tf32(x); }

}  // namespace wmma
}  // namespace nvcuda
