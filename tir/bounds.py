"""What is known for ever about the value of an integer or bool expression: constant bounds, and a residue.

`constant_bounds(e)` is the inclusive (low, high), None where unbounded. It follows only from `Var.bounds` and dtypes, so it is kept on the
node. An Analyzer (simplify.py), which is told more, runs the same rules with its own memo: each takes the function that gives the bounds
of operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any, TypeAlias

from .expr import (
    EQ,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    IfThenElse,
    Load,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    Var,
)

Bounds: TypeAlias = "tuple[int | None, int | None]"
BoundsOf: TypeAlias = "Callable[[Any], Bounds]"

UNKNOWN: Bounds = (None, None)
TRUTH: Bounds = (0, 1)


def constant_bounds(e: Expr) -> Bounds:
    """The inclusive bounds of `e` that follow from the ranges its variables were made with."""
    found = e._bounds
    if found is None:
        found = e._bounds = BOUNDS_RULES[e.__class__](e, constant_bounds)
    return found  # type: ignore[no-any-return]


def sum_bounds(terms: Mapping[Expr, int], constant: int, bounds: BoundsOf) -> Bounds:
    """Bounds of a sum, term by term."""
    low: int | None = constant
    high: int | None = constant
    for atom, factor in terms.items():
        a, b = bounds(atom)
        if factor < 0:
            a, b = b, a
        low = None if low is None or a is None else low + a * factor
        high = None if high is None or b is None else high + b * factor
        if low is None and high is None:
            break
    return low, high


def fit(e: Expr, low: int | None, high: int | None) -> Bounds:
    """The bounds of an operation whose exact result lies in [low, high]: if it might wrap, anything of its dtype."""
    if e.exact:
        return low, high
    kind = e.dtype
    if kind.is_float:
        return UNKNOWN
    if low is None or high is None or low < kind.low or high > kind.high:
        return kind.low, kind.high  # type: ignore[return-value]
    return low, high


def _anything(e: Expr, of: BoundsOf) -> Bounds:
    kind = e.dtype
    return UNKNOWN if kind.is_float or e.exact else (kind.low, kind.high)  # type: ignore[return-value]


def _var(e: Any, of: BoundsOf) -> Bounds:
    return TRUTH if e.dtype.is_bool else e.bounds


def _const(e: Any, of: BoundsOf) -> Bounds:
    return UNKNOWN if e.dtype.is_float else (e.value, e.value)


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _add(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    return fit(e, _plus(low, other_low), _plus(high, other_high))


def _sub(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    least = None if low is None or other_high is None else low - other_high
    return fit(e, least, None if high is None or other_low is None else high - other_low)


def scaled(bounds: Bounds, factor: int) -> Bounds:
    """The bounds of `factor` times something."""
    low, high = bounds
    if factor < 0:
        low, high = high, low
    return None if low is None else low * factor, None if high is None else high * factor


def _mul(e: Any, of: BoundsOf) -> Bounds:
    if e.dtype.is_float:
        return UNKNOWN
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    if other_low is not None and other_low == other_high:
        return fit(e, *scaled((low, high), other_low))
    if low is None or high is None or other_low is None or other_high is None:
        if low is not None and other_low is not None and low >= 0 and other_low >= 0:
            return fit(e, low * other_low, None if high is None or other_high is None else high * other_high)
        return fit(e, None, None)
    corners = (low * other_low, low * other_high, high * other_low, high * other_high)
    return fit(e, min(corners), max(corners))


def _floordiv(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.a)
    divisor_low, divisor_high = of(e.b)
    if divisor_low == divisor_high == 0:
        return 0, 0
    if divisor_low is None or divisor_low < 0:
        if divisor_high is None or divisor_high > 0:  # the divisor may be zero or of either sign: only its magnitude is used
            if low is None or high is None:
                return fit(e, None, None)
            most = max(abs(low), abs(high))
            return fit(e, -most, most)
        low, high = None if high is None else -high, None if low is None else -low
        divisor_low, divisor_high = None if divisor_high is None else -divisor_high, None if divisor_low is None else -divisor_low
    assert divisor_low is not None
    divisor_low = max(divisor_low, 1)
    if low is not None:
        low = low // divisor_low if low < 0 else 0 if divisor_high is None else low // divisor_high
    if high is not None:
        high = high // divisor_low if high >= 0 else -1 if divisor_high is None else high // divisor_high
    return fit(e, low, high)


def _floormod(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.a)
    divisor_low, divisor_high = of(e.b)
    if divisor_low is not None and divisor_low >= 0:  # it is not zero
        if low is not None and high is not None:
            if divisor_low == divisor_high and divisor_low > 0 and low // divisor_low == high // divisor_low:
                return low % divisor_low, high % divisor_low
            if low >= 0 and high < divisor_low:
                return low, high
        most = None if divisor_high is None else max(divisor_high - 1, 0)
        if low is not None and low >= 0 and high is not None:
            most = high if most is None else min(most, high)
        return 0, most
    if divisor_high is not None and divisor_high < 0:
        return None if divisor_low is None else divisor_low + 1, 0
    if divisor_low is None or divisor_high is None:
        return fit(e, None, None)
    return min(divisor_low + 1, 0), max(divisor_high - 1, 0)


def _min(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    if high is None or (other_high is not None and other_high < high):
        high = other_high
    return None if low is None or other_low is None else min(low, other_low), high


def _max(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    if low is None or (other_low is not None and other_low > low):
        low = other_low
    return low, None if high is None or other_high is None else max(high, other_high)


def _lt(e: Any, of: BoundsOf) -> Bounds:
    if e.a.dtype.is_float:
        return TRUTH
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    if high is not None and other_low is not None and high < other_low:
        return 1, 1
    return (0, 0) if low is not None and other_high is not None and low >= other_high else TRUTH


def _le(e: Any, of: BoundsOf) -> Bounds:
    if e.a.dtype.is_float:
        return TRUTH
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    if high is not None and other_low is not None and high <= other_low:
        return 1, 1
    return (0, 0) if low is not None and other_high is not None and low > other_high else TRUTH


def _eq(e: Any, of: BoundsOf) -> Bounds:
    if e.a.dtype.is_float:
        return TRUTH
    low, high = of(e.a)
    other_low, other_high = of(e.b)
    if high is not None and other_low is not None and high < other_low:
        return 0, 0
    if low is not None and other_high is not None and low > other_high:
        return 0, 0
    return (1, 1) if low is not None and low == high == other_low == other_high else TRUTH


def _ne(e: Any, of: BoundsOf) -> Bounds:
    low, high = _eq(e, of)
    return 1 - high, 1 - low  # type: ignore[operator]


def _not(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.a)
    return 1 - high, 1 - low  # type: ignore[operator]


def _choice(e: Any, of: BoundsOf) -> Bounds:
    if e.dtype.is_float:
        return UNKNOWN
    truth = of(e.condition)
    if truth[0] == truth[1]:
        return of(e.then if truth[0] else e.otherwise)
    low, high = of(e.then)
    other_low, other_high = of(e.otherwise)
    return (
        None if low is None or other_low is None else min(low, other_low),
        None if high is None or other_high is None else max(high, other_high),
    )


def _cast(e: Any, of: BoundsOf) -> Bounds:
    if e.dtype.is_bool:
        return TRUTH
    if e.value.dtype.is_float:
        return _anything(e, of)
    return fit(e, *of(e.value))


def _ramp(e: Any, of: BoundsOf) -> Bounds:
    low, high = of(e.base)
    stride_low, stride_high = of(e.stride)
    last = e.dtype.lanes - 1
    low = None if low is None or stride_low is None else low + min(0, stride_low * last)
    high = None if high is None or stride_high is None else high + max(0, stride_high * last)
    return fit(e, low, high)


def _broadcast(e: Any, of: BoundsOf) -> Bounds:
    return of(e.value)


def _call(e: Any, of: BoundsOf) -> Bounds:
    if e.dtype.is_float or e.dtype.is_bool:
        return TRUTH if e.dtype.is_bool else UNKNOWN
    name = e.name
    if name == "popcount":
        return 0, e.args[0].dtype.bits
    if name == "wrap":
        return fit(e, *of(e.args[0]))
    if name == "abs":
        low, high = of(e.args[0])
        if low is not None and high is not None:
            return fit(e, max(low, -high, 0), max(-low, high))
    elif name == "bitwise_and":
        return _bitwise_and(e, of)
    elif name in ("bitwise_xor", "bitwise_or"):
        return _bitwise_or(e, of)
    elif name == "shift_right":
        low, high = of(e.args[0])
        amount_low = of(e.args[1])[0]
        if amount_low is not None and amount_low >= 0 and low is not None and high is not None:
            return (low >> amount_low if low < 0 else 0), (high >> amount_low if high >= 0 else -1)
    return _anything(e, of)


def _bitwise_and(e: Any, of: BoundsOf) -> Bounds:
    """Of operands of which one is not negative, the result is not negative and not above it."""
    low, high = of(e.args[0])
    other_low, other_high = of(e.args[1])
    most = [h for l, h in ((low, high), (other_low, other_high)) if l is not None and l >= 0 and h is not None]
    return (0, min(most)) if most else _anything(e, of)


def _bitwise_or(e: Any, of: BoundsOf) -> Bounds:
    """Of operands that are not negative, the result has no bit above theirs."""
    low, high = of(e.args[0])
    other_low, other_high = of(e.args[1])
    if low is None or other_low is None or high is None or other_high is None or low < 0 or other_low < 0:
        return _anything(e, of)
    return 0, (1 << max(high, other_high).bit_length()) - 1


BOUNDS_RULES: dict[type, Callable[[Any, BoundsOf], Bounds]] = {
    Var: _var, Const: _const, Add: _add, Sub: _sub, Mul: _mul, Div: _anything, FloorDiv: _floordiv, FloorMod: _floormod, Min: _min,
    Max: _max, EQ: _eq, NE: _ne, LT: _lt, LE: _le, And: _min, Or: _max, Not: _not, Select: _choice, IfThenElse: _choice, Cast: _cast,
    Load: _anything, Call: _call, Ramp: _ramp, Broadcast: _broadcast,
}  # fmt: skip


def always_inside(buffer: Buffer, index: Expr) -> bool:
    """Whether an index of a flat buffer is certainly inside it; of a vector, in every lane."""
    size = buffer.constant_size
    if size is None or not index.exact:
        return False
    low, high = constant_bounds(index)
    return low is not None and low >= 0 and high is not None and high < size


# -------------------------------------------------------------------------------------------------------------------- residues


def modulus(e: Expr) -> tuple[int, int]:
    """(m, r): the value of `e` is m * q + r for some integer q, 0 <= r < m; m = 0: it is the constant r; (1, 0): nothing is known.

    Of a vector, of every lane.
    """
    found = e._modulus
    if found is None:
        found = e._modulus = _MODULUS_RULES.get(e.__class__, _no_modulus)(e)
    return found  # type: ignore[no-any-return]


def _no_modulus(e: Any) -> tuple[int, int]:
    return 1, 0


def _residue(m: int, r: int) -> tuple[int, int]:
    return (m, r % m) if m else (0, r)


def _merge(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """What holds of a value that is one or the other."""
    return _residue(gcd(a[0], b[0], a[1] - b[1]), a[1])


def _exactly(rule: Callable[[Any], tuple[int, int]]) -> Callable[[Any], tuple[int, int]]:
    """The rule where nothing wraps."""
    return lambda e: rule(e) if e.exact else (1, 0)


def _mul_modulus(e: Any) -> tuple[int, int]:
    (m, r), (n, s) = modulus(e.a), modulus(e.b)
    return _residue(gcd(m * n, m * s, n * r), r * s)


def _div_modulus(e: Any) -> tuple[int, int]:
    m, r = modulus(e.a)
    divisor = e.b.value if e.b.__class__ is Const else 0
    return _residue(m // divisor, r // divisor) if divisor > 0 and m % divisor == 0 and m else (1, 0)


def _mod_modulus(e: Any) -> tuple[int, int]:
    m, r = modulus(e.a)
    divisor = e.b.value if e.b.__class__ is Const else 0
    return _residue(gcd(m, divisor), r) if divisor > 0 else (1, 0)


_MODULUS_RULES: dict[type, Callable[[Any], tuple[int, int]]] = {
    Const: lambda e: (1, 0) if e.dtype.is_float else (0, e.value),
    Add: _exactly(lambda e: _residue(gcd(modulus(e.a)[0], modulus(e.b)[0]), modulus(e.a)[1] + modulus(e.b)[1])),
    Sub: _exactly(lambda e: _residue(gcd(modulus(e.a)[0], modulus(e.b)[0]), modulus(e.a)[1] - modulus(e.b)[1])),
    Mul: _exactly(_mul_modulus),
    FloorDiv: _exactly(_div_modulus),
    FloorMod: _exactly(_mod_modulus),
    Min: _exactly(lambda e: _merge(modulus(e.a), modulus(e.b))),
    Max: _exactly(lambda e: _merge(modulus(e.a), modulus(e.b))),
    Select: _exactly(lambda e: _merge(modulus(e.then), modulus(e.otherwise))),
    IfThenElse: _exactly(lambda e: _merge(modulus(e.then), modulus(e.otherwise))),
    Cast: _exactly(lambda e: modulus(e.value) if e.value.dtype.is_integer else (1, 0)),
    Broadcast: lambda e: modulus(e.value),
    Ramp: _exactly(lambda e: _residue(gcd(modulus(e.base)[0], *modulus(e.stride)), modulus(e.base)[1])),
}
