"""Ready-made tensor intrinsics of tensor cores: te.tensor_intrin("mma_float16") and others.

Products of float16 and bfloat16 are added in float32, those of int8 in int32. A warp holds tiles in its registers, laid out as the PTX ISA says ("Matrix
Fragments for mma.m16n8k16", "... mma.m16n8k32"): of `a` and `b`, of 16 rows or columns and 32 bytes of terms, what ldmatrix gives; of the accumulator,
16 x 16, two fragments of eight columns. For a dtype D:

    mma_load_a_D     a tile of the left operand from shared memory
    mma_load_b_D     a tile [k, n] of the right operand from shared memory (not of int8, whose terms must be neighbours)
    mma_load_bt_D    a tile [n, k]: where the right operand lies by columns
    mma_D            c[i, j] += a[i, k] * b[k, j] (not of int8)
    mma_bt_D         c[i, j] += a[i, k] * b[j, k]
    mma_store_A      a tile of the accumulator, of dtype A, to memory

Rows of what is loaded are read 16 bytes at a time, so their distance must be a multiple of that; of an odd multiple there are no bank conflicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .api import compute, placeholder
from .axis import reduce_axis
from .intrin import TensorIntrin, decl_tensor_intrin
from .reduce import sum

TILE = 16


@dataclass(frozen=True)
class Kind:
    """What tensor cores multiply: the PTX ISA's name, the terms of a tile, the dtype that sums are in, the least compute capability, the ways to load it."""

    ptx: str
    terms: int
    sums: str
    capability: int
    roles: tuple[str, ...]


KINDS = {
    "float16": Kind("f16", 16, "float32", 75, ("a", "b", "bt")),
    "bfloat16": Kind("bf16", 16, "float32", 80, ("a", "b", "bt")),
    "int8": Kind("s8", 32, "int32", 75, ("a", "bt")),
}

# Lane 8 * m + r gives row r of matrix m, of 8 rows of 16 bytes: a0 .. a3 are top left, bottom left, top right, bottom right; of b the two halves of k for
# eight columns, then for the other eight.
_LOAD = """
    const int lane = threadIdx.x % 32;
    tw_ldmatrix_x4{trans}(f, s + {row} * s_0 + {column} * {half} * s_1);
"""
_LOADS = {
    "a": {"trans": "", "row": "(lane % 16)", "column": "(lane / 16)"},
    "b": {"trans": "_trans", "row": "(lane % 16)", "column": "(lane / 16)"},
    "bt": {"trans": "", "row": "(lane % 8 + lane / 16 * 8)", "column": "(lane / 8 % 2)"},
}
_PRODUCT = """
    tw_mma_m16n8k{terms}_{name}_{sums}(c, a, b, c);
    tw_mma_m16n8k{terms}_{name}_{sums}(c + 4, a, b + {half}, c + 4);
"""
# A thread has two neighbours of a row, and of the row eight below, in each of the two fragments.
_STORE = """
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int part = 0; part < 4; ++part) {{
        {type} *place = s + (row + part % 2 * 8) * s_0 + (column + part / 2 * 8) * s_1;
        const {type} *pair = f + part / 2 * 4 + part % 2 * 2;
        if (s_1 == 1 && s_0 % 2 == 0) {{
            *({type}2 *)place = make_{type}2(pair[0], pair[1]);
        }} else {{
            place[0] = pair[0];
            place[s_1] = pair[1];
        }}
    }}
"""


def _assign(f: Any, s: Any) -> None:
    f[...] = s


def _load(role: str, dtype: str) -> TensorIntrin:
    kind = KINDS[dtype]
    s = placeholder((kind.terms, TILE) if role == "b" else (TILE, kind.terms), dtype, "s")
    f = compute(s.shape, lambda i, j: s[i, j], "f")
    text = _LOAD.format(half=kind.terms // 2, **_LOADS[role])
    return decl_tensor_intrin(f, body={"cuda": text, "python": _assign}, name=f"mma_load_{role}_{dtype}")


def _store(dtype: str) -> TensorIntrin:
    f = placeholder((TILE, TILE), dtype, "f")
    s = compute((TILE, TILE), lambda i, j: f[i, j], "s")
    text = _STORE.format(type={"float32": "float", "int32": "int"}[dtype])
    return decl_tensor_intrin(s, body={"cuda": text, "python": _assign}, name=f"mma_store_{dtype}")


def _product(dtype: str, by_columns: bool) -> TensorIntrin:
    kind = KINDS[dtype]
    a, b = placeholder((TILE, kind.terms), dtype, "a"), placeholder((TILE, kind.terms) if by_columns else (kind.terms, TILE), dtype, "b")
    k = reduce_axis((0, kind.terms), "k")

    def terms(i: Any, j: Any) -> Any:
        right = b[j, k] if by_columns else b[k, j]
        return sum(a[i, k].astype(kind.sums) * right.astype(kind.sums), axis=k)

    def add(c: Any, a: Any, b: Any) -> None:
        c += a.astype(kind.sums) @ (b.T if by_columns else b).astype(kind.sums)

    zero: Callable[[Any], None] = lambda c: c.fill(0)  # noqa: E731 - typed, as an argument cannot be
    return decl_tensor_intrin(
        compute((TILE, TILE), terms, "c"),
        init={"cuda": "    for (int i = 0; i < 8; ++i) c[i] = 0;", "python": zero},
        update={
            "cuda": _PRODUCT.format(name=kind.ptx, terms=kind.terms, half=kind.terms // 4, sums={"float32": "f32", "int32": "s32"}[kind.sums]),
            "python": add,
        },
        name=f"mma_{'bt_' if by_columns else ''}{dtype}",
    )


MMA = {each.name: each for dtype, kind in KINDS.items() for each in (*(_load(role, dtype) for role in kind.roles), _product(dtype, by_columns=True))}
MMA.update({each.name: each for each in (*(_product(dtype, by_columns=False) for dtype in ("float16", "bfloat16")), _store("float32"), _store("int32"))})
