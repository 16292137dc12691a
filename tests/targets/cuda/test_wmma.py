"""Tensor cores in the manner of nvcuda::wmma: each dtype, shape and order of operands on the emulator with its checks, what is refused, what nvcc makes of it.

Results are compared exactly: integers of all sizes, floats that are small integers.
"""

import itertools
import random
import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule.lower import lower_schedule
from tilewright.te import wmma
from tilewright.te.wmma import KINDS, SHAPES
from tilewright.tir.errors import ScheduleError, TargetError, TEError
from tilewright.tir.interp import interpret

from .tensor_core_products import SM_80, Product, random_product, run_clean, whole_numbers

SM_75 = tw.Target("cuda", arch="sm_75", device="emulator", threads=2)


def check(product, target=SM_80, seed=0):
    s, args, _ = product.made()
    a, b, c, expected = product.arrays(np.random.default_rng(seed))
    module = run_clean(s, args, [a, b, c], target)
    np.testing.assert_array_equal(c, expected, err_msg=str(product))
    return module.get_source("cuda")


def ways(kind):
    """Each shape with all orders of operands, from global memory and through shared memory, stored as it is and transposed."""
    for shape in KINDS[kind].shapes:
        for number, (a, b) in enumerate(itertools.product(("a", "at"), ("b", "bt"))):
            narrow = {"b": (b, shape.n), "a": (a, shape.m)}
            eight = [operand for operand, (order, extent) in narrow.items() if order in ("b", "at") and extent == 8]  # rows of 8: not 32 bytes apart
            shared = tuple(dict.fromkeys([*eight, *(("a",), ("b",), ("a", "b"), ())[number]]))
            tiles = (1 if shape.m > 16 or "a" in eight else 2, 1 if "b" in eight else 2)
            yield Product(kind, shape, a, b, "store_t" if number == 3 else "store", shared, tiles)


@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_and_order(kind):
    """All of a dtype as the kernels of one module."""
    products, outs, args = list(ways(kind)), [], []
    for number, each in enumerate(products):
        operands = each.operands()
        outs.append((each, operands, each.compute(*operands, f"C{number}")))
        args += [*operands, outs[-1][2]]
    s = te.create_schedule([out.op for _, _, out in outs])
    for each, operands, out in outs:
        each.schedule(s, operands, out)
    arrays = [each.arrays(np.random.default_rng(number)) for number, each in enumerate(products)]
    source = run_clean(s, args, [array for found in arrays for array in found[:3]]).get_source("cuda")
    for each, (_, _, c, expected) in zip(products, arrays, strict=True):
        np.testing.assert_array_equal(c, expected, err_msg=str(each))
    assert source.count("wmma.mma.sync") == len(products) == 4 * len(KINDS[kind].shapes)
    assert "#include <mma.h>" not in source


@pytest.mark.parametrize("kind", ["f16", "f16_f16", "s8"])
def test_on_sm_75(kind):
    check(Product(kind), SM_75)


def test_nothing_but_global_memory_and_a_warp_that_no_loop_is_bound_to():
    product = Product(tiles=(2, 2))
    source = check(product)
    assert "__shared__" not in source and "__syncthreads" not in source and "__launch_bounds__(32)" in source
    s, args, _ = product.made()
    module = tw.build(s, args, target=SM_80)
    a, b, c, expected = product.arrays(np.random.default_rng(1))
    a = np.concatenate([np.zeros(-(a.ctypes.data + 16) % 32 // 2 + 8, a.dtype), a.ravel()])[-a.size :].reshape(a.shape)
    module(a, b, c)  # an array of the host begins at any multiple of 16 bytes
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("product", [
    Product(shared=("a", "b"), tiles=(2, 2), warps=3, steps=2, buffers=2),
    Product("s8", SHAPES[1], shared=("a", "b"), tiles=(1, 2), warps=2, steps=2, buffers=3, b="bt"),
    Product("f16", a="at", b="bt", store="store_t", shared=("b",), warps=4, tiles=(1, 2)),
    Product("bf16", shared=("a",), alike=4),
    Product(shared=("a", "b"), tiles=(4, 2), warps=2, steps=4, buffers=3, extents=(128, 32, 256)),  # 72 KiB
], ids=str)  # fmt: skip
def test_warps_that_share_panels(product):
    source = check(product)
    assert ("tw_cp_async" in source) == (product.buffers > 2)


@pytest.mark.parametrize("kind", ["f16", "f16_f16", "s8", "tf32"])
def test_the_interpreter_agrees(kind):
    product = Product(kind, KINDS[kind].shapes[0], "at", "bt")
    s, args, _ = product.made()
    a, b, c, expected = product.arrays(np.random.default_rng(2))
    interpret(lower_schedule(s, args), [a, b, c])
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize(("kind", "sizes"), [("f16", (50, 37, 43)), ("s8", (17, 16, 100)), ("tf32", (16, 33, 5))])
@pytest.mark.parametrize("padded", ["root", "inlined"])
def test_sizes_that_divide_by_nothing(kind, sizes, padded):
    """s.pad: operands with zeros beyond their ends, as tensors of their own or in panels; sums leave through shared memory."""
    product = Product(kind, KINDS[kind].shapes[0], extents=sizes)
    m, n, k = product.mnk
    A, B = product.operands()
    C = product.compute(A, B)
    s = te.create_schedule(C.op)
    sums, AP, BP = s.pad(C, m, n, k)
    staged = s.cache_read(sums, "shared", [C])
    io, jo, i, j = s[C].tile(*C.op.axis, m, n)
    s[C].bind(io, te.thread_axis("blockIdx.y"))
    s[C].bind(jo, te.thread_axis("blockIdx.x"))
    s[C].bind(s[C].split(s[C].fuse(i, j), factor=32)[1], te.thread_axis("threadIdx.x"))
    s[staged].compute_at(s[C], jo)
    s[staged].tensorize(s[staged].op.axis[0], product.intrinsic("store"))
    s[sums].set_scope("wmma.accumulator")
    s[sums].compute_at(s[C], jo)
    ko, ki = s[sums].split(s[sums].op.reduce_axis[0], factor=k)
    s[sums].reorder(ko, *s[sums].op.axis, ki)
    s[sums].tensorize(s[sums].op.axis[0], product.intrinsic("product"))
    for operand, role in ((AP, "a"), (BP, "b")):
        fragment = s.cache_read(operand, f"wmma.matrix_{role}", [sums])
        if padded == "root":
            s[operand].bind(operand.op.axis[0], te.thread_axis("blockIdx.x"))
            s[operand].bind(operand.op.axis[1], te.thread_axis("threadIdx.x"))
        else:
            s[operand].set_scope("shared")
            s[operand].compute_at(s[sums], ko)
            _, lane = s[operand].split(s[operand].fuse(*operand.op.axis), factor=32)
            s[operand].bind(lane, te.thread_axis("threadIdx.x"))
        s[fragment].compute_at(s[sums], ko)
        s[fragment].tensorize(s[fragment].op.axis[0], product.intrinsic(role))
    a, b, c, expected = product.arrays(np.random.default_rng(3))
    source = run_clean(s, [A, B, C], [a, b, c]).get_source("cuda")
    np.testing.assert_array_equal(c, expected)
    assert source.count("__global__ void") == (3 if padded == "root" else 1)


def test_a_batch_of_any_size():
    size = te.var("size")
    A, B = te.placeholder((size, 16, 32), "float16", "A"), te.placeholder((size, 32, 16), "float16", "B")
    k = te.reduce_axis((0, 32), "k")
    C = te.compute((size, 16, 16), lambda n, i, j: te.sum(A[n, i, k].astype("float32") * B[n, k, j].astype("float32"), axis=k), "C")
    s = te.create_schedule(C.op)
    sums = s.cache_write(C, "wmma.accumulator")
    n, i, j = C.op.axis
    s[C].bind(n, te.thread_axis("blockIdx.x"))
    s[C].tensorize(i, "wmma_f32_store")
    s[sums].compute_at(s[C], n)
    _, i, j = s[sums].op.axis
    ko, ki = s[sums].split(s[sums].op.reduce_axis[0], factor=16)
    s[sums].reorder(ko, i, j, ki)
    s[sums].tensorize(i, "wmma_f16")
    for operand, role in ((A, "a"), (B, "b")):
        fragment = s.cache_read(operand, f"wmma.matrix_{role}", [sums])
        s[fragment].compute_at(s[sums], ko)
        s[fragment].tensorize(s[fragment].op.axis[1], f"wmma_f16_load_{role}")
    a, b = (whole_numbers(np.random.default_rng(4), shape, "float16") for shape in ((5, 16, 32), (5, 32, 16)))
    c = np.zeros((5, 16, 16), "float32")
    run_clean(s, [A, B, C], [a, b, c])
    np.testing.assert_array_equal(c, a.astype("f8") @ b.astype("f8"))


def test_tf32_rounds_its_operands_and_nothing_else():
    """By either set the same numbers: to nearest, ties away from zero, 10 bits of mantissa."""
    results = []
    for shape in (None, KINDS["tf32"].shapes[0]):
        product = Product("tf32", shape, shared=("a", "b") if shape is None else ())
        s, args, _ = product.made()
        a, b = (np.random.default_rng(seed).standard_normal([int(e) for e in t.shape]).astype("float32") for seed, t in enumerate(args[:2]))
        c = np.zeros([int(e) for e in args[2].shape], "float32")
        run_clean(s, args, [a, b, c])
        rounded = [((x.view(np.uint32) + (1 << 12)) & 0xFFFFE000).astype(np.uint32).view(np.float32).astype("f8") for x in (a, b)]
        np.testing.assert_allclose(c, rounded[0] @ rounded[1], rtol=1e-5, atol=1e-6)
        assert abs(c - a.astype("f8") @ b.astype("f8")).max() > 1e-5  # which float32 would not
        results.append(c)
    np.testing.assert_array_equal(*results)


# ------------------------------------------------------------------------------------------------------------------------ refusals


def refuse(call, *words, error=ScheduleError):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value), caught.value


def build(product, change=lambda s, stages: None, target=SM_80):
    s, args, stages = product.made()
    change(s, stages)
    return tw.build(s, args, target=target)


def other(made, /, **names):
    """The same, with other intrinsics."""

    class Changed(Product):
        def intrinsic(self, what):
            return names.get(what, super().intrinsic(what))

    return Changed(**made.__dict__)


def test_the_two_sets_are_not_mixed():
    through_shared = Product(shared=("a", "b"))
    refuse(lambda: build(other(through_shared, a="mma_f16_load_a")), "mma_f16_load_a", "'mma f16 a'", "wmma_f16", "from one of the sets")
    refuse(lambda: build(other(through_shared, store="mma_f32_store")), "mma_f32_store", "'mma sums'", "wmma_f16", "'wmma f32 16x16x16 sums'")
    refuse(lambda: build(other(Product(shape=None, shared=("a", "b")), store="wmma_f32_store")), "mma_f16_init", "wmma_f32_store")


def test_kernels_of_one_module_may_be_of_different_sets():
    products = [Product(), Product(shape=None, shared=("a", "b"))]
    operands = [each.operands() for each in products]
    outs = [each.compute(*given, f"C{number}") for number, (each, given) in enumerate(zip(products, operands, strict=True))]
    s = te.create_schedule([out.op for out in outs])
    for each, given, out in zip(products, operands, outs, strict=True):
        each.schedule(s, given, out)
    source = tw.build(s, [*operands[0], outs[0], *operands[1], outs[1]], target=SM_80).get_source("cuda")
    assert "tw_wmma_mma" in source and "tw_mma" in source


def test_fragments_of_one_set_belong_together():
    refuse(lambda: build(other(Product(b="bt"), bt="mma_f16_load_bt")), "mma_f16_load_bt", "wmma_f16_bt")
    refuse(lambda: build(other(Product("f16", SHAPES[1], b="bt"), store="wmma_f32_8x32x16_store")), "other order of rows", "wmma_f32_8x32x16_store")
    refuse(lambda: build(other(Product("tf32", KINDS["tf32"].shapes[0]), store="wmma_f32_store")), "'wmma f32 16x16x8 sums'", "'wmma f32 16x16x16 sums'")
    refuse(lambda: build(other(Product(), a="wmma_f16_load_b")), "wmma.matrix_b", "wmma.matrix_a")
    refuse(lambda: build(other(Product("f16_f16"), product="wmma_f16")), "not the pattern", "wmma_f16", "Declare what the pattern says")


def test_operands_that_are_no_matrices_with_a_leading_dimension():
    refuse(lambda: build(Product(extents=(16, 16, 52))), "k.inner.inner) < 52", "pad the tensor")

    def rows_of(factor, offset):
        return lambda s, stages: s[stages["panel_a"]].storage_align(s[stages["panel_a"]].op.axis[0], factor, offset)

    through_shared = Product(shared=("a",))
    refuse(lambda: build(through_shared, rows_of(4, 1)), "wmma_f16_load_a", "multiple of 8 elements (16 bytes) apart", "A.shared rows are 17 elements apart")
    assert build(through_shared, rows_of(16, 8))  # 24: a multiple of 8
    refuse(lambda: build(Product("f16", SHAPES[1])), "wmma_f16_32x8x16_load_b", "multiple of 16 elements (32 bytes)", "begins at element", "blockIdx.x * 8")

    def other_order(s, stages):
        s[stages["panel_a"]].transform_layout(lambda i, k: [k, i])

    refuse(lambda: build(through_shared, other_order), "other order of rows and columns", "side by side")


def test_memory_of_one_thread_is_none_of_a_warp():
    def through_registers(s, stages):
        fragment = stages["fragment_a"]
        copy = s.cache_read(fragment.op.input_tensors[0], "local", [fragment])
        s[copy].compute_at(s[fragment], s[fragment].leaf_iter_vars[1])

    refuse(lambda: build(Product(), through_registers), "wmma_f16_load_a", "memory of one thread", "aligned to 32 bytes")


def test_rows_that_run_backwards():
    A = te.placeholder((16, 16), "float16", "A")
    F = te.compute((16, 16), lambda i, j: A[15 - i, j], "F")
    B = te.compute((16, 16), lambda i, j: F[i, j], "B")
    s = te.create_schedule(B.op)
    s[F].set_scope("wmma.matrix_a")
    one, _ = s[B].split(B.op.axis[0], nparts=1)
    s[B].bind(one, te.thread_axis("blockIdx.x"))
    s[F].compute_at(s[B], one)
    s[F].tensorize(F.op.axis[0], "wmma_f16_load_a")
    te.decl_tensor_intrin(
        te.compute((16, 16), lambda i, j: te.placeholder((16, 16), "float16", "f")[i, j], "b"),
        body={"cuda": "b[0] = 0;", "python": lambda b, f: None}, name="empties", fragments={"f": ("wmma.matrix_a", "wmma f16 16x16x16 a row", 2)},
    )  # fmt: skip
    s[B].tensorize(s[B].leaf_iter_vars[1], "empties")
    refuse(lambda: tw.build(s, [A, B], target=SM_80), "positive multiple", "rows are -16 elements apart")


def test_what_only_intrinsics_may_touch():
    product = Product()
    A, B = product.operands()
    C = product.compute(A, B)
    s = te.create_schedule(C.op)
    sums = s.cache_write(C, "wmma.accumulator")
    one, _ = s[C].split(C.op.axis[0], nparts=1)
    s[C].bind(one, te.thread_axis("blockIdx.x"))
    s[sums].compute_at(s[C], one)
    refuse(lambda: tw.build(s, [A, B, C], target=SM_80), "element by element", "C.wmma.accumulator", "tensorize")
    refuse(lambda: build(Product("bf16"), target=SM_75), "wmma_bf16", "sm_80", "sm_75", error=TargetError)
    refuse(lambda: build(Product("tf32", KINDS["tf32"].shapes[0]), target=SM_75), "sm_80", "sm_75", error=TargetError)


def test_a_warp_is_as_wide_as_threads_say():
    s, args, _ = Product().made()
    s[args[2]].env_threads([te.thread_axis((0, 64), "threadIdx.x")])
    refuse(lambda: tw.build(s, args, target=SM_80), "threadIdx.x is 64", "32", error=TargetError)


def test_names():
    with pytest.raises(TEError, match=r"'wmma_f16_lod_a': known are .*wmma_f16_load_a.* others"):
        te.tensor_intrin("wmma_f16_lod_a")
    assert te.tensor_intrin("wmma_s8_8x32x16_at_bt").op.axis[1].dom.extent == 32
    declare = te.decl_tensor_intrin
    a = te.placeholder((8, 8), name="a")
    c = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="c")
    code = {"cuda": "c[0] = 0;", "python": print}
    refuse(lambda: declare(c, body=code, fragments={"a": ("wmma.matrix_a", "own", 0)}), "held 0 times", "positive", error=TEError)
    refuse(lambda: declare(c, body=code, leading={"x": 16}), "leading=", "'x'", error=TEError)
    v = te.compute((8,), lambda i: te.placeholder((8,), name="a")[i] + 1.0, name="c")
    refuse(lambda: declare(v, body=code, leading={"a": 16}), "leading=", "2 dimensions", error=TEError)


# ------------------------------------------------------------------------------------------------------------------------ nvcc


@pytest.mark.parametrize(("kind", "arch"), [("f16", "sm_75"), ("s8", "sm_75"), ("bf16", "sm_80"), ("tf32", "sm_80"), ("f16_f16", "sm_90"), ("u8", "sm_120")])
@pytest.mark.usefixtures("cuda_compiler")
def test_nvcc_keeps_fragments_in_registers(kind, arch):
    """And knows which memory a pointer is to: no branch is left over from asking."""
    product = Product(kind, KINDS[kind].shapes[-1], shared=("a",), b="bt" if kind != "tf32" else "b", tiles=(2, 2), warps=2)
    s, args, _ = product.made()
    module = tw.build(s, args, target=tw.Target("cuda", arch=arch))
    (resources,) = module.resources.values()
    assert (resources.stack_bytes, resources.spill_bytes) == (0, 0)
    ptx, name = module.get_source("ptx"), product.shape.ptx
    element = kind.split("_")[0]
    assert re.search(rf"wmma\.load\.a\.sync\.aligned\.row\.{name}\.shared\.{element}", ptx)
    assert re.search(rf"wmma\.load\.b\.sync\.aligned\.(row|col)\.{name}\.global\.{element}", ptx)
    assert re.search(rf"wmma\.mma\.sync\.aligned\.row\.(row|col)\.{name}\.", ptx)
    assert re.search(rf"wmma\.store\.d\.sync\.aligned\.row\.{name}\.global\.", ptx)
    assert not re.search(r"\.local|isspacep", ptx)


@pytest.mark.parametrize("seed", range(6))
def test_random_products(seed):
    """Both sets of intrinsics, with random tiles, warps, panels and buffers."""
    product = random_product(random.Random(seed))
    print(seed, product)
    try:
        check(product, seed=seed)
    except ScheduleError as error:  # 8 columns of 16 bytes
        assert product.shape is not None and 8 in (product.shape.m, product.shape.n), error
        assert "leading" in str(error) or "expected a matrix in memory" in str(error)


def test_the_table_has_what_the_docs_say():
    names = [name for name in te.intrin._READY if name.startswith("wmma")]
    assert len(names) == len(set(names))
    for name in names:
        assert te.tensor_intrin(name).name == name
    assert set(wmma.OPERANDS) == {"a", "at", "b", "bt"}
