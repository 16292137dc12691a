"""Symbolic sizes at call time: found from the shapes of the arguments, and checked for consistency.

A size is bound by the first argument that has it as a whole extent; every other extent in which it occurs ("n + 1", "n // 4 * 4") must then
agree. What must hold of them besides, so that nothing outside a tensor is read, is evaluated too. Expressions are integer arithmetic with
+ - * // % min max, as the printer writes it; nothing else is evaluated.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence

from ..tir.errors import ArgumentError, TargetError
from .generated import Signature

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


class SizeBinder:
    """Finds the values of a signature's sizes from the shapes of the arguments, and checks what must hold of them. A size that is nobody's whole extent
    is a TargetError."""

    def __init__(self, signature: Signature):
        self._signature = signature
        # None: all extents of the argument are numbers.
        self._extents = tuple(
            None if all(isinstance(extent, int) for extent in spec.shape) else tuple(_parse(extent, signature) for extent in spec.shape) for spec in signature
        )
        # (argument, dimension, size) wherever a size is a whole extent
        self._whole = [
            (argument, dimension, extent)
            for argument, spec in enumerate(signature)
            for dimension, extent in enumerate(spec.shape)
            if isinstance(extent, str) and extent in signature.sizes
        ]
        self._required = [([_parse(e, signature) for e in each.extents], _parse(each.needed, signature), each.problem) for each in signature.requirements]
        bound = {size for _, _, size in self._whole}
        missing = [size for size in signature.sizes if size not in bound]
        if missing:
            raise TargetError(
                f"{signature.name}: size {missing[0]!r} is the extent of no argument's dimension, so a call cannot find its value; "
                "add an argument with a dimension of exactly that extent"
            )

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """The value of each size. `shapes` has as many dimensions as declared; extents that disagree are an ArgumentError."""
        values: dict[str, int] = {}
        for argument, dimension, size in self._whole:
            values.setdefault(size, shapes[argument][dimension])
        for argument, (spec, shape) in enumerate(zip(self._signature, shapes, strict=True)):
            extents = self._extents[argument]
            try:
                wanted = spec.shape if extents is None else tuple(evaluate(extent, values) for extent in extents)
            except ZeroDivisionError:
                wanted = spec.shape
            if wanted != shape:
                raise self._disagreement(argument, wanted, shape, values)
        for ranges, needed, problem in self._required:
            if evaluate(needed, values) < 0 and all(evaluate(e, values) > 0 for e in ranges):
                known = ", ".join(f"{name} = {value}" for name, value in values.items())
                raise ArgumentError(f"{self._signature.name}: with {known}, {problem}")
        return values

    def _disagreement(self, argument: int, wanted: tuple[int | str, ...], found: tuple[int, ...], values: dict[str, int]) -> ArgumentError:
        spec = self._signature[argument]
        known = []
        for name in _names(ast.parse(", ".join(map(str, spec.shape)) or "0")):
            other, dimension, _ = next(whole for whole in self._whole if whole[2] == name)
            known.append(f"{name} = {values[name]} from {self._signature[other].name}.shape[{dimension}]")
        reason = f" ({_shape_text(spec.shape)} with {', '.join(sorted(known))})" if known else ""
        return ArgumentError(f"argument {argument + 1} of {self._signature.name}, {spec.name!r}: expected shape {_shape_text(wanted)}{reason}, found {found}")


def _shape_text(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


def _parse(extent: int | str, signature: Signature) -> int | ast.expr:
    if isinstance(extent, int):
        return extent
    try:
        tree = ast.parse(extent, mode="eval").body
        unknown = _names(tree) - set(signature.sizes)
        if unknown:
            known = ", ".join(signature.sizes)
            raise TargetError(f"{signature.name}: extent {extent!r} has the unknown size {unknown.pop()!r}; known: {known}")
        evaluate(tree, dict.fromkeys(signature.sizes, 1))
    except (SyntaxError, ValueError) as error:
        raise TargetError(f"{signature.name}: extent {extent!r} is no integer expression of sizes ({error})") from None
    except ZeroDivisionError:
        pass  # with the sizes of the trial only
    return tree


def evaluate(extent: int | ast.expr, values: Mapping[str, int]) -> int:
    """The value of an extent. A ValueError where it is more than integer arithmetic."""
    match extent:
        case int():
            return extent
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](evaluate(left, values), evaluate(right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(evaluate(argument, values) for argument in arguments))
    raise ValueError(f"{ast.unparse(extent)} is not allowed there")
