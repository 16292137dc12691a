"""Depthwise convolutions: each channel is a plane of its own, whose columns lie in the vector lanes.

A plane is padded into storage of its thread, where it stays in a cache, and a few lines of the output at a time are summed up in registers with all taps of
the kernel unrolled: then an input vector is loaded once for all lines that read it. With a stride, neighbouring lanes would read every other column; so the
columns are sorted by their remainder first, after which each tap reads whole vectors.
"""

from __future__ import annotations

import math
from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator, pair
from ..canonical import constant_shape
from ..space import Config
from .general import general
from .threads import parallel_knob

_PARALLEL_WORK = 1 << 16  # multiply-adds
_MOST_TAPS = 25  # that are unrolled as a whole; of a larger kernel, a row
_MOST_STRIDE = 4  # beyond it most of what would be sorted is not read
_LINES = (1, 2, 3, 4, 5, 6, 7, 8)


def depthwise(cfg: Config, op: Operator) -> Schedule:
    """A schedule of te.library.depthwise_conv2d."""
    out = op.output
    N, C, height, width = constant_shape(out)
    lanes, threads = cfg.target.lanes(out.dtype.bytes), cfg.target.threads
    stride = pair(op.options.get("stride", 1), "stride", 1)[1]
    if 2 * width < lanes or stride > _MOST_STRIDE:
        return general(cfg, op.args)
    lines = cfg.define_knob("lines", [n for n in _LINES if n <= height], default=_default_lines(height, width, lanes)).val
    vectors = cfg.define_knob("vectors", [n for n in (1, 2) if n == 1 or lanes * n <= width], default=1).val
    by_block = cfg.define_knob("pad_by_block", [False, True], default=4 * threads > N * C or _plane_bytes(op) > int(cfg.target.l2_bytes) // 2).val

    schedule = create_schedule(out.op)
    local = schedule[schedule.cache_write(out, "local")]
    stage = schedule[out]
    n, c, y, x = stage.op.axis
    block, line = stage.split(y, factor=lines)
    columns, column = stage.split(x, factor=lanes * vectors)
    stage.reorder(n, c, block, columns, line, column)
    stage.unroll(line)
    stage.vectorize(column)
    outermost = stage.fuse(n, c, block) if by_block else stage.fuse(n, c)
    if parallel_knob(cfg, math.prod(constant_shape(out)) * math.prod(axis.dom.extent for axis in local.op.reduce_axis), _PARALLEL_WORK):
        stage.parallel(outermost)
    local.compute_at(stage, columns)
    _accumulate(local)

    _prepare(cfg, op, local, stage, outermost, stride)
    return schedule


def _prepare(cfg: Config, op: Operator, local: Any, stage: Any, at: Any, stride: int) -> None:
    """What the taps read, in the loop `at`: the padded plane, its columns sorted where there is a stride."""
    schedule, lanes = stage.schedule, cfg.target.lanes(op.output.dtype.bytes)
    padded = [found for found in schedule.stages if getattr(found.op, "tag", "") == "pad"]
    in_lanes = padded
    if stride > 1:
        # Where a plane is small, all its vectors are at some border, and what sorts them should not have to care.
        small = 2 * _plane_bytes(op) <= int(cfg.target.l1_bytes)
        twice = not padded or cfg.define_knob("sort_after_padding", [False, True], default=small).val
        source = padded[0].outputs[0] if padded else op.args[0]
        columns = schedule[schedule.cache_read(source, "global", [local]) if twice else source]
        columns.compute_at(stage, at)
        _sort_columns(columns, stride, lanes)
        in_lanes = padded if twice else []
    for found in padded:
        found.compute_at(stage, at)
    for found in in_lanes:
        found.vectorize(found.split(found.op.axis[3], factor=lanes)[1])


def _plane_bytes(op: Operator) -> int:
    size: int = op.args[0].dtype.bytes * math.prod(constant_shape(op.args[0])[2:])
    return size


def _accumulate(local: Any) -> None:
    """Taps around a tile of lines by vectors, kept in registers."""
    n, c, y, x = local.op.axis
    r, q = local.op.reduce_axis
    local.reorder(n, c, r, q, y, x)
    if r.dom.extent * q.dom.extent <= _MOST_TAPS:
        local.unroll(r)
    local.unroll(q)
    local.unroll(y)
    local.vectorize(x)


def _sort_columns(stage: Any, stride: int, lanes: int) -> None:
    """Columns by their remainder: [.., x] is stored at [.., x % stride, x // stride]."""
    stage.transform_layout(lambda n, c, y, x: [n, c, y, x % stride, x // stride])
    n, c, y, x = stage.op.axis
    columns, remainder = stage.split(x, factor=stride)
    columns, column = stage.split(columns, factor=lanes)
    stage.reorder(n, c, y, remainder, columns, column)
    stage.unroll(remainder)
    stage.vectorize(column)


def _default_lines(height: int, width: int, lanes: int) -> int:
    """About five, and so that the last block is a whole one; two where a line is narrower than a vector and takes several short ones."""
    if width < lanes:
        return min(2, height)
    return min((n for n in _LINES if n <= height), key=lambda n: (-(-height // n) * n, abs(n - 5)))
