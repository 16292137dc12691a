"""Kernels on the emulator without checks: positions, shared memory, barriers, warp functions, atomics, mathematics, vectors, arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilewright as tw
from tilewright.targets.emulator import Program

rng = np.random.default_rng(7)


def run(source, args, grid=1, block=32, kernel="k", **options):
    return tw.emulate_cuda(source, kernel, grid, block, args, **options)


def test_positions_in_three_dimensions():
    source = """
    __global__ void k(int* out) {
      int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
      int threads = blockDim.x * blockDim.y * blockDim.z;
      out[block * threads + thread] = blockIdx.z * 100000 + blockIdx.y * 10000 + blockIdx.x * 1000 + threadIdx.z * 100 + threadIdx.y * 10 + threadIdx.x;
    }"""
    out = np.full(2 * 3 * 2 * 4 * 3 * 2, -1, "int32")
    run(source, [out], grid=(2, 3, 2), block=(4, 3, 2))
    z, y, x, tz, ty, tx = np.meshgrid(*(np.arange(n) for n in (2, 3, 2, 2, 3, 4)), indexing="ij")
    np.testing.assert_array_equal(out, (z * 100000 + y * 10000 + x * 1000 + tz * 100 + ty * 10 + tx).ravel())


def test_all_threads_of_a_large_block_meet_at_barriers():
    source = """
    __global__ void k(int* out) {
      __shared__ int s[1024];
      int t = threadIdx.x;
      s[t] = t;
      for (int step = 1; step < 1024; step *= 2) {
        __syncthreads();
        int v = t >= step ? s[t - step] : 0;
        __syncthreads();
        s[t] += v;
      }
      out[blockIdx.x * 1024 + t] = s[t];
    }"""
    out = np.zeros(5 * 1024, "int32")
    run(source, [out], grid=5, block=1024)
    np.testing.assert_array_equal(out.reshape(5, 1024), np.tile(np.cumsum(np.arange(1024)), (5, 1)))


def test_barriers_vote():
    source = """
    __global__ void k(int* out) {
      out[threadIdx.x] = __syncthreads_count(threadIdx.x < 5);
      out[64 + threadIdx.x] = __syncthreads_and(threadIdx.x < 64) * 10 + __syncthreads_and(threadIdx.x != 3);
      out[128 + threadIdx.x] = __syncthreads_or(threadIdx.x == 9) * 10 + __syncthreads_or(threadIdx.x > 99);
    }"""
    out = np.zeros(192, "int32")
    run(source, [out], block=64)
    np.testing.assert_array_equal(out.reshape(3, 64), np.repeat([[5], [10], [10]], 64, axis=1))


def test_threads_that_returned_count_out_at_barriers_and_in_warps():
    source = """
    __global__ void k(int* out) {
      if (threadIdx.x % 3 == 0) return;
      __syncthreads();
      unsigned seen = __ballot_sync(0xffffffffu, 1);
      out[threadIdx.x] = __popc(seen);
    }"""
    out = np.zeros(64, "int32")
    run(source, [out], block=64)
    lanes = np.arange(64)
    alive = lanes % 3 != 0
    count = np.array([alive[:32].sum(), alive[32:].sum()])
    np.testing.assert_array_equal(out, np.where(alive, count[lanes // 32], 0))


def reference_shuffle(values, kind, operand, width):
    lanes = np.arange(32)
    low = lanes // width * width
    if kind == "idx":
        source = low + operand % width
    elif kind == "up":
        source = np.where(lanes - operand >= low, lanes - operand, lanes)
    elif kind == "down":
        source = np.where(lanes + operand < low + width, lanes + operand, lanes)
    else:
        source = lanes ^ operand
        source = np.where(source >= low + width, lanes, source)
    return values[source]


@pytest.mark.parametrize("dtype, name", [("float32", "float"), ("float64", "double"), ("int64", "long long"), ("int32", "int"), ("uint8", "unsigned char")])
def test_shuffles(dtype, name):
    source = f"""
    __global__ void k(const {name}* x, {name}* out) {{
      {name} v = x[threadIdx.x];
      int i = threadIdx.x;
      for (int width = 4; width <= 32; width *= 2)
        for (int operand = 0; operand < 9; operand += 2) {{
          out[i] = __shfl_sync(0xffffffffu, v, operand, width); i += 32;
          out[i] = __shfl_up_sync(0xffffffffu, v, operand, width); i += 32;
          out[i] = __shfl_down_sync(0xffffffffu, v, operand, width); i += 32;
          out[i] = __shfl_xor_sync(0xffffffffu, v, operand, width); i += 32;
        }}
    }}"""
    x = (rng.standard_normal(32) * 50).astype(dtype)
    kinds = [(kind, operand, width) for width in (4, 8, 16, 32) for operand in range(0, 9, 2) for kind in ("idx", "up", "down", "xor")]
    out = np.zeros((len(kinds), 32), dtype)
    run(source, [x, out])
    for row, (kind, operand, width) in zip(out, kinds, strict=True):
        np.testing.assert_array_equal(row, reference_shuffle(x, kind, operand, width), err_msg=f"{kind} {operand} {width}")


def test_votes_matches_and_reductions_of_a_warp():
    source = """
    __global__ void k(const int* x, unsigned* out) {
      const unsigned all = 0xffffffffu;
      int v = x[threadIdx.x], t = threadIdx.x, same;
      out[t] = __ballot_sync(all, v > 0);
      out[32 + t] = __all_sync(all, v < 100) + 2 * __all_sync(all, v > 0) + 4 * __any_sync(all, v == x[5]) + 8 * __any_sync(all, v > 100);
      out[64 + t] = __match_any_sync(all, v % 4);
      out[96 + t] = __match_all_sync(all, v, &same) + same;
      out[128 + t] = __match_all_sync(all, 7, &same);
      out[160 + t] = __reduce_add_sync(all, v);
      out[192 + t] = __reduce_min_sync(all, v);
      out[224 + t] = __reduce_max_sync(all, v);
      out[256 + t] = __reduce_and_sync(all, (unsigned)v | 8);
      out[288 + t] = __reduce_or_sync(all, (unsigned)v & 5);
      out[320 + t] = __reduce_xor_sync(all, (unsigned)v);
      if (t % 2) out[352 + t] = __reduce_add_sync(0xaaaaaaaau, v); else out[352 + t] = __reduce_add_sync(0x55555555u, v);
    }"""
    x = rng.integers(-50, 50, 32).astype("int32")
    out = np.zeros((12, 32), "uint32")
    run(source, [x, out])

    def mask(condition):
        return sum(1 << i for i in range(32) if condition[i])

    u = x.astype("uint32")
    remainder = np.fmod(x, 4)
    expected = [
        np.full(32, mask(x > 0)),
        np.full(32, 1 + 4),
        np.array([mask(remainder == r) for r in remainder]),
        np.zeros(32),
        np.full(32, 0xFFFFFFFF),
        np.full(32, x.sum()).astype("int64") & 0xFFFFFFFF,
        np.full(32, x.min()).astype("int64") & 0xFFFFFFFF,
        np.full(32, x.max()).astype("int64") & 0xFFFFFFFF,
        np.full(32, np.bitwise_and.reduce(u | 8)),
        np.full(32, np.bitwise_or.reduce(u & 5)),
        np.full(32, np.bitwise_xor.reduce(u)),
        np.where(np.arange(32) % 2, x[1::2].sum(), x[::2].sum()).astype("int64") & 0xFFFFFFFF,
    ]
    for number, (row, want) in enumerate(zip(out, expected, strict=True)):
        np.testing.assert_array_equal(row, want, err_msg=str(number))


def test_active_mask_names_the_lanes_that_took_the_same_branch():
    source = """
    __global__ void k(unsigned* out) {
      if (threadIdx.x % 4 == 1) {
        unsigned mask = __activemask();
        out[threadIdx.x] = __shfl_sync(mask, threadIdx.x, __ffs(mask) - 1) * 1000 + __popc(mask);
      } else {
        out[threadIdx.x] = __activemask();
      }
    }"""
    out = np.zeros(32, "uint32")
    run(source, [out])
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, np.where(lanes % 4 == 1, 1008, 0xDDDDDDDD))


def test_atomics():
    source = """
    __global__ void k(int* i, unsigned* u, float* f, double* d, unsigned long long* q, unsigned short* h) {
      int t = blockIdx.x * blockDim.x + threadIdx.x;
      atomicAdd(&i[0], t); atomicSub(&i[1], 2); atomicMin(&i[2], t - 50); atomicMax(&i[3], t); atomicAnd(&i[4], ~(1 << (t % 4)));
      atomicOr(&i[5], 1 << (t % 8)); atomicXor(&i[6], t); atomicExch(&i[7], 77); atomicCAS(&i[8], 0, 5);
      atomicInc(&u[0], 9); atomicDec(&u[1], 9); atomicMin(&u[2], 4000000000u - t); atomicMax(&u[3], 4000000000u - t); atomicAdd(&u[4], 3u);
      atomicAdd(f, 0.5f); atomicAdd(d, 0.25); atomicAdd(q, 1ull << 40); atomicAdd_block(&i[9], 1); atomicAdd_system(&i[10], 1);
      atomicCAS(h, (unsigned short)0, (unsigned short)9);
      float old = atomicExch(f + 1, 3.0f);
      if (old != 0.0f && old != 3.0f) i[11] = 1;
    }"""
    i, u = np.zeros(12, "int32"), np.zeros(5, "uint32")
    i[4] = -1
    u[2] = 2**32 - 1
    f, d, q, h = np.zeros(2, "float32"), np.zeros(1), np.zeros(1, "uint64"), np.zeros(1, "uint16")
    run(source, [i, u, f, d, q, h], grid=4, block=64)
    assert i.tolist() == [255 * 128, -512, -50, 255, -16, 255, 0, 77, 5, 256, 256, 0]
    assert u.tolist() == [256 % 10, (0 - 256) % 10, 4000000000 - 255, 4000000000, 768]
    assert f.tolist() == [128.0, 3.0]
    assert (d[0], int(q[0]), h[0]) == (64.0, 256 << 40, 9)


def test_a_spin_lock_lets_the_others_go_on():
    source = """
    __global__ void k(int* lock, int* count) {
      bool done = false;
      while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
          __syncwarp(1u << (threadIdx.x % 32));
          count[0] += 1;
          __threadfence();
          atomicExch(lock, 0);
          done = true;
        }
      }
    }"""
    lock, count = np.zeros(1, "int32"), np.zeros(1, "int32")
    run(source, [lock, count], grid=3, block=64, timeout_s=60)
    assert count[0] == 192


FLOATS = {
    "expf(x)": np.exp, "exp(x)": np.exp, "__expf(x)": np.exp, "exp2f(x)": np.exp2, "exp10f(x)": lambda x: 10.0**x,
    "logf(p)": lambda x: np.log(np.abs(x) + 0.1), "__log2f(p)": lambda x: np.log2(np.abs(x) + 0.1), "sqrt(p)": lambda x: np.sqrt(np.abs(x) + 0.1),
    "rsqrtf(p)": lambda x: 1 / np.sqrt(np.abs(x) + 0.1), "sinf(x)": np.sin, "__cosf(x)": np.cos, "tanhf(x)": np.tanh,
    "erff(x)": lambda x: np.vectorize(math.erf)(x), "fmaf(x, 2.0f, 1.0f)": lambda x: 2 * x + 1, "__fmaf_rn(x, 2.0f, 1.0f)": lambda x: 2 * x + 1,
    "fmaxf(x, 0.25f)": lambda x: np.maximum(x, 0.25), "max(x, 0.25f)": lambda x: np.maximum(x, 0.25), "min(x, 0.25)": lambda x: np.minimum(x, 0.25),
    "fabsf(x)": np.abs, "abs(x)": np.abs, "floorf(x)": np.floor, "ceil(x)": np.ceil, "rintf(x)": np.rint, "truncf(x)": np.trunc,
    "powf(p, 1.5f)": lambda x: (np.abs(x) + 0.1) ** 1.5, "__powf(p, x)": lambda x: (np.abs(x) + 0.1) ** x,
    "fdividef(x, p)": lambda x: x / (np.abs(x) + 0.1), "__fdividef(x, p)": lambda x: x / (np.abs(x) + 0.1),
    "__frcp_rn(p)": lambda x: 1 / (np.abs(x) + 0.1), "__saturatef(x)": lambda x: np.clip(x, 0, 1), "copysignf(1.0f, x)": lambda x: np.copysign(1, x),
    "fmodf(x, 0.7f)": lambda x: np.fmod(x, np.float32(0.7)), "__fadd_rn(x, p)": lambda x: x + np.abs(x) + 0.1, "__fmul_rn(x, x)": lambda x: x * x,
    "erfinvf(x * 0.2f)": None, "normcdff(x)": lambda x: 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2)),
    "(float)__float2int_rn(x * 3.0f)": lambda x: np.rint(x * np.float32(3)), "(float)__float2int_rz(x * 3.0f)": lambda x: np.trunc(x * np.float32(3)),
    "__int_as_float(__float_as_int(x))": lambda x: x, "(float)__hiloint2double(__double2hiint((double)x), __double2loint((double)x))": lambda x: x,
    "isnan(x) ? 1.0f : isfinite(x) ? 0.0f : 2.0f": np.zeros_like, "cbrtf(x)": np.cbrt, "hypotf(x, p)": lambda x: np.hypot(x, np.abs(x) + 0.1),
    "log1pf(p)": lambda x: np.log1p(np.abs(x) + 0.1),
}  # fmt: skip


@pytest.mark.parametrize("headers", ["", "#include <cmath>\n#include <algorithm>\n"])
def test_mathematics(headers):
    """With and without the C++ library's own overloads."""
    lines = "\n".join(f"  out[{32 * number} + threadIdx.x] = {text};" for number, text in enumerate(FLOATS))
    source = f"{headers}__global__ void k(const float* in, float* out) {{ float x = in[threadIdx.x], p = fabsf(x) + 0.1f;\n{lines}\n}}"
    x = (rng.standard_normal(32) * 1.5).astype("float32")
    out = np.zeros((len(FLOATS), 32), "float32")
    run(source, [x, out])
    for row, (text, function) in zip(out, FLOATS.items(), strict=True):
        if function is None:
            np.testing.assert_allclose(np.vectorize(math.erf)(row), x * np.float32(0.2), rtol=1e-5, err_msg=text)
        else:
            np.testing.assert_allclose(row, function(x.astype("float64")), rtol=2e-5, atol=1e-6, err_msg=text)


INTEGERS = {
    "__popc(x)": lambda x: x.bit_count(), "__clz(x)": lambda x: 32 - x.bit_length(), "__ffs(x)": lambda x: (x & -x).bit_length(),
    "__brev(x)": lambda x: int(f"{x:032b}"[::-1], 2), "__umulhi(x, 2654435761u)": lambda x: x * 2654435761 >> 32,
    "__byte_perm(x, 0x89abcdefu, 0x0145)": None, "__funnelshift_l(x, 0x12345678u, 8)": lambda x: ((0x12345678 << 32 | x) << 8 >> 32) & 0xFFFFFFFF,
    "__funnelshift_r(x, 0x12345678u, 8)": lambda x: (0x12345678 << 32 | x) >> 8 & 0xFFFFFFFF,
    "__umul24(x, 3u)": lambda x: (x & 0xFFFFFF) * 3 & 0xFFFFFFFF, "min(x, 77u)": lambda x: min(x, 77), "max(x, 77)": lambda x: max(x, 77),
    "(unsigned)__popcll((unsigned long long)x << 20)": lambda x: x.bit_count(), "(unsigned)__clzll((long long)x)": lambda x: 64 - x.bit_length(),
    "__float_as_uint(__uint_as_float(x & 0x7fffffu))": lambda x: x & 0x7FFFFF,
    "(unsigned)__mulhi((int)x, 65536)": lambda x: ((x - (x >> 31 << 32)) * 65536 >> 32) & 0xFFFFFFFF,
}  # fmt: skip


def test_integer_functions():
    lines = "\n".join(f"  out[{32 * number} + threadIdx.x] = {text};" for number, text in enumerate(INTEGERS))
    source = f"__global__ void k(const unsigned* in, unsigned* out) {{ unsigned x = in[threadIdx.x];\n{lines}\n}}"
    x = rng.integers(0, 2**32, 32, dtype="uint32")
    x[:3] = 0, 1, 2**32 - 1
    out = np.zeros((len(INTEGERS), 32), "uint32")
    run(source, [x, out])
    for row, (text, function) in zip(out, INTEGERS.items(), strict=True):
        if function is None:  # bytes 5, 4, 1, 0 of 0x89abcdef:x, the lowest first
            want = [0xCD | 0xEF << 8 | (v >> 8 & 255) << 16 | (v & 255) << 24 for v in x.tolist()]
        else:
            want = [function(v) for v in x.tolist()]
        assert row.tolist() == want, text


@pytest.mark.parametrize("check", [None, "race"])
def test_vector_types(check):
    source = """
    static_assert(sizeof(float4) == 16 && alignof(float4) == 16 && sizeof(float3) == 12 && alignof(char4) == 4 && alignof(double2) == 16, "");
    union Bits { float4 v; unsigned w[4]; };
    struct Pair { float2 a; int4 b; };
    __global__ void k(const float4* x, float4* out, int2* ints, char4* bytes, Pair* pairs) {
      float4 v = x[threadIdx.x], zero = {}, one = {1.0f};
      Bits bits;
      bits.v = v;
      v.w = v.x + one.x + zero.y + one.z;
      float4 made = make_float4(v.w, v.z, v.y, v.x);
      out[threadIdx.x] = threadIdx.x % 2 ? made : v;
      ints[threadIdx.x] = make_int2(bits.w[0] == __float_as_uint(v.x), sizeof(Bits));
      bytes[threadIdx.x] = make_char4(1, 2, 3, threadIdx.x);
      Pair pair = {make_float2(1, 2), make_int4(1, 2, 3, 4)};
      pairs[threadIdx.x] = pair;
    }"""
    x = rng.standard_normal((32, 4)).astype("float32")
    out, ints, bytes_, pairs = np.zeros((32, 4), "float32"), np.zeros((32, 2), "int32"), np.zeros((32, 4), "int8"), np.zeros((32, 8), "float32")
    report = run(source, [x, out, ints, bytes_, pairs], check=check)
    changed = x.copy()
    changed[:, 3] = x[:, 0] + 1
    changed[1::2] = changed[1::2, ::-1]
    np.testing.assert_array_equal(out, changed)
    assert (ints == [1, 16]).all() and (bytes_[:, :3] == [1, 2, 3]).all() and (bytes_[:, 3] == np.arange(32)).all()
    assert (pairs[:, :2] == [1, 2]).all() and (pairs[:, 4:].copy().view("int32") == [1, 2, 3, 4]).all()
    assert report.faults == []


def test_unions_that_hold_vectors():
    source = """
    union Four { float4 v; float a[4]; };
    __global__ void k(const float4* x, float4* y) {
      Four f, g;
      f.v = x[threadIdx.x];
      g = f;
      g.a[1] += 1;
      y[threadIdx.x] = g.v;
    }"""
    x, y = rng.standard_normal((32, 4)).astype("float32"), np.zeros((32, 4), "float32")
    for check in (None, "race", "memory"):
        y[:] = 0
        report = run(source, [x, y], check=check)
        np.testing.assert_array_equal(y, x + np.array([0, 1, 0, 0], "float32"))
        assert report.faults == []
    assert any("counted by their members" in str(record) for record in report.not_judged)


@pytest.mark.parametrize("check", [None, "race", "memory"])
@pytest.mark.parametrize("scope", ["block", "file", "two"])
def test_dynamic_shared_memory(scope, check):
    declarations = {
        "block": ("", "extern __shared__ float s[];", "s"),
        "file": ("namespace { extern __shared__ __align__(16) unsigned char raw[]; }\n", "float* s = reinterpret_cast<float*>(raw);", "s"),
        "two": ("", "extern __shared__ float s[]; extern\n __shared__ volatile float t[][4];", "(&t[0][0])"),
    }[scope]
    source = f"""{declarations[0]}extern "C" __global__ void k(const float* x, float* y) {{
      {declarations[1]}
      s[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      y[threadIdx.x] = {declarations[2]}[blockDim.x - 1 - threadIdx.x];
    }}"""
    x, y = rng.standard_normal(48).astype("float32"), np.zeros(48, "float32")
    report = run(source, [x, y], block=48, shared_bytes=48 * 4, check=check)
    np.testing.assert_array_equal(y, x[::-1])
    assert report.faults == []


def test_constant_and_device_variables_templates_and_namespaces():
    source = """
    __constant__ float table[4] = {1, 2, 4, 8};
    namespace ns {
    __device__ int calls;
    __device__ __forceinline__ float pick(int i) { return table[i % 4]; }
    template <typename T, int N> __global__ void __launch_bounds__(64) k(T* __restrict__ out, const T scale) {
      #pragma unroll
      for (int i = 0; i < N; ++i) out[threadIdx.x * N + i] = scale * pick(i);
      atomicAdd(&calls, 1);
    }
    }"""
    out = np.zeros((64, 5), "float64")
    run(source, [out, 0.5], block=64, kernel="ns::k<double, 5>")
    np.testing.assert_array_equal(out, np.tile(np.array([1, 2, 4, 8, 1]) * 0.5, (64, 1)))


def test_scalar_arguments_structures_and_null_pointers():
    source = """
    struct Shape { int rows; float scale; };
    __global__ void k(double* out, bool flag, char c, unsigned short h, long long q, double d, float f, Shape shape, const float* none) {
      if (threadIdx.x == 0) {
        out[0] = flag; out[1] = c; out[2] = h; out[3] = q; out[4] = d; out[5] = f;
        out[6] = shape.rows * shape.scale; out[7] = none == nullptr; }
    }"""
    out = np.zeros(8)
    shape = np.array((3, 0.5), dtype=[("rows", "i4"), ("scale", "f4")])
    run(source, [out, True, -7, 65535, np.int64(2**40), 0.1, np.float32(0.25), shape, None])
    assert out.tolist() == [1, -7, 65535, 2**40, 0.1, 0.25, 1.5, 1]


@pytest.mark.parametrize("check", [None, "race"])
def test_arrays_need_not_be_contiguous(check):
    source = "__global__ void k(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }"
    x, y = np.arange(64, dtype="float32")[::2], np.zeros((32, 2), "float32")
    run(source, [x, y[:, 1]], check=check)
    np.testing.assert_array_equal(y, np.stack([np.zeros(32), 2 * x], axis=1))


def test_one_array_for_two_parameters():
    source = "__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }"
    x = np.zeros(32, "float32")
    assert run(source, [x, x], check="race").faults == []
    assert (x == 1).all()
    with pytest.raises(tw.ArgumentError, match="arguments 0 and 1 overlap in memory"):
        run(source, [x[:31], x[1:]], check="race")


def test_the_hosts_code_of_a_file_is_compiled_and_not_run():
    source = """
    #include <cstdio>
    #include <vector>
    #include <cuda_runtime.h>
    __global__ void k(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
    int main() {
      float* x; std::vector<float> host(100);
      cudaMalloc(&x, 400);
      cudaMemcpy(x, host.data(), 400, cudaMemcpyHostToDevice);
      k<<<dim3(4), 32>>>(x, 100); // k<<<1, 1>>>
      if (cudaDeviceSynchronize() != cudaSuccess) printf("%s\\n", cudaGetErrorString(cudaGetLastError()));
      return 1;
    }"""
    x = np.ones(100, "float32")
    run(source, [x, 100], grid=4)
    assert (x == 2).all()


def test_a_program_has_several_kernels_and_one_report():
    source = """
    __global__ void first(float* x) { x[threadIdx.x] = 1; }
    template <class T> __global__ void not_this_one(T* x) {}
    __global__ void second(float* x) {
      x[0] = 2; }"""
    program = Program(source, check="race")
    assert program.kernels == ("first", "second")
    assert [str(parameter) for parameter in program.parameters("second")] == ["float*"]
    x = np.zeros(32, "float32")
    program.launch("first", 1, 32, 0, [x])
    assert program.report.faults == []
    program.launch("second", 1, 32, 0, [x])
    assert len(program.report.races) == 1
    program.clear_report()
    assert program.report.faults == []
    assert x.tolist() == [2.0] + [1.0] * 31


def test_many_blocks_and_threads_give_the_same_as_one():
    source = """
    __global__ void k(const float* x, float* y, int n) {
      __shared__ float s[32];
      float v = 0;
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
      for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
      if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
      __syncthreads();
      if (threadIdx.x == 0) { for (int w = 1; w < blockDim.x / 32; ++w) v += s[w]; y[blockIdx.x] = v; }
    }"""
    x = rng.standard_normal(20000).astype("float32")
    results = []
    for threads in (1, 2, 7):
        y = np.zeros(37, "float32")
        run(source, [x, y, 20000], grid=37, block=128, threads=threads)
        results.append(y)
    np.testing.assert_allclose(results[0].sum(), x.sum(), rtol=1e-3)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("check", [None, "race"])
def test_cooperative_groups(check):
    source = """
    #include <cooperative_groups.h>
    #include <cooperative_groups/reduce.h>
    namespace cg = cooperative_groups;
    __global__ void k(const int* x, int* out) {
      cg::thread_block block = cg::this_thread_block();
      auto tile = cg::tiled_partition<8>(block);
      __shared__ int s[64];
      int t = block.thread_rank(), v = x[t];
      s[t] = v;
      block.sync();
      out[t] = s[block.size() - 1 - t];
      out[64 + t] = cg::reduce(tile, v, cg::plus<int>());
      out[128 + t] = tile.shfl_down(v, 3) + 1000 * tile.thread_rank() + 10000 * tile.meta_group_rank();
      out[192 + t] = cg::inclusive_scan(tile, v) - cg::exclusive_scan(tile, v);
      out[256 + t] = tile.ballot(v > 0);
      if (t % 3 == 0) {
        auto here = cg::coalesced_threads();
        out[320 + t] = cg::reduce(here, v, cg::greater<int>()) + 1000 * here.size() + 100000 * here.thread_rank();
      }
      cg::sync(block);
      out[384 + t] = cg::this_grid().thread_rank();
    }"""
    x = rng.integers(-50, 50, 64).astype("int32")
    out = np.zeros((7, 64), "int32")
    report = run(source, [x, out], block=64, check=check)
    lanes, tiles = np.arange(64), x.reshape(8, 8)
    np.testing.assert_array_equal(out[0], x[::-1])
    np.testing.assert_array_equal(out[1], np.repeat(tiles.sum(1), 8))
    down = np.where(lanes % 8 + 3 < 8, x[np.minimum(lanes + 3, 63)], x)
    np.testing.assert_array_equal(out[2], down + 1000 * (lanes % 8) + 10000 * (lanes // 8))
    np.testing.assert_array_equal(out[3], x)
    np.testing.assert_array_equal(out[4], np.repeat(((tiles > 0) << np.arange(8)).sum(1), 8))
    for warp in (0, 1):
        chosen = np.flatnonzero((lanes // 32 == warp) & (lanes % 3 == 0))
        np.testing.assert_array_equal(out[5][chosen], x[chosen].max() + 1000 * len(chosen) + 100000 * np.arange(len(chosen)))
    np.testing.assert_array_equal(out[6], lanes)
    assert report.faults == []
    if check:
        report = run(source.replace("block.sync();", "tile.sync();"), [x, out], block=64, check=check)
        assert {race.buffer for race in report.races} == {"s"} and {line for race in report.races for line in race.lines} == {10, 12}
