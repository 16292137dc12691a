"""A padded 3x3 convolution scheduled by hand: Y[n, o, y, x] = sum over c, r, q of Xp[n, c, y S + r, x S + q] W[o, c, r, q].

    python examples/conv2d.py [--channels 64] [--size 56] [--filters 64] [--stride 1] [--show]

Filters lie in the vector lanes: a tile of 16 filters by a few positions is summed up in registers, where each vector of weights serves all positions and
each number of the input, broadcast, all filters. So any stride reads the input without shuffling it; the weights are packed for it, and the tile is turned
when it is written. With PyTorch installed, its time is shown beside.
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import compare, report

import tilewright as tw
from tilewright import te


def declare(CI, H, CO, K, S, P):
    """Padding is a stage of its own, which the schedule can put anywhere."""
    X = te.placeholder((1, CI, H, H), name="X")
    W = te.placeholder((CO, CI, K, K), name="W")
    HO = (H + 2 * P - K) // S + 1
    Xp = te.compute(
        (1, CI, H + 2 * P, H + 2 * P),
        lambda n, c, y, x: te.if_then_else(te.all(y >= P, y < H + P, x >= P, x < H + P), X[n, c, y - P, x - P], 0.0),
        name="Xp",
    )
    c, r, q = te.reduce_axis((0, CI), "c"), te.reduce_axis((0, K), "r"), te.reduce_axis((0, K), "q")
    Y = te.compute((1, CO, HO, HO), lambda n, o, y, x: te.sum(Xp[n, c, y * S + r, x * S + q] * W[o, c, r, q], axis=[c, r, q]), name="Y")
    return X, W, Xp, Y


def schedule(W, Xp, Y, lanes=8):
    """The schedule, for vectors of `lanes` floats and 16 vector registers."""
    filters, positions = 2 * lanes, 6  # 12 registers hold sums; of the other 4, two hold weights and one a number of the input
    s = te.create_schedule(Y.op)
    tile = s.cache_write(Y, "local")
    sums = s.cache_write(tile, "local")
    n, o, y, x = s[Y].op.axis
    lines, line = s[Y].split(y, factor=2)
    panel, filter_ = s[Y].split(o, factor=filters)
    run, position = s[Y].split(x, factor=positions)
    s[Y].reorder(n, lines, panel, line, run, filter_, position)
    block = s[Y].fuse(n, lines)
    s[Y].parallel(block)

    for stage in (sums, tile):  # the sums are copied: what is read by columns must be in memory, and they should not
        s[stage].compute_at(s[Y], run)
        s[stage].transform_layout(lambda n, o, y, x: [n, y, x, o])
        n, o, y, x = s[stage].op.axis
        s[stage].reorder(n, y, x, o)
        s[stage].unroll(x)
        s[stage].vectorize(o)
    c, r, q = s[sums].op.reduce_axis
    s[sums].reorder(r, q, c, s[sums].op.axis[3], s[sums].op.axis[1])

    packed = s.cache_read(W, "global", [sums])  # panels of filters, which lie side by side
    s[packed].transform_layout(lambda o, c, r, q: [o // filters, r, q, c, o % filters])
    o, c, r, q = s[packed].op.axis
    panel, filter_ = s[packed].split(o, factor=filters)
    s[packed].reorder(panel, r, q, c, filter_)
    s[packed].parallel(panel)

    s[Xp].compute_at(s[Y], block)  # only the lines that this block of the output needs
    s[Xp].transform_layout(lambda n, c, y, x: [n, y, c, x])  # those of all channels next to each other
    s[Xp].vectorize(s[Xp].split(s[Xp].op.axis[3], factor=lanes)[1])
    return s


def main():
    """Builds, checks, times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--filters", type=int, default=64)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print the schedule and the loops")
    parser.add_argument("--rounds", type=int, default=5, help="how often the contenders take turns")
    options = parser.parse_args()
    CI, H, CO, S, K, P = options.channels, options.size, options.filters, options.stride, 3, 1
    X, W, Xp, Y = declare(CI, H, CO, K, S, P)
    s = schedule(W, Xp, Y)
    if options.show:
        print(s.as_python())
        print(tw.lower(s, [X, W, Y]))
    mod = tw.build(s, [X, W, Y])
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, CI, H, H)).astype("float32"), rng.standard_normal((CO, CI, K, K)).astype("float32")
    out = np.full([int(d) for d in Y.shape], np.nan, "float32")
    mod(x, w, out)
    np.testing.assert_allclose(out, te.library.conv2d(1, CI, H, H, CO, K, K, stride=S, padding=P).reference(x, w), rtol=1e-3, atol=1e-3)
    contenders = {"tilewright": lambda: mod(x, w, out)}
    try:
        import torch
    except ImportError:
        print("(install torch to see it beside)")
    else:
        tx, tw_ = torch.from_numpy(x), torch.from_numpy(w)
        contenders = {"torch": lambda: torch.nn.functional.conv2d(tx, tw_, None, S, P), **contenders}
    print(report(compare(contenders, options.rounds), 2 * out.size * CI * K * K))


if __name__ == "__main__":
    main()
