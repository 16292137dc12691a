"""Convolutions: conv1d, conv2d, depthwise_conv2d.

As everywhere in deep learning these are correlations (the kernel is not flipped). Output extents:
(in + 2 padding - dilation (kernel - 1) - 1) // stride + 1, see Dumoulin and Visin, "A guide to convolution arithmetic for deep learning",
arXiv:1603.07285.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir.errors import TEError
from .. import api, reduce
from ..axis import reduce_axis
from ..tensor import Tensor
from .operator import Operator, accumulator, check_sizes, operator, pair, wide

Sizes = int | tuple[int, int]


def output_extent(extent: int, kernel: int, stride: int, padding: int, dilation: int, what: str) -> int:
    """The number of positions the kernel takes along one dimension; a TEError where it does not fit once."""
    reach = dilation * (kernel - 1) + 1
    if extent + 2 * padding < reach:
        raise TEError(f"{what}: the kernel reaches over {reach} element(s), but the padded input has {extent + 2 * padding}")
    return (extent + 2 * padding - reach) // stride + 1


def pad_spatial(X: Tensor, padding: tuple[int, int], first: int, fill: Any = 0, name: str = "Xp") -> Tensor:
    """`X` with `fill` around dimensions `first` (height) and `first + 1` (width); `X` itself where nothing is added."""
    ph, pw = padding
    if ph == pw == 0:
        return X
    H, W = int(X.shape[first]), int(X.shape[first + 1])  # type: ignore[arg-type]
    shape = [*X.shape[:first], H + 2 * ph, W + 2 * pw, *X.shape[first + 2 :]]

    def padded(*i: Any) -> Any:
        h, w = i[first] - ph, i[first + 1] - pw
        inside = [c for p, c in ((ph, h >= 0), (ph, h < H), (pw, w >= 0), (pw, w < W)) if p]
        return api.if_then_else(reduce.all(*inside), X(*i[:first], h, w, *i[first + 2 :]), api.const(fill, X.dtype))

    return api.compute(shape, padded, name, tag="pad")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Convolution:
    """What a convolution's arguments say: extents of the output and of the kernel, the steps (height, width)."""

    CI: int
    CO: int
    KH: int
    KW: int
    OH: int
    OW: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


def check_convolution(
    name: str, sizes: tuple[int, int, int, int, int, int], stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, layout: str
) -> Convolution:
    """The convolution of these sizes (CI, H, W, CO, KH, KW); a TEError where its arguments do not fit each other."""
    CI, H, W, CO, KH, KW = sizes
    if layout not in ("NCHW", "NHWC"):
        raise TEError(f"{name}: unknown layout {layout!r}, expected 'NCHW' or 'NHWC'")
    if CI % groups or CO % groups:
        raise TEError(f"{name}: groups={groups} must divide the input channels ({CI}) and the output channels ({CO})")
    strides, pads, dilations = pair(stride, "stride", 1), pair(padding, "padding", 0), pair(dilation, "dilation", 1)
    OH = output_extent(H, KH, strides[0], pads[0], dilations[0], f"{name}, height")
    OW = output_extent(W, KW, strides[1], pads[1], dilations[1], f"{name}, width")
    return Convolution(CI, CO, KH, KW, OH, OW, strides, pads, dilations)


def image_and_kernel(N: int, H: int, W: int, shape: Convolution, groups: int, layout: str, dtype: str, kernel_dtype: str) -> tuple[Tensor, Tensor]:
    """The operands X and W of a convolution, in the order of dimensions of its layout."""
    CI, CO, CG = shape.CI, shape.CO, shape.CI // groups
    nchw = layout == "NCHW"
    X = api.placeholder((N, CI, H, W) if nchw else (N, H, W, CI), dtype, "X")
    return X, api.placeholder((CO, CG, shape.KH, shape.KW) if nchw else (shape.KH, shape.KW, CG, CO), kernel_dtype, "W")


def convolve(Xp: Tensor, F: Tensor, N: int, shape: Convolution, groups: int, layout: str, acc: str, name: str) -> Tensor:
    """The sums of a convolution of a padded input with a kernel, kept in `acc`: a computation called `name`."""
    CG, OG = shape.CI // groups, shape.CO // groups
    c, r, q = reduce_axis((0, CG), "c"), reduce_axis((0, shape.KH), "r"), reduce_axis((0, shape.KW), "q")

    def channel(o: Any) -> Any:
        return c if groups == 1 else o // OG * CG + c

    def row(y: Any) -> Any:
        return y * shape.stride[0] + r * shape.dilation[0]

    def column(x: Any) -> Any:
        return x * shape.stride[1] + q * shape.dilation[1]

    if layout == "NCHW":
        return api.compute(  # type: ignore[no-any-return]
            (N, shape.CO, shape.OH, shape.OW),
            lambda n, o, y, x: reduce.sum(Xp[n, channel(o), row(y), column(x)].astype(acc) * F[o, c, r, q].astype(acc), axis=[c, r, q]),
            name,
            tag="conv2d_nchw",
        )
    return api.compute(  # type: ignore[no-any-return]
        (N, shape.OH, shape.OW, shape.CO),
        lambda n, y, x, o: reduce.sum(Xp[n, row(y), column(x), channel(o)].astype(acc) * F[r, q, c, o].astype(acc), axis=[r, q, c]),
        name,
        tag="conv2d_nhwc",
    )


@operator
def conv1d(
    N: int,
    CI: int,
    L: int,
    CO: int,
    K: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    dtype: str = "float32",
    acc_dtype: str | None = None,
) -> Operator:
    """Y[n, o, l] = sum over c, r of X[n, c, l stride + r dilation - padding] * W[o, c, r], with X[N, CI, L], W[CO, CI, K], Y[N, CO, OL]."""
    check_sizes(N=N, CI=CI, L=L, CO=CO, K=K, stride=stride, dilation=dilation)
    if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
        raise TEError(f"conv1d: padding is {padding!r}: expected an int of at least 0")
    OL = output_extent(L, K, stride, padding, dilation, "conv1d")
    acc = accumulator(dtype, acc_dtype)
    X, W = api.placeholder((N, CI, L), dtype, "X"), api.placeholder((CO, CI, K), dtype, "W")
    Xp = X
    if padding:
        Xp = api.compute(
            (N, CI, L + 2 * padding),
            lambda n, c, l: api.if_then_else(reduce.all(l >= padding, l < L + padding), X[n, c, l - padding], api.const(0, X.dtype)),
            "Xp",
            tag="pad",
        )
    c, r = reduce_axis((0, CI), "c"), reduce_axis((0, K), "r")
    Y = api.compute(
        (N, CO, OL),
        lambda n, o, l: reduce.sum(Xp[n, c, l * stride + r * dilation].astype(acc) * W[o, c, r].astype(acc), axis=[c, r]),
        "Y",
        tag="conv1d",
    )

    def reference(x: Any, w: Any) -> Any:
        return reference_conv2d(x[:, :, None], w[:, :, None], (1, stride), (0, padding), (1, dilation), 1)[:, :, 0]

    return Operator([X, W, Y], 2 * N * CO * OL * CI * K, reference)


@operator
def conv2d(
    N: int,
    CI: int,
    H: int,
    W: int,
    CO: int,
    KH: int,
    KW: int,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
    dtype: str = "float32",
    acc_dtype: str | None = None,
) -> Operator:
    """Y[n, o, y, x] = sum over c, r, q of X[n, g c, y sh + r dh - ph, x sw + q dw - pw] * F[o, c, r, q].

    Layout "NCHW": X[N, CI, H, W], F[CO, CI / groups, KH, KW], Y[N, CO, OH, OW].
    Layout "NHWC": X[N, H, W, CI], F[KH, KW, CI / groups, CO], Y[N, OH, OW, CO].
    `stride`, `padding`, `dilation`: an int, or a pair (height, width). With `groups`, output channel o sees the input channels of its group
    o // (CO / groups) only. The products are summed in `acc_dtype`, the dtype of Y.
    """
    check_sizes(N=N, CI=CI, H=H, W=W, CO=CO, KH=KH, KW=KW, groups=groups)
    shape = check_convolution("conv2d", (CI, H, W, CO, KH, KW), stride, padding, dilation, groups, layout)
    acc = accumulator(dtype, acc_dtype)
    X, F = image_and_kernel(N, H, W, shape, groups, layout, dtype, dtype)
    Y = convolve(pad_spatial(X, shape.padding, 2 if layout == "NCHW" else 1), F, N, shape, groups, layout, acc, "Y")

    def reference(x: Any, w: Any) -> Any:
        return reference_conv2d(x, w, shape.stride, shape.padding, shape.dilation, groups, layout)

    return Operator([X, F, Y], 2 * N * CO * shape.OH * shape.OW * CI // groups * KH * KW, reference)


@operator
def depthwise_conv2d(
    N: int,
    C: int,
    H: int,
    W: int,
    KH: int,
    KW: int,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    dtype: str = "float32",
    acc_dtype: str | None = None,
) -> Operator:
    """Y[n, c, y, x] = sum over r, q of X[n, c, y sh + r dh - ph, x sw + q dw - pw] * F[c, r, q].

    X[N, C, H, W], F[C, KH, KW], Y[N, C, OH, OW]; options as in conv2d.
    """
    check_sizes(N=N, C=C, H=H, W=W, KH=KH, KW=KW)
    shape = check_convolution("depthwise_conv2d", (C, H, W, C, KH, KW), stride, padding, dilation, C, "NCHW")
    (sh, sw), (dh, dw) = shape.stride, shape.dilation
    acc = accumulator(dtype, acc_dtype)
    X, F = api.placeholder((N, C, H, W), dtype, "X"), api.placeholder((C, KH, KW), dtype, "W")
    Xp = pad_spatial(X, shape.padding, 2)
    r, q = reduce_axis((0, KH), "r"), reduce_axis((0, KW), "q")
    Y = api.compute(
        (N, C, shape.OH, shape.OW),
        lambda n, c, y, x: reduce.sum(Xp[n, c, y * sh + r * dh, x * sw + q * dw].astype(acc) * F[c, r, q].astype(acc), axis=[r, q]),
        "Y",
        tag="depthwise_conv2d",
    )

    def reference(x: Any, w: Any) -> Any:
        return reference_conv2d(x, w[:, None], shape.stride, shape.padding, shape.dilation, C)

    return Operator([X, F, Y], 2 * N * C * shape.OH * shape.OW * KH * KW, reference)


def reference_conv2d(x: Any, w: Any, stride: tuple[int, int], padding: tuple[int, int], dilation: tuple[int, int], groups: int, layout: str = "NCHW") -> Any:
    """The convolution of x[N, CI, H, W] with w[CO, CI / groups, KH, KW] (or of the layout "NHWC"), one product of matrices for each tap of the kernel."""
    if layout == "NHWC":
        y = reference_conv2d(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), stride, padding, dilation, groups)
        return np.ascontiguousarray(y.transpose(0, 2, 3, 1))
    x, w = wide(x, w)
    (ph, pw), (sh, sw), (dh, dw) = padding, stride, dilation
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    N, _, H, W = x.shape
    CO, CG, KH, KW = w.shape
    OH, OW = (H - dh * (KH - 1) - 1) // sh + 1, (W - dw * (KW - 1) - 1) // sw + 1
    x = x.reshape(N, groups, CG, H, W)
    w = w.reshape(groups, CO // groups, CG, KH, KW)
    y = np.zeros((N, groups, CO // groups, OH * OW), x.dtype)
    for r in range(KH):
        for q in range(KW):
            window = x[:, :, :, r * dh : r * dh + (OH - 1) * sh + 1 : sh, q * dw : q * dw + (OW - 1) * sw + 1 : sw]
            y += w[:, :, :, r, q] @ window.reshape(N, groups, CG, OH * OW)
    return y.reshape(N, CO, OH, OW)
