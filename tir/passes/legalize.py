"""Legalize: rewrites what C cannot say, or says badly, into what it says well. The last pass before the C generator.

    i // 4, i % 4 with i >= 0           ->  truncdiv(i, 4), truncmod(i, 4): C's own division; others stay, and the generator calls a function
    float16 a + b                       ->  float16(float32(a) + float32(b)): small floats are storage, arithmetic is in float32, rounded each time;
                                            sums, differences, products and comparisons stay where the GPU has them (`Gpu.native_halves`)
    if_then_else(mask, A[ramp], 0)      ->  select(mask, A[ramp if mask], 0): lanes are chosen, loads are guarded
    A[i if p] with a scalar p           ->  if_then_else(p, A[i], 0); such a store becomes an If
    int8(x) of a float x                ->  int8(int32(x)); uint32(x) -> uint32(int64(x)): conversions that the machine has; of vectors also
                                            int8(x) of an int32 x -> int8(int16(x))
    max(a, b), a < b of bools           ->  a or b, not a and b

It knows C, not how C is written: that is targets/c*.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..bounds import constant_bounds
from ..dtype import FLOAT32, INT32, INT64, DType, dtype
from ..expr import (
    HAS_VARIABLE,
    Binary,
    Broadcast,
    Call,
    Cast,
    Choice,
    Const,
    Div,
    Expr,
    IfThenElse,
    Load,
    Max,
    Min,
    broadcast,
    call,
    cast,
    const,
    if_then_else,
    load,
    logical_and,
    logical_not,
    logical_or,
    select,
)
from ..stmt import Func, If, Stmt, Store
from ..verify import CLOSED, EMITTABLE, FLAT, IN_BOUNDS, NARROW, NO_VECTOR_LOOPS, PLACED, RACE_FREE, TYPED, UNROLLED
from ..visit import Rewriter, loads_of
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True)
class Legalize(Pass):
    """See the top of this file for before -> after."""

    name: ClassVar[str] = "legalize"
    requires: ClassVar[tuple[str, ...]] = (TYPED, CLOSED, IN_BOUNDS, RACE_FREE, FLAT, NO_VECTOR_LOOPS, PLACED, UNROLLED, NARROW)
    gives: ClassVar[tuple[str, ...]] = (EMITTABLE,)

    def run(self, func: Func, target: Target) -> Func:
        native = target.gpu.native_halves if target.kind == "cuda" else frozenset[str]()
        return func.with_body(_Legalizer(native).rewrite_statement(func.body))


def is_small_float(kind: DType) -> bool:
    """Whether a dtype is kept in memory only, and computed with in float32."""
    return kind.is_float and kind.bits < 32


class _Legalizer(Rewriter):
    """`native`: the small floats whose arithmetic, division apart, stays as it is. Rounded once either way, so that results are the same."""

    def __init__(self, native: frozenset[str]) -> None:
        super().__init__()
        self.native = native

    def rewrite(self, node: Expr) -> Expr:
        if node.exact and not node.holds & ~HAS_VARIABLE:
            return node  # sums and products of variables and constants: nearly all indices are, and C has words for them
        return super().rewrite(node)

    # ---------------------------------------------------------------------------------------------------------- integer division

    def rewrite_FloorDiv(self, node: Binary) -> Expr:
        return self._division(node, self.rewrite_children(node), "truncdiv")

    def rewrite_FloorMod(self, node: Binary) -> Expr:
        return self._division(node, self.rewrite_children(node), "truncmod")

    def _division(self, original: Binary, e: Any, truncating: str) -> Expr:
        """`e` is `original` with legal operands, whose signs are known from the original ones."""
        if not isinstance(e, Binary):  # folded
            return e  # type: ignore[no-any-return]
        kind = e.dtype
        divisor = e.b.value if isinstance(e.b, Broadcast) else e.b
        power = kind.lanes > 1 and isinstance(divisor, Const) and divisor.value > 0 and divisor.value & (divisor.value - 1) == 0
        if power:  # of a vector, also where lanes may be negative: these round down
            value = int(divisor.value)  # type: ignore[attr-defined]
            if truncating == "truncdiv":
                return call("shift_right", e.a, const(value.bit_length() - 1, kind))
            return call("bitwise_and", e.a, const(value - 1, kind))
        dividend_low, divisor_low = constant_bounds(original.a)[0], constant_bounds(original.b)[0]
        if dividend_low is not None and dividend_low >= 0 and divisor_low is not None and divisor_low > 0:
            return call(truncating, e.a, e.b)
        return e

    # -------------------------------------------------------------------------------------------------------------- small floats

    def rewrite_Binary(self, node: Binary) -> Expr:
        """Arithmetic and comparisons of small floats in float32, where the target has no other."""
        a, b = self.rewrite(node.a), self.rewrite(node.b)
        if is_small_float(a.dtype.element) and not (a.dtype.element in self.native and node.__class__ is not Div):
            result = node.make(self._wide(a), self._wide(b))
            return result if result.dtype.is_bool else self._converted(result, node.dtype)
        if a.dtype.is_bool:
            word = node.symbol
            if word == "<":
                return logical_and(logical_not(a), b)
            if word == "<=":
                return logical_or(logical_not(a), b)
        return node if a is node.a and b is node.b else node.make(a, b)

    def rewrite_Min(self, node: Min) -> Expr:
        return self._extremum(node)

    def rewrite_Max(self, node: Max) -> Expr:
        return self._extremum(node)

    def _extremum(self, node: Binary) -> Expr:
        if node.dtype.is_bool:
            join = logical_and if isinstance(node, Min) else logical_or
            return join(self.rewrite(node.a), self.rewrite(node.b))
        return self.rewrite_Binary(node)

    @staticmethod
    def _wide(e: Expr) -> Expr:
        return cast(e, FLOAT32)

    def rewrite_Call(self, node: Call) -> Expr:
        changed = self.rewrite_children(node)
        if not isinstance(changed, Call) or changed.name == "reinterpret" or not is_small_float(changed.args[0].dtype.element):
            return changed  # type: ignore[no-any-return]
        if changed.name == "abs" and changed.dtype.element in self.native:
            return changed
        result = call(changed.name, *[self._wide(a) for a in changed.args])
        return result if result.dtype.is_bool else cast(result, changed.dtype)

    def rewrite_Cast(self, node: Cast) -> Expr:
        return self._converted(self.rewrite(node.value), node.dtype)

    @staticmethod
    def _converted(value: Expr, to: DType) -> Expr:
        """A conversion in the steps that C and the machine have."""
        source, target, lanes = value.dtype.element, to.element, to.lanes
        if is_small_float(source) and target != "float32":
            return _Legalizer._converted(cast(value, FLOAT32), to)
        if is_small_float(target) and source not in ("float32", "float64"):
            return cast(cast(value, FLOAT32), to)
        if source.is_float and target.is_integer and target not in ("int32", "int64"):
            return _Legalizer._converted(cast(value, INT32 if target.bits < 32 else INT64), to)
        if lanes > 1 and source.is_integer and source.bits < 32 and target.bits > 32 - target.is_float and not target.is_bool:
            return cast(cast(value, INT32), to)
        if lanes > 1 and source.is_integer and target.is_integer and source.bits > 2 * target.bits:  # one halving is one instruction
            return _Legalizer._converted(cast(value, dtype(f"int{source.bits // 2}")), to)
        return cast(value, to)

    # -------------------------------------------------------------------------------------------------------- choices and guards

    def rewrite_IfThenElse(self, node: IfThenElse) -> Expr:
        changed = self.rewrite_children(node)
        if not isinstance(changed, IfThenElse) or changed.condition.dtype.lanes == 1:
            return changed  # type: ignore[no-any-return]
        condition = changed.condition
        return select(condition, _Guard(condition).rewrite(changed.then), _Guard(logical_not(condition)).rewrite(changed.otherwise))

    def rewrite_Load(self, node: Load) -> Expr:
        changed = self.rewrite_children(node)
        if not isinstance(changed, Load) or changed.predicate is None:
            return changed  # type: ignore[no-any-return]
        scalar = _scalar(changed.predicate)
        if scalar is None:
            return changed
        return if_then_else(scalar, load(changed.buffer, changed.indices), const(0, changed.dtype))

    def rewrite_Store(self, node: Store) -> Stmt:
        changed: Store = self.rewrite_children(node)
        scalar = None if changed.predicate is None else _scalar(changed.predicate)
        if scalar is None:
            return changed
        if isinstance(scalar, Const) and scalar.value:
            return Store(changed.buffer, changed.indices, changed.value)
        return If(scalar, Store(changed.buffer, changed.indices, changed.value))


def _scalar(predicate: Expr) -> Expr | None:
    """The scalar that a predicate is for all lanes; None where lanes may differ."""
    if isinstance(predicate, Broadcast):
        return predicate.value
    return predicate if predicate.dtype.lanes == 1 else None


class _Guard(Rewriter):
    """Guards every load of an arm of a choice by lanes: it reads only in the lanes of `condition`."""

    def __init__(self, condition: Expr):
        super().__init__()
        self.condition, self.lanes = condition, condition.dtype.lanes

    def rewrite_Load(self, node: Load) -> Expr:
        if node.dtype.lanes == 1:
            return node  # part of a Broadcast, or an index: see rewrite_Broadcast
        indices = [self.rewrite(i) for i in node.indices]
        predicate = self.condition if node.predicate is None else logical_and(node.predicate, self.condition)
        return load(node.buffer, indices, predicate)

    def rewrite_Broadcast(self, node: Broadcast) -> Expr:
        return self._wide(node.value) if loads_of(node.value) else node

    def _wide(self, e: Expr) -> Expr:
        """A scalar in all lanes; a load in it happens in the guarded lanes only."""
        if not loads_of(e):
            return broadcast(e, self.lanes)
        if isinstance(e, Load):
            predicate = self.condition if e.predicate is None else logical_and(broadcast(e.predicate, self.lanes), self.condition)
            return load(e.buffer, [self._wide(i) for i in e.indices], predicate)
        if isinstance(e, Choice) and not loads_of(e.condition):
            return e.make(e.condition, self._wide(e.then), self._wide(e.otherwise))
        return e.with_children([self._wide(c) for c in e.children])
