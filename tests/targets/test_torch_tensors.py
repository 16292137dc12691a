"""PyTorch's tensors as arguments: by the short way they give what DLPack gives, and what is refused by the one is refused by the other."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from tilewright.targets import arrays
from tilewright.targets.arrays import ArgumentChecker
from tilewright.targets.generated import ArgumentSpec, Signature
from tilewright.targets.torch_tensors import tensor_address
from tilewright.tir.errors import ArgumentError

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed; it is no dependency of the tests")

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2"]


@pytest.fixture
def torch():
    import torch

    return torch


def checker(dtype="float32", shape=(4, 6)):
    return ArgumentChecker(Signature("f", (ArgumentSpec("A", dtype, shape, False), ArgumentSpec("C", dtype, shape, True))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_only_the_first_call_examines(torch, dtype, monkeypatch):
    theirs = getattr(torch, "float8_e4m3fn" if dtype == "float8_e4m3" else dtype)
    a, c = torch.zeros(4, 6, dtype=theirs), torch.zeros(4, 6, dtype=theirs)
    check = checker(dtype)
    expected = [a.data_ptr(), c.data_ptr()]
    assert check((a, c))[0] == expected
    monkeypatch.setattr(arrays, "view_of", None)  # from here on nothing is exported
    assert check((a, c))[0] == expected
    for other in DTYPES:
        assert bool(tensor_address(a, other)) is (other == dtype)


def test_beside_numpy_arrays(torch):
    check, a, c = checker(), np.ones((4, 6), "f"), torch.zeros(4, 6)
    for _ in range(2):
        assert check((a, c))[0] == [a.ctypes.data, c.data_ptr()]
        assert check((c, a))[0] == [c.data_ptr(), a.ctypes.data]


def test_a_view_begins_where_it_begins_and_storage_may_change(torch):
    check, base, c = checker(), torch.zeros(9, 6), torch.zeros(4, 6)
    for _ in range(2):
        assert check((base[2:6], c))[0] == [base.data_ptr() + 2 * 6 * 4, c.data_ptr()]
    base.set_(torch.ones(4, 6))
    assert check((base, c))[0] == [base.data_ptr(), c.data_ptr()]


@pytest.mark.parametrize("warm", [False, True])
def test_what_does_not_fit_is_refused_on_the_first_and_on_later_calls(torch, warm):
    check, good, other = checker(), torch.zeros(4, 6), torch.zeros(4, 6)
    if warm:
        check((good, other))
    imaginary = torch.zeros(4, 6, dtype=torch.complex64).conj().imag
    for wrong, words in [
        (torch.zeros(4, 12)[:, ::2], "contiguous"),
        (torch.zeros(6, 4).T, "contiguous"),
        (torch.zeros(1, 6).expand(4, 6), "contiguous"),
        (torch.zeros(4, 6, requires_grad=True), "does not give its memory"),
        (imaginary, "other sign|contiguous"),
        (torch.zeros(4, 6)._neg_view(), "other sign"),
        (torch.zeros(4, 6, dtype=torch.float64), "expected dtype float32, found float64"),
        (torch.zeros(4, 6, dtype=torch.complex64), "complex64"),
        (torch.zeros(4, 7), "shape"),
        (torch.zeros(24), "1 dimensions"),
        (torch.zeros(4, 6).to_sparse(), "does not give its memory|device"),
        (torch.zeros(4, 6, device="meta"), "device|does not give its memory"),
        (torch.frombuffer(bytearray(98), dtype=torch.uint8)[1:97].numpy().view("float32").reshape(4, 6), "multiple of 4 bytes"),
    ]:
        with pytest.raises(ArgumentError, match=rf"'A': .*({words})"):
            check((wrong, other))
        with pytest.raises(ArgumentError, match=rf"'C': .*({words})"):
            check((good, wrong))
    with pytest.raises(ArgumentError, match="'C': the output overlaps argument 1"):
        check((good, good))


def test_wrappers_without_memory_are_refused(torch):
    check, other = checker(), torch.zeros(4, 6)
    check((torch.zeros(4, 6), other))

    def call(x):
        with pytest.raises(ArgumentError, match=r"'A': .*does not give its memory"):
            check((x, other))
        return x.sum()

    torch.func.vmap(call)(torch.zeros(2, 4, 6))
    torch.func.grad(call)(torch.zeros(4, 6))


def test_a_parameter_that_is_not_trained_goes_by_dlpack(torch):
    check, other = checker(), torch.zeros(4, 6)
    parameter = torch.nn.Parameter(torch.zeros(4, 6), requires_grad=False)
    for _ in range(2):
        assert check((parameter, other))[0] == [parameter.data_ptr(), other.data_ptr()]


def test_empty_tensors(torch):
    check = checker(shape=(0, 6))
    a, c = torch.zeros(0, 6), torch.zeros(0, 6)
    for _ in range(2):
        assert len(check((a, c))[0]) == 2
