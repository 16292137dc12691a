"""Results are compared as they should be: exactly where nothing rounds, within a tolerance elsewhere, and never fooled by leftovers."""

import numpy as np
import pytest

from tilewright import te
from tilewright.autotune.verify import Check, describe_mismatch, exact_limit, make_check, numpy_dtype
from tilewright.te.library.operator import OPERATORS
from tilewright.tir.errors import ArgumentError


def test_a_matmul_is_checked_exactly_on_small_integers() -> None:
    op = OPERATORS["matmul"](20, 24, 300)
    check = make_check(op.args, op.reference, seed=0)
    a, b, c = check.arrays
    assert check.exact and check.is_output == (False, False, True) and c.dtype == np.float32
    assert set(np.unique(a)) == set(range(-4, 5)) and np.array_equal(c, a.astype("f8") @ b.astype("f8"))
    arguments = check.arguments()
    assert np.isnan(arguments[2]).all() and arguments[0] is a
    assert "480 of 480 elements are wrong" in str(check.mismatch(arguments))
    arguments[2][...] = c
    assert check.mismatch(arguments) is None
    arguments[2][3, 5] += 1
    assert "[3, 5]" in str(check.mismatch(arguments)) and "exactly" in str(check.mismatch(arguments))


def test_long_sums_take_smaller_integers_or_a_tolerance() -> None:
    op = OPERATORS["matmul"](2, 2, 1 << 21)
    check = make_check(op.args, op.reference, seed=0)
    assert check.exact and int(np.abs(check.arrays[0]).max()) == 2
    op = OPERATORS["matmul"](1, 1, 1 << 25)
    assert exact_limit("float32") == 2**24 and exact_limit("float16") == 2**11 and exact_limit("int8") == 127


def test_exp_is_checked_within_a_tolerance() -> None:
    op = OPERATORS["softmax"]((16, 32))
    check = make_check(op.args, op.reference, seed=0)
    arguments = check.arguments()
    arguments[1][...] = check.arrays[1] * (1 + 1e-6)
    assert not check.exact and check.mismatch(arguments) is None
    arguments[1][2, 3] *= 1.01
    assert "[2, 3]" in str(check.mismatch(arguments)) and "0.0001" in str(check.mismatch(arguments))


def test_a_reference_full_of_nan_gets_positive_inputs() -> None:
    x = te.placeholder((64,), name="X")
    y = te.compute((64,), lambda i: te.log(x[i]), name="Y")
    with np.errstate(invalid="ignore"):
        check = make_check([x, y], np.log, seed=0)
    assert (check.arrays[0] > 0).all() and np.isfinite(check.arrays[1]).all()


def test_inputs_used_as_indices_stay_inside() -> None:
    table, ids = te.placeholder((10, 4), name="T"), te.placeholder((300,), "int32", name="ids")
    rows = te.compute((300, 4), lambda i, j: table[te.max(te.min(ids[i], 9), 0), j], name="rows")
    check = make_check([table, ids, rows], lambda t, i: t[i], seed=0)
    assert check.arrays[1].min() == 0 and check.arrays[1].max() == 9


def test_what_is_saved_is_loaded(tmp_path) -> None:
    op = OPERATORS["softmax"]((4, 8))
    check = make_check(op.args, op.reference, seed=3)
    again = Check.load(check.save(tmp_path))
    assert again.exact == check.exact and again.is_output == check.is_output
    for first, second in zip(again.arrays, check.arrays, strict=True):
        np.testing.assert_array_equal(first, second)


def test_integers_are_poisoned_and_compared_exactly() -> None:
    x = te.placeholder((8,), "int32", name="X")
    check = make_check([x, te.compute((8,), lambda i: x[i] + 1, name="Y")], lambda a: a + 1, seed=0)
    arguments = check.arguments()
    assert (arguments[1] == 0x7F7F7F7F).all() and check.mismatch(arguments) is not None


@pytest.mark.parametrize(
    ("found", "expected", "right"),
    [
        ([np.nan], [np.nan], True),
        ([np.inf], [np.inf], True),
        ([np.inf], [-np.inf], False),
        ([1.0], [np.nan], False),
        ([np.nan], [1.0], False),
        ([1e-9, 1.0], [0.0, 1.0], True),
        ([1e-3, 1.0], [0.0, 1.0], False),
    ],
)
def test_special_values(found, expected, right: bool) -> None:
    text = describe_mismatch(np.array(found, "f"), np.array(expected, "f"), exact=False)
    assert (text is None) == right, text


def test_a_reference_of_the_wrong_shape_is_refused() -> None:
    x = te.placeholder((8,), name="X")
    y = te.compute((8,), lambda i: x[i], name="Y")
    with pytest.raises(ArgumentError, match=r"shape \(4,\) for output 'Y'.*\(8,\)"):
        make_check([x, y], lambda a: a[:4], seed=0)
    with pytest.raises(ArgumentError, match="2 outputs, the computation has 1"):
        make_check([x, y], lambda a: (a, a), seed=0)


def test_float8_is_of_the_type_without_infinities():
    assert np.isnan(np.array(1e6).astype(numpy_dtype("float8_e4m3")))
