"""The five schedules whose lowering is measured (lowering.py) and whose work is guarded (tests/test_lowering_budget.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.schedule import create_schedule


def matmul() -> tuple[Any, list[Any]]:
    """1024 cubed: cache blocks, a 6 x 16 register tile, tails in both dimensions."""
    A, B = te.placeholder((1024, 1024), name="A"), te.placeholder((1024, 1024), name="B")
    k = te.reduce_axis((0, 1024), name="k")
    C = te.compute((1024, 1024), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = create_schedule(C.op)
    CL = s.cache_write(C, "local")
    i, j = s[C].op.axis
    ib, jb, ii, jj = s[C].tile(i, j, 96, 16)
    io, iv = s[C].split(ii, factor=6)
    s[C].reorder(ib, jb, io, iv, jj)
    s[C].parallel(ib)
    s[C].vectorize(jj)
    s[CL].compute_at(s[C], io)
    ci, cj = s[CL].op.axis
    ko, ki = s[CL].split(k, factor=64)
    s[CL].reorder(ko, ki, ci, cj)
    s[CL].vectorize(cj)
    s[CL].unroll(ci)
    return s, [A, B, C]


def conv2d() -> tuple[Any, list[Any]]:
    """Padded 3 x 3, 64 channels of 56 x 56; the padding is computed row by row."""
    op = te.library.conv2d(1, 64, 56, 56, 64, 3, 3, padding=1)
    Y = op.output
    Xp = next(t for t in Y.op.input_tensors if t.op.input_tensors)
    s = create_schedule(Y.op)
    n, o, y, x = s[Y].op.axis
    oo, oi = s[Y].split(o, factor=8)
    xo, xi = s[Y].split(x, factor=8)
    c, r, q = s[Y].op.reduce_axis
    co, ci = s[Y].split(c, factor=4)
    s[Y].reorder(n, oo, y, xo, co, r, q, ci, oi, xi)
    s[Y].vectorize(xi)
    s[Xp].compute_at(s[Y], y)
    return s, op.args


def attention() -> tuple[Any, list[Any]]:
    """Five stages fused over blocks of 8 rows."""
    op = te.library.attention(1, 12, 128, 128, 64)
    s = create_schedule(op.output.op)
    out = s[op.output]
    b, h, i, _ = out.op.axis
    io, _ = out.split(i, factor=8)
    at = out.fuse(b, h, io)
    out.parallel(at)
    for stage in s.stages:
        if not stage.is_placeholder and not stage.is_output:
            stage.compute_at(out, at)
    return s, op.args


def softmax() -> tuple[Any, list[Any]]:
    """Rows of 1024, everything inside the loop over rows, partial sums and maxima in 16 lanes."""
    op = te.library.softmax((4096, 1024))
    s = create_schedule(op.output.op)
    out = s[op.output]
    row, column = out.op.axis
    out.parallel(row)
    out.vectorize(out.split(column, factor=8)[1])
    for stage in [stage for stage in s.stages if not stage.is_placeholder and not stage.is_output]:
        stage.compute_at(out, row)
        if stage.op.reducer is not None:
            (k,) = stage.op.reduce_axis
            _, lane = stage.split(k, factor=16)
            part = s.rfactor(stage.outputs[0], lane, factor_axis=1)
            s[part].compute_at(out, row)
            i, lane = s[part].op.axis
            s[part].reorder(i, *s[part].op.reduce_axis, lane)
            s[part].vectorize(lane)
    return s, op.args


def chain(stages: int = 40) -> tuple[Any, list[Any]]:
    """Elementwise stages one after another, every second one inlined."""
    A = te.placeholder((1000,), name="A")
    T, every = A, []
    for _ in range(stages):
        T = te.compute((1000,), lambda i, T=T: T[i] * 0.5 + 1.0, name="T")
        every.append(T)
    s = create_schedule(T.op)
    for number, stage in enumerate(every[:-1]):
        if number % 2:
            s[stage].compute_inline()
    for stage in every:
        if s[stage].attach.kind != "inline":
            s[stage].vectorize(s[stage].split(stage.op.axis[0], factor=8)[1])
    return s, [A, T]


WORKLOADS: dict[str, Callable[[], tuple[Any, list[Any]]]] = {f.__name__: f for f in (matmul, conv2d, attention, softmax, chain)}
