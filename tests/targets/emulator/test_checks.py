"""check="race": races, bounds, initialisation, divergence: each fault is found and named, and its correct twin is clean."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw


def check(source, args, grid=1, block=64, **options):
    options.setdefault("check", "race")
    return tw.emulate_cuda(source, "k", grid, block, args, **options)


def floats(count=64):
    return np.zeros(count, "float32")


def only(records):
    assert len(records) == 1, records
    return records[0]


REVERSE = """extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}"""


def test_a_missing_barrier():
    x, y = np.arange(256, dtype="float32"), floats(256)
    assert check(REVERSE, [x, y], grid=4).faults == []
    np.testing.assert_array_equal(y.reshape(4, 64), x.reshape(4, 64)[:, ::-1])
    report = check(REVERSE.replace("__syncthreads();", ""), [x, y], grid=4)
    race = report.races[0]
    assert race.buffer == "s" and race.space == "shared" and set(race.lines) == {3, 5} and not race.across_blocks
    assert race.threads[0] != race.threads[1]
    assert re.search(
        r"race on shared array s, element \d+: thread \d+ \w+ it in line [35], thread \d+ \w+ it in line [35], and no barrier lies between", str(race)
    )


def test_a_barrier_missing_before_shared_memory_is_used_again():
    source = """__global__ void k(const float* x, float* y) {
      __shared__ float s[64];
      float sum = 0;
      for (int i = 0; i < 4; ++i) {
        s[threadIdx.x] = x[i * 64 + threadIdx.x];
        __syncthreads();
        sum += s[(threadIdx.x + 33) % 64];
        __syncthreads();
      }
      y[threadIdx.x] = sum;
    }"""
    x = np.ones(256, "float32")
    assert check(source, [x, floats()]).faults == []
    before, _, after = source.rpartition("__syncthreads();")
    race = check(before + after, [x, floats()]).races[0]
    assert race.buffer == "s" and set(race.lines) == {5, 7}


@pytest.mark.parametrize("sync, clean", [("__syncwarp();", True), ("__shfl_sync(~0u, 0, 0);", True), ("__ballot_sync(0xffffffffu, 1);", True), ("", False)])
def test_lanes_of_a_warp_are_not_in_step(sync, clean):
    source = f"""__global__ void k(float* y) {{
      __shared__ float s[64];
      s[threadIdx.x] = y[threadIdx.x];
      {sync}
      y[threadIdx.x] = s[threadIdx.x ^ 1];
    }}"""
    assert (check(source, [floats()]).races == []) == clean


def test_a_warp_function_orders_only_the_lanes_that_take_part():
    source = """__global__ void k(float* y) {
      __shared__ float s[32];
      s[threadIdx.x] = y[threadIdx.x];
      if (threadIdx.x < 16) {
        __syncwarp(0xffffu);
        y[threadIdx.x] = s[OTHER];
      }
    }"""
    assert check(source.replace("OTHER", "15 - threadIdx.x"), [floats()], block=32).faults == []
    assert check(source.replace("OTHER", "31 - threadIdx.x"), [floats()], block=32).races


def test_what_one_lane_knows_another_learns_from_it():
    """Lane 0 meets lane 1, then lane 1 meets lane 2: so lane 2 may read what lane 0 wrote."""
    source = """__global__ void k(float* y) {
      __shared__ float s;
      if (threadIdx.x == 0) { s = 1; __syncwarp(3); }
      if (threadIdx.x == 1) { __syncwarp(3); __syncwarp(6); }
      if (threadIdx.x == 2) { MEET y[0] = s; }
    }"""
    assert check(source.replace("MEET", "__syncwarp(6);"), [floats()], block=32).faults == []
    lonely = source.replace("MEET", "").replace(" __syncwarp(6);", "")
    report = check(lonely, [floats()], block=32)
    assert report.races or report.uninitialised


def test_other_warps_are_not_ordered_by_warp_functions():
    source = """__global__ void k(float* y) {
      __shared__ float s[64];
      s[threadIdx.x] = y[threadIdx.x];
      __syncwarp();
      y[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    assert check(source, [floats()]).races


def test_several_readers_and_a_writer():
    source = """__global__ void k(float* y) {
      __shared__ float s;
      if (threadIdx.x == 0) s = 1;
      __syncthreads();
      y[threadIdx.x] = s;
      BARRIER
      if (threadIdx.x == WRITER) s = 2;
    }"""
    for writer in (0, 63):
        text = source.replace("WRITER", str(writer))
        assert check(text.replace("BARRIER", "__syncthreads();"), [floats()]).faults == []
        races = check(text.replace("BARRIER", ""), [floats()]).races
        assert {line for race in races for line in race.lines} == {5, 7}
        assert all((writer,) in race.threads and race.threads[0] != race.threads[1] for race in races)


def test_bytes_of_one_word_are_different_places():
    source = """__global__ void k(unsigned char* y) {
      __shared__ unsigned char s[64];
      s[threadIdx.x] = y[threadIdx.x];
      s[threadIdx.x OTHER] += 1;
      y[threadIdx.x] = s[threadIdx.x];
    }"""
    assert check(source.replace("OTHER", ""), [np.zeros(64, "uint8")]).faults == []
    assert check(source.replace("OTHER", "^ 1"), [np.zeros(64, "uint8")]).races


def test_atomics_may_meet_but_not_a_plain_access():
    source = """__global__ void k(int* y) {
      __shared__ int s;
      if (threadIdx.x == 0) s = 0;
      __syncthreads();
      atomicAdd(&s, 1);
      BARRIER
      y[threadIdx.x] = s;
    }"""
    y = np.zeros(64, "int32")
    assert check(source.replace("BARRIER", "__syncthreads();"), [y]).faults == []
    assert (y == 64).all()
    races = check(source.replace("BARRIER", ""), [y]).races
    assert {race.lines for race in races} <= {(5, 7), (7, 5)} and races
    kinds = {race.first.kind for race in races} | {race.second.kind for race in races}
    assert kinds == {"atomic", "read"}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_blocks_are_not_ordered(threads):
    source = """__global__ void k(float* x, float* y) {
      x[blockIdx.x * 64 + threadIdx.x] = blockIdx.x;
      y[blockIdx.x * 64 + threadIdx.x] = x[(blockIdx.x * 64 + threadIdx.x + SHIFT) % 256];
    }"""
    assert check(source.replace("SHIFT", "0"), [floats(256), floats(256)], grid=4, threads=threads).faults == []
    race = check(source.replace("SHIFT", "64"), [floats(256), floats(256)], grid=4, threads=threads).races[0]
    assert race.across_blocks and race.buffer == "x" and set(race.lines) == {2, 3}
    assert race.first.block != race.second.block and None not in (race.first.block, race.second.block)
    assert "which nothing orders" in str(race)


def test_blocks_may_add_atomically():
    source = "__global__ void k(float* y) { atomicAdd(y, 1.0f); }"
    y = floats(1)
    assert check(source, [y], grid=8).faults == [] and y[0] == 512
    assert check("__global__ void k(float* y) { if (threadIdx.x == 0) y[0] += 1.0f; }", [y], grid=8).races
    assert check("__global__ void k(float* y) { if (threadIdx.x == 0) { if (blockIdx.x) atomicAdd(y, 1.0f); else y[0] = 0; } }", [y], grid=8).races


def test_the_last_block_pattern_is_not_judged():
    source = """__device__ unsigned done;
    __global__ void k(float* part, float* y) {
      __shared__ bool last;
      if (threadIdx.x == 0) {
        part[blockIdx.x] = blockIdx.x;
        __threadfence();
        last = atomicAdd(&done, 1u) == gridDim.x - 1;
      }
      __syncthreads();
      if (last && threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += part[i];
        y[0] = sum;
      }
    }"""
    y = floats(1)
    report = check(source, [floats(8), y], grid=8, threads=1)
    assert report.faults == [] and y[0] == 28
    record = next(record for record in report.not_judged if record.buffer == "part")
    assert "fences and atomic operations may order them" in str(record)


def test_reads_of_shared_memory_that_nobody_wrote():
    source = REVERSE.replace("  s[threadIdx.x] =", "  if (threadIdx.x) s[threadIdx.x] =")
    record = only(check(source, [floats(), floats()]).uninitialised)
    assert (record.buffer, record.element, record.line, record.threads) == ("s", 0, 5, ((63,),))


def test_what_an_earlier_block_left_in_shared_memory_does_not_count():
    source = """__global__ void k(float* y) {
      __shared__ float s[64];
      if (blockIdx.x == 0) s[threadIdx.x] = 1;
      __syncthreads();
      y[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x];
    }"""
    report = check(source, [floats(128)], grid=2, threads=1)
    assert report.uninitialised[0].access.block == (1,)


OUT_OF_BOUNDS = [
    ("s[64 - threadIdx.x]", "s", "shared", 64, "read"),
    ("s[(int)threadIdx.x - 1]", "s", "shared", -1, "read"),
    ("x[threadIdx.x + 1]", "x", "global", 64, "read"),
    ("x[(int)threadIdx.x - 3]", "x", "global", -3, "read"),
    ("x[threadIdx.x * 1000]", "x", "global", 1000, "read"),
    ("(s[threadIdx.x + 5] = 0)", "s", "shared", 64, "write"),
    ("table[threadIdx.x / 4]", None, None, None, None),
]


@pytest.mark.parametrize("text, buffer, space, element, kind", OUT_OF_BOUNDS)
def test_out_of_bounds(text, buffer, space, element, kind):
    source = f"""__constant__ float table[16];
    __global__ void k(const float* x, float* y) {{
      __shared__ float before[8], s[64], after[8];
      before[threadIdx.x % 8] = 1; after[threadIdx.x % 8] = 1; if (threadIdx.x < 64) s[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      y[threadIdx.x] = {text} + before[0] + after[0];
    }}"""
    report = check(source, [floats(), floats()])
    if buffer is None:
        assert report.out_of_bounds == []
        return
    record = only(report.out_of_bounds)
    assert (record.buffer, record.space, record.element, record.extent, record.access.kind, record.line) == (buffer, space, element, 64, kind, 6)
    assert f"at element {element}; it has 64 of 4 bytes" in str(record)


def test_a_vector_access_that_begins_inside_and_ends_outside():
    source = "__global__ void k(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }"
    record = only(check(source, [floats(60), floats(64)], block=16).out_of_bounds)
    assert (record.buffer, record.element, record.extent) == ("x", 15, 15)


def test_a_wild_address_ends_the_launch_before_it_does_harm():
    source = """__global__ void k(float* y) {
      y[threadIdx.x] = 1;
      if (threadIdx.x == 7) y[1ll << 40] = 1;
    }"""
    report = check(source, [floats()])
    record = only(report.out_of_bounds)
    assert record.buffer is None and record.line == 3 and record.threads == ((7,),)
    assert "belongs to no array" in report.stopped
    assert "a null pointer" in str(only(check("__global__ void k(float* y) { y[threadIdx.x] = 1; }", [None]).out_of_bounds))


def test_a_write_to_a_read_only_array():
    x = floats()
    x.flags.writeable = False
    record = only(check("__global__ void k(const float* x) { const_cast<float*>(x)[threadIdx.x] = 1; }", [x]).out_of_bounds)
    assert "x which is read-only" in str(record) and (x == 0).all()


def test_dynamic_shared_memory_ends_where_the_launch_says():
    source = "__global__ void k(float* y) { extern __shared__ float s[]; s[threadIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x]; }"
    assert check(source, [floats()], shared_bytes=256).faults == []
    report = check(source, [floats()], shared_bytes=252)
    assert {(record.buffer, record.element, record.extent) for record in report.out_of_bounds} == {("s", 63, 63)}
    for mode in ("race", "memory"):  # forgotten, as it is by those whose kernel has its size in the host's code
        forgotten = check(source, [floats()], check=mode).out_of_bounds
        assert {record.buffer for record in forgotten} == {"s"} and "shared_bytes" in str(forgotten[0])


def test_a_barrier_under_a_divergent_condition():
    source = REVERSE.replace("__syncthreads();", "if (CONDITION) __syncthreads();")
    for condition, thread in (("threadIdx.x < 32", 32), ("threadIdx.x >= 32", 0)):
        record = only(check(source.replace("CONDITION", condition), [floats(), floats()]).divergence)
        assert record.lines == (4, 5) and record.threads[1] == (thread,)
        assert f"thread {thread} never came to the barrier of line 4" in str(record)
    assert check(source.replace("CONDITION", "blockDim.x == 64"), [floats(), floats()]).faults == []


def test_two_barriers_are_not_one():
    source = """__global__ void k(float* y) {
      if (threadIdx.x < 32) {
        __syncthreads();
      } else {
        y[threadIdx.x] = 1;
        __syncthreads();
      }
    }"""
    record = only(check(source, [floats()]).divergence)
    assert record.lines == (3, 6) and "waits at the barrier of line" in str(record)


def test_a_lane_that_the_block_does_not_have():
    source = "__global__ void k(float* y) { y[threadIdx.x] = __shfl_sync(0xffffu, 1.0f, threadIdx.x + 1); }"
    assert "thread 15 gets a value from lane 16, which the block does not have," in str(only(check(source, [floats()], block=16).divergence))


@pytest.mark.parametrize(
    "text, buffer, byte, bytes",
    [
        ("float4 v = *(const float4*)(x + OFFSET); y[threadIdx.x] = v.x;", "x", 4, 16),
        ("float4 v = *(const float4*)(x + 2 * OFFSET); y[threadIdx.x] = v.x;", "x", 8, 16),
        ("*(float2*)(y + 2 * threadIdx.x + OFFSET) = make_float2(1, 2);", "y", 4, 8),
        ("y[threadIdx.x] = *(const int*)((const char*)x + 3 * OFFSET);", "x", 3, 4),
    ],
)
@pytest.mark.parametrize("checked", ["race", "memory"])
def test_misaligned_vectors(text, buffer, byte, bytes, checked):
    source = f"__global__ void k(const float* x, float* y) {{\n {text} }}"
    report = check(source.replace("OFFSET", "1"), [floats(128), floats(128)], block=32, check=checked)
    record = only(report.out_of_bounds)
    assert (record.buffer, record.line, record.threads) == (buffer, 2, ((0,),)) and f"byte {byte}, which is not aligned to {bytes} bytes" in str(record)
    assert "a misaligned address" in report.stopped
    report = check(source.replace("OFFSET", "0"), [floats(128), floats(128)], block=32, check=checked)
    assert report.faults == [] and report.stopped is None


def test_a_structure_needs_the_alignment_of_its_members_only():
    source = "struct P { double a, b; }; __global__ void k(const double* x, double* y) { P p = *(const P*)(x + 1); y[threadIdx.x] = p.a + p.b; }"
    assert check(source, [np.ones(8), np.ones(32)], block=32).faults == []


def test_returning_early_is_no_divergence():
    source = """__global__ void k(float* y, int n) {
      __shared__ float s[64];
      if (threadIdx.x >= n) { y[threadIdx.x] = 0; return; }
      for (int i = 0; i < 3; ++i) {
        s[threadIdx.x] = i;
        __syncthreads();
        y[threadIdx.x] = s[(threadIdx.x + 1) % n];
        __syncthreads();
      }
    }"""
    assert check(source, [floats(), 40]).faults == []


def test_lanes_of_the_mask_that_never_come():
    source = """__global__ void k(float* y) {
      float v = y[threadIdx.x];
      if (threadIdx.x % 32 < 16) v = __shfl_xor_sync(MASK, v, 1);
      __syncthreads();
      y[threadIdx.x] = v;
    }"""
    assert check(source.replace("MASK", "0x0000ffffu"), [floats()]).faults == []
    report = check(source.replace("MASK", "0xffffffffu"), [floats()])
    record = only(report.divergence)
    assert record.line == 3 and "0xffffffff that never come" in str(record) and "barrier of line 4" in str(record)
    assert "wait in a warp function" in report.stopped
    record = only(check(source.replace("MASK", "0xffff0000u"), [floats()]).divergence)
    assert "does not name its lane" in str(record)


def test_a_shuffle_from_a_lane_that_takes_no_part():
    source = """__global__ void k(float* y) {
      if (threadIdx.x >= 20) return;
      y[threadIdx.x] = __shfl_down_sync(0xffffffffu, y[threadIdx.x], OFFSET);
    }"""
    record = only(check(source.replace("OFFSET", "4"), [floats()], block=32).divergence)
    assert record.line == 3 and "takes no part" in str(record)
    assert check(source.replace("OFFSET", "0"), [floats()], block=32).faults == []


def test_indices_of_local_arrays_and_of_inner_dimensions():
    source = """__global__ void k(float* y) {
      __shared__ float s[4][16];
      float a[16];
      s[threadIdx.x / 16][threadIdx.x % 16] = 1;
      for (int i = 0; i < 16; ++i) a[i] = y[i] + i;
      __syncthreads();
      y[64 + threadIdx.x] = a[(int)y[threadIdx.x] + FIRST] + s[0][SECOND + (int)y[threadIdx.x]];
    }"""
    assert check(source.replace("FIRST", "threadIdx.x % 16").replace("SECOND", "5"), [floats(128)]).faults == []
    record = only(check(source.replace("FIRST", "16").replace("SECOND", "5"), [floats(128)]).out_of_bounds)
    assert "thread 0 of block 0 in line 7 indexes an array of type float [16] with 16" in str(record) and record.extent == 16
    record = only(check(source.replace("FIRST", "5").replace("SECOND", "-1"), [floats(128)]).out_of_bounds)
    assert (record.line, record.element) == (7, -1)
    report = check(source.replace("FIRST", "1000000").replace("SECOND", "5"), [floats(128)])
    assert only(report.out_of_bounds).element == 1000000 and "far beyond" in report.stopped


def test_pointers_to_local_variables_are_not_judged_and_it_says_so():
    source = """__device__ __noinline__ float pick(const float* a, int i) { return a[i]; }
    __global__ void k(float* y) {
      float a[16];
      for (int i = 0; i < 16; ++i) a[i] = y[i] + i;
      y[64 + threadIdx.x] = pick(a, threadIdx.x % 16);
    }"""
    report = check(source, [floats(128)])
    assert report.faults == [] and "pointers to local variables" in str(only(report.not_judged))


def test_shared_arrays_of_device_functions_and_templates_have_their_names():
    source = """template <int N> __device__ float turn(float v) {
      __shared__ float tile[N];
      tile[threadIdx.x] = v;
      return tile[N - 1 - threadIdx.x];
    }
    namespace { __shared__ int outside[2]; }
    __global__ void k(float* y) {
      y[threadIdx.x] = turn<64>(y[threadIdx.x]);
      outside[threadIdx.x / 32] = 1;
    }"""
    report = check(source, [floats()])
    assert {race.buffer for race in report.races} == {"tile", "outside"}
    assert {race.lines for race in report.races if race.buffer == "tile"} <= {(3, 4), (4, 3)}


def test_copies_by_the_c_library_are_seen():
    source = """#include <string.h>
    __global__ void k(const float* x, float* y, int n) {
      __shared__ float s[64];
      if (threadIdx.x == 0) memcpy(s, x, n * sizeof(float));
      __syncthreads();
      y[threadIdx.x] = s[threadIdx.x];
    }"""
    x, y = np.arange(64, dtype="float32"), floats()
    assert check(source, [x, y, 64]).faults == [] and (y == x).all()
    assert check(source, [x, y, 63]).uninitialised
    assert {record.buffer for record in check(source, [x, y, 65]).out_of_bounds} == {"x", "s"}


def test_a_half_written_word_is_half_initialised():
    source = """__global__ void k(unsigned short* y, unsigned* z) {
      __shared__ __align__(16) unsigned short s[64];
      if (threadIdx.x % 2 == 0 || ALL) s[threadIdx.x] = y[threadIdx.x];
      __syncthreads();
      if (threadIdx.x < 32) z[threadIdx.x] = reinterpret_cast<unsigned*>(s)[threadIdx.x];
    }"""
    args = [np.zeros(64, "uint16"), np.zeros(32, "uint32")]
    assert check(source.replace("ALL", "true"), args).faults == []
    assert check(source.replace("ALL", "false"), args).uninitialised


def test_results_are_the_same_with_checks():
    x = np.random.default_rng(3).standard_normal(256).astype("float32")
    results = []
    for mode in (None, "race", "memory"):
        y = floats(256)
        check(REVERSE, [x, y], grid=4, check=mode)
        results.append(y)
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


def test_a_report_reads_as_text():
    report = check(REVERSE.replace("__syncthreads();", ""), [floats(), floats()])
    assert str(report).startswith("race on shared array s")
    assert str(check(REVERSE, [floats(), floats()])) == "no fault found"
    assert "nothing was checked" in str(check(REVERSE, [floats(), floats()], check=None))
