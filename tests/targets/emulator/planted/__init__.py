"""Kernels with a planted fault, each with its correct twin: what users run into, found by the emulator or not found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .barriers import BARRIER_FAULTS
from .case import Planted
from .memory import MEMORY_FAULTS
from .reuse import REUSE_FAULTS
from .warps import WARP_FAULTS

PLANTED = [*BARRIER_FAULTS, *MEMORY_FAULTS, *REUSE_FAULTS, *WARP_FAULTS]

__all__ = ["PLANTED", "Planted", "Together", "together"]

_INCLUDE = re.compile(r"^#include (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Together:
    """Correct and broken kernels in one source, which is compiled once. `names`: (case, broken) -> kernel and the number of lines before its source."""

    source: str
    names: dict[tuple[str, bool], tuple[str, int]]


def together(cases: Sequence[Planted]) -> Together:
    """Each kernel in a namespace of its own; includes go to the top."""
    sources = {(case.name, broken): case.broken if broken else case.source for case in cases for broken in (False, True) if case.fault or not broken}
    includes = {name for text in sources.values() for name in _INCLUDE.findall(text)}
    lines = ["#ifdef EMULATOR_ARCH", "#include <tilewright_ptx.h>", "#endif", *(f"#include {name}" for name in sorted(includes) if "tilewright" not in name)]
    names = {}
    for number, (key, text) in enumerate(sources.items()):
        body = _INCLUDE.sub("", text.replace('extern "C" __global__ void k(', f"__global__ void k{number}("))
        lines.append(f"namespace planted{number} {{")
        names[key] = f"planted{number}::k{number}", len(lines)
        lines += [*body.splitlines(), "}"]
    names |= {(case.name, True): names[case.name, False] for case in cases if not case.fault}  # only the launch is wrong
    return Together("\n".join([*lines, ""]), names)
