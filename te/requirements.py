"""What a computation asks of the sizes it is called with: that no element outside a tensor is read.

Reads of constant extents are judged where a computation is declared (check.py). Whether `B[i, 0]` of B[n, m] is inside B is known at a call, where m may
be 0; what must hold then is found here. As there, what cannot be decided passes, and what a condition guards is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ..tir.expr import Add, Const, Expr, FloorDiv, IfThenElse, Load, Max, Min, Mul, Sub, Var, as_expr, const, minimum
from ..tir.simplify import Analyzer
from .graph import consumers, operations
from .op import ComputeOp, Operation
from .scan import ScanOp
from .tensor import Tensor


@dataclass(frozen=True)
class Requirement:
    """Where all of `extents` are positive, something is read, and `needed` must be at least 0 (expressions of sizes); else `problem` says what is wrong."""

    extents: tuple[Expr, ...]
    needed: Expr
    problem: str


def requirements(outputs: Iterable[Operation | Tensor]) -> list[Requirement]:
    """What must hold of the sizes, for the computations that the outputs depend on; nothing where it holds for all sizes."""
    order = operations(outputs)
    times: dict[Operation, tuple[Expr, Expr]] = {}  # of what is computed along the time of a scan: first step, and how many
    readers = consumers(order)
    for scan in order:
        if isinstance(scan, ScanOp):
            steps, length = const(scan.steps), as_expr(scan.state[0].shape[0])
            times.update(dict.fromkeys(scan.body, (steps, length - steps)))
            for init in scan.init:
                if all(reader is scan for reader in readers[init]):  # no more initial steps are computed than there are steps
                    times[init.op] = (const(0), minimum(steps, length))
    return [found for op in order if isinstance(op, ComputeOp) for found in _Reads(op, times.get(op)).required()]


class _Reads:
    """The unguarded reads of one computation. `time`: the range of its first axis, where that is the time of a scan."""

    def __init__(self, op: ComputeOp, time: tuple[Expr, Expr] | None):
        self.op = op
        self.limits: dict[Var, tuple[Expr, Expr]] = {}  # of each axis: least and largest value
        self.spatial: list[Expr] = []
        self.reduced: list[Expr] = []
        for number, axis in enumerate((*op.axis, *op.reduce_axis)):
            assert axis.dom is not None
            low, extent = as_expr(axis.dom.min), as_expr(axis.dom.extent)
            if number == 0 and time is not None:
                low, extent = time
            self.limits[axis.var] = (low, low + extent - 1)
            (self.spatial if number < len(op.axis) else self.reduced).append(extent)

    def required(self) -> Iterator[Requirement]:
        op, everywhere = self.op, (*self.spatial, *self.reduced)
        for e in op.body if op.condition is None else (op.condition,):
            yield from self._of(e, everywhere)
        for e in op.init or ():
            yield from self._of(e, self.spatial)

    def _of(self, root: Expr, extents: Sequence[Expr]) -> Iterator[Requirement]:
        """What the unguarded reads in an expression ask for that is evaluated where all `extents` are positive."""
        seen, waiting = {root}, [root]
        while waiting:
            e = waiting.pop()
            if isinstance(e, Load):
                yield from self._of_load(e, extents)
            for child in e.children[:1] if isinstance(e, IfThenElse) else e.children:  # its arms are guarded
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)

    def _of_load(self, node: Load, extents: Sequence[Expr]) -> Iterator[Requirement]:
        for dimension, (index, end) in enumerate(zip(node.indices, node.buffer.shape, strict=True)):
            low, high = self._limit(index, set(), 0), self._limit(index, set(), 1)
            if low is None or high is None or (isinstance(end, int) and low.__class__ is high.__class__ is Const):
                continue
            values = f"is {low}" if low is high else f"takes the values {low} to {high}"
            problem = (f"compute {self.op.name!r} reads {node}, whose index {dimension} {values}, "
                       f"but dimension {dimension} of tensor {node.buffer.name!r} is [0, {end})")  # fmt: skip
            for needed in (low, as_expr(end) - 1 - high):
                if not _holds(needed, extents):
                    yield Requirement(tuple(extents), needed, problem)

    def _limit(self, e: Expr, seen: set[Var], side: int) -> Expr | None:
        """The least (0) or largest (1) value that an index takes, in sizes; None where that is not known."""
        if e.__class__ is Var:
            if e not in self.limits:
                return e
            if e in seen:  # it occurs twice: its parts need not be largest together
                return None
            seen.add(e)
            return self.limits[e][side]
        if e.__class__ is Const:
            return e
        if not isinstance(e, (Add, Sub, Mul, FloorDiv, Min, Max)):
            return None
        if isinstance(e, (Mul, FloorDiv)) and not (isinstance(e.b, Const) and (isinstance(e, Mul) or e.b.value > 0)):
            return None
        falls = isinstance(e, Mul) and e.b.value < 0  # type: ignore[attr-defined]
        a = self._limit(e.a, seen, 1 - side if falls else side)
        b = e.b if isinstance(e.b, Const) else self._limit(e.b, seen, 1 - side if isinstance(e, Sub) else side)
        return None if a is None or b is None else type(e).make(a, b)


def _holds(needed: Expr, extents: Sequence[Expr]) -> bool:
    """Whether it is at least 0 for all sizes with which something is read."""
    analyzer = Analyzer()
    with ExitStack() as known:
        for extent in extents:
            if not isinstance(extent, Const):
                known.enter_context(analyzer.constraint(extent >= 1))
        return analyzer.can_prove(needed >= 0)
