"""Loops bound to a GPU's indices become kernels: what the pass writes, what it refuses, and that the kernels compute what the loops did."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule
from tilewright.tir.interp import interpret
from tilewright.tir.kernel import kernels_of
from tilewright.tir.passes import pipeline_for
from tilewright.tir.passes.bind_threads import BindThreads
from tilewright.tir.passes.simplify import Simplify
from tilewright.tir.verify import check_threads_bound

EMULATOR = tw.Target("cuda", device="emulator", threads=1)


def bound(s, args):
    """The function after the pass, simplified."""
    func = Simplify().run(BindThreads().run(lower_schedule(s, args, "k"), EMULATOR), EMULATOR)
    assert check_threads_bound(func) == []
    return func


def body(func):
    return "\n".join(line[4:] for line in str(func).splitlines()[1:])


def thread(tag, extent=None):
    return te.thread_axis(tag) if extent is None else te.thread_axis((0, extent), tag)


def check(s, args, *, report=True):
    """The kernels, interpreted in lockstep after all passes, and emulated with the race check, compute what the loops compute."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-8, 8, t.shape).astype(str(t.dtype)) for t in args[:-1]]
    want = np.full(args[-1].shape, -77, str(args[-1].dtype))
    interpret(lower_schedule(s, args), [*arrays, want])
    got = np.full_like(want, -99)
    interpret(pipeline_for(EMULATOR).run(lower_schedule(s, args), EMULATOR), [*arrays, got], threads="steps")
    np.testing.assert_array_equal(got, want)
    module = tw.build(s, args, target=EMULATOR, check="race")
    got[...] = -99
    module(*arrays, got)
    np.testing.assert_array_equal(got, want)
    found = module.report
    assert not report or found.races == found.out_of_bounds == found.uninitialised == found.divergence == [], found


def reversed_in_blocks(n=64, width=8, threads_of_copy=8):
    """C[8 b + i] = A[8 b + 7 - i], through shared memory; the copy by other threads than the computation."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    whole = n % width == 0
    at = lambda i: i // width * width + (width - 1) - i % width  # noqa: E731
    C = te.compute((n,), lambda i: B[at(i) if whole else te.min(at(i), n - 1)], name="C")
    s = create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=width)
    s[C].bind(outer, thread("blockIdx.x"))
    s[C].bind(inner, thread("threadIdx.x"))
    s[B].compute_at(s[C], inner)
    s[B].set_scope("shared")
    _, t = s[B].split(B.op.axis[0], factor=threads_of_copy)
    s[B].bind(t, thread("threadIdx.x"))
    return s, [A, C]


def test_a_producer_in_shared_memory_is_common_work():
    s, args = reversed_in_blocks()
    assert (
        body(bound(s, args))
        == """\
produce C:
    for blockIdx.x in thread[blockIdx.x](8):
        allocate B: float32[8] in shared
        for threadIdx.x in thread[threadIdx.x](8):
            produce B:
                B[threadIdx.x] = A[blockIdx.x * 8 + threadIdx.x] * 2.0
            C[blockIdx.x * 8 + threadIdx.x] = B[7 - threadIdx.x]"""
    )
    check(s, args)


@pytest.mark.parametrize("threads_of_copy", [2, 5, 8])
def test_loops_of_different_extents_are_guarded(threads_of_copy):
    s, args = reversed_in_blocks(threads_of_copy=threads_of_copy)
    text = body(bound(s, args))
    assert ("if threadIdx.x < " in text) == (threads_of_copy < 8), text
    check(s, args)


def test_an_attached_stage_may_have_more_threads_than_its_reader():
    A = te.placeholder((40,), name="A")
    B = te.compute((40,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i * 10] + B[i * 10 + 9], name="C")
    s = create_schedule(C.op)
    s[C].bind(C.op.axis[0], thread("threadIdx.x"))
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].set_scope("shared")
    s[B].bind(B.op.axis[0], thread("threadIdx.x"))
    assert (
        body(bound(s, [A, C]))
        == """\
produce C:
    allocate B: float32[40] in shared
    for threadIdx.x in thread[threadIdx.x](40):
        produce B:
            B[threadIdx.x] = A[threadIdx.x] + 1.0
        if threadIdx.x < 4:
            C[threadIdx.x] = B[threadIdx.x * 10] + B[threadIdx.x * 10 + 9]"""
    )
    check(s, [A, C])


def test_what_no_index_tells_apart_is_stored_once():
    A = te.placeholder((8,), name="A")
    k = te.reduce_axis((0, 8), name="k")
    S = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="S")
    C = te.compute((8,), lambda i: A[i] * S[0], name="C")
    s = create_schedule(C.op)
    s[C].bind(C.op.axis[0], thread("threadIdx.x"))
    s[S].compute_at(s[C], C.op.axis[0])
    s[S].set_scope("shared")
    assert "if threadIdx.x == 0:" in body(bound(s, [A, C]))
    check(s, [A, C])


def test_conditions_of_threads_move_off_the_common_work():
    s, args = reversed_in_blocks(n=60)  # the last block has 4 elements
    lines = [line.strip() for line in body(bound(s, args)).splitlines()]
    assert "if blockIdx.x * 8 + threadIdx.x < 60:" in lines and lines.index("produce B:") < lines.index("if blockIdx.x * 8 + threadIdx.x < 60:"), lines
    check(s, args)


@pytest.mark.parametrize(("rows", "length", "threads"), [(3, 64, 32), (5, 100, 32), (2, 7, 8), (4, 33, 5), (1, 200, 128)])
def test_reductions_across_threads(rows, length, threads):
    A = te.placeholder((rows, length), "int32", name="A")
    k = te.reduce_axis((0, length), name="k")
    S = te.compute((rows,), lambda i: te.sum(A[i, k], axis=k, where=A[i, k] > -5, init=3), name="S")
    s = create_schedule(S.op)
    _, inner = s[S].split(k, factor=threads)
    s[S].bind(S.op.axis[0], thread("blockIdx.x"))
    s[S].bind(inner, thread("threadIdx.x"))
    assert "S.total[] = all_reduce[threadIdx.x](S.share[])" in body(bound(s, [A, S]))
    check(s, [A, S])


def test_a_reduction_across_threads_over_two_indices_with_rows_inside():
    A = te.placeholder((6, 40), "int32", name="A")
    k = te.reduce_axis((0, 40), name="k")
    S = te.compute((6,), lambda i: te.max(A[i, k], axis=k), name="S")
    s = create_schedule(S.op)
    block, row = s[S].split(S.op.axis[0], factor=4)
    outer, inner = s[S].split(k, factor=8)
    s[S].reorder(block, outer, inner, row)
    s[S].bind(block, thread("blockIdx.x"))
    s[S].bind(outer, thread("threadIdx.y"))
    s[S].bind(inner, thread("threadIdx.x"))
    assert "all_reduce[threadIdx.y, threadIdx.x]" in body(bound(s, [A, S]))
    check(s, [A, S])


def test_a_result_that_all_threads_know():
    A = te.placeholder((4, 24), "int32", name="A")
    k = te.reduce_axis((0, 24), name="k")
    S = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="S")
    C = te.compute((4, 24), lambda i, j: A[i, j] * S[i], name="C")
    s = create_schedule(C.op)
    i, j = C.op.axis
    s[C].bind(i, thread("blockIdx.x"))
    s[C].bind(j, thread("threadIdx.x"))
    s[S].compute_at(s[C], i)
    s[S].set_scope("local")
    s[S].bind(k, thread("threadIdx.x"))
    assert "shared" not in body(bound(s, [A, C]))
    check(s, [A, C])


def test_stages_at_root_are_kernels():
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((16,), lambda i: B[15 - i], name="C")
    s = create_schedule(C.op)
    for stage in (B, C):
        s[stage].bind(stage.op.axis[0], thread("threadIdx.x"))
    assert [kernel.name for kernel in kernels_of(bound(s, [A, C]))] == ["k_B", "k_C"]
    check(s, [A, C])


def refused(error, s, args, *words):
    with pytest.raises(error) as caught:
        tw.build(s, args, target=EMULATOR)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_refusals():
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((16,), lambda i: B[15 - i], name="C")
    refused(tw.TargetError, create_schedule(C.op), [A, C], "stage B", "outside any thread", "bind", "compute_inline")
    s = create_schedule(C.op)
    s[C].bind(C.op.axis[0], thread("threadIdx.x"))
    s[B].set_scope("shared")
    refused(tw.TargetError, s, [A, C], "B has scope shared", "compute_at")
    s = create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=4)
    s[C].bind(inner, thread("threadIdx.x"))
    s[B].compute_at(s[C], outer)
    s[B].set_scope("local")
    s[B].bind(B.op.axis[0], thread("threadIdx.x"))
    refused(tw.ScheduleError, s, [A, C], "stage B", "local", "different threads", "shared")
    s = create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=4)
    s[C].bind(outer, thread("blockIdx.x"))
    s[B].compute_at(s[C], outer)
    s[B].set_scope("global")
    refused(tw.ScheduleError, s, [A, C], "stage B", "global", "blocks cannot wait")


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_memory_of_a_block_is_not_computed_by_several(scope):
    A = te.placeholder((64,), "int32", name="A")
    B = te.compute((64,), lambda i: A[i] * 2, name="B")
    C = te.compute((64,), lambda i: B[63 - i], name="C")
    s = create_schedule(C.op)
    block, inner = s[C].split(C.op.axis[0], factor=8)
    s[C].bind(block, thread("blockIdx.x"))
    s[C].bind(inner, thread("threadIdx.x"))
    s[B].set_scope(scope)
    s[B].compute_at(s[C], block)
    s[B].bind(B.op.axis[0], thread("blockIdx.y"))
    refused(tw.ScheduleError, s, [A, C], f"stage B has scope {scope}", "different blocks", "blockIdx.y", "threadIdx", "global memory")


def test_fragments_of_a_warp_are_not_computed_by_several():
    A, B = te.placeholder((64, 16), "float16", name="A"), te.placeholder((16, 16), "float16", name="B")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((64, 16), lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), name="C")
    s = create_schedule(C.op)
    sums = s.cache_write(C, "wmma.accumulator")
    tile, row = s[C].split(C.op.axis[0], factor=16)
    one, column = s[C].split(C.op.axis[1], factor=16)
    s[C].reorder(one, tile, row, column)
    s[C].bind(one, thread("blockIdx.x"))
    s[C].bind(tile, thread("threadIdx.y"))
    s[C].tensorize(row, "mma_f32_store")
    i, j = s[sums].op.axis
    tile, row = s[sums].split(i, factor=16)
    s[sums].reorder(tile, row, j, s[sums].op.reduce_axis[0])
    s[sums].tensorize(row, "mma_f16")
    for operand, role in ((A, "a"), (B, "b")):
        panel = s.cache_read(operand, "shared", [sums])
        fragment = s.cache_read(panel, f"wmma.matrix_{role}", [sums])
        s[panel].compute_at(s[C], one)
        s[panel].storage_align(s[panel].op.axis[0], 16, 8)
        _, lane = s[panel].split(s[panel].fuse(*s[panel].op.axis), factor=32)
        s[panel].bind(lane, thread("threadIdx.x"))
        s[fragment].compute_at(s[sums], tile)
        s[fragment].tensorize(s[fragment].op.axis[0], f"mma_f16_load_{role}")
    s[sums].compute_at(s[C], s[C].leaf_iter_vars[1])  # the loop over warps: each has its own
    tw.build(s, [A, B, C], EMULATOR)
    s[sums].compute_at(s[C], one)
    s[sums].bind(tile, thread("threadIdx.y"))
    refused(tw.ScheduleError, s, [A, B, C], "stage C.wmma.accumulator", "registers of one warp", "different warps", "threadIdx.y")


@pytest.mark.parametrize("scope", ["shared", "shared.dyn", "warp", "local", "wmma.accumulator"])
def test_memory_of_a_kernel_outside_of_all_kernels_is_refused_with_its_own_scope(scope):
    A = te.placeholder((4, 32), name="A")
    B = te.compute((4, 32), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((4, 32), lambda i, j: B[i, 31 - j], name="C")
    s = create_schedule(C.op)
    s[B].set_scope(scope)
    for t in (B, C):
        s[t].bind(t.op.axis[0], thread("blockIdx.x"))
        s[t].bind(t.op.axis[1], thread("threadIdx.x"))
    with pytest.raises(tw.TargetError, match=rf"B has scope {scope}, memory inside a kernel, but is computed at root"):
        tw.build(s, [A, C], target=EMULATOR)


def test_what_few_threads_have_in_registers_is_not_read_by_more():
    """A scan whose grid has fewer threads than a loop of its step, which reads a sum that each thread has."""
    X, S = te.placeholder((4, 6), name="X"), te.placeholder((4, 6), name="S")
    first = te.compute((1, 6), lambda _, i: X[0, i], name="first")
    k = te.reduce_axis((0, 6), "k")
    total = te.compute((4,), lambda t: te.sum(S[t - 1, k], axis=k), name="total")
    step = te.compute((4, 6), lambda t, i: S[t - 1, i] + total[t] + X[t, i], name="step")
    Y = te.scan(first, step, S, inputs=[X])
    for few in (1, 2):
        s = create_schedule(Y.op)
        s[first].bind(first.op.axis[1], thread("threadIdx.x"))
        s[Y].env_threads([te.thread_axis(few, "threadIdx.x")])
        _, inner = s[step].split(step.op.axis[1], factor=2)
        s[step].bind(inner, thread("threadIdx.x"))
        if few == 1:
            refused(tw.ScheduleError, s, [X, Y], "total", "scope local", "threadIdx.x < 1", "runs 2 times", "shared")
        else:
            check(s, [X, Y])


def test_a_reduction_of_no_terms():
    A = te.placeholder((4, 0), name="A")
    k = te.reduce_axis((0, 0), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = create_schedule(B.op)
    s[B].bind(B.op.axis[0], thread("blockIdx.x"))
    s[B].bind(k, thread("threadIdx.x"))
    check(s, [A, B])


def test_blocks_that_need_one_another_are_refused():
    X, S = te.placeholder((9, 20), name="X"), te.placeholder((9, 20), name="S")
    first = te.compute((1, 20), lambda t, i: X[0, i], name="first")
    for other, illegal in ((lambda i: 19 - i, True), (lambda i: i, False)):
        update = te.compute((9, 20), lambda t, i, other=other: S[t - 1, i] + S[t - 1, other(i)] * X[t, i], name="update")
        Y = te.scan(first, update, S, name="Y")
        s = create_schedule(Y.op)
        for stage, axis in ((first, first.op.axis[1]), (update, update.op.axis[1])):
            s[stage].bind(axis, thread("blockIdx.x"))
        if illegal:
            refused(tw.ScheduleError, s, [X, Y], "kernel", "another block writes", "Y[t, 19 - blockIdx.x]", "compute_root")
        else:
            check(s, [X, Y])


def test_blocks_that_may_need_one_another_are_refused():
    X, S, where = te.placeholder((9, 20), name="X"), te.placeholder((9, 20), name="S"), te.placeholder((20,), "int32", name="where")
    first = te.compute((1, 20), lambda t, i: X[0, i], name="first")
    update = te.compute((9, 20), lambda t, i: S[t - 1, i] + S[t - 1, te.max(0, te.min(where[i], 19))], name="update")
    Y = te.scan(first, update, S, name="Y")
    for kind, illegal in (("blockIdx.x", True), ("threadIdx.x", False)):
        s = create_schedule(Y.op)
        for stage, axis in ((first, first.op.axis[1]), (update, update.op.axis[1])):
            s[stage].bind(axis, thread(kind))
        if illegal:
            refused(tw.ScheduleError, s, [X, where, Y], "kernel", "another block may write", "where[blockIdx.x]", "threads of one block")
        else:
            check(s, [X, where, Y])


def test_conditions_of_sizes_around_all_stages_are_asked_by_each_kernel():
    """What must hold of n so that nothing outside of A is read stands around B and C together in the loops; each is a kernel all the same."""
    n = te.var("n")
    A = te.placeholder((n,), "int32", name="A")
    B = te.compute((n // 3 + 1,), lambda i: A[te.max(te.min(3 * i, n - 1), 0)], name="B")
    C = te.compute((n // 3 + 1,), lambda i: B[n // 3 - i] * 2, name="C")
    s = create_schedule(C.op)
    for t in (B, C):
        block, inner = s[t].split(t.op.axis[0], factor=8)
        s[t].bind(block, thread("blockIdx.x"))
        s[t].bind(inner, thread("threadIdx.x"))
    assert [kernel.name for kernel in kernels_of(bound(s, [A, C]))] == ["k_B", "k_C"]
    module = tw.build(s, [A, C], EMULATOR, check="race")
    for size in (1, 23, 24):
        a, c = np.arange(size, dtype="int32"), np.empty(size // 3 + 1, "int32")
        module(a, c)
        np.testing.assert_array_equal(c, 2 * a[np.minimum(3 * np.arange(size // 3 + 1), size - 1)][::-1])
        assert module.report.faults == []
    with pytest.raises(tw.ArgumentError, match="with n = 0"):
        module(np.empty(0, "int32"), np.empty(1, "int32"))


def test_a_loop_of_one_block_inside_other_blocks_fills_memory_of_each():
    """The step of a scan that every block does for itself: bound to an index of one iteration, it was done by the first block only (found by chance)."""
    X, S = te.placeholder((2, 5), "int32", name="X"), te.placeholder((2, 5), "int32", name="S")
    first = te.compute((1, 5), lambda t, i: X[0, i], name="first")
    step = te.compute((2, 5), lambda t, i: S[t - 1, i] * 2 + X[t, i], name="step")
    Y = te.scan(first, step, S, inputs=[X], name="Y")
    Z = te.compute((2, 5), lambda t, i: Y[t, i] + 1, name="Z")
    s = create_schedule(Z.op)
    s[first].bind(first.op.axis[1], thread("blockIdx.x"))
    s[step].bind(step.op.axis[1], thread("blockIdx.x"))
    s[Y].compute_at(s[Z], Z.op.axis[1])
    s[Z].bind(Z.op.axis[0], thread("blockIdx.x"))
    check(s, [X, Z])


def test_parallel_loops_of_a_kernel_run_in_order():
    """What a thread holds while such a loop runs stays in its registers (it was an InternalError)."""
    A = te.placeholder((4, 33), "int32", name="A")
    B = te.compute((4, 33), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((4, 33), lambda i, j: B[i, j] + 1, name="C")
    s = create_schedule(C.op)
    i, j = C.op.axis
    s[C].bind(i, thread("blockIdx.x"))
    s[C].env_threads([thread("threadIdx.x", 1)])
    s[C].parallel(j)
    s[B].compute_at(s[C], i)
    assert "parallel" not in str(bound(s, [A, C]))
    check(s, [A, C])
