"""as_matmul: sums over several axes as products of matrices, and what padding and inlining make of them."""

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule
from tilewright.schedule.trace import replay_trace
from tilewright.tir.errors import ScheduleError
from tilewright.tir.interp import interpret


def whole_numbers(*tensors):
    rng = np.random.default_rng(5)
    return [rng.integers(-4, 5, [int(n) for n in t.shape]).astype(str(t.dtype)) for t in tensors]


def result(s, args):
    arrays = whole_numbers(*args)
    interpret(lower_schedule(s, args), arrays)
    return arrays


@pytest.mark.parametrize("inlined", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolution(layout, inlined):
    op = te.library.conv2d(2, 3, 7, 6, 5, 3, 2, stride=(2, 1), padding=1, dilation=(1, 2), layout=layout)
    X, F, Y = op.args
    s = create_schedule(Y.op)
    n, *rest = Y.op.axis
    rows, columns = ([rest[0]], [n, *rest[1:]]) if layout == "NCHW" else ([n, *rest[:2]], [rest[2]])
    sums, left, right = s.as_matmul(Y, rows, columns, list(Y.op.reduce_axis))
    image, weights = (right, left) if layout == "NCHW" else (left, right)
    assert s[image].op.input_tensors[0].name == "Xp" and s[weights].op.input_tensors[0] is F
    padded = s.pad(sums, 4, 4, 4)
    assert [int(extent) % 4 for tensor in padded for extent in tensor.shape] == [0] * 6
    if inlined:
        for tensor in (sums, left, right):
            s[tensor].compute_inline()
    x, f, y = result(s, op.args)
    np.testing.assert_array_equal(y, op.reference(x, f))
    again = create_schedule(Y.op)
    replay_trace(again, s.trace.to_json())
    np.testing.assert_array_equal(result(again, op.args)[-1], y)


def test_axes_in_neither_list_count_matrices_and_only_operands_that_move_along_them_have_them():
    A, B = te.placeholder((3, 4, 5), name="A"), te.placeholder((5, 2, 6), name="B")
    k = te.reduce_axis((0, 5), name="k")
    C = te.compute((2, 3, 4, 6), lambda b, h, i, j: te.sum(B[k, b, j] * A[h, i, k], axis=k), name="C")
    s = create_schedule(C.op)
    b, h, i, j = C.op.axis
    sums, left, right = s.as_matmul(C, [i], [j], [k])
    assert [tuple(map(int, each.shape)) for each in (sums, left, right)] == [(2, 3, 4, 6), (3, 4, 5), (2, 5, 6)]
    assert str(s[sums].op.body[0]).index("A.matrix") < str(s[sums].op.body[0]).index("B.matrix"), "the left operand is the first factor"
    x, y, z = result(s, [A, B, C])
    np.testing.assert_array_equal(z, np.einsum("hik,kbj->bhij", x, y))


def test_no_columns_and_a_reduction_that_begins_elsewhere():
    A, x = te.placeholder((4, 9), name="A"), te.placeholder((9,), name="x")
    k = te.reduce_axis((2, 9), name="k")
    y = te.compute((4,), lambda i: te.sum(A[i, k] * x[k], axis=k), name="y")
    s = create_schedule(y.op)
    sums, *_ = s.as_matmul(y, [y.op.axis[0]], [], [k])
    assert tuple(map(int, sums.shape)) == (4, 1)
    a, b, c = result(s, [A, x, y])
    np.testing.assert_array_equal(c, a[:, 2:] @ b[2:])


def test_both_operands_along_one_axis_are_refused():
    A, B = te.placeholder((4, 5), name="A"), te.placeholder((4, 5), name="B")
    k = te.reduce_axis((0, 5), name="k")
    C = te.compute((4,), lambda i: te.sum(A[i, k] * B[i, k], axis=k), name="C")
    s = create_schedule(C.op)
    with pytest.raises(ScheduleError, match="and the other the other way round"):
        s.as_matmul(C, [C.op.axis[0]], [], [k])
    assert len(s.trace) == 0
