"""Linear reasoning: lower bounds of sums from the bounds of their atoms, from what quotients, extrema and choices are, and from facts.

A fact is a sum known not to be negative. To bound a sum S from below, a fact F that shares an atom with the same sign is taken out:
s * S = t * F + left with s, t > 0, so S >= left / s. Few steps of this decide what loop nests ask: tails, tiles, paddings.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, NamedTuple, TypeAlias

from .affine import Terms, add_term, affine, collect, common_factor, difference, factors, product
from .bounds import Bounds, modulus, sum_bounds
from .expr import Add, Const, Expr, FloorDiv, IfThenElse, Max, Min, Mul, Select, Sub, Var

Fact: TypeAlias = "tuple[Terms, int]"

_STEPS_IN_A_CHAIN = 4  # loop nests need two or three


class _Search(NamedTuple):
    """What may still be tried: so many `steps`, the `facts` not taken out yet, and no step on the atoms that are `settled`."""

    steps: int
    facts: tuple[Fact, ...]
    settled: frozenset[Expr] = frozenset()


class Proofs:
    """Bounds of sums, given `bounds` of atoms and facts."""

    __slots__ = ("_in_facts", "_least_of", "bounds", "facts", "values")

    def __init__(self, bounds: Callable[[Expr], Bounds]):
        self.bounds = bounds
        self.facts: tuple[Fact, ...] = ()
        self.values: dict[Expr, Fact] = {}
        self._in_facts: frozenset[Var] = frozenset()  # the variables that occur in them
        self._least_of: dict[frozenset[tuple[Expr, int]], int | None] = {}

    def tell(self, terms: Terms, constant: int) -> None:
        """From now on this sum is known not to be negative."""
        fact = self._with_values(terms, constant)
        self.facts += (fact,)
        self._in_facts = self._in_facts.union(*[atom.variables for atom in fact[0]])
        self._least_of = {}

    def tell_value(self, atom: Expr, value: Fact) -> None:
        """From now on `atom`, of which nothing was known, is known to be the sum `value`."""
        self.values = {**self.values, atom: self._with_values(*value)}
        self._least_of = {}

    def _with_values(self, terms: Terms, constant: int) -> Fact:
        """A sum with values in the places of the atoms that have one."""
        for atom in terms:
            if atom in self.values:
                break
        else:
            return terms, constant
        result: Terms = {}
        for atom, factor in terms.items():
            more, extra = self.values.get(atom, ({atom: 1}, 0))
            for a, f in more.items():
                add_term(result, a, f * factor)
            constant += extra * factor
        return result, constant

    def state(self) -> tuple[Any, ...]:
        """What is known, for `restore`."""
        return self.facts, self._in_facts, self.values, self._least_of

    def restore(self, state: tuple[Any, ...]) -> None:
        """Back to what was known when `state` was taken."""
        self.facts, self._in_facts, self.values, self._least_of = state

    def forget_bounds(self) -> None:
        """The bounds of atoms have changed."""
        self._least_of = {}

    def never_negative(self, terms: Terms, constant: int) -> bool:
        """Whether a sum is certainly >= 0."""
        low = sum_bounds(terms, constant, self.bounds)[0]
        if low is not None and low >= 0:
            return True
        low = self.least(terms, constant)
        return low is not None and low >= 0

    def least(self, terms: Terms, constant: int) -> int | None:
        """The best constant found that the sum is not below; None where there is none."""
        if self.values:
            terms, constant = self._with_values(terms, constant)
        if not self.facts:
            for atom in terms:
                if atom.__class__ in _STEPS:
                    break
            else:
                return sum_bounds(terms, constant, self.bounds)[0]
        terms, rest = self._without_free(terms, constant)
        if rest is None:
            return None
        constant = rest
        common = common_factor(terms)  # what differs in a factor, a constant or what stands alone is looked for once
        if common > 1:
            terms = {atom: factor // common for atom, factor in terms.items()}
        key = frozenset(terms.items())
        if key in self._least_of:
            low = self._least_of[key]
        else:
            low = self._least_of[key] = self._least(terms, 0, _Search(_STEPS_IN_A_CHAIN, self.facts))
        return None if low is None else low * common + constant

    def _without_free(self, terms: Terms, constant: int) -> tuple[Terms, int | None]:
        """A sum without variables that are in no fact and in no other atom: no step does better than their bounds, which go to the constant."""
        named = self._in_facts.union(*[atom.variables for atom in terms if atom.__class__ is not Var])
        free: Terms = {atom: factor for atom, factor in terms.items() if atom.__class__ is Var and atom not in named}
        if not free:
            return terms, constant
        return {atom: factor for atom, factor in terms.items() if atom not in free}, sum_bounds(free, constant, self.bounds)[0]

    def _least(self, terms: Terms, constant: int, search: _Search) -> int | None:
        best = sum_bounds(terms, constant, self.bounds)[0]
        steps, facts, settled = search
        if steps == 0:
            return best
        chosen = self._chosen(terms, facts, settled)
        if chosen is None:
            return best
        atom, useful = chosen
        factor = terms[atom]
        step = _STEPS.get(atom.__class__)
        if step is not None:
            best = _larger(best, step(self, atom, terms, constant, _Search(steps - 1, facts, settled)))
        for number in useful:
            fact_terms, fact_constant = facts[number]
            of_fact = fact_terms[atom]
            common = gcd(factor, of_fact)
            scale, times = abs(of_fact) // common, abs(factor) // common
            left = {a: f * scale for a, f in terms.items()} if scale > 1 else dict(terms)
            for a, f in fact_terms.items():
                add_term(left, a, -f * times)
            unused = facts[:number] + facts[number + 1 :]
            found = self._scaled(left, constant * scale - fact_constant * times, scale, _Search(steps - 1, unused, settled))
            best = _larger(best, found)
        if (useful or atom.__class__ not in _EXTREMA) and (self.bounds(atom)[factor < 0] is not None):
            best = _larger(best, self._least(terms, constant, _Search(steps, facts, settled | {atom})))
        return best

    def _chosen(self, terms: Terms, facts: tuple[Fact, ...], settled: frozenset[Expr]) -> tuple[Expr, list[int]] | None:
        """The atom to get rid of next, and the numbers of the facts that can do it. Their order makes no difference to what can be found, but
        variables first is quicker: the facts about them bring in, or cancel, the rest."""
        chosen: tuple[Expr, list[int]] | None = None
        for atom, factor in terms.items():
            if atom in settled:
                continue
            useful = [n for n, fact in enumerate(facts) if fact[0].get(atom, 0) * factor > 0] if facts else []
            if useful and atom.__class__ is Var:
                return atom, useful
            if chosen is None and (useful or atom.__class__ in _STEPS):
                chosen = atom, useful
        return chosen

    def _scaled(self, terms: Terms, constant: int, scale: int, search: _Search) -> int | None:
        """`_least` of a sum of which `scale` times that many is given."""
        found = self._least(terms, constant, search)
        return None if found is None else -(-found // scale)

    def _extremum(self, atom: Any, terms: Terms, constant: int, search: _Search) -> int | None:
        """A minimum taken away takes away no more than either operand; one added adds no less than the worse of them."""
        found = self._arms(atom, terms, constant, search)
        if (atom.__class__ is Min) == (terms[atom] < 0):
            return _larger(*found)
        return _smaller(*found)

    def _choice(self, atom: Any, terms: Terms, constant: int, search: _Search) -> int | None:
        """A choice is one of its arms."""
        return _smaller(*self._arms(atom, terms, constant, search))

    def _arms(self, atom: Any, terms: Terms, constant: int, search: _Search) -> list[int | None]:
        """Bounds with either operand in the place of `atom`."""
        found = []
        for arm in atom.children[-2:]:
            rest = dict(terms)
            factor = rest.pop(atom)
            found.append(self._least(rest, constant + collect(arm, factor, rest), search))
        return found

    def _quotient(self, atom: Any, terms: Terms, constant: int, search: _Search) -> int | None:
        """x - (c - 1) <= c * (x // c) <= x; and of two quotients by one divisor, how far apart their numerators are."""
        best: int | None = None
        factor = terms[atom]
        for other, other_factor in terms.items():
            if other.__class__ is FloorDiv and other_factor == -factor and other.b is atom.b:
                apart = self._apart(other, atom, search) if factor > 0 else self._apart(atom, other, search)
                if apart is not None:
                    rest = {a: f for a, f in terms.items() if a is not atom and a is not other}
                    best = self._least(rest, constant - abs(factor) * apart, search)
        if atom.b.__class__ is not Const or atom.b.value <= 0:
            return best
        divisor = atom.b.value
        rest = {a: f * divisor for a, f in terms.items() if a is not atom}
        constant = constant * divisor + collect(atom.a, factor, rest)
        return _larger(best, self._scaled(rest, constant - (factor * (divisor - 1) if factor > 0 else 0), divisor, search))

    def _apart(self, high: Any, low: Any, search: _Search) -> int | None:
        """The most by which x // c (`high`) can exceed y // c (`low`)."""
        smallest = self.bounds(high.b)[0]
        if smallest is None or smallest < 0:
            return None
        terms, constant = difference(low.a, high.a)
        least = self._least(terms, constant, search._replace(steps=min(search.steps, 2)))
        if least is None:
            return None
        most = -least
        if high.b.__class__ is not Const:
            return -(-most // max(smallest, 1)) if most > 0 else 0
        divisor: int = high.b.value
        m, r = modulus(low.a)
        step = gcd(m, divisor)
        return (divisor - step + r % step + most) // divisor  # the largest remainder y can leave, and the distance

    def _product(self, atom: Any, terms: Terms, constant: int, search: _Search) -> int | None:
        """Of x * y with y >= 0: as much as y times a bound of x, constant or from a fact. A factor that is a sum is multiplied out."""
        best: int | None = None
        all_factors = factors(atom)
        for position, x in enumerate(all_factors):
            y = product(*all_factors[:position], *all_factors[position + 1 :])[0]
            if x.__class__ is Add or x.__class__ is Sub:
                return self._least(*_taken_out(terms, constant, atom, affine(x), y), search)
            low = self.bounds(y)[0]
            if low is None or low < 0:
                continue
            limit = self.bounds(x)[terms[atom] < 0]
            if limit is not None:
                best = _larger(best, self._least(*_taken_out(terms, constant, atom, ({}, limit), y), search))
            for number, (fact_terms, fact_constant) in enumerate(search.facts):
                of_fact = fact_terms.get(x)
                if of_fact in (1, -1) and (of_fact > 0) == (terms[atom] > 0):
                    rest = {a: -f * of_fact for a, f in fact_terms.items() if a is not x}  # x >= or <= this
                    unused = (*search.facts[:number], *search.facts[number + 1 :])
                    left = _taken_out(terms, constant, atom, (rest, -fact_constant * of_fact), y)
                    best = _larger(best, self._least(*left, search._replace(facts=unused)))
        return best


def _taken_out(terms: Terms, constant: int, atom: Expr, x: Fact, y: Expr) -> Fact:
    """A sum with x * y in the place of `atom`, x a sum."""
    result = dict(terms)
    factor = result.pop(atom)
    for a, f in x[0].items():
        term, more = product(a, y)
        constant += collect(term, factor * f * more, result)
    return result, constant + collect(y, factor * x[1], result)


def _larger(a: int | None, b: int | None) -> int | None:
    """Of two lower bounds, None where there is none, the better."""
    return b if a is None else a if b is None else max(a, b)


def _smaller(a: int | None, b: int | None) -> int | None:
    """What is a lower bound whichever of two holds."""
    return None if a is None or b is None else min(a, b)


_EXTREMA = (Min, Max, Select, IfThenElse)  # the bounds of their arms are as good as their own
_STEPS: dict[type, Callable[..., int | None]] = {
    Min: Proofs._extremum,
    Max: Proofs._extremum,
    Select: Proofs._choice,
    IfThenElse: Proofs._choice,
    FloorDiv: Proofs._quotient,
    Mul: Proofs._product,
}
