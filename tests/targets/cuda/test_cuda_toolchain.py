"""CUDA compilers: which is found, what it makes, what it says, and the cache."""

from __future__ import annotations

import pytest

from tilewright.targets import cuda_toolchain
from tilewright.targets.cuda_toolchain import KernelUsage, compile_cuda, find_cuda_compiler, nvrtc_path, parse_usage
from tilewright.tir.errors import CompileError, TargetError
from tilewright.tir.gpu import GPUS
from tilewright.tir.target import Target

SOURCE = """extern "C" __global__ void __launch_bounds__(64) copy(const float *__restrict__ A, float *__restrict__ B) {
    __shared__ float S[64];
    S[threadIdx.x] = A[threadIdx.x];
    __syncthreads();
    B[threadIdx.x] = expf(S[63 - threadIdx.x]) / A[64];
}
"""


@pytest.fixture(params=["nvcc", "nvrtc"])
def compiler(request) -> str:
    """The names of the compilers that are here."""
    try:
        return find_cuda_compiler(request.param) and request.param
    except TargetError as error:
        pytest.skip(str(error))


def test_a_build_has_everything_and_is_kept(compiler):
    target = Target("cuda", arch="sm_80", compiler=compiler)
    build = compile_cuda(SOURCE, target)
    assert build.cubin_path.read_bytes()[:4] == b"\x7fELF" and ".target sm_80" in build.ptx_path.read_text() and build.source_path.read_text() == SOURCE
    usage = build.usage["copy"]
    assert usage.stack_bytes == usage.spill_bytes == 0 and usage.shared_bytes == 256 and 0 < usage.registers < 40
    again = compile_cuda(SOURCE, target)
    assert again.cached and again.usage == build.usage and again.cubin_path == build.cubin_path
    (build.cubin_path).write_bytes(b"")
    assert not compile_cuda(SOURCE, target).cached, "a damaged entry is made again"


def test_every_architecture(compiler):
    for arch in GPUS:
        assert compile_cuda(SOURCE, Target("cuda", arch=arch, compiler=compiler)).usage["copy"].registers > 0, arch


def test_fast_math_is_a_flag(compiler):
    exact = compile_cuda(SOURCE, Target("cuda", compiler=compiler)).ptx_path.read_text()
    fast = compile_cuda(SOURCE, Target("cuda", compiler=compiler, fast_math=True)).ptx_path.read_text()
    assert "div.rn.f32" in exact and "div.rn.f32" not in fast


def test_what_a_compiler_refuses(compiler):
    with pytest.raises(CompileError, match=r"(?s)error.*nothing.*source: .*kernel\.cu.*command:") as caught:
        compile_cuda(SOURCE.replace("A[64]", "nothing"), Target("cuda", compiler=compiler))
    assert "nothing" in caught.value.stderr


def test_spills_and_local_arrays_are_told(cuda_compiler):
    source = """extern "C" __global__ void indexed(const int *A, float *B) {
        float L[64];
        for (int i = 0; i < 64; ++i) L[A[i] & 63] = i;
        B[threadIdx.x] = L[A[threadIdx.x] & 63];
    }
"""
    assert compile_cuda(source, Target("cuda")).usage["indexed"].stack_bytes == 256


@pytest.mark.parametrize("spills, kept", [((8, 0), "second"), ((8, 12), "first"), ((0, 0), "first")])
def test_spilled_registers_are_tried_again_with_all_there_are(spills, kept, monkeypatch, tmp_path):
    asked = []

    def run(compiler, target, folder, more):
        asked.append(more)
        (folder / "kernel.cubin").write_text("first" if not more else "second")
        (folder / "kernel.ptx").write_text("first" if not more else "second")
        log = f"Compiling entry function 'k' for 'sm_90'\n 0 bytes stack frame, {spills[len(asked) - 1]} bytes spill stores\nUsed 64 registers"
        return ["command"], log, 0

    monkeypatch.setattr(cuda_toolchain, "_run_nvcc", run)
    _, log, _ = cuda_toolchain._run(cuda_toolchain.CudaCompiler("nvcc", "nvcc", "13"), Target("cuda"), tmp_path)
    assert asked == ([(), ("--maxrregcount=255",)] if spills[0] else [()])
    assert (tmp_path / "kernel.cubin").read_text() == (tmp_path / "kernel.ptx").read_text() == kept
    assert parse_usage(log)["k"].spill_bytes == spills[kept == "second"]


def test_what_ptxas_says():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 30 registers, used 1 barriers, 2048 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""
    assert parse_usage(log) == {"first": KernelUsage(30, 16, 20, 2048), "second": KernelUsage(12, 0, 0, 0)}


def test_no_compiler_at_all(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("TILEWRIGHT_NVCC", raising=False)
    monkeypatch.setattr(cuda_toolchain, "_TOOLKIT", "/nowhere")
    monkeypatch.setattr(cuda_toolchain, "nvrtc_path", lambda: None)
    with pytest.raises(TargetError, match=r"no CUDA compiler found: install a CUDA toolkit with nvcc, or `pip install nvidia-cuda-nvrtc`"):
        find_cuda_compiler()
    with pytest.raises(TargetError, match="NVRTC is not installed: pip install nvidia-cuda-nvrtc"):
        find_cuda_compiler("nvrtc")
    with pytest.raises(TargetError, match=r"'my-nvcc' \(Target\(compiler=\)\) is not on the PATH"):
        find_cuda_compiler("my-nvcc")
    monkeypatch.setenv("TILEWRIGHT_NVCC", "other-nvcc")
    with pytest.raises(TargetError, match=r"'other-nvcc' \(TILEWRIGHT_NVCC\)"):
        find_cuda_compiler()


def test_nvrtc_serves_where_there_is_no_nvcc(monkeypatch):
    if nvrtc_path() is None:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
    monkeypatch.setattr(cuda_toolchain.shutil, "which", lambda *arguments, **options: None)
    assert find_cuda_compiler().family == "nvrtc"
