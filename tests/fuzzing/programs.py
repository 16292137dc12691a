"""Random computations over odd extents: chains of stages, operators of the library, symbolic sizes, scans, C functions, patterns of intrinsics.

What is known of their values, so that a result can be judged, is in values.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from math import prod, sqrt
from typing import Any

from tilewright import te
from tilewright.autotune.verify import numpy_dtype
from tilewright.te import Tensor
from tilewright.tir.dtype import promote
from tilewright.tir.expr import Expr, as_expr

from .externs import extern_stage
from .scans import random_scan, scan_stage
from .values import (
    EPSILON,
    EXTENTS,
    FLOATS,
    INTEGERS,
    LARGEST,
    MAX_POINTS,
    MAX_STEPS,
    STORED,
    Axis,
    Facts,
    Program,
    Value,
    facts_of,
    integers,
    limit_of,
    rounded,
)


def random_program(rng: random.Random) -> Program:
    """A computation of one to four stages over odd extents; now and then one of a special form."""
    kind = rng.random()
    for share, make in ((0.1, library_program), (0.07, symbolic_program), (0.05, random_scan), (0.06, dot_program), (0.05, histogram_program)):
        kind -= share
        if kind < 0:
            return make(rng)
    return _Builder(rng).build()


def library_program(rng: random.Random) -> Program:
    """An operator of the library with odd sizes."""

    def some(*choices: int) -> int:
        return rng.choice(choices)

    lib = te.library
    layout = rng.choice(("NCHW", "NHWC"))
    window = {"stride": some(1, 1, 2, 3), "padding": (some(0, 1, 2), some(0, 1)), "dilation": some(1, 1, 2)}
    op = rng.choice((
        lambda: lib.matmul(some(1, 5, 13, 17), some(1, 7, 16, 33), some(1, 9, 20)),
        lambda: lib.matmul(some(1, 5, 13), some(7, 16), some(9, 20), dtype="int8"),
        lambda: lib.matmul(some(1, 5, 13), some(7, 16), some(9, 20), dtype=rng.choice(("float16", "bfloat16")), acc_dtype="float32"),
        lambda: lib.quantized_matmul(some(1, 5, 13), some(7, 16, 33), some(9, 20), a_zero=some(0, 3), out_dtype=rng.choice(("int8", "uint8", "float32"))),
        lambda: lib.quantized_conv2d(1, 4, some(5, 8), 7, some(2, 18), 3, some(1, 3), x_zero=3, out_dtype="int8", groups=some(1, 2), layout=layout, **window),
        lambda: lib.int4_matmul(some(1, 5), some(7, 16), 24, group=some(2, 4, 8)),
        lambda: lib.batch_matmul(some(1, 3), some(2, 9), some(7, 8), some(5, 16)),
        lambda: lib.dense(some(3, 8), some(5, 16), some(7, 33)),
        lambda: lib.gemv(some(7, 31), some(9, 33)),
        lambda: lib.conv2d(some(1, 2), 4, some(7, 9), some(7, 10), some(2, 6), some(1, 3), some(2, 3), groups=some(1, 2), layout=layout, **window),
        lambda: lib.depthwise_conv2d(1, some(3, 5), some(7, 12), some(8, 9), 3, some(1, 3), **window),
        lambda: lib.pool2d(1, some(2, 3), some(9, 11), 9, rng.choice(("max", "avg")), 3, stride=some(1, 2), padding=some(0, 1)),
        lambda: lib.softmax((some(1, 5), some(7, 33))),
        lambda: lib.layer_norm((some(3, 5), some(9, 32)), affine=rng.random() < 0.5),
        lambda: lib.batch_norm((2, 3, some(4, 5), 5)),
        lambda: lib.gelu((some(7, 9), 13)),
        lambda: lib.transpose((some(7, 16), some(8, 19))),
        lambda: lib.sum((some(5, 9), some(16, 41))),
        lambda: lib.argmax((some(5, 9), some(7, 33))),
        lambda: lib.attention(1, 2, some(5, 9), some(7, 8), some(3, 8), causal=rng.random() < 0.5, kv_heads=some(1, 2)),
    ))()  # fmt: skip
    program = Program(op.args[:-1], [op.output])
    for t in program.inputs:
        least = 1 if op.name == "batch_norm" else 0 if t.dtype.kind == "uint" else -4  # a variance is positive
        most = 255 if op.name == "int4_matmul" and t.name == "B" else 4
        program.facts[t] = Facts(most, 0.0, True, integers(t.shape, str(t.dtype), least, most))  # type: ignore[arg-type]
    rounds = op.name in ("softmax", "layer_norm", "batch_norm", "gelu", "attention") or op.output.op.tag == "pool2d_avg"
    program.facts[op.output] = Facts(1e4, 2e-5 if rounds else 0.0, not rounds)
    return program


def symbolic_program(rng: random.Random) -> Program:
    """A chain over size variables: a guarded neighbourhood, then perhaps a reduction over a symbolic range."""
    n, m = te.size_var("n"), te.size_var("m")
    program = Program(sizes={n: rng.choice((0, 1, 2, 5, 8, 13, 33)), m: rng.choice((1, 3, 7, 16, 20))})
    dtype = rng.choice(("float32", "float64", "int32"))
    A = te.placeholder((n, m), dtype, "A")
    program.inputs = [A]
    program.facts[A] = Facts(4, 0.0, True, integers((program.sizes[n], program.sizes[m]), dtype, -4, 4))
    shift, scale, border = rng.randint(-3, 3), rng.randint(-3, 3), rng.choice((0, 0, 1, 2))

    def neighbour(i: Any, j: Any) -> Any:
        here = te.if_then_else(te.all(i - border >= 0, i - border < n), A[i - border, j], 1)
        return here * scale + te.if_then_else(te.all(i + shift >= 0, i + shift < n), A[i + shift, (j + 1) % m], 0)

    B = te.compute((n + 2 * border, m), neighbour, name="B")
    k = te.reduce_axis((0, rng.choice((m, m, B.shape[0]))), "k")
    C = rng.choice((
        lambda: te.compute((n, m), lambda i, j: B[i + border, m - 1 - j] + A[i, j], name="C"),
        lambda: te.compute((n,), lambda i: te.sum(B[i, k % m], axis=k, where=k > rng.randrange(3)), name="C"),
        lambda: te.compute((m, n), lambda j, i: te.max(B[i, j], A[i, j], j - i), name="C"),
        lambda: B,
    ))()  # fmt: skip
    if rng.random() < 0.3:
        count = te.cast(prod((te.cast(e, "int64") for e in C.shape), start=te.const(C.dtype.bytes, "int64")), "int64")
        C = te.extern(C.shape, [C], lambda ins, outs: te.call_extern("memcpy", outs[0], ins[0], count), name="E")
    program.outputs = [C]
    program.facts[C] = Facts(1e3, 0.0, True)
    return program


def dot_program(rng: random.Random) -> Program:
    """A product of uint8 and int8 matrices in int32, as the ready-made intrinsic computes it, where b is stored in one of several ways; perhaps scaled."""
    m, n, depth = rng.choice((1, 3, 5)), rng.choice((8, 8, 16, 24, 20)), rng.choice((4, 8, 12, 20, 10))
    a = te.placeholder((m, depth), "uint8", "a")
    shape, read = rng.choice((
        ((n, depth), lambda j, k: b[j, k]),
        ((depth, n), lambda j, k: b[k, j]),
        ((-(-n // 8), -(-depth // 4), 8, 4), lambda j, k: b[j // 8, k // 4, j % 8, k % 4]),
    ))  # fmt: skip
    b = te.placeholder(shape, "int8", "b")
    k = te.reduce_axis((0, depth), "k")
    first = a if rng.random() < 0.7 else te.compute((m, depth), lambda i, k: te.select(a[i, k] > 3, a[i, k], te.const(7, "uint8")), name="cut")
    c = te.compute((m, n), lambda i, j: te.sum(first[i, k].astype("int32") * read(j, k).astype("int32"), axis=k), name="c")
    output = c if rng.random() < 0.4 else te.compute((m, n), lambda i, j: c[i, j] * 3 - j, name="scaled")
    program = Program([a, b], [output])
    program.facts[a] = Facts(255, 0.0, True, integers((m, depth), "uint8", 0, 255))
    program.facts[b] = Facts(128, 0.0, True, integers(shape, "int8", -128, 127))
    program.facts[output] = Facts(2.0**31, 0.0, True)
    return program


def histogram_program(rng: random.Random) -> Program:
    """What falls into each of some bins, of a row each or of all: numbers are summed or compared, those of places that are no bin left out; perhaps scaled."""
    rows, bins, numbers = rng.choice((1, 3, 5)), rng.choice((1, 2, 7, 16, 33)), rng.choice((0, 1, 9, 40, 100))
    kind, dtype = rng.choice(("int8", "uint8", "int32", "int64")), rng.choice(("int32", "int32", "uint32", "int64", "float32", "float64"))
    X, W = te.placeholder((rows, numbers), kind, "X"), te.placeholder((numbers,), dtype, "W")
    r, k = te.reduce_axis((0, rows), "r"), te.reduce_axis((0, numbers), "k")
    reduce = rng.choice((te.sum, te.sum, te.max, te.min))
    init: Any = te.const(3, dtype) if reduce is not te.sum or rng.random() < 0.3 else None  # of no terms an extremum is the dtype's
    if rng.random() < 0.5:
        H = te.compute((bins,), lambda b: reduce(W[k], axis=[r, k], where=X[r, k] == b, init=init), name="H")
    else:
        H = te.compute((rows, bins), lambda i, b: reduce(W[k], axis=k, where=te.all(X[i, k] == b, k % 5 < 4), init=init), name="H")
    output = H if rng.random() < 0.4 else te.compute(H.shape, lambda *i: te.max(H(*i) * 2, 1), name="scaled")
    program = Program([X, W], [output])
    program.facts[X] = Facts(bins, 0.0, True, integers((rows, numbers), kind, 0 if kind == "uint8" else -1, bins))
    program.facts[W] = Facts(9, 0.0, True, integers((numbers,), dtype, 0, 9))
    program.facts[output] = Facts(18.0 * (rows * numbers + 1), 0.0, True)
    return program


# name -> (limits the argument is clipped to, value made safe, bound of the result, largest slope)
SMOOTH: dict[str, tuple[float, Callable[[Any], Any], Callable[[float], float], float]] = {
    "exp": (4, lambda x: te.exp(x), lambda b: 55, 55),
    "exp2": (4, lambda x: te.exp2(x), lambda b: 16, 12),
    "tanh": (50, lambda x: te.tanh(x), lambda b: 1, 1),
    "sigmoid": (50, lambda x: te.sigmoid(x), lambda b: 1, 1),
    "erf": (8, lambda x: te.erf(x), lambda b: 1, 1.2),
    "sin": (30, lambda x: te.sin(x), lambda b: 1, 1),
    "cos": (30, lambda x: te.cos(x), lambda b: 1, 1),
    "sqrt": (1e5, lambda x: te.sqrt(te.abs(x) + 1.0), lambda b: sqrt(b + 1), 0.5),
    "rsqrt": (1e5, lambda x: te.rsqrt(te.abs(x) + 1.0), lambda b: 1, 0.5),
    "log": (1e5, lambda x: te.log(te.abs(x) + 1.0), lambda b: 12, 1),
    "log2": (1e5, lambda x: te.log2(te.abs(x) + 1.0), lambda b: 17, 1.5),
    "log1p": (1e5, lambda x: te.log1p(te.abs(x)), lambda b: 12, 1),
    "pow": (4, lambda x: te.pow(te.abs(x) + 0.5, 1.5), lambda b: 10, 3.5),
}


class _Builder:
    def __init__(self, rng: random.Random):
        self.rng = rng
        self.program = Program()
        self.tensors: list[Tensor] = []

    def build(self) -> Program:
        rng = self.rng
        for _ in range(rng.choice((1, 2, 2, 3))):
            self.data_input()
        stages = rng.choice((1, 1, 2, 2, 3, 4))
        made: list[Tensor] = []
        for number in range(stages):
            makers = (self.elementwise, self.elementwise, self.padding, self.reduction, self.reduction, self.tuple_reduction)
            stage = rng.choice(makers) if rng.random() < 0.85 else rng.choice((self.extern, self.scan))
            made = stage(f"T{number}")
            self.tensors += made
        self.program.outputs = list(made)
        others = [t for t in self.tensors if t.op.input_tensors and all(t.op is not m.op for m in made)]
        if others and rng.random() < 0.25:
            op = rng.choice(others).op
            self.program.outputs = [*op.outputs, *made] if rng.random() < 0.7 else [rng.choice(op.outputs), *made]
        read = set(te.graph.operations(self.program.outputs))
        self.program.inputs = [t for t, facts in self.program.facts.items() if facts.make is not None and t.op in read]
        return self.program

    # ---------------------------------------------------------------------------------------------------------------- inputs

    def shape(self, limit: int = MAX_POINTS, least: int = 1) -> tuple[int, ...]:
        rng = self.rng
        rank = max(least, rng.choice((1, 1, 2, 2, 2, 3, 0)))
        extents: list[int] = []
        for _ in range(rank):
            room = limit // max(1, prod(extents))
            extents.append(rng.choice([e for e in EXTENTS if e <= room] or [1]))
        if extents and rng.random() < 0.01:
            extents[rng.randrange(len(extents))] = 0
        return tuple(extents)

    def data_input(self) -> Tensor:
        rng = self.rng
        shape = self.shape(least=1)
        shape = tuple(max(1, e) for e in shape)
        kind = rng.random()
        if kind < 0.55:
            return self.placeholder(shape, rng.choice((*FLOATS, *STORED)), -4, 4)
        if kind < 0.7:
            return self.reals(shape, rng.choice((*FLOATS, *STORED)))
        if kind < 0.77:
            return self.placeholder(shape, "bool", 0, 1)
        dtype = rng.choice(INTEGERS)
        low, high = te.min_value(dtype).value, te.max_value(dtype).value  # type: ignore[attr-defined]
        return self.placeholder(shape, dtype, int(low), int(high)) if rng.random() < 0.5 else self.placeholder(shape, dtype, max(int(low), -4), 4)

    def placeholder(self, shape: tuple[int, ...], dtype: str, low: int, high: int) -> Tensor:
        t = te.placeholder(shape, dtype, f"{'I' if dtype == 'int32' else 'A'}{len(self.program.facts)}")
        self.program.facts[t] = Facts(max(abs(low), abs(high)), 0.0, True, integers(shape, dtype, low, high))
        self.tensors.append(t)
        return t

    def reals(self, shape: tuple[int, ...], dtype: str) -> Tensor:
        t = te.placeholder(shape, dtype, f"R{len(self.program.facts)}")
        self.program.facts[t] = Facts(2.0, 0.0, False, lambda rng: rng.uniform(-2, 2, shape).astype(numpy_dtype(dtype)))
        self.tensors.append(t)
        return t

    # ---------------------------------------------------------------------------------------------------------------- stages

    def compute(self, shape: tuple[int, ...], name: str, body: Callable[[list[Axis]], Any]) -> list[Tensor]:
        """A computation; `body` gives (what te.compute's function returns, the facts of each output)."""
        facts: list[Facts] = []

        def function(*axes: Expr) -> Any:
            result, found = body([Axis(a, 0, max(0, e - 1)) for a, e in zip(axes, shape, strict=True)])
            facts.extend(found)
            return result

        made = te.compute(shape, function, name=name)
        listed = list(made) if isinstance(made, tuple) else [made]
        for t, f in zip(listed, facts, strict=True):
            self.program.facts[t] = f
        return listed

    def elementwise(self, name: str) -> list[Tensor]:
        outputs = 2 if self.rng.random() < 0.15 else 1

        def body(axes: list[Axis]) -> Any:
            values = [self.stored(self.value(axes, self.rng.choice((1, 2, 2, 3)))) for _ in range(outputs)]
            found = [facts_of(v) for v in values]
            return (tuple(v.e for v in values) if outputs > 1 else values[0].e), found

        return self.compute(self.shape(least=0), name, body)

    def stored(self, v: Value) -> Value:
        """The same, now and then as a float8."""
        to = self.rng.choice(STORED)
        return self.cast(v, to) if self.rng.random() < 0.1 and v.bound <= LARGEST[to] else v

    def cast(self, v: Value, to: str) -> Value:
        """`v` as another float, in which it is exact or rounded; an exact value is rounded by everyone alike, except from float64."""
        return rounded(te.const(0, to).dtype, Value(v.e.astype(to), v.bound, v.error, v.integral), 1 if v.error or v.dtype == "float64" else 0)

    def with_room(self, v: Value, bound: float, other: Value | None = None) -> Value:
        """`v` in float32 where it is a float16, or meets one, that does not hold values as large as `bound`."""
        kind = v.dtype if other is None else promote(v.dtype, other.dtype)
        if max(bound, v.bound, 0 if other is None else other.bound) <= LARGEST.get(kind, math.inf):
            return v
        return self.cast(v, "float32")

    def padding(self, name: str) -> list[Tensor]:
        """A tensor with a border, or another guarded window on it."""
        rng = self.rng
        source = self.pick()
        if 0 in source.shape:
            return self.elementwise(name)
        before = [rng.choice((0, 1, 2, 3)) for _ in source.shape]
        shape = tuple(int(e) + b + rng.choice((0, 1, 2)) for e, b in zip(source.shape, before, strict=True))  # type: ignore[arg-type]
        if prod(shape) > 2 * MAX_POINTS:
            return self.elementwise(name)

        def body(axes: list[Axis]) -> Any:
            indices = [a.e - b for a, b in zip(axes, before, strict=True)]
            inside = [c for i, e in zip(indices, source.shape, strict=True) for c in (i >= 0, i < e)]
            f = self.program.facts[source]
            e = te.if_then_else(te.all(*inside) if inside else True, source(*indices), te.const(rng.choice((0, 1)), source.dtype))
            return e, [Facts(f.bound + 1, f.error, f.integral)]

        return self.compute(shape, name, body)

    def reduce_axes(self, points: int) -> tuple[list[Any], list[Axis]]:
        rng = self.rng
        axes, found = [], []
        room = MAX_STEPS // max(1, points)
        for number in range(rng.choice((1, 1, 2))):
            extent = rng.choice([e for e in EXTENTS if e <= room] or [1])
            room //= extent
            low = rng.choice((0, 0, 0, 1, 2))
            k = te.reduce_axis((low, low + extent), f"k{number}")
            axes.append(k)
            found.append(Axis(k.as_expr(), low, low + extent - 1))
        return axes, found

    def reduction(self, name: str) -> list[Tensor]:
        rng = self.rng
        shape = self.shape(limit=400, least=0)
        reduced, inner = self.reduce_axes(prod(shape))
        steps = prod(a.high - a.low + 1 for a in inner)

        def body(axes: list[Axis]) -> Any:
            every = axes + inner
            v = self.value(every, rng.choice((0, 1, 1, 2)))
            where = self.condition(every) if rng.random() < 0.25 else None
            if where is not None and axes and rng.random() < 0.5:  # each term is for one place along an axis
                place = self.affine(inner)[0] if rng.random() < 0.5 else self.exact_leaf(inner).e
                where = rng.choice((lambda: place == axes[-1].e, lambda: te.all(place == axes[0].e, self.condition(every))))()
            init: Any = rng.choice((1, 2)) if rng.random() < 0.2 else None
            kind = rng.choice(("sum", "sum", "sum", "max", "min", "any", "prod", "order"))
            if kind == "any":
                return rng.choice((te.any, te.all))(self.condition(every), axis=reduced, where=where), [Facts(1, 0, True)]
            if v.dtype.is_bool or (v.dtype.is_integer and v.dtype.bits < 32 and kind in ("sum", "prod", "order")):
                v = Value(v.e.astype("int32"), v.bound, v.error, True)
            if kind == "order":  # order matters: only schedules that keep it are legal
                if not v.dtype.is_integer:
                    v = Value(self.integer(v).e, 2.0**31, 0.0, True)
                scan = te.comm_reducer(lambda x, y: x * 3 + y, lambda t: te.const(0, t), name="horner", associative=False)
                return scan(v.e, axis=reduced, where=where, init=init), [Facts(limit_of(v.dtype, 2.0**70), 0.0, True)]
            if kind in ("max", "min"):
                if where is not None and init is None:
                    init = 0
                reduce = te.max if kind == "max" else te.min
                return reduce(v.e, axis=reduced, where=where, init=init), [Facts(max(v.bound, 2), v.error, v.integral)]
            if kind == "prod" and v.dtype in ("float16", "bfloat16"):
                v = self.cast(v, "float32")
            if kind == "prod" and (v.dtype.is_integer or (v.integral and min(steps, 30) * math.log2(max(v.bound, 1)) < 20 and steps <= 30)):
                bound = 2.0**70 if v.dtype.is_integer else 2 * max(v.bound, 1) ** steps
                return te.prod(v.e, axis=reduced, where=where, init=init), [Facts(limit_of(v.dtype, bound), 0.0, True)]
            v = self.with_room(v, steps * v.bound + 2)
            bound = limit_of(v.dtype, steps * v.bound + 2)
            total = rounded(v.dtype, Value(v.e, bound, steps * v.error, v.integral), steps)
            return te.sum(v.e, axis=reduced, where=where, init=init), [facts_of(total)]

        return self.compute(shape, name, body)

    def tuple_reduction(self, name: str) -> list[Tensor]:
        rng = self.rng
        shape = self.shape(limit=400, least=0)
        reduced, inner = self.reduce_axes(prod(shape))
        steps = prod(a.high - a.low + 1 for a in inner)

        def body(axes: list[Axis]) -> Any:
            every = axes + inner
            v = self.exact(every)
            if rng.random() < 0.6:
                index = inner[0].e - inner[0].low
                for a in inner[1:]:
                    index = index * (a.high - a.low + 1) + (a.e - a.low)
                where = self.condition(every) if rng.random() < 0.2 else None
                init = (-1, 0) if where is not None else None
                found = rng.choice((te.argmax, te.argmin))((index, v.e), axis=reduced, where=where, init=init)
                return found, [Facts(steps, 0.0, True), facts_of(v)]
            if v.dtype.is_bool or (v.dtype.is_integer and v.dtype.bits < 32):
                v = Value(v.e.astype("int32"), v.bound, 0.0, True)
            both = te.comm_reducer(  # the second value looks at the first, so that both must be combined before either is stored
                lambda x, y: (x[0] + y[0], te.max(x[1], y[1] + 0 * x[0])), lambda t0, t1: (te.const(0, t0), te.min_value(t1)), name="both"
            )
            v = self.with_room(v, steps * v.bound)
            w = Value(te.abs(v.e), v.bound, 0.0, v.integral)
            total = rounded(v.dtype, Value(v.e, limit_of(v.dtype, steps * v.bound), 0.0, v.integral), steps)
            return both((v.e, w.e), axis=reduced), [facts_of(total), Facts(limit_of(v.dtype, v.bound), total.error, v.integral)]

        return self.compute(shape, name, body)

    def extern(self, name: str) -> list[Tensor]:
        return extern_stage(self.rng, self.program, name, self.pick(), self.pick())

    def scan(self, name: str) -> list[Tensor]:
        """A scan along a tensor of whole numbers, if there is one."""
        fitting = [t for t in self.tensors if t.shape and 0 not in t.shape and self.is_countable(t)]
        if not fitting:
            return self.elementwise(name)
        known = set(self.program.facts)
        made = scan_stage(self.rng, self.program, name, self.rng.choice(fitting))
        self.tensors += [t for t in self.program.facts if t not in known and all(t is not m for m in made)]
        return made

    def is_countable(self, t: Tensor) -> bool:
        """Whether the values are whole numbers, without error."""
        f = self.program.facts[t]
        return f.integral and f.error == 0 and (not t.dtype.is_float or f.bound < 2**30)

    # ---------------------------------------------------------------------------------------------------------------- values

    def pick(self) -> Tensor:
        """A tensor to read; later ones more often, so that chains come about."""
        rng = self.rng
        return self.tensors[max(rng.randrange(len(self.tensors)), rng.randrange(len(self.tensors)))]

    def index(self, extent: int, axes: list[Axis]) -> tuple[Any, list[Any]]:
        """An index into a dimension, and the conditions under which it is inside."""
        rng = self.rng
        fitting = [a for a in axes if a.low >= 0 and a.high < extent]
        if fitting and rng.random() < 0.7:
            a = rng.choice(fitting)
            r = rng.random()
            if r < 0.65:
                return a.e, []
            return (a.e + rng.randint(0, extent - 1 - a.high), []) if r < 0.85 else (extent - 1 - a.e, [])
        if not axes or rng.random() < 0.15:
            return rng.randrange(extent), []
        e, low, high = self.affine(axes)
        if rng.random() < 0.2:
            a = rng.choice(axes)
            gathered = self.placeholder((a.high + 1,), "int32", -2, extent + 1)
            e, low, high = gathered[a.e], -2, extent + 1
        if low >= 0 and high < extent:
            return e, []
        fix = rng.random()
        if fix < 0.3:
            return te.max(te.min(e, extent - 1), 0), []
        if fix < 0.5:
            return e % extent, []
        return e, [c for c in ((e >= 0) if low < 0 else None, (e < extent) if high >= extent else None) if c is not None]

    def affine(self, axes: list[Axis]) -> tuple[Any, int, int]:
        """An index expression of one or two axes with its range."""
        rng = self.rng
        a = rng.choice(axes)
        form = rng.random()
        if form < 0.2:
            c = rng.choice((2, 3, 4))
            return a.e // c, a.low // c, a.high // c
        if form < 0.35:
            c = rng.choice((2, 3, 5))
            return a.e % c, 0, c - 1
        scale, shift = rng.choice((1, 1, 2, 3, -1)), rng.randint(-4, 4)
        e, low, high = a.e * scale + shift, min(a.low * scale, a.high * scale) + shift, max(a.low * scale, a.high * scale) + shift
        if form > 0.7 and len(axes) > 1:
            b = rng.choice(axes)
            e, low, high = e + b.e, low + b.low, high + b.high
        return e, low, high

    def read(self, tensor: Tensor, axes: list[Axis]) -> Value:
        rng = self.rng
        f = self.program.facts[tensor]
        if 0 in tensor.shape:
            return self.constant()
        pairs = [self.index(int(extent), axes) for extent in tensor.shape]  # type: ignore[arg-type]
        conditions = [c for _, found in pairs for c in found]
        e = tensor(*[i for i, _ in pairs])
        if conditions:
            e = te.if_then_else(te.all(*conditions), e, te.const(rng.choice((0, 0, 1)), tensor.dtype))
        v = Value(e, max(f.bound, 1), f.error, f.integral)
        if v.dtype in STORED:
            v = self.cast(v, rng.choice(("float32", "float16", "bfloat16")))
        return v

    def constant(self) -> Value:
        rng = self.rng
        dtype = rng.choice(("float32", "int32", "int32"))
        number = rng.randint(-3, 3)
        return Value(te.const(number, dtype), abs(number), 0.0, True)

    def value(self, axes: list[Axis], depth: int) -> Value:
        """An expression of that depth."""
        rng = self.rng
        if depth == 0:
            r = rng.random()
            if r < 0.8 or not axes:
                return self.read(self.pick(), axes) if r < 0.95 else self.constant()
            e, low, high = self.affine(axes)
            v = Value(as_expr(e), max(abs(low), abs(high)), 0.0, True)
            return v if rng.random() < 0.5 else Value(v.e.astype("float32"), v.bound, 0.0, True)
        a = self.value(axes, depth - 1)
        make = rng.choice((self.arithmetic, self.arithmetic, self.arithmetic, self.extremum, self.choice, self.unary, self.function, self.bits, self.convert))
        return make(a, axes, depth)

    def exact(self, axes: list[Axis]) -> Value:
        """A value without error."""
        for _ in range(10):
            v = self.value(axes, self.rng.choice((0, 1)))
            if v.error == 0 and not v.dtype.is_bool:
                return v
        return self.constant()

    def arithmetic(self, a: Value, axes: list[Axis], depth: int) -> Value:
        b = self.value(axes, self.rng.randrange(depth))
        op = self.rng.choice("+-*")
        if op == "*" and a.bound * b.bound > 2**21:
            op = "+"
        a = self.with_room(a, a.bound * b.bound if op == "*" else a.bound + b.bound, b)
        e = a.e + b.e if op == "+" else a.e - b.e if op == "-" else a.e * b.e
        if op == "*":
            bound, error = a.bound * b.bound, a.bound * b.error + b.bound * a.error + a.error * b.error
        else:
            bound, error = a.bound + b.bound, a.error + b.error
        return rounded(e.dtype, Value(e, limit_of(e.dtype, bound), error, a.integral and b.integral), 1)

    def extremum(self, a: Value, axes: list[Axis], depth: int) -> Value:
        b = self.value(axes, self.rng.randrange(depth))
        a = self.with_room(a, 0, b)
        e = self.rng.choice((te.max, te.min))(a.e, b.e)
        return rounded(e.dtype, Value(e, max(a.bound, b.bound), max(a.error, b.error), a.integral and b.integral), 0)

    def choice(self, a: Value, axes: list[Axis], depth: int) -> Value:
        b = self.value(axes, self.rng.randrange(depth))
        a = self.with_room(a, 0, b)
        e = self.rng.choice((te.select, te.if_then_else))(self.condition(axes), a.e, b.e)
        return rounded(e.dtype, Value(e, max(a.bound, b.bound), max(a.error, b.error), a.integral and b.integral), 0)

    def condition(self, axes: list[Axis]) -> Any:
        """A condition on indices or exact data."""
        rng = self.rng
        r = rng.random()
        if r < 0.25:
            return te.all(self.condition(axes), self.condition(axes)) if rng.random() < 0.5 else te.any(self.condition(axes), ~self.condition(axes))
        if r < 0.7 and axes:
            e, low, high = self.affine(axes)
            limit = rng.randint(low, high)
        else:
            v = self.exact_leaf(axes)
            e, limit = v.e, rng.randint(0, 3)
        return rng.choice((lambda: e < limit, lambda: e >= limit, lambda: e == limit, lambda: e != limit))()  # type: ignore[no-any-return]

    def exact_leaf(self, axes: list[Axis]) -> Value:
        for _ in range(10):
            v = self.value(axes, 0)
            if v.error == 0:
                return v if not v.dtype.is_bool else Value(v.e.astype("int32"), 1, 0.0, True)
        return self.constant()

    def unary(self, a: Value, axes: list[Axis], depth: int) -> Value:
        if a.dtype.is_bool:
            return Value(~a.e, 1, 0.0, True)
        bound = limit_of(a.dtype, a.bound if a.dtype.is_float else a.bound + 1)
        if a.dtype.is_float and a.error == 0 and self.rng.random() < 0.4:
            e = self.rng.choice((te.floor, te.ceil, te.round, te.trunc))(a.e * self.rng.choice((1.0, 0.5)))
            return Value(e, a.bound + 1, 0.0, True)
        return Value(self.rng.choice((te.abs, lambda x: -x))(a.e), bound, a.error, a.integral)

    def function(self, a: Value, axes: list[Axis], depth: int) -> Value:
        rng = self.rng
        if not a.dtype.is_float:
            a = Value(a.e.astype("float32"), a.bound, a.error, a.integral)
        if rng.random() < 0.2:
            b = self.read(self.pick(), axes)
            divisor = te.abs(b.e.astype(a.dtype)) + 1.0
            return rounded(a.dtype, Value(a.e / divisor, a.bound, a.error + a.bound * (b.error + 2 * EPSILON[a.dtype]), False), 2)
        limit, make, bound, slope = SMOOTH[rng.choice(list(SMOOTH))]
        x = te.clip(a.e, -limit, limit)
        return rounded(a.dtype, Value(make(x), bound(min(a.bound, limit)), slope * (a.error + 2 * EPSILON[a.dtype] * min(a.bound + 1, limit)), False), 8)

    def integer(self, a: Value) -> Value:
        if a.dtype.is_integer:
            return a
        if a.dtype.is_bool or (a.error == 0 and a.bound < 2**30):
            return Value(a.e.astype("int32"), a.bound, 0.0, True)
        return self.constant_integer()

    def constant_integer(self) -> Value:
        return Value(te.const(self.rng.randint(-3, 3), "int32"), 3, 0.0, True)

    def bits(self, a: Value, axes: list[Axis], depth: int) -> Value:
        """Operations of integers."""
        rng = self.rng
        a, b = self.integer(a), self.integer(self.value(axes, 0))
        kind = rng.randrange(7)
        if kind == 0:
            e = rng.choice((lambda: a.e & b.e, lambda: a.e | b.e, lambda: a.e ^ b.e, lambda: ~a.e))()
        elif kind == 1:
            e = a.e << rng.randrange(5) if rng.random() < 0.5 else a.e >> rng.randrange(5)
        elif kind == 2:
            e = te.popcount(a.e)
        elif kind in (3, 4):
            by = rng.choice((2, 3, 5, 7, 16)) * (1 if a.dtype.kind == "uint" or rng.random() < 0.8 else -1)
            e = a.e // by if kind == 3 else a.e % by
        else:
            e = te.select(b.e == 0, te.const(1, b.dtype), b.e)
            e = a.e // e if kind == 5 else a.e % e
        return Value(e, limit_of(e.dtype, 2.0**70), 0.0, True)

    def convert(self, a: Value, axes: list[Axis], depth: int) -> Value:
        rng = self.rng
        to = rng.choice((*FLOATS, *INTEGERS, "bool"))
        if a.dtype.is_float and to in (*INTEGERS, "bool"):
            to = rng.choice(("int32", "int64", "bool"))
            if a.error or a.bound >= 2**30:
                to = "float64"
        if a.bound > LARGEST.get(to, math.inf):
            to = "float32"
        if to in FLOATS:
            return self.cast(a, to)
        e = a.e.astype(to)
        return Value(e, limit_of(e.dtype, a.bound), 0.0, True)
