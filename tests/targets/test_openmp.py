"""The OpenMP runtime in one process with forks, other runtimes, and kernels that come and go. Each test has a process of its own."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from .processes import check_python, run_python

PRELUDE = """
import os, sys, time, threading
import numpy as np
from kernels import add, parallel_fill
from tilewright.targets.module import compile_module
from tilewright.tir.target import Target

def maps():
    return open("/proc/self/maps").read()

def fill(n=4, threads=2):
    module = compile_module(parallel_fill(n, threads), Target("c", threads=threads))
    return module, np.empty(n, "int32"), np.empty(1, "int32")
"""


def test_one_thread_starts_no_openmp():
    check_python(
        PRELUDE
        + """
before = len(os.listdir("/proc/self/task"))
compile_module(add(), Target("c", threads=1))(*(np.ones(8, "f") for _ in range(3)))
assert "libgomp" not in maps()
assert len(os.listdir("/proc/self/task")) == before
"""
    )


def test_the_runtime_survives_the_last_kernel():
    """Its idle threads would wake up in unmapped code."""
    check_python(
        PRELUDE
        + """
for n in range(4, 8):
    module, c, ids = fill(n, 3)
    module(c, ids)
    path = module.library_path
    del module
    time.sleep(0.02)
    assert path not in maps() and "libgomp" in maps()
"""
    )


@pytest.mark.parametrize("first_call_in_parent", [True, False])
def test_a_forked_child_can_call(first_call_in_parent):
    """libgomp alone would wait for ever in the child for the parent's threads."""
    check_python(
        PRELUDE
        + f"""
module, c, ids = fill()
if {first_call_in_parent}:
    module(c, ids)
for generation in range(2):  # a child, and a child of the child
    child = os.fork()
    if child:
        break
    for _ in range(3):
        ids[:] = 0
        module(c, ids)
        assert ids[0] == 2 and c[0] == 0 and c[-1] == 1
    threading.Thread(target=module, args=(c, ids)).start()
    module, c, ids = fill(8)
if child:
    deadline = time.time() + 20
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        if time.time() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            code = "hangs"
            break
        time.sleep(0.01)
    sys.stdout.flush()
    if code != 0:
        print("child:", code, file=sys.stderr)
        os._exit(1)
""",
    )


@pytest.mark.parametrize("environment, spin_count", [({}, "1000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "passive"}, "0")])
def test_how_long_threads_spin(environment, spin_count):
    """OMP_DISPLAY_ENV makes libgomp say what it read when it was loaded. What is set for it stays hidden from everyone else."""
    done = run_python(
        PRELUDE + "module, c, ids = fill(); module(c, ids); print(os.environ.get('GOMP_SPINCOUNT'))",
        **{"OMP_DISPLAY_ENV": "verbose", **environment},
    )
    assert f"GOMP_SPINCOUNT = '{spin_count}'" in done.stderr
    assert done.stdout.strip() == str(environment.get("GOMP_SPINCOUNT"))


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed; it is no dependency of the tests")
@pytest.mark.parametrize("torch_first", [True, False])
def test_with_pytorch_in_one_process(torch_first):
    imports = ["import torch; torch.set_num_threads(2); t = torch.ones(300, 300)", "module, c, ids = fill(); module(c, ids)"]
    check_python(
        PRELUDE
        + "\n".join(imports if torch_first else reversed(imports))
        + """
for _ in range(20):
    assert (t @ t)[0, 0] == 300
    ids[:] = 0
    module(c, ids)
    assert ids[0] == 2
x, y = torch.ones(8), torch.empty(8)
compile_module(add(), Target("c"))(x, x, y)
assert y.tolist() == [2.0] * 8
del module
t @ t
"""
    )
