"""The Analyzer: simplifies expressions and proves conditions, given what it was told about variables.

Sums of exact integers are kept as terms (affine.py), so like terms meet wherever they stand; their quotients, remainders and comparisons
are read in mixed radix (digits.py); everything else is rewritten by the tables of rules.py. Proofs are linear reasoning (proofs.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .affine import Terms, add_term, affine, build, collect, common_factor, difference, factors, negated, product
from .digits import join_digits, less_than, quotient, remainder
from .dtype import BOOL, DType
from .errors import InternalError
from .expr import (
    EQ,
    HAS_CHOICE,
    HAS_LOAD,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Const,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    IfThenElse,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    Var,
    cast,
    const,
    load,
    logical_not,
)
from .knowledge import Knowledge, Scope, exact_operands
from .matching import ANY_RULES, EXACT_RULES
from .node import COUNTERS

_REWRITES = 200  # how often in a row a node may be replaced by another: more is a cycle of rules


class Analyzer(Knowledge):
    """Simplifies and proves. What it learns lives in it alone.

    >>> ana = Analyzer(); i, j = Var("i"), Var("j"); ana.bind(j, (0, 16)); str(ana.simplify((i * 16 + j) // 16))
    'i'
    """

    def __init__(self) -> None:
        super().__init__()
        self._lasting_memo: dict[Expr, Expr] = {}  # what no constraint can change
        self._memo = self._lasting_memo
        self._values: dict[Expr, Expr] = {}  # of variables
        self._ranks: dict[Expr, int] = {}  # of variables as told, of other atoms as found
        self._chain = 0

    def define(self, var: Var, value: Expr | None, met_before: bool = True) -> None:
        """From now on `value` takes the place of `var` in everything simplified; None: no longer.

        `met_before`: whether something with `var` may have been simplified already.
        """
        if value is None:
            self._values.pop(var, None)
        else:
            self._values[var] = value
        if met_before:
            self._lasting_memo.clear()
            self._forget()

    def rank(self, var: Var, rank: int) -> None:
        """In sums, terms of a lower rank come first: with the depth of its loop as the rank of a variable, what an inner loop does not change
        is a part of its own. Terms of equal rank stay in the order of their first occurrence."""
        self._ranks[var] = rank

    def constraint(self, condition: Expr) -> Scope:
        """Inside the `with` block, `condition` is known to be true."""
        return Scope(self, self.simplify(condition))  # simplified outside, where it has mostly been already

    def _begin(self) -> tuple[Any, ...]:
        saved = self._memo, super()._begin()
        self._memo = {}
        return saved

    def _end(self, saved: tuple[Any, ...]) -> None:
        self._memo, rest = saved
        super()._end(rest)

    def _forget(self) -> None:
        super()._forget()
        self._memo.clear()

    def can_prove(self, condition: Expr) -> bool:
        """Whether `condition` certainly holds. False means: not known."""
        done = self.simplify(condition)
        scalar = done.value if done.__class__ is Broadcast else done
        return scalar.__class__ is Const and bool(scalar.value)

    def upper_bound(self, e: Expr) -> int | None:
        """A constant that the exact scalar `e` does not exceed, better than `bounds` where quotients or extrema cancel."""
        terms, constant = affine(self.simplify(e))
        least = self._proofs.least(negated(terms), -constant)
        return None if least is None else -least

    # ------------------------------------------------------------------------------------------------------ simplification

    def simplify(self, e: Expr) -> Expr:
        """An equal expression in canonical form; the same object if it is in that form."""
        self._chain = 0
        return self._visit(e)

    def _visit(self, e: Expr) -> Expr:
        memo = self._memo
        found = memo.get(e)
        if found is None:
            if memo is not self._lasting_memo and not e.holds & HAS_CHOICE:  # no constraint changes its form: simplified once for all
                memo = self._lasting_memo
                found = memo.get(e)
                if found is not None:
                    self._memo[e] = found
                    return found
            found = _HANDLERS[e.__class__](self, e)
            memo[e] = memo[found] = found
        return found

    def _again(self, result: Expr, e: Expr) -> Expr:
        """The canonical form of what `e` was rewritten to."""
        if result is e:
            return e
        self._chain += 1
        if self._chain > _REWRITES:
            raise InternalError(f"simplification does not end: after {_REWRITES} rewrites in a row the expression is {result}")
        done = self._visit(result)
        self._chain -= 1
        return done

    def _rewritten(self, e: Any, tables: Any, first: Expr) -> Expr:
        """`e`, whose operands are canonical, after the first rule of its table that applies, `first` being its first operand."""
        tried = 0
        for rule in tables[e.__class__][first.__class__]:
            tried += 1
            result = rule(e, self)
            if result is not None:
                COUNTERS.rules_tried += tried
                COUNTERS.rules_hit += 1
                return self._again(result, e)
        COUNTERS.rules_tried += tried
        return e  # type: ignore[no-any-return]

    def _leaf(self, e: Expr) -> Expr:
        return e

    def _var(self, e: Expr) -> Expr:
        value = self._values.get(e)
        return e if value is None else self._visit(value)

    def _operands(self, e: Expr) -> Expr:
        old = e.children
        changed = False
        new = []
        for operand in old:
            done = self._visit(operand)
            changed = changed or done is not operand
            new.append(done)
        if not changed:
            return e
        made = e.with_children(new)
        if made.__class__ is e.__class__:  # nothing is rewritten but the operands
            for operand, done in zip(made.children, new, strict=True):
                if operand is not done:
                    break
            else:
                return made
        return self._again(made, e)

    def _float_operation(self, e: Any) -> Expr:
        a = self._visit(e.a)
        b = self._visit(e.b)
        if a is not e.a or b is not e.b:
            made = e.make(a, b)
            if made.__class__ is not e.__class__ or made.a is not a or made.b is not b:
                return self._again(made, e)
            e = made
        return self._rewritten(e, ANY_RULES, a) if b.__class__ is Const else e

    # ---- sums

    def _sum(self, e: Any) -> Expr:
        if not e.exact or e.dtype.lanes > 1:
            return self._float_operation(e)
        terms: Terms = {}
        constant = self._collect(e, 1, terms)
        if len(terms) > 1:
            constant += join_digits(terms, self.simplify)
            if self._ranks:
                terms = self._by_rank(terms)
        return build(terms, constant, e.dtype)

    def _by_rank(self, terms: Terms) -> Terms:
        """The terms in the order `rank` asks for."""
        last = 0
        ranks = self._ranks
        sorted_already = True
        for atom in terms:
            rank = ranks.get(atom)
            if rank is None:
                rank = self._rank_of(atom)
            if rank < last:
                sorted_already = False
            last = rank
        return terms if sorted_already else {atom: terms[atom] for atom in sorted(terms, key=ranks.__getitem__)}

    def _rank_of(self, e: Expr) -> int:
        """The highest rank of a variable in `e`; 0 of what was given none."""
        found = self._ranks.get(e)
        if found is None:
            found = 0
            for var in e.variables:
                found = max(found, self._ranks.get(var, 0))
            self._ranks[e] = found
        return found

    def _collect(self, e: Any, scale: int, terms: Terms) -> int:
        """`affine.collect` with every atom simplified."""
        cls = e.__class__
        if cls is Var:
            value = self._values.get(e)
            if value is not None:
                return collect(self._visit(value), scale, terms)
        elif cls is Add:
            return self._collect(e.a, scale, terms) + self._collect(e.b, scale, terms)
        elif cls is Mul:
            if e.b.__class__ is Const:
                return self._collect(e.a, scale * e.b.value, terms)
            return self._collect_product(e, scale, terms)
        elif cls is Const:
            return scale * e.value  # type: ignore[no-any-return]
        elif cls is Sub:
            return self._collect(e.a, scale, terms) + self._collect(e.b, -scale, terms)
        elif cls is Cast and e.value.exact and e.value.dtype.is_integer:
            return self._collect(e.value, scale, terms)
        else:
            done = self._visit(e)
            if done is not e:
                return collect(done, scale, terms)
        total = terms.get(e, 0) + scale  # add_term, written out
        if total:
            terms[e] = total
        else:
            terms.pop(e, None)
        return 0

    def _collect_product(self, e: Any, scale: int, terms: Terms) -> int:
        """Of factors that are no constants."""
        atom, more = product(self._visit(e.a), self._visit(e.b))
        return collect(atom, scale * more, terms) if more else 0

    # ---- quotients and remainders

    def _floordiv(self, e: Any) -> Expr:
        return self._division(e, quotient)

    def _floormod(self, e: Any) -> Expr:
        return self._division(e, remainder)

    def _division(self, e: Any, by_constant: Callable[..., tuple[Terms, int]]) -> Expr:
        a: Any = self._visit(e.a)
        b: Any = self._visit(e.b)
        if a is not e.a or b is not e.b:
            return self._again(e.make(a, b), e)
        if not e.exact:
            low, high = self.bounds(e)
            return const(low, e.dtype) if low is not None and low == high else e
        if e.dtype.lanes == 1:
            if b.__class__ is Const:
                if b.value > 0:
                    result = build(*by_constant(*affine(a), b.value, e.dtype, self.bounds), e.dtype)
                    if result is not e:
                        return self._again(result, e)
            else:
                shorter = self._without_multiples(a, b, e.dtype, by_constant is quotient)
                if shorter is not None:
                    return self._again(shorter, e)
        return self._rewritten(e, EXACT_RULES, a)

    def _without_multiples(self, a: Expr, b: Expr, kind: DType, keep_quotient: bool) -> Expr | None:
        """(x * b + y) // b = x + y // b, and (x * b + y) % b = y % b; None where nothing of `a` is a multiple of `b`."""
        terms, constant = affine(a)
        whole: Terms = {}
        rest: Terms = {}
        units = 0
        for atom, factor in terms.items():
            others = [f for f in factors(atom) if f is not b]
            if len(others) == len(factors(atom)):
                rest[atom] = factor
            elif others:
                again = [b] * (len(factors(atom)) - len(others) - 1)
                add_term(whole, product(*others, *again)[0], factor)
            else:
                units += factor
        if len(rest) == len(terms):
            return None
        left = build(rest, constant, kind)
        if not keep_quotient:
            return left % b
        return build(whole, units, kind) + left // b

    # ---- extrema, comparisons, conditions

    def _extremum(self, e: Any) -> Expr:
        a, b = self._visit(e.a), self._visit(e.b)
        if a is not e.a or b is not e.b:
            return self._again(e.make(a, b), e)
        if e.exact:
            return self._rewritten(e, EXACT_RULES, a)
        if e.dtype.is_integer:
            for low, high in ((a, b), (b, a)):
                if self._bounds_apart(low, high, 0):
                    chosen: Expr = low if e.__class__ is Min else high
                    return chosen
        return e  # type: ignore[no-any-return]

    def _comparison(self, e: Any) -> Expr:
        known = self._truths.get(e)
        if known is not None:
            return const(known, e.dtype)
        a, b = self._visit(e.a), self._visit(e.b)
        if a is not e.a or b is not e.b:
            return self._again(e.make(a, b), e)
        if exact_operands(e):
            result = (self._canonical_order if e.__class__ in (LT, LE) else self._canonical_equality)(e)
            if result is not e:
                return self._again(result, e)
            return self._rewritten(e, EXACT_RULES, a)
        if a.dtype.is_integer:
            return self._other_comparison(e)
        return e  # type: ignore[no-any-return]

    def _canonical_order(self, e: Any) -> Expr:
        """a < b and a <= b as `sum < limit`, what is taken away moved to the right."""
        terms, constant = difference(e.a, e.b)
        limit = -constant + (e.__class__ is LE)
        if self._proofs.never_negative(negated(terms), limit - 1):
            return const(True, BOOL)
        if self._proofs.never_negative(terms, -limit):
            return const(False, BOOL)
        terms, limit = less_than(terms, limit, self.bounds)
        return _order(terms, limit, e.a.dtype)

    def _canonical_equality(self, e: Any) -> Expr:
        """a == b and a != b without a common factor, what is taken away moved to the right."""
        terms, constant = difference(e.a, e.b)
        common = common_factor(terms)
        minus = negated(terms)
        if (constant % common if common else constant) or self._proofs.never_negative(terms, constant - 1) or self._proofs.never_negative(minus, -constant - 1):
            return const(e.__class__ is NE, BOOL)
        if self._proofs.never_negative(terms, constant) and self._proofs.never_negative(minus, -constant):
            return const(e.__class__ is EQ, BOOL)
        kind = e.a.dtype
        left = {atom: factor // common for atom, factor in terms.items() if factor > 0}
        right = {atom: -factor // common for atom, factor in terms.items() if factor < 0}
        if not left:
            left, right, constant = right, left, -constant
        return e.make(build(left, 0, kind), build(right, -constant // common, kind))  # type: ignore[no-any-return]

    def _other_comparison(self, e: Any) -> Expr:
        """Of vectors, and of integers that may wrap: by bounds, and by the ends of ramps."""
        low, high = self.bounds(e)
        if low == high:
            return const(bool(low), e.dtype)
        if e.__class__ in (LT, LE) and e.a.exact and e.b.exact:
            distance = int(e.__class__ is LT)
            if self._apart(e.a, e.b, distance):
                return const(True, e.dtype)
            if self._apart(e.b, e.a, 1 - distance):
                return const(False, e.dtype)
        return e  # type: ignore[no-any-return]

    def _not(self, e: Any) -> Expr:
        known = self._truths.get(e)
        return self._operands(e) if known is None else const(known, e.dtype)

    def _junction(self, e: Any) -> Expr:
        """And, Or: the parts in order, each pair of them tried by the rules."""
        known = self._truths.get(e)
        if known is not None:
            return const(known, e.dtype)
        parts: list[Expr] = []
        if not self._add_part(e.__class__, e, parts):
            return const(e.__class__ is Or, e.dtype)
        if not parts:
            return const(e.__class__ is And, e.dtype)
        result = parts[0]
        for part in parts[1:]:
            result = e.make(result, part)
        return result

    def _add_part(self, cls: type[Any], part: Any, parts: list[Expr]) -> bool:
        """Add a condition to those joined by `cls`; False where that decides the whole."""
        if part.__class__ is cls:
            return self._add_part(cls, part.a, parts) and self._add_part(cls, part.b, parts)
        done: Any = self._visit(part)
        if done.__class__ is cls:
            return self._add_part(cls, done.a, parts) and self._add_part(cls, done.b, parts)
        scalar = done.value if done.__class__ is Broadcast else done
        if scalar.__class__ is Const:
            return bool(scalar.value) is (cls is And)
        tables = ANY_RULES[cls]
        for position, other in enumerate(parts):
            if other is done:
                return True
            pair = _Pair(other, done)
            for rule in tables[other.__class__]:
                COUNTERS.rules_tried += 1
                result = rule(pair, self)
                if result is not None:
                    COUNTERS.rules_hit += 1
                    if result is other:
                        return True
                    del parts[position]
                    return self._add_part(cls, result, parts)
        parts.append(done)
        return True

    # ---- the rest

    def _choice(self, e: Any) -> Expr:
        condition: Any = self._visit(e.condition)
        if condition.__class__ is Const:
            return self._visit(e.then if condition.value else e.otherwise)
        guards = e.__class__ is IfThenElse
        then = self._arm(condition, e.then, guards)
        otherwise = self._arm(logical_not(condition), e.otherwise, guards)
        if condition is not e.condition or then is not e.then or otherwise is not e.otherwise:
            return self._again(e.make(condition, then, otherwise), e)
        return self._rewritten(e, ANY_RULES, condition)

    def _arm(self, condition: Expr, arm: Expr, guards: bool) -> Expr:
        """An arm that counts only where `condition` holds. Unless the condition `guards` it, it is evaluated elsewhere too: then what it
        reads must stay inside its buffer without the help of the condition."""
        if condition.dtype.lanes > 1 or not arm.holds & HAS_CHOICE or (arm.holds & HAS_LOAD and not guards):
            return self._visit(arm)
        with Scope(self, condition):
            return self._visit(arm)

    def _cast(self, e: Any) -> Expr:
        if e.exact and e.dtype.lanes == 1 and e.value.dtype.is_integer:
            return self._sum(e)
        value: Any = self._visit(e.value)
        if value.__class__ is Cast and _holds(value.dtype, value.value.dtype) and not (value.exact and not value.value.exact):
            value = value.value
        return e if value is e.value else self._again(cast(value, e.dtype), e)

    def _load(self, e: Any) -> Expr:
        changed = False
        indices = []
        for index in e.indices:
            done = self._visit(index)
            changed = changed or done is not index
            indices.append(done)
        predicate = None if e.predicate is None else self._visit(e.predicate)
        return load(e.buffer, indices, predicate) if changed or predicate is not e.predicate else e


class _Pair:
    """Two parts of a condition, in the place of the node that would join them."""

    __slots__ = ("a", "b")

    def __init__(self, a: Expr, b: Expr):
        self.a, self.b = a, b


def _order(terms: Terms, limit: int, kind: DType) -> Expr:
    """`sum < limit`, what is taken away moved to the right."""
    left = {atom: factor for atom, factor in terms.items() if factor > 0}
    right = {atom: -factor for atom, factor in terms.items() if factor < 0}
    if not left:
        return const(-limit, kind) < build(right, 0, kind)
    if not right:
        return build(left, 0, kind) < const(limit, kind)
    if limit == 1:
        return build(left, 0, kind) <= build(right, 0, kind)
    if limit < 0:
        return build(left, -limit, kind) < build(right, 0, kind)
    return build(left, 0, kind) < build(right, limit, kind)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, so that a cast through `wide` can be left out."""
    wide, narrow = wide.element, narrow.element
    if narrow.is_bool:
        return not wide.is_bool
    if narrow.is_float:
        return wide.is_float and wide.bits >= 32 and wide.bits > narrow.bits
    if wide.is_float:
        return {"float32": 16, "float64": 32}.get(wide, 0) >= narrow.bits
    return bool(wide.low <= narrow.low and narrow.high <= wide.high)


_HANDLERS: dict[type, Callable[[Analyzer, Any], Expr]] = {
    Var: Analyzer._var,
    Const: Analyzer._leaf,
    Add: Analyzer._sum,
    Sub: Analyzer._sum,
    Mul: Analyzer._sum,
    Div: Analyzer._float_operation,
    FloorDiv: Analyzer._floordiv,
    FloorMod: Analyzer._floormod,
    Min: Analyzer._extremum,
    Max: Analyzer._extremum,
    LT: Analyzer._comparison,
    LE: Analyzer._comparison,
    EQ: Analyzer._comparison,
    NE: Analyzer._comparison,
    And: Analyzer._junction,
    Or: Analyzer._junction,
    Not: Analyzer._not,
    Select: Analyzer._choice,
    IfThenElse: Analyzer._choice,
    Cast: Analyzer._cast,
    Load: Analyzer._load,
    Call: Analyzer._operands,
    Ramp: Analyzer._operands,
    Broadcast: Analyzer._operands,
}
