"""Tensor cores, ldmatrix, dp4a and conversions on the emulator against NumPy, with registers filled by the layouts of the PTX ISA."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

import numpy as np
import pytest

import tilewright as tw
from tilewright.targets.cuda_helpers import CUDA_HELPERS, CudaHelpers, fragment_element
from tilewright.targets.emulator import Program

ml_dtypes = pytest.importorskip("ml_dtypes")
SEED = 5
ELEMENTS = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype(np.float32), "s8": np.dtype(np.int8), "u8": np.dtype(np.uint8),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip
PRODUCTS = [name for name in CUDA_HELPERS if name.startswith("tw_mma")]


def helpers(*names):
    used = CudaHelpers()
    for name in names:
        used.use(name)
    return used.emit()


def types(name):
    """k, and the element types of a, b and c: "tw_mma_m16n8k32_s8_u8_s32" -> 32, "s8", "u8", "s32"."""
    shape, *operands = name.removeprefix("tw_mma_").split("_")
    return int(re.search(r"k(\d+)", shape)[1]), operands[0], operands[-2], operands[-1]


def some(rng, dtype, *shape):
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    return rng.integers(-16, 17, shape).astype(np.float32).astype(dtype)  # exact in all of the formats, and so are the sums


def fragments(matrix, operand, count):
    """What each lane's registers hold: (32, count) elements."""
    bits = 8 * matrix.dtype.itemsize
    held = np.empty((32, count), matrix.dtype)
    for lane in range(32):
        for i in range(count):
            held[lane, i] = matrix[fragment_element(operand, bits, lane, i)]
    return held


@cache
def products(check):
    """One program for all products: the kernel of each has its name and an underscore."""
    lines = [helpers(*PRODUCTS)]
    for name in PRODUCTS:
        k, first, _, accumulator = types(name)
        registers = 16 * k * ELEMENTS[first].itemsize // 128
        kind, count = {"f32": ("float", 4), "s32": ("int", 4), "f16": ("unsigned", 2)}[accumulator]
        lines.append(f"""
extern "C" __global__ void {name}_(const unsigned *a, const unsigned *b, const {kind} *c, {kind} *d) {{
  unsigned fa[{registers}], fb[{registers // 2}];
  {kind} fc[{count}];
  int lane = threadIdx.x % 32;
  for (int i = 0; i < {registers}; ++i) fa[i] = a[lane * {registers} + i];
  for (int i = 0; i < {registers // 2}; ++i) fb[i] = b[lane * {registers // 2} + i];
  for (int i = 0; i < {count}; ++i) fc[i] = c[threadIdx.x * {count} + i];
  {name}(fc, fa, fb, fc);
  for (int i = 0; i < {count}; ++i) d[threadIdx.x * {count} + i] = fc[i];
}}""")
    return Program("\n".join(lines), check=check)


@pytest.mark.parametrize("check", [None, "race"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, check):
    """Two warps, with the same multiplicands and other addends."""
    rng = np.random.default_rng(SEED)
    k, first, second, accumulator = types(name)
    a, b = some(rng, ELEMENTS[first], 16, k), some(rng, ELEMENTS[second], k, 8)
    dtype = np.dtype({"f32": np.float32, "s32": np.int32, "f16": np.float16}[accumulator])
    c = [some(rng, np.dtype(np.int16), 16, 8).astype(dtype) // dtype.type(8) for _ in range(2)]
    held = np.concatenate([fragments(matrix, "c", 4) for matrix in c])
    words = {np.dtype(np.float16): "u4"}.get(dtype, dtype)
    d = np.empty((64, 4), dtype)
    fa, fb = fragments(a, "a", a.size // 32), fragments(b, "b", b.size // 32)
    products(check).launch(f"{name}_", 1, 64, 0, [fa.view("u4"), fb.view("u4"), held.view(words), d.view(words)])
    report = products(check).report
    assert report.races == report.uninitialised == report.out_of_bounds == report.divergence == []
    wide = "i4" if accumulator == "s32" else "f8"
    for warp, addend in enumerate(c):
        expected = (a.astype(wide) @ b.astype(wide) + addend).astype(dtype)
        np.testing.assert_array_equal(d[32 * warp : 32 * warp + 32], fragments(expected, "c", 4))


def test_tf32_reads_ten_bits_of_the_mantissa():
    a, b = np.full((16, 8), 1 + 2.0**-11 + 2.0**-13, "f"), np.eye(8, dtype="f")
    d = np.empty((32, 4), "f")
    arguments = [fragments(a, "a", 4).view("u4"), fragments(b, "b", 2).view("u4"), np.zeros((32, 4), "f"), d]
    products(None).launch("tw_mma_m16n8k8_tf32_f32_", 1, 32, 0, arguments)
    np.testing.assert_array_equal(d, np.ones((32, 4), "f"))
    source = helpers("tw_round_tf32") + '\nextern "C" __global__ void k(float *x) { x[threadIdx.x] = tw_round_tf32(x[threadIdx.x]); }\n'
    x = np.array([1 + 2.0**-11, 1 + 2.0**-12, -1 - 2.0**-11, np.inf, 3.0, 1e-40], "f")
    tw.emulate_cuda(source, "k", grid=1, block=6, args=[x])
    np.testing.assert_array_equal(x, np.array([1 + 2.0**-10, 1, -1 - 2.0**-10, np.inf, 3.0, x[5]], "f"))


@pytest.mark.parametrize("trans", ["", "_trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count, trans):
    """Rows at a pitch of 40 bytes (wider than a row) are refused where they are not aligned, else each matrix arrives as the ISA says."""
    name = f"tw_ldmatrix_x{count}{trans}"
    source = (
        helpers(name)
        + f"""
extern "C" __global__ void k(const unsigned short *x, unsigned *y, int pitch) {{
  __shared__ __align__(16) unsigned short s[32 * 24];
  int lane = threadIdx.x;
  for (int i = 0; i < 24; ++i) s[lane * 24 + i] = x[lane * 24 + i];
  __syncthreads();
  unsigned r[{count}];
  {name}(r, s + lane % {8 * count} * pitch);
  for (int i = 0; i < {count}; ++i) y[lane * {count} + i] = r[i];
}}
"""
    )
    x = np.arange(32 * 24, dtype=np.uint16)
    y = np.empty((32, count), np.uint32)
    report = tw.emulate_cuda(source, "k", grid=1, block=32, args=[x, y, 24], check="race")
    assert report.races == report.uninitialised == report.out_of_bounds == report.divergence == []
    for i in range(count):
        matrix = x.reshape(32, 24)[8 * i : 8 * i + 8, :8]
        pairs = (matrix.T if trans else matrix).reshape(32, 2)  # lane: row lane / 4, elements 2 * (lane % 4) and the next
        np.testing.assert_array_equal(np.ascontiguousarray(y[:, i]).view(np.uint16).reshape(32, 2), pairs)
    with pytest.raises(tw.TilewrightError, match=r"ldmatrix.*multiple of 16"):
        tw.emulate_cuda(source, "k", grid=1, block=32, args=[x, y, 20])


WMMA_TYPES = {
    "half": ("f16", "float"),
    "__nv_bfloat16": ("bf16", "float"),
    "signed char": ("s8", "int"),
    "unsigned char": ("u8", "int"),
    "precision::tf32": ("tf32", "float"),
}
SHAPES = {kind: [(16, 16, 8)] if kind == "precision::tf32" else [(16, 16, 16), (32, 8, 16), (8, 32, 16)] for kind in WMMA_TYPES}
ORDERS = ("row_major", "col_major")


def combinations(kind):
    """Of the first shape all orders; of the others each order of each operand."""
    first, *others = SHAPES[kind]
    return [(first, *orders) for orders in product(ORDERS, repeat=3)] + [(shape, *orders) for shape in others for orders in (ORDERS[:1] * 3, ORDERS[1:] * 3)]


@pytest.mark.parametrize("check", [None, "race"])
@pytest.mark.parametrize("kind", WMMA_TYPES)
def test_wmma(kind, check):
    """All shapes and orders of a type, D = A B + C, with leading dimensions larger than the matrices; the counts of elements are the hardware's."""
    rng = np.random.default_rng(SEED)
    element, accumulator = ELEMENTS[WMMA_TYPES[kind][0]], WMMA_TYPES[kind][1]
    stored = "float" if kind == "precision::tf32" else kind
    source, cases = ["#include <mma.h>\nusing namespace nvcuda::wmma;\n"], []
    for (m, n, k), order_a, order_b, order_c in combinations(kind):
        name = f"k{len(cases)}"
        cases.append((name, m, n, k, order_a, order_b, order_c))
        source.append(f"""
extern "C" __global__ void {name}(const {stored} *a, const {stored} *b, const {accumulator} *c, {accumulator} *d) {{
  fragment<matrix_a, {m}, {n}, {k}, {kind}, {order_a}> fa;
  fragment<matrix_b, {m}, {n}, {k}, {kind}, {order_b}> fb;
  fragment<accumulator, {m}, {n}, {k}, {accumulator}> fc;
  load_matrix_sync(fa, a, 48);
  load_matrix_sync(fb, b, 48);
  load_matrix_sync(fc, c, 40, mem_{order_c});
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2;
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(d, fc, 40, mem_{order_c});
  static_assert(fa.num_elements == {16 if kind == "half" else m * k // 32} && fb.num_elements == {16 if kind == "half" else n * k // 32}, "");
}}
""")
    program = Program("".join(source), check=check)
    for name, m, n, k, order_a, order_b, order_c in cases:
        a, b, c = some(rng, element, m, k), some(rng, element, k, n), some(rng, np.dtype(np.int8), m, n).astype("i4" if accumulator == "int" else "f4")
        d = in_memory(c * 0, order_c, 40)
        arguments = [in_memory(a, order_a, 48), in_memory(b, order_b, 48), in_memory(c, order_c, 40), d]
        program.launch(name, 1, 32, 0, arguments)
        report = program.report
        assert report.races == report.uninitialised == report.out_of_bounds == report.divergence == []
        wide = "i8" if accumulator == "int" else "f8"
        expected = a.astype(wide) @ b.astype(wide) + 2 * c
        np.testing.assert_array_equal(
            d[:, : n if order_c == "row_major" else m], expected.T if order_c == "col_major" else expected, str((m, n, k, order_a, order_b, order_c))
        )


def in_memory(matrix, order, leading):
    """A matrix as it lies in memory, its lines `leading` elements apart, on an address that wmma takes."""
    lines = matrix.T if order == "col_major" else matrix
    size = lines.shape[0] * leading
    whole = np.zeros(size + 32, matrix.dtype)
    skip = -whole.ctypes.data % 32 // matrix.dtype.itemsize
    memory = whole[skip : skip + size].reshape(lines.shape[0], leading)
    memory[:, : lines.shape[1]] = lines
    return memory


def test_wmma_accumulates_in_half():
    source = """#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half *a, const half *b, half *d) {
  fragment<matrix_a, 16, 16, 16, half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, half, col_major> fb;
  fragment<accumulator, 16, 16, 16, half> fc;
  fill_fragment(fc, __float2half(0.5f));
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(fc, fa, fb, fc);
  store_matrix_sync(d, fc, 16, mem_row_major);
}
"""
    rng = np.random.default_rng(SEED)
    a, b = rng.standard_normal((2, 16, 16)).astype(np.float16)
    d = in_memory(np.zeros((16, 16), np.float16), "row_major", 16)
    tw.emulate_cuda(source, "k", grid=1, block=32, args=[in_memory(a, "row_major", 16), in_memory(b, "row_major", 16), d])
    np.testing.assert_array_equal(d, (a.astype("f8") @ b.T.astype("f8") + 0.5).astype(np.float16))


def test_matrices_need_whole_warps():
    arguments = [np.zeros((32, 4), "u4"), np.zeros((32, 2), "u4"), np.zeros((32, 4), "f"), np.zeros((32, 4), "f")]
    with pytest.raises(tw.TilewrightError, match="all 32 lanes"):
        products(None).launch("tw_mma_m16n8k16_f16_f32_", 1, 24, 0, arguments)


def test_dot_products():
    names = [name for name in CUDA_HELPERS if name.startswith("tw_dp4a")]
    calls = "".join(f"  y[{i} * 64 + i] = {name}(a[i], b[i], c[i]);\n" for i, name in enumerate(names))
    source = (
        helpers(*names)
        + f'\nextern "C" __global__ void k(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *y) {{\n  int i = threadIdx.x;\n{calls}}}\n'
    )
    rng = np.random.default_rng(SEED)
    a, b = rng.integers(0, 256, (2, 64, 4)).astype(np.uint8)
    c = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    y = np.empty((len(names), 64), np.uint32)
    tw.emulate_cuda(source, "k", grid=1, block=64, args=[a.view("u4"), b.view("u4"), c, y])
    for row, name in zip(y, names, strict=True):
        first, second = (np.int8 if kind == "s8" else np.uint8 for kind in (name.split("_")[2], name.split("_")[-1]))
        expected = (a.view(first).astype("i8") * b.view(second).astype("i8")).sum(1) + c
        np.testing.assert_array_equal(row, expected.astype("u4"), name)


@pytest.mark.parametrize(("pitch", "ways"), [(64, 8), (72, 1), (32, 4)])
def test_bank_conflicts_of_ldmatrix(pitch, ways):
    """Eight rows of 16 bytes at a time: rows 128 bytes apart lie in the same banks, rows 144 bytes apart in all of them."""
    source = (
        helpers("tw_ldmatrix_x4", "tw_cp_async_16", "tw_cp_async_commit", "tw_cp_async_wait")
        + f"""
extern "C" __global__ void k(const unsigned short *x, unsigned *y) {{
  __shared__ __align__(16) unsigned short s[32 * {pitch}];
  for (int i = threadIdx.x; i < {32 * pitch // 8}; i += 32) tw_cp_async_16(s + i * 8, x + i * 8);
  tw_cp_async_commit();
  tw_cp_async_wait<0>();
  __syncthreads();
  unsigned r[4];
  tw_ldmatrix_x4(r, s + threadIdx.x * {pitch});
  for (int i = 0; i < 4; ++i) y[i * 32 + threadIdx.x] = r[i];
}}
"""
    )
    x, y = np.arange(32 * pitch, dtype=np.uint16), np.empty((4, 32), np.uint32)
    report = tw.emulate_cuda(source, "k", grid=1, block=32, args=[x, y], check="memory")
    assert report.max_bank_conflict == ways, report
    for traffic in report.transactions:  # each byte of x and y is moved once
        assert traffic.sectors == traffic.ideal == {"x": x, "y": y}[traffic.buffer].nbytes // 32, report


@pytest.mark.parametrize(
    "text", ['unsigned r; asm volatile("mov.u32 %0, %%laneid;" : "=r"(r)); *x = r;', 'float r; asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(*x)); *x = r;']
)
def test_ptx_in_asm_is_refused_with_advice(text):
    with pytest.raises(tw.CompileError, match=r"cannot run PTX in asm\(\).*cuda_pipeline.h"):
        tw.emulate_cuda(f'extern "C" __global__ void k(float *x) {{ {text} }}', "k", grid=1, block=1, args=[np.zeros(1, "f")])
