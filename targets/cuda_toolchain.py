"""From CUDA source to a cubin and PTX: nvcc where a CUDA toolkit is, else NVRTC, the compiler as a library (`pip install nvidia-cuda-nvrtc`).

Flags, and what each changes:

    -arch=sm_XX          the architecture, for which code and PTX are made
    -Xptxas -v           ptxas says what each kernel takes: registers, stack, spills, shared memory (`KernelUsage`)
    --use_fast_math      only with Target(fast_math=True): division and roots are approximations, denormals are flushed
    -w                   no warnings: the text is ours
    --maxrregcount=255   only for a source of which a kernel spilled registers without it, where that gives fewer spills: ptxas may choose fewer registers
                         than a block could have, for occupancy, and spill a few bytes

Contraction of a * b + c to one rounding is nvcc's default, as it is for the C target. No header is included, which keeps a kernel at 0.4 s: cuda_fp16.h
would add a sixth of a second, cuda_bf16.h 7.
nvcc runs twice, for PTX and from there to the cubin; the second takes 0.02 s.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..tir import config
from ..tir.errors import CompileError, TargetError
from ..tir.target import Target
from . import cache

SOURCE_NAME, PTX_NAME, CUBIN_NAME, COMMAND_NAME, LOG_NAME = "kernel.cu", "kernel.ptx", "kernel.cubin", "command.txt", "log.txt"
_TOOLKIT = "/usr/local/cuda/bin"  # where NVIDIA's installer puts a toolkit, which need not be on the PATH
_NVRTC_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_INSTALL = "install a CUDA toolkit with nvcc, or `pip install nvidia-cuda-nvrtc`"


@dataclass(frozen=True)
class CudaCompiler:
    """`path`: of nvcc or of the library NVRTC; `family`: "nvcc" or "nvrtc"; `version`: as "13.0"."""

    path: str
    family: str
    version: str

    def __str__(self) -> str:
        return f"{self.family} {self.version} ({self.path})"


@dataclass(frozen=True)
class KernelUsage:
    """What ptxas says a kernel takes: registers of a thread; bytes of its stack frame, and of registers spilled to it; declared shared memory of a block."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class CudaBuild:
    """A compiled source; the compiler's log lies beside it. `cached`: no compiler ran; `seconds`: what it took."""

    cubin_path: Path
    ptx_path: Path
    source_path: Path
    usage: dict[str, KernelUsage]
    seconds: float
    cached: bool


def find_cuda_compiler(name: str | None = None) -> CudaCompiler:
    """The compiler `name` ("nvrtc", or nvcc's name or path), else that of TILEWRIGHT_NVCC, else nvcc, else NVRTC; or a TargetError."""
    wanted = name or config.NVCC.value
    if wanted == "nvrtc":
        library = nvrtc_path()
        if library is None:
            raise TargetError("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
        return _identify_nvrtc(library)
    path = shutil.which(wanted) if wanted else shutil.which("nvcc") or shutil.which("nvcc", path=_TOOLKIT)
    if path is not None:
        info = os.stat(path)
        return _identify_nvcc(path, info.st_mtime_ns, info.st_size)
    if wanted:
        raise TargetError(f"compiler {wanted!r} ({'Target(compiler=)' if name else config.NVCC.name}) is not on the PATH, or not executable")
    library = nvrtc_path()
    if library is None:
        raise TargetError(f"no CUDA compiler found: {_INSTALL}, or set {config.NVCC.name}")
    return _identify_nvrtc(library)


def nvrtc_path() -> str | None:
    """The library of the package nvidia-cuda-nvrtc, or one that the dynamic linker finds."""
    for package, folder in (("nvidia.cu13", "lib"), ("nvidia.cuda_nvrtc", "lib")):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:  # there is no package nvidia at all
            continue
        for place in () if found is None else found.submodule_search_locations or ():
            for name in _NVRTC_NAMES:
                path = os.path.join(place, folder, name)
                if os.path.exists(path):
                    return path
    for name in _NVRTC_NAMES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


@lru_cache(maxsize=8)
def _identify_nvcc(path: str, mtime_ns: int, size: int) -> CudaCompiler:
    """Ask nvcc for its version; the time and size of its file are arguments so that an upgraded one is asked again."""
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetError(f"compiler {path} does not answer to --version: {error}") from None
    version = re.search(r"release (\S+), V(\S+)", text)
    return CudaCompiler(path, "nvcc", version[2] if version else text.strip().splitlines()[-1] if text.strip() else "?")


@lru_cache(maxsize=8)
def _identify_nvrtc(path: str) -> CudaCompiler:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return CudaCompiler(path, "nvrtc", f"{major.value}.{minor.value}")


@lru_cache(maxsize=8)
def _nvrtc(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise TargetError(f"NVRTC cannot be loaded: {error}") from None


def flags(target: Target) -> tuple[str, ...]:
    """What both compilers are told, in words that both know."""
    return (f"--gpu-architecture={target.arch}", "-w", *(("--use_fast_math",) if target.fast_math else ()))


def compile_cuda(source: str, target: Target) -> CudaBuild:
    """Compile CUDA source, or find it in the cache, which has source, PTX, cubin, the command and the log.

    Raises CompileError (command, source path, the compiler's lines) where the compiler refuses, TargetError where there is no compiler or cache folder.
    """
    compiler = find_cuda_compiler(target.compiler)
    key = hashlib.sha256("\0".join([*flags(target), compiler.family, compiler.version, source]).encode()).hexdigest()[:32]
    entry = cache.find(key)
    if entry is not None and (found := _of_entry(entry, 0.0, True)) is not None:
        return found
    damaged = entry is not None
    with cache.work_folder() as folder:
        (folder / SOURCE_NAME).write_text(source)
        start = time.perf_counter()
        commands, log, status = _run(compiler, target, folder)
        seconds = time.perf_counter() - start
        (folder / COMMAND_NAME).write_text("".join(f"{command}\n" for command in (*commands, compiler)))
        (folder / LOG_NAME).write_text(log)
        entry = cache.publish(folder, f"failed-{key}" if status else key, replace=status != 0 or damaged)
    if config.DEBUG.value:
        print(f"tilewright: compiled {entry} in {seconds:.3f} s", file=sys.stderr)
    if status:
        raise _compile_error(compiler, commands[-1], entry / SOURCE_NAME, log, status)
    made = _of_entry(entry, seconds, False)
    if made is None:
        raise TargetError(f"{compiler} left no cubin in {entry}; its log: {log.strip() or '(empty)'}")
    return made


def _of_entry(entry: Path, seconds: float, cached: bool) -> CudaBuild | None:
    """The build in an entry of the cache; None where a file of it is missing or cut short."""
    try:
        cubin, log = (entry / CUBIN_NAME).read_bytes(), (entry / LOG_NAME).read_text()
        whole = cubin[:4] == b"\x7fELF" and (entry / PTX_NAME).stat().st_size > 0
    except OSError:
        return None
    return CudaBuild(entry / CUBIN_NAME, entry / PTX_NAME, entry / SOURCE_NAME, parse_usage(log), seconds, cached) if whole else None


def _run(compiler: CudaCompiler, target: Target, folder: Path) -> tuple[list[str], str, int]:
    """Commands, what they said, and the status of the last; once more with all registers where some were spilled."""
    run = _run_nvcc if compiler.family == "nvcc" else _run_nvrtc
    first = run(compiler, target, folder, ())
    if first[2] or not _spilled(first[1]):
        return first
    cubin, ptx = (folder / CUBIN_NAME).read_bytes(), (folder / PTX_NAME).read_bytes()
    second = run(compiler, target, folder, (f"--maxrregcount={target.gpu.registers_per_thread}",))
    if second[2] == 0 and _spilled(second[1]) < _spilled(first[1]):
        return second
    (folder / CUBIN_NAME).write_bytes(cubin)
    (folder / PTX_NAME).write_bytes(ptx)
    return first


def _spilled(log: str) -> int:
    return sum(usage.spill_bytes for usage in parse_usage(log).values())


def _run_nvcc(compiler: CudaCompiler, target: Target, folder: Path, more: tuple[str, ...]) -> tuple[list[str], str, int]:
    commands, log = [], ""
    for command in (
        [compiler.path, "-ptx", *flags(target), *more, SOURCE_NAME, "-o", PTX_NAME],
        [compiler.path, "-cubin", *flags(target), *more, "-Xptxas", "-v", PTX_NAME, "-o", CUBIN_NAME],
    ):
        commands.append(" ".join(command))
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
        log += done.stdout + done.stderr
        if done.returncode:
            return commands, log, done.returncode
    return commands, log, 0


def _run_nvrtc(compiler: CudaCompiler, target: Target, folder: Path, more: tuple[str, ...]) -> tuple[list[str], str, int]:
    library = _nvrtc(compiler.path)
    options = [*flags(target), *more, "--ptxas-options=-v"]
    commands = [f"NVRTC {' '.join(options)} {SOURCE_NAME}"]
    program = ctypes.c_void_p()
    library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(status: int) -> None:
        if status:
            raise TargetError(f"NVRTC {compiler.version}: {library.nvrtcGetErrorString(status).decode()}")

    def text_of(size: Callable[..., int], get: Callable[..., int]) -> bytes:
        count = ctypes.c_size_t()
        check(size(program, ctypes.byref(count)))
        buffer = ctypes.create_string_buffer(count.value)
        check(get(program, buffer))
        return buffer.raw

    source = (folder / SOURCE_NAME).read_bytes()
    check(library.nvrtcCreateProgram(ctypes.byref(program), source, SOURCE_NAME.encode(), 0, None, None))
    try:
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options)))
        log = text_of(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog).rstrip(b"\0").decode(errors="replace")
        if not status:
            (folder / PTX_NAME).write_bytes(text_of(library.nvrtcGetPTXSize, library.nvrtcGetPTX).rstrip(b"\0"))
            (folder / CUBIN_NAME).write_bytes(text_of(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return commands, log, status


def parse_usage(log: str) -> dict[str, KernelUsage]:
    """What `ptxas -v` says of each kernel, by name."""
    found = {}
    for part in log.split("Compiling entry function ")[1:]:
        name = re.match(r"'(\w+)'", part)
        registers, stack = re.search(r"Used (\d+) registers", part), re.search(r"(\d+) bytes stack frame", part)
        spills, shared = re.findall(r"(\d+) bytes spill", part), re.search(r"(\d+) bytes smem", part)
        if name is not None and registers is not None:
            found[name[1]] = KernelUsage(int(registers[1]), int(stack[1]) if stack else 0, sum(int(n) for n in spills[:2]), int(shared[1]) if shared else 0)
    return found


def _compile_error(compiler: CudaCompiler, command: str, source_path: Path, log: str, status: int) -> CompileError:
    lines = [line for line in log.splitlines() if "error" in line.lower() or "fatal" in line.lower()] or log.splitlines() or ["(it said nothing)"]
    message = f"{compiler} ended with status {status}: {lines[0]}\n  source:  {source_path}\n  command: (cd {source_path.parent} && {command})"
    return CompileError(message, command.split(), str(source_path), log)
