"""The primitives that say where a stage is computed and where and how its result lives: compute_at, compute_inline, compute_root, set_scope,
storage_align, transform_layout. How its buffer is filled is in storage.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..te.axis import IterVar
from ..tir.errors import ScheduleError
from ..tir.expr import Add, Binary, Call, Const, Expr, FloorDiv, FloorMod, Mul, Sub, Var, as_expr
from .stage import INLINE, Attach, StageState, position_of
from .trace import Layout, primitive

SCOPES = ("global", "local", "shared", "shared.dyn", "warp", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")


class PlacementPrimitives(StageState):
    """Where one stage is computed and stored. Examples: `B[i] = A[i] * 2`, `C[i] = B[i] + 1`, of 16 elements, C split into io, ii of 4."""

    def _not_an_output(self, primitive_name: str, why: str) -> None:
        self.compute_op(primitive_name)
        if self.is_output:
            raise ScheduleError(f"{primitive_name} of stage {self.name}: it is an output of the schedule, {why}")

    def _not_an_update(self, primitive_name: str) -> None:
        if self.is_update:
            raise ScheduleError(f"{primitive_name} of stage {self.name}: it is an update of scan {self.scan_stage.name} and lives in its result; "
                                f"use s.cache_write({self.name}, scope) to compute it elsewhere first")  # fmt: skip

    @primitive("stage")
    def compute_at(self, consumer: Any, axis: IterVar) -> None:
        """Compute this stage inside the loop `axis` of the stage `consumer`: in each iteration just what that iteration needs.

        before -> after, `s[B].compute_at(s[C], io)`:

            for i in range(16):             for io in range(4):
                B[i] = A[i] * 2                 for i in range(4):
            for io in range(4):                     B[i] = A[io * 4 + i] * 2
                for ii in range(4):             for ii in range(4):
                    C[io * 4 + ii] = ...            C[io * 4 + ii] = B[ii] + 1

        What regions of neighbouring iterations share is computed again. A scan computes all its steps there, of the elements that are needed: each element of a
        state may depend on its own past only. Raises ScheduleError if `axis` is no leaf of `consumer`, or this stage is an output or
        `consumer` itself. That every reader is inside that loop is checked when the schedule is lowered, so placements may be given in any order.
        """
        if self.is_output or not self.is_scan:
            self._not_an_output("compute_at", "which is computed as a whole; give a stage that it reads")
        if self.is_update:
            raise ScheduleError(f"compute_at of stage {self.name}: it is an update of scan {self.scan_stage.name} and is computed in each step of that; "
                                f"give a stage that it reads, or shape the loops of {self.name}")  # fmt: skip
        target = self.schedule.stage_of(consumer, "compute_at")
        if target is self:
            raise ScheduleError(f"compute_at of stage {self.name}: a stage cannot be computed inside itself; give the stage that reads {self.name}")
        target.leaf(axis, f"compute_at of stage {self.name}")
        if target.attach is INLINE:
            raise ScheduleError(
                f"compute_at of stage {self.name}: stage {target.name} is inlined and has no loops of its own; attach to the stage that reads it"
            )
        seen, stage = [self.name], target
        while stage.attach.kind == "at":
            seen.append(stage.name)
            stage = stage.attach.consumer
            if stage is self:
                raise ScheduleError(f"compute_at of stage {self.name}: the placements go round in a circle: {' in '.join(reversed(seen))}; "
                                    f"call s[{target.name}].compute_root() first")  # fmt: skip
        self.attach = Attach("at", target, axis)

    @primitive("stage")
    def compute_inline(self) -> None:
        """Put this stage's expression in the place of each read of it; it has no loops and no storage then.

        before -> after, `s[B].compute_inline()`:

            for i in range(16):             for i in range(16):
                B[i] = A[i] * 2                 C[i] = A[i] * 2 + 1
            for i in range(16):
                C[i] = B[i] + 1

        Raises ScheduleError for a reduction, a stage of several outputs, or an output of the schedule.
        """
        op = self.compute_op("compute_inline")
        self._not_an_output("compute_inline", "and must be stored; inline the stages it reads")
        if self.is_update:
            raise ScheduleError(f"compute_inline of stage {self.name}: it is an update of scan {self.scan_stage.name}, whose result is stored; "
                                "inline the stages it reads")  # fmt: skip
        if op.reducer is not None:
            raise ScheduleError(f"compute_inline of stage {self.name}: it is a reduction ({op.reducer.name}), which is a loop and not an expression; "
                                "use compute_at to put it inside its consumer")  # fmt: skip
        if len(self.outputs) > 1:
            raise ScheduleError(f"compute_inline of stage {self.name}: it has {len(self.outputs)} outputs; only a stage of one output can be inlined")
        for other in self.schedule.stages:
            if other.attach.kind == "at" and other.attach.consumer is self:
                raise ScheduleError(
                    f"compute_inline of stage {self.name}: stage {other.name} is computed inside its loops; move that first: s[{other.name}].compute_root()"
                )
        kept = (self.predicate is not None, "a store predicate"), (self.is_rolling, "a rolling buffer"), (self.buffer_stages > 1, "a double buffer")
        lost = next((what for is_asked, what in kept if is_asked), None)
        if lost is not None:
            raise ScheduleError(f"compute_inline of stage {self.name}: it has {lost}, and that would be lost; inlined stages are not stored")
        self.attach = INLINE

    @primitive("stage")
    def compute_root(self) -> None:
        """Compute the whole of this stage before its readers: what every stage starts with. Undoes compute_at and compute_inline.

        before -> after, `s[B].compute_root()`:

            for i in range(16):             for i in range(16):
                C[i] = A[i] * 2 + 1             B[i] = A[i] * 2
                                            for i in range(16):
                                                C[i] = B[i] + 1

        A stage that is a part of a scan is computed at the root of a step: at the scan's time axis.
        """
        if not self.is_scan:
            self.compute_op("compute_root")
        self.attach, self.is_rolling = self.home, False

    @primitive("stage")
    def set_scope(self, scope: str) -> None:
        """Where the result lives: "global" (memory), "local" (registers or the stack of the thread), on a GPU also "shared", "warp" ...

        before -> after, `s[B].set_scope("local")`:

            allocate B: float32[4]          allocate B: float32[4] in local

        Raises ScheduleError for an unknown scope, or an output (which lives in its argument).
        """
        if not self.is_scan:
            self.compute_op("set_scope")
        self._not_an_update("set_scope")
        if not isinstance(scope, str) or scope not in SCOPES:
            raise ScheduleError(f"set_scope of stage {self.name}: unknown scope {scope!r}; known are {', '.join(SCOPES)}")
        if self.is_output and scope != "global":
            raise ScheduleError(f"set_scope of stage {self.name}: it is an output of the schedule and lives in its argument (global memory), not in {scope!r}; "
                                f"use s.cache_write({self.name}, {scope!r}) to compute it there first")  # fmt: skip
        self.scope = scope

    @primitive("stage")
    def storage_align(self, axis: IterVar, factor: int, offset: int = 0) -> None:
        """Pad rows: the stride of `axis` (an axis of the operation) becomes `offset` modulo `factor` elements.

        before -> after, `s[B].storage_align(B.op.axis[0], 8, 1)` on B of 4 x 16:

            allocate B: float32[4, 16]      allocate B: float32[4, 16] strides [17, 1]

        Under a transform_layout it is the stride of the dimension that is the axis, or of the innermost one that is a part of it (i // a, i % b). Raises
        ScheduleError on an output, for an axis that is no data-parallel axis of the operation, or numbers out of range.
        """
        self._not_an_output("storage_align", "whose layout is its argument's")
        self._not_an_update("storage_align")
        dimension = position_of(axis, self.op.axis)
        if dimension is None:
            raise ScheduleError(
                f"storage_align of stage {self.name}: expected one of the axes of its result ({', '.join(a.name for a in self.op.axis)}), found {axis!r}"
            )
        for name, value, low in (("factor", factor, 1), ("offset", offset, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ScheduleError(f"storage_align of stage {self.name}: {name} must be an int of at least {low}, found {value!r}")
        if offset >= factor:
            raise ScheduleError(f"storage_align of stage {self.name}: offset {offset} must be below factor {factor} (the stride is offset modulo factor)")
        self.alignment[dimension] = (factor, offset)

    @primitive("stage", takes_mapping=True)
    def transform_layout(self, mapping: Callable[..., Sequence[Any]]) -> None:
        """Store the result in another physical layout: `mapping` takes the logical indices and returns the physical ones (built with + - * // % ^).

        before -> after, `s[B].transform_layout(lambda k, j: [j // 16, k, j % 16])` on B of 8 x 32:

            allocate B: float32[8, 32]      allocate B: float32[2, 8, 16]
            B[k, j] = ...                   B[j // 16, k, j % 16] = ...

        Readers are rewritten too. Loops stay as they are: tile them to walk the new layout in order. Raises ScheduleError on an
        output, or if two elements would share one place.
        """
        self._not_an_output("transform_layout", "whose layout is its argument's; use s.cache_write, or transform a stage it reads")
        self._not_an_update("transform_layout")
        layout = self.layout_of(mapping)
        self._check_injective(layout)
        self.layout = layout

    def layout_of(self, mapping: Callable[..., Sequence[Any]]) -> Layout:
        """The mapping as data."""
        op = self.compute_op("transform_layout")
        if isinstance(mapping, Layout):
            layout = mapping
            layout(*[Var("i") for _ in op.axis])  # refuses what is not a layout
            return layout
        if not callable(mapping):
            raise ScheduleError(f"transform_layout of stage {self.name}: expected a function of the {len(op.axis)} indices, found {mapping!r}")
        indices = [Var(f"i{n}") for n in range(len(op.axis))]
        try:
            physical = mapping(*indices)
        except TypeError as error:
            raise ScheduleError(f"transform_layout of stage {self.name}: the mapping must take {len(indices)} indices: {error}") from error
        if not isinstance(physical, (list, tuple)) or not physical:
            raise ScheduleError(f"transform_layout of stage {self.name}: the mapping must return a list of index expressions, found {physical!r}")
        return Layout([self._layout_data(as_expr(e), indices) for e in physical])

    def _layout_data(self, e: Expr, indices: list[Var]) -> Any:
        if isinstance(e, Const) and e.dtype.is_integer:
            return int(e.value)
        position = position_of(e, indices)
        if position is not None:
            return ["i", position]
        if isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod)) and isinstance(e, Binary):
            return [e.symbol, self._layout_data(e.a, indices), self._layout_data(e.b, indices)]
        if isinstance(e, Call) and e.name == "bitwise_xor":
            return ["^", *(self._layout_data(a, indices) for a in e.args)]
        if isinstance(e, Call) and e.name == "wrap":  # an index as an operand of ^
            return self._layout_data(e.args[0], indices)
        raise ScheduleError(f"transform_layout of stage {self.name}: {e} cannot stand in a layout; use the indices, integers and + - * // % ^")

    def _check_injective(self, layout: Layout) -> None:
        extents = [self.nominal_extent(axis) for axis in self.op.axis]
        if _is_mixed_radix(layout, len(extents)):
            return
        sizes = [e for e in extents if isinstance(e, int)]
        if len(sizes) < len(extents):
            raise ScheduleError(
                f"transform_layout of stage {self.name}: with symbolic extents, each physical index must be one part (i // a, i % b) of one logical index"
            )
        total = prod(sizes)
        if total > 1 << 20:
            raise ScheduleError(f"transform_layout of stage {self.name}: cannot show that no two of its {total} elements share a place; "
                                "give each part (i // a, i % b) of an index a dimension of its own")  # fmt: skip
        points = np.indices((*sizes, 1)).reshape(len(sizes) + 1, -1)[:-1]
        places = np.stack([np.broadcast_to(np.asarray(e), points.shape[1:]) for e in layout(*points)])
        negative = np.flatnonzero((places < 0).any(axis=0))
        if negative.size:
            point, place = points[:, negative[0]].tolist(), places[:, negative[0]].tolist()
            raise ScheduleError(f"transform_layout of stage {self.name}: element {point} goes to {place}, a negative index")
        order = np.lexsort(places)
        same = np.flatnonzero((np.diff(places[:, order], axis=1) == 0).all(axis=0))
        if same.size:
            first, second = sorted(order[same[0] : same[0] + 2].tolist())
            raise ScheduleError(f"transform_layout of stage {self.name}: the mapping is not injective: {points[:, first].tolist()} and "
                                f"{points[:, second].tolist()} both go to {places[:, first].tolist()}")  # fmt: skip


def part_of_index(e: Any) -> int | None:
    """Which logical index a physical one is (i) or is a part of (i % b, i // a, i // a % b); None where it is something else."""
    found = _part(e)
    return None if found is None else found[0]


def _part(e: Any) -> tuple[int, int, int | None] | None:
    """(index, divided by, modulus) of a part of an index."""
    modulus: int | None = None
    divisor = 1
    if isinstance(e, list) and e[0] == "%":
        e, modulus = e[1], e[2]
    if isinstance(e, list) and e[0] == "//":
        e, divisor = e[1], e[2]
    if not (isinstance(e, list) and e[0] == "i"):
        return None
    if not (isinstance(divisor, int) and divisor > 0 and (modulus is None or (isinstance(modulus, int) and modulus > 0))):
        return None
    return e[1], divisor, modulus


def _is_mixed_radix(layout: Layout, rank: int) -> bool:
    """Whether each physical index is i, i % b, i // a or i // a % b of one logical index i, and the parts of each i together give it back."""
    parts: list[list[tuple[int, int | None]]] = [[] for _ in range(rank)]  # for each index: (divided by, modulus)
    for e in layout.data:
        part = _part(e)
        if part is None:
            return False
        parts[part[0]].append(part[1:])
    for found in parts:
        expected = 1
        found.sort()
        for number, (divisor, modulus) in enumerate(found):
            if divisor != expected or (modulus is None) != (number == len(found) - 1):
                return False
            expected *= modulus or 1
        if not found:
            return False
    return True
