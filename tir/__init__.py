"""The loop language: expressions, statements, what is known about them, and the passes that rewrite them.

Read in this order: errors, dtype, node, intrin, expr, printer, stmt, visit; affine, bounds, rules, simplify; verify, interp; passes/.
"""

from .expr import Buffer, Const, Expr, Load, Var, const
from .expr import maximum as max
from .expr import minimum as min
from .stmt import Allocate, Bind, For, Func, If, Seq, Stmt, Store

__all__ = ["Allocate", "Bind", "Buffer", "Const", "Expr", "For", "Func", "If", "Load", "Seq", "Stmt", "Store", "Var", "const", "max", "min"]
