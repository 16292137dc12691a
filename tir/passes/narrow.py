"""Narrow: chooses the width of index arithmetic: int32 where every intermediate value provably fits, else int64, cast at the leaves.

    A[i * 65536 + j]   with i < 65536, j < 65536   ->   A[int64(i) * 65536 + int64(j)]

Before this pass exact integers are mathematical values and their dtype means nothing; after it they are numbers of their dtype, so only the generator
comes behind. A loop or let variable that may not fit int32 becomes int64 (one with a symbolic extent does). A sum, product or quotient has one width
throughout: converting in the middle costs more than wide arithmetic. Where exact arithmetic is used as a value, the value keeps its dtype and wraps
in it, as NumPy's would. Arithmetic on data is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..bounds import constant_bounds
from ..dtype import INT32, INT64, DType
from ..expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Choice,
    Comparison,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    broadcast,
    call,
    cast,
    const,
    load,
    maximum,
    ramp,
)  # fmt: skip
from ..stmt import Allocate, Bind, CallIntrinsic, For, Func, Place, Prefetch, Stmt, Store
from ..verify import CLOSED, NARROW, TYPED
from ..visit import Rewriter, mapped
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target

_LOW, _HIGH = int(INT32.low), int(INT32.high)
_WIDE, _FITS, _IS = 0, 1, 2  # how an expression goes with int32: some value may not fit; all do; all do, and it is int32 throughout


@dataclass(frozen=True)
class Narrow(Pass):
    """Give every integer expression a dtype that holds its values."""

    name: ClassVar[str] = "narrow"
    requires: ClassVar[tuple[str, ...]] = (TYPED, CLOSED)
    gives: ClassVar[tuple[str, ...]] = (NARROW,)

    def run(self, func: Func, target: Target) -> Func:
        narrower = _Narrower()
        body = narrower.rewrite_statement(func.body)
        call, thread = (narrower.bytes(total) for total in func.workspace_bytes)
        if body is func.body and call is func.workspace_bytes[0] and thread is func.workspace_bytes[1]:
            return func
        return Func(func.name, func.params, func.outputs, body, func.sizes, (call, thread))


class _Narrower(Rewriter):
    """`rewrite` gives a value of the same dtype; `index` one of either width."""

    def __init__(self) -> None:
        super().__init__()
        self.variables: dict[Var, Var] = {}
        self._widths: dict[Expr, int] = {}
        self._at_width: dict[DType, dict[Expr, Expr]] = {INT32: {}, INT64: {}}

    # ----------------------------------------------------------------------------------------------------- exact arithmetic

    def width(self, e: Any) -> int:
        """How the exact expression `e`, and all it is made of, goes with int32."""
        found = self._widths.get(e)
        if found is not None:
            return found
        low, high = constant_bounds(e)
        if low is None or high is None or low < _LOW or high > _HIGH:
            found = _WIDE
        elif e.__class__ is Var:
            found = _IS if e.dtype is INT32 and self.variables.get(e, e) is e else _FITS
        else:
            found = _IS if e.dtype.element is INT32 else _FITS
            operands = e.children
            if e.__class__ is Cast:
                operands, found = () if self._is_leaf(e) else operands, _FITS
            elif isinstance(e, Choice):
                operands, found = operands[1:], _FITS  # a condition has its own widths
            for operand in operands:
                width = self._widths.get(operand)
                if width is None:
                    width = self.width(operand)
                found = min(found, width)
        self._widths[e] = found
        return found

    @staticmethod
    def _is_leaf(e: Expr) -> bool:
        """Whether the exact expression `e` is not made of exact integers."""
        if e.__class__ is Cast:
            return not (e.value.exact and e.value.dtype.is_integer)
        return e.__class__ is Var or e.__class__ is Const

    def at_width(self, e: Expr, kind: DType) -> Expr:
        """The exact expression `e` computed in `kind`."""
        memo = self._at_width[kind]
        found = memo.get(e)
        if found is None:
            found = memo[e] = self._computed(e, kind)
        return found

    def _computed(self, e: Expr, kind: DType) -> Expr:
        cls = e.__class__
        if cls is Const:
            return const(e.value, kind)  # type: ignore[attr-defined]
        if cls is Var:
            return cast(self.variables.get(e, e), kind)  # type: ignore[call-overload]
        if isinstance(e, Binary):
            return e.make(self.at_width(e.a, kind), self.at_width(e.b, kind))
        if isinstance(e, Ramp):
            return ramp(self.at_width(e.base, kind), self.at_width(e.stride, kind), e.dtype.lanes)
        if isinstance(e, Broadcast):
            return broadcast(self.at_width(e.value, kind), e.dtype.lanes)
        if isinstance(e, Call):
            return call(e.name, *[self.at_width(a, kind) for a in e.args])
        if isinstance(e, Choice):
            return e.make(self.rewrite(e.condition), self.at_width(e.then, kind), self.at_width(e.otherwise, kind))
        assert isinstance(e, Cast)
        return cast(self.rewrite(e.value), kind) if self._is_leaf(e) else self.at_width(e.value, kind)

    def index(self, e: Expr) -> Expr:
        """`e` where only its value matters, not its dtype."""
        if not (e.exact and e.dtype.is_integer):
            return self.rewrite(e)
        width = self.width(e)
        return e if width == _IS else self.at_width(e, INT32 if width else INT64)

    def bytes(self, total: int | Expr) -> int | Expr:
        """A number of bytes."""
        return self.index(total) if isinstance(total, Expr) else total

    # --------------------------------------------------------------------------------------------------------------- values

    def rewrite(self, node: Expr) -> Expr:
        found = self.memo.get(node)
        if found is None:
            if node.exact and node.dtype.is_integer:
                found = self._value(node)
            else:
                found = self._table[node.__class__](self, node)
            self.memo[node] = found
        return found

    def _value(self, e: Expr) -> Expr:
        """The exact `e` as a number of its dtype, in which it wraps."""
        wide = self.variables.get(e, e) if e.__class__ is Var else self.index(e)
        low, high = constant_bounds(e)
        if wide.dtype is not e.dtype and (low is None or high is None or low < e.dtype.low or high > e.dtype.high):
            wide = call("wrap", wide)
        return cast(wide, e.dtype)

    def rewrite_Call(self, node: Call) -> Expr:
        if node.name == "wrap" and node.args[0].exact:
            value = self._value(node.args[0])
            return call("wrap", value) if value.exact else value
        return self.rewrite_children(node)  # type: ignore[no-any-return]

    def rewrite_Comparison(self, node: Comparison) -> Expr:
        a, b = node.a, node.b
        if a.exact and b.exact and a.dtype.is_integer:
            width = min(self.width(a), self.width(b))
            if width == _IS:
                return node
            kind = INT32 if width else INT64
            new_a, new_b = self.at_width(a, kind), self.at_width(b, kind)
        else:
            new_a, new_b = self.rewrite(a), self.rewrite(b)
        return node if new_a is a and new_b is b else node.make(new_a, new_b)

    def rewrite_Cast(self, node: Cast) -> Expr:
        value = self.index(node.value)
        return node if value is node.value else cast(value, node.dtype)

    def rewrite_Load(self, node: Load) -> Expr:
        indices = mapped(self.index, node.indices)
        predicate = None if node.predicate is None else self.rewrite(node.predicate)
        return node if indices is node.indices and predicate is node.predicate else load(node.buffer, indices, predicate)

    # ----------------------------------------------------------------------------------------------------------- statements

    def rewrite_Store(self, node: Store) -> Stmt:
        indices, value = mapped(self.index, node.indices), self.rewrite(node.value)
        predicate = None if node.predicate is None else self.rewrite(node.predicate)
        if indices is node.indices and value is node.value and predicate is node.predicate:
            return node
        return Store(node.buffer, indices, value, predicate)

    def rewrite_Prefetch(self, node: Prefetch) -> Stmt:
        return Prefetch(node.buffer, mapped(self.index, node.indices))

    def rewrite_CallIntrinsic(self, node: CallIntrinsic) -> Stmt:
        args = [self.rewrite(a) for a in node.args]
        return node.with_parts([*args, *map(self.index, node.parts[len(args) :])])

    def rewrite_For(self, node: For) -> Stmt:
        var, extent = node.var, self.index(node.extent)
        low, high = constant_bounds(node.extent)
        if not self.width(var) or (high is not None and high > _HIGH):
            extent = cast(extent, INT64)
        elif extent.dtype is INT64:
            if low is None or low < _LOW:  # what is below zero must not wrap to above
                extent = maximum(extent, const(0, INT64))
            extent = cast(extent, INT32)
        var = self._variable(var, extent.dtype)
        body = self.rewrite_statement(node.body)
        if extent is node.extent and body is node.body and var is node.var:
            return node
        return For(var, extent, node.kind, body, node.thread, node.pragmas)

    def rewrite_Bind(self, node: Bind) -> Stmt:
        var, value = node.var, node.value
        if value.exact and value.dtype.is_integer:
            value = self.at_width(value, INT32 if self.width(value) and self.width(var) else INT64)
            var = self._variable(var, value.dtype)
        else:
            value = self.rewrite(value)
        body = self.rewrite_statement(node.body)
        return node if value is node.value and body is node.body and var is node.var else Bind(var, value, body)

    def _variable(self, var: Var, kind: DType) -> Var:
        """`var`, or the one in its place of another width. The copies of a loop that unrolling makes share its variable, and what was made of it."""
        known = self.variables.get(var)
        if known is not None and known.dtype is kind:
            return known
        if known is not None:
            for memo in (self.memo, *self._at_width.values()):
                memo.clear()
        new = self.variables[var] = var if var.dtype is kind else var.fresh(kind)
        if new is not var or known is not None:
            self._widths.clear()
        return new

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        place, body = node.place, self.rewrite_statement(node.body)
        if place is not None and isinstance(place.offset, Expr):
            place = Place(place.kind, self.bytes(place.offset))
        return node if body is node.body and place is node.place else Allocate(node.buffer, body, place)
