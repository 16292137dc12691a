"""The graph of operations: who reads whom."""

from __future__ import annotations

from collections.abc import Iterable

from ..tir.expr import Expr, Var
from .op import Operation
from .tensor import Tensor


def operations(outputs: Iterable[Operation | Tensor]) -> list[Operation]:
    """All operations that the outputs need, themselves included, each after what it reads."""
    order: list[Operation] = []
    done: set[Operation] = set()
    stack = [(op.op if isinstance(op, Tensor) else op, False) for op in outputs]
    stack.reverse()
    while stack:
        op, inputs_done = stack.pop()
        if inputs_done:
            order.append(op)
            continue
        if op in done:
            continue
        done.add(op)
        stack.append((op, True))
        stack.extend((t.op, False) for t in reversed(op.input_tensors) if t.op not in done)
    return order


def consumers(order: Iterable[Operation]) -> dict[Tensor, list[Operation]]:
    """Each tensor of the operations -> those of them that read it, in order."""
    found: dict[Tensor, list[Operation]] = {}
    for op in order:
        for tensor in op.outputs:
            found.setdefault(tensor, [])
        for tensor in op.input_tensors:
            found.setdefault(tensor, []).append(op)
    return found


def sizes_of(order: Iterable[Operation]) -> set[Var]:
    """The size variables in the shapes of the operations' tensors."""
    return {v for op in order for t in op.outputs for extent in t.shape if isinstance(extent, Expr) for v in extent.variables}
