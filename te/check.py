"""What a declaration must satisfy, one function each. All raise TEError; api.py calls them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..tir.affine import difference
from ..tir.bounds import constant_bounds
from ..tir.dtype import DType
from ..tir.errors import TEError
from ..tir.expr import Add, Const, Expr, FloorDiv, IfThenElse, Load, Max, Min, Mul, Sub, Var
from ..tir.visit import substitute
from .axis import IterVar
from .graph import operations, sizes_of
from .op import ComputeOp

_NARROW = ("bool", "int8", "uint8", "int16")


def parameter_names(function: Callable[..., Any], rank: int, name: str) -> list[str]:
    """The names `function` gives the `rank` axes. Parameters with a default are not axes (`lambda i, t=t: ...`); `*i` takes any number."""
    if not callable(function):
        raise TEError(f"compute {name!r}: expected a function of the axes, found {type(function).__name__} {function!r}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return [f"i{d}" for d in range(rank)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if len(names) > rank or (len(names) < rank and rest is None):
        at_least = "at least " if rest is not None else ""
        raise TEError(
            f"compute {name!r}: the shape has {rank} dimension(s), but its function takes {at_least}{len(names)} axis parameter(s) "
            f"({', '.join(names) or 'none'}): give it one parameter for each dimension, or *indices"
        )
    return names + [f"{rest}{d}" for d in range(rank - len(names))]


def check_name(name: object, what: str) -> None:
    """A name is a text; which characters it has does not matter."""
    if not isinstance(name, str):
        raise TEError(f"the name of a {what} is {name!r}: expected a text")


def check_shape(shape: Sequence[int | Expr], what: str) -> None:
    """Extents are not negative."""
    for d, extent in enumerate(shape):
        if isinstance(extent, int) and extent < 0:
            raise TEError(f"{what}: extent {d} is {extent}; an extent is at least 0")


def check_accumulator(name: str, kind: DType) -> None:
    """A sum or product of a narrow integer type would overflow at once."""
    if kind.element in _NARROW:
        raise TEError(
            f"te.{name} over {kind} would be accumulated in {kind} and overflow: cast what is reduced to a type that holds the result, "
            f"for example te.{name}(x.astype('int32'), axis=...)"
        )


def reduction_axes(axis: Any, name: str) -> tuple[IterVar, ...]:
    """The axes of a reduction from one or a list of them: reduce axes, each once."""
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if not axes:
        raise TEError(f"te.{name}: no axis to reduce over, expected at least one: k = te.reduce_axis((0, K))")
    for a in axes:
        if not isinstance(a, IterVar):
            raise TEError(f"te.{name}: axis is {a!r}, expected a reduce axis: k = te.reduce_axis((0, K)), or a list of them")
        if a.kind != "reduce":
            raise TEError(f"te.{name}: axis {a.name!r} is a {a.kind} axis, expected a reduce axis: k = te.reduce_axis((0, K))")
    for i, a in enumerate(axes):
        if any(a is b for b in axes[:i]):
            raise TEError(f"te.{name}: axis {a.name!r} is listed twice")
    return axes


def check_domains(op: ComputeOp) -> None:
    """The range of a reduce axis depends on sizes only."""
    axes = {a.var: a for a in (*op.axis, *op.reduce_axis)}
    for a in op.reduce_axis:
        if a.dom is None:
            continue
        for limit in (a.dom.min, a.dom.extent):
            for v in limit.variables if isinstance(limit, Expr) else ():
                if v in axes:
                    raise TEError(
                        f"compute {op.name!r}: the range of reduce axis {a.name!r} depends on axis {axes[v].name!r}. Reduce over the whole "
                        f"range and choose the part with where=, for example te.sum(..., axis={a.name}, where={a.name} <= {axes[v].name})"
                    )


def check_variables(op: ComputeOp) -> None:
    """Every variable of the computation is one of its axes or a size that a shape brings in."""
    known: set[Var] = {a.var for a in (*op.axis, *op.reduce_axis)}
    unknown = {v: None for e in op.expressions for v in e.variables if v not in known}
    if unknown:
        sizes = sizes_of(operations([op]))
        for v in unknown:
            if v not in sizes:
                axes = ", ".join(a.name for a in (*op.axis, *op.reduce_axis)) or "it has none"
                raise TEError(
                    f"compute {op.name!r}: {v.name!r} is neither one of its axes ({axes}) nor a size in the shape of a tensor. A reduce "
                    f"axis must be listed in axis= of the reduction; an axis of another computation cannot be used here"
                )


def check_accesses(op: ComputeOp) -> None:
    """No element outside a tensor is read where nothing guards the access; what cannot be decided passes.

    A read of `T[t - c]` along the first axis t is right in the steps of a te.scan, which is declared later: it is only noted, in `op.early_read`.
    """
    if not any(a.dom is not None and isinstance(a.dom.extent, int) and a.dom.extent == 0 for a in (*op.axis, *op.reduce_axis)):  # else nothing is read
        check_reads(op, {})


def check_reads(op: ComputeOp, ranges: Mapping[Var, Expr]) -> None:
    """check_accesses where variables range as those given for them do; with those of time, nothing is only noted."""
    read_everywhere = (*(op.body if op.condition is None else (op.condition,)), *(op.init or ()))
    seen: set[Expr] = set()
    for e in read_everywhere:
        _check_reads(op, substitute(e, ranges) if ranges else e, not ranges, seen)


def _check_reads(op: ComputeOp, e: Expr, may_scan: bool, seen: set[Expr]) -> None:
    """Checks the loads in `e` that are evaluated at every point."""
    if e in seen:
        return
    seen.add(e)
    if isinstance(e, IfThenElse):
        _check_reads(op, e.condition, may_scan, seen)  # its arms are guarded
        return
    if isinstance(e, Load):
        for dimension, (index, extent) in enumerate(zip(e.indices, e.buffer.shape, strict=True)):
            if isinstance(extent, int) and _bounds_are_reached(index, set()):
                low, high = constant_bounds(index)
                below, above = low is not None and low < 0, high is not None and high >= extent
                if below or above:
                    problem = (
                        f"compute {op.name!r} reads {e}, whose index {dimension} takes the values {low} to {high}, but dimension "
                        f"{dimension} of tensor {e.buffer.name!r} is [0, {extent}). Guard it: te.if_then_else(condition, {e}, value); "
                        f"te.select does not, it evaluates both values"
                    )
                    if not (may_scan and dimension == 0 and not above and op.axis and not difference(op.axis[0].var, index)[0]):
                        raise TEError(problem)
                    op.early_read = problem
    for child in e.children:
        _check_reads(op, child, may_scan, seen)


def _bounds_are_reached(e: Expr, seen: set[Expr]) -> bool:
    """Whether the constant bounds of `e` are values it takes: monotone in each variable, and no variable occurs twice."""
    if isinstance(e, Const):
        return True
    if isinstance(e, Var):
        if e in seen or None in e.bounds:
            return False
        seen.add(e)
        return True
    if isinstance(e, (Add, Sub, Min, Max)):
        return _bounds_are_reached(e.a, seen) and _bounds_are_reached(e.b, seen)
    if isinstance(e, (Mul, FloorDiv)):
        return isinstance(e.b, Const) and _bounds_are_reached(e.a, seen)
    return False
