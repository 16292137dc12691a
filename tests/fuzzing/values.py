"""What random computations are made of: values with bounds, facts on tensors, programs.

Most data are small integers in whatever dtype, so that sums and products are exact in floats too and results must be equal to the bit; where a
computation rounds, the error is bounded as it is built. Discontinuous operations (comparisons, floor, casts to integers) are applied to
exact values only, so that a mismatch is always a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import te
from tilewright.autotune.verify import numpy_dtype
from tilewright.te import Tensor
from tilewright.tir.expr import Expr, Var

FLOATS = ("float32", "float32", "float32", "float32", "float64", "float16", "bfloat16")
STORED = ("float8_e4m3", "float8_e5m2")  # kept in memory only: a value is cast where it is read
INTEGERS = ("int32", "int32", "int8", "uint8", "int16", "uint32", "int64")
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 20, 31, 33, 48, 64, 100)
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3": 2.0**-3, "float8_e5m2": 2.0**-2}
MANTISSA = {kind: 2 / epsilon for kind, epsilon in EPSILON.items()}  # whole numbers up to it are exact
LARGEST = {"float16": 2.0**14, "float8_e4m3": 256.0, "float8_e5m2": 2.0**14}  # that values of these may be: no sum or product overflows
MAX_POINTS = 1600  # of a stage
MAX_STEPS = 12000  # of a stage with its reduction


@dataclass
class Value:
    """An expression; `bound`: no value is larger in magnitude; `error`: what rounding may do; `integral`: values are whole numbers."""

    e: Expr
    bound: float
    error: float
    integral: bool

    @property
    def dtype(self) -> Any:
        return self.e.dtype


@dataclass
class Facts:
    """The same of the elements of a tensor; `make` gives the array of an input."""

    bound: float
    error: float
    integral: bool
    make: Callable[[np.random.Generator], np.ndarray[Any, Any]] | None = None


@dataclass
class Axis:
    """A variable with the inclusive range of its values."""

    e: Expr
    low: int
    high: int


@dataclass
class Program:
    """A computation: `inputs` and `outputs` are the arguments of its kernel; `sizes`: values for its size variables."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    facts: dict[Tensor, Facts] = field(default_factory=dict)
    sizes: dict[Var, int] = field(default_factory=dict)

    def arrays(self, seed: int) -> dict[Tensor, np.ndarray[Any, Any]]:
        """Data for the inputs."""
        rng = np.random.default_rng(seed)
        return {t: self.facts[t].make(rng) for t in self.inputs}  # type: ignore[misc]

    def text(self) -> str:
        """The declarations, one a line."""
        return "\n".join(repr(op) for op in te.graph.operations([t.op for t in self.outputs]))


def integers(shape: tuple[int, ...], dtype: str, low: int, high: int) -> Callable[[np.random.Generator], np.ndarray[Any, Any]]:
    return lambda rng: rng.integers(low, high, shape, dtype="uint64" if low >= 0 else "int64", endpoint=True).astype(numpy_dtype(dtype))


def limit_of(kind: Any, bound: float) -> float:
    """The bound of a value of this dtype that may have wrapped."""
    if kind.is_bool:
        return 1.0
    if kind.is_float:
        return bound
    if kind.kind == "uint":  # a negative value becomes a large one
        return float(kind.high)
    return bound if bound <= kind.high else float(-kind.low)


def rounded(kind: Any, v: Value, roundings: int) -> Value:
    """`v` after so many roundings to its dtype; whole numbers that the mantissa holds are exact."""
    if not kind.is_float:
        return Value(v.e, v.bound, 0.0, True)
    if v.integral and v.error == 0 and v.bound <= MANTISSA[kind.element]:
        return v
    epsilon = EPSILON[kind.element]
    return Value(v.e, v.bound * (1 + epsilon), v.error + roundings * epsilon * v.bound, v.integral and v.error == 0)


def facts_of(v: Value) -> Facts:
    return Facts(v.bound, v.error, v.integral)
