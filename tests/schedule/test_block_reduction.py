"""Reductions that blocks of a GPU share: what they start from is stored by a kernel before, and each block adds its share atomically."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.autotune import default_schedule
from tilewright.schedule import create_schedule, lower_schedule, replay_trace
from tilewright.targets.cuda_toolchain import compile_cuda, find_cuda_compiler
from tilewright.tir.errors import ScheduleError, TargetError
from tilewright.tir.gpu import ATOMIC_DTYPES
from tilewright.tir.interp import interpret
from tilewright.tir.passes import Verify, pipeline_for

EMULATOR = tw.Target("cuda", arch="sm_80", device="emulator", threads=2)
SUMS, EXTREMA = ATOMIC_DTYPES["add"], ATOMIC_DTYPES["min"]


def thread(tag):
    return te.thread_axis(tag)


def inputs(args, low=-8, high=9, seed=0):
    """Whole numbers, so that sums are exact in whatever order; small enough for float16."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0 if str(t.dtype).startswith("uint") else low, high, t.shape).astype(np_dtype(t.dtype)) for t in args]


def np_dtype(kind):
    if kind == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return np.dtype(str(kind))


def filled(tensor):
    """What a result must overwrite: nothing that adds up to it."""
    return np.full(tensor.shape, 77).astype(np_dtype(tensor.dtype))


def run(s, args, expected=None, arrays=None):
    """The loops, the kernels after each pass and on the emulator compute `expected`; the module."""
    arrays = inputs(args[:-1]) if arrays is None else arrays
    func = lower_schedule(s, args, "k")
    got = filled(args[-1])
    interpret(func, [*arrays, got])
    if expected is not None:
        np.testing.assert_array_equal(got, expected(*arrays))
    want = got
    done = pipeline_for(EMULATOR).run(func, EMULATOR, [Verify(3)])
    for how in ("steps", "barriers"):
        got = filled(args[-1])
        interpret(done, [*arrays, got], threads=how, seed=1)
        np.testing.assert_array_equal(got, want)
    module = tw.build(s, args, EMULATOR, name="k", check="race")
    for _ in range(2):  # a call starts anew
        got = filled(args[-1])
        module(*arrays, got)
        np.testing.assert_array_equal(got, want)
    found = module.report
    assert found.races == found.out_of_bounds == found.uninitialised == found.divergence == [], str(found)
    assert not any("atomic" in each.reason for each in found.not_judged), str(found)
    return module


def row_sums(kind="float32", rows=5, columns=203, reducer=te.sum, **options):
    A = te.placeholder((rows, columns), kind, name="A")
    k = te.reduce_axis((0, columns), name="k")
    C = te.compute((rows,), lambda i: reducer(A[i, k], axis=k, **options), name="C")
    return A, C, create_schedule(C.op)


def along_the_row(s, C, factor=64, threads=16):
    """Blocks along each row, whose threads reduce together."""
    (k,) = C.op.reduce_axis
    outer, inner = s[C].split(k, factor=factor)
    _, lane = s[C].split(inner, factor=threads)
    s[C].bind(C.op.axis[0], thread("blockIdx.y"))
    s[C].bind(outer, thread("blockIdx.x"))
    s[C].bind(lane, thread("threadIdx.x"))


def matmul(m, n, k, kind="float32"):
    A, B = te.placeholder((m, k), kind, name="A"), te.placeholder((k, n), kind, name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return A, B, C


def test_the_kernels(golden):
    A, C, s = row_sums()
    along_the_row(s, C)
    golden("blocks_along_rows.txt", str(lower_schedule(s, [A, C], "rows")) + "\n")
    source = tw.build(s, [A, C], EMULATOR, name="rows").get_source()
    assert re.findall(r"__global__ .* (\w+)\((.*)\)\n", source) == [
        ("rows_C_init", "float *__restrict__ C"),
        ("rows_C", "const float *__restrict__ A, float *__restrict__ C"),
    ]
    assert source.count("if (threadIdx_x == 0) {\n            atomicAdd(&C[blockIdx_y], C_total[0]);") == 2  # of whole shares, and of the last one


@pytest.mark.parametrize("kind", SUMS)
def test_sums(kind):
    A, C, s = row_sums(kind)
    along_the_row(s, C)
    module = run(s, [A, C], lambda a: a.sum(axis=1, dtype="float64" if a.dtype.kind not in "iu" else None).astype(a.dtype))
    assert "atomic" in module.get_source() and "if (threadIdx_x == 0)" in module.get_source()


@pytest.mark.parametrize("kind", EXTREMA)
@pytest.mark.parametrize("name", ["min", "max"])
def test_extrema(kind, name):
    A, C, s = row_sums(kind, reducer=getattr(te, name))
    along_the_row(s, C)
    limits = np.iinfo(kind)
    a = np.random.default_rng(2).integers(limits.min, limits.max, A.shape, dtype=kind, endpoint=True)
    run(s, [A, C], lambda a: getattr(a, name)(axis=1), [a])


def test_integers_wrap():
    A, C, s = row_sums("int32")
    along_the_row(s, C)
    a = np.random.default_rng(2).integers(-(1 << 31), 1 << 31, A.shape).astype("int32")
    run(s, [A, C], lambda a: a.sum(axis=1, dtype="int32"), [a])


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 32), (19, 21, 37), (1, 1, 3), (8, 8, 1)])
def test_split_k(m, n, k):
    """Registers and shared memory inside a block; what is left of the sum goes to blockIdx.z."""
    A, B, C = matmul(m, n, k)
    s = create_schedule(C.op)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 8, 8)
    ko, ki = s[C].split(C.op.reduce_axis[0], nparts=3)
    step, term = s[C].split(ki, factor=4)
    row, rows = s[C].split(ii, factor=2)
    s[C].reorder(io, jo, ko, row, ji, step, term, rows)
    for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ko, "blockIdx.z"), (row, "threadIdx.y"), (ji, "threadIdx.x")):
        s[C].bind(axis, thread(tag))
    for operand in (A, B):
        panel = s.cache_read(operand, "shared", [C])
        s[panel].compute_at(s[C], step)
        _, lane = s[panel].split(s[panel].fuse(*s[panel].op.axis), factor=8)
        s[panel].bind(lane, thread("threadIdx.x"))
    module = run(s, [A, B, C], lambda a, b: a @ b)
    assert [name for name in ("k_C_init", "k_C") if name + "(" in module.get_source()] == ["k_C_init", "k_C"]


def factored(m=19, n=21, k=37):
    A, B, C = matmul(m, n, k)
    s = create_schedule(C.op)
    ko, _ = s[C].split(C.op.reduce_axis[0], nparts=3)
    part = s.rfactor(C, ko)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 8, 8)
    (blocks,) = s[C].op.reduce_axis
    s[C].reorder(io, jo, blocks, ii, ji)
    for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (blocks, "blockIdx.z"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
        s[C].bind(axis, thread(tag))
    return s, [A, B, C], part, ji, blocks


def test_split_k_by_rfactor():
    """The part of a block is a stage of its own, and nothing is left of the sum in the last one: its terms go into memory as they are."""
    s, args, part, inner, _ = factored()
    s[part].compute_at(s[args[2]], inner)
    module = run(s, args, lambda a, b: a @ b)
    assert "atomicAdd(&C[" in module.get_source() and "C_share" not in module.get_source()


def test_the_part_of_a_block_in_shared_memory():
    s, args, part, _, blocks = factored()
    s[part].compute_at(s[args[2]], blocks)
    _, i, j = s[part].op.axis
    s[part].bind(i, thread("threadIdx.y"))
    s[part].bind(j, thread("threadIdx.x"))
    assert "__shared__" in run(s, args, lambda a, b: a @ b).get_source()


def test_tensor_cores_in_each_block():
    """Fragments are stored to shared memory, whose elements are added one by one."""
    M, K = 32, 96
    A, B = te.placeholder((M, K), "float16", name="A"), te.placeholder((K, M), "float16", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, M), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), name="C")
    s = create_schedule(C.op)
    ko, _ = s[C].split(C.op.reduce_axis[0], nparts=3)
    part = s.rfactor(C, ko)
    io, jo, ii, ji = s[C].tile(*C.op.axis, 16, 16)
    (blocks,) = s[C].op.reduce_axis
    s[C].reorder(io, jo, blocks, ii, ji)
    for axis, tag in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (blocks, "blockIdx.z")):
        s[C].bind(axis, thread(tag))
    _, lane = s[C].split(s[C].fuse(ii, ji), factor=32)
    s[C].bind(lane, thread("threadIdx.x"))
    sums = s.cache_write(part, "wmma.accumulator")
    s[part].compute_at(s[C], blocks)
    s[part].set_scope("shared")
    s[part].tensorize(s[part].op.axis[1], "mma_f32_store")
    s[sums].compute_at(s[part], s[part].op.axis[0])
    step, term = s[sums].split(s[sums].op.reduce_axis[0], factor=16)
    _, i, j = s[sums].op.axis
    s[sums].reorder(step, i, j, term)
    s[sums].tensorize(i, "mma_f16")
    for operand, role in ((A, "a"), (B, "b")):
        panel = s.cache_read(operand, "shared", [sums])
        fragment = s.cache_read(panel, f"wmma.matrix_{role}", [sums])
        s[panel].compute_at(s[sums], step)
        s[panel].storage_align(s[panel].op.axis[0], 16, 8)
        _, lane = s[panel].split(s[panel].fuse(*s[panel].op.axis), factor=32)
        s[panel].bind(lane, thread("threadIdx.x"))
        s[fragment].compute_at(s[sums], step)
        s[fragment].tensorize(s[fragment].op.axis[0], f"mma_f16_load_{role}")
    module = run(s, [A, B, C], lambda a, b: a.astype("f") @ b.astype("f"))
    assert "tw_mma" in module.get_source() and "atomicAdd(&C[" in module.get_source()


def test_all_of_the_sum_to_blocks_and_none_left():
    A, C, s = row_sums(columns=7)
    s[C].bind(C.op.reduce_axis[0], thread("blockIdx.x"))
    module = run(s, [A, C], lambda a: a.sum(axis=1))
    assert "C_share" not in module.get_source()


def test_two_indices_of_blocks():
    A = te.placeholder((6, 10, 11), "int32", name="A")
    i, j = te.reduce_axis((0, 10), name="i"), te.reduce_axis((0, 11), name="j")
    C = te.compute((6,), lambda n: te.sum(A[n, i, j], axis=[i, j]), name="C")
    s = create_schedule(C.op)
    s[C].bind(C.op.axis[0], thread("threadIdx.x"))
    s[C].bind(i, thread("blockIdx.y"))
    outer, _ = s[C].split(j, factor=4)
    s[C].bind(outer, thread("blockIdx.x"))
    run(s, [A, C], lambda a: a.sum(axis=(1, 2), dtype="int32"))


def test_a_result_without_dimensions():
    A = te.placeholder((1000,), "int64", name="A")
    k = te.reduce_axis((0, 1000), name="k")
    C = te.compute((), lambda: te.sum(A[k], axis=k), name="C")
    s = create_schedule(C.op)
    outer, inner = s[C].split(k, factor=96)
    s[C].bind(outer, thread("blockIdx.x"))
    s[C].bind(s[C].split(inner, factor=32)[1], thread("threadIdx.x"))
    run(s, [A, C], lambda a: a.sum())


def test_virtual_threads():
    A, C, s = row_sums("int32", rows=24)
    (i,), (k,) = C.op.axis, C.op.reduce_axis
    outer, lane = s[C].split(i, factor=4)
    virtual, outer = s[C].split(outer, nparts=2)
    parts, inner = s[C].split(k, factor=50)
    share, _ = s[C].split(inner, nparts=3)
    s[C].bind(virtual, thread("vthread"))
    s[C].bind(outer, thread("blockIdx.x"))
    s[C].bind(lane, thread("threadIdx.x"))
    s[C].bind(parts, thread("blockIdx.y"))
    s[C].bind(share, thread("vthread"))
    run(s, [A, C], lambda a: a.sum(axis=1, dtype="int32"))


def test_a_result_that_other_stages_read():
    A, C, _ = row_sums("int32", rows=40)
    D = te.compute((40,), lambda i: C[39 - i] * 2 + C[i], name="D")
    s = create_schedule(D.op)
    along_the_row(s, C)
    s[D].bind(D.op.axis[0], thread("threadIdx.x"))
    module = run(s, [A, D], lambda a: a.sum(axis=1, dtype="int32")[::-1] * 2 + a.sum(axis=1, dtype="int32"))
    assert [line.kernel for line in module.report.transactions] == [] and module.get_source().count("__global__") == 3


def test_a_layout_of_the_result():
    A, C, _ = row_sums("int32", rows=40)
    D = te.compute((40,), lambda i: C[i] + 1, name="D")
    s = create_schedule(D.op)
    s[C].transform_layout(lambda i: [i % 8, i // 8])
    along_the_row(s, C)
    s[D].bind(D.op.axis[0], thread("threadIdx.x"))
    run(s, [A, D], lambda a: a.sum(axis=1, dtype="int32") + 1)


def test_initial_values_and_conditions():
    A = te.placeholder((5, 203), "int32", name="A")
    B = te.placeholder((5,), "int32", name="B")
    k = te.reduce_axis((0, 203), name="k")
    C = te.compute((5,), lambda i: te.sum(A[i, k], axis=k, where=A[i, k] > 0, init=B[i]), name="C")
    s = create_schedule(C.op)
    along_the_row(s, C)
    run(s, [A, B, C], lambda a, b: np.where(a > 0, a, 0).sum(axis=1, dtype="int32") + b)
    s = create_schedule(C.op)
    s[C].bind(s[C].split(k, factor=1)[0], thread("blockIdx.x"))
    run(s, [A, B, C], lambda a, b: np.where(a > 0, a, 0).sum(axis=1, dtype="int32") + b)


def test_what_the_initial_values_read_must_be_there_before():
    A, B = te.placeholder((5, 203), "int32", name="A"), te.placeholder((5,), "int32", name="B")
    T = te.compute((5,), lambda i: B[i] * 2, name="T")
    k = te.reduce_axis((0, 203), name="k")
    C = te.compute((5,), lambda i: te.sum(A[i, k], axis=k, init=T[i]), name="C")
    s = create_schedule(C.op)
    along_the_row(s, C)
    s[T].compute_inline()
    run(s, [A, B, C], lambda a, b: a.sum(axis=1, dtype="int32") + 2 * b)
    s = create_schedule(C.op)
    along_the_row(s, C)
    s[T].compute_at(s[C], C.op.axis[0])
    with pytest.raises(ScheduleError, match=r"stage C.*init=.*T.*compute_root"):
        lower_schedule(s, [A, B, C])


def test_symbolic_sizes():
    n, m = te.size_var("n"), te.size_var("m")
    A = te.placeholder((n, m), "int32", name="A")
    k = te.reduce_axis((0, m), name="k")
    C = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="C")
    s = create_schedule(C.op)
    along_the_row(s, C)
    module = tw.build(s, [A, C], EMULATOR, check="race")
    for shape in ((3, 100), (1, 64), (2, 65), (4, 1), (3, 0), (0, 3)):
        a = np.arange(shape[0] * shape[1], dtype="int32").reshape(shape)
        c = np.full(shape[0], 77, "int32")
        module(a, c)
        np.testing.assert_array_equal(c, a.sum(axis=1))
        assert module.report.races == module.report.uninitialised == []


def test_vectors_of_results():
    """An atomic update is of one element; what the sum starts from is still stored by vectors."""
    A = te.placeholder((50, 64), name="A")
    k = te.reduce_axis((0, 50), name="k")
    C = te.compute((64,), lambda j: te.sum(A[k, j], axis=k), name="C")
    s = create_schedule(C.op)
    (j,) = C.op.axis
    t, v = s[C].split(j, factor=4)
    ko, ki = s[C].split(k, factor=8)
    s[C].reorder(t, ko, ki, v)
    s[C].bind(t, thread("threadIdx.x"))
    s[C].bind(ko, thread("blockIdx.x"))
    s[C].vectorize(v)
    module = run(s, [A, C], lambda a: a.sum(axis=0))
    assert "*(float4 *)&C[" in module.get_source() and module.get_source().count("atomicAdd") >= 1


@pytest.mark.parametrize("tag", ["blockIdx.x", "threadIdx.y"])
def test_a_stage_computed_where_the_sum_is_shared_out(tag):
    """Stages attached to the loops that are reduced: each block, or thread, computes what it needs."""
    A = te.placeholder((6, 40), "int32", name="A")
    T = te.compute((6, 40), lambda i, j: A[i, j] * 3, name="T")
    k = te.reduce_axis((0, 40), name="k")
    C = te.compute((6,), lambda i: te.sum(T[i, k], axis=k), name="C")
    for at in range(4):
        s = create_schedule(C.op)
        ko, ki = s[C].split(k, factor=16)
        kt, kk = s[C].split(ki, factor=4)
        s[C].bind(C.op.axis[0], thread("blockIdx.y"))
        s[C].bind(ko, thread(tag))
        s[C].bind(kt, thread("threadIdx.x"))
        s[T].compute_at(s[C], (C.op.axis[0], ko, kt, kk)[at])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(s, [A, C], lambda a: a.sum(axis=1, dtype="int32") * 3)


def test_the_emulator_sees_a_plain_addition():
    """What the checks of these tests would find if an update were not atomic."""
    A, C, s = row_sums("int32")
    along_the_row(s, C)
    source = tw.build(s, [A, C], EMULATOR, name="k").get_source()
    wrong, count = re.subn(r"atomicAdd\(&(C\[\w+\]), (.*?)\);", r"\1 = \1 + \2;", source)
    assert count == 2
    a, c = np.ones(A.shape, "int32"), np.zeros(C.shape, "int32")
    for text, found in ((source, []), (wrong, ["C"])):
        report = tw.emulate_cuda(text, "k_C", grid=(4, 5), block=16, args=[a, c], check="race")
        assert sorted({race.buffer for race in report.races}) == found


def test_replay():
    s, args, part, inner, _ = factored()
    s[part].compute_at(s[args[2]], inner)
    again = replay_trace(create_schedule(args[2].op), s.trace)
    assert str(lower_schedule(again, args)) == str(lower_schedule(s, args))


def test_a_compiler_takes_all_atomic_updates():
    try:
        find_cuda_compiler()
    except TargetError as error:
        pytest.skip(str(error))
    for arch in ("sm_75", "sm_90"):
        target = tw.Target("cuda", arch=arch)
        for name, kinds in ATOMIC_DTYPES.items():
            for kind in kinds:
                A, C, s = row_sums(kind, reducer=te.sum if name == "add" else getattr(te, name))
                along_the_row(s, C)
                source = tw.build(s, [A, C], tw.Target("cuda", arch=arch, device="emulator"), name="k").get_source()
                made = compile_cuda(source, target)
                assert re.search(r"\b(red|atom)\.", made.ptx_path.read_text()), (arch, name, kind)


@pytest.mark.parametrize(
    ("kind", "reducer", "words"),
    [
        ("float32", te.prod, r"prod of float32.*no atomic update.*rfactor"),
        ("float32", te.max, r"max of float32.*no atomic update.*sum of int32.*rfactor"),
        ("float64", te.min, r"min of float64.*no atomic update"),
        ("float16", te.max, r"max of float16.*no atomic update"),
        ("int32", te.comm_reducer(lambda x, y: x + y, lambda t: 0, name="mine"), r"mine of int32.*no atomic update"),
    ],
)
def test_reductions_without_atomic_updates(kind, reducer, words):
    _, C, s = row_sums(kind, reducer=reducer)
    with pytest.raises(ScheduleError, match=r"bind on stage C: axis k.*blocks cannot combine.*" + words):
        s[C].bind(C.op.reduce_axis[0], thread("blockIdx.x"))


def test_pairs_have_no_atomic_update():
    A = te.placeholder((5, 20), name="A")
    k = te.reduce_axis((0, 20), name="k")
    C, _ = te.compute((5,), lambda i: te.argmax((k, A[i, k]), axis=k), name="C")
    s = create_schedule(C.op)
    with pytest.raises(ScheduleError, match=r"argmax of int32 and float32.*no atomic update.*rfactor"):
        s[C].bind(k, thread("blockIdx.x"))


def test_results_that_blocks_do_not_share():
    A, C, s = row_sums("int32")
    sums = s.cache_write(C, "local")
    outer, _ = s[sums].split(s[sums].op.reduce_axis[0], factor=64)
    s[C].bind(C.op.axis[0], thread("threadIdx.x"))
    s[sums].bind(outer, thread("blockIdx.x"))
    with pytest.raises(ScheduleError, match=r"stage C.local: its axis k.outer is reduced by blocks \(blockIdx.x\).*scope local.*rfactor"):
        lower_schedule(s, [A, C])
    s[sums].compute_at(s[C], C.op.axis[0])
    with pytest.raises(ScheduleError, match=r"stage C.local.*computed inside stage C.*rfactor"):
        lower_schedule(s, [A, C])


def test_no_intrinsic_is_atomic():
    A, B = te.placeholder((32, 64), "int8", name="A"), te.placeholder((32, 64), "int8", name="B")
    r = te.reduce_axis((0, 64), name="k")
    C = te.compute((32, 32), lambda i, j: te.sum(A[i, r].astype("int32") * B[j, r].astype("int32"), axis=r), name="C")
    s = create_schedule(C.op)
    ko, ki = s[C].split(r, factor=4)
    s[C].bind(ko, thread("blockIdx.x"))
    s[C].tensorize(ki, "dp4a_s8")
    with pytest.raises(ScheduleError, match=r"tensorize on stage C.*k.outer.*reduced by blocks.*no intrinsic.*rfactor"):
        lower_schedule(s, [A, B, C])


def test_shares_are_not_added_by_threads_around():
    A, C, s = row_sums("int32")
    s[C].bind(C.op.reduce_axis[0], thread("blockIdx.x"))
    s[C].env_threads([te.thread_axis((0, 8), "threadIdx.x")])
    with pytest.raises(ScheduleError, match=r"stage C.*reduced by blocks.*env_threads"):
        lower_schedule(s, [A, C])


def test_a_step_of_a_scan_does_not_end_with_its_blocks():
    X = te.placeholder((4, 6, 8), "int32", name="X")
    state = te.placeholder((4, 6), "int32", name="S")
    first = te.compute((1, 6), lambda _, i: X[0, i, 0], name="first")
    k = te.reduce_axis((0, 8), name="k")
    step = te.compute((4, 6), lambda t, i: te.sum(X[t, i, k] + state[t - 1, i], axis=k), name="step")
    out = te.scan(first, step, state, inputs=[X])
    s = create_schedule(out.op)
    s[step].bind(k, thread("blockIdx.x"))
    with pytest.raises(ScheduleError, match=r"stage step: its axis k is reduced by blocks.*scan"):
        lower_schedule(s, [X, out])


def test_not_for_a_cpu():
    A, C, s = row_sums()
    s[C].bind(C.op.reduce_axis[0], thread("blockIdx.x"))
    with pytest.raises(ScheduleError, match=r"stage C: axis k is bound to blockIdx.x"):
        tw.build(s, [A, C], "c")


def test_default_schedules_use_none():
    op = te.library.matmul(16, 16, 4096)
    assert "atomic" not in tw.build(default_schedule(op, EMULATOR), op.args, EMULATOR).get_source()
