"""Every operator's default schedule and random candidates of its space compute what the reference says, at sizes that divide by nothing."""

import random

import numpy as np
import pytest
from operator_cases import CASES

import tilewright as tw
from tilewright import autotune, te
from tilewright.autotune.verify import make_check
from tilewright.te.library.operator import OPERATORS
from tilewright.tir.target import Target


@pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt")  # a reference given a negative variance, before positive inputs
@pytest.mark.parametrize(("name", "sizes", "options"), CASES, ids=[f"{case[0]}{number}" for number, case in enumerate(CASES)])
def test_default_and_random_candidates_are_right(name: str, sizes: tuple, options: dict) -> None:
    task = autotune.Task(name, sizes, target=Target("c", threads=2), **options)
    check = make_check(task.tensors, task.reference, seed=1)
    seed = sum(map(ord, f"{name}{sizes}{options}"))
    rng = random.Random(seed)
    assert task.space.contains(task.space.default()) and all(task.space.contains(decisions) for decisions in task.space.suggestions())
    for decisions in ({}, task.space.sample(rng)):
        candidate = task.instantiate(decisions)
        module = tw.build(candidate.schedule, candidate.tensors, target=task.target)
        arguments = check.arguments()
        module(*arguments)
        assert check.mismatch(arguments) is None, (seed, decisions, check.mismatch(arguments))
        again = task.replay(candidate.schedule.trace.to_data())
        assert again.schedule.as_python() == candidate.schedule.as_python()
        module.close()


@pytest.mark.parametrize(
    ("name", "sizes", "options"),
    [
        ("quantized_matmul", (13, 35, 40), {"a_zero": -128, "out_zero": -7, "out_dtype": "int8"}),
        ("quantized_conv2d", (1, 8, 6, 9, 19, 3, 2), {"dtype": "uint8", "x_zero": 255, "padding": 1, "out_zero": 130, "out_dtype": "uint8"}),
        ("int4_matmul", (9, 37, 32), {"group": 16}),
    ],
)
def test_quantized_operators_on_all_bytes(name: str, sizes: tuple, options: dict) -> None:
    """Zero points and sums at the ends of their range, results that are rounded and clipped: the same to the bit where they are integers."""
    op = OPERATORS[name](*sizes, **options)
    rng = np.random.default_rng(3)
    arrays = []
    for t in op.args[:-1]:
        if t.dtype.is_integer:
            high = 15 if (name, t.name) == ("int4_matmul", "Z") else t.dtype.high
            arrays.append(rng.integers(t.dtype.low, high, t.shape, endpoint=True).astype(str(t.dtype)))
        else:
            arrays.append((rng.standard_normal(t.shape) * (1 if name == "int4_matmul" else 1e-3)).astype("f"))
    found, want = np.empty(op.output.shape, str(op.output.dtype)), op.reference(*arrays)
    tw.build(autotune.default_schedule(op, "c"), op.args, target="c")(*arrays, found)
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, want, atol=1e-5 * np.abs(want).max())
    else:
        assert found.tolist() == want.tolist() and len(np.unique(found)) > 100
        assert {op.output.dtype.low, op.output.dtype.high} <= set(found.flat)


def test_every_operator_is_covered() -> None:
    assert {case[0] for case in CASES} == set(OPERATORS)


def test_decisions_do_not_change_the_space() -> None:
    """Candidates are drawn from the space of the default decisions, so a knob's candidates must not depend on another knob's value."""
    rng = random.Random(5)
    for name, sizes, options in CASES:
        task = autotune.Task(name, sizes, target=Target("c", threads=2), **options)
        for _ in range(4):
            config = task.instantiate(task.space.sample(rng)).config
            for knob in config.space.knobs.values():
                if knob.name in task.space.knobs:  # others are of stages that the default inlines: they take their defaults
                    assert task.space.knobs[knob.name].candidates == knob.candidates, (name, knob.name)


def test_any_computation_has_a_default_schedule() -> None:
    n, co = 11, 10
    x, w, g = te.placeholder((1, 6, n, n), name="X"), te.placeholder((co, 6, 3, 3), name="W"), te.placeholder((co,), name="G")
    pad = te.compute((1, 6, n + 2, n + 2), lambda b, c, i, j: te.if_then_else(te.all(i >= 1, i <= n, j >= 1, j <= n), x[b, c, i - 1, j - 1], 0.0), name="P")
    c, r, q = te.reduce_axis((0, 6), "c"), te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "q")
    y = te.compute((1, co, n, n), lambda b, o, i, j: te.sum(pad[b, c, i + r, j + q] * w[o, c, r, q], axis=[c, r, q]), name="Y")
    z = te.compute(y.shape, lambda b, o, i, j: te.max(y[b, o, i, j] + g[o], 0.0), name="Z")
    schedule = autotune.default_schedule([x, w, g, z], "c")
    module = tw.build(schedule, [x, w, g, z], target="c")
    check = make_check([x, w, g, z], autotune.Task.from_compute([x, w, g, z]).reference, seed=0)
    arguments = check.arguments()
    module(*arguments)
    assert check.exact and check.mismatch(arguments) is None and module.workspace_bytes == 0
    k, j = te.reduce_axis((0, 300), "k"), te.reduce_axis((0, 200), "j")
    table = te.placeholder((300, 200), name="table")
    total = te.compute((), lambda: te.sum(table[k, j], axis=[k, j]), name="total")
    values, result = np.ones((300, 200), "f"), np.zeros((), "f")
    tw.build(autotune.default_schedule(total, Target("c", threads=2)), [table, total], target="c")(values, result)
    assert result == 60_000
    n = te.size_var("n")
    wide, q = te.placeholder((4, n), name="wide"), te.reduce_axis((0, n), "q")
    sums, found = te.compute((4,), lambda i: te.sum(wide[i, q], axis=q), name="sums"), np.zeros(4, "f")
    tw.build(autotune.default_schedule(sums), [wide, sums])(np.ones((4, 7), "f"), found)
    assert found.tolist() == [7] * 4
    op = OPERATORS["matmul"](8, 8, 8)
    assert autotune.default_schedule(op, "c").as_python() == autotune.Task("matmul", (8, 8, 8)).instantiate({}).schedule.as_python()
    assert np.prod(z.shape) and autotune.default_schedule(z, "c").as_python() == schedule.as_python()


@pytest.mark.parametrize(("size", "stride"), [(28, 2), (56, 2), (14, 1), (33, 3)])
def test_depthwise_reads_whole_vectors(size: int, stride: int) -> None:
    """By default columns are sorted by their remainder first: no tap gathers, whatever the stride."""
    op = te.library.depthwise_conv2d(1, 8, size, size, 3, 3, stride=stride, padding=1)
    lowered = str(tw.lower(autotune.default_schedule(op, Target("c", threads=2)), op.args))
    taps = [line for line in lowered.splitlines() if "W[" in line]
    assert taps and all("ramp(" in line for line in taps)
    assert not [line for line in taps if f", {stride}, 8)" in line and stride > 1]


def test_few_rows_are_shared_by_panels() -> None:
    """A product of few rows has one block of rows, so it is the panels of columns that threads share."""
    op = te.library.matmul(5, 1024, 512)
    lowered = str(tw.lower(autotune.default_schedule(op, Target("c", threads=2)), op.args))
    assert "j.outer in parallel(" in lowered
