"""Hand-written C in the calling convention of the C target, for the tests of the runtime. No generator is involved."""

from __future__ import annotations

from tilewright.targets.generated import ArgumentSpec, Generated


def spec(name, shape, dtype="float32", out=False):
    return ArgumentSpec(name, dtype, tuple(shape), out)


def add(n=8, dtype="float32", c_type="float", name="add", salt=""):
    """C[n] = A[n] + B[n]; `salt` makes a source that no cache has."""
    source = f"""#include <stdint.h>
/* {salt} */
int32_t {name}(const {c_type} *restrict A, const {c_type} *restrict B, {c_type} *restrict C) {{
    for (int64_t i = 0; i < {n}; ++i) C[i] = A[i] + B[i];
    return 0;
}}
"""
    return Generated(name, source, (spec("A", [n], dtype), spec("B", [n], dtype), spec("C", [n], dtype, out=True)))


def matmul(M, N, K, name="mm"):
    """C[M, N] = A[M, K] B[K, N]."""
    source = f"""#include <stdint.h>
int32_t {name}(const float *restrict A, const float *restrict B, float *restrict C) {{
    for (int64_t i = 0; i < {M}; ++i)
        for (int64_t j = 0; j < {N}; ++j) {{
            float sum = 0;
            for (int64_t k = 0; k < {K}; ++k) sum += A[i * {K} + k] * B[k * {N} + j];
            C[i * {N} + j] = sum;
        }}
    return 0;
}}
"""
    return Generated(name, source, (spec("A", [M, K]), spec("B", [K, N]), spec("C", [M, N], out=True)))


def scale_rows():
    """B[m, n] = A[m, n] * s[m] with symbolic m and n, and an extra argument of shape [n + 1]."""
    source = """#include <stdint.h>
int32_t scale_rows(const float *restrict A, const float *restrict s, const float *restrict e, float *restrict B, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) B[i * n + j] = A[i * n + j] * s[i] + e[n];
    return 0;
}
"""
    arguments = (spec("A", ["m", "n"]), spec("s", ["m"]), spec("e", ["n + 1"]), spec("B", ["m", "n"], out=True))
    return Generated("scale_rows", source, arguments, sizes=("m", "n"))


def parallel_fill(n, threads):
    """C[i] = index of the thread that wrote it; ids[0] = number of threads of the team."""
    source = f"""#include <stdint.h>
#include <omp.h>
int32_t parallel_fill(int32_t *restrict C, int32_t *restrict ids) {{
    #pragma omp parallel for schedule(static) num_threads({threads})
    for (int64_t i = 0; i < {n}; ++i) {{
        C[i] = omp_get_thread_num();
        if (i == 0) ids[0] = omp_get_num_threads();
    }}
    return 0;
}}
"""
    arguments = (spec("C", [n], "int32", out=True), spec("ids", [1], "int32", out=True))
    return Generated("parallel_fill", source, arguments, uses_openmp=True)


def fails():
    """Says that memory could not be had."""
    source = "#include <stdint.h>\nint32_t fails(float *restrict A) { return 1; }\n"
    return Generated("fails", source, (spec("A", [1], out=True),), workspace_bytes=1 << 40)


def sleeps():
    """Waits 200 ms, then writes 7."""
    source = """#include <stdint.h>
#include <unistd.h>
int32_t sleeps(float *restrict A) { usleep(200000); A[0] = 7; return 0; }
"""
    return Generated("sleeps", source, (spec("A", [1], out=True),))
