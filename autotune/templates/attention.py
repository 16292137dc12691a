"""Attention, fused over blocks of query rows: the scores of a block are made, turned into weights and used while they are in the cache.

Per block: scores in register tiles against packed keys, the maximum and sum of each row in vector lanes, weights, and the weighted sum of
the values in register tiles again. The matrices of all scores and weights are never stored whole (compare T. Dao et al.,
"FlashAttention", arXiv:2205.14135, which also goes block by block over the keys).
"""

from __future__ import annotations

from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator
from ..canonical import constant_shape
from ..space import Config
from .register_tile import ROWS, default_rows, default_width, pack_rows, tile_widths
from .rows import reduce_in_lanes
from .threads import parallel_knob

_PARALLEL_WORK = 1 << 17  # multiply-adds


def attention(cfg: Config, op: Operator) -> Schedule:
    """A schedule of te.library.attention: O[b, h, i, e] from T, S, m, E, z, U."""
    schedule = create_schedule(op.output.op)
    stage = {found.name: found for found in schedule.stages}
    keys = op.args[1]
    heads, query_rows, depth = constant_shape(op.output)[1:]
    key_rows = constant_shape(keys)[2]
    lanes, registers = cfg.target.lanes(op.output.dtype.bytes), cfg.target.vector_registers

    columns = cfg.define_split("columns", depth, candidates=tile_widths(depth, lanes), default=[default_width(depth, lanes)]).factors[0]
    key_columns = cfg.define_split("key_columns", key_rows, candidates=tile_widths(key_rows, lanes), default=[default_width(key_rows, lanes)]).factors[0]
    heights = [r for r in ROWS if r <= query_rows]
    tile = cfg.define_split(
        "rows", query_rows, candidates=[[r] for r in heights], default=[default_rows(query_rows, heights, -(-columns // lanes), registers)]
    ).factors[0]
    cfg.constrain(["rows", "columns"], lambda r, c: r[-1] * -(-c[-1] // lanes) <= 2 * registers)
    cfg.constrain(["rows", "key_columns"], lambda r, c: r[-1] * -(-c[-1] // lanes) <= 2 * registers)
    fitting = max(n for n in (1, 2, 4) if n == 1 or n * tile < 2 * query_rows)
    tiles = cfg.define_knob("row_tiles_per_block", [1, 2, 4, 8, 16], default=fitting).val
    cfg.constrain(["rows", "row_tiles_per_block"], lambda r, n: n == 1 or r[-1] * n < 2 * query_rows)
    pack = cfg.define_knob("pack", [True, False]).val
    vectors = cfg.define_knob("vectors", [1, 2, 4], default=2).val

    cfg.suggest(row_tiles_per_block=8)
    cfg.suggest(row_tiles_per_block=2)
    cfg.suggest(pack=False)

    out = stage["O"]
    b, h, i, e = out.op.axis
    block, inner = out.split(i, factor=tile * tiles)
    row_tile, row = out.split(inner, factor=tile)
    panel, column = out.split(e, factor=columns)
    out.reorder(b, h, block, row_tile, panel, row, column)
    out.vectorize(column)
    around = out.fuse(b, h, block)
    work = heads * query_rows * key_rows * depth * constant_shape(op.output)[0]
    parallel = parallel_knob(cfg, work, _PARALLEL_WORK)
    if parallel:
        out.parallel(around)

    _values(stage["U"], out, panel)
    for name in ("E", "m", "z"):
        stage[name].compute_at(out, around)
    stage["S"].compute_inline()
    for name in ("z", "m"):
        for partial in reduce_in_lanes(schedule, stage[name], lanes, vectors):
            partial.compute_at(out, around)
    if key_rows >= lanes:
        _, lane = stage["E"].split(stage["E"].op.axis[-1], factor=lanes)
        stage["E"].vectorize(lane)
    _scores(schedule, stage["T"], out, around, tile, key_columns, keys if pack else None, parallel)
    return schedule


def _values(weighted: Any, out: Any, panel: Any) -> None:
    """The weighted sum of the values: a register tile inside the tile of the output."""
    weighted.set_scope("local")
    weighted.compute_at(out, panel)
    *_, row, column = weighted.op.axis
    (key,) = weighted.op.reduce_axis
    weighted.reorder(key, row, column)
    weighted.unroll(row)
    weighted.vectorize(column)


def _scores(schedule: Schedule, scores: Any, out: Any, around: Any, rows: int, columns: int, keys: Any, in_parallel: bool) -> None:
    """Products of the block's queries with all keys, in register tiles; the keys packed into panels once, before everything else."""
    local = schedule[schedule.cache_write(scores.outputs[0], "local")]
    scores.compute_at(out, around)
    b, h, i, j = scores.op.axis
    row_tile, row = scores.split(i, factor=rows)
    panel, column = scores.split(j, factor=columns)
    scores.reorder(b, h, panel, row_tile, row, column)
    scores.vectorize(column)
    local.compute_at(scores, row_tile)
    *_, local_row, local_column = local.op.axis
    local.reorder(*local.op.reduce_axis, local_row, local_column)
    local.unroll(local_row)
    local.vectorize(local_column)
    if keys is None:
        return
    pack_rows(schedule[schedule.cache_read(keys, "global", [local])], columns, in_parallel)
