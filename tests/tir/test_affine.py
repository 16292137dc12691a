"""Sums as terms: what is collected, in what order, and what is built from it."""

from hypothesis import given, settings

from tilewright.tir.affine import affine, build, common_factor, difference, split_multiples
from tilewright.tir.dtype import INT32, INT64
from tilewright.tir.expr import Var, cast, const

from .evaluation import Generator, evaluate, points, seeds

i, j, n = Var("i"), Var("j"), Var("n")


def test_like_terms_meet_in_order_of_first_occurrence():
    terms, constant = affine((j + i * 2) * 3 - (i - 4) + 1)
    assert terms == {j: 3, i: 5} and list(terms) == [j, i] and constant == 5
    assert str(build(terms, constant, INT32)) == "j * 3 + i * 5 + 5"


def test_terms_that_cancel_are_gone():
    assert affine((i + j) * 2 - j - (j + i * 2)) == ({}, 0)
    assert difference(i * 16 + j + 3, j + i * 16) == ({}, 3)


def test_what_is_no_sum_is_an_atom():
    product, quotient = i * n, (i + 1) // 4
    assert affine(product * 2 + quotient)[0] == {product: 2, quotient: 1}


def test_texts_of_sums():
    assert str(build({}, 7, INT32)) == "7"
    assert str(build({i: -1}, 0, INT32)) == "0 - i"
    assert str(build({i: -2, j: 1}, -3, INT32)) == "j - i * 2 - 3"


def test_widths_of_exact_integers_mean_nothing():
    wide = cast(i, INT64) * 4 + cast(j + 1, INT64)
    terms, constant = affine(wide)
    assert terms == {i: 4, j: 1} and constant == 1
    assert build(terms, constant, INT64).dtype is INT64


def test_split_multiples():
    quotient, rest = split_multiples({i: 32, j: 6, n: -16}, 16)
    assert quotient == {i: 2, n: -1} and rest == {j: 6}
    assert common_factor({i: 32, j: -6}) == 2 and common_factor({}) == 0


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_build_is_the_inverse_of_affine(seed):
    generator = Generator(seed)
    e = generator.integer()
    terms, constant = affine(e)
    again = build(terms, constant, e.dtype)
    assert affine(again) == (terms, constant)
    for point in points(generator.variables):
        assert evaluate(again, point) == evaluate(e, point)


def test_constants_only():
    assert affine(const(5)) == ({}, 5)
