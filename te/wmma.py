"""Tensor intrinsics of the tensor cores in the manner of nvcuda::wmma: fragments filled from shared or global memory, multiplied, and stored to either.

They are PTX's wmma.load, wmma.mma and wmma.store. Which lane has which element is the hardware's secret, and may differ between the layouts in which a matrix
lies in memory: so the intrinsics for one say which, and nothing but intrinsics touches a fragment. Those of te/tensor_cores.py, whose registers are known,
need operands in shared memory.

Names: "wmma_f16" multiplies tiles of 16 x 16 x 16, "wmma_f16_load_a" and "wmma_f16_load_b" fill fragments, "wmma_f32_store" empties one; "wmma_f16_32x8x16"
and so on for the other shapes (m x n x k). "at" and "bt" are operands declared a[k, m] and b[n, k], as column-major matrices are; "store_t" is a target
declared [n, m].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..tir.gpu import WARP_SIZE
from .api import compute, placeholder
from .axis import reduce_axis
from .intrin import TensorIntrin, decl_tensor_intrin, ready_made
from .reduce import sum
from .tensor_cores import as_tf32, copy_tile

OPERANDS = ("a", "at", "b", "bt")


@dataclass(frozen=True)
class WmmaShape:
    """What one instruction multiplies: a[m, k] and b[k, n]."""

    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """As it stands in the names of intrinsics."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def ptx(self) -> str:
        """As it stands in the names of instructions."""
        return f"m{self.m}n{self.n}k{self.k}"


SHAPES = (WmmaShape(16, 16, 16), WmmaShape(32, 8, 16), WmmaShape(8, 32, 16))


@dataclass(frozen=True)
class WmmaKind:
    """What is multiplied and added in what. `name`: of the operands; `product`: in the names of the intrinsics that multiply; `sums_name`: of the sums;
    `bytes`: of an element of an operand; `held`: how many of these a lane holds, if it is more than its share: then several lanes hold each."""

    name: str
    product: str
    dtype: str
    sums: str
    sums_name: str
    bytes: int
    shapes: tuple[WmmaShape, ...] = SHAPES
    held: int = 0

    def elements(self, shape: WmmaShape, operand: str) -> int:
        """How many elements of an operand ("a" or "b", with or without "t") a lane holds: PTX ISA, "Matrix Fragments for WMMA"."""
        return max(self.held, math.prod(tile_shape(shape, operand)) // WARP_SIZE)


KINDS = {
    kind.product: kind
    for kind in (
        WmmaKind("f16", "f16", "float16", "float32", "f32", 2, held=16),
        WmmaKind("f16", "f16_f16", "float16", "float16", "f16", 2, held=16),
        WmmaKind("bf16", "bf16", "bfloat16", "float32", "f32", 2),
        WmmaKind("s8", "s8", "int8", "int32", "s32", 1),
        WmmaKind("u8", "u8", "uint8", "int32", "s32", 1),
        WmmaKind("tf32", "tf32", "float32", "float32", "f32", 4, (WmmaShape(16, 16, 8),)),
    )
}

# What is asked of memory is enough for one of the two documents, whole: the PTX ISA ("Matrix Storage for WMMA") wants every row to begin at a multiple of
# the bytes that a lane has of the fragment; the CUDA C++ Programming Guide ("Warp Matrix Functions") wants 32 bytes for the first and 16 between rows. A lane
# has 32 bytes at most.
_LEADING = 16
_ROUND = """
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] = tw_round_tf32(tile[i]);
"""
_FILL = """#pragma unroll
    for (int i = 0; i < 8; ++i) c[i] = 0;
"""


def wmma_name(first: str, shape: WmmaShape, last: str = "") -> str:
    """The name of an intrinsic; the shape is left out where it is the usual one."""
    usual = shape is SHAPES[0] or first == "tf32"
    return "_".join(part for part in ("wmma", first, "" if usual else shape.name, last) if part)


def store_name(kind: WmmaKind, shape: WmmaShape, last: str = "store") -> str:
    """The name of the intrinsic that stores the sums of a product."""
    return wmma_name(kind.name if kind.name == "tf32" else kind.sums_name, shape, last)


def tile_shape(shape: WmmaShape, operand: str) -> tuple[int, int]:
    """Rows and columns of an operand's tile as it is declared."""
    return {"a": (shape.m, shape.k), "at": (shape.k, shape.m), "b": (shape.k, shape.n), "bt": (shape.n, shape.k)}[operand]


def _order(operand: str) -> str:
    return "col" if operand.endswith("t") else "row"


def _fragment(kind: WmmaKind, shape: WmmaShape, operand: str) -> tuple[str, str, int]:
    copies = kind.elements(shape, operand) * WARP_SIZE // math.prod(tile_shape(shape, operand))
    return f"wmma.matrix_{operand[0]}", f"wmma {kind.name} {shape.name} {operand[0]} {_order(operand)}", copies


def _sums(kind: WmmaKind, shape: WmmaShape) -> tuple[str, str, int]:
    return "wmma.accumulator", f"wmma {kind.sums_name} {shape.name} sums", 1


def _load(kind: WmmaKind, shape: WmmaShape, operand: str) -> TensorIntrin:
    """The intrinsic that fills a fragment: tile[i, j] = source[i, j]."""
    source = placeholder(tile_shape(shape, operand), kind.dtype, "source")
    tile = compute(tile_shape(shape, operand), lambda i, j: source[i, j], "tile")
    text = f"    tw_wmma_load_{operand[0]}_{_order(operand)}_{shape.ptx}_{kind.name}(tile, source, source_0);"
    is_tf32 = kind.name == "tf32"
    return decl_tensor_intrin(
        tile,
        body={"cuda": text + (_ROUND if is_tf32 else ""), "python": as_tf32 if is_tf32 else copy_tile},
        name=wmma_name(kind.name, shape, f"load_{operand}"),
        fragments={"tile": _fragment(kind, shape, operand)},
        aligned={"source": kind.elements(shape, operand) * kind.bytes},
        leading={"source": _LEADING},
    )


def _add_product(transposed_a: bool, transposed_b: bool, c: Any, a: Any, b: Any) -> None:
    wide = np.int32 if c.dtype == np.int32 else np.float32
    c[...] = (c.astype(wide) + (a.T if transposed_a else a).astype(wide) @ (b.T if transposed_b else b).astype(wide)).astype(c.dtype)


def _clear(c: Any) -> None:
    c[...] = 0


def product_name(kind: WmmaKind, shape: WmmaShape, a: str, b: str) -> str:
    """The name of the intrinsic that multiplies: "wmma_f16", "wmma_f16_at_bt" ..."""
    return wmma_name(kind.product, shape, "_".join(operand for operand in (a, b) if operand.endswith("t")))


def _multiply(kind: WmmaKind, shape: WmmaShape, first: str, second: str) -> TensorIntrin:
    """c[i, j] += sum over k of a[i, k] * b[k, j]; a[k, i] for "at", b[j, k] for "bt"."""
    a, b = placeholder(tile_shape(shape, first), kind.dtype, "a"), placeholder(tile_shape(shape, second), kind.dtype, "b")
    k = reduce_axis((0, shape.k), "k")
    c = compute(
        (shape.m, shape.n),
        lambda i, j: sum((a[i, k] if first == "a" else a[k, i]).astype(kind.sums) * (b[k, j] if second == "b" else b[j, k]).astype(kind.sums), axis=k),
        "c",
    )
    function = f"tw_wmma_mma_{_order(first)}_{_order(second)}_{shape.ptx}_{kind.name}_{kind.sums_name}"
    return decl_tensor_intrin(
        c,
        init={"cuda": _FILL, "python": _clear},
        update={"cuda": f"    {function}(c, a, b, c);", "python": partial(_add_product, first == "at", second == "bt")},
        name=product_name(kind, shape, first, second),
        fragments={"a": _fragment(kind, shape, first), "b": _fragment(kind, shape, second), "c": _sums(kind, shape)},
    )


def _copy_transposed(target: Any, tile: Any) -> None:
    target[...] = tile.T


def _store(kind: WmmaKind, shape: WmmaShape, transposed: bool) -> TensorIntrin:
    """target[i, j] = tile[i, j], or tile[j, i] where `transposed`."""
    tile = placeholder((shape.m, shape.n), kind.sums, "tile")
    target = compute((shape.n, shape.m), lambda i, j: tile[j, i], "target") if transposed else compute((shape.m, shape.n), lambda i, j: tile[i, j], "target")
    text = f"    tw_wmma_store_{'col' if transposed else 'row'}_{shape.ptx}_{kind.sums_name}(target, tile, target_0);"
    return decl_tensor_intrin(
        target,
        body={"cuda": text, "python": _copy_transposed if transposed else copy_tile},
        name=store_name(kind, shape, "store_t" if transposed else "store"),
        fragments={"tile": _sums(kind, shape)},
        aligned={"target": 16 if kind.sums == "float16" else 32},  # what a lane has: 8 elements
        leading={"target": _LEADING},
    )


for _kind in KINDS.values():
    for _shape in _kind.shapes:
        for _first in OPERANDS[:2]:
            for _second in OPERANDS[2:]:
                ready_made(product_name(_kind, _shape, _first, _second), partial(_multiply, _kind, _shape, _first, _second))
        if _kind.name == _kind.product:
            for _operand in OPERANDS:
                ready_made(wmma_name(_kind.name, _shape, f"load_{_operand}"), partial(_load, _kind, _shape, _operand))
        for _last in ("store", "store_t"):
            ready_made(store_name(_kind, _shape, _last), partial(_store, _kind, _shape, _last == "store_t"))
