"""Kernels that were once wrong, through the public API."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te


def test_arms_of_a_choice_that_read_memory():
    """A condition that is the same for all lanes, and arms of which one is computed from a vector in memory."""
    U, z = te.placeholder((3, 2), name="U"), te.placeholder((3,), name="z")
    O = te.compute((3, 2), lambda i, e: te.select(z[i] == 0.0, 0.0, U[i, e] / z[i]), name="O")
    s = te.create_schedule(O.op)
    s[O].vectorize(O.op.axis[1])
    u, d, o = np.arange(6, dtype="f").reshape(3, 2), np.array([2, 0, 4], "f"), np.full((3, 2), np.nan, "f")
    tw.build(s, [U, z, O], target="c")(u, d, o)
    np.testing.assert_array_equal(o, [[0, 0.5], [0, 0], [1, 1.25]])


def test_a_condition_that_reads_is_guarded_where_a_reduction_is_factored():
    """The last part of the factored axis goes past its end, where the condition must not be looked at."""
    A, B = te.placeholder((9,), name="A"), te.placeholder((9,), dtype="int32", name="B")
    k = te.reduce_axis((0, 9), "k")
    S = te.compute((), lambda: te.sum(A[k], axis=k, where=A[B[k]] > 0.0), name="S")
    s = te.create_schedule(S.op)
    _, inner = s[S].split(k, factor=4)
    s.rfactor(S, inner)
    a, b, out = np.arange(-4, 5, dtype="f"), np.arange(9, dtype="int32")[::-1].copy(), np.zeros((), "f")
    tw.build(s, [A, B, S], target="c")(a, b, out)
    assert out == a[a[b] > 0].sum()


def test_symbolic_sizes_in_every_loop_kind():
    n = te.size_var("n")
    A = te.placeholder((n, 6), name="A")
    B = te.compute((n, 6), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, n), lambda j, i: B[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[1], nparts=4)
    s[C].parallel(outer)
    s[C].reorder(outer, inner, C.op.axis[0])
    s[B].compute_at(s[C], inner)
    mod = tw.build(s, [A, C], target=tw.Target("c", threads=2))
    for size in (0, 1, 3, 8, 21):
        a = np.random.default_rng(size).standard_normal((size, 6)).astype("f")
        c = np.full((6, size), np.nan, "f")
        mod(a, c)
        np.testing.assert_array_equal(c, a.T * 2 + 1)


def test_a_tile_unrolled_around_a_symbolic_loop():
    """Each copy has a loop over k, whose variable is wide, of its own."""
    n = te.size_var("n")
    A, B = te.placeholder((4, n), name="A"), te.placeholder((n, 8), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((4, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    L = s.cache_write(C, "local")
    s[L].reorder(L.op.axis[0], L.op.reduce_axis[0], L.op.axis[1])
    s[L].unroll(L.op.axis[0])
    s[L].vectorize(L.op.axis[1])
    mod = tw.build(s, [A, B, C], target="c")
    for size in (0, 5):
        a, b, c = np.ones((4, size), "f"), np.arange(size * 8, dtype="f").reshape(size, 8), np.full((4, 8), np.nan, "f")
        mod(a, b, c)
        np.testing.assert_array_equal(c, a @ b)


def test_a_divisor_that_becomes_zero_where_it_is_not_used():
    """Unrolling makes a constant of i, and so does a loop of one iteration; nobody wrote a division by zero."""
    A = te.placeholder((4,), name="A")
    T = te.compute((4,), lambda i: te.if_then_else(i == 0, 7.0, A[i] / i.astype("float32") + ((i + 9) // i + (i + 9) % i).astype("float32")), name="T")
    O = te.compute((4,), lambda i: T[i], name="O")
    s = te.create_schedule(O.op)
    s[T].set_scope("local")
    s[T].unroll(T.op.axis[0])
    s[O].unroll(O.op.axis[0])
    a, o = np.arange(4, dtype="f"), np.full(4, np.nan, "f")
    tw.build(s, [A, O], target="c")(a, o)
    np.testing.assert_array_equal(o, [7, 1 + 10, 1 + 5 + 1, 1 + 4])
    Q = te.compute((1,), lambda i: te.select(i > 0, (i + 9) // i, -1), name="Q")
    D = te.compute((1,), lambda i: A[i] / i.astype("float32"), name="D")
    s = te.create_schedule([Q.op, D.op])
    q, d = np.zeros(1, "int32"), np.zeros(1, "f")
    tw.build(s, [A, Q, D], target="c")(a + 1, q, d)
    assert q[0] == -1 and d[0] == np.inf


def test_index_arithmetic_that_is_cast_wraps_in_the_dtype_asked_for():
    def low(i):
        return i.astype("uint32") - te.const(5, "uint32")

    def high(i):
        return (i.astype("int64") * (1 << 30)).astype("int32")

    shape = (8,)
    ops = [
        te.compute(shape, lambda i: te.select(low(i) < te.const(10, "uint32"), 1, 0), name="X"),
        te.compute(shape, lambda i: low(i) // te.const(3, "uint32"), name="Y"),
        te.compute(shape, lambda i: high(i) // 7, name="Z"),
        te.compute((8, 70000), lambda i, j: i * 70000 * j, name="W"),
    ]
    found = [np.zeros([int(e) for e in t.shape], t.dtype) for t in ops]
    tw.build(te.create_schedule([t.op for t in ops]), ops, target="c")(*found)
    i = np.arange(8)
    below = i.astype("uint32") - np.uint32(5)
    product = (i[:, None] * 70000 * np.arange(70000)).astype("int32")
    for got, want in zip(found, (below < 10, below // np.uint32(3), (i * (1 << 30)).astype("int32") // 7, product), strict=True):
        np.testing.assert_array_equal(got, want)


def test_arrays_on_the_stack_of_different_scopes():
    """gcc 12 at -O1 moved the address of one array into the life of another that shared its bytes; -fstack-reuse=none keeps them apart."""
    A = te.placeholder((64, 13), dtype="int64", name="A")
    k = te.reduce_axis((1, 34), "k")
    value = lambda i, j: te.rsqrt(te.abs(te.maximum(te.minimum((A[i, j] << 4).astype("float32"), 100000.0), -100000.0)) + 1.0)  # noqa: E731
    T = te.compute((33, 8), lambda i, j: te.min(value(i, j), axis=k), name="T")
    s = te.create_schedule(T.op)
    L = s.cache_write(T, "local")
    i, j = s[T].op.axis
    j_outer, j_inner = s[T].split(j, factor=4)
    fused_outer, fused_inner = s[T].split(s[T].fuse(j_outer, j_inner), factor=4)
    s[T].reorder(fused_inner, fused_outer, i)
    at, _ = s[T].split(fused_inner, factor=1)
    F = s.rfactor(L, s[L].op.reduce_axis[0])
    factored, rows, columns = s[F].op.axis
    s[F].reorder(rows, factored, columns)
    s[F].reorder(s[F].fuse(factored, columns), rows)
    rows, columns = s[L].op.axis
    s[L].reorder(s[L].op.reduce_axis[0], rows, columns)
    outer, _ = s[L].split(columns, nparts=4)
    s[L].compute_at(s[T], at)
    s[F].compute_at(s[L], outer)
    s[F].set_scope("local")
    s[T].unroll(at)
    a, out = np.random.default_rng(0).integers(-3, 5, (64, 13)), np.full((33, 8), np.nan, "f")
    tw.build(s, [A, T], target=tw.Target("c", opt="-O1", threads=1))(a, out)
    np.testing.assert_allclose(out, 1 / np.sqrt(np.abs(a[:33, :8] * 16.0) + 1), rtol=1e-6)


def test_lanes_that_were_never_written_are_kept():
    """A masked store to a register keeps old lanes; gcc took an uninitialised variable for leave to change the others too."""
    A = te.placeholder((13, 20), dtype="int32", name="A")
    k = te.reduce_axis((0, 20), "k")
    S = te.compute((7,), lambda i: te.sum(A[i % 2, k], axis=k), name="S")
    s = te.create_schedule(S.op)
    AL = s.cache_read(A, "local", [S])
    _, inner = s[S].split(S.op.axis[0], factor=2)
    s[AL].compute_at(s[S], k)
    s[S].vectorize(inner)
    a, out = np.random.default_rng(0).integers(-9, 9, (13, 20)).astype("int32"), np.zeros(7, "int32")
    tw.build(s, [A, S], target="c")(a, out)
    np.testing.assert_array_equal(out, [a[i % 2].sum() for i in range(7)])


def test_a_bool_of_bits_is_their_disjunction():
    """`a | b != 0` is `a | (b != 0)` in C (found by random programs)."""
    A, B = te.placeholder((9,), "int32", name="A"), te.placeholder((9,), "int32", name="B")
    C = te.compute((9,), lambda i: (A[i] | B[i]).astype("bool").astype("float32"), name="C")
    a, b = np.array([0, 2, 0, 6, 1, 0, 8, -1, 4], "int32"), np.array([0, 0, 4, 1, 0, 0, 8, 0, -2], "int32")
    got = np.full(9, np.nan, "f")
    tw.build(te.create_schedule(C.op), [A, B, C])(a, b, got)
    np.testing.assert_array_equal(got, ((a | b) != 0).astype("f"))


@pytest.mark.parametrize(("dtype", "first", "second"), [("uint32", 0, 1), ("int8", -100, 100), ("uint8", 3, 5), ("int32", -(2**31) + 1, 5)])
def test_constants_that_conditions_leave_wrap_in_their_dtype(dtype, first, second):
    """A difference of data whose operands turn out to be constants (found by random programs)."""
    A = te.placeholder((4,), dtype, name="A")
    C = te.compute(
        (4,), lambda i: (te.if_then_else(i < 2, A[i], te.const(first, dtype)) - te.if_then_else(i < 1, A[i], te.const(second, dtype))).astype("int64"), name="C"
    )
    s = te.create_schedule(C.op)
    s[C].unroll(C.op.axis[0])
    a = np.array([7, 9, 1, 2], dtype)
    got = np.zeros(4, "int64")
    tw.build(s, [A, C])(a, got)
    with np.errstate(over="ignore"):
        want = np.where(np.arange(4) < 2, a, np.array(first, dtype)).astype(dtype) - np.where(np.arange(4) < 1, a, np.array(second, dtype)).astype(dtype)
    np.testing.assert_array_equal(got, want.astype("int64"))
    vectors = te.create_schedule(C.op)
    vectors[C].vectorize(C.op.axis[0])
    tw.build(vectors, [A, C])(a, got)
    np.testing.assert_array_equal(got, want.astype("int64"))
