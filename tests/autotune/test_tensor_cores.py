"""Tensor cores: products of halves by default, and tensorize with their intrinsics by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.autotune import default_schedule
from tilewright.autotune.verify import make_check
from tilewright.te import library as lib

HALF = {"dtype": "float16", "acc_dtype": "float32"}
BRAIN = {"dtype": "bfloat16", "acc_dtype": "float32"}


def emulator(arch: str = "sm_80") -> tw.Target:
    return tw.Target("cuda", arch=arch, device="emulator", threads=1)


@pytest.mark.parametrize(
    "arch, op",
    [
        ("sm_80", lib.matmul(64, 64, 128, **HALF)),  # several stages of asynchronous copies
        ("sm_75", lib.matmul(48, 80, 64, **HALF)),  # halves of m16n8k16
        ("sm_90", lib.dense(64, 32, 160, **BRAIN)),  # the right operand by columns
        ("sm_80", lib.batch_matmul(3, 32, 16, 128, **HALF)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_products_of_halves_take_the_tensor_cores(arch, op):
    target = emulator(arch)
    module = tw.build(default_schedule(op, target), op.args, target, check="race")
    checked = make_check(op.args, op.reference, seed=0)
    arguments = checked.arguments()
    module(*arguments)
    assert checked.mismatch(arguments) is None
    report, source = module.report, module.get_source()
    assert report.races == report.out_of_bounds == report.uninitialised == report.divergence == []
    assert "tw_mma_m16n8k16" in source and "tw_ldmatrix_x4" in source
    assert ("tw_cp_async_16" in source) == (arch != "sm_75")


@pytest.mark.parametrize(
    "arch, op",
    [
        ("sm_80", lib.matmul(64, 64, 64)),  # float32
        ("sm_80", lib.matmul(64, 60, 64, **HALF)),  # no whole fragments
        ("sm_75", lib.matmul(64, 64, 64, **BRAIN)),  # an architecture without
        ("sm_80", lib.matmul(64, 64, 64, dtype="float16")),  # added in float16
    ],
    ids=["float32", "fragments", "arch", "sums"],
)
def test_other_products_do_not(arch, op):
    assert "mma" not in tw.build(default_schedule(op, emulator(arch)), op.args, emulator(arch)).get_source()


def test_memory_is_used_well():
    op, target = lib.matmul(128, 128, 128, **HALF), emulator()
    module = tw.build(default_schedule(op, target), op.args, target, check="memory")
    module(*make_check(op.args, op.reference, seed=0).arguments())
    assert module.report.max_bank_conflict <= 2 and all(line.sectors == line.ideal for line in module.report.transactions)


def test_the_compiler_gives_tensor_core_instructions():
    target = tw.Target("cuda", arch="sm_80")
    op = lib.matmul(1024, 1024, 1024, **HALF)
    module = tw.build(default_schedule(op, target), op.args, target)
    ptx = module.get_source("ptx")
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in ptx and "ldmatrix" in ptx and "cp.async.cg" in ptx
    (used,) = module.resources.values()
    assert used.stack_bytes == used.spill_bytes == 0


def one_warp(M: int, bind_lanes: int | None = 32):
    """A product of one warp a block, by hand; the lanes are those that copy the left panel."""
    A, B = te.placeholder((M, 16), "float16", "A"), te.placeholder((16, 16), "float16", "B")
    k = te.reduce_axis((0, 16), "k")
    C = te.compute((M, 16), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), "C")
    s = te.create_schedule(C.op)
    panels = [s.cache_read(X, "shared", [C]) for X in (A, B)]
    fragments = [s.cache_read(X, f"wmma.matrix_{role}", [C]) for X, role in zip(panels, "ab", strict=True)]
    sums = s.cache_write(C, "wmma.accumulator")
    block, row = s[C].split(C.op.axis[0], factor=16)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].tensorize(row, "mma_store")
    s[sums].compute_at(s[C], block)
    s[sums].tensorize(sums.op.axis[0], "mma_float16")
    for panel, fragment, role in zip(panels, fragments, "ab", strict=True):
        s[panel].compute_at(s[C], block)
        s[fragment].compute_at(s[C], block)
        s[fragment].tensorize(fragment.op.axis[0], f"mma_load_{role}_float16")
        if bind_lanes is not None:
            s[panel].bind(s[panel].split(s[panel].fuse(*panel.op.axis), factor=bind_lanes)[1], te.thread_axis((0, bind_lanes), "threadIdx.x"))
    return s, [A, B, C]


def test_tensorize_by_hand():
    s, args = one_warp(48)
    module = tw.build(s, args, emulator(), check="race")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in ((48, 16), (16, 16)))
    c = np.full((48, 16), np.nan, "f")
    module(a, b, c)
    np.testing.assert_array_equal(c, a.astype("f") @ b.astype("f"))
    assert module.report.races == []
    assert module.get_source().count("__syncthreads()") == 1, "the lanes of a warp store together: no barrier after that"


def test_mistakes_are_named():
    s, args = one_warp(48, bind_lanes=16)
    with pytest.raises(tw.TargetError, match=r"called by a warp together, the 32 threads along threadIdx\.x, but 16 are bound there"):
        tw.build(s, args, emulator())
    s, args = one_warp(50)
    with pytest.raises(tw.ScheduleError, match="An intrinsic does all of them"):
        tw.build(s, args, emulator())
    A = te.placeholder((16, 16), "float16", "A")
    B = te.compute((16, 16), lambda i, j: A[i, j], "B")
    s = te.create_schedule(B.op)
    s[B].tensorize(B.op.axis[0], "mma_load_a_float16")
    with pytest.raises(tw.TargetError, match="mma_load_a_float16_body has no code for target 'c'"):
        tw.build(s, [A, B])
