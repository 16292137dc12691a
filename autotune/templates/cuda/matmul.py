"""Products of matrices on the CUDA cores: matmul, dense, batch_matmul, and quantised ones. Those that tensor cores compute are in tensor_cores.py.

A block computes a tile of the result; panels of both operands go through shared memory, a few terms at a time. A thread has 16 rows x 4 columns of the
tile in registers: for each term it reads 16 + 4 values from shared memory, four at a time, and does 64 multiply-adds. The 32 threads of a warp have
neighbouring columns of the same rows, so that what they read of the left operand is one value for all, of the right one and of the result whole lines.
The left panel is stored by terms, [k, row], so that the rows of one term are neighbours. The panels of the next terms are read while these are computed with.
"""

from __future__ import annotations

import math
from typing import Any

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator
from ...canonical import constant_shape
from ...space import Config
from .sums import local_sums
from .tensor_cores import tensor_core_kind, tensor_core_matmul
from .threads import WARP, bind_blocks, copy_together, multiprocessors, one_axis

_TERMS = (4, 8, 16, 32)
_BUFFERS = (1, 2, 3)  # of each panel: with two, the next is read from memory while one is computed with
_LANES = 4  # elements of one access of a thread
_SHAPES = [(16, 32, 8), (16, 32, 4), (8, 32, 4), (8, 16, 8), (4, 16, 8), (4, 16, 4), (2, 8, 8)]  # rows of a thread, threads along columns and rows


def matmul(cfg: Config, op: Operator) -> Schedule:
    """[batch,] rows, columns = sum over the reduction of left[.., row, k] * right[.., k, column] (dense: right[column, k])."""
    kind = tensor_core_kind(op, cfg.target)
    if kind is not None:
        return tensor_core_matmul(cfg, op, kind)
    schedule = create_schedule(op.output.op)
    local = local_sums(schedule, op)
    product(cfg, schedule, schedule[op.output], local, right_by_terms=op.name == "dense")
    return schedule


def product(cfg: Config, schedule: Schedule, stage: Any, local: Any, right_by_terms: bool = False) -> None:
    """Schedules a product: `stage`, the result [.., rows, columns], from `local`, the sums, whose inputs are the operands."""
    shape = constant_shape(stage.outputs[0])
    depth = local.op.reduce_axis[0].dom.extent
    tile = cfg.define_knob("tile", list(range(len(_SHAPES))), default=_SHAPES.index(_default_shape(shape, multiprocessors(cfg.target)))).val
    per_thread, along_x, along_y = _SHAPES[tile]
    terms = cfg.define_knob("terms", _TERMS, default=8 if depth > 4 else 4).val
    buffers = cfg.define_knob("buffers", _BUFFERS, default=2 if depth > terms else 1).val
    threads = {"threadIdx.y": along_y, "threadIdx.x": along_x}
    left, right = (tensor for tensor in local.op.input_tensors)
    element = max(left.dtype.bytes, right.dtype.bytes)

    def fits(tile: int, terms: int, buffers: int) -> bool:
        if buffers > 1 and depth <= terms:
            return False  # there is no next panel
        per_thread, along_x, along_y = _SHAPES[tile]
        return bool(buffers * terms * (per_thread * along_y + _LANES * along_x) * element <= cfg.target.gpu.shared_bytes_per_block)

    cfg.constrain(["tile", "terms", "buffers"], fits)
    *batch, i, j = stage.op.axis
    block_i, inner_i = stage.split(i, factor=per_thread * along_y)
    block_j, inner_j = stage.split(j, factor=_LANES * along_x)
    thread_i, row = stage.split(inner_i, factor=per_thread)
    thread_j, lane = stage.split(inner_j, factor=_LANES)
    stage.reorder(*batch, block_i, block_j, thread_i, thread_j, row, lane)
    bind_blocks(stage, *([one_axis(stage, batch)] if batch else []), block_i, block_j)
    stage.bind(thread_i, thread_axis((0, along_y), "threadIdx.y"))
    stage.bind(thread_j, thread_axis((0, along_x), "threadIdx.x"))
    stage.vectorize(lane)

    local.compute_at(stage, thread_j)
    *_, local_row, local_column = local.op.axis
    (k,) = local.op.reduce_axis
    step, term = local.split(k, factor=terms)
    local.reorder(step, term, local_row, local_column)
    if cfg.define_knob("unroll_terms", [False, True]).val:
        local.unroll(term)
    for side in (0, 1):
        _panel(schedule, local, (left, right)[side], step, term, threads, terms, buffers, by_terms=side == 0 or right_by_terms)


def _panel(schedule: Schedule, local: Any, operand: Any, step: Any, term: Any, threads: dict[str, int], terms: int, buffers: int, by_terms: bool) -> None:
    """An operand through shared memory and registers. `by_terms`: it lies in memory with the terms innermost, and is turned round on the way."""
    shared = schedule[schedule.cache_read(operand, "shared", [local])]
    registers = schedule[schedule.cache_read(shared.outputs[0], "local", [local])]
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
    whole = constant_shape(operand)[-1] % _LANES == 0 and (not by_terms or terms % _LANES == 0)
    copy_together(shared, threads, _LANES if whole else 1)
    if buffers > 1:
        shared.double_buffer(stages=buffers)


def _default_shape(shape: tuple[int, ...], wanted: int) -> tuple[int, int, int]:
    """The largest tile of which there are `wanted`, so as to occupy the multiprocessors; of a small result, the tile that wastes least."""
    *batch, rows, columns = shape

    def blocks(choice: tuple[int, int, int]) -> int:
        return math.prod(batch) * -(-rows // (choice[0] * choice[2])) * -(-columns // (_LANES * choice[1]))

    enough = [choice for choice in _SHAPES if blocks(choice) >= wanted and choice[1] >= min(WARP, 16)]
    return enough[0] if enough else _SHAPES[4]
