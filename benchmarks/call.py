"""What a call costs from Python: a module beside a NumPy ufunc and a PyTorch op that do the same to 16 numbers.

    python benchmarks/call.py [--calls 5000] [--rounds 15]

The kernel does next to nothing, so the time is that of checking arguments and crossing into C. The shortest of several rounds counts, since other
programs on the machine can only add to it, and the contestants take turns. PyTorch takes part where it is installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib import util

import numpy as np

import tilewright as tw
from tilewright import te

SIZE = 16
LIMIT_US = 5.0  # what two small NumPy arguments may cost

Contestants = dict[str, Callable[[], object]]


def ours(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Contestants:
    """Modules of two and three arguments, and the bare C function without any checks."""
    A, B = te.placeholder((SIZE,), name="A"), te.placeholder((SIZE,), name="B")
    one_more = te.compute((SIZE,), lambda i: A[i] + 1.0, name="one_more")
    added = te.compute((SIZE,), lambda i: A[i] + B[i], name="added")
    target = tw.Target("c", threads=1)
    two = tw.build(te.create_schedule(one_more.op), [A, one_more], target)
    three = tw.build(te.create_schedule(added.op), [A, B, added], target)
    numbers = [array.ctypes.data for array in (a, b, out)]
    return {
        "tilewright, 2 arguments": lambda: two(a, out),
        "tilewright, 3 arguments": lambda: three(a, b, out),
        "the same without checks": lambda: three.run_at(numbers),
    }


def numpys(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Contestants:
    """The ufunc of the same additions."""
    one = np.float32(1)
    return {"np.add(a, 1, out=out)": lambda: np.add(a, one, out=out), "np.add(a, b, out=out)": lambda: np.add(a, b, out=out)}


def torchs(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> Contestants:
    """PyTorch's op on the same memory, and a module on PyTorch's tensors, which are passed by DLPack."""
    import torch

    x, y, z = (torch.from_numpy(array) for array in (a, b, out))
    A, B = te.placeholder((SIZE,), name="A"), te.placeholder((SIZE,), name="B")
    added = te.compute((SIZE,), lambda i: A[i] + B[i], name="added")
    module = tw.build(te.create_schedule(added.op), [A, B, added], tw.Target("c", threads=1))
    return {"torch.add(a, b, out=out)": lambda: torch.add(x, y, out=z), "tilewright on torch's tensors": lambda: module(x, y, z)}


def seconds_per_call(call: Callable[[], object], calls: int) -> float:
    """One round."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def measured(contestants: Contestants, calls: int, rounds: int) -> dict[str, float]:
    """The shortest round of each, in seconds a call."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, call in contestants.items():
            best[name] = min(best[name], seconds_per_call(call, calls))
    return best


def main() -> int:
    """Print the table; 1 if two small arguments cost more than they may."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--calls", type=int, default=5000, help="calls in a round")
    options.add_argument("--rounds", type=int, default=15)
    given = options.parse_args()
    a, b, out = (np.ones(SIZE, "float32") for _ in range(3))
    contestants = {**ours(a, b, out), **numpys(a, b, out)}
    if util.find_spec("torch") is not None:
        contestants |= torchs(a, b, out)
    best = measured(contestants, given.calls, given.rounds)
    for name, seconds in best.items():
        print(f"{name:<32}{seconds * 1e6:8.2f} us")
    spent = best["tilewright, 2 arguments"] * 1e6
    print(f"two small arguments: {spent:.2f} us, at most {LIMIT_US} us: {'met' if spent <= LIMIT_US else 'MISSED'}")
    return int(spent > LIMIT_US)


if __name__ == "__main__":
    raise SystemExit(main())
