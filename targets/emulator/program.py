"""`Program`: compiled CUDA source whose kernels can be launched; checks the arguments of a launch and turns what went wrong into errors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tir.errors import ArgumentError, TargetError, TilewrightError
from ...tir.target import default_threads
from ..loader import Library
from . import source as cuda_source
from .launch import CHECKS, Launch, Runner
from .library import compile_kernels
from .parameters import Parameter, convert
from .report import Report

_BLOCK_LIMITS, _GRID_LIMITS = (1024, 1024, 64), (2**31 - 1, 65535, 65535)
_MOST_THREADS, _MOST_SHARED_BYTES = 1024, 227 << 10
Dimensions = int | Sequence[int]


class EmulatorError(TilewrightError):
    """A kernel that could not go on: an address that is not there, a deadlock, a timeout, a trap."""


class Program:
    """CUDA C++ source, compiled for the emulator.

    `kernels`: expressions that name the kernels to launch ("scale", "ns::scale<float, 4>"); None: every plain `__global__` function of the source.
    `check`: None, "race" or "memory". `arch`: what `__CUDA_ARCH__` is, for example 900. `report` grows with every launch until `clear_report`.

        program = Program(source, ["scale"], check="race")
        program.launch("scale", grid=(4, 1, 1), block=(64, 1, 1), shared_bytes=0, args=[x, y, 2.0])
        program.report.races

    Raises CompileError (the compiler's words, with the lines of `source`) and ArgumentError (a kernel that the source does not have).
    """

    def __init__(self, source: str, kernels: Sequence[str] | None = None, *, check: str | None = None, arch: int = 900):
        if check not in CHECKS:
            raise ArgumentError(f"check={check!r}: expected None, 'race' or 'memory'")
        found = cuda_source.kernel_names(source)
        self.kernels = tuple(found if kernels is None else kernels)
        for kernel in self.kernels:
            if kernel.split("<")[0].split("::")[-1].strip() not in found:
                has = f"it has {', '.join(found)}" if found else "it has no __global__ function"
                raise ArgumentError(f"the CUDA source has no kernel {kernel!r}: {has}")
        self.check = check
        path, runtime = compile_kernels(source, self.kernels, arch=arch, checked=check is not None)
        self._library, self._runner = Library(path), Runner(runtime.library)
        self._entries = {kernel: self._pointer(f"emulator_entry_{number}") for number, kernel in enumerate(self.kernels)}
        self._parameters = {kernel: self._read_parameters(number) for number, kernel in enumerate(self.kernels)}
        self.report = Report(check)

    def _pointer(self, symbol: str) -> int:
        _, address = self._library._address(symbol)
        return int(ctypes.c_void_p.from_address(address).value or 0)

    def _read_parameters(self, number: int) -> tuple[Parameter, ...]:
        _, count = self._library._address(f"emulator_count_{number}")
        length = ctypes.c_uint.from_address(count).value
        numbers = (ctypes.c_uint * length).from_address(self._pointer(f"emulator_types_{number}"))
        return tuple(Parameter.decode(value) for value in numbers)

    def parameters(self, kernel: str) -> tuple[Parameter, ...]:
        """The types of a kernel's parameters, as the compiler knows them."""
        return self._parameters[kernel]

    def clear_report(self) -> None:
        """Forget what earlier launches found."""
        self.report = Report(self.check)

    def launch(
        self,
        kernel: str,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int = 0,
        args: Sequence[Any] = (),
        *,
        timeout_s: float | None = None,
        threads: int | None = None,
    ) -> None:
        """Run one kernel to its end; arrays in `args` hold the results.

        `grid`, `block`: a number or up to three (x, y, z). `shared_bytes`: dynamic shared memory of a block.
        `args`: a NumPy array for each pointer, a number for each scalar.
        `timeout_s`: after this many seconds the launch ends with an EmulatorError. `threads`: blocks that run at the same time.
        Raises ArgumentError, TargetError (a launch that no GPU would take), EmulatorError (the kernel failed).
        """
        if kernel not in self._entries:
            raise ArgumentError(f"no kernel {kernel!r} was compiled; there are {', '.join(self.kernels)}")
        grid3, block3 = _dimensions("grid", grid, _GRID_LIMITS), _dimensions("block", block, _BLOCK_LIMITS)
        if block3[0] * block3[1] * block3[2] > _MOST_THREADS:
            raise TargetError(f"block={block}: {block3[0] * block3[1] * block3[2]} threads, but a block has at most {_MOST_THREADS}")
        if not 0 <= shared_bytes <= _MOST_SHARED_BYTES:
            raise TargetError(f"shared_bytes={shared_bytes}: expected 0 to {_MOST_SHARED_BYTES}")
        with convert(kernel, self._parameters[kernel], args) as values:
            launch = Launch()
            launch.entry = self._entries[kernel]
            launch.arguments = values.pointers
            launch.grid[:], launch.block[:] = grid3, block3
            launch.dynamic_bytes = shared_bytes
            blocks = grid3[0] * grid3[1] * grid3[2]
            launch.workers = max(1, min(threads or default_threads(), blocks, 256))
            launch.check = CHECKS[self.check]
            self._runner.run(launch, timeout_s)
        self._raise(launch, kernel, timeout_s)

    def _raise(self, launch: Launch, kernel: str, timeout_s: float | None) -> None:
        if not launch.error_kind:
            return
        text = launch.error_text.decode(errors="replace")
        raise EmulatorError(f"kernel {kernel!r} failed: {text}")


def _dimensions(what: str, given: Dimensions, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    values = (given,) if isinstance(given, (int, np.integer)) else tuple(given)
    if not 1 <= len(values) <= 3 or not all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values):
        raise ArgumentError(f"{what}={given!r}: expected a number or up to three (x, y, z)")
    x, y, z = (*(int(value) for value in values), 1, 1)[:3]
    for axis, value, limit in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= value <= limit:
            raise TargetError(f"{what}={given!r}: {what}.{axis} is {value}, expected 1 to {limit}")
    return x, y, z
