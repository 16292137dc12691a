"""Constant operands that all threads of a warp read alike lie in constant memory, with every bit; others are in global memory, as they were."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.targets import cuda_driver

EMULATOR = tw.Target("cuda", device="emulator", threads=1)
RNG = np.random.default_rng(11)
DTYPES = {
    **{name: name for name in ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "float32", "float64")},
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def spread(shape=(64, 12), block=(32,), dtype="float32", lanes=1, index=lambda i, k: (k,), size=None, target=EMULATOR, check=None, value=None):
    """C[i, k] = W[index(i, k)], a thread for each i; the module, and W. With an array for each thread or for all, as `index` has it."""
    n, m = shape
    W = te.placeholder(size or (m,), dtype, name="W")
    C = te.compute(shape, lambda i, k: W[index(i, k)], name="C")
    s = te.create_schedule(C.op)
    i, k = C.op.axis
    for tag, extent in zip("xyz", block, strict=False):
        i, lane = s[C].split(i, factor=extent)
        s[C].bind(lane, te.thread_axis(f"threadIdx.{tag}"))
    s[C].bind(i, te.thread_axis("blockIdx.x"))
    if lanes > 1:
        s[C].vectorize(s[C].split(k, factor=lanes)[1])
    w = RNG.standard_normal(W.shape).astype(dtype) if value is None else value
    return tw.build(s, [C], target, name="spread", constants={W: w}, check=check), w


def declared(module) -> set[str]:
    return set(re.findall(r"__constant__ .*?\b(\w+) ?(?:\[\d+\] )?= \{", module.get_source()))


def every_bit(dtype: str, count: int):
    """Values of all kinds, as bits: zeros, infinities and NaNs with a payload among them."""
    kind = np.dtype(DTYPES[dtype])
    if dtype == "bool":
        return RNG.integers(0, 2, count).astype(bool)
    bits = RNG.integers(0, 256, (count, kind.itemsize), dtype="uint8").view(f"u{kind.itemsize}").reshape(count)
    top = 8 * kind.itemsize - 1
    mantissa = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}.get(dtype, 2)
    bits[:6] = [0, 1 << top, (1 << top) - 1, (1 << mantissa) + 1, 2**top - 2**mantissa, 2 ** (top + 1) - 2**mantissa + 1]
    return bits.view(kind)


@pytest.mark.parametrize("check", [None, "race", "memory"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_of_every_dtype(dtype, check):
    w = every_bit(dtype, 16)
    module, _ = spread((64, 16), dtype=dtype, lanes=1 if check == "memory" else 4, value=w, check=check)
    c = np.zeros((64, 16), w.dtype)
    module(c)
    assert (c.view("uint8") == w.view("uint8")).all() and declared(module) == {"W_constant"}
    assert check is None or (module.report.faults == [] and module.report.max_bank_conflict in (None, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_literals_that_no_compiler_rounds(dtype):
    w = every_bit(dtype, 400)
    w = np.concatenate([np.array([1, 0.5, -0.0, 0.1, 2**30, 1e-3, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal], dtype), w[np.isfinite(w)]])
    module, _ = spread((32, len(w)), dtype=dtype, value=w)
    c = np.zeros((32, len(w)), dtype)
    module(c)
    assert (c.view("uint8") == w.view("uint8")).all()
    suffix = "f" if dtype == "float32" else ""
    assert f"{{\n    1.0{suffix}, 0.5{suffix}, -0.0{suffix}, 0x1.9" in module.get_source() and "union" not in module.get_source()


def convolution(target, check=None, **options):
    """A 3 x 3 filter that all threads share, over an image of any size."""
    n = te.size_var("n")
    A, W = te.placeholder((n, 64), name="A"), te.placeholder((3, 3), name="W")
    y, x = te.reduce_axis((0, 3), name="y"), te.reduce_axis((0, 3), name="x")
    C = te.compute((n - 2, 62), lambda i, j: te.sum(A[i + y, j + x] * W[y, x], axis=[y, x]), name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    s[C].bind(i, te.thread_axis("blockIdx.x"))
    s[C].bind(j, te.thread_axis("threadIdx.x"))
    w = RNG.standard_normal((3, 3)).astype("f")
    return tw.build(s, [A, C], target, name="convolution", constants={W: w}, check=check, **options), w


def convolved(a, w):
    windows = np.lib.stride_tricks.sliding_window_view(a.astype("f8"), w.shape)
    return (windows * w).sum((2, 3))


@pytest.mark.parametrize("check", [None, "race", "memory"])
def test_a_filter_that_threads_share(check):
    module, w = convolution(EMULATOR, check)
    a = RNG.standard_normal((9, 64)).astype("f")
    c = np.zeros((7, 62), "f")
    module(a, c)
    np.testing.assert_allclose(c, convolved(a, w), rtol=1e-4, atol=1e-5)
    assert declared(module) == {"W_constant"} and str(module.signature) == "convolution(A: float32[n, 64], C: out float32[n - 2, 62])"
    assert "W" not in re.search(r"__global__.*\n", module.get_source())[0]
    if check == "memory":
        (read,) = (line for line in module.report.bank_conflicts if line.buffer == "W_constant")
        assert (read.space, read.ways, read.passes) == ("constant", 1, read.ideal)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
@pytest.mark.parametrize("value", [1.5, np.inf])
def test_what_the_compiler_makes_of_it(arch, value, cuda_compiler):
    module, w = convolution(tw.Target("cuda", arch=arch))
    assert re.search(r"ld\.const\.", module.get_source("ptx")) and list(module.resources) == ["convolution"]
    assert w.tobytes() in (content := Path(module.library_path).read_bytes()) and b".nv.constant3" in content
    module, w = spread((64, 16), lanes=4, value=np.full(16, value, "f"), target=tw.Target("cuda", arch=arch))
    assert "ld.const.v4" in module.get_source("ptx") and w.tobytes() in Path(module.library_path).read_bytes()


@pytest.mark.parametrize(
    "block, index, size, inside",
    [
        ((32,), lambda i, k: (k,), (12,), True),
        ((32,), lambda i, k: (i,), (64,), False),
        ((32,), lambda i, k: (k, i), (12, 64), False),
        ((32,), lambda i, k: (i // 32, k), (2, 12), True),  # of the block
        ((32, 2), lambda i, k: (i // 32, k), (2, 12), True),  # of the warp
        ((16, 4), lambda i, k: (i // 16, k), (4, 12), False),  # two in a warp
        ((8, 4, 2), lambda i, k: (i // 32, k), (2, 12), True),
        ((8, 2, 4), lambda i, k: (i // 16, k), (4, 12), False),
        ((64,), lambda i, k: (i // 32, k), (2, 12), True),
        ((64,), lambda i, k: (k, i // 32), (12, 2), True),
        ((64,), lambda i, k: (i // 16, k), (4, 12), False),
        ((64,), lambda i, k: (i // 32 + i % 2, k), (4, 12), False),
        ((16, 4), lambda i, k: (i // 32, k), (2, 12), True),
        ((16, 4), lambda i, k: (i // 48, k), (2, 12), False),
    ],
)
def test_only_what_a_warp_reads_alike(block, index, size, inside):
    for check in ("race", "memory"):
        module, w = spread(block=block, index=index, size=size, check=check)
        c = np.zeros((64, 12), "f")
        module(c)
        i, k = np.indices((64, 12))
        np.testing.assert_array_equal(c, w[index(i, k)])
        assert declared(module) == ({"W_constant"} if inside else set()) and len(module._generated.constants) == (not inside)
        assert module.report.faults == [] and module.report.max_bank_conflict in (None, 1)


def test_a_place_that_is_read_from_memory_is_not_known():
    A, W = te.placeholder((64,), "int32", name="A"), te.placeholder((8,), name="W")
    C = te.compute((64,), lambda i: W[A[i]], name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [A, C], EMULATOR, constants={W: np.arange(8, dtype="f")})
    a, c = RNG.integers(0, 8, 64).astype("i4"), np.zeros(64, "f")
    module(a, c)
    assert (c == a).all() and declared(module) == set()


def test_as_much_as_fits(cuda_compiler):
    for count, inside in ((16384, True), (16385, False)):
        w = RNG.standard_normal(count).astype("f")
        module, _ = spread((32, count), value=w)
        assert (declared(module) == {"W_constant"}) is inside
        c = np.zeros((32, count), "f")
        module(c)
        assert (c == w).all()
        for arch in ("sm_75", "sm_90"):
            assert spread((32, count), value=w, target=tw.Target("cuda", arch=arch))[0].resources["spread"].stack_bytes == 0


def test_several_constants_share_the_room():
    """40000 + 30000 bytes are too many, 40000 + 20000 and the last 5536 are not."""
    A = te.placeholder((32,), name="A")
    weights = [te.placeholder((size,), "uint8", name=f"W{n}") for n, size in enumerate((40000, 30000, 20000, 5537, 5536))]
    T = te.placeholder((32,), name="T")  # read by each thread
    k = [te.reduce_axis((0, w.shape[0]), name=f"k{n}") for n, w in enumerate(weights)]
    sums = [te.compute((32,), lambda i, w=w, r=r: te.sum(w[r].astype("float32") * A[i], axis=r), name=f"S{w.name}") for w, r in zip(weights, k, strict=True)]
    C = te.compute((32,), lambda i: sum((t[i] for t in sums), T[i]), name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    for each in sums:
        s[each].compute_at(s[C], C.op.axis[0])
    values = {w: RNG.integers(0, 255, w.shape[0]).astype("uint8") for w in weights}
    module = tw.build(s, [A, C], EMULATOR, constants={**values, T: np.arange(32, dtype="f")}, check="race")
    c = np.zeros(32, "f")
    module(np.ones(32, "f"), c)
    np.testing.assert_allclose(c, np.arange(32) + sum(int(v.sum()) for v in values.values()), rtol=1e-6)
    assert declared(module) == {"W0_constant", "W2_constant", "W4_constant"} and module.report.faults == []
    assert [spec.name for spec in module._generated.constants] == ["W1", "W3", "T"]


def test_what_is_computed_before_is_a_constant_too():
    """A stage at root that depends on a constant only is one for the kernels after it, of which each may read it."""
    W, A = te.placeholder((6,), name="W"), te.placeholder((64,), name="A")
    P = te.compute((6,), lambda i: W[i] * 2.0, name="P")
    k, r = te.reduce_axis((0, 6), name="k"), te.reduce_axis((0, 6), name="r")
    B = te.compute((64,), lambda i: te.sum(A[i] * P[k], axis=k), name="B")
    C = te.compute((64,), lambda i: te.sum(B[i] + P[r], axis=r), name="C")
    s = te.create_schedule(C.op)
    for stage in (P, B, C):
        s[stage].bind(stage.op.axis[0], te.thread_axis("threadIdx.x"))
    a, w, c = RNG.standard_normal(64).astype("f"), RNG.standard_normal(6).astype("f"), np.zeros(64, "f")
    module = tw.build(s, [A, C], EMULATOR, constants={W: w})
    module(a, c)
    np.testing.assert_allclose(c, 6 * a * (2 * w).sum() + (2 * w).sum(), rtol=1e-4, atol=1e-4)
    assert declared(module) == {"P_constant"} and len(re.findall("__global__", module.get_source())) == 2


def test_what_is_computed_before_needs_no_gpu(cuda_compiler, monkeypatch):
    monkeypatch.setattr(cuda_driver, "_drivers", {})
    monkeypatch.setattr(cuda_driver, "_PACKAGES", ())
    W = te.placeholder((4,), name="W")
    P = te.compute((4,), lambda i: W[i] * 2.0, name="P")
    C = te.compute((64, 4), lambda i, k: P[k], name="C")
    s = te.create_schedule(C.op)
    s[P].bind(P.op.axis[0], te.thread_axis("threadIdx.x"))
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [C], tw.Target("cuda", arch="sm_90"), constants={W: np.arange(4, dtype="f")})
    assert "P_constant[4] = {\n    0.0f, 2.0f, 4.0f, 6.0f,\n}" in module.get_source() and module.resources["kernel"].stack_bytes == 0
    with pytest.raises(tw.TargetError, match="no GPU can be used"):
        module(np.zeros((64, 4), "f"))


@pytest.mark.parametrize("index", [lambda i, k: (k,), lambda i, k: (i % 12,)])
def test_modules_of_one_kernel_have_their_own_constants(index):
    modules = [spread(index=index, size=(12,)) for _ in range(2)]
    for _ in range(2):
        for module, w in modules:
            c = np.zeros((64, 12), "f")
            module(c)
            i, k = np.indices((64, 12))
            np.testing.assert_array_equal(c, w[index(i, k)])


def test_a_single_value():
    A, W = te.placeholder((64,), name="A"), te.placeholder((), name="W")
    C = te.compute((64,), lambda i: A[i] * W[()], name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [A, C], EMULATOR, constants={W: np.array(1.5, "f")})
    c = np.zeros(64, "f")
    module(np.full(64, 2, "f"), c)
    assert (c == 3).all() and "W_constant[1] = {\n    1.5f,\n}" in module.get_source()


@pytest.mark.parametrize("name", ["index", "timezone", "for", "W_constant", "a b", ""])
def test_names(name, cuda_compiler):
    A, W = te.placeholder((32,), name="A"), te.placeholder((3,), name=name)
    k = te.reduce_axis((0, 3), name="k")
    C = te.compute((32,), lambda i: te.sum(A[i] * W[k], axis=k), name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    module = tw.build(s, [A, C], EMULATOR, name=f"{name}_constant", constants={W: np.full(3, 2, "f")})
    c = np.zeros(32, "f")
    module(np.ones(32, "f"), c)
    assert (c == 6).all() and len(declared(module)) == 1
    assert tw.build(s, [A, C], tw.Target("cuda"), name=f"{name}_constant", constants={W: np.full(3, 2, "f")}).resources


def test_nothing_is_copied_from_there_asynchronously(cuda_compiler):
    """cp.async reads global memory only."""
    A, W = te.placeholder((64, 4), name="A"), te.placeholder((16, 4), name="W")
    k = te.reduce_axis((0, 4), name="k")
    C = te.compute((64, 16), lambda i, j: te.sum(A[i, k] * W[j, k], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    panel = s.cache_read(W, "shared", [C])
    s[panel].compute_at(s[C], j)
    s[panel].double_buffer()
    w = RNG.standard_normal((16, 4)).astype("f")
    a, c = RNG.standard_normal((64, 4)).astype("f"), np.zeros((64, 16), "f")
    module = tw.build(s, [A, C], EMULATOR, constants={W: w}, check="race")
    module(a, c)
    np.testing.assert_allclose(c, a @ w.T, rtol=1e-4, atol=1e-5)
    assert module.report.faults == [] and declared(module) == {"W_constant"} and "tw_cp_async" not in module.get_source()
    assert tw.build(s, [A, C], tw.Target("cuda"), constants={W: w}).resources


def test_a_write_there_ends_the_launch():
    source = """__constant__ float table[4] = {1, 2, 3, 4};
    __global__ void k(float* y, int at) {
      if (at >= 0) table[at] = 0;
      y[threadIdx.x] = table[threadIdx.x % 4];
    }"""
    y = np.zeros(32, "f")
    for check in ("race", "memory"):
        report = tw.emulate_cuda(source, "k", 1, 32, [y, 1], check=check)
        (record,) = report.out_of_bounds
        assert (record.buffer, record.space, record.element, record.line) == ("table", "constant", 1, 3) and "which is read-only" in str(record)
        assert "a write to constant memory" in report.stopped
        assert tw.emulate_cuda(source, "k", 1, 32, [y, -1], check=check).faults == [] and (y[:4] == [1, 2, 3, 4]).all(), "it was not written"


def test_an_index_beyond_it_is_named():
    module, w = spread(check="race")
    source = module.get_source().replace("W_constant[k]", "W_constant[k + 3]")
    report = tw.emulate_cuda(source, "spread", 2, 32, [np.zeros((64, 12), "f")], check="race")
    assert {(record.buffer, record.space, record.element, record.extent) for record in report.out_of_bounds} == {("W_constant", "constant", 12, 12)}
    assert "reads constant array W_constant at element 12; it has 12 of 4 bytes" in str(report)
    source = module.get_source().replace("W_constant[k]", "(&W_constant[0])[(int)threadIdx.x - 1]")
    (record,) = tw.emulate_cuda(source, "spread", 2, 32, [np.zeros((64, 12), "f")], check="race").out_of_bounds
    assert (record.buffer, record.element) == ("W_constant", -1)


def test_reads_of_many_places_are_counted():
    source = """__constant__ float table[64]; __constant__ const float two[2] = {1, 2};
    static __constant__ float4 wide[8]; namespace ns { __constant__ unsigned char small[3]; }
    __global__ void k(float* y) {
      y[threadIdx.x] = table[threadIdx.x / 4]
        + wide[threadIdx.x % 2].x
        + ns::small[0] + two[threadIdx.x % 2];
    }"""
    report = tw.emulate_cuda(source, "k", 1, 64, [np.zeros(64, "f")], check="memory")
    found = {line.buffer: (line.line, line.space, line.warps, line.ways, line.passes, line.ideal) for line in report.bank_conflicts}
    assert found["table"] == (4, "constant", 2, 8, 16, 2) and found["wide"][3] == 2 and found["small"][3] == 1 and report.max_bank_conflict == 8
    assert "8 places in constant memory at once, 16 passes, ideal 2" in str(report) and {line.buffer for line in report.transactions} == {"y"}


def test_dp4a_takes_constant_weights(cuda_compiler):
    A, W = te.placeholder((64, 8), "int8", name="A"), te.placeholder((3, 8), "int8", name="W")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((64, 3), lambda i, j: te.sum(A[i, k].astype("int32") * W[j, k].astype("int32"), axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    s[C].bind(i, te.thread_axis("threadIdx.x"))
    _, four = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].tensorize(four, "dp4a_s8")
    a, w, c = RNG.integers(-128, 128, (64, 8)).astype("int8"), RNG.integers(-128, 128, (3, 8)).astype("int8"), np.zeros((64, 3), "int32")
    module = tw.build(s, [A, C], EMULATOR, constants={W: w}, check="race")
    module(a, c)
    assert (c == a.astype("int32") @ w.astype("int32").T).all() and module.report.faults == [] and declared(module) == {"W_constant"}
    assert "ld.const" in tw.build(s, [A, C], tw.Target("cuda"), constants={W: w}).get_source("ptx")
