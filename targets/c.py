"""The C generator: a function of the loop language as C source with GNU vector types and OpenMP, for gcc and clang.

It expects what the pipeline ends with: flat buffers, vector expressions instead of vectorised loops, every buffer placed. Expressions are in
c_expressions.py, helper functions in c_helpers.py; here are statements, storage, and the function around them. A generator for a similar
language (CUDA) overrides the tables and the hooks named "Hook".
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from ..tir.errors import InternalError, TargetError
from ..tir.expr import Buffer, Const, Expr, Load, Var
from ..tir.printer import Names, expression_text
from ..tir.stmt import Allocate, Bind, CallExtern, CallIntrinsic, For, Func, If, IntrinsicCode, Prefetch, Produce, Seq, Stmt, Store
from ..tir.target import Target
from ..tir.visit import children, dispatch_table, walk
from .c_expressions import PRODUCT, SUM, UNARY, CExpressions, constant_stride, in_memory, natural_mask_bits
from .c_helpers import Helpers
from .c_storage import ARENA_POOL, Aliases, Captured, magnitude, mixed_with_old_values, register_buffers
from .c_types import is_library_function, is_reserved, vector_element
from .generated import ArgumentSpec, Generated
from .writer import Identifiers, Writer, plain_identifier

_MOST_UNROLLED = 128  # stores that an unrolled loop may give
_WORKSPACE_NAMES = ("call_bytes", "thread_bytes", "workspace", "thread_workspace")


def generate(func: Func, target: Target, declared: Sequence[Buffer] | None = None) -> Generated:
    """C source of a function that went through the pipeline.

    `declared`: the parameters as the user declared them (with all their dimensions), for the signature; default: `func.params`. An InternalError
    names the pass that should have removed what the generator does not know.
    """
    return CGenerator(func, target).generate(func.params if declared is None else declared)


class CGenerator(CExpressions):
    """Writes one function. Use `generate`."""

    intrinsic_words: ClassVar[str] = "static inline __attribute__((always_inline, unused)) "
    distance_type: ClassVar[str] = "int64_t"
    _statement_table: ClassVar[dict[type, Callable[..., None]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._statement_table = dispatch_table(cls, "write_")

    def __init__(self, func: Func, target: Target, helpers: Helpers | None = None, is_reserved: Callable[[str], bool] = is_reserved) -> None:
        super().__init__(helpers or Helpers(target.vector_bytes), is_reserved)
        self.func, self.target = func, target
        self.out = Writer(1)
        self.uses_openmp = self._uses_unroll = self._uses_thread_number = self._uses_thread_workspace = False
        self._inside_parallel = False
        self._stage = ""  # whose loops are being written
        self._threads_begin = self._thread_bytes = ""
        self._bodies: dict[str, str] = {}  # the functions that parallel loops call, by name
        self._intrinsics: dict[IntrinsicCode, tuple[str, str]] = {}  # the name and the text of the function for each
        self._types: dict[Var, str] = {}  # the C types of variables
        self._externs: list[str] = []  # declarations of C functions that are called
        self._libraries: dict[str, None] = {}  # that they come from
        self._in_registers = register_buffers(func.body)
        self._needs_first_value = mixed_with_old_values(func.body)
        self._aliases = Aliases(func.body)

    # ----------------------------------------------------------------------------------------------------------------- function

    def generate(self, declared: Sequence[Buffer]) -> Generated:
        """The source and its signature."""
        name = function_name(self.func.name)
        for word in (name, *(_WORKSPACE_NAMES if self._has_workspace() else ())):
            self.names.fresh(word)
        for parameter in self.func.params:
            self.names.declare(parameter, parameter.name)
        sizes = [self._declare_size(size) for size in self.func.sizes]
        parameters = [self._pointer(p, []) for p in self.func.params] + [f"int64_t {n}" for n in sizes]
        for size, passed in zip(self.func.sizes, sizes, strict=True):
            if self.names.of(size) != passed:
                self.out.line(f"const {self._types[size]} {self.names.of(size)} = ({self._types[size]}){passed};")
        opening = self._open_workspace() if self._has_workspace() else []
        sizes_above, self.out = self.out, Writer(1)
        self.write(self.func.body)
        body, self.out = self.out, sizes_above
        if self._uses_thread_workspace:  # by parallel loops that run in no threads
            opening.append(f"unsigned char *thread_workspace = {self._threads_begin};")
        for line in opening:
            self.out.line(line)
        self.out.lines_of(body)
        if opening:
            self.out.line("tw_give(workspace);")
        self.out.line("return 0;")
        head = f"int32_t {name}({', '.join(parameters) or 'void'})"
        return Generated(name, self._source(head), *self._signature(declared), self._workspace_bytes(), self.uses_openmp, libraries=tuple(self._libraries))

    def _declare_size(self, size: Var) -> str:
        """The name of the parameter that passes a size; sizes are passed as int64."""
        self._types[size] = self.helpers.scalar(size.dtype)
        name = self.names.declare(size, size.name)
        if size.dtype == "int64":
            return name
        return self.names.fresh(f"{size.name}_wide")

    def _source(self, head: str) -> str:
        parts = [f"/* {plain_identifier(self.func.name)}: generated by Tilewright. */", "#include <stdint.h>", ""]
        if self._uses_unroll:
            parts.append(_UNROLL)
        if self._uses_thread_number:
            parts.append("int omp_get_thread_num(void);\n")
        helpers = self.helpers.emit()
        if helpers.strip():
            parts.append(helpers)
        if self._has_workspace():
            parts.append(ARENA_POOL)
        parts += [*self._externs, *(text for _, text in self._intrinsics.values()), *self._bodies.values()]
        return "\n".join(parts) + f"\n{head}\n{{\n{self.out.text()}}}\n"

    def _signature(self, declared: Sequence[Buffer]) -> tuple[tuple[ArgumentSpec, ...], tuple[str, ...]]:
        names = Names()
        size_names = self._size_names()
        sizes = tuple(size_names.of(size) for size in self.func.sizes)
        outputs = [p in self.func.outputs for p in self.func.params]
        specs = []
        for buffer, is_output in zip(declared, outputs, strict=True):
            shape = tuple(e if isinstance(e, int) else int(e.value) if isinstance(e, Const) else expression_text(e, size_names) for e in buffer.shape)
            specs.append(ArgumentSpec(names.of(buffer), str(buffer.dtype), shape, is_output))
        return tuple(specs), sizes

    def _size_names(self) -> Identifiers:
        """What the signature calls the sizes; extents are read back as Python expressions of them."""
        names = Identifiers(keyword.iskeyword)
        for size in self.func.sizes:
            names.declare(size, size.name)
        return names

    # ------------------------------------------------------------------------------------------------------------------ storage

    def _has_workspace(self) -> bool:
        return any(not isinstance(b, int) or b > 0 for b in self.func.workspace_bytes)

    def _workspace_bytes(self) -> int:
        """Bytes a call and a thread need together, as far as they are constant."""
        return sum(b if isinstance(b, int) else int(b.value) if isinstance(b, Const) else 0 for b in self.func.workspace_bytes)

    def _open_workspace(self) -> list[str]:
        """Lines that take the workspace; where the threads' parts of it begin is then in `self._threads_begin`, how long they are in `self._thread_bytes`."""
        lines, sizes, known, magnitudes = [], [], [], []
        for word, count in zip(("call_bytes", "thread_bytes"), self.func.workspace_bytes, strict=True):
            if isinstance(count, Const):
                count = int(count.value)
            if isinstance(count, int):
                known.append((count + 63) // 64 * 64)
                sizes.append(str(known[-1]))
                magnitudes.append(f"{known[-1]}.0")
            else:
                magnitudes.append(magnitude(count, lambda e: self.text(e, UNARY)))
                lines.append(f"const uint64_t {word} = ((uint64_t){self.text(count, UNARY)} + 63) / 64 * 64;")
                sizes.append(word)
        call, self._thread_bytes = sizes
        self._threads_begin = "workspace" if call == "0" else f"workspace + {call}"
        total = f"{call} + {self.target.threads} * (uint64_t){self._thread_bytes}"
        if len(known) == 2:
            total = f"{known[0] + self.target.threads * known[1]}ull"
        else:  # before anything is computed that would wrap: more than any address can reach is no memory
            lines.insert(0, f"if ({magnitudes[0]} + {self.target.threads}.0 * {magnitudes[1]} > 0x1p62) return 1;")
        return [*lines, f"unsigned char *workspace = tw_take({total});", "if (!workspace) return 1;"]

    def write_Allocate(self, s: Allocate) -> None:
        buffer, place = s.buffer, s.place
        if place is None:
            raise self.refuse(s.buffer, "storage")
        kind = self.helpers.scalar(buffer.dtype)
        if buffer in self._in_registers:
            self._declare_registers(buffer, self._in_registers[buffer])
        elif place.kind == "stack":
            size, first = buffer.constant_size, " = {0}" if buffer in self._needs_first_value else ""
            if size is None:
                raise InternalError(f"buffer {buffer.name!r} of symbolic size was placed on the stack: pass 'storage' should have put it in the workspace")
            self.out.line(f"{kind} {self.names.declare(buffer, buffer.name)}[{max(size, 1)}] __attribute__((aligned(64))){first};")
        else:
            base = "workspace" if place.kind == "call" else "thread_workspace"
            self._uses_thread_workspace |= place.kind == "thread" and not self._inside_parallel
            offset = str(place.offset) if isinstance(place.offset, int) else self.text(place.offset, PRODUCT)
            restrict = "restrict " if self._aliases.is_alone(buffer) else ""
            self.out.line(f"{kind} *{restrict}{self.names.declare(buffer, buffer.name)} = ({kind} *)({base} + {offset});")
        self.write(s.body)

    def _declare_registers(self, buffer: Buffer, pieces: list[tuple[int, int]]) -> None:
        """One variable for each vector (or scalar) of the buffer, named after its first element."""
        names = self.registers[buffer] = {}
        by_type: dict[str, list[str]] = {}
        for first, lanes in pieces:
            names[first, lanes] = self.names.fresh(f"{buffer.name}_{first}")
            by_type.setdefault(self.helpers.vector(vector_element(buffer.dtype), lanes), []).append(names[first, lanes])
        first_value = " = {0}" if buffer in self._needs_first_value else ""
        for kind, variables in by_type.items():
            for start in range(0, len(variables), 8):
                self.out.line(f"{kind} {', '.join(v + first_value for v in variables[start : start + 8])};")

    # --------------------------------------------------------------------------------------------------------------- statements

    def write(self, s: Stmt) -> None:
        """One statement."""
        self._statement_table[s.__class__](self, s)

    def write_Seq(self, s: Seq) -> None:
        for child in s.body:
            self.write(child)

    def write_Produce(self, s: Produce) -> None:
        outside, self._stage = self._stage, plain_identifier(s.name)
        self.out.line(f"/* {self._stage} */")
        self.write(s.body)
        self._stage = outside

    def write_If(self, s: If) -> None:
        with self.out.block(f"if ({self.text(s.condition)}) {{", "}" if s.otherwise is None else "} else {"), self.names.scope():
            self.write(s.then)
        if s.otherwise is not None:
            with self.out.continued("}"), self.names.scope():
                self.write(s.otherwise)

    def write_Bind(self, s: Bind) -> None:
        kind = s.var.dtype
        value = self.text(s.value)
        if kind.is_bool and kind.lanes > 1:
            bits = self.mask_bits[s.var] = natural_mask_bits(s.value, self.mask_bits)
            c_type = self.helpers.mask(bits, kind.lanes)
        else:
            c_type = self.helpers.value_type(kind)
        self._types[s.var] = c_type
        self.out.line(f"const {c_type} {self.names.declare(s.var, s.var.name)} = {value};")
        self.write(s.body)

    def write_Prefetch(self, s: Prefetch) -> None:
        index = self._flat_index(s.buffer, s.indices, s)
        if s.buffer in self._in_registers:
            return
        # through an integer, since the address may be outside the array
        pointer = f"(uintptr_t){self.buffer(s.buffer)} + (uintptr_t)({self.text(index)}) * {s.buffer.dtype.bytes}"
        self.out.line(f"__builtin_prefetch((const void *)({pointer}));")

    def write_CallExtern(self, s: CallExtern) -> None:
        if s.symbol == function_name(self.func.name):
            raise TargetError(f"kernel {s.symbol}: te.extern calls the C function {s.symbol!r}, which here is the kernel itself; "
                              "give the kernel another name: tw.build(..., name=...)")  # fmt: skip
        # declared under a name of ours, so that it meets no declaration of C's headers or built-in functions; its own name stands in the symbol table only
        name = self.names.fresh(f"extern_{s.symbol}")
        parameters, values = [], []
        for number, (argument, kind) in enumerate(zip(s.args, s.types, strict=True)):
            if kind is not None:
                parameters.append(self.helpers.scalar(kind))
                values.append(f"({self.helpers.scalar(kind)})({self.text(argument)})")
                continue
            assert isinstance(argument, Load)
            parameters.append(f"{'' if number in s.writes else 'const '}{self.helpers.scalar(argument.buffer.dtype)} *")
            values.append(self.address(argument.buffer, self._flat_index(argument.buffer, argument.indices, s)))
        self._externs.append(f'extern void {name}({", ".join(parameters) or "void"}) __asm__("{s.symbol}");')
        self._libraries.update(dict.fromkeys((*s.libraries, "c")))
        self.out.line(f"{name}({', '.join(values)});")

    def write_CallIntrinsic(self, s: CallIntrinsic) -> None:
        values = []
        for first, steps in zip(s.loads, s.steps, strict=True):
            values.append(self.address(first.buffer, self._flat_index(first.buffer, first.indices, s)))
            values += [self.text(along[0]) for along in steps]
        self.out.line(f"{self._intrinsic(s)}({', '.join(values)});")

    def _intrinsic(self, s: CallIntrinsic) -> str:
        """The name of the function that an intrinsic is."""
        if s.code not in self._intrinsics:
            text = self.intrinsic_text(s)
            name = f"tw_intrinsic_{s.code.name}_{len(self._intrinsics)}"
            parameters = []
            for number, (operand, first, steps) in enumerate(zip(s.code.operands, s.loads, s.steps, strict=True)):
                parameters.append(f"{'const ' if number else ''}{self.helpers.scalar(first.buffer.dtype)} *{operand}")
                if operand not in s.code.fragments:
                    parameters += [f"{self.distance_type} {operand}_{dimension}" for dimension in range(len(steps))]
            self._intrinsics[s.code] = name, f"{self.intrinsic_words}void {name}({', '.join(parameters)})\n{{\n{text.strip(chr(10))}\n}}\n"
        return self._intrinsics[s.code][0]

    def intrinsic_text(self, s: CallIntrinsic) -> str:
        """Hook: the code of an intrinsic for this target."""
        return s.code.text(self.target.kind)

    def write_Store(self, s: Store) -> None:
        index = self._flat_index(s.buffer, s.indices, s)
        kind = s.value.dtype
        if s.predicate is not None and s.predicate.dtype.lanes == 1:
            raise self.refuse(s, "legalize")
        if index.dtype.lanes != kind.lanes:
            raise InternalError(f"the {self.language} generator met {s}: {kind.lanes} lanes stored to {index.dtype.lanes} places")
        if kind.is_bool and kind.lanes > 1:
            value = f"({self.helpers.vector('uint8', kind.lanes)})(-{self.mask(s.value, 8, UNARY)})"
        else:
            value = self.text(s.value)
        register = self.register(s.buffer, index)
        if register is not None:
            if s.predicate is not None:
                value = f"{self.helpers.use('select', in_memory(kind))}({self.mask(s.predicate, kind.bits)}, {value}, {register})"
            self.out.line(f"{register} = {value};")
        elif kind.lanes == 1:
            self.out.line(f"{self.buffer(s.buffer)}[{self.text(index)}] = {value};")
        else:
            self.out.line(self.vector_store(s, index, value) + ";")

    def vector_store(self, s: Store, index: Expr, value: str) -> str:
        """A vector to memory. Hook: how a target writes consecutive, strided and scattered elements."""
        h, kind = self.helpers, in_memory(s.value.dtype)
        stride = constant_stride(index)
        if s.predicate is not None:
            mask = self.mask(s.predicate, kind.bits)
            if stride == 1:
                return f"{h.use('store_where', kind)}({mask}, {self.buffer(s.buffer)}, {self.text(index.base)}, {value})"  # type: ignore[attr-defined]
            return f"{h.use('scatter_where', kind, index.dtype.element)}({mask}, {self.buffer(s.buffer)}, {self.text(index)}, {value})"
        if stride == 1:
            return f"*({h.memory_vector(kind)} *){self.address(s.buffer, index.base)} = {value}"  # type: ignore[attr-defined]
        if stride is not None:
            return f"{h.use('store_strided', kind)}({self.address(s.buffer, index.base)}, {stride}, {value})"  # type: ignore[attr-defined]
        return f"{h.use('scatter', kind, index.dtype.element)}({self.buffer(s.buffer)}, {self.text(index)}, {value})"

    # -------------------------------------------------------------------------------------------------------------------- loops

    def write_For(self, s: For) -> None:
        if s.kind == "vectorized":
            raise self.refuse(f"the vectorized loop over {s.var.name!r}", "vectorize")
        if s.kind == "thread":
            raise self.refuse(f"the thread index {s.var.name!r} ({s.thread})", "bind_threads")
        if s.kind == "parallel" and self._goes_parallel(s):
            self._write_parallel(s)
            return
        copies = _copies(s, _stores(s.body)) if s.kind == "unrolled" or s.pragmas else None
        if copies is not None:
            self._uses_unroll = True
            self.out.line(f"TW_UNROLL({copies})")
        with self._loop(s):
            self.write(s.body)

    @contextmanager
    def _loop(self, s: For) -> Iterator[None]:
        """Hook: the head of a loop, around what is written meanwhile."""
        kind, extent = self.helpers.scalar(s.var.dtype), self.text(s.extent, SUM)
        self._types[s.var] = kind
        with self.names.scope():
            name = self.names.declare(s.var, s.var.name)
            with self.out.block(f"for ({kind} {name} = 0; {name} < {extent}; ++{name}) {{"):
                yield

    def _goes_parallel(self, s: For) -> bool:
        """Whether threads are worth starting: one level only, and more than one iteration."""
        few = s.constant_extent is not None and s.constant_extent <= 1
        return self.target.threads > 1 and not self._inside_parallel and not few

    def _write_parallel(self, s: For) -> None:
        """Hook: a parallel loop. Threads get equal shares of its iterations; where their work differs, one after another.

        The iterations are a function of their own, so that its pointers are `restrict`: compilers forget that inside an OpenMP region.
        """
        extent, uneven = s.constant_extent, has_uneven_work(s)
        threads = self.target.threads if extent is None else min(self.target.threads, extent)
        captured = Captured(s.body, self.func.params)
        self.uses_openmp = True
        body = self._write_body(s, captured)
        only_if = f" if ({self.text(s.extent)} > 1)" if extent is None else ""
        given = [self.names.of(each) for each in (*captured.buffers, *captured.variables) if each is not s.var]
        given += ["workspace"] * ("call" in captured.workspaces)
        private = "thread" in captured.workspaces
        with self.names.scope():
            part = self.names.fresh("part")
        limit, count = self.text(s.extent, PRODUCT), str(threads)
        if uneven:
            given += [f"{self._threads_begin} + (int64_t)omp_get_thread_num() * {self._thread_bytes}"] * private + [part, f"{part} + 1"]
            self._uses_thread_number |= private
            count = limit
        else:
            given += [f"{self._threads_begin} + {part} * {self._thread_bytes}"] * private
            given += [f"{limit} * {part} / {threads}", f"{limit} * ({part} + 1) / {threads}"]
        self.out.line(f"#pragma omp parallel for num_threads({threads}) schedule({'dynamic' if uneven else 'static'}){only_if}")
        with self.out.block(f"for (int64_t {part} = 0; {part} < {count}; ++{part}) {{"):
            self.out.line(f"{body}({', '.join(given)});")

    def _write_body(self, s: For, captured: Captured) -> str:
        """The function that runs iterations `begin` to `end` of a parallel loop; its name."""
        name = f"tw_each_{plain_identifier(s.var.name)}"
        while name in self._bodies:
            name += "_"
        parameters = [self._pointer(b, captured.buffers) for b in captured.buffers]
        parameters += [f"{self._types[v]} {self.names.of(v)}" for v in captured.variables if v is not s.var]
        parameters += ["unsigned char *workspace"] * ("call" in captured.workspaces) + ["unsigned char *thread_workspace"] * ("thread" in captured.workspaces)
        kind = self._types[s.var] = self.helpers.scalar(s.var.dtype)
        outside, self.out, self._inside_parallel = self.out, Writer(1), True
        with self.names.scope():
            var, begin, end = self.names.declare(s.var, s.var.name), self.names.fresh("begin"), self.names.fresh("end")
            with self.out.block(f"for ({kind} {var} = {begin}; {var} < {end}; ++{var}) {{"):
                self.write(s.body)
        parameters += [f"{kind} {begin}", f"{kind} {end}"]
        comment = f"/* {self._stage or plain_identifier(self.func.name)}: the iterations of {var} that one thread runs at a time. */\n"
        self._bodies[name] = f"{comment}static __attribute__((noinline)) void {name}({', '.join(parameters)})\n{{\n{self.out.text()}}}\n"
        self.out, self._inside_parallel = outside, False
        return name

    def _pointer(self, buffer: Buffer, among: list[Buffer]) -> str:
        constant = "const " if buffer in self.func.params and buffer not in self.func.outputs else ""
        restrict = "restrict " if self._aliases.is_alone(buffer, among) else ""
        return f"{constant}{self.helpers.scalar(buffer.dtype)} *{restrict}{self.names.of(buffer)}"


CGenerator.__init_subclass__.__func__(CGenerator)  # type: ignore[attr-defined]


def function_name(wanted: str) -> str:
    """The symbol of a kernel: `wanted`, changed where it is no C identifier or belongs to C or its library."""
    name = plain_identifier(wanted)
    return f"{name}_kernel" if is_reserved(name) or is_library_function(name) else name


def has_uneven_work(loop: For) -> bool:
    """Whether iterations of a loop differ in how many iterations of inner loops they have."""
    return any(inner.__class__ is For and loop.var in inner.extent.variables for inner in walk(loop.body))


def _copies(loop: For, stores: int) -> int | None:
    """How many copies of the body of a loop, with that many stores, the C compiler is asked for; None where it is asked for nothing."""
    wanted = dict(loop.pragmas).get("unroll")
    if wanted is None and loop.kind == "unrolled":
        wanted = loop.constant_extent
    if wanted is None:
        return None
    most = max(1, _MOST_UNROLLED // max(1, stores))
    return min(int(wanted), most if loop.constant_extent is None else min(loop.constant_extent, most))


def _stores(s: Stmt) -> int:
    """The stores in `s` when the unrolled loops in it are written out: those of nested loops multiply."""
    if isinstance(s, (Store, CallIntrinsic)):
        return 1
    inside = sum(_stores(child) for child in children(s) if isinstance(child, Stmt))
    return inside * (_copies(s, inside) or 1) if isinstance(s, For) else inside


_UNROLL = """\
#define TW_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define TW_UNROLL(n) TW_PRAGMA(unroll n)
#else
#define TW_UNROLL(n) TW_PRAGMA(GCC unroll n)
#endif
"""
