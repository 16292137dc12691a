"""Tensor expressions: what is computed, with no word about how.

Read in this order: axis, tensor, op, reduce, api, graph, check, scan, intrin, intrinsics, tensor_cores, wmma, extern; library/ has ready-made operators.
"""

from typing import TYPE_CHECKING, Any

from . import intrinsics, library, tensor_cores, wmma
from .api import (
    abs,
    cast,
    ceil,
    clip,
    compute,
    const,
    cos,
    erf,
    exp,
    exp2,
    floor,
    fma,
    if_then_else,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    max_value,
    maximum,
    min_value,
    minimum,
    placeholder,
    popcount,
    pow,
    power,
    reinterpret,
    round,
    rsqrt,
    select,
    sigmoid,
    sin,
    size_var,
    sqrt,
    tag_scope,
    tanh,
    trunc,
    var,
)
from .axis import IterVar, Range, reduce_axis, thread_axis
from .extern import ExternOp, address_of, call_extern, extern
from .intrin import TensorIntrin, decl_tensor_intrin, tensor_intrin
from .op import ComputeOp, Operation, PlaceholderOp, Reducer, Reduction
from .reduce import all, any, argmax, argmin, comm_reducer, max, min, prod, sum
from .scan import ScanOp, scan
from .tensor import Tensor

if TYPE_CHECKING:

    def create_schedule(ops: Any) -> Any:
        """schedule.create_schedule, put here by the root package: te knows no schedules."""


__all__ = [
    "ComputeOp", "ExternOp", "IterVar", "Operation", "PlaceholderOp", "Range", "Reducer", "Reduction", "ScanOp", "Tensor", "TensorIntrin",
    "abs", "address_of", "all", "any", "argmax", "argmin", "call_extern", "cast", "ceil", "clip", "comm_reducer", "compute", "const", "cos",
    "create_schedule", "decl_tensor_intrin", "erf", "exp", "exp2", "extern", "floor", "fma", "if_then_else", "intrinsics", "isfinite",
    "isinf", "isnan", "library", "log", "log1p", "log2", "max", "max_value", "maximum", "min", "min_value", "minimum", "placeholder",
    "popcount", "pow", "power", "prod", "reduce_axis", "reinterpret", "round", "rsqrt", "scan", "select", "sigmoid", "sin", "size_var",
    "sqrt", "sum", "tag_scope", "tanh", "tensor_cores", "tensor_intrin", "thread_axis", "trunc", "var", "wmma",
]  # fmt: skip
