"""The tuning log: schema, hostile files, several processes at once, kill -9."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.autotune import database
from tilewright.autotune.database import Database
from tilewright.autotune.record import Trial
from tilewright.tir.errors import LogError

WRITER = """
import sys, time
from tilewright.autotune.database import Database
from tilewright.autotune.record import Trial
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Database(path, create=True) as log:
    workload = log.add_workload(name, "hash", name=name, args="[]", flops=1e9, bytes_moved=1.0)
    target, session = log.add_target("c", "{}"), log.add_session("here", {}, {}, 0)
    for number in range(count):
        log.add_trial(workload, target, session, Trial({"n": number}, "ok", repeats=(1.0,)))
        print(number, flush=True)
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True)


def filled(path: Path) -> tuple[Database, int, int]:
    log = Database(path, create=True)
    workload = log.add_workload('{"op":"matmul"}', "hash", name="matmul", args="[8,8,8]", flops=2e9, bytes_moved=768.0)
    target, session = log.add_target("c", '{"kind":"c"}'), log.add_session("here", {"python": "3"}, {"trials": 3}, 0)
    log.add_trial(workload, target, session, Trial({"tile": [2, 4]}, "ok", repeats=(0.5, 0.4, 0.6), trace=[{"step": "split"}], flops=2e9))
    log.add_trial(workload, target, session, Trial({"tile": [4, 4]}, "wrong_result", "verify", "C[0, 0] is 1, expected 2"))
    log.add_trial(workload, target, session, Trial({"tile": [8, 4]}, "ok", repeats=(0.25,), predicted=0.75, flops=2e9))
    return log, workload, target


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "t.db"
    log, workload, target = filled(path)
    assert log.add_workload('{"op":"matmul"}', "hash", name="matmul", args="[8,8,8]", flops=2e9, bytes_moved=768.0) == workload
    assert log.add_target("c", '{"kind":"c"}') == target
    log.close()
    with Database(path, read_only=True) as again:
        first, wrong, last = again.trials(workload, target)
        assert (first.seconds, first.repeats, first.trace, first.gflops) == (0.5, (0.5, 0.4, 0.6), [{"step": "split"}], 4.0)
        assert (wrong.status, wrong.stage, wrong.error, wrong.seconds) == ("wrong_result", "verify", "C[0, 0] is 1, expected 2", None)
        ((as_data, best),) = again.best('{"op":"matmul"}', "hash")
        assert as_data == {"kind": "c"} and best.id == last.id and best.predicted == 0.75
        assert again.best('{"op":"matmul"}', "another declaration") == []
        (row,) = again.best_table()
        assert (row["trials"], row["valid"], row["gflops"], row["trial_id"]) == (3, 2, 8.0, last.id)
        assert [row["id"] for row in again.trial_table(2)] == [3, 2] and again.trial_table(9, "conv2d") == []
        assert again.workload_names() == ["matmul"]


def test_schema_is_the_documented_one(tmp_path: Path) -> None:
    filled(tmp_path / "t.db")[0].close()
    plain = sqlite3.connect(tmp_path / "t.db")
    assert plain.execute("pragma user_version").fetchone() == (1,)
    assert plain.execute("pragma journal_mode").fetchone() == ("wal",)
    assert {row[0] for row in plain.execute("select name from sqlite_master where type in ('table', 'view')")} == {
        "workloads",
        "targets",
        "sessions",
        "trials",
        "best",
    }
    types = {row[1]: row[2] for row in plain.execute("pragma table_info(trials)")}
    assert list(types) == [
        "id",
        "workload_id",
        "target_id",
        "session_id",
        "round",
        "generator",
        "decisions",
        "trace",
        "source",
        "status",
        "stage",
        "error",
        "seconds",
        "median_s",
        "predicted",
        "compile_s",
        "source_hash",
        "created_at",
    ]
    assert types["median_s"] == "REAL" and types["round"] == "INTEGER" and types["trace"] == "TEXT"
    assert {(row[2], row[3]) for row in plain.execute("pragma foreign_key_list(trials)")} == {
        ("workloads", "workload_id"),
        ("targets", "target_id"),
        ("sessions", "session_id"),
    }


def test_a_later_measurement_changes_the_best(tmp_path: Path) -> None:
    log, workload, target = filled(tmp_path / "t.db")
    first, _, last = log.trials(workload, target)
    last.repeats = (0.9, 1.1)
    log.update_seconds(last)
    assert log.best('{"op":"matmul"}', "hash")[0][1].id == first.id


def test_foreign_keys_and_statuses_are_checked(tmp_path: Path) -> None:
    log, workload, target = filled(tmp_path / "t.db")
    with pytest.raises(LogError, match="FOREIGN KEY"):
        log.add_trial(workload + 7, target, 1, Trial({}, "ok"))
    with pytest.raises(ValueError, match="'great' is no status"):
        log.add_trial(workload, target, 1, Trial({}, "great"))


def test_a_missing_log_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no tuning log at .*none\.db.*tilewright tune"):
        Database(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LogError, match="cannot make a tuning log"):
        Database("/proc/nowhere/t.db", create=True)


def other_database(path: Path) -> None:
    plain = sqlite3.connect(path)
    plain.execute("create table music(title)")
    plain.commit()
    plain.close()


def newer(path: Path) -> None:
    filled(path)[0].close()
    plain = sqlite3.connect(path)
    plain.execute("pragma user_version = 999999")
    plain.commit()
    plain.close()


def truncated(path: Path) -> None:
    log = filled(path)[0]
    for _ in range(300):
        log.add_trial(1, 1, 1, Trial({"x": "y" * 300}, "ok"))
    log.close()
    path.write_bytes(path.read_bytes()[:20_000])


def scribbled(path: Path) -> None:
    filled(path)[0].close()
    data = bytearray(path.read_bytes())
    data[4096:12_000] = b"\xa5" * (12_000 - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b"not a database at all" * 100), "no tuning log.*left as it is"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\x00" * 3), "damaged|no tuning log"),
        (other_database, "no tuning log.*music"),
        (newer, "newer.*999999.*knows 1"),
        (truncated, "damaged"),
        (scribbled, "damaged"),
    ],
)
def test_hostile_files_are_refused_and_left_alone(tmp_path: Path, make, words: str, create: bool) -> None:
    path = tmp_path / "t.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(LogError, match=words):
        Database(path, create=create)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    (tmp_path / "t.db").touch()
    filled(tmp_path / "t.db")[0].close()
    assert [path.name for path in tmp_path.iterdir()] == ["t.db"]


def test_content_is_only_ever_data(tmp_path: Path) -> None:
    log, workload, target = filled(tmp_path / "t.db")
    log._db["trials"].insert(
        {
            "workload_id": workload,
            "target_id": target,
            "decisions": "__import__('os').abort()",
            "source": "measured",
            "status": "ok",
            "created_at": "now",
            "median_s": 0.001,
        }
    )
    with pytest.raises(LogError, match=r"trial 4 .*'decisions' is no JSON"):
        log.best('{"op":"matmul"}', "hash")
    log._db["trials"].update(4, {"decisions": "{}", "seconds": '["fast"]'})
    with pytest.raises(LogError, match=r"trial 4 .*no list of numbers"):
        log.trials(workload, target)
    name = "'); drop table trials; --"
    log.add_workload(name, "h", name=name, args="[]", flops=1.0, bytes_moved=1.0)
    assert name in log.workload_names() and len(log.trial_table(10)) == 4


def test_read_only_never_writes(tmp_path: Path) -> None:
    filled(tmp_path / "t.db")[0].close()
    before = (tmp_path / "t.db").read_bytes()
    with Database(tmp_path / "t.db", read_only=True) as log:
        log.best_table()
        with pytest.raises(LogError, match="readonly"):
            log.add_target("c", "other")
    assert (tmp_path / "t.db").read_bytes() == before


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    writers = [start_writer(path, name, 60) for name in ("matmul", "conv2d", "softmax")]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    with Database(path) as log:
        assert [row["trials"] for row in log.best_table()] == [60, 60, 60]
        assert [row["n"] for row in log.rows("select count(*) as n from targets")] == [1]


def test_kill_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    writer = start_writer(path, "matmul", 100_000)
    assert writer.stdout is not None
    seen = 0
    while seen < 30:
        seen = int(writer.stdout.readline()) + 1
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    with Database(path) as log:
        assert log.rows("pragma integrity_check") == [{"integrity_check": "ok"}]
        assert log.best_table()[0]["trials"] >= seen
    writer.stdout.close()


def test_a_held_lock_is_waited_for(tmp_path: Path) -> None:
    log, workload, target = filled(tmp_path / "t.db")
    code = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('begin immediate'); "
        "print('held', flush=True); time.sleep(0.5); c.execute('commit')"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "t.db")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    started = time.perf_counter()
    log.add_trial(workload, target, 1, Trial({"late": 1}, "ok"))
    assert time.perf_counter() - started > 0.1 and database.BUSY_TIMEOUT_S > 5
    holder.communicate()
    assert json.loads(log.rows("select decisions from trials order by id desc limit 1")[0]["decisions"]) == {"late": 1}
    assert os.path.exists(tmp_path / "t.db")
