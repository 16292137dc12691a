"""Real computations on real arrays: tuned, replayed from the log, checked, and timed beside NumPy or PyTorch in one run.

    python benchmarks/tuned.py [--trials 48] [--log tuning.db] [row ...]

Says for each how long tuning took, how many trials it needed to come within 10 % of its end, the default schedule, the best one, and the peer. A ratio
above 1 means that ours is faster. Needs torch for most rows. A log that is given is kept, and tuning goes on in it; without one a temporary file serves.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for pin in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # OpenBLAS reads them when NumPy loads it
    os.environ.pop(pin, None)

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import conv_bn_relu  # noqa: F401  # registers its template
from timing import compare

import tilewright as tw
from tilewright import autotune

rng = np.random.default_rng(0)


def tasks() -> dict[str, tuple[autotune.Task, float]]:
    """Row -> the task, and a tolerance."""
    return {
        "matmul 1024": (autotune.Task("matmul", (1024, 1024, 1024)), 1e-2),
        "conv2d 64 56 3x3 pad 1": (autotune.Task("conv2d", (1, 64, 56, 56, 64, 3, 3), padding=1), 1e-2),
        "conv2d 64 56 3x3 stride 2": (autotune.Task("conv2d", (1, 64, 56, 56, 128, 3, 3), stride=2, padding=1), 1e-2),
        "conv2d 128 28 3x3 8 groups": (autotune.Task("conv2d", (1, 128, 28, 28, 128, 3, 3), padding=1, groups=8), 1e-2),
        "depthwise 32 112 3x3": (autotune.Task("depthwise_conv2d", (1, 32, 112, 112, 3, 3), padding=1), 1e-3),
        "attention 12x128x64": (autotune.Task("attention", (1, 12, 128, 128, 64)), 1e-3),
        "softmax 4096x1024": (autotune.Task("softmax", (4096, 1024)), 1e-4),
        "conv+bn+relu 64 56": (autotune.Task("conv_bn_relu", (64, 56, 64)), 1e-2),
    }


def peer(row: str, a: list[Any]) -> tuple[str, Callable[[], object]] | None:
    """What people would call instead."""
    if row.startswith("matmul"):
        out = np.empty((a[0].shape[0], a[1].shape[1]), "float32")
        return "numpy", lambda: np.matmul(a[0], a[1], out=out)
    if torch is None:
        return None
    t = [torch.from_numpy(x) for x in a]
    F = torch.nn.functional
    calls: dict[str, Callable[[], object]] = {
        "conv2d 64 56 3x3 pad 1": lambda: F.conv2d(t[0], t[1], None, 1, 1),
        "conv2d 64 56 3x3 stride 2": lambda: F.conv2d(t[0], t[1], None, 2, 1),
        "conv2d 128 28 3x3 8 groups": lambda: F.conv2d(t[0], t[1], None, 1, 1, 1, 8),
        "depthwise 32 112 3x3": lambda: F.conv2d(t[0], t[1][:, None], None, 1, 1, 1, 32),
        "attention 12x128x64": lambda: F.scaled_dot_product_attention(*t),
        "softmax 4096x1024": lambda: torch.softmax(t[0], -1),
        "conv+bn+relu 64 56": lambda: torch.relu_(F.conv2d(t[0], t[1], None, 1, 1).mul_(t[2][:, None, None]).add_(t[3][:, None, None])),
    }
    return "torch", calls[row]


def trials_to(run: autotune.TuningRun, part: float) -> int:
    """How many trials it took to come within `part` of the final speed."""
    best = min(t.seconds for t in run.trials if t.seconds is not None)
    return next(n for n, t in enumerate(run.trials, 1) if t.seconds is not None and best / t.seconds >= part)


def show(row: str, task: autotune.Task, tolerance: float, trials: int, log: str) -> None:
    """Tunes, replays, checks, times, prints."""
    start = time.perf_counter()
    run = autotune.tune(task, trials=trials, log=log, seed=0, progress=False)
    took = time.perf_counter() - start
    mod = autotune.load_best(task, log=log)
    arrays = [rng.standard_normal([int(d) for d in t.shape]).astype(str(t.dtype)) for t in task.tensors]
    out = arrays[-1]
    out[...] = np.nan
    mod(*arrays)
    np.testing.assert_allclose(out, task.reference(*arrays[:-1]), rtol=tolerance, atol=tolerance)
    contenders: dict[str, Callable[[], object]] = {"ours": lambda: mod(*arrays)}
    beside = peer(row, arrays[:-1])
    if beside is not None:
        contenders[beside[0]] = beside[1]
    seconds = compare(contenders, 7)
    ok = sum(t.status == "ok" for t in run.trials)
    text = f"{row:28s} {ok}/{len(run.trials)} trials in {took:5.1f} s (90 % after {trials_to(run, 0.9)}), default {run.baseline.seconds * 1e3:.3f} ms, "
    text += f"best {seconds['ours'] * 1e3:.3f} ms, {task.flops / seconds['ours'] / 1e9:.1f} GFLOP/s"
    if beside is not None:
        text += f"; {beside[0]} {seconds[beside[0]] * 1e3:.3f} ms: {seconds[beside[0]] / seconds['ours']:.2f} x"
    print(text, flush=True)


def main() -> None:
    """Prints a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    suite = tasks()
    parser.add_argument("rows", nargs="*", metavar="row", help=f"parts of the names of rows: {', '.join(suite)} (default: all)")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--log", help="a tuning log to keep (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = options.log or str(Path(folder) / "tuning.db")
        for row, (task, tolerance) in suite.items():
            if not options.rows or any(part in row for part in options.rows):
                show(row, task, tolerance, options.trials, log)


if __name__ == "__main__":
    try:
        import torch

        torch.set_num_threads(tw.Target("c").threads)
        torch.set_grad_enabled(False)
    except ImportError:
        torch = None
    main()
