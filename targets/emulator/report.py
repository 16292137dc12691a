"""`Report`: what the checks of one or more launches found, as records that name the array, the lines and the threads.

`str(record)` is a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Index = tuple[int, ...]
_VERBS = {"index": "indexes", "read": "reads", "write": "writes", "atomic": "changes atomically"}


def _index(what: str, index: Index | None) -> str:
    if index is None:
        return f"another {what}"
    return f"{what} {index[0]}" if len(index) == 1 else f"{what} ({', '.join(map(str, index))})"


def _line(line: int | None) -> str:
    return "an unknown line" if line is None else f"line {line}"


def _times(count: int) -> str:
    return "" if count == 1 else f" (seen {count} times)"


@dataclass(frozen=True)
class Access:
    """One side of a finding: `kind` ("read", "write", "atomic"; "index": which of them is not known), the source line (1-based), thread and block.

    None: not known.
    """

    kind: str
    line: int | None
    thread: Index | None
    block: Index | None

    def __str__(self) -> str:
        return f"{_index('thread', self.thread)} {_VERBS[self.kind]} it in {_line(self.line)}"


@dataclass(frozen=True)
class Race:
    """Two threads touch one place of `buffer`, at least one writes, and nothing orders them. `element`: of as many bytes as the access has."""

    buffer: str
    space: str  # "shared" or "global"
    element: int
    first: Access
    second: Access
    count: int

    @property
    def line(self) -> int | None:
        return self.second.line

    @property
    def lines(self) -> tuple[int | None, int | None]:
        return self.first.line, self.second.line

    @property
    def threads(self) -> tuple[Index | None, Index | None]:
        return self.first.thread, self.second.thread

    @property
    def across_blocks(self) -> bool:
        return self.first.block != self.second.block or self.first.block is None

    def __str__(self) -> str:
        where = f"race on {self.space} array {self.buffer}, element {self.element}"
        if self.across_blocks:
            blocks = f"{_index('block', self.second.block)} and {_index('block', self.first.block)}"
            return f"{where}, between {blocks}, which nothing orders: {self.second}, {self.first}{_times(self.count)}"
        return f"{where}: {self.second}, {self.first}, and no barrier lies between (in {_index('block', self.second.block)}){_times(self.count)}"


class _OfOneAccess:
    """What findings about one access have in common."""

    access: Access

    @property
    def line(self) -> int | None:
        return self.access.line

    @property
    def threads(self) -> tuple[Index | None]:
        return (self.access.thread,)

    @property
    def _who(self) -> str:
        return f"{_index('thread', self.access.thread)} of {_index('block', self.access.block)} in {_line(self.access.line)}"


@dataclass(frozen=True)
class OutOfBounds(_OfOneAccess):
    """An access outside of `buffer` (None: of every array). `element`, `extent`: in units of the access's size."""

    buffer: str | None
    space: str
    element: int
    extent: int
    access: Access
    reason: str
    count: int

    def __str__(self) -> str:
        who = self._who
        if self.buffer is None:
            return f"out of bounds: {who} {_VERBS[self.access.kind]} {self.reason}{_times(self.count)}"
        return f"out of bounds: {who} {_VERBS[self.access.kind]} {self.space} array {self.buffer} {self.reason}{_times(self.count)}"


@dataclass(frozen=True)
class Uninitialised(_OfOneAccess):
    """A read of shared memory that no thread of the block has written."""

    buffer: str
    element: int
    access: Access
    count: int

    def __str__(self) -> str:
        array = f"element {self.element} of shared array {self.buffer}"
        return f"uninitialised: {self._who} reads {array}, which no thread of the block had written{_times(self.count)}"


@dataclass(frozen=True)
class Divergence:
    """Threads that should be at a barrier or warp function together are not. `threads`: one here, one elsewhere."""

    reason: str
    lines: tuple[int | None, ...]
    threads: tuple[Index | None, ...]
    block: Index | None
    count: int

    buffer = None

    @property
    def line(self) -> int | None:
        return self.lines[0]

    def __str__(self) -> str:
        return f"divergence in {_index('block', self.block)}: {self.reason}{_times(self.count)}"


@dataclass(frozen=True)
class NotJudged:
    """What a check could not decide, and why. `buffer`, `line`, `threads`: where it concerns one place."""

    reason: str
    buffer: str | None = None
    line: int | None = None
    threads: tuple[Index | None, ...] = ()

    def __str__(self) -> str:
        return f"not judged: {self.reason}"


@dataclass
class Transactions:
    """Accesses of one line to one global array: `warps` of them, which moved `sectors` of 32 bytes; `ideal`: the fewest that hold as many bytes."""

    line: int | None
    buffer: str
    kind: str
    size: int  # bytes a lane
    warps: int
    sectors: int
    ideal: int

    def __str__(self) -> str:
        efficiency = f"{100 * self.ideal / self.sectors:.0f} % of what is moved is used" if self.sectors else "nothing moved"
        what = {"read": "loads from", "write": "stores to", "atomic": "atomics on"}[self.kind]
        return f"{_line(self.line)}: {self.warps} {what} {self.buffer} ({self.size} bytes a lane): {self.sectors} sectors, ideal {self.ideal}; {efficiency}"


@dataclass
class BankConflicts:
    """Accesses of one line to one shared array: `ways`: the worst conflict (1: none); `passes` through the banks, of which `ideal` would do.

    Or to one of constant memory (`space`), which serves the lanes that read one place in a pass: `ways`: the most places that a warp read at once."""

    line: int | None
    buffer: str
    kind: str
    size: int
    warps: int
    ways: int
    passes: int
    ideal: int
    space: str = "shared"  # or "constant"

    def __str__(self) -> str:
        conflict = "no bank conflict" if self.ways <= 1 else f"{self.ways}-way bank conflict"
        if self.space == "constant":
            conflict = f"{self.ways} place{'s' * (self.ways > 1)} in constant memory at once"
        what = {"read": "loads from", "write": "stores to", "atomic": "atomics on"}[self.kind]
        return f"{_line(self.line)}: {self.warps} {what} {self.buffer} ({self.size} bytes a lane): {conflict}, {self.passes} passes, ideal {self.ideal}"


@dataclass
class Report:
    """What was found. `check`: what was looked for ("race", "memory"), or None: then all lists are empty and say nothing.

    `stopped`: why a launch was ended before its end, if it was. `max_bank_conflict`: ways of the worst conflict (1: none); None unless
    check="memory".
    """

    check: str | None = None
    races: list[Race] = field(default_factory=list)
    out_of_bounds: list[OutOfBounds] = field(default_factory=list)
    uninitialised: list[Uninitialised] = field(default_factory=list)
    divergence: list[Divergence] = field(default_factory=list)
    not_judged: list[NotJudged] = field(default_factory=list)
    transactions: list[Transactions] = field(default_factory=list)
    bank_conflicts: list[BankConflicts] = field(default_factory=list)
    stopped: str | None = None

    @property
    def max_bank_conflict(self) -> int | None:
        if self.check != "memory":
            return None
        return max((conflict.ways for conflict in self.bank_conflicts), default=1)

    @property
    def faults(self) -> list[Race | OutOfBounds | Uninitialised | Divergence]:
        """All that is wrong with the kernel."""
        return [*self.races, *self.out_of_bounds, *self.uninitialised, *self.divergence]

    def __str__(self) -> str:
        if self.check is None:
            return "nothing was checked (check=None)"
        lines = [str(fault) for fault in self.faults]
        if not lines:
            lines = ["no fault found" if self.check == "race" else "no access out of bounds"]
        if self.stopped:
            lines.append(f"the launch was stopped: {self.stopped}")
        lines += map(str, [*self.transactions, *self.bank_conflicts, *self.not_judged])
        return "\n".join(lines)
