"""Copies of statements that introduce names of their own, so that every variable and buffer of a function is introduced once; several of a buffer."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import Buffer, Const, Expr, Var, as_expr, mul
from ..stmt import Allocate, Bind, For, Stmt
from ..visit import Substitute


class Copy(Substitute):
    """Variables replaced, and everything that the statement introduces by something new of the same name."""

    def __init__(self, variables: dict[Var, Expr]):
        super().__init__(variables, {})
        self.new_variables: dict[Var, Expr] = variables
        self.new_buffers: dict[Buffer, Buffer] = {}
        self.variables, self.buffers = self.new_variables, self.new_buffers

    def rewrite_For(self, node: For) -> Stmt:
        self.new_variables[node.var] = var = node.var.fresh()
        return For(var, self.rewrite(node.extent), node.kind, self.rewrite_statement(node.body), node.thread, node.pragmas)

    def rewrite_Bind(self, node: Bind) -> Stmt:
        value = self.rewrite(node.value)
        self.new_variables[node.var] = var = node.var.fresh()
        return Bind(var, value, self.rewrite_statement(node.body))

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        old = node.buffer
        self.new_buffers[old] = buffer = Buffer(old.name, old.shape, old.dtype, old.scope, old.strides)
        return Allocate(buffer, self.rewrite_statement(node.body), node.place)


def copy_statement(s: Stmt, variables: dict[Var, Expr] | None = None) -> Stmt:
    """`s` once more, with loop variables and buffers of its own, and `variables` replaced."""
    return Copy(dict(variables or {})).rewrite_statement(s)


def several(buffer: Buffer, counts: Sequence[int | Expr], scope: str | None = None) -> Buffer:
    """A buffer that is so many of `buffer`, one after another: it has `counts` as its first dimensions."""
    shape, strides = buffer.shape, buffer.strides
    for count in reversed(counts):
        if strides is not None:
            whole = mul(as_expr(strides[0]), as_expr(shape[0])) if strides else as_expr(1)
            strides = (int(whole.value) if isinstance(whole, Const) else whole, *strides)
        shape = (count, *shape)
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope if scope is None else scope, strides)
