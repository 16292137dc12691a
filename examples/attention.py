"""Attention fused over blocks of rows: softmax(Q K^T / sqrt(D)) V, without storing the S x S matrix.

    python examples/attention.py [--heads 12] [--length 128] [--depth 64] [--show]

Six stages (scores, row maximum, weights, row sum, weighted values, quotient) are computed at one loop, over blocks of rows of the output. What lives between
them is one block of rows for each thread. With PyTorch installed, its time is shown beside.
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import compare, report

import tilewright as tw
from tilewright import te


def declare(H, S, D):
    """Arguments and stages."""
    Q, K, V = (te.placeholder((H, S, D), name=n) for n in "QKV")
    d, j1, j2, j3 = te.reduce_axis((0, D), "d"), te.reduce_axis((0, S), "j1"), te.reduce_axis((0, S), "j2"), te.reduce_axis((0, S), "j3")
    Kt = te.compute((H, D, S), lambda h, d, j: K[h, j, d], name="Kt")
    T = te.compute((H, S, S), lambda h, i, j: te.sum(Q[h, i, d] * Kt[h, d, j], axis=d), name="T")
    m = te.compute((H, S), lambda h, i: te.max(T[h, i, j1], axis=j1), name="m")
    E = te.compute((H, S, S), lambda h, i, j: te.exp((T[h, i, j] - m[h, i]) * (1.0 / D**0.5)), name="E")
    z = te.compute((H, S), lambda h, i: te.sum(E[h, i, j2], axis=j2), name="z")
    U = te.compute((H, S, D), lambda h, i, e: te.sum(E[h, i, j3] * V[h, j3, e], axis=j3), name="U")
    O = te.compute((H, S, D), lambda h, i, e: U[h, i, e] / z[h, i], name="O")
    return (Q, K, V, O), (Kt, T, m, E, z, U)


def product_in_registers(s, T, rows, columns):
    """Sum up tiles of a product stage in registers."""
    TL = s.cache_write(T, "local")
    h, i, j = s[T].op.axis
    io, ii = s[T].split(i, factor=rows)
    jo, ji = s[T].split(j, factor=columns)
    s[T].reorder(h, io, jo, ii, ji)
    s[T].vectorize(ji)
    s[T].unroll(ii)
    s[TL].compute_at(s[T], jo)
    hi, ii, ji = s[TL].op.axis
    s[TL].reorder(hi, *s[TL].op.reduce_axis, ii, ji)
    s[TL].vectorize(ji)
    s[TL].unroll(ii)
    return TL


def lanes_of_row(s, m, lanes=32):
    """Reduce a row in `lanes` partial results, then those."""
    (k,) = s[m].op.reduce_axis
    _, ki = s[m].split(k, factor=lanes)
    part = s.rfactor(m, ki, factor_axis=2)
    h, i, lane = s[part].op.axis
    s[part].reorder(h, i, *s[part].op.reduce_axis, lane)
    s[part].vectorize(lane)
    s[part].set_scope("local")
    s[part].compute_at(s[m], s[m].op.axis[1])


def schedule(args, stages, block=24):
    """The schedule: blocks of rows are shared among threads."""
    O = args[-1]
    Kt, T, m, E, z, U = stages
    s = te.create_schedule(O.op)
    for stage in (T, U):
        product_in_registers(s, stage, 6, 16)
    for stage in (m, z):
        lanes_of_row(s, stage)
    h, i, e = s[O].op.axis
    io, _ = s[O].split(i, factor=block)
    at = s[O].fuse(h, io)
    s[O].parallel(at)
    s[O].vectorize(e)
    for stage in (T, m, E, z, U):
        s[stage].compute_at(s[O], at)
    s[E].vectorize(s[E].split(E.op.axis[2], factor=8)[1])
    s[Kt].parallel(Kt.op.axis[0])
    s[Kt].vectorize(s[Kt].split(Kt.op.axis[2], factor=8)[1])
    return s


def main():
    """Builds, checks, times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--show", action="store_true", help="print the schedule and the loops")
    parser.add_argument("--rounds", type=int, default=5, help="how often the contenders take turns")
    options = parser.parse_args()
    H, S, D = options.heads, options.length, options.depth
    args, stages = declare(H, S, D)
    s = schedule(args, stages)
    if options.show:
        print(s.as_python())
        print(tw.lower(s, args))
    mod = tw.build(s, args)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((H, S, D)).astype("float32") for _ in range(3))
    out = np.full((H, S, D), np.nan, "float32")
    mod(q, k, v, out)
    expected = te.library.attention(1, H, S, S, D).reference(q[None], k[None], v[None])[0]
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-4)
    print(f"workspace {mod.workspace_bytes} bytes; the {H} matrices of {S} x {S} would be {4 * H * S * S}")
    contenders = {"tilewright": lambda: mod(q, k, v, out)}
    try:
        import torch
    except ImportError:
        print("(install torch to see it beside)")
    else:
        tq, tk, tv = (torch.from_numpy(a[None]) for a in (q, k, v))
        contenders = {"torch": lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv), **contenders}
    print(report(compare(contenders, options.rounds), 4 * H * S * S * D))


if __name__ == "__main__":
    main()
