"""`tilewright emulate`: its arguments, its status, its words."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tilewright import cli

REVERSE = """__global__ void reverse(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}
template <int N> __global__ void add(float* y, float v, int n) { for (int i = threadIdx.x; i < n; i += N) y[i] += v; }
"""


@pytest.fixture
def emulate(monkeypatch, capsys, tmp_path):
    def run(*words, source=REVERSE):
        (tmp_path / "kernel.cu").write_text(source)
        monkeypatch.setattr(sys, "argv", ["tilewright", "emulate", str(tmp_path / "kernel.cu"), *map(str, words)])
        status = 0
        try:
            cli.main()
        except SystemExit as error:
            status = int(error.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


LAUNCH = ("--kernel", "reverse", "--grid", "4", "--block", "64")


def test_a_kernel_runs_and_its_results_are_shown_or_saved(emulate, tmp_path):
    status, out, err = emulate(*LAUNCH, "--arg", "float32:256:arange", "--arg", "float32:256:nan")
    assert status == 0 and "argument 1: [ 63.  62.  61.  60. ... 195. 194. 193. 192.]" in out and "compiled and run in" in err
    np.save(tmp_path / "x.npy", np.arange(256, dtype="float32"))
    status, out, _ = emulate(*LAUNCH, "--arg", tmp_path / "x.npy", "--arg", "float32:256", "--save", f"1={tmp_path / 'y.npy'}")
    assert status == 0 and out == ""
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").reshape(4, 64), np.arange(256).reshape(4, 64)[:, ::-1])
    status, out, _ = emulate("--kernel", "add<32>", "--grid", 1, "--block", "32,1", "--arg", "float32:10x10:ones", "--arg", "0.5", "--arg", 100)
    assert status == 0 and "1.5 1.5" in out


def test_what_a_check_finds_is_said_and_is_the_status(emulate):
    arguments = ("--arg", "float32:256:random", "--arg", "float32:256")
    assert emulate(*LAUNCH, *arguments, "--check", "race")[:2] == (0, "no fault found\n")
    status, out, _ = emulate(*LAUNCH, *arguments, "--check", "race", source=REVERSE.replace("__syncthreads();", ""))
    assert status == 1 and "race on shared array s" in out
    status, out, _ = emulate(*LAUNCH, *arguments, "--check", "memory")
    assert status == 0 and "no bank conflict" in out and "8 stores to y" in out


@pytest.mark.parametrize(
    "words, message",
    [
        (("--arg", "float31:4"), "--arg float31:4: NumPy has no dtype 'float31'"), (("--arg", "a b"), "--arg a b: expected a number, DTYPE:SHAPE[:FILL]"),
        (("--arg", "int32:4:nan"), "--arg int32:4:nan: int32 has no NaN"), (("--arg", "int32:4:twos"), "expected one of zeros, ones, arange, random, nan"),
        (("--arg", "missing.npy"), "--arg missing.npy: cannot be read"), (("--grid", "1,2,3,4"), "--grid 1,2,3,4: expected a number or up to three"),
        (("--save", "0=x.txt"), "--save 0=x.txt: expected N=FILE.npy"), (("--arg", "7", "--save", "0=x.npy"), "argument 0 is no array"),
        (("--arch", "90"), "arch='90': expected sm_NN"), (("--kernel", "nothing"), "no kernel 'nothing': it has reverse, add"),
        (("--arg", "float32:4"), "kernel 'reverse' takes 2 arguments (const float*, float*), got 1"),
    ],
)  # fmt: skip
def test_each_mistake_has_a_sentence(emulate, words, message):
    status, out, err = emulate(*LAUNCH, *words)
    assert status == 1 and out == "" and message in err and err.count("\n") == 1


def test_the_help_has_examples(emulate, capsys, monkeypatch):
    status, out, _ = emulate("--help")
    assert status == 0 and "tilewright emulate reverse.cu --kernel reverse" in out and "--check memory" in out
