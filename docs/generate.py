"""Writes docs/reference/: what the reference pages say is computed by running the package, and cannot be out of date.

    python docs/generate.py          # tests/test_reference.py fails when the pages differ from what this gives

The programs that are run stand in examples_table.py; this file runs them and lays the pages out. Where a primitive, an operator or an error class has
no entry there, it stops with the line to add.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import traceback
import warnings
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import examples_table as table
import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.schedule import lower_schedule
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.trace import PRIMITIVES
from tilewright.targets.c_math_table import FUNCTIONS as MATH
from tilewright.tir import errors
from tilewright.tir.dtype import SCALAR_NAMES, dtype, promote
from tilewright.tir.interp import interpret
from tilewright.tir.passes.simplify import simplify_function

HERE = Path(__file__).resolve().parent
GENERATED = "<!-- written by docs/generate.py; change docs/examples_table.py or the docstrings instead -->"
METHODS = {**PRIMITIVES, "create_group": "schedule"}  # a group records what is done to its stages, and so is no primitive itself
SIDE_BY_SIDE = 150  # columns; wider programs stand one above the other


class MissingEntry(Exception):
    """Something of the package has no entry in examples_table.py, or one that does not do what it should."""


def entry(name: str, group: str, known: dict[str, Any], example: str) -> Any:
    """The entry `known[name]`, or the words that tell whoever added `name` what to write."""
    if name not in known:
        raise MissingEntry(f"{name!r} is new and has no entry in {group} of docs/examples_table.py. Add a line such as\n    {example}\n"
                           "and run `python docs/generate.py`")  # fmt: skip
    return known[name]


# ---------------------------------------------------------------------------------------------------------------- text


def signature(function: Any) -> str:
    """The parameters of a function as they are written in its source, without self."""
    shown = []
    for p in inspect.signature(function).parameters.values():
        if p.name == "self":
            continue
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        if p.kind is p.KEYWORD_ONLY and not any(s.startswith("*") for s in shown):
            shown.append("*")
        kind = "" if p.annotation is p.empty else f": {p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, '__name__', p.annotation)}"
        shown.append(f"{star}{p.name}{kind}" + ("" if p.default is p.empty else f" = {p.default!r}"))
    return f"{function.__name__}({', '.join(shown)})"


def code(text: str, language: str = "") -> str:
    """A fenced block."""
    return f"```{language}\n{text.strip(chr(10))}\n```"


def page(title: str, introduction: str, *parts: str) -> str:
    """A whole page, with links to its sections."""
    sections = re.findall(r"^## (.+)", "\n\n".join(parts), re.MULTILINE)
    links = " · ".join(f"[{name}](#{name.lower().replace(' ', '-')})" for name in sections)
    return "\n\n".join([f"# {title}", GENERATED, introduction, links, *parts]) + "\n"


def in_order(known: Iterable[str], now: Iterable[str]) -> list[str]:
    """What there is `now` in the order of the table, and last what the table does not know."""
    now = list(now)
    return [*(name for name in known if name in now), *(name for name in now if name not in known)]


def rows(head: str, lines: list[str]) -> str:
    """A table of Markdown; `|` inside cells must be escaped already."""
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {line} |" for line in lines)])


def cell(text: str) -> str:
    """Text for a cell of a table: one line, no bars."""
    return " ".join(text.split()).replace("|", "\\|")


def beside(before: str, after: str) -> str:
    """Two programs side by side, or one above the other where they are wide."""
    if before == after:
        return f"The loops stay as they are:\n\n{code(before)}"
    left, right = before.splitlines(), after.splitlines()
    width = max(map(len, left))
    if width + max(map(len, right)) + 3 > SIDE_BY_SIDE:
        return f"Before:\n\n{code(before)}\n\nAfter:\n\n{code(after)}"
    pairs = zip_longest(["before", "", *left], ["after", "", *right], fillvalue="")
    return code("\n".join(f"{a:<{width}}   {b}".rstrip() for a, b in pairs))


# ---------------------------------------------------------------------------------------------------------------- programs


def run(program: str, *pieces: str) -> dict[str, Any]:
    """The names that are there after a program of the table and more code."""
    scope: dict[str, Any] = {"te": te, "tw": tw, "np": np}
    for text in (table.PROGRAMS[program], *pieces):
        exec(text, scope)
    return scope


def loops(scope: dict[str, Any]) -> str:
    """The loops of a schedule as it is lowered."""
    return body(simplify_function(lower_schedule(scope["s"], scope["args"])))


def body(func: Any) -> str:
    """The text of a function without its first line."""
    return "\n".join(line.removeprefix("    ") for line in str(func).splitlines()[1:])


def refusal(program: str, text: str) -> Exception:
    """What an illegal program ends in."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            run(program, text)
        except (errors.TilewrightError, errors.ScheduleWarning) as error:
            return error
    raise MissingEntry(f"{text!r} on program {program!r} is legal now: take it out of docs/examples_table.py, or write what is illegal")


# ---------------------------------------------------------------------------------------------------------------- pages


def primitives() -> str:
    """One section for each primitive, before and after."""
    used = dict.fromkeys(program for program, _ in table.PRIMITIVES.values())
    programs = [f"Program `{name}`:\n\n{code(table.PROGRAMS[name], 'python')}" for name in used]
    return page(
        "Primitives",
        "Every primitive of a schedule: what it does, when it refuses, and the loops before and after, as lowering gives them for the call that "
        "its docstring shows. The messages of refusals are in [errors.md](errors.md).",
        "## Programs\n\nThe computations the calls are applied to.",
        *programs,
        *map(primitive, in_order(table.PRIMITIVES, METHODS)),
    )


def primitive(name: str) -> str:
    """The section of a primitive: its docstring, with the sketch of before and after replaced by the real loops."""
    on = METHODS[name]
    method = getattr(Stage if on == "stage" else Schedule, name)
    program, prepared = entry(name, "PRIMITIVES", table.PRIMITIVES, f'"{name}": ("matrix", "what is done before it, or nothing"),')
    text = inspect.cleandoc(method.__doc__)
    sketch = re.search(r"^before -> after,? ((?:[^`:\n]|`[^`\n]+`)+):([^\n]*)\n((?:\n|    [^\n]*\n?)*)", text, re.MULTILINE)
    if sketch is None:
        raise MissingEntry(f"the docstring of the primitive {name!r} has no line such as\n    before -> after, `s[C].{name}(...)`:\n"
                           "with a sketch below it; docs/generate.py runs the code in that line")  # fmt: skip
    *first, last = re.findall(r"`([^`]+)`", sketch[1])
    before, after = run(program, prepared, *first), run(program, prepared, *first, last)
    done = "\n".join([*prepared.splitlines(), *first])
    setting = f"On program `{program}`" + (f", after\n\n{code(done, 'python')}\n\nthe call" if done else ", the call") + f" `{last}`:"
    parts = [f"## {name}", code(f"{'s[T]' if on == 'stage' else 's'}.{signature(method)}", "python")]
    parts += [text[: sketch.start()].strip(), setting, beside(loops(before), loops(after))]
    if name in table.PASSED:
        target = tw.Target("c", march="x86-64-v3", threads=1, vector_bytes=32)
        passed = body(tw.lower(after["s"], after["args"], target))
        parts.append(f"and after all passes, for vectors of 32 bytes:\n\n{code(passed)}")
    return "\n\n".join(part for part in (*parts, sketch[2].strip(), text[sketch.end() :].strip()) if part)


def dtypes() -> str:
    """All dtypes, and the promotion table."""
    kinds = [dtype(name) for name in SCALAR_NAMES]
    meaning = [f"`{t}` | {t.kind} | {t.bytes} | {t.low} | {t.high}" for t in kinds]
    refusals: dict[frozenset[str], str] = {}

    def result(a: Any, b: Any) -> str:
        try:
            return str(promote(a, b))
        except errors.TEError as error:
            refusals.setdefault(frozenset((a, b)), str(error))
            return "error"

    table_rows = [f"**{a}** | " + " | ".join(result(a, b) for b in kinds) for a in kinds]
    return page(
        "Dtypes",
        "The element types, and the type in which an operation on two of them is done (`tilewright.tir.dtype.promote`).",
        rows("dtype | kind | bytes of an element | smallest finite value | largest", meaning),
        "A vector of lanes is written `float32x8`; it comes from `vectorize`, never from a declaration.",
        "## Promotion",
        inspect.cleandoc(promote.__doc__ or ""),
        rows(" | ".join(["", *map(str, kinds)]), table_rows),
        "Numbers of Python take the dtype of the operand beside them. Where the table says error, the message is:",
        "\n".join(f"* {line}" for line in refusals.values()),
        "Arithmetic in float8 is refused as well:",
        message("chain", "x = te.placeholder((16,), 'float8_e4m3')\nx[0] + x[1]", errors.TEError),
    )


def library() -> str:
    """One section for each operator."""
    introduction = (
        "`te.library`: declarations ready to schedule. `OPERATORS[name](*sizes, **options)` gives an Operator with `args`, `output`, `flops`, `bytes` and "
        "`reference(*arrays)`. In the formulas of flops, `result` is the number of elements of the result."
    )
    return page("Operators", introduction, *map(operator, in_order(table.LIBRARY, te.library.OPERATORS)))


def operator(name: str) -> str:
    """The section of an operator: what it declares for one call, and its flops by the formula of the table."""
    declare: Any = te.library.OPERATORS[name]
    call, formula = entry(name, "LIBRARY", table.LIBRARY, f'"{name}": ("{name}(64, 32)", "2 * M * K"),')
    names = vars(te.library)
    made = eval(call, dict(names))
    bound = eval(f"bind({call.split('(', 1)[1]}", {**names, "bind": inspect.signature(declare).bind})
    bound.apply_defaults()
    flops = eval(formula, {"result": math.prod(made.output.shape), **bound.arguments})
    if flops != made.flops:
        raise MissingEntry(f"LIBRARY of docs/examples_table.py: {call} has {made.flops} flops, but {formula} gives {flops}; correct the formula")
    tensors = ", ".join(f"`{t.name}` {t.dtype}[{', '.join(map(str, t.shape))}]" for t in made.args)
    example = f"`te.library.{call}`: {tensors}; {made.flops} flops = `{formula}`; {made.bytes} bytes."
    return "\n\n".join([f"## {name}", code(signature(declare), "python"), inspect.cleandoc(declare.__doc__), example])


def functions() -> str:
    """The functions of te with their NumPy meaning, and the errors of the vector mathematics."""
    for name, function in MATH.items():
        if function.public:
            entry(name, "FUNCTIONS", table.FUNCTIONS, f'"{name}": [("te.{name}(x)", "np.{name}(x)")],')
    known = {name: getattr(te, name) for name in te.__all__ if inspect.isfunction(getattr(te, name))}
    lines = []
    for name, uses in table.FUNCTIONS.items():
        for use, meaning in uses:
            same(use, meaning)
            lines.append(f"`{cell(use)}` | `{cell(meaning)}` | {cell(known[name].__doc__.split(chr(10) * 2)[0])}")
    errors_ = [f"`{n}` | {f.max_ulp['float32']:g} | {f.max_ulp['float64']:g} | {cell(f.method)}" for n, f in MATH.items() if f.public]
    declaring = [f"## {n}\n\n{code('te.' + signature(f), 'python')}\n\n{inspect.cleandoc(f.__doc__)}" for n, f in known.items() if n not in table.FUNCTIONS]
    return page(
        "Functions of te",
        "What is written inside `te.compute`, and what NumPy calls it: both were evaluated and compared when this page was written. `x`, `y`, `z` are "
        "float32, `n`, `m` int32, `X` a matrix, `k` a reduce axis over its columns. Operators: `+ - * / // % ** << >> & | ^ ~ < <= > >= == !=`.",
        rows("te | NumPy | what it gives", lines),
        "## Errors of mathematics\n\nUnits in the last place: bounds a little above the worst that was measured on the C target (0: exact, 0.5: rounded "
        "correctly). They hold over the whole range, denormals too; NaN and infinities are right.",
        rows("function | float32 | float64 | method", errors_),
        "## Declarations",
        *(text.replace("## ", "### ", 1) for text in declaring),
    )


def same(use: str, meaning: str) -> None:
    """Checks on a few values that `use` in a computation gives what `meaning` gives."""
    values = {
        "x": np.array([-3.7, -1.5, -0.5, 0.0, 0.3, 1.0, 2.5], "float32"), "y": np.array([0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 7.5], "float32"),
        "z": np.array([1.0, 0.0, -2.0, 0.0, 4.0, 0.0, 0.5], "float32"), "n": np.array([-300, -7, -1, 0, 2, 9, 300], "int32"),
        "m": np.array([0, 1, 3, 255, -1, 2**30, 12345], "int32"), "X": np.sin(np.arange(35, dtype="float32").reshape(7, 5) * 1.7),
    }  # fmt: skip
    inputs = {name: te.placeholder(v.shape, str(v.dtype), name) for name, v in values.items()}
    k = te.reduce_axis((0, 5), "k")

    def element(i: Any) -> Any:
        names = {name: t if t.ndim == 2 else t[i] for name, t in inputs.items()}
        return eval(use, {"te": te, "i": i, "k": k, **names})

    outputs = te.compute((7,), element, "Y")
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    found = [np.zeros(7, str(t.dtype)) for t in outputs]
    read = outputs[0].op.input_tensors
    interpret(lower_schedule(te.create_schedule(outputs[0].op), [*read, *outputs]), [*(values[t.name] for t in read), *found])
    with np.errstate(all="ignore"):
        expected = eval(meaning, {"np": np, "math": math, **values})
    for a, b in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        if not np.allclose(a, np.asarray(b), rtol=1e-5, atol=1e-6, equal_nan=True):
            raise MissingEntry(f"FUNCTIONS of docs/examples_table.py: {use} gives {a}, but {meaning} gives {b}")


def error_catalogue() -> str:
    """Every class with its meaning and real messages, and every refusal of a schedule."""
    classes = [c for c in vars(errors).values() if inspect.isclass(c) and issubclass(c, Exception)]
    parts = []
    for c in classes:
        programs = entry(c.__name__, "ERRORS", table.ERRORS, f'"{c.__name__}": (("chain", "code that raises it"),),')
        found = [message(*illegal, c) for illegal in programs]
        parts.append("\n\n".join([f"## {c.__name__}", f"`class {c.__name__}({c.__mro__[1].__name__})`", inspect.cleandoc(c.__doc__ or ""), *found]))
    for name, on in PRIMITIVES.items():
        if "raise" in inspect.getsource(getattr(Stage if on == "stage" else Schedule, name)).lower():  # itself, or its docstring says that it does
            entry(name, "ILLEGAL", table.ILLEGAL, f'"{name}": [("pipeline", "s[A].{name}(...)")],')
    refusals = [f"### {name}\n\n" + "\n\n".join(message(*illegal, errors.ScheduleError) for illegal in programs) for name, programs in table.ILLEGAL.items()]
    return page(
        "Errors",
        "Whatever is refused is refused with one of these classes, never with another exception and never with a wrong kernel. Every message below was "
        "produced by running the code above it.",
        *parts,
        "## Refusals of schedules\n\nAll are ScheduleError. The programs they are applied to:",
        *(f"Program `{name}`:\n\n{code(text, 'python')}" for name, text in table.PROGRAMS.items()),
        *refusals,
    )


def message(program: str, text: str, expected: type[Exception]) -> str:
    """An illegal program with what it is answered."""
    error = refusal(program, text)
    if not isinstance(error, expected):
        raise MissingEntry(f"{text!r} on program {program!r} ends in {type(error).__name__}, not {expected.__name__}: {error}")
    return f"{code(f'# on {program}{chr(10)}{text}', 'python')}\n\n> {cell(str(error))}"


def not_shown() -> list[str]:
    """The refusals in schedule/ that no program of ILLEGAL reaches, as file:line."""
    reached = [traceback.extract_tb(refusal(*illegal).__traceback__)[-1] for programs in table.ILLEGAL.values() for illegal in programs]
    missing = []
    for name in ("loops", "placement", "caching", "schedule", "stage", "lower", "nest", "access", "bounds", "storage", "group", "block_reduction"):
        source = Path(inspect.getfile(Stage)).with_name(f"{name}.py")
        for node in ast.walk(ast.parse(source.read_text())):
            if (
                isinstance(node, ast.Raise)
                and node.exc is not None
                and not any(Path(r.filename).name == source.name and node.lineno <= r.lineno <= node.end_lineno for r in reached)
            ):
                missing.append(f"schedule/{name}.py:{node.lineno}")
    return missing


def pages() -> dict[str, str]:
    """The name of each page and its text."""
    return {
        "primitives.md": primitives(), "dtypes.md": dtypes(), "library.md": library(), "functions.md": functions(), "errors.md": error_catalogue(),
    }  # fmt: skip


if __name__ == "__main__":
    (HERE / "reference").mkdir(exist_ok=True)
    for name, text in pages().items():
        (HERE / "reference" / name).write_text(text, encoding="utf-8")
    print(f"wrote docs/reference; refusals that no program of ILLEGAL shows: {', '.join(not_shown()) or 'none'}")
