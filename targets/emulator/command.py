"""`tilewright emulate`: the texts of its `--arg` options turned into arguments of a kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...tir.errors import ArgumentError

ARGUMENT_HELP = (
    "One for each parameter, in order: a number; DTYPE:SHAPE[:FILL] for a new array, such as float32:64x64:random (FILL: zeros, ones, arange, random, nan; "
    "default zeros); FILE.npy; or null."
)
_NEW_ARRAY = re.compile(r"(?P<dtype>[a-z]\w*):(?P<shape>\d+(?:x\d+)*)(?::(?P<fill>\w+))?")
_FILLS = ("zeros", "ones", "arange", "random", "nan")


def parse_argument(text: str, number: int) -> Any:
    """The argument that a text stands for; `number`: its place, which makes the seed of random values. Raises ArgumentError."""
    if text == "null":
        return None
    if text.endswith(".npy"):
        return _load(text)
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        pass
    match = _NEW_ARRAY.fullmatch(text)
    if match is None:
        raise ArgumentError(f"--arg {text}: expected a number, DTYPE:SHAPE[:FILL] (for example float32:64x64:random), FILE.npy or null")
    return _new_array(text, match, number)


def _load(text: str) -> NDArray[Any]:
    try:
        return np.load(Path(text))  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise ArgumentError(f"--arg {text}: cannot be read: {error}") from None


def _new_array(text: str, match: re.Match[str], number: int) -> NDArray[Any]:
    try:
        dtype = np.dtype(match["dtype"])
    except TypeError:
        raise ArgumentError(f"--arg {text}: NumPy has no dtype {match['dtype']!r}") from None
    shape = tuple(int(extent) for extent in match["shape"].split("x"))
    fill = match["fill"] or "zeros"
    if fill not in _FILLS:
        raise ArgumentError(f"--arg {text}: expected one of {', '.join(_FILLS)} after the shape, got {fill!r}")
    if fill == "nan" and dtype.kind != "f":
        raise ArgumentError(f"--arg {text}: {dtype} has no NaN")
    if fill == "random":
        generator = np.random.default_rng(number)
        values = generator.standard_normal(shape) if dtype.kind == "f" else generator.integers(0, 100, shape)
        return np.asarray(values).astype(dtype)
    if fill == "arange":
        return np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    return np.full(shape, {"zeros": 0, "ones": 1, "nan": np.nan}[fill], dtype)


def parse_dimensions(name: str, text: str) -> tuple[int, ...]:
    """ "16,16" or "16x16" -> (16, 16). Raises ArgumentError."""
    if not re.fullmatch(r"\d+(?:[,x]\d+){0,2}", text):
        raise ArgumentError(f"--{name} {text}: expected a number or up to three, x first, for example 32 or 16,16")
    return tuple(int(extent) for extent in re.split("[,x]", text))
