"""Legalize: before -> after, as text; and values, by the interpreter, where the rewriting is more than a word."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tir import expr as E
from tilewright.tir.dtype import dtype
from tilewright.tir.expr import Buffer, Var, broadcast, call, cast, const, if_then_else, load, ramp, select
from tilewright.tir.interp import interpret
from tilewright.tir.passes.legalize import Legalize
from tilewright.tir.stmt import For, Func, If, store
from tilewright.tir.target import Target

i, j = Var("i", "int32", (0, 63)), Var("j", "int32", (-4, 63))
n = Var("n", "int32", (0, None))
A, H, B, X = Buffer("A", (64,)), Buffer("H", (64,), "float16"), Buffer("B", (64,), "bool"), Buffer("X", (64,), "int32")


def legal(e, out: str | None = None):
    """The legal form of an expression."""
    O = Buffer("O", (64,), out or e.dtype.element)
    func = Func("f", (A, H, B, X, O), frozenset([O]), store(O, [ramp(const(0), 1, e.dtype.lanes)], e))
    return Legalize().run(func, Target("c")).body


h, a, x = load(H, [i]), load(A, [i]), load(X, [i])
lanes = ramp(i * 8, 1, 8)
mask = E.lt(lanes, broadcast(const(20), 8))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (i // 4, "truncdiv(i, 4)"),
        (i % 4 + i // 3 % 5, "truncmod(i, 4) + truncmod(truncdiv(i, 3), 5)"),
        (j // 4, "j // 4"),
        (i // n, "i // n"),  # n may be 0
        (x // 4, "X[i] // 4"),
        (load(X, [lanes]) // 4, "shift_right(X[ramp(i * 8, 1, 8)], broadcast(2, 8))"),
        (load(X, [lanes]) % 8, "bitwise_and(X[ramp(i * 8, 1, 8)], broadcast(7, 8))"),
        (h + h, "float16(float32(H[i]) + float32(H[i]))"),
        (call("exp", h), "float16(exp(float32(H[i])))"),
        (E.lt(h, load(H, [i + 1])), "float32(H[i]) < float32(H[i + 1])"),
        (E.maximum(h, const(0.0, "float16")), "float16(max(float32(H[i]), 0.0))"),
        (cast(h, dtype("bfloat16")), "bfloat16(float32(H[i]))"),
        (cast(x, dtype("float16")), "float16(float32(X[i]))"),
        (cast(a, dtype("int8")), "int8(int32(A[i]))"),
        (cast(a, dtype("uint32")), "uint32(int64(A[i]))"),
        (cast(load(A, [lanes]), dtype("int8")), "int8x8(int16x8(int32x8(A[ramp(i * 8, 1, 8)])))"),
        (E.maximum(load(B, [i]), load(B, [i + 1])), "B[i] or B[i + 1]"),
        (E.lt(load(B, [i]), load(B, [i + 1])), "not B[i] and B[i + 1]"),
        (load(A, [i], E.lt(i, n)), "if_then_else(i < n, A[i], 0.0)"),
        (load(A, [lanes], broadcast(E.lt(i, n), 8)), "if_then_else(i < n, A[ramp(i * 8, 1, 8)], broadcast(0.0, 8))"),
        (a + x, "A[i] + float32(X[i])"),
        (select(E.lt(i, n), a, 0.5 + a), "select(i < n, A[i], A[i] + 0.5)"),
    ],
    ids=str,
)
def test_before_and_after(before, after):
    assert str(legal(before).value) == after


def test_lanes_of_a_choice_are_selected_and_their_loads_guarded():
    got = str(legal(if_then_else(mask, load(A, [lanes]) * 2.0, broadcast(load(A, [i]), 8))).value)
    assert got == (
        "select(ramp(i * 8, 1, 8) < broadcast(20, 8), A[ramp(i * 8, 1, 8) if ramp(i * 8, 1, 8) < broadcast(20, 8)] * broadcast(2.0, 8), "
        "A[broadcast(i, 8) if broadcast(20, 8) <= ramp(i * 8, 1, 8)])"
    )


def test_a_store_under_a_scalar_predicate_is_an_if():
    O = Buffer("O", (64,))
    func = Func("f", (A, O), frozenset([O]), store(O, [i], a, E.lt(i, n)))
    body = Legalize().run(func, Target("c")).body
    assert isinstance(body, If) and str(body) == "if i < n:\n    O[i] = A[i]"


def test_what_is_legal_comes_back_as_it_is():
    func = Func("f", (A,), frozenset([A]), For(i, const(64), "serial", store(A, [i], a * 2.0)))
    assert Legalize().run(func, Target("c")) is func


def test_guards_in_an_arm_that_reads_through_an_index_and_a_nested_choice():
    """The only lanes that may read are those of all the choices around; the others would be far outside."""
    O = Buffer("O", (64,))
    outer, inner = E.lt(load(X, [lanes]), broadcast(const(64), 8)), E.le(const(0, "int32x8"), load(X, [lanes]))
    far = load(A, [load(X, [E.add(lanes, E.mul(load(X, [lanes]), const(0, "int32x8")))])])
    one = broadcast(if_then_else(E.lt(i, const(4)), load(A, [i]), load(A, [i + 1]) + 1.0), 8)
    value = if_then_else(outer, if_then_else(inner, far, one), const(-1.0, "float32x8"))
    func = Func("f", (A, X, O), frozenset([O]), For(i, const(8), "serial", store(O, [lanes], value)))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(64).astype("f"), rng.integers(-50, 150, 64).astype("int32"), np.zeros(64, "f")]
    results = []
    for each in (func, Legalize().run(func, Target("c"))):
        copies = [c.copy() for c in arrays]
        interpret(each, copies)
        results.append(copies[2])
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] == -1).any() and (results[0] != -1).any()
