"""The vector math of generated C: accuracy over the whole range of arguments, special values, and equal bits for every number of lanes.

Every test runs with each compiler found (gcc, clang) and once without the machine's own instructions (no fused multiply-add on x86-64).
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.targets.c_math import MathLibrary, dependencies, function_name, math_source, vector_typedef
from tilewright.targets.c_math_table import FUNCTIONS
from tilewright.targets.toolchain import find_compiler, flags, installed_compilers
from tilewright.tir.errors import InternalError
from tilewright.tir.target import Target

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-Wno-unused-function")
MACHINES = [(compiler, True) for compiler in installed_compilers()] + [(find_compiler(), False)]  # compiler, the machine's instructions?
ELEMENTS = {"float32": ("float", np.float32), "float64": ("double", np.float64)}
LANES = {"float32": (1, 2, 8, 32), "float64": (1, 2, 4, 16)}
UNARY = [name for name, f in FUNCTIONS.items() if f.public and f.parameters == ("F x",) and f.result == "F"]
PREDICATES = [name for name, f in FUNCTIONS.items() if f.public and f.result == "I"]
# the same functions in C's long double; exact or correctly rounded ones too
REFERENCES = {
    "exp": "expl(x)",
    "exp2": "exp2l(x)",
    "log": "logl(x)",
    "log2": "log2l(x)",
    "log1p": "log1pl(x)",
    "tanh": "tanhl(x)",
    "erf": "erfl(x)",
    "sin": "sinl(x)",
    "cos": "cosl(x)",
    "sqrt": "sqrtl(x)",
    "rsqrt": "1 / sqrtl(x)",
    "abs": "fabsl(x)",
    "floor": "floorl(x)",
    "ceil": "ceill(x)",
    "trunc": "truncl(x)",
    "round": "rintl(x)",
    "sigmoid": "x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x))",
}


def loop(name: str, dtype: str, lanes: int, called: str) -> str:
    """C of `name_float32x8(as, bs, cs, outs, n)`: the function on each `lanes` elements; the operands that it has not are ignored."""
    function, c_type = FUNCTIONS[name], ELEMENTS[dtype][0]
    operands = "abc"[: len(function.parameters)]
    vector, lane = (c_type, "r") if lanes == 1 else (f"{dtype}x{lanes}", "r[j]")
    out = "int32_t" if function.result == "I" else c_type
    loads = " ".join(f"{vector} {v}; __builtin_memcpy(&{v}, {v}s + i, sizeof {v});" for v in operands)
    call = f"{called}({', '.join(operands)})"
    return f"""void {name}_{dtype}x{lanes}(const {c_type} *as, const {c_type} *bs, const {c_type} *cs, {out} *outs, int64_t n) {{
    (void)bs; (void)cs;
    for (int64_t i = 0; i < n; i += {lanes}) {{
        {loads}
        __typeof__({call}) r = {call};
        for (int j = 0; j < {lanes}; j++) outs[i + j] = {lane};
    }}
}}"""


def reference(name: str, expression: str) -> str:
    """C of `reference_name(xs, high, low, n)`: high + low is the exact value, to 64 bits or more."""
    return f"""void reference_{name}(const double *xs, double *high, double *low, int64_t n) {{
    for (int64_t i = 0; i < n; i++) {{ long double x = xs[i], r = {expression}; high[i] = r; low[i] = r - high[i]; }}
}}"""


@pytest.fixture(scope="module", params=MACHINES, ids=lambda m: f"{Path(m[0].path).name}-{'native' if m[1] else 'baseline'}")
def library(request, tmp_path_factory) -> ctypes.CDLL:
    compiler, native = request.param
    functions = MathLibrary(vector_bytes=32)
    public = [name for name, function in FUNCTIONS.items() if function.public]
    loops = [loop(n, dtype, lanes, functions.use(n, dtype, lanes)) for n in public for dtype in ELEMENTS for lanes in LANES[dtype]]
    references = [reference(*item) for item in REFERENCES.items()]
    folder = tmp_path_factory.mktemp("math")
    (folder / "math.c").write_text("\n".join(["#include <stdint.h>", "#include <math.h>", functions.emit(), *loops, *references]))
    options = [f for f in flags(Target("c"), compiler, uses_openmp=False) if native or not f.startswith("-march")]
    subprocess.run([compiler.path, *options, *WARNINGS, "math.c", "-o", "math.so", "-lm"], check=True, cwd=folder)
    return ctypes.CDLL(str(folder / "math.so"))


def run(library, name: str, dtype: str, lanes: int, *operands: np.ndarray) -> np.ndarray:
    out = np.empty(operands[0].shape, np.int32 if FUNCTIONS[name].result == "I" else ELEMENTS[dtype][1])
    arrays = [np.ascontiguousarray(a, ELEMENTS[dtype][1]) for a in operands]
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (arrays + arrays[:1] * 3)[:3]]
    getattr(library, f"{name}_{dtype}x{lanes}")(*pointers, out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(out.size))
    return out


# where results overflow, become denormal, or vanish
EDGES = {
    "float32": (88.72284, 88.722839, -103.97208, -103.27893, 127.99999, -149.0, -149.5, -126.0, 1.1754944e-38, 1.4e-45, 3.4028235e38),
    "float64": (709.782712893384, 709.7827128933841, -745.1332191019411, -708.4, 1023.9999999999999, -1074.0, -1074.5, 5e-324),
}


def arguments(dtype: str) -> np.ndarray:
    """Values of every magnitude and sign, denser where the functions bend, and the special ones; a multiple of 32 of them."""
    rng = np.random.default_rng(7)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        if dtype == "float32":  # evenly spaced bit patterns: every exponent, NaNs and infinities
            patterns = np.arange(0, 1 << 32, 65521, dtype=np.uint64).astype(np.uint32).view(np.float32).astype(np.float64)
        else:
            patterns = rng.integers(0, 1 << 64, 40000, dtype=np.uint64).view(np.float64)
    special = [0.0, 0.5, 1.0, 1.5, 2.5, np.inf, np.nan, np.finfo(dtype).tiny, np.finfo(dtype).max, *EDGES[dtype]]
    zeros_of_sin_and_cos = np.arange(640000, step=41) * (np.pi / 2)
    spread = [rng.uniform(-limit, limit, 8000) for limit in (1.0, 12.0, 120.0, 1500.0, 6100.0, 1e6)]
    values = np.concatenate([special, np.negative(special), *spread, rng.uniform(0.5, 1.5, 8000), zeros_of_sin_and_cos, patterns])
    return values[: values.size // 32 * 32].astype(ELEMENTS[dtype][1])


def errors_ulp(library, name: str, x: np.ndarray, got: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of `got` in ulp of x's type where the exact value is finite in that type, and the exact value rounded to that type."""
    wide = x.astype(np.float64)
    high, low = np.empty_like(wide), np.empty_like(wide)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (wide, high, low)]
    getattr(library, f"reference_{name}")(*pointers, ctypes.c_int64(x.size))
    with np.errstate(all="ignore"):
        rounded = high.astype(x.dtype)
        finite = np.isfinite(rounded)
        difference = (got.astype(np.float64)[finite] - high[finite]) - low[finite]
        return np.abs(difference) / np.spacing(np.abs(rounded[finite])).astype(np.float64), rounded


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("name", UNARY)
def test_error_is_within_the_stated_bound_and_special_values_are_exact(library, name, dtype):
    x = arguments(dtype)
    got = run(library, name, dtype, LANES[dtype][2], x)
    errors, exact = errors_ulp(library, name, x, got)
    assert errors.max() <= FUNCTIONS[name].max_ulp[dtype], x[np.isfinite(exact)][errors.argmax()]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    unbounded = np.isinf(exact) | (exact == 0)  # zeros with their signs
    np.testing.assert_array_equal(got[unbounded], exact[unbounded])
    np.testing.assert_array_equal(np.signbit(got[unbounded]), np.signbit(exact[unbounded]))


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("name", UNARY + PREDICATES)
def test_every_lane_count_gives_the_same_bits(library, name, dtype):
    x = arguments(dtype)
    results = [run(library, name, dtype, lanes, x) for lanes in LANES[dtype]]
    for other in results[1:]:
        if FUNCTIONS[name].result == "I":  # one lane: 0 or 1, more: 0 or -1
            np.testing.assert_array_equal(other, -results[0])
        else:
            np.testing.assert_array_equal(other, results[0])
            number = ~np.isnan(other)  # a NaN may have either sign
            np.testing.assert_array_equal(np.signbit(other[number]), np.signbit(results[0][number]))


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("name", PREDICATES)
def test_predicates(library, name, dtype):
    x = arguments(dtype)
    np.testing.assert_array_equal(run(library, name, dtype, LANES[dtype][2], x) != 0, getattr(np, name)(x))


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_pow(library, dtype):
    values = np.array([0.0, 1.0, -1.5, 2.25, 0.3, np.inf, -np.inf, np.nan], ELEMENTS[dtype][1])
    a, b = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    for lanes in LANES[dtype]:
        np.testing.assert_array_max_ulp(run(library, "pow", dtype, lanes, a, b), want, maxulp=1)  # NaN where NaN


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_fma_rounds_once(library, dtype):
    epsilon = np.finfo(dtype).eps
    a = np.full(32, 1 + epsilon, dtype)
    got = [run(library, "fma", dtype, lanes, a, a, np.full(32, -1 - 2 * epsilon, dtype)) for lanes in LANES[dtype]]
    np.testing.assert_array_equal(got, np.full((len(got), 32), epsilon * epsilon, dtype))  # 0 if the product had been rounded


def test_a_source_has_only_what_it_uses_callees_first():
    library = MathLibrary()
    assert library.use("sigmoid", "float32", 8) == "tw_sigmoid_float32x8"
    assert library.use("exp", "float32", 1) == "tw_exp_float32"
    declared = {"float32x8"}
    text = library.emit(declared)
    assert declared == {"float32x8", "uint32x8", "int32x8"}
    assert "typedef float float32x8" not in text and vector_typedef("uint32", 8) in text
    assert "float64" not in text and "tanh" not in text
    defined = re.findall(r"^static inline .*? (tw_\w+)\(", text, re.M)
    assert len(set(defined)) == len(defined) and defined[-1] == "tw_exp_float32"
    for name in defined:
        definition = re.search(rf"^static inline .*? {name}\(", text, re.M)
        assert definition is not None and definition.end() == text.index(f"{name}(") + len(name) + 1  # its first mention


def test_definitions_mention_only_their_dependencies():
    for name in FUNCTIONS:
        for dtype in ELEMENTS:
            c_name, text = math_source(name, dtype, 4)
            called = set(re.findall(r"tw_\w+", text)) - {c_name}
            assert called == {function_name(d, dtype, 4) for d in dependencies(name, dtype, 4)}


@pytest.mark.parametrize(("request_", "message"), [(("sinh", "float32", 8), "sinh"), (("exp", "float16", 8), "legalise"), (("exp", "float32", 6), "6 lanes")])
def test_unknown_requests_are_refused(request_, message):
    with pytest.raises(InternalError, match=message):
        MathLibrary().use(*request_)
