"""Running kernels on a GPU, through both packages, against a driver that is not one (fake_cuda.py): what is copied, launched, timed and refused."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.targets import cuda_driver
from tilewright.targets.cuda_driver import BindingsDriver, PycudaDriver
from tilewright.targets.emulator import Program
from tilewright.tir.errors import ArgumentError, TargetError

from .fake_cuda import DeviceArray, FakeGpu, bindings_driver, pycuda_driver

GPU = tw.Target("cuda", arch="sm_90")
pytestmark = pytest.mark.usefixtures("cuda_compiler")


@pytest.fixture(params=["pycuda", "cuda-bindings"])
def gpu(request, monkeypatch):
    """A fake GPU that the module finds through one of the packages."""
    found = FakeGpu()
    use(found, request.param, monkeypatch)
    return found


def use(gpu: FakeGpu, package: str, monkeypatch) -> None:
    monkeypatch.setattr(cuda_driver, "_drivers", {})
    if package == "pycuda":
        monkeypatch.setattr(cuda_driver, "_installed", lambda: (PycudaDriver, pycuda_driver(gpu)))
    else:
        monkeypatch.setattr(cuda_driver, "_installed", lambda: (BindingsDriver, bindings_driver(gpu)))


def scaled(n: int | None = 4096, stages: int = 1, target: tw.Target = GPU):
    """B = (A + 1) * 2 with vectors of four, in one kernel or two."""
    extent = te.var("n") if n is None else n
    A = te.placeholder((extent,), name="A")
    T = te.compute((extent,), lambda i: A[i] + 1.0, name="T")
    B = te.compute((extent,), lambda i: T[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    for number, stage in enumerate((T, B)):
        if stage is T and stages == 1:
            s[T].compute_inline()
            continue
        outer, inner = s[stage].split(stage.op.axis[0], factor=256 >> number)
        thread, lane = s[stage].split(inner, factor=4 if n is not None else 1)
        s[stage].bind(outer, te.thread_axis("blockIdx.x"))
        s[stage].bind(thread, te.thread_axis("threadIdx.x"))
        if n is not None:
            s[stage].vectorize(lane)
    return tw.build(s, [A, B], target, name="scaled")


def on(gpu: FakeGpu, module):
    """`module`, whose kernels the fake GPU can run."""
    gpu.programs.append(Program(module.get_source(), list(module.resources)))
    return module


def test_numpy_arrays_are_copied_and_only_outputs_come_back(gpu):
    module = on(gpu, scaled())
    a, b = np.arange(4096, dtype="f"), np.full(4096, np.nan, "f")
    before = a.copy()
    module(a, b)
    np.testing.assert_array_equal(b, (before + 1) * 2)
    np.testing.assert_array_equal(a, before)
    assert gpu.memory == {} and gpu.contexts == 0 and gpu.log[-1] == "launch scaled (32, 1, 1) (32, 1, 1) 0"


def test_read_only_inputs_are_fine(gpu):
    module = on(gpu, scaled())
    a, b = np.ones(4096, "f"), np.zeros(4096, "f")
    a.flags.writeable = False
    module(a, b)
    assert (b == 4).all()


def test_arrays_of_the_device_are_not_copied(gpu):
    module = on(gpu, scaled())
    a, b = DeviceArray(gpu, np.arange(4096, dtype="f")), DeviceArray(gpu, np.zeros(4096, "f"))
    before = len(gpu.memory)
    module(a, b)
    np.testing.assert_array_equal(b.numpy(), (np.arange(4096) + 1) * 2)
    assert len(gpu.memory) == before


def test_arrays_of_host_and_device_together(gpu):
    module = on(gpu, scaled())
    a, b = DeviceArray(gpu, np.ones(4096, "f")), np.zeros(4096, "f")
    module(a, b)
    assert (b == 4).all()


def test_two_kernels_and_a_workspace_that_is_kept(gpu):
    module = on(gpu, scaled(stages=2))
    assert list(module.resources) == ["scaled_T", "scaled_B"] and module.workspace_bytes == 4 * 4096
    for value in (1, 2):
        b = np.zeros(4096, "f")
        module(np.full(4096, value, "f"), b)
        assert (b == 2 * (value + 1)).all()
        assert [room.nbytes for room in gpu.memory.values()] == [4 * 4096]
    module.close()
    assert gpu.memory == {}
    with pytest.raises(TargetError, match="scaled was closed"):
        module(b, b.copy())


def test_symbolic_sizes(gpu):
    module = on(gpu, scaled(None))
    for n in (1, 255, 1000):
        b = np.zeros(n, "f")
        module(np.ones(n, "f"), b)
        assert (b == 4).all()
    launches = len(gpu.log)
    module(np.ones(0, "f"), np.zeros(0, "f"))
    assert len(gpu.log) == launches, "an empty grid is not launched"


def test_calls_leave_nothing_behind(gpu):
    """Neither of a call without a workspace, nor of a workspace that is too small by now; what a module has goes with it."""
    module = on(gpu, scaled())
    for _ in range(3):
        module(np.ones(4096, "f"), np.zeros(4096, "f"))
    assert module._device._held.workspaces == {}
    symbolic = on(gpu, scaled(None, stages=2))
    gpu.programs = gpu.programs[1:]
    for n in (256, 4096, 1024):
        symbolic(np.ones(n, "f"), np.zeros(n, "f"))
    assert [room.nbytes for room in gpu.memory.values()] == [4 * 4096]
    del symbolic
    gc.collect()
    assert gpu.memory == {} and gpu.contexts == 0


def test_much_shared_memory_is_asked_for(gpu):
    A = te.placeholder((64 << 8,), name="A")
    B = te.compute((64 << 8,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    shared = s.cache_read(A, "shared", [B])
    outer, inner = s[B].split(B.op.axis[0], nparts=1)
    loop, thread = s[B].split(inner, factor=64)
    s[B].bind(outer, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    s[shared].compute_at(s[B], outer)
    _, t = s[shared].split(s[shared].op.axis[0], factor=64)
    s[shared].bind(t, te.thread_axis("threadIdx.x"))
    module = on(gpu, tw.build(s, [A, B], GPU))
    (resources,) = module.resources.values()
    assert resources.shared_bytes == 64 << 10
    a, b = np.arange(64 << 8, dtype="f"), np.zeros(64 << 8, "f")
    module(a, b)
    np.testing.assert_array_equal(b, a * 2)


def test_alignment_matters_on_the_device_only(gpu):
    module = on(gpu, scaled())
    b = DeviceArray(gpu, np.zeros(4096, "f"))
    with pytest.raises(ArgumentError, match=r"argument 1 of scaled, 'A': the kernel moves vectors of 16 bytes.*offset of 4 bytes"):
        module(DeviceArray(gpu, np.ones(4096, "f"), offset=4), b)
    module(np.ones(4097, "f")[1:], b)
    assert (b.numpy() == 4).all()


def test_wrong_arguments_are_named(gpu):
    module = on(gpu, scaled())
    with pytest.raises(ArgumentError, match="'B': expected dtype float32, found float64"):
        module(np.ones(4096, "f"), np.ones(4096))
    with pytest.raises(ArgumentError, match=r"'A'.*expected shape"):
        module(DeviceArray(gpu, np.ones(4095, "f")), np.ones(4096, "f"))


def test_times_are_those_of_the_device(gpu):
    module = on(gpu, scaled())
    arrays = np.ones(4096, "f"), np.zeros(4096, "f")
    for flush_cache in (False, True):
        result = module.time_evaluator(repeat=3, number=5, flush_cache=flush_cache)(*arrays)
        assert result.number == 5 and result.results == pytest.approx([1e-4] * 3)
    assert module.time_evaluator(repeat=1, min_repeat_ms=1)(*arrays).number >= 10
    assert gpu.memory == {} and gpu.contexts == 0 and (arrays[1] == 4).all()
    with pytest.raises(ArgumentError, match="repeat=0"):
        module.time_evaluator(repeat=0)(*arrays)


def test_a_context_that_is_lost_is_not_asked_for_ever(gpu):
    """What went wrong in a kernel comes back from whatever is called next, which may be what makes the context current."""
    module = on(gpu, scaled())
    arrays = np.zeros(4096, "float32"), np.zeros(4096, "float32")
    module(*arrays)
    gpu.refuses_contexts = True
    assert cuda_driver.gpu_is_lost()
    with pytest.raises(TargetError, match=r"the primary context: CUDA driver: .*context is lost"):
        module(*arrays)
    gpu.refuses_contexts = False


def test_a_kernel_that_failed_is_told(gpu):
    module = on(gpu, scaled())
    gpu.fails_next = True
    with pytest.raises(TargetError, match="a kernel failed: CUDA driver"):
        module(np.ones(4096, "f"), np.ones(4096, "f"))
    assert gpu.memory == {} and gpu.contexts == 0


def test_memory_that_is_not_there(gpu):
    module = on(gpu, scaled())
    gpu.memory_bytes = 4096 * 5
    with pytest.raises(MemoryError, match="16384 bytes on Fake GPU"):
        module(np.ones(4096, "f"), np.ones(4096, "f"))
    assert gpu.memory == {} and gpu.contexts == 0


@pytest.mark.parametrize("package", ["pycuda", "cuda-bindings"])
def test_code_for_another_generation(package, monkeypatch):
    """Newer: the driver compiles PTX. Older: refused."""
    newer, older = FakeGpu((10, 0)), FakeGpu((8, 6))
    use(newer, package, monkeypatch)
    module = on(newer, scaled())
    module(np.ones(4096, "f"), np.ones(4096, "f"))
    assert not newer.images[0].startswith(b"\x7fELF")
    use(older, package, monkeypatch)
    with pytest.raises(TargetError, match=r'scaled was built for sm_90, but the GPU \(Fake GPU\) is sm_86: build it with Target\("cuda", arch="sm_86"\)'):
        scaled()(np.ones(4096, "f"), np.ones(4096, "f"))


def test_calls_from_many_threads(gpu):
    module = on(gpu, scaled(stages=2))
    failures = []

    def call(value):
        for _ in range(5):
            b = np.zeros(4096, "f")
            module(np.full(4096, value, "f"), b)
            if not (b == 2 * (value + 1)).all():
                failures.append(value)

    threads = [threading.Thread(target=call, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("package", ["pycuda", "cuda-bindings"])
def test_no_device(package, monkeypatch):
    use(FakeGpu(count=0), package, monkeypatch)
    with pytest.raises(TargetError, match=r"no GPU number 0; the driver sees 0.*pycuda.*cuda-bindings.*emulator"):
        scaled()(np.ones(4096, "f"), np.ones(4096, "f"))


@pytest.mark.parametrize("package", ["pycuda", "cuda-bindings"])
def test_a_driver_that_does_not_start(package, monkeypatch):
    gpu = FakeGpu()
    gpu.starts = False
    use(gpu, package, monkeypatch)
    with pytest.raises(TargetError, match=r"the GPU cannot be used: CUDA driver: .*pycuda.*cuda-bindings.*emulator"):
        scaled()(np.ones(4096, "f"), np.ones(4096, "f"))


def test_no_package(monkeypatch):
    monkeypatch.setattr(cuda_driver, "_drivers", {})
    monkeypatch.setattr(cuda_driver, "_PACKAGES", ((PycudaDriver, ("no_such_package.driver",)),))
    module = scaled()
    assert module.resources["scaled"].registers > 0 and ".target sm_90" in module.get_source("ptx"), "building needs no GPU"
    with pytest.raises(TargetError, match=r"no GPU can be used: .*pip install 'tilewright\[cuda\]'.*emulator"):
        module(np.ones(4096, "f"), np.ones(4096, "f"))


def test_constants_go_to_the_device_once(gpu):
    A, W = te.placeholder((256,), name="A"), te.placeholder((256,), name="W")
    B = te.compute((256,), lambda i: A[i] * W[i], name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    w = np.arange(256, dtype="f")
    module = on(gpu, tw.build(s, [A, B], GPU, constants={W: w}))
    for _ in range(2):
        b = np.zeros(256, "f")
        module(np.full(256, 2, "f"), b)
        np.testing.assert_array_equal(b, 2 * w)
        assert len(gpu.memory) == 1
    module.close()
    assert gpu.memory == {}
