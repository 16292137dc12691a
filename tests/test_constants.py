"""build(constants=...): constant operands are no arguments, what depends on them only is computed once, and wrong ones are named."""

from __future__ import annotations

import gc
import shutil
import subprocess
import threading

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import te

RNG = np.random.default_rng(5)


def rand(*shape):
    return RNG.standard_normal(shape).astype("f")


def matmul(m=12, n=40, k=20):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    return A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")


def packed():
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    panels = s.cache_read(B, "global", [C])
    s[panels].transform_layout(lambda k, j: [j // 16, k, j % 16])
    return s, [A, B, C], B, panels


@pytest.mark.parametrize("listed", [True, False])
def test_a_constant_is_no_argument_and_later_changes_of_its_array_do_not_matter(listed):
    A, B, C = matmul()
    a, b, c = rand(12, 20), rand(20, 40), np.full((12, 40), np.nan, "f")
    want, given = a @ b, b.copy()
    module = tw.build(te.create_schedule(C.op), [A, B, C] if listed else [A, C], constants={B: given})
    given[:] = np.nan
    module(a, c)
    np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-4)
    assert str(module.signature) == "kernel(A: float32[12, 20], C: out float32[12, 40])"
    with pytest.raises(tw.ArgumentError, match=r"takes 2 arguments \(A, C\), got 3"):
        module(a, b, c)


def test_packing_is_done_once_when_the_module_is_built():
    s, args, B, panels = packed()
    a, b, c = rand(12, 20), rand(20, 40), np.full((12, 40), np.nan, "f")
    plain = tw.build(s, args)
    module = tw.build(s, args, constants={B: b})
    gc.collect()
    module(a, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert plain.workspace_bytes >= 3 * 20 * 16 * 4 and module.workspace_bytes == 0
    assert f"{panels.name.replace('.', '_')}" in module.get_source() and module.get_source().count("for (") < plain.get_source().count("for (")


def test_chains_of_constant_stages_and_a_stage_inside_one():
    W, X = te.placeholder((32,), name="W"), te.placeholder((32,), name="X")
    doubled = te.compute((32,), lambda i: W[i] * 2.0, name="doubled")
    shifted = te.compute((32,), lambda i: doubled[i] + 1.0, name="shifted")
    mixed = te.compute((32,), lambda i: X[i] + W[i], name="mixed")
    out = te.compute((32,), lambda i: mixed[i] * shifted[i], name="out")
    s = te.create_schedule(out.op)
    outer, _ = s[shifted].split(shifted.op.axis[0], factor=8)
    s[doubled].compute_at(s[shifted], outer)
    s[shifted].parallel(outer)
    w, x, y = rand(32), rand(32), np.empty(32, "f")
    module = tw.build(s, [X, out], tw.Target("c", threads=2), constants={W: w})
    module(x, y)
    np.testing.assert_allclose(y, (x + w) * (w * 2 + 1), rtol=1e-5)
    assert not module.signature.uses_openmp and "doubled" not in module.get_source()  # the parallel stage ran before


def test_everything_constant_and_outputs_that_are_read():
    W = te.placeholder((8,), name="W")
    B = te.compute((8,), lambda i: W[i] + 1.0, name="B")
    C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
    s, w = te.create_schedule([B.op, C.op]), rand(8)
    b, c = np.empty(8, "f"), np.empty(8, "f")
    tw.build(s, [B, C], constants={W: w})(b, c)
    np.testing.assert_allclose(b, w + 1, rtol=1e-6)
    np.testing.assert_allclose(c, w * 2 + 2, rtol=1e-6)


def test_symbolic_sizes_beside_a_constant():
    n = te.size_var("n")
    X, W = te.placeholder((n, 4), name="X"), te.placeholder((4,), name="W")
    P = te.compute((4,), lambda j: W[j] * 3.0, name="P")
    Q = te.compute((n,), lambda i: W[i % 4] * 1.0, name="Q")  # as long as the call says: at each call
    Y = te.compute((n, 4), lambda i, j: X[i, j] * P[j] + Q[i], name="Y")
    w = rand(4)
    module = tw.build(te.create_schedule(Y.op), [X, Y], constants={W: w})
    for size in (0, 1, 9):
        x, y = rand(size, 4), np.empty((size, 4), "f")
        module(x, y)
        np.testing.assert_allclose(y, x * w * 3 + w[np.arange(size) % 4][:, None], rtol=1e-5, atol=1e-6)


def test_other_dtypes_layouts_and_ranks():
    W, S, X = te.placeholder((4, 6), "bfloat16", "W"), te.placeholder((), "float64", "S"), te.placeholder((6, 4), name="X")
    Y = te.compute((6, 4), lambda i, j: X[i, j] * W[j, i].astype("float32") + S[()].astype("float32"), name="Y")
    w = rand(6, 4).astype(ml_dtypes.bfloat16)
    x, y = rand(6, 4), np.empty((6, 4), "f")
    tw.build(te.create_schedule(Y.op), [X, Y], constants={W: w.T, S: np.array(0.5)})(x, y)  # w.T is not contiguous
    np.testing.assert_allclose(y, x * w.astype("f") + 0.5, rtol=1e-6, atol=1e-6)


def test_padded_rows_are_packed_at_each_call_and_right():
    s, args, B, panels = packed()
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    panels = s.cache_read(B, "global", [C])
    s[panels].storage_align(s[panels].op.axis[0], 16, 1)
    a, b, c = rand(12, 20), rand(20, 40), np.full((12, 40), np.nan, "f")
    tw.build(s, [A, C], constants={B: b})(a, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_many_threads_share_the_constants():
    s, args, B, _ = packed()
    b = rand(20, 40)
    module = tw.build(s, args, tw.Target("c", threads=1), constants={B: b})
    wrong = []

    def work():
        for _ in range(50):
            a, c = rand(12, 20), np.full((12, 40), np.nan, "f")
            module(a, c)
            if not np.allclose(c, a @ b, rtol=1e-3, atol=1e-3):
                wrong.append(c)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((20, 41), "f"), "float32[20, 40], found shape (20, 41)"),
        (np.zeros((20, 40)), "found dtype float64"),
        ([[1.0]], "found an object of type list"),
        (1.0, "np.array(value, dtype)"),
        (np.ma.masked_array(np.zeros((20, 40), "f")), "has a mask"),
    ],
)
def test_a_wrong_array_is_named(value, words):
    A, B, C = matmul()
    with pytest.raises(tw.ArgumentError) as error:
        tw.build(te.create_schedule(C.op), [A, B, C], constants={B: value})
    assert "constant 'B' of kernel" in str(error.value) and words in str(error.value)


def test_what_cannot_be_a_constant_is_refused():
    A, B, C = matmul()
    D = te.compute((12, 40), lambda i, j: C[i, j] + 1.0, name="D")
    n = te.size_var("n")
    N = te.placeholder((n,), name="N")
    M = te.compute((n,), lambda i: N[i] + 1.0, name="M")
    s, b = te.create_schedule(D.op), rand(20, 40)
    for constants, schedule, args, words in [
        ({C: b}, s, [A, B, D], "constant C is computed by stage C"),
        ({"B": b}, s, [A, D], "the key 'B'"),
        ([B], s, [A, D], "expected a dictionary"),
        ({te.placeholder((3,), name="Z"): b}, s, [A, B, D], "Z is not part of this schedule"),
        ({N: b}, te.create_schedule(M.op), [M], "constant N has the symbolic shape"),
        ({B: b}, s, [D], "input A is read by C"),
        ({B: b}, "s", [A, D], "expected a schedule"),
        ({B: b}, s, 5, "expected a list"),
    ]:
        with pytest.raises(tw.ScheduleError) as error:
            tw.build(schedule, args, constants=constants)
        assert words in str(error.value)


def exported(module, path):
    module.export_library(path)
    return tw.load_module(path)


@pytest.mark.parametrize("compiler", [name for name in ("gcc", "clang") if shutil.which(name)])
def test_a_library_carries_its_constants(tmp_path, compiler):
    s, (A, B, C), _, _ = packed()
    b = rand(20, 40)
    target = tw.Target("c", compiler=compiler)
    module = tw.build(s, [A, C], target, constants={B: b}, name="product")
    loaded = exported(module, tmp_path / "product.so")
    del module
    for again in (loaded, exported(loaded, tmp_path / "copy.so")):
        a, c = rand(12, 20), np.full((12, 40), np.nan, "f")
        again(a, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        assert str(again.signature) == "product(A: float32[12, 20], C: out float32[12, 40])" and again.signature.constants == 0
    assert {p.name for p in tmp_path.iterdir()} == {"product.so", "product.h", "copy.so", "copy.h"}


def test_libraries_of_one_source_and_other_constants_are_two(tmp_path):
    W, X = te.placeholder((3,), name="W"), te.placeholder((3,), name="X")
    Y = te.compute((3,), lambda i: W[i] * X[i], name="Y")
    s, x, y = te.create_schedule(Y.op), rand(3), np.empty(3, "f")
    values = [rand(3), rand(3)]
    for number, w in enumerate(values):
        tw.build(s, [X, Y], constants={W: w}).export_library(tmp_path / f"{number}.so")
    for number, w in enumerate(values):
        tw.load_module(tmp_path / f"{number}.so")(x, y)
        np.testing.assert_array_equal(y, w * x)


def test_exported_constants_of_every_kind(tmp_path):
    """Several dtypes and ranks, an empty one, an unused one, symbolic sizes and parallel loops beside them."""
    n = te.size_var("n")
    W, S, Z = te.placeholder((5, 3), "bfloat16", "W"), te.placeholder((), "float64", "S"), te.placeholder((0, 3), name="Z")
    U, X = te.placeholder((4,), "bool", "U"), te.placeholder((n, 5), name="X")
    Y = te.compute(
        (n, 5),
        lambda i, j: X[i, j] * W[j, i % 3].astype("float32") + te.if_then_else(U[i % 4], S[()].astype("float32"), 0.0) + te.const(0.0, "float32"),
        name="Y",
    )
    V = te.compute((0, 3), lambda i, j: Z[i, j] + 1.0, name="V")
    s = te.create_schedule([Y.op, V.op])
    s[Y].parallel(Y.op.axis[0])
    w, u = rand(5, 3).astype(ml_dtypes.bfloat16), np.array([True, False, False, True])
    module = tw.build(s, [X, Y, V], tw.Target("c", threads=2), constants={W: w, S: np.array(0.25), Z: np.empty((0, 3), "f"), U: u})
    loaded = exported(module, tmp_path / "k.so")
    for size in (0, 1, 9):
        x, y, v = rand(size, 5), np.empty((size, 5), "f"), np.empty((0, 3), "f")
        loaded(x, y, v)
        rows = np.arange(size)
        np.testing.assert_allclose(y, x * w.astype("f").T[rows % 3] + np.where(u[rows % 4], 0.25, 0.0)[:, None], rtol=1e-6, atol=1e-6)


def test_a_c_program_uses_a_library_with_constants(tmp_path):
    s, (A, B, C), _, _ = packed()
    b, a = rand(20, 40), rand(12, 20)
    tw.build(s, [A, C], tw.Target("c", threads=1), constants={B: b}, name="product").export_library(tmp_path / "product.so")
    assert "int32_t product(const float *A, float *C);" in (tmp_path / "product.h").read_text()
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "product.h"
int main(void) {
    static float a[12 * 20], c[12 * 40];
    if (fread(a, sizeof a, 1, stdin) != 1 || product(a, c)) return 1;
    return fwrite(c, sizeof c, 1, stdout) != 1;
}
""")
    subprocess.run([next(filter(shutil.which, ("gcc", "clang", "cc"))), "main.c", "./product.so", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    out = subprocess.run(["./main"], cwd=tmp_path, input=a.tobytes(), capture_output=True, check=True).stdout
    np.testing.assert_allclose(np.frombuffer(out, "f").reshape(12, 40), a @ b, rtol=1e-4, atol=1e-4)


def test_names_that_c_has_taken_are_changed_alike_in_module_and_library(tmp_path):
    s, (A, B, C), _, _ = packed()
    for name in ("main", "sin", "my kernel", "product_with_constants"):
        b, a, c = rand(20, 40), rand(12, 20), np.empty((12, 40), "f")
        module = tw.build(s, [A, C], constants={B: b}, name=name)
        assert module.name == tw.build(s, [A, B, C], name=name).name
        exported(module, tmp_path / "k.so")(a, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_more_constants_than_code_can_reach_are_refused(tmp_path, monkeypatch):
    A, B, C = matmul()
    module = tw.build(te.create_schedule(C.op), [A, C], constants={B: rand(20, 40)})
    monkeypatch.setattr("tilewright.targets.embed._MOST_BYTES", 3199)
    with pytest.raises(tw.TargetError, match=r"kernel has 3200 bytes of constant operands.*at most 3199.*without constants="):
        module.export_library(tmp_path / "c.so")
    assert not list(tmp_path.iterdir())
