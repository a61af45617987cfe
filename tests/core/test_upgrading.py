"""Databases of the time before segments, versions 1 and 2, become segments with all that was in them."""

import json
from datetime import UTC, datetime

import duckdb
import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse, schema
from nightjar.warehouse.doctor import diagnose
from nightjar.warehouse.folder import Folder

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
    with pytest.raises(WarehouseError) as caught:
        Warehouse(folder).query("FROM runs")
    assert "\n" not in str(caught.value)
    (tmp_path / "elsewhere").rename(folder / "segments")
    assert len(Warehouse(folder).query("FROM runs").rows) == 1
