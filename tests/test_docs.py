"""The documentation says what is: the table of switches, the links, the program of the README."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.tir import config

ROOT = Path(__file__).resolve().parent.parent
PAGES = [p for p in sorted(ROOT.rglob("*.md")) if not any(part.startswith(".") or part in ("build", "dist") for part in p.relative_to(ROOT).parts)]


def test_switches_are_documented():
    text = (ROOT / "docs" / "switches.md").read_text()
    for switch in config.SWITCHES:
        assert f"| `{switch.name}` |" in text and switch.meaning in text, switch.name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not link.startswith(("http:", "https:")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_program_of_the_readme_runs():
    first = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    scope = {}
    exec(first.replace("1024, 1024, 1024", "64, 96, 32"), scope)
    np.testing.assert_array_equal(scope["c"], np.full((64, 96), 32, "float32"))


def test_the_first_loops_of_the_tutorial_are_what_lower_shows():
    A, B = te.placeholder((96, 96), name="A"), te.placeholder((96, 96), name="B")
    k = te.reduce_axis((0, 96), name="k")
    C = te.compute((96, 96), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    shown = textwrap.indent(str(tw.lower(te.create_schedule(C.op), [A, B, C])).strip(), "    ")
    assert shown in (ROOT / "docs" / "tutorial.md").read_text()
