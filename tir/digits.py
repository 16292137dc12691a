"""Quotients, remainders and comparisons of sums by constants: a sum of multiples read as a number in mixed radix.

Every function takes `bounds`, which gives the inclusive bounds of an atom, and gives sums (affine.py).
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any, TypeAlias

from .affine import Terms, add_term, build, collect, split_multiples
from .bounds import Bounds, sum_bounds
from .dtype import DType
from .expr import Const, Expr, FloorDiv, FloorMod, Mul, const, floordiv, floormod

Sum: TypeAlias = "tuple[Terms, int]"
BoundsOf: TypeAlias = "Callable[[Expr], Bounds]"


def quotient(terms: Terms, constant: int, divisor: int, kind: DType, bounds: BoundsOf) -> Sum:
    """The floored quotient of a sum by a positive constant. (16*i + j) // 16 = i where 0 <= j < 16."""
    result, rest = split_multiples(terms, divisor)  # (d*q + r) // d = q + r // d
    whole, left = divmod(constant, divisor)
    if not rest:
        return result, whole
    low, high = sum_bounds(rest, left, bounds)
    if low is not None and high is not None and low // divisor == high // divisor:
        return result, whole + low // divisor
    found = _low_digit(rest, left, divisor, bounds)
    if found is None:
        return result, whole + collect(floordiv(build(rest, left, kind), const(divisor, kind)), 1, result)
    digit, upper, upper_constant, _, _ = found  # (g*u + l) // (g*d) = u // d where 0 <= l < g
    more, extra = quotient(upper, upper_constant, divisor // digit, kind, bounds)
    for atom, factor in more.items():
        add_term(result, atom, factor)
    return result, whole + extra


def remainder(terms: Terms, constant: int, divisor: int, kind: DType, bounds: BoundsOf) -> Sum:
    """The remainder of a sum by a positive constant. (16*i + j) % 16 = j where 0 <= j < 16."""
    rest = split_multiples(terms, divisor)[1]  # (d*q + r) % d = r % d
    left = constant % divisor
    if not rest:
        return rest, left
    low, high = sum_bounds(rest, left, bounds)
    if low is not None and high is not None and low // divisor == high // divisor:
        return rest, left - low // divisor * divisor
    found = _low_digit(rest, left, divisor, bounds)
    if found is None:
        return {floormod(build(rest, left, kind), const(divisor, kind)): 1}, 0
    digit, upper, upper_constant, lower, lower_constant = found  # (g*u + l) % (g*d) = g * (u % d) + l where 0 <= l < g
    more, extra = remainder(upper, upper_constant, divisor // digit, kind, bounds)
    result = {atom: factor * digit for atom, factor in more.items()}
    for atom, factor in lower.items():
        add_term(result, atom, factor)
    return result, extra * digit + lower_constant


def _low_digit(terms: Terms, constant: int, divisor: int, bounds: BoundsOf) -> tuple[int, Terms, int, Terms, int] | None:
    """(g, u, uk, l, lk): the sum is g * (u + uk) + (l + lk), where g divides `divisor` and 0 <= l + lk < g."""
    for digit in _digits(terms, divisor):
        upper, lower = split_multiples(terms, digit)
        upper_constant, lower_constant = divmod(constant, digit)
        low, high = sum_bounds(lower, lower_constant, bounds)
        if low is not None and high is not None and low >= 0 and high < digit:
            return digit, upper, upper_constant, lower, lower_constant
    return None


def _digits(terms: Terms, divisor: int) -> list[int]:
    """The sizes a digit may have, largest first."""
    found = {gcd(factor, divisor) for factor in terms.values()}
    found.discard(1)
    return sorted(found, reverse=True)


def less_than(terms: Terms, limit: int, bounds: BoundsOf) -> Sum:
    """`sum < limit` with the common factor, and digits that do not matter, taken out. 16*i + j < 64 is i < 4 where 0 <= j < 16."""
    if len(terms) == 1:
        ((atom, factor),) = terms.items()
        size = abs(factor)
        return ({atom: factor // size}, -(-limit // size)) if size > 1 else (terms, limit)
    for digit in _digits(terms, 0):
        upper, lower = split_multiples(terms, digit)
        if not lower:  # g*u < k is u < k / g, rounded up
            return {atom: factor // digit for atom, factor in terms.items()}, -(-limit // digit)
        low, high = sum_bounds(lower, 0, bounds)
        if low is not None and high is not None and (limit - 1 - low) // digit == (limit - 1 - high) // digit:
            return less_than(upper, (limit - 1 - low) // digit + 1, bounds)  # g*u <= k - 1 - l, rounded down, whatever l is
    return terms, limit


def join_digits(terms: Terms) -> int:
    """Replace x // c * (c * f) + x % c * f by x * f, as often as it occurs; gives what that adds to the constant."""
    constant = 0
    remainders: list[Any] = [atom for atom in terms if atom.__class__ is FloorMod]
    while remainders:
        low = remainders.pop()
        factor = terms.get(low)
        if factor is None:
            continue
        for high in terms:
            if _next_digit(high, terms[high], low, factor):
                del terms[high], terms[low]
                constant += collect(low.a, factor, terms)
                remainders = [atom for atom in terms if atom.__class__ is FloorMod]
                break
    return constant


def _next_digit(high: Any, high_factor: int, low: Any, factor: int) -> bool:
    """Whether `high` is x // c or x // c * c where `low` is x % c, with the coefficients that make them one number."""
    divisor = low.b
    if divisor.__class__ is not Const:
        if high.__class__ is not Mul or high_factor != factor:
            return False
        whole: Any = high.b if high.a is divisor else high.a if high.b is divisor else None
        return whole.__class__ is FloorDiv and whole.a is low.a and whole.b is divisor
    if high.__class__ is not FloorDiv or high_factor != factor * divisor.value:
        return False
    if high.a is low.a and high.b is divisor:
        return True
    inner = low.a  # x // a // c is written x // (a * c)
    if inner.__class__ is not FloorDiv or inner.a is not high.a or inner.b.__class__ is not Const or high.b.__class__ is not Const:
        return False
    return bool(high.b.value == inner.b.value * divisor.value)
