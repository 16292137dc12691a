"""Kernels: what a function that was bound to the threads of a GPU (passes/bind_threads.py) is made of."""

from __future__ import annotations

from dataclasses import dataclass

from .expr import Buffer, Expr, Load, Var
from .stmt import Allocate, CallIntrinsic, For, Func, Prefetch, Produce, Seq, Stmt, Store
from .visit import walk

THREAD_INDICES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
WIDEST_BYTES = 16  # of an access of a thread
INDICES = ("blockIdx.z", "blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")  # outermost first


@dataclass(frozen=True)
class Kernel:
    """One kernel. `name`; `indices`: of each index it uses, outermost first, the variable and the extent; `shared`: the buffers its blocks allocate;
    `body`: what one thread does; `buffers`, `sizes`: what it uses from outside, in the order in which the function has them.
    """

    name: str
    indices: dict[str, tuple[Var, Expr]]
    shared: tuple[Allocate, ...]
    body: Stmt
    buffers: tuple[Buffer, ...]
    sizes: tuple[Var, ...]


def shared_alignment(s: Stmt) -> int:
    """Bytes: shared buffers of a kernel begin at multiples of them, for the widest access of a thread and for what intrinsics ask for."""
    return max([WIDEST_BYTES, *(bytes_ for node in walk(s) if isinstance(node, CallIntrinsic) for bytes_ in node.code.aligned.values())])


def workspace_of(func: Func) -> tuple[Allocate, ...]:
    """The allocations around the kernels of a function, outermost first."""
    found, body = [], func.body
    while isinstance(body, Allocate):
        found.append(body)
        body = body.body
    return tuple(found)


def kernel_statements(func: Func) -> tuple[Stmt, ...]:
    """The statements of a function that are kernels, in order."""
    around = workspace_of(func)
    body = around[-1].body if around else func.body
    return body.body if isinstance(body, Seq) else (body,)


def kernels_of(func: Func) -> list[Kernel]:
    """The kernels of a function, in the order in which they run; named after it, and where there are several after their stages too."""
    statements = kernel_statements(func)
    names: set[str] = set()
    found = []
    outside = (*func.params, *(a.buffer for a in workspace_of(func)))
    for s in statements:
        name = func.name if len(statements) == 1 else _unique(f"{func.name}_{_identifier(s.name if isinstance(s, Produce) else 'kernel')}", names)
        found.append(_kernel(name, s, outside, func.sizes))
    return found


def _kernel(name: str, s: Stmt, outside: tuple[Buffer, ...], sizes: tuple[Var, ...]) -> Kernel:
    body = s.body if isinstance(s, Produce) else s
    indices: dict[str, tuple[Var, Expr]] = {}
    shared: list[Allocate] = []
    while (isinstance(body, For) and body.kind == "thread" and body.thread in INDICES) or (
        isinstance(body, Allocate) and body.buffer.scope.startswith("shared")
    ):
        if isinstance(body, For):
            assert body.thread is not None
            indices[body.thread] = (body.var, body.extent)
        else:
            shared.append(body)
        body = body.body
    nodes = list(walk(s))
    used = {n.buffer for n in nodes if isinstance(n, (Load, Store, Prefetch))}
    variables = {n for n in nodes if isinstance(n, Var)}
    return Kernel(name, indices, tuple(shared), body, tuple(b for b in outside if b in used), tuple(v for v in sizes if v in variables))


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _unique(name: str, taken: set[str]) -> str:
    """`name`, or with a number where it is taken; it is taken then."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
