"""The parameters of a kernel as the compiler told them, and Python values turned into arguments for them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tir.errors import ArgumentError

_POINTER, _CONST = 1 << 24, 1 << 25
_CLASSES = ("other", "unsigned", "signed", "floating")
_KINDS = {"unsigned": "ub", "signed": "i", "floating": "f"}  # of NumPy dtypes
_C_NAMES = {
    ("unsigned", 1): "unsigned char", ("unsigned", 2): "unsigned short", ("unsigned", 4): "unsigned int", ("unsigned", 8): "unsigned long",
    ("signed", 1): "char", ("signed", 2): "short", ("signed", 4): "int", ("signed", 8): "long", ("floating", 4): "float", ("floating", 8): "double",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One parameter: a pointer to values of a class and size, or such a value. Size 0: void."""

    pointer: bool
    const: bool
    kind: str
    size: int

    @classmethod
    def decode(cls, number: int) -> Parameter:
        """From the number that cuda_emulator.h makes of a type."""
        return cls(bool(number & _POINTER), bool(number & _CONST), _CLASSES[number >> 16 & 3], number & 0xFFFF)

    @property
    def numpy_name(self) -> str:
        """What NumPy calls such values."""
        if self.kind == "other":
            return f"values of at most {self.size} bytes" if self.size else "native numbers"
        return {"unsigned": "uint", "signed": "int", "floating": "float"}[self.kind] + str(8 * self.size)

    def __str__(self) -> str:
        name = "void" if self.size == 0 else _C_NAMES.get((self.kind, self.size), f"a type of {self.size} bytes")
        return f"{'const ' if self.const else ''}{name}{'*' if self.pointer else ''}"


@dataclass
class Values:
    """The arguments of a launch: pointers to each value; the arrays by their place in the list, and what holds their addresses."""

    pointers: Any
    arrays: dict[int, NDArray[Any]] = field(default_factory=dict)
    addresses: dict[int, Any] = field(default_factory=dict)


def takes(parameter: Parameter, dtype: np.dtype[Any]) -> bool:
    """Whether an array of this dtype may stand for a pointer parameter."""
    if parameter.kind == "other":  # half, float4, a struct: an array of them or of their parts, of which the caller counts whole ones
        return parameter.size == 0 or dtype.itemsize <= parameter.size
    if parameter.size == 1:  # characters are bytes
        return dtype.itemsize == 1
    return dtype.itemsize == parameter.size and dtype.kind in _KINDS[parameter.kind]


@contextmanager
def convert(kernel: str, parameters: Sequence[Parameter], args: Sequence[Any]) -> Iterator[Values]:
    """Arguments for the parameters; what the kernel writes to copies of arrays that are not contiguous is copied back at the end. Raises ArgumentError."""
    if len(args) != len(parameters):
        wanted = ", ".join(str(parameter) for parameter in parameters)
        raise ArgumentError(f"kernel {kernel!r} takes {len(parameters)} arguments ({wanted}), got {len(args)}")
    keep: list[Any] = []
    copies: list[tuple[NDArray[Any], NDArray[Any]]] = []
    arrays: dict[int, NDArray[Any]] = {}
    addresses: dict[int, Any] = {}
    pointers = (ctypes.c_void_p * max(1, len(args)))()
    for number, (parameter, value) in enumerate(zip(parameters, args, strict=True)):
        where = f"kernel {kernel!r}, argument {number} ({parameter})"
        if parameter.pointer:
            holder, array = _pointer(where, parameter, value)
            if array is not None:
                arrays[number], addresses[number] = array, holder
                if array is not value:
                    copies.append((value, array))
        else:
            holder = _scalar(where, parameter, value)
        keep.append(holder)
        pointers[number] = ctypes.addressof(holder)
    yield Values(ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p)), arrays, addresses)
    for original, copy in copies:
        if original.flags.writeable:
            original[...] = copy


def _pointer(where: str, parameter: Parameter, value: Any) -> tuple[Any, NDArray[Any] | None]:
    if value is None:
        return ctypes.c_void_p(0), None
    if not isinstance(value, np.ndarray):
        raise ArgumentError(f"{where}: expected a NumPy array (or None for a null pointer), got {type(value).__name__}")
    if value.dtype.hasobject or not value.dtype.isnative or not takes(parameter, value.dtype):
        raise ArgumentError(f"{where}: the array's dtype is {value.dtype}; expected {parameter.numpy_name}, or a view of it: array.view(dtype)")
    if parameter.kind == "other" and parameter.size and value.nbytes % parameter.size:
        raise ArgumentError(f"{where}: the array has {value.nbytes} bytes, which is no whole number of values of {parameter.size} bytes")
    if not parameter.const and not value.flags.writeable:
        raise ArgumentError(f"{where}: the array is read-only, but the kernel may write it; pass a copy, or declare the parameter as a pointer to const")
    array = value if value.flags.c_contiguous else np.ascontiguousarray(value)
    return ctypes.c_void_p(array.ctypes.data), array


def _scalar(where: str, parameter: Parameter, value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if parameter.kind in ("signed", "unsigned") and isinstance(value, (int, np.integer)):
        bits = 8 * parameter.size
        low, high = (0, 2**bits - 1) if parameter.kind == "unsigned" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not low <= int(value) <= high:
            raise ArgumentError(f"{where}: {value} is out of range, expected {low} to {high}")
        return _bytes(int(value).to_bytes(parameter.size, "little", signed=parameter.kind == "signed"))
    if parameter.kind == "floating" and isinstance(value, (int, float, np.integer, np.floating)):
        return _bytes(np.dtype(f"f{parameter.size}").type(value).tobytes())
    if isinstance(value, (np.generic, np.ndarray)) and parameter.kind == "other" and value.nbytes == parameter.size:
        return _bytes(value.tobytes())
    expected = {"other": f"a NumPy value of {parameter.size} bytes", "floating": "a number"}.get(parameter.kind, "an integer")
    raise ArgumentError(f"{where}: expected {expected}, got {type(value).__name__} {value!r}")


def _bytes(data: bytes) -> Any:
    return ctypes.create_string_buffer(data, max(len(data), 16))
