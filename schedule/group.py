"""Groups of stages that are placed together: `s.create_group(...)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..te.axis import IterVar
from ..te.op import Operation
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError


class Group:
    """The stages between inputs and outputs, as one. What is done to it is recorded as what is done to its stages.

    Attributes: `stages`, producers before consumers.
    """

    def __init__(self, schedule: Any, stages: Sequence[Any]):
        self._schedule, self.stages = schedule, list(stages)

    def compute_at(self, consumer: Any, axis: IterVar) -> None:
        """Compute the whole group inside the loop `axis` of `consumer`: all its stages but those that are inlined, or computed inside others of it.

        before -> after, `s.create_group(outputs=C, inputs=A, include_inputs=False).compute_at(s[D], io)`:

            for i in range(16):             for io in range(4):
                B[i] = A[i] * 2                 for i in range(4):
            for i in range(16):                     B[i] = A[io * 4 + i] * 2
                C[i] = B[i] + 1                 for i in range(4):
            for io in range(4):                     C[i] = B[i] + 1
                for ii in range(4):             for ii in range(4):
                    D[io * 4 + ii] = ...            D[io * 4 + ii] = C[ii] - 3

        Raises ScheduleError, before anything is changed, if `consumer` is of the group or one of the stages cannot be placed there.
        """
        target = self._schedule.stage_of(consumer, "compute_at of a group")
        if target in self.stages:
            raise ScheduleError(f"compute_at of the group {self._names()}: stage {target.name} is of the group; give a stage outside that reads it")
        trial = self._schedule.copy()
        for stage in self._to_place():
            trial.stage_named(stage.name).compute_at(trial.stage_named(target.name), axis)
        for stage in self._to_place():
            stage.compute_at(target, axis)

    def compute_root(self) -> None:
        """Compute the group at root; stages computed inside others of it, or inlined, stay there."""
        for stage in self._to_place():
            stage.compute_root()

    def _to_place(self) -> list[Any]:
        return [s for s in self.stages if s.attach.kind == "root" or (s.attach.kind == "at" and s.attach.consumer not in self.stages)]

    def _names(self) -> str:
        return "(" + ", ".join(stage.name for stage in self.stages) + ")"

    def __repr__(self) -> str:
        return f"group {self._names()}"


def stages_between(schedule: Any, outputs: Any, inputs: Any, include_inputs: bool) -> list[Any]:
    """The stages that compute `outputs` from `inputs`, without placeholders; a ScheduleError where there is none."""
    ends, starts = _listed(schedule, outputs, "outputs"), _listed(schedule, inputs, "inputs")
    if not isinstance(include_inputs, bool):
        raise ScheduleError(f"create_group: include_inputs is {include_inputs!r}: expected True or False")
    if not ends:
        raise ScheduleError("create_group: outputs is empty; give the tensors that the group computes")
    found: set[Any] = set()
    reached: set[Any] = set()
    waiting = list(ends)
    while waiting:
        stage = waiting.pop()
        if stage in starts:
            reached.add(stage)
        if stage in found or stage.is_placeholder or (stage in starts and not include_inputs):
            continue
        found.add(stage)
        if stage not in starts:
            waiting.extend(schedule[t] for t in stage.op.input_tensors)
    for stage in starts:
        if stage not in reached:
            raise ScheduleError(f"create_group: nothing between it and the outputs ({', '.join(s.name for s in ends)}) reads input {stage.name}")
    if not found:
        raise ScheduleError(f"create_group: there is no stage between the inputs ({', '.join(s.name for s in starts)}) and the outputs "
                            f"({', '.join(s.name for s in ends)}) that computes anything; name outputs that are computed from the inputs")  # fmt: skip
    return [stage for stage in schedule.stages if stage in found]


def _listed(schedule: Any, given: Any, what: str) -> list[Any]:
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    for one in listed:
        if not isinstance(one, (Tensor, Operation)):
            raise ScheduleError(f"create_group: {what} must be a tensor or a list of tensors, found {one!r}")
    return [schedule.stage_of(one, f"create_group, {what}") for one in listed]
