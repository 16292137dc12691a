"""Bind threads: loops over indices of a GPU's grid become the threads of kernels.

Before, `for t in thread[threadIdx.x](8)` is a loop like any other, and a producer attached inside has such loops again. After, each statement of the function
is a kernel: all its indices stand around it once, and what is inside is what one thread does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from ..errors import ScheduleError, TargetError
from ..expr import LT, Buffer, Const, Expr, Var, const, eq, logical_and, logical_not, lt
from ..gpu import WARP_SIZE, is_fragment
from ..kernel import INDICES
from ..stmt import Allocate, AllReduce, Atomic, Bind, CallExtern, CallIntrinsic, For, Func, If, Prefetch, Produce, Seq, Stmt, Store, seq
from ..target import Target
from ..verify import CLOSED, THREADS_BOUND
from ..visit import Substitute, loads_of, operands_of, statements_in, walk
from .manager import Pass
from .nested_threads import check_nested_loops


@dataclass(frozen=True)
class BindThreads(Pass):
    """A producer inside a consumer's loop over threads becomes their common work:

        for tx in thread[threadIdx.x](8):                       allocate T: float32[8] in shared
            allocate T: float32[8] in shared                    for tx in thread[threadIdx.x](8):
            for t in thread[threadIdx.x](8):              ->        T[tx] = A[tx]
                T[t] = A[t]                                         C[tx] = T[7 - tx]
            C[tx] = T[7 - tx]

    (The barrier between the two is put in by a later pass.) Loops over one index of different extents get a guard inside those that are shorter. What
    is stored to shared or global memory at a place that does not depend on an index of its kernel is stored by the threads where that index is 0. A
    condition that threads decide differently moves inwards, to the statements of its own stage, and off the common work of producers, who have guards
    of their own: so all threads of a block take part in what they do together. A kernel with fragments has the 32 lanes of a warp along threadIdx.x even if no
    loop is bound to that.

    A statement without any bound loop is a TargetError; so are an index of threads whose extent is no constant, and shared memory outside a kernel. A buffer of
    one thread (scope "local") of which different threads compute elements is a ScheduleError, and a loop over an index inside another one that does different
    things in iterations of that.
    """

    name: ClassVar[str] = "bind_threads"
    requires: ClassVar[tuple[str, ...]] = (CLOSED,)
    gives: ClassVar[tuple[str, ...]] = (THREADS_BOUND,)

    def run(self, func: Func, target: Target) -> Func:
        allocations, conditions, body = [], [], func.body
        while isinstance(body, Allocate) or (isinstance(body, If) and body.otherwise is None):
            if isinstance(body, Allocate):
                allocations.append(body.buffer)
                body = body.body
            else:  # of sizes: each kernel asks for itself
                conditions.append(body.condition)
                body = body.then
        for buffer in allocations:
            if buffer.scope != "global":
                raise TargetError(f"{buffer.name} has scope {buffer.scope}, memory inside a kernel, but is computed at root, by a kernel of its own; "
                                  f"compute it inside the stage that reads it with compute_at, or leave its scope away")  # fmt: skip
        statements = body.body if isinstance(body, Seq) else (body,)
        bound = seq(*[_kernel(s.with_body(_where(conditions, s.body)) if isinstance(s, Produce) else _where(conditions, s)) for s in statements])
        for buffer in reversed(allocations):
            bound = Allocate(buffer, bound)
        return func.with_body(bound)


def is_of_block(tag: str) -> bool:
    """Whether an index is the same for all threads of a block."""
    return tag.startswith("blockIdx")


def is_virtual(tag: str | None) -> bool:
    """Whether a loop is over virtual threads, which each thread runs through."""
    return tag is not None and tag.startswith("vthread")


def _kernel(s: Stmt) -> Stmt:
    """One statement of a function as a kernel."""
    name = s.name if isinstance(s, Produce) else "?"
    if any(isinstance(each, CallExtern) for each in walk(s)):
        raise TargetError(f"stage {name} calls a C function, which a GPU cannot; compute it with a schedule for the CPU")
    loops = [each for each in walk(s) if isinstance(each, For) and each.thread is not None and not is_virtual(each.thread)]
    if not loops:
        raise TargetError(f"stage {name} writes global memory outside any thread: bind its axes (s[{name}].bind(axis, te.thread_axis('blockIdx.x'))), "
                          f"or compute it inside its reader: s[{name}].compute_inline() or compute_at")  # fmt: skip
    check_nested_loops(s)
    indices = {tag: _index(name, tag, [each for each in loops if each.thread == tag]) for tag in INDICES if any(each.thread == tag for each in loops)}
    if "threadIdx.x" not in indices and any(isinstance(each, Allocate) and is_fragment(each.buffer.scope) for each in walk(s)):
        indices["threadIdx.x"] = Var("threadIdx.x", "int32", (0, WARP_SIZE - 1)), const(WARP_SIZE, "int32")
    binder = _Binder(indices)
    body = s.with_body(binder.statement(s.body)) if isinstance(s, Produce) else binder.statement(s)
    inner = body.body if isinstance(body, Produce) else body
    for tag in reversed(INDICES):
        if tag == "blockIdx.x":
            for buffer in reversed(binder.shared):
                inner = Allocate(buffer, inner)
        if tag in indices:
            variable, extent = indices[tag]
            inner = For(variable, extent, "thread", inner, tag)
    return s.with_body(inner) if isinstance(s, Produce) else inner


def _index(kernel: str, tag: str, loops: Sequence[For]) -> tuple[Var, Expr]:
    """The variable and extent of an index that these loops are bound to: the largest of theirs."""
    symbolic = [each.extent for each in loops if each.constant_extent is None]
    if symbolic and not is_of_block(tag):
        raise TargetError(f"kernel {kernel}: the extent of {tag} is {symbolic[0]}, but threads of a block must be a constant number; "
                          f"split the axis by a constant factor and bind the inner part")  # fmt: skip
    different = {e for e in symbolic if e is not symbolic[0]}
    if different or (symbolic and len(symbolic) < len(loops)):
        found = " and ".join(sorted({f"{each.extent} (axis {each.var.name})" for each in loops}))
        raise TargetError(f"kernel {kernel}: the loops bound to {tag} have the extents {found}, which are not known to agree; bind loops of one extent")
    least = 0 if is_of_block(tag) else 1  # a reduction of no terms has a result all the same
    extent = symbolic[0] if symbolic else const(max(least, *(int(each.constant_extent or 0) for each in loops)), "int32")
    high = int(extent.value) - 1 if isinstance(extent, Const) else None
    return Var(tag, loops[0].var.dtype, (0, high)), extent


class _Binder(Substitute):
    """Makes the body of one kernel.

    Attributes: `indices`: of each tag, its variable and extent; `shared`: the buffers of the block; `short`: the guards of the loops around that are
    shorter than their index, by tag; `conditions`: those around that threads decide differently; `around`: the loops over indices around; `own`: buffers
    of the kernel, and how many of those loops they were allocated in.
    """

    def __init__(self, indices: dict[str, tuple[Var, Expr]]):
        super().__init__({})
        self.values: dict[Var, Expr] = {}
        self.variables = self.values
        self.indices = indices
        self.threads = {variable for tag, (variable, _) in indices.items() if not is_of_block(tag)}
        self.shared: list[Buffer] = []
        self.short: dict[str, Expr] = {}
        self.conditions: list[Expr] = []
        self.around: list[For] = []
        self.own: dict[Buffer, int] = {}
        self._together: dict[int, bool] = {}

    def statement(self, s: Stmt) -> Stmt:
        """What one thread does of `s`."""
        if not self._is_together(s):
            return self._alone(s)
        if isinstance(s, For):
            return self._loop(s)
        if isinstance(s, Seq):
            runs = groupby(s.body, lambda each: (self._is_together(each), _sets_own_constants(each)))  # what stands side by side gets one guard
            return seq(*[self.statement(each) for (together, _), run in runs for each in (run if together else (seq(*run),))])
        if isinstance(s, If):
            return self._branch(s)
        if isinstance(s, Produce):
            return s.with_body(self._produced(s))
        if isinstance(s, Allocate):
            return self._allocation(s)
        if isinstance(s, Bind):
            return Bind(s.var, self.rewrite(s.value), self.statement(s.body))
        if isinstance(s, CallIntrinsic):
            return self._of_warp(s)
        return self.rewrite_statement(s)  # an AllReduce: all take part

    def _is_together(self, s: Stmt) -> bool:
        """Whether threads do something in `s` together: loops of their own, or a combination of what they have."""
        found = self._together.get(id(s))
        if found is None:
            found = self._together[id(s)] = (
                isinstance(s, AllReduce)
                or (isinstance(s, For) and s.thread is not None and not is_virtual(s.thread))
                or (isinstance(s, Allocate) and s.buffer.scope.startswith("shared"))
                or (isinstance(s, CallIntrinsic) and any(is_of_warp(load.buffer.scope) for load in s.loads))
                or any(map(self._is_together, statements_in(s)))
            )
        return found

    def _loop(self, s: For) -> Stmt:
        tag = s.thread
        if tag is None or is_virtual(tag):
            kind = "serial" if s.kind == "parallel" else s.kind
            return For(s.var, s.extent, kind, self.statement(s.body), tag, s.pragmas) if self._uniform(s.extent) else self._refuse_loop(s)
        variable, extent = self.indices[tag]
        self._set(s.var, const(0, variable.dtype) if s.constant_extent == 1 else variable)
        if is_of_block(tag) and s.constant_extent == 1 and any(loop.thread == tag for loop in self.around):
            return self.statement(s.body)  # in each of the blocks around: what it fills is theirs
        before = self.short.pop(tag, None)
        if before is not None:
            self._check_known(s, tag, before)
        if s.extent is not extent:
            self.short[tag] = lt(variable, s.extent)
        self.around.append(s)
        body = self.statement(s.body)
        self.around.pop()
        self.short.pop(tag, None)
        if before is not None:
            self.short[tag] = before
        return body

    def rewrite_For(self, node: For) -> Stmt:
        """A loop of one thread. What may run at once runs in order."""
        done: For = self.rewrite_children(node)
        return For(done.var, done.extent, "serial", done.body, None, done.pragmas) if done.kind == "parallel" else done

    def _check_known(self, s: For, tag: str, fewer: Expr) -> None:
        """A ScheduleError where a loop inside a shorter one of the same index reads what only the threads of that one have."""
        known = fewer.b if isinstance(fewer, LT) else None
        if known is s.extent or (isinstance(known, Const) and isinstance(s.extent, Const) and s.extent.value <= known.value):
            return
        outer = max(n for n, loop in enumerate(self.around) if loop.thread == tag)
        loads = (load for each in walk(s.body) if isinstance(each, Stmt) for e in operands_of(each) for load in loads_of(e))
        for load in loads:
            if load.buffer.scope == "local" and self.own.get(load.buffer, 0) > outer:
                raise ScheduleError(f"stage {load.buffer.name} has scope local and is computed where {fewer} only, but the loop {s.var.name}, bound to "
                                    f"{tag} too, runs {s.extent} times and reads it; bind loops of one extent, or use set_scope('shared')")  # fmt: skip

    def _set(self, variable: Var, value: Expr) -> None:
        self.memo.clear()
        self.values[variable] = value

    def _refuse_loop(self, s: For) -> Stmt:
        raise ScheduleError(f"the loop {s.var.name} runs {self.rewrite(s.extent)} times, which differs between threads, but inside it they work together")

    def _uniform(self, e: Expr) -> bool:
        """Whether `e` is the same in all threads of a block."""
        return not loads_of(e) and not (self.rewrite(e).variables & self.threads)

    def _branch(self, s: If) -> Stmt:
        condition = self.rewrite(s.condition)
        if self._uniform(s.condition):
            otherwise = None if s.otherwise is None else self.statement(s.otherwise)
            return If(condition, self.statement(s.then), otherwise)
        parts = []
        for each, arm in ((condition, s.then), (logical_not(condition), s.otherwise)):
            if arm is not None:
                self.conditions.append(each)
                parts.append(self.statement(arm))
                self.conditions.pop()
        return seq(*parts)

    def _produced(self, s: Produce) -> Stmt:
        """The nest of a stage. What all threads of the block compute together is not bound to what one of them wants."""
        if not any(buffer.scope.startswith("shared") for buffer in _stored(s.body)):
            return self.statement(s.body)
        conditions, self.conditions = self.conditions, []
        short, self.short = self.short, {}
        body = self.statement(s.body)
        self.conditions, self.short = conditions, short
        return body

    def _allocation(self, s: Allocate) -> Stmt:
        if s.buffer.scope.startswith("shared"):
            self.shared.append(s.buffer)
            self.own[s.buffer] = len(self.around)
            return self.statement(s.body)
        self._introduce(s.buffer)
        return Allocate(s.buffer, self.statement(s.body), s.place)

    def _introduce(self, buffer: Buffer) -> None:
        if buffer.scope == "global":
            raise ScheduleError(f"stage {buffer.name} has scope global but is computed inside a kernel, where blocks cannot wait for one another; "
                                f"use set_scope('shared'), or compute_root()")  # fmt: skip
        self.own[buffer] = len(self.around)

    def _of_warp(self, s: CallIntrinsic) -> Stmt:
        """An intrinsic that the lanes of a warp run together: on the same operands, all or none of them. Of warps that would store the same, one does."""
        done = self.rewrite_statement(s)
        assert isinstance(done, CallIntrinsic)
        conditions = [*self.short.values(), *self.conditions]
        lane = self.indices["threadIdx.x"][0] if "threadIdx.x" in self.indices else None
        for how, expressions in (("on", done.parts), ("only where", conditions)):
            for e in expressions:
                if lane in e.variables or (how != "on" and loads_of(e)):
                    raise ScheduleError(f"the lanes of a warp run intrinsic {s.code.name} together, but here each would do so {how} {e}; "
                                        f"bind no axis of its stage, nor of those it is computed in, to threadIdx.x so that this depends on it")  # fmt: skip
        self._check_own(_buffer_of(s))
        once = [tag for tag in self._first_only(done) if tag != "threadIdx.x"]
        return _where([*conditions, *(eq(self.indices[tag][0], const(0, self.indices[tag][0].dtype)) for tag in once)], done)

    # ------------------------------------------------------------------------------------------------- what a thread does by itself

    def _alone(self, s: Stmt) -> Stmt:
        """`s`, in which threads do nothing together, under the conditions that hold around it."""
        for each in walk(s):
            if isinstance(each, Allocate):
                self._introduce(each.buffer)
        done = self.rewrite_statement(s)
        if _sets_own_constants(done):  # what a thread without work brings into a combination: its identity
            short = [e for tag, e in self.short.items() if self.indices[tag][0] in {n for n in walk(done) if isinstance(n, Var)}]
        else:
            short = list(self.short.values())
        return self._guarded(done, [*short, *self.conditions])

    def _guarded(self, s: Stmt, conditions: Sequence[Expr]) -> Stmt:
        """`s` under conditions; each store to memory of the block or of all where an index it does not depend on is 0."""
        stores = [each for each in walk(s) if isinstance(each, (Store, Atomic, CallIntrinsic))]
        for each in stores:
            self._check_own(_buffer_of(each))
        firsts = [self._first_only(each) for each in stores]
        if len(firsts) > 1 and any(each != firsts[0] for each in firsts):
            return self._guarded_inside(s, conditions)
        conditions = [*conditions, *(eq(self.indices[tag][0], const(0, self.indices[tag][0].dtype)) for tag in (firsts[0] if firsts else ()))]
        if not firsts and not isinstance(s, Prefetch):
            return s
        return _where(conditions, s)

    def _guarded_inside(self, s: Stmt, conditions: Sequence[Expr]) -> Stmt:
        """As _guarded, of a statement whose stores are for different threads."""
        if isinstance(s, Seq):
            return seq(*[self._guarded(each, conditions) for each in s.body])
        if isinstance(s, (For, Produce)):
            return s.with_body(self._guarded(s.body, conditions))
        if isinstance(s, Allocate):
            return Allocate(s.buffer, self._guarded(s.body, conditions), s.place)
        if isinstance(s, Bind):
            return Bind(s.var, s.value, self._guarded(s.body, conditions))
        assert isinstance(s, If)
        otherwise = None if s.otherwise is None else self._guarded(s.otherwise, [*conditions, logical_not(s.condition)])
        return seq(self._guarded(s.then, [*conditions, s.condition]), otherwise)

    def _first_only(self, s: Store | Atomic | CallIntrinsic) -> tuple[str, ...]:
        """The indices where only 0 stores."""
        buffer = _buffer_of(s)
        if buffer.scope != "global" and not buffer.scope.startswith("shared"):
            return ()
        place = s.indices if isinstance(s, Store) else s.load.indices if isinstance(s, Atomic) else s.parts
        known = set().union(*[e.variables for e in place]) if place else set()
        found = []
        for tag, (variable, extent) in self.indices.items():
            several = not isinstance(extent, Const) or extent.value != 1
            own_part = isinstance(s, Atomic) and tag in s.along
            if several and variable not in known and not own_part and (buffer.scope == "global" or not is_of_block(tag)):
                found.append(tag)
        return tuple(found)

    def _check_own(self, buffer: Buffer) -> None:
        """A ScheduleError where a buffer of a thread or a block is stored to by others than read it."""
        depth = self.own.get(buffer)
        for loop in () if depth is None else self.around[depth:]:
            tag = str(loop.thread)
            if is_of_block(tag) and loop.constant_extent != 1:
                raise ScheduleError(f"stage {buffer.name} has scope {buffer.scope}, memory inside one block, but its elements are computed by different blocks "
                                    f"(an axis of it is bound to {tag}); bind its axes to threadIdx, or compute it at root, in global memory")  # fmt: skip
            if not is_of_block(tag) and buffer.scope == "local":
                raise ScheduleError(f"stage {buffer.name} has scope local, the memory of one thread, but its elements are computed by different threads "
                                    f"(an axis of it is bound to {tag}) and read by others; use set_scope('shared')")  # fmt: skip
            if not is_of_block(tag) and is_fragment(buffer.scope) and loop.constant_extent != 1:
                raise ScheduleError(f"stage {buffer.name} has scope {buffer.scope}, the registers of one warp, but its tiles are computed by different warps "
                                    f"(an axis of it is bound to {tag}); compute it inside the loop of its reader that is bound to {tag}")  # fmt: skip


def is_of_warp(scope: str) -> bool:
    """Whether the threads of a warp hold a buffer of this scope together."""
    return scope.startswith(("warp", "wmma"))


def _buffer_of(s: Store | Atomic | CallIntrinsic) -> Buffer:
    return s.buffer if isinstance(s, Store) else s.load.buffer if isinstance(s, Atomic) else s.loads[0].buffer


def _stored(s: Stmt) -> Iterable[Buffer]:
    """The buffers that the nest of a stage stores to, without those of stages inside."""
    if isinstance(s, (Store, Atomic, CallIntrinsic)):
        yield _buffer_of(s)
    for each in statements_in(s):
        if not isinstance(each, Produce):
            yield from _stored(each)


def _sets_own_constants(s: Stmt) -> bool:
    """Whether `s` only stores constants to memory of the thread."""
    if isinstance(s, Store):
        return s.buffer.scope == "local" and isinstance(s.value, Const)
    return isinstance(s, (For, Seq)) and all(map(_sets_own_constants, statements_in(s)))


def _where(conditions: Sequence[Expr], s: Stmt) -> Stmt:
    """`s` where all conditions hold."""
    if not conditions:
        return s
    both = conditions[0]
    for each in conditions[1:]:
        both = logical_and(both, each)
    return If(both, s)
