"""Virtual threads: golden text of a tile with two of them each way, values, and that common work is done once."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import lower_schedule
from tilewright.tir.errors import TargetError
from tilewright.tir.interp import interpret
from tilewright.tir.passes import StopAfter, Verify, pipeline_for

TARGET = tw.Target("cuda", arch="sm_80", device="emulator")


def matmul(m, n, k, double=False):
    """2 x 2 virtual threads of 2 x 2 threads, a column of A and a row of B in shared memory."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C.op)
    AS, BS = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    AL, BL = s.cache_read(AS, "local", [C]), s.cache_read(BS, "local", [C])
    CL = s.cache_write(C, "local")
    tx, ty = te.thread_axis((0, 2), "threadIdx.x"), te.thread_axis((0, 2), "threadIdx.y")
    i, j = s[C].op.axis
    io, jo, ii, ji = s[C].tile(i, j, 8, 8)
    vy, ii = s[C].split(ii, nparts=2)
    vx, ji = s[C].split(ji, nparts=2)
    iy, ix = s[C].split(ii, nparts=2)
    jy, jx = s[C].split(ji, nparts=2)
    s[C].reorder(io, jo, vy, vx, iy, jy, ix, jx)
    for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (vy, "vthread.y"), (vx, "vthread.x")):
        s[C].bind(axis, te.thread_axis(tag))
    s[C].bind(iy, ty)
    s[C].bind(jy, tx)
    s[CL].compute_at(s[C], jy)
    (rr,) = s[CL].op.reduce_axis
    s[CL].reorder(rr, *s[CL].op.axis)
    for S, L in ((AS, AL), (BS, BL)):
        s[S].compute_at(s[CL], rr)
        s[L].compute_at(s[CL], rr)
        f = s[S].fuse(*s[S].op.axis)
        f, t = s[S].split(f, factor=2)
        s[S].bind(t, tx)
        if double:
            s[S].double_buffer()
    return s, [A, B, C]


def lowered(s, args, *instruments):
    return pipeline_for("cuda").run(lower_schedule(s, args, "k"), TARGET, [Verify(2), *instruments])


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("shape", [(8, 16, 3), (11, 9, 5)])
def test_values(shape, double):
    m, n, k = shape
    func = lowered(*matmul(*shape, double))
    rng = np.random.default_rng(5)
    a, b, c = rng.standard_normal((m, k)).astype("f"), rng.standard_normal((k, n)).astype("f"), np.full((m, n), np.nan, "f")
    interpret(func, [a, b, c], threads="barriers", seed=2)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)
    if shape == (8, 16, 3):  # else each piece of the kernel has its own
        assert str(func).count("sync block") == 2 - double


def test_golden(golden):
    text = str(lowered(*matmul(8, 8, 4), StopAfter("barriers")))
    assert text.count("produce A.shared:") == 1  # for all virtual threads
    golden("virtual_threads.txt", text + "\n")


def test_a_sum_over_virtual_threads_counts_each():
    A = te.placeholder((4, 6), name="A")
    r = te.reduce_axis((0, 6), name="r")
    C = te.compute((4,), lambda i: te.sum(A[i, 0], axis=r), name="C")  # the same value six times
    s = te.create_schedule(C.op)
    s[C].bind(s[C].op.axis[0], te.thread_axis("threadIdx.x"))
    s[C].bind(s[C].op.reduce_axis[0], te.thread_axis("vthread"))
    func = lowered(s, [A, C])
    a, c = np.arange(24, dtype="f").reshape(4, 6), np.zeros(4, "f")
    interpret(func, [a, c], threads="barriers")
    np.testing.assert_array_equal(c, 6 * a[:, 0])


def test_their_number_is_constant():
    n = te.size_var("n")
    A = te.placeholder((4, n), name="A")
    C = te.compute((4, n), lambda i, j: A[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    s[C].bind(s[C].op.axis[0], te.thread_axis("threadIdx.x"))
    s[C].bind(s[C].op.axis[1], te.thread_axis("vthread"))
    with pytest.raises(TargetError, match=r"over vthread runs n times.*constant"):
        lowered(s, [A, C])


@pytest.mark.parametrize("scope", ["warp", "shared.dyn"])
def test_a_row_of_threads_turned_round(scope):
    """By way of memory of the row, or of the block."""
    A = te.placeholder((8, 32), name="A")
    B = te.compute((8, 32), lambda i, j: A[i, 31 - j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    W = s.cache_read(A, scope, [B])
    i, j = s[B].op.axis
    io, ii = s[B].split(i, 3)
    for axis, tag in ((io, "blockIdx.x"), (ii, "threadIdx.y"), (j, "threadIdx.x")):
        s[B].bind(axis, te.thread_axis(tag))
    s[W].compute_at(s[B], j)
    s[W].bind(s[W].op.axis[1], te.thread_axis("threadIdx.x"))
    func = lowered(s, [A, B])
    assert "float32[96] in shared" in str(func)
    a, b = np.random.default_rng(6).standard_normal((8, 32)).astype("f"), np.zeros((8, 32), "f")
    interpret(func, [a, b], threads="barriers", seed=3)
    np.testing.assert_array_equal(b, a[:, ::-1] + 1)


def test_two_loops_of_a_stage_may_be_virtual_threads_without_further_names():
    A = te.placeholder((12, 32), name="A")
    B = te.compute((12, 32), lambda i, j: A[11 - i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    i, j = s[B].op.axis
    vi, ii = s[B].split(i, nparts=2)
    vj, jj = s[B].split(j, nparts=2)
    s[B].reorder(vi, vj, ii, jj)
    for axis, tag in ((vi, "vthread"), (vj, "vthread"), (ii, "threadIdx.y"), (jj, "threadIdx.x")):
        s[B].bind(axis, te.thread_axis(tag))
    rows = s.cache_read(A, "shared", [B])
    s[rows].compute_at(s[B], vj)
    s[rows].bind(s[rows].op.axis[1], te.thread_axis("threadIdx.x"))
    func = lowered(s, [A, B])
    a, b = np.random.default_rng(7).standard_normal((12, 32)).astype("f"), np.zeros((12, 32), "f")
    interpret(func, [a, b], threads="barriers", seed=3)
    np.testing.assert_array_equal(b, a[::-1] + 1)
