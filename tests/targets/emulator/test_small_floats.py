"""The float16, bfloat16 and float8 types of the emulator's headers: every value, and arithmetic rounded once, against exact rational arithmetic."""

import ctypes
import math
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.targets.c_types import SMALL_FLOATS

ml_dtypes = pytest.importorskip("ml_dtypes")
HEADERS = Path(tilewright.__file__).parent / "targets" / "emulator" / "include"
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")

LIBRARY = """
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
#include "cuda_fp8.h"
#include "cuda_fp16.h"
#include "cuda_bf16.h"

#define CONVERSIONS(name, Format, Bits)                                                                     \\
    extern "C" void widen_##name(int n, const Bits *x, float *y) {                                          \\
        for (int i = 0; i < n; ++i) y[i] = emulator::Format::widen(x[i]);                                 \\
    }                                                                                                       \\
    extern "C" void narrow_##name(int n, const float *x, Bits *y) {                                         \\
        for (int i = 0; i < n; ++i) y[i] = (Bits)emulator::Format::narrow(x[i]);                          \\
    }                                                                                                       \\
    extern "C" void saturate_##name(int n, const float *x, Bits *y) {                                       \\
        for (int i = 0; i < n; ++i) y[i] = (Bits)emulator::Format::narrow_saturated(x[i]);                \\
    }
CONVERSIONS(float16, Float16, unsigned short)
CONVERSIONS(bfloat16, BFloat16, unsigned short)
CONVERSIONS(float8_e4m3, Float8E4M3, unsigned char)
CONVERSIONS(float8_e5m2, Float8E5M2, unsigned char)

#define ARITHMETIC(name, type)                                                                              \\
    extern "C" void arithmetic_##name(int n, const type *a, const type *b, const type *c, type *y) {        \\
        for (int i = 0; i < n; ++i) {                                                                       \\
            y[7 * i] = a[i] + b[i];                                                                         \\
            y[7 * i + 1] = a[i] - b[i];                                                                     \\
            y[7 * i + 2] = a[i] * b[i];                                                                     \\
            y[7 * i + 3] = a[i] / b[i];                                                                     \\
            y[7 * i + 4] = __hfma(a[i], b[i], c[i]);                                                        \\
            y[7 * i + 5] = hsqrt(__habs(a[i]));                                                             \\
            y[7 * i + 6] = __hmax(a[i], b[i]);                                                              \\
        }                                                                                                   \\
    }                                                                                                       \\
    extern "C" void from_double_##name(int n, const double *x, type *y) {                                   \\
        for (int i = 0; i < n; ++i) y[i] = x[i];                                                            \\
    }                                                                                                       \\
    extern "C" void from_integer_##name(int n, const long long *x, type *y) {                               \\
        for (int i = 0; i < n; ++i) y[i] = x[i];                                                            \\
    }                                                                                                       \\
    extern "C" void compare_##name(int n, const type *a, const type *b, int *y) {                           \\
        for (int i = 0; i < n; ++i)                                                                         \\
            y[i] = (a[i] == b[i]) | (a[i] != b[i]) << 1 | (a[i] < b[i]) << 2 | (a[i] >= b[i]) << 3 | __hne(a[i], b[i]) << 4 | __hisnan(a[i]) << 5; \\
    }
ARITHMETIC(float16, __half)
ARITHMETIC(bfloat16, __nv_bfloat16)

#define PAIRS(name, type, pair, to_float, make)                                                             \\
    static bool same(type a, type b) { return a == b ? to_float(a) != 0 || 1 / to_float(a) == 1 / to_float(b) : __hisnan(a) && __hisnan(b); } \\
    static bool same(pair a, pair b) { return same(a.x, b.x) && same(a.y, b.y); }                           \\
    extern "C" int pairs_##name(int n, const pair *p, const pair *q) {                                      \\
        for (int i = 0; i < n; ++i) {                                                                       \\
            type a = p[i].x, b = p[i].y, c = q[i].x, d = q[i].y;                                            \\
            if (!same(__hadd2_rn(p[i], q[i]), make(__hadd_rn(a, c), b + d))) return 8 * i + 1;              \\
            if (!same(__hsub2_rn(p[i], q[i]), make(__hsub_rn(a, c), b - d))) return 8 * i + 2;              \\
            if (!same(__hmul2_rn(p[i], q[i]), make(__hmul_rn(a, c), b * d))) return 8 * i + 3;              \\
            if (__hlt2_mask(p[i], q[i]) != (a < c ? 0xffffu : 0) + (b < d ? 0xffff0000u : 0)) return 8 * i + 4; \\
            if (__hgeu2_mask(p[i], q[i]) != (!(a < c) ? 0xffffu : 0) + (!(b < d) ? 0xffff0000u : 0)) return 8 * i + 5; \\
            if (__hbneu2(p[i], q[i]) != (a != c && b != d) || (to_float(__hisnan2(p[i]).y) == 1) != __hisnan(b)) return 8 * i + 6; \\
            if (!same(__hcmadd(p[i], q[i], p[i]).x, __hfma(-b, d, __hfma(a, c, a)))) return 8 * i + 7;       \\
        }                                                                                                   \\
        return 0;                                                                                           \\
    }                                                                                                       \\
    extern "C" void directed_##name(int n, const float *x, type *y) {                                       \\
        for (int i = 0; i < n; ++i) {                                                                       \\
            y[3 * i] = __float2##name##_rd(x[i]);                                                           \\
            y[3 * i + 1] = __float2##name##_ru(x[i]);                                                       \\
            y[3 * i + 2] = __float2##name##_rz(x[i]);                                                       \\
        }                                                                                                   \\
    }
#define __float2float16_rd __float2half_rd
#define __float2float16_ru __float2half_ru
#define __float2float16_rz __float2half_rz
PAIRS(float16, __half, __half2, __half2float, __halves2half2)
PAIRS(bfloat16, __nv_bfloat16, __nv_bfloat162, __bfloat162float, __halves2bfloat162)

extern "C" int odds_and_ends() {
    __half2 p = __floats2half2_rn(1.0f, -2.0f), q = __half2half2(__float2half(3.0f));
    p = __hfma2(p, q, __hneg2(q));
    if (__low2float(p) != 0 || __high2float(p) != -9) return 1;
    float2 f = __half22float2(__lowhigh2highlow(p));
    if (f.x != -9 || f.y != 0) return 2;
    if (__half2int_rz(__half(-2.75f)) != -2 || __half2int_rn(__half(2.5f)) != 2 || __half2uint_rz(__half(-1.0f)) != 0) return 3;
    if (__half_as_ushort(__ushort_as_half(0x1234)) != 0x1234 || __half2short_rz(__ushort_as_half(0x7c00)) != 32767) return 4;
    __nv_bfloat162 b = __floats2bfloat162_rn(0.5f, 4.0f);
    b += b;
    if ((float)__low2bfloat16(b) != 1 || (float)__high2bfloat16(b) != 8 || !__hbge2(b, b) || (float)__hlt2(b, b).x != 0) return 5;
    if (__nv_fp8_e4m3(1000.0f).__x != 0x7e || (float)__nv_fp8_e5m2(-3.0f) != -3 || (int)__nv_fp8_e4m3(5) != 5) return 6;
    if (__nv_cvt_float_to_fp8(1000.0f, __NV_NOSAT, __NV_E4M3) != 0x7f || __nv_cvt_float_to_fp8(1e9f, __NV_SATFINITE, __NV_E5M2) != 0x7b) return 7;
    float4 v = (float4)__nv_fp8x4_e4m3(float4{1, -2, 448, 0.25f});
    if (v.x != 1 || v.y != -2 || v.z != 448 || v.w != 0.25f) return 8;
    if (sizeof(__half2) != 4 || alignof(__half2) != 4 || sizeof(__nv_fp8x2_e5m2) != 2 || sizeof(__half) != 2) return 9;
    if (__half2uint_ru(__half(2.25f)) != 3 || __half2short_rd(__half(-2.25f)) != -3 || __half2char_rz(__half(300.0f)) != 127) return 11;
    if (__bfloat162ll_rn(__nv_bfloat16(2.5f)) != 2 || __bfloat162uchar_rz(__nv_bfloat16(-1.0f)) != 0) return 12;
    __half h = 2;
    h *= 3;
    ++h;
    if ((float)h != 7 || (float)__hmul_sat(h, h) != 1 || (float)-h != -7 || (bool)h != true) return 10;
    return 0;
}
"""
DTYPES = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small_floats")
    (folder / "library.cpp").write_text(LIBRARY)
    command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HEADERS}", "-o", str(folder / "library.so")]
    subprocess.run([*command, str(folder / "library.cpp")], check=True)
    return ctypes.CDLL(str(folder / "library.so"))


def call(function, *arrays):
    function(len(arrays[0]), *(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    return arrays[-1]


def same(found, expected):
    """Bit for bit, any NaN being as good as another."""
    bits = f"u{found.dtype.itemsize}"
    with np.errstate(invalid="ignore"):  # signalling NaN
        equal = (found.view(bits) == expected.view(bits)) | (np.isnan(found.astype("f8")) & np.isnan(expected.astype("f8")))
    assert equal.all(), np.flatnonzero(~equal)[:5]


def every(name):
    """All values of a format."""
    dtype = np.dtype(DTYPES[name])
    return np.arange(1 << (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)


def rounded(value, name):
    """The member of a format nearest to a rational number, ties to even."""
    mantissa, bias, too_large, _ = SMALL_FLOATS[name]
    magnitude = abs(value)
    if magnitude == 0:
        return 0
    exponent = max(1 - bias, magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1)
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    code = round(magnitude / Fraction(2) ** (exponent - mantissa)) + ((exponent + bias - 1) << mantissa)
    return min(code, too_large) | (1 << (8 * np.dtype(DTYPES[name]).itemsize - 1) if value < 0 else 0)


@pytest.mark.parametrize("name", DTYPES)
def test_every_value_widens_exactly(library, name):
    values = every(name)
    same(call(getattr(library, f"widen_{name}"), values, np.empty(len(values), "f")), values.astype("f"))


@pytest.mark.parametrize("name", DTYPES)
def test_narrowing_rounds_to_nearest_even(library, name):
    """Every value, every midpoint, the floats beside those, and random floats."""
    seed = 7
    values = every(name).astype("f")
    finite = np.unique(values[np.isfinite(values)])
    middle = ((finite[1:].astype("f8") + finite[:-1]) / 2).astype("f")
    beyond = finite[-1] + (finite[-1] - finite[-2]) / np.array([4, 2, 1], "f8")
    noise = np.random.default_rng(seed).integers(0, 1 << 32, 200_000, dtype=np.uint32).view("f")
    with np.errstate(all="ignore"):
        x = np.concatenate([values, middle, beyond.astype("f"), -beyond.astype("f"), noise])
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
        expected = x.astype(DTYPES[name])
    found = call(getattr(library, f"narrow_{name}"), x, np.empty_like(expected))
    same(found, expected)
    clipped = call(getattr(library, f"saturate_{name}"), x, np.empty_like(expected))
    inside = ~np.isnan(x)
    with np.errstate(all="ignore"):
        same(clipped[inside], np.clip(x[inside], finite[0], finite[-1]).astype(DTYPES[name]))
    assert np.isnan(clipped[~inside].astype("f")).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_arithmetic_is_rounded_once(library, name):
    seed = 11
    rng, dtype, n = np.random.default_rng(seed), DTYPES[name], 3000
    a, b, c = (rng.integers(0, 1 << 16, n, dtype=np.uint16).view(dtype) for _ in range(3))
    near = rng.integers(-40, 40, n)  # products near the addend, where a double rounding shows
    with np.errstate(all="ignore"):
        c[::2] = (-(a.astype("f8") * b.astype("f8")) * (1 + near * 2.0**-9)).astype("f").astype(dtype)[::2]
        c[1::4] = (a.astype("f8") * b.astype("f8") * 2.0 ** rng.integers(8, 28, n)).astype("f").astype(dtype)[1::4]
    finite = np.isfinite(a.astype("f")) & np.isfinite(b.astype("f")) & np.isfinite(c.astype("f")) & (b.astype("f") != 0)
    a, b, c = a[finite], b[finite], c[finite]
    found = call(getattr(library, f"arithmetic_{name}"), a, b, c, np.empty((len(a), 7), dtype)).view("u2")
    for row, x, y, z in zip(found, a, b, c, strict=True):
        p, q, r = (Fraction(float(v)) for v in (x, y, z))
        for code, exact in zip(row, (p + q, p - q, p * q, p / q, p * q + r), strict=False):
            assert (int(code) & 0x7FFF if exact == 0 else int(code)) == rounded(exact, name), (seed, x, y, z, exact)
        assert row[5] == rounded(Fraction(math.sqrt(abs(float(x)))), name), (seed, x)
        assert float(row[6:7].view(dtype)[0]) == max(float(x), float(y)), (seed, x, y)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_conversions_of_wider_types_are_rounded_once(library, name):
    seed = 13
    rng, dtype = np.random.default_rng(seed), DTYPES[name]
    values = every(name).astype("f")
    base = rng.choice(values[np.isfinite(values)], 3000).astype("f8")
    ulp = 2.0 ** -(SMALL_FLOATS[name][0] + 1)
    x = base * (1 + ulp * (1 + rng.choice([0, 2.0**-20, -(2.0**-20), 2.0**-36], len(base))))  # about midpoints
    found = call(getattr(library, f"from_double_{name}"), x, np.empty(len(x), dtype)).view("u2")
    for code, value in zip(found, x, strict=True):
        assert (int(code) & 0x7FFF if value == 0 else int(code)) == rounded(Fraction(value), name), (seed, value)
    integers = np.concatenate(
        [rng.integers(-(1 << 62), 1 << 62, 1000) >> rng.integers(0, 62, 1000), (np.int64(0x8080) << np.arange(40)) + 1, [-(1 << 63), 0, 65519, 65520]]
    )
    found = call(getattr(library, f"from_integer_{name}"), integers, np.empty(len(integers), dtype)).view("u2")
    assert [int(code) for code in found] == [rounded(Fraction(int(i)), name) for i in integers], seed


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_comparisons(library, name):
    special = np.array([0.0, -0.0, 1.0, -1.0, 6e-8, -6e-8, np.inf, -np.inf, np.nan, -np.nan], "f").astype(DTYPES[name])
    a, b = (grid.reshape(-1).copy() for grid in np.meshgrid(special, special))
    x, y = a.astype("f"), b.astype("f")
    expected = (x == y) | (x != y) << 1 | (x < y) << 2 | (x >= y) << 3 | ((x < y) | (x > y)) << 4 | np.isnan(x) << 5
    np.testing.assert_array_equal(call(getattr(library, f"compare_{name}"), a, b, np.empty(len(a), "i4")), expected)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_pairs_are_two_of_one(library, name):
    rng = np.random.default_rng(17)
    p, q = (rng.integers(0, 1 << 16, 40_000, dtype=np.uint16) for _ in range(2))
    q[::3] = p[::3]
    found = getattr(library, f"pairs_{name}")(len(p) // 2, ctypes.c_void_p(p.ctypes.data), ctypes.c_void_p(q.ctypes.data))
    assert found == 0, (divmod(found, 8), p[found // 8 * 2 :][:2], q[found // 8 * 2 :][:2])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_directed_rounding(library, name):
    """Down, up and towards zero: the neighbours of what lies between two values, also beyond the largest and below the least."""
    dtype = np.dtype(DTYPES[name])
    values = every(name).astype("f")
    finite = np.unique(values[np.isfinite(values)])
    with np.errstate(all="ignore"):
        x = np.concatenate([finite, ((finite[1:].astype("f8") + finite[:-1]) / 2).astype("f"), [finite[-1] * np.float32(1.0005), np.inf, -np.inf]]).astype("f")
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf)), -x])
        members = np.concatenate([[-np.inf], finite.astype("f8"), [np.inf]])
        down = members[np.searchsorted(members, x.astype("f8"), "right") - 1]
        up = members[np.searchsorted(members, x.astype("f8"), "left")]
    found = call(getattr(library, f"directed_{name}"), x, np.empty((len(x), 3), dtype)).astype("f8")
    np.testing.assert_array_equal(found, np.stack([down, up, np.where(x > 0, down, up)], 1))


def test_pairs_float8_and_bits(library):
    assert library.odds_and_ends() == 0
