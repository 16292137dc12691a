"""C text of expressions: tables of operators with their precedence, and what scalars, vectors and masks need beyond an operator.

What an expression means is said in tir/expr.py; here is how C says it. Signed arithmetic that may wrap is done on unsigned operands (signed
overflow is undefined in C); a vector of bools is a mask whose width the reader asks for. A node that a pass should have removed is an
InternalError that names the pass. The statements around expressions are in c.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ..tir.bounds import constant_bounds
from ..tir.dtype import DType, dtype
from ..tir.errors import InternalError
from ..tir.expr import Binary, Broadcast, Buffer, Call, Cast, Choice, Const, Expr, Load, Not, Ramp, Var
from ..tir.visit import dispatch_table
from .c_helpers import Helpers, has_conversion
from .c_types import SMALL_FLOATS, float_constant, integer_constant, is_reserved, small_float_bits
from .writer import Identifiers

# How tightly C operators bind. Where precedence surprises readers (shifts, bit operations beside arithmetic) their operands get parentheses.
CHOICE, OR, AND, EQUALITY, RELATION, BITS, SUM, PRODUCT, UNARY, ATOM = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

# class of node -> operator, its precedence, what each side asks for
OPERATORS: dict[str, tuple[str, int, int, int]] = {
    "Add": ("+", SUM, SUM, SUM + 1),
    "Sub": ("-", SUM, SUM, SUM + 1),
    "Mul": ("*", PRODUCT, PRODUCT, PRODUCT + 1),
    "Div": ("/", PRODUCT, PRODUCT, PRODUCT + 1),
    "LT": ("<", RELATION, SUM, SUM),
    "LE": ("<=", RELATION, SUM, SUM),
    "EQ": ("==", EQUALITY, SUM, SUM),
    "NE": ("!=", EQUALITY, SUM, SUM),
    "And": ("&&", AND, AND, AND),
    "Or": ("||", OR, AND + 1, AND + 1),
}
# function -> the same, where an operator does it on integers
INTEGER_CALLS: dict[str, tuple[str, int, int, int]] = {
    "bitwise_and": ("&", BITS, UNARY, UNARY),
    "bitwise_or": ("|", BITS, UNARY, UNARY),
    "bitwise_xor": ("^", BITS, UNARY, UNARY),
    "truncdiv": ("/", PRODUCT, PRODUCT, PRODUCT + 1),
    "truncmod": ("%", PRODUCT, PRODUCT, PRODUCT + 1),
}
MASK_OPERATORS = {"And": "&", "Or": "|", "EQ": "^", "NE": "^"}


class CExpressions:
    """Writes expressions. Attributes: `names` of variables and buffers; `helpers` used so far; `mask_bits` of vector variables of bools;
    `registers`: for a buffer that lives in variables, the variable of each (first element, lanes)."""

    language: ClassVar[str] = "C"
    _table: ClassVar[dict[type, Callable[..., tuple[str, int]]]]

    def __init_subclass__(cls) -> None:
        cls._table = dispatch_table(cls, "text_of_")

    def __init__(self, helpers: Helpers, is_reserved: Callable[[str], bool] = is_reserved) -> None:
        self.helpers = helpers
        self.names = Identifiers(is_reserved)
        self.mask_bits: dict[Var, int] = {}
        self.registers: dict[Buffer, dict[tuple[int, int], str]] = {}

    def text(self, e: Expr, level: int = 0) -> str:
        """`e` in C, in parentheses where it binds less tightly than `level`."""
        if e.dtype.is_bool and e.dtype.lanes > 1:
            return self.mask(e, natural_mask_bits(e, self.mask_bits), level)
        return _inside(self._table[e.__class__](self, e), level)

    def refuse(self, what: object, pass_name: str) -> InternalError:
        """The error for a node that a pass should have removed."""
        return InternalError(f"the {self.language} generator met {type(what).__name__} {what}: pass {pass_name!r} should have removed it")

    # ------------------------------------------------------------------------------------------------------------------- leaves

    def text_of_Var(self, e: Var) -> tuple[str, int]:
        if not self.names.knows(e):
            raise InternalError(f"the {self.language} generator met the variable {e.name!r} outside what introduces it: some pass left it behind")
        return self.names.of(e), ATOM

    def text_of_Const(self, e: Const) -> tuple[str, int]:
        if e.dtype.element in SMALL_FLOATS:
            return f"{small_float_bits(e.value, e.dtype):#x}", ATOM
        if e.dtype.is_bool:
            return str(e.value), ATOM
        if e.dtype.is_float:
            text, token = float_constant(e.value, e.dtype)
        else:
            text, token = integer_constant(int(e.value), e.dtype)
        return text, ATOM if token else UNARY

    def text_of_Broadcast(self, e: Broadcast) -> tuple[str, int]:
        return f"{self.helpers.use('broadcast', e.dtype)}({self.text(e.value)})", ATOM

    def text_of_Ramp(self, e: Ramp) -> tuple[str, int]:
        return f"{self.helpers.use('ramp', e.dtype)}({self.text(e.base)}, {self.text(e.stride)})", ATOM

    # --------------------------------------------------------------------------------------------------------------- arithmetic

    def text_of_Binary(self, e: Binary) -> tuple[str, int]:
        """Add, Sub, Mul, Div, and comparisons of scalars."""
        name, kind = type(e).__name__, e.a.dtype
        if kind.element in SMALL_FLOATS:
            raise self.refuse(e, "legalize")
        symbol, precedence, left, right = OPERATORS[name]
        if name in ("Add", "Sub", "Mul") and kind.is_integer and not e.exact:
            return self._wrapping(e, symbol, precedence, left, right)
        if name == "Add" and kind.kind == "int" and e.b.__class__ is Const and -(1 << 31) < e.b.value < 0:
            return f"{self.text(e.a, left)} - {-e.b.value}", precedence
        if kind.lanes > 1 and kind.is_float:
            return f"{self._scalar_operand(e.a, e.b, left)} {symbol} {self._scalar_operand(e.b, e.a, right)}", precedence
        return f"{self.text(e.a, left)} {symbol} {self.text(e.b, right)}", precedence

    def _scalar_operand(self, e: Expr, other: Expr, level: int) -> str:
        """A float vector operand; a broadcast beside a true vector is written as its scalar, which GNU C broadcasts."""
        if e.__class__ is Broadcast and other.__class__ is not Broadcast:
            return self.text(e.value, level)
        return self.text(e, level)

    def _wrapping(self, e: Binary, symbol: str, precedence: int, left: int, right: int) -> tuple[str, int]:
        kind = e.dtype
        if kind.kind == "uint" and (kind.bits >= 32 or kind.lanes > 1):
            return f"{self.text(e.a, left)} {symbol} {self.text(e.b, right)}", precedence
        if kind.bits < 32 and kind.lanes == 1:  # C computes in int, where these cannot overflow
            return f"({self.helpers.scalar(kind)})({self.text(e.a, left)} {symbol} {self.text(e.b, right)})", UNARY
        return f"({self.helpers.value_type(kind)})({self._unsigned(e, 0)})", UNARY

    def _unsigned(self, e: Expr, level: int) -> str:
        """The value of a signed integer expression in the unsigned type of its width; a chain of operations is cast once."""
        symbol = {"Add": "+", "Sub": "-", "Mul": "*"}.get(type(e).__name__)
        if symbol is not None and not e.exact:
            precedence = PRODUCT if symbol == "*" else SUM
            return _inside((f"{self._unsigned(e.a, precedence)} {symbol} {self._unsigned(e.b, precedence + 1)}", precedence), level)  # type: ignore[attr-defined]
        unsigned = self.helpers.vector(f"u{e.dtype.element}", e.dtype.lanes)
        return _inside((f"({unsigned}){self.text(e, UNARY)}", UNARY), level)

    def text_of_FloorDiv(self, e: Binary) -> tuple[str, int]:
        return self._call("floordiv", e.dtype, e.a, e.b)

    def text_of_FloorMod(self, e: Binary) -> tuple[str, int]:
        return self._call("floormod", e.dtype, e.a, e.b)

    def text_of_Min(self, e: Binary) -> tuple[str, int]:
        return self._extremum("min", e)

    def text_of_Max(self, e: Binary) -> tuple[str, int]:
        return self._extremum("max", e)

    def _extremum(self, family: str, e: Binary) -> tuple[str, int]:
        if e.dtype.element in SMALL_FLOATS or e.dtype.is_bool:
            raise self.refuse(e, "legalize")
        return self._call(family, e.dtype, e.a, e.b)

    def _call(self, family: str, kind: DType, *args: Expr) -> tuple[str, int]:
        return f"{self.helpers.use(family, kind)}({', '.join([self.text(a) for a in args])})", ATOM

    # -------------------------------------------------------------------------------------------------------- choices and bools

    def text_of_Comparison(self, e: Binary) -> tuple[str, int]:
        return self.text_of_Binary(e)

    def text_of_And(self, e: Binary) -> tuple[str, int]:
        symbol, precedence, left, right = OPERATORS[type(e).__name__]
        return f"{self.text(e.a, left)} {symbol} {self.text(e.b, right)}", precedence

    def text_of_Or(self, e: Binary) -> tuple[str, int]:
        return self.text_of_And(e)

    def text_of_Not(self, e: Not) -> tuple[str, int]:
        return f"!{self.text(e.a, UNARY)}", UNARY

    def text_of_Choice(self, e: Choice) -> tuple[str, int]:
        if e.condition.dtype.lanes == 1:
            return f"{self.text(e.condition, CHOICE + 1)} ? {self._arm(e.then)} : {self._arm(e.otherwise)}", CHOICE
        if type(e).__name__ == "IfThenElse":
            raise self.refuse(e, "legalize")
        select = self.helpers.use("select", e.dtype)
        return f"{select}({self.mask(e.condition, e.dtype.bits)}, {self.text(e.then)}, {self.text(e.otherwise)})", ATOM

    def _arm(self, e: Expr) -> str:
        """One arm of a conditional expression: both must be of one C type, and what begins with a vector in memory has one of its own."""
        return f"({self.helpers.value_type(e.dtype)}){self.text(e, UNARY)}" if e.dtype.lanes > 1 else self.text(e, CHOICE + 1)

    def mask(self, e: Expr, bits: int, level: int = 0) -> str:
        """A vector of bools as a mask with elements of `bits` bits."""
        natural = natural_mask_bits(e, self.mask_bits)
        if natural != bits:
            return f"__builtin_convertvector({self.mask(e, natural)}, {self.helpers.mask(bits, e.dtype.lanes)})"
        return _inside(self._mask(e, bits), level)

    def _mask(self, e: Any, bits: int) -> tuple[str, int]:
        name, lanes, h = type(e).__name__, e.dtype.lanes, self.helpers
        if name in ("EQ", "NE", "And", "Or") and e.a.dtype.is_bool:
            text = f"{self.mask(e.a, bits, UNARY)} {MASK_OPERATORS[name]} {self.mask(e.b, bits, UNARY)}"
            return (f"~({text})", UNARY) if name == "EQ" else (text, BITS)
        if name in ("LT", "LE", "EQ", "NE"):
            if e.a.dtype.is_bool:
                raise self.refuse(e, "legalize")
            return self.text_of_Binary(e)
        if name == "Not":
            return f"~{self.mask(e.a, bits, UNARY)}", UNARY
        if name == "Broadcast":
            element = dtype(f"int{bits}")
            return f"{h.use('broadcast', element.vector(lanes))}(-({self.text(e.value)}))", ATOM
        if name == "Cast":
            return f"{self.text(e.value, SUM)} != {self._zero(e.value.dtype)}", EQUALITY
        if name == "Load":
            return f"{self._load(e)} != ({h.vector('uint8', lanes)}){{0}}", EQUALITY
        if name in ("Select", "IfThenElse"):
            then, otherwise = self.mask(e.then, bits, UNARY), self.mask(e.otherwise, bits, UNARY)
            if e.condition.dtype.lanes == 1:
                return f"{self.text(e.condition, CHOICE + 1)} ? {then} : {otherwise}", CHOICE
            if name == "IfThenElse":
                raise self.refuse(e, "legalize")
            condition = self.mask(e.condition, bits, UNARY)
            return f"({condition} & {then}) | (~{condition} & {otherwise})", BITS
        return self._table[e.__class__](self, e)

    def _zero(self, kind: DType) -> str:
        return f"({self.helpers.value_type(kind)}){{0}}"

    # -------------------------------------------------------------------------------------------------------------- conversions

    def text_of_Cast(self, e: Cast) -> tuple[str, int]:
        source, to, h = e.value.dtype, e.dtype, self.helpers
        small = [k for k in (source, to) if k.element in SMALL_FLOATS]
        if small:
            return self._small_float(e, source, to)
        if to.is_bool:
            return f"{self.text(e.value, SUM)} != 0", EQUALITY
        if to.lanes > 1:
            if source.is_bool:
                bits = to.bits
                mask = f"-{self.mask(e.value, bits, UNARY)}"
                if to.kind == "int":
                    return mask, UNARY
                return f"__builtin_convertvector({mask}, {h.value_type(to)})", ATOM
            if source.is_integer and to.is_integer and has_conversion(source, to):
                return f"{h.use('convert', source, to.element)}({self.text(e.value)})", ATOM
            return f"__builtin_convertvector({self.text(e.value)}, {h.value_type(to)})", ATOM
        if source.is_float and to.is_integer:
            if to not in ("int32", "int64"):
                raise self.refuse(e, "legalize")
            return f"{h.use('truncate', source, to)}({self.text(e.value)})", ATOM
        return f"({self.helpers.scalar(to)}){self.text(e.value, UNARY)}", UNARY

    def _small_float(self, e: Cast, source: DType, to: DType) -> tuple[str, int]:
        h, value = self.helpers, self.text(e.value)
        if source.element in SMALL_FLOATS and to.element == "float32":
            return f"{h.use('widen_float', source)}({value})", ATOM
        if source.element == "float32":
            return f"{h.use('narrow_float', to)}({value})", ATOM
        if source.element == "float64" and to.element in SMALL_FLOATS:
            return f"{h.use('narrow_float', to)}({h.use('odd_float', source)}({value}))", ATOM
        raise self.refuse(e, "legalize")

    def text_of_Call(self, e: Call) -> tuple[str, int]:
        kind, h = e.args[0].dtype, self.helpers
        if e.name == "wrap":
            return self.text(e.args[0], ATOM), ATOM
        if e.name == "reinterpret":
            if self.helpers.scalar(kind) == self.helpers.scalar(e.dtype):
                return self.text(e.args[0], ATOM), ATOM
            if kind.lanes == 1 and not {kind.kind, e.dtype.kind} <= {"int", "uint"}:
                return f"{h.use('bits', kind, e.dtype)}({self.text(e.args[0])})", ATOM
            return f"({h.value_type(e.dtype)}){self.text(e.args[0], UNARY)}", UNARY
        if kind.is_float:
            if kind.element in SMALL_FLOATS:
                raise self.refuse(e, "legalize")
            return self.function_of_floats(e)
        if e.name in ("shift_left", "shift_right"):
            return self._shift(e)
        if e.name in INTEGER_CALLS:
            symbol, precedence, left, right = INTEGER_CALLS[e.name]
            return f"{self.text(e.args[0], left)} {symbol} {self.text(e.args[1], right)}", precedence
        if e.name == "bitwise_not":
            text = f"~{self.text(e.args[0], UNARY)}"
            return (f"({self.helpers.scalar(kind)}){text}" if kind.lanes == 1 and kind.bits < 32 else text), UNARY
        if e.name == "abs" and kind.kind == "uint":
            return self.text(e.args[0], ATOM), ATOM
        return self._call(e.name, kind, *e.args)

    def function_of_floats(self, e: Call) -> tuple[str, int]:
        """Hook: a function of floats such as exp."""
        kind = e.args[0].dtype
        return f"{self.helpers.math.use(e.name, kind.element, kind.lanes)}({', '.join([self.text(a) for a in e.args])})", ATOM

    def _shift(self, e: Call) -> tuple[str, int]:
        """By what is certainly in range, C's operator; else a function that minds the range."""
        a, b, kind = e.args[0], e.args[1], e.dtype
        amount = b.value if b.__class__ is Broadcast else b
        low, high = constant_bounds(amount)
        if (kind.lanes > 1 and amount.__class__ is not Const) or low is None or high is None or low < 0 or high >= kind.bits:
            return self._call(e.name, kind, a, b)
        count = self.text(amount, UNARY)
        if e.name == "shift_right":
            return f"{self.text(a, UNARY)} >> {count}", BITS
        if kind.kind == "uint" and (kind.bits >= 32 or kind.lanes > 1):
            return f"{self.text(a, UNARY)} << {count}", BITS
        unsigned = self.helpers.vector(f"uint{kind.bits}" if kind.lanes > 1 or kind.bits > 32 else "uint32", kind.lanes)
        return f"({self.helpers.value_type(kind)})(({unsigned}){self.text(a, UNARY)} << {count})", UNARY

    # ------------------------------------------------------------------------------------------------------------------- memory

    def text_of_Load(self, e: Load) -> tuple[str, int]:
        scalar = e.dtype.lanes == 1
        return self._load(e), EQUALITY if e.dtype.is_bool else ATOM if scalar else UNARY

    def _load(self, e: Load) -> str:
        index = self._flat_index(e.buffer, e.indices, e)
        kind = e.dtype
        if e.predicate is not None and e.predicate.dtype.lanes == 1:
            raise self.refuse(e, "legalize")
        register = self.register(e.buffer, index)
        if register is not None:
            if e.predicate is not None:
                stored = in_memory(kind)
                return f"{self.helpers.use('select', stored)}({self.mask(e.predicate, kind.bits)}, {register}, {self._zero(stored)})"
            return register + (" != 0" if kind.is_bool and kind.lanes == 1 else "")
        if kind.lanes == 1:
            return f"{self.buffer(e.buffer)}[{self.text(index)}]" + (" != 0" if kind.is_bool else "")
        return self.vector_load(e, index)

    def vector_load(self, e: Load, index: Expr) -> str:
        """A vector from memory. Hook: how a target reads consecutive, strided and scattered elements."""
        kind, h = in_memory(e.dtype), self.helpers
        stride = constant_stride(index)
        if e.predicate is not None:
            mask = self.mask(e.predicate, kind.bits)
            if stride == 1:
                return f"{h.use('load_where', kind)}({mask}, {self.buffer(e.buffer)}, {self.text(index.base)})"  # type: ignore[attr-defined]
            return f"{h.use('gather_where', kind, index.dtype.element)}({mask}, {self.buffer(e.buffer)}, {self.text(index)})"
        if index.__class__ is not Ramp:
            return f"{h.use('gather', kind, index.dtype.element)}({self.buffer(e.buffer)}, {self.text(index)})"
        place = self.address(e.buffer, index.base)
        if stride == 1:
            return f"*(const {h.memory_vector(kind)} *){place}"
        if stride == -1:
            return f"{h.use('reversed', kind)}({place})"
        if stride == 2 and kind.lanes >= 4:
            return f"{h.use('every_second', kind)}({place})"
        return f"{h.use('strided', kind)}({place}, {self.text(index.stride)})"

    def register(self, buffer: Buffer, index: Expr) -> str | None:
        """The variable that holds this part of a buffer that lives in registers; None for a buffer in memory."""
        pieces = self.registers.get(buffer)
        return None if pieces is None else pieces[constant_piece(index)]  # type: ignore[index]

    def buffer(self, buffer: Buffer) -> str:
        """The C name of a buffer, a pointer or an array."""
        if not self.names.knows(buffer):
            raise InternalError(f"the {self.language} generator met buffer {buffer.name!r} outside its Allocate: some pass moved an access out of it")
        return self.names.of(buffer)

    def address(self, buffer: Buffer, index: Expr) -> str:
        """The address of an element."""
        return f"&{self.buffer(buffer)}[{self.text(index)}]"

    def _flat_index(self, buffer: Buffer, indices: tuple[Expr, ...], where: object) -> Expr:
        if len(indices) != 1:
            raise self.refuse(where, "flatten")
        return indices[0]


CExpressions.__init_subclass__.__func__(CExpressions)  # type: ignore[attr-defined]


def _inside(text: tuple[str, int], level: int) -> str:
    return text[0] if text[1] >= level else f"({text[0]})"


def constant_stride(index: Expr) -> int | None:
    if index.__class__ is Ramp and index.stride.__class__ is Const:
        return index.stride.value  # type: ignore[no-any-return]
    return None


def constant_piece(index: Expr) -> tuple[int, int] | None:
    """(first element, lanes) of an index that is a constant or consecutive from a constant on; None for any other."""
    if index.__class__ is Const:
        return index.value, 1
    if constant_stride(index) == 1 and index.base.__class__ is Const:  # type: ignore[attr-defined]
        return index.base.value, index.dtype.lanes  # type: ignore[attr-defined]
    return None


def in_memory(kind: DType) -> DType:
    """A bool is a byte in memory."""
    return dtype("uint8").vector(kind.lanes) if kind.is_bool else kind


def natural_mask_bits(e: Expr, of_variables: dict[Var, int]) -> int:
    """The width of a mask that needs no conversion: that of the compared elements."""
    name = type(e).__name__
    if name == "Var":
        return of_variables[e]  # type: ignore[index]
    if name in ("LT", "LE", "EQ", "NE", "And", "Or") or name == "Not":
        a: Expr = e.a  # type: ignore[attr-defined]
        return natural_mask_bits(a, of_variables) if a.dtype.is_bool else a.dtype.bits
    if name in ("Cast", "Broadcast"):
        return max(8, e.value.dtype.bits) if name == "Cast" else 32  # type: ignore[attr-defined]
    if name == "Call":
        return e.args[0].dtype.bits  # type: ignore[attr-defined, no-any-return]
    if name in ("Select", "IfThenElse"):
        return natural_mask_bits(e.then, of_variables)  # type: ignore[attr-defined]
    return 8
