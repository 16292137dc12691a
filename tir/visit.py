"""Walking and rewriting expressions and statements.

A subclass says what it does with a kind of node in a method named after it (`visit_Load`, `rewrite_For`); the table from class to method is built
once per subclass. Expressions are memoised by node (they are interned), so shared parts are seen once. "Unchanged" means the same object comes back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from . import expr as _expr
from . import stmt as _stmt
from .expr import HAS_LOAD, Binary, Broadcast, Buffer, Call, Cast, Choice, Const, Expr, Load, Not, Ramp, Var, broadcast, load, ramp, wrapped
from .stmt import Allocate, AllReduce, Atomic, Bind, CallExtern, CallIntrinsic, Combination, For, If, Prefetch, Produce, Seq, Shuffle, Stmt, Store, Sync, seq

# Expressions are walked recursively, in Python frames only, which need no C stack; a computation may inline very long chains.
_RECURSION_LIMIT = 200_000


def allow_deep_expressions() -> None:
    """Let the interpreter recurse as deep as long chains of expressions need. Called where expressions are first declared, and where they are lowered."""
    if sys.getrecursionlimit() < _RECURSION_LIMIT:
        sys.setrecursionlimit(_RECURSION_LIMIT)


def _node_classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for module, root in ((_expr, Expr), (_stmt, Stmt)):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, root):
                found[name] = value
    return found


_CLASSES = _node_classes()


def dispatch_table(cls: type, prefix: str) -> dict[type, Callable[..., Any]]:
    """class of node -> method, the most derived named class winning."""
    table: dict[type, Callable[..., Any]] = {}
    for node_class in _CLASSES.values():
        for base in node_class.__mro__:
            method = getattr(cls, f"{prefix}{base.__name__}", None)
            if method is not None:
                table[node_class] = method
                break
    return table


class Visitor:
    """Sees every node once (statements each time they occur). Override `visit_<Class>` and call `self.visit_children(node)` to go on."""

    _table: ClassVar[dict[type, Callable[..., Any]]]

    def __init_subclass__(cls) -> None:
        cls._table = dispatch_table(cls, "visit_")

    def __init__(self) -> None:
        self._seen: set[Expr] = set()

    def visit(self, node: Expr | Stmt) -> None:
        """See `node`, if it is not an expression seen before."""
        if isinstance(node, Expr):
            if node in self._seen:
                return
            self._seen.add(node)
        self._table[node.__class__](self, node)

    def visit_children(self, node: Expr | Stmt) -> None:
        """See what `node` is made of."""
        for child in children(node):
            self.visit(child)

    def visit_Expr(self, node: Expr) -> None:
        self.visit_children(node)

    def visit_Stmt(self, node: Stmt) -> None:
        self.visit_children(node)


Visitor.__init_subclass__.__func__(Visitor)  # type: ignore[attr-defined]  # the base class is usable too


def children(node: Expr | Stmt) -> tuple[Any, ...]:
    """Expressions and statements directly inside `node`, in order of evaluation."""
    if isinstance(node, Expr):
        return node.children
    return _STATEMENT_CHILDREN[node.__class__](node)


_STATEMENT_CHILDREN: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Store: lambda s: (*s.indices, s.value) if s.predicate is None else (*s.indices, s.value, s.predicate),
    Seq: lambda s: s.body,
    For: lambda s: (s.extent, s.body),
    If: lambda s: (s.condition, s.then) if s.otherwise is None else (s.condition, s.then, s.otherwise),
    Allocate: lambda s: (s.body,),
    Bind: lambda s: (s.value, s.body),
    Produce: lambda s: (s.body,),
    Prefetch: lambda s: s.indices,
    CallExtern: lambda s: s.args,
    CallIntrinsic: lambda s: s.parts,
    AllReduce: lambda s: s.parts,
    Atomic: lambda s: s.parts,
    Shuffle: lambda s: s.parts,
    Sync: lambda s: (),
}


def statements_in(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside `s`."""
    return _INNER_STATEMENTS[s.__class__](s)


def every_statement(s: Stmt) -> list[Stmt]:
    """`s` and the statements inside it, outer ones first."""
    found = [s]
    for each in found:
        found += _INNER_STATEMENTS[each.__class__](each)
    return found


def stored_buffers(s: Stmt) -> list[Buffer]:
    """The buffers that `s` itself stores to, without what is inside it."""
    if isinstance(s, AllReduce):
        return [target.buffer for target in s.loads]
    if isinstance(s, Atomic | Shuffle):
        return [s.load.buffer]
    return [s.buffer] if isinstance(s, Store) else [s.loads[0].buffer] if isinstance(s, CallIntrinsic) else []


_INNER_STATEMENTS: dict[type, Callable[[Any], tuple[Stmt, ...]]] = {
    Store: lambda s: (),
    Seq: lambda s: s.body,
    For: lambda s: (s.body,),
    If: lambda s: (s.then,) if s.otherwise is None else (s.then, s.otherwise),
    Allocate: lambda s: (s.body,),
    Bind: lambda s: (s.body,),
    Produce: lambda s: (s.body,),
    Prefetch: lambda s: (),
    CallExtern: lambda s: (),
    CallIntrinsic: lambda s: (),
    AllReduce: lambda s: (),
    Atomic: lambda s: (),
    Shuffle: lambda s: (),
    Sync: lambda s: (),
}


def operands_of(s: Stmt) -> tuple[Expr, ...]:
    """The expressions directly inside `s`, in order of evaluation."""
    return _OPERANDS[s.__class__](s)


_OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    Store: _STATEMENT_CHILDREN[Store],
    Seq: lambda s: (),
    For: lambda s: (s.extent,),
    If: lambda s: (s.condition,),
    Allocate: lambda s: (),
    Bind: lambda s: (s.value,),
    Produce: lambda s: (),
    Prefetch: _STATEMENT_CHILDREN[Prefetch],
    CallExtern: _STATEMENT_CHILDREN[CallExtern],
    CallIntrinsic: _STATEMENT_CHILDREN[CallIntrinsic],
    AllReduce: _STATEMENT_CHILDREN[AllReduce],
    Atomic: _STATEMENT_CHILDREN[Atomic],
    Shuffle: _STATEMENT_CHILDREN[Shuffle],
    Sync: _STATEMENT_CHILDREN[Sync],
}


class Rewriter:
    """Builds a changed copy. Override `rewrite_<Class>`; call `self.rewrite_children(node)` for the usual descent.

    `rewrite` memoises expressions; a subclass whose answer depends on where it is (constraints, let-bound values) must clear or replace `self.memo`
    when that changes.
    """

    _table: ClassVar[dict[type, Callable[..., Any]]]

    def __init_subclass__(cls) -> None:
        cls._table = dispatch_table(cls, "rewrite_")
        for node_class, method in cls._table.items():
            if method is Rewriter.rewrite_Expr or method is Rewriter.rewrite_Stmt:  # not overridden: straight to what they do
                cls._table[node_class] = _REBUILD.get(node_class, method)

    def __init__(self) -> None:
        self.memo: dict[Expr, Expr] = {}

    def rewrite(self, node: Expr) -> Expr:
        """The expression in place of `node`."""
        found = self.memo.get(node)
        if found is None:
            found = self.memo[node] = self._table[node.__class__](self, node)
        return found

    def rewrite_statement(self, node: Stmt) -> Stmt:
        """The statement in place of `node`."""
        return self._table[node.__class__](self, node)  # type: ignore[no-any-return]

    def rewrite_children(self, node: Any) -> Any:
        """`node` with its parts rewritten; itself where none changed."""
        return _REBUILD[node.__class__](self, node)

    def rewrite_Expr(self, node: Expr) -> Expr:
        return _REBUILD[node.__class__](self, node)  # type: ignore[no-any-return]

    def rewrite_Stmt(self, node: Stmt) -> Stmt:
        return _REBUILD[node.__class__](self, node)  # type: ignore[no-any-return]


def _leaf(_: Rewriter, e: Any) -> Any:
    return e


def _binary(r: Rewriter, e: Any) -> Expr:
    a, b = r.rewrite(e.a), r.rewrite(e.b)
    if a is e.a and b is e.b:
        return e  # type: ignore[no-any-return]
    made = e.make(a, b)
    return made if e.exact else wrapped(made)


def _unary(field: str) -> Callable[[Rewriter, Any], Expr]:
    def rebuild(r: Rewriter, e: Any) -> Expr:
        old = getattr(e, field)
        new = r.rewrite(old)
        return e if new is old else e.with_children((new,))  # type: ignore[no-any-return]

    return rebuild


def _choice(r: Rewriter, e: Any) -> Expr:
    condition, then, otherwise = r.rewrite(e.condition), r.rewrite(e.then), r.rewrite(e.otherwise)
    if condition is e.condition and then is e.then and otherwise is e.otherwise:
        return e  # type: ignore[no-any-return]
    return e.make(condition, then, otherwise)  # type: ignore[no-any-return]


def mapped(function: Callable[[Expr], Expr], old: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """What `function` makes of each; the same tuple where none changed."""
    if len(old) == 1:  # the index of every access to a flat buffer
        only = function(old[0])
        return old if only is old[0] else (only,)
    changed = False
    new = []
    for e in old:
        n = function(e)
        changed = changed or n is not e
        new.append(n)
    return tuple(new) if changed else old


def _load(r: Rewriter, e: Load) -> Expr:
    indices = mapped(r.rewrite, e.indices)
    predicate = None if e.predicate is None else r.rewrite(e.predicate)
    return e if indices is e.indices and predicate is e.predicate else load(e.buffer, indices, predicate)


def _ramp(r: Rewriter, e: Ramp) -> Expr:
    base, stride = r.rewrite(e.base), e.stride
    if stride.__class__ is not Const:
        stride = r.rewrite(stride)
    return e if base is e.base and stride is e.stride else ramp(base, stride, e.dtype.lanes)


def _broadcast(r: Rewriter, e: Broadcast) -> Expr:
    value = r.rewrite(e.value)
    return e if value is e.value else broadcast(value, e.dtype.lanes)


def _many(r: Rewriter, e: Expr) -> Expr:
    old = e.children
    new = mapped(r.rewrite, old)
    return e if new is old else e.with_children(new)


def _store(r: Rewriter, s: Store) -> Stmt:
    indices = mapped(r.rewrite, s.indices)
    value = r.rewrite(s.value)
    predicate = None if s.predicate is None else r.rewrite(s.predicate)
    return s if indices is s.indices and value is s.value and predicate is s.predicate else Store(s.buffer, indices, value, predicate)


def _seq(r: Rewriter, s: Seq) -> Stmt:
    new = tuple([r.rewrite_statement(child) for child in s.body])
    return s if new == s.body else seq(*new)  # statements are equal where they are the same


def _for(r: Rewriter, s: For) -> Stmt:
    extent, body = r.rewrite(s.extent), r.rewrite_statement(s.body)
    return s if extent is s.extent and body is s.body else For(s.var, extent, s.kind, body, s.thread, s.pragmas)


def _if(r: Rewriter, s: If) -> Stmt:
    condition = r.rewrite(s.condition)
    if isinstance(condition, Const):  # decided: only one arm is left
        chosen = s.then if condition.value else s.otherwise
        return Seq(()) if chosen is None else r.rewrite_statement(chosen)
    then = r.rewrite_statement(s.then)
    otherwise = None if s.otherwise is None else r.rewrite_statement(s.otherwise)
    return s if condition is s.condition and then is s.then and otherwise is s.otherwise else If(condition, then, otherwise)


def _allocate(r: Rewriter, s: Allocate) -> Stmt:
    body = r.rewrite_statement(s.body)
    return s if body is s.body else Allocate(s.buffer, body, s.place)


def _bind(r: Rewriter, s: Bind) -> Stmt:
    value, body = r.rewrite(s.value), r.rewrite_statement(s.body)
    return s if value is s.value and body is s.body else Bind(s.var, value, body)


def _produce(r: Rewriter, s: Produce) -> Stmt:
    return s.with_body(r.rewrite_statement(s.body))


def _prefetch(r: Rewriter, s: Prefetch) -> Stmt:
    indices = mapped(r.rewrite, s.indices)
    return s if indices is s.indices else Prefetch(s.buffer, indices)


def _call_extern(r: Rewriter, s: CallExtern) -> Stmt:
    return s.with_args(mapped(r.rewrite, s.args))


def _with_parts(r: Rewriter, s: CallIntrinsic | AllReduce | Atomic | Shuffle) -> Stmt:
    return s.with_parts(mapped(r.rewrite, s.parts))


def _rebuild_table() -> dict[type, Callable[[Any, Any], Any]]:
    by_base: dict[type, Callable[[Any, Any], Any]] = {
        Var: _leaf, Const: _leaf, Binary: _binary, Choice: _choice, Load: _load, Ramp: _ramp, Call: _many,
        Cast: _unary("value"), Broadcast: _broadcast, Not: _unary("a"),
        Store: _store, Seq: _seq, For: _for, If: _if, Allocate: _allocate, Bind: _bind, Produce: _produce, Prefetch: _prefetch,
        CallExtern: _call_extern,
        CallIntrinsic: _with_parts, AllReduce: _with_parts, Atomic: _with_parts, Shuffle: _with_parts,
        Sync: _leaf,
    }  # fmt: skip
    table: dict[type, Callable[[Any, Any], Any]] = {}
    for cls in _CLASSES.values():
        for base in cls.__mro__:
            if base in by_base:
                table[cls] = by_base[base]
                break
    return table


_REBUILD = _rebuild_table()
Rewriter.__init_subclass__.__func__(Rewriter)  # type: ignore[attr-defined]


class StatementRewriter(Rewriter):
    """Rewrites statements; the expressions in them stay as they are."""

    def rewrite(self, node: Expr) -> Expr:
        return node


class Substitute(Rewriter):
    """Variables replaced by expressions, and buffers by buffers of the same rank."""

    def __init__(self, variables: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None):
        super().__init__()
        self.variables, self.buffers = variables, buffers or {}

    def rewrite_Var(self, node: Var) -> Expr:
        return self.variables.get(node, node)

    def rewrite_Load(self, node: Load) -> Expr:
        changed = self.rewrite_children(node)
        buffer = self.buffers.get(node.buffer)
        if buffer is None or not isinstance(changed, Load):
            return changed  # type: ignore[no-any-return]
        return load(buffer, changed.indices, changed.predicate)

    def rewrite_Store(self, node: Store) -> Stmt:
        changed: Store = self.rewrite_children(node)
        buffer = self.buffers.get(node.buffer)
        return changed if buffer is None else Store(buffer, changed.indices, changed.value, changed.predicate)

    def rewrite_Prefetch(self, node: Prefetch) -> Stmt:
        changed: Prefetch = self.rewrite_children(node)
        buffer = self.buffers.get(node.buffer)
        return changed if buffer is None else Prefetch(buffer, changed.indices)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        changed: Allocate = self.rewrite_children(node)
        buffer = self.buffers.get(node.buffer)
        return changed if buffer is None else Allocate(buffer, changed.body, changed.place)


def substitute(node: Expr, variables: Mapping[Var, Expr]) -> Expr:
    """`node` with variables replaced."""
    return Substitute(variables).rewrite(node) if variables else node


def combine(how: Combination, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
    """`left` and `right` combined."""
    values = dict(zip((*how.left, *how.right), (*left, *right), strict=True))
    return tuple(substitute(e, values) for e in how.results)


def combine_into(how: Combination, targets: Sequence[Expr], values: Sequence[Expr]) -> Stmt:
    """The targets, Loads, become their combination with `values`; all of it is computed before any is stored."""
    places = [target for target in targets if isinstance(target, Load)]
    if len(places) == 1 and isinstance(how.results[0], Binary) and all(isinstance(e, Var) for e in how.results[0].children):
        return Store(places[0].buffer, places[0].indices, combine(how, targets, values)[0])
    names = [Var(f"{target.buffer.name}.{name}", target.dtype) for name in ("left", "right", "next") for target in places]
    for name in names:
        name.exact = False  # a value, whatever its dtype
    count = len(places)
    body = seq(*[Store(target.buffer, target.indices, name) for target, name in zip(places, names[2 * count :], strict=True)])
    # operands are read once, not wherever a combination names them: often in what it evaluates conditionally, where a compiler cannot read ahead
    values = (*targets, *values, *combine(how, names[:count], names[count : 2 * count]))
    for name, value in reversed(list(zip(names, values, strict=True))):
        body = Bind(name, value, body)
    return body


def substitute_statement(node: Stmt, variables: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None) -> Stmt:
    """`node` with variables and buffers replaced."""
    return Substitute(variables, buffers).rewrite_statement(node)


def walk(node: Expr | Stmt) -> Iterator[Any]:
    """Every node below and including `node`, parents first; a shared expression once."""
    seen: set[Expr] = set()
    stack: list[Any] = [node]
    while stack:
        current = stack.pop()
        cls = current.__class__
        below = _STATEMENT_CHILDREN.get(cls)
        if below is not None:
            yield current
            stack.extend(below(current)[::-1])
        elif current not in seen:
            seen.add(current)
            yield current
            if cls is not Var and cls is not Const:
                stack.extend(current.children[::-1])


def loads_of(e: Expr) -> list[Load]:
    """The loads in `e`, in order."""
    found: list[Load] = []
    seen: set[Expr] = set()
    stack: list[Any] = [e]
    while stack:
        current = stack.pop()
        if current.holds & HAS_LOAD and current not in seen:
            seen.add(current)
            if current.__class__ is Load:
                found.append(current)
            stack.extend(current.children[::-1])
    return found
