"""Thread all-reduce: what threads combine together becomes shuffles inside a warp, and shared memory where that is not enough."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ..expr import Buffer, Expr, Var, add, as_expr, call, const, eq, floordiv, floormod, load, mul
from ..gpu import WARP_SIZE
from ..kernel import THREAD_INDICES
from ..simplify import Analyzer
from ..stmt import Allocate, AllReduce, For, Func, If, Shuffle, Stmt, Store, nested, seq
from ..target import Target
from ..verify import CLOSED, THREADS_BOUND
from ..visit import StatementRewriter, combine_into
from .manager import Pass


@dataclass(frozen=True)
class ThreadAllReduce(Pass):
    """Threads that lie next to each other in the block (along threadIdx.x, or x and y ...) exchange values by a butterfly, so that each has the result;
    beyond a warp, each warp leaves its part in shared memory. Of 64 threads:

        S[] = all_reduce[threadIdx.x](A[t])    ->    S.own[] = A[t]
                                                     for step in unrolled(5):
                                                         S.other[] = shuffle(S.own[]) xor (16 >> step)
                                                         S.own[] = S.own[] + S.other[]
                                                     if t % 32 == 0: S.all[0, t // 32] = S.own[]
                                                     for n in range(2): S[] = S[] + S.all[0, n]

    Others, and a number of threads that is neither a power of two within a warp nor a number of warps, all leave their values there. Every thread combines
    the same values, in an order that is the same but for the operands of one combination, which commutes. Barriers and the place of `S.all` are left to the
    passes for these.
    """

    name: ClassVar[str] = "all_reduce"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, THREADS_BOUND)

    def run(self, func: Func, target: Target) -> Func:
        return func.with_body(_Lowering().rewrite_statement(func.body))


class _Lowering(StatementRewriter):
    """`threads`: of the loops over threads around, the variable and the extent, by tag; `shared`: what the kernel needs in shared memory."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, tuple[Var, int]] = {}
        self.shared: list[Buffer] = []

    def rewrite_For(self, node: For) -> Stmt:
        if node.thread not in THREAD_INDICES:
            return node.with_body(self.rewrite_statement(node.body))
        around, self.threads = self.threads, {**self.threads, node.thread: (node.var, node.constant_extent or 1)}
        new: Stmt = node.with_body(self.rewrite_statement(node.body))
        self.threads = around
        if not around:
            for buffer in reversed(self.shared):
                new = Allocate(buffer, new)
            self.shared = []
        return new

    def rewrite_AllReduce(self, node: AllReduce) -> Stmt:
        wide = [tag for tag in THREAD_INDICES if self.threads.get(tag, (None, 1))[1] > 1]  # threadIdx.x first: neighbours
        along = [tag for tag in wide if tag in node.threads]
        size = prod(self.threads[tag][1] for tag in along)
        in_warp = _lanes(size) if along == wide[: len(along)] else 1
        own, other = ([Buffer(f"{t.buffer.name}.{name}", (), t.dtype, "local") for t in node.loads] for name in ("own", "other"))
        mine = [load(buffer, ()) for buffer in own]
        if in_warp == 1:
            return self._through_shared_memory(node, node.values, along, wide) if along else combine_into(node.combination, node.targets, node.values)
        step = Var("step", "int32", (0, in_warp.bit_length() - 2))
        lanes = call("shift_right", const(in_warp // 2, "int32"), step)
        shuffles = [Shuffle(load(buffer, ()), value, lanes) for buffer, value in zip(other, mine, strict=True)]
        update = combine_into(node.combination, mine, [load(buffer, ()) for buffer in other])
        parts = [
            *[Store(buffer, (), value) for buffer, value in zip(own, node.values, strict=True)],
            For(step, as_expr(in_warp.bit_length() - 1), "unrolled", seq(*shuffles, update)),
            combine_into(node.combination, node.targets, mine) if in_warp == size else self._of_warps(node, mine, size, wide),
        ]
        body = seq(*parts)
        for buffer in reversed((*own, *other)):
            body = Allocate(buffer, body)
        return body

    def _of_warps(self, node: AllReduce, values: list[Expr], size: int, wide: list[str]) -> Stmt:
        """What the warps have is combined: `size` threads are some of them, and reduce together."""
        number, stride = as_expr(0), 1
        for tag in wide:
            var, extent = self.threads[tag]
            number, stride = add(number, mul(var, as_expr(stride))), stride * extent
        simplify = Analyzer().simplify
        warps, warp = size // WARP_SIZE, simplify(floordiv(number, as_expr(WARP_SIZE)))
        group = simplify(floordiv(warp, as_expr(warps)))
        first_lane = eq(simplify(floormod(number, as_expr(WARP_SIZE))), as_expr(0))
        buffers = self._allocated(node, (stride // size, warps))
        left = seq(*[Store(buffer, (group, simplify(floormod(warp, as_expr(warps)))), value) for buffer, value in zip(buffers, values, strict=True)])
        return seq(If(first_lane, left), _gathered(node, buffers, [group, None], (stride // size, warps)))

    def _through_shared_memory(self, node: AllReduce, values: tuple[Expr, ...], along: list[str], wide: list[str]) -> Stmt:
        """Each thread leaves what it has."""
        axes = wide[::-1]
        extents = tuple(self.threads[tag][1] for tag in axes)
        buffers = self._allocated(node, extents)
        place = tuple(self.threads[tag][0] for tag in axes)
        left = [Store(buffer, place, value) for buffer, value in zip(buffers, values, strict=True)]
        return seq(*left, _gathered(node, buffers, [None if tag in along else self.threads[tag][0] for tag in axes], extents))

    def _allocated(self, node: AllReduce, shape: tuple[int, ...]) -> list[Buffer]:
        found = [Buffer(f"{target.buffer.name}.all", shape, target.dtype, "shared") for target in node.loads]
        self.shared += found
        return found


def _lanes(size: int) -> int:
    """How many neighbours of so many that reduce together do so by shuffles."""
    if size & (size - 1) == 0 and size <= WARP_SIZE:
        return size
    return WARP_SIZE if size % WARP_SIZE == 0 else 1


def _gathered(node: AllReduce, buffers: list[Buffer], place: list[Expr | None], extents: tuple[int, ...]) -> Stmt:
    """The targets combined with what is in the buffers at `place`, at all indices where that is None."""
    loops = {
        n: For(Var("member", "int32", (0, extent - 1)), as_expr(extent), "serial", seq())
        for n, (index, extent) in enumerate(zip(place, extents, strict=True))
        if index is None
    }
    where = [loops[n].var if index is None else index for n, index in enumerate(place)]
    return nested(list(loops.values()), combine_into(node.combination, node.targets, [load(buffer, where) for buffer in buffers]))
