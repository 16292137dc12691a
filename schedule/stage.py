"""What a schedule knows of one operation: its loops, how they came about, where it is computed and where its result lives.

State and look-ups only; the primitives that change it are in loops.py and placement.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..te.axis import IterVar
from ..te.extern import ExternOp
from ..te.intrin import TensorIntrin
from ..te.op import ComputeOp, PlaceholderOp
from ..te.scan import ScanOp
from ..te.tensor import Tensor
from ..tir.errors import ScheduleError
from ..tir.expr import Expr
from .relation import Extent, Fuse, Relation, Split

if TYPE_CHECKING:
    from .schedule import Schedule
    from .trace import Layout


@dataclass(frozen=True)
class Attach:
    """Where a stage is computed: "root", "inline", or "at" the axis `axis` of `consumer`."""

    kind: str = "root"
    consumer: Any = None
    axis: IterVar | None = None


@dataclass
class LoopMark:
    """What was asked of one leaf loop."""

    kind: str = "serial"
    thread: IterVar | None = None
    pragmas: tuple[tuple[str, int | str], ...] = ()
    intrinsic: TensorIntrin | None = None  # takes the place of this loop and those inside


ROOT = Attach()
INLINE = Attach("inline")


def same(a: Any, b: Any) -> bool:
    """Identity; `==` on axes would build an expression."""
    return a is b


def position_of(axis: Any, axes: Iterable[Any]) -> int | None:
    """Where `axis` stands among `axes`, by identity; None if it does not."""
    for position, candidate in enumerate(axes):
        if candidate is axis:
            return position
    return None


class StageState:
    """One operation in a schedule.

    Attributes: `op` (the operation now; caching and rfactor replace it), `name` (unique in the schedule), `outputs` (its tensors), `leaf_iter_vars`
    (the loops, outermost first), `relations` (the splits and fusions that led to them), `marks` (what was asked of a loop), `attach`, `home` (where it is
    computed if nothing is said: at root, or at the time axis of the scan it is a part of), `time_axis` (which of its axes is that time), `scope` (None: chosen
    by where it is computed), `alignment`, `layout`, `prefetches`, `predicate` (which elements are stored; None: all),
    `buffer_stages` (iterations' worth of it that are kept; 1, or as double_buffer says) and `copies_asynchronously`, `is_rolling`,
    `threads` (thread axes around the stage), `is_output` (of the schedule), `is_original` (declared by the user, not made by a primitive).
    """

    def __init__(self, schedule: Schedule, op: Any, name: str, is_original: bool = True):
        self.schedule, self.op, self.name, self.is_original = schedule, op, name, is_original
        self.outputs: tuple[Tensor, ...] = tuple(op.outputs)
        self.leaf_iter_vars: list[IterVar] = [op.scan_axis] if isinstance(op, ScanOp) else [*getattr(op, "axis", ()), *getattr(op, "reduce_axis", ())]
        self.relations: list[Relation] = []
        self.marks: dict[IterVar, LoopMark] = {}
        self.attach = self.home = ROOT
        self.time_axis: IterVar | None = None
        self.scope: str | None = None
        self.alignment: dict[int, tuple[int, int]] = {}  # dimension -> (factor, offset)
        self.layout: Layout | None = None
        self.prefetches: list[tuple[Tensor, IterVar, int]] = []
        self.predicate: Expr | None = None
        self.is_rolling = self.copies_asynchronously = False
        self.buffer_stages = 1
        self.threads: tuple[IterVar, ...] = ()
        self.is_output = False
        self._axis_names: dict[IterVar, str] = {}
        self._retired_names: set[str] = set()  # of axes that caching or rfactor took away
        for axis in self.leaf_iter_vars:
            self.axis_name(axis)

    def copy_into(self, schedule: Schedule) -> Any:
        """The same state in another schedule; attach points still lead to the old one's stages."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.schedule = schedule
        new.leaf_iter_vars, new.relations = list(self.leaf_iter_vars), list(self.relations)
        new.marks = {axis: LoopMark(m.kind, m.thread, m.pragmas, m.intrinsic) for axis, m in self.marks.items()}
        new.alignment, new.prefetches = dict(self.alignment), list(self.prefetches)
        new._axis_names, new._retired_names = dict(self._axis_names), set(self._retired_names)
        return new

    # ------------------------------------------------------------------------------------------------------------ look-ups

    @property
    def is_placeholder(self) -> bool:
        """An argument of the computation, with nothing to compute."""
        return isinstance(self.op, PlaceholderOp)

    @property
    def is_scheduled(self) -> bool:
        """Whether any loop was changed or marked."""
        roots = [*self.op.axis, *self.op.reduce_axis]
        return bool(self.relations or self.marks or self.prefetches) or not all(map(same, self.leaf_iter_vars, roots))

    @property
    def is_scan(self) -> bool:
        """A scan: a loop over time around the stages of a step."""
        return isinstance(self.op, ScanOp)

    @property
    def is_extern(self) -> bool:
        """A call of a C function."""
        return isinstance(self.op, ExternOp)

    @property
    def scan_stage(self) -> Any:
        """The scan that this stage is a part of, as an update, a state or between them; None if it is of none."""
        return self.home.consumer

    @property
    def is_update(self) -> bool:
        """Whether a scan's result is what this stage computes."""
        scan = self.scan_stage
        return scan is not None and not self.is_placeholder and any(scan.op.output_of(t) is not None for t in self.outputs)

    def axis_name(self, axis: IterVar) -> str:
        """The unique name of an axis of this stage."""
        name = self._axis_names.get(axis)
        if name is None:
            taken = {*self._axis_names.values(), *self._retired_names}
            name, count = axis.name, 0
            while name in taken:
                count += 1
                name = f"{axis.name}_{count}"
            self._axis_names[axis] = name
        return name

    @property
    def known_axes(self) -> list[IterVar]:
        """All axes of this stage: those that are leaves, and those that were split or fused."""
        return list(self._axis_names)

    def knows_axis(self, axis: IterVar) -> bool:
        """Whether `axis` is or was an axis of this stage."""
        return axis in self._axis_names

    def forget_axes(self, axes: Iterable[IterVar]) -> None:
        """Axes that are this stage's no more; their names stay taken, so that a trace cannot mistake another axis for one of them."""
        for axis in axes:
            name = self._axis_names.pop(axis, None)
            if name is not None:
                self._retired_names.add(name)

    def axis_named(self, name: str) -> IterVar:
        """The axis with a unique name; a ScheduleError lists the names."""
        for axis, known in self._axis_names.items():
            if known == name:
                return axis
        raise ScheduleError(f"stage {self.name} has no axis {name!r}: its axes are {', '.join(self._axis_names.values())}")

    def mark(self, axis: IterVar) -> LoopMark:
        """The mark of a leaf, made when first asked for."""
        return self.marks.setdefault(axis, LoopMark())

    def asked_of(self, axis: IterVar) -> str | None:
        """What was asked of a leaf, for messages; None for a plain serial loop."""
        mark = self.marks.get(axis)
        if mark is not None and mark.kind != "serial":
            return f"is already marked {mark.kind}"
        if mark is not None and mark.intrinsic is not None:
            return f"is already replaced by the intrinsic {mark.intrinsic.name}"
        if mark is not None and mark.pragmas:
            return f"already has the pragma {mark.pragmas[0][0]!r}"
        prefetched = next((tensor.name for tensor, at, _ in self.prefetches if at is axis), None)
        return None if prefetched is None else f"already has a prefetch of {prefetched}"

    def leaves_text(self) -> str:
        """The leaf axes by name, for messages."""
        return "(" + ", ".join(self.axis_name(axis) for axis in self.leaf_iter_vars) + ")"

    def compute_op(self, primitive: str) -> ComputeOp:
        """The operation, which must compute something."""
        if isinstance(self.op, ScanOp):
            updates = ", ".join(self.schedule.stage_of(t, primitive).name for t in self.op.update)
            raise ScheduleError(f"{primitive} of stage {self.name}: it is a scan, a loop over time in which its results are stored. "
                                f"What computes them is the stages of its updates, {updates}; use those")  # fmt: skip
        if isinstance(self.op, ExternOp):
            raise ScheduleError(f"{primitive} of stage {self.name}: it is a call of the C function {self.op.call.symbol}, which has no loops and runs at root, "
                                f"with tensors that are stored whole. To have a part of what it computes nearby, use "
                                f"s.cache_read({self.outputs[0].name}, scope, readers) and place that")  # fmt: skip
        if not isinstance(self.op, ComputeOp):
            raise ScheduleError(f"{primitive} of stage {self.name}: it is an input of the computation and has no loops. "
                                f"To copy it elsewhere first, use s.cache_read({self.name}, scope, readers)")  # fmt: skip
        return self.op

    def leaf(self, axis: Any, primitive: str) -> int:
        """The position of a leaf axis; otherwise a ScheduleError that says what became of it and which the leaves are now."""
        if not self.is_scan:
            self.compute_op(primitive)
        if not isinstance(axis, IterVar):
            raise ScheduleError(f"{primitive} on stage {self.name}: expected one of its axes {self.leaves_text()}, found {axis!r}")
        position = position_of(axis, self.leaf_iter_vars)
        if position is not None:
            return position
        now = f"the leaf axes of stage {self.name} are now {self.leaves_text()}"
        for relation in self.relations:
            if position_of(axis, relation.parents) is not None:
                done = "split into" if isinstance(relation, Split) else "fused into"
                became = ", ".join(self.axis_name(child) for child in relation.children)
                raise ScheduleError(f"{primitive} on stage {self.name}: axis {self.axis_name(axis)} was already {done} {became} and is no leaf any more; {now}")
        owner = self.schedule.stage_of_axis(axis)
        whose = f"it belongs to stage {owner[0]}" if owner is not None else "it belongs to no stage of this schedule"
        raise ScheduleError(f"{primitive} on stage {self.name}: {axis.name} is not one of its axes ({whose}); {now}")

    def nominal_extent(self, axis: IterVar) -> Extent:
        """The extent of an axis when the whole tensor is computed (an attach point may make it smaller)."""
        assert axis.dom is not None
        return axis.dom.extent

    def origin_of(self, axis: IterVar) -> list[IterVar]:
        """The root axes that `axis` comes from."""
        for relation in self.relations:
            if position_of(axis, relation.children) is not None:
                return [root for parent in relation.parents for root in self.origin_of(parent)]
        return [axis]

    def __repr__(self) -> str:
        where = {"root": "", "inline": ", inlined"}.get(self.attach.kind)
        if where is None:
            where = f", at {self.attach.consumer.name}.{self.attach.consumer.axis_name(self.attach.axis)}"
        loops = []
        for axis in self.leaf_iter_vars:
            mark = self.marks.get(axis)
            kind = "" if mark is None or mark.kind == "serial" else f":{mark.thread.thread_tag if mark.thread is not None else mark.kind}"
            if mark is not None and mark.intrinsic is not None:
                kind = f":{mark.intrinsic.name}"
            loops.append(f"{self.axis_name(axis)}{kind}")
        scope = "" if self.scope is None else f", in {self.scope}"
        buffer = {1: "", 2: ", double buffered"}.get(self.buffer_stages, f", in {self.buffer_stages} buffers") + (", rolling" if self.is_rolling else "")
        stored = "" if self.predicate is None else f", where {self.predicate}"
        return f"stage {self.name}({', '.join(loops)}{where}{scope}{buffer}{stored})"


__all__ = ["INLINE", "ROOT", "Attach", "Fuse", "LoopMark", "StageState", "position_of"]
