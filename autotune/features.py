"""Features of a loop nest: what a cost model sees of a candidate, as numbers with names and units.

They are read off the loops that the schedule gives, before any pass: bounds, loop kinds and index expressions are enough, so a candidate
costs a millisecond or two. An index is treated as affine in the loop variables (a floor division divides the coefficient), which is what
footprints and strides need. Numbers spread over many orders of magnitude, so all but shares and flags are log2(1 + x).

For the two most expensive stores of a nest: arithmetic by kind, loops by kind, and for each buffer touched (the one moving most bytes first)
bytes, footprint, cache lines, stride and reuse; the bytes that must come from beyond L1 and L2 if what fits a cache stays in it; arithmetic
intensity at several depths. For the whole nest: totals, allocations and guards. Compare section 4 of "Ansor: Generating High-Performance
Tensor Programs for Deep Learning" (OSDI 2020), which introduced features of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..schedule.lower import lower_schedule
from ..te.tensor import Tensor
from ..tir.expr import Binary, Broadcast, Buffer, Call, Cast, Choice, Const, Expr, Load, Ramp, Var
from ..tir.stmt import Allocate, Atomic, Bind, For, Func, If, Seq, Stmt, Store
from ..tir.target import Target

_LINE_BYTES = 64
_BUFFERS = 4  # described for each store
_STORES = 2  # described in full
_CURVE = 6  # points of the arithmetic-intensity curve

_ARITHMETIC = ("float_add", "float_mul", "float_div", "float_minmax", "float_call", "integer", "compare", "select", "cast")
_LOOPS = ("parallel", "vectorized", "unrolled", "serial", "thread")

_STORE_FEATURES = (
    "executions [log2 1]",
    *(f"{kind} [log2 operations]" for kind in _ARITHMETIC),
    *(f"{kind} iterations [log2 1]" for kind in _LOOPS),
    "loops [1]",
    "guards [1]",
    "innermost extent [log2 1]",
    "innermost vectorized [flag]",
    "vector utilisation [share]",
    "unrolled body [log2 operations]",
    "parallel balance [share]",
    "operations per vector lane and thread [log2 1]",
    "bytes beyond L1 [log2 B]",
    "bytes beyond L2 [log2 B]",
    "working set of the body [log2 B]",
    "registers of the body [log2 1]",
    "operations per byte beyond L1 [log2 1/B]",
    "operations per byte beyond L2 [log2 1/B]",
    *(f"intensity at depth {point} of {_CURVE} [log2 1/B]" for point in range(_CURVE)),
    *(
        f"buffer {number}: {what}"
        for number in range(_BUFFERS)
        for what in (
            "accessed [log2 B]",
            "footprint [log2 B]",
            "lines [log2 1]",
            "innermost stride [log2 B]",
            "vector stride [log2 B]",
            "reuse [log2 1]",
            "reuse distance [log2 1]",
            "reuse distance [log2 B]",
            "written [flag]",
            "local [flag]",
        )
    ),
)
_NEST_FEATURES = (
    "stores [1]",
    "operations [log2 1]",
    "executions of all stores [log2 1]",
    "bytes beyond L1 [log2 B]",
    "bytes beyond L2 [log2 B]",
    "share of operations vectorized [share]",
    "share of operations parallel [share]",
    "allocations [1]",
    "allocated local [log2 B]",
    "allocated elsewhere [log2 B]",
    "largest allocation [log2 B]",
    "parallel regions [log2 1]",
)

# Names, with units, of the numbers that `nest_features` gives, in order.
FEATURE_NAMES: tuple[str, ...] = (*_NEST_FEATURES, *(f"store {number}: {name}" for number in range(_STORES) for name in _STORE_FEATURES))


def extract(schedule: Any, tensors: Sequence[Tensor], target: Target) -> list[float]:
    """The features of a schedule: one number for each of FEATURE_NAMES. Raises what lowering raises."""
    return nest_features(lower_schedule(schedule, tensors), target)


def nest_features(func: Func, target: Target) -> list[float]:
    """The features of a lowered function whose loops and buffers have constant sizes."""
    reader = _Reader()
    reader.read(func.body)
    stores = sorted((_describe(site, target) for site in reader.sites), key=lambda store: -store.cost)
    operations = sum(store.operations for store in stores) or 1.0
    local = [size for scope, size in reader.allocations if scope == "local"]
    elsewhere = [size for scope, size in reader.allocations if scope != "local"]
    values = [
        float(len(stores)),
        _log(operations),
        _log(sum(store.executions for store in stores)),
        _log(sum(store.beyond_l1 for store in stores)),
        _log(sum(store.beyond_l2 for store in stores)),
        sum(store.operations for store in stores if store.vectorized) / operations,
        sum(store.operations for store in stores if store.parallel) / operations,
        float(len(reader.allocations)),
        _log(sum(local)),
        _log(sum(elsewhere)),
        _log(max([*local, *elsewhere], default=0.0)),
        _log(reader.parallel_regions),
    ]
    for store in stores[:_STORES]:
        values += store.values
    values += [0.0] * (len(_STORE_FEATURES) * (_STORES - min(_STORES, len(stores))))
    return values


def _log(value: float) -> float:
    return math.log2(1.0 + value)


# ---- reading the statements


@dataclass
class _Loop:
    var: Var
    extent: int
    kind: str


@dataclass
class _Access:
    buffer: Buffer
    written: bool
    strides: list[dict[Var, float]]  # for each dimension: loop variable -> elements


@dataclass
class _Site:
    """One store: the loops around it (outermost first), what it touches, what it computes each time."""

    loops: list[_Loop]
    guards: int
    accesses: list[_Access]
    arithmetic: dict[str, float]


@dataclass
class _Reader:
    """Walks the statements once and keeps what is needed of each store."""

    sites: list[_Site] = field(default_factory=list)
    allocations: list[tuple[str, float]] = field(default_factory=list)
    parallel_regions: float = 0.0
    _loops: list[_Loop] = field(default_factory=list)
    _guards: int = 0
    _memo: dict[Expr, dict[Var, float]] = field(default_factory=dict)
    _bound: dict[Var, Expr] = field(default_factory=dict)

    def read(self, statement: Stmt | None) -> None:
        if statement is None:
            return
        if isinstance(statement, For):
            extent = statement.constant_extent
            self._loops.append(_Loop(statement.var, 1 if extent is None else max(extent, 1), statement.kind))
            if statement.kind == "parallel" and not any(loop.kind == "parallel" for loop in self._loops[:-1]):
                self.parallel_regions += math.prod(loop.extent for loop in self._loops[:-1])
            self.read(statement.body)
            self._loops.pop()
        elif isinstance(statement, Seq):
            for part in statement.body:
                self.read(part)
        elif isinstance(statement, If):
            self._guards += 1
            self.read(statement.then)
            self.read(statement.otherwise)
            self._guards -= 1
        elif isinstance(statement, Store):
            self._store(statement)
        elif isinstance(statement, Atomic):
            self._store(Store(statement.load.buffer, statement.load.indices, statement.result))
        elif isinstance(statement, Allocate):
            size = float(math.prod(_number(extent) for extent in statement.buffer.shape) * statement.buffer.dtype.bytes)
            self.allocations.append((statement.buffer.scope, size))
            self.read(statement.body)
        elif isinstance(statement, Bind):
            self._bound[statement.var] = statement.value
            self.read(statement.body)
        else:
            self.read(getattr(statement, "body", None))

    def _store(self, store: Store) -> None:
        accesses = [_Access(store.buffer, True, [self._coefficients(index) for index in store.indices])]
        arithmetic = dict.fromkeys(_ARITHMETIC, 0.0)
        seen: set[Expr] = set()
        stack: list[Expr] = [store.value]
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            kind = _arithmetic_kind(e)
            if kind:
                arithmetic[kind] += 1
            if isinstance(e, Load):
                accesses.append(_Access(e.buffer, False, [self._coefficients(index) for index in e.indices]))
            else:
                stack.extend(e.children)
        self.sites.append(_Site(list(self._loops), self._guards, accesses, arithmetic))

    def _coefficients(self, e: Expr) -> dict[Var, float]:
        """How far an index moves for one step of each loop variable."""
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._derive(e)
        return found

    def _derive(self, e: Expr) -> dict[Var, float]:
        if isinstance(e, Var):
            return self._coefficients(self._bound[e]) if e in self._bound else {e: 1.0}
        if isinstance(e, Binary):
            name, a, b = type(e).__name__, self._coefficients(e.a), self._coefficients(e.b)
            if name in ("Add", "Sub"):
                sign = 1.0 if name == "Add" else -1.0
                return {var: a.get(var, 0.0) + sign * b.get(var, 0.0) for var in {**a, **b}}
            if name == "Mul" and isinstance(e.b, Const):
                return {var: step * e.b.value for var, step in a.items()}
            if name == "FloorDiv" and isinstance(e.b, Const) and e.b.value:
                return {var: step / e.b.value for var, step in a.items()}
            if name == "FloorMod":
                return a
            return {**b, **a}
        if isinstance(e, Ramp | Broadcast | Cast):
            return self._coefficients(e.children[0])
        return {}


def _number(extent: Any) -> float:
    return float(extent.value) if isinstance(extent, Const) else float(extent) if isinstance(extent, int) else 1.0


_FLOAT_KIND = {"Add": "float_add", "Sub": "float_add", "Mul": "float_mul", "Div": "float_div", "Min": "float_minmax", "Max": "float_minmax"}


def _arithmetic_kind(e: Expr) -> str | None:
    if isinstance(e, Binary):
        if not e.a.dtype.is_float:
            return "compare" if e.dtype.is_bool else "integer"
        return _FLOAT_KIND.get(type(e).__name__, "compare")
    if isinstance(e, Call):
        return "float_call" if e.dtype.is_float else "integer"
    return "select" if isinstance(e, Choice) else "cast" if isinstance(e, Cast) else None


# ---- describing a store


@dataclass
class _Described:
    cost: float
    operations: float
    executions: float
    beyond_l1: float
    beyond_l2: float
    vectorized: bool
    parallel: bool
    values: list[float]


def _describe(site: _Site, target: Target) -> _Described:
    loops = site.loops
    executions = float(math.prod(loop.extent for loop in loops))
    by_kind = {kind: float(math.prod(loop.extent for loop in loops if loop.kind == kind)) for kind in _LOOPS}
    each = max(1.0, sum(site.arithmetic.values()))
    operations = each * executions
    accesses = _merged(site.accesses)
    sets = [_footprints(access, loops) for access in accesses]
    working = [sum(size[depth] for size in sets) for depth in range(len(loops) + 1)]  # bytes touched inside depth loops
    beyond_l1 = _traffic(sets, working, loops, 0.75 * target.l1_bytes)
    beyond_l2 = _traffic(sets, working, loops, 0.75 * target.l2_bytes)
    lanes = float(target.lanes(max((access.buffer.dtype.bytes for access in accesses), default=4)))
    vector = by_kind["vectorized"]
    threads = min(by_kind["parallel"], float(target.threads))
    balance = by_kind["parallel"] / (math.ceil(by_kind["parallel"] / target.threads) * target.threads) if by_kind["parallel"] > 1 else 1 / target.threads
    body = _body_depth(loops)
    values = [
        _log(executions),
        *(_log(site.arithmetic[kind] * executions) for kind in _ARITHMETIC),
        *(math.log2(by_kind[kind]) for kind in _LOOPS),
        float(len(loops)),
        float(site.guards),
        math.log2(loops[-1].extent) if loops else 0.0,
        float(bool(loops) and loops[-1].kind == "vectorized"),
        vector / (math.ceil(vector / lanes) * lanes),
        _log(each * by_kind["unrolled"] * vector),
        balance,
        _log(operations / max(1.0, min(vector, lanes)) / max(1.0, threads)),
        _log(beyond_l1),
        _log(beyond_l2),
        _log(working[body]),
        _log(working[body] / target.vector_bytes),
        _log(operations / max(1.0, beyond_l1)),
        _log(operations / max(1.0, beyond_l2)),
        *_intensity_curve(each, working, loops),
    ]
    order = sorted(range(len(accesses)), key=lambda index: (-sets[index][0], not accesses[index].written))
    for index in order[:_BUFFERS]:
        values += _access_values(accesses[index], sets[index], working, loops)
    values += [0.0] * (10 * (_BUFFERS - min(_BUFFERS, len(accesses))))
    cost = operations / max(1.0, min(vector, lanes)) / max(1.0, threads) + beyond_l2 / 8
    return _Described(cost, operations, executions, beyond_l1, beyond_l2, vector > 1, by_kind["parallel"] > 1, values)


def _merged(accesses: list[_Access]) -> list[_Access]:
    """One access for each buffer; what is both read and written counts as written."""
    found: dict[Buffer, _Access] = {}
    for access in accesses:
        if access.buffer not in found:
            found[access.buffer] = access
    return list(found.values())


def _footprints(access: _Access, loops: list[_Loop]) -> list[float]:
    """Bytes touched by the loops from depth d inward, for d = 0 (all loops) .. len(loops) (one execution)."""
    spans = [1.0] * len(access.strides)
    limits = [_number(extent) for extent in access.buffer.shape]
    sizes = [float(access.buffer.dtype.bytes)]
    for loop in reversed(loops):
        for dimension, strides in enumerate(access.strides):
            step = strides.get(loop.var)
            if step:
                spans[dimension] = min(limits[dimension], spans[dimension] + abs(step) * (loop.extent - 1))
        sizes.append(math.prod(math.ceil(span) for span in spans) * access.buffer.dtype.bytes)
    return sizes[::-1]


def _traffic(sets: list[list[float]], working: list[float], loops: list[_Loop], cache_bytes: float) -> float:
    """Bytes that come from beyond a cache: the footprint of the largest inner nest that fits, once for each time that nest runs anew.

    A loop around that nest on which a buffer does not depend still finds it cached if the nest fits: only the outer loops that move it count.
    """
    depth = next((depth for depth, size in enumerate(working) if size <= cache_bytes), len(loops))
    total = 0.0
    for sizes in sets:
        times = 1.0
        for level in range(depth):
            times *= loops[level].extent
        # One loop further out that leaves the buffer where it is: it is still there, if it fits together with what moves.
        if depth > 0 and sizes[depth - 1] == sizes[depth] and sizes[depth] <= 0.5 * cache_bytes:
            times /= loops[depth - 1].extent
        total += sizes[depth] * times
    return total


def _body_depth(loops: list[_Loop]) -> int:
    """Where the innermost run of unrolled and vectorised loops begins: what is inside becomes straight code."""
    depth = len(loops)
    while depth > 0 and loops[depth - 1].kind in ("unrolled", "vectorized"):
        depth -= 1
    return depth


def _intensity_curve(each: float, working: list[float], loops: list[_Loop]) -> list[float]:
    """Operations per byte touched, at evenly spaced depths from the whole nest to one execution."""
    points = []
    inside = [1.0]
    for loop in reversed(loops):
        inside.append(inside[-1] * loop.extent)
    inside.reverse()
    for point in range(_CURVE):
        depth = round(point * len(loops) / (_CURVE - 1))
        points.append(_log(each * inside[depth] / max(1.0, working[depth])))
    return points


def _access_values(access: _Access, sizes: list[float], working: list[float], loops: list[_Loop]) -> list[float]:
    executions = float(math.prod(loop.extent for loop in loops))
    element = access.buffer.dtype.bytes
    dense = _dense_strides(access.buffer)
    moves = {loop.var: sum(strides.get(loop.var, 0.0) * step for strides, step in zip(access.strides, dense, strict=True)) for loop in loops}
    innermost = abs(moves[loops[-1].var]) * element if loops else 0.0
    vector = next((abs(moves[loop.var]) * element for loop in reversed(loops) if loop.kind == "vectorized"), 0.0)
    # Reuse: the innermost loop that does not move this access, how often it comes back, and what happens in between.
    reuse, distance, distance_bytes, inside = 1.0, 0.0, 0.0, 1.0
    for depth in range(len(loops) - 1, -1, -1):
        if moves[loops[depth].var] == 0 and loops[depth].extent > 1:
            reuse, distance, distance_bytes = float(loops[depth].extent), inside, working[depth + 1]
            break
        inside *= loops[depth].extent
    run = element if not loops or innermost == 0 else min(innermost, _LINE_BYTES)
    lines = sizes[0] / element * run / _LINE_BYTES
    return [
        _log(executions * element),
        _log(sizes[0]),
        _log(lines),
        _log(innermost),
        _log(vector),
        _log(reuse),
        _log(distance),
        _log(distance_bytes),
        float(access.written),
        float(access.buffer.scope == "local"),
    ]


def _dense_strides(buffer: Buffer) -> list[float]:
    if buffer.strides is not None:
        return [_number(stride) for stride in buffer.strides]
    strides = [1.0]
    for extent in buffer.shape[:0:-1]:
        strides.append(strides[-1] * _number(extent))
    return strides[::-1][: len(buffer.shape)]
