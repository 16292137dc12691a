"""The environment variables of the package, all of them: no other file reads one.

Each is a `Switch` with a type, a default and a sentence; `describe()` prints the table. A switch is read each time it is asked for, so a
program or a test may set it at any moment. They choose where things are kept and what is checked and shown, never what a kernel computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from .errors import TilewrightError

T = TypeVar("T")


@dataclass(frozen=True)
class Switch(Generic[T]):
    """One environment variable: its name, its value when unset, how its text is read, and what it does."""

    name: str
    default: T
    parse: Callable[[str], T]
    meaning: str

    @property
    def value(self) -> T:
        """The value now. A text that cannot be read is a TilewrightError that names the variable."""
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise TilewrightError(f"environment variable {self.name}={text!r}: {error}; {self.meaning}") from None


def _count(text: str) -> int:
    number = int(text.split(",", maxsplit=1)[0])
    if number < 0:
        raise ValueError("expected a number that is not negative")
    return number


CACHE_DIR = Switch("TILEWRIGHT_CACHE_DIR", "", str, "where compiled kernels are kept; default: the user's cache folder of the platform")
CACHE_MB = Switch("TILEWRIGHT_CACHE_MB", 512, _count, "size of that folder in MiB above which the kernels not used for longest are removed")
COMPILER = Switch("TILEWRIGHT_CC", "", str, "the C compiler, a name or a path; default: the first of gcc, clang, cc that is found")
NVCC = Switch("TILEWRIGHT_NVCC", "", str, "the CUDA compiler: nvcc's name or path, or 'nvrtc'; default: nvcc, else NVRTC")
THREADS = Switch("TILEWRIGHT_THREADS", 0, _count, "threads of a Target that names none; default: OMP_NUM_THREADS, else the usable CPUs")
OMP_THREADS = Switch("OMP_NUM_THREADS", 0, _count, "OpenMP's own variable: threads of a Target where TILEWRIGHT_THREADS is not set")
OMP_WAIT_POLICY = Switch("OMP_WAIT_POLICY", "", str, "OpenMP's own variable; where it is set, how threads wait is not touched")
GOMP_SPIN_COUNT = Switch("GOMP_SPINCOUNT", "", str, "libgomp's own variable: how long threads spin; default: 1000, see targets/openmp.py")
LOG = Switch("TILEWRIGHT_LOG", "", str, "the user's own tuning log; default: a file in the platform's folder for the user's data")
VERIFY = Switch("TILEWRIGHT_VERIFY", 0, _count, "checks after each pass: 0 none, 1 structure, 2 every claimed fact, 3 also interpret")
DUMP = Switch("TILEWRIGHT_DUMP", "", str, "a folder that receives the program after every pass that changed it, with diffs")
DEBUG = Switch("TILEWRIGHT_DEBUG", 0, _count, "1: one line on stderr for each compilation and each removal from the cache")

SWITCHES: tuple[Switch[int] | Switch[str], ...] = (
    *(CACHE_DIR, CACHE_MB, COMPILER, NVCC, THREADS, OMP_THREADS, OMP_WAIT_POLICY, GOMP_SPIN_COUNT, LOG, VERIFY, DUMP, DEBUG),
)


def describe() -> str:
    """The table of all switches with their values now, one a line."""
    width = max(len(switch.name) for switch in SWITCHES)
    return "\n".join(f"{switch.name:{width}}  {str(switch.value) or '(unset)':>8}  {switch.meaning}" for switch in SWITCHES)


def process_environment(**changes: str) -> dict[str, str]:
    """A copy of this process' environment with `changes`, for a process to be started."""
    return {**os.environ, **changes}


@contextmanager
def changed_environment(name: str, value: str) -> Iterator[None]:
    """Set a variable for a library that reads it while it is loaded; afterwards the environment is as before."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
