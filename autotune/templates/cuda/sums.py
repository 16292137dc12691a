"""The stage of an operator that sums products, in registers; shared by products of matrices and convolutions."""

from __future__ import annotations

from typing import Any

from ....schedule.schedule import Schedule
from ....te.library.operator import Operator
from ..register_tile import sums_and_weights


def local_sums(schedule: Schedule, op: Operator) -> Any:
    """The stage that sums, in registers; what its operands are made from is inlined."""
    sums, _ = sums_and_weights(op)
    for each in schedule.stages:
        if not each.is_placeholder and each is not schedule[op.output] and each is not schedule[sums]:
            each.compute_inline()
    if sums is op.output:
        return schedule[schedule.cache_write(sums, "local")]
    schedule[sums].set_scope("local")
    return schedule[sums]
