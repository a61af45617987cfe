"""The warehouse: what a publish leaves, what a query may do, and many processes at once."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import PublishReport, Warehouse, database, resolve_warehouse, schema

METADATA = {
    "run_id": "run-1",
    "status": "incomplete",
    "env_id": "gsm8k",
    "env_version": "1.2.0",
    "env_args": {"split": "test"},
    "model": "openai/gpt-4.1-mini",
    "base_url": "https://api.example.com/v1",
    "num_examples": 2,
    "rollouts_per_example": 2,
    "sampling_args": {"temperature": 0.5},
    "dataset_fingerprint": "f00d",
    "date": "2026-11-20",
    "time": "18:00:00",
    "time_ms": 61000.5,
    "started_at": "2026-11-20T20:00:00+02:00",
    "finished_at": "2026-11-20T18:01:01Z",
    "rollouts": 4,
    "scored": 3,
    "failed": 1,
    "coverage": 0.75,
    "avg_reward": 0.5,
    "stderr": 0.25,
    "avg_metrics": {"correct": 0.5, "length": 12.0},
    "avg_error": 0.25,
    "pass_at_k": {"1": 0.5},
    "pass_all_k": {"1": 0.5},
    "pass_threshold": 0.5,
    "usage": {"input_tokens": 300, "output_tokens": 60},
    "errors": {"ModelError -> RateLimitError": 1},
    "stop_conditions": {"done": 3},
    "version_info": {"nightjar": "0.1.0"},
    "state_columns": [],
    "flow_run_id": None,
}

FAILURE = {
    "error": "ModelError",
    "message": "429 Too Many Requests",
    "phase": "generation",
    "error_chain_repr": "ModelError -> RateLimitError",
    "error_chain_str": "ModelError: 429",
    "traceback": None,
}


def rollout(example_id: int, rollout_index: int, reward: float = 1.0, /, **fields) -> dict:
    return {
        "example_id": example_id,
        "rollout_index": rollout_index,
        "example_hash": f"hash-{example_id}",
        "prompt": [{"role": "user", "content": "2 + 2?"}],
        "completion": [{"role": "assistant", "content": "4"}],
        "answer": "4",
        "info": {"level": 1},
        "task": "math",
        "reward": reward,
        "advantage": 0.25,
        "metrics": {"correct": reward, "length": 12.0},
        "error": None,
        "timing": {"generation_ms": 10.5, "scoring_ms": 0.5, "total_ms": 11.0},
        "is_completed": True,
        "is_truncated": False,
        "stop_condition": "done",
        "token_usage": {"input_tokens": 100, "output_tokens": 20},
        "attempts": 1,
        "model": "gpt-4.1-mini-2026",
        **fields,
    }


def failed(example_id: int, rollout_index: int) -> dict:
    nothing = {"reward": None, "advantage": None, "metrics": {}, "completion": None, "model": None}
    return rollout(example_id, rollout_index) | nothing | {"error": FAILURE, "attempts": 3}


ROLLOUTS = [rollout(0, 0, 1.0), rollout(0, 1, 0.0), rollout(1, 0, 0.5), failed(1, 1)]


def write_run(folder: Path, rollouts=ROLLOUTS, **metadata) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.json").write_text(json.dumps({**METADATA, **metadata}))
    lines = (line if isinstance(line, str) else json.dumps(line) + "\n" for line in rollouts)
    (folder / "results.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture
def warehouse(tmp_path):
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def run_dir(tmp_path):
    return write_run(tmp_path / "run")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    warehouse = Warehouse(folder / "warehouse")
    warehouse.publish(write_run(folder / "run"))
    return warehouse


def one(warehouse, sql, parameters=None):
    (row,) = warehouse.query(sql, parameters).rows
    return row


def contents(warehouse):
    tables = {
        "runs": "SELECT * EXCLUDE (published_at) FROM runs ORDER BY ALL",
        "rollouts": "FROM rollouts ORDER BY ALL",
        "metrics": "FROM metrics ORDER BY ALL",
        "errors": "FROM errors ORDER BY ALL",
    }
    return {table: warehouse.query(sql).rows for table, sql in tables.items()}


class TestPublish:
    def test_reports_what_it_published(self, warehouse, run_dir):
        report = warehouse.publish(run_dir)
        assert report == PublishReport(run_id="run-1", rollouts=4, metrics=6, errors=1)

    def test_a_run_has_one_row(self, warehouse, run_dir):
        warehouse.publish(str(run_dir))
        result = warehouse.query("FROM runs")
        (row,) = result.rows
        run = dict(zip(result.columns, row, strict=True))
        assert datetime.now(UTC).timestamp() - run.pop("published_at").timestamp() < 60
        assert json.loads(run.pop("metadata")) == METADATA
        assert run == {
            "run_id": "run-1",
            "status": "incomplete",
            "env_id": "gsm8k",
            "env_version": "1.2.0",
            "env_args": '{"split":"test"}',
            "model": "openai/gpt-4.1-mini",
            "base_url": "https://api.example.com/v1",
            "sampling_args": '{"temperature":0.5}',
            "num_examples": 2,
            "rollouts_per_example": 2,
            "dataset_fingerprint": "f00d",
            "started_at": datetime(2026, 11, 20, 18, 0, tzinfo=UTC),
            "finished_at": datetime(2026, 11, 20, 18, 1, 1, tzinfo=UTC),
            "time_ms": 61000.5,
            "rollouts": 4,
            "scored": 3,
            "failed": 1,
            "coverage": 0.75,
            "avg_reward": 0.5,
            "stderr": 0.25,
            "avg_error": 0.25,
            "avg_metrics": {"correct": 0.5, "length": 12.0},
            "pass_at_k": {"1": 0.5},
            "pass_all_k": {"1": 0.5},
            "pass_threshold": 0.5,
            "input_tokens": 300,
            "output_tokens": 60,
            "version_info": '{"nightjar":"0.1.0"}',
            "flow_run_id": None,
            "run_dir": str(run_dir),
        }

    def test_a_rollout_has_one_row(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        result = warehouse.query("FROM rollouts WHERE example_id = 0 AND rollout_index = 1")
        (row,) = result.rows
        assert dict(zip(result.columns, row, strict=True)) == {
            "run_id": "run-1",
            "example_id": 0,
            "rollout_index": 1,
            "example_hash": "hash-0",
            "reward": 0.0,
            "advantage": 0.25,
            "is_completed": True,
            "is_truncated": False,
            "stop_condition": "done",
            "error": None,
            "error_chain": None,
            "input_tokens": 100,
            "output_tokens": 20,
            "generation_ms": 10.5,
            "scoring_ms": 0.5,
            "total_ms": 11.0,
            "attempts": 1,
            "model": "gpt-4.1-mini-2026",
            "task": "math",
            "answer": "4",
            "prompt": '[{"role":"user","content":"2 + 2?"}]',
            "completion": '[{"role":"assistant","content":"4"}]',
            "info": '{"level":1}',
            "tool_defs": None,
            "state": None,
        }

    def test_metrics_and_errors_have_their_rows(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        published = contents(warehouse)
        assert published["metrics"] == [
            ("run-1", 0, 0, "correct", 1.0),
            ("run-1", 0, 0, "length", 12.0),
            ("run-1", 0, 1, "correct", 0.0),
            ("run-1", 0, 1, "length", 12.0),
            ("run-1", 1, 0, "correct", 0.5),
            ("run-1", 1, 0, "length", 12.0),
        ]
        chain = "ModelError -> RateLimitError"
        message = "429 Too Many Requests"
        assert published["errors"] == [("run-1", 1, 1, "generation", "ModelError", message, chain, None)]

    def test_a_failed_rollout_has_an_error_and_no_reward(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        row = one(
            warehouse,
            "SELECT reward, advantage, error, error_chain, attempts, completion IS NULL"
            " FROM rollouts WHERE error IS NOT NULL",
        )
        assert row == (None, None, "ModelError", "ModelError -> RateLimitError", 3, True)

    def test_twice_leaves_the_same_rows(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        before = contents(warehouse)
        warehouse.publish(run_dir)
        assert contents(warehouse) == before

    def test_replaces_only_its_own_run(self, warehouse, run_dir, tmp_path):
        warehouse.publish(run_dir)
        warehouse.publish(write_run(tmp_path / "other", [rollout(0, 0)], run_id="run-2"))
        warehouse.publish(write_run(run_dir, [rollout(0, 0, 0.25)], status="completed"))
        counts = "SELECT run_id, status, (FROM rollouts r SELECT count(*) WHERE r.run_id = runs.run_id)"
        assert warehouse.query(f"{counts} FROM runs ORDER BY run_id").rows == [
            ("run-1", "completed", 1),
            ("run-2", "incomplete", 1),
        ]
        assert one(warehouse, "SELECT count(*) FROM errors") == (0,)
        assert one(warehouse, "SELECT count(*) FROM metrics") == (4,)

    def test_the_last_line_of_a_rollout_counts(self, warehouse, tmp_path):
        lines = [failed(0, 0), rollout(0, 1, 0.5), rollout(0, 0, 0.25), rollout(0, 0, 0.75)]
        report = warehouse.publish(write_run(tmp_path / "run", lines))
        assert report == PublishReport(run_id="run-1", rollouts=2, metrics=4, errors=0)
        rewards = warehouse.query("SELECT rollout_index, reward FROM rollouts ORDER BY 1").rows
        assert rewards == [(0, 0.75), (1, 0.5)]

    def test_missing_fields_are_null(self, warehouse, tmp_path):
        run_dir = tmp_path / "run"
        run_dir.mkdir()
        (run_dir / "metadata.json").write_text('{"run_id": "bare"}')
        (run_dir / "results.jsonl").write_text('{"example_id": 7, "rollout_index": 0}\n')
        assert warehouse.publish(run_dir) == PublishReport("bare", 1, 0, 0)
        row = one(warehouse, "SELECT COLUMNS(* EXCLUDE (run_id, example_id, rollout_index)) FROM rollouts")
        assert set(row) == {None}
        row = one(
            warehouse,
            "SELECT COLUMNS(* EXCLUDE (run_id, run_dir, published_at, metadata)) FROM runs",
        )
        assert set(row) == {None}

    def test_a_metric_that_is_no_number_keeps_its_row(self, warehouse, tmp_path):
        metrics = {"correct": None, "ratio": math.nan, "bound": math.inf, "length": 3}
        warehouse.publish(write_run(tmp_path / "run", [rollout(0, 0, metrics=metrics)]))
        rows = dict(warehouse.query("SELECT name, value FROM metrics").rows)
        assert rows.keys() == {"correct", "ratio", "bound", "length"}
        assert rows["correct"] is None
        assert math.isnan(rows["ratio"])
        assert rows["bound"] == math.inf
        assert rows["length"] == 3.0

    def test_columns_of_the_environment_are_kept(self, warehouse, tmp_path):
        fields = {
            "turns": 3,
            'the "plan"': {"it's": [1]},
            "tool_defs": [{"name": "search"}],
            "task": {"question": "?"},
            "answer": 42,
        }
        names = ["turns", 'the "plan"', "turns", "answer", "absent"]
        run_dir = write_run(tmp_path / "run", [rollout(0, 0, **fields)], state_columns=names)
        warehouse.publish(run_dir)
        state, tools, task, answer = one(warehouse, "SELECT state, tool_defs, task, answer FROM rollouts")
        assert json.loads(state) == {"turns": 3, 'the "plan"': {"it's": [1]}, "absent": None}
        assert json.loads(tools) == [{"name": "search"}]
        assert (json.loads(task), answer) == ({"question": "?"}, "42")

    def test_a_run_without_results_is_published(self, warehouse, tmp_path):
        run_dir = write_run(tmp_path / "run", [], scored=0, failed=0)
        assert warehouse.publish(run_dir) == PublishReport("run-1", 0, 0, 0)
        (run_dir / "results.jsonl").unlink()
        assert warehouse.publish(run_dir) == PublishReport("run-1", 0, 0, 0)
        assert one(warehouse, "SELECT count(*) FROM runs") == (1,)

    def test_a_very_long_line_loads(self, warehouse, tmp_path):
        long = [{"role": "assistant", "content": "x" * 20_000_000}]
        warehouse.publish(write_run(tmp_path / "run", [rollout(0, 0), rollout(0, 1, completion=long)]))
        lengths = "SELECT length(completion->>'$[0].content') FROM rollouts ORDER BY 1"
        assert warehouse.query(lengths).rows == [(1,), (20_000_000,)]

    def test_any_folder_name_will_do(self, tmp_path):
        run_dir = write_run(tmp_path / "gsm8k--a*b?[c] it's" / "key=value")
        warehouse = Warehouse(tmp_path / "it's [a] house*")
        assert warehouse.publish(run_dir).rollouts == 4
        assert one(warehouse, "SELECT run_dir FROM runs") == (str(run_dir),)

    def test_a_torn_last_line_is_left_out(self, warehouse, tmp_path, caplog):
        run_dir = write_run(tmp_path / "run", [rollout(0, 0), '{"example_id": 0, "rollo'])
        assert warehouse.publish(run_dir).rollouts == 1
        assert "torn" in caplog.text
        assert (run_dir / "results.jsonl").read_text().endswith("rollo")

    def test_a_last_line_without_its_newline_counts(self, warehouse, tmp_path):
        lines = [rollout(0, 0), json.dumps(rollout(0, 1))]
        assert warehouse.publish(write_run(tmp_path / "run", lines)).rollouts == 2

    def test_leaves_only_the_database_and_its_lock(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        assert {file.name for file in warehouse.folder.iterdir()} == {
            "nightjar.duckdb",
            "nightjar.lock",
        }

    def test_older_duckdb_can_read_the_file(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        with duckdb.connect(str(warehouse.database), read_only=True) as connection:
            tags = connection.execute(
                "SELECT tags['storage_version'] FROM duckdb_databases() WHERE NOT internal"
            ).fetchone()
        assert tags == ("v1.4.0+",)


class TestDamage:
    @pytest.mark.parametrize(
        "fields",
        [
            {"reward": "high"},
            {"reward": {"value": 1}},
            {"example_id": "first"},
            {"is_completed": "maybe"},
            {"metrics": 0.5},
            {"metrics": {"correct": "yes"}},
            {"error": "ModelError"},
            {"timing": 12},
            {"attempts": [1]},
        ],
    )
    def test_a_value_of_the_wrong_type_is_an_error(self, warehouse, tmp_path, fields):
        run_dir = write_run(tmp_path / "run", [rollout(0, 0), rollout(0, 1, **fields)])
        with pytest.raises(WarehouseError, match=r"Cannot read .*run/results\.jsonl: .*near line"):
            warehouse.publish(run_dir)

    @pytest.mark.parametrize("line", ['{"example_id": 0,\n', "[1, 2]\n", '{"rollout_index": 0}\n'])
    def test_a_damaged_line_is_an_error(self, warehouse, tmp_path, line):
        run_dir = write_run(tmp_path / "run", [rollout(0, 0), line, rollout(0, 1)])
        with pytest.raises(WarehouseError, match=r"Cannot read .*run/results\.jsonl: "):
            warehouse.publish(run_dir)

    def test_missing_results_of_a_run_that_had_some_are_an_error(self, warehouse, run_dir):
        (run_dir / "results.jsonl").unlink()
        with pytest.raises(WarehouseError, match=r"Cannot read .*run/results\.jsonl"):
            warehouse.publish(run_dir)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"run_id": 3}',
            '{"run_id": "a", "scored": "x"}',
            '{"run_id": "a"} 1',
        ],
    )
    def test_damaged_metadata_is_an_error(self, warehouse, run_dir, text):
        (run_dir / "metadata.json").write_text(text)
        with pytest.raises(WarehouseError, match=r"Cannot read .*run/metadata\.json: "):
            warehouse.publish(run_dir)

    def test_a_folder_that_is_no_run_is_an_error(self, warehouse, tmp_path):
        with pytest.raises(WarehouseError, match=r"Cannot read .*nowhere/metadata\.json"):
            warehouse.publish(tmp_path / "nowhere")

    def test_a_failed_publish_changes_nothing(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        before = contents(warehouse)
        write_run(run_dir, [rollout(5, 0), rollout(5, 1, reward="high")], status="completed")
        with pytest.raises(WarehouseError):
            warehouse.publish(run_dir)
        assert contents(warehouse) == before

    def test_a_failure_inside_the_transaction_changes_nothing(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        before = contents(warehouse)
        with duckdb.connect(str(warehouse.database)) as connection:
            connection.execute("ALTER TABLE errors RENAME COLUMN traceback TO trace")
        write_run(run_dir, [rollout(5, 0)])
        with pytest.raises(WarehouseError, match="Cannot publish"):
            warehouse.publish(run_dir)
        assert contents(warehouse) == before

    def test_a_file_that_is_no_database_is_an_error(self, warehouse, run_dir):
        warehouse.folder.mkdir()
        warehouse.database.write_text("these are not the bytes you are looking for" * 1000)
        for operation in (lambda: warehouse.publish(run_dir), lambda: warehouse.query("SELECT 1")):
            with pytest.raises(WarehouseError, match=r"Cannot open .*not a valid DuckDB"):
                operation()

    def test_a_folder_that_cannot_be_made_is_an_error(self, tmp_path, run_dir):
        (tmp_path / "file").write_text("")
        with pytest.raises(WarehouseError, match="Cannot create the warehouse"):
            Warehouse(tmp_path / "file" / "warehouse").publish(run_dir)


class TestQuery:
    def test_gives_columns_types_and_rows(self, published):
        result = published.query(
            "SELECT name, avg(value) AS mean, info FROM metrics JOIN rollouts"
            " USING (run_id, example_id, rollout_index) GROUP BY ALL ORDER BY name"
        )
        assert result.columns == ("name", "mean", "info")
        assert result.types == ("VARCHAR", "DOUBLE", "JSON")
        assert result.rows == [("correct", 0.5, '{"level":1}'), ("length", 12.0, '{"level":1}')]

    def test_takes_parameters(self, published):
        assert one(published, "SELECT env_id FROM runs WHERE run_id = ?", ["run-1"]) == ("gsm8k",)
        named = "SELECT count(*) FROM rollouts WHERE reward >= $least"
        assert one(published, named, {"least": 0.5}) == (2,)

    def test_equal_names_become_distinct(self, published):
        result = published.query("SELECT 1 AS a, 2 AS b, 3 AS a")
        assert result.columns == ("a", "b", "a_2")

    @pytest.mark.parametrize(
        "sql",
        [
            "WITH best AS (SELECT max(reward) FROM rollouts) FROM best",
            "PIVOT metrics ON name USING avg(value) GROUP BY run_id",
            "DESCRIBE runs",
            "SHOW TABLES",
            "SUMMARIZE rollouts",
            "EXPLAIN SELECT * FROM runs",
            "SELECT 1; -- and nothing else",
        ],
    )
    def test_runs_whatever_only_reads(self, published, sql):
        assert published.query(sql).rows

    @pytest.mark.parametrize(
        "sql",
        [
            "INSERT INTO runs SELECT * FROM runs",
            "UPDATE runs SET status = 'completed'",
            "DELETE FROM runs",
            "DROP TABLE runs",
            "CREATE TABLE copies AS FROM runs",
            "CREATE TEMP TABLE copies AS FROM runs",
            "ATTACH '{folder}/other.duckdb'",
            "COPY runs TO '{folder}/runs.csv'",
            "EXPORT DATABASE '{folder}/export'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET threads = 1",
            "PRAGMA threads = 1",
            "CALL pragma_version()",
            "BEGIN",
            "CHECKPOINT",
            "USE memory",
        ],
    )
    def test_refuses_whatever_does_more(self, published, tmp_path, sql):
        with pytest.raises(WarehouseError, match="is refused: a query only reads the warehouse"):
            published.query(sql.format(folder=tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_refuses_to_explain_a_write_by_doing_it(self, published):
        with pytest.raises(WarehouseError, match="read-only"):
            published.query("EXPLAIN ANALYZE DELETE FROM runs")
        assert one(published, "SELECT count(*) FROM runs") == (1,)

    @pytest.mark.parametrize(
        "source", ["read_csv('{file}')", "read_text('{file}')", "'{file}'", "glob('/*')", "secret"]
    )
    def test_sees_nothing_but_the_warehouse(self, published, tmp_path, source):
        secret = tmp_path / "secret.csv"
        secret.write_text("a\n1\n")
        with pytest.raises(WarehouseError):
            published.query("SELECT * FROM " + source.format(file=secret))

    @pytest.mark.parametrize(
        ("sql", "message"),
        [
            ("SELEC 1", 'The query failed: syntax error at or near "SELEC"'),
            ("FROM rolouts", 'Table with name rolouts does not exist! Did you mean "rollouts"?'),
            ("SELECT 1; SELECT 2", "Expected one SQL statement, found 2."),
            ("-- nothing", "Expected one SQL statement, found 0."),
        ],
    )
    def test_says_in_one_line_what_is_wrong(self, published, sql, message):
        with pytest.raises(WarehouseError) as caught:
            published.query(sql)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_stops_at_the_timeout(self, published):
        started = time.monotonic()
        with pytest.raises(WarehouseError, match=r"stopped after 0\.1 s"):
            published.query(
                "SELECT count(*) FROM range(100_000_000_000) t(i) WHERE hash(i) % 7 = 9",
                timeout_seconds=0.1,
            )
        assert time.monotonic() - started < 5
        assert one(published, "SELECT 1") == (1,)

    def test_without_a_database_says_where_it_looked(self, warehouse):
        with pytest.raises(WarehouseError) as caught:
            warehouse.query("SELECT 1")
        for part in (
            str(warehouse.folder),
            "nightjar eval run",
            "--warehouse",
            "NIGHTJAR_WAREHOUSE",
        ):
            assert part in str(caught.value)
        assert not warehouse.folder.exists()

    def test_times_are_utc_wherever_it_runs(self, warehouse, run_dir, monkeypatch):
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        try:
            warehouse.publish(run_dir)
            assert one(warehouse, "SELECT started_at::VARCHAR FROM runs") == ("2026-11-20 18:00:00+00",)
        finally:
            monkeypatch.undo()
            time.tzset()


class TestSchema:
    def test_migrations_are_numbered_without_gaps(self):
        assert [step.number for step in schema.migrations()] == [1, 2]
        assert [step.name for step in schema.migrations()] == ["0001_runs", "0002_views"]

    def test_what_was_applied_is_kept_in_a_table(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        warehouse.publish(run_dir)
        rows = warehouse.query("SELECT number, name FROM migrations ORDER BY number").rows
        assert rows == [(1, "0001_runs"), (2, "0002_views")]

    def test_an_older_database_is_brought_up_to_date(self, warehouse):
        warehouse.folder.mkdir()
        with duckdb.connect(str(warehouse.database)) as connection:
            first = schema.migrations()[0]
            connection.execute("CREATE TABLE migrations (number INT, name TEXT, applied_at TIMESTAMPTZ)")
            connection.execute(first.sql)
            connection.execute("INSERT INTO migrations VALUES (1, '0001_runs', now())")
            connection.execute("INSERT INTO runs (run_id, env_id, status) VALUES ('r', 'e', 'completed')")
        assert warehouse.query("SELECT run_id, env_id FROM leaderboard").rows == [("r", "e")]

    def test_a_newer_database_is_refused(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        with duckdb.connect(str(warehouse.database)) as connection:
            connection.execute("INSERT INTO migrations VALUES (99, '0099_later', now())")
        for operation in (lambda: warehouse.publish(run_dir), lambda: warehouse.query("FROM runs")):
            with pytest.raises(WarehouseError, match="is at version 99, this Nightjar knows version 2"):
                operation()

    def test_the_catalog_explains_the_tables(self, published):
        catalog = published.catalog()
        assert catalog.columns == ("table", "about", "column", "type", "note")
        tables = ["errors", "metrics", "rollouts", "runs", "example_rewards", "leaderboard"]
        assert list(dict.fromkeys(row[0] for row in catalog.rows)) == tables
        assert ("rollouts", "reward", "DOUBLE", "NULL for a failed rollout, never 0") in [
            (row[0], *row[2:]) for row in catalog.rows
        ]


class TestViews:
    def test_the_leaderboard_has_the_newest_finished_run(self, warehouse, tmp_path):
        runs = [
            ("old", "m1", "completed", "2026-11-01T00:00:00Z", 0.9),
            ("new", "m1", "completed", "2026-11-02T00:00:00Z", 0.5),
            ("running", "m1", "running", "2026-11-03T00:00:00Z", None),
            ("other", "m2", "incomplete", "2026-11-01T00:00:00Z", 0.75),
        ]
        for run_id, model, status, started_at, reward in runs:
            fields = {"model": model, "status": status, "started_at": started_at}
            run_dir = write_run(tmp_path / run_id, [], run_id=run_id, avg_reward=reward, **fields)
            warehouse.publish(run_dir)
        rows = warehouse.query("SELECT model, run_id, avg_reward FROM leaderboard").rows
        assert rows == [("m2", "other", 0.75), ("m1", "new", 0.5)]

    def test_example_rewards_are_means_over_scored_rollouts(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        assert warehouse.query("FROM example_rewards").rows == [
            ("run-1", 0, "hash-0", 0.5, 2, 0),
            ("run-1", 1, "hash-1", 0.5, 1, 1),
        ]


class TestResolve:
    def test_explicit_then_environment_then_default(self, monkeypatch):
        monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
        assert resolve_warehouse() == Path("outputs/warehouse")
        monkeypatch.setenv("NIGHTJAR_WAREHOUSE", "/from/environment")
        assert resolve_warehouse(None) == Path("/from/environment")
        assert resolve_warehouse("/explicit") == Path("/explicit")


PUBLISHER = """
import sys
from nightjar.warehouse import Warehouse
folder, *run_dirs = sys.argv[1:]
print("ready", flush=True)
for run_dir in run_dirs:
    Warehouse(folder).publish(run_dir)
"""

READER = """
import sys
import time
from nightjar.warehouse import Warehouse
warehouse = Warehouse(sys.argv[1])
complete = "SELECT count(*) FROM runs WHERE run_id <> 'run-1'"
uneven = (
    "SELECT run_id, count(*) FROM rollouts GROUP BY run_id HAVING count(*) <> 4"
    " OR count(*) <> (SELECT any_value(r.rollouts) FROM runs r WHERE r.run_id = rollouts.run_id)"
)
while warehouse.query(complete).rows != [(8,)]:
    assert warehouse.query(uneven).rows == []
    time.sleep(0.02)
"""

OTHER_PROGRAM = """
import sys
import duckdb
connection = duckdb.connect(sys.argv[1])
print("open", flush=True)
input()
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


class TestTogether:
    def test_processes_publish_and_query_at_once(self, warehouse, run_dir, tmp_path):
        warehouse.publish(run_dir)
        own = [[write_run(tmp_path / f"{p}-{i}", run_id=f"{p}-{i}") for i in range(2)] for p in range(4)]
        processes = [
            *(start(PUBLISHER, warehouse.folder, run_dir, *run_dirs, run_dir) for run_dirs in own),
            *(start(READER, warehouse.folder) for _ in range(2)),
        ]
        assert [finish(process) for process in processes] == [(0, "")] * 6
        assert one(warehouse, "SELECT count(*), count(DISTINCT run_id) FROM runs") == (9, 9)
        assert one(warehouse, "SELECT count(*) FROM rollouts") == (36,)

    def test_threads_publish_and_query_at_once(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        counts = []

        def work():
            warehouse.publish(run_dir)
            counts.append(one(warehouse, "SELECT count(*) FROM rollouts"))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [(4,)] * 4

    def test_a_killed_publisher_leaves_whole_runs_and_no_lock(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        before = contents(warehouse)
        process = start(PUBLISHER, warehouse.folder, *[run_dir] * 1000)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        assert finish(process)[0] == -signal.SIGKILL
        assert contents(warehouse) == before
        warehouse.publish(run_dir)
        assert contents(warehouse) == before

    def test_waiting_too_long_names_who_holds_it(self, warehouse, run_dir, monkeypatch):
        warehouse.publish(run_dir)
        monkeypatch.setattr(database, "LOCK_TIMEOUT_SECONDS", 0.1)
        held, done = threading.Event(), threading.Event()

        def hold():
            with database.exclusive(warehouse.database, "a long query"):
                held.set()
                done.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(10)
        try:
            holder = rf"held by process {os.getpid()} \(a long query\)"
            with pytest.raises(WarehouseError, match=holder):
                warehouse.query("SELECT 1")
        finally:
            done.set()
            thread.join()

    def test_another_program_is_named(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        process = subprocess.Popen(
            [sys.executable, "-c", OTHER_PROGRAM, str(warehouse.database)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout.readline() == "open\n"
            with pytest.raises(WarehouseError, match=rf"Cannot open .*\(PID {process.pid}\)"):
                warehouse.query("SELECT 1")
        finally:
            process.communicate("\n", timeout=10)
