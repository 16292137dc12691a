"""Checks by example: a function is evaluated at some points of its iteration space, and what goes wrong at one of them is certainly wrong.

A point gives every size and loop variable a value. Points are corners (all variables first, all last, one first or last among the others)
and random ones, from a fixed seed. All points are evaluated together, each node once, as an array of shape [points, lanes]. What depends on
memory is not known, and code under a condition that is not known counts as not reached: every report is true, finding none proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .dtype import INT64, DType
from .expr import Binary, Broadcast, Buffer, Call, Cast, Const, Expr, FloorDiv, FloorMod, IfThenElse, Load, Not, Ramp, Select, Var, as_expr
from .stmt import Allocate, AllReduce, Atomic, Bind, CallExtern, CallIntrinsic, For, Func, If, Prefetch, Shuffle, Stmt, Store
from .visit import children

Array = np.ndarray[Any, Any]

_POINTS = 48
_LARGEST_SIZE = 40  # of a symbolic extent
_NEIGHBOURS = 6  # iterations of a parallel loop that are compared
_UNSEEN = object()


def out_of_bounds(func: Func) -> list[str]:
    """Accesses that are outside their buffer at some point."""
    return _Bounds(func).report()


def races(func: Func) -> list[str]:
    """Elements that one iteration of a parallel loop writes and another one writes or reads."""
    return _Races(func).report()


def too_narrow(func: Func) -> list[str]:
    """Exact integer expressions whose value at some point is not one of their dtype."""
    return _Narrow(func).report()


class _Walk:
    """Goes through a function with all points at once; subclasses look at accesses and expressions."""

    def __init__(self, func: Func):
        self.func = func
        self.random = np.random.default_rng(20)
        self.variables: dict[Var, Array | None] = {}
        self.values: dict[Expr, Array | None] = {}
        self.loops = 0
        self.problems: dict[str, None] = {}  # in order, each once
        for size in func.sizes:
            self.variables[size] = self.choose_size()

    def report(self) -> list[str]:
        """The problems that are met on the way."""
        self.statement(self.func.body, np.ones((_POINTS, 1), bool))
        return list(self.problems)

    def access(self, node: Load | Store, reached: Array) -> None:
        """Look at an access that happens at the points and lanes in `reached`."""

    def expression(self, e: Expr, reached: Array) -> None:
        """Look at an expression that is evaluated at the points in `reached`."""

    def choose_size(self) -> Array:
        """A value of a size for each point."""
        return self.random.integers(0, _LARGEST_SIZE, (_POINTS, 1))

    def choose(self, loop: For, extent: Array) -> Array:
        """A value of the variable of `loop` for each point; anything where the loop does not run."""
        last = np.maximum(np.broadcast_to(extent, (_POINTS, 1)) - 1, 0)
        values = self.random.integers(0, last + 1)
        values[0], values[1] = 0, last[1]
        for corner in range(2, 18, 2):  # this variable at one end and the others at the other, or the reverse
            mine = self.loops % 8 == corner // 2 - 1
            values[corner] = last[corner] if mine else 0
            values[corner + 1] = 0 if mine else last[corner + 1]
        self.loops += 1
        return values  # type: ignore[no-any-return]

    def bind(self, var: Var, value: Array | None) -> None:
        if var in self.variables:  # the same loop stands in two copies of a body
            self.values.clear()
        self.variables[var] = value

    def statement(self, s: Stmt, reached: Array) -> None:
        if not reached.any():
            return
        if isinstance(s, For):
            self.expressions((s.extent,), reached)
            extent = self.value(s.extent)
            if extent is not None:
                self.loop(s, extent, reached & (extent > 0))
        elif isinstance(s, If):
            self.expressions((s.condition,), reached)
            condition = self.value(s.condition)
            if condition is not None:
                self.statement(s.then, reached & condition)
                if s.otherwise is not None:
                    self.statement(s.otherwise, reached & ~condition)
        elif isinstance(s, Bind):
            self.expressions((s.value,), reached)
            self.bind(s.var, self.value(s.value))
            self.statement(s.body, reached)
        elif isinstance(s, Store):
            self.expressions((*s.indices, s.value, *([] if s.predicate is None else [s.predicate])), reached)
            self._access(s, reached)
        elif isinstance(s, CallIntrinsic):
            self.expressions(s.parts, reached)
            for number, first in enumerate(s.loads):
                for element in (first, s.last(number)):
                    self._access(element, reached)
                    if number == 0:
                        self._access(Store(element.buffer, element.indices, element), reached)
        elif isinstance(s, AllReduce):
            self.expressions(s.parts, reached)
            for target in s.loads:
                self._access(Store(target.buffer, target.indices, target), reached)
        elif isinstance(s, Shuffle):
            self.expressions(s.parts, reached)
            self._access(Store(s.load.buffer, s.load.indices, s.value), reached)
        elif isinstance(s, Atomic):  # as a read: two of them are no race, one of them and a plain store are
            self.expressions(s.parts, reached)
        elif not isinstance(s, (Prefetch, CallExtern)):  # which may point anywhere, or nowhere in an empty buffer
            for child in children(s):
                self.statement(child, reached)

    def loop(self, s: For, extent: Array, reached: Array) -> None:
        self.bind(s.var, self.choose(s, extent))
        self.statement(s.body, reached)

    def expressions(self, roots: tuple[Expr, ...], reached: Array) -> None:
        """Everything in `roots`; the arms of an `IfThenElse` only where they are taken."""
        seen: set[tuple[Expr, int]] = set()
        arms = [reached]  # kept, so that each has an identity of its own
        stack = [(e, reached) for e in roots]
        while stack:
            e, where = stack.pop()
            if (e, id(where)) in seen:
                continue
            seen.add((e, id(where)))
            self.expression(e, where)
            if isinstance(e, IfThenElse):
                stack.append((e.condition, where))
                condition = self.value(e.condition)
                if condition is not None:
                    arms += [where & condition, where & ~condition]
                    stack += [(e.then, arms[-2]), (e.otherwise, arms[-1])]
                continue
            if isinstance(e, Load):
                self._access(e, where)
            stack += [(child, where) for child in e.children]

    def _access(self, node: Load | Store, reached: Array) -> None:
        if node.predicate is not None:
            holds = self.value(node.predicate)
            if holds is None:
                return
            reached = reached & holds
        if reached.any():
            self.access(node, reached)

    def value(self, e: Expr) -> Array | None:
        """The value of `e` at each point and lane; None where it is not known."""
        found = self.values.get(e, _UNSEEN)
        if found is _UNSEEN:
            found = self.values[e] = self._evaluate(e)
        return found  # type: ignore[return-value]

    def _evaluate(self, e: Expr) -> Array | None:
        return self.variables.get(e) if isinstance(e, Var) else _evaluated(e, self.value)


class _Bounds(_Walk):
    def access(self, node: Load | Store, reached: Array) -> None:
        values = [self.value(i) for i in node.indices]
        for index, extent in zip(values, node.buffer.shape, strict=True):
            limit = self.value(as_expr(extent))
            if index is None or limit is None:
                continue
            wrong = np.argwhere(reached & ((index < 0) | (index >= limit)))
            if len(wrong):
                point, lane = wrong[0]
                text = ", ".join("?" if v is None else str(_at(v, point, lane)) for v in values)
                written = f"{node.buffer.name}[{', '.join(map(str, node.indices))}]"
                where = ", ".join(f"{v.name} = {_at(x, point, 0)}" for v, x in self.variables.items() if x is not None)
                self.problems[f"{written} is {node.buffer.name}[{text}], outside {node.buffer}" + (f", at {where}" if where else "")] = None
                return


def _at(value: Array, point: int, lane: int) -> int:
    return int(value[point if len(value) > 1 else 0, lane if value.shape[1] > 1 else 0])


class _Narrow(_Walk):
    def expression(self, e: Expr, reached: Array) -> None:
        if not e.exact or not e.dtype.is_integer or e.dtype.element is INT64:
            return
        value = self.value(e)
        if value is None:
            return
        wrong = np.argwhere(reached & ((value < e.dtype.low) | (value > e.dtype.high)))
        if len(wrong):
            self.problems[f"{e} is {_at(value, *wrong[0])} somewhere, which {e.dtype} cannot hold"] = None


class _Races(_Walk):
    """Points differ only in the outermost parallel loop, in which they are neighbours, and inside it, where each iteration has the same few."""

    inside: For | None = None

    def choose_size(self) -> Array:
        return np.full((_POINTS, 1), _LARGEST_SIZE // 2 + 1)

    def choose(self, loop: For, extent: Array) -> Array:
        last = np.maximum(np.broadcast_to(extent, (_POINTS, 1)) - 1, 0)
        points = np.arange(_POINTS)[:, None]
        inner = _POINTS // _NEIGHBOURS
        if self.inside is None:
            return np.full((_POINTS, 1), int(self.random.integers(0, last[0, 0] + 1)))
        if self.inside is loop:
            return np.minimum(int(self.random.integers(0, max(1, last[0, 0] - _NEIGHBOURS + 2))) + points // inner, last)  # type: ignore[no-any-return]
        return np.minimum(super().choose(loop, extent)[points[:, 0] % inner], last)  # type: ignore[no-any-return]

    def loop(self, s: For, extent: Array, reached: Array) -> None:
        if self.inside is not None or s.kind != "parallel":
            super().loop(s, extent, reached)
            return
        self.inside, self.loops = s, 0
        self.private: set[Buffer] = set()
        self.stores: list[tuple[Store, Array]] = []
        self.loads: list[tuple[Load, Array]] = []
        super().loop(s, extent, reached)
        self._compare(s)
        self.inside = None

    def statement(self, s: Stmt, reached: Array) -> None:
        if isinstance(s, Allocate) and self.inside is not None:
            self.private.add(s.buffer)
        super().statement(s, reached)

    def access(self, node: Load | Store, reached: Array) -> None:
        if self.inside is None or node.buffer in self.private:
            return
        indices = [self.value(i) for i in node.indices]
        if any(i is None for i in indices):
            return
        iteration = self.variables[self.inside.var]
        columns = [a.ravel() for a in np.broadcast_arrays(reached, iteration, *indices)]  # type: ignore[arg-type]
        rows = np.stack([c[columns[0]] for c in columns[1:]], axis=1)
        if isinstance(node, Store):
            self.stores.append((node, rows))
        else:
            self.loads.append((node, rows))

    def _compare(self, loop: For) -> None:
        writer: dict[tuple[Any, ...], int] = {}
        accesses: list[tuple[Load | Store, Array]] = [*self.stores, *self.loads]
        for node, rows in accesses:
            for iteration, *where in rows.tolist():
                key = (node.buffer, *where)
                other = writer.setdefault(key, iteration) if isinstance(node, Store) else writer.get(key, iteration)
                if other != iteration:
                    verb = "writes" if isinstance(node, Store) else "reads"
                    name = loop.var.name
                    self.problems[
                        f"iteration {name} = {iteration} of a parallel loop {verb} {node.buffer.name}[{', '.join(map(str, where))}], "
                        f"which iteration {name} = {other} writes"
                    ] = None
                    break


def _divide(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def divide(e: Expr, a: Array, b: Array) -> Array:
        return np.where(b == 0, 0, function(a, np.where(b == 0, 1, b)))

    return divide


def _wrapped(value: Array, kind: DType) -> Array:
    mask = (1 << kind.element.bits) - 1
    return value if kind.element.bits == 64 else ((value - int(kind.low)) & mask) + int(kind.low)


def _operations() -> dict[type, Callable[..., Array]]:
    table: dict[type, Callable[..., Array]] = {
        FloorDiv: _divide(np.floor_divide),
        FloorMod: _divide(np.mod),
        Not: lambda e, a: ~a,
        Cast: lambda e, a: a.astype(bool if e.dtype.is_bool else np.int64),
        Broadcast: lambda e, a: a,
        Ramp: lambda e, base, stride: base + stride * np.arange(e.dtype.lanes),
        Select: lambda e, *parts: np.where(*parts),
        IfThenElse: lambda e, *parts: np.where(*parts),
    }
    functions: dict[str, Any] = {
        "+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum, "==": np.equal, "!=": np.not_equal,
        "<": np.less, "<=": np.less_equal, "and": np.logical_and, "or": np.logical_or,
    }  # fmt: skip

    def of(function: Any) -> Callable[..., Array]:
        return lambda e, a, b: function(a, b)

    stack: list[Any] = [Binary]
    while stack:
        cls = stack.pop()
        stack.extend(cls.__subclasses__())
        if getattr(cls, "symbol", None) in functions:
            table[cls] = of(functions[cls.symbol])
    return table


def evaluate(e: Expr, values: dict[Expr, Array | None]) -> Array | None:
    """The value of `e` where variables have `values`, each of shape [points, 1]; None where it is not known. `values` keeps what was found."""
    found = values.get(e, _UNSEEN)
    if found is _UNSEEN:
        found = values[e] = None if isinstance(e, Var) else _evaluated(e, lambda part: evaluate(part, values))
    return found  # type: ignore[return-value]


def _evaluated(e: Expr, value: Callable[[Expr], Array | None]) -> Array | None:
    """The value of what is no variable, from the values of its parts."""
    if isinstance(e, Const):
        return None if e.dtype.is_float else np.full((1, 1), e.value, bool if e.dtype.is_bool else np.int64)
    operation = _FUNCTIONS.get(e.name) if isinstance(e, Call) else _OPERATIONS.get(e.__class__)
    if operation is None or e.dtype.is_float:
        return None
    parts = [value(c) for c in e.children]
    if any(p is None for p in parts):
        return None
    result = operation(e, *parts)
    return result if e.exact or e.dtype.is_bool else _wrapped(result, e.dtype)


_OPERATIONS = _operations()
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "wrap": lambda e, a: a,
    "bitwise_xor": lambda e, a, b: a ^ b,
    "truncdiv": _divide(lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))),
    "truncmod": _divide(np.fmod),
}
