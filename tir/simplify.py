"""The Analyzer: simplifies expressions and proves conditions, given what it was told about variables.

Sums of exact integers are kept as terms (affine.py), so like terms meet wherever they stand; everything else is rewritten by the tables of
rules.py. Proofs are linear reasoning over the same terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

from .affine import Terms, add_term, affine, build, collect, difference, split_multiples
from .bounds import BOUNDS_RULES, UNKNOWN, Bounds, constant_bounds, modulus
from .dtype import DType
from .expr import (
    EQ,
    LE,
    LT,
    NE,
    Add,
    And,
    Cast,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    IfThenElse,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    Var,
    as_expr,
    const,
    floordiv,
    floormod,
    logical_not,
)


class Analyzer:
    """Simplifies and proves. What it learns lives in it alone.

    >>> ana = Analyzer(); i = Var("i"); ana.bind(i, (0, 8)); str(ana.simplify((i * 16 + 3) // 16))
    'i'
    """

    def __init__(self) -> None:
        self._memo: dict[Expr, Expr] = {}
        self._bounds_memo: dict[Expr, Bounds] = {}
        self._ranges: dict[Expr, Bounds] = {}  # of variables and other atoms, as told
        self._facts: tuple[tuple[Terms, int], ...] = ()  # sums known not to be negative
        self._truths: dict[Expr, bool] = {}

    # ------------------------------------------------------------------------------------------------------- what is told

    def bind(self, var: Var, domain: tuple[int | Expr, int | Expr]) -> None:
        """From now on `var` lies in the half-open range `domain`, of integers or expressions."""
        low, stop = as_expr(domain[0]), as_expr(domain[1])
        low_bound, stop_bound = self.bounds(low)[0], self.bounds(stop)[1]
        self._narrow(var, low_bound, None if stop_bound is None else stop_bound - 1)
        facts = []
        if low.__class__ is not Const:
            facts.append(difference(var, low))
        if stop.__class__ is not Const:
            terms, constant = difference(stop, var)
            facts.append((terms, constant - 1))
        self._facts = (*self._facts, *facts)
        self._forget()

    @contextmanager
    def constraint(self, condition: Expr) -> Iterator[None]:
        """Inside the `with` block, `condition` is known to be true."""
        saved = self._memo, self._bounds_memo, self._ranges, self._facts, self._truths
        self._memo, self._bounds_memo, self._ranges, self._truths = {}, {}, dict(self._ranges), dict(self._truths)
        self._learn(condition)
        self._forget()
        try:
            yield
        finally:
            self._memo, self._bounds_memo, self._ranges, self._facts, self._truths = saved

    def _forget(self) -> None:
        self._memo.clear()
        self._bounds_memo.clear()

    def _narrow(self, atom: Expr, low: int | None, high: int | None) -> None:
        known_low, known_high = self._ranges.get(atom, UNKNOWN)
        if low is None or (known_low is not None and known_low > low):
            low = known_low
        if high is None or (known_high is not None and known_high < high):
            high = known_high
        self._ranges[atom] = low, high

    def _learn(self, condition: Expr) -> None:
        cls = condition.__class__
        if cls is And:
            self._learn(condition.a)  # type: ignore[attr-defined]
            self._learn(condition.b)  # type: ignore[attr-defined]
            return
        self._truths[condition] = True
        self._truths[logical_not(condition)] = False
        if cls in (LT, LE, EQ) and condition.a.exact and condition.b.exact and condition.dtype.lanes == 1:  # type: ignore[attr-defined]
            terms, constant = difference(condition.b, condition.a)  # type: ignore[attr-defined]
            self._learn_not_negative(terms, constant - (cls is LT))
            if cls is EQ:
                self._learn_not_negative({atom: -factor for atom, factor in terms.items()}, -constant)

    def _learn_not_negative(self, terms: Terms, constant: int) -> None:
        if len(terms) == 1:
            ((atom, factor),) = terms.items()
            if factor > 0:
                self._narrow(atom, -(constant // factor), None)
            else:
                self._narrow(atom, None, constant // -factor)
        elif terms:
            self._facts = (*self._facts, (terms, constant))

    # ------------------------------------------------------------------------------------------------------------- bounds

    def bounds(self, e: Expr) -> Bounds:
        """Inclusive constant bounds of `e`, None where unbounded."""
        found = self._bounds_memo.get(e)
        if found is None:
            if not self._ranges:
                return constant_bounds(e)
            low, high = BOUNDS_RULES[e.__class__](e, self.bounds)
            told = self._ranges.get(e)
            if told is not None:
                if low is None or (told[0] is not None and told[0] > low):
                    low = told[0]
                if high is None or (told[1] is not None and told[1] < high):
                    high = told[1]
            found = self._bounds_memo[e] = low, high
        return found

    def sum_bounds(self, terms: Terms, constant: int) -> Bounds:
        """Bounds of a sum, term by term."""
        low: int | None = constant
        high: int | None = constant
        bounds = self.bounds
        for atom, factor in terms.items():
            a, b = bounds(atom)
            if factor < 0:
                a, b = b, a
            low = None if low is None or a is None else low + a * factor
            high = None if high is None or b is None else high + b * factor
            if low is None and high is None:
                break
        return low, high

    # ------------------------------------------------------------------------------------------------------------- proofs

    def can_prove(self, condition: Expr) -> bool:
        """Whether `condition` certainly holds. False means: not known."""
        done = self.simplify(condition)
        return done.__class__ is Const and bool(done.value)  # type: ignore[attr-defined]

    def _never_negative(self, terms: Terms, constant: int, depth: int = 4) -> bool:
        """Whether a sum is certainly >= 0."""
        low = self.sum_bounds(terms, constant)[0]
        if low is not None and low >= 0:
            return True
        if depth == 0 or not terms:
            return False
        for fact_terms, fact_constant in self._facts:
            for atom, factor in terms.items():
                of_fact = fact_terms.get(atom)
                if of_fact is not None and (of_fact > 0) == (factor > 0):
                    # sum * s = fact * t + left, with s, t > 0, where `left` does not have this atom
                    scale = abs(of_fact) // gcd(factor, of_fact)
                    times = abs(factor) // gcd(factor, of_fact)
                    left = {a: f * scale for a, f in terms.items()}
                    for a, f in fact_terms.items():
                        add_term(left, a, -f * times)
                    if self._never_negative(left, constant * scale - fact_constant * times, depth - 1):
                        return True
        return False

    def not_above(self, a: Expr, b: Expr) -> bool:
        """Whether a <= b certainly, for exact scalars."""
        return self._never_negative(*difference(b, a))

    def upper_bound(self, e: Expr) -> int | None:
        """A constant that the exact scalar `e` does not exceed, better than `bounds` where quotients or extrema cancel."""
        return self._upper(*affine(self.simplify(e)), 4)

    def _upper(self, terms: Terms, constant: int, depth: int) -> int | None:
        best = self.sum_bounds(terms, constant)[1]
        if depth == 0:
            return best
        for atom, factor in terms.items():
            cls = atom.__class__
            if cls is Min or cls is Max:
                tried = []
                for arm in atom.children:
                    rest = dict(terms)
                    del rest[atom]
                    tried.append(self._upper(rest, constant + collect(arm, factor, rest), depth - 1))
                if (cls is Min) == (factor > 0):  # no more than with either arm
                    return _least(best, *tried)
                return None if None in tried else _least(best, max(tried))  # type: ignore[type-var]
            if cls is FloorDiv and factor > 0:
                for other, other_factor in terms.items():
                    if other.__class__ is FloorDiv and other_factor == -factor and other.b is atom.b:  # type: ignore[attr-defined]
                        apart = self._quotients_apart(atom, other)
                        if apart is not None:
                            rest = {a: f for a, f in terms.items() if a is not atom and a is not other}
                            return _least(best, self._upper(rest, constant + factor * apart, depth - 1))
        return best

    def _quotients_apart(self, high: Any, low: Any) -> int | None:
        """The most by which x // c can exceed y // c."""
        terms, constant = difference(high.a, low.a)
        most = self._upper(terms, constant, 2)
        smallest = self.bounds(high.b)[0]
        if most is None or smallest is None or smallest < 0:
            return None
        if high.b.__class__ is not Const:
            return -(-most // max(smallest, 1)) if most > 0 else 0
        divisor = high.b.value
        m, r = modulus(low.a)
        step = gcd(m, divisor)
        return (divisor - step + r % step + most) // divisor  # type: ignore[no-any-return]

    # ----------------------------------------------------------------------------------------------------- simplification

    def simplify(self, e: Expr) -> Expr:
        """An equal expression in canonical form; the same object if it is in that form."""
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = _HANDLERS.get(e.__class__, Analyzer._operands)(self, e)
            self._memo[found] = found
        return found

    def _operands(self, e: Expr) -> Expr:
        old = e.children
        new = [self.simplify(c) for c in old]
        if all(a is b for a, b in zip(old, new, strict=True)):
            return e
        changed = e.with_children(new)
        return changed if changed.__class__ is e.__class__ else self.simplify(changed)

    def _sum(self, e: Any) -> Expr:
        if not e.exact or e.dtype.lanes > 1:
            return self._operands(e)
        terms: Terms = {}
        constant = self._collect(e, 1, terms)
        if len(terms) > 1:
            constant += _join_digits(terms)
        return build(terms, constant, e.dtype)

    def _collect(self, e: Any, scale: int, terms: Terms) -> int:
        cls = e.__class__
        if cls is Add:
            return self._collect(e.a, scale, terms) + self._collect(e.b, scale, terms)
        if cls is Const:
            return scale * e.value  # type: ignore[no-any-return]
        if cls is Mul:
            if e.b.__class__ is Const:
                return self._collect(e.a, scale * e.b.value, terms)
            a, b = self.simplify(e.a), self.simplify(e.b)
            if a is not e.a or b is not e.b:
                return collect(a * b, scale, terms)
        elif cls is Sub:
            return self._collect(e.a, scale, terms) + self._collect(e.b, -scale, terms)
        elif cls is Cast and e.value.exact and e.value.dtype.is_integer:
            return self._collect(e.value, scale, terms)
        elif cls is not Var:
            done = self.simplify(e)
            if done is not e:
                return collect(done, scale, terms)
        add_term(terms, e, scale)
        return 0

    def _floordiv(self, e: Any) -> Expr:
        a: Any = self.simplify(e.a)
        b: Any = self.simplify(e.b)
        if a.exact and a.dtype.lanes == 1 and b.__class__ is Const and b.value > 0:
            terms, constant = self.divide(*affine(a), b.value, e.dtype)
            return build(terms, constant, e.dtype)
        return e if a is e.a and b is e.b else floordiv(a, b)

    def divide(self, terms: Terms, constant: int, divisor: int, kind: DType) -> tuple[Terms, int]:
        """The floored quotient of a sum by a positive constant, as a sum."""
        quotient, rest = split_multiples(terms, divisor)
        whole, left = divmod(constant, divisor)
        if not rest:
            return quotient, whole
        low, high = self.sum_bounds(rest, left)
        if low is not None and high is not None and low // divisor == high // divisor:
            return quotient, whole + low // divisor
        # rest = digit * high part + low part with 0 <= low part < digit: the low part does not matter
        for digit in sorted({gcd(f, divisor) for f in rest.values()} - {1}, reverse=True):
            upper, lower = split_multiples(rest, digit)
            upper_constant, lower_constant = divmod(left, digit)
            low, high = self.sum_bounds(lower, lower_constant)
            if low is not None and high is not None and low >= 0 and high < digit:
                more, extra = self.divide(upper, upper_constant, divisor // digit, kind)
                for atom, factor in more.items():
                    add_term(quotient, atom, factor)
                return quotient, whole + extra
        done = floordiv(build(rest, left, kind), const(divisor, kind))
        return quotient, whole + collect(done, 1, quotient)

    def _floormod(self, e: Any) -> Expr:
        a: Any = self.simplify(e.a)
        b: Any = self.simplify(e.b)
        if a.exact and a.dtype.lanes == 1 and b.__class__ is Const and b.value > 0:
            terms, constant = self.remainder(*affine(a), b.value, e.dtype)
            return build(terms, constant, e.dtype)
        return e if a is e.a and b is e.b else floormod(a, b)

    def remainder(self, terms: Terms, constant: int, divisor: int, kind: DType) -> tuple[Terms, int]:
        """The remainder of a sum by a positive constant, as a sum."""
        rest = split_multiples(terms, divisor)[1]
        left = constant % divisor
        if not rest:
            return rest, left
        low, high = self.sum_bounds(rest, left)
        if low is not None and high is not None and low // divisor == high // divisor:
            return rest, left - low // divisor * divisor
        for digit in sorted({gcd(f, divisor) for f in rest.values()} - {1}, reverse=True):
            upper, lower = split_multiples(rest, digit)
            upper_constant, lower_constant = divmod(left, digit)
            low, high = self.sum_bounds(lower, lower_constant)
            if low is not None and high is not None and low >= 0 and high < digit:
                more, extra = self.remainder(upper, upper_constant, divisor // digit, kind)
                result = {atom: factor * digit for atom, factor in more.items()}
                for atom, factor in lower.items():
                    add_term(result, atom, factor)
                return result, extra * digit + lower_constant
        done = floormod(build(rest, left, kind), const(divisor, kind))
        return {done: 1}, 0

    def _extremum(self, e: Any) -> Expr:
        a, b = self.simplify(e.a), self.simplify(e.b)
        if a.exact and b.exact and a.dtype.lanes == 1:
            smaller = e.__class__ is Min
            if self.not_above(a, b):
                return a if smaller else b
            if self.not_above(b, a):
                return b if smaller else a
        return e if a is e.a and b is e.b else e.make(a, b)  # type: ignore[no-any-return]

    def _comparison(self, e: Any) -> Expr:
        known = self._truths.get(e)
        if known is not None:
            return const(known, "bool")
        a, b = self.simplify(e.a), self.simplify(e.b)
        if a.exact and b.exact and a.dtype.lanes == 1 and a.dtype.is_integer:
            terms, constant = difference(b, a)
            cls = e.__class__
            negated = {atom: -factor for atom, factor in terms.items()}
            if cls in (LT, LE):
                strict = int(cls is LT)
                if self._never_negative(terms, constant - strict):
                    return const(True, "bool")
                if self._never_negative(negated, -constant - 1 + strict):
                    return const(False, "bool")
            else:
                apart = self._never_negative(terms, constant - 1) or self._never_negative(negated, -constant - 1)
                if apart or (not terms and constant):
                    return const(cls is NE, "bool")
                if not terms:
                    return const(cls is EQ, "bool")
        return e if a is e.a and b is e.b else e.make(a, b)  # type: ignore[no-any-return]

    def _choice(self, e: Any) -> Expr:
        condition = self.simplify(e.condition)
        if condition.__class__ is Const:
            return self.simplify(e.then if condition.value else e.otherwise)  # type: ignore[attr-defined]
        return self._operands(e)


def _least(*values: int | None) -> int | None:
    known = [v for v in values if v is not None]
    return min(known) if known else None


def _join_digits(terms: Terms) -> int:
    """Replace x // c * (c * f) + x % c * f by x * f, as often as it occurs; gives what that adds to the constant."""
    constant = 0
    remainders = [atom for atom in terms if atom.__class__ is FloorMod]
    while remainders:
        low: Any = remainders.pop()
        factor = terms.get(low)
        if factor is None or low.b.__class__ is not Const:
            continue
        for high in terms:
            if high.__class__ is FloorDiv and terms[high] == factor * low.b.value and _next_digit(high, low):
                del terms[high], terms[low]
                constant += collect(low.a, factor, terms)
                remainders = [atom for atom in terms if atom.__class__ is FloorMod]
                break
    return constant


def _next_digit(high: Any, low: Any) -> bool:
    """Whether `high` is x // c where `low` is x % c."""
    if high.a is low.a and high.b is low.b:
        return True
    inner = low.a  # x // a // c is written x // (a * c)
    if inner.__class__ is not FloorDiv or inner.a is not high.a or inner.b.__class__ is not Const or high.b.__class__ is not Const:
        return False
    return bool(high.b.value == inner.b.value * low.b.value)


_HANDLERS: dict[type, Callable[[Analyzer, Any], Expr]] = {
    Var: lambda _, e: e, Const: lambda _, e: e, Add: Analyzer._sum, Sub: Analyzer._sum, Mul: Analyzer._sum, FloorDiv: Analyzer._floordiv,
    FloorMod: Analyzer._floormod, Min: Analyzer._extremum, Max: Analyzer._extremum, LT: Analyzer._comparison, LE: Analyzer._comparison,
    EQ: Analyzer._comparison, NE: Analyzer._comparison, Select: Analyzer._choice, IfThenElse: Analyzer._choice,
}
