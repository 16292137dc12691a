"""Convolutions of images with channels innermost (NHWC): neighbouring threads have neighbouring output channels, four each.

So weights, which have output channels innermost too, are copied and read as they lie, four at a time; of the image one value serves all threads with
the same positions. A block computes a tile of rows x columns x output channels, a thread some columns of one row and four channels; the patch
and the weights of a few input channels are in shared memory.
"""

from __future__ import annotations

import math

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator, pair
from ...canonical import constant_shape
from ...space import Config
from .general import general
from .sums import local_sums
from .threads import bind, copy_together, multiprocessors, power_of_two

_LANES = 4  # channels of a thread
_POWERS = (1, 2, 4, 8, 16)
_COLUMNS = (1, 2, 4, 8)  # of a thread
_TERMS = (1, 2, 4, 8, 16, 32)  # input channels at a time
_THREADS = 256
_KNOBS = ("channel_threads", "column_threads", "row_threads", "columns", "terms")


def conv2d_nhwc(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.conv2d or quantized_conv2d with layout="NHWC"."""
    _, height, width, channels = constant_shape(op.output)
    groups = int(op.options.get("groups", 1))
    group = channels // groups
    schedule = create_schedule(op.output.op)
    local, stage = local_sums(schedule, op), schedule[op.output]
    kernel_rows, kernel_columns, depth = (axis.dom.extent for axis in local.op.reduce_axis)
    strides, dilation = (pair(op.options.get(name, 1), name, 1) for name in ("stride", "dilation"))
    image, weights = local.op.input_tensors
    element = max(image.dtype.bytes, weights.dtype.bytes)

    def fits(channel_threads: int, column_threads: int, row_threads: int, columns: int, terms: int) -> bool:
        across = _LANES * channel_threads
        rows = (row_threads - 1) * strides[0] + (kernel_rows - 1) * dilation[0] + 1
        positions = rows * ((column_threads * columns - 1) * strides[1] + (kernel_columns - 1) * dilation[1] + 1)
        needed = element * (positions * (terms + 1) + kernel_rows * kernel_columns * terms * across)
        in_one_group = groups == 1 or group % across == 0
        return bool(channel_threads * column_threads * row_threads <= 2 * _THREADS and in_one_group and needed <= cfg.target.gpu.shared_bytes_per_block)

    if group < _LANES or not fits(1, 1, 1, 1, 1):
        return general(cfg, op.args)

    def default(columns: int) -> tuple[int, int, int, int, int]:
        """As many threads along channels as there are channels for, then along columns, then along rows."""
        channel_threads = max(n for n in _POWERS if n == 1 or (_LANES * n <= group and (groups == 1 or group % (_LANES * n) == 0)))
        column_threads = min(8, power_of_two(-(-width // columns)))
        row_threads = min(8, _THREADS // (channel_threads * column_threads), power_of_two(height))
        chosen = (channel_threads, column_threads, row_threads, columns)
        terms = max((n for n in _TERMS if n * kernel_rows * kernel_columns <= 72 and n < 2 * depth and fits(*chosen, n)), default=1)
        return (*chosen, terms) if fits(*chosen, terms) else (1, 1, 1, 1, 1)

    def blocks(chosen: tuple[int, int, int, int, int]) -> int:
        tiles = zip((height, width, channels), (chosen[2], chosen[1] * chosen[3], _LANES * chosen[0]), strict=True)
        return constant_shape(op.output)[0] * math.prod(-(-extent // size) for extent, size in tiles)

    enough = [default(n) for n in _COLUMNS if blocks(default(n)) >= multiprocessors(cfg.target)]
    defaults = enough[-1] if enough else default(1)
    choices = zip(_KNOBS, (_POWERS, _POWERS, _POWERS, _COLUMNS, _TERMS), defaults, strict=True)
    channel_threads, column_threads, row_threads, columns, terms = (cfg.define_knob(name, values, default=value).val for name, values, value in choices)
    cfg.constrain(_KNOBS, fits)
    threads = {"threadIdx.z": row_threads, "threadIdx.y": column_threads, "threadIdx.x": channel_threads}

    n, y, x, o = stage.op.axis
    block_y, thread_y = stage.split(y, factor=row_threads)
    block_x, inner_x = stage.split(x, factor=columns * column_threads)
    thread_x, column = stage.split(inner_x, factor=columns)
    block_o, inner_o = stage.split(o, factor=_LANES * channel_threads)
    thread_o, lane = stage.split(inner_o, factor=_LANES)
    stage.reorder(n, block_y, block_x, block_o, thread_y, thread_x, thread_o, column, lane)
    bind(stage, blockIdx_x=stage.fuse(n, block_y, block_x), blockIdx_y=block_o)
    for tag, axis in zip(threads, (thread_y, thread_x, thread_o), strict=True):
        stage.bind(axis, thread_axis((0, threads[tag]), tag))
    stage.vectorize(lane)
    local.compute_at(stage, thread_o)
    r, q, c = local.op.reduce_axis
    step, term = local.split(c, factor=terms)
    local.reorder(step, r, q, term, *local.op.axis)

    patch = schedule[schedule.cache_read(image, "shared", [local])]
    patch.compute_at(local, step)
    patch.storage_align(patch.op.axis[2], 2, 1)  # so that neighbouring columns of threads read different banks
    copy_together(patch, threads)
    shared = schedule[schedule.cache_read(weights, "shared", [local])]
    registers = schedule[schedule.cache_read(shared.outputs[0], "local", [local])]
    shared.compute_at(local, step)
    registers.compute_at(local, term)
    lanes = min(_LANES, 16 // weights.dtype.bytes)
    copy_together(shared, threads, lanes if channels % lanes == 0 and schedule[weights].is_placeholder else 1)
    _, lane = registers.split(registers.op.axis[-1], factor=lanes)
    registers.vectorize(lane)
    return schedule
