"""PyTorch's tensors by the short way: their own attributes instead of a DLPack export, which takes twenty microseconds of Python for each.

Only what plainly fits is answered here; of everything else (subclasses, other devices and layouts, tensors of which PyTorch refuses an export) `dlpack`
finds out what it is. PyTorch is never imported: where nobody did, no argument is a tensor of it.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

# Ours -> the names of PyTorch's dtypes; those that a version of it does not have are left out.
_NAMES = {"float8_e4m3": "float8_e4m3fn"}


@cache
def _dtypes(torch: Any) -> dict[Any, str]:
    ours = ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2")
    return {getattr(torch, theirs): name for name in ours if (theirs := _NAMES.get(name, name)) in vars(torch)}


def tensor_address(argument: Any, dtype: str) -> int:
    """The address of a tensor that may be passed for an argument of `dtype`; 0 where that is not plain, or it has no element.

    Plain is: a torch.Tensor itself, in the CPU's memory, strided and contiguous, outside of automatic differentiation, its elements stored as they are
    (no negative-bit view; the dtypes that can be conjugated are none of ours), aligned to its element.
    """
    torch = sys.modules.get("torch")
    if torch is None or type(argument) is not getattr(torch, "Tensor", None) or _dtypes(torch).get(argument.dtype) != dtype:
        return 0
    if not argument.is_cpu or argument.layout is not torch.strided or argument.requires_grad or argument.is_neg() or not argument.is_contiguous():
        return 0
    try:
        address: int = argument.data_ptr()
    except RuntimeError:  # a wrapper without memory of its own, as of torch.func
        return 0
    return 0 if address % argument.element_size() else address
