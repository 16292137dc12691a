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
    found = read_description(text, "here")
    assert (found.generated, found.target, found.constants, found.usage) == (module._generated, EMULATOR, [], {})
    assert is_description(text.encode()) and not is_cubin(text.encode())


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
    for damaged in (text[:200], text.replace('"sha256"', '"sha255"'), text[:30] + "[" * 100000):
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


CHANGES = [("grid", "grill"), ('"dynamic_shared_bytes": 0', '"dynamic_shared_bytes": "n"'), ("float32", "float64"), ('"launches": [', '"launches": [{},')]


@pytest.mark.parametrize("change", CHANGES)
def test_a_description_that_was_changed_is_refused(tmp_path, change):
    """Its numbers would launch kernels on other memory than there is, or be errors of Python in a call."""
    scaled(target=EMULATOR).save(tmp_path / "it.json")
    text = (tmp_path / "it.json").read_text()
    assert change[0] in text
    (tmp_path / "it.json").write_text(text.replace(*change))
    with pytest.raises(tw.TargetError, match=r"it\.json: its contents are not those that were written"):
        tw.load_module(tmp_path / "it.json")


def test_code_of_another_function_is_refused(tmp_path, cuda_compiler):
    for stages, name in ((1, "one.bin"), (2, "two.bin")):
        scaled(stages=stages).export_library(tmp_path / name)
    assert "scaled" in tw.load_module(tmp_path / "one.bin").get_source("ptx")
    for ending in ("bin", "ptx"):
        kept = (tmp_path / f"one.{ending}").read_bytes()
        shutil.copy(tmp_path / f"two.{ending}", tmp_path / f"one.{ending}")
        with pytest.raises(tw.TargetError, match=rf"one\.{ending}: it is not the code that was written with its description"):
            tw.load_module(tmp_path / "one.bin")
        (tmp_path / f"one.{ending}").write_bytes(kept)


def with_constants(target=EMULATOR, dtype="float32"):
    """B[i] = A[i] * W[i] + the largest A[i] * V[k]: W stays in global memory, V goes to constant memory."""
    A, W, V = te.placeholder((64,), dtype, name="A"), te.placeholder((64,), dtype, name="W"), te.placeholder((3,), dtype, name="V")
    k = te.reduce_axis((0, 3), name="k")
    S = te.compute((64,), lambda i: te.max(V[k] * A[i], axis=k), name="S")
    B = te.compute((64,), lambda i: A[i] * W[i] + S[i], name="B")
    s = te.create_schedule(B.op)
    i = B.op.axis[0]
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    s[S].compute_at(s[B], i)
    w, v = np.arange(64).astype(dtype), np.array([1, 2, 3], dtype)
    return tw.build(s, [A, B], target, name="both", constants={W: w, V: v}), np.arange(64) + 3


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
def test_constants_are_exported(gpu, tmp_path, monkeypatch, dtype):  # noqa: F811
    module, want = with_constants(tw.Target("cuda", arch="sm_90"), dtype)
    on(gpu, module).export_library(tmp_path / "both.cubin")
    module.close()
    monkeypatch.setattr(cuda_toolchain, "find_cuda_compiler", lambda name=None: pytest.fail("a compiler was looked for"))
    again = tw.load_module(tmp_path / "both.cubin")
    again.export_library(tmp_path / "copy.cubin")
    for module in (again, tw.load_module(tmp_path / "copy.json")):
        for _ in range(2):
            b = np.zeros(64, dtype)
            module(np.ones(64, dtype), b)
            assert (b == want.astype(dtype)).all() and len(gpu.memory) == 1, "W was uploaded once"
        assert str(module.signature) == f"both(A: {dtype}[64], B: out {dtype}[64])"
        module.close()
    assert gpu.memory == {}


def test_a_saved_module_has_its_constants(tmp_path):
    module, want = with_constants()
    module.save(tmp_path / "it.so")
    del module
    b = np.zeros(64, "f")
    tw.load_module(tmp_path / "it.so")(np.ones(64, "f"), b)
    assert (b == want).all() and [path.name for path in tmp_path.iterdir()] == ["it.so"]


def test_damaged_constants_are_refused(tmp_path):
    with_constants()[0].save(tmp_path / "it.json")
    data = json.loads((tmp_path / "it.json").read_text())
    (value,) = data["values"]
    text = value["base64"]
    for damaged in (text[:-8], "AAAA" + text, text.replace("A", "B", 1), ""):
        (tmp_path / "it.json").write_text(json.dumps({**data, "values": [{**value, "base64": damaged}]}))
        with pytest.raises(tw.TargetError, match=r"it\.json: the values of constant 'W' are not those that were written: the file is damaged"):
            tw.load_module(tmp_path / "it.json")
    (constant,) = data["constants"]
    for change in ({"shape": [1 << 60]}, {"shape": [-64]}, {"dtype": "float64"}):
        (tmp_path / "it.json").write_text(json.dumps({**data, "constants": [{**constant, **change}]}))
        with pytest.raises(tw.TargetError, match="are not those that were written"):
            tw.load_module(tmp_path / "it.json")
    for values in ([], [value, value], None, [text], [{"base64": text}], [{**value, "base64": "*"}]):
        (tmp_path / "it.json").write_text(json.dumps({**data, "values": values}))
        with pytest.raises(tw.TargetError, match=r"it\.json: it cannot be read as a CUDA function"):
            tw.load_module(tmp_path / "it.json")
