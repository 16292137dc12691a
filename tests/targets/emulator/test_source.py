"""What is read and rewritten in CUDA source, and in the compiler's assembly."""

from __future__ import annotations

import pytest

from tilewright.targets.emulator import assembly, source, symbols


@pytest.mark.parametrize(
    "text, rewritten, names",
    [
        ("void f() { extern __shared__ float s[]; }", "void f() { float * const s = (float *)emulator_dynamic_shared(); }", ["s"]),
        ("extern __shared__ int s[];", "static thread_local int * const s = (int *)emulator_dynamic_shared();", ["s"]),
        (
            'extern "C" { namespace a::b { extern __shared__ __align__(16) unsigned char s[]; } }',
            'extern "C" { namespace a::b { static thread_local unsigned char * const s = (unsigned char *)emulator_dynamic_shared(); } }',
            ["s"],
        ),
        ("{ extern __shared__ float4 s[][8]; }", "{ float4 (* const s)[8] = (float4 (*)[8])emulator_dynamic_shared(); }", ["s"]),
        ("{ extern volatile __shared__ float s[]; }", "{ volatile float * const s = (volatile float *)emulator_dynamic_shared(); }", ["s"]),
        ("{ extern alignas(16) __shared__ const ns::T<int, 4> s[]; }", "{ const ns::T<int, 4> * const s = (const ns::T<int, 4> *)emulator_dynamic_shared(); }",
         ["s"]),
        ("// extern __shared__ float s[];\n\"extern __shared__ float s[];\"", "// extern __shared__ float s[];\n\"extern __shared__ float s[];\"", []),
        ("k<<<dim3(4, f(2)), 64, 0, stream>>>(x);", "k                                  (x);", []),
        ("k<float><<<1,\n 2>>>(x); a << b >> c;", "k<float>     \n     (x); a << b >> c;", []),
    ],
)  # fmt: skip
def test_rewriting(text, rewritten, names):
    assert source.rewrite(text) == (rewritten, names)
    assert source.rewrite(text)[0].count("\n") == text.count("\n")


def test_names_of_kernels_and_their_parameters():
    text = """
    // __global__ void no(int a);
    template <typename T, int N = 4> __global__ void __launch_bounds__(256, 2) first(const T* __restrict__ x, T (*rows)[N], int n = (1, 2)) {}
    extern "C" __global__ __launch_bounds__(64) void second() {}
    static __global__ void third(float4 a[], std::pair<int, float> p);
    """
    assert source.kernel_names(text) == ["first", "second", "third"]
    assert source.plain_kernel_names(text) == ["second", "third"]
    assert source.parameter_names(text, "first") == ["x", "rows", "n"]
    assert source.parameter_names(text, "second") == []
    assert source.parameter_names(text, "third") == ["a", "p"]


def test_which_headers_bring_the_standard_library():
    assert not source.needs_standard_headers("#include <cuda_fp16.h>\n#include <stdint.h>\n  # include <mma.h>\n")
    assert source.needs_standard_headers("#include <cuda_runtime.h>\n#include <cmath>\n")
    assert source.has_host_code("int main() { cudaMalloc(&x, 4); }") and source.has_host_code("k<<<1, 2>>>();")
    assert not source.has_host_code("// k<<<1, 2>>>()\n__global__ void k() {}")


def test_room_between_thread_local_variables():
    text = '\t.section\t.tbss,"awT",@nobits\n\t.align 32\n_ZZ1kE1s:\n\t.zero\t256\n_ZZ1kE1t:\n\t.zero\t4\n\t.text\nk:\n\tret\n'
    separated = assembly.separate_variables(text)
    assert separated.count(f"\t.zero\t{assembly.GAP_BYTES}\n") == 3 and f".zero\t{assembly.GAP_BYTES}\n_ZZ1kE1s:" in separated and "4096\nk:" not in separated


@pytest.mark.parametrize(
    "calls, text, size",
    [
        ("__tsan_read4 __tsan_write8", "", 4), ("__tsan_read2 __tsan_write4", "", 2), ("__tsan_write1", "", 1), ("__tsan_unaligned_read4", "", 1),
        ("__tsan_atomic16_load", "", 2),
        ("__tsan_read_range", "", 4), ("memcpy", "", 1), ("emulator_access", "atomicAdd(h, __float2half(1)); half* h", 2), ("", "", 4),
    ],
)  # fmt: skip
def test_the_smallest_access(calls, text, size):
    assert assembly.granule_bytes("".join(f"\tcall\t{name}@PLT\n" for name in calls.split()) + '\t.string\t"memcpy"\n', text) == size


@pytest.mark.parametrize(
    "symbol, name",
    [
        ("_ZZ1kE4tile", "tile"), ("_ZZ1kE4tile_0", "tile"), ("_ZZN2ns4turnIfLi32EEEvPT_E1s", "s"), ("_ZL3lut", "lut"), ("_ZN2ns5tableE", "table"),
        ("counter", "counter"),
        ("_ZN12_GLOBAL__N_17outsideE", "outside"), ("_ZZ4turnILi64EEffE4tile", "tile"), ("s.0", "s"), ("_ZZ1kE2s1", "s1"),
    ],
)  # fmt: skip
def test_names_of_variables(symbol, name):
    assert symbols.source_name(symbol) == name
