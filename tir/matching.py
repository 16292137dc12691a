"""Turns the rules of rules.py into functions, when they are first needed.

Each rule becomes straight-line code that looks at a node from the root down and gives the result, or None. `EXACT_RULES[root class][class
of first operand]` is the tuple of those that can apply. A condition that asks for a proof calls `prover.not_above(a, b)` (a <= b) or
`prover.below(a, b)`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from . import expr as ir
from .errors import InternalError
from .expr import HAS_LOAD, Expr
from .rules import ANY, EXACT, Rule

Matcher: TypeAlias = "Callable[[Any, Any], Expr | None]"

# what a pattern's syntax stands for: class of the node, function that builds it, names of its operands
_OPERATORS: dict[Any, tuple[str, str, tuple[str, ...]]] = {
    ast.Add: ("Add", "add", ("a", "b")),
    ast.Sub: ("Sub", "sub", ("a", "b")),
    ast.Mult: ("Mul", "mul", ("a", "b")),
    ast.Div: ("Div", "div", ("a", "b")),
    ast.FloorDiv: ("FloorDiv", "floordiv", ("a", "b")),
    ast.Mod: ("FloorMod", "floormod", ("a", "b")),
    ast.Lt: ("LT", "lt", ("a", "b")),
    ast.LtE: ("LE", "le", ("a", "b")),
    ast.Eq: ("EQ", "eq", ("a", "b")),
    ast.NotEq: ("NE", "ne", ("a", "b")),
    ast.And: ("And", "logical_and", ("a", "b")),
    ast.Or: ("Or", "logical_or", ("a", "b")),
    ast.Not: ("Not", "logical_not", ("a",)),
    "min": ("Min", "minimum", ("a", "b")),
    "max": ("Max", "maximum", ("a", "b")),
    "select": ("Select", "select", ("condition", "then", "otherwise")),
    "if_then_else": ("IfThenElse", "if_then_else", ("condition", "then", "otherwise")),
}
_COMMUTE = (ast.And, ast.Or, ast.Eq, ast.NotEq, "min", "max")


def reads_nothing(e: Expr) -> bool:
    """Whether `e` may be evaluated anywhere, because it reads no memory."""
    return not e.holds & HAS_LOAD


def is_positive_zero(value: float) -> bool:
    """+0.0, not -0.0."""
    return value == 0.0 and math.copysign(1.0, value) > 0


def is_negative_zero(value: float) -> bool:
    """-0.0, not +0.0."""
    return value == 0.0 and math.copysign(1.0, value) < 0


def has_exact_inverse(value: float) -> bool:
    """A power of two whose inverse is a normal number in every float type."""
    return math.isfinite(value) and value != 0.0 and math.frexp(abs(value))[0] == 0.5 and 2.0**-14 <= abs(value) <= 2.0**14


_HELPERS: tuple[Callable[..., bool], ...] = (reads_nothing, is_positive_zero, is_negative_zero, has_exact_inverse)


def _operation(tree: ast.expr) -> tuple[Any, list[ast.expr]] | None:
    """(operator, operands) of an operation in a rule, None of a name or a number."""
    if isinstance(tree, ast.BinOp):
        return type(tree.op), [tree.left, tree.right]
    if isinstance(tree, ast.Compare):
        return type(tree.ops[0]), [tree.left, tree.comparators[0]]
    if isinstance(tree, ast.BoolOp):
        return type(tree.op), list(tree.values)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return ast.Not, [tree.operand]
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return tree.func.id, list(tree.args)
    return None


def _is_constant(tree: ast.expr) -> bool:
    """Whether only numbers and names of constants occur."""
    names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
    return all(name[0] in "cf" for name in names)


@dataclass
class _Code:
    """The lines of one matcher, and the names bound so far."""

    lines: list[str]
    bound: set[str]
    temporaries: int = 0

    def temporary(self) -> str:
        self.temporaries += 1
        return f"t{self.temporaries}"

    def require(self, condition: str) -> None:
        self.lines.append(f"    if not ({condition}): return None")

    def match(self, tree: ast.expr, place: str) -> None:
        """Lines that return None unless the node at `place` has the form of `tree`."""
        if isinstance(tree, ast.NamedExpr):
            self.match(tree.target, place)
            self.match(tree.value, place)
        elif isinstance(tree, ast.Name):
            name = tree.id
            constant = name[0] in "cf"
            if constant:
                self.require(f"{place}.__class__ is Const")
                place += ".value"
            if name in self.bound:
                self.require(f"{place} {'==' if constant else 'is'} {name}")
            else:
                self.bound.add(name)
                self.lines.append(f"    {name} = {place}")
        elif isinstance(tree, ast.Constant):
            truth = f" and {place}.dtype is BOOL" if isinstance(tree.value, bool) else ""
            self.require(f"{place}.__class__ is Const and {place}.value == {tree.value!r}{truth}")
        else:
            operation = _operation(tree)
            assert operation is not None, ast.unparse(tree)
            cls, _, fields = _OPERATORS[operation[0]]
            here = self.temporary()
            self.lines.append(f"    {here} = {place}")
            self.require(f"{here}.__class__ is {cls}")
            for field, operand in zip(fields, operation[1], strict=True):
                self.match(operand, f"{here}.{field}")

    def build(self, tree: ast.expr) -> str:
        """The text that builds a result; constants take the dtype of their neighbour."""
        if isinstance(tree, ast.Name):
            return tree.id
        operation = _operation(tree)
        assert operation is not None, ast.unparse(tree)
        _, make, _ = _OPERATORS[operation[0]]
        operands = operation[1]
        if len(operands) == 2 and any(map(_is_constant, operands)):
            neighbour = self.temporary()
            built = [f"const({ast.unparse(o)}, {neighbour})" if _is_constant(o) else f"({neighbour} := {self.build(o)})" for o in operands]
            if _is_constant(operands[0]):  # the neighbour is built second, but named first
                built = [f"const({ast.unparse(operands[0])}, ({neighbour} := {self.build(operands[1])}))", neighbour]
            return f"{make}({', '.join(built)})"
        return f"{make}({', '.join([self.build(o) for o in operands])})"

    def condition(self, tree: ast.expr) -> str:
        """The text of a condition."""
        if isinstance(tree, ast.BoolOp):
            return f" {'and' if isinstance(tree.op, ast.And) else 'or'} ".join([f"({self.condition(v)})" for v in tree.values])
        if isinstance(tree, ast.Compare) and not _is_constant(tree):
            proof = {ast.LtE: "not_above", ast.Lt: "below"}[type(tree.ops[0])]
            operands = []
            for operand, other in ((tree.left, tree.comparators[0]), (tree.comparators[0], tree.left)):
                operands.append(f"const({ast.unparse(operand)}, {self.build(other)})" if _is_constant(operand) else self.build(operand))
            return f"prover.{proof}({', '.join(operands)})"
        return ast.unparse(tree)


def _orders(tree: ast.expr) -> Iterator[ast.expr]:
    """`tree` with the operands of what commutes in every order."""
    if isinstance(tree, ast.NamedExpr):
        for value in _orders(tree.value):
            yield ast.NamedExpr(tree.target, value)
        return
    operation = _operation(tree)
    if operation is None:
        yield tree
        return
    operator, operands = operation
    if len(operands) == 1:
        yield tree
        return
    for first in _orders(operands[0]):
        for second in _orders(operands[1]):
            rest = operands[2:]
            yield _with_operands(tree, [first, second, *rest])
            if operator in _COMMUTE:
                yield _with_operands(tree, [second, first, *rest])


def _with_operands(tree: ast.expr, operands: list[ast.expr]) -> ast.expr:
    if isinstance(tree, ast.BinOp):
        return ast.BinOp(operands[0], tree.op, operands[1])
    if isinstance(tree, ast.Compare):
        return ast.Compare(operands[0], tree.ops, [operands[1]])
    if isinstance(tree, ast.BoolOp):
        return ast.BoolOp(tree.op, operands)
    assert isinstance(tree, ast.Call)
    return ast.Call(tree.func, operands, [])


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def variants(rule: Rule) -> list[ast.expr]:
    """The patterns of `rule`, one for each order of operands that makes a difference."""
    found: dict[str, ast.expr] = {}
    for tree in _orders(_parse(rule.pattern)):
        found.setdefault(ast.unparse(tree), tree)
    return list(found.values())


def _source(rule: Rule, pattern: ast.expr) -> str:
    """The Python source of a matcher."""
    code = _Code(["def matcher(e, prover):"], set())
    operation = _operation(pattern)
    assert operation is not None
    fields = _OPERATORS[operation[0]][2]
    for field, operand in zip(fields, operation[1], strict=True):
        code.match(operand, f"e.{field}")
    condition = _parse(rule.condition)
    if rule.condition != "True":
        code.require(code.condition(condition))
    result = _parse(rule.result)
    code.lines.append(f"    return {f'const({rule.result}, e.a)' if _is_constant(result) else code.build(result)}")
    return "\n".join(code.lines)


class _Table(dict[type, "tuple[Matcher, ...]"]):
    """The matchers for one root operator by class of the first operand, selected when first asked for."""

    def __init__(self, matchers: list[tuple[str | None, Matcher]]):
        super().__init__()
        self.matchers = matchers

    def __missing__(self, child: type) -> tuple[Matcher, ...]:
        chosen = tuple(m for name, m in self.matchers if name is None or name == child.__name__)
        return self.setdefault(child, chosen)


class _Tables(dict[type, _Table]):
    """The table for each root operator, compiled when first asked for."""

    def __init__(self, rules: dict[str, tuple[Rule, ...]]):
        super().__init__()
        self.rules = rules

    def __missing__(self, root: type) -> _Table:
        matchers: list[tuple[str | None, Matcher]] = []
        for rule in self.rules.get(root.__name__, ()):
            for pattern in variants(rule):
                matchers.append((_first_operand(pattern), _compile(rule, pattern)))
        return self.setdefault(root, _Table(matchers))


def _first_operand(pattern: ast.expr) -> str | None:
    """The class the first operand must have, None for any."""
    operation = _operation(pattern)
    assert operation is not None
    first = operation[1][0]
    if isinstance(first, ast.NamedExpr):
        first = first.value
    if isinstance(first, ast.Constant) or (isinstance(first, ast.Name) and first.id[0] in "cf"):
        return "Const"
    inner = _operation(first)
    return None if inner is None else _OPERATORS[inner[0]][0]


def matchers_of(rule: Rule) -> list[Matcher]:
    """The functions that apply `rule`, one for each order of operands."""
    return [_compile(rule, pattern) for pattern in variants(rule)]


def _compile(rule: Rule, pattern: ast.expr) -> Matcher:
    names = {**vars(ir), **{h.__name__: h for h in _HELPERS}}
    try:
        exec(compile(_source(rule, pattern), f"<rule {rule.pattern} -> {rule.result}>", "exec"), names)
    except (SyntaxError, AssertionError, KeyError) as error:
        raise InternalError(f"the rule {rule} is not understood: {error}") from error
    return names["matcher"]  # type: ignore[no-any-return]


EXACT_RULES = _Tables(EXACT)
ANY_RULES = _Tables(ANY)
