"""Hoist: what does not change in a loop is computed before it, and what an expression repeats is computed once.

    for j in range(8): C[j] = if_then_else(i < n, A[i], 0.0) * B[j]   ->   t = if_then_else(i < n, A[i], 0.0)
                                                                         for j in range(8): C[j] = t * B[j]

C compilers do this well for plain arithmetic, so that is left to them: what moves is what they cannot move, because they do not know that buffers
never overlap and that an access is inside its buffer (loads, guarded loads), or what costs much (calls, divisions). Nothing moves

* out of a loop that stores to a buffer it reads, or in which threads wait for those that do, or out of what introduces a variable or buffer in it;
* out of an `If`, or out of an arm of a choice, if it reads memory or may trap: a guard stays around what it guards. The whole choice may move;
* out of a loop that might not run at all, if it may trap and is not provably inside its buffer;
* out of parallel loops.

An expression is a graph but is written as a tree. Where the tree would be much larger, parts that occur twice are let-bound before the statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..bounds import always_inside, constant_bounds
from ..expr import HAS_COST, HAS_DIVISION, HAS_LOAD, Broadcast, Buffer, Call, Const, Div, Expr, FloorDiv, FloorMod, IfThenElse, Load, Ramp, Var, if_then_else
from ..stmt import Allocate, Atomic, Bind, For, Func, If, Produce, Seq, Stmt, Store, Sync, seq
from ..verify import CLOSED, NO_VECTOR_LOOPS, TYPED
from ..visit import Rewriter, loads_of, mapped, operands_of, statements_in, stored_buffers
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True)
class Hoist(Pass):
    """Move what does not change out of loops, and compute what is repeated once.

    Options: `largest_tree`: a statement written with more operations than this, and a third more than there are different ones, has its repeated parts bound.
    """

    name: ClassVar[str] = "hoist"
    requires: ClassVar[tuple[str, ...]] = (TYPED, CLOSED, NO_VECTOR_LOOPS)

    largest_tree: int = 60

    def run(self, func: Func, target: Target) -> Func:
        return func.with_body(_Hoister(func, self.largest_tree).block(func.body))


_ONE_INSTRUCTION = frozenset(("wrap", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"))


@dataclass
class _Scope:
    """What surrounds a statement, one level: a loop, or a place that nothing may leave."""

    loop: For | None  # None: nothing leaves
    introduced: set[Var | Buffer] = field(default_factory=set)  # inside this scope and around the statement
    runs: bool = True  # at least once, as far as its extent tells
    bindings: dict[Expr, tuple[Var, Expr]] = field(default_factory=dict)  # to be made before the loop: a variable and its value
    mover: _Mover | None = None  # of the expressions directly in it: what they share moves once


class _Hoister:
    def __init__(self, func: Func, largest_tree: int):
        self.largest_tree = largest_tree
        self.scopes: list[_Scope] = [_Scope(None)]
        self.on_stack: set[Buffer] = set()
        self._worth: dict[Expr, bool] = {}
        self._hazard: dict[Expr, bool] = {}
        self._stored: dict[int, frozenset[Buffer]] = {}
        self._body = func.body
        self._exchanged: frozenset[Buffer] | None = None

    # ----------------------------------------------------------------------------------------------------------- statements

    def block(self, s: Stmt) -> Stmt:
        """`s` where nothing leaves it."""
        self.scopes.append(_Scope(None))
        new = self.statement(s)
        self.scopes.pop()
        return new

    def statement(self, s: Stmt) -> Stmt:
        """`s` with its own parts moved; what moves out of it altogether is noted in the scopes around."""
        kind = s.__class__
        if kind is For:
            return self._loop(s)  # type: ignore[arg-type]
        if kind is Seq:
            new = tuple([self.statement(child) for child in s.body])  # type: ignore[attr-defined]
            return s if new == s.body else seq(*new)  # type: ignore[attr-defined]
        if kind is Store:
            return self._store(s)  # type: ignore[arg-type]
        if kind is Atomic:
            value = self._moved(s.value)  # type: ignore[attr-defined]
            return self._without_repetition(s.with_parts((s.target, value)))  # type: ignore[attr-defined]
        if kind is Produce:
            body = self.statement(s.body)  # type: ignore[attr-defined]
            return s.with_body(body)  # type: ignore[attr-defined, no-any-return]
        if kind is If:
            return self._if(s)  # type: ignore[arg-type]
        if kind is Allocate:
            return self._allocate(s)  # type: ignore[arg-type]
        if kind is Bind:
            value = self._moved(s.value)  # type: ignore[attr-defined]
            self.scopes[-1].introduced.add(s.var)  # type: ignore[attr-defined]
            body = self.statement(s.body)  # type: ignore[attr-defined]
            return s if value is s.value and body is s.body else Bind(s.var, value, body)  # type: ignore[attr-defined]
        return s

    def _loop(self, s: For) -> Stmt:
        extent = self._moved(s.extent)
        if s.kind in ("parallel", "thread"):
            body = self.block(s.body)
            return s if body is s.body and extent is s.extent else For(s.var, extent, s.kind, body, s.thread, s.pragmas)
        low = constant_bounds(s.extent)[0]
        scope = _Scope(s, {s.var}, low is not None and low > 0)
        self.scopes.append(scope)
        body = self.statement(s.body)
        self.scopes.pop()
        new: Stmt = s if body is s.body and extent is s.extent else For(s.var, extent, s.kind, body, s.thread, s.pragmas)
        return _bound(scope.bindings.values(), new)

    def _if(self, s: If) -> Stmt:
        condition = self._moved(s.condition)
        then = self.block(s.then)
        otherwise = None if s.otherwise is None else self.block(s.otherwise)
        if condition is s.condition and then is s.then and otherwise is s.otherwise:
            return s
        return If(condition, then, otherwise)

    def _allocate(self, s: Allocate) -> Stmt:
        if s.place is not None and s.place.kind == "stack":
            self.on_stack.add(s.buffer)
        self.scopes[-1].introduced.add(s.buffer)
        body = self.statement(s.body)
        return s if body is s.body else Allocate(s.buffer, body, s.place)

    def _store(self, s: Store) -> Stmt:
        indices = mapped(self._moved, s.indices)
        value = self._moved(s.value)
        predicate = None if s.predicate is None else self._moved(s.predicate)
        if indices is not s.indices or value is not s.value or predicate is not s.predicate:
            s = Store(s.buffer, indices, value, predicate)
        return self._without_repetition(s)

    def stored(self, s: Stmt) -> frozenset[Buffer]:
        """The buffers that `s` stores to."""
        found = self._stored.get(id(s))
        if found is None:
            # where threads wait others may have stored to whatever they can reach
            found = self.exchanged() if s.__class__ is Sync else frozenset(stored_buffers(s))
            for inner in statements_in(s):
                found |= self.stored(inner)
            self._stored[id(s)] = found
        return found

    def exchanged(self) -> frozenset[Buffer]:
        """What the threads of a block write for one another; found where they wait for one another first."""
        if self._exchanged is None:
            known, self._stored, self._exchanged = self._stored, {}, frozenset()
            self._exchanged = frozenset(buffer for buffer in self.stored(self._body) if buffer.scope != "local")
            self._stored = known
        return self._exchanged

    # ---------------------------------------------------------------------------------------------------------- invariants

    def _moved(self, e: Expr) -> Expr:
        """`e` with the parts that do not change replaced by variables, bound before the outermost loop that allows it."""
        scope = self.scopes[-1]
        if not e.holds & HAS_COST or scope.loop is None or not self.worth(e):
            return e
        if scope.mover is None:
            scope.mover = _Mover(self)
        return scope.mover.rewrite(e)

    def destination(self, e: Expr) -> _Scope | None:
        """The outermost loop that `e` can be computed before; None where it cannot leave the innermost one."""
        variables, found = e.variables, None
        reads: list[Buffer] | None = None  # looked for when needed: mostly the variables decide
        for scope in reversed(self.scopes):
            if scope.loop is None or not scope.introduced.isdisjoint(variables):
                break
            if reads is None:
                reads = [node.buffer for node in loads_of(e)]
            if reads and not (scope.introduced.isdisjoint(reads) and self.stored(scope.loop).isdisjoint(reads)):
                break
            if not scope.runs and self.hazard(e):
                break
            found = scope
        return found

    def bound_before(self, scope: _Scope, e: Expr) -> Var:
        """A variable for `e`, bound before the loop of `scope`; parts of `e` may go further out."""
        found = scope.bindings.get(e)
        if found is None:
            inner = self.scopes
            self.scopes = inner[: next(i for i, each in enumerate(inner) if each is scope)]
            found = scope.bindings[e] = _variable(e), self._moved(e)
            self.scopes = inner
        return found[0]

    def worth(self, e: Expr) -> bool:
        """Whether moving `e` is worth a variable."""
        if not e.holds & HAS_COST:
            return False
        found = self._worth.get(e)
        if found is None:
            found = self._costs(e)
            if not found:
                for child in e.children:
                    if self.worth(child):
                        found = True
                        break
            self._worth[e] = found
        return found

    def _costs(self, e: Any) -> bool:
        """Whether the operation of `e` itself is worth a variable."""
        cls = e.__class__
        if cls is Load:
            return e.buffer not in self.on_stack
        if cls is Call:
            return e.name not in _ONE_INSTRUCTION
        if cls is FloorDiv or cls is FloorMod:
            divisor = _divisor(e)
            return divisor is None or bool(divisor & (divisor - 1))
        return cls is Div

    def hazard(self, e: Expr) -> bool:
        """Whether `e`, evaluated where it was not, might read outside a buffer or divide by zero."""
        if not e.holds & (HAS_LOAD | HAS_DIVISION):
            return False
        found = self._hazard.get(e)
        if found is None:
            found = _might_trap(e)
            if not found:
                for child in e.children:
                    if self.hazard(child):
                        found = True
                        break
            self._hazard[e] = found
        return found

    # ---------------------------------------------------------------------------------------------------------- repetition

    def _without_repetition(self, s: Store | Atomic) -> Stmt:
        """`s`, with what it repeats bound before it if it would be long to write."""
        total = 0.0
        for e in operands_of(s):
            total += e.operations
        if total <= self.largest_tree:
            return s
        places = _places(operands_of(s))
        if 3 * total <= 4 * len(places):
            return s
        binder = _Binder(self, places)
        new = binder.rewrite_statement(s)
        return _bound([(var, value) for value, var in binder.bindings.items()], new)


class _Guarding(Rewriter):
    """Knows whether it is in an arm of a choice; what it answers there is remembered apart."""

    def __init__(self, hoister: _Hoister):
        super().__init__()
        self.hoister = hoister
        self.in_arm = False
        self._memo_in_arms: dict[Expr, Expr] = {}

    def rewrite(self, node: Expr) -> Expr:
        memo = self._memo_in_arms if self.in_arm and self.hoister.hazard(node) else self.memo
        found = memo.get(node)
        if found is None:
            found = memo[node] = self.replaced(node)
        return found

    def replaced(self, node: Expr) -> Expr:
        """What to write for `node`."""
        raise NotImplementedError

    def parts(self, node: Expr) -> Expr:
        """`node` with its parts replaced."""
        if node.__class__ is not IfThenElse:
            return self.rewrite_children(node)  # type: ignore[no-any-return]
        condition, around = self.rewrite(node.condition), self.in_arm
        self.in_arm = True
        then, otherwise = self.rewrite(node.then), self.rewrite(node.otherwise)
        self.in_arm = around
        return if_then_else(condition, then, otherwise)


class _Mover(_Guarding):
    """Replaces the largest parts that can leave the innermost loop."""

    def replaced(self, node: Expr) -> Expr:
        if not self.hoister.worth(node):
            return node
        if not (self.in_arm and self.hoister.hazard(node)):
            to = self.hoister.destination(node)
            if to is not None:
                return self.hoister.bound_before(to, node)
        return self.parts(node)


class _Binder(_Guarding):
    """Replaces what occurs more than once by variables, inner parts first."""

    def __init__(self, hoister: _Hoister, places: dict[Expr, int]):
        super().__init__(hoister)
        self.places = places
        self.bindings: dict[Expr, Var] = {}

    def replaced(self, node: Expr) -> Expr:
        new = self.parts(node)
        if self.in_arm and self.hoister.hazard(node):
            return new
        if self.places.get(node, 0) > 1 and node.operations > _SHORT and new.__class__ not in (Var, Const, Ramp):
            var = self.bindings.get(new)
            if var is None:
                var = self.bindings[new] = _variable(new)
            return var
        return new


_SHORT = 4  # operations that may as well be written twice


def _variable(e: Expr) -> Var:
    """A variable to hold `e`, named for what it holds."""
    core = e.value if e.__class__ is Broadcast else e
    name = f"{core.buffer.name}_value" if core.__class__ is Load else core.name if core.__class__ is Call else "t"
    var = Var(name, e.dtype, constant_bounds(e) if e.dtype.is_integer else (None, None))
    var.exact = e.exact and e.dtype.is_integer
    return var


def _bound(bindings: Iterable[tuple[Var, Expr]], s: Stmt) -> Stmt:
    for var, value in reversed(list(bindings)):
        s = Bind(var, value, s)
    return s


def _places(roots: tuple[Expr, ...]) -> dict[Expr, int]:
    """How often each expression is an operand of another one, or a root."""
    count: dict[Expr, int] = {}
    stack = list(roots)
    while stack:
        e = stack.pop()
        count[e] = count.get(e, 0) + 1
        if count[e] == 1:
            stack.extend(e.children)
    return count


def _divisor(e: Any) -> int | None:
    """The constant by which an integer division divides, None where it is none."""
    divisor = e.b.value if e.b.__class__ is Broadcast else e.b
    return divisor.value if divisor.__class__ is Const else None


def _might_trap(e: Any) -> bool:
    """Whether the operation of `e` itself might read outside a buffer or divide by zero."""
    if e.__class__ is Load:
        return not (len(e.indices) == 1 and always_inside(e.buffer, e.indices[0]))
    return e.__class__ in (FloorDiv, FloorMod) and _divisor(e) is None
