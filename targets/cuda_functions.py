"""The words of CUDA: names of types, mathematical functions, helper functions of scalars, and what identifiers must not be.

CUDA knows no vectors of our kind (cuda_lanes.py takes them apart), so everything here is for one value. Names of types are those of the language,
as NVRTC has no <stdint.h>. The functions with instructions of their own (tensor cores, asynchronous copies, small floats) are in cuda_helpers.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from ..tir.dtype import DType
from .c_helpers import Helpers
from .c_types import is_library_function, is_reserved
from .cuda_helpers import INLINE, CudaHelpers

CUDA_TYPES: dict[str, str] = {
    "bool": "unsigned char",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float8_e4m3": "unsigned char",
    "float8_e5m2": "unsigned char",
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
    "float32": "float",
    "float64": "double",
}

# (element, lanes) -> the built-in vector that one access moves, and the names of its components. Others are packed in unsigned words: two floats of 16 bits,
# which are computed with as such, and elements of less than 32 bits beyond the fourth.
VECTORS: dict[tuple[str, int], str] = {
    **{(element, lanes): f"{name}{lanes}" for element, name in (
        ("float32", "float"), ("int32", "int"), ("uint32", "uint"), ("int16", "short"), ("int8", "char"),
        ("uint8", "uchar"), ("bool", "uchar"), ("float8_e4m3", "uchar"), ("float8_e5m2", "uchar"),
    ) for lanes in (2, 4)},
    ("float64", 2): "double2",
    ("int64", 2): "longlong2",
}  # fmt: skip
COMPONENTS = "xyzw"

# Functions of floats by CUDA's name for float64; float32 has an f more. Errors in ulp are in the CUDA C++ Programming Guide, "Mathematical Functions".
FUNCTIONS: dict[str, str] = {
    "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
    "sin": "sin", "cos": "cos", "pow": "pow", "fma": "fma", "abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc",
}  # fmt: skip
# with fast_math: one or two instructions each, less exact. Division and roots are the compiler's, by a flag.
FAST_FUNCTIONS: dict[str, str] = {"exp": "__expf", "log": "__logf", "log2": "__log2f", "sin": "__sinf", "cos": "__cosf", "pow": "__powf"}

# (from, to) -> the intrinsic that reads the bits of one as the other
BIT_CASTS: dict[tuple[str, str], str] = {
    ("float32", "int32"): "__float_as_int",
    ("float32", "uint32"): "__float_as_uint",
    ("int32", "float32"): "__int_as_float",
    ("uint32", "float32"): "__uint_as_float",
    ("float64", "int64"): "__double_as_longlong",
    ("int64", "float64"): "__longlong_as_double",
}


class CudaScalars(Helpers):
    """The device functions that one source uses: those of C with CUDA's words, and the ones of cuda_helpers.py (`device`)."""

    types: ClassVar[Mapping[str, str]] = CUDA_TYPES
    inline: ClassVar[str] = INLINE
    families: ClassVar[dict[str, Callable[..., str]]]

    def __init__(self) -> None:
        super().__init__(16)
        self.device = CudaHelpers()

    def use(self, family: str, kind: DType, *details: str) -> str:
        if family in ("widen_float", "narrow_float"):
            return self.device.use(f"tw_{family}_{kind.element}")
        return super().use(family, kind, *details)

    def emit(self) -> str:
        return "\n".join(text for text in (self.device.emit(), *self._functions.values()) if text)


def _define(h: Helpers, head: str, *lines: str) -> str:
    return "\n".join([f"{h.inline}{head} {{", *(f"    {line}" for line in lines), "}\n"])


def _sigmoid(h: Helpers, name: str, kind: DType) -> str:
    """exp overflows to an infinity for very negative x, which gives 0."""
    t, suffix, one = h.scalar(kind), *(("f", "1.0f") if kind == "float32" else ("", "1.0"))
    return _define(h, f"{t} {name}({t} x)", f"return {one} / ({one} + exp{suffix}(-x));")


def _is_not_finite(test: str) -> Callable[[Helpers, str, DType], str]:
    def make(h: Helpers, name: str, kind: DType) -> str:
        infinity = "__int_as_float(0x7f800000)" if kind == "float32" else "__longlong_as_double(0x7ff0000000000000LL)"
        magnitude = f"fabs{'f' if kind == 'float32' else ''}(x)"
        return _define(h, f"bool {name}({h.scalar(kind)} x)", f"return {test.format(x=magnitude, infinity=infinity)};")

    return make


def _popcount(h: Helpers, name: str, kind: DType) -> str:
    t, unsigned = h.scalar(kind), h.scalar(f"uint{kind.bits}")
    return _define(h, f"{t} {name}({t} a)", f"return ({t})__popc{'ll' if kind.bits == 64 else ''}(({unsigned})a);")


def _truncate(h: Helpers, name: str, kind: DType, to: str) -> str:
    """The instruction saturates, and gives 0 for NaN."""
    return _define(h, f"{h.scalar(to)} {name}({h.scalar(kind)} x)", f"return ({h.scalar(to)})x;")


def _odd_float(h: Helpers, name: str, kind: DType) -> str:
    """float64 as float32 rounded to odd, so that a second rounding to a still smaller type is right."""
    return _define(
        h,
        f"float {name}(double x)",
        "float nearest = (float)x;",
        "double magnitude = fabs(x), rounded = fabs((double)nearest);",
        "if (!(rounded < magnitude || rounded > magnitude)) return nearest;",
        "return __uint_as_float((__float_as_uint(nearest) - (rounded > magnitude)) | 1);",
    )


CudaScalars.families = {
    **{family: Helpers.families[family] for family in ("min", "max", "floordiv", "floormod", "shift_left", "shift_right", "abs")},
    "sigmoid": _sigmoid,
    "isnan": _is_not_finite("{x} != {x}"),
    "isinf": _is_not_finite("{x} == {infinity}"),
    "isfinite": _is_not_finite("{x} < {infinity}"),
    "popcount": _popcount,
    "truncate": _truncate,
    "odd_float": _odd_float,
}

# What a CUDA source has names for beyond C: variables and types of the language, functions and macros of the headers that nvcc includes by itself.
_WORDS = re.compile(
    r"(thread|block|grid)(Idx|Dim)|warpSize|dim3|make_\w+|u?(char|short|int|long|longlong)[1-4]|(float|double|half)[1-4]|cu[A-Z]\w*|cuda\w*|CUDA\w*|CU_\w+"
    r"|atomic\w+|sync\w*|clock\w*|surf\w*|tex\w*|M_\w+|FP_\w+|HUGE_VAL\w*|INFINITY|NAN|NULL|EOF|RAND_MAX|BUFSIZ|EXIT_\w+|CHAR_BIT|[SU]?[A-Z]+_(MAX|MIN)"
    r"|(FLT|DBL|LDBL)_\w+|u(int|char|short|long)|u?llong|half2?|min|max|umin|umax|llmin|llmax|ullmin|ullmax"
)
_CALLED = frozenset({*(name + suffix for name in FUNCTIONS.values() for suffix in ("", "f"))})
# Functions of CUDA's mathematical library that C has not: a kernel of such a name would be one of two.
_DEVICE_FUNCTIONS = re.compile(
    r"(r?sqrt|rcbrt|sincos(pi)?|(sin|cos|tan)pi|erfc?inv|erfcx|normcdf(inv)?|r?norm(3d|4d)?|r?hypot|cyl_bessel_i[01]|exp10|saturate|fdivide|signbit)f?"
    r"|mul24|umul24|__\w+|assert|printf|trap|brkpt"
)


def is_reserved_in_cuda(name: str) -> bool:
    """Whether CUDA, a header that comes with it, or the generator uses this identifier."""
    return is_reserved(name) or name in _CALLED or _WORDS.fullmatch(name) is not None


def is_taken_from_kernels(name: str) -> bool:
    """Whether a function that is there already has this name."""
    return is_reserved_in_cuda(name) or is_library_function(name) or _DEVICE_FUNCTIONS.fullmatch(name) is not None
