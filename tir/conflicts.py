"""Whether two accesses to one buffer, by different threads of a block, may touch the same element.

`Access` is a read or a write with all that is known about where it stands; `Conflicts.meet` compares two. It first reasons: the indices of both are
equal, dimension by dimension, and sums are numbers in mixed radix, so that their digits are equal too (8*ty + tx = 8*ty' + tx' with tx < 8 means
ty = ty' and tx = tx': the same thread). What is left is tried out: all threads, all iterations of the loops that one of the two stands in. Where
neither decides, they may meet. Where barriers must go follows in barrier_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from .affine import Terms, add_term, affine, build, collect, difference
from .bounds import Bounds, constant_bounds, sum_bounds
from .expr import EQ, LE, LT, And, Buffer, Const, Expr, FloorDiv, FloorMod, Load, Ramp, Var, add, cast, const, floordiv, mul
from .simplify import Analyzer
from .visit import Rewriter, substitute, walk
from .witness import evaluate

Array = np.ndarray[Any, Any]

_FIRST_POINTS = 1 << 12  # tried first: most accesses that meet at all meet at once
_MOST_POINTS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A read or a write (`writes`) of `buffer[indices]`, in a kernel, where all of `guards` hold; `in_lanes`: a predicate
    leaves out some of its lanes. `text` is for messages. `tile`: of a tile on which a warp works together, by which intrinsic it is: two equal ones are shared
    out among the lanes alike, so that they meet in different warps only. `atomic`: an update that others of its kind may meet."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    guards: tuple[Expr, ...]
    text: str
    in_lanes: bool = False
    tile: object = None
    atomic: bool = False


class Conflicts:
    """Answers for one kernel. `threads`: the variables of its threadIdx loops, outermost first, and their extents; `certain`: accesses meet only if that is
    shown by example, else they do not only if that is proved; `together`: of so many threads in sequence, as of a warp, those of one and another do not meet.
    """

    def __init__(self, threads: Mapping[Var, int], certain: bool = False, together: int = 1):
        self.certain, self.together = certain, together
        self.threads = {var: extent for var, extent in threads.items() if extent > 1}
        self.memo: dict[tuple[Any, ...], bool] = {}

    def meet(self, first: Access, second: Access, common: frozenset[Var], following: Var | None = None) -> bool:
        """Whether `first`, in one thread, and `second`, in another, may be of one element, at least one being a write.

        Arguments: `common`: variables that have one value for both, as those of the loops around both; `following`: that of a loop of which `second`
        runs an iteration later (it is among `common`).
        """
        if first.buffer is not second.buffer or not (first.writes or second.writes) or not self.threads or (first.atomic and second.atomic):
            return False
        if self.certain and (first.in_lanes or second.in_lanes):
            return False
        threads = self.threads
        if first.tile is not None and first.tile == second.tile:
            common = common.union(var for var in threads if var.name == "threadIdx.x")
            threads = {var: extent for var, extent in threads.items() if var.name != "threadIdx.x"}
            if not threads:
                return False
        key = (first.buffer, first.indices, first.guards, second.indices, second.guards, common, following)
        found = self.memo.get(key)
        if found is None:
            together = self.together if threads is self.threads else 1  # tiles: what is left of the threads are warps
            found = self.memo[key] = _Pair(threads, first, second, common, following, together).meets(self.certain)
        return found


class _Pair:
    """Two accesses; the variables of the second that need not have the value they have for the first are renamed. `owners`: pairs of numbers that are equal
    where the threads need not be told apart."""

    def __init__(self, threads: Mapping[Var, int], first: Access, second: Access, common: frozenset[Var], following: Var | None, together: int):
        earlier: dict[Var, Expr] = {}
        if following is not None:  # in the iteration of the first it is not the last one
            low, high = following.bounds
            earlier[following] = before = following.fresh(bounds=(low, None if high is None else high - 1))
            common = common | {before}
        self.common, self.shape = common, first.buffer.shape
        self.unknown_guards = False
        self.thread_pairs: dict[Var, tuple[Expr, Expr]] = {}
        self.a, self.a_guards, variables = self._side(first, earlier, threads)
        mine: dict[Var, Expr] = {}
        for e in (*second.indices, *second.guards):
            for var in sorted(e.variables - common - mine.keys(), key=lambda v: v.name):
                mine[var] = var.fresh()
        for var in threads:
            mine.setdefault(var, var.fresh())
        mine.update({var: add(before, const(1, before)) for var, before in earlier.items()})
        self.b, self.b_guards, others = self._side(second, mine, threads)
        self.thread_pairs = {var: (variables[var], others[var]) for var in threads}
        self.owners = list(self.thread_pairs.values())
        if together > 1:
            self.owners = [(_group(threads, variables, together), _group(threads, others, together))]

    def _side(self, access: Access, renamed: dict[Var, Expr], threads: Mapping[Var, int]) -> tuple[tuple[Expr, ...], list[Expr], dict[Var, Expr]]:
        """(indices, guards, thread variables) of one access, with opaque names for what is read from memory, and what its guards say of variables put in."""
        opaque = _Opaque(renamed)
        guards = [part for guard in access.guards for part in _parts(opaque.rewrite(guard))]
        indices = [opaque.rewrite(index) for index in access.indices]
        tight: dict[Var, Bounds] = {var: var.bounds for var in _variables((*indices, *guards)) if var.bounds[0] is not None and var.bounds[0] == var.bounds[1]}
        for guard in guards:
            _tighten(guard, tight)
        values: dict[Var, Expr] = {}
        for var, (low, high) in tight.items():
            if var in self.common:
                continue
            values[var] = const(low, var) if low is not None and low == high else var.fresh(bounds=(low, high))
        own = {var: substitute(renamed.get(var, var), values) for var in threads}
        return tuple(substitute(i, values) for i in indices), [substitute(g, values) for g in guards], own

    def meets(self, certain: bool) -> bool:
        """Whether they do; what is not decided is answered by the opposite of `certain`."""
        equations = []
        for x, y in zip(self.a, self.b, strict=True):
            if not (_is_exact(x) and _is_exact(y)):
                continue  # nothing is known along this dimension
            equations.append(difference(x, y))
        equal = _Equalities(equations)
        if self._is_one_owner(equal):
            return False
        if (certain and len(equations) < len(self.a)) or self._is_one_place():
            return False
        return self._found_by_trying(certain)

    def _is_one_place(self) -> bool:
        """Whether the place in memory says which thread it is. Of loops that were fused each index is a part of one number; the place is that number again."""
        extents = [extent for extent in self.shape if isinstance(extent, int)]
        if len(self.shape) < 2 or len(extents) < len(self.shape) or not all(_is_exact(e) for e in (*self.a, *self.b)):
            return False
        simplify = Analyzer().simplify
        x, y = (simplify(_place(side, extents)) for side in (self.a, self.b))
        if x.dtype.lanes > 1 or y.dtype.lanes > 1:
            return False
        return self._is_one_owner(_Equalities([difference(x, y)]))

    def _is_one_owner(self, equal: _Equalities) -> bool:
        """Whether accesses at which sums are equal do not happen, or need not be told apart."""
        return equal.impossible or any(all(equal.same(x, y) for x, y in pairs) for pairs in (self.owners, self.thread_pairs.values()))

    # ------------------------------------------------------------------------------------------------------------- trying

    def _found_by_trying(self, certain: bool) -> bool:
        """Whether some points of both accesses meet; if none does and these are not all: not `certain`."""
        sides = [self._own_parts(x, y) for x, y in zip(self.a, self.b, strict=True)]
        if any(side is None for side in sides):
            return not certain
        of_a, of_b = ([side[n] for side in sides if side is not None] for n in (0, 1))
        both = sorted((_variables(of_a) | _variables(of_b)) & self.common, key=lambda v: v.name)
        tried = _count([*(v for pair in self.thread_pairs.values() for v in pair[:1]), *both, *(_variables(of_a) - self.common)])
        for var in sorted(_variables((*self.a_guards, *self.b_guards)) & self.common - set(both), key=lambda v: v.name):
            tried *= _count([var])
            if tried <= _FIRST_POINTS:
                both.append(var)
        for most in (_FIRST_POINTS,) if certain else (_FIRST_POINTS, _MOST_POINTS):
            all_of_a, a = self._points(of_a, both, self.a_guards, 0, most)
            all_of_b, b = self._points(of_b, both, self.b_guards, 1, most)
            if a is None or b is None:
                return not certain
            if _owners_differ(a, b):
                return not certain or not self.unknown_guards
            if all_of_a and all_of_b:
                return False
        return not certain

    def _own_parts(self, x: Expr, y: Expr) -> tuple[Expr, Expr] | None:
        """Two indices without what they add in common; None where nothing is known of them."""
        if not (_is_exact(x) and _is_exact(y)):
            return None
        sides: list[Terms] = []
        constants = []
        for e in (x, y):
            terms, constant = affine(e)
            sides.append(terms)
            constants.append(constant)
        for atom in list(sides[0]):
            if atom.variables <= self.common and sides[0][atom] == sides[1].get(atom):
                del sides[0][atom], sides[1][atom]
        return build(sides[0], constants[0], x.dtype), build(sides[1], constants[1], y.dtype)

    def _points(self, indices: list[Expr], both: list[Var], guards: list[Expr], side: int, most: int) -> tuple[bool, Array | None]:
        """(whether these are all, rows of thread, values of `both` and indices), or None in place of the rows where something has no values to try."""
        threads = dict.fromkeys(pair[side] for pair in self.thread_pairs.values() if isinstance(pair[side], Var))
        axes = list(dict.fromkeys([*threads, *both, *sorted(_variables(indices), key=lambda v: v.name)]))
        ranges = [constant_bounds(v) for v in axes]
        limits = [(low, high) for low, high in ranges if low is not None and high is not None]
        if len(limits) < len(ranges):
            return False, None
        sizes = [max(0, high - low + 1) for low, high in limits]
        complete = True
        for n, var in reversed(list(enumerate(axes))):
            rest = prod(sizes[:n] + sizes[n + 1 :])
            if sizes[n] * rest > most and var not in threads:
                sizes[n], complete = max(1, most // max(1, rest)), False
        count = prod(sizes)
        if count > 4 * _MOST_POINTS:
            return False, None
        grid = np.indices(sizes).reshape(len(sizes), count)
        values: dict[Expr, Array | None] = {v: (row + low)[:, None] for v, row, (low, _) in zip(axes, grid, limits, strict=True)}
        kept = np.ones(count, bool)
        for guard in guards:
            holds = evaluate(guard, values) if guard.variables <= values.keys() else None
            if holds is not None:
                kept &= np.broadcast_to(holds, (count, 1))[:, 0]
            elif not isinstance(guard, Const):
                self.unknown_guards = True
        owner = np.zeros((count, 1), np.int64)
        for pair in self.owners:
            high = constant_bounds(pair[0])[1], constant_bounds(pair[1])[1]
            owner = owner * (1 + max(h if h is not None else 0 for h in high)) + _column(pair[side], values, count)
        columns = [owner]
        for index in (*both, *indices):
            found = evaluate(index, values)
            if found is None:
                return False, None
            columns.append(np.broadcast_to(found, (count, 1)))
        return complete, np.concatenate(columns, axis=1)[kept]


def _group(threads: Mapping[Var, int], own: Mapping[Var, Expr], size: int) -> Expr:
    """The number of the group of so many threads in sequence that a thread is in."""
    kind = next(iter(threads)).dtype
    number: Expr = const(0, kind)
    for var, extent in threads.items():
        number = add(mul(number, const(extent, kind)), cast(own[var], kind))
    return Analyzer().simplify(floordiv(number, const(size, kind)))


def _place(indices: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The index of an element when its dimensions are made one."""
    place = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        place = add(mul(place, const(extent, place.dtype)), index)
    return place


def _count(variables: Iterable[Expr]) -> int:
    """How many values variables have together; very many where that is not known."""
    found = 1
    for var in variables:
        low, high = constant_bounds(var)
        found *= high - low + 1 if low is not None and high is not None else _MOST_POINTS
    return found


def _is_exact(e: Expr) -> bool:
    """Whether `e` is a scalar integer that sums may be made of: exact, or such that no part of it can wrap (as i ^ j in a layout)."""
    if e.dtype.lanes > 1 or not e.dtype.is_integer:
        return False
    for node in () if e.exact else walk(e):
        if node.dtype.is_integer and not node.exact:
            low, high = constant_bounds(node)
            if low is None or high is None or low <= node.dtype.low or high >= node.dtype.high:
                return False
    return True


def _column(e: Expr, values: dict[Expr, Array | None], count: int) -> Array:
    found = evaluate(e, values)
    assert found is not None
    return np.broadcast_to(found, (count, 1))


def _variables(indices: Iterable[Expr]) -> set[Var]:
    found: set[Var] = set()
    for e in indices:
        found |= e.variables
    return found


def _owners_differ(a: Array, b: Array) -> bool:
    """Of rows (thread, indices ...): whether some indices are in both, of threads that differ."""
    rows = np.concatenate([a, b])
    if not len(rows):
        return False
    where = rows[:, 1:] - rows[:, 1:].min(axis=0)
    flat = np.zeros(len(rows), np.int64)
    for column in where.T:
        flat = flat * (int(column.max()) + 1) + column
    keys = np.unique(flat, return_inverse=True)[1]
    count = int(keys.max()) + 1
    limits = []
    for owners, where in ((a[:, 0], keys[: len(a)]), (b[:, 0], keys[len(a) :])):
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(low, where, owners)
        np.maximum.at(high, where, owners)
        limits.append((low, high))
    both = (limits[0][1] >= 0) & (limits[1][1] >= 0)
    alone = (limits[0][0] == limits[0][1]) & (limits[1][0] == limits[1][1]) & (limits[0][0] == limits[1][0])
    return bool((both & ~alone).any())


class _Opaque(Rewriter):
    """Variables renamed; what is read from memory becomes a variable of which nothing is known."""

    def __init__(self, variables: Mapping[Var, Expr]):
        super().__init__()
        self.variables = variables

    def rewrite_Var(self, node: Var) -> Expr:
        return self.variables.get(node, node)

    def rewrite_Load(self, node: Load) -> Expr:
        return Var(node.buffer.name, node.dtype)

    def rewrite_Ramp(self, node: Ramp) -> Expr:
        """Any of its lanes."""
        lane = Var("lane", node.base.dtype, (0, node.dtype.lanes - 1))
        return add(self.rewrite(node.base), mul(self.rewrite(node.stride), lane))


def _parts(condition: Expr) -> list[Expr]:
    """The conditions that all hold where this one does."""
    if isinstance(condition, And):
        return [*_parts(condition.a), *_parts(condition.b)]
    return [condition]


def _tighten(guard: Expr, bounds: dict[Var, Bounds]) -> None:
    """What `guard` says about the bounds of a single variable."""
    if not isinstance(guard, (EQ, LT, LE)) or not guard.a.exact or not guard.b.exact:
        return
    terms, constant = difference(guard.a, guard.b)
    if isinstance(guard, LT):
        constant += 1
    if len(terms) != 1:
        return
    ((var, factor),) = terms.items()
    if not isinstance(var, Var):
        return
    low, high = bounds.get(var, var.bounds)
    if isinstance(guard, EQ):
        if constant % factor == 0:
            low = high = -constant // factor
    elif factor > 0:  # factor * var + constant <= 0
        limit = -constant // factor
        high = limit if high is None else min(high, limit)
    else:
        limit = -(-constant // -factor)
        low = limit if low is None else max(low, limit)
    bounds[var] = low, high


class _Equalities:
    """What follows from sums being zero. `impossible`: they cannot all be; `same` answers whether two expressions are equal.

    Each sum is taken apart: with terms that are multiples of g, and others that together stay between -g and g, both parts are zero.
    """

    def __init__(self, equations: Iterable[tuple[Terms, int]]):
        self.impossible = False
        self.name: dict[Expr, Expr] = {}  # an atom that was found equal to another one -> that one
        self.done: set[tuple[Expr, Expr]] = set()  # quotients from which a new sum was made
        pending = list(equations)
        left: list[tuple[Terms, int]] = []
        while pending and not self.impossible:
            equation = self._renamed(*pending.pop())
            found = self._apart(*equation)
            if found is None:
                left.append(equation)
            elif found:
                pending += found
            else:  # an equality was learned: look at all again
                pending += [*left, *self._joined()]
                left = []

    def same(self, x: Expr, y: Expr) -> bool:
        """Whether two sums are certainly equal."""
        terms, constant = self._renamed(*difference(x, y))
        return not terms and constant == 0

    def _final(self, atom: Expr) -> Expr:
        while atom in self.name:
            atom = self.name[atom]
        return atom

    def _renamed(self, terms: Terms, constant: int) -> tuple[Terms, int]:
        result: Terms = {}
        for atom, factor in terms.items():
            constant += collect(self._final(atom), factor, result)
        return result, constant

    def _apart(self, terms: Terms, constant: int) -> list[tuple[Terms, int]] | None:
        """The parts of one sum; an empty list where it is used up; None where nothing follows from it."""
        low, high = sum_bounds(terms, constant, constant_bounds)
        if (low is not None and low > 0) or (high is not None and high < 0) or _never_zero(terms, constant):
            self.impossible = True
            return []
        if not terms:
            return None
        common = gcd(*terms.values())
        if constant % common:
            self.impossible = True
            return []
        if common > 1:
            terms, constant = {atom: factor // common for atom, factor in terms.items()}, constant // common
        if len(terms) == 1:
            ((atom, factor),) = terms.items()
            self.name[atom] = const(-constant * factor, atom)  # the factor is 1 or -1
            return []
        if len(terms) == 2 and constant == 0:
            (x, f), (y, g) = terms.items()
            if f == -g:
                self.name[y] = x
                return []
        for digit in sorted({abs(factor) for factor in terms.values()} - {1}, reverse=True):
            upper = {atom: factor for atom, factor in terms.items() if factor % digit == 0}
            lower = {atom: factor for atom, factor in terms.items() if factor % digit}
            if not lower:
                continue
            for rest in {constant % digit, constant % digit - digit}:
                low, high = sum_bounds(lower, rest, constant_bounds)
                if low is not None and high is not None and low > -digit and high < digit:
                    return [(upper, constant - rest), (lower, rest)]
        return None

    def _joined(self) -> list[tuple[Terms, int]]:
        """x = y for each pair of which quotient and remainder by one divisor are found equal."""
        quotients = [(x, y) for x, y in self.name.items() if x.__class__ is FloorDiv]
        found = []
        for x, _ in quotients:
            other = self._final(x)
            if not isinstance(x, FloorDiv) or not isinstance(other, FloorDiv) or x.b is not other.b or (x, other) in self.done:
                continue
            for remainder in list(self.name):
                if not isinstance(remainder, FloorMod):
                    continue
                partner = self._final(remainder)
                if not isinstance(partner, FloorMod) or remainder.b is not x.b or partner.b is not x.b:
                    continue
                if {remainder.a, partner.a} == {x.a, other.a}:
                    self.done.add((x, other))
                    found.append(difference(x.a, other.a))
        return found


def _never_zero(terms: Terms, constant: int) -> bool:
    """Whether a sum is different from zero modulo the divisor of a remainder in it: (k + 1) % 2 - k % 2 is odd."""
    remainders: dict[Expr, tuple[Expr, int]] = {}
    for atom in terms:
        if isinstance(atom, FloorMod) and isinstance(atom.b, Const) and atom.b.value > 1:
            remainders[atom] = atom.a, int(atom.b.value)
    for modulus in {divisor for _, divisor in remainders.values()}:
        rest: Terms = {}
        total = constant
        for atom, factor in terms.items():
            of, divisor = remainders.get(atom, (atom, 0))
            if divisor and divisor % modulus == 0:
                total += collect(of, factor, rest)
            else:
                add_term(rest, atom, factor)
        if total % gcd(modulus, *rest.values()):
            return True
    return False
