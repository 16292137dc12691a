"""Flatten: every buffer becomes one-dimensional, `A[i, k]` becomes `A[i * K + k]`. Strides end here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..dtype import INT32, INT64
from ..errors import TargetError
from ..expr import HAS_DIVISION, HAS_LOAD, Buffer, Const, Expr, Load, add, as_expr, cast, const, load, maximum, mul
from ..liveness import shared_by_threads
from ..simplify import Analyzer
from ..stmt import Allocate, CallIntrinsic, Func, Prefetch, Stmt, Store
from ..target import Target
from ..verify import CLOSED, FLAT, TYPED
from ..visit import Rewriter
from .manager import Pass


@dataclass(frozen=True)
class Flatten(Pass):
    """`A[i, k]` of `A: float32[M, K]` -> `A[i * K + k]` of `A: float32[M * K]`.

    A stride of the buffer takes the place of the product of inner extents. A buffer of scope "local" that several threads share becomes one of
    scope "global": passes and generators take what is local for the thread's own.
    """

    name: ClassVar[str] = "flatten"
    requires: ClassVar[tuple[str, ...]] = (TYPED, CLOSED)
    gives: ClassVar[tuple[str, ...]] = (FLAT,)

    def run(self, func: Func, target: Target) -> Func:
        flattener = _Flattener({b for b in shared_by_threads(func) if b.scope == "local"})
        body = flattener.rewrite_statement(func.body)
        params = tuple(flattener.flat(p) for p in func.params)
        if body is func.body and all(a is b for a, b in zip(params, func.params, strict=True)):
            return func
        outputs = frozenset(flattener.flat(p) for p in func.outputs)
        return Func(func.name, params, outputs, body, func.sizes, func.workspace_bytes)


class _Flattener(Rewriter):
    def __init__(self, no_longer_local: set[Buffer]) -> None:
        super().__init__()
        self._no_longer_local = no_longer_local
        self._flat: dict[Buffer, Buffer] = {}
        self._strides: dict[Buffer, tuple[Expr, ...]] = {}
        self._analyzer = Analyzer()

    def flat(self, buffer: Buffer) -> Buffer:
        """The one-dimensional buffer in place of `buffer`; itself where it is one."""
        found = self._flat.get(buffer)
        if found is None:
            dense = len(buffer.shape) == 1 and buffer.strides is None
            scope = "global" if buffer in self._no_longer_local else buffer.scope
            size = _size(buffer)
            if isinstance(size, int) and size * buffer.dtype.bytes > INT64.high:
                raise TargetError(f"tensor {buffer!r} takes {size * buffer.dtype.bytes} bytes, more than any address can reach")
            found = buffer if dense and scope == buffer.scope else Buffer(buffer.name, (size,), buffer.dtype, scope)
            self._flat[buffer] = found
        return found

    def _index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The one index in place of `indices`, which are rewritten already."""
        if self.flat(buffer) is buffer:
            return indices
        strides = self._strides.get(buffer)
        if strides is None:
            strides = self._strides[buffer] = strides_of(buffer)
        size = self.flat(buffer).constant_size
        total: Expr | None = None
        for index, stride in zip(indices, strides, strict=True):
            if not index.exact and (size is None or size > INT32.high):  # arithmetic on what was read from memory wraps in its dtype
                index = cast(index, INT64)
            term = mul(index, stride)
            total = term if total is None else add(total, term)
        if total is not None and total.holds & HAS_DIVISION and not total.holds & HAS_LOAD:
            total = self._analyzer.simplify(total)  # the digits of a number, put together, are neighbours where it is
        return (const(0) if total is None else total,)

    def rewrite(self, node: Expr) -> Expr:
        return super().rewrite(node) if node.holds & HAS_LOAD else node

    def rewrite_Load(self, node: Load) -> Expr:
        changed: Load = self.rewrite_children(node)
        if changed.__class__ is not Load or self.flat(changed.buffer) is changed.buffer:
            return changed
        return load(self.flat(changed.buffer), self._index(changed.buffer, changed.indices), changed.predicate)

    def rewrite_Store(self, node: Store) -> Stmt:
        changed: Store = self.rewrite_children(node)
        if self.flat(changed.buffer) is changed.buffer:
            return changed
        return Store(self.flat(changed.buffer), self._index(changed.buffer, changed.indices), changed.value, changed.predicate)

    def rewrite_Prefetch(self, node: Prefetch) -> Stmt:
        changed: Prefetch = self.rewrite_children(node)
        if self.flat(changed.buffer) is changed.buffer:
            return changed
        return Prefetch(self.flat(changed.buffer), self._index(changed.buffer, changed.indices))

    def rewrite_CallIntrinsic(self, node: CallIntrinsic) -> Stmt:
        changed: CallIntrinsic = self.rewrite_children(node)
        steps = tuple(tuple(self._index(old.buffer, along) for along in operand) for old, operand in zip(node.loads, changed.steps, strict=True))
        return CallIntrinsic(changed.code, changed.args, steps)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        flat, body = self.flat(node.buffer), self.rewrite_statement(node.body)
        return node if flat is node.buffer and body is node.body else Allocate(flat, body, node.place)


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """How many elements apart neighbours are, for each dimension."""
    if buffer.strides is not None:
        return tuple(as_expr(s) for s in buffer.strides)
    strides: list[Expr] = []
    stride: int | Expr = 1
    for extent in reversed(buffer.shape):
        strides.append(const(stride) if isinstance(stride, int) else stride)
        stride = extent * stride if isinstance(extent, int) and isinstance(stride, int) else mul(as_expr(extent), as_expr(stride))
    return tuple(reversed(strides))


def _size(buffer: Buffer) -> int | Expr:
    """Elements that `buffer` spans: along its widest dimension, stride times extent."""
    if buffer.strides is None:
        known = buffer.constant_size
        if known is not None:
            return known
        size: Expr = const(1)
        for extent in buffer.shape:
            size = mul(size, as_expr(extent))
        return size
    size = const(0 if buffer.shape else 1)
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        size = maximum(size, mul(as_expr(extent), as_expr(stride)))
    return int(size.value) if isinstance(size, Const) else size
