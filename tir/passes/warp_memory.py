"""Warp memory: what the threads along threadIdx.x hold together lies in shared memory, a part of it for each row of threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..expr import Buffer, Const, Expr, Load, Var, as_expr, load
from ..stmt import Allocate, CallIntrinsic, For, Func, Stmt, Store
from ..verify import CLOSED
from ..visit import Rewriter
from .copies import several
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target

_ROWS = ("threadIdx.z", "threadIdx.y")


@dataclass(frozen=True)
class WarpMemory(Pass):
    """A buffer of scope "warp" becomes a shared one with a dimension for threadIdx.y and one for threadIdx.z, where its kernel has them:

        for ty in thread[threadIdx.y](4):                      for ty in thread[threadIdx.y](4):
            allocate W: float32[32] in warp                        allocate W: float32[4, 32] in shared
            for tx in thread[threadIdx.x](32):          ->         for tx in thread[threadIdx.x](32):
                W[tx] = A[ty, tx]                                      W[ty, tx] = A[ty, tx]

    One that is allocated outside of all kernels stays, and is refused when threads are bound.

    Registers that are read by shuffles would do for indices that are known when the kernel is compiled; shared memory does for all.
    """

    name: ClassVar[str] = "warp_memory"
    requires: ClassVar[tuple[str, ...]] = (CLOSED,)

    def run(self, func: Func, target: Target) -> Func:
        allocations, body = [], func.body
        while isinstance(body, Allocate):
            allocations.append(body)
            body = body.body
        body = _Mover().rewrite_statement(body)
        for allocation in reversed(allocations):
            body = Allocate(allocation.buffer, body, allocation.place)
        return func.with_body(body)


class _Mover(Rewriter):
    """`rows`: of the loops over threads around, by tag; `moved`: the new buffers and the indices that come first."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, tuple[Var, Expr]] = {}
        self.moved: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}

    def rewrite_For(self, node: For) -> Stmt:
        if node.thread not in _ROWS:
            return self.rewrite_children(node)  # type: ignore[no-any-return]
        before, self.rows = self.rows, {**self.rows, node.thread: (node.var, node.extent)}
        new: Stmt = self.rewrite_children(node)
        self.rows = before
        return new

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        if node.buffer.scope != "warp":
            return self.rewrite_children(node)  # type: ignore[no-any-return]
        rows = [self.rows[tag] for tag in _ROWS if tag in self.rows]
        old = node.buffer
        extents = [int(extent.value) if isinstance(extent, Const) else extent for _, extent in rows]
        new = several(old, extents, "shared")
        self.memo.clear()
        self.moved[old] = new, tuple(var for var, _ in rows)
        return Allocate(new, self.rewrite_statement(node.body), node.place)

    def rewrite_Load(self, node: Load) -> Expr:
        changed: Any = self.rewrite_children(node)
        found = self.moved.get(node.buffer)
        return load(found[0], (*found[1], *changed.indices), changed.predicate) if found is not None else changed

    def rewrite_Store(self, node: Store) -> Stmt:
        changed: Store = self.rewrite_children(node)
        found = self.moved.get(node.buffer)
        return changed if found is None else Store(found[0], (*found[1], *changed.indices), changed.value, changed.predicate)

    def rewrite_CallIntrinsic(self, node: CallIntrinsic) -> Stmt:
        changed: CallIntrinsic = self.rewrite_children(node)
        steps = []
        for old, operand in zip(node.loads, changed.steps, strict=True):
            found = self.moved.get(old.buffer)
            more = () if found is None else (as_expr(0),) * len(found[1])
            steps.append(tuple((*more, *along) for along in operand))
        return CallIntrinsic(changed.code, changed.args, tuple(steps))
