"""What this machine offers: compilers, processor, and its measured peaks of arithmetic and memory. Behind `tilewright doctor`.

The peaks are what a schedule can be held against (the roofs of Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009), measured on all
threads of a default Target with kernels made here, not read from a data sheet.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np

from ..tir import config
from ..tir.errors import CompileError, TargetError
from ..tir.target import Target, cache_bytes, cpu_features, cpu_name, usable_cpus
from .cache import cache_directory
from .cuda_driver import driver
from .cuda_toolchain import find_cuda_compiler
from .generated import ArgumentSpec, Generated
from .module import compile_module
from .toolchain import Compiler, installed_compilers

_NAMED_FEATURES = ("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve", "bf16")
_CHAINS = 12  # independent sums, enough to fill two units of four to six cycles latency and few enough for 16 registers


@dataclass(frozen=True)
class Report:
    """What was found. `fma_peak_gflops`: float32, a multiply and an add counted as two; `bandwidth_gbs`: bytes read and written by a copy
    far larger than the caches; both None where `problem` says why no kernel could be run."""

    cpu: str
    cpus: int
    features: tuple[str, ...]
    cache_bytes: tuple[int, int, int]
    target: Target
    compilers: tuple[Compiler, ...]
    cuda_compiler: str  # or why there is none
    gpu: str  # or why there is none
    cache_folder: str
    fma_peak_gflops: float | None
    bandwidth_gbs: float | None
    problem: str | None

    def __str__(self) -> str:
        """Plain text, a line for each finding."""
        level1, level2, level3 = (_size(size) for size in self.cache_bytes)
        lines = [
            ("processor", f"{self.cpu}, {self.cpus} usable CPU{'s' if self.cpus > 1 else ''}"),
            ("instructions", " ".join(self.features) or "(not known)"),
            ("caches", f"L1 {level1}, L2 {level2} a core, L3 {level3}"),
            ("target", str(self.target)),
        ]
        lines += [("compiler", f"{compiler.path}: {compiler.version}") for compiler in self.compilers]
        lines += [("CUDA compiler", self.cuda_compiler), ("GPU", self.gpu), ("build cache", self.cache_folder)]
        if self.fma_peak_gflops is not None and self.bandwidth_gbs is not None:
            balance = self.fma_peak_gflops / self.bandwidth_gbs
            lines += [
                ("float32 peak", f"{self.fma_peak_gflops:.0f} GFLOP/s (vector multiply-adds, threads: {self.target.threads})"),
                ("memory", f"{self.bandwidth_gbs:.1f} GB/s (copy); in balance at {balance:.0f} operations a byte"),
            ]
        if self.problem:
            lines.append(("problem", self.problem))
        return "\n".join(f"{name:13} {text}" for name, text in lines) + "\n\n" + config.describe()


def examine(target: Target | None = None) -> Report:
    """Look at this machine and measure it, in about a second. What is missing becomes the report's `problem`, never an error."""
    target = target or Target("c")
    compilers: tuple[Compiler, ...] = ()
    folder = "(none)"
    peak = bandwidth = problem = None
    try:
        compilers = tuple(installed_compilers())
        folder = str(cache_directory())
        peak, bandwidth = measure_fma_peak(target), measure_bandwidth(target)
    except (TargetError, CompileError) as error:
        problem = str(error)
    features = tuple(name for name in _NAMED_FEATURES if name in cpu_features())
    caches = (cache_bytes(1), cache_bytes(2), cache_bytes(3))
    return Report(cpu_name(), usable_cpus(), features, caches, target, compilers, _cuda_compiler(), _gpu(), folder, peak, bandwidth, problem)


def _cuda_compiler() -> str:
    try:
        return str(find_cuda_compiler())
    except TargetError as error:
        return f"none: {error}"


def _gpu() -> str:
    try:
        found = driver()
    except TargetError as error:
        return f"none: {error}"
    return f"{found.name}, sm_{found.capability}, L2 {_size(found.l2_bytes)} (through {found.package})"


def measure_fma_peak(target: Target) -> float:
    """GFLOP/s of float32 multiply-adds in registers, on all threads of the target; the best of several runs."""
    lanes = target.lanes(4)
    rounds = 500_000  # about a millisecond
    chains = range(_CHAINS)
    register = "x" if platform.machine() in ("x86_64", "AMD64") else "w"  # the compilers' letter for a vector register
    parallel = f"#pragma omp parallel for num_threads({target.threads})\n    " if target.threads > 1 else ""
    source = f"""#include <stdint.h>
typedef float vector __attribute__((vector_size({target.vector_bytes})));
int32_t fma_peak(float *restrict out) {{
    {parallel}for (int64_t thread = 0; thread < {target.threads}; ++thread) {{
        vector {", ".join(f"s{i} = {{{i + 1}.0f}}" for i in chains)};
        vector x = {{0.5f}}, y = {{1.0f}};
        __asm__ volatile("" : "+{register}"(x), "+{register}"(y));  /* values that the compiler does not know */
        for (int64_t i = 0; i < {rounds}; ++i) {{
            {" ".join(f"s{i} = s{i} * x + y;" for i in chains)}
        }}
        vector sum = {" + ".join(f"s{i}" for i in chains)};
        float total = 0;
        for (int lane = 0; lane < {lanes}; ++lane) total += sum[lane];
        out[thread * 16] = total;
    }}
    return 0;
}}
"""
    outputs = (ArgumentSpec("out", "float32", (target.threads * 16,), True),)
    module = compile_module(Generated("fma_peak", source, outputs, uses_openmp=target.threads > 1), target)
    result = module.time_evaluator(repeat=30, number=1)(np.zeros(target.threads * 16, "float32"))
    return 2.0 * _CHAINS * lanes * rounds * target.threads / result.min / 1e9


def measure_bandwidth(target: Target) -> float:
    """GB/s of a copy on all threads of the target, bytes read and bytes written; the best of several runs.

    A store to memory first reads the line that it changes, which is not counted: the bus may carry half as much again.
    """
    elements = max(16 << 20, 4 * cache_bytes(3)) // 4
    parallel = f"#pragma omp parallel for num_threads({target.threads}) schedule(static)\n    " if target.threads > 1 else ""
    source = f"""#include <stdint.h>
int32_t copy(const float *restrict A, float *restrict B) {{
    {parallel}for (int64_t i = 0; i < {elements}; ++i) B[i] = A[i];
    return 0;
}}
"""
    arguments = (ArgumentSpec("A", "float32", (elements,), False), ArgumentSpec("B", "float32", (elements,), True))
    module = compile_module(Generated("copy", source, arguments, uses_openmp=target.threads > 1), target)
    arrays = np.ones(elements, "float32"), np.ones(elements, "float32")
    return 8.0 * elements / module.time_evaluator(repeat=5, number=1)(*arrays).min / 1e9


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
