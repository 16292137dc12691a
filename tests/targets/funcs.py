"""Functions of the loop language as the pipeline leaves them, for the tests of generators; and a run of one against the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.targets.c import generate
from tilewright.targets.module import Module, compile_module
from tilewright.tir.dtype import dtype
from tilewright.tir.expr import Buffer, Expr, Var, const, ramp
from tilewright.tir.interp import interpret
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.passes.legalize import Legalize
from tilewright.tir.stmt import For, Func, Stmt, seq, store
from tilewright.tir.target import Target


def loop(name: str, extent: int | Expr, body: Callable[[Var], Stmt], kind: str = "serial") -> For:
    """`body` of a fresh variable from 0 to `extent`."""
    if isinstance(extent, int):
        variable = Var(name, "int32", (0, extent - 1))
        return For(variable, const(extent), kind, body(variable))
    variable = Var(name, extent.dtype, (0, None))
    return For(variable, extent, kind, body(variable))


def at(base: Expr | int, lanes: int, stride: int = 1) -> Expr:
    """The index of `lanes` elements from `base` on."""
    base = const(base) if isinstance(base, int) else base
    return ramp(base, stride, lanes)


def elementwise(name: str, inputs: Sequence[Buffer], outputs: dict[str, Expr], shape: int, index: Expr) -> Func:
    """A function that stores each expression to a buffer of its name at `index`."""
    stores, buffers = [], []
    for output, value in outputs.items():
        buffer = Buffer(output, (shape,), value.dtype.element)
        buffers.append(buffer)
        stores.append(store(buffer, [index], value))
    return Func(name, (*inputs, *buffers), frozenset(buffers), seq(*stores))


def legal(func: Func) -> Func:
    """`func` after the last pass."""
    return Legalize().run(func, Target("c"))


def compiled(func: Func, target: Target | None = None) -> Module:
    """`func` legalised, generated and compiled."""
    target = target or Target("c", threads=2)
    return compile_module(generate(legal(func), target), target)


def random_array(kind: str, size: int, rng: np.random.Generator):
    """Values of a dtype over its whole range: for floats also zeros, infinities and NaN; for integers the extremes."""
    element = dtype(kind)
    if element.is_bool:
        return rng.integers(0, 2, size).astype(bool)
    if element.is_integer:
        values = rng.integers(element.low, element.high, size, endpoint=True, dtype=numpy_dtype(element))
        small = rng.integers(max(element.low, -9), 10, size).astype(numpy_dtype(element))
        values = np.where(rng.random(size) < 0.5, values, small)
        values[:3] = element.low, element.high, 0
        return values
    with np.errstate(over="ignore"):
        values = (rng.standard_normal(size) * 10.0 ** rng.integers(-6, 7, size)).astype(numpy_dtype(element))
        values[:5] = [0.0, -0.0, np.inf, -np.inf, np.nan]
    rng.shuffle(values)
    return values


def check_against_interpreter(func: Func, arrays: Sequence[np.ndarray], target: Target | None = None, sizes: Sequence[int] = (), rtol: float = 0.0):
    """Run `func` compiled and interpreted on copies of `arrays`; all arrays must end equal (NaN with NaN), floats within `rtol`."""
    ours, reference = [a.copy() for a in arrays], [a.copy() for a in arrays]
    module = compiled(func, target)
    module(*[a.reshape(-1) for a in ours])
    with np.errstate(all="ignore"):
        interpret(func, reference, sizes)
    for buffer, a, b in zip(func.params, ours, reference, strict=True):
        if rtol and a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=rtol, err_msg=buffer.name)
        else:
            wide = a.dtype.kind == "V" or (a.dtype.itemsize < 4 and buffer.dtype.is_float)
            np.testing.assert_array_equal(a.astype("f8") if wide else a, b.astype("f8") if wide else b, err_msg=buffer.name)
    return module
