"""Memory of a warp: a row of threads has a part of its own, which other rows must not share the work on."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule

EMULATOR = tw.Target("cuda", device="emulator", threads=1)


def turned_rows(bound):
    """Rows of A doubled, then turned round, by a row of threads each; `bound`: the indices that the loop of the first step over columns is split into."""
    A = te.placeholder((8, 64), "int32", name="A")
    B = te.compute((8, 64), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((8, 64), lambda i, j: B[i, 63 - j], name="C")
    s = create_schedule(C.op)
    i, j = C.op.axis
    block, row = s[C].split(i, factor=4)
    columns, lane = s[C].split(j, factor=32)
    for axis, tag in ((block, "blockIdx.x"), (row, "threadIdx.y"), (lane, "threadIdx.x")):
        s[C].bind(axis, te.thread_axis(tag))
    s[C].reorder(block, row, columns, lane)
    s[B].set_scope("warp")
    s[B].compute_at(s[C], row)
    rest = B.op.axis[1]
    for tag, extent in bound:
        rest, part = s[B].split(rest, factor=extent)
        s[B].bind(part, te.thread_axis(tag))
    return s, [A, C]


def test_each_row_of_threads_has_its_own():
    s, args = turned_rows([("threadIdx.x", 32)])
    module = tw.build(s, args, EMULATOR, check="race")
    a, c = np.arange(512, dtype="int32").reshape(8, 64), np.empty((8, 64), "int32")
    module(a, c)
    np.testing.assert_array_equal(c, 2 * a[:, ::-1])
    assert module.report.faults == []
    assert "__syncwarp();" in module.get_source() and "__syncthreads" not in module.get_source()  # rows do not wait for one another


@pytest.mark.parametrize("bound", [[("threadIdx.y", 4)], [("threadIdx.x", 32), ("threadIdx.y", 2)], [("threadIdx.x", 64), ("threadIdx.y", 1)]])
def test_work_on_it_is_not_shared_among_rows(bound):
    s, args = turned_rows(bound)
    with pytest.raises(tw.ScheduleError, match=r"stage B: its loop j.*bound to threadIdx.y and runs inside the loop i.inner, bound to threadIdx.y too"):
        tw.build(s, args, EMULATOR)


@pytest.mark.parametrize("together", [False, True])
def test_virtual_threads_around_it(together):
    """Each has its own part (the last one's was read by all)."""
    A = te.placeholder((4, 8, 16), "int32", name="A")
    C = te.compute((4, 8, 16), lambda v, i, j: A[v, i, 15 - j] * 3, name="C")
    s = create_schedule(C.op)
    v, i, j = C.op.axis
    s[C].reorder(i, v, j)
    for axis, tag in ((i, "blockIdx.x"), (v, "vthread"), (j, "threadIdx.x")):
        s[C].bind(axis, te.thread_axis(tag))
    copy = s.cache_read(A, "warp", [C])
    s[copy].compute_at(s[C], v)
    if together:
        s[copy].bind(s[copy].op.axis[2], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [A, C], EMULATOR, check="race")
    a, c = np.arange(512, dtype="int32").reshape(A.shape), np.empty(C.shape, "int32")
    module(a, c)
    np.testing.assert_array_equal(c, 3 * a[:, :, ::-1])
    assert module.report.faults == []
