"""What nvcc makes of the default schedules at the sizes that benchmarks have: nothing in slow memory, and the matrix product's inner loop as designed."""

from __future__ import annotations

import re

import pytest

import tilewright as tw
from tilewright.autotune import default_schedule
from tilewright.autotune.task import declare_operator
from tilewright.targets.cuda_toolchain import find_cuda_compiler
from tilewright.tir.errors import TargetError

HALVES = {"dtype": "float16", "acc_dtype": "float32"}
INT8 = {"dtype": "int8", "acc_dtype": "int32"}
SIZES = [
    ("matmul", (2048, 2048, 2048), {}),
    ("conv2d", (1, 64, 56, 56, 64, 3, 3), {"padding": 1}),
    ("depthwise_conv2d", (1, 128, 56, 56, 3, 3), {"padding": 1}),
    ("softmax", (4096, 1024), {}),
    ("flash_attention", (1, 8, 1024, 1024, 64), {}),
]
MORE_SIZES = [
    ("matmul", (2048, 2048, 2048), HALVES),
    ("matmul", (2048, 2048, 2048), INT8),
    ("matmul", (1024, 1024, 1024), {"dtype": "float64"}),
    ("matmul", (1024, 1024, 1024), {"dtype": "float16"}),
    ("matmul", (1000, 1000, 1000), {}),
    ("dense", (1024, 1024, 1024), {}),
    ("dense", (1024, 1024, 1024), HALVES),
    ("batch_matmul", (16, 512, 512, 64), {}),
    ("gemv", (4096, 4096), {}),
    ("conv1d", (8, 64, 1024, 64, 3), {"padding": 1}),
    ("conv2d", (8, 256, 14, 14, 256, 3, 3), {"padding": 1}),
    ("conv2d", (1, 3, 224, 224, 64, 7, 7), {"stride": 2, "padding": 3}),
    ("conv2d", (1, 256, 28, 28, 512, 1, 1), {}),
    ("conv2d", (1, 64, 56, 56, 64, 3, 3), {"padding": 1, "groups": 4}),
    ("conv2d", (1, 64, 56, 56, 64, 3, 3), {"padding": 1, "layout": "NHWC"}),
    ("conv2d", (1, 64, 56, 56, 64, 3, 3), {"padding": 1, "layout": "NHWC", **HALVES}),
    ("conv2d", (8, 256, 14, 14, 256, 3, 3), {"padding": 1, "layout": "NHWC", **INT8}),
    ("conv2d", (8, 256, 14, 14, 256, 3, 3), {"padding": 1, **HALVES}),
    ("conv2d", (1, 3, 224, 224, 64, 7, 7), {"stride": 2, "padding": 3, **HALVES}),
    ("conv2d", (1, 256, 28, 28, 512, 1, 1), INT8),
    ("conv2d_im2col", (1, 64, 56, 56, 64, 3, 3), {"padding": 1}),
    ("conv2d_transpose", (1, 64, 28, 28, 32, 4, 4), {"stride": 2, "padding": 1}),
    ("conv2d_winograd", (1, 64, 56, 56, 64), {}),
    ("conv2d_winograd", (1, 64, 56, 56, 64), {"m": 4}),
    ("depthwise_conv2d", (1, 128, 56, 56, 5, 5), {"padding": 2, "stride": 2}),
    ("quantized_matmul", (1024, 1024, 1024), {}),
    ("quantized_conv2d", (1, 64, 56, 56, 64, 3, 3), {"padding": 1}),
    ("int4_matmul", (512, 1024, 1024), {}),
    ("pool2d", (1, 64, 112, 112, "max", 3), {"stride": 2, "padding": 1}),
    ("pool2d", (1, 64, 56, 56, "avg", 2), {}),
    ("softmax", (8192, 8192), {}),
    ("softmax", (4096, 1024), {"dtype": "float16"}),
    ("layer_norm", (4096, 1024), {"affine": True}),
    ("rms_norm", (4096, 4096), {}),
    ("batch_norm", (8, 64, 56, 56), {}),
    ("sum", (4096, 4096), {}),
    ("argmax", (4096, 4096), {}),
    ("transpose", (2048, 2048), {}),
    ("relu", (4096, 1024), {}),
    ("gelu", (4096, 1024), {}),
    ("silu", (4096, 1024), {}),
    ("attention", (1, 8, 512, 512, 64), {}),
    ("attention", (1, 8, 512, 512, 64), {"causal": True, "kv_heads": 2}),
    ("flash_attention", (1, 8, 1024, 1024, 64), {"causal": True}),
    ("flash_attention", (1, 8, 1024, 1024, 64), {"dtype": "float16"}),
    ("flash_attention", (1, 8, 1024, 1024, 128), {}),
]


@pytest.fixture(autouse=True)
def compiler() -> None:
    try:
        find_cuda_compiler()
    except TargetError as error:
        pytest.skip(str(error))


def built(name: str, sizes: tuple, options: dict, arch: str) -> tw.Module:
    target = tw.Target("cuda", arch=arch)
    operator = declare_operator(name, sizes, options)
    return tw.build(default_schedule(operator, target), operator.args, target=target)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("name", "sizes", "options"), [*SIZES, *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE_SIZES)], ids=lambda value: str(value).replace(" ", "")
)
def test_default_schedules_keep_everything_in_registers(name: str, sizes: tuple, options: dict, arch: str) -> None:
    for kernel, resources in built(name, sizes, options, arch).resources.items():
        assert resources.stack_bytes == resources.spill_bytes == 0, (kernel, resources)
        assert resources.occupancy > 0, (kernel, resources)


def test_matmul_reads_four_at_a_time_for_sixty_four_multiply_adds() -> None:
    """The innermost loop of the PTX is one step of the reduction (of one element from each panel)."""
    text = built("matmul", (2048, 2048, 2048), {}, "sm_80").get_source("ptx")
    bodies = [body for label, body in re.findall(r"^(\$L\w+):[^\n]*\n((?:(?!^\$L).*\n)*?)\s*@%p\d+ bra(?:\.uni)?\s+\1;", text, re.MULTILINE)]
    (step,) = [body for body in bodies if "fma.rn.f32" in body]
    assert step.count("fma.rn.f32") == 64
    assert step.count("ld.shared.v4.f32") == 5 and step.count("ld.shared") == 5, "16 elements of one panel and 4 of the other"
    assert text.count("bar.sync") == 1, "two buffers: one barrier for each step of panels"
