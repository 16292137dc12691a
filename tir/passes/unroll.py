"""Unroll: loops that index register tiles are written out, so that the tile's elements are named by constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..expr import Buffer, Const, Expr, Load, Var, const
from ..stmt import Allocate, For, Func, If, Stmt, Store, seq
from ..target import Target
from ..verify import CLOSED, NO_VECTOR_LOOPS, PLACED, UNROLLED
from ..visit import Rewriter, children, variables_of, walk
from .manager import Pass


@dataclass(frozen=True)
class Unroll(Pass):
    """`for i in unrolled(2): T[i * 8] = 0` with `T` on the stack -> `T[0] = 0; T[8] = 0`.

    Only loops of constant extent whose variable is in an index of a buffer on the stack: a C compiler keeps such a buffer in registers when
    it is indexed by constants only. A serial loop of up to `max_copies` iterations counts as unrolled if an unrolled loop indexes the same
    buffer, lest that one loop (often the one that copies a tile out) keep the tile in memory; so does one of up to that many steps inside a
    loop with the pragma `auto_unroll_max_step`. Loops over a buffer stay if one of them has a guard inside that would still be one in every
    copy, as in the remainder of a tile: conditional updates keep the buffer out of registers anyway, and half of the program would be
    remainders. Other unrolled loops stay, for the C compiler to unroll, and so do those that would give more
    than `max_stores` stores.
    """

    name: ClassVar[str] = "unroll"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, NO_VECTOR_LOOPS, PLACED)
    gives: ClassVar[tuple[str, ...]] = (UNROLLED,)

    max_stores: int = 512
    max_copies: int = 16

    def run(self, func: Func, target: Target) -> Func:
        plan = _Plan(func.body, self.max_stores, self.max_copies)
        plan.stores(func.body)
        return func.with_body(_Unroller(plan).rewrite_statement(func.body))


class _Plan:
    """Which loops are written out.

    Attributes, by the id of a loop: `copies`: how many times its body is written; `changed`: the kind and the pragmas of one that stays, if new.
    """

    def __init__(self, body: Stmt, max_stores: int, max_copies: int):
        self.max_stores, self.max_copies = max_stores, max_copies
        statements = _statements(body)
        on_stack = {n.buffer for n in statements if isinstance(n, Allocate) and n.place is not None and n.place.kind == "stack"}
        self.indexed_by = _indexed_by(body, on_stack)
        unrolled = [s.var for s in statements if isinstance(s, For) and s.kind == "unrolled" and s.constant_extent is not None]
        self.tiles = {buffer for var in unrolled for buffer in self.indexed_by.get(var, ())}
        self._leave_guarded(statements)
        self.max_steps = 0  # of loops that a pragma around them asks to unroll
        self.copies: dict[int, int] = {}
        self.changed: dict[int, tuple[str, tuple[tuple[str, int | str], ...]]] = {}

    def _leave_guarded(self, statements: list[Stmt]) -> None:
        """Forget the buffers of loops whose variables are needed by a guard together with others, so that no copy decides it."""
        copied = {
            s.var
            for s in statements
            if isinstance(s, For) and s.constant_extent is not None and (s.kind == "unrolled" or self._copies_a_tile(s, s.constant_extent))
        }
        guarded: set[Buffer] = set()
        for s in statements:
            if isinstance(s, If):
                needed = variables_of(s.condition)
                if not needed <= copied:
                    guarded = guarded.union(*[self.indexed_by.get(var, ()) for var in needed & copied])
        self.tiles -= guarded
        self.indexed_by = {var: left for var, buffers in self.indexed_by.items() if (left := buffers - guarded)}

    def stores(self, s: Stmt) -> int:
        """The stores in `s` when it is written out as planned."""
        if isinstance(s, Store):
            return 1
        if isinstance(s, For):
            return self._loop(s)
        total = 0
        for child in children(s):
            if isinstance(child, Stmt):
                total += self.stores(child)
        return total

    def _loop(self, loop: For) -> int:
        outer, kind, extent = self.max_steps, loop.kind, loop.constant_extent
        asked = dict(loop.pragmas).get(_AUTO)
        if asked is not None:
            self.changed[id(loop)] = kind, tuple(p for p in loop.pragmas if p[0] != _AUTO)
            self.max_steps = int(asked)
        elif kind == "serial" and extent is not None and ((outer and _steps(loop) <= outer) or self._copies_a_tile(loop, extent)):
            kind = "unrolled"
            self.changed[id(loop)] = kind, loop.pragmas
        stores = self.stores(loop.body)
        self.max_steps = outer
        if kind != "unrolled" or extent is None or loop.var not in self.indexed_by:
            return stores
        if extent * stores <= self.max_stores:
            self.copies[id(loop)] = extent
            stores *= extent
        return stores

    def _copies_a_tile(self, loop: For, extent: int) -> bool:
        return extent <= self.max_copies and not self.tiles.isdisjoint(self.indexed_by.get(loop.var, ()))


class _Unroller(Rewriter):
    """Writes the copies, from the outside in. An expression is rebuilt once for the values of the variables in it, not once for each copy."""

    def __init__(self, plan: _Plan):
        super().__init__()
        self.plan = plan
        self.memos: list[dict[Expr, Expr]] = [{}]  # of expressions by the depth of the innermost written-out loop they depend on
        self.depth_of: dict[Expr, int] = {}
        self.around: dict[Expr, int] = {}  # of the variables of the written-out loops around the statement
        self.loop_of: dict[Var, int] = {}  # the id of the loop of each variable

    def rewrite(self, node: Expr) -> Expr:
        depth = self._depth(node)
        if depth == 0:
            return node
        memo = self.memos[depth]
        found = memo.get(node)
        if found is None:
            found = memo[node] = self._table[node.__class__](self, node)
        return found

    def _depth(self, e: Expr) -> int:
        """How many written-out loops there are around the statement, from the outermost to the last one whose variable is in `e`."""
        found = self.depth_of.get(e)
        if found is None:
            found = 0
            for child in e.children:
                found = max(found, self._depth(child))
            self.depth_of[e] = found
        return found

    def rewrite_For(self, node: For) -> Stmt:
        if self.loop_of.setdefault(node.var, id(node)) != id(node):  # copies of a body share variables, but not depths
            self.loop_of[node.var] = id(node)
            self.depth_of = dict(self.around)
        count = self.plan.copies.get(id(node))
        if count is None:
            kind, pragmas = self.plan.changed.get(id(node), (node.kind, node.pragmas))
            extent, body = self.rewrite(node.extent), self.rewrite_statement(node.body)
            if extent is node.extent and body is node.body and kind == node.kind and pragmas == node.pragmas:
                return node
            return For(node.var, extent, kind, body, node.thread, pragmas)
        self.around[node.var] = self.depth_of[node.var] = len(self.memos)
        copies = []
        for k in range(count):
            self.memos.append({node.var: const(k, node.var)})
            copies.append(self.rewrite_statement(node.body))
            self.memos.pop()
        del self.around[node.var]
        return seq(*copies)


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
        return (s.extent.value if isinstance(s.extent, Const) else 1 << 60) * max(1, inner)
    return inner
