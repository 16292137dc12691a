"""Operators on quantised data: int8 products with scales and zero points per output channel, and weights of four bits.

A quantised number q stands for the real number scale * (q - zero point). Sums of products of integers are exact (int32); only the way
back rounds. See B. Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
arXiv:1712.05877; for weights of four bits with a scale for each group, E. Frantar et al., "GPTQ", arXiv:2210.17323.

Zero points are subtracted from the operands in stages of their own, which a schedule may store: the weights' as int16, since they are read as
vectors, the activations' as int32, since each is broadcast to a vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.dtype import dtype as dtype_named
from ...tir.errors import TEError
from .. import api, reduce
from ..axis import reduce_axis
from ..tensor import Tensor
from .conv2d import Sizes, check_convolution, convolve, image_and_kernel, pad_spatial, reference_conv2d
from .operator import Operator, accumulator, check_sizes, operator, wide


@operator
def quantized_matmul(
    M: int, N: int, K: int, a_zero: int = 0, out_zero: int = 0, dtype: str = "int8", weight_dtype: str = "int8", out_dtype: str = "float32"
) -> Operator:
    """C[m, n] = S[n] * sum over k of (A[m, k] - a_zero) * (B[k, n] - Z[n]), with A[M, K], B[K, N], S[N] float32, Z[N], C[M, N].

    dtype, weight_dtype   "int8" or "uint8": of A, and of B and its zero points Z
    a_zero                the zero point of A, one for the whole tensor; its scale is a factor of S
    out_dtype             a float; or "int8", "uint8": then S is divided by the scale of C already, and the result is rounded in float32
                          (halves to even), moved by `out_zero`, and clipped to the range of the dtype

    The sums are int32: they are exact while K <= 33025, whatever the data, and wrap beyond.
    """
    check_sizes(M=M, N=N, K=K)
    _check_dtypes("quantized_matmul", dtype, weight_dtype, out_dtype, a_zero, out_zero)
    A, B, S, Z = api.placeholder((M, K), dtype, "A"), api.placeholder((K, N), weight_dtype, "B"), *_scales(N, weight_dtype)
    Az = api.compute((M, K), lambda i, k: A[i, k].astype("int32") - a_zero, "Az", tag="activations")
    Bz = api.compute((K, N), lambda k, j: B[k, j].astype("int16") - Z[j].astype("int16"), "Bz", tag="weights")
    k = reduce_axis((0, K), "k")
    P = api.compute((M, N), lambda i, j: reduce.sum(Az[i, k] * Bz[k, j].astype("int32"), axis=k), "P", tag="quantized_sum")
    C = api.compute((M, N), lambda i, j: _requantized(P[i, j], S[j], out_zero, out_dtype), "C", tag="quantized_matmul")

    def reference(a: Any, b: Any, s: Any, z: Any) -> Any:
        a, b, z = wide(a, b, z)
        return _reference_requantized((a - a_zero) @ (b - z), s, out_zero, out_dtype)

    return Operator([A, B, S, Z, C], 2 * M * N * K, reference)


@operator
def quantized_conv2d(
    N: int,
    CI: int,
    H: int,
    W: int,
    CO: int,
    KH: int,
    KW: int,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
    x_zero: int = 0,
    out_zero: int = 0,
    dtype: str = "int8",
    weight_dtype: str = "int8",
    out_dtype: str = "float32",
) -> Operator:
    """Y[n, o, y, x] = S[o] * sum over c, r, q of (X[n, g c, y sh + r dh - ph, x sw + q dw - pw] - x_zero) * (F[o, c, r, q] - Z[o]).

    X, F, Y, strides, padding, dilation, groups and layouts as in conv2d; S[CO] float32, Z[CO] of F's dtype; the padding stands for the real
    number 0. Zero points, scales and dtypes as in quantized_matmul; the sums are exact while CI / groups * KH * KW <= 33025.
    """
    check_sizes(N=N, CI=CI, H=H, W=W, CO=CO, KH=KH, KW=KW, groups=groups)
    _check_dtypes("quantized_conv2d", dtype, weight_dtype, out_dtype, x_zero, out_zero)
    shape = check_convolution("quantized_conv2d", (CI, H, W, CO, KH, KW), stride, padding, dilation, groups, layout)
    nchw = layout == "NCHW"
    X, F = image_and_kernel(N, H, W, shape, groups, layout, dtype, weight_dtype)
    S, Z = _scales(CO, weight_dtype)
    channel = 0 if nchw else 3
    Xz = api.compute(X.shape, lambda *i: X(*i).astype("int32") - x_zero, "Xz", tag="activations")
    Xp = pad_spatial(Xz, shape.padding, 2 if nchw else 1)
    Fz = api.compute(F.shape, lambda *i: F(*i).astype("int16") - Z[i[channel]].astype("int16"), "Wz", tag="weights")
    P = convolve(Xp, Fz, N, shape, groups, layout, "int32", "P")
    last = 1 if nchw else 3
    Y = api.compute(P.shape, lambda *i: _requantized(P(*i), S[i[last]], out_zero, out_dtype), "Y", tag="quantized_conv2d")

    def reference(x: Any, w: Any, s: Any, z: Any) -> Any:
        x, w, z = wide(x, w, z)
        s, z = (s[:, None, None], z[:, None, None, None]) if nchw else (s, z)  # the output channels are the last dimension of the others
        sums = reference_conv2d(x - x_zero, w - z, shape.stride, shape.padding, shape.dilation, groups, layout)
        return _reference_requantized(sums, s, out_zero, out_dtype)

    return Operator([X, F, S, Z, Y], 2 * N * CO * shape.OH * shape.OW * CI // groups * KH * KW, reference)


@operator
def int4_matmul(M: int, N: int, K: int, group: int = 32, dtype: str = "float32", acc_dtype: str | None = None) -> Operator:
    """C[m, n] = sum over k of A[m, k] * (b[k, n] - Z[k / group, n]) * S[k / group, n], with b[k, n] the four bits of k in B[k / 2, n].

    A[M, K] and S[K / group, N] of `dtype`; B[K / 2, N] uint8: the lower four bits of a byte are the weight of an even k, the upper ones of the
    k after it; Z[K / group, N] uint8, from 0 to 15; C[M, N] of `acc_dtype` (`dtype` unless given), in which weights are dequantised too.
    `group`, an even divisor of K, is the number of neighbouring k that have a scale and zero point in common.
    """
    check_sizes(M=M, N=N, K=K, group=group)
    if group % 2 or K % group:
        raise TEError(f"int4_matmul: group is {group}: expected an even divisor of K={K}")
    if not dtype_named(dtype).is_float:
        raise TEError(f"int4_matmul: dtype is {dtype}: expected a float, the activations are not quantised")
    acc = accumulator(dtype, acc_dtype)
    A, B = api.placeholder((M, K), dtype, "A"), api.placeholder((K // 2, N), "uint8", "B")
    S, Z = api.placeholder((K // group, N), dtype, "S"), api.placeholder((K // group, N), "uint8", "Z")

    def dequantized(k: Any, j: Any) -> Any:
        four_bits = (B[k // 2, j].astype("int32") >> (k % 2 * 4)) & 15  # int32: CPUs have no shifts of bytes
        return (four_bits - Z[k // group, j].astype("int32")).astype(acc) * S[k // group, j].astype(acc)

    Bf = api.compute((K, N), dequantized, "Bf", tag="weights")
    k = reduce_axis((0, K), "k")
    C = api.compute((M, N), lambda i, j: reduce.sum(A[i, k].astype(acc) * Bf[k, j], axis=k), "C", tag="int4_matmul")

    def reference(a: Any, b: Any, s: Any, z: Any) -> Any:
        a, s, z = a.astype("float64"), s.astype("float64"), z.astype("float64")
        bits = np.stack([b & 15, b >> 4], axis=1).reshape(K, N)
        return a @ ((bits - np.repeat(z, group, axis=0)) * np.repeat(s, group, axis=0))

    return Operator([A, B, S, Z, C], 2 * M * N * K, reference)


def _scales(channels: int, weight_dtype: str) -> tuple[Tensor, Tensor]:
    return api.placeholder((channels,), "float32", "S"), api.placeholder((channels,), weight_dtype, "Z")


def _check_dtypes(name: str, dtype: str, weight_dtype: str, out_dtype: str, zero: int, out_zero: int) -> None:
    for what, given in (("dtype", dtype), ("weight_dtype", weight_dtype)):
        if dtype_named(given) not in ("int8", "uint8"):
            raise TEError(f"{name}: {what} is {given}: expected int8 or uint8")
    out = dtype_named(out_dtype)
    if not (out.is_float and out.bits >= 16) and out not in ("int8", "uint8"):
        raise TEError(f"{name}: out_dtype is {out}: expected int8, uint8 or a float of at least 16 bits")
    if out.is_float and out_zero != 0:
        raise TEError(f"{name}: out_zero is {out_zero}, but the result is {out}, which has no zero point")
    for point, kind in ((zero, dtype_named(dtype)), *([] if out.is_float else [(out_zero, out)])):
        if not isinstance(point, int) or isinstance(point, bool) or not kind.low <= point <= kind.high:
            raise TEError(f"{name}: a zero point is {point!r}: expected an int that is a value of {kind}, from {kind.low} to {kind.high}")


def _requantized(total: Any, scale: Any, zero: int, out_dtype: str) -> Any:
    """The result of a sum. It is clipped before it becomes an integer: a float beyond the range of one would become anything."""
    kind = dtype_named(out_dtype)
    if kind == "float64":
        return total.astype(kind) * scale.astype(kind)
    scaled = total.astype("float32") * scale
    if kind.is_float:
        return scaled.astype(kind)
    return api.clip(api.round(scaled) + float(zero), float(kind.low), float(kind.high)).astype(kind)


def _reference_requantized(total: Any, scale: Any, zero: int, out_dtype: str) -> Any:
    kind = dtype_named(out_dtype)
    if kind.is_float:
        return total * scale.astype("float64")
    rounded = np.rint(total.astype("float32") * scale)  # in float32, which is what the operator says: halves are found where it finds them
    return np.clip(rounded + np.float32(zero), kind.low, kind.high).astype(str(kind))
