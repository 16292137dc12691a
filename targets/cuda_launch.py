"""What the CUDA generator hands to the runtime beside the source: which kernels to launch, with which grid, block and parameters. Data only.

Numbers that depend on symbolic sizes are texts in the names of the signature's sizes, as in `ArgumentSpec.shape`; sizes.py evaluates them at a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from ..tir.target import Target
from .generated import Generated

Number = int | str


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel. `kind`: "argument": the address of argument `value`, counted with the constants before them; "workspace": that of byte
    `value` of the workspace; "size": the value of `value`. `dtype`: of the elements there, or of the size itself. `elements`: of a buffer in the
    workspace."""

    kind: str
    value: Number
    dtype: str
    elements: Number = 0


@dataclass(frozen=True)
class KernelLaunch:
    """One launch. `grid`, `block`: x, y, z. `reads`, `writes`: names of its buffers, for readers. `dynamic_shared_bytes` come on top of the arrays that the
    source declares."""

    name: str
    grid: tuple[Number, Number, Number]
    block: tuple[int, int, int]
    parameters: tuple[Parameter, ...]
    dynamic_shared_bytes: int = 0

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return prod(self.block)


@dataclass(frozen=True)
class GeneratedCuda(Generated):
    """A generated function of CUDA kernels. `launches`: in order; `workspace`: bytes of intermediate storage in global memory of a call; `alignments`: for
    each argument, constants first, the bytes its address must be a multiple of."""

    launches: tuple[KernelLaunch, ...] = ()
    workspace: Number = 0
    alignments: tuple[int, ...] = field(default=())

    def source_with_signature(self, target: Target) -> str:
        """The source as it is: a module of CUDA has its launches beside it."""
        return self.source
