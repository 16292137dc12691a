"""What a user sees while a search goes on: a live line on a terminal, a line a round elsewhere. Everything goes to standard error."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from ..targets.timer import format_seconds
from ..tir.optional import optional_import
from .record import Trial, fastest, status_counts


class Progress(Protocol):
    """Is told what happens."""

    def begin(self, task: str, total: int, earlier: list[Trial], space_size: int) -> None: ...

    def trial(self, trial: Trial) -> None: ...

    def round(self, number: int, model: str, correlation: float | None) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Says nothing."""

    def begin(self, task: str, total: int, earlier: list[Trial], space_size: int) -> None:
        pass

    def trial(self, trial: Trial) -> None:
        pass

    def round(self, number: int, model: str, correlation: float | None) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def end(self) -> None:
        pass


class Lines(Silent):
    """A line when a search begins, one a round, and one for each note."""

    def __init__(self) -> None:
        self._trials: list[Trial] = []
        self._total = self._new = 0
        self._started = time.perf_counter()

    def begin(self, task: str, total: int, earlier: list[Trial], space_size: int) -> None:
        self._trials, self._total, self._started = list(earlier), total, time.perf_counter()
        known = f", {len(earlier)} of them in the log" if earlier else ""
        self._say(f"tuning {task}: {total} trials{known}, {space_size} candidates")

    def trial(self, trial: Trial) -> None:
        self._trials.append(trial)
        self._new += 1

    def round(self, number: int, model: str, correlation: float | None) -> None:
        self._say(f"round {number}: {self.status(model, correlation)}")

    def note(self, text: str) -> None:
        self._say(text)

    def status(self, model: str, correlation: float | None) -> str:
        """Trials, valid ones, how the others failed, best, model accuracy and time left, in one line."""
        failed = status_counts(self._trials)
        valid = failed.pop("ok", 0)
        histogram = f" ({', '.join(f'{count} {status}' for status, count in failed.items())})" if failed else ""
        best = fastest(self._trials)
        parts = [f"{len(self._trials)}/{self._total} trials", f"{valid} valid{histogram}"]
        if best is not None and best.seconds is not None:
            rate = f" ({best.gflops:.1f} GFLOP/s)" if best.gflops else ""
            parts.append(f"best {format_seconds(best.seconds)}{rate}")
        if correlation is not None:
            parts.append(f"{model} rank correlation {correlation:.2f}")
        left = self._total - len(self._trials)
        if self._new and left > 0:
            parts.append(f"{(time.perf_counter() - self._started) / self._new * left:.0f} s left")
        return ", ".join(parts)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Live(Lines):
    """A bar that is redrawn in place, with the status beside it; failures are counted in it, notes stand above it."""

    def __init__(self) -> None:
        super().__init__()
        rich_progress = optional_import("rich.progress", "the progress display", "tune")
        console = optional_import("rich.console", "the progress display", "tune").Console(stderr=True)
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.fields[name]}", markup=False),
            rich_progress.BarColumn(bar_width=24),
            rich_progress.TextColumn("{task.fields[status]}", markup=False),
            console=console,
        )
        self._row: Any = None
        self._last: tuple[str, float | None] = ("", None)

    def begin(self, task: str, total: int, earlier: list[Trial], space_size: int) -> None:
        super().begin(task, total, earlier, space_size)
        self._row = self._bar.add_task("", total=total, completed=len(earlier), name=task, status="starting the workers")
        self._bar.start()

    def trial(self, trial: Trial) -> None:
        super().trial(trial)
        self._redraw()

    def round(self, number: int, model: str, correlation: float | None) -> None:
        self._last = (model, correlation)
        self._redraw()

    def _redraw(self) -> None:
        self._bar.update(self._row, completed=len(self._trials), status=self.status(*self._last))

    def end(self) -> None:
        self._bar.stop()

    def _say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


def make_progress(show: bool | Progress | None) -> Progress:
    """None: what fits standard error; True: lines; False: nothing; or the caller's own."""
    if show is None:
        return Live() if sys.stderr.isatty() else Lines()
    if isinstance(show, bool):
        return Lines() if show else Silent()
    return show
