"""On a GPU: every operator of te.library checked against its NumPy reference, then speeds beside PyTorch's (cuBLAS, cuDNN, SDPA) and the memory's bandwidth.

    python benchmarks/gpu.py [--checks | --speed] [--only WORD] [--json FILE] [--limit-s 480]
    python benchmarks/gpu.py --checks --emulator        # the checks without a GPU

Needs NumPy, a CUDA compiler (nvcc or NVRTC) and pycuda or cuda-bindings; PyTorch only for the second half. Kernels are those of default_schedule: nothing
is tuned. All times are the GPU's own, by events in one stream, contenders in turn, with the L2 cache flushed before each call; the figure is the least of
the rounds' means. A ratio above 1 means that ours is faster. Ends with status 1 if anything is wrong or missing, after all rows; rows for which no time is
left are said.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.autotune import default_schedule
from tilewright.autotune.task import declare_operator
from tilewright.autotune.verify import make_check
from tilewright.targets.cuda_devices import measure_on_gpu
from tilewright.targets.cuda_driver import driver
from tilewright.te.library.operator import Operator
from tilewright.tir.gpu import GPUS

try:
    import torch
except ImportError:  # the checks need none
    torch = None  # type: ignore[assignment]

# operator, sizes, options: odd shapes and every dtype that has a way of its own; small, since NumPy computes the references
CHECKS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("matmul", (257, 129, 65), {}),
    ("matmul", (256, 256, 256), {}),
    ("matmul", (256, 256, 256), {"dtype": "float16", "acc_dtype": "float32"}),
    ("matmul", (100, 72, 40), {"dtype": "float16", "acc_dtype": "float32"}),
    ("matmul", (128, 128, 128), {"dtype": "bfloat16", "acc_dtype": "float32"}),
    ("matmul", (128, 128, 128), {"dtype": "int8", "acc_dtype": "int32"}),
    ("matmul", (65, 33, 17), {"dtype": "float64"}),
    ("batch_matmul", (3, 65, 33, 48), {}),
    ("dense", (33, 100, 64), {}),
    ("gemv", (301, 1000), {}),
    ("conv1d", (2, 8, 50, 16, 3), {"padding": 1}),
    ("conv2d", (2, 8, 14, 14, 16, 3, 3), {"padding": 1}),
    ("conv2d", (1, 16, 15, 13, 24, 3, 3), {"stride": 2}),
    ("conv2d", (1, 12, 10, 10, 8, 3, 3), {"layout": "NHWC", "padding": 1}),
    ("conv2d", (1, 8, 12, 12, 16, 3, 3), {"padding": 1, "groups": 4}),
    ("conv2d_im2col", (1, 8, 12, 12, 16, 3, 3), {"padding": 1}),
    ("conv2d_transpose", (1, 8, 7, 7, 6, 3, 3), {"stride": 2, "padding": 1}),
    ("conv2d_winograd", (1, 8, 12, 12, 16), {}),
    ("depthwise_conv2d", (1, 24, 15, 15, 3, 3), {"padding": 1}),
    ("quantized_matmul", (65, 48, 64), {}),
    ("quantized_conv2d", (1, 8, 12, 12, 16, 3, 3), {"padding": 1}),
    ("int4_matmul", (33, 48, 128), {}),
    ("pool2d", (2, 8, 15, 15, "max", 3), {"stride": 2, "padding": 1}),
    ("pool2d", (2, 8, 14, 14, "avg", 2), {}),
    ("softmax", (37, 1000), {}),
    ("softmax", (16, 128), {"dtype": "float16"}),
    ("layer_norm", (33, 768), {"affine": True}),
    ("rms_norm", (33, 513), {}),
    ("batch_norm", (2, 16, 9, 9), {}),
    ("relu", (1000, 33), {}),
    ("gelu", (1000, 33), {}),
    ("silu", (1000, 33), {"dtype": "bfloat16"}),
    ("transpose", (3, 65, 130), {}),
    ("sum", (65, 1001), {}),
    ("argmax", (65, 1001), {}),
    ("attention", (1, 2, 128, 128, 64), {}),
    ("attention", (2, 4, 77, 77, 32), {"causal": True, "kv_heads": 2}),
    ("attention", (1, 2, 64, 64, 64), {"dtype": "float16"}),
    ("flash_attention", (1, 2, 128, 128, 64), {}),
    ("flash_attention", (2, 4, 96, 64, 32), {"causal": True}),
]


@dataclass
class Speed:
    """A row of the second half: the operator, what PyTorch is asked for the same, and what the work counts in."""

    name: str
    operator: str
    sizes: tuple[Any, ...]
    options: dict[str, Any]
    peer: Callable[[Sequence[Any]], Any]
    unit: str = "GFLOP/s"


def _attention(tensors: Sequence[Any]) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*tensors)


_HALF = {"dtype": "float16", "acc_dtype": "float32"}
SPEEDS = [
    *(Speed(f"matmul fp32 {n}", "matmul", (n, n, n), {}, lambda t: torch.matmul(*t)) for n in (1024, 2048, 4096)),
    *(Speed(f"matmul fp16 {n}", "matmul", (n, n, n), _HALF, lambda t: torch.matmul(*t)) for n in (1024, 2048, 4096)),
    Speed("matmul int8 2048", "matmul", (2048, 2048, 2048), {"dtype": "int8", "acc_dtype": "int32"}, lambda t: torch._int_mm(*t)),
    Speed("conv2d 64x56x56 3x3", "conv2d", (8, 64, 56, 56, 64, 3, 3), {"padding": 1}, lambda t: torch.nn.functional.conv2d(*t, padding=1)),
    Speed("conv2d 256x14x14 3x3", "conv2d", (8, 256, 14, 14, 256, 3, 3), {"padding": 1}, lambda t: torch.nn.functional.conv2d(*t, padding=1)),
    Speed("softmax 4096x1024", "softmax", (4096, 1024), {}, lambda t: torch.softmax(t[0], -1), "GB/s"),
    Speed("softmax 8192x8192", "softmax", (8192, 8192), {}, lambda t: torch.softmax(t[0], -1), "GB/s"),
    Speed("layer_norm 4096x1024", "layer_norm", (4096, 1024), {}, lambda t: torch.nn.functional.layer_norm(t[0], t[0].shape[-1:]), "GB/s"),
    Speed("transpose 4096", "transpose", (4096, 4096), {}, lambda t: t[0].t().contiguous(), "GB/s"),
    Speed("attention 16x1024x64", "attention", (1, 16, 1024, 1024, 64), {}, _attention),
    Speed("attention fp16 16x1024x64", "attention", (1, 16, 1024, 1024, 64), {"dtype": "float16"}, _attention),
    Speed("flash_attention 16x4096x64", "flash_attention", (1, 16, 4096, 4096, 64), {}, _attention),
]


class Clock:
    """Time that is left."""

    def __init__(self, limit_s: float) -> None:
        self.end = time.monotonic() + limit_s

    def is_over(self) -> bool:
        return time.monotonic() > self.end


def built_ahead(jobs: Sequence[tuple[Any, Callable[[], Any]]], workers: int) -> Iterator[tuple[Any, Future[Any]]]:
    """Each job with its kernel, in order, while later ones are being compiled."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [(label, pool.submit(make)) for label, make in jobs]
        try:
            yield from futures
        finally:
            for _, future in futures:
                future.cancel()


def text_of(operator: str, sizes: Sequence[Any], options: dict[str, Any]) -> str:
    """A row's name."""
    return " ".join([operator, *map(str, sizes), *(f"{key}={value}" for key, value in options.items())])


def kernel_of(operator: str, sizes: Sequence[Any], options: dict[str, Any], target: tw.Target, check: str | None = None) -> tuple[Operator, Any]:
    """An operator with its default schedule, compiled."""
    declared = declare_operator(operator, tuple(sizes), options)
    return declared, tw.build(default_schedule(declared, target), declared.args, target, check=check)


def run_checks(target: tw.Target, only: str, clock: Clock, workers: int) -> list[dict[str, Any]]:
    """Every row of CHECKS; prints a line for each."""
    rows = [row for row in CHECKS if only in text_of(*row)]
    check = "race" if target.device == "emulator" else None
    jobs = [(row, lambda row=row: kernel_of(*row, target, check)) for row in rows]
    results = []
    for row, future in built_ahead(jobs, workers):
        name, problem = text_of(*row), None
        if clock.is_over():
            problem = "no time left"
        else:
            try:
                declared, module = future.result()
                checked = make_check(declared.args, declared.reference, seed=0)
                arguments = checked.arguments()
                module(*arguments)
                problem = checked.mismatch(arguments)
                if problem is None and check and module.report.races:
                    problem = f"races: {module.report.races[0]}"
                module.close()
            except Exception as error:  # a row that fails is a finding, and the others are wanted too
                problem = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        print(f"{'ok   ' if problem is None else 'WRONG'} {name}{'' if problem is None else f': {problem}'}", flush=True)
        results.append({"check": name, "problem": problem})
    return results


def copy_kernel(target: tw.Target, elements: int) -> Any:
    """B = A, sixteen bytes a thread."""
    A = te.placeholder((elements,), name="A")
    B = te.compute((elements,), lambda i: A[i], name="B")
    s = te.create_schedule(B.op)
    block, inside = s[B].split(B.op.axis[0], factor=1024)
    thread, lane = s[B].split(inside, factor=4)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    s[B].vectorize(lane)
    return tw.build(s, [A, B], target, name="copy")


def bandwidth(target: tw.Target) -> dict[str, Any]:
    """GB/s of a copy of 1 GiB, bytes read and written."""
    elements = 1 << 28
    source, destination = torch.ones(elements, device="cuda"), torch.empty(elements, device="cuda")
    ours = copy_kernel(target, elements).time_evaluator(repeat=5, number=5)(source, destination).min
    assert bool((destination == 1).all())
    theirs = timed(lambda: destination.copy_(source))
    row = {"speed": "copy 1 GiB", "unit": "GB/s", "ours": 8e-9 * elements / ours, "torch": 8e-9 * elements / theirs, "problem": None}
    print(speed_text(row), flush=True)
    return row


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call of PyTorch's, by the clock that ours is measured with."""
    device = driver()
    with device.current():
        return measure_on_gpu(device, call, repeat=3, min_repeat_ms=20, flush_cache=True).min


def speed_row(row: Speed, declared: Operator, module: Any) -> dict[str, Any]:
    """Times one operator on tensors of PyTorch, ours and theirs in turn, and compares the results: NumPy would take minutes at these sizes."""
    tensors = [torch.from_numpy(array).cuda() for array in inputs_of(declared)]
    spec = module.signature[len(module.signature) - 1]
    output = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="cuda")
    module(*tensors, output)
    expected = row.peer(tensors)
    scale, worst = float(expected.float().abs().max()), float((output.float() - expected.float()).abs().max())
    evaluate = module.time_evaluator(repeat=3, min_repeat_ms=20, flush_cache=True)
    ours, theirs = [], []
    for _ in range(2):
        ours.append(evaluate(*tensors, output).min)
        theirs.append(timed(lambda: row.peer(tensors)))
    work = 1e-9 * (declared.flops if row.unit == "GFLOP/s" else declared.bytes)
    return {
        "speed": row.name,
        "unit": row.unit,
        "ours": work / min(ours),
        "torch": work / min(theirs),
        "ours_s": min(ours),
        "torch_s": min(theirs),
        "problem": None if worst <= 2e-2 * scale else f"differs from PyTorch by {worst:.3g} of {scale:.3g}",
        "resources": {name: asdict(used) for name, used in module.resources.items()},
    }


def inputs_of(declared: Operator) -> list[Any]:
    """Random inputs."""
    rng = np.random.default_rng(0)
    inputs = []
    for tensor in declared.args[:-1]:
        if tensor.dtype == "int8":
            inputs.append(rng.integers(-8, 9, tensor.shape).astype("int8"))
        else:
            inputs.append(rng.standard_normal(tensor.shape, dtype=np.float32).astype(str(tensor.dtype)))
    return inputs


def speed_text(row: dict[str, Any]) -> str:
    """A line of the table."""
    if row.get("ours") is None:
        return f"WRONG {row['speed']}: {row['problem']}"
    head = f"{row['speed']:28} {row['ours']:10.1f} {row['unit']:8} torch {row['torch']:10.1f}   ratio {row['ours'] / row['torch']:.2f}"
    return head + (f"   WRONG: {row['problem']}" if row["problem"] else "")


def run_speeds(target: tw.Target, only: str, clock: Clock, workers: int) -> list[dict[str, Any]]:
    """The bandwidth and every row of SPEEDS; prints a line for each."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # float32 means float32, as in ours
    results = [bandwidth(target)] if only in "copy" else []
    rows = [row for row in SPEEDS if only in row.name]
    jobs = [(row, lambda row=row: kernel_of(row.operator, row.sizes, row.options, target)) for row in rows]
    for row, future in built_ahead(jobs, workers):
        if clock.is_over():
            found: dict[str, Any] = {"speed": row.name, "problem": "no time left"}
        else:
            try:
                found = speed_row(row, *future.result())
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                found = {"speed": row.name, "problem": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(speed_text(found), flush=True)
        results.append(found)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", action="store_true", help="only the first half")
    parser.add_argument("--speed", action="store_true", help="only the second half")
    parser.add_argument("--emulator", action="store_true", help="run the checks without a GPU, and look for races")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has this in it")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--limit-s", type=float, default=480.0, help="no row begins after this many seconds")
    parser.add_argument("--workers", type=int, default=tw.Target("c").threads, help="kernels that are compiled at the same time")
    options = parser.parse_args()
    clock = Clock(options.limit_s)
    if options.emulator:
        target, machine = tw.Target("cuda", device="emulator"), "the emulator"
    else:
        try:
            device = driver()
        except tw.TargetError as error:
            sys.exit(str(error))
        capability = max((gpu.capability for gpu in GPUS.values() if gpu.capability <= device.capability), default=75)
        target, machine = tw.Target("cuda", arch=f"sm_{capability}"), f"{device.name}, sm_{device.capability}, through {device.package}"
    print(f"{machine}; {target}", flush=True)
    results = []
    if not options.speed:
        results += run_checks(target, options.only, clock, options.workers)
    if not options.checks and not options.emulator:
        if torch is None or not torch.cuda.is_available():
            print("speeds are left out: they need PyTorch with CUDA", file=sys.stderr)
            return 1
        results += run_speeds(target, options.only, clock, options.workers)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine, "target": target.options, "rows": results}, file, indent=1)
    wrong = [row for row in results if row["problem"]]
    print(f"{len(results) - len(wrong)} rows right, {len(wrong)} wrong or missing")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
