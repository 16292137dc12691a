"""The compiler, its cache, and what is said when something is wrong."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright.targets import cache, toolchain
from tilewright.targets.module import compile_module
from tilewright.tir.errors import CompileError, TargetError
from tilewright.tir.target import Target

from . import kernels
from .processes import check_python, run_python

TARGET = Target("c", threads=2)


def is_complete(name):
    """Whether this compiler is here, with its runtimes of OpenMP and the sanitizers."""
    flags = ("-fopenmp", "-fsanitize=address,undefined", "-shared", "-fPIC", "-xc", "-", "-o", os.devnull)
    return (
        shutil.which(name) is not None
        and subprocess.run([name, *flags], input="#include <omp.h>\n", text=True, capture_output=True, check=False).returncode == 0
    )


COMPILERS = [name for name in ("gcc", "clang") if is_complete(name)]


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def counting_compiler(tmp_path):
    """A compiler that writes a line each time it compiles."""
    path, log = tmp_path / "counting-cc", tmp_path / "runs"
    path.write_text(f'#!/bin/sh\ncase "$*" in *kernel.c*) echo run >> {log};; esac\nexec gcc "$@"\n')
    path.chmod(0o755)

    def runs():
        return log.read_text().count("run") if log.exists() else 0

    return str(path), runs


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_compiler(name, threads):
    module = compile_module(kernels.parallel_fill(8, threads), Target("c", threads=threads, compiler=name))
    c, ids = np.empty(8, "int32"), np.empty(1, "int32")
    module(c, ids)
    assert ids[0] == threads and c[-1] == threads - 1


def test_the_second_build_does_not_call_the_compiler(empty_cache, counting_compiler):
    compiler, runs = counting_compiler
    target = Target("c", compiler=compiler)
    first = toolchain.compile_source(kernels.add().source, target)
    second = toolchain.compile_source(kernels.add().source, target)
    assert runs() == 1 and not first.cached and second.cached and first.seconds > 0 == second.seconds
    assert first.library_path == second.library_path
    assert toolchain.compile_source(kernels.add(salt="other").source, target).library_path != first.library_path
    assert runs() == 2


def test_what_makes_another_build(empty_cache):
    """The key has the flags and what 'native' means; different targets never share a library."""
    source = kernels.add().source
    targets = [
        TARGET,
        Target("c", opt="-O3"),
        Target("c", march="x86-64-v2"),
        Target("c", sanitize=True),
        Target("c", cpu="another processor"),
    ]
    paths = {toolchain.compile_source(source, target).library_path for target in targets}
    paths.add(toolchain.compile_source(source, TARGET, uses_openmp=True).library_path)
    assert len(paths) == 6
    assert toolchain.compile_source(source, Target("c", threads=1)).library_path in paths, "threads are in the source, not in the flags"


def test_an_upgraded_compiler_is_asked_again(empty_cache, counting_compiler):
    compiler, runs = counting_compiler
    target = Target("c", compiler=compiler)
    toolchain.compile_source(kernels.add().source, target)
    text = Path(compiler).read_text()
    Path(compiler).write_text(text.replace("exec gcc", '[ "$1" = --version ] && echo newer 13.0 && exit\nexec gcc'))
    toolchain.compile_source(kernels.add().source, target)
    assert runs() == 2


def test_an_entry_keeps_source_command_and_log(empty_cache):
    generated = kernels.add()
    build = toolchain.compile_source(generated.source.replace("return 0;", 'int x = "text"; return x * 0;'), TARGET)
    entry = build.library_path.parent
    assert build.source_path.read_text().startswith("#include <stdint.h>")
    command, version = (entry / toolchain.COMMAND_NAME).read_text().splitlines()
    assert command == " ".join(build.command) and version == toolchain.find_compiler().version
    assert "warning" in (entry / toolchain.LOG_NAME).read_text()
    # the kept command makes the library again
    (entry / toolchain.LIBRARY_NAME).unlink()
    subprocess.run(command, shell=True, cwd=entry, check=True, capture_output=True)
    assert (entry / toolchain.LIBRARY_NAME).exists()


def test_compile_error(empty_cache):
    source = "int32_t broken(float *A) { return undeclared_name; }\n"
    for _ in range(2):  # a failure is not cached as a success, and its folder is replaced
        with pytest.raises(CompileError, match=r"ended with status 1: kernel\.c:1:1: error: unknown type name .int32_t") as caught:
            toolchain.compile_source(source, TARGET)
    error = caught.value
    assert "undeclared_name" in error.stderr
    assert Path(error.source_path).read_text() == source
    assert error.command[0] == toolchain.find_compiler().path and "-O2" in error.command
    assert error.source_path in str(error) and "-march=native" in str(error)


def test_unknown_architectures_are_the_compilers_to_refuse():
    with pytest.raises(CompileError, match="i486-turbo"):
        toolchain.compile_source(kernels.add().source, Target("c", march="i486-turbo"))


@pytest.fixture
def only_zig(monkeypatch, tmp_path):
    """A machine whose one compiler is in the package ziglang; in its place a script that does what `zig cc` does, with gcc."""
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    real = shutil.which("gcc")
    script = f'#!/bin/sh\n[ "$1" = cc ] || exit 1\nshift\ncase "$*" in *march=x86-*|*fopenmp*) exit 1;; esac\nexport PATH=/usr/bin:/bin\nexec {real} "$@"\n'
    (package / "zig").write_text(script)
    (package / "zig").chmod(0o755)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_CC", raising=False)
    return str(package / "zig")


def test_zig_serves_where_there_is_no_other_compiler(only_zig):
    compiler = toolchain.find_compiler()
    assert compiler == toolchain.find_compiler("zig")
    assert (compiler.family, compiler.command) == ("zig", (only_zig, "cc"))
    module = compile_module(kernels.parallel_fill(12, 2), Target("c", threads=2))
    c, ids = np.empty(12, "int32"), np.empty(1, "int32")
    module(c, ids)
    assert ids[0] == 1 and not c.any()  # thread 0 of 1 did it all
    assert "-march=x86_64_v3" in toolchain.flags(Target("c", march="x86-64-v3"), compiler, False)
    with pytest.raises(TargetError, match="no sanitizers"):
        compile_module(kernels.add(), Target("c", sanitize=True))


def test_compilers_that_are_not_there(monkeypatch, tmp_path):
    with pytest.raises(TargetError, match=r"compiler 'no-such-cc' \(Target\(compiler=\)\) is not on the PATH"):
        toolchain.compile_source("", Target("c", compiler="no-such-cc"))
    monkeypatch.setenv("TILEWRIGHT_CC", "no-such-cc")
    with pytest.raises(TargetError, match="TILEWRIGHT_CC"):
        toolchain.find_compiler()
    monkeypatch.setenv("TILEWRIGHT_CC", "gcc")
    assert toolchain.find_compiler().family == "gcc"
    monkeypatch.delenv("TILEWRIGHT_CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TargetError, match=r"no C compiler found.*install gcc or clang, or `pip install ziglang`"):
        toolchain.find_compiler()
    (tmp_path / "gcc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "gcc").chmod(0o755)
    with pytest.raises(TargetError, match="does not answer"):
        toolchain.find_compiler()


def test_the_cache_folder_is_private(empty_cache):
    folder = cache.cache_directory()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 == stat.S_IMODE(empty_cache.stat().st_mode)
    for bad_mode in (0o770, 0o707):
        folder.chmod(bad_mode)
        with pytest.raises(TargetError, match=f"may be written by others .mode {bad_mode:o}.*TILEWRIGHT_CACHE_DIR"):
            toolchain.compile_source(kernels.add().source, TARGET)
    folder.chmod(0o700)


def test_a_cache_folder_of_another_user(empty_cache, monkeypatch):
    cache.cache_directory()
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    with pytest.raises(TargetError, match=r"belongs to user \d+, not to you \(4321\)"):
        cache.cache_directory()


def test_a_cache_folder_that_cannot_be(empty_cache):
    empty_cache.write_text("a file")
    with pytest.raises(TargetError, match="cannot be made"):
        cache.cache_directory()


def test_processes_that_build_the_same_source(empty_cache, counting_compiler):
    compiler, _runs = counting_compiler
    code = f"""
import numpy as np
from kernels import add
from tilewright.targets.module import compile_module
from tilewright.tir.target import Target
for salt in range(6):
    module = compile_module(add(salt=str(salt)), Target("c", compiler={compiler!r}))
    a, c = np.ones(8, "f"), np.empty(8, "f")
    module(a, a, c)
    assert (c == 2).all()
print("done")
"""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert out == "done\n", err
    assert len(list(cache.cache_directory().iterdir())) == 6, "six entries, and nothing left behind"


def test_pruning_removes_what_was_not_used_for_longest(empty_cache):
    builds = [toolchain.compile_source(kernels.add(salt=str(i)).source, TARGET) for i in range(4)]
    now = time.time()
    for age, build in enumerate(reversed(builds)):
        os.utime(build.library_path.parent, (now - age - 10, now - age - 10))
    toolchain.compile_source(kernels.add(salt="0").source, TARGET)  # used again
    abandoned = cache.cache_directory() / "making-abandoned"
    abandoned.mkdir()
    os.utime(abandoned, (now - 7200, now - 7200))
    (cache.cache_directory() / "making-now").mkdir()
    size = sum(file.stat().st_size for file in builds[0].library_path.parent.iterdir())
    cache.prune(100 * size)
    assert all(build.library_path.exists() for build in builds)
    assert not abandoned.exists()
    cache.prune(3 * size)
    assert [build.library_path.exists() for build in builds] == [True, False, False, True]
    assert (cache.cache_directory() / "making-now").exists()


def test_an_entry_that_vanishes_is_built_again(empty_cache, monkeypatch):
    find, vanish = cache.find, [True]

    def find_and_lose(key):
        entry = find(key)
        if entry is not None and vanish.pop():
            shutil.rmtree(entry)
        return entry

    generated = kernels.add()
    compile_module(generated, TARGET)
    monkeypatch.setattr(cache, "find", find_and_lose)
    a, c = np.ones(8, "f"), np.empty(8, "f")
    compile_module(generated, TARGET)(a, a, c)
    assert (c == 2).all() and not vanish


def test_debug_says_what_was_compiled(empty_cache, monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    build = toolchain.compile_source(kernels.add().source, TARGET)
    toolchain.compile_source(kernels.add().source, TARGET)
    assert capfd.readouterr().err.count(f"compiled {build.library_path.parent} in 0.") == 1


def test_a_kernel_compiles_in_0_3_seconds(empty_cache):
    assert min(toolchain.compile_source(kernels.matmul(64, 64, n).source, TARGET).seconds for n in range(1, 4)) < 0.3


SANITIZED = """
import numpy as np
from tilewright.targets.generated import ArgumentSpec, Generated
from tilewright.targets.module import compile_module
from tilewright.tir.target import Target
source = "#include <stdint.h>\\nint32_t f(int32_t *restrict A, int64_t n) {{ {body} return 0; }}\\n"
generated = Generated("f", source, (ArgumentSpec("A", "int32", ("n",), True),), ("n",))
module = compile_module(generated, Target("c", compiler={compiler!r}, sanitize=True))
a = np.zeros(4096, "int32")
module(a)
print(a[0])
"""


OUT_OF_BOUNDS = "int32_t local[4]; for (int64_t i = 0; i <= n; ++i) local[i % 5] = 1; A[0] = local[0];"


@pytest.mark.parametrize(
    "compiler, body, report",
    [
        *((compiler, "A[0] = 5;", None) for compiler in COMPILERS),
        *((compiler, "A[n + 2] = 5;", "heap-buffer-overflow") for compiler in COMPILERS),
        (COMPILERS[0], OUT_OF_BOUNDS, "out of bounds|stack-buffer-overflow"),
        (COMPILERS[0], "A[0] = 1 << (n % 100 + 64);", "shift exponent"),
    ],
)
def test_sanitized_builds_report(compiler, body, report):
    target = Target("c", compiler=compiler, sanitize=True)
    environment = toolchain.sanitizer_environment(target)
    names = ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS")
    done = run_python(SANITIZED.format(body=body, compiler=compiler), PYTHONMALLOC="malloc", **{name: environment[name] for name in names})
    if report is None:
        assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    else:
        assert done.returncode != 0 and any(words in done.stderr for words in report.split("|")), done.stderr


def test_sanitized_libraries_say_what_they_need():
    """Without its runtime in front of everything else, the sanitizer would end the process."""
    shown = check_python(
        """
from tilewright.targets.module import compile_module
from tilewright.tir.errors import TargetError
from tilewright.tir.target import Target
from kernels import add
try:
    compile_module(add(), Target("c", sanitize=True))
except TargetError as error:
    print(error)
"""
    )
    assert "sanitizer_environment" in shown
