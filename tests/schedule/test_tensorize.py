"""tensorize: what nests become, that the values stay, in the interpreter and in C, and every refusal."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule, replay_trace
from tilewright.tir.errors import ScheduleError, TEError
from tilewright.tir.interp import interpret

rng = np.random.default_rng(11)

OUTER_C = """
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) c[i * c_0 + j * c_1] += a[i * a_0] * b[j * b_1];
"""


def outer_product(name="outer4x4", kind="float32", **codes):
    """c[i, j] += a[i] * b[j]: `k` of extent 1 has no loop in the nests it stands for."""
    a, b = te.placeholder((4, 1), kind, "a"), te.placeholder((1, 4), kind, "b")
    k = te.reduce_axis((0, 1), "k")
    c = te.compute((4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    codes = codes or {"update": {"c": OUTER_C, "python": lambda c, a, b: np.add(c, a * b, out=c)}}
    return te.decl_tensor_intrin(c.op, name=name, **codes)


def matmul(m, n, depth, kind="float32"):
    A, B = te.placeholder((m, depth), kind, "A"), te.placeholder((depth, n), kind, "B")
    k = te.reduce_axis((0, depth), "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C, k


def blocked(m=8, n=12, depth=5):
    A, B, C, k = matmul(m, n, depth)
    s = create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 4, 4)
    s[C].reorder(io, jo, k, ii, ji)
    return s, A, B, C, k, (io, jo, ii, ji)


def run_both(s, args, *inputs):
    """The output by the interpreter, which must be that of the compiled kernel too."""
    results = []
    for run in (lambda *arrays: interpret(lower_schedule(s, args), arrays), lambda *arrays: interpret(tw.lower(s, args), arrays), tw.build(s, args)):
        out = np.full(args[-1].shape, 77, args[-1].dtype)
        run(*inputs, out)
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    return results[0]


def check_matmul(s, A, B, C):
    a, b = (rng.integers(-9, 9, t.shape).astype("f") for t in (A, B))
    np.testing.assert_array_equal(run_both(s, [A, B, C], a, b), a @ b)


def test_an_outer_product_of_ones_own():
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    s[C].tensorize(ii, outer_product())
    assert (
        str(lower_schedule(s, [A, B, C]))
        == """\
def main(A: float32[8, 5], B: float32[5, 12], C: float32[8, 12] out):
    produce C:
        for i.outer in range(2):
            for j.outer in range(3):
                for i.inner in range(4):
                    for j.inner in range(4):
                        C[i.outer * 4 + i.inner, j.outer * 4 + j.inner] = 0.0
                for k in range(5):
                    intrinsic outer4x4_update(c=&C[i.outer * 4, j.outer * 4] by [1, 0] by [0, 1], a=&A[i.outer * 4, k] by [1, 0] by [0, 0], \
b=&B[k, j.outer * 4] by [0, 0] by [0, 1])"""
    )
    check_matmul(s, A, B, C)
    source = tw.build(s, [A, B, C]).get_source()
    assert source.count("static inline") == 1 and "tw_intrinsic_outer4x4_update" in source


def test_loops_in_another_order_and_operands_the_other_way_round():
    A, B, _, k = matmul(8, 12, 5)
    C = te.compute((8, 12), lambda i, j: te.sum(B[k, j] * A[i, k], axis=k), name="C")
    s = create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 4, 4)
    s[C].reorder(jo, io, k, ji, ii)
    s[C].parallel(jo)
    s[C].tensorize(ji, outer_product())
    check_matmul(s, A, B, C)


def test_operands_that_run_backwards():
    A, B, _, k = matmul(8, 12, 5)
    C = te.compute((8, 12), lambda i, j: te.sum(A[7 - i, k] * B[4 - k, 11 - j], axis=k), name="C")
    s = create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 4, 4)
    s[C].reorder(io, jo, k, ii, ji)
    s[C].tensorize(ii, outer_product())
    a, b = (rng.integers(-9, 9, t.shape).astype("f") for t in (A, B))
    np.testing.assert_array_equal(run_both(s, [A, B, C], a, b), a[::-1] @ b[::-1, ::-1])


@pytest.mark.parametrize("padding", [False, True])
def test_into_a_cache_and_from_one(padding):
    """The accumulators are a local buffer, which may not become variables: its address is taken."""
    A, B, C, k = matmul(8, 8, 6)
    s = create_schedule(C.op)
    L = s.cache_write(C, "local")
    io, jo, ii, ji = s[C].tile(*C.op.axis, 4, 4)
    s[L].compute_at(s[C], jo)
    (k,) = L.op.reduce_axis
    s[L].reorder(k, *L.op.axis)
    P = s.cache_read(B, "global", [s[L]])
    if padding:
        s[P].storage_align(P.op.axis[0], 8, 3)
    s[L].tensorize(L.op.axis[0], outer_product())
    check_matmul(s, A, B, C)


def test_whole_reductions():
    """`body` does initial values too; with `init` and `update` both are called; without `init` loops store the zeros."""
    a = te.placeholder((6,), "int32", "a")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((), lambda: te.sum(a[k], axis=k), name="c")
    text = "    {0}; for (int k = 0; k < 6; ++k) *c += a[k * a_0];"
    body = {"c": text.format("*c = 0"), "python": lambda c, a: c.fill(a.sum())}
    update = {"c": text.format(""), "python": lambda c, a: np.add(c, a.sum(), out=c)}
    init = {"c": "    *c = 0;", "python": lambda c: c.fill(0)}
    for codes in ({"body": body}, {"update": update}, {"init": init, "update": update}):
        A = te.placeholder((5, 6), "int32", "A")
        r = te.reduce_axis((0, 6), "r")
        R = te.compute((5,), lambda i, A=A, r=r: te.sum(A[i, r], axis=r), name="R")
        s = create_schedule(R.op)
        s[R].tensorize(r, te.decl_tensor_intrin(c, name="sum6", **codes))
        values = rng.integers(-99, 99, (5, 6)).astype("int32")
        np.testing.assert_array_equal(run_both(s, [A, R], values), values.sum(1))
        assert str(lower_schedule(s, [A, R])).count("intrinsic") == len(codes)
    s = create_schedule(R.op)
    outer, inner = s[R].split(R.op.axis[0], factor=1)
    s[R].tensorize(inner, te.decl_tensor_intrin(c, name="sum6", init=init, update=update))  # the data-parallel loop is inside
    np.testing.assert_array_equal(run_both(s, [A, R], values), values.sum(1))


def packed_matmul(m, n, depth, kind="uint8"):
    A, B = te.placeholder((m, depth), kind, "A"), te.placeholder((n // 8, depth // 4, 8, 4), "int8", "B")
    k = te.reduce_axis((0, depth), "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k].astype("int32") * B[j // 8, k // 4, j % 8, k % 4].astype("int32"), axis=k), name="C")
    s = create_schedule(C.op)
    i, j = C.op.axis
    jo, ji = s[C].split(j, factor=8)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(i, jo, ko, ji, ki)
    return s, A, B, C, ji


@pytest.mark.parametrize("cpu", ["native", "x86-64"])
def test_the_dot_product_is_exact(cpu):
    """Also where sums of two products do not fit int16, at which vpmaddubsw saturates; and without AVX2."""
    s, A, B, C, ji = packed_matmul(5, 16, 24)
    s[C].parallel(C.op.axis[0])
    s[C].tensorize(ji, te.tensor_intrin("dot_u8s8_8x4"))
    a = rng.integers(0, 256, A.shape).astype("uint8")
    b = rng.integers(-128, 128, B.shape).astype("int8")
    a[0], b[0] = 255, -128
    a[1], b[1, 0] = 255, 127
    want = a.astype("int32") @ b.transpose(0, 2, 1, 3).reshape(16, 24).astype("int32").T
    np.testing.assert_array_equal(run_both(s, [A, B, C], a, b), want)
    c = np.full(C.shape, -1, "int32")
    tw.build(s, [A, B, C], target=tw.Target("c", cpu=cpu))(a, b, c)
    np.testing.assert_array_equal(c, want)


def test_the_dot_product_of_rows_that_are_not_packed():
    A, B = te.placeholder((3, 8), "uint8", "A"), te.placeholder((8, 16), "int8", "B")
    k = te.reduce_axis((0, 8), "k")
    C = te.compute((3, 16), lambda i, j: te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k), name="C")
    s = create_schedule(C.op)
    jo, ji = s[C].split(C.op.axis[1], factor=8)
    ko, ki = s[C].split(k, factor=4)
    s[C].reorder(jo, ko, ki, ji)
    s[C].tensorize(ki, "dot_u8s8_8x4")
    a, b = rng.integers(0, 256, (3, 8)).astype("uint8"), rng.integers(-128, 128, (8, 16)).astype("int8")
    np.testing.assert_array_equal(run_both(s, [A, B, C], a, b), a.astype("int32") @ b.astype("int32"))


def test_it_is_data():
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    s[C].tensorize(ii, outer_product("recorded"))
    text = str(lower_schedule(s, [A, B, C]))
    assert str(lower_schedule(replay_trace(create_schedule(C.op), s.trace.to_json()), [A, B, C])) == text
    script = {"te": te, "C": C}
    exec(s.as_python(), script)  # our own text
    assert str(lower_schedule(script["s"], [A, B, C])) == text
    assert str(lower_schedule(s.copy(), [A, B, C])) == text
    unknown = s.trace.to_json().replace("recorded", "forgotten")
    refuse(lambda: replay_trace(create_schedule(C.op), unknown), "tensorize", "C", "forgotten", "declare it first", "dot_u8s8_8x4")


def refuse(call, *words, error=ScheduleError):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} not in: {caught.value}"


def test_refusals_of_loops():
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    intrinsic = outer_product()
    refuse(lambda: s[C].tensorize(C.op.axis[0], intrinsic), "C", "i", "already split")
    refuse(lambda: s[A].tensorize(ii, intrinsic), "A", "input")
    refuse(lambda: s[C].tensorize(ii, 3), "C", "tensor intrinsic", "3")
    s[C].unroll(ji)
    refuse(lambda: s[C].tensorize(ii, intrinsic), "j.inner", "unrolled")
    refuse(lambda: s[C].tensorize(ji, intrinsic), "j.inner", "already marked unrolled")
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    s[C].tensorize(ii, intrinsic)
    refuse(lambda: s[C].split(ii, factor=2), "i.inner", "outer4x4")
    refuse(lambda: s[C].vectorize(ii), "i.inner", "outer4x4")
    refuse(lambda: s[C].tensorize(ii, intrinsic), "i.inner", "outer4x4")
    s[C].parallel(ji)
    refuse(lambda: lower_schedule(s, [A, B, C]), "j.inner", "parallel")
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    s[C].vectorize(jo)
    s[C].tensorize(ii, intrinsic)
    refuse(lambda: lower_schedule(s, [A, B, C]), "i.inner", "vectorized", "j.outer")


def test_refusals_of_tails_and_attached_stages():
    for shape in ((10, 12), (8, 13)):
        s, A, B, C, k, (io, jo, ii, ji) = blocked(*shape)
        s[C].tensorize(ii, outer_product())
        refuse(lambda s=s, A=A, B=B, C=C: lower_schedule(s, [A, B, C]), "C", "i.inner", "left out", "divide")
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    P = s.cache_read(B, "local", [s[C]])
    s[P].compute_at(s[C], ii)
    s[C].tensorize(ii, outer_product())
    refuse(lambda: lower_schedule(s, [A, B, C]), "B.local", "i.inner", "outside")


def test_a_mismatch_shows_both_sides():
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    s[C].tensorize(ji, outer_product())
    refuse(lambda: lower_schedule(s, [A, B, C]), "extents", "expected: for i in 4, j in 4, k in 1 (reduce): c[i, j] = sum of a[i, k] * b[k, j]",
           "found:    for j.inner in 4: C[", "sum of A[", "A: float32")  # fmt: skip
    s, A, B, C, k, (io, jo, ii, ji) = blocked()
    s[C].tensorize(ii, outer_product("wide", "float64"))
    refuse(lambda: lower_schedule(s, [A, B, C]), "dtypes", "c: float64", "C: float32")

    def nest(value, reducer=te.sum):
        A, B, _, k = matmul(4, 4, 3)
        C = te.compute((4, 4), lambda i, j: reducer(value(A, B, i, j, k), axis=k), name="C")
        s = create_schedule(C.op)
        s[C].reorder(k, *C.op.axis)
        s[C].tensorize(C.op.axis[0], outer_product())
        return lambda: lower_schedule(s, [A, B, C])

    refuse(nest(lambda A, B, i, j, k: A[i, k] + B[k, j]), "expressions")
    refuse(nest(lambda A, B, i, j, k: A[i, k] * B[k, j], te.max), "expressions", "max of")
    refuse(nest(lambda A, B, i, j, k: A[i, k] * B[k, i % 3]), "i % 3", "does not move by constant")
    refuse(nest(lambda A, B, i, j, k: A[0, k] * B[k, j]), "move along other loops")
    refuse(nest(lambda A, B, i, j, k: A[j, k] * B[k, j]), "move along other loops")
    refuse(nest(lambda A, B, i, j, k: A[i, k] * B[k, j], lambda e, axis: te.sum(e, axis=axis, where=axis < 2)), "left out by where=", "< 2")
    s, A, B, C, ji = packed_matmul(5, 16, 24, "int8")
    s[C].tensorize(ji, "dot_u8s8_8x4")
    refuse(lambda: lower_schedule(s, [A, B, C]), "dtypes", "a: uint8", "A: int8")
    X = te.placeholder((4, 4), name="X")
    Y = te.compute((4, 4), lambda i, j: X[i, j] * X[j, i], name="Y")
    s = create_schedule(Y.op)
    s[Y].tensorize(Y.op.axis[0], outer_product())
    refuse(lambda: lower_schedule(s, [X, Y]), "one of them is a reduction")
    n = te.size_var("n")
    x = te.placeholder((4,), name="x")
    twice = te.decl_tensor_intrin(te.compute((4,), lambda i: x[i] * 2.0, name="y"), body={"c": "    ;", "python": print}, name="twice")
    X = te.placeholder((n,), name="X")
    Y = te.compute((n,), lambda i: X[i] * 2.0, name="Y")
    s = create_schedule(Y.op)
    s[Y].tensorize(Y.op.axis[0], twice)
    refuse(lambda: lower_schedule(s, [X, Y]), "the extent n of axis i is not constant")


def test_refusals_of_declarations():
    good = {"c": "", "python": print}
    good["c"] = "    ;"
    a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
    plain = te.compute((4,), lambda i: a[i] + 1.0, name="c")
    for words, call in {
        "placeholder": lambda: te.decl_tensor_intrin(a, body=good),
        "C identifier": lambda: te.decl_tensor_intrin(plain, body=good, name="a b"),
        "body= and neither": lambda: te.decl_tensor_intrin(plain, update=good),
        "'llvm'": lambda: te.decl_tensor_intrin(plain, body={**good, "llvm": "x"}),
        "nothing for any target": lambda: te.decl_tensor_intrin(plain, body={"python": print}),
        "nothing for 'python'": lambda: te.decl_tensor_intrin(plain, body={"c": "    ;"}),
        "body is 'x'": lambda: te.decl_tensor_intrin(plain, body="x"),
        "called 'int'": lambda: te.decl_tensor_intrin(te.compute((4,), lambda i: a[i] + 1.0, name="int"), body=good, name="x"),
        "read once": lambda: te.decl_tensor_intrin(te.compute((4,), lambda i: a[i] + a[i] * a[3 - i], name="c"), body=good),
        "computes with an axis": lambda: te.decl_tensor_intrin(te.compute((4,), lambda i: a[i] + i.astype("float32"), name="c"), body=good),
        "reads under a condition": lambda: te.decl_tensor_intrin(te.compute((4,), lambda i: te.if_then_else(a[i] > 0.0, b[i], 0.0), name="c"), body=good),
        "reads a part": lambda: te.decl_tensor_intrin(te.compute((3,), lambda i: a[i] + 1.0, name="c"), body=good),
        "is computed": lambda: te.decl_tensor_intrin(te.compute((4,), lambda i: plain[i] + 1.0, name="d"), body=good),
        "a reduction: expected update=": lambda: outer_product(init=good),
    }.items():
        refuse(call, words, error=TEError)
    refuse(lambda: te.tensor_intrin("nothing"), "nothing", "dot_u8s8_8x4", error=TEError)


def test_tag_scope():
    a = te.placeholder((4,), name="a")
    with te.tag_scope("outer"):
        b = te.compute((4,), lambda i: a[i] + 1.0)
        with te.tag_scope("inner"):
            c = te.compute((4,), lambda i: a[i] + 1.0)
        d = te.compute((4,), lambda i: a[i] + 1.0, tag="own")
    e = te.compute((4,), lambda i: a[i] + 1.0)
    assert [t.op.tag for t in (b, c, d, e)] == ["outer", "inner", "own", ""]
    refuse(lambda: te.tag_scope("").__enter__(), "tag_scope", error=TEError)
