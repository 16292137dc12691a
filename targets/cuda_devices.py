"""Where the kernels of a `CudaModule` run: `Emulator` on the host's memory as it is, `Gpu` on the device's, to which NumPy arrays are copied."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..tir.errors import ArgumentError, TargetError
from ..tir.target import Target
from .arrays import item_bytes
from .cuda_driver import Driver, driver
from .cuda_launch import GeneratedCuda, KernelLaunch, Parameter
from .cuda_toolchain import CudaBuild
from .dlpack import View
from .emulator import Program
from .timer import TimeResult, check_repeats, measure

_ALIGNMENT = 256  # bytes, of the workspace
_LARGEST_NUMBER = 1_000_000
# what elements are to NumPy where CUDA knows them as bits
_BITS = {"bool": "uint8", "float8_e4m3": "uint8", "float8_e5m2": "uint8", "float16": "uint16", "bfloat16": "uint16"}


@dataclass(frozen=True)
class Start:
    """A launch with numbers in the place of its texts. `values`, `elements`: of its parameters."""

    launch: KernelLaunch
    grid: tuple[int, int, int]
    values: tuple[int, ...]
    elements: tuple[int, ...]

    @property
    def arguments(self) -> Iterator[tuple[Parameter, int]]:
        """Its parameters with their values."""
        return zip(self.launch.parameters, self.values, strict=True)


class Device(Protocol):
    """Where kernels run."""

    def run(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int) -> None:
        """One call. `views`: the memory of constants and arguments."""

    def time(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int, options: dict[str, Any]) -> TimeResult:
        """The seconds that calls take; `options` as of `timer.measure`."""

    def close(self) -> None:
        """Give up what is loaded."""


class Closed:
    """Stands in for the device of a module that was closed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int) -> None:
        raise TargetError(f"module {self._name} was closed")

    def time(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int, options: dict[str, Any]) -> TimeResult:
        raise TargetError(f"module {self._name} was closed")

    def close(self) -> None:
        """Nothing is left."""


class Emulator:
    """The CPU. `program` has the report of the last call; `called`: there was one."""

    def __init__(self, generated: GeneratedCuda, target: Target, check: str | None) -> None:
        self.program = Program(generated.source, [launch.name for launch in generated.launches], check=check, arch=10 * target.gpu.capability)
        self._threads = target.threads
        self.called = False

    def run(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int) -> None:
        arrays = [_array_at(view) for view in views]
        workspace = np.empty(workspace_bytes + _ALIGNMENT, np.uint8)
        workspace = workspace[-workspace.ctypes.data % _ALIGNMENT :]
        self.program.clear_report()
        self.called = True
        for start in starts:
            values: list[Any] = []
            for (parameter, value), elements in zip(start.arguments, start.elements, strict=True):
                if parameter.kind == "argument":
                    values.append(arrays[value])
                elif parameter.kind == "workspace":
                    bits = _bits(parameter.dtype)
                    values.append(workspace[value : value + elements * bits.itemsize].view(bits))
                else:
                    values.append(value)
            self.program.launch(start.launch.name, start.grid, start.launch.block, start.launch.dynamic_shared_bytes, values, threads=self._threads)

    def time(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int, options: dict[str, Any]) -> TimeResult:
        return measure(lambda: self.run(views, starts, workspace_bytes), **options)

    def close(self) -> None:
        """The program goes when nobody has it."""


def _bits(dtype: str) -> np.dtype[Any]:
    return np.dtype(_BITS.get(dtype, dtype))


def _array_at(view: View) -> np.ndarray[Any, Any]:
    """The memory of a view as a NumPy array of the bits that CUDA sees."""
    dtype = _bits(view.dtype)
    count = math.prod(view.shape)
    if count == 0:
        return np.empty(0, dtype)
    array = np.ctypeslib.as_array((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(view.address)).view(dtype)
    array.flags.writeable = not view.read_only
    return array


class Gpu:
    """A GPU. Its driver is asked for at the first call, so that a kernel can be built where there is none."""

    def __init__(self, generated: GeneratedCuda, build: CudaBuild, target: Target) -> None:
        self._name, self._build, self._target = generated.name, build, target
        self._constant_count = len(generated.constants)
        self._is_output = [spec.is_output for spec in (*generated.constants, *generated.arguments)]
        self._held = _Held()
        self._lock = threading.Lock()
        weakref.finalize(self, self._held.release).atexit = False  # then the driver takes all back

    def run(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int) -> None:
        with self._placed(views, workspace_bytes) as (device, addresses, workspace):
            self._ready(device, starts, addresses, workspace)()

    def time(self, views: Sequence[View], starts: Sequence[Start], workspace_bytes: int, options: dict[str, Any]) -> TimeResult:
        with self._placed(views, workspace_bytes) as (device, addresses, workspace):
            return measure_on_gpu(device, self._ready(device, starts, addresses, workspace), **options)

    @contextmanager
    def _placed(self, views: Sequence[View], workspace_bytes: int) -> Iterator[tuple[Driver, list[int], int]]:
        """The device, the addresses of all arrays on it, and of the workspace. What was copied in is copied back at the end, if it is an output."""
        ordinals = {view.device for view in views if view.device is not None}
        if len(ordinals) > 1:
            raise ArgumentError(f"{self._name}: arguments are on the GPUs {', '.join(map(str, sorted(ordinals)))}; expected all on one")
        device = driver(ordinals.pop() if ordinals else 0)
        with device.current():
            copies: list[tuple[int, int, int]] = []  # (position, address, bytes)
            workspace = self._take_workspace(device, workspace_bytes)
            try:
                addresses = [self._address(device, position, view, copies) for position, view in enumerate(views)]
                yield device, addresses, workspace[1]
                for position, address, size in copies:
                    if self._is_output[position]:
                        device.copy_out(views[position].address, address, size)
                if copies:
                    device.synchronize()
            finally:
                for _, address, _ in copies:
                    with suppress(TargetError):  # of a context that is lost; why it is has been said
                        device.free(address)
                if workspace_bytes:
                    with self._lock:
                        self._held.workspaces.setdefault(device, []).append(workspace)

    def _address(self, device: Driver, position: int, view: View, copies: list[tuple[int, int, int]]) -> int:
        size = math.prod(view.shape) * item_bytes(view.dtype)
        if view.device is not None or size == 0:
            return view.address
        if position < self._constant_count:
            with self._lock:
                constants = self._held.constants.setdefault(device, {})
                if position not in constants:
                    address = device.allocate(size)
                    device.copy_in(address, view.address, size)
                    constants[position] = address
                return constants[position]
        address = device.allocate(size)
        copies.append((position, address, size))
        device.copy_in(address, view.address, size)
        return address

    def _take_workspace(self, device: Driver, size: int) -> tuple[int, int]:
        """Bytes and address of memory that no call uses; one that is too small makes room for the new one."""
        if size == 0:
            return 0, 0
        with self._lock:
            workspaces = self._held.workspaces.setdefault(device, [])
            while workspaces:
                found, address = workspaces.pop()
                if found >= size:
                    return found, address
                device.free(address)
        return size, device.allocate(size)

    def _ready(self, device: Driver, starts: Sequence[Start], addresses: Sequence[int], workspace: int) -> Callable[[], None]:
        """A function that starts the kernels of a call; nothing is left to be found out when it is called."""
        launches = []
        for start in starts:
            values: list[Any] = []
            for parameter, value in start.arguments:
                if parameter.kind == "size":
                    values.append(ctypes.c_int32(value) if parameter.dtype == "int32" else ctypes.c_int64(value))
                else:
                    values.append(ctypes.c_uint64(addresses[value] if parameter.kind == "argument" else workspace + value))
            launch = start.launch
            launches.append((self._function(device, launch), start.grid, launch.block, launch.dynamic_shared_bytes, device.packed(values)))

        def run() -> None:
            for each in launches:
                device.launch(*each)

        return run

    def _function(self, device: Driver, launch: KernelLaunch) -> Any:
        with self._lock:
            if device not in self._held.modules:
                self._held.modules[device] = device.load(self._image(device))
            functions = self._held.functions.setdefault(device, {})
            if launch.name not in functions:
                functions[launch.name] = device.function(self._held.modules[device], launch.name, launch.dynamic_shared_bytes)
            return functions[launch.name]

    def _image(self, device: Driver) -> bytes:
        """The cubin where the GPU can run it: of its own generation, and no newer; PTX, which the driver compiles, on a newer generation."""
        built = self._target.gpu.capability
        if device.capability < built:
            raise TargetError(
                f"{self._name} was built for {self._target.arch}, but the GPU ({device.name}) is sm_{device.capability}: build it with "
                f'Target("cuda", arch="sm_{device.capability}")'
            )
        same_generation = device.capability // 10 == built // 10
        return self._build.cubin_path.read_bytes() if same_generation else self._build.ptx_path.read_bytes()

    def close(self) -> None:
        """What the module has on GPUs is given back, when what was launched is done."""
        with self._lock:
            self._held.release()


class _Held:
    """What a module has on each device: it is given back by `close`, or when nobody has the module any more."""

    def __init__(self) -> None:
        self.modules: dict[Driver, Any] = {}
        self.functions: dict[Driver, dict[str, Any]] = {}
        self.constants: dict[Driver, dict[int, int]] = {}  # by position: where they were copied to
        self.workspaces: dict[Driver, list[tuple[int, int]]] = {}  # (bytes, address), kept between calls

    def release(self) -> None:
        """Once more does nothing. Nothing can be given back to a context that is lost."""
        for device in {*self.modules, *self.constants, *self.workspaces}:
            with suppress(TargetError), device.current():
                for address in [*self.constants.pop(device, {}).values(), *(address for _, address in self.workspaces.pop(device, []))]:
                    device.free(address)
                self.functions.pop(device, None)
                if device in self.modules:
                    device.unload(self.modules.pop(device))


def measure_on_gpu(
    device: Driver, launch: Callable[[], None], *, repeat: int = 5, number: int | None = None, min_repeat_ms: float = 50, flush_cache: bool = False
) -> TimeResult:
    """Seconds of a call by the GPU's own clock: one warm-up, then `repeat` times the mean of `number` calls.

    Without `flush_cache` two events surround the calls of a repeat, so that starting them overlaps with running them. With it each call stands between
    events of its own, after twice the bytes of the L2 cache were written.
    """
    check_repeats(repeat, number, min_repeat_ms)
    flushed_bytes = 2 * device.l2_bytes
    flushed = device.allocate(flushed_bytes) if flush_cache else 0

    def run(count: int) -> float:
        if not flush_cache:
            first = device.record()
            for _ in range(count):
                launch()
            return device.seconds_between(first, device.record())
        events = []
        for _ in range(count):
            device.fill(flushed, flushed_bytes)
            first = device.record()
            launch()
            events.append((first, device.record()))
        return sum(device.seconds_between(*pair) for pair in events)

    try:
        launch()
        device.synchronize()
        if number is None:
            number, least_s = 1, min_repeat_ms * 1e-3
            while (seconds := run(number)) < least_s and number < _LARGEST_NUMBER:
                number = min(_LARGEST_NUMBER, math.ceil(number * min(100.0, max(1.1 * least_s / max(seconds, 1e-9), 1.1))))
        return TimeResult(tuple(run(number) / number for _ in range(repeat)), number)
    finally:
        if flushed:
            with suppress(TargetError):  # of a context that is lost; why it is has been said
                device.free(flushed)
