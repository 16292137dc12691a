"""Unroll: loops that index register tiles are written out, so that the tile's elements are named by constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..expr import Binary, Buffer, Const, Expr, Var, const
from ..stmt import Allocate, CallIntrinsic, For, Func, If, Stmt, Store, seq
from ..target import Target
from ..verify import CLOSED, NO_VECTOR_LOOPS, PLACED, UNROLLED
from ..visit import Rewriter, loads_of, operands_of, statements_in
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

    With `written_out=False`, for CUDA, nothing is copied here: the loops that index a buffer on the stack become "unrolled", which its compilers do
    well, if that gives no more than `max_stores`; such a buffer is in registers only if all of them are.
    """

    name: ClassVar[str] = "unroll"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, NO_VECTOR_LOOPS, PLACED)
    gives: ClassVar[tuple[str, ...]] = (UNROLLED,)

    max_stores: int = 512
    max_copies: int = 16
    written_out: bool = True

    def run(self, func: Func, target: Target) -> Func:
        plan = _Plan(func.body, self.max_stores, self.max_copies, self.written_out)
        plan.stores(func.body)
        return func.with_body(_Unroller(plan).rewrite_statement(func.body))


class _Plan:
    """Which loops are written out.

    Attributes, by the id of a loop: `copies`: how many times its body is written; `changed`: the kind and the pragmas of one that stays, if new.
    """

    def __init__(self, body: Stmt, max_stores: int, max_copies: int, written_out: bool):
        self.max_stores, self.max_copies, self.written_out = max_stores, max_copies, written_out
        statements = _statements(body)
        loops: list[For] = [s for s in statements if s.__class__ is For]
        allocations: list[Allocate] = [s for s in statements if s.__class__ is Allocate]
        on_stack = {s.buffer for s in allocations if s.place is not None and s.place.kind == "stack"}
        self.indexed_by = _indexed_by(statements, on_stack)
        unrolled = [s.var for s in loops if s.kind == "unrolled" and s.constant_extent is not None]
        self.tiles = {buffer for var in unrolled for buffer in self.indexed_by.get(var, ())}
        if written_out:
            self._leave_guarded(loops, [s for s in statements if s.__class__ is If])
        self.max_steps = 0  # of loops that a pragma around them asks to unroll
        self.copies: dict[int, int] = {}
        self.changed: dict[int, tuple[str, tuple[tuple[str, int | str], ...]]] = {}

    def _leave_guarded(self, loops: list[For], guards: list[If]) -> None:
        """Forget the buffers of loops whose variables are needed by a guard together with others, so that no copy decides it."""
        copied = {s.var for s in loops if s.constant_extent is not None and (s.kind == "unrolled" or self._copies_a_tile(s, s.constant_extent))}
        guarded: set[Buffer] = set()
        for s in guards:
            needed = s.condition.variables
            if not needed <= copied:
                guarded = guarded.union(*[self.indexed_by.get(var, ()) for var in needed & copied])
        self.tiles -= guarded
        self.indexed_by = {var: left for var, buffers in self.indexed_by.items() if (left := buffers - guarded)}

    def stores(self, s: Stmt) -> int:
        """The stores in `s` when it is written out as planned."""
        if s.__class__ is Store or s.__class__ is CallIntrinsic:
            return 1
        if s.__class__ is For:
            return self._loop(s)
        total = 0
        for inner in statements_in(s):
            total += self.stores(inner)
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
        if not self.written_out:
            if extent is not None and kind in ("serial", "unrolled") and loop.var in self.indexed_by and extent * stores <= self.max_stores:
                self.changed[id(loop)] = "unrolled", self.changed.get(id(loop), (kind, loop.pragmas))[1]
                stores *= extent
            return stores
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
        # What became of expressions, by the depth of the innermost written-out loop they depend on; what depends on that loop alone is under
        # minus its depth, since it is the same in every copy of the loops around.
        self.memos: dict[int, dict[Expr, Expr]] = {}
        self.depth_of: dict[Expr, int] = {}
        self.alone: dict[int, list[dict[Expr, Expr]]] = {}  # the memos of each loop alone, by its id, for each value of its variable
        self.around: dict[Expr, int] = {}  # of the variables of the written-out loops around the statement
        self.loop_of: dict[Var, tuple[int, int]] = {}  # the id of the loop of each variable, and how many written-out loops are around it

    def rewrite(self, node: Expr) -> Expr:
        depth = self.depth_of.get(node)
        if depth is None:
            depth = self._depth(node)
        if depth == 0:
            return node
        memo = self.memos[depth]
        found = memo.get(node)
        if found is None:
            found = memo[node] = self._table[node.__class__](self, node)
        return found

    def rewrite_Binary(self, node: Binary) -> Expr:
        """As usual; but nearly all that is copied is index arithmetic, whose operands mostly stay."""
        a, b, known = node.a, node.b, self.depth_of.get
        new_a = a if known(a) == 0 else self.rewrite(a)
        new_b = b if b.__class__ is Const or known(b) == 0 else self.rewrite(b)
        return node if new_a is a and new_b is b else node.make(new_a, new_b)

    def _depth(self, e: Expr) -> int:
        """Which of `memos` is for `e`; 0: it depends on no written-out loop."""
        around, found, innermost = self.around, 0, 0
        for var in e.variables:
            depth = around.get(var, 0)
            if depth:
                innermost = max(innermost, depth)
                found = innermost if found else -depth
        self.depth_of[e] = found
        return found

    def rewrite_For(self, node: For) -> Stmt:
        here = id(node), len(self.around)
        if self.loop_of.setdefault(node.var, here) != here:  # copies of a body share variables, but not depths
            self.loop_of[node.var] = here
            self.depth_of = {var: -depth for var, depth in self.around.items()}
        count = self.plan.copies.get(id(node))
        if count is None:
            kind, pragmas = self.plan.changed.get(id(node), (node.kind, node.pragmas))
            extent, body = self.rewrite(node.extent), self.rewrite_statement(node.body)
            if extent is node.extent and body is node.body and kind == node.kind and pragmas == node.pragmas:
                return node
            return For(node.var, extent, kind, body, node.thread, pragmas)
        depth = self.around[node.var] = len(self.around) + 1
        self.depth_of[node.var] = -depth
        alone = self.alone.get(id(node))
        if alone is None:
            alone = self.alone[id(node)] = [{node.var: const(k, node.var)} for k in range(count)]
        copies = []
        for memo in alone:
            self.memos[depth], self.memos[-depth] = {}, memo
            copies.append(self.rewrite_statement(node.body))
        del self.around[node.var]
        return seq(*copies)


def _indexed_by(statements: list[Stmt], on_stack: set[Buffer]) -> dict[Var, set[Buffer]]:
    """The buffers on the stack that are indexed by each variable; found once, since copies only lose variables."""
    found: dict[Var, set[Buffer]] = {}
    if on_stack:
        for s in statements:
            accesses: list[Any] = [s] if s.__class__ is Store else []
            for e in operands_of(s):
                accesses += loads_of(e)
            for access in accesses:
                if access.buffer in on_stack:
                    for index in access.indices:
                        for var in index.variables:
                            found.setdefault(var, set()).add(access.buffer)
    return found


_AUTO = "auto_unroll_max_step"


def _statements(s: Stmt) -> list[Stmt]:
    found = [s]
    for each in found:
        found += statements_in(each)
    return found


def _steps(s: Stmt) -> int:
    """Iterations of the innermost loops of a nest, in all; where an extent is not a constant, more than anyone asks for."""
    inner = sum(map(_steps, statements_in(s)))
    if isinstance(s, For):
        return (s.extent.value if isinstance(s.extent, Const) else 1 << 60) * max(1, inner)
    return inner
