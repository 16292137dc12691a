"""Barriers between threads: golden texts, what needs none, what is refused; and that each of them is needed."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import lower_schedule
from tilewright.tir.errors import TargetError
from tilewright.tir.expr import Buffer, Var, as_expr, const, eq, floormod, lt
from tilewright.tir.interp import compiled, interpret
from tilewright.tir.interp_support import Divergence
from tilewright.tir.passes import pipeline_for
from tilewright.tir.passes.barriers import Barriers
from tilewright.tir.stmt import For, If, Shuffle, Store, Sync, seq
from tilewright.tir.target import Target
from tilewright.tir.verify import check_synced, check_threads_bound

from .threads import get, kernel, loop

TARGET = Target("cuda", device="emulator")
A, C = Buffer("A", (64,)), Buffer("C", (64,))
S, T = Buffer("S", (64,), "float32", "shared"), Buffer("T", (64,), "float32", "shared")
ONE = const(1.0, "float32")


def put(buffer, index, value):
    return Store(buffer, tuple(map(as_expr, index if isinstance(index, tuple) else (index,))), value)


def one_kernel(body, shared=(S, T), threads=64, params=(A, C)):
    return kernel("k", params, [params[-1]], lambda v: body(v["threadIdx.x"]), {"x": threads}, shared=shared)


def synced(func):
    """The function with barriers; that none is missing then, and that the values are those of threads that go through it statement by statement."""
    assert check_threads_bound(func) == []
    done = Barriers().run(func, TARGET)
    assert check_synced(done) == []
    inputs = [np.random.default_rng(1).standard_normal(p.shape).astype(p.dtype.element) for p in func.params]
    want = [a.copy() for a in inputs]
    interpret(func, want, threads="steps")
    for seed in range(4):
        found = [a.copy() for a in inputs]
        interpret(done, found, threads="barriers", seed=seed)
        for x, y in zip(want, found, strict=True):
            np.testing.assert_array_equal(x, y)
    return done


def barriers_in(func):
    return str(func).count("sync block")


def test_written_by_one_thread_and_read_by_another():
    done = synced(one_kernel(lambda t: seq(put(S, t, get(A, t)), put(C, t, get(S, 63 - t)))))
    assert barriers_in(done) == 1
    lines = [line.strip() for line in str(done).splitlines()]
    assert lines[-3:] == ["S[threadIdx.x] = A[threadIdx.x]", "sync block", "C[threadIdx.x] = S[63 - threadIdx.x]"]


def test_what_a_thread_wrote_itself_needs_none():
    assert barriers_in(synced(one_kernel(lambda t: seq(put(S, t, get(A, t)), put(C, t, get(S, t) + ONE))))) == 0


def test_a_result_that_one_store_writes_and_nothing_reads_needs_none():
    """Whoever stores an element, it is what the stage says: whether indices of threads and iterations can be equal need not be known."""
    places = lambda t: loop("k", 2, lambda k: put(C, (t * 7 + k * 64) % 64, get(A, (t * 7 + k * 64) % 64)))  # noqa: E731
    assert barriers_in(synced(one_kernel(places))) == 0
    read = lambda t: seq(places(t), put(S, t, get(C, 63 - t)))  # noqa: E731
    assert barriers_in(synced(one_kernel(read))) > 0


def test_a_copy_in_a_loop_needs_two():
    body = lambda t: loop("k", 4, lambda k: seq(put(S, t, get(A, t)), put(C, t, get(S, 63 - t))))  # noqa: E731
    assert barriers_in(synced(one_kernel(body))) == 2


def test_two_copies_share_their_barriers():
    body = lambda t: loop("k", 4, lambda k: seq(put(S, t, get(A, t)), put(T, t, get(A, 63 - t)), put(C, t, get(S, 63 - t) + get(T, 63 - t))))  # noqa: E731
    assert barriers_in(synced(one_kernel(body))) == 2


def test_halves_that_alternate_need_one():
    """Filling one half while the other is read: the barrier between iterations serves both."""
    D = Buffer("D", (2, 64), "float32", "shared")

    def body(t):
        def step(k):
            return seq(put(D, (floormod(k + 1, as_expr(2)), t), get(A, t)), put(C, t, get(D, floormod(k, as_expr(2)), 63 - t)))

        return seq(put(D, (0, t), get(A, 63 - t)), loop("k", 6, step))

    assert barriers_in(synced(one_kernel(body, shared=(D,)))) == 1


@pytest.mark.parametrize(
    ("partner", "kind"),
    [
        (lambda t: t // 32 * 32 + (31 - t % 32), "warp"),
        (lambda t: t // 2 * 2 + (1 - t % 2), "warp"),
        (lambda t: (t + 16) % 64, "block"),
        (lambda t: 63 - t, "block"),
    ],
)
def test_inside_a_warp_its_own_barrier_does(partner, kind):
    done = synced(one_kernel(lambda t: seq(put(S, t, get(A, t)), put(C, t, get(S, partner(t))))))
    assert str(done).count(f"sync {kind}") == 1 and str(done).count("sync") == 1
    without = one_kernel(lambda t: seq(put(S, t, get(A, t)), Sync("warp"), put(C, t, get(S, partner(t)))))
    assert check_synced(without) == [] if kind == "warp" else check_synced(without)


def test_rows_of_a_block_that_share_a_warp():
    """Two rows of 16 threads are one; a loop in which rows work for themselves needs no barrier of the block, and what follows does. (Nothing of the step
    after the last one is looked at: it would read a row of another warp.)"""
    D = Buffer("D", (8, 16), "float32", "shared")
    B, E = Buffer("B", (128,)), Buffer("E", (128,))

    def body(v):
        x, y = v["threadIdx.x"], v["threadIdx.y"]
        step = lambda k: seq(put(D, (y, x), get(B, y * 16 + x)), put(E, y * 16 + x, get(D, y // 2 * 2 + k, 15 - x)))  # noqa: E731
        return seq(loop("k", 2, step), put(E, y * 16 + x, get(D, 7 - y, x)))

    done = synced(kernel("k", [B, E], [E], body, {"x": 16, "y": 8}, shared=[D]))
    assert str(done).count("sync warp") == 2 and barriers_in(done) == 1


def test_a_guard_that_leaves_one_thread():
    body = lambda t: seq(If(eq(t, as_expr(0)), put(S, 0, get(A, 0))), If(eq(t, as_expr(0)), put(C, 0, get(S, 0))))  # noqa: E731
    assert barriers_in(synced(one_kernel(body))) == 0
    body = lambda t: seq(If(eq(t, as_expr(0)), put(S, 0, get(A, 0))), put(C, t, get(S, 0)))  # noqa: E731
    assert barriers_in(synced(one_kernel(body))) == 1


def test_a_barrier_between_some_threads_is_refused():
    body = lambda t: If(lt(t, as_expr(32)), seq(put(S, t, get(A, t)), put(C, t, get(S, 31 - t))))  # noqa: E731
    with pytest.raises(TargetError, match=r"threadIdx.x < 32.*writes S\[threadIdx.x\].*reads S"):
        Barriers().run(one_kernel(body), TARGET)


def test_statements_that_stand_in_two_places():
    """A barrier before one of them is not one before the other, which needs none, and stands under a condition."""
    put_out = put(C, 0, get(S, 1))
    B = Buffer("B", (64,))

    def body(b, t):
        whole = seq(put(S, t, get(A, t)), put_out)
        return If(lt(b, as_expr(1)), whole, If(lt(t, as_expr(1)), put_out))

    func = kernel("k", [A, B, C], [C], lambda v: body(v["blockIdx.x"], v["threadIdx.x"]), {"x": 64}, {"x": 2}, shared=[S])
    done = Barriers().run(func, TARGET)
    assert barriers_in(done) == 1 and check_synced(done) == []
    alone = one_kernel(lambda t: put(C, t, get(A, t)))
    assert Barriers().run(alone, TARGET) is alone


def test_threads_in_different_arms_or_iterations():
    body = lambda t: If(lt(t, as_expr(32)), put(S, t, get(A, t)), put(C, t, get(S, t - 32)))  # noqa: E731
    with pytest.raises(TargetError, match=r"threadIdx.x < 32.*writes S\[threadIdx.x\].*reads S\[threadIdx.x - 32\]"):
        Barriers().run(one_kernel(body), TARGET)
    body = lambda t: If(lt(t, as_expr(32)), put(S, t, get(A, t)), put(C, t, get(S, t)))  # noqa: E731
    assert barriers_in(Barriers().run(one_kernel(body), TARGET)) == 0

    def some_steps(t):
        """Each thread runs as often as its number says, and writes what another one reads a step later."""
        k = Var("k", "int32", (0, 63))
        return For(k, t, "serial", put(S, k, get(S, k) + get(A, t)))

    with pytest.raises(TargetError, match=r"inside the condition k < threadIdx.x"):
        Barriers().run(one_kernel(some_steps), TARGET)


def test_what_an_extent_reads_is_not_overwritten_too_early():
    """A thread may still be about to read how often it loops when another one is through with all of its own loop; inside of it none may overtake."""
    N, L = Buffer("N", (64,), "int32", "shared"), Buffer("L", (1,), "float32", "local")

    def steps(body):
        return lambda t: seq(put(L, 0, ONE), put(N, t, t), For(Var("k", "int32", (0, 63)), get(N, 2), "serial", body(t)), put(N, t, as_expr(1)))

    func = kernel("k", [A, C], [C], lambda v: steps(lambda t: put(L, 0, get(L, 0) + ONE))(v["threadIdx.x"]), {"x": 64}, shared=[N], local=[L])
    assert check_synced(func) and barriers_in(synced(func)) == 2
    for own in (steps(lambda t: put(N, t, as_expr(1))), lambda t: If(lt(get(N, 2), as_expr(5)), put(N, t, as_expr(1)))):
        with pytest.raises(TargetError, match=r"threads must wait.*N\[2\].*one thread reads N\[2\] before another one writes N\[threadIdx.x\]"):
            Barriers().run(kernel("k", [A, C], [C], lambda v, own=own: own(v["threadIdx.x"]), {"x": 64}, shared=[N], local=[L]), TARGET)


def test_threads_that_part_around_a_barrier_are_found():
    func = one_kernel(lambda t: seq(put(S, t, get(A, t)), If(lt(t, as_expr(32)), Sync("block")), put(C, t, get(S, t))))
    assert "threadIdx.x < 32" in check_synced(func)[0]
    L = Buffer("L", (1,), "float32", "local")
    shuffle = Shuffle(get(L, 0), ONE, as_expr(1))
    assert "a shuffle stands under" in check_synced(kernel("k", [A, C], [C], lambda v: If(lt(v["threadIdx.x"], as_expr(7)), shuffle), {"x": 64}, local=[L]))[0]
    with pytest.raises(Divergence, match=r"same barrier.*32 threads have ended"):
        compiled(func, "barriers")([np.zeros(64, "f"), np.zeros(64, "f")])


@pytest.mark.parametrize("n", [100, 7000, 70000])
def test_results_of_fused_loops_in_vectors_need_none(n):
    """The blocks at the end have a guard, so that there are two stores; that two threads never store one element follows from the place of each."""
    X = te.placeholder((n, n), name="X")
    B = te.compute((n, n), lambda i, j: X[i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    i, j = B.op.axis
    j, lane = s[B].split(j, factor=4)
    s[B].vectorize(lane)
    block, thread = s[B].split(s[B].fuse(i, j), factor=256)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    assert "sync" not in str(pipeline_for(TARGET).run(lower_schedule(s, [X, B]), TARGET))
