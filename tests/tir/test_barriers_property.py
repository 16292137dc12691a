"""Random programs of threads with shared memory: with the barriers that the pass puts in, any order of the threads gives what going through them
statement by statement gives; and without any single one of them two threads would meet at an element."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilewright.tir import barrier_plan, interp_support
from tilewright.tir.expr import Buffer, add, as_expr, const, eq, floormod, lt, mul, sub
from tilewright.tir.interp import compiled
from tilewright.tir.passes.barriers import Barriers
from tilewright.tir.stmt import If, Stmt, Store, Sync, seq
from tilewright.tir.target import Target
from tilewright.tir.verify import check_closed, check_synced, check_threads_bound
from tilewright.tir.visit import StatementRewriter, walk
from tilewright.tir.witness import out_of_bounds

from .threads import get, kernel, loop

TARGET = Target("cuda", device="emulator")
SHAPES = ((8, 1), (6, 1), (4, 2), (3, 4))


class _Program:
    """One random kernel. `where`: the number of this thread in its block, from 0 to `count` - 1."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.x, self.y = rng.choice(SHAPES)
        self.count = self.x * self.y
        self.A, self.C = Buffer("A", (self.count,)), Buffer("C", (self.count,))
        self.shared = [Buffer(name, (2, self.count), "float32", "shared") for name in ("S", "T")]
        self.local = Buffer("L", (1,), "float32", "local")
        self.loops: list = []
        self.func = kernel("k", [self.A, self.C], [self.C], self.body, {"x": self.x, "y": self.y}, shared=self.shared, local=[self.local])

    def body(self, v):
        self.threads = v
        self.where = add(mul(v["threadIdx.y"], as_expr(self.x)), v["threadIdx.x"])
        first = [Store(s, (as_expr(half), self.where), get(self.A, self.where)) for s in self.shared for half in (0, 1)]
        return seq(*first, Store(self.local, (as_expr(0),), const(1.0, "float32")), self.block(0), Store(self.C, (self.where,), get(self.local, 0)))

    def block(self, depth: int) -> Stmt:
        return seq(*[self.statement(depth) for _ in range(self.rng.randint(1, 4))])

    def statement(self, depth: int) -> Stmt:
        kind = self.rng.random()
        if kind < 0.25 and depth < 2:
            return loop(f"k{depth}", self.rng.randint(1, 3), lambda k: self.inside(k, depth))
        if kind < 0.33 and self.loops:
            return If(eq(self.rng.choice(self.loops), as_expr(0)), self.block(2))
        if kind < 0.65:
            target, source = self.rng.sample(self.shared, 2)  # two: threads that meet within one statement are nobody's to keep apart
            return self.guarded(Store(target, (self.half(), self.place()), self.value(source)))
        return Store(self.local, (as_expr(0),), self.value(self.rng.choice(self.shared)))

    def inside(self, k, depth):
        self.loops.append(k)
        found = self.block(depth + 1)
        self.loops.pop()
        return found

    def guarded(self, s: Stmt) -> Stmt:
        kind = self.rng.random()
        if kind < 0.15:
            return If(eq(self.threads["threadIdx.x"], as_expr(0)), s)
        return If(lt(self.where, as_expr(self.rng.randint(1, self.count))), s) if kind < 0.3 else s

    def half(self):
        """One of the two halves of a buffer; often the one whose turn it is."""
        if self.loops and self.rng.random() < 0.6:
            return floormod(add(self.rng.choice(self.loops), as_expr(self.rng.randint(0, 1))), as_expr(2))
        return as_expr(self.rng.randint(0, 1))

    def place(self):
        """A different one for each thread."""
        forward, backward = self.where, sub(as_expr(self.count - 1), self.where)
        return self.rng.choice((forward, forward, forward, backward, floormod(add(self.where, as_expr(1)), as_expr(self.count))))

    def value(self, source):
        half = const(0.5, "float32")
        read = get(source, self.half(), self.place() if self.rng.random() < 0.8 else self.rng.randrange(self.count))
        return add(mul(read, half), get(self.local, 0))


class _Without(StatementRewriter):
    """One barrier taken out."""

    def __init__(self, gone: Sync):
        super().__init__()
        self.gone = gone

    def rewrite_Sync(self, node: Sync) -> Stmt:
        return seq() if node is self.gone else node


def outputs(func, program, threads, seed):
    rng = np.random.default_rng(1)
    a, c = rng.standard_normal(program.count).astype("f"), np.zeros(program.count, "f")
    compiled(func, threads)([a, c], seed=seed)
    return c


@pytest.mark.parametrize("warp", [32, 4])  # of 32 threads the blocks are one
@pytest.mark.parametrize("seed", range(40))
def test_right_and_needed(seed, warp, monkeypatch):
    monkeypatch.setattr(barrier_plan, "WARP_SIZE", warp)
    monkeypatch.setattr(interp_support, "_WARP", warp)
    program = _Program(random.Random(seed))
    func = program.func
    assert not [*check_closed(func), *check_threads_bound(func), *out_of_bounds(func)], f"seed {seed}"
    done = Barriers().run(func, TARGET)
    want = outputs(func, program, "steps", 0)
    for order in range(3):
        np.testing.assert_array_equal(outputs(done, program, "barriers", order), want, err_msg=f"seed {seed}\n{done}")
    assert check_synced(done) == [], f"seed {seed}\n{done}"
    for each in [n for n in walk(done.body) if isinstance(n, Sync)]:
        rest = done.with_body(_Without(each).rewrite_statement(done.body))
        assert check_synced(rest), f"seed {seed}: a barrier that nothing needs in\n{done}\nwithout it\n{rest}"


def test_most_programs_need_barriers():
    """Or the test above would prove little."""
    counts = [str(Barriers().run(_Program(random.Random(seed)).func, TARGET)).count("sync block") for seed in range(40)]
    assert sum(counts) > 60 and counts.count(0) < 10
