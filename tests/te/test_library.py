"""Every operator of the library: what it declares is what its reference computes, and the reference is what the mathematics says."""

from math import erf

import numpy as np
import pytest
from evaluate import evaluate

import tilewright as tw
from tilewright import te
from tilewright.tir.errors import TEError

lib = te.library

CASES = {
    "matmul": lambda: lib.matmul(7, 5, 9),
    "matmul_f64": lambda: lib.matmul(3, 4, 5, dtype="float64"),
    "matmul_int8": lambda: lib.matmul(4, 6, 70, dtype="int8"),
    "matmul_f16": lambda: lib.matmul(4, 3, 5, dtype="float16", acc_dtype="float32"),
    "batch_matmul": lambda: lib.batch_matmul(3, 4, 5, 6),
    "dense": lambda: lib.dense(3, 4, 5),
    "gemv": lambda: lib.gemv(6, 7),
    "conv1d": lambda: lib.conv1d(2, 3, 19, 5, 3, stride=2, padding=1, dilation=2),
    "conv2d": lambda: lib.conv2d(1, 4, 13, 11, 6, 3, 5, stride=2, padding=(1, 2)),
    "conv2d_plain": lambda: lib.conv2d(2, 3, 5, 6, 4, 2, 3),
    "conv2d_nhwc": lambda: lib.conv2d(2, 4, 9, 8, 6, 3, 3, dilation=(2, 1), stride=(1, 2), padding=(1, 0), layout="NHWC"),
    "conv2d_groups": lambda: lib.conv2d(2, 6, 5, 5, 9, 3, 3, padding=1, groups=3),
    "conv2d_nhwc_groups": lambda: lib.conv2d(1, 4, 5, 5, 6, 3, 3, padding=1, groups=2, layout="NHWC"),
    "depthwise_conv2d": lambda: lib.depthwise_conv2d(2, 5, 8, 7, 3, 2, padding=(1, 0), stride=2, dilation=(1, 2)),
    "conv2d_transpose": lambda: lib.conv2d_transpose(1, 3, 7, 5, 5, 3, 2, stride=2, padding=1),
    "conv2d_transpose_plain": lambda: lib.conv2d_transpose(2, 2, 4, 4, 3, 3, 3, stride=(1, 3)),
    "conv2d_im2col": lambda: lib.conv2d_im2col(2, 3, 8, 7, 5, 3, 2, stride=2, padding=(1, 0), dilation=(1, 2)),
    "conv2d_winograd": lambda: lib.conv2d_winograd(2, 3, 7, 8, 4),
    "conv2d_winograd_4": lambda: lib.conv2d_winograd(1, 3, 9, 10, 2, m=4, padding=0),
    "pool2d_max": lambda: lib.pool2d(1, 3, 11, 11, "max", 3, stride=2, padding=1),
    "pool2d_avg": lambda: lib.pool2d(1, 3, 9, 10, "avg", (3, 2), padding=(1, 1)),
    "pool2d_avg_plain": lambda: lib.pool2d(1, 3, 8, 8, "avg", 2),
    "softmax": lambda: lib.softmax((5, 37)),
    "softmax_1d": lambda: lib.softmax((9,)),
    "layer_norm": lambda: lib.layer_norm((2, 3, 17)),
    "layer_norm_affine": lambda: lib.layer_norm((5, 7), affine=True, eps=0.5),
    "rms_norm": lambda: lib.rms_norm((5, 17)),
    "rms_norm_affine": lambda: lib.rms_norm((5, 7), affine=True),
    "batch_norm": lambda: lib.batch_norm((2, 3, 4, 5)),
    "quantized_matmul": lambda: lib.quantized_matmul(4, 6, 30),
    "quantized_matmul_zero": lambda: lib.quantized_matmul(4, 6, 30, a_zero=-7, out_zero=5, out_dtype="int8"),
    "quantized_matmul_unsigned": lambda: lib.quantized_matmul(3, 5, 9, a_zero=200, out_zero=128, dtype="uint8", out_dtype="uint8"),
    "quantized_matmul_f64": lambda: lib.quantized_matmul(3, 5, 9, out_dtype="float64", weight_dtype="uint8"),
    "quantized_conv2d": lambda: lib.quantized_conv2d(1, 4, 7, 6, 6, 3, 2, stride=(2, 1), padding=1, groups=2, x_zero=11),
    "quantized_conv2d_int8": lambda: lib.quantized_conv2d(2, 3, 5, 6, 4, 3, 3, padding=(0, 2), dilation=(1, 2), out_zero=-3, out_dtype="int8"),
    "quantized_conv2d_nhwc": lambda: lib.quantized_conv2d(1, 3, 5, 6, 4, 2, 3, layout="NHWC", padding=1, x_zero=-128, out_dtype="int8"),
    "int4_matmul": lambda: lib.int4_matmul(3, 6, 24, group=8),
    "int4_matmul_f16": lambda: lib.int4_matmul(3, 6, 8, group=4, dtype="float16", acc_dtype="float32"),
    "relu": lambda: lib.relu((3, 5)),
    "gelu": lambda: lib.gelu((3, 5)),
    "silu": lambda: lib.silu((3, 5)),
    "transpose": lambda: lib.transpose((2, 3, 5)),
    "sum": lambda: lib.sum((4, 5, 6)),
    "sum_1d": lambda: lib.sum((6,)),
    "sum_int8": lambda: lib.sum((3, 300), dtype="int8"),
    "argmax": lambda: lib.argmax((4, 5)),
    "attention": lambda: lib.attention(1, 2, 5, 7, 4),
    "flash_attention": lambda: lib.flash_attention(1, 2, 5, 7, 4, key_block=3),
    "flash_attention_causal_mask_grouped": lambda: lib.flash_attention(2, 4, 5, 6, 3, causal=True, mask=True, kv_heads=2, key_block=2),
    "attention_causal": lambda: lib.attention(2, 2, 6, 6, 4, causal=True),
    "attention_causal_long": lambda: lib.attention(1, 2, 7, 4, 3, causal=True),
    "attention_mask_grouped": lambda: lib.attention(2, 4, 5, 6, 3, mask=True, kv_heads=2),
}


def arrays_for(op, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for t in op.args[:-1]:
        if t.dtype.is_integer:
            made.append(rng.integers(t.dtype.low, t.dtype.high, t.shape, endpoint=True).astype(str(t.dtype)))
        else:
            a = rng.standard_normal(t.shape).astype(str(t.dtype))
            if t.name == "S" and op.name.startswith("quantized"):
                a *= np.float32(1e-3)  # so that sums of bytes come out within the range of a byte
            made.append(np.abs(a) + a.dtype.type(0.1) if t.name == "V" and op.name == "batch_norm" else a)
    return made


@pytest.mark.parametrize("case", CASES)
def test_declaration_means_what_the_reference_computes(case):
    op = CASES[case]()
    arrays = arrays_for(op)
    if op.name in ("attention", "flash_attention") and len(arrays) == 4:
        arrays[3][:, :, 1] = -np.inf  # a row that sees nothing
        arrays[3][:, :, 2, ::2] = -np.inf
    got = evaluate(op.output, dict(zip(op.args, arrays, strict=False)))
    want = op.reference(*arrays)
    assert got.shape == want.shape == op.output.shape
    assert got.dtype == op.output.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert np.isfinite(want).all()


@pytest.mark.parametrize("case", CASES)
def test_operators_can_be_declared_again_from_their_record(case):
    op = CASES[case]()
    again = lib.OPERATORS[op.name](*op.sizes, **op.options)
    assert [t.shape for t in again.args] == [t.shape for t in op.args]
    assert (again.flops, again.bytes) == (op.flops, op.bytes)
    assert op.flops > 0
    assert op.bytes == sum(int(np.prod(t.shape)) * t.dtype.bytes for t in op.args)


def test_all_operators_are_in_the_cases():
    assert {CASES[c]().name for c in CASES} == set(lib.OPERATORS)


# the references themselves, against loops or formulas written here


def conv_by_loops(x, w, stride, padding, dilation, groups):
    (sh, sw), (ph, pw), (dh, dw) = stride, padding, dilation
    N, _, H, W = x.shape
    CO, CG, KH, KW = w.shape
    OH, OW = (H + 2 * ph - dh * (KH - 1) - 1) // sh + 1, (W + 2 * pw - dw * (KW - 1) - 1) // sw + 1
    y = np.zeros((N, CO, OH, OW))
    for n, o, i, j in np.ndindex(y.shape):
        for c, r, q in np.ndindex(CG, KH, KW):
            h, v = i * sh + r * dh - ph, j * sw + q * dw - pw
            if 0 <= h < H and 0 <= v < W:
                y[n, o, i, j] += float(x[n, o // (CO // groups) * CG + c, h, v]) * float(w[o, c, r, q])
    return y


@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [((1, 1), (0, 0), (1, 1), 1), ((2, 1), (1, 2), (1, 2), 2), ((3, 2), (2, 0), (2, 1), 4)])
def test_conv2d_reference(stride, padding, dilation, groups):
    op = lib.conv2d(2, 4, 7, 8, 4, 3, 2, stride=stride, padding=padding, dilation=dilation, groups=groups)
    x, w = arrays_for(op)
    want = conv_by_loops(x, w, stride, padding, dilation, groups)
    np.testing.assert_allclose(op.reference(x, w), want, rtol=1e-9)
    nhwc = lib.conv2d(2, 4, 7, 8, 4, 3, 2, stride=stride, padding=padding, dilation=dilation, groups=groups, layout="NHWC")
    np.testing.assert_allclose(nhwc.reference(x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)), want.transpose(0, 2, 3, 1), rtol=1e-9)


def quantized_by_loops(op, a, b, s, z, a_zero, out_zero):
    """Products of matrices in Python's integers, and the way back in float32."""
    want = np.zeros(op.output.shape)
    for i, j in np.ndindex(want.shape):
        total = sum((int(a[i, k]) - a_zero) * (int(b[k, j]) - int(z[j])) for k in range(a.shape[1]))
        scaled = float(np.float32(total) * s[j])
        want[i, j] = max(op.output.dtype.low, min(op.output.dtype.high, round(scaled) + out_zero)) if op.output.dtype.is_integer else scaled
    return want


@pytest.mark.parametrize(("dtype", "out", "a_zero", "out_zero"), [("int8", "int8", 3, -20), ("uint8", "uint8", 131, 128), ("uint8", "float32", 128, 0)])
def test_quantized_references(dtype, out, a_zero, out_zero):
    op = lib.quantized_matmul(5, 6, 40, a_zero=a_zero, out_zero=out_zero, dtype=dtype, out_dtype=out)
    a, b, s, z = arrays_for(op, 2)
    s[:4] = 0.5, 1.5, 1e-3, 2**-9  # whole and half numbers, within the range and far beyond it
    want = quantized_by_loops(op, a, b, s, z, a_zero, out_zero)
    np.testing.assert_allclose(op.reference(a, b, s, z), want, rtol=1e-6)
    if out != "float32":
        assert {op.output.dtype.low, op.output.dtype.high} <= set(want.flat) and len(np.unique(want)) > 10
    conv = lib.quantized_conv2d(1, 40, 1, 5, 6, 1, 1, x_zero=a_zero, out_zero=out_zero, dtype=dtype, out_dtype=out)  # the same product
    y = conv.reference(a.T[None, :, None], b.T[:, :, None, None], s, z)
    np.testing.assert_allclose(y[0, :, 0].T, want, rtol=1e-6)


def test_quantized_conv2d_pads_with_what_stands_for_zero():
    op = lib.quantized_conv2d(1, 2, 3, 3, 2, 3, 3, padding=1, x_zero=9)
    x, w, s, z = arrays_for(op)
    real = lib.conv2d(1, 2, 3, 3, 2, 3, 3, padding=1)
    want = real.reference((x.astype("f8") - 9), (w.astype("f8") - z[:, None, None, None])) * s[:, None, None].astype("f8")
    np.testing.assert_allclose(op.reference(x, w, s, z), want, rtol=1e-12)


def test_int4_reference():
    op = lib.int4_matmul(3, 2, 12, group=4)
    a, b, s, z = arrays_for(op)
    z %= 16
    for i, j in np.ndindex(3, 2):
        weights = [(int(b[k // 2, j]) // 16 ** (k % 2) % 16 - int(z[k // 4, j])) * float(s[k // 4, j]) for k in range(12)]
        assert abs(op.reference(a, b, s, z)[i, j] - sum(float(x) * w for x, w in zip(a[i], weights, strict=True))) < 1e-9


def test_pool_reference():
    op = lib.pool2d(1, 2, 5, 6, "avg", 3, stride=2, padding=1)
    (x,) = arrays_for(op)
    want = np.zeros((1, 2, 3, 3))
    for n, c, i, j in np.ndindex(want.shape):
        h, w = i * 2 - 1, j * 2 - 1
        window = x[n, c, max(h, 0) : h + 3, max(w, 0) : w + 3].astype("f8")
        want[n, c, i, j] = window.mean()
    np.testing.assert_allclose(op.reference(x), want, rtol=1e-9)
    x[0, 0, 2, 3] = np.nan  # goes through, as in the kernel
    for mode in ("max", "avg"):
        got = lib.pool2d(1, 2, 5, 6, mode, 3, stride=2, padding=1).reference(x)
        np.testing.assert_array_equal(np.argwhere(np.isnan(got)), [[0, 0, 1, 1], [0, 0, 1, 2]])
    big = np.full((1, 1, 2, 2), (1 << 60) + 1)  # exact, as float64 is not
    assert lib.pool2d(1, 1, 2, 2, "max", 2, dtype="int64").reference(big)[0, 0, 0, 0] == (1 << 60) + 1


def test_attention_reference_one_row_at_a_time():
    op = lib.attention(2, 4, 5, 3, 6, causal=True, mask=True, kv_heads=2)
    q, k, v, mask = arrays_for(op)
    got = op.reference(q, k, v, mask)
    for b, h, i in np.ndindex(2, 4, 5):
        visible = [j for j in range(3) if j <= i + 3 - 5]
        if not visible:
            assert (got[b, h, i] == 0).all()
            continue
        scores = np.array([q[b, h, i].astype("f8") @ k[b, h // 2, j] / 6**0.5 + mask[b, 0, i, j] for j in visible])
        weights = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(got[b, h, i], weights @ v[b, h // 2, visible].astype("f8"), rtol=1e-6)


def test_normalisation_references():
    x = np.random.default_rng(1).standard_normal((4, 50)).astype("f")
    y = lib.layer_norm((4, 50)).reference(x)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-7)
    np.testing.assert_allclose(y.std(-1), 1, atol=1e-4)
    np.testing.assert_allclose((lib.rms_norm((4, 50)).reference(x) ** 2).mean(-1), 1, atol=1e-4)
    s = lib.softmax((4, 50)).reference(x)
    np.testing.assert_allclose(s.sum(-1), 1)
    np.testing.assert_allclose(np.log(s[:, 1] / s[:, 0]), x[:, 1].astype("f8") - x[:, 0], rtol=1e-6)
    np.testing.assert_allclose(lib.gelu((4, 50)).reference(x), [[te_gelu(float(v)) for v in row] for row in x], atol=2e-3)


def te_gelu(x):
    """The exact form, which the tanh form approximates to about 1e-3."""
    return x / 2 * (1 + erf(x / 2**0.5))


def test_softmax_of_large_values_does_not_overflow():
    op = lib.softmax((2, 3))
    x = np.array([[1e4, 1e4, -1e4], [-3e38, 0, 3e38]], "f")
    np.testing.assert_allclose(evaluate(op.output, {op.args[0]: x}), [[0.5, 0.5, 0], [0, 0, 1]])


def test_argmax_ties_and_nan():
    op = lib.argmax((5, 4))
    n = np.nan
    x = np.array([[1, 3, 3, 2], [n, 1, n, 2], [1, n, 5, n], [-np.inf] * 4, [0, -0.0, 0, 0]], "f")
    assert evaluate(op.output, {op.args[0]: x}).tolist() == x.argmax(-1).tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: lib.matmul(0, 4, 4), "M is 0: expected a positive int"),
        (lambda: lib.matmul(4, 4, 4.0), "K is 4.0"),
        (lambda: lib.matmul(4, 4, 4, dtype="float33"), "unknown dtype 'float33'"),
        (lambda: lib.conv2d(1, 4, 8, 8, 4, 3, 3, groups=3), r"groups=3 must divide the input channels \(4\)"),
        (lambda: lib.conv2d(1, 4, 2, 8, 4, 5, 3), "height: the kernel reaches over 5 element.s., but the padded input has 2"),
        (lambda: lib.conv2d(1, 4, 8, 8, 4, 3, 3, layout="CHWN"), "unknown layout 'CHWN', expected 'NCHW' or 'NHWC'"),
        (lambda: lib.conv2d(1, 4, 8, 8, 4, 3, 3, stride=(1, 0)), r"stride is \(1, 0\): expected an int or a pair of ints, at least 1"),
        (lambda: lib.conv2d(1, 4, 8, 8, 4, 3, 3, padding=-1), "padding is -1"),
        (lambda: lib.pool2d(1, 1, 8, 8, "min", 2), "unknown mode 'min'"),
        (lambda: lib.pool2d(1, 1, 8, 8, "max", 2, padding=2), "must be less than the window"),
        (lambda: lib.conv2d_transpose(1, 1, 2, 2, 1, 1, 1, padding=1), "padding .1, 1. leaves no output: it would be 0 by 0"),
        (lambda: lib.conv2d_winograd(1, 1, 8, 8, 1, m=3), "m is 3, expected 2 or 4"),
        (lambda: lib.conv2d_winograd(1, 1, 8, 8, 1, m=[2]), r"m is \[2\], expected 2 or 4"),
        (lambda: lib.matmul(4, 4), r"matmul: missing a required argument: 'K': it takes M, N, K, dtype, acc_dtype"),
        (lambda: lib.relu((4,), dtypes="int8"), "relu: got an unexpected keyword argument 'dtypes': it takes shape, dtype"),
        (lambda: lib.conv2d_winograd(1, 1, 8, 8, 1, dtype="int32"), "conv2d_winograd: dtype is int32, but its results are no integers: expected float16"),
        (lambda: lib.quantized_matmul(2, 2, 2, dtype="int16"), "quantized_matmul: dtype is int16: expected int8 or uint8"),
        (lambda: lib.quantized_matmul(2, 2, 2, weight_dtype="float32"), "weight_dtype is float32"),
        (lambda: lib.quantized_matmul(2, 2, 2, out_dtype="float8_e5m2"), "out_dtype is float8_e5m2: expected int8, uint8 or a float of at least 16 bits"),
        (lambda: lib.quantized_matmul(2, 2, 2, out_zero=3), "out_zero is 3, but the result is float32, which has no zero point"),
        (lambda: lib.quantized_matmul(2, 2, 2, a_zero=128), "a zero point is 128: expected an int that is a value of int8, from -128 to 127"),
        (lambda: lib.quantized_conv2d(1, 4, 8, 8, 4, 3, 3, x_zero=0.5), "quantized_conv2d: a zero point is 0.5"),
        (lambda: lib.quantized_conv2d(1, 4, 2, 8, 4, 5, 3), "quantized_conv2d, height: the kernel reaches over 5"),
        (lambda: lib.int4_matmul(4, 4, 12, group=3), "group is 3: expected an even divisor of K=12"),
        (lambda: lib.int4_matmul(4, 4, 12, group=8), "group is 8: expected an even divisor of K=12"),
        (lambda: lib.int4_matmul(4, 4, 12, group=4, dtype="int8"), "int4_matmul: dtype is int8: expected a float"),
        (lambda: lib.softmax(()), "at least 1 positive int"),
        (lambda: lib.transpose((4,)), "at least 2 positive int"),
        (lambda: lib.attention(1, 6, 4, 4, 8, kv_heads=4), "kv_heads=4 must divide the number of query heads H=6"),
        (lambda: lib.relu((3, -1)), r"shape\[1\] is -1"),
        (lambda: lib.matmul(2, 2, 2).reference(np.zeros((2, 2))), "takes 2 array.s., found 1"),
        (lambda: lib.conv1d(1, 2, 8, 3, 3, padding=(1, 1)), r"conv1d: padding is \(1, 1\): expected an int"),
        (lambda: lib.attention(1, 2, 4, 4, 4, causal="False"), "attention: causal is 'False': expected True or False"),
        (lambda: lib.matmul(2, 2, 2, acc_dtype="int32"), "acc_dtype is int32, but the operands are float32"),
    ],
)
def test_errors(declare, message):
    with pytest.raises(TEError, match=message):
        declare()


def test_a_batch_norm_folded_into_weights_is_one_convolution():
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((1, 3, 8, 8)).astype("f"), rng.standard_normal((5, 3, 3, 3)).astype("f")
    m, v, g, b = (rng.random(5).astype("f") + 0.5 for _ in range(4))
    X, W = te.placeholder(x.shape, name="X"), te.placeholder(w.shape, name="W")
    M, V, G, B = (te.placeholder((5,), name=name) for name in "MVGB")
    F, D = te.library.fold_batch_norm(W, M, V, G, B)
    c, r, q = te.reduce_axis((0, 3), "c"), te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "q")
    Y = te.compute((1, 5, 6, 6), lambda n, o, i, j: te.sum(X[n, c, i + r, j + q] * F[o, c, r, q], axis=[c, r, q]), name="Y")
    Z = te.compute(Y.shape, lambda n, o, i, j: Y[n, o, i, j] + D[o], name="Z")
    mod = tw.build(te.create_schedule(Z.op), [X, W, M, V, G, B, Z], target="c", constants={W: w, M: m, V: v, G: g, B: b})
    z = np.full(Z.shape, np.nan, "f")
    mod(x, z)
    y = te.library.conv2d(1, 3, 8, 8, 5, 3, 3).reference(x, w).astype("f")
    np.testing.assert_allclose(z, te.library.batch_norm(y.shape).reference(y, m, v, g, b), rtol=1e-4, atol=1e-4)
    with pytest.raises(TEError, match=r"fold_batch_norm: X has shape .*expected \(5,\)"):
        te.library.fold_batch_norm(W, X, V, G, B)
    with pytest.raises(TEError, match=r"fold_batch_norm: scalar has no dimension"):
        te.library.fold_batch_norm(te.placeholder((), name="scalar"), *[X] * 4)
    with pytest.raises(TEError, match="fold_batch_norm: None: expected a tensor"):
        te.library.fold_batch_norm(None, *[X] * 4)
