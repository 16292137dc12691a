"""The simplify pass on statements: before and after."""

import numpy as np
import pytest

from tilewright import tir
from tilewright.tir import Buffer, Func, Var
from tilewright.tir.expr import add, as_expr, const, load, logical_and, select
from tilewright.tir.interp import interpret
from tilewright.tir.passes.simplify import Simplify, simplify_function
from tilewright.tir.stmt import Allocate, Bind, For, If, Prefetch, Produce, Seq, Stmt, seq, store
from tilewright.tir.target import Target

A, B = Buffer("A", (64,)), Buffer("B", (64,))


def loop(name: str, extent, body, kind: str = "serial", thread: str | None = None) -> For:
    """A loop whose body is made from its variable."""
    bounds = (0, extent - 1) if isinstance(extent, int) else (0, None)
    var = Var(name, bounds=bounds)
    return For(var, as_expr(extent), kind, body(var), thread)


def put(index, value=None) -> Stmt:
    return store(B, [index], load(A, [index]) if value is None else value)


def function(body: Stmt, sizes=()) -> Func:
    return Func("f", (A, B), frozenset([B]), body, tuple(sizes))


def body_after(body: Stmt, sizes=()) -> str:
    func = function(body, sizes)
    done = simplify_function(func)
    assert simplify_function(done) is done
    return "\n".join(line.removeprefix("    ") for line in str(done).splitlines()[1:])


n = Var("n", bounds=(0, None))

CASES = {
    "index arithmetic": (
        loop("i", 8, lambda i: loop("j", 8, lambda j: put((i * 16 + j * 2) // 16 * 8 + j % 8))),
        "for i in range(8):\n    for j in range(8):\n        B[i * 8 + j] = A[i * 8 + j]",
    ),
    "a loop of extent 1": (loop("i", 8, lambda i: loop("j", 1, lambda j: put(i + j))), "for i in range(8):\n    B[i] = A[i]"),
    "a thread of extent 1": (
        loop("t", 1, lambda t: put(t), "thread", "threadIdx.x"),
        "for t in thread[threadIdx.x](1):\n    B[t] = A[t]",
    ),
    "a loop of extent 0": (seq(put(const(3)), loop("i", 0, put)), "B[3] = A[3]"),
    "nothing left": (loop("i", 8, lambda i: If(i > 9, put(i))), "pass"),
    "a decided branch": (
        loop("i", 8, lambda i: seq(If(i < 8, put(i)), If(i > 7, put(i), put(i + 8)))),
        "for i in range(8):\n    B[i] = A[i]\n    B[i + 8] = A[i + 8]",
    ),
    "a condition known from outside": (
        loop("i", 8, lambda i: If(i < 5, seq(If(i < 6, put(i)), loop("j", 4, lambda j: If(i * 4 + j < 20, put(i * 4 + j)))))),
        "for i in range(8):\n    if i < 5:\n        B[i] = A[i]\n        for j in range(4):\n            B[i * 4 + j] = A[i * 4 + j]",
    ),
    "the other branch knows the opposite": (
        loop("i", 8, lambda i: If(i < 5, put(i), If(i >= 5, put(i + 1)))),
        "for i in range(8):\n    if i < 5:\n        B[i] = A[i]\n    else:\n        B[i + 1] = A[i + 1]",
    ),
    "only the other branch does something": (
        loop("i", 8, lambda i: If(i < 5, Seq(()), put(i))),
        "for i in range(8):\n    if 4 < i:\n        B[i] = A[i]",
    ),
    "a symbolic extent": (
        loop("i", n, lambda i: loop("j", 4, lambda j: If(i * 4 + j < n * 4, put(i * 4 + j)))),
        "for i in range(n):\n    for j in range(4):\n        B[i * 4 + j] = A[i * 4 + j]",
    ),
    "an extent that becomes a constant": (
        loop("i", 3, lambda i: For(Var("j", bounds=(0, 7)), tir.min(i + 8, 8), "serial", put(i))),
        "for i in range(3):\n    for j in range(8):\n        B[i] = A[i]",
    ),
    "what an inner loop does not change stands together": (
        loop("k", 2, lambda k: loop("j", 4, lambda j: loop("u", 4, lambda u: put(u + j * 4 + k * 16), "unrolled"))),
        "for k in range(2):\n    for j in range(4):\n        for u in unrolled(4):\n            B[k * 16 + j * 4 + u] = A[k * 16 + j * 4 + u]",
    ),
    "a predicate": (
        loop("i", 4, lambda i: seq(store(B, [i], load(A, [i]), i < 4), store(B, [i], load(A, [i]), i > 3))),
        "for i in range(4):\n    B[i] = A[i]",
    ),
    "names and hints": (
        Produce("B", Allocate(Buffer("T", (4,)), loop("i", 4, lambda i: seq(Prefetch(A, (i + 0 * i + 1,)), put(i))))),
        "produce B:\n    allocate T: float32[4]\n    for i in range(4):\n        prefetch A[i + 1]\n        B[i] = A[i]",
    ),
}


@pytest.mark.parametrize(("body", "expected"), CASES.values(), ids=CASES.keys())
def test_before_and_after(body, expected):
    assert body_after(body, [n] if "n" in expected else []) == expected


def test_bound_values():
    i, t, u = Var("i", bounds=(0, 7)), Var("t"), Var("u")
    inner = loop("j", t, lambda j: If(i * 8 + j < 64, put(i * 8 + j)))
    body = For(i, const(8), "serial", Bind(t, tir.min(8 - i, 8), Bind(u, t, seq(inner, put(u)))))
    assert body_after(body).splitlines()[1:] == [
        "    t = 8 - i",
        "    for j in range(t):",
        "        B[i * 8 + j] = A[i * 8 + j]",
        "    B[t] = A[t]",
    ]


def test_what_memory_said_is_not_known_after_a_store():
    flag = load(B, [const(0)]) < 1.0
    again = If(flag, seq(store(B, [const(0)], const(2.0, "float32")), If(flag, put(const(1)), put(const(2)))))
    assert body_after(again) == str(function(again)).split("\n", 1)[1].replace("\n    ", "\n").removeprefix("    ")
    i, t = Var("i", bounds=(0, 7)), Var("t")
    choice = select(flag, const(1), const(2))
    changed = seq(store(B, [const(0)], const(2.0, "float32")), If(t < choice, put(i), put(i + 1)))
    assert "if t < select(B[0] < 1.0, 1, 2):" in body_after(For(i, const(8), "serial", Bind(t, choice, changed)))


def test_a_divisor_that_turns_out_to_be_zero():
    i = Var("i", bounds=(0, 0))
    quotient = select(i > 0, const(7) // i, const(3)) + 7 % i
    real = load(A, [i]) / i.astype("float32")
    assert body_after(For(i, const(1), "serial", put(quotient))) == "B[3] = A[3]"
    assert body_after(For(i, const(1), "serial", put(i, real))) == "B[0] = A[0] * inf"


def test_copies_of_a_body_share_variables_but_not_what_is_known_of_them():
    i = Var("i", bounds=(0, 7))
    body = put(i + 1)
    copies = seq(For(i, const(8), "serial", body), For(i, const(1), "serial", body), For(i, const(8), "serial", body))
    assert body_after(copies) == "for i in range(8):\n    B[i + 1] = A[i + 1]\nB[1] = A[1]\nfor i in range(8):\n    B[i + 1] = A[i + 1]"


def test_shapes_are_not_negative():
    size = Var("size")
    X = Buffer("X", (size,))
    body = For(Var("i", bounds=(0, None)), tir.max(size, 0), "serial", store(B, [const(0)], load(A, [const(0)])))
    done = simplify_function(Func("f", (A, B, X), frozenset([B]), body, (size,)))
    assert "in range(size)" in str(done)


def test_unchanged_is_the_same_object():
    func = function(loop("i", 8, lambda i: If(i < n, seq(put(i), loop("j", 4, lambda j: put(i * 4 + j))))), [n])
    assert Simplify().run(func, Target.parse("c")) is func


@pytest.mark.parametrize("seed", range(20))
def test_values_stay(seed):
    rng = np.random.default_rng(seed)
    c = [int(v) for v in rng.integers(1, 9, 8)]

    def inner(i, j):
        index = (i * c[0] + j * c[1]) // c[2] % 64
        guard = logical_and(i * c[3] + j < c[4] * 8, (j * c[5] + i) % c[6] < c[7])
        return seq(If(guard, put(index, load(A, [(i + j) % 64])), put((index + 1) % 64)), put(add(index, j) % 64))

    func = function(loop("i", c[2], lambda i: loop("j", 9, lambda j: inner(i, j))))
    a, before, after = rng.standard_normal(64).astype("f"), np.zeros(64, "f"), np.zeros(64, "f")
    interpret(func, [a, before])
    interpret(simplify_function(func), [a, after])
    np.testing.assert_array_equal(before, after)
