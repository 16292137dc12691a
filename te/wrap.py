"""Index arithmetic used as a value.

Arithmetic on axes, sizes and constants is exact. Where its result meets data, or is the value of a computation, it becomes a number of its
dtype and wraps there (two's complement), like all data. Where it might not fit, that is written down as the function "wrap", so that no
later pass needs to know which arithmetic was whose.
"""

from __future__ import annotations

from ..tir.bounds import constant_bounds
from ..tir.expr import Binary, Call, Cast, Choice, Comparison, Const, Expr, Load, Var, call, const
from ..tir.visit import Rewriter


def wrapped_value(e: Expr) -> Expr:
    """The value `e` of a computation, with its index arithmetic wrapping where it is used as data."""
    return _as_data(_Wrap().rewrite(e))


def _as_data(e: Expr) -> Expr:
    """`e` where a number of its dtype is due."""
    if not e.exact or not e.dtype.is_integer or isinstance(e, Var):
        return e
    low, high = constant_bounds(e)
    kind = e.dtype
    if low is not None and high is not None and kind.low <= low and high <= kind.high:
        return e
    if isinstance(e, Const):
        return const((int(e.value) - int(kind.low)) % (1 << kind.bits) + int(kind.low), kind)
    return call("wrap", e)


class _Wrap(Rewriter):
    """Wraps what non-exact nodes take as operands. Indices of loads, conditions and the operands of exact arithmetic stay exact."""

    def rewrite_Binary(self, node: Binary) -> Expr:
        a, b = self.rewrite(node.a), self.rewrite(node.b)
        if not node.exact:
            a, b = _as_data(a), _as_data(b)
        return node if a is node.a and b is node.b else type(node).make(a, b)

    def rewrite_Comparison(self, node: Comparison) -> Expr:
        a, b = self.rewrite(node.a), self.rewrite(node.b)
        if not (a.exact and b.exact):  # with data on one side the other is data too
            a, b = _as_data(a), _as_data(b)
        return node if a is node.a and b is node.b else type(node).make(a, b)

    def rewrite_Choice(self, node: Choice) -> Expr:
        condition, then, otherwise = self.rewrite(node.condition), self.rewrite(node.then), self.rewrite(node.otherwise)
        if not node.exact:
            then, otherwise = _as_data(then), _as_data(otherwise)
        if condition is node.condition and then is node.then and otherwise is node.otherwise:
            return node
        return type(node).make(condition, then, otherwise)

    def rewrite_Cast(self, node: Cast) -> Expr:
        value = self.rewrite(node.value)
        if not node.exact:
            value = _as_data(value)
        if node.exact and _as_data(node) is not node:  # int64 to int32: the user asked for the low bits
            value = call("wrap", value)
        return node if value is node.value else node.with_children((value,))

    def rewrite_Call(self, node: Call) -> Expr:
        args = [_as_data(self.rewrite(a)) for a in node.args]
        return node if all(a is b for a, b in zip(args, node.args, strict=True)) else node.with_children(args)

    def rewrite_Load(self, node: Load) -> Expr:
        return self.rewrite_children(node)  # type: ignore[no-any-return]
