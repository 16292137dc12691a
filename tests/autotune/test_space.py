"""Spaces: exact sizes, constraints, mutations that stay inside, splits that cover their extent."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.autotune.record import decisions_key
from tilewright.autotune.search import EvolutionarySearch, GridSearch, RandomSearch
from tilewright.autotune.space import Config, divisors
from tilewright.tir.errors import ArgumentError, ScheduleError


def small_space() -> Config:
    cfg = Config()
    cfg.define_split("tile", 24, num_outputs=3, policy="factors")
    cfg.define_knob("unroll", [0, 4, 16, 64])
    cfg.define_reorder("order", ["a", "b", "c"])
    cfg.define_annotate("words", ["a", "b"], ["none", "unroll"])
    return cfg


@settings(deadline=None, max_examples=40)
@given(extent=st.integers(1, 96), outputs=st.integers(2, 4), policy=st.sampled_from(["factors", "power2", "verbose"]))
def test_a_split_covers_its_extent(extent: int, outputs: int, policy: str) -> None:
    cfg = Config()
    cfg.define_split("t", extent, num_outputs=outputs, policy=policy)
    knob = cfg.space.knobs["t"]
    assert len({tuple(candidate) for candidate in knob.candidates}) == len(knob.candidates)
    for candidate in knob.candidates:
        size = knob.value(candidate).size
        assert len(size) == outputs
        assert math.prod(size) >= extent > math.prod(size) - math.prod(size[1:])
        if policy == "factors":
            assert math.prod(size) == extent


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_mutations_and_children_stay_in_the_space(seed: int) -> None:
    cfg = small_space()
    cfg.constrain(["tile", "unroll"], lambda tile, unroll: tile[-1] * unroll <= 64)
    space, rng = cfg.space, random.Random(seed)
    first, second = space.sample(rng), space.sample(rng)
    for _ in range(20):
        child = space.crossover(first, second, rng)
        other = space.mutate(child, rng)
        assert space.contains(child) and space.contains(other) and other != child
        first, second = second, other


def test_size_is_what_enumeration_gives() -> None:
    cfg = small_space()
    assert len(cfg.space) == len(cfg.space.knobs["tile"].candidates) * 4 * 6 * 4
    cfg.constrain(["tile", "unroll"], lambda tile, unroll: tile[-1] * unroll <= 64)
    keys = [decisions_key(decisions) for decisions in cfg.space.enumerate()]
    assert len(keys) == len(set(keys)) == len(cfg.space) < len(cfg.space.knobs["tile"].candidates) * 96


def test_divisors() -> None:
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]


def test_a_candidate_is_made_from_its_decisions() -> None:
    cfg = small_space()
    again = Config({"tile": (2, 3), "unroll": 16, "order": [2, 0, 1], "words": ["none", "unroll"]})
    again.define_split("tile", 24, num_outputs=3)
    again.define_knob("unroll", [0, 4, 16, 64])
    again.define_reorder("order", ["a", "b", "c"])
    again.define_annotate("words", ["a", "b"])
    assert again["tile"].size == (4, 2, 3) and again["unroll"].val == 16 and again["order"].perm == (2, 0, 1)
    assert again["words"].anns == ("none", "unroll")
    assert cfg.space.contains(again.decisions) and again.decisions != cfg.decisions


def test_split_apply_splits_the_outermost_part_off_first() -> None:
    calls = []

    class Stage:
        def split(self, axis: str, factor: int) -> tuple[str, str]:
            calls.append((axis, factor))
            return axis + ".outer", axis + ".inner"

    cfg = Config({"t": [4, 8]})
    cfg.define_split("t", 100, num_outputs=3, policy="power2")
    assert cfg["t"].apply({"C": Stage()}, "C", "i") == ["i.outer", "i.inner.outer", "i.inner.inner"]
    assert calls == [("i", 32), ("i.inner", 8)]


@pytest.mark.parametrize(
    ("define", "error", "words"),
    [
        (lambda cfg: cfg["nosuch"], ArgumentError, "nosuch.*defined so far: k"),
        (lambda cfg: cfg.define_knob("k", [1]), ArgumentError, "'k' is defined twice"),
        (lambda cfg: cfg.define_knob("empty", []), ArgumentError, "'empty' has no candidates"),
        (lambda cfg: cfg.define_split("t", 8, policy="best"), ArgumentError, "best.*factors, power2, verbose"),
        (lambda cfg: cfg.define_split("t", 8, num_outputs=1), ArgumentError, "1 outputs"),
        (lambda cfg: cfg.define_split("t", "n"), ArgumentError, "constant extent"),
        (lambda cfg: cfg.define_split("t", 8, candidates=[(1, 2)]), ArgumentError, r"\[1, 2\].*1 inner factor.s. of at least 1"),
        (lambda cfg: cfg.define_split("t", 8, candidates=[(-1, 2)]), ArgumentError, r"\[-1, 2\].*the outermost part is what remains"),
        (lambda cfg: cfg.define_split("t", 8, default=[3]), ArgumentError, r"default \[3\]"),
        (lambda cfg: cfg.define_reorder("r", "ab", candidates=[(0, 0)]), ArgumentError, "no permutation"),
        (lambda cfg: cfg.define_annotate("a", "ab", ["fast"]), ArgumentError, "fast.*vectorize"),
        (lambda cfg: cfg.constrain(["k"], lambda k: False), ScheduleError, "refuses k=1"),
    ],
)
def test_mistakes_get_a_sentence(define, error, words) -> None:
    cfg = Config()
    cfg.define_knob("k", [1, 2])
    with pytest.raises(error, match=words):
        define(cfg)


def test_a_decision_outside_the_space_is_refused() -> None:
    with pytest.raises(ScheduleError, match="7 is none of the 2 candidates of knob 'k'"):
        Config({"k": 7}).define_knob("k", [1, 2])


def score(decisions: dict) -> float:
    """A made-up machine: it likes tile [4, 2], unroll 16 and the order 2, 0, 1."""
    tile = decisions["tile"]
    return (8 - abs(tile[0] - 4) - abs(tile[1] - 2)) + (decisions["unroll"] == 16) + (decisions["order"] == [2, 0, 1])


def test_searches_never_repeat_and_exhaust_the_space() -> None:
    cfg = Config()
    cfg.define_split("tile", 12, num_outputs=3)
    cfg.define_knob("unroll", [0, 4, 16, 64])
    cfg.define_reorder("order", ["a", "b", "c"])
    space = cfg.space
    for searcher in (RandomSearch(space, 1), GridSearch(space), EvolutionarySearch(space, 1, population=32)):
        measured: list = []
        while batch := searcher.propose(60, measured, lambda candidates: [score(c) for c in candidates]):
            measured += [(proposal.decisions, score(proposal.decisions)) for proposal in batch]
        keys = {decisions_key(decisions) for decisions, _ in measured}
        assert len(keys) == len(measured) == len(space)


def test_the_same_seed_and_measurements_give_the_same_proposals() -> None:
    def run(seed: int) -> list[str]:
        cfg = Config()
        cfg.define_split("tile", 4096, num_outputs=3, policy="power2")
        cfg.define_knob("unroll", list(range(50)))
        cfg.define_reorder("order", "abc")
        searcher, measured = EvolutionarySearch(cfg.space, seed, population=32), []
        for _ in range(4):
            batch = searcher.propose(8, measured, (lambda candidates: [score(c) for c in candidates]) if measured else None)
            measured += [(proposal.decisions, score(proposal.decisions)) for proposal in batch]
        return [decisions_key(decisions) for decisions, _ in measured]

    assert run(0) == run(0) != run(1)


def test_evolution_finds_what_uniform_draws_do_not() -> None:
    cfg = Config()
    cfg.define_split("tile", 4096, num_outputs=3, policy="power2")
    cfg.define_knob("unroll", list(range(50)))
    cfg.define_reorder("order", "abc")
    evolved = uniform = 0.0
    for seed in range(6):  # as many candidates are scored by one as drawn by the other
        proposals = EvolutionarySearch(cfg.space, seed).propose(8, [(cfg.space.default(), 1.0)], lambda batch: [score(c) for c in batch])
        evolved += max(score(p.decisions) for p in proposals)
        uniform += max(score(p.decisions) for p in RandomSearch(cfg.space, seed).propose(3 * 128, []))
        assert {p.generator for p in proposals} == {"model", "epsilon"} and all(p.predicted is not None for p in proposals)
    assert evolved > uniform, (evolved, uniform)


def test_candidates_without_a_score_are_left_for_last() -> None:
    space = small_space().space
    proposals = EvolutionarySearch(space, 0, population=16).propose(4, [], lambda candidates: [None if c["unroll"] else 1.0 for c in candidates])
    assert all(p.decisions["unroll"] == 0 for p in proposals if p.generator == "model")
