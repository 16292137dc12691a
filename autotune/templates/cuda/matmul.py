"""Products of matrices on the CUDA cores: matmul, dense, batch_matmul, and quantised ones. Those that tensor cores compute are in tensor_cores.py.

A block computes a tile of the result; panels of both operands go through shared memory, a few terms at a time. A thread has 16 rows x 4 columns of the
tile in registers: for each term it reads 16 + 4 values from shared memory, four at a time, and does 64 multiply-adds. The 32 threads of a warp have
neighbouring columns of the same rows, so that what they read of the left operand is one value for all, of the right one and of the result whole lines.
The left panel is stored by terms, [k, row], so that the rows of one term are neighbours. The panels of the next terms are read while these are computed with.
Operands are padded with zeros to whole tiles, on their way to shared memory, so that the loops that multiply are the same at the edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import IterVar, thread_axis
from ....te.library.operator import Operator
from ....te.tensor import Tensor
from ...canonical import constant_shape
from ...space import Config
from ..register_tile import sums_and_weights
from .tensor_cores import tensor_core_kind, tensor_core_matmul
from .threads import WARP, bind_blocks, copy_together, multiprocessors, one_axis

_PLAIN = ("matmul", "dense", "batch_matmul")  # whose operands are arguments, and whose result is the sums
_TERMS = (4, 8, 16, 32)
_BUFFERS = (1, 2, 3)  # of each panel: with two, the next is read from memory while one is computed with
_LANES = 4  # elements of one access of a thread
_SHAPES = [(16, 32, 8), (16, 32, 4), (8, 32, 4), (8, 16, 8), (4, 16, 8), (4, 16, 4), (2, 8, 8)]  # rows of a thread, threads along columns and rows


def matmul(cfg: Config, op: Operator) -> Schedule:
    """[batch,] rows, columns = sum over the reduction of left[.., row, k] * right[.., k, column] (dense: right[column, k])."""
    rows, columns = constant_shape(op.output)[-2:]
    kind = tensor_core_kind(op, rows, columns, cfg.target) if op.name in _PLAIN else None
    if kind is not None:
        return tensor_core_matmul(cfg, op, kind)
    schedule = create_schedule(op.output.op)
    sums, _ = sums_and_weights(op)
    for each in schedule.stages:
        if not each.is_placeholder and each.op is not op.output.op and each.op is not sums.op:
            each.compute_inline()
    product(cfg, schedule, schedule[op.output], sums, right_by_terms=op.name == "dense")
    return schedule


def product(cfg: Config, schedule: Schedule, stage: Any, sums: Tensor, right_by_terms: bool = False) -> None:
    """Schedules a product of matrices.

    stage            where the result [.., rows, columns] is stored
    sums             the sums of products: that result, or what it is made from, element by element
    right_by_terms   the right operand lies in memory with the terms innermost
    """
    shape, depth = constant_shape(sums), schedule[sums].op.reduce_axis[0].dom.extent
    per_thread, along_x, along_y, terms, buffers = _sizes(cfg, shape, depth, schedule[sums].op.input_tensors)
    block_rows, block_columns = per_thread * along_y, _LANES * along_x
    padded, left, right = schedule.pad(sums, *[1] * (len(shape) - 2), block_rows, block_columns, terms)
    if stage is not schedule[sums]:
        schedule[sums].compute_inline()

    *batch, i, j = stage.op.axis
    block_i, inner_i = stage.split(i, factor=block_rows)
    block_j, inner_j = stage.split(j, factor=block_columns)
    thread_i, row = stage.split(inner_i, factor=per_thread)
    thread_j, lane = stage.split(inner_j, factor=_LANES)
    stage.reorder(*batch, block_i, block_j, thread_i, thread_j, row, lane)
    bind_blocks(stage, *([one_axis(stage, batch)] if batch else []), block_i, block_j)
    stage.bind(thread_i, thread_axis((0, along_y), "threadIdx.y"))
    stage.bind(thread_j, thread_axis((0, along_x), "threadIdx.x"))
    stage.vectorize(lane)

    local = schedule[padded]
    local.set_scope("local")
    local.compute_at(stage, thread_j)
    *_, local_row, local_column = local.op.axis
    step, term = local.split(local.op.reduce_axis[0], factor=terms)
    local.reorder(step, term, local_row, local_column)
    if cfg.define_knob("unroll_terms", [False, True]).val:
        local.unroll(term)
    for operand, by_terms in ((left, True), (right, right_by_terms)):
        _panel(schedule, operand, (local, step, term), {"threadIdx.y": along_y, "threadIdx.x": along_x}, buffers, by_terms)


def _sizes(cfg: Config, shape: tuple[int, ...], depth: int, operands: Sequence[Tensor]) -> tuple[int, int, int, int, int]:
    """Rows of a thread, threads along columns and rows, terms of a panel, buffers of each panel."""
    tile = cfg.define_knob("tile", list(range(len(_SHAPES))), default=_SHAPES.index(_default_shape(shape, multiprocessors(cfg.target)))).val
    whole_sectors = 32 // operands[0].dtype.bytes  # what is read of a row of the left operand
    terms = cfg.define_knob("terms", _TERMS, default=next((n for n in _TERMS if n >= min(whole_sectors, depth)), _TERMS[-1])).val
    buffers = cfg.define_knob("buffers", _BUFFERS, default=2 if depth > terms else 1).val
    element = max(tensor.dtype.bytes for tensor in operands)

    def fits(tile: int, terms: int, buffers: int) -> bool:
        if buffers > 1 and depth <= terms:
            return False  # there is no next panel
        per_thread, along_x, along_y = _SHAPES[tile]
        return bool(buffers * terms * (per_thread * along_y + _LANES * along_x) * element <= cfg.target.gpu.shared_bytes_per_block)

    cfg.constrain(["tile", "terms", "buffers"], fits)
    return *_SHAPES[tile], terms, buffers


def _panel(schedule: Schedule, operand: Tensor, at: tuple[Any, IterVar, IterVar], threads: dict[str, int], buffers: int, by_terms: bool) -> None:
    """An operand through shared memory, with zeros beyond its ends, and registers.

    at         the stage of the sums, its loop over panels, and that over the terms of one
    by_terms   it lies in memory with the terms innermost, and is turned round on the way
    """
    local, step, term = at
    shared = schedule[operand]
    registers = schedule[schedule.cache_read(operand, "local", [local])]
    shared.set_scope("shared")
    shared.compute_at(local, step)
    registers.compute_at(local, term)
    *_, a, b = registers.op.axis
    along = a if by_terms else b
    _, lane = registers.split(along, factor=_LANES)
    registers.reorder(*[axis for axis in registers.leaf_iter_vars if axis is not lane], lane)
    registers.vectorize(lane)
    if by_terms:
        batch = len(shared.op.axis) - 2
        shared.transform_layout(lambda *i: [*i[:batch], i[-1], i[-2]])
    (source,) = shared.op.input_tensors
    lanes = 16 // source.dtype.bytes if by_terms else _LANES  # a sector by two threads: what they store collides two ways at most
    copy_together(shared, threads, lanes if constant_shape(source)[-1] % lanes == 0 else 1)
    if buffers > 1:
        shared.double_buffer(stages=buffers)


def _default_shape(shape: tuple[int, ...], wanted: int) -> tuple[int, int, int]:
    """The largest tile of which there are `wanted`, so as to occupy the multiprocessors; of a small result, the tile that wastes least."""
    *batch, rows, columns = shape

    def blocks(choice: tuple[int, int, int]) -> int:
        return math.prod(batch) * -(-rows // (choice[0] * choice[2])) * -(-columns // (_LANES * choice[1]))

    enough = [choice for choice in _SHAPES if blocks(choice) >= wanted and choice[1] >= min(WARP, 16)]
    return enough[0] if enough else _SHAPES[4]
