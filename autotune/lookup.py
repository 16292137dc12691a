"""Asking logs for the best schedule of a task: the log that is named, or the user's own and then those shipped with the package."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import platformdirs

from ..targets.module import Module
from ..tir import config
from ..tir.errors import LogError
from ..tir.target import Target
from .database import Database
from .record import Trial
from .task import Task

_said: set[str] = set()


def user_log() -> Path:
    """The user's own log: TILEWRIGHT_LOG, else a file in the platform's folder for data."""
    return Path(config.LOG.value or Path(platformdirs.user_data_dir("tilewright")) / "tuning.db")


def shipped_logs() -> list[Path]:
    """The logs that come with the package."""
    return sorted((Path(__file__).parent.parent / "tuning_logs").glob("*.db"))


def find_best(task: Task, log: str | os.PathLike[str] | None = None) -> tuple[Trial, Path, str | None]:
    """The best logged trial of a task: the trial, the log it is from, and None or a remark that it was measured on another target.

    The same target first; else the nearest of its kind: most equal attributes, then the fastest. LogError where no log has the task; it
    names the command that would tune it.
    """
    paths = [Path(log)] if log is not None else [path for path in (user_log(), *shipped_logs()) if path.exists()]
    found: list[tuple[float, float, Trial, Path, dict[str, Any]]] = []
    for path in paths:
        with Database(path, read_only=True) as database:
            for target, trial in database.best(task.key, task.dag_hash):
                if isinstance(target, dict) and target.get("kind") == task.target.kind:
                    found.append((-_likeness(target, task.target), trial.seconds or 0.0, trial, path, target))
    if not found:
        where = f"in {', '.join(str(path) for path in paths)}" if paths else "(there is no log yet)"
        raise LogError(f"no tuned schedule of {task} for target {task.target.kind} {where}; to tune it: {_tune_command(task, log)}")
    best = min(found, key=lambda item: item[:2])
    other = None if best[4] == json.loads(task.target.to_json()) else _text(best[4])
    return best[2], best[3], other


def load_best(task: Task, log: str | os.PathLike[str] | None = None) -> Module:
    """The compiled kernel of the best logged schedule of a task. Nothing is measured: the same log gives the same kernel.

    log      the file to look in; None: the user's own log, then the logs shipped with the package
    raises   LogError where there is no such record
    """
    trial, path, other = find_best(task, log)
    if other is not None:
        _say_once(f"tilewright: the schedule of {task} in {path} was measured on another target ({other}); to tune it here: {_tune_command(task, log)}")
    return task.build(trial.trace, trial.decisions)


def _tune_command(task: Task, log: str | os.PathLike[str] | None) -> str:
    return task.command("tune", None if log is None else str(log))


def _likeness(found: dict[str, Any], wanted: Target) -> float:
    """How many attributes agree; the processor and the number of threads count most."""
    same = {key for key, value in json.loads(wanted.to_json()).items() if found.get(key) == value}
    return len(same) + 3 * ("cpu" in same) + 2 * ("threads" in same) + 2 * ("vector_bytes" in same)


def _text(target: dict[str, Any]) -> str:
    try:
        return str(Target.from_json(json.dumps(target)))
    except Exception:  # from a log: only a remark depends on it
        return "unknown"


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        print(text, file=sys.stderr)
