"""The search itself: rounds of proposals, measurements and model fits, written to the log as they come; and what a log is asked for later."""

from __future__ import annotations

import html
import json
import os
import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np

from ..tir.errors import ArgumentError, TuningError
from .cost_model import MIN_ROWS, CostModel, held_out_correlation, make_model, relative_speed
from .database import Database
from .lookup import user_log
from .measure import Measurer
from .progress import Progress, make_progress
from .record import Trial, diagnosis, fastest, speed_text, status_counts
from .search import EvolutionarySearch, GridSearch, Proposal, RandomSearch, Scorer, Searcher
from .task import Task

ROUND_TRIALS = 8  # measured before the model is fitted again
NONE_VALID_LIMIT = 24  # trials without a valid one after which a search stops with the diagnosis
FINALISTS = 3  # candidates measured once more against the default
SEARCHES = ("evolutionary", "random", "grid")

Measure = Callable[[Sequence[Trial]], Sequence[float | None]]


@dataclass(repr=False)
class TuningRun:
    """What a search found; printed, a summary of it.

    best        the fastest valid trial: at worst the default schedule
    baseline    the trial of the default decisions (None where it is not valid)
    trials      every trial of this task in the log, earlier sessions included, in order
    stats       figures: trials, valid_fraction, rank_correlation (Spearman, held out), scored_per_s, build_s, measure_s, score_s,
                space_size, stopped ("trials", "space exhausted", "interrupted"), statuses, model
    """

    task: Task
    best: Trial
    baseline: Trial | None
    trials: list[Trial]
    stats: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        stats, best, baseline = self.stats, self.best, self.baseline
        lines = [
            f"{self.task}: {speed_text(best.seconds, best.gflops)} after {stats['trials']} trials "
            f"({stats['valid_fraction']:.0%} valid, stopped: {stats['stopped']})"
        ]
        if baseline is not None and baseline.seconds is not None and best.seconds is not None:
            lines.append(f"the default schedule: {speed_text(baseline.seconds, baseline.gflops)}; the best is {baseline.seconds / best.seconds:.2f} x as fast")
        if stats["rank_correlation"] is not None:
            lines.append(f"model {stats['model']}: rank correlation {stats['rank_correlation']:.2f}, {stats['scored_per_s']:.0f} candidates scored a second")
        if stats["valid_fraction"] < 1:
            lines.append(f"failures: {diagnosis(self.trials)}")
        lines.append(f"best decisions: {json.dumps(best.decisions)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def tune(
    task: Task,
    trials: int = 64,
    log: str | os.PathLike[str] | None = None,
    *,
    seed: int = 0,
    timeout_s: float = 10.0,
    measure: Measure | None = None,
    search: str = "evolutionary",
    progress: bool | Progress | None = None,
) -> TuningRun:
    """Searches for the fastest schedule of a task and logs every trial.

    trials      how many the log shall hold for this task and target: a search goes on where an earlier one ended
    log         the file (made when missing); None: the user's own log
    seed        the same seed and the same measurements give the same proposals
    timeout_s   for building one candidate, and for running it
    measure     instead of compiling and running: `measure(candidates) -> seconds` (None for one that failed)
    search      evolutionary (with the cost model), random or grid
    progress    None: a live line on a terminal, plain lines elsewhere; False: nothing
    raises      ArgumentError; LogError: the log cannot be used; TuningError: not one candidate was valid, with why
    Ctrl-C ends the search early: what was measured is in the log, and the best of it is returned; where nothing valid was measured yet, the
    KeyboardInterrupt goes on.
    """
    if not isinstance(task, Task):
        raise ArgumentError(f"expected a task, for example autotune.Task('matmul', (512, 512, 512)), found {task!r}")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise ArgumentError(f"timeout_s must be a number of seconds above 0, found {timeout_s!r}")
    if not isinstance(trials, int) or trials < 1:
        raise ArgumentError(f"trials must be a whole number of at least 1, found {trials!r}")
    if search not in SEARCHES:
        raise ArgumentError(f"there is no search '{search}'; one of {', '.join(SEARCHES)}")
    with Database(user_log() if log is None else log, create=True) as database:
        return _Session(task, database, trials, seed, timeout_s, measure, search, make_progress(progress)).run()


class _Session:
    """One call of tune()."""

    def __init__(self, task: Task, database: Database, total: int, seed: int, timeout_s: float, measure: Measure | None, search: str, progress: Progress):
        self.task, self.database, self.total, self.seed, self.progress = task, database, total, seed, progress
        self.space = task.space
        self.size = len(self.space)
        self.searcher: Searcher = (
            EvolutionarySearch(self.space, seed)
            if search == "evolutionary"
            else RandomSearch(self.space, seed)
            if search == "random"
            else GridSearch(self.space)
        )
        self.uses_model = search == "evolutionary"
        self.measure, self.timeout_s = measure, timeout_s
        self.workload_id = database.add_workload(task.key, task.dag_hash, name=task.name, args=_arguments_text(task), flops=task.flops, bytes_moved=task.bytes)
        self.target_id = database.add_target(str(task.target), task.target.to_json())
        self.trials = database.trials(self.workload_id, self.target_id)
        self.session_id = 0
        self.correlation: float | None = None
        self.model: CostModel | None = None
        self.stopped = "trials"

    def run(self) -> TuningRun:
        self.progress.begin(str(self.task), self.total, self.trials, self.size)
        try:
            if len(self.trials) < self.total:
                self._search()
        finally:
            self.progress.end()
        return self._result()

    def _search(self) -> None:
        self.session_id = self.database.add_session(socket.gethostname(), _versions(), self._options(), self.seed)
        with Measurer(self.task, timeout_s=self.timeout_s, seed=self.seed, measure=self.measure) as measurer:
            self.measurer = measurer
            try:
                number = max((trial.round for trial in self.trials), default=-1) + 1
                while len(self.trials) < self.total and self._round(number):
                    number += 1
                self._final_measurement()
            except KeyboardInterrupt:
                self.stopped = "interrupted"
                self.progress.note(f"interrupted; the log holds {len(self.trials)} trials")
                if fastest(self.trials) is None:
                    raise

    def _round(self, number: int) -> bool:
        """Proposes, measures, commits, learns. False when there is nothing left to propose."""
        scorer = self._learn()
        proposals = self._propose(min(ROUND_TRIALS, self.total - len(self.trials)), scorer)
        if not proposals:
            self.stopped = "space exhausted"
            self.progress.note(f"space exhausted: all {self.size} candidates are measured")
            return False
        best = fastest(self.trials)
        self.measurer.run(proposals, number, best.seconds if best else None, self._commit)
        if len(self.trials) >= NONE_VALID_LIMIT and not any(trial.ok for trial in self.trials):
            raise TuningError(f"not one of {len(self.trials)} candidates of {self.task} was valid: {diagnosis(self.trials)}")
        self.progress.round(number, self.model.name if self.model else "no model", self.correlation)
        return True

    def _propose(self, count: int, scorer: Scorer | None) -> list[Proposal]:
        """The default first, then what the template suggests, then what the search says."""
        seen = {trial.key for trial in self.trials}
        first = [
            Proposal(decisions, "default" if number == 0 else "suggested")
            for number, decisions in enumerate([self.space.default(), *self.space.suggestions()[: ROUND_TRIALS - 2]])
        ]
        proposals = [proposal for proposal in first if proposal.key not in seen][:count]
        speeds = relative_speed([trial.seconds for trial in self.trials])
        measured = [(trial.decisions, float(speed) if trial.ok else None) for trial, speed in zip(self.trials, speeds, strict=True)]
        measured += [(proposal.decisions, None) for proposal in proposals]
        return proposals + self.searcher.propose(count - len(proposals), measured, scorer)

    def _commit(self, trial: Trial) -> None:
        self.database.add_trial(self.workload_id, self.target_id, self.session_id, trial)
        self.trials.append(trial)
        self.progress.trial(trial)

    def _learn(self) -> Scorer | None:
        """Fits the model on every trial whose features are known; None while there are too few."""
        if not self.uses_model:
            return None
        self.measurer.know([trial.decisions for trial in self.trials])
        rows = [(row, trial.seconds) for trial in self.trials if (row := self.measurer.features.get(trial.key)) is not None]
        if len(rows) < MIN_ROWS or not any(seconds for _, seconds in rows):
            return None
        features = np.stack([row for row, _ in rows])
        speed = relative_speed([seconds for _, seconds in rows])
        model = make_model(self.seed)
        self.correlation = held_out_correlation(features, speed, self.seed)
        model.fit(features, speed)
        self.model = model
        return lambda candidates: self.measurer.score(candidates, model.predict)

    def _final_measurement(self) -> None:
        """The best candidates and the default once more, in turns: noise must not crown a schedule slower than the default.

        A candidate that was not in the comparison and looks faster than its winner is compared too, a few times at most.
        """
        compared: list[Trial] = []
        for _ in range(3):
            ranked = sorted((trial for trial in self.trials if trial.ok and self.space.contains(trial.decisions)), key=lambda trial: trial.seconds or 0.0)
            baseline = self._baseline()
            wanted = [*ranked[:FINALISTS], *([baseline] if baseline is not None and baseline not in ranked[:FINALISTS] else [])]
            if len(ranked) < 2 or ranked[0] in compared or not self.measurer.compare(wanted):
                return
            compared += wanted
            for trial in wanted:
                self.database.update_seconds(trial)

    def _baseline(self) -> Trial | None:
        default = self.space.default()
        return next((trial for trial in self.trials if trial.ok and trial.decisions == default), None)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"trials": self.total, "timeout_s": self.timeout_s, "measured_by_caller": self.measure is not None}
        template = self.task.to_spec().get("template")
        return options | ({"template": template} if template else {})

    def _result(self) -> TuningRun:
        best = fastest(self.trials)
        if best is None:
            raise TuningError(f"not one of {len(self.trials)} candidates of {self.task} was valid: {diagnosis(self.trials) or 'none was measured'}")
        clock = self.measurer.clock if hasattr(self, "measurer") else None
        stats = {
            "trials": len(self.trials),
            "valid_fraction": sum(trial.ok for trial in self.trials) / len(self.trials),
            "statuses": status_counts(self.trials),
            "rank_correlation": self.correlation,
            "space_size": self.size,
            "stopped": self.stopped,
            "model": self.model.name if self.model else None,
        }
        if clock is not None:
            stats |= {
                "scored_per_s": clock.scored / clock.score_s if clock.score_s else 0.0,
                "build_s": clock.build_s,
                "measure_s": clock.measure_s,
                "score_s": clock.score_s,
            }
        return TuningRun(self.task, best, self._baseline(), self.trials, stats)


def _arguments_text(task: Task) -> str:
    options = "".join(f" {key}={value}" for key, value in task.options.items())
    return " ".join(str(value) for value in task.args) + options


def _versions() -> dict[str, str]:
    """What a reader of the log may want to know about the programs that made it."""
    versions = {"python": platform.python_version()}
    for package in ("tilewright", "numpy", "xgboost", "xgboost-cpu"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
