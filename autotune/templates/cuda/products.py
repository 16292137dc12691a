"""Computations of which one stage is a product of matrices, and the others prepare its operands or use its result: conv2d_im2col, conv2d_winograd.

The product is that of matmul.py. Operands that are only laid out in another way are made as they are copied to shared memory: the columns of im2col are
never stored. Every other stage is a kernel of its own. Where tensor cores can compute it, conv2d_im2col is one kernel (conv2d_tensor_cores.py).
"""

from __future__ import annotations

import math

from ....schedule.schedule import Schedule, create_schedule
from ....te.library.operator import Operator
from ...canonical import constant_shape
from ...space import Config
from .conv2d_tensor_cores import tensor_core_conv2d
from .general import THREADS, kernel_of
from .matmul import product
from .tensor_cores import tensor_core_kind


def products(cfg: Config, op: Operator) -> Schedule:
    """A schedule for a GPU of an operator with one stage that has the tag batch_matmul."""
    if op.name == "conv2d_im2col":
        _, channels, *positions = constant_shape(op.output)
        kind = tensor_core_kind(op, channels, math.prod(positions), cfg.target)
        if kind is not None:
            return tensor_core_conv2d(cfg, op, kind)
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
