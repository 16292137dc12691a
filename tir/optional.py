"""Packages that Tilewright can live without: imported where they are used, with a sentence on what to install when they are missing."""

from __future__ import annotations

import importlib
from typing import Any


def optional_import(module: str, needed_for: str, extra: str) -> Any:
    """The module of that name; ImportError that says what needs it and which extra of Tilewright brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{needed_for} needs the package '{module.partition('.')[0]}', which is not installed: pip install 'tilewright[{extra}]'") from error
