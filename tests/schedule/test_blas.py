"""te.extern with a real BLAS: cblas_sgemm of the library that NumPy brings is linked, called, exported, and fed to stages of ours."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule
from tilewright.tir.errors import CompileError, TEError
from tilewright.tir.interp import interpret, register_extern

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def blas():
    """The example, as a module."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec = importlib.util.spec_from_file_location("examples_blas", EXAMPLES / "blas.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(EXAMPLES))
    return module


def rand(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype("f")


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (7, 19, 5), (33, 64, 48)])
def test_a_product_by_blas_and_our_epilogue(blas, threads, m, k, n):
    tensors = blas.dense_gelu(m, k, n)
    module = tw.build(blas.schedule(tensors), tensors, tw.Target("c", threads=threads))
    a, b, bias, d = rand(m, k), rand(k, n), rand(n), np.full((m, n), np.nan, "f")
    module(a, b, bias, d)
    np.testing.assert_allclose(d, gelu(a.astype("d") @ b + bias), rtol=1e-4, atol=1e-5)


def test_stages_before_it_and_parts_of_a_tensor(blas):
    """C = (2 A)[:, 3 : 3 + K] B, where rows of the first operand are 3 + K apart."""
    m, k, n = 6, 10, 9
    file, symbol, size = blas.find_blas()
    A, B = te.placeholder((m, 3 + k), name="A"), te.placeholder((k, n), name="B")
    A2 = te.compute(A.shape, lambda i, j: A[i, j] * 2.0, name="A2")
    sizes = [te.const(x, size) for x in (m, n, k)]
    C = te.extern(
        (m, n),
        [A2, B],
        lambda ins, outs: te.call_extern(
            symbol, 101, 111, 111, *sizes, te.const(1.0, "float32"), te.address_of(ins[0], 0, 3), te.const(3 + k, size), ins[1], te.const(n, size),
            te.const(0.0, "float32"), outs[0], te.const(n, size),
        ),
        name="C", dtype="float32", libraries=[Path(file)],
    )  # fmt: skip
    s = create_schedule(C)
    s[A2].vectorize(s[A2].split(A2.op.axis[1], factor=8)[1])
    a, b, c = rand(m, 3 + k), rand(k, n), np.empty((m, n), "f")
    tw.build(s, [A, B, C])(a, b, c)
    np.testing.assert_allclose(c, 2.0 * a[:, 3:].astype("d") @ b, rtol=1e-4, atol=1e-5)


def test_the_interpreter_calls_a_python_function_instead(blas):
    def sgemm(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        assert (order, ta, tb, alpha, beta, lda, ldb, ldc) == (101, 111, 111, 1.0, 0.0, k, n, n)
        c[: m * n] = (a[: m * k].reshape(m, k) @ b[: k * n].reshape(k, n)).ravel()

    symbol = blas.find_blas()[1]
    tensors = blas.dense_gelu(5, 6, 7)
    arrays = [rand(5, 6), rand(6, 7), rand(7)]
    compiled, interpreted = np.empty((5, 7), "f"), np.empty((5, 7), "f")
    s = blas.schedule(tensors)
    tw.build(s, tensors)(*arrays, compiled)
    register_extern(symbol, sgemm)
    try:
        interpret(lower_schedule(s, tensors), [*arrays, interpreted])
    finally:
        register_extern(symbol, None)
    np.testing.assert_allclose(interpreted, compiled, rtol=1e-5, atol=1e-6)


def test_an_exported_library_finds_blas_again_also_from_c(blas, tmp_path):
    m, k, n = 4, 8, 6
    tensors = blas.dense_gelu(m, k, n)
    module = tw.build(blas.schedule(tensors), tensors, tw.Target("c", threads=1), name="dense_gelu")
    module.export_library(tmp_path / "dense.so")
    a, b, bias, d = rand(m, k), rand(k, n), rand(n), np.empty((m, n), "f")
    module(a, b, bias, d)
    again = np.empty_like(d)
    tw.load_module(tmp_path / "dense.so")(a, b, bias, again)
    np.testing.assert_array_equal(again, d)
    (tmp_path / "main.c").write_text(f"""
#include <stdio.h>
#include "dense.h"
int main(void) {{
    float in[{m * k + k * n + n}], d[{m * n}];
    if (fread(in, 4, {m * k + k * n + n}, stdin) != {m * k + k * n + n} || dense_gelu(in, in + {m * k}, in + {m * k + k * n}, d)) return 1;
    return fwrite(d, 4, {m * n}, stdout) != {m * n};
}}
""")
    compiler = next(filter(shutil.which, ("gcc", "clang", "cc")))
    subprocess.run([compiler, "main.c", "./dense.so", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    given = b"".join(x.tobytes() for x in (a, b, bias))
    out = subprocess.run(["./main"], cwd=tmp_path, input=given, capture_output=True, check=True).stdout
    np.testing.assert_array_equal(np.frombuffer(out, "f").reshape(m, n), d)


def test_files_that_are_no_libraries(tmp_path):
    def extern(library):
        return te.extern((4,), [], lambda ins, outs: te.call_extern("f", outs[0]), name="E", dtype="float32", libraries=[library])

    with pytest.raises(TEError, match=r"extern 'E'.*missing\.so.*no such file"):
        extern(str(tmp_path / "missing.so"))
    for odd in ("a:b.so", "a$ORIGIN.so", "a\nb.so", "a,b.so", 'a"b.so'):
        (tmp_path / odd).write_bytes(b"")
        with pytest.raises(TEError, match="whole path of a shared library"):
            extern(tmp_path / odd)
    with pytest.raises(TEError, match="whole path"):
        extern("./here.so")
    (tmp_path / "text.so").write_text("no library")
    E = extern(tmp_path / "text.so")
    with pytest.raises(CompileError):
        tw.build(create_schedule(E), [E])
