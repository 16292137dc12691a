"""Functions in the form that bind_threads gives, for the tests of the CUDA generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.targets.cuda import generate
from tilewright.targets.cuda_launch import GeneratedCuda
from tilewright.tir.expr import Buffer, Expr, Var, const
from tilewright.tir.passes.all_reduce import ThreadAllReduce
from tilewright.tir.passes.barriers import Barriers
from tilewright.tir.passes.flatten import Flatten
from tilewright.tir.passes.legalize import Legalize
from tilewright.tir.passes.shared_memory import SharedMemory
from tilewright.tir.passes.simplify import Simplify
from tilewright.tir.passes.storage import Storage
from tilewright.tir.stmt import Allocate, For, Func, Place, Produce, Stmt
from tilewright.tir.target import Target

CUDA = Target("cuda")


def threads(extents: Mapping[str, int | Expr], body: Callable[..., Stmt], shared: Mapping[Buffer, int] | None = None) -> Stmt:
    """`body` of the indices, in loops over them, the first outermost: "bx" stands for "blockIdx.x", "ty" for "threadIdx.y". `shared`: buffers of the
    block, at these bytes."""
    variables = [Var(name, "int32", (0, extent - 1 if isinstance(extent, int) else None)) for name, extent in extents.items()]
    inside = body(*variables)
    allocated = False
    for variable, (name, extent) in reversed(list(zip(variables, extents.items(), strict=True))):
        is_block = name[0] == "b"
        if is_block and not allocated:
            inside, allocated = _allocated(shared, inside), True
        tag = f"{'blockIdx' if is_block else 'threadIdx'}.{name[1]}"
        inside = For(variable, const(extent) if isinstance(extent, int) else extent, "thread", inside, tag)
    return inside if allocated else _allocated(shared, inside)


def _allocated(shared: Mapping[Buffer, int] | None, body: Stmt) -> Stmt:
    for buffer, offset in reversed(list((shared or {}).items())):
        body = Allocate(buffer, body, Place("shared", offset))
    return body


def local(buffer: Buffer, body: Stmt) -> Allocate:
    """A buffer of each thread."""
    return Allocate(buffer, body, Place("stack"))


def kernel(name: str, extents: Mapping[str, int | Expr], body: Callable[..., Stmt], shared: Mapping[Buffer, int] | None = None) -> Produce:
    """One kernel."""
    return Produce(name, threads(extents, body, shared))


def with_reductions(func: Func, target: Target = CUDA) -> Func:
    """`func` with its reductions across threads as the pipeline leaves them."""
    for each in (ThreadAllReduce(), Barriers(), Flatten(), SharedMemory(), Storage(), Simplify()):
        func = each.run(func, target)
    return func


def generated(func: Func, target: Target = CUDA) -> GeneratedCuda:
    """`func` legalised and generated."""
    return generate(Legalize().run(func, target), target)
