"""One test for each mistake a declaration can contain: the error says what is wrong, where, and what to do."""

import math

import numpy as np
import pytest

from tilewright import te
from tilewright.tir.errors import TEError

A = te.placeholder((16, 8), name="A")
V = te.placeholder((8,), name="V")
I8 = te.placeholder((16, 8), dtype="int8", name="I8")
F8 = te.placeholder((4,), dtype="float8_e4m3", name="F8")
n = te.size_var("n")


def axis(extent=8, name="k"):
    return te.reduce_axis((0, extent), name)


def summed(**options):
    k = axis()
    return te.compute((16,), lambda i: te.sum(A[i, k], axis=k, **{name: make(i, k) for name, make in options.items()}))


def outer_axis_in_range():
    def body(i):
        k = te.reduce_axis((0, i + 1), "k")
        return te.sum(A[i, k], axis=k)

    return te.compute((8,), body, name="T")


def foreign_axis():
    other = te.compute((8,), lambda i: V[i])
    return te.compute((8,), lambda j: V[other.op.axis[0]], name="S")


k, j = axis(), axis(name="j")
pair = te.comm_reducer(lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda t0, t1: (te.const(0, t0), te.const(1, t1)), name="pair")

MISTAKES = {
    # shapes, dtypes, names
    "unknown dtype": (lambda: te.placeholder((4,), dtype="float31"), "unknown dtype 'float31': expected one of bool, int8"),
    "vector dtype": (lambda: te.placeholder((4,), dtype="float32x4"), "float32x4: expected a scalar dtype"),
    "negative extent": (lambda: te.placeholder((4, -1), name="P"), "placeholder 'P': extent 1 is -1"),
    "float extent": (lambda: te.compute((4, 8 / 2), lambda i, j: 0.0), "extent 1 is 4.0: expected an int.*Write //"),
    "extent is a string": (lambda: te.placeholder("4"), "extent 0 is '4': expected an int"),
    "extent is a float expression": (lambda: te.placeholder((te.exp(n),)), "extent 0 is exp.* of dtype float32: expected an integer"),
    "extent read from a tensor": (lambda: te.compute((I8[0, 0].astype("int32"),), lambda i: 0.0), "which reads a tensor: sizes must be known"),
    "range without two ends": (lambda: te.reduce_axis(8, "k"), r"range of reduce axis 'k' is 8: expected a pair \(low, high\)"),
    "range upside down": (lambda: te.reduce_axis((4, 2), "k"), r"is \(4, 2\): the upper limit is below the lower one"),
    "unknown thread tag": (lambda: te.thread_axis("threadIdx.w"), "unknown thread tag 'threadIdx.w': expected one of blockIdx.x"),
    "thread axis not from 0": (lambda: te.thread_axis((1, 4), "threadIdx.x"), "thread axis threadIdx.x starts at 1"),
    # functions of axes
    "too few parameters": (lambda: te.compute((4, 4), lambda x: 1.0, name="T"), r"'T': the shape has 2 dimension\(s\).*takes 1 axis parameter\(s\) \(x\)"),
    "too many parameters": (lambda: te.compute((4,), lambda x, y, z: 1.0), r"has 1 dimension\(s\).*takes 3 axis parameter\(s\) \(x, y, z\)"),
    "too few for *args": (lambda: te.compute((4,), lambda x, y, *z: 1.0), r"has 1 dimension\(s\).*at least 2 axis parameter\(s\)"),
    "a parameter too few with a default": (lambda: te.compute((4, 4), lambda x, t=3: 1.0), r"has 2 dimension\(s\).*takes 1 axis"),
    "not a function": (lambda: te.compute((4,), 1.0), "expected a function of the axes, found float 1.0"),
    "returns None": (lambda: te.compute((4,), lambda i: None, name="T"), "'T': its function returned None"),
    "returns nothing": (lambda: te.compute((4,), lambda i: ()), "returned an empty tuple"),
    "returns a string": (lambda: te.compute((4,), lambda i: "x"), "str 'x' cannot stand in an expression"),
    "returns an array": (lambda: te.compute((4,), lambda i: np.zeros(4)), "ndarray .* cannot stand in an expression"),
    # indices
    "too few indices": (lambda: A[1], r"tensor 'A' has 2 dimension\(s\) \(16, 8\), found 1 index"),
    "too many indices": (lambda: A(1, 2, 3), r"tensor 'A' has 2 dimension\(s\) \(16, 8\), found 3 index"),
    "index too large": (lambda: A[0, 8], r"index 1 of tensor 'A' is 8, outside \[0, 8\)"),
    "negative index": (lambda: A[-1, 0], r"index 0 of tensor 'A' is -1, outside \[0, 16\); negative indices do not count from the end"),
    "arithmetic in float8": (lambda: F8[0] * F8[1], "arithmetic on float8_e4m3: float8 is a storage type, cast it first"),
    "arithmetic of float8 with a number": (lambda: F8[0] + 1.0, "arithmetic on float8_e4m3: float8 is a storage type, cast it first"),
    "float index": (lambda: V[1.0], "index 0 of tensor 'V' is 1.0 of dtype float32: expected an integer"),
    "slice": (lambda: A[0, 1:3], "index 1 of tensor 'A' is slice.*a slice is a computation of its own"),
    "read outside": (lambda: te.compute((8,), lambda i: V[i + 1], name="T"), r"'T' reads V\[i \+ 1\].*values 1 to 8.*is \[0, 8\).*te.if_then_else"),
    "read below": (lambda: te.compute((8,), lambda i: V[i * 2 - 1]), r"values -1 to 13"),
    "select does not guard": (lambda: te.compute((9,), lambda i: te.select(i < 8, V[i], 0.0)), "te.select does not, it evaluates both"),
    "where does not guard itself": (lambda: summed(where=lambda i, k: V[k + 1] > 0), "values 1 to 8"),
    # whole tensors in expressions
    "tensor as a value": (lambda: A + 1, r"tensor 'A' of shape \(16, 8\) stands in an expression: index it, like A\[i, j\]"),
    "tensor in a function": (lambda: te.exp(V), r"index it, like V\[i\]"),
    "tensor as a body": (lambda: te.compute((8,), lambda i: V), r"index it, like V\[i\]"),
    "iterating a tensor": (lambda: list(V), "tensor 'V' cannot be iterated over"),
    "comparing a tensor with a number": (lambda: V == 1, r"index it, like V\[i\]"),
    # the truth of expressions
    "if": (lambda: te.compute((4,), lambda x: 1.0 if x == 0 else 2.0), "te.if_then_else.*te.select"),
    "and": (lambda: te.compute((4,), lambda x: te.select(x > 1 and x < 3, 1.0, 0.0)), "te.all"),
    "chained comparison": (lambda: te.compute((4,), lambda x: te.select(1 < x < 3, 1.0, 0.0)), "chained comparisons"),
    "iterating an expression": (lambda: list(V[0]), "is a scalar expression and cannot be iterated over"),
    # arithmetic
    "division of integers": (lambda: te.compute((4,), lambda i: i / 2), "true division of integers.*Write // for the floored quotient, or cast"),
    "floor division of floats": (lambda: V[0] // 2, "// is for integers, found float32. For floats write te.floor"),
    "division by zero": (lambda: I8[0, 0] // 0, "division by the constant zero"),
    "number too large for its operand": (lambda: I8[0, 0] + 200, "the number 200 does not fit in int8.*cast that operand first"),
    "bits of a float": (lambda: V[0] & 1, "bitwise_and is for integers, found float32"),
    "condition that is none": (lambda: te.if_then_else(V[0], 1.0, 2.0), r"a condition joins conditions, found V\[0\]|V\[0\] of dtype float32"),
    "joining numbers": (lambda: te.all(V[0], V[1]), "joins conditions, found .* of dtype float32: compare it first"),
    "reinterpret of other width": (lambda: te.reinterpret(V[0], "float64"), r"one width, found float32 \(32 bits\) and float64 \(64 bits\)"),
    # reductions
    "reduction in an expression": (lambda: te.compute((16,), lambda i: te.sum(A[i, k], axis=k) + 1.0), "only be at the top level.*its own stage"),
    "reduction in a function": (lambda: te.compute((16,), lambda i: te.exp(te.max(A[i, k], axis=k))), "the reduction max.*stands inside an expression"),
    "nested reduction": (lambda: te.compute((), lambda: te.sum(te.max(A[j, k], axis=k), axis=j)), "the reduction max.*stands inside an expression"),
    "reductions in a tuple": (
        lambda: te.compute((16,), lambda i: (te.sum(A[i, k], axis=k), te.max(A[i, k], axis=k)), name="T"),
        "'T': its function returned a tuple with the reduction.*te.comm_reducer",
    ),
    "function of NumPy": (lambda: np.exp(A[0, 0]), r"NumPy's exp cannot compute with an expression, found 'A\[0, 0\]': use te.exp"),
    "function of NumPy by another name": (lambda: np.maximum(A[0, 0], 0), "NumPy's maximum .* use te.maximum"),
    "function of NumPy that te lacks": (lambda: np.arctan(A[0, 0]), "NumPy's arctan .* use a function of te"),
    "reduction of NumPy": (lambda: np.sum(A), "NumPy's add cannot compute with an expression, found 'A'"),
    "function of math": (lambda: math.exp(A[0, 0]), r"'A\[0, 0\]' has no value while a computation is declared: use te.exp"),
    "int of an expression": (lambda: int(A[0, 0]), "has no value while a computation is declared.*astype"),
    "no axis": (lambda: te.sum(A[0, k], axis=[]), "te.sum: no axis to reduce over"),
    "axis that is none": (lambda: te.sum(A[0, k], axis=1), r"te.sum: axis is 1, expected a reduce axis: k = te.reduce_axis\(\(0, K\)\)"),
    "axis of the grid": (lambda: te.compute((16,), lambda i: te.sum(A[i, 0], axis=i)), "te.sum: axis is i, expected a reduce axis"),
    "thread axis": (lambda: te.sum(A[0, k], axis=te.thread_axis("threadIdx.x")), "axis 'threadIdx.x' is a thread axis, expected a reduce axis"),
    "axis twice": (lambda: te.sum(A[0, k], axis=[k, j, k]), "te.sum: axis 'k' is listed twice"),
    "axis not listed": (lambda: te.compute((16,), lambda i: te.sum(A[j, k], axis=k), name="T"), "'T': 'j' is neither one of its axes .i, k. nor a size"),
    "axis without reduction": (lambda: te.compute((16,), lambda i: A[i, k]), "'k' is neither one of its axes .i. nor a size.*must be listed in axis="),
    "axis of another computation": (foreign_axis, "'S': 'i' is neither one of its axes .j. nor a size.*axis of another computation"),
    "range that depends on an axis": (outer_axis_in_range, "'T': the range of reduce axis 'k' depends on axis 'i'.*where=k <= i|with where=.*k <= i"),
    "sum of int8": (lambda: te.sum(I8[0, k], axis=k), r"te.sum over int8 would .* overflow: cast .*te.sum\(x.astype\('int32'\), axis=...\)"),
    "product of int8": (lambda: te.prod(I8[0, k], axis=k), "te.prod over int8 would .* overflow"),
    "sum of conditions": (lambda: te.sum(I8[0, k] > 0, axis=k), r"te.sum over bool would .*astype\('int32'\)"),
    "where that is no condition": (lambda: summed(where=lambda i, k: k), "te.sum: where= is k of dtype int32, expected a condition"),
    "init of another dtype": (lambda: summed(init=lambda i, k: I8[i, 0]), "init= is .* of dtype int8, expected float32: cast it"),
    "too many inits": (lambda: summed(init=lambda i, k: (0.0, 1.0)), r"init= has 2 value\(s\), but 1 are reduced"),
    "where without axis": (lambda: te.max(V[0], V[1], where=V[0] > 0), "te.max: where= and init= need axis="),
    "axis and two values": (lambda: te.max(V[0], V[1], axis=k), "te.max: found 2 values and axis="),
    "one value, no axis": (lambda: te.max(V[0]), "te.max: expected axis="),
    "argmax of one value": (lambda: te.argmax(V[k], axis=k), r"te.argmax reduces pairs \(index, value\), for example te.argmax\(\(k, A\[i, k\]\)"),
    "argmax with a float index": (lambda: te.argmax((V[k], k), axis=k), "the index is .* of dtype float32, expected an integer"),
    "reducer of another arity": (lambda: pair((V[k], V[k], V[k]), axis=k), r"reducer 'pair': 3 value\(s\) are reduced, but its identity does not"),
    "reducer of single values": (lambda: te.comm_reducer(lambda x, y: (x, y), lambda t: 0, name="r")(V[k], axis=k), "'r' combines single values but gives 2"),
    "reducer of tuples that gives one": (lambda: te.comm_reducer(lambda x, y: x[0], lambda *t: (0, 0), name="r")((V[k], k), axis=k), "'r' reduces tuples"),
    "reducer that changes the dtype": (
        lambda: te.comm_reducer(lambda x, y: x + y * V[0], lambda t: te.const(0, t), name="r")(I8[0, k], axis=k),
        "'r': value 0 of combine is .* of dtype float32, expected int8.*cast it with .astype",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake):
    make, message = MISTAKES[mistake]
    with pytest.raises(TEError, match=message):
        make()


def test_what_is_right_passes():
    """The checks above refuse no more than they should."""
    te.compute((9,), lambda i: te.if_then_else(i < 8, V[i], 0.0))
    te.compute((8,), lambda i: V[7 - i])
    te.compute((8,), lambda i: V[i + i - i])  # what is not decided passes
    te.compute((8,), lambda i: V[te.min(i + 1, 7)])
    te.compute((0,), lambda i: V[i + 100])
    te.compute((4,), lambda i, t=V: t[i])
    te.compute((16,), lambda i: te.sum(A[i, k + 1], axis=k, where=k < 7))
    te.compute((8,), lambda i: V[te.min(te.max(I8[i, 0].astype("int32"), 0), 7)])
    te.compute((n,), lambda i: (i + n).astype("float32"))
    assert (V in [A, V]) and (V not in [A]) and V != A
