"""Computations of which one stage is a product of matrices, and the others prepare its operands or use its result: conv2d_im2col, conv2d_winograd.

The product is that of matmul.py. Operands that are only laid out in another way are made as they are copied to shared memory: the columns of im2col are
never stored. Every other stage is a kernel of its own.
"""

from __future__ import annotations

from ....schedule.schedule import Schedule, create_schedule
from ....te.library.operator import Operator
from ...space import Config
from .general import THREADS, kernel_of
from .matmul import product


def products(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of an operator with one stage that has the tag batch_matmul."""
    schedule = create_schedule(op.output.op)
    stages = [stage for stage in schedule.stages if not stage.is_placeholder]
    sums = next(stage for stage in stages if stage.op.tag == "batch_matmul")
    threads = cfg.define_knob("threads", THREADS, default=256).val
    for stage in stages:
        if stage.op.reducer is None and not stage.is_output:
            stage.compute_inline()
        elif stage is not sums:
            kernel_of(stage, threads)
    product(cfg, schedule, sums, sums.outputs[0])
    return schedule
