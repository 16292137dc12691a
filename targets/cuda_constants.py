"""Constant memory of CUDA: which constant operands go there, and their declarations, which hold their bits.

What lies there is part of the cubin, so nothing is uploaded, and a value that all threads of a warp read at once costs no more than one in a register; where
they read different places, these are served one after another. Other constants stay in global memory (cuda_devices.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import gcd, prod

import numpy as np

from ..tir.dtype import DType
from ..tir.expr import HAS_LOAD, Buffer, Call, Const, Expr, FloorDiv, Load, Var
from ..tir.gpu import CONSTANT_BYTES, WARP_SIZE
from ..tir.kernel import THREAD_INDICES
from ..tir.stmt import Bind, CallIntrinsic, For, Func, Stmt
from ..tir.visit import every_statement, statements_in, walk
from .c_types import integer_constant

ALIGNMENT = 16  # bytes, of each array: the widest access
_LINE = 150  # characters


def in_constant_memory(func: Func, constants: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """Those of `constants`, parameters of a function after the pipeline, that every kernel reads at places which are the same for all threads of a warp: in
    their order, as many as fit."""
    refused = _read_apart(func)
    found, left = [], CONSTANT_BYTES
    for buffer in constants:
        size = (buffer.constant_size or 0) * buffer.dtype.bytes
        if buffer not in refused and 0 < size <= left:
            found.append(buffer)
            left -= -(-size // ALIGNMENT) * ALIGNMENT
    return tuple(found)


def _read_apart(func: Func) -> set[Buffer]:
    """The buffers that threads of a warp read at different places, or may."""
    varying = {var: whole for loop in _kernels(func.body) for var, whole in _varying_indices(loop).items()}

    def differs(e: Expr) -> bool:
        if e.holds & HAS_LOAD or e in varying:
            return True
        if e.variables.isdisjoint(varying):
            return False
        if isinstance(e, FloorDiv) or (isinstance(e, Call) and e.name == "truncdiv"):
            a, b = e.children
            if isinstance(a, Var) and isinstance(b, Const) and varying.get(a) and int(b.value) % varying[a] == 0:
                return False
        return any(differs(child) for child in e.children)

    for s in every_statement(func.body):  # outer ones first, so a value's variables are known
        if isinstance(s, Bind) and differs(s.value):
            varying[s.var] = 0
    found = set()
    for node in walk(func.body):
        if isinstance(node, Load) and any(differs(index) for index in node.indices):
            found.add(node.buffer)
        elif isinstance(node, CallIntrinsic) and node.code.fragments:  # each lane takes its share, from where only the intrinsic knows
            found.update(first.buffer for first in node.loads)
    return found


def _kernels(s: Stmt) -> Iterator[For]:
    """The outermost loops over indices of the grid or of a block."""
    if isinstance(s, For) and s.thread is not None:
        yield s
    else:
        for child in statements_in(s):
            yield from _kernels(child)


def _varying_indices(kernel: For) -> dict[Var, int]:
    """The thread indices of a kernel that differ inside a warp, whose threads are neighbours along x, then y, then z; and a number: quotients by its multiples
    do not differ (0: none is known)."""
    loops = {s.thread: s for s in every_statement(kernel) if isinstance(s, For)}
    extents = [loops[tag].constant_extent or 1 if tag in loops else 1 for tag in THREAD_INDICES]
    found = {}
    for n, tag in enumerate(THREAD_INDICES):
        before, together = prod(extents[:n]), prod(extents[: n + 1])
        if tag in loops and before % WARP_SIZE:
            is_whole = together % WARP_SIZE == 0 or together == prod(extents)
            found[loops[tag].var] = WARP_SIZE // gcd(before, WARP_SIZE) if is_whole else 0
    return found


def declaration(name: str, type_name: str, kind: DType, content: bytes) -> tuple[str, str]:
    """The declaration of an array of constant memory with its bits, and how its elements are named: `name`, or a member of it where a float is no literal."""
    head = f"__constant__ __align__({ALIGNMENT})"
    bits = np.frombuffer(content, f"u{kind.bytes}")
    if kind in ("float32", "float64"):
        values = bits.view(f"f{kind.bytes}")
        if not np.isfinite(values).all():
            words = _lines([f"{word:#x}{'ull' if kind.bytes == 8 else 'u'}" for word in bits.tolist()])
            unsigned = "unsigned long long" if kind.bytes == 8 else "unsigned int"
            return f"{head} union {{ {unsigned} bits[{len(bits)}]; {type_name} values[{len(bits)}]; }} {name} = {{{{\n{words}}}}};\n", f"{name}.values"
        texts = [_literal(value) + ("f" if kind.bytes == 4 else "") for value in values.tolist()]
    elif kind.is_integer:
        texts = [integer_constant(value, kind)[0] for value in bits.view(str(kind)).tolist()]
    else:  # kept as bits everywhere
        texts = [str(value) for value in bits.tolist()]
    return f"{head} {type_name} {name}[{len(bits)}] = {{\n{_lines(texts)}}};\n", name


def _literal(value: float) -> str:
    """A finite float, in decimals where a few say it exactly, so that no compiler has to round: 1.5, 0x1.99999ap-4."""
    text = f"{value:.7g}"
    if Decimal(text) == Decimal(value):
        return text if re.search(r"[.e]", text) else f"{text}.0"
    mantissa, exponent = value.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"


def _lines(texts: list[str]) -> str:
    """Words between commas, as many to a line as fit."""
    each = max(1, _LINE // (max(map(len, texts)) + 2))
    return "".join("    " + ", ".join(texts[at : at + each]) + ",\n" for at in range(0, len(texts), each))
