"""A module from hand-written C: calls, threads, timing, export and load, unloading, what it shows of itself."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from tilewright.targets.libraries import load_module
from tilewright.targets.module import compile_module
from tilewright.tir import target as target_module
from tilewright.tir.errors import ArgumentError, TargetError
from tilewright.tir.target import Target

from . import kernels
from .processes import check_python

TARGET = Target("c", threads=2)


def is_mapped(path):
    return os.path.realpath(path) in Path("/proc/self/maps").read_text()


def test_a_module_computes():
    module = compile_module(kernels.matmul(5, 7, 3), TARGET)
    a, b, c = np.random.rand(5, 3).astype("f"), np.random.rand(3, 7).astype("f"), np.empty((5, 7), "f")
    assert module(a, b, c) is None
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_symbolic_sizes_reach_the_function():
    module = compile_module(kernels.scale_rows(), TARGET)
    for m, n in [(3, 4), (7, 1), (0, 5)]:
        a, s, e, b = np.random.rand(m, n).astype("f"), np.random.rand(m).astype("f"), np.ones(n + 1, "f"), np.empty((m, n), "f")
        module(a, s, e, b)
        np.testing.assert_allclose(b, a * s[:, None] + 1, rtol=1e-6)


def test_a_wrong_argument_is_never_passed_on():
    module = compile_module(kernels.matmul(4, 4, 4), TARGET)
    a = np.ones((4, 4), "f")
    with pytest.raises(ArgumentError, match="mm takes 3 arguments"):
        module(a, a)
    with pytest.raises(ArgumentError, match="argument 3 of mm, 'C': the output overlaps"):
        module(a, a, a)
    with pytest.raises(ArgumentError, match="argument 1 of mm, 'A'"):
        module.time_evaluator()(a.astype("f8"), a, a.copy())


def test_memory_that_could_not_be_had():
    module = compile_module(kernels.fails(), TARGET)
    with pytest.raises(MemoryError, match=r"fails: memory for intermediates .*1099511627776 bytes"):
        module(np.ones(1, "f"))
    with pytest.raises(MemoryError):
        module.time_evaluator()(np.ones(1, "f"))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_openmp_threads(threads):
    module = compile_module(kernels.parallel_fill(12, threads), TARGET)
    c, ids = np.empty(12, "int32"), np.empty(1, "int32")
    module(c, ids)
    assert ids[0] == threads
    np.testing.assert_array_equal(c, np.repeat(np.arange(threads), 12 // threads))


def test_a_call_releases_the_gil_and_modules_are_thread_safe():
    module = compile_module(kernels.sleeps(), TARGET)
    outputs = [np.zeros(1, "f") for _ in range(4)]
    threads = [threading.Thread(target=module, args=(output,)) for output in outputs]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - start < 0.6, "four calls that sleep for 0.2 s each must overlap"
    assert all(output[0] == 7 for output in outputs)


def test_many_threads_with_many_shapes():
    module = compile_module(kernels.scale_rows(), TARGET)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(200):
            m, n = rng.integers(1, 30, 2)
            a, s, e, b = rng.random((m, n), "f"), rng.random(m, "f"), np.zeros(n + 1, "f"), np.empty((m, n), "f")
            module(a, s, e, b)
            if not np.allclose(b, a * s[:, None]):
                wrong.append((seed, m, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_signature_and_what_a_module_shows():
    module = compile_module(kernels.scale_rows(), TARGET)
    assert repr(module.signature) == "scale_rows(A: float32[m, n], s: float32[m], e: float32[n + 1], B: out float32[m, n])"
    assert [(a.name, a.dtype, a.shape, a.is_output) for a in module.signature][3] == ("B", "float32", ("m", "n"), True)
    assert "scale_rows" in repr(module) and "2 threads" in repr(module)
    page = module._repr_html_()
    assert "<table>" in page and "m x n" in page and "#include &lt;stdint.h&gt;" in page
    assert module.workspace_bytes == 0
    assert "int32_t scale_rows(" in module.get_source("c")
    with pytest.raises(TargetError, match="no 'cuda' source"):
        module.get_source("cuda")


def test_time_evaluator():
    module = compile_module(kernels.sleeps(), TARGET)
    result = module.time_evaluator(repeat=2, number=1)(np.zeros(1, "f"))
    assert len(result.results) == 2 and result.number == 1
    assert 0.2 <= result.min <= result.median <= result.max < 0.5 and result.min <= result.mean <= result.max
    assert "median 2" in repr(result) and "ms" in repr(result)


def test_time_evaluator_runs_long_enough_and_counts_calls():
    module = compile_module(kernels.add(64), TARGET)
    arrays = [np.ones(64, "f") for _ in range(3)]
    result = module.time_evaluator(repeat=3, min_repeat_ms=5)(*arrays)
    assert result.number > 100 and result.number * result.max >= 5e-3
    flushed = module.time_evaluator(repeat=3, number=2, flush_cache=True)(*arrays)
    assert flushed.median > result.median
    with pytest.raises(ArgumentError, match="repeat=0"):
        module.time_evaluator(repeat=0)(*arrays)
    for wrong, words in (({"number": "3"}, "number='3'"), ({"repeat": 1.5}, "repeat=1.5"), ({"min_repeat_ms": float("nan")}, "min_repeat_ms is nan")):
        with pytest.raises(ArgumentError, match=words):
            module.time_evaluator(**wrong)(*arrays)


def test_export_and_load_in_another_process(tmp_path):
    compile_module(kernels.matmul(3, 3, 3), TARGET).export_library(tmp_path / "mm.so")
    code = f"""
import numpy as np
from tilewright.targets.libraries import load_module
module = load_module({str(tmp_path / "mm.so")!r})
a, c = np.ones((3, 3), "f"), np.empty((3, 3), "f")
module(a, a, c)
print(c.tolist(), module.signature, module.target)
"""
    shown = check_python(code, PATH="")  # no compiler within reach
    assert shown.split(" mm(")[0] == "[[3.0, 3.0, 3.0], [3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]"
    assert str(TARGET) in shown


def test_the_header_serves_c_and_cpp(tmp_path):
    module = compile_module(kernels.scale_rows(), TARGET)
    module.export_library(tmp_path / "scale.so")
    main = """
#include <stdio.h>
#include "scale.h"
int main(void) {
    float A[2] = {1, 2}, s[1] = {3}, e[3] = {0, 0, 0}, B[2];
    int status = scale_rows(A, s, e, B, 1, 2);
    printf("%d %g %g\\n", status, B[0], B[1]);
    return 0;
}
"""
    header = (tmp_path / "scale.h").read_text()
    assert "Compile with: cc main.c ./scale.so -lm" in header and "Returns 0, or another number when memory for intermediates" in header
    for compiler, name in (("gcc", "main.c"), ("g++", "main.cpp")):
        (tmp_path / name).write_text(main)
        subprocess.run([compiler, "-Wall", "-Werror", name, "./scale.so", "-o", "main", "-lm"], cwd=tmp_path, check=True)
        assert subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "0 3 6\n"


def test_loading_twice_gives_the_file_that_is_there_now(tmp_path):
    path = tmp_path / "f.so"
    arrays = [np.ones(4, "f"), np.ones(4, "f"), np.empty(4, "f")]
    compile_module(kernels.add(4, name="f"), TARGET).export_library(path)
    first = load_module(path)
    generated = kernels.add(4, name="f")
    minus = type(generated)(generated.name, generated.source.replace("A[i] + B[i]", "A[i] - B[i]"), generated.arguments)
    compile_module(minus, TARGET).export_library(path)
    second = load_module(path)
    first(*arrays)
    assert arrays[2].tolist() == [2, 2, 2, 2]
    second(*arrays)
    assert arrays[2].tolist() == [0, 0, 0, 0]


def test_what_cannot_be_loaded_or_exported(tmp_path):
    with pytest.raises(TargetError, match=r"nothing\.so' cannot be read: No such file"):
        load_module(tmp_path / "nothing.so")
    with pytest.raises(TargetError, match="not a library that Tilewright exported"):
        load_module(np.__file__)
    (tmp_path / "text.so").write_text("tilewright_signature")
    with pytest.raises(TargetError, match=r"text\.so cannot be loaded"):
        load_module(tmp_path / "text.so")
    with pytest.raises(TargetError, match="the path is None: expected a text or a path"):
        compile_module(kernels.add(), TARGET).export_library(None)
    with pytest.raises(TargetError, match="the header gets the name"):
        compile_module(kernels.add(), TARGET).export_library(tmp_path / "f.h")
    with pytest.raises(TargetError, match=r"No such file or directory: .*nowhere"):
        compile_module(kernels.add(), TARGET).export_library(tmp_path / "nowhere" / "f.so")


def test_export_after_the_file_is_gone(tmp_path):
    module = compile_module(kernels.add(salt="gone"), TARGET)
    shutil.rmtree(Path(module.library_path).parent)  # what another process does that shrinks the cache
    module.export_library(tmp_path / "f.so")
    loaded = load_module(tmp_path / "f.so")
    (tmp_path / "f.so").unlink()
    a, c = np.ones(8, "f"), np.empty(8, "f")
    loaded(a, a, c)
    assert (c == 2).all()
    with pytest.raises(TargetError, match=r"f\.so, from which add was loaded, cannot be read"):
        loaded.export_library(tmp_path / "g.so")


@pytest.mark.parametrize(
    "change, words",
    [
        ('\\"abi\\":1', "calls are of version 9"),
        ('{\\"abi\\"', "its signature cannot be read"),
        ('\\"vector_bytes\\":', "machine does not have"),
    ],
)
def test_libraries_of_other_versions_and_machines(tmp_path, change, words):
    replacement = {'\\"abi\\":1': '\\"abi\\":9', '{\\"abi\\"': "{oops", '\\"vector_bytes\\":': '\\"vector_bytes\\":64,\\"x\\":'}[change]
    generated = kernels.add()
    target = Target("c", vector_bytes=64) if "vector" in change else TARGET
    source = generated.source_with_signature(target)
    if "vector" not in change:
        assert change in source
        source = source.replace(change, replacement)
    elif Target("c").vector_bytes == 64:
        words = None
    (tmp_path / "f.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "f.c", "-o", "f.so"], cwd=tmp_path, check=True)
    if words is None:
        load_module(tmp_path / "f.so")
        return
    with pytest.raises(TargetError, match=words):
        load_module(tmp_path / "f.so")


def test_a_library_for_another_cpu_is_refused(tmp_path, monkeypatch):
    compile_module(kernels.add(), TARGET).export_library(tmp_path / "f.so")
    load_module(tmp_path / "f.so")
    here = target_module.cpu_features()
    used = sorted(target_module.instruction_sets("native"))
    assert used, "x86-64 and AArch64 machines say what they have"
    monkeypatch.setattr(target_module, "cpu_features", lambda: here - {used[0]})
    with pytest.raises(TargetError, match=rf"f\.so was built for .* this machine \(.*\) does not have: {used[0]}; build it here"):
        load_module(tmp_path / "f.so")


def test_a_system_that_does_not_say_what_it_has_is_trusted(tmp_path, monkeypatch):
    compile_module(kernels.add(), Target("c", march="x86-64-v3")).export_library(tmp_path / "f.so")
    monkeypatch.setattr(target_module, "cpu_features", frozenset)
    load_module(tmp_path / "f.so")


def test_a_build_for_another_cpu_can_be_exported_but_not_called(tmp_path, monkeypatch):
    target = Target("c", march="x86-64-v4")
    real = target_module.cpu_features()
    monkeypatch.setattr(target_module, "cpu_features", lambda: real - {"avx512vl"})
    module = compile_module(kernels.add(), target)
    module.export_library(tmp_path / "f.so")
    a, c = np.ones(8, "f"), np.empty(8, "f")
    for call in (module, module.time_evaluator()):
        with pytest.raises(TargetError, match=r"add was built for x86-64-v4 and uses instructions that this machine does not have: .*avx512vl"):
            call(a, a, c)
    with pytest.raises(TargetError, match="avx512vl"):
        load_module(tmp_path / "f.so")


def test_libraries_are_unloaded():
    module = compile_module(kernels.add(salt="unload"), TARGET)
    path = module.library_path
    arrays = [np.ones(8, "f") for _ in range(3)]
    module(*arrays)
    assert is_mapped(path)
    del module
    gc.collect()
    assert not is_mapped(path)


def test_close_waits_for_calls_that_are_running():
    module = compile_module(kernels.sleeps(), TARGET)
    path, output = module.library_path, np.zeros(1, "f")
    thread = threading.Thread(target=module, args=(output,))
    thread.start()
    time.sleep(0.05)
    module.close()
    assert is_mapped(path), "the function is still running"
    with pytest.raises(TargetError, match="sleeps was closed"):
        module(output)
    thread.join()
    assert output[0] == 7
    assert not is_mapped(path)
    module.close()


def test_loading_and_unloading_leaks_nothing():
    """Neither mappings nor Python objects; the same library a hundred times."""
    generated = kernels.parallel_fill(4, 2)
    compile_module(generated, TARGET)(np.empty(4, "int32"), np.empty(1, "int32"))
    gc.collect()
    mappings = Path("/proc/self/maps").read_text().count("\n")
    kept = []
    for _ in range(100):
        module = compile_module(generated, TARGET)
        module(np.empty(4, "int32"), np.empty(1, "int32"))
        kept.append(weakref.ref(module))
    del module
    gc.collect()
    assert not any(reference() for reference in kept)
    assert Path("/proc/self/maps").read_text().count("\n") <= mappings + 3
