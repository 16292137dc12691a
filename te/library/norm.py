"""Normalisations: softmax, layer_norm, rms_norm, batch_norm. Those of float16 and bfloat16 are computed in float32 and rounded once, at the end."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...tir.errors import TEError
from .. import api, reduce
from ..axis import reduce_axis, same_extent
from ..tensor import Tensor
from .operator import Operator, check_dims, operator, wide, working_dtype


@operator
def softmax(shape: Sequence[int], dtype: str = "float32") -> Operator:
    """Y[..., j] = exp(X[..., j] - m[...]) / z[...] over the last axis, with m the maximum and z the sum of the exponentials."""
    shape = check_dims(shape)
    rows, D = shape[:-1], shape[-1]
    X = api.placeholder(shape, dtype, "X")
    acc = working_dtype("softmax", dtype)
    k, j = reduce_axis((0, D), "k"), reduce_axis((0, D), "j")
    m = api.compute(rows, lambda *i: reduce.max(X(*i, k), axis=k), "m")
    E = api.compute(shape, lambda *i: api.exp(X(*i).astype(acc) - m(*i[:-1]).astype(acc)), "E")
    z = api.compute(rows, lambda *i: reduce.sum(E(*i, j), axis=j), "z")
    Y = api.compute(shape, lambda *i: (E(*i) / z(*i[:-1])).astype(dtype), "Y", tag="softmax")

    def reference(x: Any) -> Any:
        (x,) = wide(x)
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return Operator([X, Y], 5 * prod(shape), reference)


@operator
def layer_norm(shape: Sequence[int], eps: float = 1e-5, affine: bool = False, dtype: str = "float32") -> Operator:
    """Y = (X - mean) / sqrt(variance + eps) over the last axis D, with `affine` times G[D] plus B[D] (arguments X, G, B, Y).

    The variance is the mean of squared deviations, in a second pass: the mean of squares less the squared mean would cancel.
    J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", arXiv:1607.06450.
    """
    shape = check_dims(shape)
    rows, D = shape[:-1], shape[-1]
    X = api.placeholder(shape, dtype, "X")
    G, B = api.placeholder((D,), dtype, "G"), api.placeholder((D,), dtype, "B")
    acc = working_dtype("layer_norm", dtype)
    k, j = reduce_axis((0, D), "k"), reduce_axis((0, D), "j")
    total = api.compute(rows, lambda *i: reduce.sum(X(*i, k).astype(acc), axis=k), "total")
    mean = api.compute(rows, lambda *i: total(*i) * (1.0 / D), "mean")

    def squared_deviation(*i: Any) -> Any:
        d = X(*i, j).astype(acc) - mean(*i)
        return reduce.sum(d * d, axis=j)

    spread = api.compute(rows, squared_deviation, "spread")
    scale = api.compute(rows, lambda *i: api.rsqrt(spread(*i) * (1.0 / D) + eps), "scale")

    def normalised(*i: Any) -> Any:
        y = (X(*i).astype(acc) - mean(*i[:-1])) * scale(*i[:-1])
        return (y * G[i[-1]].astype(acc) + B[i[-1]].astype(acc) if affine else y).astype(dtype)

    Y = api.compute(shape, normalised, "Y", tag="layer_norm")

    def reference(x: Any, g: Any = None, b: Any = None) -> Any:
        (x,) = wide(x)
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        return y * wide(g)[0] + wide(b)[0] if affine else y

    return Operator([X, G, B, Y] if affine else [X, Y], (8 if affine else 6) * prod(shape), reference)


@operator
def rms_norm(shape: Sequence[int], eps: float = 1e-5, affine: bool = False, dtype: str = "float32") -> Operator:
    """Y = X / sqrt(mean of X^2 + eps) over the last axis D, with `affine` times G[D] (arguments X, G, Y).

    B. Zhang, R. Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.
    """
    shape = check_dims(shape)
    rows, D = shape[:-1], shape[-1]
    X, G = api.placeholder(shape, dtype, "X"), api.placeholder((D,), dtype, "G")
    acc = working_dtype("rms_norm", dtype)
    k = reduce_axis((0, D), "k")
    squares = api.compute(rows, lambda *i: reduce.sum(X(*i, k).astype(acc) * X(*i, k).astype(acc), axis=k), "squares")
    scale = api.compute(rows, lambda *i: api.rsqrt(squares(*i) * (1.0 / D) + eps), "scale")

    def normalised(*i: Any) -> Any:
        y = X(*i).astype(acc) * scale(*i[:-1])
        return (y * G[i[-1]].astype(acc) if affine else y).astype(dtype)

    Y = api.compute(shape, normalised, "Y", tag="rms_norm")

    def reference(x: Any, g: Any = None) -> Any:
        (x,) = wide(x)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        return y * wide(g)[0] if affine else y

    return Operator([X, G, Y] if affine else [X, Y], (4 if affine else 3) * prod(shape), reference)


@operator
def batch_norm(shape: Sequence[int], eps: float = 1e-5, dtype: str = "float32") -> Operator:
    """Y[n, c, ...] = (X[n, c, ...] - M[c]) * (G[c] / sqrt(V[c] + eps)) + B[c], with given mean M and variance V.

    The arguments are X, M, V, G, B, Y; X and Y have the shape, the others the extent of its axis 1.

    S. Ioffe, C. Szegedy, "Batch Normalization", arXiv:1502.03167.
    """
    shape = check_dims(shape, 2)
    C = shape[1]
    X = api.placeholder(shape, dtype, "X")
    M, V, G, B = (api.placeholder((C,), dtype, name) for name in ("M", "V", "G", "B"))
    acc = working_dtype("batch_norm", dtype)
    scale = api.compute((C,), lambda c: G[c].astype(acc) * api.rsqrt(V[c].astype(acc) + eps), "scale")

    def normalised(*i: Any) -> Any:
        return ((X(*i).astype(acc) - M[i[1]].astype(acc)) * scale[i[1]] + B[i[1]].astype(acc)).astype(dtype)

    Y = api.compute(shape, normalised, "Y", tag="batch_norm")

    def reference(x: Any, m: Any, v: Any, g: Any, b: Any) -> Any:
        x, m, v, g, b = wide(x, *(a.reshape(-1, *[1] * (x.ndim - 2)) for a in (m, v, g, b)))
        return (x - m) / np.sqrt(v + eps) * g + b

    return Operator([X, M, V, G, B, Y], 3 * prod(shape), reference)


def fold_batch_norm(W: Tensor, M: Tensor, V: Tensor, G: Tensor, B: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """Weights F and summands D with which a convolution by W followed by batch_norm is one convolution: conv(X, F)[n, o, ...] + D[o].

    F[o, ...] = W[o, ...] * G[o] / sqrt(V[o] + eps) and D[o] = B[o] - M[o] * G[o] / sqrt(V[o] + eps), for W[CO, ...] with its output channels first (OIHW) and
    M, V, G, B[CO]. Both are computations; name the operands in `tw.build(..., constants=)`, and they are done once, when the kernel is built. A TEError where
    an extent does not fit.

    B. Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", arXiv:1712.05877, section 3.2.
    """
    for T in (W, M, V, G, B):
        if not isinstance(T, Tensor):
            raise TEError(f"fold_batch_norm: {T!r}: expected a tensor; arrays are given values when the kernel is built, by constants=")
    if W.ndim == 0:
        raise TEError(f"fold_batch_norm: {W.name} has no dimension: expected weights with their output channels first")
    channels = W.shape[0]
    for T in (M, V, G, B):
        if T.ndim != 1 or not same_extent(T.shape[0], channels):
            raise TEError(
                f"fold_batch_norm: {T.name} has shape {T.shape_text}, expected ({channels},), one value for each output channel of {W.name}{W.shape_text}"
            )
    scale = api.compute((channels,), lambda o: G[o] * api.rsqrt(V[o] + eps), "scale")
    F = api.compute(W.shape, lambda o, *i: W(o, *i) * scale[o], "F", tag="fold_batch_norm")
    D = api.compute((channels,), lambda o: B[o] - M[o] * scale[o], "D")
    return F, D
