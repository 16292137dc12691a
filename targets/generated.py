"""What a generator hands to the runtime: source text and the description of the function in it. Data only.

The calling convention of the C target: for a function NAME the source defines

    int32_t NAME(type *restrict A, const type *restrict B, ..., int64_t n, ...);

with the arrays in argument order, then the symbolic sizes. It returns 0, or another number when memory for intermediates could not be had.
Constant operands, whose memory the module owns, come before the arrays; such a function has a symbol of its own, `Signature.symbol`, since an exported
library, which carries its constants, has NAME as above (embed.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from ..tir.errors import TargetError
from ..tir.target import Target, instruction_sets

# The symbol under which the runtime puts the description into every library, so that it can be loaded from the file alone.
SIGNATURE_SYMBOL = "tilewright_signature"
ABI_VERSION = 1
_WITH_CONSTANTS = "_with_constants"


@dataclass(frozen=True)
class ArgumentSpec:
    """One array argument: an extent is a number, the name of a symbolic size, or an expression of sizes such as "n + 1"."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    is_output: bool

    def __str__(self) -> str:
        return f"{self.name}: {'out ' if self.is_output else ''}{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class SizeRequirement:
    """What must hold of the sizes of a call: unless one of `extents` is 0 or less, `needed` is at least 0, else `problem` says what is wrong. Texts of
    expressions of sizes, as in shapes."""

    extents: tuple[str, ...]
    needed: str
    problem: str


@dataclass(frozen=True)
class Signature:
    """How a function is called: its symbol, its arguments in order, the names of the sizes that are passed after them, the bytes of intermediate
    storage of a call and one thread (buffers of symbolic extents are not counted), the number of constants that the module passes before the arguments,
    the libraries it is linked with, and what must hold of the sizes. Iterating and indexing give the arguments; as text it reads like a declaration."""

    name: str
    arguments: tuple[ArgumentSpec, ...]
    sizes: tuple[str, ...] = ()
    workspace_bytes: int = 0
    uses_openmp: bool = False
    constants: int = 0
    libraries: tuple[str, ...] = ()
    requirements: tuple[SizeRequirement, ...] = ()

    @property
    def symbol(self) -> str:
        """What the compiled function is called."""
        return f"{self.name}{_WITH_CONSTANTS}" if self.constants else self.name

    def __len__(self) -> int:
        return len(self.arguments)

    def __iter__(self) -> Iterator[ArgumentSpec]:
        return iter(self.arguments)

    def __getitem__(self, index: int) -> ArgumentSpec:
        return self.arguments[index]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    def to_json(self, target: Target) -> str:
        """The text that a library carries; `target` is what it was built for. It says which instruction sets the code may use."""
        needs = sorted(instruction_sets(target.march))
        return json.dumps({"abi": ABI_VERSION, "needs": needs, "target": target.options, **asdict(self)}, separators=(",", ":"))


def signature_from_json(text: str, origin: str) -> tuple[Signature, Target, list[str]]:
    """What `Signature.to_json` wrote: signature, target, instruction sets. A TargetError that names `origin` where it is of another version
    or not ours."""
    try:
        data = json.loads(text)
        version = data.pop("abi")
        if version != ABI_VERSION:
            raise TargetError(f"{origin} was built by a Tilewright whose calls are of version {version}, ours are {ABI_VERSION}: build it again")
        needs = [str(name) for name in data.pop("needs")]
        target = Target.from_json(json.dumps(data.pop("target")))
        arguments = tuple(ArgumentSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in data["arguments"])
        required = tuple(SizeRequirement(**{**each, "extents": tuple(each["extents"])}) for each in data.get("requirements", ()))
        listed = {"sizes": tuple(data["sizes"]), "libraries": tuple(data.get("libraries", ())), "requirements": required}
        signature = Signature(**{**data, "arguments": arguments, **listed})
        return signature, target, needs
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TargetError(f"{origin}: its signature cannot be read ({error!r}): not built by Tilewright, or damaged") from None


@dataclass(frozen=True)
class Generated:
    """A generated function: the fields of `Signature`, the source that defines it, and which arguments its constants are."""

    name: str
    source: str
    arguments: tuple[ArgumentSpec, ...]
    sizes: tuple[str, ...] = ()
    workspace_bytes: int = 0
    uses_openmp: bool = False
    constants: tuple[ArgumentSpec, ...] = ()
    libraries: tuple[str, ...] = ()
    requirements: tuple[SizeRequirement, ...] = ()

    @property
    def signature(self) -> Signature:
        described = (self.name, self.arguments, self.sizes, self.workspace_bytes, self.uses_openmp, len(self.constants), self.libraries)
        return Signature(*described, self.requirements)

    def with_constants(self, count: int) -> Generated:
        """The same, of which the first `count` arguments are constants; generated under the name that `symbol_with_constants` gives."""
        assert self.name.endswith(_WITH_CONSTANTS), self.name
        return replace(self, name=self.name.removesuffix(_WITH_CONSTANTS), arguments=self.arguments[count:], constants=self.arguments[:count])

    def source_with_signature(self, target: Target) -> str:
        """The source followed by the definition of `SIGNATURE_SYMBOL`, which describes the function to `load_module`."""
        # ASCII, as json.dumps writes it; outside JSON's own signs only letters, so that no text a user chose stands in a source as code would
        text = re.sub(r'[^\w ,:{}\[\]"\\.+-]', lambda sign: f"\\u{ord(sign[0]):04x}", self.signature.to_json(target))
        pieces = "\n".join("    " + _c_string(text[start : start + 100]) for start in range(0, len(text), 100))
        return f"{self.source.rstrip()}\n\n/* Read by tilewright.load_module. */\nconst char {SIGNATURE_SYMBOL}[] =\n{pieces};\n"


def symbol_with_constants(name: str) -> str:
    """The name under which a function is generated that takes constants before its arguments."""
    return name + _WITH_CONSTANTS


def _c_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?")
    return f'"{escaped}"'
