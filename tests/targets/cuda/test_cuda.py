"""The CUDA generator: the text of kernels, their launches, and that a CUDA compiler takes all of it."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.targets.cuda_toolchain import compile_cuda
from tilewright.tir import expr as E
from tilewright.tir.dtype import SCALAR_NAMES, dtype
from tilewright.tir.errors import InternalError, TargetError
from tilewright.tir.expr import Buffer, Var, broadcast, call, cast, const, load
from tilewright.tir.stmt import Allocate, AllReduce, CallExtern, Combination, For, Func, If, Place, Produce, Sync, seq, store
from tilewright.tir.target import Target

from ..funcs import at, loop
from ..test_c import operations, storage_only
from .device_funcs import CUDA, generated, kernel, local, with_reductions

N = 96
A, B, C = (Buffer(name, (4096,)) for name in "ABC")


def kernel_lines(func: Func, target: Target = CUDA) -> list[str]:
    """The lines of the one kernel of a function."""
    (body,) = re.findall(r"^\{\n(.*?)^\}", generated(func, target).source, re.S | re.M)
    return [line.strip() for line in body.splitlines()]


def one_kernel(body, extents=None, shared=None, outputs=(B,), inputs=(A,), sizes=()) -> Func:
    made = kernel("B", extents or {"bx": 16, "tx": 64}, body, shared)
    return Func("kernel", (*inputs, *outputs), frozenset(outputs), made, tuple(sizes))


def test_text_of_a_kernel(golden):
    """Shared memory, a barrier, a register tile that is unrolled, accesses of whole vectors."""
    S, L = Buffer("S", (256,), "float32", "shared"), Buffer("L", (4,), "float32", "local")

    def body(bx, tx):
        here = at(bx * 256 + tx * 4, 4)
        return local(
            L,
            seq(
                store(S, [at(tx * 4, 4)], load(A, [here])),
                Sync("block"),
                store(L, [at(0, 4)], load(S, [at(252 - tx * 4, 4)])),
                loop("i", 4, lambda i: store(L, [i], load(L, [i]) * const(2.0, "float32")), "unrolled"),
                store(B, [here], load(L, [at(0, 4)]) + call("exp", load(A, [here]))),
            ),
        )

    golden("shared.cu", generated(one_kernel(body, shared={S: 0})).source)


def test_launches_say_what_the_host_must_do():
    n = Var("n", "int32", (0, None))
    X, Y, T = Buffer("X", (n,)), Buffer("Y", (n,)), Buffer("T", (n,))
    first = kernel("T", {"bx": (n + 255) // 256, "tx": 256}, lambda b, t: If(b * 256 + t < n, store(T, [b * 256 + t], load(X, [b * 256 + t]))))
    second = kernel("Y", {"by": 3, "bx": n, "ty": 2, "tx": 8}, lambda y, b, v, t: store(Y, [b], load(T, [b]) + cast(n, dtype("float32"))))
    func = Func("two", (X, Y), frozenset([Y]), Allocate(T, seq(first, second), Place("call", 0)), (n,), (n * 4, 0))
    made = generated(func)
    one, two = made.launches
    assert (one.name, one.grid, one.block, one.threads) == ("two_T", ("(n + 255) // 256", 1, 1), (256, 1, 1), 256)
    assert (two.name, two.grid, two.block) == ("two_Y", ("n", 3, 1), (8, 2, 1))
    assert [(p.kind, p.value) for p in one.parameters] == [("argument", 0), ("workspace", 0), ("size", "n")]
    assert [(p.kind, p.value) for p in two.parameters] == [("argument", 1), ("workspace", 0), ("size", "n")]
    assert one.parameters[2].dtype == "int32" and made.workspace == "n * 4" and made.workspace_bytes == 0 and made.sizes == ("n",)
    assert 'extern "C" __global__ void __launch_bounds__(16) two_Y(float *__restrict__ Y, const float *__restrict__ T, int n)' in made.source


def test_kernels_take_the_sizes_that_they_use():
    n, m = Var("n", "int32", (0, None)), Var("m", "int32", (0, None))
    X, Y = Buffer("X", (m,)), Buffer("Y", (m,))
    made = kernel("Y", {"bx": (m + 31) // 32, "tx": 32}, lambda b, t: If(b * 32 + t < m, store(Y, [b * 32 + t], load(X, [b * 32 + t]))))
    source = generated(Func("one", (X, Y), frozenset([Y]), made, (n, m))).source
    assert "one(const float *__restrict__ X, float *__restrict__ Y, int m)" in source


def test_only_vector_accesses_ask_for_alignment():
    func = one_kernel(lambda b, t: store(B, [at(b * 256 + t * 4, 4)], load(A, [at(b * 64 + t, 4)])))
    assert generated(func).alignments == (4, 16)


@pytest.mark.parametrize(
    "kind, lanes, base, accesses",
    [
        ("float32", 4, 4, ["float4"]),
        ("float32", 8, 8, ["float4", "float4"]),
        ("float32", 4, 2, ["float2", "float2"]),
        ("float32", 4, 1, []),
        ("float32", 2, 2, ["float2"]),
        ("float64", 4, 4, ["double2", "double2"]),
        ("float16", 8, 8, ["uint4"]),
        ("float16", 4, 4, ["uint2"]),
        ("bfloat16", 2, 2, ["uint1"]),
        ("int8", 16, 16, ["uint4"]),
        ("int8", 8, 8, ["uint2"]),
        ("int8", 4, 4, ["char4"]),
        ("uint8", 4, 4, ["uchar4"]),
        ("int64", 2, 2, ["longlong2"]),
        ("bool", 4, 4, ["uchar4"]),
    ],
)
def test_accesses_are_as_wide_as_alignment_is_proved(kind, lanes, base, accesses):
    X, Y = Buffer("X", (4096,), kind), Buffer("Y", (4096,), kind)
    lines = kernel_lines(one_kernel(lambda b, t: store(Y, [at(t * base, lanes)], load(X, [at(t * base, lanes)])), outputs=(Y,), inputs=(X,)))
    assert [re.match(r"\*\((\w+) \*\)&Y", line)[1] for line in lines if line.startswith("*(")] == accesses
    assert len([line for line in lines if line.startswith("Y[")]) == (0 if accesses else lanes)


def test_a_symbolic_row_is_as_aligned_as_is_known():
    n = Var("n", "int32", (0, None))
    lines = kernel_lines(one_kernel(lambda b, t: store(B, [at(b * n + t * 4, 4)], load(A, [at(b * (n * 4) + t * 4, 4)])), sizes=(n,)))
    assert sum("float4" in line for line in lines) == 1 and any("const float4 A_at" in line for line in lines)


def test_guarded_vectors_are_read_under_their_guard():
    zero = const(0.0, "float32x4")
    func = one_kernel(lambda b, t: store(B, [at(t * 4, 4)], E.if_then_else(t < 9, load(A, [at(t * 4, 4)]), zero)))
    assert kernel_lines(func)[-1] == "*(float4 *)&B[tx * 4] = tx < 9 ? *(const float4 *)&A[tx * 4] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);".replace(
        "tx < 9", "(tx < 9)"
    )
    func = one_kernel(lambda b, t: store(B, [at(t * 4, 4)], E.if_then_else(t < 9, load(A, [at(t * 4, 4)]), zero) * const(2.0, "float32x4")))
    assert "const float4 A_at = (tx < 9) ? *(const float4 *)&A[tx * 4] : make_float4(0, 0, 0, 0);" in kernel_lines(func)


def test_lanes_that_differ_are_read_one_by_one():
    inside = E.lt(at(0, 4), broadcast(const(3), 4))
    lines = kernel_lines(one_kernel(lambda b, t: store(B, [at(t * 4, 4)], load(A, [at(t * 4, 4)], inside), inside)))
    assert not any("float4" in line for line in lines) and sum(line.startswith("if (") for line in lines) + sum(line.startswith("B[") for line in lines) == 4


def test_what_a_store_overwrites_is_read_before():
    """B[1:5] = B[0:4]: each lane reads what the one before writes."""
    lines = kernel_lines(one_kernel(lambda b, t: store(B, [at(t * 8 + 1, 4)], load(B, [at(t * 8 + 3, 4)]))))
    writes = [i for i, line in enumerate(lines) if line.startswith("B[")]
    reads = [i for i, line in enumerate(lines) if re.search(r"= B\[", line)]
    assert len(writes) == 4 and max(reads) < min(writes)


def test_shared_buffers_that_share_bytes_are_one_array():
    S, T = Buffer("S", (64,), "float32", "shared"), Buffer("T", (128,), "float16", "shared")
    lines = kernel_lines(one_kernel(lambda b, t: seq(store(S, [t], load(A, [t])), Sync("block"), store(B, [t], load(S, [t]))), shared={S: 0, T: 128}))
    assert "__shared__ __align__(16) unsigned char tw_shared[384];" in lines and "float *const S = (float *)(tw_shared + 0);" in lines


def test_much_shared_memory_is_dynamic():
    S = Buffer("S", (16384,), "float32", "shared")
    func = one_kernel(lambda b, t: seq(store(S, [t], load(A, [t])), Sync("block"), store(B, [t], load(S, [63 - t]))), shared={S: 0})
    made = generated(func)
    assert made.launches[0].dynamic_shared_bytes == 65536 and "extern __shared__ __align__(16) unsigned char tw_shared[];" in made.source


@pytest.mark.parametrize(
    "kind, count, line",
    [
        ("block", 0, "__syncthreads();"),
        ("warp", 0, "__syncwarp();"),
        ("async_commit", 0, "tw_cp_async_commit();"),
        ("async_wait", 2, "tw_cp_async_wait<2>();"),
    ],
)
def test_waiting(kind, count, line):
    assert line in kernel_lines(one_kernel(lambda b, t: seq(store(B, [t], load(A, [t])), Sync(kind, count))))


def test_loops_that_are_unrolled():
    def body(b, t):
        whole = loop("i", 4, lambda i: store(B, [i], load(A, [i])), "unrolled")
        partly = loop("j", 64, lambda j: store(B, [j], load(A, [j])))
        return seq(whole, For(partly.var, partly.extent, "serial", partly.body, None, (("unroll", 8),)))

    lines = kernel_lines(one_kernel(body))
    assert "#pragma unroll" in lines and "#pragma unroll 8" in lines


def test_fast_math_only_when_asked():
    func = one_kernel(lambda b, t: store(B, [t], call("exp", load(A, [t]))))
    assert "expf(" in generated(func).source and "__expf(" not in generated(func).source
    assert "__expf(" in generated(func, Target("cuda", fast_math=True)).source


def test_names_that_cuda_uses():
    X, Y = Buffer("threadIdx", (64,)), Buffer("float4", (64,))
    made = kernel("expf", {"tx": 64}, lambda t: store(Y, [t], load(X, [t]) + call("exp", load(X, [t]))))
    func = Func("rsqrtf", (X, Y), frozenset([Y]), made)
    assert "rsqrtf_kernel(const float *__restrict__ v_threadIdx, float *__restrict__ v_float4)" in generated(func).source


@pytest.mark.parametrize("name", ["lambda", "True", "None", "min", "n m"])
def test_sizes_of_any_name(name):
    """Grids are computed at a call from expressions in Python, where some names are taken."""
    n = te.var(name)
    X = te.placeholder((n,), name="X")
    Y = te.compute((n,), lambda i: X[i] + 1.0, name="Y")
    s = te.create_schedule(Y.op)
    block, inner = s[Y].split(Y.op.axis[0], factor=32)
    s[Y].bind(block, te.thread_axis("blockIdx.x"))
    s[Y].bind(inner, te.thread_axis("threadIdx.x"))
    x, y = np.arange(100, dtype="float32"), np.zeros(100, "float32")
    tw.build(s, [X, Y], Target("cuda", device="emulator"))(x, y)
    np.testing.assert_array_equal(y, x + 1)


def test_what_only_a_cpu_can_do_is_refused():
    plain = Produce("B", loop("i", 8, lambda i: store(B, [i], load(A, [i]))))
    with pytest.raises(InternalError, match="bind_threads"):
        generated(Func("kernel", (A, B), frozenset([B]), plain))
    with pytest.raises(TargetError, match="C function 'sgemm'"):
        generated(one_kernel(lambda b, t: CallExtern("sgemm", (), ())))
    with pytest.raises(InternalError, match="virtual_threads"):
        generated(one_kernel(lambda b, t: For(Var("v"), const(2), "thread", store(B, [t], load(A, [t])), "vthread")))
    with pytest.raises(InternalError, match=r"second loop over threadIdx\.x.*bind_threads"):
        generated(one_kernel(lambda b, t: For(Var("v"), const(2), "thread", store(B, [t], load(A, [t])), "threadIdx.x")))
    S = Buffer("S", (4,), "float32", "shared")
    with pytest.raises(InternalError, match="shared_memory"):
        generated(one_kernel(lambda b, t: Allocate(S, store(S, [t], load(A, [t])))))


def summed(kind: str, block: dict[str, int], threads: tuple[str, ...], repeats: int = 1, name: str = "summed") -> Func:
    """Y[group, thread] = the sum over `threads` of X."""
    total = 1
    for extent in block.values():
        total *= extent
    X, Y, R = Buffer("X", (total,), kind), Buffer("Y", (total,), kind), Buffer("R", (1,), kind, "local")
    left, right = Var("left", kind), Var("right", kind)
    left.exact = right.exact = False
    how = Combination((left,), (right,), (left + right,), (const(0, kind),))

    def body(*indices):
        flat = const(0)
        for index, extent in zip(indices, block.values(), strict=True):
            flat = flat * extent + index
        one = seq(store(R, [0], const(0, kind)), AllReduce((load(R, [const(0)]),), (load(X, [flat]),), how, threads), store(Y, [flat], load(R, [const(0)])))
        return local(R, loop("again", repeats, lambda i: one) if repeats > 1 else one)

    return with_reductions(Func(name, (X, Y), frozenset([Y]), kernel(name, block, body)))


@pytest.mark.parametrize(
    "block, threads, shuffles, slots, barriers",
    [
        ({"tx": 32}, "x", True, None, 0),
        ({"tx": 8}, "x", True, None, 0),
        ({"ty": 5, "tx": 16}, "x", True, None, 0),
        ({"tx": 128}, "x", True, 4, 1),
        ({"ty": 2, "tx": 64}, "x", True, 4, 1),
        ({"ty": 4, "tx": 8}, "xy", True, None, 0),
        ({"tx": 12}, "x", False, 12, 1),
        ({"ty": 4, "tx": 8}, "y", False, 32, 1),
        ({"tz": 3, "ty": 4, "tx": 8}, "xz", False, 96, 1),
        ({"tx": 1}, "x", False, None, 0),
    ],
)
def test_reductions_across_threads(block, threads, shuffles, slots, barriers):
    lines = kernel_lines(summed("float32", block, tuple(f"threadIdx.{t}" for t in threads)))
    wait = "__syncwarp();" if prod(block.values()) <= 32 else "__syncthreads();"
    assert any("__shfl_xor_sync" in line for line in lines) == shuffles and lines.count(wait) == barriers == str(lines).count("__sync")
    declared = re.findall(r"__shared__ .*float \w+\[(\d+)\];", "\n".join(lines))
    assert declared == ([] if slots is None else [str(slots)])


def test_a_reduction_in_a_loop_waits_before_shared_memory_is_used_again():
    assert kernel_lines(summed("float32", {"tx": 64}, ("threadIdx.x",), repeats=3)).count("__syncthreads();") == 2


def test_every_operation_of_every_dtype_compiles(cuda_compiler):
    """Scalars and lanes; also conversions, functions, and reductions of types that no shuffle moves."""
    kernels, params, outputs = [], [], []

    def add(name, inputs, make, lanes):
        params.extend(inputs)

        def body(b, t):
            index = at((b * 8 + t) * lanes, lanes) if lanes > 1 else b * 8 + t
            stores = []
            for label, value in make(*[load(i, [index]) for i in inputs]).items():
                outputs.append(Buffer(f"{name}_{label}", (N,), value.dtype.element))
                stores.append(store(outputs[-1], [index], value))
            return seq(*stores)

        kernels.append(kernel(name, {"bx": N // lanes // 8, "tx": 8}, body))

    def functions(a):
        names = ("exp", "exp2", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt", "ceil", "trunc")
        return {n: call(n, a) for n in names} | {"pow": call("pow", a, a), "fma": call("fma", a, a, a)}

    def conversions(a):
        return {f"to_{t}": cast(a, dtype(t)) for t in SCALAR_NAMES if t != a.dtype.element}

    for kind in SCALAR_NAMES:
        for lanes in (1, 4):
            label = f"{kind}_x{lanes}"
            if not storage_only(kind):
                add(f"ops_{label}", [Buffer(f"a_{label}", (N,), kind), Buffer(f"b_{label}", (N,), kind)], operations, lanes)
            add(
                f"casts_{label}",
                [Buffer(f"c_{label}", (N,), kind)],
                lambda a: {f"to_{t}": cast(a, dtype(t)) for t in SCALAR_NAMES if t != a.dtype.element},
                lanes,
            )
    for kind in ("float32", "float64", "float16"):
        add(f"functions_{kind}", [Buffer(f"f_{kind}", (N,), kind)], functions, 1)
    func = Func("every", (*params, *outputs), frozenset(outputs), seq(*kernels))
    build = compile_cuda(generated(func).source, CUDA)
    assert len(build.usage) == len(kernels) and all(usage.spill_bytes == 0 for usage in build.usage.values())


@pytest.mark.parametrize("kind", ["float16", "int8", "float64", "int64"])
def test_reductions_of_other_dtypes_compile(kind, cuda_compiler):
    build = compile_cuda(generated(summed(kind, {"ty": 2, "tx": 64}, ("threadIdx.x",))).source, CUDA)
    assert build.usage["summed"].stack_bytes == 0 and build.usage["summed"].shared_bytes > 0
