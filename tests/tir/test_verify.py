"""The checks of facts: each finds what it is for, and is silent about what is right or cannot be known."""

from __future__ import annotations

import pytest

from tilewright.tir.dtype import FLOAT32, INT64
from tilewright.tir.expr import Buffer, Var, add, call, cast, const, if_then_else, load, ramp, select
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Place, Prefetch, Seq, Stmt, Store, seq
from tilewright.tir.verify import FACTS

I, J = Var("i", "int32", (0, 7)), Var("j", "int32", (0, 3))
N = Var("n", "int32", (0, None))
A, B, T, P = Buffer("A", (8,)), Buffer("B", (8,)), Buffer("T", (4,)), Buffer("P", (8,), "int32")
ONE = const(1.0, "float32")


def problems(fact: str, body: Stmt, sizes=(), workspace=(0, 0)) -> list[str]:
    return FACTS[fact].check(Func("f", (A, P, B), frozenset([B]), body, sizes, workspace))


def loop(body: Stmt, var=I, extent=8, kind="serial") -> For:
    return For(var, const(extent) if isinstance(extent, int) else extent, kind, body)


def forged(node, **fields):
    """A copy of a node with wrong parts, past the constructors that refuse them."""
    new = object.__new__(type(node))
    for cls in type(node).__mro__:
        for name in getattr(cls, "__slots__", ()):
            if name != "__weakref__":
                setattr(new, name, fields.get(name, getattr(node, name)))
    return new


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (Store(B, (I,), const(1)), "B holds float32, so the value is float32, found int32"),
        (Store(B, (ramp(I, 1, 4),), ONE), "the value is float32x4, found float32"),
        (Store(B, (I, I), ONE), "B has 1 dimensions, found 2 indices"),
        (Store(B, (ONE,), ONE), "indices are float32"),
        (Store(B, (I,), ONE, I), "a condition is int32, expected bool of 1 lanes"),
        (Store(B, (I,), forged(add(load(A, (I,)), ONE), b=I)), "operands are float32 and int32"),
        (Store(B, (I,), forged(load(A, (I,)) < 1, dtype=FLOAT32)), "is float32, expected bool"),
        (Store(B, (I,), forged(select(I < 2, ONE, load(A, (I,))), then=I)), "arms are int32 and float32, the result float32"),
        (Store(B, (I,), forged(if_then_else(I < 2, ONE, load(A, (I,))), condition=I)), "a condition is int32"),
        (Store(B, (I,), forged(ramp(I, 1, 4), stride=ONE)), "a ramp of int32 and float32"),
        (Store(B, (I,), forged(cast(ramp(I, 1, 4), FLOAT32), dtype=FLOAT32)), "has 4 lanes, expected 1"),
        (Store(B, (I,), forged(call("pow", load(A, (I,)), ONE), args=(ONE, I))), "arguments are float32, int32"),
        (If(load(A, (I,)), Store(B, (I,), ONE)), "a condition is float32"),
        (Bind(Var("v", "int32"), ONE, Store(B, (I,), ONE)), "a float32 is bound to v of dtype int32"),
        (loop(Store(B, (I,), ONE), extent=ONE), "an extent is float32"),
    ],
)
def test_typed(body, message):
    assert any(message in p for p in problems("typed", body)), problems("typed", body)


def test_typed_accepts_what_is_right():
    lanes = ramp(I, 1, 4)
    value = if_then_else(lanes < 3, load(A, (lanes,), lanes < 2), cast(lanes, FLOAT32))
    body = seq(Prefetch(A, (I + 100,)), Store(B, (lanes,), value, lanes < 3), If(I < 3, Store(B, (I,), select(I < 2, ONE, ONE * 2.0))))
    assert problems("typed", body) == []


def test_closed():
    right = loop(Allocate(T, loop(Store(T, (J,), load(A, (I,))), J, 4)))
    assert problems("closed", seq(right, right)) == []
    assert problems("closed", Store(B, (I,), ONE)) == ["i is used in i, where it is not known"]
    assert problems("closed", loop(Store(T, (J,), ONE), J, 4)) == [f"T is accessed where it is not known: {Store(T, (J,), ONE)}"]
    assert "T is used in T[0], where it is not known" in problems("closed", Store(B, (const(0),), load(T, (const(0),))))
    assert problems("closed", loop(loop(Store(B, (I,), ONE)))) == ["i is introduced again where it is known already"]
    assert problems("closed", loop(Seq(()), extent=9)) == ["i was made for values from 0 to 7, but its loop runs 9 times from 0"]
    assert problems("closed", loop(Store(B, (I,), ONE), extent=N)) == ["n is used in n, where it is not known"]
    assert problems("closed", loop(Store(B, (I,), ONE), extent=N), sizes=(N,)) == []
    v = Var("v")
    assert problems("closed", Bind(v, v + 1, Store(B, (v,), ONE))) == ["v is used in v + 1, where it is not known"]
    assert FACTS["closed"].check(Func("f", (), frozenset([B]), Seq(()))) == ["B is an output but no parameter"]


def test_in_bounds():
    assert problems("in_bounds", loop(Store(B, (I,), load(A, (7 - I,))))) == []
    assert problems("in_bounds", loop(Store(B, (I + 1,), ONE))) == ["B[i + 1] is B[8], outside B: float32[8], at i = 7"]
    assert problems("in_bounds", loop(If(I + 1 < 8, Store(B, (I + 1,), ONE)))) == []
    assert problems("in_bounds", loop(If(I < 7, Store(B, (I,), ONE), Store(B, (I + 1,), ONE)))) != []
    assert problems("in_bounds", loop(If(load(P, (I,)) < 7, Store(B, (I + 1,), ONE)))) == []  # who knows
    assert problems("in_bounds", loop(Store(B, (load(P, (I,)),), ONE))) == []
    assert problems("in_bounds", loop(Prefetch(B, (I + 100,)))) == []


def test_in_bounds_of_conditional_reads():
    shifted = load(A, (I - 1,))
    assert problems("in_bounds", loop(Store(B, (I,), if_then_else(I >= 1, shifted, ONE)))) == []
    assert problems("in_bounds", loop(Store(B, (I,), select(I >= 1, shifted, ONE)))) != []
    assert problems("in_bounds", loop(Store(B, (I,), load(A, (I - 1,), I >= 1)))) == []
    assert problems("in_bounds", loop(Store(B, (I,), if_then_else(I >= 2, ONE, shifted)))) != []
    lanes = ramp(J * 4, 1, 4)
    assert problems("in_bounds", loop(Store(B, (lanes,), load(A, (lanes,)), lanes < 8), J, 4)) != []  # the load
    assert problems("in_bounds", loop(Store(B, (lanes,), load(A, (lanes,), lanes < 8), lanes < 8), J, 4)) == []
    guarded = if_then_else(lanes < 8, load(A, (lanes,)), load(A, (lanes - 8,)))
    assert problems("in_bounds", loop(Store(B, (ramp(J * 0, 1, 4),), guarded), J, 4)) == []


def test_in_bounds_with_symbolic_sizes_and_dependent_extents():
    i, j = Var("i", "int32", (0, None)), Var("j", "int32", (0, None))
    s = Buffer("S", (N, N))
    inside = Allocate(s, For(i, N, "serial", For(j, i + 1, "serial", Store(s, (i, j), ONE))))
    assert problems("in_bounds", inside, sizes=(N,)) == []
    outside = Allocate(s, For(i, N, "serial", For(j, i + 2, "serial", Store(s, (i, j), ONE))))
    assert "outside S: float32[n, n]" in problems("in_bounds", outside, sizes=(N,))[0]


def test_race_free():
    assert problems("race_free", loop(Store(B, (I,), ONE), kind="parallel")) == []
    assert problems("race_free", loop(Store(B, (const(0),), ONE), kind="serial")) == []
    assert problems("race_free", loop(Store(B, (const(0),), ONE), kind="parallel")) != []
    assert problems("race_free", loop(Store(B, (const(0),), ONE), extent=1, kind="parallel")) == []
    own = Allocate(T, loop(Store(T, (J,), ONE), J, 4))
    assert problems("race_free", loop(own, kind="parallel")) == []
    assert problems("race_free", Allocate(T, loop(loop(Store(T, (J,), ONE), J, 4), kind="parallel"))) != []
    tiles = [loop(loop(Store(B, (I * 4 + J,), ONE), J, width), extent=2, kind="parallel") for width in (4, 5)]
    assert problems("race_free", tiles[0]) == []
    assert "iteration i = 1 of a parallel loop writes B[4], which iteration i = 0 writes" in problems("race_free", tiles[1])
    carried = loop(If(I >= 1, Store(B, (I,), load(B, (I - 1,)))), kind="parallel")
    assert "iteration i = 3 of a parallel loop reads B[2], which iteration i = 2 writes" in problems("race_free", carried)
    assert problems("race_free", loop(If(I < 1, Store(B, (const(0),), ONE)), kind="parallel")) == []


def test_flat_and_no_vector_loops():
    assert problems("flat", Store(B, (const(0),), ONE)) == []
    wide, padded = Buffer("W", (2, 2)), Buffer("S", (4,), strides=(2,))
    assert problems("flat", Allocate(wide, Allocate(padded, Seq(())))) == ["S: float32[4] is not flat", "W: float32[2, 2] is not flat"]
    assert problems("no_vector_loops", loop(Seq(()), kind="vectorized")) == ["loop i is vectorized"]
    assert problems("no_vector_loops", loop(Seq(()), kind="unrolled")) == []


def test_placed():
    body = loop(Store(T, (J,), ONE), J, 4)
    assert problems("placed", Allocate(T, body)) == ["T: float32[4] has no place"]
    assert problems("placed", Allocate(T, body, Place("stack"))) == []
    assert problems("placed", Allocate(T, body, Place("call", 16)), workspace=(32, 0)) == []
    assert "ends outside the workspace of 16 bytes" in problems("placed", Allocate(T, body, Place("call", 16)), workspace=(16, 64))[0]
    assert "ends outside" in problems("placed", Allocate(T, body, Place("thread", 0)), workspace=(64, 0))[0]
    assert "does not suit its dtype" in problems("placed", Allocate(T, body, Place("call", 2)), workspace=(64, 0))[0]
    n = Buffer("S", (N,))
    assert problems("placed", Allocate(n, Store(n, (const(0),), ONE), Place("stack")), sizes=(N,)) == [
        "S: float32[n] is on the stack but its size is not constant"
    ]


def test_narrow():
    assert problems("narrow", loop(Store(B, (I * 1_000_000_000 // 1_000_000_000,), ONE))) == ["i * 1000000000 is 7000000000 somewhere, which int32 cannot hold"]
    wide = cast(I, INT64) * 1_000_000_000
    assert problems("narrow", loop(Store(B, (wide // 1_000_000_000,), ONE))) == []
