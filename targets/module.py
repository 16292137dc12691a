"""`Module`: a compiled function that takes arrays. Made by `compile_module` from a generated source, or by `load_library` from a library
file alone."""

from __future__ import annotations

import ctypes
import html
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..tir.errors import TargetError
from ..tir.target import Target, cpu_name, instruction_sets, missing_instruction_sets, native_vector_bytes
from .arrays import ArgumentChecker
from .constants import ConstantMemory, addresses
from .embed import embedded
from .generated import SIGNATURE_SYMBOL, Generated, Signature, signature_from_json
from .header import c_header
from .loader import Library, check_sanitizer_runtime
from .openmp import survive_fork
from .timer import TimeResult, measure
from .toolchain import Build, compile_source


class Module:
    """A compiled function. `module(a, b, c)` runs it on arrays; outputs are arguments too, and are written in place. A call checks its arguments
    (ArgumentError), and may run in many threads at once. What it is compiled to is the business of a class for each kind of target.
    """

    def __init__(self, signature: Signature, target: Target, generated: Generated | None) -> None:
        self.signature = signature
        self.target = target
        self._generated = generated

    def __call__(self, *arguments: Any) -> None:
        raise NotImplementedError

    def run_at(self, numbers: Sequence[int]) -> None:
        """As a call, on addresses (then sizes) of the CPU's memory of which the caller knows that they are right: nothing is checked."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The function's name."""
        return self.signature.name

    @property
    def workspace_bytes(self) -> int:
        """Bytes of intermediate storage of a call (and of one of its threads), without the buffers whose extents are symbolic."""
        return self.signature.workspace_bytes

    @property
    def library_path(self) -> str:
        """The file of the compiled code."""
        raise NotImplementedError

    def get_source(self, kind: str | None = None) -> str:
        """The generated text; `kind`: "c", "cuda" or "ptx", by default that of the target. A TargetError where there is none of this kind, or the module
        came from a library file."""
        kind = self.target.kind if kind is None else kind
        if kind != self.target.kind:
            raise TargetError(f"{self.name} was generated for target {self.target.kind!r}; it has no {kind!r} source")
        if self._generated is None:
            raise TargetError(f"{self.name} was loaded from {self.library_path}; a library does not carry its source")
        return self._generated.source_with_signature(self.target)

    def time_evaluator(self, *, repeat: int = 5, number: int | None = None, min_repeat_ms: float = 50, flush_cache: bool = False) -> Callable[..., TimeResult]:
        """A function that takes the arguments of a call and times it: see `timer.measure` for what the options mean. The arguments are checked once."""
        raise NotImplementedError

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled code to `path`, and beside it what says how to call it without Python."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`, at once, what `load_module` needs on this machine; nothing beside it."""
        raise NotImplementedError

    def close(self) -> None:
        """Give up what is loaded, once calls that are running have come back. Further calls are a TargetError."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<Module {self.signature}; {self.target}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(spec.name)}</td><td>{'out' if spec.is_output else 'in'}</td><td>{spec.dtype}</td>"
            f"<td>{html.escape(' x '.join(map(str, spec.shape)) or 'scalar')}</td></tr>"
            for spec in self.signature
        )
        source = "" if self._generated is None else f"<details><summary>source</summary><pre>{html.escape(self.get_source())}</pre></details>"
        return (
            f"<b>{html.escape(self.name)}</b> <small>{html.escape(str(self.target))}; workspace {self.workspace_bytes} bytes</small>"
            f"<table><tr><th>argument</th><th></th><th>dtype</th><th>shape</th></tr>{rows}</table>{source}"
        )


class CModule(Module):
    """A function in a loaded library. It takes NumPy arrays, or anything in the CPU's memory with DLPack or the array interface; nothing is copied. A call
    releases the GIL while it computes. MemoryError: storage for intermediates could not be had.
    """

    def __init__(self, signature: Signature, target: Target, library: Library, generated: Generated | None = None, constants: Sequence[ConstantMemory] = ()):
        super().__init__(signature, target, generated)
        self._constants = tuple(constants)  # kept: the function has their addresses
        self._library = library
        self._check = ArgumentChecker(signature)
        kinds = [ctypes.c_void_p] * (signature.constants + len(signature)) + [ctypes.c_int64] * len(signature.sizes)
        function = library.function(signature.symbol, kinds)
        function = survive_fork(function) if signature.uses_openmp else function
        missing = missing_instruction_sets(instruction_sets(target.march))
        if missing:  # a build for another machine can be exported
            function = _Unable(f"{self.name} was built for {target.march} and uses instructions that this machine does not have: {', '.join(missing)}")
        self._function = partial(function, *addresses(constants)) if constants else function

    def __call__(self, *arguments: Any) -> None:
        numbers, _owners = self._check(arguments)  # the owners keep exported memory until the call is over
        if self._function(*numbers):
            self._out_of_memory()

    def run_at(self, numbers: Sequence[int]) -> None:
        if self._function(*numbers):
            self._out_of_memory()

    def _out_of_memory(self) -> None:
        known = f"{self.workspace_bytes} bytes for a call with one thread, and what depends on sizes"
        raise MemoryError(f"{self.name}: memory for intermediates could not be had ({known})")

    @property
    def library_path(self) -> str:
        """The file of the compiled library."""
        return self._library.path

    def time_evaluator(self, *, repeat: int = 5, number: int | None = None, min_repeat_ms: float = 50, flush_cache: bool = False) -> TimeEvaluator:
        """A function that takes the arguments of a call and times it: see `timer.measure` for what the options mean.

        The arguments are checked once, so that a call costs no more than the C call from Python (about half a microsecond).
        """
        return TimeEvaluator(self, {"repeat": repeat, "number": number, "min_repeat_ms": min_repeat_ms, "flush_cache": flush_cache})

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write the library to `path`, and beside it a C header (same name, ".h") for use without Python. `load_module` reads it back.

        Constant operands are written into the library, which is compiled for it. A TargetError where nothing can be written there, the library's own
        file was removed, or there are more than 1 GiB of constants.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise TargetError(f"export_library: the path is {path!r}: expected a text or a path")
        path = Path(path)
        if path.suffix == ".h":
            raise TargetError(f"export_library({str(path)!r}): the header gets the name with .h; give the library another, for example .so")
        content = self._library_content()
        try:
            replace_file(path, content)
            replace_file(path.with_suffix(".h"), c_header(self.signature, self.target, library_file=path.name).encode())
        except OSError as error:
            raise TargetError(f"export_library({str(path)!r}): {error.strerror}: {path.parent}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        replace_file(Path(path), self._library_content())

    def _library_content(self) -> bytes:
        generated, data = self._generated, None
        if generated is not None and self._constants:
            generated, data = embedded(generated, self._constants)
        else:
            try:
                return Path(self.library_path).read_bytes()
            except OSError as error:
                if generated is None:
                    raise TargetError(f"{self.library_path}, from which {self.name} was loaded, cannot be read: {error.strerror}") from None
                # Removed from the cache since; the library stays loaded, but its file has to be made again.
        return _compiled(generated, self.target, data).library_path.read_bytes()

    def close(self) -> None:
        """Unload the library, once calls that are running have come back. Further calls are a TargetError."""
        self._function = _Unable(f"module {self.name} was closed")
        self._library.close()


class TimeEvaluator:
    """Times calls of a module; made by `Module.time_evaluator`."""

    def __init__(self, module: CModule, options: dict[str, Any]):
        self._module = module
        self._options = options

    def __call__(self, *arguments: Any) -> TimeResult:
        numbers, owners = self._module._check(arguments)
        function = self._module._function

        def call() -> None:
            if function(*numbers):
                self._module._out_of_memory()

        result = measure(call, **self._options)
        del owners  # until here they keep exported memory
        return result


class _Unable:
    """Stands in for a function that cannot be called, and says why."""

    def __init__(self, reason: str):
        self._reason = reason

    def __call__(self, *arguments: Any) -> int:
        raise TargetError(self._reason)


def compile_module(generated: Generated, target: Target, constants: Sequence[ConstantMemory] = ()) -> Module:
    """Compile and load a generated function. CompileError where the compiler refuses it; see `toolchain` for the flags and the cache.

    `constants`: what the function takes before its arguments, in order; the module keeps them.
    """
    while True:
        build = _compiled(generated, target)
        if target.sanitize:
            check_sanitizer_runtime(build.library_path)
        try:
            return CModule(generated.signature, target, Library(build.library_path, uses_openmp=generated.uses_openmp), generated, constants)
        except TargetError:
            if build.library_path.exists():
                raise
            # Another process removed the entry from the cache between the compiler and the loader.


def _compiled(generated: Generated, target: Target, data: bytes | None = None) -> Build:
    source = generated.source_with_signature(target)
    return compile_source(source, target, uses_openmp=generated.uses_openmp, libraries=generated.libraries, data=data)


def load_library(path: str, content: bytes) -> CModule:
    """The module in a library of C, of which `content` is the file's. TargetErrors as of `load_module`."""
    # Looked for before loading, since loading a library runs code of it.
    if SIGNATURE_SYMBOL.encode() not in content:
        raise TargetError(f"{path} is not a library that Tilewright exported: it has no {SIGNATURE_SYMBOL}")
    if b"__asan_init" in content:
        check_sanitizer_runtime(path)
    library = Library(path, uses_openmp=b"libgomp" in content or b"libomp" in content, may_have_changed=True)
    signature, target, needs = signature_from_json(library.text(SIGNATURE_SYMBOL), path)
    missing = missing_instruction_sets(needs)
    if missing:
        raise TargetError(
            f"{path} was built for {target.cpu or target.march} and uses instructions that this machine ({cpu_name()}) does not have: {', '.join(missing)}; "
            'build it here, or with Target("c", march="x86-64-v3") or the like'
        )
    if target.march == "native" and target.vector_bytes > native_vector_bytes():
        raise TargetError(
            f"{path} was built for {target.cpu} with {target.vector_bytes * 8}-bit vectors, which this machine does not have; "
            'build it here, or with Target("c", march="x86-64-v3") or the like'
        )
    return CModule(signature, target, library)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that its old content, which may be mapped by a process, stays as it is."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.chmod(name, 0o644)
    os.replace(name, path)
