"""A computation as data: it comes back the same, hashes tell computations apart, and what is read off it is right."""

import json

import numpy as np
import pytest

from tilewright import te
from tilewright.autotune.canonical import byte_count, data_hash, flop_count, from_data, index_limits, largest_values, to_data
from tilewright.te.library.operator import OPERATORS
from tilewright.tir.errors import ArgumentError

SIZES = {
    "matmul": (6, 7, 8),
    "batch_matmul": (2, 6, 7, 8),
    "dense": (6, 7, 8),
    "gemv": (6, 8),
    "conv1d": (1, 4, 9, 6, 3),
    "conv2d": (1, 4, 9, 9, 6, 3, 3),
    "conv2d_im2col": (1, 4, 9, 9, 6, 3, 3),
    "conv2d_transpose": (1, 4, 5, 5, 6, 3, 3),
    "conv2d_winograd": (1, 4, 9, 9, 6),
    "depthwise_conv2d": (1, 4, 9, 9, 3, 3),
    "quantized_matmul": (6, 7, 8),
    "quantized_conv2d": (1, 4, 9, 9, 6, 3, 3),
    "int4_matmul": (6, 7, 64),
    "pool2d": (1, 4, 8, 8, "max", 2),
    "attention": (1, 2, 8, 8, 4),
    "flash_attention": (1, 2, 8, 8, 4),
}


def tensors_of(name: str) -> list:
    return OPERATORS[name](*SIZES[name]).args if name in SIZES else OPERATORS[name]((2, 3, 4, 8)).args


def small_matmul(k_extent: int = 8, name: str = "C") -> list:
    a, b = te.placeholder((6, k_extent), name="A"), te.placeholder((k_extent, 7), name="B")
    k = te.reduce_axis((0, k_extent), "k")
    return [a, b, te.compute((6, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)]


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_comes_back_the_same(name: str) -> None:
    data = to_data(tensors_of(name))
    again = from_data(json.loads(json.dumps(data)))
    assert to_data(again) == data and data_hash(to_data(again)) == data_hash(data)
    assert [(t.name, t.dtype, t.shape) for t in again] == [(t.name, t.dtype, t.shape) for t in tensors_of(name)]


def test_an_order_that_matters_comes_back_with_axes_of_the_same_kind() -> None:
    a = te.placeholder((5, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    decay = te.comm_reducer(lambda x, y: x * 0.5 + y, lambda t: te.const(0.0, t), name="decay", associative=False)
    (_, again) = from_data(to_data([a, te.compute((5,), lambda i: decay(a[i, k], axis=k), name="B")]))
    assert again.op.reduce_axis[0].kind == k.kind and not again.op.reducer.associative


def test_tuple_reductions_conditions_and_init_come_back() -> None:
    a = te.placeholder((5, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    argmax = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.maximum(x[1], y[1])), lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax"
    )
    index, value = te.compute((5,), lambda i: argmax((k, a[i, k]), axis=k), name="best")
    k2 = te.reduce_axis((0, 9), "k2")
    total = te.compute((5,), lambda i: te.sum(a[i, k2], axis=k2, where=k2 > 2, init=value[i]), name="total")
    data = to_data([a, index, total])
    assert to_data(from_data(json.loads(json.dumps(data)))) == data


def test_hashes_tell_computations_apart() -> None:
    def relu(limit: float) -> list:
        x = te.placeholder((8,), name="X")
        return [x, te.compute((8,), lambda i: te.max(x[i], limit), name="R")]

    data = [to_data(small_matmul()), to_data(small_matmul(9)), to_data(relu(0.0)), to_data(relu(-0.0)), to_data(relu(1.0))]
    assert len({data_hash(item) for item in data}) == 5
    assert data_hash(to_data(small_matmul())) == data_hash(data[0])


def test_symbolic_sizes_are_refused() -> None:
    n = te.size_var("n")
    x = te.placeholder((n,), name="X")
    with pytest.raises(ArgumentError, match="'X' has the symbolic extent n"):
        to_data([x, te.compute((n,), lambda i: x[i] + 1.0, name="Y")])


def test_flops_and_bytes() -> None:
    assert flop_count(small_matmul()) == 2 * 6 * 7 * 8
    assert byte_count(small_matmul()) == 4 * (6 * 8 + 8 * 7 + 6 * 7)
    x = te.placeholder((4, 5), name="X")
    assert flop_count([x, te.compute((5, 4), lambda i, j: te.exp(x[j, i] * 2.0) - x[j, i], name="Y")]) == 3 * 20


def test_bounds_of_integer_valued_computations() -> None:
    *_, c = tensors = small_matmul()
    bounds = largest_values(tensors, 4)
    assert bounds is not None and bounds[c] == 8 * 16
    x = te.placeholder((8,), name="X")
    y = te.compute((8,), lambda i: te.max(x[i] * 3.0 - 1.0, 0.0), name="Y")
    assert largest_values([x, y], 2) == {x: 2, y: 7}
    for body in (lambda i: te.exp(x[i]), lambda i: x[i] / 2.0, lambda i: x[i] * 0.5):
        assert largest_values([x, te.compute((8,), body, name="Z")], 2) is None


def test_inputs_used_as_indices_are_known() -> None:
    table, ids = te.placeholder((10, 4), name="T"), te.placeholder((3,), "int32", name="ids")
    rows = te.compute((3, 4), lambda i, j: table[te.max(te.min(ids[i], 9), 0), j], name="rows")
    assert index_limits([table, ids, rows]) == {ids: 10}
    assert np.prod(rows.shape) == 12
