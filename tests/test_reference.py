"""The reference pages are what docs/generate.py writes now, and have an entry for everything the package has."""

import difflib
import inspect
from pathlib import Path

import examples_table
import generate
import pytest

from tilewright import te
from tilewright.schedule.trace import PRIMITIVES
from tilewright.tir import errors
from tilewright.tir.dtype import SCALAR_NAMES

REFERENCE = Path(generate.__file__).resolve().parent / "reference"
WRITERS = {
    "primitives.md": generate.primitives,
    "dtypes.md": generate.dtypes,
    "library.md": generate.library,
    "functions.md": generate.functions,
    "errors.md": generate.error_catalogue,
}
ERROR_CLASSES = [n for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, Exception)]
FUNCTIONS = [name for name in te.__all__ if inspect.isfunction(getattr(te, name))]
EVERYTHING = {
    "primitives.md": [f"\n## {name}\n" for name in PRIMITIVES],
    "dtypes.md": [f"\n| `{name}` |" for name in SCALAR_NAMES] + [f"\n| **{name}** |" for name in SCALAR_NAMES],
    "library.md": [f"\n## {name}\n" for name in te.library.OPERATORS],
    "functions.md": [f"te.{name}(" for name in FUNCTIONS],
    "errors.md": [f"\n## {name}\n" for name in ERROR_CLASSES],
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_page_is_what_the_package_says_now(name):
    text = WRITERS[name]()  # a MissingEntry says what to add to docs/examples_table.py
    for wanted in EVERYTHING[name]:
        assert wanted in text, wanted
    committed = (REFERENCE / name).read_text(encoding="utf-8")
    difference = "\n".join(difflib.unified_diff(committed.splitlines(), text.splitlines(), "committed", "now", lineterm="", n=1))
    assert text == committed, f"docs/reference/{name} is not what the package says now: run `python docs/generate.py` and commit.\n{difference[:2000]}"


@pytest.mark.parametrize(
    ("write", "group", "name", "words"),
    [
        (generate.primitives, "PRIMITIVES", "split", "'split' is new and has no entry in PRIMITIVES"),
        (generate.library, "LIBRARY", "matmul", "'matmul' is new and has no entry in LIBRARY"),
        (generate.functions, "FUNCTIONS", "exp", "'exp' is new and has no entry in FUNCTIONS"),
        (generate.error_catalogue, "ERRORS", "TEError", "'TEError' is new and has no entry in ERRORS"),
        (generate.error_catalogue, "ILLEGAL", "rfactor", "'rfactor' is new and has no entry in ILLEGAL"),
    ],
)
def test_what_has_no_entry_is_named_with_the_line_to_add(monkeypatch, write, group, name, words):
    monkeypatch.delitem(getattr(examples_table, group), name)
    with pytest.raises(generate.MissingEntry, match=words):
        write()


@pytest.mark.parametrize(
    ("write", "group", "name", "wrong", "words"),
    [
        (generate.library, "LIBRARY", "matmul", ("matmul(4, 4, 4)", "M * N * K"), "128 flops.*gives 64"),
        (generate.functions, "FUNCTIONS", "floor", [("te.floor(x)", "np.trunc(x)")], "floor.*trunc"),
        (generate.error_catalogue, "ILLEGAL", "split", [("pipeline", "s[B].split(i, factor=4)")], "legal now"),
        (generate.error_catalogue, "ERRORS", "TEError", [("chain", "s[A].unroll(A)")], "ends in ScheduleError"),
    ],
)
def test_a_false_entry_is_refused(monkeypatch, write, group, name, wrong, words):
    monkeypatch.setitem(getattr(examples_table, group), name, wrong)
    with pytest.raises(generate.MissingEntry, match=words):
        write()


def test_no_page_is_left_over():
    assert {p.name for p in REFERENCE.iterdir()} == set(WRITERS)
