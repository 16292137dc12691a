"""The hand-written schedules of examples/ beside the libraries people would use instead, as ratios measured in one run.

    python benchmarks/speed.py [--rounds 7] [row ...]

Contenders take turns, with a pause before each (the idle threads of another library spin for a while after its last call); the figure is the minimum over
the rounds of the median time. A ratio above 1 means that ours is faster. Needs NumPy with OpenBLAS and, for most rows, torch. Environment variables that pin
OpenBLAS to another processor's kernels are removed first, and the kernel that runs is printed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

for pin in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # OpenBLAS reads them when NumPy loads it
    os.environ.pop(pin, None)

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import attention
import conv2d
import matmul
import rows
from timing import compare

import tilewright as tw
from tilewright import te

rng = np.random.default_rng(0)
Row = tuple[Callable[[], object], dict[str, Callable[[], object]], float, str]


def rand(*shape: int) -> Any:
    """Normal float32 numbers."""
    return rng.standard_normal(shape).astype("float32")


def matmul_row(n: int, threads: int) -> Row:
    """A matrix product beside NumPy and torch."""
    s, args = matmul.parallel(n, n, n, threads)
    mod = tw.build(s, args, target=tw.Target("c", threads=threads))
    a, b, c, d = rand(n, n), rand(n, n), np.full((n, n), np.nan, "float32"), np.empty((n, n), "float32")
    mod(a, b, c)
    np.testing.assert_allclose(c, a.astype("float64") @ b, rtol=1e-3, atol=1e-2)
    peers: dict[str, Callable[[], object]] = {"numpy": lambda: np.matmul(a, b, out=d)}
    if torch is not None:
        ta, tb, td = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(d)
        peers["torch"] = lambda: torch.mm(ta, tb, out=td)
    return lambda: mod(a, b, c), peers, 2 * n**3, "GFLOP/s"


def rows_row(name: str) -> Row:
    """One of examples/rows.py beside torch."""
    s, args, reference, peer = rows.KERNELS[name]()
    mod = tw.build(s, args)
    inputs = [rand(*(int(d) for d in t.shape)) for t in args[:-1]]
    out = np.full([int(d) for d in args[-1].shape], np.nan, "float32")
    mod(*inputs, out)
    np.testing.assert_allclose(out, reference(*inputs), rtol=1e-4, atol=1e-4)
    moved = sum(a.nbytes for a in (*inputs, out))
    return lambda: mod(*inputs, out), {"torch": peer(torch, *map(torch.from_numpy, inputs))}, moved, "GB/s"


def conv2d_row(CI: int, H: int, CO: int) -> Row:
    """A padded 3 x 3 convolution beside torch."""
    X, W, Xp, Y = conv2d.declare(CI, H, CO, 3, 1, 1)
    mod = tw.build(conv2d.schedule(W, Xp, Y), [X, W, Y])
    x, w, out = rand(1, CI, H, H), rand(CO, CI, 3, 3), np.full((1, CO, H, H), np.nan, "float32")
    mod(x, w, out)
    tx, tw_ = torch.from_numpy(x), torch.from_numpy(w)
    np.testing.assert_allclose(out, torch.nn.functional.conv2d(tx, tw_, padding=1).numpy(), rtol=1e-3, atol=1e-3)
    return lambda: mod(x, w, out), {"torch": lambda: torch.nn.functional.conv2d(tx, tw_, padding=1)}, 2 * CO * CI * H * H * 9, "GFLOP/s"


def attention_row(H: int, S: int, D: int) -> Row:
    """Attention fused over blocks of rows beside torch."""
    args, stages = attention.declare(H, S, D)
    mod = tw.build(attention.schedule(args, stages), args)
    q, k, v, out = rand(H, S, D), rand(H, S, D), rand(H, S, D), np.full((H, S, D), np.nan, "float32")
    mod(q, k, v, out)
    np.testing.assert_allclose(out, te.library.attention(1, H, S, S, D).reference(q[None], k[None], v[None])[0], rtol=1e-3, atol=1e-4)
    tq, tk, tv = (torch.from_numpy(a[None]) for a in (q, k, v))
    return lambda: mod(q, k, v, out), {"torch": lambda: torch.nn.functional.scaled_dot_product_attention(tq, tk, tv)}, 4 * H * S * S * D, "GFLOP/s"


def main() -> None:
    """Prints a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    threads = tw.Target("c").threads
    suite: dict[str, Callable[[], Row]] = {
        "matmul 1024": lambda: matmul_row(1024, threads),
        "matmul 512": lambda: matmul_row(512, threads),
        "depthwise 32x112x112": lambda: rows_row("depthwise"),
        "softmax 4096x1024": lambda: rows_row("softmax"),
        "row sum 4096x1024": lambda: rows_row("sum"),
        "conv2d 3x3 64x56x56": lambda: conv2d_row(64, 56, 64),
        "attention 12x128x64": lambda: attention_row(12, 128, 64),
    }
    parser.add_argument("rows", nargs="*", metavar="row", help=f"parts of the names of rows: {', '.join(suite)} (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{threads} threads; NumPy's BLAS: {blas_kernel()}; torch {torch.__version__ if torch is not None else 'not installed'}")
    for name, make in suite.items():
        if options.rows and not any(part in name for part in options.rows):
            continue
        if torch is None and not name.startswith("matmul"):
            print(f"{name:24s} (needs torch)")
            continue
        ours, peers, work, unit = make()
        seconds = compare({"ours": ours, **peers}, options.rounds)
        beside = "  ".join(f"{peer} {seconds[peer] * 1e3:.3f} ms: {seconds[peer] / seconds['ours']:.2f} x" for peer in peers)
        print(f"{name:24s} ours {seconds['ours'] * 1e3:8.3f} ms {work / seconds['ours'] / 1e9:7.1f} {unit:8s} {beside}", flush=True)


def blas_kernel() -> str:
    """Which of OpenBLAS' kernels NumPy runs."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "unknown (install threadpoolctl to see)"
    libraries = [lib for lib in threadpool_info() if lib["user_api"] == "blas"]
    return ", ".join(f"{lib['internal_api']} {lib['version']} {lib.get('architecture')}, {lib['num_threads']} threads" for lib in libraries)


if __name__ == "__main__":
    try:
        import torch

        torch.set_num_threads(tw.Target("c").threads)
        torch.set_grad_enabled(False)
    except ImportError:
        torch = None
    main()
