"""Unroll: loops that index register tiles are written out, so that the tile's elements are named by constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..expr import Buffer, Const, Expr, Load, Var, const
from ..stmt import Allocate, For, Func, Stmt, Store, seq
from ..target import Target
from ..verify import CLOSED, NO_VECTOR_LOOPS, PLACED, UNROLLED
from ..visit import Rewriter, children, substitute_statement, variables_of, walk
from .manager import Pass


@dataclass(frozen=True)
class Unroll(Pass):
    """`for i in unrolled(2): T[i * 8] = 0` with `T` on the stack -> `T[0] = 0; T[8] = 0`.

    Only loops of constant extent whose variable is in an index of a buffer on the stack: a C compiler keeps such a buffer in registers when
    it is indexed by constants only. Other unrolled loops stay, for the C compiler to unroll, and so do those that would give more than
    `max_stores` stores. Inside a loop with the pragma `auto_unroll_max_step`, serial loops of up to that many steps count as unrolled.
    """

    name: ClassVar[str] = "unroll"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, NO_VECTOR_LOOPS, PLACED)
    gives: ClassVar[tuple[str, ...]] = (UNROLLED,)

    max_stores: int = 512

    def run(self, func: Func, target: Target) -> Func:
        on_stack = {n.buffer for n in _statements(func.body) if isinstance(n, Allocate) and n.place is not None and n.place.kind == "stack"}
        return func.with_body(_Unroller(on_stack, self.max_stores).rewrite_statement(func.body))


class _Unroller(Rewriter):
    def __init__(self, on_stack: set[Buffer], max_stores: int):
        super().__init__()
        self.on_stack, self.max_stores = on_stack, max_stores
        self.max_steps = 0  # of loops that a pragma around them asks to unroll

    def rewrite_Expr(self, node: Expr) -> Expr:
        return node

    def rewrite_For(self, node: For) -> Stmt:
        outer = self.max_steps
        asked = dict(node.pragmas).get(_AUTO)
        if asked is not None:
            node = For(node.var, node.extent, node.kind, node.body, node.thread, tuple(p for p in node.pragmas if p[0] != _AUTO))
            self.max_steps = int(asked)
        elif node.kind == "serial" and node.constant_extent is not None and _steps(node) <= outer:
            node = For(node.var, node.extent, "unrolled", node.body, node.thread, node.pragmas)
        loop = node.with_body(self.rewrite_statement(node.body))
        self.max_steps = outer
        count = loop.constant_extent
        if loop.kind != "unrolled" or count is None or not self._indexes_a_tile(loop.var, loop.body):
            return loop
        if count * sum(isinstance(s, Store) for s in _statements(loop.body)) > self.max_stores:
            return loop
        return seq(*[substitute_statement(loop.body, {loop.var: const(k, loop.var)}) for k in range(count)])

    def _indexes_a_tile(self, var: Var, body: Stmt) -> bool:
        return any(isinstance(n, (Load, Store)) and n.buffer in self.on_stack and any(var in variables_of(i) for i in n.indices) for n in walk(body))


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
