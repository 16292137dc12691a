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
from .threads import bind_blocks, copy_together, one_axis

_ALONG_X = (1, 2, 4, 8, 16)  # threads along keys and columns
_ALONG_Y = (2, 4, 8, 16)
_ROWS_OF_A_THREAD = (1, 2, 4)
_KEYS_OF_A_THREAD = 4  # neighbours, so that a value of a query that is read serves as many scores
_BANKS = 32


def flash_attention(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.flash_attention: O from the scan over_keys, whose steps combine p, z and u of a block of keys."""
    schedule = create_schedule(op.output.op)
    stage = {found.name: found for found in schedule.stages}
    query_rows, depth = constant_shape(op.output)[2:]
    block_keys: int = stage["T"].op.axis[-1].dom.extent
    out, scan = stage["O"], stage["over_keys"]
    element = stage["T"].outputs[0].dtype.bytes

    def shared_bytes(rows: int) -> int:  # queries, keys, values, scores, weights
        return element * (rows * (depth + 1) + block_keys * (2 * depth + 1) + 2 * rows * (block_keys + 1))

    fitting = [(r, y) for r in _ROWS_OF_A_THREAD for y in _ALONG_Y if shared_bytes(r * y) <= cfg.target.gpu.shared_bytes_per_block]
    wanted = [(r, y) for r, y in fitting if r * y <= max(8, query_rows)] or fitting
    rows = cfg.define_knob("rows_of_a_thread", _ROWS_OF_A_THREAD, default=max(wanted)[0] if wanted else 1).val
    along_y = cfg.define_knob("threads_along_rows", _ALONG_Y, default=max(wanted)[1] if wanted else 2).val
    if fitting:
        cfg.constrain(["rows_of_a_thread", "threads_along_rows"], lambda *chosen: chosen in fitting)
    along_x = max(n for n in _ALONG_X if n <= depth)
    threads = {"threadIdx.y": along_y, "threadIdx.x": along_x}

    for name in ("o0", "l0", "m0", "S", "n", "x", "y"):
        stage[name].compute_inline()
    thread, lanes = _tile_of_output(out, rows, along_x, along_y)
    scan.compute_at(out, thread)
    time = scan.op.scan_axis
    _weighted_sum(stage["u"], scan, time, lanes)
    _scores(schedule, stage["T"], stage["E"], stage["p"], stage["z"], scan, time, rows, threads)
    _operand(schedule, op.args[0], out, thread, threads, padded=True)
    _operand(schedule, op.args[1], scan, time, threads, padded=True)
    _operand(schedule, op.args[2], scan, time, threads, padded=False)
    return schedule


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


def _weighted_sum(stage: Any, consumer: Any, at: Any, lanes: int) -> None:
    """The weighted sum of the values of a thread's rows and columns: each value that is read serves all rows."""
    stage.set_scope("local")
    stage.compute_at(consumer, at)
    *outer, row, column = stage.op.axis
    inner = [column]
    if lanes > 1:
        inner = list(stage.split(column, factor=lanes))
        stage.vectorize(inner[-1])
    stage.reorder(*outer, *stage.op.reduce_axis, row, *inner)


def _scores(schedule: Schedule, scores: Any, weights: Any, largest: Any, total: Any, consumer: Any, at: Any, rows: int, threads: dict[str, int]) -> None:
    """Scores in shared memory from tiles in registers, then largest score, weights and their sum of each row, by all threads of the row."""
    tile = schedule[schedule.cache_write(scores.outputs[0], "local")]
    along_x = threads["threadIdx.x"]
    for each, neighbours in ((scores, _KEYS_OF_A_THREAD), (weights, 1)):
        each.compute_at(consumer, at)
        each.set_scope("shared")
        each.storage_align(each.op.axis[-2], _BANKS, 1)
        *outer, i, j = each.op.axis
        thread_y, row = each.split(i, factor=rows)
        step, here = each.split(j, factor=along_x * neighbours)
        thread_x, key = each.split(here, factor=neighbours)
        each.reorder(*outer, thread_y, step, thread_x, row, key)
        each.bind(thread_y, thread_axis("threadIdx.y"))
        each.bind(thread_x, thread_axis("threadIdx.x"))
        if each is scores:
            tile.compute_at(each, thread_x)
    for each in (largest, total):
        each.compute_at(consumer, at)
        each.set_scope("shared")
        thread_y, row = each.split(each.op.axis[-1], factor=rows)
        _, thread_x = each.split(each.op.reduce_axis[0], factor=threads["threadIdx.x"])
        each.bind(thread_y, thread_axis("threadIdx.y"))
        each.bind(thread_x, thread_axis("threadIdx.x"))
    *outer, row, key = tile.op.axis
    tile.reorder(*outer, *tile.op.reduce_axis, row, key)


def _operand(schedule: Schedule, tensor: Any, consumer: Any, at: Any, threads: dict[str, int], padded: bool) -> None:
    """A part of an input in shared memory."""
    readers = [each for each in schedule.readers(tensor) if each.attach.kind != "inline"]
    copy = schedule[schedule.cache_read(tensor, "shared", readers)]
    copy.compute_at(consumer, at)
    if padded:
        copy.storage_align(copy.op.axis[-2], _BANKS, 1)
    whole = 16 // tensor.dtype.bytes
    copy_together(copy, threads, whole if not padded and constant_shape(tensor)[-1] % whole == 0 else 1)


def attention(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of te.library.attention: O[b, h, i, e] from T, S, m, E, z, U."""
    schedule = create_schedule(op.output.op)
    stage = {found.name: found for found in schedule.stages}
    keys = constant_shape(op.args[1])[2]
    element = stage["T"].outputs[0].dtype.bytes
    most = cfg.target.gpu.shared_bytes_per_block // (2 * element * (keys + 1) + 8 * element)
    default = max((n for n in _ALONG_Y if n <= min(most, 16)), default=1)
    along_y = cfg.define_knob("threads_along_rows", [n for n in (1, *_ALONG_Y) if n <= max(1, most)], default=default).val

    stage["S"].compute_inline()
    out = stage["O"]
    along_x = max(n for n in _ALONG_X if n <= constant_shape(op.output)[-1])
    thread, lanes = _tile_of_output(out, 1, along_x, along_y)
    _weighted_sum(stage["U"], out, thread, lanes)
    _scores(schedule, stage["T"], stage["E"], stage["m"], stage["z"], out, thread, 1, {"threadIdx.y": along_y, "threadIdx.x": along_x})
    return schedule
