"""The warehouse: what a publish leaves, what damage does, and what a catalog says."""

import json
import math
import os
import socket
import time

import duckdb
import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.folder import scratch_name
from nightjar.warehouse.storage.segments import KINDS, is_held, make_version
from nightjar.warehouse.storage.tables import tables_script
from nightjar.warehouse.writing import packing, publishing
from nightjar.warehouse.writing.run_files import read_run


@pytest.fixture
def warehouse(tmp_path):
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def run_dir(tmp_path, run_writer):
    return run_writer.write(tmp_path / "run")


def one(warehouse, sql, parameters=None):
    (row,) = warehouse.query(sql, parameters).rows
    return row


def contents(warehouse):
    relations = {
        "runs": "SELECT * EXCLUDE (published_at)", "rollouts": "SELECT *", "attempts": "SELECT *",
        "metrics": "SELECT *", "errors": "SELECT *", "examples": "SELECT *",
    }  # fmt: skip
    return {name: warehouse.query(f"{select} FROM {name} ORDER BY ALL").rows for name, select in relations.items()}


def files(folder):
    """Every file of the segments, with its content and when it was written."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("segments/*/*")}


NO_PROCESS = 4194305
"""Above the largest id that Linux gives."""


class TestPublish:
    def test_publishing_reports_what_is_new_and_again_writes_nothing(self, warehouse, run_dir, run_writer):
        report = warehouse.publish(str(run_dir))
        assert (report.run_id, report.rollouts, report.failed, report.attempts) == ("run-1", 4, 1, 0)
        assert (report.is_new, report.seconds > 0) == (True, True)
        before, files_before = contents(warehouse), files(warehouse.folder)
        run_writer.write(run_dir, published_at="2026-11-20T19:00:00Z")
        again = warehouse.publish(run_dir)
        assert (again.is_new, again.rollouts, again.failed) == (False, 4, 1)
        assert contents(warehouse) == before
        assert files(warehouse.folder) == files_before

    def test_replaces_only_its_own_run(self, warehouse, run_dir, tmp_path, run_writer):
        rollout = run_writer.rollout
        warehouse.publish(run_dir)
        warehouse.publish(run_writer.write(tmp_path / "other", [rollout(0, 0)], run_id="run-2"))
        later = {"status": "completed", "finished_at": "2026-11-20T19:00:00Z"}
        warehouse.publish(run_writer.write(run_dir, [rollout(0, 0, 0.25)], **later))
        counts = "SELECT run_id, status, (FROM rollouts r SELECT count(*) WHERE r.run_id = runs.run_id)"
        rows = warehouse.query(f"{counts} FROM runs ORDER BY run_id").rows
        assert rows == [("run-1", "completed", 1), ("run-2", "incomplete", 1)]
        assert one(warehouse, "SELECT count(*) FROM errors") == (0,)
        assert one(warehouse, "SELECT count(*) FROM metrics") == (4,)

    def test_lost_results_are_reported(self, warehouse, tmp_path, run_writer, caplog):
        run_dir = run_writer.write(tmp_path / "run", [run_writer.rollout(0, 0)])
        assert warehouse.publish(run_dir).rollouts == 1
        [said] = caplog.messages
        assert said.startswith(f"{run_dir / 'results.jsonl'} holds 1 of the 4 rollouts in metadata.json.")
        assert f"--resume {run_dir}" in said
        caplog.clear()
        warehouse.publish(run_writer.write(run_dir, [run_writer.rollout(0, 0)], run_id="2", status="running"))
        assert caplog.messages == []

    def test_what_a_run_lacks_is_null(self, warehouse, tmp_path, run_writer):
        run_dir = tmp_path / "run"
        run_dir.mkdir()
        (run_dir / "metadata.json").write_text('{"run_id": "bare", "scored": 1}')
        (run_dir / "results.jsonl").write_text('{"example_id": 7, "rollout_index": 0}\n')
        assert warehouse.publish(run_dir).rollouts == 1
        row = one(warehouse, "SELECT COLUMNS(* EXCLUDE (run_id, example_id, rollout_index, outcome)) FROM rollouts")
        assert set(row) == {None}
        given = "run_id, version, scored, run_dir, published_at, metadata, reward_examples"
        assert set(one(warehouse, f"SELECT COLUMNS(* EXCLUDE ({given})) FROM runs")) == {None}
        run_dir = run_writer.write(tmp_path / "empty", [], scored=0, failed=0)
        (run_dir / "results.jsonl").unlink()
        assert warehouse.publish(run_dir).rollouts == 0

    @pytest.mark.long
    @pytest.mark.parametrize("names", [["a", "A"], ["Reward"], [""], ["state", "STATE"], ["x", "reward", "PROMPT"]])
    def test_columns_of_the_environment_may_have_any_names(self, warehouse, tmp_path, run_writer, names):
        """To DuckDB, columns whose names differ in capitals only are one, and a column has a name."""
        common = {
            "prompt": [{"role": "user", "content": 'é "\u20ac" \n'}], "metrics": {"m": math.nan}, "info": {"x": 1e16},
        }  # fmt: skip
        values = {name: {"huge": 2**80, "of": name} for name in names if name != "reward"}
        rows = [run_writer.rollout(0, 0, **common, **values), run_writer.rollout(0, 1)]
        plain = run_writer.write(tmp_path / "plain", [run_writer.rollout(0, 0, **common)], run_id="plain")
        warehouse.publish(plain)
        warehouse.publish(run_writer.write(tmp_path / "run", rows, state_columns=names))
        query = "SELECT state, reward, content_id FROM segments.rollouts WHERE run_id = ? ORDER BY rollout_index"
        (first, reward, content), (second, _, _) = warehouse.query(query, ["run-1"]).rows
        assert json.loads(first) == values
        assert json.loads(second) == dict.fromkeys(values)
        assert (reward, content) == one(warehouse, query, ["plain"])[1:]

    def test_a_damaged_line_is_named_whatever_the_columns_are_called(self, warehouse, tmp_path, run_writer):
        run_dir = run_writer.write(tmp_path / "run", state_columns=["a", "A"])
        with (run_dir / "results.jsonl").open("a") as file:
            file.write("{torn}\n[]\n")
        with pytest.raises(WarehouseError, match=r"Cannot read .*run/results\.jsonl: .* in (line|record/value) \d"):
            warehouse.publish(run_dir)

    def test_a_very_long_line_loads(self, warehouse, tmp_path, run_writer):
        long = [{"role": "assistant", "content": "x" * 20_000_000}]
        lines = [run_writer.rollout(0, 0), run_writer.rollout(0, 1, completion=long)]
        warehouse.publish(run_writer.write(tmp_path / "run", lines))
        lengths = "SELECT length(completion->>'$[0].content') FROM rollouts ORDER BY 1"
        assert warehouse.query(lengths).rows == [(1,), (20_000_000,)]

    def test_a_publish_that_lacks_memory_is_repeated_with_more(self, warehouse, tmp_path, run_writer, monkeypatch):
        limits, connect = [], publishing.connect_scratch

        def noted(spill, memory_limit, **options):
            limits.append(memory_limit)
            return connect(spill, memory_limit, **options)

        monkeypatch.setattr(publishing, "connect_scratch", noted)
        monkeypatch.setattr(publishing, "_memory_limit", lambda _files: 2_000_000)
        warehouse.publish(run_writer.write(tmp_path / "run", [run_writer.rollout(0, 0), run_writer.rollout(0, 1)]))
        assert limits[:2] == ["2000000B", "3000000B"]
        assert one(warehouse, "SELECT count(*) FROM rollouts") == (2,)

    @pytest.mark.long
    @pytest.mark.parametrize("run_id", ["a/b*c ü'.x", ".hidden", "..", ".writing-1-2", "a/b", "x" * 240, "é" * 60])
    def test_any_folder_name_and_run_id_works(self, tmp_path, run_writer, run_id):
        run_dir = run_writer.write(tmp_path / "gsm8k--a*b?[c] it's" / "key=value", run_id=run_id)
        warehouse = Warehouse(tmp_path / "it's [a] house* ü" / "model=evil" / "run_id=7")
        assert warehouse.publish(run_dir).rollouts == 4
        assert one(warehouse, "SELECT run_id, run_dir FROM runs") == (run_id, str(run_dir))
        with warehouse.connect() as connection:
            assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(4,)]

    def test_only_a_torn_last_line_is_left_out(self, warehouse, tmp_path, caplog, run_writer):
        torn = [run_writer.attempt(0, 0), '{"example_id": 0, "rol']
        run_dir = run_writer.write(tmp_path / "run", [run_writer.rollout(0, 0), '{"example_id": 0, "rollo'], torn)
        report = warehouse.publish(run_dir)
        assert (report.rollouts, report.attempts) == (1, 1)
        assert caplog.text.count("is torn and left out") == 2
        assert (run_dir / "results.jsonl").read_text().endswith("rollo")
        lines = [run_writer.failed(0, 0), run_writer.rollout(0, 0), json.dumps(run_writer.rollout(0, 1))]
        report = warehouse.publish(run_writer.write(tmp_path / "whole", lines, run_id="whole"))
        assert (report.rollouts, report.failed) == (2, 0)


class TestFiles:
    def test_a_publish_leaves_one_read_only_segment_the_snapshot_and_locks(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        names = {file.name for file in warehouse.folder.iterdir()}
        assert names - {"packing.lock", "snapshot.lock"} == {"segments", "nightjar.duckdb"}
        [segment] = (warehouse.folder / "segments").iterdir()
        expected = {*(f"{kind}.parquet" for kind in KINDS), "segment.json"}
        assert {file.name: file.stat().st_mode & 0o777 for file in segment.iterdir()} == dict.fromkeys(expected, 0o444)

    @pytest.mark.parametrize("kind", KINDS)
    def test_columns_are_those_of_the_tables(self, warehouse, run_dir, kind):
        warehouse.publish(run_dir)
        [file] = warehouse.folder.rglob(f"{kind}.parquet")
        with duckdb.connect() as tables:
            tables.execute(tables_script())
            described = f"SELECT column_name, column_type FROM (DESCRIBE {kind})"
            expected = tables.execute(described).fetchall()
            found = tables.execute(f"SELECT column_name, column_type FROM (DESCRIBE '{file}')").fetchall()
        assert found == expected

    def test_the_snapshot_answers_in_other_programs(self, warehouse, run_dir, tmp_path, run_writer):
        warehouse.publish(run_dir)
        snapshot = warehouse.folder / "nightjar.duckdb"
        assert snapshot.stat().st_mode & 0o777 == 0o444
        with duckdb.connect(str(snapshot), read_only=True) as connection:
            assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(4,)]
            assert connection.execute("SELECT run_id FROM leaderboard").fetchall() == [("run-1",)]
            tags = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE NOT internal"
            assert connection.execute(tags).fetchall() == [("v1.4.0+",)]
            warehouse.publish(run_writer.write(tmp_path / "other", run_id="run-2"))
            assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        assert one(warehouse, "SELECT count(*) FROM runs") == (2,)

    def test_the_runs_of_a_suite_share_the_snapshot_and_the_last_is_in_it(
        self, warehouse, tmp_path, run_writer, monkeypatch
    ):
        monkeypatch.setattr(packing, "_REST_SECONDS", 3600)

        def runs_in_snapshot():
            with duckdb.connect(str(warehouse.folder / "nightjar.duckdb"), read_only=True) as connection:
                return connection.execute("SELECT count(*) FROM runs").fetchone()[0]

        warehouse.publish(run_writer.write(tmp_path / "earlier", run_id="earlier"))
        with packing.shared_tidying():
            seen = []
            for number in range(3):
                warehouse.publish(run_writer.write(tmp_path / str(number), run_id=f"run-{number}"))
                seen.append(runs_in_snapshot())
        assert (seen, runs_in_snapshot()) == ([1, 1, 1], 4)

    def test_a_damaged_or_outdated_snapshot_is_replaced(self, warehouse, run_dir, tmp_path, run_writer):
        snapshot = warehouse.folder / "nightjar.duckdb"

        def damage():
            snapshot.write_text("no database")

        def age():
            with duckdb.connect(str(snapshot)) as connection:
                connection.execute("CREATE SCHEMA segments")
                connection.execute("CREATE MACRO segments.views_version() AS 'another'")

        for number, change in enumerate((damage, age)):
            warehouse.publish(run_writer.write(tmp_path / str(number), run_id=f"run-{number}"))
            before = contents(warehouse)
            snapshot.unlink()
            change()
            assert contents(warehouse) == before
            warehouse.publish(run_dir)
            run_writer.write(run_dir, run_id=f"again-{number}")
            with duckdb.connect(str(snapshot), read_only=True) as connection:
                runs = one(warehouse, "SELECT count(*) FROM runs")
                assert connection.execute("SELECT count(*) FROM runs").fetchone() == runs
                assert connection.execute("SELECT count(*) FROM leaderboard").fetchone() > (0,)


class TestDamage:
    @pytest.mark.parametrize("fields", [
        {"reward": "high"}, {"reward": {"value": 1}}, {"example_id": "first"}, {"is_completed": "maybe"},
        {"metrics": 0.5}, {"metrics": {"correct": "yes"}}, {"error": "ModelError"}, {"timing": 12}, {"attempts": [1]},
    ])  # fmt: skip
    def test_a_value_of_the_wrong_type_is_an_error(self, warehouse, tmp_path, run_writer, fields):
        lines = [run_writer.rollout(0, 0), run_writer.rollout(0, 1, **fields)]
        run_dir = run_writer.write(tmp_path / "run", lines)
        with pytest.raises(WarehouseError, match=r"Cannot read .*run/results\.jsonl: .* in (line|record/value) \d"):
            warehouse.publish(run_dir)

    @pytest.mark.parametrize("line", ['{"example_id": 0,\n', "[1, 2]\n", '{"rollout_index": 0}\n'])
    @pytest.mark.parametrize("name", ["results", "attempts"])
    def test_a_damaged_line_is_an_error(self, warehouse, tmp_path, run_writer, line, name):
        sound = [run_writer.rollout(0, 0)], [run_writer.attempt(0, 0)]
        results, attempts = sound
        (results if name == "results" else attempts).extend([line, sound[name == "attempts"][0] | {"rollout_index": 1}])
        run_dir = run_writer.write(tmp_path / "run", results, attempts)
        with pytest.raises(WarehouseError, match=rf"Cannot read .*run/{name}\.jsonl: "):
            warehouse.publish(run_dir)

    @pytest.mark.parametrize(("name", "text"), [
        *(("metadata", text) for text in ("", "{", "[]", "null", "{}", '{"run_id": 7}', '{"run_id": null}', None)),
        *(
            ("metadata", f'{{"run_id": "a", "scored": 4, "failed": 0, {field}}}')
            for field in ('"num_examples": "many"', '"avg_metrics": [1]')
        ),
        ("metadata", '{"run_id": "a", "scored": 4, "failed": 0, "started_at": "noon"}'),
        ("config", "{"),
    ])  # fmt: skip
    def test_bad_metadata_or_configuration_is_an_error(self, warehouse, run_dir, name, text):
        path = run_dir / f"{name}.json"
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(WarehouseError, match=rf"Cannot read .*run/{name}\.json: "):
            warehouse.publish(run_dir)

    def test_a_failed_publish_changes_nothing(self, warehouse, run_dir, run_writer):
        warehouse.publish(run_dir)
        before, files_before = contents(warehouse), files(warehouse.folder)
        lines = [run_writer.rollout(5, 0), run_writer.rollout(5, 1, reward="high")]
        run_writer.write(run_dir, lines, status="completed")
        with pytest.raises(WarehouseError):
            warehouse.publish(run_dir)
        assert contents(warehouse) == before
        assert files(warehouse.folder) == files_before


class TestLeftovers:
    def test_leftovers_of_dead_processes_are_removed(self, warehouse, run_dir, tmp_path, run_writer):
        warehouse.publish(run_dir)
        segments = warehouse.folder / "segments"
        alive, dead, elsewhere, reused, forgotten = (segments / scratch_name() for _ in range(5))
        dead = dead.with_name(dead.name.replace(f"-{os.getpid()}-", f"-{NO_PROCESS}-", 1))
        elsewhere = segments / f".writing-{NO_PROCESS}-0123-{socket.gethostname()}"  # a container of the same name
        forgotten = segments / f".writing-{NO_PROCESS}-0123-another-machine"
        for folder in (alive, dead, elsewhere, reused, forgotten):
            folder.mkdir()
            (folder / "runs.parquet").write_text("half")
        for folder in (reused, forgotten):
            os.utime(folder, (0, 0))
        assert one(warehouse, "SELECT count(*) FROM runs") == (1,)
        warehouse.publish(run_writer.write(tmp_path / "other", run_id="run-2"))
        left = [folder.exists() for folder in (alive, elsewhere, dead, reused, forgotten)]
        assert left == [True, True, False, False, False]


class TestCatalog:
    def test_the_catalog_explains_the_relations(self, warehouse, run_dir):
        warehouse.publish(run_dir)
        catalog = warehouse.catalog()
        assert catalog.columns == ("table", "about", "column", "type", "note")
        relations = {row[0] for row in catalog.rows}
        assert relations == {
            *("runs", "rollouts", "attempts", "examples", "prices", "metrics", "errors", "leaderboard", "history"),
            *("pass_at_k", "example_rewards", "regressions", "cost", "retries", "finished_runs"),
            *("steps", "runtime_stats", "failures"),
            *("nights", "night_evaluations", "comparisons", "gate_decisions", "notes"),
            *("overruled_rollouts", "overruled_runs"),
        }
        assert all(about for _, about, *_ in catalog.rows)
        notes = {(table, column): note for table, _, column, _, note in catalog.rows}
        assert "NULL for a failed rollout" in notes["rollouts", "reward"]

    def test_an_empty_warehouse_has_all_relations(self, warehouse, run_dir):
        (warehouse.folder / "segments").mkdir(parents=True)
        catalog = warehouse.catalog().rows
        for relation in {row[0] for row in catalog}:
            assert warehouse.query(f"FROM {relation}").rows == []
        warehouse.publish(run_dir)
        assert warehouse.catalog().rows == catalog

    def test_times_are_utc_wherever_it_runs(self, warehouse, run_dir, monkeypatch):
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        try:
            warehouse.publish(run_dir)
            assert one(warehouse, "SELECT started_at::VARCHAR FROM runs") == ("2026-11-20 18:00:00+00",)
        finally:
            monkeypatch.undo()
            time.tzset()


class TestVersions:
    @pytest.mark.parametrize(("later", "is_newer"), [
        ({"attempts": 501, "newest_attempt": 1990.0, "ended": 1991.0, "published": 1992.0}, True),
        ({"published": 2003.0}, True),
        ({"published": 2099.0, "digest": "aa"}, False),
    ], ids=["more attempts although a clock went back", "published later", "the same content"])  # fmt: skip
    def test_of_two_contents_of_a_run_the_newer_counts(self, later, is_newer):
        first = {"attempts": 500, "newest_attempt": 2000.0, "ended": 2001.0, "published": 2002.0, "digest": "aa"}
        held, offered = make_version(**first), make_version(**{**first, "digest": "bb", **later})
        assert is_held(held, offered) is not is_newer
        assert offered > held

    def test_a_time_without_a_zone_is_in_utc_wherever_it_is_read(self, tmp_path, run_writer, monkeypatch):
        versions = set()
        for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            run_dir = run_writer.write(tmp_path / zone, finished_at="2026-11-20T18:01:01")
            versions.add(read_run(run_dir, tmp_path).version.split("-")[2])
        monkeypatch.undo()
        time.tzset()
        assert versions == {"1795197661000"}
