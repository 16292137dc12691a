"""s[T].scatter: a reduction that goes to one element along an axis, which its condition names, goes there at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..te.axis import IterVar
from ..tir.bounds import constant_bounds
from ..tir.dtype import INT32, INT64
from ..tir.expr import EQ, And, Call, Cast, Const, Expr, IfThenElse, Var, cast, logical_and

SCATTERED = "scattered"  # the kind of a loop that scatter takes the place of


@dataclass(frozen=True)
class Choice:
    """`value`: what a variable must be for a condition to hold; it may be looked at where all of `guards` hold. `rest`: what else must (None: nothing)."""

    guards: tuple[Expr, ...]
    value: Expr
    rest: Expr | None


def chosen(condition: Expr | None, variable: Var) -> Choice | None:
    """The one value of `variable` for which `condition` can hold; None where it does not say `value == variable`."""
    if isinstance(condition, IfThenElse) and isinstance(condition.otherwise, Const) and not condition.otherwise.value:
        inner = None if variable in condition.condition.variables else chosen(condition.then, variable)
        return None if inner is None else Choice((condition.condition, *inner.guards), inner.value, inner.rest)
    parts = _conjuncts(condition) if condition is not None else []
    for number, part in enumerate(parts):
        value = _equal_to(part, variable)
        if value is not None:
            rest: Expr | None = None
            for other in parts[:number] + parts[number + 1 :]:
                rest = other if rest is None else logical_and(rest, other)
            return Choice((), value, rest)
    return None


def is_scattered(stage: Any, leaf: IterVar) -> bool:
    """Whether scatter takes the place of a leaf."""
    mark = stage.marks.get(leaf)
    return mark is not None and mark.kind == SCATTERED


def as_position(value: Expr) -> Expr:
    """An integer, in a dtype that holds it, as an index."""
    return cast(value, INT32 if value.dtype.bits < 32 or value.dtype is INT32 else INT64)


def _equal_to(condition: Expr, variable: Var) -> Expr | None:
    if not isinstance(condition, EQ) or not condition.a.dtype.is_integer:
        return None
    low, high = constant_bounds(variable)
    least, most = variable.dtype.low if low is None else low, variable.dtype.high if high is None else high
    for side, other in ((condition.a, condition.b), (condition.b, condition.a)):
        while _converts(side) and side.dtype.low <= least and most <= side.dtype.high:  # else several values may become one
            side = side.children[0]
        if side is variable and variable not in other.variables:
            return other
    return None


def _converts(e: Expr) -> bool:
    """Whether `e` is an integer in another dtype, or wrapped in its own."""
    return e.dtype.is_integer and (isinstance(e, Cast) or (isinstance(e, Call) and e.name == "wrap"))


def _conjuncts(condition: Expr) -> list[Expr]:
    return [*_conjuncts(condition.a), *_conjuncts(condition.b)] if isinstance(condition, And) else [condition]
