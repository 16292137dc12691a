"""Memory for constant operands of a module: copied (or computed) when it is built, owned by it, never written again."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tir.errors import ArgumentError
from ..tir.expr import Buffer
from .arrays import is_contiguous, item_bytes, view_of

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


class ConstantMemory:
    """Zeroed memory of a buffer of constant size, aligned to a cache line. It lives as long as this object."""

    def __init__(self, buffer: Buffer):
        count = buffer.constant_size
        assert count is not None, buffer
        self.bytes = count * item_bytes(str(buffer.dtype))
        self._memory = np.zeros(self.bytes + ALIGNMENT, "uint8")
        start = self._memory.ctypes.data
        self.address = start + -start % ALIGNMENT

    @property
    def content(self) -> bytes:
        """A copy of what is there."""
        return ctypes.string_at(self.address, self.bytes)

    @content.setter
    def content(self, values: bytes) -> None:
        assert len(values) == self.bytes, (len(values), self.bytes)
        ctypes.memmove(self.address, values, self.bytes)


def copy_constant(buffer: Buffer, value: Any, function_name: str) -> ConstantMemory:
    """A copy of `value`, which must be an array of the buffer's dtype and shape; an ArgumentError says what it is instead.

    Anything that may be an argument of a call may be a constant, and also a NumPy array that is not contiguous.
    """
    where = f"constant {buffer.name!r} of {function_name}: expected an array {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
    if type(value) is np.ndarray:
        value = np.ascontiguousarray(value).reshape(value.shape)  # rank 0 stays rank 0
    try:
        view = view_of(value)
    except (ArgumentError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"{where}, found an object of type {type(value).__qualname__}, which {error}") from None
    if view is None:
        raise ArgumentError(f"{where}, found an object of type {type(value).__qualname__}; a single value is passed as np.array(value, dtype)")
    if view.dtype != str(buffer.dtype):
        raise ArgumentError(f"{where}, found dtype {view.dtype}; convert it first, it is not converted silently")
    if tuple(view.shape) != tuple(buffer.shape):
        raise ArgumentError(f"{where}, found shape {tuple(view.shape)}")
    memory = ConstantMemory(buffer)
    if view.strides is not None and not is_contiguous(view.shape, view.strides, item_bytes(view.dtype)):
        raise ArgumentError(f"{where}, found strides {view.strides} bytes; make it contiguous in C order first")
    if memory.bytes:
        ctypes.memmove(memory.address, view.address, memory.bytes)
    return memory


def addresses(memories: Sequence[ConstantMemory]) -> list[int]:
    """Where they are, in order."""
    return [memory.address for memory in memories]
