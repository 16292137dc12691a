"""Libraries and cache entries that something damaged, and names that no language would take: errors or repair, never the end of the process."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.targets import cache, toolchain
from tilewright.targets.loader import is_whole

NAMES = ['a"b', "it's", "for", "int", "linux", "INT32_MAX", 'x;system("rm")', "*/ int x; /*", "ünï", "", "a\nb", "\\n", "%s", "??/", "1a", "a\0b", "\ud800"]


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def doubling(name="kernel"):
    n = te.size_var(name)
    A = te.placeholder((n,), name=name)
    B = te.compute((n,), lambda i: A[i] * 2.0, name=name)
    return tw.build(tw.create_schedule(B), [A, B], name=name)


def check(module):
    a, b = np.arange(5, dtype="float32"), np.empty(5, "float32")
    module(a, b)
    assert (b == a * 2).all()


@pytest.mark.parametrize("name", NAMES)
def test_names(name, tmp_path):
    module = doubling(name)
    check(module)
    module.export_library(tmp_path / "it.so")
    check(tw.load_module(tmp_path / "it.so"))
    (tmp_path / "main.c").write_text('#include "it.h"\n')
    subprocess.run(["gcc", "-Wall", "-Werror", "-fsyntax-only", tmp_path / "main.c"], check=True)


@pytest.mark.parametrize("name", [None, 5, b"x", ["a"]])
def test_names_are_text(name):
    A = te.placeholder((3,), name="A")
    B = te.compute((3,), lambda i: A[i] * 2.0, name="B")
    for declare in (
        lambda: te.placeholder((3,), name=name), lambda: te.compute((3,), lambda i: A[i], name=name), lambda: te.reduce_axis((0, 3), name),
        lambda: te.var(name), lambda: te.size_var(name),
    ):  # fmt: skip
        with pytest.raises(tw.TEError, match="name"):
            declare()
    with pytest.raises(tw.ScheduleError, match="name"):
        tw.build(tw.create_schedule(B), [A, B], name=name)


@pytest.mark.parametrize("part", [0, 40, 100, 0.3, 0.6, 0.999])
def test_a_library_that_ends_too_early(part, tmp_path):
    """The dynamic linker maps what the header says; a page that is not in the file would be a bus error."""
    path = tmp_path / "it.so"
    doubling().export_library(path)
    content = path.read_bytes()
    assert is_whole(path)
    path.write_bytes(content[: part if isinstance(part, int) else int(part * len(content))])
    assert not is_whole(path)
    with pytest.raises(tw.TargetError):
        tw.load_module(path)


@pytest.mark.parametrize("damage", ["shortened", "emptied", "removed"])
def test_a_damaged_entry_of_the_cache_is_made_again(damage, empty_cache):
    first = doubling()
    library = Path(first.library_path)
    first.close()
    content = library.read_bytes()
    library.unlink()
    if damage != "removed":
        library.write_bytes(content[: len(content) // 2 if damage == "shortened" else 0])
    check(doubling())
    assert is_whole(library)


def test_a_cache_that_cannot_be_written(empty_cache, monkeypatch):
    """Entries that are there still serve; a new one is an error that says what to do."""
    doubling("there").close()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    monkeypatch.setattr(cache.os, "utime", refuse)
    check(doubling("there"))
    with pytest.raises(tw.TargetError, match="TILEWRIGHT_CACHE_DIR"):
        doubling("new")


def test_a_build_that_was_killed_leaves_nothing_that_is_used(empty_cache):
    """What it leaves is a folder with another name than the entry's."""
    with cache.work_folder() as folder:
        (folder / toolchain.LIBRARY_NAME).write_bytes(b"half")
        shutil.copytree(folder, folder.with_name("making-abandoned"))
    check(doubling())


def test_a_view_that_only_claims_to_be_negated():
    """PyTorch's `z.conj().imag` has the memory of `z.imag`; its export through DLPack does not say so."""

    class Negated:
        def __init__(self, array):
            self.array = array

        def is_neg(self):
            return True

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    with pytest.raises(tw.ArgumentError, match="other sign"):
        doubling()(Negated(np.ones(5, "float32")), np.empty(5, "float32"))
