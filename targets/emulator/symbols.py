"""What a compiled kernel's library says about itself: its variables and where they lie, and the source line of an address.

Reads the symbol table and segments of 64-bit little-endian ELF files; for lines it asks addr2line of the binutils, which every gcc needs anyway.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_SYMTAB, _TLS_SEGMENT, _LOAD_SEGMENT = 2, 7, 1
_OBJECT, _TLS = 1, 6
_OWN = re.compile(r"_ZGV|_ZTH|_ZTW|_ZTV|_ZTI|_ZTS|_ZN14emulator_entry|__|completed")


@dataclass(frozen=True)
class Variable:
    """A variable: `name` as in the source; `address`: in the file, or for a thread-local one the offset in the thread-local storage; `section`: its name."""

    name: str
    symbol: str
    address: int
    size: int
    thread_local: bool
    section: str


@dataclass(frozen=True)
class Symbols:
    """The variables of a library, and its extents in memory, counted from where it is loaded."""

    variables: tuple[Variable, ...]
    functions: dict[str, int]
    tls_bytes: int
    image_bytes: int

    def variable(self, name: str) -> Variable:
        """The variable of that name, which is there."""
        return next(variable for variable in self.variables if variable.name == name)


def source_name(symbol: str) -> str:
    """The last name in a mangled symbol: `_ZZ1kE4tile` -> tile, `_ZN2ns5tableE` -> table, `_ZL3lut` -> lut; a plain symbol is its own name."""
    if not symbol.startswith("_Z"):
        return re.sub(r"\.\d+$", "", symbol)
    best = symbol
    for match in re.finditer(r"(?=(\d+))", symbol):  # also the 7 of "_117outside", where what comes before ends with a digit
        start, length = match.end(1), int(match[1])
        name = symbol[start : start + length]
        if len(name) == length and re.fullmatch(r"[A-Za-z_]\w*", name) and re.fullmatch(r"E?(_\d+)?(\.\d+)?", symbol[start + length :]):
            best = name
    return best


def read_symbols(path: Path) -> Symbols:
    """Of a library that is whole (loader.is_whole)."""
    data = path.read_bytes()
    segments, sections = struct.unpack_from("<QQ", data, 32)
    segment_size, segment_count, section_size, section_count, names = struct.unpack_from("<5H", data, 54)
    tls_bytes = image_bytes = 0
    for n in range(segment_count):
        kind, _, _, address, _, _, memory_size, align = struct.unpack_from("<IIQQQQQQ", data, segments + n * segment_size)
        if kind == _TLS_SEGMENT:
            tls_bytes = (memory_size + align - 1) // max(1, align) * max(1, align)
        if kind == _LOAD_SEGMENT:
            image_bytes = max(image_bytes, address + memory_size)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + n * section_size) for n in range(section_count)]

    def text(at: int) -> str:
        return data[at : data.index(b"\0", at)].decode(errors="replace")

    variables: list[Variable] = []
    functions: dict[str, int] = {}
    for header in headers:
        if header[1] != _SYMTAB:
            continue
        offset, size, strings = header[4], header[5], headers[header[6]][4]
        for start in range(offset, offset + size, 24):
            name_at, info, _, section, value, length = struct.unpack_from("<IBBHQQ", data, start)
            symbol = text(strings + name_at)
            if info & 15 in (_OBJECT, _TLS) and length and section:
                where = text(headers[names][4] + headers[section][0]) if section < len(headers) else ""
                variables.append(Variable(source_name(symbol), symbol, value, length, info & 15 == _TLS, where))
            elif section:
                functions[symbol] = value
    return Symbols(tuple(variables), functions, tls_bytes, image_bytes)


def is_own(variable: Variable) -> bool:
    """Whether it is one of the emulator's headers or of the compiler, and none of the user's."""
    return variable.name.startswith("emulator_") or _OWN.match(variable.symbol) is not None


@lru_cache(maxsize=1)
def _calling_lines() -> frozenset[int]:
    """Of the header that calls kernels, the lines where it does."""
    header = Path(__file__).parent / "include" / "cuda_emulator.h"
    return frozenset(n for n, line in enumerate(header.read_text().splitlines(), 1) if "EMULATOR_QUIET static void" in line)


def source_lines(path: Path, source_file: str, offsets: Iterable[int]) -> dict[int, int]:
    """The line in `source_file` that each address of the library belongs to; of inlined functions the innermost one there. What is not known is left out."""
    wanted = sorted({offset for offset in offsets if offset > 0})
    program = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if not wanted or program is None:
        return {}
    done = subprocess.run(
        [program, "-a", "-f", "-i", "-e", str(path), *(hex(offset) for offset in wanted)], capture_output=True, text=True, errors="replace", check=False
    )
    lines: dict[int, int] = {}
    for place in re.split(r"^(?=0x)", done.stdout, flags=re.MULTILINE)[1:]:
        address, *frames = place.splitlines()  # each frame is two lines: the function, and where in which file; the innermost comes first
        for function, where in zip(frames[::2], frames[1::2], strict=False):
            file, _, rest = where.rpartition(":")
            number = re.match(r"\d+", rest)
            # The header's lines that call the kernel are none of the source, though gcc says so.
            calls = function.startswith("_ZN14emulator_entry") and number is not None and int(number[0]) in _calling_lines()
            if number and int(number[0]) and Path(file).name == source_file and not calls:
                lines[int(address, 16)] = int(number[0])
                break
    return lines
