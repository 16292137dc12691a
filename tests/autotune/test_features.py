"""Features of loop nests, on nests written by hand whose numbers can be worked out on paper."""

import math

import pytest

from tilewright.autotune.features import FEATURE_NAMES, nest_features
from tilewright.tir.expr import Buffer, Var, const, load
from tilewright.tir.stmt import Atomic, For, Func, nested, store
from tilewright.tir.target import Target

TARGET = Target("c", threads=2, vector_bytes=32, l1_bytes=32 << 10, l2_bytes=512 << 10)


def matmul(order: str, size: int = 64, kinds: dict[str, str] | None = None) -> dict[str, float]:
    """Features, by name, of C[i, j] += A[i, k] * B[k, j] with its loops in this order."""
    a, b, c = (Buffer(name, (size, size)) for name in "ABC")
    axes = {name: Var(name, "int32", (0, size - 1)) for name in "ijk"}
    i, j, k = (axes[name] for name in "ijk")
    update = store(c, (i, j), load(c, (i, j)) + load(a, (i, k)) * load(b, (k, j)))
    loops = [For(axes[name], const(size), (kinds or {}).get(name, "serial"), update) for name in order]
    func = Func("matmul", (a, b, c), frozenset({c}), nested(loops, update))
    values = nest_features(func, TARGET)
    assert len(values) == len(FEATURE_NAMES) and all(math.isfinite(value) for value in values)
    return dict(zip(FEATURE_NAMES, values, strict=True))


def test_names_are_unique_and_have_units() -> None:
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)
    assert all(name.endswith("]") and "[" in name for name in FEATURE_NAMES)


def test_arithmetic_and_loops_are_counted() -> None:
    found = matmul("ikj", kinds={"i": "parallel", "j": "vectorized"})
    points = 64**3
    assert found["store 0: executions [log2 1]"] == pytest.approx(math.log2(points + 1))
    assert found["store 0: float_add [log2 operations]"] == found["store 0: float_mul [log2 operations]"] == pytest.approx(math.log2(points + 1))
    assert found["store 0: float_div [log2 operations]"] == 0
    assert found["store 0: vectorized iterations [log2 1]"] == found["store 0: parallel iterations [log2 1]"] == 6
    assert found["store 0: innermost vectorized [flag]"] == 1 and found["store 0: parallel balance [share]"] == 1
    assert found["share of operations vectorized [share]"] == found["share of operations parallel [share]"] == 1
    assert found["stores [1]"] == 1


def test_strides_and_reuse_follow_the_loop_order() -> None:
    inner_j, inner_k = matmul("ikj"), matmul("ijk")
    # All three buffers have one footprint; the written one comes first, then A and B as they are read.
    strides = {
        order: [2 ** found[f"store 0: buffer {n}: innermost stride [log2 B]"] - 1 for n in range(3)] for order, found in (("j", inner_j), ("k", inner_k))
    }
    assert sorted(strides["j"]) == pytest.approx([0, 4, 4]) and sorted(strides["k"]) == pytest.approx([0, 4, 256])
    assert inner_k["store 0: buffer 0: reuse [log2 1]"] == pytest.approx(math.log2(65))  # C over k
    assert inner_k["store 0: buffer 0: reuse distance [log2 1]"] == pytest.approx(1)  # at every iteration
    assert inner_j["store 0: buffer 0: reuse distance [log2 1]"] == pytest.approx(math.log2(65))  # only after a row of j


def test_what_fits_a_cache_does_not_come_again() -> None:
    small, large = matmul("ijk", 32), matmul("ijk", 512)
    bytes_small = 2 ** small["store 0: bytes beyond L2 [log2 B]"] - 1
    assert bytes_small == pytest.approx(3 * 4 * 32**2)
    assert 2 ** large["store 0: bytes beyond L2 [log2 B]"] > 20 * 3 * 4 * 512**2  # B streams through for every row of C


def test_a_small_nest_leaves_the_second_store_empty() -> None:
    found = matmul("ijk")
    assert all(value == 0 for name, value in found.items() if name.startswith("store 1"))


def test_an_atomic_update_counts_as_the_store_that_it_is() -> None:
    a, c, i = Buffer("A", (64,)), Buffer("C", (64,)), Var("i", "int32", (0, 63))
    updates = [Atomic(load(c, (i,)), load(a, (i,)), "add", ("blockIdx.x",)), store(c, (i,), load(c, (i,)) + load(a, (i,)))]
    funcs = [Func("f", (a, c), frozenset({c}), For(i, const(64), "serial", update)) for update in updates]
    first, second = (nest_features(func, TARGET) for func in funcs)
    assert list(first) == list(second) and first[FEATURE_NAMES.index("stores [1]")] == 1
