"""What the CUDA emulator costs: a matrix product in shared memory, compiled and run without checks and with each of them.

    python benchmarks/emulator.py [--size 512] [--threads 2]

The kernel is the one of every CUDA course: blocks of 16 x 16 threads, tiles of A and B in shared memory, two barriers a step. Its result is checked. The
limits are those of a machine with two cores that does nothing else.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from tilewright.targets.emulator import Program
from tilewright.tir.target import default_threads

KERNEL = """
extern "C" __global__ void matmul(const float* A, const float* B, float* C, int n) {
  __shared__ float a[16][16], b[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    a[threadIdx.y][threadIdx.x] = A[row * n + k + threadIdx.x];
    b[threadIdx.y][threadIdx.x] = B[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += a[threadIdx.y][i] * b[i][threadIdx.x];
    __syncthreads();
  }
  C[row * n + column] = sum;
}
"""
LIMITS_S = {None: 3.0, "race": 60.0, "memory": 60.0}  # for 512


def main() -> None:
    """Print one line for each mode; the status is 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description="Time the CUDA emulator on a matrix product in shared memory.")
    parser.add_argument("--size", type=int, default=512, help="rows and columns, a multiple of 16 (default: 512)")
    parser.add_argument("--threads", type=int, default=default_threads(), help="blocks at a time (default: the usable CPUs)")
    options = parser.parse_args()
    n = options.size
    if n < 16 or n % 16:
        parser.error(f"--size {n}: expected a multiple of 16")
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal((n, n)).astype("float32") for _ in range(3))
    missed = False
    for check, limit_s in LIMITS_S.items():
        start = time.perf_counter()
        program = Program(KERNEL, check=check)
        compile_s = time.perf_counter() - start
        c[:] = np.nan
        start, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
        program.launch("matmul", (n // 16, n // 16), (16, 16), 0, [a, b, c, n], threads=options.threads)
        run_s, cpu_s = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_utime - cpu
        np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
        if program.report.faults:
            sys.exit(f"the kernel is right, but: {program.report}")
        verdict = "" if n != 512 else f"  limit {limit_s:g} s: {'kept' if run_s < limit_s else 'MISSED'}"
        missed = missed or (n == 512 and run_s >= limit_s)
        print(f"check={check!s:7} compiled in {compile_s:6.2f} s, run in {run_s:6.2f} s ({cpu_s:.2f} s of CPU, {options.threads} threads){verdict}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
