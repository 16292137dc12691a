"""A CUDA compiler and a cache of its own for these tests."""

from __future__ import annotations

import pytest

from tilewright.targets.cuda_toolchain import find_cuda_compiler
from tilewright.tir.errors import TargetError


@pytest.fixture(scope="session")
def cuda_compiler():
    """The compiler that serves here. NVRTC comes with the extra `test`, so where that is installed nothing is skipped."""
    try:
        return find_cuda_compiler()
    except TargetError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
