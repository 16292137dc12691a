"""Binding loops to blocks and threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....te.axis import IterVar, thread_axis
from ....tir.target import Target

WARP = 32
MOST_BLOCKS_YZ = 65535  # along y and z; along x it is 2^31 - 1


def multiprocessors(target: Target) -> int:
    """Of a large GPU of the architecture: what a kernel should have blocks for."""
    capability = target.gpu.capability
    return 132 if capability >= 90 else 108 if capability >= 80 else 40


def bind(stage: Any, **axes: IterVar) -> None:
    """`bind(stage, blockIdx_x=outer, threadIdx_x=inner)`."""
    for tag, axis in axes.items():
        stage.bind(axis, thread_axis(tag.replace("_", ".")))


def bind_blocks(stage: Any, *axes: IterVar) -> IterVar:
    """Binds up to three neighbouring loops, outermost first, to blockIdx.z, y and x; as one, to x, where y and z do not count so far. Returns the innermost."""
    if any(isinstance(extent := stage.nominal_extent(axis), int) and extent > MOST_BLOCKS_YZ for axis in axes[:-1]):
        axes = (stage.fuse(*axes),)
    for axis, index in zip(reversed(axes), "xyz", strict=False):
        stage.bind(axis, thread_axis(f"blockIdx.{index}"))
    return axes[-1]


def one_axis(stage: Any, axes: Sequence[IterVar]) -> IterVar:
    """The axes as one loop, which may be one of a single step."""
    return axes[0] if len(axes) == 1 else stage.fuse(*axes)


def power_of_two(n: int) -> int:
    """The least power of two that is at least `n`."""
    return 1 << max(0, n - 1).bit_length()


def copy_together(stage: Any, threads: dict[str, int], lanes: int = 1, leaves: Sequence[IterVar] = ()) -> None:
    """The copies that a stage makes inside a block, by all its threads: neighbouring threads make neighbouring copies.

    stage     its axes are not shaped yet, unless its loops are given as `leaves`, outermost first
    threads   of each index of the block, the extent: {"threadIdx.y": 8, "threadIdx.x": 32}, outermost first
    lanes     elements that a thread copies at once; they must be neighbours wherever the copy begins
    """
    loop = one_axis(stage, list(leaves or stage.op.axis))
    if lanes > 1:
        loop, inner = stage.split(loop, factor=lanes)
        stage.vectorize(inner)
    for tag in reversed(threads):
        loop, here = stage.split(loop, factor=threads[tag])
        stage.bind(here, thread_axis((0, threads[tag]), tag))


def points(stage: Any) -> int:
    """Elements of a stage of constant extents."""
    return math.prod(axis.dom.extent for axis in stage.op.axis)
