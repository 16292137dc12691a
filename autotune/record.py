"""What one trial of the tuner leaves behind: the candidate, what became of it, and why.

A failed trial has a status, a stage and a text, never a large number in place of a time.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..targets.timer import format_seconds

Decisions = dict[str, Any]

# Every way a trial can end. `invalid` is refused by the static preflight before anything is built; it is not charged as a trial.
STATUSES = ("ok", "lower_error", "compile_error", "load_error", "run_error", "timeout", "crashed", "wrong_result", "invalid")


def decisions_key(decisions: Mapping[str, Any]) -> str:
    """The canonical text of a candidate's decisions: equal text is the same candidate."""
    return json.dumps(decisions, sort_keys=True, separators=(",", ":"))


@dataclass
class Trial:
    """One measured candidate.

    decisions     knob name -> value, as JSON data
    trace         the schedule it gave, as JSON data (None when the schedule could not be made)
    status, stage, error    one of STATUSES; where it failed (lower, compile, load, run, verify or measure) and the full text
    repeats       seconds per call, one figure a repeat; `seconds` is their median, `gflops` the rate it means
    predicted     the cost model's score when the candidate was proposed (None when no model proposed it); higher is faster
    generator     who proposed it: default, random, model, epsilon, grid
    compile_s     seconds that lowering and compiling took
    source_hash   hash of the generated source
    """

    decisions: Decisions
    status: str
    stage: str | None = None
    error: str | None = None
    repeats: tuple[float, ...] = ()
    trace: Any = field(default=None, repr=False)
    predicted: float | None = None
    generator: str = ""
    round: int = 0
    compile_s: float | None = None
    source_hash: str | None = None
    created_at: str = ""
    flops: float = 0.0
    id: int | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def key(self) -> str:
        return decisions_key(self.decisions)

    @property
    def seconds(self) -> float | None:
        """Median seconds per call; None for a trial that failed."""
        return statistics.median(self.repeats) if self.repeats and self.ok else None

    @property
    def gflops(self) -> float | None:
        """Arithmetic rate in 1e9 operations a second; None for a trial that failed."""
        seconds = self.seconds
        return self.flops / seconds / 1e9 if seconds else None


def speed_text(seconds: float | None, gflops: float | None) -> str:
    """A time per call and the rate it means, as text."""
    return f"{format_seconds(seconds or 0.0)}, {gflops or 0.0:.1f} GFLOP/s"


def fastest(trials: list[Trial]) -> Trial | None:
    """The valid trial of the least median time; the earliest one when several tie."""
    valid = [(trial.seconds, index) for index, trial in enumerate(trials) if trial.seconds is not None]
    return trials[min(valid)[1]] if valid else None


def status_counts(trials: list[Trial]) -> dict[str, int]:
    """How many trials ended in each status, most frequent first."""
    counts: dict[str, int] = {}
    for trial in trials:
        counts[trial.status] = counts.get(trial.status, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def diagnosis(trials: list[Trial], limit: int = 3) -> str:
    """The failures of `trials`, grouped by status and the first line of their text, the most frequent first."""
    groups: dict[tuple[str, str], int] = {}
    for trial in trials:
        if not trial.ok:
            lines = [line for line in (trial.error or "").splitlines() if line.strip()]
            group = (trial.status, lines[0] if lines else "no text")
            groups[group] = groups.get(group, 0) + 1
    ranked = sorted(groups.items(), key=lambda item: -item[1])
    shown = [f"{count} x {status}: {text}" for (status, text), count in ranked[:limit]]
    if len(ranked) > limit:
        shown.append(f"and {len(ranked) - limit} other kinds")
    return "; ".join(shown)
