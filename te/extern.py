"""te.extern: tensors that a C function computes, one of the user's or of a library.

The operation and how its call is declared. It is called once, on whole tensors; see tir.stmt.CallExtern for the statement it becomes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..tir.dtype import DType
from ..tir.dtype import dtype as dtype_named
from ..tir.errors import TEError
from ..tir.expr import Const, Expr, ExprLike, Load, as_expr, const, load
from ..tir.visit import loads_of
from .axis import IterVar, extent_value
from .check import check_shape
from .graph import operations, sizes_of
from .intrin import C_WORDS
from .op import Operation
from .tensor import Tensor

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LIBRARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")
_FILE = re.compile(r"/[\w ./+~=@%-]*\Z")  # no sign that a path to search has a meaning for, as : and $
_SCALARS = ("int32", "int64", "uint32", "float32", "float64")


class Address:
    """The address of an element, as an argument of a C function. Made by te.address_of."""

    __slots__ = ("element",)

    def __init__(self, element: Load):
        self.element = element

    def __repr__(self) -> str:
        return f"&{self.element}"


class ExternCall:
    """A call of a C function that te.call_extern declared: `symbol`, `args` (a Load stands for the address of its element), `types` (None: an address)."""

    __slots__ = ("args", "symbol", "types")

    def __init__(self, symbol: str, args: tuple[Expr, ...], types: tuple[DType | None, ...]):
        self.symbol, self.args, self.types = symbol, args, types

    def __repr__(self) -> str:
        return f"{self.symbol}({', '.join(('' if t is not None else '&') + str(a) for a, t in zip(self.args, self.types, strict=True))})"


class ExternOp(Operation):
    """Tensors that a C function computes. Attributes: `call`, `libraries`, `writes` (which arguments of the call are addresses in outputs)."""

    __slots__ = ("axis", "call", "libraries", "reduce_axis", "reducer", "writes")

    def __init__(self, name: str, inputs: Sequence[Tensor], shapes: Sequence[tuple[int | Expr, ...]], dtypes: Sequence[DType], libraries: tuple[str, ...]):
        self.name, self.libraries = name, libraries
        self.input_tensors = tuple(dict.fromkeys(inputs))
        self.axis: tuple[IterVar, ...] = ()  # it has no loops
        self.reduce_axis: tuple[IterVar, ...] = ()
        self.reducer = None
        self.writes: frozenset[int] = frozenset()
        names = [name] if len(shapes) == 1 else [f"{name}.v{i}" for i in range(len(shapes))]
        self.outputs = tuple(Tensor(self, i, s, d, n) for i, (s, d, n) in enumerate(zip(shapes, dtypes, names, strict=True)))

    def set_call(self, call: ExternCall) -> None:
        """What is called; a TEError where it touches what it may not, or leaves an output alone."""
        self.call = call
        own, known = {t.buffer: t for t in self.outputs}, {t.buffer for t in self.input_tensors}
        pointers = {n: a.buffer for n, (a, kind) in enumerate(zip(call.args, call.types, strict=True)) if kind is None and isinstance(a, Load)}
        for number, buffer in pointers.items():
            if buffer not in own and buffer not in known:
                raise TEError(f"extern {self.name!r}: argument {number} of {call.symbol} is an address in {buffer.name!r}, which is neither among its inputs "
                              f"({', '.join(t.name for t in self.input_tensors) or 'none'}) nor an output")  # fmt: skip
        self.writes = frozenset(n for n, buffer in pointers.items() if buffer in own)
        for buffer in own:
            if buffer not in pointers.values():
                raise TEError(f"extern {self.name!r}: {call.symbol} is not given output {buffer.name!r}, so nothing would compute it: pass outs[i]")
        sizes = sizes_of(operations([self]))
        for argument in call.args:
            for variable in argument.variables:
                if variable not in sizes:
                    raise TEError(f"extern {self.name!r}: {variable.name!r} in argument {argument} of {call.symbol} is no size: expected one in the shape "
                                  "of a tensor that it uses")  # fmt: skip

    def __repr__(self) -> str:
        return f"{self.name} = extern {self.call!r}"


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Tensor], list[Tensor]], ExternCall],
    name: str = "extern",
    dtype: Any = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> Any:
    """Tensors of `shape` that a C function computes from `inputs`: `fcompute(ins, outs)` returns the call, made by te.call_extern.

    C[M, N] = A[M, K] B[K, N] by a library:

        C = te.extern((M, N), [A, B], lambda ins, outs: te.call_extern(
            "cblas_sgemm", 101, 111, 111, M, N, K, te.const(1.0, "float32"), ins[0], K, ins[1], N, te.const(0.0, "float32"), outs[0], N,
        ), name="C", dtype="float32", libraries=["cblas"])

    which lowers to

        call cblas_sgemm(101, 111, 111, M, N, K, 1.0, &A[0, 0], K, &B[0, 0], N, 0.0, &C[0, 0], N)

    `shape`: one shape, or a list of shapes for several outputs, which come back as a list; `dtype`: of the outputs, one for all or a list, by default that of
    the first input. `libraries`: names as the linker knows them (`-lcblas`), or files of shared libraries by their whole paths, which are then also where
    the kernel looks for them when it is loaded; the C library is always there. The function is called once, at root, with whole dense tensors in row-major
    order; it must return, whatever it returns is ignored, and it must keep to the shapes it is told and write no input.

    The stage has no loops: primitives refuse it, and the stages it reads are stored whole. To run it in the interpreter, give a Python function with
    tir.interp.register_extern. Raises TEError for a symbol that is no C identifier, a library that is neither a plain name nor a file,
    an output that is not passed, or an address in a tensor that was not declared.
    """
    if not isinstance(name, str):
        raise TEError(f"extern: the name is {name!r}: expected a text")
    ins: list[Any] = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    for tensor in ins:
        if not isinstance(tensor, Tensor):
            raise TEError(f"extern {name!r}: input {tensor!r}: expected a tensor")
    several = isinstance(shape, list) and bool(shape) and all(isinstance(s, (list, tuple)) for s in shape)
    shapes = [_shape(s, name) for s in (shape if several else [shape])]
    wanted = list(dtype) if isinstance(dtype, (list, tuple)) else [dtype] * len(shapes)
    if len(wanted) != len(shapes):
        raise TEError(f"extern {name!r}: {len(shapes)} shape(s) and {len(wanted)} dtype(s): expected one dtype, or one for each output")
    if None in wanted and not ins:
        raise TEError(f"extern {name!r}: without inputs its dtype is not known: give dtype=")
    dtypes = [ins[0].dtype if d is None else dtype_named(d) for d in wanted]
    if any(d.lanes != 1 for d in dtypes):
        raise TEError(f"extern {name!r}: dtypes {', '.join(map(str, dtypes))}: expected scalar ones")
    op = ExternOp(name, ins, shapes, dtypes, _libraries(libraries, name))
    if not callable(fcompute):
        raise TEError(f"extern {name!r}: fcompute is {fcompute!r}: expected a function of (ins, outs) that returns te.call_extern(...)")
    call = fcompute(ins, list(op.outputs))
    if not isinstance(call, ExternCall):
        raise TEError(f"extern {name!r}: its function returned {call!r}: expected te.call_extern(symbol, ...)")
    op.set_call(call)
    return list(op.outputs) if several else op.output(0)


def _shape(shape: Any, name: str) -> tuple[int | Expr, ...]:
    listed = shape if isinstance(shape, (list, tuple)) else (shape,)
    extents = tuple(extent_value(extent, f"extern {name!r}: extent {d}") for d, extent in enumerate(listed))
    check_shape(extents, f"extern {name!r}")
    return extents


def _libraries(libraries: Any, name: str) -> tuple[str, ...]:
    if isinstance(libraries, str) or not isinstance(libraries, (list, tuple)):
        raise TEError(f"extern {name!r}: libraries is {libraries!r}: expected a list of names, such as ['m']")
    return tuple(_library(library, name) for library in libraries)


def _library(library: Any, name: str) -> str:
    text = os.fspath(library) if isinstance(library, os.PathLike) else library
    if isinstance(text, str) and _LIBRARY.match(text):
        return text
    if not isinstance(text, str) or not _FILE.match(text):
        raise TEError(f"extern {name!r}: library {library!r}: expected a name as the linker knows it (letters, digits, _ . + -), such as 'm' for libm.so, "
                      "or the whole path of a shared library (letters, digits, space and / _ . + - ~ = @ %)")  # fmt: skip
    if not os.path.isfile(text):
        raise TEError(f"extern {name!r}: library {text!r}: there is no such file; expected a shared library")
    return text


def call_extern(symbol: str, *args: Any) -> ExternCall:
    """The call of a C function, for te.extern. An argument is a tensor (the address of its first element), te.address_of(T, i, ...), or a number: an int
    (passed as int32_t, or int64_t where it does not fit), a float (double), or an expression of sizes and te.const(value, dtype), passed in its dtype.

    Raises TEError if `symbol` is no C identifier or a word of the language, or an argument is something else, a value that is read from memory too.
    """
    if not isinstance(symbol, str) or not _SYMBOL.match(symbol):
        raise TEError(f"call_extern: the symbol {str(symbol)[:60]!r} is no C identifier: expected letters, digits and _, not beginning with a digit")
    if symbol in C_WORDS:
        raise TEError(f"call_extern: the symbol {symbol!r} is a word of the language C: expected the name of a function")
    found = [_argument(a, f"call_extern {symbol}: argument {n}") for n, a in enumerate(args)]
    return ExternCall(symbol, tuple(e for e, _ in found), tuple(kind for _, kind in found))


def address_of(tensor: Tensor, *indices: Any) -> Address:
    """The address of an element of a tensor, as an argument of te.call_extern: a part of the tensor begins there."""
    if not isinstance(tensor, Tensor):
        raise TEError(f"address_of: expected a tensor and indices, found {tensor!r}")
    element = tensor(*indices)
    assert isinstance(element, Load)
    if any(loads_of(index) for index in element.indices):
        raise TEError(f"address_of {tensor.name!r}: {element} is known only when the tensor is read: expected indices of numbers and sizes")
    return Address(element)


def _argument(value: Any, what: str) -> tuple[Expr, DType | None]:
    if isinstance(value, Tensor):
        return load(value.buffer, [const(0, "int32") for _ in value.shape]), None
    if isinstance(value, Address):
        return value.element, None
    if isinstance(value, float):
        return const(value, "float64"), dtype_named("float64")
    if isinstance(value, int) and not isinstance(value, bool):
        kind = dtype_named("int32" if -(1 << 31) <= value < 1 << 31 else "int64")
        if not -(1 << 63) <= value < 1 << 63:
            raise TEError(f"{what} is {value}, which no C integer holds")
        return const(value, kind), kind
    if not isinstance(value, ExprLike):
        raise TEError(f"{what} is {value!r}: expected a tensor, te.address_of(...), a number or an expression of sizes")
    e = as_expr(value)
    if loads_of(e):
        raise TEError(f"{what} is {e}, a value in memory: pass its address, te.address_of(T, i, ...), or a number that is known before")
    if e.dtype not in _SCALARS or (not isinstance(e, Const) and not e.dtype.is_integer):
        raise TEError(f"{what} is {e} of dtype {e.dtype}: expected an integer of sizes or a constant, of dtype {', '.join(_SCALARS)}")
    return e, e.dtype
