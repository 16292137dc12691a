"""Copies of statements that introduce names of their own, so that every variable and buffer of a function is introduced once."""

from __future__ import annotations

from ..expr import Buffer, Expr, Var
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
