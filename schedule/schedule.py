"""The schedule of a computation: its stages in order, and the primitives that add stages (in caching.py)."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from ..te.axis import IterVar
from ..te.graph import operations
from ..te.op import Operation
from ..te.scan import check_whole
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError
from .group import Group, stages_between
from .loops import LoopPrimitives
from .matrices import MatrixPrimitive
from .stage import Attach, position_of
from .storage import StoragePrimitives
from .tensorize import TensorizePrimitive
from .trace import Trace, trace_as_python


class Stage(LoopPrimitives, StoragePrimitives, TensorizePrimitive):
    """One operation in a schedule, with its primitives: `s[T].split(...)`."""


class Schedule(MatrixPrimitive):
    """How a computation is carried out. `s[T]` is the stage that computes tensor (or operation) T; `print(s)` shows the stages.

    Attributes: `stages` (producers before consumers), `output_stages`, `trace` (the primitives applied so far, as data).
    """

    stage_class = Stage

    def __init__(self, outputs: Sequence[Operation]):
        self.trace = Trace()
        self.recording = True
        self.stages: list[Stage] = []
        self._names: set[str] = set()
        self._stage_of_output: dict[Tensor, Stage] = {}
        self._stage_of_op: dict[Any, Stage] = {}
        for op in operations(outputs):
            self._insert(len(self.stages), op, op.name, is_original=True)
        for op in outputs:
            self._stage_of_op[op].is_output = True
        for stage in self.stages:
            if stage.is_scan:
                home = Attach("at", stage, stage.op.scan_axis)
                for part in (*stage.op.body, *(t.op for t in stage.op.state)):
                    member = self._stage_of_op.get(part)  # a state that nothing reads is no stage
                    if member is None:
                        continue
                    member.home = home
                    if not member.is_placeholder:
                        member.attach, member.time_axis = home, part.axis[0]
        for stage in self.output_stages:
            if stage.scan_stage is not None:
                raise ScheduleError(f"create_schedule: {stage.name} exists inside the steps of scan {stage.scan_stage.name} only; give the scan as the output")

    def _insert(self, position: int, op: Any, wanted: str, is_original: bool) -> Any:
        name, count = wanted, 0
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        stage = Stage(self, op, name, is_original)
        self.stages.insert(position, stage)
        self._stage_of_op[op] = stage
        for tensor in op.outputs:
            self._stage_of_output[tensor] = stage
        return stage

    # ------------------------------------------------------------------------------------------------------------ look-ups

    @property
    def output_stages(self) -> list[Stage]:
        """The stages whose results the schedule was created for."""
        return [stage for stage in self.stages if stage.is_output]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors the schedule was created for."""
        return [tensor for stage in self.output_stages for tensor in stage.outputs]

    def __getitem__(self, key: Tensor | Operation) -> Stage:
        return self.stage_of(key, "s[...]")  # type: ignore[no-any-return]

    def stage_of(self, key: Any, primitive_name: str) -> Any:
        """The stage of a tensor, an operation or a stage of this schedule."""
        found = None
        if isinstance(key, Tensor):
            found = self._stage_of_output.get(key)
        elif isinstance(key, Stage):
            found = key if key.schedule is self else None
        elif isinstance(key, Operation):
            found = self._stage_of_op.get(key)
        elif isinstance(key, str):
            raise ScheduleError(f"{primitive_name}: expected a tensor, found the name {key!r}")
        if found is None:
            what = getattr(key, "name", None) or repr(key)
            raise ScheduleError(f"{primitive_name}: {what} is not part of this schedule; its stages are {', '.join(stage.name for stage in self.stages)}")
        return found

    def stage_named(self, name: str) -> Stage:
        """The stage with a unique name."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise ScheduleError(f"no stage {name!r} in this schedule; its stages are {', '.join(stage.name for stage in self.stages)}")

    def stage_of_axis(self, axis: IterVar, near: Sequence[Any] = ()) -> tuple[str, str] | None:
        """(stage, axis) names of an axis, looked for in the stages `near` first; None if it is of no stage."""
        for stage in (*near, *self.stages):
            if stage.knows_axis(axis):
                return stage.name, stage.axis_name(axis)
        return None

    def readers(self, tensor: Tensor) -> list[Stage]:
        """The stages that read `tensor`."""
        return [stage for stage in self.stages if self.reads(stage, tensor)]

    def reads(self, stage: Any, tensor: Tensor) -> bool:
        """Whether the operation of `stage` reads `tensor`."""
        return position_of(tensor, stage.op.input_tensors) is not None

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Group:
        """The stages that compute `outputs` from `inputs` (tensors or lists of them), to be placed together: see `Group.compute_at`.

        before -> after, `s.create_group(outputs=C, inputs=A).compute_at(s[D], io)`: B and C are computed inside `io` with one call.

        The outputs are of the group, the inputs only with `include_inputs=True`. Raises ScheduleError if a tensor is not of this schedule, there is no
        stage between, or an input is not read on the way.
        """
        return Group(self, stages_between(self, outputs, inputs, include_inputs))

    def copy(self) -> Schedule:
        """An independent schedule in the same state, over the same tensors and axes."""
        new = object.__new__(Schedule)
        new.trace, new.recording, new._names = Trace(list(self.trace.steps), dict(self.trace.roots)), True, set(self._names)
        twins = {stage: stage.copy_into(new) for stage in self.stages}
        new.stages = [twins[stage] for stage in self.stages]
        for stage in new.stages:
            attach, home = stage.attach, stage.home
            if home.kind == "at":
                stage.home = Attach("at", twins[home.consumer], home.axis)
            if attach.kind == "at":
                stage.attach = stage.home if attach is home else Attach("at", twins[attach.consumer], attach.axis)
        new._stage_of_output = {tensor: twins[stage] for tensor, stage in self._stage_of_output.items()}
        new._stage_of_op = {op: twins[stage] for op, stage in self._stage_of_op.items()}
        return new

    def normalize(self) -> Schedule:
        """As `copy`: what TVM's method of this name does (loops count from 0, attach points follow a split) holds here without it."""
        return self.copy()

    # -------------------------------------------------------------------------------------------------------------- people

    def as_python(self) -> str:
        """This schedule as a flat script: tensors stand under their operation's name, and it leaves the schedule in `s`."""
        return trace_as_python(self)

    def __str__(self) -> str:
        return "\n".join(repr(stage) for stage in self.stages if not stage.is_placeholder)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def create_schedule(outputs: Any) -> Schedule:
    """The default schedule of a computation: every stage at root, plain serial loops in the order of its axes.

    `outputs`: an operation, a tensor, or a list of them. Raises ScheduleError for anything else, TEError where a computation is wrong that only could
    have been right inside a te.scan (it reads before the start of a tensor, or a state).
    """
    listed = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    ops: list[Operation] = []
    for output in listed:
        op = output.op if isinstance(output, Tensor) else output
        if not isinstance(op, Operation):
            raise ScheduleError(f"create_schedule takes an operation, a tensor or a list of them, found {output!r}")
        if position_of(op, ops) is None:
            ops.append(op)
    if not ops:
        raise ScheduleError("create_schedule needs at least one output")
    check_whole(ops)
    return Schedule(ops)
