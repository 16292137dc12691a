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
    """A schedule for a GPU of te.library.conv2d of one group, conv2d_im2col or conv2d_transpose, of dtypes that tensor cores take."""
    schedule = create_schedule(op.output.op)
    for each in schedule.stages:
        if not each.is_placeholder and not each.is_output and each.op.reducer is None:
            each.compute_inline()
    stage = schedule[op.output]
    axes, terms = list(stage.op.axis), list(stage.op.reduce_axis)
    is_nhwc = op.options.get("layout", "NCHW") == "NHWC"
    if op.name == "conv2d_im2col":  # is a product of matrices already, one for each image
        batch, rows, columns = axes[:1], axes[1:2], axes[2:]
        (sums,) = stage.op.input_tensors
        left, right = sums.op.input_tensors
    else:
        batch = []
        rows, columns = (axes[:3], axes[3:]) if is_nhwc else (axes[1:2], [axes[0], *axes[2:]])
        sums, left, right = schedule.as_matmul(op.output, rows, columns, terms)
    stage.reorder(*batch, *rows, *columns)
    loops = (*batch, one_axis(stage, rows), one_axis(stage, columns))
    lanes = _lanes_nhwc(op, kind) if is_nhwc else _lanes_nchw(op, kind)
    tensor_core_product(cfg, schedule, kind, Matrices(sums, left, right, stage, loops, lanes))
    return schedule


def _lanes_nhwc(op: Operator, kind: TensorCoreKind) -> tuple[int, int, int]:
    """Neighbours in memory of the windows, the weights and the result: channels."""
    image, weights, out = (constant_shape(tensor)[-1] for tensor in op.args)
    return math.gcd(image, 16 // kind.bytes), math.gcd(weights, 16 // kind.bytes), math.gcd(out, 4)


def _lanes_nchw(op: Operator, kind: TensorCoreKind) -> tuple[int, int, int]:
    """Neighbours in memory of the weights (terms), the windows and the result (positions)."""
    most, positions = 16 // kind.bytes, math.prod(constant_shape(op.output)[2:])
    if op.name == "conv2d_transpose":  # whose weights lie by input channels first, and whose windows are of an image that is spread
        return 1, 1, math.gcd(positions, 4)
    return math.gcd(math.prod(constant_shape(op.args[1])[1:]), most), math.gcd(positions, most) if _is_pointwise(op) else 1, math.gcd(positions, 4)


def _is_pointwise(op: Operator) -> bool:
    """Whether the columns of the product are those of the image."""
    steps, around = pair(op.options.get("stride", 1), "stride", 1), pair(op.options.get("padding", 0), "padding", 0)
    return constant_shape(op.args[1])[2:] == (1, 1) and steps == (1, 1) and around == (0, 0)
