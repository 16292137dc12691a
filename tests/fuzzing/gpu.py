"""Random schedules for a GPU: loops bound to blocks, threads and virtual threads, caches in shared and local memory, reductions across threads.

Each stage at root becomes a kernel; others are computed inside it, in shared memory by the threads of the block together, or in registers. What a primitive
or lowering refuses is taken back, as in schedules.py.
"""

from __future__ import annotations

import random
from typing import Any

from tilewright import te
from tilewright.schedule import create_schedule
from tilewright.te import Tensor
from tilewright.tir.stmt import Func

from .schedules import Scheduled, Scheduler

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y")


def random_gpu_schedule(rng: random.Random, args: list[Tensor], outputs: list[Tensor]) -> Scheduled | None:
    """A random schedule of the outputs for a GPU that lowers; None where the computation has what no kernel can hold (a C function)."""
    refused = None
    for attempt in range(4):
        scheduler = _GpuScheduler(rng, create_schedule([t.op for t in outputs]), args, set())
        scheduler.simple = attempt == 3
        if any(stage.is_extern for stage in scheduler.s.stages):
            return None
        scheduler.run()
        found = scheduler.lowered()
        refused = scheduler.refused if refused is None else refused + scheduler.refused
        if isinstance(found, Func):
            return Scheduled(scheduler.s, found, scheduler.applied, refused, scheduler.moved, True)
    raise found


class _GpuScheduler(Scheduler):
    simple = False  # each stage a kernel of its own

    def run(self) -> None:
        rng = self.rng
        self.sizes = {"threadIdx.x": rng.choice((1, 4, 7, 8, 32, 33)), "threadIdx.y": rng.choice((1, 1, 2, 3, 4))}
        for stage in self.computed()[::-1]:
            if stage in self.s.stages and not self.simple:
                self.arrange(stage)
        for stage in self.computed()[::-1]:
            if stage.attach.kind == "root":
                self.kernel(stage)
            elif stage.attach.kind == "at":
                self.inside(stage)
        if not self.simple:
            for stage in self.computed()[::-1]:
                if stage.attach.kind == "root" and not stage.is_scan:
                    self.caches(stage)

    def arrange(self, stage: Any) -> None:
        """Inline it, or leave it to be placed when its readers have their loops."""
        readers = [reader for t in stage.outputs for reader in self.s.readers(t)]
        if readers and self.rng.random() < 0.3:
            self.tried(stage.compute_inline)

    def kernel(self, stage: Any) -> None:
        """Loops over blocks and threads, and the stages it reads inside."""
        rng = self.rng
        if stage.is_scan:
            self.tried(stage.env_threads, [te.thread_axis(self.sizes["threadIdx.x"], "threadIdx.x")])
            return
        if not self.simple:
            self.scatter(stage)
        spatial = [a for a in stage.leaf_iter_vars if a.kind == "spatial" and stage.asked_of(a) is None]
        if len(spatial) > 1 and rng.random() < 0.5:
            fused = self.tried(stage.fuse, *spatial[: rng.randint(2, len(spatial))])
            if fused is not None:
                spatial = [a for a in stage.leaf_iter_vars if a.kind == "spatial" and stage.asked_of(a) is None]
        if not spatial:
            spatial = [axis for axis in [self.tried(stage.fuse)] if axis is not None] if not stage.leaf_iter_vars else []
        reduced = [a for a in stage.leaf_iter_vars if a.kind == "reduce"]
        taken = None
        if reduced and stage.op.reducer.associative and (rng.random() < 0.5 or not spatial):
            taken = self.across(stage, rng.choice(reduced))
        among, factored = self.among_blocks(stage) if reduced and rng.random() < 0.5 else (None, None)
        blocks, threads, rest = [], [], []
        for axis in spatial[: rng.choice((1, 2, 2))]:
            outer, inner = self.tried(stage.split, axis, factor=rng.choice((1, 2, 3, 4, 8, 16, 32, 64))) or (axis, None)
            blocks.append(outer)
            if inner is not None:
                part = self.tried(stage.split, inner, nparts=rng.choice((1, 2, 4, 8, 32))) or (inner,)
                threads.append(part[0])
                rest += part[1:]
        order = [*blocks, *threads]
        if rng.random() < 0.8:
            self.tried(stage.reorder, *order, *rest)
        for axis, tag in zip(blocks, rng.sample([tag for tag in BLOCKS if tag != among], len(blocks)), strict=True):
            self.tried(stage.bind, axis, te.thread_axis(tag))
        free = [tag for tag in rng.sample(THREADS, 2) if tag != taken]
        for axis, tag in zip(threads, free, strict=False):
            if rng.random() < 0.85:
                self.tried(stage.bind, axis, te.thread_axis(tag))
            elif rng.random() < 0.5:
                self.tried(stage.bind, axis, te.thread_axis("vthread"))
        if rest and rng.random() < 0.6:
            self.tried(rng.choice((stage.vectorize, stage.unroll)), rest[-1])
        if not any(mark.thread is not None for mark in stage.marks.values()) and stage.leaf_iter_vars:
            first = next((a for a in stage.leaf_iter_vars if a.kind == "spatial"), None)
            if first is not None:
                self.tried(stage.bind, first, te.thread_axis("blockIdx.x"))
        if factored is not None:
            self.tried(factored.compute_at, stage, rng.choice(stage.leaf_iter_vars))
            if factored.attach.kind == "root":
                self.kernel(factored)
        if not self.simple:
            self.producers(stage)

    def among_blocks(self, stage: Any) -> tuple[str | None, Any]:
        """A part of a reduction for each block: which index they are, and the stage of its own that computes the parts, where there is one."""
        rng = self.rng
        free = [a for a in stage.leaf_iter_vars if a.kind == "reduce" and (a not in stage.marks or stage.marks[a].thread is None)]
        if not free:
            return None, None
        axis, part = rng.choice(free), None
        outer, _ = self.tried(stage.split, axis, nparts=rng.choice((1, 2, 3, 5))) or (axis, None)
        if len(stage.outputs) == 1 and rng.random() < 0.4:
            factored = self.tried(self.s.rfactor, stage.outputs[0], outer)
            if factored is not None:
                part = self.s[factored]
                outer = rng.choice([a for a in stage.leaf_iter_vars if a.kind == "reduce"])
        tag = rng.choice(BLOCKS)
        self.tried(stage.bind, outer, te.thread_axis(tag))
        return tag, part

    def across(self, stage: Any, axis: Any) -> str | None:
        """A part of a reduction for the threads to do together; which index they are."""
        rng = self.rng
        tag = rng.choice(THREADS)
        both = self.tried(stage.split, axis, factor=rng.choice((2, 4, 5, 32, 40))) or (axis,)
        chosen = rng.choice(both)
        size = stage.nominal_extent(chosen)
        if isinstance(size, int) and 0 < size <= 64 and self.tried(stage.bind, chosen, te.thread_axis(tag)) is None:
            return tag
        return None

    def producers(self, stage: Any) -> None:
        """Stages that only this one reads, inside one of its loops."""
        for tensor in stage.op.input_tensors:
            source = self.s[tensor]
            alone = all(reader is stage for t in source.outputs for reader in self.s.readers(t))
            if (
                not source.is_placeholder
                and source.attach.kind == "root"
                and not source.is_output
                and alone
                and self.rng.random() < 0.7
                and stage.leaf_iter_vars
            ):
                self.tried(source.compute_at, stage, self.rng.choice(stage.leaf_iter_vars))

    def inside(self, stage: Any) -> None:
        """The loops of a stage inside a kernel: work of the whole block, or of each thread."""
        rng = self.rng
        if stage.is_scan:
            return
        self.scatter(stage)
        if rng.random() < 0.5 and self.together(stage):
            self.tried(stage.set_scope, rng.choice(("shared", "shared", "shared.dyn", "warp")))
            if rng.random() < 0.3:
                self.tried(stage.double_buffer, rng.choice((2, 2, 3, 4)), rng.random() < 0.5)
            if rng.random() < 0.2:
                self.tried(stage.storage_align, rng.choice(stage.op.axis), rng.choice((4, 8, 32)), rng.choice((0, 1, 4)))
        elif rng.random() < 0.5:
            self.tried(stage.set_scope, rng.choice(("shared", "local")))
        if not self.simple:
            self.producers(stage)

    def together(self, stage: Any) -> bool:
        """Bind parts of the loops to threads."""
        rng = self.rng
        spatial = [a for a in stage.leaf_iter_vars if a.kind == "spatial" and stage.asked_of(a) is None]
        if not spatial:
            return False
        fused = self.tried(stage.fuse, *spatial) if len(spatial) > 1 else spatial[0]
        if fused is None:
            return False
        if rng.random() < 0.3:
            fused, lanes = self.tried(stage.split, fused, factor=rng.choice((2, 4))) or (fused, None)
            if lanes is not None:
                self.tried(stage.vectorize, lanes)
        for tag in THREADS:
            size = self.sizes[tag] if rng.random() < 0.8 else rng.choice((2, 5, 16))
            outer, inner = self.tried(stage.split, fused, factor=size) or (fused, None)
            if inner is not None:
                self.tried(stage.bind, inner, te.thread_axis((0, size), tag))
            fused = outer
            if rng.random() < 0.5:
                break
        return True

    def caches(self, stage: Any) -> None:
        """A copy of something it reads in memory of the block, of a warp or of the thread."""
        rng = self.rng
        leaves = list(stage.leaf_iter_vars)
        if not leaves or any(mark.thread is not None and axis.kind == "reduce" for axis, mark in stage.marks.items()):
            return
        if rng.random() < 0.4 and stage.op.input_tensors:
            tensor = rng.choice(stage.op.input_tensors)
            if self.s[tensor].attach.kind == "root":
                copy = self.tried(self.s.cache_read, tensor, rng.choice(("shared", "shared", "local", "warp")), [stage])
                if copy is not None:
                    made = self.s[copy]
                    self.tried(made.compute_at, stage, rng.choice(leaves))
                    if made.scope != "local" and rng.random() < 0.8 and self.together(made) and rng.random() < 0.4:
                        self.tried(made.double_buffer, rng.choice((2, 3)), rng.random() < 0.7)
