"""A template of your own: gelu(X W + b) in one kernel, tuned here and replayed in another process.

    python examples/own_template.py [--size M N K] [--trials T] [--log FILE]
    tilewright tune gelu_dense 384 512 256 --templates examples/own_template.py --log tuning.db      # the same from the command line

The template is ordinary scheduling with questions to `cfg` in between. In a program that only uses the result, importing this file and `load_best`
are all there is; see `replay`.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile

import numpy as np

from tilewright import autotune, te


def reference(x, w, b):
    """What every measured candidate is compared with."""
    z = x.astype("float64") @ w + b
    return z / 2 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))


@autotune.template("gelu_dense", reference=reference)
def gelu_dense(cfg, M, N, K):
    """G[i, j] = gelu(Z[i, j]), Z[i, j] = b[j] + sum over k of X[i, k] W[k, j]; a tile of the product is finished while it is in registers."""
    X, W, b = te.placeholder((M, K), name="X"), te.placeholder((K, N), name="W"), te.placeholder((N,), name="b")
    k = te.reduce_axis((0, K), name="k")
    Y = te.compute((M, N), lambda i, j: te.sum(X[i, k] * W[k, j], axis=k), name="Y")
    Z = te.compute((M, N), lambda i, j: Y[i, j] + b[j], name="Z")
    G = te.compute((M, N), lambda i, j: Z[i, j] * 0.5 * (1.0 + te.erf(Z[i, j] * math.sqrt(0.5))), name="G")

    s = te.create_schedule(G.op)
    s[Z].compute_inline()
    s[Y].set_scope("local")
    i, j = s[G].op.axis
    cfg.define_split("rows", i, num_outputs=2, candidates=[[2], [4], [6]], default=[4])
    cfg.define_split("columns", j, num_outputs=2, policy="power2", max_factor=32, default=[16])
    cfg.constrain(["rows", "columns"], lambda rows, columns: 16 <= rows[-1] * columns[-1] <= 128)
    io, ii = cfg["rows"].apply(s, G, i)
    jo, ji = cfg["columns"].apply(s, G, j)
    s[G].reorder(io, jo, ii, ji)
    s[G].vectorize(ji)
    s[G].parallel(io)
    s[Y].compute_at(s[G], jo)
    (yi, yj), (yk,) = s[Y].op.axis, s[Y].op.reduce_axis
    s[Y].reorder(yk, yi, yj)
    s[Y].vectorize(yj)
    if cfg.define_knob("unroll", [True, False]).val:
        s[Y].unroll(yi)
    return s, [X, W, b, G]


def replay(size, log):
    """The best kernel of the log on arrays; nothing is measured to get it."""
    M, N, K = size
    mod = autotune.load_best(autotune.Task("gelu_dense", size), log=log)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape, dtype="float32") for shape in [(M, K), (K, N), (N,)])
    g = np.empty((M, N), "float32")
    mod(x, w, b, g)
    np.testing.assert_allclose(g, reference(x, w, b), rtol=1e-3, atol=1e-3)
    print(f"replayed: {mod.time_evaluator(min_repeat_ms=20)(x, w, b, g)}")


def main():
    """Tunes, then starts a fresh process that replays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=3, default=[384, 512, 256], metavar=("M", "N", "K"))
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--log", help="where the trials are kept (default: a file that is removed in the end)")
    parser.add_argument("--replay", action="store_true", help="only replay what the log has")
    options = parser.parse_args()
    if options.replay:
        return replay(options.size, options.log)
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or os.path.join(folder, "tuning.db")
        run = autotune.tune(autotune.Task("gelu_dense", options.size), trials=options.trials, log=log, progress=False)
        print(run)
        sizes = [str(extent) for extent in options.size]
        subprocess.run([sys.executable, __file__, "--replay", "--size", *sizes, "--log", log], check=True)


if __name__ == "__main__":
    main()
