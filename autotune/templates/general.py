"""The template of any computation: each stage by its kind.

plain stages that are only read     inlined, where that repeats little work
reductions with a reused operand    a register tile of two axes around the reduce loops, parallel over the tiles (matmul, convolution)
reductions along contiguous memory  partial results in vector lanes (sums of rows)
plain results                       parallel over rows, vectorised along the last axis
a reduction read by one plain stage at the same point is computed inside its tiles
stages of a step of a scan          by their kind too, along all axes but time, which stands still in a step
calls of C functions                are where they are, at root; what they read is stored

Below, the axes of a stage are those but time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...schedule.schedule import Schedule, create_schedule
from ...te.axis import IterVar
from ...te.op import ComputeOp
from ...te.tensor import Tensor
from ...tir.expr import Call, Load
from ...tir.visit import walk
from ..canonical import output_operations
from ..space import Config
from .rows import reduce_in_lanes

_UNROLLED_TILE_ROWS = (1, 2, 3, 4, 6, 8)
_VECTORS = (1, 2, 4)
_PARALLEL_WORK = 1 << 15  # points; below about 10 microseconds of work, waking the threads costs more than they save


def general(cfg: Config, tensors: Sequence[Tensor]) -> Schedule:
    """A schedule of any computation whose arguments are `tensors`."""
    schedule = create_schedule(output_operations(tensors))
    stages = [stage for stage in schedule.stages if not stage.is_placeholder and isinstance(stage.op, ComputeOp)]
    for stage in stages:
        if _may_inline(stage) and cfg.define_knob(f"{stage.name}.inline", [True, False], default=_is_cheap(stage.op)).val:
            stage.compute_inline()
    fused: set[str] = set()
    for stage in reversed([stage for stage in stages if stage.attach.kind != "inline"]):
        if stage.name in fused:
            continue
        producer = _reduction_read_here(schedule, stage) if stage.op.reducer is None else None
        if producer is not None:
            fused.add(producer.name)
        tile_stage(cfg, schedule, stage, producer)
    return schedule


def _may_inline(stage: Any) -> bool:
    if any(reader.is_extern for tensor in stage.outputs for reader in stage.schedule.readers(tensor)):
        return False  # a C function reads memory
    return not stage.is_output and not stage.is_update and stage.op.reducer is None and len(stage.outputs) == 1


def _is_cheap(op: ComputeOp) -> bool:
    """No function call: computing it again costs no more than loading it."""
    return not any(isinstance(node, Call) and node.dtype.is_float for value in op.body for node in walk(value))


def _reduction_read_here(schedule: Schedule, stage: Any) -> Any:
    """The reduction that only this plain stage reads, and reads at its own point; None where there is none."""
    for tensor in _tensors_read(schedule, stage):
        producer = schedule.stage_of(tensor, "general")
        if producer.is_placeholder or producer.is_output or producer.op.reducer is None or len(producer.outputs) > 1:
            continue
        if producer.scan_stage is not stage.scan_stage:
            continue  # before the scan it is computed for all steps at once
        readers = [reader for reader in schedule.stages if tensor in _tensors_read(schedule, reader) and reader.attach.kind != "inline"]
        loads = [node for value in stage.op.body for node in walk(value) if isinstance(node, Load) and node.buffer is tensor.buffer]
        own = tuple(axis.var for axis in stage.op.axis)
        if len(readers) == 1 and loads and all(_same(load.indices, own) for load in loads):
            return producer
    return None


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two lists of indices are the same expressions (`==` would build comparisons)."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _tensors_read(schedule: Schedule, stage: Any) -> list[Tensor]:
    """What a stage reads, through the stages that are inlined into it."""
    found: list[Tensor] = []
    for tensor in stage.op.input_tensors:
        producer = schedule.stage_of(tensor, "general")
        found += _tensors_read(schedule, producer) if producer.attach.kind == "inline" else [tensor]
    return found


def tile_stage(cfg: Config, schedule: Schedule, stage: Any, producer: Any = None) -> None:
    """Shapes the loops of one stage; `producer` is a reduction to compute inside its tiles."""
    op: ComputeOp = (producer or stage).op
    if op.reducer is not None and len(stage.outputs) == 1 and all(_is_constant(axis) for axis in (*op.axis, *op.reduce_axis)):
        if _axes(stage, op) and _vector_axis_is_useful(op):
            _register_tile(cfg, schedule, stage, producer)
            return
        if producer is None and op.reducer.associative:
            _row_reduction(cfg, schedule, stage)
            return
    _plain(cfg, stage)


def _axes(stage: Any, op: ComputeOp | None = None) -> list[IterVar]:
    """The data-parallel axes of a stage; or of `op`, which has as many."""
    axes = list((op or stage.op).axis)
    return axes if stage.time_axis is None else axes[1:]


def _vector_axis_is_useful(op: ComputeOp) -> bool:
    """Whether neighbours along the last axis read neighbouring elements of some operand."""
    last = op.axis[-1].var
    return any(load.indices and last in load.indices[-1].variables for value in op.body for load in walk(value) if isinstance(load, Load))


def _register_tile(cfg: Config, schedule: Schedule, stage: Any, producer: Any) -> None:
    """outer tiles (parallel) -> reduce loops -> rows (unrolled) -> columns (vectorised), accumulated in a local tile."""
    name, target = stage.name, cfg.target
    lanes = target.lanes(max(tensor.dtype.bytes for tensor in stage.outputs))
    accumulator: Tensor = producer.outputs[0] if producer is not None else schedule.cache_write(stage.outputs[0], "local")
    op: ComputeOp = schedule[accumulator].op
    axes = _axes(stage)
    columns = axes[-1]
    rows_at = _reused_axis(op, _axes(stage, op))
    width = _extent(columns)
    tile = cfg.define_split(f"{name}.columns", width, candidates=_widths(width, lanes), default=[_default_width(width, lanes)])
    outer_columns, inner_columns = tile.apply(schedule, stage, columns)
    outer, inner = axes[:-1], []
    if rows_at is not None:
        rows = axes[rows_at]
        height = _extent(rows)
        choices = [[rows_of] for rows_of in _UNROLLED_TILE_ROWS if rows_of <= height]
        split = cfg.define_split(f"{name}.rows", height, candidates=choices, default=[max(c[0] for c in choices if c[0] <= 6)])
        outer_rows, inner_rows = split.apply(schedule, stage, rows)
        outer[rows_at] = outer_rows
        inner = [inner_rows]
    stage.reorder(*outer, outer_columns, *inner, inner_columns)
    stage.vectorize(inner_columns)
    if producer is not None:
        producer.set_scope("local")
    schedule[accumulator].compute_at(stage, outer_columns)
    _accumulate(cfg, schedule[accumulator], name, rows_at)
    _parallel_outer(cfg, stage, [*outer, outer_columns], name, keep=1)


def _accumulate(cfg: Config, stage: Any, name: str, rows_at: int | None) -> None:
    op: ComputeOp = stage.op
    reduce_axes = list(op.reduce_axis)
    first = reduce_axes[0]
    chunk = cfg.define_split(f"{name}.reduce", _extent(first), policy="power2", filter=lambda choice: choice.factors[0] <= 16)
    outer_reduce, inner_reduce = chunk.apply(stage.schedule, stage, first)
    axes = _axes(stage)
    rest = [axis for position, axis in enumerate(axes[:-1]) if position != rows_at]
    rows = [axes[rows_at]] if rows_at is not None else []
    stage.reorder(*rest, outer_reduce, *reduce_axes[1:], inner_reduce, *rows, axes[-1])
    stage.vectorize(axes[-1])
    for axis in rows:
        stage.unroll(axis)
    if cfg.define_knob(f"{name}.unroll_reduce", [False, True]).val:
        stage.unroll(inner_reduce)


def _reused_axis(op: ComputeOp, axes: Sequence[IterVar]) -> int | None:
    """Which of `axes` is the longest but the last on which some operand does not depend: a tile along it reuses that operand from registers."""
    loads = [load for value in op.body for load in walk(value) if isinstance(load, Load)]
    candidates = [position for position, axis in enumerate(axes[:-1]) if _extent(axis) > 1 and any(axis.var not in load.variables for load in loads)]
    return max(candidates, key=lambda position: (_extent(axes[position]), position), default=None)


def _is_constant(axis: IterVar) -> bool:
    return axis.dom is not None and axis.dom.constant is not None


def _extent(axis: IterVar) -> int:
    assert axis.dom is not None and isinstance(axis.dom.extent, int)
    return axis.dom.extent


def _widths(extent: int, lanes: int) -> list[list[int]]:
    """Columns of a register tile: whole vectors, or what a narrow result has."""
    return [[width] for width in dict.fromkeys([*(lanes * count for count in _VECTORS if lanes * count < 2 * extent), min(extent, lanes)])]


def _default_width(extent: int, lanes: int) -> int:
    """Two vectors where they waste little of the last tile, else one, else what there is."""
    if extent < lanes:
        return extent
    wide = 2 * lanes
    return wide if extent % wide == 0 or extent >= 4 * wide else lanes


def _row_reduction(cfg: Config, schedule: Schedule, stage: Any) -> None:
    """Vector lanes each reduce a share of the last reduce axis; the partial results of a row are combined at its end."""
    name, op = stage.name, stage.op
    lanes = cfg.target.lanes(max(value.dtype.bytes for value in op.body))
    vectors = cfg.define_knob(f"{name}.vectors", [4, 1, 2, 8]).val
    for partial in reduce_in_lanes(schedule, stage, lanes, vectors):
        if stage.op.axis:
            partial.set_scope("local")
            partial.compute_at(stage, stage.op.axis[-1])
    _parallel_outer(cfg, stage, _axes(stage), name, keep=0)


def _plain(cfg: Config, stage: Any) -> None:
    """Parallel over the outer axes; vectorised along the last one, or along the last of a result's axes around its reduce loops."""
    name, op, outer = stage.name, stage.op, _axes(stage)
    if not outer or not all(_is_constant(axis) for axis in op.axis):
        return
    lanes = cfg.target.lanes(max(tensor.dtype.bytes for tensor in stage.outputs))
    width = _extent(outer[-1])
    if width >= lanes and op.reducer is None:
        split = cfg.define_split(f"{name}.vector", width, candidates=[[lanes * count] for count in _VECTORS if lanes * count <= width])
        outer_columns, inner_columns = split.apply(stage.schedule, stage, outer[-1])
        stage.vectorize(inner_columns)
        outer[-1] = outer_columns
    _parallel_outer(cfg, stage, outer, name, keep=1 if len(outer) > 1 else 0)


def _parallel_outer(cfg: Config, stage: Any, outer: list[IterVar], name: str, keep: int) -> None:
    """Fuses the outermost loops into one parallel loop; by default as few as give each thread several iterations, and at least `keep` are left."""
    if cfg.target.threads == 1 or not outer:
        return
    most = max(1, len(outer) - keep)
    extents = [int(stage.nominal_extent(axis)) for axis in outer]
    enough = next((count for count in range(1, most + 1) if math.prod(extents[:count]) >= 4 * cfg.target.threads), most)
    work = math.prod(extents) * math.prod(_extent(axis) for axis in getattr(stage.op, "reduce_axis", ()) if _is_constant(axis))
    count = cfg.define_knob(
        f"{name}.parallel", [enough, *(n for n in range(0, len(outer) + 1) if n != enough)], default=enough if work >= _PARALLEL_WORK else 0
    ).val
    if count > 0:
        stage.parallel(outer[0] if count == 1 else stage.fuse(*outer[:count]))
