"""Operations: what produces tensors (a placeholder, a computation), and the reducers that computations reduce with.

Plain constructors; what users call, with its checks, is in api.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..tir.dtype import DType, dtype
from ..tir.errors import TEError
from ..tir.expr import Expr, ExprLike, Var
from ..tir.visit import loads_of, substitute
from .axis import IterVar, Range
from .tensor import Tensor, TensorBuffer


class Operation:
    """Something that produces tensors. Attributes: `name`, `outputs`, `input_tensors` (what it reads, each once, in order)."""

    __slots__ = ("__weakref__", "input_tensors", "name", "outputs")

    name: str
    outputs: tuple[Tensor, ...]
    input_tensors: tuple[Tensor, ...]

    def output(self, index: int = 0) -> Tensor:
        """The output with that index."""
        return self.outputs[index]

    @property
    def num_outputs(self) -> int:
        """How many tensors it produces."""
        return len(self.outputs)

    def _set_outputs(self, shape: tuple[int | Expr, ...], dtypes: Sequence[DType]) -> None:
        names = [self.name] if len(dtypes) == 1 else [f"{self.name}.v{i}" for i in range(len(dtypes))]
        self.outputs = tuple(Tensor(self, i, shape, kind, name) for i, (kind, name) in enumerate(zip(dtypes, names, strict=True)))


class _NothingThereError(TEError, AttributeError):
    """What an input does not have; an AttributeError too, so that `hasattr` and `getattr` with a default keep their meaning."""


class PlaceholderOp(Operation):
    """An input of the computation: its tensor is an argument of the kernel."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in ("axis", "reduce_axis", "body", "reducer", "scan_axis"):
            raise _NothingThereError(f"{self.name}.op.{name}: {self.name} is an input of the computation, which has no loops and computes nothing: expected a "
                                     f"tensor of te.compute. To have loops over its elements, copy it: s.cache_read({self.name}, scope, readers)")  # fmt: skip
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __init__(self, name: str, shape: Sequence[int | Expr], dtype_: str):
        self.name, self.input_tensors = name, ()
        self._set_outputs(tuple(shape), [dtype(dtype_)])

    def __repr__(self) -> str:
        return f"placeholder({self.outputs[0]!r})"


class ComputeOp(Operation):
    """A value for each point of a grid of axes, plain or reduced.

    Attributes: `axis` (one IterVar for each dimension), `body` (one expression for each output; of a reduction, the values that are
    reduced), `reducer` (None if plain), `reduce_axis`, `condition` (only the points of the reduction where it holds take part; nothing is
    read at others), `init` (values the reduction starts from, in place of the identity), `tag`, `attrs`, `early_read` (what is wrong where it is
    no part of a te.scan: the sentence, if it reads `T[t - 1]` along its first axis t).
    """

    __slots__ = ("attrs", "axis", "body", "condition", "early_read", "init", "reduce_axis", "reducer", "tag")

    def __init__(
        self,
        name: str,
        axis: Sequence[IterVar],
        body: Sequence[Expr],
        reducer: Reducer | None = None,
        reduce_axis: Sequence[IterVar] = (),
        condition: Expr | None = None,
        init: Sequence[Expr] | None = None,
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
    ):
        self.name, self.tag, self.attrs = name, tag, dict(attrs or {})
        self.axis, self.reduce_axis, self.body = tuple(axis), tuple(reduce_axis), tuple(body)
        self.reducer, self.condition = reducer, condition
        self.init = None if init is None else tuple(init)
        self.early_read: str | None = None
        self.input_tensors = tensors_read(self.expressions)
        extents = [a.dom.extent for a in self.axis if a.dom is not None]
        self._set_outputs(tuple(extents), [e.dtype for e in self.body])

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All expressions of the computation: body, condition, init."""
        return (*self.body, *(() if self.condition is None else (self.condition,)), *(self.init or ()))

    def __repr__(self) -> str:
        axes = ", ".join(f"{a.name} in {a.dom}" for a in self.axis)
        body = ", ".join(map(str, self.body))
        if self.reducer is not None:
            body = f"{self.reducer.name}({body}, axis=[{', '.join(f'{a.name} in {a.dom}' for a in self.reduce_axis)}]"
            body += f", where={self.condition})" if self.condition is not None else ")"
        return f"{self.name}[{axes}] = {body}"


def tensors_read(expressions: Sequence[Expr]) -> tuple[Tensor, ...]:
    """The tensors that the expressions load from, each once, in order of appearance."""
    found: dict[Tensor, None] = {}
    for e in expressions:
        for node in loads_of(e):
            if isinstance(node.buffer, TensorBuffer):
                found[node.buffer.tensor] = None
    return tuple(found)


def axes_over(names: Sequence[str], shape: Sequence[int | Expr]) -> tuple[IterVar, ...]:
    """One fresh spatial axis for each extent of `shape`."""
    return tuple(IterVar(Range(0, extent), name) for name, extent in zip(names, shape, strict=True))


class Reducer:
    """How values are reduced: an operation that combines two of them, and its identity.

    Attributes: `name`; `associative`: whether the reduction may be cut into parts that are combined later (the parts in order);
    an order that matters is declared with `associative=False`.

    The user's functions are called once for each combination of dtypes; what they return is kept as expressions.
    """

    __slots__ = ("_combine", "_forms", "_identity", "associative", "name")

    def __init__(
        self,
        combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]],
        identity: Callable[[tuple[DType, ...]], tuple[Expr, ...]],
        name: str,
        associative: bool = True,
    ):
        self._combine, self._identity, self.name, self.associative = combine, identity, name, associative
        self._forms: dict[tuple[DType, ...], _Form] = {}

    def form(self, dtypes: Sequence[DType]) -> _Form:
        """The reducer on values of these dtypes; a TEError where its result has others."""
        key = tuple(dtypes)
        found = self._forms.get(key)
        if found is None:
            found = self._forms.setdefault(key, self._make_form(key))
        return found

    def combine(self, lhs: Sequence[Expr], rhs: Sequence[Expr]) -> tuple[Expr, ...]:
        """`lhs` (accumulated) and `rhs` (next) combined: one expression for each of the values reduced together, of any lanes."""
        form = self.form([e.dtype.element for e in lhs])
        mapping = dict(zip((*form.lhs, *form.rhs), (*lhs, *rhs), strict=True))
        return tuple(substitute(e, mapping) for e in form.result)

    def identity(self, dtypes: Sequence[str]) -> tuple[Expr, ...]:
        """The identity, for values of these dtypes."""
        return self.form([dtype(d) for d in dtypes]).identity

    def _make_form(self, dtypes: tuple[DType, ...]) -> _Form:
        lhs, rhs = (tuple(_value_variable(f"{side}{i}", d) for i, d in enumerate(dtypes)) for side in "xy")
        result, identity = tuple(self._combine(lhs, rhs)), tuple(self._identity(dtypes))
        for what, values in (("combine", result), ("identity", identity)):
            if len(values) != len(dtypes):
                raise TEError(f"reducer {self.name!r}: {what} gives {len(values)} value(s), but {len(dtypes)} are reduced")
            for i, (value, expected) in enumerate(zip(values, dtypes, strict=True)):
                if value.dtype is not expected:
                    raise TEError(
                        f"reducer {self.name!r}: value {i} of {what} is {value} of dtype {value.dtype}, expected {expected}, the dtype of "
                        f"what is reduced: cast it with .astype('{expected}')"
                    )
        return _Form(lhs, rhs, result, identity)

    def __repr__(self) -> str:
        return f"Reducer({self.name})"


class _Form:
    """A reducer on given dtypes: `result` in terms of the variables `lhs` and `rhs`, and the `identity`."""

    __slots__ = ("identity", "lhs", "result", "rhs")

    def __init__(self, lhs: tuple[Var, ...], rhs: tuple[Var, ...], result: tuple[Expr, ...], identity: tuple[Expr, ...]):
        self.lhs, self.rhs, self.result, self.identity = lhs, rhs, result, identity


def _value_variable(name: str, kind: DType) -> Var:
    """A variable that stands for data: its integer arithmetic wraps."""
    variable = Var(name, kind)
    variable.exact = False
    return variable


class Reduction(ExprLike):
    """A reduction as te.sum and the like return it. It is the whole body of a computation, never part of an expression.

    Attributes: `reducer`, `source` (the values reduced together), `axis`, `condition`, `init`, `single` (one plain value, not a tuple).
    """

    __slots__ = ("axis", "condition", "init", "reducer", "single", "source")

    def __init__(
        self,
        reducer: Reducer,
        source: tuple[Expr, ...],
        axis: tuple[IterVar, ...],
        condition: Expr | None,
        init: tuple[Expr, ...] | None,
        single: bool,
    ):
        self.reducer, self.source, self.axis, self.condition, self.init, self.single = reducer, source, axis, condition, init, single

    def as_expr(self) -> Expr:
        name = self.reducer.name
        raise TEError(
            f"the reduction {self} stands inside an expression: a reduction may only be at the top level of a computation. Give it its "
            f"own stage, and use its elements: R = te.compute(shape, lambda i: te.{name}(..., axis=k)), "
            f"then te.compute(shape, lambda i: R[i] ...)"
        )

    def __str__(self) -> str:
        values = ", ".join(map(str, self.source))
        return f"{self.reducer.name}({values}, axis={', '.join(a.name for a in self.axis)})"

    __repr__ = __str__
