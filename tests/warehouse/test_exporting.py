"""``nightjar warehouse export``: what it writes is read back by others, and never half of it is there."""

import csv
import json
import time

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="module")
def exported_runs():
    from nightjar.warehouse import exported_runs

    return exported_runs


@pytest.fixture(scope="module")
def exporting():
    from nightjar.warehouse import exporting

    return exporting


@pytest.fixture(scope="module")
def house_of_three(tmp_path_factory):
    return tmp_path_factory.mktemp("house")


@pytest.fixture
def house(house_of_three, write_run, monkeypatch):
    """Three runs: two of gsm8k, of which one is of a suite, and one of an environment and model with odd names."""
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    house = Warehouse(house_of_three / "warehouse")
    if not house.folder.exists():
        runs = house_of_three / "evals"
        house.publish(write_run(runs, "a", examples=3))
        house.publish(write_run(runs, "b", suite="nightly", tags=["x", "y"], model="m"))
        house.publish(write_run(runs, "c", env_id="it's/odd", model="a b=c", examples=1))
    return house


@pytest.fixture
def write(house, tmp_path, exporting):
    def write(name, **options):
        target = tmp_path / name
        return exporting.export(house.store(), target, **options), target

    return write


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(sql):
    import duckdb

    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


def test_folders_are_environment_and_model_and_other_programs_read_them_back(write, house):
    report, target = write("x")
    manifest = json.loads((target / "export.json").read_text())
    assert (manifest["format"], manifest["rows"], manifest["selection"]["suite"]) == ("parquet", report.rows, None)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("rollouts*.parquet")) == [
        "rollouts/env_id=gsm8k/model=m/rollouts-0.parquet",
        "rollouts/env_id=gsm8k/model=openai%2Fgpt/rollouts-0.parquet",
        "rollouts/env_id=it%27s%2Fodd/model=a b%3Dc/rollouts-0.parquet",
    ]
    assert report.rows == {"runs": 3, "rollouts": 12, "attempts": 12, "examples": 3}
    read = f"read_parquet('{target}/rollouts/**/*.parquet', hive_partitioning = true)"
    models = f"SELECT env_id, model, served_model, count(*) FROM {read} GROUP BY ALL ORDER BY 1, 2"
    sides = (("gsm8k", "m", 4), ("gsm8k", "openai/gpt", 6), ("it's/odd", "a b=c", 2))
    assert rows(models) == [(env_id, model, "served", count) for env_id, model, count in sides]
    columns = "run_id, example_id, rollout_index, reward, metrics, prompt, completion, answer, info"
    order = "ORDER BY run_id, example_id, rollout_index"
    published = house.query(f"SELECT {columns} FROM rollouts {order}").rows
    assert rows(f"SELECT {columns} FROM {read} {order}") == published
    assert rows(f"SELECT answer FROM '{target}/examples/*.parquet' ORDER BY 1") == [("0",), ("1",), ("2",)]


def test_odd_and_large_partitions_of_parquet(write_run, tmp_path, write, monkeypatch, exported_runs, exporting):
    other = Warehouse(tmp_path / "warehouse")
    other.publish(write_run(tmp_path / "evals", "d", env_id=None))
    exporting.export(other.store(), tmp_path / "y", tables=["runs"])
    read = f"read_parquet('{tmp_path}/y/runs/**/*.parquet', hive_partitioning = true)"
    assert rows(f"SELECT run_id, env_id FROM {read}") == [("d", None)]
    monkeypatch.setattr(exported_runs, "SLICE_ROLLOUTS", 4)
    report, target = write("x", chosen=exported_runs.Selection("env_id = 'gsm8k'"))
    assert report.rows == {"runs": 2, "rollouts": 10, "attempts": 10, "examples": 3}
    assert rows(f"SELECT count(DISTINCT example_hash), count(*) FROM '{target}/examples/*.parquet'") == [(3, 3)]


def test_csv_has_maps_and_json_as_text_below_one_header(write, monkeypatch, exported_runs, exporting):
    monkeypatch.setattr(exported_runs, "SLICE_ROLLOUTS", 2)
    _, target = write("x", output_format=exporting.ExportFormat.CSV)
    with (target / "rollouts.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 12
    assert (lines[0]["run_id"], lines[0]["reward"], lines[0]["model"]) == ("a", "1.0", "served")
    assert json.loads(lines[0]["metrics"]) == {"correct": 1.0}
    assert json.loads(lines[0]["prompt"]) == [{"role": "user", "content": "Question 0?"}]
    with (target / "runs.csv").open(newline="") as file:
        assert [json.loads(line["tags"] or "null") for line in csv.DictReader(file)] == [None, ["x", "y"], None]
    text = (target / "attempts.csv").read_text()
    assert text.count("run_id") == 1
    assert len(text.splitlines()) == 13
    assert not list(target.glob(".*"))


def test_rollouts_in_json_lines_are_as_in_results_jsonl(write, house_of_three, exported_runs, exporting):
    _, target = write("x", output_format=exporting.ExportFormat.JSONL, chosen=exported_runs.Selection(run_ids=("a",)))
    written = read_lines(target / "rollouts.jsonl")
    original = read_lines(house_of_three / "evals/a/results.jsonl")
    assert [row.pop("run_id") for row in written] == ["a"] * 6
    assert [{name: row[name] for name in original[0]} for row in written] == original


def test_failures_and_moments_in_json_lines(write_run, run_writer, tmp_path, exporting):
    run = write_run(tmp_path / "evals", "failed", examples=1, failed=1, scored=1)
    lines = read_lines(run / "results.jsonl")
    error = {name: value for name, value in run_writer.failure.items() if name != "error_chain_str"}
    lines[1] |= {"error": error, "reward": None, "metrics": {}, "token_usage": None}
    (run / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = Warehouse(tmp_path / "warehouse")
    other.publish(run)
    tables = ["runs", "rollouts", "errors"]
    exporting.export(other.store(), tmp_path / "x", output_format=exporting.ExportFormat.JSONL, tables=tables)
    good, bad = read_lines(tmp_path / "x/rollouts.jsonl")
    assert good["error"] is None
    assert (bad["error"], bad["reward"], bad["metrics"], bad["token_usage"]) == (error, None, {}, None)
    [record] = read_lines(tmp_path / "x/runs.jsonl")
    assert record["started_at"] == "2026-01-01T00:00:00.000000+00:00"
    assert record["metadata"]["run_id"] == "failed"
    assert len(read_lines(tmp_path / "x/errors.jsonl")) == 1


def test_a_duckdb_file_has_tables_and_views(write, house, exported_runs):
    import duckdb

    report, target = write("x.duckdb", chosen=exported_runs.Selection("env_id = 'gsm8k'"))
    assert report.rows == {"runs": 2, "rollouts": 10, "attempts": 10, "examples": 3}
    with duckdb.connect(str(target), read_only=True) as connection:
        named = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'segments'"
        tables = connection.execute(named).fetchall()
        beside = ["comparisons", "gate_decisions", "nights", "notes", "prices"]
        assert {name for (name,) in tables} == {"attempts", "examples", "rollouts", "runs", *beside}
        sql = "SELECT run_id, avg_reward, scored FROM leaderboard ORDER BY run_id"
        assert connection.execute(sql).fetchall() == house.query(sql).rows[:2]
        sql = "SELECT prompt, completion FROM rollouts WHERE run_id = 'a' ORDER BY example_id, rollout_index"
        assert connection.execute(sql).fetchall() == house.query(sql).rows
        assert connection.execute("SELECT count(*) FROM flips('a', 'b')").fetchall() == [(0,)]
        # the number in the header that DuckDB 1.4 and newer read
        tags = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE NOT internal"
        assert connection.execute(tags).fetchall()[0][0].startswith("v1.4.0")


@pytest.mark.slow
def test_exported_runs_meet_all_criteria(write, exported_runs):
    for number, (chosen, expected) in enumerate(
        [
            ({"where": "env_id = 'gsm8k' AND num_examples > 2 -- large"}, ["a"]),
            ({"where": "run_id IN (SELECT run_id FROM attempts WHERE example_id = 2)"}, ["a"]),
            ({"run_ids": ("c", "a")}, ["a", "c"]),
            ({"where": "model = 'm'", "suite": "nightly", "run_ids": ("b",)}, ["b"]),
        ]
    ):
        tables = ["runs", "rollouts", "attempts", "metrics"]
        _, target = write(f"x-{number}", chosen=exported_runs.Selection(**chosen), tables=tables)
        for table in tables:
            found = rows(f"SELECT DISTINCT run_id FROM '{target}/{table}/**/*.parquet' ORDER BY 1")
            assert [run_id for (run_id,) in found] == expected


def test_a_condition_that_selects_nothing_or_does_more_is_refused(write, tmp_path, exported_runs):
    for chosen, message in (
        ({"where": "nope = 1"}, 'Cannot use the condition .*"nope" not found'),
        ({"where": "true); DROP TABLE runs; --"}, "Cannot use the condition"),
        ({"where": "(SELECT count(*) FROM read_csv('/etc/passwd')) > 0"}, "Cannot use the condition"),
        ({"where": "env_id = 'none'"}, "No run in .* matches"),
        ({"suite": "none"}, "No run in .* matches"),
        ({"run_ids": ("a", "zzz")}, "No run 'zzz'"),
    ):
        with pytest.raises(WarehouseError, match=message):
            write("x", chosen=exported_runs.Selection(**chosen))
    assert list(tmp_path.iterdir()) == []


def test_a_pack_exports_the_same(house, write, nightjar, exporting):
    _, before = write("before", output_format=exporting.ExportFormat.CSV)
    nightjar("warehouse", "compact", "--warehouse", house.folder)
    _, after = write("after", output_format=exporting.ExportFormat.CSV)
    for path in before.glob("*.csv"):
        assert (after / path.name).read_text() == path.read_text()


def test_an_existing_target_needs_force_which_replaces_nothing_but_exports(
    write, tmp_path, house, exported_runs, exporting
):
    import duckdb

    write("x")
    with pytest.raises(WarehouseError, match="exists already"):
        write("x")
    _, target = write("x", chosen=exported_runs.Selection(suite="nightly"), force=True)
    assert len(list(target.rglob("runs-*.parquet"))) == 1
    write("x.duckdb")
    _, target = write("x.duckdb", chosen=exported_runs.Selection(suite="nightly"), force=True)
    with duckdb.connect(str(target), read_only=True) as exported:
        assert exported.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("precious")
    with pytest.raises(WarehouseError, match="is not an export"):
        write("thesis", force=True)
    with pytest.raises(WarehouseError, match="is not a file"):
        write("thesis", output_format=exporting.ExportFormat.DUCKDB, force=True)
    assert (tmp_path / "thesis/chapter.tex").read_text() == "precious"
    with pytest.raises(WarehouseError, match="inside the warehouse"):
        exporting.export(house.store(), house.folder / "nightjar.duckdb", force=True)


@pytest.mark.slow
def test_a_killed_export_leaves_nothing_under_the_name(house, tmp_path, fork):
    for name in ("x", "x.duckdb"):
        writing = fork.nightjar("warehouse", "export", tmp_path / name, "--warehouse", house.folder)
        while writing.poll() is None and not list(tmp_path.glob(".x*")):
            time.sleep(0.002)
        writing.kill()
        writing.wait()
        assert not (tmp_path / name).exists()


@pytest.fixture
def folder(tmp_path, write_run):
    for run_id in ("a", "b"):
        Warehouse(tmp_path / "warehouse").publish(write_run(tmp_path / "evals", run_id), tidies=False)
    return tmp_path / "warehouse"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x", "x.duckdb"])
def test_a_run_that_is_removed_meanwhile_is_named(
    tmp_path, folder, write_run, monkeypatch, name, exported_runs, exporting
):
    from nightjar.warehouse.pruning import prune

    for where, function in ((exporting, "choose_runs"), (exported_runs.ExportConnection, "slices")):
        usual = getattr(where, function)

        def removing(*arguments, usual=usual):
            done = usual(*arguments)
            prune(Warehouse(folder).store(), ["a"])
            return done

        monkeypatch.setattr(where, function, removing)
        with pytest.raises(WarehouseError, match=r"Cannot export run 'a': it was removed from .* meanwhile"):
            exporting.export(Warehouse(folder).store(), tmp_path / name)
        monkeypatch.undo()
        assert not (tmp_path / name).exists()
        Warehouse(folder).publish(write_run(tmp_path / "evals", "a"), tidies=False)


def test_a_run_that_is_packed_meanwhile_is_exported(tmp_path, folder, monkeypatch, exported_runs, exporting):
    from nightjar.warehouse.writing.packing import pack_everything

    usual = exported_runs.ExportConnection.slices

    def packing(self, runs):
        pack_everything(Warehouse(folder).store())
        return usual(self, runs)

    monkeypatch.setattr(exported_runs.ExportConnection, "slices", packing)
    assert exporting.export(Warehouse(folder).store(), tmp_path / "x").rows["rollouts"] == 8


def test_a_failed_export_leaves_nothing(folder, damage, tmp_path, nightjar):
    """A damaged file is noticed when it is read."""
    for path in folder.glob("segments/*/rollouts.parquet"):
        damage.overwrite(path, lambda _: b"")
    (tmp_path / "out").mkdir()
    ended = nightjar("warehouse", "export", tmp_path / "out/x", "--warehouse", folder)
    assert ended.code == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_tables_are_chosen_and_invalid_options_are_refused(house, tmp_path, nightjar, exporting):
    ended = nightjar(
        "warehouse", "export", tmp_path / "x", "--format", "CSV", "--tables", "metrics, errors", "--run", "a",
        "--json", "--warehouse", house.folder,
    )  # fmt: skip
    assert (ended.code, ended.json["rows"]) == (0, {"metrics": 6, "errors": 0})
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["errors.csv", "export.json", "metrics.csv"]
    ended = nightjar("warehouse", "export", tmp_path / "x.duckdb", "--run", "b", "--warehouse", house.folder)
    assert ended.out.startswith(f"Exported 1 run (4 rollouts, 4 attempts, 2 examples) to {tmp_path}/x.duckdb: ")
    assert ended.err == f"Next: duckdb -readonly {tmp_path}/x.duckdb -c 'FROM leaderboard'\n"
    exporting.export = ("warehouse", "export", tmp_path / "y", "--warehouse", house.folder)
    assert nightjar(*exporting.export, "--format", "xml").code == 2
    assert (
        "no table 'secrets' to export. Choose from: runs, ro" in nightjar(*exporting.export, "--tables", "secrets").err
    )
    assert "--tables" in nightjar(*exporting.export, "--format", "duckdb", "--tables", "runs").err
    assert not (tmp_path / "y").exists()
