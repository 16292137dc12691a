"""Products of matrices on the tensor cores: matmul, dense and batch_matmul of float16, bfloat16 and int8, and what conv2d_tensor_cores.py makes one of.

A block computes a tile of the result, its warps a part of it each. Panels of both operands go through shared memory, some terms at a time, by
asynchronous copies that are a few steps ahead, or through registers where copies are of less than four bytes; rows there are 16 bytes apart from a multiple
of 32, so that the eight rows which ldmatrix reads at once lie in different banks. A warp has its part of the sums in registers, as tiles of 16 x 16. Operands
are padded with zeros to whole tiles of blocks; where the result has others, or another shape, the sums leave through shared memory, so that what is outside
of it can be left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import IterVar, thread_axis
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


def tensor_core_kind(op: Operator, rows: int, columns: int, target: Target) -> TensorCoreKind | None:
    """What the tensor cores of a GPU make of an operator that is a product of matrices of its two operands; None where they cannot, or where tiles of 16 x 16
    would be mostly empty. `rows`, `columns`: of the result as a matrix."""
    left, right, out = op.args
    if rows < ROWS or columns < COLUMNS:
        return None
    for kind in KINDS.values():
        if kind.name != "tf32" and left.dtype == right.dtype == kind.dtype and out.dtype == kind.sums and target.gpu.capability >= kind.capability:
            return kind
    return None


@dataclass(frozen=True)
class Matrices:
    """A product of matrices, and where it goes.

    sums      [.., rows, columns] = sum over k of left[.., rows, k] * right[.., k, columns], or right[.., columns, k] (`by_rows`)
    stage     where the result is stored, element by element: that of `sums`, or one that reads it
    loops     of that stage: over batches, rows, columns
    lanes     neighbours along the last axis that lie side by side in memory: of left, right and the result; they divide the extents
    """

    sums: Tensor
    left: Tensor
    right: Tensor
    stage: Any
    loops: tuple[IterVar, ...]
    lanes: tuple[int, int, int]
    by_rows: bool = False

    def is_copied_ahead(self, target: Target) -> bool:
        """Whether panels are filled by asynchronous copies, which are of four bytes at least."""
        return target.gpu.has_async_copy and all(lanes * self.left.dtype.bytes >= 4 for lanes in self.lanes[:2])


def tensor_core_product(cfg: Config, schedule: Schedule, kind: TensorCoreKind, product: Matrices) -> None:
    """Schedules a product of matrices, whose operands may be computed."""
    shape = constant_shape(product.sums)
    rows, columns, warps_y, warps_x, panel, buffers, staged = _sizes(cfg, kind, product)
    threads = {"threadIdx.y": warps_y * warps_x, "threadIdx.x": WARP}
    warp_tile = rows // warps_y, columns // warps_x
    padded, *operands = schedule.pad(product.sums, *[1] * (len(shape) - 2), rows, columns, panel)
    left, right = (next(each for each in operands if source in each.op.input_tensors) for source in (product.left, product.right))
    for each in (product.sums, product.left, product.right):
        if not schedule[each].is_placeholder and schedule[each] is not product.stage:
            schedule[each].compute_inline()
    tiles = [schedule[schedule.cache_read(each, f"wmma.matrix_{side}", [padded])] for each, side in ((left, "a"), (right, "b"))]

    element, block = _blocks(product.stage, product.loops, rows, columns)
    if staged:
        finished = schedule[schedule.cache_read(padded, "shared", [product.sums])]
        copy_together(product.stage, threads, product.lanes[2], element)
        finished.compute_at(product.stage, block)
        finished.storage_align(finished.op.axis[-2], 32, 8)
        warp = _warp_tiles(finished, list(finished.op.axis[-2:]), warp_tile, kind.store)
    else:
        finished = product.stage
        warp = _warp_tiles(finished, element, warp_tile, kind.store)

    stage, suffix = schedule[padded], "_bt" if product.by_rows else ""
    stage.compute_at(finished, warp)
    step, part = _products(stage, panel, kind.terms, f"mma_{kind.name}{suffix}")
    for fragments, form, inner in ((tiles[0], "a", False), (tiles[1], "bt" if product.by_rows else "b", not product.by_rows)):
        fragments.compute_at(stage, part)
        _loaded(fragments, inner, f"mma_{kind.name}_load_{form}")
    for operand, source, lanes in ((left, product.left, product.lanes[0]), (right, product.right, product.lanes[1])):
        turned = operand is right and kind.bytes == 1 and not product.by_rows
        _panel(schedule, operand, source, lanes, threads, kind, turned)
        schedule[operand].compute_at(stage, step)
        if buffers > 1:
            schedule[operand].double_buffer(buffers, product.is_copied_ahead(cfg.target))


def _sizes(cfg: Config, kind: TensorCoreKind, product: Matrices) -> tuple[int, int, int, int, int, int, bool]:
    """Rows and columns of a block, warps along both, terms of a panel, buffers of each panel; whether the sums leave through shared memory."""
    shape, gpu = constant_shape(product.sums), cfg.target.gpu
    least = 32 if kind.bytes == 1 and not product.by_rows else COLUMNS  # columns that are a sector of the right operand
    fitting = [n for n, (i, j, *_) in enumerate(_TILES) if i <= shape[-2] and (least <= j <= shape[-1] or j <= shape[-1] < least)]
    is_result = product.stage.outputs[0] is product.sums

    def is_staged(tile: int) -> bool:
        return not is_result or shape[-2] % _TILES[tile][0] != 0 or shape[-1] % _TILES[tile][1] != 0

    def fits(tile: int, tiles_of_terms: int, buffers: int) -> bool:
        rows, columns = _TILES[tile][:2]
        panels = buffers * (rows + columns) * (tiles_of_terms * kind.terms * kind.bytes + 2 * _ROW_BYTES)
        return bool(panels + is_staged(tile) * rows * (columns + 32) * 4 <= gpu.shared_bytes_per_block)

    depth = product.stage.schedule[product.sums].op.reduce_axis[0].dom.extent
    wanted = max(1, min(-(-depth // (2 * kind.terms)), 3 if product.is_copied_ahead(cfg.target) else 2))  # buffers
    unstaged = [n for n in fitting if n not in _WIDE or not is_staged(n)]  # what is staged leaves room for one block: of more warps then
    usual = [n for n in unstaged if fits(n, 2, wanted)]
    tile = cfg.define_knob("tile", fitting, default=_default_tile(shape, usual, multiprocessors(cfg.target))).val
    panel = kind.terms * cfg.define_knob("tiles_of_terms", [1, 2, 4], default=2).val
    buffers = cfg.define_knob("buffers", [1, 2, 3, 4], default=wanted).val
    cfg.constrain(["tile", "tiles_of_terms", "buffers"], fits)
    return *_TILES[tile], panel, buffers, is_staged(tile)


def tensor_core_matmul(cfg: Config, op: Operator, kind: TensorCoreKind) -> Schedule:
    """[batch,] rows, columns = sum over the reduction of left[.., row, k] * right[.., k, column] (dense: right[column, k])."""
    left, right, out = op.args
    schedule = create_schedule(out.op)
    most = 16 // kind.bytes
    lanes = math.gcd(constant_shape(left)[-1], most), math.gcd(constant_shape(right)[-1], most), math.gcd(constant_shape(out)[-1], 4)
    stage = schedule[out]
    tensor_core_product(cfg, schedule, kind, Matrices(out, left, right, stage, stage.op.axis, lanes, by_rows=op.name == "dense"))
    return schedule


def _panel(schedule: Schedule, operand: Tensor, source: Tensor, lanes: int, threads: dict[str, int], kind: TensorCoreKind, turned: bool) -> None:
    """An operand in shared memory, padded with zeros."""
    shared, apart = schedule[operand], _ROW_BYTES // kind.bytes
    shared.set_scope("shared")
    if turned:
        _turned(schedule, source, shared, lanes, threads)
    else:
        copy_together(shared, threads, lanes)
    shared.storage_align(shared.op.axis[-1 if turned else -2], 2 * apart, apart)


def _blocks(stage: Any, loops: Sequence[IterVar], rows: int, columns: int) -> tuple[list[Any], Any]:
    """Binds the tiles of the result to blocks. Returns the loops inside a tile, and the innermost one around."""
    *batch, i, j = loops
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


def _turned(schedule: Schedule, operand: Tensor, stage: Any, lanes: int, threads: dict[str, int]) -> None:
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
    if lanes % 4 == 0:
        registers.vectorize(registers.op.axis[-1])


def _default_tile(shape: tuple[int, ...], fitting: list[int], wanted: int) -> int:
    """The largest tile of which there are `wanted`, so as to occupy the multiprocessors; of a small result, one of 64 x 64 or less."""
    *batch, rows, columns = shape
    enough = [n for n in fitting if math.prod(batch) * -(-rows // _TILES[n][0]) * -(-columns // _TILES[n][1]) >= wanted]
    return enough[0] if enough else next(n for n in fitting if _TILES[n][0] <= 64 and _TILES[n][1] <= 64)
