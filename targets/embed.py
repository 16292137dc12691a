"""The source of a library that carries its constants, for `Module.export_library`: they are bytes of the library, and the function takes its arguments only.

    int32_t f_with_constants(const float *restrict W, const float *restrict A, float *restrict C) { ... }      as it was generated

    __asm__(... ".incbin \\"constants.bin\\"" ...);                                                              its bytes, in memory that is only read
    int32_t f(const float *p0, float *p1) { return f_with_constants((const float *)(f_constants + 0), p0, p1); }

An array of numbers in C would take a compiler minutes and gigabytes where weights are large; the assembler copies a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from ..tir.errors import TargetError
from .c_types import SCALARS
from .constants import ALIGNMENT, ConstantMemory
from .generated import ArgumentSpec, Generated
from .toolchain import DATA_NAME

_MOST_BYTES = 1 << 30  # code reaches its data by distances of 31 bits


def embedded(generated: Generated, constants: Sequence[ConstantMemory]) -> tuple[Generated, bytes]:
    """The function without constants, and the file DATA_NAME that its source includes. A TargetError where there are too many bytes of them."""
    total = sum(_padded(memory.bytes) for memory in constants)
    if total > _MOST_BYTES:
        raise TargetError(
            f"export_library: {generated.name} has {total} bytes of constant operands; a library carries at most {_MOST_BYTES}: "
            "build it without constants= for those that are large, and pass them as arguments"
        )
    data = b"".join(memory.content.ljust(_padded(memory.bytes), b"\0") for memory in constants)
    source = f"{generated.source.rstrip()}\n\n{_bytes_of_library(generated.name, data)}\n{_function(generated, constants)}"
    return replace(generated, source=source, constants=()), data


def _padded(count: int) -> int:
    return count + -count % ALIGNMENT


def _bytes_of_library(name: str, data: bytes) -> str:
    symbol = f"{name}_constants"
    return f"""\
/* The constants: {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}. */
__asm__(".pushsection .rodata\\n.balign {ALIGNMENT}\\n{symbol}:\\n.incbin \\"{DATA_NAME}\\"\\n.byte 0\\n.popsection");
extern const unsigned char {symbol}[] __attribute__((visibility("hidden")));
"""


def _function(generated: Generated, constants: Sequence[ConstantMemory]) -> str:
    begins, values = 0, []
    for spec, memory in zip(generated.constants, constants, strict=True):
        values.append(f"({_pointer(spec)})({generated.name}_constants + {begins})")
        begins += _padded(memory.bytes)
    names = [f"p{number}" for number in range(len(generated.arguments) + len(generated.sizes))]
    parameters = [f"{_pointer(spec)}{name}" for spec, name in zip(generated.arguments, names, strict=False)]
    parameters += [f"int64_t {name}" for name in names[len(generated.arguments) :]]
    inner = generated.signature.symbol
    return f"int32_t {generated.name}({', '.join(parameters) or 'void'})\n{{\n    return {inner}({', '.join([*values, *names])});\n}}\n"


def _pointer(spec: ArgumentSpec) -> str:
    return f"{'' if spec.is_output else 'const '}{SCALARS[spec.dtype][0]} *"
