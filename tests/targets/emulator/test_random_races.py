"""Random kernels whose warps meet whole or in part, under check="race" against an oracle: vector clocks of every thread, every pair of accesses.

A kernel is a list of statements that all threads run: accesses under conditions, barriers, warp functions of all or some lanes. The checker keeps a few records
of each place where the oracle keeps all accesses, so they must agree on whether there is a race and in which arrays.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.targets.emulator import Program

THREADS, BLOCKS, PLACES = 64, 2, 48
KERNELS = 24  # of one compilation


@dataclass(frozen=True)
class Access:
    kind: str  # read, write, atomic
    array: str  # s: shared, g: global
    index: tuple[int, int, int]  # (a * t + b + c * block) % PLACES
    condition: tuple[str, int]  # all, below k, only k, every k-th

    def runs(self, thread):
        name, k = self.condition
        return {"all": True, "below": thread < k, "only": thread == k, "every": thread % max(1, k) == 0}[name]

    def place(self, thread, block):
        a, b, c = self.index
        return (a * thread + b + c * block) % PLACES

    def text(self):
        name, k = self.condition
        condition = {"all": "true", "below": f"t < {k}", "only": f"t == {k}", "every": f"t % {max(1, k)} == 0"}[name]
        a, b, c = self.index
        place = f"{self.array}[({a} * t + {b} + {c} * blockIdx.x) % {PLACES}]"
        what = {"read": f"sum += {place};", "write": f"{place} = t;", "atomic": f"atomicAdd((int*)&{place}, 1);"}[self.kind]
        return f"if ({condition}) {what}"


SYNCS = {  # name -> text, and which lanes of a warp meet
    "block": ("__syncthreads();", None),
    "warp": ("__syncwarp();", [range(32)]),
    "vote": ("sum += __ballot_sync(0xffffffffu, t & 1);", [range(32)]),
    "halves": ("if (lane < 16) __syncwarp(0xffffu); else __syncwarp(0xffff0000u);", [range(16), range(16, 32)]),
    "eight": ("if (lane < 8) __syncwarp(0xffu);", [range(8)]),
    "odd": ("if (lane % 2) sum += __shfl_sync(0xaaaaaaaau, t, 1);", [range(1, 32, 2)]),
}


def random_kernel(rng):
    statements = []
    for _ in range(rng.randint(3, 10)):
        if rng.random() < 0.45:
            statements.append(rng.choice(list(SYNCS)))
            continue
        index = (rng.choice([0, 0, 1, 1, 1, 2, 3]), rng.randrange(8), rng.choice([0, 24]))
        condition = rng.choice(
            [("all", 0), ("below", rng.randint(1, 63)), ("only", rng.randrange(64)), ("only", rng.randrange(4)), ("every", rng.randint(2, 9))]
        )
        statements.append(Access(rng.choice(["read", "read", "write", "write", "atomic"]), rng.choice("ssg"), index, condition))
    return statements


def text_of(number, statements):
    body = "\n".join(f"  {SYNCS[one][0] if isinstance(one, str) else one.text()}" for one in statements)
    return f"""__global__ void k{number}(int* g_, int* out) {{
  __shared__ volatile int s[{PLACES}]; volatile int* g = g_;
  int t = threadIdx.x, lane = t % 32, sum = 0;
  if (t < {PLACES}) s[t] = 0;
  __syncthreads();
{body}
  out[blockIdx.x * {THREADS} + t] = sum + lane;
}}"""


def racing_arrays(statements):
    """The oracle."""
    found = set()
    history = {}  # (array, block or None, place) -> [(kind, block, thread, its clock)]
    for block in range(BLOCKS):
        clocks = np.eye(THREADS, dtype=int)  # clocks[t][u]: what t knows of u
        for one in statements:
            if isinstance(one, str):
                groups = (
                    [range(THREADS)]
                    if SYNCS[one][1] is None
                    else [[32 * warp + lane for lane in lanes] for warp in range(THREADS // 32) for lanes in SYNCS[one][1]]
                )
                for group in groups:
                    clocks[list(group)] = clocks[list(group)].max(axis=0)
                    for thread in group:
                        clocks[thread][thread] += 1
                continue
            for thread in filter(one.runs, range(THREADS)):
                accesses = history.setdefault((one.array, block if one.array == "s" else None, one.place(thread, block)), [])
                for kind, other_block, other, clock in accesses:
                    harmless = (kind == one.kind == "read") or (kind == one.kind == "atomic") or (other_block, other) == (block, thread)
                    if not harmless and (other_block != block or clocks[thread][other] < clock):
                        found.add(one.array)
                accesses.append((one.kind, block, thread, clocks[thread][thread]))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_random_kernels(seed):
    rng = random.Random(seed)
    kernels = [random_kernel(rng) for _ in range(KERNELS)]
    source = "\n".join(text_of(number, statements) for number, statements in enumerate(kernels))
    program = Program(source, check="race")
    racy = 0
    for number, statements in enumerate(kernels):
        program.clear_report()
        program.launch(f"k{number}", BLOCKS, THREADS, 0, [np.zeros(PLACES, "int32"), np.zeros(BLOCKS * THREADS, "int32")], threads=1 + number % 2)
        report = program.report
        expected = racing_arrays(statements)
        said = {"s" if race.buffer == "s" else "g" for race in report.races}
        assert said == expected, f"seed {seed}, kernel {number}: oracle {expected}, report:\n{report}\n{text_of(number, statements)}"
        assert report.out_of_bounds == report.uninitialised == report.divergence == report.not_judged == []
        racy += bool(expected)
    assert 0 < racy < KERNELS, "random kernels of one kind only prove little"
