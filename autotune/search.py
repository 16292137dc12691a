"""Search: which candidates to measure next.

Every strategy only proposes decisions. It knows the space, what was measured and, where it uses one, a score for candidates (higher is
faster, as a cost model predicts it). It never proposes a candidate twice, and gives fewer than asked when the space is exhausted.
The same seed and the same measurements give the same proposals.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from .record import Decisions, decisions_key
from .space import Space

# Scores candidates, higher is faster; None where there is no score (the candidate could not even be lowered).
Scorer = Callable[[Sequence[Decisions]], list[float | None]]

# What was measured: decisions and speed (higher is faster), None for a candidate that failed.
Measured = Sequence[tuple[Decisions, float | None]]

_ENUMERATE_UP_TO = 512  # a space with no more candidates left than this is ranked whole


@dataclass(frozen=True)
class Proposal:
    """A candidate to measure: who proposed it, and the model's score when there was one."""

    decisions: Decisions
    generator: str
    predicted: float | None = None

    @property
    def key(self) -> str:
        return decisions_key(self.decisions)


class Searcher(Protocol):
    """A strategy."""

    def propose(self, count: int, measured: Measured, scorer: Scorer | None) -> list[Proposal]:
        """At most `count` candidates none of which is in `measured`."""


class RandomSearch:
    """Uniform draws without repetition: the baseline every other strategy must beat."""

    def __init__(self, space: Space, seed: int = 0):
        self.space = space
        self._rng = random.Random(seed)
        self._size = len(space)

    def propose(self, count: int, measured: Measured, scorer: Scorer | None = None) -> list[Proposal]:
        seen = {decisions_key(decisions) for decisions, _ in measured}
        return [Proposal(decisions, "random") for decisions in draw_new(self.space, self._size, count, seen, self._rng)]


class GridSearch:
    """Every candidate in the order of enumeration."""

    def __init__(self, space: Space):
        self._rest: Iterator[Decisions] = space.enumerate()

    def propose(self, count: int, measured: Measured, scorer: Scorer | None = None) -> list[Proposal]:
        seen = {decisions_key(decisions) for decisions, _ in measured}
        proposals: list[Proposal] = []
        while len(proposals) < count:
            decisions = next(self._rest, None)
            if decisions is None:
                break
            if decisions_key(decisions) not in seen:
                proposals.append(Proposal(decisions, "grid"))
        return proposals


class EvolutionarySearch:
    """Evolution over decisions with the score as fitness, a few uniform draws, parents from the best measured.

    population    candidates scored in one generation
    generations   how often the better half is mutated and crossed
    epsilon       share of a batch that is drawn uniformly, so that the model also learns where it thinks nothing is
    """

    def __init__(self, space: Space, seed: int = 0, *, population: int = 128, generations: int = 3, epsilon: float = 0.1):
        self.space = space
        self.population = population
        self.generations = generations
        self.epsilon = epsilon
        self._rng = random.Random(seed)
        self._size = len(space)

    def propose(self, count: int, measured: Measured, scorer: Scorer | None) -> list[Proposal]:
        seen = {decisions_key(decisions) for decisions, _ in measured}
        if scorer is None:
            return [Proposal(decisions, "random") for decisions in draw_new(self.space, self._size, count, seen, self._rng)]
        if self._size - len(seen) <= _ENUMERATE_UP_TO:
            pool = [decisions for decisions in self.space.enumerate() if decisions_key(decisions) not in seen]
            scores = _known(pool, scorer)
        else:
            scores = self._evolve(measured, seen, scorer)
        uniform = min(count - 1, max(1, round(count * self.epsilon))) if count > 1 else 0
        chosen = _best_and_different(scores, count - uniform)
        proposals = [Proposal(decisions, "model", score) for decisions, score in chosen]
        taken = seen | {proposal.key for proposal in proposals}
        for decisions in draw_new(self.space, self._size, count - len(proposals), taken, self._rng):
            predicted = scores[decisions_key(decisions)][1] if decisions_key(decisions) in scores else scorer([decisions])[0]
            proposals.append(Proposal(decisions, "epsilon", predicted))
        return proposals

    def _evolve(self, measured: Measured, seen: set[str], scorer: Scorer) -> dict[str, tuple[Decisions, float]]:
        """Every unmeasured candidate that was scored on the way: key -> (decisions, score)."""
        rng = self._rng
        ranked = sorted((speed, -index) for index, (_, speed) in enumerate(measured) if speed is not None)
        elite = [measured[-index][0] for _, index in reversed(ranked[-16:])]
        people = [*elite, *(self.space.mutate(rng.choice(elite), rng) for _ in range(self.population // 2 if elite else 0))]
        people += [self.space.sample(rng) for _ in range(self.population - len(people))]
        scores: dict[str, tuple[Decisions, float]] = {}
        for generation in range(self.generations):
            fresh = {decisions_key(decisions): decisions for decisions in people}
            new = [decisions for key, decisions in fresh.items() if key not in scores and key not in seen]
            scores.update(_known(new, scorer))
            parents = [decisions for decisions, _ in sorted(scores.values(), key=lambda pair: -pair[1])[: self.population // 4]] + elite
            if generation + 1 == self.generations or not parents:
                break
            # Rank-proportional choice: the chance of a parent falls linearly with its rank.
            weights = [len(parents) - rank for rank in range(len(parents))]
            people = []
            for _ in range(self.population):
                first, second = rng.choices(parents, weights, k=2)
                child = self.space.crossover(first, second, rng) if rng.random() < 0.3 else first
                people.append(self.space.mutate(child, rng))
        return scores


def _known(candidates: Sequence[Decisions], scorer: Scorer) -> dict[str, tuple[Decisions, float]]:
    """Those candidates that have a score."""
    scores = scorer(candidates) if candidates else []
    return {
        decisions_key(decisions): (decisions, score) for decisions, score in zip(candidates, scores, strict=True) if score is not None and math.isfinite(score)
    }


def _best_and_different(scores: dict[str, tuple[Decisions, float]], count: int) -> list[tuple[Decisions, float]]:
    """The best scores; of candidates with equal scores one first: the model cannot tell their loop nests apart."""
    ranked = sorted(scores.items(), key=lambda item: (-item[1][1], item[0]))
    first_of_each: list[tuple[Decisions, float]] = []
    others: list[tuple[Decisions, float]] = []
    values: set[float] = set()
    for _, (decisions, score) in ranked:
        (others if score in values else first_of_each).append((decisions, score))
        values.add(score)
    return (first_of_each + others)[:count]


def draw_new(space: Space, size: int, count: int, seen: set[str], rng: random.Random) -> list[Decisions]:
    """At most `count` different candidates that are not in `seen`, uniformly; all that are left when few are."""
    drawn: dict[str, Decisions] = {}
    if count <= 0:
        return []
    if size - len(seen) <= max(_ENUMERATE_UP_TO, count):
        rest = [decisions for decisions in space.enumerate() if decisions_key(decisions) not in seen]
        return rng.sample(rest, min(count, len(rest)))
    for _ in range(100 * count):
        decisions = space.sample(rng)
        key = decisions_key(decisions)
        if key not in seen and key not in drawn:
            drawn[key] = decisions
            if len(drawn) == count:
                break
    return list(drawn.values())
