"""Scaled dot-product attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.errors import TEError
from .. import api, reduce
from ..axis import reduce_axis
from .operator import Operator, check_sizes, operator, wide, working_dtype


@operator
def attention(
    B: int, H: int, Sq: int, Sk: int, D: int, causal: bool = False, mask: bool = False, kv_heads: int | None = None, dtype: str = "float32"
) -> Operator:
    """O[b, h, i, :] = sum over j of softmax over j of (Q[b, h, i, :] . K[b, g, j, :] / sqrt(D) + M[b, 0, i, j]) * V[b, g, j, :].

    Q[B, H, Sq, D], K and V[B, kv_heads, Sk, D], O[B, H, Sq, D]. Several query heads share a head of K and V where `kv_heads` is less than
    H: g = h // (H / kv_heads). `causal`: query i sees the keys j <= i + Sk - Sq, so the last query sees all. `mask`: an additive mask
    M[B, 1, Sq, Sk] is the fourth argument. A row that sees no key at all (masked with -inf throughout) gives 0. Scores, weights and sums of float16
    and bfloat16 are float32.

    A. Vaswani et al., "Attention Is All You Need", arXiv:1706.03762; J. Ainslie et al., "GQA", arXiv:2305.13245.
    """
    check_sizes(B=B, H=H, Sq=Sq, Sk=Sk, D=D)
    heads = H if kv_heads is None else kv_heads
    check_sizes(kv_heads=heads)
    if H % heads:
        raise TEError(f"attention: kv_heads={heads} must divide the number of query heads H={H}")
    share = H // heads
    Q = api.placeholder((B, H, Sq, D), dtype, "Q")
    K, V = api.placeholder((B, heads, Sk, D), dtype, "K"), api.placeholder((B, heads, Sk, D), dtype, "V")
    M = api.placeholder((B, 1, Sq, Sk), dtype, "M")
    d, j1, j2, j3 = reduce_axis((0, D), "d"), reduce_axis((0, Sk), "j1"), reduce_axis((0, Sk), "j2"), reduce_axis((0, Sk), "j3")
    factor, acc = D**-0.5, working_dtype("attention", dtype)

    T = api.compute((B, H, Sq, Sk), lambda b, h, i, j: reduce.sum(Q[b, h, i, d].astype(acc) * K[b, h // share, j, d].astype(acc), axis=d), "T")

    def score(b: Any, h: Any, i: Any, j: Any) -> Any:
        s = T[b, h, i, j] * factor
        if mask:
            s = s + M[b, 0, i, j].astype(acc)
        return api.select(j <= i + (Sk - Sq), s, -float("inf")) if causal else s

    S = api.compute((B, H, Sq, Sk), score, "S")
    m = api.compute((B, H, Sq), lambda b, h, i: reduce.max(S[b, h, i, j1], axis=j1), "m")

    def weight(b: Any, h: Any, i: Any, j: Any) -> Any:
        # of a row of -inf the maximum is taken finite, so that its weights are exp(-inf) = 0 and not exp(-inf + inf)
        largest = api.maximum(m[b, h, i], api.min_value(acc)) if causal or mask else m[b, h, i]
        return api.exp(S[b, h, i, j] - largest)

    E = api.compute((B, H, Sq, Sk), weight, "E")
    z = api.compute((B, H, Sq), lambda b, h, i: reduce.sum(E[b, h, i, j2], axis=j2), "z")
    U = api.compute((B, H, Sq, D), lambda b, h, i, e: reduce.sum(E[b, h, i, j3] * V[b, h // share, j3, e].astype(acc), axis=j3), "U")

    def row(b: Any, h: Any, i: Any, e: Any) -> Any:
        quotient = U[b, h, i, e] / z[b, h, i]
        return (api.select(z[b, h, i] == 0.0, 0.0, quotient) if causal or mask else quotient).astype(dtype)

    O = api.compute((B, H, Sq, D), row, "O", tag="attention")

    def reference(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
        q, k, v = wide(q, np.repeat(k, share, axis=1), np.repeat(v, share, axis=1))
        s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(D)
        if mask:
            s = s + wide(bias)[0]
        if causal:
            s = np.where(np.arange(Sk) <= np.arange(Sq)[:, None] + Sk - Sq, s, -np.inf)
        highest = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(np.isneginf(highest), 0, highest))
        total = e.sum(-1, keepdims=True)
        return np.einsum("bhij,bhjd->bhid", e / np.where(total == 0, 1, total), v)

    pairs = sum(max(0, min(Sk, i + Sk - Sq + 1)) for i in range(Sq)) if causal else Sq * Sk
    return Operator([Q, K, V, M, O] if mask else [Q, K, V, O], B * H * pairs * (4 * D + 5), reference)
