"""Templates reach another process: by module, or as text with what they use; what cannot be had is refused."""

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tilewright.autotune.registry import TEMPLATES, check_arguments, load, portable, template
from tilewright.tir.errors import ArgumentError

FACTOR = 3


def helper(n: int) -> int:
    return n * FACTOR


def test_a_template_in_a_module_is_named_by_it() -> None:
    @template("in_module")
    def in_module(cfg, n):
        return helper(n)

    spec = portable(TEMPLATES["in_module"])
    assert spec["path"] == __file__ and "source" not in spec
    assert [parameter.name for parameter in TEMPLATES["in_module"].parameters] == ["n"]


SCRIPT = """
    import json, sys
    import numpy as np
    from tilewright.autotune import registry as templates
    from math import sqrt as root
    SIZES = {"small": [1, 2], "big": (3, None)}
    inner = x = sys.stdout  # the program's variables; the template has its own of these names
    def helper(n):
        return n * len(SIZES) + root(4)
    @templates.template("scripted", reference=lambda a: a)
    def scripted(cfg, n, *, flag=False):
        inner = [(lambda: helper(x))() for x in range(n)]
        return float(np.sum(inner)), json.dumps(SIZES)
    if __name__ == "__main__":
        print(json.dumps(templates.portable(templates.TEMPLATES["scripted"])))
"""


def test_a_template_of_a_script_is_sent_as_text(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    out = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    code = "import json, sys; from tilewright.autotune.registry import load\nt = load(json.loads(sys.argv[1])); print(t.function(None, 3))"
    again = subprocess.run([sys.executable, "-c", code, out.stdout], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == """(12.0, '{"small": [1, 2], "big": [3, null]}')"""


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent("""
        from tilewright.autotune import registry as templates
        handle = open(__file__)
        @templates.template("t")
        def t(cfg, n):
            return handle.read()
        templates.portable(templates.TEMPLATES["t"])
    """)
    )
    out = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert "template 't' uses 'handle', a TextIOWrapper of the running program" in out.stderr


def test_a_module_that_cannot_be_found_by_name_is_loaded_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "own_templates.py"
    path.write_text("from tilewright.autotune.registry import template\n@template('own')\ndef own(cfg, n):\n    return n + 1\n")
    found = load({"name": "own", "module": "own_templates", "path": str(path)})
    assert found.function(None, 1) == 2
    with pytest.raises(ArgumentError, match="did not register the template 'other'"):
        load({"name": "other", "module": "own_templates", "path": str(path)})


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((1, 2), {}, r"2 sizes are given, \[1, 2\]: gemm takes M, N, K and the options dtype"),
        ((1, 2, 3, "f", 5), {}, "5 sizes"),
        ((1, 2, 3), {"stride": 2}, "unknown option 'stride': gemm takes M, N, K and the options dtype"),
        ((1, 2, 3), {"M": 2}, "'M' is given twice"),
    ],
)
def test_wrong_sizes_name_what_is_expected(args, options, words: str) -> None:
    def gemm(M, N, K, dtype="float32"):
        pass

    parameters = list(inspect.signature(gemm).parameters.values())
    check_arguments("gemm", parameters, (1, 2), {"K": 3})
    with pytest.raises(ArgumentError, match=words):
        check_arguments("gemm", parameters, args, options)


def test_a_template_needs_a_name() -> None:
    with pytest.raises(ArgumentError, match="a template needs a name"):
        template(lambda cfg: None)  # type: ignore[arg-type]
