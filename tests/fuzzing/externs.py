"""C functions for random programs: their C text, what they are in Python (for the evaluator and the interpreter), and stages that call them.

Functions of the C library serve too: memcpy, memset, and sincosf of libm. The text of ours is added to the unit that is compiled.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tilewright import te
from tilewright.te import Tensor
from tilewright.tir.interp import register_extern

from .values import Facts, Program, limit_of

_ADD = {"int32": "uint32_t", "uint32": "uint32_t", "int64": "uint64_t", "float32": "float", "float64": "double"}  # dtype -> what C adds in


def _c_type(dtype: str) -> str:
    return {"float32": "float", "float64": "double"}.get(dtype, f"{dtype}_t")


C_TEXT = """#include <stdint.h>

void fuzz_reverse(int64_t count, int32_t size, const unsigned char *x, unsigned char *y)
{
    for (int64_t i = 0; i < count; ++i)
        for (int32_t b = 0; b < size; ++b) y[i * size + b] = x[(count - 1 - i) * size + b];
}

void fuzz_rotate_two(int64_t count, int64_t other, int32_t size, int32_t other_size, const unsigned char *x, const unsigned char *w,
                     unsigned char *y, unsigned char *z)
{
    for (int64_t i = 0; i < count * size; ++i) y[i] = x[(i + size) % (count * size)];
    for (int64_t i = 0; i < other * other_size; ++i) z[i] = w[i];
}
""" + "".join(
    f"""
void fuzz_add_{dtype}({_c_type(dtype)} term, const {_c_type(dtype)} *x, {_c_type(dtype)} *y, int64_t count)
{{
    for (int64_t i = 0; i < count; ++i) y[i] = ({_c_type(dtype)})(({wide})x[i] + ({wide})term + ({wide})(i % 3));
}}
"""
    for dtype, wide in _ADD.items()
)


def _copy(to: Any, source: Any, count: int) -> None:
    to.view("u1")[:count] = source.view("u1")[:count]


def _clear(to: Any, byte: int, count: int) -> None:
    to.view("u1")[:count] = byte


def _reverse(count: int, size: int, x: Any, y: Any) -> None:
    y[:count] = x[:count][::-1]


def _rotate_two(count: int, other: int, size: int, other_size: int, x: Any, w: Any, y: Any, z: Any) -> None:
    y[:count], z[:other] = np.roll(x[:count], -1), w[:other]


def _add(term: Any, x: Any, y: Any, count: int) -> None:
    with np.errstate(over="ignore"):
        y[:count] = x[:count] + np.asarray(term, x.dtype) + (np.arange(count) % 3).astype(x.dtype)


def _sine_and_cosine(x: Any, sine: Any, cosine: Any) -> None:
    sine[0], cosine[0] = np.sin(x), np.cos(x)


for _symbol, _function in {
    "memcpy": _copy, "memset": _clear, "sincosf": _sine_and_cosine, "fuzz_reverse": _reverse, "fuzz_rotate_two": _rotate_two,
    **{f"fuzz_add_{dtype}": _add for dtype in _ADD},
}.items():  # fmt: skip
    register_extern(_symbol, _function)


def extern_stage(rng: random.Random, program: Program, name: str, x: Tensor, w: Tensor) -> list[Tensor]:
    """A stage that calls a C function on `x`, and on `w` where it takes two, which have constant shapes."""
    makers: list[Callable[..., list[Tensor]]] = [_copied, _copied_part, _reversed, _two, _constants]
    if x.dtype in _ADD:
        makers += [_added, _added]
    return rng.choice(makers)(rng, program, name, x, w)


def _count(t: Tensor) -> int:
    return prod(int(e) for e in t.shape)  # type: ignore[arg-type]


def _again(rng: random.Random, t: Tensor) -> tuple[Any, ...]:
    """Another shape of as many elements."""
    return rng.choice((t.shape, t.shape, t.shape[::-1], (_count(t),), (*t.shape, 1)))


def _copied(rng: random.Random, program: Program, name: str, x: Tensor, w: Tensor) -> list[Tensor]:
    size = te.const(_count(x) * x.dtype.bytes, "int64")
    y = te.extern(_again(rng, x), [x], lambda ins, outs: te.call_extern("memcpy", outs[0], ins[0], size), name=name)
    program.facts[y] = _same(program.facts[x])
    return [y]


def _copied_part(rng: random.Random, program: Program, name: str, x: Tensor, w: Tensor) -> list[Tensor]:
    """Some elements from one on."""
    count = _count(x)
    if not x.shape or count < 2:
        return _copied(rng, program, name, x, w)
    start = [rng.randrange(int(e)) for e in x.shape]  # type: ignore[call-overload]
    flat = 0
    for i, e in zip(start, x.shape, strict=True):
        flat = flat * int(e) + i  # type: ignore[arg-type]
    length = rng.randint(1, count - flat)
    size = length * x.dtype.bytes
    y = te.extern((length,), [x], lambda ins, outs: te.call_extern("memcpy", outs[0], te.address_of(ins[0], *start), te.const(size, "int64")), name=name)
    program.facts[y] = _same(program.facts[x])
    return [y]


def _reversed(rng: random.Random, program: Program, name: str, x: Tensor, w: Tensor) -> list[Tensor]:
    count = te.const(_count(x), "int64")
    y = te.extern(_again(rng, x), [x], lambda ins, outs: te.call_extern("fuzz_reverse", count, x.dtype.bytes, ins[0], outs[0]), name=name)
    program.facts[y] = _same(program.facts[x])
    return [y]


def _two(rng: random.Random, program: Program, name: str, x: Tensor, w: Tensor) -> list[Tensor]:
    def call(ins: list[Tensor], outs: list[Tensor]) -> Any:
        counts = [te.const(_count(t), "int64") for t in (x, w)]
        return te.call_extern("fuzz_rotate_two", *counts, x.dtype.bytes, w.dtype.bytes, ins[0], ins[1], outs[0], outs[1])

    y, z = te.extern([_again(rng, x), _again(rng, w)], [x, w], call, name=name, dtype=[x.dtype, w.dtype])
    program.facts[y], program.facts[z] = _same(program.facts[x]), _same(program.facts[w])
    return [y, z]


def _added(rng: random.Random, program: Program, name: str, x: Tensor, w: Tensor) -> list[Tensor]:
    facts, term = program.facts[x], rng.randint(0, 3)
    if x.dtype.is_float and facts.error:
        return _copied(rng, program, name, x, w)
    count = te.const(_count(x), "int64")
    y = te.extern(_again(rng, x), [x], lambda ins, outs: te.call_extern(f"fuzz_add_{x.dtype}", te.const(term, x.dtype), ins[0], outs[0], count), name=name)
    bound = facts.bound + term + 2
    error = 0.0 if facts.integral and bound < 2**23 else bound * 2.0**-22  # a float that is no whole number may be rounded
    program.facts[y] = Facts(limit_of(x.dtype, bound), error if x.dtype.is_float else 0.0, facts.integral)
    return [y]


def _constants(rng: random.Random, program: Program, name: str, x: Tensor, w: Tensor) -> list[Tensor]:
    """A function of the C library that reads no tensor."""
    if rng.random() < 0.4:
        shape, size = _again(rng, x), te.const(_count(x) * x.dtype.bytes, "int64")
        y = te.extern(shape, [], lambda ins, outs: te.call_extern("memset", outs[0], 0, size), name=name, dtype=x.dtype)
        program.facts[y] = Facts(0.0, 0.0, True)
        return [y]
    angle = te.const(rng.choice((0.0, 0.5, 2.0)), "float32")
    both = te.extern([(1,), ()], [], lambda ins, outs: te.call_extern("sincosf", angle, *outs), name=name, dtype="float32", libraries=["m"])
    for t in both:
        program.facts[t] = Facts(1.0, 2.0**-22, False)
    return list(both)


def _same(f: Facts) -> Facts:
    return Facts(f.bound, f.error, f.integral)
