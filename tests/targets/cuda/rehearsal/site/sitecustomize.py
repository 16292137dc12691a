"""In a rehearsal Python imports this first: when PyTorch comes, without CUDA, it gets tensors of the fake device, made of memory of the fake driver.

They compute on the CPU, after the device has done what it was given, are exported by DLPack as CUDA's, and leave the primary context current in their
thread, as PyTorch does.

FAKE_CUDA_WITHOUT: modules that are as if they were not installed.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_FACTORIES = ("arange", "empty", "full", "ones", "zeros", "randn", "rand")


class Driver:
    """What PyTorch asks of the driver."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        self._memory: list[tuple[int, int]] = []  # never given back: programs under rehearsal are small
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise RuntimeError(f"CUDA error: {name}: {status}")

    def allocate(self, size: int) -> int:
        self.call("cuCtxSetCurrent", self._context)
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._memory.append((address.value, address.value + size))
        return address.value

    def owns(self, address: int) -> bool:
        return any(begin <= address < end for begin, end in self._memory)

    def synchronize(self) -> None:
        self.call("cuCtxSetCurrent", self._context)
        self.call("cuCtxSynchronize")


def install(torch: Any) -> None:
    """`tensor.cuda()`, `device="cuda"` of the functions that make tensors, and `torch.cuda.is_available()`."""
    if torch.cuda.is_available():
        return
    drivers: list[Driver] = []

    def driver() -> Driver:
        if not drivers:
            drivers.append(Driver())
        return drivers[0]

    class CudaTensor(torch.Tensor):
        """On the fake device."""

        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            driver().synchronize()
            driver().call("fake_cuda_pass", ctypes.c_double(1e-3))
            result = super().__torch_function__(function, types, args, kwargs or {})
            if isinstance(result, CudaTensor) and result.numel() and not driver().owns(torch.Tensor.data_ptr(result)):
                return cuda(result.as_subclass(torch.Tensor).contiguous())
            return result

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, *, stream: Any = -1, max_version: Any = None, **others: Any) -> Any:
            capsule = torch.Tensor.__dlpack__(self.as_subclass(torch.Tensor), max_version=max_version)
            get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
            address = get(capsule, b"dltensor_versioned") + 32 if max_version else get(capsule, b"dltensor")
            ctypes.c_int32.from_address(address + 8).value = 2  # DLTensor: data, device_type
            return capsule

    def cuda(tensor: Any) -> Any:
        count = tensor.numel() * tensor.element_size()
        if count == 0:
            return tensor.as_subclass(CudaTensor)
        memory = (ctypes.c_char * count).from_address(driver().allocate(count))
        copied = torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
        copied.copy_(tensor)
        return copied.as_subclass(CudaTensor)

    def made_there(function: Any) -> Any:
        def make(*arguments: Any, device: Any = None, **others: Any) -> Any:
            made = function(*arguments, **others)
            return made if device is None or str(device) == "cpu" else cuda(made)

        return make

    torch.Tensor.cuda = cuda
    torch.cuda.is_available = lambda: True
    torch.cuda.synchronize = lambda: driver().synchronize()
    torch.cuda.get_device_name = lambda *device: "Fake GPU"
    for name in _FACTORIES:
        setattr(torch, name, made_there(getattr(torch, name)))


class Finder(importlib.abc.MetaPathFinder):
    """Finds PyTorch as the others do, and sees to it once it is loaded."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                install(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


for package in filter(None, os.environ.get("FAKE_CUDA_WITHOUT", "").split(",")):
    sys.modules[package] = None  # type: ignore[assignment] # as if it was not installed
sys.meta_path.insert(0, Finder())
