"""Iteration variables: the axes of a computation, the axes it reduces over, and the thread indices loops can be bound to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tir.affine import difference
from ..tir.dtype import INT64, whole_number
from ..tir.errors import TEError
from ..tir.expr import Const, Expr, ExprLike, Var
from ..tir.visit import loads_of

THREAD_TAGS = (*(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"), "vthread")

_INT32_END = 1 << 31


class Range:
    """The integers min, min + 1, ... min + extent - 1. Both are Python ints where they are constant."""

    __slots__ = ("extent", "min")

    def __init__(self, min: int | Expr, extent: int | Expr):
        self.min, self.extent = min, extent

    @property
    def constant(self) -> tuple[int, int] | None:
        """(min, extent) where both are constant."""
        return (self.min, self.extent) if isinstance(self.min, int) and isinstance(self.extent, int) else None

    def __repr__(self) -> str:
        end = self.min + self.extent
        return f"[{self.min}, {end})"


class IterVar(ExprLike):
    """An axis: a loop of a computation, or a thread index.

    Attributes: `var` (the tir variable that stands for it in expressions), `dom` (its Range; None for a thread axis of no fixed extent),
    `kind` ("spatial", "reduce", "thread", or "ordered": its iterations must run in order), `name`, `thread_tag` ("threadIdx.x" ... for a
    thread axis).
    """

    __slots__ = ("__weakref__", "dom", "kind", "name", "thread_tag", "var")

    def __init__(self, dom: Range | None, name: str, kind: str = "spatial", thread_tag: str | None = None):
        self.dom, self.name, self.kind, self.thread_tag = dom, name, kind, thread_tag
        self.var = Var(name, _dtype_of(dom), _bounds_of(dom))

    def as_expr(self) -> Expr:
        return self.var

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        tag = f", {self.thread_tag}" if self.thread_tag else ""
        return f"{self.name}: {self.kind}{tag}{'' if self.dom is None else f' {self.dom}'}"


def _dtype_of(dom: Range | None) -> str:
    """int32, or int64 where a value does not fit."""
    if dom is None:
        return "int32"
    if dom.constant is not None:
        low, extent = dom.constant
        return "int32" if low >= -_INT32_END and low + extent <= _INT32_END else "int64"
    parts = [e.dtype for e in (dom.min, dom.extent) if isinstance(e, Expr)]
    return "int64" if "int64" in parts else "int32"


def _bounds_of(dom: Range | None) -> tuple[int | None, int | None]:
    if dom is None or not isinstance(dom.min, int):
        return (0, None) if dom is None else (None, None)
    if not isinstance(dom.extent, int):
        return (dom.min, None)
    return (dom.min, dom.min + max(dom.extent, 1) - 1)  # of an empty axis too: bounds are never the wrong way round


def extent_value(value: Any, what: str) -> int | Expr:
    """`value` as an extent or a limit of a range: an int, or an integer expression of sizes; `what` names it in errors."""
    if isinstance(value, ExprLike):
        e = value.as_expr()
        if isinstance(e, Const) and e.dtype.is_integer:
            return int(e.value)
        if not e.dtype.is_integer:
            raise TEError(f"{what} is {e} of dtype {e.dtype}: expected an integer")
        if loads_of(e):
            raise TEError(
                f"{what} is {e}, which reads a tensor: sizes must be known before the kernel runs. Use a size_var, or guard with where= or te.if_then_else"
            )
        return e
    number = whole_number(value)
    if number is None:
        hint = ". Write // for the floored quotient" if isinstance(value, float) else ""
        raise TEError(f"{what} is {value!r}: expected an int or an expression of sizes{hint}")
    if not INT64.low <= number <= INT64.high:
        raise TEError(f"{what} is {number}, which no index can reach: expected an int that fits in int64")
    return number


def same_extent(a: int | Expr, b: int | Expr) -> bool:
    """Whether two extents are the same number, or the same expression of sizes."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return difference(a, b) == ({}, 0)


def range_of(dom: Any, what: str) -> Range:
    """The Range from a (low, high) pair as users write it."""
    if isinstance(dom, Range):
        return dom
    if not isinstance(dom, (tuple, list)) or len(dom) != 2:
        raise TEError(f"the range of {what} is {dom!r}: expected a pair (low, high), for example (0, 128)")
    low, high = extent_value(dom[0], f"the lower limit of {what}"), extent_value(dom[1], f"the upper limit of {what}")
    extent: Any = high - low
    if isinstance(extent, Const):
        extent = int(extent.value)
    if isinstance(extent, int) and extent < 0:
        raise TEError(f"the range of {what} is ({low}, {high}): the upper limit is below the lower one")
    return Range(low, extent)


def reduce_axis(dom: Sequence[Any] | Range, name: str = "k") -> IterVar:
    """An axis to reduce over: `dom` is (low, high), high not included; for example `k = te.reduce_axis((0, K), name="k")`."""
    if not isinstance(name, str):
        raise TEError(f"the name of a reduce axis is {name!r}: expected a text")
    return IterVar(range_of(dom, f"reduce axis {name!r}"), name, "reduce")


def thread_axis(dom: Any = None, tag: str | None = None, name: str | None = None) -> IterVar:
    """A thread index to bind loops to: `thread_axis("threadIdx.x")`, or with an extent `thread_axis(32, "threadIdx.x")` or `(0, 32)`."""
    if isinstance(dom, str) and tag is None:
        dom, tag = None, dom
    if not isinstance(tag, str) or tag not in THREAD_TAGS:
        raise TEError(f"unknown thread tag {tag!r}: expected one of {', '.join(THREAD_TAGS)}")
    if dom is not None:
        dom = range_of(dom if isinstance(dom, (tuple, list, Range)) else (0, dom), f"thread axis {tag}")
        if not isinstance(dom.min, int) or dom.min != 0:
            raise TEError(f"thread axis {tag} starts at {dom.min}: a thread index starts at 0")
    return IterVar(dom, name or tag, "thread", tag)
