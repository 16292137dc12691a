"""Facts: what may be claimed about a function between passes, and a check for each claim.

A check returns sentences, one for each violation found; none means that nothing speaks against the claim. Checks report what is
certainly wrong: where a proof is out of reach (a symbolic bound, an index read from memory) they stay silent, so a report is always a bug.
Which pass requires, gives and breaks which fact is said by the passes; that a list is consistent is checked by passes/manager.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .stmt import Func

TYPED = "typed"
CLOSED = "closed"
IN_BOUNDS = "in_bounds"
RACE_FREE = "race_free"
FLAT = "flat"
PARTITIONED = "partitioned"
NO_VECTOR_LOOPS = "no_vector_loops"
PLACED = "placed"
UNROLLED = "unrolled"
NARROW = "narrow"
EMITTABLE = "emittable"


@dataclass(frozen=True)
class Fact:
    """A claim about a function. `check` is None for what shows in speed only: that something was tried before what would be in its way."""

    name: str
    meaning: str
    check: Callable[[Func], list[str]] | None


FACTS: dict[str, Fact] = {
    f.name: f
    for f in (
        Fact(TYPED, "operands have the dtypes and lanes that their operation asks for, a stored value those of its buffer", None),
        Fact(CLOSED, "every variable and buffer is introduced once, and before it is used", None),
        Fact(IN_BOUNDS, "no access that happens is outside its buffer", None),
        Fact(RACE_FREE, "no two iterations of a parallel loop store to the same element", None),
        Fact(FLAT, "every buffer has one dimension and dense elements", None),
        Fact(PARTITIONED, "guards on the way to vectorised and unrolled bodies have been split off where they can be", None),
        Fact(NO_VECTOR_LOOPS, "vectorised loops have become vector expressions", None),
        Fact(PLACED, "every buffer has a place in memory, and buffers in use at once do not share bytes", None),
        Fact(UNROLLED, "unrolled loops around register tiles are written out", None),
        Fact(NARROW, "every integer expression has a dtype that holds its values", None),
        Fact(EMITTABLE, "only what the generator of the target knows is left", None),
    )
}
