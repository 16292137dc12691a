"""The pipeline for CUDA: limits named before anything is compiled, shared memory placed, loops over registers marked, and random schedules interpreted
after every pass."""

from __future__ import annotations

import random
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests are imported by path, without packages
sys.path.insert(0, str(Path(__file__).parents[1] / "te"))

from fuzzing.gpu import random_gpu_schedule
from fuzzing.programs import random_program

import tilewright as tw
from tilewright import te
from tilewright.schedule import lower_schedule
from tilewright.tir.errors import ScheduleError, ScheduleWarning, TargetError
from tilewright.tir.expr import Buffer, as_expr, const
from tilewright.tir.passes import StopAfter, Verify, pipeline_for
from tilewright.tir.passes.barriers import Barriers
from tilewright.tir.passes.flatten import Flatten
from tilewright.tir.passes.hoist import Hoist
from tilewright.tir.passes.limits import Limits
from tilewright.tir.passes.shared_memory import SharedMemory
from tilewright.tir.stmt import Store, Sync, seq

from .threads import get, kernel, loop

TARGET = tw.Target("cuda", arch="sm_80", device="emulator")
A, C = Buffer("A", (64,)), Buffer("C", (64,))


def one_kernel(body, threads=64, **options):
    extents = threads if isinstance(threads, dict) else {"x": threads}
    return kernel("k", [A, C], [C], lambda v: body(v["threadIdx.x"]), extents, **options)


def put(buffer, index, value):
    return Store(buffer, (as_expr(index),), value)


def copy(t):
    return put(C, t, get(A, t))


@pytest.mark.parametrize(
    ("threads", "blocks", "words"),
    [
        ({"x": 2048}, None, r"kernel k.*threadIdx.x is 2048.*1024"),
        ({"x": 4, "z": 65}, None, r"threadIdx.z is 65.*64"),
        ({"x": 64, "y": 32}, None, r"64 \(threadIdx.x\)|32 \(threadIdx.y\).*2048 threads.*1024"),
        ({"x": 4}, {"y": 65536}, r"blockIdx.y is 65536.*65535"),
        ({"x": 4}, {"x": 1 << 31}, r"blockIdx.x is 2147483648.*2147483647"),
    ],
)
def test_limits_of_a_launch(threads, blocks, words):
    with pytest.raises(TargetError, match=words):
        Limits().run(one_kernel(copy, threads, blocks=blocks), TARGET)


def test_limits_are_possible():
    assert Limits().run(func := one_kernel(copy, {"x": 32, "y": 32}, blocks={"x": (1 << 31) - 1, "y": 65535, "z": 65535}), TARGET) is func


def test_memory_of_a_thread():
    with pytest.warns(ScheduleWarning, match=r"kernel k: a thread takes 1024 bytes.*L: float32\[256\].*registers hold 1020"):
        Limits().run(one_kernel(copy, local=[Buffer("L", (256,), "float32", "local")]), TARGET)
    with pytest.raises(TargetError, match=r"L: float64\[65537\].*524288"):
        Limits().run(one_kernel(copy, local=[Buffer("L", (65537,), "float64", "local")]), TARGET)
    n = te.size_var("n")
    with pytest.raises(TargetError, match=r"L: float32\[n\].*not constant"):
        Limits().run(one_kernel(copy, local=[Buffer("L", (n,), "float32", "local")], sizes=[n]), TARGET)


def placed(func, target=TARGET):
    done = SharedMemory().run(Flatten().run(Barriers().run(func, target), target), target)
    return {name: int(at) for name, at in re.findall(r"allocate (\w+):.* at shared \+ (\d+)", str(done))}


def three_phases(t, S, T, U):
    """S is filled and read, then T, then U, which is read together with T."""
    return seq(
        *(put(S, t, get(A, t)), put(C, t, get(S, 63 - t))),
        *(put(T, t, get(A, t)), put(C, t, get(C, t) + get(T, 63 - t))),
        *(put(U, t, get(A, t)), put(C, t, get(U, 63 - t) + get(T, 63 - t))),
    )


def test_buffers_share_bytes_across_barriers():
    S, T, U = (Buffer(name, (64,), "float32", "shared") for name in "STU")
    offsets = placed(one_kernel(lambda t: three_phases(t, S, T, U), shared=[S, T, U]))
    assert offsets["T"] != offsets["U"] and offsets["S"] == offsets["U"]  # a barrier stands between S and U; between S and T there is none


def test_buffers_of_one_loop_do_not_share():
    S, T = (Buffer(name, (64,), "float32", "shared") for name in "ST")
    body = lambda t: loop("i", 3, lambda i: seq(put(S, t, get(A, t)), put(C, t, get(S, 63 - t)), put(T, t, get(A, t)), put(C, t, get(T, 63 - t))))  # noqa: E731
    assert sorted(placed(one_kernel(body, shared=[S, T])).values()) == [0, 256]


def test_too_much_shared_memory():
    S = Buffer("S", (64, 1 << 10), "float32", "shared")
    func = one_kernel(lambda t: seq(Store(S, (t, as_expr(0)), get(A, t)), put(C, t, get(S, 63 - t, 0))), shared=[S])
    with pytest.raises(TargetError, match=r"kernel k.*262144 bytes: S: float32\[65536\] in shared.*sm_80 can have 166912"):
        placed(func)
    with pytest.raises(TargetError, match=r"262144.*sm_75 can have 65536"):
        placed(func, tw.Target("cuda", arch="sm_75", device="emulator"))
    n = te.size_var("n")
    S = Buffer("S", (n,), "float32", "shared")
    func = one_kernel(lambda t: seq(put(S, t, get(A, t)), put(C, t, get(S, 63 - t))), shared=[S], sizes=[n])
    with pytest.raises(TargetError, match=r"shared buffer S: float32\[n\].*no constant size"):
        placed(func)


def test_nothing_is_read_ahead_of_a_barrier():
    """S[0] is the same in all iterations, but only after the barrier is it what another thread wrote."""
    S = Buffer("S", (64,), "float32", "shared")
    body = lambda t: seq(put(S, t, get(A, t)), loop("i", 3, lambda i: seq(Sync("block"), put(C, t, get(S, 0) * get(C, t)))))  # noqa: E731
    text = str(Hoist().run(one_kernel(body, shared=[S]), TARGET))
    assert text.index("sync block") < text.index("S[0]")


def test_loops_over_registers_are_marked():
    B = te.compute((8, 64), lambda i, j: te.const(1.0, "float32") * j, name="B")
    D = te.compute((8, 64), lambda i, j: B[7 - i, j] + 1.0, name="D")
    s = te.create_schedule(D.op)
    i, j = D.op.axis
    s[D].reorder(j, i)
    s[D].bind(j, te.thread_axis("threadIdx.x"))
    s[B].compute_at(s[D], j)
    text = str(pipeline_for("cuda").run(lower_schedule(s, [D], "k"), TARGET, [Verify(2), StopAfter("unroll")]))
    assert text.count("in unrolled(8)") == 2, text


def swizzled(layout):
    """A tile of 32 rows of 32, copied by vectors and read by columns, from memory of that layout."""
    A = te.placeholder((32, 32), name="A")
    B = te.compute((32, 32), lambda i, j: A[j, i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    S = s.cache_read(A, "shared", [B])
    tx, ty = te.thread_axis((0, 32), "threadIdx.x"), te.thread_axis((0, 8), "threadIdx.y")
    i, j = B.op.axis
    rows, row = s[B].split(i, factor=8)
    s[B].reorder(row, j, rows)
    s[B].bind(row, ty)
    s[B].bind(j, tx)
    s[S].compute_at(s[B], j)
    si, sj = s[S].op.axis
    f, v = s[S].split(s[S].fuse(si, sj), factor=4)
    f, t = s[S].split(f, factor=32)
    _, u = s[S].split(f, factor=8)
    s[S].bind(t, tx)
    s[S].bind(u, ty)
    s[S].vectorize(v)
    s[S].transform_layout(layout)
    return s, [A, B]


@pytest.mark.parametrize(("layout", "conflict"), [(lambda i, j: [i, j], 32), (lambda i, j: [i, (j // 4 ^ i % 8) * 4 + j % 4], 4)])
def test_swizzled_tiles_keep_their_vectors(layout, conflict):
    s, args = swizzled(layout)
    mod = tw.build(s, args, TARGET, check="memory")
    a, b = np.random.default_rng(8).standard_normal((32, 32)).astype("f"), np.zeros((32, 32), "f")
    mod(a, b)
    np.testing.assert_array_equal(b, a.T + 1)
    assert "*(float4 *)&A_shared" in mod.get_source() and mod.get_source().count("__syncthreads()") == 1
    assert mod.report.max_bank_conflict == conflict


def test_random_schedules_mean_the_same_after_every_pass():
    """Each is interpreted before, with loops in the place of threads, and after each pass in the way its facts allow."""
    done = 0
    for seed in range(500, 509):
        rng = random.Random(seed)
        program = random_program(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scheduled = random_gpu_schedule(rng, [*program.inputs, *program.outputs], program.outputs)
            if scheduled is None:
                continue
            verify = Verify(3, seed=seed)
            try:
                pipeline_for("cuda").run(scheduled.function, TARGET, [verify])
            except (ScheduleError, TargetError):
                continue
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
        done += verify.expected is not None
    assert done > 3


def test_an_empty_grid():
    """Nothing is launched, nothing fails."""
    E = te.placeholder((0, 8), name="E")
    F = te.compute((0, 8), lambda i, j: E[i, j] + const(1.0, "float32"), name="F")
    s = te.create_schedule(F.op)
    s[F].bind(F.op.axis[0], te.thread_axis("blockIdx.x"))
    s[F].bind(F.op.axis[1], te.thread_axis("threadIdx.x"))
    text = str(pipeline_for("cuda").run(lower_schedule(s, [E, F], "k"), TARGET, [Verify(3)]))
    assert text.endswith("pass")
