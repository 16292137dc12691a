"""Scaled dot-product attention, in two forms: as it is written down, and block by block over the keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.errors import TEError
from .. import api, reduce
from ..axis import reduce_axis
from ..scan import scan
from ..tensor import Tensor
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
    form = _Form(B, H, Sq, Sk, D, causal, mask, kv_heads, dtype, "attention")
    Q, K, V, share, acc = form.Q, form.K, form.V, form.share, form.acc
    d, j1, j2, j3 = reduce_axis((0, D), "d"), reduce_axis((0, Sk), "j1"), reduce_axis((0, Sk), "j2"), reduce_axis((0, Sk), "j3")

    T = api.compute((B, H, Sq, Sk), lambda b, h, i, j: reduce.sum(Q[b, h, i, d].astype(acc) * K[b, h // share, j, d].astype(acc), axis=d), "T")

    S = api.compute((B, H, Sq, Sk), lambda b, h, i, j: form.score(T[b, h, i, j], b, i, j), "S")
    m = api.compute((B, H, Sq), lambda b, h, i: reduce.max(S[b, h, i, j1], axis=j1), "m")

    def weight(b: Any, h: Any, i: Any, j: Any) -> Any:
        # of a row of -inf the maximum is taken finite, so that its weights are exp(-inf) = 0 and not exp(-inf + inf)
        largest = api.maximum(m[b, h, i], api.min_value(acc)) if causal or mask else m[b, h, i]
        return api.exp(S[b, h, i, j] - largest)

    E = api.compute((B, H, Sq, Sk), weight, "E")
    z = api.compute((B, H, Sq), lambda b, h, i: reduce.sum(E[b, h, i, j2], axis=j2), "z")
    U = api.compute((B, H, Sq, D), lambda b, h, i, e: reduce.sum(E[b, h, i, j3] * V[b, h // share, j3, e].astype(acc), axis=j3), "U")

    O = api.compute((B, H, Sq, D), lambda b, h, i, e: form.row(U[b, h, i, e], z[b, h, i]), "O", tag="attention")

    return form.operator(O)


@operator
def flash_attention(
    B: int,
    H: int,
    Sq: int,
    Sk: int,
    D: int,
    causal: bool = False,
    mask: bool = False,
    kv_heads: int | None = None,
    dtype: str = "float32",
    key_block: int = 64,
) -> Operator:
    """As `attention`, block by block over the keys: the memory it needs grows with S x D, whatever the schedule, if a block of queries is computed at a time.

    A scan over blocks of `key_block` keys keeps, for each query, the largest score m so far, the sum l of the weights exp(score - m), and the weighted
    sum o of the values. A block gives its own largest score p, sum z and weighted sum u; then, with n = max(m, p):

        o = o exp(m - n) + u exp(p - n)        l = l exp(m - n) + z exp(p - n)        m = n

    and O = o / l at the end. Schedules compute the scan inside a loop over blocks of queries: `s[scan].compute_at(s[O], block)`.

    M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867; T. Dao et al., "FlashAttention", arXiv:2205.14135.
    """
    check_sizes(Sk=Sk, key_block=key_block)
    size = min(key_block, Sk)
    blocks = -(-Sk // size)
    form = _Form(B, H, Sq, Sk, D, causal, mask, kv_heads, dtype, "flash_attention", goes_past=Sk % size != 0)
    Q, K, V, acc = form.Q, form.K, form.V, form.acc
    d, j1, j2, j3 = reduce_axis((0, D), "d"), *(reduce_axis((0, size), f"j{n}") for n in (1, 2, 3))
    lowest = api.min_value(acc)  # takes the place of -inf where it is subtracted: exp(-inf - -inf) would be no number

    T = api.compute((blocks, B, H, Sq, size), lambda t, b, h, i, j: reduce.sum(Q[b, h, i, d].astype(acc) * form.of_key(K, b, h, t * size + j, d), axis=d), "T")
    S = api.compute(T.shape, lambda t, b, h, i, j: form.score(T[t, b, h, i, j], b, i, t * size + j), "S")
    p = api.compute(T.shape[:-1], lambda t, b, h, i: reduce.max(S[t, b, h, i, j1], axis=j1), "p")
    E = api.compute(T.shape, lambda t, b, h, i, j: api.exp(S[t, b, h, i, j] - api.maximum(p[t, b, h, i], lowest)), "E")
    z = api.compute(T.shape[:-1], lambda t, b, h, i: reduce.sum(E[t, b, h, i, j2], axis=j2), "z")
    u = api.compute((*T.shape[:-1], D), lambda t, b, h, i, e: reduce.sum(E[t, b, h, i, j3] * form.of_key(V, b, h, t * size + j3, e), axis=j3), "u")

    states = [api.placeholder((blocks + 1, B, H, Sq, *rest), acc, name) for name, rest in (("o", (D,)), ("l", ()), ("m", ()))]
    o, l, m = states
    starts = [
        api.compute((1, *state.shape[1:]), lambda *_, value=value: api.const(value, acc), f"{state.name}0")
        for state, value in zip(states, (0.0, 0.0, -float("inf")), strict=True)
    ]
    n = api.compute(m.shape, lambda t, b, h, i: api.maximum(m[t - 1, b, h, i], p[t - 1, b, h, i]), "n")
    x = api.compute(m.shape, lambda t, b, h, i: api.exp(m[t - 1, b, h, i] - api.maximum(n[t, b, h, i], lowest)), "x")
    y = api.compute(m.shape, lambda t, b, h, i: api.exp(p[t - 1, b, h, i] - api.maximum(n[t, b, h, i], lowest)), "y")
    updates = [
        api.compute(o.shape, lambda t, b, h, i, e: o[t - 1, b, h, i, e] * x[t, b, h, i] + u[t - 1, b, h, i, e] * y[t, b, h, i], "o_next"),
        api.compute(l.shape, lambda t, b, h, i: l[t - 1, b, h, i] * x[t, b, h, i] + z[t - 1, b, h, i] * y[t, b, h, i], "l_next"),
        api.compute(m.shape, lambda t, b, h, i: n[t, b, h, i], "m_next"),
    ]
    over, total, _ = scan(starts, updates, states, name="over_keys")
    O = api.compute((B, H, Sq, D), lambda b, h, i, e: form.row(over[blocks, b, h, i, e], total[blocks, b, h, i]), "O", tag="attention")
    return form.operator(O)


class _Form:
    """What both forms of attention have: arguments, scores from products, the last quotient, the reference. `goes_past`: keys past the last one are asked for;
    they count for nothing."""

    def __init__(
        self, B: int, H: int, Sq: int, Sk: int, D: int, causal: bool, mask: bool, kv_heads: int | None, dtype: str, name: str, goes_past: bool = False
    ):
        check_sizes(B=B, H=H, Sq=Sq, Sk=Sk, D=D)
        heads = H if kv_heads is None else kv_heads
        check_sizes(kv_heads=heads)
        if H % heads:
            raise TEError(f"{name}: kv_heads={heads} must divide the number of query heads H={H}")
        self.acc, self.goes_past = working_dtype(name, dtype), goes_past
        self.sizes, self.share, self.causal, self.mask, self.dtype = (B, H, Sq, Sk, D), H // heads, causal, mask, dtype
        self.Q = api.placeholder((B, H, Sq, D), dtype, "Q")
        self.K, self.V = api.placeholder((B, heads, Sk, D), dtype, "K"), api.placeholder((B, heads, Sk, D), dtype, "V")
        self.M = api.placeholder((B, 1, Sq, Sk), dtype, "M")

    def of_key(self, X: Tensor, b: Any, h: Any, j: Any, e: Any) -> Any:
        """Element `e` of key or value `j`."""
        return self._or_zero(X[b, h // self.share, j, e], j)

    def _or_zero(self, value: Any, j: Any) -> Any:
        return (api.if_then_else(j < self.sizes[3], value, api.const(0, self.dtype)) if self.goes_past else value).astype(self.acc)

    def score(self, product: Any, b: Any, i: Any, j: Any) -> Any:
        """Query i with key j; -inf where it does not see it."""
        Sq, Sk, D = self.sizes[2:]
        s = product * D**-0.5
        if self.mask:
            s = s + self._or_zero(self.M[b, 0, i, j], j)
        conditions = [j <= i + (Sk - Sq)] * self.causal + [j < Sk] * self.goes_past
        return api.select(reduce.all(*conditions), s, -float("inf")) if conditions else s

    def row(self, weighted: Any, total: Any) -> Any:
        """The quotient of the two sums; 0 for a query that sees no key."""
        quotient = weighted / total
        return (api.select(total == 0.0, 0.0, quotient) if self.causal or self.mask else quotient).astype(self.dtype)

    def operator(self, O: Tensor) -> Operator:
        B, H, Sq, Sk, D = self.sizes
        pairs = sum(max(0, min(Sk, i + Sk - Sq + 1)) for i in range(Sq)) if self.causal else Sq * Sk
        return Operator([self.Q, self.K, self.V, *([self.M] if self.mask else []), O], B * H * pairs * (4 * D + 5), self.reference)

    def reference(self, q: Any, k: Any, v: Any, bias: Any = None) -> Any:
        Sq, Sk, D = self.sizes[2:]
        q, k, v = wide(q, np.repeat(k, self.share, axis=1), np.repeat(v, self.share, axis=1))
        s = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(D)
        if self.mask:
            s = s + wide(bias)[0]
        if self.causal:
            s = np.where(np.arange(Sk) <= np.arange(Sq)[:, None] + Sk - Sq, s, -np.inf)
        highest = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(np.isneginf(highest), 0, highest))
        total = e.sum(-1, keepdims=True)
        return np.einsum("bhij,bhjd->bhid", e / np.where(total == 0, 1, total), v)
