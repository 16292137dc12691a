"""The child that runs compiled candidates: loads a library, checks its result, times it. It is given files and answers with numbers.

It knows nothing of schedules: whatever a candidate does, it does it here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..targets.cuda_driver import gpu_is_lost
from ..targets.libraries import load_module
from ..targets.module import Module
from ..tir.errors import TargetError
from .process import Answer, serve
from .verify import Array, Check

REPEATS = 5
WIDE_SPREAD = 0.15  # of the repeats, relative to their median: then as many more are taken


def main(parent: int) -> None:
    serve(parent, start)


def start(init: dict[str, Any], mark: Callable[[str], None]) -> Answer:
    """`init["check"]`: the arguments of every call, as `Check.save` left them."""
    check = Check.load(init["check"])
    inputs = [array.copy() for array, output in zip(check.arrays, check.is_output, strict=True) if not output]

    def run(request: dict[str, Any]) -> dict[str, Any]:
        """One candidate: its status, and seconds for each repeat."""
        mark("load")
        module = load_module(request["library"])
        arguments = check.arguments()
        mark("run")
        module(*arguments)
        mark("verify")
        wrong = check.mismatch(arguments) or _changed_inputs(check, inputs)
        if wrong is None:
            mark("measure")
            repeats = time_call(module, arguments, request["min_repeat_ms"], request["give_up_s"])
            mark("verify")  # once more: a race shows only now and then
            wrong = check.mismatch(arguments)
        module.close()
        return {"status": "wrong_result", "error": wrong} if wrong is not None else {"status": "ok", "repeats": repeats}

    def compare(request: dict[str, Any]) -> dict[str, Any]:
        """Several candidates in turns, so that whatever else the machine does hits all alike: seconds for each round of each."""
        mark("load")
        modules = [load_module(library) for library in request["libraries"]]
        arguments = check.arguments()
        mark("measure")
        timed = [module.time_evaluator(repeat=1, min_repeat_ms=request["min_repeat_ms"]) for module in modules]
        rounds = [[timer(*arguments).median for timer in timed] for _ in range(request["rounds"])]
        for module in modules:
            module.close()
        return {"repeats": [list(column) for column in zip(*rounds, strict=True)]}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return compare(request) if "libraries" in request else run(request)
        except TargetError as error:
            if gpu_is_lost():  # to every candidate after this one too: they get a new process
                raise SystemExit(str(error)) from None
            raise

    return answer


def time_call(module: Module, arguments: list[Array], min_repeat_ms: float, give_up_s: float | None) -> list[float]:
    """Seconds per call, one figure a repeat; one figure only where a single call takes longer than `give_up_s`."""
    if module.target.kind == "cuda":  # by the GPU's clock, as the best time was: copying the arguments there takes longer than many a kernel
        once = module.time_evaluator(repeat=1, number=1)(*arguments).median
    else:
        started = time.perf_counter()
        module(*arguments)
        once = time.perf_counter() - started
    if give_up_s is not None and once > give_up_s:
        return [once]
    timer = module.time_evaluator(repeat=REPEATS, min_repeat_ms=min_repeat_ms)
    repeats = list(timer(*arguments).results)
    middle = sorted(repeats)[1:-1]
    if middle[-1] - middle[0] > WIDE_SPREAD * statistics.median(repeats):
        repeats += timer(*arguments).results
    return repeats


def _changed_inputs(check: Check, inputs: list[Array]) -> str | None:
    now = [array for array, output in zip(check.arrays, check.is_output, strict=True) if not output]
    for number, (before, after) in enumerate(zip(inputs, now, strict=True)):
        if not np.array_equal(before, after):  # inputs hold no NaN
            after[...] = before
            return f"input {number} was written to"
    return None
