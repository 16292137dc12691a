"""Each primitive: the loops before and after, in printed IR, and that the values stay what they were."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule, replay_trace
from tilewright.tir.interp import interpret
from tilewright.tir.passes.simplify import simplify_function

rng = np.random.default_rng(7)


def two_stages(n=16):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((n,), lambda i: B[i] + 1.0, name="C")
    return A, B, C


def matrix(m=10, n=16):
    A = te.placeholder((m, n), name="A")
    C = te.compute((m, n), lambda i, j: A[i, j] * 2.0, name="C")
    return A, C


def row_sum(m=4, n=16):
    A = te.placeholder((m, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((m,), lambda i: te.sum(A[i, k], axis=k), name="C")
    return A, C, k


def body_text(s, args):
    """The simplified loops, without the signature."""
    func = simplify_function(lower_schedule(s, args))
    lines = str(func).splitlines()[1:]
    return "\n".join(line.removeprefix("    ") for line in lines)


def expect(s, args, text):
    assert body_text(s, args) == "\n".join(line for line in text.strip("\n").splitlines())


def values(s, args, *inputs):
    """What the schedule computes, by the interpreter, into poisoned outputs."""
    outputs = [np.full(t.shape, np.nan, t.dtype) for t in args[len(inputs) :]]
    interpret(lower_schedule(s, args), [*inputs, *outputs])
    return outputs


def check_matrix(s, A, C):
    a = rng.standard_normal(A.shape).astype("f")
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, a * 2)


def check_sum(s, A, C):
    a = rng.integers(-8, 8, A.shape).astype("f")
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, a.sum(1))


def check_chain(s, A, C):
    a = rng.standard_normal(A.shape).astype("f")
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, a * 2 + 1)


def test_split_by_factor_with_a_tail():
    A, C = matrix()
    s = create_schedule(C.op)
    s[C].split(C.op.axis[0], factor=4)
    expect(
        s,
        [A, C],
        """
produce C:
    for i.outer in range(3):
        for i.inner in range(4):
            if i.outer * 4 + i.inner < 10:
                for j in range(16):
                    C[i.outer * 4 + i.inner, j] = A[i.outer * 4 + i.inner, j] * 2.0
""",
    )
    check_matrix(s, A, C)


def test_split_by_nparts():
    A, C = matrix()
    s = create_schedule(C.op)
    s[C].split(C.op.axis[1], nparts=2)
    expect(
        s,
        [A, C],
        """
produce C:
    for i in range(10):
        for j.outer in range(2):
            for j.inner in range(8):
                C[i, j.outer * 8 + j.inner] = A[i, j.outer * 8 + j.inner] * 2.0
""",
    )
    check_matrix(s, A, C)


def test_a_factor_larger_than_the_extent_makes_no_empty_iterations():
    A, C = matrix(m=3)
    s = create_schedule(C.op)
    s[C].split(C.op.axis[0], factor=64)
    assert "< 3" not in body_text(s, [A, C])
    check_matrix(s, A, C)


def test_tile():
    A, C = matrix(8, 16)
    s = create_schedule(C.op)
    s[C].tile(*C.op.axis, 4, 8)
    expect(
        s,
        [A, C],
        """
produce C:
    for i.outer in range(2):
        for j.outer in range(2):
            for i.inner in range(4):
                for j.inner in range(8):
                    C[i.outer * 4 + i.inner, j.outer * 8 + j.inner] = A[i.outer * 4 + i.inner, j.outer * 8 + j.inner] * 2.0
""",
    )
    check_matrix(s, A, C)


def test_fuse():
    A, C = matrix()
    s = create_schedule(C.op)
    s[C].fuse(*C.op.axis)
    expect(
        s,
        [A, C],
        """
produce C:
    for i.j.fused in range(160):
        C[i.j.fused // 16, i.j.fused % 16] = A[i.j.fused // 16, i.j.fused % 16] * 2.0
""",
    )
    check_matrix(s, A, C)


def test_fuse_of_nothing_is_an_axis_of_extent_one():
    A, C = matrix()
    s = create_schedule(C.op)
    one = s[C].fuse()
    assert one.dom.extent == 1 and s[C].leaf_iter_vars[0] is one
    check_matrix(s, A, C)


def test_fuse_then_split_with_a_tail():
    A, C = matrix(5, 7)
    s = create_schedule(C.op)
    s[C].split(s[C].fuse(*C.op.axis), factor=4)
    check_matrix(s, A, C)


def test_reorder():
    A, C = matrix()
    s = create_schedule(C.op)
    i, j = C.op.axis
    s[C].reorder(j, i)
    expect(
        s,
        [A, C],
        """
produce C:
    for j in range(16):
        for i in range(10):
            C[i, j] = A[i, j] * 2.0
""",
    )
    check_matrix(s, A, C)


def test_reorder_puts_initial_values_before_the_first_reduce_loop():
    A, C, k = row_sum()
    s = create_schedule(C.op)
    s[C].reorder(k, C.op.axis[0])
    expect(
        s,
        [A, C],
        """
produce C:
    for i in range(4):
        C[i] = 0.0
    for k in range(16):
        for i_1 in range(4):
            C[i_1] = C[i_1] + A[i_1, k]
""",
    )
    check_sum(s, A, C)


@pytest.mark.parametrize(("primitive", "word"), [("vectorize", "vectorized"), ("unroll", "unrolled"), ("parallel", "parallel")])
def test_loop_kinds(primitive, word):
    A, C = matrix()
    s = create_schedule(C.op)
    getattr(s[C], primitive)(C.op.axis[1])
    assert f"for j in {word}(16):" in body_text(s, [A, C])
    check_matrix(s, A, C)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1), (3, 7), (4, 8), (5, 9), (2, 33)])
def test_vectorize_of_an_attached_stage_is_of_what_its_reader_needs(sizes):
    """The whole tensor has a symbolic number of columns; inside the tile, nine are needed."""
    n, m = te.size_var("n"), te.size_var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] * 2.0 + te.if_then_else(j > 0, B[i, j - 1], 0.0), name="C")
    s = create_schedule(C)
    s[B].compute_at(s[C], s[C].split(C.op.axis[1], factor=8)[0])
    s[B].vectorize(B.op.axis[1])
    a, c = rng.random(sizes, "float32"), np.full(sizes, np.nan, "f")
    tw.build(s, [A, C])(a, c)
    b = a + 1
    want = b * 2
    want[:, 1:] += b[:, :-1]
    np.testing.assert_allclose(c, want, rtol=1e-6)


def test_bind_is_recorded():
    A, C = matrix()
    s = create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    assert "for i in thread[blockIdx.x](10):" in body_text(s, [A, C])


def test_pragma():
    A, C = matrix()
    s = create_schedule(C.op)
    s[C].pragma(C.op.axis[1], "unroll", 4)
    assert "for j in range(16):  # pragma unroll 4" in body_text(s, [A, C])


def test_prefetch():
    A, C = matrix()
    s = create_schedule(C.op)
    s[C].prefetch(A, C.op.axis[0], 2)
    assert "prefetch A[i + 2, 0]" in body_text(s, [A, C])
    check_matrix(s, A, C)


def test_compute_at_computes_what_one_iteration_needs():
    A, B, C = two_stages()
    s = create_schedule(C.op)
    io, _ = s[C].split(C.op.axis[0], factor=4)
    s[B].compute_at(s[C], io)
    expect(
        s,
        [A, C],
        """
produce C:
    for i.outer in range(4):
        allocate B: float32[4]
        produce B:
            for i in range(4):
                B[i] = A[i.outer * 4 + i] * 2.0
        for i.inner in range(4):
            C[i.outer * 4 + i.inner] = B[i.inner] + 1.0
""",
    )
    check_chain(s, A, C)


def test_compute_at_an_axis_split_later_moves_to_the_inner_part():
    A, B, C = two_stages(10)
    s = create_schedule(C.op)
    i = C.op.axis[0]
    s[B].compute_at(s[C], i)
    s[C].split(i, factor=4)
    assert "allocate B: float32[1]" in body_text(s, [A, C])
    check_chain(s, A, C)


def test_compute_at_with_a_tail_guards_the_producer():
    A, B, C = two_stages(10)
    s = create_schedule(C.op)
    io, _ = s[C].split(C.op.axis[0], factor=4)
    s[B].compute_at(s[C], io)
    check_chain(s, A, C)


def test_compute_at_of_a_stencil_computes_its_border_again():
    A = te.placeholder((20,), name="A")
    B = te.compute((18,), lambda i: A[i] + A[i + 2], name="B")
    C = te.compute((16,), lambda i: B[i] + B[i + 1] * B[i + 2], name="C")
    s = create_schedule(C.op)
    io, _ = s[C].split(C.op.axis[0], factor=4)
    s[B].compute_at(s[C], io)
    assert "allocate B: float32[6]" in body_text(s, [A, C])
    a = rng.integers(-9, 9, 20).astype("f")
    (c,) = values(s, [A, C], a)
    b = a[:18] + a[2:]
    np.testing.assert_array_equal(c, b[:16] + b[1:17] * b[2:])


def test_compute_inline_and_root_again():
    A, B, C = two_stages()
    s = create_schedule(C.op)
    s[B].compute_inline()
    expect(
        s,
        [A, C],
        """
produce C:
    for i in range(16):
        C[i] = A[i] * 2.0 + 1.0
""",
    )
    check_chain(s, A, C)
    s[B].compute_root()
    assert "allocate B: float32[16]" in body_text(s, [A, C])
    check_chain(s, A, C)


def test_set_scope():
    A, B, C = two_stages()
    s = create_schedule(C.op)
    s[B].set_scope("local")
    assert "allocate B: float32[16] in local" in body_text(s, [A, C])
    check_chain(s, A, C)


def two_dimensional_chain():
    A = te.placeholder((6, 20), name="A")
    B = te.compute((6, 20), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 20), lambda i, j: B[i, j] + 1.0, name="C")
    return A, B, C


def test_storage_align():
    A, B, C = two_dimensional_chain()
    s = create_schedule(C.op)
    s[B].storage_align(B.op.axis[0], 8, 1)
    assert "allocate B: float32[6, 20] strides [25, 1]" in body_text(s, [A, C])
    check_chain(s, A, C)


def test_storage_align_of_an_axis_that_a_layout_moves():
    A, B, C = two_dimensional_chain()
    s = create_schedule(C.op)
    s[B].transform_layout(lambda i, j: [j, i])
    s[B].storage_align(B.op.axis[1], 8, 1)
    assert "allocate B: float32[20, 6] strides [9, 1]" in body_text(s, [A, C])
    check_chain(s, A, C)


def test_storage_align_of_an_axis_that_a_layout_divides():
    """It is the innermost part that is apart from what is inside of it."""
    A, B, C = two_dimensional_chain()
    s = create_schedule(C.op)
    s[B].transform_layout(lambda i, j: [i % 3, i // 3, j])
    s[B].storage_align(B.op.axis[0], 8, 1)
    assert "allocate B: float32[3, 2, 20] strides [50, 25, 1]" in body_text(s, [A, C])
    check_chain(s, A, C)


@pytest.mark.parametrize("layout", [lambda i, j: [i, j ^ (i % 4)], lambda i, j: [i, ((j // 4) ^ (i % 8)) * 4 + j % 4]])
def test_transform_layout_against_bank_conflicts(layout):
    """Exclusive or: neighbours in a column come to lie in different places of their rows."""
    A, B, C = two_dimensional_chain()
    s = create_schedule(C.op)
    s[B].transform_layout(layout)
    s[C].vectorize(s[C].op.axis[1])
    assert "allocate B: float32[6, 32]" in body_text(s, [A, C])
    check_chain(s, A, C)
    t = replay_trace(create_schedule(C.op), s.trace.to_json())
    assert body_text(t, [A, C]) == body_text(s, [A, C]) and "^" in s.as_python()
    a, c = np.random.default_rng(2).standard_normal((6, 20)).astype("f"), np.zeros((6, 20), "f")
    tw.build(s, [A, C])(a, c)
    np.testing.assert_array_equal(c, a * 2 + 1)


def test_transform_layout_packs_and_rewrites_readers():
    A, B, C = two_dimensional_chain()
    s = create_schedule(C.op)
    s[B].transform_layout(lambda i, j: [j // 8, i, j % 8])
    expect(
        s,
        [A, C],
        """
allocate B: float32[3, 6, 8]
produce B:
    for i in range(6):
        for j in range(20):
            B[j // 8, i, j % 8] = A[i, j] * 2.0
produce C:
    for i_1 in range(6):
        for j_1 in range(20):
            C[i_1, j_1] = B[j_1 // 8, i_1, j_1 % 8] + 1.0
""",
    )
    check_chain(s, A, C)


@pytest.mark.parametrize("layout", [lambda i, j: [j, i], lambda i, j: [i, j // 4, j % 4], lambda i, j: [j // 3, i % 5, j % 3, i // 5]])
def test_transform_layout_of_symbolic_extents(layout):
    n, m = te.size_var("n"), te.size_var("m")
    A = te.placeholder((n + 1, m), "int32", name="A")
    B = te.compute((n + 1, m), lambda i, j: A[i, j] * 3, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] - B[i + 1, j], name="C")
    s = create_schedule(C.op)
    s[B].transform_layout(layout)
    module = tw.build(s, [A, C])
    for rows, columns in ((0, 3), (1, 1), (6, 9), (4, 0)):
        a = np.random.default_rng(0).integers(-9, 9, (rows + 1, columns)).astype("int32")
        c = np.full((rows, columns), 77, "int32")
        module(a, c)
        np.testing.assert_array_equal(c, 3 * (a[:-1] - a[1:]))


def test_cache_read():
    A, B, C = two_stages()
    s = create_schedule(C.op)
    BL = s.cache_read(B, "local", [C])
    s[BL].compute_at(s[C], C.op.axis[0])
    expect(
        s,
        [A, C],
        """
allocate B: float32[16]
produce B:
    for i in range(16):
        B[i] = A[i] * 2.0
produce C:
    for i_1 in range(16):
        allocate B.local: float32[1] in local
        produce B.local:
            B.local[0] = B[i_1]
        C[i_1] = B.local[0] + 1.0
""",
    )
    check_chain(s, A, C)


def test_cache_write_takes_the_reduction_along():
    A, C, k = row_sum()
    s = create_schedule(C.op)
    CL = s.cache_write(C, "local")
    s[CL].compute_at(s[C], C.op.axis[0])
    assert s[CL].op.reduce_axis[0] is k
    expect(
        s,
        [A, C],
        """
produce C:
    for i in range(4):
        allocate C.local: float32[1] in local
        produce C.local:
            C.local[0] = 0.0
            for k in range(16):
                C.local[0] = C.local[0] + A[i, k]
        C[i] = C.local[0]
""",
    )
    check_sum(s, A, C)


def test_cache_write_of_all_outputs_together():
    A = te.placeholder((8,), name="A")
    X, Y = te.compute((8,), lambda i: (A[i] + 1.0, A[i] * 2.0), name="XY")
    s = create_schedule(X.op)
    cached = s.cache_write([X, Y], "local")
    assert len(cached) == 2
    a = rng.standard_normal(8).astype("f")
    x, y = values(s, [A, X, Y], a)
    np.testing.assert_array_equal(x, a + 1)
    np.testing.assert_array_equal(y, a * 2)


def test_rfactor_with_a_tail():
    A, C, k = row_sum(4, 19)
    s = create_schedule(C.op)
    _, ki = s[C].split(k, factor=8)
    CF = s.rfactor(C, ki)
    assert [a.name for a in s[CF].op.axis] == ["k.inner", "i"]
    expect(
        s,
        [A, C],
        """
allocate C.rf: float32[8, 4]
produce C.rf:
    for k.inner in range(8):
        for i in range(4):
            C.rf[k.inner, i] = 0.0
            for k.outer in range(3):
                if k.inner + k.outer * 8 < 19:
                    C.rf[k.inner, i] = C.rf[k.inner, i] + A[i, k.inner + k.outer * 8]
produce C:
    for i_1 in range(4):
        C[i_1] = 0.0
        for k.inner_1 in range(8):
            C[i_1] = C[i_1] + C.rf[k.inner_1, i_1]
""",
    )
    check_sum(s, A, C)


def test_rfactor_puts_the_new_axis_where_asked_and_keeps_init_in_the_final_stage():
    A = te.placeholder((4, 12), name="A")
    D = te.placeholder((4,), name="D")
    k = te.reduce_axis((0, 12), name="k")
    C = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=D[i]), name="C")
    s = create_schedule(C.op)
    ko, _ = s[C].split(k, factor=3)
    CF = s.rfactor(C, ko, factor_axis=1)
    assert tuple(CF.shape) == (4, 4) and s[CF].op.axis[1].name == "k.outer"
    a, d = rng.integers(-9, 9, (4, 12)).astype("f"), rng.integers(-9, 9, 4).astype("f")
    (c,) = values(s, [A, D, C], a, d)
    np.testing.assert_array_equal(c, a.sum(1) + d)


def test_rfactor_of_a_whole_axis_and_of_a_tuple():
    A = te.placeholder((5, 9), name="A")
    k = te.reduce_axis((0, 9), name="k")
    index, value = te.compute((5,), lambda i: te.argmax((k, A[i, k]), axis=k), name="best")
    s = create_schedule(index.op)
    parts = s.rfactor(index, k)
    assert len(parts) == 2
    a = rng.permutation(45).reshape(5, 9).astype("f")
    i, v = values(s, [A, index, value], a)
    np.testing.assert_array_equal(i, a.argmax(1))
    np.testing.assert_array_equal(v, a.max(1))


def test_attach_chain_through_a_reduction():
    A = te.placeholder((6, 8), name="A")
    B = te.compute((6, 8), lambda i, j: A[i, j] + 1.0, name="B")
    D = te.compute((6, 8), lambda i, j: B[i, j] * 3.0, name="D")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((6,), lambda i: te.sum(D[i, k], axis=k), name="C")
    s = create_schedule(C.op)
    ko, _ = s[C].split(k, factor=3)
    s[D].compute_at(s[C], ko)
    s[B].compute_at(s[D], D.op.axis[1])
    a = rng.integers(-9, 9, (6, 8)).astype("f")
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, ((a + 1) * 3).sum(1))


def test_a_copy_knows_which_stages_are_where_they_belong():
    S, X = te.placeholder((5, 4), name="S"), te.placeholder((5, 4), name="X")
    update = te.compute((5, 4), lambda t, i: S[t - 1, i] + X[t, i], name="update")
    s = create_schedule(te.scan(te.compute((1, 4), lambda t, i: X[t, i], name="init"), update, S)).copy()
    assert s[update].attach is s[update].home


def test_copy_is_independent():
    A, B, C = two_stages()
    s = create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    before = body_text(s, [A, C])
    t = s.copy()
    assert s.normalize() is not s and str(s.normalize()) == str(s)
    t[B].compute_inline()
    t[C].split(C.op.axis[0], factor=4)
    assert body_text(s, [A, C]) == before != body_text(t, [A, C])
    assert len(s.trace) == 1 and len(t.trace) == 3
    check_chain(t, A, C)


def everything():
    """A schedule that uses most primitives, and how to declare its computation afresh."""

    def declare():
        A = te.placeholder((20, 24), name="A")
        D = te.compute((20, 24), lambda i, j: A[i, j] + 1.0, name="D")
        k = te.reduce_axis((0, 24), name="k")
        C = te.compute((20,), lambda i: te.sum(D[i, k] * D[i, k], axis=k), name="C")
        E = te.compute((20,), lambda i: C[i] * 0.5, name="E")
        return A, D, C, E, k

    A, D, C, E, k = declare()
    s = create_schedule(E.op)
    AA = s.cache_read(A, "local", [D])
    s[D].transform_layout(lambda i, j: [j // 8, i, j % 8])
    ko, ki = s[C].split(k, nparts=5)
    CF = s.rfactor(C, ki)
    io, ii = s[E].split(E.op.axis[0], factor=6)
    s[E].parallel(io)
    s[C].compute_at(s[E], io)
    s[CF].compute_at(s[E], io)
    s[D].compute_at(s[CF], s[CF].op.axis[1])
    s[AA].compute_inline()
    s[E].vectorize(ii)
    s[E].pragma(io, "auto_unroll_max_step", 16)
    s[CF].prefetch(D, s[CF].op.axis[0], 1)
    return declare, s, [A, E]


def test_trace_replays_on_a_fresh_computation():
    declare, s, args = everything()
    fresh = declare()
    t = create_schedule(fresh[3].op)
    replay_trace(t, s.trace.to_json())
    assert body_text(t, [fresh[0], fresh[3]]) == body_text(s, args)
    assert t.trace.to_json() == s.trace.to_json()


def test_as_python_runs_and_leaves_the_same_schedule():
    declare, s, args = everything()
    A, D, C, E, _ = declare()
    scope = {"te": te, "tw": tw, "A": A, "D": D, "C": C, "E": E}
    exec(s.as_python(), scope)
    assert body_text(scope["s"], [A, E]) == body_text(s, args)


def test_as_python_with_several_outputs_of_a_stage():
    def declare():
        A = te.placeholder((8,), name="A")
        return A, *te.compute((8,), lambda i: (A[i] + 1.0, A[i] * 2.0), name="XY")

    A, X, Y = declare()
    s = create_schedule(X.op)
    cached = s.cache_write([X, Y], "local")
    s[cached[0]].compute_at(s[X], X.op.axis[0])
    A2, X2, Y2 = declare()
    scope = {"te": te, "A": A2, "XY": X2}
    exec(s.as_python(), scope)
    assert body_text(scope["s"], [A2, X2, Y2]) == body_text(s, [A, X, Y])


def test_dead_stages_are_not_computed_and_zero_extents_work():
    A = te.placeholder((0, 4), name="A")
    k = te.reduce_axis((0, 0), name="k")
    C = te.compute((0, 4), lambda i, j: A[i, j] + 1.0, name="C")
    S = te.compute((4,), lambda j: te.sum(A[k, j], axis=k), name="S")
    (c,) = values(create_schedule(C.op), [A, C], np.empty((0, 4), "f"))
    assert c.shape == (0, 4)
    (t,) = values(create_schedule(S.op), [A, S], np.empty((0, 4), "f"))
    np.testing.assert_array_equal(t, np.zeros(4))


def test_print_and_html():
    _, s, _ = everything()
    assert "stage E(i.outer:parallel, i.inner:vectorized)" in str(s) and s._repr_html_().startswith("<pre>")
    text = repr(s.trace)
    assert "C: split(k, nparts=5) -> k.outer, k.inner\n" in text and "C: compute_at(E, i.outer)\n" in text
    assert "transform_layout([(i1 // 8), i0, (i1 % 8)])" in text and "schedule: cache_read(A, 'local', [D]) -> A.local\n" in text
    assert "s[C].compute_at(s[E], i_outer)" in s.as_python()


def stencil(n=16, stride=1):
    A = te.placeholder((n * stride + 2,), name="A")
    B = te.compute((n * stride + 2,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((n,), lambda i: B[i * stride] + B[i * stride + 1] + B[i * stride + 2], name="C")
    return A, B, C


def check_stencil(s, A, C, stride=1):
    a = rng.integers(-8, 8, A.shape).astype("f")
    (c,) = values(s, [A, C], a)
    b, n = a * 2, C.shape[0]
    np.testing.assert_array_equal(c, sum(b[d : d + (n - 1) * stride + 1 : stride] for d in range(3)))


def test_double_buffer_is_recorded_and_changes_no_loop():
    A, B, C = two_stages()
    s = create_schedule(C.op)
    before = body_text(s, [A, C])
    s[B].double_buffer()
    assert body_text(s, [A, C]) == before.replace("produce B:", "produce B:  # pragma double_buffer 2")
    assert "double buffered" in str(s) and "s[B].double_buffer()" in s.as_python()
    check_chain(s, A, C)


def test_rolling_buffer():
    A, B, C = stencil()
    s = create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].rolling_buffer()
    expect(
        s,
        [A, C],
        """
produce C:
    allocate B: float32[3]
    for i in range(16):
        produce B:
            for i_1 in range(3):
                if i == 0 or 1 < i_1:
                    B[(i + i_1) % 3] = A[i + i_1] * 2.0
        C[i] = B[i % 3] + B[(i + 1) % 3] + B[(i + 2) % 3]
""",
    )
    check_stencil(s, A, C)
    s[B].compute_root()  # takes it back
    assert "rolling" not in str(s) and "%" not in body_text(s, [A, C])


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("factor", [1, 3, 5, 16])
def test_rolling_buffer_inside_tiles_with_tails(stride, factor):
    A, B, C = stencil(14, stride)
    s = create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=factor)
    s[C].parallel(outer)
    s[B].compute_at(s[C], inner)
    s[B].rolling_buffer()
    check_stencil(s, A, C, stride)


def test_rolling_buffer_of_rows_with_padding():
    A = te.placeholder((9, 12), name="A")
    B = te.compute((9, 12), lambda y, x: A[y, x] * 2.0, name="B")
    P = te.compute((11, 12), lambda y, x: te.if_then_else(te.all(y >= 1, y < 10), B[y - 1, x], 0.0), name="P")
    C = te.compute((9, 12), lambda y, x: P[y, x] + P[y + 1, x] + P[y + 2, x], name="C")
    s = create_schedule(C.op)
    for stage in (B, P):
        s[stage].compute_at(s[C], C.op.axis[0])
        s[stage].rolling_buffer()
    s[P].vectorize(P.op.axis[1])
    a = rng.integers(-8, 8, (9, 12)).astype("f")
    b = np.pad(a * 2, ((1, 1), (0, 0)))
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, b[:-2] + b[1:-1] + b[2:])
    c[:] = np.nan
    tw.build(s, [A, C])(a, c)
    np.testing.assert_array_equal(c, b[:-2] + b[1:-1] + b[2:])


def test_rolling_buffer_of_a_reduction():
    A, k = te.placeholder((18, 5), name="A"), te.reduce_axis((0, 5), "k")
    B = te.compute((18,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((16,), lambda i: B[i] + B[i + 2], name="C")
    s = create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].rolling_buffer()
    s[B].reorder(k, B.op.axis[0])
    a = rng.integers(-8, 8, (18, 5)).astype("f")
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, a.sum(1)[:-2] + a.sum(1)[2:])


def test_set_store_predicate_stores_what_it_says_and_leaves_the_rest():
    A, C = matrix()
    s = create_schedule(C.op)
    i, j = C.op.axis
    outer, inner = s[C].split(j, factor=4)
    s[C].vectorize(inner)
    s[C].set_store_predicate(te.all(i < 7, ~(outer % 2 == 1), te.any(i == 2, j != 1)))
    a = rng.standard_normal(A.shape).astype("f")
    rows, columns = np.indices(C.shape)
    stored = (rows < 7) & (columns // 4 % 2 == 0) & ((rows == 2) | (columns != 1))
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, np.where(stored, a * 2, np.nan))
    c[:] = -5
    tw.build(s, [A, C])(a, c)
    np.testing.assert_array_equal(c, np.where(stored, a * 2, -5))


def test_set_store_predicate_of_a_reduction_and_of_threads():
    A, C, k = row_sum()
    s = create_schedule(C.op)
    thread = te.thread_axis("threadIdx.x")
    s[C].bind(C.op.axis[0], thread)
    s[C].set_store_predicate(thread == 1)
    a = rng.integers(-8, 8, A.shape).astype("f")
    (c,) = values(s, [A, C], a)
    np.testing.assert_array_equal(c, np.where(np.arange(4) == 1, a.sum(1), np.nan))


def test_predicates_and_threads_are_data():
    A, C = matrix()
    s = create_schedule(C.op)
    i, j = C.op.axis
    outer, inner = s[C].split(i, factor=4)
    s[C].bind(j, te.thread_axis("threadIdx.x"))
    s[C].set_store_predicate(te.all(outer * 4 + inner < 9, ~te.any(i == 3, j >= 8), i // 2 - 1 != 2))
    s[C].env_threads([te.thread_axis(8, "blockIdx.x"), te.thread_axis(2, "threadIdx.y")])
    again = replay_trace(create_schedule(C.op), s.trace.to_json())
    assert body_text(again, [A, C]) == body_text(s, [A, C]) and [t.thread_tag for t in again[C].threads] == ["blockIdx.x", "threadIdx.y"]
    script = {"te": te, "C": C}
    exec(s.as_python(), script)  # our own text
    assert body_text(script["s"], [A, C]) == body_text(s, [A, C])
    assert str(script["s"].trace) == str(s.trace)
    c = s.copy()
    c[C].set_store_predicate(True)
    assert body_text(c, [A, C]) != body_text(s, [A, C])


def test_create_group():
    A, B, C = two_stages()
    D = te.compute((16,), lambda i: C[i] - 3.0, name="D")
    s = create_schedule(D.op)
    io, ii = s[D].split(D.op.axis[0], factor=4)
    group = s.create_group(outputs=C, inputs=A)
    assert repr(group) == "group (B, C)"
    group.compute_at(s[D], io)
    expect(
        s,
        [A, D],
        """
produce D:
    for i.outer in range(4):
        allocate B: float32[4]
        allocate C: float32[4]
        produce B:
            for i in range(4):
                B[i] = A[i.outer * 4 + i] * 2.0
        produce C:
            for i_1 in range(4):
                C[i_1] = B[i_1] + 1.0
        for i.inner in range(4):
            D[i.outer * 4 + i.inner] = C[i.inner] - 3.0
""",
    )
    assert body_text(replay_trace(create_schedule(D.op), s.trace.to_json()), [A, D]) == body_text(s, [A, D])
    group.compute_root()
    assert "at D" not in str(s)
    s[B].compute_at(s[C], C.op.axis[0])
    group.compute_at(s[D], io)  # B stays where it is, inside C
    assert s[B].attach.consumer is s[C] and s[C].attach.consumer is s[D]
    assert s.create_group([C], [B]).stages == [s[C]] and s.create_group([C], [B], include_inputs=True).stages == [s[B], s[C]]
