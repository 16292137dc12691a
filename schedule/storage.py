"""The primitives that say how the buffer of a stage is filled: double_buffer, rolling_buffer, set_store_predicate, and env_threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..te.axis import IterVar
from ..tir.errors import ScheduleError
from ..tir.expr import Expr, ExprLike, as_expr
from .placement import PlacementPrimitives
from .predicate import refusal_of
from .stage import INLINE
from .trace import primitive


class StoragePrimitives(PlacementPrimitives):
    """How one stage is stored. Examples: `B[i] = A[i] * 2`, of 18 elements, `C[i] = B[i] + B[i + 1] + B[i + 2]`, of 16."""

    def _not_inlined(self, primitive_name: str) -> None:
        if self.attach is INLINE:
            raise ScheduleError(f"{primitive_name} of stage {self.name}: it is inlined and not stored; call s[{self.name}].compute_root() first")

    @primitive("stage")
    def double_buffer(self, stages: int = 2, asynchronous: bool = False) -> None:
        """Fill one half of a buffer of twice the size while the other half is read, so that copies and computation overlap.

        before -> after, `s[B].double_buffer()`: the same loops, and the nest of B is marked; `print(s)` shows "double buffered". On a GPU, of B in shared
        memory at a loop k of its reader, the pass of that name makes of it

            for k in range(K):          fill B[0] for k = 0
                fill B                  for k in range(K):
                read B                      if k + 1 < K: fill B[(k + 1) % 2] for k + 1
                                            read B[k % 2]

        so that one barrier an iteration serves where two were needed. `stages`: with n of them the buffer is n times as large, and n - 1 iterations are
        under way. `asynchronous`: the copies are cp.async (sm_80 on; elsewhere it changes nothing): they pass the registers by and are waited for in groups,
        if B copies 4, 8 or 16 neighbouring bytes at once; vectorize its inner loop.

        On the C target it is recorded and changes nothing: a CPU overlaps loads by itself, and a second half would only take more of the cache. So it is with
        buffers of one thread. Raises ScheduleError on an output, which lives in its argument, on a rolling buffer, whose iterations have elements in common,
        and where `stages` is not 2 to 8; when a build for a GPU finds B in shared memory but not inside a serial loop, or made from what the same iteration
        computes.
        """
        self._not_an_output("double_buffer", f"which lives in its argument; use s.cache_write({self.name}, scope) and double-buffer the cache")
        self._not_inlined("double_buffer")
        if self.is_rolling:
            raise ScheduleError(f"double_buffer of stage {self.name}: it is a rolling buffer, of which an iteration keeps what earlier ones filled; "
                                f"use one of the two")  # fmt: skip
        if not isinstance(stages, int) or isinstance(stages, bool) or not 2 <= stages <= 8:
            raise ScheduleError(f"double_buffer of stage {self.name}: stages is {stages!r}; expected 2 to 8")
        if not isinstance(asynchronous, bool):
            raise ScheduleError(f"double_buffer of stage {self.name}: asynchronous is {asynchronous!r}; expected True or False")
        self.buffer_stages, self.copies_asynchronously = stages, asynchronous

    @primitive("stage")
    def rolling_buffer(self) -> None:
        """Keep what the next iteration of the loop where this stage is computed needs again, instead of computing it again.

        before -> after, `s[B].compute_at(s[C], i)` and then `s[B].rolling_buffer()`:

            for i in range(16):                     allocate B: float32[3]
                allocate B: float32[3]              for i in range(16):
                for i_1 in range(3):                    for i_1 in range(3):
                    B[i_1] = A[i + i_1] * 2                 if i == 0 or i_1 >= 2:
                C[i] = B[0] + B[1] + B[2]                       B[(i + i_1) % 3] = A[i + i_1] * 2
                                                        C[i] = B[i % 3] + B[(i + 1) % 3] + B[(i + 2) % 3]

        The buffer is a circle along the one dimension that moves with the loop. Raises ScheduleError if this stage is an output, is double buffered or is not
        attached by compute_at; when lowered, if the loop is not serial or unrolled, or neighbouring iterations share nothing. compute_root takes it back.
        """
        self._not_an_output("rolling_buffer", "which is stored whole in its argument")
        if self.buffer_stages > 1:
            raise ScheduleError(f"rolling_buffer of stage {self.name}: it is double buffered, which fills another buffer in each iteration; use one of the two")
        if self.attach.kind != "at" or self.attach.consumer.is_scan:  # of a scan, the steps that are live are kept anyway
            raise ScheduleError(f"rolling_buffer of stage {self.name}: it is not computed inside a loop of another stage; "
                                f"call s[{self.name}].compute_at(consumer, axis) first")  # fmt: skip
        self.is_rolling = True

    @primitive("stage")
    def set_store_predicate(self, predicate: Any) -> None:
        """Compute and store only those elements for which `predicate` holds: a condition on axes of this stage and thread axes its loops are bound to.

        before -> after, `s[C].set_store_predicate(i < 10)`:

            for i in range(16):             for i in range(16):
                C[i] = ...                      if i < 10:
                                                    C[i] = ...

        Of the other elements an output keeps what its argument had, and an intermediate is undefined: it is for the caller to see that nobody reads
        those. A second predicate takes the place of the first. Raises ScheduleError if it is no condition, or speaks of anything but data-parallel axes
        of this stage, integers, + - * // %, comparisons, te.all, te.any and ~.
        """
        self.compute_op("set_store_predicate")
        condition = as_expr(predicate) if isinstance(predicate, (ExprLike, bool)) else None
        if not isinstance(condition, Expr) or condition.dtype != "bool":
            raise ScheduleError(f"set_store_predicate of stage {self.name}: expected a condition such as i < 10, found {predicate!r}")
        refused = refusal_of(condition, self)
        if refused is not None:
            raise ScheduleError(f"set_store_predicate of stage {self.name}: {refused}")
        self._not_inlined("set_store_predicate")
        self.predicate = condition

    @primitive("stage")
    def env_threads(self, threads: Sequence[IterVar]) -> None:
        """Launch the grid of GPU threads around all of this stage, once, instead of one for each loop that is bound.

        before -> after, `s[C].env_threads([te.thread_axis(32, "threadIdx.x")])`: the same loops, inside one kernel of 32 threads.

        It is for GPUs; a build for the C target is a ScheduleError. Raises ScheduleError if `threads` is not a list of different thread axes.
        """
        if not self.is_scan:
            self.compute_op("env_threads")
        what = f"env_threads of stage {self.name}"
        if self.scan_stage is not None:
            raise ScheduleError(f"{what}: it is computed in each step of scan {self.scan_stage.name}, inside the loop over time; "
                                f"bind its loops, s[{self.name}].bind(axis, thread), or give env_threads a stage at root")  # fmt: skip
        listed: list[Any] = list(threads) if isinstance(threads, (list, tuple)) else [threads]
        tags = [t.thread_tag if isinstance(t, IterVar) and t.kind == "thread" else None for t in listed]
        if not listed or None in tags:
            raise ScheduleError(f"{what}: expected a list of thread axes such as te.thread_axis(32, 'threadIdx.x'), found {threads!r}")
        without = next((t.thread_tag for t in listed if t.dom is None), None)
        if without is not None:
            raise ScheduleError(f"{what}: {without} has no extent, and no loop to take one from; give one: te.thread_axis(32, {without!r})")
        if len(set(tags)) < len(tags):
            raise ScheduleError(f"{what}: a thread axis is given twice: {', '.join(map(str, tags))}")
        if self.threads:
            raise ScheduleError(f"{what}: it has {', '.join(str(t.thread_tag) for t in self.threads)} already; give all of them together")
        self.threads = tuple(listed)
