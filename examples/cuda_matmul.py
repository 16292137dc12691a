"""A product of matrices for GPUs, from one thread an element to tensor cores, each step with what the emulator's memory report says. Needs no GPU.

    python examples/cuda_matmul.py            # 128 x 128 x 128
    python examples/cuda_matmul.py --source   # with the CUDA source of each step

docs/cuda_tutorial.md walks through the steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.autotune import default_schedule
from tilewright.te import library

EMULATOR = tw.Target("cuda", arch="sm_90", device="emulator")

Step = Callable[[int], tuple[tw.Schedule, list[Any]]]


def product(size: int) -> tuple[Any, Any, Any, Any]:
    """C[i, j] = sum over k of A[i, k] * B[k, j]."""
    A, B = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    return A, B, k, te.compute((size, size), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def along_columns(size: int) -> tuple[tw.Schedule, list[Any]]:
    """1. An element a thread, and neighbouring threads below one another: each reads and writes a line of its own."""
    return an_element_a_thread(size, "threadIdx.x", "threadIdx.y")


def along_rows(size: int) -> tuple[tw.Schedule, list[Any]]:
    """2. Neighbouring threads side by side: what they read of B and write of C are whole lines."""
    return an_element_a_thread(size, "threadIdx.y", "threadIdx.x")


def an_element_a_thread(size: int, of_rows: str, of_columns: str) -> tuple[tw.Schedule, list[Any]]:
    """Blocks of 16 x 16 elements; which index goes along rows and columns."""
    A, B, _, C = product(size)
    s = te.create_schedule(C.op)
    registers = s.cache_write(C, "local")
    io, jo, ii, ji = s[C].tile(*C.op.axis, 16, 16)
    s[C].bind(io, te.thread_axis("blockIdx.y"))
    s[C].bind(jo, te.thread_axis("blockIdx.x"))
    s[C].bind(ii, te.thread_axis((0, 16), of_rows))
    s[C].bind(ji, te.thread_axis((0, 16), of_columns))
    s[registers].compute_at(s[C], ji)
    return s, [A, B, C]


def shared_tiles(size: int, rows: int = 1, columns: int = 1) -> tuple[tw.Schedule, list[Any]]:
    """3. Tiles of A and B in shared memory: what a block reads from memory once serves all its threads."""
    A, B, k, C = product(size)
    s = te.create_schedule(C.op)
    a, b = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    registers = s.cache_write(C, "local")
    ty, tx = te.thread_axis((0, 16), "threadIdx.y"), te.thread_axis((0, 16), "threadIdx.x")
    io, jo, ii, ji = s[C].tile(*C.op.axis, 16 * rows, 16 * columns)
    thread_i, row = s[C].split(ii, factor=rows)
    thread_j, column = s[C].split(ji, factor=columns)
    s[C].reorder(io, jo, thread_i, thread_j, row, column)
    s[C].bind(io, te.thread_axis("blockIdx.y"))
    s[C].bind(jo, te.thread_axis("blockIdx.x"))
    s[C].bind(thread_i, ty)
    s[C].bind(thread_j, tx)
    if columns > 1:
        s[C].vectorize(column)
    s[registers].compute_at(s[C], thread_j)
    step, term = s[registers].split(k, factor=16)
    s[registers].reorder(step, term, *s[registers].op.axis)
    for tile in (a, b):
        s[tile].compute_at(s[registers], step)
        copies, here = s[tile].split(s[tile].fuse(*s[tile].op.axis), factor=16)
        s[tile].bind(here, tx)
        _, here = s[tile].split(copies, factor=16)
        s[tile].bind(here, ty)
    return s, [A, B, C]


def register_tiles(size: int) -> tuple[tw.Schedule, list[Any]]:
    """4. A tile of 4 x 4 elements a thread, in registers: 16 multiply-adds for 8 values read from shared memory, not 1 for 2."""
    return shared_tiles(size, 4, 4)


def default(size: int) -> tuple[tw.Schedule, list[Any]]:
    """5. The default schedule: 16 x 4 elements a thread, accesses of four elements, A turned round on the way."""
    op = library.matmul(size, size, size)
    return default_schedule(op, EMULATOR), op.args


def tensor_cores(size: int) -> tuple[tw.Schedule, list[Any]]:
    """6. float16 operands, float32 sums: warps multiply tiles of 16 x 16 at once."""
    op = library.matmul(size, size, size, dtype="float16", acc_dtype="float32")
    return default_schedule(op, EMULATOR), op.args


STEPS: tuple[Step, ...] = (along_columns, along_rows, shared_tiles, register_tiles, default, tensor_cores)


def report_on(step: Step, size: int, show_source: bool) -> None:
    """Builds a step, runs it with the memory check, compares it with NumPy and prints what it moved."""
    s, args = step(size)
    started = time.perf_counter()
    module = tw.build(s, args, target=EMULATOR, name=step.__name__, check="memory")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(str(t.dtype)) for t in args[:2])
    c = np.full((size, size), np.nan, str(args[2].dtype))
    module(a, b, c)
    np.testing.assert_allclose(c, a.astype("float64") @ b.astype("float64"), rtol=1e-3, atol=1e-3)
    moved = module.report.transactions
    sectors, ideal = sum(t.sectors for t in moved), sum(t.ideal for t in moved)
    terms = 2 * size**3 / (32 * sectors)
    print(f"{(step.__doc__ or '').splitlines()[0]}")
    print(f"   global memory: {sectors * 32 / 1e6:8.2f} MB in sectors of 32 bytes, {sectors / ideal:.2f} times the ideal; {terms:6.1f} operations a byte;")
    worst = module.report.max_bank_conflict
    conflicts = f"bank conflicts: {worst} ways at most" if worst > 1 else "no bank conflicts"
    print(f"   {conflicts}; built and emulated in {1e3 * (time.perf_counter() - started):.0f} ms")
    if show_source:
        print(module.get_source("cuda"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--source", action="store_true", help="print the CUDA source of each step")
    options = parser.parse_args()
    for step in STEPS:
        report_on(step, options.size, options.source)


if __name__ == "__main__":
    main()
