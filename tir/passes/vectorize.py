"""Vectorize: loops of kind "vectorized" become vector expressions; one that cannot be right as lanes becomes a serial loop.

    for i in vectorized(16): C[i] = A[i] * 2.0   ->   for i_block in unrolled(2):
                                                          C[ramp(i_block * 8, 1, 8)] = A[ramp(i_block * 8, 1, 8)] * broadcast(2.0, 8)

Lanes are a power of two, at most what the target's vectors hold of the widest element in the body; what is left over is done in smaller powers of
two. What comes out, which is what generators must know:

* `Ramp` indices of loads and stores: contiguous (stride 1), strided (any stride, also reversed, also not constant); any other vector index is a
  gather. Stores have only ramps. The buffers have one dimension.
* What is the same for all lanes stays scalar, inside a `Broadcast` where a vector is needed. So a load of one element stays a scalar load.
* A vector of bools is a condition. A `Choice` with one becomes `Select`; the loads in its arms get the condition as `predicate`, except where they
  provably stay inside the buffer (what other lanes read is dropped). `IfThenElse` is left only with scalar conditions, its arms may be vectors.
  An integer division in an arm gets 1 as divisor in the lanes that do not take it.
* `If` with a condition that differs between lanes: the stores get a `predicate`, with `if` around for the case that no lane has anything to do. A
  store inside a buffer of scope "local", which should stay in registers, stores a `Select` with the old value instead, or simply all lanes where the
  others' elements are never used. Conditions read from memory are let-bound first, to a variable whose dtype is a vector of bools.
* Up to four blocks of lanes with conditions are written one by one instead of as a loop: often only the last needs its mask.
* Casts between elements of different widths keep the lanes: int8x8 -> int32x8.
* A buffer allocated in the body gets a copy for each lane: `T[i]` -> `T[i * lanes + lane]`.

Serial instead, because lanes would be wrong or slower: an iteration that uses what another stores, stores to one element, inner loops with extents
that differ between lanes, inner vectorised or parallel loops, stores of some lanes only to bytes or with strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, ClassVar

from ..affine import build, difference
from ..bounds import always_inside, constant_bounds, modulus
from ..dtype import BOOL
from ..expr import (
    LE,
    LT,
    Broadcast,
    Buffer,
    Choice,
    Comparison,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    IfThenElse,
    Load,
    Ramp,
    Var,
    add,
    broadcast,
    const,
    floordiv,
    floormod,
    if_then_else,
    load,
    logical_and,
    logical_not,
    maximum,
    minimum,
    mul,
    ramp,
    select,
)  # fmt: skip
from ..stmt import Allocate, Bind, For, Func, If, Prefetch, Seq, Stmt, Store, seq
from ..verify import CLOSED, FLAT, NO_VECTOR_LOOPS, PARTITIONED, TYPED
from ..visit import Rewriter, StatementRewriter, every_statement, loads_of, substitute, substitute_statement
from .copies import copy_statement
from .lanes import IdleLanes, LaneAnalysis, as_of_any_loop, conjuncts
from .manager import Pass

if TYPE_CHECKING:
    from ..target import Target


_FEW_BLOCKS = 4


@dataclass(frozen=True)
class Vectorize(Pass):
    """Turn vectorised loops into vectors. Options: `max_unrolled`: a loop over more blocks of lanes than this is left rolled up."""

    name: ClassVar[str] = "vectorize"
    requires: ClassVar[tuple[str, ...]] = (TYPED, CLOSED, FLAT, PARTITIONED)
    gives: ClassVar[tuple[str, ...]] = (NO_VECTOR_LOOPS,)

    max_unrolled: int = 16

    def run(self, func: Func, target: Target) -> Func:
        return func.with_body(_Loops(target, self.max_unrolled, IdleLanes(func.body)).rewrite_statement(func.body))


class _Loops(StatementRewriter):
    """Finds the vectorised loops, inner ones first."""

    def __init__(self, target: Target, max_unrolled: int, idle: IdleLanes):
        super().__init__()
        self.target, self.max_unrolled, self.idle = target, max_unrolled, idle
        self.written_by_others: set[Buffer] = set()  # stored to in the parallel loop around, from outside of which they are

    def rewrite_For(self, node: For) -> Stmt:
        before = self.written_by_others
        if node.kind == "parallel" and not before:
            inside = every_statement(node.body)
            own = {s.buffer for s in inside if isinstance(s, Allocate)}
            self.written_by_others = {s.buffer for s in inside if isinstance(s, Store)} - own
        body = self.rewrite_statement(node.body)
        self.written_by_others = before
        if node.kind != "vectorized":
            return node.with_body(body)
        inner_vectors = body is not node.body
        serial = For(node.var, node.extent, "serial", body, node.thread, node.pragmas)
        return serial if inner_vectors or serial.constant_extent is None else self._vectorized(serial)

    def _vectorized(self, s: For) -> Stmt:
        """The loop as blocks of lanes, from the widest down; as it is where lanes would be wrong."""
        extent = s.constant_extent
        assert extent is not None
        analysis = LaneAnalysis(s)
        if analysis.refusal is not None:
            shorter = trimmed(s)
            if shorter is s or shorter.constant_extent is None:
                return shorter
            s, analysis = shorter, LaneAnalysis(shorter)
            if analysis.refusal is not None:
                return s
            extent = shorter.constant_extent
        widest = 1
        while 2 * widest <= self.target.lanes(analysis.widest_bytes):
            widest *= 2
        pieces: list[Stmt] = []
        start, lanes = 0, widest
        while start < extent:
            blocks = (extent - start) // lanes
            if analysis.has_conditions and 1 < blocks <= _FEW_BLOCKS:
                blocks = 1  # written one by one, since often only one of them needs its mask
            if blocks:
                loop = s if not pieces else self._again(s)
                pieces.append(self._blocks(loop, analysis if loop is s else LaneAnalysis(loop), start, lanes, blocks))
                start += blocks * lanes
            if extent - start < lanes:
                lanes //= 2
        return seq(*pieces)

    @staticmethod
    def _again(s: For) -> For:
        """A copy of the loop with names of its own."""
        copy = copy_statement(s)
        assert isinstance(copy, For)
        return copy

    def _blocks(self, s: For, analysis: LaneAnalysis, start: int, lanes: int, blocks: int) -> Stmt:
        """`blocks` times `lanes` iterations, from iteration `start` on."""
        first: Expr = const(start, s.var.dtype)
        block = None
        if blocks > 1:
            block = Var(f"{s.var.name}_block", s.var.dtype, (0, blocks - 1))
            first = add(mul(block, const(lanes, block.dtype)), first)
        if lanes == 1:
            body = substitute_statement(s.body, {s.var: first})
        else:
            body = _Lanes(analysis, self.idle, first, lanes, self.written_by_others).statement(s.body)
        if block is None:
            return body
        kind = "unrolled" if blocks <= self.max_unrolled else "serial"
        return For(block, const(blocks, block.dtype), kind, body, None, s.pragmas)


class _Lanes(Rewriter):
    """Rewrites the body of one loop for `lanes` iterations at once, the first of them `first`.

    `mask` is the condition under which lanes run here, None where all do; `some`: whether then at least one does. Of what threads write meanwhile
    (`written_by_others`) idle lanes read nothing: it might be just what another thread writes.
    """

    def __init__(self, analysis: LaneAnalysis, idle: IdleLanes, first: Expr, lanes: int, written_by_others: set[Buffer]):
        super().__init__()
        self.written_by_others = written_by_others
        self.analysis, self.idle, self.first, self.lanes = analysis, idle, first, lanes
        self.variables: dict[Var, Expr] = {analysis.lane: ramp(first, 1, lanes)}
        self.buffers: dict[Buffer, Buffer] = {}
        self.mask: Expr | None = None
        self.some = True
        self.conditions: tuple[Expr, ...] = ()  # what the mask of statements is made of, as idle lanes are described
        self._memos: dict[tuple[Expr | None, bool], dict[Expr, Expr]] = {(None, True): self.memo}

    # ---------------------------------------------------------------------------------------------------------------- masks

    def _under(self, mask: Expr | None, some: bool) -> tuple[Expr | None, bool]:
        """From here on lanes run under `mask`; gives what held before, to be put back."""
        before = self.mask, self.some
        self.mask, self.some = mask, some
        self.memo = self._memos.setdefault((mask, some), {})
        return before

    def _joined(self, condition: Expr) -> Expr:
        return condition if self.mask is None else logical_and(self.mask, condition)

    def _vector(self, e: Expr) -> Expr:
        return broadcast(e, self.lanes) if e.dtype.lanes == 1 else e

    # ---------------------------------------------------------------------------------------------------------- expressions

    def rewrite_Expr(self, node: Expr) -> Expr:
        if not self.analysis.varies(node) and (self.mask is None or not self.analysis.hazard(node)):
            return node
        return self.rewrite_children(node)  # type: ignore[no-any-return]

    def rewrite_Var(self, node: Var) -> Expr:
        return self.variables.get(node, node)

    def rewrite_Load(self, node: Load) -> Expr:
        buffer, index = self._place(node.buffer, self.rewrite(node.indices[0]))
        predicate = None if node.predicate is None else self.rewrite(node.predicate)
        if self.mask is not None and not (index.dtype.lanes == 1 and self.some) and not self._may_be_read(buffer, index):
            predicate = self.mask if predicate is None else logical_and(self.mask, predicate)
            index = self._vector(index)
        elif predicate is not None and predicate.dtype.lanes > 1:
            index = self._vector(index)
        return load(buffer, (index,), predicate)

    def _may_be_read(self, buffer: Buffer, index: Expr) -> bool:
        """Whether reading lanes that are not wanted is harmless. What other threads of a block have not filled is not read."""
        return buffer not in self.written_by_others and not buffer.scope.startswith("shared") and always_inside(buffer, index)

    def _place(self, buffer: Buffer, index: Expr) -> tuple[Buffer, Expr]:
        """The buffer and index after each lane got its own copy of buffers allocated inside."""
        own = self.buffers.get(buffer)
        if own is None:
            return buffer, index
        return own, add(mul(index, const(self.lanes, index.dtype.element)), ramp(const(0, index.dtype.element), 1, self.lanes))

    def rewrite_Choice(self, node: Choice) -> Expr:
        analysis = self.analysis
        if not analysis.varies(node) and (self.mask is None or not analysis.hazard(node)):
            return node
        if node.__class__ is not IfThenElse:
            return select(self.rewrite(node.condition), self.rewrite(node.then), self.rewrite(node.otherwise))
        same, differing = self._split(node.condition)
        result = self.rewrite(node.then) if differing is None else self._per_lane(node, differing)
        return result if same is None else if_then_else(same, result, self.rewrite(node.otherwise))

    def _per_lane(self, node: Choice, differing: Expr) -> Expr:
        condition = self._vector(self.rewrite(differing))
        decided = _decided(condition)
        if decided is not None:
            return self.rewrite(node.then if decided else node.otherwise)
        then = self._arm(node.then, condition)
        if then.__class__ is Load and then.predicate is condition and _is_zero(node.otherwise):
            return then  # it gives 0 in the other lanes already
        return select(condition, then, self._arm(node.otherwise, logical_not(condition)))

    def _split(self, condition: Expr) -> tuple[Expr | None, Expr | None]:
        """What is the same for all lanes in a condition, rewritten, and what differs, as it is."""
        same: Expr | None = None
        differing: Expr | None = None
        for part in conjuncts(condition):
            if self.analysis.varies(part) or (self.mask is not None and self.analysis.hazard(part)):
                differing = part if differing is None else logical_and(differing, part)
            else:
                same = part if same is None else logical_and(same, part)
        return same, differing

    def rewrite_Comparison(self, node: Comparison) -> Expr:
        changed = self.rewrite_Expr(node)
        if changed is not node and changed.dtype.lanes > 1:
            low, high = constant_bounds(changed)
            if low == high and low is not None:
                return const(bool(low), changed.dtype)
        return changed

    def _arm(self, arm: Expr, condition: Expr) -> Expr:
        """What is evaluated in the lanes of `condition` only."""
        if not self.analysis.hazard(arm):
            return self.rewrite(arm)
        before = self._under(self._joined(condition), False)
        result = self.rewrite(arm)
        self._under(*before)
        return result

    def rewrite_FloorDiv(self, node: FloorDiv) -> Expr:
        return self._division(node)

    def rewrite_FloorMod(self, node: FloorMod) -> Expr:
        return self._division(node)

    def _division(self, node: FloorDiv | FloorMod) -> Expr:
        if not self.analysis.varies(node) and (self.mask is None or not self.analysis.hazard(node)):
            return node
        a, b = self.rewrite(node.a), self.rewrite(node.b)
        if self.mask is not None and node.b.__class__ is not Const and not _never_zero(b):
            b = select(self.mask, self._vector(b), broadcast(const(1, b.dtype.element), self.lanes))
        return lane_division(node.make, a, b)

    # ----------------------------------------------------------------------------------------------------------- statements

    def statement(self, s: Stmt) -> Stmt:
        """`s` for all lanes."""
        return self.rewrite_statement(s)

    def rewrite_Store(self, node: Store) -> Stmt:
        buffer, index = self._place(node.buffer, self.rewrite(node.indices[0]))
        value = self._vector(self.rewrite(node.value))
        predicate = self.mask
        if node.predicate is not None:
            predicate = self._vector(self._joined(self.rewrite(node.predicate)))
        if predicate is not None and (buffer.scope == "local" or buffer is not node.buffer) and always_inside(buffer, index):
            if node.predicate is None and self.conditions and self.idle.never_seen(buffer, self.conditions):
                return Store(buffer, (index,), value)
            return Store(buffer, (index,), select(predicate, value, load(buffer, (index,))))
        return Store(buffer, (index,), value, predicate)

    def rewrite_For(self, node: For) -> Stmt:
        return For(node.var, self.rewrite(node.extent), node.kind, self.rewrite_statement(node.body), node.thread, node.pragmas)

    def rewrite_Allocate(self, node: Allocate) -> Stmt:
        old = node.buffer
        size = old.constant_size
        assert size is not None
        new = self.buffers[old] = Buffer(old.name, (size * self.lanes,), old.dtype, old.scope)
        return Allocate(new, self.rewrite_statement(node.body), node.place)

    def rewrite_Bind(self, node: Bind) -> Stmt:
        value = self.rewrite(node.value)
        if value.dtype.lanes == 1:
            var = node.var
        else:
            var = node.var.fresh(value.dtype)
            self.variables[node.var] = var
        return Bind(var, value, self.rewrite_statement(node.body))

    def rewrite_Prefetch(self, node: Prefetch) -> Stmt:
        if node.buffer in self.buffers:
            return Seq(())  # it was written just now
        return Prefetch(node.buffer, tuple(substitute(i, {self.analysis.lane: self.first}) for i in node.indices))

    def rewrite_If(self, node: If) -> Stmt:
        whole = node.otherwise is not None and self.analysis.varies(node.condition)
        same, differing = (None, node.condition) if whole else self._split(node.condition)
        if differing is None:
            assert same is not None
            return If(same, self.rewrite_statement(node.then), None if node.otherwise is None else self.rewrite_statement(node.otherwise))
        result = self._if_per_lane(node, differing)
        return result if same is None else If(same, result)

    def _if_per_lane(self, node: If, differing: Expr) -> Stmt:
        condition = self._vector(self.rewrite(differing))
        decided = _decided(condition)
        if decided is not None:
            chosen = node.then if decided else node.otherwise
            return Seq(()) if chosen is None else self.rewrite_statement(chosen)
        named = None
        if loads_of(differing):  # a store inside may change what it reads
            named = Var("taken", BOOL.vector(self.lanes))
            condition, value = named, condition
        any_lane = self._any_lane(conjuncts(differing)) if self.mask is None and node.otherwise is None else None
        before, around = self._under(self._joined(condition), any_lane is not None), self.conditions
        # with no condition around, or one of them unknown, nothing is known
        self.conditions = (*around, *[as_of_any_loop(c, self.analysis.lane) for c in conjuncts(differing)]) if before[0] is None or around else ()
        then = self.rewrite_statement(node.then)
        self._under(*before)
        otherwise, self.conditions = None, ()
        if node.otherwise is not None:
            before = self._under(self._joined(logical_not(condition)), False)
            otherwise = self.rewrite_statement(node.otherwise)
            self._under(*before)
        self.conditions = around
        result = seq(then, otherwise)
        if any_lane is not None:
            low, high = constant_bounds(any_lane)
            if low == high:
                return result if low else Seq(())
            return If(any_lane, result)
        return result if named is None else Bind(named, value, result)

    def _any_lane(self, conditions: Sequence[Expr]) -> Expr | None:
        """The scalar condition that some lane satisfies all `conditions`: that the lane does for which each is easiest; None where that is not one lane."""
        easiest: set[bool] = set()  # whether it is the first lane
        for condition in conditions:
            if condition.__class__ not in (LT, LE) or not (condition.a.exact and condition.b.exact):
                return None
            terms, _ = difference(condition.b, condition.a)
            step = terms.pop(self.analysis.lane, 0)
            if any(self.analysis.varies(atom) for atom in terms):
                return None
            easiest.add(step < 0)
        if len(easiest) != 1:
            return None
        lane = self.first if easiest.pop() else add(self.first, const(self.lanes - 1, self.first.dtype))
        result: Expr = const(True, BOOL)
        for condition in conditions:
            result = logical_and(result, substitute(condition, {self.analysis.lane: lane}))
        return result


def trimmed(s: For) -> For:
    """A serial loop whose body is an `If` that holds up to some iteration: that many iterations, without the test for it."""
    if s.body.__class__ is not If or s.body.otherwise is not None:
        return s
    extent, left = s.extent, const(True, BOOL)
    for condition in conjuncts(s.body.condition):
        if condition.__class__ in (LT, LE) and condition.a.exact and condition.b.exact:
            terms, constant = difference(condition.b, condition.a)
            step = terms.pop(s.var, 0)
            if step < 0 and not any(s.var in atom.variables or loads_of(atom) for atom in terms):
                constant -= condition.__class__ is LT
                last = floordiv(build(terms, constant, s.var.dtype), const(-step, s.var.dtype))
                extent = minimum(extent, add(last, const(1, last.dtype)))
                continue
        left = logical_and(left, condition)
    if extent is s.extent:
        return s
    body = s.body.then if left.__class__ is Const else If(left, s.body.then)
    return For(s.var, maximum(extent, const(0, extent.dtype)), s.kind, body, s.thread, s.pragmas)


def lane_division(make: object, a: Expr, b: Expr) -> Expr:
    """`a // b` or `a % b` of vectors, as a Ramp or Broadcast where the lanes of a ramp all have one quotient, or quotients in a row."""
    is_quotient = make is floordiv
    by = b.value if b.__class__ is Broadcast else b
    if a.__class__ is Ramp and a.exact and a.stride.__class__ is Const and by.__class__ is Const and by.value > 0:
        lanes, step, divisor = a.dtype.lanes, a.stride.value, by.value
        if step % divisor == 0:
            if is_quotient:
                return ramp(floordiv(a.base, by), step // divisor, lanes)
            return broadcast(floormod(a.base, by), lanes)
        known, residue = modulus(a.base)
        apart = gcd(known, divisor)
        ends = residue % apart, residue % apart + step * (lanes - 1)
        if min(ends) >= 0 and max(ends) < apart:
            return broadcast(floordiv(a.base, by), lanes) if is_quotient else ramp(floormod(a.base, by), step, lanes)
    return floordiv(a, b) if is_quotient else floormod(a, b)


def _decided(condition: Expr) -> bool | None:
    """Whether a vector of bools is all true or all false, where that is known."""
    scalar = condition.value if condition.__class__ is Broadcast else condition
    return bool(scalar.value) if scalar.__class__ is Const else None


def _is_zero(e: Expr) -> bool:
    """Whether `e` is the constant 0, as a predicated load gives it: not -0.0."""
    return e.__class__ is Const and str(e.value) in ("0", "0.0")


def _never_zero(e: Expr) -> bool:
    low, high = constant_bounds(e)
    return (low is not None and low > 0) or (high is not None and high < 0)
