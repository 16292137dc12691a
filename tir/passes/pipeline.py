"""The order of passes for each kind of target, each line with its reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ..errors import TargetError
from ..target import Target
from ..verify import (
    CLOSED,
    EMITTABLE,
    FLAT,
    IN_BOUNDS,
    NARROW,
    NO_VECTOR_LOOPS,
    PARTITIONED,
    PLACED,
    RACE_FREE,
    SYNCED,
    THREADS_BOUND,
    TYPED,
    UNROLLED,
)
from .all_reduce import ThreadAllReduce
from .barriers import Barriers
from .bind_threads import BindThreads
from .blocks import Blocks
from .double_buffer import DoubleBuffer
from .flatten import Flatten
from .fragments import Fragments
from .hoist import Hoist
from .legalize import Legalize
from .limits import Limits
from .manager import Pipeline
from .narrow import Narrow
from .partition import Partition
from .shared_memory import SharedMemory
from .simplify import Simplify
from .storage import Storage
from .unroll import Unroll
from .vectorize import Vectorize
from .virtual_threads import VirtualThreads
from .warp_memory import WarpMemory

START = (TYPED, CLOSED, IN_BOUNDS, RACE_FREE)  # what schedule/lower.py gives


def pipeline_for(target: str | Target) -> Pipeline:
    """The pipeline for a target, or for the kind of that name."""
    return _pipeline(target if isinstance(target, str) else target.kind)


@lru_cache
def _pipeline(kind: str) -> Pipeline:
    if kind not in PIPELINES:
        raise TargetError(f"there is no pipeline for the kind of target {kind!r}; there is one for {' and '.join(map(repr, PIPELINES))}")
    return PIPELINES[kind]()


def _c() -> Pipeline:
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


def _cuda() -> Pipeline:
    return Pipeline(
        "cuda",
        start=START,
        passes=(
            WarpMemory(),  # before threads are bound: what a warp holds is filled like what a block holds
            BindThreads(),  # until then the function means what it says when its loops run one after another
            Limits(),  # at once: what cannot be launched need not be looked at any further
            VirtualThreads(),  # before what counts how often a buffer is filled
            DoubleBuffer(),  # while indices have their dimensions: it adds one
            Simplify(),  # decides conditions, before they decide what is uniform
            Fragments(),  # while indices have their dimensions
            Blocks(),  # while indices have their dimensions: most often one of them tells blocks apart
            Partition(of_kernels=True),  # so that whole tiles are read in vectors; before barriers, of which each piece needs its own
            ThreadAllReduce(),  # before barriers and places in shared memory, which it needs
            Barriers(),  # while indices have their dimensions, each a statement of its own about who touches what
            Flatten(),  # one index per access
            Vectorize(),  # of what is left inside one thread
            SharedMemory(),  # knows where the barriers are
            Storage(),  # local buffers and the workspace of the call
            Simplify(),  # what the passes above put together
            Unroll(max_stores=4096, written_out=False),  # marks loops over registers
            Hoist(),
            Narrow(),  # after all that does exact arithmetic
            Legalize(),  # what C++ has no words for
        ),
        end=(TYPED, CLOSED, IN_BOUNDS, THREADS_BOUND, SYNCED, FLAT, PARTITIONED, NO_VECTOR_LOOPS, PLACED, UNROLLED, NARROW, EMITTABLE),
    )


PIPELINES: dict[str, Callable[[], Pipeline]] = {"c": _c, "cuda": _cuda}
