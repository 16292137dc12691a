"""Reads what an object exports through DLPack (dmlc/dlpack, versions 0.x and 1.x), without NumPy in between.

`np.from_dlpack` would refuse bfloat16 and float8 and, before NumPy 2.1, make every array read-only. The capsule is not consumed, so its own
destructor gives the memory back when the caller drops it.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from ..tir.errors import ArgumentError

_CPU_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost (pinned memory of the host)
GPU_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DEVICE_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed memory", 14: "oneapi"}
_FLOAT8_NAMES = {10: "float8_e4m3", 12: "float8_e5m2"}
_READ_ONLY = 1


class _DataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _VersionedTensor(Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    )


_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


@dataclass(frozen=True, slots=True)
class View:
    """What an argument really is: an address, a dtype by our names (or a name that is none), `strides` in bytes, or None where it is known
    to be contiguous in C order. `owner` keeps the memory alive while the call runs. `device`: the number of the GPU whose memory it is."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool
    owner: object
    device: int | None = None


def view_of_dlpack(value: Any, gpu: bool = False) -> View:
    """The memory behind an object with `__dlpack__`, of the CPU unless `gpu`. An ArgumentError (to be completed by the caller) where it is other memory."""
    device, ordinal = value.__dlpack_device__()
    if device not in (GPU_DEVICES if gpu else _CPU_DEVICES):
        raise ArgumentError(f"is on the device {_DEVICE_NAMES.get(int(device), device)!r}, expected memory of the CPU; copy it there first")
    is_negated = getattr(value, "is_neg", None)  # of PyTorch, which exports such a view without a word
    if callable(is_negated) and is_negated():
        raise ArgumentError("is a view whose elements are stored with the other sign, like the imag of a conj(); pass .resolve_neg() of it")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before DLPack 1.0
        capsule = value.__dlpack__()
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        versioned = _VersionedTensor.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise ArgumentError(f"is exported in version {versioned.major} of DLPack, which is not known here; pass a NumPy array")
        tensor, read_only = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    else:
        tensor, read_only = _Tensor.from_address(_capsule_pointer(capsule, b"dltensor")), False
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    item_bytes = (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
    strides = tuple(stride * item_bytes for stride in tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
    return View((tensor.data or 0) + tensor.byte_offset, _dtype_name(tensor.dtype), shape, strides, read_only, capsule, int(ordinal) if gpu else None)


def _dtype_name(dtype: _DataType) -> str:
    kind = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}.get(dtype.code)
    if dtype.code == 6:
        name = "bool" if dtype.bits == 8 else f"bool of {dtype.bits} bits"
    elif kind is not None:
        name = f"{kind}{dtype.bits}"
    else:
        name = _FLOAT8_NAMES.get(dtype.code, f"DLPack type {dtype.code} of {dtype.bits} bits")
    return name if dtype.lanes == 1 else f"{name}x{dtype.lanes}"
