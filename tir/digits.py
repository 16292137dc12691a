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
from .expr import Add, Const, Expr, FloorDiv, FloorMod, Mul, add, const, floordiv, floormod

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


def join_digits(terms: Terms, simplified: Callable[[Expr], Expr]) -> int:
    """Replace x // c * (c * f) + x % c * f by x * f, and x // c % d * (c * f) + x % c * f by x % (c * d) * f, as often as they occur; gives what that adds to
    the constant. `simplified` gives the form that a quotient or remainder has in a sum."""
    constant = 0
    remainders: list[Any] = [atom for atom in terms if atom.__class__ is FloorMod]
    while remainders:
        low = remainders.pop()
        factor = terms.get(low)
        if factor is None:
            continue
        for high in terms:
            if high is low:
                continue
            joined = _joined(high, terms[high], low, factor, simplified)
            if joined is not None:
                constant += _in_place(terms, high, low, joined, factor)
                remainders = [atom for atom in terms if atom.__class__ is FloorMod]
                break
    return constant


def _in_place(terms: Terms, high: Expr, low: Expr, joined: Expr, factor: int) -> int:
    """Puts joined * factor where `high` stood, and takes `low` out; gives what that adds to the constant."""
    before, constant = list(terms.items()), 0
    terms.clear()
    for atom, multiple in before:
        if atom is high:
            constant += collect(joined, factor, terms)
        elif atom is not low:
            add_term(terms, atom, multiple)
    return constant


def _joined(high: Any, high_factor: int, low: Any, factor: int, simplified: Callable[[Expr], Expr]) -> Expr | None:
    """With `low` = x % c: x where `high` is x // c or x // c * c, x % (c * d) where it is x // c % d, with the coefficients that make them one number."""
    divisor = low.b
    if divisor.__class__ is not Const:
        if high.__class__ is not Mul or high_factor != factor:
            return None
        whole: Any = high.b if high.a is divisor else high.a if high.b is divisor else None
        return low.a if whole.__class__ is FloorDiv and whole.a is low.a and whole.b is divisor else None
    if high_factor != factor * divisor.value:
        return None
    if high.__class__ is FloorDiv:
        return low.a if _is_quotient(high, low.a, divisor, simplified) else None
    if high.__class__ is FloorMod and high.b.__class__ is Const:
        whole, offset = (high.a.a, high.a.b.value) if high.a.__class__ is Add and high.a.b.__class__ is Const else (high.a, 0)
        if _is_quotient(whole, low.a, divisor, simplified):  # x // c + e is (x + e * c) // c, and x % c is (x + e * c) % c
            number = add(low.a, const(offset * divisor.value, low.dtype))
            return simplified(floormod(number, const(divisor.value * high.b.value, low.dtype)))
    return None


def _is_quotient(e: Any, x: Any, divisor: Const, simplified: Callable[[Expr], Expr]) -> bool:
    """Whether `e` is x // divisor, in one of its forms."""
    if e.__class__ is FloorDiv and e.a is x and e.b is divisor:
        return True
    if e.__class__ is FloorDiv and x.__class__ is FloorDiv and x.a is e.a and x.b.__class__ is Const and e.b.__class__ is Const:
        return bool(e.b.value == x.b.value * divisor.value)  # x // a // c is written x // (a * c)
    return simplified(floordiv(x, divisor)) is e  # (4*i + j) // 168 is written i // 42 where 0 <= j < 4
