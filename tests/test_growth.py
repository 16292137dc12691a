"""What large schedules cost: the work of lowering and the size of the C text grow with the program, not with powers of it."""

import subprocess
import sys

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.compiler import generate
from tilewright.schedule import bounds


def test_a_long_chain_is_inlined_once(monkeypatch):
    """Each of n inlined stages is put in once; it used to be copied into each of those after it."""
    substituted = 0

    def counting(e, mapping):
        nonlocal substituted
        substituted += 1
        return substitute(e, mapping)

    substitute = bounds.substitute
    A = T = te.placeholder((4,), name="A")
    stages = []
    for _ in range(1200):
        T = te.compute((4,), lambda i, T=T: T[i] + 1.0, name="T")
        stages.append(T)
    s = tw.create_schedule(T)
    for stage in stages[:-1]:
        s[stage].compute_inline()
    monkeypatch.setattr(bounds, "substitute", counting)
    loops = bounds.inlined(s.stages)
    assert substituted == len(stages) - 1
    assert len(loops) == 1
    a, b = np.arange(4, dtype="float32"), np.empty(4, "float32")
    tw.build(s, [A, T])(a, b)
    np.testing.assert_array_equal(b, a + 1200)


def test_what_inlined_stages_share_is_put_in_once():
    """T(n)[i] = T(n-1)[i] + T(n-1)[i + 1]: 2^n leaves as a tree, n^2 / 2 distinct elements."""
    A = T = te.placeholder((64,), "int64", name="A")
    stages = []
    for n in range(40):
        T = te.compute((63 - n,), lambda i, T=T: T[i] + T[i + 1], name="T")
        stages.append(T)
    s = tw.create_schedule(T)
    for stage in stages[:-1]:
        s[stage].compute_inline()
    a, b = np.arange(64), np.empty(24, "int64")
    tw.build(s, [A, T])(a, b)
    np.testing.assert_array_equal(b, np.convolve(a, [int(x) for x in np.poly1d([1, 1]) ** 40], "valid"))


def unroll_factors(s, args):
    """What the C compiler is asked for, outermost loop first."""
    text = generate(s, args).source
    return [int(part.split(")")[0]) for part in text.split("TW_UNROLL(")[1:] if part[0].isdigit()]


def test_nested_unrolled_loops_share_one_limit():
    """Eight loops of eight, all unrolled, would be 16 million copies of the body."""
    A = te.placeholder((8,) * 8, name="A")
    k = [te.reduce_axis((0, 8), f"k{n}") for n in range(8)]
    B = te.compute((1,), lambda i: te.sum(A[tuple(k)], axis=k), name="B")
    s = tw.create_schedule(B)
    for axis in k:
        s[B].unroll(axis)
    factors = unroll_factors(s, [A, B])
    assert len(factors) == 8
    assert factors[-1] == 8
    assert np.prod(factors) <= 128


def test_pragma_unroll_reaches_the_compiler():
    A = te.placeholder((100,), name="A")
    B = te.compute((100,), lambda i: A[i] * 2.0, name="B")
    s = tw.create_schedule(B)
    s[B].pragma(B.op.axis[0], "unroll", 4)
    assert unroll_factors(s, [A, B]) == [4]
    s[B].pragma(B.op.axis[0], "unroll", 2**40)  # gcc takes no such number
    assert unroll_factors(s, [A, B]) == [100]
    a, b = np.ones(100, "float32"), np.empty(100, "float32")
    tw.build(s, [A, B])(a, b)
    assert (b == 2).all()


DEEP = """
from tilewright import te
A = te.placeholder((4,), name="A")
def deep(i):
    x = A[i]
    for _ in range(4000):
        x = x * 0.5 + A[i]
    return x
k = te.reduce_axis((0, 4))
assert len(str(te.compute((4,), deep, name="D").op.body[0])) > 4000
te.compute((4,), lambda i: te.sum(deep(i), axis=k), name="R")
"""


def test_deep_expressions_are_declared_before_anything_was_lowered():
    subprocess.run([sys.executable, "-c", DEEP], check=True)
