"""Bound inference: what each stage must compute, as seen from its readers.

Stages are visited consumers first. At root a stage computes its whole tensor. Attached inside a loop of a consumer it computes the region that its
readers touch in one iteration of that loop: the loops at and outside the attach point stand still, the others range over their extents. Of those that
stand still, indices of a GPU over which the memory of the stage is shared range too: one buffer of scope "shared" serves all threads of a block. The
region may reach past the tensor (in the last tile); the stage then guards its iterations. An update of a scan computes its whole tensor at one point
of time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..te.axis import IterVar, same_extent
from ..tir.errors import ScheduleError
from ..tir.expr import HAS_DIVISION, Const, Expr, Load, Var, add, as_expr, const, eq, le, logical_or, lt, maximum, minimum, sub
from ..tir.interval import Intervals, constant_upper_bound, interval
from ..tir.simplify import Analyzer
from ..tir.visit import Rewriter, Substitute, loads_of, substitute
from .predicate import axis_of
from .relation import Extent
from .stage import position_of


@dataclass
class Guard:
    """A condition on the loops of a stage; `on_reduction` ones concern the reduce axes only, and not the initial values."""

    condition: Expr
    on_reduction: bool
    variables: set[Var]


@dataclass
class Rolling:
    """The region moves `step` elements along `dimension` in each iteration of the loop `variable`."""

    dimension: int
    step: int
    variable: Var


@dataclass
class StageLoops:
    """What is known of one stage when its loops are made.

    `body`, `condition`, `init`: its expressions, inlined stages put in. `origin`, `shape`: the region of the tensor it computes. `extents` of all its
    axes; `variables`, the loop variable of each leaf; `position` of each axis (from 0) and `value` of each axis variable, in terms of loop variables;
    `guards`; `enclosing`: the loops of other stages around it, outermost first, as (variable, extent); `threads`: of all loops around and of it that are bound,
    the index; `scope`: where its result lives; `rolling`: of a rolling buffer, how it moves; `states`: of a scan, the part of each output that it computes, by
    origin and shape, with all of time.
    """

    stage: Any
    body: tuple[Expr, ...]
    condition: Expr | None
    init: tuple[Expr, ...] | None
    origin: list[Expr] = field(default_factory=list)
    shape: list[Extent] = field(default_factory=list)
    extents: dict[IterVar, Extent] = field(default_factory=dict)
    variables: dict[IterVar, Var] = field(default_factory=dict)
    position: dict[IterVar, Expr] = field(default_factory=dict)
    value: dict[Var, Expr] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    enclosing: list[tuple[Var, Extent]] = field(default_factory=list)
    threads: dict[Var, str] = field(default_factory=dict)
    scope: str = "global"
    rolling: Rolling | None = None
    states: list[tuple[list[Expr], list[Extent]]] = field(default_factory=list)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Body, condition and initial values."""
        return (*self.body, *(() if self.condition is None else (self.condition,)), *(self.init or ()))

    def own_loops(self) -> list[tuple[Var, Extent]]:
        """The loops of the stage itself, outermost first."""
        return [(self.variables[leaf], self.extents[leaf]) for leaf in self.stage.leaf_iter_vars]

    def fixed(self) -> set[Var]:
        """The variables of the loops around that stand still while it computes: all but the indices that its memory is shared over."""
        return {v for v, _ in self.enclosing if v not in self.threads or not _covers(self.scope, self.threads[v])}


Readers = dict[Any, list[tuple[StageLoops, Load]]]  # of each buffer, who reads it, and how


class _Inline(Rewriter):
    """Loads of inlined stages replaced by their expressions.

    The expressions are kept as they were declared, and what they read is put in where they are read: each element of each stage once. Were they kept with
    everything put in, the beginning of a chain of n stages would be copied n times.
    """

    def __init__(self, expression_of: dict[Any, tuple[tuple[Var, ...], Expr]]):
        super().__init__()
        self.expression_of = expression_of

    def rewrite_Load(self, node: Load) -> Expr:
        changed = self.rewrite_children(node)
        found = self.expression_of.get(node.buffer)
        if found is None:
            return changed  # type: ignore[no-any-return]
        variables, e = found
        return self.rewrite(substitute(e, dict(zip(variables, changed.indices, strict=True))))


def inlined(stages: Sequence[Any]) -> list[StageLoops]:
    """The stages that have loops, with the expressions of inlined stages put in, producers first."""
    put_in = _Inline({})
    found = []
    for stage in stages:
        if stage.is_placeholder:
            continue
        op = stage.op
        if stage.is_extern:
            found.append(StageLoops(stage, op.call.args, None, None))
            continue
        if stage.is_scan:
            found.append(StageLoops(stage, tuple(put_in.rewrite(e) for e in op.init_body), None, None))
            continue
        if stage.attach.kind == "inline":
            put_in.expression_of[stage.outputs[0].buffer] = (tuple(axis.var for axis in op.axis), op.body[0])
            continue
        body = tuple(put_in.rewrite(e) for e in op.body)
        condition = None if op.condition is None else put_in.rewrite(op.condition)
        init = None if op.init is None else tuple(put_in.rewrite(e) for e in op.init)
        found.append(StageLoops(stage, body, condition, init))
    return found


def attach_leaf(stage: Any) -> IterVar:
    """The leaf an attached stage is computed at: of an axis split since, the inner part, of a fused one, the fused axis."""
    axis: IterVar = stage.attach.axis
    for relation in stage.attach.consumer.relations:
        if position_of(axis, relation.parents) is not None:
            axis = relation.children[-1]
    return axis


def infer(all_loops: list[StageLoops]) -> None:
    """Fill in regions, extents, loop variables, values and guards of the stages (given producers first)."""
    done: dict[Any, StageLoops] = {}
    readers: Readers = {}
    waiting = []  # updates whose states are read only by stages that come before them
    for loops in reversed(all_loops):
        if loops.stage.is_update and _is_inside_a_loop(loops.stage.scan_stage) and not _reads_of_update(loops, done, readers):
            waiting.append(loops)
        else:
            _infer(loops, done, readers)
    for loops in waiting:
        _infer(loops, done, readers)
    for loops in all_loops:
        if loops.stage.is_scan and _is_inside_a_loop(loops.stage):
            for (origin, shape), state in zip(loops.states, loops.stage.op.state, strict=True):
                for reader, node in readers.get(state.buffer, ()):
                    _check_read(loops, reader, node, origin, shape)
    for loops in waiting:
        for source in all_loops:
            for number, tensor in enumerate(source.stage.outputs):
                for node in (node for e in loops.expressions for node in loads_of(e) if node.buffer is tensor.buffer and not source.stage.is_extern):
                    region = source.states[number] if source.stage.is_scan else (source.origin, source.shape)
                    _check_read(done[loops.stage.scan_stage], loops, node, *region)


def _infer(loops: StageLoops, done: dict[Any, StageLoops], readers: Readers) -> None:
    """As infer, of one stage, its readers done."""
    stage = loops.stage
    if stage.is_scan:
        loops.states = [([const(0)] * t.ndim, list(t.shape)) for t in stage.outputs]
    if stage.attach.kind == "root":
        _surrounded_by_its_threads(loops)
        loops.origin = [const(0) for _ in stage.op.axis]
        loops.shape = [axis.dom.extent for axis in stage.op.axis]
    elif stage.is_update:
        _place_update(loops, done, readers)
    else:
        if stage.threads:
            raise ScheduleError(f"env_threads of stage {stage.name}: it is computed inside stage {stage.attach.consumer.name}, "
                                f"in whose grid it takes part; use s[{stage.name}].compute_root()")  # fmt: skip
        _place(loops, done, readers)
    _shape_loops(loops)
    for e in loops.expressions:
        for node in loads_of(e):
            readers.setdefault(node.buffer, []).append((loops, node))
    done[stage] = loops


def _is_inside_a_loop(scan: Any) -> bool:
    return bool(scan.attach.kind == "at")


def _surrounded_by_its_threads(loops: StageLoops) -> None:
    """What env_threads asks for: loops around all of a stage at root."""
    for thread in loops.stage.threads:
        variable = loop_variable(thread.thread_tag, thread.dom.extent)
        loops.enclosing.append((variable, thread.dom.extent))
        loops.threads[variable] = thread.thread_tag
    loops.scope = loops.stage.scope or "global"


def _scope(stage: Any, around: Collection[str]) -> str:
    """Where the result of a stage inside loops bound to these indices lives, if its scope was not set: as close to the threads that use it as can be."""
    if stage.scope is not None:
        return stage.scope  # type: ignore[no-any-return]
    bound = [mark.thread.thread_tag for mark in stage.marks.values() if mark.thread is not None]
    if any(not tag.startswith("blockIdx") for tag in around) and not any(tag.startswith("threadIdx") for tag in bound):
        return "local"
    return "shared" if around else "global"


def _covers(scope: str, tag: str) -> bool:
    """Whether one buffer of this scope serves all values of an index of the grid."""
    if scope.startswith("shared"):
        return not tag.startswith("blockIdx")
    if scope == "warp" and tag.startswith("vthread"):  # it lies in shared memory
        return True
    return scope == "global" or (scope.startswith(("warp", "wmma")) and tag == "threadIdx.x")


def _reads_of_update(loops: StageLoops, done: dict[Any, StageLoops], readers: Readers) -> list[tuple[StageLoops, Load]]:
    """What is read of an update: in its step, in later ones as a state, and after the scan as its result."""
    op = done[loops.stage.scan_stage].stage.op
    numbers = _numbers(op, loops.stage)
    tensors = [*loops.stage.outputs, *(each for n in numbers for each in (op.outputs[n], op.state[n]))]
    return [read for tensor in tensors for read in readers.get(tensor.buffer, ())]


def _numbers(op: Any, stage: Any) -> list[int]:
    """Which updates of a scan a stage computes."""
    return [n for n, tensor in enumerate(op.update) if position_of(tensor, stage.outputs) is not None]


def _place_update(loops: StageLoops, done: dict[Any, StageLoops], readers: Readers) -> None:
    """An update is the whole of its tensor at the time of the step; of a scan inside a loop, the part that is read there."""
    stage = loops.stage
    scan = done[stage.scan_stage]
    place = position_of(attach_leaf(stage), scan.stage.leaf_iter_vars)
    assert place is not None
    loops.enclosing = [*scan.enclosing, *scan.own_loops()[: place + 1]]
    loops.threads = {v: scan.threads[v] for v, _ in loops.enclosing if v in scan.threads}
    loops.scope = scan.scope
    if _is_inside_a_loop(scan.stage):
        _region(loops, _reads_of_update(loops, done, readers), scan.fixed())
    else:
        loops.origin = [const(0) for _ in stage.op.axis]
        loops.shape = [axis.dom.extent for axis in stage.op.axis]
    time = position_of(stage.time_axis, stage.op.axis)
    assert time is not None
    for n in _numbers(scan.stage.op, stage):
        origin, shape = list(loops.origin), list(loops.shape)
        origin[time], shape[time] = const(0), stage.op.axis[time].dom.extent
        scan.states[n] = (origin, shape)
    _at_the_step(loops, scan)


def _check_read(scan: StageLoops, reader: StageLoops, node: Load, origin: Sequence[Expr], shape: Sequence[Extent]) -> None:
    """A ScheduleError where a step of a scan inside a loop reads what is computed in other iterations of that loop. Time, the first index, is no part of it."""
    analyzer, fixed = Analyzer(), scan.fixed()
    for variable, extent in scan.enclosing:
        if not isinstance(extent, int):
            analyzer.bind(variable, (0, extent))
    domains = {v: (const(0, v.dtype), sub(as_expr(e), const(1))) for v, e in (*reader.enclosing, *reader.own_loops()) if v not in fixed}
    for index, begin, extent, full in list(zip(node.indices, origin, shape, node.buffer.shape, strict=True))[1:]:
        if same_extent(extent, full):
            continue
        found = interval(substitute(index, reader.value), domains)
        end = add(begin, as_expr(extent))
        if found is None or not (analyzer.can_prove(le(begin, found[0])) and analyzer.can_prove(lt(found[1], end))):
            at = f"{scan.stage.attach.consumer.axis_name(attach_leaf(scan.stage))} of stage {scan.stage.attach.consumer.name}"
            raise ScheduleError(f"scan {scan.stage.name} is computed at axis {at}, for a part of its elements, but {reader.stage.name} reads {node}, "
                                f"of which more is needed at each earlier step; use s[{scan.stage.name}].compute_root(), or, where a loop "
                                "of the step was split by a factor that does not divide that part, one that does")  # fmt: skip


def _place(loops: StageLoops, done: dict[Any, StageLoops], readers: Readers) -> None:
    """The region and the surrounding loops of a stage that is computed at an axis of another."""
    stage = loops.stage
    consumer, axis = stage.attach.consumer, attach_leaf(stage)
    at = f"stage {stage.name} is computed at axis {consumer.axis_name(axis)} of stage {consumer.name}"
    outer = done.get(consumer)
    reads = [(reader, node) for tensor in stage.outputs for reader, node in readers.get(tensor.buffer, ())]
    if outer is None:
        raise ScheduleError(f"{at}, but {consumer.name} does not come after it.{_advice(stage, reads)}")
    place = position_of(axis, consumer.leaf_iter_vars)
    assert place is not None
    if stage.scan_stage is consumer and place < len(consumer.leaf_iter_vars) - 1:
        innermost = consumer.axis_name(consumer.leaf_iter_vars[-1])
        raise ScheduleError(f"{at}, but it depends on the steps before, so it is computed in each step: use its innermost time axis {innermost}")
    outside = [r for r, _ in reads if not _is_inside(r.stage, consumer, place)]
    if not reads or outside:
        if not reads or len(outside) == len(reads):
            problem = f"but no reader of {stage.name} is inside that loop"
        else:
            problem = f"but {outside[0].stage.name}, which also reads it, is outside that loop"
        raise ScheduleError(f"{at}, {problem}.{_advice(stage, reads)}")
    if consumer.leaf_iter_vars[place].kind != "spatial" or any(a.kind != "spatial" for a in consumer.leaf_iter_vars[:place]):
        _refuse_initial_reads(loops, outer, at)
    loops.enclosing = [*outer.enclosing, *outer.own_loops()[: place + 1]]
    loops.threads = {v: outer.threads[v] for v, _ in loops.enclosing if v in outer.threads}
    loops.scope = _scope(stage, loops.threads.values())
    if stage.is_scan:
        return  # what it computes is known when its updates are placed
    _region(loops, reads, loops.fixed())
    if stage.time_axis is not None:
        _at_the_step(loops, done[stage.scan_stage])
    if stage.is_rolling:
        loops.rolling = _rolling(loops, outer, consumer.leaf_iter_vars[place])


def _rolling(loops: StageLoops, outer: StageLoops, leaf: IterVar) -> Rolling:
    """How the region moves from one iteration of the loop `leaf` to the next; a ScheduleError where a rolling buffer cannot follow."""
    consumer, variable = outer.stage, outer.variables[leaf]
    what = f"rolling_buffer of stage {loops.stage.name}, computed at axis {consumer.axis_name(leaf)} of stage {consumer.name}"
    mark = consumer.marks.get(leaf)
    if mark is not None and mark.kind not in ("serial", "unrolled"):
        raise ScheduleError(f"{what}: the loop is {mark.kind}, but an iteration needs what the one before it left; make it serial, or attach to another axis")
    analyzer = Analyzer()
    steps = [analyzer.simplify(sub(substitute(start, {variable: add(variable, const(1, variable.dtype))}), start)) for start in loops.origin]
    moving = [(d, step) for d, step in enumerate(steps) if not (isinstance(step, Const) and step.value == 0)]
    if len(moving) != 1 or not isinstance(moving[0][1], Const) or moving[0][1].value < 0:
        how = ", ".join(f"{axis.name} by {step}" for axis, step in zip(loops.stage.op.axis, steps, strict=True))
        raise ScheduleError(
            f"{what}: the region must move forward along one dimension by a constant, but from one iteration to the next it moves {how or 'nowhere'}"
        )
    dimension, step = moving[0][0], int(moving[0][1].value)
    extent = loops.shape[dimension]
    if not isinstance(extent, int) or step >= extent:
        axis = loops.stage.op.axis[dimension].name
        raise ScheduleError(f"{what}: an iteration needs {extent} elements along {axis} and the next begins {step} further; they share nothing")
    return Rolling(dimension, step, variable)


def _advice(stage: Any, reads: list[tuple[StageLoops, Load]]) -> str:
    """What to do about a stage in the wrong place: an axis that would do, or root."""
    names = {reader.stage.name: reader.stage for reader, _ in reads}
    if not names:
        return f" Nothing reads {stage.name}: leave it out, or s[{stage.name}].compute_root()"
    root = f"s[{stage.name}].compute_root()"
    if len(names) == 1:
        (reader,) = names.values()
        leaf = reader.axis_name(reader.leaf_iter_vars[0]) if reader.leaf_iter_vars else None
        return f" Use s[{stage.name}].compute_at(s[{reader.name}], {leaf}), whose axes are {reader.leaves_text()}, or {root}" if leaf else f" Use {root}"
    return f" Its readers are {', '.join(names)}: attach it to an axis that encloses them all, or use {root}"


def _refuse_initial_reads(loops: StageLoops, outer: StageLoops, at: str) -> None:
    buffers = {t.buffer for t in loops.stage.outputs}
    for e in outer.init or ():
        if any(node.buffer in buffers for node in loads_of(e)):
            raise ScheduleError(f"{at}, inside its reduction, but {outer.stage.name}'s init= reads it before; attach it outside the reduce axes")


def _is_inside(reader: Any, consumer: Any, place: int) -> bool:
    """Whether `reader` runs inside the loop at `place` of `consumer`."""
    stage = reader
    first = True
    while True:
        if stage is consumer:
            return first and not consumer.is_scan  # what a scan itself reads are its initial steps, before the loop
        if stage.attach.kind != "at":
            return False
        axis = attach_leaf(stage)
        stage = stage.attach.consumer
        if stage is consumer:
            where = position_of(axis, consumer.leaf_iter_vars)
            return where is not None and where >= place
        first = False


def _region(loops: StageLoops, reads: list[tuple[StageLoops, Load]], fixed: set[Var]) -> None:
    """Origin and shape of what the reads touch while the `fixed` variables stand still."""
    axes = loops.stage.op.axis
    low: list[Expr | None] = [None] * len(axes)
    high: list[Expr | None] = [None] * len(axes)
    whole = [False] * len(axes)
    analyzer = Analyzer()
    seen: set[tuple[Any, Load]] = set()
    for reader, node in reads:
        if (reader.stage, node) in seen:
            continue
        seen.add((reader.stage, node))
        moving = [(v, e) for v, e in (*reader.enclosing, *reader.own_loops()) if v not in fixed]
        domains = {v: (const(0, v.dtype), sub(as_expr(e), const(1))) for v, e in moving}
        if reader.stage.is_scan:
            domains.update(_initial_domains(reader))
        intervals, values = Intervals(domains), Substitute(reader.value)
        for dimension, index in enumerate(node.indices):
            if whole[dimension]:
                continue
            at = values.rewrite(index)
            if at.holds & HAS_DIVISION:  # an index taken apart and put together again is that index
                at = analyzer.simplify(at)
            found = None if loads_of(index) else intervals.of(at)
            if found is None:
                whole[dimension] = True
                continue
            old_low, old_high = low[dimension], high[dimension]
            low[dimension] = found[0] if old_low is None else analyzer.simplify(minimum(old_low, found[0]))
            high[dimension] = found[1] if old_high is None else analyzer.simplify(maximum(old_high, found[1]))
    for dimension, axis in enumerate(axes):
        full = axis.dom.extent
        a, b = low[dimension], high[dimension]
        extent = None
        if not whole[dimension] and a is not None and b is not None:
            extent = constant_upper_bound(add(sub(b, a), const(1)))
        if a is None or extent is None or (isinstance(full, int) and extent >= full):
            loops.origin.append(const(0))
            loops.shape.append(full)
        else:
            loops.origin.append(a)
            loops.shape.append(max(extent, 0))


def _initial_domains(scan: StageLoops) -> dict[Var, tuple[Expr, Expr]]:
    """The values of the axes over which a scan copies its initial steps."""
    found = {}
    for axes, (origin, shape) in zip(scan.stage.op.init_axis, scan.states, strict=True):
        for axis, begin, extent in zip(axes, origin, [axes[0].dom.extent, *shape[1:]], strict=True):
            found[axis.var] = (begin, sub(add(begin, as_expr(extent)), const(1)))
    return found


def _at_the_step(loops: StageLoops, scan: StageLoops) -> None:
    """What a scan's step computes is wanted at the time of the step only."""
    place = position_of(loops.stage.time_axis, loops.stage.op.axis)
    assert place is not None
    loops.origin[place], loops.shape[place] = scan.value[scan.stage.op.scan_axis.var], 1


def _shape_loops(loops: StageLoops) -> None:
    """Extents of all axes, loop variables of the leaves, values of the axes, guards."""
    stage, extents, position = loops.stage, loops.extents, loops.position
    for axis, extent in zip(stage.op.axis, loops.shape, strict=True):
        extents[axis] = extent
    ranging = (stage.op.scan_axis,) if stage.is_scan else stage.op.reduce_axis
    for axis in ranging:
        extents[axis] = axis.dom.extent
    for relation in stage.relations:
        parents = tuple(extents[parent] for parent in relation.parents)
        for child, extent in zip(relation.children, relation.extents(parents), strict=True):
            extents[child] = extent
    for leaf in stage.leaf_iter_vars:
        position[leaf] = loops.variables[leaf] = loop_variable(stage.axis_name(leaf), extents[leaf])
        mark = stage.marks.get(leaf)
        if mark is not None and mark.thread is not None:
            loops.threads[loops.variables[leaf]] = mark.thread.thread_tag
            _check_thread(stage, leaf, extents[leaf], mark.thread)
    for relation in reversed(stage.relations):
        found = relation.positions(tuple(position[child] for child in relation.children), extents)
        for parent, value in zip(relation.parents, found, strict=True):
            position[parent] = value
            condition = relation.guard(value, extents)
            if condition is not None:
                loops.guards.append(_guard(loops, condition, parent.kind != "spatial"))
    for axis, origin in zip(stage.op.axis, loops.origin, strict=True):
        loops.value[axis.var] = add(origin, position[axis])
    for axis in ranging:
        loops.value[axis.var] = add(as_expr(axis.dom.min), position[axis])
    _region_guards(loops)
    _store_guards(loops)


def _check_thread(stage: Any, leaf: IterVar, extent: Extent, thread: IterVar) -> None:
    most = None if thread.dom is None else thread.dom.extent
    if isinstance(most, int) and isinstance(extent, int) and extent > most:
        raise ScheduleError(f"bind on stage {stage.name}: axis {stage.axis_name(leaf)} has extent {extent} where it is computed, "
                            f"{thread.thread_tag} has {most}; split the axis by {most} first")  # fmt: skip


def _store_guards(loops: StageLoops) -> None:
    """Guards that keep elements from being computed: those of a rolling buffer that are there already, and those the store predicate leaves out."""
    stage, rolling = loops.stage, loops.rolling
    if rolling is not None:
        extent, position = loops.shape[rolling.dimension], loops.position[stage.op.axis[rolling.dimension]]
        is_new = le(as_expr(extent) - rolling.step, position)
        loops.guards.append(_guard(loops, logical_or(eq(rolling.variable, const(0, rolling.variable.dtype)), is_new), False))
    if stage.predicate is not None:
        values: dict[Var, Expr] = {}
        for variable in stage.predicate.variables:
            axis = axis_of(variable, stage)
            assert axis is not None, variable
            values[variable] = loops.value.get(axis.var, loops.position[axis])
        loops.guards.append(_guard(loops, substitute(stage.predicate, values), False))


def loop_variable(name: str, extent: Extent) -> Var:
    """A variable from 0 to the extent; int64 where int32 does not hold it."""
    most = extent if isinstance(extent, int) else constant_upper_bound(extent)
    last = None if most is None else max(most - 1, 0)
    return Var(name, "int32" if (last or 0) < 1 << 31 else "int64", (0, last))


def _guard(loops: StageLoops, condition: Expr, on_reduction: bool) -> Guard:
    return Guard(condition, on_reduction, set(condition.variables & _loop_variables(loops)))


def _loop_variables(loops: StageLoops) -> set[Var]:
    return {v for v, _ in loops.enclosing} | set(loops.variables.values())


def _region_guards(loops: StageLoops) -> None:
    """Guards where the region may reach past the tensor."""
    if loops.stage.attach.kind == "root":
        return
    analyzer = Analyzer()
    for variable, extent in (*loops.enclosing, *loops.own_loops()):
        if not isinstance(extent, int):
            analyzer.bind(variable, (0, extent))
    for axis in loops.stage.op.axis:
        value, full = analyzer.simplify(loops.value[axis.var]), axis.dom.extent
        low, high = analyzer.bounds(value)  # most often they decide, at a tenth of what a proof costs
        inside = []
        if low is None or low < 0:
            inside.append(le(const(0, value.dtype), value))
        if high is None or not isinstance(full, int) or high >= full:
            inside.append(lt(value, as_expr(full)))
        loops.guards.extend(_guard(loops, condition, False) for condition in inside if not analyzer.can_prove(condition))
