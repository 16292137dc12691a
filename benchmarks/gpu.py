"""On a GPU: every operator of te.library checked against its NumPy reference, and speeds beside PyTorch's (cuBLAS, cuDNN, SDPA) and the memory's bandwidth.

    python benchmarks/gpu.py [--checks | --speed] [--only WORD] [--out FOLDER] [--limit-s 450]
    python benchmarks/gpu.py --checks --emulator        # the checks without a GPU

Needs NumPy, a CUDA compiler (nvcc or NVRTC) and pycuda or cuda-bindings; PyTorch only for speeds. Kernels are those of default_schedule: nothing is
tuned. All are compiled first, by all processors; then the rows run one after the other, the most telling first: checks of the operators that are timed,
speeds, the other checks. They run in a process of their own (gpu_rows.py): one whose kernel fails or hangs is ended, and the next row gets a new one.
A ratio above 1 means that ours is faster. What is known is printed, and written to FOLDER/results.json, row by row. Ends with status 1 if anything is
wrong or missing; rows for which no time is left are said.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_rows import CHECKS, COPY, SPEEDS, Row

from tilewright.autotune.process import START_TIMEOUT_S, Reply, WorkerPool
from tilewright.tir.target import usable_cpus

BUILD_S, EMULATED_ROW_S = 150.0, 600.0  # the most that one kernel's compilation, and a row in the emulator, may take
_SMALL = 16


class Clock:
    """Time that is left."""

    def __init__(self, limit_s: float) -> None:
        self._begin = time.monotonic()
        self._end = self._begin + limit_s

    def left(self, most: float) -> float:
        """Seconds until the limit, at most `most`."""
        return min(most, self._end - time.monotonic())

    def spent(self) -> float:
        return time.monotonic() - self._begin


class Results:
    """The rows so far; each is printed, and all are written, as soon as it is known."""

    def __init__(self, folder: str | None, machine: dict[str, Any], clock: Clock) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = None if folder is None else Path(folder) / "results.json"
        self._machine, self._clock = machine, clock
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        print(line_of(row), flush=True)
        self.rows.append(row)
        if self._path is None:
            return
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps({"machine": self._machine, "seconds": self._clock.spent(), "rows": self.rows}, indent=1), encoding="utf-8")
        os.replace(beside, self._path)


def name_of(operator: str, sizes: Sequence[Any], options: dict[str, Any]) -> str:
    """A row's name."""
    return " ".join([operator, *map(str, sizes), *(f"{key}={value}" for key, value in options.items())])


def requests_of(options: argparse.Namespace, machine: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that were asked for, in order."""
    timed = {operator for operator, _, _ in SPEEDS}
    checks = [("check", row) for row in CHECKS if not options.speed]
    speeds = [("copy", COPY), *(("speed", row) for row in SPEEDS)] if machine["torch"] and not options.checks else []
    ordered: list[tuple[str, Row]] = [pair for pair in checks if pair[1][0] in timed] + speeds + [pair for pair in checks if pair[1][0] not in timed]
    found = []
    for action, (operator, sizes, settings) in ordered:
        if options.small and action == "speed":
            sizes = tuple(min(size, _SMALL) for size in sizes)
        elif options.small and action == "copy":
            sizes = (1 << 16,)
        name = name_of(operator, sizes, settings)
        if options.only in name:
            data = {"operator": operator, "sizes": sizes, "options": settings, "arch": machine["arch"], "emulator": options.emulator}
            found.append({"action": action, "name": name, **data})
    return found


def compile_all(requests: Sequence[dict[str, Any]], workers: int, clock: Clock) -> dict[str, str]:
    """Fills the cache, so that the GPU waits for no compiler. Name -> problem, of those that failed."""
    kernels = list({request["name"]: request | {"action": "build"} for request in requests}.values())
    with WorkerPool(max(1, min(workers, len(kernels))), "gpu_rows", {}) as pool:
        replies = pool.map(kernels, max(1.0, clock.left(BUILD_S)))
    print(f"{len(kernels)} kernels compiled by {workers} processes, {clock.spent():.0f} s since the start", flush=True)
    return {kernel["name"]: problem_of(reply) for kernel, reply in zip(kernels, replies, strict=True) if reply.status != "ok"}


def run_rows(requests: Sequence[dict[str, Any]], broken: dict[str, str], row_s: float, device: WorkerPool, results: Results, clock: Clock) -> None:
    """One row after the other."""
    for request in requests:
        row = {"row": request["name"], "kind": request["action"]}
        left = clock.left(EMULATED_ROW_S if request["emulator"] else row_s)
        if request["name"] in broken:
            results.add(row | {"problem": broken[request["name"]]})
        elif left <= 0:
            results.add(row | {"problem": "no time left"})
        else:
            (reply,) = device.map([request], left)
            results.add(row | (reply.data if reply.status == "ok" else {"problem": problem_of(reply)}))


def problem_of(reply: Reply) -> str:
    """What a reply that is not ok says, in a line."""
    lines = [line.strip() for line in reply.text.splitlines() if line.strip()]
    text = lines[0]
    if reply.status == "crashed" and len(lines) > 1:  # then come its last words: an error, and what libraries have to add
        text += f": {next((line for line in lines[1:] if 'Error' in line), lines[-1])}"
    return f"{text} (during: {reply.stage})"[:400] if reply.stage else text[:400]


def line_of(row: dict[str, Any]) -> str:
    """A line of the table."""
    problem = row["problem"]
    if row.get("ours") is None:
        return f"{'ok   ' if problem is None else 'WRONG'} {row['row']}{'' if problem is None else f': {problem}'}"
    text = f"{'ok   ' if problem is None else 'WRONG'} {row['row']:44} {row['ours']:10.1f} {row['unit']:8}"
    text += f" torch {row['torch']:10.1f}   ratio {row['ours'] / row['torch']:.2f}" if row["torch"] else "  (torch: none)"
    return "; ".join([text, *(part for part in (problem, row.get("note")) if part)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", action="store_true", help="no speeds")
    parser.add_argument("--speed", action="store_true", help="speeds only")
    parser.add_argument("--emulator", action="store_true", help="run the checks without a GPU, and look for races")
    parser.add_argument("--small", action="store_true", help="tiny sizes in the place of those that are timed: a rehearsal, whose figures mean nothing")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has this in it")
    parser.add_argument("--out", metavar="FOLDER", help="write all figures there, to results.json")
    parser.add_argument("--limit-s", type=float, default=450.0, help="it ends within this many seconds (default: 450)")
    parser.add_argument("--row-s", type=float, default=60.0, help="a row that takes more seconds than this is ended (default: 60)")
    parser.add_argument("--workers", type=int, default=usable_cpus(), help="kernels that are compiled at the same time (default: one for each processor)")
    options = parser.parse_args()
    clock = Clock(options.limit_s)
    with WorkerPool(1, "gpu_rows", {}) as device:
        (found,) = device.map([{"action": "machine", "emulator": options.emulator}], clock.left(START_TIMEOUT_S))
        if found.status != "ok":
            sys.exit(problem_of(found))
        print(f"{found.data['name']}; for {found.data['arch']}", flush=True)
        results = Results(options.out, found.data, clock)
        requests = requests_of(options, found.data)
        run_rows(requests, compile_all(requests, options.workers, clock), options.row_s, device, results, clock)
    wrong = [row for row in results.rows if row["problem"]]
    print(f"{len(results.rows) - len(wrong)} rows right, {len(wrong)} wrong or missing, in {clock.spent():.0f} s", flush=True)
    if not (found.data["torch"] or options.checks or options.emulator):
        print("speeds are left out: they need PyTorch with CUDA", file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
