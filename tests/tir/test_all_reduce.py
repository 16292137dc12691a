"""Reductions across threads as shuffles and shared memory: the text; in lockstep the values of groups of every shape, of tuples, in loops; barriers."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import lower_schedule
from tilewright.tir.errors import TilewrightError
from tilewright.tir.expr import Buffer, Var, add, as_expr, const, lt, mul, select
from tilewright.tir.interp import interpret
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.passes import StopAfter, Verify, pipeline_for
from tilewright.tir.passes.all_reduce import ThreadAllReduce
from tilewright.tir.passes.barriers import Barriers
from tilewright.tir.passes.flatten import Flatten
from tilewright.tir.passes.shared_memory import SharedMemory
from tilewright.tir.stmt import Allocate, AllReduce, Combination, Place, Store, seq
from tilewright.tir.target import Target
from tilewright.tir.verify import check_closed, check_synced, check_threads_bound, check_typed
from tilewright.tir.visit import walk

from .threads import get, kernel, loop

TARGET = Target("cuda", device="emulator")
BLOCKS = [(32,), (8,), (1,), (12,), (48,), (64,), (96,), (16, 5), (64, 2), (8, 4), (8, 12), (3, 4), (8, 4, 3), (4, 2, 4), (33, 2), (2, 1, 16)]


def plus(kind="float32"):
    left, right = Var("left", kind), Var("right", kind)
    left.exact = right.exact = False
    return Combination((left,), (right,), (left + right,), (const(0, kind),))


def first_largest():
    """(index, value): the largest value, of equal ones that of the lowest index."""
    (i, a), (j, b) = ((Var(f"{side}_index", "int32"), Var(f"{side}_value", "float32")) for side in ("left", "right"))
    i.exact = j.exact = False
    take = lt(a, b) | ((a == b) & lt(j, i))
    return Combination((i, a), (j, b), (select(take, j, i), select(take, b, a)), (const(-1, "int32"), const(-9.0, "float32")))


def one_number(v):
    """The number of a thread in its block, from the variables and the block."""
    number, stride = as_expr(0), 1
    for letter, extent in v:
        number, stride = add(number, mul(letter, as_expr(stride))), stride * extent
    return number


def reducing(block, along, kind="float32", times=1, several=1):
    """Y[thread] = 1 + the sums over `along` of X[again, thread], `several` in sequence, `times` over."""
    count = prod(block)
    X, Y = Buffer("X", (times, count), kind), Buffer("Y", (count,), kind)
    totals = [Buffer(f"R{n}", (1,), kind, "local") for n in range(several)]

    def body(v):
        here = one_number([(v[f"threadIdx.{letter}"], extent) for letter, extent in zip("xyz", block, strict=False)])
        tags = tuple(f"threadIdx.{letter}" for letter in along)
        step = lambda k: seq(*[AllReduce((get(r, 0),), (get(X, k, here),), plus(kind), tags) for r in totals])  # noqa: E731
        first = [Store(r, (as_expr(0),), const(1, kind)) for r in totals]
        result = get(totals[0], 0)
        for r in totals[1:]:
            result = result + get(r, 0)
        return seq(*first, loop("again", times, step) if times > 1 else step(as_expr(0)), Store(Y, (here,), result))

    return kernel("sums", [X, Y], [Y], body, dict(zip("xyz", block, strict=False)), local=totals)


def lowered(func):
    """With barriers, and with all checks."""
    done = Barriers().run(ThreadAllReduce().run(func, TARGET), TARGET)
    assert not [*check_closed(done), *check_typed(done), *check_threads_bound(done), *check_synced(done)]
    assert not any(isinstance(node, AllReduce) for node in walk(done.body))
    return done


def barriers_in(func):
    return str(func).count("sync block")


def slots_in(func):
    return [prod(n.buffer.shape) for n in walk(func.body) if isinstance(n, Allocate) and n.buffer.scope == "shared"]


def test_golden(golden):
    A = te.placeholder((5, 64), name="A")
    k = te.reduce_axis((0, 64), name="k")
    S = te.compute((5,), lambda i: te.sum(A[i, k], axis=k), name="S")
    s = te.create_schedule(S.op)
    s[S].bind(S.op.axis[0], te.thread_axis("blockIdx.x"))
    s[S].bind(S.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
    target = tw.Target("cuda", arch="sm_80", device="emulator")
    golden("all_reduce.txt", str(pipeline_for(target).run(lower_schedule(s, [A, S], "k"), target, [Verify(2), StopAfter("shared_memory")])) + "\n")


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int64"])
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_groups_of_every_shape(block, kind):
    """Along every choice of indices; in any order of the threads."""
    wide = "xyz"[: len(block)]
    for along in {"x", wide, wide[-1], wide[0] + wide[-1]}:
        func = lowered(reducing(block, sorted(set(along)), kind, times=2))
        x = np.random.default_rng(1).integers(-3, 4, (2, *block[::-1])).astype(numpy_dtype(func.params[0].dtype))
        axes = tuple(len(block) - 1 - "xyz".index(letter) for letter in sorted(set(along)))
        want = 1 + np.broadcast_to(x.sum(0, dtype=x.dtype).sum(axes, keepdims=True, dtype=x.dtype), x.shape[1:])
        for seed in range(2):
            y = np.zeros(prod(block), x.dtype)
            interpret(func, [x, y], threads="barriers", seed=seed)
            np.testing.assert_array_equal(y, want.reshape(-1), err_msg=f"{block} along {along}")


@pytest.mark.parametrize(
    ("block", "along", "slots", "barriers"),
    [
        ((32,), "x", None, 0),
        ((8, 4), "xy", None, 0),
        ((16, 5), "x", None, 0),
        ((64,), "x", 2, 1),
        ((64, 2), "x", 4, 1),
        ((32, 4), "y", 128, 1),
        ((12,), "x", 12, 1),
        ((1,), "x", None, 0),
    ],
)
def test_shared_memory_and_a_barrier_only_beyond_a_warp(block, along, slots, barriers):
    func = lowered(reducing(block, along))
    assert slots_in(func) == ([] if slots is None else [slots]) and barriers_in(func) == barriers
    assert str(func).count("shuffle") == (block not in ((32, 4), (12,), (1,)))


def test_barriers_of_several_reductions():
    """One in a loop must be read before it is written again; two in turns see to that for one another."""
    assert barriers_in(lowered(reducing((64,), "x", times=3))) == 2
    assert barriers_in(lowered(reducing((64,), "x", times=3, several=2))) == 2
    assert barriers_in(lowered(reducing((64,), "x", several=3))) == 3


def test_the_third_reduction_uses_the_memory_of_the_first():
    placed = SharedMemory().run(Flatten().run(lowered(reducing((64,), "x", several=4)), TARGET), TARGET)
    places = [n.place for n in walk(placed.body) if isinstance(n, Allocate) and n.buffer.scope == "shared"]
    assert places == [Place("shared", 0), Place("shared", 16), Place("shared", 0), Place("shared", 16)]


@pytest.mark.parametrize("block", [(16,), (12,), (64, 2), (4, 16)])
def test_tuples(block):
    """All values are combined before any is stored."""
    count = prod(block)
    X, Y, Z = Buffer("X", (count,)), Buffer("Y", (count,), "int32"), Buffer("Z", (count,))
    I, V = Buffer("I", (1,), "int32", "local"), Buffer("V", (1,), "float32", "local")
    how = first_largest()

    def body(v):
        here = one_number([(v[f"threadIdx.{letter}"], extent) for letter, extent in zip("xy", block, strict=False)])
        reduce = AllReduce((get(I, 0), get(V, 0)), (v["threadIdx.x"], get(X, here)), how, ("threadIdx.x",))
        first = [Store(b, (as_expr(0),), e) for b, e in zip((I, V), how.identity, strict=True)]
        return seq(*first, reduce, Store(Y, (here,), get(I, 0)), Store(Z, (here,), get(V, 0)))

    func = lowered(kernel("largest", [X, Y, Z], [Y, Z], body, dict(zip("xy", block, strict=False)), local=[I, V]))
    x = np.random.default_rng(2).integers(0, 5, block[::-1]).astype("f")
    y, z = np.zeros(count, "int32"), np.zeros(count, "f")
    interpret(func, [x, y, z], threads="barriers", seed=3)
    np.testing.assert_array_equal(y.reshape(x.shape), np.broadcast_to(x.argmax(-1)[..., None], x.shape))
    np.testing.assert_array_equal(z.reshape(x.shape), np.broadcast_to(x.max(-1)[..., None], x.shape))


def test_shuffles_need_threads():
    func = lowered(reducing((8,), "x"))
    with pytest.raises(TilewrightError, match=r"lanes of a warp exchange values.*threads='barriers'"):
        interpret(func, [np.zeros((1, 8), "f"), np.zeros(8, "f")])
