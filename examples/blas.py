"""A matrix product by BLAS and what follows it by a kernel: D[M, N] = gelu(A[M, K] B[K, N] + bias[N]), in one compiled function.

    python examples/blas.py [--size M K N] [--rounds R]

The product is te.extern: a call of cblas_sgemm in the BLAS that NumPy brings along. Bias and gelu are stages of their own, scheduled as any
other: one pass over C where NumPy makes ten.
"""

from __future__ import annotations

import argparse
import ctypes
import os

import numpy as np
from timing import compare, report

import tilewright as tw
from tilewright import te

ROW_MAJOR, NO_TRANSPOSE = 101, 111  # of cblas.h

# The names under which builds of BLAS export cblas_sgemm, and the dtype of its sizes.
SYMBOLS = [("scipy_cblas_sgemm64_", "int64"), ("cblas_sgemm64_", "int64"), ("scipy_cblas_sgemm", "int32"), ("cblas_sgemm", "int32")]


def find_blas() -> tuple[str, str, str]:
    """The file of the BLAS that NumPy has loaded, the name of its cblas_sgemm, and the dtype of the sizes it takes."""
    np.ones((2, 2), "float32") @ np.ones((2, 2), "float32")
    with open("/proc/self/maps") as maps:
        files = dict.fromkeys(line.split(maxsplit=5)[-1].strip() for line in maps if ".so" in line)
    for file in files:
        if "blas" in os.path.basename(file) or "mkl_rt" in file:
            library = ctypes.CDLL(file)
            for symbol, size in SYMBOLS:
                if hasattr(library, symbol):
                    return file, symbol, size
    raise SystemExit("no BLAS found: NumPy's wheels for Linux bring one, other builds use libblas")


def sgemm(A: te.Tensor, B: te.Tensor, name: str = "C") -> te.Tensor:
    """C[M, N] = A[M, K] B[K, N], float32, by cblas_sgemm."""
    file, symbol, size = find_blas()
    (M, K), N = A.shape, B.shape[1]
    m, n, k = (te.const(extent, size) for extent in (M, N, K))
    one, zero = te.const(1.0, "float32"), te.const(0.0, "float32")

    def call(ins, outs):
        (a, b), (c,) = ins, outs
        return te.call_extern(symbol, ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, m, n, k, one, a, k, b, n, zero, c, n)

    return te.extern((M, N), [A, B], call, name=name, dtype="float32", libraries=[file])


def dense_gelu(M: int, K: int, N: int) -> list[te.Tensor]:
    """A[M, K], B[K, N], bias[N], D[M, N] = gelu(A B + bias), gelu in its tanh form."""
    A, B, bias = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B"), te.placeholder((N,), name="bias")
    C = sgemm(A, B)
    X = te.compute((M, N), lambda i, j: C[i, j] + bias[j], name="X")
    D = te.compute((M, N), lambda i, j: 0.5 * X[i, j] * (1.0 + te.tanh(0.7978845608 * (X[i, j] + 0.044715 * X[i, j] * X[i, j] * X[i, j]))), name="D")
    return [A, B, bias, D]


def schedule(tensors: list[te.Tensor]) -> te.Schedule:
    """Rows in parallel, columns in vectors; X is computed where D needs it. C is stored whole: BLAS fills it before D begins."""
    D = tensors[-1]
    (X,) = D.op.input_tensors
    s = te.create_schedule(D.op)
    s[X].compute_inline()
    i, j = s[D].op.axis
    s[D].parallel(i)
    s[D].vectorize(s[D].split(j, factor=16)[1])
    return s


def main():
    """Builds, checks against NumPy, times both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=3, default=[512, 512, 2048], metavar=("M", "K", "N"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    M, K, N = options.size
    tensors = dense_gelu(M, K, N)
    s = schedule(tensors)
    print(tw.lower(s, tensors))
    mod = tw.build(s, tensors)

    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(shape, dtype="float32") for shape in ((M, K), (K, N), (N,)))
    d = np.empty((M, N), "float32")
    mod(a, b, bias, d)

    def numpy_gelu():
        x = a @ b + bias
        return np.float32(0.5) * x * (np.float32(1) + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))

    x = a.astype("float64") @ b + bias
    np.testing.assert_allclose(d, 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))), rtol=1e-4, atol=1e-4 * K**0.5)
    contenders = {"NumPy": numpy_gelu, "BLAS and our epilogue": lambda: mod(a, b, bias, d)}
    print(report(compare(contenders, options.rounds), 2 * M * N * K))


if __name__ == "__main__":
    main()
