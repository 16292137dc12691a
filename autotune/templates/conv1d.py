"""Convolutions in one dimension: the register tile of conv2d.py, output channels in the vector lanes by neighbouring positions, on blocks of positions.

A block's padded input is stored by its thread, all channels side by side, and serves all panels of output channels.
"""

from __future__ import annotations

import math
from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator
from ..canonical import constant_shape
from ..space import Config
from .general import general
from .register_tile import ROWS, default_rows, default_width, pack_channels, tile_widths
from .threads import parallel_knob

_PARALLEL_WORK = 1 << 18  # multiply-adds
_TILES_PER_BLOCK = (1, 2, 4, 8, 16)


def conv1d(cfg: Config, op: Operator) -> Schedule:
    """A schedule of te.library.conv1d."""
    out = op.output
    _, channels, length = constant_shape(out)
    lanes, registers = cfg.target.lanes(out.dtype.bytes), cfg.target.vector_registers
    if channels < lanes:
        return general(cfg, op.args)
    tile = cfg.define_split("channels", channels, candidates=tile_widths(channels, lanes), default=[default_width(channels, lanes)]).factors[0]
    heights = [r for r in ROWS if r <= length]
    positions = cfg.define_split(
        "positions", length, candidates=[[r] for r in heights], default=[default_rows(length, heights, -(-tile // lanes), registers)]
    ).factors[0]
    cfg.constrain(["positions", "channels"], lambda x, o: x[-1] * -(-o[-1] // lanes) <= 2 * registers)
    tiles = cfg.define_knob("tiles_per_block", list(_TILES_PER_BLOCK), default=2).val

    schedule = create_schedule(out.op)
    turned = schedule.cache_write(out, "local")
    sums = schedule.cache_write(turned, "local")
    stage, local = schedule[out], schedule[sums]
    n, o, x = stage.op.axis
    block, rest = stage.split(x, factor=positions * tiles)
    panel, channel = stage.split(o, factor=tile)
    run, position = stage.split(rest, factor=positions)
    stage.reorder(n, block, panel, run, channel, position)
    outermost = stage.fuse(n, block)
    work = math.prod(constant_shape(out)) * math.prod(axis.dom.extent for axis in local.op.reduce_axis)
    parallel = parallel_knob(cfg, work, _PARALLEL_WORK)
    if parallel:
        stage.parallel(outermost)
    for copy in (local, schedule[turned]):
        _tile(copy, stage, run)
    c, r = local.op.reduce_axis
    local.reorder(r, c, local.op.axis[2], local.op.axis[1])
    pack_channels(schedule[schedule.cache_read(op.args[1], "global", [local])], tile, "ocr", parallel)
    for padded in schedule.stages:
        if getattr(padded.op, "tag", "") == "pad":
            padded.compute_at(stage, outermost)
            padded.vectorize(padded.split(padded.op.axis[2], factor=lanes)[1])
    return schedule


def _tile(copy: Any, stage: Any, at: Any) -> None:
    """Positions unrolled around vectors of channels, in the loop `at`."""
    n, o, x = copy.op.axis
    copy.transform_layout(lambda n, o, x: [n, x, o])
    copy.reorder(n, x, o)
    copy.unroll(x)
    copy.vectorize(o)
    copy.compute_at(stage, at)
