"""Statements and expressions of CUDA around memory: vectors taken apart around accesses of up to 16 bytes, asynchronous copies, words of expressions.

What a vector expression becomes is decided in cuda_lanes.py; kernels and their threads are in cuda.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..tir.dtype import DType
from ..tir.errors import InternalError
from ..tir.expr import Broadcast, Buffer, Call, Cast, Choice, Const, Expr, IfThenElse, Load, Var, const, if_then_else
from ..tir.stmt import Bind, Func, Store
from ..tir.target import Target
from ..tir.visit import loads_of, substitute, walk
from .c_expressions import ATOM, BITS, UNARY
from .c_types import SMALL_FLOATS
from .cuda_functions import BIT_CASTS, COMPONENTS, FAST_FUNCTIONS, FUNCTIONS, VECTORS
from .cuda_halves import CudaHalves, is_half
from .cuda_lanes import LaneSplitter, Path, fresh_lanes, pieces, reads_other_elements, whole_loads
from .writer import Writer


class CudaVectors(CudaHalves):
    """Writes stores, bindings and expressions. `asynchronous`: what is copied to shared memory need not be there before it is waited for."""

    def __init__(self, func: Func, target: Target) -> None:
        super().__init__(func, target)
        self.asynchronous = False
        self._scalar_texts: dict[Var, tuple[str, int]] = {}  # of lanes that were read together
        self._lanes: dict[Expr, Sequence[Expr]] = {}  # of vector variables
        self._words: dict[Expr, Sequence[str]] = {}  # of those of 16-bit floats
        self._values: dict[Var, Expr] = {}  # of bound integers: what alignment is proved from

    def alignment(self, buffer: Buffer) -> int | None:
        """Hook: bytes that the first element of a buffer is aligned to; None for a buffer in registers whose elements are moved one by one."""
        raise NotImplementedError

    def ask_alignment(self, buffer: Buffer, size: int) -> None:
        """Hook: vectors of `size` bytes are moved from or to a buffer."""
        raise NotImplementedError

    def is_in_constant_memory(self, buffer: Buffer) -> bool:
        """Hook: whether a buffer of scope "global" lies in constant memory, from where nothing is copied asynchronously."""
        raise NotImplementedError

    def write_Bind(self, s: Bind) -> None:
        if s.var.dtype.lanes == 1:
            kind = self._types[s.var] = self.helpers.scalar(s.var.dtype)
            value = self.text(s.value)
            if s.var.dtype.is_integer:
                self._values[s.var] = substitute(s.value, self._values)
            self.out.line(f"const {kind} {self.names.declare(s.var, s.var.name)} = {value};")
        elif is_half(s.var.dtype) and s.var.dtype.lanes % 2 == 0:
            splitter = self._read_whole(s.value, in_words=True)
            self._declare_words(s.var, s.value, s.var.name, splitter)
            self._lanes[s.var], self._words[s.var] = splitter.lanes_of[s.var], splitter.words_of[s.var]
        else:
            splitter = self._read_whole(s.value)
            kind = self.helpers.scalar(s.var.dtype.element)
            each = self._lanes[s.var] = fresh_lanes(s.var)
            for i, variable in enumerate(each):
                value = self.text(splitter.lane(s.value, i))
                self.out.line(f"const {kind} {self.names.declare(variable, variable.name)} = {value};")
        self.write(s.body)

    # ------------------------------------------------------------------------------------------------------------ vectors in memory

    def write_Store(self, s: Store) -> None:
        index = self._flat_index(s.buffer, s.indices, s)
        lanes = s.value.dtype.lanes
        if s.predicate is not None and s.predicate.dtype.lanes == 1:
            raise self.refuse(s, "legalize")
        if index.dtype.lanes != lanes:
            raise InternalError(f"the CUDA generator met {s}: {lanes} lanes stored to {index.dtype.lanes} places")
        if self.asynchronous and self._copy_asynchronously(s, index):
            return
        if lanes == 1:
            self.out.line(f"{self.buffer(s.buffer)}[{self.text(index)}] = {self.text(s.value)};")
            return
        moved = None if s.predicate is not None else self._pieces(s.buffer, index, lanes)
        if moved is not None and self._move_whole(s, index, moved):
            return
        with self._as_a_block():
            splitter = self._read_whole(s.value, in_words=moved is not None and is_half(s.value.dtype))
            if moved is not None:
                self._write_pieces(s, index, moved, splitter)
            else:
                self._write_lanes(s, index, splitter)

    def _copy_asynchronously(self, s: Store, index: Expr) -> bool:
        """Writes a copy from global to shared memory of 4, 8 or 16 bytes at once, or of zeros where a condition does not hold, by cp.async."""
        source: Expr = s.value
        holds: Expr | None = None
        if isinstance(source, IfThenElse) and source.condition.dtype.lanes == 1 and _is_zero(source.otherwise):
            holds, source = source.condition, source.then
        if not isinstance(source, Load) or source.predicate is not None or s.predicate is not None or source.buffer.scope != "global":
            return False
        if self.is_in_constant_memory(source.buffer):
            return False
        kind, lanes = s.buffer.dtype, s.value.dtype.lanes
        moved = [(0, 1)] if lanes == 1 else self._pieces(s.buffer, index, lanes)
        if moved is None or (lanes > 1 and self._pieces(source.buffer, source.indices[0], lanes) != moved):
            return False
        if not s.buffer.scope.startswith("shared") or any(width * kind.bytes not in (4, 8, 16) for _, width in moved):
            return False
        for first, width in moved:
            starts = [at if lanes == 1 else at.base + first for at in (index, source.indices[0])]  # type: ignore[attr-defined]
            if holds is not None and loads_of(starts[1]):  # where it does not hold, nothing is copied, but the address would be read
                starts[1] = if_then_else(holds, starts[1], const(0, starts[1].dtype))
            size = width * kind.bytes
            places = ", ".join(self.address(buffer, at) for buffer, at in zip((s.buffer, source.buffer), starts, strict=True))
            if holds is None:
                self.out.line(f"{self.helpers.device.use(f'tw_cp_async_{size}')}({places});")
            else:
                self.out.line(f"{self.helpers.device.use(f'tw_cp_async_zfill_{size}')}({places}, {self.text(holds, BITS)} ? {size} : 0);")
        return True

    @contextmanager
    def _as_a_block(self) -> Iterator[None]:
        """Braces where the statement declares variables of its own."""
        with self.names.scope():
            written, self.out = self.out, Writer(1)
            yield
            inner, self.out = self.out, written
            lines = inner.text().splitlines()
            if len(lines) == 1 or not any(line.lstrip().startswith("const ") for line in lines):
                for line in lines:
                    self.out.line(line.strip())
                return
            with self.out.block("{"):
                for line in lines:
                    self.out.line(line.strip())

    def _pieces(self, buffer: Buffer, index: Expr, lanes: int) -> list[tuple[int, int]] | None:
        """The accesses that move consecutive elements; None where they are moved one by one."""
        alignment = self.alignment(buffer)
        stride = getattr(index, "stride", None)
        if alignment is None or not (isinstance(stride, Const) and stride.value == 1):
            return None
        found = pieces(buffer, substitute(index, self._values), lanes, alignment)
        if found is not None:
            self.ask_alignment(buffer, found[0][1] * buffer.dtype.bytes)
        return found

    def _read_whole(self, value: Expr, in_words: bool = False) -> LaneSplitter:
        """Declares what a statement reads in whole vectors, or computes in words of two elements that are needed one by one, and gives the lanes.

        `in_words`: the value itself is wanted as words.
        """
        known, words = dict(self._lanes), dict(self._words)
        for e, path in whole_loads(value, lambda e: self._pieces(e.buffer, e.indices[0], e.dtype.lanes) is not None).items():
            moved = self._pieces(e.buffer, e.indices[0], e.dtype.lanes)
            assert moved is not None
            each: list[Expr] = []
            for first, width in moved:
                kind = vector_type(e.buffer.dtype, width)
                name = self.names.fresh(f"{e.buffer.name}_at")
                self.out.line(f"const {kind} {name} = {self._guarded(path, self._access(e.buffer, e.indices[0], first, width), kind)};")
                each += [self._component(name, e.dtype.element, i, width) for i in range(width)]
                if is_half(e.dtype):
                    words[e] = [*words.get(e, ()), *(f"{name}.{COMPONENTS[i]}" for i in range(width // 2))]
            known[e] = each
        splitter = LaneSplitter(known, words)
        for computed in self.words_before(value, splitter, in_words):
            self._declare_words(computed, computed, "pair", splitter)
        return splitter

    def _declare_words(self, e: Expr, value: Expr, name: str, splitter: LaneSplitter) -> None:
        """Variables for `value`, a vector of 16-bit floats, that `e` stands for from now on."""
        names: list[str] = []
        each: list[Expr] = []
        for i in range(0, e.dtype.lanes, 2):
            text = self.word(value, i, splitter)
            names.append(self.names.fresh(f"{name}_{i}"))
            self.out.line(f"const unsigned int {names[-1]} = {text};")
            for lane, taken in enumerate((names[-1], f"({names[-1]} >> 16)")):
                variable = Var(f"{names[-1]}_{lane}", e.dtype.element)
                self._scalar_texts[variable] = f"(unsigned short){taken}", UNARY
                each.append(variable)
        splitter.lanes_of[e], splitter.words_of[e] = each, names

    def _access(self, buffer: Buffer, index: Expr, first: int, width: int, constant: str = "const ") -> str:
        """`width` elements of memory from lane `first` of an index on, as one vector."""
        base = index.base + first  # type: ignore[attr-defined]
        return f"*({constant}{vector_type(buffer.dtype, width)} *){self.address(buffer, base)}"

    def _guarded(self, path: Path, access: str, kind: str) -> str:
        if not path:
            return access
        conditions = [self.text(c, UNARY if not holds else BITS) for c, holds in path]
        words = " && ".join(text if holds else f"!{text}" for text, (_, holds) in zip(conditions, path, strict=True))
        zero = ", ".join(["0"] * int(kind[-1]))
        return f"{words} ? {access} : make_{kind}({zero})"

    def _component(self, name: str, kind: DType, i: int, width: int) -> Expr:
        """A scalar that stands for element `i` of a vector variable."""
        variable = Var(f"{name}_{i}", kind)
        variable.exact = False
        if (kind.element, width) in VECTORS:
            text = f"{name}.{COMPONENTS[i]}", ATOM
        else:  # packed in words
            byte = i * kind.bytes
            word, shift = f"{name}.{COMPONENTS[byte // 4]}", byte % 4 * 8
            text = f"({self.helpers.scalar(kind)})" + (f"({word} >> {shift})" if shift else word), UNARY
        if kind.is_bool:
            text = f"{text[0]} != 0", BITS - 1
        self._scalar_texts[variable] = text
        return variable

    def text_of_Var(self, e: Var) -> tuple[str, int]:
        return self._scalar_texts.get(e) or super().text_of_Var(e)

    def stands_for(self, variable: Var, text: str) -> None:
        """From now on `variable` is written as `text`, which is an identifier or the like."""
        self._scalar_texts[variable] = text, ATOM

    def _move_whole(self, s: Store, index: Expr, moved: list[tuple[int, int]]) -> bool:
        """Writes a store of what is read in the same pieces and not computed with."""
        if len(moved) > 1 and reads_other_elements(s.value, s.buffer, index):
            return False
        texts = [self._whole(s.value, first, width) for first, width in moved]
        if None in texts or not any(isinstance(e, Load) and e.dtype.lanes > 1 for e in walk(s.value)):
            return False
        for (first, width), text in zip(moved, texts, strict=True):
            self.out.line(f"{self._access(s.buffer, index, first, width, '')} = {text};")
        return True

    def _whole(self, e: Expr, first: int, width: int, level: int = 0) -> str | None:
        """Some lanes of a vector that is moved as it is, or chosen by a scalar condition; None where lanes are computed."""
        kind = e.dtype
        if isinstance(e, Load) and e.predicate is None and (first, width) in (self._pieces(e.buffer, e.indices[0], kind.lanes) or ()):
            return self._access(e.buffer, e.indices[0], first, width)
        if isinstance(e, Broadcast) and isinstance(e.value, Const):
            return self._made(kind, [e.value] * width)
        if isinstance(e, Choice) and e.condition.dtype.lanes == 1:
            then, otherwise = self._whole(e.then, first, width, 1), self._whole(e.otherwise, first, width, 1)
            if then is not None and otherwise is not None:
                text = f"{self.text(e.condition, BITS)} ? {then} : {otherwise}"
                return f"({text})" if level else text
        return None

    def _write_pieces(self, s: Store, index: Expr, moved: list[tuple[int, int]], splitter: LaneSplitter) -> None:
        made = []
        for first, width in moved:
            if is_half(s.value.dtype):
                made.append(f"make_{vector_type(s.buffer.dtype, width)}({', '.join(self.word(s.value, first + i, splitter) for i in range(0, width, 2))})")
            else:
                made.append(self._made(s.buffer.dtype, [splitter.lane(s.value, first + i) for i in range(width)]))
        if len(made) > 1 and reads_other_elements(s.value, s.buffer, index):
            kind = vector_type(s.buffer.dtype, moved[0][1])
            names = [self.names.fresh(f"{s.buffer.name}_new") for _ in made]
            for name, text in zip(names, made, strict=True):
                self.out.line(f"const {kind} {name} = {text};")
            made = names
        for (first, width), text in zip(moved, made, strict=True):
            self.out.line(f"{self._access(s.buffer, index, first, width, '')} = {text};")

    def _made(self, kind: DType, values: list[Expr]) -> str:
        """A vector of these elements."""
        if (kind.element, len(values)) in VECTORS:
            return f"make_{vector_type(kind, len(values))}({', '.join(self.text(v) for v in values)})"
        if kind.bits == 16 and kind.is_float:
            halves = [self.pair_of(values[i], values[i + 1]) for i in range(0, len(values), 2)]
            return f"make_uint{len(halves)}({', '.join(halves)})"
        per_word = 4 // kind.bytes
        unsigned = f"unsigned {'char' if kind.bytes == 1 else 'short'}"
        words = []
        for start in range(0, len(values), per_word):
            parts = []
            for i, value in enumerate(values[start : start + per_word]):
                part = f"(unsigned int)({unsigned}){self.text(value, UNARY)}"
                parts.append(f"{part} << {i * kind.bits}" if i else part)
            words.append(" | ".join(parts))
        return f"make_uint{len(words)}({', '.join(words)})"

    def _write_lanes(self, s: Store, index: Expr, splitter: LaneSplitter) -> None:
        """Element by element. What earlier ones would change is read before."""
        lanes = s.value.dtype.lanes
        values = [splitter.lane(s.value, i) for i in range(lanes)]
        if s.predicate is not None:
            values = [_where(splitter.lane(s.predicate, i), value) for i, value in enumerate(values)]
        texts = [self.text(value) for value in values]
        if reads_other_elements(s.value, s.buffer, index):
            kind = self.helpers.scalar(s.buffer.dtype)
            names = [self.names.fresh(f"{s.buffer.name}_new") for _ in texts]
            for name, text in zip(names, texts, strict=True):
                self.out.line(f"const {kind} {name} = {text};")
            texts = names
        for i, text in enumerate(texts):
            assignment = f"{self.buffer(s.buffer)}[{self.text(splitter.lane(index, i))}] = {text};"
            if s.predicate is not None:
                assignment = f"if ({self.text(splitter.lane(s.predicate, i))}) {assignment}"
            self.out.line(assignment)

    # -------------------------------------------------------------------------------------------------------------- expressions

    def text_of_Load(self, e: Load) -> tuple[str, int]:
        if e.dtype.lanes > 1:
            raise InternalError(f"the CUDA generator met the vector {e} inside a scalar")
        return super().text_of_Load(e)

    def text_of_Const(self, e: Const) -> tuple[str, int]:
        if not e.dtype.is_float or e.dtype.element in SMALL_FLOATS or abs(e.value) < float("inf"):
            return super().text_of_Const(e)
        single = e.dtype.element == "float32"
        if e.value != e.value:
            return ("__int_as_float(0x7fc00000)" if single else "__longlong_as_double(0x7ff8000000000000LL)"), ATOM
        text = "__int_as_float(0x7f800000)" if single else "__longlong_as_double(0x7ff0000000000000LL)"
        return (text, ATOM) if e.value > 0 else (f"-{text}", UNARY)

    def text_of_Cast(self, e: Cast) -> tuple[str, int]:
        source, to = e.value.dtype, e.dtype
        if source.is_float and source.element not in SMALL_FLOATS and to.is_integer:
            return f"({self.helpers.scalar(to)}){self.text(e.value, UNARY)}", UNARY  # saturates
        return super().text_of_Cast(e)

    def text_of_Call(self, e: Call) -> tuple[str, int]:
        if e.name == "reinterpret" and (e.args[0].dtype.element, e.dtype.element) in BIT_CASTS:
            return f"{BIT_CASTS[e.args[0].dtype.element, e.dtype.element]}({self.text(e.args[0])})", ATOM
        return super().text_of_Call(e)

    def function_of_floats(self, e: Call) -> tuple[str, int]:
        kind = e.args[0].dtype
        arguments = ", ".join([self.text(a) for a in e.args])
        if e.name not in FUNCTIONS:
            return f"{self.helpers.use(e.name, kind)}({arguments})", ATOM
        if self.target.fast_math and kind == "float32" and e.name in FAST_FUNCTIONS:
            return f"{FAST_FUNCTIONS[e.name]}({arguments})", ATOM
        return f"{FUNCTIONS[e.name]}{'f' if kind == 'float32' else ''}({arguments})", ATOM


def vector_type(kind: DType, lanes: int) -> str:
    """The built-in type of `lanes` elements in memory: of the element's own, or of unsigned words that hold them."""
    named = VECTORS.get((kind.element, lanes))
    return named if named is not None else f"uint{kind.bytes * lanes // 4}"


def _where(condition: Expr, value: Expr) -> Expr:
    """`value` where `condition` holds."""
    return value.then if isinstance(value, Choice) and value.condition is condition else value


def _is_zero(e: Expr) -> bool:
    """Whether all bits of a constant are zero."""
    e = e.value if isinstance(e, Broadcast) else e
    return isinstance(e, Const) and e.value == 0 and str(e.value)[0] != "-"
