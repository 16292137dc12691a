"""Constant bounds and residues: expected values, and soundness at every point of small ranges."""

import pytest
from hypothesis import given, settings

from tilewright.tir import Buffer, Var
from tilewright.tir import expr as ir
from tilewright.tir.bounds import constant_bounds, modulus
from tilewright.tir.dtype import BOOL, INT32, INT64, dtype
from tilewright.tir.expr import broadcast, call, cast, const, load, ramp

from .evaluation import Generator, evaluate, points, seeds

i, j = Var("i", bounds=(0, 7)), Var("j", bounds=(-3, 15))
n = Var("n", bounds=(1, None))
zero = Var("zero", bounds=(0, 0))  # of a loop of one iteration
free = Var("free")
BYTES, WORDS, FLOATS = (Buffer(name, (16,), kind) for name, kind in (("b", "uint8"), ("w", "int32"), ("f", "float32")))
byte, word = load(BYTES, [i]), load(WORDS, [i])


@pytest.mark.parametrize(
    ("e", "low", "high"),
    [
        (i * 16 + j, -3, 127),
        (5 - i, -2, 5),
        (i * -2, -14, 0),
        (i * j, -21, 105),
        (i * n, 0, None),
        (n + 1, 2, None),
        (free, None, None),
        (free % 8, 0, 7),
        (free % -8, -7, 0),
        (free % n, 0, None),
        (i % n, 0, 7),
        (j // 4, -1, 3),
        (j // -4, -4, 0),
        (i // n, 0, 7),
        ((i + 8) // zero, 0, 0),
        ((i + 8) % zero, 0, 0),
        ((i + 8) % 8, 0, 7),
        ((i + 8) // 8, 1, 1),
        (ir.minimum(i, j), -3, 7),
        (ir.minimum(free, i), None, 7),
        (ir.maximum(i, 3 + free), 0, None),
        (ir.select(i < 3, i, j), -3, 15),
        (i < 8, 1, 1),
        (i < 0, 0, 0),
        (i == j, 0, 1),
        (i == 9, 0, 0),
        (i != 9, 1, 1),
        (cast(i < 3, INT32), 0, 1),
        (byte, 0, 255),
        (cast(byte, INT32) < 256, 1, 1),
        (word, -(1 << 31), (1 << 31) - 1),
        (word + 1, -(1 << 31), (1 << 31) - 1),
        (word // 4, -(1 << 29), (1 << 29) - 1),
        (word % 10, 0, 9),
        (byte + byte, 0, 255),
        (cast(byte, INT32) * 2 + 1, 1, 511),
        (cast(word, dtype("int8")), -128, 127),
        (call("abs", cast(byte, INT32) - 3), 0, 252),
        (call("bitwise_and", word, const(15)), 0, 15),
        (call("shift_right", cast(byte, INT32), const(4)), 0, 15),
        (call("popcount", word), 0, 32),
        (load(FLOATS, [i]), None, None),
        (ramp(i, 2, 4), 0, 13),
        (ramp(i, -1, 4), -3, 7),
        (broadcast(j, 8), -3, 15),
        (cast(free, INT64), None, None),
        (const(True, BOOL), 1, 1),
    ],
)
def test_bounds(e, low, high):
    assert constant_bounds(e) == (low, high)


@pytest.mark.parametrize(
    ("e", "m", "r"),
    [
        (const(6), 0, 6),
        (i, 1, 0),
        (i * 8 + 3, 8, 3),
        (i * 8 + j * 12, 4, 0),
        (5 - i * 4, 4, 1),
        ((i * 4 + 2) * 3, 12, 6),
        (i * 8 // 2, 4, 0),
        (i * 12 % 8, 4, 0),
        (ir.minimum(i * 4, j * 6 + 2), 2, 0),
        (ir.select(i < 3, const(3), const(11)), 8, 3),
        (ramp(i * 16, 4, 4), 4, 0),
        (broadcast(i * 16 + 1, 4), 16, 1),
        (word * 8, 1, 0),
        (cast(i * 8, INT64), 8, 0),
    ],
)
def test_modulus(e, m, r):
    assert modulus(e) == (m, r)


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_bounds_and_residue_hold_everywhere(seed):
    generator = Generator(seed)
    e = generator.any()
    low, high = constant_bounds(e)
    m, r = modulus(e)
    for point in points(generator.variables):
        value = int(evaluate(e, point))
        assert low <= value <= high, (e, point)
        assert (value - r) % m == 0 if m else value == r, (e, point)


def test_bounds_are_tight_where_variables_occur_once():
    for e in (i * 3 - j * 2 + 1, (i * 16 + j) // 8, ir.minimum(i * 2, 9 - j), ir.maximum(i, j) - 4):
        values = [evaluate(e, point) for point in points([i, j])]
        assert constant_bounds(e) == (min(values), max(values))
