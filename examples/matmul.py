"""From an expression to a fast matrix product, step by step: C[M, N] = A[M, K] B[K, N].

    python examples/matmul.py [--size 1024] [--threads 2] [--brief]

Each step shows what was added to the schedule, the loops that come of it, and the speed. docs/tutorial.md tells the story.
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import compare, report

import tilewright as tw
from tilewright import te


def declare(M, N, K):
    """The product, and its reduce axis."""
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


def declare_packed(M, N, K, lanes):
    """The product over panels of B: `Bp[j // lanes, k, j % lanes]` is B[k, j], so that the inner loop reads memory in order."""
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    panels = -(-N // lanes)
    Bp = te.compute((panels, K, lanes), lambda p, k, j: te.if_then_else(p * lanes + j < N, B[k, p * lanes + j], 0.0), name="Bp")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * Bp[j // lanes, k, j % lanes], axis=k), name="C")
    return A, B, Bp, C


def naive(M, N, K):
    """1. The expression as it stands: three loops, one product at a time."""
    A, B, C = declare(M, N, K)
    return te.create_schedule(C.op), [A, B, C]


def vectorized(M, N, K):
    """2. Put the loop over j inside and make its iterations lanes of vectors."""
    A, B, C = declare(M, N, K)
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    jo, ji = s[C].split(j, factor=16)
    s[C].reorder(i, jo, k, ji)
    s[C].vectorize(ji)
    return s, [A, B, C]


def register_tile(M, N, K):
    """3. Compute a tile of 6 x 16 in registers: each element of A and B that is loaded is used many times."""
    A, B, C = declare(M, N, K)
    s = te.create_schedule(C.op)
    tile_in_registers(s, C)
    return s, [A, B, C]


def packed(M, N, K):
    """4. Copy B into panels first, so that the inner loop walks through memory."""
    A, B, Bp, C = declare_packed(M, N, K, 16)
    s = te.create_schedule(C.op)
    tile_in_registers(s, C)
    s[Bp].vectorize(Bp.op.axis[2])
    return s, [A, B, C]


def parallel(M, N, K, threads):
    """5. Give each thread the same number of blocks of rows."""
    A, B, Bp, C = declare_packed(M, N, K, 16)
    s = te.create_schedule(C.op)
    tiles = -(-M // 6)
    blocks = threads * max(1, round(tiles / threads / 8))  # about 8 tiles of 6 rows each: 48 rows of A stay in the second-level cache
    rows = 6 * -(-tiles // blocks)
    block, _ = tile_in_registers(s, C, rows)
    s[C].parallel(block)
    s[Bp].parallel(Bp.op.axis[0])
    s[Bp].vectorize(Bp.op.axis[2])
    return s, [A, B, C]


def tile_in_registers(s, C, rows=48, columns=16):
    """Blocks of `rows` x 16; in them tiles of 6 x 16 that are summed up in registers and then stored."""
    CL = s.cache_write(C, "local")
    i, j = s[C].op.axis
    block, jo, ii, ji = s[C].tile(i, j, rows, columns)
    io, iv = s[C].split(ii, factor=6)
    s[C].reorder(block, jo, io, iv, ji)
    s[C].vectorize(ji)
    s[CL].compute_at(s[C], io)
    ci, cj = s[CL].op.axis
    (k,) = s[CL].op.reduce_axis
    s[CL].reorder(k, ci, cj)
    s[CL].vectorize(cj)
    s[CL].unroll(ci)
    return block, jo


def main():
    """Runs the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=tw.Target("c").threads)
    parser.add_argument("--brief", action="store_true", help="speeds only, no loops")
    parser.add_argument("--rounds", type=int, default=5, help="how often the contenders take turns")
    options = parser.parse_args()
    M = N = K = options.size
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K)).astype("float32"), rng.standard_normal((K, N)).astype("float32")
    expected = a @ b
    target = tw.Target("c", threads=options.threads)
    steps = [naive, vectorized, register_tile, packed, lambda *sizes: parallel(*sizes, options.threads)]
    kernels = {}
    for step in steps:
        title = (step.__doc__ or parallel.__doc__).strip()
        print(f"\n{title}\n")
        s, args = step(M, N, K)
        if not options.brief:
            print(s.as_python())
            print(tw.lower(s, args, target=target))
        mod = tw.build(s, args, target=target)
        c = np.full((M, N), np.nan, "float32")
        mod(a, b, c)
        np.testing.assert_allclose(c, expected, rtol=1e-3, atol=1e-3 * K**0.5)
        seconds = mod.time_evaluator(repeat=3, min_repeat_ms=20)(a, b, c).median
        print(f"  {seconds * 1e3:.3f} ms, {2 * M * N * K / seconds / 1e9:.1f} GFLOP/s")
        kernels[title[:2]] = (mod, c)

    mod, c = kernels["5."]
    d = np.empty_like(expected)
    print("\nBeside NumPy, in turn:")
    print(report(compare({"numpy": lambda: np.matmul(a, b, out=d), "tilewright": lambda: mod(a, b, c)}, options.rounds), 2 * M * N * K))


if __name__ == "__main__":
    main()
