"""Products of matrices on the tensor cores: matmul, dense and batch_matmul of float16, bfloat16 and int8.

A block computes a tile of the result, its warps a part of it each. Panels of both operands go through shared memory, some terms at a time, by
asynchronous copies that are a few steps ahead; rows there are 16 bytes apart from a multiple of 32, so that the eight rows which ldmatrix reads at once lie
in different banks. A warp has its part of the sums in registers, as tiles of 16 x 16. Operands are padded with zeros to whole tiles of blocks; where the
result has others, the sums leave through shared memory, so that what is outside of it can be left out.
"""

from __future__ import annotations

import math
from typing import Any

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator
from ....te.tensor import Tensor
from ....te.tensor_cores import COLUMNS, KINDS, ROWS, TensorCoreKind
from ....tir.target import Target
from ...canonical import constant_shape
from ...space import Config
from .threads import WARP, bind_blocks, copy_together, multiprocessors, one_axis

_TILES = [
    (128, 128, 2, 2),
    (128, 256, 2, 4),
    (128, 128, 2, 4),
    (128, 64, 2, 2),
    (64, 128, 2, 2),
    (64, 64, 2, 2),
    (32, 64, 1, 2),
    (32, 32, 1, 2),
    (16, 32, 1, 2),
    (16, 16, 1, 1),
]
"""Rows and columns of a block, warps along both."""
_WIDE = (0, 1)  # of these, a warp has 64 x 64: it reads least from shared memory for a product, and takes most registers
_ROW_BYTES = 16  # what one lane gives ldmatrix the address of


def tensor_core_kind(op: Operator, target: Target) -> TensorCoreKind | None:
    """What the tensor cores of a GPU make of an operator; None where they cannot, or where tiles of 16 x 16 would be mostly empty."""
    left, right, out = op.args[0], op.args[1], op.output
    if op.name not in ("matmul", "dense", "batch_matmul") or constant_shape(out)[-2] < ROWS or constant_shape(out)[-1] < COLUMNS:
        return None
    for kind in KINDS.values():
        if kind.name != "tf32" and left.dtype == right.dtype == kind.dtype and out.dtype == kind.sums and target.gpu.capability >= kind.capability:
            return kind
    return None


def tensor_core_matmul(cfg: Config, op: Operator, kind: TensorCoreKind) -> Schedule:
    """[batch,] rows, columns = sum over the reduction of left[.., row, k] * right[.., k, column] (dense: right[column, k])."""
    out = op.output
    schedule = create_schedule(out.op)
    shape = constant_shape(out)
    least = 32 if kind.bytes == 1 and op.name != "dense" else COLUMNS  # columns that are a sector of the right operand
    fitting = [n for n, (i, j, *_) in enumerate(_TILES) if i <= shape[-2] and j <= shape[-1]]
    fitting = [n for n in fitting if _TILES[n][1] >= least] or fitting
    tile = cfg.define_knob("tile", fitting, default=_default_tile(shape, fitting, multiprocessors(cfg.target))).val
    rows, columns, warps_y, warps_x = _TILES[tile]
    panel = kind.terms * cfg.define_knob("tiles_of_terms", [1, 2, 4], default=2).val
    steps = -(-constant_shape(op.args[0])[-1] // panel)
    buffers = cfg.define_knob("buffers", [1, 2, 3, 4], default=max(1, min(steps, 3 if cfg.target.gpu.has_async_copy else 2))).val

    def fits(tile: int, tiles_of_terms: int, buffers: int) -> bool:
        rows, columns = _TILES[tile][:2]
        panels = buffers * (rows + columns) * (tiles_of_terms * kind.terms * kind.bytes + 2 * _ROW_BYTES)
        staged = 0 if _is_whole(shape, tile) else rows * (columns + 32) * 4
        return bool(panels + staged <= cfg.target.gpu.shared_bytes_per_block)

    cfg.constrain(["tile", "tiles_of_terms", "buffers"], fits)
    threads = {"threadIdx.y": warps_y * warps_x, "threadIdx.x": WARP}
    is_dense = op.name == "dense"

    sums, left, right = schedule.pad(out, *[1] * (len(shape) - 2), rows, columns, panel)
    left_tile, right_tile = (schedule[schedule.cache_read(each, f"wmma.matrix_{side}", [sums])] for each, side in ((left, "a"), (right, "b")))
    warp_tile = rows // warps_y, columns // warps_x
    if not _is_whole(shape, tile):
        finished = schedule[schedule.cache_read(sums, "shared", [out])]
        element, block = _blocks(schedule[out], rows, columns)
        copy_together(schedule[out], threads, math.gcd(shape[-1], 4), element)
        finished.compute_at(schedule[out], block)
        finished.storage_align(finished.op.axis[-2], 32, 8)
        warp = _warp_tiles(finished, list(finished.op.axis[-2:]), warp_tile, kind.store)
    else:
        finished = schedule[out]
        warp = _warp_tiles(finished, _blocks(finished, rows, columns)[0], warp_tile, kind.store)

    stage = schedule[sums]
    stage.compute_at(finished, warp)
    step, part = _products(stage, panel, kind.terms, f"mma_{kind.name}{'_bt' if is_dense else ''}")
    for fragments, form, inner in ((left_tile, "a", False), (right_tile, "bt" if is_dense else "b", not is_dense)):
        fragments.compute_at(stage, part)
        _loaded(fragments, inner, f"mma_{kind.name}_load_{form}")
    for operand, argument in ((left, op.args[0]), (right, op.args[1])):
        shared, apart = schedule[operand], _ROW_BYTES // kind.bytes
        shared.set_scope("shared")
        shared.compute_at(stage, step)
        if operand is right and kind.bytes == 1 and not is_dense:
            _turned(schedule, argument, shared, threads)
            shared.storage_align(shared.op.axis[-1], 2 * apart, apart)
        else:
            copy_together(shared, threads, math.gcd(constant_shape(argument)[-1], apart))
            shared.storage_align(shared.op.axis[-2], 2 * apart, apart)
        if buffers > 1:
            shared.double_buffer(buffers, cfg.target.gpu.has_async_copy)
    return schedule


def _blocks(stage: Any, rows: int, columns: int) -> tuple[list[Any], Any]:
    """Binds the tiles of the result to blocks. Returns the loops inside a tile, and the innermost one around."""
    *batch, i, j = stage.op.axis
    block_i, row = stage.split(i, factor=rows)
    block_j, column = stage.split(j, factor=columns)
    stage.reorder(*batch, block_i, block_j, row, column)
    return [row, column], bind_blocks(stage, *([one_axis(stage, batch)] if batch else []), block_i, block_j)


def _warp_tiles(stage: Any, inside: list[Any], tile: tuple[int, int], intrinsic: str) -> Any:
    """The loops `inside` a block as tiles of a warp, and these of 16 x 16. Returns the loop over warps."""
    warp_i, i = stage.split(inside[0], factor=tile[0])
    warp_j, j = stage.split(inside[1], factor=tile[1])
    tile_i, row = stage.split(i, factor=ROWS)
    tile_j, column = stage.split(j, factor=COLUMNS)
    stage.reorder(warp_i, warp_j, tile_i, tile_j, row, column)
    warp = stage.fuse(warp_i, warp_j)
    stage.bind(warp, thread_axis("threadIdx.y"))
    stage.tensorize(row, intrinsic)
    return warp


def _products(stage: Any, panel: int, terms: int, intrinsic: str) -> tuple[Any, Any]:
    """The sums in fragments. Returns the loop over panels, and that over tiles of terms in one."""
    stage.set_scope("wmma.accumulator")
    *batch, i, j = stage.op.axis
    step, k = stage.split(stage.op.reduce_axis[0], factor=panel)
    part, term = stage.split(k, factor=terms)
    tile_i, row = stage.split(i, factor=ROWS)
    tile_j, column = stage.split(j, factor=COLUMNS)
    stage.reorder(*batch, step, part, tile_i, tile_j, row, column, term)
    stage.unroll(part)
    stage.tensorize(row, intrinsic)
    return step, part


def _loaded(stage: Any, inner: bool, intrinsic: str) -> None:
    """Fragments of an operand, one after another along its last axis (`inner`) or the one before."""
    *batch, a, b = stage.op.axis
    tile, rest = stage.split(b if inner else a, factor=ROWS)
    stage.reorder(*batch, tile, *((a, rest) if inner else (rest, b)))
    stage.tensorize(a if inner else rest, intrinsic)


def _turned(schedule: Schedule, operand: Tensor, stage: Any, threads: dict[str, int]) -> None:
    """An operand of bytes [.., k, j] in shared memory as [.., j, k], as ldmatrix wants it. A thread turns a block of 8 x 4 in its registers; a warp has eight
    of them along j, so that it reads whole sectors, and four along k, so that at most two of its words lie in one bank."""
    batch = len(stage.op.axis) - 2
    stage.transform_layout(lambda *i: [*i[:batch], i[-1], i[-2]])
    registers = schedule[schedule.cache_read(operand, "local", [stage])]
    *outer, k, j = stage.op.axis
    (k, term), (j, column) = stage.split(k, factor=8), stage.split(j, factor=4)
    (k, block_k), (j, block_j) = stage.split(k, factor=4), stage.split(j, factor=8)
    stage.reorder(*outer, k, j, block_j, block_k, column, term)
    _, warp = stage.split(one_axis(stage, [*outer, k, j]), factor=threads["threadIdx.y"])
    stage.bind(warp, thread_axis((0, threads["threadIdx.y"]), "threadIdx.y"))
    lane = stage.fuse(block_j, block_k)
    stage.bind(lane, thread_axis((0, WARP), "threadIdx.x"))
    stage.unroll(column)
    stage.vectorize(term)
    registers.compute_at(stage, lane)
    if constant_shape(operand)[-1] % 4 == 0:
        registers.vectorize(registers.op.axis[-1])


def _is_whole(shape: tuple[int, ...], tile: int) -> bool:
    """Whether tiles end where the result does."""
    return shape[-2] % _TILES[tile][0] == 0 and shape[-1] % _TILES[tile][1] == 0


def _default_tile(shape: tuple[int, ...], fitting: list[int], wanted: int) -> int:
    """The largest tile of which there are `wanted`, so as to occupy the multiprocessors; of a small result, one of 64 x 64 or less."""
    *batch, rows, columns = shape
    fitting = [n for n in fitting if n not in _WIDE or _is_whole(shape, n)]  # what is staged in shared memory leaves room for one block: of more warps then
    enough = [n for n in fitting if math.prod(batch) * -(-rows // _TILES[n][0]) * -(-columns // _TILES[n][1]) >= wanted]
    return enough[0] if enough else next(n for n in fitting if _TILES[n][0] <= 64 and _TILES[n][1] <= 64)
