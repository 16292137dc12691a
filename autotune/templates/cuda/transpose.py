"""Transposition of the last two axes: square blocks through shared memory, so that both sides are read and written along rows."""

from __future__ import annotations

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator
from ...space import Config
from .threads import bind, one_axis

_BLOCK = 32  # a warp reads a row of a block; its columns lie in different banks, since a row takes 33 words
_ROWS_AT_ONCE = (4, 8, 16, 32)


def transpose(cfg: Config, op: Operator) -> Schedule:
    """A schedule of te.library.transpose for a GPU."""
    schedule = create_schedule(op.output.op)
    stage = schedule[op.output]
    rows = cfg.define_knob("rows_at_once", _ROWS_AT_ONCE, default=8).val
    block = schedule[schedule.cache_read(op.args[0], "shared", [stage])]

    *batch, j, i = stage.op.axis
    block_j, inner_j = stage.split(j, factor=_BLOCK)
    block_i, inner_i = stage.split(i, factor=_BLOCK)
    step, row = stage.split(inner_j, factor=rows)
    stage.reorder(*batch, block_j, block_i, step, row, inner_i)
    bind(stage, blockIdx_x=one_axis(stage, [*batch, block_j, block_i]), threadIdx_y=row, threadIdx_x=inner_i)

    block.compute_at(stage, stage.leaf_iter_vars[0])
    *_, from_row, from_column = block.op.axis
    block.storage_align(from_row, _BLOCK, 1)
    _, from_row = block.split(from_row, factor=rows)
    block.bind(from_row, thread_axis((0, rows), "threadIdx.y"))
    block.bind(from_column, thread_axis((0, _BLOCK), "threadIdx.x"))
    return schedule
