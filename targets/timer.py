"""Timing a compiled function: warm-up, repeats of many calls each, optional flushing of the caches. Seconds throughout."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np

from ..tir.dtype import whole_number
from ..tir.errors import ArgumentError
from ..tir.target import cache_bytes

_LARGEST_NUMBER = 1_000_000


@dataclass(frozen=True)
class TimeResult:
    """Seconds a call: `results` has the mean of each repeat; `number` is how many calls a repeat was."""

    results: tuple[float, ...]
    number: int

    @property
    def median(self) -> float:
        return statistics.median(self.results)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    def __repr__(self) -> str:
        return (
            f"median {format_seconds(self.median)}, min {format_seconds(self.min)}, max {format_seconds(self.max)} ({len(self.results)} x {self.number} calls)"
        )


def format_seconds(seconds: float) -> str:
    """Three digits and a unit: "1.23 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def check_repeats(repeat: int, number: int | None, min_repeat_ms: float) -> None:
    """An ArgumentError where nothing would be measured."""
    counts = [whole_number(count) for count in ([repeat] if number is None else [repeat, number])]
    if not all(count is not None and count >= 1 for count in counts):
        raise ArgumentError(f"repeat and number are ints of at least 1, found repeat={repeat!r}, number={number!r}")
    if not isinstance(min_repeat_ms, Real) or not 0 <= min_repeat_ms < math.inf:
        raise ArgumentError(f"min_repeat_ms is {min_repeat_ms!r}: expected milliseconds, at least 0")


def measure(call: Callable[[], object], *, repeat: int = 5, number: int | None = None, min_repeat_ms: float = 50, flush_cache: bool = False) -> TimeResult:
    """Time `call`: one warm-up, then `repeat` times the mean of `number` calls in a row.

    `number` None: as many as take at least `min_repeat_ms`. `flush_cache`: before each call, outside the time taken, memory twice the size
    of the last cache level is written, so that the call finds none of its data in a cache. A repeat or number below 1 is an ArgumentError.
    """
    check_repeats(repeat, number, min_repeat_ms)
    flush = _CacheFlush() if flush_cache else None
    call()
    if number is None:
        number = _calibrate(call, min_repeat_ms * 1e-3, flush)
    return TimeResult(tuple(_run(call, number, flush) / number for _ in range(repeat)), number)


def _run(call: Callable[[], object], number: int, flush: _CacheFlush | None) -> float:
    clock = time.perf_counter
    if flush is None:
        start = clock()
        for _ in range(number):
            call()
        return clock() - start
    total = 0.0
    for _ in range(number):
        flush()
        start = clock()
        call()
        total += clock() - start
    return total


def _calibrate(call: Callable[[], object], least_s: float, flush: _CacheFlush | None) -> int:
    """How many calls take at least `least_s`, from runs that grow until they are long enough to tell."""
    number = 1
    while True:
        seconds = _run(call, number, flush)
        if seconds >= least_s or number >= _LARGEST_NUMBER:
            return number
        # A tenth more than the estimate, so that the next run is nearly always the last; at most a hundredfold, as short runs mislead.
        number = min(_LARGEST_NUMBER, math.ceil(number * min(100.0, max(1.1 * least_s / max(seconds, 1e-9), 1.1))))


class _CacheFlush:
    def __init__(self) -> None:
        self._memory = np.zeros(2 * cache_bytes(3), dtype=np.uint8)

    def __call__(self) -> None:
        np.add(self._memory, 1, out=self._memory)
