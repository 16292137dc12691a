"""Modules from files: what `Module.export_library` wrote, of every kind of target."""

from __future__ import annotations

import os
from pathlib import Path

from ..tir.errors import TargetError
from .cuda_files import CUBIN, DESCRIPTION, exported_build, is_cubin, is_description, read_description
from .cuda_module import CudaModule
from .module import Module, load_library


def load_module(path: str | os.PathLike[str]) -> Module:
    """The module in a file that `Module.export_library` wrote, in this process or another; needs no compiler.

    A library of C is one file. Of CUDA it is the cubin or its description, with the other beside it. A file that is missing, was not built by Tilewright,
    or needs instructions that this machine does not have is a TargetError.
    """
    try:
        path = os.path.abspath(os.fsdecode(path))
        content, cubin = Path(path).read_bytes(), Path(path)
        if is_cubin(content):
            path = str(Path(path).with_suffix(DESCRIPTION))
            content = Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as error:  # ValueError: a null character in the name
        raise TargetError(f"{path!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not is_description(content):
        return load_library(path, content)
    found = read_description(content.decode(errors="replace"), path)
    if str(cubin) == path:
        cubin = cubin.with_suffix(CUBIN)
    return CudaModule(found.generated, found.target, constants=found.constants, build=exported_build(cubin, found))
