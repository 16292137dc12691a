"""Targets and the switches of the environment."""

from __future__ import annotations

import json

import pytest

from tilewright.tir import config, target
from tilewright.tir.errors import TargetError, TilewrightError
from tilewright.tir.target import Target


def test_targets_are_values():
    one, same = Target("c", threads=2), Target(threads=2)
    assert one == same and hash(one) == hash(same) and one != Target("c", threads=3)
    with pytest.raises(AttributeError):
        one.threads = 4
    assert Target.parse(one) is one and Target.parse("c") == Target()


def test_json_gives_the_same_target_on_any_machine(monkeypatch):
    original = Target("c", threads=7, opt="-O3", compiler="gcc", sanitize=True)
    text = original.to_json()
    monkeypatch.setattr(target, "cpu_name", lambda: "another processor")
    monkeypatch.setattr(target, "native_vector_bytes", lambda: 16)
    assert Target.from_json(text) == original
    with pytest.raises(TargetError, match="unknown fields tensor_cores"):
        Target.from_json('{"kind": "c", "tensor_cores": 4}')
    for text in ("nonsense", "[1]", "3"):
        with pytest.raises(TargetError):
            Target.from_json(text)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"kind": "nosuch"}, "unknown target 'nosuch'; known kinds: 'c', 'cuda'"),
        ({"kind": None}, "unknown target None"),
        ({"kind": "cuda -arch=sm_80"}, r"unknown target .*; options are arguments: Target\(.cuda., name=value\)"),
        ({"kind": "cuda", "arch": "sm_70"}, "arch 'sm_70': expected the compute capability of a GPU, one of sm_75, .*sm_120"),
        ({"kind": "cuda", "arch": 90}, "arch 90"),
        ({"kind": "cuda", "device": "tpu"}, "device 'tpu': expected 'gpu', or 'emulator'"),
        ({"kind": "cuda", "march": "native"}, "march is no option of target 'cuda'; its options are arch, device"),
        ({"kind": "cuda", "threads": -1}, "threads -1"),
        ({"arch": "sm_90"}, "arch is no option of target 'c'"),
        ({"threads": 0}, "threads 0: expected an integer of at least 1"),
        ({"threads": 1.5}, r"threads 1\.5"),
        ({"threads": True}, "threads True"),
        ({"vector_bytes": 24}, "vector_bytes 24: expected 16, 32 or 64"),
        ({"l1_bytes": -1}, "l1_bytes -1"),
        ({"march": "native; rm"}, "march 'native; rm'"),
        ({"march": "-native"}, "march '-native'"),
        ({"opt": "-Ofast"}, "opt '-Ofast': expected one of -O0"),
    ],
)
def test_what_is_no_target(arguments, words):
    with pytest.raises(TargetError, match=words):
        Target(**arguments)


def test_a_gpu_is_a_target():
    made = Target("cuda", arch="sm_86", device="emulator", threads=2)
    assert made.gpu.capability == 86 and made.vector_bytes == 16 and made.lanes(4) == 4
    assert Target.from_json(made.to_json()) == made != Target("cuda", arch="sm_86", threads=2)
    assert str(made) == "cuda sm_86, emulated by 2 threads" and str(Target("cuda", fast_math=True)) == "cuda sm_90, fast math"
    with pytest.raises(TargetError, match="'c' is no GPU"):
        _ = Target("c").gpu


def test_the_json_of_a_c_target_has_its_own_options_only():
    """Tuning logs hold it."""
    names = "kind march threads compiler sanitize opt vector_bytes vector_registers l1_bytes l2_bytes cpu"
    assert json.loads(Target("c").to_json()).keys() == set(names.split())


def test_text():
    shown = str(Target("c", march="x86-64-v3", threads=1, opt="-O3", compiler="clang", sanitize=True))
    assert shown == "c x86-64-v3, 1 thread, 256-bit vectors, clang, -O3, sanitized"
    assert str(Target("c", threads=2, cpu="Example, family 1 model 2", vector_bytes=64)).startswith("c native (Example, family 1 model 2), 2 threads, 512")


@pytest.mark.parametrize(
    "march, vector_bytes",
    [
        ("x86-64", 16),
        ("x86-64-v2", 16),
        ("x86-64-v3", 32),
        ("znver3", 32),
        ("skylake", 32),
        ("skylake-avx512", 64),
        ("x86-64-v4", 64),
        ("armv8-a", 16),
    ],
)
def test_vector_width_by_architecture(march, vector_bytes):
    assert Target("c", march=march).vector_bytes == vector_bytes
    assert Target("c", march=march).lanes(4) == vector_bytes // 4


@pytest.mark.parametrize(
    "flags, vector_bytes",
    [("sse2", 16), ("avx avx2 fma", 32), ("avx2 fma avx512f avx512bw avx512dq avx512vl", 64), ("avx2 fma avx512f", 32)],
)
def test_vector_width_of_this_machine(monkeypatch, flags, vector_bytes):
    monkeypatch.setattr(target, "_cpuinfo", lambda: {"flags": flags})
    assert Target("c").vector_bytes == vector_bytes


def test_default_threads(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert Target().threads == target.usable_cpus() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert Target().threads == 3
    monkeypatch.setenv("TILEWRIGHT_THREADS", "5")
    assert Target().threads == 5 and Target(threads=1).threads == 1


def test_usable_cpus_of_a_container(monkeypatch):
    monkeypatch.setattr(target.os, "sched_getaffinity", lambda process: range(16))
    monkeypatch.setattr(target, "_quota", target._quota.__wrapped__)  # as when first asked
    for quota, cpus in (("max 100000", 16), ("250000 100000", 3), ("50000 100000", 1), ("", 16)):
        monkeypatch.setattr(target, "_read", lambda path, quota=quota: quota)
        assert target.usable_cpus() == cpus


def test_cache_sizes_are_plausible():
    made = Target()
    assert 8 << 10 <= made.l1_bytes <= 1 << 20 and 64 << 10 <= made.l2_bytes <= 64 << 20


def test_a_switch_is_read_when_it_is_asked_for(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "2")
    assert config.VERIFY.value == 2
    monkeypatch.setenv("TILEWRIGHT_VERIFY", " ")
    assert config.VERIFY.value == 0
    for text in ("two", "-1"):
        monkeypatch.setenv("TILEWRIGHT_VERIFY", text)
        with pytest.raises(TilewrightError, match=f"TILEWRIGHT_VERIFY='{text}'.*checks after each pass"):
            _ = config.VERIFY.value


def test_every_switch_is_in_the_table(monkeypatch):
    switches = [value for value in vars(config).values() if isinstance(value, config.Switch)]
    assert sorted(s.name for s in switches) == sorted(s.name for s in config.SWITCHES)
    monkeypatch.setenv("TILEWRIGHT_CC", "my-compiler")
    table = config.describe()
    assert "my-compiler" in table and all(switch.name in table and switch.meaning in table for switch in switches)


def test_a_changed_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    with config.changed_environment("GOMP_SPINCOUNT", "8"):
        assert config.GOMP_SPIN_COUNT.value == "8"
    assert config.GOMP_SPIN_COUNT.value == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    with config.changed_environment("GOMP_SPINCOUNT", "8"):
        pass
    assert config.GOMP_SPIN_COUNT.value == ""
