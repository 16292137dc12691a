"""Expressions: the nodes, the operators that build them, and the folding constructors.

What an expression means (the one place where this is said):

* Integers. Arithmetic on loop variables, sizes and constants is *exact* (`Expr.exact`): it means the mathematical value, and the narrow pass
  chooses a width that holds it (so an integer constant may exceed its nominal dtype). Arithmetic that involves data (a load, a call, a narrowing
  cast) wraps in its dtype, two's complement. Rewrites that hold only without wrapping apply to exact nodes only.
* There is one integer division: `//` floors, `%` has the sign of the divisor; by zero both give 0, as in NumPy, and nothing traps. `/` is for
  floats. Only the C generator knows that C truncates.
* Floats are IEEE and are not reassociated; a product feeding a sum may be contracted to an fma by the C compiler. `min` and `max` propagate NaN.
  A constant is rounded to its dtype when made, and folding rounds as the operation would.
* Evaluation order is free: expressions have no effects. `Select` evaluates both arms; `IfThenElse` only the one taken, which is how an
  access is guarded; `And` and `Or` evaluate both sides unless inside a condition of `IfThenElse`, where they may stop early.
* A load with a `predicate` reads nothing where it is false, and gives 0 there.
* Equality is identity: two equal trees are one object (see node.py). `==` on expressions builds a comparison; the compiler compares with `is`.
  Equality says nothing about memory: two equal loads differ in value if a store that may alias stands between them.

Construct with the functions (`add`, `select`, `load` ...) or the operators, never with the classes: the functions fold constants, move
constants to the right, write `a > b` as `b < a`, and keep vectors in the form of Ramp and Broadcast where they can.

In order: the operators (ExprLike), the nodes, conversion, construction. They are one file since each needs the others: a node inherits the operators,
which call the constructors, which make nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

from .dtype import BOOL, FLOAT32, INT32, INT64, DType, dtype, promote, round_to
from .errors import TEError
from .intrin import INTRINSICS
from .node import CONSTANTS, COUNTERS, float_bits
from .printer import expression_text

Number: TypeAlias = "int | float | bool"

# What occurs in an expression, as bits of `Expr.holds`: walkers pass by what does not concern them.
HAS_VARIABLE = 1  # a variable or a load: it is not made of constants only
HAS_LOAD = 2
HAS_CHOICE = 4  # a condition, a comparison, an extremum, a choice, an integer division: what knowledge of variables may decide or turn into another form
HAS_DIVISION = 8  # of integers
HAS_COST = 16  # a load, a call, a division: what is worth being computed once
HAS_CAST = 32


# What an expression on the right of a NumPy number is asked for, by the name of NumPy's function for the operator.
_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__", "floor_divide": "__rfloordiv__", "remainder": "__rmod__",
    "power": "__rpow__", "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__", "greater_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
    "bitwise_and": "__rand__", "bitwise_or": "__ror__", "bitwise_xor": "__rxor__", "left_shift": "__rlshift__", "right_shift": "__rrshift__",
}  # fmt: skip
_NAMES_IN_TE = {"absolute": "abs", "rint": "round", "maximum": "maximum", "minimum": "minimum", "logical_and": "all", "logical_or": "any", "power": "pow"}


class ExprLike:
    """Whatever can stand in an expression: an `Expr`, an axis of te, a tensor of rank 0. Carries the operators."""

    __slots__ = ()

    def as_expr(self) -> Expr:
        """The expression this object stands for."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Expr:
        return operate(add, self, other)

    def __radd__(self, other: Any) -> Expr:
        return operate(add, other, self)

    def __sub__(self, other: Any) -> Expr:
        return operate(sub, self, other)

    def __rsub__(self, other: Any) -> Expr:
        return operate(sub, other, self)

    def __mul__(self, other: Any) -> Expr:
        return operate(mul, self, other)

    def __rmul__(self, other: Any) -> Expr:
        return operate(mul, other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _divided(div, "/", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _divided(div, "/", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return _divided(floordiv, "//", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return _divided(floordiv, "//", other, self)

    def __mod__(self, other: Any) -> Expr:
        return _divided(floormod, "%", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _divided(floormod, "%", other, self)

    def __pow__(self, other: Any) -> Expr:
        return operate(_power, self, other)

    def __rpow__(self, other: Any) -> Expr:
        return operate(_power, other, self)

    def __neg__(self) -> Expr:
        return negate(self.as_expr())

    def __pos__(self) -> Expr:
        return self.as_expr()

    def __abs__(self) -> Expr:
        return call("abs", self.as_expr())

    def __lt__(self, other: Any) -> Expr:
        return operate(lt, self, other)

    def __le__(self, other: Any) -> Expr:
        return operate(le, self, other)

    def __gt__(self, other: Any) -> Expr:
        return operate(lt, other, self)

    def __ge__(self, other: Any) -> Expr:
        return operate(le, other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return operate(eq, self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return operate(ne, self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Any) -> Expr:
        return operate(bitwise_and, self, other)

    def __rand__(self, other: Any) -> Expr:
        return operate(bitwise_and, other, self)

    def __or__(self, other: Any) -> Expr:
        return operate(bitwise_or, self, other)

    def __ror__(self, other: Any) -> Expr:
        return operate(bitwise_or, other, self)

    def __xor__(self, other: Any) -> Expr:
        return operate(bitwise_xor, self, other)

    def __rxor__(self, other: Any) -> Expr:
        return operate(bitwise_xor, other, self)

    def __lshift__(self, other: Any) -> Expr:
        return operate(shift_left, self, other)

    def __rlshift__(self, other: Any) -> Expr:
        return operate(shift_left, other, self)

    def __rshift__(self, other: Any) -> Expr:
        return operate(shift_right, self, other)

    def __rrshift__(self, other: Any) -> Expr:
        return operate(shift_right, other, self)

    def __invert__(self) -> Expr:
        e = self.as_expr()
        return logical_not(e) if e.dtype.is_bool else call("bitwise_not", e)

    def __bool__(self) -> bool:
        raise TEError(
            f"the truth of {str(self)!r} is not known while a computation is declared: `if`, `and`, `or`, `not` and chained comparisons "
            "cannot look at it. Use te.if_then_else(condition, a, b) or te.select(condition, a, b) to choose a value, "
            "te.all(a, b) and te.any(a, b) to join conditions"
        )

    def __float__(self) -> float:
        raise TEError(f"{str(self)!r} has no value while a computation is declared: use te.exp and the like instead of math.exp, and .astype(dtype) to convert")

    __int__ = __float__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Expr:
        """A NumPy number on the left of an operator is a constant; NumPy's functions are refused: they know no expressions."""
        reflected = _REFLECTED.get(ufunc.__name__)
        if method == "__call__" and reflected is not None and len(inputs) == 2 and inputs[1] is self and not options:
            return getattr(self, reflected)(inputs[0])  # type: ignore[no-any-return]
        name = _NAMES_IN_TE.get(ufunc.__name__, ufunc.__name__)
        instead = f"te.{name}" if name in INTRINSICS or name in _NAMES_IN_TE.values() else "a function of te"
        raise TEError(f"NumPy's {ufunc.__name__} cannot compute with an expression, found {str(self)!r}: use {instead}")

    def __iter__(self) -> Any:
        raise TEError(f"{str(self)!r} is a scalar expression and cannot be iterated over")

    def astype(self, to: str) -> Expr:
        """This value converted to the dtype `to`; a float becomes an integer by truncation."""
        return cast(self.as_expr(), dtype(to))


class Expr(ExprLike):
    """A node. Attributes: `dtype`; `exact` (integer arithmetic that never wraps, see the top of this file); `variables` in it; `holds`: bits,
    what else occurs in it; `operations` in it when it is written as a tree, where shared parts count each time: possibly so many that a float counts them."""

    __slots__ = ("__weakref__", "_bounds", "_modulus", "_users", "dtype", "exact", "holds", "operations", "variables")

    dtype: DType
    exact: bool
    holds: int
    operations: float
    own: ClassVar[int] = 0  # what a node of this class adds to what its operands hold
    is_operation: ClassVar[float] = 1.0
    variables: frozenset[Var]  # that occur in it; nodes share their sets where they can
    _users: dict[Any, Expr]  # where what is built on this node is interned: the dictionary of the variable, buffer or constant it leads to
    _bounds: Any  # bounds.py keeps its results here
    _modulus: Any

    def as_expr(self) -> Expr:
        return self

    @property
    def children(self) -> tuple[Expr, ...]:
        """The operands, in order."""
        return ()

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """This operation on other operands, folded."""
        raise NotImplementedError

    def __str__(self) -> str:
        return expression_text(self)

    __repr__ = __str__


class Var(Expr):
    """A loop variable, a size or a let-bound name. Identity is its meaning; the name is for readers.

    `bounds` are the inclusive limits known for ever (a loop variable's extent), None where unknown.
    """

    __slots__ = ("bounds", "name")

    def __init__(self, name: str, dtype_: str = "int32", bounds: tuple[int | None, int | None] = (None, None)):
        self.name, self.dtype, self.bounds = name, dtype(dtype_), bounds
        self.exact = self.dtype.is_integer
        self._users, self._bounds, self._modulus, self.holds, self.operations = {}, None, None, HAS_VARIABLE, 0.0
        self.variables = frozenset((self,))

    def fresh(self, dtype_: str | None = None, bounds: tuple[int | None, int | None] | None = None) -> Var:
        """A new variable of this name, as exact as this one; of this dtype and these bounds unless others are given."""
        new = Var(self.name, self.dtype if dtype_ is None else dtype_, self.bounds if bounds is None else bounds)
        new.exact = self.exact
        return new


class Const(Expr):
    """A scalar constant: a Python int (bool: 0 or 1) or a float already rounded to its dtype."""

    __slots__ = ("value",)
    value: Any  # int or float: an int where the dtype is an integer or bool


class Cast(Expr):
    """`value` converted to `dtype`."""

    __slots__ = ("value",)
    own = HAS_CAST
    value: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return cast(children[0], self.dtype if children[0].dtype.lanes == self.dtype.lanes else self.dtype.vector(children[0].dtype.lanes))


class Binary(Expr):
    """An operation on two operands of one dtype."""

    __slots__ = ("a", "b")
    a: Expr
    b: Expr
    make: Callable[[Expr, Expr], Expr]  # the folding constructor
    symbol: str

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        made = type(self).make(children[0], children[1])
        return made if self.exact else wrapped(made)


class Add(Binary):
    __slots__ = ()
    symbol = "+"


class Sub(Binary):
    __slots__ = ()
    symbol = "-"


class Mul(Binary):
    __slots__ = ()
    symbol = "*"


class Div(Binary):
    """Division of floats."""

    __slots__ = ()
    own = HAS_COST
    symbol = "/"


class FloorDiv(Binary):
    """Division of integers, rounded down."""

    __slots__ = ()
    own = HAS_CHOICE | HAS_DIVISION | HAS_COST
    symbol = "//"


class FloorMod(Binary):
    """`a - a // b * b` on integers."""

    __slots__ = ()
    own = HAS_CHOICE | HAS_DIVISION | HAS_COST
    symbol = "%"


class Min(Binary):
    __slots__ = ()
    own = HAS_CHOICE
    symbol = "min"


class Max(Binary):
    __slots__ = ()
    own = HAS_CHOICE
    symbol = "max"


class Comparison(Binary):
    """Gives bool."""

    __slots__ = ()
    own = HAS_CHOICE


class EQ(Comparison):
    __slots__ = ()
    symbol = "=="


class NE(Comparison):
    __slots__ = ()
    symbol = "!="


class LT(Comparison):
    __slots__ = ()
    symbol = "<"


class LE(Comparison):
    __slots__ = ()
    symbol = "<="


class And(Binary):
    """Of bools."""

    __slots__ = ()
    own = HAS_CHOICE
    symbol = "and"


class Or(Binary):
    """Of bools."""

    __slots__ = ()
    own = HAS_CHOICE
    symbol = "or"


class Not(Expr):
    """Of a bool."""

    __slots__ = ("a",)
    own = HAS_CHOICE
    a: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return logical_not(children[0])


class Choice(Expr):
    """`then` where `condition`, else `otherwise`. The condition of a vector may be a scalar."""

    __slots__ = ("condition", "otherwise", "then")
    own = HAS_CHOICE
    condition: Expr
    then: Expr
    otherwise: Expr
    make: Callable[[Expr, Expr, Expr], Expr]

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.condition, self.then, self.otherwise)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return type(self).make(children[0], children[1], children[2])


class Select(Choice):
    """Evaluates both arms."""

    __slots__ = ()


class IfThenElse(Choice):
    """Evaluates only the arm taken (of a vector: reads only in the lanes that take it)."""

    __slots__ = ()


class Load(Expr):
    """An element of a buffer, or a vector of elements where an index is a vector. `predicate`: see the top of this file."""

    __slots__ = ("buffer", "indices", "predicate")
    own = HAS_VARIABLE | HAS_LOAD | HAS_COST
    buffer: Buffer
    indices: tuple[Expr, ...]
    predicate: Expr | None

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.indices if self.predicate is None else (*self.indices, self.predicate)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        if self.predicate is None:
            return load(self.buffer, children)
        return load(self.buffer, children[:-1], children[-1])


class Ramp(Expr):
    """The vector base, base + stride, ... of `dtype.lanes` integers."""

    __slots__ = ("base", "stride")
    base: Expr
    stride: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.base, self.stride)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return ramp(children[0], children[1], self.dtype.lanes)


class Broadcast(Expr):
    """A vector whose lanes are all `value`."""

    __slots__ = ("value",)
    is_operation = 0.0
    value: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return broadcast(children[0], self.dtype.lanes)


class Call(Expr):
    """A function of intrin.py on `args`."""

    __slots__ = ("args", "name")
    own = HAS_COST
    name: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: Sequence[Expr]) -> Expr:
        if self.name == "reinterpret":
            return reinterpret(children[0], self.dtype.element)
        return call(self.name, *children)


class Buffer:
    """A piece of memory: a tensor's, or part of one. Identity is its meaning.

    Attributes: `name`; `shape`, each extent an int or an expression; `dtype` of an element; `scope` ("global", "shared", "local" ...);
    `strides` in elements, one for each dimension, None where rows are dense (the usual case).
    """

    __slots__ = ("__weakref__", "_users", "dtype", "name", "scope", "shape", "strides")
    holds = HAS_VARIABLE

    def __init__(
        self,
        name: str,
        shape: Sequence[int | Expr],
        dtype_: str = "float32",
        scope: str = "global",
        strides: Sequence[int | Expr] | None = None,
    ):
        self.name, self.shape, self.dtype, self.scope = name, tuple(shape), dtype(dtype_), scope
        self.strides = None if strides is None else tuple(strides)
        self._users: dict[Any, Expr] = {}

    @property
    def constant_size(self) -> int | None:
        """The number of elements it occupies, with padding from strides; None where it is not a constant."""
        size = extent = 1
        for e in reversed(self.shape):
            known = e.value if isinstance(e, Const) else e
            if not isinstance(known, int):
                return None
            extent = known
            size *= extent
        if not self.strides:
            return size
        return self.strides[0] * extent if isinstance(self.strides[0], int) else None

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{shape}]" + ("" if self.scope == "global" else f" in {self.scope}")


# ---------------------------------------------------------------------------------------------------------------- conversion


def as_expr(value: Any) -> Expr:
    """`value` as an expression: expressions and axes as they are; a bool, int or float as a constant of dtype bool, int32 (int64 where needed), float32."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, ExprLike):
        return value.as_expr()
    if value.__class__ is not int:
        value = as_number(value)
    if isinstance(value, bool):
        return const(value, BOOL)
    if isinstance(value, int):
        return const(value, INT32 if -(1 << 31) <= value < 1 << 31 else INT64)
    return const(value, FLOAT32)


def as_number(value: Any) -> Number:
    """A Python number from one of Python or NumPy; anything else is refused."""
    if isinstance(value, (bool, int, float)):
        return value
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "shape", None) == ():
        found = item()
        if isinstance(found, (bool, int, float)):
            return found
    as_scalar = getattr(value, "shape", None)
    hint = " (index it to get an element: T[i, j])" if as_scalar is not None else ""
    raise TEError(f"{type(value).__name__} {str(value)[:60]!r} cannot stand in an expression: expected a number, an axis or an expression{hint}")


def const(value: Number, dtype_: str | Expr = INT32) -> Expr:
    """The constant `value` of a dtype (or of the dtype of an expression); a vector dtype gives a broadcast constant."""
    if value.__class__ is int:
        kind: Any = dtype_ if dtype_.__class__ is DType else dtype_.dtype if isinstance(dtype_, Expr) else dtype(dtype_)
        known = kind.constants.get(value)
        if known is None:
            known = CONSTANTS.get((kind, value))
        if known is not None:
            return known  # type: ignore[no-any-return]
    kind = dtype_.dtype if isinstance(dtype_, Expr) else dtype(dtype_)
    if kind.lanes > 1:
        return broadcast(const(value, kind.element), kind.lanes)
    value = as_number(value)
    key: Any
    if kind.is_float:
        value = round_to(value, kind)
        key = (kind, float_bits(value))
    else:
        if not kind.is_bool and not math.isfinite(value):
            raise TEError(f"{value} has no value of dtype {kind}")
        value = int(bool(value)) if kind.is_bool else int(value)
        key = (kind, value)
        found = kind.constants.get(value)
        if found is not None:
            return found  # type: ignore[no-any-return]
    node = CONSTANTS.get(key)
    if node is None:
        node = object.__new__(Const)
        node.value, node.dtype, node.exact = value, kind, not kind.is_float
        node._users, node._bounds, node._modulus, node.holds, node.operations, node.variables = {}, None, None, 0, 0.0, _NO_VARIABLES
        COUNTERS.nodes_built += 1
        if not kind.is_float and -64 <= value <= 1024:
            return kind.constants.setdefault(value, node)  # type: ignore[no-any-return]
        return CONSTANTS.setdefault(key, node)  # type: ignore[no-any-return]
    return node  # type: ignore[no-any-return]


def weak_const(value: Number, like: Expr) -> Expr:
    """A Python number beside the expression `like`: it takes that dtype; a float beside an integer takes float32 (see `promote`)."""
    kind = like.dtype.element
    if isinstance(value, float) and not kind.is_float:
        return const(value, FLOAT32)
    if isinstance(value, bool) and not kind.is_bool:
        value = int(value)
    if kind.is_bool and not isinstance(value, bool):
        return as_expr(value)
    if kind.is_integer and not kind.low <= value <= kind.high:
        if like.exact:
            return const(value, INT64)
        raise TEError(f"the number {value} does not fit in {kind}, the dtype of {like}: cast that operand first, for example x.astype('int64')")
    return const(value, kind)


def operate(make: Callable[[Expr, Expr], Expr], a: Any, b: Any) -> Expr:
    """Apply a constructor to two operands as users write them: numbers are weak, dtypes are promoted by the table."""
    if not isinstance(a, ExprLike):
        b = b.as_expr()
        a = weak_const(as_number(a), b)
    elif not isinstance(b, ExprLike):
        a = a.as_expr()
        b = weak_const(as_number(b), a)
    else:
        a, b = a.as_expr(), b.as_expr()
    return make(a, b)


def _divided(make: Callable[[Expr, Expr], Expr], symbol: str, a: Any, b: Any) -> Expr:
    """`operate` for a division. A constant zero as the divisor is refused only where it is written: one that a variable's value makes, in an arm
    that is not taken there or a lane that is thrown away, is no mistake."""
    divisor = b.as_expr() if isinstance(b, ExprLike) else b
    number = divisor.value if isinstance(divisor, Const) else divisor
    if isinstance(number, (int, float)) and number == 0:
        raise TEError(f"{a} {symbol} {b}: division by the constant zero")
    return operate(make, a, b)


def same_dtype(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Both operands in the dtype and lanes the promotion table gives."""
    if a.dtype.lanes != b.dtype.lanes:
        if a.dtype.lanes == 1:
            a = broadcast(a, b.dtype.lanes)
        elif b.dtype.lanes == 1:
            b = broadcast(b, a.dtype.lanes)
    to = promote(a.dtype, b.dtype)
    return cast(a, to), cast(b, to)


# -------------------------------------------------------------------------------------------------------------- construction


_NO_VARIABLES: frozenset[Var] = frozenset()


def _intern(cls: type[Any], a: Expr, b: Expr, kind: DType, exact: bool) -> Expr:
    users = (a if a.holds & HAS_VARIABLE else b)._users
    key = (cls, a, b)
    node = users.get(key)
    if node is None:
        new = object.__new__(cls)
        new.a, new.b, new.dtype, new.exact = a, b, kind, exact
        new._users, new._bounds, new._modulus = users, None, None
        new.holds, new.operations = a.holds | b.holds | cls.own, a.operations + b.operations + 1.0
        some, others = a.variables, b.variables
        new.variables = some if others <= some else some | others if some else others
        COUNTERS.nodes_built += 1
        node = users.setdefault(key, new)
    return node


_E = TypeVar("_E", bound=Expr)


def _bare(cls: type[_E], users: dict[Any, Expr], kind: DType, exact: bool, operands: Sequence[Expr]) -> _E:
    """A node of class `cls` on `operands`, which the caller puts in; it will be interned in `users`."""
    new = object.__new__(cls)
    holds, operations, variables = cls.own, cls.is_operation, _NO_VARIABLES
    for operand in operands:
        holds |= operand.holds
        operations += operand.operations
        others = operand.variables
        if not others <= variables:
            variables = variables | others if variables else others
    new.dtype, new.exact, new.holds, new.operations, new.variables = kind, exact, holds, operations, variables
    new._users, new._bounds, new._modulus = users, None, None
    COUNTERS.nodes_built += 1
    return new


def _intern_on(home: Expr, key: tuple[Any, ...], kind: DType, exact: bool, cls: type[_E], operands: Sequence[Expr], **fields: Any) -> _E:
    users = home._users
    node = users.get(key)
    if node is None:
        new = _bare(cls, users, kind, exact, operands)
        for name, value in fields.items():
            setattr(new, name, value)
        node = users.setdefault(key, new)
    return node  # type: ignore[return-value]


def _home(*operands: Expr) -> Expr:
    for operand in operands:
        if operand.holds & HAS_VARIABLE:
            return operand
    return operands[0]


_FOLDABLE_FLOATS = ("float32", "float64")  # double arithmetic rounded to float32 is float32 arithmetic (53 >= 2 * 24 + 2)


def _both_constant(a: Expr, b: Expr) -> bool:
    return a.__class__ is Const and b.__class__ is Const and (not a.dtype.is_float or a.dtype in _FOLDABLE_FLOATS)


def wrapped(e: Expr) -> Expr:
    """`e`, which stands in the place of data arithmetic: constants that were folded there are numbers of their dtype."""
    if e.__class__ is Broadcast:
        inner = wrapped(e.value)
        return e if inner is e.value else broadcast(inner, e.dtype.lanes)
    kind = e.dtype
    if e.__class__ is not Const or not kind.is_integer or kind.low <= e.value <= kind.high:
        return e
    return const((e.value - kind.low) % (1 << kind.bits) + kind.low, kind)


def _folded(value: Any, kind: DType, exact: bool = True) -> Expr:
    """The constant that an operation on constants gives. Nobody counts in narrow and unsigned integers: those wrap."""
    made = const(value, kind)
    return made if exact and (kind is INT32 or kind is INT64) else wrapped(made)


def _arithmetic_operands(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Operands of + - * and the like: one dtype, and not bool."""
    if a.dtype is not b.dtype:
        a, b = same_dtype(a, b)
    if a.dtype.is_bool:
        a, b = cast(a, INT32.vector(a.dtype.lanes)), cast(b, INT32.vector(a.dtype.lanes))
    elif a.dtype.is_storage:
        raise TEError(f"arithmetic on {a.dtype}: float8 is a storage type, cast it first, for example x.astype('float32')")
    return a, b


def _lift(make: Callable[[Expr, Expr], Expr], a: Expr, b: Expr) -> Expr | None:
    """Of two broadcasts, the broadcast of the scalar operation."""
    if a.__class__ is Broadcast and b.__class__ is Broadcast:
        return broadcast(make(a.value, b.value), a.dtype.lanes)
    return None


def add(a: Expr, b: Expr) -> Expr:
    """a + b"""
    known = a._users.get((Add, a, b))
    if known is not None:
        return known
    if a.dtype is not b.dtype or a.dtype.is_storage:
        if a.__class__ is Ramp and b.dtype is a.dtype.element:
            return ramp(add(a.base, b), a.stride, a.dtype.lanes)
        if b.__class__ is Ramp and a.dtype is b.dtype.element:
            return ramp(add(b.base, a), b.stride, b.dtype.lanes)
        a, b = _arithmetic_operands(a, b)
    kind = a.dtype
    if a.__class__ is Const:
        if _both_constant(a, b):
            return _folded(a.value + b.value, kind)  # type: ignore[attr-defined]
        a, b = b, a
    if b.__class__ is Const:
        value = b.value
        if kind.is_integer:
            if value == 0:
                return a
            if a.__class__ is Add and a.b.__class__ is Const:
                return add(a.a, _folded(a.b.value + value, kind, a.exact))
    elif kind.lanes > 1:
        lifted = _lift(add, a, b)
        if lifted is not None:
            return lifted
        if a.__class__ is Broadcast:
            a, b = b, a
        if a.__class__ is Ramp:
            if b.__class__ is Broadcast:
                return ramp(add(a.base, b.value), a.stride, kind.lanes)
            if b.__class__ is Ramp:
                return ramp(add(a.base, b.base), add(a.stride, b.stride), kind.lanes)
    return _intern(Add, a, b, kind, a.exact and b.exact)


def sub(a: Expr, b: Expr) -> Expr:
    """a - b"""
    known = a._users.get((Sub, a, b))
    if known is not None:
        return known
    if a.dtype is not b.dtype or a.dtype.is_storage:
        a, b = _arithmetic_operands(a, b)
    kind = a.dtype
    if b.__class__ is Const:
        if _both_constant(a, b):
            return _folded(a.value - b.value, kind)  # type: ignore[attr-defined]
        if kind.is_integer and (kind.kind == "int" or a.exact):
            return add(a, const(-b.value, kind))
    if kind.is_integer:
        if a is b:
            return const(0, kind)
        if a.__class__ is Add and a.b.__class__ is Const and a.a is b:
            return a.b
        if kind.lanes > 1:
            lifted = _lift(sub, a, b)
            if lifted is not None:
                return lifted
            if a.__class__ is Ramp and b.__class__ is Broadcast:
                return ramp(sub(a.base, b.value), a.stride, kind.lanes)
            if a.__class__ is Ramp and b.__class__ is Ramp:
                return ramp(sub(a.base, b.base), sub(a.stride, b.stride), kind.lanes)
            if a.__class__ is Broadcast and b.__class__ is Ramp:
                return ramp(sub(a.value, b.base), negate(b.stride), kind.lanes)
    elif kind.lanes > 1:
        lifted = _lift(sub, a, b)
        if lifted is not None:
            return lifted
    return _intern(Sub, a, b, kind, a.exact and b.exact)


def mul(a: Expr, b: Expr) -> Expr:
    """a * b"""
    known = a._users.get((Mul, a, b))
    if known is not None:
        return known
    if a.dtype is not b.dtype or a.dtype.is_storage:
        if a.__class__ is Ramp and b.dtype is a.dtype.element:
            return ramp(mul(a.base, b), mul(a.stride, b), a.dtype.lanes)
        if b.__class__ is Ramp and a.dtype is b.dtype.element:
            return ramp(mul(b.base, a), mul(b.stride, a), b.dtype.lanes)
        a, b = _arithmetic_operands(a, b)
    kind = a.dtype
    if a.__class__ is Const:
        if _both_constant(a, b):
            return _folded(a.value * b.value, kind)  # type: ignore[attr-defined]
        a, b = b, a
    if b.__class__ is Const:
        value = b.value
        if value == 1:
            return a
        if kind.is_integer:
            if value == 0:
                return b
            if a.__class__ is Mul and a.b.__class__ is Const:
                return mul(a.a, _folded(a.b.value * value, kind, a.exact))
    elif kind.lanes > 1:
        lifted = _lift(mul, a, b)
        if lifted is not None:
            return lifted
        if a.__class__ is Broadcast:
            a, b = b, a
        if a.__class__ is Ramp and b.__class__ is Broadcast:
            return ramp(mul(a.base, b.value), mul(a.stride, b.value), kind.lanes)
    return _intern(Mul, a, b, kind, a.exact and b.exact)


def negate(a: Expr) -> Expr:
    """-a; of a float, also the sign of a zero turns."""
    if a.dtype.is_float:
        return mul(a, const(-1.0, a.dtype))
    return sub(const(0, a.dtype if not a.dtype.is_bool else INT32.vector(a.dtype.lanes)), a)


def div(a: Expr, b: Expr) -> Expr:
    """a / b of floats; integers must say `//` or cast."""
    if a.dtype is not b.dtype or a.dtype.is_storage:
        a, b = _arithmetic_operands(a, b)
    kind = a.dtype
    if not kind.is_float:
        raise TEError(f"{a} / {b}: true division of integers ({kind}). Write // for the floored quotient, or cast: x.astype('float32') / y")
    if b.__class__ is Const and b.value == 0:  # x / 0 = x * inf, for NaN and 0 too
        return mul(a, const(math.copysign(math.inf, b.value), kind))
    if _both_constant(a, b):
        return const(a.value / b.value, kind)  # type: ignore[attr-defined]
    if b.__class__ is Const and b.value == 1:
        return a
    if kind.lanes > 1:
        lifted = _lift(div, a, b)
        if lifted is not None:
            return lifted
    return _intern(Div, a, b, kind, False)


def _integer_division_operands(a: Expr, b: Expr, symbol: str) -> tuple[Expr, Expr]:
    if a.dtype is not b.dtype or a.dtype.is_storage:
        a, b = _arithmetic_operands(a, b)
    if a.dtype.is_float:
        raise TEError(f"{a} {symbol} {b}: {symbol} is for integers, found {a.dtype}. For floats write te.floor(a / b)")
    return a, b


def floordiv(a: Expr, b: Expr) -> Expr:
    """a // b of integers, rounded down; 0 by the constant zero (see the top of this file)."""
    a, b = _integer_division_operands(a, b, "//")
    kind = a.dtype
    if b.__class__ is Const:
        value = b.value
        if value == 0:
            return b
        if a.__class__ is Const:
            return const(a.value // value, kind)
        if value == 1:
            return a
        if value > 0 and a.exact and a.__class__ is FloorDiv and a.b.__class__ is Const and a.b.value > 0:
            return floordiv(a.a, const(a.b.value * value, kind))
    if kind.lanes > 1:
        lifted = _lift(floordiv, a, b)
        if lifted is not None:
            return lifted
    return _intern(FloorDiv, a, b, kind, a.exact and b.exact)


def floormod(a: Expr, b: Expr) -> Expr:
    """a % b of integers, with the sign of b; 0 by the constant zero."""
    a, b = _integer_division_operands(a, b, "%")
    kind = a.dtype
    if b.__class__ is Const:
        value = b.value
        if value == 0:
            return b
        if a.__class__ is Const:
            return const(a.value % value, kind)
        if value == 1:
            return const(0, kind)
    if kind.lanes > 1:
        lifted = _lift(floormod, a, b)
        if lifted is not None:
            return lifted
    return _intern(FloorMod, a, b, kind, a.exact and b.exact)


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller; NaN if either is."""
    return _extremum(Min, minimum, min, a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    """The larger; NaN if either is."""
    return _extremum(Max, maximum, max, a, b)


def _extremum(cls: type[Binary], make: Callable[[Expr, Expr], Expr], fold: Callable[[Any, Any], Any], a: Expr, b: Expr) -> Expr:
    if a.dtype is not b.dtype:
        a, b = same_dtype(a, b)
    if a is b:
        return a
    if a.__class__ is Const:
        if b.__class__ is Const:
            x, y = a.value, b.value
            return a if math.isnan(x) else b if math.isnan(y) else const(fold(x, y), a.dtype)
        a, b = b, a
    if a.dtype.lanes > 1:
        lifted = _lift(make, a, b)
        if lifted is not None:
            return lifted
    return _intern(cls, a, b, a.dtype, a.exact and b.exact)


def _compare(cls: type[Binary], make: Callable[[Expr, Expr], Expr], fold: Callable[[Any, Any], bool], same: bool, a: Expr, b: Expr) -> Expr:
    if a.dtype is not b.dtype:
        a, b = same_dtype(a, b)
    if a.__class__ is Const and b.__class__ is Const:
        return const(fold(a.value, b.value), BOOL)
    if a is b and not a.dtype.is_float:
        return const(same, BOOL.vector(a.dtype.lanes))
    if a.dtype.lanes > 1:
        lifted = _lift(make, a, b)
        if lifted is not None:
            return lifted
    return _intern(cls, a, b, BOOL.vector(a.dtype.lanes), True)


def eq(a: Expr, b: Expr) -> Expr:
    """a == b"""
    if a.__class__ is Const:
        a, b = b, a
    return _compare(EQ, eq, lambda x, y: x == y, True, a, b)


def ne(a: Expr, b: Expr) -> Expr:
    """a != b"""
    if a.__class__ is Const:
        a, b = b, a
    return _compare(NE, ne, lambda x, y: x != y, False, a, b)


def lt(a: Expr, b: Expr) -> Expr:
    """a < b"""
    return _compare(LT, lt, lambda x, y: x < y, False, a, b)


def le(a: Expr, b: Expr) -> Expr:
    """a <= b"""
    return _compare(LE, le, lambda x, y: x <= y, True, a, b)


def _as_bool(e: Expr, name: str) -> Expr:
    if not e.dtype.is_bool:
        raise TEError(f"{name} joins conditions, found {e} of dtype {e.dtype}: compare it first, for example {e} != 0")
    return e


def logical_and(a: Expr, b: Expr) -> Expr:
    """a and b"""
    return _logical(And, logical_and, False, a, b)


def logical_or(a: Expr, b: Expr) -> Expr:
    """a or b"""
    return _logical(Or, logical_or, True, a, b)


def _logical(cls: type[Binary], make: Callable[[Expr, Expr], Expr], absorbing: bool, a: Expr, b: Expr) -> Expr:
    a, b = _as_bool(a, cls.symbol), _as_bool(b, cls.symbol)
    if a.dtype is not b.dtype:
        a, b = same_dtype(a, b)
    if a is b:
        return a
    for x, other in ((a, b), (b, a)):
        scalar = x.value if x.__class__ is Broadcast else x
        if scalar.__class__ is Const:
            return x if bool(scalar.value) is absorbing else other
    if a.dtype.lanes > 1:
        lifted = _lift(make, a, b)
        if lifted is not None:
            return lifted
    return _intern(cls, a, b, a.dtype, True)


def logical_not(a: Expr) -> Expr:
    """not a"""
    a = _as_bool(a, "not")
    if a.__class__ is Const:
        return const(not a.value, BOOL)
    if a.__class__ is Not:
        return a.a
    if a.__class__ is Broadcast:
        return broadcast(logical_not(a.value), a.dtype.lanes)
    if a.__class__ is EQ:
        return ne(a.a, a.b)
    if a.__class__ is NE:
        return eq(a.a, a.b)
    if isinstance(a, (LT, LE)) and not a.a.dtype.is_float:  # with a NaN, not (a < b) is not b <= a
        return le(a.b, a.a) if a.__class__ is LT else lt(a.b, a.a)
    return _intern_on(a, (Not, a), a.dtype, True, Not, (a,), a=a)


def select(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """`then` where `condition`, else `otherwise`; both are evaluated."""
    return _choose(Select, condition, then, otherwise)


def if_then_else(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """`then` where `condition`, else `otherwise`; only the one taken is evaluated."""
    return _choose(IfThenElse, condition, then, otherwise)


def _choose(cls: type[Choice], condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    condition = _as_bool(condition, "a condition")
    if then.dtype is not otherwise.dtype:
        then, otherwise = same_dtype(then, otherwise)
    lanes = condition.dtype.lanes
    if lanes > 1 and then.dtype.lanes == 1:
        then, otherwise = broadcast(then, lanes), broadcast(otherwise, lanes)
    scalar = condition.value if condition.__class__ is Broadcast else condition
    if scalar.__class__ is Const:
        return then if scalar.value else otherwise
    if then is otherwise:
        return then
    return _intern_on(
        _home(scalar, then, otherwise),
        (cls, scalar, then, otherwise),
        then.dtype,
        then.exact and otherwise.exact,
        cls,
        (scalar, then, otherwise),
        condition=scalar,
        then=then,
        otherwise=otherwise,
    )


def cast(a: Expr, to: DType) -> Expr:
    """`a` converted to dtype `to` (a scalar dtype is taken for each lane of a vector)."""
    kind = a.dtype
    if kind is to:
        return a
    if kind.lanes != to.lanes:
        if to.lanes == 1:
            return cast(a, to.vector(kind.lanes))
        return cast(broadcast(a, to.lanes), to)
    if a.__class__ is Broadcast:
        return broadcast(cast(a.value, to.element), to.lanes)
    exact = a.exact and to.is_integer
    if a.__class__ is Const:
        value = a.value
        if to.is_float or to.is_bool:
            return const(value, to)
        if kind.is_float:
            if to.low <= value <= to.high:  # no NaN is
                return const(int(value), to)
            exact = False
        elif to.low <= value <= to.high:
            return const(value, to)
        else:
            span = 1 << to.bits
            return const((value - to.low) % span + to.low, to)
    elif a.exact and (to.bits < 32 or to.kind == "uint") and not kind.is_bool:
        exact = False  # a narrow or unsigned type holds what wraps; index arithmetic is never cast to one
    if a.__class__ is Ramp and exact:
        return ramp(cast(a.base, to.element), cast(a.stride, to.element), to.lanes)
    return _intern_on(a, (Cast, a, to), to, exact, Cast, (a,), value=a)


def ramp(base: Expr, stride: Expr | int, lanes: int) -> Expr:
    """The vector base, base + stride, ... of `lanes` integers."""
    known = base._users.get((Ramp, base, stride, lanes))
    if known is not None:
        return known
    if isinstance(stride, int):
        stride = const(stride, base.dtype)
    if base.dtype is not stride.dtype:
        base, stride = same_dtype(base, stride)
    if lanes == 1:
        return base
    if stride.__class__ is Const and stride.value == 0:
        return broadcast(base, lanes)
    users, key = _home(base, stride)._users, (Ramp, base, stride, lanes)
    node = users.get(key)
    if node is None:
        new = _bare(Ramp, users, base.dtype.vector(lanes), base.exact and stride.exact, (base, stride))
        new.base, new.stride = base, stride
        node = users.setdefault(key, new)
    return node


def broadcast(value: Expr, lanes: int) -> Expr:
    """The vector whose `lanes` lanes are all `value`."""
    users, key = value._users, (Broadcast, value, lanes)
    known = users.get(key)
    if known is not None:
        return known
    if lanes == 1:
        return value
    if value.dtype.lanes > 1:
        raise TEError(f"{value} has {value.dtype.lanes} lanes already and cannot be broadcast to {lanes}")
    new = _bare(Broadcast, users, value.dtype.vector(lanes), value.exact, (value,))
    new.value = value
    return users.setdefault(key, new)


def load(buffer: Buffer, indices: Sequence[Expr], predicate: Expr | None = None) -> Expr:
    """The element `buffer[indices]`; with a vector among the indices, a vector of elements; read only where `predicate` holds, 0 elsewhere."""
    indices = tuple(indices)
    home: Expr | Buffer = buffer
    for index in indices:
        if index.holds & HAS_VARIABLE:
            home = index
            break
    known = home._users.get((Load, buffer, indices, predicate))
    if known is not None:
        return known
    lanes = 1
    for index in indices:
        lanes = max(lanes, index.dtype.lanes)
    scalar = predicate.value if predicate.__class__ is Broadcast else predicate
    if scalar.__class__ is Const:
        if not scalar.value:
            return const(0, buffer.dtype.vector(lanes))
        predicate = None
    if lanes > 1 and predicate is None and all(i.dtype.lanes == 1 or i.__class__ is Broadcast for i in indices):
        return broadcast(load(buffer, [i.value if i.__class__ is Broadcast else i for i in indices]), lanes)
    kind = buffer.dtype if lanes == 1 else buffer.dtype.vector(lanes)
    users, key = home._users, (Load, buffer, indices, predicate)
    node = users.get(key)
    if node is None:
        new = _bare(Load, users, kind, False, indices if predicate is None else (*indices, predicate))
        new.buffer, new.indices, new.predicate = buffer, indices, predicate
        node = users.setdefault(key, new)
    return node


def call(name: str, *args: Expr) -> Expr:
    """The function `name` of intrin.py on `args`; a TEError names what it expects."""
    intrinsic = INTRINSICS.get(name)
    if intrinsic is None:
        raise TEError(f"unknown function {name!r}: known are {', '.join(sorted(INTRINSICS))}")
    if len(args) != intrinsic.arity:
        raise TEError(f"{name} takes {intrinsic.arity} argument(s), found {len(args)}")
    kind = args[0].dtype
    for other in args[1:]:
        if other.dtype is not kind:
            x, y = same_dtype(cast(args[0], kind), other)
            kind = promote(kind if x.dtype.lanes == kind.lanes else kind.vector(x.dtype.lanes), y.dtype)
    if intrinsic.operands == "float" and not kind.is_float:
        kind = FLOAT32.vector(kind.lanes)
    if intrinsic.operands == "integer" and not (kind.is_integer or kind.is_bool):
        raise TEError(f"{name} is for integers, found {kind} in {name}({', '.join(map(str, args))})")
    if kind.is_float and kind.element.bits == 8:
        raise TEError(f"{name} of {kind}: float8 is a storage type, cast it first, for example x.astype('float32')")
    if not kind.is_float and intrinsic.integer_identity:
        return args[0]
    if not kind.is_float and name in ("isnan", "isinf"):
        return const(False, BOOL.vector(kind.lanes))
    if not kind.is_float and name == "isfinite":
        return const(True, BOOL.vector(kind.lanes))
    args = tuple(cast(a, kind) for a in args)
    if kind.lanes > 1 and all(a.__class__ is Broadcast for a in args):
        return broadcast(call(name, *[a.value for a in args]), kind.lanes)  # type: ignore[attr-defined]
    result = BOOL.vector(kind.lanes) if intrinsic.result == "bool" else kind
    exact = intrinsic.exact and all(a.exact for a in args)
    return _intern_on(_home(*args), (Call, name, *args), result, exact, Call, args, name=name, args=args)


def reinterpret(a: Expr, to: DType) -> Expr:
    """The bits of `a` read as dtype `to` of the same width."""
    to = to.vector(a.dtype.lanes)
    if to is a.dtype:
        return a
    if to.bits != a.dtype.bits or to.is_bool or a.dtype.is_bool:
        raise TEError(f"reinterpret needs dtypes of one width, found {a.dtype} ({a.dtype.bits} bits) and {to} ({to.bits} bits)")
    return _intern_on(a, (Call, "reinterpret", a, to), to, False, Call, (a,), name="reinterpret", args=(a,))


def _bitwise(name: str, logical: Callable[[Expr, Expr], Expr] | None) -> Callable[[Expr, Expr], Expr]:
    def make(a: Expr, b: Expr) -> Expr:
        if logical is not None and a.dtype.is_bool and b.dtype.is_bool:
            return logical(a, b)
        return call(name, a, b)

    return make


bitwise_and = _bitwise("bitwise_and", logical_and)
bitwise_or = _bitwise("bitwise_or", logical_or)
bitwise_xor = _bitwise("bitwise_xor", ne)
shift_left = _bitwise("shift_left", None)
shift_right = _bitwise("shift_right", None)


def _power(a: Expr, b: Expr) -> Expr:
    return call("pow", a, b)


for _class, _make in (
    (Add, add), (Sub, sub), (Mul, mul), (Div, div), (FloorDiv, floordiv), (FloorMod, floormod), (Min, minimum), (Max, maximum),
    (EQ, eq), (NE, ne), (LT, lt), (LE, le), (And, logical_and), (Or, logical_or),
):  # fmt: skip
    _class.make = staticmethod(_make)
Select.make = staticmethod(select)
IfThenElse.make = staticmethod(if_then_else)
