"""Ready-made tensor intrinsics of tensor cores, for float16 and bfloat16 products that are added in float32: te.tensor_intrin("mma_float16") and others.

A warp holds tiles of 16 x 16 in its registers, laid out as the PTX ISA says ("Matrix Fragments for mma.m16n8k16"): eight elements a thread, of `a` and `b`
in the order in which ldmatrix gives them, of the accumulator as two fragments of eight columns. For a dtype D:

    mma_load_a_D     a tile of the left operand from shared memory
    mma_load_b_D     a tile [k, n] of the right operand from shared memory
    mma_load_bt_D    a tile [n, k]: where the right operand lies by columns
    mma_D            c[i, j] += a[i, k] * b[k, j]
    mma_bt_D         c[i, j] += a[i, k] * b[j, k]
    mma_store        a tile of the accumulator to memory

Rows of what is loaded are read 16 bytes at a time, so their distance must be a multiple of 8 elements; one of an odd multiple has no bank conflicts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .api import compute, placeholder
from .axis import reduce_axis
from .intrin import TensorIntrin, decl_tensor_intrin
from .reduce import sum

TILE = 16
DTYPES = {"float16": "f16", "bfloat16": "bf16"}

# Lane 8 * m + r gives row r of matrix m of 8 x 8: a0 .. a3 are top left, bottom left, top right, bottom right; of b the two halves of k for eight columns,
# then for the other eight.
_LOAD = """
    const int lane = threadIdx.x % 32;
    tw_ldmatrix_x4{trans}(f, s + {row} * s_0 + {column} * s_1);
"""
_LOADS = {
    "a": _LOAD.format(trans="", row="(lane % 16)", column="(lane / 16 * 8)"),
    "b": _LOAD.format(trans="_trans", row="(lane % 16)", column="(lane / 16 * 8)"),
    "bt": _LOAD.format(trans="", row="(lane % 8 + lane / 16 * 8)", column="(lane / 8 % 2 * 8)"),
}
_PRODUCT = """
    tw_mma_m16n8k16_{name}_f32(c, a, b, c);
    tw_mma_m16n8k16_{name}_f32(c + 4, a, b + 4, c + 4);
"""
# A thread has two neighbours of a row, and of the row eight below, in each of the two fragments.
_STORE = """
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
        float *place = s + (row + part % 2 * 8) * s_0 + (column + part / 2 * 8) * s_1;
        const float *pair = f + part / 2 * 4 + part % 2 * 2;
        if (s_1 == 1 && s_0 % 2 == 0) {
            *(float2 *)place = make_float2(pair[0], pair[1]);
        } else {
            place[0] = pair[0];
            place[s_1] = pair[1];
        }
    }
"""


def _assign(f: Any, s: Any) -> None:
    f[...] = s


def _load(role: str, dtype: str) -> TensorIntrin:
    s = placeholder((TILE, TILE), dtype, "s")
    f = compute((TILE, TILE), lambda i, j: s[i, j], "f")
    return decl_tensor_intrin(f, body={"cuda": _LOADS[role], "python": _assign}, name=f"mma_load_{role}_{dtype}")


def _store() -> TensorIntrin:
    f = placeholder((TILE, TILE), "float32", "f")
    s = compute((TILE, TILE), lambda i, j: f[i, j], "s")
    return decl_tensor_intrin(s, body={"cuda": _STORE, "python": _assign}, name="mma_store")


def _product(dtype: str, by_columns: bool) -> TensorIntrin:
    a, b = placeholder((TILE, TILE), dtype, "a"), placeholder((TILE, TILE), dtype, "b")
    k = reduce_axis((0, TILE), "k")

    def terms(i: Any, j: Any) -> Any:
        right = b[j, k] if by_columns else b[k, j]
        return sum(a[i, k].astype("float32") * right.astype("float32"), axis=k)

    def add(c: Any, a: Any, b: Any) -> None:
        c += a.astype(np.float32) @ (b.T if by_columns else b).astype(np.float32)

    zero: Callable[[Any], None] = lambda c: c.fill(0)  # noqa: E731 - typed, as an argument cannot be
    return decl_tensor_intrin(
        compute((TILE, TILE), terms, "c"),
        init={"cuda": "    for (int i = 0; i < 8; ++i) c[i] = 0.0f;", "python": zero},
        update={"cuda": _PRODUCT.format(name=DTYPES[dtype]), "python": add},
        name=f"mma_{'bt_' if by_columns else ''}{dtype}",
    )


MMA = {
    each.name: each
    for dtype in DTYPES
    for each in (*(_load(role, dtype) for role in _LOADS), _product(dtype, by_columns=False), _product(dtype, by_columns=True))
}
MMA_STORE = _store()
