"""The arguments of a call: what may be passed, what is checked, and the addresses that the compiled function receives.

Accepted are NumPy arrays (also of ml_dtypes' types), and anything in the CPU's memory with DLPack (`__dlpack__`: PyTorch, JAX, ...) or the
array interface. Nothing is ever copied. Whatever does not fit is an ArgumentError that names the argument.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..tir.errors import ArgumentError
from .dlpack import GPU_DEVICES, View, view_of_dlpack
from .generated import ArgumentSpec, Signature
from .sizes import SizeBinder
from .torch_tensors import tensor_address

# ml_dtypes' names of the types that NumPy alone does not have, and ours. Its "float8_e4m3" is another type, with infinities.
_OUR_NAMES = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3", "float8_e5m2": "float8_e5m2", "float8_e4m3": "ml_dtypes.float8_e4m3"}
_ITEM_BYTES = {"bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1}

_KNOWN_SHAPES_KEPT = 256
_MASKED = "has a mask, which a kernel cannot see; pass .filled(value) or .data"

_address_of = ctypes.addressof
# Typed so because NumPy declares no buffer interface below Python 3.12.
_from_buffer: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer


def item_bytes(dtype: str) -> int:
    """Bytes of one element in memory."""
    return _ITEM_BYTES.get(dtype) or np.dtype(dtype).itemsize


class ArgumentChecker:
    """Checks the arguments of one function. Calling it gives the numbers to pass: addresses in order, then the symbolic sizes; and the
    objects that must live until the call returns.

    NumPy arrays that fit, of shapes that were seen before, take about half a microsecond each, PyTorch's tensors two; everything else goes
    through `examine`, which also finds the words for what is wrong. `find_view`: how to find an argument's memory, by default `view_of`.
    """

    def __init__(self, signature: Signature, find_view: Callable[[Any], View | None] | None = None):
        self._signature = signature
        self._find_view = find_view or view_of
        self._binder = SizeBinder(signature)
        self._item_bytes = tuple(item_bytes(spec.dtype) for spec in signature)
        self._outputs = tuple(index for index, spec in enumerate(signature) if spec.is_output)
        # None never matches, so arrays of ml_dtypes' types are examined: they have no buffer interface.
        self._expected = tuple((None if spec.dtype in _ITEM_BYTES else np.dtype(spec.dtype), spec.is_output, spec.dtype) for spec in signature)
        # Shapes of all arguments -> (values of the sizes, what `_overlap` compares), for those that were found right and not empty.
        self._known: dict[tuple[tuple[int, ...], ...], tuple[list[int], tuple[tuple[int, int, int, int], ...]]] = {}

    def __call__(self, arguments: tuple[Any, ...]) -> tuple[list[int], object]:
        shapes = []
        numbers = []
        if len(arguments) == len(self._expected):
            for argument, (dtype, is_output, name) in zip(arguments, self._expected):  # noqa: B905 - of equal length; strict= costs time
                if type(argument) is not np.ndarray:
                    address = tensor_address(argument, name)
                    if not address:
                        break
                    shapes.append(argument.shape)
                    numbers.append(address)
                    continue
                if argument.dtype is not dtype:
                    break
                shapes.append(argument.shape)
                flags = argument.flags
                if flags.carray and argument.size:  # contiguous in C order, aligned, writable
                    numbers.append(_address_of(_from_buffer(argument)))
                elif not is_output and flags.c_contiguous and flags.aligned:
                    numbers.append(argument.__array_interface__["data"][0])
                else:
                    break
            else:
                known = self._known.get(tuple(shapes))
                if known is not None and _overlap(numbers, known[1]) is None:
                    return numbers + known[0], None
        return self.examine(arguments)

    def examine(self, arguments: tuple[Any, ...]) -> tuple[list[int], list[View]]:
        """The same for arguments of every kind, with every error."""
        signature = self._signature
        if len(arguments) != len(signature):
            names = ", ".join(spec.name for spec in signature)
            raise ArgumentError(f"{signature.name} takes {len(signature)} arguments ({names}), got {len(arguments)}")
        views = [self._view(position, argument) for position, argument in enumerate(arguments)]
        sizes = self._binder.bind([view.shape for view in views])
        for position, view in enumerate(views):
            self._check_layout(position, view)
        byte_counts = [_element_count(view.shape) * size for view, size in zip(views, self._item_bytes, strict=True)]
        pairs = self._pairs(byte_counts)
        addresses = [view.address for view in views]
        clash = _overlap(addresses, pairs)
        if clash is not None:
            output, other = clash
            raise self._error(output, f"the output overlaps argument {other + 1}, {signature[other].name!r}, in memory; an output needs memory of its own")
        values = [sizes[name] for name in signature.sizes]
        if all(byte_counts):
            if len(self._known) >= _KNOWN_SHAPES_KEPT:
                self._known.clear()
            self._known[tuple(view.shape for view in views)] = (values, pairs)
        return addresses + values, views

    def _error(self, position: int, text: str) -> ArgumentError:
        return ArgumentError(f"argument {position + 1} of {self._signature.name}, {self._signature[position].name!r}: {text}")

    def _view(self, position: int, argument: Any) -> View:
        """The memory of an argument whose dtype and number of dimensions are right."""
        spec = self._signature[position]
        try:
            view = self._find_view(argument)
        except ArgumentError as error:
            raise self._error(position, f"{_an(argument)} {error}") from None
        except Exception as error:  # foreign exporters raise what they like
            raise self._error(position, f"{_an(argument)} does not give its memory: {error}") from None
        if view is None:
            raise self._error(position, f"expected an array {spec.dtype}{_shape_text(spec)}, found {_an(argument)}; {_advice(argument)}")
        if view.dtype != spec.dtype:
            raise self._error(position, f"expected dtype {spec.dtype}, found {view.dtype}; convert it first, it is not copied silently")
        if len(view.shape) != len(spec.shape):
            raise self._error(position, f"expected shape {_shape_text(spec)}, found {view.shape}, of {len(view.shape)} dimensions")
        return view

    def _check_layout(self, position: int, view: View) -> None:
        """Contiguity, alignment, writability."""
        spec = self._signature[position]
        size = self._item_bytes[position]
        if not view.address and 0 not in view.shape:
            raise self._error(position, f"its memory is said to be at address 0, for the shape {view.shape}; pass an array that has its memory")
        if view.strides is not None and len(view.strides) != len(view.shape):
            raise self._error(position, f"it is exported with {len(view.strides)} strides for {len(view.shape)} dimensions; pass np.asarray of it")
        if view.strides is not None and not is_contiguous(view.shape, view.strides, size):
            raise self._error(
                position,
                f"expected an array contiguous in C order, found strides {view.strides} bytes for shape {view.shape}"
                f" of {size}-byte elements; use np.ascontiguousarray",
            )
        if view.address % size and 0 not in view.shape:
            raise self._error(position, f"expected an address that is a multiple of {size} bytes, found {view.address:#x}; copy the array")
        if spec.is_output and view.read_only:
            raise self._error(position, "is an output, and the array is read-only; pass a writable array")

    def check_alignment(self, position: int, view: View, needed: int) -> None:
        """An ArgumentError where the address is no multiple of `needed` bytes, which vector accesses ask for."""
        beyond = view.address % needed
        if beyond and 0 not in view.shape:
            raise self._error(
                position,
                f"the kernel moves vectors of {needed} bytes, so it expects an address that is a multiple of that; found {view.address:#x}, at an offset of "
                f"{beyond} bytes (a part of a larger array?); copy the array",
            )

    def _pairs(self, byte_counts: list[int]) -> tuple[tuple[int, int, int, int], ...]:
        """(output, other argument, bytes of each) for all that must not overlap; empty arrays overlap nothing."""
        return tuple(
            (output, other, byte_counts[output], byte_counts[other])
            for output in self._outputs
            for other in range(len(byte_counts))
            if other != output and not (other in self._outputs and other < output) and byte_counts[output] and byte_counts[other]
        )


def _overlap(addresses: list[int], pairs: tuple[tuple[int, int, int, int], ...]) -> tuple[int, int] | None:
    """The first of `pairs` whose memory overlaps."""
    for one, other, one_bytes, other_bytes in pairs:
        if addresses[one] < addresses[other] + other_bytes and addresses[other] < addresses[one] + one_bytes:
            return one, other
    return None


def view_of(argument: Any) -> View | None:
    """The memory of anything that may be passed, or None. Exports that are refused raise what the exporter raises, or an ArgumentError
    whose text goes on after the name of the argument's type."""
    if isinstance(argument, np.ndarray):
        return _view_of_numpy(argument)
    if isinstance(argument, (np.generic, type)):
        return None  # a NumPy scalar exports a temporary copy
    if hasattr(argument, "__dlpack__"):
        return view_of_dlpack(argument)
    if hasattr(argument, "__array_interface__"):
        return _view_of_interface(argument)
    return None


def gpu_view_of(argument: Any) -> View | None:
    """The same for what may be passed to a GPU: its own memory too."""
    if hasattr(argument, "__dlpack_device__") and argument.__dlpack_device__()[0] in GPU_DEVICES:
        return view_of_dlpack(argument, gpu=True)
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is None:
        return view_of(argument)
    address, read_only = interface["data"]
    return View(
        int(address), _numpy_dtype_name(np.dtype(interface["typestr"])), tuple(interface["shape"]), interface.get("strides"), bool(read_only), argument, 0
    )


def _view_of_numpy(array: np.ndarray[Any, Any]) -> View:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentError(_MASKED)
    strides = None if array.flags.c_contiguous else array.strides
    address = array.__array_interface__["data"][0]
    return View(address, _numpy_dtype_name(array.dtype), array.shape, strides, not array.flags.writeable, array)


def _view_of_interface(argument: Any) -> View:
    interface = argument.__array_interface__
    if interface.get("mask") is not None:
        raise ArgumentError(_MASKED)
    data = interface.get("data")
    if not isinstance(data, tuple):
        raise ArgumentError("exports a copy of its data through the array interface, not its memory; pass np.asarray of it")
    dtype = _numpy_dtype_name(np.dtype(interface["typestr"]))
    return View(int(data[0]), dtype, tuple(interface["shape"]), interface.get("strides"), bool(data[1]), (argument, interface))


@lru_cache(maxsize=64)
def _numpy_dtype_name(dtype: np.dtype[Any]) -> str:
    if not dtype.isnative:
        return f"{dtype.name} in foreign byte order"
    return _OUR_NAMES.get(dtype.name, dtype.name)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Whether elements lie in C order without gaps; the stride of an extent of 1 means nothing, nor any where there is no element."""
    if 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != size:
            return False
        size *= extent
    return True


def _element_count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _shape_text(spec: ArgumentSpec) -> str:
    return f"[{', '.join(map(str, spec.shape))}]"


def _an(argument: Any) -> str:
    kind = type(argument)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"an object of type {name}"


def _advice(argument: Any) -> str:
    if isinstance(argument, (int, float, complex, np.generic)):
        return "a single value is passed as np.array(value, dtype)"
    return "pass a NumPy array, or anything with DLPack or the array interface"
