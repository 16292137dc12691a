"""Templates: schedules with knobs, written by hand, and how one reaches a worker process.

A template is a function `(cfg, *sizes, **options) -> (schedule, [tensors])`. A worker is told the module and file to import it from; one
that lives in `__main__` or a notebook is sent as its source text with the names it uses. What can be had neither way is refused.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import os
import re
import symtable
import sys
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..tir.errors import ArgumentError

_SOURCE_MODULE = "tilewright_template"  # the module that a template's source text becomes in a worker
_LITERALS = (bool, int, float, str, bytes, type(None))


@dataclass(frozen=True)
class Template:
    """A space written by hand. `reference(*inputs)` gives the right output (or a tuple of them) as NumPy arrays; None: the computation as
    declared by the default decisions, without any schedule, is what counts."""

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any] | None = None

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The sizes and options it takes, in order."""
        return list(inspect.signature(self.function).parameters.values())[1:]


TEMPLATES: dict[str, Template] = {}


def template(name: str, reference: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as the template of that name, for `Task(name, sizes)`; a later one of the same name replaces it.

    @autotune.template("my_matmul")
    def my_matmul(cfg, M, N, K):
        ...
        cfg.define_split("tile_i", i, num_outputs=3)
        return s, [A, B, C]
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError('a template needs a name: @autotune.template("my_matmul")')

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        TEMPLATES[name] = Template(name, function, reference)
        return function

    return register


def portable(template: Template) -> dict[str, str]:
    """How another process gets this template, as JSON data: a module and its file, or source text."""
    module = template.function.__module__
    loaded = sys.modules.get(module)
    path = getattr(loaded, "__file__", None)
    if module not in ("__main__", _SOURCE_MODULE) and path is not None:
        return {"name": template.name, "module": module, "path": str(path)}
    return {"name": template.name, "source": template_source(template)}


def load(spec: dict[str, str]) -> Template:
    """The template that `portable` described, in another process."""
    if "source" in spec:
        module = types.ModuleType(_SOURCE_MODULE)
        sys.modules[_SOURCE_MODULE] = module
        exec(compile(spec["source"], f"<template {spec['name']}>", "exec"), module.__dict__)
        TEMPLATES[spec["name"]] = Template(spec["name"], module.__dict__["template_function"])
    elif spec["name"] not in TEMPLATES:
        _import(spec["module"], spec["path"])
    if spec["name"] not in TEMPLATES:
        raise ArgumentError(f"importing '{spec['module']}' did not register the template '{spec['name']}'")
    return TEMPLATES[spec["name"]]


def _import(name: str, path: str) -> None:
    """By name where that leads to the same file, else from the file."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is not None and found.origin == path:
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"the module '{name}' of the template cannot be imported from {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def load_file(path: str | os.PathLike[str]) -> None:
    """Runs a Python file once, which makes the templates it defines known; what stands under `if __name__ == "__main__"` does not run.

    ArgumentError: there is no such file, or it defines no template. What the file itself raises is not caught.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise ArgumentError(f"there is no file '{path}' to read templates from")
    module = f"tilewright_templates_{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}"
    if getattr(sys.modules.get(module), "__file__", None) == str(file):
        return
    before = dict(TEMPLATES)
    _import(module, str(file))
    if before == TEMPLATES:
        raise ArgumentError(f"'{path}' defines no template: expected a function under @autotune.template(name)")


def file_of(template: Template) -> str | None:
    """The file that defines a template; None where there is none, as in a notebook."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(template.function))
    except TypeError:
        return None
    return path if path is not None and Path(path).is_file() else None


def template_source(template: Template) -> str:
    """The text of a template's function and of everything at the top level of its program that it uses."""
    function = inspect.unwrap(template.function)
    writer = _SourceWriter(template.name)
    name = writer.function(function)
    return "\n".join([*writer.lines, f"template_function = {name}", ""])


class _SourceWriter:
    """Collects the source of functions and classes with the imports and constants they use."""

    def __init__(self, template: str):
        self.lines: list[str] = []
        self._template = template
        self._written: set[str] = set()

    def function(self, function: Any) -> str:
        """Writes a function or class of the program, after what it uses; returns its name."""
        name = str(function.__name__)
        if name in self._written:
            return name
        self._written.add(name)
        if name == "<lambda>":
            raise ArgumentError(f"template '{self._template}' uses a lambda of the program; write it as a function with a name")
        try:
            text = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError) as error:
            raise ArgumentError(
                f"the source text of '{name}', which template '{self._template}' needs, cannot be found; put the template in a module that can be imported"
            ) from error
        tree = ast.parse(text)
        definition = tree.body[0]
        if isinstance(definition, ast.FunctionDef | ast.ClassDef):
            definition.decorator_list = []
        outer = {**getattr(function, "__globals__", vars(sys.modules[function.__module__])), **_closure(function)}
        text = ast.unparse(tree)
        for used in sorted(_outer_names(symtable.symtable(text, name, "exec")) & outer.keys()):
            self._value(used, outer[used])
        self.lines.append(text)
        return name

    def _value(self, name: str, value: Any) -> None:
        if name in self._written:
            return
        if isinstance(value, types.ModuleType):
            self._written.add(name)
            self.lines.append(f"import importlib as _importlib; {name} = _importlib.import_module({value.__name__!r})")
        elif getattr(value, "__module__", None) in ("__main__", _SOURCE_MODULE) and isinstance(value, types.FunctionType | type):
            if self.function(value) != name:
                self.lines.append(f"{name} = {value.__name__}")
        elif (path := _importable(value)) is not None:
            self._written.add(name)
            if path[0] != "builtins":
                self.lines.append(f"from {path[0]} import {path[1]} as {name}")
        elif _is_literal(value):
            self._written.add(name)
            self.lines.append(f"{name} = {value!r}")
        else:
            raise ArgumentError(
                f"template '{self._template}' uses '{name}', a {type(value).__name__} of the running program, which cannot be "
                "sent to a worker process; make it inside the template, or put the template in a module of its own"
            )


def _importable(value: Any) -> tuple[str, str] | None:
    """The module and name that lead to a function or class; None where none do."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and getattr(sys.modules.get(module), name, None) is value:
        return module, name
    return None


def _closure(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return {name: cell.cell_contents for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True)}


def _outer_names(table: symtable.SymbolTable) -> set[str]:
    """The names that a text takes from around it; its local variables are none, whatever else their names mean outside."""
    used = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")}
    return used.union(*map(_outer_names, table.get_children()))


def _is_literal(value: Any) -> bool:
    if isinstance(value, list | tuple | set):
        return all(_is_literal(item) for item in value)
    if isinstance(value, dict):
        return all(_is_literal(item) for pair in value.items() for item in pair)
    return isinstance(value, _LITERALS)


def check_arguments(name: str, parameters: Sequence[inspect.Parameter], args: Sequence[Any], options: dict[str, Any]) -> None:
    """ArgumentError, with what is expected, where sizes or options do not fit the parameters of an operator or template."""
    required = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    optional = [p.name for p in parameters if p.default is not p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    expected = f"{name} takes {', '.join(required)}" + (f" and the options {', '.join(optional)}" if optional else "")
    unknown = [key for key in options if key not in optional and key not in positional]
    if unknown:
        raise ArgumentError(f"unknown option '{unknown[0]}': {expected}")
    given = set(positional[: len(args)])
    twice = [key for key in options if key in given]
    if twice:
        raise ArgumentError(f"'{twice[0]}' is given twice: {expected}")
    missing = [key for key in required if key not in given and key not in options]
    if missing or len(args) > len(positional):
        raise ArgumentError(f"{len(args)} sizes are given, {json.dumps(list(args))}: {expected}")
