"""A tile of results that is kept in vector registers: its sizes, and panels of an operand that fit it; shared by several families."""

from __future__ import annotations

from typing import Any

from ...schedule.schedule import Schedule
from ...te.library.operator import Operator
from ...te.tensor import Tensor

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)


def sums_and_weights(op: Operator) -> tuple[Tensor, Tensor | None]:
    """The tensor of the sums, which is the output unless that is made from them; and the right operand, where it is computed."""
    sums = op.output if _is_reduced(op.output) else next(filter(_is_reduced, op.output.op.input_tensors))
    return sums, next((t for t in sums.op.input_tensors if getattr(t.op, "tag", "") == "weights"), None)


def _is_reduced(tensor: Tensor) -> bool:
    return bool(getattr(tensor.op, "reduce_axis", ()))


def local_sums(schedule: Schedule, sums: Tensor, written: Tensor | None) -> Any:
    """The stage that sums, in registers: a copy of the tensor `written`, or `sums` where that is an intermediate anyway."""
    if written is not None:
        return schedule[schedule.cache_write(written, "local")]
    schedule[sums].set_scope("local")
    return schedule[sums]


def tile_widths(columns: int, lanes: int) -> list[list[int]]:
    """Whole vectors, or all columns of a narrow result."""
    if columns < lanes:
        return [[columns]]
    return [[lanes * count] for count in (1, 2, 3, 4) if lanes * count <= columns]


def default_width(columns: int, lanes: int) -> int:
    """Two vectors: they leave room for 6 rows in 16 registers, and for 14 in 32."""
    return 2 * lanes if columns >= 2 * lanes else min(columns, lanes)


def default_rows(rows: int, heights: list[int], vectors: int, registers: int) -> int:
    """As many rows as fit the registers as accumulators, beside one row of the right operand and a broadcast.

    A lower tile loads more for each multiply-add and has fewer independent sums to hide its latency; a tile so high that the right operand has no registers
    of its own is read from memory at each use. Both are taken only where the highest that fits would leave much of the last tile empty.
    """
    most = max(1, (registers - vectors - 1) // vectors)

    def loss(height: int) -> float:
        return -(-rows // height) * height / rows - 1 + (0.5 * (most - height) / most if height <= most else 0.1)

    return min((height for height in heights if height <= max(most, (registers - 2) // vectors)), key=lambda height: (loss(height), -height))


def pack_channels(packed: Any, tile: int, order: str, in_parallel: bool) -> None:
    """Weights of a convolution by panels of `tile` output channels, the channels of a panel contiguous: [o // tile, taps, c, o % tile].

    order   the weights' axes, of which "o" is the output channels, "c" the input channels, and the others are taps
    """
    o = order.index("o")
    inner = sorted((axis for axis in order if axis != "o"), key=lambda axis: (axis == "c", order.index(axis)))
    packed.transform_layout(lambda *at: [at[o] // tile, *(at[order.index(axis)] for axis in inner), at[o] % tile])
    axes = dict(zip(order, packed.op.axis, strict=True))
    panel, channel = packed.split(axes.pop("o"), factor=tile)
    packed.reorder(panel, *axes.values(), channel)  # read in the order of memory
    if order[-1] == "o":
        packed.vectorize(channel)
    else:
        packed.unroll(channel)
    if in_parallel:
        packed.parallel(panel)


def pack_rows(stage: Any, width: int, in_parallel: bool) -> None:
    """Packs an operand whose rows [.., j, k] become panels of `width` rows, k by k: [.., j // width, k, j % width].

    Blocks of 16 k are read along the rows and written across the panel, so that whole cache lines are used on both sides.
    """
    if len(stage.op.axis) == 2:
        stage.transform_layout(lambda j, k: [j // width, k, j % width])
    else:
        stage.transform_layout(lambda b, h, j, k: [b, h, j // width, k, j % width])
    *batch, j, k = stage.op.axis
    panel, row = stage.split(j, factor=width)
    block, column = stage.split(k, factor=16)
    stage.reorder(*batch, panel, block, row, column)
    if in_parallel:
        stage.parallel(stage.fuse(*batch, panel) if batch else panel)
