"""Computations row by row: softmax, layer_norm, rms_norm, and sums of rows.

Everything that one row needs is computed inside the loop over rows, which is parallel: a row is read from memory once and stays in the L1
cache for the later steps. A reduction along a row is kept in several vectors of partial results, so that the latency of an addition is
hidden, and is combined at the end of the row.
"""

from __future__ import annotations

import math
from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator
from ...te.tensor import Tensor
from ..canonical import constant_shape
from ..space import Config
from .threads import parallel_knob

_PARALLEL_ELEMENTS = 1 << 15
_VECTORS = (1, 2, 4, 8)


def rows(cfg: Config, op: Operator) -> Schedule:
    """An operator whose output has the rows of its input, and every stage of which is one value or one row for each row."""
    schedule = create_schedule(op.output.op)
    out = schedule[op.output]
    source = constant_shape(op.args[0])
    width, count = source[-1], math.prod(source[:-1])
    lanes = cfg.target.lanes(op.output.dtype.bytes)
    whole = [n for n in _VECTORS if lanes * n <= width] or [1]
    even = [n for n in whole if width % (lanes * n) == 0] or [1]
    vectors = cfg.define_knob("vectors", whole, default=min(even, key=lambda n: abs(n - 4))).val
    stages = [stage for stage in schedule.stages if not stage.is_placeholder and stage is not out]

    row_axes = list(out.op.axis[: len(source) - 1])
    row = out.fuse(*row_axes) if len(row_axes) > 1 else row_axes[0] if row_axes else None
    parallel = parallel_knob(cfg, count * width, _PARALLEL_ELEMENTS)
    if parallel and row is not None:
        out.parallel(row)
    inside = []
    for stage in stages:
        name = stage.name
        if stage.op.reducer is not None:
            inside += [*reduce_in_lanes(schedule, stage, lanes, vectors), stage]
        elif len(stage.op.axis) == len(source) and cfg.define_knob(f"{name}.again", [False, True]).val:
            stage.compute_inline()  # computed again where it is read, instead of stored
        else:
            inside.append(stage)
            _vectorize(stage, width, len(source), lanes)
    if out.op.reducer is not None:
        inside += reduce_in_lanes(schedule, out, lanes, vectors)
    else:
        _vectorize(out, width, len(source), lanes)
    if row is not None:
        for stage in inside:
            stage.compute_at(out, row)
            if len(stage.op.axis) < len(source):
                stage.set_scope("local")
    return schedule


def _vectorize(stage: Any, width: int, rank: int, lanes: int) -> None:
    """The last axis of a stage of whole rows."""
    if len(stage.op.axis) == rank and width >= lanes:
        _, inner = stage.split(stage.op.axis[-1], factor=lanes)
        stage.vectorize(inner)


def reduce_in_lanes(schedule: Schedule, stage: Any, lanes: int, vectors: int) -> list[Any]:
    """Splits a reduction along its last reduce axis into `vectors` vectors of partial results; returns the new stages, first to last.

    The partial results are combined in two steps: vector by vector, then the lanes of one vector.
    """
    last = stage.op.reduce_axis[-1]
    if not stage.op.reducer.associative or len(stage.outputs) > 1 or last.dom.extent < 2 * lanes * vectors:
        return []
    partial = _factored(schedule, stage, lanes * vectors)
    return [partial, _factored(schedule, stage, lanes)] if vectors > 1 else [partial]


def _factored(schedule: Schedule, stage: Any, width: int) -> Any:
    """rfactor by the innermost `width` of the last reduce axis, with that axis vectorised."""
    _, lane = stage.split(stage.op.reduce_axis[-1], factor=width)
    tensor: Tensor = stage.outputs[0]
    made = schedule.rfactor(tensor, lane)
    partial = schedule[made]
    lane_axis, *axes = partial.op.axis
    partial.reorder(*axes, *partial.op.reduce_axis, lane_axis)
    partial.vectorize(lane_axis)
    return partial
