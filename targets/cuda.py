"""The CUDA generator: a function whose loops are bound to the indices of a grid as CUDA C++ kernels.

It is the C generator with other words (cuda_functions.py), vectors taken apart (cuda_vectors.py), and these statements: kernels, thread indices, shared
memory, barriers. It expects what the pipeline for CUDA ends with: a sequence of kernels, each `Produce(name, blockIdx loops, threadIdx loops, ...)`, with
placed buffers. What a thread of the block does is plain C++; nvcc, NVRTC and the emulator's host compiler take the same text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import ClassVar

from ..tir.errors import InternalError, TargetError
from ..tir.expr import Binary, Buffer, Call, Cast, Const, Expr, Load, Var
from ..tir.gpu import INDEX_LIMITS, STATIC_SHARED_BYTES, WARP_SIZE, is_fragment
from ..tir.kernel import WIDEST_BYTES, kernel_statements, kernels_of, shared_alignment, workspace_of
from ..tir.passes.double_buffer import ASYNCHRONOUS
from ..tir.stmt import Allocate, Atomic, CallExtern, CallIntrinsic, For, Func, Prefetch, Produce, Shuffle, Stmt, Store, Sync
from ..tir.target import Target
from ..tir.visit import walk
from .c_expressions import UNARY
from .c_storage import Captured
from .constants import ConstantMemory
from .cuda_constants import ALIGNMENT, declaration, in_constant_memory
from .cuda_functions import is_taken_from_kernels
from .cuda_halves import is_half
from .cuda_helpers import CUDA_HELPERS, INLINE
from .cuda_launch import GeneratedCuda, KernelLaunch, Number, Parameter
from .cuda_vectors import CudaVectors
from .writer import Identifiers, Writer, plain_identifier

_DYNAMIC_SHARED = "tw_shared"
_SHUFFLED = ("float32", "float64", "int32", "uint32", "int64")  # types that a shuffle moves
_HOST_CALLS = {"truncdiv": "//", "truncmod": "%"}
_BLOCK_INDICES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
_THREAD_INDICES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def generate(func: Func, target: Target, declared: Sequence[Buffer] | None = None) -> GeneratedCuda:
    """CUDA source of a function that went through the pipeline, and how its kernels are launched.

    `declared`: the parameters as the user declared them, for the signature; default: `func.params`. An InternalError names the pass that should have
    removed what the generator does not know.
    """
    return CudaGenerator(func, target).generate(func.params if declared is None else declared)


def generate_with_constants(
    func: Func, target: Target, declared: Sequence[Buffer], memories: Sequence[ConstantMemory]
) -> tuple[GeneratedCuda, list[ConstantMemory]]:
    """The same of a function whose first parameters are constants, with the values in `memories`: those that fit constant memory are declared in the source.
    And the values of the others, `GeneratedCuda.constants`, which come before the arguments."""
    values = dict(zip(func.params, memories, strict=False))
    inside = in_constant_memory(func, func.params[: len(memories)])
    passed = [memory for buffer, memory in values.items() if buffer not in inside]
    kept = [(buffer, tensor) for buffer, tensor in zip(func.params, declared, strict=True) if buffer not in inside]
    func = replace(func, params=tuple(buffer for buffer, _ in kept))
    generated = CudaGenerator(func, target, {buffer: values[buffer].content for buffer in inside}).generate([tensor for _, tensor in kept])
    count = len(passed)
    return replace(generated, arguments=generated.arguments[count:], constants=generated.arguments[:count]), passed


@dataclass
class _Kernel:
    """What is known of the kernel that is being written."""

    name: str
    extents: dict[str, Expr] = field(default_factory=dict)  # of its indices, by tag
    alignments: dict[Buffer, int] = field(default_factory=dict)  # bytes that vector accesses ask of a buffer from outside
    shared: dict[Buffer, int] = field(default_factory=dict)  # placed at these bytes
    shared_bytes: int = 0
    shared_alignment: int = WIDEST_BYTES
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


class CudaGenerator(CudaVectors):
    """Writes one function. Use `generate`. `constants`: what constant memory holds."""

    intrinsic_words: ClassVar[str] = INLINE
    distance_type: ClassVar[str] = "int"

    def __init__(self, func: Func, target: Target, constants: Mapping[Buffer, bytes] = MappingProxyType({})) -> None:
        super().__init__(func, target)
        self._constants = constants
        self._constant_names: dict[Buffer, str] = {}
        self._workspace: dict[Buffer, Number] = {}  # global intermediates and the bytes they begin at
        self._kernels: list[str] = []
        self._launches: list[KernelLaunch] = []
        self._alignments = {p: p.dtype.bytes for p in func.params}
        self._kernel = _Kernel("")
        self._host_names = self._size_names()

    # ----------------------------------------------------------------------------------------------------------------- function

    def generate(self, declared: Sequence[Buffer]) -> GeneratedCuda:
        """The source, its signature and its launches."""
        arguments, sizes = self._signature(declared)
        for parameter in self.func.params:
            self.names.declare(parameter, parameter.name)
        tables = [self._declare_constant(buffer, content) for buffer, content in self._constants.items()]
        for allocation in workspace_of(self.func):
            self._declare_workspace(allocation)
        for kernel, s in zip(kernels_of(self.func), kernel_statements(self.func), strict=True):
            if not isinstance(s, Produce) or not kernel.indices:
                raise self.refuse(s, "bind_threads")
            self._write_kernel(kernel.name, s)
        parts = [f"// {plain_identifier(self.func.name)}: generated by Tilewright.\n"]
        helpers = self.helpers.emit()
        parts += tables
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
        text, _ = _host_text(value, self._host_names)
        return int(text) if text.isdecimal() else text

    def _declare_workspace(self, s: Allocate) -> None:
        """An intermediate in global memory."""
        if s.place is None or s.place.kind != "call":
            raise self.refuse(s.buffer, "storage")
        self.names.declare(s.buffer, s.buffer.name)
        self._workspace[s.buffer] = self._number(s.place.offset)

    def _write_kernel(self, wanted: str, s: Produce) -> None:
        name = cuda_function_name(wanted)
        while any(name == launch.name for launch in self._launches) or any(name == self.names.of(buffer) for buffer in self._constants):
            name += "_"
        outside, self._kernel, self.out = self._kernel, _Kernel(name), Writer(1)
        captured = Captured(s.body, self.func.params)
        captured.buffers = [buffer for buffer in captured.buffers if buffer not in self._constants]
        written = {n.buffer for n in walk(s.body) if isinstance(n, Store)} | {n.loads[0].buffer for n in walk(s.body) if isinstance(n, CallIntrinsic)}
        written |= {n.load.buffer for n in walk(s.body) if isinstance(n, Atomic)}
        with self.names.scope():
            self.names.fresh(name)
            used = set(captured.variables)
            sizes = [size for size in self.func.sizes if size in used]
            for size in sizes:
                self._types[size] = self.helpers.scalar(size.dtype)
                self.names.declare(size, size.name)
            self._find_shared(s)
            self._stage = plain_identifier(s.name)
            self.write(s.body)
        kernel = self._kernel
        parameters = [self._parameter(b, captured.buffers, b in written) for b in captured.buffers]
        parameters += [f"{self._types[size]} {self.names.of(size)}" for size in sizes]
        threads = prod(kernel.block)
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
            elements = self._number(buffer.shape[0]) if buffer in self._workspace else 0
            parameters.append(Parameter(*where, buffer.dtype, elements))
        parameters += [Parameter("size", self._host_names.of(size), size.dtype) for size in sizes]
        dynamic = kernel.shared_bytes if kernel.is_dynamic else 0
        return KernelLaunch(kernel.name, (grid[0], grid[1], grid[2]), kernel.block, tuple(parameters), dynamic)

    def _parameter(self, buffer: Buffer, among: list[Buffer], is_written: bool) -> str:
        constant = "" if is_written else "const "
        restrict = "__restrict__ " if self._aliases.is_alone(buffer, among) else ""
        return f"{constant}{self.helpers.scalar(buffer.dtype)} *{restrict}{self.names.of(buffer)}"

    # ------------------------------------------------------------------------------------------------------------------ storage

    def _declare_constant(self, buffer: Buffer, content: bytes) -> str:
        """Its name says where it is, and is no other's: at the top of a source stand the names of C's library too."""
        name = self.names.declare(buffer, f"{buffer.name}_constant")
        text, self._constant_names[buffer] = declaration(name, self.helpers.scalar(buffer.dtype), buffer.dtype, content)
        return text

    def buffer(self, buffer: Buffer) -> str:
        return self._constant_names.get(buffer) or super().buffer(buffer)

    def is_in_constant_memory(self, buffer: Buffer) -> bool:
        return buffer in self._constants

    def _find_shared(self, s: Stmt) -> None:
        """Where the shared buffers of a kernel are. They are arrays of their own unless they share bytes, or are too many to be declared."""
        kernel = self._kernel
        kernel.shared_alignment = shared_alignment(s)
        for node in walk(s):
            if isinstance(node, Allocate) and node.place is not None and node.place.kind == "shared":
                size = node.buffer.constant_size
                if size is None or not isinstance(node.place.offset, int):
                    raise InternalError(f"shared buffer {node.buffer.name!r} has no constant size and place: pass 'shared_memory' should have refused it")
                kernel.shared[node.buffer] = node.place.offset
                kernel.shared_bytes = max(kernel.shared_bytes, node.place.offset + size * node.buffer.dtype.bytes)
        asked = any(buffer.scope == "shared.dyn" for buffer in kernel.shared)
        kernel.is_dynamic = asked or kernel.shared_bytes > STATIC_SHARED_BYTES
        together = kernel.is_dynamic or not all(self._aliases.is_alone(buffer) for buffer in kernel.shared)
        if not together:
            return
        if kernel.is_dynamic:
            self.out.line(f"extern __shared__ __align__({kernel.shared_alignment}) unsigned char {_DYNAMIC_SHARED}[];")
        else:
            self.out.line(f"__shared__ __align__({kernel.shared_alignment}) unsigned char {_DYNAMIC_SHARED}[{kernel.shared_bytes}];")
        for buffer, offset in kernel.shared.items():
            kind = self.helpers.scalar(buffer.dtype)
            self.out.line(f"{kind} *const {self.names.declare(buffer, buffer.name)} = ({kind} *)({_DYNAMIC_SHARED} + {offset});")

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
                self.out.line(f"__shared__ __align__({self._kernel.shared_alignment}) {kind} {name}[{max(size, 1)}];")
        elif place.kind == "stack" and is_fragment(buffer.scope):
            self.out.line(f"__align__({WIDEST_BYTES}) {kind} {self.names.declare(buffer, buffer.name)}[{size // WARP_SIZE}];")
        elif place.kind == "stack":
            whole_words = f"__align__({WIDEST_BYTES}) " if buffer.dtype.bytes < 4 else ""  # an intrinsic, or a vector access, may take several as one
            # of a word that is read whole one half may be of no use, and not set: a compiler must not take all of it for undefined
            in_words = is_half(buffer.dtype) and any(isinstance(n, Load) and n.buffer is buffer and n.dtype.lanes > 1 for n in walk(s.body))
            self.out.line(f"{whole_words}{kind} {self.names.declare(buffer, buffer.name)}[{max(size, 1)}]{' = {}' if in_words else ''};")
        else:
            raise self.refuse(buffer, "bind_threads")
        self.write(s.body)

    def alignment(self, buffer: Buffer) -> int | None:
        if buffer in self._kernel.shared:
            offset = self._kernel.shared[buffer]
            return WIDEST_BYTES if offset % WIDEST_BYTES == 0 else offset & -offset
        if buffer in self._constants:
            return ALIGNMENT
        if buffer in self._workspace or buffer in self._alignments:
            return WIDEST_BYTES  # arguments are checked, the workspace is aligned
        return WIDEST_BYTES if is_half(buffer.dtype) and not is_fragment(buffer.scope) else None  # two in a register, as they are computed

    def ask_alignment(self, buffer: Buffer, size: int) -> None:
        self._kernel.alignments[buffer] = max(size, self._kernel.alignments.get(buffer, 1))

    # ------------------------------------------------------------------------------------------------------ threads and statements

    def write_Produce(self, s: Produce) -> None:
        self.out.line(f"// {plain_identifier(s.name)}")
        outside, self.asynchronous = self.asynchronous, self.asynchronous or ASYNCHRONOUS in dict(s.pragmas)
        self.write(s.body)
        self.asynchronous = outside

    def write_For(self, s: For) -> None:
        if s.kind == "vectorized":
            raise self.refuse(f"the vectorized loop over {s.var.name!r}", "vectorize")
        if s.kind == "thread":
            self._write_index(s)
            return
        wanted = dict(s.pragmas).get("unroll")
        if wanted is not None or s.kind == "unrolled":
            self.out.line("#pragma unroll" + (f" {wanted}" if wanted is not None else ""))
        with self._loop(s):
            self.write(s.body)

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
        if s.kind == "warp" or (s.kind == "block" and prod(self._kernel.block) <= WARP_SIZE):
            self.out.line("__syncwarp();")
        elif s.kind == "block":
            self.out.line("__syncthreads();")
        elif s.kind == "async_commit":
            self.out.line(f"{self.helpers.device.use('tw_cp_async_commit')}();")
        elif s.kind == "async_wait":
            self.out.line(f"{self.helpers.device.use('tw_cp_async_wait')}<{s.count}>();")
        else:
            raise InternalError(f"the CUDA generator met a Sync of the unknown kind {s.kind!r}")

    def write_Shuffle(self, s: Shuffle) -> None:
        kind = s.value.dtype.element
        wide = kind in _SHUFFLED  # others travel in an int
        word = self.text(s.value) if wide else f"(int){self.text(s.value, UNARY)}"
        got = f"__shfl_xor_sync(0xffffffffu, {word}, {self.text(s.lanes)})"  # what does not exist of the last warp is not waited for
        self.out.line(f"{self.buffer(s.load.buffer)}[{self.text(s.load.indices[0])}] = {got if wide else f'({self.helpers.scalar(kind)}){got}'};")

    def write_Atomic(self, s: Atomic) -> None:
        buffer = s.load.buffer
        kind, address, value = buffer.dtype, self.address(buffer, self._flat_index(buffer, s.load.indices, s)), self.text(s.value)
        if kind in ("float16", "bfloat16"):  # their bits, for which CUDA has no function
            self.out.line(f"{self.helpers.device.use(f'tw_atomic_{s.operation}_{kind}')}({address}, {value});")
            return
        if kind == "int64" and s.operation == "add":  # there is one of unsigned numbers; both wrap alike
            word = self.helpers.scalar("uint64")
            address, value = f"({word} *){address}", f"({word})({value})"
        self.out.line(f"atomic{s.operation.capitalize()}({address}, {value});")

    def write_Prefetch(self, s: Prefetch) -> None:
        """A hint of the CPU's; the warps of a GPU hide latencies themselves."""

    def write_CallExtern(self, s: CallExtern) -> None:
        raise TargetError(f"{self.func.name}: te.extern calls the C function {s.symbol!r}, which a GPU cannot; use target 'c'")

    def write_CallIntrinsic(self, s: CallIntrinsic) -> None:
        values = []
        for operand, first, steps in zip(s.code.operands, s.loads, s.steps, strict=True):
            index = self._flat_index(first.buffer, first.indices, s)
            if operand in s.code.fragments:  # tiles lie one after another, and a lane has its share of each
                values.append(f"{self.names.of(first.buffer)} + {self.text(index, UNARY)} / {WARP_SIZE}")
                continue
            values.append(self.address(first.buffer, index))
            values += [self.text(along[0]) for along in steps]
            if operand in s.code.aligned:
                self.ask_alignment(first.buffer, s.code.aligned[operand])
        self.out.line(f"{self._intrinsic(s)}({', '.join(values)});")

    def intrinsic_text(self, s: CallIntrinsic) -> str:
        text = super().intrinsic_text(s)
        for name in dict.fromkeys(re.findall(r"\btw_\w+", text)):
            self._use_helper(name, s.code.name)
        return text

    def _use_helper(self, name: str, intrinsic: str) -> None:
        """Asks for a device function that the text of an intrinsic calls."""
        helper, capability = CUDA_HELPERS.get(name), self.target.gpu.capability
        if helper is None:
            raise TargetError(f"intrinsic {intrinsic} calls {name}, which is none of the device functions of targets/cuda_helpers.py")
        if helper.arch > capability:
            raise TargetError(f"intrinsic {intrinsic} needs sm_{helper.arch}, but the target is sm_{capability}; "
                              f"give Target(arch=...) of the GPU, or do not tensorize with it")  # fmt: skip
        self.helpers.device.use(name)


def cuda_function_name(wanted: str) -> str:
    """The symbol of a kernel: `wanted`, changed where it is no identifier or CUDA has a function of that name."""
    name = plain_identifier(wanted)
    return f"{name}_kernel" if is_taken_from_kernels(name) else name


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
