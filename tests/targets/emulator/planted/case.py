"""What a planted fault is: a correct kernel, the edit that breaks it, and what the emulator must say of the broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = list[np.ndarray | int | float]


@dataclass(frozen=True)
class Planted:
    """`source` defines kernel `k`. `fault`: pairs of texts, each replaced once, that plant the fault; () where only
    the launch is wrong.

    `finding`: the list of the report that must not be empty; `array`: the array that an entry of it names, and `at`: texts of which one is in
    the line that the entry names. `arguments(rng)` gives those of the kernel, and what arrays hold after the correct one (None: not looked at).
    `shared_bytes`: dynamic shared memory of the correct launch and of the faulty one.
    """

    name: str
    source: str
    fault: tuple[tuple[str, str], ...]
    finding: str
    array: str | None
    at: tuple[str, ...]
    arguments: Callable[[np.random.Generator], tuple[Arrays, list[np.ndarray | None]]]
    grid: int | tuple[int, ...] = 1
    block: int | tuple[int, ...] = 64
    shared_bytes: tuple[int, int] = (0, 0)

    @property
    def broken(self) -> str:
        text = self.source
        for old, new in self.fault:
            assert text.count(old) == 1, f"{self.name}: {old!r} occurs {text.count(old)} times"
            text = text.replace(old, new)
        return text

    @property
    def lines(self) -> set[int]:
        """Lines of the broken source, from 1, that the finding may name."""
        return {number for number, line in enumerate(self.broken.splitlines(), 1) if any(text in line for text in self.at)}


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small whole numbers as float32: sums of them are exact in any order."""
    return rng.integers(-8, 9, shape).astype(np.float32)


def empty(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)
