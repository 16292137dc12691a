"""Tensors: the values that operations produce. Indexing one gives a load from its buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tir.dtype import DType
from ..tir.errors import TEError
from ..tir.expr import Buffer, Const, Expr, ExprLike, as_expr, load

if TYPE_CHECKING:
    from .op import Operation


class TensorBuffer(Buffer):
    """The buffer of a tensor; it leads from a load in an expression back to the tensor that is read."""

    __slots__ = ("tensor",)
    tensor: Tensor


class Tensor(ExprLike):
    """An output of an operation. `T[i, j]` (or `T(i, j)`) is an element; a tensor of rank 0 stands for its element.

    Attributes: `op` (what produces it), `value_index` (which of its outputs), `shape` (ints, or expressions where symbolic), `dtype`,
    `name`, `ndim`, `buffer` (the memory that loads read). Two tensors are equal only if they are one object.
    """

    __slots__ = ("__weakref__", "buffer", "dtype", "name", "op", "shape", "value_index")

    op: Operation
    value_index: int
    shape: tuple[int | Expr, ...]
    dtype: DType
    name: str
    buffer: TensorBuffer

    def __init__(self, op: Operation, value_index: int, shape: tuple[int | Expr, ...], dtype: DType, name: str):
        self.op, self.value_index, self.shape, self.dtype, self.name = op, value_index, shape, dtype, name
        self.buffer = TensorBuffer(name, shape, dtype)
        self.buffer.tensor = self

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Expr:
        return self(*indices) if isinstance(indices, tuple) else self(indices)

    def __call__(self, *indices: Any) -> Expr:
        """The element at `indices`: ints, axes or integer expressions, one for each dimension."""
        if len(indices) != len(self.shape):
            raise TEError(f"tensor {self.name!r} has {len(self.shape)} dimension(s) {self.shape_text}, found {len(indices)} index(es)")
        return load(self.buffer, [self._index(value, dimension) for dimension, value in enumerate(indices)])

    def _index(self, value: Any, dimension: int) -> Expr:
        where = f"index {dimension} of tensor {self.name!r}"
        if isinstance(value, slice) or value is Ellipsis or value is None:
            raise TEError(f"{where} is {value!r}: expected one integer for each dimension; a slice is a computation of its own")
        index = as_expr(value)
        if not index.dtype.is_integer:
            raise TEError(f"{where} is {index} of dtype {index.dtype}: expected an integer")
        extent = self.shape[dimension]
        if isinstance(index, Const) and (index.value < 0 or (isinstance(extent, int) and index.value >= extent)):
            raise TEError(f"{where} is {index.value}, outside [0, {extent}); negative indices do not count from the end")
        return index

    def as_expr(self) -> Expr:
        if self.shape:
            raise TEError(f"tensor {self.name!r} of shape {self.shape_text} stands in an expression: index it, like {self.example()}")
        return load(self.buffer, ())

    def example(self) -> str:
        """An element of this tensor as one would write it, for error messages."""
        return f"{self.name}[{', '.join('ijklmnpq'[: self.ndim])}]" if self.ndim <= 8 else f"{self.name}[...]"

    @property
    def shape_text(self) -> str:
        """The shape as text."""
        return f"({', '.join(map(str, self.shape))}{',' if len(self.shape) == 1 else ''})"

    def __eq__(self, other: object) -> Any:
        return self is other if self._compares_as_object(other) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return self is not other if self._compares_as_object(other) else super().__ne__(other)

    def _compares_as_object(self, other: object) -> bool:
        """Whether `==` asks if this is that object (tensors can be looked up in a list), not if its element has that value."""
        if isinstance(other, Tensor):
            return bool(self.shape or other.shape)
        return not isinstance(other, (ExprLike, int, float))

    __hash__ = object.__hash__

    def __iter__(self) -> Any:
        raise TEError(f"tensor {self.name!r} cannot be iterated over while a computation is declared: index it, like {self.example()}")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}{self.shape_text})"
