"""Products of matrices on tensor cores: matmul, dense, batch_matmul of float16 and bfloat16, added in float32, and of int8, added in int32.

A block computes a tile of the result; panels of both operands go through shared memory, where rows are padded so that ldmatrix has no bank conflicts. A
warp has its part of the tile in registers, as fragments of 16 x 16, and for each 32 bytes of terms loads a column of fragments of the left operand and a row
of the right one. Where the architecture can, panels are copied ahead, past the registers. Of int8 the terms must be neighbours: a right operand by rows is
turned round on its way to shared memory.
"""

from __future__ import annotations

import math

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator
from ....te.tensor_cores import KINDS, TILE
from ...canonical import constant_shape
from ...space import Config
from .threads import WARP, bind, copy_together, multiprocessors, one_axis

_COPIED_BYTES = 16  # by one access of a thread
# rows and columns of a block, warps along each
_SHAPES = [(128, 128, 2, 4), (128, 64, 4, 2), (64, 128, 2, 4), (64, 64, 2, 2), (64, 32, 2, 2), (32, 64, 2, 2), (32, 32, 2, 2), (16, 32, 1, 2), (16, 16, 1, 1)]
_TERM_TILES = (4, 2, 1)
_STAGES = (3, 2, 1)  # panels in shared memory


def serves(op: Operator, capability: int) -> bool:
    """Whether tensor cores compute this product: its dtypes, and whole fragments."""
    if op.name not in ("matmul", "dense", "batch_matmul"):
        return False
    left, right, out = op.args[0], op.args[1], op.output
    kind = KINDS.get(str(left.dtype))
    if kind is None or left.dtype != right.dtype or out.dtype != kind.sums or capability < kind.capability:
        return False
    *_, rows, columns = constant_shape(out)
    return rows % TILE == 0 and columns % TILE == 0 and constant_shape(left)[-1] % kind.terms == 0


def tensor_core_matmul(cfg: Config, op: Operator) -> Schedule:
    """[batch,] rows, columns = sum over the reduction of left[.., row, k] * right[.., k, column] (dense: right[column, k])."""
    out, (left, right) = op.output, op.args[:2]
    *batches, rows, columns = constant_shape(out)
    depth, dtype = constant_shape(left)[-1], str(left.dtype)
    kind = KINDS[dtype]
    turned = op.name != "dense" and "b" not in kind.roles  # on the way to shared memory, so that terms are neighbours
    by_columns = op.name == "dense" or turned
    copied = _COPIED_BYTES // left.dtype.bytes
    fitting = [n for n, (tile_rows, tile_columns, *_) in enumerate(_SHAPES) if rows % tile_rows == 0 and columns % tile_columns == 0]
    enough = [n for n in fitting if math.prod(batches) * (rows // _SHAPES[n][0]) * (columns // _SHAPES[n][1]) >= multiprocessors(cfg.target)]
    choice = cfg.define_knob("tile", fitting, default=enough[0] if enough else fitting[-1]).val
    tile_rows, tile_columns, warps_rows, warps_columns = _SHAPES[choice]
    dividing = [kind.terms * n for n in _TERM_TILES if depth % (kind.terms * n) == 0]
    terms = cfg.define_knob("terms", dividing, default=dividing[-1] if turned else next(n for n in dividing if n <= 2 * kind.terms)).val
    stages = cfg.define_knob("stages", list(_STAGES), default=3 if depth // terms >= 4 else 1).val

    def fits(choice: int, terms: int, stages: int) -> bool:
        rows, columns, *_ = _SHAPES[choice]
        elements = rows * (terms + copied) + (columns * (terms + copied) if by_columns else terms * (columns + copied))
        return stages * elements * left.dtype.bytes <= cfg.target.gpu.shared_bytes_per_block and (stages == 1 or depth > terms)

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
    stage.tensorize(row, f"mma_store_{kind.sums}")

    sums.compute_at(stage, warp_j)
    *_, i, j = sums.op.axis
    step, rest = sums.split(sums.op.reduce_axis[0], factor=terms)
    term, k = sums.split(rest, factor=kind.terms)
    fragment_i, row = sums.split(i, factor=TILE)
    fragment_j, column = sums.split(j, factor=TILE)
    sums.reorder(step, term, fragment_i, fragment_j, row, column, k)
    sums.tensorize(row, f"mma_{'bt_' if by_columns else ''}{dtype}")
    for operand, role in ((left, "a"), (right, "bt" if by_columns else "b")):
        panel = schedule[schedule.cache_read(operand, "shared", [sums])]
        fragments = schedule[schedule.cache_read(panel.outputs[0], f"wmma.matrix_{role[0]}", [sums])]
        panel.compute_at(sums, step)
        turns = turned and operand is right
        if turns:
            for each in (panel, fragments):
                each.transform_layout(lambda *i: [*i[:-2], i[-1], i[-2]])
        else:
            panel.storage_align(panel.op.axis[-2], 2 * copied, copied)
        copy_together(panel, threads, copied)
        if stages > 1:
            panel.double_buffer(stages=stages, asynchronous=cfg.target.gpu.has_async_copy and not turned)
        fragments.compute_at(sums, term)
        *_, a, b = fragments.op.axis
        *_, inner, _ = fragments.tile(a, b, *((kind.terms, TILE) if role == "b" or turns else (TILE, kind.terms)))
        fragments.tensorize(inner, f"mma_load_{role}_{dtype}")
    return schedule
