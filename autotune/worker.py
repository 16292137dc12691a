"""The child that makes candidates: from decisions to a schedule, a loop nest, its features, C source and a library.

A template runs here and nowhere else while a search goes on: one that raises, aborts or never returns costs its candidate.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..compiler import build
from ..tir.errors import CompileError, TilewrightError
from .features import extract
from .process import Answer, serve
from .task import Task


def main(parent: int) -> None:
    serve(parent, start)


def start(init: dict[str, Any], mark: Callable[[str], None]) -> Answer:
    """`init["task"]`: the task, as `Task.to_spec` describes it; `init["folder"]`: where libraries go."""
    task = Task.from_spec(init["task"])

    def make(request: dict[str, Any]) -> dict[str, Any]:
        """One candidate, built: its trace, features and library; or how that failed. `compile` false: no library."""
        started = time.perf_counter()
        made: dict[str, Any] = {"status": "lower_error", "stage": "lower"}
        mark("lower")
        try:
            candidate = task.instantiate(request["decisions"])
            made["trace"] = candidate.schedule.trace.to_data()
            made["features"] = extract(candidate.schedule, candidate.tensors, task.target)
            if not request.get("compile", True):
                return made | {"status": "ok", "stage": None}
            mark("compile")
            module = build(candidate.schedule, candidate.tensors, target=task.target)
        except CompileError as error:
            return made | {"status": "compile_error", "stage": "compile", "error": f"{error}\n{error.stderr}".strip()}
        except TilewrightError as error:
            return made | {"error": f"{type(error).__name__}: {error}"}
        source_hash = hashlib.sha256(module.get_source(task.target.kind).encode()).hexdigest()[:16]
        library = Path(init["folder"]) / f"{source_hash}.so"
        module.save(library)  # a copy, as the cache may drop its own while the search still needs it
        module.close()
        return made | {"status": "ok", "stage": None, "library": str(library), "source_hash": source_hash, "compile_s": time.perf_counter() - started}

    def score(request: dict[str, Any]) -> dict[str, Any]:
        """Features of several candidates, None for one whose schedule fails; the marks tell how far it came."""
        found: list[list[float] | None] = []
        for number, decisions in enumerate(request["candidates"]):
            mark(str(number))
            try:
                candidate = task.instantiate(decisions)
                found.append(extract(candidate.schedule, candidate.tensors, task.target))
            except Exception:  # what is wrong with it will be told if it is ever measured
                found.append(None)
        return {"features": found}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return score(request) if "candidates" in request else make(request)

    return answer
