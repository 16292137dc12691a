"""Transposition of the last two axes: square blocks, so that the cache lines that are read and those that are written are both used whole."""

from __future__ import annotations

import math

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator
from ..canonical import constant_shape
from ..space import Config
from .threads import parallel_knob

_BLOCKS = (4, 8, 16, 32, 64)
_PARALLEL_ELEMENTS = 1 << 15


def transpose(cfg: Config, op: Operator) -> Schedule:
    """A schedule of te.library.transpose."""
    schedule = create_schedule(op.output.op)
    stage = schedule[op.output]
    rows, columns = constant_shape(op.output)[-2:]
    row_block = cfg.define_split("rows", rows, candidates=[[n] for n in _BLOCKS], default=[8]).factors[0]
    column_block = cfg.define_split("columns", columns, candidates=[[n] for n in _BLOCKS], default=[8]).factors[0]
    reads_along_rows = cfg.define_knob("reads_along_rows", [False, True]).val
    unrolled = cfg.define_knob("unroll", [False, True]).val

    *batch, j, i = stage.op.axis
    outer_j, inner_j = stage.split(j, factor=row_block)
    outer_i, inner_i = stage.split(i, factor=column_block)
    stage.reorder(*batch, outer_j, outer_i, *((inner_i, inner_j) if reads_along_rows else (inner_j, inner_i)))
    if unrolled:
        stage.unroll(inner_j if reads_along_rows else inner_i)
    parallel = parallel_knob(cfg, math.prod(constant_shape(op.output)), _PARALLEL_ELEMENTS)
    if parallel:
        stage.parallel(stage.fuse(*batch, outer_j))
    return schedule
