"""Reductions over the last axis: sum, argmax."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .. import api, reduce
from ..axis import reduce_axis
from .operator import Operator, accumulator, check_dims, operator, wide


@operator
def sum(shape: Sequence[int], dtype: str = "float32", acc_dtype: str | None = None) -> Operator:
    """Y[...] = sum over the last axis k of X[..., k], in `acc_dtype` (by default that of X, int32 for smaller integers)."""
    shape = check_dims(shape)
    acc = accumulator(dtype, acc_dtype)
    X = api.placeholder(shape, dtype, "X")
    k = reduce_axis((0, shape[-1]), "k")
    Y = api.compute(shape[:-1], lambda *i: reduce.sum(X(*i, k).astype(acc), axis=k), "Y", tag="sum")
    return Operator([X, Y], prod(shape), lambda x: wide(x)[0].sum(-1))


@operator
def argmax(shape: Sequence[int], dtype: str = "float32") -> Operator:
    """Y[...] = the index (int32) of the largest X[..., k] along the last axis: the lowest of equal ones, the first NaN if there is one."""
    shape = check_dims(shape)
    X = api.placeholder(shape, dtype, "X")
    k = reduce_axis((0, shape[-1]), "k")
    Y, _ = api.compute(shape[:-1], lambda *i: reduce.argmax((k, X(*i, k)), axis=k), "Y", tag="argmax")
    return Operator([X, Y], prod(shape), lambda x: wide(x)[0].argmax(-1))
