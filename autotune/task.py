"""A task: one computation with its sizes, on one target. What a tuner tunes, and what a log's records are found by."""

from __future__ import annotations

import inspect
import json
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..compiler import build
from ..schedule.schedule import Schedule, create_schedule
from ..schedule.trace import replay_trace
from ..targets.module import Module
from ..te.library.operator import OPERATORS, Operator
from ..te.op import PlaceholderOp
from ..te.tensor import Tensor
from ..tir.errors import ArgumentError, TEError
from ..tir.target import Target
from .canonical import byte_count, constant_shape, data_hash, flop_count, from_data, output_operations, to_data
from .record import Decisions
from .registry import TEMPLATES, Template, check_arguments, file_of, load, portable
from .space import Config, Space
from .templates import GENERAL_TEMPLATES, template_for
from .verify import numpy_dtype

Make = Callable[[Config], tuple[Schedule, Sequence[Tensor]]]


@dataclass(frozen=True)
class Candidate:
    """A schedule, the arguments of its function, and the configuration that led to it."""

    schedule: Schedule
    tensors: list[Tensor]
    config: Config


class Task:
    """A computation to tune.

        Task("matmul", (1024, 1024, 1024), target="c")            an operator of te.library, or a template, by name, with its sizes
        Task("conv2d", (1, 64, 56, 56, 64, 3, 3), padding=1)      options by keyword
        Task.from_compute([A, B, C])                              any computation; A, B, C are the arguments of the kernel

    Attributes: `name`, `args`, `options`, `target`; `flops` (arithmetic operations of one call), `bytes` (of its arguments).
    Raises ArgumentError: unknown name (the known ones are listed), sizes that do not fit (the expected ones are named).
    """

    def __init__(self, name: str, args: Sequence[Any] = (), /, *, target: str | Target = "c", **options: Any):
        self.target = Target.parse(target)
        self.name, self.args, self.options = name, tuple(args), options
        self._operator: Operator | None = None
        self._data: dict[str, Any] | None = None
        if name in TEMPLATES:
            self._set_template(TEMPLATES[name])
        elif name in OPERATORS:
            self._set_operator()
        else:
            known = ", ".join(sorted({*OPERATORS, *TEMPLATES}))
            raise ArgumentError(f"there is no operator or template '{name}'; known are {known}; a template of your own is known once the file that "
                                "defines it is imported (on the command line: --templates FILE)")  # fmt: skip

    def _set_template(self, template: Template) -> None:
        check_arguments(self.name, template.parameters, self.args, self.options)
        self._template: Template | None = template
        self._make: Make = lambda config: template.function(config, *self.args, **self.options)

    def _set_operator(self) -> None:
        self._template = None
        operator = self._operator = declare_operator(self.name, self.args, self.options)
        schedule_with = template_for(operator, self.target)
        self._make = lambda config: (schedule_with(config, operator), operator.args)

    @classmethod
    def from_compute(cls, tensors: Sequence[Tensor], *, target: str | Target = "c", name: str | None = None) -> Task:
        """The task of any computation; `tensors` are the arguments of its kernel, inputs and outputs."""
        task = cls.__new__(cls)
        task.target = Target.parse(target)
        outputs = [tensor for tensor in tensors if not isinstance(tensor.op, PlaceholderOp)]
        if not outputs:
            raise ArgumentError(
                f"from_compute needs the arguments of the kernel, and none of these is computed: {', '.join(tensor.name for tensor in tensors) or 'no tensors'}"
            )
        task.name, task.args, task.options = name or outputs[-1].op.name, (), {}
        task._operator = task._template = None
        task._data = to_data(tensors)
        given = list(tensors)
        general = GENERAL_TEMPLATES[task.target.kind]
        task._make = lambda config: (general(config, given), given)
        return task

    # ---- as data

    def to_spec(self) -> dict[str, Any]:
        """What another process needs to have the same task, as JSON data."""
        spec: dict[str, Any] = {"target": self.target.to_json(), "name": self.name, "args": list(self.args), "options": self.options}
        if self._data is not None:
            spec["data"] = self._data
        if self._template is not None:
            spec["template"] = portable(self._template)
        return spec

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Task:
        """The task that `to_spec` described."""
        target = Target.from_json(spec["target"])
        if "data" in spec:
            return cls.from_compute(from_data(spec["data"]), target=target, name=spec["name"])
        if "template" in spec:
            load(spec["template"])
        return cls(
            spec["name"], [_as_tuple(value) for value in spec["args"]], target=target, **{key: _as_tuple(value) for key, value in spec["options"].items()}
        )

    @cached_property
    def data(self) -> dict[str, Any]:
        """The computation, as canonical.to_data writes it."""
        return self._data if self._data is not None else to_data(self.tensors)

    @cached_property
    def dag_hash(self) -> str:
        """A hash of the computation: of every operation and expression in it."""
        return data_hash(self.data)

    @cached_property
    def key(self) -> str:
        """What the task is, as readable JSON: name, sizes, options, and the arguments' dtypes and shapes."""
        arguments = [
            f"{'out ' if not isinstance(tensor.op, PlaceholderOp) else ''}{tensor.name}: {tensor.dtype}{list(tensor.shape)}" for tensor in self.tensors
        ]
        return json.dumps({"name": self.name, "args": list(self.args), "options": self.options, "arguments": arguments})

    def command(self, verb: str, log: str | None = None) -> str:
        """The command line that does something (tune, replay ...) with this task."""
        words = ["tilewright", verb, self.name, *(str(value) for value in self.args)]
        for key, value in self.options.items():
            words += ["--opt", f"{key}={value if isinstance(value, str) else json.dumps(value, separators=(',', ':'))}"]
        if self.target.kind != "c" or verb == "tune":
            words += ["--target", self.target.kind]
        usual = Target(self.target.kind)
        for option in ("threads", "march", "arch", "device"):
            value = getattr(self.target, option)
            if value != getattr(usual, option):
                words += [f"--{option}", str(value)]
        if self._template is not None and (file := file_of(self._template)) is not None:
            words += ["--templates", os.path.relpath(file)]
        if log is not None:
            words += ["--log", log]
        return shlex.join(words)

    # ---- the computation

    @cached_property
    def _default(self) -> Candidate:
        return self.instantiate({})

    @cached_property
    def tensors(self) -> list[Tensor]:
        """The arguments of the kernel, in order, as the default decisions declare them."""
        return list(self._operator.args) if self._operator is not None else self._default.tensors

    @property
    def space(self) -> Space:
        """Everything the template may decide."""
        return self._default.config.space

    @cached_property
    def flops(self) -> float:
        return float(self._operator.flops) if self._operator is not None else flop_count(self.tensors)

    @cached_property
    def bytes(self) -> float:
        return float(self._operator.bytes) if self._operator is not None else byte_count(self.tensors)

    @cached_property
    def reference(self) -> Callable[..., Any]:
        """`reference(*inputs)` gives the right output (a tuple of them where there are several) as NumPy arrays.

        The operator's or template's own; else the computation as it is declared, lowered without any schedule.
        """
        if self._operator is not None:
            own: Callable[..., Any] = self._operator.reference
            return own
        if self._template is not None and self._template.reference is not None:
            return self._template.reference
        return self._run_unscheduled

    def _run_unscheduled(self, *inputs: Any) -> Any:
        target = Target("c", threads=1, march=self.target.march)
        module = build(create_schedule(output_operations(self.tensors)), self.tensors, target=target)
        values = iter(inputs)
        arrays = [
            np.asarray(next(values), order="C") if isinstance(tensor.op, PlaceholderOp) else np.empty(constant_shape(tensor), numpy_dtype(tensor.dtype))
            for tensor in self.tensors
        ]
        module(*arrays)
        outputs = [array for array, tensor in zip(arrays, self.tensors, strict=True) if not isinstance(tensor.op, PlaceholderOp)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    # ---- candidates

    def instantiate(self, decisions: Decisions) -> Candidate:
        """The candidate that these decisions make; knobs without a decision take their default. Runs the template in this process."""
        config = Config(decisions, self.target)
        schedule, tensors = self._make(config)
        return Candidate(schedule, list(tensors), config)

    def replay(self, trace: Any, decisions: Decisions | None = None) -> Candidate:
        """The candidate of a stored trace. The decisions matter to templates that declare different computations for different ones."""
        declared = self.tensors if self._template is None else self.instantiate(decisions or {}).tensors
        schedule = create_schedule(output_operations(declared))
        replay_trace(schedule, trace)
        return Candidate(schedule, list(declared), Config(decisions, self.target))

    def build(self, trace: Any, decisions: Decisions | None = None) -> Module:
        """The compiled kernel of a stored trace."""
        candidate = self.replay(trace, decisions)
        return build(candidate.schedule, candidate.tensors, target=self.target)

    def __str__(self) -> str:
        options = "".join(f", {key}={value}" for key, value in self.options.items())
        return f"{self.name}({', '.join(str(value) for value in self.args)}{options})"

    def __repr__(self) -> str:
        return f"<Task {self} on {self.target}>"


def declare_operator(name: str, args: Sequence[Any], options: dict[str, Any]) -> Operator:
    """An operator of te.library from positional sizes; one of a shape is given them as its dimensions. ArgumentError where they do not fit."""
    function = OPERATORS[name]
    parameters = list(inspect.signature(function).parameters.values())
    if parameters[0].name == "shape":
        check_arguments(name, parameters[1:], (), options)
        positional: Sequence[Any] = [tuple(args)]
    else:
        check_arguments(name, parameters, args, options)
        positional = args
    try:
        return function(*positional, **options)
    except TEError as error:
        text = str(error)
        raise ArgumentError(text if text.startswith(name) else f"{name}: {text}") from error


def _as_tuple(value: Any) -> Any:
    """JSON has no tuples, and operators take pairs."""
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list) else value
