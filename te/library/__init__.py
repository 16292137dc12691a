"""Ready-made operators: declarations, each with a NumPy reference and a count of flops and bytes. They know nothing of schedules.

`OPERATORS` maps names to declaring functions. A new operator is a function with the decorator `@operator` in the file of its family, and
one name here.
"""

from .attention import attention, flash_attention
from .conv2d import conv1d, conv2d, depthwise_conv2d
from .conv2d_variants import conv2d_im2col, conv2d_transpose, conv2d_winograd
from .elementwise import gelu, relu, silu, transpose
from .matmul import batch_matmul, dense, gemv, matmul
from .norm import batch_norm, fold_batch_norm, layer_norm, rms_norm, softmax
from .operator import OPERATORS, Operator
from .pool import pool2d
from .quantized import int4_matmul, quantized_conv2d, quantized_matmul
from .reduction import argmax, sum

__all__ = [
    "OPERATORS", "Operator", "argmax", "attention", "batch_matmul", "batch_norm", "conv1d", "conv2d", "conv2d_im2col", "conv2d_transpose",
    "conv2d_winograd", "dense", "depthwise_conv2d", "flash_attention", "fold_batch_norm", "gelu", "gemv", "int4_matmul", "layer_norm", "matmul", "pool2d",
    "quantized_conv2d", "quantized_matmul", "relu", "rms_norm", "silu", "softmax", "sum", "transpose",
]  # fmt: skip
