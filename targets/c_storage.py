"""Where the C generator keeps things: which stack buffers become variables, which pointers may be `restrict`, what the body of a parallel loop
needs from outside, and the C text of the pool that workspaces come from. Decisions about bytes were made by the storage pass.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from ..tir.expr import Add, Buffer, Cast, Choice, Const, Expr, FloorDiv, Load, Max, Mul, Sub, Var
from ..tir.stmt import Allocate, Bind, CallIntrinsic, For, Prefetch, Stmt, Store
from ..tir.visit import Visitor, walk
from .c_expressions import constant_piece

_MOST_REGISTER_VARIABLES = 256  # a buffer in more pieces than this is an array: variables would be spilled anyway
_ARENAS = 16  # workspaces kept between calls, one for each call that runs at the same time


class _StackAccesses(Visitor):
    """Which parts of the stack's buffers are accessed: the set of (first element, lanes) of each, None where one is not constant."""

    def __init__(self, buffers: set[Buffer]):
        super().__init__()
        self.pieces: dict[Buffer, set[tuple[int, int] | None]] = {b: set() for b in buffers}

    def visit_Load(self, node: Load) -> None:
        self._note(node.buffer, node.indices)
        self.visit_children(node)

    def visit_Store(self, node: Store) -> None:
        self._note(node.buffer, node.indices)
        self.visit_children(node)

    def visit_CallIntrinsic(self, node: CallIntrinsic) -> None:
        for first in node.loads:
            if first.buffer in self.pieces:
                self.pieces[first.buffer].add(None)  # its address is taken
        self.visit_children(node)

    def _note(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if buffer in self.pieces:
            self.pieces[buffer].add(constant_piece(indices[0]) if len(indices) == 1 else None)


def register_buffers(body: Stmt) -> dict[Buffer, list[tuple[int, int]]]:
    """The stack's buffers that can be variables: all accesses are to constant places, and any two are to the same vector or share nothing.

    Not those that a parallel loop inside their scope uses: its body is another function.
    """
    on_stack = {s.buffer for s in walk(body) if s.__class__ is Allocate and s.place is not None and s.place.kind == "stack"}
    for loop in walk(body):
        if loop.__class__ is For and loop.kind == "parallel":
            on_stack.difference_update(Captured(loop.body, ()).buffers)
    accesses = _StackAccesses(on_stack)
    accesses.visit(body)
    found: dict[Buffer, list[tuple[int, int]]] = {}
    for buffer, pieces in accesses.pieces.items():
        if None in pieces or len(pieces) > _MOST_REGISTER_VARIABLES:
            continue
        ordered = sorted(p for p in pieces if p is not None)
        if all(first + lanes <= following for (first, lanes), (following, _) in pairwise(ordered)):
            found[buffer] = ordered
    return found


def mixed_with_old_values(body: Stmt) -> set[Buffer]:
    """Buffers of which a store keeps old elements in some lanes (`x[i] = select(mask, new, x[i])`).

    Those lanes may never have been written. Nothing uses them, but to read an uninitialised object is undefined in C, and gcc 12 makes use of that: what is in
    scope on the stack must begin with a value.
    """
    found = set()
    for s in walk(body):
        if s.__class__ is Store:
            for e in walk(s.value):
                if isinstance(e, Choice) and any(arm.__class__ is Load and arm.buffer is s.buffer for arm in (e.then, e.otherwise)):
                    found.add(s.buffer)
    return found


class Captured:
    """What a statement uses that is introduced outside it: `buffers`, `variables`, and `workspaces`, the kinds from which it places buffers."""

    def __init__(self, body: Stmt, parameters: tuple[Buffer, ...]) -> None:
        used: dict[Buffer, None] = {}
        variables: dict[Var, None] = {}
        inside: set[Buffer | Var] = set()
        self.workspaces: set[str] = set()
        for node in walk(body):
            if isinstance(node, (Load, Store, Prefetch)):
                used[node.buffer] = None
            elif isinstance(node, Var):
                variables[node] = None
            elif isinstance(node, (For, Bind)):
                inside.add(node.var)
            elif isinstance(node, Allocate):
                inside.add(node.buffer)
                if node.place is not None and node.place.kind != "stack":
                    self.workspaces.add(node.place.kind)
                    if isinstance(node.place.offset, Expr):
                        variables.update(dict.fromkeys(n for n in walk(node.place.offset) if isinstance(n, Var)))
        self.buffers = [b for b in parameters if b in used] + [b for b in used if b not in inside and b not in parameters]
        self.variables = [v for v in variables if v not in inside]


class Aliases:
    """Which buffers of the workspaces share bytes, at whatever time."""

    def __init__(self, body: Stmt) -> None:
        self._spans: dict[Buffer, tuple[str, int, int] | None] = {}
        for s in walk(body):
            if isinstance(s, Allocate) and s.place is not None and s.place.kind != "stack":
                size = s.buffer.constant_size
                known = isinstance(s.place.offset, int) and size is not None
                self._spans[s.buffer] = (s.place.kind, s.place.offset, s.place.offset + size * s.buffer.dtype.bytes) if known else None  # type: ignore[operator, assignment]

    def is_alone(self, buffer: Buffer, among: list[Buffer] | None = None) -> bool:
        """Whether no other buffer (of `among`) has bytes of `buffer`, so that a pointer to it may be `restrict`."""
        if buffer not in self._spans:
            return True  # a parameter, or on the stack
        others = [b for b in (self._spans if among is None else among) if b in self._spans and b is not buffer]
        return not any(self._overlap(self._spans[buffer], self._spans[b]) for b in others)

    @staticmethod
    def _overlap(a: tuple[str, int, int] | None, b: tuple[str, int, int] | None) -> bool:
        if a is None or b is None:
            return True
        return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def magnitude(e: Expr, text: Callable[[Expr], str]) -> str:
    """The C text of an integer expression of sizes as a double: about its value, or more, where its integers would wrap too. `text`: that of an operand."""
    a, b = (e.children[0], e.children[-1]) if e.children else (e, e)
    if isinstance(e, Const):
        return f"{int(e.value)}.0"
    if isinstance(e, Cast):
        return magnitude(a, text)
    if isinstance(e, (Add, Sub, Mul)):
        return f"({magnitude(a, text)} {e.symbol} {magnitude(b, text)})"
    if isinstance(e, FloorDiv) and isinstance(b, Const):
        return f"({magnitude(a, text)} / {int(b.value)}.0)"
    if isinstance(e, Max):
        return f"__builtin_fmax({magnitude(a, text)}, {magnitude(b, text)})"
    return f"(double){text(e)}"


ARENA_POOL = f"""\
/* Memory for intermediates is kept between calls, so that its pages are paid for once. A call takes an arena out of its slot: calls may run at once. */
void *aligned_alloc(__SIZE_TYPE__, __SIZE_TYPE__);
void free(void *);

static unsigned char *tw_arenas[{_ARENAS}];

static unsigned char *tw_take(uint64_t bytes)
{{
    for (int i = 0; i < {_ARENAS}; ++i) {{
        if (!__atomic_load_n(&tw_arenas[i], __ATOMIC_RELAXED)) continue;
        unsigned char *arena = __atomic_exchange_n(&tw_arenas[i], (unsigned char *)0, __ATOMIC_ACQUIRE);
        if (arena && *(uint64_t *)arena >= bytes) return arena + 64;
        free(arena);
    }}
    if (bytes > (uint64_t)PTRDIFF_MAX - 128) return 0;
    unsigned char *arena = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!arena) return 0;
    *(uint64_t *)arena = bytes;
    return arena + 64;
}}

static void tw_give(unsigned char *memory)
{{
    unsigned char *arena = memory - 64;
    for (int i = 0; i < {_ARENAS}; ++i) {{
        unsigned char *none = 0;
        if (__atomic_compare_exchange_n(&tw_arenas[i], &none, arena, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }}
    free(arena);
}}

static void __attribute__((destructor)) tw_free_arenas(void)
{{
    for (int i = 0; i < {_ARENAS}; ++i) free(tw_arenas[i]);
}}
"""
