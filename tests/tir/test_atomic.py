"""Atomic updates in the IR: what they print and mean, which accesses they may meet without a barrier, and that no pass reads past them or drops them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tir.errors import ScheduleError
from tilewright.tir.expr import Buffer, Expr, Var, as_expr, cast, const, load, lt
from tilewright.tir.interp import interpret
from tilewright.tir.passes.barriers import Barriers
from tilewright.tir.passes.blocks import Blocks
from tilewright.tir.passes.flatten import Flatten
from tilewright.tir.passes.hoist import Hoist
from tilewright.tir.passes.simplify import Simplify
from tilewright.tir.passes.vectorize import Vectorize
from tilewright.tir.stmt import Atomic, For, Func, If, Store, seq
from tilewright.tir.target import Target
from tilewright.tir.verify import FACTS, check_synced
from tilewright.tir.witness import out_of_bounds, races

from .threads import get, kernel, loop

TARGET = Target("cuda", device="emulator")
A, C = Buffer("A", (64,), "int32"), Buffer("C", (64,), "int32")
S = Buffer("S", (64,), "int32", "shared")
ONE = const(1, "int32")


def put(buffer, index, value):
    return Store(buffer, (as_expr(index),), value)


def update(buffer, index, value, operation="add", along=()):
    return Atomic(load(buffer, [as_expr(index)]), value, operation, along)


def serial(body, params=(A, C)):
    return Func("f", params, frozenset([params[-1]]), body)


def test_text():
    i = Var("i", "int32", (0, 63))
    assert str(update(C, i, get(A, i))) == "atomic C[i] += A[i]"
    assert str(update(C, i, get(A, i), "max")) == "atomic C[i] = max(C[i], A[i])"


@pytest.mark.parametrize(("operation", "combine"), [("add", np.add), ("min", np.minimum), ("max", np.maximum)])
@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "float16", "float32"])
def test_meaning(operation, combine, kind):
    X, Y = Buffer("X", (64,), kind), Buffer("Y", (4,), kind)
    func = serial(loop("i", 64, lambda i: update(Y, i % 4, get(X, i), operation)), (X, Y))
    x = np.random.default_rng(0).integers(0, 9, 64).astype(kind)
    y = np.full(4, 5, kind)
    want = y.copy()
    for i in range(64):
        want[i % 4] = combine(want[i % 4], x[i])
    interpret(func, [x, y])
    np.testing.assert_array_equal(y, want)


def test_integers_wrap():
    y = np.array([(1 << 31) - 1], "int32")
    Y = Buffer("Y", (1,), "int32")
    interpret(serial(update(Y, 0, ONE), (Y,)), [y])
    assert y[0] == -(1 << 31)


def counted(body, shared=(S,)):
    return kernel("k", [A, C], [C], lambda v: body(v["threadIdx.x"]), {"x": 64}, shared=shared)


def test_updates_need_a_barrier_before_and_after_them_but_not_between():
    along = ("threadIdx.x",)
    func = counted(
        lambda t: seq(
            put(S, t, const(0, "int32")),
            update(S, get(A, t) % 64, ONE, along=along),
            update(S, t * 3 % 64, ONE, along=along),
            put(C, t, get(S, t)),
        )
    )
    done = Barriers().run(func, TARGET)
    assert str(done).count("sync block") == 2 and check_synced(done) == []
    text = str(done)
    assert text.index("sync") < text.index("atomic") < text.rindex("atomic") < text.rindex("sync")
    a, c = np.random.default_rng(1).integers(0, 64, 64).astype("int32"), np.zeros(64, "int32")
    interpret(done, [a, c], threads="barriers", seed=2)
    np.testing.assert_array_equal(c, np.bincount(a, minlength=64) + np.bincount(np.arange(64) * 3 % 64, minlength=64))


def test_a_missing_barrier_is_seen():
    func = counted(lambda t: seq(update(S, 63 - t, ONE, along=("threadIdx.x",)), put(C, t, get(S, t))))
    assert any("S[" in problem for problem in check_synced(func))


def test_blocks_may_all_update_but_not_what_others_read_or_write():
    def of_blocks(body):
        return kernel("k", [A, C], [C], lambda v: body(v["blockIdx.x"], v["threadIdx.x"]), {"x": 8}, {"x": 8})

    along = ("blockIdx.x",)
    assert Blocks().run(func := of_blocks(lambda b, t: update(C, t, ONE, along=along)), TARGET) is func
    for wrong in (
        of_blocks(lambda b, t: seq(update(C, t, ONE, along=along), put(A, b * 8 + t, get(C, t)))),
        of_blocks(lambda b, t: seq(update(C, t, ONE, along=along), put(C, b, ONE))),
    ):
        with pytest.raises(ScheduleError, match=r"C\[.*another block writes elements"):
            Blocks().run(wrong, TARGET)


def test_nothing_is_read_before_an_update_that_changes_it():
    func = serial(loop("i", 8, lambda i: seq(update(C, 0, ONE), put(A, i, get(C, 0)))))
    text = str(Hoist().run(func, TARGET))
    assert text.index("atomic") < text.index("C[0]", text.index("A[")) and "C_value" not in text


def test_what_is_added_may_be_computed_once():
    """A value that does not change leaves the loop; the updates stay, every one of them."""
    func = serial(loop("i", 8, lambda i: update(C, 0, get(A, 3))))
    done = Hoist().run(func, TARGET)
    assert str(done).index("A_value = A[3]") < str(done).index("for i")
    a, c = np.arange(64, dtype="int32"), np.zeros(64, "int32")
    interpret(Simplify().run(done, TARGET), [a, c])
    assert c[0] == 24


def test_there_are_no_vectors_of_updates():
    func = serial(loop("i", 8, lambda i: update(C, i, get(A, i)), "vectorized"))
    done = Vectorize().run(Flatten().run(func, TARGET), TARGET)
    assert "for i in range(8)" in str(done) and "ramp" not in str(done)


def test_conditions_stay_around_them():
    func = serial(loop("i", 64, lambda i: If(lt(get(A, i), const(3, "int32")), update(C, get(A, i), ONE))))
    a, c = np.arange(64, dtype="int32"), np.zeros(64, "int32")
    interpret(Simplify().run(func, TARGET), [a, c])
    assert c.sum() == 3


def test_parallel_loops_race_with_plain_accesses_only():
    def parallel(body):
        i = Var("i", "int32", (0, 63))
        return serial(For(i, const(64), "parallel", body(i)))

    assert races(parallel(lambda i: update(C, 0, get(A, i)))) == []
    assert races(parallel(lambda i: seq(update(C, 0, get(A, i)), put(C, 0, ONE)))) != []


def test_facts():
    i = Var("i", "int32", (0, 63))
    inside = For(i, const(64), "serial", update(C, i + 1, ONE))
    assert any("C[" in problem for problem in out_of_bounds(serial(inside)))
    wrong: Expr = cast(get(A, i), const(0, "int64").dtype)
    assert any("atomic update" in problem for problem in FACTS["typed"].check(serial(For(i, const(64), "serial", update(C, i, wrong)))))
    other = Buffer("Z", (4,), "int32")
    assert any("Z" in problem for problem in FACTS["closed"].check(serial(update(other, 0, ONE))))
