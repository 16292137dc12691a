"""The documentation says what is: the tables, the links, and the programs of its pages, which are run with smaller numbers."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.autotune import Database
from tilewright.tir import config

ROOT = Path(__file__).resolve().parent.parent
PAGES = [p for p in sorted(ROOT.rglob("*.md")) if not any(part.startswith(".") or part in ("build", "dist") for part in p.relative_to(ROOT).parts)]


def test_switches_are_documented():
    text = (ROOT / "docs" / "switches.md").read_text()
    for switch in config.SWITCHES:
        assert f"| `{switch.name}` |" in text and switch.meaning in text, switch.name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)  # in code, ](...) is no link
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if not link.startswith(("http:", "https:")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def program(page, *smaller):
    """The Python blocks of a page, one after the other, with other words in place of some."""
    text = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
    for found, other in smaller:
        assert found in text, found
        text = text.replace(found, other)
    return text


def test_the_program_of_the_readme_runs():
    scope = {}
    exec(program("README.md", ("1024, 1024, 1024", "64, 96, 32")).partition("from tilewright import autotune")[0], scope)
    np.testing.assert_array_equal(scope["c"], np.full((64, 96), 32, "float32"))


def test_the_tutorial_runs(capsys):
    scope = {}
    exec(program("docs/tutorial.md", ("M = N = K = 1024", "M = N = K = 96"), ("time_evaluator()", "time_evaluator(repeat=1, min_repeat_ms=1)")), scope)
    np.testing.assert_array_equal(scope["c"], np.full((96, 96), 96, "float32"))
    assert "allocate C.local: float32[96] in local at stack" in capsys.readouterr().out
    assert "parallel(" in str(tw.lower(scope["s"], [scope["A"], scope["B"], scope["C"]]))


def test_the_tutorial_of_cuda_runs():
    exec(program("docs/cuda_tutorial.md"), {})


def test_the_page_on_kernels_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(program("docs/kernels.md"), scope)
    np.testing.assert_allclose(scope["b"], np.exp(scope["a"]) * 2, rtol=1e-6)
    prototype = re.search(r"int32_t scaled_exp\(.*?\);", (ROOT / "docs" / "kernels.md").read_text())[0]
    header = (tmp_path / "scaled_exp.h").read_text()
    assert prototype in header and "cc main.c ./scaled_exp.so -lm -fopenmp" in header


def test_the_page_on_gpus_runs(capsys):
    """Its asserts say what it claims; a small matrix is as good as a large one."""
    exec(program("docs/cuda.md", ("N = 1024", "N = 128")), {})
    assert "__syncthreads();" in capsys.readouterr().out


def test_the_programs_on_tuning_run(tmp_path):
    """As a script, as its reader would have it: templates of a script reach the workers as source."""
    made = "A = te.placeholder((8,), name='A')\nB = C = te.compute((8,), lambda i: A[i] + 1.0, name='C')\n"
    few = [("trials=64", "trials=1"), ("trials=14)", "trials=2, log='tuning.db')")]
    text = program("docs/tuning.md", ("(512, 1024)", "(8, 16)"), ("(512, 512)", "(8, 16)"), ("[A, B, C]", "[A, C]"), *few)
    (tmp_path / "program.py").write_text("from tilewright import te\n" + made + text)
    where = os.pathsep.join([str(Path(tw.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": where}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with Database(tmp_path / "tuning.db", read_only=True) as log:
        assert {(row["name"], row["status"]) for row in log.trial_table(9, None)} == {("C", "ok"), ("scaled", "ok")}


def test_every_example_has_its_line():
    page = (ROOT / "examples" / "README.md").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f"[{path.name}]({path.name})" in page


def test_the_first_loops_of_the_tutorial_are_what_lower_shows():
    A, B = te.placeholder((96, 96), name="A"), te.placeholder((96, 96), name="B")
    k = te.reduce_axis((0, 96), name="k")
    C = te.compute((96, 96), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    shown = textwrap.indent(str(tw.lower(te.create_schedule(C.op), [A, B, C])).strip(), "    ")
    assert shown in (ROOT / "docs" / "tutorial.md").read_text()
