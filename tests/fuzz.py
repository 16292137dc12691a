"""Random computations under random schedules, compiled and compared with a direct evaluation.

    python tests/fuzz.py --cases 2000 --seed 0 [--sanitize] [--jobs 2] [--case 17] [--interpret] [--gpu]

Every case has a number; with the seed it is the whole state, so `--seed S --case N` repeats it. Outputs are poisoned before a call, arrays lie at
protected pages and inputs cannot be written, so that a wrong access ends the worker process, which is noticed. `--sanitize` compiles with
AddressSanitizer and UndefinedBehaviorSanitizer instead. `--interpret` runs the lowered functions in the interpreter, without a compiler,
before and after the passes. `--gpu` makes schedules for GPUs and runs the CUDA source on the emulator, which must find nothing: no race, no access
out of bounds or of what nobody wrote, no divergence; some run without checks too; what a GPU cannot do must be refused by name. Otherwise schedules for a
GPU (bind, env_threads) are interpreted in any case, and must be refused for a CPU. Exit status 1 if any case failed. The summary tells how often each
primitive was applied and refused, and how many stages of each kind and dtype there were.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import selectors
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "te")]

import numpy as np  # noqa: E402
from evaluate import evaluate  # noqa: E402
from fuzzing.externs import C_TEXT  # noqa: E402
from fuzzing.gpu import random_gpu_schedule  # noqa: E402
from fuzzing.memory import guarded  # noqa: E402
from fuzzing.programs import Program, random_program  # noqa: E402
from fuzzing.schedules import Scheduled, random_schedule  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright import compiler, te  # noqa: E402
from tilewright.schedule import lower_schedule  # noqa: E402
from tilewright.targets.loader import Library  # noqa: E402
from tilewright.targets.module import CModule  # noqa: E402
from tilewright.targets.toolchain import compile_source, sanitizer_environment  # noqa: E402
from tilewright.te.graph import operations  # noqa: E402
from tilewright.tir.interp import interpret, iteration_count  # noqa: E402

CHUNK = 24  # cases that are compiled together
PATIENCE_S = 900  # without a sign of life from a worker: the compiler may take minutes with sanitizers on a busy machine
POISON = 0xCD
DEFINITION = re.compile(r"^(?:static .*?\b(tw_\w+)|extern void (extern_\w+))\(", re.MULTILINE)


@dataclass
class Case:
    """One case, ready to run: `want` are the results, `error` what was raised on the way."""

    number: int
    program: Program
    arrays: list[np.ndarray[Any, Any]]
    want: list[np.ndarray[Any, Any]]
    scheduled: Scheduled | None = None
    generated: Any = None
    error: str = ""

    @property
    def args(self) -> list[Any]:
        return self.program.inputs + self.program.outputs

    def describe(self) -> str:
        """The computation and its schedule."""
        schedule = self.scheduled.schedule.as_python() if self.scheduled else "(no schedule)"
        return f"{self.program.text()}\n{schedule}"

    def compare(self, outputs: list[np.ndarray[Any, Any]]) -> str:
        """What differs, empty if nothing does."""
        for tensor, want, got in zip(self.program.outputs, self.want, outputs, strict=True):
            error = self.program.facts[tensor].error
            if error == 0:
                wrong = (got != want) & ~(np.isnan(got.astype("float64")) & np.isnan(want.astype("float64")))
            else:
                difference = np.abs(got.astype("float64") - want.astype("float64"))
                wrong = ~(difference <= 8 * error)
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                found = f"got {got[at]!r}, expected {want[at]!r} (within {8 * error:.3g})"
                return f"{tensor!r}: {wrong.sum()} of {wrong.size} elements differ, first at {at}: {found}"
        return ""


def make_case(seed: int, number: int, target: tw.Target | None) -> Case:
    """The case of that number; generated for `target` unless that is None."""
    rng = random.Random(f"{seed}/{number}")
    program = random_program(rng)
    data = program.arrays(number)
    case = Case(number, program, [data[t] for t in program.inputs], evaluate(program.outputs, data, program.sizes))
    try:
        case.scheduled = random_schedule(rng, case.args, program.outputs)
        if number % 4 == 0:
            case.error = check_replay(seed, case)
        if case.scheduled.for_gpu:
            case.error = case.error or refusal_by_cpu(case)
        elif target is not None:
            case.generated = compiler.generate(case.scheduled.schedule, case.args, target, name=f"kernel_{number}")
    except Exception:
        case.error = traceback.format_exc()
    return case


def refusal_by_cpu(case: Case) -> str:
    """A CPU has no thread indices: it must say so."""
    assert case.scheduled is not None
    try:
        compiler.generate(case.scheduled.schedule, case.args, "c")
    except tw.ScheduleError as error:
        return "" if "GPU" in str(error) else f"expected to hear of indices of a GPU, not: {error}"
    return "a schedule with thread indices was accepted for a CPU"


def check_replay(seed: int, case: Case) -> str:
    """The trace and the script, each on the same computation declared again, must give the same program."""
    assert case.scheduled is not None
    want = str(case.scheduled.function)
    for how in ("the trace from JSON", "as_python()", "copy()"):
        again = random_program(random.Random(f"{seed}/{case.number}"))
        if how == "as_python()":
            names: dict[str, Any] = {"te": te} | {op.name: op.output(0) for op in operations(again.outputs)}
            exec(case.scheduled.schedule.as_python(), names)
            schedule = names["s"]
        elif how == "copy()":
            schedule, again = case.scheduled.schedule.copy(), case.program
        else:
            schedule = tw.replay_trace(te.create_schedule([t.op for t in again.outputs]), case.scheduled.schedule.trace.to_json())
        got = str(lower_schedule(schedule, again.inputs + again.outputs, "kernel"))
        if got != want:
            return f"{how} gives another program:\n{got}\ninstead of\n{want}"
    return ""


def poisoned(like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array like this one, full of bytes that mean nothing."""
    array = np.empty(like.shape, like.dtype)
    array.reshape(-1).view("uint8")[...] = POISON
    return array


# ----------------------------------------------------------------------------------------------------------- in a worker process


def worker(options: argparse.Namespace) -> None:
    """Runs cases; says on stdout, a JSON object a line, what it begins and how it ends."""
    warnings.simplefilter("ignore", tw.ScheduleWarning)
    numbers = range(options.first, options.last)
    for start in range(0, len(numbers), CHUNK):
        if options.gpu:
            run_on_emulator(options, numbers[start : start + CHUNK])
        elif options.interpret:
            for number in numbers[start : start + CHUNK]:
                say(begin=number)
                report(make_case(options.seed, number, None), run_interpreted)
        else:
            run_chunk(options, numbers[start : start + CHUNK])


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def report(case: Case, run: Any) -> None:
    """Runs a case and tells how it went."""
    wrong = case.error
    if not wrong:
        try:
            wrong = run(case)
        except Exception:
            wrong = traceback.format_exc()
    say(end=case.number, wrong=wrong, text=case.describe() if wrong else "", counts=counts_of(case))


def counts_of(case: Case) -> dict[str, int]:
    """What there was in a case, for the summary: "applied split", "refused split", "stage scan", "dtype int8" ... -> how often."""
    counts = collections.Counter(operation_kind(op) for op in operations(case.program.outputs))
    counts.update(f"dtype {t.dtype}" for op in operations(case.program.outputs) for t in op.outputs)
    counts["rounded"] = any(case.program.facts[t].error for t in case.program.outputs)
    counts["symbolic"] = bool(case.program.sizes)
    scheduled = case.scheduled
    if scheduled is not None:
        counts.update({"steps": len(scheduled.schedule.trace.steps), "moved": scheduled.moved, "for a GPU": scheduled.for_gpu})
        counts.update({f"applied {name}": n for name, n in scheduled.applied.items()})
        counts.update({f"refused {name}": n for name, n in scheduled.refused.items()})
        if case.number % 4 == 0:
            counts["applied copy"] += 1
    return counts


def operation_kind(op: Any) -> str:
    """What an operation is, as the summary calls it."""
    if isinstance(op, te.PlaceholderOp):
        return "stage input"
    if isinstance(op, te.ScanOp):
        return "stage scan"
    if isinstance(op, te.ExternOp):
        return "stage extern"
    several = " of several outputs" if len(op.outputs) > 1 else ""
    return f"stage {'elementwise' if op.reducer is None else f'reduction ({op.reducer.name})'}{several}"


def run_interpreted(case: Case) -> str:
    """The function as the schedule gives it, and as the passes leave it."""
    assert case.scheduled is not None
    function = case.scheduled.function
    sizes = {size.name: case.program.sizes[size] for size in function.sizes}
    if iteration_count(function, sizes) > 200_000:
        return ""
    functions = [("before the passes", function)]
    if not case.scheduled.for_gpu:
        functions.append(("after the passes", tw.lower(case.scheduled.schedule, case.args)))
    for stage, f in functions:
        outputs = [poisoned(w) for w in case.want]
        interpret(f, [*case.arrays, *outputs], sizes)
        wrong = case.compare(outputs)
        if wrong:
            return f"{stage}: {wrong}"
    return ""


FAULTS = ("races", "out_of_bounds", "uninitialised", "divergence")


def run_on_emulator(options: argparse.Namespace, numbers: range) -> None:
    """Cases with schedules for a GPU."""
    for number in numbers:
        say(begin=number)
        report(make_gpu_case(options.seed, number), run_emulated)


def make_gpu_case(seed: int, number: int) -> Case:
    """The case of that number with a schedule for a GPU; one with a C function, which a GPU cannot call, has none."""
    rng = random.Random(f"gpu/{seed}/{number}")
    program = random_program(rng)
    data = program.arrays(number)
    case = Case(number, program, [data[t] for t in program.inputs], evaluate(program.outputs, data, program.sizes))
    try:
        case.scheduled = random_gpu_schedule(rng, case.args, program.outputs)
    except Exception:
        case.error = traceback.format_exc()
    return case


def run_emulated(case: Case) -> str:
    """The kernels on the emulator, with all checks. Some inputs are constants."""
    if case.scheduled is None:
        return ""
    target, rng = tw.Target("cuda", device="emulator", threads=1), random.Random(case.number)
    given = dict(zip(case.program.inputs, case.arrays, strict=True))
    constants = {t: a for t, a in given.items() if all(isinstance(extent, int) for extent in t.shape) and rng.random() < 0.4}
    try:
        module = tw.build(case.scheduled.schedule, case.args, target=target, constants=constants, check="race")
    except (tw.TargetError, tw.ScheduleError) as error:
        case.scheduled.refused[f"by the GPU: {' '.join(str(error).split()[:2])}"] += 1
        return ""
    outputs = [poisoned(w) for w in case.want]
    module(*(a for t, a in given.items() if t not in constants), *outputs)
    case.scheduled.applied["constants in constant memory"] += "__constant__" in module.get_source()
    faults = {name: found[0] for name in FAULTS if (found := getattr(module.report, name))}
    if faults:
        return f"the emulator found {faults}"
    if wrong := case.compare(outputs):
        return wrong
    if rng.random() < 0.7:
        return ""
    outputs = [poisoned(w) for w in case.want]  # a compiler that may do more finds what is undefined
    tw.build(case.scheduled.schedule, case.args, target=target, constants=constants)(*(a for t, a in given.items() if t not in constants), *outputs)
    wrong = case.compare(outputs)
    return f"without checks: {wrong}" if wrong else ""


def run_chunk(options: argparse.Namespace, numbers: range) -> None:
    """Generates the cases, compiles them in one unit, runs them one after another."""
    target = tw.Target("c", opt="-O1", threads=2, sanitize=options.sanitize)
    cases = []
    for number in numbers:
        say(begin=number)
        cases.append(make_case(options.seed, number, target))
    ready = [case for case in cases if case.generated is not None and not case.error]
    try:
        modules = dict(zip((c.number for c in ready), compiled_together([c.generated for c in ready], target), strict=True))
    except tw.CompileError:
        modules = {}  # one of them is at fault: each on its own says which

    def run(case: Case) -> str:
        if case.generated is None:
            return run_interpreted(case)
        module = modules.get(case.number) or compiled_together([case.generated], target)[0]
        rng = random.Random(case.number)
        if options.sanitize:
            inputs, outputs = [a.copy() for a in case.arrays], [poisoned(w) for w in case.want]
        else:
            inputs = [guarded(a, rng.random() < 0.75, writable=False) for a in case.arrays]
            outputs = [guarded(poisoned(w), rng.random() < 0.75, writable=True) for w in case.want]
        module(*inputs, *outputs)
        return case.compare(outputs)

    for case in cases:
        say(begin=case.number)
        report(case, run)


def compiled_together(generated: list[Any], target: tw.Target) -> list[Any]:
    """Modules of several generated functions from one unit: definitions that several sources have in common stand there once."""
    blocks: dict[str, None] = {}
    defined: dict[str, str] = {}  # name -> the block that has its definition
    for g in generated:
        source = g.source
        for block in source.split("\n\n"):
            for found in DEFINITION.finditer(block):
                name = found[1] or found[2]
                if defined.setdefault(name, block) != block:  # another of that name: it gets one of its own
                    source = re.sub(rf"\b{name}\b", f"{name}_of_{g.name}", source)
        for block in source.split("\n\n"):
            blocks[block.strip()] = None
    source = "\n\n".join(blocks) + "\n"
    if "fuzz_" in source:
        source = C_TEXT + source
    uses_openmp = any(g.uses_openmp for g in generated)
    library = Library(compile_source(source, target, uses_openmp=uses_openmp).library_path, uses_openmp=uses_openmp)
    return [CModule(g.signature, target, library, g) for g in generated]


# ---------------------------------------------------------------------------------------------------------------- in the parent


@dataclass
class Worker:
    """A process and what it was last heard to do."""

    process: subprocess.Popen[str]
    first: int
    last: int
    errors: Any
    doing: int | None = None
    done: int = 0


def run_all(options: argparse.Namespace) -> int:
    """Shares the cases among workers, collects what they say; returns the number of failures."""
    counts: collections.Counter[str] = collections.Counter()
    failures: list[int] = []
    waiting = [(first, min(first + 4 * CHUNK, options.cases)) for first in range(0, options.cases, 4 * CHUNK)]
    if options.case is not None:
        waiting = [(options.case, options.case + 1)]
    waiting.reverse()
    with tempfile.TemporaryDirectory() as cache, selectors.DefaultSelector() as selector:
        running: set[int] = set()

        def start(first: int, last: int) -> None:
            w = start_worker(options, cache, first, last)
            assert w.process.stdout is not None
            selector.register(w.process.stdout, selectors.EVENT_READ, w)
            running.add(w.process.pid)

        while waiting or running:
            while waiting and len(running) < options.jobs:
                start(*waiting.pop())
            events = selector.select(PATIENCE_S)
            if not events:
                raise SystemExit(f"no worker said anything for {PATIENCE_S} s; they were at {[k.data.doing for k in selector.get_map().values()]}")
            for key, _ in events:
                w: Worker = key.data
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if line:
                    hear(json.loads(line), w, counts, failures, options)
                    continue
                selector.unregister(key.fileobj)
                running.discard(w.process.pid)
                status = w.process.wait()
                if status != 0:
                    crashed(w, status, failures, options)
                    if w.doing is not None and w.doing + 1 < w.last:
                        waiting.append((w.doing + 1, w.last))
    total = counts["cases"] + len(failures) - counts["failed"]
    which = f": {', '.join(map(str, sorted(failures)))}" if failures else ""
    print(f"{total} cases, seed {options.seed}: {len(failures)} failed{which}")
    print(summary(counts))
    return len(failures)


def summary(counts: collections.Counter[str]) -> str:
    """What was exercised, and how often."""

    def of(kind: str) -> dict[str, int]:
        return {key.removeprefix(f"{kind} "): n for key, n in sorted(counts.items()) if key.startswith(f"{kind} ")}

    applied, refused = of("applied"), of("refused")
    rates = [f"{name} {applied.get(name, 0)} ({refused.get(name, 0)} refused)" for name in sorted({*applied, *refused})]
    return "\n".join((
        f"{counts['steps']} primitives, {sum(refused.values())} refused, {counts['moved']} placements taken back, {counts['rounded']} cases with rounding, "
        f"{counts['symbolic']} with symbolic sizes, {counts['for a GPU']} for a GPU",
        "applied: " + ", ".join(rates),
        "stages: " + ", ".join(f"{name} {n}" for name, n in of("stage").items()),
        "dtypes of stages: " + ", ".join(f"{name} {n}" for name, n in of("dtype").items()),
    ))  # fmt: skip


def start_worker(options: argparse.Namespace, cache: str, first: int, last: int) -> Worker:
    """A process for the cases from `first` to before `last`."""
    command = [sys.executable, str(HERE / "fuzz.py"), "--seed", str(options.seed), "--first", str(first), "--last", str(last)]
    environment = dict(os.environ)
    if options.sanitize:
        command.append("--sanitize")
        environment |= sanitizer_environment(tw.Target("c", sanitize=True))
    if options.interpret:
        command.append("--interpret")
    if options.gpu:
        command.append("--gpu")
    environment |= {"TILEWRIGHT_CACHE_DIR": cache, "MALLOC_PERTURB_": str(POISON), "PYTHONUNBUFFERED": "1"}
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # lives as long as the worker
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
    return Worker(process, first, last, errors)


def hear(message: dict[str, Any], w: Worker, counts: collections.Counter[str], failures: list[int], options: argparse.Namespace) -> None:
    """One line of a worker."""
    if "begin" in message:
        w.doing = message["begin"]
        return
    number = message["end"]
    counts["cases"] += 1
    counts.update(message["counts"])
    if message["wrong"]:
        counts["failed"] += 1
        failures.append(number)
        tell(number, options, message["wrong"], message["text"])


def crashed(w: Worker, status: int, failures: list[int], options: argparse.Namespace) -> None:
    """A worker that died: the case it was at failed."""
    w.errors.seek(0)
    words = w.errors.read()
    if w.doing is None:
        raise SystemExit(f"a worker ended with status {status} before it began:\n{words[-3000:]}")
    failures.append(w.doing)
    case = make_gpu_case(options.seed, w.doing) if options.gpu else make_case(options.seed, w.doing, None)
    tell(w.doing, options, f"the process ended with status {status} (-11: an access outside an array)\n{words[-6000:]}", case.describe())


def tell(number: int, options: argparse.Namespace, what: str, text: str) -> None:
    """A failure, with what repeats it."""
    extra = " --sanitize" * options.sanitize + " --interpret" * options.interpret + " --gpu" * options.gpu
    print(f"\nFAILED: python tests/fuzz.py --seed {options.seed} --case {number}{extra}\n{what.rstrip()}\n{text}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Random computations under random schedules against a direct evaluation.")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run only the case of this number")
    parser.add_argument("--sanitize", action="store_true", help="compile with AddressSanitizer and UndefinedBehaviorSanitizer")
    parser.add_argument("--interpret", action="store_true", help="interpret instead of compiling")
    parser.add_argument("--gpu", action="store_true", help="schedules for GPUs, on the emulator")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--last", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first is not None:
        worker(options)
    else:
        sys.exit(1 if run_all(options) else 0)


if __name__ == "__main__":
    main()
