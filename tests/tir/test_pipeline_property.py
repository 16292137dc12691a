"""Random functions keep their values through every pass, and every fact that a pass claims holds: the oracle that other tests rely on.

More of it: `python tests/tir/test_pipeline_property.py FIRST COUNT`; one function, pass by pass, in a folder: `... FIRST 1 FOLDER`.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path, without packages

from random_functions import random_function

from tilewright.tir.dtype import dtype
from tilewright.tir.errors import InternalError
from tilewright.tir.expr import Const, IfThenElse, Load, Select, add, cast, const, load, minimum
from tilewright.tir.passes import PASSES, Dump, Pass, Pipeline, Verify, pipeline_for
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Place, seq
from tilewright.tir.target import Target
from tilewright.tir.visit import Rewriter, walk

TARGET = Target("c", threads=2, vector_bytes=32)


def check(seed: int, *instruments) -> Func:
    return pipeline_for("c").run(random_function(seed), TARGET, [*instruments, Verify(3, seed)])


@pytest.mark.parametrize("seed", range(30))
def test_values_and_facts_survive_every_pass(seed):
    check(seed)


def test_the_functions_contain_what_passes_must_cope_with():
    seen: Counter[str] = Counter()
    for seed in range(100):
        func = random_function(seed)
        seen["symbolic size"] += bool(func.sizes)
        for node in walk(func.body):
            if isinstance(node, For):
                seen[node.kind] += 1
                seen["triangular"] += not isinstance(node.extent, Const) and any(n.name.startswith("i") for n in walk(node.extent) if hasattr(n, "name"))
            elif isinstance(node, (If, IfThenElse, Select, Bind)):
                seen[type(node).__name__] += 1
            elif isinstance(node, Allocate):
                seen[f"buffer in {node.buffer.scope}"] += 1
                seen["padded rows"] += node.buffer.strides is not None
            elif isinstance(node, Load):
                seen["gather"] += any(isinstance(n, Load) for i in node.indices for n in walk(i))
                seen["predicate"] += node.predicate is not None
                seen[node.dtype] += 1
    wanted = "serial parallel vectorized unrolled triangular If IfThenElse Select Bind gather predicate float32 int8 uint8 int64 bool float16 float64"
    missing = [what for what in [*wanted.split(), "symbolic size", "buffer in local", "buffer in global", "padded rows"] if seen[what] < 5]
    assert not missing, seen


# --- passes that are wrong, each in a way that a real one could be; the oracle must notice


@dataclass(frozen=True)
class Wrong(Pass):
    """Applies one rewriter."""

    name: ClassVar[str] = "wrong"
    rewriter: type[Rewriter]

    def run(self, func, target):
        body = self.rewriter().rewrite_statement(func.body)
        return Func(func.name, func.params, func.outputs, body, func.sizes, (1 << 16, 0))


class DropsGuards(Rewriter):
    def rewrite_If(self, node):
        return self.rewrite_statement(node.then)


class DropsLastIteration(Rewriter):
    def rewrite_For(self, node):
        changed = self.rewrite_children(node)
        return For(changed.var, const(node.extent.value - 1), *_rest(changed)) if isinstance(node.extent, Const) and node.extent.value > 3 else changed


class ReversesStatements(Rewriter):
    def rewrite_Seq(self, node):
        return seq(*[self.rewrite_statement(s) for s in reversed(node.body)])


class ShiftsLoads(Rewriter):
    def rewrite_Load(self, node):
        changed = self.rewrite_children(node)
        if len(node.buffer.shape) != 1 or not isinstance(node.buffer.shape[0], int):
            return changed
        return load(node.buffer, (add(changed.indices[0], const(1)) % node.buffer.shape[0],), changed.predicate)


class ForgetsLaziness(Rewriter):
    def rewrite_IfThenElse(self, node):
        return Select.make(*[self.rewrite(c) for c in node.children])


class Saturates(Rewriter):
    def rewrite_Add(self, node):
        changed = self.rewrite_children(node)
        if node.exact or node.dtype.is_float or node.dtype.bits > 16:
            return changed
        wide = dtype("int32").vector(node.dtype.lanes)
        return cast(minimum(add(cast(changed.a, wide), cast(changed.b, wide)), const(node.dtype.high, wide)), node.dtype)


class MakesParallel(Rewriter):
    def rewrite_For(self, node):
        return For(node.var, node.extent, "parallel" if node.kind == "serial" else node.kind, self.rewrite_statement(node.body))


class SharesAllMemory(Rewriter):
    def rewrite_Allocate(self, node):
        return Allocate(node.buffer, self.rewrite_statement(node.body), Place("call", 0))


def _rest(loop):
    return loop.kind, loop.body, loop.thread, loop.pragmas


WRONG = (DropsGuards, DropsLastIteration, ReversesStatements, ShiftsLoads, ForgetsLaziness, Saturates, MakesParallel, SharesAllMemory)


@pytest.mark.parametrize("rewriter", WRONG)
def test_a_wrong_pass_is_noticed(rewriter):
    start = pipeline_for("c").start
    pipeline = Pipeline("wrong", start=start, passes=[PASSES["flatten"](), Wrong(rewriter)], end=start)
    noticed = 0
    for seed in range(60):
        try:
            pipeline.run(random_function(seed), TARGET, [Verify(3, seed)])
        except InternalError:  # also an access outside a buffer
            noticed += 1
        if noticed == 2:
            return
    pytest.fail(f"{rewriter.__name__} was noticed in {noticed} of 60 functions")


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    failed = []
    for number in range(first, first + count):
        try:
            check(number, *[Dump(folder) for folder in sys.argv[3:]])
        except Exception as error:
            failed.append(number)
            print(f"seed {number}: {type(error).__name__}: {str(error)[:400]}", flush=True)
    print(f"{len(failed)} of {count} failed: {failed}")
