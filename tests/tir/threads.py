"""Kernels written by hand, in the form that passes/bind_threads.py gives: for tests of what comes after it."""

from __future__ import annotations

from tilewright.tir.expr import Var, as_expr, load
from tilewright.tir.stmt import Allocate, For, Func, Produce, Stmt


def loop(name, extent, body, kind="serial", thread=None, pragmas=()):
    """A loop; `body` is a function of its variable."""
    var = Var(name, "int32", (0, extent - 1 if isinstance(extent, int) else None))
    return For(var, as_expr(extent), kind, body(var), thread, pragmas)


def kernel(name, params, outputs, body, threads, blocks=None, shared=(), local=(), sizes=()):
    """A function of one kernel. `threads`, `blocks`: extents by letter; `body`: from the variables, by tag, to a statement."""
    made: dict[str, Var] = {}
    for index, extents in (("blockIdx", blocks or {}), ("threadIdx", threads)):
        for letter, extent in extents.items():
            made[f"{index}.{letter}"] = Var(f"{index}.{letter}", "int32", (0, extent - 1 if isinstance(extent, int) else None))
    inner: Stmt = body(made)
    for buffer in reversed(local):
        inner = Allocate(buffer, inner)
    for letter in sorted(threads):  # threadIdx.z outermost
        inner = For(made[f"threadIdx.{letter}"], as_expr(threads[letter]), "thread", inner, f"threadIdx.{letter}")
    for buffer in reversed(shared):
        inner = Allocate(buffer, inner)
    for letter in sorted(blocks or {}):
        inner = For(made[f"blockIdx.{letter}"], as_expr(blocks[letter]), "thread", inner, f"blockIdx.{letter}")
    return Func(name, tuple(params), frozenset(outputs), Produce(name, inner), tuple(sizes))


def get(buffer, *indices):
    """A load."""
    return load(buffer, [as_expr(i) for i in indices])
