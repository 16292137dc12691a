"""Element types: scalars ("float32") and vectors of them ("float32x8"), their ranges, and the one promotion table.

A `DType` is a `str`, so that users and NumPy can take it as one, with its facts as attributes. There is one object per type; get it with
`dtype("float32")`.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any

from .errors import TEError


class DType(str):
    """The type of an expression: an element kind, its width in bits, and a number of lanes (1: a scalar)."""

    kind: str  # "float", "int", "uint", "bool"
    bits: int  # of one lane; a bool takes 8 in memory
    lanes: int
    element: DType  # the scalar type
    is_float: bool
    is_integer: bool  # int or uint; bool is not one
    is_bool: bool
    is_storage: bool  # no arithmetic is done in it: bool becomes int32 first, float8 must be cast
    bytes: int  # of one element in memory
    low: int | float  # smallest finite value of an element
    high: int | float  # largest finite value
    by_lanes: dict[int, DType]  # what `vector` gave
    constants: dict[int, Any]  # the small integers of this type as expressions, kept by expr.const

    def vector(self, lanes: int) -> DType:
        """The type with the same element and `lanes` lanes."""
        found = self.by_lanes.get(lanes)
        if found is None:
            found = self.by_lanes[lanes] = self._vector(lanes)
        return found

    def _vector(self, lanes: int) -> DType:
        return dtype(self.element if lanes == 1 else f"{self.element!s}x{lanes}")


# name -> (kind, bits, largest finite value of a float)
_SCALARS: dict[str, tuple[str, int, float]] = {
    "bool": ("bool", 8, 0),
    "int8": ("int", 8, 0),
    "uint8": ("uint", 8, 0),
    "int16": ("int", 16, 0),
    "int32": ("int", 32, 0),
    "uint32": ("uint", 32, 0),
    "int64": ("int", 64, 0),
    "float8_e4m3": ("float", 8, 448.0),
    "float8_e5m2": ("float", 8, 57344.0),
    "float16": ("float", 16, 65504.0),
    "bfloat16": ("float", 16, 3.3895313892515355e38),
    "float32": ("float", 32, 3.4028234663852886e38),
    "float64": ("float", 64, 1.7976931348623157e308),
}

SCALAR_NAMES = tuple(_SCALARS)
_TYPES: dict[str, DType] = {}


def dtype(name: str) -> DType:
    """The type called `name`, for example "int8" or "float32x16"; a TEError lists the known ones."""
    found = _TYPES.get(name) if isinstance(name, str) else None
    return found if found is not None else _make(name)


def _make(name: str) -> DType:
    if not isinstance(name, str):  # np.float32, np.dtype("float32"), torch.float32
        name = getattr(name, "__name__", None) or str(getattr(name, "name", name))
        return dtype(name.removeprefix("torch."))
    match = re.fullmatch(r"(bool|[a-z]+\d+(?:_e\dm\d)?)(?:x([1-9]\d*))?", name)
    if match is None or match[1] not in _SCALARS:
        raise TEError(f"unknown dtype {name!r}: expected one of {', '.join(_SCALARS)}")
    kind, bits, high = _SCALARS[match[1]]
    made = DType(name)
    made.kind, made.bits, made.bytes, made.by_lanes, made.constants = kind, bits, bits // 8, {}, {}
    made.lanes = int(match[2] or 1)
    made.is_float, made.is_bool, made.is_integer = kind == "float", kind == "bool", kind in ("int", "uint")
    made.is_storage = kind == "bool" or (kind == "float" and bits == 8)
    if kind == "float":
        made.low, made.high = -high, high
    elif kind == "bool":
        made.low, made.high = 0, 1
    elif kind == "uint":
        made.low, made.high = 0, (1 << bits) - 1
    else:
        made.low, made.high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    made.element = made if match[2] is None else dtype(match[1])
    return _TYPES.setdefault(name, made)


BOOL, INT32, INT64, FLOAT32, FLOAT64 = (dtype(n) for n in ("bool", "int32", "int64", "float32", "float64"))


def whole_number(value: object) -> int | None:
    """`value` as an int where it is one of Python or NumPy; None for anything else, a bool too."""
    if isinstance(value, (bool, type)) or not hasattr(value, "__index__"):
        return None
    try:
        return int(value.__index__())
    except TypeError:  # an array of several elements, an integer-like of another package that is none today
        return None


def promote(a: DType, b: DType) -> DType:
    """The type in which an operation on an `a` and a `b` is done (lanes must be equal; they are kept).

    The table, symmetric: equal types stay; bool gives way to anything; float with integer: the float (int64 * float32 is float32, as in
    PyTorch and TVM; NumPy would widen); two floats: the wider, float16 with bfloat16: float32; two signed or two unsigned: the wider;
    signed with unsigned: the narrowest signed type that holds both (uint32 with anything signed: int64). float8 is a storage type: cast it first.
    """
    if a is b:
        return a
    if a.lanes != b.lanes:
        raise TEError(f"operands have {a.lanes} and {b.lanes} lanes ({a}, {b})")
    x, y = a.element, b.element
    if x.is_bool or y.is_bool:
        chosen = y if x.is_bool else x
    elif x.is_float and y.is_float:
        if x.bits == 8 or y.bits == 8:
            raise TEError(f"{x} and {y} do not mix: float8 is a storage type, cast it first, for example x.astype('float32')")
        if x.bits == y.bits:
            chosen = FLOAT32
        else:
            chosen = x if x.bits > y.bits else y
    elif x.is_float or y.is_float:
        chosen = x if x.is_float else y
    elif x.kind == y.kind:
        chosen = x if x.bits > y.bits else y
    else:
        signed, unsigned = (x, y) if x.kind == "int" else (y, x)
        bits = max(signed.bits, 2 * unsigned.bits)
        chosen = dtype(f"int{min(bits, 64)}")
    return chosen.vector(a.lanes)


# small floats: bits of the mantissa, the least exponent of a normal number, the largest number, and what is beyond it
_SMALL_FLOATS: dict[str, tuple[int, int, float, float]] = {
    "float16": (10, -14, 65504.0, math.inf),
    "bfloat16": (7, -126, 255 * 2.0**120, math.inf),
    "float8_e5m2": (2, -14, 57344.0, math.inf),
    "float8_e4m3": (3, -6, 448.0, math.nan),
}


def round_to(value: int | float, kind: DType) -> float:
    """`value` as a float of a dtype (nearest, ties to even), overflow giving an infinity, or NaN where there is none."""
    name = kind.element
    try:
        if isinstance(value, int):
            value = float(value) if name == "float64" else _rounded_to_odd(value)
        if name == "float64" or math.isnan(value):
            return value
        if name == "float32":
            return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    mantissa, least, largest, beyond = _SMALL_FLOATS[name]
    if math.isinf(value):
        return math.copysign(beyond, value)
    last = max(math.frexp(value)[1] - 1, least) - mantissa  # the exponent of the last place
    rounded = math.copysign(math.ldexp(round(math.ldexp(value, -last)), last), value)
    return rounded if abs(rounded) <= largest else math.copysign(beyond, value)


def _rounded_to_odd(value: int) -> float:
    """An integer as a float64 whose last bit says that something was cut off, so that rounding it again to fewer bits is right."""
    cut = max(0, abs(value).bit_length() - 53)
    kept = abs(value) >> cut
    kept |= kept << cut != abs(value)
    return math.copysign(math.ldexp(kept, cut), value)
