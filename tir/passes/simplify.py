"""Simplify: expressions in canonical form, decided conditions and loops that run at most once taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..dtype import BOOL
from ..expr import And, Const, Expr, Var, const, logical_and, logical_not
from ..matching import reads_nothing
from ..simplify import Analyzer
from ..stmt import Allocate, AllReduce, Atomic, Bind, CallExtern, CallIntrinsic, For, Func, If, Prefetch, Produce, Seq, Shuffle, Stmt, Store, Sync, seq
from ..verify import CLOSED, TYPED
from ..visit import mapped
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


_INNERMOST = 1 << 20  # a rank beyond that of any loop


@dataclass(frozen=True)
class Simplify(Pass):
    """Before -> after, for example:

        for i in range(8):                     for i in range(8):
            for j in range(1):
                if i * 4 + j < 32:
                    A[(i * 16 + j) // 16]  ->      A[i]

    The range of a loop's variable and the condition of an If are known inside them. Loops of extent 0, decided Ifs and statements without effect
    go; the variable of a loop of extent 1 is 0, except that of a thread, which stays an index of the GPU.
    """

    name: ClassVar[str] = "simplify"
    requires: ClassVar[tuple[str, ...]] = (TYPED, CLOSED)

    def run(self, func: Func, target: Target) -> Func:
        return simplify_function(func)


def simplify_function(func: Func) -> Func:
    """`func` simplified; itself where nothing changed."""
    simplifier = _Simplifier()
    for parameter in func.params:
        for extent in parameter.shape:
            if extent.__class__ is Var and extent.bounds[0] is None:
                simplifier.analyzer.bind(extent, (0, None))
    body = simplifier.statement(func.body)
    if body is None:
        body = func.body if func.body.__class__ is Seq and not func.body.body else Seq(())
    return func.with_body(body)


class _Simplifier:
    """Walks statements; None stands for one without effect."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.simplify = self.analyzer.simplify
        self._defined: dict[Var, Expr | None] = {}  # of each variable met, what took its place
        self._ranked: set[Var] = set()

    def statement(self, s: Stmt) -> Stmt | None:
        """The statement in place of `s`."""
        return _HANDLERS[s.__class__](self, s)

    def store(self, s: Store) -> Stmt | None:
        indices, value, predicate = mapped(self.simplify, s.indices), self.simplify(s.value), s.predicate
        if predicate is not None:
            predicate = self.simplify(predicate)
            if predicate.__class__ is Const:
                if not predicate.value:
                    return None
                predicate = None
        if indices is s.indices and value is s.value and predicate is s.predicate:
            return s
        return Store(s.buffer, indices, value, predicate)

    def seq(self, s: Seq) -> Stmt | None:
        changed = False
        new = []
        for child in s.body:
            done = self.statement(child)
            changed = changed or done is not child
            if done is not None:
                new.append(done)
        if not new:
            return None
        return seq(*new) if changed else s

    def loop(self, s: For) -> Stmt | None:
        extent = s.extent
        if extent.__class__ is Const:
            low = high = extent.value
        else:
            extent = self.simplify(extent)
            low, high = self.analyzer.bounds(extent)
        if high is not None and high <= 0:
            return None
        if low == high == 1 and s.kind != "thread":
            self._define(s.var, const(0, s.var.dtype))
            return self.statement(s.body)
        self._define(s.var, None)
        self._rank(s.var, s.kind in ("unrolled", "vectorized"))
        if extent.__class__ is Const and s.var.bounds == (0, extent.value - 1):
            body = self.statement(s.body)
        else:
            with self.analyzer.scope():
                self.analyzer.bind(s.var, (0, extent if reads_nothing(extent) else None if high is None else high))
                body = self.statement(s.body)
        if body is None:
            return None
        if extent is s.extent and body is s.body:
            return s
        return For(s.var, extent, s.kind, body, s.thread, s.pragmas)

    def _rank(self, var: Var, innermost: bool = False) -> None:
        """Sums begin with what changes least often; the variables of loops that will be written out become constants, which stand last."""
        if var not in self._ranked:
            self._ranked.add(var)
            self.analyzer.rank(var, len(self._ranked) + (_INNERMOST if innermost else 0))

    def _define(self, var: Var, value: Expr | None) -> None:
        """In the statement that comes next, `var` is `value`; None: a variable. The copies of a body that passes make share variables."""
        if var not in self._defined:
            if value is not None:
                self.analyzer.define(var, value, met_before=False)
        elif self._defined[var] is not value:
            self.analyzer.define(var, value)
        self._defined[var] = value

    def branch(self, s: If) -> Stmt | None:
        condition = self.simplify(s.condition)
        if condition.__class__ is Const:
            chosen = s.then if condition.value else s.otherwise
            return None if chosen is None else self.statement(chosen)
        with self.analyzer.constraint(_timeless(condition)):
            then = self.statement(s.then)
        otherwise = s.otherwise
        if otherwise is not None:
            with self.analyzer.constraint(_timeless(logical_not(condition))):
                otherwise = self.statement(otherwise)
        if then is None:
            return None if otherwise is None else If(self.simplify(logical_not(condition)), otherwise)
        if condition is s.condition and then is s.then and otherwise is s.otherwise:
            return s
        return If(condition, then, otherwise)

    def allocate(self, s: Allocate) -> Stmt | None:
        body = self.statement(s.body)
        return s if body is s.body else None if body is None else Allocate(s.buffer, body, s.place)

    def bind(self, s: Bind) -> Stmt | None:
        value = self.simplify(s.value)
        if value.__class__ is Const or value.__class__ is Var:
            self._define(s.var, value)
            return self.statement(s.body)
        met = s.var in self._defined
        self._define(s.var, None)
        self._rank(s.var)
        if not reads_nothing(value):
            body = self.statement(s.body)
        elif met:
            with self.analyzer.scope():
                self.analyzer.bind_value(s.var, value)
                body = self.statement(s.body)
        else:  # the usual case: an equation that holds wherever the variable is
            self.analyzer.bind_value(s.var, value, met_before=False)
            body = self.statement(s.body)
        if body is None:
            return None
        return s if value is s.value and body is s.body else Bind(s.var, value, body)

    def produce(self, s: Produce) -> Stmt | None:
        body = self.statement(s.body)
        return None if body is None else s.with_body(body)

    def prefetch(self, s: Prefetch) -> Stmt:
        indices = mapped(self.simplify, s.indices)
        return s if indices is s.indices else Prefetch(s.buffer, indices)

    def call_extern(self, s: CallExtern) -> Stmt:
        return s.with_args(mapped(self.simplify, s.args))

    def with_parts(self, s: CallIntrinsic | AllReduce | Atomic | Shuffle) -> Stmt:
        return s.with_parts(mapped(self.simplify, s.parts))

    def unchanged(self, s: Stmt) -> Stmt:
        return s


def _timeless(condition: Expr) -> Expr:
    """The parts of a condition that stay true whatever is stored to memory."""
    if condition.__class__ is And:
        return logical_and(_timeless(condition.a), _timeless(condition.b))
    return condition if reads_nothing(condition) else const(True, BOOL)


_HANDLERS: dict[type, Callable[[_Simplifier, Any], Stmt | None]] = {
    Store: _Simplifier.store,
    Seq: _Simplifier.seq,
    For: _Simplifier.loop,
    If: _Simplifier.branch,
    Allocate: _Simplifier.allocate,
    Bind: _Simplifier.bind,
    Produce: _Simplifier.produce,
    Prefetch: _Simplifier.prefetch,
    CallExtern: _Simplifier.call_extern,
    CallIntrinsic: _Simplifier.with_parts,
    AllReduce: _Simplifier.with_parts,
    Atomic: _Simplifier.with_parts,
    Shuffle: _Simplifier.with_parts,
    Sync: _Simplifier.unchanged,
}
