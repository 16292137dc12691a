"""Facts: what may be claimed about a function between passes, and a check for each claim.

A check returns sentences, one for each violation found; none means that nothing speaks against the claim. Checks report what is
certainly wrong: where a proof is out of reach (a symbolic bound, an index read from memory) they stay silent, so a report is always a bug.
Which pass requires, gives and breaks which fact is said by the passes; that a list is consistent is checked by passes/manager.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .barrier_plan import plan_barriers
from .dtype import BOOL
from .errors import TargetError
from .expr import And, Binary, Broadcast, Buffer, Call, Cast, Choice, Comparison, Const, Expr, Load, Not, Or, Ramp, Var
from .kernel import INDICES, kernels_of
from .liveness import overlapping_places
from .stmt import Allocate, Atomic, Bind, For, Func, If, Prefetch, Shuffle, Stmt, Store
from .visit import children, walk
from .witness import out_of_bounds, races, too_narrow

TYPED = "typed"
CLOSED = "closed"
IN_BOUNDS = "in_bounds"
RACE_FREE = "race_free"
FLAT = "flat"
PARTITIONED = "partitioned"
NO_VECTOR_LOOPS = "no_vector_loops"
PLACED = "placed"
THREADS_BOUND = "threads_bound"
SYNCED = "synced"
UNROLLED = "unrolled"
NARROW = "narrow"
EMITTABLE = "emittable"


@dataclass(frozen=True)
class Fact:
    """A claim about a function. `check` is None for what shows in speed only: that something was tried before what would be in its way."""

    name: str
    meaning: str
    check: Callable[[Func], list[str]] | None


def check_typed(func: Func) -> list[str]:
    """Dtypes and lanes of every operation, and ranks of accesses."""
    problems = []
    for node in walk(func.body):
        wrong = _wrong_type(node)
        if wrong:
            problems.append(f"{wrong}: {str(node)[:200]}")
    return problems


def _wrong_type(node: Any) -> str | None:
    """What is wrong with the types around one node."""
    if isinstance(node, Binary):
        want = node.a.dtype
        if isinstance(node, (And, Or)) and not want.is_bool:
            return f"operands are {want}, expected bool"
        if isinstance(node, Comparison):
            want = BOOL.vector(want.lanes)
        if node.a.dtype is not node.b.dtype:
            return f"operands are {node.a.dtype} and {node.b.dtype}"
        return None if node.dtype is want else f"is {node.dtype}, expected {want}"
    if isinstance(node, Choice):
        if node.then.dtype is not node.dtype or node.otherwise.dtype is not node.dtype:
            return f"arms are {node.then.dtype} and {node.otherwise.dtype}, the result {node.dtype}"
        return _wrong_condition(node.condition, node.dtype.lanes)
    if isinstance(node, (Load, Store, Prefetch)):
        return _wrong_access(node)
    if isinstance(node, Ramp):
        if node.base.dtype is not node.stride.dtype or not node.base.dtype.is_integer or node.base.dtype.lanes != 1:
            return f"a ramp of {node.base.dtype} and {node.stride.dtype}"
    elif isinstance(node, (Broadcast, Cast, Not)):
        lanes = 1 if isinstance(node, Broadcast) else node.dtype.lanes
        if node.children[0].dtype.lanes != lanes:
            return f"operand has {node.children[0].dtype.lanes} lanes, expected {lanes}"
    elif isinstance(node, Call):
        if any(a.dtype is not node.args[0].dtype for a in node.args):
            return f"arguments are {', '.join(a.dtype for a in node.args)}"
    elif isinstance(node, For):
        if not node.extent.dtype.is_integer or node.extent.dtype.lanes != 1:
            return f"an extent is {node.extent.dtype}"
    elif isinstance(node, If):
        return _wrong_condition(node.condition, 1)
    elif isinstance(node, Shuffle):
        if not isinstance(node.target, Load) or node.value.dtype is not node.target.dtype or node.target.dtype.lanes > 1:
            return f"a shuffle of {node.value.dtype} to {node.target}"
    elif isinstance(node, Atomic):
        target = node.target
        if not isinstance(target, Load) or target.predicate is not None or target.dtype.lanes > 1 or node.value.dtype is not target.dtype:
            return f"an atomic update of {target} by a {node.value.dtype}"
    elif isinstance(node, Bind) and node.var.dtype is not node.value.dtype:
        return f"a {node.value.dtype} is bound to {node.var.name} of dtype {node.var.dtype}"
    return None


def _wrong_condition(condition: Expr, lanes: int) -> str | None:
    if condition.dtype.is_bool and condition.dtype.lanes in (1, lanes):
        return None
    return f"a condition is {condition.dtype}, expected bool of {lanes} lanes"


def _wrong_access(node: Load | Store | Prefetch) -> str | None:
    buffer = node.buffer
    if len(node.indices) != len(buffer.shape):
        return f"{buffer.name} has {len(buffer.shape)} dimensions, found {len(node.indices)} indices"
    if not all(i.dtype.is_integer for i in node.indices):
        return f"indices are {', '.join(i.dtype for i in node.indices)}"
    wide = {i.dtype.lanes for i in node.indices} - {1}
    if len(wide) > 1:
        return f"indices have {' and '.join(map(str, sorted(wide)))} lanes"
    if isinstance(node, Prefetch):
        return None
    want = buffer.dtype.vector(max(wide, default=1))
    found = node.dtype if isinstance(node, Load) else node.value.dtype
    if found is not want:
        return f"{buffer.name} holds {buffer.dtype}, so the value is {want}, found {found}"
    return None if node.predicate is None else _wrong_condition(node.predicate, want.lanes)


def check_closed(func: Func) -> list[str]:
    """Scopes of variables and buffers, and that a loop stays in the bounds its variable was made with."""
    problems: list[str] = []
    in_scope: set[Any] = {*func.sizes, *func.params}

    def use(*roots: Expr) -> None:
        for root in roots:
            for node in walk(root):
                missing = node if isinstance(node, Var) else node.buffer if isinstance(node, Load) else None
                if missing is not None and missing not in in_scope:
                    problems.append(f"{missing.name} is used in {root}, where it is not known")

    def inside(name: Any, body: Stmt) -> None:
        if name in in_scope:
            problems.append(f"{name.name} is introduced again where it is known already")
            visit(body)
            return
        in_scope.add(name)
        visit(body)
        in_scope.discard(name)

    def visit(s: Stmt) -> None:
        use(*(c for c in children(s) if isinstance(c, Expr)))
        if isinstance(s, (Store, Prefetch)) and s.buffer not in in_scope:
            problems.append(f"{s.buffer.name} is accessed where it is not known: {s}")
        if isinstance(s, Allocate):
            use(*(d for d in s.buffer.shape if isinstance(d, Expr)))
            inside(s.buffer, s.body)
        elif isinstance(s, For):
            problems.extend(_wrong_bounds(s))
            inside(s.var, s.body)
        elif isinstance(s, Bind):
            inside(s.var, s.body)
        else:
            for child in children(s):
                if isinstance(child, Stmt):
                    visit(child)

    for p in func.params:
        use(*(d for d in p.shape if isinstance(d, Expr)))
    visit(func.body)
    problems += [f"{o.name} is an output but no parameter" for o in func.outputs if o not in func.params]
    return problems


def _wrong_bounds(loop: For) -> Iterator[str]:
    low, high = loop.var.bounds
    extent = loop.constant_extent
    if (low is not None and low > 0) or (high is not None and extent is not None and high < extent - 1):
        yield f"{loop.var.name} was made for values from {low} to {high}, but its loop runs {loop.extent} times from 0"


def check_flat(func: Func) -> list[str]:
    """One dimension, no strides, whatever is accessed."""
    buffers: set[Buffer] = {*func.params, *(n.buffer for n in walk(func.body) if isinstance(n, (Load, Store, Prefetch, Allocate)))}
    return sorted(f"{b!r} is not flat" for b in buffers if len(b.shape) != 1 or b.strides is not None)


def check_no_vector_loops(func: Func) -> list[str]:
    """No loop of kind "vectorized"."""
    return [f"loop {n.var.name} is vectorized" for n in walk(func.body) if isinstance(n, For) and n.kind == "vectorized"]


def check_placed(func: Func) -> list[str]:
    """Every buffer has an aligned place inside its workspace that no buffer in use at the same time shares."""
    problems = []
    for node in walk(func.body):
        if not isinstance(node, Allocate):
            continue
        place, size = node.place, node.buffer.constant_size
        if place is None:
            problems.append(f"{node.buffer!r} has no place")
        elif place.kind == "stack":
            if size is None:
                problems.append(f"{node.buffer!r} is on the stack but its size is not constant")
        elif isinstance(offset := _number(place.offset), int):
            if offset % node.buffer.dtype.bytes:
                problems.append(f"{node.buffer!r} is placed at byte {offset}, which does not suit its dtype")
            total = None if place.kind == "shared" else _number(func.workspace_bytes[place.kind == "thread"])
            if isinstance(total, int) and size is not None and offset + size * node.buffer.dtype.bytes > total:
                problems.append(f"{node.buffer!r} at {place} ends outside the workspace of {total} bytes")
    return problems + [f"{a!r} and {b!r} share bytes while both are in use" for a, b in overlapping_places(func)]


def check_threads_bound(func: Func) -> list[str]:
    """Every statement of the function is inside loops over all indices of the grid it uses."""
    problems = []
    for kernel in kernels_of(func):
        tags = list(kernel.indices)
        if not tags:
            problems.append(f"{kernel.name} is not inside any thread")
        if tags != [tag for tag in INDICES if tag in tags]:
            problems.append(f"{kernel.name}: its indices stand in the order {', '.join(tags)}")
        for node in walk(kernel.body):
            if isinstance(node, For) and node.thread in INDICES:
                problems.append(f"{kernel.name}: a loop over {node.thread} is left inside")
            elif isinstance(node, Allocate) and node.buffer.scope.startswith(("shared", "global")):
                problems.append(f"{kernel.name}: {node.buffer!r} is allocated by a thread")
        for tag, (_, extent) in kernel.indices.items():
            if tag.startswith("threadIdx") and not isinstance(extent, Const):
                problems.append(f"{kernel.name}: the threads along {tag} are {extent} in number")
    return problems


def check_synced(func: Func) -> list[str]:
    """A barrier between all accesses of different threads to one element, and none that only some threads reach."""
    problems: list[str] = []
    for kernel in kernels_of(func):
        for kind in ("block", "warp"):
            try:
                plan = plan_barriers(kernel, certain=True, of=kind)
            except TargetError as error:
                problems.append(str(error))
            else:
                problems += [*plan.reasons, *plan.divergent]
    return list(dict.fromkeys(problems))


def _number(value: int | Expr) -> int | Expr:
    return int(value.value) if isinstance(value, Const) else value


FACTS: dict[str, Fact] = {
    f.name: f
    for f in (
        Fact(TYPED, "operands have the dtypes and lanes that their operation asks for, a stored value those of its buffer", check_typed),
        Fact(CLOSED, "every variable and buffer is introduced before it is used, and once on each path", check_closed),
        Fact(IN_BOUNDS, "no access that happens is outside its buffer", out_of_bounds),
        Fact(RACE_FREE, "no iteration of a parallel loop writes what another one writes or reads", races),
        Fact(FLAT, "every buffer has one dimension and dense elements", check_flat),
        Fact(PARTITIONED, "guards on the way to vectorised and unrolled bodies have been split off where they can be", None),
        Fact(NO_VECTOR_LOOPS, "vectorised loops have become vector expressions", check_no_vector_loops),
        Fact(
            THREADS_BOUND,
            "every statement is a kernel: each index of the grid it uses stands around it once, shared memory between block and threads",
            check_threads_bound,
        ),
        Fact(SYNCED, "threads wait between accesses to one element, where all of them come by", check_synced),
        Fact(PLACED, "every buffer has a place in memory, and buffers in use at once do not share bytes", check_placed),
        Fact(UNROLLED, "unrolled loops around register tiles are written out", None),
        Fact(NARROW, "every integer expression has a dtype that holds its values", too_narrow),
        Fact(EMITTABLE, "only what the generator of the target knows is left", None),
    )
}
