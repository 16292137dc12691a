"""What fake_driver.cpp asks of Python: the kernels of an image that is loaded, compiled by the emulator from the source that lies beside it in the cache.

Imported by the fake driver in the process that loads a module, whichever it is. A cubin or PTX that no entry of the cache has is an invalid image.
"""

from __future__ import annotations

import ctypes
import sys
import traceback
from pathlib import Path
from typing import Any

from tilewright.targets import cache
from tilewright.targets.cuda_toolchain import CUBIN_NAME, LOG_NAME, PTX_NAME, SOURCE_NAME, parse_usage
from tilewright.targets.emulator import Program
from tilewright.targets.emulator.symbols import is_own


class KernelInfo(ctypes.Structure):
    """fake_driver.cpp: KernelInfo."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("parameter_count", "registers", "static_shared", "unused")),
        *((name, ctypes.POINTER(ctypes.c_uint32)) for name in ("sizes", "pointers")),
    ]


class GlobalInfo(ctypes.Structure):
    """fake_driver.cpp: GlobalInfo."""

    _fields_ = [("name", ctypes.c_char_p), ("address", ctypes.c_uint64), ("size", ctypes.c_uint64)]


class ImageInfo(ctypes.Structure):
    """fake_driver.cpp: ImageInfo."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("kernel_count", "global_count")),
        ("kernels", ctypes.POINTER(KernelInfo)),
        ("globals", ctypes.POINTER(GlobalInfo)),
        *((name, ctypes.c_void_p) for name in ("start", "wait", "finish")),
    ]


_kept: list[Any] = []  # the driver holds addresses of these until the process ends


def source_folder(image: bytes) -> Path | None:
    """The entry of the cache that was compiled to this image; the driver does not know how long a cubin is that has more behind its tables."""
    for entry in cache.cache_directory().iterdir():
        for name in (CUBIN_NAME, PTX_NAME):
            path = entry / name
            if path.exists() and path.read_bytes()[: len(image)] == image:
                return entry
    return None


def numbers(values: list[int]) -> Any:
    return (ctypes.c_uint32 * max(1, len(values)))(*values)


def describe(folder: Path) -> ImageInfo:
    """The kernels and variables of a source as the driver wants them."""
    usage = parse_usage((folder / LOG_NAME).read_text())
    program = Program((folder / SOURCE_NAME).read_text(), list(usage))
    kernels = (KernelInfo * max(1, len(usage)))()
    for info, (name, used) in zip(kernels, usage.items(), strict=False):
        parameters = program.parameters(name)
        info.name, info.entry = name.encode(), program._entries[name]
        info.parameter_count, info.registers, info.static_shared = len(parameters), used.registers, used.shared_bytes
        info.sizes = numbers([8 if parameter.pointer else parameter.size for parameter in parameters])
        info.pointers = numbers([int(parameter.pointer) for parameter in parameters])
    base = program._library.address("emulator_count_0") - program._symbols.variable("emulator_count_0").address
    variables = [variable for variable in program._symbols.variables if not variable.thread_local and not is_own(variable)]
    found = (GlobalInfo * max(1, len(variables)))(*(GlobalInfo(v.name.encode(), base + v.address, v.size) for v in variables))
    runtime = program._kernels.runtime.library
    functions = [runtime.address(f"emulator_{name}") for name in ("start", "wait", "finish")]
    _kept.extend([program, kernels, found])
    return ImageInfo(len(usage), len(variables), kernels, found, *functions)


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
def load(address: int, size: int) -> int:
    """The address of an ImageInfo, 0 where the image is not known."""
    try:
        folder = source_folder(ctypes.string_at(address, size))
        if folder is None:
            return 0
        _kept.append(describe(folder))
        return ctypes.addressof(_kept[-1])
    except Exception:
        traceback.print_exc(file=sys.stderr)
        return 0


def install() -> None:
    """Tell the fake driver of this process."""
    _kept.append(load)
    ctypes.CDLL("libcuda.so.1").fake_cuda_set_loader(load)
