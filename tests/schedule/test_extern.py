"""te.extern: C functions called from a schedule, run in C and in the interpreter, and every refusal."""

import re

import numpy as np
import pytest
from evaluate import evaluate

import tilewright as tw
from tilewright import autotune, te
from tilewright.schedule import create_schedule, lower_schedule
from tilewright.tir import interp
from tilewright.tir.errors import CompileError, ScheduleError, TargetError, TEError, TilewrightError
from tilewright.tir.interp import interpret, register_extern
from tilewright.tir.passes.simplify import simplify_function

N = 12


def copy_bytes(to, source, count):
    to.view("u1")[:count] = source.view("u1")[:count]


def sine_and_cosine(x, sine, cosine):
    sine[0], cosine[0] = np.sin(x), np.cos(x)


@pytest.fixture(autouse=True)
def functions():
    before = dict(interp._EXTERNS)  # the fuzzer's
    register_extern("memcpy", copy_bytes)
    register_extern("sincosf", sine_and_cosine)
    yield
    for symbol in ("memcpy", "sincosf"):
        register_extern(symbol, before.get(symbol))


def memcpy(count, dtype="float32"):
    return lambda ins, outs: te.call_extern("memcpy", outs[0], ins[0], te.const(count * te.placeholder((), dtype).dtype.bytes, "int64"))


class Program:
    """A -> B = A * 2 -> C, a copy by memcpy -> D = C + 1."""

    def __init__(self):
        self.A = te.placeholder((N,), name="A")
        self.B = te.compute((N,), lambda i: self.A[i] * 2.0, name="B")
        self.C = te.extern((N,), [self.B], memcpy(N), name="C")
        self.D = te.compute((N,), lambda i: self.C[i] + 1.0, name="D")


def run(s, args, *arrays, sizes=()):
    """What the schedule computes in C; interpreted, before and after the passes, it is the same."""
    results = []
    for call in (
        tw.build(s, args),
        lambda *a: interpret(lower_schedule(s, args), a, sizes),
        lambda *a: interpret(tw.lower(s, args), a, sizes),
    ):
        outputs = [np.full([dict(sizes).get(str(e), e) for e in t.shape], np.nan, t.dtype) for t in args[len(arrays) :]]
        call(*arrays, *outputs)
        results.append(outputs)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    return results[0]


def refuse(call, *words, error=TEError):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} not in: {caught.value}"


def test_between_stages():
    p = Program()
    s = create_schedule(p.D)
    s[p.B].vectorize(s[p.B].split(p.B.op.axis[0], factor=8)[1])
    s[s.cache_read(p.C, "local", [p.D])].compute_at(s[p.D], p.D.op.axis[0])
    assert "    produce C:\n        call memcpy(&C[0], &B[0], int64(48))\n" in str(simplify_function(lower_schedule(s, [p.A, p.D])))
    a = np.arange(N, dtype="f")
    (d,) = run(s, [p.A, p.D], a)
    np.testing.assert_array_equal(d, a * 2 + 1)
    np.testing.assert_array_equal(evaluate(p.D, {p.A: a}), d)
    run(create_schedule(p.C), [p.A, p.C], a)
    assert str(s.copy()) == str(s)
    run(autotune.default_schedule([p.A, p.D], "c"), [p.A, p.D], a)


def test_numbers_parts_and_several_outputs_from_a_library():
    def call(ins, outs):
        return te.call_extern("sincosf", te.const(0.5, "float32"), te.address_of(outs[0], 1), te.address_of(outs[1], 2, 1))

    sine, cosine = te.extern([(2,), (3, 2)], [], call, name="both", dtype="float32", libraries=["m"])
    S = te.compute((1,), lambda i: sine[1] + cosine[2, 1], name="S")
    s = create_schedule(S)
    assert "call sincosf(0.5, &both.v0[1], &both.v1[2, 1])" in str(lower_schedule(s, [S]))
    (got,) = run(s, [S])
    np.testing.assert_allclose(got, np.sin(np.float32(0.5)) + np.cos(np.float32(0.5)), rtol=1e-6)


def test_sizes_are_passed_in_their_dtype():
    n = te.size_var("n")
    A = te.placeholder((n,), "int16", name="A")
    C = te.extern((n,), [A], lambda ins, outs: te.call_extern("memcpy", outs[0], ins[0], te.cast(n, "int64") * 2), name="C")
    s = create_schedule(C)
    for size in (0, 1, 9):
        a = np.arange(size, dtype="int16")
        module, got = tw.build(s, [A, C]), np.zeros(size, "int16")
        module(a, got)
        np.testing.assert_array_equal(got, a)
    assert re.search(r"extern void extern_memcpy\(int16_t \*, const int16_t \*, int64_t\) __asm__\(\"memcpy\"\);", module.get_source())


def test_constants_and_scans_around_it():
    W = te.placeholder((2, N), name="W")
    C = te.extern((1, N), [W], lambda ins, outs: te.call_extern("memcpy", outs[0], te.address_of(ins[0], 1, 0), 4 * N), name="C")
    S = te.placeholder((5, N), name="S")
    Y = te.scan(C, te.compute((5, N), lambda t, i: S[t - 1, i] + 1.0, name="update"), S)
    E = te.extern((N,), [Y], lambda ins, outs: te.call_extern("memcpy", outs[0], te.address_of(ins[0], 4, 0), 4 * N), name="E")
    s = create_schedule(E)
    w = np.arange(2 * N, dtype="f").reshape(2, N)
    (e,) = run(s, [W, E], w)
    np.testing.assert_array_equal(e, w[1] + 4)
    module, got = tw.build(s, [E], constants={W: w}), np.empty(N, "f")
    module(got)
    np.testing.assert_array_equal(got, e)


def test_what_a_call_may_not_be():
    A = te.placeholder((N,), name="A")
    good = memcpy(N)
    for symbol in ("", "a b", "f();", "1f", 'x"', "f\n", None, 3):
        refuse(lambda symbol=symbol: te.call_extern(symbol), "C identifier")
    for symbol in ("int", "return", "sizeof"):
        refuse(lambda symbol=symbol: te.call_extern(symbol), symbol, "word of the language")
    refuse(lambda: te.call_extern("f", "text"), "argument 0", "'text'")
    refuse(lambda: te.call_extern("f", True), "argument 0")
    refuse(lambda: te.call_extern("f", 1 << 64), "no C integer")
    refuse(lambda: te.call_extern("f", A[0]), "A[0]", "address_of")
    refuse(lambda: te.call_extern("f", te.const(1.0, "float16")), "float16", "float32")
    refuse(lambda: te.address_of(3), "address_of", "3")
    refuse(lambda: te.address_of(A, N), "outside")
    refuse(lambda: te.extern((N,), [3], good), "input 3", "tensor")
    refuse(lambda: te.extern((N,), [], good), "dtype=")
    refuse(lambda: te.extern((-1,), [A], good), "-1")
    refuse(lambda: te.extern((N,), [A], None), "fcompute")
    refuse(lambda: te.extern((N,), [A], lambda ins, outs: ins[0][0]), "te.call_extern")
    refuse(lambda: te.extern((N,), [A], good, dtype=["float32", "int32"]), "1 shape", "2 dtype")
    refuse(lambda: te.extern((N,), [A], lambda ins, outs: te.call_extern("f", ins[0]), name="E"), "'E'", "not given output", "outs")
    B = te.placeholder((N,), name="B")
    refuse(lambda: te.extern((N,), [A], lambda ins, outs: te.call_extern("f", outs[0], B)), "'B'", "inputs", "A")
    refuse(lambda: te.extern((N,), [A], lambda ins, outs: te.call_extern("f", outs[0], te.size_var("m"))), "'m'", "size")
    for library in ("-evil", "a b", "../x", "", None, "m,now"):
        refuse(lambda library=library: te.extern((N,), [A], good, libraries=[library]), "library", "linker")
    refuse(lambda: te.extern((N,), [A], good, libraries="m"), "libraries", "list")


def test_what_a_schedule_refuses():
    p = Program()
    s = create_schedule(p.D)
    i = p.D.op.axis[0]
    for name, call in {
        "compute_at": lambda: s[p.C].compute_at(s[p.D], i), "compute_inline": lambda: s[p.C].compute_inline(), "set_scope": lambda: s[p.C].set_scope("local"),
        "split": lambda: s[p.C].split(i, factor=2), "fuse": lambda: s[p.C].fuse(), "vectorize": lambda: s[p.C].vectorize(i),
        "parallel": lambda: s[p.C].parallel(i), "cache_write": lambda: s.cache_write(p.C, "local"), "cache_read": lambda: s.cache_read(p.B, "local", [p.C]),
        "transform_layout": lambda: s[p.C].transform_layout(lambda j: [j]), "storage_align": lambda: s[p.C].storage_align(i, 8),
        "rfactor": lambda: s.rfactor(p.C, i),
    }.items():  # fmt: skip
        refuse(call, name, "C", "memcpy", "no loops", error=ScheduleError)
    refuse(lambda: s[p.B].compute_at(s[p.C], i), "compute_at", "memcpy", error=ScheduleError)
    for change in (
        lambda s: s[p.B].compute_inline(), lambda s: s[p.B].set_scope("local"), lambda s: s[p.B].transform_layout(lambda j: [j // 4, j % 4]),
        lambda s: s[p.B].compute_at(s[p.D], i),
    ):  # fmt: skip
        s = create_schedule(p.D)
        change(s)
        refuse(lambda s=s: lower_schedule(s, [p.A, p.D]), "stage B is", "memcpy", "whole tensors", error=ScheduleError)


def test_a_function_that_is_nowhere_is_an_error_when_it_is_built():
    C = te.extern((N,), [], lambda ins, outs: te.call_extern("there_is_no_such_function", outs[0]), name="C", dtype="float32")
    s = create_schedule(C)
    refuse(lambda: tw.build(s, [C]), "there_is_no_such_function", error=CompileError)
    D = te.extern((N,), [], lambda ins, outs: te.call_extern("abort", outs[0]), name="D", dtype="float32", libraries=["there_is_no_such_library"])
    refuse(lambda: tw.build(create_schedule(D), [D]), "there_is_no_such_library", error=CompileError)
    refuse(lambda: interpret(lower_schedule(s, [C]), [np.empty(N, "f")]), "there_is_no_such_function", "register_extern", error=TilewrightError)


def test_a_kernel_does_not_call_itself():
    C = te.extern((N,), [], lambda ins, outs: te.call_extern("fill", outs[0]), name="C", dtype="float32")
    refuse(lambda: tw.build(create_schedule(C), [C], name="fill"), "'fill'", "the kernel itself", "name=", error=TargetError)
