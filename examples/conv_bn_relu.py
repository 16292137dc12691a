"""A template of one's own: convolution, batch norm and ReLU as one kernel, with knobs that the tuner turns.

    python examples/conv_bn_relu.py [--size 56] [--channels 64] [--filters 64] [--trials 32] [--log tuning.db]

R[n, o, y, x] = max(Y[n, o, y, x] G[o] + B[o], 0), with Y a padded 3 x 3 convolution whose sums never leave the registers. The batch norm is folded into a
factor and a summand for each filter. Tunes, replays the best from the log, checks it, and shows PyTorch's time beside where it is installed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from timing import compare, report

from tilewright import autotune, te


def reference(x, w, g, b):
    """The right result, in float64."""
    y = te.library.conv2d(*x.shape, w.shape[0], 3, 3, padding=1).reference(x, w)
    return np.maximum(y * g.astype("float64")[:, None, None] + b[:, None, None], 0)


@autotune.template("conv_bn_relu", reference=reference)
def conv_bn_relu(cfg, CI, H, CO):
    """The computation, and its schedule with the decisions of `cfg`."""
    X, W, Y = te.library.conv2d(1, CI, H, H, CO, 3, 3, padding=1).args
    Xp = Y.op.input_tensors[0]
    G, B = te.placeholder((CO,), name="G"), te.placeholder((CO,), name="B")
    Z = te.compute(Y.shape, lambda n, o, y, x: Y[n, o, y, x] * G[o] + B[o], name="Z")
    R = te.compute(Y.shape, lambda *i: te.max(Z(*i), 0.0), name="R")

    lanes = cfg.target.lanes(4)
    filters = cfg.define_knob("filters", [2, 3, 4, 6, 8]).val  # and vectors of positions: the tile that is summed up in registers
    vectors = cfg.define_knob("vectors", [1, 2, 3, 4, 7]).val
    cfg.constrain(["filters", "vectors"], lambda f, v: f * v <= cfg.target.vector_registers - 2)
    lines = cfg.define_knob("lines", [1, 2, 4]).val  # of the image, for each piece of work
    unroll = cfg.define_knob("unroll_kernel_column", [False, True]).val

    s = te.create_schedule(R.op)
    s[Z].compute_inline()
    n, o, y, x = s[R].op.axis
    yo, yi = s[R].split(y, factor=lines)
    oo, oi = s[R].split(o, factor=filters)
    xo, xi = s[R].split(x, factor=vectors * lanes)
    s[R].reorder(n, yo, oo, yi, xo, oi, xi)
    piece = s[R].fuse(n, yo)
    s[R].parallel(piece)
    s[R].vectorize(xi)
    s[R].unroll(oi)

    s[Y].set_scope("local")
    s[Y].compute_at(s[R], xo)
    n, o, y, x = s[Y].op.axis
    c, r, q = s[Y].op.reduce_axis
    s[Y].reorder(n, y, r, q, c, o, x)
    s[Y].vectorize(x)
    s[Y].unroll(o)
    if unroll:
        s[Y].unroll(q)

    s[Xp].compute_at(s[R], piece)
    s[Xp].vectorize(s[Xp].op.axis[3])
    return s, [X, W, G, B, R]


def main():
    """Tunes, replays, checks, times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--filters", type=int, default=64)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--log", help="a tuning log to keep (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=5, help="how often the contenders take turns")
    options = parser.parse_args()
    CI, H, CO = options.channels, options.size, options.filters
    task = autotune.Task("conv_bn_relu", (CI, H, CO))
    rng = np.random.default_rng(0)
    x, w, g, b = (rng.standard_normal(shape).astype("float32") for shape in ((1, CI, H, H), (CO, CI, 3, 3), CO, CO))
    out = np.full((1, CO, H, H), np.nan, "float32")
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or Path(folder) / "tuning.db"
        run = autotune.tune(task, trials=options.trials, log=log, seed=0)
        mod = autotune.load_best(task, log=log)
    mod(x, w, g, b, out)
    np.testing.assert_allclose(out, reference(x, w, g, b), rtol=1e-3, atol=1e-3)
    print(f"best of {len(run.trials)}: {run.best.decisions}")
    contenders = {"tilewright": lambda: mod(x, w, g, b, out)}
    try:
        import torch
    except ImportError:
        print("(install torch to see it beside)")
    else:
        tx, tw_, tg, tb = map(torch.from_numpy, (x, w, g, b))
        conv = torch.nn.functional.conv2d
        contenders = {"torch": lambda: torch.relu_(conv(tx, tw_, None, 1, 1).mul_(tg[:, None, None]).add_(tb[:, None, None])), **contenders}
    print(report(compare(contenders, options.rounds), 2 * out.size * CI * 9))


if __name__ == "__main__":
    main()
