"""Split and Fuse: how one axis of a stage comes from others, in both directions.

Outward: from the extents of the parents to the extents of the children (`extents`). Inward: from the positions of the children to those of the
parents (`positions`), with the guard under which a position exists (`guard`). Positions count from 0; the smallest value of a root axis is added by
whoever asks. Bound inference and lowering call these methods and know nothing else about splits and fusions.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..te.axis import IterVar
from ..tir.expr import Const, Expr, add, as_expr, const, floordiv, floormod, lt, maximum, minimum, mul

Extent = int | Expr


def plain(extent: Extent) -> Extent:
    """An int where the extent is a constant."""
    return extent.value if isinstance(extent, Const) else extent


def product(a: Extent, b: Extent) -> Extent:
    """a * b"""
    return a * b if isinstance(a, int) and isinstance(b, int) else plain(mul(as_expr(a), as_expr(b)))


def ceil_div(a: Extent, b: Extent) -> Extent:
    """a / b rounded up, b > 0."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return plain(floordiv(add(as_expr(a), as_expr(b) - 1), as_expr(b)))


def smaller(a: Extent, b: Extent) -> Extent:
    """min(a, b)"""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else plain(minimum(as_expr(a), as_expr(b)))


def at_least_one(a: Extent) -> Extent:
    """max(a, 1)"""
    return max(a, 1) if isinstance(a, int) else plain(maximum(a, as_expr(1)))


@dataclass(frozen=True)
class Split:
    """parent -> outer, inner. Exactly one of `factor` (extent of inner) and `nparts` (extent of outer) is given."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: int | None
    nparts: int | None

    @property
    def parents(self) -> tuple[IterVar, ...]:
        """The axes this relation consumes."""
        return (self.parent,)

    @property
    def children(self) -> tuple[IterVar, ...]:
        """The axes this relation makes."""
        return (self.outer, self.inner)

    def extents(self, parents: tuple[Extent, ...]) -> tuple[Extent, ...]:
        """Extents of outer and inner; neither is larger than the parent needs."""
        (extent,) = parents
        if self.factor is not None:
            inner: Extent = extent if isinstance(extent, int) and 0 < extent < self.factor else self.factor
        else:
            assert self.nparts is not None
            inner = at_least_one(ceil_div(extent, self.nparts))  # positions divide by it
        return ceil_div(extent, inner), inner

    def positions(self, children: tuple[Expr, ...], extents: dict[IterVar, Extent]) -> tuple[Expr, ...]:
        """Position in the parent of a position in outer and inner."""
        outer, inner = children
        return (add(mul(outer, as_expr(extents[self.inner])), inner),)

    def guard(self, position: Expr, extents: dict[IterVar, Extent]) -> Expr | None:
        """The condition under which the parent has this position; None where it always has."""
        parent, outer, inner = extents[self.parent], extents[self.outer], extents[self.inner]
        if isinstance(parent, int) and isinstance(outer, int) and isinstance(inner, int) and outer * inner == parent:
            return None
        return lt(position, as_expr(parent))


@dataclass(frozen=True)
class Fuse:
    """parents (outermost first) -> fused. No parents at all: an axis of extent 1."""

    parents: tuple[IterVar, ...]
    fused: IterVar

    @property
    def children(self) -> tuple[IterVar, ...]:
        """The axes this relation makes."""
        return (self.fused,)

    def extents(self, parents: tuple[Extent, ...]) -> tuple[Extent, ...]:
        """The product of the parents' extents."""
        total: Extent = 1
        for extent in parents:
            total = product(total, extent)
        return (total,)

    def positions(self, children: tuple[Expr, ...], extents: dict[IterVar, Extent]) -> tuple[Expr, ...]:
        """Positions in the parents of a position in the fused axis."""
        (rest,) = children
        found: list[Expr] = []
        for parent in reversed(self.parents[1:]):
            extent = extents[parent]
            if extent == 0 if isinstance(extent, int) else False:
                found.append(const(0))  # the fused loop runs not once
                continue
            found.append(floormod(rest, as_expr(extent)))
            rest = floordiv(rest, as_expr(extent))
        if self.parents:
            found.append(rest)
        return tuple(reversed(found))

    def guard(self, position: Expr, extents: dict[IterVar, Extent]) -> Expr | None:
        """A fused axis has no tail."""
        return None


Relation = Split | Fuse
