"""The private folder in which compiled libraries are kept: an entry is a folder named by the hash of all that went into it.

Many processes may use it at once. An entry is made in a folder of its own and renamed into place, so it is there whole or not at all; who
comes second takes the first one's. The folder must belong to the user alone, since what lies in it is loaded and run.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from ..tir import config
from ..tir.errors import TargetError

_ABANDONED_AFTER_S = 3600  # a folder of a build in progress that is older than this was left by a process that died
_PRUNE_EVERY = 64  # new entries of a process between two looks at the size
_published = 0


def cache_directory() -> Path:
    """The folder, made with mode 0700 where it is missing. A TargetError where another user owns it or may write to it."""
    path = Path(config.CACHE_DIR.value or platformdirs.user_cache_dir("tilewright")).expanduser().absolute() / "c"
    advice = f"; set {config.CACHE_DIR.name} to a folder of your own"
    for folder in (path.parent, path):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = folder.stat()
        except OSError as error:
            raise TargetError(f"the cache folder {folder} cannot be made: {error.strerror}{advice}") from None
        if info.st_uid != os.getuid():
            raise TargetError(f"the cache folder {folder} belongs to user {info.st_uid}, not to you ({os.getuid()}){advice}")
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            mode = f"{stat.S_IMODE(info.st_mode):o}"
            raise TargetError(f"the cache folder {folder} may be written by others (mode {mode}): chmod 700 it{advice}")
    return path


def find(key: str) -> Path | None:
    """The entry of this key, marked as used now, or None."""
    entry = cache_directory() / key
    try:
        os.utime(entry)
    except FileNotFoundError:
        return None
    except OSError:  # a folder that may only be read
        return entry if entry.is_dir() else None
    return entry


@contextmanager
def work_folder() -> Iterator[Path]:
    """An empty folder in which to make an entry; gone afterwards unless `publish` moved it."""
    parent = cache_directory()
    try:
        folder = Path(tempfile.mkdtemp(prefix="making-", dir=parent))
    except OSError as error:
        raise TargetError(f"nothing can be written to the cache folder {parent}: {error.strerror}; set {config.CACHE_DIR.name} to another folder") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, key: str, *, replace: bool = False) -> Path:
    """Move a finished work folder to the entry `key` and return the entry; an entry that is there already wins unless `replace`."""
    global _published  # noqa: PLW0603 - one counter a process, and losing a count between threads does no harm
    entry = folder.parent / key
    if replace and entry.exists():
        shutil.rmtree(entry, ignore_errors=True)
    try:
        folder.rename(entry)
    except OSError:
        if not entry.is_dir():
            raise
    _published += 1
    if _published % _PRUNE_EVERY == 0:
        prune(config.CACHE_MB.value << 20)
    return entry


def prune(limit_bytes: int) -> None:
    """Remove the entries not used for longest until the rest takes three quarters of `limit_bytes`, if it takes more than that limit.

    A library that is loaded stays usable without its file. Who finds an entry gone between finding and loading it compiles again.
    """
    entries: list[tuple[float, int, Path]] = []
    now = time.time()
    for folder in cache_directory().iterdir():
        try:
            used = folder.stat().st_mtime
            size = sum(file.stat().st_size for file in folder.iterdir())
        except OSError:
            continue  # another process removed it just now
        if folder.name.startswith("making-"):
            if now - used > _ABANDONED_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
            continue
        entries.append((used, size, folder))
    total = sum(size for _, size, _ in entries)
    if total <= limit_bytes:
        return
    for _, size, folder in sorted(entries, key=lambda entry: entry[0]):
        if total <= limit_bytes * 3 // 4:
            break
        shutil.rmtree(folder, ignore_errors=True)
        total -= size
        if config.DEBUG.value:
            print(f"tilewright: removed {folder.name} from the cache ({size} bytes)", file=sys.stderr)
