"""The loop nest of one stage: loops over its leaves, outermost first; each guard at the outermost loop where its variables are known; stages attached to a
loop first in its body; a reduction's initial values before its first reduce loop. What a loop kind means is for the passes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..te.axis import IterVar
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError, ScheduleWarning
from ..tir.expr import Buffer, Const, Expr, Load, Var, as_expr, cast, const, le, load, logical_and, lt
from ..tir.stmt import Allocate, AllReduce, Bind, Combination, For, If, Prefetch, Stmt, Store, seq
from ..tir.visit import Substitute, loads_of, substitute, substitute_statement, walk
from .access import Access
from .block_reduction import atomic_update, check_place, is_atomic
from .bounds import Guard, StageLoops, attach_leaf, loop_variable
from .relation import ceil_div
from .scatter import SCATTERED, as_position, chosen, is_scattered
from .stage import position_of
from .tensorize import Match, Nest, check_guards, check_plain, check_surroundings, intrinsic_at

if TYPE_CHECKING:
    from .lower import Emitter


class Redirect(Substitute):
    """Axis variables replaced by their values, loads of tensors by loads of the buffers that hold them."""

    def __init__(self, values: dict[Var, Expr], access: dict[Buffer, Access]):
        super().__init__(values)
        self.access = access

    def rewrite_Load(self, node: Load) -> Expr:
        changed = self.rewrite_children(node)
        found = self.access.get(node.buffer)
        if found is None or not isinstance(changed, Load):
            return changed  # type: ignore[no-any-return]
        return load(found.buffer, found.indices(changed.indices))


class StageNest:
    """The loop nest of one stage."""

    def __init__(self, emitter: Emitter, loops: StageLoops, bound: set[Var]):
        self.emitter, self.loops, self.stage = emitter, loops, loops.stage
        self.bound = set(bound)
        self.redirect = Redirect(loops.value, emitter.access)
        leaves = self.stage.leaf_iter_vars
        reducing = self.stage.op.reducer is not None
        self.first_reduce = next((n for n, leaf in enumerate(leaves) if leaf.kind != "spatial"), len(leaves)) if reducing else None
        reduced = [leaf for leaf in leaves if leaf.kind == "reduce"] if reducing else []
        self.scattered = [leaf for leaf in leaves if is_scattered(self.stage, leaf)]
        self.blocks = [leaf for leaf in reduced if is_atomic(self.stage, leaf)]
        threads = [leaf for leaf in reduced if self._thread_of(leaf) is not None and not is_atomic(self.stage, leaf)]
        # what each block has one term of needs no sum of its own; what is scattered has none
        self.across = [*self.blocks, *threads] if threads or (len(self.blocks) < len(reduced) and self.blocks and not self.scattered) else []
        self.starts_before = bool(self.blocks) and self.stage.attach.kind == "root"  # what it starts from is stored by a kernel of its own
        self.condition = loops.condition
        if self.blocks:
            check_place(self.stage, loops.scope, loops.init, emitter.schedule)
        self.leaves = leaves if not self.across else self._threads_first(leaves)
        self.share: list[Buffer] = []  # of each tensor, what one thread has reduced so far

    def _thread_of(self, leaf: IterVar) -> str | None:
        """The index that a leaf is bound to."""
        mark = self.stage.marks.get(leaf)
        return None if mark is None or mark.thread is None else mark.thread.thread_tag

    def _threads_first(self, leaves: Sequence[IterVar]) -> list[IterVar]:
        """The leaves with those that are threads moved out of the reduction, and `first_reduce` behind the data-parallel ones of them."""
        assert self.first_reduce is not None
        inside = leaves[self.first_reduce :]
        parallel = [leaf for leaf in inside if leaf.kind == "spatial" and self._thread_of(leaf) is not None]
        rest = [leaf for leaf in inside if position_of(leaf, (*parallel, *self.across)) is None]
        order = [*leaves[: self.first_reduce], *parallel, *self.across, *rest]
        self.first_reduce += len(parallel)
        return order

    def _innermost_around(self, leaf: IterVar) -> IterVar:
        """The loop in which a stage attached at `leaf` is computed: the innermost of those that were at or outside `leaf` when it was attached."""
        leaves = self.stage.leaf_iter_vars
        at = position_of(leaf, leaves)
        return next(each for each in reversed(self.leaves) if (place := position_of(each, leaves)) is not None and at is not None and place <= at)

    def _attached_here(self, leaf: IterVar, body: Stmt) -> Stmt:
        """`body` after the stages that are computed in the loop `leaf`."""
        for each in reversed(self.stage.leaf_iter_vars if self.across else [leaf]):
            if not self.across or self._innermost_around(each) is leaf:
                body = self.emitter.produce_attached(self.stage, each, self.bound, body)
        return body

    def from_leaf(self, position: int, guards: list[Guard]) -> Stmt:
        """The nest from a leaf inwards; `guards` are those not placed yet."""
        ready = [g for g in guards if g.variables <= self.bound]
        waiting = [g for g in guards if not g.variables <= self.bound]
        if position == self.first_reduce and self.across:
            late = [g for g in ready if g.on_reduction]
            ready = [g for g in ready if not g.on_reduction]
            body = self._across_threads(position, [*late, *waiting])
        elif position == self.first_reduce and not self.starts_before and not self._whole_by_intrinsic(position):
            late = [g for g in ready if g.on_reduction]
            ready = [g for g in ready if not g.on_reduction]
            initial = self._initial_values(position, [g for g in waiting if not g.on_reduction])
            body = seq(initial, guarded(late, self._rest(position, waiting)))
        else:
            body = self._rest(position, waiting)
        return guarded(ready, body)

    def _rest(self, position: int, guards: list[Guard]) -> Stmt:
        if position == len(self.leaves):
            if self.stage.is_scan:
                return seq()
            return self._update() if self.first_reduce is not None else self._assign(self.loops.body)
        leaf = self.leaves[position]
        if intrinsic_at(self.stage, leaf) is not None:
            return self._tensorized(position, guards)
        if self.scattered and leaf is self.scattered[0]:
            return self._where_chosen(position, guards)
        variable, extent = self.loops.variables[leaf], as_expr(self.loops.extents[leaf])
        kind, mark = "serial", self.stage.marks.get(leaf)
        if mark is not None:
            kind = mark.kind
        if kind == "vectorized":
            self.stage.check_lanes(leaf, self.loops.extents[leaf])
        parallel = kind == "parallel"
        if parallel and self.emitter.inside_parallel:
            warnings.warn(
                f"stage {self.stage.name}: parallel axis {self.stage.axis_name(leaf)} is inside another parallel loop and runs serially",
                ScheduleWarning,
                stacklevel=2,
            )
            kind = "serial"
        self.emitter.inside_parallel += parallel
        self.bound.add(variable)
        steps: list[Guard] = []
        if self.stage.is_scan:  # no step is done twice: what is computed in it is guarded, too
            steps, guards = [g for g in guards if g.variables <= self.bound], [g for g in guards if not g.variables <= self.bound]
        if self.first_reduce is not None and position >= self.first_reduce:
            body = self.from_leaf_inside(position + 1, guards)
        else:
            body = self.from_leaf(position + 1, guards)
        body = guarded(steps, self._attached_here(leaf, body))
        body = seq(*self._prefetches(leaf), body)
        self.emitter.inside_parallel -= parallel
        self.bound.discard(variable)
        loop = For(variable, extent, kind, body, self._thread_of(leaf), mark.pragmas if mark is not None else ())
        return self.emitter.keep_rolling(self.stage, leaf, loop)

    def _where_chosen(self, position: int, guards: list[Guard]) -> Stmt:
        """In the place of scattered loops, the iterations for which the condition can hold, and whether they are iterations of the loops at all."""
        loops, stage = self.loops, self.stage
        for leaf in self.leaves[position:]:
            attached = self.emitter.attached.get((stage, leaf))
            if attached:
                raise ScheduleError(f"scatter on stage {stage.name}: stage {attached[0].stage.name} is computed at axis {stage.axis_name(leaf)}, which has no "
                                    f"loop; attach it to one")  # fmt: skip
        steps: list[tuple[list[Expr], Var, Expr]] = []  # conditions, and then a variable and its value
        for leaf in self.leaves[position:]:
            root, variable = leaf.var, loops.variables[leaf]
            found = chosen(self.condition, root)
            if found is None:
                raise ScheduleError(f"scatter on stage {stage.name}: its condition, {self.condition}, names no {stage.axis_name(leaf)} any more; do not inline "
                                    f"the stages that it reads")  # fmt: skip
            self.condition = found.rest
            value, origin = self.redirect.rewrite(found.value), loops.origin[next(n for n, a in enumerate(stage.op.axis) if a is leaf)]
            where = as_position(value)
            where = where - cast(origin, where.dtype)
            inside = logical_and(le(const(0, where.dtype), where), lt(where, cast(as_expr(loops.extents[leaf]), where.dtype)))
            if not value.variables <= self.bound:
                raise ScheduleError(f"scatter on stage {stage.name}: which {stage.axis_name(leaf)} a term is for, {found.value}, depends on an axis that is "
                                    f"scattered too; scatter one of them")  # fmt: skip
            steps.append(([*(self.redirect.rewrite(g) for g in found.guards), inside], variable, cast(where, variable.dtype)))
        self.bound.update(variable for _, variable, _ in steps)
        body = self.from_leaf_inside(len(self.leaves), guards)
        self.bound.difference_update(variable for _, variable, _ in steps)
        for conditions, variable, value in reversed(steps):
            body = Bind(variable, value, body)
            for condition in reversed(conditions):
                body = If(condition, body)
        return body

    def from_leaf_inside(self, position: int, guards: list[Guard]) -> Stmt:
        """As from_leaf, inside the first reduce loop."""
        ready = [g for g in guards if g.variables <= self.bound]
        return guarded(ready, self._rest(position, [g for g in guards if not g.variables <= self.bound]))

    def _across_threads(self, position: int, guards: list[Guard]) -> Stmt:
        """A reduction over axes that are threads: each thread reduces its share, then all together combine the shares, then the result is stored. Of blocks,
        too, each has a share; it goes into the result by an atomic update."""
        op, stage, inner = self.stage.op, self.stage, self._spatial(position)
        shape = [self.loops.extents[leaf] for leaf in inner]
        where = tuple(self.loops.variables[leaf] for leaf in inner)
        wide = next((leaf for leaf in inner if not isinstance(self.loops.extents[leaf], int)), None)
        if wide is not None or intrinsic_at(stage, self.across[0]) is not None:
            problem = "an intrinsic stands there too" if wide is None else f"the extent of axis {stage.axis_name(wide)} inside it is not a constant"
            raise ScheduleError(f"stage {stage.name}: its reduction is shared among threads ({self._thread_of(self.across[0])}), but {problem}")
        dtypes = [t.dtype for t in stage.outputs]
        threads = self.across[len(self.blocks) :]
        total, self.share = ([Buffer(f"{stage.name}.{what}", shape, kind, "local") for kind in dtypes] for what in ("total", "share"))
        form = op.reducer.form(dtypes)
        how = Combination(form.lhs, form.rhs, form.result, form.identity)
        totals, shares = (tuple(load(buffer, where) for buffer in buffers) for buffers in (total, self.share))
        zero = seq(*[Store(b, where, e) for b, e in zip(self.share, form.identity, strict=True)])
        spatial = [g for g in guards if not g.on_reduction]
        body = seq(self._in_loops(inner, [], zero), self._own_share(position, guards))
        if threads:
            tags = tuple(tag for leaf in threads if (tag := self._thread_of(leaf)) is not None)
            body = seq(body, self._in_loops(inner, [], AllReduce(totals, shares, how, tags)))
        else:
            body = seq(body, self._in_loops(inner, spatial, self._last(shares)))
        for buffer in reversed(self.share):
            body = Allocate(buffer, body)
        body = self._in_threads(threads, body)
        if threads:
            start = form.identity if self.blocks else self._start()
            first = seq(*[Store(b, where, self.redirect.rewrite(e)) for b, e in zip(total, start, strict=True)])
            body = seq(self._in_loops(inner, [], first), body, self._in_loops(inner, spatial, self._last(totals)))
            for buffer in reversed(total):
                body = Allocate(buffer, body)
        return self._in_threads(self.blocks, body)

    def _in_threads(self, leaves: Sequence[IterVar], body: Stmt) -> Stmt:
        """`body` in the loops over leaves that are threads or blocks, after the stages that are computed in them; those in the innermost are there already."""
        for leaf in reversed(leaves):
            if leaf is not self.across[-1]:
                around = [self.loops.variables[each] for each in self.across[: position_of(leaf, self.across) or 0]] + [self.loops.variables[leaf]]
                self.bound.update(around)
                body = self._attached_here(leaf, body)
                self.bound.difference_update(around)
            body = For(self.loops.variables[leaf], as_expr(self.loops.extents[leaf]), "thread", body, self._thread_of(leaf))
        return body

    def _last(self, values: Sequence[Expr]) -> Stmt:
        """What was reduced becomes the result, or a part of it."""
        if self.blocks:
            return atomic_update(self.stage, self._targets()[0], values[0])
        return seq(*[Store(buffer, indices, e) for (buffer, indices), e in zip(self._targets(), values, strict=True)])

    def initial(self, guards: Sequence[Guard]) -> Stmt:
        """What a reduction by blocks starts from, in loops of its own over all data-parallel leaves: blocks do not wait, so a kernel before stores it."""
        leaves = self._spatial(0)
        body = self._in_loops(leaves, [g for g in guards if not g.on_reduction], self._assign(self._start()))
        if all(each.thread is None or each.thread.startswith("vthread") for each in walk(body) if isinstance(each, For)):
            body = For(loop_variable("threadIdx.x", 1), as_expr(1), "thread", body, "threadIdx.x")
        return body

    def _start(self) -> Sequence[Expr]:
        """The values a reduction starts from."""
        if self.loops.init is not None:
            return self.loops.init
        return self.stage.op.reducer.identity([t.dtype for t in self.stage.outputs])  # type: ignore[no-any-return]

    def _own_share(self, position: int, guards: list[Guard]) -> Stmt:
        """What one thread does of a reduction over threads: the leaves inside, on its share."""
        variables = [self.loops.variables[leaf] for leaf in self.across]
        self.bound.update(variables)
        body = self._attached_here(self.across[-1], self.from_leaf_inside(position + len(self.across), guards))
        self.bound.difference_update(variables)
        return body

    def _whole_by_intrinsic(self, position: int) -> bool:
        """Whether an intrinsic at a leaf does a whole reduction, initial values too."""
        intrinsic = intrinsic_at(self.stage, self.leaves[position]) if position < len(self.leaves) else None
        inside = self.first_reduce is not None and position <= self.first_reduce
        return intrinsic is not None and intrinsic.body is not None and inside and self.loops.init is None

    def _tensorized(self, position: int, guards: Sequence[Guard]) -> Stmt:
        """The intrinsic in the place of a leaf and the loops inside."""
        leaf, stage = self.leaves[position], self.stage
        if self.blocks:
            axis = stage.axis_name(self.blocks[0])
            raise ScheduleError(f"tensorize on stage {stage.name}: its axis {axis} is reduced by blocks, by atomic updates, which no intrinsic makes; "
                                f"factor the part of a block out, F = s.rfactor({stage.name}, {axis}), and tensorize that")  # fmt: skip
        check_plain(stage, position)
        check_surroundings(stage, position)
        check_guards(stage, leaf, [g.condition for g in guards], {self.loops.variables[each] for each in self.leaves[position:]})
        for each in self.leaves[position:]:
            here = self.emitter.attached.get((stage, each))
            if here:
                raise ScheduleError(f"tensorize on stage {stage.name}: stage {here[0].stage.name} is computed at axis {stage.axis_name(each)}, inside the "
                                    f"loops that intrinsic {stage.marks[leaf].intrinsic.name} takes the place of; attach it to a loop outside")  # fmt: skip
        match = self._match(position)
        if self.first_reduce is None or self._whole_by_intrinsic(position):
            assert match.intrinsic.body is not None
            return match.call(match.intrinsic.body)
        if match.intrinsic.update is None:
            raise ScheduleError(f"tensorize on stage {stage.name}: intrinsic {match.intrinsic.name} does whole reductions only (it has no update=), "
                                f"but axis {stage.axis_name(leaf)} holds a part of one, or the reduction has init=")  # fmt: skip
        update = match.call(match.intrinsic.update)
        return update if position >= self.first_reduce else seq(self._initial_values(position, []), update)

    def _match(self, position: int) -> Match:
        """The nest at a leaf, compared with the pattern of the intrinsic there."""
        leaves = self.leaves[position:]
        intrinsic = intrinsic_at(self.stage, leaves[0])
        assert intrinsic is not None
        condition = None if self.loops.condition is None else self.redirect.rewrite(self.loops.condition)
        loops = [(leaf, self.loops.variables[leaf], self.loops.extents[leaf]) for leaf in leaves]
        targets = self._targets()
        if len(targets) != 1:
            raise ScheduleError(f"tensorize on stage {self.stage.name}: it computes {len(targets)} tensors together; an intrinsic computes one")
        return Match(intrinsic, Nest(self.stage, loops, targets[0], self.redirect.rewrite(self.loops.body[0]), condition))

    def _init_by_intrinsic(self, position: int) -> tuple[int, Stmt] | None:
        """From which leaf on an intrinsic stores the initial values, and the call; None if loops do."""
        at = next((n for n in range(len(self.leaves)) if intrinsic_at(self.stage, self.leaves[n]) is not None), None)
        if at is None or self.loops.init is not None or position > at:
            return None
        match = self._match(at)
        if match.intrinsic.init is None:
            return None
        return at, match.call(match.intrinsic.init)

    def _spatial(self, position: int) -> list[IterVar]:
        """The data-parallel leaves from a position inwards."""
        return [leaf for leaf in self.leaves[position:] if leaf.kind == "spatial"]

    def _targets(self) -> list[tuple[Buffer, tuple[Expr, ...]]]:
        """Where the result is stored."""
        found = []
        for tensor in self.stage.outputs:
            access = self.emitter.access[tensor.buffer]
            if access.origin is self.loops.origin:
                indices = access.physical([self.loops.position[axis] for axis in self.stage.op.axis])
            else:
                indices = access.indices([self.loops.value[axis.var] for axis in self.stage.op.axis])
            found.append((access.buffer, indices))
        return found

    def _assign(self, values: Sequence[Expr]) -> Stmt:
        new = [self.redirect.rewrite(e) for e in values]
        return seq(*[Store(buffer, indices, value) for (buffer, indices), value in zip(self._targets(), new, strict=True)])

    def _initial_values(self, position: int, guards: list[Guard]) -> Stmt:
        """What the reduction starts from, in loops of its own over the data-parallel leaves inside the reduction."""
        by_intrinsic = self._init_by_intrinsic(position)
        if by_intrinsic is None:
            return self._in_loops(self._spatial(position), guards, self._assign(self._start()))
        return self._in_loops([leaf for leaf in self.leaves[position : by_intrinsic[0]] if leaf.kind == "spatial"], guards, by_intrinsic[1])

    def _in_loops(self, inner: Sequence[IterVar], guards: Sequence[Guard], body: Stmt) -> Stmt:
        """`body` in loops of its own over data-parallel leaves, each guard at the outermost loop where its variables are known."""
        placed = [self.loops.variables[leaf] for leaf in inner]
        fresh = {v: Var(v.name, v.dtype, v.bounds) for v in placed}
        for number in range(len(inner), -1, -1):
            known = self.bound | set(placed[:number])
            before = self.bound | set(placed[: number - 1]) if number else None
            here = [g for g in guards if g.variables <= known and (before is None or not g.variables <= before)]
            body = guarded(here, body)
            if number:
                leaf = inner[number - 1]
                mark = self.stage.marks.get(leaf)
                extent = as_expr(self.loops.extents[leaf])
                kind = mark.kind if mark is not None else "serial"
                if kind == "parallel" and self.emitter.inside_parallel:
                    kind = "serial"
                if kind == SCATTERED and leaf is not self.scattered[-1]:
                    kind = "serial"
                if kind == SCATTERED:
                    body = self._shared_out(placed[number - 1], fresh[placed[number - 1]], extent, body)
                else:
                    body = For(fresh[placed[number - 1]], extent, kind, body, self._thread_of(leaf))
        return substitute_statement(body, fresh)

    def _shared_out(self, old: Var, variable: Var, extent: Expr, body: Stmt) -> Stmt:
        """The loop of the last scattered axis, where there is one: the threads that update the elements take turns."""
        tags = {self._thread_of(leaf): self.loops.extents[leaf] for leaf in self.blocks}
        counts = [(tag, count) for tag, count in tags.items() if tag is not None and tag.startswith("threadIdx") and isinstance(count, int) and count > 1]
        if not counts:
            return For(variable, extent, "serial", body)
        tag, count = counts[0]
        step, lane = loop_variable(variable.name, ceil_div(_plain(extent), count)), loop_variable(tag, count)
        here = step * count + lane
        body = If(here < extent, substitute_statement(body, {old: here}))
        steps = ceil_div(_plain(extent), count)
        return For(step, as_expr(steps), "serial", For(lane, as_expr(count), "thread", body, tag))

    def _update(self) -> Stmt:
        """One step of the reduction: combine what is there with the next value."""
        op = self.stage.op
        targets = self._targets()
        if self.share:
            where = tuple(self.loops.variables[leaf] for leaf in self._spatial(self.first_reduce or 0))
            targets = [(buffer, where) for buffer in self.share]
        now = [load(buffer, indices) for buffer, indices in targets]
        terms = [self.redirect.rewrite(e) for e in self.loops.body]
        if self.blocks and not self.share:
            update = atomic_update(self.stage, targets[0], terms[0])
        else:
            update = _store_together(targets, op.reducer.combine(now, terms))
        if self.condition is not None:
            update = If(self.redirect.rewrite(self.condition), update)
        return update

    def _computed_inside(self, tensor: Tensor, leaf: IterVar) -> bool:
        """Whether `tensor` exists only inside this loop of this stage."""
        source = self.emitter.schedule[tensor]
        if source.attach.kind != "at" or source.attach.consumer is not self.stage:
            return False
        at, here = position_of(attach_leaf(source), self.leaves), position_of(leaf, self.leaves)
        return at is not None and here is not None and at >= here

    def _prefetches(self, leaf: IterVar) -> list[Stmt]:
        """Hints for what the tensors of s[T].prefetch are read at some iterations later: where the inner loops begin."""
        found: list[Stmt] = []
        for tensor, axis, offset in self.stage.prefetches:
            if axis is not leaf or self._computed_inside(tensor, leaf):
                continue
            variable = self.loops.variables[leaf]
            start: dict[Var, Expr] = {v: as_expr(0) for v, _ in self.loops.own_loops() if v not in self.bound}
            start[variable] = variable + offset
            for e in self.loops.expressions:
                for node in loads_of(e):
                    access = self.emitter.access.get(node.buffer)
                    if node.buffer is tensor.buffer and not any(loads_of(i) for i in node.indices):
                        indices = [substitute(substitute(i, self.loops.value), start) for i in node.indices]
                        buffer = node.buffer if access is None else access.buffer
                        found.append(Prefetch(buffer, tuple(indices) if access is None else access.indices(indices)))
        return found


def _plain(extent: Expr) -> int | Expr:
    return int(extent.value) if isinstance(extent, Const) else extent


def guarded(guards: Sequence[Guard], body: Stmt) -> Stmt:
    if not guards:
        return body
    condition = guards[0].condition
    for guard in guards[1:]:
        condition = logical_and(condition, guard.condition)
    return If(condition, body)


def _store_together(targets: Sequence[tuple[Buffer, tuple[Expr, ...]]], values: Sequence[Expr]) -> Stmt:
    """Stores that take effect together: in an order in which none overwrites what a later one reads, else through names."""
    reads = [{node.buffer for node in loads_of(value)} for value in values]
    order: list[int] = []
    left = list(range(len(values)))
    while left:
        free = next((n for n in left if not any(targets[n][0] in reads[other] for other in left if other != n)), None)
        if free is None:
            break
        order.append(free)
        left.remove(free)
    names = {n: Var(f"{targets[n][0].name}.next", values[n].dtype) for n in left}
    for variable in names.values():
        variable.exact = False
    ordered = [Store(*targets[n], values[n]) for n in order]
    body = seq(*ordered, *[Store(*targets[n], names[n]) for n in left])
    for n in reversed(left):
        body = Bind(names[n], values[n], body)
    return body
