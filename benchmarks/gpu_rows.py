"""What benchmarks/gpu.py asks of a process of its own: the rows, and the work of one. A kernel that fails or hangs takes this process with it, and no other.

Times are the GPU's own, by events in one stream, contenders in turn, with the L2 cache flushed before each call; the figure is the least of the rounds'
means. At these sizes NumPy would take minutes, so results are compared with PyTorch's in float64.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.autotune import default_schedule
from tilewright.autotune.process import Answer, serve
from tilewright.autotune.task import declare_operator
from tilewright.autotune.verify import make_check
from tilewright.targets.cuda_devices import measure_on_gpu
from tilewright.targets.cuda_driver import driver, gpu_is_lost
from tilewright.te.library.operator import Operator
from tilewright.tir.gpu import GPUS

Row = tuple[str, tuple[Any, ...], dict[str, Any]]  # operator, sizes, options

# odd shapes and every dtype that has a way of its own; small, since NumPy computes the references
CHECKS: list[Row] = [
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

_HALF = {"dtype": "float16", "acc_dtype": "float32"}
_CONV = {"padding": 1}
SPEEDS: list[Row] = [
    ("matmul", (2048, 2048, 2048), {}),
    ("matmul", (4096, 4096, 4096), _HALF),
    ("conv2d", (8, 64, 56, 56, 64, 3, 3), _CONV),
    ("softmax", (8192, 8192), {}),
    ("attention", (1, 16, 1024, 1024, 64), {"dtype": "float16"}),
    ("flash_attention", (1, 16, 4096, 4096, 64), {}),
    ("matmul", (4096, 4096, 4096), {}),
    ("matmul", (2048, 2048, 2048), _HALF),
    ("matmul", (2048, 2048, 2048), {"dtype": "int8", "acc_dtype": "int32"}),
    ("conv2d", (8, 256, 14, 14, 256, 3, 3), _CONV),
    ("transpose", (4096, 4096), {}),
    ("layer_norm", (4096, 1024), {}),
    ("softmax", (4096, 1024), {}),
    ("attention", (1, 16, 1024, 1024, 64), {}),
    ("matmul", (1024, 1024, 1024), {}),
    ("matmul", (1024, 1024, 1024), _HALF),
]
COPY: Row = ("copy", (1 << 28,), {})  # of 1 GiB
_MOVES_MEMORY = {"softmax", "layer_norm", "transpose"}  # counted in GB/s
# Relative to the largest element of the result: what float32 sums keep to, and TF32 or sums in half precision do not; roundings of a half result
_TOLERANCES = {"float32": 2e-5, "float16": 2e-3}


def main(parent: int) -> None:
    serve(parent, start)


def start(init: dict[str, Any], mark: Callable[[str], None]) -> Answer:
    """`init`: nothing. A request: `action`, and of a row `operator`, `sizes`, `options`, `arch` and `emulator`."""
    actions = {"machine": machine, "build": build_only, "check": check, "speed": speed, "copy": copy}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return actions[request["action"]](request, mark)
        except Exception as error:
            if gpu_is_lost():
                raise SystemExit(f"{type(error).__name__}: {error}") from None  # the next row gets a new process
            raise

    return answer


def target_of(request: dict[str, Any]) -> tw.Target:
    return tw.Target("cuda", arch=request["arch"], device="emulator" if request["emulator"] else "gpu")


def kernel_of(request: dict[str, Any]) -> tuple[Operator, Any]:
    """An operator with its default schedule, compiled. In the emulator its checks look for races."""
    target = target_of(request)
    declared = declare_operator(request["operator"], tuple(request["sizes"]), request["options"])
    check = "race" if request["emulator"] else None
    return declared, tw.build(default_schedule(declared, target), declared.args, target, name=request["operator"], check=check)


def machine(request: dict[str, Any], mark: Callable[[str], None]) -> dict[str, Any]:
    """The GPU, the architecture to build for, and whether PyTorch can use it."""
    if request["emulator"]:
        return {"name": "the emulator", "arch": tw.Target("cuda").arch, "torch": False}
    device = driver()
    capability = max((gpu.capability for gpu in GPUS.values() if gpu.capability <= device.capability), default=75)
    name = f"{device.name}, sm_{device.capability}, through {device.package}"
    if importlib.util.find_spec("torch") is None:
        return {"name": name, "arch": f"sm_{capability}", "torch": False}
    torch = pytorch()
    return {"name": f"{name}; PyTorch {torch.__version__}", "arch": f"sm_{capability}", "torch": torch.cuda.is_available()}


def build_only(request: dict[str, Any], mark: Callable[[str], None]) -> dict[str, Any]:
    """Compiles a row's kernel, which the cache has from then on."""
    if request["operator"] == "copy":
        copy_kernel(target_of(request), *request["sizes"])
    else:
        kernel_of(request)
    return {}


def check(request: dict[str, Any], mark: Callable[[str], None]) -> dict[str, Any]:
    """An operator on random inputs, compared with its NumPy reference."""
    declared, module = kernel_of(request)
    checked = make_check(declared.args, declared.reference, seed=0)
    arguments = checked.arguments()
    mark("run")
    module(*arguments)
    problem = checked.mismatch(arguments)
    if problem is None and request["emulator"] and module.report.races:
        problem = f"races: {module.report.races[0]}"
    module.close()
    return {"problem": problem}


def pytorch() -> Any:
    """PyTorch as it is compared with: float32 means float32, as in ours, and cuDNN tries its algorithms and takes the fastest."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


def peer_of(operator: str) -> Callable[[Sequence[Any]], Any]:
    """What PyTorch is asked for the same."""
    torch = pytorch()
    functional = torch.nn.functional
    peers: dict[str, Callable[[Sequence[Any]], Any]] = {
        "matmul": lambda t: torch._int_mm(*t) if t[0].dtype == torch.int8 else torch.matmul(*t),
        "conv2d": lambda t: functional.conv2d(*t, padding=1),
        "softmax": lambda t: torch.softmax(t[0], -1),
        "layer_norm": lambda t: functional.layer_norm(t[0], t[0].shape[-1:]),
        "transpose": lambda t: t[0].t().contiguous(),
        "attention": lambda t: functional.scaled_dot_product_attention(*t),
    }
    return peers["attention" if operator == "flash_attention" else operator]


def speed(request: dict[str, Any], mark: Callable[[str], None]) -> dict[str, Any]:
    """Times an operator on tensors of PyTorch, ours and theirs in turn, and compares the results. Where PyTorch refuses, `note` says why."""
    torch, peer = pytorch(), peer_of(request["operator"])
    declared, module = kernel_of(request)
    tensors = [torch.from_numpy(array).cuda() for array in inputs_of(declared)]
    spec = module.signature[len(module.signature) - 1]
    output = torch.full(spec.shape, 77, dtype=getattr(torch, spec.dtype), device="cuda")
    mark("run")
    module(*tensors, output)
    torch.cuda.synchronize()
    mark("measure")
    evaluate = module.time_evaluator(repeat=3, min_repeat_ms=20, flush_cache=True)
    ours, theirs, note = [evaluate(*tensors, output).min], [], None
    mark("measure PyTorch")
    try:
        for _ in range(2):
            theirs.append(timed(lambda: peer(tensors)))
            ours.append(evaluate(*tensors, output).min)
    except RuntimeError as error:
        if gpu_is_lost():
            raise
        note = f"PyTorch: {error}".splitlines()[0]
    mark("compare")
    expected = peer([tensor.double() for tensor in tensors])
    scale, worst = float(expected.abs().max()), float((output.double() - expected).abs().max())
    wrong = not worst <= _TOLERANCES.get(spec.dtype, 0.0) * scale  # NaN is wrong
    work = 1e-9 * (declared.bytes if request["operator"] in _MOVES_MEMORY else declared.flops)
    module.close()
    return {
        "unit": "GB/s" if request["operator"] in _MOVES_MEMORY else "GFLOP/s",
        "ours": work / min(ours),
        "torch": work / min(theirs) if theirs else None,
        "ours_s": min(ours),
        "torch_s": min(theirs) if theirs else None,
        "problem": f"differs from PyTorch in float64 by {worst:.3g} where the largest is {scale:.3g}" if wrong else None,
        "note": note,
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


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call of PyTorch's, by the clock that ours is measured with."""
    device = driver()
    with device.current():
        return measure_on_gpu(device, call, repeat=3, min_repeat_ms=20, flush_cache=True).min


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


def copy(request: dict[str, Any], mark: Callable[[str], None]) -> dict[str, Any]:
    """The memory's bandwidth, bytes read and written, by a kernel of ours and by PyTorch's copy."""
    torch = pytorch()
    (elements,) = request["sizes"]
    source, destination = torch.ones(elements, device="cuda"), torch.zeros(elements, device="cuda")
    module = copy_kernel(target_of(request), elements)
    ours = module.time_evaluator(repeat=5, number=5)(source, destination).min
    right = bool((destination == 1).all())
    theirs = timed(lambda: destination.copy_(source))
    module.close()
    moved = 8e-9 * elements
    return {"unit": "GB/s", "ours": moved / ours, "torch": moved / theirs, "problem": None if right else "the copy differs", "note": None}
