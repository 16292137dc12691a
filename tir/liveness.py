"""From when to when a buffer holds something that is still needed, in program order.

Statements are numbered in the order they stand. An access inside a loop that runs within the life of the buffer counts for the whole loop:
the next iteration may need what the last one left. What an `Allocate` inside a loop holds does not outlive the iteration.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

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


class Meetings:
    """Of a set of live ranges, those already added that a range meets; all questions together take time in proportion to the pairs that meet.

    Of two ranges that meet, one is alive where the other begins: each is entered at all beginnings that it covers.
    """

    def __init__(self, ranges: Iterable[LiveRange]):
        self._beginnings = sorted({r.first for r in ranges})
        self._covering: list[list[LiveRange]] = [[] for _ in self._beginnings]
        self._begun: list[list[LiveRange]] = [[] for _ in self._beginnings]

    def _span(self, each: LiveRange) -> range:
        """The beginnings at which it is alive."""
        return range(bisect_left(self._beginnings, each.first), bisect_right(self._beginnings, each.last))

    def add(self, each: LiveRange) -> None:
        """Enters a range, one of those given."""
        span = self._span(each)
        if span:
            self._begun[span[0]].append(each)
        for beginning in span:
            self._covering[beginning].append(each)

    def of(self, each: LiveRange) -> list[LiveRange]:
        """The ranges added so far that are needed at some statement at which `each`, one of those given, is."""
        span = self._span(each)
        return [*self._covering[span[0]], *(other for beginning in span[1:] for other in self._begun[beginning])] if span else []


def shared_by_threads(func: Func) -> set[Buffer]:
    """Buffers allocated outside a parallel loop that accesses them."""
    found: set[Buffer] = set()
    around: dict[Buffer, int] = {}  # how many parallel loops are around where it is allocated

    def visit(s: Stmt, depth: int) -> None:
        before = around.get(s.buffer) if isinstance(s, Allocate) else None
        if isinstance(s, Allocate):
            around[s.buffer] = depth
        elif isinstance(s, For) and s.kind == "parallel":
            depth += 1
        elif isinstance(s, Store) and around.get(s.buffer, depth) < depth:
            found.add(s.buffer)
        if depth:
            for e in operands_of(s):
                found.update(n.buffer for n in loads_of(e) if around.get(n.buffer, depth) < depth)
        for inner in statements_in(s):
            visit(inner, depth)
        if isinstance(s, Allocate):
            del around[s.buffer]
            if before is not None:
                around[s.buffer] = before

    visit(func.body, 0)
    return found


def overlapping_places(func: Func) -> list[tuple[Buffer, Buffer]]:
    """Pairs of buffers that share bytes of a workspace although both are needed at some statement.

    Of buffers whose place or size is an expression, only those at the same offset are noticed.
    """
    placed = [r for r in live_ranges(func) if r.allocate.place is not None and r.allocate.place.kind != "stack"]
    meetings = Meetings(placed)
    found = []
    for each in placed:
        found += [(other.allocate.buffer, each.allocate.buffer) for other in meetings.of(each) if _share_bytes(other.allocate, each.allocate)]
        meetings.add(each)
    return found


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
