"""Reductions by atomic updates: those that blocks of a GPU share, and those whose threads scatter their terms. Their loops are made in nest.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..te.axis import IterVar
from ..te.reduce import atomic_operation
from ..tir.errors import ScheduleError
from ..tir.expr import Expr, load
from ..tir.gpu import ATOMIC_DTYPES
from ..tir.stmt import Atomic, Stmt
from ..tir.visit import loads_of
from .scatter import is_scattered


def is_atomic(stage: Any, leaf: IterVar) -> bool:
    """Whether a leaf is reduced by atomic updates: by blocks, or by threads each of which has another element to update."""
    mark = stage.marks.get(leaf)
    if leaf.kind != "reduce" or mark is None or mark.thread is None:
        return False
    return mark.thread.thread_tag.startswith("blockIdx") or any(is_scattered(stage, each) for each in stage.leaf_iter_vars)


def check_atomic(stage: Any, axis: IterVar, tag: str) -> None:
    """A ScheduleError unless what a stage reduces can be combined by atomic updates."""
    reducer, dtypes = stage.op.reducer, [t.dtype for t in stage.outputs]
    operation = atomic_operation(reducer)
    if operation is not None and len(dtypes) == 1 and dtypes[0] in ATOMIC_DTYPES[operation]:
        return
    found = f"{reducer.name} of {' and '.join(map(str, dtypes))}"
    known = "; ".join(f"{'sum' if name == 'add' else name} of {', '.join(kinds)}" for name, kinds in ATOMIC_DTYPES.items())
    of_blocks = tag.startswith("blockIdx")
    who, instead = ("blocks", "bind it to an index of threads (threadIdx), or ") if of_blocks else ("threads", "do not scatter it, or ")
    raise ScheduleError(f"bind on stage {stage.name}: axis {stage.axis_name(axis)} is reduced, but {who} cannot combine their shares of a {found}: there is "
                        f"no atomic update for it (there is for {known}); {instead}use rfactor and bind the new axis to {tag}")  # fmt: skip


def check_place(stage: Any, scope: str, init: Sequence[Expr] | None, schedule: Any) -> None:
    """A ScheduleError unless all who share a reduction can reach its result, and what it starts from is known before they begin."""
    shared = [leaf for leaf in stage.leaf_iter_vars if is_atomic(stage, leaf)]
    for leaf in shared:
        check_atomic(stage, leaf, stage.marks[leaf].thread.thread_tag)
    axis = next((leaf for leaf in shared if stage.marks[leaf].thread.thread_tag.startswith("blockIdx")), None)
    if axis is None and stage.attach.kind == "at":
        if not scope.startswith("shared"):
            tag = stage.marks[shared[0]].thread.thread_tag
            raise ScheduleError(f"stage {stage.name}: its axis {stage.axis_name(shared[0])} is bound to {tag}, whose threads update one result, but that is in "
                                f"memory of scope {scope}; use set_scope('shared')")  # fmt: skip
        return
    axis = shared[0] if axis is None else axis
    tag = stage.marks[axis].thread.thread_tag
    what = f"stage {stage.name}: its axis {stage.axis_name(axis)} is reduced by {'blocks' if tag.startswith('blockIdx') else 'threads'} ({tag})"
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
    """A share goes into the result."""
    buffer, indices = target
    tags = tuple(stage.marks[leaf].thread.thread_tag for leaf in stage.leaf_iter_vars if is_atomic(stage, leaf))
    operation = atomic_operation(stage.op.reducer)
    assert operation is not None
    return Atomic(load(buffer, indices), value, operation, tags)
