/* CUDA C++ for the host's compiler: what nvcc knows without any include. Every CUDA source is compiled with this header before its first line.

   The running thread's position, qualifiers, barriers and fences are here; the rest is in emulator_vectors.h (float4 and the like),
   emulator_warp.h (shuffles and votes), emulator_atomics.h and emulator_math.h. */
#pragma once

#include "emulator_abi.h"

#define __CUDA_ARCH__ EMULATOR_ARCH
#define __CUDACC__ 1

#define __device__
#define __host__
#define __managed__
#ifdef EMULATOR_CHECKED /* each in a section of its own, which tells it from other variables; one section for all must not hold both const and other ones */
#define EMULATOR_TEXT_OF(x) #x
#define EMULATOR_TEXT(x) EMULATOR_TEXT_OF(x)
#define __constant__ __attribute__((section("emulator_constant." EMULATOR_TEXT(__COUNTER__))))
#else
#define __constant__
#endif
#ifdef EMULATOR_CHECKED /* gcc instruments no structure that is read for an argument of a call; so there are no calls left, as with nvcc */
#define __global__ __attribute__((flatten))
#else
#define __global__
#endif
#ifdef EMULATOR_CHECKED /* `used`: an array that is only written is kept, so that what is wrong with its writes is seen */
#define __shared__ static thread_local __attribute__((used))
#else
#define __shared__ static thread_local
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#ifndef __restrict__
#define __restrict__ __restrict
#endif

#include "emulator_vectors.h"

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

#define EMULATOR_POSITION EMULATOR_FUNCTION __attribute__((const)) /* a thread stays the thread that it is */
EMULATOR_POSITION uint3 emulator_thread_index() { return emulator_position.thread_index; }
EMULATOR_POSITION uint3 emulator_block_index() { return emulator_position.block_index; }
EMULATOR_POSITION uint3 emulator_block_dim() { return emulator_position.block_dim; }
EMULATOR_POSITION uint3 emulator_grid_dim() { return emulator_position.grid_dim; }
EMULATOR_POSITION unsigned int emulator_lane() { return emulator_position.lane; }
EMULATOR_POSITION void* emulator_dynamic_shared() { return emulator_position.dynamic_shared; }
#define threadIdx (emulator_thread_index())
#define blockIdx (emulator_block_index())
#define blockDim (emulator_block_dim())
#define gridDim (emulator_grid_dim())
static constexpr int warpSize = 32;

/* ---- barriers and fences. Macros, so that the runtime sees the kernel's own line as the caller. */
#define __syncthreads() ((void)emulator_barrier(0, 0, __LINE__))
#define __syncthreads_count(predicate) emulator_barrier(1, (predicate) != 0, __LINE__)
#define __syncthreads_and(predicate) emulator_barrier(2, (predicate) != 0, __LINE__)
#define __syncthreads_or(predicate) emulator_barrier(3, (predicate) != 0, __LINE__)
#define __threadfence_block() emulator_fence(0)
#define __threadfence() emulator_fence(1)
#define __threadfence_system() emulator_fence(2)
#define __nanosleep(nanoseconds) ((void)(nanoseconds), emulator_yield())
#define __trap() emulator_trap("__trap()")
#define __brkpt() emulator_trap("__brkpt()")

#include "emulator_atomics.h"
#include "emulator_math.h"
#include "emulator_warp.h"

extern "C" int printf(const char*, ...) __attribute__((format(printf, 1, 2)));
extern "C" void* memcpy(void*, const void*, size_t) noexcept;
extern "C" void* memset(void*, int, size_t) noexcept;
extern "C" void __assert_fail(const char*, const char*, unsigned int, const char*) noexcept __attribute__((noreturn));
#define assert(condition) ((condition) ? (void)0 : __assert_fail(#condition, __FILE__, __LINE__, ""))
#ifndef INFINITY /* as <math.h>, which nvcc includes, has them */
#define INFINITY (__builtin_inff ())
#define NAN (__builtin_nanf (""))
#endif
EMULATOR_INLINE long long clock64() { return (long long)emulator_clock(); }
EMULATOR_INLINE int clock() { return (int)emulator_clock(); }

#ifdef EMULATOR_CHECKED /* where the shared arrays of the running worker are */
extern "C" {
static __thread char emulator_anchor;
__attribute__((used, visibility("default"))) EMULATOR_QUIET char* emulator_tls_anchor() { return &emulator_anchor; }
}
#endif

/* ---- a kernel as the runtime calls it, and the types of its parameters as Python reads them */

namespace emulator_entry {

/* A type as one number: class (0: other, 1: bool or unsigned, 2: signed, 3: floating) << 16 | size; a pointer has 1 << 24 and describes what it points to,
   with 1 << 25 where that is const. */
template <class T> struct Class { static constexpr unsigned value = 0; };
#define EMULATOR_CLASS(type, number) template <> struct Class<type> { static constexpr unsigned value = number << 16; };
EMULATOR_CLASS(bool, 1) EMULATOR_CLASS(unsigned char, 1) EMULATOR_CLASS(unsigned short, 1) EMULATOR_CLASS(unsigned int, 1)
EMULATOR_CLASS(unsigned long, 1) EMULATOR_CLASS(unsigned long long, 1)
EMULATOR_CLASS(char, 2) EMULATOR_CLASS(signed char, 2) EMULATOR_CLASS(short, 2) EMULATOR_CLASS(int, 2) EMULATOR_CLASS(long, 2) EMULATOR_CLASS(long long, 2)
EMULATOR_CLASS(float, 3) EMULATOR_CLASS(double, 3)
#undef EMULATOR_CLASS
template <class T> struct Plain { using type = T; static constexpr unsigned is_const = 0; };
template <class T> struct Plain<const T> { using type = T; static constexpr unsigned is_const = 1 << 25; };
template <class T> struct Plain<volatile T> { using type = T; static constexpr unsigned is_const = 0; };
template <class T> struct Plain<const volatile T> { using type = T; static constexpr unsigned is_const = 1 << 25; };
template <class T> struct Parameter { static constexpr unsigned value = Class<typename Plain<T>::type>::value | (unsigned)sizeof(T); };
template <> struct Parameter<void*> { static constexpr unsigned value = 1 << 24; };
template <> struct Parameter<const void*> { static constexpr unsigned value = 1 << 24 | 1 << 25; };
template <class T> struct Parameter<T*> {
  static constexpr unsigned value = 1 << 24 | Plain<T>::is_const | Class<typename Plain<T>::type>::value | (unsigned)sizeof(T);
};
template <class T> struct Parameter<T* __restrict> : Parameter<T*> {};
template <class T> struct Argument { using type = T; };
template <class T> struct Argument<T&> { using type = T; };

template <int... I> struct Indices {};
template <int N, int... I> struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I> struct MakeIndices<0, I...> { using type = Indices<I...>; };

template <auto kernel> struct Entry;
template <class... P, void (*kernel)(P...)> struct Entry<kernel> {
  static constexpr unsigned count = sizeof...(P);
  static constexpr unsigned types[sizeof...(P) + 1] = {Parameter<P>::value..., 0};
  template <int... I> EMULATOR_QUIET static void unpack(void** arguments, Indices<I...>) { kernel(*(P*)arguments[I]...); }
  EMULATOR_QUIET static void call(void** arguments) { unpack(arguments, typename MakeIndices<(int)sizeof...(P)>::type()); }
};

}  // namespace emulator_entry

#define EMULATOR_KERNEL(number, ...)                                                                             \
  extern "C" __attribute__((used, visibility("default"))) const unsigned emulator_count_##number = emulator_entry::Entry<&__VA_ARGS__>::count; \
  extern "C" __attribute__((used, visibility("default"))) const unsigned* const emulator_types_##number = emulator_entry::Entry<&__VA_ARGS__>::types; \
  extern "C" __attribute__((used, visibility("default"))) void (*const emulator_entry_##number)(void**) = emulator_entry::Entry<&__VA_ARGS__>::call;
