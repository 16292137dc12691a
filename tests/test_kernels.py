"""Kernels that were once wrong, through the public API."""

import numpy as np

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
