"""A CUDA function as files: its description in JSON (source, arguments, launches, and the values of constant operands in global memory), and beside it, where
it was exported, the cubin and the PTX."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from ..tir.errors import TargetError
from ..tir.expr import Buffer
from ..tir.target import Target
from .arrays import item_bytes
from .constants import ConstantMemory
from .cuda_launch import GeneratedCuda, KernelLaunch, Parameter
from .cuda_toolchain import CudaBuild, KernelUsage
from .generated import ArgumentSpec, SizeRequirement

_MARK = "tilewright_cuda"  # the first key of the file; its value is the version of what follows
_VERSION = 1
DESCRIPTION, CUBIN, PTX = ".json", ".cubin", ".ptx"


def is_description(content: bytes) -> bool:
    """Whether the content of a file is a description of a CUDA function."""
    return content.lstrip().startswith(b"{") and f'"{_MARK}"'.encode() in content[:64]


def is_cubin(content: bytes) -> bool:
    """Whether it is machine code of a GPU: an ELF file for the machine EM_CUDA."""
    return content[:4] == b"\x7fELF" and content[18:20] == b"\xbe\x00"


def description_of(generated: GeneratedCuda, target: Target, constants: Sequence[ConstantMemory] = (), build: CudaBuild | None = None) -> str:
    """What `read_description` reads back."""
    usage = {} if build is None else {name: asdict(each) for name, each in build.usage.items()}
    files = {} if build is None else {ending: _hash(path.read_bytes()) for ending, path in ((CUBIN, build.cubin_path), (PTX, build.ptx_path))}
    contents = [memory.content for memory in constants]
    values = [{"sha256": _hash(each), "base64": base64.b64encode(each).decode()} for each in contents]
    data = {"target": target.options, **asdict(generated), "usage": usage, "files": files}
    return json.dumps({_MARK: _VERSION, "sha256": _hash_of(data), **data, "values": values}, indent=1) + "\n"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hash_of(data: dict[str, Any]) -> str:
    """Of what a description says, without the values of constants, which have their own: numbers that were changed would launch kernels on other memory."""
    return _hash(json.dumps(data, sort_keys=True).encode())


@dataclass(frozen=True)
class Description:
    """What is in the file. `constants`: the values of those of `generated`; `usage`: what its kernels take, if that was known; `files`: SHA-256 of the
    cubin and the PTX, by ending, where they were written with it."""

    generated: GeneratedCuda
    target: Target
    constants: list[ConstantMemory]
    usage: dict[str, KernelUsage]
    files: dict[str, str]


def read_description(text: str, origin: str) -> Description:
    """A TargetError names `origin` where it is of another version or damaged."""
    try:
        data = json.loads(text)
        version = data.pop(_MARK)
        if version != _VERSION:
            raise TargetError(f"{origin} was written by a Tilewright whose files are of version {version}, ours are {_VERSION}: build it again")
        written, values = data.pop("sha256"), data.pop("values")
        if _hash_of(data) != written:
            raise TargetError(f"{origin}: its contents are not those that were written: the file is damaged, or was changed; build it again")
        target, files = Target.from_json(json.dumps(data.pop("target"))), data.pop("files")
        usage = {name: KernelUsage(**each) for name, each in data.pop("usage").items()}
        fields: dict[str, Any] = {
            key: tuple(ArgumentSpec(**{**each, "shape": tuple(each["shape"])}) for each in data.pop(key)) for key in ("arguments", "constants")
        }
        launches = tuple(
            KernelLaunch(
                each["name"], tuple(each["grid"]), tuple(each["block"]), tuple(Parameter(**p) for p in each["parameters"]), each["dynamic_shared_bytes"]
            )
            for each in data.pop("launches")
        )
        requirements = tuple(SizeRequirement(**{**each, "extents": tuple(each["extents"])}) for each in data.pop("requirements"))
        fields.update({key: tuple(data.pop(key)) for key in ("sizes", "libraries", "alignments")})
        constants = [_constant(*each, origin) for each in zip(fields["constants"], values, strict=True)]
        return Description(GeneratedCuda(**data, **fields, launches=launches, requirements=requirements), target, constants, usage, files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TargetError(f"{origin}: it cannot be read as a CUDA function ({error!r}): not written by Tilewright, or damaged") from None


def _constant(spec: ArgumentSpec, value: dict[str, str], origin: str) -> ConstantMemory:
    """The memory of a constant with its values, which must be the bytes that were written."""
    shape = [int(extent) for extent in spec.shape]
    content = base64.b64decode(value["base64"], validate=True)
    if len(content) != prod(shape) * item_bytes(spec.dtype) or _hash(content) != value["sha256"]:
        raise TargetError(f"{origin}: the values of constant {spec.name!r} are not those that were written: the file is damaged")
    memory = ConstantMemory(Buffer(spec.name, shape, spec.dtype))
    memory.content = content
    return memory


def exported_build(cubin: Path, description: Description) -> CudaBuild | None:
    """The code beside a description, None where there is none. A TargetError where it is not what was written with it."""
    ptx = cubin.with_suffix(PTX)
    if not (cubin.exists() and ptx.exists()):
        return None
    for each, kind in ((cubin, CUBIN), (ptx, PTX)):
        if _hash(each.read_bytes()) != description.files.get(kind):
            raise TargetError(f"{each}: it is not the code that was written with its description: damaged, or of another function; export it again")
    return CudaBuild(cubin, ptx, cubin.with_suffix(DESCRIPTION), description.usage, 0.0, True)
