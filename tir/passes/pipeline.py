"""The order of passes for each kind of target, each line with its reason."""

from __future__ import annotations

from functools import lru_cache

from ..errors import TargetError
from ..target import Target
from ..verify import CLOSED, EMITTABLE, FLAT, IN_BOUNDS, NARROW, NO_VECTOR_LOOPS, PARTITIONED, PLACED, RACE_FREE, TYPED, UNROLLED
from .flatten import Flatten
from .hoist import Hoist
from .legalize import Legalize
from .manager import Pipeline
from .narrow import Narrow
from .partition import Partition
from .simplify import Simplify
from .storage import Storage
from .unroll import Unroll
from .vectorize import Vectorize

START = (TYPED, CLOSED, IN_BOUNDS, RACE_FREE)  # what schedule/lower.py gives


def pipeline_for(target: str | Target) -> Pipeline:
    """The pipeline for a target, or for the kind of that name."""
    return _pipeline(target if isinstance(target, str) else target.kind)


@lru_cache
def _pipeline(kind: str) -> Pipeline:
    if kind != "c":
        raise TargetError(f"there is no pipeline for the kind of target {kind!r}; there is one for 'c'")
    return Pipeline(
        "c",
        start=START,
        passes=(
            Simplify(),  # decides conditions and drops loops that a schedule made for nothing
            Flatten(),  # one index per access: what all later passes reason about
            Partition(),  # on loops and plain guards; vectors would hide both
            Vectorize(),  # before storage: a buffer inside a vectorised loop gets a copy for each lane
            Storage(),  # after what may add or split buffers; before unrolling, which wants to know what is on the stack
            Simplify(),  # what the passes above put together; before unrolling copies it
            Unroll(),  # register tiles: after storage, which decides what is on the stack
            Hoist(),  # after unrolling, which leaves fewer loops
            Narrow(),  # after all that does exact arithmetic: from here on integers are numbers of their dtype
            Legalize(),  # what C has no words for
        ),
        end=(TYPED, CLOSED, IN_BOUNDS, RACE_FREE, FLAT, PARTITIONED, NO_VECTOR_LOOPS, PLACED, UNROLLED, NARROW, EMITTABLE),
    )
