"""Depthwise convolutions: each channel by itself, so that a block has a part of the image of few channels, one of them for each warp.

The patch that its windows cover goes through shared memory, as in conv2d.py; the weights of a channel are the same for a whole warp and are read as they
lie.
"""

from __future__ import annotations

import math

from ....schedule.schedule import Schedule, create_schedule
from ....te.library.operator import Operator
from ...canonical import constant_shape
from ...space import Config
from .conv2d import SMALLEST, Tile, bind_tile, patch, patch_shape, tile_knobs
from .general import general
from .sums import local_sums


def depthwise(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.depthwise_conv2d."""
    schedule = create_schedule(op.output.op)
    local, stage = local_sums(schedule, op), schedule[op.output]
    r, q = local.op.reduce_axis
    taps = r.dom.extent * q.dom.extent

    def fits(tile: Tile) -> bool:
        needed = tile.extents[0] * math.prod(patch_shape(op, local, tile)) * op.args[0].dtype.bytes
        return bool(needed <= cfg.target.gpu.shared_bytes_per_block)

    if not fits(SMALLEST):
        return general(cfg, op.args)
    tile = tile_knobs(cfg, constant_shape(op.output), taps, fits, depthwise=True)
    block, thread = bind_tile(stage, tile)
    local.compute_at(stage, thread)
    n, c, y, x = local.op.axis
    local.reorder(n, r, q, c, x, y)
    if cfg.define_knob("unroll_taps", [False, True], default=taps <= 25).val:
        local.unroll(r)
        local.unroll(q)
    patch(schedule, local.op.input_tensors[0], local, (stage, block), tile, op)
    return schedule
