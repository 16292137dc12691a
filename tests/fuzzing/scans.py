"""Random scans: several states, steps back, stages and reductions inside a step, results read whole, in the last steps, or given out.

All values are int32, whose arithmetic wraps, so every result must be equal to the bit however it grows.
"""

from __future__ import annotations

import random
from typing import Any

from tilewright import te
from tilewright.te import Tensor

from .programs import Facts, Program

EXTENTS = (1, 2, 3, 4, 5, 8, 9)


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
    width = rng.choice(EXTENTS)
    X = _input(program, (length, width), count, "X")
    states = [te.placeholder((length, *_shape(rng)), "int32", f"S{n}") for n in range(rng.choice((1, 1, 2, 3)))]
    inits, updates = [], []
    for state in states:
        inits.append(_init(rng, program, X, state, steps))
        updates.append(_update(rng, X, state, states, updates, steps))
    found = te.scan(inits, updates, states)
    whole = [t for t in found if rng.random() < 0.4]
    results = list(whole)
    for tensor in found:
        if tensor not in whole or rng.random() < 0.3:
            results.append(_reader(rng, tensor, length, steps))
    program.outputs = results
    for tensor in results:
        program.facts[tensor] = Facts(float("inf"), 0.0, True)
    return program


def _shape(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice(EXTENTS) for _ in range(rng.choice((0, 1, 1, 2))))


def _input(program: Program, shape: tuple[Any, ...], count: int, name: str) -> Tensor:
    tensor = te.placeholder(shape, "int32", name)
    program.inputs.append(tensor)
    concrete = (count, *shape[1:])
    program.facts[tensor] = Facts(1e4, 0.0, True, lambda g: g.integers(-9999, 9999, concrete).astype("int32"))
    return tensor


def _at(X: Tensor, t: Any, others: Any) -> Any:
    column = sum((c * (d + 1) for d, c in enumerate(others)), te.const(0)) % X.shape[1]
    return X[t, column]


def _init(rng: random.Random, program: Program, X: Tensor, state: Tensor, steps: int) -> Tensor:
    if rng.random() < 0.25:
        return _input(program, (steps, *state.shape[1:]), steps, f"I{len(program.inputs)}")
    # where the length is symbolic there may be no step at all: nothing is read that might not be there
    known = isinstance(X.shape[0], int)
    found: Tensor = te.compute((steps, *state.shape[1:]), lambda t, *i: _at(X, t, i) if known else t * 7 + sum(i, te.const(5)), name=f"init_{state.name}")
    return found


def _update(rng: random.Random, X: Tensor, state: Tensor, states: list[Tensor], updates: list[Tensor], steps: int) -> Tensor:
    """What one state becomes: read at random from states at earlier steps, updates made so far, and the input."""
    shape = state.shape
    sources: list[Any] = []
    for other in rng.sample(states, rng.randint(1, len(states))):
        sources.append((other, rng.randint(1, steps)))
    if updates and rng.random() < 0.6:
        sources.append((rng.choice(updates), 0))
    if rng.random() < 0.5:
        source, back = rng.choice(sources)
        between = te.compute(source.shape, lambda t, *i: source[(t - back, *i)] * 3 - _at(X, t, i), name=f"between_{state.name}")
        sources.append((between, 0))
    if rng.random() < 0.4:
        source, back = rng.choice([s for s in sources if s[0].ndim > 1] or sources)
        if source.ndim > 1:
            k = te.reduce_axis((0, source.shape[1]), "k")
            reduced = te.compute((shape[0], *source.shape[2:]), lambda t, *i: te.sum(source[(t - back, k, *i)], axis=k), name=f"sum_{state.name}")
            sources.append((reduced, 0))

    def value(t: Any, *i: Any) -> Any:
        total = _at(X, t, i)
        for n, (source, back) in enumerate(sources):
            free = list(i) + [te.const(1)] * source.ndim
            total = total * 3 + source[(t - back, *(free[d] % source.shape[d + 1] for d in range(source.ndim - 1)))] + n
        return total

    found: Tensor = te.compute(shape, value, name=f"update_{state.name}")
    return found


def _reader(rng: random.Random, tensor: Tensor, length: Any, steps: int) -> Tensor:
    others = tensor.shape[1:]
    if rng.random() < 0.5:
        return te.compute(tensor.shape, lambda t, *i: tensor[(length - 1 - t, *i)] + 1, name=f"reversed_{tensor.name}")
    back = rng.randint(1, steps)

    def last(*i: Any) -> Any:
        value = tensor[(length - 1, *i)] * 5 + tensor[(length - back, *i)]
        return value if isinstance(length, int) else te.if_then_else(length >= steps, value, -1)

    return te.compute(others, last, name=f"last_{tensor.name}")
