"""Barriers: the threads of a block wait where one of them is about to touch what another one has touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..barrier_plan import BarrierPlan, kernels, plan_barriers
from ..stmt import Allocate, For, Func, Produce, Seq, Stmt, Sync, seq
from ..verify import CLOSED, SYNCED, THREADS_BOUND
from ..visit import StatementRewriter, walk
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True)
class Barriers(Pass):
    """Put `sync block` between accesses of different threads to one element of shared memory, or of global memory that the kernel also writes.

        for threadIdx.x in thread(64):            for threadIdx.x in thread(64):
            for k in range(8):                        for k in range(8):
                S[threadIdx.x] = A[...]        ->         S[threadIdx.x] = A[...]
                for i in range(64):                       sync block
                    C[threadIdx.x] += S[i]                for i in range(64):
                                                              C[threadIdx.x] += S[i]
                                                          sync block

    Where a thread only touches what it has touched itself there is none; one barrier serves everything that is open at that point, those of a loop
    also what one iteration leaves for the next. Where to put them is found in ../barrier_plan.py. They stand where all threads come by: one that would
    have to stand under a condition of some threads is a TargetError. A vectorised loop with a barrier in it becomes a serial one.
    """

    name: ClassVar[str] = "barriers"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, THREADS_BOUND)
    gives: ClassVar[tuple[str, ...]] = (SYNCED,)

    def run(self, func: Func, target: Target) -> Func:
        body = func.body
        for threads, inside in kernels(func):
            plan = plan_barriers(threads, inside)
            if plan.before or plan.begin or plan.end:
                body = _Writer(plan).rewrite_statement(body)
        return func.with_body(body)


class _Writer(StatementRewriter):
    """Writes the barriers of one kernel."""

    def __init__(self, plan: BarrierPlan):
        super().__init__()
        self.plan = plan
        self.written: set[int] = set()  # where the barrier is before a statement around

    def rewrite_statement(self, node: Stmt) -> Stmt:
        first = id(_first(node))
        if first not in self.plan.before or first in self.written:
            return super().rewrite_statement(node)
        self.written.add(first)
        new = super().rewrite_statement(node)
        self.written.discard(first)
        return seq(Sync("block"), new)

    def rewrite_For(self, node: For) -> Stmt:
        body = self.rewrite_statement(node.body)
        if body is node.body and id(node) not in self.plan.begin and id(node) not in self.plan.end:
            return node
        if id(node) in self.plan.begin:
            body = seq(Sync("block"), body)
        if id(node) in self.plan.end:
            body = seq(body, Sync("block"))
        kind = "serial" if node.kind == "vectorized" and any(isinstance(inner, Sync) for inner in walk(body)) else node.kind
        return For(node.var, node.extent, kind, body, node.thread, node.pragmas)


def _first(s: Stmt) -> Stmt:
    """The statement that `s` begins with."""
    while True:
        if isinstance(s, Seq) and s.body:
            s = s.body[0]
        elif isinstance(s, (Produce, Allocate)):
            s = s.body
        else:
            return s
