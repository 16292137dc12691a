"""Every operator's default schedule for a GPU, and a random candidate of its space, run on the emulator: right at sizes that divide by nothing, and clean."""

import random
import re

import numpy as np
import pytest
from operator_cases import CASES

import tilewright as tw
from tilewright import autotune, te
from tilewright.autotune.verify import make_check
from tilewright.compiler import generate

EMULATOR = tw.Target("cuda", arch="sm_90", device="emulator", threads=2)
FAULTS = ("races", "out_of_bounds", "uninitialised", "divergence")


HALVES = {"dtype": "float16", "acc_dtype": "float32"}
INT8 = {"dtype": "int8", "acc_dtype": "int32"}
ALIGNED: list[tuple[str, tuple, dict]] = [  # sizes of whole vectors and tiles, which other code serves
    ("matmul", (64, 64, 32), {}),
    ("gemv", (5, 2048), {}),
    ("sum", (5, 2048), {"dtype": "float16", "acc_dtype": "float32"}),
    ("argmax", (3, 2048), {}),
    ("layer_norm", (3, 1024), {"affine": True}),
    ("softmax", (3, 1024), {}),
    ("conv1d", (2, 16, 64, 32, 3), {"padding": 1}),
    ("conv2d", (1, 16, 16, 16, 32, 3, 3), {"padding": 1}),
    ("conv2d", (1, 16, 8, 16, 64, 3, 3), {"padding": 1, "layout": "NHWC"}),
    ("conv2d", (1, 32, 8, 8, 32, 1, 1), {}),
    ("conv2d_im2col", (1, 16, 8, 8, 32, 3, 3), {"padding": 1}),
    ("attention", (1, 2, 32, 64, 32), {"causal": True}),
    ("flash_attention", (1, 2, 64, 128, 32), {"dtype": "float16"}),
    ("flash_attention", (1, 1, 33, 200, 40), {"dtype": "bfloat16", "key_block": 50}),
    ("conv2d", (1, 16, 12, 12, 32, 3, 3), {"padding": 1, **HALVES}),
    ("conv2d", (2, 16, 8, 12, 32, 3, 3), {"padding": 1, "layout": "NHWC", **HALVES}),
    ("conv2d", (1, 32, 8, 8, 32, 1, 1), {"layout": "NHWC", **INT8}),
    ("conv2d", (1, 32, 8, 8, 32, 1, 1), {**HALVES}),
]
RAGGED: list[tuple[str, tuple, dict]] = [  # convolutions that tensor cores take, of sizes that divide by nothing
    ("conv2d", (2, 5, 11, 9, 33, 3, 3), {"padding": 1, "stride": 2, **HALVES}),
    ("conv2d", (2, 7, 9, 9, 17, 3, 2), {"dilation": 2, **INT8}),
    ("conv2d", (2, 5, 11, 9, 33, 3, 3), {"padding": 1, "stride": 2, "layout": "NHWC", "dtype": "bfloat16", "acc_dtype": "float32"}),
    ("conv2d", (2, 7, 9, 9, 17, 3, 2), {"dilation": 2, "layout": "NHWC", **INT8}),
    ("conv2d_im2col", (2, 5, 9, 7, 19, 3, 3), {"padding": 1, **HALVES}),
    ("conv2d_im2col", (1, 32, 8, 8, 32, 1, 1), INT8),
    ("conv2d_transpose", (1, 6, 5, 7, 19, 3, 3), {"stride": 2, "padding": 1, **HALVES}),
    ("conv2d", (1, 16, 9, 10, 32, 3, 1), {"groups": 2, "padding": (1, 0), **HALVES}),  # no tensor cores: groups
]
CHECKED = [*CASES, *ALIGNED, *RAGGED]


def run_checked(candidate, check) -> None:
    module = tw.build(candidate.schedule, candidate.tensors, target=EMULATOR, check="race")
    arguments = check.arguments()
    module(*arguments)
    assert check.mismatch(arguments) is None, check.mismatch(arguments)
    found = {fault: getattr(module.report, fault) for fault in FAULTS}
    assert not any(found.values()), found


@pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt")  # a reference given a negative variance, before positive inputs
@pytest.mark.parametrize(("name", "sizes", "options"), CHECKED, ids=[f"{case[0]}{number}" for number, case in enumerate(CHECKED)])
def test_default_and_random_candidates_are_right_and_clean(name: str, sizes: tuple, options: dict) -> None:
    task = autotune.Task(name, sizes, target=EMULATOR, **options)
    check = make_check(task.tensors, task.reference, seed=1)
    run_checked(task.instantiate({}), check)
    decisions = task.space.sample(random.Random(f"{name}{sizes}{options}"))
    if decisions != task.space.default():
        try:
            run_checked(task.instantiate(decisions), check)
        except tw.TargetError as error:  # more shared memory than a block can have
            assert "shared" in str(error), error


@pytest.mark.parametrize(("name", "sizes", "options"), [case for case in [*ALIGNED, *RAGGED] if "conv2d" in case[0] and "acc_dtype" in case[2]], ids=str)
def test_convolutions_of_one_group_take_tensor_cores(name: str, sizes: tuple, options: dict) -> None:
    task = autotune.Task(name, sizes, target=EMULATOR, **options)
    candidate = task.instantiate({})
    source = generate(candidate.schedule, candidate.tensors, EMULATOR, name="kernel").source
    assert ("tw_mma_" in source) == ("groups" not in options)


@pytest.mark.parametrize("name", ["matmul", "dense"])
def test_products_of_odd_sizes_have_no_guard_around_a_multiply_add(name: str) -> None:
    """Blocks at the edges put zeros into shared memory, and leave out results; the loops over terms are those of whole tiles."""
    task = autotune.Task(name, (1001, 1001, 1001), target=EMULATOR)
    candidate = task.instantiate({})
    source = tw.build(candidate.schedule, candidate.tensors, target=EMULATOR).get_source()
    loops = re.findall(r"^( *)for \(int k_inner .*\n((?:\1 .*\n)*)", source, re.MULTILINE)
    assert len(loops) >= 2, "one for whole tiles, one for those at the edges"
    for _, body in loops:
        assert "_pad_local[i] * " in body
        assert "if (" not in body and " ? " not in body, body


LARGE: list[tuple[str, tuple, dict]] = [
    ("matmul", (1024, 1024, 1024), {"dtype": "float64"}),
    ("conv1d", (8, 64, 1024, 64, 9), {"padding": 1}),
    ("conv2d", (1, 3, 224, 224, 64, 7, 7), {"stride": 2, "padding": 3}),
    ("conv2d", (1, 64, 56, 56, 64, 5, 5), {"layout": "NHWC"}),
    ("depthwise_conv2d", (1, 128, 56, 56, 9, 9), {"stride": 2}),
    ("attention", (1, 8, 512, 512, 64), {}),
    ("flash_attention", (1, 8, 1024, 1024, 64), {}),
]


MANY: list[tuple[str, tuple, dict]] = [  # more blocks than the grid has along y and z
    ("batch_matmul", (70000, 2, 3, 4), {}),
    ("conv1d", (70000, 2, 5, 2, 3), {}),
    ("conv2d", (70000, 1, 3, 3, 2, 3, 3), {}),
    ("depthwise_conv2d", (70, 1000, 3, 3, 3, 3), {}),
    ("attention", (70, 1000, 2, 2, 4), {}),
]


@pytest.mark.parametrize(("name", "sizes", "options"), MANY, ids=[f"{case[0]}{number}" for number, case in enumerate(MANY)])
def test_more_blocks_than_the_grid_has_along_y(name: str, sizes: tuple, options: dict) -> None:
    task = autotune.Task(name, sizes, target=EMULATOR, **options)
    check = make_check(task.tensors, task.reference, seed=1)
    candidate, arguments = task.instantiate({}), check.arguments()
    tw.build(candidate.schedule, candidate.tensors, target=EMULATOR)(*arguments)
    assert check.mismatch(arguments) is None, check.mismatch(arguments)


@pytest.mark.parametrize(("name", "sizes", "options"), LARGE, ids=[f"{case[0]}{number}" for number, case in enumerate(LARGE)])
def test_candidates_keep_within_what_a_block_can_have(name: str, sizes: tuple, options: dict) -> None:
    target = tw.Target("cuda", arch="sm_75")  # which has least shared memory
    task = autotune.Task(name, sizes, target=target, **options)
    for seed in range(5):
        candidate = task.instantiate(task.space.sample(random.Random(seed)))
        generate(candidate.schedule, candidate.tensors, target, name="kernel")  # raises TargetError beyond a limit


@pytest.mark.parametrize(
    ("name", "sizes", "arch"),
    [
        ("flash_attention", (1, 2, 9, 70, 128), "sm_75"),  # a block of keys and one of values would be more than a block of threads can have
        ("flash_attention", (1, 1, 70, 100, 256), "sm_90"),  # fewer rows of queries fit than without the room between rows
        ("attention", (1, 2, 2, 8200, 8), "sm_75"),  # not even the scores of one row
    ],
)
def test_attention_that_shared_memory_does_not_hold(name, sizes, arch):
    op, target = getattr(te.library, name)(*sizes), tw.Target("cuda", arch=arch, device="emulator")
    module = tw.build(autotune.default_schedule(op, target), op.args, target)
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(t.shape).astype("float32") for t in op.args[:-1]]
    out = np.full(op.output.shape, np.nan, "float32")
    module(*arrays, out)
    np.testing.assert_allclose(out, op.reference(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arch", ["sm_75", "sm_86"])
@pytest.mark.parametrize(("sizes", "options"), [((1000, 1000, 1000), HALVES), ((4097, 4095, 63), INT8)])
def test_tensor_cores_of_a_gpu_with_little_shared_memory(sizes: tuple, options: dict, arch: str) -> None:
    """Sums that leave through shared memory need room beside the panels: a default that the template itself refuses is none."""
    op, target = te.library.matmul(*sizes, **options), tw.Target("cuda", arch=arch)
    assert "tw_mma" in generate(autotune.default_schedule(op, target), op.args, target).source
