"""Tensor intrinsics of the tensor cores, one set for each dtype: products of 16 x 16 tiles, and what moves tiles between memory and registers.

A fragment is a tile that the 32 lanes of a warp hold together. Its layout is that of PTX's mma.sync (PTX ISA, "Matrix Fragments for mma"): lanes are
eight groups of four; `group` and `member` are a lane's place in that. Of a tile of A[m, k] a lane has rows group and group + 8; of B[k, n], columns group
and group + 8, one after the other; of the sums C[m, n], for both halves of the columns, rows group and group + 8 of columns 2 * member and the next.

The sets are found by name: "mma_f16" multiplies, "mma_f16_load_a" and "mma_f16_load_b" fill fragments, "mma_f32_store" and "mma_s32_store" empty them. With
"_bt" ("mma_f16_bt", "mma_f16_load_bt") the tile of B is declared as b[n, k], a row for each column of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .api import compute, placeholder
from .axis import reduce_axis
from .intrin import TensorIntrin, decl_tensor_intrin, ready_made
from .reduce import sum

ROWS = COLUMNS = 16  # of a tile of the result


@dataclass(frozen=True)
class TensorCoreKind:
    """What tensor cores multiply. `terms`: along k, of one tile; `product`: the device function of 16 x 8 x terms; `name`: in the names of intrinsics;
    `capability`: the least one of a GPU that has it, 80 for sm_80 (on sm_75 two smaller products are done)."""

    name: str
    dtype: str
    sums: str
    terms: int
    product: str
    capability: int

    @property
    def bytes(self) -> int:
        """Of an element."""
        return 32 // self.terms  # a tile has rows of 32 bytes

    @property
    def store(self) -> str:
        """The name of the intrinsic that stores the sums."""
        return "mma_f32_store" if self.sums == "float32" else "mma_s32_store"


KINDS = {
    kind.name: kind
    for kind in (
        TensorCoreKind("f16", "float16", "float32", 16, "tw_mma_m16n8k16_f16_f32", 75),
        TensorCoreKind("bf16", "bfloat16", "float32", 16, "tw_mma_m16n8k16_bf16_f32", 80),
        TensorCoreKind("s8", "int8", "int32", 32, "tw_mma_m16n8k32_s8_s32", 75),
        TensorCoreKind("u8", "uint8", "int32", 32, "tw_mma_m16n8k32_u8_s32", 75),
        TensorCoreKind("tf32", "float32", "float32", 8, "tw_mma_m16n8k8_tf32_f32", 80),
    )
}

# Element (row, term) of A, where its terms are no neighbours: register by register.
_LOAD_A = """
    const int lane = threadIdx.x % 32;
    if (source_1 == 1) {{
        tw_ldmatrix_x4(tile, source + lane % 16 * source_0 + lane / 16 * {chunk});
    }} else {{
#pragma unroll
        for (int i = 0; i < {share}; ++i) {{
            const int piece = i / {packed};
            tile[i] = source[(lane / 4 + piece % 2 * 8) * source_0 + ((piece / 2 * 4 + lane % 4) * {packed} + i % {packed}) * source_1];
        }}
    }}
"""
# `n` and `k`: the distances along the columns and the terms of B.
_LOAD_B = """
    const int lane = threadIdx.x % 32;
    if ({k} == 1) {{
        tw_ldmatrix_x4(tile, source + (lane / 16 * 8 + lane % 8) * {n} + lane / 8 % 2 * {chunk});
    }} else {turned}{{
#pragma unroll
        for (int i = 0; i < {share}; ++i) {{
            const int piece = i / {packed};
            tile[i] = source[(lane / 4 + piece / 2 * 8) * {n} + ((piece % 2 * 4 + lane % 4) * {packed} + i % {packed}) * {k}];
        }}
    }}
"""
_TURNED = """if ({n} == 1) {{
        tw_ldmatrix_x4_trans(tile, source + lane % 16 * {k} + lane / 16 * 8);
    }} else """
_ROUND = """
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] = tw_round_tf32(tile[i]);
"""
_STORE = """
    const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {{
        {type} *place = target + (row + i / 2 % 2 * 8) * target_0 + (column + i / 4 * 8) * target_1;
        if (target_1 == 1) {{
            *({type}2 *)place = make_{type}2(tile[i], tile[i + 1]);
        }} else {{
            place[0] = tile[i];
            place[target_1] = tile[i + 1];
        }}
    }}
"""


def copy_tile(to: Any, source: Any) -> None:
    """What a load and a store do, for the interpreter."""
    to[...] = source


def as_tf32(to: Any, source: Any) -> None:
    """To nearest, ties away from zero: 10 bits of mantissa are left."""
    to[...] = ((source.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)


def _load(kind: TensorCoreKind, operand: str) -> TensorIntrin:
    """The intrinsic that fills a fragment from shared memory: tile[i, j] = source[i, j]. `operand`: "a", "b" or "bt"."""
    shape = {"a": (ROWS, kind.terms), "b": (kind.terms, COLUMNS), "bt": (COLUMNS, kind.terms)}[operand]
    source = placeholder(shape, kind.dtype, "source")
    tile = compute(shape, lambda i, j: source[i, j], "tile")
    chunk, packed, share = 16 // kind.bytes, 4 // kind.bytes, 16 // kind.bytes
    if operand == "a":
        text = _LOAD_A.format(chunk=chunk, packed=packed, share=share)
    else:
        n, k = ("source_1", "source_0") if operand == "b" else ("source_0", "source_1")
        turned = _TURNED.format(n=n, k=k) if kind.bytes == 2 else ""
        text = _LOAD_B.format(chunk=chunk, packed=packed, share=share, n=n, k=k, turned=turned)
    code = {"cuda": text + (_ROUND if kind.name == "tf32" else ""), "python": as_tf32 if kind.name == "tf32" else copy_tile}
    return decl_tensor_intrin(
        tile,
        body=code,
        name=f"mma_{kind.name}_load_{operand}",
        fragments={"tile": (f"wmma.matrix_{operand[0]}", f"mma {kind.name} {operand}")},
        aligned={"source": 16},
        in_shared=("source",),
    )


def _add_product(c: Any, a: Any, b: Any) -> None:
    c += a.astype(c.dtype) @ b.astype(c.dtype)


def _add_product_of_rows(c: Any, a: Any, b: Any) -> None:
    c += a.astype(c.dtype) @ b.astype(c.dtype).T


def _product_name(kind: TensorCoreKind, operand: str) -> str:
    return f"mma_{kind.name}{'' if operand == 'b' else '_bt'}"


def _multiply(kind: TensorCoreKind, operand: str) -> TensorIntrin:
    """c[i, j] += sum over k of a[i, k] * b[k, j], or b[j, k] for the operand "bt"."""
    a = placeholder((ROWS, kind.terms), kind.dtype, "a")
    b = placeholder((kind.terms, COLUMNS) if operand == "b" else (COLUMNS, kind.terms), kind.dtype, "b")
    k = reduce_axis((0, kind.terms), "k")
    c = compute(
        (ROWS, COLUMNS),
        lambda i, j: sum(a[i, k].astype(kind.sums) * (b[k, j] if operand == "b" else b[j, k]).astype(kind.sums), axis=k),
        "c",
    )
    half = 8 // kind.bytes  # elements of the first 8 columns that a lane has
    text = f"    {kind.product}(c, a, b, c);\n    {kind.product}(c + 4, a, b + {half}, c + 4);"
    return decl_tensor_intrin(
        c,
        init={"cuda": "#pragma unroll\n    for (int i = 0; i < 8; ++i) c[i] = 0;", "python": lambda c: c.fill(0)},
        update={"cuda": text, "python": _add_product if operand == "b" else _add_product_of_rows},
        name=_product_name(kind, operand),
        fragments={
            "a": ("wmma.matrix_a", f"mma {kind.name} a"),
            "b": ("wmma.matrix_b", f"mma {kind.name} {operand}"),
            "c": ("wmma.accumulator", "mma sums"),
        },
    )


def _store(name: str, dtype: str, ctype: str) -> TensorIntrin:
    """target[i, j] = tile[i, j], to shared or global memory."""
    tile = placeholder((ROWS, COLUMNS), dtype, "tile")
    target = compute((ROWS, COLUMNS), lambda i, j: tile[i, j], "target")
    return decl_tensor_intrin(
        target,
        body={"cuda": _STORE.format(type=ctype), "python": copy_tile},
        name=name,
        fragments={"tile": ("wmma.accumulator", "mma sums")},
        aligned={"target": 8},
    )


for _kind in KINDS.values():
    for _operand in ("a", "b", "bt"):
        ready_made(f"mma_{_kind.name}_load_{_operand}", partial(_load, _kind, _operand))
    for _operand in ("b", "bt"):
        ready_made(_product_name(_kind, _operand), partial(_multiply, _kind, _operand))
for _name, _dtype, _ctype in (("mma_f32_store", "float32", "float"), ("mma_s32_store", "int32", "int")):
    ready_made(_name, partial(_store, _name, _dtype, _ctype))
