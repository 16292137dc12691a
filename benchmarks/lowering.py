"""Where the time of lowering goes: milliseconds in each pass, nodes built, rules tried and hit, for five workloads.

    python benchmarks/lowering.py [--rounds 15] [workload ...]

Each round declares and schedules afresh, as a tuner does; the median is shown, in processor time (lowering has one thread), so that other work on the
machine disturbs less. The counts are exact on any machine, and tests/test_lowering_budget.py guards them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from lowering_workloads import WORKLOADS, chain

import tilewright as tw
from tilewright.schedule import lower_schedule
from tilewright.tir.node import COUNTERS
from tilewright.tir.passes.instruments import CountersInstrument, Times


def measure(make: Callable[[], Any], rounds: int) -> tuple[dict[str, float], dict[str, dict[str, int]], float]:
    """Median milliseconds and the counts for each step, and the median of the whole."""
    each: dict[str, list[float]] = {}
    whole = []
    for _ in range(rounds):
        s, args = make()
        start = time.process_time()
        tw.lower(s, args)
        whole.append(time.process_time() - start)
        s, args = make()
        before, start = COUNTERS.snapshot(), time.process_time()
        lower_schedule(s, args)
        each.setdefault("schedule", []).append(time.process_time() - start)
        counts = {"schedule": {name: now - before[name] for name, now in COUNTERS.snapshot().items()}}
        s, args = make()
        times, counters = Times(), CountersInstrument()
        tw.lower(s, args, instruments=[counters, times])
        for label, seconds in times.seconds.items():
            each.setdefault(label, []).append(seconds)
    counts.update(counters.counts)
    return {label: statistics.median(s) * 1e3 for label, s in each.items()}, counts, statistics.median(whole) * 1e3


def print_row(label: str, milliseconds: float, count: dict[str, int]) -> None:
    """One line of a table."""
    print(f"  {label:12s} {milliseconds:7.2f} ms  {count['nodes_built']:6d} nodes built  {count['rules_tried']:6d} rules tried  {count['rules_hit']:5d} hit")


def main() -> None:
    """Prints a table for each workload, and how the time grows with the number of stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"which of {', '.join(WORKLOADS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for name in options.workloads or WORKLOADS:
        times, counts, whole = measure(WORKLOADS[name], options.rounds)
        print(f"{name}: {whole:.2f} ms")
        for label, milliseconds in times.items():
            print_row(label, milliseconds, counts[label])
        total = {key: sum(c[key] for c in counts.values()) for key in ("nodes_built", "rules_tried", "rules_hit")}
        print_row("all", sum(times.values()), total)
    if not options.workloads:
        print("stages of a chain, and milliseconds for each stage:")
        for stages in (25, 50, 100, 200, 400):
            print(f"  {stages:5d} {measure(lambda n=stages: chain(n), 3)[2] / stages:7.3f}")


if __name__ == "__main__":
    main()
