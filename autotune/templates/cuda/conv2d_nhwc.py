"""Convolutions of images with channels innermost (NHWC): neighbouring threads have neighbouring output channels, four each.

So weights, which have output channels innermost too, are copied and read as they lie, four at a time; of the image one value serves all threads with
the same positions. A block computes a tile of rows x columns x output channels, a thread some columns of one row and four channels; the patch
and the weights of a few input channels are in shared memory, twice: the next are read from memory while these are computed with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator, pair
from ...canonical import constant_shape
from ...space import Config
from .general import general
from .sums import local_sums
from .threads import bind, copy_together, multiprocessors, power_of_two

_LANES = 4  # channels of a thread
_THREADS = 256
_POWERS = (1, 2, 4, 8, 16)


class _Sizes(NamedTuple):
    """Threads along channels, columns and rows; columns of a thread; input channels at a time; how many there are of what is in shared memory."""

    channel_threads: int
    column_threads: int
    row_threads: int
    columns: int
    terms: int = 1
    buffers: int = 1

    @property
    def threads(self) -> dict[str, int]:
        """The extent of each index of the block, outermost first."""
        return {"threadIdx.z": self.row_threads, "threadIdx.y": self.column_threads, "threadIdx.x": self.channel_threads}

    @property
    def tile(self) -> tuple[int, int, int]:
        """Rows, columns and channels of a block."""
        return self.row_threads, self.column_threads * self.columns, _LANES * self.channel_threads


_CHOICES = _POWERS, _POWERS, _POWERS, (1, 2, 4, 8), (1, 2, 4, 8, 16, 32), (1, 2)
_Fits = Callable[..., bool]


def conv2d_nhwc(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.conv2d or quantized_conv2d with layout="NHWC"."""
    schedule = create_schedule(op.output.op)
    local, stage = local_sums(schedule, op), schedule[op.output]
    fits = _fits(cfg, op, local)
    if constant_shape(op.output)[3] // int(op.options.get("groups", 1)) < _LANES or not fits(1, 1, 1, 1):
        return general(cfg, op.args)
    defaults = _defaults(cfg, op, local, fits)
    sizes = _Sizes(*(cfg.define_knob(name, values, default=value).val for name, values, value in zip(_Sizes._fields, _CHOICES, defaults, strict=True)))
    cfg.constrain(_Sizes._fields, fits)

    local.compute_at(stage, _bind_tile(stage, sizes))
    r, q, c = local.op.reduce_axis
    step, term = local.split(c, factor=sizes.terms)
    local.reorder(step, r, q, term, *local.op.axis)

    image, weights = local.op.input_tensors
    patch = schedule[schedule.cache_read(image, "shared", [local])]
    patch.storage_align(patch.op.axis[2], 2, 1)  # so that neighbouring columns of threads read different banks
    copy_together(patch, sizes.threads)
    shared = schedule[schedule.cache_read(weights, "shared", [local])]
    registers = schedule[schedule.cache_read(shared.outputs[0], "local", [local])]
    registers.compute_at(local, term)
    lanes = min(_LANES, 16 // weights.dtype.bytes)
    copy_together(shared, sizes.threads, lanes if constant_shape(op.output)[3] % lanes == 0 and schedule[weights].is_placeholder else 1)
    _, lane = registers.split(registers.op.axis[-1], factor=lanes)
    registers.vectorize(lane)
    for copy in (patch, shared):
        copy.compute_at(local, step)
        if sizes.buffers > 1:
            copy.double_buffer(sizes.buffers)
    return schedule


def _bind_tile(stage: Any, sizes: _Sizes) -> Any:
    """Binds the loops over n, rows, columns, channels; returns the innermost one over threads."""
    rows, columns, channels = sizes.tile
    n, y, x, o = stage.op.axis
    block_y, thread_y = stage.split(y, factor=rows)
    block_x, inner_x = stage.split(x, factor=columns)
    thread_x, column = stage.split(inner_x, factor=sizes.columns)
    block_o, inner_o = stage.split(o, factor=channels)
    thread_o, lane = stage.split(inner_o, factor=_LANES)
    stage.reorder(n, block_y, block_x, block_o, thread_y, thread_x, thread_o, column, lane)
    bind(stage, blockIdx_x=stage.fuse(n, block_y, block_x), blockIdx_y=block_o)
    for tag, axis in zip(sizes.threads, (thread_y, thread_x, thread_o), strict=True):
        stage.bind(axis, thread_axis((0, sizes.threads[tag]), tag))
    stage.vectorize(lane)
    return thread_o


def _fits(cfg: Config, op: Operator, local: Any) -> _Fits:
    """Whether a block can have the threads and the shared memory that sizes ask for, and has channels of one group only."""
    channels, groups = constant_shape(op.output)[3], int(op.options.get("groups", 1))
    kernel_rows, kernel_columns, depth = (axis.dom.extent for axis in local.op.reduce_axis)
    strides, dilation = (pair(op.options.get(name, 1), name, 1) for name in ("stride", "dilation"))
    element = max(tensor.dtype.bytes for tensor in local.op.input_tensors)

    def fits(*chosen: int) -> bool:
        sizes = _Sizes(*chosen)
        rows, columns, across = sizes.tile
        height, width = (rows - 1) * strides[0] + (kernel_rows - 1) * dilation[0] + 1, (columns - 1) * strides[1] + (kernel_columns - 1) * dilation[1] + 1
        needed = element * (height * width * (sizes.terms + 1) + kernel_rows * kernel_columns * sizes.terms * across) * sizes.buffers
        in_one_group = groups == 1 or channels // groups % across == 0
        has_next = sizes.buffers == 1 or depth > sizes.terms
        return bool(math.prod(sizes.threads.values()) <= 2 * _THREADS and in_one_group and has_next and needed <= cfg.target.gpu.shared_bytes_per_block)

    return fits


def _defaults(cfg: Config, op: Operator, local: Any, fits: _Fits) -> _Sizes:
    """As many threads along channels as there are channels for, then along columns, then along rows; a thread has most columns that leave enough blocks."""
    n, height, width, channels = constant_shape(op.output)
    groups = int(op.options.get("groups", 1))
    group = channels // groups
    kernel_rows, kernel_columns, depth = (axis.dom.extent for axis in local.op.reduce_axis)

    def of_columns(columns: int) -> _Sizes:
        channel_threads = max(n for n in _POWERS if n == 1 or (_LANES * n <= group and (groups == 1 or group % (_LANES * n) == 0)))
        column_threads = min(8, power_of_two(-(-width // columns)))
        row_threads = min(8, _THREADS // (channel_threads * column_threads), power_of_two(height))
        chosen = (channel_threads, column_threads, row_threads, columns)
        terms = max((n for n in _CHOICES[4] if n * kernel_rows * kernel_columns <= 72 and n < 2 * depth and fits(*chosen, n)), default=1)
        if not fits(*chosen, terms):
            return _Sizes(1, 1, 1, 1)
        return _Sizes(*chosen, terms, 2 if fits(*chosen, terms, 2) else 1)

    def blocks(sizes: _Sizes) -> int:
        return n * math.prod(-(-extent // size) for extent, size in zip((height, width, channels), sizes.tile, strict=True))

    enough = [sizes for sizes in map(of_columns, _CHOICES[3]) if blocks(sizes) >= multiprocessors(cfg.target)]
    return enough[-1] if enough else of_columns(1)
