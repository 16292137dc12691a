"""The C generator: what it writes (golden files), and that what it writes computes what the interpreter says, for every dtype."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from tilewright.targets.c import generate
from tilewright.targets.c_types import small_float_bits
from tilewright.targets.toolchain import compile_source, find_compiler, flags, sanitizer_environment
from tilewright.tir import expr as E
from tilewright.tir.dtype import SCALAR_NAMES, dtype
from tilewright.tir.errors import InternalError
from tilewright.tir.expr import Buffer, Var, broadcast, call, cast, const, load
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.stmt import Allocate, Bind, For, Func, If, Place, Prefetch, Produce, seq, store
from tilewright.tir.target import Target

from .funcs import at, check_against_interpreter, compiled, legal, loop, random_array

ONE = Target("c", threads=1)
N = 96


def lanes_of(kind: str) -> int:
    return max(2, 32 // dtype(kind).bytes)


def over(name: str, inputs: list[Buffer], make, kind: str, lanes: int) -> Func:
    """Stores every expression of `make(loads...)` for N elements, `lanes` at a time."""
    outputs: list[Buffer] = []

    def body(i):
        index = at(i * lanes, lanes) if lanes > 1 else i
        values = make(*[load(b, [index]) for b in inputs])
        stores = []
        for label, value in values.items():
            outputs.append(Buffer(label, (N,), value.dtype.element))
            stores.append(store(outputs[-1], [index], value))
        return seq(*stores)

    return_loop = loop("i", N // lanes, body)
    return Func(name, (*inputs, *outputs), frozenset(outputs), return_loop)


def outputs_for(func: Func, inputs: list[np.ndarray]) -> list[np.ndarray]:
    return [*inputs, *(np.zeros(N, numpy_dtype(b.dtype)) for b in func.params[len(inputs) :])]


def operations(a, b):
    """Every operator and function that is exact, on two values of one dtype."""
    kind = a.dtype.element
    found = {"eq": E.eq(a, b), "ne": E.ne(a, b), "lt": E.lt(a, b), "le": E.le(a, b), "min": E.minimum(a, b), "max": E.maximum(a, b)}
    found["choose"] = E.select(E.lt(a, b), b, a)
    found["both"] = E.logical_and(E.lt(a, b), E.logical_not(E.eq(a, b)))
    found["either"] = E.logical_or(E.lt(b, a), E.eq(E.lt(a, b), E.le(b, a)))
    if kind.is_bool:
        return found
    found |= {"add": E.add(a, b), "sub": E.sub(a, b), "mul": E.mul(a, b), "abs": call("abs", a), "chain": E.mul(E.sub(a, E.add(b, a)), b)}
    if kind.is_float:
        found.pop("chain")  # may be fused
        found |= {"div": E.div(a, b), "isnan": call("isnan", a), "isinf": call("isinf", a), "isfinite": call("isfinite", a), "floor": call("floor", a)}
        found |= {"round": call("round", a), "sqrt": call("sqrt", a), "positive": E.maximum(a, const(0.0, a.dtype)), "negated": E.negate(a)}
    else:
        found |= {"floordiv": E.floordiv(a, b), "floormod": E.floormod(a, b), "by_3": E.floordiv(a, const(3, a.dtype))}
        found |= {"by_8": E.floordiv(a, const(8, a.dtype)), "mod_8": E.floormod(a, const(8, a.dtype)), "mod_5": E.floormod(a, const(5, a.dtype))}
        found["not"] = call("bitwise_not", a)
        found |= {n: call(n, a, b) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")} | {"popcount": call("popcount", a)}
        count = call("bitwise_and", b, const(kind.bits - 1, b.dtype))
        found |= {"left": call("shift_left", a, count), "right": call("shift_right", a, count)}
        found |= {"left_3": call("shift_left", a, const(3, a.dtype)), "right_3": call("shift_right", a, const(3, a.dtype))}
        if kind != "uint32":
            found["max_0"] = E.maximum(a, const(0, a.dtype))
    return found


def storage_only(kind: str) -> bool:
    return kind.startswith("float8")


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("kind", [k for k in SCALAR_NAMES if not storage_only(k)])
def test_operations_of_every_dtype(kind, vector):
    rng = np.random.default_rng(1)
    func = over("operations", [Buffer("A", (N,), kind), Buffer("B", (N,), kind)], operations, kind, lanes_of(kind) if vector else 1)
    check_against_interpreter(func, outputs_for(func, [random_array(kind, N, rng), random_array(kind, N, rng)]), ONE)


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("kind", SCALAR_NAMES)
def test_conversions_from_every_dtype(kind, vector):
    rng = np.random.default_rng(2)
    values = random_array(kind, N, rng)
    targets = [t for t in SCALAR_NAMES if t != kind and not (dtype(kind).is_float and dtype(t).is_integer)]
    if kind == "int64":  # NumPy rounds these twice on the way to a small float, and so do we, elsewhere
        values = np.clip(values, -(1 << 24), 1 << 24)
    lanes = 8 if vector else 1

    def casts(a):
        return {f"to_{t}": cast(a, dtype(t)) for t in targets}

    func = over("conversions", [Buffer("A", (N,), kind)], casts, kind, lanes)
    check_against_interpreter(func, outputs_for(func, [values]), ONE)


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_floats_become_integers_by_truncation_and_never_trap(kind, lanes):
    values = np.random.default_rng(3).uniform(-120, 120, N).astype(kind)

    def casts(a):
        return {f"to_{t}": cast(a, dtype(t)) for t in ("int8", "int16", "int32", "int64")} | {"to_uint8": cast(call("abs", a), dtype("uint8"))}

    func = over("truncate", [Buffer("A", (N,), kind)], casts, kind, lanes)
    check_against_interpreter(func, outputs_for(func, [values]), ONE)
    values[:4] = np.inf, -np.inf, np.nan, 6e4
    compiled(func, ONE)(values, *outputs_for(func, [values])[1:])


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_rounding_to_small_floats(kind, source):
    """Every value of the small type, every midpoint between neighbours and the floats beside it, in both directions."""
    small, width = numpy_dtype(dtype(kind)), dtype(kind).bits
    codes = np.arange(0, 1 << min(width, 12), dtype="uint32")
    if width == 16:
        codes = np.concatenate([codes, codes * 16 + 7, np.arange(0x7B00, 0x7E00), np.arange(0xFB00, 0xFE00)]).astype("uint32")
    bits = f"uint{width}"
    with np.errstate(all="ignore"):
        exact, neighbours = (c.astype(bits).view(small).astype("f8") for c in (codes, codes + 1))
        middle = ((exact + neighbours) / 2).astype(source)
        values = np.concatenate([exact.astype(source), middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]).astype(source)
        expected = np.array([small_float_bits(float(v), dtype(kind)) for v in values], bits).view(small).astype("f8")
        # NumPy agrees, except that ml_dtypes rounds a float64 twice
        if source == "float32" or kind == "float16":
            np.testing.assert_array_equal(expected, values.astype(small).astype("f8"))
    size = len(values) // 8 * 8
    A, S, L = Buffer("A", (size,), source), Buffer("S", (size,), kind), Buffer("L", (size,), kind)
    body = seq(
        loop("i", size, lambda i: store(S, [i], cast(load(A, [i]), dtype(kind)))),
        loop("j", size // 8, lambda j: store(L, [at(j * 8, 8)], cast(load(A, [at(j * 8, 8)]), dtype(kind)))),
    )
    scalar, vector = np.zeros(size, small), np.zeros(size, small)
    compiled(Func("rounding", (A, S, L), frozenset([S, L]), body), ONE)(values[:size], scalar, vector)
    np.testing.assert_array_equal(scalar.astype("f8"), expected[:size])
    np.testing.assert_array_equal(vector.astype("f8"), expected[:size])


def test_math_functions_of_scalars_and_vectors():
    values = np.abs(np.random.default_rng(4).standard_normal(N)).astype("f")

    def functions(a):
        return {n: call(n, a) for n in ("exp", "log", "tanh", "erf", "sigmoid", "sin", "rsqrt")} | {"pow": call("pow", a, a), "fma": call("fma", a, a, a)}

    for lanes in (1, 8):
        func = over("functions", [Buffer("A", (N,))], functions, "float32", lanes)
        check_against_interpreter(func, outputs_for(func, [values]), ONE, rtol=1e-5)


def test_a_masked_access_that_begins_before_an_array_makes_no_pointer_to_there():
    """Which would be undefined, though no lane touches it; compilers that check the sizes of objects end the program (found by fuzzing)."""
    A, B = Buffer("A", (8,)), Buffer("B", (8,))
    index, four = at(const(-4), 8), broadcast(const(-1), 8)
    read = load(A, [index], E.lt(four, index))
    func = Func("before", (A, B), frozenset([B]), seq(store(B, [at(const(0), 8)], read), store(B, [index], read, E.lt(four, index))))
    source = generate(legal(func), ONE).source
    assert re.search(r"load_where\w*\(.*, A, -4\)", source) and re.search(r"store_where\w*\(.*, B, -4, ", source), source
    check_against_interpreter(func, [np.arange(8, dtype="float32") + 1, np.full(8, 99, "float32")], ONE)


def test_every_kind_of_access():
    """Strided, reversed, gathered, scattered, predicated; whole vectors at odd addresses; a guard inside a value."""
    A, X = Buffer("A", (200,)), Buffer("X", (64,), "int32")
    limit = broadcast(const(70), 8)

    def values(i):
        index = at(i * 8, 8)
        ahead = E.add(index, const(5, "int32x8"))
        inside = E.lt(index, broadcast(const(45), 8))
        picked = load(X, [index])
        return {
            "shifted": load(A, [at(i * 8 + 3, 8)]), "every_2nd": load(A, [at(i * 16 + 1, 8, 2)]), "every_3rd": load(A, [at(i * 24, 8, 3)]),
            "backwards": load(A, [at(i * 8 + 7, 8, -1)]), "gathered": load(A, [picked]), "gathered_where": load(A, [picked], inside),
            "masked": load(A, [E.add(index, const(195 - 45, "int32x8"))], inside), "masked_int": load(X, [ahead], E.lt(ahead, broadcast(const(64), 8))),
            "guarded": E.if_then_else(E.lt(picked, limit), load(A, [E.add(picked, const(130, "int32x8"))]), broadcast(load(A, [i * 24]), 8)),
            "scalar_guard": E.if_then_else(E.lt(i, const(3)), load(A, [index]), const(0.5, "float32x8")),
            "strided_where": load(A, [at(i * 48, 8, 6)], E.lt(at(i * 48, 8, 6), broadcast(const(200), 8))),
        }  # fmt: skip

    outputs = [Buffer(n, (192,), v.dtype.element) for n, v in values(const(0)).items()]
    extra = [Buffer("scattered", (64,)), Buffer("stored_where", (64,)), Buffer("stored_strided", (64 * 3,)), Buffer("scattered_where", (64,))]

    def body(i):
        index = at(i * 8, 8)
        permuted = E.floormod(E.mul(index, const(5, "int32x8")), const(64, "int32x8"))
        a, odd = load(A, [index]), E.eq(E.floormod(index, const(2, "int32x8")), const(1, "int32x8"))
        stores = [store(b, [index], v) for b, v in zip(outputs, values(i).values(), strict=True)]
        stores += [store(extra[0], [permuted], a), store(extra[1], [index], a, odd)]
        stores += [store(extra[2], [at(i * 24, 8, 3)], a), store(extra[3], [permuted], a, odd)]
        return seq(*stores)

    rng = np.random.default_rng(5)
    func = Func("accesses", (A, X, *outputs, *extra), frozenset([*outputs, *extra]), loop("i", 8, body))
    arrays = [random_array("float32", 200, rng), rng.integers(0, 100, 64).astype("int32")]
    arrays += [np.full(b.shape[0], 7, numpy_dtype(b.dtype)) for b in func.params[2:]]
    check_against_interpreter(func, arrays, ONE)


# ----------------------------------------------------------------------------------------------------- what the text looks like


def packed_matmul(M: int, N: int, K: int, mi: int = 6, nj: int = 16, lanes: int = 8, threads_kind: str = "parallel") -> Func:
    """C[M, N] = A[M, K] B[K, N] with B in panels of nj columns and a register tile of mi x nj; mi divides M, nj divides N."""
    A, B, C, Bp = Buffer("A", (M * K,)), Buffer("B", (K * N,)), Buffer("C", (M * N,)), Buffer("Bp", (K * N,))
    CL = Buffer("C_local", (mi * nj,), "float32", "local")
    columns = range(0, nj, lanes)
    tile = [(r, j, at(r * nj + j, lanes)) for r in range(mi) for j in columns]

    def pack(jo):
        return loop("k", K, lambda k: seq(*[store(Bp, [at(jo * (K * nj) + k * nj + j, lanes)], load(B, [at(k * N + jo * nj + j, lanes)])) for j in columns]))

    def block(io, jo):
        def update(k):
            terms = [(i, E.mul(broadcast(load(A, [(io * mi + r) * K + k]), lanes), load(Bp, [at(jo * (K * nj) + k * nj + j, lanes)]))) for r, j, i in tile]
            return seq(*[store(CL, [i], E.add(load(CL, [i]), term)) for i, term in terms])

        zero = [store(CL, [i], const(0.0, f"float32x{lanes}")) for _, _, i in tile]
        out = [store(C, [at((io * mi + r) * N + jo * nj + j, lanes)], load(CL, [i])) for r, j, i in tile]
        return Allocate(CL, seq(Produce("C_local", seq(*zero, loop("k", K, update))), *out), Place("stack"))

    nest = loop("io", M // mi, lambda io: loop("jo", N // nj, lambda jo: block(io, jo)), threads_kind)
    body = Allocate(Bp, seq(Produce("Bp", loop("jo", N // nj, pack, threads_kind)), Produce("C", nest)), Place("call", 0))
    return Func("matmul", (A, B, C), frozenset([C]), body, (), (4 * K * N, 0))


def test_a_blocked_matmul_reads_well_and_is_right(golden):
    func = packed_matmul(12, 32, 24, mi=2)
    golden("matmul.c", generate(legal(func), Target("c", threads=2)).source)
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((12, 24)).astype("f"), rng.standard_normal((24, 32)).astype("f")
    for threads in (1, 2):
        c = np.full((12, 32), np.nan, "f")
        compiled(func, Target("c", threads=threads))(a.ravel(), b.ravel(), c.reshape(-1))
        np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def assembly(func: Func, target: Target) -> str:
    """The inner loops as the compiler makes them."""
    source = generate(legal(func), target).source
    command = [find_compiler(target.compiler).path, *flags(target, find_compiler(target.compiler), uses_openmp=False), "-Wno-psabi"]
    command = [*(f for f in command if f != "-shared"), "-S", "-x", "c", "-", "-o", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


COMPILERS = sorted({os.path.realpath(path): name for name in ("clang-19", "clang", "gcc") if (path := shutil.which(name))}.values())


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_register_tile_stays_in_registers(compiler):
    """Per iteration of k: 2 loads of B, 6 broadcasts of A, 12 multiply-adds; nothing is stored and nothing spilled."""
    text = assembly(packed_matmul(12, 32, 64), Target("c", threads=1, compiler=compiler, march="x86-64-v3"))
    inner = max(re.split(r"^\.L\w+:", text, flags=re.M), key=lambda part: len(re.findall(r"vfmadd", part)))
    inner = inner[: inner.rindex("vfmadd")]
    copies = len(re.findall("vfmadd", inner)) // 12 + 1
    assert len(re.findall(r"vfmadd\w+ps", inner)) == 12 * copies - 1
    assert len(re.findall(r"vbroadcastss", inner)) == 6 * copies
    assert not re.findall(r"vmov[au]ps\s+%ymm\d+, [^%]", inner), "an accumulator is stored in the inner loop"
    assert len(re.findall(r"vmov[au]ps\s+[^%].*, %ymm", inner)) <= 2 * copies


@pytest.mark.parametrize("compiler", COMPILERS)
def test_both_compilers_accept_what_is_written(compiler):
    """And warn of nothing, so that a warning in a log means something."""
    rng = np.random.default_rng(7)
    target = Target("c", threads=1, compiler=compiler)
    for kind in ("float32", "float16", "int8", "bool"):
        func = over("operations", [Buffer("A", (N,), kind), Buffer("B", (N,), kind)], operations, kind, 8)
        check_against_interpreter(func, outputs_for(func, [random_array(kind, N, rng), random_array(kind, N, rng)]), target)
        source = generate(legal(func), target).source
        command = [find_compiler(compiler).path, "-std=gnu11", "-O1", "-march=native", "-Wall", "-Wno-psabi", "-Wno-unused-function", "-fsyntax-only"]
        done = subprocess.run([*command, "-x", "c", "-"], input=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, done.stderr[:2000]


HOSTILE = [
    "for", "int32_t", "float", "INT32_MAX", "NULL", "linux", "main", "printf", "tw_min_int32", "float32x8", "a b", "x;system(\"sh\")", "*/ int evil; /*",
    "naïve", "1st", "", "_Bool", "__builtin_trap", "A", "A", "A_1", "workspace", "a\\\n", "kernel", "UINT8_C", "omp_get_thread_num", "'\"", "free",
]  # fmt: skip


def test_no_name_breaks_or_enters_the_source():
    """Buffers, variables, stages and the function itself under names that are C, or meant to become C."""
    for start, name in enumerate(["kernel", "malloc", "exp", "for", "x;}", "main", "9", "*/"]):
        names = HOSTILE[start:] + HOSTILE[:start]
        inputs = [Buffer(n, (8,)) for n in names[:14]]
        out, held = Buffer(names[14], (8,)), Buffer(names[15], (8,))

        def body(i, inputs=inputs, out=out, held=held, names=names):
            inner = Var(names[16])
            total = load(held, [inner])
            for b in inputs:
                total = E.add(total, load(b, [i]))
            return Bind(inner, E.floormod(i + 1, const(8)), Produce(names[17], store(out, [i], total)))

        fill = loop(names[18], 8, lambda i, held=held: store(held, [i], const(1.0, "float32")))
        func = Func(name, (*inputs, out), frozenset([out]), Allocate(held, seq(fill, loop(names[19], 8, body)), Place("call", 0)), (), (64, 0))
        arrays = [np.full(8, i, "f") for i in range(14)]
        result = np.zeros(8, "f")
        module = compiled(func)
        module(*arrays, result)
        assert (result == sum(range(14)) + 1).all()
        assert "system(" not in module.get_source() and "system" not in module.get_source().replace("x_system__sh__", "").split("tilewright_signature")[0]


def test_sizes_are_passed_and_bound():
    """A symbolic extent: int64 parameters, a loop over it, an intermediate of that size."""
    n = Var("n", "int64", (0, None))
    A, T, C = Buffer("A", (n,)), Buffer("T", (n,)), Buffer("C", (n,))
    double = loop("i", n, lambda i: store(T, [i], E.mul(load(A, [i]), const(2.0, "float32"))))
    reverse = loop("i", n, lambda i: store(C, [i], load(T, [n - 1 - i])), "parallel")
    func = Func("reverse", (A, C), frozenset([C]), Allocate(T, seq(double, reverse), Place("call", 0)), (n,), (E.mul(n, const(4, "int64")), 0))
    module = compiled(func)
    assert module.signature.sizes == ("n",)
    for size in (0, 1, 5, 100_000):
        a, c = np.arange(size, dtype="f"), np.zeros(size, "f")
        module(a, c)
        np.testing.assert_array_equal(c, a[::-1] * 2)
    narrow = Var("m", "int32", (0, None))
    A, C = Buffer("A", (narrow,)), Buffer("C", (narrow,))
    copy = Func("copy", (A, C), frozenset([C]), loop("i", narrow, lambda i: store(C, [i], load(A, [i]))), (narrow,))
    a, c = np.arange(7, dtype="f"), np.zeros(7, "f")
    compiled(copy)(a, c)
    np.testing.assert_array_equal(a, c)


# ------------------------------------------------------------------------------------------------------------------ storage


def through_a_workspace(size: int) -> Func:
    """B = A + 1 by way of an intermediate."""
    A, T, B = Buffer("A", (size,)), Buffer("T", (size,)), Buffer("B", (size,))
    up = loop("i", size, lambda i: store(T, [i], E.add(load(A, [i]), const(1.0, "float32"))))
    out = loop("i", size, lambda i: store(B, [i], load(T, [i])))
    return Func("through", (A, B), frozenset([B]), Allocate(T, seq(up, out), Place("call", 0)), (), (4 * size, 0))


def test_a_workspace_serves_calls_at_once_and_is_kept():
    size = 1 << 16
    module = compiled(through_a_workspace(size))
    assert module.workspace_bytes == 4 * size
    wrong = []

    def call_often(value: float) -> None:
        a, b = np.full(size, value, "f"), np.zeros(size, "f")
        for _ in range(100):
            module(a, b)
            if not (b == value + 1).all():
                wrong.append(value)

    threads = [threading.Thread(target=call_often, args=(float(i),)) for i in range(20)]  # more than the arenas that are kept
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    a, b = np.zeros(size, "f"), np.zeros(size, "f")
    a[:], b[:] = 1, 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        module(a, b)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 60, "the pages of the workspace are paid for at each call"
    assert faults >= 0
    module.close()


def test_memory_that_cannot_be_had_is_an_error():
    func = through_a_workspace(8)
    huge = Func(func.name, func.params, func.outputs, func.body, (), (1 << 62, 0))
    with pytest.raises(MemoryError, match="through"):
        compiled(huge)(np.zeros(8, "f"), np.zeros(8, "f"))


def test_threads_have_workspaces_of_their_own():
    rows, size = 37, 1000
    A, T, B = Buffer("A", (rows * size,)), Buffer("T", (size,)), Buffer("B", (rows * size,))

    def row(i):
        fill = loop("j", size, lambda j: store(T, [j], E.mul(load(A, [i * size + j]), const(3.0, "float32"))))
        return Allocate(T, seq(fill, loop("j", size, lambda j: store(B, [i * size + j], load(T, [const(size - 1) - j])))), Place("thread", 0))

    func = Func("rows", (A, B), frozenset([B]), loop("i", rows, row, "parallel"), (), (0, 4 * size))
    a = np.random.default_rng(8).standard_normal((rows, size)).astype("f")
    for threads in (1, 2, 5):
        b = np.zeros_like(a)
        module = compiled(func, Target("c", threads=threads))
        module(a.reshape(-1), b.reshape(-1))
        np.testing.assert_array_equal(b, a[:, ::-1] * np.float32(3))
        assert module.signature.uses_openmp is (threads > 1)


def test_parallel_loops_that_are_not_worth_a_thread():
    """One thread, one iteration, or inside another parallel loop: a plain loop."""
    A = Buffer("A", (64,))
    nest = loop("i", 8, lambda i: loop("j", 8, lambda j: store(A, [i * 8 + j], const(1.0, "float32")), "parallel"), "parallel")
    func = Func("nested", (A,), frozenset([A]), nest)
    assert generate(func, Target("c", threads=4)).source.count("#pragma omp") == 1
    assert "omp" not in generate(func, ONE).source and not generate(func, ONE).uses_openmp
    single = Func("single", (A,), frozenset([A]), loop("i", 1, lambda i: store(A, [i], const(1.0, "float32")), "parallel"))
    assert "omp" not in generate(single, Target("c", threads=4)).source
    triangle = loop("i", 8, lambda i: For(Var("j", "int32", (0, 7)), i + 1, "serial", store(A, [i], const(1.0, "float32"))), "parallel")
    assert "schedule(dynamic)" in generate(Func("triangle", (A,), frozenset([A]), triangle), Target("c", threads=2)).source


def test_stack_buffers_that_are_not_whole_vectors_are_arrays():
    """Mixed vector and scalar access, and an index that is a loop variable."""
    A, T, B = Buffer("A", (16,)), Buffer("T", (16,), "float32", "local"), Buffer("B", (16,))
    fill = seq(store(T, [at(0, 8)], load(A, [at(0, 8)])), store(T, [at(8, 8)], load(A, [at(8, 8)])))
    body = Allocate(T, seq(fill, store(T, [const(3)], const(7.0, "float32")), loop("i", 16, lambda i: store(B, [i], load(T, [i])))), Place("stack"))
    func = Func("mixed", (A, B), frozenset([B]), body)
    assert "T[16]" in generate(func, ONE).source
    a, b = np.arange(16, dtype="f"), np.zeros(16, "f")
    compiled(func)(a, b)
    assert b.tolist() == [0, 1, 2, 7, *range(4, 16)]
    odd = seq(store(T, [at(0, 8)], load(A, [at(0, 8)])), store(T, [at(8, 4)], load(A, [at(8, 4)])), store(B, [at(0, 8)], load(T, [at(0, 8)])))
    pieces = Func("pieces", (A, B), frozenset([B]), Allocate(T, seq(odd, store(B, [at(8, 4)], load(T, [at(8, 4)]))), Place("stack")))
    assert "float32x4 T_8;" in generate(pieces, ONE).source
    compiled(pieces)(a, b)
    assert b.tolist()[:12] == list(range(12))


def test_unrolled_loops_prefetches_and_bools():
    A, B, F, M = Buffer("A", (64,)), Buffer("B", (64,)), Buffer("F", (8,), "bool", "local"), Buffer("M", (64,), "bool")

    def body(i):
        index = at(i * 8, 8)
        mask = Var("mask", "boolx8")
        positive = E.lt(const(0.0, "float32x8"), load(A, [index]))
        chosen = seq(
            store(F, [at(0, 8)], mask),
            store(B, [index], E.select(E.logical_or(load(F, [at(0, 8)]), load(M, [index])), load(A, [index]), const(-1.0, "float32x8"))),
            store(M, [index], E.logical_not(mask)),
        )
        return Allocate(F, seq(Prefetch(A, (i * 8 + 4096,)), Bind(mask, positive, chosen)), Place("stack"))

    tail = If(load(M, [const(0)]), store(B, [const(0)], const(5.0, "float32")), store(B, [const(1)], const(6.0, "float32")))
    func = Func("unrolled", (A, B, M), frozenset([B, M]), seq(loop("i", 8, body, "unrolled"), tail))
    source = generate(legal(func), ONE).source
    assert "TW_UNROLL(8)" in source and "__builtin_prefetch" in source
    rng = np.random.default_rng(9)
    arrays = [rng.standard_normal(64).astype("f"), np.zeros(64, "f"), rng.integers(0, 2, 64).astype(bool)]
    for compiler in COMPILERS:
        check_against_interpreter(func, arrays, Target("c", compiler=compiler))


# ------------------------------------------------------------------------------------------------------------ faults and limits


def test_what_a_pass_should_have_removed_is_refused_by_the_name_of_the_pass():
    A, S, two = Buffer("A", (64,)), Buffer("S", (64,), "float16"), Buffer("D", (8, 8))
    zero = const(0.0, "float32")
    for body, name in (
        (loop("i", 8, lambda i: store(A, [i], zero), "vectorized"), "vectorize"),
        (loop("i", 8, lambda i: store(A, [i], zero), "thread"), "bind_threads"),
        (store(two, [0, 0], zero), "flatten"),
        (Allocate(A, store(A, [0], zero)), "storage"),
        (store(S, [0], E.add(load(S, [const(0)]), load(S, [const(1)]))), "legalize"),
        (store(A, [0], load(A, [const(0)], E.lt(load(A, [const(1)]), zero))), "legalize"),
    ):
        with pytest.raises(InternalError, match=f"pass '{name}'"):
            generate(Func("f", (A, S, two), frozenset([A, S, two]), body), ONE)


def test_everything_is_defined_behaviour(tmp_path):
    """All operators on the extremes of every dtype, accesses and conversions, with the sanitizers on and signed overflow undefined."""
    target = Target("c", threads=1, sanitize=True, compiler="gcc", opt="-O0")
    rng = np.random.default_rng(1)
    calls = []
    for kind in ("int8", "int32", "int64", "uint32", "float16"):
        for lanes in (1, 4):
            func = over("operations", [Buffer("A", (N,), kind), Buffer("B", (N,), kind)], operations, kind, lanes)
            generated = generate(legal(func), target)
            build = compile_source(generated.source_with_signature(target), target, uses_openmp=generated.uses_openmp)
            arrays = outputs_for(func, [random_array(kind, N, rng), random_array(kind, N, rng)])
            np.savez(tmp_path / f"{kind}{lanes}.npz", *arrays)
            calls.append((str(build.library_path), str(tmp_path / f"{kind}{lanes}.npz")))
    code = f"""
import numpy as np
from tilewright.targets.libraries import load_module
for library, arrays in {calls!r}:
    load_module(library)(*np.load(arrays).values())
print("all calls done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=sanitizer_environment(target), check=False)
    assert done.returncode == 0 and "all calls done" in done.stdout, done.stderr[:3000]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_sum_in_memory_is_kept_in_a_register_also_inside_threads(compiler):
    """C[i] += A[i, k] over k: no store in the inner loop, which takes `restrict` pointers."""
    A, C = Buffer("A", (64 * 512,)), Buffer("C", (64,))
    add = lambda i: loop("k", 512, lambda k: store(C, [i], E.add(load(C, [i]), load(A, [i * 512 + k]))))  # noqa: E731
    func = Func("sums", (A, C), frozenset([C]), loop("i", 64, lambda i: seq(store(C, [i], const(0.0, "float32")), add(i)), "parallel"))
    text = assembly(func, Target("c", threads=2, compiler=compiler, march="x86-64-v3"))
    loops = [part for part in re.split(r"^\.L\w+:", text, flags=re.M) if "vaddss" in part]
    assert loops and not any(re.search(r"vmovss\s+%xmm\d+, [^%]", part[: part.rindex("vaddss")]) for part in loops)
