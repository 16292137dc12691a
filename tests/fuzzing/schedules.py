"""Random schedules: every primitive, at random places. A primitive may refuse (ScheduleError); what is accepted must lower to a right program."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, create_schedule, lower_schedule
from tilewright.te import Tensor
from tilewright.tir.errors import ScheduleError, ScheduleWarning
from tilewright.tir.stmt import Func

FACTORS = (1, 2, 3, 4, 4, 5, 7, 8, 8, 16, 16, 32)


@dataclass
class Scheduled:
    """A schedule that lowers. `refused`: primitives that said no; `moved`: placements taken back because lowering said no."""

    schedule: Schedule
    function: Func
    refused: int
    moved: int


def random_schedule(rng: random.Random, args: list[Tensor], outputs: list[Tensor]) -> Scheduled:
    """A random schedule of the outputs that lowers. Placements that lowering refuses are taken back, one after another."""
    scheduler = _Scheduler(rng, create_schedule([t.op for t in outputs]))
    scheduler.run()
    s = scheduler.s
    moved = 0
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ScheduleWarning)
                return Scheduled(s, lower_schedule(s, args, "kernel"), scheduler.refused, moved)
        except ScheduleError:
            placed = [stage for stage in s.stages if stage.attach.kind == "at" and stage.attach is not stage.home]
            if not placed:
                raise
            rng.choice(placed).compute_root()
            moved += 1


class _Scheduler:
    def __init__(self, rng: random.Random, s: Schedule):
        self.rng, self.s, self.refused = rng, s, 0

    def tried(self, primitive: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What a primitive gives, None if it refuses."""
        try:
            return primitive(*args, **options)
        except ScheduleError:
            self.refused += 1
            return None

    def run(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 2))):
            self.cache()
        for stage in self.computed()[::-1]:
            if stage in self.s.stages:
                self.shape(stage)
                if stage.op.reducer is not None and rng.random() < 0.4:
                    self.factor(stage)
        for stage in self.computed()[::-1]:
            self.place(stage)
        for stage in self.computed():
            self.store(stage)
            self.mark(stage)

    def computed(self) -> list[Any]:
        return [stage for stage in self.s.stages if not stage.is_placeholder]

    def cache(self) -> None:
        rng = self.rng
        stage = rng.choice(self.s.stages)
        scope = rng.choice(("local", "global"))
        if rng.random() < 0.5 and not stage.is_placeholder:
            tensors = list(stage.outputs)
            self.tried(self.s.cache_write, tensors if len(tensors) > 1 or rng.random() < 0.3 else tensors[0], scope)
            return
        tensor = rng.choice(stage.outputs)
        readers = self.s.readers(tensor)
        if readers:
            self.tried(self.s.cache_read, tensor, scope, rng.sample(readers, rng.randint(1, len(readers))))

    def shape(self, stage: Any) -> None:
        """Splits, tiles, fusions, new orders."""
        rng = self.rng
        for _ in range(rng.choice((0, 1, 2, 2, 3, 4, 5))):
            leaves = stage.leaf_iter_vars
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
            return
        if r < 0.5:
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

    def store(self, stage: Any) -> None:
        """Where the result lives, and how."""
        rng = self.rng
        if rng.random() < 0.3:
            self.tried(stage.set_scope, rng.choice(("local", "global")))
        if rng.random() < 0.1:
            self.tried(stage.double_buffer)
        if rng.random() < 0.15 and stage.leaf_iter_vars:
            axis, at = rng.choice(stage.leaf_iter_vars), rng.choice((1, 4, 9))
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
        leaves = stage.leaf_iter_vars
        if not leaves:
            return
        if rng.random() < 0.6:
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
