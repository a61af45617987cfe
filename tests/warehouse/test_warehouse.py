"""The warehouse: what a publish leaves, what damage does, and what a catalog says."""

import json
import math
import os
import re
import socket
import time

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.tables import tables_script


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


def test_publishing_reports_what_is_new_and_again_writes_nothing(warehouse, run_dir, run_writer):
    report = warehouse.publish(str(run_dir))
    assert (report.run_id, report.rollouts, report.failed, report.attempts) == ("run-1", 4, 1, 0)
    assert (report.is_new, report.seconds > 0) == (True, True)
    before, files_before = contents(warehouse), files(warehouse.folder)
    run_writer.write(run_dir, published_at="2026-11-20T19:00:00Z")
    again = warehouse.publish(run_dir)
    assert (again.is_new, again.rollouts, again.failed) == (False, 4, 1)
    assert contents(warehouse) == before
    assert files(warehouse.folder) == files_before


def test_a_publish_replaces_only_its_own_run(warehouse, run_dir, tmp_path, run_writer):
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


def test_lost_results_are_reported(warehouse, tmp_path, run_writer, caplog):
    run_dir = run_writer.write(tmp_path / "run", [run_writer.rollout(0, 0)])
    assert warehouse.publish(run_dir).rollouts == 1
    [said] = caplog.messages
    assert said.startswith(f"{run_dir / 'results.jsonl'} holds 1 of the 4 rollouts in metadata.json.")
    assert f"--resume {run_dir}" in said
    caplog.clear()
    warehouse.publish(run_writer.write(run_dir, [run_writer.rollout(0, 0)], run_id="2", status="running"))
    assert caplog.messages == []


def test_what_a_run_lacks_is_null(warehouse, tmp_path, run_writer):
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


def test_columns_of_the_environment_may_have_any_names(warehouse, tmp_path, run_writer):
    """To DuckDB, columns whose names differ in capitals only are one, and a column has a name."""
    said = [{"role": "user", "content": 'é "\u20ac" \n'}]
    common = {"prompt": said, "metrics": {"m": math.nan}, "info": {"x": 1e16}}
    warehouse.publish(run_writer.write(tmp_path / "0", [run_writer.rollout(0, 0, **common)], run_id="plain"))
    query = "SELECT state, reward, content_id FROM segments.rollouts WHERE run_id = ? ORDER BY rollout_index"
    for number, text in enumerate(("a A", "Reward", "", "state STATE", "x reward PROMPT"), 1):
        names = text.split(" ")
        values = {name: {"huge": 2**80, "of": name} for name in names if name != "reward"}
        rows = [run_writer.rollout(0, 0, **common, **values), run_writer.rollout(0, 1)]
        run_id = f"run-{number}"
        warehouse.publish(run_writer.write(tmp_path / run_id, rows, run_id=run_id, state_columns=names))
        (first, reward, content), (second, _, _) = warehouse.query(query, [run_id]).rows
        assert (json.loads(first), json.loads(second)) == (values, dict.fromkeys(values)), names
        assert (reward, content) == one(warehouse, query, ["plain"])[1:]


def test_a_damaged_line_is_named_whatever_the_columns_are_called(warehouse, tmp_path, run_writer):
    lines = [run_writer.rollout(0, 0), "{torn}\n[]\n"]
    run_dir = run_writer.write(tmp_path / "run", lines, state_columns=["a", "A"])
    assert re.search(r" in (line|record/value) \d", refused(warehouse, run_dir, "results"))


def test_a_very_long_line_loads(warehouse, tmp_path, run_writer):
    long = [{"role": "assistant", "content": "x" * 20_000_000}]
    lines = [run_writer.rollout(0, 0), run_writer.rollout(0, 1, completion=long)]
    warehouse.publish(run_writer.write(tmp_path / "run", lines))
    lengths = "SELECT length(completion->>'$[0].content') FROM rollouts ORDER BY 1"
    assert warehouse.query(lengths).rows == [(1,), (20_000_000,)]


def test_a_publish_that_lacks_memory_is_repeated_with_more(warehouse, tmp_path, run_writer, monkeypatch):
    from nightjar.warehouse.writing import publishing

    limits, connect = [], publishing.connect_scratch

    def noted(spill, memory_limit, **options):
        limits.append(memory_limit)
        return connect(spill, memory_limit, **options)

    monkeypatch.setattr(publishing, "connect_scratch", noted)
    monkeypatch.setattr(publishing, "_memory_limit", lambda _files: 2_000_000)
    warehouse.publish(run_writer.write(tmp_path / "run", [run_writer.rollout(0, 0), run_writer.rollout(0, 1)]))
    assert limits[:2] == ["2000000B", "3000000B"]
    assert one(warehouse, "SELECT count(*) FROM rollouts") == (2,)


def test_any_folder_name_and_run_id_works(tmp_path, run_writer):
    warehouse = Warehouse(tmp_path / "it's [a] house* ü" / "model=evil" / "run_id=7")
    run_ids = ["a/b*c ü'.x", ".hidden", "..", ".writing-1-2", "a/b", "x" * 240, "é" * 60]
    folders = [tmp_path / "gsm8k--a*b?[c] it's" / f"key={number}" for number in range(len(run_ids))]
    for folder, run_id in zip(folders, run_ids, strict=True):
        assert warehouse.publish(run_writer.write(folder, run_id=run_id)).rollouts == 4
    found = warehouse.query("SELECT run_id, run_dir FROM runs").rows
    assert sorted(found) == sorted(zip(run_ids, map(str, folders), strict=True))
    with warehouse.connect() as connection:
        assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(28,)]


def test_only_a_torn_last_line_is_left_out(warehouse, tmp_path, caplog, run_writer):
    torn = [run_writer.attempt(0, 0), '{"example_id": 0, "rol']
    run_dir = run_writer.write(tmp_path / "run", [run_writer.rollout(0, 0), '{"example_id": 0, "rollo'], torn)
    report = warehouse.publish(run_dir)
    assert (report.rollouts, report.attempts) == (1, 1)
    assert caplog.text.count("is torn and left out") == 2
    assert (run_dir / "results.jsonl").read_text().endswith("rollo")
    lines = [run_writer.failed(0, 0), run_writer.rollout(0, 0), json.dumps(run_writer.rollout(0, 1))]
    report = warehouse.publish(run_writer.write(tmp_path / "whole", lines, run_id="whole"))
    assert (report.rollouts, report.failed) == (2, 0)


def test_a_publish_leaves_one_read_only_segment_the_snapshot_and_locks(warehouse, run_dir):
    from nightjar.warehouse.storage.segments import KINDS

    warehouse.publish(run_dir)
    names = {file.name for file in warehouse.folder.iterdir()}
    assert names - {"packing.lock", "snapshot.lock"} == {"segments", "nightjar.duckdb"}
    [segment] = (warehouse.folder / "segments").iterdir()
    expected = {*(f"{kind}.parquet" for kind in KINDS), "segment.json"}
    assert {file.name: file.stat().st_mode & 0o777 for file in segment.iterdir()} == dict.fromkeys(expected, 0o444)


def test_columns_are_those_of_the_tables(warehouse, run_dir):
    import duckdb

    from nightjar.warehouse.storage.segments import KINDS

    warehouse.publish(run_dir)
    with duckdb.connect() as tables:
        tables.execute(tables_script())
        for kind in KINDS:
            [file] = warehouse.folder.rglob(f"{kind}.parquet")
            expected, found = (
                tables.execute(f"SELECT column_name, column_type FROM (DESCRIBE {what})").fetchall()
                for what in (kind, f"'{file}'")
            )
            assert found == expected


def test_the_snapshot_answers_in_other_programs(warehouse, run_dir, tmp_path, run_writer):
    import duckdb

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


def test_the_runs_of_a_suite_share_the_snapshot_and_the_last_is_in_it(warehouse, tmp_path, run_writer, monkeypatch):
    import duckdb

    from nightjar.warehouse.writing import packing

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


def test_a_damaged_or_outdated_snapshot_is_replaced(warehouse, run_dir, tmp_path, run_writer):
    import duckdb

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


def refused(warehouse, run_dir, name):
    """Asserts that a publish fails with an error about a file, and returns what it says."""
    with pytest.raises(WarehouseError, match=rf"Cannot read .*/{name}\.jsonl?: ") as caught:
        warehouse.publish(run_dir)
    return str(caught.value)


def test_a_value_of_the_wrong_type_or_a_damaged_line_is_an_error(warehouse, tmp_path, run_writer):
    wrong = [
        {"reward": "high"}, {"reward": {"value": 1}}, {"example_id": "first"}, {"is_completed": "maybe"},
        {"metrics": 0.5}, {"metrics": {"correct": "yes"}}, {"error": "ModelError"}, {"timing": 12}, {"attempts": [1]},
    ]  # fmt: skip
    for fields in wrong:
        lines = [run_writer.rollout(0, 0), run_writer.rollout(0, 1, **fields)]
        said = refused(warehouse, run_writer.write(tmp_path / "run", lines), "results")
        assert re.search(r" in (line|record/value) \d", said), fields
    for line in ('{"example_id": 0,\n', "[1, 2]\n", '{"rollout_index": 0}\n'):
        rollouts, attempts = [run_writer.rollout(0, 0)], [run_writer.attempt(0, 0)]
        later = rollouts[0] | {"rollout_index": 1}, attempts[0] | {"rollout_index": 1}
        refused(warehouse, run_writer.write(tmp_path / "run", [*rollouts, line, later[0]], attempts), "results")
        refused(warehouse, run_writer.write(tmp_path / "run", rollouts, [*attempts, line, later[1]]), "attempts")


def test_bad_metadata_or_configuration_is_an_error(warehouse, tmp_path, run_writer):
    said = '{"run_id": "a", "scored": 4, "failed": 0, '
    damaged = [said + field for field in ('"num_examples": "many"}', '"avg_metrics": [1]}', '"started_at": "noon"}')]
    for text in ("", "{", "[]", "null", "{}", '{"run_id": 7}', '{"run_id": null}', None, *damaged):
        path = run_writer.write(tmp_path / "run") / "metadata.json"
        path.unlink() if text is None else path.write_text(text)
        refused(warehouse, path.parent, "metadata")
    (run_writer.write(tmp_path / "run") / "config.json").write_text("{")
    refused(warehouse, tmp_path / "run", "config")


def test_a_failed_publish_changes_nothing(warehouse, run_dir, run_writer):
    warehouse.publish(run_dir)
    before, files_before = contents(warehouse), files(warehouse.folder)
    lines = [run_writer.rollout(5, 0), run_writer.rollout(5, 1, reward="high")]
    refused(warehouse, run_writer.write(run_dir, lines, status="completed"), "results")
    assert (contents(warehouse), files(warehouse.folder)) == (before, files_before)


def test_leftovers_of_dead_processes_are_removed(warehouse, run_dir, tmp_path, run_writer):
    from nightjar.warehouse.storage.folder import scratch_name

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


def test_the_catalog_explains_the_relations(warehouse, run_dir):
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


def test_an_empty_warehouse_has_all_relations(warehouse, run_dir):
    (warehouse.folder / "segments").mkdir(parents=True)
    catalog = warehouse.catalog().rows
    for relation in {row[0] for row in catalog}:
        assert warehouse.query(f"FROM {relation}").rows == []
    warehouse.publish(run_dir)
    assert warehouse.catalog().rows == catalog


def test_times_are_utc_wherever_it_runs(warehouse, run_dir, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        warehouse.publish(run_dir)
        assert one(warehouse, "SELECT started_at::VARCHAR FROM runs") == ("2026-11-20 18:00:00+00",)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_of_two_contents_of_a_run_the_newer_counts():
    from nightjar.warehouse.storage.segments import is_held, make_version

    first = {"attempts": 500, "newest_attempt": 2000.0, "ended": 2001.0, "published": 2002.0, "digest": "aa"}
    for later, is_newer in (
        ({"attempts": 501, "newest_attempt": 1990.0, "ended": 1991.0, "published": 1992.0}, True),  # a clock went back
        ({"published": 2003.0}, True),
        ({"published": 2099.0, "digest": "aa"}, False),
    ):
        held, offered = make_version(**first), make_version(**{**first, "digest": "bb", **later})
        assert (is_held(held, offered), offered > held) == (not is_newer, True)


def test_a_time_without_a_zone_is_in_utc_wherever_it_is_read(tmp_path, run_writer, monkeypatch):
    from nightjar.warehouse.writing.run_files import read_run

    versions = set()
    for zone in ("UTC", "America/New_York", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        run_dir = run_writer.write(tmp_path / zone, finished_at="2026-11-20T18:01:01")
        versions.add(read_run(run_dir, tmp_path).version.split("-")[2])
    monkeypatch.undo()
    time.tzset()
    assert versions == {"1795197661000"}
