"""What integer and bool expressions mean, in plain Python: the oracle of the tests of the simplifier; and random expressions for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from tilewright.tir import expr as ir
from tilewright.tir.expr import Const, Expr, Var, const

OPERATIONS = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
}


def evaluate(e: Any, values: Mapping[Var, int]) -> Any:
    """The value of an exact expression at a point."""
    if isinstance(e, Var):
        return values[e]
    if isinstance(e, Const):
        return bool(e.value) if e.dtype == "bool" else e.value
    if isinstance(e, ir.Choice):
        return evaluate(e.then if evaluate(e.condition, values) else e.otherwise, values)
    if isinstance(e, ir.Not):
        return not evaluate(e.a, values)
    if isinstance(e, ir.Cast):
        return int(evaluate(e.value, values))
    return OPERATIONS[type(e).__name__](evaluate(e.a, values), evaluate(e.b, values))


def points(variables: Sequence[Var]) -> Iterator[dict[Var, int]]:
    """Every point of the variables' own ranges."""
    for point in itertools.product(*[range(v.bounds[0], v.bounds[1] + 1) for v in variables]):
        yield dict(zip(variables, point, strict=True))


FACTORS = (1, 2, 3, 4, 6, 8, 16, -1, -2, -4)
DIVISORS = (1, 2, 3, 4, 6, 8, 16, -2, -3)
CONSTANTS = (0, 1, 2, 3, 5, 8, 12, 16, 17, -1, -3, -8)

seeds = st.integers(0, 2**40)  # of a generator: hypothesis prints the one that fails


class Generator:
    """Random expressions over variables x, y, z, each with a small range; the same ones for the same seed."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.variables = [self._variable(name) for name in "xyz"]

    def _variable(self, name: str) -> Var:
        low = self.random.choice((0, 0, 0, -3, 2))
        return Var(name, bounds=(low, low + self.random.choice((0, 1, 3, 5, 7))))

    def integer(self, depth: int = 4) -> Expr:
        """Index arithmetic."""
        choose = self.random.choice
        if depth <= 0 or self.random.random() < 0.15:
            return choose(self.variables) if self.random.random() < 0.7 else const(choose(CONSTANTS))
        kind = self.random.randrange(15)
        a = self.integer(depth - 1)
        if kind in (5, 6):
            return a * choose(FACTORS)
        if kind in (7, 8):
            return a // choose(DIVISORS)
        if kind in (9, 10):
            return a % choose(DIVISORS)
        b = self.integer(depth - 1)
        if kind == 13:
            return ir.select(self.condition(depth - 2), a, b)
        make = (ir.add, ir.add, ir.add, ir.sub, ir.sub)[kind] if kind < 5 else {11: ir.minimum, 12: ir.maximum, 14: ir.mul}[kind]
        return make(a, b)

    def condition(self, depth: int = 3) -> Expr:
        """Comparisons, joined and negated."""
        kind = self.random.random()
        if depth > 0 and kind > 0.6:
            a = self.condition(depth - 1)
            if kind > 0.9:
                return ir.logical_not(a)
            return (ir.logical_and if kind < 0.75 else ir.logical_or)(a, self.condition(depth - 1))
        make = self.random.choice((ir.lt, ir.le, ir.eq, ir.ne))
        return make(self.integer(depth - 1), self.integer(depth - 1))

    def any(self) -> Expr:
        """An integer, or a condition."""
        return self.condition() if self.random.random() < 0.3 else self.integer()
