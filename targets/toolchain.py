"""From C source to a shared library: finds the compiler, chooses the flags, runs it, keeps what it made.

Flags, and what each changes:

    -std=gnu11 -O2        -O3 costs compile time and gains nothing on loops that are already tiled, unrolled and vectorised
    -march=...            the instruction sets that may be used
    -fPIC -shared         a library to load
    -fno-strict-aliasing  one piece of memory holds different types (storage reuse, vectors over scalars)
    -fno-math-errno       sqrt and the like need not set errno, so they become one instruction; results are the same
    -fno-trapping-math    nobody looks at floating-point exception flags, so selects need no branches; results are the same
    -ffp-contract=fast    a * b + c may be rounded once (a fused multiply-add) where the target has the instruction: more exact, but not bit
                          for bit what two roundings give
    -fstack-reuse=none    gcc only: arrays of different scopes do not share bytes of the stack. gcc 12 may move the address of one to where the other
                          lives (as in its bug 90348), which gave wrong results in kernels that the fuzzer made
    -fopenmp              only where the source has OpenMP pragmas
    -lm                   the mathematical functions that are not generated inline
    -l..., -z defs        only where C functions are called (te.extern): their libraries; one that is nowhere is an error here and not at the call
    -rpath                for a library that is given as a file: where it is found when the kernel is loaded

-ffast-math and its parts that change results (reassociation, no NaN, no signed zeros, flush to zero) are never used.
Where there is neither gcc nor clang, the Python package ziglang serves (`pip install ziglang`): its `zig cc` is a clang. It has no OpenMP, so
parallel loops run in one thread, and no sanitizers. Its first compilation takes a quarter of a minute, since it builds what it links with.
With `Target(sanitize=True)`: -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..tir import config
from ..tir.errors import CompileError, TargetError
from ..tir.target import Target, cpu_features
from . import cache
from .loader import is_whole

CANDIDATES = ("gcc", "clang", "cc")
SOURCE_NAME, LIBRARY_NAME, COMMAND_NAME, LOG_NAME = "kernel.c", "kernel.so", "command.txt", "log.txt"
SERIAL_NAME, DATA_NAME = "serial.c", "constants.bin"
_SERIAL = """/* In place of an OpenMP runtime: one thread. */
__attribute__((visibility("hidden"))) int omp_get_thread_num(void) { return 0; }
__attribute__((visibility("hidden"))) int omp_get_num_threads(void) { return 1; }
"""

BASE_FLAGS = (
    *("-std=gnu11", "-fPIC", "-shared", "-fno-strict-aliasing"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
)
SANITIZER_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")


@dataclass(frozen=True)
class Compiler:
    """A C compiler: `path`, `family` ("gcc", "clang" or "zig"), `version`: the first line that it prints about itself."""

    path: str
    family: str
    version: str

    @property
    def command(self) -> tuple[str, ...]:
        """How it is called."""
        return (self.path, "cc") if self.family == "zig" else (self.path,)


@dataclass(frozen=True)
class Build:
    """A compiled library and how it came about; the compiler's log lies beside it. `cached`: no compiler ran; `seconds`: what it took."""

    library_path: Path
    source_path: Path
    command: tuple[str, ...]
    seconds: float
    cached: bool


def find_compiler(name: str | None = None) -> Compiler:
    """The compiler called `name` (a name or a path; "zig" may be the one of the package ziglang), else the one of TILEWRIGHT_CC, else the first of
    gcc, clang, cc, zig; or a TargetError."""
    wanted = name or config.COMPILER.value
    for candidate in (wanted,) if wanted else (*CANDIDATES, "zig"):
        path = shutil.which(candidate) or (_packaged_zig() if candidate == "zig" else None)
        if path is not None:
            info = os.stat(path)
            return _identify(path, info.st_mtime_ns, info.st_size)
    if wanted:
        source = "Target(compiler=)" if name else config.COMPILER.name
        raise TargetError(f"compiler {wanted!r} ({source}) is not on the PATH, or not executable")
    looked_for = ", ".join(CANDIDATES)
    raise TargetError(f"no C compiler found (looked for {looked_for}): install gcc or clang, or `pip install ziglang`, or set {config.COMPILER.name}")


def _packaged_zig() -> str | None:
    """The program in the Python package ziglang, if that is installed."""
    found = importlib.util.find_spec("ziglang")
    folders = [] if found is None else found.submodule_search_locations or []
    return next((path for folder in folders if (path := shutil.which("zig", path=folder)) is not None), None)


def installed_compilers() -> list[Compiler]:
    """Every compiler of `CANDIDATES` on this machine that answers, one a file."""
    found: dict[str, Compiler] = {}
    for name in CANDIDATES:
        path = shutil.which(name)
        if path is not None:
            found.setdefault(os.path.realpath(path), find_compiler(name))
    return list(found.values())


@lru_cache(maxsize=16)
def _identify(path: str, mtime_ns: int, size: int) -> Compiler:
    """Ask a compiler for its version; the time and size of its file are arguments so that an upgraded compiler is asked again."""
    is_zig = os.path.basename(path) == "zig"
    try:
        text = subprocess.run([path, *(["cc"] if is_zig else []), "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetError(f"compiler {path} does not answer to --version: {error}") from None
    version = text.splitlines()[0] if text else ""
    return Compiler(path, "zig" if is_zig else "clang" if "clang" in text.lower() else "gcc", version)


def flags(target: Target, compiler: Compiler, uses_openmp: bool) -> tuple[str, ...]:
    """The flags for a target, as the head of this file explains them."""
    march = target.march.replace("-", "_") if compiler.family == "zig" else target.march  # zig's own names: x86_64_v3
    result = [*BASE_FLAGS, target.opt, f"-march={march}"]
    if compiler.family == "gcc":
        result.append("-fstack-reuse=none")
    if uses_openmp and compiler.family != "zig":
        result.append("-fopenmp")
    if target.sanitize and compiler.family == "zig":
        raise TargetError("sanitize=True needs gcc or clang: zig, the compiler of the package ziglang, has no sanitizers for C libraries")
    if target.sanitize:
        result += SANITIZER_FLAGS
        if compiler.family == "clang":
            result.append("-shared-libasan")
    return tuple(result)


def compile_source(source: str, target: Target, *, uses_openmp: bool = False, libraries: Sequence[str] = (), data: bytes | None = None) -> Build:
    """Compile C source to a shared library, or find it in the cache, which has the source, the command and the log beside it.

    `data`: the content of the file DATA_NAME beside the source, which includes it, and names its hash (the compiler's own cache, which zig has, does not
    look into it).

    Raises CompileError (command, source path, stderr) where the compiler refuses, TargetError where there is no compiler or cache folder.
    """
    compiler = find_compiler(target.compiler)
    linked: tuple[str, ...] = ("-lm",)
    if libraries:
        whole = () if target.sanitize else ("-Wl,-z,defs",)  # the sanitizers' runtime is found when the process starts
        linked = (*(flag for library in libraries for flag in _linked(library)), "-lm", *whole)
    serial = uses_openmp and compiler.family == "zig"
    sources = (SOURCE_NAME, SERIAL_NAME) if serial else (SOURCE_NAME,)
    command = (*compiler.command, *flags(target, compiler, uses_openmp), *sources, "-o", LIBRARY_NAME, *linked)
    key = _key(source, command, compiler, target)
    entry = cache.find(key)
    if entry is not None and is_whole(entry / LIBRARY_NAME):
        return Build(entry / LIBRARY_NAME, entry / SOURCE_NAME, command, 0.0, True)
    damaged = entry is not None
    with cache.work_folder() as folder:
        (folder / SOURCE_NAME).write_text(source)
        if serial:
            (folder / SERIAL_NAME).write_text(_SERIAL)
        if data is not None:
            (folder / DATA_NAME).write_bytes(data)
        (folder / COMMAND_NAME).write_text(" ".join(command) + "\n" + compiler.version + "\n")
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
        seconds = time.perf_counter() - start
        (folder / LOG_NAME).write_text(done.stderr)
        failed = done.returncode != 0
        if data is not None:
            (folder / DATA_NAME).unlink()  # it is in the library
        entry = cache.publish(folder, f"failed-{key}" if failed else key, replace=failed or damaged)
    if config.DEBUG.value:
        print(f"tilewright: compiled {entry} in {seconds:.3f} s", file=sys.stderr)
    if failed:
        raise _compile_error(command, entry / SOURCE_NAME, done.stderr, done.returncode)
    return Build(entry / LIBRARY_NAME, entry / SOURCE_NAME, command, seconds, False)


def _linked(library: str) -> tuple[str, ...]:
    """The flags for a library: a file by its whole path, or a name."""
    if not os.path.isabs(library):
        return (f"-l{library}",)
    return (library, "-Xlinker", "-rpath", "-Xlinker", os.path.dirname(library))


def _key(source: str, command: tuple[str, ...], compiler: Compiler, target: Target) -> str:
    # "native" means another thing on another processor, and a home folder may be shared by machines.
    machine = " ".join(sorted(cpu_features())) if target.march == "native" else ""
    text = "\0".join([*command, compiler.version, target.cpu, machine, source])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _compile_error(command: tuple[str, ...], source_path: Path, stderr: str, returncode: int) -> CompileError:
    linker = [line for line in stderr.splitlines() if "undefined" in line or "cannot find -l" in line]  # says more than "ld returned 1"
    lines = linker or [line for line in stderr.splitlines() if "error" in line] or stderr.splitlines() or ["(it said nothing)"]
    message = f"{command[0]} ended with status {returncode}: {lines[0]}\n  source:  {source_path}\n  command: (cd {source_path.parent} && {' '.join(command)})"
    return CompileError(message, list(command), str(source_path), stderr)


def sanitizer_environment(target: Target) -> dict[str, str]:
    """The environment for a Python process that is to load libraries of a `sanitize=True` target.

    The sanitizers' runtime must be there before anything else, which needs LD_PRELOAD when the process starts. Leaks are not looked for,
    since the interpreter keeps memory until it ends. A report ends the process with status 99.
    """
    compiler = find_compiler(target.compiler)
    if compiler.family == "clang":
        names = [f"libclang_rt.asan-{os.uname().machine}.so"]
    else:
        names = ["libasan.so", "libubsan.so"]
    paths = []
    for name in names:
        path = subprocess.run([compiler.path, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        if not os.path.isabs(path):
            raise TargetError(f"{compiler.path} has no {name}: install its sanitizer runtime")
        paths.append(os.path.realpath(path))
    return config.process_environment(
        LD_PRELOAD=" ".join(paths),
        ASAN_OPTIONS="detect_leaks=0:exitcode=99:abort_on_error=0",
        UBSAN_OPTIONS="print_stacktrace=1:exitcode=99",
    )
