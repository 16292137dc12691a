"""Partition: loops are split where a guard stops holding, so that vectorised and unrolled bodies run without it nearly everywhere.

A guard is a condition of an `If`, or of a choice inside a value (padding), taken apart at its `and`s, that can be written `sum of multiples >= 0`.
It is split at the innermost serial or parallel loop `v` in which something moves, and whose step is not small against what moves inside it
(otherwise nearly every piece would be a border), a choice further out where that makes few borders; without such a loop, at the innermost one.
For all values of the loops inside `v`

    for v in range(n): if a*v + inner <= c: body   ->   for v in range(t): body                      # holds for every lane and copy
                                                        for w in range(n - t): if a*(w + t) + ...: body

with up to three pieces for conditions with two sides. A parallel loop is not split (its iterations would be shared out twice); its body becomes
`if guard holds for all inner loops: clean body, else: guarded body`. Where nothing moves inside `v` the loop is only shortened.
A body gets at most `max_copies` copies: conditions that differ between lanes are served first, and inner loops. Inside a guarded copy nothing is
split again: few iterations run there.

Not for guards that no vectorised or unrolled body stands under, and not for conditions that read memory. Which guards there are, and where each is
split, is found by guards.py; here it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..affine import Terms, build, difference
from ..bounds import constant_bounds, sum_bounds
from ..dtype import BOOL, INT32, INT64, DType
from ..expr import HAS_CHOICE, Const, Expr, Var, add, const, le, logical_and, maximum, minimum, sub
from ..stmt import Allocate, Bind, For, Func, If, Produce, Seq, Stmt, seq
from ..verify import CLOSED, PARTITIONED, TYPED
from ..visit import Substitute
from .copies import Copy
from .guards import FAST_KINDS, Guard, GuardFinder, KernelGuards
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True)
class Partition(Pass):
    """Split loops so that guards leave the bodies where they cost most. Options: `max_copies` of a body; `of_kernels`: split where all threads of a block
    decide alike, the body of a kernel into one for whole tiles and one for others, and serial loops where blocks and sizes tell.
    """

    name: ClassVar[str] = "partition"
    requires: ClassVar[tuple[str, ...]] = (TYPED, CLOSED)
    gives: ClassVar[tuple[str, ...]] = (PARTITIONED,)

    max_copies: int = 4
    of_kernels: bool = False

    def run(self, func: Func, target: Target) -> Func:
        finder = KernelGuards() if self.of_kernels else GuardFinder()
        finder.statement(func.body, False)
        guards_at = finder.affordable(self.max_copies)
        return func.with_body(_Splitter(guards_at, self.max_copies).statement(func.body)[0]) if guards_at else func


@dataclass
class _Splitter:
    """Rebuilds statements from inside out; each answer is (statement, copies of a body in it)."""

    guards_at: dict[Var, list[Guard]]
    max_copies: int
    pending: list[Guard] = field(default_factory=list)  # guards of the loops around, whose conditions may be renamed by copies

    def statement(self, s: Stmt) -> tuple[Stmt, int]:
        """`s` with its loops split."""
        kind = s.__class__
        if kind is For:
            return self._loop(s)  # type: ignore[arg-type]
        if kind is Seq:
            results = [self.statement(child) for child in s.body]  # type: ignore[attr-defined]
            copies = max((c for _, c in results), default=1)
            if all(new is old for (new, _), old in zip(results, s.body, strict=True)):  # type: ignore[attr-defined]
                return s, copies
            return seq(*[new for new, _ in results]), copies
        if kind is If:
            then, copies = self.statement(s.then)  # type: ignore[attr-defined]
            otherwise = s.otherwise  # type: ignore[attr-defined]
            if otherwise is not None:
                otherwise, more = self.statement(otherwise)
                copies = max(copies, more)
            unchanged = then is s.then and otherwise is s.otherwise  # type: ignore[attr-defined]
            return (s if unchanged else If(s.condition, then, otherwise)), copies  # type: ignore[attr-defined]
        if kind is Allocate or kind is Produce or kind is Bind:
            body, copies = self.statement(s.body)  # type: ignore[attr-defined]
            if body is s.body:  # type: ignore[attr-defined]
                return s, copies
            if kind is Allocate:
                return Allocate(s.buffer, body, s.place), copies  # type: ignore[attr-defined]
            return (s.with_body(body) if kind is Produce else Bind(s.var, s.value, body)), copies  # type: ignore[attr-defined]
        return s, 1

    def _loop(self, s: For) -> tuple[Stmt, int]:
        guards = self.guards_at.get(s.var, [])
        around = len(self.pending)
        self.pending.extend(guards)
        body, copies = self.statement(s.body)
        del self.pending[around:]
        if guards:
            split = self._whole_test(s, guards, body, copies) if s.kind == "parallel" or any(g.step == 0 for g in guards) else None
            if split is None and s.kind != "parallel":
                split = self._pieces(s, [g for g in guards if g.step], body, copies)
            if split is not None:
                return split
        return s.with_body(body), copies

    def _whole_test(self, s: For, guards: Sequence[Guard], body: Stmt, copies: int) -> tuple[Stmt, int] | None:
        """`if all guards hold for the whole iteration: clean body, else: guarded body`."""
        if copies + 1 > self.max_copies:
            return None
        test: Expr = const(True, BOOL)
        for guard in guards:
            terms = dict(guard.rest)
            if guard.step:
                terms[s.var] = guard.step
            test = logical_and(test, _at_least_zero(terms, guard.constant + guard.least_inner, guard.dtype))
        if isinstance(test, Const):
            return None
        clean = _Settle(guards, True, {}).rewrite_statement(body)
        return s.with_body(If(test, clean, self._copy(s.body, {}))), copies + 1

    def _pieces(self, s: For, guards: Sequence[Guard], body: Stmt, copies: int) -> tuple[Stmt, int] | None:
        """The loop in up to three pieces, the middle one without guards."""
        if not guards:
            return None
        kind = s.var.dtype if all(g.dtype is INT32 for g in guards) else INT64
        zero, lows, highs = const(0, kind), [g for g in guards if g.step > 0], [g for g in guards if g.step < 0]
        from_here = dict.fromkeys(g.crossing(g.least_inner, kind) for g in lows)  # all lanes do from here
        up_to = dict.fromkeys(g.crossing(g.least_inner, kind) for g in highs)
        lets: list[tuple[Var, Expr]] = []
        first = _named(_smaller(_fold(_larger, zero, from_here), s.extent), f"{s.var.name}_first", lets)
        last = _named(_larger(_fold(_smaller, s.extent, up_to), first), f"{s.var.name}_last", lets)
        # Before `start` and from `end` on no lane does, and nothing else stands in the body.
        start, end = zero, s.extent
        if lows and _is_empty(_Settle(lows, False, {}).rewrite_statement(s.body)):
            some = dict.fromkeys(g.crossing(g.most_inner, kind) for g in lows)
            start = first if some == from_here and len(some) == 1 else _larger(zero, _fold(_smaller, first, some))
        if highs and _is_empty(_Settle(highs, False, {}).rewrite_statement(s.body)):
            some = dict.fromkeys(g.crossing(g.most_inner, kind) for g in highs)
            end = last if some == up_to and len(some) == 1 else _smaller(_fold(_larger, last, some), s.extent)
        starts, sizes = (start, first, last), (sub(first, start), sub(last, first), sub(end, last))
        if _is_zero(sizes[1]):  # all together they hold nowhere; those that matter most might
            most = max(g.weight for g in guards)
            return self._pieces(s, [g for g in guards if g.weight == most], body, copies) if any(g.weight < most for g in guards) else None
        if s.kind in FAST_KINDS and not all(e.__class__ is Const for e in sizes):
            return None
        pieces: list[Stmt] = []
        for i, (begin, size) in enumerate(zip(starts, sizes, strict=True)):
            if _is_zero(size):
                continue
            once = size.__class__ is Const and size.value == 1
            bounds = _piece_bounds(size, s.var)
            var = s.var if _is_zero(begin) and bounds == s.var.bounds else s.var.fresh(bounds=bounds)
            variables: dict[Var, Expr] = {s.var: begin} if once else {} if var is s.var else {s.var: add(var, begin)}
            inner = _Settle(guards, True, variables).rewrite_statement(body) if i == 1 else self._copy(s.body, variables)
            pieces.append(inner if once else For(var, size, s.kind, inner, s.thread, s.pragmas))
            if len(pieces) + copies - 1 > self.max_copies:
                return None
        result = seq(*pieces)
        for let, value in reversed(lets):
            result = Bind(let, value, result)
        return result, copies + len(pieces) - 1

    def _copy(self, body: Stmt, variables: dict[Var, Expr]) -> Stmt:
        """`body` once more, with names of its own; guards of loops around learn what their conditions are called in it."""
        copier = Copy(variables)
        new = copier.rewrite_statement(body)
        for guard in self.pending:
            for condition in list(guard.conditions):
                renamed = copier.memo.get(condition)
                if renamed is not None and not any(renamed is c for c in guard.conditions):
                    guard.conditions.append(renamed)
        return new


class _Settle(Substitute):
    """Variables replaced, and the conditions of guards by what they are known to be. Loops left with nothing to do go."""

    def __init__(self, guards: Sequence[Guard], truth: bool, variables: dict[Var, Expr]):
        super().__init__(variables)
        for guard in guards:
            for condition in guard.conditions:
                self.memo[condition] = const(truth, BOOL)

    def rewrite(self, node: Expr) -> Expr:
        if not node.holds & HAS_CHOICE and node.variables.isdisjoint(self.variables):
            return node
        return super().rewrite(node)

    def rewrite_For(self, node: For) -> Stmt:
        changed: For = self.rewrite_children(node)
        return changed.body if _is_empty(changed.body) else changed

    def rewrite_Seq(self, node: Seq) -> Stmt:
        new = tuple([self.rewrite_statement(child) for child in node.body])
        return node if new == node.body else seq(*[s for s in new if not _is_empty(s)])

    def rewrite_Wrapper(self, node: Allocate | Produce | Bind) -> Stmt:
        changed = self.rewrite_children(node)
        return changed.body if _is_empty(changed.body) else changed  # type: ignore[no-any-return]

    rewrite_Allocate = rewrite_Produce = rewrite_Bind = rewrite_Wrapper


def _is_zero(e: Expr) -> bool:
    return e.__class__ is Const and e.value == 0


def _is_empty(s: Stmt) -> bool:
    return s.__class__ is Seq and not s.body


def _named(e: Expr, name: str, lets: list[tuple[Var, Expr]]) -> Expr:
    """A variable for `e`, to be bound to it by the caller; `e` itself where it is a constant or a variable."""
    if e.__class__ is Const or e.__class__ is Var:
        return e
    var = Var(name, e.dtype, constant_bounds(e))
    lets.append((var, e))
    return var


def _piece_bounds(size: Expr, whole: Var) -> tuple[int | None, int | None]:
    """The bounds of a variable that counts `size` of the iterations of `whole`."""
    high = constant_bounds(size)[1]
    limit = whole.bounds[1]
    if high is None:
        return 0, limit
    return 0, high - 1 if limit is None else min(high - 1, limit)


def _at_least_zero(terms: Terms, constant: int, kind: DType) -> Expr:
    """`terms + constant >= 0`, without negative factors."""
    left: Terms = {atom: -factor for atom, factor in terms.items() if factor < 0}
    right: Terms = {atom: factor for atom, factor in terms.items() if factor > 0}
    return le(build(left, max(-constant, 0), kind), build(right, max(constant, 0), kind))


def _never_more(a: Expr, b: Expr) -> bool:
    """Whether a <= b always."""
    terms, constant = difference(b, a)
    low = sum_bounds(terms, constant, constant_bounds)[0]
    return low is not None and low >= 0


def _fold(choose: Callable[[Expr, Expr], Expr], start: Expr, others: Iterable[Expr]) -> Expr:
    for other in others:
        start = choose(start, other)
    return start


def _smaller(a: Expr, b: Expr) -> Expr:
    return a if _never_more(a, b) else b if _never_more(b, a) else minimum(a, b)


def _larger(a: Expr, b: Expr) -> Expr:
    return b if _never_more(a, b) else a if _never_more(b, a) else maximum(a, b)
