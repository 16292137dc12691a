"""Random kernels with barriers and accesses by random index maps: the emulator's verdict against a plain account of what happens before what.

In these kernels every thread takes every barrier and every __syncwarp, so two accesses at positions i < j of the program are ordered if one
thread makes both, if a barrier lies between, or if a __syncwarp does and the threads share a warp; accesses of different blocks never are.
A race: two accesses of one word that are not ordered, not both reads, not both atomic.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass

import numpy as np
import pytest

from tilewright.targets.emulator import Program

WORDS = 96  # of the shared array, and of the global one
KERNELS = 24  # in one source, which is compiled once


@dataclass
class Statement:
    """A line of the kernel. `index` and `condition` are Python and C++ at once: functions of i (thread), b (block) and t (loop variable)."""

    kind: str  # "barrier", "warp", "write", "read", "atomic"
    array: str = ""
    index: str = "0"
    condition: str = "1"
    line: int = 0

    def text(self) -> str:
        if self.kind == "barrier":
            return "__syncthreads();"
        if self.kind == "warp":
            return "__syncwarp();"
        word = f"{self.array}[({self.index}) % {WORDS}]"
        action = {"write": f"{word} = sum;", "read": f"sum += {word};", "atomic": f"atomicAdd(&{word}, 1);"}[self.kind]
        return action if self.condition == "1" else f"if ({self.condition}) {action}"


@dataclass
class Kernel:
    """Statements, some of them in a loop of `trips`, with the numbers of threads and blocks it is launched with."""

    parts: list[tuple[int, list[Statement]]]  # trips, body
    threads: int
    blocks: int
    initialised: bool
    workers: int  # threads of the emulator that run the blocks

    def source(self, name: str, first_line: int) -> str:
        lines = [f'extern "C" __global__ void {name}(int *g, int *out) {{', f"  __shared__ int s[{WORDS}];", "  int i = threadIdx.x, b = blockIdx.x, sum = 0;"]
        if self.initialised:
            lines += [f"  for (int j = i; j < {WORDS}; j += {self.threads}) s[j] = j;", "  __syncthreads();"]
        for trips, body in self.parts:
            if trips > 1:
                lines.append(f"  for (int t = 0; t < {trips}; ++t) {{")
            for statement in body:
                statement.line = first_line + len(lines)
                lines.append("  " + statement.text())
            if trips > 1:
                lines.append("  }")
        return "\n".join([*lines, f"  out[b * {self.threads} + i] = sum;", "}", ""])


def index_map(rng: random.Random, looped: bool) -> str:
    c = rng.randrange(1, 40)
    maps = [
        "i",
        f"i + {c}",
        f"i * {rng.randrange(2, 5)} + {c}",
        f"i ^ {c}",
        f"i / {rng.randrange(2, 9)}",
        str(c),
        f"{WORDS - 1} - i % {WORDS}",
        f"i + 32 * b + {c}",
    ]
    if looped:
        maps += [f"i + {c} * t", "i / 32 * 32 + (i + t) % 32", "i * 2 + t"]
    return rng.choice(maps)


def condition(rng: random.Random) -> str:
    c = rng.randrange(1, 40)
    return rng.choice(["1", "1", "1", f"i < {c}", f"i >= {c}", f"i % {rng.randrange(2, 5)} == 0", f"i == {c}", "b == 0"])


def access(rng: random.Random, looped: bool) -> Statement:
    kind = rng.choice(["write", "write", "read", "read", "read", "atomic"])
    return Statement(kind, rng.choice("sssg"), index_map(rng, looped), condition(rng))


def random_kernel(rng: random.Random) -> Kernel:
    """Often a barrier too many rather than one too few, else nearly every kernel would have a race."""
    parts = []
    for _ in range(rng.randrange(1, 4)):
        trips = rng.choice([1, 1, 2, 3])
        body = []
        for _ in range(rng.randrange(1, 4)):
            body.append(access(rng, trips > 1))
            if rng.random() < 0.75:
                body.append(Statement(rng.choice(["barrier", "barrier", "barrier", "warp"])))
        parts.append((trips, body))
    return Kernel(parts, rng.choice([32, 64, 80]), rng.choice([1, 1, 2]), rng.random() < 0.85, rng.choice([1, 2]))


@dataclass(frozen=True)
class Access:
    block: int
    thread: int
    position: int
    kind: str
    line: int


def oracle(kernel: Kernel) -> tuple[dict[str, set[frozenset[int]]], bool]:
    """Racing pairs of lines of each array; and whether some word of s is read before any write of it that happens before (if there is no race)."""
    by_word: dict[tuple[str, int, int], list[Access]] = {}
    position, barriers, warp_syncs = 0, [], []
    for trips, body in kernel.parts:
        for t in range(trips):
            for statement in body:
                position += 1
                if statement.kind in ("barrier", "warp"):
                    (barriers if statement.kind == "barrier" else warp_syncs).append(position)
                    continue
                condition, index = (compile(text.replace("/", "//"), "map", "eval") for text in (statement.condition, statement.index))
                for b, i in itertools.product(range(kernel.blocks), range(kernel.threads)):
                    names = {"i": i, "b": b, "t": t}
                    if eval(condition, names):
                        word = statement.array, eval(index, names) % WORDS, b if statement.array == "s" else -1
                        by_word.setdefault(word, []).append(Access(b, i, position, statement.kind, statement.line))
    counts = [0] * (position + 2), [0] * (position + 2)
    for count, positions in zip(counts, (barriers, barriers + warp_syncs), strict=True):
        for p in range(1, position + 2):
            count[p] = count[p - 1] + positions.count(p)

    def ordered(x: Access, y: Access) -> bool:
        if x.block != y.block:
            return False
        if x.thread == y.thread:
            return True
        count = counts[1] if x.thread // 32 == y.thread // 32 else counts[0]
        return count[x.position] != count[y.position]

    races: dict[str, set[frozenset[int]]] = {}
    uninitialised = False
    for (array, _, _), accesses in by_word.items():
        for x, y in itertools.combinations(accesses, 2):
            kinds = {x.kind, y.kind}
            if kinds not in ({"read"}, {"atomic"}) and not ordered(x, y):
                races.setdefault(array, set()).add(frozenset((x.line, y.line)))
        if array == "s" and not kernel.initialised:
            first = min((a.position for a in accesses if a.kind == "write"), default=position + 1)
            uninitialised |= any(a.kind != "write" and a.position < first for a in accesses)
    return races, uninitialised


def results(kernel: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel without races leaves in g and out: statement by statement, thread by thread."""
    g, sums = [0] * WORDS, {}
    for b in range(kernel.blocks):
        memory = {"s": list(range(WORDS)), "g": g}
        mine = [0] * kernel.threads
        for trips, body in kernel.parts:
            for t, statement, i in itertools.product(range(trips), body, range(kernel.threads)):
                names = {"i": i, "b": b, "t": t}
                if statement.kind in ("barrier", "warp") or not eval(statement.condition.replace("/", "//"), names):
                    continue
                array, word = memory[statement.array], eval(statement.index.replace("/", "//"), names) % WORDS
                if statement.kind == "read":
                    mine[i] += array[word]
                else:
                    array[word] = mine[i] if statement.kind == "write" else array[word] + 1
        sums[b] = mine
    wrapped = [np.array(values, dtype=object) % 2**32 for values in (g, [value for b in range(kernel.blocks) for value in sums[b]])]
    return wrapped[0].astype(np.uint32).view(np.int32), wrapped[1].astype(np.uint32).view(np.int32)


def check(program: Program, kernel: Kernel, source: str, name: str, label: str) -> None:
    races, uninitialised = oracle(kernel)
    g, out = np.zeros(WORDS, np.int32), np.zeros(kernel.blocks * kernel.threads, np.int32)
    program.clear_report()
    program.launch(name, kernel.blocks, kernel.threads, 0, [g, out], threads=kernel.workers)
    report = program.report
    text = "\n".join(
        f"{n:4} {line}" for n, line in enumerate(source.splitlines(), 1) if name in line or any(n == s.line for _, body in kernel.parts for s in body)
    )
    about = (
        f"{label}, {kernel.threads} threads, {kernel.blocks} blocks, {kernel.workers} workers\n{text}\n"
        f"expected {races}, uninitialised {uninitialised}\nfound {report}"
    )
    assert report.out_of_bounds == report.divergence == [], about
    found = list(map(str, report.races))
    for array in "sg":
        entries = [entry for entry in found if re.search(rf"(?<!\w){array}(?!\w)", entry)]
        assert bool(entries) == (array in races), about
        for entry in entries:  # the lines that it names (it may not know one) race with each other
            lines = set(map(int, re.findall(r"(?<=line )\d+", entry)))
            assert any(lines == pair or (lines < pair and "unknown line" in entry) for pair in races[array]), (entry, about)
    if not races:
        assert bool(report.uninitialised) == uninitialised, about
        if not uninitialised:
            for found_values, expected in zip((g, out), results(kernel), strict=True):
                np.testing.assert_array_equal(found_values, expected, about)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_verdicts_are_those_of_happens_before(seed):
    rng = random.Random(seed)
    kernels, source = [], ""
    for n in range(KERNELS):
        kernel = random_kernel(rng)
        source += kernel.source(f"k{n}", source.count("\n") + 1)
        kernels.append(kernel)
    verdicts = [bool(oracle(kernel)[0]) for kernel in kernels]
    assert 3 <= sum(verdicts) <= KERNELS - 3, "kernels that all race, or never, test little"
    program = Program(source, check="race")
    for n, kernel in enumerate(kernels):
        check(program, kernel, source, f"k{n}", f"seed {seed}, kernel {n}")
