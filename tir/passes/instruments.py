"""What can watch a pipeline run: checks of what passes claim, dumps, times, counters; and an early end."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import config
from ..dtype import DType
from ..errors import InternalError, PipelineError
from ..expr import Buffer, Const, Expr, Var, as_expr, const
from ..interp import compiled, iteration_count
from ..interp_support import OutOfBounds, numpy_dtype
from ..node import COUNTERS
from ..stmt import Atomic, Func
from ..target import Target
from ..verify import CLOSED, FACTS, SYNCED, THREADS_BOUND, TYPED
from ..visit import substitute, walk
from .manager import Instrument, Pipeline

Array = np.ndarray[Any, Any]

_MOST_ITERATIONS = 100_000  # of a function that is interpreted: about a tenth of a second


def default_instruments(dump: str | os.PathLike[str] | None = None) -> list[Instrument]:
    """Those that the switches TILEWRIGHT_VERIFY and TILEWRIGHT_DUMP ask for; `dump`: a folder, instead of the second."""
    found: list[Instrument] = []
    if config.VERIFY.value:
        found.append(Verify(config.VERIFY.value))
    folder = dump if dump is not None else config.DUMP.value
    return [*found, Dump(folder)] if folder else found


class Verify(Instrument):
    """Checks what passes claim, and raises an InternalError where it does not hold.

    Level 1: types and variables; 2: every fact that is claimed to hold; 3: also that the function, interpreted on random inputs, gives what it
    gave before the first pass, with parallel loops in either order (if that takes less than about 100,000 iterations, and no floats are added atomically,
    in whatever order); `seed`: of the inputs.
    """

    def __init__(self, level: int = 2, seed: int = 7):
        self.level, self.seed = level, seed

    def start(self, pipeline: Pipeline, func: Func, target: Target) -> None:
        self.pipeline = pipeline
        self.expected: list[Array] | None = None
        if self.level:
            self._check(func, pipeline.start, "the function given to")
        if self.level >= 3:
            self._interpret_first(func)

    def after(self, position: int, old: Func, new: Func) -> None:
        if self.level and (new is not old or self.pipeline.facts[position] != self.pipeline.facts[position + 1]):
            self._check(new, self.pipeline.facts[position + 1], f"what pass {self.pipeline.labels[position]!r} made in")
        if self.expected is not None and new is not old:
            run = compiled(new, _threads(self.pipeline.facts[position + 1]))
            for backwards in (False, True):
                found = self._outputs(run, reverse_parallel=backwards)
                self._compare(found, new, f"what pass {self.pipeline.labels[position]!r} made in pipeline {self.pipeline.name!r} gives other values")

    def _interpret_first(self, func: Func) -> None:
        """Inputs, and what `func` makes of them; nothing where it takes too long, or the inputs do not suit it."""
        random = np.random.default_rng(self.seed)
        self.sizes = {s.name: int(random.integers(0, 10)) for s in func.sizes}
        if iteration_count(func, self.sizes) > _MOST_ITERATIONS or any(isinstance(s, Atomic) and s.value.dtype.is_float for s in walk(func.body)):
            return
        self.inputs = [random_array(p.dtype, _shape(func, p, self.sizes), random) for p in func.params]
        run = compiled(func)
        try:
            self.expected = self._outputs(run)
        except OutOfBounds:  # an index read from memory: random numbers do not do
            return
        for how in ({"reverse_parallel": True}, {"poison": 0x41}):
            self._compare(self._outputs(run, **how), func, f"the function given to pipeline {self.pipeline.name!r} depends on {next(iter(how))}")

    def _outputs(self, run: Callable[..., None], **how: Any) -> list[Array]:
        arrays = [a.copy() for a in self.inputs]
        run(arrays, self.sizes, **how)
        return arrays

    def _compare(self, found: list[Array], func: Func, what: str) -> None:
        assert self.expected is not None
        for p, want, got in zip(func.params, self.expected, found, strict=True):
            differ = np.argwhere(~((want == got) | ((want != want) & (got != got))).ravel())  # noqa: PLR0124  # NaN
            if len(differ):
                k = int(differ[0, 0])
                raise InternalError(
                    f"{what} ({len(differ)} of {want.size} elements of {p.name}; element {k} is {got.ravel()[k]}, expected "
                    f"{want.ravel()[k]}; sizes {self.sizes}):\n{func}"
                )

    def _check(self, func: Func, facts: frozenset[str], whose: str) -> None:
        for fact in FACTS.values():
            if fact.check is None or fact.name not in facts or (self.level < 2 and fact.name not in (TYPED, CLOSED)):
                continue
            problems = fact.check(func)
            if problems:
                shown = "\n".join(f"  * {p}" for p in problems[:8])
                raise InternalError(f"{whose} pipeline {self.pipeline.name!r} is not {fact.name!r} ({fact.meaning}):\n{shown}\n{func}")


def _threads(facts: frozenset[str]) -> str:
    """What loops over threads are to the interpreter."""
    return "loops" if THREADS_BOUND not in facts else "barriers" if SYNCED in facts else "steps"


class Dump(Instrument):
    """Writes the function into a folder: `00_start.txt`, then `NN_PASS.txt` after each pass, `NN_PASS.diff` where it changed something, and
    `index.txt`, which says of each pass whether it did. When a pass raises, `NN_PASS.failed.txt` has what it was given, and the error."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = os.fspath(folder)

    def start(self, pipeline: Pipeline, func: Func, target: Target) -> None:
        os.makedirs(self.folder, exist_ok=True)
        self.names = [f"{number:02d}_{label.replace('#', '_')}" for number, label in enumerate(pipeline.labels, 1)]
        self.text, self.text_in, self.index = f"{func}\n", "00_start.txt", [f"{func.name} for {target}", "00_start"]
        self._write("00_start.txt", self.text)

    def after(self, position: int, old: Func, new: Func) -> None:
        name = self.names[position]
        text = self.text if new is old else f"{new}\n"
        if text == self.text:
            self._write(f"{name}.txt", f"unchanged since {self.text_in}\n")
            self.index.append(f"{name}: unchanged")
        else:
            lines = list(difflib.unified_diff(self.text.splitlines(), text.splitlines(), self.text_in, f"{name}.txt", lineterm=""))
            self._write(f"{name}.txt", text)
            self._write(f"{name}.diff", "\n".join(lines) + "\n")
            added, removed = (sum(line.startswith(sign) for line in lines[2:]) for sign in "+-")
            self.index.append(f"{name}: +{added} -{removed} lines")
            self.text, self.text_in = text, f"{name}.txt"
        self._write("index.txt", "\n".join(self.index) + "\n")

    def failed(self, position: int, func: Func, error: Exception) -> None:
        name = self.names[position]
        self._write(f"{name}.failed.txt", f"{func}\n\n{type(error).__name__}: {error}\n")
        self.index.append(f"{name}: raised {type(error).__name__}")
        self._write("index.txt", "\n".join(self.index) + "\n")

    def _write(self, name: str, text: str) -> None:
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)


class Times(Instrument):
    """Processor seconds that each pass took; `seconds` has one entry for each pass that ran, by label."""

    def start(self, pipeline: Pipeline, func: Func, target: Target) -> None:
        self.labels = pipeline.labels
        self.seconds: dict[str, float] = {}

    def before(self, position: int, func: Func) -> None:
        self._since = time.process_time()

    def after(self, position: int, old: Func, new: Func) -> None:
        self.seconds[self.labels[position]] = time.process_time() - self._since

    def __str__(self) -> str:
        lines = [f"{label:12} {seconds * 1e3:8.3f} ms" for label, seconds in self.seconds.items()]
        return "\n".join([*lines, f"{'all':12} {sum(self.seconds.values()) * 1e3:8.3f} ms"])


class CountersInstrument(Instrument):
    """Nodes built, rules tried and rules hit in each pass; `counts` has one entry for each pass that ran, by label."""

    def start(self, pipeline: Pipeline, func: Func, target: Target) -> None:
        self.labels = pipeline.labels
        self.counts: dict[str, dict[str, int]] = {}

    def before(self, position: int, func: Func) -> None:
        self._since = COUNTERS.snapshot()

    def after(self, position: int, old: Func, new: Func) -> None:
        now = COUNTERS.snapshot()
        self.counts[self.labels[position]] = {name: now[name] - self._since[name] for name in now}

    def __str__(self) -> str:
        return "\n".join(f"{label:12} " + "  ".join(f"{n} {name}" for name, n in counts.items()) for label, counts in self.counts.items())


class StopAfter(Instrument):
    """Ends the run after the pass with this label."""

    def __init__(self, label: str):
        self.label = label

    def start(self, pipeline: Pipeline, func: Func, target: Target) -> None:
        if self.label not in pipeline.labels:
            raise PipelineError(f"cannot stop after {self.label!r}: pipeline {pipeline.name!r} has {', '.join(pipeline.labels)}")
        self.labels = pipeline.labels

    def wants_stop(self, position: int) -> bool:
        return self.labels[position] == self.label


def random_array(kind: DType, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Values that show differences: floats of both signs, all values of narrow integers; of those that may serve as indices, small ones."""
    if kind.is_float:
        values: Array = random.normal(size=shape)
    elif kind.is_integer and kind.bits < 32:
        values = random.integers(int(kind.low), int(kind.high) + 1, shape)
    else:
        values = random.integers(0, 2 if kind.is_bool else 4, shape)
    return values.astype(numpy_dtype(kind))


def _shape(func: Func, buffer: Buffer, sizes: dict[str, int]) -> tuple[int, ...]:
    values: dict[Var, Expr] = {s: const(sizes[s.name], s) for s in func.sizes}
    shape = [substitute(as_expr(extent), values) for extent in buffer.shape]
    assert all(isinstance(e, Const) for e in shape)
    return tuple(int(e.value) for e in shape)  # type: ignore[attr-defined]
