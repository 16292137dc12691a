"""An all-reduce as CUDA: shuffles inside a warp, then shared memory. Every thread gets the result, combined in the same order everywhere.

Threads that reduce together and lie next to each other in the block (along threadIdx.x, or x and y ...) exchange values by a butterfly of
`__shfl_xor_sync`; beyond a warp, each warp leaves its part in shared memory. Others all leave their values there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ..tir.dtype import DType
from ..tir.expr import Load
from ..tir.gpu import WARP_SIZE
from ..tir.kernel import Grouping
from ..tir.passes.legalize import legal_expression
from ..tir.stmt import AllReduce
from .c_expressions import ATOM

if TYPE_CHECKING:
    from .cuda import CudaGenerator

_INDICES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
# what a shuffle moves; smaller types travel in an int
_SHUFFLED = ("float32", "float64", "int32", "uint32", "int64")


def scratch_bytes(s: AllReduce, block: Sequence[int]) -> int:
    """Bytes of shared memory that an all-reduce takes."""
    return Grouping(block, s.threads).slots * sum(target.dtype.bytes for target in s.targets)


class AllReduceWriter:
    """Writes one all-reduce. `repeats`: it stands in a loop, so that what is in shared memory must have been read before the next time."""

    def __init__(self, generator: CudaGenerator, s: AllReduce, block: Sequence[int], repeats: bool) -> None:
        self.generator, self.s, self.repeats = generator, s, repeats
        self.group = Grouping(block, s.threads)
        self.out, self.names, self.helpers = generator.out, generator.names, generator.helpers
        self.kinds = [target.dtype for target in s.targets]

    def write(self) -> None:
        """The statement, in braces."""
        with self.out.block("{"), self.names.scope():
            totals = [self.names.fresh("total") for _ in self.kinds]
            for name, kind, value in zip(totals, self.kinds, self.s.values, strict=True):
                self.out.line(f"{self._type(kind)} {name} = {self.generator.text(value)};")
            if self.group.in_warp > 1:
                self._shuffle(totals)
            if self.group.slots:
                self._through_shared_memory(totals)
            for target, text in zip(self.s.targets, self._combined([self.generator.text(t, ATOM) for t in self.s.targets], totals), strict=True):
                assert isinstance(target, Load)
                self.out.line(f"{self.generator.buffer(target.buffer)}[{self.generator.text(target.indices[0])}] = {text};")

    def _type(self, kind: DType) -> str:
        return self.helpers.scalar(kind)

    def _combined(self, left: list[str], right: list[str]) -> list[str]:
        """The texts of the combination of two tuples of values, each read once before any is written."""
        how = self.s.combination
        for variable, text in zip((*how.left, *how.right), (*left, *right), strict=True):
            self.generator.stands_for(variable, text)
        texts = [self.generator.text(legal_expression(e, self.generator.native_halves)) for e in how.results]
        if len(texts) == 1:
            return texts
        names = [self.names.fresh("new") for _ in texts]
        for name, kind, text in zip(names, self.kinds, texts, strict=True):
            self.out.line(f"const {self._type(kind)} {name} = {text};")
        return names

    def _accumulate(self, totals: list[str], others: list[str]) -> None:
        for name, text in zip(totals, self._combined(totals, others), strict=True):
            self.out.line(f"{name} = {text};")

    def _thread(self) -> str:
        """The number of this thread in its block."""
        x, y, _ = self.group.block
        words = ["threadIdx.x"]
        if self.group.block[1] > 1:
            words.append(f"{x} * threadIdx.y")
        if self.group.block[2] > 1:
            words.append(f"{x * y} * threadIdx.z")
        return f"(int)({' + '.join(words)})"

    def _mask(self) -> str:
        """The lanes of this warp that exist."""
        whole, rest = divmod(self.group.count, WARP_SIZE)
        if rest == 0:
            return "0xffffffffu"
        part = f"{(1 << rest) - 1:#x}u"
        return part if whole == 0 else f"{self._thread()} < {whole * WARP_SIZE} ? 0xffffffffu : {part}"

    def _shuffle(self, totals: list[str]) -> None:
        with self.names.scope():
            mask = self._mask()
            if "?" in mask:
                name = self.names.fresh("mask")
                self.out.line(f"const unsigned int {name} = {mask};")
                mask = name
            offset = self.names.fresh("offset")
            self.out.line("#pragma unroll")
            with self.out.block(f"for (int {offset} = {self.group.in_warp // 2}; {offset} > 0; {offset} >>= 1) {{"):
                others = [self.names.fresh("other") for _ in totals]
                for other, total, kind in zip(others, totals, self.kinds, strict=True):
                    word = total if kind.element in _SHUFFLED else f"(int){total}"
                    got = f"__shfl_xor_sync({mask}, {word}, {offset})"
                    self.out.line(f"const {self._type(kind)} {other} = {got if kind.element in _SHUFFLED else f'({self._type(kind)}){got}'};")
                self._accumulate(totals, others)

    def _through_shared_memory(self, totals: list[str]) -> None:
        group = self.group
        scratch = [self.names.fresh("shared_totals") for _ in totals]
        for name, kind in zip(scratch, self.kinds, strict=True):
            self.out.line(f"__shared__ {self._type(kind)} {name}[{group.slots}];")
        thread = self.names.fresh("thread")
        self.out.line(f"const int {thread} = {self._thread()};")
        if group.in_warp > 1:
            with self.out.block(f"if ({thread} % {WARP_SIZE} == 0) {{"):
                for name, total in zip(scratch, totals, strict=True):
                    self.out.line(f"{name}[{thread} / {WARP_SIZE}] = {total};")
        else:
            for name, total in zip(scratch, totals, strict=True):
                self.out.line(f"{name}[{thread}] = {total};")
        self.out.line("__syncthreads();")
        if group.in_warp > 1:
            self._sum_up(totals, scratch, f"{thread} / {group.size} * {group.size // WARP_SIZE}", [(group.size // WARP_SIZE, 1)])
        else:
            strides = (1, group.block[0], group.block[0] * group.block[1])
            first = " - ".join([thread, *(f"{strides[i]} * (int){_INDICES[i]}" for i in group.reduced)])
            self._sum_up(totals, scratch, first, [(group.block[i], strides[i]) for i in sorted(group.reduced, reverse=True)])
        if self.repeats:
            self.out.line("__syncthreads();")

    def _sum_up(self, totals: list[str], scratch: list[str], first: str, axes: list[tuple[int, int]]) -> None:
        """`totals` become the combination of the values at `first` and on along the axes of these extents and strides."""
        begin = self.names.fresh("first")
        self.out.line(f"const int {begin} = {first};")
        for total, name in zip(totals, scratch, strict=True):
            self.out.line(f"{total} = {name}[{begin}];")
        extent = prod(count for count, _ in axes)
        with self.names.scope():
            member = self.names.fresh("member")
            with self.out.block(f"for (int {member} = 1; {member} < {extent}; ++{member}) {{"):
                places, inner = [], extent
                for count, stride in axes:
                    inner //= count
                    place = member if inner == 1 else f"{member} / {inner}"
                    place = place if len(axes) == 1 or inner * count == extent else f"{place} % {count}"
                    places.append(place if stride == 1 else f"{place} * {stride}")
                at = " + ".join([begin, *places])
                others = [self.names.fresh("other") for _ in totals]
                for other, kind, name in zip(others, self.kinds, scratch, strict=True):
                    self.out.line(f"const {self._type(kind)} {other} = {name}[{at}];")
                self._accumulate(totals, others)
