"""Narrow: index arithmetic is int32 exactly where all of it provably fits, and values keep their dtype and wrap in it."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.tir.bounds import constant_bounds
from tilewright.tir.dtype import dtype
from tilewright.tir.expr import (
    Buffer,
    Const,
    Var,
    as_expr,
    broadcast,
    call,
    cast,
    const,
    floordiv,
    floormod,
    if_then_else,
    load,
    maximum,
    minimum,
    ramp,
    select,
)  # fmt: skip
from tilewright.tir.interp import interpret
from tilewright.tir.passes.narrow import Narrow
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Place, Prefetch, Seq, Store, nested, seq, store
from tilewright.tir.target import Target
from tilewright.tir.verify import FACTS
from tilewright.tir.visit import walk

BIG = 1 << 30


def loop(name, extent, kind="serial"):
    extent = as_expr(extent)
    bounds = (0, extent.value - 1) if isinstance(extent, Const) else (0, None)
    return For(Var(name, str(extent.dtype), bounds), extent, kind, Seq(()))


def narrowed(body, *buffers, sizes=(), workspace=(0, 0)):
    new = Narrow().run(Func("f", buffers, frozenset(buffers[-1:]), body, sizes, workspace), Target("c"))
    for fact in ("typed", "closed", "narrow"):
        assert not FACTS[fact].check(new)
    return new


def last_line(func):
    return str(func).splitlines()[-1].strip()


def test_what_fits_comes_back_as_it_is():
    a, c = Buffer("A", (4096,)), Buffer("C", (4096,))
    i, j = loop("i", 64), loop("j", 64)
    index = i.var * 64 + j.var
    func = Func("f", (a, c), frozenset([c]), nested([i, j], If(index < 4000, store(c, [index], load(a, [index // 2])))))
    assert Narrow().run(func, Target("c")) is func


def test_wide_indices_are_cast_at_the_leaves():
    a, c = Buffer("A", (4 * BIG,), "int8"), Buffer("C", (4,), "int8")
    i = loop("i", 4)
    new = narrowed(nested([i], store(c, [i.var], load(a, [i.var * BIG + 5]))), a, c)
    assert last_line(new) == "C[i] = A[int64(i) * int64(1073741824) + int64(5)]"


def test_an_intermediate_that_does_not_fit_is_enough():
    a, c = Buffer("A", (64,)), Buffer("C", (64,))
    i = loop("i", 64)
    new = narrowed(nested([i], store(c, [i.var], load(a, [i.var * BIG // BIG]))), a, c)
    assert last_line(new) == "C[i] = A[int64(i) * int64(1073741824) // int64(1073741824)]"


def test_copies_of_a_loop_share_its_variable():
    """As unrolling leaves them."""
    n = Var("n", "int32", (0, None))
    c = Buffer("C", (2 * n,))
    k = loop("k", n)
    new = narrowed(seq(*[nested([k], store(c, [k.var + copy * n], const(1.0, "float32"))) for copy in (0, 1)]), c, sizes=(n,))
    assert str(new).splitlines()[1:] == [
        "    for k in range(int64(n)):",
        "        C[k] = 1.0",
        "    for k in range(int64(n)):",
        "        C[k + int64(n)] = 1.0",
    ]


def test_copies_of_a_let_may_differ_in_width():
    """As in two copies of a body, of which one knows more about the value."""
    c, t = Buffer("C", (4,), "int8"), Var("t")
    i = loop("i", 4)
    values = (i.var, i.var * BIG, i.var + 1)
    new = narrowed(nested([i], seq(*[Bind(t, value, store(c, [t // BIG], const(1, "int8"))) for value in values])), c)
    assert [s.var.dtype for s in walk(new.body) if isinstance(s, Bind)] == ["int64"] * 3
    t = Var("t", "int32", (0, 7))
    new = narrowed(nested([i], seq(*[Bind(t, value, store(c, [t // BIG], const(1, "int8"))) for value in (i.var, i.var * BIG // BIG, i.var + 1)])), c)
    assert [s.var.dtype for s in walk(new.body) if isinstance(s, Bind)] == ["int32", "int64", "int32"]


def test_symbolic_loops_and_comparisons_are_wide():
    n = Var("n", "int32", (0, None))
    c = Buffer("C", (n,))
    o, v = loop("o", (n + 7) // 8), loop("v", 8)
    x = o.var * 8 + v.var
    new = narrowed(nested([o, v], If(x < n, store(c, [x], const(1.0, "float32")))), c, sizes=(n,))
    assert str(new).splitlines()[1:] == [
        "    for o in range((int64(n) + int64(7)) // int64(8)):",
        "        for v in range(8):",
        "            if o * int64(8) + int64(v) < int64(n):",
        "                C[o * int64(8) + int64(v)] = 1.0",
    ]


def test_an_extent_below_zero_does_not_wrap_to_above():
    n = Var("n", "int32", (None, None))
    c = Buffer("C", (8,))
    i = For(Var("i", "int32", (0, 7)), minimum(n * BIG, as_expr(8)), "serial", Seq(()))
    new = narrowed(nested([i], store(c, [i.var], const(1.0, "float32"))), c, sizes=(n,))
    assert "range(int32(max(min(int64(n) * int64(1073741824), int64(8)), int64(0))))" in str(new)
    assert last_line(new) == "C[i] = 1.0"


def test_a_loop_that_runs_as_often_as_int32_can_count_plus_one():
    c = Buffer("C", (2 * BIG,), "int8")
    i = loop("i", const(2 * BIG, "int64"))
    i = For(Var("i", "int32", (0, 2 * BIG - 1)), i.extent, "serial", Seq(()))
    new = narrowed(nested([i], store(c, [i.var], const(1, "int8"))), c)
    assert "int64(2147483648)" in str(new) and next(s for s in walk(new.body) if s.__class__ is For).var.dtype == "int64"


def test_values_keep_their_dtype_and_wrap_in_it():
    a, c, d = Buffer("A", (64,), "int32"), Buffer("D", (64,), "int64"), Buffer("C", (64,), "int32")
    i = loop("i", 64)
    wrapped = call("wrap", i.var * BIG)
    body = seq(
        store(d, [i.var], wrapped + load(a, [i.var])),
        store(c, [i.var], cast(i.var, dtype("int64")) * BIG),
    )
    func = Func("f", (a, c, d), frozenset([c, d]), nested([i], body))
    new = Narrow().run(func, Target("c"))
    lines = [line.strip() for line in str(new).splitlines()]
    assert lines[-2] == "C[i] = int32(wrap(int64(i) * int64(1073741824))) + A[i]"
    assert lines[-1] == "D[i] = int64(i) * int64(1073741824)"
    results = []
    for each in (func, new):
        arrays = [np.arange(64, dtype="int32"), np.zeros(64, "int64"), np.zeros(64, "int32")]
        interpret(each, arrays)
        results.append(arrays)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(results[0][2], np.arange(64, dtype="int32") * np.int32(BIG) + np.arange(64, dtype="int32"))
    np.testing.assert_array_equal(results[0][2], results[1][2])
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_vectors_let_variables_places_and_prefetches():
    n = Var("n", "int32", (0, 1 << 20))
    a, i32 = Buffer("A", (1 << 40,)), Buffer("I", (64,), "int32")
    t, c = Buffer("T", (n * 8192,)), Buffer("C", (64,))
    i, far, near = loop("i", 8), Var("far", "int32", (0, BIG * 8)), Var("near", "int32", (0, 56))
    mask = ramp(i.var * BIG, 1, 8) < broadcast(n * 8192, 8)
    value = load(a, [ramp(far, 1, 8)], mask) + select(mask, load(a, [load(i32, [ramp(near, 1, 8)])]), broadcast(const(0.0, "float32"), 8))
    body = Bind(far, i.var * BIG, Bind(near, i.var * 8, seq(Prefetch(a, (far + 8,)), store(c, [ramp(near, 1, 8)], value))))
    new = narrowed(Allocate(t, nested([i], body), Place("call", n * 8192 * 4)), a, i32, c, sizes=(n,), workspace=(n * 8192 * 4, 0))
    wide = "ramp(int64(i) * int64(1073741824), int64(1), 8) < broadcast(int64(n) * int64(8192), 8)"
    assert [line.strip() for line in str(new).splitlines()[1:]] == [
        "allocate T: float32[n * 8192] at call + int64(n) * int64(32768)",
        "for i in range(8):",
        "far = int64(i) * int64(1073741824)",
        "near = i * 8",
        "prefetch A[far + int64(8)]",
        f"C[ramp(near, 1, 8)] = A[ramp(far, int64(1), 8) if {wide}] + select({wide}, A[I[ramp(near, 1, 8)]], broadcast(0.0, 8))",
    ]
    assert str(new.workspace_bytes[0]) == "int64(n) * int64(32768)"


# ------------------------------------------------------------------------------------------------------------------ properties

FOLD = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b, "%": lambda a, b: a % b, "min": min, "max": max}


def evaluate(e, values, width_of):
    """The value of an integer expression, each operation reduced to `width_of(its dtype)` bits (None: exact)."""
    if e.__class__ is Var:
        result = values[e.name]
    elif e.__class__ is Const:
        result = e.value
    elif e.__class__.__name__ == "Cast":
        result = evaluate(e.value, values, width_of)
    elif e.__class__.__name__ == "IfThenElse":
        a, b = (evaluate(x, values, width_of) for x in (e.condition.a, e.condition.b))
        result = evaluate(e.then if a < b else e.otherwise, values, width_of)
    else:
        result = FOLD[e.symbol](evaluate(e.a, values, width_of), evaluate(e.b, values, width_of))
    bits = width_of(e.dtype)
    return result if bits is None else (result + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@st.composite
def sums(draw, variables, depth=4):
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(variables)) if draw(st.booleans()) else const(draw(st.integers(-70000, 70000)))
    a, b = draw(sums(variables, depth - 1)), draw(sums(variables, depth - 1))
    kind = draw(st.sampled_from(["add", "sub", "mul", "div", "mod", "min", "max", "choice"]))
    factor = const(draw(st.sampled_from([2, 3, 1000, 65536, 1 << 20])))
    return {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * factor,
        "div": lambda: floordiv(a, factor),
        "mod": lambda: floormod(a, factor),
        "min": lambda: minimum(a, b),
        "max": lambda: maximum(a, b),
        "choice": lambda: if_then_else(a < b, a, b),
    }[kind]()


@settings(max_examples=80, deadline=None, print_blob=True)
@given(data=st.data(), extents=st.tuples(*[st.sampled_from([1, 8, 300, 70000, 1 << 31])] * 3))
def test_no_value_overflows_the_width_it_is_computed_in(data, extents):
    loops = [loop(n, e) for n, e in zip("xyz", extents, strict=True)]
    index = data.draw(sums([each.var for each in loops]))
    a = Buffer("A", (1,))
    other = data.draw(sums([each.var for each in loops]))
    for node in [*walk(index), *walk(other)]:  # no width holds more than int64 does
        assume(node.dtype.is_bool or all(-(1 << 63) <= bound < 1 << 63 for bound in constant_bounds(node)))
    body = seq(store(a, [index], const(0.0, "float32")), If(index < other, Prefetch(a, (index,))))
    new = Narrow().run(Func("f", (a,), frozenset([a]), nested(loops, body)), Target("c"))
    stored = next(s for s in walk(new.body) if s.__class__ is Store).indices[0]
    condition, before = (next((s for s in walk(f) if s.__class__ is If), None) for f in (new.body, body))
    for corner in range(8):
        values = {name: (extent - 1) * (corner >> k & 1) for k, (name, extent) in enumerate(zip("xyz", extents, strict=True))}
        assert evaluate(stored, values, lambda kind: kind.bits) == evaluate(index, values, lambda _: None)
        if condition is not None and before is not None:
            for part, exact in ((condition.condition.a, before.condition.a), (condition.condition.b, before.condition.b)):
                assert evaluate(part, values, lambda kind: kind.bits) == evaluate(exact, values, lambda _: None)


@pytest.mark.parametrize("extent", [8, 1 << 31])
def test_loads_compared_with_indices_are_data(extent):
    a, c = Buffer("A", (8,), "int32"), Buffer("C", (1,))
    i = For(Var("i", "int32", (0, extent - 1)), as_expr(extent), "serial", Seq(()))
    new = narrowed(nested([i], If(load(a, [as_expr(0)]) < i.var, store(c, [as_expr(0)], const(0.0, "float32")))), a, c)
    assert next(s for s in walk(new.body) if s.__class__ is If).condition.a.dtype == "int32"


def test_two_copies_of_a_wide_binding_stay_bound():
    """Unrolled copies share their variables, and expressions are remembered between them."""
    n, v = Var("n", "int32", (0, None)), Var("v", "int32", (0, None))
    out = Buffer("out", (n,))
    copy = Bind(v, n // 4, If(v < n, Store(out, (v,), const(1.0, "float32"))))
    func = Func("f", (out,), frozenset([out]), seq(copy, copy), (n,))
    narrowed = Narrow().run(func, Target("c", threads=1))
    assert FACTS["closed"].check(narrowed) == [] and FACTS["typed"].check(narrowed) == []
