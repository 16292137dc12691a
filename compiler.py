"""From a schedule to a program: `lower` gives the loops, `build` a compiled module. The wiring between schedule, passes and targets; no more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from .schedule import Schedule, lower_schedule
from .targets import c
from .targets.generated import Generated
from .targets.module import Module, compile_module
from .te.tensor import Tensor
from .tir.errors import ScheduleError, TargetError
from .tir.expr import Buffer
from .tir.passes import Instrument, Pipeline, default_instruments, pipeline_for
from .tir.stmt import Func
from .tir.target import Target
from .tir.visit import allow_deep_expressions

DEFAULT_NAME = "kernel"

# kind of target -> its generator: function after the pipeline, target, parameters as they were declared
GENERATORS: dict[str, Callable[[Func, Target, Sequence[Buffer]], Generated]] = {"c": c.generate}


def lower(
    schedule: Schedule,
    args: Sequence[Tensor],
    target: str | Target = "c",
    *,
    name: str = DEFAULT_NAME,
    passes: Pipeline | None = None,
    dump: str | os.PathLike[str] | None = None,
    instruments: Iterable[Instrument] = (),
) -> Func:
    """The function that computes the outputs of `schedule`, as loops ready for the generator of `target`.

    Arguments: `args`: the tensors that are passed at a call, in order, outputs too; `passes`: a pipeline instead of the target's own (see
    `pipeline_for`); `dump`: a folder that receives the text after every pass, with differences; `instruments`: more watchers. A ScheduleError says
    what in the schedule or the arguments cannot be.
    """
    target = Target.parse(target)
    allow_deep_expressions()
    pipeline = pipeline_for(target) if passes is None else passes
    func = lower_schedule(schedule, args, name)
    if target.kind == "c":
        _refuse_bound_loops(schedule)
    return pipeline.run(func, target, [*default_instruments(dump), *instruments])


def _refuse_bound_loops(schedule: Schedule) -> None:
    """A CPU has no thread indices: a ScheduleError names the first loop that is bound to one."""
    for stage in schedule.stages:
        for axis in stage.leaf_iter_vars:
            mark = stage.marks.get(axis)
            if mark is not None and mark.thread is not None:
                name = stage.axis_name(axis)
                raise ScheduleError(
                    f"stage {stage.name}: axis {name} is bound to {mark.thread.thread_tag}, an index of a GPU grid, but the target is 'c'; "
                    f"expected a loop of a CPU: use s[{stage.name}].parallel({name}) instead of bind"
                )


def generate(schedule: Schedule, args: Sequence[Tensor], target: str | Target = "c", *, name: str = DEFAULT_NAME) -> Generated:
    """The source of the function that `lower` gives, and how it is called."""
    target = Target.parse(target)
    generator = GENERATORS.get(target.kind)
    if generator is None:
        raise TargetError(f"there is no generator for the kind of target {target.kind!r}; there is one for {', '.join(map(repr, GENERATORS))}")
    return generator(lower(schedule, args, target, name=name), target, [tensor.buffer for tensor in args])


def build(schedule: Schedule, args: Sequence[Tensor], target: str | Target = "c", *, name: str = DEFAULT_NAME) -> Module:
    """The compiled function that computes the outputs of `schedule` from arrays for `args`, in that order; outputs are written in place.

    >>> mod = build(s, [A, B, C]); mod(a, b, c)

    Raises ScheduleError (as `lower`), TargetError (no compiler, no generator for the target), CompileError (what the compiler said).
    """
    target = Target.parse(target)
    return compile_module(generate(schedule, args, target, name=name), target)
