"""The errors of the package, by who can act on them.

* the user: TEError (a declaration), ScheduleError (a primitive or a schedule), TargetError (a target's limits or name), ArgumentError (an
  argument of a call), PipelineError (an order of passes), LogError (a tuning log that cannot be used, or lacks what was
  asked for), TuningError (a search that cannot go on);
* a kernel: EmulatorError (it cannot go on);
* the toolchain: CompileError (command, path of the source, the compiler's words);
* ourselves: InternalError. Please report it.

A message names the stage or argument, what was expected, what was found, and what to do.
"""

from __future__ import annotations


class TilewrightError(Exception):
    """The root of every error that this package raises on purpose."""


class TEError(TilewrightError):
    """A tensor expression that cannot mean anything, or not what it seems to."""


class ScheduleError(TilewrightError):
    """A schedule primitive that does not apply, or a schedule that has no right program."""


class TargetError(TilewrightError):
    """An unknown target, or a program that exceeds a limit of its target."""


class ArgumentError(TilewrightError):
    """An argument of a call that does not fit: number, dtype, shape, layout, overlap."""


class PipelineError(TilewrightError):
    """A list of passes in an order that cannot work."""


class LogError(TilewrightError):
    """A tuning log that is damaged, foreign or newer than this program, or that holds no record of what was asked for."""


class TuningError(TilewrightError):
    """A search that cannot go on: not one candidate was valid."""


class CompileError(TilewrightError):
    """The compiler refused a generated source.

    Attributes: `command` (list of words), `source_path` (where the source was kept), `stderr` (the compiler's words).
    """

    def __init__(self, message: str, command: list[str] | None = None, source_path: str = "", stderr: str = ""):
        super().__init__(message)
        self.command = command or []
        self.source_path = source_path
        self.stderr = stderr


class EmulatorError(TilewrightError):
    """A CUDA kernel that could not go on in the emulator: an address that is not there, threads that wait for ever, a timeout, a trap."""


class InternalError(TilewrightError):
    """A fault of Tilewright itself."""


class ScheduleWarning(UserWarning):
    """Legal, but hardly what was meant."""
