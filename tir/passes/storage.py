"""Storage: where each intermediate buffer lives, and which of them share bytes because they are never needed at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..dtype import INT64
from ..errors import TargetError
from ..expr import Buffer, Const, Expr, Var, add, as_expr, cast, const, floordiv, mul
from ..gpu import WARP_SIZE, is_fragment
from ..liveness import LiveRange, Meetings, live_ranges
from ..stmt import Allocate, Func, Place, Prefetch, Seq, Stmt
from ..target import Target
from ..verify import CLOSED, FLAT, PLACED
from ..visit import StatementRewriter, statements_in, substitute
from .manager import Pass

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True)
class Storage(Pass):
    """`allocate T: float32[4096]` -> `allocate T: float32[4096] at call + 0`, and `workspace_bytes` of the function.

    Small buffers of scope "local" go on the stack, where the C compiler may keep them in registers. Others get an offset in a workspace: that of
    the call, or inside a parallel loop that of the thread. Buffers are placed largest first, each at the lowest offset where no buffer that
    is needed at the same time lies (first fit); those whose size is an expression come after them, and share with buffers of equal size.
    An allocation that is never accessed goes away. What a GPU's blocks share is placed by shared_memory.py.

    Options: `stack_bytes`: the most that buffers in scope at once take of the stack.
    """

    name: ClassVar[str] = "storage"
    requires: ClassVar[tuple[str, ...]] = (CLOSED, FLAT)
    gives: ClassVar[tuple[str, ...]] = (PLACED,)

    stack_bytes: int = 64 << 10

    def run(self, func: Func, target: Target) -> Func:
        ranges = live_ranges(func)
        if not ranges:
            return func
        used = [r for r in ranges if r.last >= r.first]
        places: dict[Allocate, Place] = {}
        for each in self._on_stack(func.body, {r.allocate for r in used}):
            places[each] = Place("stack")
        places.update({r.allocate: r.allocate.place for r in used if r.allocate.place is not None and r.allocate.place.kind == "shared"})
        elsewhere = [r for r in used if r.allocate not in places]
        totals = []
        for kind in ("call", "thread"):
            offsets, total = place_in_workspace([r for r in elsewhere if r.in_parallel == (kind == "thread")])
            places.update({allocate: Place(kind, offset) for allocate, offset in offsets.items()})
            totals.append(total)
        known = [n if isinstance(n, int) else 0 for n in totals]
        if known[0] + known[1] * target.threads > INT64.high:
            raise TargetError(
                f"{func.name}: its intermediate tensors take {known[0]} bytes, and {known[1]} in each of {target.threads} threads, "
                "together more than any address can reach"
            )
        body = _Placer(places).rewrite_statement(func.body)
        if body is func.body and all(_same(a, b) for a, b in zip(totals, func.workspace_bytes, strict=True)):
            return func
        return Func(func.name, func.params, func.outputs, body, func.sizes, (totals[0], totals[1]))

    def _on_stack(self, body: Stmt, used: set[Allocate]) -> list[Allocate]:
        """The allocations that go on the stack; an allocation that does not fit beside those around it does not."""
        chosen: list[Allocate] = []

        def visit(s: Stmt, left: int) -> None:
            if s.__class__ is Allocate and s in used and (s.buffer.scope == "local" or is_fragment(s.buffer.scope)):
                size = s.buffer.constant_size
                if size is not None and is_fragment(s.buffer.scope):
                    size //= WARP_SIZE
                if size is not None and size * s.buffer.dtype.bytes <= left:
                    chosen.append(s)
                    left -= _aligned(size * s.buffer.dtype.bytes)
            for inner in statements_in(s):
                visit(inner, left)

        visit(body, self.stack_bytes)
        return chosen


def place_in_workspace(ranges: list[LiveRange]) -> tuple[dict[Allocate, int | Expr], int | Expr]:
    """Offsets in one workspace, and its bytes."""
    fixed = [(r, _bytes(r)) for r in ranges]
    offsets: dict[Allocate, int | Expr] = {}
    total = 0
    meetings = Meetings(ranges)
    taken: dict[LiveRange, tuple[int, int]] = {}  # from where to where
    for each, size in sorted(((r, n) for r, n in fixed if isinstance(n, int)), key=lambda pair: (-pair[1], pair[0].first)):
        begin = 0
        for begin_taken, end_taken in sorted(taken[other] for other in meetings.of(each)):
            if begin + size <= begin_taken:
                break
            begin = max(begin, end_taken)
        taken[each] = begin, begin + size
        meetings.add(each)
        offsets[each.allocate] = begin
        total = max(total, begin + size)
    slots: list[tuple[Expr, list[LiveRange], int | Expr]] = []  # of buffers whose size is an expression
    end: int | Expr = total
    for each, bytes_ in fixed:
        if isinstance(bytes_, int):
            continue
        slot = next((s for s in slots if s[0] is bytes_ and not any(r.meets(each) for r in s[1])), None)
        if slot is None:
            slot = (bytes_, [], end)
            slots.append(slot)
            end = add(as_expr(end), bytes_)
        slot[1].append(each)
        offsets[each.allocate] = slot[2]
    return offsets, end


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _bytes(r: LiveRange) -> int | Expr:
    """What a buffer takes of a workspace; an expression is of int64, as it is outside the body where widths are chosen."""
    buffer = r.allocate.buffer
    if buffer.constant_size is not None:
        return _aligned(buffer.constant_size * buffer.dtype.bytes)
    size = as_expr(buffer.shape[0])
    wide: dict[Var, Expr] = {v: cast(v, INT64) for v in size.variables}
    size = mul(substitute(size, wide), const(buffer.dtype.bytes, INT64))
    return mul(floordiv(add(size, const(ALIGNMENT - 1, INT64)), const(ALIGNMENT, INT64)), const(ALIGNMENT, INT64))


def _same(a: int | Expr, b: int | Expr) -> bool:
    a, b = (int(x.value) if isinstance(x, Const) else x for x in (a, b))
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


class _Placer(StatementRewriter):
    """Writes the places down."""

    def __init__(self, places: dict[Allocate, Place]):
        super().__init__()
        self.places = places
        self._gone: set[Buffer] = set()

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        place = self.places.get(node)
        if place is None:  # never accessed
            self._gone.add(node.buffer)
            return self.rewrite_statement(node.body)
        body = self.rewrite_statement(node.body)
        old = node.place
        if body is node.body and old is not None and old.kind == place.kind and _same(old.offset, place.offset):
            return node
        return Allocate(node.buffer, body, place)

    def rewrite_Prefetch(self, node: Prefetch) -> Stmt:
        return Seq(()) if node.buffer in self._gone else node
