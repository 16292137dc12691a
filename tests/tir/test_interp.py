"""The interpreter against NumPy: arithmetic of every dtype, scalar and vector, laziness of conditions, memory, loops, and its errors."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest

from tilewright.tir.dtype import dtype
from tilewright.tir.errors import TilewrightError
from tilewright.tir.expr import (
    Buffer,
    Var,
    broadcast,
    call,
    cast,
    const,
    floordiv,
    floormod,
    if_then_else,
    load,
    logical_and,
    logical_not,
    logical_or,
    lt,
    maximum,
    minimum,
    ramp,
    reinterpret,
    select,
)
from tilewright.tir.interp import interpret, iteration_count
from tilewright.tir.interp_support import OutOfBounds, numpy_dtype
from tilewright.tir.intrin import INTRINSICS
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Place, Produce, Seq, seq, store

I = Var("i", "int32", (0, 63))
LANES = 8


def run(value_of, *inputs, out="float32", vector=False, size=None):
    """Apply a function of expressions to arrays element by element; as scalars, or as vectors of 8 lanes."""
    size = len(inputs[0]) if size is None else size
    buffers = [Buffer(f"a{k}", (len(a),), str(a.dtype)) for k, a in enumerate(inputs)]
    result = Buffer("r", (size,), out)
    index = ramp(I * LANES, 1, LANES) if vector else I
    body = store(result, (index,), value_of(*[load(b, (index,)) for b in buffers]))
    func = Func("f", (*buffers, result), frozenset([result]), For(I, const(size // LANES if vector else size), "serial", body))
    found = np.zeros(size, numpy_dtype(dtype(out)))
    interpret(func, [*inputs, found])
    return found


def edge_values(name, rng):
    kind = dtype(name)
    if kind.is_float:
        some = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-30 if kind.bits > 16 else 1e-7, kind.high, 3.0], np.float64)
        values = np.concatenate([some, rng.normal(size=14) * 10])
    else:
        some = np.array([0, 1, kind.low, kind.high, kind.high - 1, 7, 3], object)
        values = np.concatenate([some, rng.integers(int(kind.low), int(kind.high), 17, np.int64, endpoint=True).astype(object)])
    with np.errstate(over="ignore"):
        return values.astype(numpy_dtype(kind))


ARITHMETIC = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "min": (minimum, np.minimum),
    "max": (maximum, np.maximum),
}
INTEGER = {
    "floordiv": (floordiv, np.floor_divide),
    "floormod": (floormod, np.mod),
    "and": (lambda a, b: a & b, np.bitwise_and),
    "or": (lambda a, b: a | b, np.bitwise_or),
    "xor": (lambda a, b: a ^ b, np.bitwise_xor),
}


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64"])
def test_arithmetic_rounds_and_wraps_as_numpy(name, vector):
    rng = np.random.default_rng(1)
    a, b = (np.array([p[k] for p in itertools.product(edge_values(name, rng), repeat=2)]) for k in (0, 1))
    table = {**ARITHMETIC, "div": (lambda x, y: x / y, np.divide)} if dtype(name).is_float else {**ARITHMETIC, **INTEGER}
    for key, (ours, numpys) in table.items():
        with np.errstate(all="ignore"):
            want = numpys(a, b)
        got = run(ours, a, b, out=name, vector=vector)
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=key)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("source", ["bool", "int8", "uint8", "int32", "uint32", "int64", "float16", "float32", "float64"])
def test_casts(source, vector):
    rng = np.random.default_rng(2)
    kind = dtype(source)
    a = rng.integers(0, 2, 24).astype(bool) if kind.is_bool else edge_values(source, rng)
    for to in ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64"):
        target = dtype(to)
        values = a
        if kind.is_float and target.is_integer:  # what does not fit has no specified value, but no trap
            run(lambda x, target=target: cast(x, target), a, out=to, vector=vector)
            values = (np.arange(24) * 2.6).astype(a.dtype) if target.kind == "uint" else (np.arange(24) * 2.6 - 30).astype(a.dtype)
        with np.errstate(all="ignore"):
            want = (np.trunc(values) if kind.is_float and target.is_integer else values).astype(numpy_dtype(target))
        got = run(lambda x, target=target: cast(x, target), values, out=to, vector=vector)
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=f"{source} -> {to}")


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("name", [n for n in INTRINSICS if n != "wrap"])
def test_intrinsics(name, vector):
    intrinsic = INTRINSICS[name]
    rng = np.random.default_rng(3)
    for kind in ("int32", "uint8") if intrinsic.operands == "integer" else ("float32", "float64"):
        if kind.startswith("float"):
            args = [rng.uniform(0.1, 4, 16).astype(kind) for _ in range(intrinsic.arity)]
        else:
            args = [rng.integers(0, 7, 16).astype(kind) if k else edge_values(kind, rng)[:16] for k in range(intrinsic.arity)]
        out = "bool" if intrinsic.result == "bool" else kind
        environment = {"np": np, "erf": np.vectorize(math.erf), **dict(zip("abc", args, strict=False))}
        with np.errstate(divide="ignore"):
            want = np.asarray(eval(intrinsic.numpy, environment)).astype(out)
        if name == "popcount":
            want = np.array([(int(v) & ((1 << dtype(kind).bits) - 1)).bit_count() for v in args[0]], out)
        np.testing.assert_array_equal(run(lambda *x: call(name, *x), *args, out=out, vector=vector), want, err_msg=kind)


@pytest.mark.parametrize("vector", [False, True])
def test_comparisons_and_logic(vector):
    rng = np.random.default_rng(4)
    a, b = edge_values("float32", rng), edge_values("float32", rng)[::-1].copy()
    for ours, want in (
        (lambda x, y: x < y, a < b),
        (lambda x, y: x <= y, a <= b),
        (lambda x, y: x == y, a == b),
        (lambda x, y: x != y, a != b),
        (lambda x, y: logical_and(x < 1.0, y > 0.0), (a < 1) & (b > 0)),
        (lambda x, y: logical_or(x < 1.0, y > 0.0), (a < 1) | (b > 0)),
        (lambda x, y: logical_not(x < y), ~(a < b)),
        (lambda x, y: select(x < y, x, y) == x, np.where(a < b, a, b) == a),
    ):
        np.testing.assert_array_equal(run(ours, a, b, out="bool", vector=vector), want)


@pytest.mark.parametrize("vector", [False, True])
def test_reinterpret_and_wrap(vector):
    a = edge_values("float32", np.random.default_rng(5))
    np.testing.assert_array_equal(run(lambda x: reinterpret(x, dtype("int32")), a, out="int32", vector=vector), a.view("int32"))
    index = ramp(I * LANES, 1, LANES) if vector else I
    got = run(lambda _: call("wrap", cast((index + (1 << 31) - 3) * 5, dtype("int32"))), a, out="int32", vector=vector)
    want = ((np.arange(24, dtype=np.int64) + (1 << 31) - 3) * 5).astype(np.int32)
    np.testing.assert_array_equal(got, want)


def test_exact_arithmetic_never_wraps():
    big = (I + 2_000_000_000) * 4  # 8e9: no int32 holds it, and the value is used before it comes back into range
    a = np.arange(8, dtype=np.float32)
    got = run(lambda x: load_at(a, big - 8_000_000_000), a)
    np.testing.assert_array_equal(got, a[(np.arange(8) * 4) % 8])


def load_at(array, index):
    """A stand-in for a table: the value that the array has at an index, as arithmetic."""
    return cast(floormod(index, const(len(array))), dtype("float32"))


@pytest.mark.parametrize("vector", [False, True])
def test_if_then_else_reads_only_the_arm_taken(vector):
    n = 16
    a, r = Buffer("a", (n - 1,)), Buffer("r", (n,))
    index = ramp(I * LANES, 1, LANES) if vector else I
    extent = n // LANES if vector else n
    values = np.arange(n - 1, dtype=np.float32)

    def compute(value):
        out = np.full(n, 9, np.float32)
        interpret(Func("f", (a, r), frozenset([r]), For(I, const(extent), "serial", store(r, (index,), value))), [values, out])
        return out

    want = np.concatenate([[7], values])
    shifted = load(a, (index - 1,))
    np.testing.assert_array_equal(compute(if_then_else(index >= 1, shifted, const(7, "float32"))), want)
    np.testing.assert_array_equal(compute(if_then_else(index < 1, const(7, "float32"), shifted)), want)
    zero_padded = load(a, (index - 1,), index >= 1)
    np.testing.assert_array_equal(compute(zero_padded), np.concatenate([[0], values]))
    nested = if_then_else(index >= 1, if_then_else(index < 9, shifted * 2, shifted), const(7, "float32"))
    np.testing.assert_array_equal(compute(nested), np.concatenate([[7], values[:8] * 2, values[8:]]))
    with pytest.raises(OutOfBounds, match=r"a\[-1\] is outside a of shape \[15\]"):
        compute(select(index >= 1, shifted, const(7, "float32")))
    with pytest.raises(OutOfBounds, match=r"a\[15\] is outside"):
        compute(load(a, (index,)))


def test_a_broadcast_load_happens_when_some_lane_takes_it():
    a, r = Buffer("a", (4,)), Buffer("r", (32,))
    lanes = ramp(I * LANES, 1, LANES)
    value = if_then_else(lanes < 16, broadcast(load(a, (I * 2,)), LANES), broadcast(const(5, "float32"), LANES))
    out = np.zeros(32, np.float32)
    interpret(Func("f", (a, r), frozenset([r]), For(I, const(4), "serial", store(r, (lanes,), value))), [np.arange(4, dtype="f"), out])
    np.testing.assert_array_equal(out, np.repeat(np.array([0, 2, 5, 5], "f"), 8))


def test_predicated_stores_gathers_and_strides():
    a, p, r = Buffer("a", (4, 8)), Buffer("p", (8,), "int32"), Buffer("r", (8, 4))
    lane = ramp(const(0), 1, LANES)
    body = For(I, const(4), "serial", store(r, (lane, I), load(a, (I, load(p, (lane,)))), lane < 6))
    values, order = np.arange(32, dtype=np.float32).reshape(4, 8), np.array([3, 1, 2, 0, 7, 7, 100, -5], np.int32)
    out = np.full((8, 4), -1, np.float32)
    with pytest.raises(OutOfBounds, match=r"a\[0, 100\] is outside a of shape \[4, 8\]"):
        interpret(Func("f", (a, p, r), frozenset([r]), body), [values, order, out])
    order[6:] = 0
    interpret(Func("f", (a, p, r), frozenset([r]), body), [values, order, out])
    want = np.full((8, 4), -1, np.float32)
    want[:6] = values[:, order[:6]].T
    np.testing.assert_array_equal(out, want)


def test_memory_is_poisoned_and_workspaces_are_shared():
    a, b, r = Buffer("a", (4,)), Buffer("b", (4,)), Buffer("r", (4,))
    copy = store(r, (I,), load(a, (I,)))
    func = Func("f", (r,), frozenset([r]), Allocate(a, For(I, const(4), "serial", copy)))
    out = np.zeros(4, np.float32)
    interpret(func, [out])
    assert np.isnan(out).all()
    interpret(func, [out], poison=0)
    assert (out == 0).all()

    def shared(offset, workspace=(32, 0)):
        j = Var("j", "int32", (0, 3))
        k = Var("k", "int32", (0, 3))
        fill = seq(For(I, const(4), "serial", store(a, (I,), const(1, "float32"))), For(k, const(4), "serial", store(b, (k,), const(2, "float32"))))
        body = seq(fill, For(j, const(4), "serial", store(r, (j,), load(a, (j,)))))
        placed = Allocate(a, Allocate(b, body, Place("call", offset)), Place("call", 0))
        interpret(Func("f", (r,), frozenset([r]), placed, (), workspace), [out])
        return out.tolist()

    assert shared(16) == [1, 1, 1, 1]
    assert shared(0) == [2, 2, 2, 2]
    assert shared(8) == [1, 1, 2, 2]
    with pytest.raises(OutOfBounds, match=r"buffer b \(16 bytes\) is placed at byte 20 of a call workspace of 32 bytes"):
        shared(20)


def test_a_buffer_has_its_place_from_its_first_access_on():
    """That is how places are given: what lies there may be read after the allocation, before anything is stored (found by the fuzzer)."""
    a, b, r = Buffer("a", (4,)), Buffer("b", (4,)), Buffer("r", (4,))
    i, j, k = (Var(name, "int32", (0, 3)) for name in "ijk")
    fill = For(I, const(4), "serial", store(a, (I,), const(1, "float32")))
    keep = For(i, const(4), "serial", store(r, (i,), load(a, (i,))))
    later = For(j, const(4), "serial", store(b, (j,), const(2, "float32")))
    add = For(k, const(4), "serial", store(r, (k,), load(r, (k,)) + load(b, (k,))))
    body = Allocate(a, seq(fill, Allocate(b, Produce("s", seq(keep, later, add)), Place("call", 0))), Place("call", 0))
    out = np.zeros(4, np.float32)
    interpret(Func("f", (r,), frozenset([r]), body, (), (16, 0)), [out])
    assert out.tolist() == [3, 3, 3, 3]


def test_a_thread_iteration_finds_nothing_of_the_one_before():
    a, r = Buffer("a", (1,)), Buffer("r", (4,))
    body = Allocate(a, If(I == 0, store(a, (0,), const(3, "float32"))), Place("thread", 0))
    body = For(I, const(4), "parallel", seq(body, store(r, (I,), const(1, "float32"))))
    leak = Allocate(
        a,
        For(I, const(4), "parallel", seq(If(I == 0, store(a, (0,), const(3, "float32"))), store(r, (I,), load(a, (const(0),))))),
        Place("thread", 0),
    )
    out = np.zeros(4, np.float32)
    interpret(Func("f", (r,), frozenset([r]), leak, (), (0, 4)), [out])
    assert out[0] == 3 and np.isnan(out[1:]).all()
    interpret(Func("f", (r,), frozenset([r]), body, (), (0, 4)), [out])
    assert (out == 1).all()


def test_a_race_shows_when_parallel_loops_run_backwards():
    r = Buffer("r", (1,), "int32")
    func = Func("f", (r,), frozenset([r]), For(I, const(4), "parallel", store(r, (0,), call("wrap", I))))
    out = np.zeros(1, np.int32)
    interpret(func, [out])
    assert out[0] == 3
    interpret(func, [out], reverse_parallel=True)
    assert out[0] == 0


def test_a_statement_sees_what_the_one_before_wrote():
    r = Buffer("r", (2,), "int32")
    first = load(r, (const(0),))
    body = If(first > 0, seq(store(r, (0,), first + 1), store(r, (1,), first * 2)), store(r, (1,), first))
    out = np.array([5, 0], np.int32)
    interpret(Func("f", (r,), frozenset([r]), body), [out])
    assert out.tolist() == [6, 12]
    v = Var("v", "int32")
    interpret(Func("f", (r,), frozenset([r]), Bind(v, first, seq(store(r, (0,), const(1)), store(r, (1,), v)))), [out])
    assert out.tolist() == [1, 6]


def test_deep_nests_and_expressions():
    variables = [Var(f"i{k}", "int32", (0, 0)) for k in range(30)]
    r = Buffer("r", (1,))
    value = load(r, (0 * variables[0] + sum(variables[1:], start=variables[0]),))
    for k in range(300):
        value = if_then_else(value > 0.0, value, value * 2.0 + float(k % 3))
    body = store(r, (0,), value)
    for v in variables:
        body = For(v, const(1), "serial", body)
    out = np.ones(1, np.float32)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        interpret(Func("f", (r,), frozenset([r]), body), [out])
    finally:
        sys.setrecursionlimit(limit)
    assert out[0] == 1


def test_symbolic_sizes_and_wrong_arguments():
    n = Var("n", "int32", (0, None))
    i = Var("i", "int32", (0, None))
    a, r = Buffer("a", (n, 2)), Buffer("r", (n,))
    func = Func("f", (a, r), frozenset([r]), For(i, n, "serial", store(r, (i,), load(a, (i, const(1))))), (n,))
    for size in (0, 1, 5):
        values, out = np.random.default_rng(0).normal(size=(size, 2)).astype("f"), np.zeros(size, "f")
        interpret(func, [values, out], {"n": size})
        np.testing.assert_array_equal(out, values[:, 1])
        assert iteration_count(func, {"n": size}) == max(1, size)
    with pytest.raises(TilewrightError, match="takes 2 arrays, found 1"):
        interpret(func, [np.zeros((2, 2), "f")], [2])
    with pytest.raises(TilewrightError, match="takes 1 sizes, found 0"):
        interpret(func, [np.zeros((2, 2), "f"), np.zeros(2, "f")])
    with pytest.raises(TilewrightError, match=r"a: expected contiguous float32\[2, 2\], found float64\[2, 2\]"):
        interpret(func, [np.zeros((2, 2)), np.zeros(2, "f")], [2])
    assert interpret(Func("g", (), frozenset(), Seq(())), []) is None


def test_lt_of_nan_is_false():
    assert not run(lambda x: lt(x, x + 1), np.array([np.nan], "f"), out="bool")[0]
