"""Other ways to a convolution: transposed, as a product of matrices (im2col), and with fewer multiplications (Winograd)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tir.errors import TEError
from .. import api, reduce
from ..axis import reduce_axis
from .conv2d import Sizes, check_convolution, image_and_kernel, output_extent, pad_spatial, reference_conv2d
from .operator import Operator, accumulator, check_sizes, operator, pair, wide, working_dtype


@operator
def conv2d_transpose(
    N: int,
    CI: int,
    H: int,
    W: int,
    CO: int,
    KH: int,
    KW: int,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dtype: str = "float32",
    acc_dtype: str | None = None,
) -> Operator:
    """Y[n, o, y, x] = sum over c, r, q of X[n, c, (y + ph - r) / sh, (x + pw - q) / sw] * F[c, o, r, q], where the quotients are whole and inside.

    X[N, CI, H, W], F[CI, CO, KH, KW], Y[N, CO, (H - 1) sh - 2 ph + KH, (W - 1) sw - 2 pw + KW]: what the gradient of a conv2d by its input is.
    It is computed as a convolution, of `X` with `stride` - 1 zeros between its elements, with the kernel turned by half a turn.
    """
    check_sizes(N=N, CI=CI, H=H, W=W, CO=CO, KH=KH, KW=KW)
    (sh, sw), (ph, pw) = pair(stride, "stride", 1), pair(padding, "padding", 0)
    OH, OW = (H - 1) * sh - 2 * ph + KH, (W - 1) * sw - 2 * pw + KW
    if OH < 1 or OW < 1:
        raise TEError(f"conv2d_transpose: padding {(ph, pw)} leaves no output: it would be {OH} by {OW}")
    acc = accumulator(dtype, acc_dtype)
    X, F = api.placeholder((N, CI, H, W), dtype, "X"), api.placeholder((CI, CO, KH, KW), dtype, "W")

    def spread(n: Any, c: Any, u: Any, v: Any) -> Any:
        y, x = u - (KH - 1 - ph), v - (KW - 1 - pw)
        whole = [y % sh == 0] * (sh > 1) + [x % sw == 0] * (sw > 1)
        inside = reduce.all(y >= 0, y <= (H - 1) * sh, x >= 0, x <= (W - 1) * sw, *whole)
        return api.if_then_else(inside, X[n, c, y // sh, x // sw], api.const(0, X.dtype))

    Xd = api.compute((N, CI, OH + KH - 1, OW + KW - 1), spread, "Xd", tag="pad")
    c, r, q = reduce_axis((0, CI), "c"), reduce_axis((0, KH), "r"), reduce_axis((0, KW), "q")
    Y = api.compute(
        (N, CO, OH, OW),
        lambda n, o, y, x: reduce.sum(Xd[n, c, y + r, x + q].astype(acc) * F[c, o, KH - 1 - r, KW - 1 - q].astype(acc), axis=[c, r, q]),
        "Y",
        tag="conv2d_transpose",
    )

    def reference(x: Any, w: Any) -> Any:
        x, w = wide(x, w)
        y = np.zeros((N, CO, (H - 1) * sh + KH, (W - 1) * sw + KW), x.dtype)
        for r in range(KH):
            for q in range(KW):
                y[:, :, r : r + (H - 1) * sh + 1 : sh, q : q + (W - 1) * sw + 1 : sw] += np.einsum("nchw,co->nohw", x, w[:, :, r, q])
        return np.ascontiguousarray(y[:, :, ph : ph + OH, pw : pw + OW])

    return Operator([X, F, Y], 2 * N * CI * H * W * CO * KH * KW, reference)


@operator
def conv2d_im2col(
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
    dtype: str = "float32",
    acc_dtype: str | None = None,
) -> Operator:
    """conv2d (layout NCHW, one group; arguments and options as there) as a product of matrices: the windows are laid out as columns first.

    P[n, k, p] = X[n, c, y sh + r dh - ph, x sw + q dw - pw] with k = (c KH + r) KW + q and p = y OW + x, then Y = F P for each n.
    """
    check_sizes(N=N, CI=CI, H=H, W=W, CO=CO, KH=KH, KW=KW)
    shape = check_convolution("conv2d_im2col", (CI, H, W, CO, KH, KW), stride, padding, dilation, 1, "NCHW")
    OH, OW = shape.OH, shape.OW
    acc = accumulator(dtype, acc_dtype)
    X, F = image_and_kernel(N, H, W, shape, 1, "NCHW", dtype, dtype)
    K = CI * KH * KW
    Xp = pad_spatial(X, shape.padding, 2)

    def window(n: Any, k: Any, p: Any) -> Any:
        row = p // OW * shape.stride[0] + k // KW % KH * shape.dilation[0]
        column = p % OW * shape.stride[1] + k % KW * shape.dilation[1]
        return Xp[n, k // (KH * KW), row, column]

    P = api.compute((N, K, OH * OW), window, "P", tag="im2col")
    Wk = api.compute((CO, K), lambda o, k: F[o, k // (KH * KW), k // KW % KH, k % KW], "Wk", tag="weights")
    k = reduce_axis((0, K), "k")
    M = api.compute(
        (N, CO, OH * OW),
        lambda n, o, p: reduce.sum(Wk[o, k].astype(acc) * P[n, k, p].astype(acc), axis=k),
        "M",
        tag="batch_matmul",
    )
    Y = api.compute((N, CO, OH, OW), lambda n, o, y, x: M[n, o, y * OW + x], "Y", tag="conv2d_im2col")

    def reference(x: Any, w: Any) -> Any:
        return reference_conv2d(x, w, shape.stride, shape.padding, shape.dilation, 1)

    return Operator([X, F, Y], 2 * N * CO * OH * OW * K, reference)


# Transformations of F(m x m, 3 x 3): of the input by B^T, of the kernel by G, of the result by A^T. Lavin and Gray, arXiv:1509.09308, section 4.
Matrix = Sequence[Sequence[float]]
_WINOGRAD: dict[int, tuple[Matrix, Matrix, Matrix]] = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]],
        [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}


@operator
def conv2d_winograd(N: int, CI: int, H: int, W: int, CO: int, m: int = 2, padding: Sizes = 1, dtype: str = "float32") -> Operator:
    """conv2d with a 3 by 3 kernel and stride 1 (X[N, CI, H, W], F[CO, CI, 3, 3]) by Winograd's minimal filtering.

    Tiles of `m` by `m` results (2 or 4) take (m + 2)^2 products for each pair of channels, where the definition takes 9 m^2: 2.25 and 4 times fewer. It
    rounds more than conv2d does, for m = 4 by about two digits; of float16 and bfloat16 all but the result is
    float32. `flops` counts those of conv2d, so that speeds compare.

    A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv:1509.09308.
    """
    check_sizes(N=N, CI=CI, H=H, W=W, CO=CO)
    if not isinstance(m, int) or m not in _WINOGRAD:
        raise TEError(f"conv2d_winograd: m is {m!r}, expected 2 or 4, the height and width of a tile of results")
    ph, pw = pair(padding, "padding", 0)
    OH, OW = output_extent(H, 3, 1, ph, 1, "conv2d_winograd, height"), output_extent(W, 3, 1, pw, 1, "conv2d_winograd, width")
    X, F = api.placeholder((N, CI, H, W), dtype, "X"), api.placeholder((CO, CI, 3, 3), dtype, "W")
    acc = working_dtype("conv2d_winograd", dtype)
    BT, G, AT = _WINOGRAD[m]
    a, TH, TW = m + 2, -(-OH // m), -(-OW // m)
    tiles = N * TH * TW

    def matrix(values: Matrix, i: Any, j: Any) -> Any:
        """An element of a constant matrix at variable indices: a chain of choices, decided where the loops are unrolled."""
        chosen: Any = api.const(0, acc)
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                if value:
                    chosen = api.select(reduce.all(i == row, j == column), api.const(value, acc), chosen)
        return chosen

    def tile(c: Any, t: Any, u: Any, v: Any) -> Any:
        y, x = t // TW % TH * m + u - ph, t % TW * m + v - pw
        return api.if_then_else(reduce.all(y >= 0, y < H, x >= 0, x < W), X[t // (TH * TW), c, y, x], api.const(0, dtype))

    D = api.compute((CI, tiles, a, a), tile, "D", tag="pad")
    u, v = reduce_axis((0, a), "u"), reduce_axis((0, a), "v")
    V = api.compute(
        (a, a, CI, tiles),
        lambda i, j, c, t: reduce.sum(matrix(BT, i, u) * D[c, t, u, v].astype(acc) * matrix(BT, j, v), axis=[u, v]),
        "V",
        tag="winograd_input",
    )
    r, q = reduce_axis((0, 3), "r"), reduce_axis((0, 3), "q")
    U = api.compute(
        (a, a, CO, CI), lambda i, j, o, c: reduce.sum(matrix(G, i, r) * F[o, c, r, q].astype(acc) * matrix(G, j, q), axis=[r, q]), "U", tag="winograd_kernel"
    )
    c = reduce_axis((0, CI), "c")
    M = api.compute((a, a, CO, tiles), lambda i, j, o, t: reduce.sum(U[i, j, o, c] * V[i, j, c, t], axis=c), "M", tag="batch_matmul")
    e, f = reduce_axis((0, a), "e"), reduce_axis((0, a), "f")
    R = api.compute(
        (CO, tiles, m, m),
        lambda o, t, y, x: reduce.sum(matrix(AT, y, e) * M[e, f, o, t] * matrix(AT, x, f), axis=[e, f]),
        "R",
        tag="winograd_output",
    )
    Y = api.compute((N, CO, OH, OW), lambda n, o, y, x: R[o, (n * TH + y // m) * TW + x // m, y % m, x % m].astype(dtype), "Y", tag="conv2d_winograd")

    def reference(x: Any, w: Any) -> Any:
        return reference_conv2d(x, w, (1, 1), (ph, pw), (1, 1), 1)

    return Operator([X, F, Y], 2 * N * CO * OH * OW * CI * 9, reference)
