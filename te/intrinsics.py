"""Ready-made tensor intrinsics, found by name too: te.tensor_intrin("dot_u8s8_8x4").

The C text is plain GNU C; what an instruction set does better stands under its macro, so that the same text compiles for every CPU. Those of a GPU's
tensor cores are in tensor_cores.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .api import compute, placeholder
from .axis import reduce_axis
from .intrin import TensorIntrin, decl_tensor_intrin, ready_made
from .reduce import sum

# Products of uint8 and int8 need 17 bits: vpmaddubsw would saturate their sums. Both are widened to int16, whose products vpmaddwd adds in pairs in int32,
# exactly (2 * 255 * 128 < 2**31); vphaddd adds the pairs, and leaves the sums of the 128-bit halves interleaved: 0 1 4 5 | 2 3 6 7.
_UPDATE = """
    typedef int32_t sums_t __attribute__((vector_size(32)));
    typedef int32_t sums_in_memory_t __attribute__((vector_size(32), aligned(4), may_alias));
#if defined(__AVX2__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_pmaddwd256) && __has_builtin(__builtin_ia32_phaddd256) && __has_builtin(__builtin_convertvector)
    typedef int8_t bytes_t __attribute__((vector_size(16), aligned(1), may_alias));
    typedef int16_t wide_t __attribute__((vector_size(32)));
    if (c_0 == 1 && b_0 == 4 && b_1 == 1) {
        const int16_t a0 = a[0], a1 = a[a_0], a2 = a[2 * a_0], a3 = a[3 * a_0];
        const wide_t left = {a0, a1, a2, a3, a0, a1, a2, a3, a0, a1, a2, a3, a0, a1, a2, a3};
        const wide_t low = __builtin_convertvector(*(const bytes_t *)b, wide_t), high = __builtin_convertvector(*(const bytes_t *)(b + 16), wide_t);
        const sums_t pairs = (sums_t)__builtin_ia32_phaddd256((sums_t)__builtin_ia32_pmaddwd256(left, low), (sums_t)__builtin_ia32_pmaddwd256(left, high));
        *(sums_in_memory_t *)c += (sums_t){pairs[0], pairs[1], pairs[4], pairs[5], pairs[2], pairs[3], pairs[6], pairs[7]};
        return;
    }
#endif
#endif
    sums_t sums = {0};
    for (int k = 0; k < 4; ++k) {
        const int8_t *column = b + k * b_1;
        const sums_t right = {column[0], column[b_0], column[2 * b_0], column[3 * b_0], column[4 * b_0], column[5 * b_0], column[6 * b_0], column[7 * b_0]};
        sums += right * (int32_t)a[k * a_0];
    }
    for (int i = 0; i < 8; ++i) c[i * c_0] += sums[i];
"""


def _add_dot(c: Any, a: Any, b: Any) -> None:
    c += (b.astype(np.int32) * a.astype(np.int32)).sum(axis=1, dtype=np.int32)


def _dot_u8s8() -> TensorIntrin:
    a, b = placeholder((4,), "uint8", "a"), placeholder((8, 4), "int8", "b")
    k = reduce_axis((0, 4), "k")
    c = compute((8,), lambda i: sum(a[k].astype("int32") * b[i, k].astype("int32"), axis=k), "c")
    return decl_tensor_intrin(
        c,
        init={"c": "    for (int i = 0; i < 8; ++i) c[i * c_0] = 0;", "python": lambda c: c.fill(0)},
        update={"c": _UPDATE, "python": _add_dot},
        name="dot_u8s8_8x4",
    )


# c[i] += sum over k < 4 of a[k] * b[i, k], i < 8: uint8 by int8, added in int32, exact. Fast on AVX2 where b is packed in blocks of 8 by 4.
DOT_U8S8_8X4 = _dot_u8s8()


def _dp4a(first: str, second: str) -> TensorIntrin:
    """c += sum over k < 4 of a[k] * b[k], int8 or uint8 by either, added in int32: one instruction of CUDA cores."""
    a, b = placeholder((4,), first, "a"), placeholder((4,), second, "b")
    k = reduce_axis((0, 4), "k")
    c = compute((), lambda: sum(a[k].astype("int32") * b[k].astype("int32"), axis=k), "c")

    def add(c: Any, a: Any, b: Any) -> None:
        c += (a.astype(np.int32) * b.astype(np.int32)).sum(dtype=np.int32)

    return decl_tensor_intrin(
        c,
        update={
            "c": "    for (int k = 0; k < 4; ++k) *c += (int32_t)a[k * a_0] * (int32_t)b[k * b_0];",
            "cuda": f"    *c = (int)tw_{_dp4a_name(first, second)}(*(const int *)a, *(const int *)b, *c);",
            "python": add,
        },
        name=_dp4a_name(first, second),
        aligned={"a": 4, "b": 4},
    )


def _dp4a_name(first: str, second: str) -> str:
    """dp4a_s8, dp4a_u8, dp4a_s8_u8, dp4a_u8_s8"""
    return "_".join(dict.fromkeys(["dp4a", *(f"{'u' if kind == 'uint8' else 's'}8" for kind in (first, second))]))


for _first in ("int8", "uint8"):
    for _second in ("int8", "uint8"):
        ready_made(_dp4a_name(_first, _second), partial(_dp4a, _first, _second))
