"""A worker for tests: it echoes, fails, prints, dies or hangs, as it is told."""

import ctypes
import os
import subprocess
import sys
import time

from tilewright.autotune.process import serve


def start(init: dict, mark):
    if init.get("fail"):
        raise RuntimeError("cannot start")

    def answer(request: dict) -> dict:
        mark("working")
        match request["do"]:
            case "raise":
                raise ValueError("told to")
            case "print":
                print("noise on standard output")
                os.write(1, b"more noise\n")
            case "abort":
                print("last words", file=sys.stderr, flush=True)
                os.abort()
            case "segfault":
                ctypes.string_at(0)
            case "exit":
                os._exit(3)
            case "sleep":
                time.sleep(request["s"])
            case "spawn":
                subprocess.run(["sleep", "60"], check=False)
            case "big":
                return {"text": "x" * 3_000_000}
        return {"init": init, "echo": request, "pid": os.getpid()}

    return answer


def main(parent: int) -> None:
    serve(parent, start)
