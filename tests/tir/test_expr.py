"""The folding constructors: values that Python or a careless rule would get wrong."""

import math

import ml_dtypes
import numpy as np
import pytest

from tilewright.tir.dtype import BOOL, dtype
from tilewright.tir.errors import TEError
from tilewright.tir.expr import Buffer, Var, broadcast, cast, const, div, floordiv, floormod, load

x = load(Buffer("A", (4,)), [Var("i")])


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [(1.0, 0.0, "inf"), (1.0, -0.0, "-inf"), (-2.0, 0.0, "-inf"), (0.0, 0.0, "nan"), (math.nan, 0.0, "nan"), (math.inf, 0.0, "inf"), (-0.0, 3.0, "-0.0")],
)
def test_quotients_of_float_constants(a, b, text):
    assert str(div(const(a, "float32"), const(b, "float32"))) == text


def test_division_by_a_zero_that_substitution_made():
    i = Var("i")
    assert floordiv(i, const(0)) is const(0) and floormod(i, const(0)) is const(0)
    assert floordiv(broadcast(i, 4), broadcast(const(0), 4)) is broadcast(const(0), 4)
    assert str(div(x, const(-0.0, "float32"))) == "A[i] * (-inf)"


@pytest.mark.parametrize("divide", [lambda: x / 0, lambda: x / const(0.0, "float32"), lambda: Var("i") // 0, lambda: 7 % const(0)])
def test_a_division_by_zero_as_it_is_written(divide):
    with pytest.raises(TEError, match="division by the constant zero"):
        divide()


def test_floats_that_become_bools():
    assert [cast(const(v, "float32"), BOOL).value for v in (math.nan, math.inf, -0.0, 0.5)] == [1, 1, 0, 1]


@pytest.mark.parametrize("value", [(1 << 60) + (1 << 36) + 1, -(1 << 60) - (1 << 36) - 1, (1 << 60) + (1 << 36), (1 << 53) + 1, 0, -7])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_integers_are_rounded_once(value, kind):
    with np.errstate(over="ignore"):
        assert cast(const(value, "int64"), dtype(kind)).value == np.int64(value).astype(kind)


def test_numbers_too_large_for_a_float_are_infinite():
    assert const(10**400, "float32").value == math.inf and const(-(10**400), "float64").value == -math.inf and const(1e39, "float32").value == math.inf


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
def test_constants_of_small_floats_are_rounded(kind):
    """All values, the places between two, and what is too large; else what is folded would be another number than what is computed."""
    numpy_dtype = np.dtype("float16" if kind == "float16" else getattr(ml_dtypes, {"float8_e4m3": "float8_e4m3fn"}.get(kind, kind)))
    codes = np.arange(1 << 8 * numpy_dtype.itemsize, dtype=f"u{numpy_dtype.itemsize}").view(numpy_dtype).astype("float32")
    values = np.unique(codes[np.isfinite(codes)])
    between = (values[1:] * np.float32(0.5) + values[:-1] * np.float32(0.5)).astype("float32")
    values = np.concatenate(
        [values[:: max(1, len(values) // 500)], between[:: max(1, len(between) // 500)], np.float32([-0.0, 464, 465, 65520, 1e38, np.inf, -np.inf])]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = values.astype(numpy_dtype).astype("float64")
    got = np.array([cast(const(float(value), "float32"), dtype(kind)).value for value in values])
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(wanted)[~np.isnan(got)])
