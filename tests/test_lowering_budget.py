"""Guards what lowering costs by counts, which are the same on every machine: nodes built and rules tried for the workloads of benchmarks/lowering.py.

A budget is the count when it was set and a quarter more. If a change needs more, say why in its message and set it anew.
"""

import sys
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.tir.node import COUNTERS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from lowering_workloads import WORKLOADS, chain

BUDGET = {  # nodes built, rules tried
    "matmul": (460, 58),
    "conv2d": (185, 345),
    "attention": (225, 113),
    "softmax": (145, 10),
    "chain": (480, 50),
}


def counts(make):
    s, args = make()
    before = COUNTERS.snapshot()
    tw.lower(s, args)
    after = COUNTERS.snapshot()
    return {name: after[name] - before[name] for name in after}


@pytest.mark.parametrize("name", WORKLOADS)
def test_lowering_stays_in_its_budget(name):
    found = counts(WORKLOADS[name])
    nodes, rules = BUDGET[name]
    assert nodes / 3 < found["nodes_built"] <= nodes, found
    assert found["rules_tried"] <= rules, found


def test_work_grows_linearly_with_the_stages():
    small, large = counts(lambda: chain(40))["nodes_built"], counts(lambda: chain(320))["nodes_built"]
    assert large <= 8.5 * small, (small, large)
