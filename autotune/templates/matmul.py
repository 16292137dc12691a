"""Products of matrices: matmul, dense, batch_matmul; and quantised ones.

The classic blocked product: row blocks in parallel, panels of the right operand packed so that they stream through the cache, a tile of
the result in registers. Sizes of the tile follow from the registers (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008): rows x vectors of accumulators, plus one row of the right operand and one broadcast, must fit.

Where the right operand is computed (weights without their zero points, dequantised weights), what is stored of it takes the place of the
packed copy: all of it, or the panel in work; or nothing, which suits few rows.
"""

from __future__ import annotations

import math
from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator
from ...te.tensor import Tensor
from ..canonical import constant_shape
from ..space import Config
from .general import general
from .register_tile import ROWS, default_rows, default_width, local_sums, pack_rows, sums_and_weights, tile_widths
from .threads import parallel_knob

_PARALLEL_WORK = 1 << 19  # multiply-adds
_BLOCKS = (1, 2, 4, 8, 16, 32)
_LONG_ROWS = {4: 3, 3: 4, 2: 4, 1: 12}  # rows of the result -> vectors of a tile, about as many as fit the registers


def matmul(cfg: Config, op: Operator) -> Schedule:
    """[batch,] rows, columns = sum over the reduction of left[.., row, k] * right[.., k, column] (dense: right[column, k])."""
    left, right, out = op.args[0], op.args[1], op.output
    rows, columns = constant_shape(out)[-2:]
    if op.name == "dense" and rows == 1:
        return general(cfg, op.args)  # dot products along memory
    schedule = create_schedule(out.op)
    depth = constant_shape(left)[-1]
    sums, weights = sums_and_weights(op)
    lanes = cfg.target.lanes(sums.dtype.bytes)
    registers = cfg.target.vector_registers

    local = local_sums(schedule, sums, out if sums is out else None)
    widths, width = tile_widths(columns, lanes), default_width(columns, lanes)
    if rows in _LONG_ROWS and weights is None and op.name != "dense":  # the right operand is read once, in place: the longer the pieces of its rows, the better
        widths += [[lanes * count] for count in _LONG_ROWS.values() if lanes * count <= columns and [lanes * count] not in widths]
        width = max(width, min(lanes * _LONG_ROWS[rows], widths[-1][0]))
    tile_columns = cfg.define_split("columns", columns, candidates=widths, default=[width]).factors[0]
    heights = [r for r in ROWS if r <= rows]
    tile_rows = cfg.define_split(
        "rows", rows, candidates=[[r] for r in heights], default=[default_rows(rows, heights, -(-tile_columns // lanes), registers)]
    ).factors[0]
    cfg.constrain(["rows", "columns"], lambda r, c: r[-1] * -(-c[-1] // lanes) <= 2 * registers)
    block = cfg.define_knob("row_tiles_per_block", _BLOCKS, default=_default_block(-(-rows // tile_rows), cfg.target.threads)).val
    cfg.constrain(["rows", "row_tiles_per_block"], lambda r, n: n == 1 or r[-1] * n < 2 * rows)
    packed = cfg.define_knob("pack", [True, False], default=rows >= 4 * tile_rows and depth * columns >= 64 * 64).val
    pairs = op.name == "int4_matmul" and not packed  # both weights of a byte together
    unroll = cfg.define_split("unroll", depth, max_factor=8, default=[2 if pairs else 1]).factors[0]
    # The larger operand passes once; and where there are few rows, panels are what threads can share.
    wide = columns > rows and columns >= 4 * cfg.target.threads * tile_columns
    panels_outside = cfg.define_knob("panels_outside", [False, True], default=weights is not None or wide).val

    cfg.suggest(panels_outside=not panels_outside)
    cfg.suggest(pack=not packed)
    cfg.suggest(row_tiles_per_block=4)

    stage = schedule[out]
    *batch_axes, i, j = stage.op.axis
    row_block, row_inner = stage.split(i, factor=tile_rows * block)
    row_tile, row = stage.split(row_inner, factor=tile_rows)
    panel, column = stage.split(j, factor=tile_columns)
    around = [panel, row_block] if panels_outside else [row_block, panel]
    stage.reorder(*batch_axes, *around, row_tile, row, column)
    stage.vectorize(column)
    parallel = parallel_knob(cfg, _work(out, depth), _PARALLEL_WORK)
    outermost = stage.fuse(*batch_axes, around[0]) if batch_axes else around[0]
    if parallel:
        stage.parallel(outermost)

    local.compute_at(stage, row_tile)
    *_, local_row, local_column = local.op.axis
    (k,) = local.op.reduce_axis
    k_loops = [k]
    if unroll > 1:
        k_loops = list(local.split(k, factor=unroll))
        local.unroll(k_loops[-1])
    local.reorder(*k_loops, local_row, local_column)
    local.vectorize(local_column)
    local.unroll(local_row)
    if weights is not None:
        _place_weights(schedule, weights, tile_columns, packed, parallel, (stage, panel if panels_outside else None))
    elif packed:
        _pack(schedule, right, local, tile_columns, dense=op.name == "dense", in_parallel=parallel)
    for found in schedule.stages:
        if getattr(found.op, "tag", "") == "activations":
            _place_activations(cfg, found, lanes, parallel, worthwhile=columns >= 4 * tile_columns)
    return schedule


def _place_weights(schedule: Schedule, weights: Tensor, width: int, stored: bool, in_parallel: bool, panel: tuple[Any, Any]) -> None:
    """A computed right operand: panel by panel where the panels are the outer loop, else all panels at once; or computed again at each use."""
    stage = schedule[weights]
    consumer, loop = panel
    if not stored:
        stage.compute_inline()
    elif loop is not None:
        stage.compute_at(consumer, loop)
        stage.vectorize(stage.op.axis[-1])
    else:
        _by_panels(stage, width, in_parallel)


def _place_activations(cfg: Config, stage: Any, lanes: int, in_parallel: bool, worthwhile: bool) -> None:
    """Computed rows: stored, so that a broadcast is a load, or computed again at each use."""
    if not cfg.define_knob("store_rows", [True, False], default=worthwhile).val:
        stage.compute_inline()
        return
    i, k = stage.op.axis
    _, lane = stage.split(k, factor=lanes)
    stage.vectorize(lane)
    if in_parallel:
        stage.parallel(i)


def _pack(schedule: Schedule, right: Tensor, reader: Any, width: int, *, dense: bool, in_parallel: bool) -> None:
    """A copy of the right operand whose panels of `width` columns lie one after another, rows of a panel contiguous."""
    stage = schedule[schedule.cache_read(right, "global", [reader])]
    if dense:
        pack_rows(stage, width, in_parallel)
    else:
        _by_panels(stage, width, in_parallel)


def _by_panels(stage: Any, width: int, in_parallel: bool) -> None:
    """[.., k, j] stored as [.., j // width, k, j % width]."""
    *batch, k, j = stage.op.axis
    if batch:
        stage.transform_layout(lambda b, k, j: [b, j // width, k, j % width])
    else:
        stage.transform_layout(lambda k, j: [j // width, k, j % width])
    panel, column = stage.split(j, factor=width)
    stage.reorder(*batch, panel, k, column)
    stage.vectorize(column)
    if in_parallel:
        stage.parallel(stage.fuse(*batch, panel) if batch else panel)


def _work(out: Tensor, depth: int) -> int:
    """Multiply-adds."""
    return math.prod(constant_shape(out)) * depth


def _default_block(row_tiles: int, threads: int) -> int:
    """Row tiles in a block: the most that share the blocks out evenly over the threads."""

    def idle(block: int) -> float:
        blocks = -(-row_tiles // block)
        return -(-blocks // threads) * threads / blocks - 1 + 0.02 / block

    return min((block for block in _BLOCKS if block <= row_tiles), key=idle)
