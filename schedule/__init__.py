"""Schedules: how a computation is carried out, as primitives on its stages, and their lowering to loops.

Read in this order: trace, relation, stage, loops, placement, caching, padding, matrices, storage, predicate, tensorize, group, schedule, bounds, access,
scan_storage, nest, lower.
"""

from .lower import lower_schedule
from .schedule import Schedule, Stage, create_schedule
from .trace import Trace, replay_trace

__all__ = ["Schedule", "Stage", "Trace", "create_schedule", "lower_schedule", "replay_trace"]
