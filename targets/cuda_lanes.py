"""Vector expressions lane by lane: CUDA has no arithmetic on vectors (but of two 16-bit floats: cuda_halves.py), only accesses of up to 16 bytes that move
several elements.

    C[ramp] = A[ramp] * 2 + B[i]  ->  const float4 A_at = *(const float4 *)&A[...];  *(float4 *)&C[...] = make_float4(A_at.x * 2.0f + B[i], ...)

Here: which loads of a statement are such accesses, where alignment is proved, and lane `i` of an expression as a scalar expression. The text is
written in cuda.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from ..tir.bounds import modulus
from ..tir.expr import Broadcast, Buffer, Choice, Const, Expr, IfThenElse, Load, Ramp, Var, const, if_then_else, load, select
from ..tir.kernel import WIDEST_BYTES
from ..tir.visit import walk

# The condition under which an access happens: a conjunction of (condition, whether it holds).
Path = tuple[tuple[Expr, bool], ...]


def pieces(buffer: Buffer, index: Expr, lanes: int, alignment: int) -> list[tuple[int, int]] | None:
    """(first lane, lanes) of the accesses that move `lanes` consecutive elements: as wide as the address is proved to be a multiple of their bytes.

    `alignment`: of the buffer's first element, in bytes. None where single elements are all that can be moved at once.
    """
    size = buffer.dtype.bytes
    step, rest = modulus(index.base if isinstance(index, Ramp) else index)
    known = gcd(gcd(step, rest) * size, alignment) or alignment  # the address of the first lane is a multiple of it
    width = min(WIDEST_BYTES // size, lanes)
    while width > 1 and (lanes % width or known % (width * size) or (width & (width - 1))):
        width -= 1
    return [(first, width) for first in range(0, lanes, width)] if width > 1 else None


def whole_loads(value: Expr, can_move: Callable[[Load], bool]) -> dict[Load, Path]:
    """The loads of consecutive elements in a vector expression that `can_move` lets be one access, and the condition under which each may be read.

    A load whose lanes differ in whether they are read, or that is read on two paths, is none of them.
    """
    found: dict[Load, Path] = {}
    refused: set[Load] = set()
    seen: set[tuple[Expr, Path]] = set()

    def visit(e: Expr, path: Path, lanes_differ: bool) -> None:
        if e.dtype.lanes == 1 or (e, path) in seen:
            return
        seen.add((e, path))
        if isinstance(e, Load):
            index = e.indices[0]
            consecutive = isinstance(index, Ramp) and isinstance(index.stride, Const) and index.stride.value == 1
            where = _with_predicate(path, e.predicate)
            if not consecutive or lanes_differ or where is None or not _is_same(found.get(e, where), where) or not can_move(e):
                refused.add(e)
            else:
                found[e] = where
        if isinstance(e, IfThenElse):
            uniform = e.condition.value if isinstance(e.condition, Broadcast) else e.condition
            differs = uniform.dtype.lanes > 1
            visit(uniform, path, lanes_differ)
            visit(e.then, path if differs else (*path, (uniform, True)), lanes_differ or differs)
            visit(e.otherwise, path if differs else (*path, (uniform, False)), lanes_differ or differs)
            return
        for child in e.children:
            visit(child, path, lanes_differ)

    visit(value, (), False)
    return {e: path for e, path in found.items() if e not in refused}


def _is_same(a: Path, b: Path) -> bool:
    """Whether two paths are one; `==` of expressions makes an expression."""
    return len(a) == len(b) and all(x is y and holds == held for (x, holds), (y, held) in zip(a, b, strict=True))


def _with_predicate(path: Path, predicate: Expr | None) -> Path | None:
    if predicate is None:
        return path
    scalar = predicate.value if isinstance(predicate, Broadcast) else predicate
    return (*path, (scalar, True)) if scalar.dtype.lanes == 1 else None


class LaneSplitter:
    """Lane `i` of vector expressions. `lanes_of`: for a vector variable, or what was read or computed as a whole, the scalars of its lanes; `words_of`: of
    16-bit floats, the words of two lanes each; `in_words`: whether others come in words (see cuda_halves.py)."""

    def __init__(self, lanes_of: dict[Expr, Sequence[Expr]], words_of: dict[Expr, Sequence[str]]) -> None:
        self.lanes_of, self.words_of = lanes_of, words_of
        self.in_words: dict[Expr, bool] = {}
        self._known: dict[tuple[Expr, int], Expr] = {}

    def lane(self, e: Expr, i: int) -> Expr:
        """The scalar that lane `i` of `e` is; `e` itself if it is a scalar."""
        if e.dtype.lanes == 1:
            return e
        found = self._known.get((e, i))
        if found is None:
            found = self._known[e, i] = self._lane(e, i)
        return found

    def _lane(self, e: Expr, i: int) -> Expr:
        if e in self.lanes_of:
            return self.lanes_of[e][i]
        if isinstance(e, Broadcast):
            return e.value
        if isinstance(e, Ramp):
            return e.base + e.stride * const(i, e.stride.dtype)
        if isinstance(e, Load):
            element = load(e.buffer, [self.lane(index, i) for index in e.indices])
            if e.predicate is None:
                return element
            return if_then_else(self.lane(e.predicate, i), element, const(0, element.dtype))
        if isinstance(e, Choice):
            choose = if_then_else if isinstance(e, IfThenElse) else select
            return choose(*(self.lane(child, i) for child in e.children))
        return e.with_children([self.lane(child, i) for child in e.children])


def reads_other_elements(value: Expr, buffer: Buffer, index: Expr) -> bool:
    """Whether a value reads elements of `buffer` that a store at `index` of an earlier lane may have changed."""
    return any(isinstance(e, Load) and e.buffer is buffer and e.indices[0] is not index for e in walk(value))


def fresh_lanes(variable: Var) -> list[Var]:
    """A scalar variable for each lane of a vector variable."""
    made = [Var(f"{variable.name}_{i}", variable.dtype.element) for i in range(variable.dtype.lanes)]
    for each in made:
        each.exact = variable.exact
    return made
