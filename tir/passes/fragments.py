"""Fragments: matrices that a warp holds in registers, for its tensor cores. What they ask for is checked, and their tiles are laid one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, ClassVar

from ..bounds import constant_bounds, modulus
from ..errors import ScheduleError, TargetError
from ..expr import Buffer, Const, Expr, Load, add, as_expr, const, floordiv, load, mul
from ..gpu import WARP_SIZE, is_fragment
from ..kernel import Kernel, kernels_of
from ..simplify import Analyzer
from ..stmt import Allocate, CallIntrinsic, Fragment, Func, Produce, Stmt, Store
from ..verify import CLOSED, THREADS_BOUND
from ..visit import Rewriter, every_statement, operands_of, statements_in, walk
from .flatten import strides_of
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True)
class Fragments(Pass):
    """A buffer of scope "wmma.*" is made of tiles, in its last two dimensions; each becomes a piece of its own, of which a lane has a 32nd:

        allocate F: float16[32, 64] in wmma.matrix_a                 allocate F: float16[2, 4, 16, 16] in wmma.matrix_a
        intrinsic load_a(dst=&F[16, k * 16] ..., src=...)      ->    intrinsic load_a(dst=&F[1, k, 0, 0] ..., src=...)

    Only intrinsics know which lane has which element. So a ScheduleError says where something else reads or writes such a buffer, where an intrinsic has
    an operand of another scope than it is for, where two intrinsics take one buffer for different layouts or other tiles, where a tile is turned or begins
    inside another one, where an operand in memory is not as aligned as the intrinsic asks for, or is no matrix with a leading dimension where it asks for
    one, and where a kernel has fragments of mma.sync and of wmma; a TargetError, where a warp is not the 32 threads along threadIdx.x.
    """

    name: ClassVar[str] = "fragments"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, THREADS_BOUND)

    def run(self, func: Func, target: Target) -> Func:
        if not any(isinstance(s, CallIntrinsic) or (isinstance(s, Allocate) and is_fragment(s.buffer.scope)) for s in every_statement(func.body)):
            return func
        for kernel in kernels_of(func):
            if any(isinstance(node, Allocate) and is_fragment(node.buffer.scope) for node in walk(kernel.body)):
                _check_warp(kernel.name, kernel.indices.get("threadIdx.x", (None, const(1)))[1])
                _check_family(kernel)
        check = _Check()
        check.statement(func.body, "?")
        return func.with_body(_Tiler(check.tiles).rewrite_statement(func.body)) if check.tiles else func


def _check_warp(kernel: str, extent: Expr) -> None:
    if not isinstance(extent, Const) or extent.value != WARP_SIZE:
        raise TargetError(f"kernel {kernel}: it has fragments, which the {WARP_SIZE} lanes of a warp hold, but the extent of threadIdx.x is {extent}: "
                          f"bind axes of {WARP_SIZE} to threadIdx.x (of the copies to shared memory, say), and a block's warps to threadIdx.y")  # fmt: skip


def _check_family(kernel: Kernel) -> None:
    """A ScheduleError where a kernel has fragments of mma.sync, whose registers are known, and of wmma, whose are not."""
    found: dict[str, str] = {}
    for node in walk(kernel.body):
        if isinstance(node, CallIntrinsic):
            for operand, fragment in node.code.fragments.items():
                found.setdefault(fragment.layout.partition(" ")[0], f"intrinsic {node.code.name} (operand {operand}: {fragment.layout!r})")
    if "mma" in found and "wmma" in found:
        raise ScheduleError(f"kernel {kernel.name} mixes fragments of mma.sync, of {found['mma']}, with those of wmma, of {found['wmma']}, which lie in "
                            "registers otherwise; take all intrinsics of a kernel from one of the sets: \"mma_*\" or \"wmma_*\"")  # fmt: skip


@dataclass(frozen=True)
class _Tiles:
    """What is known of a buffer: the layout of its tiles and their shape, and the intrinsic that it is known from."""

    fragment: Fragment
    shape: tuple[int, ...]
    code: str

    @property
    def copies(self) -> tuple[int, ...]:
        """The extent of the dimension for copies of elements, if there is one."""
        return (self.fragment.copies,) if self.fragment.copies > 1 else ()


class _Check:
    """Looks at all accesses. `tiles`: of each buffer."""

    def __init__(self) -> None:
        self.tiles: dict[Buffer, _Tiles] = {}

    def statement(self, s: Stmt, stage: str) -> None:
        if isinstance(s, Produce):
            stage = s.name
        if isinstance(s, CallIntrinsic):
            for number in range(len(s.args)):
                self._operand(s, number, stage)
        else:
            self._ordinary(s, stage)
        for inner in statements_in(s):
            self.statement(inner, stage)

    def _ordinary(self, s: Stmt, stage: str) -> None:
        found = [node.buffer for e in operands_of(s) for node in walk(e) if isinstance(node, Load)]
        if isinstance(s, Store):
            found.insert(0, s.buffer)
        for buffer in found:
            if is_fragment(buffer.scope):
                how = "stores to" if isinstance(s, Store) and s.buffer is buffer else "reads"
                raise ScheduleError(f"stage {stage} {how} {buffer.name} of scope {buffer.scope} element by element, but which lane of a warp has which element "
                                    f"only intrinsics know; tensorize its loops with one (docs/cuda.md lists them), or use another scope")  # fmt: skip

    def _operand(self, s: CallIntrinsic, number: int, stage: str) -> None:
        code, first = s.code, s.loads[number]
        operand, buffer, shape = code.operands[number], first.buffer, code.shapes[number]
        what = f"stage {stage}: operand {operand} of intrinsic {code.name}"
        fragment = code.fragments.get(operand)
        if fragment.scope != buffer.scope if fragment is not None else is_fragment(buffer.scope):
            expected = f"a buffer of scope {fragment.scope}" if fragment is not None else "memory, not a fragment"
            raise ScheduleError(f"{what} must be {expected}, but {buffer.name} has scope {buffer.scope}; use set_scope, cache_read or cache_write with that "
                                f"scope, or another intrinsic")  # fmt: skip
        if fragment is not None:
            self._fragment(what, buffer, _Tiles(fragment, shape, code.name), s, number)
        if operand in code.in_shared and not buffer.scope.startswith("shared"):
            raise ScheduleError(
                f"{what} must be in shared memory, but {buffer.name} has scope {buffer.scope}; read it through s.cache_read(..., 'shared', ...)"
            )
        if operand in code.aligned or operand in code.leading:
            _check_aligned(what, first, s.steps[number], shape, code.aligned.get(operand, buffer.dtype.bytes), code.leading.get(operand))

    def _fragment(self, what: str, buffer: Buffer, tiles: _Tiles, s: CallIntrinsic, number: int) -> None:
        known = self.tiles.setdefault(buffer, tiles)
        if known.fragment.layout != tiles.fragment.layout or known.shape != tiles.shape:
            found, expected = (f"tiles of {_times(each.shape)} in the layout {each.fragment.layout!r}" for each in (known, tiles))
            raise ScheduleError(
                f"{what}: {buffer.name} has {found}, by intrinsic {known.code}, but here {expected} are expected; use intrinsics that belong together"
            )
        first, outer = s.loads[number], len(buffer.shape) - len(tiles.shape)
        for dimension, along in enumerate(s.steps[number]):
            wanted = [int(each == outer + dimension) for each in range(len(buffer.shape))]
            if tiles.shape[dimension] > 1 and [e.value if isinstance(e, Const) else None for e in along] != wanted:
                raise ScheduleError(f"{what}: the tile of {buffer.name} is turned, or its rows are apart: expected neighbours along dimension {dimension} of "
                                    f"the tile to be neighbours along dimension {outer + dimension} of {buffer.name}; declare the stage with its axes in that "
                                    f"order, or use the intrinsic for the other order")  # fmt: skip
        for extent, whole, index in zip(tiles.shape, buffer.shape[outer:], first.indices[outer:], strict=True):
            if not isinstance(whole, int) or whole % extent or not _divides(extent, index):
                raise ScheduleError(f"{what}: {first} does not begin a tile, of {_times(tiles.shape)}, of {buffer.name}, which has "
                                    f"{_times(buffer.shape)} elements; split by multiples of the tile's extents")  # fmt: skip


def _times(shape: Sequence[object]) -> str:
    return " x ".join(map(str, shape))


def _divides(n: int, e: Expr) -> bool:
    """Whether `e` is a multiple of `n`."""
    step, rest = modulus(e)
    return gcd(step, rest) % n == 0


def _check_aligned(what: str, first: Load, steps: Sequence[tuple[Expr, ...]], shape: Sequence[int], bytes_: int, leading: int | None) -> None:
    """A ScheduleError where an operand does not lie as its intrinsic wants it: `bytes_` of its alignment, `leading` that its rows are apart, if they need not
    be as aligned as the first."""
    buffer = first.buffer
    if buffer.scope == "local" and bytes_ > max(4, buffer.dtype.bytes):
        raise ScheduleError(f"{what}: expected memory that is aligned to {bytes_} bytes, but {buffer.name} of scope local is memory of one thread, aligned to "
                            f"{max(4, buffer.dtype.bytes)}; use set_scope('shared')")  # fmt: skip
    strides = strides_of(buffer)

    def flat(indices: Sequence[Expr]) -> Expr:
        total: Expr = const(0)
        for index, stride in zip(indices, strides, strict=True):
            total = add(total, mul(index, stride))
        return Analyzer().simplify(total)

    start = flat(first.indices)
    if leading is not None:
        _check_leading(what, first, [flat(along) for along in steps], start, bytes_, leading)
        return
    distances = [flat(along) for along, extent in zip(steps, shape, strict=True) if extent > 1]
    elements = max(1, bytes_ // buffer.dtype.bytes)
    side_by_side = next((d for d in distances if isinstance(d, Const) and d.value == 1), None)
    wrong = [d for d in distances if d is not side_by_side and not _divides(elements, d)]
    if side_by_side is None or wrong or not _divides(elements, start):
        found = f"neighbours are {', '.join(map(str, distances))} elements apart, and it begins at element {start}"
        raise ScheduleError(f"{what}: expected elements that lie side by side along one dimension and begin at multiples of {elements} elements "
                            f"({bytes_} bytes) along the others; in {buffer.name} {found}. "
                            "Choose factors, storage_align or transform_layout so that they do")  # fmt: skip


def _check_leading(what: str, first: Load, distances: Sequence[Expr], start: Expr, bytes_: int, leading: int) -> None:
    """A ScheduleError where an operand is no matrix that its first element and its leading dimension tell."""
    dtype = first.buffer.dtype
    elements, row = max(1, bytes_ // dtype.bytes), max(1, leading // dtype.bytes)
    apart, along = distances
    low = constant_bounds(apart)[0]
    found = f"in {first.buffer.name}"
    if not isinstance(along, Const) or along.value != 1:
        found += f" neighbours along that dimension are {along} elements apart; use the intrinsic for the other order of rows and columns"
    elif not _divides(row, apart) or low is None or low < 0:
        found += f" rows are {apart} elements apart"
    elif not _divides(elements, start):
        found += f" it begins at element {start}; declared with its axes the other way round, it may begin at one"
    else:
        return
    raise ScheduleError(f"{what}: expected a matrix in memory that begins at a multiple of {elements} elements ({bytes_} bytes), whose elements lie side by "
                        f"side along its last dimension, in rows that are a positive multiple of {row} elements ({leading} bytes) apart; {found}. "
                        "Choose factors, storage_align or s.pad so that it is one")  # fmt: skip


class _Tiler(Rewriter):
    """Gives each buffer dimensions more: those inside a tile, and before them one for the copies of elements, if several lanes hold each."""

    def __init__(self, tiles: dict[Buffer, _Tiles]):
        super().__init__()
        self.tiles = tiles
        self.new = {buffer: self._tiled(buffer, each) for buffer, each in tiles.items()}

    @staticmethod
    def _tiled(buffer: Buffer, tiles: _Tiles) -> Buffer:
        shape = tiles.shape
        outer = len(buffer.shape) - len(shape)
        counts = [int(whole) // extent for whole, extent in zip(buffer.shape[outer:], shape, strict=True) if isinstance(whole, int)]
        return Buffer(buffer.name, (*buffer.shape[:outer], *counts, *tiles.copies, *shape), buffer.dtype, buffer.scope)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        body = self.rewrite_statement(node.body)
        return Allocate(self.new.get(node.buffer, node.buffer), body, node.place)

    def rewrite_CallIntrinsic(self, node: CallIntrinsic) -> Stmt:
        args, steps = list(node.args), list(node.steps)
        analyzer = Analyzer()
        for number, first in enumerate(node.loads):
            if first.buffer not in self.new:
                continue
            new, shape, copies = self.new[first.buffer], self.tiles[first.buffer].shape, self.tiles[first.buffer].copies
            outer = len(first.indices) - len(shape)
            tile = [analyzer.simplify(floordiv(index, const(extent, index.dtype))) for index, extent in zip(first.indices[outer:], shape, strict=True)]
            args[number] = load(new, (*first.indices[:outer], *tile, *(as_expr(0) for _ in (*copies, *shape))))
            before = outer + len(shape) + len(copies)
            steps[number] = tuple(tuple(as_expr(int(at == before + dimension)) for at in range(len(new.shape))) for dimension in range(len(shape)))
        return CallIntrinsic(node.code, tuple(args), tuple(steps))
