"""te.scan: what it means (by the evaluator), and every declaration that is refused. Schedules of scans: tests/schedule/test_scan.py."""

import numpy as np
import pytest
from evaluate import evaluate

from tilewright import te
from tilewright.schedule import create_schedule
from tilewright.tir.errors import ScheduleError, TEError

T, M = 6, 3
X = te.placeholder((T, M), name="X")


def state(shape=(T, M), dtype="float32", name="S"):
    return te.placeholder(shape, dtype, name=name)


def first(steps=1, columns=M, dtype="float32"):
    return te.compute((steps, columns), lambda t, i: (X[t, i] * 1.0).astype(dtype), name="init")


def refuse(declare, *words, error=TEError):
    with pytest.raises(error) as caught:
        declare()
    for word in words:
        assert word in str(caught.value), f"{word!r} not in: {caught.value}"


def test_running_sums():
    S = state()
    update = te.compute((T, M), lambda t, i: S[t - 1, i] + X[t, i], name="update")
    Y = te.scan(first(), update, S, inputs=[X])
    assert (Y.shape, Y.dtype, Y.op.steps, Y.op.lags) == ((T, M), "float32", 1, (1,))
    assert Y.op.scan_axis.kind == "ordered" and Y.op.body == (update.op,)
    x = np.arange(T * M, dtype="f").reshape(T, M)
    np.testing.assert_array_equal(evaluate(Y, {X: x}), np.cumsum(x, 0))


def test_states_of_different_rank_and_two_steps_back():
    S, total = state(), state((T,), name="total")
    k = te.reduce_axis((0, M), "k")
    between = te.compute((T, M), lambda t, i: S[t - 1, i] + S[t - 2, i], name="between")
    update = te.compute((T, M), lambda t, i: between[t, i] + total[t - 2], name="update")
    row = te.compute((T,), lambda t: te.sum(update[t, k], axis=k), name="row")
    update_total = te.compute((T,), lambda t: row[t] + total[t - 1], name="update_total")
    start = te.compute((2,), lambda t: X[t, 0], name="start")
    Y, Z = te.scan([first(2), start], [update, update_total], [S, total])
    assert Y.op.lags == (2, 2) and (Y.ndim, Z.ndim) == (2, 1) and [op.name for op in Y.op.body] == ["between", "update", "row", "update_total"]
    x = np.arange(T * M, dtype="f").reshape(T, M)
    y, z = x.copy(), x[:, 0].copy()
    for t in range(2, T):
        y[t] = y[t - 1] + y[t - 2] + z[t - 2]
        z[t] = y[t].sum() + z[t - 1]
    for got, want in zip(evaluate([Y, Z], {X: x}), (y, z), strict=True):
        np.testing.assert_array_equal(got, want)


def test_states_inits_and_updates_must_fit_together():
    S = state()
    update = te.compute((T, M), lambda t, i: S[t - 1, i], name="update")
    refuse(lambda: te.scan(None, update, S), "init", "None", "tensor")
    refuse(lambda: te.scan(first(), update, S, inputs=[3]), "inputs", "3")
    refuse(lambda: te.scan(first(), update, S, name=3), "the name is 3", "text")
    refuse(lambda: te.scan([], [], []), "no state")
    refuse(lambda: te.scan([first()], [update], [S, S]), "1 init", "1 update", "2 state")
    refuse(lambda: te.scan([first(), first()], [update, update], [S, state()]), "'update'", "twice")
    refuse(lambda: te.scan([first(), first()], [update, te.compute((T, M), lambda t, i: X[t, i])], [S, S]), "'S'", "twice")
    refuse(lambda: te.scan(first(), update, first()), "'init'", "placeholder")
    refuse(lambda: te.scan(first(), X, S), "'X'", "te.compute")
    refuse(lambda: te.scan(first(dtype="float64"), update, S), "init", "float64", "float32")
    refuse(lambda: te.scan(first(), te.compute((T, M), lambda t, i: X[t, i].astype("int32")), S), "int32", "float32")
    refuse(lambda: te.scan(first(columns=2), update, S), "(1, 2)", "(6, 3)", "(steps, 3)")
    refuse(lambda: te.scan(first(), te.compute((T - 1, M), lambda t, i: X[t, i]), S), "(5, 3)", "(6, 3)")
    refuse(lambda: te.scan(te.compute((T + 1, M), lambda t, i: 0.0), update, S), "7 steps", "6")
    refuse(lambda: te.scan(te.compute((0, M), lambda t, i: 0.0), update, S), "0 steps", "at least 1")
    refuse(lambda: te.scan(te.compute((te.size_var("n"), M), lambda t, i: 0.0), update, S), "n steps", "constant")
    refuse(lambda: te.scan(te.compute((), lambda: 0.0), te.compute((), lambda: 1.0), state(())), "no dimension", "time")
    long = state((T + 1, M), name="long")
    one, other = te.compute((T, M), lambda t, i: S[t - 1, i]), te.compute((T + 1, M), lambda t, i: long[t - 1, i])
    refuse(lambda: te.scan([first(), first()], [one, other], [S, long]), "length", "6", "7", "one time axis")
    refuse(lambda: te.scan([first(), first(2)], [one, te.compute((T, M), lambda t, i: X[t, i])], [S, state()]), "initial steps", "1", "2")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda S, t, i: S[t, i], ["S[t, i]", "earlier step", "update"]),
        (lambda S, t, i: S[te.minimum(t + 1, T - 1), i], ["earlier step"]),
        (lambda S, t, i: S[t - 2, i], ["S[t - 2, i]", "c from 1", "1 step"]),
        (lambda S, t, i: S[0, i], ["S[0, i]", "earlier step"]),
        (lambda S, t, i: S[t - 1, i + 1], ["index 1", "1 to 3", "[0, 3)"]),
        (lambda S, t, i: S[t - 1, i] + X[t - 2, i], ["X[t - 2, i]", "-1 to 3", "[0, 6)"]),
    ],
)
def test_what_a_step_may_read(body, words):
    S = state()
    refuse(lambda: te.scan(first(), te.compute((T, M), lambda t, i: body(S, t, i), name="update"), S), *words)


def test_stages_of_a_step_have_time_and_are_read_at_their_step():
    S = state()
    late = te.compute((M,), lambda i: S[2, i], name="late")
    refuse(lambda: te.scan(first(), te.compute((T, M), lambda t, i: late[i] + X[t, i]), S), "'late'", "time", "first axis")
    between = te.compute((T, M), lambda t, i: S[t - 1, i] * 2, name="between")
    refuse(lambda: te.scan(first(), te.compute((T, M), lambda t, i: between[t - 1, i], name="u"), S), "between[t - 1, i]", "same step", "state")
    inner = state((T, M), name="inner")
    nested = te.scan(te.compute((1, M), lambda t, i: 0.0), te.compute((T, M), lambda t, i: S[t - 1, i] + inner[t - 1, i], name="v"), inner, name="nested")
    refuse(lambda: te.scan(first(), te.compute((T, M), lambda t, i: nested[t, i]), S, name="outer"), "outer", "'nested'", "one scan over both")
    sorting = te.extern((T, M), [S], lambda ins, outs: te.call_extern("f", outs[0], ins[0]), name="sorting")
    refuse(lambda: te.scan(first(), te.compute((T, M), lambda t, i: sorting[t, i]), S), "'sorting'", "before or after the scan")
    refuse(lambda: te.scan(first(), sorting, S), "update 'sorting'", "te.compute", "before the scan or after it")
    known = te.compute((1, M), lambda t, i: S[0, i], name="known")
    refuse(lambda: te.scan(known, te.compute((T, M), lambda t, i: S[t - 1, i]), S), "init 'known'", "before the first step")


def test_what_belongs_to_a_scan_stays_in_it():
    S = state()
    update = te.compute((T, M), lambda t, i: S[t - 1, i] + X[t, i], name="update")
    Y = te.scan(first(), update, S)
    D = te.compute((T, M), lambda t, i: Y[t, i] + update[t, i], name="D")
    refuse(lambda: create_schedule(D), "'D'", "'update'", "scan")
    E = te.compute((T, M), lambda t, i: Y[t, i] + S[t, i], name="E")
    refuse(lambda: create_schedule(E), "'E'", "'S'", "output of the scan")
    again = te.scan(first(), te.compute((T, M), lambda t, i: S[t - 1, i] * 2, name="other"), S, name="again")
    refuse(lambda: create_schedule([Y, again]), "'S'", "two scans", "'scan'", "'again'")
    refuse(lambda: create_schedule([Y, update]), "update", "scan", error=ScheduleError)


def test_a_read_before_the_start_is_refused_outside_of_scans():
    B = te.compute((T, M), lambda t, i: X[t - 1, i], name="B")  # only a scan could make this right
    refuse(lambda: create_schedule(B), "'B'", "X[t - 1, i]", "-1 to 4", "[0, 6)", "te.if_then_else")
    refuse(lambda: te.compute((T, M), lambda t, i: X[t, i - 1], name="B"), "X[t, i - 1]", "-1 to 1")
