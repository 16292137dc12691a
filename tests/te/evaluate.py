"""A direct evaluator of tensor expressions in NumPy: what a declaration means, with no schedule and no loop program.

It knows te's operations and the meaning of expressions (tir/expr.py), nothing else of the package, so that it can serve as an oracle for
schedules, passes and generators. Each operation is evaluated over its whole grid of axes at once; a reduction steps through its domain in
order. A read outside a tensor, where it is really evaluated, is an AssertionError.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.te import ComputeOp, ExternOp, ScanOp, Tensor
from tilewright.te.graph import operations
from tilewright.tir import expr as tir
from tilewright.tir.interp import extern_function

_erf = np.vectorize(math.erf, otypes=["float64"])

FUNCTIONS = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": _erf, "sin": np.sin, "cos": np.cos, "pow": np.power,
    "fma": lambda a, b, c: a * b + c, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor, "bitwise_not": np.invert, "shift_left": np.left_shift, "shift_right": np.right_shift,
    "popcount": lambda x: np.bitwise_count(x.view(f"uint{8 * x.dtype.itemsize}")),
}  # fmt: skip

BINARY = {
    tir.Add: np.add, tir.Sub: np.subtract, tir.Mul: np.multiply, tir.Div: np.divide, tir.FloorDiv: np.floor_divide, tir.FloorMod: np.mod,
    tir.Min: np.minimum, tir.Max: np.maximum, tir.EQ: np.equal, tir.NE: np.not_equal, tir.LT: np.less, tir.LE: np.less_equal,
    tir.And: np.logical_and, tir.Or: np.logical_or,
}  # fmt: skip


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of one of ours."""
    if name.startswith(("bfloat16", "float8")):
        import ml_dtypes  # registers them

        return np.dtype(getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(name, name)))
    return np.dtype(str(name))


def evaluate(outputs: Tensor | list[Tensor], inputs: Mapping[Tensor, Any], sizes: Mapping[tir.Var, int] | None = None) -> Any:
    """The value of a tensor (or of a list of them) for the arrays of the placeholders, and values of the size variables.

    Floats narrower than float64 are rounded to their dtype where an operation of theirs ends; sums are kept in float64 until the end.
    """
    wanted = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    values: dict[Any, Any] = {t.buffer: np.asarray(a) for t, a in inputs.items()}
    with np.errstate(all="ignore"):
        order = operations(wanted)
        inside = {part for op in order if isinstance(op, ScanOp) for part in op.body}
        for op in order:
            if isinstance(op, ScanOp):
                for tensor, array in zip(op.outputs, _scan(op, values, dict(sizes or {})), strict=True):
                    values[tensor.buffer] = array
            elif isinstance(op, ExternOp):
                _extern(op, values, dict(sizes or {}))
            elif isinstance(op, ComputeOp) and op not in inside:
                for tensor, array in zip(op.outputs, _compute(op, values, dict(sizes or {})), strict=True):
                    values[tensor.buffer] = array
    results = [values[t.buffer] for t in wanted]
    return results[0] if isinstance(outputs, Tensor) else results


def _extern(op: ExternOp, values: dict[Any, Any], sizes: Mapping[tir.Var, int]) -> None:
    """The Python function that is registered for the symbol, into zeros."""
    point = _Point(values, dict(sizes))
    for tensor in op.outputs:
        shape = tuple(int(point.value(tir.as_expr(extent))) for extent in tensor.shape)
        values[tensor.buffer] = np.zeros(shape, numpy_dtype(tensor.dtype))
    args: list[Any] = []
    for argument, kind in zip(op.call.args, op.call.types, strict=True):
        if kind is not None:
            args.append(point.value(argument)[()])
            continue
        array = values[argument.buffer]
        where = [int(point.value(i)) for i in argument.indices]
        args.append(array.reshape(-1)[np.ravel_multi_index(where, array.shape) if array.size else 0 :])
    extern_function(op.call.symbol)(*args)


def _scan(op: ScanOp, values: Mapping[Any, Any], sizes: Mapping[tir.Var, int]) -> list[Any]:
    """Step after step; what a step's stages compute stands in row t of tensors that are not filled elsewhere."""
    length = int(_Point(values, dict(sizes)).value(tir.as_expr(op.state[0].shape[0])))
    results = []
    for init in op.init:
        start = values[init.buffer][:length]
        results.append(np.concatenate([start, np.zeros((length - len(start), *start.shape[1:]), start.dtype)]))
    inner = {**values, **{t.buffer: array for t, array in zip(op.state, results, strict=True)}}
    for t in range(op.steps, length):
        for part in op.body:
            for tensor, row in zip(part.outputs, _compute(part, inner, sizes, at_time=t), strict=True):
                whole = inner.setdefault(tensor.buffer, np.zeros((length, *row.shape[1:]), row.dtype))
                whole[t] = row[0]
        for tensor, array in zip(op.update, results, strict=True):
            array[t] = inner[tensor.buffer][t]
    return results


def _compute(op: ComputeOp, values: Mapping[Any, Any], sizes: Mapping[tir.Var, int], at_time: int | None = None) -> list[Any]:
    """`at_time`: only at that point of the first axis."""
    at_sizes = _Point(values, dict(sizes))
    shape = tuple(int(at_sizes.value(tir.as_expr(a.dom.extent))) for a in op.axis)
    start = 0
    if at_time is not None:
        start, shape = at_time, (1, *shape[1:])
    grid = {a.var: np.arange(n).reshape(-1, *[1] * (len(shape) - 1 - d)) + (0 if d else start) for d, (a, n) in enumerate(zip(op.axis, shape, strict=True))}
    point = _Point(values, {**sizes, **grid})
    if 0 in shape:  # nothing is evaluated at all
        results = [np.zeros(shape, numpy_dtype(t.dtype)) for t in op.outputs]
    elif op.reducer is None:
        results = [point.value(e) for e in op.body]
    else:
        results = _reduce(op, point, at_sizes)
    return [np.broadcast_to(np.asarray(r).astype(numpy_dtype(t.dtype)), shape).copy() for r, t in zip(results, op.outputs, strict=True)]


def _reduce(op: ComputeOp, point: _Point, at_sizes: _Point) -> list[Any]:
    """The reduction, point after point of its domain, the last axis fastest; floats are accumulated in float64."""
    reducer = op.reducer
    assert reducer is not None
    form = reducer.form([t.dtype for t in op.outputs])
    start = op.init if op.init is not None else form.identity
    state = [_wide(point.value(e)) for e in start]
    limits = [(int(at_sizes.value(tir.as_expr(a.dom.min))), int(at_sizes.value(tir.as_expr(a.dom.extent)))) for a in op.reduce_axis]
    ranges = [range(low, low + extent) for low, extent in limits]
    for indices in itertools.product(*ranges):
        here = _Point(point.values, {**point.variables, **dict(zip((a.var for a in op.reduce_axis), indices, strict=True))})
        mask = None if op.condition is None else here.value(op.condition)
        new = [_wide(here.value(e, mask)) for e in op.body]
        combine = _Point({}, {**dict(zip(form.lhs, state, strict=True)), **dict(zip(form.rhs, new, strict=True))}, wide=True)
        combined = [combine.value(e) for e in form.result]
        state = combined if mask is None else [np.where(mask, c, s) for c, s in zip(combined, state, strict=True)]
    return state


def _wide(array: Any) -> Any:
    return array if array.dtype.kind in "iub" or array.dtype == "float64" else array.astype("float64")


class _Point:
    """Expressions evaluated for given values of variables: numbers, or arrays that broadcast together.

    `wide`: floats are not rounded to their dtype (inside a reduction).
    """

    def __init__(self, values: Mapping[Any, Any], variables: Mapping[tir.Var, Any], wide: bool = False):
        self.values, self.variables, self.wide = values, variables, wide
        self.memo: dict[tuple[tir.Expr, int], Any] = {}
        self.masks: list[Any] = []  # kept alive, as their identity is part of the key

    def value(self, e: tir.Expr, mask: Any = None) -> Any:
        """The value of `e` in its dtype (exact arithmetic: int64); where `mask` is False the value means nothing and nothing is read."""
        key = (e, id(mask))
        if key not in self.memo:
            self.masks.append(mask)
            self.memo[key] = self._rounded(e, self._evaluate(e, mask))
        return self.memo[key]

    def _rounded(self, e: tir.Expr, result: Any) -> Any:
        result = np.asarray(result)
        if e.dtype.is_integer and e.exact:
            return result.astype("int64", copy=False)
        if self.wide and e.dtype.is_float:
            return _wide(result)
        return result.astype(numpy_dtype(e.dtype), copy=False)

    def _evaluate(self, e: tir.Expr, mask: Any) -> Any:
        if isinstance(e, tir.Var):
            return self.variables[e]
        if isinstance(e, tir.Const):
            return e.value
        if isinstance(e, tir.Binary):
            return self._binary(e, mask)
        if isinstance(e, tir.Cast):
            return self.value(e.value, mask)
        if isinstance(e, tir.Not):
            return np.logical_not(self.value(e.a, mask))
        if isinstance(e, tir.Choice):
            return self._choice(e, mask)
        if isinstance(e, tir.Load):
            return self._load(e, mask)
        if isinstance(e, tir.Call):
            return self._call(e, mask)
        raise AssertionError(f"the evaluator does not know {type(e).__name__}: {e}")

    def _binary(self, e: tir.Binary, mask: Any) -> Any:
        a, b = self.value(e.a, mask), self.value(e.b, mask)
        if e.a.dtype.is_integer and not isinstance(e, tir.Comparison) and not e.exact:
            kind = numpy_dtype(e.dtype)
            a, b = a.astype(kind), b.astype(kind)  # an exact operand fits, or wraps
        return BINARY[type(e)](a, b)

    def _choice(self, e: tir.Choice, mask: Any) -> Any:
        condition = self.value(e.condition, mask)
        taken, other = mask, mask
        if isinstance(e, tir.IfThenElse):
            taken = condition if mask is None else mask & condition
            other = ~condition if mask is None else mask & ~condition
            self.masks += [taken, other]
        return np.where(condition, self.value(e.then, taken), self.value(e.otherwise, other))

    def _load(self, e: tir.Load, mask: Any) -> Any:
        array = self.values[e.buffer]
        if array.size == 0:
            assert mask is not None and not np.any(mask), f"{e} reads an empty tensor"
            return np.zeros((), array.dtype)
        indices = []
        for dimension, index in enumerate(e.indices):
            i = self.value(index, mask)
            outside = (i < 0) | (i >= array.shape[dimension])
            assert not np.any(outside if mask is None else outside & mask), f"{e}: index {dimension} is outside [0, {array.shape[dimension]})"
            indices.append(np.clip(i, 0, array.shape[dimension] - 1))
        return array[tuple(indices)]

    def _call(self, e: tir.Call, mask: Any) -> Any:
        args = [self.value(a, mask) for a in e.args]
        kind = e.args[0].dtype
        if e.name == "reinterpret":
            return np.ascontiguousarray(args[0]).view(numpy_dtype(e.dtype))
        if kind.is_integer:
            args = [a.astype(numpy_dtype(kind)) for a in args]
        elif kind.is_float and args[0].dtype != "float64":
            args = [a.astype("float64") for a in args]  # rounded once, at the end
        return args[0] if e.name == "wrap" else FUNCTIONS[e.name](*args)
