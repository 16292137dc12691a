"""Spaces of decisions: what a template may choose, and the choices of one candidate.

A template is run with a `Config`. Each `cfg.define_*` call declares a knob and at once gives it a value: the candidate's decision, or the
default where there is none. So one piece of code both defines the space (run without decisions) and makes a candidate (run with them).
A decision is JSON data: a list of inner factors for a split, a value for a knob, a permutation for a reorder, a list of words for an
annotation. Searching a space is search.py's business.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..tir.errors import ArgumentError, ScheduleError
from .record import Decisions

_MAX_CANDIDATES = 200_000  # of one knob, and of the knobs that one constraint ties together
_MAX_SAMPLING_TRIES = 1_000


@dataclass(frozen=True)
class Knob:
    """One choice: a name, its candidates (JSON data) and the default one."""

    name: str
    candidates: tuple[Any, ...]
    default: Any

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ArgumentError(f"knob '{self.name}' has no candidates left; widen its policy, max_factor or filter")
        if len(self.candidates) > _MAX_CANDIDATES:
            raise ArgumentError(f"knob '{self.name}' has {len(self.candidates)} candidates, more than {_MAX_CANDIDATES}; give a max_factor or a filter")
        if self.default not in self.candidates:
            raise ArgumentError(f"the default {self.default!r} of knob '{self.name}' is none of its {len(self.candidates)} candidates")

    def value(self, decision: Any) -> Any:
        """What `cfg[name]` gives the template for a decision."""
        return Choice(decision)

    def mutate(self, decision: Any, rng: random.Random) -> Any:
        """Another candidate: any one for unordered choices."""
        others = [candidate for candidate in self.candidates if candidate != decision]
        return rng.choice(others) if others else decision


@dataclass(frozen=True)
class OrderedKnob(Knob):
    """A choice among numbers in increasing order: a mutation moves a few steps up or down."""

    def mutate(self, decision: Any, rng: random.Random) -> Any:
        if len(self.candidates) == 1:
            return decision
        at = self.candidates.index(decision)
        step = rng.choice((1, 1, 1, 2, 3)) * rng.choice((-1, 1))
        to = at + step
        if not 0 <= to < len(self.candidates):
            to = at - step
        to = min(max(to, 0), len(self.candidates) - 1)
        return self.candidates[to] if to != at else super().mutate(decision, rng)


@dataclass(frozen=True)
class SplitKnob(Knob):
    """Inner factors of an axis, outermost first; the outermost extent follows from them (rounded up: a tail is guarded)."""

    extent: int

    def value(self, decision: Any) -> SplitChoice:
        return SplitChoice(self.extent, tuple(decision))

    def mutate(self, decision: Any, rng: random.Random) -> Any:
        """Moves a little: of a few random candidates, the one nearest in the logarithms of the factors."""
        others = [candidate for candidate in rng.sample(self.candidates, min(6, len(self.candidates))) if candidate != decision]
        if not others:
            return Knob.mutate(self, decision, rng)
        return min(others, key=lambda other: sum(abs(math.log(a / b)) for a, b in zip(other, decision, strict=True)))


@dataclass(frozen=True)
class ReorderKnob(Knob):
    """An order of axes: positions in the order given; a mutation swaps two of them where that is a candidate."""

    def value(self, decision: Any) -> ReorderChoice:
        return ReorderChoice(tuple(decision))

    def mutate(self, decision: Any, rng: random.Random) -> Any:
        near = [other for other in self.candidates if sum(a != b for a, b in zip(other, decision, strict=True)) == 2]
        return rng.choice(near) if near else super().mutate(decision, rng)


@dataclass(frozen=True)
class AnnotateKnob(Knob):
    """A word for each of several axes; a mutation changes one of them where that is a candidate."""

    def value(self, decision: Any) -> AnnotateChoice:
        return AnnotateChoice(tuple(decision))

    def mutate(self, decision: Any, rng: random.Random) -> Any:
        near = [other for other in self.candidates if sum(a != b for a, b in zip(other, decision, strict=True)) == 1]
        return rng.choice(near) if near else super().mutate(decision, rng)


@dataclass(frozen=True)
class Choice:
    """A plain value: `.val`."""

    val: Any


@dataclass(frozen=True)
class SplitChoice:
    """The sizes of a split. `.size`: all parts, outermost first; `.apply` splits an axis so."""

    extent: int
    factors: tuple[int, ...]

    @property
    def val(self) -> tuple[int, ...]:
        return self.size

    @property
    def size(self) -> tuple[int, ...]:
        return (-(-self.extent // math.prod(self.factors)), *self.factors)

    def apply(self, schedule: Any, stage: Any, axis: Any) -> list[Any]:
        """Splits `axis` of `schedule[stage]`: axis -> outermost .. innermost.

        The outermost part is split off first, by the product of the others, so that only one guard is needed where sizes do not divide.
        """
        parts = []
        for position in range(len(self.factors)):
            outer, axis = schedule[stage].split(axis, factor=math.prod(self.factors[position:]))
            parts.append(outer)
        return [*parts, axis]


@dataclass(frozen=True)
class ReorderChoice:
    """`.perm`: positions in the declared order; `.apply` reorders those axes."""

    perm: tuple[int, ...]

    @property
    def val(self) -> tuple[int, ...]:
        return self.perm

    def apply(self, schedule: Any, stage: Any, axes: Sequence[Any]) -> list[Any]:
        ordered = [axes[position] for position in self.perm]
        schedule[stage].reorder(*ordered)
        return ordered


@dataclass(frozen=True)
class AnnotateChoice:
    """`.anns`: a word for each axis; `.apply` annotates those axes."""

    anns: tuple[str, ...]

    @property
    def val(self) -> tuple[str, ...]:
        return self.anns

    def apply(self, schedule: Any, stage: Any, axes: Sequence[Any]) -> None:
        for axis, word in zip(axes, self.anns, strict=True):
            if word != "none":
                getattr(schedule[stage], word)(axis)


ANNOTATIONS = ("none", "unroll", "vectorize", "parallel")


@dataclass
class Constraint:
    """Ties knobs together: `accepts(*values)` of the named knobs' values (what `cfg[name].val` gives)."""

    names: tuple[str, ...]
    accepts: Callable[..., bool]


@dataclass
class Space:
    """Every candidate a template may give: its knobs and the constraints that tie them."""

    knobs: dict[str, Knob] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)
    hints: list[Decisions] = field(default_factory=list)

    def default(self) -> Decisions:
        return {name: knob.default for name, knob in self.knobs.items()}

    def suggestions(self) -> list[Decisions]:
        """What the template suggests to measure early, each whole; the default itself, and what is no candidate of the space, is left out."""
        whole = [self.default(), *({**self.default(), **hint} for hint in self.hints)]
        return [decisions for number, decisions in enumerate(whole) if self.contains(decisions) and decisions not in whole[:number]][1:]

    def accepts(self, decisions: Decisions) -> bool:
        """Whether every constraint holds."""
        return all(self._holds(constraint, decisions) for constraint in self.constraints)

    def contains(self, decisions: Decisions) -> bool:
        """Whether these are exactly the knobs of the space, each with one of its candidates, and the constraints hold."""
        return (
            decisions.keys() == self.knobs.keys() and all(decisions[name] in knob.candidates for name, knob in self.knobs.items()) and self.accepts(decisions)
        )

    def _holds(self, constraint: Constraint, decisions: Decisions) -> bool:
        return bool(constraint.accepts(*(self.knobs[name].value(decisions[name]).val for name in constraint.names)))

    def __len__(self) -> int:
        """The exact number of candidates: knobs that constraints tie together are counted one combination at a time."""
        return math.prod(sum(1 for _ in self._combinations(group)) for group in self._groups())

    def enumerate(self) -> Iterator[Decisions]:
        """Every candidate once, the last knob changing fastest."""
        yield from self._combinations(list(self.knobs))

    def _combinations(self, names: list[str]) -> Iterator[Decisions]:
        checks = [constraint for constraint in self.constraints if set(constraint.names) <= set(names)]
        for values in itertools.product(*(self.knobs[name].candidates for name in names)):
            decisions = dict(zip(names, values, strict=True))
            if all(self._holds(constraint, decisions) for constraint in checks):
                yield decisions

    def _groups(self) -> list[list[str]]:
        """The knobs in groups that no constraint ties to one another."""
        group_of = {name: {name} for name in self.knobs}
        for constraint in self.constraints:
            merged = set().union(*(group_of[name] for name in constraint.names))
            for name in merged:
                group_of[name] = merged
        groups: list[list[str]] = []
        for name in self.knobs:
            if not any(name in group for group in groups):
                groups.append([other for other in self.knobs if other in group_of[name]])
        for group in groups:
            size = math.prod(len(self.knobs[name].candidates) for name in group)
            if len(group) > 1 and size > _MAX_CANDIDATES * 10:
                raise ArgumentError(f"constraints tie {len(group)} knobs with {size} combinations together, too many to count: {', '.join(group)}")
        return groups

    def sample(self, rng: random.Random) -> Decisions:
        """A candidate drawn uniformly."""
        for _ in range(_MAX_SAMPLING_TRIES):
            decisions = {name: rng.choice(knob.candidates) for name, knob in self.knobs.items()}
            if self.accepts(decisions):
                return decisions
        return rng.choice(list(itertools.islice(self.enumerate(), _MAX_CANDIDATES)))

    def mutate(self, decisions: Decisions, rng: random.Random) -> Decisions:
        """A neighbour: one knob changed, sometimes two; the same candidate where the constraints leave no way."""
        free = [name for name, knob in self.knobs.items() if len(knob.candidates) > 1]
        for _ in range(_MAX_SAMPLING_TRIES if free else 0):
            changed = dict(decisions)
            for name in rng.sample(free, min(len(free), rng.choice((1, 1, 1, 2)))):
                changed[name] = self.knobs[name].mutate(changed[name], rng)
            if changed != decisions and self.accepts(changed):
                return changed
        return decisions

    def crossover(self, first: Decisions, second: Decisions, rng: random.Random) -> Decisions:
        """A child with each knob from one of two parents; the first parent where no mixture is accepted."""
        for _ in range(20):
            child = {name: rng.choice((first[name], second[name])) for name in self.knobs}
            if self.accepts(child):
                return child
        return first


class Config:
    """What a template is given: `cfg.define_*` declares knobs, `cfg[name]` is the choice, `cfg.target` the target.

    decisions   knob name -> value; a knob without one takes its default
    """

    def __init__(self, decisions: Decisions | None = None, target: Any = None):
        self.target = target
        self.space = Space()
        self.decisions: Decisions = {}
        self._given = json.loads(json.dumps(decisions or {}))  # tuples as lists, as they come back from a log

    def __getitem__(self, name: str) -> Any:
        if name not in self.space.knobs:
            raise ArgumentError(f"no knob '{name}' is defined; defined so far: {', '.join(self.space.knobs) or 'none'}")
        return self.space.knobs[name].value(self.decisions[name])

    def _add(self, knob: Knob) -> Any:
        if knob.name in self.space.knobs:
            raise ArgumentError(f"knob '{knob.name}' is defined twice in one template")
        decision = self._given.get(knob.name, knob.default)
        if decision not in knob.candidates:
            raise ScheduleError(f"{decision!r} is none of the {len(knob.candidates)} candidates of knob '{knob.name}'")
        self.space.knobs[knob.name] = knob
        self.decisions[knob.name] = decision
        return self[knob.name]

    def define_knob(self, name: str, candidates: Sequence[Any], default: Any = None) -> Choice:
        """A choice among JSON values (numbers, words, truth values); the first is the default unless another is named."""
        values = json.loads(json.dumps(list(dict.fromkeys(candidates))))
        first = values[0] if default is None and values else default
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        kind = OrderedKnob if numbers and len(values) > 2 else Knob
        choice = self._add(kind(name, tuple(sorted(values) if kind is OrderedKnob else values), first))
        assert isinstance(choice, Choice)
        return choice

    def define_split(
        self,
        name: str,
        axis: Any,
        num_outputs: int = 2,
        *,
        policy: str = "factors",
        max_factor: int | None = None,
        candidates: Sequence[Sequence[int]] | None = None,
        filter: Callable[[SplitChoice], bool] | None = None,
        default: Sequence[int] | None = None,
    ) -> SplitChoice:
        """How an axis is split into `num_outputs` parts: axis -> outermost .. innermost.

        axis          an iteration variable with a constant extent, or the extent itself
        policy        which inner factors: "factors" (their product divides the extent), "power2" (powers of two; tails are guarded),
                      "verbose" (both)
        max_factor    the largest innermost factor
        candidates    the inner factors themselves, `num_outputs - 1` of each candidate, instead of a policy
        filter        keeps the candidates whose choice it accepts
        default       inner factors of the default; else the first candidate (no split: factors of 1)
        """
        extent = axis_extent(axis)
        if num_outputs < 2:
            raise ArgumentError(f"split '{name}' has {num_outputs} outputs; at least 2 are needed")
        if candidates is not None:
            factors = [list(candidate) for candidate in candidates]
            wrong = [candidate for candidate in factors if len(candidate) != num_outputs - 1 or min(candidate) < 1]
            if wrong:
                raise ArgumentError(f"candidate {wrong[0]} of split '{name}': expected {num_outputs - 1} inner factor(s) of at least 1; "
                                    "the outermost part is what remains, and is not listed")  # fmt: skip
        else:
            factors = [list(found) for found in _inner_factors(extent, num_outputs - 1, policy, name)]
        kept = [found for found in factors if (max_factor is None or found[-1] <= max_factor) and (filter is None or filter(SplitChoice(extent, tuple(found))))]
        wanted = list(default) if default is not None else (kept[0] if kept else [])
        if kept and wanted not in kept:
            raise ArgumentError(f"the default {wanted} of split '{name}' is none of its {len(kept)} candidates")
        choice = self._add(SplitKnob(name, tuple(kept), wanted, extent))
        assert isinstance(choice, SplitChoice)
        return choice

    def define_reorder(
        self, name: str, axes: Sequence[Any], *, candidates: Sequence[Sequence[int]] | None = None, filter: Callable[[tuple[int, ...]], bool] | None = None
    ) -> ReorderChoice:
        """An order of the axes: all permutations of their positions, or the given ones; the first is the default."""
        orders = candidates if candidates is not None else list(itertools.permutations(range(len(axes))))
        wrong = [order for order in orders if sorted(order) != list(range(len(axes)))]
        if wrong:
            raise ArgumentError(f"candidate {list(wrong[0])} of reorder '{name}' is no permutation of {len(axes)} positions")
        kept = [list(order) for order in orders if filter is None or filter(tuple(order))]
        choice = self._add(ReorderKnob(name, tuple(kept), kept[0] if kept else None))
        assert isinstance(choice, ReorderChoice)
        return choice

    def define_annotate(
        self, name: str, axes: Sequence[Any], words: Sequence[str] = ("none", "unroll"), filter: Callable[[tuple[str, ...]], bool] | None = None
    ) -> AnnotateChoice:
        """A word (none, unroll, vectorize, parallel) for each axis; the first word for all is the default unless the filter refuses it."""
        unknown = [word for word in words if word not in ANNOTATIONS]
        if unknown:
            raise ArgumentError(f"annotation '{unknown[0]}' of '{name}' is unknown; one of {', '.join(ANNOTATIONS)}")
        kept = [list(found) for found in itertools.product(words, repeat=len(axes)) if filter is None or filter(found)]
        choice = self._add(AnnotateKnob(name, tuple(kept), kept[0] if kept else None))
        assert isinstance(choice, AnnotateChoice)
        return choice

    def constrain(self, names: Sequence[str], accepts: Callable[..., bool]) -> None:
        """Refuses combinations: `accepts` is given the `.val` of each named knob. The defaults must be accepted."""
        constraint = Constraint(tuple(names), accepts)
        for name in names:
            self[name]
        self.space.constraints.append(constraint)
        if not accepts(*(self[name].val for name in names)):
            values = ", ".join(f"{name}={self.decisions[name]}" for name in names)
            remedy = "; these are defaults: name others with default=" if self.decisions == self.space.default() else ""
            raise ScheduleError(f"a constraint of the template refuses {values}{remedy}")

    def suggest(self, **decisions: Any) -> None:
        """Names a candidate worth measuring early, for example what a formula says; knobs left out keep their default.

        One that is no candidate of the space is left out: a formula need not know where its numbers stop being possible.
        """
        self.space.hints.append(json.loads(json.dumps(decisions)))


def axis_extent(axis: Any) -> int:
    """The constant extent of an iteration variable, or the number given."""
    extent = axis if isinstance(axis, int) else getattr(getattr(axis, "dom", None), "extent", axis)
    value = getattr(extent, "value", extent)
    if not isinstance(value, int) or value < 1:
        raise ArgumentError(f"a split needs an axis of constant extent, found {axis!r}; symbolic sizes are not tuned")
    return value


def divisors(number: int) -> list[int]:
    """All divisors, in increasing order."""
    small = [candidate for candidate in range(1, math.isqrt(number) + 1) if number % candidate == 0]
    return sorted({*small, *(number // candidate for candidate in small)})


def _inner_factors(extent: int, parts: int, policy: str, name: str) -> Iterator[tuple[int, ...]]:
    if policy not in ("factors", "power2", "verbose"):
        raise ArgumentError(f"policy '{policy}' of split '{name}' is unknown; one of factors, power2, verbose")
    found: set[tuple[int, ...]] = set()
    if policy in ("factors", "verbose"):
        found.update(_factorisations(extent, parts))
    if policy in ("power2", "verbose"):
        room = (extent - 1).bit_length()  # the product may round the extent up to a power of two
        found.update(powers for powers in itertools.product(*[[2**e for e in range(room + 1)]] * parts) if math.prod(powers) <= 2**room)
    yield from sorted(found)


def _factorisations(number: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Tuples of `parts` factors whose product divides `number`."""
    if parts == 0:
        yield ()
        return
    for factor in divisors(number):
        for rest in _factorisations(number // factor, parts - 1):
            yield (factor, *rest)
