"""The primitive as_matmul: a sum of products over several axes as one of matrices, each index of which stands for some of the axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..te.axis import IterVar, Range
from ..te.op import ComputeOp
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError
from ..tir.expr import Cast, Expr, Load, Mul, Var, add, as_expr, cast, mul
from ..tir.visit import loads_of, substitute
from .caching import rewritten
from .padding import PaddingPrimitive, Replace, factors
from .relation import Fuse
from .stage import position_of
from .trace import primitive


class MatrixPrimitive(PaddingPrimitive):
    """The primitive of a schedule that makes matrices. The example is written for `C[i, y, x] = sum(W[i, c] * X[c, y * 2, x], axis=c)`, C of 4 x 3 x 5."""

    @primitive("schedule")
    def as_matmul(self, tensor: Tensor, rows: Sequence[IterVar], columns: Sequence[IterVar], terms: Sequence[IterVar]) -> list[Tensor]:
        """Compute a sum of products of two tensors as a product of matrices: `rows`, `columns` and `terms` become one axis each, the first of them outermost.
        Data-parallel axes in neither count matrices. The operands become stages of their own, of what is read of them.

        before -> after, `CM, WM, XM = s.as_matmul(C, [i], [y, x], [c])`:

            for i in range(4):                  for row in range(4):
                for y in range(3):                  for term in range(8):
                    for x in range(5):                  W.matrix[row, term] = W[row, term]
                        for c in range(8):          for term in range(8):
                            C[i, y, x] += ...           for column in range(15):
                                                            X.matrix[term, column] = X[term, column // 5 * 2, column % 5]
                                                    for row in range(4):
                                                        for column in range(15):
                                                            for term in range(8):
                                                                C.matrix[row, column] += W.matrix[row, term] * X.matrix[term, column]
                                                    for i in range(4):
                                                        for y in range(3):
                                                            for x in range(5):
                                                                C[i, y, x] = C.matrix[i, y * 5 + x]

        So a schedule of products serves a convolution (implicit GEMM). Returns the sums, then the left and the right operand; s.pad and cache_read go on
        from there. Place them with compute_at or compute_inline: at root they are whole tensors more. Raises ScheduleError where `tensor` is no sum of
        products of two tensors, one that does not move along `columns` and one that does not along `rows`; for axes that are given twice, belong elsewhere
        or have no constant extent; where `terms` are not all reduce axes; where its loops were already shaped.
        """
        tensors, what = self._tensors_of(tensor, "as_matmul")
        stage = self.stage_of(tensors[0], what)
        op: ComputeOp = stage.compute_op("as_matmul")
        self._check_all_outputs(stage, tensors, what)
        if stage.is_scheduled or stage.attach.kind == "inline" or stage.time_axis is not None:
            raise ScheduleError(f"{what}: stage {stage.name} is inlined, part of a scan, or was already scheduled; call as_matmul before other primitives")
        _check_axes(op, rows, columns, terms, what)
        batch = [axis for axis in op.axis if position_of(axis, [*rows, *columns]) is None]
        left, right = _operands(op, rows, columns, what)
        self._nobody_attached_to(stage, op.reduce_axis, what)

        groups = {"row": _Group("row", rows), "column": _Group("column", columns), "term": _Group("term", terms, "reduce")}
        position, made, changed = self.stages.index(stage), list[Tensor](), dict[Load, Expr]()
        for node, inner in ((left, ("row", "term")), (right, ("term", "column"))):
            kept = [axis for axis in batch if axis.var in node.variables]
            copy = self._insert(position + len(made), _matrix(node, kept, [groups[name] for name in inner]), f"{node.buffer.name}.matrix", is_original=False)
            copy.attach = copy.home = stage.home
            made.append(copy.outputs[0])
            changed[node] = made[-1](*kept, *[groups[name].axis for name in inner])
        name = f"{op.name}.matrix"
        fresh = {axis.var: IterVar(axis.dom, axis.name) for axis in batch}
        body = substitute(Replace(changed).rewrite(_left_first(op.body[0], left)), {old: new.var for old, new in fresh.items()})
        sums = ComputeOp(name, [*fresh.values(), groups["row"].axis, groups["column"].axis], [body], op.reducer, [groups["term"].axis])
        new = self._insert(self.stages.index(stage), sums, name, is_original=False)
        new.attach = new.home = stage.home
        (result,) = sums.outputs
        self._replace_op(stage, rewritten(op, body=(result(*batch, groups["row"].position, groups["column"].position),), reducer=None, reduce_axis=()))
        stage.leaf_iter_vars = list(op.axis)
        stage.forget_axes(op.reduce_axis)
        return [result, *made]


class _Group:
    """Axes, outermost first, and the one axis that stands for them."""

    def __init__(self, name: str, axes: Sequence[IterVar], kind: str = "spatial"):
        self.axes = tuple(axes)
        self.extents = {axis: _extent(axis) for axis in axes}
        total = 1
        for extent in self.extents.values():
            total *= extent
        self.axis = IterVar(Range(0, total), name, kind)

    @property
    def position(self) -> Expr:
        """Where in the one axis values of the axes are."""
        found: Expr = as_expr(0)
        for axis in self.axes:
            found = add(mul(found, as_expr(self.extents[axis])), axis.var)
        return found

    def values(self, position: Expr) -> dict[Var, Expr]:
        """The values of the axes at a position."""
        starts = [as_expr(0 if axis.dom is None else axis.dom.min) for axis in self.axes]
        found = Fuse(self.axes, self.axis).positions((position,), dict(self.extents)) if self.axes else ()
        return {axis.var: add(start, value) for axis, start, value in zip(self.axes, starts, found, strict=True)}


def _extent(axis: IterVar) -> int:
    assert axis.dom is not None and isinstance(axis.dom.extent, int)
    return axis.dom.extent


def _check_axes(op: ComputeOp, rows: Any, columns: Any, terms: Any, what: str) -> None:
    for name, given, known in (("rows", rows, op.axis), ("columns", columns, op.axis), ("terms", terms, op.reduce_axis)):
        if not isinstance(given, (list, tuple)) or any(position_of(axis, known) is None for axis in given):
            kind = "reduce" if name == "terms" else "data-parallel"
            names = ", ".join(axis.name for axis in known) or "none"
            raise ScheduleError(f"{what}: expected for {name} a list of {kind} axes of stage {op.name}, which are {names}, found {given}")  # fmt: skip
    for number, axis in enumerate(all_given := [*rows, *columns, *terms]):
        if position_of(axis, all_given[:number]) is not None:
            raise ScheduleError(f"{what}: axis {axis.name} is given twice")
    for axis in (*op.axis, *op.reduce_axis):
        if axis.dom is None or not isinstance(axis.dom.extent, int) or not isinstance(axis.dom.min, int):
            raise ScheduleError(f"{what}: axis {axis.name} runs over {axis.dom}; a matrix needs constant extents")
        if axis.kind != "spatial" and position_of(axis, terms) is None:
            raise ScheduleError(f"{what}: reduce axis {axis.name} is none of the terms; give all reduce axes, in the order in which they are to be summed")


def _operands(op: ComputeOp, rows: Sequence[IterVar], columns: Sequence[IterVar], what: str) -> tuple[Load, Load]:
    """What is read of the left operand, and of the right one."""
    found = factors(op, what)
    across, down = {axis.var for axis in columns}, {axis.var for axis in rows}
    if len(found) == 2:
        for left, right in (found, found[::-1]):
            if not left.variables & across and not right.variables & down:
                return left, right
    names = [", ".join(axis.name for axis in axes) or "none" for axes in (rows, columns)]
    raise ScheduleError(f"{what}: expected a product of two tensors, of which one is read along the rows ({names[0]}) and not along the columns ({names[1]}), "
                        f"and the other the other way round, but {op.name} sums {op.body[0]}")  # fmt: skip


def _left_first(e: Expr, left: Load) -> Expr:
    """A product, with its left operand first: tensor intrinsics are declared so."""
    if isinstance(e, Cast):
        return cast(_left_first(e.value, left), e.dtype)
    return mul(e.b, e.a) if isinstance(e, Mul) and any(node is left for node in loads_of(e.b)) else e


def _matrix(node: Load, batch: Sequence[IterVar], groups: Sequence[_Group]) -> ComputeOp:
    """What `node` reads, by batch axes and the one axis of each group."""
    own = [IterVar(axis.dom, axis.name) for axis in batch]
    indices = [IterVar(Range(0, group.axis.dom.extent if group.axis.dom is not None else 1), group.axis.name) for group in groups]
    values: dict[Var, Expr] = {old.var: new.var for old, new in zip(batch, own, strict=True)}
    for group, index in zip(groups, indices, strict=True):
        values.update(group.values(index.var))
    return ComputeOp(f"{node.buffer.name}.matrix", [*own, *indices], [substitute(node, values)])
