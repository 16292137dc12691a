"""What is done to the compiler's assembly of an instrumented build: room between variables in shared and in constant memory, so that an index beyond one
hits nothing."""

from __future__ import annotations

import re

GAP_BYTES = 4096  # a multiple of any alignment that a shared array may have
CONSTANT_SECTION = "emulator_constant."  # what the names of those of `__constant__` begin with (cuda_emulator.h)
_SECTION = re.compile(r"^\s*\.(?:section\s+(?P<name>[^,\s]+)(?:,\s*\"(?P<flags>\w*)\")?|(?P<short>text|data|bss)\b)")
_LABEL = re.compile(r"^[\w.$]+:\s*(?:[#@;].*)?$")


def separate_variables(assembly: str) -> str:
    """Put `GAP_BYTES` before every thread-local variable and behind the last, and around every one of constant memory, which has a section of its own."""
    result: list[str] = []
    needs_room = False
    constant: dict[str, None] = {}
    for line in assembly.splitlines():
        section = _SECTION.match(line)
        if section:
            name = section["name"] or ""
            is_constant = name.strip('"').startswith(CONSTANT_SECTION)
            needs_room = is_constant or name.startswith((".tbss", ".tdata")) or "T" in (section["flags"] or "")
            if is_constant:
                constant[line] = None
        elif needs_room and _LABEL.match(line):
            result.append(f"\t.zero\t{GAP_BYTES}")
        result.append(line)
    for line in constant:
        result += [line, f"\t.zero\t{GAP_BYTES}"]
    result.append(f'\t.section\t.tbss.emulator_end,"awT",@nobits\n\t.zero\t{GAP_BYTES}\n')
    return "\n".join(result)


def granule_bytes(assembly: str, source: str) -> int:
    """The smallest access of the code that may concern a part of a word: 1, 2 or 4 bytes."""
    if re.search(r"^[^\"\n]*\b(?:__tsan_unaligned_|__wrap_mem|memcpy|memset|memmove)", assembly, re.MULTILINE):  # strings hold the compiler's flags
        return 1
    sizes = [int(size) // (8 if "atomic" in hook else 1) for hook, size in re.findall(r"\b(__tsan_[a-z_]*?)(\d+)", assembly)]
    if re.search(r"atomic\w*\s*\(", source) and re.search(r"\b(?:__half|half|__nv_bfloat16|short)\b", source):
        sizes.append(2)
    return min([4, *sizes])
