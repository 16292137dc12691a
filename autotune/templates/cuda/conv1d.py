"""Convolutions in one dimension: as conv2d.py does it, with a line of positions for rows and columns.

The positions of a thread lie a warp's width apart, so that a warp reads and writes neighbours; they are virtual threads, which have its weights in common.
"""

from __future__ import annotations

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator
from ...canonical import constant_shape
from ...space import Config
from .conv2d import Tile, buffers_knob, terms_knob, tile_knobs, weights_of_tile
from .general import general
from .sums import local_sums
from .threads import WARP, bind, bind_blocks, copy_together


def conv1d(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.conv1d."""
    schedule = create_schedule(op.output.op)
    local, stage = local_sums(schedule, op), schedule[op.output]
    batch, channels, length = constant_shape(op.output)
    depth, taps = (axis.dom.extent for axis in local.op.reduce_axis)
    stride, dilation = (int(op.options.get(name, 1)) for name in ("stride", "dilation"))

    def fits(tile: Tile, terms: int = 1) -> bool:
        positions = (tile.rows * WARP - 1) * stride + (taps - 1) * dilation + 1
        needed = terms * (taps * (tile.extents[0] + WARP) + positions)
        return bool(needed * op.args[0].dtype.bytes <= cfg.target.gpu.shared_bytes_per_block)

    if not fits(Tile(WARP, 1, 1, 1)):
        return general(cfg, op.args)
    tile = tile_knobs(cfg, (batch, channels, -(-length // WARP), WARP), taps, fits, columns=(WARP,))
    terms = terms_knob(cfg, tile, depth, taps, fits)
    buffers = buffers_knob(cfg, tile, terms, depth, fits)

    n, o, x = stage.op.axis
    block_o, inner_o = stage.split(o, factor=tile.extents[0])
    warp, channel = stage.split(inner_o, factor=tile.channels)
    block_x, inner_x = stage.split(x, factor=tile.rows * WARP)
    position, thread = stage.split(inner_x, factor=WARP)
    stage.reorder(n, block_o, block_x, position, warp, thread, channel)
    bind_blocks(stage, stage.fuse(n, block_o), block_x)
    bind(stage, vthread=position)
    stage.bind(warp, thread_axis((0, tile.warps), "threadIdx.z"))
    stage.bind(thread, thread_axis((0, WARP), "threadIdx.x"))
    local.compute_at(stage, thread)
    n, o, x = local.op.axis
    c, r = local.op.reduce_axis
    step, term = local.split(c, factor=terms)
    local.reorder(n, step, term, r, x, o)

    image, weights = local.op.input_tensors
    line = schedule[schedule.cache_read(image, "shared", [local])]
    line.compute_at(local, step)
    copy_together(line, tile.threads)
    shared = weights_of_tile(schedule, weights, local, (step, r), tile, "ocr")
    for copy in (line, shared) if buffers > 1 else ():
        copy.double_buffer(buffers)
    return schedule
