"""Limits: what a GPU cannot launch is refused before anything is compiled for it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ..errors import ScheduleWarning, TargetError
from ..expr import Const, Expr
from ..gpu import INDEX_LIMITS, WARP_SIZE, is_fragment
from ..kernel import Kernel, kernels_of
from ..stmt import Allocate, Func
from ..verify import THREADS_BOUND
from ..visit import walk
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target

LOCAL_BYTES = 512 << 10  # of one thread, on every architecture


@dataclass(frozen=True)
class Limits(Pass):
    """Changes nothing. A TargetError names the kernel, the index or buffer, what was found and what is possible:

    threads of a block (1024), along each index (1024, 1024, 64), blocks of the grid (2^31 - 1, 65535, 65535; symbolic ones are checked at the call), and
    memory of a thread of no constant size or of more than 512 KiB. More than its registers hold is a ScheduleWarning.
    """

    name: ClassVar[str] = "limits"
    requires: ClassVar[tuple[str, ...]] = (THREADS_BOUND,)

    def run(self, func: Func, target: Target) -> Func:
        for kernel in kernels_of(func):
            _check_indices(kernel, target)
            _check_local(kernel, target)
        return func


def _check_indices(kernel: Kernel, target: Target) -> None:
    extents = {tag: _constant(extent) for tag, (_, extent) in kernel.indices.items()}
    for tag, extent in extents.items():
        most = INDEX_LIMITS[tag]
        if extent is not None and extent > most:
            raise TargetError(f"kernel {kernel.name}: the extent of {tag} is {extent}, but at most {most} are possible; split the axis bound to it, "
                              f"and bind the outer part to another index")  # fmt: skip
    threads = {tag: extent for tag, extent in extents.items() if tag.startswith("threadIdx")}
    count, most = prod(extent or 1 for extent in threads.values()), target.gpu.threads_per_block
    if count > most:
        written = " * ".join(f"{extent} ({tag})" for tag, extent in threads.items())
        raise TargetError(f"kernel {kernel.name}: {written} = {count} threads, but a block has at most {most}; bind smaller axes to threadIdx")


def _check_local(kernel: Kernel, target: Target) -> None:
    total, largest = 0, ("", 0)
    for node in walk(kernel.body):
        if not isinstance(node, Allocate):
            continue
        size = node.buffer.constant_size
        if size is None:
            raise TargetError(f"kernel {kernel.name}: {node.buffer!r} is memory of one thread, but its size is not constant; split the axes it spans by "
                              f"constant factors and compute it inside the loops over the outer parts")  # fmt: skip
        found = size * node.buffer.dtype.bytes // (WARP_SIZE if is_fragment(node.buffer.scope) else 1)
        total, largest = total + found, max(largest, (repr(node.buffer), found), key=lambda pair: pair[1])
    if total > LOCAL_BYTES:
        raise TargetError(f"kernel {kernel.name}: a thread takes {total} bytes of local memory (the largest is {largest[0]}), but can have {LOCAL_BYTES}")
    registers = 4 * target.gpu.registers_per_thread
    if total > registers:
        warnings.warn(f"kernel {kernel.name}: a thread takes {total} bytes for local buffers (the largest is {largest[0]}); registers hold {registers}, "
                      f"the rest goes to slow memory", ScheduleWarning, stacklevel=2)  # fmt: skip


def _constant(extent: Expr) -> int | None:
    return int(extent.value) if isinstance(extent, Const) else None
