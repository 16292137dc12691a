"""Vector math for the C generator: `exp`, `log`, `tanh`, ... as C text, for float32 and float64 and any power-of-two number of lanes.

A kernel's source gets the definitions it uses and no others (`MathLibrary`). They are written in GNU C vector extensions, which gcc and
clang both compile for any machine, and mean the same without -ffast-math: NaN, infinities, denormal arguments and results and -0.0 are
right. One lane (a scalar) runs the same algorithm as many, so the tail of a vectorised loop agrees with its body. What the functions
compute, with which constants and how accurately, is the table in c_math_table.py; this file turns a line of it into C.

The text assumes rounding to nearest and the default of gradual underflow. It needs <stdint.h>, and -lm where a machine has no
instruction for `floor` or `fma`, for `pow`, and for huge arguments of `sin` and `cos`. gcc is told -Wno-psabi: nothing here is called
across files.
"""

from __future__ import annotations

import itertools
import math
import re
from functools import cache

from ..tir.errors import InternalError
from .c_math_table import CONSTANTS, FUNCTIONS, POLYNOMIALS, MathFunction

_LONG_POLYNOMIAL = 8  # coefficients
# C's name, the element types of masks and of what a predicate gives, the suffix of C's functions and literals
_ELEMENTS = {"float32": ("float", "uint32", "int32", "f"), "float64": ("double", "uint64", "int64", "")}
_SIZES = {"float32": 4, "float64": 8, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}  # bytes
_SCALARS = {
    "float32": "float",
    "float64": "double",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
}

_CALL = re.compile(r"\$(\w+)")
_TYPE = re.compile(r"\b[FUIS]\b")
_CONSTANT = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_POLYNOMIAL = re.compile(r"^F (\w+) = polynomial\((\w+), (\w+)\);$", re.M)
_LITERAL = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
_MACHINE = re.compile(r"machine\((\w+), ([\w, ]+)\)")
_LANEWISE = re.compile(r"lanewise\((\w+), ([\w, ]+)\)")


def vector_typedef(element: str, lanes: int) -> str:
    """The C typedef of `lanes` values of an element type: ("float32", 8) -> `typedef float float32x8 __attribute__((vector_size(32)));`."""
    return f"typedef {_SCALARS[element]} {element}x{lanes} __attribute__((vector_size({_SIZES[element] * lanes})));"


class MathLibrary:
    """The math functions that one C source uses.

    `use` while generating the kernels' bodies, then put `emit` before them.

    Arguments: `vector_bytes`: of the machine's widest vector register, 16 or more (`Target.vector_bytes`). Wider vectors are computed in
    halves: a compiler would take many of these operations apart lane by lane.
    """

    def __init__(self, vector_bytes: int = 64) -> None:
        self._vector_bytes = vector_bytes
        self._used: dict[tuple[str, str, int], None] = {}  # in dependency order

    def use(self, name: str, dtype: str, lanes: int) -> str:
        """Ask for a function; returns its C name, for example "tw_exp_float32x8" (lanes 1: "tw_exp_float32").

        Arguments and result are vectors of that many lanes (lanes 1: `float`, `double`). `isnan`, `isinf` and `isfinite` give what a C
        comparison gives: a signed integer vector as wide as the operand with lanes 0 and -1, or for one lane an `int` 0 or 1.
        Raises InternalError for a function, an element type (only float32 and float64) or a lane count that does not exist here.
        """
        _check(name, dtype, lanes)
        self._add(name, dtype, lanes)
        return function_name(name, dtype, lanes)

    def _add(self, name: str, dtype: str, lanes: int) -> None:
        if (name, dtype, lanes) not in self._used:
            if self._is_split(dtype, lanes):
                self._add(name, dtype, lanes // 2)
            else:
                for dependency in dependencies(name, dtype, lanes):
                    self._add(dependency, dtype, lanes)
            self._used[name, dtype, lanes] = None

    def _is_split(self, dtype: str, lanes: int) -> bool:
        return lanes * _SIZES[dtype] > self._vector_bytes

    def emit(self, declared: set[str] | None = None) -> str:
        """C text of everything used, callees first, preceded by the vector typedefs it needs.

        `declared`: names of vector types whose typedef the source has already; those written here are added to it.
        """
        declared = set() if declared is None else declared
        typedefs = []
        for _, dtype, lanes in self._used:
            for element in () if lanes == 1 else (dtype, *_ELEMENTS[dtype][1:3]):
                if f"{element}x{lanes}" not in declared:
                    declared.add(f"{element}x{lanes}")
                    typedefs.append(vector_typedef(element, lanes))
        definitions = [(split_source if self._is_split(*used[1:]) else math_source)(*used)[1] for used in self._used]
        return "\n".join(([*typedefs, ""] if typedefs else []) + definitions)


def function_name(name: str, dtype: str, lanes: int) -> str:
    """The C name of a math function: ("exp", "float32", 8) -> "tw_exp_float32x8"; one that only others here call: "tw_math_bits_float32x8"."""
    return f"{'tw' if FUNCTIONS[name].public else 'tw_math'}_{name}_{_type_name(dtype, lanes)}"


@cache
def dependencies(name: str, dtype: str, lanes: int) -> tuple[str, ...]:
    """Names of the functions that a definition calls directly, each once."""
    return tuple(dict.fromkeys(_CALL.findall(_body(FUNCTIONS[name], dtype, lanes))))


@cache
def math_source(name: str, dtype: str, lanes: int) -> tuple[str, str]:
    """C name and definition (`static inline`, always inlined) of one function; what it calls is in `dependencies`."""
    function = FUNCTIONS[name]
    body = _LITERAL.sub(lambda m: _constant(float(m[0]), dtype), _body(function, dtype, lanes))
    body = _POLYNOMIAL.sub(lambda m: _polynomial(m[1], POLYNOMIALS[dtype][m[2]], m[3], dtype), body)
    body = body.replace("any_word(w)", " | ".join(f"w[{i}]" for i in range(max(1, _SIZES[dtype] * lanes // 8))))
    body = _MACHINE.sub(lambda m: _machine_instruction(m[1], m[2], dtype, lanes), body)
    body = _LANEWISE.sub(lambda m: _each_lane(m[1], m[2].split(", "), dtype, lanes), body)
    text = _definition(name, dtype, lanes, body)
    text = _CALL.sub(lambda m: function_name(m[1], dtype, lanes), text)
    text = _CONSTANT.sub(lambda m: _constant(CONSTANTS[dtype][m[0]], dtype) if m[0] in CONSTANTS[dtype] else m[0], text)
    return function_name(name, dtype, lanes), text


@cache
def split_source(name: str, dtype: str, lanes: int) -> tuple[str, str]:
    """As `math_source`, but calls the function of half as many lanes twice. For functions of vectors (F), which all public ones are."""
    function, half = FUNCTIONS[name], lanes // 2
    names = [parameter.split()[1] for parameter in function.parameters]
    inner = dict(zip("FUIS", _types(dtype, half), strict=True))
    body = [f"union {{ F whole; {inner['F']} half[2]; }} {', '.join(f'{n}_in = {{{n}}}' for n in names)};"]
    body.append(f"union {{ {function.result} whole; {inner[function.result]} half[2]; }} out;")
    for i in range(2):
        call = f"{function_name(name, dtype, half)}({', '.join(f'{n}_in.half[{i}]' for n in names)})"
        body.append(f"out.half[{i}] = {call};")
    return function_name(name, dtype, lanes), _definition(name, dtype, lanes, "\n".join([*body, "return out.whole;"]))


def _definition(name: str, dtype: str, lanes: int, body: str) -> str:
    function = FUNCTIONS[name]
    lines = [line if line.startswith("#") else f"    {line}" for line in body.strip().split("\n")]
    head = f"{function.result} {function_name(name, dtype, lanes)}({', '.join(function.parameters)}) {{"
    types = dict(zip("FUIS", _types(dtype, lanes), strict=True))
    text = _TYPE.sub(lambda m: types[m[0]], "\n".join([head, *lines, "}", ""]))
    return f"static inline __attribute__((always_inline)) {text}"


def _check(name: str, dtype: str, lanes: int) -> None:
    if name not in FUNCTIONS or not FUNCTIONS[name].public:
        raise InternalError(f"no vector math function {name!r}: expected one of {', '.join(f for f in FUNCTIONS if FUNCTIONS[f].public)}")
    if dtype not in _ELEMENTS:
        raise InternalError(f"math function {name} of {dtype}: expected float32 or float64; the legalise pass should have cast it")
    if lanes < 1 or lanes & (lanes - 1):
        raise InternalError(f"math function {name} of {lanes} lanes: expected a power of two; the vectorize pass should have split it")


def _type_name(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"{element}x{lanes}"


def _types(dtype: str, lanes: int) -> tuple[str, str, str, str]:
    """C types of the values, of the masks, of what a predicate gives, and of one lane."""
    scalar, unsigned, signed, _ = _ELEMENTS[dtype]
    if lanes == 1:
        return scalar, _SCALARS[unsigned], "int", scalar
    return f"{dtype}x{lanes}", f"{unsigned}x{lanes}", f"{signed}x{lanes}", scalar


def _body(function: MathFunction, dtype: str, lanes: int) -> str:
    if isinstance(function.body, str):
        return function.body
    return function.body["scalar" if lanes == 1 else "vector"] if "scalar" in function.body else function.body[dtype]


def _constant(value: float | int, dtype: str) -> str:
    if isinstance(value, int):
        suffix = "u" if dtype == "float32" else "ull"
        return f"{value}" if value < 64 else f"{value:#x}{suffix}"
    if math.isinf(value):
        return f"__builtin_inf{_ELEMENTS[dtype][3]}()"
    if math.isnan(value):
        return f'__builtin_nan{_ELEMENTS[dtype][3]}("")'
    return f"{value!r}{_ELEMENTS[dtype][3]}"


def _polynomial(result: str, coefficients: tuple[float, ...], variable: str, dtype: str) -> str:
    """Statements for c0 + c1 x + c2 x^2 + ..., each one multiply-add or a square: the compiler has no choice of what to fuse.

    Short ones by Horner's scheme, which has the fewest operations; long ones by Estrin's (pairs, then pairs of pairs with x^2, x^4, ...),
    whose chain of dependent operations is short.
    """
    terms = [_constant(c, dtype) for c in coefficients]
    if len(terms) < _LONG_POLYNOMIAL:
        first = f"F {result} = {variable} * {terms[-1]} + {terms[-2]};"
        return "\n".join([first, *(f"{result} = {result} * {variable} + {c};" for c in terms[-3::-1])])
    lines, power = [], variable
    for level in itertools.count():
        pairs = [(f"{result}{level}_{i // 2}", i) for i in range(0, len(terms) - 1, 2)] if len(terms) > 2 else [(result, 0)]
        lines += [f"F {name} = {power} * {terms[i + 1]} + {terms[i]};" for name, i in pairs]
        if len(terms) == 2:
            return "\n".join(lines)
        terms = [name for name, _ in pairs] + terms[2 * len(pairs) :]
        square = f"{result}_{variable}{2 << level}"
        lines.append(f"F {square} = {power} * {power};")
        power = square
    raise AssertionError


def _each_lane(function: str, arguments: list[str], dtype: str, lanes: int) -> str:
    """A C function of one value applied to every lane; both compilers make one vector instruction of it where the machine has it."""
    call = f"__builtin_{function}{_ELEMENTS[dtype][3]}"
    if lanes == 1:
        return f"{call}({', '.join(arguments)})"
    return "(F){" + ", ".join(f"{call}({', '.join(f'{a}[{i}]' for a in arguments)})" for i in range(lanes)) + "}"


def _machine_instruction(function: str, arguments: str, dtype: str, lanes: int) -> str:
    """Return of an x86 instruction where gcc does not find it by itself; what follows in the body means the same on any machine."""
    guard = {16: "__SSE2__", 32: "__AVX__"}.get(_SIZES[dtype] * lanes)
    if guard is None:
        return ""
    suffix = f"p{'s' if dtype == 'float32' else 'd'}{'256' if guard == '__AVX__' else ''}"
    return f"#ifdef {guard}\nreturn __builtin_ia32_{function}{suffix}({arguments});\n#endif"
