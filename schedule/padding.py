"""The primitive pad: a sum of products over extents that are rounded up, of operands that are zero beyond their ends."""

from __future__ import annotations

from ..te.axis import IterVar, Range
from ..te.op import ComputeOp
from ..te.reduce import is_sum
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError
from ..tir.expr import Cast, Expr, Load, Mul, Var, as_expr, const, if_then_else, logical_and, lt
from ..tir.visit import Rewriter
from .caching import CachingPrimitives, rewritten
from .trace import primitive


class PaddingPrimitive(CachingPrimitives):
    """The primitive of a schedule that rounds extents up. The example is written for `C[i] = sum(A[i, k] * B[k], axis=k)`, A of 5 x 30."""

    @primitive("schedule")
    def pad(self, tensor: Tensor, *multiples: int) -> list[Tensor]:
        """Compute a sum of products over extents rounded up to `multiples`, one for each axis of `tensor` and then for each reduce axis, and copy out what was
        asked for. The operands become stages of their own, with zeros beyond their ends; so no loop over the padded extents needs a guard.

        before -> after, `CP, AP, BP = s.pad(C, 4, 8)`:

            for i in range(5):              for i in range(8):
                for k in range(30):             for k in range(32):
                    C[i] += A[i, k] * B[k]          A.pad[i, k] = A[i, k] if i < 5 and k < 30 else 0
                                            for k in range(32):
                                                B.pad[k] = B[k] if k < 30 else 0
                                            for i in range(8):
                                                for k in range(32):
                                                    C.pad[i] += A.pad[i, k] * B.pad[k]
                                            for i in range(5):
                                                C[i] = C.pad[i]

        Returns the padded sums, then the padded operands in the order in which they are read. Place them with compute_at or compute_inline: at root they are
        whole tensors more. Raises ScheduleError where `tensor` is no sum of products of tensors read at plain axes of constant extents, or a reduce axis that
        needs padding is none of an operand's; where its loops were already shaped; for multiples that are not one for each axis.
        """
        tensors, what = self._tensors_of(tensor, "pad")
        stage = self.stage_of(tensors[0], what)
        op: ComputeOp = stage.compute_op("pad")
        self._check_all_outputs(stage, tensors, what)
        if stage.is_scheduled or stage.attach.kind == "inline" or stage.time_axis is not None:
            raise ScheduleError(f"{what}: stage {stage.name} is inlined, part of a scan, or was already scheduled; call pad before other primitives")
        axes = (*op.axis, *op.reduce_axis)
        if len(multiples) != len(axes) or any(isinstance(m, bool) or not isinstance(m, int) or m < 1 for m in multiples):
            raise ScheduleError(f"{what}: expected a positive multiple for each of the axes {', '.join(a.name for a in axes)}, found {multiples}")
        padded = {axis.var: _Axis(axis, m, what) for axis, m in zip(axes, multiples, strict=True)}
        operands = _operands(op, padded, what)
        self._nobody_attached_to(stage, op.reduce_axis, what)
        position, found = self.stages.index(stage), list[Tensor]()
        changed: dict[Load, Expr] = {}
        for node, source in operands.items():
            copy = self._insert(position + len(found), _padded_copy(node, source, padded), f"{source.name}.pad", is_original=False)
            copy.attach = copy.home = stage.home
            (tensor_of_copy,) = copy.outputs
            found.append(tensor_of_copy)
            changed[node] = tensor_of_copy(*[padded[i].new for i in node.indices if isinstance(i, Var)])
        name = f"{op.name}.pad"
        sums = ComputeOp(
            name, [padded[a.var].new for a in op.axis], [Replace(changed).rewrite(op.body[0])], op.reducer, [padded[a.var].new for a in op.reduce_axis]
        )
        new = self._insert(self.stages.index(stage), sums, name, is_original=False)
        new.attach = new.home = stage.home
        (result,) = sums.outputs
        self._replace_op(stage, rewritten(op, body=(result(*op.axis),), reducer=None, reduce_axis=()))
        stage.leaf_iter_vars = list(op.axis)
        stage.forget_axes(op.reduce_axis)
        return [result, *found]


class _Axis:
    """An axis and the one of rounded extent that takes its place."""

    def __init__(self, axis: IterVar, multiple: int, what: str):
        extent = None if axis.dom is None else axis.dom.extent
        if not isinstance(extent, int) or axis.dom is None or (axis.kind == "reduce" and axis.dom.min != 0):
            raise ScheduleError(f"{what}: axis {axis.name} runs over {axis.dom}; padding needs a constant extent, from 0")
        self.extent, self.name = extent, axis.name
        self.size = max(1, -(-extent // multiple)) * multiple
        self.new = IterVar(Range(0, self.size), axis.name, axis.kind)

    @property
    def grows(self) -> bool:
        """Whether the extent is no multiple already."""
        return self.size != self.extent


def factors(op: ComputeOp, what: str) -> list[Load]:
    """The factors of the products that are summed, each once, in the order in which they are read; a ScheduleError where it is another computation."""
    if op.reducer is None or not is_sum(op.reducer) or op.condition is not None or op.init is not None or len(op.body) != 1:
        raise ScheduleError(f"{what}: stage {op.name} is no plain sum (te.sum without where= and init=) of products")
    found: dict[Load, None] = {}
    pending: list[Expr] = [op.body[0]]
    while pending:
        e = pending.pop()
        if isinstance(e, Mul):
            pending += [e.b, e.a]
        elif isinstance(e, Cast):
            pending.append(e.value)
        elif isinstance(e, Load):
            found[e] = None
        else:
            raise ScheduleError(f"{what}: expected a sum of products of tensors, but {op.name} sums {op.body[0]}, where {e} is none")
    return list(found)


def _operands(op: ComputeOp, padded: dict[Var, _Axis], what: str) -> dict[Load, Tensor]:
    """The factors of the products that are summed, in order, and the tensors they read."""
    found = {node: next(t for t in op.input_tensors if t.buffer is node.buffer) for node in factors(op, what)}
    for node in found:
        if len(set(node.indices)) < len(node.indices) or any(i not in padded for i in node.indices):
            raise ScheduleError(f"{what}: expected tensors that are read at axes, but {op.name} reads {node}")
        for axis in op.reduce_axis:
            if padded[axis.var].grows and axis.var not in set(node.indices):
                raise ScheduleError(
                    f"{what}: {node} has no axis {axis.name}, which is to be padded; a product is certainly zero only where all its operands are"
                )
    return found


def _padded_copy(node: Load, source: Tensor, padded: dict[Var, _Axis]) -> ComputeOp:
    """An operand with zeros beyond its ends."""
    axes = [padded[i] for i in node.indices if isinstance(i, Var)]
    own = [IterVar(Range(0, axis.size), axis.name) for axis in axes]
    condition: Expr | None = None
    for axis, each in zip(axes, own, strict=True):
        if axis.grows:
            inside = lt(each.var, as_expr(axis.extent))
            condition = inside if condition is None else logical_and(condition, inside)
    value = source(*own)
    return ComputeOp(f"{source.name}.pad", own, (value if condition is None else if_then_else(condition, value, const(0, value.dtype)),))


class Replace(Rewriter):
    """Loads by other expressions."""

    def __init__(self, changed: dict[Load, Expr]):
        super().__init__()
        self.changed = changed

    def rewrite_Load(self, node: Load) -> Expr:
        return self.changed[node]
