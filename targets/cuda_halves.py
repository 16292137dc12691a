"""float16 and bfloat16 in the CUDA generator: arithmetic of single values, and of vectors two at a time in words, where the GPU has instructions for it.

    C[ramp] = A[ramp] * B[ramp] + 1  ->  make_uint4(tw_add2_float16(tw_mul2_float16(A_at.x, B_at.x), 0x3c003c00u), ...)

The functions are in cuda_helpers.py. Lanes 2i (the low half) and 2i + 1 share a word, as in memory. What is no half on the way (an index, a float32) is
computed lane by lane, as everything else is: see cuda_vectors.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ..tir.dtype import DType
from ..tir.expr import EQ, NE, And, Binary, Broadcast, Call, Cast, Choice, Const, Expr, IfThenElse, Mul, Not, Or
from ..tir.stmt import Func
from ..tir.target import Target
from ..tir.visit import loads_of
from .c import CGenerator
from .c_expressions import ATOM, CHOICE
from .c_types import small_float_bits
from .cuda_functions import CudaScalars, is_reserved_in_cuda
from .cuda_lanes import LaneSplitter

_HALVES = ("float16", "bfloat16")
_OPERATIONS = {"Add": "add", "Sub": "sub", "Mul": "mul", "Min": "min", "Max": "max", "EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le"}
_MASK_OPERATORS: dict[type[Expr], str] = {And: "{} & {}", Or: "{} | {}", NE: "{} ^ {}", EQ: "~({} ^ {})", Not: "~{}"}
_ALL = "0xffffffffu"


def is_half(kind: DType) -> bool:
    """Whether two elements, 16-bit floats, share a word."""
    return kind.element in _HALVES


class CudaHalves(CGenerator):
    """Writes expressions of halves. `native_halves`: the dtypes that the target computes with."""

    language: ClassVar[str] = "CUDA"
    helpers: CudaScalars

    def __init__(self, func: Func, target: Target) -> None:
        super().__init__(func, target, CudaScalars(), is_reserved_in_cuda)
        self.native_halves = target.gpu.native_halves

    # ---------------------------------------------------------------------------------------------------------------- one value

    def text_of_Binary(self, e: Binary) -> tuple[str, int]:
        return self._half_call(_OPERATIONS[type(e).__name__], e.a, e.b) if self._is_native(e) else super().text_of_Binary(e)

    def _extremum(self, family: str, e: Binary) -> tuple[str, int]:
        return self._half_call(family, e.a, e.b) if self._is_native(e) else super()._extremum(family, e)

    def text_of_Call(self, e: Call) -> tuple[str, int]:
        return self._half_call("abs", e.args[0]) if self._is_native(e) else super().text_of_Call(e)

    def _is_native(self, e: Expr) -> bool:
        """Whether an operation, or a comparison, is one of 16-bit floats themselves."""
        kind = e.args[0].dtype if isinstance(e, Call) else e.a.dtype if isinstance(e, Binary) else e.dtype
        if kind.element not in self.native_halves:
            return False
        return e.name == "abs" if isinstance(e, Call) else type(e).__name__ in _OPERATIONS

    def _half_call(self, name: str, a: Expr, b: Expr | None = None) -> tuple[str, int]:
        if b is not None and _is_minus_one(b) and name == "mul":
            name, b = "neg", None
        arguments = ", ".join(self.text(operand) for operand in (a, b) if operand is not None)
        return f"{self.helpers.device.use(f'tw_{name}_{a.dtype.element}')}({arguments})", ATOM

    # ---------------------------------------------------------------------------------------------------------------- two values

    def word(self, e: Expr, i: int, lanes: LaneSplitter) -> str:
        """Lanes `i` (which is even) and `i + 1` of a vector of halves in one word. It stands as an argument, or as an operand that binds more tightly
        than a choice."""
        if e in lanes.words_of:
            return lanes.words_of[e][i // 2]
        if isinstance(e, Broadcast):
            return self.pair_of(e.value, e.value)
        if not self.is_in_words(e, lanes):
            return self.pair_of(lanes.lane(e, i), lanes.lane(e, i + 1))
        use, element = self.helpers.device.use, e.dtype.element
        if isinstance(e, Cast):
            first, second = (self.text(lanes.lane(e.value, lane)) for lane in (i, i + 1))
            return f"{use(f'tw_narrow_pair_{element}')}({first}, {second})"
        if isinstance(e, Choice):
            then, otherwise = self.word(e.then, i, lanes), self.word(e.otherwise, i, lanes)
            if e.condition.dtype.lanes == 1:
                return f"({self.text(e.condition, CHOICE + 1)} ? {then} : {otherwise})"
            return f"{use('tw_select2')}({self._mask_word(e.condition, i, lanes)}, {then}, {otherwise})"
        if isinstance(e, Mul) and _is_minus_one(e.b):
            return f"{use(f'tw_neg2_{element}')}({self.word(e.a, i, lanes)})"
        name = "abs" if isinstance(e, Call) else _OPERATIONS[type(e).__name__]
        return f"{use(f'tw_{name}2_{element}')}({', '.join(self.word(child, i, lanes) for child in e.children)})"

    def is_in_words(self, e: Expr, lanes: LaneSplitter) -> bool:
        """Whether the lanes of a vector of halves come two at a time: what was read or rounded so, arithmetic on such, and choices among such. Where all
        operands come one by one, so do results: they are packed once, in the end."""
        if not is_half(e.dtype) or e.dtype.lanes % 2:
            return False
        if e in lanes.words_of:
            return True
        if e not in lanes.in_words:
            if isinstance(e, Cast):
                lanes.in_words[e] = e.value.dtype.element == "float32"
            else:
                operands: tuple[Expr, ...] = e.children if self._is_native(e) else ()
                if isinstance(e, Choice) and (e.condition.dtype.lanes == 1 or self._is_mask(e.condition)):
                    operands = e.then, e.otherwise
                lanes.in_words[e] = any(self.is_in_words(operand, lanes) for operand in operands)
        return lanes.in_words[e]

    def pair_of(self, first: Expr, second: Expr) -> str:
        """Two scalars in one word."""
        if isinstance(first, Const) and isinstance(second, Const):
            return f"{small_float_bits(first.value, first.dtype) | small_float_bits(second.value, second.dtype) << 16:#x}u"
        return f"{self.helpers.device.use('tw_pair')}({self.text(first)}, {self.text(second)})"

    def _mask_word(self, e: Expr, i: int, lanes: LaneSplitter) -> str:
        """Two lanes of a vector of bools as ones in the halves of a word."""
        if isinstance(e, Broadcast):
            return f"({self.text(e.value, CHOICE + 1)} ? {_ALL} : 0)"
        if self._is_mask(e):
            if self._is_native(e):
                name = self.helpers.device.use(f"tw_{_OPERATIONS[type(e).__name__]}2_{e.children[0].dtype.element}")
                return f"{name}({', '.join(self.word(child, i, lanes) for child in e.children)})"
            return f"({_MASK_OPERATORS[type(e)].format(*(self._mask_word(child, i, lanes) for child in e.children))})"
        first, second = (self.text(lanes.lane(e, lane), CHOICE + 1) for lane in (i, i + 1))
        return f"(({first} ? 0xffffu : 0) | ({second} ? 0xffff0000u : 0))"

    def _is_mask(self, e: Expr) -> bool:
        """Whether a vector of bools is a comparison of 16-bit floats that gives a mask, or is made of other vectors of bools."""
        return self._is_native(e) or (type(e) in _MASK_OPERATORS and all(child.dtype.is_bool for child in e.children))

    def words_before(self, value: Expr, lanes: LaneSplitter, is_stored_in_words: bool) -> Iterator[Expr]:
        """What of a value is computed in words and then taken apart, innermost first: the caller declares each before it asks for the next.

        `is_stored_in_words`: the value itself is not taken apart.
        """
        seen: set[tuple[Expr, bool]] = set()

        def visit(e: Expr, stays: bool, lazily: bool) -> Iterator[Expr]:
            if e.dtype.lanes == 1 or e in lanes.words_of or (e, stays) in seen:
                return
            seen.add((e, stays))
            is_word = self.is_in_words(e, lanes)
            together = is_word and not isinstance(e, Cast) if is_half(e.dtype) else stays and self._is_mask(e)
            for child in e.children:
                yield from visit(child, together, lazily or (isinstance(e, IfThenElse) and child is not e.condition))
            if is_word and together and not stays and (not lazily or all(load in lanes.lanes_of for load in loads_of(e))):
                yield e

        yield from visit(value, is_stored_in_words, False)


def _is_minus_one(e: Expr) -> bool:
    e = e.value if isinstance(e, Broadcast) else e
    return isinstance(e, Const) and e.value == -1
