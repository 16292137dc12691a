"""float16 and bfloat16 computed by the GPU's own instructions: bit for bit what NumPy and ml_dtypes give, and nothing else in the PTX.

Every operation is done on single values and on vectors of 2, 4 and 8, by the emulator; the PTX is read. On a GPU, the same comparisons are test_on_gpu.py's.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.targets.cuda import generate
from tilewright.targets.cuda_module import CudaModule, compile_cuda_module
from tilewright.tir import expr as E
from tilewright.tir.expr import Buffer, call, const, load
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.passes.legalize import Legalize
from tilewright.tir.stmt import Func, seq, store
from tilewright.tir.target import Target

from ..funcs import at
from .device_funcs import kernel

KINDS = ("float16", "bfloat16")
THREADS, LANES = 128, (1, 2, 4, 8)


def bits(kind: str, values) -> np.ndarray:
    return np.asarray(values, numpy_dtype(E.dtype(kind))).view("u2")


def same(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    """Bit for bit, any NaN being as good as another."""
    if found.dtype != bool:
        with np.errstate(invalid="ignore"):
            are_nan = np.isnan(found.astype("f4")) & np.isnan(wanted.astype("f4"))
        found, wanted = np.where(are_nan, 0, found.view("u2")), np.where(are_nan, 0, wanted.view("u2"))
    wrong = np.flatnonzero(found != wanted)
    assert wrong.size == 0, (what, wrong[:5], found[wrong[:5]], wanted[wrong[:5]])


def run(kind: str, inputs: list[np.ndarray], make, target: Target) -> dict[str, np.ndarray]:
    """What every expression of `make(loads...)` gives, by its name and the lanes of the vectors that it was computed in."""
    size = len(inputs[0])
    assert size % (THREADS * 8) == 0
    buffers = [Buffer(f"input_{i}", (size,), kind) for i in range(len(inputs))]
    outputs: list[Buffer] = []
    kernels = []
    for count in LANES:

        def body(b, t, count=count):
            index = at((b * THREADS + t) * count, count) if count > 1 else b * THREADS + t
            stores = []
            for name, value in make(*[load(buffer, [index]) for buffer in buffers]).items():
                outputs.append(Buffer(f"{name}_x{count}", (size,), value.dtype.element))
                stores.append(store(outputs[-1], [index], value))
            return seq(*stores)

        kernels.append(kernel(f"x{count}", {"bx": size // count // THREADS, "tx": THREADS}, body))
    func = Func("halves", (*buffers, *outputs), frozenset(outputs), seq(*kernels))
    arrays = [np.zeros(size, numpy_dtype(b.dtype)) for b in outputs]
    source = generate(Legalize().run(func, target), target)
    assert kind not in target.gpu.native_halves or "narrow_float" not in source.source
    compile_cuda_module(source, target)(*inputs, *arrays)
    return {b.name: array for b, array in zip(outputs, arrays, strict=True)}


def pairs(kind: str, seed: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """What goes wrong easily, each with each: zeros, subnormals, the ends of the range, ties, infinities, NaN; and random bits, some close together."""
    rng = np.random.default_rng(seed)
    mantissa = 10 if kind == "float16" else 7
    one, infinity = int(bits(kind, 1.0)), 0x7C00 if kind == "float16" else 0x7F80
    corners = [0, 1, 2, 3, (1 << mantissa) - 1, 1 << mantissa, (1 << mantissa) + 1, one - 1, one, one + 1, one + (1 << mantissa), infinity - 1, infinity - 2]
    corners += [infinity, infinity + 1, 0x7FFF, one - (mantissa << mantissa), one - ((mantissa + 1) << mantissa), one + (mantissa << mantissa)]
    corners = np.array([*corners, *(c | 0x8000 for c in corners)], "u2")
    a, b = (x.ravel() for x in np.meshgrid(corners, corners))
    near = rng.integers(0, 1 << 16, 6000, dtype="u2")
    a = np.concatenate([a, rng.integers(0, 1 << 16, 16000, dtype="u2"), near])
    b = np.concatenate([b, rng.integers(0, 1 << 16, 16000, dtype="u2"), near ^ rng.integers(0, 1 << mantissa + 2, 6000, dtype="u2")])
    size = a.size // (THREADS * 8) * THREADS * 8
    dtype = numpy_dtype(E.dtype(kind))
    return a[:size].view(dtype), b[:size].view(dtype)


def extremum(a: np.ndarray, b: np.ndarray, larger: bool) -> np.ndarray:
    """NaN if either is; of two zeros +0 is the larger."""
    first = (a > b) if larger else (a < b)
    chosen = np.where(first | np.isnan(a), a.view("u2"), b.view("u2"))
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, (a.view("u2") & b.view("u2")) if larger else (a.view("u2") | b.view("u2")), chosen).view(a.dtype)


BINARY = {
    "add": (E.add, lambda a, b: a + b),
    "sub": (E.sub, lambda a, b: a - b),
    "mul": (E.mul, lambda a, b: a * b),
    "min": (E.minimum, lambda a, b: extremum(a, b, False)),
    "max": (E.maximum, lambda a, b: extremum(a, b, True)),
    "lt": (E.lt, lambda a, b: a < b),
    "le": (E.le, lambda a, b: a <= b),
    "eq": (E.eq, lambda a, b: a == b),
    "ne": (E.ne, lambda a, b: a != b),
    "product_and_sum": (lambda a, b: E.add(E.mul(a, b), a), lambda a, b: a * b + a),  # rounded twice: never a fused multiply-add
    "chosen": (lambda a, b: E.select(E.lt(a, b), E.sub(a, b), b), lambda a, b: np.where(a < b, (a - b).view("u2"), b.view("u2")).view(a.dtype)),
    "between": (
        lambda a, b: E.select(E.logical_or(E.logical_not(E.le(a, b)), E.eq(E.add(a, a), b)), E.mul(a, b), a),
        lambda a, b: np.where(~(a <= b) | (a + a == b), (a * b).view("u2"), a.view("u2")).view(a.dtype),
    ),
    "is_less_later": (lambda a, b: E.lt(E.mul(a, b), E.add(a, b)), lambda a, b: a * b < a + b),
}


def check_two_operands(kind: str, target: Target) -> None:
    """What goes wrong easily, each with each, and random bits."""
    a, b = pairs(kind)
    found = run(kind, [a, b], lambda a, b: {name: make(a, b) for name, (make, _) in BINARY.items()}, target)
    with np.errstate(all="ignore"):
        for name, (_, reference) in BINARY.items():
            for lanes in LANES:
                same(found[f"{name}_x{lanes}"], reference(a, b), f"{name} in vectors of {lanes}")


def check_one_operand(kind: str, target: Target) -> None:
    """Every value there is."""
    values = np.arange(1 << 16, dtype="u2").view(numpy_dtype(E.dtype(kind)))

    def expressions(x):
        one, zero, third = (const(v, x.dtype) for v in (1.0, 0.0, 1 / 3))
        return {
            "neg": E.negate(x),
            "abs": call("abs", x),
            "relu": E.maximum(x, zero),
            "plus": E.add(x, one),
            "times": E.mul(x, third),
            "from_one": E.sub(one, x),
        }

    found = run(kind, [values], expressions, target)
    with np.errstate(all="ignore"):
        one, third = values.dtype.type(1), values.dtype.type(1 / 3)
        wanted = {"neg": -values, "abs": np.abs(values), "relu": extremum(values, np.zeros_like(values), True), "plus": values + one}
        wanted |= {"times": values * third, "from_one": one - values}
    for name, array in found.items():
        same(array, wanted[name.rpartition("_x")[0]], name)


@pytest.mark.parametrize(("kind", "arch"), [("float16", "sm_90"), ("float16", "sm_75"), ("bfloat16", "sm_80"), ("bfloat16", "sm_90")])
def test_two_operands_round_once(kind, arch):
    check_two_operands(kind, Target("cuda", arch=arch, device="emulator", threads=2))


@pytest.mark.parametrize("kind", KINDS)
def test_one_operand_of_every_value(kind):
    check_one_operand(kind, Target("cuda", device="emulator", threads=2))


def scheduled(kind: str, size: int, value, inputs: int = 3, lanes: int = 8):
    """An elementwise computation, `lanes` neighbours for each thread."""
    tensors = [te.placeholder((size,), kind, name="ABD"[i]) for i in range(inputs)]
    C = te.compute((size,), lambda i: value(*[t[i] for t in tensors]), name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=lanes)
    block, thread = s[C].split(outer, factor=32)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    s[C].vectorize(inner)
    return s, [*tensors, C]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [2, 3, 6, 8])
def test_tails_and_odd_vectors(kind, lanes):
    """A size that divides by nothing; float32 in between; a choice whose arms read elsewhere."""
    rng, size = np.random.default_rng(3), 1003

    def value(a, b, d):
        return te.select(a < b, te.exp(a * b) * d, -b) + te.if_then_else(te.abs(d) < 2, a - d, b)

    s, args = scheduled(kind, size, value, lanes=lanes)
    a, b, d = (rng.standard_normal(size).astype(numpy_dtype(E.dtype(kind))) for _ in range(3))
    c = np.zeros_like(a)
    module = tw.build(s, args, Target("cuda", device="emulator", threads=2), check="race")
    module(a, b, d, c)
    wanted = np.where(a < b, np.exp((a * b).astype("f4")).astype(a.dtype) * d, -b) + np.where(np.abs(d) < 2, a - d, b)
    ulps = np.abs(c.view("i2").astype(int) - wanted.astype(a.dtype).view("i2"))  # exp of float32 differs from NumPy's in the last place, at times
    assert np.count_nonzero(ulps) <= 2, ulps.max()
    assert module.report.races == module.report.out_of_bounds == module.report.uninitialised == []


def test_local_sums_stay_in_words():
    """Registers that are added to in a loop are words; their elements are read one by one elsewhere."""
    A, k = te.placeholder((12, 64), "float16", name="A"), te.reduce_axis((0, 12), name="k")
    S = te.compute((64,), lambda i: te.sum(A[k, i] * A[k, 63 - i], axis=k), name="S")
    C = te.compute((64,), lambda i: S[i].astype("float32") * 2.0, name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=4)
    s[C].bind(outer, te.thread_axis("threadIdx.x"))
    s[S].compute_at(s[C], outer)
    s[S].reorder(S.op.reduce_axis[0], S.op.axis[0])
    s[S].vectorize(S.op.axis[0])
    s[C].unroll(inner)
    target = Target("cuda", device="emulator")
    module = tw.build(s, [A, C], target)
    assert "*(uint2 *)&S[0] = make_uint2(tw_add2_float16(S_at.x, " in module.get_source()
    a = np.random.default_rng(5).standard_normal((12, 64)).astype("float16")
    c, total = np.zeros(64, "float32"), np.zeros(64, "float16")
    module(a, c)
    for row in a:
        total = total + row * row[::-1]
    np.testing.assert_array_equal(c, total.astype("f4") * 2)


def opcodes(module: CudaModule) -> list[str]:
    """What the PTX of a module does, instruction by instruction."""
    return re.findall(r"^\s+(?:@!?%p\d+ )?([a-z]\w*(?:\.\w+)*)\s", module.get_source("ptx"), re.MULTILINE)


def test_a_product_and_a_sum_are_two_instructions_for_two_elements(cuda_compiler):
    """16 bytes read thrice, four products and four sums of pairs, 16 bytes written; no conversion, and no contraction."""
    for kind, arch, (product, addition) in (
        ("float16", "sm_75", ("mul.rn.f16x2", "add.rn.f16x2")),
        ("float16", "sm_90", ("mul.rn.f16x2", "add.rn.f16x2")),
        ("bfloat16", "sm_80", ("fma.rn.bf16x2", "fma.rn.bf16x2")),
        ("bfloat16", "sm_90", ("mul.rn.bf16x2", "add.rn.bf16x2")),
    ):
        s, args = scheduled(kind, 4096, lambda a, b, d: a * b + d)
        module = tw.build(s, args, Target("cuda", arch=arch), name="k")
        found = opcodes(module)
        assert [f for f in found if f.endswith("16x2")] == [product] * 4 + [addition] * 4, (kind, arch, found)
        assert [f.rpartition(".")[0] for f in found if ".global." in f and "cvta" not in f] == ["ld.global.nc.v4"] * 3 + ["st.global.v4"], found
        assert not any(f.startswith(("cvt.", "prmt")) or "f32" in f for f in found), found
        assert module.resources["k"].stack_bytes == 0


@pytest.mark.parametrize(("kind", "arch"), [("float16", "sm_75"), ("float16", "sm_80"), ("bfloat16", "sm_80"), ("bfloat16", "sm_90")])
def test_what_else_is_native(kind, arch, cuda_compiler):
    """Choices, extrema, signs: no float32 anywhere but for comparisons of bfloat16 before sm_90, which are exact there."""
    s, args = scheduled(kind, 4096, lambda a, b, d: te.select(a < b, te.maximum(a, d), -te.abs(b)) - te.minimum(a, b))
    found = opcodes(tw.build(s, args, Target("cuda", arch=arch), name="k"))
    in_float32 = {f for f in found if f.startswith("cvt.") or "f32" in f}
    assert all(f.startswith("setp.") for f in in_float32) and bool(in_float32) == ((kind, arch) == ("bfloat16", "sm_80")), in_float32
    letters = "f16x2" if kind == "float16" else "bf16x2"
    assert found.count(f"abs.{letters}") == found.count(f"neg.{letters}") == 4
    assert found.count(f"max.NaN.{letters}") == found.count(f"min.NaN.{letters}") == (0 if arch == "sm_75" else 4)


def test_bfloat16_of_sm_75_is_computed_in_float32(cuda_compiler):
    s, args = scheduled("bfloat16", 4096, lambda a, b, d: a * b + d)
    module = tw.build(s, args, Target("cuda", arch="sm_75"), name="k")
    assert "bf16" not in re.sub(r"//.*", "", module.get_source("ptx")) and "tw_narrow_pair_bfloat16" in module.get_source()


def test_sums_in_float32_stay_there():
    """What a schedule declares as float32 is not computed in float16 on the way; rounding to float16 takes two at a time."""
    op = te.library.matmul(64, 64, 32, dtype="float16", acc_dtype="float32")
    target = Target("cuda", arch="sm_90", device="emulator")
    source = tw.build(tw.autotune.default_schedule(op, target), op.args, target).get_source()
    assert not re.search(r"tw_(add|mul)2?_float16", source)
    s, args = scheduled("float16", 4096, lambda a, b: te.sqrt(a) / b, inputs=2)
    source = tw.build(s, args, target).get_source()
    assert "tw_narrow_pair_float16" in source and "tw_mul" not in source


@pytest.mark.parametrize("check", [None, "race"])
def test_words_of_which_a_part_is_not_set(check):
    """A padded image by way of registers: where a lane is outside of it, its half of the word is nobody's, which must not cost the other lane its value."""
    A = te.placeholder((8, 4), "float16", name="A")
    P = te.compute((9, 8), lambda i, j: te.if_then_else(te.all(i > 0, j >= 3, j < 7), A[i - 1, j - 3], te.const(1.0, "float16")), name="P")
    s = te.create_schedule(P.op)
    block, inner = s[P].split(s[P].fuse(*P.op.axis), factor=4)
    thread, lane = s[P].split(inner, nparts=2)
    s[P].bind(block, te.thread_axis("blockIdx.x"))
    s[P].bind(thread, te.thread_axis("threadIdx.x"))
    s[P].vectorize(lane)
    s[s.cache_read(A, "local", [P])].compute_at(s[P], lane)
    a, p = np.random.default_rng(3).standard_normal((8, 4)).astype("float16"), np.zeros((9, 8), "float16")
    tw.build(s, [A, P], tw.Target("cuda", device="emulator"), check=check)(a, p)
    want = np.ones((9, 8), "float16")
    want[1:, 3:7] = a
    np.testing.assert_array_equal(p, want)
