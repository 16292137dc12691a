"""`CudaModule`: a function of CUDA kernels that takes arrays, run by the emulator or on a GPU. Made by `compile_cuda_module`.

It checks arguments, binds sizes and knows the launches; moving arrays and starting kernels is in cuda_devices.py.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..tir.errors import ArgumentError, TargetError
from ..tir.gpu import INDEX_LIMITS
from ..tir.kernel import WIDEST_BYTES
from ..tir.target import Target
from .arrays import ArgumentChecker, gpu_view_of, view_of
from .constants import ConstantMemory
from .cuda_devices import Closed, Device, Emulator, Gpu, Start
from .cuda_files import DESCRIPTION, PTX, description_of
from .cuda_launch import GeneratedCuda, Number
from .cuda_toolchain import CudaBuild, compile_cuda
from .dlpack import View
from .emulator import Report
from .module import Module, replace_file
from .sizes import evaluate
from .timer import TimeResult

CHECKS = ("race", "memory")
_GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


@dataclass(frozen=True)
class KernelResources:
    """What one kernel takes: `registers` of a thread; `stack_bytes`, of a local array that is not in registers, and `spill_bytes`, both in slow memory;
    `shared_bytes` of a block, declared and dynamic; `occupancy`: the share of a multiprocessor's warps that can be resident."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int
    occupancy: float


class CudaModule(Module):
    """A function of CUDA kernels, launched one after another.

    With `device="emulator"` it takes what a C module takes, and nothing is copied. On a GPU it takes arrays of the device (DLPack, the CUDA array
    interface: PyTorch, CuPy ...), which are not copied either, and NumPy arrays, which are copied in, and the outputs back. A call on the device's arrays
    alone only starts the kernels, in the default stream; one with a NumPy array among them returns when all is done.

    `resources`: kernel name -> `KernelResources`; `report`: what a build with `check=` found in the last call.
    """

    _generated: GeneratedCuda

    def __init__(
        self,
        generated: GeneratedCuda,
        target: Target,
        check: str | None = None,
        constants: Sequence[ConstantMemory] = (),
        build: CudaBuild | None = None,
    ) -> None:
        super().__init__(generated.signature, target, generated)
        self.check = check
        if build is not None:
            self._build = build
        self._alignments = generated.alignments[len(generated.constants) :]
        self._memories = tuple(constants)
        self._constants = [
            View(memory.address, spec.dtype, tuple(int(extent) for extent in spec.shape), None, True, memory)
            for memory, spec in zip(constants, generated.constants, strict=True)
        ]
        emulated = target.device == "emulator"
        self._checker = ArgumentChecker(self.signature, view_of if emulated else gpu_view_of)
        self._device: Device = Emulator(generated, target, check) if emulated else Gpu(generated, self._build, target)

    @cached_property
    def _build(self) -> CudaBuild:
        """What the CUDA compiler made; the emulator needs none, so there it is made when it is asked for."""
        return compile_cuda(self._generated.source, self.target)

    def __call__(self, *arguments: Any) -> None:
        views, starts, workspace = self._prepared(arguments)
        self._device.run(views, starts, workspace)

    def run_at(self, numbers: Sequence[int]) -> None:
        specs = (*self._generated.constants, *self._generated.arguments)
        shapes = [tuple(int(extent) for extent in spec.shape) for spec in specs]
        views = [View(address, spec.dtype, shape, None, False, None) for address, spec, shape in zip(numbers, specs, shapes, strict=False)]
        self._device.run(views, self._starts({}), self._number(self._generated.workspace, {}))

    def _prepared(self, arguments: tuple[Any, ...]) -> tuple[list[View], list[Start], int]:
        numbers, views = self._checker.examine(arguments)
        for position, (view, needed) in enumerate(zip(views, self._alignments, strict=True)):
            if view.device is not None:
                self._checker.check_alignment(position, view, needed)
            elif self.target.device == "emulator":  # which takes what NumPy gives; a GPU gets a copy
                self._checker.check_alignment(position, view, min(needed, WIDEST_BYTES))
        sizes = dict(zip(self.signature.sizes, numbers[len(views) :], strict=True))
        return [*self._constants, *views], self._starts(sizes), self._number(self._generated.workspace, sizes)

    def _number(self, value: Number, sizes: dict[str, int]) -> int:
        return value if isinstance(value, int) else evaluate(ast.parse(value, mode="eval").body, sizes)

    def _starts(self, sizes: dict[str, int]) -> list[Start]:
        """The launches of a call; those of an empty grid are left out."""
        found = []
        for launch in self._generated.launches:
            x, y, z = (self._number(extent, sizes) for extent in launch.grid)
            for tag, extent in zip(_GRID, (x, y, z), strict=True):
                if extent > INDEX_LIMITS[tag]:
                    raise ArgumentError(
                        f"{self.name}: with these sizes kernel {launch.name} has {extent} blocks along {tag}, but a grid has at most {INDEX_LIMITS[tag]}"
                    )
            if min(x, y, z) > 0:
                values = tuple(self._number(p.value, sizes) for p in launch.parameters)
                elements = tuple(self._number(p.elements, sizes) for p in launch.parameters)
                found.append(Start(launch, (x, y, z), values, elements))
        return found

    @property
    def library_path(self) -> str:
        return str(self._build.cubin_path)

    @cached_property
    def resources(self) -> dict[str, KernelResources]:
        """What each kernel takes, as ptxas says, and the occupancy that follows."""
        found = {}
        for launch in self._generated.launches:
            usage = self._build.usage[launch.name]
            shared = usage.shared_bytes + launch.dynamic_shared_bytes
            occupancy = self.target.gpu.occupancy(launch.threads, usage.registers, shared)
            found[launch.name] = KernelResources(usage.registers, usage.stack_bytes, usage.spill_bytes, shared, occupancy)
        return found

    @property
    def report(self) -> Report:
        """What the emulator found in the last call. A TargetError for a module that was built without `check=`, or was not called yet."""
        if self.check is None or not isinstance(self._device, Emulator):
            raise TargetError(f'{self.name} was built without checks: tw.build(..., target=tw.Target("cuda", device="emulator"), check="race" or "memory")')
        if not self._device.called:
            raise TargetError(f"{self.name} was not called yet, so nothing was checked: report tells what the last call did")
        return self._device.program.report

    def get_source(self, kind: str | None = None) -> str:
        if kind == "ptx":
            return self._build.ptx_path.read_text()
        return super().get_source(kind)

    def time_evaluator(self, *, repeat: int = 5, number: int | None = None, min_repeat_ms: float = 50, flush_cache: bool = False) -> Callable[..., TimeResult]:
        """A function that takes the arguments of a call and times it, on a GPU by its events: arrays are copied before, and are not part of the time.

        `flush_cache`: memory twice as large as the L2 cache is written before each call, outside the time taken. See `timer.measure` for the rest.
        """
        options = {"repeat": repeat, "number": number, "min_repeat_ms": min_repeat_ms, "flush_cache": flush_cache}

        def evaluate_time(*arguments: Any) -> TimeResult:
            return self._device.time(*self._prepared(arguments), options)

        return evaluate_time

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write the cubin to `path`, and beside it (same name, ".json" and ".ptx") how its kernels are launched, and the code for GPUs to come.

        The description has grids, blocks, parameters in order and dynamic shared memory; numbers that depend on sizes are expressions of them. `load_module`
        reads it all back. Constant operands are in the cubin where they lie in constant memory; the values of others are in the description, as base64. A
        TargetError where nothing can be written there.
        """
        path = Path(path)
        if path.suffix in (DESCRIPTION, PTX):
            raise TargetError(
                f"export_library({str(path)!r}): the files beside the cubin get the names with {DESCRIPTION} and {PTX}; give it another, as .cubin"
            )
        try:
            replace_file(path, self._build.cubin_path.read_bytes())
            replace_file(path.with_suffix(PTX), self._build.ptx_path.read_bytes())
            replace_file(path.with_suffix(DESCRIPTION), description_of(self._generated, self.target, self._memories, self._build).encode())
        except OSError as error:
            raise TargetError(f"export_library({str(path)!r}): {error.strerror}: {path.parent}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        replace_file(Path(path), description_of(self._generated, self.target, self._memories).encode())

    def close(self) -> None:
        self._device.close()
        self._device = Closed(self.name)


def compile_cuda_module(generated: GeneratedCuda, target: Target, constants: Sequence[ConstantMemory] = (), check: str | None = None) -> CudaModule:
    """Compile a generated function: for a GPU to a cubin, for the emulator by the host's compiler. CompileError where that refuses it.

    `check`: "race" or "memory": what the emulator looks for; see `Report`. `constants`: what the function takes before its arguments.
    """
    return CudaModule(generated, target, check, constants)
