"""The schedule as data: a list of steps that can be printed, stored as JSON and replayed on a freshly declared computation.

A step holds names, numbers and strings only. Stages are called by the unique names of the schedule, axes by the unique names of their stage. Replay
looks the primitive up in a table of primitives and calls it with decoded arguments; nothing from a stored trace is ever executed as code.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ..te.axis import IterVar, thread_axis
from ..te.intrin import TensorIntrin
from ..te.tensor import Tensor
from ..tir.dtype import whole_number
from ..tir.errors import ScheduleError
from ..tir.expr import Expr, Var
from . import predicate

FORMAT = 1

# name of a primitive -> "stage" (a method of s[T]) or "schedule" (a method of s); filled by @primitive
PRIMITIVES: dict[str, str] = {}


@dataclass(frozen=True)
class Step:
    """One primitive, applied: `primitive` on stage `stage` ("" for the schedule itself), JSON-ready arguments, and the names of what it gave."""

    stage: str
    primitive: str
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    results: tuple[Any, ...]

    def __str__(self) -> str:
        given = [_plain_text(a) for a in self.arguments] + [f"{k}={_plain_text(v)}" for k, v in self.options]
        gave = f" -> {', '.join(map(_plain_text, self.results))}" if self.results else ""
        return f"{self.stage or 'schedule'}: {self.primitive}({', '.join(given)}){gave}"

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {
            "stage": self.stage,
            "primitive": self.primitive,
            "arguments": list(self.arguments),
            "options": dict(self.options),
            "results": list(self.results),
        }


class Trace:
    """The steps of a schedule, in order."""

    def __init__(self, steps: list[Step] | None = None, roots: dict[tuple[str, str], str] | None = None):
        self.steps = steps if steps is not None else []
        self.roots = roots if roots is not None else {}  # (stage, axis) -> how Python reaches it, where a step first spoke of it

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return "\n".join(map(str, self.steps)) or "no steps"

    def to_data(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {"format": FORMAT, "steps": [step.to_data() for step in self.steps]}

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(self.to_data())


_Method = TypeVar("_Method", bound=Callable[..., Any])


def primitive(on: str, takes_mapping: bool = False) -> Callable[[_Method], _Method]:
    """Register a method of Stage (`on="stage"`) or Schedule (`on="schedule"`) as a primitive, and record each use that succeeds.

    A primitive that calls others is recorded as itself alone. `takes_mapping`: a function among the arguments maps indices to a layout, and is recorded
    as the Layout it describes.
    """

    def decorate(method: _Method) -> _Method:
        PRIMITIVES[method.__name__] = on

        @functools.wraps(method)
        def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
            schedule = self if on == "schedule" else self.schedule
            stage = "" if on == "schedule" else self.name
            outermost = schedule.recording
            schedule.recording = False
            try:
                # names are taken before the change: cache_read and the like may rename nothing, but they do add
                near = [self] if on == "stage" else []  # an axis may be shared by several stages: the ones spoken of come first
                near += [a for a in (*args, *kwargs.values()) if hasattr(a, "leaf_iter_vars")][::-1]
                near.reverse()
                if takes_mapping:
                    args = tuple(self.layout_of(a) if callable(a) else a for a in args)
                    kwargs = {k: self.layout_of(v) if callable(v) else v for k, v in kwargs.items()}
                arguments = tuple(_encode(schedule, a, near) for a in args) if outermost else ()
                options = tuple((k, _encode(schedule, v, near)) for k, v in kwargs.items()) if outermost else ()
                result = method(self, *args, **kwargs)
            finally:
                schedule.recording = outermost
            if outermost:
                gave = result if isinstance(result, (tuple, list)) else () if result is None else (result,)
                schedule.trace.steps.append(Step(stage, method.__name__, arguments, options, tuple(_encode(schedule, r, near) for r in gave)))
            return result

        return cast(_Method, recorded)

    return decorate


def _plain_text(data: Any) -> str:
    """An argument or result of a step, for people: the name of an axis, stage or tensor, else the value."""
    match data:
        case {"axis": [_, name]}:
            return str(name)
        case {"tensor": [stage, _]} | {"stage": stage}:
            return str(stage)
        case {"thread": tag}:
            return str(tag)
        case {"layout": layout}:
            return f"[{', '.join(map(_layout_text, layout))}]"
        case {"condition": condition}:
            return predicate.to_text(condition, _plain_text)
        case list():
            return f"[{', '.join(map(_plain_text, data))}]"
    return repr(data)


class Layout:
    """Index expressions of a transform_layout as data: nested lists over the operators, ["i", n] for the n-th index."""

    def __init__(self, data: list[Any]):
        self.data = data

    def __call__(self, *indices: Any) -> list[Any]:
        return [_evaluate_layout(e, indices) for e in self.data]


_LAYOUT_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "^": lambda a, b: a ^ b,
}


def _evaluate_layout(data: Any, indices: tuple[Any, ...]) -> Any:
    if isinstance(data, int) and not isinstance(data, bool):
        return data
    if isinstance(data, list) and len(data) == 2 and data[0] == "i" and isinstance(data[1], int) and 0 <= data[1] < len(indices):
        return indices[data[1]]
    if isinstance(data, list) and len(data) == 3 and data[0] in _LAYOUT_OPERATORS:
        return _LAYOUT_OPERATORS[data[0]](_evaluate_layout(data[1], indices), _evaluate_layout(data[2], indices))
    raise ScheduleError(f"trace: {str(data)[:80]!r} is no layout expression: expected an integer, ['i', n] or [operator, a, b]")


def _encode(schedule: Any, value: Any, near: Sequence[Any]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, IterVar):
        if value.kind == "thread":
            extent = None if value.dom is None else value.dom.extent
            return {"thread": value.thread_tag, "extent": extent if extent is None or isinstance(extent, int) else str(extent)}
        found = schedule.stage_of_axis(value, near)
        if found is None:  # the primitive itself will say what is wrong with it
            return {"axis": ["?", value.name]}
        if found not in schedule.trace.roots:
            stage = schedule.stage_named(found[0])
            for field in ("axis", "reduce_axis"):
                for position, axis in enumerate(getattr(stage.op, field, ())):
                    if axis is value:
                        schedule.trace.roots[found] = f"op.{field}[{position}]"
            if value is getattr(stage.op, "scan_axis", None):
                schedule.trace.roots[found] = "op.scan_axis"
        return {"axis": list(found)}
    if isinstance(value, Expr):
        return _encode_condition(schedule, value, near)
    if isinstance(value, Tensor):
        return {"tensor": [schedule[value].name, value.value_index]}
    if isinstance(value, TensorIntrin):
        return value.name  # by which a replay finds it
    if isinstance(value, Layout):
        return {"layout": value.data}
    if isinstance(value, (list, tuple)):
        return [_encode(schedule, v, near) for v in value]
    if hasattr(value, "leaf_iter_vars"):  # a stage
        return {"stage": value.name}
    if hasattr(value, "outputs"):  # an operation
        return {"tensor": [schedule[value].name, 0]}
    number = whole_number(value)  # an integer of NumPy; what else there is the primitive will refuse
    return str(value) if number is None else number


def _encode_condition(schedule: Any, e: Expr, near: Sequence[Any]) -> Any:
    """A condition on axes of the stage that is spoken of; as text where the primitive will refuse it."""

    def axis_data(variable: Var) -> Any:
        axis = next((found for stage in near if (found := predicate.axis_of(variable, stage)) is not None), None)
        if axis is None:
            raise TypeError(variable)
        return _encode(schedule, axis, near)

    try:
        return {"condition": predicate.to_data(e, axis_data)}
    except TypeError:
        return str(e)


def _decode(schedule: Any, data: Any) -> Any:
    if isinstance(data, list):
        return [_decode(schedule, d) for d in data]
    if not isinstance(data, dict):
        return data
    match data:
        case {"axis": [str(stage), str(name)]}:
            return schedule.stage_named(stage).axis_named(name)
        case {"tensor": [str(stage), int(index)]}:
            outputs = schedule.stage_named(stage).outputs
            if not 0 <= index < len(outputs):
                raise ScheduleError(f"trace: stage {stage} has {len(outputs)} output(s), found index {index}")
            return outputs[index]
        case {"stage": str(stage)}:
            return schedule.stage_named(stage)
        case {"thread": str(tag), "extent": extent}:
            return thread_axis(tag) if extent is None else thread_axis(extent, tag)
        case {"layout": list(layout)}:
            return Layout(layout)
        case {"condition": condition}:
            return predicate.from_data(condition, lambda axis: _decode(schedule, axis))
    raise ScheduleError(f"trace: cannot read the argument {str(data)[:80]!r}")


def replay_trace(schedule: Any, trace: Trace | str | dict[str, Any]) -> Any:
    """Apply a trace (a Trace, its JSON text or its data) to a fresh schedule of the same computation; returns the schedule.

    Raises ScheduleError where the text is no trace, names an unknown primitive, stage or axis, or a primitive refuses.
    """
    data: Any = trace.to_data() if isinstance(trace, Trace) else trace
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ScheduleError(f"the trace is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("steps"), list):
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise ScheduleError(f"the trace is not of format {FORMAT}: found {found!r}, expected an object with 'format' and 'steps'")
    for number, step in enumerate(data["steps"]):
        _replay_step(schedule, number, step)
    return schedule


def _replay_step(schedule: Any, number: int, step: Any) -> None:
    if not isinstance(step, dict) or not isinstance(step.get("arguments"), list) or not isinstance(step.get("options"), dict):
        raise ScheduleError(f"trace step {number} is malformed: {str(step)[:120]!r}")
    name, stage_name = step.get("primitive"), step.get("stage")
    on = PRIMITIVES.get(name) if isinstance(name, str) else None
    if not isinstance(name, str) or on is None or (on == "schedule") != (stage_name == ""):
        raise ScheduleError(f"trace step {number}: {str(name)[:60]!r} is no primitive of a {'schedule' if stage_name == '' else 'stage'}; "
                            f"known are {', '.join(sorted(PRIMITIVES))}")  # fmt: skip
    subject = schedule if on == "schedule" else schedule.stage_named(stage_name)
    arguments = [_decode(schedule, a) for a in step["arguments"]]
    options = {str(k): _decode(schedule, v) for k, v in step["options"].items()}
    try:
        getattr(subject, name)(*arguments, **options)
    except TypeError as error:  # wrong number or kind of arguments in the data
        raise ScheduleError(f"trace step {number}: {name} does not take these arguments: {error}") from error


class _PythonNames:
    """Unique Python identifiers for axes and tensors."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._taken = {"s", "te", "tw"}

    def of(self, key: Any, wanted: str) -> str:
        """The identifier for `key`, made from `wanted` when first asked for."""
        if key not in self._names:
            base = re.sub(r"\W", "_", wanted)
            base = f"_{base}" if not base or base[0].isdigit() else base
            name, count = base, 0
            while name in self._taken:
                count += 1
                name = f"{base}_{count}"
            self._taken.add(name)
            self._names[key] = name
        return self._names[key]


def trace_as_python(schedule: Any) -> str:
    """The trace as a flat script over tensors called by their operation's name; it leaves the schedule in `s`."""
    names = _PythonNames()
    original = [stage for stage in schedule.stages if stage.is_original]
    for stage in original:
        names.of(("stage", stage.name), stage.name)
    outputs = [names.of(("stage", stage.name), stage.name) for stage in schedule.output_stages]
    lines = [f"s = te.create_schedule({outputs[0] + '.op' if len(outputs) == 1 else '[' + ', '.join(f'{o}.op' for o in outputs) + ']'})"]
    introduced: set[tuple[str, str]] = set()

    def text(value: Any) -> str:
        match value:
            case {"axis": [stage, name]}:
                key = ("axis", stage, name)
                if (stage, name) not in introduced:
                    introduced.add((stage, name))
                    lines.append(f"{names.of(key, name)} = s[{names.of(('stage', stage), stage)}].{schedule.trace.roots[stage, name]}")
                return names.of(key, name)
            case {"tensor": [stage, index]}:
                base = names.of(("stage", stage), stage)
                many = len(schedule.stage_named(stage).outputs) > 1
                return f"{base}.op.output({index})" if many else base
            case {"stage": stage}:
                return f"s[{names.of(('stage', stage), stage)}]"
            case {"thread": tag, "extent": extent}:
                return f'te.thread_axis("{tag}")' if extent is None else f'te.thread_axis({extent}, "{tag}")'
            case {"layout": data}:
                rank = _layout_rank(data)
                arguments = ", ".join(f"i{n}" for n in range(rank))
                return f"lambda {arguments}: [{', '.join(_layout_text(e) for e in data)}]"
            case {"condition": condition}:
                return predicate.to_text(condition, text)
            case list():
                return "[" + ", ".join(text(v) for v in value) + "]"
            case str():
                return json.dumps(value)
        return repr(value)

    for step in schedule.trace.steps:
        subject = "s" if not step.stage else f"s[{names.of(('stage', step.stage), step.stage)}]"
        arguments = ", ".join([text(a) for a in step.arguments] + [f"{k}={text(v)}" for k, v in step.options])
        results = []
        for result in step.results:
            match result:
                case {"axis": [stage, name]}:
                    introduced.add((stage, name))
                    results.append(names.of(("axis", stage, name), name))
                case {"tensor": [stage, _]}:
                    results.append(names.of(("stage", stage), stage))
        if len(set(results)) < len(results):  # several outputs of one stage: each is reached through the first
            results = [results[0], *["_"] * (len(results) - 1)]
        if step.primitive == "cache_write" and len(results) == 1 and any(isinstance(a, list) for a in (*step.arguments, *dict(step.options).values())):
            results = [f"({results[0]},)"]  # a list in, a list out
        lines.append(f"{', '.join(results)}{' = ' if results else ''}{subject}.{step.primitive}({arguments})")
    return "\n".join(lines) + "\n"


def _layout_rank(data: Any) -> int:
    if isinstance(data, list):
        if len(data) == 2 and data[0] == "i":
            return int(data[1]) + 1
        return max((_layout_rank(d) for d in data), default=0)
    return 0


def _layout_text(data: Any) -> str:
    if isinstance(data, int):
        return str(data)
    if data[0] == "i":
        return f"i{data[1]}"
    return f"({_layout_text(data[1])} {data[0]} {_layout_text(data[2])})"
