"""lower and build: what they take, what they give, what they refuse; and that the package's door opens quickly on what it promises."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.tir.passes import Pipeline, StopAfter, pipeline_for


def doubled(size: int = 8):
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[i] * 2.0, name="B")
    return te.create_schedule(B.op), [A, B]


def test_build_runs_under_the_name_it_was_given():
    s, args = doubled()
    module = tw.build(s, args, target=tw.Target("c", threads=1), name="twice")
    a, b = np.arange(8, dtype="f"), np.zeros(8, "f")
    module(a, b)
    np.testing.assert_array_equal(b, a * 2)
    assert module.name == "twice" and "int32_t twice(" in module.get_source()
    assert str(module.signature) == "twice(A: float32[8], B: out float32[8])"
    assert tw.build(s, args, name="exp").name == "exp_kernel"  # the C library's own


def test_a_cpu_has_no_memory_of_a_block_of_threads():
    s, args = doubled()
    s[s.cache_read(args[0], "shared", [args[1]])].compute_at(s[args[1]], args[1].op.axis[0])
    with pytest.raises(tw.ScheduleError, match=r"stage A.shared: its scope is 'shared'.*target is 'c'.*set_scope.*, or name the GPU: target='cuda'"):
        tw.build(s, args)


def test_a_cpu_has_no_thread_indices():
    s, args = doubled()
    s[args[1]].bind(args[1].op.axis[0], te.thread_axis("threadIdx.x"))
    for call in (tw.lower, tw.build):
        with pytest.raises(tw.ScheduleError, match=r"stage B: axis i is bound to threadIdx.x.*target is 'c'.*parallel"):
            call(s, args)


def test_lower_shows_every_step(tmp_path):
    s, args = doubled()
    assert "B[i] = A[i] * 2.0" in str(tw.lower(s, args))
    tw.lower(s, args, dump=tmp_path)
    assert len(list(tmp_path.glob("*.txt"))) > len(pipeline_for("c").passes)
    stopped = tw.lower(s, args, instruments=[StopAfter("flatten")])
    full = pipeline_for("c")
    short = Pipeline("short", start=full.start, passes=full.passes[:2], end=full.start)
    assert str(tw.lower(s, args, passes=short)) == str(stopped)
    with pytest.raises(tw.PipelineError, match=r"passes= is \['flatten'\]: expected a tir.passes.Pipeline"):
        tw.lower(s, args, passes=["flatten"])
    with pytest.raises(tw.PipelineError, match="dump= is 3: expected the path of a folder"):
        tw.lower(s, args, dump=3)


def test_a_target_must_be_known_and_fit_the_schedule():
    s, args = doubled()
    for target, words in (("cuda", "outside any thread"), ("nosuch", "nosuch")):
        with pytest.raises(tw.TargetError, match=words):
            tw.build(s, args, target=target)


def test_a_report_tells_of_calls():
    s, args = doubled()
    s[args[1]].bind(args[1].op.axis[0], te.thread_axis("threadIdx.x"))
    module = tw.build(s, args, tw.Target("cuda", device="emulator"), check="race")
    with pytest.raises(tw.TargetError, match="not called yet"):
        _ = module.report
    module(np.ones(8, "f"), np.zeros(8, "f"))
    assert str(module.report) == "no fault found"


def test_names_of_the_package():
    for name in tw.__all__:
        assert getattr(tw, name) is not None
    assert te.create_schedule is tw.create_schedule and "autotune" in dir(tw)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tw.nothing


def test_a_very_long_chain_of_operations():
    """3,000 operations on one value: deeper than Python's usual recursion limit."""
    A = te.placeholder((4,), name="A")
    value = lambda i: A[i]  # noqa: E731
    B = te.compute((4,), lambda i: _chain(value(i), 3000), name="B")
    a, b = np.arange(4, dtype="f"), np.zeros(4, "f")
    tw.build(te.create_schedule(B.op), [A, B])(a, b)
    expected = a
    for step in range(3000):
        expected = expected * np.float32(0.999) + np.float32(step % 3)
    np.testing.assert_allclose(b, expected, rtol=1e-3)


def _chain(value, length: int):
    for step in range(length):
        value = value * 0.999 + float(step % 3)
    return value
