"""Text of a program: lines with indentation, and identifiers that are safe and unique. Knows no language beyond what it is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_INDENT = "    "


class Writer:
    """Collects lines. `line` adds one at the current depth; `block` adds a head, what is written inside it one step deeper, and a tail."""

    def __init__(self, depth: int = 0) -> None:
        self._lines: list[str] = []
        self._depth = depth

    def line(self, text: str = "") -> None:
        """One line; an empty one gets no indentation."""
        self._lines.append(_INDENT * self._depth + text if text else "")

    def lines_of(self, other: Writer) -> None:
        """What another writer wrote, with its own indentation."""
        self._lines += other._lines

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head`, the lines written meanwhile, `tail`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    @contextmanager
    def continued(self, tail: str) -> Iterator[None]:
        """The second part of a block whose head the tail of the first was (`} else {`)."""
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    def text(self) -> str:
        """Everything written, ending in a newline."""
        return "\n".join(self._lines) + "\n"


class Identifiers:
    """Gives objects identifiers near to their names: only ASCII letters, digits and underscores, none reserved, no two alike.

    `is_reserved` says what the language, its library or the generator itself has taken.
    """

    def __init__(self, is_reserved: Callable[[str], bool]) -> None:
        self._is_reserved = is_reserved
        self._taken: set[str] = set()
        self._of: dict[object, str] = {}

    def of(self, thing: object) -> str:
        """The identifier of something that has been declared."""
        return self._of[thing]

    def knows(self, thing: object) -> bool:
        """Whether `thing` has been declared."""
        return thing in self._of

    def declare(self, thing: object, wanted: str) -> str:
        """A new identifier for `thing`, like `wanted`."""
        name = self._of[thing] = self.fresh(wanted)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Identifiers declared inside may be used again after it; inside, none hides one from outside."""
        outside = set(self._taken)
        yield
        self._taken = outside

    def fresh(self, wanted: str) -> str:
        """A new identifier like `wanted`, for nothing in particular."""
        base = plain_identifier(wanted)
        if self._is_reserved(base):
            base = f"v_{base}"
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def plain_identifier(wanted: str) -> str:
    """`wanted` with every character that an identifier cannot have replaced by an underscore, starting with a letter and not too long."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", wanted)[:60]
    return name if re.match(r"[A-Za-z]", name) else f"v{name}"
