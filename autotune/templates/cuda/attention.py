"""Attention on the CUDA cores. `flash_attention`: a block of threads has a block of queries and goes over the keys block by block; `attention`: a block of
threads has few queries and all their scores in shared memory. Of neither is a matrix of all scores stored.

In both the threads along x share out keys and columns, those along y rows of queries. What a thread keeps of its rows (the sums, the largest score) is in
registers; scores, which all threads of a row need, go through shared memory.
"""

from __future__ import annotations

from typing import Any

from ....schedule.schedule import Schedule, create_schedule
from ....te.axis import thread_axis
from ....te.library.operator import Operator
from ...canonical import constant_shape
from ...space import Config
from .general import general
from .threads import bind_blocks, copy_together, one_axis

_ALONG_X = (1, 2, 4, 8, 16)  # threads along keys and columns
_ALONG_Y = (2, 4, 8, 16)
_ROWS_OF_A_THREAD = (1, 2, 4)
_KEYS_OF_A_THREAD = 4  # neighbours, so that a value of a query that is read serves as many scores
_VECTOR = 4  # elements that a thread reads at once
_BANKS, _WORD = 32, 4  # of shared memory, and the bytes of a word
_ROUNDING = 128  # bytes: each of the buffers there begins at a multiple of 16


def flash_attention(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.flash_attention: O from the scan over_keys, whose steps combine p, z and u of a block of keys."""
    schedule = create_schedule(op.output.op)
    stage = {found.name: found for found in schedule.stages}
    query_rows, depth = constant_shape(op.output)[2:]
    block_keys: int = stage["T"].op.axis[-1].dom.extent
    out, scan = stage["O"], stage["over_keys"]
    sizes = _sizes(cfg, op.args[0], stage["T"].outputs[0], query_rows, block_keys)
    if sizes is None:
        return general(cfg, op.args)
    rows, along_y, holds_keys = sizes
    along_x = max(n for n in _ALONG_X if n <= depth)
    threads = {"threadIdx.y": along_y, "threadIdx.x": along_x}

    for name in ("o0", "l0", "m0", "S", "n", "x", "y"):
        stage[name].compute_inline()
    thread, lanes = _tile_of_output(out, rows, along_x, along_y)
    scan.compute_at(out, thread)
    time = scan.op.scan_axis
    _weighted_sum(schedule, stage["u"], stage["E"], scan, time, lanes)
    tile = schedule[schedule.cache_write(stage["T"].outputs[0], "local")]
    parts = {"scores": stage["T"], "weights": stage["E"], "largest": stage["p"], "total": stage["z"]}
    step = _scores(parts, tile, scan, time, rows, threads)
    queries = _operand(schedule, op.args[0], out, thread, threads)
    queries.storage_align(queries.op.axis[-2], *_apart(op.args[0]))
    keys = schedule[op.args[1]]
    if holds_keys:
        keys = _operand(schedule, op.args[1], scan, time, threads)
        _every_fourth(keys, block_keys)
    for operand in (queries, keys):
        _in_registers(schedule, operand, tile, step)
    if holds_keys:
        _operand(schedule, op.args[2], scan, time, threads)
    return schedule


def _sizes(cfg: Config, queries: Any, scores: Any, query_rows: int, block_keys: int) -> tuple[int, int, bool] | None:
    """Rows of a thread, threads along rows, and whether a block of keys and one of values are in shared memory too; None where nothing fits there."""
    depth = constant_shape(queries)[-1]
    keys_bytes = queries.dtype.bytes * -(-block_keys // _KEYS_OF_A_THREAD) * _KEYS_OF_A_THREAD * (_pitch(queries, depth) + depth)
    row_bytes = queries.dtype.bytes * _pitch(queries, depth) + scores.dtype.bytes * (2 * _pitch(scores, block_keys) + 2)
    room = cfg.target.gpu.shared_bytes_per_block - _ROUNDING
    holds_keys = room >= keys_bytes + row_bytes * min(_ROWS_OF_A_THREAD) * min(_ALONG_Y)  # else they are read where they lie
    most = (room - keys_bytes * holds_keys) // row_bytes
    fitting = [(r, y) for r in _ROWS_OF_A_THREAD for y in _ALONG_Y if r * y <= most]
    if not fitting:
        return None
    rows, along_y = max([(r, y) for r, y in fitting if r * y <= max(8, query_rows)] or fitting)
    rows = cfg.define_knob("rows_of_a_thread", _ROWS_OF_A_THREAD, default=rows).val
    along_y = cfg.define_knob("threads_along_rows", _ALONG_Y, default=along_y).val
    cfg.constrain(["rows_of_a_thread", "threads_along_rows"], lambda *chosen: chosen in fitting)
    return rows, along_y, holds_keys


def _tile_of_output(out: Any, rows: int, along_x: int, along_y: int) -> tuple[Any, int]:
    """Blocks of queries; each thread has some rows and columns of its block. Returns the innermost loop over threads, and the columns moved at once."""
    b, h, i, e = out.op.axis
    columns = -(-e.dom.extent // along_x)
    lanes = max(n for n in (1, 2, 4) if columns % n == 0 and n * out.outputs[0].dtype.bytes <= 16)
    block, inner = out.split(i, factor=rows * along_y)
    thread_y, row = out.split(inner, factor=rows)
    thread_x, column = out.split(e, factor=columns)
    out.reorder(b, h, block, thread_y, thread_x, row, column)
    if lanes > 1:
        out.vectorize(out.split(column, factor=lanes)[1])
    bind_blocks(out, one_axis(out, [b, h]), block)
    out.bind(thread_y, thread_axis("threadIdx.y"))
    out.bind(thread_x, thread_axis("threadIdx.x"))
    return thread_x, lanes


def _weighted_sum(schedule: Schedule, stage: Any, weights: Any, consumer: Any, at: Any, lanes: int) -> None:
    """The weighted sum of the values of a thread's rows and columns: each value that is read serves all rows, and weights are read of several keys at once."""
    stage.set_scope("local")
    stage.compute_at(consumer, at)
    *outer, row, column = stage.op.axis
    *blocks, keys = (axis for axis in stage.leaf_iter_vars if axis.kind == "reduce")
    keys, key = stage.split(keys, factor=_VECTOR)
    inner = [column]
    if lanes > 1:
        inner = list(stage.split(column, factor=lanes))
        stage.vectorize(inner[-1])
    stage.reorder(*outer, *blocks, keys, key, row, *inner)
    stage.unroll(key)
    _in_registers(schedule, weights, stage, keys)


def _in_registers(schedule: Schedule, shared: Any, reader: Any, at: Any) -> None:
    """What a thread reads of a stage in shared memory, several neighbours at once."""
    copy = schedule[schedule.cache_read(shared.outputs[0], "local", [reader])]
    copy.compute_at(reader, at)
    copy.vectorize(copy.op.axis[-1])


def _scores(stage: dict[str, Any], tile: Any, consumer: Any, at: Any, rows: int, threads: dict[str, int]) -> Any:
    """Scores in shared memory from tiles in registers, then largest score, weights and their sum of each row, by all threads of the row.

    stage   by the part it has: "scores", "weights", "largest", "total"
    tile    the scores of a thread. Returns its loop over steps along the depth of queries and keys
    """
    along_x = threads["threadIdx.x"]
    for each, neighbours in ((stage["scores"], _KEYS_OF_A_THREAD), (stage["weights"], 1)):
        each.compute_at(consumer, at)
        each.set_scope("shared")
        each.storage_align(each.op.axis[-2], *_apart(each.outputs[0]))
        *outer, i, j = each.op.axis
        thread_y, row = each.split(i, factor=rows)
        step, here = each.split(j, factor=along_x * neighbours)
        thread_x, key = each.split(here, factor=neighbours)
        each.reorder(*outer, thread_y, step, thread_x, row, key)
        each.bind(thread_y, thread_axis("threadIdx.y"))
        each.bind(thread_x, thread_axis("threadIdx.x"))
        if neighbours > 1:
            tile.compute_at(each, thread_x)
            each.vectorize(key)
    for each in (stage["largest"], stage["total"]):
        each.compute_at(consumer, at)
        each.set_scope("shared")
        thread_y, row = each.split(each.op.axis[-1], factor=rows)
        _, thread_x = each.split(each.op.reduce_axis[0], factor=along_x)
        each.bind(thread_y, thread_axis("threadIdx.y"))
        each.bind(thread_x, thread_axis("threadIdx.x"))
    *outer, row, key = tile.op.axis
    steps, element = tile.split(tile.op.reduce_axis[0], factor=_VECTOR)
    tile.reorder(*outer, steps, element, row, key)
    tile.unroll(element)
    return steps


def _apart(tensor: Any) -> tuple[int, int]:
    """storage_align of rows that are read several neighbours at once, by threads that are rows apart: eight of them read different banks."""
    return _BANKS * _WORD // tensor.dtype.bytes, _VECTOR


def _pitch(tensor: Any, elements: int) -> int:
    """The elements that a row of so many takes up where rows are so far apart."""
    multiple, beyond = _apart(tensor)
    return elements + (beyond - elements) % multiple


def _operand(schedule: Schedule, tensor: Any, consumer: Any, at: Any, threads: dict[str, int]) -> Any:
    """A part of an input in shared memory: that stage."""
    readers = [each for each in schedule.readers(tensor) if each.attach.kind != "inline"]
    copy = schedule[schedule.cache_read(tensor, "shared", readers)]
    copy.compute_at(consumer, at)
    lanes = min(_VECTOR, 16 // tensor.dtype.bytes)
    copy_together(copy, threads, lanes if constant_shape(tensor)[-1] % lanes == 0 else 1)
    return copy


def _every_fourth(keys: Any, block_keys: int) -> None:
    """Lays the keys of a block out so that threads with neighbouring groups of keys read neighbouring rows, which begin in different banks."""
    groups = -(-block_keys // _KEYS_OF_A_THREAD)
    keys.transform_layout(
        lambda b, h, j, d: [b, h, j // (_KEYS_OF_A_THREAD * groups), j % _KEYS_OF_A_THREAD, j // _KEYS_OF_A_THREAD % groups, d],
    )
    keys.storage_align(keys.op.axis[-2], *_apart(keys.outputs[0]))


def attention(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.attention: O[b, h, i, e] from T, S, m, E, z, U."""
    schedule = create_schedule(op.output.op)
    stage = {found.name: found for found in schedule.stages}
    keys, depth = constant_shape(op.args[1])[2:]
    along_x = max(n for n in _ALONG_X if n <= constant_shape(op.output)[-1])
    block_keys = min(along_x * _KEYS_OF_A_THREAD, keys)
    element, room = stage["T"].outputs[0].dtype.bytes, cfg.target.gpu.shared_bytes_per_block - _ROUNDING
    if element * (2 * _pitch(stage["T"].outputs[0], keys) + 2) > room:
        return general(cfg, op.args)
    rows_fit = _rows_that_fit(element, keys, depth, block_keys, room)
    default = max((n for n in _ALONG_Y if n <= min(rows_fit, 16)), default=1)
    along_y = cfg.define_knob("threads_along_rows", [n for n in (1, *_ALONG_Y) if n <= max(1, rows_fit)], default=default).val
    threads = {"threadIdx.y": along_y, "threadIdx.x": along_x}

    stage["S"].compute_inline()
    out, sums = stage["O"], stage["U"]
    thread, lanes = _tile_of_output(out, 1, along_x, along_y)
    tile = schedule[schedule.cache_write(stage["T"].outputs[0], "local")]
    parts = {"scores": stage["T"], "weights": stage["E"], "largest": stage["m"], "total": stage["z"]}
    step = _scores(parts, tile, out, thread, 1, threads)
    if rows_fit == 0:  # keys and values are read where they lie
        _weighted_sum(schedule, sums, stage["E"], out, thread, lanes)
        return schedule
    block, _ = sums.split(sums.op.reduce_axis[0], factor=block_keys)
    _weighted_sum(schedule, sums, stage["E"], out, thread, lanes)
    queries = _operand(schedule, op.args[0], out, thread, threads)
    queries.storage_align(queries.op.axis[-2], *_apart(op.args[0]))
    keys_of_block = _operand(schedule, op.args[1], stage["T"], stage["T"].leaf_iter_vars[3], threads)
    _every_fourth(keys_of_block, block_keys)
    for operand in (queries, keys_of_block):
        _in_registers(schedule, operand, tile, step)
    _operand(schedule, op.args[2], sums, block, threads)
    return schedule


def _rows_that_fit(element: int, keys: int, depth: int, block_keys: int, shared_bytes: int) -> int:
    """Of how many queries all scores and weights fit shared memory, beside a block of keys and one of values; 0 where those do not fit."""
    blocks = block_keys * (2 * depth + _BANKS)
    row = 2 * (keys + _BANKS) + depth + _BANKS + 2
    return max(0, (shared_bytes // element - blocks) // row)
