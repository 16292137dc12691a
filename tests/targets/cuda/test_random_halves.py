"""Random expressions of float16 and bfloat16, stored in every way, run by the emulator: equal to the interpreter. More seeds: RANDOM_HALVES=100 pytest ..."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from tilewright.targets.cuda import generate
from tilewright.targets.cuda_module import compile_cuda_module
from tilewright.tir import expr as E
from tilewright.tir.dtype import dtype
from tilewright.tir.expr import Buffer, Expr, Var, broadcast, call, cast, const, load
from tilewright.tir.interp import interpret
from tilewright.tir.interp_support import numpy_dtype
from tilewright.tir.passes.legalize import Legalize
from tilewright.tir.stmt import Bind, Func, Stmt, seq, store
from tilewright.tir.target import Target

from ..funcs import at
from .device_funcs import kernel, local

SIZE, KERNELS = 192, 6
SEEDS = range(int(os.environ.get("RANDOM_HALVES", "3")))


class Expressions:
    """Random expressions for the lanes of thread `thread`; arguments named `depth` say how many operations deep."""

    def __init__(self, choose: random.Random, buffers: dict[str, Buffer], thread: Expr, lanes: int):
        self.choose, self.buffers, self.thread, self.lanes = choose, buffers, thread, lanes
        self.kind = buffers["A"].dtype.vector(lanes)

    def index(self, stride: int = 1, offset: int = 0) -> Expr:
        first = self.thread * (self.lanes * stride) + offset
        return at(first, self.lanes, stride) if self.lanes > 1 else first

    def read(self, name: str, index: Expr | None = None) -> Expr:
        return load(self.buffers[name], [self.index() if index is None else index])

    def everywhere(self, scalar: Expr) -> Expr:
        return broadcast(scalar, self.lanes) if self.lanes > 1 else scalar

    def leaf(self) -> Expr:
        """Aligned, shifted, with a stride, gathered, the same for all, constant."""
        which, name = self.choose.random(), self.choose.choice("AB")
        if which < 0.5:
            return self.read(name)
        if which < 0.65:
            return self.read(name, self.index(1, self.choose.randint(1, 3)))
        if which < 0.75:
            return self.read(name, self.index(2))
        if which < 0.8:
            return self.read(name, self.read("X"))
        return self.everywhere(load(self.buffers[name], [self.thread])) if which < 0.9 else const(self.choose.choice((0.0, -1.0, 1.0, 0.1, -0.0)), self.kind)

    def half(self, depth: int) -> Expr:
        which, choose = self.choose.random(), self.choose
        if depth <= 0 or which < 0.1:
            return self.leaf()
        if which < 0.55:
            return choose.choice((E.add, E.sub, E.mul, E.minimum, E.maximum, E.div))(self.half(depth - 1), self.half(depth - 1))
        if which < 0.65:
            return choose.choice((lambda x: call("abs", x), E.negate))(self.half(depth - 1))
        if which < 0.75:
            return cast(self.wide(depth - 1), self.kind)
        make = choose.choice((E.select, E.if_then_else))
        condition = self.boolean(depth - 1) if which < 0.92 else E.lt(self.thread, const(choose.randrange(20)))
        return make(condition, self.half(depth - 1), self.half(depth - 1))

    def boolean(self, depth: int) -> Expr:
        which = self.choose.random()
        if depth <= 0 or which < 0.6:
            return self.choose.choice((E.lt, E.le, E.eq, E.ne))(self.half(depth - 1), self.half(depth - 1))
        if which < 0.7:
            return self.read("P")
        if which < 0.8:
            return E.logical_not(self.boolean(depth - 1))
        if which < 0.95:
            return self.choose.choice((E.logical_and, E.logical_or))(self.boolean(depth - 1), self.boolean(depth - 1))
        return self.everywhere(E.lt(self.thread, const(self.choose.randrange(20))))

    def wide(self, depth: int) -> Expr:
        """float32, without what may be contracted."""
        which = self.choose.random()
        if depth <= 0 or which < 0.3:
            return self.read("F")
        if which < 0.7:
            return cast(self.half(depth - 1), dtype("float32").vector(self.lanes))
        return self.choose.choice((E.add, E.maximum))(self.wide(depth - 1), self.wide(depth - 1))

    def stored(self, value: Expr, output: Buffer) -> Stmt:
        """The value where it belongs: at once, by way of registers or of a variable, or in some lanes."""
        which, vector = self.choose.random(), self.lanes > 1
        if which < 0.3 and value.dtype.element == self.kind.element:
            registers = Buffer("R", (16,), value.dtype.element, "local")
            place = at(const(0), self.lanes) if vector else const(0)
            held = load(registers, [place])
            return local(registers, seq(store(registers, [place], value), store(registers, [place], E.mul(held, held)), store(output, [self.index()], held)))
        if which < 0.5:
            named = Var("named", value.dtype)
            return Bind(named, value, store(output, [self.index()], E.add(named, named) if value.dtype.is_float else named))
        return store(output, [self.index()], value, self.read("P") if which < 0.6 and vector else None)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions(seed):
    choose, numbers = random.Random(seed), np.random.default_rng(seed)
    kind, arch = choose.choice(("float16", "bfloat16")), choose.choice(("sm_75", "sm_80", "sm_90"))
    inputs = {name: Buffer(name, (4 * SIZE,), k) for name, k in (("A", kind), ("B", kind), ("F", "float32"), ("P", "bool"), ("X", "int32"))}
    outputs: list[Buffer] = []
    kernels = []
    for number in range(KERNELS):
        lanes = choose.choice((1, 2, 3, 4, 6, 8, 8, 16))

        def body(b, t, lanes=lanes, number=number):
            expressions = Expressions(choose, inputs, b * 4 + t, lanes)
            value = choose.choice((expressions.half, expressions.half, expressions.boolean, expressions.wide))(choose.randint(2, 3))
            outputs.append(Buffer(f"output_{number}", (SIZE,), value.dtype.element))
            return expressions.stored(value, outputs[-1])

        kernels.append(kernel(f"kernel_{number}", {"bx": SIZE // lanes // 4, "tx": 4}, body))
    func = Func("random_halves", (*inputs.values(), *outputs), frozenset(outputs), seq(*kernels))
    halves = [(numbers.standard_normal(4 * SIZE) * 10.0 ** numbers.integers(-6, 5, 4 * SIZE)).astype(numpy_dtype(dtype(kind))) for _ in "AB"]
    for array in halves:
        array[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
        numbers.shuffle(array)
    floats, bools = numbers.standard_normal(4 * SIZE).astype("f"), numbers.integers(0, 2, 4 * SIZE).astype(bool)
    arrays = [*halves, floats, bools, numbers.integers(0, 4 * SIZE, 4 * SIZE).astype("i4"), *(np.zeros(SIZE, numpy_dtype(o.dtype)) for o in outputs)]
    wanted = [array.copy() for array in arrays]
    target = Target("cuda", arch=arch, device="emulator", threads=1)
    module = compile_cuda_module(generate(Legalize().run(func, target), target), target, check="race")
    module(*arrays)
    assert module.report.races == module.report.out_of_bounds == []
    with np.errstate(all="ignore"):
        interpret(func, wanted)
        for output, a, b in zip(outputs, arrays[5:], wanted[5:], strict=True):
            np.testing.assert_array_equal(a.astype("f8"), b.astype("f8"), err_msg=f"seed {seed}: {output.name}")
