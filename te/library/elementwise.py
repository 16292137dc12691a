"""Elementwise operators and data movement: relu, gelu, silu, transpose. Functions of float16 and bfloat16 are computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, prod, sqrt
from typing import Any

import numpy as np

from .. import api
from .operator import Operator, check_dims, operator, wide, working_dtype


def _elementwise(shape: Sequence[int], dtype: str, name: str, value: Callable[[Any], Any], reference: Callable[[Any], Any], flops: int) -> Operator:
    """Y[i] = value(X[i]), `flops` operations for each element."""
    shape = check_dims(shape)
    X = api.placeholder(shape, dtype, "X")
    Y = api.compute(shape, lambda *i: value(X(*i)), "Y", tag=name)
    return Operator([X, Y], flops * prod(shape), lambda x: reference(wide(x)[0]))


@operator
def relu(shape: Sequence[int], dtype: str = "float32") -> Operator:
    """Y = max(X, 0), elementwise."""
    return _elementwise(shape, dtype, "relu", lambda x: api.maximum(x, 0), lambda x: np.maximum(x, 0), 1)


@operator
def gelu(shape: Sequence[int], dtype: str = "float32") -> Operator:
    """Y = X / 2 (1 + tanh(sqrt(2 / pi) (X + 0.044715 X^3))), elementwise.

    The tanh form of D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415.
    """
    factor, acc = sqrt(2 / pi), working_dtype("gelu", dtype)

    def value(x: Any) -> Any:
        x = x.astype(acc)
        return (x * 0.5 * (1.0 + api.tanh(factor * (x + 0.044715 * (x * x * x))))).astype(dtype)

    return _elementwise(
        shape,
        dtype,
        "gelu",
        value,
        lambda x: x / 2 * (1 + np.tanh(factor * (x + 0.044715 * x**3))),
        8,
    )


@operator
def silu(shape: Sequence[int], dtype: str = "float32") -> Operator:
    """Y = X / (1 + exp(-X)), elementwise."""
    acc = working_dtype("silu", dtype)
    return _elementwise(shape, dtype, "silu", lambda x: (x.astype(acc) * api.sigmoid(x.astype(acc))).astype(dtype), lambda x: x / (1 + np.exp(-x)), 2)


@operator
def transpose(shape: Sequence[int], dtype: str = "float32") -> Operator:
    """Y[..., j, i] = X[..., i, j]: the last two axes exchanged."""
    shape = check_dims(shape, 2)
    X = api.placeholder(shape, dtype, "X")
    swapped = (*shape[:-2], shape[-1], shape[-2])
    Y = api.compute(swapped, lambda *i: X(*i[:-2], i[-1], i[-2]), "Y", tag="transpose")
    return Operator([X, Y], prod(shape), lambda x: np.ascontiguousarray(np.swapaxes(wide(x)[0], -1, -2)))
