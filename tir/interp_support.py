"""What the source that interp.py writes calls when it runs: memory, checked vector accesses, functions; and NumPy's names of dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from .dtype import DType
from .errors import InternalError, TilewrightError
from .intrin import INTRINSICS
from .optional import optional_import

Array = np.ndarray[Any, Any]

_SHARED_BYTES = 1 << 18  # of a block; more than any GPU has
_WARP = 32


class OutOfBounds(InternalError):
    """An access outside its buffer."""


class Divergence(InternalError):
    """Threads of a block that wait at different places, or for threads that have ended."""


def numpy_dtype(kind: DType) -> np.dtype[Any]:
    """The NumPy type of an element; those that NumPy lacks come from the package ml_dtypes."""
    name = str(kind.element)
    if kind.is_float and (name == "bfloat16" or kind.element.bits == 8):
        ml_dtypes = optional_import("ml_dtypes", f"{name} in NumPy", "dtypes")
        return np.dtype(getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(name, name)))  # type: ignore[no-any-return]
    return np.dtype(name)


class Memory:
    """Buffers of one run: those of the workspaces share bytes as the storage pass decided."""

    def __init__(self, poison: int):
        self.poison = poison

    def workspaces(self, call_bytes: int, thread_bytes: int) -> None:
        self.call, self.thread, self.shared = (np.full(n, self.poison, np.uint8) for n in (call_bytes, thread_bytes, _SHARED_BYTES))

    def new_thread_iteration(self) -> None:
        self.thread.fill(self.poison)

    def allocate(self, name: str, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        size = kind.itemsize * math.prod(shape)
        return np.full(size, self.poison, np.uint8).view(kind).reshape(shape)

    def place(self, name: str, shape: tuple[int, ...], kind: np.dtype[Any], where: str, offset: int) -> Array:
        workspace = {"call": self.call, "thread": self.thread, "shared": self.shared}[where]
        size = kind.itemsize * math.prod(shape)
        if offset < 0 or offset + size > len(workspace) or offset % kind.itemsize:
            raise OutOfBounds(f"buffer {name} ({size} bytes) is placed at byte {offset} of a {where} workspace of {len(workspace)} bytes")
        workspace[offset : offset + size] = self.poison
        return workspace[offset : offset + size].view(kind).reshape(shape)

    @staticmethod
    def bind(name: str, array: Array, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
        if array.dtype != kind or array.size != math.prod(shape) or not array.flags.c_contiguous:
            raise TilewrightError(f"{name}: expected contiguous {kind}{list(shape)}, found {array.dtype}{list(array.shape)}")
        return array.reshape(shape)


def run_threads(
    thread: Callable[..., Generator[Any, Any, None]], extents: tuple[int, ...], tags: tuple[str, ...], order: Callable[[int], Sequence[int]]
) -> None:
    """The threads of a block, in turns, each until it waits.

    A thread yields (what for, where, what it gives): "block" and "warp": until all of the block, or of its warp, wait there; "reduce": for the
    combination of what all threads along some indices give; "shuffle": for what another lane of its warp gives.
    """
    where = list(np.ndindex(*extents))
    stride, number = 1, [0] * len(where)
    for axis in sorted(range(len(tags)), key=lambda n: tags[n]):  # threadIdx.x runs fastest
        number = [n + index[axis] * stride for n, index in zip(number, where, strict=True)]
        stride *= extents[axis]
    threads = [thread(*index) for index in where]
    warps = [n // _WARP for n in number]
    send: dict[int, Any] = dict.fromkeys(range(len(threads)))
    waiting: dict[int, tuple[str, int, Any]] = {}
    while send:
        ready = list(send)
        for position in order(len(ready)):
            one = ready[position]
            with suppress(StopIteration):
                waiting[one] = threads[one].send(send[one])
        send = _released(waiting, where, tags, warps, number)
        if waiting and not send:
            places = {token[1]: f"{dict(zip(tags, where[one], strict=True))} waits at point {token[1]} ({token[0]})" for one, token in waiting.items()}
            ended = "" if len(waiting) == len(threads) else f"; {len(threads) - len(waiting)} threads have ended"
            raise Divergence(f"threads of a block do not come to the same barrier: {'; '.join(places.values())}{ended}")
        for one in send:
            del waiting[one]


def _released(waiting: dict[int, tuple[str, int, Any]], where: list[Any], tags: tuple[str, ...], warps: list[int], number: list[int]) -> dict[int, Any]:
    """The threads that need not wait any longer, and what each is told."""
    if len(waiting) == len(where) and len({token[1] for token in waiting.values()}) == 1:
        kind, _, given = next(iter(waiting.values()))
        if kind == "block":
            return dict.fromkeys(waiting)
        if kind == "reduce":
            return _reduced(waiting, where, tags, given[1], given[2])
    found: dict[int, Any] = {}
    for warp in sorted({warps[one] for one in waiting}):
        lanes = {number[one]: one for one in range(len(where)) if warps[one] == warp}
        here = [waiting.get(one) for one in lanes.values()]
        if any(token is None for token in here) or len({token[1] for token in here if token}) > 1:
            continue
        if here[0] is not None and here[0][0] == "warp":
            found.update(dict.fromkeys(lanes.values()))
        elif here[0] is not None and here[0][0] == "shuffle":
            for lane, one in lanes.items():
                value, mask = waiting[one][2]
                partner = lanes.get(lane ^ mask)
                found[one] = waiting[partner][2][0] if partner is not None else value
    return found


def _reduced(waiting: dict[int, Any], where: list[Any], tags: tuple[str, ...], combine: Callable[..., Any], along: tuple[str, ...]) -> dict[int, Any]:
    """What each thread gets of a reduction along some indices: the values of all threads that differ in those only, combined."""
    totals: dict[Any, Any] = {}
    groups = {one: tuple(n for n, tag in zip(where[one], tags, strict=True) if tag not in along) for one in waiting}
    for one in sorted(waiting):
        values, group = waiting[one][2][0], groups[one]
        totals[group] = combine(*totals[group], *values) if group in totals else values
    return {one: totals[groups[one]] for one in waiting}


def outside(name: str, shape: tuple[int, ...], *index: int) -> None:
    raise OutOfBounds(f"{name}[{', '.join(map(str, index))}] is outside {name} of shape {list(shape)}")


def run_intrinsic(code: Any, operands: tuple[tuple[str, Array, tuple[int, ...], tuple[tuple[int, ...], ...]], ...]) -> None:
    """An intrinsic on copies of its operands, (name of the buffer, buffer, first index, steps) each; the first is copied back."""
    places, copies = [], []
    for (name, buffer, start, steps), shape in zip(operands, code.shapes, strict=True):
        grid = np.indices(shape)
        where = []
        for dimension, first in enumerate(start):
            index = np.full(shape, first, np.int64)
            for counts, along in zip(grid, steps, strict=True):
                index = index + counts * along[dimension]
            wrong = (index < 0) | (index >= buffer.shape[dimension])
            if wrong.any():
                outside(f"{name} (in intrinsic {code.name}, dimension {dimension})", buffer.shape, int(index[wrong][0]))
            where.append(index)
        places.append(tuple(where))
        copies.append(np.array(buffer[tuple(where)]).reshape(shape))
    code.function(*copies)
    operands[0][1][places[0]] = copies[0]


def _lanes(name: str, shape: tuple[int, ...], indices: tuple[Any, ...], mask: Any) -> tuple[Any, ...]:
    """The indices of the lanes in `mask` (all where it is None), checked."""
    indices = tuple(np.broadcast_arrays(*indices)) if len(indices) > 1 else indices
    if mask is not None:
        indices = tuple(i[mask] for i in indices)
    for axis, index in enumerate(indices):
        wrong = (index < 0) | (index >= shape[axis])
        if wrong.any():
            lane = int(wrong.argmax())
            outside(name, shape, *(int(i[lane]) for i in indices))
    return indices


def vector_load(buffer: Any, name: str, indices: tuple[Any, ...], mask: Any) -> Any:
    found = buffer[_lanes(name, buffer.shape, indices, mask)]
    if mask is None:
        return found
    result = np.zeros(mask.shape, buffer.dtype)
    result[mask] = found
    return result


def vector_store(buffer: Any, name: str, indices: tuple[Any, ...], mask: Any, value: Any) -> None:
    where = _lanes(name, buffer.shape, indices, mask)
    buffer[where] = value if mask is None else value[mask]


def _erf(a: Any) -> Any:
    if np.ndim(a):
        return np.array([math.erf(float(x)) for x in a], a.dtype)
    return type(a)(math.erf(float(a)))


def divide(a: int, b: int) -> int:
    return a // b if b else 0  # as NumPy; only lanes and arms that are thrown away may divide by zero


def modulo(a: int, b: int) -> int:
    return a % b if b else 0


def select(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


def least(a: Any, b: Any) -> Any:
    return a if a <= b or a != a else b  # noqa: PLR0124  # NaN


def greatest(a: Any, b: Any) -> Any:
    return a if a >= b or a != a else b  # noqa: PLR0124  # NaN


def to_integer(x: Any) -> int:
    return int(x) if math.isfinite(x) else 0  # out of range: unspecified, but no trap


def popcount(bits: int) -> Callable[[Any], Any]:
    """Ones in the two's complement; NumPy's own counts those of the absolute value."""
    unsigned = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    mask = (1 << bits) - 1
    return lambda a: np.bitwise_count(a.view(unsigned)) if isinstance(a, np.ndarray) else (a & mask).bit_count()


SCALAR_INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "truncdiv": divide,
    "truncmod": modulo,
    "shift_left": lambda a, b: a << b if 0 <= b < 64 else 0,
    "shift_right": lambda a, b: a >> min(b, 63) if b >= 0 else (-1 if a < 0 else 0),
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    i.name: eval(f"lambda {', '.join('abc'[: i.arity])}: {i.numpy}", {"np": np, "erf": _erf}) for i in INTRINSICS.values()
}
