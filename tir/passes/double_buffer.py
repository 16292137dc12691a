"""Double buffer: a shared buffer is filled for a later iteration while this one reads what an earlier one has filled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import ScheduleError
from ..expr import Buffer, Const, Expr, Load, add, as_expr, const, floormod, load, logical_not, lt
from ..stmt import Allocate, CallIntrinsic, For, Func, If, Produce, Seq, Stmt, Store, Sync, seq
from ..verify import CLOSED, THREADS_BOUND
from ..visit import Rewriter, StatementRewriter, loads_of, operands_of, statements_in, walk
from .copies import copy_statement, several
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target

STAGES = "double_buffer"  # the pragma of a Produce: how many iterations' worth of its buffer there are
ASYNCHRONOUS = "async_copy"  # and that it is filled by cp.async
_MOST_REGISTER_BYTES = 128  # of a thread, to hold what was read for the next iteration


@dataclass(frozen=True)
class DoubleBuffer(Pass):
    """The nests of the stages that `s[S].double_buffer(stages=n)` marks, in a serial loop:

        for k in range(K):                     produce S[0] of iteration 0
            produce S                          for k in range(K):
            C += S                       ->        if k + 1 < K: registers = what S is in iteration k + 1
                                                   C += S[k % 2]
                                                   if k + 1 < K: S[(k + 1) % 2] = registers

    with `stages=n` there are n - 1 iterations under way. Reading comes first and storing last, so that the loads are waited for after the computation;
    what does not fit into few registers is stored at once. With `asynchronous=True`, on an architecture that has cp.async (sm_80 on):

        for s in range(n - 1): copy S[s] of iteration s; commit
        for k in range(K):
            wait until at most n - 2 groups are on their way; barrier
            if k + n - 1 < K: copy S[(k + n - 1) % n] of iteration k + n - 1
            commit
            C += S[k % n]

    All stages that one loop fills this way have the same number of stages, the largest that one asks for. Buffers of one thread stay as they are.
    Raises ScheduleError where the buffer is not filled inside a serial loop, or from what the same iteration computes.
    """

    name: ClassVar[str] = "double_buffer"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, THREADS_BOUND)

    def run(self, func: Func, target: Target) -> Func:
        loops: dict[int, _Loop] = {}
        _find(func.body, None, loops)
        if not loops:
            return func
        buffers: dict[Buffer, Buffer] = {}
        for each in loops.values():
            each.asynchronous = each.asynchronous and target.gpu.has_async_copy
            each.check()
            buffers.update({fill.buffer: several(fill.buffer, (each.stages,)) for fill in each.fills})
        return func.with_body(_Pipeliner(loops, buffers).rewrite_statement(func.body))


@dataclass(eq=False)
class _Fill:
    """The nest of one stage, the shared buffer it fills, and the conditions (the same for all threads) between its loop and it."""

    nest: Produce
    buffer: Buffer
    conditions: tuple[Expr, ...]


@dataclass(eq=False)
class _Loop:
    """A serial loop and what is filled ahead in it."""

    loop: For
    stages: int = 2
    asynchronous: bool = False
    fills: list[_Fill] = field(default_factory=list)

    def check(self) -> None:
        """A ScheduleError where what is filled depends on what the iteration computes."""
        own = {fill.buffer for fill in self.fills}
        nodes = list(walk(self.loop.body))
        computed = {node.buffer for node in nodes if isinstance(node, Store)} | {node.loads[0].buffer for node in nodes if isinstance(node, CallIntrinsic)}
        computed -= own
        introduced = {node.var for node in walk(self.loop.body) if isinstance(node, For)} | {self.loop.var}
        for fill in self.fills:
            what = f"double_buffer of stage {fill.nest.name}"
            needed = [e for s in _statements(fill.nest) for e in operands_of(s)] + list(fill.conditions)
            read = {node.buffer for e in needed for node in loads_of(e)}
            inside = {node.var for node in walk(fill.nest) if isinstance(node, For)}
            within = {node.buffer for node in walk(fill.nest) if isinstance(node, Allocate)}
            for buffer in sorted(read & (computed | own) - within, key=lambda b: b.name):
                raise ScheduleError(f"{what}: it reads {buffer.name}, which is computed in the same iteration of {self.loop.var.name}, so it cannot be filled "
                                    f"an iteration ahead; compute {buffer.name} outside of this loop")  # fmt: skip
            for e in needed:
                for var in e.variables & (introduced - inside - {self.loop.var}):
                    raise ScheduleError(f"{what}: it depends on {var.name}, a loop inside that over {self.loop.var.name}")


def _find(s: Stmt, around: tuple[For, tuple[Expr, ...]] | None, loops: dict[int, _Loop]) -> None:
    """The nests that are to be filled ahead, by the id of the serial loop around each."""
    if isinstance(s, Produce) and dict(s.pragmas).get(STAGES):
        shared = {node.buffer for node in walk(s.body) if isinstance(node, Store) and node.buffer.scope.startswith("shared")}
        if shared:
            if around is None:
                raise ScheduleError(
                    f"double_buffer of stage {s.name}: it is not filled again and again by a serial loop; compute it at a serial loop of its reader"
                )
            if len(shared) > 1:
                raise ScheduleError(f"double_buffer of stage {s.name}: it fills {len(shared)} buffers together; one is possible")
            found = loops.setdefault(id(around[0]), _Loop(around[0]))
            found.stages = max(found.stages, int(dict(s.pragmas)[STAGES]))
            found.asynchronous = found.asynchronous or ASYNCHRONOUS in dict(s.pragmas)
            found.fills.append(_Fill(s, shared.pop(), around[1]))
            return
    if isinstance(s, For):
        around = (s, ()) if s.kind in ("serial", "unrolled") and s.thread is None else around if s.thread is not None else None
    elif isinstance(s, If) and around is not None:
        loop, conditions = around
        _find(s.then, (loop, (*conditions, s.condition)), loops)
        if s.otherwise is not None:
            _find(s.otherwise, (loop, (*conditions, logical_not(s.condition))), loops)
        return
    for inner in statements_in(s):
        _find(inner, around, loops)


def _statements(s: Stmt) -> Iterator[Stmt]:
    yield s
    for inner in statements_in(s):
        yield from _statements(inner)


class _Pipeliner(StatementRewriter):
    """Rewrites the loops, from inside out, and the allocations."""

    def __init__(self, loops: dict[int, _Loop], buffers: dict[Buffer, Buffer]):
        super().__init__()
        self.loops, self.buffers = loops, buffers

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        body = self.rewrite_statement(node.body)
        return Allocate(self.buffers.get(node.buffer, node.buffer), body, node.place) if body is not node.body else node

    def rewrite_For(self, node: For) -> Stmt:
        found = self.loops.get(id(node))
        if found is None:
            return super().rewrite_children(node)  # type: ignore[no-any-return]
        rest = self.rewrite_statement(_Without({id(fill.nest) for fill in found.fills}).rewrite_statement(node.body))
        turn = floormod(node.var, const(found.stages, node.var))
        turns = _Turns({fill.buffer: (self.buffers[fill.buffer], turn) for fill in found.fills})
        return _Filler(node, found, turns).written(turns.rewrite_statement(rest))


class _Filler:
    """Writes one loop."""

    def __init__(self, loop: For, found: _Loop, turns: _Turns):
        self.loop, self.found, self.ahead = loop, found, found.stages - 1
        self.nests = [(turns.rewrite_statement(fill.nest), fill.conditions) for fill in found.fills]

    def written(self, rest: Stmt) -> Stmt:
        """The prologue, and the loop."""
        loop, var = self.loop, self.loop.var
        commit = Sync("async_commit") if self.found.asynchronous else None
        later = add(var, const(self.ahead, var))
        first = [s for turn in range(self.ahead) for s in (self.filled(const(turn, var)), commit)]
        if self.found.asynchronous:
            body = seq(Sync("async_wait", self.ahead - 1), Sync("block"), self.filled(later), commit, rest)
        else:
            reads, writes = [], []
            for nest, conditions in self.nests:
                parted = _parted(nest)
                read, write = parted if parted is not None else (nest, None)
                reads.append((read, conditions))
                if write is not None:
                    writes.append((write[0], write[1], conditions))
            body = seq(*[self.at(later, read, conditions) for read, conditions in reads], rest)
            for nest, held, conditions in reversed(writes):
                body = seq(body, self.at(later, nest, conditions))
                body = Allocate(held, body)
        return seq(*first, loop.with_body(body))

    def filled(self, iteration: Expr) -> Stmt:
        """All nests, for an iteration that may not be there."""
        return seq(*[self.at(iteration, nest, conditions) for nest, conditions in self.nests])

    def at(self, iteration: Expr, nest: Stmt, conditions: tuple[Expr, ...]) -> Stmt:
        """A nest for an iteration, if there is one."""
        holds = lt(iteration, self.loop.extent)
        filled = copy_statement(_where(conditions, nest), {self.loop.var: iteration})
        return filled if isinstance(holds, Const) and holds.value else If(holds, filled)


def _where(conditions: tuple[Expr, ...], s: Stmt) -> Stmt:
    for condition in reversed(conditions):
        s = If(condition, s)
    return s


def _parted(nest: Stmt) -> tuple[Stmt, tuple[Stmt, Buffer]] | None:
    """A nest that reads into registers, and one that stores them in the buffer; None where it is not that simple, or takes too many."""
    loops = [s for s in _statements(nest) if isinstance(s, For)]
    stores = [s for s in _statements(nest) if isinstance(s, Store)]
    extents = [loop.constant_extent for loop in loops]
    known = [e for e in extents if e is not None]
    simple = len(stores) == 1 and all(isinstance(s, (For, If, Produce, Store, Seq)) for s in _statements(nest))
    if not simple or len(known) < len(extents) or prod(known) * stores[0].buffer.dtype.bytes > _MOST_REGISTER_BYTES:
        return None
    (target,) = stores
    held = Buffer(f"{target.buffer.name}.next", tuple(known) or (1,), target.buffer.dtype, "local")
    where: tuple[Expr, ...] = tuple(loop.var for loop in loops) or (as_expr(0),)
    read = _Replace(target, Store(held, where, target.value)).rewrite_statement(nest)
    write = _Replace(target, Store(target.buffer, target.indices, load(held, where), target.predicate)).rewrite_statement(nest)
    return read, (write, held)


class _Replace(StatementRewriter):
    """One store for another."""

    def __init__(self, old: Store, new: Store):
        super().__init__()
        self.old, self.new = old, new

    def rewrite_Store(self, node: Store) -> Stmt:
        return self.new if node is self.old else node


class _Without(StatementRewriter):
    """The statements of these ids taken out."""

    def __init__(self, gone: set[int]):
        super().__init__()
        self.gone = gone

    def rewrite_statement(self, node: Stmt) -> Stmt:
        return seq() if id(node) in self.gone else super().rewrite_statement(node)


class _Turns(Rewriter):
    """Accesses to buffers by accesses to one of several, the turn first."""

    def __init__(self, turns: dict[Buffer, tuple[Buffer, Expr]]):
        super().__init__()
        self.turns = turns

    def rewrite_Load(self, node: Load) -> Expr:
        changed: Any = self.rewrite_children(node)
        found = self.turns.get(node.buffer)
        return load(found[0], (found[1], *changed.indices), changed.predicate) if found is not None else changed

    def rewrite_Store(self, node: Store) -> Stmt:
        changed: Store = self.rewrite_children(node)
        found = self.turns.get(node.buffer)
        return changed if found is None else Store(found[0], (found[1], *changed.indices), changed.value, changed.predicate)

    def rewrite_CallIntrinsic(self, node: CallIntrinsic) -> Stmt:
        changed: CallIntrinsic = self.rewrite_children(node)
        zero = as_expr(0)
        steps = tuple(
            tuple((zero, *along) for along in operand) if old.buffer in self.turns else operand for old, operand in zip(node.loads, changed.steps, strict=True)
        )
        return CallIntrinsic(changed.code, changed.args, steps)
