"""Blocks: what blocks of a GPU would need of one another is refused, since they cannot wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..conflicts import Access, Conflicts
from ..errors import ScheduleError
from ..expr import Buffer, Const, Expr, Var, logical_not
from ..kernel import Kernel, kernels_of
from ..stmt import Atomic, Bind, Func, If, Stmt, Store
from ..verify import THREADS_BOUND
from ..visit import loads_of, operands_of, statements_in, substitute, walk
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True)
class Blocks(Pass):
    """Changes nothing. A ScheduleError where a block reads an element of global memory that another block of the same kernel writes, as the steps of a scan do
    whose axes are bound to blocks while its elements depend on one another; and where it is not shown that none does, as with indices read from memory.
    Atomic updates of one element may be those of many blocks.
    """

    name: ClassVar[str] = "blocks"
    requires: ClassVar[tuple[str, ...]] = (THREADS_BOUND,)

    def run(self, func: Func, target: Target) -> Func:
        for kernel in kernels_of(func):
            _check(kernel)
        return func


def _check(kernel: Kernel) -> None:
    stored = {node.buffer for node in walk(kernel.body) if isinstance(node, Store)} | {
        node.load.buffer for node in walk(kernel.body) if isinstance(node, Atomic)
    }
    accesses = list(_accesses(kernel.body, {buffer for buffer in stored if buffer.scope == "global"}, (), {}))
    blocks = {var: int(e.value) if isinstance(e, Const) else 1 << 30 for tag, (var, e) in kernel.indices.items() if tag.startswith("blockIdx")}
    possible, certain = Conflicts(blocks), Conflicts(blocks, certain=True)
    sizes = frozenset(kernel.sizes)
    for write in accesses:
        for other in accesses:
            if write.writes and (not other.writes or other.atomic != write.atomic) and possible.meet(write, other, sizes):
                does = "writes" if certain.meet(write, other, sizes) else "may write"
                uses = "writes" if other.writes else "reads"
                raise ScheduleError(f"kernel {kernel.name}: a block {uses} {other.text}, of which another block {does} elements ({write.text}), but blocks "
                                    f"cannot wait for one another; bind axes that need each other to threads of one block, or use compute_root() so "
                                    f"that each is a kernel of its own")  # fmt: skip


def _accesses(s: Stmt, buffers: set[Buffer], guards: tuple[Expr, ...], values: dict[Var, Expr]) -> Iterator[Access]:
    """The accesses to some buffers, with the conditions around them; bound names put in."""

    def access(buffer: Buffer, indices: tuple[Expr, ...], writes: bool, in_lanes: bool, atomic: bool = False) -> Access:
        where = tuple(substitute(i, values) for i in indices)
        return Access(buffer, where, writes, guards, f"{buffer.name}[{', '.join(map(str, indices))}]", in_lanes, atomic=atomic)

    for e in (*s.load.indices, s.value) if isinstance(s, Atomic) else operands_of(s):
        for node in loads_of(e):
            if node.buffer in buffers:
                yield access(node.buffer, node.indices, False, node.predicate is not None)
    if isinstance(s, Store) and s.buffer in buffers:
        yield access(s.buffer, s.indices, True, s.predicate is not None)
    if isinstance(s, Atomic) and s.load.buffer in buffers:
        yield access(s.load.buffer, s.load.indices, True, False, atomic=True)
    if isinstance(s, If):
        condition = substitute(s.condition, values)
        yield from _accesses(s.then, buffers, (*guards, condition), values)
        if s.otherwise is not None:
            yield from _accesses(s.otherwise, buffers, (*guards, logical_not(condition)), values)
        return
    if isinstance(s, Bind) and s.var.exact and s.value.exact:
        values = {**values, s.var: substitute(s.value, values)}
    for inner in statements_in(s):
        yield from _accesses(inner, buffers, guards, values)
