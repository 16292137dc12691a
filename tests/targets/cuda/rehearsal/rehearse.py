"""Runs a Python program as on a machine with a GPU: the real packages (cuda-bindings, pycuda), over a driver library that is none (fake_driver.cpp).

    python tests/targets/cuda/rehearsal/rehearse.py -m pytest -m gpu tests/targets/cuda
    python tests/targets/cuda/rehearsal/rehearse.py benchmarks/gpu.py --only softmax

Kernels are compiled by nvcc or NVRTC, loaded by the package as cubins, and run by the emulator from the same source. What is shown is that calls, handles,
addresses, parameters and the order of things are right; times mean nothing. PyTorch without CUDA gets tensors of the fake device (site/sitecustomize.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tilewright.targets.toolchain import find_compiler

HERE = Path(__file__).resolve().parent
FLAGS = ("-std=gnu++17", "-O1", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1")
RUNTIME = HERE.parents[3] / "targets" / "emulator" / "runtime"  # launch structures


def environment(folder: Path) -> dict[str, str]:
    """The environment of a rehearsal; the driver library is compiled into `folder`."""
    command = [*find_compiler().command, "-x", "c++", *FLAGS, f"-I{RUNTIME}", str(HERE / "fake_driver.cpp"), "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, "-lstdc++", "-ldl"], check=True)
    found = dict(os.environ)
    for name, entry in (("LD_LIBRARY_PATH", folder), ("PYTHONPATH", HERE / "site")):
        found[name] = os.pathsep.join(filter(None, (str(entry), os.environ.get(name))))
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([sys.executable, *sys.argv[1:]], env=environment(Path(folder)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
