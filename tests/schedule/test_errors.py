"""Every refusal of a primitive or of a schedule: the class of the error, and that it names the stage, the axis, what was found and what to do."""

import json

import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule, replay_trace
from tilewright.tir.errors import ScheduleError, ScheduleWarning


def refuse(call, *words):
    with pytest.raises(ScheduleError) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} not in: {message}"


class Program:
    """A[16, 24] -> B = A * 2 -> C = sum over k of B -> D = C + 1, an output."""

    def __init__(self):
        self.A = te.placeholder((16, 24), name="A")
        self.B = te.compute((16, 24), lambda i, j: self.A[i, j] * 2.0, name="B")
        self.k = te.reduce_axis((0, 24), name="k")
        self.C = te.compute((16,), lambda i: te.sum(self.B[i, self.k], axis=self.k), name="C")
        self.D = te.compute((16,), lambda i: self.C[i] + 1.0, name="D")
        self.s = create_schedule(self.D.op)

    def __iter__(self):
        return iter((self.s, self.A, self.B, self.C, self.D, self.k))

    def lower(self):
        return lower_schedule(self.s, [self.A, self.D])


def test_split():
    s, A, B, C, D, k = Program()
    i = D.op.axis[0]
    refuse(lambda: s[D].split(i), "D", "factor=", "nparts=", "neither")
    refuse(lambda: s[D].split(i, factor=2, nparts=2), "both")
    refuse(lambda: s[D].split(i, factor=0), "factor", "0")
    refuse(lambda: s[D].split(i, nparts=-1), "nparts", "-1")
    refuse(lambda: s[D].split(i, factor=2.5), "factor", "2.5")
    refuse(lambda: s[A].split(i, factor=2), "A", "input", "cache_read")
    refuse(lambda: s[D].split("i", factor=2), "D", "(i)", "'i'")
    refuse(lambda: s[D].split(B.op.axis[1], factor=2), "D", "j", "B")
    refuse(lambda: s[D].split(te.reduce_axis((0, 4), "z"), factor=2), "z", "no stage")
    s[D].vectorize(i)
    refuse(lambda: s[D].split(i, factor=2), "vectorized")


def test_what_was_asked_of_a_loop_is_never_dropped():
    s, A, B, C, D, k = Program()
    i, j = B.op.axis
    s[B].pragma(j, "unroll", 4)
    refuse(lambda: s[B].split(j, factor=4), "split", "B", "j", "pragma 'unroll'", "after they are shaped")
    refuse(lambda: s[B].fuse(i, j), "fuse", "pragma 'unroll'")
    s[B].prefetch(A, i, 2)
    refuse(lambda: s[B].tile(i, j, 4, 4), "tile", "i", "prefetch of A")
    refuse(lambda: s.cache_read(A, "local", [B]), "cache_read", "B", "prefetches", "first")
    s[C].prefetch(B, C.op.axis[0], 1)
    refuse(lambda: s.cache_write(C, "local"), "cache_write", "C", "already scheduled")
    refuse(lambda: s.rfactor(C, k), "rfactor", "C", "prefetches B", "first")
    s, A, B, C, D, k = Program()
    s[C].pragma(k, "unroll", 4)
    refuse(lambda: s.rfactor(C, k), "rfactor", "k", "pragma 'unroll'", "factor first")


def test_an_axis_that_is_no_leaf_any_more():
    s, A, B, C, D, k = Program()
    i = D.op.axis[0]
    s[D].split(i, factor=4)
    refuse(lambda: s[D].vectorize(i), "D", "i", "split into i.outer, i.inner", "(i.outer, i.inner)")
    b = B.op.axis
    s[B].fuse(*b)
    refuse(lambda: s[B].unroll(b[0]), "fused into i.j.fused", "(i.j.fused)")


def test_a_refused_tile_changes_nothing():
    A = te.placeholder((8, 8), "int32", name="A")
    k, r = te.reduce_axis((0, 8), "k"), te.reduce_axis((0, 8), "r")
    ordered = te.comm_reducer(lambda x, y: x * 3 + y, lambda t: te.const(0, t), name="ordered", associative=False)
    C = te.compute((), lambda: ordered(A[k, r], axis=[k, r]), name="C")
    s = create_schedule(C)
    before = str(s)
    refuse(lambda: s[C].tile(k, r, 4, 4), "order")
    assert str(s) == before
    s[C].split(k, factor=4)


def test_tile_and_reorder_and_fuse():
    s, A, B, C, D, k = Program()
    i, j = B.op.axis
    refuse(lambda: s[B].tile(i, i, 2, 2), "twice")
    refuse(lambda: s[B].tile(i, j, 2, 0), "y_factor")
    assert len(s.trace) == 0 and len(s[B].leaf_iter_vars) == 2
    refuse(lambda: s[B].reorder(i, j, i), "i", "twice")
    refuse(lambda: s[B].reorder(i, k), "k", "C")
    refuse(lambda: s[B].fuse(j, i), "consecutive", "(i, j)", "reorder")
    refuse(lambda: s[C].fuse(C.op.axis[0], k), "data-parallel", "reduce", "k")
    io, ii = s[B].split(i, factor=4)
    refuse(lambda: s[B].fuse(io, j), "consecutive")


def test_an_order_that_matters_stays():
    A = te.placeholder((8, 8), name="A")
    last = te.comm_reducer(lambda x, y: x * 0.5 + y, lambda t: te.const(0.0, t), name="decay", associative=False)
    p, q = te.reduce_axis((0, 8), "p"), te.reduce_axis((0, 8), "q")
    C = te.compute((1,), lambda i: last(A[p, q], axis=[p, q]), name="C")
    s = create_schedule(C.op)
    refuse(lambda: s[C].reorder(*reversed(s[C].op.reduce_axis)), "decay", "associative=False", "p", "q")
    refuse(lambda: s.rfactor(C, s[C].op.reduce_axis[0]), "decay", "associative=False")
    refuse(lambda: s[C].tile(*s[C].op.reduce_axis, 2, 2), "decay", "associative=False")
    outer, _ = s[C].split(s[C].op.reduce_axis[0], factor=2)
    assert s[C].axis_name(outer) == "p.outer"  # what was refused left no names behind


def test_loop_kinds():
    s, A, B, C, D, k = Program()
    i, j = B.op.axis
    refuse(lambda: s[C].vectorize(k), "C", "k", "reduce", "rfactor")
    refuse(lambda: s[C].parallel(k), "C", "k", "reduce", "race", "rfactor")
    s[B].vectorize(j)
    refuse(lambda: s[B].parallel(j), "j", "vectorized", "split")
    refuse(lambda: s[B].unroll(j), "unroll on stage B", "j", "vectorized")
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    refuse(lambda: s[B].bind(i, te.thread_axis("threadIdx.y")), "i", "already bound", "threadIdx.x")
    refuse(lambda: s[D].bind(D.op.axis[0], te.thread_axis(8, "threadIdx.x")), "16", "8", "threadIdx.x")
    refuse(lambda: s[D].bind(D.op.axis[0], i), "thread axis", "te.thread_axis")
    n = te.size_var("n")
    X = te.placeholder((n,), name="X")
    Y = te.compute((n,), lambda i: X[i] + 1.0, name="Y")
    t = create_schedule(Y.op)
    refuse(lambda: t[Y].vectorize(Y.op.axis[0]), "Y", "n", "not constant", "split")
    Z = te.compute((n,), lambda i: Y[i] + 1.0, name="Z")
    t = create_schedule(Z.op)
    t[Y].compute_at(t[Z], t[Z].split(Z.op.axis[0], factor=8)[0])
    t[Y].vectorize(Y.op.axis[0])
    lower_schedule(t, [X, Z])
    t[Y].compute_root()
    refuse(lambda: lower_schedule(t, [X, Z]), "vectorize on stage Y", "extent n", "not constant", "split")


def test_an_input_has_no_axes():
    s, A, B, C, D, k = Program()
    for name in ("axis", "reduce_axis", "body"):
        with pytest.raises(tw.TEError, match=f"A.op.{name}: A is an input .* s.cache_read"):
            getattr(s[A].op, name)
    assert not hasattr(A.op, "axis") and getattr(A.op, "axis", 3) == 3


def test_pragma_and_prefetch():
    s, A, B, C, D, k = Program()
    i = D.op.axis[0]
    refuse(lambda: s[D].pragma(i, "import_llvm", 1), "import_llvm", "unroll")
    refuse(lambda: s[D].pragma(i, "unroll", 0), "unroll", "0")
    refuse(lambda: s[D].prefetch(A, i, 1), "D", "does not read", "C")
    refuse(lambda: s[D].prefetch(C, i, 0), "offset", "0")


def test_compute_at_at_the_call():
    s, A, B, C, D, k = Program()
    i = D.op.axis[0]
    refuse(lambda: s[D].compute_at(s[D], i), "D", "output")
    refuse(lambda: s[C].compute_at(s[C], k), "C", "itself")
    refuse(lambda: s[C].compute_at(s[D], k), "D", "k", "(i)")
    refuse(lambda: s[A].compute_at(s[D], i), "A", "input")
    io, ii = s[D].split(i, factor=4)
    refuse(lambda: s[C].compute_at(s[D], i), "i", "split into")
    s[B].compute_inline()
    refuse(lambda: s[C].compute_at(s[B], B.op.axis[0]), "B", "inlined")
    s[B].compute_root()
    s[B].compute_at(s[C], k)
    refuse(lambda: s[C].compute_at(s[B], B.op.axis[0]), "circle")
    refuse(lambda: s[C].compute_at(Program().s[D], io), "not part of this schedule")


def test_compute_at_when_lowered():
    program = Program()
    s, A, B, C, D, k = program
    s[B].compute_at(s[D], D.op.axis[0])
    refuse(program.lower, "B", "no reader", "C", "compute_root")
    s[C].compute_at(s[D], D.op.axis[0])  # later, the reader moves inside: now it is right
    program.lower()

    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((8,), lambda i: B[i] + 1.0, name="C")
    E = te.compute((8,), lambda i: B[i] + C[i], name="E")
    s = create_schedule(E.op)
    s[B].compute_at(s[E], E.op.axis[0])
    refuse(lambda: lower_schedule(s, [A, E]), "B", "C", "outside that loop")

    s = create_schedule(E.op)
    s[C].compute_at(s[B], B.op.axis[0])
    refuse(lambda: lower_schedule(s, [A, E]), "C", "B", "does not come after")


def test_compute_inside_a_reduction_that_starts_from_it():
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4,), lambda i: A[i, 0] * 2.0, name="B")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((4,), lambda i: te.sum(A[i, k] * B[i], axis=k, init=B[i]), name="C")
    s = create_schedule(C.op)
    s[B].compute_at(s[C], k)
    refuse(lambda: lower_schedule(s, [A, C]), "B", "k", "init=")


def test_inline_scope_align_layout():
    s, A, B, C, D, k = Program()
    refuse(lambda: s[C].compute_inline(), "C", "reduction", "compute_at")
    refuse(lambda: s[D].compute_inline(), "D", "output")
    X, Y = te.compute((4,), lambda i: (A[i, 0], A[i, 1]), name="XY")
    Z = te.compute((4,), lambda i: X[i] + Y[i], name="Z")
    t = create_schedule(Z.op)
    refuse(lambda: t[X].compute_inline(), "XY", "2 outputs")
    refuse(lambda: s[B].set_scope("register"), "register", "local")
    refuse(lambda: s[D].set_scope("local"), "D", "output", "cache_write")
    refuse(lambda: s[D].storage_align(D.op.axis[0], 8, 0), "output")
    refuse(lambda: s[B].storage_align(k, 8, 0), "B", "i, j")
    refuse(lambda: s[B].storage_align(B.op.axis[0], 8, 8), "offset 8", "factor 8")
    refuse(lambda: s[D].transform_layout(lambda i: [i]), "D", "output", "cache_write")
    refuse(lambda: s[B].transform_layout(lambda i: [i]), "2 indices")
    refuse(lambda: s[B].transform_layout(lambda i, j: [i + j]), "not injective", "[0, 1]", "[1, 0]")
    refuse(lambda: s[B].transform_layout(lambda i, j: [i - 4, j]), "negative")
    refuse(lambda: s[B].transform_layout(lambda i, j: [i // 4, j]), "not injective")
    refuse(lambda: s[B].transform_layout(lambda i, j: A[i, j]), "list")
    refuse(lambda: s[B].transform_layout(lambda i, j: [te.exp(i), j]), "exp")


def test_inlining_under_attached_stages():
    s, A, B, C, D, k = Program()
    E = te.compute((16,), lambda i: D[i] * 2.0, name="E")
    s = create_schedule(E.op)
    s[C].compute_at(s[D], D.op.axis[0])
    refuse(lambda: s[D].compute_inline(), "D", "C", "compute_root")


def test_caching():
    s, A, B, C, D, k = Program()
    refuse(lambda: s.cache_read(A, "local", [D]), "A", "D", "does not read", "C")
    refuse(lambda: s.cache_read(A, "registers", [B]), "registers")
    refuse(lambda: s.cache_read(A, "local", []), "reader")
    refuse(lambda: s.cache_read(te.placeholder((4,), name="Q"), "local", [B]), "Q", "not part")
    refuse(lambda: s["B"], "expected a tensor", "the name 'B'")
    refuse(lambda: s.cache_write(A, "local"), "A", "input")
    s[C].split(k, factor=4)
    refuse(lambda: s.cache_write(C, "local"), "C", "already scheduled", "call cache_write before")
    X, Y = te.compute((4,), lambda i: (A[i, 0], A[i, 1]), name="XY")
    t = create_schedule(X.op)
    refuse(lambda: t.cache_write(X, "local"), "2 output(s)", "all of them")
    p = Program()
    p.s[p.B].compute_at(p.s[p.C], p.k)
    refuse(lambda: p.s.cache_write(p.C, "local"), "B", "k", "afterwards")


def test_rfactor_of_an_axis_split_since_somebody_was_attached():
    """It was an AssertionError when the schedule was lowered."""
    for factored in (0, 1):
        s, A, B, C, D, k = Program()
        s[B].compute_at(s[C], k)
        leaves = s[C].split(k, factor=4)
        refuse(lambda: s.rfactor(C, leaves[factored]), "stage B is computed at axis k of stage C", "place it afterwards")  # noqa: B023


def test_rfactor():
    s, A, B, C, D, k = Program()
    refuse(lambda: s.rfactor(D, D.op.axis[0]), "D", "not a reduction")
    refuse(lambda: s.rfactor(C, C.op.axis[0]), "i", "data-parallel")
    refuse(lambda: s.rfactor(C, k, factor_axis=5), "factor_axis", "0 to 1")
    ko, ki = s[C].split(k, factor=4)
    refuse(lambda: s.rfactor(C, k), "split into")
    s[C].unroll(ki)
    refuse(lambda: s.rfactor(C, ki), "unrolled")
    s[B].compute_at(s[C], ko)
    refuse(lambda: s.rfactor(C, ko), "B", "k.outer")


def test_arguments():
    s, A, B, C, D, k = Program()
    refuse(lambda: lower_schedule(s, [D]), "A", "B", "arguments")
    refuse(lambda: lower_schedule(s, [A]), "no argument (A) is computed", "add the output D")
    refuse(lambda: lower_schedule(s, [A, A, D]), "A", "twice")
    refuse(lambda: lower_schedule(s, [A, 3]), "argument 1", "3")
    s[B].compute_inline()
    refuse(lambda: lower_schedule(s, [A, B, D]), "B", "inlined")
    s[B].compute_root()
    s[B].set_scope("local")
    refuse(lambda: lower_schedule(s, [A, B, D]), "B", "scope")
    refuse(lambda: lower_schedule(s, [A, D, te.placeholder((4,), name="Q")]), "Q")


def test_create_schedule():
    refuse(lambda: create_schedule([]), "at least one")
    refuse(lambda: create_schedule(3), "3")


def test_nested_parallel_warns():
    A = te.placeholder((8, 8), name="A")
    C = te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="C")
    s = create_schedule(C.op)
    for axis in C.op.axis:
        s[C].parallel(axis)
    with pytest.warns(ScheduleWarning, match=r"C.*j.*serially"):
        text = str(lower_schedule(s, [A, C]))
    assert text.count("parallel(") == 1


def good_trace():
    s, A, B, C, D, k = Program()
    s[D].split(D.op.axis[0], factor=4)
    return json.loads(s.trace.to_json())


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda t: "not json", "JSON"),
        (lambda t: "[1, 2]", "format"),
        (lambda t: {**t, "format": 99}, "format"),
        (lambda t: {**t, "steps": [3]}, "malformed"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "primitive": "__import__"}]}, "__import__"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "primitive": "copy_into"}]}, "copy_into"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "primitive": "cache_read"}]}, "cache_read"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "stage": "nowhere"}]}, "nowhere"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "arguments": [{"axis": ["D", "zz"]}]}]}, "zz"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "arguments": [{"eval": "1"}]}]}, "argument"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "arguments": []}]}, "split"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "options": {"factor": "os"}}]}, "factor"),
        (lambda t: {**t, "steps": [{**t["steps"][0], "options": {"wrong": 1}}]}, "split"),
    ],
)
def test_damaged_traces(damage, word):
    data = damage(good_trace())
    text = data if isinstance(data, str) else json.dumps(data)
    refuse(lambda: replay_trace(create_schedule(Program().D.op), text), word)


def test_double_buffer():
    s, A, B, C, D, k = Program()
    refuse(lambda: s[D].double_buffer(), "double_buffer", "D", "output", "cache_write")
    refuse(lambda: s[A].double_buffer(), "A", "input")
    s[B].compute_inline()
    refuse(lambda: s[B].double_buffer(), "B", "inlined", "compute_root")
    s[B].compute_root()
    s[B].double_buffer()
    refuse(lambda: s[B].compute_inline(), "double buffer", "lost")
    refuse(lambda: s[B].double_buffer(stages=1), "B", "stages is 1", "2 to 8")
    refuse(lambda: s[B].double_buffer(stages=True), "B", "stages is True")
    refuse(lambda: s[B].double_buffer(2, asynchronous="yes"), "B", "asynchronous is 'yes'")
    s[B].compute_at(s[C], C.op.axis[0])
    refuse(lambda: s[B].rolling_buffer(), "rolling_buffer", "B", "double buffered", "one of the two")
    s, A, B, C, D, k = Program()
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].rolling_buffer()
    refuse(lambda: s[B].double_buffer(), "double_buffer", "B", "rolling buffer", "one of the two")


def test_rolling_buffer():
    s, A, B, C, D, k = Program()
    refuse(lambda: s[D].rolling_buffer(), "rolling_buffer", "D", "output")
    refuse(lambda: s[B].rolling_buffer(), "B", "compute_at")
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].rolling_buffer()
    refuse(lambda: s[B].compute_inline(), "rolling buffer", "lost")
    refuse(lambda: lower_schedule(s, [A, D]), "rolling_buffer", "B", "C", "share nothing")
    s[B].compute_at(s[C], k)
    refuse(lambda: lower_schedule(s, [A, D]), "share nothing")
    s[C].parallel(C.op.axis[0])
    s[B].compute_at(s[C], C.op.axis[0])
    refuse(lambda: lower_schedule(s, [A, D]), "axis i of stage C", "parallel", "serial")


def test_rolling_buffer_along_two_dimensions_or_backwards():
    A = te.placeholder((20, 20), name="A")
    B = te.compute((20, 20), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((16,), lambda i: B[i, i] + B[i + 2, i + 2], name="C")
    D = te.compute((16,), lambda i: B[17 - i, 0] + B[16 - i, 0], name="D")
    for T in (C, D):
        s = create_schedule(T.op)
        s[B].compute_at(s[T], T.op.axis[0])
        s[B].rolling_buffer()
        refuse(lambda s=s, T=T: lower_schedule(s, [A, T]), "rolling_buffer", "forward along one dimension", "i by")


def test_set_store_predicate():
    s, A, B, C, D, k = Program()
    i = D.op.axis[0]
    refuse(lambda: s[A].set_store_predicate(i < 3), "A", "input")
    refuse(lambda: s[D].set_store_predicate(i + 3), "set_store_predicate", "D", "condition", "i + 3")
    refuse(lambda: s[D].set_store_predicate("i < 3"), "condition", "'i < 3'")
    refuse(lambda: s[D].set_store_predicate(B.op.axis[1] < 3), "D", "j", "no axis", "(i)")
    refuse(lambda: s[C].set_store_predicate(k < 3), "C", "k", "reduce axis", "where=")
    refuse(lambda: s[D].set_store_predicate(te.thread_axis("threadIdx.x") == 0), "threadIdx.x", "no axis")
    x = te.thread_axis("threadIdx.x")
    s[C].bind(k, x)
    refuse(
        lambda: s[C].set_store_predicate(x == 0),
        "set_store_predicate",
        "C",
        "k, which is bound to threadIdx.x, is a reduce axis",
        "index 0 stores",
        "leave it out",
    )
    refuse(lambda: s[D].set_store_predicate(A[i, 0] < 3.0), "A[i, 0]", "cannot stand")
    refuse(lambda: s[D].set_store_predicate(i.astype("float32") < 2.5), "cannot stand")
    s[B].set_store_predicate(B.op.axis[0] < 3)
    refuse(lambda: s[B].compute_inline(), "store predicate", "lost")


def test_env_threads():
    s, A, B, C, D, k = Program()
    x = te.thread_axis(4, "threadIdx.x")
    refuse(lambda: s[A].env_threads([x]), "A", "input")
    refuse(lambda: s[D].env_threads([]), "env_threads", "D", "list of thread axes")
    refuse(lambda: s[D].env_threads([D.op.axis[0]]), "list of thread axes")
    refuse(lambda: s[D].env_threads([x, te.thread_axis(2, "threadIdx.x")]), "twice", "threadIdx.x")
    s[D].env_threads([x])
    refuse(lambda: s[D].env_threads([te.thread_axis(2, "threadIdx.y")]), "threadIdx.x", "already")
    refuse(lambda: s[C].env_threads([te.thread_axis("threadIdx.y")]), "C", "threadIdx.y", "no extent")
    refuse(lambda: tw.lower(s, [A, D]), "D", "env_threads", "threadIdx.x", "target is 'c'")


def test_create_group():
    s, A, B, C, D, k = Program()
    refuse(lambda: s.create_group([], A), "create_group", "outputs is empty")
    refuse(lambda: s.create_group(C, "A"), "create_group", "inputs", "'A'")
    for strange in ("yes", None, [1, 2]):
        refuse(lambda strange=strange: s.create_group(C, A, include_inputs=strange), "include_inputs", "True or False")
    refuse(lambda: s.create_group(B, C), "nothing between", "B", "input C")
    refuse(lambda: s.create_group(B, B), "no stage between")
    refuse(lambda: s.create_group(te.placeholder((3,), name="Z"), A), "Z", "not part of this schedule")
    group = s.create_group(C, A)
    refuse(lambda: group.compute_at(s[C], C.op.axis[0]), "group (B, C)", "stage C is of the group")
    refuse(lambda: s.create_group(D, A).compute_at(s[C], C.op.axis[0]), "of the group")
    whole = s.create_group(D, C)
    refuse(lambda: whole.compute_at(s[B], B.op.axis[0]), "compute_at", "D", "output")
    refuse(lambda: group.compute_at(s[D], k), "D", "k")
    assert s[B].attach.kind == s[C].attach.kind == "root" and len(s.trace) == 0  # nothing was changed


def test_conditions_from_a_damaged_trace():
    s, A, B, C, D, k = Program()
    for data in (5, ["<", 1], ["int32", True], ["<", ["int32", 1], ["?"]], ["and", ["int32", 1], ["int32", 2]], {"axis": ["D", "zz"]}):
        step = {"stage": "D", "primitive": "set_store_predicate", "arguments": [{"condition": data}], "options": {}, "results": []}
        refuse(lambda step=step: replay_trace(create_schedule(D.op), {"format": 1, "steps": [step]}))
