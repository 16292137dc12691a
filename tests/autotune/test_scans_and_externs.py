"""Computations with scans and calls of C functions: as data, by default, over their whole space, and tuned and replayed from the log."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import autotune, te
from tilewright.autotune.canonical import data_hash, flop_count, from_data, to_data
from tilewright.autotune.verify import make_check
from tilewright.tir.errors import ArgumentError
from tilewright.tir.target import Target


def recurrent(steps=6, batch=5, hidden=19):
    """h[t] = tanh(h[t - 1] W + (X V)[t]): a reduction and a plain stage in a step, a product before it, a stage after it."""
    X, V = te.placeholder((steps, batch, 7), name="X"), te.placeholder((7, hidden), name="V")
    W, H = te.placeholder((hidden, hidden), name="W"), te.placeholder((steps, batch, hidden), name="H")
    q, k = te.reduce_axis((0, 7), name="q"), te.reduce_axis((0, hidden), name="k")
    P = te.compute((steps, batch, hidden), lambda t, b, h: te.sum(X[t, b, q] * V[q, h], axis=q), name="P")
    first = te.compute((1, batch, hidden), lambda _, b, h: te.const(0.0, "float32"), name="first")
    Z = te.compute((steps, batch, hidden), lambda t, b, h: te.sum(H[t - 1, b, k] * W[k, h], axis=k), name="Z")
    U = te.compute((steps, batch, hidden), lambda t, b, h: te.tanh(P[t, b, h] + Z[t, b, h]), name="U")
    Y = te.scan(first, U, H, inputs=[P, W], name="Y")
    R = te.compute((batch, hidden), lambda b, h: Y[steps - 1, b, h] * 2.0, name="R")
    return [X, V, W, R]


def recurrent_in_numpy(X, V, W):
    p = X.astype("d") @ V
    h = np.zeros_like(p[0])
    for t in range(1, len(p)):
        h = np.tanh(h @ W + p[t])
    return h * 2


def rows_of_steps(steps=5, hidden=40):
    """h[t, i] = 0.1 sum of W[i, k] h[t - 1, k]: a reduction along contiguous memory that is itself the update."""
    A, W, H = te.placeholder((1, hidden), name="A"), te.placeholder((hidden, hidden), name="W"), te.placeholder((steps, hidden), name="H")
    k = te.reduce_axis((0, hidden), name="k")
    first = te.compute((1, hidden), lambda _, i: A[0, i] + 0.0, name="first")
    U = te.compute((steps, hidden), lambda t, i: te.sum(W[i, k] * H[t - 1, k] * 0.1, axis=k), name="U")
    return [A, W, te.scan(first, U, H, name="Y")]


def two_states(steps=9, width=40):
    """Fibonacci's numbers of a row, and of one number that the row's sum moves: states of different ranks, of which only the ends are read."""
    A = te.placeholder((2, width), name="A")
    F, G = te.placeholder((steps, width), name="F"), te.placeholder((steps,), name="G")
    k = te.reduce_axis((0, width), name="k")
    f0, g0 = te.compute((2, width), lambda s, i: A[s, i] * 1.0, name="f0"), te.compute((2,), lambda s: A[s, 0] * 1.0, name="g0")
    f = te.compute((steps, width), lambda t, i: F[t - 1, i] - 0.5 * F[t - 2, i] + G[t - 1], name="f")
    sums = te.compute((steps,), lambda t: te.sum(F[t - 1, k], axis=k), name="sums")
    g = te.compute((steps,), lambda t: sums[t] * 0.01 + G[t - 2] * 0.5, name="g")
    Y, Z = te.scan([f0, g0], [f, g], [F, G], name="Y")
    return [A, te.compute((width,), lambda i: Y[steps - 1, i] + Z[steps - 1], name="out")]


def with_functions(n=40):
    """Stages before, between and after two calls of C functions, of two outputs and of a library."""
    A = te.placeholder((n, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    B = te.compute((n, n), lambda i, j: te.sum(A[i, k] * A[k, j], axis=k), name="B")
    C = te.extern((n, n), [B], lambda ins, outs: te.call_extern("memcpy", outs[0], ins[0], te.const(4 * n * n, "int64")), name="C")
    D = te.compute((n, n), lambda i, j: te.exp(C[i, j] * 0.01) + B[j, i], name="D")
    sine, cosine = te.extern(
        [(1,), (1,)], [], lambda ins, outs: te.call_extern("sincosf", te.const(0.5, "float32"), outs[0], outs[1]),
        name="both", dtype="float32", libraries=["m"],
    )  # fmt: skip
    return [A, te.compute((n, n), lambda i, j: D[i, j] * sine[0] + cosine[0], name="E")]


PROGRAMS = [recurrent, rows_of_steps, two_states, with_functions]


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_data_it_comes_back_the_same(program):
    data = to_data(program())
    again = from_data(json.loads(json.dumps(data)))
    assert to_data(again) == data and data_hash(to_data(again)) == data_hash(data)
    assert [(t.name, t.dtype, t.shape) for t in again] == [(t.name, t.dtype, t.shape) for t in program()]


def test_hashes_tell_calls_and_steps_apart():
    def call(symbol="memcpy", count=16, library=()):
        A = te.placeholder((4,), name="A")
        return [A, te.extern((4,), [A], lambda ins, outs: te.call_extern(symbol, outs[0], ins[0], te.const(count, "int64")), name="C", libraries=library)]

    programs = [call(), call("memmove"), call(count=8), call(library=["m"]), recurrent(), recurrent(steps=5)]
    assert len({data_hash(to_data(program)) for program in programs}) == len(programs)
    assert data_hash(to_data(call())) == data_hash(to_data(call()))


def test_symbolic_sizes_are_refused():
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    with pytest.raises(ArgumentError, match="symbolic"):
        to_data([A, te.extern((n,), [A], lambda ins, outs: te.call_extern("f", outs[0], ins[0], n), name="C")])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("program", PROGRAMS)
def test_default_and_random_candidates_are_right(program, threads):
    task = autotune.Task.from_compute(program(), target=Target("c", threads=threads))
    check = make_check(task.tensors, task.reference, seed=1)
    rng = random.Random(f"{program.__name__}{threads}")
    assert len(task.space) > 4
    for decisions in ({}, *(task.space.sample(rng) for _ in range(3))):
        candidate = task.instantiate(decisions)
        module = tw.build(candidate.schedule, candidate.tensors, target=task.target)
        arguments = check.arguments()
        module(*arguments)
        assert check.mismatch(arguments) is None, (decisions, check.mismatch(arguments))
        assert task.replay(candidate.schedule.trace.to_data()).schedule.as_python() == candidate.schedule.as_python()
        module.close()


def test_the_reference_is_what_numpy_says():
    tensors = recurrent()
    arrays = [np.random.default_rng(0).standard_normal(t.shape).astype("f") for t in tensors[:-1]]
    np.testing.assert_allclose(autotune.Task.from_compute(tensors).reference(*arrays), recurrent_in_numpy(*arrays), rtol=1e-3, atol=1e-4)


def test_a_step_is_tiled_and_its_product_stays_in_registers():
    tensors = recurrent(batch=6, hidden=32)
    text = str(tw.lower(autotune.default_schedule(tensors, "c"), tensors))
    step = text[text.index("for t in") :]
    assert "allocate Z: float32[96] in local at stack" in step and " + Z[ramp(" in step  # rows of 6, columns of 16
    assert text.index("produce P") < text.index("for t in")  # what needs no state is computed for all steps at once


@pytest.mark.parametrize("program", [recurrent, with_functions])
def test_tuned_and_replayed(program, tmp_path: Path):
    log = tmp_path / "t.db"
    task = autotune.Task.from_compute(program(), target=Target("c", threads=2), name="odd")
    run = autotune.tune(task, 6, log, seed=3, progress=False, timeout_s=120)  # a busy machine is no fault of a trial
    assert [trial.status for trial in run.trials] == ["ok"] * 6, [(t.status, t.error) for t in run.trials]
    again = autotune.Task.from_compute(program(), target=Target("c", threads=2), name="odd")
    module = autotune.load_best(again, log)
    check = make_check(again.tensors, again.reference, seed=5)
    arguments = check.arguments()
    module(*arguments)
    assert check.mismatch(arguments) is None
    assert flop_count(task.tensors) > 0 and run.best.seconds > 0
