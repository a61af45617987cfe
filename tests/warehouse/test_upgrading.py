"""Databases of the time before segments, versions 1 and 2, become segments with all that was in them."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import duckdb
import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse, schema
from nightjar.warehouse.doctor import diagnose
from nightjar.warehouse.storage.folder import Folder

RUN = {
    "run_id": "run-1",
    "status": "completed",
    "env_id": "gsm8k",
    "env_version": "1.2.0",
    "env_args": '{"split":"test"}',
    "model": "m",
    "base_url": "https://api.example.com/v1",
    "sampling_args": '{"temperature":0.5}',
    "num_examples": 2,
    "rollouts_per_example": 2,
    "dataset_fingerprint": "f00d",
    "started_at": datetime(2026, 11, 20, 18, 0, tzinfo=UTC),
    "finished_at": datetime(2026, 11, 20, 18, 1, tzinfo=UTC),
    "time_ms": 60000.5,
    "rollouts": 4,
    "scored": 3,
    "failed": 1,
    "coverage": 0.75,
    "avg_reward": 0.5,
    "stderr": 0.25,
    "avg_error": 0.25,
    "avg_metrics": {"correct": 0.5, "length": 12.0},
    "pass_at_k": {"1": 0.5},
    "pass_all_k": {"1": 0.25},
    "pass_threshold": 0.5,
    "input_tokens": 300,
    "output_tokens": 60,
    "version_info": '{"nightjar_version":"0.1.0"}',
    "flow_run_id": "0b1c",
    "run_dir": "/runs/run-1",
    "published_at": datetime(2026, 11, 20, 18, 2, tzinfo=UTC),
}
METADATA = {
    "run_id": "run-1",
    "truncated": 2,
    "errors": {"ModelError -> Timeout": 1},
    "stop_conditions": {"done": 3},
    "served_models": ["m-2026"],
    "extra_env_kwargs": {"max_turns": 4},
}
TEXTS = {
    "task": "math",
    "answer": "4",
    "prompt": '[{"role":"user","content":"2 + 2? ü"}]',
    "completion": '[{"role":"assistant","content":"4"}]',
    "info": '{"level":1}',
    "tool_defs": None,
    "state": '{"turns":1208925819614629174706176}',
}


def insert(connection, table, **values):
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", list(values.values()))


def insert_rollout(connection, example_id, index, reward, **fields):
    values = {
        "run_id": "run-1",
        "example_id": example_id,
        "rollout_index": index,
        "example_hash": f"hash-{example_id}",
        "reward": reward,
        "advantage": 0.25,
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "done",
        "input_tokens": 100,
        "output_tokens": 20,
        "generation_ms": 10.5,
        "scoring_ms": 0.5,
        "total_ms": 11.0,
        "attempts": 1,
        "model": "m-2026",
    }
    insert(connection, "rollouts", **values | TEXTS | fields)


def write_database(path, version):
    """Makes a database as an older Nightjar did, with two runs; the second one never got to a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE migrations (number INTEGER, name VARCHAR, applied_at TIMESTAMPTZ)")
        for step in schema.migrations()[:version]:
            connection.execute(step.sql)
            connection.execute("INSERT INTO migrations VALUES (?, ?, now())", [step.number, step.name])
        insert(connection, "runs", **RUN, metadata=json.dumps(METADATA))
        insert(connection, "runs", run_id="run-2", status="failed", env_id="mmlu", published_at=RUN["published_at"])
        for example_id, index, reward in ((0, 0, 1.0), (0, 1, 0.0), (1, 0, 0.5)):
            insert_rollout(connection, example_id, index, reward)
            insert(
                connection,
                "metrics",
                run_id="run-1",
                example_id=example_id,
                rollout_index=index,
                name="correct",
                value=reward,
            )
            insert(
                connection,
                "metrics",
                run_id="run-1",
                example_id=example_id,
                rollout_index=index,
                name="none",
                value=None,
            )
        chain = "ModelError -> Timeout"
        insert_rollout(connection, 1, 1, None, error="ModelError", error_chain=chain, advantage=None, attempts=3)
        insert(
            connection,
            "errors",
            run_id="run-1",
            example_id=1,
            rollout_index=1,
            phase="generation",
            error="ModelError",
            message="too slow",
            chain=chain,
            traceback="Traceback",
        )


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "warehouse"


@pytest.fixture(params=[1, 2])
def old(folder, request):
    """A warehouse that an older Nightjar left."""
    write_database(folder / "nightjar.duckdb", request.param)
    return Warehouse(folder)


def record(warehouse, sql):
    result = warehouse.query(sql)
    (row,) = result.rows
    return dict(zip(result.columns, row, strict=True))


def test_all_of_a_run_is_kept(old):
    run = record(old, "FROM runs WHERE run_id = 'run-1'")
    assert {name: run[name] for name in RUN} == RUN
    assert json.loads(run["metadata"]) == METADATA
    assert (run["truncated"], run["errors"], run["stop_conditions"]) == (2, {"ModelError -> Timeout": 1}, {"done": 3})
    assert (run["served_models"], run["extra_env_kwargs"], run["nightjar_version"]) == (
        ["m-2026"],
        '{"max_turns":4}',
        "0.1.0",
    )
    assert old.query("SELECT run_id, status, env_id, avg_reward FROM runs ORDER BY 1").rows == [
        ("run-1", "completed", "gsm8k", 0.5),
        ("run-2", "failed", "mmlu", None),
    ]


def test_all_of_the_rollouts_is_kept(old):
    assert old.query("SELECT example_id, rollout_index, reward, correct FROM rollouts ORDER BY ALL").rows == [
        (0, 0, 1.0, True),
        (0, 1, 0.0, False),
        (1, 0, 0.5, True),
        (1, 1, None, None),
    ]
    rollout = record(old, "FROM rollouts WHERE example_id = 0 AND rollout_index = 1")
    assert {name: rollout[name] for name in TEXTS} == TEXTS
    assert rollout["metrics"] == {"correct": 0.0, "none": None}
    assert (rollout["attempts"], rollout["model"], rollout["total_ms"], rollout["trajectory"]) == (
        1,
        "m-2026",
        11.0,
        None,
    )
    failed = record(old, "FROM rollouts WHERE error IS NOT NULL")
    assert (failed["metrics"], failed["error_phase"], failed["error_message"]) == ({}, "generation", "too slow")


def test_the_views_answer(old):
    assert old.query("SELECT env_id, model, avg_reward, run_id FROM leaderboard").rows == [("gsm8k", "m", 0.5, "run-1")]
    assert old.query("SELECT count(*), count(value) FROM metrics").rows == [(6, 3)]
    assert old.query("SELECT error, message, chain, traceback FROM errors").rows == [
        ("ModelError", "too slow", "ModelError -> Timeout", "Traceback")
    ]
    assert old.query("SELECT example_id, avg_reward, scored, failed FROM example_rewards").rows == [
        (0, 0.5, 2, 0),
        (1, 0.5, 1, 1),
    ]
    assert old.query("SELECT k, pass_at_k FROM pass_at_k").rows == [(1, 0.5), (2, 1.0)]
    assert old.query("SELECT count(*) FROM examples").rows == [(2,)]
    assert old.query("FROM attempts").rows == []


def test_the_old_file_is_kept_and_the_new_one_is_a_snapshot(old, folder):
    before = (folder / "nightjar.duckdb").read_bytes()
    assert len(old.query("FROM runs").rows) == 2
    assert (folder / "nightjar-2.duckdb").read_bytes() == before
    with duckdb.connect(str(folder / "nightjar.duckdb"), read_only=True) as snapshot:
        assert snapshot.execute("SELECT count(*) FROM rollouts").fetchall() == [(4,)]
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    assert [finding for finding in diagnose(Folder(folder), deep=True).findings if finding.needs_action] == []


def test_publishing_upgrades_too_and_replaces_a_run(old, tmp_path, run_writer):
    assert old.publish(run_writer.write(tmp_path / "new", run_id="new")).is_new
    attempts = [run_writer.attempt(0, 0)]
    old.publish(run_writer.write(tmp_path / "run", [run_writer.rollout(0, 0)], attempts, run_id="run-1"))
    counts = old.query("SELECT run_id, count(*) FROM rollouts GROUP BY ALL ORDER BY 1").rows
    assert counts == [("new", 4), ("run-1", 1)]


def test_an_upgrade_that_was_killed_begins_anew(old, folder):
    (folder / ".upgrading-dead").mkdir()
    (folder / ".upgrading-dead" / "nightjar.duckdb").write_text("half")
    assert len(old.query("FROM runs").rows) == 2
    assert Warehouse(folder).query("SELECT count(*) FROM rollouts").rows == [(4,)]
    assert not (folder / ".upgrading-dead").exists()


def test_an_upgrade_that_was_killed_at_its_end_has_kept_the_old_file(old, folder, monkeypatch):
    before = (folder / "nightjar.duckdb").read_bytes()

    def die(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("nightjar.warehouse.upgrading.write_snapshot", die)
    with pytest.raises(KeyboardInterrupt):
        old.query("FROM runs")
    assert (folder / "nightjar-2.duckdb").read_bytes() == before
    assert len(Warehouse(folder).query("FROM runs").rows) == 2


def test_an_empty_database_becomes_an_empty_warehouse(folder):
    folder.mkdir()
    with duckdb.connect(str(folder / "nightjar.duckdb")) as connection:
        connection.execute("CREATE TABLE migrations (number INTEGER, name VARCHAR, applied_at TIMESTAMPTZ)")
        for step in schema.migrations()[:2]:
            connection.execute(step.sql)
            connection.execute("INSERT INTO migrations VALUES (?, ?, now())", [step.number, step.name])
    assert Warehouse(folder).query("FROM runs").rows == []


def test_a_database_of_a_newer_nightjar_is_refused(folder, tmp_path, run_writer):
    write_database(folder / "nightjar.duckdb", 2)
    with duckdb.connect(str(folder / "nightjar.duckdb")) as connection:
        connection.execute("INSERT INTO migrations VALUES (99, '0099_later', now())")
    before = (folder / "nightjar.duckdb").read_bytes()
    for operation in (lambda w: w.query("FROM runs"), lambda w: w.publish(run_writer.write(tmp_path / "run"))):
        with pytest.raises(WarehouseError, match="is at version 99, this Nightjar knows version 3"):
            operation(Warehouse(folder))
    assert (folder / "nightjar.duckdb").read_bytes() == before
    assert not (folder / "segments").exists()


def test_a_file_that_is_no_database_is_an_error(folder):
    folder.mkdir()
    (folder / "nightjar.duckdb").write_text("these are not the bytes you are looking for" * 1000)
    with pytest.raises(WarehouseError, match=r"Cannot upgrade .*not a valid DuckDB") as caught:
        Warehouse(folder).query("FROM runs")
    assert "\n" not in str(caught.value)
    assert (folder / "nightjar.duckdb").exists()


def test_a_snapshot_alone_is_no_old_database(folder, tmp_path, run_writer):
    """Somebody removed the segments, or copied the snapshot alone: its views have nothing to read."""
    warehouse = Warehouse(folder)
    warehouse.publish(run_writer.write(tmp_path / "run"))
    (folder / "segments").rename(tmp_path / "elsewhere")
    with pytest.raises(WarehouseError, match="No warehouse at"):
        Warehouse(folder).query("FROM runs")
    (tmp_path / "elsewhere").rename(folder / "segments")
    assert len(Warehouse(folder).query("FROM runs").rows) == 1


def test_a_publish_replaces_a_snapshot_whose_segments_are_gone(folder, tmp_path, run_writer):
    warehouse = Warehouse(folder)
    warehouse.publish(run_writer.write(tmp_path / "a", run_id="a"))
    (folder / "segments").rename(tmp_path / "elsewhere")
    Warehouse(folder).publish(run_writer.write(tmp_path / "b", run_id="b"))
    with duckdb.connect(str(folder / "nightjar.duckdb"), read_only=True) as snapshot:
        assert snapshot.execute("SELECT run_id FROM runs").fetchall() == [("b",)]
    assert not (folder / "nightjar-2.duckdb").exists()


def leave_in_the_log(database, run_id):
    """Commits a run, and goes as a process does that is killed: the row is in the write-ahead log alone."""
    with duckdb.connect(str(database)) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        insert(connection, "runs", run_id=run_id)
    assert database.with_name("nightjar.duckdb.wal").exists()


def test_what_is_in_the_log_alone_is_kept(old, folder):
    leave_in_the_log(folder / "nightjar.duckdb", "in the log")
    runs = [("in the log",), ("run-1",), ("run-2",)]
    assert old.query("SELECT run_id FROM runs ORDER BY 1").rows == runs
    assert not (folder / "nightjar.duckdb.wal").exists()
    with duckdb.connect(str(folder / "nightjar-2.duckdb")) as kept:
        assert kept.execute("SELECT run_id FROM runs ORDER BY 1").fetchall() == runs


WRITER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("writing", flush=True)
sys.stdin.read()
"""


def test_a_database_that_an_old_nightjar_writes_is_left_alone(old, folder):
    command = [sys.executable, "-c", WRITER, str(folder / "nightjar.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        with pytest.raises(WarehouseError, match=r"Cannot upgrade .* lock"):
            old.query("FROM runs")
        assert not (folder / "nightjar-2.duckdb").exists()
        writer.communicate(timeout=30)
    assert len(old.query("FROM runs").rows) == 2


KILLED = """
import os, sys
from pathlib import Path
from nightjar.warehouse import Warehouse, upgrading

def kill(original):
    def die(*arguments):
        if sys.argv[3] == "after":
            original(*arguments)
        os._exit(9)
    return die

if sys.argv[2] == "rename":
    Path.rename = kill(Path.rename)
else:
    setattr(upgrading, sys.argv[2], kill(getattr(upgrading, sys.argv[2])))
Warehouse(sys.argv[1]).query("FROM runs")
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", ["_write", "_link", "_keep", "rename", "write_snapshot"])
def test_an_upgrade_may_be_killed_at_any_step(folder, tmp_path, run_writer, step, moment):
    database = folder / "nightjar.duckdb"
    write_database(database, 2)
    leave_in_the_log(database, "in the log")
    before = database.read_bytes()
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder), step, moment], timeout=60, check=False)
    assert done.returncode == 9
    warehouse = Warehouse(folder)
    warehouse.publish(run_writer.write(tmp_path / "new", run_id="new"))
    assert [run_id for (run_id,) in warehouse.query("SELECT run_id FROM runs ORDER BY 1").rows] == [
        "in the log",
        "new",
        "run-1",
        "run-2",
    ]
    assert (folder / "nightjar-2.duckdb").read_bytes() == before
    with duckdb.connect(str(folder / "nightjar-2.duckdb")) as kept:
        assert kept.execute("SELECT count(*) FROM runs").fetchall() == [(3,)]
    with duckdb.connect(str(database), read_only=True) as snapshot:
        assert snapshot.execute("SELECT count(*) FROM runs").fetchall() == [(4,)]
    assert [file.name for left in folder.glob(".upgrading-*") for file in left.rglob("*") if file.is_file()] == []


def test_a_kept_file_of_something_else_is_not_overwritten(old, folder):
    (folder / "nightjar-2.duckdb").write_text("mine")
    before = (folder / "nightjar.duckdb").read_bytes()
    assert len(old.query("FROM runs").rows) == 2
    assert (folder / "nightjar-2.duckdb").read_text() == "mine"
    assert (folder / "nightjar-2.1.duckdb").read_bytes() == before


def test_where_a_file_can_have_one_name_only_it_is_copied(old, folder, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    leave_in_the_log(folder / "nightjar.duckdb", "in the log")
    before = (folder / "nightjar.duckdb").read_bytes()
    assert len(old.query("FROM runs").rows) == 3
    assert (folder / "nightjar-2.duckdb").read_bytes() == before
    assert (folder / "nightjar-2.duckdb.wal").exists()


def test_every_version_that_is_published_is_newer_than_an_upgraded_one(old):
    """Versions are compared as texts; the last part of a published one is a hash in hex digits."""
    ended_ms = int(RUN["finished_at"].timestamp() * 1000)
    version = old.query("SELECT version FROM runs WHERE run_id = 'run-1'").rows[0][0]
    assert version == f"{0:09d}-{0:013d}-{ended_ms:013d}-0"
    assert all(version < f"{0:09d}-{0:013d}-{ended_ms:013d}-{digit}0e5" for digit in "0123456789abcdef")


def test_without_a_threshold_half_is_correct(folder):
    write_database(folder / "nightjar.duckdb", 2)
    with duckdb.connect(str(folder / "nightjar.duckdb")) as connection:
        connection.execute("UPDATE runs SET pass_threshold = NULL")
    rows = Warehouse(folder).query("SELECT reward, correct FROM rollouts ORDER BY reward").rows
    assert rows == [(0.0, False), (0.5, True), (1.0, True), (None, None)]
