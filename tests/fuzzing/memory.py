"""Arrays that begin or end at a page that may not be touched: an access outside of them ends the process."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

PAGE = mmap.PAGESIZE


class _Pages:
    """Pages between two protected ones. What NumPy views keeps them mapped."""

    def __init__(self, size: int):
        self.size = -(-max(size, 1) // PAGE) * PAGE
        total = self.size + 2 * PAGE
        base = _libc.mmap(None, total, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError("mmap failed")
        self.start = base + PAGE
        for page in (base, self.start + self.size):
            self._protect(page, PAGE, 0)
        weakref.finalize(self, _libc.munmap, base, total)

    def _protect(self, address: int, size: int, protection: int) -> None:
        if _libc.mprotect(address, size, protection):
            raise OSError(ctypes.get_errno(), "mprotect failed")

    def forbid_writing(self) -> None:
        """From now on a write ends the process."""
        self._protect(self.start, self.size, mmap.PROT_READ)


def guarded(array: np.ndarray[Any, Any], at_end: bool, writable: bool) -> np.ndarray[Any, Any]:
    """A copy of `array` that ends (or begins) at a protected page; where it is not `writable`, neither its own pages can be written."""
    pages = _Pages(array.nbytes)
    address = pages.start + (pages.size - array.nbytes if at_end else 0)
    raw = (ctypes.c_char * max(array.nbytes, 1)).from_address(address if array.nbytes else pages.start)
    raw._pages = pages  # type: ignore[attr-defined]  # lives as long as the view
    view = np.frombuffer(raw, dtype=np.uint8, count=array.nbytes).view(array.dtype).reshape(array.shape)
    view[...] = array
    if not writable:
        pages.forbid_writing()
    return view
