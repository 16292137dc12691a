"""Where the threads of a block must wait for one another: as few points as possible, none that only some of them reach.

Two accesses to one element by different threads, at least one a write, need a barrier between them on every way from one to the other. In a straight
line the latest place before the second of the two serves best: taking it whenever something is still open gives the fewest barriers (as few points
as stab all intervals). A loop is a circle: what is open at its end meets its beginning; one barrier anywhere is taken as the start of a line.
In a second round what is left open, inside of warps, is closed by barriers of a warp. passes/barriers.py writes the barriers down; verify.py asks whether
any is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd, prod
from typing import TypeAlias

from .bounds import constant_bounds, modulus
from .conflicts import Access, Conflicts
from .errors import TargetError
from .expr import HAS_LOAD, Buffer, Const, Expr, Var, add, logical_not, mul
from .gpu import WARP_SIZE, is_fragment
from .kernel import Kernel
from .stmt import Allocate, Atomic, Bind, CallIntrinsic, For, If, Produce, Seq, Shuffle, Stmt, Store, Sync
from .visit import every_statement, loads_of, operands_of, stored_buffers, substitute

_Conflict: TypeAlias = "tuple[Access, Access]"


@dataclass(eq=False)
class BarrierPlan:
    """What one kernel needs. `before`: the ids of statements; `begin`, `end`: of loops that have a barrier first or last in their body.

    `reasons`: for each barrier, a sentence; `divergent`: barriers that are there, but that only some threads may reach.
    """

    before: set[int] = field(default_factory=set)
    begin: set[int] = field(default_factory=set)
    end: set[int] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)
    divergent: list[str] = field(default_factory=list)


@dataclass(eq=False)
class _Part:
    """One statement of a sequence. `head`, `tail`: what may happen before its first barrier and after its last; `clean`: no way through it avoids one.

    `choice`: a loop that needs a barrier first or last in its body: then `head` and `tail` are what is open if it is not there.
    """

    at: Stmt
    head: list[Access]
    tail: list[Access]
    clean: bool = False
    choice: For | None = None


def plan_barriers(kernel: Kernel, certain: bool = False, of: str = "warp") -> BarrierPlan:
    """The barriers that a kernel lacks, those it may lack too unless `certain`. A TargetError where one is needed that only some threads would reach.

    `of` "block": only those between warps; "warp": those that are lacking when these are there.
    """
    return _Planner(kernel, certain, of).plan


class _Planner:
    def __init__(self, kernel: Kernel, certain: bool, of: str):
        self.plan = BarrierPlan()
        self.of = of
        body = kernel.body
        statements = every_statement(body)
        extents = {var: int(e.value) if isinstance(e, Const) else 1 << 30 for tag, (var, e) in kernel.indices.items() if tag.startswith("threadIdx")}
        several_warps = prod(extents.values()) > WARP_SIZE  # else the block is the warp
        self.conflicts = Conflicts(extents, certain, WARP_SIZE if of == "block" and several_warps else 1)
        self.written = frozenset(buffer for s in statements for buffer in stored_buffers(s))
        of_one_thread = {b for b in self.written if b.scope == "local" or is_fragment(b.scope)}
        self.shared = self.written - of_one_thread - _results(body)
        self.values: dict[Var, Expr] = {}  # of bound names
        self.guards: list[Expr] = []
        self.varying: set[Var] = set(extents)  # variables that differ between threads
        self.divided: str | None = None  # the condition around, where only some threads are here
        used = {var for s in statements for e in operands_of(s) for var in e.variables}
        self.block(body, frozenset(used - {s.var for s in statements if isinstance(s, (For, Bind))} - set(extents)))

    # ------------------------------------------------------------------------------------------------------------- structure

    def block(self, s: Stmt, common: frozenset[Var]) -> _Part:
        """A statement as a line of parts."""
        parts = list(self.parts(s, common))
        cuts = self.line(parts, common)
        self.cut(parts, cuts)
        return _joined(s, parts, list(cuts))

    def parts(self, s: Stmt, common: frozenset[Var]) -> Iterator[_Part]:
        """The parts of a statement in order."""
        if isinstance(s, Seq):
            for child in s.body:
                yield from self.parts(child, common)
        elif isinstance(s, (Produce, Allocate)):
            yield from self.parts(s.body, common)
        elif isinstance(s, Bind):
            read = self.reads((s.value,))
            if read:
                yield _Part(s, read, read)
            self.bind(s)
            yield from self.parts(s.body, common)
        elif isinstance(s, Sync):
            if s.kind in ("block", self.of):
                self.refuse_alone("barrier")
                yield _Part(s, [], [], clean=True)
        elif isinstance(s, For):
            yield self.loop(s, common)
        elif isinstance(s, If):
            yield self.branch(s, common)
        else:
            if isinstance(s, Shuffle):
                self.refuse_alone("shuffle")
            found = self.accesses(s)
            if found:
                yield _Part(s, found, found)

    def refuse_alone(self, what: str) -> None:
        """Notes what all threads must come by where only some do."""
        if self.divided is not None:
            self.plan.divergent.append(f"a {what} stands under the condition {self.divided}, which may hold for some threads of a block only")

    def bind(self, s: Bind) -> None:
        if s.var.exact and s.value.exact:
            self.values[s.var] = substitute(s.value, self.values)
        if not self.uniform(s.value):
            self.varying.add(s.var)

    def loop(self, s: For, common: frozenset[Var]) -> _Part:
        outer, inner = self.divided, common | {s.var}
        if not self.uniform(s.extent):
            self.varying.add(s.var)
            self.divided = self.divided or f"{s.var.name} < {s.extent}"
            inner = common  # threads may be at different iterations
        read = self.reads((s.extent,))
        parts = list(self.parts(s.body, inner))
        cuts = self.line(parts, inner)
        whole = _joined(s, parts, list(cuts))
        self.refuse_overtaking(read, whole.head, common)
        carried = self.carried(whole, bool(cuts) or any(part.clean for part in parts), inner, s.var)
        if carried is not None:
            better = self.rotated(parts, inner, s.var, len(cuts), carried)
            if better is not None:
                cuts, whole = better, _joined(s, parts, list(better))
            else:
                self.refuse_divergence(carried)
                whole.choice = s
                self.plan.reasons.append(_reason(carried))
        self.cut(parts, cuts)
        self.divided = outer
        low = constant_bounds(s.extent)[0]
        whole.clean = whole.clean and low is not None and low > 0
        whole.head = read + whole.head
        whole.tail = whole.tail if whole.clean else read + whole.tail
        return whole

    def branch(self, s: If, common: frozenset[Var]) -> _Part:
        outer = self.divided
        if not self.uniform(s.condition):
            self.divided = self.divided or str(s.condition)
        read = self.reads((s.condition,))
        self.guards.append(s.condition)
        arms = [self.block(s.then, common)]
        self.guards.pop()
        if s.otherwise is not None:
            self.guards.append(logical_not(s.condition))
            arms.append(self.block(s.otherwise, common))
            self.guards.pop()
        if len(arms) == 2 and self.divided is not None:  # some threads are in one while others are in the other
            pair = self.conflict(arms[0].head + arms[0].tail, arms[1].head + arms[1].tail, common)
            if pair is not None:
                self.refuse_divergence(pair)
        self.refuse_overtaking(read, [a for arm in arms for a in arm.head], common)
        self.divided = outer
        head, tail = ([a for arm in arms for a in getattr(arm, name)] for name in ("head", "tail"))
        return _Part(s, read + head, read + tail, len(arms) == 2 and all(arm.clean for arm in arms))

    # ------------------------------------------------------------------------------------------------------------- placing

    def line(self, parts: list[_Part], common: frozenset[Var]) -> dict[int, _Conflict]:
        """The parts of a line before which a barrier goes, and why."""
        cuts: dict[int, _Conflict] = {}
        pending: list[Access] = []
        for number, part in enumerate(parts):
            found = self.conflict(pending, part.head, common)
            if part.choice is not None:
                self.choose(part, at_begin=found is not None)
            elif found is not None:
                cuts[number] = found
                pending = []
            pending = part.tail if part.clean else pending + part.tail
        return cuts

    def choose(self, part: _Part, at_begin: bool) -> None:
        """Put the barrier of a loop first or last in its body."""
        assert part.choice is not None
        loop, part.choice = part.choice, None
        low = constant_bounds(loop.extent)[0]
        part.clean = low is not None and low > 0
        if at_begin:
            self.plan.begin.add(id(loop))
            part.head = []
        else:
            self.plan.end.add(id(loop))
            part.tail = []

    def cut(self, parts: list[_Part], cuts: dict[int, _Conflict]) -> None:
        for number, pair in cuts.items():
            self.refuse_divergence(pair)
            self.plan.before.add(id(parts[number].at))
            self.plan.reasons.append(_reason(pair))

    def refuse_divergence(self, pair: _Conflict) -> None:
        if self.divided is not None:
            raise TargetError(f"threads must wait for one another inside the condition {self.divided}, which may hold for some of them only: "
                              f"{_reason(pair)}. Compute what they exchange outside of it")  # fmt: skip

    def refuse_overtaking(self, read: list[Access], inside: list[Access], common: frozenset[Var]) -> None:
        """What an extent or a condition reads must not be written inside by threads that are there already: no barrier can stand between."""
        pair = self.conflict(read, inside, common)
        if pair is not None:
            self.refuse_divergence(pair)

    def carried(self, whole: _Part, has_barrier: bool, common: frozenset[Var], var: Var) -> _Conflict | None:
        """Two accesses of different iterations of a loop that have no barrier between them."""
        found = self.conflict(whole.tail, whole.head, common, var)
        if found is None and not has_barrier:  # else one stands between iterations that are no neighbours
            found = self.conflict(whole.tail, whole.head, common - {var})
        return found

    def rotated(self, parts: list[_Part], common: frozenset[Var], var: Var, most: int, why: _Conflict) -> dict[int, _Conflict] | None:
        """At most that many cuts that serve the whole circle of a loop, if there are: a first one anywhere, then on from there."""
        best: dict[int, _Conflict] | None = None
        for first in range(1, len(parts)):
            found: dict[int, _Conflict] = {}
            pending: list[Access] = []
            crossed: list[Access] = []  # of the iteration before
            for number in (*range(first, len(parts)), *range(first)):
                if number == 0:
                    pending, crossed = [], pending
                part = parts[number]
                pair = self.conflict(pending, part.head, common) or self.conflict(crossed, part.head, common, var)
                if pair is not None:
                    found[number] = pair
                    pending, crossed = [], []
                pending = part.tail if part.clean else pending + part.tail
                if part.clean:
                    crossed = []
            if len(found) < most and (best is None or len(found) + 1 < len(best)):
                best = {first: why, **found}
        return best

    def conflict(self, first: list[Access], second: list[Access], common: frozenset[Var], following: Var | None = None) -> _Conflict | None:
        """Two accesses that may meet, of two lists."""
        for a in first:
            for b in second:
                if a.buffer is b.buffer and self.conflicts.meet(a, b, common, following):
                    return a, b
        return None

    # ------------------------------------------------------------------------------------------------------------- accesses

    def uniform(self, e: Expr) -> bool:
        """Whether all threads of a block certainly find the same value."""
        if not e.variables.isdisjoint(self.varying):
            return False
        return not e.holds & HAS_LOAD or not any(node.buffer in self.written or node.buffer.scope == "local" for node in loads_of(e))

    def reads(self, expressions: tuple[Expr, ...]) -> list[Access]:
        return [
            self.access(node.buffer, node.indices, False, node.predicate)
            for e in expressions
            if e.holds & HAS_LOAD
            for node in loads_of(e)
            if node.buffer in self.shared
        ]

    def access(
        self, buffer: Buffer, indices: tuple[Expr, ...], writes: bool, predicate: Expr | None = None, tile: object = None, atomic: bool = False
    ) -> Access:
        where = tuple(substitute(i, self.values) for i in indices) if self.values else indices
        guards = tuple(substitute(g, self.values) for g in self.guards) if self.values else tuple(self.guards)
        return Access(buffer, where, writes, guards, f"{buffer.name}[{', '.join(map(str, indices))}]", predicate is not None, tile, atomic)

    def accesses(self, s: Stmt) -> list[Access]:
        """What a statement without statements in it reads and writes."""
        if isinstance(s, CallIntrinsic):
            return [a for number in range(len(s.args)) for a in self.operand(s, number)]
        if isinstance(s, Atomic):
            read = self.reads((*s.load.indices, s.value))
            return [*read, self.access(s.load.buffer, s.load.indices, True, atomic=True)] if s.load.buffer in self.shared else read
        found = self.reads(operands_of(s))
        if isinstance(s, Store) and s.buffer in self.shared:
            found.append(self.access(s.buffer, s.indices, True, s.predicate))
        return found

    def operand(self, s: CallIntrinsic, number: int) -> list[Access]:
        """The elements an intrinsic works on."""
        first = s.loads[number]
        if first.buffer not in self.shared:
            return []
        indices = list(first.indices)
        for extent, along in zip(s.code.shapes[number], s.steps[number], strict=True):
            count = Var("count", "int32", (0, extent - 1))
            indices = [add(index, mul(step, count)) for index, step in zip(indices, along, strict=True)]
        # once indices are flat it is not seen any more; what is not certain is no fault then
        tile = (s.code, number) if s.code.fragments and (self.conflicts.certain or _is_on_grid(s, number)) else None
        return [self.access(first.buffer, tuple(indices), number == 0, tile=tile)]


def _is_on_grid(s: CallIntrinsic, number: int) -> bool:
    """Whether an operand is a tile of a grid of such tiles: what it begins with says where all of its elements are."""
    first = s.loads[number]
    for extent, along in zip(s.code.shapes[number], s.steps[number], strict=True):
        distances = [step.value if isinstance(step, Const) else None for step in along]
        if sorted(distances, key=str) != [*[0] * (len(distances) - 1), 1]:
            return False
        step, rest = modulus(first.indices[distances.index(1)])
        if gcd(step, rest) % extent:
            return False
    return True


def _reason(pair: _Conflict) -> str:
    first, second = ("writes" if a.writes else "reads" for a in pair)
    return f"one thread {first} {pair[0].text} before another one {second} {pair[1].text}"


def _joined(at: Stmt, parts: list[_Part], cuts: list[int]) -> _Part:
    """A line of parts with barriers before those in `cuts`, as one part."""
    head: list[Access] = []
    for number, part in enumerate(parts):
        if number in cuts:
            break
        head += part.head
        if part.clean:
            break
    tail: list[Access] = []
    for number in range(len(parts) - 1, -1, -1):
        tail = parts[number].tail + tail
        if number in cuts or parts[number].clean:
            break
    return _Part(at, head, tail, bool(cuts) or any(part.clean for part in parts))


def _results(body: Stmt) -> set[Buffer]:
    """The buffers in global memory that one store of a kernel writes and nothing reads: a stage has one value for an element, whichever thread stores it."""
    stores: dict[Buffer, int] = {}
    used: set[Buffer] = set()
    for s in every_statement(body):
        used.update(node.buffer for e in operands_of(s) if e.holds & HAS_LOAD for node in loads_of(e))
        if isinstance(s, Store):
            stores[s.buffer] = stores.get(s.buffer, 0) + 1
    return {buffer for buffer, count in stores.items() if count == 1 and buffer.scope == "global" and buffer not in used}
