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
import tilewright
from tilewright.targets.generated import ArgumentSpec, Generated
from tilewright.targets.module import compile_module
from tilewright.tir.target import Target

source = "#include <stdint.h>\\nint32_t twice(const float *A, float *B) { for (int i = 0; i < 8; ++i) B[i] = 2 * A[i]; return 0; }\\n"
arguments = (ArgumentSpec("A", "float32", (8,), False), ArgumentSpec("B", "float32", (8,), True))
module = compile_module(Generated("twice", source, arguments), Target("c"))
a, b = np.arange(8, dtype="float32"), np.empty(8, "float32")
module(a, b)
assert (b == 2 * a).all()
print(tilewright.__file__)
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
