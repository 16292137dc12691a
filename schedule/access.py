"""Where tensors are held: the buffer of each, its physical layout and strides, and how an element is found in it. Those of scans: scan_storage.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tir.bounds import constant_bounds
from ..tir.errors import ScheduleError
from ..tir.expr import Buffer, Expr, add, as_expr, const, floormod, sub
from ..tir.interval import Intervals
from .bounds import loop_variable
from .placement import part_of_index
from .relation import Extent, plain


class Access:
    """How a tensor is reached: the buffer that holds (part of) it, where that part begins, its physical layout, and of a rolling buffer the
    dimension that is a circle, with its extent."""

    def __init__(self, buffer: Buffer, origin: Sequence[Expr], layout: Any, circle: tuple[int, Expr] | None = None):
        self.buffer, self.origin, self.layout, self.circle = buffer, origin, layout, circle

    def indices(self, logical: Sequence[Expr]) -> tuple[Expr, ...]:
        """Physical indices of an element of the tensor."""
        return self.physical([sub(i, o) for i, o in zip(logical, self.origin, strict=True)])

    def physical(self, position: Sequence[Expr]) -> tuple[Expr, ...]:
        """Physical indices of a position in the part that is held."""
        if self.circle is not None:
            dimension, extent = self.circle
            turned = floormod(add(self.origin[dimension], position[dimension]), extent)
            position = [turned if n == dimension else p for n, p in enumerate(position)]
        return tuple(position) if self.layout is None else tuple(as_expr(e) for e in self.layout(*position))


def layout_shape(stage: Any, shape: Sequence[Extent]) -> list[Extent]:
    """Extents of the physical indices when the logical ones range over `shape`."""
    indices = [loop_variable(f"i{n}", e) for n, e in enumerate(shape)]
    symbolic = Intervals({v: (const(0, v.dtype), sub(as_expr(e), const(1))) for v, e in zip(indices, shape, strict=True) if not isinstance(e, int)})
    extents: list[Extent] = []
    for e in map(as_expr, stage.layout(*indices)):
        high = constant_bounds(e)[1]
        if high is not None:
            extents.append(high + 1)
            continue
        found = symbolic.of(e)
        assert found is not None, e  # with symbolic extents it is a part of one index, see transform_layout
        extents.append(plain(add(found[1], const(1))))
    return extents


def aligned_strides(stage: Any, shape: Sequence[Extent]) -> list[Extent] | None:
    """Strides under storage_align: from the innermost dimension outwards, each padded to its offset modulo its factor."""
    if not stage.alignment:
        return None
    alignment = stage.alignment if stage.layout is None else _alignment_in_layout(stage)
    strides: list[Extent] = []
    stride: Any = 1
    for dimension in range(len(shape) - 1, -1, -1):
        factor, offset = alignment.get(dimension, (1, 0))
        if not isinstance(stride, int):
            raise ScheduleError(f"storage_align of stage {stage.name}: the extents inside dimension {dimension} must be constant")
        stride += (offset - stride) % factor
        strides.append(stride)
        stride = stride * shape[dimension]
    return strides[::-1]


def _alignment_in_layout(stage: Any) -> dict[int, tuple[int, int]]:
    """The alignment of physical dimensions: of each axis, the innermost one that is the axis or a part of it."""
    aligned = {}
    for dimension, padding in stage.alignment.items():
        parts = [n for n, e in enumerate(stage.layout.data) if part_of_index(e) == dimension]
        if not parts:
            raise ScheduleError(f"stage {stage.name} has storage_align of axis {stage.op.axis[dimension].name} and a transform_layout in which no dimension is "
                                "that axis or a part of it (i // a, i % b); align an axis of which one is, or pad in the layout")  # fmt: skip
        aligned[max(parts)] = padding
    return aligned
