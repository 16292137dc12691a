"""te.scan: tensors computed step after step along their first dimension, each step from earlier ones.

The operation, what its body is, and what a body must satisfy. How it is lowered (the loop over time, storage of the live steps) is in schedule/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..tir.affine import difference
from ..tir.errors import TEError
from ..tir.expr import Load, Var
from ..tir.visit import loads_of
from .axis import IterVar, Range, same_extent
from .check import check_reads
from .graph import operations
from .op import ComputeOp, Operation, PlaceholderOp, axes_over
from .tensor import Tensor


class ScanOp(Operation):
    """Tensors computed along time, their first dimension.

    Attributes, one entry for each state: `init`, `update`, `state` (the tensors given), `lags` (how many steps back the state is read at most; 0 if it
    is not), `init_axis` and `init_body` (the copy of the initial steps: its axes and its value). `steps`: how many initial steps there are; `scan_axis`:
    the ordered axis of the steps that are computed; `body`: the operations of one step in order, updates and what lies between them and the states.
    """

    __slots__ = ("axis", "body", "init", "init_axis", "init_body", "lags", "reduce_axis", "reducer", "scan_axis", "state", "steps", "update")

    def __init__(self, name: str, init: Sequence[Tensor], update: Sequence[Tensor], state: Sequence[Tensor], steps: int):
        self.name, self.init, self.update, self.state, self.steps = name, tuple(init), tuple(update), tuple(state), steps
        self.axis: tuple[IterVar, ...] = ()  # it has no axes of its own but time
        self.reduce_axis: tuple[IterVar, ...] = ()
        self.reducer = None
        length = state[0].shape[0]
        extent: Any = length - steps
        time = update[0].op.axis[0].name  # type: ignore[attr-defined]
        self.scan_axis = IterVar(Range(steps, extent), time, "ordered")
        self.init_axis = tuple(axes_over([f"{time}0", *(f"i{n}" for n in range(1, t.ndim))], t.shape) for t in init)
        self.init_body = tuple(t(*axes) for t, axes in zip(init, self.init_axis, strict=True))
        self.input_tensors = tuple(dict.fromkeys((*init, *update)))
        self.body = _body(self)
        self.lags = _lags(self)
        shapes = [t.shape for t in state]
        names = [name] if len(state) == 1 else [f"{name}.v{i}" for i in range(len(state))]
        self.outputs = tuple(Tensor(self, i, shape, t.dtype, n) for i, (shape, t, n) in enumerate(zip(shapes, state, names, strict=True)))

    def output_of(self, tensor: Tensor) -> Tensor | None:
        """The output in which the values of an update or a state are."""
        for group in (self.update, self.state):
            for number, candidate in enumerate(group):
                if candidate is tensor:
                    return self.outputs[number]
        return None

    def __repr__(self) -> str:
        states = "; ".join(f"{i.name}, {u.name}[{s.name}]" for i, u, s in zip(self.init, self.update, self.state, strict=True))
        return f"{self.name} = scan({states}, {self.scan_axis.name} in {self.scan_axis.dom})"


def scan(init: Any, update: Any, state_placeholder: Any, inputs: Any = (), name: str = "scan") -> Any:
    """Tensors of the shapes of the states, computed along their first dimension, time: the first steps are `init`, each later one is what `update` says.

    With S[T, ...] a state (a te.placeholder that stands for the result while it is computed), init[s, ...] its first s steps and update[T, ...]:

        scan[t, ...] = init[t, ...]      for t < s
        scan[t, ...] = update[t, ...]    for s <= t < T, in order, where S[t - 1, ...] is scan[t - 1, ...]

    Running sums of X[T, M]:

        S = te.placeholder((T, M), name="S")
        init = te.compute((1, M), lambda _, i: X[0, i])
        update = te.compute((T, M), lambda t, i: S[t - 1, i] + X[t, i])
        Y = te.scan(init, update, S, inputs=[X])

    before -> after, where all of Y is read, and where only its last step is (with T = 9, M = 5):

        for i in range(5):                      allocate scan: float32[1, 5]
            scan[0, i] = X[0, i]                for i in range(5):
        for t in range(8):                          scan[0, i] = X[0, i]
            for i in range(5):                  for t in range(8):
                scan[t + 1, i] = ...                for i in range(5):
                                                        scan[0, i] = scan[0, i] + X[t + 1, i]

    Lists of inits, updates and states (of any ranks) are computed together, a list comes back: an update reads the other states at earlier steps, and other
    updates at its own step `t`. Stages between a state and an update have time as their first axis too. `inputs` lists what else is read, for people.

    Raises TEError where shapes or dtypes do not fit together, or a step reads its own or a later one. All stages of a step run inside the loop over time;
    each may be placed with compute_at at an axis of another, or at `scan.op.scan_axis`. Where only the last steps are read, only the live ones are stored.
    """
    if not isinstance(name, str):
        raise TEError(f"scan: the name is {name!r}: expected a text")
    states = _tensors(state_placeholder, "state_placeholder", name)
    inits, updates = _tensors(init, "init", name), _tensors(update, "update", name)
    if inputs is not None and inputs != ():
        _tensors(inputs, "inputs", name)
    if not len(inits) == len(updates) == len(states):
        raise TEError(f"scan {name!r}: {len(inits)} init(s), {len(updates)} update(s) and {len(states)} state(s): expected as many of each")
    if not states:
        raise TEError(f"scan {name!r}: no state, expected at least one")
    for what, group in (("update", updates), ("state", states)):
        for number, tensor in enumerate(group):
            if any(tensor is other for other in group[:number]):
                raise TEError(f"scan {name!r}: {what} {tensor.name!r} is listed twice; each state has its own")
    for one, (first, step, state) in enumerate(zip(inits, updates, states, strict=True)):
        _check_state(name, one, first, step, state)
    lengths = [(t.name, t.shape[0]) for t in states]
    steps = [(t.name, t.shape[0]) for t in inits]
    for what, found in (("the length", lengths), ("the number of initial steps", steps)):
        for other, value in found[1:]:
            if not same_extent(value, found[0][1]):
                raise TEError(f"scan {name!r}: {what} of {found[0][0]!r} is {found[0][1]}, of {other!r} {value}: all states share one time axis")
    op = ScanOp(name, inits, updates, states, int(steps[0][1]))  # type: ignore[arg-type]
    return list(op.outputs) if isinstance(state_placeholder, (list, tuple)) else op.output(0)


def _tensors(given: Any, what: str, name: str) -> list[Tensor]:
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    for tensor in found:
        if not isinstance(tensor, Tensor):
            raise TEError(f"scan {name!r}: {what} is {tensor!r}: expected a tensor, or a list of tensors")
    return found


def _check_state(name: str, number: int, init: Tensor, update: Tensor, state: Tensor) -> None:
    """Kinds, dtypes and shapes of one state."""
    if not isinstance(state.op, PlaceholderOp):
        raise TEError(f"scan {name!r}: state {state.name!r} is computed: expected a te.placeholder that stands for the result of the scan")
    if not isinstance(update.op, ComputeOp):
        raise TEError(f"scan {name!r}: update {update.name!r} is no computation: expected a te.compute that reads {state.name!r} at earlier steps; "
                      "what else computes goes before the scan or after it")  # fmt: skip
    if not state.ndim:
        raise TEError(f"scan {name!r}: state {state.name!r} has no dimension: expected time as the first one")
    for what, tensor in (("init", init), ("update", update)):
        if tensor.dtype is not state.dtype:
            raise TEError(f"scan {name!r}: {what} {tensor.name!r} is {tensor.dtype}, state {state.name!r} is {state.dtype}: expected the same dtype")
        same = tensor.ndim == state.ndim and all(map(same_extent, tensor.shape[1:], state.shape[1:]))
        if not same or (what == "update" and not same_extent(tensor.shape[0], state.shape[0])):
            rest = ", ".join(map(str, state.shape[1:]))
            expected = state.shape_text if what == "update" else f"(steps, {rest})" if rest else "(steps,)"
            found = f"{what} {tensor.name!r} has shape {tensor.shape_text}, state {state.name!r} has {state.shape_text}"
            raise TEError(f"scan {name!r}: {found}: expected {expected}")
    steps, length = init.shape[0], state.shape[0]
    if not isinstance(steps, int) or steps < 1 or (isinstance(length, int) and steps > length):
        raise TEError(
            f"scan {name!r}: init {init.name!r} gives {steps} steps (its first extent) of {length} of state {state.name!r} (number {number}): "
            "expected a constant number, at least 1 and at most all"
        )


# ---------------------------------------------------------------------------------------------------------------- the body


def _body(op: ScanOp) -> tuple[ComputeOp, ...]:
    """The updates and the operations between the states and them, in order."""
    moving: set[Tensor] = set(op.state)
    body = []
    updates = {t.op for t in op.update}
    for other in operations(op.input_tensors):
        if other in updates or any(t in moving for t in other.input_tensors):
            if not isinstance(other, ComputeOp):
                raise TEError(
                    f"scan {op.name!r}: {other.name!r} depends on its state but is no te.compute; a step consists of computations only: {_instead(other)}"
                )
            body.append(other)
            moving.update(other.outputs)
    for tensor in op.init:
        if tensor in moving:
            raise TEError(f"scan {op.name!r}: init {tensor.name!r} depends on a state or an update: expected what is known before the first step")
    return tuple(body)


def _instead(other: Operation) -> str:
    """What to do where an operation cannot be a part of a step."""
    if isinstance(other, ScanOp):
        return "make one scan over both times (or states of both in one), or declare the inner steps one by one, as stages of the outer step"
    return "write it as te.compute, or call the C function before or after the scan, for all steps at once"


def _lags(op: ScanOp) -> tuple[int, ...]:
    """How far back each state is read at most; a TEError where a step reads what is not there yet, or outside a tensor."""
    lags = dict.fromkeys((t.buffer for t in op.state), 0)
    own = {t.buffer for other in op.body for t in other.outputs}
    length = op.state[0].shape[0]
    last = length - 1 if isinstance(length, int) else None
    for other in op.body:
        if not other.axis or not same_extent(other.axis[0].dom.extent, length):  # type: ignore[union-attr]
            raise TEError(f"scan {op.name!r}: {other.name!r} depends on a state, so it belongs to a step: expected time, of extent {length}, as its first axis")
        time = other.axis[0].var
        for e in other.expressions:
            for node in loads_of(e):
                if node.buffer in own:
                    _check_same_step(op, other, node, time)
                elif node.buffer in lags:
                    lags[node.buffer] = max(lags[node.buffer], _lag(op, other, node, time))
        if last is None or last >= op.steps:
            check_reads(other, {time: Var(time.name, time.dtype, (op.steps, last))})
    return tuple(lags[t.buffer] for t in op.state)


def _check_same_step(op: ScanOp, other: ComputeOp, node: Load, time: Var) -> None:
    if difference(node.indices[0], time) != ({}, 0):
        raise TEError(
            f"scan {op.name!r}: {other.name!r} reads {node}, which is computed in each step: expected it at the same step, "
            f"{node.buffer.name}[{time.name}, ...]; earlier steps are read from the state"
        )


def _lag(op: ScanOp, other: ComputeOp, node: Load, time: Var) -> int:
    terms, lag = difference(time, node.indices[0])
    if terms or not 1 <= lag <= op.steps:
        back = "1" if op.steps == 1 else f"1 to {op.steps}"
        raise TEError(
            f"scan {op.name!r}: {other.name!r} reads {node}: expected the state at an earlier step, {time.name} - c with c from {back} (init gives "
            f"{op.steps} step(s)), as its first index. The step itself is read from the update"
        )
    return lag


def check_whole(outputs: Iterable[Operation]) -> None:
    """What can be said of a whole computation only: what belongs to a scan is read there only; what reads before the start of a tensor is in a scan."""
    order = operations(outputs)
    scans = [op for op in order if isinstance(op, ScanOp)]
    owner: dict[Any, ScanOp] = {}
    for one in scans:
        for part in (*one.body, *(t.op for t in one.state)):
            if owner.setdefault(part, one) is not one:
                raise TEError(f"{part.name!r} belongs to two scans, {owner[part].name!r} and {one.name!r}: declare it once for each")
    for op in order:
        if isinstance(op, ComputeOp) and op.early_read is not None and op not in owner:
            raise TEError(op.early_read)
        for tensor in op.input_tensors:
            home = owner.get(tensor.op)
            if home is not None and op is not home and owner.get(op) is not home:
                raise TEError(f"{op.name!r} reads {tensor.name!r}, which exists inside the steps of scan {home.name!r} only: "
                              f"read an output of the scan, {', '.join(t.name for t in home.outputs)}")  # fmt: skip
