"""The template of any computation: each stage that is stored is a kernel.

plain stages that are only read     inlined
plain results                       an element (or as many as one access can hold) a thread
reductions with many results        a result a thread
reductions with few results         a result a block, its threads together
the stages of a scan                one block, whose threads share the elements of a step
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.op import ComputeOp
from ....te.tensor import Tensor
from ....tir.visit import loads_of
from ...canonical import constant_shape, output_operations
from ...space import Config
from .threads import WARP, bind, one_axis, points, power_of_two

THREADS = (32, 64, 128, 256, 512)
_MANY_RESULTS = 1 << 14  # about as many as there are threads on a GPU at work


def general(cfg: Config, tensors: Sequence[Tensor]) -> Schedule:
    """A schedule for a GPU of any computation whose arguments are `tensors`."""
    schedule = create_schedule(output_operations(tensors))
    stages = [stage for stage in schedule.stages if isinstance(stage.op, ComputeOp)]
    threads = cfg.define_knob("threads", THREADS, default=256).val
    for stage in stages:
        if not stage.is_output and not stage.is_update and stage.op.reducer is None and len(stage.outputs) == 1 and _inlines(stage):
            stage.compute_inline()
    for stage in schedule.stages:
        if stage.is_scan:
            stage.env_threads([thread_axis(threads, "threadIdx.x")])
    for stage in stages:
        if stage.attach.kind != "inline":
            kernel_of(stage, threads)
    return schedule


def _inlines(stage: Any) -> bool:
    return not any(reader.is_extern for tensor in stage.outputs for reader in stage.schedule.readers(tensor))


def kernel_of(stage: Any, threads: int) -> None:
    """Binds the loops of one stage to blocks and threads."""
    axes = list(stage.op.axis) if stage.time_axis is None else list(stage.op.axis[1:])
    constant = all(isinstance(axis.dom.extent, int) for axis in (*stage.op.axis, *stage.op.reduce_axis))
    if stage.time_axis is not None:
        _, thread = stage.split(one_axis(stage, axes) if axes else stage.fuse(), factor=threads)
        stage.bind(thread, thread_axis((0, threads), "threadIdx.x"))
        return
    if stage.op.reducer is not None and stage.op.reducer.associative and constant and points(stage) < _MANY_RESULTS and _terms(stage) >= 2 * WARP:
        block = one_axis(stage, axes) if axes else stage.fuse()
        reduce_together(stage, min(threads, power_of_two(-(-_terms(stage) // 2))))
        bind(stage, blockIdx_x=block)
        return
    registers = None
    if stage.op.reducer is not None and constant:
        registers = stage.schedule[_first(stage.schedule.cache_write(list(stage.outputs), "local"))]
    lanes = 16 // max(tensor.dtype.bytes for tensor in stage.outputs)
    if registers is None and stage.op.reducer is None and axes and isinstance(extent := axes[-1].dom.extent, int) and lanes > 1 and extent % lanes == 0:
        axes[-1], lane = stage.split(axes[-1], factor=lanes)
        stage.vectorize(lane)
    loop = one_axis(stage, axes) if axes else stage.fuse()
    block, thread = stage.split(loop, factor=threads)
    bind(stage, blockIdx_x=block, threadIdx_x=thread)
    if registers is not None:
        registers.compute_at(stage, thread)


def _first(made: Any) -> Any:
    return made[0] if isinstance(made, list) else made


def _terms(stage: Any) -> int:
    """How many values are reduced to one."""
    terms = 1
    for axis in stage.op.reduce_axis:
        terms *= axis.dom.extent
    return terms


def reduce_together(stage: Any, threads: int) -> None:
    """The reduction of a stage shared among the threads of a block: neighbouring threads take neighbouring terms, several at once where that is possible."""
    term = one_axis(stage, list(stage.op.reduce_axis))
    lines, lanes = _lines(stage, threads)
    if lines:
        term, _ = stage.split(term, factor=lanes)
    _, thread = stage.split(term, factor=threads)
    stage.bind(thread, thread_axis((0, threads), "threadIdx.x"))
    for tensor in lines:
        read = stage.schedule[stage.schedule.cache_read(tensor, "local", [stage])]
        read.compute_at(stage, thread)
        read.vectorize(read.op.axis[-1])


def _lines(stage: Any, threads: int) -> tuple[list[Tensor], int]:
    """The inputs of a reduction whose terms are neighbours in memory, and how many of them a thread reads at once; none where that is not all of the time."""
    inputs = [tensor for tensor in stage.op.input_tensors if stage.schedule[tensor].is_placeholder]
    if len(stage.op.reduce_axis) != 1 or not inputs:
        return [], 1
    (k,) = stage.op.reduce_axis
    lanes = 16 // max(tensor.dtype.bytes for tensor in inputs)
    loads = [load for value in stage.op.body for load in loads_of(value)]
    lines = [tensor for tensor in inputs if all(load.indices[-1] is k.var for load in loads if load.buffer is tensor.buffer)]
    whole = k.dom.extent % (lanes * threads) == 0 and all(constant_shape(tensor)[-1] % lanes == 0 for tensor in lines)
    return (lines, lanes) if whole and lanes > 1 else ([], 1)
