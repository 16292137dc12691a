"""Text of expressions, statements and functions: Python-like, for people, golden files and dumps.

Two variables of one name are told apart (`i`, `i_1`) inside one statement or function. Nothing parses this text. Nodes are recognised by
the name of their class, so that this file can stand below the files that define them.
"""

from __future__ import annotations

from typing import Any

# how tightly an operator binds; a child that binds less tightly than its place asks gets parentheses
_PRECEDENCE = {
    "or": 1, "and": 2, "not": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7,
}  # fmt: skip
_ATOM = 10


class Names:
    """One printed name for each variable and buffer."""

    def __init__(self) -> None:
        self._name_of: dict[Any, str] = {}
        self._taken: set[str] = set()

    def of(self, node: Any) -> str:
        """The name of a variable or buffer, made unique when first asked for."""
        name = self._name_of.get(node)
        if name is None:
            name, count = node.name, 0
            while name in self._taken:
                count += 1
                name = f"{node.name}_{count}"
            self._name_of[node] = name
            self._taken.add(name)
        return name


class _Plain:
    """Names as they are, for a lone expression."""

    @staticmethod
    def of(node: Any) -> str:
        return str(node.name)


def number_text(value: int | float) -> str:
    """A constant as Python would write it, infinities and NaN as inf and nan."""
    return repr(value)


def expression_text(node: Any, names: Any = _Plain) -> str:
    """`node` as text, variables under the given names."""
    return _text(node, names)[0]


def _inside(node: Any, names: Any, level: int) -> str:
    text, precedence = _text(node, names)
    return text if precedence >= level else f"({text})"


def _text(e: Any, names: Any) -> tuple[str, int]:
    kind = type(e).__name__
    if kind == "Var":
        return names.of(e), _ATOM
    if kind == "Const":
        if e.dtype == "bool":
            return str(bool(e.value)), _ATOM
        plain = e.dtype in ("int32", "float32")
        text = number_text(e.value)
        return (text, _ATOM if e.value >= 0 or e.value != e.value else 7) if plain else (f"{e.dtype}({text})", _ATOM)
    if kind in ("Min", "Max"):
        return f"{e.symbol}({_text(e.a, names)[0]}, {_text(e.b, names)[0]})", _ATOM
    symbol = getattr(e, "symbol", None)
    if symbol is not None:
        level = _PRECEDENCE[symbol]
        if symbol == "+" and type(e.b).__name__ == "Const" and e.b.dtype == "int32" and e.b.value < 0:
            return f"{_inside(e.a, names, 6)} - {-e.b.value}", 6
        if level == 4:
            return f"{_inside(e.a, names, 5)} {symbol} {_inside(e.b, names, 5)}", 4
        return f"{_inside(e.a, names, level)} {symbol} {_inside(e.b, names, level if symbol in ('and', 'or') else level + 1)}", level
    if kind == "Not":
        return f"not {_inside(e.a, names, 3)}", 3
    if kind == "Cast":
        return f"{e.dtype}({_text(e.value, names)[0]})", _ATOM
    if kind in ("Select", "IfThenElse"):
        word = "select" if kind == "Select" else "if_then_else"
        return f"{word}({', '.join(_text(c, names)[0] for c in e.children)})", _ATOM
    if kind == "Load":
        where = f" if {_inside(e.predicate, names, 0)}" if e.predicate is not None else ""
        return f"{names.of(e.buffer)}[{', '.join(_text(i, names)[0] for i in e.indices)}{where}]", _ATOM
    if kind == "Ramp":
        return f"ramp({_text(e.base, names)[0]}, {_text(e.stride, names)[0]}, {e.dtype.lanes})", _ATOM
    if kind == "Broadcast":
        return f"broadcast({_text(e.value, names)[0]}, {e.dtype.lanes})", _ATOM
    if kind == "Call":
        to = f"<{e.dtype}>" if e.name == "reinterpret" else ""
        return f"{e.name}{to}({', '.join(_text(a, names)[0] for a in e.args)})", _ATOM
    return f"<{kind}>", _ATOM


def _buffer_text(buffer: Any, names: Any) -> str:
    shape = ", ".join(d if isinstance(d, str) else (str(d) if isinstance(d, int) else expression_text(d, names)) for d in buffer.shape)
    strides = "" if buffer.strides is None else f" strides [{', '.join(map(str, buffer.strides))}]"
    scope = "" if buffer.scope == "global" else f" in {buffer.scope}"
    return f"{names.of(buffer)}: {buffer.dtype}[{shape}]{strides}{scope}"


def statement_lines(node: Any, names: Any, indent: str = "") -> list[str]:
    """A statement as lines."""
    lines: list[str] = []
    _statement(node, names, indent, lines)
    return lines


def _statement(s: Any, names: Any, indent: str, out: list[str]) -> None:
    kind = type(s).__name__
    inner = indent + "    "
    if kind == "Seq":
        if not s.body:
            out.append(f"{indent}pass")
        for child in s.body:
            _statement(child, names, indent, out)
    elif kind == "For":
        extent = expression_text(s.extent, names)
        word = {"serial": "range", "thread": f"thread[{s.thread}]"}.get(s.kind, s.kind)
        pragmas = "".join(f"  # pragma {key} {value}" for key, value in s.pragmas)
        out.append(f"{indent}for {names.of(s.var)} in {word}({extent}):{pragmas}")
        _statement(s.body, names, inner, out)
    elif kind == "If":
        out.append(f"{indent}if {expression_text(s.condition, names)}:")
        _statement(s.then, names, inner, out)
        if s.otherwise is not None:
            out.append(f"{indent}else:")
            _statement(s.otherwise, names, inner, out)
    elif kind == "Store":
        where = f" if {expression_text(s.predicate, names)}" if s.predicate is not None else ""
        indices = ", ".join(expression_text(i, names) for i in s.indices)
        out.append(f"{indent}{names.of(s.buffer)}[{indices}{where}] = {expression_text(s.value, names)}")
    elif kind == "Allocate":
        place = "" if s.place is None else f" at {s.place}"
        out.append(f"{indent}allocate {_buffer_text(s.buffer, names)}{place}")
        _statement(s.body, names, indent, out)
    elif kind == "Bind":
        out.append(f"{indent}{names.of(s.var)} = {expression_text(s.value, names)}")
        _statement(s.body, names, indent, out)
    elif kind == "Produce":
        pragmas = "".join(f"  # pragma {key} {value}" for key, value in s.pragmas)
        out.append(f"{indent}produce {s.name}:{pragmas}")
        _statement(s.body, names, inner, out)
    elif kind == "CallExtern":
        args = [("" if to is not None else "&") + expression_text(a, names) for a, to in zip(s.args, s.types, strict=True)]
        out.append(f"{indent}call {s.symbol}({', '.join(args)})")
    elif kind == "CallIntrinsic":
        operands = []
        for name, argument, steps in zip(s.code.operands, s.args, s.steps, strict=True):
            along = "".join(f" by [{', '.join(expression_text(step, names) for step in each)}]" for each in steps)
            operands.append(f"{name}=&{expression_text(argument, names)}{along}")
        out.append(f"{indent}intrinsic {s.code.name}({', '.join(operands)})")
    elif kind == "AllReduce":
        targets, values = (", ".join(expression_text(e, names) for e in es) for es in (s.targets, s.values))
        out.append(f"{indent}{targets} = all_reduce[{', '.join(s.threads)}]({values}): {', '.join(expression_text(e, names) for e in s.combination.results)}")
    elif kind == "Atomic":
        target, value = expression_text(s.target, names), expression_text(s.value, names)
        out.append(f"{indent}atomic {target} {f'+= {value}' if s.operation == 'add' else f'= {s.operation}({target}, {value})'}")
    elif kind == "Shuffle":
        target, value, lanes = (expression_text(e, names) for e in s.parts)
        out.append(f"{indent}{target} = shuffle({value}) xor {lanes}")
    elif kind == "Sync":
        out.append(f"{indent}sync {s.kind}{f' {s.count}' if s.kind == 'async_wait' else ''}")
    elif kind == "Prefetch":
        out.append(f"{indent}prefetch {names.of(s.buffer)}[{', '.join(expression_text(i, names) for i in s.indices)}]")
    else:
        out.append(f"{indent}<{kind}>")


def function_text(func: Any) -> str:
    """A function as text."""
    names = Names()
    for size in func.sizes:
        names.of(size)
    params = [_buffer_text(p, names) + (" out" if p in func.outputs else "") for p in func.params]
    params += [f"{names.of(size)}: {size.dtype}" for size in func.sizes]
    lines = [f"def {func.name}({', '.join(params)}):"]
    lines += statement_lines(func.body, names, "    ")
    return "\n".join(lines)
