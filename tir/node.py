"""Interning: structurally equal expressions are one object, so equality and hash are identity, and a memo table is a dict keyed by node.

A node is remembered in a dictionary of the variable or buffer that its first operand leads to which is not made of constants only (of a constant,
where there is no other), so nothing global holds it: when the variables of a schedule die, all that was built on them dies. (A dictionary for
each node would take more memory than the nodes.) Constants are in a weak table. Insertion is `setdefault`, so two threads that build the same
node get the same object.
"""

from __future__ import annotations

import struct
from typing import Any
from weakref import WeakValueDictionary


class Counters:
    """How much work expressions took in this process; instruments and tests read it, nothing depends on it."""

    __slots__ = ("nodes_built", "rules_hit", "rules_tried")

    def __init__(self) -> None:
        self.nodes_built = self.rules_tried = self.rules_hit = 0

    def snapshot(self) -> dict[str, int]:
        """The counts now, by name."""
        return {"nodes_built": self.nodes_built, "rules_tried": self.rules_tried, "rules_hit": self.rules_hit}


COUNTERS = Counters()

CONSTANTS: WeakValueDictionary[Any, Any] = WeakValueDictionary()  # but for the small integers, which every program uses: see DType.constants


def float_bits(value: float) -> bytes:
    """The bit pattern by which a float constant is keyed: -0.0 and 0.0 differ, equal NaNs are equal."""
    return struct.pack("<d", value)
