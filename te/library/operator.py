"""The record of a ready-made operator, and the table of all of them by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec

from ...tir.dtype import dtype as dtype_named
from ...tir.errors import TEError
from ..tensor import Tensor


@dataclass(frozen=True)
class Operator:
    """A declared operator.

    Attributes: `args` (its tensors in the order of the kernel's arguments, the output last); `flops` (arithmetic operations: a multiply-add
    counts two, and where data is only moved each element counts one); `compute_reference` (see `reference`); `name`, `sizes` and `options`,
    by which it was declared: `OPERATORS[name](*sizes, **options)`, options that have their default left out.
    """

    args: list[Tensor]
    flops: int
    compute_reference: Callable[..., Any] = field(repr=False)
    name: str = ""
    sizes: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> Tensor:
        """The result, the last of `args`."""
        return self.args[-1]

    @property
    def bytes(self) -> int:
        """Memory traffic that cannot be avoided: every argument once, in bytes."""
        return sum((t.buffer.constant_size or 0) * t.dtype.bytes for t in self.args)

    def reference(self, *arrays: Any) -> Any:
        """What the operator should give for these input arrays, computed by NumPy in float64 (exactly for integers)."""
        if len(arrays) != len(self.args) - 1:
            raise TEError(f"the reference of {self.name} takes {len(self.args) - 1} array(s), found {len(arrays)}")
        return self.compute_reference(*arrays)


OPERATORS: dict[str, Callable[..., Operator]] = {}
P = ParamSpec("P")


def operator(declare: Callable[P, Operator]) -> Callable[P, Operator]:
    """Enters a declaring function into `OPERATORS`; the Operator it returns gets its name, sizes and options.

    Parameters without a default are the sizes; those with one are options, given by keyword.
    """
    signature = inspect.signature(declare)
    name = declare.__name__
    switches = [p.name for p in signature.parameters.values() if isinstance(p.default, bool)]

    @functools.wraps(declare)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Operator:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TEError(f"{name}: {error}: it takes {', '.join(signature.parameters)}") from None
        given.apply_defaults()
        for switch in switches:
            if not isinstance(given.arguments[switch], bool):  # the text "False" would count as true
                raise TEError(f"{name}: {switch} is {given.arguments[switch]!r}: expected True or False")
        made = declare(*args, **kwargs)
        sizes = tuple(v for k, v in given.arguments.items() if signature.parameters[k].default is inspect.Parameter.empty)
        options = {k: v for k, v in given.arguments.items() if signature.parameters[k].default not in (inspect.Parameter.empty, v)}
        return replace(made, name=name, sizes=sizes, options=options)

    OPERATORS[name] = wrapper
    return wrapper


def pair(value: Any, what: str, least: int) -> tuple[int, int]:
    """A height and a width from one int for both, or a pair."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(values) != 2 or not all(isinstance(v, int) and not isinstance(v, bool) and v >= least for v in values):
        raise TEError(f"{what} is {value!r}: expected an int or a pair of ints, at least {least}")
    return values


def check_sizes(**sizes: Any) -> None:
    """Sizes of an operator are positive ints."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TEError(f"{name} is {value!r}: expected a positive int")


def check_dims(shape: Sequence[int], least_rank: int = 1) -> tuple[int, ...]:
    """The shape of an operator: positive ints, at least `least_rank` of them."""
    if not isinstance(shape, (tuple, list)) or len(shape) < least_rank:
        raise TEError(f"shape is {shape!r}: expected a tuple of at least {least_rank} positive int(s)")
    check_sizes(**{f"shape[{d}]": extent for d, extent in enumerate(shape)})
    return tuple(shape)


def accumulator(dtype: str, acc_dtype: str | None) -> str:
    """The dtype a sum of products is kept in: as asked, else int32 for small integers, else the operands' own."""
    kind = dtype_named(dtype)
    if acc_dtype is not None:
        asked = dtype_named(acc_dtype)
        if kind.is_float and not asked.is_float:
            raise TEError(f"acc_dtype is {asked}, but the operands are {kind}, which it would cut to integers: expected a float dtype")
        return asked
    return "int32" if kind.is_integer and kind.bits < 32 else kind


def working_dtype(what: str, dtype: str) -> str:
    """The dtype in which an operator on real numbers computes: float32 for the floats of 16 bits, whose sums would stop growing; else theirs.

    A TEError for a dtype whose values the results are not among, or which is stored only.
    """
    kind = dtype_named(dtype)
    if not kind.is_float or kind.bits == 8:
        why = "a storage type on which nothing is computed" if kind.is_float else "but its results are no integers"
        raise TEError(f"{what}: dtype is {kind}, {why}: expected float16, bfloat16, float32 or float64; cast first")
    return "float32" if kind.bits == 16 else kind


def wide(*arrays: Any) -> list[Any]:
    """Arrays for a reference: floats as float64, integers as int64."""
    return [a.astype("int64" if a.dtype.kind in "iub" else "float64") for a in arrays]
