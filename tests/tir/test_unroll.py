"""Unroll: which loops are written out, and which are left to the C compiler."""

from __future__ import annotations

import numpy as np

from tilewright.tir.expr import Buffer, Var, const, load
from tilewright.tir.interp import interpret
from tilewright.tir.passes import Unroll
from tilewright.tir.stmt import Allocate, For, Func, If, Place, Seq, Stmt, Store, seq
from tilewright.tir.target import Target

TARGET = Target("c", threads=1)


def tile(rows: int, kind: str = "unrolled", place: str = "stack", pragmas=()) -> Func:
    """B[i, k] = (A[i, k] twice, through a tile)"""
    a, b, t = Buffer("A", (rows * 2,)), Buffer("B", (rows * 2,)), Buffer("T", (rows * 2,), scope="local")
    i, j, k = Var("i", "int32", (0, rows - 1)), Var("j", "int32", (0, rows - 1)), Var("k", "int32", (0, 1))
    fill = For(i, const(rows), kind, For(k, const(2), "serial", Store(t, (i * 2 + k,), load(a, (i * 2 + k,)) * 2.0)))
    copy = For(j, const(rows), "unrolled", If(j < 2, Store(b, (j * 2,), load(t, (j * 2,)))))
    body: Stmt = Allocate(t, seq(fill, copy), Place(place) if place == "stack" else Place(place, 0))
    once = Var("once", "int32", (0, 0))
    return Func("f", (a, b), frozenset([b]), For(once, const(1), "serial", body, None, pragmas), (), (rows * 8, 0))


def same_values(func: Func, other: Func) -> None:
    results = []
    for each in (func, other):
        size = func.params[0].shape[0]
        out = np.zeros(size, np.float32)
        interpret(each, [np.arange(size, dtype=np.float32), out])
        results.append(out)
    np.testing.assert_array_equal(*results)


def test_loops_that_index_a_register_tile_are_written_out():
    func = tile(2)
    result = Unroll().run(func, TARGET)
    assert str(result) == (
        "def f(A: float32[4], B: float32[4] out):\n"
        "    for once in range(1):\n"
        "        allocate T: float32[4] in local at stack\n"
        "        T[0] = A[0] * 2.0\n"
        "        T[1] = A[1] * 2.0\n"
        "        T[2] = A[2] * 2.0\n"
        "        T[3] = A[3] * 2.0\n"
        "        B[0] = T[0]\n"
        "        B[2] = T[2]"
    )
    same_values(func, result)
    assert Unroll().run(result, TARGET) is result


def test_a_long_serial_loop_over_a_tile_stays():
    """A short one is written out with the unrolled loops over the tile, which would otherwise stay in memory."""
    func = tile(2)
    result = Unroll(max_copies=1).run(func, TARGET)
    assert str(result).splitlines()[3:7] == [
        "        for k in range(2):", "            T[k] = A[k] * 2.0", "        for k in range(2):", "            T[k + 2] = A[k + 2] * 2.0",
    ]  # fmt: skip
    same_values(func, result)


def test_other_unrolled_loops_stay():
    func = tile(2, place="call")
    assert Unroll().run(func, TARGET) is func
    large = tile(100)
    result = Unroll(max_stores=99, max_copies=1).run(large, TARGET)
    assert result is large
    n = Var("n", "int32", (1, 2))
    t, i = Buffer("T", (2,)), Var("i", "int32", (0, 1))
    symbolic = Func("f", (), frozenset(), Allocate(t, For(i, n, "unrolled", Store(t, (i,), const(1.0, "float32"))), Place("stack")), (n,))
    assert Unroll().run(symbolic, TARGET) is symbolic


def test_a_loop_of_which_the_tile_does_not_depend_is_left_to_the_compiler():
    t, a, i = Buffer("T", (1,)), Buffer("A", (8,)), Var("i", "int32", (0, 7))
    body = For(i, const(8), "unrolled", Store(t, (const(0),), load(t, (const(0),)) + load(a, (i,))))
    func = Func("f", (a,), frozenset(), Allocate(t, body, Place("stack")))
    assert Unroll().run(func, TARGET) is func


def test_loops_over_a_tile_with_a_remaining_guard_stay():
    """`i` of the guard becomes a constant, `rows` does not."""
    func = tile(2)
    rows = Var("rows", "int32", (0, 1))
    outer = func.body
    assert isinstance(outer, For) and isinstance(outer.body, Allocate) and isinstance(outer.body.body, Seq)
    fill, copy = outer.body.body.body
    assert isinstance(fill, For)
    guarded = fill.with_body(If(fill.var <= rows, fill.body))
    body = For(rows, const(2), "serial", Allocate(outer.body.buffer, seq(guarded, copy), outer.body.place))
    remainder = func.with_body(body)
    assert Unroll().run(remainder, TARGET) is remainder


def test_a_pragma_unrolls_what_takes_few_steps():
    func = tile(2, kind="serial", pragmas=(("auto_unroll_max_step", 4),))
    result = Unroll().run(func, TARGET)
    assert str(result).splitlines()[3:7] == [f"        T[{n}] = A[{n}] * 2.0" for n in range(4)]
    same_values(func, result)
    few = Unroll(max_copies=1).run(tile(2, kind="serial", pragmas=(("auto_unroll_max_step", 3),)), TARGET)
    assert "for i in range(2)" in str(few) and "for k" not in str(few) and "pragma" not in str(few)
    in_memory = Unroll().run(tile(2, kind="serial", place="call", pragmas=(("auto_unroll_max_step", 4),)), TARGET)
    assert "for i in unrolled(2)" in str(in_memory)
