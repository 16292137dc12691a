"""The CUDA emulator: CUDA C++ source, compiled by the host's compiler and run on the CPU, thread by thread, with checks that a GPU cannot make.

Read in this order: source (the little that is rewritten), include/ (what the source is compiled against), library (compiling), parameters, launch
(the runtime's structures), runtime/ (fibers, scheduler, checks), report, program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...tir.errors import ArgumentError
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
    arch: str = "sm_90",
    timeout_s: float | None = None,
    threads: int | None = None,
) -> Report:
    """Compile CUDA C++ source and run one of its kernels on the CPU; arrays in `args` hold the results afterwards.

    `kernel`: its name, or an expression such as "ns::scale<float, 4>". `grid`, `block`: a number or up to three, x first. `args`: a NumPy array for each
    pointer (None: a null pointer), a number for each scalar. `check`: "race" looks for races, accesses out of bounds, reads of shared memory that
    nobody wrote, and divergence; "memory" counts sectors of global memory and bank conflicts. `shared_bytes`: dynamic shared memory of a block. `arch`:
    what `__CUDA_ARCH__` says. `timeout_s`: seconds after which the launch ends. `threads`: blocks that run at the same time (default: the usable CPUs).

    Raises CompileError (the compiler's words, with the source's own lines), ArgumentError, TargetError (a launch that no GPU would take) and EmulatorError
    (a kernel that cannot go on).

    >>> report = emulate_cuda(source, "reverse", grid=4, block=64, args=[x, y], check="race"); print(report)
    """
    number = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if number is None:
        raise ArgumentError(f"arch={arch!r}: expected sm_NN, for example 'sm_90'")
    program = Program(source, [kernel], check=check, arch=10 * int(number[1]))
    program.launch(kernel, grid, block, shared_bytes, args, timeout_s=timeout_s, threads=threads)
    return program.report
