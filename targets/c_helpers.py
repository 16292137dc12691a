"""C functions that generated code calls where one C operator does not do: blends, gathers, floor division, conversions of small floats ...

A source gets the typedefs and functions that it uses and no others (`Helpers`). All are `static inline`, so they cost nothing at run time.
Functions of floats such as exp are in c_math.py. A name is `tw_`, the family, and the type: `tw_select_float32x8`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from ..tir.dtype import DType, dtype
from .c_math import MathLibrary
from .c_types import SCALARS, SMALL_FLOATS, vector_element, vector_typedefs


class Helpers:
    """The typedefs and helper functions that one source uses. Ask while generating bodies, then put `emit` before them.

    Arguments: `vector_bytes`: of the target's widest vector register. A similar language overrides `types`: element -> its name of the type,
    `inline`: the words before a function, and `families`.
    """

    types: ClassVar[Mapping[str, str]] = {element: names[0] for element, names in SCALARS.items()}
    inline: ClassVar[str] = "static inline __attribute__((always_inline)) "
    families: ClassVar[dict[str, Callable[..., str]]]

    def __init__(self, vector_bytes: int) -> None:
        self.math = MathLibrary(vector_bytes)
        self._types: dict[tuple[str, int], None] = {}
        self._functions: dict[str, str] = {}

    def scalar(self, kind: str) -> str:
        """The C type of one value of a dtype."""
        return self.types[kind.element if isinstance(kind, DType) else kind]

    def vector(self, element: str, lanes: int) -> str:
        """The C type of a vector in a register, or the scalar type for one lane."""
        if lanes == 1:
            return self.types[element]
        self._types[element, lanes] = None
        return f"{element}x{lanes}"

    def value_type(self, kind: DType) -> str:
        """The C type of a value of a dtype."""
        return self.types[kind.element] if kind.lanes == 1 else self.vector(vector_element(kind), kind.lanes)

    def memory_vector(self, kind: DType) -> str:
        """The C type through which a vector is read and written in memory."""
        return f"{self.value_type(kind)}_u"

    def mask(self, bits: int, lanes: int) -> str:
        """The C type of a vector of bools that selects among elements of that many bits."""
        return self.vector(f"int{bits}", lanes)

    def use(self, family: str, kind: DType, *details: str) -> str:
        """Ask for a function; returns its C name. `kind` is the dtype of its main operand, `details` whatever else the family depends on."""
        name = "_".join([f"tw_{family}", kind, *details])
        if name not in self._functions:
            text = self.families[family](self, name, kind, *details)
            self._functions[name] = text  # after what it asked for itself
        return name

    def emit(self) -> str:
        """C text of everything used: typedefs, functions of floats, helpers, each after what it needs."""
        parts = []
        if self._types:
            parts.append("\n".join(line for element, lanes in self._types for line in vector_typedefs(element, lanes)) + "\n")
        math = self.math.emit({f"{element}x{lanes}" for element, lanes in self._types})
        if math.strip():
            parts.append(math)
        parts += self._functions.values()
        return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _function(h: Helpers, head: str, *lines: str) -> str:
    return "\n".join([f"{h.inline}{head} {{", *(line if line.startswith("#") else f"    {line}" for line in lines), "}\n"])


def _lanes(kind: DType, each: str) -> str:
    """`each` with {i} for every lane, joined by commas."""
    return ", ".join(each.format(i=i) for i in range(kind.lanes))


def _vector(kind: DType, each: str, h: Helpers) -> str:
    return f"({h.value_type(kind)}){{{_lanes(kind, each)}}}"


def _unsigned(h: Helpers, kind: DType) -> str:
    return h.vector(f"uint{kind.bits}", kind.lanes)


def _on_x86(feature: str, special: str, general: list[str]) -> list[str]:
    return [f"#ifdef {feature}", special, "#else", *general, "#endif"]


# ------------------------------------------------------------------------------------------------------- vectors: build, choose


def _broadcast(h: Helpers, name: str, kind: DType) -> str:
    return _function(h, f"{h.value_type(kind)} {name}({h.scalar(kind)} x)", f"return {_vector(kind, 'x', h)};")


def _ramp(h: Helpers, name: str, kind: DType) -> str:
    unsigned, scalar = _unsigned(h, kind), h.scalar(f"uint{kind.bits}")
    base, stride = (f"(({unsigned}){{{_lanes(kind, f'({scalar}){word}')}}})" for word in ("base", "stride"))
    steps = f"({unsigned}){{{_lanes(kind, '{i}')}}}"
    head = f"{h.value_type(kind)} {name}({h.scalar(kind)} base, {h.scalar(kind)} stride)"
    return _function(h, head, f"return ({h.value_type(kind)})({base} + {stride} * {steps});")


def _select(h: Helpers, name: str, kind: DType) -> str:
    t, u = h.value_type(kind), h.mask(kind.bits, kind.lanes)
    return _function(h, f"{t} {name}({u} mask, {t} a, {t} b)", f"return ({t})((({u})a & mask) | (({u})b & ~mask));")


# (element, lanes) -> feature macro, suffix of the x86 builtins for whole vectors of floats. Only those that gcc and clang both have.
_X86_FLOATS = {
    ("float32", 4): ("__SSE2__", "ps"),
    ("float32", 8): ("__AVX__", "ps256"),
    ("float64", 2): ("__SSE2__", "pd"),
    ("float64", 4): ("__AVX__", "pd256"),
}


def _extremum(word: str, sign: str) -> Callable[[Helpers, str, DType], str]:
    """min and max: of floats NaN if either is. The operand that a running extremum is combined with comes second, and is the one tested for
    NaN, so that the test is not in the chain from one iteration to the next."""

    def make(h: Helpers, name: str, kind: DType) -> str:
        t = h.value_type(kind)
        head = f"{t} {name}({t} a, {t} b)"
        if kind.lanes == 1:
            if not kind.is_float:
                return _function(h, head, f"return a {sign} b ? a : b;")
            return _function(h, head, f"{t} chosen = b {sign} a ? b : a;", "return b != b ? b : chosen;")
        select = h.use("select", kind)
        if not kind.is_float:
            return _function(h, head, f"return {select}(a {sign} b, a, b);")
        general = [f"{t} chosen = {select}(b {sign} a, b, a);"]
        if (kind.element, kind.lanes) in _X86_FLOATS:
            feature, suffix = _X86_FLOATS[kind.element, kind.lanes]
            general = _on_x86(feature, f"    {t} chosen = __builtin_ia32_{word}{suffix}(b, a);", general)
        return _function(h, head, *general, f"return {select}(b != b, b, chosen);")

    return make


# ------------------------------------------------------------------------------------------------------------ vectors in memory


def _reversed(h: Helpers, name: str, kind: DType) -> str:
    t, last = h.value_type(kind), kind.lanes - 1
    order = ", ".join(str(last - i) for i in range(kind.lanes))
    mask = h.vector(f"int{kind.bits}", kind.lanes)
    return _function(
        h,
        f"{t} {name}(const {h.scalar(kind)} *p)",
        f"{t} v = *(const {h.memory_vector(kind)} *)(p - {last});",
        "#ifdef __clang__",
        f"    return __builtin_shufflevector(v, v, {order});",
        "#else",
        f"    return __builtin_shuffle(v, ({mask}){{{order}}});",
        "#endif",
    )


def _every_second(h: Helpers, name: str, kind: DType) -> str:
    """p[0], p[2], ...: from two vectors that together reach no further than the last element wanted."""
    t, half = h.value_type(kind), kind.lanes // 2
    order = ", ".join(str(2 * i if i < half else 2 * i + 1) for i in range(kind.lanes))
    mask = h.vector(f"int{kind.bits}", kind.lanes)
    return _function(
        h,
        f"{t} {name}(const {h.scalar(kind)} *p)",
        f"{t} low = *(const {h.memory_vector(kind)} *)p, high = *(const {h.memory_vector(kind)} *)(p + {kind.lanes - 1});",
        "#ifdef __clang__",
        f"    return __builtin_shufflevector(low, high, {order});",
        "#else",
        f"    return __builtin_shuffle(low, high, ({mask}){{{order}}});",
        "#endif",
    )


def _strided(h: Helpers, name: str, kind: DType) -> str:
    return _function(h, f"{h.value_type(kind)} {name}(const {h.scalar(kind)} *p, int64_t stride)", f"return {_vector(kind, 'p[{i} * stride]', h)};")


def _gather(h: Helpers, name: str, kind: DType, index: str) -> str:
    indices = h.vector(index, kind.lanes)
    return _function(h, f"{h.value_type(kind)} {name}(const {h.scalar(kind)} *p, {indices} at)", f"return {_vector(kind, 'p[at[{i}]]', h)};")


def _gather_where(h: Helpers, name: str, kind: DType, index: str) -> str:
    indices, mask = h.vector(index, kind.lanes), h.mask(kind.bits, kind.lanes)
    return _function(
        h,
        f"{h.value_type(kind)} {name}({mask} mask, const {h.scalar(kind)} *p, {indices} at)",
        f"return {_vector(kind, 'mask[{i}] ? p[at[{i}]] : 0', h)};",
    )


def _load_where(h: Helpers, name: str, kind: DType) -> str:
    """`first` may be outside the array, where no lane is touched: so it is no pointer."""
    t, bits = h.value_type(kind), kind.bits
    body = [f"return {_vector(kind, 'mask[{i}] ? p[first + {i}] : 0', h)};"]
    as_float = dtype(f"float{bits}").vector(kind.lanes) if bits >= 32 else None
    if as_float is not None and (as_float.element, kind.lanes) in _X86_FLOATS:  # a masked load of floats moves any bits
        floats, suffix = h.value_type(as_float), _X86_FLOATS[as_float.element, kind.lanes][1]
        integer = "int" if bits == 32 else "long long"
        special = (
            f"    typedef {integer} lanes_t __attribute__((vector_size({bits // 8 * kind.lanes})));\n"
            f"    return ({t})__builtin_ia32_maskload{suffix}((const {floats} *)(p + first), (lanes_t)mask);"
        )
        body = _on_x86("__AVX__", special, body)
    return _function(h, f"{t} {name}({h.mask(bits, kind.lanes)} mask, const {h.scalar(kind)} *p, int64_t first)", *body)


def _store_strided(h: Helpers, name: str, kind: DType) -> str:
    lines = [f"p[{i} * stride] = v[{i}];" for i in range(kind.lanes)]
    return _function(h, f"void {name}({h.scalar(kind)} *p, int64_t stride, {h.value_type(kind)} v)", *lines)


def _scatter(h: Helpers, name: str, kind: DType, index: str) -> str:
    lines = [f"p[at[{i}]] = v[{i}];" for i in range(kind.lanes)]
    return _function(h, f"void {name}({h.scalar(kind)} *p, {h.vector(index, kind.lanes)} at, {h.value_type(kind)} v)", *lines)


def _scatter_where(h: Helpers, name: str, kind: DType, index: str) -> str:
    lines = [f"if (mask[{i}]) p[at[{i}]] = v[{i}];" for i in range(kind.lanes)]
    mask = h.mask(kind.bits, kind.lanes)
    return _function(h, f"void {name}({mask} mask, {h.scalar(kind)} *p, {h.vector(index, kind.lanes)} at, {h.value_type(kind)} v)", *lines)


def _store_where(h: Helpers, name: str, kind: DType) -> str:
    lines = [f"if (mask[{i}]) p[first + {i}] = v[{i}];" for i in range(kind.lanes)]
    return _function(h, f"void {name}({h.mask(kind.bits, kind.lanes)} mask, {h.scalar(kind)} *p, int64_t first, {h.value_type(kind)} v)", *lines)


# ------------------------------------------------------------------------------------------------------------ integer arithmetic


def _lanewise(family: str, arity: int) -> Callable[[Helpers, str, DType], str]:
    """A function of vectors by the one of scalars on each lane."""

    def make(h: Helpers, name: str, kind: DType) -> str:
        one, t = h.use(family, kind.element), h.value_type(kind)
        words = ("a", "b")[:arity]
        each = f"{one}({', '.join(f'{w}[{{i}}]' for w in words)})"
        return _function(h, f"{t} {name}({', '.join(f'{t} {w}' for w in words)})", f"return {_vector(kind, each, h)};")

    return make


def _floor_division(remainder: bool) -> Callable[[Helpers, str, DType], str]:
    """Rounded down; by zero: 0, as in NumPy, and no trap."""

    def make(h: Helpers, name: str, kind: DType) -> str:
        if kind.lanes > 1:
            return _lanewise("floormod" if remainder else "floordiv", 2)(h, name, kind)
        t = h.scalar(kind)
        head = f"{t} {name}({t} a, {t} b)"
        if kind.kind == "uint":
            return _function(h, head, f"return b == 0 ? 0 : a {'%' if remainder else '/'} b;")
        u = h.scalar(f"uint{kind.bits}")
        if remainder:
            return _function(h, head, "if (b == 0 || b == -1) return 0;", f"{t} rest = a % b;", f"return rest != 0 && (rest ^ b) < 0 ? ({t})(rest + b) : rest;")
        return _function(h, head, "if (b == 0) return 0;", f"if (b == -1) return ({t})(0 - ({u})a);",
                         f"return ({t})(a / b - (a % b != 0 && (a ^ b) < 0));")  # fmt: skip

    return make


def _shift(sign: str) -> Callable[[Helpers, str, DType], str]:
    """A shift by any number: by the width and more, nothing is left (of a negative number shifted right, -1), as in NumPy."""

    def make(h: Helpers, name: str, kind: DType) -> str:
        t, u, bits = h.value_type(kind), _unsigned(h, kind), kind.bits
        head = f"{t} {name}({t} a, {t} b)"
        if kind.lanes == 1:
            if sign == "<<":
                return _function(h, head, f"return ({u})b < {bits} ? ({t})(({u if bits >= 32 else h.scalar('uint32')})a << b) : 0;")
            return _function(h, head, f"return a >> (({u})b < {bits} ? b : {bits - 1});" if kind.kind == "int" else f"return b < {bits} ? a >> b : 0;")
        inside = f"({u})(({u})b < {_splat(h, kind, bits)})"
        if sign == "<<" or kind.kind == "uint":
            return _function(h, head, f"return ({t})((({u})a {sign} (({u})b & {_splat(h, kind, bits - 1)})) & {inside});")
        amount = f"(({u})b & {inside}) | ({_splat(h, kind, bits - 1)} & ~{inside})"
        return _function(h, head, f"return a >> ({t})({amount});")

    return make


def _splat(h: Helpers, kind: DType, value: int) -> str:
    return f"({_unsigned(h, kind)}){{{_lanes(kind, str(value))}}}"


def _absolute(h: Helpers, name: str, kind: DType) -> str:
    t, u = h.value_type(kind), _unsigned(h, kind)
    if kind.lanes == 1:
        return _function(h, f"{t} {name}({t} a)", f"return a < 0 ? ({t})(0 - ({u})a) : a;")
    return _function(h, f"{t} {name}({t} a)", f"{u} sign = ({u})(a < 0);", f"return ({t})((({u})a ^ sign) - sign);")


def _popcount(h: Helpers, name: str, kind: DType) -> str:
    if kind.lanes > 1:
        return _lanewise("popcount", 1)(h, name, kind)
    t, u = h.scalar(kind), h.scalar(f"uint{kind.bits}")
    return _function(h, f"{t} {name}({t} a)", f"return ({t})__builtin_popcount{'ll' if kind.bits == 64 else ''}(({u})a);")


# ------------------------------------------------------------------------------------------------------------------ conversions


def _bits(h: Helpers, name: str, kind: DType, to: str) -> str:
    """The bits of a value as another type of that width."""
    t, other = h.value_type(kind), h.value_type(dtype(to).vector(kind.lanes))
    if kind.lanes > 1:
        return _function(h, f"{other} {name}({t} x)", f"return ({other})x;")
    return _function(h, f"{other} {name}({t} x)", f"union {{ {t} from; {other} to; }} both = {{x}};", "return both.to;")


def _truncate(h: Helpers, name: str, kind: DType, to: str) -> str:
    """A float as an integer; where it does not fit, the least integer (which is what x86 gives) and no undefined behaviour."""
    wide, t = dtype(to), h.scalar(kind)
    limit = f"{float(1 << (wide.bits - 1))!r}{'f' if kind == 'float32' else ''}"
    integer = h.scalar(wide)
    least = "(-2147483647 - 1)" if wide.bits == 32 else "(-9223372036854775807LL - 1)"
    return _function(h, f"{integer} {name}({t} x)", f"return x >= -{limit} && x < {limit} ? ({integer})x : {least};")


def _convert(h: Helpers, name: str, kind: DType, to: str) -> str:
    """A vector conversion that gcc, unlike clang, does lane by lane unless told how."""
    t, wide = h.value_type(kind), dtype(to).vector(kind.lanes)
    result = h.value_type(wide)
    general = f"return __builtin_convertvector(x, {result});"
    special, feature = _gcc_conversion(h, kind, wide)
    return _function(h, f"{result} {name}({t} x)", f"#if defined({feature}) && !defined(__clang__)", *special, "#else", f"    {general}", "#endif")


def has_conversion(kind: DType, to: DType) -> bool:
    """Whether the family "convert" has more to say than __builtin_convertvector."""
    widens = (kind.bits, to.bits) in ((8, 16), (8, 32), (16, 32))
    return widens and to.bits * to.lanes in (128, 256) and kind.bits * kind.lanes >= 32


def _gcc_conversion(h: Helpers, kind: DType, to: DType) -> tuple[list[str], str]:
    """Lines that use the instruction which widens the low elements of a 16-byte vector, and the macro that says the machine has it."""
    size, result = kind.bits * kind.lanes, h.value_type(to)
    low = h.vector(f"int{kind.bits}", 128 // kind.bits)
    if size < 128:
        filled = h.vector(f"int{size}", 128 // size)
        value = f"({low})({filled}){{(int{size}_t)x}}"
    else:
        value = f"({low})x"
    letters = {8: "b", 16: "w"}[kind.bits] + {16: "w", 32: "d"}[to.bits]
    instruction = f"__builtin_ia32_pmov{'s' if kind.kind == 'int' else 'z'}x{letters}{to.bits * to.lanes}"
    argument = f"(bytes_t){value}" if kind.bits == 8 else value
    typedef = ["    typedef char bytes_t __attribute__((vector_size(16)));"] if kind.bits == 8 else []
    return [*typedef, f"    return ({result}){instruction}({argument});"], "__AVX2__"


# Small floats: conversions without the machine's help. Rounding is to nearest, ties to even.


def _widen_float(h: Helpers, name: str, kind: DType) -> str:
    """A small float as float32, exactly."""
    bits = kind.bits
    single, narrow = dtype("float32").vector(kind.lanes), h.value_type(kind)
    t, u = h.value_type(single), _unsigned(h, single)
    head = f"{t} {name}({narrow} x)"
    if kind.lanes > 1 and bits == 8:
        return _function(h, head, f"return {_vector(single, h.use('widen_float', kind.element) + '(x[{i}])', h)};")
    as_float = h.use("bits", dtype("uint32").vector(kind.lanes), "float32")
    wide = f"({u})x" if kind.lanes == 1 else f"__builtin_convertvector(x, {u})"
    if kind.element == "bfloat16":
        return _function(h, head, f"return {as_float}({wide} << 16);")
    mantissa, bias, too_large, nan = SMALL_FLOATS[kind.element]
    magnitude = (1 << (bits - 1)) - 1
    special = f"(wide & {magnitude:#x}) >= {too_large:#x}"
    lines = [f"{u} wide = {wide};",
             f"{u} value = {h.use('bits', single, 'uint32')}({as_float}((wide & {magnitude:#x}) << {23 - mantissa}) * 0x1p{127 - bias}f);"]  # fmt: skip
    # The exponent is put right by the multiplication, which also makes denormals normal.
    if kind.lanes == 1:
        lines.append(f"if ({special}) value |= {'0x7fc00000u' if too_large == nan else '0x7f800000u'};")
    else:
        lines.append(f"value |= ({u})({special}) & 0x7f800000;")
    lines.append(f"return {as_float}(value | (wide & {magnitude + 1:#x}) << {32 - bits});")
    return _function(h, head, *_f16c(h, kind, lines, "x"))


def _f16c(h: Helpers, kind: DType, lines: list[str], argument: str) -> list[str]:
    """The machine's conversion of float16 where it has one. `lines` are the general way."""
    if kind.element != "float16" or kind.lanes not in (1, 4, 8):
        return lines
    h.vector("float32", 4), h.vector("int16", 8)
    if kind.lanes == 8:
        special = "return __builtin_ia32_vcvtph2ps256((int16x8)x);"
    elif kind.lanes == 4:
        h.vector("int64", 2)
        special = "return __builtin_ia32_vcvtph2ps((int16x8)(int64x2){(int64_t)x});"
    else:
        special = "return __builtin_ia32_vcvtph2ps((int16x8){(int16_t)x})[0];"
    return _on_x86("__F16C__", f"    {special}", lines)


def _narrow_float(h: Helpers, name: str, kind: DType) -> str:
    """float32 as a small float `kind`."""
    bits = kind.bits
    single = dtype("float32").vector(kind.lanes)
    t, u, narrow = h.value_type(single), _unsigned(h, single), h.value_type(kind)
    head = f"{narrow} {name}({t} x)"
    if kind.lanes > 1 and (bits == 8 or (kind.element == "float16" and kind.lanes not in (4, 8))):
        return _function(h, head, f"return {_vector(kind, h.use('narrow_float', kind.element) + '(x[{i}])', h)};")
    as_bits = h.use("bits", single, "uint32")
    if kind.element == "bfloat16":
        rounded = f"{u} value = {as_bits}(x);", f"{u} rounded = (value + 0x7fff + (value >> 16 & 1)) >> 16;"
        if kind.lanes == 1:
            return _function(h, head, *rounded, "return (uint16_t)(x != x ? value >> 16 | 0x40 : rounded);")
        select = h.use("select", dtype("uint32").vector(kind.lanes))
        return _function(h, head, *rounded, f"return __builtin_convertvector({select}(x != x, value >> 16 | 0x40, rounded), {narrow});")
    if kind.lanes > 1:
        h.vector("int16", 8)
        lane = f"return {_vector(kind, h.use('narrow_float', kind.element) + '(x[{i}])', h)};"
        if kind.lanes == 8:
            return _function(h, head, *_on_x86("__F16C__", f"    return ({narrow})__builtin_ia32_vcvtps2ph256(x, 0);", [lane]))
        h.vector("int64", 2)
        return _function(h, head, *_on_x86("__F16C__", f"    return ({narrow})((int64x2)__builtin_ia32_vcvtps2ph(x, 0))[0];", [lane]))
    return _function(h, head, *_narrow_scalar(h, kind))


def _narrow_scalar(h: Helpers, kind: DType) -> list[str]:
    mantissa, bias, too_large, nan = SMALL_FLOATS[kind.element]
    bits, drop = kind.bits, 23 - mantissa
    least_normal = (128 - bias) << 23  # bits of the least normal number
    magic = (127 - bias - mantissa + 1 + 23) << 23  # bits of the float32 whose last place is the least denormal
    as_bits, as_float = h.use("bits", dtype("float32"), "uint32"), h.use("bits", dtype("uint32"), "float32")
    lines = [
        f"uint32_t value = {as_bits}(x), sign = value >> 31 << {bits - 1}, code;",
        "value &= 0x7fffffffu;",
        f"if (value > 0x7f800000u) code = {nan:#x};",
        f"else if (value < {least_normal:#x}u) code = {as_bits}({as_float}(value) + {as_float}({magic:#x}u)) - {magic:#x}u;",
        f"else code = (value - {(127 - bias) << 23:#x}u + {(1 << (drop - 1)) - 1:#x} + (value >> {drop} & 1)) >> {drop};",
        f"return ({h.scalar(kind)})((code > {too_large:#x} && value <= 0x7f800000u ? {too_large:#x} : code) | sign);",
    ]
    if kind.element == "float16":
        special = "    return (uint16_t)__builtin_ia32_vcvtps2ph((float32x4){x}, 0)[0];"
        h.vector("float32", 4)
        return _on_x86("__F16C__", special, lines)
    return lines


def _odd_float(h: Helpers, name: str, kind: DType) -> str:
    """float64 as float32 rounded to odd, so that a second rounding to a still smaller type is right."""
    if kind.lanes > 1:
        single = dtype("float32").vector(kind.lanes)
        each = h.use("odd_float", kind.element) + "(x[{i}])"
        return _function(h, f"{h.value_type(single)} {name}({h.value_type(kind)} x)", f"return {_vector(single, each, h)};")
    as_bits, as_float = h.use("bits", dtype("float32"), "uint32"), h.use("bits", dtype("uint32"), "float32")
    return _function(
        h,
        f"float {name}(double x)",
        "float nearest = (float)x;",
        "double magnitude = __builtin_fabs(x), rounded = __builtin_fabsf(nearest);",
        "if (!(rounded < magnitude || rounded > magnitude)) return nearest;",
        f"return {as_float}(({as_bits}(nearest) - (rounded > magnitude)) | 1);",
    )


Helpers.families = {
    "broadcast": _broadcast,
    "ramp": _ramp,
    "select": _select,
    "min": _extremum("min", "<"),
    "max": _extremum("max", ">"),
    "reversed": _reversed,
    "every_second": _every_second,
    "strided": _strided,
    "gather": _gather,
    "gather_where": _gather_where,
    "load_where": _load_where,
    "store_strided": _store_strided,
    "scatter": _scatter,
    "scatter_where": _scatter_where,
    "store_where": _store_where,
    "floordiv": _floor_division(False),
    "floormod": _floor_division(True),
    "shift_left": _shift("<<"),
    "shift_right": _shift(">>"),
    "abs": _absolute,
    "popcount": _popcount,
    "bits": _bits,
    "truncate": _truncate,
    "convert": _convert,
    "widen_float": _widen_float,
    "narrow_float": _narrow_float,
    "odd_float": _odd_float,
}
