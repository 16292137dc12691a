"""A search over schedules for GPUs: candidates are built in one process and run in another, here by the emulator."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright import autotune


def test_candidates_are_built_run_and_replayed(tmp_path):
    task = autotune.Task("matmul", (24, 40, 16), target=tw.Target("cuda", device="emulator", threads=1))
    run = autotune.tune(task, trials=3, log=tmp_path / "log.db", seed=0)
    assert [trial.status for trial in run.trials] == ["ok"] * 3
    module = autotune.load_best(task, log=tmp_path / "log.db")
    assert module.target == task.target and "__global__" in module.get_source()
    a, b, c = np.ones((24, 16), "f"), np.ones((16, 40), "f"), np.zeros((24, 40), "f")
    module(a, b, c)
    assert (c == 16).all()
