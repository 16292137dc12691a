"""Symbolic intervals: what an index expression covers while some variables range over given intervals; for the regions that stages need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .affine import Terms, affine, build, collect
from .expr import (
    HAS_COST,
    Add,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IfThenElse,
    Load,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    Var,
    cast,
    const,
    floordiv,
    floormod,
    maximum,
    minimum,
    mul,
)
from .simplify import Analyzer
from .visit import walk

Interval: TypeAlias = "tuple[Expr, Expr]"


def interval(e: Expr, domains: Mapping[Var, Interval]) -> Interval | None:
    """The inclusive interval of `e` when each variable of `domains` ranges over its inclusive interval, in terms of the other variables.

    Tight for sums of multiples (also where one variable occurs several times) and for quotients and remainders of them by constants;
    otherwise it covers all values. None where the value depends on data, or is not an integer.
    """
    return Intervals(domains).of(e)


def constant_upper_bound(e: Expr) -> int | None:
    """A constant that `e` does not exceed, for extents like `(x*8 + 7) // 56 - x*8 // 56 + 1` (here 1); None where none is found."""
    return Analyzer().upper_bound(e)


class Intervals:
    """Questions about the same domains, and the intervals found so far."""

    def __init__(self, domains: Mapping[Var, Interval]):
        self.domains, self.analyzer = domains, Analyzer()
        for var, (low, high) in domains.items():
            self.analyzer.bind(var, (low, high + 1))
        self.memo: dict[Expr, Interval | None] = {}

    def moves(self, e: Expr) -> bool:
        """Whether a variable of the domains occurs in `e`."""
        return not e.variables.isdisjoint(self.domains)

    def of(self, e: Expr) -> Interval | None:
        """See `interval`."""
        if e in self.memo:
            return self.memo[e]
        found: Interval | None
        if not e.dtype.is_integer and not e.dtype.is_bool:
            found = None
        elif not self.moves(e):
            same = self.analyzer.simplify(e)
            found = same, same
        else:
            rule = _RULES.get(e.__class__)
            found = rule(self, e) if rule is not None and (e.exact or e.__class__ in _ALSO_INEXACT) else self.from_bounds(e)
        self.memo[e] = found
        return found

    def done(self, low: Expr, high: Expr) -> Interval:
        return self.analyzer.simplify(low), self.analyzer.simplify(high)

    def from_bounds(self, e: Expr) -> Interval | None:
        """Of what no rule knows: its constant bounds, if it does not depend on data."""
        if e.holds & HAS_COST and any(n.__class__ is Load or n.__class__ is Call for n in walk(e)):
            return None
        low, high = self.analyzer.bounds(e)
        return None if low is None or high is None else (const(low, e.dtype), const(high, e.dtype))

    def variable(self, e: Any) -> Interval:
        low, high = self.domains[e]
        return self.done(low, high)

    def sum(self, e: Any) -> Interval | None:
        terms, constant = affine(self.analyzer.simplify(e))
        if len(terms) == 1 and e in terms:
            return self.product(e)
        low_terms: Terms = {}
        high_terms: Terms = {}
        low = high = constant
        for atom, factor in terms.items():
            part = self.of(atom)
            if part is None:
                return None
            at_low, at_high = part if factor > 0 else (part[1], part[0])
            low += collect(at_low, factor, low_terms)
            high += collect(at_high, factor, high_terms)
        return self.done(build(low_terms, low, e.dtype), build(high_terms, high, e.dtype))

    def product(self, e: Any) -> Interval | None:
        """Of two factors that are no constants: one must keep still and have a known sign."""
        if e.__class__ is not Mul:
            return None
        moving, still = (e.a, e.b) if self.moves(e.a) else (e.b, e.a)
        part = self.of(moving)
        if part is None or self.moves(still):
            return self.from_bounds(e)
        low, high = self.analyzer.bounds(still)
        if low is not None and low >= 0:
            return self.done(mul(part[0], still), mul(part[1], still))
        if high is not None and high <= 0:
            return self.done(mul(part[1], still), mul(part[0], still))
        return self.done(minimum(mul(part[0], still), mul(part[1], still)), maximum(mul(part[0], still), mul(part[1], still)))

    def quotient(self, e: Any) -> Interval | None:
        done = self.analyzer.simplify(e)
        if done.__class__ is not FloorDiv:
            return self.of(done)
        e = done
        part = self.of(e.a)
        if part is None or self.moves(e.b):
            return self.from_bounds(e)
        low, high = self.analyzer.bounds(e.b)
        if low is not None and low >= 0:  # it is not zero
            return self.done(floordiv(part[0], e.b), floordiv(part[1], e.b))
        if high is not None and high < 0:
            return self.done(floordiv(part[1], e.b), floordiv(part[0], e.b))
        return self.from_bounds(e)

    def remainder(self, e: Any) -> Interval | None:
        done = self.analyzer.simplify(e)
        if done.__class__ is not FloorMod:
            return self.of(done)
        e = done
        part = self.of(e.a)
        if part is None or self.moves(e.b):
            return self.from_bounds(e)
        low, high = part
        if self.analyzer.simplify(floordiv(low, e.b)) is self.analyzer.simplify(floordiv(high, e.b)):
            return self.done(floormod(low, e.b), floormod(high, e.b))
        divisor_low = self.analyzer.bounds(e.b)[0]
        if divisor_low is not None and divisor_low >= 0:  # it is not zero
            return const(0, e.dtype), self.analyzer.simplify(e.b - 1)
        return self.from_bounds(e)

    def extremum(self, e: Any) -> Interval | None:
        a, b = self.of(e.a), self.of(e.b)
        if a is None or b is None:
            return None
        return self.done(e.make(a[0], b[0]), e.make(a[1], b[1]))

    def choice(self, e: Any) -> Interval | None:
        a, b = self.of(e.then), self.of(e.otherwise)
        if a is None or b is None:
            return None
        return self.done(minimum(a[0], b[0]), maximum(a[1], b[1]))

    def conversion(self, e: Any) -> Interval | None:
        if e.value.dtype.is_bool or not e.value.dtype.is_integer:
            return self.from_bounds(e)
        part = self.of(e.value)
        if part is None:
            return None
        if e.exact:
            return self.done(cast(part[0], e.dtype), cast(part[1], e.dtype))
        return self.from_bounds(e)

    def call(self, e: Any) -> Interval | None:
        """An index that a user takes as a value and computes with: as long as it does not wrap it is that index."""
        if e.name != "wrap":
            return None
        low, high = self.analyzer.bounds(e.args[0])
        if low is None or high is None or low < e.dtype.low or high > e.dtype.high:
            return None
        return self.of(e.args[0])


_RULES: dict[type, Callable[[Intervals, Any], Interval | None]] = {
    Var: Intervals.variable,
    Add: Intervals.sum,
    Sub: Intervals.sum,
    Mul: Intervals.sum,
    FloorDiv: Intervals.quotient,
    FloorMod: Intervals.remainder,
    Min: Intervals.extremum,
    Max: Intervals.extremum,
    Select: Intervals.choice,
    IfThenElse: Intervals.choice,
    Cast: Intervals.conversion,
    Call: Intervals.call,
}
_ALSO_INEXACT = (Cast, Call)
