"""Convolutions on the CUDA cores: products of matrices whose left operand, the windows of the image, is never stored (implicit GEMM).

A block computes a tile of output channels x rows x columns. For a few input channels at a time, the patch of the image that all its windows together
cover, and the weights, go through shared memory; the patch serves every tap of the kernel, and is padded (or made from the input in another way) as it is
copied. A warp has 32 neighbouring positions of the same channels: weights are one value for all its threads and are read four at a time, the image and
the result are lines. A thread has some rows and some channels of its column in registers. What the next terms need is read meanwhile.
Those that tensor cores can compute are in conv2d_tensor_cores.py.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import IterVar, thread_axis
from ....te.library.operator import Operator, pair
from ....te.tensor_cores import TensorCoreKind
from ....tir.target import Target
from ...canonical import constant_shape
from ...space import Config
from .conv2d_nhwc import conv2d_nhwc
from .conv2d_tensor_cores import tensor_core_conv2d
from .general import general
from .sums import local_sums
from .tensor_cores import tensor_core_kind
from .threads import WARP, bind_blocks, copy_together, multiprocessors, one_axis

_COLUMNS = (8, 16, 32)  # of a tile; a warp has WARP // columns rows of threads
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8)  # of a thread
_CHANNELS = (1, 2, 4, 8, 16)  # of a thread
_WARPS = (1, 2, 4, 8)  # of a block; each has channels of its own
_TERMS = (1, 2, 4, 8, 16)  # input channels at a time
_BUFFERS = (1, 2)
_RESULTS = 64  # of a thread at most
_LANES = 4
_COPY = 12  # instructions that bring an element to shared memory
_BUSY_WARPS = 8  # resident on a multiprocessor, that hide the latency of arithmetic and shared memory


@dataclass(frozen=True)
class Tile:
    """What a block computes: `columns` x `thread_rows` threads of a warp, each with `rows` x `channels` results; warps beside each other in channels."""

    columns: int
    rows: int
    channels: int
    warps: int

    @property
    def thread_rows(self) -> int:
        return WARP // self.columns

    @property
    def threads(self) -> dict[str, int]:
        """The extent of each index of the block, outermost first."""
        return {"threadIdx.z": self.warps, "threadIdx.y": self.thread_rows, "threadIdx.x": self.columns}

    @property
    def extents(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the block."""
        return self.channels * self.warps, self.rows * self.thread_rows, self.columns

    def cost(self, shape: tuple[int, ...], taps: int, depthwise: bool, processors: int) -> float:
        """Relative time: of the multiprocessor with most blocks, by its multiply-adds (with what lies outside the image), reads of shared memory and copies."""
        across, down, along = self.extents
        blocks = shape[0] * math.prod(-(-n // size) for n, size in zip(shape[1:], self.extents, strict=True))
        mine = -(-blocks // processors)
        reads = 4 * (1 / self.channels + 1 / (_LANES * self.rows))  # cycles beside one of multiply-adds
        around = (1 + 2 / down) * (1 + 16 / along) if taps > 1 else 1  # of a kernel of three rows; two sectors a row are only partly of use
        copies = _COPY * (1 / (down * along) + around / (taps if depthwise else across * taps))
        return mine * math.prod(self.extents) * (1 + reads + copies) / min(1, mine * self.warps / _BUSY_WARPS)


KNOBS = ("columns", "rows", "channels", "warps")
SMALLEST = Tile(min(_COLUMNS), 1, 1, 1)


def conv2d(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.conv2d, quantized_conv2d or conv2d_transpose."""
    kind = _tensor_core_kind(op, cfg.target)
    if kind is not None:
        return tensor_core_conv2d(cfg, op, kind)
    if op.options.get("layout", "NCHW") == "NHWC":
        return conv2d_nhwc(cfg, op)
    out = op.output
    channels = constant_shape(out)[1]
    group = channels // int(op.options.get("groups", 1))
    schedule = create_schedule(out.op)
    local, stage = local_sums(schedule, op), schedule[out]
    depth, *kernel = (axis.dom.extent for axis in local.op.reduce_axis)
    taps = math.prod(kernel)
    element = max(tensor.dtype.bytes for tensor in local.op.input_tensors)

    def fits(tile: Tile, terms: int = 1) -> bool:
        needed = terms * (taps * (tile.extents[0] + WARP) + math.prod(patch_shape(op, local, tile)))
        return bool(needed * element <= cfg.target.gpu.shared_bytes_per_block)

    if not fits(SMALLEST):
        return general(cfg, op.args)
    tile = tile_knobs(cfg, constant_shape(out), taps, fits, group=None if group == channels else group)
    terms = terms_knob(cfg, tile, depth, taps, fits)
    buffers = buffers_knob(cfg, tile, terms, depth, fits)
    unroll = cfg.define_knob("unroll_taps", [False, True]).val

    _, thread = bind_tile(stage, tile)
    local.compute_at(stage, thread)
    n, o, y, x = local.op.axis
    c, r, q = local.op.reduce_axis
    step, term = local.split(c, factor=terms)
    local.reorder(n, step, term, r, q, x, y, o)
    if unroll:
        local.unroll(q)
    image, weights = local.op.input_tensors
    copies = (
        patch(schedule, image, local, (local, step), tile, op),
        weights_of_tile(schedule, weights, local, (step, q), tile, "corq" if op.name == "conv2d_transpose" else "ocrq"),
    )
    for copy in copies if buffers > 1 else ():
        copy.double_buffer(buffers)
    return schedule


def _tensor_core_kind(op: Operator, target: Target) -> TensorCoreKind | None:
    """What the tensor cores make of a convolution; None where they cannot."""
    if op.name not in ("conv2d", "conv2d_transpose") or op.options.get("groups", 1) != 1:
        return None
    shape = constant_shape(op.output)
    channels = shape[3 if op.options.get("layout", "NCHW") == "NHWC" else 1]
    return tensor_core_kind(op, channels, math.prod(shape) // channels, target)


def tile_knobs(
    cfg: Config,
    shape: tuple[int, ...],
    taps: int,
    fits: Callable[[Tile], bool],
    group: int | None = None,
    depthwise: bool = False,
    columns: tuple[int, ...] = _COLUMNS,
) -> Tile:
    """The tile of a block, by default the one of least cost.

    taps    of the kernel
    fits    whether a tile's shared memory does; that of SMALLEST must
    group   a block must not have channels of two groups of so many
    """

    def possible(*chosen: int) -> bool:
        tile = Tile(*chosen)
        return tile.rows * tile.channels <= _RESULTS and (group is None or group % tile.extents[0] == 0) and fits(tile)

    choices = dict(zip(KNOBS, (columns, _ROWS, (1,) if depthwise else _CHANNELS, _WARPS), strict=True))
    tiles = [Tile(*chosen) for chosen in itertools.product(*choices.values()) if possible(*chosen)]
    best = min(tiles, key=lambda tile: tile.cost(shape, taps, depthwise, multiprocessors(cfg.target)))
    tile = Tile(*(cfg.define_knob(name, values, default=getattr(best, name)).val for name, values in choices.items()))
    cfg.constrain(KNOBS, possible)
    return tile


def terms_knob(cfg: Config, tile: Tile, depth: int, taps: int, fits: Callable[[Tile, int], bool]) -> int:
    """How many of `depth` input channels are in shared memory at once: by default what gives some dozens of terms."""
    most = max(n for n in _TERMS if n == 1 or (n * taps <= 72 and n < 2 * depth and fits(tile, n)))
    terms = cfg.define_knob("terms", _TERMS, default=most).val
    cfg.constrain([*KNOBS, "terms"], lambda *chosen: fits(Tile(*chosen[:-1]), chosen[-1]))
    return int(terms)


def buffers_knob(cfg: Config, tile: Tile, terms: int, depth: int, fits: Callable[[Tile, int], bool]) -> int:
    """How many there are in shared memory of what goes through it: with two, the next terms are read from memory while these are computed with."""
    default = 2 if depth > terms and fits(tile, 2 * terms) else 1
    buffers = cfg.define_knob("buffers", _BUFFERS, default=default).val
    cfg.constrain([*KNOBS, "terms", "buffers"], lambda *chosen: fits(Tile(*chosen[:-2]), chosen[-2] * chosen[-1]) and (chosen[-1] == 1 or depth > chosen[-2]))
    return int(buffers)


def bind_tile(stage: Any, tile: Tile) -> tuple[IterVar, IterVar]:
    """Binds the loops over n, channels, rows, columns; returns the innermost one over blocks and the innermost one over threads."""
    n, o, y, x = stage.op.axis
    across, down, along = tile.extents
    block_o, inner_o = stage.split(o, factor=across)
    block_y, inner_y = stage.split(y, factor=down)
    block_x, column = stage.split(x, factor=along)
    warp, channel = stage.split(inner_o, factor=tile.channels)
    thread_y, row = stage.split(inner_y, factor=tile.rows)
    stage.reorder(n, block_o, block_y, block_x, warp, thread_y, column, channel, row)
    block = bind_blocks(stage, stage.fuse(n, block_o), stage.fuse(block_y, block_x))
    for tag, axis in zip(tile.threads, (warp, thread_y, column), strict=True):
        stage.bind(axis, thread_axis((0, tile.threads[tag]), tag))
    return block, column


def patch(schedule: Schedule, image: Any, reader: Any, at: tuple[Any, IterVar], tile: Tile, op: Operator) -> Any:
    """What a block needs of the image, in shared memory: that stage."""
    copy = schedule[schedule.cache_read(image, "shared", [reader])]
    copy.compute_at(*at)
    copy.storage_align(copy.op.axis[2], WARP, patch_shape(op, reader, tile)[1] % WARP)
    copy_together(copy, tile.threads)
    return copy


def patch_shape(op: Operator, reader: Any, tile: Tile) -> tuple[int, int]:
    """The rows of the patch that a block needs, and the elements that a row takes up: so many that the threads of a warp read different banks."""
    strides = (1, 1) if op.name == "conv2d_transpose" else pair(op.options.get("stride", 1), "stride", 1)  # there it is the input that is spread
    dilation = pair(op.options.get("dilation", 1), "dilation", 1)
    kernel = [axis.dom.extent for axis in reader.op.reduce_axis[-2:]]
    rows, width = ((n - 1) * step + (k - 1) * reach + 1 for n, step, k, reach in zip(tile.extents[1:], strides, kernel, dilation, strict=True))

    def conflict(pitch: int) -> int:
        return _most_in_a_bank(tile.rows * strides[0] * pitch % WARP, strides[1] % WARP, tile.columns)

    return rows, min(range(width, width + WARP), key=conflict)


@cache
def _most_in_a_bank(down: int, along: int, columns: int) -> int:
    """How many threads of a warp, in rows of so many, read one bank when neighbours in a column are so many words apart, and those in a row."""
    return max(Counter((row * down + column * along) % WARP for row in range(WARP // columns) for column in range(columns)).values())


def weights_of_tile(schedule: Schedule, weights: Any, local: Any, at: tuple[IterVar, IterVar], tile: Tile, order: str) -> Any:
    """Weights in shared memory, by terms, the output channels of a term contiguous; and those of one term in registers. Returns the stage of the former.

    They lie in memory by output channels. A warp copies 8 neighbouring terms, a sector, of 4 channels: into different banks, since the channels of a term
    take 4 words more than a multiple of 32.
    """
    shared = schedule[schedule.cache_read(weights, "shared", [local])]
    registers = schedule[schedule.cache_read(shared.outputs[0], "local", [local])]
    shared.compute_at(local, at[0])
    registers.compute_at(local, at[1])
    o = order.index("o")
    shared.transform_layout(lambda *i: [*i[:o], *i[o + 1 :], i[o]])
    term_axes = [axis for position, axis in enumerate(shared.op.axis) if position != o]
    shared.storage_align(term_axes[-1], WARP, _LANES)
    channels, channel = shared.split(shared.op.axis[o], factor=_LANES)
    shared.reorder(channels, *term_axes, channel)
    terms, term = shared.split(one_axis(shared, term_axes), factor=WARP // _LANES)
    shared.reorder(channels, terms, channel, term)
    copy_together(shared, tile.threads, leaves=[channels, terms, channel, term])
    lanes = min(_LANES, 16 // weights.dtype.bytes)
    if tile.channels % lanes == 0:
        lane = registers.split(registers.op.axis[o], factor=lanes)[1]
        registers.reorder(*[axis for axis in registers.leaf_iter_vars if axis is not lane], lane)
        registers.vectorize(lane)
    return shared
