// __nv_fp8_e4m3, __nv_fp8_e5m2, their vectors and conversions for the emulator, under the name that CUDA sources include. They are stored, not
// computed with. Constructors saturate, as CUDA's do; __nv_cvt_* do what they are told.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  if (kind == __NV_E4M3) return (__nv_fp8_storage_t)(saturate == __NV_SATFINITE ? emulator::Float8E4M3::narrow_saturated(x) : emulator::Float8E4M3::narrow(x));
  return (__nv_fp8_storage_t)(saturate == __NV_SATFINITE ? emulator::Float8E5M2::narrow_saturated(x) : emulator::Float8E5M2::narrow(x));
}
inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(emulator::round_to_odd(x), saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8((float)__half(x), saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8((float)__nv_bfloat16(x), saturate, kind);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 p, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return (__nv_fp8x2_storage_t)(__nv_cvt_float_to_fp8(p.x, saturate, kind) | __nv_cvt_float_to_fp8(p.y, saturate, kind) << 8);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
  return __half(kind == __NV_E4M3 ? emulator::Float8E4M3::widen(x) : emulator::Float8E5M2::widen(x));
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
  return __half2_raw{__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, kind).x, __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(x >> 8), kind).x};
}

namespace emulator {

template <typename Format>
struct Float8 {
  __nv_fp8_storage_t __x;

  Float8() = default;
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic<Number>::value>>
  explicit Float8(Number x) : __x((__nv_fp8_storage_t)Format::narrow_saturated(narrowable(x))) {}
  explicit Float8(__half x) : Float8((float)x) {}
  explicit Float8(__nv_bfloat16 x) : Float8((float)x) {}
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic<Number>::value>>
  explicit operator Number() const { return (Number)Format::widen(__x); }
  explicit operator __half() const { return __half(Format::widen(__x)); }
  explicit operator __nv_bfloat16() const { return __nv_bfloat16(Format::widen(__x)); }
};

template <typename Format>
struct alignas(2) Float8x2 {
  __nv_fp8x2_storage_t __x;

  Float8x2() = default;
  explicit Float8x2(float2 p) : __x((__nv_fp8x2_storage_t)(Format::narrow_saturated(p.x) | Format::narrow_saturated(p.y) << 8)) {}
  explicit Float8x2(__half2 p) : Float8x2(__half22float2(p)) {}
  explicit operator float2() const { return float2{Format::widen(__x & 0xff), Format::widen(__x >> 8)}; }
  explicit operator __half2() const { return __float22half2_rn((float2)*this); }
};

template <typename Format>
struct alignas(4) Float8x4 {
  __nv_fp8x4_storage_t __x;

  Float8x4() = default;
  explicit Float8x4(float4 v)
    : __x(Format::narrow_saturated(v.x) | Format::narrow_saturated(v.y) << 8 | Format::narrow_saturated(v.z) << 16 | Format::narrow_saturated(v.w) << 24) {}
  explicit operator float4() const {
    return float4{Format::widen(__x & 0xff), Format::widen(__x >> 8 & 0xff), Format::widen(__x >> 16 & 0xff), Format::widen(__x >> 24)};
  }
};

}  // namespace emulator

typedef emulator::Float8<emulator::Float8E4M3> __nv_fp8_e4m3;
typedef emulator::Float8<emulator::Float8E5M2> __nv_fp8_e5m2;
typedef emulator::Float8x2<emulator::Float8E4M3> __nv_fp8x2_e4m3;
typedef emulator::Float8x2<emulator::Float8E5M2> __nv_fp8x2_e5m2;
typedef emulator::Float8x4<emulator::Float8E4M3> __nv_fp8x4_e4m3;
typedef emulator::Float8x4<emulator::Float8E5M2> __nv_fp8x4_e5m2;
