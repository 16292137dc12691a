"""Tensor cores: the intrinsics, the default schedules that use them, and what is refused. Kernels run on the emulator with its checks."""

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.autotune import default_schedule
from tilewright.schedule.lower import lower_schedule
from tilewright.te.tensor_cores import KINDS
from tilewright.tir.errors import ScheduleError, TargetError, TEError
from tilewright.tir.interp import interpret

from .tensor_core_products import SM_80, run_clean

SM_75 = tw.Target("cuda", arch="sm_75", device="emulator", threads=2)


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(pytest.importorskip("ml_dtypes").bfloat16)
    return rng.standard_normal(shape).astype(dtype)


def operator(name, sizes, dtype):
    return getattr(te.library, name)(*sizes, dtype=dtype, acc_dtype="int32" if "int" in dtype else "float32")


def product(name, a, b):
    """The result in numbers that hold it."""
    wide = np.int64 if a.dtype.kind in "iu" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    return a @ (np.swapaxes(b, -1, -2) if name == "dense" else b)


def check_operator(name, sizes, dtype, target=SM_80):
    op = operator(name, sizes, dtype)
    a, b = (numbers([int(e) for e in t.shape], dtype, seed) for seed, t in enumerate(op.args[:2]))
    c = np.full([int(e) for e in op.output.shape], 7 if "int" in dtype else np.nan, op.output.dtype)
    module = run_clean(default_schedule(op, target), op.args, [a, b, c], target)
    # each product of halves is exact in float32; so are int32 sums
    np.testing.assert_allclose(c, product(name, a, b), rtol=1e-5, atol=0 if "int" in dtype else 1e-5 * np.sqrt(sizes[-1]))
    return module.get_source("cuda")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8"])
@pytest.mark.parametrize("name", ["matmul", "dense"])
def test_whole_tiles(name, dtype):
    source = check_operator(name, (64, 96, 128), dtype)
    assert "tw_mma_m16n8k" in source
    assert "tw_ldmatrix_x4" in source
    assert "tw_cp_async_16" in source


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("matmul", (50, 37, 43)),
        ("matmul", (16, 200, 8)),
        ("matmul", (33, 64, 1)),
        ("dense", (17, 130, 100)),
        ("dense", (67, 19, 36)),
        ("batch_matmul", (3, 40, 24, 72)),
    ],
)
def test_sizes_that_divide_by_nothing(name, sizes, dtype):
    assert "tw_mma_m16n8k" in check_operator(name, sizes, dtype)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_products_on_sm_75(dtype):
    assert "tw_mma_m16n8k" in check_operator("dense", (32, 40, 48), dtype, SM_75)


def test_other_computations_keep_to_the_cuda_cores():
    for sizes, dtype, target in (((64, 64, 64), "bfloat16", SM_75), ((8, 64, 64), "float16", SM_80), ((64, 64, 64), "float32", SM_80)):
        op = operator("matmul", sizes, dtype)
        assert "tw_mma" not in tw.build(default_schedule(op, target), op.args, target=target).get_source("cuda")
    op = te.library.matmul(64, 64, 64, dtype="float16")  # sums in float16
    assert "tw_mma" not in tw.build(default_schedule(op, SM_80), op.args, target=SM_80).get_source("cuda")


def test_the_interpreter_agrees():
    op = operator("matmul", (16, 17, 18), "float16")
    a, b = numbers((16, 18), "float16"), numbers((18, 17), "float16", 1)
    c = np.full((16, 17), np.nan, "float32")
    interpret(lower_schedule(default_schedule(op, SM_80), op.args), [a, b, c])
    np.testing.assert_allclose(c, product("matmul", a, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tile", [7, 8, 9])
@pytest.mark.parametrize(("buffers", "tiles_of_terms"), [(1, 4), (4, 1)])
def test_candidates(tile, buffers, tiles_of_terms):
    task = tw.autotune.Task("matmul", (40, 48, 70), target=SM_80, dtype="float16", acc_dtype="float32")
    a, b = numbers((40, 70), "float16"), numbers((70, 48), "float16", 1)
    c = np.full((40, 48), np.nan, "float32")
    candidate = task.instantiate({"tile": tile, "buffers": buffers, "tiles_of_terms": tiles_of_terms})
    run_clean(candidate.schedule, candidate.tensors, [a, b, c])
    np.testing.assert_allclose(c, product("matmul", a, b), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("name", "sizes", "dtype"),
    [("matmul", (2048, 2048, 2048), "float16"), ("matmul", (1024, 1024, 1024), "int8"), ("dense", (500, 1000, 333), "bfloat16")],
)
def test_nvcc_keeps_fragments_in_registers(name, sizes, dtype, arch):
    target = tw.Target("cuda", arch=arch)
    op = operator(name, sizes, dtype)
    module = tw.build(default_schedule(op, target), op.args, target=target)
    (resources,) = module.resources.values()
    assert (resources.stack_bytes, resources.spill_bytes) == (0, 0)
    ptx = module.get_source("ptx")
    assert "mma.sync.aligned.m16n8k" in ptx
    assert "ldmatrix.sync.aligned.m8n8.x4" in ptx
    assert not re.search(r"\.local|bar\.warp", ptx)


def test_memory_is_used_well():
    op = operator("matmul", (128, 128, 128), "float16")
    module = tw.build(default_schedule(op, SM_80), op.args, target=SM_80, check="memory")
    module(numbers((128, 128), "float16"), numbers((128, 128), "float16", 1), np.zeros((128, 128), "float32"))
    assert module.report.max_bank_conflict <= 2
    assert all(line.sectors == line.ideal for line in module.report.transactions)


# ---------------------------------------------------------------------------------------------------------------- by hand


def by_hand(kind="f16", dtype="float16", size=32, tensorized=("load_a", "load_b", "", "store"), threads=32, layout=None, scope_a="wmma.matrix_a"):
    """C = A B of one block with one warp: the schedule, the arguments, and the stages."""
    k_extent = 2 * KINDS[kind].terms
    A, B = te.placeholder((size, k_extent), dtype, "A"), te.placeholder((k_extent, size), dtype, "B")
    k = te.reduce_axis((0, k_extent), "k")
    sums = KINDS[kind].sums
    if dtype == sums:
        C = te.compute((size, size), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), "C")
    else:
        C = te.compute((size, size), lambda i, j: te.sum(A[i, k].astype(sums) * B[k, j].astype(sums), axis=k), "C")
    s = te.create_schedule(C.op)
    CF = s.cache_write(C, "wmma.accumulator")
    AS, BS = (s.cache_read(T, "shared", [CF]) for T in (A, B))
    AF, BF = s.cache_read(AS, scope_a, [CF]), s.cache_read(BS, "wmma.matrix_b", [CF])
    io, jo, ii, ji = s[C].tile(*C.op.axis, 16, 16)
    block = s[C].fuse(io, jo)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[CF].compute_at(s[C], block)
    ko, ki = s[CF].split(s[CF].op.reduce_axis[0], factor=KINDS[kind].terms)
    i, j = s[CF].op.axis
    s[CF].reorder(ko, i, j, ki)
    for T in (AS, BS):
        s[T].compute_at(s[CF], ko)
        _, lane = s[T].split(s[T].fuse(*s[T].op.axis), factor=threads)
        s[T].bind(lane, te.thread_axis((0, threads), "threadIdx.x"))
    for T in (AF, BF):
        s[T].compute_at(s[CF], ko)
    names = [name and (name if name.startswith("mma") else f"mma_{kind}_{name}") for name in tensorized]
    names[2] = names[2] or f"mma_{kind}"
    for stage, axis, name in ((AF, 0, names[0]), (BF, 0, names[1])):
        if name:
            s[stage].tensorize(s[stage].op.axis[axis], name)
    s[CF].tensorize(i, names[2])
    if tensorized[3]:
        s[C].tensorize(ii, KINDS[kind].store)
    return s, [A, B, C], {"AS": AS, "BS": BS, "AF": AF, "BF": BF, "CF": CF}


@pytest.mark.parametrize(("kind", "dtype"), [("f16", "float16"), ("bf16", "bfloat16"), ("s8", "int8"), ("u8", "uint8"), ("tf32", "float32")])
def test_a_schedule_by_hand(kind, dtype):
    s, args, _ = by_hand(kind, dtype)
    a, b = (numbers([int(e) for e in t.shape], dtype, seed) for seed, t in enumerate(args[:2]))
    c = np.zeros((32, 32), KINDS[kind].sums)
    source = run_clean(s, args, [a, b, c]).get_source("cuda")
    assert KINDS[kind].product in source
    np.testing.assert_allclose(c, product("matmul", a, b), rtol=1e-5 if kind != "tf32" else 2e-3, atol=1e-5 if kind != "tf32" else 2e-2)
    if kind == "tf32":  # which rounds what it multiplies, and nothing else
        rounded = [((x.view(np.uint32) + (1 << 12)) & 0xFFFFE000).astype(np.uint32).view(np.float32) for x in (a, b)]
        np.testing.assert_allclose(c, product("matmul", *rounded), rtol=1e-5, atol=1e-5)
    d = np.zeros_like(c)
    interpret(lower_schedule(s, args), [a, b, d])
    np.testing.assert_allclose(d, c, rtol=1e-5, atol=1e-5)


def test_barriers_are_those_of_the_panels_only():
    s, args, _ = by_hand()
    source = tw.build(s, args, target=SM_80).get_source("cuda")
    assert source.count("__syncwarp") == 2 and "__syncthreads" not in source  # one warp computes a block


def refuse(call, *words, error=ScheduleError):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value), caught.value


def build(s, args, target=SM_80):
    return tw.build(s, args, target=target)


def test_refusals():
    s, args, _ = by_hand(tensorized=("", "load_b", "", "store"))
    refuse(lambda: build(s, args), "A.shared.wmma.matrix_a", "element by element", "tensorize")
    s, args, _ = by_hand(tensorized=("load_a", "load_b", "", ""))
    refuse(lambda: build(s, args), "stage C reads C.wmma.accumulator", "tensorize")
    s, args, _ = by_hand(tensorized=("load_a", "load_bt", "", "store"))
    refuse(lambda: build(s, args), "'mma f16 bt'", "'mma f16 b'", "belong together")
    s, args, _ = by_hand(tensorized=("load_b", "load_b", "", "store"))
    refuse(lambda: build(s, args), "wmma.matrix_b", "wmma.matrix_a")
    s, args, _ = by_hand(scope_a="local")
    refuse(lambda: build(s, args), "A.shared.local", "wmma.matrix_a")
    s, args, _ = by_hand(threads=64)
    refuse(lambda: build(s, args), "extent of threadIdx.x is 64", "32", error=TargetError)
    s, args, stages = by_hand()
    s[stages["AS"]].storage_align(s[stages["AS"]].op.axis[0], 4, 1)
    refuse(lambda: build(s, args), "16 bytes", "neighbours are 17, 1 elements apart", "storage_align")
    s, args, _ = by_hand("bf16", "bfloat16")
    refuse(lambda: build(s, args, SM_75), "mma_bf16_update", "sm_80", "sm_75", error=TargetError)
    refuse(lambda: by_hand("f16", "float32") and build(*by_hand("f16", "float32")[:2]), "mma_f16", "not the pattern")


def test_an_intrinsic_on_what_differs_between_lanes_is_refused():
    A = te.placeholder((64, 16), "float16", "A")
    B = te.compute((64, 16), lambda i, j: A[i, j] * te.const(2.0, "float16"), "B")
    s = te.create_schedule(B.op)
    AS = s.cache_read(A, "shared", [B])
    AF = s.cache_read(AS, "wmma.matrix_a", [B])
    io, ii = s[B].split(B.op.axis[0], factor=16)
    s[B].bind(io, te.thread_axis("threadIdx.x"))
    i, j = s[AF].op.axis
    outer, inner = s[AF].split(i, factor=16)
    s[AF].bind(outer, te.thread_axis("threadIdx.x"))
    s[AF].tensorize(inner, "mma_f16_load_a")
    s[AF].compute_at(s[B], io)
    s[AS].compute_at(s[B], io)
    refuse(lambda: build(s, [A, B]), "mma_f16_load_a", "together", "threadIdx.x")


def test_refusals_of_declarations():
    a = te.placeholder((8, 8), name="a")
    c = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="c")
    code = {"cuda": "c[0] = 0;", "python": print}
    declare = te.decl_tensor_intrin
    refuse(lambda: declare(c, body=code, fragments={"x": ("wmma.matrix_a", "own")}), "fragments=", "'x'", "c, a", error=TEError)
    refuse(lambda: declare(c, body=code, fragments={"a": ("shared", "own")}), "'shared'", "wmma.matrix_a", error=TEError)
    refuse(lambda: declare(c, body=code, aligned={"x": 4}), "aligned=", error=TEError)
    small = te.compute((3,), lambda i: te.placeholder((3,), name="a")[i] + 1.0, name="c")
    refuse(lambda: declare(small, body=code, fragments={"c": ("wmma.accumulator", "own")}), "3 elements", "32", error=TEError)
    declare(c, body={"cuda": "tw_nothing();", "python": lambda c, a: None}, name="calls_nothing")
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    s[c].bind(s[c].split(i, factor=8)[0], te.thread_axis("blockIdx.x"))
    s[c].tensorize(s[c].leaf_iter_vars[1], "calls_nothing")
    refuse(lambda: build(s, [a, c]), "tw_nothing", "cuda_helpers", error=TargetError)
    s = te.create_schedule(c.op)
    s[c].tensorize(c.op.axis[0], "calls_nothing")
    refuse(lambda: build(s, [a, c], "c"), "calls_nothing", "'cuda'", "'c'", error=TargetError)


# --------------------------------------------------------------------------------------------------------------- CUDA cores


@pytest.mark.parametrize(
    ("first", "second", "name"), [("int8", "int8", "s8"), ("uint8", "uint8", "u8"), ("int8", "uint8", "s8_u8"), ("uint8", "int8", "u8_s8")]
)
@pytest.mark.parametrize("target", [SM_75, tw.Target("c")], ids=["cuda", "c"])
def test_dp4a(first, second, name, target):
    A, B = te.placeholder((24, 32), first, "A"), te.placeholder((16, 32), second, "B")
    k = te.reduce_axis((0, 32), "k")
    C = te.compute((24, 16), lambda i, j: te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k), "C")
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
    _, four = s[CL].split(s[CL].op.reduce_axis[0], factor=4)
    s[CL].tensorize(four, f"dp4a_{name}")
    i, j = C.op.axis
    s[CL].compute_at(s[C], j)
    if target.kind == "cuda":
        s[C].bind(i, te.thread_axis("blockIdx.x"))
        s[C].bind(j, te.thread_axis("threadIdx.x"))
    a, b, c = numbers((24, 32), first), numbers((16, 32), second, 1), np.full((24, 16), 7, "int32")
    module = tw.build(s, [A, B, C], target=target)
    module(a, b, c)
    assert target.kind == "c" or f"tw_dp4a_{name}(" in module.get_source("cuda")
    np.testing.assert_array_equal(c, product("dense", a, b))


def test_memory_of_a_thread_is_aligned_to_its_words_only():
    a = te.placeholder((4,), "float32", "a")
    c = te.compute((4,), lambda i: a[i] + 1.0, "c")
    te.decl_tensor_intrin(c, body={"cuda": "*(float4 *)c = *(const float4 *)a;", "python": print}, name="by_fours", aligned={"a": 16})
    A = te.placeholder((32, 4), "float32", "A")
    B = te.compute((32, 4), lambda i, j: A[i, j] + 1.0, "B")
    s = te.create_schedule(B.op)
    AL = s.cache_read(A, "local", [B])
    i, j = B.op.axis
    s[B].bind(i, te.thread_axis("threadIdx.x"))
    s[AL].compute_at(s[B], i)
    s[B].tensorize(j, "by_fours")
    refuse(lambda: build(s, [A, B]), "by_fours", "A.local", "aligned to 16 bytes", "aligned to 4")


def test_dp4a_wants_whole_words():
    A, B = te.placeholder((8, 33), "int8", "A"), te.placeholder((8, 33), "int8", "B")
    k = te.reduce_axis((0, 32), "k")
    C = te.compute((8,), lambda i: te.sum(A[i, k].astype("int32") * B[i, k].astype("int32"), axis=k), "C")
    s = te.create_schedule(C.op)
    _, four = s[C].split(k, factor=4)
    s[C].tensorize(four, "dp4a_s8")
    s[C].bind(C.op.axis[0], te.thread_axis("threadIdx.x"))
    refuse(lambda: build(s, [A, B, C]), "dp4a_s8", "multiples of 4 elements", "operand a")
