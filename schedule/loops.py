"""The primitives that shape loops: split, tile, fuse, reorder, vectorize, unroll, parallel, bind, pragma, scatter, prefetch.

Each has the same anatomy: check the arguments, check that it is legal, change the stage, record the step (`@primitive`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..te.axis import IterVar, Range
from ..te.tensor import Tensor
from ..tir.dtype import INT64, whole_number
from ..tir.errors import ScheduleError
from .block_reduction import check_atomic
from .relation import Fuse, Split, at_least_one, ceil_div, product
from .scatter import SCATTERED, chosen, is_scattered
from .stage import StageState, position_of
from .trace import primitive

# pragma -> what its value must be
PRAGMAS = {
    "unroll": "a positive int: how many copies of the body the C compiler should make",
    "auto_unroll_max_step": "a non-negative int: unroll inner loops of up to that many steps",
}


def _whole_number(value: Any, name: str, primitive_name: str, stage: StageState) -> int:
    number = whole_number(value)
    if number is None or number < 1:
        raise ScheduleError(f"{primitive_name} on stage {stage.name}: {name} must be a positive int, found {value!r}")
    if number > INT64.high:
        raise ScheduleError(f"{primitive_name} on stage {stage.name}: {name} is {number}; a loop runs at most {INT64.high} times")
    return number


class LoopPrimitives(StageState):
    """The loops of one stage. Examples are written for `C[i, j]` of 100 x 16."""

    def _splittable(self, axis: Any, primitive_name: str) -> int:
        position = self.leaf(axis, primitive_name)
        if self.leaf_iter_vars[position].kind not in ("spatial", "reduce", "ordered"):
            raise ScheduleError(f"{primitive_name} on stage {self.name}: axis {self.axis_name(axis)} is a {axis.kind} axis; "
                                "only data-parallel, reduce and ordered axes can be divided")  # fmt: skip
        asked = self.asked_of(axis)
        if asked is not None:
            raise ScheduleError(
                f"{primitive_name} on stage {self.name}: axis {self.axis_name(axis)} {asked}, and that would be lost; mark loops after they are shaped"
            )
        return position

    @primitive("stage")
    def split(self, axis: IterVar, factor: int | None = None, nparts: int | None = None) -> tuple[IterVar, IterVar]:
        """Divide a loop into two: `factor` is the extent of the inner one, `nparts` that of the outer one; give exactly one.

        before -> after, `s[C].split(i, factor=8)`:

            for i in range(100):            for i.outer in range(13):
                ...                             for i.inner in range(8):
                                                    if i.outer * 8 + i.inner < 100:
                                                        ...

        Returns (outer, inner). Any factor is legal: where it does not divide the extent, the tail gets a guard, which lowering turns into a
        clean main part and a rest. Raises ScheduleError if both or neither of factor and nparts are given, either is below 1, or `axis` is no leaf.
        """
        if (factor is None) == (nparts is None):
            given = "both" if factor is not None else "neither"
            raise ScheduleError(
                f"split on stage {self.name}: give either factor= (extent of the inner loop) or nparts= (extent of the outer loop), found {given}"
            )
        if factor is not None:
            factor = _whole_number(factor, "factor", "split", self)
        else:
            nparts = _whole_number(nparts, "nparts", "split", self)
        position = self._splittable(axis, "split")
        return self._split_leaf(position, factor, nparts)

    def _split_leaf(self, position: int, factor: int | None, nparts: int | None) -> tuple[IterVar, IterVar]:
        axis = self.leaf_iter_vars[position]
        extent = self.nominal_extent(axis)
        inner_extent = factor if factor is not None else at_least_one(ceil_div(extent, nparts or 1))
        outer_extent = ceil_div(extent, inner_extent)
        outer = IterVar(Range(0, outer_extent), f"{axis.name}.outer", axis.kind)
        inner = IterVar(Range(0, inner_extent), f"{axis.name}.inner", axis.kind)
        self.relations.append(Split(axis, outer, inner, factor, nparts))
        self._replace_leaves(position, 1, [outer, inner])
        return outer, inner

    def _replace_leaves(self, position: int, count: int, new: list[IterVar]) -> None:
        for axis in self.leaf_iter_vars[position : position + count]:
            self.marks.pop(axis, None)
        self.leaf_iter_vars[position : position + count] = new
        for axis in new:
            self.axis_name(axis)

    @primitive("stage")
    def tile(self, x: IterVar, y: IterVar, x_factor: int, y_factor: int) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and bring the outer parts outside: blocks of `x_factor` by `y_factor`.

        before -> after, `s[C].tile(i, j, 4, 8)`:

            for i in range(100):            for i.outer in range(25):
                for j in range(16):             for j.outer in range(2):
                    ...                             for i.inner in range(4):
                                                        for j.inner in range(8):
                                                            ...

        Returns (x outer, y outer, x inner, y inner). Raises as split and reorder do.
        """
        x_factor = _whole_number(x_factor, "x_factor", "tile", self)
        y_factor = _whole_number(y_factor, "y_factor", "tile", self)
        self._splittable(x, "tile")
        self._splittable(y, "tile")
        if x is y:
            raise ScheduleError(f"tile on stage {self.name}: axis {self.axis_name(x)} is given twice; tile takes two different axes")
        if x.kind != y.kind and "ordered" in (x.kind, y.kind):
            raise ScheduleError(
                f"tile on stage {self.name}: axis {self.axis_name(x)} is {x.kind}, {self.axis_name(y)} is {y.kind}; an ordered axis stays in order"
            )
        before = list(self.leaf_iter_vars), list(self.relations), dict(self.marks), dict(self._axis_names)
        xo, xi = self._split_leaf(self.leaf(x, "tile"), x_factor, None)
        yo, yi = self._split_leaf(self.leaf(y, "tile"), y_factor, None)
        try:
            self._reorder_leaves([xo, yo, xi, yi])
        except ScheduleError:  # all or nothing: the names too, or a replay would give others
            self.leaf_iter_vars, self.relations, self.marks, self._axis_names = before
            raise
        return xo, yo, xi, yi

    @primitive("stage")
    def fuse(self, *axes: IterVar) -> IterVar:
        """Make one loop of neighbouring ones (given outermost first); with no axis at all, a loop of extent 1.

        before -> after, `s[C].fuse(i, j)`:

            for i in range(100):            for i.j.fused in range(1600):
                for j in range(16):             ...  # i = i.j.fused // 16, j = i.j.fused % 16
                    ...

        Raises ScheduleError if the axes are not consecutive leaves, or a data-parallel one is fused with a reduce axis.
        """
        if len(axes) == 1 and isinstance(axes[0], (list, tuple)):
            axes = tuple(axes[0])
        positions = [self._splittable(axis, "fuse") for axis in axes]
        if not axes:
            self.compute_op("fuse")
        if any(b != a + 1 for a, b in pairwise(positions)):
            raise ScheduleError(f"fuse on stage {self.name}: axes {', '.join(map(self.axis_name, axes))} are not consecutive, outermost first, in "
                                f"{self.leaves_text()}; bring them together with s[{self.name}].reorder(...)")  # fmt: skip
        kinds = {axis.kind for axis in axes}
        if len(kinds) > 1:
            raise ScheduleError(f"fuse on stage {self.name}: cannot fuse data-parallel with reduce axes: "
                                + ", ".join(f"{self.axis_name(a)} is {a.kind}" for a in axes))  # fmt: skip
        extent: Any = 1
        for axis in axes:
            extent = product(extent, self.nominal_extent(axis))
        if isinstance(extent, int) and extent > INT64.high:
            raise ScheduleError(f"fuse on stage {self.name}: {', '.join(map(self.axis_name, axes))} have {extent} iterations together; "
                                f"a loop runs at most {INT64.high} times")  # fmt: skip
        name = ".".join(axis.name for axis in axes[:3]) + ".fused" if axes else "one"
        fused = IterVar(Range(0, extent), name, axes[0].kind if axes else "spatial")
        self.relations.append(Fuse(tuple(axes), fused))
        self._replace_leaves(positions[0] if positions else 0, len(axes), [fused])
        return fused

    @primitive("stage")
    def reorder(self, *axes: IterVar) -> None:
        """Put the listed loops in the given order; they share out the places they have now, the others stay.

        before -> after, `s[C].reorder(j, i)`:

            for i in range(100):            for j in range(16):
                for j in range(16):             for i in range(100):
                    ...                             ...

        Raises ScheduleError if an axis is listed twice, is no leaf of this stage, or the order of an ordered reduction would change, or a scattered axis would
        not be innermost.
        """
        if len(axes) == 1 and isinstance(axes[0], (list, tuple)):
            axes = tuple(axes[0])
        for number, axis in enumerate(axes):
            self.leaf(axis, "reorder")
            if position_of(axis, axes[:number]) is not None:
                raise ScheduleError(f"reorder on stage {self.name}: axis {self.axis_name(axis)} is listed twice")
        self._reorder_leaves(list(axes))

    def _reorder_leaves(self, axes: list[IterVar]) -> None:
        places = sorted(p for axis in axes if (p := position_of(axis, self.leaf_iter_vars)) is not None)
        new = list(self.leaf_iter_vars)
        for place, axis in zip(places, axes, strict=True):
            new[place] = axis
        if any(a is not b and "ordered" in (a.kind, b.kind) for a, b in zip(self.leaf_iter_vars, new, strict=True)):
            raise ScheduleError(f"reorder on stage {self.name}: the steps of a scan run in order, so its time axes {self.leaves_text()} stay as they are")
        loose = next((a for n, a in enumerate(new) if is_scattered(self, a) and not all(is_scattered(self, b) for b in new[n:])), None)
        if loose is not None:
            raise ScheduleError(
                f"reorder on stage {self.name}: axis {self.axis_name(loose)} is scattered, it has no loop; leave it innermost, after the others"
            )
        reducer = getattr(self.op, "reducer", None)
        if reducer is not None and not reducer.associative:
            before = [a for a in self.leaf_iter_vars if a.kind != "spatial"]
            after = [a for a in new if a.kind != "spatial"]
            if any(a is not b for a, b in zip(before, after, strict=True)):
                raise ScheduleError(f"reorder on stage {self.name}: reducer {reducer.name} is declared associative=False, so the order of its reduce axes "
                                    f"({', '.join(map(self.axis_name, before))}) matters and must stay")  # fmt: skip
        self.leaf_iter_vars = new

    def _mark_kind(self, axis: IterVar, kind: str, primitive_name: str) -> None:
        self.leaf(axis, primitive_name)
        mark = self.marks.get(axis)
        if mark is not None and mark.intrinsic is not None:
            raise ScheduleError(f"{primitive_name} on stage {self.name}: axis {self.axis_name(axis)} {self.asked_of(axis)}; mark a loop outside of it")
        if mark is not None and mark.kind not in ("serial", kind):
            what = f"bound to {mark.thread.thread_tag}" if mark.thread is not None else f"marked {mark.kind}"
            raise ScheduleError(f"{primitive_name} on stage {self.name}: axis {self.axis_name(axis)} is already {what}; "
                                "a loop has one kind: split it first to have both")  # fmt: skip
        self.mark(axis).kind = kind

    def _loop_of(self, axis: IterVar, primitive_name: str) -> None:
        """A ScheduleError unless a leaf has a loop."""
        self.leaf(axis, primitive_name)
        if is_scattered(self, axis):
            raise ScheduleError(f"{primitive_name} on stage {self.name}: axis {self.axis_name(axis)} is scattered, it has no loop; take another axis")

    @primitive("stage")
    def vectorize(self, axis: IterVar) -> None:
        """Do all iterations of a loop at once, as the lanes of vectors. Any constant extent will do; native vectors are cut from it.

        before -> after, `s[C].vectorize(ji)`:

            for ji in range(8):             C[i, ramp(jo * 8, 1, 8)] = A[i, ramp(jo * 8, 1, 8)] * broadcast(2.0, 8)
                C[i, jo * 8 + ji] = ...

        Raises ScheduleError on a reduce axis (use s.rfactor to make the lanes partial results), or where the extent is not constant. Inside another stage
        (compute_at) it is what that needs, which is known when lowered.
        """
        self.leaf(axis, "vectorize")
        self._refuse_reduce(axis, "vectorize", "factor it first: s.rfactor(tensor, axis) makes it a data-parallel axis of partial results")
        if self.attach.kind != "at" or self.attach is self.home:
            self.check_lanes(axis, self.nominal_extent(axis))
        self._mark_kind(axis, "vectorized", "vectorize")

    def check_lanes(self, axis: IterVar, extent: Any) -> None:
        """Vectors have a constant number of lanes."""
        if not isinstance(extent, int):
            raise ScheduleError(f"vectorize on stage {self.name}: the extent {extent} of axis {self.axis_name(axis)} is not constant; "
                                "split it by a constant factor and vectorize the inner part")  # fmt: skip

    def _refuse_reduce(self, axis: IterVar, primitive_name: str, remedy: str) -> None:
        if axis.kind == "ordered":
            raise ScheduleError(f"{primitive_name} on stage {self.name}: axis {self.axis_name(axis)} is the time of a scan, whose steps run in order; "
                                f"{primitive_name} an axis of its updates")  # fmt: skip
        if axis.kind != "spatial":
            raise ScheduleError(
                f"{primitive_name} on stage {self.name}: axis {self.axis_name(axis)} is a reduce axis, so its iterations update the same element; {remedy}"
            )

    @primitive("stage")
    def unroll(self, axis: IterVar) -> None:
        """Write the iterations of a loop one after another.

        before -> after, `s[C].unroll(ii)`:

            for ii in range(2):             C[io * 2, j] = ...
                C[io * 2 + ii, j] = ...     C[io * 2 + 1, j] = ...

        Legal on any leaf. Loops over register tiles are always written out in full, large bodies are left to the C compiler's own unrolling.
        """
        self._mark_kind(axis, "unrolled", "unroll")

    @primitive("stage")
    def parallel(self, axis: IterVar) -> None:
        """Share the iterations of a loop among threads.

        before -> after, `s[C].parallel(i)`:

            for i in range(100):            for i in parallel(100):
                ...                             ...

        Raises ScheduleError on a reduce axis (a race). Inside another parallel loop it runs serially, with a ScheduleWarning when lowered.
        """
        self.leaf(axis, "parallel")
        self._refuse_reduce(axis, "parallel", "threads would race. Factor it first: s.rfactor(tensor, axis)")
        self._mark_kind(axis, "parallel", "parallel")

    @primitive("stage")
    def bind(self, axis: IterVar, thread: IterVar) -> None:
        """Make a loop an index of a GPU grid: `thread` is te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x") ...

        before -> after, `s[C].bind(i, te.thread_axis("blockIdx.x"))`:

            for i in range(100):            for i in thread[blockIdx.x](100):
                ...                             ...

        An axis that is reduced may take an index of threads: they combine their shares. "vthread" may be given to several axes of a stage. It may take an
        index of blocks where the result is in global memory and is a sum, or a least or greatest integer: a kernel of its own stores what it starts from, then
        each block adds its share by an atomic update. In which order is not fixed: the last bits of a sum of floats may differ from run to run.

        Raises ScheduleError if the axis is bound or marked already, is reduced in an order that matters, or by blocks that cannot combine it, or `thread` is
        not a thread axis, is the index of another axis of the stage, or (when lowered: a stage inside another computes less) has a smaller extent than the
        axis, or blocks are to combine what is not at root in global memory.
        """
        self.leaf(axis, "bind")
        if not isinstance(thread, IterVar) or thread.kind != "thread":
            raise ScheduleError(f"bind on stage {self.name}: expected a thread axis such as te.thread_axis('threadIdx.x'), found {thread!r}")
        if axis.kind == "ordered":
            self._refuse_reduce(axis, "bind", "")
        if axis.kind == "reduce" and not self.op.reducer.associative:
            raise ScheduleError(f"bind on stage {self.name}: axis {self.axis_name(axis)} is reduced by {self.op.reducer.name!r}, whose order matters "
                                "(associative=False), but threads reduce their shares at once; bind a data-parallel axis")  # fmt: skip
        tag = str(thread.thread_tag)
        mark = self.marks.get(axis)
        if mark is not None and mark.thread is not None:
            raise ScheduleError(f"bind on stage {self.name}: axis {self.axis_name(axis)} is already bound to {mark.thread.thread_tag}")
        if axis.kind == "reduce" and (tag.startswith("blockIdx") or any(is_scattered(self, leaf) for leaf in self.leaf_iter_vars)):
            check_atomic(self, axis, tag)
        several = tag.startswith("vthread")  # each is a loop of its own
        for other, known in () if several else self.marks.items():
            if known.thread is not None and known.thread.thread_tag == tag and position_of(other, self.leaf_iter_vars) is not None:
                raise ScheduleError(f"bind on stage {self.name}: {tag} is already bound to axis {self.axis_name(other)} of this stage")
        if thread.dom is not None:
            ours, theirs = self.nominal_extent(axis), thread.dom.extent
            if self.is_output and isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
                raise ScheduleError(f"bind on stage {self.name}: axis {self.axis_name(axis)} has extent {ours}, {thread.thread_tag} has {theirs}")
        self._mark_kind(axis, "thread", "bind")
        self.mark(axis).thread = thread

    @primitive("stage")
    def pragma(self, axis: IterVar, name: str, value: int = 1) -> None:
        """Attach a hint to a loop: "unroll" (the C compiler makes `value` copies of the body) or "auto_unroll_max_step" (unroll the loops inside that
        have at most `value` steps together).

        before -> after, `s[C].pragma(i, "unroll", 4)`:

            for i in range(100):            for i in range(100):  # pragma unroll 4
                ...                             ...

        Raises ScheduleError for an unknown name or value.
        """
        self._loop_of(axis, "pragma")
        if not isinstance(name, str) or name not in PRAGMAS:
            raise ScheduleError(f"pragma on stage {self.name}: unknown name {name!r}; known are {', '.join(PRAGMAS)}")
        if isinstance(value, bool) or not isinstance(value, int) or value < (1 if name == "unroll" else 0):
            raise ScheduleError(f"pragma {name} on stage {self.name}: the value must be {PRAGMAS[name]}, found {value!r}")
        mark = self.mark(axis)
        mark.pragmas = (*((k, v) for k, v in mark.pragmas if k != name), (name, value))

    @primitive("stage")
    def scatter(self, axis: IterVar) -> None:
        """Put the terms of a reduction where its condition says, `where=X[k] == b`, instead of trying each b. The axis becomes the innermost one, and goes.

        before -> after, `s[H].scatter(b)`:

            for b in range(16):             for k in range(1000):
                for k in range(1000):           b = X[k]
                    if X[k] == b:               if 0 <= b < 16:
                        H[b] += 1                   H[b] += 1

        Histograms and sums over groups are such reductions. A reduced axis that is bound to blocks or threads of a GPU then updates the elements atomically.

        Raises ScheduleError if the axis is no data-parallel axis of the stage as it was declared, or marked, or the condition does not name one value of it;
        when lowered, if a stage is computed in it.
        """
        self.leaf(axis, "scatter")
        if position_of(axis, self.op.axis) is None:
            roots = ", ".join(self.axis_name(a) for a in self.op.axis)
            raise ScheduleError(f"scatter on stage {self.name}: axis {self.axis_name(axis)} is not one of its data-parallel axes as declared ({roots}), which "
                                f"a condition names")  # fmt: skip
        condition = self.op.condition
        if chosen(condition, axis.var) is None:
            found = "there is no condition" if condition is None else f"found where={condition}"
            raise ScheduleError(f"scatter on stage {self.name}: expected a reduction that says which {self.axis_name(axis)} it is for, as "
                                f"where=X[k] == {self.axis_name(axis)} does, but {found}")  # fmt: skip
        asked = self.asked_of(axis)
        if asked is not None:
            raise ScheduleError(f"scatter on stage {self.name}: axis {self.axis_name(axis)} {asked}, and that would be lost; it will have no loop")
        self._mark_kind(axis, SCATTERED, "scatter")
        self.leaf_iter_vars = [*(leaf for leaf in self.leaf_iter_vars if leaf is not axis), axis]

    @primitive("stage")
    def prefetch(self, tensor: Tensor, axis: IterVar, offset: int = 1) -> None:
        """Ask for what `tensor` will be read `offset` iterations of `axis` from now.

        before -> after, `s[C].prefetch(A, i, 2)`:

            for i in range(100):            for i in range(100):
                ... A[i, j] ...                 prefetch A[i + 2, 0]
                                                ... A[i, j] ...

        A hint: no effect on results, and an address past the end is harmless. Raises ScheduleError if this stage does not read `tensor` or the axis is no leaf.
        """
        self.compute_op("prefetch")
        self._loop_of(axis, "prefetch")
        offset = _whole_number(offset, "offset", "prefetch", self)
        if not isinstance(tensor, Tensor) or not self.schedule.reads(self, tensor):
            raise ScheduleError(
                f"prefetch on stage {self.name}: it does not read {tensor}; it reads {', '.join(t.name for t in self.op.input_tensors) or 'nothing'}"
            )
        self.prefetches.append((tensor, axis, offset))
