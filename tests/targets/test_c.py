"""The C generator: what it writes (golden files), and that what it writes computes what the interpreter says, for every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.targets.c_types import small_float_bits
from tilewright.tir import expr as E
from tilewright.tir.dtype import SCALAR_NAMES, dtype
from tilewright.tir.expr import Buffer, broadcast, call, cast, const, load
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.stmt import Func, seq, store
from tilewright.tir.target import Target

from .funcs import at, check_against_interpreter, compiled, loop, random_array

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
