"""The arrows of the architecture, enforced by reading every import of the package's source.

    tir <- te <- schedule      tir <- targets      schedule, targets <- compiler.py <- autotune <- cli.py

Nothing imports the root `__init__`, which only re-exports; nothing of our own is imported inside a function; heavy packages are imported
only where they are used; environment variables are read in one file.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright

ROOT = Path(tilewright.__file__).resolve().parent

# What each room, or file of the root, may import from. A room may always import from itself.
ALLOWED = {
    "tir": set(),
    "te": {"tir"},
    "schedule": {"tir", "te"},
    "targets": {"tir"},
    "compiler": {"tir", "te", "schedule", "targets"},
    "autotune": {"tir", "te", "schedule", "targets", "compiler"},
    "cli": {"tir", "te", "schedule", "targets", "compiler", "autotune"},
    "__main__": {"cli"},
    "__init__": {"tir", "te", "schedule", "targets", "compiler", "autotune"},
}
# For type checkers only: te.create_schedule is put there by the root.
ALLOWED_FOR_TYPES = {("te/__init__.py", "schedule")}

HEAVY = {"xgboost", "sqlite_utils", "rich", "ml_dtypes", "matplotlib", "torch", "scipy", "pandas", "sklearn", "pycuda"}
ROOMS = ("tir", "te", "schedule", "targets", "autotune")


def source_files():
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    return sorted([*files, *ROOT.glob("*.py")])


class Imports(ast.NodeVisitor):
    """Every import of a file: (line, module as a tuple of names from the root of the package or ("", top-level name) of another, where)."""

    def __init__(self, relative_path):
        self.found = []
        self.package = relative_path.parts[:-1]
        self.depth = 0
        self.for_types = False
        self.visit(ast.parse((ROOT / relative_path).read_text()))

    def add(self, node, target):
        self.found.append((node.lineno, target, "function" if self.depth else "types" if self.for_types else "module"))

    def visit_Import(self, node):
        for name in node.names:
            first, *rest = name.name.split(".")
            self.add(node, tuple(rest) if first == "tilewright" else ("", first))
            if first == "tilewright":
                self.add(node, ("absolute",))

    def visit_ImportFrom(self, node):
        if not node.level:
            self.add(node, ("absolute",) if node.module.split(".")[0] == "tilewright" else ("", node.module.split(".")[0]))
            return
        base = self.package[: len(self.package) - node.level + 1]
        path = (*base, *(node.module.split(".") if node.module else ()))
        for name in node.names:  # `from . import x` at the root names the room; `from .. import x` too
            self.add(node, path if path else (name.name,))

    def visit_If(self, node):
        test = ast.unparse(node.test)
        if test in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self.for_types = True
            for statement in node.body:
                self.visit(statement)
            self.for_types = False
            for statement in node.orelse:
                self.visit(statement)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node):
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef


def violations(relative_path):
    """What a file does against the rules, a line each."""
    room = relative_path.parts[0].removesuffix(".py")
    for line, target, where in Imports(relative_path).found:
        place = f"{relative_path}:{line}"
        if target == ("absolute",):
            yield f"{place}: imports the package by its name; use a relative import"
        elif target[0] == "":
            if target[1] in HEAVY and where == "module":
                yield f"{place}: imports {target[1]} at the top; import it where it is used, through tir.optional"
        else:
            if where == "function":
                yield f"{place}: imports {'.'.join(target)} of our own package inside a function"
            if target[0] not in ALLOWED:
                yield f"{place}: imports {target[0]!r} from the root __init__; import it from where it is defined"
            elif target[0] != room and target[0] not in ALLOWED[room] and not (where == "types" and (str(relative_path), target[0]) in ALLOWED_FOR_TYPES):
                yield f"{place}: {room} imports {target[0]}; it may import {', '.join(sorted(ALLOWED[room])) or 'nothing'}"


@pytest.mark.parametrize("path", source_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path):
    assert not list(violations(path.relative_to(ROOT)))


def test_every_room_is_known():
    packages = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", "examples", "benchmarks"} == set(ROOMS)


@pytest.mark.parametrize(
    "path, text, words",
    [
        ("tir/x.py", "from ..te import api", "tir imports te; it may import nothing"),
        ("tir/passes/x.py", "from ...targets.module import Module", "tir imports targets"),
        ("te/x.py", "from ..schedule.trace import Trace", "te imports schedule"),
        ("te/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..schedule import s", "te imports schedule"),
        ("te/library/x.py", "from ...schedule import trace", "te imports schedule"),
        ("schedule/x.py", "from ..targets import c", "schedule imports targets"),
        ("targets/x.py", "def f():\n    from .c import generate", "inside a function"),
        ("targets/x.py", "from .. import te", "targets imports te"),
        ("autotune/x.py", "from ..cli import main", "autotune imports cli"),
        ("autotune/x.py", "from .. import build", "imports 'build' from the root"),
        ("autotune/x.py", "import tilewright.tir", "use a relative import"),
        ("autotune/x.py", "from tilewright.tir import expr", "use a relative import"),
        ("autotune/x.py", "import xgboost", "imports xgboost at the top"),
        ("compiler.py", "from .autotune import tuner", "compiler imports autotune"),
    ],
)
def test_the_rules_find_what_breaks_them(monkeypatch, path, text, words):
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    assert any(words in violation for violation in violations(Path(path)))


@pytest.mark.parametrize(
    "path, text",
    [
        ("te/__init__.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..schedule.schedule import create_schedule"),
        ("tir/passes/x.py", "from ..expr import Var\nfrom . import manager\nimport numpy"),
        ("autotune/x.py", "def f():\n    import xgboost\nfrom ..compiler import build\nfrom .space import Space"),
        ("__init__.py", "from . import te\nfrom .compiler import build"),
    ],
)
def test_the_rules_let_pass_what_is_right(monkeypatch, path, text):
    monkeypatch.setattr(Path, "read_text", lambda self: text)
    assert not list(violations(Path(path)))


def test_the_environment_is_read_in_one_file():
    for path in source_files():
        relative = str(path.relative_to(ROOT))
        if relative == "tir/config.py":
            continue
        reads = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb", "putenv")
        ]
        assert not reads, f"{relative}:{reads[0]} reads the environment; tir/config.py does that"


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, tilewright; print(*sorted(name for name in sys.modules if '.' not in name))"
    path = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=path).stdout.split())
    assert "tilewright" in loaded and not loaded & HEAVY, loaded & HEAVY
