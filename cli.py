"""The command line: tune, replay, show, run, log, emulate, doctor.

Every command says what is wrong with a request in one sentence on standard error and exits with 1 (2 for misused options), never with a
traceback. Results go to standard output, progress and remarks to standard error.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from .autotune.database import Database
from .autotune.lookup import find_best, user_log
from .autotune.record import speed_text
from .autotune.registry import load_file
from .autotune.task import Candidate, Task
from .autotune.tuner import SEARCHES, tune
from .autotune.verify import make_check
from .compiler import build, lower
from .targets.doctor import examine
from .targets.emulator import emulate_cuda
from .targets.emulator.command import ARGUMENT_HELP, parse_argument, parse_dimensions
from .targets.timer import format_seconds, measure
from .te.library import OPERATORS
from .tir.errors import ArgumentError, LogError, TilewrightError
from .tir.optional import optional_import
from .tir.target import Target

_EXAMPLES = (
    """
\b
Examples:
  tilewright tune matmul 1024 1024 1024 --trials 64
  tilewright replay matmul 1024 1024 1024
  tilewright tune conv2d 1 64 56 56 64 3 3 --opt padding=1 --opt stride=2 --log my.db
  tilewright show softmax 512 512 --stage c
  tilewright run conv2d          # says which sizes and options an operator takes
"""
    + f"\nOperators: {', '.join(sorted(OPERATORS))}; or a template of your own, see --templates."
)
Command = Callable[..., Any]

# What NumPy itself has for an operator, to compare the speed with; it computes in the dtype of its inputs.
_NUMPY: dict[str, Callable[..., Any]] = {
    "matmul": np.matmul,
    "batch_matmul": np.matmul,
    "gemv": np.matmul,
    "dense": lambda x, w: np.matmul(x, w.T),
    "sum": lambda x: x.sum(axis=-1),
    "argmax": lambda x: x.argmax(axis=-1),
    "transpose": lambda x: np.swapaxes(x, -1, -2).copy(),
    "relu": lambda x: np.maximum(x, 0),
}


def main() -> None:
    """The program `tilewright`."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (TilewrightError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of a pipe had enough
        sys.stderr.close()
        sys.exit(1)


@click.group(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tilewright")
def cli() -> None:
    """Tilewright: declare tensor computations, schedule them, run them as C or CUDA, tune them, replay what was found."""


def _workload(command: Command) -> Command:
    """The arguments and options that say which computation, on which target."""
    for decorate in (
        click.argument("operator"),
        click.argument("sizes", nargs=-1),
        click.option("--opt", "options", multiple=True, metavar="KEY=VALUE", help="An option of the operator, for example padding=1."),
        click.option("--templates", metavar="FILE.py", help="A Python file of yours that defines OPERATOR with @autotune.template; it is run."),
        click.option("--target", "kind", default="c", show_default=True, help="c, or cuda."),
        click.option("--threads", type=click.IntRange(min=1), help="Threads of a parallel loop, or of the emulator [default: all]."),
        click.option("--march", help="The compiler's name of the processor's architecture [default: native]."),
        click.option("--arch", help="The architecture of a GPU, with --target cuda [default: sm_90]."),
        click.option("--device", help="Where CUDA kernels run: gpu, or emulator (on the CPU) [default: gpu]."),
    )[::-1]:
        command = decorate(command)
    return command


_log_option = click.option("--log", type=click.Path(dir_okay=False), help="The tuning log, an SQLite file [default: your own].")


def _task(operator: str, sizes: Sequence[str], options: Sequence[str], templates: str | None, kind: str, **target_options: Any) -> Task:
    if templates is not None:
        load_file(templates)
    target = Target(kind, **target_options)
    return Task(operator, [int(size) if re.fullmatch(r"[+-]?\d+", size) else size for size in sizes], target=target, **dict(_option(text) for text in options))


_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise ArgumentError(f"--opt {text}: expected KEY=VALUE, for example padding=1")
    if key == "target":
        raise ArgumentError(f"--opt {text}: the target is chosen by --target, --threads, --march, --arch and --device")
    try:
        parsed = json.loads(_JSON_WORDS.get(value, value))
    except ValueError:
        parsed = value
    return key, tuple(parsed) if isinstance(parsed, list) else parsed


@cli.command(
    "tune",
    short_help="Search for the fastest schedule, log every trial.",
    epilog="""
\b
Examples:
  tilewright tune matmul 1024 1024 1024 --target c --trials 200 --log tuning.db
  tilewright tune conv2d 1 64 56 56 64 3 3 --opt padding=1 --opt stride=2
A search goes on where an earlier one with the same log ended; Ctrl-C (or SIGTERM) ends it and keeps what was measured.
""",
)
@_workload
@click.option("--trials", type=click.IntRange(min=1), default=64, show_default=True, help="How many trials the log shall hold for this task.")
@_log_option
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed and same measurements: same proposals.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="Seconds for building a candidate, and for running it."
)
@click.option("--search", type=click.Choice(SEARCHES), default=SEARCHES[0], show_default=True, help="The strategy.")
@click.option("--quiet", is_flag=True, help="No progress display.")
def tune_command(trials: int, log: str | None, seed: int, timeout_s: float, search: str, quiet: bool, **workload: Any) -> None:
    """Search for the fastest schedule of OPERATOR with SIZES and log every trial."""
    task = _task(**workload)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job whose time is up ends as by Ctrl-C
    run = tune(task, trials=trials, log=log, seed=seed, timeout_s=timeout_s, search=search, progress=False if quiet else None)
    click.echo(str(run))
    click.echo(f"replay it: {task.command('replay', None if log is None else str(log))}")


@cli.command(
    "replay",
    short_help="Run, check and time the best schedule of a log, or print it.",
    epilog="""
\b
Examples:
  tilewright replay matmul 1024 1024 1024 --log tuning.db
  tilewright replay matmul 1024 1024 1024 --emit c > matmul.c
""",
)
@_workload
@_log_option
@click.option("--emit", type=click.Choice(["c", "cuda", "ptx", "tir", "python"]), help="Print this instead of running.")
def replay_command(log: str | None, emit: str | None, **workload: Any) -> None:
    """Build the best logged schedule of OPERATOR with SIZES; run it, check it, time it (beside NumPy where NumPy has it), and print it."""
    task = _task(**workload)
    trial, path, other = find_best(task, log)
    if other is not None:
        print(f"this schedule was measured on another target: {other}", file=sys.stderr)
    candidate = task.replay(trial.trace, trial.decisions)
    if emit is not None:
        click.echo(_text(task, candidate, emit))
        return
    click.echo(f"{task} from {path}: {speed_text(trial.seconds, trial.gflops)} when it was tuned")
    _run(task, candidate)
    click.echo(f"\nthe schedule:\n{candidate.schedule.as_python()}", nl=False)


@cli.command(
    "show",
    short_help="Print the loops, the source or the schedule of an operator.",
    epilog="""
\b
Examples:
  tilewright show conv2d 1 64 56 56 64 3 3 --stage tir
  tilewright show matmul 512 512 512 --stage python --log tuning.db
  tilewright show softmax 1024 1024 --target cuda --arch sm_80 --stage cuda
""",
)
@_workload
@_log_option
@click.option(
    "--stage",
    type=click.Choice(["tir", "c", "cuda", "ptx", "python", "schedule"]),
    default="tir",
    show_default=True,
    help="Loops, source (of the target), PTX, the schedule as a script, or its stages.",
)
def show_command(log: str | None, stage: str, **workload: Any) -> None:
    """Print what OPERATOR with SIZES becomes: with its default schedule, or with --log the best one of that log."""
    task = _task(**workload)
    click.echo(_text(task, _candidate(task, log), stage))


@cli.command(
    "run",
    short_help="Build, run, check and time an operator.",
    epilog="""
\b
Examples:
  tilewright run matmul 512 512 512
  tilewright run attention 1 8 256 256 64 --opt causal=true --threads 1
""",
)
@_workload
@_log_option
def run_command(log: str | None, **workload: Any) -> None:
    """Build OPERATOR with SIZES, run it, check it, time it: with its default schedule, or with --log the best one of that log."""
    task = _task(**workload)
    _run(task, _candidate(task, log))


@cli.group("log")
def log_group() -> None:
    """Ask a tuning log."""


@log_group.command("best", epilog="\b\nExample:\n  tilewright log best --log tuning.db\n")
@_log_option
def log_best(log: str | None) -> None:
    """The best schedule of each workload and target."""
    with Database(_existing(log), read_only=True) as database:
        rows = [
            [row["name"], row["args"], row["target"], format_seconds(row["median_s"]), f"{row['gflops'] or 0:.1f}", f"{row['valid']}/{row['trials']}"]
            for row in database.best_table()
        ]
    _table(["operator", "sizes", "target", "time", "GFLOP/s", "valid"], rows, f"{log or user_log()} holds no valid trial yet")


@log_group.command("list", epilog="\b\nExample:\n  tilewright log list --log tuning.db --limit 50 --operator matmul\n")
@_log_option
@click.option("--limit", type=click.IntRange(min=1), default=30, show_default=True, help="How many trials, the latest first.")
@click.option("--operator", help="Only trials of this operator.")
def log_list(log: str | None, limit: int, operator: str | None) -> None:
    """The latest trials with their status."""
    with Database(_existing(log), read_only=True) as database:
        rows = [
            [
                str(row["id"]),
                row["name"],
                row["args"],
                row["generator"],
                row["status"],
                format_seconds(row["median_s"]) if row["median_s"] else "",
                f"{row['gflops']:.1f}" if row["gflops"] else "",
                (row["error"] or row["decisions"]).partition("\n")[0],
            ]
            for row in database.trial_table(limit, operator)
        ]
    _table(
        ["trial", "operator", "sizes", "proposed by", "status", "time", "GFLOP/s", "error, or decisions"], rows, f"{log or user_log()} holds no such trial yet"
    )


@cli.command(
    "emulate",
    short_help="Run a kernel of a CUDA file on the CPU, and check it.",
    epilog="""
\b
Examples:
  tilewright emulate reverse.cu --kernel reverse --grid 4 --block 64 --arg float32:256:random --arg float32:256 --check race
  tilewright emulate gemm.cu --kernel gemm --grid 8,8 --block 16,16 --arg a.npy --arg b.npy --arg float32:128x128 --arg 128 --save 2=c.npy
  tilewright emulate gemm.cu --kernel "gemm<float, 16>" --grid 8,8 --block 16,16 --arg ... --check memory
The status is 1 where a check finds a fault.
""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--kernel", required=True, help="The kernel's name, or an expression such as 'scale<float>'.")
@click.option("--grid", required=True, help="Blocks: a number or up to three, x first: 8,8.")
@click.option("--block", required=True, help="Threads of a block: a number or up to three, x first: 16,16.")
@click.option("--arg", "texts", multiple=True, metavar="ARG", help=ARGUMENT_HELP)
@click.option("--check", type=click.Choice(["race", "memory"]), help="race: races, bounds, initialisation, divergence; memory: coalescing, bank conflicts.")
@click.option("--shared-bytes", type=click.IntRange(min=0), default=0, help="Dynamic shared memory of a block.")
@click.option("--arch", default="sm_90", show_default=True, help="What __CUDA_ARCH__ says.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.01), help="Seconds after which the launch ends with an error.")
@click.option("--save", "saves", multiple=True, metavar="N=FILE.npy", help="Write argument N (from 0) to a file afterwards.")
def emulate_command(
    file: str,
    kernel: str,
    grid: str,
    block: str,
    texts: Sequence[str],
    check: str | None,
    shared_bytes: int,
    arch: str,
    timeout_s: float | None,
    saves: Sequence[str],
) -> None:
    """Compile FILE.cu for the CPU, run one of its kernels, and say what the check found; without --check and --save, print its arrays.

    Host code in the file is not run.
    """
    arguments = [parse_argument(text, number) for number, text in enumerate(texts)]
    files = [(_saved_argument(text, arguments), text.partition("=")[2]) for text in saves]
    start = time.perf_counter()
    report = emulate_cuda(
        Path(file).read_text(), kernel, parse_dimensions("grid", grid), parse_dimensions("block", block), arguments, check,
        shared_bytes=shared_bytes, arch=arch, timeout_s=timeout_s,
    )  # fmt: skip
    print(f"compiled and run in {format_seconds(time.perf_counter() - start)}", file=sys.stderr)
    for array, path in files:
        np.save(path, array)
    if check is not None:
        click.echo(str(report))
    elif not files:
        for number, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                click.echo(f"argument {number}: {np.array2string(argument, threshold=16, edgeitems=4)}")
    if report.faults:
        sys.exit(1)


@cli.command("doctor", short_help="Compilers, versions, this machine's peaks.", epilog="\b\nExample:\n  tilewright doctor\n")
def doctor_command() -> None:
    """What this machine has: compilers and their versions, measured peak speed and memory bandwidth."""
    click.echo(str(examine()))


# ---- shared by the commands


def _saved_argument(text: str, arguments: Sequence[Any]) -> np.ndarray[Any, Any]:
    number, equals, path = text.partition("=")
    if not equals or not number.isdecimal() or not path.endswith(".npy"):
        raise ArgumentError(f"--save {text}: expected N=FILE.npy, for example 2=out.npy")
    argument = arguments[int(number)] if int(number) < len(arguments) else None
    if not isinstance(argument, np.ndarray):
        raise ArgumentError(f"--save {text}: argument {number} is no array")
    return argument


def _existing(log: str | None) -> Path:
    path = user_log() if log is None else Path(log)
    if not path.exists():
        raise LogError(f"there is no tuning log at '{path}'; `tilewright tune` makes one")
    return path


def _candidate(task: Task, log: str | None) -> Candidate:
    if log is None:
        return task.instantiate({})
    trial, _, _ = find_best(task, log)
    return task.replay(trial.trace, trial.decisions)


def _text(task: Task, candidate: Candidate, stage: str) -> str:
    if stage == "python":
        return candidate.schedule.as_python()
    if stage == "schedule":
        return str(candidate.schedule)
    if stage == "tir":
        return str(lower(candidate.schedule, candidate.tensors, target=task.target))
    return build(candidate.schedule, candidate.tensors, target=task.target).get_source(stage)


def _run(task: Task, candidate: Candidate) -> None:
    """Builds, checks against the reference, times; a wrong result is an error."""
    module = build(candidate.schedule, candidate.tensors, target=task.target)
    check = make_check(task.tensors, task.reference, seed=0)
    arguments = check.arguments()
    module(*arguments)
    wrong = check.mismatch(arguments)
    if wrong is not None:
        raise TilewrightError(f"the result of {task} is wrong: {wrong}")
    ours = module.time_evaluator(repeat=9, min_repeat_ms=30)(*arguments).median
    how = "exactly" if check.exact else "within the tolerance of its dtype"
    click.echo(f"{task} on {task.target}: result right ({how}), {speed_text(ours, task.flops / ours / 1e9)}, {task.bytes / ours / 1e9:.1f} GB/s")
    if task.target.device == "emulator":
        click.echo("this is the time of the emulator, which says nothing about that of a GPU")
        return
    numpy_function = _NUMPY.get(task.name)
    if numpy_function is not None:
        time.sleep(0.1)  # until the threads of our kernel are asleep
        inputs = [array for array, output in zip(arguments, check.is_output, strict=True) if not output]
        theirs = measure(lambda: numpy_function(*inputs), repeat=9, min_repeat_ms=30).median
        click.echo(f"NumPy: {speed_text(theirs, task.flops / theirs / 1e9)}; this kernel is {theirs / ours:.2f} x as fast")


def _table(columns: list[str], rows: list[list[Any]], empty: str) -> None:
    if not rows:
        click.echo(empty)
        return
    rich_table = optional_import("rich.table", "a table of the log", "tune")
    rich_text = optional_import("rich.text", "a table of the log", "tune")
    console = optional_import("rich.console", "a table of the log", "tune").Console(width=None if sys.stdout.isatty() else 240)
    table = rich_table.Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for row in rows:  # a log's text is shown as it is: no markup, no control characters
        table.add_row(*(rich_text.Text(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(value or ""))) for value in row))
    console.print(table)
