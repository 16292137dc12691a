"""Where array arguments lie while accesses are checked: copies, each alone in the middle of a zone of addresses that nothing else uses."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tir.errors import ArgumentError

_LEAST_ZONE_BYTES, _MOST_ZONE_BYTES = 1 << 20, 64 << 20
_MOST_BYTES = (1 << 32) - 1
_ALIGNMENT = mmap.PAGESIZE  # of each copy; cudaMalloc aligns to 256 bytes


@dataclass(frozen=True)
class Placed:
    """A copy: the arguments that it stands for, its address, the addresses around it that are its own; whether all of those arguments are read-only."""

    numbers: tuple[int, ...]
    array: NDArray[Any]
    address: int
    zone: tuple[int, int]
    read_only: bool


@contextmanager
def place(arrays: Mapping[int, NDArray[Any]]) -> Iterator[list[Placed]]:
    """Copies of the arrays; what was written to them is copied back at the end. An array that is passed twice has one copy.

    Raises ArgumentError where two arrays overlap without being the same, and for one that is too large.
    """
    for number, array in arrays.items():
        if array.nbytes > _MOST_BYTES:
            raise ArgumentError(f"argument {number} has {array.nbytes} bytes; check= takes arrays of at most {_MOST_BYTES}")
    groups = _group(arrays)
    sizes = []
    for numbers in groups:
        nbytes = arrays[numbers[0]].nbytes
        zone = _round(max(_LEAST_ZONE_BYTES, min(nbytes, _MOST_ZONE_BYTES)))
        sizes.append((zone, _round(max(1, nbytes))))
    total = sum(zone + body + zone for zone, body in sizes) + mmap.PAGESIZE
    memory = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0))
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    placed, at = [], 0
    for numbers, (zone, body) in zip(groups, sizes, strict=True):
        original = arrays[numbers[0]]
        start = at + zone
        copy = np.frombuffer(memory, dtype=np.uint8, count=original.nbytes, offset=start).view(original.dtype).reshape(original.shape)
        copy[...] = original
        placed.append(
            Placed(numbers, copy, base + start, (base + at, base + start + body + zone), not any(arrays[number].flags.writeable for number in numbers))
        )
        at = start + body + zone
    try:
        yield placed
    finally:
        for one in placed:
            writable = [number for number in one.numbers if arrays[number].flags.writeable]
            if writable:
                arrays[writable[0]][...] = one.array


def _round(nbytes: int) -> int:
    return (nbytes + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def _group(arrays: Mapping[int, NDArray[Any]]) -> list[tuple[int, ...]]:
    """The arguments by memory: those with the same are one group."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, array in arrays.items():
        groups.setdefault((array.ctypes.data, array.nbytes), []).append(number)
    spans = sorted((start, start + nbytes, numbers[0]) for (start, nbytes), numbers in groups.items() if nbytes)
    for (_, end, first), (start, _, second) in pairwise(spans):
        if start < end:
            raise ArgumentError(f"arguments {first} and {second} overlap in memory without being the same array, which check= cannot follow; pass copies")
    return [tuple(numbers) for numbers in groups.values()]
