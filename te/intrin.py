"""Tensor intrinsics: a small computation (the pattern) and the code that does it, for s[T].tensorize.

What is declared here is data; that a loop nest is the pattern is decided in schedule/tensorize.py. Ready-made ones are in intrinsics.py.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..tir.errors import TEError
from ..tir.expr import Expr, IfThenElse, Load, Var
from ..tir.gpu import WARP_SIZE
from ..tir.stmt import Fragment, IntrinsicCode
from ..tir.visit import loads_of, walk
from .axis import IterVar
from .op import ComputeOp, PlaceholderOp
from .tensor import Tensor

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
C_WORDS = frozenset(
    ["auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int",
     "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile",
     "while", "asm", "typeof"]
)  # fmt: skip
_TEXTS = ("c", "cuda")  # the kinds of targets with a language

FRAGMENT_SCOPES = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")

_KNOWN: dict[str, TensorIntrin] = {}
_READY: dict[str, Callable[[], TensorIntrin]] = {}  # what declares an intrinsic that is ready-made, when it is first asked for


@dataclass(frozen=True, eq=False, repr=False)
class TensorIntrin:
    """A pattern and its codes. Make it with te.decl_tensor_intrin.

    `body` computes the pattern; of a reduction, `update` adds the pattern's terms to what is there, and `init` stores the identity before.
    """

    name: str
    op: ComputeOp
    body: IntrinsicCode | None
    init: IntrinsicCode | None
    update: IntrinsicCode | None

    @property
    def output(self) -> Tensor:
        """What the pattern computes."""
        return self.op.output(0)

    @property
    def axes(self) -> tuple[IterVar, ...]:
        """The loops of the pattern, the reduce axes last."""
        return (*self.op.axis, *self.op.reduce_axis)

    def __repr__(self) -> str:
        return f"tensor intrinsic {self.name}: {self.op}"


def tensor_intrin(name: str) -> TensorIntrin:
    """The tensor intrinsic that was declared under a name; a TEError lists those that were."""
    if isinstance(name, str) and name in _READY and name not in _KNOWN:
        return _READY[name]()
    found = _KNOWN.get(name) if isinstance(name, str) else None
    if found is None:
        known = {**_KNOWN, **_READY}
        near = difflib.get_close_matches(str(name)[:60].lower(), known, n=8, cutoff=0.5) or list(known)[:8]
        raise TEError(f"no tensor intrinsic is declared under the name {str(name)[:60]!r}: known are {', '.join(near)} and {len(known) - len(near)} others "
                      "(docs/cuda.md lists those of tensor cores); declare it first, with te.decl_tensor_intrin(op, name=...)")  # fmt: skip
    return found


def ready_made(name: str, declare: Callable[[], TensorIntrin]) -> None:
    """Lets the intrinsic `name` be found by its name; `declare` declares it, when it is first asked for."""
    _READY[name] = declare


def decl_tensor_intrin(
    op: Any,
    body: Mapping[str, Any] | None = None,
    init: Mapping[str, Any] | None = None,
    update: Mapping[str, Any] | None = None,
    name: str | None = None,
    fragments: Mapping[str, tuple[str, str] | tuple[str, str, int]] | None = None,
    aligned: Mapping[str, int] | None = None,
    in_shared: Sequence[str] = (),
    leading: Mapping[str, int] | None = None,
) -> TensorIntrin:
    """Declares what a loop nest can be replaced by, with s[T].tensorize(axis, intrinsic).

    `op`: the pattern, a computation of placeholders with constant shapes. Each is read once, at axes of the pattern, such as
    `c[i, j] = sum(a[i, k] * b[k, j], axis=k)`. An axis of extent 1 stands for none: with `k` of extent 1 this is an outer product added to c.

    `body`, `init`, `update`: codes, each `{"c": text, "cuda": text, "python": function}`, with one of the texts or both. Of a plain computation: `body`.
    Of a reduction: `update` adds the terms of the pattern to what the output holds, `init` (optional) stores the identity before, and `body` does both where
    the nest holds the whole reduction; at least one of `update` and `body`. The text is the body of a function in C, or of a device function in CUDA C++: for
    each tensor x of the pattern it has the pointer `x` and the distances `x_0`, `x_1` ... (integers, in elements) between neighbours along its dimensions;
    those of an `init` are of the output only; float16 and bfloat16 are their bits in an unsigned integer of 16 bits there, float8 and bool those in one of 8.
    A text for "cuda" may call the functions of targets/cuda_helpers.py (`tw_mma_m16n8k16_f16_f32` ...). The function gets NumPy arrays of the shapes of the
    pattern, the output first, and writes into it; the interpreter, which checks kernels, uses it.

    `fragments`: on a GPU, the tensors that the 32 lanes of a warp hold in registers together, {"a": (scope, layout)}: the scope that the stage of `a` must
    have ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"), and any name for which lane has which elements. Then `a` in the text for "cuda" is a lane's
    own array, of a 32nd of the elements, and has no distances, and the 32 lanes run the text together; (scope, layout, copies) where so many lanes hold
    each element. Each element of the output is written by one lane, the same one for every tile.

    Of the tensors in memory, `aligned`: {"s": bytes}, those whose elements must lie side by side along one dimension, and begin at a multiple of so many bytes
    along the others; `in_shared`: those that must be in shared memory; `leading`: {"s": bytes}, matrices that are told by their first element, which alone is
    `aligned` then, and their leading dimension: elements lie side by side along the last dimension, rows are a positive multiple of so many bytes apart.

    `name`: by which it is recorded in schedules and found in replays (default: the name of `op`). A name that was declared before is declared anew.

    Raises TEError if the pattern or a code is none.
    """
    op = op.op if isinstance(op, Tensor) else op
    if not isinstance(op, ComputeOp):
        raise TEError(f"decl_tensor_intrin: the pattern is {op!r}: expected a computation, as te.compute makes it")
    name = op.name if name is None else name
    if not isinstance(name, str) or not _IDENTIFIER.match(name):
        raise TEError(f"decl_tensor_intrin: the name {str(name)[:60]!r} is no C identifier: expected a letter, then letters, digits and _")
    what = f"tensor intrinsic {name}"
    _check_pattern(op, what)
    if op.reducer is None:
        if body is None or init is not None or update is not None:
            raise TEError(f"{what}: its pattern is no reduction: expected body= and neither init= nor update=")
    elif update is None and (body is None or init is not None):
        raise TEError(f"{what}: its pattern is a reduction: expected update= (and init=, if it has one), or body=, which does both")
    tensors = (*op.outputs, *op.input_tensors)
    held = _fragments(fragments or {}, tensors, what)
    for option, named in (("aligned", aligned or {}), ("in_shared", in_shared), ("leading", leading or {})):
        _check_named(named, tensors, f"{what}: {option}=")
    for each in leading or {}:
        if next(t for t in tensors if t.name == each).ndim != 2:
            raise TEError(f"{what}: leading= {each!r}: expected a tensor of the pattern with 2 dimensions")
    given = {"body": body, "init": init, "update": update}
    forms = [None if each is None else _code(each, name, form, tensors, held, _Memory(aligned or {}, in_shared, leading or {})) for form, each in given.items()]
    found = _KNOWN[name] = TensorIntrin(name, op, *forms)
    return found


def _check_named(named: Any, tensors: Sequence[Tensor], what: str) -> None:
    """A TEError where these are no tensors of the pattern."""
    for each in named:
        if each not in [t.name for t in tensors]:
            raise TEError(f"{what} {each!r}: the tensors of the pattern are {', '.join(t.name for t in tensors)}")


@dataclass(frozen=True)
class _Memory:
    """What an intrinsic asks of the tensors of its pattern that are in memory; see decl_tensor_intrin."""

    aligned: Mapping[str, int]
    in_shared: Sequence[str]
    leading: Mapping[str, int]


def _fragments(given: Mapping[str, tuple[str, str] | tuple[str, str, int]], tensors: Sequence[Tensor], what: str) -> dict[str, Fragment]:
    _check_named(given, tensors, f"{what}: fragments=")
    found = {}
    for tensor in tensors:
        if tensor.name not in given:
            continue
        pair = given[tensor.name]
        if not isinstance(pair, tuple) or len(pair) not in (2, 3) or pair[0] not in FRAGMENT_SCOPES or not isinstance(pair[1], str):
            raise TEError(f"{what}: the fragment {tensor.name} is {pair!r}: expected (scope, layout), the scope one of {', '.join(FRAGMENT_SCOPES)}")
        if not isinstance(pair[-1], str) and (type(pair[-1]) is not int or pair[-1] < 1):
            raise TEError(f"{what}: the fragment {tensor.name} is held {pair[-1]!r} times: expected a positive integer")
        elements = math.prod(e for e in tensor.shape if isinstance(e, int))
        if elements % WARP_SIZE:
            raise TEError(f"{what}: the fragment {tensor.name} has {elements} elements, of which {WARP_SIZE} lanes cannot hold equal shares")
        found[tensor.name] = Fragment(*pair)
    return found


def _code(given: Any, name: str, form: str, tensors: tuple[Tensor, ...], held: Mapping[str, Fragment], memory: _Memory) -> IntrinsicCode:
    what = f"tensor intrinsic {name}: {form}"
    expected = 'expected {"c" or "cuda": the text of a function\'s body, "python": a function on NumPy arrays}'
    if not isinstance(given, Mapping):
        raise TEError(f"{what} is {given!r}: {expected}")
    unknown = [str(key) for key in given if key not in (*_TEXTS, "python")]
    if unknown or "python" not in given or len(given) == 1:
        missing = "'python'" if "python" not in given else "any target"
        found = f"unknown target {', '.join(map(repr, unknown))}" if unknown else f"nothing for {missing}"
        raise TEError(f"{what} has {found}: {expected}")
    texts, function = {key: given[key] for key in _TEXTS if key in given}, given["python"]
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise TEError(f"{what}: the code for {key!r} is {text!r}: expected the text of a function's body")
    if not callable(function):
        raise TEError(f"{what}: the code for 'python' is {function!r}: expected a function of {', '.join(t.name for t in tensors)}")
    if form == "init":
        tensors = tensors[:1]
    names = tuple(t.name for t in tensors)
    shapes = tuple(tuple(int(e) for e in t.shape if isinstance(e, int)) for t in tensors)
    here: list[dict[str, Any]] = [{key: value for key, value in each.items() if key in names} for each in (held, memory.aligned, memory.leading)]
    in_shared = tuple(n for n in memory.in_shared if n in names)
    return IntrinsicCode(f"{name}_{form}", names, shapes, texts, function, here[0], here[1], in_shared, here[2])


def _check_pattern(op: ComputeOp, what: str) -> None:
    if len(op.outputs) != 1 or op.condition is not None or op.init is not None:
        raise TEError(f"{what}: its pattern has several outputs, where= or init=: expected one output and none of these")
    names: set[str] = set()
    for tensor in (*op.outputs, *op.input_tensors):
        if tensor is not op.outputs[0] and not isinstance(tensor.op, PlaceholderOp):
            raise TEError(f"{what}: its pattern reads {tensor.name}, which is computed: expected placeholders only")
        if not _IDENTIFIER.match(tensor.name) or tensor.name in C_WORDS or tensor.name in names:
            raise TEError(f"{what}: a tensor of its pattern is called {tensor.name!r}: expected different names that can be parameters of a C function")
        names.add(tensor.name)
        if any(not isinstance(e, int) or e < 1 for e in tensor.shape):
            raise TEError(f"{what}: tensor {tensor.name} has the shape {tensor.shape_text}: expected constant extents, at least 1")
    axes = {axis.var for axis in (*op.axis, *op.reduce_axis)}
    if any(axis.dom is None or not isinstance(axis.dom.extent, int) or axis.dom.min != 0 or axis.dom.extent < 1 for axis in op.reduce_axis):
        raise TEError(f"{what}: its reduce axes must run from 0, over a constant extent of at least 1")
    loads = loads_of(op.body[0])
    for tensor in op.input_tensors:
        found = [node for node in loads if node.buffer is tensor.buffer]
        if len(found) != 1 or len(set(found[0].indices)) < tensor.ndim or any(i not in axes for i in found[0].indices):
            raise TEError(f"{what}: its pattern reads {', '.join(map(str, found))}: expected each tensor to be read once, with different axes as indices")
        for index, extent in zip(found[0].indices, tensor.shape, strict=True):
            axis = next(a for a in (*op.axis, *op.reduce_axis) if a.var is index)
            if axis.dom is None or axis.dom.extent != extent:
                raise TEError(f"{what}: {found[0]} reads a part of {tensor.name}, of shape {tensor.shape_text}, along {axis.name}: expected all of it")
    if any(isinstance(e, IfThenElse) for e in walk(op.body[0])):  # what stands for an operand is read whole, and might be outside its buffer
        raise TEError(f"{what}: its pattern, {op.body[0]}, reads under a condition, but an intrinsic reads all elements: expected te.select instead")
    if _uses_axes(op.body[0]):
        raise TEError(f"{what}: its pattern, {op.body[0]}, computes with an axis: expected axes as indices only")


def _uses_axes(e: Expr) -> bool:
    """Whether a variable occurs outside indices."""
    if isinstance(e, Load):
        return False
    return isinstance(e, Var) or any(_uses_axes(child) for child in e.children)
