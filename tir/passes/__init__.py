"""The passes, by name, and the pipelines made of them.

Read manager (what a pass is), pipeline (their order, and why), then a file for each pass in that order; guards finds what partition splits,
copies gives bodies anew, lanes answers questions for vectorize, nested_threads does for bind_threads. instruments watch a pipeline run.
"""

from .all_reduce import ThreadAllReduce
from .barriers import Barriers
from .bind_threads import BindThreads
from .blocks import Blocks
from .double_buffer import DoubleBuffer
from .flatten import Flatten
from .fragments import Fragments
from .hoist import Hoist
from .instruments import CountersInstrument, Dump, StopAfter, Times, Verify, default_instruments
from .legalize import Legalize
from .limits import Limits
from .manager import Instrument, Pass, Pipeline
from .narrow import Narrow
from .partition import Partition
from .pipeline import pipeline_for
from .shared_memory import SharedMemory
from .simplify import Simplify
from .storage import Storage
from .unroll import Unroll
from .vectorize import Vectorize
from .virtual_threads import VirtualThreads
from .warp_memory import WarpMemory

PASSES: dict[str, type[Pass]] = {
    p.name: p
    for p in (
        *(Simplify, Flatten, Partition, Vectorize, Storage, Unroll, Hoist, Narrow, Legalize),
        *(WarpMemory, BindThreads, Limits, VirtualThreads, DoubleBuffer, Fragments, Blocks, ThreadAllReduce, Barriers, SharedMemory),  # of a GPU
    )
}

__all__ = [
    "PASSES", "CountersInstrument", "Dump", "Instrument", "Pass", "Pipeline", "StopAfter", "Times", "Verify", "default_instruments", "pipeline_for",
]  # fmt: skip
