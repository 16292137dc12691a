"""Double buffers: golden texts of the loops, the values of every form, one barrier an iteration, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import lower_schedule
from tilewright.tir.errors import ScheduleError
from tilewright.tir.expr import Buffer, as_expr, const, lt
from tilewright.tir.interp import interpret
from tilewright.tir.passes import StopAfter, Verify, pipeline_for
from tilewright.tir.passes.barriers import Barriers
from tilewright.tir.passes.double_buffer import DoubleBuffer
from tilewright.tir.stmt import If, Produce, Store, seq
from tilewright.tir.verify import check_closed, check_synced

from .threads import get, kernel, loop

TARGET = tw.Target("cuda", arch="sm_80", device="emulator")


def reversed_sums(n=5, threads=8, where="k"):
    """`C[t]` = the sum over k of `A[k, threads - 1 - t]`, by way of a row in shared memory."""
    A = te.placeholder((n, threads), name="A")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((threads,), lambda t: te.sum(A[k, threads - 1 - t], axis=k), name="C")
    s = te.create_schedule(C.op)
    S = s.cache_read(A, "shared", [C])
    L = s.cache_write(C, "local")
    tx = te.thread_axis((0, threads), "threadIdx.x")
    s[C].bind(s[C].op.axis[0], tx)
    s[L].compute_at(s[C], s[C].op.axis[0])
    s[S].compute_at(s[L], s[L].op.reduce_axis[0]) if where == "k" else s[S].compute_at(s[C], s[C].op.axis[0])
    s[S].bind(s[S].op.axis[1], tx)
    return s, [A, C], S


def lowered(s, args, *instruments, target=TARGET):
    return pipeline_for(target).run(lower_schedule(s, args, "k"), target, [Verify(2), *instruments])


@pytest.mark.parametrize(("stages", "asynchronous"), [(2, False), (3, False), (2, True), (3, True), (8, True)])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_values_and_one_barrier(n, stages, asynchronous):
    s, args, S = reversed_sums(n)
    s[S].double_buffer(stages, asynchronous)
    func = lowered(s, args)
    a = np.random.default_rng(3).standard_normal((n, 8)).astype("f")
    for seed in range(3):
        c = np.full(8, np.nan, "f")
        interpret(func, [a, c], threads="barriers", seed=seed)
        np.testing.assert_allclose(c, a.sum(0)[::-1], rtol=1e-6)
    assert str(func).count("sync block") == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_golden(golden, asynchronous):
    s, args, S = reversed_sums()
    s[S].double_buffer(2 + asynchronous, asynchronous)
    golden(f"double_buffer_{'asynchronous' if asynchronous else 'registers'}.txt", str(lowered(s, args, StopAfter("barriers"))) + "\n")


def test_without_cp_async_registers_serve():
    s, args, S = reversed_sums()
    s[S].double_buffer(asynchronous=True)
    text = str(lowered(s, args, target=tw.Target("cuda", arch="sm_75", device="emulator")))
    assert "async" not in text.replace("async_copy", "") and "shared.next" in text


def test_symbolic_extents():
    n = te.size_var("n")
    A = te.placeholder((n, 8), name="A")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((8,), lambda t: te.sum(A[k, 7 - t], axis=k), name="C")
    s = te.create_schedule(C.op)
    S, L = s.cache_read(A, "shared", [C]), s.cache_write(C, "local")
    tx = te.thread_axis((0, 8), "threadIdx.x")
    s[C].bind(s[C].op.axis[0], tx)
    s[L].compute_at(s[C], s[C].op.axis[0])
    s[S].compute_at(s[L], s[L].op.reduce_axis[0])
    s[S].bind(s[S].op.axis[1], tx)
    s[S].double_buffer(3, asynchronous=True)
    func = lowered(s, [A, C])
    for size in (0, 1, 2, 7):
        a, c = np.random.default_rng(4).standard_normal((size, 8)).astype("f"), np.full(8, np.nan, "f")
        interpret(func, [a, c], {"n": size}, threads="barriers")
        np.testing.assert_allclose(c, a.sum(0)[::-1], rtol=1e-6)


def test_a_place_that_is_read_from_memory_is_read_only_where_the_copy_happens():
    """The address of an asynchronous copy is computed whether or not it copies."""
    count, rows = 20, 32
    places, A = te.placeholder((count,), "int32", name="places"), te.placeholder((rows,), name="A")
    G = te.compute((rows,), lambda i: te.if_then_else(i < count, A[places[i]], 0.0), name="G")
    k = te.reduce_axis((0, rows), name="k")
    C = te.compute((8,), lambda t: te.sum(G[k] * (t + 1), axis=k), name="C")
    s = te.create_schedule(C.op)
    tx = te.thread_axis((0, 8), "threadIdx.x")
    s[C].bind(C.op.axis[0], tx)
    step, _ = s[C].split(k, factor=8)
    s[G].set_scope("shared")
    s[G].compute_at(s[C], step)
    s[G].bind(G.op.axis[0], tx)
    s[G].double_buffer(3, asynchronous=True)
    module = tw.build(s, [places, A, C], TARGET, check="race")
    rng = np.random.default_rng(5)
    where, a, c = rng.integers(0, rows, count).astype("int32"), rng.integers(-9, 9, rows).astype("f"), np.full(8, np.nan, "f")
    module(where, a, c)
    np.testing.assert_array_equal(c, a[where].sum() * np.arange(1, 9))
    assert "tw_cp_async_zfill_4" in module.get_source() and module.report.faults == []


def test_refusals():
    s, args, S = reversed_sums(where="t")
    s[S].double_buffer()
    with pytest.raises(ScheduleError, match=r"double_buffer of stage A.shared.*serial loop"):
        lowered(s, args)
    A = te.placeholder((5, 8), name="A")
    B = te.compute((5, 8), lambda i, j: A[i, j] * 2.0, name="B")
    D = te.compute((5, 8), lambda i, j: B[i, 7 - j] + 1.0, name="D")
    C = te.compute((5, 8), lambda i, j: D[i, 7 - j] * 3.0, name="C")
    s = te.create_schedule(C.op)
    tx = te.thread_axis((0, 8), "threadIdx.x")
    i, j = s[C].op.axis
    for T in (B, D):
        s[T].set_scope("shared")
        s[T].compute_at(s[C], i)
        s[T].bind(s[T].op.axis[1], tx)
    s[C].bind(j, tx)
    s[D].double_buffer()
    with pytest.raises(ScheduleError, match=r"double_buffer of stage D: it reads B, which is computed in the same iteration"):
        lowered(s, [A, C])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_either_arm_of_a_condition(asynchronous):
    """What one arm fills is filled ahead where that arm will be taken."""
    A, C, S = Buffer("A", (6, 8)), Buffer("C", (6, 8)), Buffer("S", (8,), "float32", "shared")
    pragmas = (("double_buffer", 2), ("async_copy", 1)) if asynchronous else (("double_buffer", 2),)

    def fill(row, t, factor):
        return Produce("S", Store(S, (t,), get(A, row, t) * const(factor, "float32")), pragmas)

    def body(v):
        t = v["threadIdx.x"]
        step = lambda k: seq(If(lt(k, as_expr(2)), fill(k, t, 1.0), fill(k, t, 2.0)), Store(C, (k, t), get(S, 7 - t)))  # noqa: E731
        return loop("k", 6, step)

    func = kernel("k", [A, C], [C], body, {"x": 8}, shared=[S])
    done = Barriers().run(DoubleBuffer().run(func, TARGET), TARGET)
    assert not [*check_synced(done), *check_closed(done)]
    a, c = np.random.default_rng(5).standard_normal((6, 8)).astype("f"), np.full((6, 8), np.nan, "f")
    interpret(done, [a, c], threads="barriers", seed=1)
    np.testing.assert_array_equal(c, a[:, ::-1] * np.array([1, 1, 2, 2, 2, 2], "f")[:, None])
