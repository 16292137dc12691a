"""Tilewright: declare a tensor computation, schedule it, lower it to loops, run it as C, tune it, replay the best.

    import tilewright as tw
    from tilewright import te

    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    mod = tw.build(s, [A, B, C], target="c")
    mod(a, b, c)

This file re-exports; nothing inside the package imports it. What declaring needs is imported at once, the rest when it is first used, so that
`import tilewright` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import te, tir
from .tir.errors import (
    ArgumentError,
    CompileError,
    EmulatorError,
    InternalError,
    PipelineError,
    ScheduleError,
    ScheduleWarning,
    TargetError,
    TEError,
    TilewrightError,
)

if TYPE_CHECKING:
    from . import autotune
    from .compiler import build, lower
    from .schedule import Schedule, replay_trace
    from .targets.emulator import emulate_cuda
    from .targets.libraries import load_module
    from .targets.module import Module
    from .tir.target import Target

__version__ = "0.1.0"

# name -> the module that has it
_WHEN_USED = {
    "Module": ".targets.module",
    "Schedule": ".schedule",
    "Target": ".tir.target",
    "build": ".compiler",
    "emulate_cuda": ".targets.emulator",
    "load_module": ".targets.libraries",
    "lower": ".compiler",
    "replay_trace": ".schedule",
}

__all__ = [
    "ArgumentError", "CompileError", "EmulatorError", "InternalError", "Module", "PipelineError", "Schedule", "ScheduleError", "ScheduleWarning", "TEError",
    "Target", "TargetError", "TilewrightError", "autotune", "build", "create_schedule", "emulate_cuda", "load_module", "lower", "replay_trace", "te", "tir",
]  # fmt: skip


def create_schedule(ops: Any) -> "Schedule":
    """The schedule of a computation that ends in `ops` (an operation, a tensor, or a list of them), as if nothing had been scheduled yet."""
    return import_module(".schedule", __name__).create_schedule(ops)  # type: ignore[no-any-return]


te.create_schedule = create_schedule  # where all code written against te looks for it; te itself knows no schedule


def __getattr__(name: str) -> Any:
    if name == "autotune":
        return import_module(".autotune", __name__)
    if name in _WHEN_USED:
        value = globals()[name] = getattr(import_module(_WHEN_USED[name], __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
