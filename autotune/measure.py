"""Measuring candidates: built in parallel worker processes, run one at a time in another, checked, timed.

A bad candidate never ends a session: whatever it does is a status, a stage and a text.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..tir.errors import ArgumentError
from ..tir.target import usable_cpus
from .cost_model import Matrix
from .process import Reply, WorkerPool
from .record import Decisions, Trial, decisions_key
from .search import Proposal
from .task import Task
from .verify import make_check

MIN_REPEAT_MS = 12.0
GIVE_UP_FACTOR = 5.0  # a candidate that takes this many times the best time is not timed with care
_SCORE_BATCH = 16

Features = np.ndarray[Any, np.dtype[np.float32]]


@dataclass
class Clock:
    """Seconds spent, by what."""

    build_s: float = 0.0
    measure_s: float = 0.0
    score_s: float = 0.0
    scored: int = 0


class Measurer:
    """Builds, checks and times candidates of one task; a context manager that owns the worker processes.

    timeout_s    for building a candidate, and again for running it
    measure      in place of running: `measure(candidates) -> seconds` (a list, None for one that failed). Nothing is compiled then.
    """

    def __init__(self, task: Task, *, timeout_s: float, seed: int, measure: Callable[[Sequence[Any]], Sequence[float | None]] | None = None):
        self.task = task
        self.clock = Clock()
        self.features: dict[str, Features | None] = {}
        self._timeout_s = timeout_s
        self._measure = measure
        self._libraries: dict[str, str] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-")
        spec = {"task": task.to_spec(), "folder": self._folder.name}
        self._builders = WorkerPool(usable_cpus(), f"{__package__}.worker", spec)
        self._runner: WorkerPool | None = None
        self._seed = seed

    def __enter__(self) -> Measurer:
        """Starts the workers, and while they start computes what results are checked against."""
        try:
            self._builders.start()
            if self._measure is None:
                check = make_check(self.task.tensors, self.task.reference, self._seed)
                self._runner = WorkerPool(1, f"{__package__}.runner", {"check": check.save(Path(self._folder.name))})
                self._runner.start()
        except BaseException:  # the reference is the user's, and may be interrupted
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._builders.close()
        if self._runner is not None:
            self._runner.close()
        self._folder.cleanup()

    # ---- scoring

    def score(self, candidates: Sequence[Decisions], predict: Callable[[Matrix], Any]) -> list[float | None]:
        """The model's prediction for each candidate; None for one that cannot be lowered."""
        started = time.perf_counter()
        self.know(candidates)
        rows = [self.features[decisions_key(decisions)] for decisions in candidates]
        known = [row for row in rows if row is not None]
        predictions = iter(predict(np.stack(known)) if known else ())
        self.clock.score_s += time.perf_counter() - started
        self.clock.scored += len(candidates)
        return [None if row is None else float(next(predictions)) for row in rows]

    def know(self, candidates: Sequence[Decisions]) -> None:
        """Fills in `features` for these candidates: None for one that cannot be lowered."""
        self._extract([decisions for decisions in candidates if decisions_key(decisions) not in self.features])

    def _extract(self, candidates: list[Decisions]) -> None:
        """Features of new candidates. One whose template dies or never returns is found by its mark, left out, and the rest asked again."""
        batches = [candidates[start : start + _SCORE_BATCH] for start in range(0, len(candidates), _SCORE_BATCH)]
        while batches:
            replies = self._builders.map([{"candidates": batch} for batch in batches], self._timeout_s + 0.05 * _SCORE_BATCH)
            again: list[list[Decisions]] = []
            for batch, reply in zip(batches, replies, strict=True):
                if reply.status == "ok":
                    for decisions, row in zip(batch, reply.data["features"], strict=True):
                        self.features[decisions_key(decisions)] = None if row is None else np.array(row, dtype=np.float32)
                    continue
                culprit = int(reply.stage) if reply.stage.isdigit() else 0
                self.features[decisions_key(batch[culprit])] = None
                rest = batch[:culprit] + batch[culprit + 1 :]
                if rest:
                    again.append(rest)
            batches = again

    # ---- measuring

    def run(self, proposals: Sequence[Proposal], round_number: int, best_s: float | None, on_trial: Callable[[Trial], None]) -> list[Trial]:
        """A trial for each proposal, in order; `on_trial` is called with each as soon as it is known."""
        trials = [
            Trial(dict(proposal.decisions), "ok", predicted=proposal.predicted, generator=proposal.generator, round=round_number, flops=self.task.flops)
            for proposal in proposals
        ]
        if self._measure is not None:
            self._pretend(trials, on_trial)
            return trials
        started = time.perf_counter()
        replies = self._builders.map([{"decisions": trial.decisions} for trial in trials], self._timeout_s)
        self.clock.build_s += time.perf_counter() - started
        started = time.perf_counter()
        for trial, reply in zip(trials, replies, strict=True):
            self._take_build(trial, reply)
            if trial.ok:
                best_s = self._time(trial, best_s)
            on_trial(trial)
        self.clock.measure_s += time.perf_counter() - started
        return trials

    def _take_build(self, trial: Trial, reply: Reply) -> None:
        """What the builder said becomes part of the trial."""
        data = reply.data
        if reply.status == "ok":
            trial.trace, trial.status, trial.stage, trial.error = data.get("trace"), data["status"], data["stage"], data.get("error")
            trial.compile_s, trial.source_hash = data.get("compile_s"), data.get("source_hash")
            self._remember(trial, data.get("features"))
            if "library" in data:
                self._libraries[trial.key] = data["library"]
            return
        self._fail(trial, reply, {"lower": "lower_error", "compile": "compile_error"}, "lower")

    def _remember(self, trial: Trial, row: list[float] | None) -> None:
        self.features[trial.key] = None if row is None else np.array(row, dtype=np.float32)

    @staticmethod
    def _fail(trial: Trial, reply: Reply, statuses: dict[str, str], first_stage: str) -> None:
        """A request that did not come back with an answer: timeout, crash, or an exception, whose status depends on the stage."""
        trial.stage = reply.stage or first_stage
        trial.status = reply.status if reply.status in ("timeout", "crashed") else statuses[trial.stage]
        trial.error = reply.text

    def _time(self, trial: Trial, best_s: float | None) -> float | None:
        """Runs a built candidate; returns the best time so far."""
        assert self._runner is not None
        give_up_s = None if best_s is None else GIVE_UP_FACTOR * best_s
        # Two dozen calls of a candidate that is just not given up on, and the check, are well within this even on a busy machine.
        limit_s = self._timeout_s if best_s is None else min(self._timeout_s, 5.0 + 50 * GIVE_UP_FACTOR * best_s)
        request = {"library": self._libraries[trial.key], "min_repeat_ms": MIN_REPEAT_MS, "give_up_s": give_up_s}
        (reply,) = self._runner.map([request], limit_s)
        if reply.status != "ok":
            self._fail(trial, reply, {"load": "load_error", "run": "run_error", "verify": "run_error", "measure": "run_error"}, "load")
        elif reply.data["status"] != "ok":
            trial.status, trial.stage, trial.error = reply.data["status"], "verify", reply.data["error"]
        else:
            trial.repeats = tuple(reply.data["repeats"])
        seconds = trial.seconds
        return best_s if seconds is None else seconds if best_s is None else min(best_s, seconds)

    def _pretend(self, trials: list[Trial], on_trial: Callable[[Trial], None]) -> None:
        """Seconds from the caller's function; candidates are lowered, not compiled."""
        assert self._measure is not None
        replies = self._builders.map([{"decisions": trial.decisions, "compile": False} for trial in trials], self._timeout_s)
        for trial, reply in zip(trials, replies, strict=True):
            self._take_build(trial, reply)
        valid = [trial for trial in trials if trial.ok]
        times = list(self._measure(valid))
        if len(times) != len(valid):
            raise ArgumentError(f"measure= gave {len(times)} times for {len(valid)} candidates: expected one for each, None for one that failed")
        for trial, seconds in zip(valid, times, strict=True):
            if seconds is None or not np.isfinite(seconds):
                trial.status, trial.stage, trial.error = "run_error", "run", "measure= gave no time"
            else:
                trial.repeats = (float(seconds),)
        for trial in trials:
            on_trial(trial)

    # ---- the last word

    def compare(self, trials: Sequence[Trial], rounds: int = 9) -> bool:
        """Times valid trials in turns and replaces their times; False where that could not be done (their first times stay)."""
        if self._runner is None:
            return False
        missing = [trial for trial in trials if not os.path.exists(self._libraries.get(trial.key, ""))]
        replies = self._builders.map([{"decisions": trial.decisions} for trial in missing], self._timeout_s)
        for trial, reply in zip(missing, replies, strict=True):
            if reply.status != "ok" or reply.data["status"] != "ok":
                return False
            self._libraries[trial.key] = reply.data["library"]
        seconds = sum(trial.seconds or 0.0 for trial in trials)
        limit_s = self._timeout_s + 5 * rounds * (seconds + len(trials) * MIN_REPEAT_MS * 1e-3)
        request = {"libraries": [self._libraries[trial.key] for trial in trials], "rounds": rounds, "min_repeat_ms": MIN_REPEAT_MS}
        (reply,) = self._runner.map([request], limit_s)
        if reply.status != "ok":
            return False
        for trial, repeats in zip(trials, reply.data["repeats"], strict=True):
            trial.repeats = tuple(repeats)
        return True
