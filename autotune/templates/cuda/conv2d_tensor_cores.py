"""Convolutions on the tensor cores, as products of matrices one of which is never stored (implicit GEMM): the schedule is that of tensor_cores.py.

NCHW: rows are output channels, columns the positions of all images, the terms run over input channels and taps as weights lie in memory: a thread copies
several of them at once, and neighbouring threads copy neighbouring positions of the image. NHWC: rows are positions, columns output channels, terms have the
input channels innermost; both operands are copied several elements at once, by cp.async. Padding is made on the way.
"""

from __future__ import annotations

import math

from ....schedule.schedule import Schedule, create_schedule
from ....te.library.operator import Operator, pair
from ....te.tensor_cores import TensorCoreKind
from ...canonical import constant_shape
from ...space import Config
from .tensor_cores import Matrices, tensor_core_product
from .threads import one_axis


def tensor_core_conv2d(cfg: Config, op: Operator, kind: TensorCoreKind) -> Schedule:
    """A schedule for a GPU of te.library.conv2d of one group, or conv2d_transpose, of dtypes that tensor cores take."""
    image, weights, out = op.args
    is_nhwc = op.options.get("layout", "NCHW") == "NHWC"
    schedule = create_schedule(out.op)
    for stage in schedule.stages:
        if not stage.is_placeholder and not stage.is_output:
            stage.compute_inline()
    stage = schedule[out]
    axes, terms = list(stage.op.axis), list(stage.op.reduce_axis)
    rows, columns = (axes[:3], axes[3:]) if is_nhwc else (axes[1:2], [axes[0], *axes[2:]])
    sums, left, right = schedule.as_matmul(out, rows, columns, terms)
    stage.reorder(*rows, *columns)
    loops = one_axis(stage, rows), one_axis(stage, columns)
    most = 16 // kind.bytes
    if is_nhwc:
        lanes = math.gcd(constant_shape(image)[-1], most), math.gcd(constant_shape(weights)[-1], most), math.gcd(constant_shape(out)[-1], 4)
    else:
        positions = math.prod(constant_shape(out)[2:])
        by_terms = op.name == "conv2d"
        lanes = (
            math.gcd(math.prod(constant_shape(weights)[1:]), most) if by_terms else 1,
            math.gcd(positions, most) if by_terms and _is_pointwise(op) else 1,
            math.gcd(positions, 4),
        )
    tensor_core_product(cfg, schedule, kind, Matrices(sums, left, right, stage, loops, lanes))
    return schedule


def _is_pointwise(op: Operator) -> bool:
    """Whether the columns of the product are those of the image."""
    steps, around = pair(op.options.get("stride", 1), "stride", 1), pair(op.options.get("padding", 0), "padding", 0)
    return constant_shape(op.args[1])[2:] == (1, 1) and steps == (1, 1) and around == (0, 0)
