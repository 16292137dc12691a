"""Virtual threads: what one thread does for several of them goes to the statements, and what they have in common is done once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import TargetError
from ..expr import HAS_LOAD, Buffer, Expr, Load, Var, as_expr, const, load, logical_not
from ..stmt import Allocate, AllReduce, Atomic, Bind, CallIntrinsic, For, Func, If, Produce, Seq, Stmt, Store, Sync, seq
from ..verify import CLOSED, THREADS_BOUND
from ..visit import (
    Rewriter,
    StatementRewriter,
    combine_into,
    every_statement,
    loads_of,
    operands_of,
    statements_in,
    stored_buffers,
    substitute_statement,
    walk,
)
from .bind_threads import is_virtual
from .copies import copy_statement, several
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target

_OWN_SCOPES = ("local", "wmma")


@dataclass(frozen=True)
class VirtualThreads(Pass):
    """A loop over virtual threads moves inwards, as an unrolled loop around each statement that depends on it:

        for v in thread[vthread](2):            allocate L: float32[2, 4] in local
            allocate L: float32[4] in local     S[...] = A[...]                          # common work, once
            S[...] = A[...]                ->   for v in unrolled(2):
            for i in range(4):                      for i in range(4):
                L[i] = S[v * 32 + i]                    L[v, i] = S[v * 32 + i]

    A buffer of the thread that is filled differently for each of them gets a dimension. A loop around several statements stays around them, so that what
    depends on one of two virtual indices is computed for all values of the other. A reduction across virtual threads is an update in each. A TargetError
    where the number of virtual threads is not constant.
    """

    name: ClassVar[str] = "virtual_threads"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, THREADS_BOUND)

    def run(self, func: Func, target: Target) -> Func:
        return func.with_body(_Updates().rewrite_statement(_Finder().rewrite_statement(func.body)))


class _Finder(StatementRewriter):
    """Moves every loop over virtual threads inwards, the inner ones first."""

    def rewrite_For(self, node: For) -> Stmt:
        body = self.rewrite_statement(node.body)
        if not is_virtual(node.thread):
            return node.with_body(body)
        if node.constant_extent is None:
            raise TargetError(f"the loop {node.var.name} over {node.thread} runs {node.extent} times; virtual threads must be a constant number: "
                              f"split the axis by a constant factor and bind the inner part")  # fmt: skip
        return _Mover(node.var, node.constant_extent, body).moved(body, ())


class _Updates(StatementRewriter):
    """A reduction across virtual threads is an update in each of them; one across others too keeps those."""

    def rewrite_AllReduce(self, node: AllReduce) -> Stmt:
        threads = tuple(tag for tag in node.threads if not is_virtual(tag))
        if threads:
            return node if threads == node.threads else AllReduce(node.targets, node.values, node.combination, threads)
        return combine_into(node.combination, node.targets, node.values)


class _Mover:
    """Moves one loop. `variables`, `buffers`: what differs between its iterations."""

    def __init__(self, var: Var, extent: int, body: Stmt):
        self.var, self.extent = var, extent
        self.variables: set[Var] = {var}
        self.buffers: dict[Buffer, Buffer] = {}  # and those with a dimension for it
        self.own = {s.buffer for s in walk(body) if isinstance(s, Allocate) and s.buffer.scope.split(".")[0] in _OWN_SCOPES}
        self.accumulated = _accumulated(body) - self.own  # in the loop, from one iteration to the next
        count = -1
        while count != len(self.variables) + len(self.buffers):  # until nothing more is found to depend on it
            count = len(self.variables) + len(self.buffers)
            self.find(body, False)

    # ------------------------------------------------------------------------------------------------------------- what depends on it

    def depends(self, *expressions: Expr) -> bool:
        for e in expressions:
            if not e.variables.isdisjoint(self.variables):
                return True
            if e.holds & HAS_LOAD and self.buffers and any(node.buffer in self.buffers for node in loads_of(e)):
                return True
        return False

    def find(self, s: Stmt, divided: bool) -> None:
        """Note the variables and buffers of `s` that depend on the loop; `divided`: whether `s` happens does."""
        here = divided or self.depends(*operands_of(s))
        if isinstance(s, Bind | For) and here and not divided:
            self.variables.add(s.var)
        for buffer in stored_buffers(s):
            if here and buffer in self.own and buffer not in self.buffers:
                self.buffers[buffer] = several(buffer, (self.extent,))
        for inner in statements_in(s):
            self.find(inner, divided or (here and isinstance(s, If | For)))

    def touched(self, s: Stmt) -> bool:
        """Whether anything in `s` depends on the loop."""
        for each in every_statement(s):
            stored = stored_buffers(each)
            if self.depends(*operands_of(each)) or any(buffer in self.buffers or buffer in self.accumulated for buffer in stored):
                return True
        return False

    # ------------------------------------------------------------------------------------------------------------- moving

    def moved(self, s: Stmt, conditions: tuple[Expr, ...]) -> Stmt:
        """`s` with the loop around what depends on it; `conditions` depend on it and hold for each iteration that does `s`."""
        if not self.touched(s):
            return s
        if isinstance(s, Seq):
            return seq(*[self.moved(each, conditions) for each in s.body])
        if isinstance(s, Produce):
            return s.with_body(self.moved(s.body, conditions))
        if isinstance(s, Allocate):
            return Allocate(self.buffers.get(s.buffer, s.buffer), self.moved(s.body, conditions), s.place)
        if isinstance(s, For) and s.kind != "vectorized" and not self.depends(s.extent):
            return s.with_body(self.moved(s.body, conditions))
        if isinstance(s, If) and not self.depends(s.condition):
            otherwise = None if s.otherwise is None else self.moved(s.otherwise, conditions)
            return If(s.condition, self.moved(s.then, conditions), otherwise)
        if isinstance(s, If) and _is_together(s):
            then = self.moved(s.then, (*conditions, s.condition))
            return then if s.otherwise is None else seq(then, self.moved(s.otherwise, (*conditions, logical_not(s.condition))))
        if isinstance(s, Bind) and _is_together(s.body):
            if s.value.holds & HAS_LOAD:
                raise TargetError(f"{s.var.name} is read from memory by each virtual thread, around what the threads of a block do together")
            return self.moved(substitute_statement(s.body, {s.var: s.value}), conditions)
        return self.for_each(s, conditions)

    def for_each(self, s: Stmt, conditions: Iterable[Expr]) -> Stmt:
        """The loop around one statement."""
        for condition in conditions:
            s = If(condition, s)
        var = self.var.fresh()
        s = _WithIndex(self.var, self.buffers).rewrite_statement(s)
        return For(var, const(self.extent, var), "unrolled", copy_statement(s, {self.var: var}))


class _WithIndex(Rewriter):
    """Accesses to buffers that have a dimension for the virtual threads."""

    def __init__(self, var: Var, buffers: dict[Buffer, Buffer]):
        super().__init__()
        self.var, self.buffers = var, buffers

    def rewrite_Load(self, node: Load) -> Expr:
        changed: Any = self.rewrite_children(node)
        buffer = self.buffers.get(node.buffer)
        return changed if buffer is None else load(buffer, (self.var, *changed.indices), changed.predicate)

    def rewrite_Store(self, node: Store) -> Stmt:
        changed: Store = self.rewrite_children(node)
        buffer = self.buffers.get(node.buffer)
        return changed if buffer is None else Store(buffer, (self.var, *changed.indices), changed.value, changed.predicate)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        return Allocate(self.buffers.get(node.buffer, node.buffer), self.rewrite_statement(node.body), node.place)

    def rewrite_CallIntrinsic(self, node: CallIntrinsic) -> Stmt:
        changed: CallIntrinsic = self.rewrite_children(node)
        zero = as_expr(0)
        steps = tuple(
            tuple((zero, *along) for along in operand) if old.buffer in self.buffers else operand
            for old, operand in zip(node.loads, changed.steps, strict=True)
        )
        return CallIntrinsic(changed.code, changed.args, steps)


def _is_together(s: Stmt) -> bool:
    """Whether threads of a block do something in `s` for one another."""
    return any(
        isinstance(each, Sync | AllReduce) or (isinstance(each, Store | Atomic) and stored_buffers(each)[0].scope.startswith("shared"))
        for each in every_statement(s)
    )


def _accumulated(body: Stmt) -> set[Buffer]:
    """Buffers that `body` only adds to: what it starts from is set outside."""
    added: set[Buffer] = set()
    begun: set[Buffer] = set()
    for s in every_statement(body):
        if isinstance(s, Store) and all(node.buffer is not s.buffer for node in loads_of(s.value)):
            begun.add(s.buffer)
        else:
            added.update(stored_buffers(s))
    return added - begun
