"""From a schedule to a function of loops: inline, infer bounds, then put the loop nest of each stage (nest.py) where it is computed, inside the
allocation of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..te.axis import IterVar, same_extent
from ..te.op import PlaceholderOp
from ..te.requirements import requirements
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError
from ..tir.expr import Buffer, Expr, Var, add, as_expr, logical_and, logical_or
from ..tir.stmt import Allocate, CallExtern, For, Func, If, Produce, Stmt, Store, nested, seq
from ..tir.visit import loads_of
from .access import Access, aligned_strides, layout_shape
from .bounds import Guard, StageLoops, attach_leaf, infer, inlined, loop_variable
from .nest import Redirect, StageNest, guarded
from .relation import Extent
from .scan_storage import ScanStorage
from .schedule import Schedule
from .stage import position_of


def lower_schedule(schedule: Schedule, args: Sequence[Tensor], name: str = "main") -> Func:
    """The function that computes the outputs of `schedule`; its parameters are the buffers of `args`, in that order.

    Outputs that are not among `args` are workspace. Raises ScheduleError where an input is missing from `args`, an argument is not stored whole, or the
    placements of the stages do not fit together.
    """
    if not isinstance(name, str):
        raise ScheduleError(f"the name of a function is {name!r}: expected a text")
    _check_arguments(schedule, args)
    every = inlined(schedule.stages)
    wanted = _needed(every, args)
    infer(wanted)
    return Emitter(schedule, args, wanted).function(name)


def _check_arguments(schedule: Schedule, args: Sequence[Tensor]) -> None:
    if not isinstance(schedule, Schedule):
        raise ScheduleError(f"expected a schedule, as te.create_schedule makes one, found {schedule!r}")
    if not isinstance(args, (tuple, list)):
        raise ScheduleError(f"the arguments are {args!r}: expected a list of tensors, inputs and outputs, in the order in which arrays are passed")
    for number, tensor in enumerate(args):
        if not isinstance(tensor, Tensor):
            raise ScheduleError(f"argument {number} is {tensor!r}: expected a tensor of the computation")
        if position_of(tensor, args[:number]) is not None:
            raise ScheduleError(f"tensor {tensor.name} is listed twice among the arguments")
        stage = schedule.stage_of(tensor, f"argument {number}")
        if stage.is_update or (stage.is_placeholder and stage.scan_stage is not None):
            what, scan = "an update" if stage.is_update else "the state", stage.scan_stage
            raise ScheduleError(f"argument {tensor.name} is {what} of scan {scan.name} and exists inside its steps only; "
                                f"give the scan's output, {', '.join(t.name for t in scan.outputs)}")  # fmt: skip
        if stage.attach.kind != "root":
            how = "inlined" if stage.attach.kind == "inline" else f"computed inside stage {stage.attach.consumer.name}"
            raise ScheduleError(
                f"argument {tensor.name} is {how}, so it is never stored whole; use s[{stage.name}].compute_root() or leave it out of the arguments"
            )
        if not stage.is_placeholder and (stage.layout is not None or stage.alignment or stage.scope not in (None, "global")):
            raise ScheduleError(f"argument {tensor.name} has a layout, alignment or scope of its own (scope {stage.scope}), but an argument is plain memory; "
                                f"use s.cache_write({stage.name}, ...) and schedule the copy")  # fmt: skip
    if all(isinstance(t.op, PlaceholderOp) for t in args):
        outputs = ", ".join(t.name for t in schedule.outputs)
        raise ScheduleError(f"no argument ({', '.join(t.name for t in args)}) is computed, so nothing would be returned; add the output {outputs}")
    for stage in schedule.stages:
        if stage.is_extern:
            _check_stored_whole(schedule, stage)
    for stage in schedule.stages:
        if stage.is_placeholder and stage.scan_stage is None and position_of(stage.outputs[0], args) is None:
            readers = ", ".join(r.name for r in schedule.readers(stage.outputs[0]))
            raise ScheduleError(f"input {stage.name} is read by {readers or 'the schedule'} but is not among the arguments ({', '.join(t.name for t in args)})")


def _check_stored_whole(schedule: Schedule, stage: Any) -> None:
    """What a C function reads is memory as it was declared."""
    for tensor in stage.op.input_tensors:
        source = schedule[tensor]
        if source.attach.kind != "root":
            how = "inlined" if source.attach.kind == "inline" else f"computed inside stage {source.attach.consumer.name}"
        elif source.layout is not None or source.alignment or source.scope not in (None, "global"):
            how = f"stored with a layout, alignment or scope of its own (scope {source.scope})"
        else:
            continue
        raise ScheduleError(f"stage {source.name} is {how}, but {stage.name} passes it to the C function {stage.op.call.symbol}, which takes whole tensors in "
                            f"plain memory; use s[{source.name}].compute_root(), without set_scope, storage_align and transform_layout")  # fmt: skip


def _needed(every: list[StageLoops], args: Sequence[Tensor]) -> list[StageLoops]:
    """The stages whose results are wanted: outputs, arguments, and what they read."""
    read: set[Buffer] = {t.buffer for t in args}
    kept = []
    for loops in reversed(every):
        if loops.stage.is_output or any(t.buffer in read for t in loops.stage.outputs):
            kept.append(loops)
            read.update(node.buffer for e in loops.expressions for node in loads_of(e))
            if loops.stage.is_scan:
                read.update(t.buffer for t in loops.stage.op.update)
    return kept[::-1]


class Emitter:
    """The loop nests of all stages, each where it is computed, inside the allocation of what holds its result."""

    def __init__(self, schedule: Schedule, args: Sequence[Tensor], all_loops: list[StageLoops]):
        self.schedule, self.args = schedule, args
        self.all_loops = all_loops
        self.access: dict[Buffer, Access] = {}
        self.attached: dict[tuple[Any, IterVar], list[StageLoops]] = {}
        self.inside_parallel = 0
        self.stored = ScanStorage(args, all_loops)
        for loops in all_loops:
            if loops.stage.attach.kind == "at":
                key = (loops.stage.attach.consumer, attach_leaf(loops.stage))
                self.attached.setdefault(key, []).append(loops)
            for tensor in loops.stage.outputs:
                if position_of(tensor, self.stored.elsewhere) is None:
                    self.access[tensor.buffer] = self._make_access(loops, tensor)
        for loops in all_loops:
            if loops.stage.is_scan:
                self.stored.redirect(loops.stage.op, self.access)

    def function(self, name: str) -> Func:
        """All stages at root in order, inside the allocations of those that are not arguments."""
        root = [loops for loops in self.all_loops if loops.stage.attach.kind == "root"]
        sizes = self._sizes()
        bound = set(sizes)
        body = _guarded_by_sizes(sizes, self.schedule, seq(*[self._stage(loops, bound) for loops in root]))
        for loops in reversed(root):
            body = self._allocated(loops, body)
        params = tuple(tensor.buffer for tensor in self.args)
        outputs = frozenset(t.buffer for t in self.args if not self.schedule[t].is_placeholder)
        return Func(name, params, outputs, body, sizes)

    def _allocated(self, loops: StageLoops, body: Stmt) -> Stmt:
        """`body` inside the allocations of what the stage computes, but for arguments and what is stored in the result of a scan."""
        for tensor in reversed(loops.stage.outputs):
            if position_of(tensor, self.args) is None and position_of(tensor, self.stored.elsewhere) is None:
                body = Allocate(self.access[tensor.buffer].buffer, body)
        return body

    def _sizes(self) -> tuple[Var, ...]:
        found: dict[Var, None] = {}
        for tensor in self.args:
            for extent in tensor.shape:
                if isinstance(extent, Expr):
                    found.update(dict.fromkeys(sorted(extent.variables, key=lambda v: v.name)))
        return tuple(found)

    def _make_access(self, loops: StageLoops, tensor: Tensor) -> Access:
        stage = loops.stage
        whole = stage.is_scan or stage.is_extern  # they have no axes of their own
        origin = [as_expr(0)] * tensor.ndim if whole else loops.origin
        if position_of(tensor, self.args) is not None:
            return Access(tensor.buffer, origin, None)
        if stage.is_scan:
            return self.stored.access(loops, tensor)
        shape: list[Extent] = list(tensor.shape if whole else loops.shape)
        if stage.layout is not None:
            shape = layout_shape(stage, loops.shape)
        shape = [max(e, 1) if isinstance(e, int) else e for e in shape]
        strides = aligned_strides(stage, shape)
        name = stage.name if len(stage.outputs) == 1 else f"{stage.name}.v{tensor.value_index}"
        circle = None if loops.rolling is None else (loops.rolling.dimension, as_expr(loops.shape[loops.rolling.dimension]))
        return Access(Buffer(name, shape, tensor.dtype, loops.scope, strides), origin, stage.layout, circle)

    # ------------------------------------------------------------------------------------------------------- one stage

    def _stage(self, loops: StageLoops, bound: set[Var]) -> Stmt:
        """The loop nest of a stage, with the stages attached to its loops inside."""
        if loops.stage.is_extern:
            op = loops.stage.op
            args = tuple(Redirect({}, self.access).rewrite(e) for e in op.call.args)
            return Produce(loops.stage.name, CallExtern(op.call.symbol, args, op.call.types, op.writes, op.libraries))
        around = loops.enclosing[: len(loops.stage.threads)]
        bound = bound | {variable for variable, _ in around}
        before = None
        if loops.stage.is_scan:
            nest = seq(*self._initial_steps(loops), StageNest(self, loops, bound).from_leaf(0, loops.guards))
        else:
            made, guards = StageNest(self, loops, bound), [*loops.guards, *self.stored.guards(loops)]
            nest = made.from_leaf(0, guards)
            before = Produce(f"{loops.stage.name}.init", made.initial(guards)) if made.starts_before else None
        for variable, extent in reversed(around):
            nest = For(variable, as_expr(extent), "thread", nest, loops.threads[variable])
        return seq(before, Produce(loops.stage.name, nest, _buffer_pragmas(loops.stage)))

    def _initial_steps(self, loops: StageLoops) -> list[Stmt]:
        """Copies of the first steps of a scan from where they were computed; of those that were computed in place, none."""
        op, nests = loops.stage.op, []
        for number, (tensor, init) in enumerate(zip(op.outputs, op.init, strict=True)):
            if position_of(init, self.stored.elsewhere) is not None:
                continue
            axes = op.init_axis[number]
            origin, shape = loops.states[number]
            extents = [axes[0].dom.extent, *shape[1:]]
            access = self.access[tensor.buffer]
            variables = [loop_variable(a.name, extent) for a, extent in zip(axes, extents, strict=True)]
            elements = [add(o, v) for o, v in zip(origin, variables, strict=True)]
            values: dict[Var, Expr] = {a.var: e for a, e in zip(axes, elements, strict=True)}
            body: Stmt = Store(access.buffer, access.indices(elements), Redirect(values, self.access).rewrite(loops.body[number]))
            inside = [] if isinstance(op.state[0].shape[0], int) else [elements[0] < op.state[0].shape[0]]
            for element, extent, axis in zip(elements[1:], extents[1:], axes[1:], strict=True):
                if not same_extent(extent, axis.dom.extent):
                    inside.append(element < axis.dom.extent)
            body = guarded([Guard(condition, False, set()) for condition in inside], body)
            nests.append(nested([For(v, as_expr(e), "serial", body) for v, e in zip(variables, extents, strict=True)], body))
        return nests

    def produce_attached(self, consumer: Any, leaf: IterVar, bound: set[Var], body: Stmt) -> Stmt:
        """`body` after the nests of the stages attached to a leaf, inside their allocations."""
        here = self.attached.get((consumer, leaf))
        if not here:
            return body
        body = seq(*[self._stage(loops, bound) for loops in here], body)
        for loops in reversed(here):
            if loops.rolling is None:
                body = self._allocated(loops, body)
        return body

    def keep_rolling(self, consumer: Any, leaf: IterVar, loop: Stmt) -> Stmt:
        """The loop of a leaf inside the allocations of the rolling buffers that are filled in it."""
        for loops in reversed(self.attached.get((consumer, leaf), ())):
            if loops.rolling is not None:
                loop = self._allocated(loops, loop)
        return loop


def _guarded_by_sizes(sizes: Sequence[Var], schedule: Schedule, body: Stmt) -> Stmt:
    """`body`, but for sizes with which it would read outside a tensor. A call refuses those, so that nobody sees it do nothing."""
    condition: Expr | None = None
    known = set(sizes)
    for each in requirements(schedule.outputs) if sizes else ():
        if not all(v in known for e in (*each.extents, each.needed) for v in e.variables):
            continue
        holds = each.needed >= 0
        for extent in each.extents:
            holds = logical_or(extent <= 0, holds)
        condition = holds if condition is None else logical_and(condition, holds)
    return body if condition is None else If(condition, body)


def _buffer_pragmas(stage: Any) -> tuple[tuple[str, int | str], ...]:
    """What s[T].double_buffer asks of the pass of that name."""
    if stage.buffer_stages == 1:
        return ()
    return ("double_buffer", stage.buffer_stages), *((("async_copy", 1),) if stage.copies_asynchronously else ())
