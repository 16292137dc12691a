"""The tuning log: one SQLite file that the user names, shared by any number of tuners.

    workloads(id, key, name, args, dag_hash, flops, bytes)      key: readable JSON of operator, sizes, dtypes, options
    targets(id, key, json)                                      key: the target as text
    sessions(id, started_at, host, versions, options, seed)     one per call of tune()
    trials(id, workload_id, target_id, session_id, round, generator, decisions, trace, source, status, stage, error, seconds, median_s,
           predicted, compile_s, source_hash, created_at)       seconds: JSON list, one figure a repeat
    best(workload_id, target_id, trial_id, median_s)            a view: the fastest valid measured trial of each pair

A trial is committed when it is inserted: killing the tuner loses none of them. What a log holds is data and is never executed. A file that
is damaged, foreign or of a newer schema is refused before anything is written to it.

Schema version (pragma user_version): 1, the first. A later version migrates here, when the file is opened.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ..tir.errors import LogError
from ..tir.optional import optional_import
from .record import STATUSES, Trial

SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 30.0  # another tuner may hold the write lock for one short transaction at a time
_MAGIC = b"SQLite format 3\x00"

_TABLES: dict[str, dict[str, type]] = {
    "workloads": {"id": int, "key": str, "name": str, "args": str, "dag_hash": str, "flops": float, "bytes": float},
    "targets": {"id": int, "key": str, "json": str},
    "sessions": {"id": int, "started_at": str, "host": str, "versions": str, "options": str, "seed": int},
    "trials": {
        "id": int,
        "workload_id": int,
        "target_id": int,
        "session_id": int,
        "round": int,
        "generator": str,
        "decisions": str,
        "trace": str,
        "source": str,
        "status": str,
        "stage": str,
        "error": str,
        "seconds": str,
        "median_s": float,
        "predicted": float,
        "compile_s": float,
        "source_hash": str,
        "created_at": str,
    },
}
_NOT_NULL = {
    "workloads": {"key", "name", "dag_hash"},
    "targets": {"key", "json"},
    "sessions": {"started_at"},
    "trials": {"workload_id", "target_id", "decisions", "source", "status", "created_at"},
}
_FOREIGN_KEYS = {"trials": [("workload_id", "workloads", "id"), ("target_id", "targets", "id"), ("session_id", "sessions", "id")]}
_UNIQUE = (("workloads", ("key", "dag_hash")), ("targets", ("key", "json")))
_BEST_VIEW = """
select workload_id, target_id, id as trial_id, min(median_s) as median_s
from trials where status = 'ok' and source = 'measured' and median_s is not null group by workload_id, target_id
"""  # SQLite takes the bare column `id` from the row that has the minimum

_Result = TypeVar("_Result")


def now() -> str:
    """The time, UTC, as ISO 8601 text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Database:
    """A tuning log. Use it as a context manager, or call `close()`.

    path        the file; with `create=True` it is made when it does not exist (its folder too), else a missing file is a LogError
    read_only   nothing is ever written, not even by SQLite itself
    raises      LogError: missing, damaged, no tuning log, or of a newer schema; the file is left as it was
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False, read_only: bool = False):
        self.path = Path(path)
        sqlite_utils = optional_import("sqlite_utils", "the tuning log", "tune")
        exists = self.path.exists() and not (create and self.path.stat().st_size == 0)
        if not exists:
            if not create:
                raise LogError(f"there is no tuning log at '{self.path}'; `tilewright tune ... --log {self.path}` makes one")
            self._create(sqlite_utils)
        _refuse_unusable(self.path)
        with _refusing(self.path):
            self._db = sqlite_utils.Database(_connect(self.path, read_only=read_only), execute_plugins=False)
        if not read_only:
            self._db.conn.execute("pragma foreign_keys = on")

    def _create(self, sqlite_utils: Any) -> None:
        """Makes the whole file under another name, then links it into place: no other process ever sees half a schema."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", suffix=".new", dir=self.path.parent)
        except OSError as error:
            raise LogError(f"cannot make a tuning log at '{self.path}': {error.strerror or error}") from error
        os.close(handle)
        try:
            _write_schema(sqlite_utils.Database(name, execute_plugins=False))
            os.chmod(name, 0o644)
            if self.path.exists() and self.path.stat().st_size == 0:  # an empty file, as `touch` or mkstemp leave it
                os.replace(name, self.path)
            else:
                with contextlib.suppress(FileExistsError):  # another tuner was first: use its file
                    os.link(name, self.path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def close(self) -> None:
        self._db.conn.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ---- writing

    def add_workload(self, key: str, dag_hash: str, *, name: str, args: str, flops: float, bytes_moved: float) -> int:
        """The id of the workload with this key and hash; made when it is new. `args` is JSON."""
        row = {"key": key, "name": name, "args": args, "dag_hash": dag_hash, "flops": float(flops), "bytes": float(bytes_moved)}
        self._write(lambda: self._db["workloads"].insert(row, ignore=True))
        return self._only_id("select id from workloads where key = ? and dag_hash = ?", key, dag_hash)

    def add_target(self, key: str, as_json: str) -> int:
        self._write(lambda: self._db["targets"].insert({"key": key, "json": as_json}, ignore=True))
        return self._only_id("select id from targets where key = ? and json = ?", key, as_json)

    def add_session(self, host: str, versions: dict[str, str], options: dict[str, Any], seed: int) -> int:
        row = {"started_at": now(), "host": host, "versions": json.dumps(versions), "options": json.dumps(options), "seed": seed}
        return self._write(lambda: int(self._db["sessions"].insert(row).last_pk))

    def add_trial(self, workload_id: int, target_id: int, session_id: int, trial: Trial) -> int:
        """Commits one trial and gives it its id."""
        if trial.status not in STATUSES:
            raise ValueError(f"'{trial.status}' is no status of a trial; one of {', '.join(STATUSES)}")
        trial.created_at = trial.created_at or now()
        row = {
            "workload_id": workload_id,
            "target_id": target_id,
            "session_id": session_id,
            "round": trial.round,
            "generator": trial.generator,
            "decisions": json.dumps(trial.decisions, sort_keys=True),
            "trace": None if trial.trace is None else json.dumps(trial.trace),
            "source": "measured",
            "status": trial.status,
            "stage": trial.stage,
            "error": trial.error,
            "seconds": json.dumps(list(trial.repeats)) if trial.repeats else None,
            "median_s": trial.seconds,
            "predicted": trial.predicted,
            "compile_s": trial.compile_s,
            "source_hash": trial.source_hash,
            "created_at": trial.created_at,
        }
        trial.id = self._write(lambda: int(self._db["trials"].insert(row).last_pk))
        return trial.id

    def update_seconds(self, trial: Trial) -> None:
        """Stores the times of a later, more careful measurement in place of the first ones."""
        values = {"seconds": json.dumps(list(trial.repeats)), "median_s": trial.seconds}
        self._write(lambda: self._db["trials"].update(trial.id, values))

    def _write(self, action: Callable[[], _Result]) -> _Result:
        """Runs one write; SQLite's own timeout waits for other writers, the retries are for a lock it does not wait for."""
        for attempt in range(8):
            try:
                return action()
            except sqlite3.OperationalError as error:
                if "readonly" in str(error):
                    raise LogError(f"the tuning log '{self.path}' cannot be written: {error}") from error
                if not ("locked" in str(error) or "busy" in str(error)) or attempt == 7:
                    raise LogError(f"writing to the tuning log '{self.path}' failed: {error}") from error
                time.sleep(0.05 * 2**attempt)
            except sqlite3.DatabaseError as error:
                raise LogError(f"writing to the tuning log '{self.path}' failed: {error}") from error
        raise AssertionError("unreachable")

    # ---- reading

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """The rows a query gives, each as column -> value."""
        try:
            cursor = self._db.conn.execute(sql, values)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except sqlite3.DatabaseError as error:
            raise LogError(f"the tuning log '{self.path}' cannot be read: {error}") from error

    def _only_id(self, sql: str, *values: Any) -> int:
        return int(self.rows(sql, *values)[0]["id"])

    def trials(self, workload_id: int, target_id: int) -> list[Trial]:
        """Every measured trial of a workload on a target, in the order they were made."""
        return [
            self._trial(row)
            for row in self.rows(
                "select t.*, w.flops from trials t join workloads w on w.id = t.workload_id "
                "where t.workload_id = ? and t.target_id = ? and t.source = 'measured' order by t.id",
                workload_id,
                target_id,
            )
        ]

    def best(self, key: str, dag_hash: str) -> list[tuple[dict[str, Any], Trial]]:
        """The best trial of a workload for each target that has one: (target as data, trial), the fastest first."""
        rows = self.rows(
            "select t.*, w.flops, g.json as target_json from best b join trials t on t.id = b.trial_id "
            "join workloads w on w.id = b.workload_id join targets g on g.id = b.target_id "
            "where w.key = ? and w.dag_hash = ? order by b.median_s",
            key,
            dag_hash,
        )
        return [(self._data(row, "target_json"), self._trial(row)) for row in rows]

    def best_table(self) -> list[dict[str, Any]]:
        """One row per workload and target that has a valid trial: name, args, target, median_s, gflops, trials, valid, trial_id."""
        return self.rows(
            "select w.name, w.args, w.key, g.key as target, b.median_s, w.flops / b.median_s / 1e9 as gflops, b.trial_id, "
            "count(t.id) as trials, sum(t.status = 'ok') as valid "
            "from best b join workloads w on w.id = b.workload_id join targets g on g.id = b.target_id "
            "join trials t on t.workload_id = b.workload_id and t.target_id = b.target_id "
            "group by b.workload_id, b.target_id order by w.name, w.id, g.key"
        )

    def trial_table(self, limit: int, workload: str | None = None) -> list[dict[str, Any]]:
        """The latest `limit` trials, newest first, of all workloads or of those with this name."""
        return self.rows(
            "select t.id, w.name, w.args, g.key as target, t.round, t.generator, t.status, t.stage, t.error, t.median_s, "
            "w.flops / t.median_s / 1e9 as gflops, t.predicted, t.decisions from trials t join workloads w on w.id = t.workload_id "
            "join targets g on g.id = t.target_id where ? is null or w.name = ? order by t.id desc limit ?",
            workload,
            workload,
            limit,
        )

    def workload_names(self) -> list[str]:
        return [row["name"] for row in self.rows("select distinct name from workloads order by name")]

    def _trial(self, row: dict[str, Any]) -> Trial:
        repeats = self._data(row, "seconds") or []
        if not isinstance(repeats, list) or not all(isinstance(value, int | float) for value in repeats):
            raise LogError(f"trial {row['id']} of the tuning log '{self.path}' has times that are no list of numbers")
        return Trial(
            decisions=self._data(row, "decisions"),
            status=row["status"],
            stage=row["stage"],
            error=row["error"],
            repeats=tuple(repeats),
            trace=self._data(row, "trace"),
            predicted=row["predicted"],
            generator=row["generator"] or "",
            round=row["round"] or 0,
            compile_s=row["compile_s"],
            source_hash=row["source_hash"],
            created_at=row["created_at"],
            flops=row["flops"] or 0.0,
            id=row["id"],
        )

    def _data(self, row: dict[str, Any], column: str) -> Any:
        """A JSON column as data. JSON is all a log is ever parsed as."""
        text = row[column]
        try:
            return None if text is None else json.loads(text)
        except (ValueError, RecursionError) as error:
            raise LogError(f"trial {row['id']} of the tuning log '{self.path}': column '{column}' is no JSON ({error})") from error


def _write_schema(db: Any) -> None:
    for table, columns in _TABLES.items():
        db[table].create(columns, pk="id", not_null=_NOT_NULL[table], foreign_keys=_FOREIGN_KEYS.get(table, ()), strict=True)
    for table, unique in _UNIQUE:
        db[table].create_index(unique, unique=True)
    db["trials"].create_index(("workload_id", "target_id", "status", "median_s"))
    db.create_view("best", _BEST_VIEW)
    db.conn.execute(f"pragma user_version = {SCHEMA_VERSION}")
    db.conn.commit()
    db.conn.execute("pragma journal_mode = wal").fetchall()
    db.conn.close()  # the last connection moves everything from the write-ahead log into the file


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    uri = path.absolute().as_uri() + ("?mode=ro" if read_only else "?mode=rw")
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)
        connection.execute("select count(*) from sqlite_master").fetchall()
    except sqlite3.OperationalError:
        if not read_only or os.access(path.parent, os.W_OK):
            raise
        # A write-ahead log needs a file beside it, which cannot be made here; then nobody else writes here either.
        return sqlite3.connect(uri.replace("mode=ro", "mode=ro&immutable=1"), uri=True)
    return connection


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise LogError(f"'{path}' is damaged ({error}); it was left as it is. Move it away, or restore it from a copy") from error
    except OSError as error:
        raise LogError(f"the tuning log '{path}' cannot be read: {error.strerror or error}") from error


def _refuse_unusable(path: Path) -> None:
    """Reads only: a file that is not ours must not change by a byte."""
    with _refusing(path):
        with open(path, "rb") as file:
            head = file.read(len(_MAGIC))
        if head != _MAGIC:
            raise LogError(f"'{path}' is no tuning log: it is not an SQLite file. It was left as it is")
        with contextlib.closing(_connect(path, read_only=True)) as connection:
            version = connection.execute("pragma user_version").fetchone()[0]
            names = {row[0] for row in connection.execute("select name from sqlite_master where type in ('table', 'view')")}
            if version > SCHEMA_VERSION:
                raise LogError(
                    f"the tuning log '{path}' was written by a newer Tilewright (schema {version}, this one knows "
                    f"{SCHEMA_VERSION}); upgrade Tilewright, or name another file"
                )
            if version < 1 or not {*_TABLES, "best"} <= names:
                raise LogError(
                    f"'{path}' is an SQLite file but no tuning log (schema {version}, tables: {', '.join(sorted(names)) or 'none'}); it was left as it is"
                )
            found = connection.execute("pragma quick_check(1)").fetchone()[0]
            if found != "ok":
                raise LogError(f"'{path}' is damaged ({found}); it was left as it is. Move it away, or restore it from a copy")
