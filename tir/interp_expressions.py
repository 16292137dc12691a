"""How the interpreter writes expressions, as Python. Statements, and what runs the source, are in interp.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .dtype import DType
from .expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Choice,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    IfThenElse,
    Load,
    Max,
    Min,
    Not,
    Ramp,
    Var,
    as_expr,
)
from .interp_support import (
    FUNCTIONS,
    SCALAR_INTEGER_FUNCTIONS,
    divide,
    greatest,
    least,
    modulo,
    numpy_dtype,
    outside,
    popcount,
    select,
    to_integer,
    vector_load,
    vector_store,
)

_MAX_INLINE = 160  # characters of an expression that is not given a name; Python refuses deep parentheses


class ExpressionWriter:
    """Writes lines that compute expressions.

    A scalar is a Python int or bool, or a NumPy scalar of a float dtype; a vector is an array, of int64 where its integers are exact.
    `scopes`: names of expressions already computed, from the outermost block of source in; `mask`: the lanes in which loads happen now.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = " "
        self.count = 0
        self.names: dict[Any, str] = {}
        self.scopes: list[dict[Expr, str]] = []
        self.uses: dict[Expr, int] = {}
        self.mask: str | None = None
        self.environment: dict[str, Any] = {
            "np": np, "outside": outside, "vector_load": vector_load, "vector_store": vector_store, "divide": divide, "modulo": modulo,
            "to_integer": to_integer, "select": select, "least": least, "greatest": greatest,
        }  # fmt: skip

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def constant(self, name: str, value: Any) -> str:
        self.environment.setdefault(name, value)
        return name

    def type(self, kind: DType) -> str:
        return self.constant(f"type_{kind.element}", numpy_dtype(kind))

    def make(self, kind: DType) -> str:
        """The name of the constructor of a float scalar."""
        return self.constant(f"make_{kind.element}", numpy_dtype(kind).type)

    def shape(self, buffer: Buffer) -> str:
        return "(" + "".join(f"{self.expression(as_expr(d))}, " for d in buffer.shape) + ")"

    def count_uses(self, *roots: Expr) -> None:
        self.uses = uses = dict.fromkeys(roots, 1)
        stack = list(roots)
        while stack:
            for child in stack.pop().children:
                uses[child] = uses.get(child, 0) + 1
                if uses[child] == 1:
                    stack.append(child)

    def expression(self, e: Expr) -> str:
        """Text for the value of `e`: a name, a number or something in parentheses; lines that compute parts of it are written before."""
        for scope in reversed(self.scopes):
            if e in scope:
                return scope[e]
        text: str = _EXPRESSIONS[e.__class__](self, e)
        if not text.isidentifier() and e.__class__ is not Const and (self.uses.get(e, 0) > 1 or len(text) > _MAX_INLINE):
            text = self.name(text)
        self.scopes[-1][e] = text
        return text

    def name(self, text: str) -> str:
        """`text`, computed into a name unless it is one or a number."""
        if text.isidentifier() or text.isdigit():
            return text
        name = self.fresh("t")
        self.line(f"{name} = {text}")
        return name

    def operand(self, e: Expr, of: Expr) -> str:
        """`e` as an operand of `of`: exact vectors become vectors of the dtype where the operation wraps."""
        text = self.expression(e)
        if e.exact and not of.exact and e.dtype.lanes > 1 and e.dtype.is_integer:
            return f"{text}.astype({self.type(e.dtype)})"
        return text

    def variable(self, e: Var) -> str:
        return self.names[e]

    def const(self, e: Const) -> str:
        if e.dtype.is_float:
            return self.constant(self.fresh("k"), numpy_dtype(e.dtype).type(e.value))
        if e.dtype.is_bool:
            return str(bool(e.value))
        return str(e.value) if e.value >= 0 else f"({e.value})"

    def binary(self, e: Binary) -> str:
        kind = e.a.dtype
        a, b = self.operand(e.a, e), self.operand(e.b, e)
        if e.__class__ in (Min, Max):
            if kind.lanes > 1:
                return f"np.{e.symbol}imum({a}, {b})"
            return f"{e.symbol}({a}, {b})" if kind.is_integer else f"{'least' if e.__class__ is Min else 'greatest'}({a}, {b})"
        if e.__class__ in (FloorDiv, FloorMod) and kind.lanes == 1 and not (e.b.__class__ is Const and e.b.value):
            text = f"{'divide' if e.__class__ is FloorDiv else 'modulo'}({a}, {b})"
        else:
            symbol = {"and": "&", "or": "|"}.get(e.symbol, e.symbol)
            text = f"({a} {symbol} {b})"
        return wrapped(text, e.dtype) if not e.exact and kind.lanes == 1 and e.dtype.is_integer else text

    def negation(self, e: Not) -> str:
        return f"({'~' if e.dtype.lanes > 1 else 'not '}{self.expression(e.a)})"

    def cast(self, e: Cast) -> str:
        source, to = e.value.dtype, e.dtype
        text = self.expression(e.value)
        if to.is_bool:
            return f"({text} != 0)"
        if to.lanes > 1:
            return f"{text}.astype({'np.int64' if e.exact else self.type(to)})"
        if to.is_float:
            return f"{self.make(to)}({text if source.is_float or source.is_bool else f'np.int64({text})'})"
        if source.is_float:
            text = f"to_integer({text})"
        elif source.is_bool:
            return f"int({text})"
        return text if e.exact else wrapped(text, to)

    def choice(self, e: Choice) -> str:
        condition = self.expression(e.condition)
        if e.__class__ is not IfThenElse:
            a, b = self.operand(e.then, e), self.operand(e.otherwise, e)
            return f"{'np.where' if e.condition.dtype.lanes > 1 else 'select'}({condition}, {a}, {b})"
        if e.condition.dtype.lanes == 1:
            result = self.fresh("t")
            self.arm(e.then, e, f"if {condition}:", result)
            self.arm(e.otherwise, e, "else:", result)
            return result
        outer, condition = self.mask, self.name(condition)
        arms = []
        for arm, lanes in ((e.then, condition), (e.otherwise, f"~{condition}")):
            self.mask = self.fresh("m")
            self.line(f"{self.mask} = {lanes}" + (f" & {outer}" if outer else ""))
            self.scopes.append({})
            arms.append(self.name(self.operand(arm, e)))
            self.scopes.pop()
        self.mask = outer
        return f"np.where({condition}, {arms[0]}, {arms[1]})"

    def arm(self, e: Expr, of: Expr, header: str, result: str) -> None:
        """Lines that compute `e` into `result` under `header`."""
        self.line(header)
        outer, self.indent = self.indent, self.indent + " "
        self.scopes.append({})
        self.line(f"{result} = {self.operand(e, of)}")
        self.scopes.pop()
        self.indent = outer

    def load(self, e: Load) -> str:
        buffer, name = self.names[e.buffer], e.buffer.name
        predicate = None if e.predicate is None else self.name(self.expression(e.predicate))
        if e.dtype.lanes > 1:
            indices = self.vector_indices(e.indices)
            if predicate is not None and e.predicate.dtype.lanes == 1:  # type: ignore[union-attr]
                predicate = f"np.full({e.dtype.lanes}, {predicate})"
            lanes = " & ".join(p for p in (predicate, self.mask) if p) or "None"
            return f"vector_load({buffer}, {name!r}, {indices}, {lanes})"
        conditions = [p for p in (predicate, f"{self.mask}.any()" if self.mask else None) if p]
        where = [self.name(self.expression(i)) for i in e.indices]
        if not conditions:
            return self.element(e.buffer, where)
        result, outer = self.fresh("t"), self.indent
        zero = self.constant(f"zero_{e.dtype}", numpy_dtype(e.dtype).type(0)) if e.dtype.is_float else "False" if e.dtype.is_bool else "0"
        self.line(f"{result} = {zero}")
        self.line(f"if {' and '.join(conditions)}:")
        self.indent += " "
        self.line(f"{result} = {self.element(e.buffer, where)}")
        self.indent = outer
        return result

    def element(self, buffer: Buffer, indices: list[str]) -> str:
        """The element at indices that are names or numbers."""
        name = self.names[buffer]
        self.check(buffer, indices)
        return f"{name}[{', '.join(indices) or '()'}]" if buffer.dtype.is_float else f"{name}.item({', '.join(indices)})"

    def check(self, buffer: Buffer, indices: list[str]) -> None:
        if indices:
            name = self.names[buffer]
            inside = " and ".join(f"0 <= {i} < {name}.shape[{axis}]" for axis, i in enumerate(indices))
            self.line(f"if not ({inside}): outside({buffer.name!r}, {name}.shape, {', '.join(indices)})")

    def scalar_indices(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Checked indices of a scalar access, as they stand between brackets."""
        texts = [self.name(self.expression(i)) for i in indices]
        self.check(buffer, texts)
        return ", ".join(texts) or "()"

    def vector_indices(self, indices: tuple[Expr, ...]) -> str:
        return f"({''.join(f'{self.expression(i)}, ' for i in indices)})"

    def ramp(self, e: Ramp) -> str:
        steps = self.constant(f"steps_{e.dtype.lanes}", np.arange(e.dtype.lanes))
        text = f"({self.expression(e.base)} + {self.expression(e.stride)} * {steps})"
        return text if e.exact else f"{text}.astype({self.type(e.dtype)})"

    def broadcast(self, e: Broadcast) -> str:
        kind = "np.int64" if e.exact and e.dtype.is_integer else self.type(e.dtype)
        return f"np.full({e.dtype.lanes}, {self.expression(e.value)}, {kind})"

    def call(self, e: Call) -> str:
        kind = e.args[0].dtype
        args = [self.operand(a, e) for a in e.args]
        if e.name == "reinterpret":
            if kind.lanes > 1:
                return f"{args[0]}.view({self.type(e.dtype)})"
            text = f"np.array({args[0]}, {self.type(kind)}).view({self.type(e.dtype)})[()]"
            return text if e.dtype.is_float else f"int({text})"
        if e.name == "wrap":
            return wrapped(args[0], e.dtype) if kind.lanes == 1 else args[0]
        function = FUNCTIONS[e.name]
        if e.name == "popcount":
            function = popcount(kind.element.bits)
        elif not kind.is_float and kind.lanes == 1:
            function = SCALAR_INTEGER_FUNCTIONS.get(e.name, function)
        text = f"{self.constant(f'call_{e.name}_{kind}', function)}({', '.join(args)})"
        if e.dtype.is_bool or e.exact:
            return text
        if kind.lanes > 1:
            return f"{text}.astype({self.type(e.dtype)})"
        return f"{self.make(e.dtype)}({text})" if kind.is_float else wrapped(text, e.dtype)


def wrapped(text: str, kind: DType) -> str:
    """An integer reduced to the values of `kind`, two's complement."""
    if not kind.is_integer:
        return text
    mask, half = (1 << kind.element.bits) - 1, 1 << (kind.element.bits - 1)
    return f"(({text} + {half} & {mask}) - {half})" if kind.kind == "int" else f"({text} & {mask})"


def _expression_table() -> dict[type, Callable[[ExpressionWriter, Any], str]]:
    table: dict[type, Callable[[ExpressionWriter, Any], str]] = {
        Var: ExpressionWriter.variable, Const: ExpressionWriter.const, Cast: ExpressionWriter.cast, Not: ExpressionWriter.negation, Load: ExpressionWriter.load,
        Ramp: ExpressionWriter.ramp, Broadcast: ExpressionWriter.broadcast, Call: ExpressionWriter.call,
    }  # fmt: skip
    for base, method in ((Binary, ExpressionWriter.binary), (Choice, ExpressionWriter.choice)):
        stack: list[Any] = [base]
        while stack:
            cls = stack.pop()
            table[cls] = method
            stack.extend(cls.__subclasses__())
    return table


_EXPRESSIONS = _expression_table()
