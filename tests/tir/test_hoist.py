"""Hoist: what moves and where to, what must not, and that the result is the same."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.tir.dtype import dtype
from tilewright.tir.expr import Buffer, Const, Var, as_expr, broadcast, call, cast, const, if_then_else, load, logical_and, maximum, ramp
from tilewright.tir.interp import interpret
from tilewright.tir.passes.hoist import Hoist
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Place, Seq, nested, seq, store
from tilewright.tir.target import Target
from tilewright.tir.verify import FACTS


def loop(name, extent, kind="serial"):
    extent = as_expr(extent)
    bounds = (0, extent.value - 1) if isinstance(extent, Const) else (0, None)
    return For(Var(name, "int32", bounds), extent, kind, Seq(()))


def hoisted(body, *buffers, sizes=(), check=True, **options):
    func = Func("f", buffers, frozenset(buffers[-1:]), body, sizes)
    new = Hoist(**options).run(func, Target("c"))
    for fact in ("typed", "closed", "in_bounds", "race_free"):
        assert not FACTS[fact].check(new), fact
    if check:
        rng = np.random.default_rng(11)
        for trial in range(2):
            extents = [b.constant_size or 64 for b in buffers]
            inputs = [rng.integers(-9, 9, n).astype(str(b.dtype)) for b, n in zip(buffers, extents, strict=True)]
            results = []
            for each in (func, new):
                arrays = [a.copy() for a in inputs]
                interpret(each, arrays, [trial * 3 for _ in sizes])
                results.append(arrays)
            for before, after in zip(*results, strict=True):
                np.testing.assert_array_equal(before, after)
    return [line.removeprefix("    ") for line in str(new).splitlines()[1:]]


A, B, C = Buffer("A", (64,)), Buffer("B", (64,)), Buffer("C", (64,))


def test_a_guarded_load_leaves_the_loops_it_does_not_depend_on():
    i, j, k = loop("i", 4), loop("j", 4), loop("k", 4)
    value = if_then_else(i.var > 0, load(A, [i.var - 1]), const(0.0, "float32")) * load(B, [j.var * 4 + k.var])
    assert hoisted(nested([i, j, k], store(C, [i.var * 16 + j.var * 4 + k.var], value)), A, B, C) == [
        "for i in range(4):",
        "    t = if_then_else(0 < i, A[i - 1], 0.0)",
        "    for j in range(4):",
        "        for k in range(4):",
        "            C[i * 16 + j * 4 + k] = t * B[j * 4 + k]",
    ]


def test_each_part_goes_as_far_as_it_can_and_equal_parts_share_a_variable():
    i, j, k, m = loop("i", 4), loop("j", 4), loop("k", 4), loop("m", 4)
    shared = call("exp", load(A, [i.var]))
    body = seq(
        nested([k], store(C, [i.var * 16 + j.var * 4 + k.var], shared + load(B, [i.var + j.var]))),
        nested([m], store(C, [i.var * 16 + j.var * 4 + m.var], load(C, [i.var * 16 + j.var * 4 + m.var]) * shared)),
    )
    assert hoisted(nested([i, j], body), A, B, C) == [
        "for i in range(4):",
        "    exp = exp(A[i])",
        "    for j in range(4):",
        "        t = exp + B[i + j]",
        "        for k in range(4):",
        "            C[i * 16 + j * 4 + k] = t",
        "        for m in range(4):",
        "            C[i * 16 + j * 4 + m] = C[i * 16 + j * 4 + m] * exp",
    ]


def test_plain_index_arithmetic_is_left_to_the_compiler_but_divisions_are_not():
    i, j = loop("i", 8), loop("j", 8)
    assert hoisted(nested([i, j], store(C, [i.var * 8 + j.var], load(A, [i.var // 3 * 8 + i.var // 4 + j.var]))), A, C) == [
        "for i in range(8):",
        "    t = i // 3 * 8 + i // 4",
        "    for j in range(8):",
        "        C[i * 8 + j] = A[t + j]",
    ]
    i, j = loop("i", 8), loop("j", 8)
    same = nested([i, j], store(C, [i.var * 8 + j.var], const(1.0, "float32")))
    assert not any(" = i" in line for line in hoisted(same, A, C))


def stays(body, *buffers, **options):
    """No let-binding anywhere."""
    lines = hoisted(body, *buffers, **options)
    return not any(line.strip().startswith(("t = ", "A_value", "B_value", "C_value", "T_value", "exp = ")) for line in lines)


def test_a_store_that_may_change_what_is_read_keeps_it_in_the_loop():
    j = loop("j", 8)
    assert stays(nested([j], store(C, [j.var], load(C, [as_expr(3)]) + 1.0)), A, C)
    j, k = loop("j", 8), loop("k", 8)
    assert stays(nested([j], seq(nested([k], store(C, [k.var * 8], load(C, [j.var]) * 2.0)))), A, C)
    t, j, k = Buffer("T", (8,)), loop("j", 8), loop("k", 8)
    body = seq(store(t, [as_expr(0)], load(A, [j.var])), nested([k], store(C, [j.var * 8 + k.var], load(t, [as_expr(0)]))))
    lines = hoisted(Allocate(t, nested([j], body)), A, C)
    assert lines[2:5] == ["    T[0] = A[j]", "    T_value = T[0]", "    for k in range(8):"]


def test_a_guard_stays_around_what_it_guards():
    i, j = loop("i", 8), loop("j", 8)
    body = nested([i, j], If(i.var * 10 < 60, store(C, [i.var * 8 + j.var], load(A, [i.var * 10]))))
    assert stays(body, A, C)
    i, j = loop("i", 8), loop("j", 8)
    value = if_then_else(j.var < 4, if_then_else(i.var * 10 < 60, load(A, [i.var * 10]), const(0.0, "float32")), const(1.0, "float32"))
    assert stays(nested([i, j], store(C, [i.var * 8 + j.var], value)), A, C)
    i, j = loop("i", 8), loop("j", 8)
    body = nested([i], If(i.var * 10 < 60, nested([j], store(C, [i.var * 8 + j.var], load(A, [i.var * 10])))))
    assert hoisted(body, A, C)[1:4] == ["    if i * 10 < 60:", "        A_value = A[i * 10]", "        for j in range(8):"]


def test_a_load_leaves_a_loop_that_may_not_run_only_if_it_is_inside_its_buffer():
    n = Var("n", "int32", (0, 64))
    for index, moves in ((as_expr(5), True), (n - 1, False)):
        j = loop("j", n)
        assert stays(nested([j], store(C, [j.var], load(A, [index]))), A, C, sizes=(n,)) is not moves


def test_a_division_that_may_trap_stays_in_a_loop_that_may_not_run():
    n = Var("n", "int32", (0, 64))
    i32, c32 = Buffer("A", (64,), "int32"), Buffer("C", (64,), "int32")
    j = loop("j", n)
    lines = hoisted(nested([j], store(c32, [j.var], as_expr(100) // load(i32, [as_expr(0)]))), i32, c32, sizes=(n,), check=False)
    assert lines[0] == "A_value = A[0]" and "100 // A_value" in lines[-1]


def test_nothing_leaves_a_parallel_loop_or_what_introduces_it():
    p, j = loop("p", 8, "parallel"), loop("j", 8)
    assert hoisted(nested([p, j], store(C, [p.var * 8 + j.var], load(A, [as_expr(2)]))), A, C)[:3] == [
        "for p in parallel(8):",
        "    A_value = A[2]",
        "    for j in range(8):",
    ]
    i, j, x, t = loop("i", 8), loop("j", 8), Var("x", "int32", (0, 8)), Buffer("T", (8,))
    inner = Bind(x, j.var // 2, Allocate(t, seq(store(t, [x], load(A, [x])), store(C, [i.var * 8 + j.var], load(t, [x])))))
    lines = hoisted(nested([i, j], inner), A, C)
    assert lines[2] == "        x = j // 2" and lines[4:] == ["        T[x] = A[x]", "        C[i * 8 + j] = T[x]"]


def test_registers_are_not_copied():
    t, j = Buffer("T", (8,), scope="local"), loop("j", 8)
    assert stays(Allocate(t, seq(store(t, [as_expr(0)], const(1.0, "float32")), nested([j], store(C, [j.var], load(t, [as_expr(0)])))), Place("stack")), A, C)


def test_vectors_and_integers_that_wrap():
    a, c = Buffer("A", (64,), "int32"), Buffer("C", (64,), "int32")
    i, j = loop("i", 2), loop("j", 4)
    value = (load(a, [ramp(i.var, 1, 8)]) + load(a, [ramp(j.var, 1, 8)])) * broadcast(load(a, [i.var]), 8) * const(1 << 30, "int32x8")
    lines = hoisted(nested([i, j], store(c, [ramp(i.var * 32 + j.var * 8, 1, 8)], value)), a, c)
    assert lines[1:4] == ["    A_value = A[ramp(i, 1, 8)]", "    A_value_1 = broadcast(A[i], 8)", "    for j in range(4):"]


def test_long_trees_are_written_as_graphs():
    x = load(A, [as_expr(0)])
    for _ in range(40):
        x = maximum(x * x + 1.0, x * 0.5)
    lines = hoisted(store(C, [as_expr(0)], x), A, C, check=False)
    assert len(lines) <= 42 and max(map(len, lines)) < 200
    x = load(A, [as_expr(0)])
    x = x * x + x
    assert hoisted(store(C, [as_expr(0)], x), A, C) == ["C[0] = A[0] * A[0] + A[0]"]


def test_repeated_parts_stay_behind_their_guard():
    n = Var("n", "int32", (0, 100))
    x = load(A, [n + 60])
    for _ in range(8):
        x = x * x + x
    lines = hoisted(store(C, [as_expr(0)], if_then_else(n < 2, x, const(0.0, "float32"))), A, C, sizes=(n,))
    assert len(lines) == 1


@settings(max_examples=80, deadline=None, print_blob=True)
@given(
    coefficients=st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=4, max_size=4),
    low=st.integers(0, 20),
    extents=st.tuples(*[st.integers(1, 3)] * 3),
    which=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    guard=st.integers(0, 2),
    deep=st.booleans(),
)
def test_random_nests_mean_the_same(coefficients, low, extents, which, guard, deep):
    """Loads and stores of three buffers, one of them both read and written, at random sums of three loops."""
    loops = [loop(n, e) for n, e in zip("xyz", extents, strict=True)]
    x, y, z = (each.var for each in loops)
    buffers = (A, B, C)

    def index(k):
        a, b, c = coefficients[k]
        return [x * a + y * b + z * c + 3 * k]

    value = load(buffers[which[0]], index(0)) * 2.0 + call("floor", load(buffers[which[1]], index(1)))
    limit = (x, y, z)[guard]
    value = value + if_then_else(logical_and(as_expr(low) <= limit * 9, limit < 2), load(A, [limit * 9 - low]), cast(x // 3, dtype("float32")))
    innermost = store(C, index(2), value)
    if deep:
        innermost = seq(store(B, index(3), load(C, index(0))), If(y < 1, innermost))
    hoisted(nested([loops[0]], seq(store(B, [x], load(A, [x])), nested(loops[1:], innermost))), A, B, C)
