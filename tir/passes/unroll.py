"""Unroll: loops that index register tiles are written out, so that the tile's elements are named by constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..expr import Buffer, Const, Expr, Load, Var, const
from ..stmt import Allocate, For, Func, Stmt, Store, seq
from ..target import Target
from ..verify import CLOSED, NO_VECTOR_LOOPS, PLACED, UNROLLED
from ..visit import Rewriter, Substitute, children, variables_of, walk
from .manager import Pass


@dataclass(frozen=True)
class Unroll(Pass):
    """`for i in unrolled(2): T[i * 8] = 0` with `T` on the stack -> `T[0] = 0; T[8] = 0`.

    Only loops of constant extent whose variable is in an index of a buffer on the stack: a C compiler keeps such a buffer in registers when
    it is indexed by constants only. A serial loop of up to `max_copies` iterations counts as unrolled if an unrolled loop indexes the same
    buffer, lest that one loop (often the one that copies a tile out) keep the tile in memory; so does one of up to that many steps inside a
    loop with the pragma `auto_unroll_max_step`. Other unrolled loops stay, for the C compiler to unroll, and so do those that would give more
    than `max_stores` stores.
    """

    name: ClassVar[str] = "unroll"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, NO_VECTOR_LOOPS, PLACED)
    gives: ClassVar[tuple[str, ...]] = (UNROLLED,)

    max_stores: int = 512
    max_copies: int = 16

    def run(self, func: Func, target: Target) -> Func:
        on_stack = {n.buffer for n in _statements(func.body) if isinstance(n, Allocate) and n.place is not None and n.place.kind == "stack"}
        return func.with_body(_Unroller(func.body, on_stack, self.max_stores, self.max_copies).rewrite_statement(func.body))


class _Unroller(Rewriter):
    def __init__(self, body: Stmt, on_stack: set[Buffer], max_stores: int, max_copies: int):
        super().__init__()
        self.max_stores, self.max_copies = max_stores, max_copies
        self.indexed_by = _indexed_by(body, on_stack)
        unrolled = [s.var for s in _statements(body) if isinstance(s, For) and s.kind == "unrolled" and s.constant_extent is not None]
        self.tiles = {buffer for var in unrolled for buffer in self.indexed_by.get(var, ())}
        self.max_steps = 0  # of loops that a pragma around them asks to unroll

    def rewrite_Expr(self, node: Expr) -> Expr:
        return node

    def rewrite_For(self, node: For) -> Stmt:
        outer = self.max_steps
        asked = dict(node.pragmas).get(_AUTO)
        if asked is not None:
            node = For(node.var, node.extent, node.kind, node.body, node.thread, tuple(p for p in node.pragmas if p[0] != _AUTO))
            self.max_steps = int(asked)
        elif node.kind == "serial" and node.constant_extent is not None and (_steps(node) <= outer or self._copies_a_tile(node, node.constant_extent)):
            node = For(node.var, node.extent, "unrolled", node.body, node.thread, node.pragmas)
        loop = node.with_body(self.rewrite_statement(node.body))
        self.max_steps = outer
        count = loop.constant_extent
        if loop.kind != "unrolled" or count is None or loop.var not in self.indexed_by:
            return loop
        if count * sum(isinstance(s, Store) for s in _statements(loop.body)) > self.max_stores:
            return loop
        return seq(*_copies(loop, count))

    def _copies_a_tile(self, loop: For, extent: int) -> bool:
        return extent <= self.max_copies and not self.tiles.isdisjoint(self.indexed_by.get(loop.var, ()))


def _copies(loop: For, count: int) -> list[Stmt]:
    """The body for each value of the variable. What the first copy did not change, the others need not look at again."""
    first = Substitute({loop.var: const(0, loop.var)})
    copies = [first.rewrite_statement(loop.body)]
    still = {old: new for old, new in first.memo.items() if new is old}
    for k in range(1, count):
        each = Substitute({loop.var: const(k, loop.var)})
        each.memo.update(still)
        copies.append(each.rewrite_statement(loop.body))
    return copies


def _indexed_by(body: Stmt, on_stack: set[Buffer]) -> dict[Var, set[Buffer]]:
    """The buffers on the stack that are indexed by each variable; found once, since copies only lose variables."""
    found: dict[Var, set[Buffer]] = {}
    if on_stack:
        for n in walk(body):
            if (n.__class__ is Load or n.__class__ is Store) and n.buffer in on_stack:
                for index in n.indices:
                    for var in variables_of(index):
                        found.setdefault(var, set()).add(n.buffer)
    return found


_AUTO = "auto_unroll_max_step"


def _statements(s: Stmt) -> list[Stmt]:
    found = [s]
    for each in found:
        found += [c for c in children(each) if isinstance(c, Stmt)]
    return found


def _steps(s: Stmt) -> int:
    """Iterations of the innermost loops of a nest, in all; where an extent is not a constant, more than anyone asks for."""
    inner = sum(_steps(c) for c in children(s) if isinstance(c, Stmt))
    if isinstance(s, For):
        return (s.extent.value if isinstance(s.extent, Const) else 1 << 60) * max(1, inner)  # type: ignore[return-value]
    return inner
