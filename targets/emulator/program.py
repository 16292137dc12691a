"""`Program`: compiled CUDA source whose kernels can be launched; checks the arguments of a launch and turns what went wrong into errors."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...tir.errors import ArgumentError, EmulatorError, TargetError
from ...tir.target import default_threads
from ..loader import Library
from . import source as cuda_source
from .arena import Placed, place
from .assembly import CONSTANT_SECTION, GAP_BYTES
from .findings import MemoryName, Reader, index
from .launch import CHECKS, MOST_FINDINGS, MOST_TRAFFIC, Finding, Launch, Memory, Runner, Traffic
from .library import SOURCE_NAME, compile_kernels
from .parameters import Parameter, Values, convert
from .report import NotJudged, Report
from .symbols import Symbols, Variable, is_own, read_symbols, source_lines

_BLOCK_LIMITS, _GRID_LIMITS = (1024, 1024, 64), (2**31 - 1, 65535, 65535)
_MOST_THREADS, _MOST_STATIC_SHARED_BYTES, _MOST_SHARED_BYTES, _MOST_WORKERS = 1024, 48 << 10, 227 << 10, 256
_MOST_SHADOW_BYTES = 4 << 30
# runtime.h: Cell, MemoryKind, Error
_CELL_BYTES = 44
MEMORY_ARGUMENT, MEMORY_SHARED, MEMORY_DYNAMIC, MEMORY_DEVICE, MEMORY_IGNORED, MEMORY_CONSTANT = range(6)
ERROR_TRAP, ERROR_STUCK, ERROR_SIGNAL, ERROR_TIMEOUT, ERROR_STACK, ERROR_WILD, ERROR_RESOURCES = range(1, 8)
Dimensions = int | Sequence[int]


class Program:
    """CUDA C++ source, compiled for the emulator.

    `kernels`: expressions that name the kernels to launch ("scale", "ns::scale<float, 4>"); None: every plain `__global__` function of the source.
    `check`: None, "race" or "memory". `arch`: what `__CUDA_ARCH__` is: 900 for sm_90. `report` grows with every launch until `clear_report`.

        program = Program(source, ["scale"], check="race")
        program.launch("scale", grid=(4, 1, 1), block=(64, 1, 1), shared_bytes=0, args=[x, y, 2.0])
        program.report.races

    Raises CompileError (the compiler's words, with the lines of `source`) and ArgumentError (a kernel that the source does not have).
    """

    def __init__(self, source: str, kernels: Sequence[str] | None = None, *, check: str | None = None, arch: int = 900):
        if not isinstance(source, str):
            raise ArgumentError(f"source: expected the text of CUDA C++, got {type(source).__name__}")
        if check not in CHECKS:
            raise ArgumentError(f"check={check!r}: expected None, 'race' or 'memory'")
        found = cuda_source.kernel_names(source)
        self.kernels = tuple(cuda_source.plain_kernel_names(source) if kernels is None else kernels)
        for kernel in self.kernels:
            if not isinstance(kernel, str):
                raise ArgumentError(f"kernel: expected the name of a kernel, such as {(found or ['scale'])[0]!r}, got {kernel!r}")
            if "<" not in kernel and _plain_name(kernel) in found and _plain_name(kernel) not in cuda_source.plain_kernel_names(source):
                raise ArgumentError(f'kernel {kernel!r} is a template: name one of its instances, such as "{kernel}<float>"')
            if _plain_name(kernel) not in found:
                has = f"it has {', '.join(found)}" if found else "it has no __global__ function"
                if not found and "\n" not in source and source.endswith((".cu", ".cuh")):
                    has = f"{source!r} is the name of a file, not its text; pass Path({source!r}).read_text()"
                raise ArgumentError(f"the CUDA source has no kernel {kernel!r}: {has}")
        self.check = check
        self._source = source
        self._kernels = compile_kernels(source, self.kernels, arch=arch, checked=check is not None)
        self._library, self._runner = Library(self._kernels.path), Runner(self._kernels.runtime.library)
        self._entries = {kernel: self._pointer(f"emulator_entry_{number}") for number, kernel in enumerate(self.kernels)}
        self._parameters = {kernel: self._read_parameters(number) for number, kernel in enumerate(self.kernels)}
        self._symbols = read_symbols(self._kernels.path)
        self._check_shared_arrays()
        self._lines: dict[int, int | None] = {}
        self.report = Report(check)
        self._adding = threading.Lock()

    def _pointer(self, symbol: str) -> int:
        return int(ctypes.c_void_p.from_address(self._library.address(symbol)).value or 0)

    def _read_parameters(self, number: int) -> tuple[Parameter, ...]:
        length = ctypes.c_uint.from_address(self._library.address(f"emulator_count_{number}")).value
        numbers = (ctypes.c_uint * length).from_address(self._pointer(f"emulator_types_{number}"))
        return tuple(Parameter.decode(value) for value in numbers)

    def _check_shared_arrays(self) -> None:
        """A TargetError where the shared arrays of one function are larger than a block's static shared memory."""
        functions: dict[str, list[Variable]] = {}
        for variable in self._symbols.variables:
            if variable.thread_local and not is_own(variable):
                functions.setdefault(variable.symbol.rpartition("E")[0], []).append(variable)
        for arrays in functions.values():
            total = sum(array.size for array in arrays)
            if total > _MOST_STATIC_SHARED_BYTES:
                names = ", ".join(array.name for array in arrays)
                raise TargetError(
                    f"the shared arrays {names} of one function have {total} bytes, but a block has at most {_MOST_STATIC_SHARED_BYTES} of static "
                    "shared memory: make them smaller, or use extern __shared__ with shared_bytes="
                )

    def parameters(self, kernel: str) -> tuple[Parameter, ...]:
        """The types of a kernel's parameters, as the compiler knows them."""
        return self._parameters[kernel]

    def clear_report(self) -> None:
        """Forget what earlier launches found."""
        self.report = Report(self.check)

    def launch(
        self,
        kernel: str,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int = 0,
        args: Sequence[Any] = (),
        *,
        timeout_s: float | None = None,
        threads: int | None = None,
    ) -> None:
        """Run one kernel to its end; arrays in `args` hold the results.

        `grid`, `block`: a number or up to three (x, y, z). `shared_bytes`: dynamic shared memory of a block.
        `args`: a NumPy array for each pointer, a number for each scalar.
        `timeout_s`: after this many seconds the launch ends with an EmulatorError. `threads`: blocks that run at the same time.
        Raises ArgumentError, TargetError (a launch that no GPU would take), EmulatorError (the kernel failed).
        """
        if kernel not in self._entries:
            raise ArgumentError(f"no kernel {kernel!r} was compiled; there are {', '.join(self.kernels)}")
        grid3, block3 = _dimensions("grid", grid, _GRID_LIMITS), _dimensions("block", block, _BLOCK_LIMITS)
        if block3[0] * block3[1] * block3[2] > _MOST_THREADS:
            raise TargetError(f"block={block}: {block3[0] * block3[1] * block3[2]} threads, but a block has at most {_MOST_THREADS}")
        if timeout_s is not None and not timeout_s > 0:
            raise ArgumentError(f"timeout_s={timeout_s}: expected a positive number of seconds")
        if threads is not None and threads < 1:
            raise ArgumentError(f"threads={threads}: expected a positive number")
        if not 0 <= shared_bytes <= _MOST_SHARED_BYTES:
            raise TargetError(f"shared_bytes={shared_bytes}: expected 0 to {_MOST_SHARED_BYTES}")
        launch, out_of_bounds = Launch(), len(self.report.out_of_bounds)
        launch.entry = self._entries[kernel]
        launch.grid[:], launch.block[:] = grid3, block3
        launch.dynamic_bytes = shared_bytes
        launch.workers = max(1, min(threads or default_threads(), math.prod(grid3), _MOST_WORKERS))
        launch.check = CHECKS[self.check]
        with convert(kernel, self._parameters[kernel], args) as values:
            launch.arguments = values.pointers
            if self.check is None:
                self._runner.run(launch, timeout_s)
            else:
                self._run_checked(launch, kernel, values, timeout_s)
        if launch.error_kind:
            self._failed(launch, kernel, timeout_s, len(self.report.out_of_bounds) > out_of_bounds)

    # ---- with checks

    def _run_checked(self, launch: Launch, kernel: str, values: Values, timeout_s: float | None) -> None:
        symbols = self._symbols
        base = self._library.address("emulator_tls_anchor") - symbols.functions["emulator_tls_anchor"]
        launch.tls_anchor = base + symbols.functions["emulator_tls_anchor"]
        launch.tls_anchor_offset = symbols.variable("emulator_anchor").address
        launch.tls_bytes = symbols.tls_bytes
        launch.image_low, launch.image_high = base, base + symbols.image_bytes
        launch.granule_shift = self._kernels.granule_bytes.bit_length() - 1
        findings, traffic = (Finding * MOST_FINDINGS)(), (Traffic * MOST_TRAFFIC)()
        launch.findings, launch.finding_capacity = findings, MOST_FINDINGS
        launch.traffic, launch.traffic_capacity = traffic, MOST_TRAFFIC
        with place(values.arrays) as placed:
            if self.check == "race":  # each worker remembers what it touched
                shadow_bytes = _CELL_BYTES * sum(copy.array.nbytes for copy in placed) // self._kernels.granule_bytes
                launch.workers = max(1, min(launch.workers, _MOST_SHADOW_BYTES // max(1, shadow_bytes)))
            names, memories = self._memories(kernel, base, placed, launch.dynamic_bytes, symbols)
            launch.memories, launch.memory_count = memories, len(names)
            for copy in placed:
                for number in copy.numbers:
                    values.addresses[number].value = copy.address
            self._runner.run(launch, timeout_s)
        with self._adding:
            self._add(launch, names, base)

    def _add(self, launch: Launch, names: Sequence[MemoryName], base: int) -> None:
        """What a launch found goes to the report."""
        findings, traffic = launch.findings, launch.traffic
        places = [finding.place for finding in findings[: launch.finding_count]] + [finding.other_place for finding in findings[: launch.finding_count]]
        places += [record.place for record in traffic[: launch.traffic_count]]
        self._look_up(base, places)
        Reader(launch, names, lambda address: self._lines.get(address - base), self.report).add()
        self._add_limits(launch)

    def _memories(self, kernel: str, base: int, placed: Sequence[Placed], dynamic_bytes: int, symbols: Symbols) -> tuple[list[MemoryName], Any]:
        """Every array that the kernel may touch: its arguments, its shared arrays, the variables of its library."""
        names: list[MemoryName] = []
        memories: list[Memory] = []

        def add(name: str, space: str, kind: int, address: int, size: int, zone: tuple[int, int] = (0, 0), read_only: bool = False) -> None:
            names.append(MemoryName(name, space, size))
            memories.append(Memory(address, size, *zone, kind, read_only))

        parameter_names = cuda_source.parameter_names(self._source, _plain_name(kernel))
        for copy in placed:
            number = copy.numbers[0]
            known = len(parameter_names) == len(self._parameters[kernel]) and parameter_names[number]
            name = known or f"argument {number}"
            add(name, "global", MEMORY_ARGUMENT, copy.address, copy.array.nbytes, copy.zone, copy.read_only)
        for variable in symbols.variables:
            quiet = is_own(variable) or (variable.thread_local and variable.size == 8 and variable.name in self._kernels.dynamic_names)
            if variable.thread_local:
                add(variable.name, "shared", MEMORY_IGNORED if quiet else MEMORY_SHARED, variable.address, variable.size)
            elif variable.section.startswith(CONSTANT_SECTION):
                address = base + variable.address
                zone = (address - GAP_BYTES, address + variable.size + GAP_BYTES)
                add(variable.name, "constant", MEMORY_CONSTANT, address, variable.size, zone, read_only=True)
            elif not quiet:
                address = base + variable.address
                add(variable.name, "global", MEMORY_DEVICE, address, variable.size, (address, address + variable.size))
        add(", ".join(self._kernels.dynamic_names) or "dynamic shared memory", "shared", MEMORY_DYNAMIC, 0, dynamic_bytes)  # of 0 bytes too: it is missed
        return names, (Memory * max(1, len(memories)))(*memories)

    def _look_up(self, base: int, addresses: Sequence[int]) -> None:
        """Find the lines of return addresses, once for each: the call is the instruction before."""
        offsets = {address - base for address in addresses if address} - self._lines.keys()
        found = source_lines(self._kernels.path, SOURCE_NAME, (offset - 1 for offset in offsets))
        self._lines.update({offset: found.get(offset - 1) for offset in offsets})

    def _add_limits(self, launch: Launch) -> None:
        reasons = []
        if launch.touched_locals:
            reasons.append("accesses through pointers to local variables: one that misses its variable hits another one of its thread, which looks the same")
        if self._kernels.plain_vectors:
            reasons.append("accesses of vectors such as float4 as one: the source copies a union that holds one, so they are counted by their members")
        if self.check == "memory":
            reasons.append("races, uninitialised reads and divergent barriers: check='memory' does not look for them")
        known = {record.reason for record in self.report.not_judged}
        self.report.not_judged += [NotJudged(reason) for reason in reasons if reason not in known]

    # ---- what went wrong

    def _failed(self, launch: Launch, kernel: str, timeout_s: float | None, left_an_array: bool) -> None:
        """The error of a launch that did not come to its end; where something was checked, a deadlock, a wild access, or what came of an index beyond an
        array, is a finding and no error."""
        text = launch.error_text.decode(errors="replace")
        block, thread = index(launch.error_block, launch.grid), index(launch.error_thread, launch.block)
        where = f"kernel {kernel!r}, block {_plain(block)}, thread {_plain(thread)}"
        line = self._error_line(launch)
        if line is not None:
            where += f", line {line}"
        advice = "" if self.check or "division" in text else "; check='race' says which array, line and threads"
        if launch.error_kind == ERROR_TIMEOUT:
            raise EmulatorError(f"{where}: the launch was not done after timeout_s={timeout_s}; a loop without end, or threads that wait for other blocks")
        if launch.error_kind == ERROR_STACK:
            raise EmulatorError(f"{where}: the thread's stack is full (256 KiB here): a recursion without end, or local arrays that are too large")
        if launch.error_kind == ERROR_SIGNAL:
            address = f" (0x{launch.error_address:x})" if "address" in text else ""
            if left_an_array:
                self.report.stopped = f"{where}: {text}{address}"
                return
            raise EmulatorError(f"{where}: {text}{address}{advice}")
        if launch.error_kind in (ERROR_STUCK, ERROR_WILD) and self.check:
            self.report.stopped = f"{where}: {text}"
            return
        raise EmulatorError(f"{where}: {text}{advice if launch.error_kind == ERROR_STUCK else ''}")

    def _error_line(self, launch: Launch) -> int | None:
        if not launch.error_place:
            return None
        symbols = self._symbols
        base = self._library.address("emulator_count_0") - symbols.variable("emulator_count_0").address
        offset = launch.error_place - base - (launch.error_kind not in (ERROR_SIGNAL, ERROR_TIMEOUT))
        if not 0 <= offset < symbols.image_bytes:
            return None
        return source_lines(self._kernels.path, SOURCE_NAME, [offset]).get(offset)


def _plain_name(kernel: str) -> str:
    """The name in an expression that names a kernel: "ns::scale<float, 4>" -> scale."""
    return kernel.partition("<")[0].rpartition("::")[2].strip()


def _plain(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


def _dimensions(what: str, given: Dimensions, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    values: tuple[Any, ...] = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(values) <= 3 or not all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values):
        raise ArgumentError(f"{what}={given!r}: expected a number or up to three (x, y, z)")
    x, y, z = (*(int(value) for value in values), 1, 1)[:3]
    for axis, value, limit in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= value <= limit:
            raise TargetError(f"{what}={given!r}: {what}.{axis} is {value}, expected 1 to {limit}")
    return x, y, z
