"""Scans in schedules: printed loops, where results are stored, every primitive on the stages of a step, refusals, and random scans.

What a scan means and what may be declared: tests/te/test_scan.py.
"""

import random
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import autotune, te
from tilewright.schedule import create_schedule, lower_schedule, replay_trace
from tilewright.tir.errors import ScheduleError
from tilewright.tir.interp import interpret
from tilewright.tir.passes.simplify import simplify_function

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from evaluate import evaluate
from fuzzing.scans import random_scan
from fuzzing.schedules import random_schedule

T, M = 9, 20


class Program:
    """X[T, M] -> state S, with a stage between, update -> Y, the scan -> last, its last step."""

    def __init__(self, length=T):
        self.X = te.placeholder((length, M), name="X")
        self.S = te.placeholder((length, M), name="S")
        self.init = te.compute((1, M), lambda t, i: self.X[0, i], name="init")
        self.between = te.compute((length, M), lambda t, i: self.S[t - 1, i] * 2.0, name="between")
        self.update = te.compute((length, M), lambda t, i: self.between[t, i] + self.X[t, i], name="update")
        self.Y = te.scan(self.init, self.update, self.S, inputs=[self.X], name="Y")
        self.last = te.compute((M,), lambda i: self.Y[length - 1, i] + 1.0, name="last")

    def whole(self):
        return create_schedule(self.Y), [self.X, self.Y]

    def end(self):
        return create_schedule(self.last), [self.X, self.last]

    def check(self, s, args):
        """What the schedule computes is right, interpreted as lowered and built."""
        x = np.random.default_rng(0).integers(-8, 8, (T, M)).astype("f")
        want = evaluate(args[1], {self.X: x})
        for run in (lambda *a: interpret(lower_schedule(s, args), a), tw.build(s, args)):
            got = np.full(want.shape, np.nan, "f")
            run(x, got)
            np.testing.assert_array_equal(got, want)
        return tw.build(s, args)


def text(s, args):
    return str(simplify_function(lower_schedule(s, args)))


def refuse(call, *words):
    with pytest.raises(ScheduleError) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} not in: {caught.value}"


WHOLE = """\
def main(X: float32[9, 20], Y: float32[9, 20] out):
    produce init:
        for i in range(20):
            Y[0, i] = X[0, i]
    produce Y:
        for t in range(8):
            allocate between: float32[1, 20]
            produce between:
                for i_1 in range(20):
                    between[0, i_1] = Y[t, i_1] * 2.0
            produce update:
                for i_2 in range(20):
                    Y[t + 1, i_2] = between[0, i_2] + X[t + 1, i_2]"""

LAST = """\
def main(X: float32[9, 20], last: float32[20] out):
    allocate Y: float32[1, 20]
    produce init:
        for i in range(20):
            Y[0, i] = X[0, i]
    produce Y:
        for t in range(8):
            produce update:
                for i_1 in range(20):
                    Y[0, i_1] = Y[0, i_1] * 2.0 + X[t + 1, i_1]
    produce last:
        for i_2 in range(20):
            last[i_2] = Y[0, i_2] + 1.0"""


def test_steps_run_in_a_loop_over_time_and_are_stored_in_the_result():
    p = Program()
    s, args = p.whole()
    assert text(s, args) == WHOLE
    assert str(s).splitlines() == ["stage init(t, i)", "stage between(t, i, at Y.t)", "stage update(t, i, at Y.t)", "stage Y(t)"]
    p.check(s, args)


def test_where_the_last_step_is_read_the_live_ones_are_stored():
    p = Program()
    s, args = p.end()
    s[p.between].compute_inline()
    assert text(s, args) == LAST
    assert p.check(s, args).workspace_bytes <= 2 * M * 4 + 64
    reader = te.compute((M,), lambda i: p.Y[T - 1, i] + p.Y[T - 3, i], name="reader")  # three steps are live
    s = create_schedule(reader)
    s[p.between].compute_inline()
    assert 3 * M * 4 <= p.check(s, [p.X, reader]).workspace_bytes <= 3 * M * 4 + 64
    both = create_schedule([p.last, p.Y])  # given out: all steps
    x, y, z = np.ones((T, M), "f"), np.empty((T, M), "f"), np.empty(M, "f")
    tw.build(both, [p.X, p.Y, p.last])(x, y, z)
    np.testing.assert_array_equal(z, y[-1] + 1)


def test_two_steps_back_and_initial_steps_computed_elsewhere():
    X, first = te.placeholder((T, M), "int32", name="X"), te.placeholder((2, M), "int32", name="first")
    S = te.placeholder((T, M), "int32", name="S")
    Y = te.scan(first, te.compute((T, M), lambda t, i: S[t - 1, i] + S[t - 2, i] * X[t, i], name="update"), S)
    last = te.compute((M,), lambda i: Y[T - 1, i], name="last")
    s = create_schedule(last)
    assert "allocate scan: int32[2, 20]" in text(s, [X, first, last])
    rng = np.random.default_rng(1)
    x, f, got = rng.integers(-9, 9, (T, M)).astype("int32"), rng.integers(-9, 9, (2, M)).astype("int32"), np.empty(M, "int32")
    tw.build(s, [X, first, last])(x, f, got)
    np.testing.assert_array_equal(got, evaluate(last, {X: x, first: f}))


class OnlineSoftmax:
    """O[i] = sum over j of exp(X[i, j]) / sum over j of exp(X[i, j]) * V[j, d], over blocks of j, with the states of an online softmax: o, l, m."""

    def __init__(self, rows=10, keys=13, width=3, block=4):
        steps = -(-keys // block) + 1
        self.rows, self.keys, self.width = rows, keys, width
        self.X, self.V = te.placeholder((rows, keys), name="X"), te.placeholder((keys, width), name="V")
        o, l, m = (te.placeholder((steps, rows, *rest), name=name) for name, rest in (("o", (width,)), ("l", ()), ("m", ())))
        ks = [te.reduce_axis((0, block), name=f"k{n}") for n in range(3)]
        blocked = te.compute((steps - 1, rows, block), lambda t, i, j: te.if_then_else(t * block + j < keys, self.X[i, t * block + j], -1e30), name="blocked")
        top = te.compute((steps - 1, rows), lambda t, i: te.max(blocked[t, i, ks[0]], axis=ks[0]), name="top")
        self.most = te.compute((steps, rows), lambda t, i: te.max(m[t - 1, i], top[t - 1, i]), name="most")
        p = te.compute((steps, rows, block), lambda t, i, j: te.exp(blocked[t - 1, i, j] - self.most[t, i]), name="p")
        scale = te.compute((steps, rows), lambda t, i: te.exp(m[t - 1, i] - self.most[t, i]), name="scale")
        total = te.compute((steps, rows), lambda t, i: te.sum(p[t, i, ks[1]], axis=ks[1]), name="total")
        pv = te.compute((steps, rows, width), lambda t, i, d: te.sum(p[t, i, ks[2]] * self.V[(t - 1) * block + ks[2], d], axis=ks[2],
                        where=(t - 1) * block + ks[2] < keys), name="pv")  # fmt: skip
        self.stages = blocked, top, p, scale, total, pv
        updates = (
            te.compute(o.shape, lambda t, i, d: o[t - 1, i, d] * scale[t, i] + pv[t, i, d], name="o_next"),
            te.compute(l.shape, lambda t, i: l[t - 1, i] * scale[t, i] + total[t, i], name="l_next"),
            te.compute(m.shape, lambda t, i: self.most[t, i], name="m_next"),
        )
        self.starts = [te.compute((1, *s.shape[1:]), lambda *_, v=v: te.const(v, "float32"), name=f"{s.name}0") for s, v in ((o, 0.0), (l, 0.0), (m, -1e30))]
        self.scan = te.scan(self.starts, updates, [o, l, m], name="scan")
        self.O = te.compute((rows, width), lambda i, d: self.scan[0][steps - 1, i, d] / self.scan[1][steps - 1, i], name="O")

    def schedule(self):
        s = te.create_schedule(self.O.op)
        for tensor in self.starts:
            s[tensor].compute_inline()
        return s

    def check(self, s):
        rng = np.random.default_rng(3)
        x, v = rng.standard_normal((self.rows, self.keys)).astype("f"), rng.standard_normal((self.keys, self.width)).astype("f")
        e = np.exp(x.astype("f8"))
        args = [self.X, self.V, self.O]
        module = tw.build(s, args)
        for run in (lambda *a: interpret(lower_schedule(s, args), a), module):
            got = np.full((self.rows, self.width), np.nan, "f")
            run(x, v, got)
            np.testing.assert_allclose(got, e / e.sum(1, keepdims=True) @ v, rtol=1e-5)
        return module


def test_a_scan_inside_a_loop_computes_the_part_that_is_read_there():
    p = OnlineSoftmax()
    whole = p.check(p.schedule()).workspace_bytes
    for factor in (4, 10, 1):
        s = p.schedule()
        outer, _ = s[p.O].split(p.O.op.axis[0], factor=factor)
        s[p.O].parallel(outer)
        s[p.scan[0]].compute_at(s[p.O], outer)
        for stage in (*p.stages[:2],):
            s[stage].compute_at(s[p.scan[0]], p.scan[0].op.scan_axis)
        lowered = text(s, [p.X, p.V, p.O])
        assert f"allocate scan.v0: float32[1, {factor}, 3]" in lowered and f"allocate blocked: float32[1, {factor}, 4]" in lowered, lowered
        assert p.check(s).workspace_bytes < whole
    again = p.schedule()
    s[p.scan[0]].compute_root()
    assert "compute_root" in s.as_python() and again.stages


def test_the_states_of_a_scan_inside_a_loop_can_be_local():
    p = OnlineSoftmax()
    s = p.schedule()
    i, d = p.O.op.axis
    s[p.scan[0]].compute_at(s[p.O], d)
    s[p.scan[0]].set_scope("local")
    assert "allocate scan.v0: float32[1, 1, 1] in local" in text(s, [p.X, p.V, p.O])
    p.check(s)


def test_a_scan_whose_elements_depend_on_their_neighbours_stays_whole():
    X = te.placeholder((T, M), name="X")
    S = te.placeholder((T, M), name="S")
    update = te.compute((T, M), lambda t, i: te.if_then_else(i > 0, S[t - 1, i - 1], 0.0) + X[t, i], name="update")
    Y = te.scan(te.compute((1, M), lambda t, i: X[0, i], name="first"), update, S, name="Y")
    last = te.compute((M,), lambda i: Y[T - 1, i], name="last")
    s = create_schedule(last)
    outer, _ = s[last].split(last.op.axis[0], factor=4)
    s[Y].compute_at(s[last], outer)
    refuse(lambda: lower_schedule(s, [X, last]), "scan Y", "last", "S[t - 1, i - 1]", "compute_root", "does not divide")


def test_every_length_with_one_kernel():
    n = te.size_var("n")
    p = Program(n)
    for tensor in (p.Y, te.compute((n, M), lambda t, i: p.Y[n - 1 - t, i], name="R")):
        module = tw.build(create_schedule(tensor), [p.X, tensor])
        for size in (0, 1, 2, 7):
            if size == 0:  # nothing to do; that nothing is written is what the missing array would show
                module(np.empty((0, M), "f"), np.empty((0, M), "f"))
                continue
            x = np.random.default_rng(size).integers(-8, 8, (size, M)).astype("f")
            got = np.full((size, M), np.nan, "f")
            module(x, got)
            np.testing.assert_array_equal(got, evaluate(tensor, {p.X: x}, {n: size}))


@pytest.mark.parametrize("steps", [1, 2])
def test_every_size_of_a_scan_inside_a_loop(steps):
    n, m = te.size_var("n"), te.size_var("m")
    X, S, first = te.placeholder((n, m), "int32", name="X"), te.placeholder((n, m), "int32", name="S"), te.placeholder((steps, m), "int32", name="first")
    update = te.compute((n, m), lambda t, i: S[t - 1, i] + X[t, i] * S[t - steps, i], name="update")
    Y = te.scan(first, update, S, name="Y")
    last = te.compute((m,), lambda i: Y[n - 1, i], name="last")
    s = create_schedule(last)
    outer, _ = s[last].split(last.op.axis[0], factor=4)
    s[Y].compute_at(s[last], outer)
    s[Y].split(Y.op.scan_axis, factor=3)
    module = tw.build(s, [X, first, last])
    rng = np.random.default_rng(0)
    for rows, columns in ((1, 1), (2, 5), (6, 0), (7, 9)):
        x, f = rng.integers(-4, 5, (rows, columns)).astype("int32"), rng.integers(-4, 5, (steps, columns)).astype("int32")
        got = np.full(columns, 77, "int32")
        module(x, f, got)
        np.testing.assert_array_equal(got, evaluate(last, {X: x, first: f}, {n: rows, m: columns}))


SCHEDULES = {
    "split and vectorize": lambda s, p: s[p.update].vectorize(s[p.update].split(p.update.op.axis[1], factor=8)[1]),
    "parallel": lambda s, p: s[p.update].parallel(p.update.op.axis[1]),
    "stage at the update's time": lambda s, p: s[p.between].compute_at(s[p.update], p.update.op.axis[0]),
    "stage at the update's column": lambda s, p: s[p.between].compute_at(s[p.update], p.update.op.axis[1]),
    "inlined": lambda s, p: s[p.between].compute_inline(),
    "time of the update split": lambda s, p: s[p.update].split(p.update.op.axis[0], factor=16),
    "time of the scan split": lambda s, p: s[p.Y].split(p.Y.op.scan_axis, factor=3),
    "time of the scan unrolled": lambda s, p: s[p.Y].unroll(s[p.Y].split(p.Y.op.scan_axis, factor=4)[1]),
    "cache_write of the update": lambda s, p: s[s.cache_write(p.update, "local")].compute_at(s[p.update], p.update.op.axis[1]),
    "cache_read of the state": lambda s, p: s.cache_read(p.S, "local", [p.between]),
    "cache_read of a stage": lambda s, p: s.cache_read(p.between, "global", [p.update]),
    "cache_read of an input at a step": lambda s, p: s[s.cache_read(p.X, "local", [p.update])].compute_at(s[p.Y], p.Y.op.scan_axis),
    "init shaped": lambda s, p: s[p.init].vectorize(s[p.init].split(p.init.op.axis[1], factor=8)[1]),
    "init inlined": lambda s, p: s[p.init].compute_inline(),
    "init in a scope": lambda s, p: s[p.init].set_scope("local"),
    "layout of a stage": lambda s, p: s[p.between].transform_layout(lambda t, i: [t, i // 4, i % 4]),
    "back to its step": lambda s, p: (s[p.between].compute_inline(), s[p.between].compute_root()),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_primitives_on_the_stages_of_a_scan(name):
    for which in ("whole", "end"):
        p = Program()
        s, args = getattr(p, which)()
        SCHEDULES[name](s, p)
        p.check(s, args)
        twin = s.copy()
        assert str(twin) == str(s) and text(twin, args) == text(s, args)
        assert all(stage.home.consumer is None or stage.home.consumer is twin[p.Y] for stage in twin.stages)
        q = Program()
        s2, args2 = getattr(q, which)()
        replay_trace(s2, s.trace.to_json())
        assert text(s2, args2) == text(s, args)
        names = {"te": te, "tw": tw, **vars(q)}
        exec(s.as_python(), names)
        assert text(names["s"], args2) == text(s, args)


def test_a_reduction_in_a_step_factored():
    S, W = te.placeholder((T, 8), name="S"), te.placeholder((8, 8), name="W")
    k = te.reduce_axis((0, 8), "k")
    update = te.compute((T, 8), lambda t, i: te.sum(S[t - 1, k] * W[i, k], axis=k), name="update")
    Y = te.scan(te.compute((1, 8), lambda t, i: te.const(1.0, "float32"), name="init"), update, S)
    s = create_schedule(Y)
    ko, ki = s[update].split(k, factor=4)
    part = s.rfactor(update, ki)
    assert s[part].time_axis is s[part].op.axis[1]
    w = np.eye(8, dtype="f")[::-1] * np.float32(2)
    got = np.empty((T, 8), "f")
    tw.build(s, [W, Y])(w, got)
    np.testing.assert_array_equal(got, evaluate(Y, {W: w}))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("splits", [[{"factor": 4}, {"factor": 3}], [{"nparts": 5}, {"factor": 4}], [{"factor": 5}, {"nparts": 2}]])
def test_no_step_is_done_twice(splits, symbolic):
    """Parts of a part that do not divide it overlap the next part; where the live steps only are stored, that is no repetition (found by the fuzzer)."""
    steps = 14
    length = te.size_var("n") if symbolic else steps
    X, S = te.placeholder((length,), "int32", name="X"), te.placeholder((length,), "int32", name="S")
    init = te.compute((1,), lambda t: te.const(5, "int32"), name="init")
    Y = te.scan(init, te.compute((length,), lambda t: S[t - 1] * 3 + X[t], name="update"), S, name="Y")
    last = te.compute((1,), lambda _: Y[length - 1], name="last")
    s = create_schedule(last)
    axis = Y.op.scan_axis
    for how in splits:
        axis = s[Y].split(axis, **how)[1]
    x = np.arange(steps, dtype="int32")
    want = 5
    for t in range(1, steps):
        want = want * 3 + int(x[t])
    for function in (lower_schedule(s, [X, last]), tw.lower(s, [X, last])):
        got = np.zeros(1, "int32")
        interpret(function, [x, got], {"n": steps} if symbolic else ())
        assert got[0] == np.int64(want).astype("int32")


def test_what_a_scan_refuses():
    p = Program()
    s, args = p.whole()
    time = p.Y.op.scan_axis
    for name, call in {
        "compute_inline": lambda: s[p.Y].compute_inline(), "cache_write": lambda: s.cache_write(p.Y, "local"),
        "cache_read": lambda: s.cache_read(p.update, "local", [p.Y]),
        "prefetch": lambda: s[p.Y].prefetch(p.init, time), "fuse": lambda: s[p.Y].fuse(), "rfactor": lambda: s.rfactor(p.Y, time),
        "storage_align": lambda: s[p.Y].storage_align(time, 8), "transform_layout": lambda: s[p.Y].transform_layout(lambda t, i: [i, t]),
    }.items():  # fmt: skip
        refuse(call, name, "Y", "scan", "update")
    refuse(lambda: s[p.Y].vectorize(time), "vectorize", "t", "time of a scan")
    refuse(lambda: s[p.Y].parallel(time), "parallel", "time of a scan")
    refuse(lambda: s[p.Y].bind(time, te.thread_axis("blockIdx.x")), "bind", "time of a scan")
    refuse(lambda: s[p.update].compute_at(s[p.Y], time), "update", "Y", "each step")
    refuse(lambda: s[p.update].compute_inline(), "update", "Y", "stored")
    refuse(lambda: s[p.update].set_scope("local"), "update", "Y", "cache_write")
    refuse(lambda: s[p.update].transform_layout(lambda t, i: [i, t]), "update", "cache_write")
    refuse(lambda: s[p.update].storage_align(p.update.op.axis[0], 8), "update", "cache_write")
    for part in (p.update, p.between):
        refuse(lambda part=part: s[part].env_threads([te.thread_axis(4, "threadIdx.x")]), "env_threads", part.op.name, "each step of scan Y")
    outer, inner = s[p.Y].split(time, factor=2)
    refuse(lambda: s[p.Y].reorder(inner, outer), "reorder", "in order", "t.outer")
    s[p.between].compute_at(s[p.Y], outer)
    refuse(lambda: lower_schedule(s, args), "between", "steps before", "innermost", "t.inner")


def test_what_does_not_fit_is_said_when_lowered():
    p = Program()
    s, args = p.whole()
    refuse(lambda: lower_schedule(s, [p.X, p.S, p.Y]), "S", "state of scan Y", "Y")
    refuse(lambda: lower_schedule(s, [p.X, p.update, p.Y]), "update", "scan Y", "inside its steps")
    s[p.init].compute_at(s[p.Y], p.Y.op.scan_axis)
    refuse(lambda: lower_schedule(s, args), "init", "no reader", "compute_root")


def test_default_schedules():
    p = Program()
    for tensor in (p.Y, p.last):
        p.check(autotune.default_schedule([p.X, tensor], "c"), [p.X, tensor])


@pytest.mark.parametrize("seed", [*range(40), 347, 370])  # the last: idle lanes beside what another thread writes
def test_random_scans_under_random_schedules(seed):
    rng = random.Random(seed)
    program = random_scan(rng)
    args = [*program.inputs, *program.outputs]
    arrays = program.arrays(seed)
    want = evaluate(program.outputs, arrays, program.sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduled = random_schedule(rng, args, program.outputs, gpu_share=0)
        passed = tw.lower(scheduled.schedule, args)
    for function in (scheduled.function, passed):
        got = [np.full(w.shape, 77).astype(w.dtype) for w in want]
        interpret(function, [*(arrays[t] for t in program.inputs), *got], {v.name: n for v, n in program.sizes.items()})
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.astype("float64"), b.astype("float64"), err_msg=f"seed {seed}\n{program.text()}\n{scheduled.schedule.as_python()}")


def test_initial_steps_from_a_constant_are_made_at_each_call():
    first, X, S = te.placeholder((1, M), name="first"), te.placeholder((T, M), name="X"), te.placeholder((T, M), name="S")
    init = te.compute((1, M), lambda t, i: first[t, i] * 2.0, name="init")
    Y = te.scan(init, te.compute((T, M), lambda t, i: S[t - 1, i] + X[t, i], name="update"), S)
    last = te.compute((M,), lambda i: Y[T - 1, i], name="last")
    f, x = np.ones((1, M), "f"), np.ones((T, M), "f")
    module = tw.build(create_schedule(last), [first, X, last], constants={first: f})
    for _ in range(2):  # the first call overwrites the row of the initial step with a later one
        got = np.full(M, np.nan, "f")
        module(x, got)
        np.testing.assert_array_equal(got, T + 1)


def test_a_step_that_reads_another_scan_inside_a_loop():
    """The step of V, whose state only an earlier update reads, is placed last; what it reads of `one` has no axes of its own."""
    X = te.placeholder((8, 6), name="X")
    P, U, V = (te.placeholder((8, 6), name=name) for name in "PUV")
    init = te.compute((1, 6), lambda _, i: X[0, i], name="init")
    one = te.scan(init, te.compute((8, 6), lambda t, i: P[t - 1, i] + X[t, i], name="step"), P, inputs=[X], name="one")
    u = te.compute((8, 6), lambda t, i: U[t - 1, i] + V[t - 1, i], name="u")
    v = te.compute((8, 6), lambda t, i: U[t - 1, i] * 2.0 + one[t, i], name="v")
    first = [te.compute((1, 6), lambda _, i: X[1, i], name=name) for name in ("u0", "v0")]
    two, _ = te.scan(first, [u, v], [U, V], inputs=[X], name="two")
    D = te.compute((8, 6), lambda t, i: two[t, i] + 1.0, name="D")
    s = te.create_schedule(D.op)
    s[two].compute_at(s[D], D.op.axis[1])
    x = np.random.default_rng(0).integers(-3, 4, (8, 6)).astype("float32")
    got = np.empty_like(x)
    interpret(lower_schedule(s, [X, D]), [x, got])
    sums = np.cumsum(x, axis=0)
    a, b = x[1].copy(), x[1].copy()
    for t in range(8):
        if t:
            a, b = a + b, 2 * a + sums[t]
        np.testing.assert_array_equal(got[t], a + 1)
