"""Computations row by row: softmax, layer_norm, rms_norm, and sums of rows.

A block a row, which is read once into shared memory and reduced by all threads of the block together.
"""

from __future__ import annotations

from ....schedule.schedule import Schedule, create_schedule
from ....te.library.operator import Operator
from ...canonical import constant_shape
from ...space import Config
from .general import reduce_together
from .threads import WARP, bind, copy_together, one_axis, power_of_two

_THREADS = (32, 64, 128, 256, 512)
_ROW_BYTES = 48 << 10  # of shared memory, without asking for more


def rows(cfg: Config, op: Operator) -> Schedule:
    """An operator whose output has the rows of its input, and every stage of which is one value or one row for each row."""
    schedule = create_schedule(op.output.op)
    out, source = schedule[op.output], op.args[0]
    width, rank = constant_shape(source)[-1], source.ndim
    lanes = max(1, 16 // source.dtype.bytes)
    lanes = lanes if width % lanes == 0 else 1
    threads = cfg.define_knob("threads", _THREADS, default=min(max(WARP, power_of_two(-(-width // (2 * lanes)))), 256)).val
    keep = cfg.define_knob("keep_row", [False, True], default=op.output.ndim == rank and width * source.dtype.bytes <= _ROW_BYTES).val

    stages = [stage for stage in schedule.stages if not stage.is_placeholder and stage is not out]
    for stage in stages:
        if stage.op.reducer is None:
            stage.compute_inline()  # a function call more is nothing beside a pass through memory
    row_axes = list(out.op.axis[: rank - 1])
    row = one_axis(out, row_axes) if row_axes else None
    if out.op.reducer is not None:
        reduce_together(out, threads)
        if row is None:
            row = out.fuse()
        bind(out, blockIdx_x=row)
        return schedule
    column = out.op.axis[-1]
    if lanes > 1:
        column, lane = out.split(column, factor=lanes)
        out.vectorize(lane)
    step, thread = out.split(column, factor=threads)
    if row is None:
        row, step = out.split(step, nparts=1)
    bind(out, blockIdx_x=row, threadIdx_x=thread)
    for stage in stages:
        if stage.op.reducer is not None:
            reduce_together(stage, threads)
            stage.compute_at(out, row)
            stage.set_scope("local")  # each thread knows the result
    if keep and any(stage.op.reducer is not None for stage in stages):
        copy = schedule[schedule.cache_read(source, "shared", schedule.readers(source))]
        copy.compute_at(out, row)
        copy_together(copy, {"threadIdx.x": threads}, lanes)
    return schedule
