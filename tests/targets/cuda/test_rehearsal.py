"""The runtime for GPUs, the tests marked `gpu`, benchmarks/gpu.py and tuning, through the real packages, over a driver library that is none (rehearsal/).

All of the tests: python tests/targets/cuda/rehearsal/rehearse.py -m pytest -m gpu
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .rehearsal.rehearse import environment

ROOT = Path(__file__).resolve().parents[3]
MODULES = {"cuda-bindings": ("cuda", "cuda.bindings"), "pycuda": ("pycuda",)}
WITHOUT = {"cuda-bindings": "pycuda,pycuda.driver", "pycuda": "cuda.bindings.driver,cuda.cuda"}
pytestmark = pytest.mark.usefixtures("cuda_compiler")


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    return environment(tmp_path_factory.mktemp("driver"))


@pytest.fixture(params=["cuda-bindings", "pycuda"])
def package(request, rehearsal):
    """The environment of a program that finds this package only."""
    if not all(importlib.util.find_spec(name) for name in MODULES[request.param]):
        pytest.skip(f"{request.param} is not installed")
    return rehearsal | {"FAKE_CUDA_WITHOUT": WITHOUT[request.param]}


def run(environment: dict[str, str], *words: str, fails: bool = False) -> str:
    """What a Python program says, which ends well unless it `fails`."""
    path = os.pathsep.join([environment["PYTHONPATH"], *sys.path])
    done = subprocess.run([sys.executable, *words], env=environment | {"PYTHONPATH": path}, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)
    assert (done.returncode != 0) == fails, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def test_the_tests_for_gpus(package):
    """Some of them: all take minutes."""
    some = "workspace or much_shared or many_threads or symbolic or pytorch or refuses"
    said = run(package, "-m", "pytest", "-q", "-m", "gpu", "tests/targets/cuda/test_on_gpu.py", "-k", some, "-p", "no:cacheprovider")
    torch = importlib.util.find_spec("torch") is not None
    assert f"{6 if torch else 5} passed" in said and ("skipped" not in said or not torch), said


PROGRAM = """
import gc, threading
import numpy as np
import tilewright as tw
from tilewright import te
from tilewright.targets.cuda_driver import driver

def scaled(n=4096):
    A = te.placeholder((n,), name="A")
    T = te.compute((n,), lambda i: A[i] + 1.0, name="T")
    B = te.compute((n,), lambda i: T[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    for stage in (T, B):
        block, thread = s[stage].split(stage.op.axis[0], factor=128)
        s[stage].bind(block, te.thread_axis("blockIdx.x"))
        s[stage].bind(thread, te.thread_axis("threadIdx.x"))
    return tw.build(s, [A, B], tw.Target("cuda", arch="sm_90"), name="scaled")

a, b = np.ones(4096, "f"), np.zeros(4096, "f")
"""


def test_all_is_given_back(package, tmp_path):
    """Modules that were closed, and that nobody has any more, also those that another thread used; events of a measurement."""
    report = tmp_path / "report"
    program = """
for closes in (True, False):
    module = scaled()
    module(a, b)
    assert (b == 4).all()
    for flush in (False, True):
        module.time_evaluator(repeat=2, min_repeat_ms=5, flush_cache=flush)(a, b)
    if closes:
        module.close()
def elsewhere():
    global module
    module = scaled()
    module(a, b)
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
thread = threading.Thread(target=lambda: globals().pop("module"))
thread.start()
thread.join()
gc.collect()
"""
    said = run(package | {"FAKE_CUDA_REPORT": str(report)}, "-c", PROGRAM + program)
    found = json.loads(report.read_text())
    assert found["modules"] == found["events"] == found["allocations"] == 0 and found["launches"] > 10 and found["most_events"] <= 20
    assert "WARNING" not in said.upper() and "fake CUDA driver" not in said, said


@pytest.mark.parametrize("address", ["freed", "of the host"])
def test_a_kernel_that_fails_takes_the_context_with_it(package, address):
    """It is said what failed, then that all is lost; the process ends quietly."""
    program = f"""
device = driver()
with device.current():
    memory = device.allocate(4 * 4096)
    device.free(memory)
address = memory if {address == "freed"} else a.ctypes.data

class Array:
    __cuda_array_interface__ = {{"shape": (4096,), "typestr": "<f4", "data": (address, False), "version": 3}}

module = scaled()
for call in range(2):
    try:
        module(Array(), b)
        raise AssertionError("no error")
    except tw.TargetError as error:
        assert "the GPU's context is lost" in str(error), error
        assert call or "a kernel failed" in str(error), error
assert device.is_lost()
module.close()
"""
    said = run(package, "-c", PROGRAM + program)
    assert "which is no address of this device's" in said and "Traceback" not in said, said


def test_what_is_refused_leaves_the_context_as_it_was(package):
    program = """
device = driver()
module = scaled()
module(a, b)
with device.current():
    loaded = device.load(module._build.cubin_path.read_bytes())
    function = device.function(loaded, "scaled_T", 0)
    for grid, block, shared in (((1, 1, 1), (2048, 1, 1), 0), ((1, 70000, 1), (1, 1, 1), 0), ((1, 1, 1), (32, 1, 1), 49 << 10)):
        try:
            device.launch(function, grid, block, shared, device.packed([]))
            raise AssertionError("launched")
        except tw.TargetError as error:
            assert "a kernel cannot be launched" in str(error) and "lost" not in str(error), error
    del function
    device.unload(loaded)
    try:
        device.allocate(1 << 50)
        raise AssertionError("allocated")
    except MemoryError as error:
        assert str(1 << 50) in str(error)
try:
    other = driver(1)
    raise AssertionError("there is no second one")
except tw.TargetError as error:
    assert "no GPU number 1; the driver sees 1" in str(error)
module(a, b)
assert (b == 4).all() and not device.is_lost()
"""
    run(package, "-c", PROGRAM + program)


def test_code_for_another_generation(package):
    """A newer GPU gets PTX, which its driver compiles; an older one is refused by name."""
    run(package | {"FAKE_CUDA_CAPABILITY": "100"}, "-c", PROGRAM + "scaled()(a, b)\nassert (b == 4).all()")
    said = run(package | {"FAKE_CUDA_CAPABILITY": "86"}, "-c", PROGRAM + "scaled()(a, b)", fails=True)
    assert 'build it with Target("cuda", arch="sm_86")' in said


def test_a_driver_library_that_is_not_there(package):
    """As on a machine without NVIDIA's driver: an error that says what to do, whichever package is installed."""
    said = run({name: value for name, value in package.items() if name != "LD_LIBRARY_PATH"}, "-c", PROGRAM + "scaled()(a, b)", fails=True)
    assert "TargetError: no GPU can be used" in said and "is installed, but" in said and 'device="emulator"' in said


def test_the_benchmark(package, tmp_path):
    """One operator's checks and speeds, and the copy; all rows take minutes."""
    torch = importlib.util.find_spec("torch") is not None
    said = run(package, "benchmarks/gpu.py", "--small", "--only", "softmax", "--out", str(tmp_path), fails=not torch)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["problem"] for row in rows] == [None] * (4 if torch else 2), said
    if torch:
        assert all(row["ours"] > 0 and row["torch"] > 0 and row["note"] is None for row in rows if row["kind"] == "speed")
        run(package, "benchmarks/gpu.py", "--small", "--only", "copy")


def test_rows_of_the_benchmark_that_fail_and_hang(package):
    """Each costs itself: what a lost context is given next fails too, so the next row has a new process."""
    bad = package | {"FAKE_CUDA_FAILS": "relu", "FAKE_CUDA_HANGS": "silu"}
    said = run(bad, "benchmarks/gpu.py", "--checks", "--only", "lu 1000", "--row-s", "20", fails=True)
    assert "WRONG relu 1000 33: the worker process died (exit status 1): TargetError: a kernel failed" in said and "context is lost" in said
    assert "ok    gelu 1000 33" in said and "WRONG silu 1000 33 dtype=bfloat16: no answer within 20 s" in said and "(during: run)" in said
    assert "1 rows right, 2 wrong or missing" in said


def test_tuning(package, tmp_path):
    """Times are the GPU's: a call with its copies takes longer here than any candidate may."""
    program = """
import sys
import tilewright as tw
from tilewright.autotune import Task, tune
found = tune(Task("matmul", (64, 64, 64), target=tw.Target("cuda", arch="sm_90")), trials=4, log=sys.argv[1], timeout_s=120, progress=False)
assert [trial.status for trial in found.trials] == ["ok"] * 4, found
assert all(abs(time - 1e-3) < 1e-4 and len(trial.repeats) >= 5 for trial in found.trials for time in trial.repeats), found.trials
"""
    run(package, "-c", program, str(tmp_path / "log.db"))
