"""Every operator of the library at every dtype: what it claims is right against float64 (exactly, of integers), all else is refused where it is declared."""

import ml_dtypes
import numpy as np
import pytest
from evaluate import evaluate

import tilewright as tw
from tilewright import autotune, te
from tilewright.autotune.verify import numpy_dtype
from tilewright.te.library.operator import OPERATORS
from tilewright.tir.dtype import SCALAR_NAMES
from tilewright.tir.errors import TEError

REAL = {"float16", "bfloat16", "float32", "float64"}
INTEGERS = {"bool", "int8", "uint8", "int16", "int32", "uint32", "int64"}
FLOAT8 = {"float8_e4m3", "float8_e5m2"}
PRODUCT = (REAL | INTEGERS, 8)  # claimed dtypes, and how many terms a sum of the sizes below has
REALS = (REAL, 1)  # computed in float32 at least and rounded once

# fmt: off
CLAIMS = {
    "matmul": ((6, 17, 8), *PRODUCT), "batch_matmul": ((2, 6, 7, 8), *PRODUCT), "dense": ((6, 7, 8), *PRODUCT), "gemv": ((6, 8), *PRODUCT),
    "conv1d": ((1, 4, 9, 6, 2), *PRODUCT), "conv2d": ((1, 2, 7, 9, 6, 2, 2), *PRODUCT), "depthwise_conv2d": ((1, 4, 7, 9, 2, 4), *PRODUCT),
    "conv2d_im2col": ((1, 2, 7, 9, 6, 2, 2), *PRODUCT), "conv2d_transpose": ((1, 2, 5, 5, 6, 2, 2), *PRODUCT), "conv2d_winograd": ((1, 4, 9, 9, 6), *REALS),
    "quantized_matmul": ((6, 7, 8), {"int8", "uint8"}, 8), "quantized_conv2d": ((1, 2, 7, 9, 6, 2, 2), {"int8", "uint8"}, 8),
    "int4_matmul": ((6, 7, 64), REAL, 64), "pool2d": ((1, 4, 8, 8, "max", 2), REAL | INTEGERS | FLOAT8, 1), "attention": ((1, 2, 8, 8, 4), *REALS),
    "flash_attention": ((1, 2, 8, 8, 4), *REALS),
    "softmax": ((2, 37), *REALS), "layer_norm": ((2, 37), *REALS), "rms_norm": ((2, 37), *REALS), "batch_norm": ((2, 3, 19), *REALS),
    "gelu": ((3, 37), *REALS), "silu": ((3, 37), *REALS), "sum": ((3, 37), REAL | INTEGERS - {"bool"}, 37), "argmax": ((3, 37), REAL | INTEGERS, 1),
    "relu": ((3, 37), REAL | INTEGERS | FLOAT8, 1), "transpose": ((3, 37), REAL | INTEGERS | FLOAT8, 1),
}
# fmt: on
OF_A_SHAPE = ("softmax", "layer_norm", "rms_norm", "batch_norm", "gelu", "silu", "sum", "argmax", "relu", "transpose")


def declared(name, dtype, **options):
    sizes = CLAIMS[name][0]
    return OPERATORS[name](*((sizes,) if name in OF_A_SHAPE else sizes), dtype=dtype, **options)


def inputs(op):
    rng = np.random.default_rng(7)
    made = []
    for t in op.args[:-1]:
        kind = numpy_dtype(t.dtype)
        if t.dtype.is_integer or t.dtype.is_bool:
            values = rng.integers(0 if t.dtype.low == 0 else -3, 2 if t.dtype.is_bool else 4, t.shape)
        else:
            values = rng.standard_normal(t.shape)
            values = np.abs(values) + 0.1 if (op.name, t.name) == ("batch_norm", "V") else values
        made.append(values.astype(kind))
    return made


def spacing(name):
    """The distance from 1 to the next value of a float."""
    return float(ml_dtypes.finfo(numpy_dtype(name)).eps)


def check(op, arrays, found, terms):
    want = np.asarray(op.reference(*arrays)).astype("float64")
    if op.output.dtype.is_integer or op.output.dtype.is_bool or str(op.output.dtype) in FLOAT8:
        np.testing.assert_array_equal(found.astype("float64"), want)
        return
    error = np.abs(found.astype("float64") - want).max()
    if terms == 1:  # one rounding, and what the computation in float32, or float64, adds
        inner = 64 * spacing("float64" if op.output.dtype == "float64" else "float32")
        assert error <= (spacing(op.output.dtype) / 2 + inner) * np.abs(want).max(), (error, np.abs(want).max())
    else:  # a sum in the dtype itself: each addition rounds
        largest = np.asarray(op.reference(*(np.abs(a) for a in arrays))).astype("float64").max()
        assert error <= spacing(op.output.dtype) * (terms + 2) / 2 * largest, (error, largest)


CLAIMED = [(name, dtype) for name, (_, dtypes, _) in CLAIMS.items() for dtype in SCALAR_NAMES if dtype in dtypes]


@pytest.mark.parametrize(("name", "dtype"), CLAIMED)
def test_the_declaration_is_right(name, dtype):
    op = declared(name, dtype)
    arrays = inputs(op)
    check(op, arrays, evaluate(op.output, dict(zip(op.args, arrays, strict=False))), CLAIMS[name][2])


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, d in CLAIMED if d in ("float16", "bfloat16", "float64", "int8", "uint32") or d in FLOAT8])
def test_the_kernel_of_the_default_schedule_is_right(name, dtype):
    op, target = declared(name, dtype), tw.Target("c", threads=1, opt="-O1")
    arrays = inputs(op)
    found = np.zeros(op.output.shape, numpy_dtype(op.output.dtype))
    tw.build(autotune.default_schedule(op, target), op.args, target)(*arrays, found)
    check(op, arrays, found, CLAIMS[name][2])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), CLAIMED)
def test_the_kernels_of_the_default_schedule_for_gpus_are_right_and_clean(name, dtype):
    op, target = declared(name, dtype), tw.Target("cuda", arch="sm_90", device="emulator")
    arrays = inputs(op)
    found = np.full(op.output.shape, 99).astype(numpy_dtype(op.output.dtype))  # poison
    module = tw.build(autotune.default_schedule(op, target), op.args, target, check="race")
    module(*arrays, found)
    check(op, arrays, found, CLAIMS[name][2])
    assert module.report.faults == []


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, claim in CLAIMS.items() for dtype in SCALAR_NAMES if dtype not in claim[1]])
def test_every_other_dtype_is_refused(name, dtype):
    with pytest.raises(TEError, match=dtype):
        declared(name, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("schedule", [autotune.default_schedule, lambda op: te.create_schedule(op.output.op)])
def test_long_sums_in_operators_of_halves_do_not_stop_growing(dtype, schedule):
    lib = te.library
    for op in (
        lib.softmax((2, 3000), dtype=dtype),
        lib.layer_norm((2, 3000), dtype=dtype),
        lib.rms_norm((2, 3000), dtype=dtype),
        lib.attention(1, 1, 3, 3000, 4, dtype=dtype),
        lib.pool2d(1, 1, 50, 60, "avg", (50, 60), dtype=dtype),
    ):
        arrays = [a if op.name in ("softmax", "attention") else a + a.dtype.type(2) for a in inputs(op)]
        found = np.zeros(op.output.shape, numpy_dtype(dtype))
        tw.build(schedule(op), op.args, tw.Target("c", threads=1))(*arrays, found)
        check(op, arrays, found, 1)


def test_a_maximum_of_nothing_but_padding_in_a_type_without_infinities():
    X = te.placeholder((3, 5), "float8_e4m3", name="X")
    k = te.reduce_axis((0, 5), "k")
    largest = te.compute((3,), lambda i: te.max(X[i, k], axis=k, where=i < 2), name="largest")
    smallest = te.compute((3,), lambda i: te.min(X[i, k], axis=k, where=i < 2), name="smallest")
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(ml_dtypes.float8_e4m3fn)
    high, low = (np.zeros(3, ml_dtypes.float8_e4m3fn) for _ in range(2))
    tw.build(te.create_schedule([largest.op, smallest.op]), [X, largest, smallest])(x, high, low)
    wide = x.astype("f")
    np.testing.assert_array_equal(high.astype("f"), [*wide[:2].max(1), -448])
    np.testing.assert_array_equal(low.astype("f"), [*wide[:2].min(1), 448])


def test_every_operator_has_its_claims():
    assert set(CLAIMS) == set(OPERATORS)
