"""How the default schedules for GPUs use memory at sizes that divide: whole lines of global memory, different banks of shared memory."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.autotune import default_schedule
from tilewright.autotune.task import declare_operator

EMULATOR = tw.Target("cuda", arch="sm_90", device="emulator", threads=2)

HALVES = {"dtype": "float16", "acc_dtype": "float32"}
INT8 = {"dtype": "int8", "acc_dtype": "int32"}

# operator, sizes, options, the most lanes that wait for one bank, the most that is moved for what is used
TRAFFIC = [
    ("matmul", (128, 128, 64), {}, 2, 1.0),
    ("matmul", (256, 256, 256), {}, 2, 1.0),
    ("dense", (128, 128, 64), {}, 2, 1.0),
    ("batch_matmul", (2, 128, 128, 64), {}, 2, 1.0),
    ("matmul", (64, 256, 256), {"dtype": "float16"}, 2, 1.0),
    ("matmul", (128, 128, 64), HALVES, 2, 1.0),
    ("matmul", (256, 256, 128), INT8, 2, 1.0),
    ("dense", (256, 256, 128), INT8, 2, 1.0),
    ("int4_matmul", (64, 256, 128), {}, 2, 1.0),
    ("transpose", (1024, 1024), {}, 1, 1.0),
    ("softmax", (64, 1024), {}, 1, 1.0),
    ("layer_norm", (64, 1024), {"affine": True}, 1, 1.0),
    ("rms_norm", (64, 1024), {}, 1, 1.0),
    ("sum", (64, 4096), {}, 1, 1.0),
    ("argmax", (64, 1024), {}, 1, 1.0),
    ("gemv", (64, 1024), {}, 1, 1.0),
    ("gelu", (64, 1024), {}, 1, 1.0),
    ("flash_attention", (1, 2, 64, 128, 64), {}, 1, 1.0),
    ("flash_attention", (1, 2, 64, 128, 64), {"dtype": "float16"}, 1, 1.0),
    ("attention", (1, 2, 64, 128, 64), {"causal": True}, 2, 1.0),
    ("batch_norm", (2, 16, 24, 24), {}, 1, 1.0),
    ("conv2d", (1, 16, 8, 16, 64, 3, 3), {"padding": 1, "layout": "NHWC"}, 2, 1.0),
    ("conv2d", (1, 16, 32, 32, 64, 1, 1), {}, 1, 1.0),
    ("conv2d", (8, 16, 32, 32, 64, 3, 3), {"padding": 1}, 2, 2.0),  # rows of the patch have two elements in sectors that are otherwise of no use
    ("conv2d", (1, 16, 16, 16, 64, 3, 3), {"padding": 1, "layout": "NHWC", **HALVES}, 2, 1.0),
    ("conv2d", (1, 64, 16, 16, 64, 1, 1), {"layout": "NHWC", **INT8}, 2, 1.0),
    ("conv2d", (1, 64, 16, 16, 64, 1, 1), HALVES, 2, 1.0),
    ("conv2d", (8, 16, 32, 32, 64, 3, 3), {"padding": 1, **HALVES}, 2, 2.0),  # lines of 64 bytes that begin between sectors
    ("depthwise_conv2d", (8, 16, 64, 64, 3, 3), {"padding": 1}, 2, 1.8),
]


@pytest.mark.parametrize(("name", "sizes", "options", "bank_conflict", "sectors"), TRAFFIC, ids=[f"{case[0]}{n}" for n, case in enumerate(TRAFFIC)])
def test_lines_and_banks(name: str, sizes: tuple, options: dict, bank_conflict: int, sectors: float) -> None:
    operator = declare_operator(name, sizes, options)
    module = tw.build(default_schedule(operator, EMULATOR), operator.args, target=EMULATOR, check="memory")
    rng = np.random.default_rng(1)
    module(*[rng.random([int(n) for n in tensor.shape]).astype(str(tensor.dtype)) for tensor in operator.args])
    report = module.report
    assert report.transactions and report.max_bank_conflict <= bank_conflict, report
    worst = max(report.transactions, key=lambda access: access.sectors / access.ideal)
    assert worst.sectors <= (sectors + 0.01) * worst.ideal, worst
