"""Shared memory: where in the memory of a block each shared buffer lies, and whether they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import TargetError
from ..gpu import STATIC_SHARED_BYTES
from ..kernel import Kernel, kernels_of, shared_alignment
from ..liveness import LiveRange, live_ranges_and_barriers
from ..stmt import Allocate, Func, Place, Stmt
from ..verify import CLOSED, FLAT, SYNCED, THREADS_BOUND
from ..visit import StatementRewriter
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True)
class SharedMemory(Pass):
    """`allocate S: float32[1024] in shared` -> `allocate S: float32[1024] in shared at shared + 0`.

    Two buffers share bytes if the last access to one, the first to the other and a barrier between them stand in this order. Buffers are placed largest
    first, each at the lowest offset that is free. Up to 48 KiB in all the generator declares arrays; more is asked for at the launch ("dynamic").
    Raises TargetError where the size of a buffer is not constant, or all of them take more than a block of the target's architecture can have.
    """

    name: ClassVar[str] = "shared_memory"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, FLAT, THREADS_BOUND, SYNCED)

    def run(self, func: Func, target: Target) -> Func:
        ranges, barriers = live_ranges_and_barriers(func)
        found = {r.allocate: r for r in ranges}
        places: dict[Allocate, Place] = {}
        for kernel in kernels_of(func):
            here = [found[allocate] for allocate in kernel.shared if found[allocate].last >= found[allocate].first]
            unit = shared_alignment(kernel.body)
            sizes = {r: -(-_bytes(r, kernel) // unit) * unit for r in here}
            offsets = _offsets(sizes, barriers)
            total = max((offset + sizes[r] for r, offset in offsets.items()), default=0)
            if total > target.gpu.shared_bytes_per_block:
                raise TargetError(_too_much(kernel, total, sizes, offsets, target))
            places.update({r.allocate: Place("shared", offset) for r, offset in offsets.items()})
        return func.with_body(_Placer(places).rewrite_statement(func.body)) if places else func


def _bytes(r: LiveRange, kernel: Kernel) -> int:
    buffer = r.allocate.buffer
    if buffer.constant_size is None:
        raise TargetError(f"kernel {kernel.name}: shared buffer {buffer!r} has no constant size; split the axis it spans by a constant factor, "
                          f"and compute it inside the loop over the outer part")  # fmt: skip
    return buffer.constant_size * buffer.dtype.bytes


def _offsets(sizes: dict[LiveRange, int], barriers: list[int]) -> dict[LiveRange, int]:
    """The place of each buffer: first fit, the largest first."""
    placed: dict[LiveRange, int] = {}
    for each in sorted(sizes, key=lambda r: (-sizes[r], r.first)):
        offset = 0
        for begin, end in sorted((at, at + sizes[other]) for other, at in placed.items() if not _apart(each, other, barriers)):
            if offset + sizes[each] <= begin:
                break
            offset = max(offset, end)
        placed[each] = offset
    return placed


def _apart(a: LiveRange, b: LiveRange, barriers: list[int]) -> bool:
    """Whether a barrier stands between the lives of two buffers."""
    first, second = (a, b) if a.first < b.first else (b, a)
    return any(first.last < barrier < second.first for barrier in barriers)


def _too_much(kernel: Kernel, total: int, sizes: dict[LiveRange, int], offsets: dict[LiveRange, int], target: Target) -> str:
    most = target.gpu.shared_bytes_per_block
    buffers = ", ".join(f"{r.allocate.buffer!r} ({sizes[r]} bytes)" for r in sorted(offsets, key=lambda r: -sizes[r]))
    return (
        f"kernel {kernel.name}: its shared memory takes {total} bytes: {buffers}; a block of {target.arch} can have {most} "
        f"({STATIC_SHARED_BYTES} without asking). Compute the largest at an inner loop of its reader, with smaller tiles, or drop double_buffer"
    )


class _Placer(StatementRewriter):
    """Writes the places down; what is never accessed has none, and is left to the storage pass."""

    def __init__(self, places: dict[Allocate, Place]):
        super().__init__()
        self.places = places

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        place, body = self.places.get(node), self.rewrite_statement(node.body)
        return node if body is node.body and place is None else Allocate(node.buffer, body, place if place is not None else node.place)
