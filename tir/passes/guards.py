"""The guards that stand in the way of vectorised and unrolled bodies, and the loop that is best split for each. partition.py splits it, and says
what a guard is and which loop that is."""

from __future__ import annotations

from dataclasses import dataclass

from ..affine import Terms, build, difference
from ..bounds import constant_bounds
from ..dtype import INT32, INT64, DType
from ..expr import HAS_CHOICE, HAS_COST, LE, LT, Call, Expr, IfThenElse, Load, Select, Var, add, const, floordiv, sub
from ..stmt import Allocate, Bind, For, If, Produce, Seq, Stmt, Store
from ..visit import statements_in, walk
from .lanes import conjuncts

FAST_KINDS = ("vectorized", "unrolled")
_MANY = 8  # iterations of which two may be borders


@dataclass
class Guard:
    """A condition to be split at a loop `v`: `step * v + rest + inner >= 0`.

    `least_inner` and `most_inner` bound what the terms of loops inside `v` add; `step` is 0 where `v` is hidden in other terms. `conditions`: the
    node, and what it became in copies made meanwhile.
    """

    conditions: list[Expr]
    step: int
    rest: Terms  # of what is known outside `v` (and, with step 0, of `v`)
    constant: int
    least_inner: int
    most_inner: int
    dtype: DType
    weight: int = 0  # how much it costs where it stands; with 0 it only goes with others

    def crossing(self, inner: int, kind: DType) -> Expr:
        """With `inner` for the inner terms: the first value of `v` where the guard holds (step > 0), or from which on it does not (step < 0)."""
        bound = build(self.rest, self.constant + inner, kind)
        step = const(abs(self.step), kind)
        if self.step > 0:
            return floordiv(sub(sub(step, const(1, kind)), bound), step)
        return add(floordiv(bound, step), const(1, kind))


class GuardFinder:
    """Collects the guards worth splitting, by the variable of the loop to split."""

    def __init__(self) -> None:
        self.guards_at: dict[Var, list[Guard]] = {}
        self._around: dict[Var, frozenset[Var]] = {}  # the loops around each one that has guards
        self._loops: list[For] = []
        self._bound: dict[Var, int] = {}  # variable -> its depth among `_loops`
        self._let: set[Var] = set()
        self._has_fast: dict[int, bool] = {}
        self._seen: set[Expr] = set()
        self._variables: dict[Expr, frozenset[Var] | None] = {}

    def statement(self, s: Stmt, in_fast: bool) -> None:
        """See the guards in `s`; `in_fast`: a vectorised or unrolled loop is around it."""
        kind = s.__class__
        if kind is For:
            fast = in_fast or s.kind in FAST_KINDS  # type: ignore[attr-defined]
            self._bound[s.var] = len(self._loops)  # type: ignore[attr-defined]
            self._loops.append(s)  # type: ignore[arg-type]
            self.statement(s.body, fast)  # type: ignore[attr-defined]
            self._loops.pop()
            del self._bound[s.var]  # type: ignore[attr-defined]
        elif kind is Seq:
            for child in s.body:  # type: ignore[attr-defined]
                self.statement(child, in_fast)
        elif kind is If:
            wanted = in_fast or _has_fast_loop(s, self._has_fast)
            for condition in conjuncts(s.condition):  # type: ignore[attr-defined]
                self._consider(condition, True, wanted)
            self.statement(s.then, in_fast)  # type: ignore[attr-defined]
            if s.otherwise is not None:  # type: ignore[attr-defined]
                self.statement(s.otherwise, in_fast)  # type: ignore[attr-defined]
        elif kind is Bind:
            self._let.add(s.var)  # type: ignore[attr-defined]
            if in_fast:
                self._choices(s.value)  # type: ignore[attr-defined]
            self.statement(s.body, in_fast)  # type: ignore[attr-defined]
        elif kind is Allocate or kind is Produce:
            self.statement(s.body, in_fast)  # type: ignore[attr-defined]
        elif kind is Store and in_fast:
            self._choices(s.value)  # type: ignore[attr-defined]
            for index in s.indices:  # type: ignore[attr-defined]
                self._choices(index)

    def _choices(self, e: Expr) -> None:
        if not e.holds & HAS_CHOICE or e in self._seen:
            return
        self._seen.add(e)
        if e.__class__ is IfThenElse or e.__class__ is Select:
            for condition in conjuncts(e.condition):
                if condition not in self._seen:
                    self._seen.add(condition)
                    self._consider(condition, False, True)
        for child in e.children:
            self._choices(child)

    def _consider(self, condition: Expr, from_if: bool, wanted: bool) -> None:
        if condition.__class__ is LT:
            terms, constant = difference(condition.b, condition.a)
            constant -= 1
        elif condition.__class__ is LE:
            terms, constant = difference(condition.b, condition.a)
        else:
            return
        operand = condition.a
        if not (operand.exact and condition.b.exact) or operand.dtype.lanes > 1:
            return
        depth_of: dict[Expr, int] = {}  # atom -> depth of the innermost loop in it, -1: outside all
        depths: set[int] = set()
        for atom in terms:
            found = self._variables_of(atom)
            if found is None or not found.isdisjoint(self._let):
                return
            depth_of[atom] = -1
            for variable in found:
                depth = self._bound.get(variable, -1)
                depths.add(depth)
                depth_of[atom] = max(depth_of[atom], depth)
        if not from_if and not any(0 <= d < len(self._loops) and self._loops[d].kind in FAST_KINDS for d in depths):
            return  # the same for all lanes and copies
        chosen = self._chosen(condition, from_if, terms, constant, depth_of, depths)
        if chosen is not None:
            depth, guard = chosen
            lanes = any(d >= 0 and self._loops[d].kind == "vectorized" for d in depths if d < len(self._loops))
            guard.weight = (1 + from_if + 2 * lanes) if wanted else 0
            self.guards_at.setdefault(self._loops[depth].var, []).append(guard)
            self._around.setdefault(self._loops[depth].var, frozenset(each.var for each in self._loops[:depth]))

    def _chosen(self, condition: Expr, from_if: bool, terms: Terms, constant: int, depth_of: dict[Expr, int], depths: set[int]) -> tuple[int, Guard] | None:
        """The depth of the loop to split for a condition, and the guard there."""
        chosen: tuple[int, Guard] | None = None
        settled = False
        for depth in sorted(depths, reverse=True):
            if depth < 0 or self._loops[depth].kind not in ("serial", "parallel"):
                continue
            candidate = self._at(depth, condition, terms, constant, depth_of)
            if candidate is None:
                continue
            guard, pays = candidate
            # A choice is settled further out where few iterations there are borders: a split in the middle of a reduction makes its loops short.
            few = not from_if and (self._loops[depth].constant_extent or _MANY) >= _MANY
            if chosen is None or (pays and (not settled or few)):
                chosen = depth, guard
            settled = settled or pays
            if settled and from_if:
                break
        if chosen is None and len(depths - {-1}) == 1 and len(terms) == 1:  # only a vectorised or unrolled loop, against a constant
            (depth,) = depths
            candidate = self._at(depth, condition, terms, constant, depth_of)
            chosen = None if candidate is None else (depth, candidate[0])
        return chosen

    def affordable(self, max_copies: int) -> dict[Var, list[Guard]]:
        """The guards of the loops to split: those that matter most first, as long as no body would get too many copies; inner loops before outer ones."""
        chosen: dict[Var, int] = {}  # and the copies each adds
        ranked = [(max(g.weight for g in guards), len(self._around[var]), var) for var, guards in self.guards_at.items()]
        for weight, _, var in sorted(ranked, key=lambda entry: entry[:2], reverse=True):
            guards = self.guards_at[var]
            if any(g.step == 0 for g in guards):
                more = 1
            else:
                more = len({g.step > 0 for g in guards if g.least_inner != g.most_inner})
            related = [n for other, n in chosen.items() if other in self._around[var] or var in self._around[other]]
            if weight and 1 + sum(related) + more <= max_copies:
                chosen[var] = more
        return {var: guards for var, guards in self.guards_at.items() if var in chosen}

    def _at(
        self,
        depth: int,
        condition: Expr,
        terms: Terms,
        constant: int,
        depth_of: dict[Expr, int],
    ) -> tuple[Guard, bool] | None:
        """The guard to split at the loop of this depth, and whether few of its iterations are borders."""
        loop = self._loops[depth]
        least, most = 0, 0
        rest: Terms = {}
        step = terms.get(loop.var, 0)
        hidden = False
        for atom, factor in terms.items():
            if depth_of[atom] > depth:
                variables = self._variables_of(atom)
                assert variables is not None
                if atom.__class__ is not Var and any(v in self._bound and self._bound[v] <= depth for v in variables):
                    return None  # moves with loops on both sides of `v`
                low, high = constant_bounds(atom)
                if low is None or high is None:
                    return None
                least += factor * (low if factor > 0 else high)
                most += factor * (high if factor > 0 else low)
            elif atom is not loop.var:
                rest[atom] = factor
                hidden = hidden or depth_of[atom] == depth
        if hidden:
            if step:
                rest[loop.var] = step
            step = 0
        elif not step:
            return None
        if least == most and (hidden or loop.kind == "parallel"):
            return None  # it is decided at this loop already
        kind = INT64 if any(atom.dtype is INT64 for atom in terms) else INT32
        return Guard([condition], step, rest, constant, least, most, kind), 0 < most - least < 2 * abs(step)

    def _variables_of(self, e: Expr) -> frozenset[Var] | None:
        """The variables in `e`; None where it reads memory or calls something."""
        if e in self._variables:
            return self._variables[e]
        found: frozenset[Var] | None = e.variables
        if e.holds & HAS_COST and any(n.__class__ is Load or n.__class__ is Call for n in walk(e)):
            found = None
        self._variables[e] = found
        return found


_INNERMOST = 1 << 30


class KernelGuards(GuardFinder):
    """Those of kernels. A guard is split where all threads of a block decide alike: threads count as loops inside all others, and a serial loop is split
    only at a place that blocks and sizes tell; else the body of the kernel is, into that of whole tiles and that of others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._body = -1  # the depth of the innermost loop over threads

    def statement(self, s: Stmt, in_fast: bool) -> None:
        if not isinstance(s, For) or not _over_threads(s):
            super().statement(s, in_fast or (self._body >= 0 and isinstance(s, For)))
            return
        self._bound[s.var] = _INNERMOST
        before = self._body
        if not _over_threads(s.body):
            self._body = len(self._loops)
        self._loops.append(s)
        self.statement(s.body, in_fast)
        self._loops.pop()
        self._body = before
        del self._bound[s.var]

    def _chosen(self, condition: Expr, from_if: bool, terms: Terms, constant: int, depth_of: dict[Expr, int], depths: set[int]) -> tuple[int, Guard] | None:
        if self._body < 0:
            return None
        outermost = min((d for d in depths if self._body < d < _INNERMOST and self._loops[d].kind == "serial"), default=None)
        candidate = None if outermost is None else self._at(outermost, condition, terms, constant, depth_of)
        if outermost is not None and candidate is not None:
            guard, pays = candidate
            keeps_registers = not guard.rest or self._loops[outermost].constant_extent is None  # a loop over them stays of constant extent
            if guard.step and pays and keeps_registers:
                return outermost, guard
        of_blocks = self._for_whole_body(condition, terms, constant, depth_of)
        return None if of_blocks is None else (self._body, of_blocks)

    def _for_whole_body(self, condition: Expr, terms: Terms, constant: int, depth_of: dict[Expr, int]) -> Guard | None:
        """The guard that asks whether a condition holds for all threads and iterations of a block; None where blocks do not matter."""
        least = most = 0
        rest: Terms = {}
        for atom, factor in terms.items():
            if depth_of[atom] < self._body:
                rest[atom] = factor
                continue
            variables = self._variables_of(atom)
            low, high = constant_bounds(atom)
            if variables is None or low is None or high is None or any(self._bound.get(v, -1) < self._body for v in variables):
                return None
            least += factor * (low if factor > 0 else high)
            most += factor * (high if factor > 0 else low)
        if not rest or least == most:
            return None
        kind = INT64 if any(atom.dtype is INT64 for atom in terms) else INT32
        return Guard([condition], 0, rest, constant, least, most, kind)


def _over_threads(s: Stmt) -> bool:
    return isinstance(s, For) and s.thread is not None and s.thread.startswith("threadIdx")


def _has_fast_loop(s: Stmt, memo: dict[int, bool]) -> bool:
    """Whether a vectorised or unrolled loop is in `s`; `memo` by identity of statements that live as long as it does."""
    found = memo.get(id(s))
    if found is None:
        if s.__class__ is For and s.kind in FAST_KINDS:
            found = True
        else:
            found = False
            for inner in statements_in(s):
                if _has_fast_loop(inner, memo):
                    found = True
                    break
        memo[id(s)] = found
    return found
