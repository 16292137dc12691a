"""The Analyzer: index arithmetic, conditions and choices, what is told and forgotten, proofs; and random expressions at every point."""

import sys

import pytest
from hypothesis import given, settings

from tilewright import tir
from tilewright.tir import Analyzer, Buffer, Var, matching
from tilewright.tir import expr as ir
from tilewright.tir.errors import InternalError
from tilewright.tir.expr import broadcast, call, const, if_then_else, load, logical_and, logical_not, logical_or, ramp, select
from tilewright.tir.interval import interval
from tilewright.tir.node import COUNTERS

from .evaluation import Generator, evaluate, points, seeds

i, j, k = Var("i", bounds=(0, 7)), Var("j", bounds=(0, 15)), Var("k", bounds=(1, 16))
f = Var("f", bounds=(0, 6271))  # 2 * 56 * 56
d = Var("d", bounds=(0, 3))
n, m = Var("n", bounds=(1, None)), Var("m", bounds=(1, None))
free = Var("free")
WORDS, BYTES, FLOATS = (Buffer(name, (16,), kind) for name, kind in (("w", "int32"), ("b", "uint8"), ("a", "float32")))


@pytest.mark.parametrize(
    ("e", "text"),
    [
        # sums
        (i * 6 + j - j - i * 6, "0"),
        ((i + j) * 2 - j * 2, "i * 2"),
        (j * 3 + i - (j - 1), "j * 2 + i + 1"),
        (3 - (i - j), "j - i + 3"),
        ((i * 8 + 4) * 16 + j * 2, "i * 128 + j * 2 + 64"),
        (i * n - n * i, "0"),
        ((i * 2) * (n * 3), "i * n * 6"),
        (n * (m * 2) - m * n, "m * n"),
        # quotients and remainders by constants
        ((i * 16 + j) // 16, "i"),
        ((i * 16 + j) % 16, "j"),
        ((i * 32 + j * 2) // 2, "i * 16 + j"),
        ((i * 16 + k - 1) // 16, "i"),
        ((i * 16 + j + 16) // 16, "i + 1"),
        ((i * 128 + j * 8) // 64, "i * 2 + j // 8"),
        ((i * 128 + j * 8) % 64, "j % 8 * 8"),
        ((i * 128 + j * 8) // 64 * 64 + (i * 128 + j * 8) % 64, "i * 128 + j * 8"),
        ((f // 56 // 56) * 3136 + (f // 56 % 56) * 56 + f % 56, "f"),
        ((f // 56 % 56) * 56 + f % 56 + i, "f % 3136 + i"),
        ((f + 32) // 9 * 9 + (f + 32) // 3 % 3 * 3 + (f + 32) % 3, "f + 32"),
        ((i * 64 + j * 4 + d) // 168 * 168 + (i * 64 + j * 4 + d) // 14 % 12 * 14 + (i * 64 + j * 4 + d) % 14, "i * 64 + j * 4 + d"),
        ((n * 4 + 3) // 4, "n"),
        ((free + 7) // 8, "(free + 7) // 8"),
        ((free + 17) // 8, "(free + 1) // 8 + 2"),
        ((free * 6 + 3) // 4, "(free * 3 + 1) // 2"),
        (free * 6 // 4, "free * 3 // 2"),
        (free * 6 % 4, "free * 3 % 2 * 2"),
        (free % 16 // 4, "free // 4 % 4"),
        (free % 16 % 4, "free % 4"),
        (j // 16, "0"),
        (j % 16, "j"),
        ((j + 16) % 16, "j"),
        ((j - 16) // 16, "-1"),
        (free // -4, "(0 - free) // 4"),
        # and by sizes
        ((i * n + free % n) // n, "i + free % n // n"),
        ((i * n + n) // n, "i + 1"),
        ((i * n * m + m) // m, "i * n + 1"),
        ((i * n + 3) % n, "3 % n"),
        (free // n * n + free % n, "free"),
        # extrema
        (tir.max(i, 8), "8"),
        (tir.min(j, 99), "j"),
        (tir.min(tir.min(free, n), tir.min(n, free)), "min(free, n)"),
        (tir.max(tir.min(free, 8), 16), "16"),
        (tir.min(i * 4 + 3, 32), "i * 4 + 3"),
        (tir.min(free + 1, free), "free"),
        (tir.min(n * 8, 64), "min(n, 8) * 8"),
        # comparisons
        (i < 8, "True"),
        (i * 16 + j < 128, "True"),
        (i >= 8, "False"),
        (i * 16 + j < 64, "i < 4"),
        (i * 16 + j < 60, "i * 16 + j < 60"),
        (free * 6 + 6 <= 1024 - i * 48, "free + i * 8 < 170"),
        (free - 1 < 56, "free < 57"),
        (free >= 1, "0 < free"),
        (free <= n, "free <= n"),
        (free < n + 1, "free <= n"),
        (free + 3 < n, "free + 3 < n"),
        (free // 4 < 8, "free < 32"),
        (free // 4 > 8, "35 < free"),
        (free * 2 == n * 4, "free == n * 2"),
        (free * 2 == 7, "False"),
        (free * 4 + 2 != n * 4, "True"),
        (i == 9, "False"),
        (0 - free == -3, "free == 3"),
        # conditions
        (logical_and(free < 8, free < 5), "free < 5"),
        (logical_and(logical_and(free > 0, free < n), free < n), "0 < free and free < n"),
        (logical_and(free < 3, free > 7), "False"),
        (logical_and(i < 9, free < 5), "free < 5"),
        (logical_or(i < 9, free < 5), "True"),
        (logical_or(free < 8, free < 5), "free < 8"),
        (logical_and(logical_or(free < 8, n < 3), free < 8), "free < 8"),
        (logical_not(logical_and(i < 9, free < 5)), "4 < free"),
        # choices
        (select(i < 9, free, n), "free"),
        (if_then_else(free < 3, if_then_else(free < 5, i, j), n), "if_then_else(free < 3, i, n)"),
        (if_then_else(free < 3, n, if_then_else(free < 2, i, j)), "if_then_else(free < 3, n, j)"),
        (select(free < 3, tir.min(free, 3), free), "free"),
        (if_then_else(free > 0, if_then_else(free < 9, i, j), j), "if_then_else(0 < free and free < 9, i, j)"),
        # conversions
        (load(BYTES, [i]).astype("int32").astype("int64"), "int64(b[i])"),
        (load(WORDS, [i]).astype("int8").astype("int32"), "int32(int8(w[i]))"),
        (load(BYTES, [i]).astype("float32").astype("int32"), "int32(b[i])"),
        (load(WORDS, [i]).astype("float32").astype("int32"), "int32(float32(w[i]))"),
        # what may wrap stays
        (load(BYTES, [i]) // 2 * 2, "b[i] // uint8(2) * uint8(2)"),
        (load(BYTES, [i]) % 2 // 2, "uint8(0)"),
        (tir.min(load(BYTES, [i]).astype("int32"), 300), "int32(b[i])"),
        (load(BYTES, [i]).astype("int32") < 256, "True"),
        (call("wrap", i + j - i), "wrap(j)"),
        # inside
        (load(FLOATS, [i * 2 - i + j % 16]), "a[i + j]"),
        (load(FLOATS, [i], j < 99), "a[i]"),
        (load(FLOATS, [i], j < 0), "0.0"),
        # vectors
        (ramp((i * 16 + j) // 16, 1, 8), "ramp(i, 1, 8)"),
        (ir.lt(ramp(i * 4, 1, 4), broadcast(const(32), 4)), "broadcast(True, 4)"),
        (ir.lt(ramp(free * 4, 1, 4), broadcast(free * 4 + 4, 4)), "broadcast(True, 4)"),
        (ir.lt(ramp(free * 4, 1, 4), broadcast(free * 4, 4)), "broadcast(False, 4)"),
        (ir.lt(ramp(free * 4, 1, 4), broadcast(n, 4)), "ramp(free * 4, 1, 4) < broadcast(n, 4)"),
    ],
)
def test_canonical_text(e, text):
    done = Analyzer().simplify(e)
    assert str(done) == text
    assert done.dtype is e.dtype
    assert Analyzer().simplify(done) is done


def test_an_unchanged_expression_is_the_same_object():
    for e in (i * 16 + j, free // 8, if_then_else(free < 3, load(FLOATS, [i * 4 + 1]), const(0.0, "float32")), ramp(i * 4, 1, 8)):
        assert Analyzer().simplify(e) is e


# ------------------------------------------------------------------------------------------------------- what is told


def test_bind_to_numbers_and_to_sizes():
    x, y, size = Var("x"), Var("y"), Var("size")
    ana = Analyzer()
    ana.bind(size, (1, 1 << 20))
    ana.bind(x, (0, 8))
    ana.bind(y, (0, size))
    assert str(ana.simplify((y * 8 + x) // 8)) == "y"
    assert ana.can_prove(y * 4 + 3 < size * 4) and ana.can_prove(y < size) and ana.can_prove(y < 1 << 20)
    assert not ana.can_prove(y < size - 1) and not ana.can_prove(y + 1 < size)
    assert str(ana.simplify(y // size)) == "0" and str(ana.simplify(y % size)) == "y"
    height, z = Var("height", bounds=(0, None)), Var("z")
    ana.bind(z, (0, height))
    assert ana.can_prove(z * size + y < size * height) and not ana.can_prove(z * size + y + 1 < size * height)
    assert ana.bounds(y * 2 + x) == (0, 2 * ((1 << 20) - 2) + 7)


def test_binding_after_simplifying_is_not_too_late():
    x = Var("x")
    ana = Analyzer()
    assert str(ana.simplify(x // 8)) == "x // 8"
    ana.bind(x, (0, 8))
    assert str(ana.simplify(x // 8)) == "0"


def test_a_constraint_holds_inside_and_is_forgotten_outside():
    ib, io = Var("ib", bounds=(0, 21)), Var("io", bounds=(0, 7))
    inside = ib * 48 + io * 6 + 3 < 1024
    ana = Analyzer()
    assert not ana.can_prove(inside)
    with ana.constraint(io * 6 + 6 <= 1024 - ib * 48):
        assert ana.can_prove(inside)
        assert ana.can_prove(ib * 48 + io * 6 + 9 < 1024) and not ana.can_prove(ib * 48 + io * 6 + 10 < 1024)
        with ana.constraint(ib > 20):
            assert ana.can_prove(io < 3)
        assert not ana.can_prove(io < 3)
    assert not ana.can_prove(inside)


def test_constraints_of_every_kind():
    x, y = Var("x"), Var("y")
    p = load(WORDS, [x]) < 3
    ana = Analyzer()
    with ana.constraint(logical_and(logical_and(x >= 0, x < 8), p)):
        assert str(ana.simplify(x // 8 + x % 8)) == "x"
        assert str(ana.simplify(if_then_else(p, x, y))) == "x"
        assert ana.bounds(x) == (0, 7)
    with ana.constraint(logical_not(logical_or(x < 0, y != 4))):
        assert ana.can_prove(x >= 0) and ana.can_prove(y == 4) and ana.can_prove(x + y >= 4)
    with ana.constraint(x * 3 == y):
        assert ana.can_prove(y - x * 2 == x) and ana.can_prove(x * 6 <= y * 2)
    with ana.constraint(logical_not(p)):
        assert str(ana.simplify(select(p, x, y))) == "y"
    assert ana.bounds(x) == (None, None)


def test_both_arms_of_a_choice_know_the_condition():
    e = if_then_else(free < 8, tir.min(free, 8), tir.max(free, 8) + if_then_else(free < 8, i, j))
    assert str(Analyzer().simplify(e)) == "if_then_else(free < 8, free, free + j)"


def test_define_and_forget():
    x = Var("x", bounds=(0, 7))
    ana = Analyzer()
    assert str(ana.simplify(x * 4 + j)) == "x * 4 + j"
    ana.define(x, const(0))
    assert str(ana.simplify(x * 4 + j)) == "j" and str(ana.simplify(x)) == "0"
    ana.define(x, None)
    assert str(ana.simplify(x * 4 + j)) == "x * 4 + j"


def test_terms_stand_in_the_order_of_ranks():
    outer, inner, unrolled = Var("outer"), Var("inner"), Var("unrolled")
    ana = Analyzer()
    for rank, var in enumerate((outer, inner, unrolled)):
        ana.rank(var, rank)
    e = unrolled * 4 + inner % 3 + outer * 16 + 1 + n * outer
    assert str(ana.simplify(e)) == "outer * 16 + n * outer + inner % 3 + unrolled * 4 + 1"
    assert str(ana.simplify(unrolled + inner < outer * 3)) == "inner + unrolled < outer * 3"
    again = Analyzer()
    for rank, var in enumerate((outer, inner, unrolled)):
        again.rank(var, rank)
    assert again.simplify(ana.simplify(e)) is ana.simplify(e)


def test_a_bound_value_is_known_but_not_put_in_its_place():
    x, t = Var("x", bounds=(0, 10)), Var("t")
    ana = Analyzer()
    ana.bind_value(t, tir.min(170 - x * 16, 16))
    assert str(ana.simplify(tir.min(tir.max(t, 171 - x * 16), 16))) == "min(171 - x * 16, 16)"
    assert ana.can_prove(t <= 16) and str(ana.simplify(t + 1)) == "t + 1"


# ------------------------------------------------------------------------------------------------------------ proofs


@pytest.mark.parametrize(
    ("condition", "known"),
    [
        (free // 4 * 4 <= free, True),
        (free // 4 * 4 + 3 >= free, True),
        (free // 4 * 4 + 2 >= free, False),
        (free % 4 <= free, False),
        (tir.min(free, n) <= n, True),
        (tir.min(free, 100 - i) + i <= 100, True),
        (tir.max(free, n) - n >= 0, True),
        (select(free < 3, i, j) <= 15, True),
        (select(free < 3, i, j) <= 14, False),
        (i * n <= n * 7, True),
        (i * n <= n * 6, False),
        ((i * n + n - 1) * m + m <= n * m * 8, True),
        (tir.min(8, n - i * 8) <= 8, True),
        ((free * 8 + 7) // 56 - free * 8 // 56 <= 0, True),
        ((free * 5 + 7) // 56 - free * 5 // 56 <= 1, True),
        ((free * 5 + 7) // 56 - free * 5 // 56 <= 0, False),
        ((free + 7) // n - free // n <= 7, True),
    ],
)
def test_can_prove(condition, known):
    assert Analyzer().can_prove(condition) is known


def test_the_condition_of_a_clean_body_proves_all_its_guards():
    """A tile of 6 rows, row blocks of 96, 1024 rows: the guard of row `ci` follows where the whole tile fits."""
    ib, io, ci = Var("ib", bounds=(0, 10)), Var("io", bounds=(0, 15)), Var("ci", bounds=(0, 5))
    t = Var("t")
    ana = Analyzer()
    ana.bind_value(t, tir.min(170 - ib * 16, 16))
    ana.bind(io, (0, t))
    assert ana.can_prove(ib * 96 + io * 6 + ci < 1024)
    assert not ana.can_prove(ib * 96 + io * 6 + ci < 1019)


# ------------------------------------------------------------------------------------------------------------ budget


def test_a_cycle_of_rules_is_reported_with_the_expression(monkeypatch):
    swap = matching.matchers_of(matching.Rule("min(x, y)", "min(y, x)"))
    table = matching.EXACT_RULES[ir.Min]
    monkeypatch.setitem(table, Var, tuple(swap))
    with pytest.raises(InternalError, match=r"min\((free, n|n, free)\)"):
        Analyzer().simplify(tir.min(free, n))


def test_work_is_counted():
    before = COUNTERS.snapshot()
    Analyzer().simplify(tir.min(tir.min(free, n), n + 1))
    after = COUNTERS.snapshot()
    assert after["rules_hit"] == before["rules_hit"] + 1 and after["rules_tried"] > before["rules_tried"]


def test_long_chains():
    total: ir.Expr = load(FLOATS, [i])
    for _ in range(3000):
        total = total + load(FLOATS, [j % 16 - j])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        done = Analyzer().simplify(total)
    finally:
        sys.setrecursionlimit(limit)
    assert isinstance(done, ir.Add) and str(done.b) == "a[0]"


# ------------------------------------------------------------------------------------------------ random expressions


@settings(max_examples=400, deadline=None)
@given(seeds)
def test_random_expressions_keep_their_value(seed):
    generator = Generator(seed)
    e = generator.any()
    ana = Analyzer()
    done = ana.simplify(e)
    assert done.dtype is e.dtype
    assert Analyzer().simplify(done) is done, f"{e} gave {done}, which is not canonical"
    low, high = ana.bounds(done)
    above = ana.upper_bound(e) if e.dtype.is_integer else high
    for point in points(generator.variables):
        value = evaluate(e, point)
        assert evaluate(done, point) == value, f"{e} gave {done} at {point}"
        assert low <= value <= min(high, above)


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_random_constraints_never_lie(seed):
    generator = Generator(seed)
    told, asked, e = generator.condition(), generator.condition(), generator.integer()
    ana = Analyzer()
    with ana.constraint(told):
        known, done = ana.can_prove(asked), ana.simplify(e)
        low, high = ana.bounds(done)
    for point in points(generator.variables):
        if evaluate(told, point):
            assert not known or evaluate(asked, point), f"{told} does not imply {asked} at {point}"
            value = evaluate(e, point)
            assert evaluate(done, point) == value, f"under {told}, {e} gave {done} at {point}"
            assert low <= value <= high
    assert ana.simplify(e) is Analyzer().simplify(e), "something of the constraint was kept"


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_random_intervals_hold(seed):
    generator = Generator(seed)
    e = generator.integer()
    x, y, z = generator.variables
    found = interval(e, {v: (const(v.bounds[0]), const(v.bounds[1])) for v in (x, y)})
    assert found is not None
    for point in points(generator.variables):
        low, high = (evaluate(end, point) for end in found)
        assert low <= evaluate(e, point) <= high, f"{e} is not in {found} at {point}"


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_random_intervals_of_sums_are_tight(seed):
    generator = Generator(seed)
    x, y, z = generator.variables
    a, b, c, d = (generator.random.randint(-4, 4) for _ in range(4))
    e = x * a + y * b + z * c - (x - z) * d
    found = interval(e, {v: (const(v.bounds[0]), const(v.bounds[1])) for v in (x, y)})
    assert found is not None
    for at in points([z]):
        values = [evaluate(e, {**point, **at}) for point in points([x, y])]
        assert [evaluate(end, at) for end in found] == [min(values), max(values)]
