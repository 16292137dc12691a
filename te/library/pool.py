"""Pooling over windows of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.errors import TEError
from .. import api, reduce
from ..axis import reduce_axis
from .conv2d import Sizes, output_extent, pad_spatial
from .operator import Operator, check_sizes, operator, pair, wide, working_dtype


@operator
def pool2d(N: int, C: int, H: int, W: int, mode: str, k: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dtype: str = "float32") -> Operator:
    """Y[n, c, y, x] = maximum or average over a window of `k` (an int or a pair) of X[N, C, H, W], moved by `stride` (by default `k`).

    `mode` "max" or "avg". Padding never wins a maximum and is not counted in an average. Averages of float16 and
    bfloat16 are computed in float32.
    """
    check_sizes(N=N, C=C, H=H, W=W)
    if mode not in ("max", "avg"):
        raise TEError(f"pool2d: unknown mode {mode!r}, expected 'max' or 'avg'")
    (kh, kw), (ph, pw) = pair(k, "k", 1), pair(padding, "padding", 0)
    sh, sw = (kh, kw) if stride is None else pair(stride, "stride", 1)
    if ph >= kh or pw >= kw:
        raise TEError(f"pool2d: padding {(ph, pw)} must be less than the window {(kh, kw)}: a window would see nothing but padding")
    OH, OW = output_extent(H, kh, sh, ph, 1, "pool2d, height"), output_extent(W, kw, sw, pw, 1, "pool2d, width")
    X = api.placeholder((N, C, H, W), dtype, "X")
    acc = dtype if mode == "max" else working_dtype("pool2d of averages", dtype)
    r, q = reduce_axis((0, kh), "r"), reduce_axis((0, kw), "q")
    if mode == "max":
        Xp = pad_spatial(X, (ph, pw), 2, reduce.lowest(X.dtype))
        Y = api.compute((N, C, OH, OW), lambda n, c, y, x: reduce.max(Xp[n, c, y * sh + r, x * sw + q], axis=[r, q]), "Y", tag="pool2d_max")
    else:
        Xp = pad_spatial(X, (ph, pw), 2)
        total = api.compute((N, C, OH, OW), lambda n, c, y, x: reduce.sum(Xp[n, c, y * sh + r, x * sw + q].astype(acc), axis=[r, q]), "total")

        def seen(o: Any, extent: int, window: int, step: int, pad: int) -> Any:
            """How many elements of the input a window covers along one dimension."""
            if not pad:
                return window
            return api.minimum(o * step - pad + window, extent) - api.maximum(o * step - pad, 0)

        def average(n: Any, c: Any, y: Any, x: Any) -> Any:
            count = seen(y, H, kh, sh, ph) * seen(x, W, kw, sw, pw)
            return (total[n, c, y, x] / (float(count) if isinstance(count, int) else count.astype(acc))).astype(dtype)

        Y = api.compute((N, C, OH, OW), average, "Y", tag="pool2d_avg")

    def reference(x: Any) -> Any:
        (x,) = wide(x)

        def windows(values: Any, fill: Any) -> Any:
            padded = np.pad(values, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=fill)
            return np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))[:, :, ::sh, ::sw]

        if mode == "max":
            return windows(x, -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min).max(axis=(4, 5))
        return windows(x, 0).sum(axis=(4, 5)) / windows(np.ones_like(x), 0).sum(axis=(4, 5))

    return Operator([X, Y], N * C * OH * OW * kh * kw, reference)
