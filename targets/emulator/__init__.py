"""The CUDA emulator: CUDA C++ source, compiled by the host's compiler and run on the CPU, thread by thread, with checks that a GPU cannot make.

Read in this order: source (the little that is rewritten), include/ (what the source is compiled against), library (compiling), parameters, launch
(the runtime's structures), runtime/ (fibers, scheduler, checks), report, program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .program import Dimensions, Program
from .report import Report

__all__ = ["Program", "Report", "emulate_cuda"]


def emulate_cuda(
    source: str,
    kernel: str,
    grid: Dimensions,
    block: Dimensions,
    args: Sequence[Any],
    check: str | None = None,
    *,
    shared_bytes: int = 0,
    arch: int = 900,
    timeout_s: float | None = None,
    threads: int | None = None,
) -> Report:
    """Compile CUDA C++ source and run one of its kernels on the CPU; arrays in `args` hold the results afterwards.

    `kernel`: its name, or an expression such as "ns::scale<float, 4>". `grid`, `block`: a number or up to three. `args`: a NumPy array for each pointer,
    a number for each scalar. `check`: "race" or "memory".
    """
    program = Program(source, [kernel], check=check, arch=arch)
    program.launch(kernel, grid, block, shared_bytes, args, timeout_s=timeout_s, threads=threads)
    return program.report
