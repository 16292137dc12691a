"""CUDA modules as files: what is exported comes back, in another process too, and what is damaged is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.targets import cuda_toolchain
from tilewright.targets.cuda_files import description_of, is_cubin, is_description, read_description

from .test_gpu_runtime import gpu, on, scaled  # noqa: F401 - gpu is a fixture

EMULATOR = tw.Target("cuda", device="emulator", threads=1)


def test_a_description_comes_back_the_same():
    module = scaled(None, stages=2, target=EMULATOR)
    text = description_of(module._generated, EMULATOR)
    generated, target, usage = read_description(text, "here")
    assert (generated, target, usage) == (module._generated, EMULATOR, {}) and is_description(text.encode()) and not is_cubin(text.encode())


def test_an_exported_kernel_needs_no_compiler(gpu, tmp_path, monkeypatch):  # noqa: F811
    module = on(gpu, scaled())
    module.export_library(tmp_path / "scaled.cubin")
    assert {path.name for path in tmp_path.iterdir()} == {"scaled.cubin", "scaled.json", "scaled.ptx"}
    monkeypatch.setattr(cuda_toolchain, "find_cuda_compiler", lambda name=None: pytest.fail("a compiler was looked for"))
    for name in ("scaled.cubin", "scaled.json"):
        again = tw.load_module(tmp_path / name)
        b = np.zeros(4096, "f")
        again(np.ones(4096, "f"), b)
        assert (b == 4).all() and again.resources == module.resources and again.get_source("ptx") == module.get_source("ptx")


def test_a_saved_module_runs_on_the_emulator(tmp_path):
    """What a tuning worker hands to the process that measures."""
    scaled(target=EMULATOR).save(tmp_path / "it.so")
    b = np.zeros(4096, "f")
    tw.load_module(tmp_path / "it.so")(np.ones(4096, "f"), b)
    assert (b == 4).all()


def test_what_is_no_cuda_function(tmp_path, cuda_compiler):
    module = scaled()
    module.export_library(tmp_path / "it.cubin")
    text = (tmp_path / "it.json").read_text()
    for damaged in (text[:200], text.replace('"launches"', '"launched"'), text.replace('"grid"', '"grill"')):
        (tmp_path / "it.json").write_text(damaged)
        with pytest.raises(tw.TargetError, match=r"it\.json: it cannot be read as a CUDA function"):
            tw.load_module(tmp_path / "it.cubin")
    (tmp_path / "it.json").write_text(json.dumps({**json.loads(text), "tilewright_cuda": 9}))
    with pytest.raises(tw.TargetError, match="whose files are of version 9, ours are 1"):
        tw.load_module(tmp_path / "it.json")
    shutil.move(tmp_path / "it.json", tmp_path / "other.json")
    with pytest.raises(tw.TargetError, match=r"it\.json.* cannot be read"):
        tw.load_module(tmp_path / "it.cubin")
    with pytest.raises(tw.TargetError, match="give it another"):
        module.export_library(tmp_path / "it.ptx")


def test_constants_are_not_exported(tmp_path, cuda_compiler):
    A, W = te.placeholder((64,), name="A"), te.placeholder((64,), name="W")
    B = te.compute((64,), lambda i: A[i] * W[i], name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [A, B], EMULATOR, constants={W: np.ones(64, "f")})
    for write in (module.export_library, module.save):
        with pytest.raises(tw.TargetError, match="constant operands"):
            write(tmp_path / "it.cubin")
