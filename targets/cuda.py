"""The CUDA generator: a function whose loops are bound to the indices of a grid as CUDA C++ kernels.

It is the C generator with other words (cuda_functions.py), vectors taken apart (cuda_lanes.py), and these statements: kernels, thread indices, shared
memory, barriers. It expects what the pipeline for CUDA ends with: a sequence of kernels, each `Produce(name, blockIdx loops, threadIdx loops, ...)`, with
placed buffers. What a thread of the block does is plain C++; nvcc, NVRTC and the emulator's host compiler take the same text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from ..tir.dtype import DType
from ..tir.errors import InternalError, TargetError
from ..tir.expr import Binary, Broadcast, Buffer, Call, Cast, Choice, Const, Expr, IfThenElse, Load, Var
from ..tir.gpu import INDEX_LIMITS, STATIC_SHARED_BYTES
from ..tir.passes.double_buffer import ASYNCHRONOUS
from ..tir.stmt import Allocate, AllReduce, Bind, CallExtern, CallIntrinsic, For, Func, If, Prefetch, Produce, Seq, Stmt, Store, Sync
from ..tir.target import Target
from ..tir.visit import children, substitute, walk
from .c import CGenerator
from .c_expressions import ATOM, BITS, UNARY
from .c_storage import Captured
from .c_types import SMALL_FLOATS
from .cuda_functions import BIT_CASTS, COMPONENTS, FAST_FUNCTIONS, FUNCTIONS, VECTORS, CudaScalars, is_reserved_in_cuda, is_taken_from_kernels
from .cuda_lanes import WIDEST_BYTES, LaneSplitter, Path, fresh_lanes, pieces, reads_other_elements, whole_loads
from .cuda_launch import GeneratedCuda, KernelLaunch, Number, Parameter
from .cuda_reduce import AllReduceWriter, scratch_bytes
from .writer import Identifiers, Writer, plain_identifier

_DYNAMIC_SHARED = "tw_shared"
_SHARED_ALIGNMENT = 16
_HOST_CALLS = {"truncdiv": "//", "truncmod": "%"}
_BLOCK_INDICES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
_THREAD_INDICES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def generate(func: Func, target: Target, declared: Sequence[Buffer] | None = None) -> GeneratedCuda:
    """CUDA source of a function that went through the pipeline, and how its kernels are launched.

    `declared`: the parameters as the user declared them, for the signature; default: `func.params`. An InternalError names the pass that should have
    removed what the generator does not know; a TargetError says what is outside all threads.
    """
    return CudaGenerator(func, target).generate(func.params if declared is None else declared)


@dataclass
class _Kernel:
    """What is known of the kernel that is being written."""

    name: str
    extents: dict[str, Expr] = field(default_factory=dict)  # of its indices, by tag
    alignments: dict[Buffer, int] = field(default_factory=dict)  # bytes that vector accesses ask of a buffer from outside
    shared: dict[Buffer, int] = field(default_factory=dict)  # placed at these bytes
    shared_bytes: int = 0
    is_dynamic: bool = False

    @property
    def block(self) -> tuple[int, int, int]:
        x, y, z = (self._constant(tag) for tag in _THREAD_INDICES)
        return x, y, z

    def _constant(self, tag: str) -> int:
        extent = self.extents.get(tag)
        if extent is None:
            return 1
        if not isinstance(extent, Const):
            raise InternalError(f"kernel {self.name}: the extent {extent} of {tag} is no constant: pass 'bind_threads' should have refused it")
        return int(extent.value)


class CudaGenerator(CGenerator):
    """Writes one function. Use `generate`."""

    language: ClassVar[str] = "CUDA"
    helpers: CudaScalars

    def __init__(self, func: Func, target: Target) -> None:
        super().__init__(func, target, CudaScalars(), is_reserved_in_cuda)
        self._workspace: dict[Buffer, Number] = {}  # global intermediates and the bytes they begin at
        self._bound: dict[Var, Expr] = {}  # outside all kernels
        self._conditions: list[Expr] = []  # that hold around a kernel
        self._kernels: list[str] = []
        self._launches: list[KernelLaunch] = []
        self._alignments = {p: p.dtype.bytes for p in func.params}
        self._kernel = _Kernel("")
        self._scalar_texts: dict[Var, tuple[str, int]] = {}  # of lanes that were read together
        self._lanes: dict[Expr, Sequence[Expr]] = {}  # of vector variables
        self._loops = 0  # serial ones around
        self._asynchronous = False  # what is copied to shared memory need not be there before it is waited for
        self._size_names = Identifiers(lambda name: False)

    # ----------------------------------------------------------------------------------------------------------------- function

    def generate(self, declared: Sequence[Buffer]) -> GeneratedCuda:
        """The source, its signature and its launches."""
        arguments, sizes = self._signature(declared)
        for size in self.func.sizes:
            self._size_names.declare(size, size.name)
        for parameter in self.func.params:
            self.names.declare(parameter, parameter.name)
        self._count = sum(isinstance(s, Produce) for s in _outermost(self.func.body))
        self._write_host(self.func.body)
        parts = [f"// {plain_identifier(self.func.name)}: generated by Tilewright.\n"]
        helpers = self.helpers.emit()
        parts += [helpers] if helpers.strip() else []
        parts += [text for _, text in self._intrinsics.values()]
        workspace = self._number(self.func.workspace_bytes[0]) if self._workspace else 0
        return GeneratedCuda(
            cuda_function_name(self.func.name),
            "\n".join([*parts, *self._kernels]),
            arguments,
            sizes,
            workspace if isinstance(workspace, int) else 0,
            launches=tuple(self._launches),
            workspace=workspace,
            alignments=tuple(self._alignments[p] for p in self.func.params),
        )

    def _number(self, value: int | Expr) -> Number:
        """A number that the host computes at a call."""
        if isinstance(value, int):
            return value
        text, _ = _host_text(_substituted(value, self._bound), self._size_names)
        return int(text) if text.isdecimal() else text

    def _write_host(self, s: Stmt) -> None:
        """What stands outside all kernels: their order, and where global intermediates are."""
        if isinstance(s, Seq):
            for child in s.body:
                self._write_host(child)
        elif isinstance(s, Allocate) and s.place is not None and s.place.kind == "call":
            self.names.declare(s.buffer, s.buffer.name)
            self._workspace[s.buffer] = self._number(s.place.offset)
            self._write_host(s.body)
        elif isinstance(s, Bind):
            self._bound[s.var] = _substituted(s.value, self._bound)
            self._write_host(s.body)
        elif isinstance(s, If) and s.otherwise is None:
            self._conditions.append(s.condition)
            self._write_host(s.then)
            self._conditions.pop()
        elif isinstance(s, Produce) and any(isinstance(n, For) and n.thread for n in walk(s.body)):
            self._write_kernel(s)
        elif isinstance(s, Produce):
            raise TargetError(f"stage {s.name} writes global memory outside any thread: bind its axes, or s[{s.name}].compute_inline()")
        else:
            raise self.refuse(s, "bind_threads")

    def _write_kernel(self, s: Produce) -> None:
        name = cuda_function_name(self.func.name if self._count == 1 else f"{self.func.name}_{s.name}")
        while any(name == launch.name for launch in self._launches):
            name += "_"
        outside, self._kernel, self.out, self._loops = self._kernel, _Kernel(name), Writer(1), 0
        captured = Captured(s.body, self.func.params)
        written = {n.buffer for n in walk(s.body) if isinstance(n, Store)} | {n.loads[0].buffer for n in walk(s.body) if isinstance(n, CallIntrinsic)}
        with self.names.scope():
            self.names.fresh(name)
            sizes = self._sizes_of(captured)
            for size in sizes:
                self._types[size] = self.helpers.scalar(size.dtype)
                self.names.declare(size, size.name)
            self._declare_bound(captured)
            self._find_shared(s)
            with self._inside_conditions():
                self._stage = plain_identifier(s.name)
                self.write(s.body)
        kernel = self._kernel
        parameters = [self._parameter(b, captured.buffers, b in written) for b in captured.buffers]
        parameters += [f"{self._types[size]} {self.names.of(size)}" for size in sizes]
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        head = f'// {self._stage}\nextern "C" __global__ void __launch_bounds__({threads}) {name}({", ".join(parameters)})'
        self._kernels.append(f"{head}\n{{\n{self.out.text()}}}\n")
        self._launches.append(self._launch(captured, sizes))
        for buffer, alignment in kernel.alignments.items():
            if buffer in self._alignments:
                self._alignments[buffer] = max(alignment, self._alignments[buffer])
        self._kernel = outside

    def _launch(self, captured: Captured, sizes: list[Var]) -> KernelLaunch:
        kernel = self._kernel
        grid = [self._number(kernel.extents[tag]) if tag in kernel.extents else 1 for tag in _BLOCK_INDICES]
        position = {p: number for number, p in enumerate(self.func.params)}
        parameters = []
        for buffer in captured.buffers:
            where = ("workspace", self._workspace[buffer]) if buffer in self._workspace else ("argument", position[buffer])
            parameters.append(Parameter(*where, buffer.dtype))
        parameters += [Parameter("size", self._size_names.of(size), size.dtype) for size in sizes]
        dynamic = kernel.shared_bytes if kernel.is_dynamic else 0
        return KernelLaunch(kernel.name, (grid[0], grid[1], grid[2]), kernel.block, tuple(parameters), dynamic)

    def _sizes_of(self, captured: Captured) -> list[Var]:
        """The symbolic sizes that a kernel uses."""
        used = set(captured.variables)
        for each in (*self._conditions, *(self._bound[v] for v in captured.variables if v in self._bound)):
            used |= each.variables
        return [size for size in self.func.sizes if size in used]

    def _declare_bound(self, captured: Captured) -> None:
        """Variables of the host: each kernel computes what it uses."""
        for variable in captured.variables:
            if variable in self._bound:
                kind = self._types[variable] = self.helpers.scalar(variable.dtype)
                value = self.text(self._bound[variable])
                self.out.line(f"const {kind} {self.names.declare(variable, variable.name)} = {value};")

    @contextmanager
    def _inside_conditions(self) -> Iterator[None]:
        """Conditions of the host hold for all threads alike."""
        if not self._conditions:
            yield
            return
        with self.out.block(f"if ({' && '.join(self.text(c, BITS) for c in self._conditions)}) {{"):
            yield

    def _parameter(self, buffer: Buffer, among: list[Buffer], is_written: bool) -> str:
        constant = "" if is_written else "const "
        restrict = "__restrict__ " if self._aliases.is_alone(buffer, among) else ""
        return f"{constant}{self.helpers.scalar(buffer.dtype)} *{restrict}{self.names.of(buffer)}"

    # ------------------------------------------------------------------------------------------------------------------ storage

    def _find_shared(self, s: Stmt) -> None:
        """Where the shared buffers of a kernel are. They are arrays of their own unless they share bytes, or are too many to be declared."""
        kernel = self._kernel
        for node in walk(s):
            if isinstance(node, Allocate) and node.place is not None and node.place.kind == "shared":
                size = node.buffer.constant_size
                if size is None or not isinstance(node.place.offset, int):
                    raise InternalError(f"shared buffer {node.buffer.name!r} has no constant size and place: pass 'shared_memory' should have refused it")
                kernel.shared[node.buffer] = node.place.offset
                kernel.shared_bytes = max(kernel.shared_bytes, node.place.offset + size * node.buffer.dtype.bytes)
        kernel.is_dynamic = kernel.shared_bytes + self._reduction_bytes(s) > STATIC_SHARED_BYTES
        together = kernel.is_dynamic or not all(self._aliases.is_alone(buffer) for buffer in kernel.shared)
        if not together:
            return
        if kernel.is_dynamic:
            self.out.line(f"extern __shared__ __align__({_SHARED_ALIGNMENT}) unsigned char {_DYNAMIC_SHARED}[];")
        else:
            self.out.line(f"__shared__ __align__({_SHARED_ALIGNMENT}) unsigned char {_DYNAMIC_SHARED}[{kernel.shared_bytes}];")
        for buffer, offset in kernel.shared.items():
            kind = self.helpers.scalar(buffer.dtype)
            self.out.line(f"{kind} *const {self.names.declare(buffer, buffer.name)} = ({kind} *)({_DYNAMIC_SHARED} + {offset});")

    @staticmethod
    def _reduction_bytes(s: Stmt) -> int:
        """Bytes of shared memory that reductions across threads take in a kernel."""
        extents = {n.thread: n.constant_extent or 1 for n in walk(s) if isinstance(n, For)}
        block = [extents.get(tag, 1) for tag in _THREAD_INDICES]
        return sum(scratch_bytes(n, block) for n in walk(s) if isinstance(n, AllReduce))

    def write_Allocate(self, s: Allocate) -> None:
        buffer, place = s.buffer, s.place
        if place is None:
            raise self.refuse(buffer, "shared_memory" if buffer.scope.startswith("shared") else "storage")
        kind, size = self.helpers.scalar(buffer.dtype), buffer.constant_size
        if size is None:
            raise InternalError(f"buffer {buffer.name!r} inside a kernel has no constant size: pass 'bind_threads' should have refused it")
        if place.kind == "shared":
            if not self.names.knows(buffer):
                name = self.names.declare(buffer, buffer.name)
                self.out.line(f"__shared__ __align__({_SHARED_ALIGNMENT}) {kind} {name}[{max(size, 1)}];")
        elif place.kind == "stack":
            self.out.line(f"{kind} {self.names.declare(buffer, buffer.name)}[{max(size, 1)}];")
        else:
            raise self.refuse(buffer, "bind_threads")
        self.write(s.body)

    def _alignment(self, buffer: Buffer) -> int | None:
        """Bytes that the first element of a buffer is aligned to where accesses of vectors are possible; None for a buffer in registers."""
        if buffer in self._kernel.shared:
            offset = self._kernel.shared[buffer]
            return _SHARED_ALIGNMENT if offset % _SHARED_ALIGNMENT == 0 else offset & -offset
        if buffer in self._workspace or buffer in self._alignments:
            return WIDEST_BYTES  # arguments are checked, the workspace is aligned
        return None

    # ------------------------------------------------------------------------------------------------------ threads and statements

    def write_Produce(self, s: Produce) -> None:
        self.out.line(f"// {plain_identifier(s.name)}")
        outside, self._asynchronous = self._asynchronous, self._asynchronous or ASYNCHRONOUS in dict(s.pragmas)
        self.write(s.body)
        self._asynchronous = outside

    def write_For(self, s: For) -> None:
        if s.kind == "vectorized":
            raise self.refuse(f"the vectorized loop over {s.var.name!r}", "vectorize")
        if s.kind == "thread":
            self._write_index(s)
            return
        wanted = dict(s.pragmas).get("unroll")
        if wanted is not None or s.kind == "unrolled":
            self.out.line("#pragma unroll" + (f" {wanted}" if wanted is not None else ""))
        self._loops += 1
        with self._loop(s):
            self.write(s.body)
        self._loops -= 1

    def _write_index(self, s: For) -> None:
        """An index of the grid or of the block: what was a loop variable is known to each thread."""
        tag = s.thread or ""
        if tag not in INDEX_LIMITS:
            raise self.refuse(f"the thread index {s.var.name!r} ({tag})", "virtual_threads" if tag == "vthread" else "bind_threads")
        if tag in self._kernel.extents:
            raise self.refuse(f"a second loop over {tag}, {s.var.name!r},", "bind_threads")
        self._kernel.extents[tag] = s.extent
        kind = self._types[s.var] = self.helpers.scalar(s.var.dtype)
        self.out.line(f"const {kind} {self.names.declare(s.var, s.var.name)} = {tag};")
        self.write(s.body)

    def write_Sync(self, s: Sync) -> None:
        if s.kind == "block":
            self.out.line("__syncthreads();")
        elif s.kind == "warp":
            self.out.line("__syncwarp();")
        elif s.kind == "async_commit":
            self.out.line(f"{self.helpers.device.use('tw_cp_async_commit')}();")
        elif s.kind == "async_wait":
            self.out.line(f"{self.helpers.device.use('tw_cp_async_wait')}<{s.count}>();")
        else:
            raise InternalError(f"the CUDA generator met a Sync of the unknown kind {s.kind!r}")

    def write_AllReduce(self, s: AllReduce) -> None:
        AllReduceWriter(self, s, self._kernel.block, repeats=self._loops > 0).write()

    def write_Bind(self, s: Bind) -> None:
        if s.var.dtype.lanes == 1:
            kind = self._types[s.var] = self.helpers.scalar(s.var.dtype)
            value = self.text(s.value)
            self.out.line(f"const {kind} {self.names.declare(s.var, s.var.name)} = {value};")
        else:
            splitter = self._read_whole(s.value)
            kind = self.helpers.scalar(s.var.dtype.element)
            each = self._lanes[s.var] = fresh_lanes(s.var)
            for i, variable in enumerate(each):
                value = self.text(splitter.lane(s.value, i))
                self.out.line(f"const {kind} {self.names.declare(variable, variable.name)} = {value};")
        self.write(s.body)

    def write_Prefetch(self, s: Prefetch) -> None:
        """A hint of the CPU's; the warps of a GPU hide latencies themselves."""

    def write_CallExtern(self, s: CallExtern) -> None:
        raise TargetError(f"{self.func.name}: te.extern calls the C function {s.symbol!r}, which a GPU cannot; use target 'c'")

    def write_CallIntrinsic(self, s: CallIntrinsic) -> None:
        values = []
        for first, steps in zip(s.loads, s.steps, strict=True):
            values.append(self.address(first.buffer, self._flat_index(first.buffer, first.indices, s)))
            values += [self.text(along[0]) for along in steps]
            self._ask_alignment(first.buffer, WIDEST_BYTES)
        self.out.line(f"{self._intrinsic(s)}({', '.join(values)});")

    # ------------------------------------------------------------------------------------------------------------ vectors in memory

    def write_Store(self, s: Store) -> None:
        index = self._flat_index(s.buffer, s.indices, s)
        lanes = s.value.dtype.lanes
        if s.predicate is not None and s.predicate.dtype.lanes == 1:
            raise self.refuse(s, "legalize")
        if index.dtype.lanes != lanes:
            raise InternalError(f"the CUDA generator met {s}: {lanes} lanes stored to {index.dtype.lanes} places")
        if self._asynchronous and self._copy_asynchronously(s, index):
            return
        if lanes == 1:
            self.out.line(f"{self.buffer(s.buffer)}[{self.text(index)}] = {self.text(s.value)};")
            return
        moved = None if s.predicate is not None else self._pieces(s.buffer, index, lanes)
        if moved is not None and self._move_whole(s, index, moved):
            return
        with self._as_a_block():
            splitter = self._read_whole(s.value)
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
        kind, lanes = s.buffer.dtype, s.value.dtype.lanes
        moved = [(0, 1)] if lanes == 1 else self._pieces(s.buffer, index, lanes)
        if moved is None or (lanes > 1 and self._pieces(source.buffer, source.indices[0], lanes) != moved):
            return False
        if not s.buffer.scope.startswith("shared") or any(width * kind.bytes not in (4, 8, 16) for _, width in moved):
            return False
        for first, width in moved:
            starts = [at if lanes == 1 else at.base + first for at in (index, source.indices[0])]  # type: ignore[attr-defined]
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
        alignment = self._alignment(buffer)
        stride = getattr(index, "stride", None)
        if alignment is None or not (isinstance(stride, Const) and stride.value == 1):
            return None
        found = pieces(buffer, index, lanes, alignment)
        if found is not None:
            self._ask_alignment(buffer, found[0][1] * buffer.dtype.bytes)
        return found

    def _ask_alignment(self, buffer: Buffer, size: int) -> None:
        self._kernel.alignments[buffer] = max(size, self._kernel.alignments.get(buffer, 1))

    def _read_whole(self, value: Expr) -> LaneSplitter:
        """Declares what a statement reads in whole vectors, and gives the lanes."""
        known = dict(self._lanes)
        for e, path in whole_loads(value, lambda e: self._pieces(e.buffer, e.indices[0], e.dtype.lanes) is not None).items():
            moved = self._pieces(e.buffer, e.indices[0], e.dtype.lanes)
            assert moved is not None
            each: list[Expr] = []
            for first, width in moved:
                kind = vector_type(e.buffer.dtype, width)
                name = self.names.fresh(f"{e.buffer.name}_at")
                self.out.line(f"const {kind} {name} = {self._guarded(path, self._access(e.buffer, e.indices[0], first, width), kind)};")
                each += [self._component(name, e.dtype.element, i, width) for i in range(width)]
            known[e] = each
        return LaneSplitter(known)

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
            values = [splitter.lane(s.value, first + i) for i in range(width)]
            made.append(self._made(s.buffer.dtype, values))
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


CudaGenerator.__init_subclass__.__func__(CudaGenerator)  # type: ignore[attr-defined]


def vector_type(kind: DType, lanes: int) -> str:
    """The built-in type of `lanes` elements in memory: of the element's own, or of unsigned words that hold them."""
    named = VECTORS.get((kind.element, lanes))
    return named if named is not None else f"uint{kind.bytes * lanes // 4}"


def cuda_function_name(wanted: str) -> str:
    """The symbol of a kernel: `wanted`, changed where it is no identifier or CUDA has a function of that name."""
    name = plain_identifier(wanted)
    return f"{name}_kernel" if is_taken_from_kernels(name) else name


def _outermost(s: Stmt) -> Iterator[Stmt]:
    """The outermost Produces, and what stands outside them."""
    yield s
    if not isinstance(s, Produce):
        for child in children(s):
            if isinstance(child, Stmt):
                yield from _outermost(child)


def _where(condition: Expr, value: Expr) -> Expr:
    """`value` where `condition` holds."""
    return value.then if isinstance(value, Choice) and value.condition is condition else value


def _is_zero(e: Expr) -> bool:
    """Whether all bits of a constant are zero."""
    e = e.value if isinstance(e, Broadcast) else e
    return isinstance(e, Const) and e.value == 0 and str(e.value)[0] != "-"


def _host_text(e: Expr, names: Identifiers) -> tuple[str, bool]:
    """An expression of sizes in Python's integers, which need no casts and have one division; and whether it is a single token or a call."""
    if isinstance(e, Cast):
        return _host_text(e.value, names)
    if isinstance(e, Const | Var):
        return (str(int(e.value)) if isinstance(e, Const) else names.of(e)), True
    symbol = _HOST_CALLS.get(e.name) if isinstance(e, Call) else e.symbol if isinstance(e, Binary) else None
    if symbol is None:
        raise InternalError(f"the CUDA generator met {e} where the host computes: expected integer arithmetic on sizes")
    operands = [_host_text(child, names) for child in e.children]
    if symbol in ("min", "max"):
        return f"{symbol}({', '.join(text for text, _ in operands)})", True
    return f" {symbol} ".join(text if token else f"({text})" for text, token in operands), False


def _substituted(e: Expr, values: dict[Var, Expr]) -> Expr:
    return substitute(e, values) if values else e
