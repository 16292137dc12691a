"""What vectorised loops do to memory: whether the iterations of one may run in lockstep, as lanes; how wide their elements are; which lanes matter.

Only questions are answered here; vectorize.py rewrites. All answers are on the safe side: what is not understood may not run as lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd

from ..affine import Terms, affine, build
from ..bounds import constant_bounds
from ..dtype import INT64
from ..expr import HAS_CHOICE, HAS_DIVISION, HAS_LOAD, And, Buffer, Choice, Const, Expr, FloorDiv, FloorMod, Load, Var
from ..stmt import Allocate, Atomic, Bind, For, If, Prefetch, Produce, Seq, Stmt, Store
from ..visit import loads_of, operands_of, statements_in, substitute

MOST_PRIVATE_BYTES = 16384  # of a buffer that each lane gets its own copy of, all lanes together


def conjuncts(condition: Expr) -> list[Expr]:
    """What is joined by `and` in a condition, in order."""
    if condition.__class__ is And:
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [condition]


@dataclass
class Access:
    """`stride * lane + rest + constant` of a stored or loaded element; `stride` is None where the index is no such sum."""

    stride: int | None
    rest: Terms
    constant: int


class LaneAnalysis:
    """The facts about the loop `loop`, whose extent is constant.

    Attributes: `refusal`: why its iterations cannot be lanes, or None; `widest_bytes` of the elements that differ between lanes; `private`: the
    buffers allocated inside, of which each lane has its own; `has_conditions`: whether some differ between lanes and read no memory.
    """

    def __init__(self, loop: For):
        self.lane = loop.var
        extent = loop.constant_extent
        assert extent is not None
        self.extent = extent
        self.refusal: str | None = None
        self.widest_bytes = 1
        self.private: set[Buffer] = set()
        self.has_conditions = False
        self._varying: set[Var] = {loop.var}
        self._hazard: dict[Expr, bool] = {}
        self._inner: set[Var] = set()
        self._stores: list[tuple[Store, bool]] = []  # and whether under a condition that differs between lanes
        self._loads: dict[Load, None] = {}
        self._seen: tuple[set[Expr], set[Expr]] = (set(), set())
        self._statement(loop.body, False)
        if self.refusal is None:
            self._check_memory()

    # ------------------------------------------------------------------------------------------------------- expressions

    def varies(self, e: Expr) -> bool:
        """Whether `e` may differ between lanes."""
        if not self._varying.isdisjoint(e.variables):
            return True
        return bool(self.private) and any(node.buffer in self.private for node in loads_of(e))

    def hazard(self, e: Expr) -> bool:
        """Whether evaluating `e` where it is not wanted could fault: it reads memory, or divides by what may be zero."""
        if not e.holds & (HAS_LOAD | HAS_DIVISION):
            return False
        found = self._hazard.get(e)
        if found is None:
            found = e.__class__ is Load or (e.__class__ in (FloorDiv, FloorMod) and e.b.__class__ is not Const)
            if not found:
                for child in e.children:
                    if self.hazard(child):
                        found = True
                        break
            self._hazard[e] = found
        return found

    def _expression(self, e: Expr, is_index: bool) -> None:
        if e.exact and not e.holds & (HAS_LOAD | HAS_CHOICE):
            return  # index arithmetic
        seen = self._seen[is_index]
        if e in seen:
            return
        seen.add(e)
        if e.__class__ is Load:
            self._loads[e] = None
            for index in e.indices:
                self._expression(index, True)
            if e.predicate is not None:
                self._expression(e.predicate, False)
        else:
            if isinstance(e, Choice) and self.varies(e.condition) and not self.hazard(e.condition):
                self.has_conditions = True
            for child in e.children:
                self._expression(child, is_index)
        if (not is_index or e.__class__ is Load) and e.dtype.bytes > self.widest_bytes and not e.exact and self.varies(e):
            self.widest_bytes = e.dtype.bytes

    # -------------------------------------------------------------------------------------------------------- statements

    def _statement(self, s: Stmt, masked: bool) -> None:
        if self.refusal is None:
            getattr(self, f"_{s.__class__.__name__.lower()}")(s, masked)

    def _seq(self, s: Seq, masked: bool) -> None:
        for child in s.body:
            self._statement(child, masked)

    def _produce(self, s: Produce, masked: bool) -> None:
        self._statement(s.body, masked)

    def _for(self, s: For, masked: bool) -> None:
        self._expression(s.extent, True)
        if s.kind not in ("serial", "unrolled"):
            self.refusal = f"it holds the {s.kind} loop {s.var}"
        elif self.varies(s.extent):
            self.refusal = f"the extent of {s.var} differs between lanes"
        elif masked and self.hazard(s.extent):
            self.refusal = f"the extent of {s.var} is read under a condition"
        self._inner.add(s.var)
        self._statement(s.body, masked)

    def _if(self, s: If, masked: bool) -> None:
        self._expression(s.condition, False)
        varies = self.varies(s.condition)
        self.has_conditions = self.has_conditions or (varies and not self.hazard(s.condition))
        if masked and not varies and self.hazard(s.condition):
            self.refusal = "a condition is read under a condition that differs between lanes"
        self._statement(s.then, masked or varies)
        if s.otherwise is not None:
            self._statement(s.otherwise, masked or varies)

    def _store(self, s: Store, masked: bool) -> None:
        self._stores.append((s, masked))
        self.widest_bytes = max(self.widest_bytes, s.buffer.dtype.bytes)
        for index in s.indices:
            self._expression(index, True)
        self._expression(s.value, False)
        if s.predicate is not None:
            self._expression(s.predicate, False)

    def _atomic(self, s: Atomic, masked: bool) -> None:
        self.refusal = f"it updates {s.load.buffer.name} atomically, one element at a time"

    def _allocate(self, s: Allocate, masked: bool) -> None:
        size = s.buffer.constant_size
        if size is None or size * self.extent * s.buffer.dtype.bytes > MOST_PRIVATE_BYTES:
            self.refusal = f"each iteration has its own {s.buffer.name}, which is large"
        self.private.add(s.buffer)
        self._statement(s.body, masked)

    def _bind(self, s: Bind, masked: bool) -> None:
        self._expression(s.value, False)
        if self.varies(s.value):
            self._varying.add(s.var)
        if masked and self.hazard(s.value):
            self.refusal = f"{s.var} is computed under a condition"
        self._inner.add(s.var)
        self._statement(s.body, masked)

    def _prefetch(self, s: Prefetch, masked: bool) -> None:
        if masked:
            self.refusal = "it prefetches under a condition"

    # ------------------------------------------------------------------------------------------------------------ memory

    def _check_memory(self) -> None:
        """Refuse where two lanes may touch one element, one of them storing; or where a masked store would be slower than a loop."""
        by_buffer: dict[Buffer, list[Access]] = {}
        for s, masked in self._stores:
            if s.buffer in self.private:
                continue
            access = self.access(s.indices[0])
            if not access.stride:
                self.refusal = f"lanes store to one element of {s.buffer.name}, or to elements not known apart"
                return
            if masked and s.buffer.scope != "local" and (access.stride != 1 or s.buffer.dtype.bytes < 4):
                self.refusal = f"some lanes only store to {s.buffer.name}, not side by side or narrow elements"
                return
            by_buffer.setdefault(s.buffer, []).append(access)
        for buffer, stored in by_buffer.items():
            others = [self.access(e.indices[0]) for e in self._loads if e.buffer is buffer]
            for i, a in enumerate(stored):
                if any(self._may_meet(a, b) for b in stored[i:]) or any(self._may_meet(a, b) for b in others):
                    self.refusal = f"an iteration may use what another stores in {buffer.name}"
                    return

    def access(self, index: Expr) -> Access:
        """The index of an access, taken apart."""
        if not index.exact:
            return Access(None if self.varies(index) else 0, {index: 1}, 0)
        terms, constant = affine(index)
        stride: int | None = terms.pop(self.lane, 0)
        for atom in terms:
            if self.varies(atom):
                stride = None
        return Access(stride, terms, constant)

    def _may_meet(self, a: Access, b: Access) -> bool:
        """Whether `a` in one lane and `b` in another may be the same element. Loops inside the vectorised one may be anywhere on either side."""
        stride = a.stride
        if stride is None or stride != b.stride:
            return True
        outer: Terms = {}
        low = high = a.constant - b.constant
        step = 0
        for terms, sign in ((a.rest, 1), (b.rest, -1)):
            for atom, factor in terms.items():
                if atom in self._inner:
                    least, most = constant_bounds(atom)
                    if least is None or most is None:
                        least, most = 0, 1 << 62
                    ends = sign * factor * least, sign * factor * most
                    low, high, step = low + min(ends), high + max(ends), gcd(step, factor)
                elif not self._inner.isdisjoint(atom.variables):
                    return True
                else:
                    outer[atom] = outer.get(atom, 0) + sign * factor
        outer = {atom: factor for atom, factor in outer.items() if factor}
        if outer:
            least, most = constant_bounds(build(outer, 0, INT64))
            if least is None or most is None:
                return True
            for factor in outer.values():
                step = gcd(step, factor)
            low, high = low + least, high + most
        start = a.constant - b.constant
        for distance in range(abs(stride), min(abs(stride) * self.extent, max(-low, high) + 1), abs(stride)):
            for signed in (distance, -distance):
                if low <= signed <= high and (signed == start if step == 0 else (signed - start) % step == 0):
                    return True
        return False


# ------------------------------------------------------------------------------------------------------- lanes that nobody looks at

_LANE = Var("lane")  # stands for the variable of any vectorised loop


def as_of_any_loop(condition: Expr, lane: Var) -> Expr:
    """`condition` with the variable of its vectorised loop replaced by one that is the same for all loops."""
    return substitute(condition, {lane: _LANE})


class IdleLanes:
    """For each buffer of scope "local": the conditions without which no element is accessed, where that is a matter of the element's lane.

    `if x * 8 + v < 28: T[k * 8 + v] = ...` in all vectorised loops over T: what T holds in lanes of `x * 8 + v >= 28` is never used, so a store may
    write there. The conditions, in terms of `as_of_any_loop`, name only what is fixed while T exists. The body is looked at when first asked about.
    """

    def __init__(self, body: Stmt):
        self._body: Stmt | None = body
        self.conditions: dict[Buffer, frozenset[Expr]] = {}
        self._fixed: dict[Buffer, frozenset[Var]] = {}  # the variables known where the buffer is allocated
        self._extent: dict[Buffer, int] = {}
        self._bound: frozenset[Var] = frozenset()
        self._loop: For | None = None  # the vectorised one around
        self._under: tuple[Expr, ...] = ()

    def never_seen(self, buffer: Buffer, conditions: Iterable[Expr]) -> bool:
        """Whether lanes of `buffer` that fail one of these conditions are never used."""
        if self._body is not None:
            self._statement(self._body)
            self._body = None
        known = self.conditions.get(buffer)
        return bool(known) and all(c in known for c in conditions)  # type: ignore[operator]

    def _statement(self, s: Stmt) -> None:
        kind = s.__class__
        if kind is Store:
            self._access(s.buffer, s.indices[0])  # type: ignore[attr-defined]
        elif kind is For:
            around = self._bound, self._loop, self._under
            self._bound |= {s.var}  # type: ignore[attr-defined]
            if s.kind == "vectorized":  # type: ignore[attr-defined]
                self._loop, self._under = s, ()  # type: ignore[assignment]
            self._statement(s.body)  # type: ignore[attr-defined]
            self._bound, self._loop, self._under = around
        elif kind is If:
            around_if = self._under
            if self._loop is not None and s.otherwise is None:  # type: ignore[attr-defined]
                lane = self._loop.var
                self._under = (*around_if, *[as_of_any_loop(c, lane) for c in conjuncts(s.condition) if not loads_of(c)])  # type: ignore[attr-defined]
            self._statement(s.then)  # type: ignore[attr-defined]
            self._under = around_if
            if s.otherwise is not None:  # type: ignore[attr-defined]
                self._statement(s.otherwise)  # type: ignore[attr-defined]
        elif kind is Allocate:
            if s.buffer.scope == "local":  # type: ignore[attr-defined]
                self._fixed[s.buffer] = self._bound  # type: ignore[attr-defined]
            self._statement(s.body)  # type: ignore[attr-defined]
        elif kind is Bind:
            self._statement(s.body)  # type: ignore[attr-defined]
        elif kind is Seq or kind is Produce:
            for inner in statements_in(s):
                self._statement(inner)
        for operand in operands_of(s):
            for e in loads_of(operand):
                self._access(e.buffer, e.indices[0])

    def _access(self, buffer: Buffer, index: Expr) -> None:
        fixed = self._fixed.get(buffer)
        if fixed is None:
            return
        found: frozenset[Expr] = frozenset()
        if self._loop is not None and self._loop.constant_extent is not None and index.exact:
            extent = self._loop.constant_extent
            terms, constant = affine(index)
            aligned = terms.pop(self._loop.var, 0) == 1 and all(f % extent == 0 for f in (*terms.values(), constant))
            if aligned and self._extent.setdefault(buffer, extent) == extent:
                found = frozenset(c for c in self._under if c.variables - {_LANE} <= fixed)
        known = self.conditions.get(buffer)
        self.conditions[buffer] = found if known is None else known & found
