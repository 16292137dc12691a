"""What is refused, and kernels that fail: each with an error that says what and where, and a process that lives on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright.targets.emulator import Program

SCALE = "__global__ void k(float* y, int n, const double* z) { if (threadIdx.x < n) y[threadIdx.x] *= z[0]; }"


def arguments():
    return [np.zeros(64, "float32"), 64, np.ones(1)]


@pytest.mark.parametrize(
    "change, error, match",
    [
        ({"kernel": "q"}, tw.ArgumentError, r"no kernel 'q': it has k"),
        ({"source": "kernels/k.cu"}, tw.ArgumentError, r"is the name of a file, not its text"),
        ({"source": "void f() {}"}, tw.ArgumentError, r"no kernel 'k': it has no __global__ function"),
        ({"kernel": None}, tw.ArgumentError, r"kernel: expected the name of a kernel, such as 'k', got None"),
        ({"source": "template <class T> __global__ void k(T* y) {}"}, tw.ArgumentError, r"kernel 'k' is a template: name one of its instances"),
        ({"source": 7}, tw.ArgumentError, r"source: expected the text of CUDA C\+\+, got int"),
        ({"check": "all"}, tw.ArgumentError, r"check='all': expected None, 'race' or 'memory'"),
        ({"args": [np.zeros(4, "float32")]}, tw.ArgumentError, r"takes 3 arguments \(float\*, int, const double\*\), got 1"),
        ({"args": [np.zeros(4), 4, np.ones(1)]}, tw.ArgumentError, r"argument 0 \(float\*\): the array's dtype is float64"),
        ({"args": [np.zeros(4, "int32"), 4, np.ones(1)]}, tw.ArgumentError, r"argument 0 \(float\*\): the array's dtype is int32"),
        ({"args": [[1.0], 4, np.ones(1)]}, tw.ArgumentError, r"argument 0 \(float\*\): expected a NumPy array \(or None for a null pointer\), got list"),
        ({"args": [np.zeros(4, ">f4"), 4, np.ones(1)]}, tw.ArgumentError, r"argument 0 \(float\*\): the array's dtype is >f4"),
        ({"args": [np.zeros(4, "float32"), 4.5, np.ones(1)]}, tw.ArgumentError, r"argument 1 \(int\): expected an integer, got float 4.5"),
        ({"args": [np.zeros(4, "float32"), 2**31, np.ones(1)]}, tw.ArgumentError, r"argument 1 \(int\): 2147483648 is out of range"),
        ({"grid": 0}, tw.TargetError, r"grid=0: grid.x is 0, expected 1 to 2147483647"),
        ({"grid": (1, 65536)}, tw.TargetError, r"grid.y is 65536, expected 1 to 65535"),
        ({"grid": (1, 1, 1, 1)}, tw.ArgumentError, r"grid=\(1, 1, 1, 1\): expected a number or up to three"),
        ({"source": "struct S { short a; }; __global__ void k(S* x) {}", "args": [np.zeros(4, "f")]}, tw.ArgumentError, "values of at most 2 bytes"),
        ({"grid": 1.5}, tw.ArgumentError, r"grid=1.5: expected a number"),
        ({"block": 1025}, tw.TargetError, r"block.x is 1025, expected 1 to 1024"),
        ({"block": (64, 32)}, tw.TargetError, r"2048 threads, but a block has at most 1024"),
        ({"block": (1, 1, 65)}, tw.TargetError, r"block.z is 65, expected 1 to 64"),
        ({"shared_bytes": -1}, tw.TargetError, r"shared_bytes=-1: expected 0 to 232448"),
        ({"shared_bytes": 1 << 20}, tw.TargetError, r"shared_bytes=1048576"),
        ({"arch": "90"}, tw.ArgumentError, r"arch='90': expected sm_NN"),
        ({"timeout_s": 0}, tw.ArgumentError, r"timeout_s=0: expected a positive number of seconds"),
        ({"threads": 0}, tw.ArgumentError, r"threads=0: expected a positive number"),
    ],
)  # fmt: skip
def test_what_a_launch_refuses(change, error, match):
    call = {"source": SCALE, "kernel": "k", "grid": 1, "block": 64, "args": arguments(), **change}
    with pytest.raises(error, match=match):
        tw.emulate_cuda(**call)


def test_a_read_only_array_for_a_pointer_that_may_write():
    args = arguments()
    args[0].flags.writeable = False
    args[2].flags.writeable = False  # a pointer to const: fine
    with pytest.raises(tw.ArgumentError, match=r"argument 0 \(float\*\): the array is read-only"):
        tw.emulate_cuda(SCALE, "k", 1, 64, args)
    tw.emulate_cuda(SCALE, "k", 1, 64, [np.zeros(64, "float32"), 64, args[2]])


def test_a_kernel_that_was_not_compiled():
    program = Program(SCALE + "\n__global__ void other() {}", ["k"])
    with pytest.raises(tw.ArgumentError, match="no kernel 'other' was compiled; there are k"):
        program.launch("other", 1, 1)


@pytest.mark.parametrize("check", [None, "race"])
def test_a_source_that_does_not_compile(check):
    source = "#include <cuda_runtime.h>\nextern __shared__\n float s[];\n__global__ void k(float* y) {\n  y[0] = 1\n}\n"
    with pytest.raises(tw.CompileError, match=r"kernel.cu:5:11: error: expected") as raised:
        tw.emulate_cuda(source, "k", 1, 1, [np.zeros(1, "float32")], check=check)
    assert "kernel.cu:5" in raised.value.stderr and raised.value.source_path.endswith("kernel.cu") and raised.value.command


def test_too_much_shared_memory():
    source = "__global__ void k(float* y) { __shared__ float s[12289]; s[threadIdx.x] = 1; y[0] = s[0]; }"
    with pytest.raises(tw.TargetError, match=r"the shared arrays s of one function have 49156 bytes.*at most 49152.*extern __shared__"):
        tw.emulate_cuda(source, "k", 1, 1, [np.zeros(1, "float32")])


FAILURES = [
    ("y[threadIdx.x] = 1;", {"args": [None]}, r"kernel 'k', block 0, thread 0, line 3: an address that is not mapped \(0x0\); check='race' says which array"),
    ("y[0] = (int)y[1] / (int)y[2];", {}, r"block 0, thread 0, line 3: an integer division by zero$"),
    ("if (threadIdx.x == 5) __trap();", {}, r"thread 5, line 3: __trap\(\)"),
    ("assert(threadIdx.x < 9);", {}, r"thread 9, line 3: threadIdx.x < 9"),
    ("y[0] = deep((int)y[0] + 1);", {}, r"line 2: the thread's stack is full"),
    ("if (threadIdx.x < 16) __syncwarp(); else __syncthreads();", {}, r"16 of the 64 threads that have not ended wait in a warp function, 48 at a barrier"),
    ("if (threadIdx.x == 40) __syncwarp(1);", {}, r"thread 40, line 3: lane 8 calls a warp function with the mask 0x00000001, which does not name it"),
    ("if (threadIdx.x == 3) exit(1);", {}, r"thread 3, line 3: exit\(\)"),
    ("if (threadIdx.x == 3) abort();", {}, r"thread 3, line 3: abort\(\)"),
    ("while (true) {}", {"timeout_s": 0.3}, r"thread 0(, line 3)?: the launch was not done"),  # the line of no header
    ("for (volatile int i = 0;; i = i + 1) {}", {"timeout_s": 0.3}, r"line 3: the launch was not done after timeout_s=0.3; a loop without end"),
    ("while (((volatile float*)y)[0] == 0) __syncthreads();", {"timeout_s": 0.3}, r"the launch was not done after timeout_s=0.3"),
]


@pytest.mark.parametrize("body, options, match", FAILURES)
def test_a_kernel_that_fails_is_an_error_and_no_crash(body, options, match):
    source = f"""#include <stdlib.h>
    __device__ int deep(int n) {{ volatile int a[64]; a[n % 64] = n; return n ? deep(n + 1) + a[n % 64] : 0; }}
    __global__ void k(float* y) {{ {body} }}"""
    call = {"args": [np.zeros(64, "float32")], **options}
    with pytest.raises(tw.EmulatorError, match=match):
        tw.emulate_cuda(source, "k", 1, 64, **call)
    y = np.zeros(64, "float32")
    tw.emulate_cuda("__global__ void k(float* y) { y[threadIdx.x] = 1; }", "k", 1, 64, [y])
    assert (y == 1).all()


@pytest.mark.parametrize("body", ["for (volatile int i = 0;; i = i + 1) {}", "while (true) y[0] += 1;", "while (true) __syncthreads();"])
def test_loops_without_end_time_out_while_checked(body):
    with pytest.raises(tw.EmulatorError, match=r"timeout_s=0\.3"):
        tw.emulate_cuda(f"__global__ void k(float* y) {{ {body} }}", "k", 2, 64, [np.zeros(64, "float32")], check="race", timeout_s=0.3)


def test_waiting_for_a_block_that_is_not_running_times_out():
    source = "__global__ void k(int* y) { atomicAdd(y, 1); while (atomicAdd(y, 0) < gridDim.x) {} }"
    with pytest.raises(tw.EmulatorError, match="threads that wait for other blocks"):
        tw.emulate_cuda(source, "k", 8, 1, [np.zeros(1, "int32")], timeout_s=0.3, threads=2)
    y = np.zeros(1, "int32")
    tw.emulate_cuda(source, "k", 2, 1, [y], timeout_s=60, threads=2)
    assert y[0] == 2


def test_ctrl_c_ends_a_kernel():
    threading.Timer(0.4, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        tw.emulate_cuda("__global__ void k() { for (volatile int i = 0;; i = i + 1) {} }", "k", 4, 32, [])


def test_faults_elsewhere_in_the_process_go_where_they_went_before():
    """A segmentation fault of other code, while a kernel runs, still ends the process, and faulthandler still speaks."""
    program = """
import ctypes, faulthandler, threading, tilewright as tw
faulthandler.enable()
threading.Timer(0.5, lambda: ctypes.string_at(1)).start()
tw.emulate_cuda("__global__ void k() { for (volatile int i = 0;; i = i + 1) {} }", "k", 1, 1, [], timeout_s=20)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGSEGV and "Fatal Python error: Segmentation fault" in done.stderr


def test_launches_from_several_threads_do_not_meet():
    program = Program(
        "__global__ void k(float* y, float v) { __shared__ float s[64]; s[63 - threadIdx.x] = v; __syncthreads(); y[threadIdx.x] = s[threadIdx.x]; }",
        check="race",
    )
    arrays = [np.zeros(64, "float32") for _ in range(8)]
    threads = [threading.Thread(target=program.launch, args=("k", 1, 64, 0, [array, float(number)])) for number, array in enumerate(arrays)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [array.tolist() for array in arrays] == [[float(number)] * 64 for number in range(8)]
    assert program.report.faults == []


def test_a_signal_to_stop_that_comes_late_ends_nothing():
    """A worker may be told to stop while it ends; the signal's default action would end the process, as it once did in a test run."""
    program = """
import os, signal
import tilewright as tw
for _ in range(2):
    try:
        tw.emulate_cuda("__global__ void k() { for (volatile int i = 0;; i = i + 1) {} }", "k", 1, 1, [], timeout_s=0.2)
    except tw.EmulatorError:
        pass
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGRTMIN + 8)
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "alive\n" and done.returncode == 0, (done.returncode, done.stderr)
