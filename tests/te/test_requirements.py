"""What must hold of symbolic sizes, so that nothing outside a tensor is read: found from declarations, checked at each call."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.te.requirements import requirements

n, m = te.size_var("n"), te.size_var("m")


def found(shape, body, source=(n, m)):
    """What a computation asks for that reads A, of shape `source`."""
    A = te.placeholder(source, name="A")
    return [str(each.needed) for each in requirements([te.compute(shape, lambda *i: body(A, *i), name="C")])]


@pytest.mark.parametrize(
    "shape, body, source, needed",
    [
        ((n,), lambda A, i: A[i, 0], (n, m), ["m - 1"]),
        ((n,), lambda A, i: A[i, m - 1], (n, m), ["m - 1"]),
        ((n,), lambda A, i: A[i, 3], (n, m), ["m - 4"]),
        ((n, m), lambda A, i, j: A[i, j] + A[n - 1 - i, j], (n, m), []),
        ((n, m), lambda A, i, j: A[0, j], (n, m), []),  # something is read only where there is a row
        ((n,), lambda A, i: A[i + 2], (n + 2,), []),
        ((n,), lambda A, i: A[i + 2], (n + 1,), ["n - (n + 1)"]),
        ((n,), lambda A, i: A[i], (m,), ["m - 1 - (n - 1)"]),
        ((n,), lambda A, i: A[m - 1 - i], (m,), ["m - 1 - (n - 1)"]),
        ((n,), lambda A, i: A[i // 2], ((n + 1) // 2,), []),
        ((n,), lambda A, i: te.if_then_else(m > 0, A[i, 0], 0.0), (n, m), []),  # guarded
        ((n,), lambda A, i: A[i, te.cast(A[i, i % m], "int32") % m], (n, m), []),  # not known
        ((n,), lambda A, i: te.sum(A[i, k], axis=k), (n, m), ["m - 4"]),
        ((n,), lambda A, i: te.sum(A[i, k], axis=k, where=k < m), (n, m), []),
    ],
)  # fmt: skip
def test_what_is_needed(shape, body, source, needed):
    assert found(shape, body, source) == needed


k = te.reduce_axis((0, 4), "k")


def test_a_scan_reads_from_its_first_computed_step_on():
    X, S = te.placeholder((n, 4), name="X"), te.placeholder((n, 4), name="S")
    Y = te.scan(te.compute((2, 4), lambda t, i: te.const(1.0, "float32"), name="init"), te.compute((n, 4), lambda t, i: S[t - 2, i] + X[t - 1, i], name="u"), S)
    assert requirements([Y]) == []


def test_no_more_initial_steps_are_read_than_there_are_steps():
    X, S = te.placeholder((n, 4), name="X"), te.placeholder((n, 4), name="S")
    init = te.compute((2, 4), lambda t, i: X[t, i], name="init")
    Y = te.scan(init, te.compute((n, 4), lambda t, i: S[t - 2, i] + X[t, i], name="u"), S)
    assert requirements([Y]) == []
    assert [str(each.needed) for each in requirements([Y, te.compute((4,), lambda i: init[1, i], name="other")])] == ["n - 2"]


@pytest.mark.parametrize("inlined", [False, True])
def test_checked_at_the_call_and_by_a_loaded_library(tmp_path, inlined):
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((n,), lambda i: B[i, 0] * 2.0, name="C")
    s = tw.create_schedule(C)
    if inlined:
        s[B].compute_inline()
    module = tw.build(s, [A, C])
    module.export_library(tmp_path / "c.so")
    for each in (module, tw.load_module(tmp_path / "c.so")):
        c = np.zeros(4, "float32")
        with pytest.raises(tw.ArgumentError, match=r"n = 4, m = 0, compute 'C' reads B\[i, 0\], whose index 1 is 0, but dimension 1 of tensor 'B' is \[0, m\)"):
            each(np.zeros((4, 0), "float32"), c)
        each(np.ones((4, 1), "float32"), c)
        assert c.tolist() == [4.0] * 4
        each(np.zeros((0, 0), "float32"), np.zeros(0, "float32"))  # nothing is read
    assert "m - 1" in (tmp_path / "c.h").read_text()


def test_with_constants():
    W = te.placeholder((3,), name="W")
    A = te.placeholder((n, m), name="A")
    C = te.compute((n,), lambda i: A[i, 1] * W[0], name="C")
    module = tw.build(tw.create_schedule(C), [A, C], constants={W: np.full(3, 2, "float32")})
    c = np.zeros(2, "float32")
    with pytest.raises(tw.ArgumentError, match=r"m = 1, .* index 1 is 1"):
        module(np.ones((2, 1), "float32"), c)
    module(np.ones((2, 2), "float32"), c)
    assert c.tolist() == [2.0, 2.0]
