"""What declarations mean: evaluated directly, and compared with NumPy."""

import gc
import math
import weakref

import numpy as np
import pytest
from evaluate import evaluate

from tilewright import te
from tilewright.te.graph import consumers, operations
from tilewright.tir.expr import Call
from tilewright.tir.visit import walk

rng = np.random.default_rng(0)
A = te.placeholder((6, 9), name="A")
a = rng.standard_normal((6, 9)).astype("f")


def value(shape, f, inputs=None, **options):
    return evaluate(te.compute(shape, f, **options), inputs or {A: a})


def test_axes_are_named_after_the_parameters():
    op = te.compute((2, 3, 4), lambda x, *rest: A[x, rest[0]], name="T", tag="t", attrs={"key": 1}).op
    assert [i.name for i in op.axis] == ["x", "rest0", "rest1"]
    assert [i.dom.extent for i in op.axis] == [2, 3, 4]
    assert (op.name, op.tag, op.attrs) == ("T", "t", {"key": 1})
    assert all(i.kind == "spatial" and i.var.bounds == (0, i.dom.extent - 1) for i in op.axis)
    assert str(op) == "T[x in [0, 2), rest0 in [0, 3), rest1 in [0, 4)] = A[x, rest0]"


def test_elements():
    assert A[1, 2] is A(1, 2)
    np.testing.assert_array_equal(value((9, 6), lambda i, j: A[j, i] * 2.0), a.T * 2)
    np.testing.assert_array_equal(value((6, 9), A), a)


def test_rank_0():
    s = te.compute((), lambda: A[1, 2] + 1.0, name="s")
    assert s.shape == () and s.ndim == 0
    np.testing.assert_array_equal(evaluate(te.compute((3,), lambda i: s * i), {A: a}), (a[1, 2] + np.float32(1)) * np.arange(3, dtype="f"))
    np.testing.assert_array_equal(evaluate(te.compute((), lambda: s() + s[()]), {A: a}), 2 * (a[1, 2] + np.float32(1)))


def test_several_outputs():
    x, y = te.compute((6,), lambda i: (A[i, 0], i * 2), name="T")
    assert (x.name, y.name, x.dtype, y.dtype, x.op is y.op, y.value_index) == ("T.v0", "T.v1", "float32", "int32", True, 1)
    got = evaluate([x, y], {A: a})
    np.testing.assert_array_equal(got[0], a[:, 0])
    np.testing.assert_array_equal(got[1], np.arange(6) * 2)
    (only,) = te.compute((6,), lambda i: (A[i, 0],))
    assert only.shape == (6,)


@pytest.mark.parametrize(
    ("reduce", "want"),
    [
        (te.sum, lambda x: x.astype("f8").sum(1)),
        (te.prod, lambda x: x.astype("f8").prod(1)),
        (te.max, lambda x: x.max(1)),
        (te.min, lambda x: x.min(1)),
        (lambda x, axis: te.any(x > 1, axis=axis), lambda x: (x > 1).any(1)),
        (lambda x, axis: te.all(x > -1, axis=axis), lambda x: (x > -1).all(1)),
    ],
)
def test_reductions(reduce, want):
    k = te.reduce_axis((0, 9), "k")
    np.testing.assert_allclose(value((6,), lambda i: reduce(A[i, k], axis=k)), want(a), rtol=1e-6)


def test_reduction_over_several_axes_and_part_of_a_range():
    i, k = te.reduce_axis((1, 5), "i"), te.reduce_axis((2, 9), "k")
    np.testing.assert_allclose(value((), lambda: te.sum(A[i, k], axis=[i, k])), a[1:5, 2:9].sum(), rtol=1e-5)
    np.testing.assert_allclose(value((), lambda: te.max(A[i, k], [i, k])), a[1:5, 2:9].max())


def test_where_and_init():
    k = te.reduce_axis((0, 9), "k")
    got = value((6,), lambda i: te.sum(A[i, k], axis=k, where=k <= i, init=A[i, 0]))
    np.testing.assert_allclose(got, [a[i, 0] + a[i, : i + 1].sum() for i in range(6)], rtol=1e-5)
    got = value((12,), lambda i: te.sum(A[i, k], axis=k, where=i < 6))  # nothing is read where the condition does not hold
    np.testing.assert_allclose(got, np.concatenate([a.sum(1), np.zeros(6)]), rtol=1e-5)


def test_reduction_over_nothing_gives_the_identity():
    k = te.reduce_axis((0, 0), "k")
    assert value((2,), lambda i: te.sum(A[i, k], axis=k)).tolist() == [0, 0]
    assert value((2,), lambda i: te.max(A[i, k], axis=k)).tolist() == [-np.inf] * 2
    assert value((2,), lambda i: te.min(A[i, k], axis=k)).tolist() == [np.inf] * 2
    assert value((2,), lambda i: te.min(k, axis=k)).tolist() == [2**31 - 1] * 2


def test_tuple_reducers():
    k = te.reduce_axis((0, 9), "k")
    welford = te.comm_reducer(
        lambda x, y: (
            x[0] + y[0],
            te.select(x[0] + y[0] > 0, (x[1] * x[0] + y[1] * y[0]) / te.max(x[0] + y[0], 1.0), 0.0),
            x[2] + y[2] + te.select(x[0] + y[0] > 0, (x[1] - y[1]) * (x[1] - y[1]) * x[0] * y[0] / te.max(x[0] + y[0], 1.0), 0.0),
        ),
        lambda *t: tuple(te.const(0, d) for d in t),
        name="welford",
    )
    count, mean, spread = te.compute((6,), lambda i: welford((te.const(1.0, "float32"), A[i, k], te.const(0.0, "float32")), axis=k), name="W")
    got = evaluate([count, mean, spread], {A: a})
    assert got[0].tolist() == [9] * 6
    np.testing.assert_allclose(got[1], a.mean(1), rtol=1e-5)
    np.testing.assert_allclose(got[2], a.var(1) * 9, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
@pytest.mark.parametrize("which", ["argmax", "argmin"])
def test_arg_reductions(which, dtype):
    x = rng.integers(-3, 4, (50, 7)).astype(dtype)
    if dtype == "float32":
        x[rng.random(x.shape) < 0.1] = np.nan
        x[0], x[1] = np.inf, -np.inf
    X = te.placeholder(x.shape, dtype, "X")
    k = te.reduce_axis((0, 7), "k")
    index, best = te.compute((50,), lambda i: getattr(te, which)((k, X[i, k]), axis=k))
    got_index, got_best = evaluate([index, best], {X: x})
    want = getattr(x, which)(1)
    np.testing.assert_array_equal(got_index, want)
    np.testing.assert_array_equal(got_best, x[np.arange(50), want])
    # combined in any grouping and order, the same pair wins
    reducer = index.op.reducer
    pairs = [(te.const(int(i), "int32"), te.const(x[3, i].item(), dtype)) for i in rng.permutation(7)]
    tree = reducer.combine(reducer.combine(*pairs[:2]), reducer.combine(reducer.combine(*pairs[2:4]), reducer.combine(pairs[4], pairs[5])))
    assert evaluate(te.compute((), lambda: reducer.combine(tree, pairs[6])[0]), {}) == want[3]


def test_elementwise_extrema_and_conditions():
    i = te.compute((6,), lambda i: 0).op.axis[0]
    x, y = A[i, 0], A[i, 1]
    assert te.max(x, y) is te.maximum(x, y)
    assert te.min(x, y, 0.0) is te.minimum(te.minimum(x, y), 0.0)
    assert str(te.all(i < 2, i > 0, x > 1.0)) == "i < 2 and 0 < i and 1.0 < A[i, 0]"
    assert str(te.any(i < 2, i > 4)) == "i < 2 or 4 < i"
    assert te.all(i < 2) is (i < 2)


MATH = {
    "exp": np.exp, "exp2": np.exp2, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
    "round": np.round, "trunc": np.trunc, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


@pytest.mark.parametrize("name", MATH)
def test_functions(name):
    np.testing.assert_allclose(value((6, 9), lambda i, j: getattr(te, name)(A[i, j] * 4.0)), MATH[name](a * 4), rtol=2e-5)


def test_functions_of_positive_numbers():
    x = np.abs(a) + np.float32(0.1)
    for name, f in {"log": np.log, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda v: 1 / np.sqrt(v)}.items():
        np.testing.assert_allclose(value((6, 9), lambda i, j, name=name: getattr(te, name)(A[i, j]), {A: x}), f(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value((6, 9), lambda i, j: A[i, j] ** 1.5, {A: x}), x**1.5, rtol=1e-5)
    np.testing.assert_allclose(value((6, 9), lambda i, j: te.clip(A[i, j], 0.3, 1)), np.clip(a, 0.3, 1))
    np.testing.assert_allclose(value((6, 9), lambda i, j: te.fma(A[i, j], 2.0, 1)), a * 2 + 1, rtol=1e-6)
    np.testing.assert_allclose(value((6, 9), lambda i, j: te.erf(A[i, j])), [[math.erf(v) for v in row] for row in a], rtol=1e-5)


def test_nan_propagates_through_extrema():
    x = a.copy()
    x[2, 3] = np.nan
    assert np.isnan(value((6, 9), lambda i, j: te.max(A[i, j], 0.0), {A: x})[2, 3])
    assert np.isnan(value((6, 9), lambda i, j: te.clip(A[i, j], -1, 1), {A: x})[2, 3])
    k = te.reduce_axis((0, 9), "k")
    assert np.isnan(value((6,), lambda i: te.min(A[i, k], axis=k), {A: x})).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_integers_wrap_like_numpy(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = rng.integers(low, high, (2, 50), dtype=dtype, endpoint=True)
    x[:, 0] = low
    X = te.placeholder((2, 50), dtype, "X")
    y = np.where(x[1] == 0, np.ones((), dtype), x[1])

    def divisor(i):
        return te.select(X[1, i] == 0, te.const(1, dtype), X[1, i])

    with np.errstate(all="ignore"):
        cases = [
            (lambda i: X[0, i] + X[1, i], x[0] + x[1]),
            (lambda i: X[0, i] * X[1, i], x[0] * x[1]),
            (lambda i: X[0, i] - X[1, i], x[0] - x[1]),
            (lambda i: X[0, i] * 3 + 1, x[0] * np.array(3, dtype) + np.array(1, dtype)),
            (lambda i: te.abs(X[0, i]), np.abs(x[0])),
            (lambda i: X[0, i] & X[1, i], x[0] & x[1]),
            (lambda i: X[0, i] ^ X[1, i], x[0] ^ x[1]),
            (lambda i: ~X[0, i] | X[1, i], ~x[0] | x[1]),
            (lambda i: te.popcount(X[0, i]), [bin(int(v) & ((1 << 8 * x.itemsize) - 1)).count("1") for v in x[0]]),
            (lambda i: X[0, i] >> 3, x[0] >> 3),
            (lambda i: X[0, i] // divisor(i), x[0] // y),
            (lambda i: X[0, i] % divisor(i), x[0] % y),
        ]
    for number, (f, want) in enumerate(cases):
        got = value((50,), f, {X: x})
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want, err_msg=f"case {number} of {dtype}")


def test_casts():
    x = np.array([-2.7, -0.5, 0.5, 2.7, 100.25, 0], "f")
    X = te.placeholder((6,), name="X")
    assert value((6,), lambda i: X[i].astype("int32"), {X: x}).tolist() == [-2, 0, 0, 2, 100, 0]
    assert value((6,), lambda i: te.cast(X[i], "bool"), {X: x}).tolist() == [True] * 5 + [False]
    assert value((6,), lambda i: te.reinterpret(X[i], "int32"), {X: x}).tolist() == x.view("int32").tolist()
    assert value((300,), lambda i: i.astype("int8"), {}).tolist() == np.arange(300).astype("int8").tolist()


def test_numbers_are_weak_and_dtypes_are_promoted():
    H, I = te.placeholder((4,), "float16", "H"), te.placeholder((4,), "int64", "I")
    i = te.compute((4,), lambda i: H[i]).op.axis[0]
    assert (H[i] * 2.0).dtype == "float16" and (H[i] + A[0, 0]).dtype == "float32" and (I[i] * H[i]).dtype == "float16"
    assert (i + I[i]).dtype == "int64" and (i * 2.5).dtype == "float32" and te.exp(i.as_expr()).dtype == "float32"
    assert te.const(1, H[i]).dtype == "float16" and te.max_value("int8").value == 127 and te.min_value("float32").value == -np.finfo("f").max
    assert te.if_then_else(i < 2, 1, H[i]).dtype == "float16" and te.select(i < 2, 0, 1.0).dtype == "float32"


def test_if_then_else_guards_a_read():
    got = value((6, 13), lambda i, j: te.if_then_else(te.all(j >= 2, j < 11), A[i, j - 2], -1.0))
    np.testing.assert_array_equal(got, np.pad(a, ((0, 0), (2, 2)), constant_values=-1))


def test_gather():
    I = te.placeholder((5,), "int32", "I")
    index = np.array([5, 0, 3, 3, 1], "int32")
    np.testing.assert_array_equal(value((5, 9), lambda i, j: A[I[i], j], {A: a, I: index}), a[index])


def wraps(tensor):
    return [str(e) for e in walk(tensor.op.body[0]) if isinstance(e, Call) and e.name == "wrap"]


def test_index_arithmetic_as_a_value_wraps_where_it_may_not_fit():
    n = 1 << 17
    assert wraps(te.compute((n, n), lambda i, j: i * j)) == ["wrap(i * j)"]
    assert wraps(te.compute((n, n), lambda i, j: (i * j).astype("float32"))) == ["wrap(i * j)"]
    assert wraps(te.compute((n, n), lambda i, j: te.if_then_else(i * j < 7, A[0, 0], 0.0))) == []  # a condition on indices is exact
    assert wraps(te.compute((n, n), lambda i, j: i + j)) == []
    assert wraps(te.compute((n, n), lambda i, j: (i.astype("int64") * j).astype("int32") // 3)) == ["wrap(int64(i) * int64(j))"]
    assert wraps(te.compute((n, n), lambda i, j: i.astype("int64").astype("int32") // 3)) == []
    X = te.placeholder((n, n), "int32", "X")
    assert wraps(te.compute((n, n), lambda i, j: te.select(X[i, j] < i * j, 1, 0))) == ["wrap(i * j)"]
    Y = te.placeholder((n * n,), "int8", "Y")
    assert wraps(te.compute((n, n), lambda i, j: Y[i * n + j])) == []  # and so is an index
    assert str(te.compute((), lambda: te.const(1 << 31, "int32") + 1).op.body[0]) == str(-(1 << 31) + 1)
    got = evaluate(te.compute((3,), lambda i: (i + 65536) * (i + 65536)), {})
    assert got.tolist() == (np.arange(65536, 65539, dtype="int64") ** 2).astype("int32").tolist()


def test_long_axes_are_int64():
    wide = te.compute((1 << 32,), lambda i: i)
    assert wide.dtype == "int64" and te.compute(((1 << 31),), lambda i: i).dtype == "int32"


def test_symbolic_sizes():
    n = te.size_var("n")
    X = te.placeholder((n, 4), name="X")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((4,), lambda j: te.sum(X[k, j], axis=k), name="total")
    Y = te.compute((4,), lambda j: total[j] / te.max(n, 1).astype("float32"), name="Y")
    Z = te.compute((n + 1,), lambda i: te.if_then_else(i < n, X[i, 0], 0.0), name="Z")
    assert X.shape[0] is n and str(Z.shape[0]) == "n + 1" and n.bounds == (0, None)
    x = rng.standard_normal((7, 4)).astype("f")
    np.testing.assert_allclose(evaluate(Y, {X: x}, {n: 7}), x.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(evaluate(Z, {X: x}, {n: 7}), [*x[:, 0], 0])


def test_thread_axes():
    assert te.thread_axis("threadIdx.x").dom is None
    for made in (te.thread_axis(32, "threadIdx.x"), te.thread_axis((0, 32), "threadIdx.x")):
        assert (made.dom.extent, made.kind, made.thread_tag, made.name) == (32, "thread", "threadIdx.x", "threadIdx.x")


def test_graph():
    B = te.compute((6, 9), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((6, 9), lambda i, j: B[i, j] * A[i, j], name="C")
    D = te.compute((6, 9), lambda i, j: C[i, j] - B[i, j], name="D")
    order = operations([D])
    assert [op.name for op in order] == ["A", "B", "C", "D"]
    readers = consumers(order)
    assert {t.name: [op.name for op in ops] for t, ops in readers.items()} == {"A": ["B", "C"], "B": ["C", "D"], "C": ["D"], "D": []}
    assert D.op.input_tensors == (C, B)
    t = A
    for _ in range(5000):
        t = te.compute((6, 9), lambda i, j, t=t: t[i, j] + 1.0)
    assert len(operations([t])) == 5001


def test_a_dropped_computation_is_freed():
    X = te.placeholder((4,), name="X")
    Y = te.compute((4,), lambda i: X[i] + 1.0)
    left = weakref.ref(Y.op), weakref.ref(X)
    X = Y = None
    gc.collect()
    assert [r() for r in left] == [None, None]


def test_numbers_of_numpy_on_either_side():
    A, I = te.placeholder((4,), name="A"), te.placeholder((4,), "int32", name="I")
    f, n = np.float32(3), np.int32(3)
    for left, right in [
        (f + A[0], 3.0 + A[0]), (f - A[0], 3.0 - A[0]), (f * A[0], 3.0 * A[0]), (f / A[0], 3.0 / A[0]), (f**A[0], 3.0 ** A[0]), (A[0] - f, A[0] - 3.0),
        (n // I[0], 3 // I[0]), (n % I[0], 3 % I[0]), (n < I[0], I[0] > 3), (n <= I[0], I[0] >= 3), (n > I[0], I[0] < 3), (n >= I[0], I[0] <= 3),
        (n == I[0], I[0] == 3), (n != I[0], I[0] != 3), (n & I[0], 3 & I[0]), (n | I[0], 3 | I[0]), (n ^ I[0], 3 ^ I[0]), (n << I[0], 3 << I[0]),
        (n >> I[0], 3 >> I[0]),
    ]:  # fmt: skip
        assert left is right
