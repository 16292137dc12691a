"""Partition: where loops are split, what the pieces are, and that they compute the same."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import te
from tilewright.schedule import lower_schedule
from tilewright.tir.expr import Buffer, Const, Var, as_expr, const, if_then_else, load, logical_and
from tilewright.tir.interp import interpret
from tilewright.tir.passes import StopAfter, Verify, pipeline_for
from tilewright.tir.passes.partition import Partition
from tilewright.tir.stmt import Allocate, For, Func, If, Produce, Seq, nested, seq, store
from tilewright.tir.target import Target
from tilewright.tir.verify import FACTS
from tilewright.tir.visit import walk

TARGET = Target("c", vector_bytes=32)
KEPT = ("typed", "closed", "in_bounds", "race_free", "flat")


def loop(name, extent, kind="serial"):
    extent = as_expr(extent)
    bounds = (0, extent.value - 1) if isinstance(extent, Const) else (0, None)
    return For(Var(name, "int32", bounds), extent, kind, Seq(()))


def function(body, *buffers, sizes=()):
    return Func("f", buffers, frozenset([buffers[-1]]), body, sizes)


def partitioned(func, **options):
    return Partition(**options).run(func, TARGET)


def lines(func):
    return str(func).splitlines()[1:]


def agree(func, new, **sizes):
    """Both functions give the same on random inputs, also where they leave memory alone."""
    for fact in FACTS.values():
        assert fact.check is None or fact.name not in KEPT or not fact.check(new), fact.name
    rng = np.random.default_rng(5)
    extents = [b.constant_size or sizes_of(b, sizes) for b in func.params]
    inputs = [rng.integers(-50, 50, n).astype(str(b.dtype)) for b, n in zip(func.params, extents, strict=True)]
    results = []
    for each in (func, new):
        arrays = [a.copy() for a in inputs]
        interpret(each, arrays, sizes)
        results.append(arrays)
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(before, after)


def sizes_of(buffer, sizes):
    return sizes.get(str(buffer.shape[0]), 4096)


def test_a_tail_is_split_off_a_serial_loop_and_shortened_to_its_work():
    a, c = Buffer("A", (37,)), Buffer("C", (37,))
    o, v = loop("o", 9), loop("v", 8, "vectorized")
    x = o.var * 8 + v.var
    func = function(nested([o, v], If(x < 37, store(c, [x], load(a, [x]) * 2.0))), a, c)
    new = partitioned(func)
    assert lines(new) == [
        "    for o in range(4):",
        "        for v in vectorized(8):",
        "            C[o * 8 + v] = A[o * 8 + v] * 2.0",
        "    for v_1 in vectorized(8):",
        "        if v_1 + 32 < 37:",
        "            C[v_1 + 32] = A[v_1 + 32] * 2.0",
    ]
    agree(func, new)


def test_nests_with_the_same_rows_are_clean_together_and_the_bound_depends_on_outer_loops():
    """The shape of a blocked matmul: initial values, accumulation, copy out, all guarded by the row."""
    a, c, t = Buffer("A", (100,)), Buffer("C", (100,)), Buffer("T", (6,), scope="local")
    ib, io, u, w, r = loop("ib", 3, "parallel"), loop("io", 8), loop("u", 6, "unrolled"), loop("w", 6, "unrolled"), loop("r", 6)
    k = loop("k", 5)

    def row(inner):
        return ib.var * 48 + io.var * 6 + inner.var

    init = nested([u], If(row(u) < 100, store(t, [u.var], const(0.0, "float32"))))
    update = nested([k, w], If(row(w) < 100, store(t, [w.var], load(t, [w.var]) + load(a, [row(w)]))))
    out = nested([r], If(row(r) < 100, store(c, [row(r)], load(t, [r.var]))))
    func = function(nested([ib, io], Allocate(t, seq(Produce("T", seq(init, update)), Produce("C", out)))), a, c)
    new = partitioned(func)
    text = str(new)
    assert "io_last = min((94 - ib * 48) // 6 + 1, 8)" in text
    assert "for io in range(io_last):" in text
    assert "for io_1 in range(min(max(io_last, (99 - ib * 48) // 6 + 1), 8) - io_last):" in text
    clean = text[text.index("for io in") : text.index("for io_1 in")]
    assert "if " not in clean and text.count("if ") == 3
    agree(func, new)


def test_padding_gives_border_interior_border():
    a, c = Buffer("A", (30,)), Buffer("C", (40,))
    o, v = loop("o", 10), loop("v", 4, "vectorized")
    x = o.var * 4 + v.var
    inside = logical_and(as_expr(3) <= x, x < 33)
    func = function(nested([o, v], store(c, [x], if_then_else(inside, load(a, [x - 3]), const(-1.0, "float32")))), a, c)
    new = partitioned(func)
    assert lines(new) == [
        "    for v in vectorized(4):",
        "        C[v] = if_then_else(3 <= v and v < 33, A[v - 3], -1.0)",
        "    for o in range(7):",
        "        for v_1 in vectorized(4):",
        "            C[(o + 1) * 4 + v_1] = A[(o + 1) * 4 + v_1 - 3]",
        "    for o_1 in range(2):",
        "        for v_2 in vectorized(4):",
        "            C[(o_1 + 8) * 4 + v_2] = if_then_else(3 <= (o_1 + 8) * 4 + v_2 and (o_1 + 8) * 4 + v_2 < 33, A[(o_1 + 8) * 4 + v_2 - 3], -1.0)",
    ]
    agree(func, new)


def test_where_all_conditions_together_hold_nowhere_those_that_matter_most_are_split_off():
    a, c = Buffer("A", (28,)), Buffer("C", (30,))
    o, v = loop("o", 2), loop("v", 16, "vectorized")
    x = o.var * 16 + v.var
    padded = if_then_else(logical_and(as_expr(1) <= x, x < 29), load(a, [x - 1]), const(0.0, "float32"))
    func = function(nested([o, v], If(x < 30, store(c, [x], padded))), a, c)
    new = partitioned(func)
    assert [line.strip() for line in lines(new)][1] == "C[v] = if_then_else(1 <= v and v < 29, A[v - 1], 0.0)"
    agree(func, new)


def test_a_parallel_loop_is_tested_not_split():
    n = Var("n", "int32", (0, None))
    a, c = Buffer("A", (n,)), Buffer("C", (n,))
    o, v = loop("o", (n + 7) // 8, "parallel"), loop("v", 8, "vectorized")
    x = o.var * 8 + v.var
    func = function(nested([o, v], If(x < n, store(c, [x], load(a, [x]) + 1.0))), a, c, sizes=(n,))
    new = partitioned(func)
    assert lines(new) == [
        "    for o in parallel((n + 7) // 8):",
        "        if o * 8 + 8 <= n:",
        "            for v in vectorized(8):",
        "                C[o * 8 + v] = A[o * 8 + v] + 1.0",
        "        else:",
        "            for v_1 in vectorized(8):",
        "                if o * 8 + v_1 < n:",
        "                    C[o * 8 + v_1] = A[o * 8 + v_1] + 1.0",
    ]
    for size in (0, 1, 8, 19):
        agree(func, new, n=size)


def test_symbolic_sizes_split_a_serial_loop():
    n = Var("n", "int32", (0, None))
    a, c = Buffer("A", (n,)), Buffer("C", (n,))
    o, v = loop("o", (n + 7) // 8), loop("v", 8, "vectorized")
    x = o.var * 8 + v.var
    func = function(nested([o, v], If(x < n, store(c, [x], load(a, [x]) + 1.0))), a, c, sizes=(n,))
    new = partitioned(func)
    assert sum("if" in line for line in lines(new)) == 1
    for size in (0, 1, 7, 8, 9, 40, 43):
        agree(func, new, n=size)


def test_statements_outside_the_guard_still_run_for_every_iteration():
    a, c = Buffer("A", (64,)), Buffer("C", (64,))
    o, v, w = loop("o", 8), loop("v", 4, "vectorized"), loop("w", 4, "vectorized")
    first, second = o.var * 8 + v.var, o.var * 8 + 4 + w.var
    body = seq(nested([v], If(first < 30, store(c, [first], load(a, [first])))), nested([w], store(c, [second], const(2.0, "float32"))))
    func = function(nested([o], body), a, c)
    new = partitioned(func)
    assert new is not func
    agree(func, new)


def test_a_loop_in_the_guard_alone_is_shortened():
    a, c = Buffer("A", (64,)), Buffer("C", (64,))
    p, r, v = loop("p", 3, "parallel"), loop("r", 7), loop("v", 4, "vectorized")
    func = function(nested([p, r], If(p.var + r.var < 8, nested([v], store(c, [(p.var * 5 + r.var) * 4 + v.var], load(a, [v.var]))))), a, c)
    new = partitioned(func)
    assert "if" not in str(new) and "r_last = min(7 - p + 1, 7)" in str(new)
    agree(func, new)


def test_a_vectorised_loop_against_a_constant_is_cut():
    a, c = Buffer("A", (16,)), Buffer("C", (16,))
    v = loop("v", 16, "vectorized")
    func = function(nested([v], store(c, [v.var], if_then_else(v.var < 13, load(a, [v.var]), const(0.0, "float32")))), a, c)
    new = partitioned(func)
    assert lines(new)[:2] == ["    for v in vectorized(13):", "        C[v] = A[v]"]
    agree(func, new)


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_no_body_gets_more_copies_than_allowed(most):
    a, c = Buffer("A", (4096,)), Buffer("C", (4096,))
    loops = [loop(n, 3) for n in "xyz"] + [loop("v", 4, "vectorized"), loop("w", 4, "unrolled"), loop("u", 4, "unrolled")]
    x, y, z, v, w, u = (each.var for each in loops)
    i, j, k = x * 4 + v, y * 4 + w, z * 4 + u
    value = if_then_else(logical_and(logical_and(as_expr(1) <= i, i < 10), logical_and(logical_and(as_expr(2) <= j, j < 9), k < 11)),
                         load(a, [i * 144 + j * 12 + k - 30]), const(0.5, "float32"))  # fmt: skip
    func = function(nested(loops, store(c, [i * 144 + j * 12 + k], value)), a, c)
    new = partitioned(func, max_copies=most)
    assert sum(type(s).__name__ == "Store" for s in walk(new.body)) <= most
    agree(func, new)


def test_lanes_are_served_before_scalars_and_choices_outside_reductions():
    """A padded convolution: rows are unrolled, columns are lanes; both are split, the columns though they come later."""
    a, c = Buffer("A", (4096,)), Buffer("C", (16 * 30 * 30,))
    f, yo, xo, r, q, yi, v = (loop("f", 3), loop("yo", 15), loop("xo", 4), loop("r", 3), loop("q", 3), loop("yi", 2, "unrolled"), loop("v", 8, "vectorized"))
    y, x = yo.var * 2 + yi.var, xo.var * 8 + v.var
    inside = logical_and(logical_and(as_expr(1) <= y + r.var, y + r.var < 31), logical_and(as_expr(1) <= x + q.var, x + q.var < 31))
    value = if_then_else(inside, load(a, [(y + r.var) * 30 + x + q.var - 31]), const(0.0, "float32"))
    at = [f.var * 900 + y * 30 + x]
    body = If(x < 30, store(c, at, load(c, at) + value))
    func = function(nested([f, yo, xo, r, q, yi, v], body), a, c)
    text = str(partitioned(func))
    assert "for xo in range(2):" in text and "r_first" not in text
    assert sum(line.strip().startswith("C[") for line in text.splitlines()) == 3
    agree(func, partitioned(func))


def test_what_reads_memory_or_has_no_fast_body_is_left_alone():
    a, n, c = Buffer("A", (64,)), Buffer("N", (1,), "int32"), Buffer("C", (64,))
    o, v = loop("o", 8), loop("v", 8, "vectorized")
    x = o.var * 8 + v.var
    func = function(nested([o, v], If(x < load(n, [const(0)]), store(c, [x], load(a, [x])))), a, n, c)
    assert partitioned(func) is func
    o, v = loop("o", 8), loop("v", 8)
    x = o.var * 8 + v.var
    func = function(nested([o, v], If(x < 50, store(c, [x], load(a, [x])))), a, c)
    assert partitioned(func) is func


@settings(max_examples=120, deadline=None, print_blob=True)
@given(
    steps=st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.integers(-3, 3)),
    extents=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 7)),
    kinds=st.tuples(st.sampled_from(["serial", "parallel"]), st.sampled_from(["serial", "parallel", "unrolled"]), st.sampled_from(["vectorized", "unrolled"])),
    low=st.integers(-30, 30),
    width=st.integers(0, 40),
    as_value=st.booleans(),
    divisor=st.integers(1, 3),
)
@example((6, 6, 1), (3, 5, 6), ("parallel", "serial", "unrolled"), -5, 20, False, 1)
def test_random_guards_mean_the_same(steps, extents, kinds, low, width, as_value, divisor):
    a, c = Buffer("A", (max(width, 1),)), Buffer("C", (extents[0] * extents[1] * extents[2],))
    loops = [loop(n, e, k) for n, e, k in zip("xyz", extents, kinds, strict=True)]
    x, y, z = (each.var for each in loops)
    moved = x * steps[0] + y // divisor * steps[1] + z * steps[2]
    inside = logical_and(as_expr(low) <= moved, moved < low + width)
    where = [(x * extents[1] + y) * extents[2] + z]
    read = load(a, [moved - low])
    if as_value:
        body = store(c, where, if_then_else(inside, read, const(9.0, "float32")))
    else:
        body = If(inside, store(c, where, read + 1.0))
    func = function(nested(loops, body), a, c)
    agree(func, partitioned(func))


def test_kernels_have_a_body_for_whole_tiles(golden):
    """Where all threads of a block decide alike: by the block, and by the iteration of a serial loop; never by the thread."""
    A = te.placeholder((50, 33), name="A")
    k = te.reduce_axis((0, 33), name="k")
    C = te.compute((50,), lambda i: te.sum(A[i, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    S, L = s.cache_read(A, "shared", [C]), s.cache_write(C, "local")
    io, ii = s[C].split(s[C].op.axis[0], factor=8)
    s[C].bind(io, te.thread_axis("blockIdx.x"))
    s[C].bind(ii, te.thread_axis("threadIdx.x"))
    s[L].compute_at(s[C], ii)
    ko, ki = s[L].split(s[L].op.reduce_axis[0], factor=4)
    s[S].compute_at(s[L], ko)
    s[S].bind(s[S].op.axis[0], te.thread_axis("threadIdx.x"))
    s[S].vectorize(s[S].op.axis[1])
    func = lower_schedule(s, [A, C], "k")
    target = tw.Target("cuda", device="emulator")
    text = str(pipeline_for("cuda").run(func, target, [Verify(2), StopAfter("vectorize")]))
    golden("partition_of_a_kernel.txt", text + "\n")
    assert text.index("if blockIdx.x * 8 <= 42:") < text.index("for k.outer in range(8)") < text.index("else:")
    done = pipeline_for("cuda").run(func, target, [Verify(2)])
    a, c = np.random.default_rng(2).standard_normal((50, 33)).astype("f"), np.zeros(50, "f")
    interpret(done, [a, c], threads="barriers", seed=1)
    np.testing.assert_allclose(c, a.sum(1), rtol=1e-4, atol=1e-5)
