"""What users call to declare: placeholders, computations, reductions, mathematics.

Numbers of Python are weak: they take the dtype of the operand beside them. Two expressions of different dtypes are promoted by the table in
tir/dtype.py. Functions of floats given an integer compute in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..tir import expr as tir
from ..tir.dtype import DType
from ..tir.dtype import dtype as dtype_named
from ..tir.errors import TEError
from ..tir.expr import Expr, ExprLike, Var, as_expr, call
from ..tir.visit import allow_deep_expressions
from .axis import extent_value
from .check import check_accesses, check_domains, check_name, check_shape, check_variables, parameter_names
from .op import ComputeOp, PlaceholderOp, Reduction, axes_over
from .reduce import together
from .tensor import Tensor
from .wrap import wrapped_value

# ---------------------------------------------------------------------------------------------------------------- declaration

_TAG: ContextVar[str] = ContextVar("tag", default="")


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """`with te.tag_scope("conv"):` computations declared inside have that tag, unless they are given one; of nested scopes the inner one holds."""
    if not isinstance(tag, str) or not tag:
        raise TEError(f"tag_scope: expected a tag, a text that is not empty, found {tag!r}")
    token = _TAG.set(tag)
    try:
        yield
    finally:
        _TAG.reset(token)


def placeholder(shape: Sequence[Any] | Any, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor: an argument of the kernel. `shape`: ints or size variables; () for a scalar."""
    check_name(name, "placeholder")
    extents = _shape(shape, f"placeholder {name!r}")
    return PlaceholderOp(name, extents, _dtype(dtype)).output(0)


def compute(shape: Sequence[Any] | Any, fcompute: Callable[..., Any], name: str = "compute", tag: str = "", attrs: Mapping[str, Any] | None = None) -> Any:
    """A tensor of `shape` whose element at (i, j, ...) is `fcompute(i, j, ...)`.

    `fcompute` is called once, with one axis variable for each dimension (`lambda *i: ...` takes any number), and returns an expression, a
    reduction (te.sum and the like), or a tuple of expressions; from a tuple, or a reduction of tuples, comes a tuple of tensors, computed
    together.

    Index arithmetic is exact. Where it is used as a value it has the dtype of its axes (int32, or int64 for long ones) and wraps there.
    """
    check_name(name, "compute")
    extents = _shape(shape, f"compute {name!r}")
    axis = axes_over(parameter_names(fcompute, len(extents), name), extents)
    allow_deep_expressions()
    tag = tag or _TAG.get()
    result = fcompute(*[a.var for a in axis])
    if isinstance(result, Reduction):
        op = ComputeOp(name, axis, result.source, result.reducer, result.axis, result.condition, result.init, tag, attrs)
        single = result.single
    else:
        single = not isinstance(result, (tuple, list))
        values = (result,) if single else tuple(result)
        if not values:
            raise TEError(f"compute {name!r}: its function returned an empty tuple: expected at least one value")
        op = ComputeOp(name, axis, [_body_value(v, name) for v in values], tag=tag, attrs=attrs)
    check_domains(op)
    check_variables(op)
    check_accesses(op)
    return op.output(0) if single else op.outputs


def var(name: str = "n", dtype: str = "int32") -> Var:
    """An integer known when the kernel is called, of any sign."""
    check_name(name, "variable")
    return Var(name, _dtype(dtype))


def size_var(name: str = "n", dtype: str = "int32") -> Var:
    """A size known when the kernel is called: at least 0. It is bound from the shapes of the arguments."""
    check_name(name, "size")
    return Var(name, _dtype(dtype), (0, None))


def _shape(shape: Any, what: str) -> tuple[int | Expr, ...]:
    if not isinstance(shape, (tuple, list)):
        shape = (shape,)
    extents = tuple(extent_value(extent, f"{what}: extent {d}") for d, extent in enumerate(shape))
    check_shape(extents, what)
    return extents


def _dtype(name: Any) -> DType:
    kind = dtype_named(name)
    if kind.lanes != 1:
        raise TEError(f"dtype {kind}: expected a scalar dtype; vectors come from schedule.vectorize")
    return kind


def _body_value(value: Any, name: str) -> Expr:
    if value is None:
        raise TEError(f"compute {name!r}: its function returned None: expected an expression")
    if isinstance(value, Reduction):
        raise TEError(
            f"compute {name!r}: its function returned a tuple with the reduction {value} in it. Give each reduction a computation "
            f"of its own, or reduce the values together with te.comm_reducer(lambda x, y: (..., ...), ...)"
        )
    return wrapped_value(as_expr(value))


# ---------------------------------------------------------------------------------------------------------------- mathematics


def maximum(a: Any, b: Any) -> Expr:
    """The larger of two values; NaN if either is."""
    return tir.maximum(*together(a, b))


def minimum(a: Any, b: Any) -> Expr:
    """The smaller of two values; NaN if either is."""
    return tir.minimum(*together(a, b))


def clip(x: Any, low: Any, high: Any) -> Expr:
    """`x` limited to [low, high]; NaN stays NaN."""
    x, low, high = together(x, low, high)
    return tir.maximum(tir.minimum(x, high), low)


def if_then_else(condition: Any, then: Any, otherwise: Any) -> Expr:
    """`then` where `condition`, else `otherwise`. Only the one taken is evaluated, so that a condition can guard an access."""
    return tir.if_then_else(as_expr(condition), *together(then, otherwise))


def select(condition: Any, then: Any, otherwise: Any) -> Expr:
    """`then` where `condition`, else `otherwise`. Both are evaluated, which is faster; accesses must be in bounds in both."""
    return tir.select(as_expr(condition), *together(then, otherwise))


def const(value: int | float | bool, dtype: Any = "int32") -> Expr:
    """The constant `value` of a dtype, or of the dtype of an expression."""
    return tir.const(value, dtype.as_expr() if isinstance(dtype, ExprLike) else _dtype(dtype))


def min_value(dtype: Any) -> Expr:
    """The smallest finite value of a dtype."""
    kind = _dtype(dtype)
    return tir.const(kind.low, kind)


def max_value(dtype: Any) -> Expr:
    """The largest finite value of a dtype."""
    kind = _dtype(dtype)
    return tir.const(kind.high, kind)


def cast(x: Any, dtype: Any) -> Expr:
    """`x` converted to a dtype; a float becomes an integer by truncation (out of range: any value)."""
    return tir.cast(as_expr(x), _dtype(dtype))


def reinterpret(x: Any, dtype: Any) -> Expr:
    """The bits of `x` read as another dtype of the same width."""
    return tir.reinterpret(as_expr(x), _dtype(dtype))


def fma(a: Any, b: Any, c: Any) -> Expr:
    """a * b + c with one rounding."""
    return call("fma", *together(a, b, c))


def pow(x: Any, y: Any) -> Expr:
    """x to the power y, in floats."""
    return call("pow", *together(x, y))


power = pow  # the name TVM has for it


def exp(x: Any) -> Expr:
    """e to the power x."""
    return call("exp", as_expr(x))


def exp2(x: Any) -> Expr:
    """2 to the power x."""
    return call("exp2", as_expr(x))


def log(x: Any) -> Expr:
    """The natural logarithm."""
    return call("log", as_expr(x))


def log2(x: Any) -> Expr:
    """The logarithm to base 2."""
    return call("log2", as_expr(x))


def log1p(x: Any) -> Expr:
    """log(1 + x), accurate near 0."""
    return call("log1p", as_expr(x))


def sqrt(x: Any) -> Expr:
    """The square root."""
    return call("sqrt", as_expr(x))


def rsqrt(x: Any) -> Expr:
    """1 / sqrt(x)."""
    return call("rsqrt", as_expr(x))


def tanh(x: Any) -> Expr:
    """The hyperbolic tangent."""
    return call("tanh", as_expr(x))


def sigmoid(x: Any) -> Expr:
    """1 / (1 + exp(-x))."""
    return call("sigmoid", as_expr(x))


def erf(x: Any) -> Expr:
    """The error function."""
    return call("erf", as_expr(x))


def sin(x: Any) -> Expr:
    """The sine."""
    return call("sin", as_expr(x))


def cos(x: Any) -> Expr:
    """The cosine."""
    return call("cos", as_expr(x))


def abs(x: Any) -> Expr:
    """The absolute value; of the smallest integer, itself (it wraps)."""
    return call("abs", as_expr(x))


def floor(x: Any) -> Expr:
    """The largest integer not above x, in the dtype of x."""
    return call("floor", as_expr(x))


def ceil(x: Any) -> Expr:
    """The smallest integer not below x, in the dtype of x."""
    return call("ceil", as_expr(x))


def round(x: Any) -> Expr:
    """The nearest integer, halves to even, in the dtype of x."""
    return call("round", as_expr(x))


def trunc(x: Any) -> Expr:
    """x without its fraction, in the dtype of x."""
    return call("trunc", as_expr(x))


def popcount(x: Any) -> Expr:
    """The number of one bits of an integer."""
    return call("popcount", as_expr(x))


def isnan(x: Any) -> Expr:
    """Whether x is NaN."""
    return call("isnan", as_expr(x))


def isinf(x: Any) -> Expr:
    """Whether x is infinite."""
    return call("isinf", as_expr(x))


def isfinite(x: Any) -> Expr:
    """Whether x is neither infinite nor NaN."""
    return call("isfinite", as_expr(x))
