"""What all tests share: checks between passes, and golden files.

Every lowering in a test is verified after each pass (TILEWRIGHT_VERIFY=2, unless the caller sets another level; 3 also interprets).
`pytest --update-golden` writes golden files anew; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("TILEWRIGHT_VERIFY", "2")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden files from what the code gives now")


@pytest.fixture
def golden(request):
    """`golden(name, text)`: `text` is what the file `golden/<name>` beside the test says."""

    def check(name: str, text: str) -> None:
        path = Path(request.fspath).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing: run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if that is meant, run pytest --update-golden"

    return check
