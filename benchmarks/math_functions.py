"""Speed and accuracy of the generated vector math: ns per element on one thread, and the worst error in ulp, beside NumPy and PyTorch.

    python benchmarks/math_functions.py                 all functions, both element types
    python benchmarks/math_functions.py exp tanh        some of them
    python benchmarks/math_functions.py --exhaustive    float32: the worst error over all 2^32 arguments (half a minute a function)

Errors are against C's long double over a sample (float32: evenly spaced bit patterns; float64: random ones, and uniform intervals); the
exhaustive sweep compares with the library's own float64 functions, whose error is far below one float32 ulp.
Other programs on the machine disturb the times: the shortest of several rounds counts, and the contestants take turns.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable

import numpy as np

from tilewright.targets.c_math import MathLibrary
from tilewright.targets.c_math_table import CONSTANTS
from tilewright.targets.loader import Library
from tilewright.targets.toolchain import compile_source
from tilewright.tir.target import Target

RANGES = {  # arguments that are timed; C's long double function, NumPy's and PyTorch's
    "exp": (-10, 10, "expl(x)", "exp", "exp"),
    "exp2": (-10, 10, "exp2l(x)", "exp2", "exp2"),
    "log": (0.01, 10, "logl(x)", "log", "log"),
    "log2": (0.01, 10, "log2l(x)", "log2", "log2"),
    "log1p": (-0.9, 10, "log1pl(x)", "log1p", "log1p"),
    "tanh": (-5, 5, "tanhl(x)", "tanh", "tanh"),
    "sigmoid": (-10, 10, "x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x))", None, "sigmoid"),
    "erf": (-3, 3, "erfl(x)", None, "erf"),
    "sin": (-10, 10, "sinl(x)", "sin", "sin"),
    "cos": (-10, 10, "cosl(x)", "cos", "cos"),
    "sqrt": (0, 10, "sqrtl(x)", "sqrt", "sqrt"),
    "rsqrt": (0.1, 10, "1 / sqrtl(x)", None, "rsqrt"),
}
C_TYPES = {"float32": "float", "float64": "double"}
COUNT, ROUNDS, SAMPLE = 1 << 15, 15, 1 << 20

SWEEP = """
/* Worst error in float32 ulp over the bit patterns 0, stride, ... below end; where it is; how many results are of the wrong kind. */
void sweep_{name}(int64_t end, int64_t stride, double *worst, float *where, int64_t *wrong) {{
    *worst = 0; *wrong = 0;
    for (int64_t start = 0; start < end; start += 1024 * stride) {{
        float x[1024], got[1024]; double wide[1024], exact[1024];
        for (int i = 0; i < 1024; i++) {{
            union {{ uint32_t bits; float value; }} both = {{(uint32_t)(start + i * stride)}};
            wide[i] = x[i] = both.value;
        }}
        {name}_float32(x, got, 1024);
        {name}_float64(wide, exact, 1024);
        for (int i = 0; i < 1024; i++) {{
            union {{ float value; uint32_t bits; }} rounded = {{(float)exact[i]}}, result = {{got[i]}};
            int exponent = rounded.bits >> 23 & 255;
            if (exponent == 255 || !(rounded.bits << 1)) {{ /* infinite, NaN, zero */
                *wrong += isnan(rounded.value) ? !isnan(result.value) : rounded.bits != result.bits;
                if (exponent == 255) continue;
            }}
            union {{ uint64_t bits; double value; }} ulps = {{(uint64_t)(1023 + 150 - (exponent ? exponent : 1)) << 52}};
            double error = fabs(got[i] - exact[i]) * ulps.value;
            if (!(error <= *worst)) *worst = error, *where = x[i];
        }}
    }}
}}
"""


def build(names: list[str]) -> Library:
    """`NAME_float32(x, out, n)`, `NAME_float64`, `reference_NAME(x, high, low, n)` and `sweep_NAME` for each name, for this machine."""
    target = Target("c", threads=1)
    library, functions = MathLibrary(target.vector_bytes), []
    for name in names:
        for dtype, c_type in C_TYPES.items():
            lanes = target.lanes(4 if dtype == "float32" else 8)
            functions.append(
                f"void {name}_{dtype}(const {c_type} *x, {c_type} *out, int64_t n) {{ for (int64_t i = 0; i < n; i += {lanes}) {{\n"
                f"{dtype}x{lanes} v; __builtin_memcpy(&v, x + i, sizeof v); v = {library.use(name, dtype, lanes)}(v);"
                "__builtin_memcpy(out + i, &v, sizeof v); } }"
            )
        functions.append(
            f"void reference_{name}(const double *xs, double *high, double *low, int64_t n) {{ for (int64_t i = 0; i < n; i++) {{\n"
            f"long double x = xs[i], r = {RANGES[name][2]}; high[i] = r; low[i] = r - high[i]; }} }}"
        )
        functions.append(SWEEP.format(name=name))
    source = "\n".join(["#include <math.h>", "#include <stdint.h>", library.emit(), *functions])
    return Library(compile_source(source, target).library_path)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def contestants(library: Library, name: str, dtype: str) -> dict[str, Callable[[np.ndarray, np.ndarray], object]]:
    """Who computes this function: name -> f(x, out)."""
    ours = library.function(f"{name}_{dtype}", [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None)
    found: dict[str, Callable[[np.ndarray, np.ndarray], object]] = {"tilewright": lambda x, out: ours(pointer(x), pointer(out), x.size)}
    _, _, _, numpy_name, torch_name = RANGES[name]
    if numpy_name:
        found["numpy"] = lambda x, out: getattr(np, numpy_name)(x, out=out)
    try:
        import torch
    except ImportError:
        return found
    torch.set_num_threads(1)
    found["torch"] = lambda x, out: getattr(torch, torch_name)(torch.from_numpy(x), out=torch.from_numpy(out))
    return found


def nanoseconds(functions: dict[str, Callable[[np.ndarray, np.ndarray], object]], x: np.ndarray) -> dict[str, float]:
    """Shortest time per element of each function over interleaved rounds."""
    out = np.empty_like(x)
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(ROUNDS):
        for who, function in functions.items():
            start = time.perf_counter()
            for _ in range(8):
                function(x, out)
            best[who] = min(best[who], (time.perf_counter() - start) / 8 / x.size * 1e9)
    return best


def sample(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype == "float32":
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return np.linspace(0, (1 << 32) - 1, SAMPLE).astype(np.uint32).view(np.float32)
    patterns = rng.integers(0, 1 << 64, SAMPLE // 2, dtype=np.uint64).view(np.float64)
    return np.concatenate([patterns, rng.uniform(-3, 3, SAMPLE // 4), rng.uniform(-700, 700, SAMPLE // 4)])


def worst_ulp(library: Library, name: str, function: Callable[[np.ndarray, np.ndarray], object], x: np.ndarray) -> float:
    wide = x.astype(np.float64)
    high, low, got = np.empty_like(wide), np.empty_like(wide), np.empty_like(x)
    library.function(f"reference_{name}", [ctypes.c_void_p] * 3 + [ctypes.c_int64], None)(*map(pointer, (wide, high, low)), x.size)
    function(x, got)
    rounded = high.astype(x.dtype)
    finite = np.isfinite(rounded)
    error = np.abs((got[finite].astype(np.float64) - high[finite]) - low[finite])
    return float(np.max(error / np.spacing(np.abs(rounded[finite])).astype(np.float64)))


def exhaustive(library: Library, name: str, stride: int) -> str:
    worst, where, wrong = ctypes.c_double(), ctypes.c_float(), ctypes.c_int64()
    types = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    sweep = library.function(f"sweep_{name}", types, None)
    # Beyond the limit, sin and cos are C's own; below it, the sign is handled exactly.
    end = int(np.float32(CONSTANTS["float32"]["TRIG_LIMIT"]).view(np.uint32)) if name in ("sin", "cos") else 1 << 32
    sweep(end, stride, ctypes.byref(worst), ctypes.byref(where), ctypes.byref(wrong))
    return f"{name:8} float32 {worst.value:.4f} ulp at {where.value.hex()} ({where.value:.9g}); {wrong.value} wrong infinities, NaNs or zeros"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"functions, of: {' '.join(RANGES)}")
    parser.add_argument("--exhaustive", action="store_true", help="sweep all float32 arguments")
    parser.add_argument("--stride", type=int, default=1, help="of the sweep: every n-th bit pattern")
    options = parser.parse_args()
    names = options.names or list(RANGES)
    library = build(names)
    if options.exhaustive:
        for name in names:
            print(exhaustive(library, name, options.stride), flush=True)
        return
    print("ns per element, worst ulp")
    for dtype in C_TYPES:
        for name in names:
            functions = contestants(library, name, dtype)
            low, high = RANGES[name][:2]
            x = np.random.default_rng(0).uniform(low, high, COUNT).astype(dtype)
            with np.errstate(all="ignore"):
                times = nanoseconds(functions, x)
                errors = {who: worst_ulp(library, name, function, sample(dtype)) for who, function in functions.items()}
            print(f"{name:8} {dtype}  " + "   ".join(f"{who} {times[who]:6.3f} ns {errors[who]:9.3g} ulp" for who in functions), flush=True)


if __name__ == "__main__":
    main()
