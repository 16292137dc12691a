"""Schedules with knobs for the operators of te.library, one family a file; whose defaults are the schedules used before any tuning.

A template of an operator is `(cfg, op) -> schedule`; its default decisions are chosen by what the target's registers and caches hold, not
by measurement. `general` serves every computation that no other file does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...schedule.schedule import Schedule
from ...te.library.operator import Operator
from ...te.tensor import Tensor
from ...tir.errors import ArgumentError
from ...tir.target import Target
from ..space import Config
from . import cuda
from .attention import attention
from .conv1d import conv1d
from .conv2d import conv2d
from .depthwise import depthwise
from .flash_attention import flash_attention
from .general import general
from .matmul import matmul
from .rows import rows
from .transpose import transpose

OperatorTemplate = Callable[[Config, Operator], Schedule]

# of each kind of target, the templates of families of operators
OPERATOR_TEMPLATES: dict[str, dict[str, OperatorTemplate]] = {
    "c": {
        "matmul": matmul,
        "dense": matmul,
        "batch_matmul": matmul,
        "attention": attention,
        "flash_attention": flash_attention,
        "conv1d": conv1d,
        "conv2d": conv2d,
        "conv2d_transpose": conv2d,
        "depthwise_conv2d": depthwise,
        "quantized_matmul": matmul,
        "quantized_conv2d": conv2d,
        "int4_matmul": matmul,
        "transpose": transpose,
        "softmax": rows,
        "layer_norm": rows,
        "rms_norm": rows,
        "sum": rows,
    },
    "cuda": {
        "matmul": cuda.matmul,
        "dense": cuda.matmul,
        "batch_matmul": cuda.matmul,
        "attention": cuda.attention,
        "flash_attention": cuda.flash_attention,
        "conv1d": cuda.conv1d,
        "conv2d": cuda.conv2d,
        "conv2d_im2col": cuda.products,
        "conv2d_transpose": cuda.conv2d,
        "conv2d_winograd": cuda.products,
        "quantized_conv2d": cuda.conv2d,
        "quantized_matmul": cuda.matmul,
        "int4_matmul": cuda.matmul,
        "depthwise_conv2d": cuda.depthwise,
        "transpose": cuda.transpose,
        "softmax": cuda.rows,
        "layer_norm": cuda.rows,
        "rms_norm": cuda.rows,
        "sum": cuda.rows,
    },
}

GENERAL_TEMPLATES: dict[str, Callable[[Config, Sequence[Tensor]], Schedule]] = {"c": general, "cuda": cuda.general}


def template_for(operator: Operator, target: Target) -> OperatorTemplate:
    """The template of an operator's family on a kind of target, else the general one."""
    general_one = GENERAL_TEMPLATES[target.kind]
    return OPERATOR_TEMPLATES[target.kind].get(operator.name, lambda cfg, op: general_one(cfg, op.args))


def default_schedule(computation: Operator | Tensor | Sequence[Tensor], target: str | Target = "c") -> Schedule:
    """A good schedule without any measurement: what the template's default decisions give.

    computation   an operator of te.library; or the tensors of any computation: the arguments of its kernel, or its outputs alone
    raises        ArgumentError for anything else
    """
    cfg = Config(target=Target.parse(target))
    if isinstance(computation, Operator):
        return template_for(computation, cfg.target)(cfg, computation)
    given = list(computation) if isinstance(computation, list | tuple) else [computation]
    tensors = [tensor for tensor in given if isinstance(tensor, Tensor)]
    if not tensors or len(tensors) != len(given):
        raise ArgumentError(f"default_schedule takes an operator of te.library, a tensor or a list of tensors, found {computation!r}")
    return GENERAL_TEMPLATES[cfg.target.kind](cfg, tensors)
