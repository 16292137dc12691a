"""What generated kernels compute, run by the emulator: equal to the interpreter, and clean in its checks."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.targets.cuda import generate
from tilewright.targets.cuda_module import CudaModule, compile_cuda_module
from tilewright.tir import expr as E
from tilewright.tir.dtype import SCALAR_NAMES, dtype
from tilewright.tir.expr import Buffer, broadcast, call, cast, const, load
from tilewright.tir.interp import interpret
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.passes.legalize import Legalize
from tilewright.tir.stmt import Func, seq, store
from tilewright.tir.target import Target

from ..funcs import at, random_array
from ..test_c import operations, storage_only
from .device_funcs import kernel
from .test_cuda import summed

EMULATOR = Target("cuda", device="emulator", threads=1)
N = 96


def built(func: Func, check: str | None = None) -> CudaModule:
    return compile_cuda_module(generate(Legalize().run(func, EMULATOR), EMULATOR), EMULATOR, check=check)


def over(name: str, inputs: list[Buffer], make) -> Func:
    """Stores every expression of `make(loads...)` for N elements: in one kernel an element in each thread, in another four."""
    outputs: list[Buffer] = []
    kernels = []
    for lanes in (1, 4):

        def body(b, t, lanes=lanes):
            index = at((b * 8 + t) * lanes, lanes) if lanes > 1 else b * 8 + t
            stores = []
            for label, value in make(*[load(i, [index]) for i in inputs]).items():
                outputs.append(Buffer(f"{label}_x{lanes}", (N,), value.dtype.element))
                stores.append(store(outputs[-1], [index], value))
            return seq(*stores)

        kernels.append(kernel(f"x{lanes}", {"bx": N // lanes // 8, "tx": 8}, body))
    return Func(name, (*inputs, *outputs), frozenset(outputs), seq(*kernels))


def check_against_interpreter(func: Func, inputs: list[np.ndarray], rtol: float = 0.0) -> None:
    arrays = [*inputs, *(np.zeros(N, numpy_dtype(b.dtype)) for b in func.params[len(inputs) :])]
    reference = [a.copy() for a in arrays]
    built(func)(*arrays)
    with np.errstate(all="ignore"):
        interpret(func, reference)
    for buffer, a, b in zip(func.params, arrays, reference, strict=True):
        wide = a.dtype.kind == "V" or (a.dtype.itemsize < 4 and buffer.dtype.is_float)
        compare = np.testing.assert_array_equal if rtol == 0 else lambda a, b, err_msg: np.testing.assert_allclose(a, b, rtol=rtol, err_msg=err_msg)
        compare(a.astype("f8") if wide else a, b.astype("f8") if wide else b, err_msg=buffer.name)


@pytest.mark.parametrize("kind", [k for k in SCALAR_NAMES if not storage_only(k)])
def test_operations_of_every_dtype(kind):
    rng = np.random.default_rng(1)
    func = over("operations", [Buffer("A", (N,), kind), Buffer("B", (N,), kind)], operations)
    check_against_interpreter(func, [random_array(kind, N, rng), random_array(kind, N, rng)])


@pytest.mark.parametrize("kind", SCALAR_NAMES)
def test_conversions_from_every_dtype(kind):
    values = random_array(kind, N, np.random.default_rng(2))
    targets = [t for t in SCALAR_NAMES if t != kind and not (dtype(kind).is_float and dtype(t).is_integer)]
    if kind == "int64":  # NumPy rounds these twice on the way to a small float
        values = np.clip(values, -(1 << 24), 1 << 24)
    check_against_interpreter(over("conversions", [Buffer("A", (N,), kind)], lambda a: {f"to_{t}": cast(a, dtype(t)) for t in targets}), [values])


def test_floats_become_integers_by_truncation():
    values = np.random.default_rng(3).uniform(-120, 120, N).astype("f")

    def casts(a):
        return {f"to_{t}": cast(a, dtype(t)) for t in ("int8", "int16", "int32", "int64")} | {"to_uint8": cast(call("abs", a), dtype("uint8"))}

    check_against_interpreter(over("truncate", [Buffer("A", (N,))], casts), [values])


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_functions(kind):
    values = np.abs(np.random.default_rng(4).standard_normal(N)).astype(kind)

    def functions(a):
        names = ("exp", "exp2", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt", "ceil", "trunc")
        return {n: call(n, a) for n in names} | {"pow": call("pow", a, a), "fma": call("fma", a, a, a)}

    check_against_interpreter(over("functions", [Buffer("A", (N,), kind)], functions), [values], rtol=1e-5 if kind == "float32" else 1e-12)


def test_every_kind_of_access():
    """Strided, reversed, gathered, predicated; vectors at odd addresses; a guard inside a value; scattered stores."""
    A, X = Buffer("A", (200,)), Buffer("X", (64,), "int32")

    def values(i):
        index = at(i * 8, 8)
        inside = E.lt(index, broadcast(const(45), 8))
        picked, zero = load(X, [index]), const(0.0, "float32x8")
        return {
            "shifted": load(A, [at(i * 8 + 3, 8)]), "every_2nd": load(A, [at(i * 16 + 1, 8, 2)]), "backwards": load(A, [at(i * 8 + 7, 8, -1)]),
            "gathered": load(A, [picked]), "gathered_where": load(A, [picked], inside), "masked": load(A, [E.add(index, const(150, "int32x8"))], inside),
            "guarded": E.if_then_else(E.lt(picked, broadcast(const(70), 8)), load(A, [E.add(picked, const(130, "int32x8"))]), broadcast(load(A, [i * 24]), 8)),
            "scalar_guard": E.if_then_else(E.lt(i, const(3)), load(A, [index]), const(0.5, "float32x8")),
            "two_guards": E.if_then_else(E.lt(i, const(3)), load(A, [index]), zero) + E.if_then_else(E.lt(i, const(5)), load(A, [index]), zero),
            "half_guard": E.if_then_else(E.lt(i, const(3)), load(A, [index]), const(0.5, "float32x8")) + load(A, [index]),
        }  # fmt: skip

    outputs = [Buffer(n, (64,), v.dtype.element) for n, v in values(const(0)).items()]
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
    func = Func("accesses", (A, X, *outputs, *extra), frozenset([*outputs, *extra]), kernel("accesses", {"tx": 8}, body))
    arrays = [random_array("float32", 200, rng), rng.integers(0, 100, 64).astype("int32")]
    arrays += [np.full(b.shape[0], 7, numpy_dtype(b.dtype)) for b in func.params[2:]]
    reference = [a.copy() for a in arrays]
    built(func)(*arrays)
    interpret(func, reference)
    for buffer, a, b in zip(func.params, arrays, reference, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=buffer.name)


GROUPS = [
    ({"tx": 32}, "x"), ({"tx": 8}, "x"), ({"ty": 5, "tx": 16}, "x"), ({"tx": 128}, "x"), ({"ty": 2, "tx": 64}, "x"), ({"ty": 4, "tx": 8}, "xy"),
    ({"tx": 12}, "x"), ({"ty": 4, "tx": 8}, "y"), ({"tz": 3, "ty": 4, "tx": 8}, "xz"), ({"tz": 3, "ty": 4, "tx": 8}, "yz"), ({"tx": 96}, "x"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "int8", "float16"])
def test_reductions_across_threads(kind):
    """Groups of threads of every shape, as kernels of one function; twice each, so that shared memory is used again."""
    functions = [summed(kind, block, tuple(f"threadIdx.{t}" for t in threads), repeats=2, name=f"s{n}") for n, (block, threads) in enumerate(GROUPS)]
    outputs = frozenset(o for f in functions for o in f.outputs)
    module = built(Func("sums", tuple(p for f in functions for p in f.params), outputs, seq(*(f.body for f in functions))), check="race")
    arrays, wanted = [], []
    for block, threads in GROUPS:
        x = np.random.default_rng(6).integers(-3, 4, tuple(block.values())).astype(numpy_dtype(dtype(kind)))
        axes = tuple(number for number, name in enumerate(block) if name[1] in threads)
        arrays += [x.reshape(-1), np.zeros(x.size, x.dtype)]
        wanted.append(np.broadcast_to(x.sum(axes, keepdims=True, dtype=x.dtype), x.shape).reshape(-1))
    module(*arrays)
    for got, expected in zip(arrays[1::2], wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    report = module.report
    assert not report.races and not report.divergence and not report.uninitialised and not report.out_of_bounds, report
