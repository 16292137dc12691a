"""From when to when a buffer holds something that is still needed, in program order.

Statements are numbered in the order they stand. An access inside a loop that runs within the life of the buffer counts for the whole loop:
the next iteration may need what the last one left. What an `Allocate` inside a loop holds does not outlive the iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from .expr import HAS_LOAD, Buffer, Const, Expr
from .stmt import Allocate, For, Func, If, Prefetch, Stmt, Store, Sync
from .visit import loads_of, operands_of, statements_in


@dataclass(eq=False)
class LiveRange:
    """The life of one allocation: the numbers of the first and last statement that need it; `last` < `first` where none does.

    `in_parallel`: it is inside a parallel loop, so that each thread has one.
    """

    allocate: Allocate
    in_parallel: bool
    depth: int  # of the loops around the allocation
    first: int
    last: int = -1

    def meets(self, other: LiveRange) -> bool:
        """Whether both are needed at some statement."""
        return self.first <= other.last and other.first <= self.last


def live_ranges(func: Func) -> list[LiveRange]:
    """The life of every allocation of a function, in program order."""
    return _Numbering(func).ranges


def live_ranges_and_barriers(func: Func) -> tuple[list[LiveRange], list[int]]:
    """Also the numbers of the barriers that all threads of a block come by whatever the sizes and values are."""
    found = _Numbering(func)
    return found.ranges, found.barriers


class _Numbering:
    def __init__(self, func: Func):
        self.ranges: list[LiveRange] = []
        self.current: dict[Buffer, LiveRange] = {}
        self.loops: list[tuple[int, set[LiveRange], bool]] = []  # where each began, the ranges that last until it ends, whether it is over threads
        self.loads: dict[Expr, list[Buffer]] = {}
        self.number = self.parallel = 0
        self.certain = True  # the statement is run whenever its kernel is
        self.barriers: list[int] = []
        self.statement(func.body)

    def statement(self, s: Stmt) -> None:
        self.number += 1
        if s.__class__ is Allocate:
            before = self.current.get(s.buffer)
            found = LiveRange(s, self.parallel > 0, len(self.loops), self.number)
            self.ranges.append(found)
            self.current[s.buffer] = found
            self.statement(s.body)
            if before is not None:
                self.current[s.buffer] = before
            return
        if s.__class__ is Prefetch:
            return
        if s.__class__ is Store:
            self.touch(s.buffer)
        for e in operands_of(s):
            if e.holds & HAS_LOAD:
                for buffer in self.loaded(e):
                    self.touch(buffer)
        if s.__class__ is Sync and s.kind == "block" and self.certain:
            self.barriers.append(self.number)
        if s.__class__ is For:
            certain, self.certain = self.certain, self.certain and (s.kind == "thread" or bool(s.constant_extent))
            self.loops.append((self.number, set(), s.kind == "thread"))
            self.parallel += s.kind == "parallel"
            self.statement(s.body)
            self.parallel -= s.kind == "parallel"
            self.number += 1
            for each in self.loops.pop()[1]:
                each.last = self.number
            self.certain = certain
            return
        certain, self.certain = self.certain, self.certain and s.__class__ is not If
        for inner in statements_in(s):
            self.statement(inner)
        self.certain = certain

    def loaded(self, e: Expr) -> list[Buffer]:
        found = self.loads.get(e)
        if found is None:
            found = self.loads[e] = [node.buffer for node in loads_of(e)]
        return found

    def touch(self, buffer: Buffer) -> None:
        """An access at the current statement."""
        found = self.current.get(buffer)
        if found is None:  # a parameter
            return
        begin = self.number
        for loop_begin, lasting, over_threads in self.loops[found.depth :]:
            if not (over_threads and buffer.scope.startswith("shared")):  # the threads of a block go through its memory together
                begin = loop_begin
                lasting.add(found)
                break
        found.first = begin if found.last < 0 else min(found.first, begin)
        found.last = max(found.last, self.number)


def shared_by_threads(func: Func) -> set[Buffer]:
    """Buffers allocated outside a parallel loop that accesses them."""
    found: set[Buffer] = set()

    def visit(s: Stmt, outside: frozenset[Buffer], own: frozenset[Buffer]) -> None:
        if isinstance(s, Allocate):
            own = own | {s.buffer}
        elif isinstance(s, For) and s.kind == "parallel":
            outside, own = outside | own, frozenset()
        elif isinstance(s, Store) and s.buffer in outside:
            found.add(s.buffer)
        if outside:
            for e in operands_of(s):
                found.update(n.buffer for n in loads_of(e) if n.buffer in outside)
        for inner in statements_in(s):
            visit(inner, outside, own)

    visit(func.body, frozenset(), frozenset())
    return found


def overlapping_places(func: Func) -> list[tuple[Buffer, Buffer]]:
    """Pairs of buffers that share bytes of a workspace although both are needed at some statement.

    Of buffers whose place or size is an expression, only those at the same offset are noticed.
    """
    placed = [r for r in live_ranges(func) if r.allocate.place is not None and r.allocate.place.kind != "stack"]
    return [(a.allocate.buffer, b.allocate.buffer) for a, b in combinations(placed, 2) if a.meets(b) and _share_bytes(a.allocate, b.allocate)]


def _share_bytes(a: Allocate, b: Allocate) -> bool:
    assert a.place is not None and b.place is not None
    if a.place.kind != b.place.kind:
        return False
    at, size, other, other_size = _offset(a), a.buffer.constant_size, _offset(b), b.buffer.constant_size
    if not isinstance(at, int) or not isinstance(other, int):
        return at is other
    if size is None or other_size is None:
        return at == other
    return at < other + other_size * b.buffer.dtype.bytes and other < at + size * a.buffer.dtype.bytes


def _offset(allocate: Allocate) -> int | Expr:
    assert allocate.place is not None
    offset = allocate.place.offset
    return int(offset.value) if isinstance(offset, Const) else offset
