"""The runtime's structures as ctypes sees them, and running one launch: start, wait, interrupt, collect."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from ..loader import Library

CHECKS = {None: 0, "race": 1, "memory": 2}
_WAIT_S = 0.05  # between two looks at Ctrl-C and the clock
MOST_FINDINGS, MOST_TRAFFIC = 256, 4096


class Memory(ctypes.Structure):
    """runtime.h: Memory."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("zone_low", ctypes.c_uint64),
        ("zone_high", ctypes.c_uint64),
        ("kind", ctypes.c_uint32),
        ("read_only", ctypes.c_uint32),
    ]


class Finding(ctypes.Structure):
    """runtime.h: Finding."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("kind", "memory")),
        *((name, ctypes.c_uint64) for name in ("place", "other_place", "offset", "block", "other_block")),
        *((name, ctypes.c_uint32) for name in ("thread", "other_thread", "size", "access", "other_access", "extra")),
        ("count", ctypes.c_uint64),
    ]


class Traffic(ctypes.Structure):
    """runtime.h: Traffic."""

    _fields_ = [
        ("place", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("memory", "access", "size", "ways")),
        *((name, ctypes.c_uint64) for name in ("warps", "moved", "ideal")),
    ]


class Launch(ctypes.Structure):
    """runtime.h: Launch."""

    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_bytes", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("workers", "check")),
        ("tls_anchor", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("tls_anchor_offset", "tls_bytes")),
        ("memories", ctypes.POINTER(Memory)),
        *((name, ctypes.c_uint32) for name in ("memory_count", "granule_shift")),
        *((name, ctypes.c_uint64) for name in ("image_low", "image_high")),
        ("findings", ctypes.POINTER(Finding)),
        ("traffic", ctypes.POINTER(Traffic)),
        *((name, ctypes.c_uint32) for name in ("finding_capacity", "traffic_capacity", "finding_count", "traffic_count")),
        *((name, ctypes.c_uint64) for name in ("error_place", "error_block", "error_address")),
        *((name, ctypes.c_uint32) for name in ("error_thread", "error_kind", "touched_locals", "unused")),
        ("error_text", ctypes.c_char * 256),
    ]


class Runner:
    """The functions of a loaded runtime."""

    def __init__(self, library: Library):
        pointer = ctypes.POINTER(Launch)
        size: Callable[..., Any] = library.function("emulator_launch_bytes", [], ctypes.c_ulong)
        if size() != ctypes.sizeof(Launch):
            raise AssertionError(f"runtime.h and launch.py differ: {size()} and {ctypes.sizeof(Launch)} bytes")
        self._start = library.function("emulator_start", [pointer], ctypes.c_void_p)
        self._wait = library.function("emulator_wait", [ctypes.c_void_p, ctypes.c_double], ctypes.c_int)
        self._stop = library.function("emulator_stop", [ctypes.c_void_p], None)
        self._finish = library.function("emulator_finish", [ctypes.c_void_p], None)

    def run(self, launch: Launch, timeout_s: float | None) -> None:
        """Run it to its end. What went wrong is in its `error_` fields; Ctrl-C ends the kernel and is raised when it has ended."""
        run = self._start(ctypes.byref(launch))
        if not run:
            raise MemoryError("not enough memory to start a launch")
        until = None if timeout_s is None else time.monotonic() + timeout_s
        interrupted: BaseException | None = None
        done = False
        while not done:
            try:
                done = bool(self._wait(run, _WAIT_S))
                if not done and (interrupted is not None or (until is not None and time.monotonic() > until)):
                    self._stop(run)
            except KeyboardInterrupt as error:
                interrupted = error
                self._stop(run)
        self._finish(run)
        if interrupted is not None:
            raise interrupted
