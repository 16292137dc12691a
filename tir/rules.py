"""The identities the simplifier rewrites with: data, one line each, one table for each operator at the root.

A rule is (pattern, result, condition), all in Python's own syntax, so that each can be read, and checked by running it. Sums are no
business of these tables (affine.py collects them), nor are comparisons and divisions of sums by constants (digits.py).

Names: x y z any integers; p q conditions; c1 c2 integer constants; f a float constant; `(p := x < c1)` names a part. In a condition, a
comparison of constants is computed, one of expressions must be proved. The rules of EXACT hold only where integers do not wrap. Operators
that commute are matched in both orders.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """`pattern` may be replaced by `result` where `condition` holds."""

    pattern: str
    result: str
    condition: str = "True"


EXACT: dict[str, tuple[Rule, ...]] = {
    "FloorDiv": (
        Rule("x // c1", "(0 - x) // -c1", "c1 < 0"),
        Rule("(x % c1) // c2", "x // c2 % (c1 // c2)", "c1 > 0 and c2 > 0 and c1 % c2 == 0"),  # a digit of a digit
        Rule("x // y", "0", "0 <= x and x < y"),
        Rule("x // y", "-1", "x < 0 and 0 <= x + y and 0 < y"),
        Rule("(x * y) // y", "x", "0 < y"),
    ),
    "FloorMod": (
        Rule("x % c1", "0 - (0 - x) % -c1", "c1 < 0"),
        Rule("(x % c1) % c2", "x % c2", "c1 > 0 and c2 > 0 and c1 % c2 == 0"),
        Rule("x % y", "x", "0 <= x and x < y"),
        Rule("(x * y) % y", "0", "0 < y"),
    ),
    "Min": (
        Rule("min(x, y)", "x", "x <= y"),
        Rule("min(min(x, y), z)", "min(x, z)", "z <= y"),
        Rule("min(min(x, y), z)", "min(x, y)", "y <= z"),
        Rule("min(max(x, y), z)", "z", "z <= y"),
        Rule("min(x * c1, y * c1)", "min(x, y) * c1", "c1 > 0"),
        Rule("min(x * c1, y * c1)", "max(x, y) * c1", "c1 < 0"),
        Rule("min(x * c1, c2)", "min(x, c2 // c1) * c1", "c1 > 0 and c2 % c1 == 0"),
        Rule("min(x // c1, y // c1)", "min(x, y) // c1", "c1 > 0"),
    ),
    "Max": (
        Rule("max(x, y)", "x", "y <= x"),
        Rule("max(max(x, y), z)", "max(x, z)", "y <= z"),
        Rule("max(max(x, y), z)", "max(x, y)", "z <= y"),
        Rule("max(min(x, y), z)", "z", "y <= z"),
        Rule("max(x * c1, y * c1)", "max(x, y) * c1", "c1 > 0"),
        Rule("max(x * c1, y * c1)", "min(x, y) * c1", "c1 < 0"),
        Rule("max(x * c1, c2)", "max(x, c2 // c1) * c1", "c1 > 0 and c2 % c1 == 0"),
        Rule("max(x // c1, y // c1)", "max(x, y) // c1", "c1 > 0"),
    ),
    "LT": (
        Rule("x // c1 < c2", "x < c1 * c2", "c1 > 0"),
        Rule("c2 < x // c1", "c1 * c2 + c1 - 1 < x", "c1 > 0"),
        Rule("min(x, y) < z", "x < z", "z <= y"),
        Rule("max(x, y) < z", "x < z", "y < z"),
        Rule("z < min(x, y)", "z < x", "z < y"),
        Rule("z < max(x, y)", "z < x", "y <= z"),
    ),
}

ANY: dict[str, tuple[Rule, ...]] = {
    "And": (
        Rule("p and not p", "False"),
        Rule("(p and q) and p", "p and q"),
        Rule("(p or q) and p", "p"),
        Rule("(p or q) and not p", "q and not p"),
        Rule("(p := x < c1) and (q := x < c2)", "p", "c1 <= c2"),
        Rule("(p := c1 < x) and (q := c2 < x)", "p", "c1 >= c2"),
        Rule("(p := x < c1) and (q := c2 < x)", "False", "c1 <= c2 + 1"),
        Rule("(p := x == c1) and (q := x == c2)", "False", "c1 != c2"),
        Rule("(p := x == c1) and (q := x < c2)", "p", "c1 < c2"),
        Rule("(p := x == c1) and (q := x < c2)", "False", "c1 >= c2"),
        Rule("(p := x == c1) and (q := c2 < x)", "p", "c2 < c1"),
        Rule("(p := x == c1) and (q := c2 < x)", "False", "c2 >= c1"),
    ),
    "Or": (
        Rule("p or not p", "True"),
        Rule("(p or q) or p", "p or q"),
        Rule("(p and q) or p", "p"),
        Rule("(p and q) or not p", "q or not p"),
        Rule("(p := x < c1) or (q := x < c2)", "p", "c1 >= c2"),
        Rule("(p := c1 < x) or (q := c2 < x)", "p", "c1 <= c2"),
        Rule("(p := x < c1) or (q := c2 < x)", "True", "c2 < c1"),
        Rule("(p := x < c1) or (q := x == c2)", "p", "c2 < c1"),
        Rule("(p := c1 < x) or (q := x == c2)", "p", "c1 < c2"),
    ),
    "Select": (
        Rule("select(not p, x, y)", "select(p, y, x)"),
        Rule("select(p, True, False)", "p"),
        Rule("select(p, False, True)", "not p"),
        Rule("select(p, q, False)", "p and q"),
        Rule("select(p, True, q)", "p or q"),
        Rule("select(p, select(p, x, y), z)", "select(p, x, z)"),
        Rule("select(p, x, select(p, y, z))", "select(p, x, z)"),
        Rule("select(p, select(q, x, y), y)", "select(p and q, x, y)"),
        Rule("select(p, x, select(q, x, y))", "select(p or q, x, y)"),
    ),
    "IfThenElse": (
        Rule("if_then_else(not p, x, y)", "if_then_else(p, y, x)"),
        Rule("if_then_else(p, True, False)", "p"),
        Rule("if_then_else(p, False, True)", "not p"),
        Rule("if_then_else(p, if_then_else(p, x, y), z)", "if_then_else(p, x, z)"),
        Rule("if_then_else(p, x, if_then_else(p, y, z))", "if_then_else(p, x, z)"),
        Rule("if_then_else(p, if_then_else(q, x, y), y)", "if_then_else(p and q, x, y)", "reads_nothing(q)"),
        Rule("if_then_else(p, x, if_then_else(q, x, y))", "if_then_else(p or q, x, y)", "reads_nothing(q)"),
    ),
    # floats: only what keeps every bit, also of NaN, infinities and the sign of zero
    "Add": (Rule("x + f", "x", "is_negative_zero(f)"),),
    "Sub": (Rule("x - f", "x", "is_positive_zero(f)"),),
    "Div": (Rule("x / f", "x * (1.0 / f)", "has_exact_inverse(f)"),),  # both are the rounding of one real number
}
