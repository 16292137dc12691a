"""Passes, and the order they run in.

An order is written by hand (pipeline.py) and checked when the `Pipeline` is built: each pass says which facts (see ../verify.py) it
requires, gives and breaks, so "must run before" is data and a wrong order fails at once, not in a wrong kernel.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..errors import PipelineError
from ..stmt import Func
from ..target import Target
from ..verify import FACTS


@dataclass(frozen=True)
class Pass:
    """A rewriting of functions. A subclass is a frozen dataclass whose fields are its options.

    Class attributes: `name`; `requires`, `gives`, `breaks`: names of facts. What a pass neither gives nor breaks it keeps.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[tuple[str, ...]] = ()
    breaks: ClassVar[tuple[str, ...]] = ()

    def run(self, func: Func, target: Target) -> Func:
        """The rewritten function; the same object where nothing changed."""
        raise NotImplementedError


class Instrument:
    """Watches a pipeline run; it may not change the function. Override what is needed.

    Instruments nest: the last in the list is the closest to the pass, so `Times` goes last.
    A pass that occurs twice in a pipeline has the labels "simplify" and "simplify#2".
    """

    def start(self, pipeline: Pipeline, func: Func, target: Target) -> None:
        """Called before the first pass."""

    def before(self, position: int, func: Func) -> None:
        """Called before the pass at `position`, with the function it will get."""

    def after(self, position: int, old: Func, new: Func) -> None:
        """Called after the pass at `position`."""

    def failed(self, position: int, func: Func, error: Exception) -> None:
        """Called when the pass at `position`, or an instrument's look at what it made, raised; `func` is what the pass was given."""

    def wants_stop(self, position: int) -> bool:
        """Whether to end the run after the pass at `position`."""
        return False


class Pipeline:
    """A checked order of passes.

    Arguments: `name`, for messages; `start`: the facts that functions given to it have; `passes`; `end`: the facts the result must have.
    A pass without what it requires, or an end that is not reached, is a PipelineError saying which fact is missing, who broke it and which
    passes give it. Attribute `facts`: those that hold before the first pass, and after each.
    """

    def __init__(self, name: str, *, start: Iterable[str], passes: Sequence[Pass], end: Iterable[str]):
        self.name, self.start, self.passes, self.end = name, frozenset(start), tuple(passes), frozenset(end)
        self.labels = tuple(_labels(self.passes))
        self.facts = self._check()

    def _check(self) -> tuple[frozenset[str], ...]:
        known = [self.start]
        broken_by: dict[str, str] = {}
        self._refuse_unknown(self.start | self.end, f"pipeline {self.name!r}")
        for position, (label, each) in enumerate(zip(self.labels, self.passes, strict=True), 1):
            self._refuse_unknown({*each.requires, *each.gives, *each.breaks}, f"pass {label!r}")
            for fact in each.requires:
                if fact not in known[-1]:
                    raise PipelineError(
                        f"pipeline {self.name!r}: pass {label!r} (number {position} of {len(self.passes)}) requires "
                        f"{self._missing(fact, broken_by)} Put it after one of them."
                    )
            for fact in each.breaks:
                if fact in known[-1] and fact not in each.gives:
                    broken_by[fact] = f"{label!r} (number {position})"
            known.append((known[-1] - frozenset(each.breaks)) | frozenset(each.gives))
        for fact in sorted(self.end - known[-1]):
            raise PipelineError(f"pipeline {self.name!r} must end with {self._missing(fact, broken_by)} Add one of them after that.")
        return tuple(known)

    @staticmethod
    def _refuse_unknown(facts: Iterable[str], where: str) -> None:
        for fact in sorted(set(facts) - FACTS.keys()):
            close = difflib.get_close_matches(fact, FACTS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise PipelineError(f"{where} names the unknown fact {fact!r}{hint} Known are {', '.join(FACTS)} (tir/verify.py)")

    def _missing(self, fact: str, broken_by: dict[str, str]) -> str:
        why = f"it was broken by {broken_by[fact]}" if fact in broken_by else "no earlier pass gives it, nor do functions come with it"
        givers = sorted({c.name for c in _subclasses(Pass) if fact in c.gives} | {p.name for p in self.passes if fact in p.gives})
        return f"the fact {fact!r} ({FACTS[fact].meaning}): {why}. Passes that give it: {', '.join(map(repr, givers)) or 'none'}."

    def insert_after(self, label: str, *passes: Pass) -> Pipeline:
        """This pipeline with `passes` after the one labelled `label`."""
        at = self._position(label) + 1
        return self._with((*self.passes[:at], *passes, *self.passes[at:]))

    def insert_before(self, label: str, *passes: Pass) -> Pipeline:
        """This pipeline with `passes` before the one labelled `label`."""
        at = self._position(label)
        return self._with((*self.passes[:at], *passes, *self.passes[at:]))

    def _with(self, passes: tuple[Pass, ...]) -> Pipeline:
        return Pipeline(self.name, start=self.start, passes=passes, end=self.end)

    def _position(self, label: str) -> int:
        if label not in self.labels:
            raise PipelineError(f"pipeline {self.name!r} has no pass {label!r}; it has {', '.join(self.labels)}")
        return self.labels.index(label)

    def run(self, func: Func, target: str | Target, instruments: Sequence[Instrument] = ()) -> Func:
        """The function after all passes. An error of a pass carries a note that names the pass."""
        target = Target.parse(target)
        for instrument in instruments:
            instrument.start(self, func, target)
        for position, each in enumerate(self.passes):
            old = func
            try:
                for instrument in instruments:
                    instrument.before(position, old)
                func = each.run(old, target)
                for instrument in reversed(instruments):
                    instrument.after(position, old, func)
            except Exception as error:
                error.add_note(f"in pass {self.labels[position]!r} (number {position + 1}) of pipeline {self.name!r}, function {old.name!r}")
                for instrument in instruments:
                    instrument.failed(position, old, error)
                raise
            if any(instrument.wants_stop(position) for instrument in instruments):
                break
        return func

    def __str__(self) -> str:
        """One line for each pass: what it requires, gives and breaks."""
        width = max(map(len, self.labels), default=0)
        return "\n".join(
            "; ".join([f"{label:{width}}", *(f"{word} {', '.join(getattr(p, word)) or '-'}" for word in ("requires", "gives", "breaks"))])
            for label, p in zip(self.labels, self.passes, strict=True)
        )


def _labels(passes: Sequence[Pass]) -> Iterator[str]:
    count: dict[str, int] = {}
    for each in passes:
        count[each.name] = count.get(each.name, 0) + 1
        yield each.name if count[each.name] == 1 else f"{each.name}#{count[each.name]}"


def _subclasses(cls: type[Pass]) -> Iterator[type[Pass]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)
