"""Reductions that blocks of a GPU share: which can be, and what each block's atomic update is. Their loops are made in nest.py."""

from __future__ import annotations

from typing import Any

from ..te.axis import IterVar
from ..te.reduce import atomic_operation
from ..tir.errors import ScheduleError
from ..tir.expr import Expr, load
from ..tir.gpu import ATOMIC_DTYPES
from ..tir.stmt import Atomic, Stmt
from ..tir.visit import loads_of


def is_of_blocks(stage: Any, leaf: IterVar) -> bool:
    """Whether a leaf is reduced, each block having a part."""
    mark = stage.marks.get(leaf)
    return leaf.kind == "reduce" and mark is not None and mark.thread is not None and mark.thread.thread_tag.startswith("blockIdx")


def check_atomic(stage: Any, axis: IterVar, tag: str) -> None:
    """A ScheduleError unless what a stage reduces can be combined by atomic updates."""
    reducer, dtypes = stage.op.reducer, [t.dtype for t in stage.outputs]
    operation = atomic_operation(reducer)
    if operation is not None and len(dtypes) == 1 and dtypes[0] in ATOMIC_DTYPES[operation]:
        return
    found = f"{reducer.name} of {' and '.join(map(str, dtypes))}"
    known = "; ".join(f"{'sum' if name == 'add' else name} of {', '.join(kinds)}" for name, kinds in ATOMIC_DTYPES.items())
    raise ScheduleError(f"bind on stage {stage.name}: axis {stage.axis_name(axis)} is reduced, but blocks cannot combine their shares of a {found}: there is "
                        f"no atomic update for it (there is for {known}); bind it to an index of threads (threadIdx), or use rfactor and bind the new axis "
                        f"to {tag}")  # fmt: skip


def check_place(stage: Any, scope: str, init: tuple[Expr, ...] | None, schedule: Any) -> None:
    """A ScheduleError unless all blocks can reach the result of a stage they share, and what it starts from is known before they run."""
    axis = next(leaf for leaf in stage.leaf_iter_vars if is_of_blocks(stage, leaf))
    what = f"stage {stage.name}: its axis {stage.axis_name(axis)} is reduced by blocks ({stage.marks[axis].thread.thread_tag})"
    if stage.threads:
        raise ScheduleError(f"{what}, but env_threads put loops around it, each iteration of which would add the shares again; bind axes of it instead")
    problem = None
    if stage.is_update:
        problem = f"it is an update of scan {stage.scan_stage.name}, whose steps wait for one another"
    elif stage.attach.kind != "root":
        problem = f"it is computed inside stage {stage.attach.consumer.name}, by each block for itself"
    elif scope != "global":
        problem = f"its result is in memory of scope {scope}"
    if problem is not None:
        raise ScheduleError(f"{what}, which combine their shares in global memory, but {problem}; factor the part of a block out, F = s.rfactor({stage.name}, "
                            f"{stage.axis_name(axis)}), bind the axis that is left in {stage.name}, at root, and compute F inside it")  # fmt: skip
    for node in (node for e in init or () for node in loads_of(e)):
        source = next((each for each in schedule.stages if any(t.buffer is node.buffer for t in each.outputs)), None)
        if source is not None and source.attach.kind == "at":
            raise ScheduleError(f"{what}, so its init= is stored before, by a kernel of its own, but {source.name}, which that reads, is computed inside stage "
                                f"{source.attach.consumer.name}; use s[{source.name}].compute_root()")  # fmt: skip


def atomic_update(stage: Any, target: tuple[Any, tuple[Expr, ...]], value: Expr) -> Stmt:
    """A block's share goes into the result."""
    buffer, indices = target
    tags = tuple(stage.marks[leaf].thread.thread_tag for leaf in stage.leaf_iter_vars if is_of_blocks(stage, leaf))
    operation = atomic_operation(stage.op.reducer)
    assert operation is not None
    return Atomic(load(buffer, indices), value, operation, tags)
