"""A GPU through the CUDA driver: the few calls that running kernels takes, by pycuda or by NVIDIA's cuda-bindings, whichever is installed.

The context is the device's primary one, which PyTorch, CuPy and the CUDA runtime use too, so that memory and streams are shared with them. Work goes into
the default stream, in order with theirs. Nothing here knows what a kernel is for.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar, Protocol

import numpy as np

from ..tir.errors import TargetError

_WITHOUT = (
    "to run kernels on a GPU, install one of the packages pycuda (pip install 'tilewright[cuda]') and cuda-bindings; "
    'without a GPU, build with Target("cuda", device="emulator") (on the command line: --device emulator)'
)
_LOST = "; the GPU's context is lost with it: in this process nothing more will run on the GPU"


class Driver(Protocol):
    """One device. All methods are called inside `current`, except that itself. Addresses are numbers; sizes are bytes."""

    package: ClassVar[str]  # that it is made with
    name: str  # of the device
    capability: int  # 90 for sm_90
    l2_bytes: int

    def current(self) -> Any:
        """A context manager: the device's primary context is the thread's meanwhile."""

    def load(self, image: bytes) -> Any:
        """A module from a cubin or PTX."""

    def unload(self, module: Any) -> None:
        """Give a module up, when its kernels are done. Nobody else has it or a kernel of it."""

    def function(self, module: Any, name: str, dynamic_shared_bytes: int) -> Any:
        """A kernel of a module, which may be launched with that much dynamic shared memory."""

    def allocate(self, size: int) -> int:
        """Memory of the device. MemoryError where there is not so much."""

    def free(self, address: int) -> None:
        """Give it back."""

    def copy_in(self, address: int, host_address: int, size: int) -> None:
        """From the host to the device."""

    def copy_out(self, host_address: int, address: int, size: int) -> None:
        """From the device to the host, after all that was launched before."""

    def fill(self, address: int, size: int) -> None:
        """Zeros."""

    def packed(self, values: Sequence[Any]) -> Any:
        """The parameters of a kernel, ctypes objects, in the form that launching takes; may be used again."""

    def launch(self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], dynamic_shared_bytes: int, packed: Any) -> None:
        """Start a kernel."""

    def synchronize(self) -> None:
        """Wait until all is done. A TargetError says what went wrong in a kernel."""

    def record(self) -> Any:
        """An event: the moment when what was launched before is done."""

    def seconds_between(self, first: Any, second: Any) -> float:
        """Between two events, waiting for the second. Both are given up."""

    def is_lost(self) -> bool:
        """Whether a kernel failed in a way that leaves the context of no use: until the process ends, every call fails."""


class PycudaDriver:
    """`Driver` by pycuda."""

    package: ClassVar[str] = "pycuda"

    def __init__(self, cuda: Any, ordinal: int) -> None:
        self._cuda = cuda
        self._allocations: dict[int, Any] = {}  # pycuda frees what it allocated when the object is collected
        with self._failures("the GPU cannot be used", f"; {_WITHOUT}"):
            cuda.init()
            if cuda.Device.count() <= ordinal:
                raise TargetError(f"there is no GPU number {ordinal}; the driver sees {cuda.Device.count()}; {_WITHOUT}")
            device = cuda.Device(ordinal)
            self.name = str(device.name())
            major, minor = device.compute_capability()
            self.capability = 10 * major + minor
            self.l2_bytes = int(device.get_attribute(cuda.device_attribute.L2_CACHE_SIZE))
            self._context = device.retain_primary_context()
        atexit.register(self._context.detach)  # else its destructor does, as of a context that is not the primary one

    @contextmanager
    def _failures(self, what: str, advice: str = "") -> Iterator[None]:
        try:
            yield
        except TargetError:
            raise
        except self._cuda.MemoryError as error:
            raise MemoryError(f"{what}: {error}") from None
        except self._cuda.Error as error:
            lost = _LOST if hasattr(self, "_context") and self.is_lost() else ""
            raise TargetError(f"{what}: CUDA driver: {error}{lost}{advice}") from None

    @contextmanager
    def current(self) -> Iterator[None]:
        with self._failures("the primary context"):
            self._context.push()
        try:
            yield
        finally:
            self._cuda.Context.pop()

    def load(self, image: bytes) -> Any:
        with self._failures("a kernel cannot be loaded"):
            return self._cuda.module_from_buffer(image + b"\0")  # the zero is for PTX

    def unload(self, module: Any) -> None:
        """The module goes with the last reference, which is the caller's; here its context is current, in whichever thread."""

    def function(self, module: Any, name: str, dynamic_shared_bytes: int) -> Any:
        with self._failures(f"kernel {name!r}"):
            function = module.get_function(name)
            if dynamic_shared_bytes:  # with the arrays that the source declares it may be more than fits without
                function.set_attribute(self._cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_shared_bytes)
            return function

    def allocate(self, size: int) -> int:
        with self._failures(f"{size} bytes on {self.name}"):
            memory = self._cuda.mem_alloc(size)
        self._allocations[int(memory)] = memory
        return int(memory)

    def free(self, address: int) -> None:
        with self._failures("giving memory back"):
            self._allocations.pop(address).free()

    def copy_in(self, address: int, host_address: int, size: int) -> None:
        with self._failures("copying to the GPU"):
            self._cuda.memcpy_htod(address, _bytes_at(host_address, size))

    def copy_out(self, host_address: int, address: int, size: int) -> None:
        with self._failures("a kernel failed, or copying from the GPU"):
            self._cuda.memcpy_dtoh(_bytes_at(host_address, size), address)

    def fill(self, address: int, size: int) -> None:
        with self._failures("clearing memory"):
            self._cuda.memset_d8(address, 0, size)

    def packed(self, values: Sequence[Any]) -> Any:
        return [np.frombuffer(bytes(value), np.dtype(f"i{ctypes.sizeof(value)}"))[0] for value in values]

    def launch(self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], dynamic_shared_bytes: int, packed: Any) -> None:
        with self._failures("a kernel cannot be launched"):
            function(*packed, grid=grid, block=block, shared=dynamic_shared_bytes)

    def synchronize(self) -> None:
        with self._failures("a kernel failed"):
            self._cuda.Context.synchronize()

    def record(self) -> Any:
        event = self._cuda.Event()
        with self._failures("an event cannot be recorded"):
            event.record()
        return event

    def seconds_between(self, first: Any, second: Any) -> float:
        with self._failures("a kernel failed"):
            second.synchronize()
            return float(first.time_till(second)) * 1e-3

    def is_lost(self) -> bool:
        try:
            self._context.push()  # not by `current`, which would ask again why it failed
            try:
                self._cuda.Context.synchronize()
            finally:
                self._cuda.Context.pop()
        except self._cuda.Error:
            return True
        return False


class BindingsDriver:
    """`Driver` by cuda-bindings, whose functions are those of the driver and return their status first."""

    package: ClassVar[str] = "cuda-bindings"

    def __init__(self, cuda: Any, ordinal: int) -> None:
        self._cuda = cuda
        try:
            self._call("the GPU cannot be used", cuda.cuInit, 0)
        except TargetError as error:
            raise TargetError(f"{error}; {_WITHOUT}") from None
        except RuntimeError as error:  # the driver's library is not there, which cuda-bindings looks for now
            raise TargetError(f"no GPU can be used (cuda-bindings is installed, but: {error}): {_WITHOUT}") from None
        count = self._call("the GPU cannot be used", cuda.cuDeviceGetCount)
        if count <= ordinal:
            raise TargetError(f"there is no GPU number {ordinal}; the driver sees {count}; {_WITHOUT}")
        device = self._call("the GPU cannot be used", cuda.cuDeviceGet, ordinal)
        self.name = bytes(self._call("its name", cuda.cuDeviceGetName, 256, device)).split(b"\0")[0].decode()
        attributes = cuda.CUdevice_attribute
        major, minor, self.l2_bytes = (
            int(self._call("an attribute of the GPU", cuda.cuDeviceGetAttribute, attribute, device))
            for attribute in (
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attributes.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            )
        )
        self.capability = 10 * major + minor
        self._context = self._call("the primary context", cuda.cuDevicePrimaryCtxRetain, device)

    def _call(self, what: str, function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        if int(status):
            name = getattr(status, "name", str(int(status)))
            if status == self._cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise MemoryError(f"{what}: {name}")
            raise TargetError(f"{what}: CUDA driver: {name}{_LOST if hasattr(self, '_context') and self.is_lost() else ''}")
        return results[0] if results else None

    @contextmanager
    def current(self) -> Iterator[None]:
        self._call("the primary context", self._cuda.cuCtxPushCurrent, self._context)
        try:
            yield
        finally:
            self._call("the primary context", self._cuda.cuCtxPopCurrent)

    def load(self, image: bytes) -> Any:
        held = ctypes.create_string_buffer(image)  # ends in the zero that PTX needs
        return self._call("a kernel cannot be loaded", self._cuda.cuModuleLoadData, ctypes.addressof(held))

    def unload(self, module: Any) -> None:
        self._call("a kernel cannot be given up", self._cuda.cuModuleUnload, module)

    def function(self, module: Any, name: str, dynamic_shared_bytes: int) -> Any:
        function = self._call(f"kernel {name!r}", self._cuda.cuModuleGetFunction, module, name.encode())
        if dynamic_shared_bytes:
            attribute = self._cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(f"kernel {name!r}", self._cuda.cuFuncSetAttribute, function, attribute, dynamic_shared_bytes)
        return function

    def allocate(self, size: int) -> int:
        return int(self._call(f"{size} bytes on {self.name}", self._cuda.cuMemAlloc, size))

    def free(self, address: int) -> None:
        self._call("giving memory back", self._cuda.cuMemFree, address)

    def copy_in(self, address: int, host_address: int, size: int) -> None:
        self._call("copying to the GPU", self._cuda.cuMemcpyHtoD, address, host_address, size)

    def copy_out(self, host_address: int, address: int, size: int) -> None:
        self._call("a kernel failed, or copying from the GPU", self._cuda.cuMemcpyDtoH, host_address, address, size)

    def fill(self, address: int, size: int) -> None:
        self._call("clearing memory", self._cuda.cuMemsetD8, address, 0, size)

    def packed(self, values: Sequence[Any]) -> Any:
        return (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values)), values  # the values are pointed to

    def launch(self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], dynamic_shared_bytes: int, packed: Any) -> None:
        what = "a kernel cannot be launched"
        self._call(what, self._cuda.cuLaunchKernel, function, *grid, *block, dynamic_shared_bytes, 0, ctypes.addressof(packed[0]), 0)

    def synchronize(self) -> None:
        self._call("a kernel failed", self._cuda.cuCtxSynchronize)

    def record(self) -> Any:
        event = self._call("an event", self._cuda.cuEventCreate, 0)
        self._call("an event", self._cuda.cuEventRecord, event, 0)
        return event

    def seconds_between(self, first: Any, second: Any) -> float:
        self._call("a kernel failed", self._cuda.cuEventSynchronize, second)
        seconds = float(self._call("an event", self._cuda.cuEventElapsedTime, first, second)) * 1e-3
        for event in (first, second):
            self._call("an event", self._cuda.cuEventDestroy, event)
        return seconds

    def is_lost(self) -> bool:
        if int(self._cuda.cuCtxPushCurrent(self._context)[0]):  # not by `current`, which would ask again why it failed
            return True
        status = int(self._cuda.cuCtxSynchronize()[0])
        self._cuda.cuCtxPopCurrent()
        return status != 0


def _bytes_at(address: int, size: int) -> Any:
    """The bytes of the host at an address, as NumPy's."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


# the modules that each driver is made from, the first that is installed
_PACKAGES: tuple[tuple[type[PycudaDriver] | type[BindingsDriver], tuple[str, ...]], ...] = (
    (PycudaDriver, ("pycuda.driver",)),
    (BindingsDriver, ("cuda.bindings.driver", "cuda.cuda")),
)
_lock = threading.Lock()
_drivers: dict[int, Driver] = {}


def driver(ordinal: int = 0) -> Driver:
    """The driver of a device, made once. A TargetError says what is missing: the package, the driver or the GPU."""
    with _lock:
        if ordinal not in _drivers:
            made, module = _installed()
            _drivers[ordinal] = made(module, ordinal)
        return _drivers[ordinal]


def gpu_is_lost() -> bool:
    """Whether a GPU that this process has used is of no more use to it, because a kernel failed; another process can use it."""
    return any(device.is_lost() for device in list(_drivers.values()))


def _installed() -> tuple[type[PycudaDriver] | type[BindingsDriver], ModuleType]:
    broken = ""
    for made, names in _PACKAGES:
        for name in names:
            try:
                return made, importlib.import_module(name)
            except ModuleNotFoundError:
                continue
            except (ImportError, OSError, RuntimeError) as error:  # installed, but the driver's library is not there
                broken = f" ({made.package} is installed, but: {error})"
    raise TargetError(f"no GPU can be used{broken}: {_WITHOUT}")
