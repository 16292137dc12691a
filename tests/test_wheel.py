"""The wheel: built from a copy of the checkout in a folder of another name, installed in a fresh environment, and run from there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import tilewright

ROOT = Path(tilewright.__file__).resolve().parent
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests", "*.db", "*.db-*")
RUN_A_KERNEL = """
import numpy as np
import tilewright as tw
from tilewright import te

A, B = te.placeholder((24, 16), name="A"), te.placeholder((16, 20), name="B")
k = te.reduce_axis((0, 16), name="k")
C = te.compute((24, 20), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
s = te.create_schedule(C.op)
s[C].parallel(C.op.axis[0])
module = tw.build(s, [A, B, C], target="c")
a, b, c = np.random.rand(24, 16).astype("f"), np.random.rand(16, 20).astype("f"), np.empty((24, 20), "f")
module(a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-5)
print(tw.__file__)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "some-checkout", ignore=NOT_COPIED)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(*pip, "--wheel-dir", folder, folder / "some-checkout")
    return next(folder.glob("*.whl"))


def test_the_wheel_has_every_file_of_every_room(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    for room in ("tir", "te", "schedule", "targets", "autotune"):
        for path in (ROOT / room).rglob("*.py"):
            assert f"tilewright/{path.relative_to(ROOT).as_posix()}" in packed, "a package that pyproject.toml does not list?"
    for folder in ("include", "runtime"):  # what the CUDA emulator compiles
        for path in (ROOT / "targets" / "emulator" / folder).rglob("*.*"):
            assert f"tilewright/{path.relative_to(ROOT).as_posix()}" in packed, "a folder that pyproject.toml does not list?"
    assert {"tilewright/__init__.py", "tilewright/py.typed"} <= packed
    assert not [name for name in packed if name.startswith(("tilewright/tests", "tilewright/examples", "tests/"))]
    assert any(name.endswith("licenses/LICENSE") for name in packed)


def test_a_kernel_runs_from_the_installed_wheel(wheel, tmp_path):
    """Outside the checkout; NumPy and the like come from the environment of the tests, through a .pth file."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(*pip, wheel)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = run(python, "-c", RUN_A_KERNEL, cwd=tmp_path, env=environment)
    assert Path(where.strip()) == packages / "tilewright" / "__init__.py"
