"""Shared libraries that can be unloaded again. (`ctypes.CDLL` never unloads, and a tuner loads thousands.)

A library stays mapped as long as its `Library` or any function taken from it is alive: a function holds the library, and a call holds the
function, so closing one while another thread is inside it is safe.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import struct
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ..tir.errors import TargetError
from . import openmp


class _Handle:
    """Owns one reference of the dynamic linker; gives it back when it is collected."""

    __slots__ = ("_close", "value")

    def __init__(self, path: str):
        self._close = _ctypes.dlclose  # kept: module globals may be gone when the interpreter ends
        self.value = _ctypes.dlopen(path, os.RTLD_NOW | os.RTLD_LOCAL)

    def __del__(self) -> None:
        if hasattr(self, "value"):
            self._close(self.value)


def _open_by_alias(path: str) -> _Handle:
    """Open through a name that was never used before: for a path that it knows, the linker gives the library it once loaded from there,
    although the file was replaced since."""
    with tempfile.TemporaryDirectory() as folder:
        alias = os.path.join(folder, os.path.basename(path))
        os.symlink(path, alias)
        return _Handle(alias)


def check_sanitizer_runtime(path: str | os.PathLike[str]) -> None:
    """A TargetError unless AddressSanitizer's runtime is in this process. Loading a sanitized library without it would end the process."""
    if not hasattr(ctypes.pythonapi, "__asan_init"):
        raise TargetError(
            f"{os.fspath(path)} was compiled with sanitizers, whose runtime must be there before Python starts: "
            "run it in a process with the environment of targets.toolchain.sanitizer_environment(target)"
        )


def is_whole(path: str | os.PathLike[str]) -> bool:
    """Whether a library has all that its header promises. Loading one that ends before would end the process with a bus error.

    Judged of 64-bit little-endian ELF files, by the ends of their sections table and segments; of other files nothing is known, so they pass if not empty.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            size = os.fstat(file.fileno()).st_size
            if head[:6] != b"\x7fELF\x02\x01":
                return size > 0
            if len(head) < 64:
                return False
            segments, sections = struct.unpack_from("<QQ", head, 32)
            segment_size, segment_count, section_size, section_count = struct.unpack_from("<4H", head, 54)
            if max(segments + segment_size * segment_count, sections + section_size * section_count) > size or segment_size < 56:
                return False
            file.seek(segments)
            table = file.read(segment_size * segment_count)
    except OSError:
        return False
    ends = (sum(struct.unpack_from("<Q16xQ", table, n * segment_size + 8)) for n in range(segment_count))  # where it begins in the file, its bytes there
    return all(end <= size for end in ends)


class Library:
    """A loaded shared library. It is unloaded by `close`, or when it is collected, as soon as no function of it is alive.

    `uses_openmp`: see `openmp`. `may_have_changed`: another file may have been loaded under this path before. A file that cannot be loaded
    is a TargetError with the dynamic linker's words.
    """

    def __init__(self, path: str | os.PathLike[str], *, uses_openmp: bool = False, may_have_changed: bool = False):
        self.path = os.path.abspath(path)
        self._handle: _Handle | None = None
        if os.path.exists(self.path) and not is_whole(self.path):
            raise TargetError(f"{self.path} cannot be loaded: the file is damaged, it ends before its own header says")
        try:
            with openmp.patient_waiting() if uses_openmp else nullcontext():
                self._handle = _open_by_alias(self.path) if may_have_changed else _Handle(self.path)
        except OSError as error:
            raise TargetError(f"{self.path} cannot be loaded: {error}") from None
        if uses_openmp:
            openmp.pin_runtimes()

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Give the library up; it is unmapped when the last function taken from it is gone. Closing twice is fine."""
        self._handle = None

    def _address(self, symbol: str) -> tuple[_Handle, int]:
        handle = self._handle
        if handle is None:
            raise TargetError(f"{self.path} is closed")
        try:
            return handle, _ctypes.dlsym(handle.value, symbol)
        except OSError:
            raise TargetError(f"{self.path} has no symbol {symbol!r}") from None

    def address(self, symbol: str) -> int:
        """Where an exported symbol lies, as long as the library is loaded. A TargetError where it has none of that name."""
        return self._address(symbol)[1]

    def function(self, symbol: str, argument_types: Sequence[type], result_type: type | None = ctypes.c_int32) -> Callable[..., Any]:
        """A C function as a callable that releases the GIL while it runs and keeps the library loaded."""
        handle, address = self._address(symbol)
        function = ctypes.CFUNCTYPE(result_type, *argument_types)(address)
        function._tilewright_library = handle  # type: ignore[attr-defined]
        return function

    def text(self, symbol: str) -> str:
        """The characters of an exported `const char symbol[]`."""
        _, address = self._address(symbol)
        return ctypes.string_at(address).decode()
