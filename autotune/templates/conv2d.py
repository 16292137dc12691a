"""Convolutions in two dimensions, NCHW and NHWC, dense and grouped; quantised ones and transposed ones too.

Output channels lie in the vector lanes and neighbouring columns of the output in the rows of a register tile: then any stride, dilation or
width of the image reads the input as scalars that are broadcast, and the weights as whole vectors. For NCHW the weights are packed so that
their output channels are contiguous, and the tile is turned when it is written. The padded input is stored, once.
Where the weights are computed (less their zero points), what is stored of them is packed.
(Compare E. Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures", SC 2018.)
"""

from __future__ import annotations

import math
from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator
from ..canonical import constant_shape
from ..space import Config
from .general import general
from .register_tile import ROWS, default_rows, default_width, local_sums, pack_channels, sums_and_weights, tile_widths
from .threads import parallel_knob

_PARALLEL_WORK = 1 << 18  # multiply-adds


def conv2d(cfg: Config, op: Operator) -> Schedule:
    """A schedule of te.library.conv2d, quantized_conv2d or conv2d_transpose."""
    nhwc = op.options.get("layout", "NCHW") == "NHWC"
    weights, out = op.args[1], op.output
    channels = constant_shape(out)[3 if nhwc else 1]
    group = channels // int(op.options.get("groups", 1))
    sums, computed = sums_and_weights(op)
    lanes, registers = cfg.target.lanes(sums.dtype.bytes), cfg.target.vector_registers
    widths = [width for width in tile_widths(group, lanes) if group == channels or group % width[0] == 0]
    if group < lanes or not widths:
        return general(cfg, op.args)  # too few channels for a vector: columns of the image take the lanes
    height, width = constant_shape(out)[1:3] if nhwc else constant_shape(out)[2:4]
    wide = [default_width(group, lanes)]
    tile = cfg.define_split("channels", channels, candidates=widths, default=wide if wide in widths else widths[-1]).factors[0]
    heights = [r for r in ROWS if r <= width]
    columns = cfg.define_split(
        "columns", width, candidates=[[r] for r in heights], default=[default_rows(width, heights, -(-tile // lanes), registers)]
    ).factors[0]
    cfg.constrain(["columns", "channels"], lambda x, o: x[-1] * -(-o[-1] // lanes) <= 2 * registers)
    lines = cfg.define_knob("lines_per_block", [*(n for n in (1, 2, 4, 8, 16) if n < height), height], default=1).val
    channels_outside = cfg.define_knob("channels_outside", [True, False], default=_weights_are_large(op, cfg)).val
    unroll = cfg.define_knob("unroll_kernel_column", [False, True]).val

    cfg.suggest(channels_outside=not channels_outside)
    cfg.suggest(lines_per_block=4)
    cfg.suggest(unroll_kernel_column=True)

    schedule = create_schedule(out.op)
    turned = None if nhwc else schedule.cache_write(out, "local")
    written = None if sums is not out else out if turned is None else turned
    stage, local = schedule[out], local_sums(schedule, sums, written)
    n, o, y, x = stage.op.axis if not nhwc else (stage.op.axis[0], stage.op.axis[3], *stage.op.axis[1:3])
    panel, channel = stage.split(o, factor=tile)
    block, line = stage.split(y, factor=lines)
    column_tile, column = stage.split(x, factor=columns)
    around = [panel, block] if channels_outside else [block, panel]
    stage.reorder(n, *around, line, column_tile, *((column, channel) if nhwc else (channel, column)))
    if nhwc:
        stage.vectorize(channel)
    outermost = stage.fuse(n, *around)
    work = math.prod(constant_shape(out)) * math.prod(axis.dom.extent for axis in local.op.reduce_axis)
    parallel = parallel_knob(cfg, work, _PARALLEL_WORK)
    if parallel:
        stage.parallel(outermost)
    local.compute_at(stage, column_tile)
    _accumulate(local, nhwc, unroll)
    if turned is not None:
        _turn(schedule[turned], stage, column_tile)
    # Without packing, only one panel lies in memory as it is read.
    packed = cfg.define_knob("pack", [False, True], default=channels > default_width(group, lanes)).val if nhwc and computed is None else True
    if packed:
        stored = computed if computed is not None else schedule.cache_read(weights, "global", [local])
        pack_channels(schedule[stored], tile, "rqco" if nhwc else "corq" if op.name == "conv2d_transpose" else "ocrq", parallel)
    inputs = [found for found in schedule.stages if getattr(found.op, "tag", "") in ("pad", "activations")]
    for found in inputs[:-1]:
        found.compute_inline()
    if inputs:
        _pad(cfg, inputs[-1], nhwc, parallel, lanes)
    return schedule


def _accumulate(local: Any, nhwc: bool, unroll: bool) -> None:
    """Reduce loops around the register tile, whose vectors are output channels in memory order.

    Input channels are innermost: with the kernel's columns there, neighbouring iterations read overlapping inputs, and compilers keep those
    in registers that the accumulators need (measured: half the speed).
    """
    if nhwc:
        *_, column, channel = local.op.axis
        r, q, c = local.op.reduce_axis
    else:
        _, channel, _, column = local.op.axis
        local.transform_layout(lambda n, o, y, x: [n, y, x, o])
        c, r, q = local.op.reduce_axis
    local.reorder(r, q, c, column, channel)
    local.unroll(column)
    local.vectorize(channel)
    if unroll:
        local.unroll(q)


def _turn(turned: Any, stage: Any, at: Any) -> None:
    """A copy of the tile in memory, written by vectors and read by columns: the accumulators themselves can stay in registers."""
    n, o, y, x = turned.op.axis
    turned.transform_layout(lambda n, o, y, x: [n, y, x, o])
    turned.reorder(n, y, x, o)
    turned.unroll(x)
    turned.vectorize(o)
    turned.compute_at(stage, at)


def _pad(cfg: Config, stage: Any, nhwc: bool, in_parallel: bool, lanes: int) -> None:
    """The padded input: stored as a whole, an image line of all channels together; or computed again at each read."""
    if cfg.define_knob("pad_again", [False, True]).val:
        stage.compute_inline()
        return
    if not nhwc:
        stage.transform_layout(lambda n, c, y, x: [n, y, c, x])
    *outer, last = stage.op.axis
    if last.dom.extent >= lanes:
        _, lane = stage.split(last, factor=lanes)
        stage.vectorize(lane)
    if in_parallel:
        stage.parallel(stage.fuse(*outer[:2]))


def _weights_are_large(op: Operator, cfg: Config) -> bool:
    """Whether a panel of weights should stay in the L2 cache while the image passes: all of them do not fit, and the image is what costs less to read again."""
    image_bytes, weight_bytes = (t.dtype.bytes * math.prod(constant_shape(t)) for t in op.args[:2])
    return weight_bytes > max(image_bytes, int(cfg.target.l2_bytes) // 2)
