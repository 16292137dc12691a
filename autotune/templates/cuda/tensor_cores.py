"""Products of matrices of float16 or bfloat16 on tensor cores, added in float32: matmul, dense, batch_matmul.

A block computes a tile of the result; panels of both operands go through shared memory, where rows are padded so that ldmatrix has no bank conflicts. A
warp has its part of the tile in registers, as fragments of 16 x 16, and for each 16 terms loads a column of fragments of the left operand and a row of the
right one. Where the architecture can, panels are copied ahead, past the registers.
"""

from __future__ import annotations

import math

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator
from ....te.tensor_cores import DTYPES, TILE
from ...canonical import constant_shape
from ...space import Config
from .threads import WARP, bind, copy_together, multiprocessors, one_axis

_COPIED = 8  # elements of one access of a thread
# rows and columns of a block, warps along each
_SHAPES = [(128, 128, 2, 4), (128, 64, 4, 2), (64, 128, 2, 4), (64, 64, 2, 2), (64, 32, 2, 2), (32, 64, 2, 2), (32, 32, 2, 2), (16, 32, 1, 2), (16, 16, 1, 1)]
_TERMS = (64, 32, 16)
_STAGES = (3, 2, 1)  # panels in shared memory


def serves(op: Operator, capability: int) -> bool:
    """Whether tensor cores compute this product: its dtypes, and whole fragments."""
    if op.name not in ("matmul", "dense", "batch_matmul"):
        return False
    left, out = op.args[0], op.output
    shape = (*constant_shape(left)[-2:], *constant_shape(out)[-2:])
    return str(left.dtype) in DTYPES and out.dtype == "float32" and all(n % TILE == 0 for n in shape) and capability >= (75 if left.dtype == "float16" else 80)


def tensor_core_matmul(cfg: Config, op: Operator) -> Schedule:
    """[batch,] rows, columns = sum over the reduction of left[.., row, k] * right[.., k, column] (dense: right[column, k])."""
    out, (left, right) = op.output, op.args[:2]
    *batches, rows, columns = constant_shape(out)
    depth, dtype = constant_shape(left)[-1], str(left.dtype)
    by_columns = op.name == "dense"
    fitting = [n for n, (tile_rows, tile_columns, *_) in enumerate(_SHAPES) if rows % tile_rows == 0 and columns % tile_columns == 0]
    enough = [n for n in fitting if math.prod(batches) * (rows // _SHAPES[n][0]) * (columns // _SHAPES[n][1]) >= multiprocessors(cfg.target)]
    choice = cfg.define_knob("tile", fitting, default=enough[0] if enough else fitting[-1]).val
    tile_rows, tile_columns, warps_rows, warps_columns = _SHAPES[choice]
    terms = cfg.define_knob("terms", [n for n in _TERMS if depth % n == 0], default=next(n for n in (32, 16) if depth % n == 0)).val
    stages = cfg.define_knob("stages", list(_STAGES), default=3 if depth // terms >= 4 else 1).val

    def fits(choice: int, terms: int, stages: int) -> bool:
        rows, columns, *_ = _SHAPES[choice]
        elements = rows * (terms + _COPIED) + (columns * (terms + _COPIED) if by_columns else terms * (columns + _COPIED))
        return stages * elements * 2 <= cfg.target.gpu.shared_bytes_per_block and (stages == 1 or depth > terms)

    cfg.constrain(["tile", "terms", "stages"], fits)
    schedule = create_schedule(out.op)
    stage = schedule[out]
    sums = schedule[schedule.cache_write(out, "wmma.accumulator")]
    *batch, i, j = stage.op.axis
    block_i, block_j, inner_i, inner_j = stage.tile(i, j, tile_rows, tile_columns)
    warp_i, part_i = stage.split(inner_i, nparts=warps_rows)
    warp_j, part_j = stage.split(inner_j, nparts=warps_columns)
    fragment_i, row = stage.split(part_i, factor=TILE)
    fragment_j, column = stage.split(part_j, factor=TILE)
    stage.reorder(*batch, block_i, block_j, warp_i, warp_j, fragment_i, fragment_j, row, column)
    bind(stage, blockIdx_y=block_i, blockIdx_x=block_j)
    if batch:
        bind(stage, blockIdx_z=one_axis(stage, batch))
    threads = {"threadIdx.z": warps_rows, "threadIdx.y": warps_columns, "threadIdx.x": WARP}
    stage.bind(warp_i, thread_axis((0, warps_rows), "threadIdx.z"))
    stage.bind(warp_j, thread_axis((0, warps_columns), "threadIdx.y"))
    stage.tensorize(row, "mma_store")

    sums.compute_at(stage, warp_j)
    *_, i, j = sums.op.axis
    step, rest = sums.split(sums.op.reduce_axis[0], factor=terms)
    term, k = sums.split(rest, factor=TILE)
    fragment_i, row = sums.split(i, factor=TILE)
    fragment_j, column = sums.split(j, factor=TILE)
    sums.reorder(step, term, fragment_i, fragment_j, row, column, k)
    sums.tensorize(row, f"mma_{'bt_' if by_columns else ''}{dtype}")
    for operand, role in ((left, "a"), (right, "bt" if by_columns else "b")):
        panel = schedule[schedule.cache_read(operand, "shared", [sums])]
        fragments = schedule[schedule.cache_read(panel.outputs[0], f"wmma.matrix_{role[0]}", [sums])]
        panel.compute_at(sums, step)
        panel.storage_align(panel.op.axis[-2], 2 * _COPIED, _COPIED)
        copy_together(panel, threads, _COPIED)
        if stages > 1:
            panel.double_buffer(stages=stages, asynchronous=cfg.target.gpu.has_async_copy)
        fragments.compute_at(sums, term)
        *_, a, b = fragments.op.axis
        *_, inner, _ = fragments.tile(a, b, TILE, TILE)
        fragments.tensorize(inner, f"mma_load_{role}_{dtype}")
    return schedule
