"""Random schedules: every primitive, at random places. A primitive may refuse (ScheduleError); what is accepted must lower to a right program."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, create_schedule, lower_schedule
from tilewright.schedule.scatter import is_scattered
from tilewright.te import Tensor
from tilewright.tir.errors import ScheduleError, ScheduleWarning, TEError
from tilewright.tir.stmt import Func
from tilewright.tir.visit import loads_of

from .intrinsics import Unfit, own_intrinsic

FACTORS = (1, 2, 3, 4, 4, 5, 7, 8, 8, 16, 16, 32)
MAX_PATTERN = 512  # points of an intrinsic
THREADS = ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y")


@dataclass
class Scheduled:
    """A schedule that lowers. `applied`, `refused`: how often each primitive was accepted, and said no (then or when lowered); `moved`: placements taken
    back because lowering said no; `for_gpu`: it uses indices of a GPU grid, which a CPU refuses.
    """

    schedule: Schedule
    function: Func
    applied: Counter[str]
    refused: Counter[str]
    moved: int
    for_gpu: bool


def random_schedule(rng: random.Random, args: list[Tensor], outputs: list[Tensor], gpu_share: float = 0.06) -> Scheduled:
    """A random schedule of the outputs that lowers. Placements that lowering refuses are taken back, one after another; what nothing takes back (intrinsics,
    thread indices, storage that a C function does not take) is left out in a second go. `gpu_share`: how many use thread indices.
    """
    refused: Counter[str] = Counter()
    unusual = {"tensorize", "bind"} if rng.random() < gpu_share else {"tensorize"}
    while True:
        scheduler = Scheduler(rng, create_schedule([t.op for t in outputs]), args, unusual)
        scheduler.run()
        found = scheduler.lowered()
        refused += scheduler.refused
        if isinstance(found, Func):
            for_gpu = bool(scheduler.applied["bind"] or scheduler.applied["env_threads"])
            return Scheduled(scheduler.s, found, scheduler.applied, refused, scheduler.moved, for_gpu)
        names = [name for name in ("tensorize", "bind", "env_threads", "vectorize, symbolic") if scheduler.applied[name]]
        names += ["storage for externs"] * any(stage.is_extern for stage in scheduler.s.stages)
        if not names or not unusual:
            raise found
        refused.update(names)
        unusual = set()


class Scheduler:
    def __init__(self, rng: random.Random, s: Schedule, args: list[Tensor], unusual: set[str]):
        self.rng, self.s, self.args, self.unusual, self.moved = rng, s, args, unusual, 0
        self.applied: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def tried(self, primitive: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What a primitive gives, None if it refuses."""
        name = primitive.__qualname__ if primitive.__qualname__.startswith("Group.") else primitive.__name__
        try:
            result = primitive(*args, **options)
        except ScheduleError:
            self.refused[name] += 1
            return None
        self.applied[name] += 1
        return result

    def lower(self, s: Schedule) -> Func:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScheduleWarning)
            return lower_schedule(s, self.args, "kernel")

    def lowered(self) -> Func | ScheduleError:
        """The function, with as many placements taken back as it needs; why there is none."""
        while True:
            try:
                return self.lower(self.s)
            except ScheduleError as error:
                placed = [stage for stage in self.s.stages if stage.attach.kind == "at" and stage.attach is not stage.home]
                placed = placed or [stage for stage in self.s.stages if stage.attach.kind == "inline"]
                if not placed:
                    return error
                self.tried(self.rng.choice(placed).compute_root)
                self.moved += 1

    def run(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 2))):
            self.cache()
        for stage in self.computed()[::-1]:
            if stage in self.s.stages:
                if rng.random() < (0.7 if self.is_dot(stage) else 0.25):
                    self.tensorize(stage)
                self.shape(stage)
                if stage.op.reducer is not None and rng.random() < 0.4:
                    self.factor(stage)
        for stage in self.computed()[::-1]:
            self.place(stage)
            if rng.random() < 0.1:
                self.group()
        for stage in self.computed():
            self.store(stage)
            self.mark(stage)
            if rng.random() < 0.1:
                self.tensorize(stage)

    def computed(self) -> list[Any]:
        return [stage for stage in self.s.stages if not stage.is_placeholder]

    def cache(self) -> None:
        rng = self.rng
        stage = rng.choice(self.s.stages)
        scope = rng.choice(("local", "global"))
        if rng.random() < 0.3 and not stage.is_placeholder and stage.op.reduce_axis:
            self.tried(self.s.pad, stage.outputs[0], *[rng.choice((1, 3, 4)) for _ in (*stage.op.axis, *stage.op.reduce_axis)])
            return
        if rng.random() < 0.3 and not stage.is_placeholder and stage.op.reduce_axis:
            found = loads_of(stage.op.body[0])
            left, right = rng.sample(found, 2) if len(found) > 1 else (found or [stage.op.body[0]]) * 2
            rows = [axis for axis in stage.op.axis if axis.var not in right.variables]
            columns = [axis for axis in stage.op.axis if axis.var not in left.variables and axis.var in right.variables]
            self.tried(self.s.as_matmul, stage.outputs[0], rows, columns, list(stage.op.reduce_axis))
            return
        if rng.random() < 0.5 and not stage.is_placeholder:
            tensors = list(stage.outputs)
            self.tried(self.s.cache_write, tensors if len(tensors) > 1 or rng.random() < 0.3 else tensors[0], scope)
            return
        tensor = rng.choice(stage.outputs)
        readers = self.s.readers(tensor)
        if readers:
            chosen = rng.sample(readers, rng.randint(1, len(readers)))
            self.tried(self.s.cache_read, tensor, "global" if any(map(self.is_plain, chosen)) else scope, chosen)

    def is_plain(self, reader: Any) -> bool:
        """Whether what this stage reads is better left in plain memory: a C function takes nothing else."""
        return reader.is_extern and (not self.unusual or self.rng.random() < 0.95)

    def shape(self, stage: Any) -> None:
        """Splits, tiles, fusions, new orders, of all loops but those that scatter takes the place of."""
        rng = self.rng
        self.scatter(stage)
        for _ in range(rng.choice((0, 1, 2, 2, 3, 4, 5))):
            leaves = [axis for axis in stage.leaf_iter_vars if not is_scattered(stage, axis)]
            kind = rng.random()
            if not leaves:
                if kind < 0.3:
                    self.tried(stage.fuse)
            elif kind < 0.45:
                axis = rng.choice(leaves)
                if rng.random() < 0.75:
                    self.tried(stage.split, axis, factor=rng.choice(FACTORS))
                else:
                    self.tried(stage.split, axis, nparts=rng.choice(FACTORS))
            elif kind < 0.55 and len(leaves) > 1:
                self.tried(stage.tile, *rng.sample(leaves, 2), rng.choice(FACTORS), rng.choice(FACTORS))
            elif kind < 0.7 and len(leaves) > 1:
                first = rng.randrange(len(leaves) - 1)
                self.tried(stage.fuse, *leaves[first : first + rng.choice((2, 2, 3))])
            else:
                self.tried(stage.reorder, *rng.sample(leaves, rng.randint(1, len(leaves))))

    def factor(self, stage: Any) -> None:
        rng = self.rng
        reduced = [a for a in stage.leaf_iter_vars if a.kind != "spatial"]
        if reduced:
            made = self.tried(self.s.rfactor, stage.outputs[0], rng.choice(reduced), rng.randint(0, len(stage.op.axis)))
            if made is not None:
                new = self.s[made[0] if isinstance(made, list) else made]
                self.shape(new)
                self.shape(stage)

    def place(self, stage: Any) -> None:
        rng = self.rng
        r = rng.random()
        if r < 0.3:
            if r < 0.02:
                self.tried(stage.compute_root)
            return
        if r < 0.5:
            readers = [reader for t in stage.outputs for reader in self.s.readers(t)]
            if not any(mark.intrinsic is not None for reader in readers for mark in reader.marks.values()) or rng.random() < 0.1:
                self.tried(stage.compute_inline)
            return
        readers = [reader for t in stage.outputs for reader in self.s.readers(t)]
        if rng.random() < 0.2:  # further along: the readers of the readers
            readers = [further for reader in readers for t in reader.outputs for further in self.s.readers(t)] or readers
        readers = [reader for reader in readers if reader.leaf_iter_vars]
        if readers:
            reader = rng.choice(readers)
            self.tried(stage.compute_at, reader, rng.choice(reader.leaf_iter_vars))
            if rng.random() < 0.3:
                self.tried(stage.rolling_buffer)

    def outside(self, stage: Any) -> list[Any]:
        """The loops outside of an intrinsic, which takes plain loops only; now and then all of them."""
        leaves = list(stage.leaf_iter_vars)
        taken = next((n for n, a in enumerate(leaves) if a in stage.marks and stage.marks[a].intrinsic is not None), len(leaves))
        return leaves if self.rng.random() < 0.03 else leaves[:taken]

    def group(self) -> None:
        """Some stages placed together."""
        rng = self.rng
        ends = rng.sample(self.computed(), min(len(self.computed()), rng.choice((1, 1, 2))))
        starts = rng.sample(self.s.stages, min(len(self.s.stages), rng.choice((0, 1, 1, 2))))
        outputs, inputs = [rng.choice(stage.outputs) for stage in ends], [rng.choice(stage.outputs) for stage in starts]
        group = self.tried(self.s.create_group, outputs, inputs, include_inputs=rng.random() < 0.3)
        if group is None:
            return
        readers = [reader for t in outputs for reader in self.s.readers(t) if reader not in group.stages and reader.leaf_iter_vars]
        if readers and rng.random() < 0.8:
            reader = rng.choice(readers)
            self.tried(group.compute_at, reader, rng.choice(reader.leaf_iter_vars))
        elif rng.random() < 0.5:
            self.tried(group.compute_root)

    def tensorize(self, stage: Any) -> None:
        """An intrinsic for some of the innermost loops: one of its own, or the ready-made one where dtypes are right. It is tried on a copy, since what
        a nest computes is looked at when it is lowered."""
        rng = self.rng
        if "tensorize" not in self.unusual or stage.is_scan or stage.is_extern or not stage.leaf_iter_vars or stage.attach.kind == "inline":
            return
        if self.is_dot(stage) and rng.random() < 0.8:
            self.dot(stage)
            return
        for axis in rng.sample(stage.leaf_iter_vars, min(2, len(stage.leaf_iter_vars))):
            if rng.random() < 0.5:
                extent = stage.nominal_extent(axis)
                whole = [n for n in range(2, 9) if isinstance(extent, int) and extent % n == 0]
                both = self.tried(stage.split, axis, factor=rng.choice(whole) if whole and rng.random() < 0.9 else rng.choice((2, 4, 8)))
                if both is not None:
                    rest = [a for a in stage.leaf_iter_vars if a is not both[1]]
                    self.tried(stage.reorder, *rest, both[1])
        leaves = stage.leaf_iter_vars
        plain = next((n for n in range(len(leaves), 0, -1) if stage.asked_of(leaves[n - 1]) is not None), 0)
        starts = [
            n for n in range(plain, len(leaves)) if prod(a.dom.extent if isinstance(a.dom.extent, int) else 0 for a in leaves[n:]) in range(1, MAX_PATTERN)
        ]
        if not starts:
            return
        start = rng.choice(starts)
        try:
            intrinsic = own_intrinsic(rng, stage, leaves[start:], f"own{rng.getrandbits(48):x}")
        except Unfit:
            return
        except TEError:
            self.refused["decl_tensor_intrin"] += 1
            return
        self.applied["decl_tensor_intrin"] += 1
        self.tensorized(stage, leaves[start], intrinsic)

    def is_dot(self, stage: Any) -> bool:
        """Whether the dtypes are those of the ready-made intrinsic."""
        return sorted(t.dtype for t in stage.op.input_tensors) == ["int8", "uint8"]

    def dot(self, stage: Any) -> None:
        """The loops of eight columns and four terms innermost, as the ready-made intrinsic has them."""
        spatial = [a for a in stage.leaf_iter_vars if a.kind == "spatial"]
        reduced = [a for a in stage.leaf_iter_vars if a.kind == "reduce"]
        if not spatial or not reduced:
            return
        columns, terms = self.tried(stage.split, spatial[-1], factor=8), self.tried(stage.split, reduced[-1], factor=4)
        if columns is None or terms is None:
            return
        rest = [a for a in stage.leaf_iter_vars if all(a is not b for b in (columns[1], terms[1]))]
        self.tried(stage.reorder, *rest, columns[1], terms[1])
        self.tensorized(stage, columns[1], self.rng.choice((te.tensor_intrin("dot_u8s8_8x4"), "dot_u8s8_8x4")))

    def tensorized(self, stage: Any, axis: Any, intrinsic: Any) -> None:
        trial = self.s.copy()
        try:
            trial.stage_named(stage.name).tensorize(axis, intrinsic)
            self.lower(trial)
        except ScheduleError:
            self.refused["tensorize"] += 1
            return
        self.tried(stage.tensorize, axis, intrinsic)
        if isinstance(intrinsic, str) or intrinsic.name == "dot_u8s8_8x4":
            self.applied["tensorize, ready-made"] += 1

    def scatter(self, stage: Any) -> None:
        """Terms go where the condition of a reduction says, which may be along one of its axes."""
        if not stage.is_placeholder and getattr(stage.op, "condition", None) is not None and stage.op.axis and self.rng.random() < 0.7:
            self.tried(stage.scatter, self.rng.choice(stage.op.axis))

    def store(self, stage: Any) -> None:
        """Where the result lives, and how."""
        rng = self.rng
        if any(self.is_plain(reader) for t in stage.outputs for reader in self.s.readers(t)):
            return
        if rng.random() < 0.3:
            self.tried(stage.set_scope, rng.choice(("local", "global")))
        if rng.random() < 0.1:
            self.tried(stage.double_buffer, rng.choice((2, 3)), asynchronous=rng.random() < 0.5)
        leaves = self.outside(stage)
        if rng.random() < 0.15 and leaves:
            axis, at = rng.choice(leaves), rng.choice((1, 4, 9))
            self.tried(stage.set_store_predicate, te.any(axis < at, ~(axis * 2 < 2 * at)))  # holds, though nobody sees it at once
        if not stage.op.axis or not all(isinstance(stage.nominal_extent(a), int) for a in stage.op.axis):
            return  # layouts and padded rows need constant extents
        if rng.random() < 0.15:
            factor = rng.choice((2, 4, 8, 16))
            self.tried(stage.storage_align, rng.choice(stage.op.axis), factor, rng.randrange(factor))
        elif rng.random() < 0.2:
            self.tried(stage.transform_layout, self.layout(len(stage.op.axis)))

    def layout(self, rank: int) -> Callable[..., list[Any]]:
        rng = self.rng
        order = rng.sample(range(rank), rank)
        divided, by = rng.randrange(rank), rng.choice((2, 4, 8, 16))
        packed, offset = rng.random() < 0.6, rng.choice((0, 0, 0, 1, 3))

        def mapping(*i: Any) -> list[Any]:
            physical = [i[d] for d in order]
            if packed:
                physical[order.index(divided)] = i[divided] // by
                return [*physical, i[divided] % by]
            return [physical[0] + offset, *physical[1:]]

        return mapping

    def mark(self, stage: Any) -> None:
        """Loop kinds and hints."""
        rng = self.rng
        leaves = self.outside(stage)
        if not leaves:
            return
        if "bind" in self.unusual:
            for tag in rng.sample(THREADS, rng.choice((0, 1, 2))):
                spatial = [a for a in leaves if a.kind == "spatial"]
                if spatial:
                    self.tried(stage.bind, rng.choice(spatial), te.thread_axis(tag))
            # the interpreter runs threads one after another: each would run a scan again, whose first steps may be there once
            if rng.random() < 0.3 and not stage.is_scan:
                self.tried(stage.env_threads, [te.thread_axis(rng.choice((2, 4, 32)), tag) for tag in rng.sample(THREADS, rng.choice((1, 2)))])
        symbolic = [a for a in leaves if a.kind == "spatial" and not isinstance(stage.nominal_extent(a), int)]
        if symbolic and self.unusual and stage.attach.kind == "at" and rng.random() < 0.5:  # what its reader needs may be constant
            before = self.applied["vectorize"]
            self.tried(stage.vectorize, rng.choice(symbolic))
            self.applied["vectorize, symbolic"] += self.applied["vectorize"] - before
        if rng.random() < (0.6 if len(leaves) == len(stage.leaf_iter_vars) else 0.03):  # an intrinsic is no lane of a vector
            small = [a for a in leaves if a.kind == "spatial" and isinstance(n := stage.nominal_extent(a), int) and n <= 64]
            if small:
                self.tried(stage.vectorize, small[-1] if rng.random() < 0.7 else rng.choice(small))
        if rng.random() < 0.4:
            small = [a for a in leaves if isinstance(n := stage.nominal_extent(a), int) and n <= 16]
            if small:
                self.tried(stage.unroll, rng.choice(small))
        if rng.random() < 0.3:
            self.tried(stage.parallel, leaves[0] if rng.random() < 0.7 else rng.choice(leaves))
        if rng.random() < 0.1:
            self.tried(stage.pragma, rng.choice(leaves), *rng.choice((("unroll", 4), ("auto_unroll_max_step", 16))))
        if rng.random() < 0.1 and stage.op.input_tensors:
            self.tried(stage.prefetch, rng.choice(stage.op.input_tensors), rng.choice(leaves), rng.choice((1, 2, 8)))
