"""A GPU that is none: what pycuda and cuda-bindings offer, on memory of the host, with kernels run by the emulator.

It holds callers to what the driver demands: calls need a current context, addresses belong to allocations, much shared memory must be asked for, and
nothing is used after it was freed.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.targets.emulator import Program


class FakeGpu:
    """The device behind both packages. `programs`: the emulator's, for kernels that may be loaded; `log`: what was called."""

    def __init__(self, capability: tuple[int, int] = (9, 0), memory_bytes: int = 1 << 30, count: int = 1) -> None:
        self.capability, self.memory_bytes, self.count = capability, memory_bytes, count
        self.programs: list[Program] = []
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.contexts = 0  # pushed
        self.images: list[bytes] = []
        self.log: list[str] = []
        self.clock = 0.0
        self.fails_next = self.refuses_contexts = False
        self.starts = True

    def need_context(self) -> None:
        assert self.contexts > 0, "a call without a current context"

    def allocate(self, size: int) -> int | None:
        self.need_context()
        if size > self.memory_bytes - sum(m.nbytes for m in self.memory.values()):
            return None
        room = np.full(size + 256, 0xCD, np.uint8)
        room = room[-room.ctypes.data % 256 :][:size]
        self.memory[room.ctypes.data] = room
        return int(room.ctypes.data)

    def free(self, address: int) -> None:
        self.need_context()
        del self.memory[address]

    def at(self, address: int, size: int | None = None) -> np.ndarray[Any, Any]:
        """The bytes from an address on, to the end of its allocation unless `size` says how many."""
        for begin, room in self.memory.items():
            if begin <= address < begin + room.nbytes:
                found = room[address - begin :]
                assert size is None or size <= found.nbytes, "beyond the end of an allocation"
                return found if size is None else found[:size]
        raise AssertionError(f"{address:#x} is no address of the device")

    def launch(self, name: str, grid: Any, block: Any, shared: int, allowed: int, values: list[int]) -> None:
        self.need_context()
        assert shared <= max(allowed, 48 << 10), "much shared memory was not asked for"
        self.log.append(f"launch {name} {tuple(grid)} {tuple(block)} {shared}")
        self.clock += 1e-4
        (program,) = [p for p in self.programs if name in p.kernels]
        arguments: list[Any] = []
        for parameter, value in zip(program.parameters(name), values, strict=True):
            if not parameter.pointer:
                arguments.append(value)
                continue
            room = self.at(value)
            dtype = np.dtype({"floating": "f", "signed": "i", "unsigned": "u"}[parameter.kind] + str(parameter.size))
            arguments.append(room[: room.nbytes // dtype.itemsize * dtype.itemsize].view(dtype))
        program.launch(name, tuple(grid), tuple(block), shared, arguments, threads=1)


def pycuda_driver(gpu: FakeGpu) -> Any:
    """What `pycuda.driver` is, as far as it is used."""

    class Error(Exception):
        pass

    class OutOfMemory(Error):
        pass

    class Allocation:
        def __init__(self, address: int) -> None:
            self.address = address

        def __int__(self) -> int:
            return self.address

        def free(self) -> None:
            gpu.free(self.address)

    class Context:
        @staticmethod
        def push() -> None:
            if gpu.refuses_contexts:
                raise Error("an illegal memory access was encountered")
            gpu.contexts += 1

        @staticmethod
        def pop() -> None:
            gpu.contexts -= 1

        @staticmethod
        def synchronize() -> None:
            gpu.need_context()
            if gpu.fails_next:
                raise Error("an illegal memory access was encountered")

        @staticmethod
        def detach() -> None:
            gpu.log.append("detach")

    class Device:
        def __init__(self, ordinal: int) -> None:
            gpu.log.append(f"device {ordinal}")

        @staticmethod
        def count() -> int:
            return gpu.count

        def name(self) -> str:
            return "Fake GPU"

        def compute_capability(self) -> tuple[int, int]:
            return gpu.capability

        def get_attribute(self, attribute: str) -> int:
            return {"L2": 1 << 16}[attribute]

        def retain_primary_context(self) -> Any:
            return Context

    class Function:
        def __init__(self, name: str) -> None:
            self.name, self.allowed = name, 0

        def set_attribute(self, attribute: str, value: int) -> None:
            assert attribute == "MAX_DYNAMIC"
            self.allowed = value

        def __call__(self, *arguments: Any, grid: Any, block: Any, shared: int) -> None:
            assert all(isinstance(a, np.number) for a in arguments)
            gpu.launch(self.name, grid, block, shared, self.allowed, [int(a) for a in arguments])

    class Event:
        def record(self) -> None:
            self.time = gpu.clock

        def synchronize(self) -> None:
            gpu.need_context()

        def time_till(self, other: Any) -> float:
            return (other.time - self.time) * 1e3

    def init() -> None:
        if not gpu.starts:
            raise Error("cuInit failed: no CUDA-capable device is detected")

    def mem_alloc(size: int) -> Allocation:
        address = gpu.allocate(size)
        if address is None:
            raise OutOfMemory("out of memory")
        return Allocation(address)

    def memcpy_htod(address: int, source: Any) -> None:
        gpu.at(address, source.nbytes)[:] = source

    def memcpy_dtoh(target: Any, address: int) -> None:
        target[:] = gpu.at(address, target.nbytes)

    def memset_d8(address: int, value: int, size: int) -> None:
        gpu.at(address, size)[:] = value

    def module_from_buffer(image: bytes) -> Any:
        gpu.need_context()
        gpu.images.append(image)
        return SimpleNamespace(get_function=Function)

    return SimpleNamespace(
        init=init, Device=Device, Context=Context, Event=Event, Error=Error, MemoryError=OutOfMemory, mem_alloc=mem_alloc,
        memcpy_htod=memcpy_htod, memcpy_dtoh=memcpy_dtoh, memset_d8=memset_d8, module_from_buffer=module_from_buffer,
        device_attribute=SimpleNamespace(L2_CACHE_SIZE="L2"), function_attribute=SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="MAX_DYNAMIC"),
    )  # fmt: skip


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


def bindings_driver(gpu: FakeGpu) -> Any:
    """What `cuda.bindings.driver` is, as far as it is used: every function returns its status first."""
    ok = CUresult.CUDA_SUCCESS
    functions: dict[int, tuple[str, int]] = {}

    def push(context: str) -> tuple[Any]:
        assert context == "primary"
        if gpu.refuses_contexts:
            return (CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,)
        gpu.contexts += 1
        return (ok,)

    def pop() -> tuple[Any, str]:
        gpu.contexts -= 1
        return ok, "primary"

    def load(address: int) -> tuple[Any, str]:
        gpu.need_context()
        gpu.images.append(ctypes.string_at(address, 4))
        return ok, "module"

    def unload(module: str) -> tuple[Any]:
        gpu.need_context()
        gpu.log.append("unload")
        return (ok,)

    def destroy(event: Any) -> tuple[Any]:
        del event.time
        return (ok,)

    def get_function(module: str, name: bytes) -> tuple[Any, int]:
        functions[len(functions)] = name.decode(), 0
        return ok, len(functions) - 1

    def set_attribute(function: int, attribute: str, value: int) -> tuple[Any]:
        functions[function] = functions[function][0], value
        return (ok,)

    def allocate(size: int) -> tuple[Any, ...]:
        address = gpu.allocate(size)
        return (CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0) if address is None else (ok, address)

    def free(address: int) -> tuple[Any]:
        gpu.free(address)
        return (ok,)

    def copy_in(address: int, host: int, size: int) -> tuple[Any]:
        ctypes.memmove(gpu.at(address, size).ctypes.data, host, size)
        return (ok,)

    def copy_out(host: int, address: int, size: int) -> tuple[Any]:
        ctypes.memmove(host, gpu.at(address, size).ctypes.data, size)
        return (ok,)

    def fill(address: int, value: int, size: int) -> tuple[Any]:
        gpu.at(address, size)[:] = value
        return (ok,)

    def launch(function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, pointers: int, extra: int) -> tuple[Any]:
        name, allowed = functions[function]
        (program,) = [p for p in gpu.programs if name in p.kernels]
        parameters = program.parameters(name)
        held = (ctypes.c_void_p * max(1, len(parameters))).from_address(pointers)
        values = [
            (ctypes.c_uint64 if parameter.pointer else ctypes.c_int32 if parameter.size == 4 else ctypes.c_int64).from_address(held[number]).value
            for number, parameter in enumerate(parameters)
        ]
        gpu.launch(name, (gx, gy, gz), (bx, by, bz), shared, allowed, values)
        return (ok,)

    def synchronize() -> tuple[Any]:
        gpu.need_context()
        return (CUresult.CUDA_ERROR_ILLEGAL_ADDRESS if gpu.fails_next else ok,)

    def record(event: Any, stream: int) -> tuple[Any]:
        event.time = gpu.clock
        return (ok,)

    attributes = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=gpu.capability[0],
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=gpu.capability[1],
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE=1 << 16,
    )
    return SimpleNamespace(
        CUresult=CUresult, CUdevice_attribute=attributes, CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="MAX"),
        cuInit=lambda flags: (ok if gpu.starts else CUresult.CUDA_ERROR_NO_DEVICE,),
        cuDeviceGetCount=lambda: (ok, gpu.count), cuDeviceGet=lambda ordinal: (ok, ordinal),
        cuDeviceGetName=lambda size, device: (ok, b"Fake GPU\0\0"), cuDeviceGetAttribute=lambda attribute, device: (ok, attribute),
        cuDevicePrimaryCtxRetain=lambda device: (ok, "primary"), cuCtxPushCurrent=push, cuCtxPopCurrent=pop, cuModuleLoadData=load,
        cuModuleGetFunction=get_function, cuModuleUnload=unload, cuEventDestroy=destroy, cuFuncSetAttribute=set_attribute, cuMemAlloc=allocate,
        cuMemFree=free, cuMemcpyHtoD=copy_in,
        cuMemcpyDtoH=copy_out, cuMemsetD8=fill, cuLaunchKernel=launch, cuCtxSynchronize=synchronize, cuEventCreate=lambda flags: (ok, SimpleNamespace()),
        cuEventRecord=record, cuEventSynchronize=lambda event: (ok,), cuEventElapsedTime=lambda a, b: (ok, (b.time - a.time) * 1e3),
    )  # fmt: skip


class DeviceArray:
    """An array on the fake GPU, as PyTorch and CuPy export theirs: by the CUDA array interface."""

    def __init__(self, gpu: FakeGpu, values: np.ndarray[Any, Any], offset: int = 0) -> None:
        self.gpu, self.shape, self.dtype = gpu, values.shape, values.dtype
        gpu.contexts += 1
        base = gpu.allocate(values.nbytes + offset)
        gpu.contexts -= 1
        assert base is not None
        self.address = base + offset
        gpu.at(self.address, values.nbytes)[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3, "strides": None}

    def numpy(self) -> np.ndarray[Any, Any]:
        """Its values."""
        count = int(np.prod(self.shape)) * self.dtype.itemsize
        return self.gpu.at(self.address, count).view(self.dtype).reshape(self.shape).copy()
