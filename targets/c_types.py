"""How values are written in C: names of types, vector typedefs, constants, and the words that identifiers must not be.

Types without a C counterpart are kept as the bits that hold them (float16 in uint16_t ...); a vector of bools is a mask, an integer vector as
wide as what it selects from, with lanes 0 and -1.
"""

from __future__ import annotations

import math
import re
import struct

from ..tir.dtype import DType

# element -> (C type of a value and in memory, element type of a vector of them)
SCALARS: dict[str, tuple[str, str]] = {
    "bool": ("uint8_t", "uint8"),
    "int8": ("int8_t", "int8"),
    "uint8": ("uint8_t", "uint8"),
    "int16": ("int16_t", "int16"),
    "uint16": ("uint16_t", "uint16"),
    "int32": ("int32_t", "int32"),
    "uint32": ("uint32_t", "uint32"),
    "int64": ("int64_t", "int64"),
    "uint64": ("uint64_t", "uint64"),
    "float8_e4m3": ("uint8_t", "uint8"),
    "float8_e5m2": ("uint8_t", "uint8"),
    "float16": ("uint16_t", "uint16"),
    "bfloat16": ("uint16_t", "uint16"),
    "float32": ("float", "float32"),
    "float64": ("double", "float64"),
}

_VECTOR_ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float32": 4, "float64": 8,
}  # fmt: skip


def vector_element(kind: DType) -> str:
    """The element of the C vector that holds values of this dtype: float16 -> uint16."""
    return SCALARS[kind.element][1]


def vector_typedefs(element: str, lanes: int) -> tuple[str, str]:
    """The C typedefs of a vector in a register, and of one in memory: aligned as its element only, and over whatever is declared there."""
    scalar = SCALARS[element][0]
    width = _VECTOR_ELEMENT_BYTES[element]
    size = width * lanes
    return (
        f"typedef {scalar} {element}x{lanes} __attribute__((vector_size({size})));",
        f"typedef {scalar} {element}x{lanes}_u __attribute__((vector_size({size}), aligned({width}), may_alias));",
    )


def integer_constant(value: int, kind: DType) -> tuple[str, bool]:
    """The text of an integer, and whether it is a single token."""
    if kind.kind == "uint":
        return (f"{value}u" if kind.bits >= 32 else str(value)), True
    if kind.bits == 64 and not -(1 << 31) < value < 1 << 31:
        if value == -(1 << 63):
            return "(-9223372036854775807LL - 1)", True
        return f"{value}LL", value >= 0
    if value == -(1 << 31):
        return "(-2147483647 - 1)", True
    return str(value), value >= 0


def float_constant(value: float, kind: DType) -> tuple[str, bool]:
    """The shortest decimal text that reads back as `value`, and whether it is a single token."""
    suffix = "f" if kind.element == "float32" else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")', True
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()", value > 0
    text = repr(value)
    if suffix:
        packed = struct.pack("<f", value)
        for digits in range(1, 10):
            text = f"{value:.{digits}g}"
            if abs(float(text)) <= kind.high and struct.pack("<f", float(text)) == packed:
                break
    if not re.search(r"[.e]", text):
        text += ".0"
    return text + suffix, not text.startswith("-")


# Small floats, kept as bits: name -> (mantissa bits, exponent bias, code of what is too large: infinity, or NaN where there is none; code of NaN)
SMALL_FLOATS = {
    "float16": (10, 15, 0x7C00, 0x7E00),
    "bfloat16": (7, 127, 0x7F80, 0x7FC0),
    "float8_e5m2": (2, 15, 0x7C, 0x7E),
    "float8_e4m3": (3, 7, 0x7F, 0x7F),
}


def small_float_bits(value: float, kind: DType) -> int:
    """The bits of the small float nearest to `value` (ties to even)."""
    mantissa, bias, too_large, nan = SMALL_FLOATS[kind.element]
    sign = 1 << (kind.bits - 1) if math.copysign(1.0, value) < 0 else 0
    if math.isnan(value):
        return nan
    if math.isinf(value):
        return too_large | sign
    exponent = max(math.frexp(value)[1] - 1, 1 - bias) if value else 1 - bias
    code = round(math.ldexp(abs(value), mantissa - exponent)) + ((exponent + bias - 1) << mantissa)
    return min(code, too_large) | sign


# Words a name of the user's cannot have in C: of the language (and its GNU dialect, and C++ for the header), macros of the compiler and of
# <stdint.h>, everything that the generator and its helpers define, names of types.
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return short signed "
        "sizeof static struct switch typedef union unsigned void volatile while asm typeof alignas alignof bool complex imaginary noreturn constexpr "
        "nullptr thread_local static_assert true false unix linux i386 main errno "
        "class template this new delete public private protected virtual operator namespace using try catch throw friend export explicit mutable typename "
        "and or not xor bitand bitor compl and_eq or_eq not_eq xor_eq const_cast dynamic_cast static_cast reinterpret_cast typeid wchar_t requires concept",
    )
)
_RESERVED_FORMS = re.compile(
    r"tw_.*|TW_.*|_.*|tilewright_.*|omp_.*|(u?int|float|bfloat|bool)(_fast|_least)?(\d+|ptr|max).*|(size|ptrdiff|ssize)_t"
    r"|U?INT(_FAST|_LEAST)?(\d+|PTR|MAX)_.*|(SIZE|PTRDIFF|WCHAR|WINT|SIG_ATOMIC)_.*|aligned_alloc|free|sizeof"
)


def is_reserved(name: str) -> bool:
    """Whether C, a header or the generator itself uses this identifier."""
    return name in _KEYWORDS or _RESERVED_FORMS.fullmatch(name) is not None


# Functions of the C library: a kernel of such a name would take its place. (Local variables may have these names.)
_LIBRARY = re.compile(
    r"(f|fe|v|vf|s|sn|vs|vsn|sw|fw)?(printf|scanf)|f?(open|close|read|write|seek|tell|flush|puts?c?|gets?c?)|puts?|gets|mem(cpy|move|set|cmp|chr)|str\w+"
    r"|[mc]alloc|realloc|calloc|free|abort|exit|atexit|getenv|system|abs|labs|div|ldiv|rand|srand|qsort|bsearch|time|clock|signal|raise|sleep|fork|exec\w*"
    r"|a?(sin|cos|tan)h?[fl]?|atan2[fl]?|(exp2?|expm1|log2?|log10|log1p|logb|pow|sqrt|cbrt|hypot|erfc?|[tl]gamma|gamma|floor|ceil|trunc|l?l?round|l?l?rint|nearbyint"
    r"|fabs|fm(a|ax|in|od)|modf|frexp|ldexp|scalbl?n|nextafter|copysign|remainder|[jy][01n])[fl]?|index|rindex|bcopy|bzero|select|poll|send|recv|accept|bind|listen"
    r"|connect|socket|kill|pipe|dup2?|wait|link|unlink|access|remove|rename|mmap|munmap|dl(open|close|sym)|environ|round|nan[fl]?|isnan|isinf|finite"
)


def is_library_function(name: str) -> bool:
    """Whether the C library has a function of this name."""
    return _LIBRARY.fullmatch(name) is not None
