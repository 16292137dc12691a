"""Attention block by block over the keys (te.library.flash_attention): for a block of query rows, the scan over blocks of keys runs in the cache.

Per block of keys: its keys turned so that neighbouring keys are neighbours in memory, the scores in register tiles, maximum and sum of each row, the
weighted sum of the values in register tiles.
"""

from __future__ import annotations

from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.library.operator import Operator
from ..canonical import constant_shape
from ..space import Config
from .register_tile import default_rows, default_width, tile_widths
from .rows import reduce_in_lanes
from .threads import parallel_knob

_PARALLEL_WORK = 1 << 17  # multiply-adds
_ROWS = (1, 2, 3, 4, 6, 8)


def flash_attention(cfg: Config, op: Operator) -> Schedule:
    """A schedule of te.library.flash_attention: O from the scan over_keys, whose steps combine p, z and u of a block of keys."""
    schedule = create_schedule(op.output.op)
    stage = {found.name: found for found in schedule.stages}
    batches, heads, query_rows, depth = constant_shape(op.output)
    block_keys = stage["T"].op.axis[-1].dom.extent
    out, scan = stage["O"], stage["over_keys"]
    lanes, registers = cfg.target.lanes(stage["T"].outputs[0].dtype.bytes), cfg.target.vector_registers

    columns = cfg.define_split("columns", depth, candidates=tile_widths(depth, lanes), default=[default_width(depth, lanes)]).factors[0]
    key_columns = cfg.define_split("key_columns", block_keys, candidates=tile_widths(block_keys, lanes), default=[default_width(block_keys, lanes)]).factors[0]
    heights = [r for r in _ROWS if r <= query_rows]
    tile = cfg.define_split(
        "rows", query_rows, candidates=[[r] for r in heights], default=[default_rows(query_rows, heights, -(-columns // lanes), registers)]
    ).factors[0]
    cfg.constrain(["rows", "columns"], lambda r, c: r[-1] * -(-c[-1] // lanes) <= 2 * registers)
    cfg.constrain(["rows", "key_columns"], lambda r, c: r[-1] * -(-c[-1] // lanes) <= 2 * registers)
    tiles = cfg.define_knob("row_tiles_per_block", [1, 2, 4, 8, 16], default=max(n for n in (1, 4, 8) if n == 1 or n * tile < 2 * query_rows)).val
    vectors = cfg.define_knob("vectors", [1, 2, 4], default=2).val

    b, h, i, e = out.op.axis
    block, _ = out.split(i, factor=tile * tiles)
    around = out.fuse(b, h, block)
    if depth >= lanes:
        out.vectorize(out.split(e, factor=lanes)[1])
    if parallel_knob(cfg, batches * heads * query_rows * constant_shape(op.args[1])[2] * depth, _PARALLEL_WORK):
        out.parallel(around)
    for name in ("o0", "l0", "m0", "S", "n", "x", "y"):
        stage[name].compute_inline()
    scan.compute_at(out, around)
    time = scan.op.scan_axis
    for name in ("T", "p", "E", "z"):
        stage[name].compute_at(scan, time)
    for name in ("p", "z"):
        for partial in reduce_in_lanes(schedule, stage[name], lanes, vectors):
            partial.compute_at(scan, time)
    if block_keys >= lanes:
        stage["E"].vectorize(stage["E"].split(stage["E"].op.axis[-1], factor=lanes)[1])
    _tile(schedule[schedule.cache_write(stage["u"].outputs[0], "local")], stage["u"], tile, columns, scan, time)
    scores = schedule[schedule.cache_write(stage["T"].outputs[0], "local")]
    _tile(scores, stage["T"], tile, key_columns, scan, time)
    keys = schedule[schedule.cache_read(op.args[1], "global", [scores])]
    keys.compute_at(scan, time)
    keys.transform_layout(lambda b, h, j, e: [b, h, e, j])
    if depth >= lanes:
        stage["o_next"].vectorize(stage["o_next"].split(stage["o_next"].op.axis[-1], factor=lanes)[1])
    return schedule


def _tile(local: Any, stored: Any, rows: int, columns: int, scan: Any, time: Any) -> None:
    """A product of matrices in a step, in register tiles: `stored` is what is kept of it, `local` the tile."""
    stored.compute_at(scan, time)
    *outer, i, j = stored.op.axis
    row_tile, row = stored.split(i, factor=rows)
    panel, column = stored.split(j, factor=columns)
    stored.reorder(*outer, panel, row_tile, row, column)
    stored.vectorize(column)
    local.compute_at(stored, row_tile)
    *_, local_row, local_column = local.op.axis
    local.reorder(*local.op.reduce_axis, local_row, local_column)
    local.unroll(local_row)
    local.vectorize(local_column)
