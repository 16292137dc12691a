"""Reductions as users call them: sum, min, max, prod, any, all, argmax, argmin, and reducers of their own.

`max(a, b)`, `min(a, b)`, `all(a, b)` and `any(a, b)` of several values combine them elementwise; with `axis=` they reduce one.
"""

from __future__ import annotations

import inspect
from builtins import all as all_of
from collections.abc import Callable
from functools import reduce as fold
from typing import Any

from ..tir import expr as tir
from ..tir.dtype import DType
from ..tir.errors import TEError
from ..tir.expr import Expr, ExprLike, as_expr, call
from .axis import IterVar
from .check import check_accumulator, reduction_axes
from .op import Reducer, Reduction
from .wrap import wrapped_value


def comm_reducer(fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce", associative: bool = True) -> Callable[..., Any]:
    """A function that reduces as te.sum does: `reducer(expr, axis=k, where=None, init=None)`, or with tuples `reducer((a, b), axis=k)`.

    Arguments: `fcombine(x, y)` combines the accumulated value with the next one (tuples of values where tuples are reduced);
    `fidentity(dtype)` (`fidentity(dtype0, dtype1)` ...) gives the value that changes nothing; `associative=False` says that the order
    matters.
    """
    one = Reducer(lambda x, y: (_one(fcombine(x[0], y[0]), name),), lambda t: (_typed(fidentity(t[0]), t[0]),), name, associative)
    many = Reducer(
        lambda x, y: tuple(as_expr(v) for v in _many(fcombine(x, y), name)),
        lambda t: _identities(fidentity, t, name),
        name,
        associative,
    )

    def reducer(expr: Any, *others: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
        return _reduce_or_combine(many if isinstance(expr, (tuple, list)) else one, expr, others, axis, where, init)

    return reducer


def _one(value: Any, name: str) -> Expr:
    if isinstance(value, (tuple, list)):
        raise TEError(f"reducer {name!r} combines single values but gives {len(value)}: reduce a tuple, {name}((a, b), axis=k)")
    return as_expr(value)


def _many(value: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise TEError(f"reducer {name!r} reduces tuples, but its function gives one value {value!r}: expected a tuple")
    return tuple(value)


def _identities(fidentity: Callable[..., Any], dtypes: tuple[DType, ...], name: str) -> tuple[Expr, ...]:
    """What the user's identity gives for values of these dtypes."""
    try:
        inspect.signature(fidentity).bind(*dtypes)
    except TypeError as error:
        raise TEError(f"reducer {name!r}: {len(dtypes)} value(s) are reduced, but its identity does not take as many dtypes: {error}") from None
    values = _many(fidentity(*dtypes), name)
    if len(values) != len(dtypes):
        raise TEError(f"reducer {name!r}: its identity gives {len(values)} value(s), but {len(dtypes)} are reduced")
    return tuple(_typed(v, kind) for v, kind in zip(values, dtypes, strict=True))


def _typed(value: Any, kind: DType) -> Expr:
    """A value a user's function gave where one of dtype `kind` is due: numbers take it."""
    return as_expr(value) if isinstance(value, ExprLike) else tir.const(value, kind)


def _reduce_or_combine(reducer: Reducer, expr: Any, others: tuple[Any, ...], axis: Any, where: Any, init: Any) -> Any:
    """A reduction where there is an axis, else the values combined elementwise."""
    if axis is None and len(others) == 1 and (isinstance(others[0], IterVar) or _are_axes(others[0])):
        axis, others = others[0], ()  # the axis as second argument
    if axis is not None:
        if others:
            raise TEError(f"te.{reducer.name}: found {1 + len(others)} values and axis=: with an axis one value is reduced, without it they combine")
        return reduction(reducer, expr, axis, where, init)
    if where is not None or init is not None:
        raise TEError(f"te.{reducer.name}: where= and init= need axis=, the axis to reduce over")
    if isinstance(expr, (tuple, list)):
        if not others:
            raise TEError(f"te.{reducer.name}: expected axis=, the axis to reduce over, or a second value to combine with")
        return fold(reducer.combine, (_expressions(v) for v in (expr, *others)))
    if not others:
        raise TEError(f"te.{reducer.name}: expected axis=, the axis to reduce over, or a second value to combine with")
    return fold(lambda a, b: reducer.combine((a,), (b,))[0], together(expr, *others))


def _are_axes(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all_of(isinstance(v, IterVar) for v in value)


def _expressions(values: Any) -> tuple[Expr, ...]:
    if not isinstance(values, (tuple, list)):
        raise TEError(f"expected a tuple of values, as the operand beside it is, found {values!r}")
    return tuple(as_expr(v) for v in values)


def reduction(reducer: Reducer, values: Any, axis: Any, where: Any = None, init: Any = None) -> Reduction:
    """The reduction of one value, or of a tuple of them, over the axes."""
    single = not isinstance(values, (tuple, list))
    source = (as_expr(values),) if single else _expressions(values)
    axes = reduction_axes(axis, reducer.name)
    reducer.form([e.dtype for e in source])  # refuses dtypes that do not fit
    condition = None
    if where is not None:
        condition = as_expr(where)
        if not condition.dtype.is_bool:
            raise TEError(f"te.{reducer.name}: where= is {condition} of dtype {condition.dtype}, expected a condition")
    start = None
    if init is not None:
        given = tuple(init) if isinstance(init, (tuple, list)) else (init,)
        if len(given) != len(source):
            raise TEError(f"te.{reducer.name}: init= has {len(given)} value(s), but {len(source)} are reduced")
        start = tuple(_typed(v, e.dtype) for v, e in zip(given, source, strict=True))
        for v, e in zip(start, source, strict=True):
            if v.dtype is not e.dtype:
                raise TEError(f"te.{reducer.name}: init= is {v} of dtype {v.dtype}, expected {e.dtype}: cast it with .astype('{e.dtype}')")
    wrapped = tuple(wrapped_value(e) for e in source)
    if condition is not None:
        condition = wrapped_value(condition)
    if start is not None:
        start = tuple(wrapped_value(e) for e in start)
    return Reduction(reducer, wrapped, axes, condition, start, single)


def together(*values: Any) -> tuple[Expr, ...]:
    """Several operands as users write them, as expressions: a number takes the dtype of the first operand that is not one."""
    like = next((v.as_expr() for v in values if isinstance(v, ExprLike)), None)
    if like is None:
        return tuple(as_expr(v) for v in values)
    return tuple(v.as_expr() if isinstance(v, ExprLike) else tir.weak_const(tir.as_number(v), like) for v in values)


def _single(combine: Callable[[Expr, Expr], Expr], identity: Callable[[DType], Any], name: str) -> Reducer:
    """A reducer of one value."""
    return Reducer(lambda x, y: (combine(x[0], y[0]),), lambda t: (tir.const(identity(t[0]), t[0]),), name)


_WITHOUT_INFINITY = "float8_e4m3"  # whose largest value is 448, and for which an infinity is NaN


def lowest(kind: DType) -> Any:
    """The value of a dtype that none is below: minus infinity where it has one."""
    return -float("inf") if kind.is_float and kind != _WITHOUT_INFINITY else kind.low


def highest(kind: DType) -> Any:
    """The value of a dtype that none is above."""
    return float("inf") if kind.is_float and kind != _WITHOUT_INFINITY else kind.high


_SUM = _single(tir.add, lambda kind: 0, "sum")
_PROD = _single(tir.mul, lambda kind: 1, "prod")
_MIN = _single(tir.minimum, highest, "min")
_MAX = _single(tir.maximum, lowest, "max")
_ANY = _single(tir.logical_or, lambda kind: False, "any")
_ALL = _single(tir.logical_and, lambda kind: True, "all")


def is_sum(reducer: Reducer) -> bool:
    """Whether a reducer is that of `sum`."""
    return reducer is _SUM


def atomic_operation(reducer: Reducer) -> str | None:
    """The operation of an atomic update that does what a reducer does ("add", "min", "max"); None where there is none."""
    return {_SUM: "add", _MIN: "min", _MAX: "max"}.get(reducer)


def sum(expr: Any, axis: Any, where: Any = None, init: Any = None) -> Reduction:
    """The sum of `expr` over the reduce axes, accumulated in its dtype. Small integers must be cast first: they would overflow."""
    check_accumulator("sum", as_expr(expr).dtype)
    return reduction(_SUM, expr, axis, where, init)


def prod(expr: Any, axis: Any, where: Any = None, init: Any = None) -> Reduction:
    """The product of `expr` over the reduce axes, accumulated in its dtype."""
    check_accumulator("prod", as_expr(expr).dtype)
    return reduction(_PROD, expr, axis, where, init)


def min(expr: Any, *others: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """The smallest value over the reduce axes (of none: the largest value, +inf or that of the integers), or elementwise of several values.

    NaN propagates, as in NumPy.
    """
    return _reduce_or_combine(_MIN, expr, others, axis, where, init)


def max(expr: Any, *others: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """The largest value over the reduce axes (of none: the smallest value, -inf or that of the integers), or elementwise of several values.

    NaN propagates, as in NumPy.
    """
    return _reduce_or_combine(_MAX, expr, others, axis, where, init)


def any(*conditions: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """Whether one of several conditions holds; with `axis`, whether a condition holds somewhere along it."""
    return _conditions(_ANY, conditions, axis, where, init)


def all(*conditions: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
    """Whether several conditions hold together; with `axis`, whether a condition holds everywhere along it."""
    return _conditions(_ALL, conditions, axis, where, init)


def _conditions(reducer: Reducer, conditions: tuple[Any, ...], axis: Any, where: Any, init: Any) -> Any:
    if len(conditions) == 1 and axis is None:
        conditions = (*conditions, conditions[0])  # of one condition: itself
    return _reduce_or_combine(reducer, conditions[0] if conditions else True, conditions[1:], axis, where, init)


def _arg_reducer(beats: Callable[[Expr, Expr], Expr], worst: Callable[[DType], Any], name: str) -> Reducer:
    """Of (index, value) pairs the one whose value is best, of equal ones the lowest index.

    `beats` is a strict order of values in which NaN is best.
    """

    def combine(x: tuple[Expr, ...], y: tuple[Expr, ...]) -> tuple[Expr, ...]:
        no_worse = tir.logical_and(tir.logical_not(beats(y[1], x[1])), tir.le(x[0], y[0]))
        keep = tir.logical_or(beats(x[1], y[1]), no_worse)
        return tir.select(keep, x[0], y[0]), tir.select(keep, x[1], y[1])

    def identity(t: tuple[DType, ...]) -> tuple[Expr, ...]:
        return tir.const(t[0].high, t[0]), tir.const(worst(t[1]), t[1])

    return Reducer(combine, identity, name)


def _above(a: Expr, b: Expr) -> Expr:
    """a > b, and NaN above all numbers."""
    if not a.dtype.is_float:
        return tir.lt(b, a)
    return tir.logical_and(tir.logical_not(tir.le(a, b)), tir.logical_not(call("isnan", b)))


def _below(a: Expr, b: Expr) -> Expr:
    """a < b, and NaN below all numbers."""
    if not a.dtype.is_float:
        return tir.lt(a, b)
    return tir.logical_and(tir.logical_not(tir.le(b, a)), tir.logical_not(call("isnan", b)))


_ARGMAX = _arg_reducer(_above, lowest, "argmax")
_ARGMIN = _arg_reducer(_below, highest, "argmin")


def argmax(values: Any, axis: Any, where: Any = None, init: Any = None) -> Reduction:
    """(index, value) of the largest value: `I, V = te.compute((n,), lambda i: te.argmax((k, A[i, k]), axis=k))`.

    The lowest index wins ties; the first NaN wins, as in NumPy. Over nothing, the index is the largest of its dtype.
    """
    return reduction(_ARGMAX, _pair(values, "argmax"), axis, where, init)


def argmin(values: Any, axis: Any, where: Any = None, init: Any = None) -> Reduction:
    """(index, value) of the smallest value; see argmax."""
    return reduction(_ARGMIN, _pair(values, "argmin"), axis, where, init)


def _pair(values: Any, name: str) -> tuple[Expr, Expr]:
    if not isinstance(values, (tuple, list)) or len(values) != 2:
        raise TEError(f"te.{name} reduces pairs (index, value), for example te.{name}((k, A[i, k]), axis=k)")
    index, value = _expressions(values)
    if not index.dtype.is_integer:
        raise TEError(f"te.{name}: the index is {index} of dtype {index.dtype}, expected an integer")
    return index, value
