"""Symbolic intervals are sound everywhere, and tight for sums, quotients and remainders."""

import pytest

from tilewright import tir
from tilewright.tir.expr import load
from tilewright.tir.interval import constant_upper_bound, interval

jo, ji, fo, fi = tir.Var("jo"), tir.Var("ji"), tir.Var("fo"), tir.Var("fi")
n = tir.Var("n", bounds=(1, None))
DOMAINS = {ji: (tir.const(0), tir.const(15)), fi: (tir.const(0), tir.const(7))}


@pytest.mark.parametrize(
    ("e", "low", "high"),
    [
        ((jo * 16 + ji) // 16, "jo", "jo"),
        ((jo * 16 + ji) % 16, "0", "15"),
        (jo * 16 + ji - ji, "jo * 16", "jo * 16"),
        (ji * 3 - (ji + ji), "0", "15"),
        (5 - ji, "-10", "5"),
        ((fo * 8 + fi) // 56, "fo // 7", "fo // 7"),
        ((fo * 8 + fi) % 56, "fo % 7 * 8", "fo % 7 * 8 + 7"),
        ((fo * 5 + fi) // 56, "fo * 5 // 56", "(fo * 5 + 7) // 56"),
        ((fo * 8 + fi) // n, "fo * 8 // n", "(fo * 8 + 7) // n"),
        ((fo * 8 + fi) % n, "0", "n - 1"),
        (ji * n, "0", "n * 15"),
        (tir.max(ji, jo), "max(jo, 0)", "max(jo, 15)"),
    ],
)
def test_expected_interval(e, low, high):
    found = interval(e, DOMAINS)
    assert found is not None
    assert (str(found[0]), str(found[1])) == (low, high)


def test_data_dependent_index_has_no_interval():
    table = tir.Buffer("table", (16,), "int32")
    assert interval(load(table, [ji]), DOMAINS) is None
    still = load(table, [jo])
    found = interval(still, DOMAINS)
    assert found is not None
    assert found[0] is still and found[1] is still


@pytest.mark.parametrize(
    ("e", "bound"),
    [
        (lambda x: (x * 8 + 7) // 56 - x * 8 // 56 + 1, 1),
        (lambda x: (x * 5 + 4) // 56 - x * 5 // 56 + 1, 2),
        (lambda x: (x * 8 + 7) // n - x * 8 // n + 1, 8),
        (lambda x: tir.min(n - 1, x + 7) - x + 1, 8),
        (lambda x: x + 1, None),
    ],
)
def test_upper_bound_of_an_extent(e, bound):
    assert constant_upper_bound(e(tir.Var("x"))) == bound
