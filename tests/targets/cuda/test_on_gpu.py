"""On a real GPU: what the emulator's tests say of numbers, and what only hardware can say. Each test skips, saying why, where there is no GPU."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.targets.cuda import generate
from tilewright.targets.cuda_driver import driver
from tilewright.targets.cuda_module import compile_cuda_module
from tilewright.tir.dtype import SCALAR_NAMES, dtype
from tilewright.tir.errors import ScheduleError, TargetError
from tilewright.tir.expr import Buffer, call, cast
from tilewright.tir.gpu import ATOMIC_DTYPES, GPUS
from tilewright.tir.interp import interpret
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.passes.legalize import Legalize
from tilewright.tir.stmt import Func, seq

from ..funcs import random_array
from ..test_c import operations, storage_only
from .tensor_core_products import random_product
from .test_cuda import summed
from .test_gpu_runtime import scaled
from .test_halves import check_one_operand, check_two_operands
from .test_numbers import GROUPS, N, over

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def target() -> tw.Target:
    """The target of the GPU that is here."""
    try:
        capability = driver().capability
    except TargetError as error:
        pytest.skip(str(error))
    return tw.Target("cuda", arch=f"sm_{max(gpu.capability for gpu in GPUS.values() if gpu.capability <= capability)}")


def run(func: Func, target: tw.Target, arrays: list[np.ndarray]) -> None:
    compile_cuda_module(generate(Legalize().run(func, target), target), target)(*arrays)


def against_interpreter(func: Func, target: tw.Target, inputs: list[np.ndarray], rtol: float = 0.0) -> None:
    arrays = [*inputs, *(np.zeros(N, numpy_dtype(b.dtype)) for b in func.params[len(inputs) :])]
    reference = [a.copy() for a in arrays]
    run(func, target, arrays)
    with np.errstate(all="ignore"):
        interpret(func, reference)
    for buffer, a, b in zip(func.params, arrays, reference, strict=True):
        wide = a.dtype.kind == "V" or (a.dtype.itemsize < 4 and buffer.dtype.is_float)
        a, b = (x.astype("f8") if wide else x for x in (a, b))
        np.testing.assert_allclose(a, b, rtol=rtol, err_msg=buffer.name) if rtol else np.testing.assert_array_equal(a, b, err_msg=buffer.name)


@pytest.mark.parametrize("kind", [k for k in SCALAR_NAMES if not storage_only(k)])
def test_operations_of_every_dtype(kind, target):
    rng = np.random.default_rng(1)
    func = over("operations", [Buffer("A", (N,), kind), Buffer("B", (N,), kind)], operations)
    against_interpreter(func, target, [random_array(kind, N, rng), random_array(kind, N, rng)])


@pytest.mark.parametrize("kind", SCALAR_NAMES)
def test_conversions_from_every_dtype(kind, target):
    values = random_array(kind, N, np.random.default_rng(2))
    targets = [t for t in SCALAR_NAMES if t != kind and not (dtype(kind).is_float and dtype(t).is_integer)]
    if kind == "int64":
        values = np.clip(values, -(1 << 24), 1 << 24)
    against_interpreter(over("conversions", [Buffer("A", (N,), kind)], lambda a: {f"to_{t}": cast(a, dtype(t)) for t in targets}), target, [values])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_are_rounded_once(kind, target):
    """Bit for bit NumPy's, one at a time and two at a time."""
    check_two_operands(kind, target)
    check_one_operand(kind, target)


def test_functions(target):
    values = np.abs(np.random.default_rng(4).standard_normal(N)).astype("f")

    def functions(a):
        names = ("exp", "exp2", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt", "ceil", "trunc")
        return {n: call(n, a) for n in names} | {"pow": call("pow", a, a), "fma": call("fma", a, a, a)}

    against_interpreter(over("functions", [Buffer("A", (N,))], functions), target, [values], rtol=1e-5)


@pytest.mark.parametrize("kind", ["float32", "int8", "float16"])
def test_reductions_across_threads(kind, target):
    functions = [summed(kind, block, tuple(f"threadIdx.{t}" for t in threads), repeats=2, name=f"s{n}") for n, (block, threads) in enumerate(GROUPS)]
    func = Func("sums", tuple(p for f in functions for p in f.params), frozenset(o for f in functions for o in f.outputs), seq(*(f.body for f in functions)))
    arrays, wanted = [], []
    for block, threads in GROUPS:
        x = np.random.default_rng(6).integers(-3, 4, tuple(block.values())).astype(numpy_dtype(dtype(kind)))
        axes = tuple(number for number, name in enumerate(block) if name[1] in threads)
        arrays += [x.reshape(-1), np.zeros(x.size, x.dtype)]
        wanted.append(np.broadcast_to(x.sum(axes, keepdims=True, dtype=x.dtype), x.shape).reshape(-1))
    run(func, target, arrays)
    for got, expected in zip(arrays[1::2], wanted, strict=True):
        np.testing.assert_array_equal(got, expected)


def added(target: tw.Target, n: int = 1 << 20):
    """B = A + 1, four elements a thread."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    block, inside = s[B].split(B.op.axis[0], factor=1024)
    thread, lane = s[B].split(inside, factor=4)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    s[B].vectorize(lane)
    return tw.build(s, [A, B], target)


def test_tensors_of_pytorch_are_not_copied(target):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA here")
    module = added(target)
    a, b = torch.arange(1 << 20, dtype=torch.float32, device="cuda"), torch.zeros(1 << 20, device="cuda")
    module(a * 2, b)  # in order with PyTorch's own kernels
    assert bool((b == a * 2 + 1).all())
    c = np.zeros(1 << 20, "f")
    module(a, c)
    np.testing.assert_array_equal(c, np.arange(1 << 20, dtype="f") + 1)
    with pytest.raises(tw.ArgumentError, match="vectors of 16 bytes"):
        module(torch.zeros((1 << 20) + 1, device="cuda")[1:], b)


def test_two_kernels_with_a_workspace_between_them(target):
    module = scaled(stages=2, target=target)
    assert list(module.resources) == ["scaled_T", "scaled_B"] and module.workspace_bytes > 0
    for value in (1, 2):
        b = np.zeros(4096, "f")
        module(np.full(4096, value, "f"), b)
        assert (b == 2 * (value + 1)).all()
    module.close()


def test_symbolic_sizes(target):
    module = scaled(None, target=target)
    for n in (1, 255, 1000, 0):
        b = np.zeros(n, "f")
        module(np.ones(n, "f"), b)
        assert (b == 4).all()


def test_much_shared_memory(target):
    A = te.placeholder((60 << 8,), name="A")
    B = te.compute((60 << 8,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    shared = s.cache_read(A, "shared", [B])
    outer, inner = s[B].split(B.op.axis[0], nparts=1)
    s[B].bind(outer, te.thread_axis("blockIdx.x"))
    s[B].bind(s[B].split(inner, factor=64)[1], te.thread_axis("threadIdx.x"))
    s[shared].compute_at(s[B], outer)
    s[shared].bind(s[shared].split(s[shared].op.axis[0], factor=64)[1], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [A, B], target)
    assert next(iter(module.resources.values())).shared_bytes == 60 << 10
    a, b = np.arange(60 << 8, dtype="f"), np.zeros(60 << 8, "f")
    module(a, b)
    np.testing.assert_array_equal(b, a * 2)


def test_calls_from_many_threads(target):
    module = scaled(stages=2, target=target)
    found = {}

    def call(value: int) -> None:
        b = np.zeros(4096, "f")
        for _ in range(3):
            module(np.full(4096, value, "f"), b)
        found[value] = float(b.min()), float(b.max())

    threads = [threading.Thread(target=call, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {value: (2.0 * (value + 1), 2.0 * (value + 1)) for value in range(4)}


def test_times_are_plausible(target):
    """A copy of 256 MiB moves between 50 GB/s and 20 TB/s; flushing makes a small one slower."""
    n = 1 << 26
    large = added(target, n)
    a, b = np.zeros(n, "f"), np.zeros(n, "f")
    seconds = large.time_evaluator(repeat=3, number=3)(a, b).min
    assert 8 * n / 20e12 < seconds < 8 * n / 50e9
    small = added(target)
    a, b = a[: 1 << 20], b[: 1 << 20]
    warm, cold = (small.time_evaluator(repeat=3, number=50, flush_cache=flush)(a, b).min for flush in (False, True))
    assert cold > 0.8 * warm


def test_what_the_driver_refuses_is_told(target):
    """A kernel that is not there: the driver's words, and the next call works."""
    module = added(target)
    a, b = np.zeros(1 << 20, "f"), np.zeros(1 << 20, "f")
    device = driver()
    with device.current():
        loaded = device.load(module._build.cubin_path.read_bytes())
        with pytest.raises(TargetError, match="CUDA driver"):
            device.function(loaded, "no_such_kernel", 0)
        device.unload(loaded)
    assert not device.is_lost()
    module(a, b)
    assert (b == 1).all()


@pytest.mark.parametrize("kind", ATOMIC_DTYPES["add"])
def test_blocks_share_a_sum(kind, target):
    """Whole numbers, so that the order of the blocks, which is not fixed, does not show."""
    A = te.placeholder((40, 1000), kind, name="A")
    k = te.reduce_axis((0, 1000), name="k")
    C = te.compute((40,), lambda i: te.sum(A[i, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(k, factor=128)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.y"))
    s[C].bind(outer, te.thread_axis("blockIdx.x"))
    s[C].bind(s[C].split(inner, factor=32)[1], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [A, C], target)
    a = (np.random.default_rng(3).integers(0, 2, (40, 1000)) * (np.arange(1000) < 200)).astype(numpy_dtype(dtype(kind)))  # all sums are exact in bfloat16
    c = np.full(40, 77).astype(a.dtype)
    module(a, c)
    np.testing.assert_array_equal(c.astype("f8"), a.astype("f8").sum(axis=1))


def test_a_histogram_of_each_block(target):
    X = te.placeholder((100_000,), "int32", name="X")
    k = te.reduce_axis((0, 100_000), name="k")
    H = te.compute((200,), lambda b: te.sum(te.const(1, "int32"), axis=k, where=X[k] == b), name="H")
    s = te.create_schedule(H.op)
    part = s.rfactor(H, s[H].split(k, nparts=64)[0])
    s[part].scatter(s[part].op.axis[1])
    (share,), (b,) = s[H].op.reduce_axis, H.op.axis
    s[H].reorder(share, b)
    s[H].bind(share, te.thread_axis("blockIdx.x"))
    s[H].bind(s[H].split(b, factor=128)[1], te.thread_axis("threadIdx.x"))
    s[part].compute_at(s[H], share)
    s[part].set_scope("shared")
    s[part].bind(s[part].split(s[part].op.reduce_axis[0], factor=128)[1], te.thread_axis("threadIdx.x"))
    x, h = np.random.default_rng(0).integers(-5, 205, 100_000).astype("int32"), np.empty(200, "int32")
    tw.build(s, [X, H], target)(x, h)
    np.testing.assert_array_equal(h, np.bincount(x[(x >= 0) & (x < 200)], minlength=200))


@pytest.mark.parametrize("seed", range(40))
def test_tensor_cores_by_both_sets_of_intrinsics(seed, target):
    """Integers of all sizes and floats that are small integers, exactly: what the fragments of wmma are is the hardware's secret, so only it can say."""
    product = random_product(random.Random(seed))
    print(seed, product)
    try:
        s, args, _ = product.made()
        module = tw.build(s, args, target=target)
    except ScheduleError as error:  # the rule of addresses that test_wmma.py is about
        assert product.shape is not None and "expected a matrix in memory" in str(error)
        return
    except TargetError as error:  # instructions that an older GPU has not
        pytest.skip(str(error))
    a, b, c, expected = product.arrays(np.random.default_rng(seed))
    module(a, b, c)
    np.testing.assert_array_equal(c, expected)
