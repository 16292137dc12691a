"""Barriers: the threads of a block wait where one of them is about to touch what another one has touched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ..barrier_plan import BarrierPlan, plan_barriers
from ..kernel import kernels_of
from ..stmt import Allocate, Bind, For, Func, If, Produce, Seq, Shuffle, Stmt, Sync, seq
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
    also what one iteration leaves for the next. What only threads of one warp do for one another takes `sync warp`, which costs next to nothing: first come
    the barriers that warps need of each other, then those that are lacking still. Where to put them is found in ../barrier_plan.py. They stand where all
    threads come by: one that would have to stand under a condition of some threads is a TargetError. A vectorised loop with a barrier in it becomes a
    serial one.
    """

    name: ClassVar[str] = "barriers"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, THREADS_BOUND)
    gives: ClassVar[tuple[str, ...]] = (SYNCED,)

    def run(self, func: Func, target: Target) -> Func:
        own = done = func.with_body(_distinct(func.body))
        for kind in ("block", "warp"):
            plans = [plan_barriers(kernel, of=kind) for kernel in kernels_of(done)]
            done = done.with_body(_Writer(plans, kind).rewrite_statement(done.body))
        return func if done is own else done


class _Writer(StatementRewriter):
    """Writes barriers of one kind, and takes vectorised loops back in which threads do something together."""

    def __init__(self, plans: list[BarrierPlan], kind: str):
        super().__init__()
        self.kind = kind
        self.before, self.begin, self.end = (set[int]().union(*[getattr(plan, where) for plan in plans]) for where in ("before", "begin", "end"))
        self.written: set[int] = set()  # where the barrier is before a statement around

    def rewrite_statement(self, node: Stmt) -> Stmt:
        first = id(_first(node))
        if first not in self.before or first in self.written:
            return super().rewrite_statement(node)
        self.written.add(first)
        new = super().rewrite_statement(node)
        self.written.discard(first)
        return seq(Sync(self.kind), new)

    def rewrite_For(self, node: For) -> Stmt:
        body = self.rewrite_statement(node.body)
        if id(node) in self.begin:
            body = seq(Sync(self.kind), body)
        if id(node) in self.end:
            body = seq(body, Sync(self.kind))
        if node.kind == "vectorized" and any(isinstance(inner, (Sync, Shuffle)) for inner in walk(body)):
            return For(node.var, node.extent, "serial", body, node.thread, node.pragmas)
        return node.with_body(body)


def _distinct(s: Stmt) -> Stmt:
    """The same statements, each an object of its own: copies of a body may share them, but a barrier before one is not one before the other."""
    if isinstance(s, Seq):
        return Seq(tuple(_distinct(each) for each in s.body))
    if isinstance(s, If):
        return If(s.condition, _distinct(s.then), None if s.otherwise is None else _distinct(s.otherwise))
    if isinstance(s, For):
        return For(s.var, s.extent, s.kind, _distinct(s.body), s.thread, s.pragmas)
    if isinstance(s, Allocate | Bind | Produce):
        return replace(s, body=_distinct(s.body))
    return replace(s)  # type: ignore[type-var]


def _first(s: Stmt) -> Stmt:
    """The statement that `s` begins with."""
    while True:
        if isinstance(s, Seq) and s.body:
            s = s.body[0]
        elif isinstance(s, (Produce, Allocate)):
            s = s.body
        else:
            return s
