"""How the examples time kernels and their peers: in turn, several rounds, the minimum of medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def compare(contenders: dict[str, Callable[[], object]], rounds: int = 5, budget_s: float = 0.1) -> dict[str, float]:
    """Seconds for one call of each contender.

    The contenders take turns, with a pause before each: the idle threads of another library (OpenBLAS above all) spin for a while after its last
    call and would slow whoever comes next.
    """
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, call in contenders.items():
            time.sleep(0.1)
            call()
            start = time.perf_counter()
            call()
            once = time.perf_counter() - start
            times = []
            for _ in range(max(3, min(200, int(budget_s / max(once, 1e-7))))):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            best[name] = min(best[name], statistics.median(times))
    return best


def report(seconds: dict[str, float], flops: float) -> str:
    """One line a contender: time, rate, and speed relative to the first."""
    first = next(iter(seconds.values()))
    return "\n".join(f"  {name:24s} {s * 1e3:9.3f} ms  {flops / s / 1e9:7.1f} GFLOP/s  {first / s:5.2f} x" for name, s in seconds.items())
