"""From CUDA source to a loaded library: the runtime, compiled once for a machine, and the kernels, compiled against the headers in `include/`.

Flags of kernels, and what each changes:

    -std=gnu++17 -O2      as nvcc's default dialect; one pass of optimisation is what most of the time goes into
    -march=native         the result runs on this machine only, and at once
    -ffp-contract=fast    a * b + c may be rounded once, as on a GPU
    -fno-math-errno, -fno-trapping-math, -fno-strict-aliasing    as for C (targets/toolchain.py)
    -fno-exceptions -fno-rtti    device code has neither
    -fno-finite-loops     a loop without end is one, and no licence to remove code
    -fno-delete-null-pointer-checks    an access by a null pointer stays there, to be found
    -g1, -fno-optimize-sibling-calls    lines, for errors and reports

An instrumented build (`check=`) has besides, or instead:

    -fsanitize=thread     a call before each access; only the compiler's part is used, the functions called are ours (runtime/hooks.cpp)
    -fsanitize=bounds     a call where an index leaves an array whose extent the compiler knows
    -fsanitize=alignment  a call where an address is no multiple of what its type needs
    -fno-tree-vectorize -fno-tree-slp-vectorize -fno-store-merging    an access stays the access that the source has
    -fno-crossjumping -fno-tree-tail-merge -fno-code-hoisting -fno-ipa-icf    and stays in its line
    -mllvm -sink-common-insts=0 -mllvm -hoist-common-insts=0                  the same for clang
    -fno-sanitize-recover=bounds     clang relies on indices that it has judged, so the launch ends there
    -fno-builtin-memcpy ... --wrap   the C library's functions that touch memory come by the runtime
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...tir.errors import CompileError, TargetError
from ...tir.target import cpu_features
from .. import cache
from ..loader import Library, is_whole
from ..toolchain import Compiler, find_compiler
from . import source as cuda_source
from .assembly import granule_bytes, separate_variables

_FOLDER = Path(__file__).resolve().parent
_INCLUDE, _RUNTIME = _FOLDER / "include", _FOLDER / "runtime"
SOURCE_NAME, ASSEMBLY_NAME, LIBRARY_NAME, RUNTIME_NAME, GRANULE_NAME = "kernel.cu", "kernel.s", "kernel.so", "runtime.so", "granule.txt"
_COMMON = ("-std=gnu++17", "-O2", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden", "-fno-strict-aliasing")
_RUNTIME_FLAGS = (*_COMMON, "-g1", "-U_FORTIFY_SOURCE", "-fno-threadsafe-statics")
_KERNEL_FLAGS = (
    *_COMMON,
    "-g1",
    "-w",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    *("-fno-optimize-sibling-calls", "-fno-finite-loops", "-fno-delete-null-pointer-checks"),
)
_WRAPPED = ("memcpy", "memset", "memmove")
_CHECKED_FLAGS = (
    "-fsanitize=thread,bounds,alignment",
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
    *(f"-fno-builtin-{name}" for name in _WRAPPED),
)
_GCC_CHECKED_FLAGS = (
    "-fno-store-merging",
    "-fno-crossjumping",
    "-fno-ipa-icf",
    "-fno-tree-tail-merge",
    "-fno-code-hoisting",
    "-fno-tree-loop-im",
    "-fno-hoist-adjacent-loads",
    "-fno-tree-loop-distribute-patterns",
    "--param=tsan-instrument-func-entry-exit=0",
)
_CLANG_CHECKED_FLAGS = ("-fno-sanitize-recover=bounds", "-mllvm", "-sink-common-insts=0", "-mllvm", "-hoist-common-insts=0")
_LINK_FLAGS = ("-lm", *(f"-Wl,--wrap={name}" for name in ("__assert_fail", "abort", "exit", "_exit", "_Exit", "quick_exit")))


@dataclass(frozen=True)
class Runtime:
    """The loaded runtime; kernels are linked with the file at `path` and find it by its `name`."""

    library: Library
    path: Path
    name: str


_loaded: dict[str, Library] = {}  # runtimes, by name; a kernel's library finds a loaded one by that name, wherever its file is


@lru_cache(maxsize=1)
def _texts_digest() -> str:
    """Of all headers and sources: a change in one makes other libraries."""
    digest = hashlib.sha256()
    for path in sorted([*_INCLUDE.rglob("*"), *_RUNTIME.rglob("*")]):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def load_runtime(compiler: Compiler) -> Runtime:
    """Compile the runtime unless the cache has it, and load it unless it is loaded."""
    sources = sorted(str(path) for path in _RUNTIME.glob("*.cpp"))
    key = _key("emulator-runtime", _texts_digest(), compiler.version, *compiler.command, *_RUNTIME_FLAGS)
    name = f"tilewright-emulator-{key}.so"
    command = [*compiler.command, "-x", "c++", *_RUNTIME_FLAGS, *sources, "-o", RUNTIME_NAME, "-lpthread", "-ldl", "-lm", f"-Wl,-soname,{name}"]
    path = _make(key, [command], RUNTIME_NAME, {})
    if name not in _loaded:
        _loaded[name] = Library(path)
    return Runtime(_loaded[name], path, name)


@dataclass(frozen=True)
class Kernels:
    """A compiled CUDA source. `granule_bytes`: the smallest access it makes, up to 4; `dynamic_names`: of its `extern __shared__` arrays."""

    path: Path
    runtime: Runtime
    granule_bytes: int
    dynamic_names: tuple[str, ...]
    plain_vectors: bool = False  # float4 and the like may be accessed by their members


def compile_kernels(text: str, kernels: Sequence[str], *, arch: int, checked: bool) -> Kernels:
    """The library of a CUDA source, with an entry point for each expression in `kernels` that names a kernel.

    Raises CompileError with the compiler's lines, which are those of `text`; TargetError where there is no C++ compiler.
    """
    compiler = find_compiler()
    runtime = load_runtime(compiler)
    if not checked:
        return _compile(text, kernels, arch, compiler, runtime, ())
    try:
        return _compile(text, kernels, arch, compiler, runtime, ("-DEMULATOR_CHECKED",))
    except CompileError as error:
        if "delete" not in error.stderr:  # of a union that holds a vector
            raise
        return _compile(text, kernels, arch, compiler, runtime, ("-DEMULATOR_CHECKED", "-DEMULATOR_PLAIN_VECTORS"))


def _compile(text: str, kernels: Sequence[str], arch: int, compiler: Compiler, runtime: Runtime, defines: Sequence[str]) -> Kernels:
    entries = "".join(f"\nEMULATOR_KERNEL({number}, {kernel})" for number, kernel in enumerate(kernels))
    rewritten, dynamic_names = cuda_source.rewrite(text)
    whole = f'{rewritten}\n#line 1 "<launch>"{entries}\n'
    flags = [*_KERNEL_FLAGS, f"-DEMULATOR_ARCH={arch}", f"-I{_INCLUDE}", "-include", "cuda_emulator.h"]
    if cuda_source.needs_standard_headers(text):
        flags.append("-DEMULATOR_STANDARD_MATH")
    if cuda_source.has_host_code(text):
        flags += ["-include", "emulator_host.h"]
    if defines:
        flags += [*defines, *_CHECKED_FLAGS, *(_GCC_CHECKED_FLAGS if compiler.family == "gcc" else _CLANG_CHECKED_FLAGS)]
    front = [*compiler.command, "-x", "c++", *flags, SOURCE_NAME]
    back = [str(runtime.path), *_LINK_FLAGS, *(["-lstdc++"] if cuda_source.needs_standard_headers(text) else []), "-o", LIBRARY_NAME]
    # The runtime's name stands for the compiler and the headers; "native" means another thing on another processor.
    key = _key("emulator", runtime.name, *flags, " ".join(sorted(cpu_features())), whole)
    if not defines:
        path = _make(key, [[*front, "-x", "none", *back]], LIBRARY_NAME, {SOURCE_NAME: whole})
        return Kernels(path, runtime, 4, tuple(dynamic_names))
    assemble = [*compiler.command, "-shared", ASSEMBLY_NAME, *back, *(f"-Wl,--wrap={name}" for name in _WRAPPED)]
    compile_only = [word for word in front if word != "-shared"]
    path = _make(key, [[*compile_only, "-S", "-o", ASSEMBLY_NAME], assemble], LIBRARY_NAME, {SOURCE_NAME: whole})
    return Kernels(path, runtime, int((path.parent / GRANULE_NAME).read_text()), tuple(dynamic_names), len(defines) > 1)


def _make(key: str, commands: list[list[str]], product: str, files: dict[str, str]) -> Path:
    """The product of one command, or of two with the assembly between them, from the cache if it is there."""
    entry = cache.find(key)
    if entry is not None and is_whole(entry / product):
        return entry / product
    damaged = entry is not None
    with cache.work_folder() as folder:
        for name, content in files.items():
            (folder / name).write_text(content)
        (folder / "command.txt").write_text("".join(" ".join(command) + "\n" for command in commands))
        for command in commands:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                break
            if (folder / ASSEMBLY_NAME).exists() and not (folder / GRANULE_NAME).exists():
                assembly = (folder / ASSEMBLY_NAME).read_text()
                (folder / GRANULE_NAME).write_text(str(granule_bytes(assembly, files[SOURCE_NAME])))
                (folder / ASSEMBLY_NAME).write_text(separate_variables(assembly))
        (folder / "log.txt").write_text(done.stderr)
        failed = done.returncode != 0
        entry = cache.publish(folder, f"failed-{key}" if failed else key, replace=failed or damaged)
    if failed:
        raise _error(command, entry, done.stderr)
    return entry / product


def _error(command: list[str], entry: Path, stderr: str) -> CompileError | TargetError:
    if "cc1plus" in stderr and "cannot execute" in stderr:
        return TargetError(f"{command[0]} cannot compile C++, which the CUDA emulator needs: install g++ (or clang), or set TILEWRIGHT_CC")
    errors = [line for line in stderr.splitlines() if re.search(r"\berror:|undefined reference|undefined symbol", line)]
    shown = "\n".join(f"  {line}" for line in (errors or stderr.splitlines() or ["(it said nothing)"])[:8])
    if "Assembler messages" in stderr or re.search(r"constraint", "\n".join(errors)):
        shown += "\n  The emulator cannot run PTX in asm(). It has functions for much of what needs it: <cuda_pipeline.h> (cp.async), <mma.h> (wmma),"
        shown += "\n  <tilewright_ptx.h> (mma.sync, ldmatrix, dp4a ...); #ifdef EMULATOR_ARCH tells which compiler reads the source."
    message = f"the CUDA source does not compile for the emulator:\n{shown}\n  source:  {entry / SOURCE_NAME}\n  command: (cd {entry} && {' '.join(command)})"
    return CompileError(message, command, str(entry / SOURCE_NAME), stderr)
