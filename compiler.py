"""From a schedule to a program: `lower` gives the loops, `build` a compiled module. The wiring between schedule, passes and targets; no more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .schedule import Schedule, lower_schedule
from .targets import c, cuda
from .targets.constants import ConstantMemory, addresses, copy_constant
from .targets.cuda_launch import GeneratedCuda
from .targets.cuda_module import CHECKS, compile_cuda_module
from .targets.generated import Generated, SizeRequirement, symbol_with_constants
from .targets.module import Module, compile_module
from .te.requirements import requirements
from .te.tensor import Tensor
from .tir.constants import split_constants
from .tir.errors import PipelineError, ScheduleError, TargetError
from .tir.expr import Buffer, Var
from .tir.passes import Instrument, Pipeline, default_instruments, pipeline_for
from .tir.printer import expression_text
from .tir.stmt import Func
from .tir.target import Target
from .tir.visit import allow_deep_expressions

DEFAULT_NAME = "kernel"

# kind of target -> its generator: function after the pipeline, target, parameters as they were declared
Generator = Callable[[Func, Target, Sequence[Buffer]], Generated]
GENERATORS: dict[str, Generator] = {"c": c.generate, "cuda": cuda.generate}


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
    return _run_passes(_loops(schedule, args, target, name), target, passes, dump, instruments)


def _loops(schedule: Schedule, args: Sequence[Tensor], target: Target, name: str) -> Func:
    """The function before all passes."""
    allow_deep_expressions()
    func = lower_schedule(schedule, args, name)
    if target.kind == "c":
        _refuse_gpu(schedule)
    return func


def _run_passes(
    func: Func,
    target: Target,
    passes: Pipeline | None = None,
    dump: str | os.PathLike[str] | None = None,
    instruments: Iterable[Instrument] = (),
) -> Func:
    if passes is not None and not isinstance(passes, Pipeline):
        raise PipelineError(f"passes= is {passes!r}: expected a tir.passes.Pipeline, such as pipeline_for(target) with other passes")
    if dump is not None and not isinstance(dump, (str, os.PathLike)):
        raise PipelineError(f"dump= is {dump!r}: expected the path of a folder")
    pipeline = pipeline_for(target) if passes is None else passes
    return pipeline.run(func, target, [*default_instruments(dump), *instruments])


_CPU_SCOPES = (None, "global", "local")
_OR_GPU = "or name the GPU: target='cuda'"


def _refuse_gpu(schedule: Schedule) -> None:
    """A CPU has no thread indices and no memory of a block of threads: a ScheduleError names the first loop or stage that wants one."""
    for stage in schedule.stages:
        if stage.threads:
            tags = ", ".join(str(thread.thread_tag) for thread in stage.threads)
            raise ScheduleError(f"stage {stage.name}: env_threads asks for {tags}, indices of a GPU grid, but the target is 'c'; leave it out, {_OR_GPU}")
        if stage.scope not in _CPU_SCOPES:
            raise ScheduleError(
                f"stage {stage.name}: its scope is {stage.scope!r}, a memory of a GPU, but the target is 'c'; expected 'global' or 'local': "
                f's[{stage.name}].set_scope("local"), {_OR_GPU}'
            )
        for axis in stage.leaf_iter_vars:
            mark = stage.marks.get(axis)
            if mark is not None and mark.thread is not None:
                name = stage.axis_name(axis)
                raise ScheduleError(
                    f"stage {stage.name}: axis {name} is bound to {mark.thread.thread_tag}, an index of a GPU grid, but the target is 'c'; "
                    f"expected a loop of a CPU: use s[{stage.name}].parallel({name}) instead of bind, {_OR_GPU}"
                )


def generate(schedule: Schedule, args: Sequence[Tensor], target: str | Target = "c", *, name: str = DEFAULT_NAME) -> Generated:
    """The source of the function that `lower` gives, and how it is called."""
    target = Target.parse(target)
    generator = _generator_for(target)
    func = _loops(schedule, args, target, name)
    return _with_requirements(schedule, func.sizes, generator(_run_passes(func, target), target, [tensor.buffer for tensor in args]))


class _SizeNames:
    """Variables under the names that a generated function gives them."""

    def __init__(self, names: Mapping[Var, str]):
        self._names = names

    def of(self, variable: Var) -> str:
        return self._names[variable]


def _with_requirements(schedule: Schedule, sizes: Sequence[Var], generated: Generated) -> Generated:
    """The same, with what must hold of the sizes at a call."""
    if not sizes:
        return generated
    known = dict(zip(sizes, generated.sizes, strict=True))
    names = _SizeNames(known)
    found = [
        SizeRequirement(tuple(expression_text(e, names) for e in each.extents), expression_text(each.needed, names), each.problem)
        for each in requirements(schedule.outputs)
        if all(v in known for e in (*each.extents, each.needed) for v in e.variables)
    ]
    return replace(generated, requirements=tuple(dict.fromkeys(found)))


def _generator_for(target: Target) -> Generator:
    generator = GENERATORS.get(target.kind)
    if generator is None:
        raise TargetError(f"there is no generator for the kind of target {target.kind!r}; there is one for {', '.join(map(repr, GENERATORS))}")
    return generator


def build(
    schedule: Schedule,
    args: Sequence[Tensor],
    target: str | Target = "c",
    *,
    name: str = DEFAULT_NAME,
    constants: Mapping[Tensor, Any] | None = None,
    check: str | None = None,
) -> Module:
    """The compiled function that computes the outputs of `schedule` from arrays for `args`, in that order; outputs are written in place.

    >>> mod = build(s, [A, B, C]); mod(a, b, c)

    `constants`: inputs whose values are known now, with their arrays; they are no arguments of the module, whether `args` lists them or not. Their
    values are copied, and every stage at root that depends on them only (weights packed by cache_read and transform_layout, transformed filters)
    is computed now, once, unless it has a scope or padded rows of its own (for a GPU that is not in this machine, by the emulator).

    >>> mod = build(s, [A, B, C], constants={B: weights}); mod(a, c)

    `check`: what the emulator of CUDA looks for: "race" (races, accesses out of bounds, reads of what nobody wrote, barriers that some threads miss) or
    "memory" (transactions and bank conflicts); `mod.report` has what the last call brought to light.

    >>> mod = build(s, [A, B, C], Target("cuda", device="emulator"), check="race"); mod(a, b, c); mod.report.races

    Raises ScheduleError (as `lower`, or a constant is no input), ArgumentError (an array does not fit its constant), TargetError (no compiler, no
    generator for the target), CompileError (what the compiler said).
    """
    target = Target.parse(target)
    if check is not None and (check not in CHECKS or target.device != "emulator"):
        raise TargetError(
            f"check={check!r} with target {target}: expected {' or '.join(map(repr, CHECKS))} and a target that the emulator runs, "
            'Target("cuda", device="emulator")'
        )
    if not constants:
        return _compiled(generate(schedule, args, target, name=name), target, (), check)
    return _build_with_constants(schedule, args, target, name, constants, check)


def _compiled(generated: Generated, target: Target, constants: Sequence[ConstantMemory], check: str | None) -> Module:
    """The module of a kind of target."""
    if isinstance(generated, GeneratedCuda):
        return compile_cuda_module(generated, target, constants, check)
    return compile_module(generated, target, constants)


def _build_with_constants(schedule: Schedule, args: Sequence[Tensor], target: Target, name: str, constants: Mapping[Tensor, Any], check: str | None) -> Module:
    """Two functions from one schedule: a prologue, run here, and a kernel that takes what the prologue computed before its arguments."""
    generator = _generator_for(target)
    every = _with_constants(schedule, args, constants)
    func = _loops(schedule, every, target, name)
    memory: dict[Buffer, ConstantMemory] = {tensor.buffer: copy_constant(tensor.buffer, value, name) for tensor, value in constants.items()}
    parts = split_constants(func, memory.keys())
    if parts.prologue is not None:
        memory.update({buffer: ConstantMemory(buffer) for buffer in parts.results})
        _run_once(parts.prologue, target, addresses([memory[buffer] for buffer in parts.prologue.params]))
    values = [memory[buffer] for buffer in parts.constants]
    generated: Generated
    if target.kind == "cuda":
        generated, values = cuda.generate_with_constants(_run_passes(parts.kernel, target), target, parts.kernel.params, values)
    else:
        kernel = parts.kernel if not values else replace(parts.kernel, name=symbol_with_constants(c.function_name(name)))
        generated = generator(_run_passes(kernel, target), target, kernel.params)
        generated = generated.with_constants(len(values)) if values else generated
    return _compiled(_with_requirements(schedule, parts.kernel.sizes, generated), target, values, check)


def _run_once(func: Func, target: Target, numbers: Sequence[int]) -> None:
    """Run a function on memory of the CPU. Where the GPU that kernels are built for is not here, the emulator runs it."""
    try:
        module = _compiled(_generator_for(target)(_run_passes(func, target), target, func.params), target, (), None)
        module.run_at(numbers)
        module.close()
    except TargetError:
        if target.device != "gpu":
            raise
        _run_once(func, Target("cuda", arch=target.arch, device="emulator", threads=target.threads, fast_math=target.fast_math), numbers)


def _with_constants(schedule: Schedule, args: Sequence[Tensor], constants: Mapping[Tensor, Any]) -> list[Tensor]:
    """All parameters of the function that a schedule computes: `args`, and those constants that are not among them."""
    if not isinstance(constants, Mapping):
        raise ScheduleError(f"constants= is {constants!r}: expected a dictionary from input tensors to their arrays")
    if not isinstance(schedule, Schedule) or not isinstance(args, (tuple, list)):
        return args  # type: ignore[return-value]  # lowering says what is wrong
    for tensor in constants:
        if not isinstance(tensor, Tensor):
            raise ScheduleError(f"constants= has the key {tensor!r}: expected a tensor, an input of the computation")
        stage = schedule.stage_of(tensor, "constants=")
        if not stage.is_placeholder:
            raise ScheduleError(f"constant {tensor.name} is computed by stage {stage.name}; only an input (te.placeholder) can be given a value")
        if not all(isinstance(extent, int) for extent in tensor.shape):
            raise ScheduleError(f"constant {tensor.name} has the symbolic shape {tensor.shape_text}: a constant's sizes must be numbers when it is declared")
    return [*args, *(tensor for tensor in constants if not any(tensor is arg for arg in args))]
