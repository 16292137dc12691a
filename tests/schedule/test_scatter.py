"""s[T].scatter: histograms and sums over groups, one step for each term; on a GPU with atomic updates, in global memory and inside blocks."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import create_schedule, lower_schedule, replay_trace
from tilewright.tir.errors import ScheduleError
from tilewright.tir.interp import interpret
from tilewright.tir.passes import Verify, pipeline_for

EMULATOR = tw.Target("cuda", arch="sm_80", device="emulator", threads=2)
N, BINS = 1000, 37


def thread(tag):
    return te.thread_axis(tag)


def histogram(kind="int32", n=N, bins=BINS):
    X = te.placeholder((n,), kind, name="X")
    k = te.reduce_axis((0, n), name="k")
    H = te.compute((bins,), lambda b: te.sum(te.const(1, "int32"), axis=k, where=X[k] == b), name="H")
    return X, H, create_schedule(H.op)


def values(kind="int32", n=N, low=-3, high=BINS + 5):
    return np.random.default_rng(n).integers(0 if kind.startswith("u") else low, high, n).astype(kind)


def counts(x, bins=BINS):
    return np.array([(x == b).sum() for b in range(bins)], "int32")


def run(s, args, arrays, want, target=EMULATOR):
    """Interpreted as loops and after each pass, and on the target, it gives `want`; the source."""
    func = lower_schedule(s, args, "k")
    got = np.full_like(want, 77)
    interpret(func, [*arrays, got])
    np.testing.assert_array_equal(got, want)
    done = pipeline_for(target).run(func, target, [Verify(3)])
    if target is EMULATOR:
        for how in ("steps", "barriers"):
            got = np.full_like(want, 77)
            interpret(done, [*arrays, got], threads=how, seed=3)
            np.testing.assert_array_equal(got, want)
    module = tw.build(s, args, target, name="k", **({"check": "race"} if target is EMULATOR else {}))
    for _ in range(2):
        got = np.full_like(want, 77)
        module(*arrays, got)
        np.testing.assert_array_equal(got, want)
    assert target is not EMULATOR or module.report.faults == [], str(module.report)
    return module.get_source()


def test_one_step_for_each_term():
    X, H, s = histogram()
    before = str(lower_schedule(s, [X, H]))
    s[H].scatter(H.op.axis[0])
    text = str(lower_schedule(s, [X, H]))
    assert "for b in range(37):\n            H[b] = 0\n            for k in range(1000)" in before
    assert "for k in range(1000):\n            if 0 <= X[k] and X[k] < 37:\n                b_1 = X[k]\n                H[b_1] = H[b_1] + 1" in text
    run(s, [X, H], [values()], counts(values()), tw.Target("c"))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_dtypes_of_places(kind):
    """None of which wraps into the range."""
    X, H, s = histogram(kind)
    s[H].scatter(H.op.axis[0])
    limits = np.iinfo(kind)
    x = values(kind)
    x[:6] = [limits.min, limits.max, 0, BINS - 1, BINS, limits.max - 5]
    if kind == "int64":
        x[6] = (1 << 32) + 3
    run(s, [X, H], [x], counts(x), tw.Target("c"))


def test_threads_of_blocks():
    X, H, s = histogram()
    s[H].scatter(H.op.axis[0])
    blocks, threads = s[H].split(H.op.reduce_axis[0], factor=64)
    s[H].bind(blocks, thread("blockIdx.x"))
    s[H].bind(threads, thread("threadIdx.x"))
    source = run(s, [X, H], [values()], counts(values()))
    assert "atomicAdd(&H[b], 1);" in source and "__shfl" not in source and "k_H_init" in source


def test_a_histogram_of_each_block():
    """In shared memory, then added to the whole one."""
    X, H, s = histogram()
    share, _ = s[H].split(H.op.reduce_axis[0], nparts=4)
    part = s.rfactor(H, share)
    s[part].scatter(s[part].op.axis[1])
    (share,), (b,) = s[H].op.reduce_axis, H.op.axis
    s[H].reorder(share, b)
    s[H].bind(share, thread("blockIdx.x"))
    s[H].bind(s[H].split(b, factor=32)[1], thread("threadIdx.x"))
    s[part].compute_at(s[H], share)
    s[part].set_scope("shared")
    s[part].bind(s[part].split(s[part].op.reduce_axis[0], factor=32)[1], thread("threadIdx.x"))
    source = run(s, [X, H], [values()], counts(values()))
    assert source.count("__syncwarp();") == 2 and "atomicAdd(&H_rf[" in source and "atomicAdd(&H[" in source
    s[part].set_scope("local")
    with pytest.raises(ScheduleError, match=r"stage H.rf: its axis k.inner.inner is bound to threadIdx.x.*scope local.*set_scope\('shared'\)"):
        lower_schedule(s, [X, H])


def test_sums_over_groups():
    """Rows of a matrix, each added to the row that it names: what the gradient of a gather is."""
    rows, width, groups = 50, 24, 9
    A, I = te.placeholder((rows, width), name="A"), te.placeholder((rows,), "int64", name="I")
    k = te.reduce_axis((0, rows), name="k")
    G = te.compute((groups, width), lambda g, j: te.sum(A[k, j], axis=k, where=g == I[k], init=1.0), name="G")
    a, i = np.random.default_rng(1).integers(-9, 9, (rows, width)).astype("float32"), np.random.default_rng(2).integers(-2, groups + 2, rows)
    want = np.stack([a[i == g].sum(axis=0) + 1 for g in range(groups)]).astype("float32")
    for on_gpu in (False, True):
        s = create_schedule(G.op)
        g, j = G.op.axis
        s[G].scatter(g)
        s[G].reorder(k, j, g)
        if on_gpu:
            s[G].bind(k, thread("blockIdx.x"))
            s[G].bind(j, thread("threadIdx.x"))
        source = run(s, [A, I, G], [a, i], want, EMULATOR if on_gpu else tw.Target("c"))
        assert ("atomicAdd" in source) == on_gpu


def test_threads_with_rows_of_their_own_need_no_atomic_update():
    X = te.placeholder((40, 30), "int32", name="X")
    k = te.reduce_axis((0, 30), name="k")
    H = te.compute((40, 8), lambda i, b: te.sum(te.const(1, "int32"), axis=k, where=X[i, k] == b), name="H")
    s = create_schedule(H.op)
    i, b = H.op.axis
    s[H].scatter(b)
    s[H].bind(i, thread("threadIdx.x"))
    x = np.random.default_rng(0).integers(-1, 9, X.shape).astype("int32")
    want = np.stack([(x == v).sum(axis=1) for v in range(8)], axis=1).astype("int32")
    assert "atomic" not in run(s, [X, H], [x], want)


def test_two_axes_and_more_conditions():
    X, Y = te.placeholder((200,), "int32", name="X"), te.placeholder((200,), "uint8", name="Y")
    k = te.reduce_axis((0, 200), name="k")
    J = te.compute((7, 5), lambda a, b: te.max(X[k] * 3 + Y[k], axis=k, where=te.all(X[k] == a, k % 3 != 1, Y[k] == b), init=-1), name="J")
    x, y = (np.random.default_rng(n).integers(0, 9, 200) for n in (1, 2))
    want = np.full((7, 5), -1, "int32")
    for n in range(200):
        if n % 3 != 1 and x[n] < 7 and y[n] < 5:
            want[x[n], y[n]] = max(want[x[n], y[n]], x[n] * 3 + y[n])
    for tag in (None, "blockIdx.x", "threadIdx.x"):
        s = create_schedule(J.op)
        s[J].scatter(J.op.axis[0])
        s[J].scatter(J.op.axis[1])
        if tag is not None:
            s[J].bind(k, thread(tag))
        run(s, [X, Y, J], [x.astype("int32"), y.astype("uint8")], want, tw.Target("c") if tag is None else EMULATOR)


def test_terms_of_a_product_on_a_cpu():
    """Any reducer goes where no threads meet."""
    X = te.placeholder((20,), "int32", name="X")
    k = te.reduce_axis((0, 20), name="k")
    P = te.compute((4,), lambda b: te.prod(X[k].astype("float64"), axis=k, where=X[k] % 4 == b), name="P")
    s = create_schedule(P.op)
    s[P].scatter(P.op.axis[0])
    x = np.random.default_rng(5).integers(1, 9, 20).astype("int32")
    run(s, [X, P], [x], np.array([x[x % 4 == b].prod() for b in range(4)], "float64"), tw.Target("c"))
    with pytest.raises(ScheduleError, match=r"bind on stage P: axis k is reduced, but threads cannot combine.*prod of float64.*do not scatter"):
        s[P].bind(k, thread("threadIdx.x"))


def test_symbolic_sizes():
    n, m = te.size_var("n"), te.size_var("m")
    X = te.placeholder((n,), "int64", name="X")
    k = te.reduce_axis((0, n), name="k")
    H = te.compute((m,), lambda b: te.sum(te.const(1, "int32"), axis=k, where=b == X[k]), name="H")
    for target in (tw.Target("c"), EMULATOR):
        s = create_schedule(H.op)
        s[H].scatter(H.op.axis[0])
        if target is EMULATOR:
            blocks, threads = s[H].split(k, factor=32)
            s[H].bind(blocks, thread("blockIdx.x"))
            s[H].bind(threads, thread("threadIdx.x"))
        module = tw.build(s, [X, H], target)
        for size, bins in ((100, 7), (0, 5), (33, 0), (1, 100)):
            x, h = values("int64", size, -2, 9), np.full(bins, 77, "int32")
            module(x, h)
            np.testing.assert_array_equal(h, counts(x, bins))


def test_the_best_of_each_group():
    """Pairs, too, go where no threads meet."""
    A, G = te.placeholder((50,), name="A"), te.placeholder((50,), "int32", name="G")
    k = te.reduce_axis((0, 50), name="k")
    best, _ = te.compute((6,), lambda g: te.argmax((k, A[k]), axis=k, where=G[k] == g, init=(-1, 0.0)), name="best")
    s = create_schedule(best.op)
    s[best].scatter(best.op.axis[0])
    a, g = np.random.default_rng(0).random(50).astype("float32"), values("int32", 50, -1, 8)
    want = np.array([max((i for i in range(50) if g[i] == group), key=lambda i: a[i], default=-1) for group in range(6)], "int32")
    run(s, [A, G, best], [a, g], want, tw.Target("c"))


def test_a_part_of_the_result():
    """Computed inside its reader: places outside of what that needs are left out."""
    X, H, _ = histogram()
    D = te.compute((BINS - 5,), lambda i: H[i + 5] * 2, name="D")
    s = create_schedule(D.op)
    outer, _ = s[D].split(D.op.axis[0], factor=8)
    s[H].compute_at(s[D], outer)
    s[H].scatter(H.op.axis[0])
    run(s, [X, D], [values()], counts(values())[5:] * 2, tw.Target("c"))


def test_replay():
    X, H, s = histogram()
    s[H].scatter(H.op.axis[0])
    again = replay_trace(create_schedule(H.op), s.trace)
    assert "s[H].scatter(" in s.as_python() and str(lower_schedule(again, [X, H])) == str(lower_schedule(s, [X, H]))


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (lambda X, k, b: None, "there is no condition"),
        (lambda X, k, b: X[k] < b, r"found where=X\[.*\] < b"),
        (lambda X, k, b: te.any(X[k] == b, k == 0), "or"),
        (lambda X, k, b: X[b] == b, "found where="),
        (lambda X, k, b: X[k].astype("float32") == b.astype("float32"), "found where="),
        (lambda X, k, b: X[k] == b * 2, "found where="),
    ],
)
def test_conditions_that_name_no_place(where, words):
    X = te.placeholder((N,), "int32", name="X")
    k = te.reduce_axis((0, N), name="k")
    H = te.compute((BINS,), lambda b: te.sum(X[k], axis=k, where=where(X, k, b)), name="H")
    s = create_schedule(H.op)
    with pytest.raises(ScheduleError, match=rf"scatter on stage H: expected a reduction that says which b it is for.*{words}"):
        s[H].scatter(H.op.axis[0])


@pytest.mark.parametrize(("bins", "legal"), [(256, True), (257, False)])
def test_places_that_a_conversion_makes_one(bins, legal):
    """Of 257 places, 0 and 256 are the same byte."""
    X = te.placeholder((N,), "uint8", name="X")
    k = te.reduce_axis((0, N), name="k")
    H = te.compute((bins,), lambda b: te.sum(te.const(1, "int32"), axis=k, where=b.astype("uint8") == X[k]), name="H")
    s = create_schedule(H.op)
    if not legal:
        with pytest.raises(ScheduleError, match=r"found where=uint8\(b\) =="):
            s[H].scatter(H.op.axis[0])
        return
    s[H].scatter(H.op.axis[0])
    x, h = np.random.default_rng(1).integers(0, 256, N).astype("uint8"), np.empty(bins, "int32")
    tw.build(s, [X, H])(x, h)
    np.testing.assert_array_equal(h, counts(x, bins))


def test_refusals():
    X, H, s = histogram()
    (b,), (k,) = H.op.axis, H.op.reduce_axis
    with pytest.raises(ScheduleError, match=r"scatter on stage H: axis k is not one of its data-parallel axes.*\(b\)"):
        s[H].scatter(k)
    outer, inner = s[H].split(b, factor=4)
    with pytest.raises(ScheduleError, match=r"scatter on stage H: axis b was already split"):
        s[H].scatter(b)
    with pytest.raises(ScheduleError, match=r"axis b.outer is not one of its data-parallel axes as declared"):
        s[H].scatter(outer)
    s = create_schedule(H.op)
    s[H].scatter(b)
    for act in (lambda: s[H].pragma(b, "unroll", 4), lambda: s[H].prefetch(X, b)):
        with pytest.raises(ScheduleError, match="axis b is scattered, it has no loop"):
            act()
    for act in (
        lambda: s[H].scatter(b),
        lambda: s[H].split(b, factor=4),
        lambda: s[H].bind(b, thread("threadIdx.x")),
        lambda: s[H].vectorize(b),
        lambda: s.rfactor(H, k),
    ):
        with pytest.raises(ScheduleError, match="b is already marked scattered"):
            act()
    with pytest.raises(ScheduleError, match=r"reorder on stage H: axis b is scattered.*leave it innermost"):
        s[H].reorder(b, k)


def test_nothing_is_computed_in_a_loop_that_goes():
    X, T = te.placeholder((N,), "int32", name="X"), None
    T = te.compute((N,), lambda i: X[i] * 3, name="T")
    k = te.reduce_axis((0, N), name="k")
    H = te.compute((BINS,), lambda b: te.sum(T[k], axis=k, where=X[k] == b), name="H")
    s = create_schedule(H.op)
    s[H].scatter(H.op.axis[0])
    s[T].compute_at(s[H], k)
    x = values()
    run(s, [X, H], [x], np.array([3 * x[x == b].sum() for b in range(BINS)], "int32"), tw.Target("c"))
    s[T].compute_at(s[H], H.op.axis[0])
    with pytest.raises(ScheduleError, match=r"scatter on stage H: stage T is computed at axis b, which has no loop"):
        lower_schedule(s, [X, H])
