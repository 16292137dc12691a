"""The table of CUDA helper functions: every one compiles with nvcc for every architecture that it says it has; names, needs and layouts."""

import re
import shutil
import subprocess

import pytest

from tilewright.targets.cuda_helpers import CUDA_HELPERS, CudaHelpers, fragment_element, mma_name

CAPTURED = {"capture_output": True, "text": True}
nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")


def call(name: str) -> str:
    """A statement that calls the helper with operands the compiler cannot fold, and keeps the result."""
    signature = CUDA_HELPERS[name].signature
    operands = []
    for parameter in re.search(r"\((.*)\)", signature).group(1).split(", "):
        if not parameter:
            continue
        kind, word = parameter.rsplit(" ", 1)
        if word.startswith("*"):
            known = {"*shared": "shared", "*row": "shared + 16 * threadIdx.x", "*global": "y", "*source": "y", "*address": "x", "*target": "x"}
            operand = known.get(word, word.lstrip("*") + "_")
            operands.append(operand if kind in ("void", "const void") else f"({kind} *){operand}")
        else:
            operands.append(f"({kind})y[threadIdx.x]")
    text = f"{name}{'<1>' if CUDA_HELPERS[name].template else ''}({', '.join(operands)})"
    return f"  {text};" if signature.startswith("void") else f"  d_[0] += (unsigned){text};"


@nvcc
@pytest.mark.parametrize("arch", [75, 80, 89, 90, 120])
def test_every_helper_compiles(arch, tmp_path):
    """Called, so that ptxas sees the instructions; and without a stack frame, so that fragments stay in registers."""
    names = [name for name, helper in CUDA_HELPERS.items() if helper.arch <= arch]
    helpers = CudaHelpers()
    for name in names:
        helpers.use(name)
    assert helpers.least_arch() <= arch
    lines = ["  unsigned d_[8] = {0}, registers_[8] = {1, 2, 3, 4}, *a_ = registers_, *b_ = registers_, *c_ = d_;", *map(call, names)]
    kernel = 'extern "C" __global__ void k(unsigned *x, const unsigned *y) {\n  __shared__ __align__(16) char shared[1024];\n'
    source = helpers.emit() + kernel + "\n".join(lines) + "\n  for (int i = 0; i < 8; ++i) x[i * 32 + threadIdx.x] = d_[i] + registers_[i];\n}\n"
    path = tmp_path / "all.cu"
    path.write_text(source)
    done = subprocess.run(["nvcc", "-cubin", f"-arch=sm_{arch}", "-Xptxas", "-v", "-o", str(tmp_path / "all.cubin"), str(path)], check=False, **CAPTURED)
    assert done.returncode == 0, done.stderr
    assert "0 bytes stack frame, 0 bytes spill stores" in done.stderr, done.stderr


@nvcc
def test_what_an_architecture_lacks_is_refused_by_ptxas(tmp_path):
    """`arch` is not larger than it need be: one step below, ptxas refuses the function."""
    wmma = [("tw_wmma_load_a_row_m16n16k16_bf16", 75), ("tw_wmma_store_row_m16n16k8_f32", 75)]
    for name, below in (("tw_mma_m16n8k8_bf16_f32", 75), ("tw_mma_m16n8k32_e4m3_f32", 80), ("tw_round_tf32", 75), *wmma):
        helpers = CudaHelpers()
        helpers.use(name)
        lines = "  unsigned d_[8] = {0}, *a_ = d_, *b_ = d_, *c_ = d_, *registers_ = d_;\n" + call(name)
        path = tmp_path / "one.cu"
        path.write_text(helpers.emit() + f'extern "C" __global__ void k(unsigned *x, const float *y) {{\n{lines}\n  x[0] = d_[0];\n}}\n')
        done = subprocess.run(["nvcc", "-cubin", f"-arch=sm_{below}", "-o", str(tmp_path / "one.cubin"), str(path)], check=False, **CAPTURED)
        assert done.returncode != 0 and "requires .target" in done.stderr, (name, done.stderr)


def test_a_source_gets_what_it_uses():
    helpers = CudaHelpers()
    assert helpers.emit() == "" and helpers.least_arch() == 0
    assert helpers.use("tw_cp_async_16") == "tw_cp_async_16"
    helpers.use(mma_name((16, 8, 16), "bfloat16", "bfloat16", "float32"))
    assert re.findall(r"__forceinline__ \w+ (\w+)", helpers.emit()) == ["tw_cp_async_16", "tw_mma_m16n8k16_bf16_f32"]
    assert helpers.least_arch() == 80


def test_names_of_products():
    assert mma_name((16, 8, 32), "int8", "uint8", "int32") == "tw_mma_m16n8k32_s8_u8_s32"
    assert mma_name((16, 8, 8), "tfloat32", "tfloat32", "float32") in CUDA_HELPERS
    assert {name for name in CUDA_HELPERS if name.startswith("tw_mma")} >= {"tw_mma_m16n8k16_f16_f32", "tw_mma_m16n8k32_u8_s32", "tw_mma_m16n8k16_f16_f16"}


@pytest.mark.parametrize(
    ("operand", "bits", "rows", "columns"), [("a", 16, 16, 16), ("a", 8, 16, 32), ("a", 32, 16, 8), ("b", 16, 16, 8), ("b", 8, 32, 8), ("c", 32, 16, 8)]
)
def test_fragments_hold_every_element_once(operand, bits, rows, columns):
    count = rows * columns // 32
    held = [fragment_element(operand, bits, lane, i) for lane in range(32) for i in range(count)]
    assert sorted(held) == [(row, column) for row in range(rows) for column in range(columns)]


def test_fragments_of_the_isa():
    """Samples of the formulas of the PTX ISA: m16n8k16 with f16 (a4 of lane 5, b2 of lane 5, c3 of lane 5), m16n8k32 with s8 (a13, b6 of lane 9)."""
    assert fragment_element("a", 16, 5, 4) == (1, 2 + 8)
    assert fragment_element("b", 16, 5, 2) == (2 + 8, 1)
    assert fragment_element("c", 32, 5, 3) == (9, 3)
    assert fragment_element("a", 8, 9, 13) == (2 + 8, 4 + 1 + 16)
    assert fragment_element("b", 8, 9, 6) == (4 + 2 + 16, 2)
