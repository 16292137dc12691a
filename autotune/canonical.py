"""A computation as data: its operations and expressions as JSON, and back; and what can be read off them.

The data goes to worker processes, which rebuild the computation from it, and its hash names the computation in a log. It holds what te
declares (placeholders and computations, reducers as expressions, scans, and calls of C functions by their names), nothing of a schedule, and nothing in
it is ever executed as code.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from ..te.axis import IterVar, Range
from ..te.extern import ExternCall, ExternOp
from ..te.graph import operations
from ..te.op import ComputeOp, Operation, PlaceholderOp, Reducer
from ..te.scan import ScanOp
from ..te.tensor import Tensor
from ..tir import expr as nodes
from ..tir.dtype import dtype
from ..tir.errors import ArgumentError
from ..tir.expr import Binary, Call, Cast, Choice, Const, Expr, IfThenElse, Load, Not, Select, Var

Data = dict[str, Any]

_BINARY: dict[str, type[Binary]] = {
    name: getattr(nodes, name) for name in ("Add", "Sub", "Mul", "Div", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE", "And", "Or")
}
_CHOICE: dict[str, type[Choice]] = {"Select": Select, "IfThenElse": IfThenElse}


# ---- to data


def to_data(tensors: Sequence[Tensor]) -> Data:
    """The computation whose arguments are `tensors` (inputs and outputs, in the order of a call). ArgumentError: what cannot be data."""
    order = operations([tensor for tensor in tensors if not isinstance(tensor.op, PlaceholderOp)] or list(tensors))
    order += [tensor.op for tensor in tensors if tensor.op not in order]
    number = {op: index for index, op in enumerate(order)}
    return {"arguments": [[number[tensor.op], tensor.value_index] for tensor in tensors], "operations": [_operation_data(op, number) for op in order]}


def _operation_data(op: Operation, number: dict[Operation, int]) -> Data:
    if isinstance(op, ScanOp):
        states = {part: [[number[t.op], t.value_index] for t in getattr(op, part)] for part in ("init", "update", "state")}
        return {"op": "scan", "name": op.name, **states, "steps": op.steps}
    if isinstance(op, ExternOp):
        return _extern_data(op, number)
    shape = list(constant_shape(op.outputs[0]))
    if isinstance(op, PlaceholderOp):
        return {"op": "placeholder", "name": op.name, "shape": shape, "dtype": str(op.outputs[0].dtype)}
    if not isinstance(op, ComputeOp):
        raise ArgumentError(f"operation '{op.name}' is a {type(op).__name__}, which cannot be written as data")
    writer = _Writer({axis.var: index for index, axis in enumerate((*op.axis, *op.reduce_axis))}, number, op.name)
    data: Data = {"op": "compute", "name": op.name, "shape": shape, "axes": [axis.name for axis in op.axis], "body": [writer.write(e) for e in op.body]}
    if op.reducer is not None:
        data["reduce"] = [[axis.name, *_constant_range(axis, op)] for axis in op.reduce_axis]
        data["reducer"] = _reducer_data(op.reducer, [e.dtype for e in op.body], op.name)
        data["condition"] = None if op.condition is None else writer.write(op.condition)
        data["init"] = None if op.init is None else [writer.write(e) for e in op.init]
    data["nodes"] = writer.lines
    return data


def _extern_data(op: ExternOp, number: dict[Operation, int]) -> Data:
    writer = _Writer({}, number, op.name)
    return {
        "op": "extern",
        "name": op.name,
        "inputs": [[number[t.op], t.value_index] for t in op.input_tensors],
        "outputs": [[list(constant_shape(t)), str(t.dtype)] for t in op.outputs],
        "libraries": list(op.libraries),
        "symbol": op.call.symbol,
        "arguments": [[writer.write(e), None if kind is None else str(kind)] for e, kind in zip(op.call.args, op.call.types, strict=True)],
        "nodes": writer.lines,
    }


def _reducer_data(reducer: Reducer, dtypes: Sequence[Any], owner: str) -> Data:
    form = reducer.form(dtypes)
    writer = _Writer({var: index for index, var in enumerate((*form.lhs, *form.rhs))}, {}, owner)
    return {
        "name": reducer.name,
        "associative": reducer.associative,
        "dtypes": [str(kind) for kind in dtypes],
        "result": [writer.write(e) for e in form.result],
        "identity": [writer.write(e) for e in form.identity],
        "nodes": writer.lines,
    }


def constant_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor; ArgumentError where a size is symbolic."""
    return tuple(_constant(extent, tensor.op) for extent in tensor.shape)


def _constant(extent: Any, op: Operation) -> int:
    if not isinstance(extent, int):
        raise ArgumentError(f"'{op.name}' has the symbolic extent {extent}; only computations of constant sizes can be tuned")
    return extent


def _constant_range(axis: IterVar, op: Operation) -> tuple[int, int]:
    found = axis.dom.constant if axis.dom is not None else None
    if found is None:
        raise ArgumentError(f"reduce axis '{axis.name}' of '{op.name}' has the symbolic range {axis.dom}; only constant sizes can be tuned")
    return found


class _Writer:
    """Expressions as numbered lines, each after its operands; a shared expression is one line."""

    def __init__(self, variables: dict[Var, int], operations: dict[Operation, int], owner: str):
        self.lines: list[list[Any]] = []
        self._number: dict[Expr, int] = {}
        self._variables = variables
        self._operations = operations
        self._owner = owner

    def write(self, e: Expr) -> int:
        """The number of the line of `e`, written if it is new."""
        if e not in self._number:
            line = self._line(e)
            self._number[e] = len(self.lines)
            self.lines.append(line)
        return self._number[e]

    def _line(self, e: Expr) -> list[Any]:
        operands = [self.write(child) for child in e.children]
        if isinstance(e, Var):
            if e not in self._variables:
                raise ArgumentError(f"'{self._owner}' uses the size '{e.name}', which is symbolic; only constant sizes can be tuned")
            return ["var", self._variables[e]]
        if isinstance(e, Const):
            return ["const", str(e.dtype), e.value.hex() if isinstance(e.value, float) else e.value]
        if isinstance(e, Cast):
            return ["cast", str(e.dtype), *operands]
        if isinstance(e, Call):
            return ["reinterpret", str(e.dtype), *operands] if e.name == "reinterpret" else ["call", e.name, *operands]
        if isinstance(e, Load) and e.predicate is None:
            tensor: Tensor = e.buffer.tensor  # type: ignore[attr-defined]
            return ["load", self._operations[tensor.op], tensor.value_index, *operands]
        if isinstance(e, Not):
            return ["Not", *operands]
        name = type(e).__name__
        if name in _BINARY or name in _CHOICE:
            return [name, *operands]
        raise ArgumentError(f"'{self._owner}' contains {e}, a {name}, which cannot be written as data")


def data_hash(data: Data) -> str:
    """A hash of the computation: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


# ---- from data


def from_data(data: Data) -> list[Tensor]:
    """Declares the computation anew; the tensors in the order of `to_data`'s argument."""
    made: list[Operation] = []
    for item in data["operations"]:
        made.append(_make_operation(item, made))
    return [made[number].outputs[index] for number, index in data["arguments"]]


def _make_operation(item: Data, made: list[Operation]) -> Operation:
    if item["op"] == "placeholder":
        return PlaceholderOp(item["name"], item["shape"], item["dtype"])
    if item["op"] == "scan":
        init, update, state = ([made[number].outputs[index] for number, index in item[part]] for part in ("init", "update", "state"))
        return ScanOp(item["name"], init, update, state, item["steps"])
    if item["op"] == "extern":
        return _make_extern(item, made)
    axes = [IterVar(Range(0, extent), name) for extent, name in zip(item["shape"], item["axes"], strict=True)]
    if "reducer" not in item:
        values = _read(item["nodes"], [axis.var for axis in axes], made)
        return ComputeOp(item["name"], axes, [values[number] for number in item["body"]])
    reducer = _make_reducer(item["reducer"])
    reduce_axes = [IterVar(Range(low, extent), name, "reduce") for name, low, extent in item["reduce"]]
    values = _read(item["nodes"], [axis.var for axis in (*axes, *reduce_axes)], made)
    return ComputeOp(
        item["name"],
        axes,
        [values[number] for number in item["body"]],
        reducer,
        reduce_axes,
        None if item["condition"] is None else values[item["condition"]],
        None if item["init"] is None else [values[number] for number in item["init"]],
    )


def _make_extern(item: Data, made: list[Operation]) -> ExternOp:
    inputs = [made[number].outputs[index] for number, index in item["inputs"]]
    shapes, kinds = zip(*item["outputs"], strict=True)
    op = ExternOp(item["name"], inputs, [tuple(shape) for shape in shapes], [dtype(kind) for kind in kinds], tuple(item["libraries"]))
    values = _read(item["nodes"], [], [*made, op])  # addresses in its own outputs too
    arguments, types = zip(*item["arguments"], strict=True)
    op.set_call(ExternCall(item["symbol"], tuple(values[number] for number in arguments), tuple(None if t is None else dtype(t) for t in types)))
    return op


def _make_reducer(item: Data) -> Reducer:
    def combine(lhs: tuple[Expr, ...], rhs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        values = _read(item["nodes"], [*lhs, *rhs], [])
        return tuple(values[number] for number in item["result"])

    def identity(dtypes: tuple[Any, ...]) -> tuple[Expr, ...]:
        variables = [nodes.Var(f"v{index}", kind) for index, kind in enumerate((*dtypes, *dtypes))]
        values = _read(item["nodes"], variables, [])
        return tuple(values[number] for number in item["identity"])

    return Reducer(combine, identity, item["name"], item["associative"])


def _read(lines: list[list[Any]], variables: Sequence[Expr], made: list[Operation]) -> list[Expr]:
    """The expression of every line."""
    values: list[Expr] = []
    for head, *rest in lines:
        if head == "var":
            values.append(variables[rest[0]])
        elif head == "const":
            values.append(nodes.const(float.fromhex(rest[1]) if isinstance(rest[1], str) else rest[1], rest[0]))
        elif head == "cast":
            values.append(nodes.cast(values[rest[1]], dtype(rest[0])))
        elif head == "reinterpret":
            values.append(nodes.reinterpret(values[rest[1]], dtype(rest[0])))
        elif head == "call":
            values.append(nodes.call(rest[0], *(values[number] for number in rest[1:])))
        elif head == "load":
            values.append(nodes.load(made[rest[0]].outputs[rest[1]].buffer, [values[number] for number in rest[2:]]))
        elif head == "Not":
            values.append(nodes.logical_not(values[rest[0]]))
        else:
            make: Callable[..., Expr] = (_BINARY.get(head) or _CHOICE[head]).make
            values.append(make(*(values[number] for number in rest)))
    return values


# ---- what can be read off a computation


def output_operations(tensors: Sequence[Tensor]) -> list[Operation]:
    """The operations of those arguments that are computed."""
    return list(dict.fromkeys(tensor.op for tensor in tensors if not isinstance(tensor.op, PlaceholderOp)))


def flop_count(tensors: Sequence[Tensor]) -> float:
    """Arithmetic operations of one evaluation as declared, each stage computed once; index arithmetic and comparisons do not count."""
    total = 0.0
    for op in operations(output_operations(tensors)):
        if isinstance(op, ComputeOp):
            points = float(math.prod(constant_shape(op.outputs[0])))
            each = sum(_arithmetic(op.body))
            if op.reducer is not None:
                points *= math.prod(_constant_range(axis, op)[1] for axis in op.reduce_axis)
                each += max(1, sum(_arithmetic(op.reducer.form([e.dtype for e in op.body]).result)))
            total += points * each
    return total


def byte_count(tensors: Sequence[Tensor]) -> float:
    """Bytes of all arguments, each touched once."""
    return float(sum(math.prod(constant_shape(tensor)) * tensor.dtype.bytes for tensor in tensors))


def _arithmetic(values: Sequence[Expr]) -> list[int]:
    """1 for each arithmetic node of the values; indices and conditions are left out."""
    found: dict[Expr, int] = {}

    def see(e: Expr) -> None:
        if e in found:
            return
        found[e] = int(type(e).__name__ in ("Add", "Sub", "Mul", "Div", "Min", "Max") or isinstance(e, Call))
        for child in (e.then, e.otherwise) if isinstance(e, Choice) else () if isinstance(e, Load) else e.children:
            see(child)

    for value in values:
        see(value)
    return list(found.values())


def largest_values(tensors: Sequence[Tensor], largest_input: int) -> dict[Tensor, float] | None:
    """A bound on the magnitude of every tensor when the inputs are integers of at most `largest_input`; None where a value may be no integer.

    Every intermediate value of a computation that has a bound is an integer of at most that size, whatever the order of its sums.
    """
    bounds: dict[Tensor, float] = {}
    for op in operations(list(tensors)):
        if isinstance(op, PlaceholderOp):
            bounds[op.outputs[0]] = float(largest_input)
            continue
        if not isinstance(op, ComputeOp):
            return None  # what a C function gives; of a scan, what as many steps give
        for tensor, value in zip(op.outputs, op.body, strict=True):
            bound = _bound(value, bounds)
            if bound is not None and op.reducer is not None:
                bound = _reduced_bound(op, bound, bounds)
            if bound is None:
                return None
            bounds[tensor] = bound
    return bounds


def _reduced_bound(op: ComputeOp, bound: float, bounds: dict[Tensor, float]) -> float | None:
    assert op.reducer is not None
    form = op.reducer.form([e.dtype for e in op.body])
    starts = [_bound(e, bounds) for e in op.init or ()]
    if any(start is None for start in starts):
        return None
    largest_start = max((start for start in starts if start is not None), default=0.0)
    kinds = {type(e).__name__ for result in form.result for e in _below(result)}
    if kinds <= {"Var", "Max", "Min", "Select", "IfThenElse", "LT", "LE", "EQ", "NE", "And", "Or", "Not"}:
        return max(bound, largest_start)
    if kinds <= {"Var", "Add"} and len(form.result) == 1:
        return bound * math.prod(_constant_range(axis, op)[1] for axis in op.reduce_axis) + largest_start
    return None


def _below(e: Expr) -> list[Expr]:
    return [e, *(found for child in e.children for found in _below(child))]


def _bound(e: Expr, bounds: dict[Tensor, float]) -> float | None:
    """A bound on the magnitude of an integer-valued expression; None where it may not be an integer."""
    if isinstance(e, Const):
        return abs(float(e.value)) if not isinstance(e.value, float) or e.value.is_integer() else (0.0 if math.isinf(e.value) else None)
    if isinstance(e, Load):
        tensor = getattr(e.buffer, "tensor", None)
        return bounds.get(tensor) if tensor is not None else None
    if isinstance(e, Choice):
        return _larger(_bound(e.then, bounds), _bound(e.otherwise, bounds))
    if isinstance(e, Cast) and (e.value.dtype.is_float or e.value.dtype.is_integer):
        return _bound(e.value, bounds)
    if isinstance(e, Call) and e.name in ("abs", "floor", "ceil", "round", "trunc"):
        return _bound(e.args[0], bounds)
    name = type(e).__name__
    if name in ("Add", "Sub", "Mul", "Max", "Min"):
        first, second = (_bound(child, bounds) for child in e.children)
        if first is None or second is None:
            return None
        return first * second if name == "Mul" else max(first, second) if name in ("Max", "Min") else first + second
    if isinstance(e, Var) and e.dtype.is_integer and None not in e.bounds:
        return float(max(abs(limit) for limit in e.bounds if limit is not None))
    return None


def _larger(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else max(first, second)


def index_limits(tensors: Sequence[Tensor]) -> dict[Tensor, int]:
    """Input tensors whose elements are used as indices -> the smallest extent they index."""
    limits: dict[Tensor, int] = {}
    for op in operations(output_operations(tensors)):
        for load in (e for value in getattr(op, "expressions", ()) for e in _below(value) if isinstance(e, Load)):
            for index, extent in zip(load.indices, load.buffer.shape, strict=True):
                for inner in _below(index):
                    tensor = getattr(inner.buffer, "tensor", None) if isinstance(inner, Load) else None
                    if tensor is not None and isinstance(extent, int):
                        limits[tensor] = min(limits.get(tensor, extent), extent)
    return limits
