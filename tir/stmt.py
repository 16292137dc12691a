"""Statements, and the function that holds them.

Not interned: a statement is a small object, compared by identity, and never changed after it was made. Loops run from 0; their extent may be an
expression. A loop of kind "parallel" may run its iterations in any order and at once, "vectorized" all together as lanes, "unrolled" in order but
written out; "thread" is an index of a GPU (`thread` says which).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .dtype import DType
from .errors import TargetError
from .expr import Buffer, Const, Expr, Load, Var, add, as_expr, load, maximum, minimum
from .printer import Names, function_text, statement_lines


class Stmt:
    """A statement."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(statement_lines(self, Names()))

    __repr__ = __str__


@dataclass(slots=True, eq=False, repr=False)
class Store(Stmt):
    """`buffer[indices] = value`; only the lanes where `predicate` holds are written."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    predicate: Expr | None = None


@dataclass(slots=True, eq=False, repr=False)
class Seq(Stmt):
    """One after another. Make it with `seq`, which keeps it flat."""

    body: tuple[Stmt, ...]


@dataclass(slots=True, eq=False, repr=False)
class For(Stmt):
    """`var` from 0 to `extent` - 1. `pragmas`: (key, value) pairs for the generator and the unroll pass."""

    var: Var
    extent: Expr
    kind: str
    body: Stmt
    thread: str | None = None
    pragmas: tuple[tuple[str, int | str], ...] = ()

    @property
    def constant_extent(self) -> int | None:
        """The extent where it is a constant."""
        return self.extent.value if isinstance(self.extent, Const) else None

    def with_body(self, body: Stmt) -> For:
        """This loop around another body."""
        return self if body is self.body else For(self.var, self.extent, self.kind, body, self.thread, self.pragmas)


@dataclass(slots=True, eq=False, repr=False)
class If(Stmt):
    """`then` where the scalar `condition` holds, else `otherwise`."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(slots=True, eq=False, repr=False)
class Allocate(Stmt):
    """`buffer` exists inside `body`, with undefined contents.

    `place` is None until the storage pass decides: Place("stack"), Place("call", offset) in the workspace of the call, or Place("thread", offset) in
    the workspace each thread of a parallel loop has; of a GPU, Place("shared", offset) in the memory of a block. Offsets are in bytes.
    """

    buffer: Buffer
    body: Stmt
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer lives."""

    kind: str  # "stack", "call", "thread", "shared"
    offset: int | Expr = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "stack" else f"{self.kind} + {self.offset}"


@dataclass(slots=True, eq=False, repr=False)
class Bind(Stmt):
    """`var` is `value` inside `body`."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(slots=True, eq=False, repr=False)
class Produce(Stmt):
    """What one stage computes; means no more than its body. It tells readers whose loops these are, and passes, by `pragmas`, what was asked of its buffer."""

    name: str
    body: Stmt
    pragmas: tuple[tuple[str, int | str], ...] = ()

    def with_body(self, body: Stmt) -> Produce:
        """The same of another body."""
        return self if body is self.body else Produce(self.name, body, self.pragmas)


@dataclass(slots=True, eq=False, repr=False)
class Prefetch(Stmt):
    """A hint that `buffer[indices]` will be read soon. The address need not be inside the buffer."""

    buffer: Buffer
    indices: tuple[Expr, ...]


@dataclass(slots=True, eq=False, repr=False)
class CallExtern(Stmt):
    """Calls a C function. It stands outside all loops.

    `types`: for each argument the dtype in which it is passed; None where it is a pointer: such an argument is a Load, which stands for the address of that
    element, and reads nothing. `writes`: which arguments are pointers through which the function writes. `libraries`: what it is linked with (names, or files).
    """

    symbol: str
    args: tuple[Expr, ...]
    types: tuple[DType | None, ...]
    writes: frozenset[int] = frozenset()
    libraries: tuple[str, ...] = ()

    def with_args(self, args: tuple[Expr, ...]) -> CallExtern:
        """This call with other arguments."""
        return self if args is self.args else CallExtern(self.symbol, args, self.types, self.writes, self.libraries)


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """A matrix that the 32 lanes of a warp hold in registers, each an equal share. `scope`: of its buffer ("wmma.matrix_a" ...); `layout`: a name for which
    element is where: what is written in one layout is read in the same one. `copies`: how many lanes hold each element."""

    scope: str
    layout: str
    copies: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class IntrinsicCode:
    """What a loop nest is replaced by. `name`: a C identifier, one for each code. `operands`: their names, the written one first; `shapes`: of each.

    `texts`: for each kind of target that it is written for, the body of a function whose parameters are, for each operand x, the pointer `x` and the distances
    `x_0`, `x_1` ... in elements between neighbours along its dimensions. `function`: the same on NumPy arrays of those shapes, for the interpreter; it writes
    into the first. `fragments`: the operands that a warp holds together; `x` is the share of a lane then, and there are no distances. With one of them, all
    lanes of a warp run the code together. `aligned`: bytes, of operands whose elements must lie side by side along one dimension, and begin at multiples of
    so many bytes along the others. `in_shared`: operands that must be in shared memory. `leading`: bytes, of matrices in memory whose elements lie side by
    side along the last dimension, in rows that are a positive multiple of so many bytes apart; only the first then is `aligned`.
    """

    name: str
    operands: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    texts: Mapping[str, str]
    function: Callable[..., object]
    fragments: Mapping[str, Fragment] = field(default_factory=dict)
    aligned: Mapping[str, int] = field(default_factory=dict)
    in_shared: tuple[str, ...] = ()
    leading: Mapping[str, int] = field(default_factory=dict)

    def text(self, kind: str) -> str:
        """The code for a kind of target; a TargetError where there is none."""
        if kind not in self.texts:
            raise TargetError(f"intrinsic {self.name} has code for {' and '.join(map(repr, self.texts))}, but the target is {kind!r}; "
                              f"declare it with code for {kind!r}, or tensorize with another one")  # fmt: skip
        return self.texts[kind]


@dataclass(slots=True, eq=False, repr=False)
class CallIntrinsic(Stmt):
    """Runs a code on parts of buffers; the first is read and written.

    `args`: for each operand a Load, which stands for the address of its first element. `steps`: for each operand, for each of its dimensions, how far apart
    neighbours are in each dimension of the buffer.
    """

    code: IntrinsicCode
    args: tuple[Expr, ...]
    steps: tuple[tuple[tuple[Expr, ...], ...], ...]

    @property
    def loads(self) -> tuple[Load, ...]:
        """The first element of each operand."""
        return tuple(a for a in self.args if isinstance(a, Load))

    @property
    def parts(self) -> tuple[Expr, ...]:
        """All expressions: the addresses, then the steps."""
        return (*self.args, *(step for operand in self.steps for along in operand for step in along))

    def with_parts(self, parts: Sequence[Expr]) -> CallIntrinsic:
        """This call with other expressions; itself if they are the same."""
        if all(a is b for a, b in zip(parts, self.parts, strict=True)):
            return self
        rest = iter(parts[len(self.args) :])
        steps = tuple(tuple(tuple(next(rest) for _ in along) for along in operand) for operand in self.steps)
        return CallIntrinsic(self.code, tuple(parts[: len(self.args)]), steps)

    def last(self, operand: int) -> Load:
        """The last element of an operand."""
        first = self.loads[operand]
        indices = list(first.indices)
        for extent, along in zip(self.code.shapes[operand], self.steps[operand], strict=True):
            indices = [index + step * (extent - 1) for index, step in zip(indices, along, strict=True)]
        found = load(first.buffer, indices)
        assert isinstance(found, Load)
        return found


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Func:
    """A function: `params` in argument order, those in `outputs` are written; `sizes` are the symbolic extents, bound by the caller.

    `workspace_bytes` (call, thread): intermediate storage outside the stack, set by the storage pass.
    """

    name: str
    params: tuple[Buffer, ...]
    outputs: frozenset[Buffer]
    body: Stmt
    sizes: tuple[Var, ...] = ()
    workspace_bytes: tuple[int | Expr, int | Expr] = field(default=(0, 0))

    def with_body(self, body: Stmt) -> Func:
        """This function with another body; itself if that is the same object."""
        return self if body is self.body else Func(self.name, self.params, self.outputs, body, self.sizes, self.workspace_bytes)

    def __str__(self) -> str:
        return function_text(self)

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """How a reducer combines values: `results`, in which `left` and `right` stand for what is combined; `identity` changes nothing."""

    left: tuple[Var, ...]
    right: tuple[Var, ...]
    results: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@dataclass(slots=True, eq=False, repr=False)
class AllReduce(Stmt):
    """`targets = combine(targets, values)`, where the iterations of the loops over `threads` (indices of a GPU, as "threadIdx.x") take part together.

    While these loops are plain loops it is an update like any other. Once they are threads (passes/bind_threads.py) it is done by all of them at once: in
    each thread the targets, Loads of local buffers, become their combination with the `values` of all threads along `threads`. How is what
    passes/all_reduce.py writes.
    """

    targets: tuple[Expr, ...]
    values: tuple[Expr, ...]
    combination: Combination
    threads: tuple[str, ...]

    @property
    def loads(self) -> tuple[Load, ...]:
        """The targets."""
        return tuple(t for t in self.targets if isinstance(t, Load))

    @property
    def parts(self) -> tuple[Expr, ...]:
        """Targets, then values."""
        return (*self.targets, *self.values)

    def with_parts(self, parts: tuple[Expr, ...]) -> AllReduce:
        """This reduction of other targets and values; itself if they are the same."""
        if all(a is b for a, b in zip(parts, self.parts, strict=True)):
            return self
        return AllReduce(parts[: len(self.targets)], parts[len(self.targets) :], self.combination, self.threads)


@dataclass(slots=True, eq=False, repr=False)
class Atomic(Stmt):
    """`target = operation(target, value)`, in one step that nobody interrupts: others may do the same with the same element at the same time.

    `target`: a Load, the element; nobody gets to know what was there. `operation`: "add", "min" or "max". `along`: the indices of a GPU (as "blockIdx.z") of
    which each value has an update of its own; of another index that the target does not depend on, only 0 has one. No pass may move it across another access
    to its element, do it twice, or make it a load and a store.
    """

    target: Expr
    value: Expr
    operation: str
    along: tuple[str, ...] = ()

    @property
    def load(self) -> Load:
        """The target."""
        assert isinstance(self.target, Load)
        return self.target

    @property
    def result(self) -> Expr:
        """What the element becomes."""
        return ATOMIC_OPERATIONS[self.operation](self.target, self.value)

    @property
    def parts(self) -> tuple[Expr, ...]:
        """Target, then value."""
        return (self.target, self.value)

    def with_parts(self, parts: tuple[Expr, ...]) -> Atomic:
        """This update of another element or by another value; itself if they are the same."""
        target, value = parts
        return self if target is self.target and value is self.value else Atomic(target, value, self.operation, self.along)


ATOMIC_OPERATIONS: dict[str, Callable[[Expr, Expr], Expr]] = {"add": add, "min": minimum, "max": maximum}


@dataclass(slots=True, eq=False, repr=False)
class Shuffle(Stmt):
    """`target`, a Load of a local buffer, becomes what another thread of the warp has as `value`: the one whose lane is this one's with the bits of
    `lanes` flipped. All threads of the block come by together.
    """

    target: Expr
    value: Expr
    lanes: Expr

    @property
    def load(self) -> Load:
        """The target."""
        assert isinstance(self.target, Load)
        return self.target

    @property
    def parts(self) -> tuple[Expr, ...]:
        """All expressions."""
        return self.target, self.value, self.lanes

    def with_parts(self, parts: Sequence[Expr]) -> Shuffle:
        """This exchange of other expressions; itself if they are the same."""
        return self if all(a is b for a, b in zip(parts, self.parts, strict=True)) else Shuffle(*parts)


@dataclass(slots=True, eq=False, repr=False)
class Sync(Stmt):
    """A point where the threads of a GPU wait for one another, or for their copies.

    `kind`: "block": until all threads of the block are here; "warp": all of the warp; "async_commit": the asynchronous copies since the last one are a group;
    "async_wait": until at most `count` of this thread's groups are on their way.
    """

    kind: str
    count: int = 0


def seq(*statements: Stmt | None) -> Stmt:
    """The statements in order, flat; a single one is itself."""
    flat: list[Stmt] = []
    for statement in statements:
        if statement is None:
            continue
        if statement.__class__ is Seq:
            flat.extend(statement.body)
        else:
            flat.append(statement)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def store(buffer: Buffer, indices: Iterable[Expr | int], value: Expr, predicate: Expr | None = None) -> Store:
    """`buffer[indices] = value`."""
    return Store(buffer, tuple(as_expr(i) for i in indices), value, predicate)


def nested(loops: Sequence[For], body: Stmt) -> Stmt:
    """`body` inside the loops, the first outermost (their own bodies are ignored)."""
    for loop in reversed(loops):
        body = For(loop.var, loop.extent, loop.kind, body, loop.thread, loop.pragmas)
    return body
