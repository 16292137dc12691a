"""Fresh Python processes for tests: what is loaded and which threads run is then known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_python(code, **environment):
    """Run code in a new process that can import the package and the helpers of this folder; its environment is this one's with changes."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def check_python(code, **environment):
    """The same, and the process must end well; returns what it printed."""
    done = run_python(code, **environment)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout
