"""The loop language: expressions, statements, what is known about them, and the passes that rewrite them.

Read in this order: errors, config, optional, gpu, target; dtype, node, intrin, printer, expr, stmt, visit (the language); affine, bounds, digits,
proofs, rules, matching, knowledge, simplify, interval (what is known about values); interp_support, interp_expressions, interp (what a function means);
kernel (what a GPU runs of one); liveness, witness, conflicts, barrier_plan, verify (what may be claimed about one); passes/.
"""

from typing import Any

from .expr import Buffer, Const, Expr, Load, Var, const, maximum, minimum, operate
from .interval import interval
from .simplify import Analyzer
from .stmt import Allocate, Bind, For, Func, If, Seq, Stmt, Store


def max(a: Any, b: Any) -> Expr:
    """The larger of two expressions or numbers; NaN if either is."""
    return operate(maximum, a, b)


def min(a: Any, b: Any) -> Expr:
    """The smaller of two expressions or numbers; NaN if either is."""
    return operate(minimum, a, b)


__all__ = [
    "Allocate", "Analyzer", "Bind", "Buffer", "Const", "Expr", "For", "Func", "If", "Load", "Seq", "Stmt", "Store", "Var", "const",
    "interval", "max", "min",
]  # fmt: skip
