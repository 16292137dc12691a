"""Worker processes: children that are started afresh, are given data and answer with data, and whose death costs one request only.

A child runs `serve(...)` of a module named by the parent. Requests and replies are lines of JSON over its standard input and output: no
pickling, no sockets, no fork of a process that has threads; so it works from scripts without a `__main__` guard and from notebooks.
What the work prints goes to a file that is read when the child dies. A child dies with its parent, however the parent ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..tir import config

START_TIMEOUT_S = 60.0  # a child imports NumPy and this package first; a loaded machine takes its time
_END_TIMEOUT_S = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_BOOT = "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); importlib.import_module(sys.argv[2]).main(int(sys.argv[3]))"


@dataclass(frozen=True)
class Reply:
    """How a request ended.

    status   `ok` with data; `failed` with the text of an exception that the child survived; `timeout` or `crashed` with what is known
    stage    the last stage the child reported, "" where it reported none
    wall_s   seconds, counted from when the child could take the request
    """

    status: str
    data: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    stage: str = ""
    wall_s: float = 0.0


class Worker:
    """One child. It is started by the first request and again after a death."""

    def __init__(self, module: str, init: dict[str, Any]):
        self._module = module
        self._init = init
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - lives as long as the worker
        self._pending = b""
        self._ready = False
        self._stage = ""
        self._timeout_s = self._started = self.deadline = 0.0

    @property
    def fd(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self) -> None:
        """Starts the child unless it lives. Returns at once; the child says when it is ready."""
        if self._process is not None:
            return
        path = [os.path.abspath(entry) for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(path), self._module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,
            # A search lowers thousands of programs: checks and dumps between passes are for people who look at one.
            env=config.process_environment(**{config.VERIFY.name: "0", config.DUMP.name: ""}),
        )
        self._pending, self._ready = b"", False
        self._send(self._init)

    def take(self, request: dict[str, Any], timeout_s: float) -> None:
        """Hands the child a request; its time counts from when the child is ready."""
        self.start()
        self._errors.truncate(0)
        self._stage = ""
        self._send(request)
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self.deadline = self._started + (timeout_s if self._ready else START_TIMEOUT_S)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the reader finds out
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def hear(self) -> Reply | None:
        """What the child says, once its pipe is readable; None where the answer is not whole yet."""
        chunk = os.read(self.fd, 1 << 20)
        if not chunk:
            return self._reply("crashed", text=self._death())
        self._pending += chunk
        while b"\n" in self._pending:
            line, _, self._pending = self._pending.partition(b"\n")
            message = json.loads(line)
            if not self._ready:
                self._ready = True
                self._started = time.monotonic()
                self.deadline = self._started + self._timeout_s
                continue
            if "stage" in message:
                self._stage = message["stage"]
            elif "ok" in message:
                return self._reply("ok", message["ok"])
            else:
                return self._reply("failed", {"kind": message["kind"], "where": message["where"]}, message["error"])
        return None

    def _reply(self, status: str, data: dict[str, Any] | None = None, text: str = "") -> Reply:
        return Reply(status, data or {}, text, self._stage, time.monotonic() - self._started)

    def overdue(self) -> Reply | None:
        """Ends a child whose time is up."""
        if time.monotonic() < self.deadline:
            return None
        self.kill()
        what = f"no answer within {self._timeout_s:g} s" if self._ready else f"the worker did not start within {START_TIMEOUT_S:g} s"
        return self._reply("timeout", text=what)

    def _death(self) -> str:
        """Ends a child that closed its pipe, and says how it died."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        code = self._process.poll()
        self.kill()
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        self._errors.seek(0)
        words = self._errors.read()[-4000:].decode(errors="replace").strip()
        return f"the worker process died ({how})" + (f"\n{words}" if words else "")

    def kill(self) -> None:
        """Ends the child and all it started, such as a compiler."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one whose kernel hangs ends when the GPU's driver lets it
            self._process.wait(_END_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def close(self) -> None:
        self.kill()
        self._errors.close()


Answer = Callable[[dict[str, Any]], dict[str, Any]]


class WorkerPool:
    """Several equal workers and the loop that serves them; a context manager.

    module   what the children run: its `main(parent)` calls `serve`
    init     the first thing a child is sent, JSON data
    """

    def __init__(self, size: int, module: str, init: dict[str, Any]):
        self._workers = [Worker(module, init) for _ in range(size)]

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts all children now, so that they are ready when the first request comes."""
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def map(self, requests: Sequence[dict[str, Any]], timeout_s: float, on_reply: Callable[[int, Reply], None] | None = None) -> list[Reply]:
        """The replies, in the order of the requests. `on_reply(number, reply)` is called as they come in."""
        replies: dict[int, Reply] = {}
        waiting = list(range(len(requests)))[::-1]
        busy: dict[Worker, int] = {}
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or busy:
                    for worker in self._workers:
                        if waiting and worker not in busy:
                            busy[worker] = waiting.pop()
                            worker.take(requests[busy[worker]], timeout_s)
                            selector.register(worker.fd, selectors.EVENT_READ, worker)
                    pause = min(worker.deadline for worker in busy) - time.monotonic()
                    readable = {key.data for key, _ in selector.select(max(0.0, pause))}
                    for worker, number in list(busy.items()):
                        fd = worker.fd
                        reply = worker.hear() if worker in readable else worker.overdue()
                        if reply is not None:
                            selector.unregister(fd)
                            del busy[worker]
                            replies[number] = reply
                            if on_reply is not None:
                                on_reply(number, reply)
            finally:
                for worker in busy:  # an interrupted call leaves no half answers behind
                    worker.kill()
        return [replies[number] for number in range(len(requests))]


def serve(parent: int, start: Callable[[dict[str, Any], Callable[[str], None]], Answer]) -> None:
    """The child's side: `start(init, mark)` gives the function that answers requests. Returns when the parent closes the pipe.

    `mark(stage)` tells the parent how far the work has come, in case it never comes back.

    An exception in the work is an answer too: its text, and its kind for the caller to sort by.
    """
    _die_with(parent)
    faulthandler.enable()
    with contextlib.suppress(ImportError):
        import resource  # not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Whatever the work prints must not mix with the replies.
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    lines = iter(sys.stdin.buffer.readline, b"")
    try:
        answer = start(json.loads(next(lines)), lambda stage: _send(replies, {"stage": stage}))
        _send(replies, {"ready": True})
    except Exception as error:
        reason = error

        def answer(request: dict[str, Any]) -> dict[str, Any]:
            raise reason

        _send(replies, {"ready": True})
    for line in lines:
        try:
            reply: dict[str, Any] = {"ok": answer(json.loads(line))}
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            reply = {"error": text, "kind": type(error).__name__, "where": "".join(traceback.format_tb(error.__traceback__)[-3:])}
        _send(replies, reply)


def _send(pipe: Any, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:  # a raw pipe may take a part only
        data = data[pipe.write(data) :]


def _die_with(parent: int) -> None:
    """Ends this process when the parent does, even if a compiled kernel never returns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
