"""Unroll: loops that index register tiles are written out, so that the tile's elements are named by constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..expr import Binary, Buffer, Const, Expr, Var, const
from ..stmt import Allocate, Atomic, CallIntrinsic, For, Func, If, Stmt, Store, seq
from ..target import Target
from ..verify import CLOSED, NO_VECTOR_LOOPS, PLACED, UNROLLED
from ..visit import Rewriter, every_statement, loads_of, operands_of, statements_in
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
        statements = every_statement(body)
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
        if s.__class__ in (Store, CallIntrinsic, Atomic):
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


class _Copies(NamedTuple):
    """What the copies of a loop rebuild: `alone`: for each copy, what became of all that depends on no other written-out loop; `together`: what depends
    on loops around as well."""

    alone: list[dict[Expr, Expr]]
    together: list[Expr]


class _Unroller(Rewriter):
    """Writes the copies, from the outside in. An expression is rebuilt where a copy of the innermost written-out loop it depends on begins."""

    def __init__(self, plan: _Plan):
        super().__init__()
        self.plan = plan
        self.around: tuple[Var, ...] = ()  # the variables of the written-out loops around the statement
        self.values: dict[Expr, Expr] = {}  # what became, in this copy, of expressions with these variables
        self.copies: dict[tuple[int, tuple[Var, ...]], _Copies] = {}  # by the id of a loop, and the variables around it

    def rewrite(self, node: Expr) -> Expr:
        return self.values.get(node, node)

    def rewrite_For(self, node: For) -> Stmt:
        count = self.plan.copies.get(id(node))
        if count is None:
            kind, pragmas = self.plan.changed.get(id(node), (node.kind, node.pragmas))
            extent, body = self.rewrite(node.extent), self.rewrite_statement(node.body)
            if extent is node.extent and body is node.body and kind == node.kind and pragmas == node.pragmas:
                return node
            return For(node.var, extent, kind, body, node.thread, pragmas)
        values, around = self.values, self.around
        copies = self.copies.get((id(node), around))
        if copies is None:
            copies = self.copies[id(node), around] = self._copies(node, count)
        self.around = (*around, node.var)
        written = []
        for alone in copies.alone:
            self.values = {**values, **alone}
            self._rebuild(copies.together)
            written.append(self.rewrite_statement(node.body))
        self.values, self.around = values, around
        return seq(*written)

    def _copies(self, loop: For, count: int) -> _Copies:
        inside = every_statement(loop.body)
        loops = [s for s in inside if isinstance(s, For)]
        # What depends on a loop inside is rebuilt there. Copies of a body share variables: one loop may be written out where another stays.
        later = {s.var for s in loops if id(s) in self.plan.copies} - {s.var for s in loops if id(s) not in self.plan.copies}
        alone: list[Expr] = []
        together: list[Expr] = []
        for e in _dependent(inside, loop.var):
            if e.variables.isdisjoint(later):
                (alone if e.variables.isdisjoint(self.around) else together).append(e)
        values, found = self.values, []
        for k in range(count):
            self.values = {loop.var: const(k, loop.var)}
            self._rebuild(alone)
            found.append(self.values)
        self.values = values
        return _Copies(found, together)

    def _rebuild(self, expressions: list[Any]) -> None:
        """Note in `values` what becomes of `expressions`, whose operands come before them."""
        values = self.values
        for e in expressions:
            if isinstance(e, Binary):  # nearly all are index arithmetic
                a, b = e.a, e.b
                values[e] = e.make(values.get(a, a), values.get(b, b))
            else:
                values[e] = self.rewrite_children(e)


def _dependent(statements: list[Stmt], var: Var) -> list[Expr]:
    """What is made with `var` in the expressions of `statements`, operands before what is made of them."""
    found: dict[Expr, None] = {}

    def visit(e: Expr) -> None:
        for operand in e.children:
            if var in operand.variables and operand is not var and operand not in found:
                visit(operand)
        found[e] = None

    for s in statements:
        for e in operands_of(s):
            if var in e.variables and e is not var and e not in found:
                visit(e)
    return list(found)


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


def _steps(s: Stmt) -> int:
    """Iterations of the innermost loops of a nest, in all; where an extent is not a constant, more than anyone asks for."""
    inner = sum(map(_steps, statements_in(s)))
    if isinstance(s, For):
        return (s.extent.value if isinstance(s.extent, Const) else 1 << 60) * max(1, inner)
    return inner
