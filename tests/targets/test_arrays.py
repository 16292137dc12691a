"""Every kind of argument that fits, and every one that does not."""

from __future__ import annotations

import array

import ml_dtypes
import numpy as np
import pytest

from tilewright.targets.arrays import ArgumentChecker
from tilewright.targets.generated import ArgumentSpec, Signature
from tilewright.tir.errors import ArgumentError, TargetError


def checker(*arguments, sizes=()):
    specs = tuple(ArgumentSpec(name, dtype, tuple(shape), out) for name, dtype, shape, out in arguments)
    return ArgumentChecker(Signature("f", specs, sizes))


def address(value):
    return value.__array_interface__["data"][0]


class OnlyDLPack:
    """An array of another library: DLPack and nothing else. `device` and `old` imitate a GPU and a library from before DLPack 1.0."""

    def __init__(self, value, device=1, old=False):
        self.value, self.device, self.old = value, device, old

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        if self.old and options:
            raise TypeError("unexpected keyword argument")
        return self.value.__dlpack__(**options)


class OnlyInterface:
    def __init__(self, **interface):
        self.__array_interface__ = interface


@pytest.fixture
def mm():
    return checker(("A", "float32", [4, 6], False), ("B", "float32", [6, 5], False), ("C", "float32", [4, 5], True))


@pytest.fixture
def arrays():
    return np.ones((4, 6), "f"), np.ones((6, 5), "f"), np.zeros((4, 5), "f")


def test_numpy_arrays_give_their_addresses_on_the_first_and_on_later_calls(mm, arrays):
    for _ in range(3):
        assert mm(arrays)[0] == [address(a) for a in arrays]


def test_inputs_may_be_read_only_and_alias_each_other():
    check = checker(("A", "float32", [4], False), ("B", "float32", [4], False), ("C", "float32", [4], True))
    a, c = np.ones(4, "f"), np.ones(4, "f")
    a.flags.writeable = False
    for _ in range(2):
        assert check((a, a, c))[0] == [address(a), address(a), address(c)]


def test_a_shifted_view_fits_and_a_reshaped_size_one_dimension_too():
    check = checker(("A", "float32", [3], False), ("C", "float32", [1, 3], True))
    base = np.ones(8, "f")
    strange_stride = np.ones((2, 3), "f")[::2]  # shape (1, 3) with a stride that means nothing
    assert check((base[1:4], strange_stride))[0] == [address(base) + 4, address(strange_stride)]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_zero_size_arrays_fit_and_overlap_nothing(shape):
    check = checker(("A", "float32", shape, False), ("C", "float32", shape, True))
    a = np.ones(shape, "f")
    for _ in range(2):
        assert check((a, a))[0] == [address(a), address(a)]


def test_rank_zero():
    check = checker(("A", "float64", [], False), ("C", "float64", [], True))
    a, c = np.array(2.0), np.array(0.0)
    assert check((a, c))[0] == [address(a), address(c)]
    with pytest.raises(ArgumentError, match=r"'A'.*float64\[\].*numpy\.float64.*np\.array"):
        check((np.float64(2.0), c))
    with pytest.raises(ArgumentError, match=r"'A'.*float.*np\.array"):
        check((2.0, c))


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "float32", "float64"])
def test_every_numpy_dtype_by_numpy_and_dlpack(name):
    check = checker(("A", name, [4], False), ("C", name, [4], True))
    a, c = np.zeros(4, name), np.zeros(4, name)
    expected = [address(a), address(c)]
    assert check((a, c))[0] == expected
    assert check((OnlyDLPack(a), OnlyDLPack(c)))[0] == expected
    assert check((OnlyDLPack(a, old=True), OnlyDLPack(c, old=True)))[0] == expected
    assert check((OnlyInterface(**a.__array_interface__), OnlyInterface(**c.__array_interface__)))[0] == expected


@pytest.mark.parametrize("ours, theirs", [("bfloat16", "bfloat16"), ("float8_e4m3", "float8_e4m3fn"), ("float8_e5m2", "float8_e5m2")])
def test_ml_dtypes(ours, theirs):
    check = checker(("A", ours, [4], False), ("C", ours, [4], True))
    a, c = np.zeros(4, getattr(ml_dtypes, theirs)), np.zeros(4, getattr(ml_dtypes, theirs))
    assert check((a, c))[0] == [address(a), address(c)]
    with pytest.raises(ArgumentError, match=rf"expected dtype {ours}, found uint16"):
        check((np.zeros(4, "uint16"), c))


def test_the_other_float8_e4m3_is_not_taken_for_ours():
    check = checker(("A", "float8_e4m3", [4], False))
    with pytest.raises(ArgumentError, match=r"expected dtype float8_e4m3, found ml_dtypes\.float8_e4m3"):
        check((np.zeros(4, ml_dtypes.float8_e4m3),))


def test_number_of_arguments(mm, arrays):
    with pytest.raises(ArgumentError, match=r"f takes 3 arguments \(A, B, C\), got 2"):
        mm(arrays[:2])
    with pytest.raises(ArgumentError, match="got 4"):
        mm((*arrays, arrays[0]))


def test_dtype(mm, arrays):
    a, b, c = arrays
    with pytest.raises(ArgumentError, match=r"argument 1 of f, 'A': expected dtype float32, found float64"):
        mm((a.astype("f8"), b, c))
    with pytest.raises(ArgumentError, match="float32 in foreign byte order"):
        mm((a.astype(">f4"), b, c))
    with pytest.raises(ArgumentError, match="found complex64"):
        mm((OnlyDLPack(a.astype("complex64")), b, c))


def test_shape(mm, arrays):
    a, b, c = arrays
    with pytest.raises(ArgumentError, match=r"argument 2 of f, 'B': expected shape \(6, 5\), found \(7, 5\)"):
        mm((a, np.ones((7, 5), "f"), c))
    with pytest.raises(ArgumentError, match=r"'B': expected shape \[6, 5\], found \(30,\), of 1 dimensions"):
        mm((a, b.ravel(), c))


@pytest.mark.parametrize("wrap", [lambda a: a, OnlyDLPack, lambda a: OnlyInterface(**a.__array_interface__)])
def test_contiguity(mm, arrays, wrap):
    a, b, c = arrays
    with pytest.raises(ArgumentError, match=r"'A': expected an array contiguous.*strides \(48, 8\)"):
        mm((wrap(np.ones((4, 12), "f")[:, ::2]), b, c))
    with pytest.raises(ArgumentError, match="'A': expected an array contiguous"):
        mm((wrap(np.ones((6, 4), "f").T), b, c))
    with pytest.raises(ArgumentError, match="'A': expected an array contiguous"):
        mm((wrap(a[::-1]), b, c))
    with pytest.raises(ArgumentError, match="'A': expected an array contiguous"):
        mm((wrap(np.broadcast_to(np.float32(1), (4, 6))), b, c))


def test_alignment():
    check = checker(("A", "float32", [4], False), ("C", "float32", [4], True))
    unaligned = np.zeros(20, "uint8")[1:17].view("f")
    with pytest.raises(ArgumentError, match=r"'A': expected an address that is a multiple of 4 bytes, found 0x"):
        check((unaligned, np.zeros(4, "f")))


def test_writability(mm, arrays):
    a, b, c = arrays
    c.flags.writeable = False
    with pytest.raises(ArgumentError, match=r"argument 3 of f, 'C': is an output, and the array is read-only"):
        mm((a, b, c))
    with pytest.raises(ArgumentError, match="read-only"):
        mm((a, b, OnlyInterface(**c.__array_interface__)))


def test_overlap_of_an_output():
    check = checker(("A", "float32", [4], False), ("B", "float32", [4], False), ("C", "float32", [4], True), ("D", "float32", [4], True))
    base = np.zeros(16, "f")
    a, b, c, d = (np.zeros(4, "f") for _ in range(4))
    check((a, b, c, d))  # so that the shapes are known and the quick way is taken
    with pytest.raises(ArgumentError, match=r"argument 3 of f, 'C': the output overlaps argument 1, 'A'"):
        check((c, b, c, d))
    with pytest.raises(ArgumentError, match="'C': the output overlaps argument 4, 'D'"):
        check((a, b, c, c))
    with pytest.raises(ArgumentError, match="'C': the output overlaps argument 2, 'B'"):
        check((a, base[3:7], base[0:4], d))
    check((a, base[4:8], base[0:4], base[8:12]))  # neighbours do not overlap


def test_objects_that_are_no_arrays(mm, arrays):
    _, b, c = arrays
    for wrong in ([[1.0] * 6] * 4, None, "text", array.array("f", [1.0] * 24), np.ndarray):
        found = f"found an object of type .*{type(wrong).__name__}"
        with pytest.raises(ArgumentError, match=rf"'A': expected an array float32\[4, 6\], {found}"):
            mm((wrong, b, c))


def test_memory_of_a_gpu(mm, arrays):
    a, b, c = arrays
    with pytest.raises(ArgumentError, match=r"'A': an object of type .*OnlyDLPack is on the device 'cuda', expected memory of the CPU"):
        mm((OnlyDLPack(a, device=2), b, c))


def test_an_exporter_that_refuses(mm, arrays):
    class Refuses(OnlyDLPack):
        def __dlpack__(self, **options):
            raise BufferError("requires gradient")

    with pytest.raises(ArgumentError, match=r"'A': .*does not give its memory: requires gradient"):
        mm((Refuses(arrays[0]), *arrays[1:]))


def test_an_interface_that_is_a_copy(mm, arrays):
    a, b, c = arrays
    with pytest.raises(ArgumentError, match="exports a copy"):
        mm((OnlyInterface(data=a.tobytes(), shape=a.shape, typestr="<f4", version=3), b, c))


def test_interfaces_that_contradict_themselves(mm, arrays):
    a, b, c = arrays
    said = a.__array_interface__
    with pytest.raises(ArgumentError, match=r"'A': it is exported with 1 strides for 2 dimensions"):
        mm((OnlyInterface(**{**said, "strides": (4,)}), b, c))
    with pytest.raises(ArgumentError, match=r"'A': its memory is said to be at address 0, for the shape \(4, 6\)"):
        mm((OnlyInterface(**{**said, "data": (0, False)}), b, c))
    with pytest.raises(ArgumentError, match=r"OnlyInterface has a mask"):
        mm((OnlyInterface(**{**said, "mask": OnlyInterface(**said)}), b, c))


def test_masked_arrays_are_refused(mm, arrays):
    a, b, c = arrays
    with pytest.raises(ArgumentError, match=r"'A': .*has a mask"):
        mm((np.ma.masked_array(a, a > 0), b, c))


def test_symbolic_sizes_are_bound_and_passed_after_the_addresses():
    arguments = ("A", "float32", ["m", "n"], False), ("B", "float32", ["n + 1", 2], False), ("C", "float32", ["m"], True)
    check = checker(*arguments, sizes=("m", "n"))
    for m, n in [(3, 4), (5, 2), (3, 4), (0, 1)]:
        a, b, c = np.ones((m, n), "f"), np.ones((n + 1, 2), "f"), np.ones(m, "f")
        assert check((a, b, c))[0] == [address(a), address(b), address(c), m, n]


def test_symbolic_sizes_that_disagree():
    arguments = ("A", "float32", ["m", "n"], False), ("B", "float32", ["n + 1"], False), ("C", "float32", ["m"], True)
    check = checker(*arguments, sizes=("m", "n"))
    a, b, c = np.ones((3, 4), "f"), np.ones(5, "f"), np.ones(3, "f")
    check((a, b, c))
    with pytest.raises(ArgumentError, match=r"argument 3 of f, 'C': expected shape \(3,\) \(\(m,\) with m = 3 from A\.shape\[0\]\), found"):
        check((a, b, np.ones(4, "f")))
    with pytest.raises(ArgumentError, match=r"'B': expected shape \(5,\) \(\(n \+ 1,\) with n = 4"):
        check((a, np.ones(4, "f"), c))
    with pytest.raises(ArgumentError, match="'C': the output overlaps"):
        check((a, b, a[0, :3]))


@pytest.mark.parametrize("extent", ["n // 2 * 2", "max(n, 4) % 3", "-n + 8", "min(n, 2)"])
def test_extents_are_integer_expressions(extent):
    check = checker(("A", "float32", ["n"], False), ("B", "float32", [extent], False), sizes=("n",))
    wanted = eval(extent, {"n": 5, "max": max, "min": min})
    check((np.ones(5, "f"), np.ones(wanted, "f")))
    with pytest.raises(ArgumentError, match="'B'"):
        check((np.ones(5, "f"), np.ones(wanted + 1, "f")))


@pytest.mark.parametrize("extent", ["__import__('os')", "n.real", "n if n else 1", "n +", "1.5", "'text'", "n ** 2"])
def test_nothing_but_integer_arithmetic_is_evaluated(extent):
    with pytest.raises(TargetError, match="f: extent"):
        checker(("A", "float32", ["n"], False), ("B", "float32", [extent], False), sizes=("n",))


def test_a_size_that_no_argument_has():
    with pytest.raises(TargetError, match="size 'n' is the extent of no argument"):
        checker(("A", "float32", ["n + 1"], False), sizes=("n",))


def test_a_division_by_a_size_of_zero():
    check = checker(("A", "float32", ["n"], False), ("B", "float32", ["8 // n"], False), sizes=("n",))
    check((np.ones(4, "f"), np.ones(2, "f")))
    with pytest.raises(ArgumentError, match=r"'B'.*8 // n"):
        check((np.ones(0, "f"), np.ones(2, "f")))
