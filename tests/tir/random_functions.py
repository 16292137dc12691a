"""Random functions as lowering might make them, each right by construction: what reads memory reads what was written, inside its buffer, without races.

`random_function(seed)` gives one. It is a chain of stages: pointwise (with padding, gathers, strides), reductions (with triangular domains), register
tiles (accumulate in a local buffer, copy out, both guarded), producers attached to a consumer's loop, prefix sums, conditional stores. Loops are
split with tails, reordered, and given every kind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.tir.dtype import BOOL, DType, dtype
from tilewright.tir.expr import (
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    as_expr,
    call,
    cast,
    const,
    floordiv,
    floormod,
    if_then_else,
    load,
    logical_and,
    logical_or,
    maximum,
    minimum,
    select,
)
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Prefetch, Produce, Seq, Stmt, Store, seq
from tilewright.tir.visit import Substitute, walk

TYPES = ("float32", "float32", "float32", "float32", "float64", "int32", "int8", "uint8", "int64", "bool", "float16")


def random_function(seed: int) -> Func:
    """The function of this seed."""
    return _Maker(seed).function()


@dataclass(eq=False)
class Loop:
    """A loop to be: `parallel` and `vectorized` are allowed where iterations are independent."""

    var: Var
    extent: Expr
    independent: bool
    kind: str = "serial"


@dataclass(eq=False)
class Axis:
    """A dimension of a stage: its value in terms of loop variables, and the guard of its tail."""

    value: Expr
    extent: Expr
    loops: list[Loop]
    guard: Expr | None = None


class _Maker:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.sizes: list[Var] = []
        self.count = 0
        self.inputs: list[Buffer] = []
        self.known: list[Buffer] = []  # inputs and results so far
        self.in_parallel = False
        # a few extents and dtypes for the whole function, so that what one stage makes suits the next
        self.extents = self.random.sample((1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17), 3)
        self.types = [self.random.choice(TYPES) for _ in range(2)]

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    # -------------------------------------------------------------------------------------------------------------- the function

    def function(self) -> Func:
        if self.chance(35):
            self.sizes.append(Var("n", "int32", (0, None)))
        for number in range(self.random.randint(1, 3)):
            if number == 1 and self.chance(60):  # a table of indices
                self.inputs.append(Buffer("A1", (self.random.choice(self.extents),), "int32"))
            else:
                self.inputs.append(Buffer(f"A{number}", self.shape(), self.random.choice(self.types)))
        self.known = list(self.inputs)
        makers: list[Callable[[Buffer], Stmt]] = [self.pointwise, self.pointwise, self.reduction, self.register_tile, self.attached, self.prefix_sum]
        stages, intermediates = [], []
        for number in range(self.random.randint(1, 4)):
            result = Buffer(f"S{number}", self.shape(), self.random.choice(self.types), "local" if self.chance(15) else "global")
            if self.chance(15) and len(result.shape) == 2 and all(isinstance(d, int) for d in result.shape):
                result = Buffer(result.name, result.shape, result.dtype, result.scope, (result.shape[1] + self.random.randint(1, 5), 1))
            stages.append(Produce(result.name, self.random.choice(makers)(result)))
            intermediates.append(result)
            self.known.append(result)
        outputs = []
        for number, buffer in enumerate(list(intermediates)):  # what no later stage reads has to be seen in another way
            if not any(isinstance(n, Load) and n.buffer is buffer for stage in stages[number + 1 :] for n in walk(stage)):
                if buffer.strides is None and buffer.scope == "global" and self.chance(30):
                    outputs.append(buffer)
                    intermediates.remove(buffer)
                else:
                    outputs.append(Buffer(f"O{len(outputs)}", buffer.shape, buffer.dtype))
                    stages.append(self.copy(buffer, outputs[-1]))
        body: Stmt = Seq(tuple(stages))
        for buffer in reversed(intermediates):
            body = Allocate(buffer, body)
        return Func("random", (*self.inputs, *outputs), frozenset(outputs), body, tuple(self.sizes))

    def shape(self) -> tuple[int | Expr, ...]:
        """Up to three extents, small but not only powers of two; the symbolic size among them."""
        rank = self.random.choice((0, 1, 1, 2, 2, 2, 3))
        return tuple(self.sizes[0] + self.random.choice((0, 0, 1)) if self.sizes and self.chance(40) else self.random.choice(self.extents) for _ in range(rank))

    def copy(self, source: Buffer, target: Buffer) -> Stmt:
        axes = self.axes(target.shape)
        return self.nest(axes, [], Store(target, values(axes), load(source, values(axes))))

    # ------------------------------------------------------------------------------------------------------------------- loops

    def variable(self, extent: int | Expr, letter: str = "i") -> tuple[Var, Expr]:
        self.count += 1
        extent = as_expr(extent)
        high = max(extent.value - 1, 0) if isinstance(extent, Const) else None
        return Var(f"{letter}{self.count}", "int32", (0, high)), extent

    def axes(self, shape: Sequence[int | Expr], independent: bool = True, letter: str = "i") -> list[Axis]:
        """An axis for each extent, split once or twice or not at all."""
        found = []
        for d in shape:
            extent = as_expr(d)
            pieces = []
            rest = extent
            for _ in range(self.random.choice((0, 0, 1, 1, 1, 2))):
                factor = self.random.choice((2, 3, 4, 4, 5, 8, 8, 16))
                pieces.append(factor)
                rest = floordiv(rest + (factor - 1), const(factor))
            var, outer = self.variable(rest, letter)
            value: Expr = var
            loops = [Loop(var, outer, independent)]
            padded: Expr | int = rest
            for factor in reversed(pieces):
                inner, inner_extent = self.variable(factor, letter)
                loops.append(Loop(inner, inner_extent, independent))
                value = value * factor + inner
                padded = padded * factor
            fits = not pieces or (isinstance(extent, Const) and isinstance(padded, Const) and padded.value == extent.value)
            found.append(Axis(value, extent, loops, None if fits else value < extent))
        return found

    def nest(self, data: list[Axis], reduce: list[Axis], body: Stmt, initial: Stmt | None = None) -> Stmt:
        """Loops of the axes in a random order around `body`, each guard at the outermost loop where its variables are known.

        `initial` is done before the first loop of `reduce`, for all that the loops of `data` inside it cover.
        """
        loops = [loop for axis in data for loop in axis.loops]
        self.random.shuffle(loops)
        if self.chance(70):  # usually: outer parts outside
            loops.sort(key=lambda loop: next(axis.loops.index(loop) for axis in data if loop in axis.loops))
        inside = [loop for axis in reduce for loop in axis.loops]
        if reduce and self.chance(50) and all(isinstance(loop.extent, Const) for loop in inside):
            cut = self.random.randint(0, len(loops))
            loops, inside = loops[:cut], [inside[0], *self.merge(inside[1:], loops[cut:])]
        self.give_kinds(loops, inside)
        guards = [axis.guard for axis in (*data, *reduce) if axis.guard is not None]
        order = [*loops, *inside]
        for position in range(len(order) - 1, -1, -1):
            body = self.around(order, position, guards, body)
            if position == len(loops) and initial is not None:
                body, initial = seq(self.initial_nest(initial, data, loops, inside), body), None
        return body if initial is None else seq(initial, body)

    def around(self, order: list[Loop], position: int, guards: list[Expr], body: Stmt) -> Stmt:
        """The loop at `position` of a nest around what is inside, with the guards that belong there."""
        known, loop = {each.var for each in order[: position + 1]}, order[position]
        for guard in guards:
            mine = loop_variables(guard, order)
            if loop.var in mine and mine <= known:
                body = If(guard, body)
        return For(loop.var, loop.extent, loop.kind, body)

    def initial_nest(self, initial: Stmt, data: list[Axis], outer: list[Loop], inside: list[Loop]) -> Stmt:
        mine = [loop for loop in inside if loop.independent]
        guards = [axis.guard for axis in data if axis.guard is not None and any(loop in mine for loop in axis.loops)]
        for position in range(len(mine) - 1, -1, -1):
            initial = self.around([*outer, *mine], len(outer) + position, guards, initial)
        return renamed(initial, {loop.var: self.variable(loop.extent)[0] for loop in mine})

    def merge(self, a: list[Loop], b: list[Loop]) -> list[Loop]:
        """Both, each in its order."""
        result, a, b = [], list(a), list(b)
        while a or b:
            source = a if a and (not b or self.chance(50)) else b
            result.append(source.pop(0))
        return result

    def give_kinds(self, outer: list[Loop], inside: list[Loop]) -> None:
        loops = [*outer, *inside]
        if outer and outer[0].independent and not self.in_parallel and self.chance(35):
            outer[0].kind = "parallel"
        for loop in loops:
            constant = isinstance(loop.extent, Const)
            if loop.kind == "serial" and self.chance(20):
                loop.kind = "unrolled"
            if loop.kind != "parallel" and loop.independent and constant and self.chance(65 if loop is loops[-1] else 6):
                loop.kind = "vectorized"

    # ------------------------------------------------------------------------------------------------------------------ stages

    def pointwise(self, result: Buffer) -> Stmt:
        axes = self.axes(result.shape)
        at = values(axes)
        body: Stmt = Store(result, at, self.value(axes, result.dtype, 3))
        if self.chance(20):
            body = If(self.condition(axes), body, Store(result, at, self.value(axes, result.dtype, 1)))
        elif self.chance(10):
            body = seq(body, Store(result, at, self.value(axes, result.dtype, 1), self.condition(axes)))
        elif self.chance(20) and result.dtype != "bool":  # what one store wrote, the next one reads
            body = seq(body, Store(result, at, as_type(load(result, at) + const(1, result.dtype), result.dtype)))
        elif self.chance(20):
            name = Var(f"v{self.count}", result.dtype)
            name.exact = False
            body = Bind(name, self.value(axes, result.dtype, 2), seq(body, Store(result, at, name)))
        if self.chance(5):
            source = self.random.choice(self.inputs)
            body = seq(Prefetch(source, tuple(as_expr(3) for _ in source.shape)), body)
        return self.nest(axes, [], body)

    def reduction(self, result: Buffer) -> Stmt:
        """result[...] = sum or max over other loops; sometimes only up to an index of the result, sometimes where a condition holds."""
        data = self.axes(result.shape)
        reduce = self.axes([self.random.choice((1, 2, 3, 5, 8)) for _ in range(self.random.randint(1, 2))], independent=False, letter="k")
        if data and self.chance(30):
            var, extent = self.variable(self.random.choice((3, 5, 8)), "k")
            reduce[0] = Axis(var, extent, [Loop(var, minimum(data[0].value + 1, extent), False)])
        at = values(data)
        now = load(result, at)
        value = self.value([*data, *reduce], result.dtype, 2)
        if result.dtype == "bool":
            new = logical_or(now, value)
        else:
            new = as_type(now + value if self.chance(70) else maximum(now, value), result.dtype)
        body: Stmt = Store(result, at, new)
        if self.chance(20):
            body = If(self.condition([*data, *reduce]), body)

        return self.nest(data, reduce, body, Store(result, at, const(0, result.dtype)))

    def register_tile(self, result: Buffer) -> Stmt:
        """For each tile of the result: a local buffer set to zero, accumulated into, and copied out; guards keep to the result's extents."""
        tiles = [self.random.choice((1, 2, 3, 4, 6, 8, 16)) for _ in result.shape]
        kind = result.dtype
        tile = Buffer(f"T{self.count}", tuple(tiles), kind, "local" if self.chance(85) else "global")
        outer = [self.variable(floordiv(as_expr(d) + (t - 1), const(t))) for d, t in zip(result.shape, tiles, strict=True)]

        def inner(guarded: bool) -> list[Axis]:
            found = []
            for (var, _), t, d in zip(outer, tiles, result.shape, strict=True):
                inside, extent = self.variable(t)
                position = var * t + inside
                exact = isinstance(d, int) and d % t == 0
                found.append(Axis(inside, extent, [Loop(inside, extent, True)], position < d if guarded and not exact else None))
            return found

        def position(axes: list[Axis]) -> tuple[Expr, ...]:
            return tuple(var * t + axis.value for (var, _), t, axis in zip(outer, tiles, axes, strict=True))

        parallel = self.chance(40) and bool(outer) and not self.in_parallel
        self.in_parallel |= parallel
        start, update, finish = inner(False), inner(True), inner(True)
        zero = self.nest(start, [], Store(tile, values(start), const(0, kind)))
        k, extent = self.variable(self.random.choice((1, 3, 4, 8)), "k")
        where = [Axis(p, as_expr(d), []) for p, d in zip(position(update), result.shape, strict=True)]
        value = self.value([*where, Axis(k, extent, [])], kind, 2)
        now = load(tile, values(update))
        new = logical_or(now, value) if kind == "bool" else as_type(now + value, kind)
        step = self.nest(update, [], Store(tile, values(update), new))
        accumulate = For(k, extent, self.random.choice(("serial", "serial", "unrolled")), step)
        out = self.nest(finish, [], Store(result, position(finish), load(tile, values(finish))))
        self.in_parallel &= not parallel
        body: Stmt = Allocate(tile, seq(zero, accumulate, out))
        for number, (var, extent) in reversed(list(enumerate(outer))):
            body = For(var, extent, "parallel" if parallel and number == 0 else "serial", body)
        return body

    def attached(self, result: Buffer) -> Stmt:
        """A producer computed in a buffer inside the consumer's outermost loop, over the part that iteration needs, with a halo."""
        if not result.shape:
            return self.pointwise(result)
        axes = self.axes(result.shape)
        loop = axes[0].loops[0]
        inner = axes[0].loops[1:]
        width = 1
        for each in inner:
            width *= each.extent.value  # type: ignore[attr-defined]
        halo = self.random.randint(0, 2)
        part = Buffer(f"P{self.count}", (width + halo,), self.random.choice(self.types), self.random.choice(("global", "local")))
        base = loop.var * width
        loop.kind = "parallel" if not self.in_parallel and self.chance(40) else "serial"
        outer, self.in_parallel = self.in_parallel, self.in_parallel or loop.kind == "parallel"
        own = self.axes((width + halo,))
        # the producer's own position may be outside what the consumer needs; its reads are padded
        produce = self.nest(own, [], Store(part, values(own), self.value([Axis(base + own[0].value, as_expr(0), [])], part.dtype, 2)))
        here = axes[0].value - base + self.random.randint(0, halo)
        value = cast(load(part, (here,)), result.dtype) if result.dtype != "bool" else load(part, (here,)) > 0
        rest = [Axis(axes[0].value, axes[0].extent, inner, axes[0].guard), *axes[1:]]
        consume = self.nest(rest, [], Store(result, values(axes), value))
        if axes[0].guard is not None and not inner:
            consume = If(axes[0].guard, consume)
        self.in_parallel = outer
        return For(loop.var, loop.extent, loop.kind, Allocate(part, seq(produce, consume)))

    def prefix_sum(self, result: Buffer) -> Stmt:
        """Each element needs the one before: a vectorised loop over it has to stay in order."""
        if not result.shape or result.dtype == "bool":
            return self.pointwise(result)
        first = self.pointwise(result)
        (i, extent), *others = [self.variable(d) for d in result.shape]
        index = tuple(v for v, _ in others)
        before = if_then_else(i >= 1, load(result, (i - 1, *index)), const(0, result.dtype))
        body: Stmt = Store(result, (i, *index), as_type(load(result, (i, *index)) + before, result.dtype))
        kind = "vectorized" if isinstance(extent, Const) and self.chance(40) else "serial"
        for var, inner in reversed(others):
            body = For(var, inner, "serial", body)
        return seq(first, For(i, extent, kind, body))

    # ------------------------------------------------------------------------------------------------------------------ values

    def condition(self, axes: list[Axis]) -> Expr:
        if not axes:
            return const(True, BOOL)
        axis = self.random.choice(axes)
        limit = self.random.randint(0, 9)
        choices = (axis.value < limit, axis.value >= limit, floormod(axis.value, const(3)) != 1, logical_and(axis.value >= 1, axis.value < limit))
        return self.random.choice(choices)

    def value(self, axes: list[Axis], kind: DType, depth: int) -> Expr:
        """An expression of a dtype over loads at positions that follow from the axes."""
        if kind == "bool":
            if depth == 0:
                return self.condition(axes)
            other = dtype(self.random.choice(("float32", "int32")))
            a, b = self.value(axes, other, depth - 1), self.value(axes, other, depth - 1)
            return self.random.choice((a < b, logical_and(a <= b, self.condition(axes)), a != b))
        if depth == 0 or self.chance(15):
            return self.leaf(axes, kind)
        a = self.value(axes, kind, depth - 1)
        choice = self.random.randrange(12)
        if choice == 0:
            return if_then_else(self.condition(axes), a, self.value(axes, kind, depth - 1))
        if choice == 1:
            return select(self.condition(axes), a, self.leaf(axes, kind))
        if choice == 2:
            return as_type(call("abs", a), kind)
        if choice == 3:
            return cast(self.value(axes, dtype(self.random.choice(("float32", "int32"))), depth - 1), kind) if not kind.is_integer else a
        b = self.value(axes, kind, depth - 1)
        if choice == 4:
            return minimum(a, b)
        if choice == 5:
            return maximum(a, b)
        if choice == 6:
            if kind.is_integer:
                c = const(self.random.choice((1, 2, 3, 7)), kind)
                return as_type(self.random.choice((floordiv(a, c), floormod(a, c), a & b, a ^ b)), kind)
            return as_type(call("sqrt", call("abs", a)), kind)
        return as_type(self.random.choice((a + b, a - b, a * b)), kind)

    def leaf(self, axes: list[Axis], kind: DType) -> Expr:
        if self.chance(12):
            return const(self.random.choice((0, 1, 2, 3, 5, 100)), kind)
        if axes and self.chance(8):
            return as_type(call("wrap", self.random.choice(axes).value), kind)
        source = self.random.choice([b for b in self.known if b.dtype == kind and self.chance(70)] or self.known)
        conditions: list[Expr] = []
        index = tuple(self.index(axes, as_expr(d), conditions) for d in source.shape)
        conditions += [as_expr(d) >= 1 for d in source.shape if not isinstance(d, int)]
        if not conditions:
            return as_type(load(source, index), kind)
        inside = conditions[0]
        for c in conditions[1:]:
            inside = logical_and(inside, c)
        if self.chance(20):
            return as_type(load(source, index, inside), kind)
        return if_then_else(inside, as_type(load(source, index), kind), const(self.random.choice((0, 0, 3)), kind))

    def index(self, axes: list[Axis], extent: Expr, conditions: list[Expr]) -> Expr:
        """An index into a dimension; `conditions` gets what must hold for it to be inside."""
        if not axes or self.chance(8):
            return const(0) if self.chance(50) or not isinstance(extent, Const) else const(self.random.randrange(extent.value))
        alike = [axis for axis in axes if axis.extent is extent]
        axis = self.random.choice(alike if alike and self.chance(70) else axes)
        if axis.extent is extent and self.chance(65):
            return axis.value
        choice = self.random.randrange(7)
        if choice == 0:
            return maximum(minimum(axis.value, extent - 1), const(0))
        if choice == 1 and isinstance(extent, Const):
            return floormod(axis.value, extent)
        table = next((b for b in self.inputs if b.dtype == "int32" and len(b.shape) == 1 and isinstance(b.shape[0], int)), None)
        if choice in (2, 3) and table is not None:
            element = load(table, (floormod(axis.value, const(table.shape[0])),))
            return maximum(minimum(element, extent - 1), const(0))
        if self.chance(20):
            position = extent - 1 - axis.value * self.random.choice((1, 1, 2))
        else:
            position = axis.value * self.random.choice((1, 1, 1, 2)) + self.random.randint(-2, 2)
        conditions += [position >= 0, position < extent]
        return position


def values(axes: Sequence[Axis]) -> tuple[Expr, ...]:
    """The indices that the axes stand for."""
    return tuple(axis.value for axis in axes)


def renamed(s: Stmt, fresh: dict[Var, Var]) -> Stmt:
    """The nest with other loop variables."""

    class Rename(Substitute):
        def rewrite_For(self, node: For) -> Stmt:
            return For(fresh[node.var], node.extent, node.kind, self.rewrite_statement(node.body))

    return Rename(fresh).rewrite_statement(s)


def loop_variables(guard: Expr, order: list[Loop]) -> set[Var]:
    """Those variables of a guard that the loops of one nest bind."""
    return guard.variables & {loop.var for loop in order}


def as_type(e: Expr, kind: DType) -> Expr:
    """`e` in a dtype; what is out of range wraps as integers do, and floats become bounded ones first."""
    if kind.is_bool:
        return e if e.dtype.is_bool else e != 0
    if e.dtype.is_float and kind.is_integer:
        e = maximum(minimum(e, const(100, e.dtype)), const(0 if kind.low == 0 else -100, e.dtype))  # also a NaN has to go
        e = select(e.as_expr() == e, e, const(0, e.dtype))
    return cast(e, kind)
