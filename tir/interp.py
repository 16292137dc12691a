"""The interpreter: runs any function on NumPy arrays, before or after any pass. The oracle for passes and generators, not a way to compute.

A function is turned into Python source once and that is run. The threads of a GPU are loops or, once they are bound, run in turns as generators. It
keeps to expr.py's semantics literally: exact integers are Python integers, others wrap in their dtype, float operations round in theirs, `IfThenElse`
and predicates read nothing where they do not hold, both sides of `And` are evaluated. What a C kernel would do silently is an error here: an access
outside its buffer. Memory that was not written is poisoned. Iterations of parallel loops run in order, or all backwards; both must give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .errors import TilewrightError
from .expr import HAS_LOAD, Buffer, Expr, Load, Var, as_expr
from .interp_expressions import ExpressionWriter, wrapped
from .interp_support import Array, Memory, run_intrinsic, run_threads
from .stmt import Allocate, AllReduce, Atomic, Bind, CallExtern, CallIntrinsic, For, Func, If, Prefetch, Produce, Seq, Shuffle, Stmt, Store, Sync
from .visit import children, combine, walk

_MAX_LOOPS = 18  # Python refuses more than 20 nested blocks; deeper loops go into a function of their own


_EXTERNS: dict[str, Callable[..., object]] = {}


def register_extern(symbol: str, function: Callable[..., object] | None) -> None:
    """What the interpreter calls in the place of the C function `symbol`; None takes it back.

    It gets numbers, and for each pointer a one-dimensional NumPy view of the buffer from there to its end.
    """
    if function is None:
        _EXTERNS.pop(symbol, None)
    else:
        _EXTERNS[symbol] = function


def extern_function(symbol: str) -> Callable[..., object]:
    """What was registered for a symbol; a TilewrightError where nothing was."""
    found = _EXTERNS.get(symbol)
    if found is None:
        raise TilewrightError(f"the interpreter knows no C function {symbol!r}: give it a Python function with register_extern({symbol!r}, function)")
    return found


def interpret(
    func: Func,
    arrays: Sequence[Array],
    sizes: Mapping[str, int] | Sequence[int] = (),
    *,
    poison: int = 0xFF,
    reverse_parallel: bool = False,
    threads: str = "loops",
    seed: int | None = None,
) -> None:
    """Run `func` on one array for each parameter, in order; outputs are written in place.

    Arguments: `arrays`: C-contiguous, of the parameters' dtypes, with as many elements as the parameter (an N-d array serves a flattened
    one); `sizes`: a value for each of `func.sizes`, by name or in order; `poison`: the byte that fills memory before it is written (0xFF:
    NaN), so that results which differ between two poisons come from memory that was not written; `reverse_parallel`: run parallel loops
    backwards; `threads`: what loops over threadIdx are, see `compiled`; `seed`: run threads, blocks and parallel loops in random orders. An access
    outside a buffer is an `OutOfBounds` naming the buffer, its shape and the index.
    """
    compiled(func, threads)(arrays, sizes, poison, reverse_parallel, seed)


def compiled(func: Func, threads: str = "loops") -> Callable[..., None]:
    """`interpret` for one function that is run often: takes (arrays, sizes=(), poison=0xFF, reverse_parallel=False, seed=None).

    `threads`: "loops": loops over threadIdx are loops, as schedule/lower.py means them; of a function with the fact `threads_bound`, "steps": all threads of
    a block run each statement before any runs the next one, or, with the fact `synced`, "barriers": they wait where the function says so and nowhere else.
    Threads that come to different barriers are a `Divergence`.
    """
    emitter = _Emitter(func, threads)
    namespace = emitter.environment
    exec(compile(emitter.source(), f"<interpreter of {func.name}>", "exec"), namespace)
    run = namespace["run"]

    def call(
        arrays: Sequence[Array],
        sizes: Mapping[str, int] | Sequence[int] = (),
        poison: int = 0xFF,
        reverse_parallel: bool = False,
        seed: int | None = None,
    ) -> None:
        if len(arrays) != len(func.params):
            raise TilewrightError(f"{func.name} takes {len(func.params)} arrays, found {len(arrays)}")
        values = [int(sizes[s.name]) for s in func.sizes] if isinstance(sizes, Mapping) else [int(s) for s in sizes]
        if len(values) != len(func.sizes):
            raise TilewrightError(f"{func.name} takes {len(func.sizes)} sizes, found {len(values)}")
        with np.errstate(all="ignore"):
            run(Memory(poison), _order(reverse_parallel, seed), arrays, values)

    return call


def _order(backwards: bool, seed: int | None) -> Callable[[int], Sequence[int]]:
    """In which order so many things that may happen in any order do."""
    if seed is not None:
        random = np.random.default_rng(seed)
        return lambda n: random.permutation(n).tolist()
    return (lambda n: range(n - 1, -1, -1)) if backwards else range


def iteration_count(func: Func, sizes: Mapping[str, int]) -> int:
    """About how many times the bodies of the function's loops run in all, to decide whether interpreting it is affordable."""
    bounds = {s: sizes[s.name] for s in func.sizes}

    def extent(loop: For) -> int:
        constant = loop.constant_extent
        if constant is not None:
            return constant
        known = [bounds[v] for v in walk(loop.extent) if v in bounds]
        return max(known, default=16)

    def count(s: Stmt) -> int:
        inner = sum(count(c) for c in children(s) if isinstance(c, Stmt))
        return max(1, extent(s)) * max(1, inner) if s.__class__ is For else inner

    return count(func.body)


# ------------------------------------------------------------------------------------------------------------- generating the source


class _Emitter(ExpressionWriter):
    """Writes the Python source of one function."""

    def __init__(self, func: Func, threads: str = "loops"):
        super().__init__()
        self.func, self.threads = func, threads
        self.varying: set[Var] | None = None  # inside threads: the variables that differ between them
        self.divided = False  # where only some threads may be
        self.loops = self.parallel = 0
        self.unplaced: dict[Buffer, str] = {}  # allocated in a workspace, and not accessed so far -> the line that gives them their memory

    def source(self) -> str:
        """The source of `run(memory, order, arrays, sizes)`."""
        func = self.func
        for size in func.sizes:
            self.names[size] = self.fresh("n")
        if func.sizes:
            self.line(f"{', '.join(self.names[s] for s in func.sizes)}, = sizes")
        self.scopes.append({})
        self.count_uses(*(as_expr(d) for p in func.params for d in p.shape), *map(as_expr, func.workspace_bytes))
        self.line(f"memory.workspaces({', '.join(self.expression(as_expr(n)) for n in func.workspace_bytes)})")
        for number, p in enumerate(func.params):
            name = self.names[p] = self.fresh("b")
            self.line(f"{name} = memory.bind({p.name!r}, arrays[{number}], {self.shape(p)}, {self.type(p.dtype)})")
        self.scopes.pop()
        self.statement(func.body)
        return "\n".join(["def run(memory, order, arrays, sizes):", *self.lines])

    # -------------------------------------------------------------------------------------------------------------- statements

    def block(self, body: Stmt, header: str, first: str = "pass") -> None:
        """`header`, and under it the line `first` and the statements."""
        self.line(header)
        outer, self.indent = self.indent, self.indent + " "
        self.line(first)
        self.statement(body)
        self.indent = outer

    def statement(self, s: Stmt) -> None:
        outer, self.scopes = self.scopes, [{}]  # memory may differ from what an enclosing statement read
        if self.unplaced and s.__class__ not in (Seq, Produce, Allocate):
            for buffer in self.unplaced.keys() & _accessed(s):
                self.line(self.unplaced.pop(buffer))
        self.count_uses(*(c for c in children(s) if isinstance(c, Expr)))
        _STATEMENTS[s.__class__](self, s)
        self.scopes = outer
        if self.varying is not None and self.threads == "steps" and not self.divided and s.__class__ in (Store, Atomic, CallIntrinsic, If):
            self.line(f'yield "block", {self.fresh_number()}, None')

    def fresh_number(self) -> int:
        self.count += 1
        return self.count

    def differs(self, e: Expr) -> bool:
        """Whether the threads of a block may find different values."""
        return self.varying is not None and (bool(e.holds & HAS_LOAD) or not e.variables.isdisjoint(self.varying))

    def seq(self, s: Seq) -> None:
        for child in s.body:
            self.statement(child)

    def loop(self, s: For) -> None:
        if self.threads != "loops" and self.varying is None and (s.thread or "").startswith("threadIdx"):
            self.start_threads(s)
            return
        var = self.names[s.var] = self.fresh("i")
        extent = self.expression(s.extent)
        loops, divided = self.loops, self.divided
        unordered = s.kind == "parallel" or (self.threads != "loops" and s.kind == "thread" and self.varying is None)
        if self.varying is not None and self.differs(s.extent):
            self.varying.add(s.var)
            self.divided = True
        if loops >= _MAX_LOOPS:
            body = self.fresh("body")
            self.loops, outer, self.indent = 0, self.indent, self.indent + " "
            self.lines.append(f"{outer}def {body}():")
            if self.varying is not None:
                self.line("if False: yield")
        self.parallel += s.kind == "parallel"
        self.loops += 1
        header = f"for {var} in {'order' if unordered else 'range'}({extent}):"
        first = "memory.new_thread_iteration()" if s.kind == "parallel" and self.parallel == 1 else "pass"
        self.block(s.body, header, first)
        self.parallel -= s.kind == "parallel"
        if loops >= _MAX_LOOPS:
            self.indent = outer
            self.line(f"{'' if self.varying is None else 'yield from '}{body}()")
        self.loops, self.divided = loops, divided

    def start_threads(self, s: For) -> None:
        """The threads of a block: what each one does as a generator, which yields where it waits."""
        loops = [s]
        while isinstance(s.body, For) and (s.body.thread or "").startswith("threadIdx"):
            s = s.body
            loops.append(s)
        extents = "".join(f"{self.expression(loop.extent)}, " for loop in loops)
        self.names.update({loop.var: self.fresh("i") for loop in loops})
        name, outer, outer_loops = self.fresh("thread"), self.indent, self.loops
        self.line(f"def {name}({', '.join(self.names[loop.var] for loop in loops)}):")
        self.loops, self.indent, self.varying = 0, outer + " ", {loop.var for loop in loops}
        self.line("if False: yield")
        self.statement(s.body)
        self.loops, self.indent, self.varying = outer_loops, outer, None
        tags = tuple(loop.thread for loop in loops)
        self.line(f"{self.constant('run_threads', run_threads)}({name}, ({extents}), {tags!r}, order)")

    def synchronize(self, s: Sync) -> None:
        if self.varying is not None and s.kind in ("block", "warp"):
            self.line(f"yield {s.kind!r}, {self.fresh_number()}, None")

    def branch(self, s: If) -> None:
        condition, divided = self.expression(s.condition), self.divided
        self.divided = divided or self.differs(s.condition)
        self.block(s.then, f"if {condition}:")
        if s.otherwise is not None:
            self.block(s.otherwise, "else:")
        self.divided = divided

    def allocation(self, s: Allocate) -> None:
        self.count_uses(*(as_expr(d) for d in s.buffer.shape), *([as_expr(s.place.offset)] if s.place else []))
        name = self.names[s.buffer] = self.fresh("b")
        what = f"{s.buffer.name!r}, {self.shape(s.buffer)}, {self.type(s.buffer.dtype)}"
        if s.place is None or s.place.kind == "stack":
            self.line(f"{name} = memory.allocate({what})")
        else:  # what lies there may be needed until this buffer is first accessed
            self.unplaced[s.buffer] = f"{name} = memory.place({what}, {s.place.kind!r}, {self.expression(as_expr(s.place.offset))})"
        self.statement(s.body)
        self.unplaced.pop(s.buffer, None)

    def bind(self, s: Bind) -> None:
        value = self.operand(s.value, s.var)
        if s.var.exact and not s.value.exact and s.value.dtype.lanes > 1:
            value = f"{value}.astype(np.int64)"
        name = self.names[s.var] = self.fresh("v")
        self.line(f"{name} = {value}")
        if self.varying is not None and self.differs(s.value):
            self.varying.add(s.var)
        self.statement(s.body)

    def call_extern(self, s: CallExtern) -> None:
        args = []
        for argument, kind in zip(s.args, s.types, strict=True):
            if kind is not None:
                args.append(self.expression(argument))
                continue
            assert isinstance(argument, Load)
            name, offset = self.names[argument.buffer], "0"
            for dimension, index in enumerate(argument.indices):
                offset = f"({offset} * {name}.shape[{dimension}] + {self.expression(index)})"
            args.append(f"{name}.reshape(-1)[{offset}:]")
        self.line(f"{self.constant('extern_function', extern_function)}({s.symbol!r})({', '.join(args)})")

    def call_intrinsic(self, s: CallIntrinsic) -> None:
        operands = []
        for first, steps in zip(s.loads, s.steps, strict=True):
            start = "".join(f"{self.expression(i)}, " for i in first.indices)
            along = "".join(f"({''.join(f'{self.expression(step)}, ' for step in each)}), " for each in steps)
            operands.append(f"({first.buffer.name!r}, {self.names[first.buffer]}, ({start}), ({along})), ")
        code = self.fresh("code")
        self.environment[code] = s.code
        self.line(f"{self.constant('run_intrinsic', run_intrinsic)}({code}, ({''.join(operands)}))")

    def all_reduce(self, s: AllReduce) -> None:
        """As the update it is while threads are loops; else with what the values of all threads give together."""
        values: Sequence[Expr] = s.values
        if self.varying is not None:
            values = self.gathered(s)
        results = combine(s.combination, s.targets, values)
        names = [self.fresh("v") for _ in results]
        self.count_uses(*results)
        for name, e in zip(names, results, strict=True):
            self.line(f"{name} = {self.expression(e)}")
        for name, target in zip(names, s.loads, strict=True):
            value = wrapped(name, target.buffer.dtype) if target.exact else name
            self.line(f"{self.names[target.buffer]}[{self.scalar_indices(target.buffer, target.indices)}] = {value}")

    def gathered(self, s: AllReduce) -> Sequence[Var]:
        """Variables for the combination of the values of all threads."""
        how, name = s.combination, self.fresh("combine")
        left, right, values = (
            [self.names.setdefault(v, self.fresh("v")) for v in variables] for variables in (how.left, how.right, [v.fresh() for v in how.left])
        )
        outer, scopes = self.indent, self.scopes
        self.line(f"def {name}({', '.join(left + right)}):")
        self.indent, self.scopes = outer + " ", [{}]
        self.count_uses(*how.results)
        self.line(f"return {''.join(f'{self.expression(e)}, ' for e in how.results)}")
        self.indent, self.scopes = outer, scopes
        self.count_uses(*s.values)
        given = "".join(f"{self.expression(e)}, " for e in s.values)
        found = [v.fresh() for v in how.left]
        for variable, text in zip(found, values, strict=True):
            self.names[variable] = text
        self.line(f"{''.join(f'{text}, ' for text in values)} = yield 'reduce', {self.fresh_number()}, (({given}), {name}, {s.threads!r})")
        return found

    def atomic(self, s: Atomic) -> None:
        """One line: nothing comes between."""
        self.count_uses(s.result)
        self.store(Store(s.load.buffer, s.load.indices, s.result))

    def shuffle(self, s: Shuffle) -> None:
        """Threads give one another their values; a single one after another has nobody to ask."""
        if self.varying is None:
            raise TilewrightError(f"{self.func.name}: lanes of a warp exchange values here; interpret it with threads='barriers'")
        target, name = s.load, self.fresh("v")
        self.line(f"{name} = yield 'shuffle', {self.fresh_number()}, ({self.expression(s.value)}, {self.expression(s.lanes)})")
        self.line(f"{self.names[target.buffer]}[{self.scalar_indices(target.buffer, target.indices)}] = {name}")

    def store(self, s: Store) -> None:
        buffer, name = self.names[s.buffer], s.buffer.name
        kind = s.buffer.dtype
        if any(i.dtype.lanes > 1 for i in s.indices):
            value = self.expression(s.value)
            if s.value.exact:
                value = f"{value}.astype({self.type(kind)})"
            mask = "None" if s.predicate is None else self.expression(s.predicate)
            self.line(f"vector_store({buffer}, {name!r}, {self.vector_indices(s.indices)}, {mask}, {value})")
            return
        outer = self.indent
        if s.predicate is not None:
            self.line(f"if {self.expression(s.predicate)}:")
            self.indent += " "
        value = self.expression(s.value)
        if s.value.exact:
            value = wrapped(value, kind)
        self.line(f"{buffer}[{self.scalar_indices(s.buffer, s.indices)}] = {value}")
        self.indent = outer


def _accessed(s: Stmt) -> set[Buffer]:
    """The buffers that a statement accesses."""
    return {node.buffer for node in walk(s) if node.__class__ in (Store, Load)}


_STATEMENTS: dict[type, Callable[[_Emitter, Any], None]] = {
    Seq: _Emitter.seq, For: _Emitter.loop, If: _Emitter.branch, Allocate: _Emitter.allocation, Bind: _Emitter.bind, Store: _Emitter.store,
    Produce: lambda emitter, s: emitter.statement(s.body),
    Prefetch: lambda emitter, s: None,
    CallExtern: _Emitter.call_extern,
    CallIntrinsic: _Emitter.call_intrinsic,
    AllReduce: _Emitter.all_reduce,
    Atomic: _Emitter.atomic,
    Shuffle: _Emitter.shuffle,
    Sync: _Emitter.synchronize,
}  # fmt: skip
