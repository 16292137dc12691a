"""Sums of multiples: `c1*x1 + c2*x2 + ... + k` of exact integers, as a dictionary from atom to coefficient and a constant.

An atom is whatever is not itself a sum, a difference or a multiple by a constant. The terms stay in the order in which they first occur, so
texts do not depend on where objects lie in memory. What may be proved about a sum is in bounds.py and simplify.py.
"""

from __future__ import annotations

from math import gcd
from typing import Any, TypeAlias

from .dtype import DType
from .expr import Add, Cast, Const, Expr, Mul, Sub, add, cast, const, mul, sub

Terms: TypeAlias = "dict[Expr, int]"


def collect(e: Any, scale: int, terms: Terms) -> int:
    """Add `scale * e` to `terms`, for an exact scalar `e`; gives what it adds to the constant. Terms that cancel are taken out."""
    cls = e.__class__
    if cls is Add:
        return collect(e.a, scale, terms) + collect(e.b, scale, terms)
    if cls is Const:
        return scale * e.value  # type: ignore[no-any-return]
    if cls is Mul:
        factor = e.b
        if factor.__class__ is Const:
            return collect(e.a, scale * factor.value, terms)
    elif cls is Sub:
        return collect(e.a, scale, terms) + collect(e.b, -scale, terms)
    elif cls is Cast and e.value.exact and e.value.dtype.is_integer:  # widths of exact integers mean nothing
        return collect(e.value, scale, terms)
    total = terms.get(e, 0) + scale  # add_term, written out
    if total:
        terms[e] = total
    else:
        terms.pop(e, None)
    return 0


def add_term(terms: Terms, atom: Expr, scale: int) -> None:
    """Add `scale * atom`."""
    total = terms.get(atom, 0) + scale
    if total:
        terms[atom] = total
    else:
        terms.pop(atom, None)


def affine(e: Expr) -> tuple[Terms, int]:
    """The exact integer `e` as terms and a constant."""
    terms: Terms = {}
    constant = collect(e, 1, terms)
    return terms, constant


def difference(a: Expr, b: Expr) -> tuple[Terms, int]:
    """`a - b` as terms and a constant."""
    terms: Terms = {}
    constant = collect(a, 1, terms) + collect(b, -1, terms)
    return terms, constant


def negated(terms: Terms) -> Terms:
    """The terms of minus a sum."""
    return {atom: -factor for atom, factor in terms.items()}


def factors(e: Expr) -> list[Expr]:
    """The factors of a product, left to right."""
    return [*factors(e.a), *factors(e.b)] if e.__class__ is Mul else [e]


def product(*operands: Expr) -> tuple[Expr, int]:
    """The product of factors as (atom, coefficient): those that are no constants in the order of their texts, so that equal ones are one object.

    Without any the atom is the constant 1.
    """
    scale = 1
    rest: list[Expr] = []
    pending = list(reversed(operands))
    while pending:
        factor = pending.pop()
        if factor.__class__ is Mul:
            pending += (factor.b, factor.a)
        elif factor.__class__ is Const:
            scale *= factor.value
        else:
            rest.append(factor)
    rest.sort(key=str)
    atom = rest[0] if rest else const(1, operands[0].dtype)
    for factor in rest[1:]:
        atom = mul(atom, factor)
    return atom, scale


def build(terms: Terms, constant: int, kind: DType) -> Expr:
    """The expression of a sum: what is added, then what is taken away, then the constant; `kind` is its dtype."""
    total: Expr | None = None
    negative = False
    for atom, factor in terms.items():
        if factor > 0:
            term = multiple(atom, factor, kind)
            total = term if total is None else add(total, term)
        else:
            negative = True
    if negative:
        if total is None:
            total, constant = const(constant, kind), 0
        for atom, factor in terms.items():
            if factor < 0:
                total = sub(total, multiple(atom, -factor, kind))
    if total is None:
        return const(constant, kind)
    return add(total, const(constant, kind)) if constant else total


def multiple(atom: Expr, factor: int, kind: DType) -> Expr:
    """`atom * factor` in dtype `kind`."""
    if atom.dtype is not kind:
        atom = cast(atom, kind)
    return atom if factor == 1 else mul(atom, const(factor, kind))


def split_multiples(terms: Terms, divisor: int) -> tuple[Terms, Terms]:
    """(quotient, rest): `terms` = quotient * divisor + rest, where rest has the terms whose coefficient is no multiple of `divisor`."""
    quotient: Terms = {}
    rest: Terms = {}
    for atom, factor in terms.items():
        if factor % divisor:
            rest[atom] = factor
        else:
            quotient[atom] = factor // divisor
    return quotient, rest


def common_factor(terms: Terms) -> int:
    """The greatest common divisor of the coefficients; 0 without any."""
    return gcd(*terms.values())
