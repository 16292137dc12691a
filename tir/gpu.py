"""What each generation of NVIDIA GPUs offers a kernel: limits and abilities as data, and the occupancy that follows from a kernel's resources.

The figures are those of the CUDA C++ Programming Guide, "Compute Capabilities: Technical Specifications per Compute Capability"; how registers and
shared memory are handed out is from the occupancy calculator of the CUDA toolkit (unit and granularity of allocation).
"""

from __future__ import annotations

from dataclasses import dataclass

WARP_SIZE = 32
STATIC_SHARED_BYTES = 48 << 10  # of arrays declared in a kernel; more is "dynamic", which a launch asks for
CONSTANT_BYTES = 64 << 10  # of arrays declared `__constant__` in a module

_REGISTER_UNIT = 256  # registers are handed out to a warp in such portions
_WARP_UNIT = 4  # warps are spread over the four schedulers of a multiprocessor


def is_fragment(scope: str) -> bool:
    """Whether a warp holds a buffer of this scope together, each lane a 32nd of its elements in registers, as an intrinsic has it."""
    return scope.startswith("wmma.")


@dataclass(frozen=True)
class Gpu:
    """The limits of one architecture. `capability`: 90 for sm_90. Bytes are of shared memory: `shared_bytes_per_block` what a block can ask for at
    most, `shared_bytes_per_multiprocessor` what its resident blocks share, `reserved_shared_bytes` what the system takes of it for each block."""

    capability: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    warps_per_multiprocessor: int
    blocks_per_multiprocessor: int
    reserved_shared_bytes: int = 1 << 10
    shared_unit_bytes: int = 128
    threads_per_block: int = 1024
    registers_per_multiprocessor: int = 64 << 10
    registers_per_thread: int = 255

    @property
    def has_async_copy(self) -> bool:
        """cp.async: copies from global to shared memory that pass the registers by."""
        return self.capability >= 80

    @property
    def native_halves(self) -> frozenset[str]:
        """The dtypes of 16 bits that it adds, multiplies and compares by instructions of their own, two at a time."""
        return frozenset(("float16", "bfloat16") if self.capability >= 80 else ("float16",))

    def occupancy(self, threads: int, registers: int, shared_bytes: int) -> float:
        """The share of a multiprocessor's warps that can be resident when blocks of `threads` threads need `registers` each and `shared_bytes` a block;
        0 where a block does not fit at all."""
        warps = -(-threads // WARP_SIZE)
        if warps == 0 or threads > self.threads_per_block or registers > self.registers_per_thread or shared_bytes > self.shared_bytes_per_block:
            return 0.0
        blocks = min(self.blocks_per_multiprocessor, self.warps_per_multiprocessor // warps)
        registers_of_warp = _round_up(max(registers, 1) * WARP_SIZE, _REGISTER_UNIT)
        warps_by_registers = self.registers_per_multiprocessor // registers_of_warp // _WARP_UNIT * _WARP_UNIT
        blocks = min(blocks, warps_by_registers // _round_up(warps, _WARP_UNIT))
        shared = _round_up(shared_bytes + self.reserved_shared_bytes, self.shared_unit_bytes)
        if shared:
            blocks = min(blocks, self.shared_bytes_per_multiprocessor // shared)
        return blocks * warps / self.warps_per_multiprocessor


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


# which updates of one element many blocks can make at once, and of which dtypes: in one instruction, or (small floats before sm_90) by trying again
ATOMIC_DTYPES: dict[str, tuple[str, ...]] = {
    "add": ("int32", "uint32", "int64", "float16", "bfloat16", "float32", "float64"),
    "min": ("int32", "uint32", "int64"),
    "max": ("int32", "uint32", "int64"),
}

# the largest extent of each index of the grid and of a block
INDEX_LIMITS = {
    "blockIdx.x": (1 << 31) - 1,
    "blockIdx.y": 65535,
    "blockIdx.z": 65535,
    "threadIdx.x": 1024,
    "threadIdx.y": 1024,
    "threadIdx.z": 64,
}

GPUS: dict[str, Gpu] = {
    "sm_75": Gpu(75, 64 << 10, 64 << 10, 32, 16, reserved_shared_bytes=0, shared_unit_bytes=256),
    "sm_80": Gpu(80, 163 << 10, 164 << 10, 64, 32),
    "sm_86": Gpu(86, 99 << 10, 100 << 10, 48, 16),
    "sm_87": Gpu(87, 163 << 10, 164 << 10, 48, 16),
    "sm_89": Gpu(89, 99 << 10, 100 << 10, 48, 24),
    "sm_90": Gpu(90, 227 << 10, 228 << 10, 64, 32),
    "sm_100": Gpu(100, 227 << 10, 228 << 10, 64, 32),
    "sm_120": Gpu(120, 99 << 10, 100 << 10, 48, 24),
}
