"""Three kernels that memory bounds, scheduled by hand: a depthwise 3x3 convolution, softmax over rows, sums of rows.

    python examples/rows.py [--show] [depthwise|softmax|sum ...]

Nothing here needs a register tile; what counts is that each element is read once, that lanes are used, and that both threads have work. With PyTorch
installed, its times are shown beside.
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import compare

import tilewright as tw
from tilewright import te


def partial_sums(s, T, lanes, at):
    """Reduce the rows of `T` in `lanes` partial results kept in registers, inside the loop `at`."""
    (k,) = s[T].op.reduce_axis
    _, ki = s[T].split(k, factor=lanes)
    part = s.rfactor(T, ki, factor_axis=1)
    row, lane = s[part].op.axis
    s[part].reorder(row, *s[part].op.reduce_axis, lane)
    s[part].vectorize(lane)
    s[part].set_scope("local")
    s[part].compute_at(s[T], at)


def torch_sum(torch, a):
    """PyTorch's sum into an existing array."""
    out = torch.empty(a.shape[0])
    return lambda: torch.sum(a, 1, out=out)


def torch_softmax(torch, a):
    """PyTorch's softmax into an existing array."""
    out = torch.empty(*a.shape)
    return lambda: torch.ops.aten._softmax.out(a, -1, False, out=out)


def row_sum(M=4096, N=1024):
    """S[i] = sum over k of A[i, k].

    Here only the pace at which the array arrives counts. A core's prefetchers follow each walk through memory on its own, so a thread walks through four
    blocks of rows side by side: one vector of partial sums for each.
    """
    A = te.placeholder((M, N), name="A")
    k = te.reduce_axis((0, N), name="k")
    S = te.compute((M,), lambda i: te.sum(A[i, k], axis=k), name="S")
    s = te.create_schedule(S.op)
    part = s.rfactor(S, s[S].split(k, factor=8)[1], factor_axis=1)
    rows, _ = s[S].split(S.op.axis[0], factor=4 * 256)
    s[S].parallel(rows)
    s[part].compute_at(s[S], rows)
    row, lane = s[part].op.axis
    walk, row = s[part].split(row, factor=256)
    s[part].reorder(row, *s[part].op.reduce_axis, walk, lane)
    s[part].unroll(walk)
    s[part].vectorize(lane)
    return s, [A, S], lambda a: a.sum(1, dtype="float64"), torch_sum


def softmax(M=4096, N=1024):
    """P[i, j] = exp(A[i, j] - m[i]) / z[i], a row at a time: it stays in the first-level cache."""
    A = te.placeholder((M, N), name="A")
    k, q = te.reduce_axis((0, N), name="k"), te.reduce_axis((0, N), name="q")
    m = te.compute((M,), lambda i: te.max(A[i, k], axis=k), name="m")
    E = te.compute((M, N), lambda i, j: te.exp(A[i, j] - m[i]), name="E")
    z = te.compute((M,), lambda i: te.sum(E[i, q], axis=q), name="z")
    w = te.compute((M,), lambda i: 1.0 / z[i], name="w")
    P = te.compute((M, N), lambda i, j: E[i, j] * w[i], name="P")
    s = te.create_schedule(P.op)
    rows, row = s[P].split(P.op.axis[0], factor=32)
    s[P].parallel(rows)
    s[P].vectorize(s[P].split(P.op.axis[1], factor=8)[1])
    for T in (w, z, E, m):
        s[T].compute_at(s[P], row)
    s[E].vectorize(s[E].split(E.op.axis[1], factor=8)[1])
    for T in (z, m):
        partial_sums(s, T, 32, T.op.axis[0])

    def reference(a):
        e = np.exp(a.astype("float64") - a.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return s, [A, P], reference, torch_softmax


def depthwise(C=32, H=112):
    """Y[c, y, x] = sum over r, q of Xp[c, y + r, x + q] W[c, r, q]: one plane of the image at a time, padded on the way."""
    X = te.placeholder((1, C, H, H), name="X")
    W = te.placeholder((C, 3, 3), name="W")
    Xp = te.compute(
        (1, C, H + 2, H + 2),
        lambda n, c, y, x: te.if_then_else(te.all(y >= 1, y < H + 1, x >= 1, x < H + 1), X[n, c, y - 1, x - 1], 0.0),
        name="Xp",
    )
    r, q = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "q")
    Y = te.compute((1, C, H, H), lambda n, c, y, x: te.sum(Xp[n, c, y + r, x + q] * W[c, r, q], axis=[r, q]), name="Y")
    s = te.create_schedule(Y.op)
    YL = s.cache_write(Y, "local")
    n, c, y, x = s[Y].op.axis
    yo, yi = s[Y].split(y, factor=4)
    xo, xi = s[Y].split(x, factor=16)
    s[Y].reorder(n, c, yo, xo, yi, xi)
    s[Y].parallel(s[Y].fuse(n, c))
    s[Y].vectorize(xi)
    s[Y].unroll(yi)
    s[YL].compute_at(s[Y], xo)
    n, c, y, x = s[YL].op.axis
    r, q = s[YL].op.reduce_axis
    s[YL].reorder(n, c, r, q, y, x)
    for axis in (r, q, y):
        s[YL].unroll(axis)
    s[YL].vectorize(x)
    s[Xp].compute_at(s[Y], s[Y].leaf_iter_vars[0])
    s[Xp].vectorize(s[Xp].split(s[Xp].op.axis[3], factor=8)[1])

    def reference(x, w):
        return te.library.depthwise_conv2d(1, C, H, H, 3, 3, padding=1).reference(x, w)

    return s, [X, W, Y], reference, lambda torch, x, w: lambda: torch.nn.functional.conv2d(x, w[:, None], None, 1, 1, 1, C)


KERNELS = {"depthwise": depthwise, "softmax": softmax, "sum": row_sum}


def main():
    """Builds, checks, times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="kernel", help=f"which of {', '.join(KERNELS)} (default: all)")
    parser.add_argument("--show", action="store_true", help="print the schedules and the loops")
    parser.add_argument("--small", action="store_true", help="small odd sizes, to see that it works")
    parser.add_argument("--rounds", type=int, default=5, help="how often the contenders take turns")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
        print("(install torch to see it beside)")
    rng = np.random.default_rng(0)
    for name in options.kernels or KERNELS:
        s, args, reference, peer = KERNELS[name](5, 37) if options.small else KERNELS[name]()
        if options.show:
            print(s.as_python())
            print(tw.lower(s, args))
        mod = tw.build(s, args)
        inputs = [rng.standard_normal([int(d) for d in t.shape]).astype("float32") for t in args[:-1]]
        out = np.full([int(d) for d in args[-1].shape], np.nan, "float32")
        mod(*inputs, out)
        np.testing.assert_allclose(out, reference(*inputs), rtol=1e-4, atol=1e-4)
        contenders = {"tilewright": lambda mod=mod, inputs=inputs, out=out: mod(*inputs, out)}
        if torch is not None:
            contenders = {"torch": peer(torch, *map(torch.from_numpy, inputs)), **contenders}
        times = compare(contenders, options.rounds)
        moved = sum(a.nbytes for a in (*inputs, out))
        print(name)
        for who, seconds in times.items():
            print(f"  {who:24s} {seconds * 1e3:9.3f} ms  {moved / seconds / 1e9:7.1f} GB/s  {next(iter(times.values())) / seconds:5.2f} x")


if __name__ == "__main__":
    main()
