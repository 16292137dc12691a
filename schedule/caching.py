"""The primitives that add stages to a schedule: cache_read, cache_write, rfactor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..te.axis import IterVar, Range
from ..te.op import ComputeOp, axes_over, tensors_read
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError
from ..tir.expr import Expr, add, as_expr, if_then_else, logical_and
from ..tir.visit import Substitute
from .bounds import attach_leaf
from .placement import SCOPES
from .relation import Relation
from .scatter import is_scattered
from .stage import position_of
from .trace import primitive

if TYPE_CHECKING:
    from .schedule import Stage


def rewritten(op: ComputeOp, **changes: Any) -> ComputeOp:
    """`op` with other expressions, producing the same tensors over the same axes."""
    new = copy.copy(op)
    for field, value in changes.items():
        setattr(new, field, value)
    new.input_tensors = tensors_read(new.expressions)
    return new


class CachingPrimitives:
    """The primitives of a schedule. Examples are written for `C[i] = sum(A[i, k], axis=k)`, A of 16 x 64."""

    stages: list[Stage]

    if TYPE_CHECKING:

        def stage_of(self, key: Any, primitive_name: str) -> Any: ...
        def _insert(self, position: int, op: Any, wanted: str, is_original: bool) -> Any: ...

        _stage_of_op: dict[Any, Stage]

    def _check_scope(self, scope: Any, what: str) -> None:
        if not isinstance(scope, str) or scope not in SCOPES:
            raise ScheduleError(f"{what}: unknown scope {scope!r}; known are {', '.join(SCOPES)}")

    def _tensors_of(self, tensor: Any, primitive_name: str) -> tuple[list[Tensor], str]:
        """The tensors given, one or a list of them, and what is done to which, for messages."""
        tensors = list(tensor) if isinstance(tensor, (list, tuple)) else [tensor]
        what = f"{primitive_name} of {', '.join(str(getattr(t, 'name', t)) for t in tensors)}"
        if not tensors or not all(isinstance(t, Tensor) for t in tensors):
            raise ScheduleError(f"{primitive_name}: expected a tensor or the list of an operation's outputs, found {tensor!r}")
        return tensors, what

    def _check_all_outputs(self, stage: Any, tensors: Sequence[Tensor], what: str) -> None:
        if len(tensors) != len(stage.outputs) or any(position_of(t, tensors) is None for t in stage.outputs):
            raise ScheduleError(f"{what}: the operation has {len(stage.outputs)} output(s), {', '.join(t.name for t in stage.outputs)}; "
                                "give all of them together, in a list")  # fmt: skip

    def _replace_op(self, stage: Any, op: ComputeOp) -> None:
        stage.op = op
        self._stage_of_op[op] = stage

    @primitive("schedule")
    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Copy `tensor` to `scope`, and let the stages `readers` (tensors, operations or a list of them) read the copy.

        before -> after, `AL = s.cache_read(A, "local", [C])`:

            for i in range(16):             for ax0 in range(16):
                for k in range(64):             for ax1 in range(64):
                    C[i] += A[i, k]                 A.local[ax0, ax1] = A[ax0, ax1]
                                            for i in range(16):
                                                for k in range(64):
                                                    C[i] += A.local[i, k]

        Returns the copy; place it with compute_at. Raises ScheduleError for an unknown scope, or a reader that does not read `tensor`.
        """
        what = f"cache_read of {getattr(tensor, 'name', tensor)}"
        if not isinstance(tensor, Tensor):
            raise ScheduleError(f"{what}: expected a tensor, found {tensor!r}")
        source = self.stage_of(tensor, what)
        self._check_scope(scope, what)
        listed = list(readers) if isinstance(readers, (list, tuple)) else [readers]
        stages = [self.stage_of(reader, what) for reader in listed]
        if not stages:
            raise ScheduleError(f"{what}: give at least one reader")
        for stage in stages:
            stage.compute_op(what)
            if stage is source or position_of(tensor, stage.op.input_tensors) is None:
                reads = ", ".join(t.name for t in stage.op.input_tensors) or "nothing"
                raise ScheduleError(f"{what}: stage {stage.name} does not read it (it reads {reads})")
            if any(prefetched is tensor for prefetched, _, _ in stage.prefetches):
                raise ScheduleError(f"{what}: stage {stage.name} prefetches it, but will read the copy; call cache_read first, then prefetch")
        axes = axes_over([f"ax{n}" for n in range(tensor.ndim)], tensor.shape)
        op = ComputeOp(f"{tensor.name}.{scope}", axes, (tensor(*axes),))
        (cached,) = op.outputs
        first = min(position for position, stage in enumerate(self.stages) if position_of(stage, stages) is not None)
        copy_stage = self._insert(first, op, op.name, is_original=False)
        copy_stage.scope = scope
        copy_stage.attach = copy_stage.home = source.home  # a copy of what a scan's step computes is made in the step
        copy_stage.time_axis = None if source.time_axis is None else axes[0]
        for stage in stages:
            change = Substitute({}, {tensor.buffer: cached.buffer}).rewrite
            self._replace_op(stage, _map_expressions(stage.op, change))
        return cached

    @primitive("schedule")
    def cache_write(self, tensor: Tensor | Sequence[Tensor], scope: str) -> Any:
        """Compute `tensor` in `scope`, then copy it out. Of an operation with several outputs, give the list of all of them; a list comes back.

        before -> after, `CL = s.cache_write(C, "local")`:

            for i in range(16):             for i in range(16):
                C[i] = 0                        C.local[i] = 0
                for k in range(64):             for k in range(64):
                    C[i] += A[i, k]                 C.local[i] += A[i, k]
                                            for i in range(16):
                                                C[i] = C.local[i]

        The reduce axes go with the computation (`s[CL].op.reduce_axis`); the axes of C stay with the copy. Raises ScheduleError for an input, some of the
        outputs only, or a stage whose loops were already shaped: call cache_write first.
        """
        tensors, what = self._tensors_of(tensor, "cache_write")
        stage = self.stage_of(tensors[0], what)
        self._check_scope(scope, what)
        op = stage.compute_op("cache_write")
        self._check_all_outputs(stage, tensors, what)
        if stage.is_scheduled or stage.attach.kind == "inline":
            done = "is inlined" if stage.attach.kind == "inline" else f"was already scheduled (its leaf axes are {stage.leaves_text()})"
            raise ScheduleError(f"{what}: stage {stage.name} {done}, and that would be lost; call cache_write before split, reorder, vectorize and the like")
        self._nobody_attached_to(stage, op.reduce_axis, what)
        mapping, axes = _fresh_axes(op.axis)
        change = Substitute(mapping).rewrite
        cached_op = ComputeOp(
            f"{op.name}.{scope}",
            axes,
            tuple(change(e) for e in op.body),
            op.reducer,
            op.reduce_axis,
            None if op.condition is None else change(op.condition),
            None if op.init is None else tuple(change(e) for e in op.init),
        )
        cached_stage = self._insert(self.stages.index(stage), cached_op, cached_op.name, is_original=False)
        cached_stage.scope = scope
        cached_stage.attach = cached_stage.home = stage.home
        cached_stage.time_axis = _counterpart(stage.time_axis, op.axis, axes)
        copied = tuple(t(*op.axis) for t in cached_op.outputs)
        self._replace_op(stage, rewritten(op, body=copied, reducer=None, reduce_axis=(), condition=None, init=None))
        stage.leaf_iter_vars = list(op.axis)
        stage.forget_axes(op.reduce_axis)
        return list(cached_op.outputs) if isinstance(tensor, (list, tuple)) else cached_op.outputs[0]

    def _nobody_attached_to(self, stage: Any, axes: Sequence[IterVar], what: str) -> None:
        for other in self.stages:
            if other.attach.kind == "at" and other.attach.consumer is stage and position_of(attach_leaf(other), axes) is not None:
                axis = stage.axis_name(other.attach.axis)
                raise ScheduleError(f"{what}: stage {other.name} is computed at axis {axis} of stage {stage.name}, which goes away; place it afterwards")

    @primitive("schedule")
    def rfactor(self, tensor: Tensor | Sequence[Tensor], axis: IterVar, factor_axis: int = 0) -> Any:
        """Factor a reduction: `axis` (a reduce leaf of the stage of `tensor`) becomes a data-parallel axis of a new stage of partial results, which the
        old stage then reduces.

        before -> after, with `ko, ki = s[C].split(k, factor=8)`, `CF = s.rfactor(C, ki)`:

            for i in range(16):             for ki in range(8):
                C[i] = 0                        for i in range(16):
                for ko in range(8):                 C.rf[ki, i] = 0
                    for ki in range(8):             for ko in range(8):
                        C[i] += A[...]                  C.rf[ki, i] += A[i, ko * 8 + ki]
                                            for i in range(16):
                                                C[i] = 0
                                                for ki in range(8):
                                                    C[i] += C.rf[ki, i]

        `factor_axis`: the dimension of the new axis in the partial results. `init=` stays in the final stage. Of a tuple reduction, give one of its
        outputs or the list of all; the partial results come back as a list. Raises ScheduleError if `axis` is no reduce axis, or the reducer was declared
        with associative=False.
        """
        tensors, what = self._tensors_of(tensor, "rfactor")
        stage = self.stage_of(tensors[0], what)
        op = stage.compute_op("rfactor")
        if isinstance(tensor, (list, tuple)):
            self._check_all_outputs(stage, tensors, what)
        _check_factoring(stage, axis, factor_axis, what)
        reduce_leaves = [leaf for leaf in stage.leaf_iter_vars if leaf.kind != "spatial"]
        self._nobody_attached_to(stage, reduce_leaves, what)
        remaining = [leaf for leaf in reduce_leaves if leaf is not axis]
        factored = IterVar(Range(0, stage.nominal_extent(axis)), axis.name)

        start_of = {leaf: leaf.dom.min for leaf in reduce_leaves if position_of(leaf, op.reduce_axis) is not None}  # root axes may start elsewhere than at 0
        position: dict[IterVar, Expr] = {leaf: leaf.var - start_of.get(leaf, 0) for leaf in remaining}
        position[axis] = factored.var
        mapping, axes = _fresh_axes(op.axis)
        condition = self._reduce_values(stage, op, position, mapping)
        change = Substitute(mapping).rewrite
        if op.condition is not None:
            own = change(op.condition)
            # nested, not joined by "and": past the end of the axis the condition must not be looked at, it may read there
            condition = own if condition is None else if_then_else(condition, own, as_expr(False))
        body = tuple(change(e) for e in op.body)
        time_axis = _counterpart(stage.time_axis, op.axis, axes)
        axes = (*axes[:factor_axis], factored, *axes[factor_axis:])
        name = f"{op.name}.rf"
        if remaining:
            partial = ComputeOp(name, axes, body, op.reducer, remaining, condition)
        else:
            if condition is not None:
                identity = op.reducer.identity([e.dtype for e in body])
                body = tuple(if_then_else(condition, e, i) for e, i in zip(body, identity, strict=True))
            partial = ComputeOp(name, axes, body)
        new = self._insert(self.stages.index(stage), partial, name, is_original=False)
        new.attach = new.home = stage.home
        new.time_axis = time_axis
        new.marks = {leaf: stage.marks.pop(leaf) for leaf in remaining if leaf in stage.marks}

        final = IterVar(Range(0, stage.nominal_extent(axis)), axis.name, axis.kind)
        indices = [*op.axis[:factor_axis], final, *op.axis[factor_axis:]]
        source = tuple(t(*indices) for t in partial.outputs)
        self._replace_op(stage, rewritten(op, body=source, reduce_axis=(final,), condition=None))
        place = min(p for leaf in reduce_leaves if (p := position_of(leaf, stage.leaf_iter_vars)) is not None)
        kept = [leaf for leaf in stage.leaf_iter_vars if leaf.kind == "spatial"]
        stage.leaf_iter_vars = [*kept[:place], final, *kept[place:]]
        gone = [r for r in stage.relations if r.children[0].kind != "spatial"]
        stage.relations = [r for r in stage.relations if r.children[0].kind == "spatial"]
        stage.forget_axes([*op.reduce_axis, *(child for r in gone for child in r.children)])
        stage.axis_name(final)
        return partial.outputs[0] if len(partial.outputs) == 1 else list(partial.outputs)

    def _reduce_values(self, stage: Any, op: ComputeOp, position: dict[IterVar, Expr], mapping: dict[Any, Expr]) -> Expr | None:
        """Add to `mapping` the value of each reduce axis, from the positions of the leaves; returns the guard of the tails."""
        extents = {axis: stage.nominal_extent(axis) for axis in [*op.reduce_axis, *position]}
        for relation in stage.relations:
            for known in (*relation.parents, *relation.children):
                extents[known] = stage.nominal_extent(known)
        condition: Expr | None = None
        for relation in reversed(stage.relations):
            if relation.children[0].kind == "spatial":
                continue
            condition = _inward(relation, position, extents, condition)
        for axis in op.reduce_axis:
            assert axis.dom is not None
            mapping[axis.var] = add(as_expr(axis.dom.min), position[axis])
        return condition


def _check_factoring(stage: Any, axis: IterVar, factor_axis: Any, what: str) -> None:
    """A ScheduleError where a reduction cannot be factored along an axis."""
    op = stage.op
    if op.reducer is None:
        raise ScheduleError(f"{what}: stage {stage.name} is not a reduction")
    stage.leaf(axis, "rfactor")
    if axis.kind == "spatial":
        raise ScheduleError(f"{what}: axis {stage.axis_name(axis)} is a data-parallel axis; give a reduce axis of stage {stage.name}")
    if not op.reducer.associative:
        raise ScheduleError(f"{what}: reducer {op.reducer.name} is declared associative=False, so its order matters and it cannot be factored")
    if isinstance(factor_axis, bool) or not isinstance(factor_axis, int) or not 0 <= factor_axis <= len(op.axis):
        raise ScheduleError(f"{what}: factor_axis must be from 0 to {len(op.axis)}, found {factor_axis!r}")
    for leaf in (axis, *(each for each in stage.leaf_iter_vars if is_scattered(stage, each))):
        asked = stage.asked_of(leaf)
        if asked is not None:
            raise ScheduleError(f"{what}: axis {stage.axis_name(leaf)} {asked}; factor first, then mark axes of the new stage")
    if stage.prefetches:
        prefetched = stage.prefetches[0][0].name
        raise ScheduleError(f"{what}: stage {stage.name} prefetches {prefetched}, which the new stage will read; factor first, then prefetch")


def _inward(relation: Relation, position: dict[IterVar, Expr], extents: dict[IterVar, Any], condition: Expr | None) -> Expr | None:
    found = relation.positions(tuple(position[child] for child in relation.children), extents)
    for parent, value in zip(relation.parents, found, strict=True):
        position[parent] = value
        guard = relation.guard(value, extents)
        if guard is not None:
            condition = guard if condition is None else logical_and(condition, guard)
    return condition


def _map_expressions(op: ComputeOp, change: Any) -> ComputeOp:
    return rewritten(
        op,
        body=tuple(change(e) for e in op.body),
        condition=None if op.condition is None else change(op.condition),
        init=None if op.init is None else tuple(change(e) for e in op.init),
    )


def _counterpart(axis: IterVar | None, old: Sequence[IterVar], new: Sequence[IterVar]) -> IterVar | None:
    """The axis among the new ones in the place that `axis` has among the old ones; None for none."""
    return next((n for o, n in zip(old, new, strict=True) if o is axis), None)


def _fresh_axes(axes: Sequence[IterVar]) -> tuple[dict[Any, Expr], tuple[IterVar, ...]]:
    """Copies of data-parallel axes, and the substitution from the old variables to the new."""
    new = tuple(IterVar(axis.dom, axis.name, axis.kind) for axis in axes)
    return {old.var: n.var for old, n in zip(axes, new, strict=True)}, new
