"""Interning: one object for equal expressions, and nothing global that keeps them alive."""

import gc
import weakref

from tilewright.tir.expr import Buffer, Var, broadcast, call, const, if_then_else, load, lt, ramp


def test_equal_trees_are_one_object():
    i, a = Var("i"), Buffer("A", (8,))
    assert load(a, (i + 1,)) * 2.0 is load(a, (i + 1,)) * 2.0
    assert ramp(i, 1, 4) is ramp(i, 1, 4) and ramp(const(0), 1, 4) is ramp(const(0), 1, 4)


def test_dropping_the_variables_drops_all_that_was_built_on_them():
    """Also where the first operand is a vector made of constants, which lives for ever."""

    def build():
        i, a = Var("i"), Buffer("A", (8,))
        lanes = ramp(const(0), 1, 4)
        mask = lt(lanes, broadcast(i, 4))
        constant_index = load(a, (lanes,), mask)
        value = if_then_else(mask, constant_index, broadcast(call("exp", const(2.0, "float32")), 4) + load(a, (ramp(i, 1, 4),)))
        nodes = [i, a, mask, constant_index, value, broadcast(const(1), 4) + ramp(i, i, 4)]
        return [weakref.ref(n) for n in nodes]

    references = build()
    gc.collect()
    assert [r() for r in references] == [None] * len(references)
