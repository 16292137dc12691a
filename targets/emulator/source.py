"""What the emulator reads and changes in CUDA source: `extern __shared__` and `<<<>>>`, which are no C++, and the names of the kernels.

Everything else is C++ once the headers in `include/` are there. Lines stay where they are, so the compiler's messages and the reports name the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Comments, string and character literals: what looks like code in them is not.
_SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_ALIGNMENT = r"(?:__align__\s*\([^()]*\)|alignas\s*\([^()]*\)|__attribute__\s*\(\(.*?\)\))"
_EXTERN_SHARED = re.compile(
    rf"\bextern\s+(?:{_ALIGNMENT}\s*)?(?:volatile\s+)?__shared__\s+(?P<type>[^;\[\]]*?)(?P<name>\b\w+)\s*\[\s*\](?P<rest>(?:\s*\[[^\]]*\])*)\s*;",
    re.DOTALL,
)
_KERNEL = re.compile(r"__global__\b(?P<between>[^;{}]*?)\b(?P<name>\w+)\s*\((?!\()", re.DOTALL)
_LAUNCH = re.compile(r"<<<.*?>>>(?=\s*\()", re.DOTALL)
_NAMESPACE_BRACE = re.compile(r"(?:\bnamespace\b[\w\s:]*|\bextern\s*)\Z")
_STANDARD_HEADER = re.compile(r"^\s*#\s*include\s*<(?P<name>[^>]+)>", re.MULTILINE)
_OWN_HEADERS = re.compile(
    r"cuda\w*\.h(?:pp)?|cooperative_groups(?:/\w+)?\.h|tilewright_ptx\.h|device_launch_parameters\.h|mma\.h|stdint\.h|stddef\.h|float\.h|limits\.h|cstdint|cstddef|cfloat|climits|assert\.h|cassert|stdio\.h"
)


def _blank(text: str) -> str:
    """The source with comments and literals blanked out, character for character."""
    return _SKIPPED.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def rewrite(source: str) -> tuple[str, list[str]]:
    """`extern __shared__ float s[];` -> a pointer to the block's dynamic shared memory; and the names of all such arrays.

    In a function it is a local pointer; outside of any it is one of the worker's thread, set when it is first used. And `k<<<grid, block>>>(x)` ->
    `k(x)`: the host's code is compiled with the rest, and never run. Line numbers do not change.
    """
    source = _without_launches(source)
    blank = _blank(source)
    pieces: list[str] = []
    names: list[str] = []
    end = 0
    for match in _EXTERN_SHARED.finditer(blank):
        kind = re.sub(_ALIGNMENT, " ", " ".join(source[match.start("type") : match.end("type")].split())).strip()
        if "volatile" in match[0].split("__shared__")[0]:
            kind = f"volatile {kind}"
        name, rest = match["name"], match["rest"].strip()
        storage = "" if _inside_function(blank[: match.start()]) else "static thread_local "
        declared, wanted = (f"(* const {name}){rest}", f"(*){rest}") if rest else (f"* const {name}", "*")
        lines = "\n" * match[0].count("\n")
        pieces.append(f"{source[end : match.start()]}{storage}{kind} {declared} = ({kind} {wanted})emulator_dynamic_shared();{lines}")
        names.append(name)
        end = match.end()
    return "".join(pieces) + source[end:], list(dict.fromkeys(names))


def _without_launches(source: str) -> str:
    """Blank out `<<<...>>>`."""
    pieces, end = [], 0
    for match in _LAUNCH.finditer(_blank(source)):
        pieces += [source[end : match.start()], re.sub(r"[^\n]", " ", match[0])]
        end = match.end()
    return "".join(pieces) + source[end:]


def has_host_code(source: str) -> bool:
    """Whether it calls the CUDA runtime or launches kernels itself."""
    return re.search(r"<<<|\bcuda(?:[A-Z]\w*\s*\(|Error_t\b|Stream_t\b|Event_t\b)", _blank(source)) is not None


def _inside_function(text: str) -> bool:
    """Whether the end of a piece of source lies inside braces other than those of namespaces and `extern "C"`."""
    open_braces: list[bool] = []
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            open_braces.append(_NAMESPACE_BRACE.search(text[: match.start()].rstrip()) is None)
        elif open_braces:
            open_braces.pop()
    return any(open_braces)


def kernel_names(source: str) -> list[str]:
    """The functions that are declared `__global__`, in the order of the source."""
    return list(dict.fromkeys(match["name"] for match in _kernels(source)))


def plain_kernel_names(source: str) -> list[str]:
    """Those that are no templates, and so can be launched by their name alone."""
    return list(dict.fromkeys(match["name"] for match in _kernels(source) if not re.search(r"\btemplate\s*<[^;{}]*\Z", match.string[: match.start()])))


def _kernels(source: str) -> Iterator[re.Match[str]]:
    return _KERNEL.finditer(re.sub(r"__launch_bounds__\s*\([^()]*\)", "", _blank(source)))


def needs_standard_headers(source: str) -> bool:
    """Whether it includes a header that brings the C++ library's own mathematical functions with it."""
    return any(not _OWN_HEADERS.fullmatch(match["name"]) for match in _STANDARD_HEADER.finditer(source))


def parameter_names(source: str, kernel: str) -> list[str]:
    """The names of a kernel's parameters; "" where one cannot be read, [] where the kernel is not found."""
    blank = _blank(source)
    match = re.search(rf"__global__\b[^;{{}}]*?\b{re.escape(kernel)}\s*\(", blank)
    if match is None:
        return []
    depth, names, start = 1, [], match.end()
    for at in range(match.end(), len(blank)):
        depth += (blank[at] in "([{<") - (blank[at] in ")]}>")
        if depth == 0 or (depth == 1 and blank[at] == ","):
            if blank[start:at].strip():
                name = re.search(r"(\w+)\s*\)?\s*(?:\[[^\]]*\]\s*)*(?:=.*)?\Z", blank[start:at], re.DOTALL)
                names.append(name[1] if name else "")
            start = at + 1
        if depth == 0:
            return names
    return []
