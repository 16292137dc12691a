"""Random scans: several states, steps back, stages and reductions inside a step, results read whole, in the last steps, or given out.

Integers wrap, so every result must be equal to the bit however it grows; floats are whole numbers that each stage clips to at most 4.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.tir.dtype import SCALAR_NAMES, dtype

from .values import Facts, Program, integers, limit_of

EXTENTS = (1, 2, 3, 4, 5, 8, 9)
KINDS = ("int32", "int32", "float32", "float32", *SCALAR_NAMES)
LARGEST = 4  # of a float


def random_scan(rng: random.Random) -> Program:
    """A scan of some states over an input, and what reads it."""
    program = Program()
    steps = rng.choice((1, 1, 1, 2, 3))
    length: Any = steps + rng.choice((0, 1, 2, 3, 5, 6))
    count = length
    if rng.random() < 0.25:
        length = te.size_var("n")
        count = rng.choice((0, 1, count, count))  # fewer steps than the initial ones, too
        program.sizes[length] = count
    kind = rng.choice(KINDS)
    X = _input(program, (length, rng.choice(EXTENTS)), count, "X", kind)
    whole, read = _Scan(rng, program, X, length, steps, kind).results()
    program.outputs = [t for t in whole if rng.random() < 0.4]
    program.outputs += [t for t, source in read if source not in program.outputs or rng.random() < 0.3]
    return program


def scan_stage(rng: random.Random, program: Program, name: str, X: Tensor) -> list[Tensor]:
    """A scan along the first dimension of `X`, which holds whole numbers without error; what it gives, or what reads it."""
    length = int(X.shape[0])  # type: ignore[arg-type]
    found = _Scan(rng, program, X, length, rng.randint(1, min(length, 3)), rng.choice(KINDS), name)
    whole, read = found.results()
    return [rng.choice((t, reader)) for t, (reader, _) in zip(whole, read, strict=True)]


def _input(program: Program, shape: tuple[Any, ...], count: int, name: str, kind: str) -> Tensor:
    tensor = te.placeholder(shape, kind, name)
    program.inputs.append(tensor)
    concrete = (count, *shape[1:])
    most = LARGEST if dtype(kind).is_float else 1 if kind == "bool" else min(9999, int(dtype(kind).high))
    program.facts[tensor] = Facts(most, 0.0, True, integers(concrete, kind, max(-most, int(dtype(kind).low)) if kind != "bool" else 0, most))
    return tensor


class _Scan:
    """A scan of `length` time steps, of which the first `steps` are initial, over the rows of X. Its states are of dtype `kind`, its arithmetic in `wide`."""

    def __init__(self, rng: random.Random, program: Program, X: Tensor, length: Any, steps: int, kind: str, name: str = "scan"):
        self.rng, self.program, self.X, self.length, self.steps, self.kind, self.name = rng, program, X, length, steps, kind, name
        is_float = dtype(kind).is_float
        self.wide = kind if kind in ("float64", "int32", "int64", "uint32") else "float32" if is_float else "int32"
        self.factor = 1 if is_float else 3

    def results(self) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]]]:
        """The tensors of the scan, and for each (what reads it, itself)."""
        rng = self.rng
        states = [te.placeholder((self.length, *self.shape()), self.kind, f"{self.name}_S{n}") for n in range(rng.choice((1, 1, 2, 3)))]
        inits, updates = [], []  # type: ignore[var-annotated]
        for state in states:
            inits.append(self.init(state))
            updates.append(self.update(state, states, updates))
        found = te.scan(inits, updates, states, name=self.name)
        read = [(self.reader(t), t) for t in found]
        for tensor in (*found, *(t for t, _ in read)):
            bound = LARGEST if tensor.dtype.is_float else 1 if tensor.dtype.is_bool else limit_of(tensor.dtype, 2.0**70)
            self.program.facts[tensor] = Facts(bound, 0.0, True)
        return list(found), read

    def shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice(EXTENTS) for _ in range(self.rng.choice((0, 1, 1, 2))))

    def at(self, t: Any, others: Any) -> Any:
        """An element of row t of X."""
        column = sum((c * (d + 1) for d, c in enumerate(others)), te.const(0))
        return self.number(self.X[(t, *((column + d) % e for d, e in enumerate(self.X.shape[1:])))])

    def number(self, e: Any) -> Any:
        """A value in the arithmetic of the scan."""
        if e.dtype.is_float and not dtype(self.wide).is_float:
            return te.clip(e if e.dtype == "float64" else e.astype("float32"), -1000, 1000).astype(self.wide)
        wide = e.astype(self.wide)
        return te.clip(wide, -LARGEST, LARGEST) if dtype(self.wide).is_float else wide

    def stored(self, e: Any) -> Any:
        """A value in the dtype of the states."""
        if self.kind == "bool":
            return e % 2 == 0
        return self.number(e).astype(self.kind)

    def compute(self, shape: Any, value: Callable[..., Any], name: str) -> Tensor:
        found: Tensor = te.compute(shape, lambda *i: self.stored(value(*i)), name=f"{self.name}_{name}")
        return found

    def init(self, state: Tensor) -> Tensor:
        if self.rng.random() < 0.25:
            return _input(self.program, (self.steps, *state.shape[1:]), self.steps, f"I{len(self.program.facts)}", self.kind)
        # where the length is symbolic there may be no step at all: nothing is read that might not be there
        known = isinstance(self.length, int)
        start = te.const(5, self.wide)
        return self.compute(
            (self.steps, *state.shape[1:]), lambda t, *i: self.at(t, i) if known else start + sum(i, t * 7).astype(self.wide), f"init{state.name[-1]}"
        )

    def update(self, state: Tensor, states: list[Tensor], updates: list[Tensor]) -> Tensor:
        """What one state becomes: read at random from states at earlier steps, updates made so far, and the input."""
        rng, shape, label = self.rng, state.shape, state.name[-1]
        sources: list[Any] = []
        for other in rng.sample(states, rng.randint(1, len(states))):
            sources.append((other, rng.randint(1, self.steps)))
        if updates and rng.random() < 0.6:
            sources.append((rng.choice(updates), 0))
        if rng.random() < 0.5:
            source, back = rng.choice(sources)
            between = self.compute(source.shape, lambda t, *i: self.number(source[(t - back, *i)]) * self.factor - self.at(t, i), f"between{label}")
            sources.append((between, 0))
        if rng.random() < 0.4:
            reduced, lag = rng.choice([s for s in sources if s[0].ndim > 1] or sources)
            if reduced.ndim > 1:
                sources.append((self.reduction(reduced, lag, shape, label), 0))

        def value(t: Any, *i: Any) -> Any:
            total = self.at(t, i)
            for n, (source, back) in enumerate(sources):
                free = list(i) + [te.const(1)] * source.ndim
                element = source[(t - back, *(free[d] % source.shape[d + 1] for d in range(source.ndim - 1)))]
                total = total * self.factor + self.number(element) + n
            return total

        return self.compute(shape, value, f"update{label}")

    def reduction(self, source: Tensor, back: int, shape: Any, label: str) -> Tensor:
        """A reduction over a dimension of a source, in the wide dtype."""
        k = te.reduce_axis((0, source.shape[1]), "k")
        reduce = self.rng.choice((te.sum, te.sum, te.max))
        found: Tensor = te.compute(
            (shape[0], *source.shape[2:]), lambda t, *i: reduce(self.number(source[(t - back, k, *i)]), axis=k), name=f"{self.name}_sum{label}"
        )
        return found

    def reader(self, tensor: Tensor) -> Tensor:
        """The whole of a result backwards, or its last steps."""
        rng, length, steps = self.rng, self.length, self.steps
        if rng.random() < 0.5:
            return self.compute(tensor.shape, lambda t, *i: self.number(tensor[(length - 1 - t, *i)]) + 1, f"reversed{tensor.name[-1]}")
        back = rng.randint(1, steps)

        def last(*i: Any) -> Any:
            value = self.number(tensor[(length - 1, *i)]) * (self.factor + 2) + self.number(tensor[(length - back, *i)])
            return value if isinstance(length, int) else te.if_then_else(length >= steps, value, 1)

        return self.compute(tensor.shape[1:], last, f"last{tensor.name[-1]}")
