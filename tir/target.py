"""`Target`: the record of what passes, schedules and generators must know about where a kernel will run.

It holds limits and flags, nothing that emits or runs: that is in `targets/`. It is plain data, hashable and equal by value, and goes
through JSON into tuning logs; what was detected on the machine that made it stays in it.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import config
from .errors import TargetError
from .gpu import GPUS, Gpu

# Every kind of target that is known, and what it means. How to emit for a kind is in `targets/`.
KINDS = {
    "c": "C with GNU vector types and OpenMP for the CPU, compiled by gcc or clang",
    "cuda": "CUDA C++ for NVIDIA GPUs, compiled by nvcc or NVRTC, run on a GPU or by the emulator",
}
# What the options of a kind are: what its JSON has, which is in tuning logs.
_OPTIONS = {
    "c": ("march", "threads", "compiler", "sanitize", "opt", "vector_bytes", "vector_registers", "l1_bytes", "l2_bytes", "cpu"),
    "cuda": ("arch", "device", "threads", "compiler", "fast_math"),
}
DEVICES = ("gpu", "emulator")
DEFAULT_ARCH = "sm_90"
CUDA_VECTOR_BYTES = 16  # the widest access of a thread to memory

MOST_THREADS = 4096  # OpenMP ends the process where it cannot start as many as it is asked for
OPTIMISATION_LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os")

# Widest vectors by the compiler's name of the architecture; any other name gets 16 bytes, which x86-64 and AArch64 always have.
_VECTOR_BYTES_BY_MARCH = (
    (
        r"x86-64-v4|skylake-avx512|cascadelake|cooperlake|cannonlake|icelake.*|tigerlake|rocketlake|sapphirerapids|emeraldrapids"
        r"|graniterapids.*|znver[45]",
        64,
    ),
    (r"x86-64-v3|haswell|broadwell|skylake|alderlake|raptorlake|meteorlake|arrowlake.*|lunarlake|znver[123]", 32),
)


@dataclass(frozen=True, init=False)
class Target:
    """Where a kernel will run.

    Arguments: `kind`: "c" or "cuda"; `threads`: of a parallel loop, or of the emulator (default: `default_threads()`), 1 starts no OpenMP; `compiler`:
    name or path (default: the first found).

    Of "c": `march`: the compiler's name of the architecture, "native" for this machine; `sanitize`: compile with AddressSanitizer and
    UndefinedBehaviorSanitizer; `opt`: the optimisation level; `vector_bytes`, `vector_registers`, `l1_bytes`, `l2_bytes`, `cpu`: detected unless given.

    Of "cuda": `arch`: "sm_75" to "sm_120" (default: "sm_90"; its limits are `target.gpu`); `device`: "gpu", or "emulator", which runs the same source on
    the CPU; `fast_math`: let the compiler use less exact division, roots and functions, and flush denormals (on a GPU only).

    An unknown kind, an option of another kind or a value out of range is a TargetError.
    """

    kind: str
    march: str
    threads: int
    compiler: str | None
    sanitize: bool
    opt: str
    vector_bytes: int  # of the widest vector register, or of the widest access of a thread
    vector_registers: int
    l1_bytes: int  # data cache of one core
    l2_bytes: int  # of one core
    cpu: str  # the processor's name where march is "native", else ""
    arch: str  # of a GPU, else ""
    device: str  # "gpu" or "emulator", "" where the kind is no GPU's
    fast_math: bool

    def __init__(
        self,
        kind: str = "c",
        *,
        march: str | None = None,
        threads: int | None = None,
        compiler: str | None = None,
        sanitize: bool | None = None,
        opt: str | None = None,
        vector_bytes: int | None = None,
        vector_registers: int | None = None,
        l1_bytes: int | None = None,
        l2_bytes: int | None = None,
        cpu: str | None = None,
        arch: str | None = None,
        device: str | None = None,
        fast_math: bool | None = None,
    ):
        check_kind(kind)
        given = {
            "march": march, "threads": threads, "compiler": compiler, "sanitize": sanitize, "opt": opt, "vector_bytes": vector_bytes,
            "vector_registers": vector_registers, "l1_bytes": l1_bytes, "l2_bytes": l2_bytes, "cpu": cpu, "arch": arch, "device": device,
            "fast_math": fast_math,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None and name not in _OPTIONS[kind]:
                raise TargetError(f"{name} is no option of target {kind!r}; its options are {', '.join(_OPTIONS[kind])}")
        values = {**given, "threads": default_threads() if threads is None else threads}
        complete = {"c": _complete_c, "cuda": _complete_cuda}[kind]
        for name, found in {"kind": kind, **complete(values)}.items():
            object.__setattr__(self, name, found)

    @classmethod
    def parse(cls, target: str | Target) -> Target:
        """A Target as it is, or the one of a kind's name."""
        return target if isinstance(target, Target) else cls(target)

    @property
    def gpu(self) -> Gpu:
        """The limits of the GPU. A TargetError for a target that is none."""
        if self.arch not in GPUS:
            raise TargetError(f"target {self.kind!r} is no GPU")
        return GPUS[self.arch]

    @property
    def options(self) -> dict[str, object]:
        """The kind and its options: plain data."""
        return {name: getattr(self, name) for name in ("kind", *_OPTIONS[self.kind])}

    def to_json(self) -> str:
        """The kind and its options as JSON; `from_json` gives an equal Target, on any machine."""
        return json.dumps(self.options, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Target:
        """The Target that `to_json` wrote. Text that is not one is a TargetError."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise TargetError(f"not the JSON of a target: {error}") from None
        if not isinstance(values, dict):
            raise TargetError(f"not the JSON of a target, which is an object with fields: {text[:60]}")
        unknown = values.keys() - {"kind", *(name for options in _OPTIONS.values() for name in options)}
        if unknown:
            raise TargetError(f"JSON of a target has unknown fields {', '.join(sorted(unknown))}: written by a newer version?")
        return cls(**values)

    def lanes(self, element_bytes: int) -> int:
        """How many elements of this size the widest vector holds."""
        return max(1, self.vector_bytes // element_bytes)

    def __str__(self) -> str:
        if self.kind == "cuda":
            parts = [f"cuda {self.arch}"]
            if self.device == "emulator":
                parts.append(f"emulated by {self.threads} thread{'s' if self.threads > 1 else ''}")
            if self.fast_math:
                parts.append("fast math")
            return ", ".join([*parts, *([self.compiler] if self.compiler else [])])
        cpu = f" ({self.cpu})" if self.cpu else ""
        parts = [f"{self.kind} {self.march}{cpu}", f"{self.threads} thread{'s' if self.threads > 1 else ''}"]
        parts.append(f"{self.vector_bytes * 8}-bit vectors")
        if self.compiler:
            parts.append(self.compiler)
        if self.opt != "-O2":
            parts.append(self.opt)
        if self.sanitize:
            parts.append("sanitized")
        return ", ".join(parts)


def _complete_c(given: dict[str, Any]) -> dict[str, object]:
    """All fields of a C target, from the options that were given."""
    march = "native" if given["march"] is None else given["march"]
    if not isinstance(march, str) or not re.fullmatch(r"[\w.+-]+", march) or march.startswith("-"):
        raise TargetError(f"march {march!r}: expected the compiler's name of an architecture, for example 'native' or 'x86-64-v3'")
    opt = "-O2" if given["opt"] is None else given["opt"]
    if opt not in OPTIMISATION_LEVELS:
        raise TargetError(f"opt {opt!r}: expected one of {', '.join(OPTIMISATION_LEVELS)}")
    vector_bytes = _vector_bytes(march) if given["vector_bytes"] is None else given["vector_bytes"]
    values = {
        **given,
        "march": march,
        "sanitize": bool(given["sanitize"]),
        "opt": opt,
        "vector_bytes": vector_bytes,
        "vector_registers": _vector_registers(vector_bytes) if given["vector_registers"] is None else given["vector_registers"],
        "l1_bytes": cache_bytes(1) if given["l1_bytes"] is None else given["l1_bytes"],
        "l2_bytes": cache_bytes(2) if given["l2_bytes"] is None else given["l2_bytes"],
        "cpu": (cpu_name() if march == "native" else "") if given["cpu"] is None else given["cpu"],
        **dict.fromkeys(("arch", "device"), ""),
        "fast_math": False,
    }
    _check_counts(values, "threads", "vector_bytes", "vector_registers", "l1_bytes", "l2_bytes")
    if vector_bytes not in (16, 32, 64):
        raise TargetError(f"vector_bytes {vector_bytes}: expected 16, 32 or 64")
    return values


def _complete_cuda(given: dict[str, Any]) -> dict[str, object]:
    """All fields of a CUDA target, from the options that were given; what only a CPU has is empty."""
    arch = DEFAULT_ARCH if given["arch"] is None else given["arch"]
    if arch not in GPUS:
        raise TargetError(f"arch {arch!r}: expected the compute capability of a GPU, one of {', '.join(GPUS)}")
    device = "gpu" if given["device"] is None else given["device"]
    if device not in DEVICES:
        raise TargetError(f"device {device!r}: expected 'gpu', or 'emulator' to run the same CUDA source on the CPU")
    gpu = GPUS[arch]
    values = {
        **given,
        **dict.fromkeys(("march", "opt", "cpu"), ""),
        "sanitize": False,
        "vector_bytes": CUDA_VECTOR_BYTES,
        "vector_registers": gpu.registers_per_thread,
        "l1_bytes": gpu.shared_bytes_per_multiprocessor,
        "l2_bytes": 4 << 20,  # of the smallest product; it differs among those of one arch
        "arch": arch,
        "device": device,
        "fast_math": bool(given["fast_math"]),
    }
    _check_counts(values, "threads")
    return values


def _check_counts(values: dict[str, Any], *names: str) -> None:
    for name in names:
        value = values[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TargetError(f"{name} {value!r}: expected an integer of at least 1")
        if name == "threads" and value > MOST_THREADS:
            raise TargetError(f"threads {value}: expected at most {MOST_THREADS}")


def check_kind(kind: object) -> None:
    """A TargetError unless this kind of target exists; it names those that do."""
    if not isinstance(kind, str) or kind not in KINDS:
        words = kind.split() if isinstance(kind, str) else []
        advice = f'; options are arguments: Target("{words[0]}", name=value)' if words[1:] and words[0] in KINDS else ""
        raise TargetError(f"unknown target {kind!r}; known kinds: {', '.join(repr(name) for name in KINDS)}{advice}")


def default_threads() -> int:
    """TILEWRIGHT_THREADS, else OMP_NUM_THREADS, else the CPUs that this process may use."""
    return config.THREADS.value or config.OMP_THREADS.value or usable_cpus()


def usable_cpus() -> int:
    """CPUs that this process may run on: its affinity mask, cut to the quota of its control group (a container)."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, count if quota is None else min(count, quota))


@lru_cache(maxsize=1)
def _quota() -> int | None:
    """CPUs that the control group of this process may use, as many as when it was first asked; None without a limit."""
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    return math.ceil(int(quota[0]) / int(quota[1])) if len(quota) == 2 and quota[0].isdigit() else None


def _read(path: str, size: int = 4096) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(size)
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _cpuinfo() -> dict[str, str]:
    # The first processor only: on a machine of many cores the whole file takes the kernel milliseconds.
    pairs = (line.split(":", 1) for line in _read("/proc/cpuinfo", 8192).split("\n\n")[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def cpu_features() -> frozenset[str]:
    """Instruction sets of this machine by the kernel's names ("avx2", "fma", "asimd" ...); empty where it does not say."""
    info = _cpuinfo()
    return _words(info.get("flags") or info.get("Features") or "")


@lru_cache(maxsize=1)
def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Instruction sets that compilers use for code like ours, by the kernel's names.
_INSTRUCTION_SETS = re.compile(r"pni|ssse3|sse.*|avx.*|fma|f16c|bmi[12]|popcnt|abm|movbe|gfni|asimd.*|sve.*|fphp|bf16|i8mm|atomics")
_X86_64_V3 = "pni ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 f16c fma abm movbe"  # the levels of the x86-64 psABI
_X86_64_V4 = f"{_X86_64_V3} avx512f avx512bw avx512cd avx512dq avx512vl"


def instruction_sets(march: str) -> frozenset[str]:
    """What code compiled for `march` may need of the machine it runs on, as far as that is known."""
    if march == "native":
        return frozenset(filter(_INSTRUCTION_SETS.fullmatch, cpu_features()))
    return frozenset({64: _X86_64_V4, 32: _X86_64_V3}.get(_vector_bytes(march), "").split())


def missing_instruction_sets(needed: Iterable[str]) -> list[str]:
    """Those of `needed` that this machine lacks; none where it does not say what it has."""
    here = cpu_features()
    return sorted(set(needed) - here) if here else []


def cpu_name() -> str:
    """The processor's name with what tells its generation, for example "AMD EPYC, family 25 model 1"."""
    info = _cpuinfo()
    name = info.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in info:
        name += f", family {info['cpu family']} model {info.get('model', '?')}"
    return name


def native_vector_bytes() -> int:
    """Bytes of the widest vector register of this machine."""
    features = cpu_features()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features:
        return 64
    return 32 if {"avx2", "fma"} <= features else 16


def _vector_bytes(march: str) -> int:
    if march == "native":
        return native_vector_bytes()
    return next((size for pattern, size in _VECTOR_BYTES_BY_MARCH if re.fullmatch(pattern, march)), 16)


def _vector_registers(vector_bytes: int) -> int:
    return 32 if vector_bytes == 64 or platform.machine() in ("aarch64", "arm64") else 16


@lru_cache(maxsize=4)
def cache_bytes(level: int) -> int:
    """Bytes of the data cache of this level that one core sees; 32 KiB, 512 KiB or 8 MiB where the system does not say."""
    for index in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        size = _read(f"{folder}/size").strip()
        if _read(f"{folder}/level").strip() == str(level) and _read(f"{folder}/type").strip() != "Instruction" and size:
            unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
            return int(size.rstrip("KM")) * unit
    return {1: 32 << 10, 2: 512 << 10}.get(level, 8 << 20)
