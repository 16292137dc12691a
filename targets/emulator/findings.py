"""From the runtime's findings (numbers and addresses) to the records of a report (names, lines and threads)."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .launch import MOST_FINDINGS, MOST_TRAFFIC, Finding, Launch
from .report import Access, BankConflicts, Divergence, Index, NotJudged, OutOfBounds, Race, Report, Transactions, Uninitialised

# runtime.h: Kind
RACE_SHARED, RACE_GLOBAL, RACE_BLOCKS, UNINITIALISED, OUT_OF_BOUNDS, READ_ONLY, WILD = range(1, 8)
BARRIER_SITES, BARRIER_STUCK, BARRIER_EXITED, INACTIVE_LANE, FOREIGN_MASK, FENCED, INDEX, WARP_SITES, MISALIGNED = range(8, 17)
_ACCESS = ("read", "write", "atomic", "index")
_UNKNOWN_32, _UNKNOWN_64 = 2**32 - 1, 2**64 - 1


@dataclass(frozen=True)
class MemoryName:
    """What the report calls a memory of the launch: its name, where it lies ("shared", "global", "constant"), its bytes."""

    name: str
    space: str
    size: int


def index(linear: int, extents: Sequence[int]) -> Index:
    """The index of a linear number, x first, with as many dimensions as there are extents above one."""
    x, rest = linear % extents[0], linear // extents[0]
    y, z = rest % extents[1], rest // extents[1]
    used = 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1
    return (x, y, z)[:used]


class Reader:
    """Adds what a launch found to a report. `line_of(address)`: the source line of a return address."""

    def __init__(self, launch: Launch, names: Sequence[MemoryName], line_of: Callable[[int], int | None], report: Report):
        self._grid, self._block = tuple(launch.grid), tuple(launch.block)
        self._launch, self._names, self._line_of, self._report = launch, names, line_of, report

    def add(self) -> None:
        findings = [self._launch.findings[i] for i in range(self._launch.finding_count)]
        for finding in sorted(findings, key=lambda f: (f.kind, f.place, f.other_place)):  # INDEX comes after OUT_OF_BOUNDS
            self._add(finding)
        if self._launch.finding_count == MOST_FINDINGS:
            self._report.not_judged.append(NotJudged(f"there are more than {MOST_FINDINGS} different findings; the first ones are reported"))
        self._add_traffic()

    def _thread(self, linear: int) -> Index | None:
        return None if linear == _UNKNOWN_32 else index(linear, self._block)

    def _block_index(self, linear: int) -> Index | None:
        return None if linear == _UNKNOWN_64 else index(linear, self._grid)

    def _sides(self, finding: Finding) -> tuple[Access, Access]:
        first = Access(
            _ACCESS[finding.other_access], self._line_of(finding.other_place), self._thread(finding.other_thread), self._block_index(finding.other_block)
        )
        second = Access(_ACCESS[finding.access], self._line_of(finding.place), self._thread(finding.thread), self._block_index(finding.block))
        return first, second

    def _add(self, finding: Finding) -> None:
        kind, report = finding.kind, self._report
        first, second = self._sides(finding)
        if kind == INDEX:
            self._add_index(finding)
        elif kind in (WILD, OUT_OF_BOUNDS, READ_ONLY, MISALIGNED):
            report.out_of_bounds.append(self._out_of_bounds(finding, second))
        elif kind in (BARRIER_SITES, BARRIER_EXITED, BARRIER_STUCK, INACTIVE_LANE, FOREIGN_MASK, WARP_SITES):
            self._add_divergence(finding, first, second)
        else:
            memory = self._names[finding.memory]
            element = finding.offset // max(1, finding.size)
            if kind == UNINITIALISED:
                report.uninitialised.append(Uninitialised(memory.name, element, second, finding.count))
            elif kind == FENCED:
                reason = (
                    f"{second}, {first}, in element {element} of {memory.space} array {memory.name}; fences and atomic operations may order them, "
                    "which is not looked into"
                )
                report.not_judged.append(NotJudged(reason, memory.name, second.line, (second.thread, first.thread)))
            else:
                report.races.append(Race(memory.name, memory.space, element, first, second, finding.count))

    def _out_of_bounds(self, finding: Finding, access: Access) -> OutOfBounds:
        size = max(1, finding.size)
        if finding.kind == WILD:
            what = "a null pointer" if finding.offset < 4096 else f"the address 0x{finding.offset:x}, which belongs to no array of the kernel"
            return OutOfBounds(None, "", 0, 0, access, f"{what}; the launch ended there", finding.count)
        if finding.kind == MISALIGNED and finding.memory == _UNKNOWN_32:
            reason = f"the address 0x{finding.offset:x}, which is not aligned to {finding.extra} bytes; the launch ended there"
            return OutOfBounds(None, "", 0, 0, access, reason, finding.count)
        memory = self._names[finding.memory]
        if finding.kind == MISALIGNED:
            reason = f"at byte {finding.offset}, which is not aligned to {finding.extra} bytes; the launch ended there"
            return OutOfBounds(memory.name, memory.space, finding.offset // finding.extra, memory.size // finding.extra, access, reason, finding.count)
        offset = finding.offset - 2**64 if finding.offset >= 2**63 else finding.offset
        element, extent = offset // size, memory.size // size
        if finding.kind == READ_ONLY:
            reason = "which is read-only"
        elif memory.size == 0:
            reason = f"at byte {offset}; the launch gave it no bytes: shared_bytes says how many a block has"
        elif offset % size == 0:
            reason = f"at element {element}; it has {extent} of {size} bytes"
        else:
            reason = f"at byte {offset} to {offset + size - 1}; it has {memory.size} bytes"
        return OutOfBounds(memory.name, memory.space, element, extent, access, reason, finding.count)

    def _add_index(self, finding: Finding) -> None:
        """An index beyond the type of an array; not said again where the access itself was found to miss its array."""
        line = self._line_of(finding.place)
        if line is not None and any(record.line == line for record in self._report.out_of_bounds):
            return
        kind = ctypes.string_at(finding.other_place).decode(errors="replace").strip("'")
        extent = re.search(r"\[(\d+)\]", kind)
        position = finding.offset - 2**64 if finding.offset >= 2**63 else finding.offset
        access = Access("index", line, self._thread(finding.thread), self._block_index(finding.block))
        reason = f"an array of type {kind} with {position}"
        self._report.out_of_bounds.append(OutOfBounds(None, "", position, int(extent[1]) if extent else 0, access, reason, finding.count))

    def _add_divergence(self, finding: Finding, first: Access, second: Access) -> None:
        here, there = second.line, first.line
        me, other = self._thread(finding.thread), self._thread(finding.other_thread)
        mask = f"0x{finding.extra:08x}"
        if finding.kind == BARRIER_SITES:
            here, there = finding.place, finding.other_place
            reason = f"thread {_text(me)} waits at the barrier of line {here}, thread {_text(other)} at that of line {there}"
        elif finding.kind == WARP_SITES:
            if here == there:
                return  # the compiler made two calls of one
            reason = f"thread {_text(me)} exchanges values in line {here} with thread {_text(other)} in line {there}, which a GPU does not do"
        elif finding.kind == BARRIER_EXITED:
            if here is None or there is None:
                self._report.not_judged.append(NotJudged("a thread ended without reaching a barrier, before or after it: lines are unknown"))
                return
            if there <= here:
                return  # it left before the barrier, which is allowed
            reason = f"thread {_text(other)} never came to the barrier of line {here}, where thread {_text(me)} waited: it went on to line {there} and ended"
        elif finding.kind == INACTIVE_LANE:
            source = f"thread {_text(other)}"
            if finding.other_thread >= math.prod(self._block):
                source = f"lane {finding.other_thread % 32}, which the block does not have,"
            reason = f"thread {_text(me)} gets a value from {source} in line {here}, which takes no part: it ended, or the mask does not name it"
        elif finding.kind == FOREIGN_MASK:
            reason = f"thread {_text(me)} calls a warp function in line {here} with the mask {mask}, which does not name its lane"
        else:
            elsewhere = f", thread {_text(other)} at the barrier of line {there}" if finding.other_place else ""
            reason = f"thread {_text(me)} waits in line {here} for lanes of the mask {mask} that never come{elsewhere}"
        self._report.divergence.append(Divergence(reason, (here, there), (me, other), second.block, finding.count))

    def _add_traffic(self) -> None:
        launch, report = self._launch, self._report
        transactions: dict[tuple[int | None, str, str, int], Transactions] = {
            (record.line, record.buffer, record.kind, record.size): record for record in report.transactions
        }
        conflicts: dict[tuple[int | None, str, str, int], BankConflicts] = {
            (record.line, record.buffer, record.kind, record.size): record for record in report.bank_conflicts
        }
        for i in range(launch.traffic_count):
            traffic = launch.traffic[i]
            memory, kind, line = self._names[traffic.memory], _ACCESS[traffic.access], self._line_of(traffic.place)
            key = (line, memory.name, kind, traffic.size)
            if memory.space != "global":
                conflict = conflicts.setdefault(key, BankConflicts(line, memory.name, kind, traffic.size, 0, 1, 0, 0, memory.space))
                conflict.warps += traffic.warps
                conflict.ways = max(conflict.ways, traffic.ways)
                conflict.passes += traffic.moved
                conflict.ideal += traffic.ideal
            else:
                record = transactions.setdefault(key, Transactions(line, memory.name, kind, traffic.size, 0, 0, 0))
                record.warps += traffic.warps
                record.sectors += traffic.moved
                record.ideal += traffic.ideal
        report.transactions = sorted(transactions.values(), key=lambda record: (record.line or 0, record.buffer, record.kind))
        report.bank_conflicts = sorted(conflicts.values(), key=lambda record: (record.line or 0, record.buffer, record.kind))
        if launch.traffic_count == MOST_TRAFFIC:
            report.not_judged.append(NotJudged(f"the kernel accesses memory at more than {MOST_TRAFFIC} places; the first ones are counted"))


def _text(thread: Index | None) -> str:
    if thread is None:
        return "(unknown)"
    return str(thread[0]) if len(thread) == 1 else f"({', '.join(map(str, thread))})"
