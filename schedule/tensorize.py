"""tensorize: a loop nest is replaced by an intrinsic. The primitive, and the comparison of a nest with the pattern of an intrinsic.

What the nest computes is known when it is lowered (inlined stages are put in by then), so that is when it is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from ..te.axis import IterVar
from ..te.intrin import TensorIntrin, tensor_intrin
from ..tir.errors import ScheduleError, TEError
from ..tir.expr import Add, Buffer, Call, Const, Expr, Load, Mul, Var, as_expr, const, load, sub
from ..tir.simplify import Analyzer
from ..tir.stmt import CallIntrinsic, IntrinsicCode
from ..tir.visit import loads_of, substitute
from .bounds import attach_leaf
from .stage import StageState, position_of
from .trace import primitive

_SPLIT = "Split and reorder so that the loops from the axis inwards have these extents"
_DECLARE = "Declare what the pattern says, its casts too"


class TensorizePrimitive(StageState):
    """Replacing loops by an intrinsic."""

    @primitive("stage")
    def tensorize(self, axis: IterVar, intrinsic: TensorIntrin | str) -> None:
        """Replace the loops from `axis` inwards by an intrinsic (te.decl_tensor_intrin, or the name of one that is declared).

        before -> after, `s[C].tensorize(ji, "dot_u8s8_8x4")`:

            for ji in range(8):             intrinsic dot_u8s8_8x4_update(c=&C[i, jo * 8] ..., a=&A[i, ko * 4] ..., b=&B[jo, ko, 0, 0] ...)
                for ki in range(4):
                    C[i, jo * 8 + ji] = ...

        The nest must be the pattern: loops of its extents, the same expression of the same dtypes, and every operand moving along a loop by a constant
        distance, where it does in the pattern. Initial values of a reduction are stored by the intrinsic's init where it has one, else by loops. Raises
        ScheduleError if `axis` is no leaf, or a loop inside it is marked; when lowered, if the nest is not the pattern (with both written out), is inside a
        vectorised loop, holds another stage, or has a guard inside.
        """
        position = self.leaf(axis, "tensorize")
        what = f"tensorize on stage {self.name}"
        if isinstance(intrinsic, str):
            try:
                intrinsic = tensor_intrin(intrinsic)
            except TEError as error:
                raise ScheduleError(f"{what}: {error}") from None
        if not isinstance(intrinsic, TensorIntrin):
            raise ScheduleError(f"{what}: expected a tensor intrinsic (te.decl_tensor_intrin) or the name of one, found {intrinsic!r}")
        self.compute_op("tensorize")
        if self.asked_of(axis) is not None:
            raise ScheduleError(f"{what}: axis {self.axis_name(axis)} {self.asked_of(axis)}; an intrinsic takes the place of plain loops")
        check_plain(self, position)
        self.mark(axis).intrinsic = intrinsic


def check_plain(stage: Any, position: int) -> None:
    """Loops that an intrinsic takes the place of: nothing else was asked of those inside the leaf at `position`, nor are they lanes of a vector."""
    for leaf in stage.leaf_iter_vars[position + 1 :]:
        asked = stage.asked_of(leaf)
        if asked is not None:
            raise ScheduleError(f"tensorize on stage {stage.name}: axis {stage.axis_name(leaf)}, inside axis "
                                f"{stage.axis_name(stage.leaf_iter_vars[position])}, {asked}; an intrinsic takes the place of plain loops")  # fmt: skip


def intrinsic_at(stage: Any, leaf: IterVar) -> TensorIntrin | None:
    """The intrinsic that takes the place of a leaf and the loops inside."""
    mark = stage.marks.get(leaf)
    return None if mark is None else mark.intrinsic


def check_surroundings(stage: Any, position: int) -> None:
    """An intrinsic is no lane of a vector."""
    name, inner, here = stage.name, stage, position
    while True:
        for leaf in stage.leaf_iter_vars[:position]:
            mark = stage.marks.get(leaf)
            if mark is not None and mark.kind == "vectorized":
                raise ScheduleError(f"tensorize on stage {name}: axis {inner.axis_name(inner.leaf_iter_vars[here])} is inside the vectorized loop "
                                    f"{stage.axis_name(leaf)} of stage {stage.name}; vectorize another loop, or none")  # fmt: skip
        if stage.attach.kind != "at":
            return
        leaf, stage = attach_leaf(stage), stage.attach.consumer
        found = position_of(leaf, stage.leaf_iter_vars)
        assert found is not None
        position = found + 1


@dataclass(frozen=True)
class Nest:
    """The loops that are to be replaced: (axis, variable, extent) of each, where the result goes, and the values that are stored or reduced there."""

    stage: Any
    loops: Sequence[tuple[IterVar, Var, Any]]
    target: tuple[Buffer, tuple[Expr, ...]]
    value: Expr
    condition: Expr | None


class Match:
    """A nest that is the pattern of an intrinsic; a ScheduleError shows both where it is not.

    `variables`: the loop variable for each axis of the pattern, None where an axis of extent 1 has no loop; `places`: what stands for each tensor of it.
    """

    def __init__(self, intrinsic: TensorIntrin, nest: Nest):
        self.intrinsic, self.nest = intrinsic, nest
        self._analyzer = Analyzer()
        self._moving = [v for _, v, _ in nest.loops]
        op, stage = intrinsic.op, nest.stage
        if (op.reducer is None) != (stage.op.reducer is None):
            raise self._mismatch("one of them is a reduction", _DECLARE)
        for leaf, _, extent in nest.loops:
            if not isinstance(extent, int):
                raise self._mismatch(f"the extent {extent} of axis {stage.axis_name(leaf)} is not constant")
        if nest.condition is not None:
            raise self._mismatch(f"terms are left out by where={nest.condition}")
        target = load(*nest.target)
        expected: Expr = load(intrinsic.output.buffer, [a.var for a in op.axis])
        self.places: dict[Buffer, Load] = {}
        if not self._same(expected, target):
            raise self._mismatch("the dtypes of the results differ", _DECLARE)
        pattern_value, value = op.body[0], nest.value
        if op.reducer is not None:
            if not self._same(op.reducer.combine([expected], [pattern_value])[0], stage.op.reducer.combine([target], [value])[0]):
                raise self._mismatch("the expressions or their dtypes differ", _DECLARE)
        elif not self._same(pattern_value, value):
            raise self._mismatch("the expressions or their dtypes differ", _DECLARE)
        self._steps = {buffer: self._steps_of(node) for buffer, node in self.places.items()}
        self.variables = self._assignment()

    def _same(self, pattern: Expr, found: Expr) -> bool:
        """Whether two expressions are the same but for what they load; notes what stands for each tensor of the pattern."""
        if isinstance(pattern, Load):
            if not isinstance(found, Load) or found.dtype is not pattern.dtype:
                return False
            return self.places.setdefault(pattern.buffer, found) is found
        if pattern.__class__ is not found.__class__ or pattern.dtype is not found.dtype:
            return False
        if not pattern.children:
            return pattern is found
        if isinstance(pattern, Call) and isinstance(found, Call) and pattern.name != found.name:
            return False
        if len(pattern.children) != len(found.children):
            return False
        before = dict(self.places)
        orders = [found.children, found.children[::-1]] if isinstance(pattern, (Add, Mul)) else [found.children]
        for order in orders:
            if all(self._same(a, b) for a, b in zip(pattern.children, order, strict=True)):
                return True
            self.places = dict(before)
        return False

    def _steps_of(self, node: Load) -> dict[Var, tuple[int, ...]]:
        """How far each loop moves a place in each dimension of its buffer."""
        found: dict[Var, list[int]] = {v: [] for v in self._moving}
        at_start = {v: const(0, v.dtype) for v in self._moving}
        for index in node.indices:
            start = substitute(index, at_start)
            rest = sub(index, start)
            for _, v, extent in self.nest.loops:
                step = self._analyzer.simplify(sub(substitute(index, {**at_start, v: const(1, v.dtype)}), start)) if extent != 1 else const(0, index.dtype)
                if not isinstance(step, Const):
                    raise self._mismatch(f"index {index} of {node} does not move by a constant along {v.name}")
                found[v].append(int(step.value))
                rest = rest - v * int(step.value)
            left = self._analyzer.simplify(substitute(rest, {v: const(0, v.dtype) for _, v, extent in self.nest.loops if extent == 1}))
            if not isinstance(left, Const) or left.value != 0:
                raise self._mismatch(f"index {index} of {node} does not move by constant distances")
        return {v: tuple(steps) for v, steps in found.items()}

    def _assignment(self) -> dict[IterVar, Var | None]:
        """Which loop is which axis of the pattern."""
        axes, loops = self.intrinsic.axes, [each for each in self.nest.loops if each[2] != 1]
        wanted = [a for a in axes if _extent(a) != 1]
        for order in permutations(loops) if len(loops) == len(wanted) <= 6 else ():
            if any(leaf.kind != a.kind or extent != _extent(a) for a, (leaf, _, extent) in zip(wanted, order, strict=True)):
                continue
            found: dict[IterVar, Var | None] = dict.fromkeys(axes)
            found.update({a: v for a, (_, v, _) in zip(wanted, order, strict=True)})
            if self._moves_alike(found):
                return found
        alike = sorted((leaf.kind, str(extent)) for leaf, _, extent in loops) == sorted((a.kind, str(_extent(a))) for a in wanted)
        raise self._mismatch("the operands move along other loops" if alike else "the extents or kinds of the loops differ")

    def _moves_alike(self, variables: dict[IterVar, Var | None]) -> bool:
        """Whether each operand stands still just along the loops along which it does in the pattern."""
        for buffer, steps in self._steps.items():
            indexed = {i for node in self._pattern_loads() if node.buffer is buffer for i in node.indices}
            for axis, variable in variables.items():
                if variable is not None and any(steps[variable]) != (axis.var in indexed):
                    return False
        return True

    def _pattern_loads(self) -> list[Load]:
        op = self.intrinsic.op
        return loads_of(load(self.intrinsic.output.buffer, [a.var for a in op.axis])) + loads_of(op.body[0])

    def call(self, code: IntrinsicCode) -> CallIntrinsic:
        """The statement that takes the place of the nest."""
        loads = {node.buffer.name: node for node in self._pattern_loads()}
        at_start = {v: const(0, v.dtype) for v in self._moving}
        args, steps = [], []
        for name in code.operands:
            pattern = loads[name]
            place = self.places[pattern.buffer]
            args.append(load(place.buffer, [self._analyzer.simplify(substitute(i, at_start)) for i in place.indices]))
            along = []
            for index in pattern.indices:
                axis = next(a for a in self.intrinsic.axes if a.var is index)
                variable = self.variables[axis]
                moved = (0,) * len(place.indices) if variable is None else self._steps[pattern.buffer][variable]
                along.append(tuple(as_expr(step) for step in moved))
            steps.append(tuple(along))
        return CallIntrinsic(code, tuple(args), tuple(steps))

    def _mismatch(self, why: str, advice: str = _SPLIT) -> ScheduleError:
        op, stage = self.intrinsic.op, self.nest.stage
        loops = ", ".join(f"{a.name} in {_extent(a)}{' (reduce)' if a.kind == 'reduce' else ''}" for a in self.intrinsic.axes)
        reducer = "" if op.reducer is None else f"{op.reducer.name} of "
        tensors = ", ".join(f"{t.name}: {t.dtype}" for t in (*op.outputs, *op.input_tensors))
        output = load(self.intrinsic.output.buffer, [a.var for a in op.axis])
        found = ", ".join(f"{stage.axis_name(leaf)} in {extent}{' (reduce)' if leaf.kind == 'reduce' else ''}" for leaf, _, extent in self.nest.loops)
        found_reducer = "" if stage.op.reducer is None else f"{stage.op.reducer.name} of "
        target = load(*self.nest.target)
        buffers = {b.name: b for b in (self.nest.target[0], *(n.buffer for n in loads_of(self.nest.value)))}
        return ScheduleError(
            f"tensorize on stage {stage.name}: the loops are not the pattern of intrinsic {self.intrinsic.name}: {why}.\n"
            f"  expected: for {loops}: {output} = {reducer}{op.body[0]}, with {tensors}\n"
            f"  found:    for {found}: {target} = {found_reducer}{self.nest.value}, with {', '.join(f'{n}: {b.dtype}' for n, b in buffers.items())}\n"
            f"{advice}, or declare another intrinsic"
        )


def _extent(axis: IterVar) -> Any:
    assert axis.dom is not None
    return axis.dom.extent


def check_guards(stage: Any, leaf: IterVar, conditions: Sequence[Expr], variables: set[Var]) -> None:
    """No guard may be left for the loops that an intrinsic takes the place of."""
    for condition in conditions:
        if condition.variables & variables:
            raise ScheduleError(f"tensorize on stage {stage.name}: inside axis {stage.axis_name(leaf)} some iterations are left out: they run only where "
                                f"{condition}. An intrinsic does all of them: use factors that divide the extents, or pad the tensor (s.pad)")  # fmt: skip
