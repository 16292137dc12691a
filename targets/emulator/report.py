"""`Report`: what the checks of one or more launches found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    """What was found. `check`: what was looked for ("race", "memory"), or None."""

    check: str | None = None
    races: list[Any] = field(default_factory=list)
    out_of_bounds: list[Any] = field(default_factory=list)
    uninitialised: list[Any] = field(default_factory=list)
    divergence: list[Any] = field(default_factory=list)
    not_judged: list[Any] = field(default_factory=list)
    transactions: list[Any] = field(default_factory=list)
    max_bank_conflict: int | None = None
