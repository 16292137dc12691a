"""Is a result right? The inputs a candidate is run on, what it must give, and the comparison.

Where every operation of a computation is exact on small integers (sums, products, differences, maxima, casts), the inputs are small
integers, in floating-point arrays too: then no order of summation rounds, and a candidate must agree with the reference bit for bit. Other
computations (exp, division ...) run on normal random numbers and are compared with a stated tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..te.op import PlaceholderOp
from ..te.tensor import Tensor
from ..tir.errors import ArgumentError
from ..tir.optional import optional_import
from .canonical import constant_shape, index_limits, largest_values

Array = npt.NDArray[Any]

# What float32 kernels of a few thousand roundings keep to, relative to the element and to the largest element; others follow from the
# width of their mantissa.
_RELATIVE_TOLERANCE = 1e-4
_TOLERANCE_BY_DTYPE = {"float64": 1e-9, "float32": _RELATIVE_TOLERANCE, "float16": 2e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Check:
    """One array for each argument of a call: an input's values, or what an output must become. `exact`: bit for bit."""

    arrays: tuple[Array, ...]
    is_output: tuple[bool, ...]
    exact: bool

    def save(self, folder: Path) -> dict[str, Any]:
        """Writes the arrays for another process; returns what `load` takes, as JSON data."""
        for number, array in enumerate(self.arrays):
            np.save(folder / f"argument{number}.npy", array.view(np.uint8) if _is_extension(array.dtype) else array)
        return {"folder": str(folder), "is_output": list(self.is_output), "exact": self.exact, "dtypes": [array.dtype.name for array in self.arrays]}

    @staticmethod
    def load(saved: dict[str, Any]) -> Check:
        folder = Path(saved["folder"])
        arrays = [np.load(folder / f"argument{number}.npy") for number in range(len(saved["is_output"]))]
        return Check(
            tuple(array.view(numpy_dtype(name)) for array, name in zip(arrays, saved["dtypes"], strict=True)), tuple(saved["is_output"]), saved["exact"]
        )

    def arguments(self) -> list[Array]:
        """The arguments of a call: the inputs, and fresh outputs full of what no right result has."""
        return [poison(np.empty_like(array)) if output else array for array, output in zip(self.arrays, self.is_output, strict=True)]

    def mismatch(self, arguments: Sequence[Array]) -> str | None:
        """None where every output is right, else a sentence about the first wrong element."""
        for number, (found, expected, output) in enumerate(zip(arguments, self.arrays, self.is_output, strict=True)):
            text = describe_mismatch(found, expected, exact=self.exact) if output else None
            if text is not None:
                return f"argument {number}: {text}"
        return None


def poison(array: Array) -> Array:
    """Fills with NaN where the dtype has one, else with the byte 0x7f; booleans with false where true is as likely wrong."""
    if array.dtype.kind in "fc" or _is_extension(array.dtype):
        array[...] = np.nan
    elif array.dtype == np.bool_:
        array[...] = False
    else:
        array.reshape(-1).view(np.uint8)[...] = 0x7F
    return array


def describe_mismatch(found: Array, expected: Array, *, exact: bool) -> str | None:
    """How `found` differs from `expected`; None where it does not, within the tolerance of its dtype unless `exact`."""
    if exact or found.dtype.kind in "iub":
        wrong = found != expected
        within = "exactly, as every intermediate value is a small integer" if found.dtype.kind == "f" else "exactly"
    else:
        tolerance = _TOLERANCE_BY_DTYPE.get(found.dtype.name, _RELATIVE_TOLERANCE)
        wide = expected.astype(np.float64)
        finite = np.abs(wide[np.isfinite(wide)])
        scale = float(finite.max()) if finite.size else 0.0
        values = found.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.isfinite(wide) & (np.abs(values - wide) <= tolerance * np.abs(wide) + 0.1 * tolerance * scale)
        same = (found == expected) | (np.isnan(values) & np.isnan(wide))
        wrong = ~(near | same)
        within = f"within {tolerance:g} of it and {0.1 * tolerance * scale:.2g}"
    count = int(np.count_nonzero(wrong))
    if count == 0:
        return None
    at = tuple(int(index) for index in np.argwhere(wrong)[0]) if found.ndim else ()
    return f"{count} of {found.size} elements are wrong, the first at {list(at)}: {found[at]!s}, expected {expected[at]!s} {within}"


def make_check(tensors: Sequence[Tensor], reference: Callable[..., Any], seed: int) -> Check:
    """Inputs for the arguments `tensors`, and what `reference(*inputs)` says the outputs are.

    The inputs are integers as large as leaves every intermediate value exact (at most 4), else normal random numbers; positive ones where a
    reference of those has NaN in it (a logarithm or root of a negative number), since NaN would hide what was never written.
    """
    inputs = [tensor for tensor in tensors if isinstance(tensor.op, PlaceholderOp)]
    largest = next((limit for limit in (4, 2, 1) if _is_exact(tensors, limit)), None)
    rng = np.random.default_rng(seed)
    limits = index_limits(tensors)

    def make(positive: bool) -> list[Array]:
        return [_input(tensor, largest, limits.get(tensor), positive, rng) for tensor in inputs]

    arrays = make(positive=False)
    expected = _as_outputs(reference(*arrays))
    if largest is None and any(_has_nan(array) for array in expected):
        arrays = make(positive=True)
        expected = _as_outputs(reference(*arrays))
    values = dict(zip(inputs, arrays, strict=True))
    outputs = [tensor for tensor in tensors if tensor not in values]
    if len(outputs) != len(expected):
        raise ArgumentError(f"the reference gives {len(expected)} outputs, the computation has {len(outputs)}")
    for tensor, array in zip(outputs, expected, strict=True):
        if array.shape != tensor.shape:
            raise ArgumentError(f"the reference gives shape {array.shape} for output '{tensor.name}', which has shape {tensor.shape}")
        values[tensor] = np.array(array, dtype=numpy_dtype(tensor.dtype), order="C")
    return Check(tuple(values[tensor] for tensor in tensors), tuple(tensor in outputs for tensor in tensors), largest is not None)


def _is_exact(tensors: Sequence[Tensor], largest_input: int) -> bool:
    bounds = largest_values(tensors, largest_input)
    return bounds is not None and all(bound <= exact_limit(tensor.dtype) for tensor, bound in bounds.items())


def _input(tensor: Tensor, largest: int | None, limit: int | None, positive: bool, rng: np.random.Generator) -> Array:
    kind, shape = numpy_dtype(tensor.dtype), constant_shape(tensor)
    values: Array
    if tensor.dtype.is_float and largest is None:
        values = np.asarray(rng.uniform(0.5, 1.5, shape) if positive else rng.standard_normal(shape))
    else:
        high = 2 if tensor.dtype.is_bool else limit if limit is not None else (largest or 4) + 1
        low = 0 if tensor.dtype.is_bool or tensor.dtype.startswith("u") or limit is not None or positive else 1 - high
        values = np.asarray(rng.integers(low, high, shape))
    return values.astype(kind)


def _as_outputs(result: Any) -> list[Array]:
    return [np.asarray(array) for array in (result if isinstance(result, tuple | list) else (result,))]


def _has_nan(array: Array) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _is_extension(kind: np.dtype[Any]) -> bool:
    return kind.name.startswith(("bfloat", "float8"))


_ML_DTYPES_NAMES = {"float8_e4m3": "float8_e4m3fn"}  # its type of our name has infinities


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name; those it does not have come from ml_dtypes."""
    if name.startswith(("bfloat", "float8")):
        narrow: np.dtype[Any] = np.dtype(getattr(optional_import("ml_dtypes", f"an array of {name}", "dtypes"), _ML_DTYPES_NAMES.get(name, name)))
        return narrow
    return np.dtype(str(name))


def exact_limit(name: str) -> float:
    """The largest integer up to which a dtype holds every integer."""
    kind = numpy_dtype(name)
    if kind.kind in "iu":
        return float(np.iinfo(kind).max)
    return float(2 ** (np.finfo(kind).nmant + 1)) if kind.kind == "f" else math.inf if kind.kind == "b" else 0.0
