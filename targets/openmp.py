"""Living with the OpenMP runtime (gcc's libgomp, clang's libomp) in one process with NumPy, PyTorch and forks.

Measured with libgomp on two cores, a parallel region of two threads that does nothing:

* Right after another region it takes 0.7 us. Right after a NumPy matmul, whose own threads still look for work, or after 20 ms of sleep, it
  takes 2 to 8 ms: who waits in libgomp spins 300,000 times without letting go of the core that the other thread needs. With
  GOMP_SPINCOUNT=1000, which is what libgomp itself takes when it knows of more threads than CPUs, it takes 65 to 90 us there, still 0.7
  to 1.6 us in a row, and PyTorch's operators, which share the runtime, are as fast as before; a thread that waits 30 us for a slower one
  pays 10 us more. So that is the default here (`patient_waiting`). It can only be set when the runtime is loaded: who imports PyTorch
  first sets GOMP_SPINCOUNT=1000 in the environment of the process. clang's libomp yields while it waits (45 us after NumPy) and is left
  alone.
* Idle threads wake up in the runtime's code, so the runtime must not be unloaded with the last kernel (`pin_runtimes`).
* After a fork, libgomp waits for ever for threads that only the parent has, but only in the thread that forked: each calling thread has a
  pool of its own. So a forked child calls from another thread (`survive_fork`), which costs it some 50 us a call.
"""

from __future__ import annotations

import _ctypes
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from ..tir import config

_SPIN_COUNT = "1000"
_RUNTIMES = frozenset({"libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"})
_pinned: set[str] = set()

_forks: list[int] = []  # the forks on the way from the process that loaded this file to this one; mostly none
_callers: dict[int, ThreadPoolExecutor] = {}  # of each forked process, its one thread


@contextmanager
def patient_waiting() -> Iterator[None]:
    """While this is open, an OpenMP runtime that gets loaded learns to spin for a short time only, unless the user chose otherwise."""
    if config.OMP_WAIT_POLICY.value or config.GOMP_SPIN_COUNT.value or _pinned:
        yield
        return
    with config.changed_environment(config.GOMP_SPIN_COUNT.name, _SPIN_COUNT):
        yield


def pin_runtimes() -> None:
    """Keep those runtimes that are loaded now until the process ends."""
    for name in _RUNTIMES - _pinned:
        try:
            _ctypes.dlopen(name, os.RTLD_NOW | os.RTLD_NOLOAD | os.RTLD_NODELETE)
        except OSError:
            continue  # not loaded
        _pinned.add(name)


def survive_fork(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which in the first thread of a forked process hands the call to another thread and waits."""
    current, first_thread = threading.get_ident, threading.main_thread

    def call(*numbers: int) -> Any:
        # Python makes the thread that forked the child's main thread.
        if not _forks or current() != first_thread().ident:
            return function(*numbers)
        return _caller().submit(function, *numbers).result()

    return call


# Told once: asking for the process's number in every call is a system call, 3 us where the kernel has swept the caches.
os.register_at_fork(after_in_child=lambda: _forks.append(os.getpid()))


def _caller() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _callers:
        _callers[process] = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tilewright-openmp")
    return _callers[process]
