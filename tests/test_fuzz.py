"""A short run of the fuzzer, and proof that it can fail."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.schedule.trace import PRIMITIVES
from tilewright.tir.dtype import SCALAR_NAMES

TESTS = Path(__file__).resolve().parent
FUZZ = TESTS / "fuzz.py"


def run(*options, environment=None):
    return subprocess.run([sys.executable, str(FUZZ), *options], capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})


def in_process(code):
    """The exit status of a program that can import the fuzzer."""
    return subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{code}"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("seed", [11])
def test_short_run(seed):
    out = run("--cases", "40", "--seed", str(seed), "--jobs", "2")
    assert out.returncode == 0, out.stdout + out.stderr
    assert f"40 cases, seed {seed}: 0 failed" in out.stdout


def test_every_primitive_dtype_and_kind_of_stage_is_exercised():
    """What the fuzzer forgot would be right in any number of cases. No compiler runs."""
    code = """
import json, warnings
warnings.simplefilter("ignore")
from collections import Counter
from fuzz import counts_of, make_case
counts = Counter()
for number in range(300):
    case = make_case(20261129, number, None)
    assert not case.error, case.error
    counts.update(counts_of(case))
print(json.dumps(counts))
"""
    out = in_process(code)
    assert out.returncode == 0, out.stderr
    counts = json.loads(out.stdout)
    wanted = [f"applied {name}" for name in (*PRIMITIVES, "copy", "create_group", "Group.compute_at", "Group.compute_root", "decl_tensor_intrin")]
    wanted += [f"dtype {name}" for name in SCALAR_NAMES]
    wanted += [
        f"stage {kind}"
        for kind in ("scan", "extern", "elementwise", "elementwise of several outputs", "reduction (sum)", "reduction (argmax) of several outputs")
    ]
    missing = [name for name in [*wanted, "applied tensorize, ready-made", "symbolic", "for a GPU", "rounded"] if not counts.get(name)]
    assert not missing, missing


def test_short_run_of_kernels_for_a_gpu():
    out = run("--cases", "30", "--seed", "13", "--jobs", "2", "--gpu")
    assert out.returncode == 0, out.stdout + out.stderr
    assert "30 cases, seed 13: 0 failed" in out.stdout
    refused = sum(map(int, re.findall(r"by the GPU: [^(]*\((\d+) refused\)", out.stdout)))
    assert refused <= 6, out.stdout  # a GPU that refuses everything would be right about nothing


def test_interpreted_run():
    out = run("--cases", "20", "--seed", "12", "--jobs", "2", "--interpret")
    assert out.returncode == 0, out.stdout + out.stderr


def test_wrong_results_are_reported():
    """What is expected is changed, so that every kernel is wrong."""
    code = """
import argparse, json, fuzz
evaluate = fuzz.evaluate
fuzz.evaluate = lambda *args: [~w if w.dtype == bool else w + 1 for w in evaluate(*args)]
fuzz.worker(argparse.Namespace(first=0, last=12, seed=3, sanitize=False, interpret=False, gpu=False))
"""
    out = in_process(code)
    ends = [m for m in map(json.loads, out.stdout.splitlines()) if "end" in m]
    assert out.returncode == 0 and len(ends) == 12, out.stderr
    wrong = [m for m in ends if "elements differ, first at (" in m["wrong"] and "te.create_schedule" in m["text"]]
    assert len(wrong) >= 10, out.stdout  # outputs without elements cannot be wrong, sums of large numbers hardly by one


def test_a_failure_is_told_with_what_repeats_it():
    out = run("--case", "5", "--seed", "3", environment={"TILEWRIGHT_CC": "/no/such/compiler"})
    assert out.returncode == 1, out.stdout + out.stderr
    assert "FAILED: python tests/fuzz.py --seed 3 --case 5\n" in out.stdout and "/no/such/compiler" in out.stdout


@pytest.mark.parametrize("at_end", [True, False])
def test_an_access_outside_an_array_ends_the_process(at_end):
    code = f"""
import ctypes, numpy as np
from fuzzing.memory import guarded
a = guarded(np.arange(10, dtype="int32"), {at_end}, writable=True)
assert a.tolist() == list(range(10))
inside = ctypes.string_at(a.ctypes.data, a.nbytes)
print("inside", flush=True)
ctypes.string_at(a.ctypes.data + (a.nbytes if {at_end} else -1), 1)
"""
    out = in_process(code)
    assert "inside" in out.stdout and out.returncode == -11, (out.returncode, out.stderr)


def test_a_write_to_an_input_ends_the_process():
    code = """
import ctypes, numpy as np
from fuzzing.memory import guarded
a = guarded(np.arange(10, dtype="int32"), True, writable=False)
ctypes.memset(a.ctypes.data, 1, 1)
"""
    assert in_process(code).returncode == -11


def test_programs_are_what_their_facts_say():
    """Values stay in their bounds, and exact computations come out the same in float64."""
    sys.path.insert(0, str(TESTS))
    try:
        from evaluate import evaluate
        from fuzzing.programs import random_program
    finally:
        sys.path.remove(str(TESTS))
    for number in range(60):
        program = random_program(random.Random(f"facts/{number}"))
        for tensor, value in zip(program.outputs, evaluate(program.outputs, program.arrays(number), program.sizes), strict=True):
            facts = program.facts[tensor]
            if value.size:
                assert np.nanmax(np.abs(value.astype("float64"))) <= facts.bound + facts.error, (number, tensor)
            if facts.integral and facts.error == 0 and value.dtype.kind == "f":
                assert (value == np.rint(value)).all(), (number, tensor)
