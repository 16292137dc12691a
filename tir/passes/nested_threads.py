"""Loops over one index of a GPU inside one another, while they are loops still: what the inner ones do must not differ between iterations of the outer one.

Both become the same threads. So in `for tx in thread[threadIdx.x](8): for t in thread[threadIdx.x](8): S[t] = ...` what is stored is for all threads, and a
`tx` in it would be another number than is meant. The same holds for what a thread has in its own memory, if it depends on `tx`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ScheduleError
from ..expr import Buffer, Expr, Var
from ..gpu import is_fragment
from ..stmt import Allocate, Bind, For, If, Produce, Stmt
from ..visit import every_statement, loads_of, operands_of, statements_in, stored_buffers


def check_nested_loops(s: Stmt, stage: str = "?") -> None:
    """A ScheduleError where a loop inside another one of the same index asks which iteration of that it is in."""
    if isinstance(s, Produce):
        stage = s.name
    if isinstance(s, For) and _counts(s):
        inner = list(_of_same_index(s.body, s, stage))
        if inner:
            found = _Dependent(s)
            for loop, owner in inner:
                found.check(loop, owner)
    for each in statements_in(s):
        check_nested_loops(each, stage)


def _counts(s: For) -> bool:
    return s.thread is not None and not s.thread.startswith("vthread") and s.constant_extent != 1


def _of_same_index(s: Stmt, outer: For, stage: str) -> Iterator[tuple[For, str]]:
    """The outermost loops in `s` over the index of `outer`, and their stages."""
    if isinstance(s, Produce):
        stage = s.name
    if isinstance(s, For) and s.thread == outer.thread:  # of one iteration too, which would be for the first thread
        yield s, stage
        return
    for each in statements_in(s):
        yield from _of_same_index(each, outer, stage)


class _Dependent:
    """What differs between the iterations of a loop over threads. `variables`; `buffers`: of one thread or warp."""

    def __init__(self, outer: For):
        self.outer = outer
        self.variables: set[Var] = {outer.var}
        self.buffers: set[Buffer] = set()
        allocated = {each.buffer for each in every_statement(outer.body) if isinstance(each, Allocate)}
        self.own = {buffer for buffer in allocated if buffer.scope == "local" or is_fragment(buffer.scope)}
        count = -1
        while count != len(self.variables) + len(self.buffers):  # until nothing more is found to depend on it
            count = len(self.variables) + len(self.buffers)
            self._find(outer.body, False)

    def _depends(self, e: Expr) -> bool:
        return not e.variables.isdisjoint(self.variables) or any(load.buffer in self.buffers for load in loads_of(e))

    def _find(self, s: Stmt, divided: bool) -> None:
        """Notes what depends in `s`; `divided`: whether `s` happens does."""
        here = divided or any(map(self._depends, operands_of(s)))
        if here and isinstance(s, Bind):
            self.variables.add(s.var)
        if here:
            self.buffers.update(self.own.intersection(stored_buffers(s)))
        for each in statements_in(s):
            self._find(each, divided or (here and isinstance(s, If | For)))

    def check(self, loop: For, stage: str) -> None:
        """A ScheduleError where what is done in `loop` depends on the outer one."""
        wrong = [e for each in every_statement(loop) for e in operands_of(each) if self._depends(e)]
        if wrong:
            shown = next((e for e in wrong if self.outer.var in e.variables), wrong[0])
            tag, outer = loop.thread, self.outer.var.name
            raise ScheduleError(f"stage {stage}: its loop {loop.var.name} is bound to {tag} and runs inside the loop {outer}, bound to {tag} too, but {shown} "
                                f"differs between the iterations of {outer}, and a thread is in only one of them; bind {loop.var.name} to another index, or "
                                f"compute the stage outside of {outer}")  # fmt: skip
