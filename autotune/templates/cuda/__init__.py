"""Schedules for GPUs, one family a file. `general` serves every computation that no other file does.

Sizes follow from what a multiprocessor has, not from measurements: enough threads to hide latencies, accesses of neighbouring threads side by side (they
are one transaction), what a block reads more than once in shared memory. (NVIDIA, "CUDA C++ Best Practices Guide".)
"""

from .attention import attention, flash_attention
from .conv1d import conv1d
from .conv2d import conv2d
from .depthwise import depthwise
from .general import general
from .matmul import matmul
from .products import products
from .rows import rows
from .transpose import transpose

__all__ = ["attention", "conv1d", "conv2d", "depthwise", "flash_attention", "general", "matmul", "products", "rows", "transpose"]
