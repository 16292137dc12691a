"""A kernel in a C program: log-softmax over rows, exported as a library with a header, called from C without Python.

    python examples/c_program.py [--rows N] [--columns M] [--folder DIR]

DIR keeps the library, the header, the program and what was made of them (default: a folder that is removed in the end).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright import te

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "log_softmax.h"

int main(void) {
    enum { rows = %d, columns = %d };
    float *x = malloc(sizeof(float) * rows * columns), *y = malloc(sizeof(float) * rows * columns);
    if (!x || !y || fread(x, sizeof(float), rows * columns, stdin) != rows * columns) return 1;
    if (log_softmax(x, y)) return 2;
    fwrite(y, sizeof(float), rows * columns, stdout);
    return 0;
}
"""


def log_softmax(N, M):
    """L[i, j] = X[i, j] - m[i] - log(sum over q of exp(X[i, q] - m[i])), m[i] the maximum of the row."""
    X = te.placeholder((N, M), name="X")
    k, q = te.reduce_axis((0, M), name="k"), te.reduce_axis((0, M), name="q")
    m = te.compute((N,), lambda i: te.max(X[i, k], axis=k), name="m")
    z = te.compute((N,), lambda i: te.sum(te.exp(X[i, q] - m[i]), axis=q), name="z")
    c = te.compute((N,), lambda i: m[i] + te.log(z[i]), name="c")
    L = te.compute((N, M), lambda i, j: X[i, j] - c[i], name="L")

    s = te.create_schedule(L.op)
    i, j = s[L].op.axis
    s[L].vectorize(s[L].split(j, factor=16)[1])
    s[L].parallel(i)
    for T in (c, z, m):
        s[T].compute_at(s[L], i)
    for T in (z, m):  # 16 partial results, in lanes, and then one of them
        _, lane = s[T].split(s[T].op.reduce_axis[0], factor=16)
        part = s.rfactor(T, lane)
        lanes, row = s[part].op.axis
        s[part].reorder(row, *s[part].op.reduce_axis, lanes)
        s[part].vectorize(lanes)
        s[part].set_scope("local")
        s[part].compute_at(s[T], s[T].op.axis[0])
    return s, [X, L]


def main():
    """Exports, compiles the program, runs it, compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    N, M = options.rows, options.columns
    s, arguments = log_softmax(N, M)
    mod = tw.build(s, arguments, name="log_softmax")
    x = np.random.default_rng(0).standard_normal((N, M), dtype="float32")
    y = np.empty_like(x)
    print("from Python:", mod.time_evaluator(min_repeat_ms=20)(x, y))

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        mod.export_library(folder / "log_softmax.so")  # and log_softmax.h
        print((folder / "log_softmax.h").read_text())
        (folder / "main.c").write_text(PROGRAM % (N, M))
        compiler = next(filter(shutil.which, ("gcc", "clang", "cc")))
        subprocess.run([compiler, "-O2", "main.c", "./log_softmax.so", "-lm", "-fopenmp", "-o", "main"], cwd=folder, check=True)
        result = subprocess.run(["./main"], cwd=folder, input=x.tobytes(), capture_output=True, check=True).stdout
    from_c = np.frombuffer(result, "float32").reshape(N, M)
    np.testing.assert_array_equal(from_c, y)
    shifted = x.astype("float64") - x.max(1, keepdims=True)
    np.testing.assert_allclose(from_c, shifted - np.log(np.exp(shifted).sum(1, keepdims=True)), rtol=1e-4, atol=1e-5)
    print("the C program gives the same, bit for bit")


if __name__ == "__main__":
    main()
