"""Loops over one index inside one another: right where the inner ones are the same for all iterations of the outer one, refused elsewhere."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule

EMULATOR = tw.Target("cuda", device="emulator", threads=1)


def thread(tag):
    return te.thread_axis(tag)


def sums_of_rows(scope, at, tag, part):
    """C[i, j] = j + the sum of row i, which the threads along `tag` add up together, computed at a loop of C: 0 over blocks, 1 over threadIdx.y, 2 over
    threadIdx.x."""
    A = te.placeholder((8, 64), "int32", name="A")
    k = te.reduce_axis((0, 64), "k")
    B = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((8, 32), lambda i, j: B[i] + j, name="C")
    s = create_schedule(C.op)
    i, j = C.op.axis
    block, row = s[C].split(i, factor=4)
    loops = (block, row, j)
    for axis, index in zip(loops, ("blockIdx.x", "threadIdx.y", "threadIdx.x"), strict=True):
        s[C].bind(axis, thread(index))
    s[B].set_scope(scope)
    s[B].compute_at(s[C], loops[at])
    _, inner = s[B].split(k, factor=part)
    s[B].bind(inner, thread(tag))
    return s, [A, C]


@pytest.mark.parametrize("scope", ["local", "shared", "warp"])
@pytest.mark.parametrize(
    ("at", "tag", "part"), [(1, "threadIdx.x", 32), (2, "threadIdx.x", 32), (1, "threadIdx.y", 4), (2, "threadIdx.y", 4), (1, "threadIdx.y", 16)]
)
def test_sums_across_threads_inside_their_own_index(scope, at, tag, part):
    """All threads along x want the sum of the same row; those along y each another, so that they cannot add it up together."""
    s, args = sums_of_rows(scope, at, tag, part)
    if tag == "threadIdx.y" and scope != "shared":  # shared memory has all rows
        with pytest.raises(tw.ScheduleError, match=r"stage B: its loop k.inner is bound to threadIdx.y .*i.inner.* differs between the iterations of i.inner"):
            tw.build(s, args, EMULATOR)
        return
    module = tw.build(s, args, EMULATOR, check="race")
    a, c = np.random.default_rng(0).integers(-9, 9, (8, 64)).astype("int32"), np.empty((8, 32), "int32")
    module(a, c)
    np.testing.assert_array_equal(c, a.sum(1)[:, None] + np.arange(32))
    assert module.report.faults == []


def test_memory_of_a_thread_that_differs():
    """B adds up what L has for one j, but the threads that do it have another one."""
    A, D = te.placeholder((32, 32), "int32", name="A"), te.placeholder((64,), "int32", name="D")
    L = te.compute((32, 32), lambda i, j: A[i, j] + 1, name="L")
    k = te.reduce_axis((0, 64), "k")
    B = te.compute((32, 32), lambda i, j: te.sum(D[k] * L[i, j], axis=k), name="B")
    C = te.compute((32, 32), lambda i, j: B[i, j] * 2, name="C")
    for same in (False, True):
        s = create_schedule(C.op)
        i, j = C.op.axis
        s[C].bind(i, thread("blockIdx.x"))
        s[C].bind(j, thread("threadIdx.x"))
        for stage in (L, B):
            s[stage].set_scope("local")
            s[stage].compute_at(s[C], j)
        _, inner = s[B].split(k, factor=4)
        s[B].bind(inner, thread("threadIdx.x" if same else "threadIdx.y"))
        if same:
            with pytest.raises(tw.ScheduleError, match=r"stage B: its loop k.inner .* L\[.* differs between the iterations of j"):
                tw.build(s, [A, D, C], EMULATOR)
        else:
            module = tw.build(s, [A, D, C], EMULATOR, check="race")
            rng = np.random.default_rng(1)
            a, d, c = rng.integers(-9, 9, (32, 32)).astype("int32"), rng.integers(-9, 9, 64).astype("int32"), np.empty((32, 32), "int32")
            module(a, d, c)
            np.testing.assert_array_equal(c, 2 * d.sum() * (a + 1))
            assert module.report.faults == []
