"""What an Analyzer was told about variables and conditions, and the bounds and inequalities that follow from it."""

from __future__ import annotations

from typing import Any

from .affine import Terms, affine, difference, negated
from .bounds import BOUNDS_RULES, UNKNOWN, Bounds, constant_bounds
from .expr import EQ, LE, LT, And, Broadcast, Const, Expr, Not, Or, Ramp, Var, as_expr, logical_not
from .proofs import Proofs


class Knowledge:
    """Ranges of atoms, facts, and the truth of conditions; told for good, or inside a `scope`."""

    def __init__(self) -> None:
        self._bounds_memo: dict[Expr, Bounds] = {}
        self._ranges: dict[Expr, Bounds] = {}  # of variables and other atoms, as told
        self._truths: dict[Expr, bool] = {}
        self._proofs = Proofs(self.bounds)

    def bind(self, var: Var, domain: tuple[int | Expr | None, int | Expr | None]) -> None:
        """From now on `var` lies in the half-open range `domain`, of integers or expressions; None: no limit."""
        for limit, above in zip(domain, (False, True), strict=True):
            if limit is None:
                continue
            end = as_expr(limit)
            bound = self.bounds(end)[above]
            if bound is not None:
                self._narrow(var, *((None, bound - 1) if above else (bound, None)))
            if end.__class__ is not Const and end.exact:
                terms, constant = difference(end, var) if above else difference(var, end)
                self._proofs.tell(terms, constant - above)
        self._forget()

    def bind_value(self, var: Var, value: Expr, met_before: bool = True) -> None:
        """From now on `var` is known to be `value`, but keeps its place (see `Analyzer.define`, also for `met_before`)."""
        if var.exact and value.exact:
            self._narrow(var, *self.bounds(value))
            self._proofs.tell_value(var, affine(value))
            if met_before:
                self._forget()

    def scope(self) -> Scope:
        """What is told inside the `with` block is forgotten at its end."""
        return Scope(self, None)

    def _begin(self) -> tuple[Any, ...]:
        """What is told from now on is kept apart; gives what `_end` needs to forget it."""
        saved = self._bounds_memo, self._ranges, self._truths, self._proofs.state()
        self._bounds_memo, self._ranges, self._truths = {}, dict(self._ranges), dict(self._truths)
        return saved

    def _end(self, saved: tuple[Any, ...]) -> None:
        self._bounds_memo, self._ranges, self._truths, proved = saved
        self._proofs.restore(proved)

    def _forget(self) -> None:
        """What was concluded may be better now."""
        self._bounds_memo.clear()
        self._proofs.forget_bounds()

    def _narrow(self, atom: Expr, low: int | None, high: int | None) -> None:
        known_low, known_high = constant_bounds(atom)
        if (low is None or (known_low is not None and known_low >= low)) and (high is None or (known_high is not None and known_high <= high)):
            return  # without ranges, bounds are those kept on the nodes
        known_low, known_high = self._ranges.get(atom, UNKNOWN)
        if low is None or (known_low is not None and known_low > low):
            low = known_low
        if high is None or (known_high is not None and known_high < high):
            high = known_high
        self._ranges[atom] = low, high
        self._proofs.forget_bounds()

    def _learn(self, condition: Any) -> None:
        cls = condition.__class__
        if cls is And:
            self._learn(condition.a)
            self._learn(condition.b)
            return
        self._truths[condition] = True
        opposite: Any = logical_not(condition)
        self._truths[opposite] = False
        if cls is Not and condition.a.__class__ is Or:
            self._learn(logical_not(condition.a.a))
            self._learn(logical_not(condition.a.b))
        elif cls in (LT, LE, EQ) and exact_operands(condition):
            terms, constant = difference(condition.b, condition.a)
            self._learn_not_negative(terms, constant - (cls is LT))
            if cls is EQ:
                self._learn_not_negative(negated(terms), -constant)

    def _learn_not_negative(self, terms: Terms, constant: int) -> None:
        if len(terms) == 1:
            ((atom, factor),) = terms.items()
            if factor > 0:
                self._narrow(atom, -(constant // factor), None)
            else:
                self._narrow(atom, None, constant // -factor)
        elif terms:
            self._proofs.tell(terms, constant)

    # ---------------------------------------------------------------------------------------------------- bounds and proofs

    def bounds(self, e: Expr) -> Bounds:
        """Inclusive constant bounds of `e`, None where unbounded."""
        if not self._ranges:
            found = e._bounds
            return constant_bounds(e) if found is None else found
        found = self._bounds_memo.get(e)
        if found is None:
            low, high = BOUNDS_RULES[e.__class__](e, self.bounds)
            told = self._ranges.get(e)
            if told is not None:
                if low is None or (told[0] is not None and told[0] > low):
                    low = told[0]
                if high is None or (told[1] is not None and told[1] < high):
                    high = told[1]
            found = self._bounds_memo[e] = low, high
        return found

    def not_above(self, a: Expr, b: Expr) -> bool:
        """Whether a <= b certainly; of vectors, in every lane."""
        return self._apart(a, b, 0)

    def below(self, a: Expr, b: Expr) -> bool:
        """Whether a < b certainly; of vectors, in every lane."""
        return self._apart(a, b, 1)

    def _apart(self, a: Any, b: Any, distance: int) -> bool:
        """Whether a + distance <= b certainly."""
        if a.exact and b.exact:
            if a.dtype.lanes > 1:
                top, bottom = _lane_end(a, True), _lane_end(b, False)
                if top is None or bottom is None:
                    return self._bounds_apart(a, b, distance)
                a, b = top, bottom
            terms, constant = difference(b, a)
            return self._proofs.never_negative(terms, constant - distance)
        return self._bounds_apart(a, b, distance)

    def _bounds_apart(self, a: Expr, b: Expr, distance: int) -> bool:
        high, low = self.bounds(a)[1], self.bounds(b)[0]
        return high is not None and low is not None and high + distance <= low


class Scope:
    """A `with` block: `condition`, where there is one, is known inside; what is told inside is forgotten at the end."""

    __slots__ = ("_condition", "_knowledge", "_saved")

    def __init__(self, knowledge: Knowledge, condition: Expr | None):
        self._knowledge, self._condition = knowledge, condition

    def __enter__(self) -> None:
        knowledge = self._knowledge
        self._saved = knowledge._begin()
        if self._condition is not None:
            knowledge._learn(self._condition)
            knowledge._forget()

    def __exit__(self, *_: object) -> None:
        self._knowledge._end(self._saved)


def exact_operands(e: Any) -> bool:
    """Whether a comparison is one of exact scalar integers."""
    kind = e.a.dtype
    return bool(e.a.exact and e.b.exact and kind.lanes == 1 and kind.is_integer)


def _lane_end(e: Any, top: bool) -> Expr | None:
    """The largest (or smallest) lane of a vector, None where it is not known which that is."""
    if e.__class__ is Broadcast:
        return e.value
    if e.__class__ is Ramp and e.stride.__class__ is Const:
        last = e.stride.value * (e.dtype.lanes - 1)
        return e.base + (max(last, 0) if top else min(last, 0))  # type: ignore[no-any-return]
    return None
