"""Computes the polynomial coefficients in targets/c_math_table.py: minimax fits by Remez's exchange, with coefficients rounded to the type.

    python benchmarks/minimax.py [NAME ...]        needs mpmath (pip install mpmath); about a minute for all

Only for whoever changes that table. Method: E. Ya. Remez (1934), on a grid of Chebyshev points, in 60 digits. The coefficients are rounded
one after the other, lowest first; after each the others are fitted again, so that they make up for what the rounding lost.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]
GRID = 400
EXCHANGES = 30


@dataclass(frozen=True)
class Fit:
    """A polynomial to find: p(x - centre) of `terms` coefficients near `target` on [low, high], minimising the largest |weight * error|.

    `weight` turns an error of the polynomial into a relative error of the function it serves.
    """

    target: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    terms: dict[str, int]  # by element type
    centre: dict[str, float]


def remez(target: list[mp.mpf], basis: list[list[mp.mpf]]) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients c that minimise max |target[g] - sum_j c[j] basis[g][j]| over the grid points g, and that maximum."""
    terms = len(basis[0])
    reference = [int((i + 0.5) * GRID / (terms + 1)) for i in range(terms + 1)]
    best: tuple[list[mp.mpf], mp.mpf] | None = None
    for _ in range(EXCHANGES):
        system = mp.matrix(terms + 1, terms + 1)
        right = mp.matrix(terms + 1, 1)
        for i, point in enumerate(reference):
            for j in range(terms):
                system[i, j] = basis[point][j]
            system[i, terms], right[i] = (-1) ** i, target[point]
        solution = mp.lu_solve(system, right)
        coefficients = [solution[j] for j in range(terms)]
        errors = [t - mp.fdot(coefficients, row) for t, row in zip(target, basis, strict=True)]
        largest = max(abs(e) for e in errors)
        if best is None or largest < best[1]:
            best = coefficients, largest
        reference = alternating_extrema(errors, terms + 1)
        if largest - abs(solution[terms]) < largest / 1000 or len(reference) <= terms:
            break
    return best


def alternating_extrema(errors: list[mp.mpf], count: int) -> list[int]:
    """At most `count` grid points at which the error is extreme, of alternating sign."""
    extrema: list[int] = []
    for point, error in enumerate(errors):
        if not extrema or mp.sign(error) != mp.sign(errors[extrema[-1]]):
            extrema.append(point)
        elif abs(error) > abs(errors[extrema[-1]]):
            extrema[-1] = point
    while len(extrema) > count:
        sizes = [abs(errors[point]) for point in extrema]
        if len(extrema) == count + 1:
            del extrema[0 if sizes[0] < sizes[-1] else -1]
        else:  # the weakest neighbouring pair: what is left alternates
            weakest = min(range(len(extrema) - 1), key=lambda i: max(sizes[i], sizes[i + 1]))
            del extrema[weakest : weakest + 2]
    return extrema


def rounded(value: mp.mpf, dtype: str) -> mp.mpf:
    """The nearest number of the element type."""
    number = float(value)
    return mp.mpf(struct.unpack("f", struct.pack("f", number))[0] if dtype == "float32" else number)


def solve(fit: Fit, dtype: str) -> tuple[list[mp.mpf], mp.mpf]:
    """Rounded coefficients, lowest first, and the largest weighted error with them."""
    grid = [fit.low + (fit.high - fit.low) * (1 - mp.cos(mp.pi * (i + 0.5) / GRID)) / 2 for i in range(GRID)]
    offsets = [x - fit.centre[dtype] for x in grid]
    weights = [abs(fit.weight(x)) for x in grid]
    remainders = [fit.target(x) for x in grid]  # what the rounded coefficients leave, over x^(their number)
    coefficients: list[mp.mpf] = []
    terms = fit.terms[dtype]
    while len(coefficients) < terms:
        basis = [[w * x**j for j in range(terms - len(coefficients))] for w, x in zip(weights, offsets, strict=True)]
        found, _ = remez([w * r for w, r in zip(weights, remainders, strict=True)], basis)
        coefficients.append(rounded(found[0], dtype))
        remainders = [(r - coefficients[-1]) / x for r, x in zip(remainders, offsets, strict=True)]
        weights = [w * abs(x) for w, x in zip(weights, offsets, strict=True)]
    return coefficients, max(abs(w * r) for w, r in zip(weights, remainders, strict=True))


def root(function: Function) -> Function:
    return lambda z: function(mp.sqrt(z))


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.001")
QUARTER_PI = mp.pi / 4 * mp.mpf("1.005")
BOTH = {"float32": 0.0, "float64": 0.0}
ARTANH_END = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mp.mpf("1.001")) ** 2

# Intervals are a little wider than needed: the reduced argument is rounded. Functions of z are even or odd ones of sqrt(z).
FITS: dict[str, Fit] = {
    "EXP": Fit(lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.expm1(r), -HALF_LN2, HALF_LN2, {"float32": 5, "float64": 10}, BOTH),
    "EXP2": Fit(lambda r: (2**r - 1) / r, lambda r: r / 2**r, mp.mpf("-0.5001"), mp.mpf("0.5001"), {"float32": 6, "float64": 11}, BOTH),
    "LOG in f": Fit(
        lambda f: (mp.log1p(f) - f + f * f / 2) / f**3,
        lambda f: f**3 / mp.log1p(f),
        (mp.sqrt(0.5) - 1) * mp.mpf("1.001"),
        (mp.sqrt(2) - 1) * mp.mpf("1.001"),
        {"float32": 8},
        BOTH,
    ),
    "LOG in s": Fit(root(lambda s: (2 * mp.atanh(s) / s - 2) / s**2), lambda z: z / 2, mp.mpf(0), ARTANH_END, {"float64": 7}, BOTH),
    "ERF float32": Fit(root(lambda x: mp.erf(x) / x - 1), root(lambda x: x / mp.erf(x)), mp.mpf(0), mp.mpf("0.811"), {"float32": 6}, BOTH),
    "ERF float64": Fit(root(lambda x: mp.erf(x) / x - 1), root(lambda x: x / mp.erf(x)), mp.mpf(0), mp.mpf("1.001"), {"float64": 12}, BOTH),
    "LOG_ERFC float32": Fit(lambda x: mp.log(mp.erfc(x)), lambda x: mp.erfc(x) / mp.erf(x), mp.mpf("0.899"), mp.mpf(4), {"float32": 7}, BOTH),
    "LOG_ERFC float64": Fit(
        lambda x: mp.log(mp.erfc(x)), lambda x: mp.erfc(x) / mp.erf(x), mp.mpf("0.999"), mp.mpf("5.93"), {"float64": 19}, {"float64": 2.75}
    ),
    "SIN": Fit(
        root(lambda r: (mp.sin(r) / r - 1) / r**2),
        root(lambda r: r**3 / mp.sin(r)),
        mp.mpf(0),
        QUARTER_PI**2,
        {"float32": 3, "float64": 6},
        BOTH,
    ),
    "COS": Fit(
        root(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4),
        root(lambda r: r**4 / mp.cos(r)),
        mp.mpf(0),
        QUARTER_PI**2,
        {"float32": 3, "float64": 6},
        BOTH,
    ),
}


def shortest(value: mp.mpf, dtype: str) -> str:
    """The shortest decimal that reads back as this number of the element type."""
    if dtype == "float64":
        return repr(float(value))
    return next(text for digits in range(1, 18) if rounded(mp.mpf(text := repr(float(f"{float(value):.{digits}g}"))), dtype) == value)


def main(names: list[str]) -> None:
    for name, fit in FITS.items():
        if not names or name.split()[0] in names:
            for dtype in fit.terms:
                coefficients, error = solve(fit, dtype)
                print(f"{name}, {dtype}: largest error 2^{float(mp.log(error, 2)):.1f}")
                print(f"    ({', '.join(shortest(c, dtype) for c in coefficients)})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
