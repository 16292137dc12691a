"""The functions an expression can call, by name: how many arguments, of what kind, what they give, and what they mean in NumPy.

A new function is one line here, one in the generator's table, and one in te/api.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Intrinsic:
    """A function without effects.

    Attributes: `operands`: "float" (integers are cast to float32 first), "integer" or "any"; `result`: "same" as the operands, or "bool";
    `numpy`: the NumPy function (or the expression in `a`, `b`, `c`) with the same meaning; `integer_identity`: of an integer it is the operand itself;
    `exact`: of exact operands the result is exact (see expr.py).
    """

    name: str
    arity: int
    operands: str
    result: str
    numpy: str
    integer_identity: bool = False
    exact: bool = False


INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        Intrinsic("exp", 1, "float", "same", "np.exp(a)"),
        Intrinsic("exp2", 1, "float", "same", "np.exp2(a)"),
        Intrinsic("log", 1, "float", "same", "np.log(a)"),
        Intrinsic("log2", 1, "float", "same", "np.log2(a)"),
        Intrinsic("log1p", 1, "float", "same", "np.log1p(a)"),
        Intrinsic("sqrt", 1, "float", "same", "np.sqrt(a)"),
        Intrinsic("rsqrt", 1, "float", "same", "1 / np.sqrt(a)"),
        Intrinsic("tanh", 1, "float", "same", "np.tanh(a)"),
        Intrinsic("sigmoid", 1, "float", "same", "1 / (1 + np.exp(-a))"),
        Intrinsic("erf", 1, "float", "same", "erf(a)"),
        Intrinsic("sin", 1, "float", "same", "np.sin(a)"),
        Intrinsic("cos", 1, "float", "same", "np.cos(a)"),
        Intrinsic("pow", 2, "float", "same", "np.power(a, b)"),
        Intrinsic("fma", 3, "float", "same", "a * b + c"),
        Intrinsic("abs", 1, "any", "same", "np.abs(a)"),
        Intrinsic("floor", 1, "any", "same", "np.floor(a)", integer_identity=True),
        Intrinsic("ceil", 1, "any", "same", "np.ceil(a)", integer_identity=True),
        Intrinsic("round", 1, "any", "same", "np.rint(a)", integer_identity=True),  # halves to even
        Intrinsic("trunc", 1, "any", "same", "np.trunc(a)", integer_identity=True),
        Intrinsic("isnan", 1, "any", "bool", "np.isnan(a)"),
        Intrinsic("isinf", 1, "any", "bool", "np.isinf(a)"),
        Intrinsic("isfinite", 1, "any", "bool", "np.isfinite(a)"),
        Intrinsic("popcount", 1, "integer", "same", "np.bitwise_count(a)"),
        Intrinsic("bitwise_and", 2, "integer", "same", "a & b"),
        Intrinsic("bitwise_or", 2, "integer", "same", "a | b"),
        Intrinsic("bitwise_xor", 2, "integer", "same", "a ^ b", exact=True),
        Intrinsic("bitwise_not", 1, "integer", "same", "~a"),
        Intrinsic("shift_left", 2, "integer", "same", "a << b"),
        Intrinsic("shift_right", 2, "integer", "same", "a >> b"),
        Intrinsic("wrap", 1, "integer", "same", "a"),  # index arithmetic used as a value: from here on it wraps in its dtype
        # What legalize makes of // and % where neither operand is negative and the divisor is not zero: C's own division.
        Intrinsic("truncdiv", 2, "integer", "same", "a // b", exact=True),
        Intrinsic("truncmod", 2, "integer", "same", "a % b", exact=True),
    )
}
