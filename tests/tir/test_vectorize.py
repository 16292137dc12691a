"""Vectorize: the form each kind of body takes, what stays serial, and that all of it computes the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.tir.dtype import dtype
from tilewright.tir.expr import Buffer, Const, Load, Ramp, Var, as_expr, call, cast, const, if_then_else, load, logical_and, maximum, select
from tilewright.tir.interp import interpret
from tilewright.tir.passes.partition import Partition
from tilewright.tir.passes.vectorize import Vectorize
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Prefetch, Seq, Store, nested, seq, store
from tilewright.tir.target import Target
from tilewright.tir.verify import FACTS
from tilewright.tir.visit import walk

TARGET = Target("c", vector_bytes=32)
KEPT = ("typed", "closed", "in_bounds", "race_free", "flat")


def loop(name, extent, kind="serial"):
    extent = as_expr(extent)
    bounds = (0, extent.value - 1) if isinstance(extent, Const) else (0, None)
    return For(Var(name, "int32", bounds), extent, kind, Seq(()))


def function(body, *buffers, outputs=1, sizes=()):
    return Func("f", buffers, frozenset(buffers[-outputs:]), body, sizes)


def vectorized(func, **options):
    return Vectorize(**options).run(func, TARGET)


def lines(func):
    return [line.removeprefix("    ") for line in str(func).splitlines()[1:]]


def agree(func, new, low=-50, high=50, **sizes):
    """Both functions give the same on random inputs, also where they leave memory alone."""
    for fact in FACTS.values():
        assert fact.check is None or fact.name not in KEPT or not fact.check(new), fact.name
    rng = np.random.default_rng(7)
    extents = [b.constant_size or sizes[str(b.shape[0])] for b in func.params]
    inputs = [rng.integers(low, high, n).astype(str(b.dtype)) for b, n in zip(func.params, extents, strict=True)]
    results = []
    for each in (func, new):
        arrays = [a.copy() for a in inputs]
        interpret(each, arrays, sizes)
        results.append(arrays)
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(before, after)


def is_serial(func):
    return not any(e.dtype.lanes > 1 for e in walk(func.body) if hasattr(e, "dtype"))


def elementwise(value, extent=8, size=64, kinds=("float32", "float32")):
    """`C[v] = value(load, v)` over a vectorised loop."""
    a, c = Buffer("A", (size,), kinds[0]), Buffer("C", (size,), kinds[1])
    v = loop("v", extent, "vectorized")
    return function(nested([v], store(c, [v.var], value(lambda i: load(a, [as_expr(i)]), v.var))), a, c)


# --------------------------------------------------------------------------------------------------------- forms of expressions


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda a, v: a(v) * 2.0, "A[ramp(0, 1, 8)] * broadcast(2.0, 8)"),
        (lambda a, v: a(v * 3 + 1), "A[ramp(1, 3, 8)]"),
        (lambda a, v: a(20 - v), "A[ramp(20, -1, 8)]"),
        (lambda a, v: a(5), "broadcast(A[5], 8)"),
        (lambda a, v: a(v // 16 + 3), "broadcast(A[3], 8)"),
        (lambda a, v: a((v * 2 + 16) // 2), "A[ramp(8, 1, 8)]"),
        (lambda a, v: a((v + 24) % 16), "A[ramp(8, 1, 8)]"),
        (lambda a, v: a(v // 3), "A[ramp(0, 1, 8) // broadcast(3, 8)]"),
        (lambda a, v: call("exp", a(v)), "exp(A[ramp(0, 1, 8)])"),
        (lambda a, v: maximum(a(v), const(0.0, "float32")), "max(A[ramp(0, 1, 8)], broadcast(0.0, 8))"),
        (lambda a, v: select(v < 3, a(v), a(v + 1)), "select(ramp(0, 1, 8) < broadcast(3, 8), A[ramp(0, 1, 8)], A[ramp(1, 1, 8)])"),
        (lambda a, v: cast(v, dtype("float32")), "float32x8(ramp(0, 1, 8))"),
        # reads that may leave the buffer are guarded, others need no guard
        (
            lambda a, v: if_then_else(as_expr(3) <= v, a(v - 3), const(0.0, "float32")),
            "A[ramp(-3, 1, 8) if broadcast(3, 8) <= ramp(0, 1, 8)]",  # which gives 0 elsewhere
        ),
        (
            lambda a, v: if_then_else(as_expr(3) <= v, a(v - 3), const(-1.0, "float32")),
            "select(broadcast(3, 8) <= ramp(0, 1, 8), A[ramp(-3, 1, 8) if broadcast(3, 8) <= ramp(0, 1, 8)], broadcast(-1.0, 8))",
        ),
        (
            lambda a, v: if_then_else(as_expr(3) <= v, a(v), const(0.0, "float32")),
            "select(broadcast(3, 8) <= ramp(0, 1, 8), A[ramp(0, 1, 8)], broadcast(0.0, 8))",
        ),
        # what is the same for all lanes stays a scalar condition, also beside one that is not
        (lambda a, v: if_then_else(a(0) > 1.0, a(v - 9), const(0.0, "float32")), "if_then_else(1.0 < A[0], A[ramp(-9, 1, 8)], broadcast(0.0, 8))"),
        (
            lambda a, v: if_then_else(logical_and(a(0) > 1.0, v < 5), a(v), const(0.0, "float32")),
            "if_then_else(1.0 < A[0], select(ramp(0, 1, 8) < broadcast(5, 8), A[ramp(0, 1, 8)], broadcast(0.0, 8)), broadcast(0.0, 8))",
        ),
        # one element that only some lanes may read
        (
            lambda a, v: if_then_else(v < 5, a(64), const(0.0, "float32")),
            "A[broadcast(64, 8) if ramp(0, 1, 8) < broadcast(5, 8)]",
        ),
    ],
)
def test_expressions(value, expected):
    assert lines(vectorized(elementwise(value))) == [f"C[ramp(0, 1, 8)] = {expected}"]


def test_a_gather_and_its_guard():
    a, i, c = Buffer("A", (100,)), Buffer("I", (16,), "int32"), Buffer("C", (8,))
    v = loop("v", 8, "vectorized")
    picked = load(i, [v.var + 4])
    value = if_then_else(logical_and(as_expr(0) <= picked, picked < 100), load(a, [picked]), const(-1.0, "float32"))
    func = function(nested([v], store(c, [v.var], value)), a, i, c)
    new = vectorized(func)
    condition = "broadcast(0, 8) <= I[ramp(4, 1, 8)] and I[ramp(4, 1, 8)] < broadcast(100, 8)"
    assert lines(new) == [f"C[ramp(0, 1, 8)] = select({condition}, A[I[ramp(4, 1, 8)] if {condition}], broadcast(-1.0, 8))"]
    agree(func, new)


def test_a_division_by_zero_in_lanes_that_do_not_divide():
    func = elementwise(lambda a, v: if_then_else(a(v) > 0, as_expr(100) // a(v), as_expr(-1)), kinds=("int32", "int32"))
    new = vectorized(func)
    assert "broadcast(100, 8) // select(broadcast(0, 8) < A[ramp(0, 1, 8)], A[ramp(0, 1, 8)], broadcast(1, 8))" in str(new)
    agree(func, new, -2, 3)


# ------------------------------------------------------------------------------------------------------------------- lane counts


@pytest.mark.parametrize(
    ("extent", "kind", "expected"),
    [
        (16, "float32", [(8, 2)]),
        (8, "float32", [(8, 1)]),
        (15, "float32", [(8, 1), (4, 1), (2, 1), (1, 1)]),
        (24, "float64", [(4, 6)]),
        (70, "int8", [(32, 2), (4, 1), (2, 1)]),
        (1, "float32", [(1, 1)]),
        (0, "float32", []),
    ],
)
def test_lanes_are_what_the_vectors_hold_then_smaller_powers_of_two(extent, kind, expected):
    func = elementwise(lambda a, v: a(v) + const(1, kind), extent, 80, (kind, kind))
    new = vectorized(func)
    found = []
    for s in walk(new.body):
        if s.__class__ is Store:
            found.append((s.value.dtype.lanes, 1))
        elif s.__class__ is For and s.kind == "unrolled":
            found.append(s.constant_extent)
    assert [f for f in found if isinstance(f, int)] == [blocks for _, blocks in expected if blocks > 1]
    assert [f[0] for f in found if not isinstance(f, int)] == [lanes for lanes, _ in expected]
    agree(func, new)


def test_the_widest_element_decides():
    func = elementwise(lambda a, v: cast(a(v), dtype("int32")) * 3, 16, kinds=("int8", "int32"))
    new = vectorized(func)
    assert lines(new)[1] == "    C[ramp(v_block * 8, 1, 8)] = int32x8(A[ramp(v_block * 8, 1, 8)]) * broadcast(3, 8)"
    agree(func, new)


def test_many_blocks_are_a_loop():
    func = elementwise(lambda a, v: a(v), 1024, 1024)
    assert lines(vectorized(func))[0] == "for v_block in range(128):"
    assert lines(vectorized(func, max_unrolled=128))[0] == "for v_block in unrolled(128):"


def test_a_few_blocks_of_which_one_needs_its_mask_are_written_one_by_one():
    func = elementwise(lambda a, v: if_then_else(v < 21, a(v + 43), const(0.0, "float32")), 24)
    assert lines(vectorized(func)) == [
        "C[ramp(0, 1, 8)] = A[ramp(43, 1, 8)]",
        "C[ramp(8, 1, 8)] = A[ramp(51, 1, 8)]",
        "C[ramp(16, 1, 8)] = A[ramp(59, 1, 8) if ramp(16, 1, 8) < broadcast(21, 8)]",
    ]
    agree(func, vectorized(func))


# --------------------------------------------------------------------------------------------------------- forms of statements


def guarded(scope, body):
    """A buffer T of this scope, or an output, stored under `v < 5 + n`."""
    n = Var("n", "int32", (0, 3))
    a, t, c = Buffer("A", (64,)), Buffer("T", (16,), scope=scope), Buffer("C", (16,))
    v, w = loop("v", 8, "vectorized"), loop("w", 8)
    copy = nested([w], store(c, [w.var], load(t, [w.var])))
    init = nested([loop("z", 8)], Seq(()))
    init = For(init.var, init.extent, "serial", store(t, [init.var], const(0.0, "float32")))
    return function(Allocate(t, seq(init, nested([v], If(v.var < n + 5, body(a, t, v.var))), copy)), a, c, sizes=(n,))


def test_a_store_of_some_lanes():
    func = guarded("global", lambda a, t, v: store(t, [v], load(a, [v + 60]) + load(a, [as_expr(3)])))
    new = vectorized(func)
    mask = "ramp(0, 1, 8) < broadcast(n + 5, 8)"
    assert f"T[ramp(0, 1, 8) if {mask}] = A[ramp(60, 1, 8) if {mask}] + broadcast(A[3], 8)" in lines(new)
    func = guarded("local", lambda a, t, v: store(t, [v], load(a, [v]) + load(t, [v])))
    new = vectorized(func)
    assert f"T[ramp(0, 1, 8)] = select({mask}, A[ramp(0, 1, 8)] + T[ramp(0, 1, 8)], T[ramp(0, 1, 8)])" in lines(new)
    for n in range(4):
        agree(func, new, n=n)


def tile(between=lambda t, x: (), after=lambda t, x, r: load(t, [r])):
    """Partial sums T over a reduction, for lanes of `x < 21`, then copied out: every access under the same condition, unless told otherwise."""
    a, c, t = Buffer("A", (64,)), Buffer("C", (32,)), Buffer("T", (8,), scope="local")
    o, k = loop("o", 4), loop("k", 3)
    u, v, w = (loop(n, 8, "vectorized") for n in "uvw")
    at = [o.var * 8 + each.var for each in (u, v, w)]
    init = nested([u], If(at[0] < 21, store(t, [u.var], const(0.0, "float32"))))
    update = nested([k, v], If(at[1] < 21, store(t, [v.var], load(t, [v.var]) + load(a, [at[1] * 3 + k.var]))))
    out = nested([w], If(at[2] < 21, store(c, [at[2]], after(t, at[2], w.var))))
    return function(nested([o], Allocate(t, seq(init, *between(t, o), update, out))), a, c)


def test_lanes_of_a_tile_that_nobody_looks_at_may_hold_anything():
    func = tile()
    new = vectorized(func)
    assert "T[ramp(0, 1, 8)] = broadcast(0.0, 8)" in str(new) and "T[ramp(0, 1, 8)] = T[ramp(0, 1, 8)] + A[" in str(new)
    assert "C[ramp(o * 8, 1, 8) if ramp(o * 8, 1, 8) < broadcast(21, 8)] = T[ramp(0, 1, 8)]" in str(new)
    agree(func, new)


@pytest.mark.parametrize(
    "func",
    [
        tile(lambda t, o: [nested([q := loop("q", 8, "vectorized")], store(t, [q.var], const(1.0, "float32")))]),
        tile(lambda t, o: [nested([q := loop("q", 8, "vectorized")], If(o.var * 8 + q.var < 22, store(t, [q.var], const(1.0, "float32"))))]),
        tile(lambda t, o: [nested([q := loop("q", 4)], If(o.var * 8 + q.var < 21, store(t, [q.var], const(1.0, "float32"))))]),
        tile(lambda t, o: [nested([q := loop("q", 8, "vectorized")], If(o.var * 8 + q.var < 21, store(t, [as_expr(7) - q.var], const(1.0, "float32"))))]),
        tile(after=lambda t, x, r: load(t, [(r + 1) % 8])),
    ],
)
def test_lanes_that_somebody_may_look_at_keep_what_they_held(func):
    new = vectorized(func)
    assert "select(ramp(o * 8, 1, 8) < broadcast(21, 8), T[ramp(0, 1, 8)] + A[" in str(new)
    agree(func, new)


def test_a_condition_that_changes_while_the_tile_exists_keeps_what_it_held():
    a, c, t = Buffer("A", (64,)), Buffer("C", (8,)), Buffer("T", (8,), scope="local")
    k, u, v, w = loop("k", 4), loop("u", 8, "vectorized"), loop("v", 8, "vectorized"), loop("w", 8, "vectorized")
    init = nested([u], store(t, [u.var], const(0.0, "float32")))
    update = nested([k, v], If(v.var < k.var * 2, store(t, [v.var], load(t, [v.var]) + load(a, [v.var + k.var]))))
    func = function(Allocate(t, seq(init, update, nested([w], store(c, [w.var], load(t, [w.var]))))), a, c)
    new = vectorized(func)
    assert "select(ramp(0, 1, 8) < broadcast(k * 2, 8)" in str(new)
    agree(func, new)


def test_no_lane_with_work_is_tested_first():
    a, c = Buffer("A", (64,)), Buffer("C", (64,))
    o, v = loop("o", 4), loop("v", 8, "vectorized")
    x = o.var * 8 + v.var
    func = function(nested([o, v], If(logical_and(x < 21, o.var + v.var * 2 < 20), store(c, [x], load(a, [x + 40])))), a, c)
    new = vectorized(func)
    assert lines(new)[1] == "    if o * 8 < 21 and o < 20:"
    agree(func, new)


def test_both_arms_and_conditions_that_a_store_changes():
    c, d = Buffer("C", (16,)), Buffer("D", (16,))
    v = loop("v", 16, "vectorized")
    positive = load(c, [v.var]) > 3.0
    body = If(positive, seq(store(c, [v.var], const(-1.0, "float32")), store(d, [v.var], load(c, [v.var]))), store(d, [v.var], load(c, [v.var]) * 2.0))
    func = function(nested([v], body), c, d, outputs=2)
    new = vectorized(func)
    assert lines(new)[1] == "    taken = broadcast(3.0, 8) < C[ramp(v_block * 8, 1, 8)]"
    assert "D[ramp(v_block * 8, 1, 8) if not taken]" in str(new)
    agree(func, new)


def test_inner_loops_bindings_and_prefetches():
    a, c = Buffer("A", (256,)), Buffer("C", (16,))
    v, k = loop("v", 16, "vectorized"), loop("k", 5)
    t, base = Var("t", "float32"), Var("base", "int32", (0, 30))
    inner = Bind(t, load(a, [v.var + base]), store(c, [v.var], load(c, [v.var]) + cast(t, dtype("float32")) * load(a, [k.var])))
    body = seq(store(c, [v.var], const(0.0, "float32")), nested([k], seq(Prefetch(a, (v.var + k.var * 8 + 1,)), Bind(base, k.var * 7, inner))))
    func = function(nested([v], body), a, c)
    new = vectorized(func)
    assert lines(new)[1:] == [
        "    C[ramp(v_block * 8, 1, 8)] = broadcast(0.0, 8)",
        "    for k in range(5):",
        "        prefetch A[v_block * 8 + k * 8 + 1]",
        "        base = k * 7",
        "        t = A[ramp(v_block * 8 + base, 1, 8)]",
        "        C[ramp(v_block * 8, 1, 8)] = C[ramp(v_block * 8, 1, 8)] + t * broadcast(A[k], 8)",
    ]
    agree(func, new)


def test_a_buffer_inside_gets_a_copy_for_each_lane():
    a, c, t = Buffer("A", (64,)), Buffer("C", (12,)), Buffer("T", (3,), scope="local")
    v, k, q = loop("v", 12, "vectorized"), loop("k", 3), loop("q", 3)
    fill = nested([k], store(t, [k.var], load(a, [v.var + k.var * 7])))
    add_up = nested([q], store(c, [v.var], load(c, [v.var]) + load(t, [as_expr(2) - q.var])))
    func = function(nested([v], Allocate(t, seq(fill, add_up))), a, c)
    new = vectorized(func)
    assert "allocate T: float32[24] in local" in str(new) and "T[ramp(k * 8, 1, 8)] = A[ramp(k * 7, 1, 8)]" in str(new)
    agree(func, new)


def test_a_lane_axis_of_partial_sums():
    """What rfactor makes: the lanes are far apart in memory, and the reduction loop is outside."""
    a, f = Buffer("A", (2 * 57,)), Buffer("F", (16 * 2,))
    row, k, lane = loop("row", 2), loop("k", 4), loop("lane", 16, "vectorized")
    x = k.var * 16 + lane.var
    body = If(x < 57, store(f, [lane.var * 2 + row.var], load(f, [lane.var * 2 + row.var]) + load(a, [row.var * 57 + x])))
    func = function(nested([row, k, lane], body), a, f)
    new = vectorized(Partition().run(func, TARGET))
    assert "F[ramp(lane_block * 16 + row, 2, 8)] = F[ramp(lane_block * 16 + row, 2, 8)] + A[ramp(lane_block * 8 + k * 16 + row * 57, 1, 8)]" in str(new)
    assert "if" not in str(new)  # the tail has 9 lanes
    agree(func, new)


# ------------------------------------------------------------------------------------------------------------------- refusals


def body_of(make):
    a, c = Buffer("A", (256,)), Buffer("C", (256,))
    v = loop("v", 8, "vectorized")
    return function(nested([v], make(a, c, v.var)), a, c)


@pytest.mark.parametrize(
    "make",
    [
        lambda a, c, v: store(c, [as_expr(3)], load(c, [as_expr(3)]) + load(a, [v])),  # one element
        lambda a, c, v: store(c, [v + 1], load(c, [v]) * 2.0),  # the next iteration reads it
        lambda a, c, v: seq(store(c, [v * 2], load(a, [v])), store(c, [v * 2 + 2], load(a, [v + 1]))),  # written twice, order matters
        lambda a, c, v: store(c, [v // 2], load(a, [v])),
        lambda a, c, v: store(c, [v * v], load(a, [v])),
        lambda a, c, v: nested([k := loop("k", 4)], store(c, [v + k.var], load(a, [v * 4 + k.var]))),
        lambda a, c, v: For(k := Var("k"), v + 1, "serial", store(c, [v], load(c, [v]) + load(a, [k]))),
        lambda a, c, v: nested([k := loop("k", 4, "parallel")], store(c, [v * 4 + k.var], load(a, [v]))),
        lambda a, c, v: If(load(a, [v]) > 0.0, store(c, [v * 3], load(a, [v]))),  # some lanes, apart
        lambda a, c, v: Allocate(t := Buffer("T", (4096,)), seq(store(t, [v], load(a, [v])), store(c, [v], load(t, [v])))),
    ],
)
def test_what_must_stay_serial(make):
    func = body_of(make)
    new = vectorized(func)
    assert is_serial(new) and all(s.kind != "vectorized" for s in walk(new.body) if s.__class__ is For)
    agree(func, new)


@pytest.mark.parametrize(
    "make",
    [
        lambda a, c, v: seq(store(c, [v * 2], load(a, [v])), store(c, [v * 2 + 1], load(c, [v * 2]))),
        lambda a, c, v: seq(store(c, [v + 8], load(a, [v])), store(c, [v], load(c, [v + 8]))),
        lambda a, c, v: nested([k := loop("k", 4)], store(c, [v * 4 + k.var], load(a, [v]))),
        lambda a, c, v: nested([k := loop("k", 4)], store(c, [v + k.var * 8], load(c, [v]) + 1.0)),
        lambda a, c, v: store(c, [as_expr(200) - v * 3], load(a, [v])),
    ],
)
def test_accesses_that_never_meet_are_lanes(make):
    func = body_of(make)
    new = vectorized(func)
    assert not is_serial(new)
    agree(func, new)


def test_only_the_inner_of_two_vectorised_loops():
    a, c = Buffer("A", (256,)), Buffer("C", (256,))
    v, w = loop("v", 4, "vectorized"), loop("w", 8, "vectorized")
    func = function(nested([v, w], store(c, [v.var * 8 + w.var], load(a, [w.var * 4 + v.var]))), a, c)
    assert lines(vectorized(func)) == ["for v in range(4):", "    C[ramp(v * 8, 1, 8)] = A[ramp(v, 4, 8)]"]


def test_a_function_without_vectorised_loops_comes_back_as_it_is():
    a, c = Buffer("A", (8,)), Buffer("C", (8,))
    v = loop("v", 8, "unrolled")
    func = function(nested([v], store(c, [v.var], load(a, [v.var]))), a, c)
    assert vectorized(func) is func


# ------------------------------------------------------------------------------------------------------------------ properties

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "float32", "float64")


@settings(max_examples=150, deadline=None, print_blob=True)
@given(
    extents=st.tuples(st.integers(1, 3), st.integers(1, 37)),
    kinds=st.tuples(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS)),
    store_stride=st.sampled_from([1, 1, 1, 2, 3, -1]),
    load_stride=st.sampled_from([1, 1, 0, 2, -1, -3]),
    low=st.integers(-9, 20),
    width=st.integers(0, 60),
    limit=st.integers(-3, 120),
    choose=st.sampled_from(["choice", "if", "both", "neither"]),
    reduce=st.integers(0, 3),
    partition=st.booleans(),
    scope=st.sampled_from(["global", "local"]),
)
def test_random_bodies_mean_the_same(extents, kinds, store_stride, load_stride, low, width, limit, choose, reduce, partition, scope):
    outer, inner = extents
    total = outer * inner
    o, v = loop("o", outer), loop("v", inner, "vectorized")
    x = o.var * inner + v.var
    at = x * load_stride - low
    size = max(width, 1)
    if choose in ("if", "neither"):  # the load is always inside then
        size = total * abs(load_stride) + abs(low) + 1
        at = x * load_stride + (total * abs(load_stride) if load_stride < 0 else 0)
    a, c = Buffer("A", (size,), kinds[0]), Buffer("C", (total * abs(store_stride) + reduce,), kinds[1])
    t = Buffer("T", c.shape, kinds[1], scope)
    where = [x * store_stride + (total * abs(store_stride) - 1 if store_stride < 0 else 0)]
    value = cast(load(a, [at]), dtype(kinds[1]))
    if choose in ("choice", "both"):
        value = if_then_else(logical_and(as_expr(0) <= at, at < width), value, const(3, kinds[1]))
    body = store(t, where, value)
    if reduce:
        k = loop("k", reduce)
        body = seq(body, nested([k], store(t, where, load(t, where) + cast(k.var, dtype(kinds[1])) * value)))
    if choose in ("if", "both"):
        body = If(x < limit, body)
    clear, copy = loop("clear", total * abs(store_stride) + reduce), loop("copy", total * abs(store_stride) + reduce)
    before, after = nested([clear], store(t, [clear.var], const(1, kinds[1]))), nested([copy], store(c, [copy.var], load(t, [copy.var])))
    func = function(Allocate(t, seq(before, nested([o, v], body), after)), a, c)
    new = Partition().run(func, TARGET) if partition else func
    agree(func, vectorized(new), 0 if kinds[0].startswith("u") or kinds[1].startswith("u") else -50, 50)


@settings(max_examples=120, deadline=None, print_blob=True)
@given(
    extent=st.integers(2, 12),
    first=st.tuples(st.integers(-3, 3), st.integers(0, 12), st.integers(-4, 4)),
    second=st.tuples(st.integers(-3, 3), st.integers(0, 12), st.integers(-4, 4)),
    third=st.tuples(st.integers(-3, 3), st.integers(0, 12), st.integers(-4, 4)),
    inner=st.integers(1, 4),
)
def test_what_runs_as_lanes_has_no_dependence(extent, first, second, third, inner):
    """Two stores and a load of one buffer with random strides: in lockstep only if that is the same as in order."""
    c = Buffer("C", (200,))
    v, k = loop("v", extent, "vectorized"), loop("k", inner)

    def index(stride):
        return [v.var * stride[0] + k.var * stride[2] + stride[1] + 90]

    body = seq(store(c, index(first), load(c, index(second)) * 3.0 + 1.0), store(c, index(third), load(c, index(first)) + cast(v.var, dtype("float32"))))
    func = function(nested([v, k], body), c)
    agree(func, vectorized(func))


def test_ramps_only_in_stores():
    func = elementwise(lambda a, v: a(v // 3), 16)
    for s in walk(vectorized(func).body):
        assert s.__class__ is not Store or s.indices[0].__class__ is Ramp
    assert any(e.__class__ is Load and e.indices[0].__class__ is not Ramp for e in walk(vectorized(func).body))
