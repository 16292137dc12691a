"""Tensor intrinsics of one's own for any loop nest: what a stage computes along some of its loops becomes a pattern, with its C text.

The text is made here, from the expression, by rules of its own: nothing of the package's generator is used. Nor is anything promised: expressions
that it cannot say in C are Unfit, patterns that are none a TEError, and that the nest is the pattern is for the package to find out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from evaluate import evaluate

from tilewright import te
from tilewright.te.reduce import reduction
from tilewright.tir import expr as tir
from tilewright.tir.expr import Expr, Load, load
from tilewright.tir.visit import substitute

C_TYPES = {
    "bool": "uint8_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
ARITHMETIC = {tir.Add: "+", tir.Sub: "-", tir.Mul: "*"}
COMPARISONS = {tir.EQ: "==", tir.NE: "!=", tir.LT: "<", tir.LE: "<=", tir.And: "&&", tir.Or: "||"}


class Unfit(Exception):
    """A nest that has no pattern."""


def own_intrinsic(rng: random.Random, stage: Any, leaves: Sequence[Any], name: str) -> te.TensorIntrin:
    """An intrinsic that is what `stage` computes along its innermost loops, `leaves`: every element it reads becomes an operand."""
    op = stage.op
    if len(op.outputs) != 1 or op.condition is not None or op.init is not None:
        raise Unfit("several outputs, where= or init=")
    inner = {leaf: te.reduce_axis((0, leaf.dom.extent), f"r{n}") for n, leaf in enumerate(leaves) if leaf.kind != "spatial"}
    if op.reducer is not None and not inner:
        inner[None] = te.reduce_axis((0, 1), "r")
    spatial = [leaf for leaf in leaves if leaf.kind == "spatial"]
    rng.shuffle(spatial)
    shape = [leaf.dom.extent for leaf in spatial]
    moving = {leaf: {root.var for root in stage.origin_of(leaf)} for leaf in leaves}
    operands: list[te.Tensor] = []

    def pattern_of(variables: dict[Any, Any], e: Expr) -> Expr:
        if not isinstance(e, Load):
            return e if not e.children else e.with_children(tuple(pattern_of(variables, child) for child in e.children))
        source = _stage_of(stage.schedule, e)
        if source is not None and source.attach.kind == "inline":
            values = {axis.var: index for axis, index in zip(source.op.axis, e.indices, strict=True)}
            return pattern_of(variables, substitute(source.op.body[0], values))
        used = {v for index in e.indices for v in index.variables}
        moved = [leaf for leaf in leaves if moving[leaf] & used]
        rng.shuffle(moved)
        operands.append(te.placeholder([leaf.dom.extent for leaf in moved], e.dtype, name=f"x{len(operands)}"))
        return operands[-1](*(variables[leaf] for leaf in moved))

    def value(*axes: Any) -> Any:
        variables = {**dict(zip(spatial, axes, strict=True)), **inner}
        body = pattern_of(variables, op.body[0])
        return body if op.reducer is None else reduction(op.reducer, body, list(inner.values()))

    pattern = te.compute(shape, value, name="y")
    codes = _Codes(pattern)
    if op.reducer is None:
        return te.decl_tensor_intrin(pattern, body=codes.body(), name=name)
    init = codes.init() if rng.random() < 0.5 else None
    return te.decl_tensor_intrin(pattern, init=init, update=codes.update(), name=name)


def _stage_of(schedule: Any, e: Load) -> Any:
    return next((stage for stage in schedule.stages for t in stage.outputs if t.buffer is e.buffer), None)


class _Codes:
    """The codes of a pattern, in C and in Python."""

    def __init__(self, pattern: te.Tensor):
        self.pattern, self.op = pattern, pattern.op
        self.axes = [*self.op.axis, *self.op.reduce_axis]  # type: ignore[attr-defined]
        self.names = {axis.var: f"i{n}" for n, axis in enumerate(self.axes)}
        self.target = load(pattern.buffer, [axis.var for axis in self.op.axis])  # type: ignore[attr-defined]

    def body(self) -> dict[str, Any]:
        def run(y: Any, *xs: Any) -> None:
            y[...] = evaluate(self.pattern, dict(zip(self.op.input_tensors, xs, strict=True)))

        return {"c": self.loops(self.axes, self.op.body[0]), "python": run}  # type: ignore[attr-defined]

    def init(self) -> dict[str, Any]:
        (identity,) = self.op.reducer.form([self.pattern.dtype]).identity  # type: ignore[attr-defined]
        return {"c": self.loops(self.op.axis, identity), "python": lambda y: y.fill(identity.value)}  # type: ignore[attr-defined]

    def update(self) -> dict[str, Any]:
        reducer, (term,) = self.op.reducer, self.op.body  # type: ignore[attr-defined]
        (combined,) = reducer.combine([self.target], [term])
        before = te.placeholder(self.pattern.shape, self.pattern.dtype, "before")
        axes = list(self.op.reduce_axis)  # type: ignore[attr-defined]

        def again(*i: Any) -> Any:
            moved = substitute(term, {axis.var: new for axis, new in zip(self.op.axis, i, strict=True)})  # type: ignore[attr-defined]
            return reduction(reducer, moved, axes, init=before(*i))

        whole = te.compute(self.pattern.shape, again, name="after")

        def run(y: Any, *xs: Any) -> None:
            y[...] = evaluate(whole, {before: y.copy(), **dict(zip(self.op.input_tensors, xs, strict=True))})

        return {"c": self.loops(self.axes, combined), "python": run}

    # -------------------------------------------------------------------------------------------------------------------- C

    def loops(self, axes: Sequence[Any], value: Expr) -> str:
        heads = [f"for (int {self.names[a.var]} = 0; {self.names[a.var]} < {a.dom.extent}; ++{self.names[a.var]})" for a in axes]
        return " ".join([*heads, f"{self.text(self.target)} = {self.text(value)};"])

    def text(self, e: Expr) -> str:
        """The value of an expression; one of integers wraps."""
        kind = str(e.dtype)
        if kind not in C_TYPES:
            raise Unfit(kind)
        if isinstance(e, Load):
            places = " + ".join(f"{self.names[i]} * {e.buffer.name}_{d}" for d, i in enumerate(e.indices)) or "0"  # type: ignore[index]
            return f"{e.buffer.name}[{places}]"
        if isinstance(e, tir.Const):
            return f"(({C_TYPES[kind]})({_number(e.value)}))"
        if isinstance(e, tir.Cast):
            value = self.text(e.value)
            return f"(({C_TYPES[kind]})({f'({value}) != 0' if kind == 'bool' else value}))"
        if type(e) in ARITHMETIC:
            wide = C_TYPES[kind] if e.dtype.is_float else "uint64_t"
            return f"(({C_TYPES[kind]})(({wide}){self.text(e.a)} {ARITHMETIC[type(e)]} ({wide}){self.text(e.b)}))"  # type: ignore[attr-defined]
        if isinstance(e, (tir.Min, tir.Max)):
            a, b = self.text(e.a), self.text(e.b)
            return f"({a} {'<' if isinstance(e, tir.Min) else '>'} {b} ? {a} : {b})"
        if type(e) in COMPARISONS:
            if e.a.dtype is not e.b.dtype:  # type: ignore[attr-defined]
                raise Unfit("a comparison of two dtypes")
            return f"({self.text(e.a)} {COMPARISONS[type(e)]} {self.text(e.b)})"  # type: ignore[attr-defined]
        if isinstance(e, tir.Not):
            return f"(!{self.text(e.a)})"
        if isinstance(e, tir.Select):
            return f"({self.text(e.condition)} ? {self.text(e.then)} : {self.text(e.otherwise)})"
        raise Unfit(type(e).__name__)


def _number(value: Any) -> str:
    if isinstance(value, float) and abs(value) == float("inf"):
        return "-__builtin_inf()" if value < 0 else "__builtin_inf()"
    if isinstance(value, float):
        return value.hex()
    return f"{value + 1} - 1" if value == -(2**31) else f"{int(value)}" if abs(int(value)) < 2**62 else f"{int(value)}ull"
