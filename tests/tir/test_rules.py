"""Every rule of the simplifier: the identity holds as it is written, it fires, and what it gives has the expected text, value and bounds."""

import ast
import itertools
import math
import struct

import numpy as np
import pytest

from tilewright.tir import Analyzer, Var
from tilewright.tir import expr as ir
from tilewright.tir.bounds import constant_bounds
from tilewright.tir.dtype import dtype
from tilewright.tir.errors import InternalError
from tilewright.tir.expr import Expr, const
from tilewright.tir.matching import ANY_RULES, EXACT_RULES, has_exact_inverse, is_negative_zero, is_positive_zero, matchers_of
from tilewright.tir.rules import ANY, EXACT, Rule

from .evaluation import evaluate, points
from .rule_texts import EXPECTED

FLOAT_ROOTS = ("Add", "Sub", "Div")
RULES = [(root, rule) for table in (EXACT, ANY) for root, rules in table.items() for rule in rules if root not in FLOAT_ROOTS]
RANGES = [(0, 3), (4, 6), (-3, -1), (1, 1), (0, 0), (-2, 2)]
NUMBERS = [4, 2, 3, 1, 0, -2, -3, -1]
OPERATORS = {
    ast.Add: ir.add, ast.Sub: ir.sub, ast.Mult: ir.mul, ast.FloorDiv: ir.floordiv, ast.Mod: ir.floormod, ast.Lt: ir.lt, ast.LtE: ir.le,
    ast.Eq: ir.eq, ast.NotEq: ir.ne, ast.And: ir.logical_and, ast.Or: ir.logical_or, ast.Not: ir.logical_not,
    "min": ir.minimum, "max": ir.maximum, "select": ir.select, "if_then_else": ir.if_then_else,
}  # fmt: skip


def identified(rule: Rule) -> str:
    return f"{rule.pattern} -> {rule.result} | {rule.condition}"


def free_names(rule: Rule) -> list[str]:
    """The names of a rule that stand for something, in order."""
    tree = ast.parse(rule.pattern, mode="eval")
    parts = {n.target.id for n in ast.walk(tree) if isinstance(n, ast.NamedExpr)}
    return sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - parts - OPERATORS.keys())


def choices(name: str) -> list[int]:
    """The small range of values a name is tried with."""
    return [-3, -2, -1, 0, 1, 2, 4] if name[0] in "xyz" else [0, 1] if name[0] in "pq" else NUMBERS


def choose(condition, a, b):
    return a if condition else b


def run(text: str, values: dict[str, object]) -> object:
    """A rule's text, as the Python it is."""
    return eval(text, {"select": choose, "if_then_else": choose, "reads_nothing": lambda e: True}, values)


def pattern_of(tree: ast.expr, values: dict[str, object]):
    """A rule's syntax with expressions for names; a number stays one until it meets an expression."""
    if isinstance(tree, ast.NamedExpr):
        return pattern_of(tree.value, values)
    if isinstance(tree, ast.Name):
        return values[tree.id]
    if isinstance(tree, ast.Constant):
        return const(tree.value, "bool")
    if isinstance(tree, ast.Call):
        operator, operands = tree.func.id, tree.args
    elif isinstance(tree, ast.BoolOp):
        operator, operands = type(tree.op), tree.values
    elif isinstance(tree, ast.Compare):
        operator, operands = type(tree.ops[0]), [tree.left, tree.comparators[0]]
    elif isinstance(tree, ast.UnaryOp):
        operator, operands = type(tree.op), [tree.operand]
    else:
        operator, operands = type(tree.op), [tree.left, tree.right]
    return OPERATORS[operator](*[const(o) if isinstance(o, int) else o for o in (pattern_of(o, values) for o in operands)])


@pytest.mark.parametrize(("root", "rule"), RULES, ids=lambda value: identified(value) if isinstance(value, Rule) else value)
def test_identity_holds_as_it_is_written(root, rule):
    names = free_names(rule)
    tried = 0
    for point in itertools.product(*map(choices, names)):
        values = dict(zip(names, point, strict=True))
        try:
            if not run(rule.condition, dict(values)):
                continue
            left = run(rule.pattern, dict(values))
        except ZeroDivisionError:
            continue
        assert left == run(rule.result, {**values, **named_parts(rule, values)}), values
        tried += 1
    assert tried >= 2


def named_parts(rule: Rule, values: dict[str, object]) -> dict[str, object]:
    tree = ast.parse(rule.pattern, mode="eval")
    return {n.target.id: run(ast.unparse(n.value), dict(values)) for n in ast.walk(tree) if isinstance(n, ast.NamedExpr)}


def first_match(root: str, rule: Rule):
    """(variables, node, result) of the first choice of ranges and constants for which the rule applies."""
    tree = ast.parse(rule.pattern, mode="eval").body
    names = free_names(rule)
    for choice in itertools.product(*[NUMBERS if n[0] == "c" else RANGES if n[0] in "xyz" else [(0, 1)] for n in names]):
        values: dict[str, object] = {}
        variables = []
        for name, chosen in zip(names, choice, strict=True):
            if name[0] == "c":
                values[name] = chosen
            else:
                values[name] = Var(name, "bool" if name[0] in "pq" else "int32", bounds=chosen)
                variables.append(values[name])
        try:
            node = pattern_of(tree, values)
        except Exception:  # the constructor refuses a division by zero
            continue
        if type(node).__name__ != root:
            continue
        for matcher in matchers_of(rule):
            result = matcher(node, Analyzer())
            if result is not None:
                return variables, node, result
    raise AssertionError(f"{identified(rule)} never applies")


@pytest.mark.parametrize(("root", "rule"), RULES, ids=lambda value: identified(value) if isinstance(value, Rule) else value)
def test_text_value_and_bounds_of_what_a_rule_gives(root, rule):
    variables, node, result = first_match(root, rule)
    assert f"{node} -> {result}" == EXPECTED[identified(rule)]
    assert result.dtype is node.dtype
    low, high = constant_bounds(result)
    for point in points(variables):
        value = int(evaluate(node, point))
        assert value == int(evaluate(result, point)), point
        assert low is None or low <= value
        assert high is None or value <= high


def test_every_expected_text_belongs_to_a_rule():
    assert set(EXPECTED) == {identified(rule) for _, rule in RULES}


def test_tables_hold_only_what_can_apply_to_the_class_of_the_first_operand():
    table = EXACT_RULES[ir.Min]
    assert 0 < len(table[ir.Var]) < len(table[ir.Min]) < len(table.matchers)
    assert ANY_RULES[ir.Load][ir.Var] == ()


# ----------------------------------------------------------------------------------------------------------------- floats

SPECIAL = [0.0, -0.0, 1.5, -1.5, 1e-40, -1e-45, 3.4e38, math.inf, -math.inf, math.nan]


def bits(value: np.float32) -> bytes:
    return struct.pack("<f", value)


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (lambda x: x + const(-0.0, "float32"), "x"),
        (lambda x: x + const(0.0, "float32"), "x + 0.0"),
        (lambda x: x - const(0.0, "float32"), "x"),
        (lambda x: x - const(-0.0, "float32"), "x - -0.0"),
        (lambda x: x / const(8.0, "float32"), "x * 0.125"),
        (lambda x: x / const(-0.25, "float32"), "x * (-4.0)"),
        (lambda x: x / const(3.0, "float32"), "x / 3.0"),
        (lambda x: x / const(math.inf, "float32"), "x / inf"),
        (lambda x: x / const(2.0**100, "float32"), "x / 1.2676506002282294e+30"),
    ],
)
def test_floats_keep_every_bit(e, text):
    x = Var("x", "float32")
    before = e(x)
    after = Analyzer().simplify(before)
    assert str(after) == text
    with np.errstate(all="ignore"):
        for value in map(np.float32, SPECIAL):
            assert bits(evaluate_float(before, value)) == bits(evaluate_float(after, value)), value


def evaluate_float(e: Expr, x: np.float32) -> np.float32:
    if isinstance(e, Var):
        return x
    if isinstance(e, ir.Const):
        return np.float32(e.value)
    a, b = evaluate_float(e.a, x), evaluate_float(e.b, x)
    return {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[e.symbol](a, b)


def test_conditions_on_float_constants():
    assert is_positive_zero(0.0) and not is_positive_zero(-0.0) and not is_positive_zero(1.0)
    assert is_negative_zero(-0.0) and not is_negative_zero(0.0)
    assert has_exact_inverse(0.5) and has_exact_inverse(-4.0)
    assert not any(map(has_exact_inverse, (3.0, 0.0, math.inf, math.nan, 2.0**20, 2.0**-20)))


def test_rules_for_exact_integers_leave_wrapping_ones_alone():
    word = ir.load(ir.Buffer("w", (4,), "int32"), [const(0)])
    for e in (word * 2 // 2, (word + 1) // 1 - 1 + 1, ir.minimum(word * 4, word * 2), word * 16 % 16, word + 1 < word):
        assert Analyzer().simplify(e) is e


def test_a_rule_that_is_not_understood_is_reported():
    with pytest.raises(InternalError, match=r"x @ y"):
        matchers_of(Rule("x @ y", "x"))


def test_dtype_of_constants_follows_the_neighbour():
    i = Var("i", "int64", bounds=(0, 3))
    done = Analyzer().simplify(ir.minimum(i * 4, const(8, "int64")))
    assert done.dtype is dtype("int64") and str(done) == "min(i, int64(2)) * int64(4)"
