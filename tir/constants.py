"""Split a function into what depends on constant parameters only, to be run once, and the rest, to be run at each call.

It works on what lowering a schedule gives, statement by statement at the top level, so what is computed once are whole stages. Who runs the
first part, and where its results live, is for the compiler.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .expr import Buffer, Load, Var
from .stmt import Allocate, Atomic, CallExtern, CallIntrinsic, Func, Prefetch, Seq, Stmt, Store, seq
from .visit import walk


@dataclass(frozen=True)
class Split:
    """`prologue` (None where nothing can be computed before) takes `sources`, constants, and writes `results`. `kernel` takes `constants` (of
    the constants and the results those that it reads), then the other parameters of the function, in their order."""

    prologue: Func | None
    sources: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    kernel: Func
    constants: tuple[Buffer, ...]


def split_constants(func: Func, constants: Collection[Buffer]) -> Split:
    """`func` in two, where the parameters `constants` never change.

    before -> after, with W constant:

        def f(A, W, C):                       def f_constants(W, P):
            allocate P: float32[2, 8, 16]         P[j // 16, k, j % 16] = W[k, j]
            P[j // 16, k, j % 16] = W[k, j]   def f(P, A, C):
            C[i, j] += A[i, k] * P[...]           C[i, j] += A[i, k] * P[...]

    A top-level statement is computed before if it reads constants and such results only, calls no C function, depends on no symbolic size, and all that
    it writes are intermediates of constant size, without padded rows, in scope "global".
    """
    allocated, statements = _top_level(func.body)
    uses = [_Use(s) for s in statements]
    storable = {b for b in allocated if b.scope == "global" and b.strides is None and b.constant_size is not None}
    sizes = set(func.sizes)
    early = {n for n, use in enumerate(uses) if use.writes <= storable and not use.calls and not use.variables & sizes}
    while True:
        late_writes = {b for n, use in enumerate(uses) if n not in early for b in use.writes}
        known = {b for n in early for b in uses[n].writes} - late_writes | set(constants)
        fitting = {n for n in early if uses[n].reads <= known and uses[n].writes <= known}
        if fitting == early:
            break
        early = fitting
    late = [n for n in range(len(statements)) if n not in early]
    wanted = {b for n in late for b in uses[n].reads}
    written = {b for n in early for b in uses[n].writes}
    results = tuple(b for b in allocated if b in written and b in wanted)
    sources = tuple(b for b in func.params if b in constants and any(b in uses[n].reads for n in early))
    kept = (*(b for b in func.params if b in constants and b in wanted), *results)
    others = tuple(p for p in func.params if p not in constants)
    rest = _inside([b for b in allocated if b not in written], seq(*(statements[n] for n in late)))
    kernel = Func(func.name, (*kept, *others), func.outputs, rest, func.sizes)
    if not results:
        return Split(None, (), (), kernel, kept)
    before = _inside([b for b in allocated if b in written and b not in wanted], seq(*(statements[n] for n in sorted(early))))
    return Split(Func(f"{func.name}_constants", (*sources, *results), frozenset(results), before), sources, results, kernel, kept)


class _Use:
    """The buffers from outside that a statement reads and writes, and the variables in it."""

    def __init__(self, statement: Stmt):
        own = {s.buffer for s in walk(statement) if isinstance(s, Allocate)}
        self.variables = {e for e in walk(statement) if isinstance(e, Var)}
        self.calls = any(isinstance(s, CallExtern) for s in walk(statement))  # what a C function does is done at each call
        self.writes = {s.buffer for s in walk(statement) if isinstance(s, Store)} - own
        self.writes |= {s.loads[0].buffer for s in walk(statement) if isinstance(s, CallIntrinsic)} - own
        self.writes |= {s.load.buffer for s in walk(statement) if isinstance(s, Atomic)} - own
        self.reads = {s.buffer for s in walk(statement) if isinstance(s, (Load, Prefetch))} - own


def _top_level(body: Stmt) -> tuple[list[Buffer], list[Stmt]]:
    """The buffers allocated around all statements of a function, outermost first, and those statements."""
    allocated = []
    while isinstance(body, Allocate):
        allocated.append(body.buffer)
        body = body.body
    return allocated, list(body.body) if isinstance(body, Seq) else [body]


def _inside(buffers: list[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body
