"""Conditions on the axes of a stage, as set_store_predicate takes them: what may stand in one, its form as data, and as Python text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..te.axis import IterVar
from ..tir import expr
from ..tir.errors import ScheduleError
from ..tir.expr import Binary, Cast, Const, Expr, Not, Var

_BINARY: dict[str, tuple[type, Callable[[Any, Any], Expr]]] = {
    "+": (expr.Add, expr.add),
    "-": (expr.Sub, expr.sub),
    "*": (expr.Mul, expr.mul),
    "//": (expr.FloorDiv, expr.floordiv),
    "%": (expr.FloorMod, expr.floormod),
    "==": (expr.EQ, expr.eq),
    "!=": (expr.NE, expr.ne),
    "<": (expr.LT, expr.lt),
    "<=": (expr.LE, expr.le),
    "and": (expr.And, expr.logical_and),
    "or": (expr.Or, expr.logical_or),
}
_OF_CONDITIONS = {"and": "te.all", "or": "te.any"}


def axis_of(variable: Var, stage: Any) -> IterVar | None:
    """The axis of `stage` that a variable stands for; of a thread axis, the loop that is bound to it."""
    for axis in stage.known_axes:
        mark = stage.marks.get(axis)
        if axis.var is variable or (mark is not None and mark.thread is not None and mark.thread.var is variable):
            return axis  # type: ignore[no-any-return]
    return None


def refusal_of(e: Expr, stage: Any) -> str | None:
    """Why `e` cannot stand in a condition of `stage`; None where it can."""
    if isinstance(e, Var):
        axis = axis_of(e, stage)
        if axis is None:
            return f"{e} is no axis of this stage, nor a thread axis that one of its loops is bound to; its axes are {stage.leaves_text()}"
        if axis.kind != "spatial" and axis.var is not e:
            return f"{stage.axis_name(axis)}, which is bound to {e}, is a reduce axis: threads combine their shares, and index 0 stores; leave it out"
        if axis.kind != "spatial":
            return f"{e} is a reduce axis: which points of a reduction take part is said by its where="
        return None
    if isinstance(e, Const):
        return None if e.dtype.is_integer or e.dtype.is_bool else f"{e} of dtype {e.dtype} cannot stand in it; use integers"
    if isinstance(e, (Not, Cast)) or (isinstance(e, Binary) and e.symbol in _BINARY):
        return next((found for child in e.children if (found := refusal_of(child, stage)) is not None), None)
    return f"{e} cannot stand in it; use axes, integers, + - * // %, comparisons, te.all, te.any and ~"


def to_data(e: Expr, axis_data: Callable[[Var], Any]) -> Any:
    """`e` as nested lists over the operators; variables as `axis_data` gives them. TypeError for what cannot stand in a condition."""
    if isinstance(e, Var):
        return axis_data(e)
    if isinstance(e, Const) and (e.dtype.is_integer or e.dtype.is_bool):
        return bool(e.value) if e.dtype.is_bool else [str(e.dtype), int(e.value)]
    if isinstance(e, Not):
        return ["not", to_data(e.children[0], axis_data)]
    if isinstance(e, Cast):
        return ["cast", str(e.dtype), to_data(e.children[0], axis_data)]
    if isinstance(e, Binary) and e.symbol in _BINARY:
        return [e.symbol, to_data(e.a, axis_data), to_data(e.b, axis_data)]
    raise TypeError(e)


def from_data(data: Any, axis_from: Callable[[Any], Any]) -> Expr:
    """What `to_data` wrote; `axis_from` gives the axis of a dictionary. A ScheduleError where it is malformed."""
    match data:
        case bool():
            return expr.as_expr(data)
        case dict():
            axis = axis_from(data)
            if isinstance(axis, IterVar):
                return axis.var
        case [("int32" | "int64") as kind, int(value)] if not isinstance(value, bool):
            return expr.const(value, kind)
        case ["not", inner]:
            return expr.logical_not(from_data(inner, axis_from))
        case ["cast", ("int32" | "int64") as kind, inner]:
            return from_data(inner, axis_from).astype(kind)
        case [str(symbol), a, b] if symbol in _BINARY:
            left, right = from_data(a, axis_from), from_data(b, axis_from)
            if (symbol in _OF_CONDITIONS) == (left.dtype == "bool") == (right.dtype == "bool"):
                return _BINARY[symbol][1](left, right)
    raise ScheduleError(f"trace: {str(data)[:80]!r} is no condition: expected a bool, [dtype, integer], an axis or [operator, a, b]")


def to_text(data: Any, axis_text: Callable[[Any], str]) -> str:
    """What `to_data` wrote as a Python expression over `te`; `axis_text` gives the text of a dictionary."""
    match data:
        case dict():
            return axis_text(data)
        case [str(), int(value)]:
            return str(value)
        case ["not", inner]:
            return f"~({to_text(inner, axis_text)})"
        case ["cast", kind, inner]:
            return f"({to_text(inner, axis_text)}).astype({kind!r})"
        case [str(symbol), a, b]:
            left, right = to_text(a, axis_text), to_text(b, axis_text)
            return f"{_OF_CONDITIONS[symbol]}({left}, {right})" if symbol in _OF_CONDITIONS else f"({left} {symbol} {right})"
    return repr(data)
