"""Products of matrices: matmul, batch_matmul, dense, gemv."""

from __future__ import annotations

from .. import api, reduce
from ..axis import reduce_axis
from .operator import Operator, accumulator, check_sizes, operator, wide


@operator
def matmul(M: int, N: int, K: int, dtype: str = "float32", acc_dtype: str | None = None) -> Operator:
    """C[m, n] = sum over k of A[m, k] * B[k, n], with A[M, K], B[K, N], C[M, N].

    The products are summed in `acc_dtype`, the dtype of C: `dtype` itself unless given, int32 for smaller integers.
    """
    check_sizes(M=M, N=N, K=K)
    acc = accumulator(dtype, acc_dtype)
    A, B = api.placeholder((M, K), dtype, "A"), api.placeholder((K, N), dtype, "B")
    k = reduce_axis((0, K), "k")
    C = api.compute((M, N), lambda i, j: reduce.sum(A[i, k].astype(acc) * B[k, j].astype(acc), axis=k), "C", tag="matmul")
    return Operator([A, B, C], 2 * M * N * K, lambda a, b: wide(a)[0] @ wide(b)[0])


@operator
def batch_matmul(B: int, M: int, N: int, K: int, dtype: str = "float32", acc_dtype: str | None = None) -> Operator:
    """Z[b, m, n] = sum over k of X[b, m, k] * Y[b, k, n], with X[B, M, K], Y[B, K, N], Z[B, M, N]; `acc_dtype` as in matmul."""
    check_sizes(B=B, M=M, N=N, K=K)
    acc = accumulator(dtype, acc_dtype)
    X, Y = api.placeholder((B, M, K), dtype, "X"), api.placeholder((B, K, N), dtype, "Y")
    k = reduce_axis((0, K), "k")
    Z = api.compute((B, M, N), lambda b, i, j: reduce.sum(X[b, i, k].astype(acc) * Y[b, k, j].astype(acc), axis=k), "Z", tag="batch_matmul")
    return Operator([X, Y, Z], 2 * B * M * N * K, lambda x, y: wide(x)[0] @ wide(y)[0])


@operator
def dense(M: int, N: int, K: int, dtype: str = "float32", acc_dtype: str | None = None) -> Operator:
    """Y[m, n] = sum over k of X[m, k] * W[n, k], with X[M, K], W[N, K] (a row for each output), Y[M, N]; `acc_dtype` as in matmul."""
    check_sizes(M=M, N=N, K=K)
    acc = accumulator(dtype, acc_dtype)
    X, W = api.placeholder((M, K), dtype, "X"), api.placeholder((N, K), dtype, "W")
    k = reduce_axis((0, K), "k")
    Y = api.compute((M, N), lambda i, j: reduce.sum(X[i, k].astype(acc) * W[j, k].astype(acc), axis=k), "Y", tag="dense")
    return Operator([X, W, Y], 2 * M * N * K, lambda x, w: wide(x)[0] @ wide(w)[0].T)


@operator
def gemv(M: int, K: int, dtype: str = "float32", acc_dtype: str | None = None) -> Operator:
    """y[m] = sum over k of A[m, k] * x[k], with A[M, K], x[K], y[M]; `acc_dtype` as in matmul."""
    check_sizes(M=M, K=K)
    acc = accumulator(dtype, acc_dtype)
    A, x = api.placeholder((M, K), dtype, "A"), api.placeholder((K,), dtype, "x")
    k = reduce_axis((0, K), "k")
    y = api.compute((M,), lambda i: reduce.sum(A[i, k].astype(acc) * x[k].astype(acc), axis=k), "y", tag="gemv")
    return Operator([A, x, y], 2 * M * K, lambda a, v: wide(a)[0] @ wide(v)[0])
