"""A warehouse that cannot be written is noticed before the model is asked; one that breaks later costs no result."""

import json
import shlex
import signal
import socket
from contextlib import closing
from subprocess import PIPE

import pytest
from forked import NIGHTJAR

from nightjar.errors import WarehouseError
from nightjar.model_server import Faults
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.tables import SCHEMA

KEYS = {"AWS_ACCESS_KEY_ID": "an-access-key", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_MAX_ATTEMPTS": "1"}
ADVICE = "Name another warehouse with --warehouse or NIGHTJAR_WAREHOUSE."


def files_in(folder):
    """Every file and folder but the logs of the commands, with what is in it."""
    paths = [path for path in folder.rglob("*") if "logs" not in path.parts]
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def refused(nightjar, serve):
    """Types ``nightjar eval run``, and returns why the run was not started."""

    def check(warehouse, *arguments, **variables):
        server, before = serve(), files_in(nightjar.folder)
        command = ["eval", "run", "arithmetic", "-m", "local", "-b", server.url, "--warehouse", warehouse]
        ended = nightjar.start(*command, *(arguments or ["--direct"]), **variables).wait()
        assert ended.code == 1
        assert not ended.stdout
        [line] = ended.stderr.splitlines()
        assert server.stats().received == 0
        assert files_in(nightjar.folder) == before, "nothing was made"
        start, reason = line.split(" ", 5)[:5], line.split(" ", 6)[6]
        assert " ".join(start) == "Error: The run was not"
        return reason

    return check


PLACES = {
    "file": "Not a directory",
    "file/team": "Not a directory (file)",
    "house": "Not a directory (house/segments)",
    "x" * 300: f"File name too long ({'x' * 300}/segments)",
    "link": "No such file or directory",
    "duckdb:file/team.duckdb": "Not a directory ({folder}/file)",
}


@pytest.mark.long
def test_a_place_that_cannot_be_a_warehouse_is_refused_before_the_run_also_as_a_flow(nightjar, refused):
    (nightjar.folder / "file").touch()
    (nightjar.folder / "house").mkdir()
    (nightjar.folder / "house/segments").touch()
    (nightjar.folder / "link").symlink_to("nowhere")
    reasons = {place: refused(place) for place in PLACES}
    assert reasons == {
        place: f"Cannot write the warehouse {place}: {reason.format(folder=nightjar.folder)}. {ADVICE}"
        for place, reason in PLACES.items()
    }
    assert refused("file", "--prefect") == reasons["file"]


def test_a_warehouse_on_a_read_only_disk_is_refused(refused, mount, run_writer, tmp_path):
    disk = mount("ro")
    assert refused(disk) == f"Cannot write the warehouse {disk}: Read-only file system. {ADVICE}"
    mount("remount,rw,size=4m")
    Warehouse(disk).publish(run_writer.write(tmp_path / "run-1"))
    mount("remount,ro")
    assert refused(disk) == f"Cannot write the warehouse {disk}: Read-only file system ({disk}/segments). {ADVICE}"


def test_a_newer_warehouse_and_a_file_that_is_no_database_are_refused(nightjar, refused, run_writer, tmp_path):
    import duckdb

    run = run_writer.write(tmp_path / "run-1")
    nightjar.warehouse.publish(run)
    [path] = (nightjar.folder / "outputs/warehouse/segments").glob("*/segment.json")
    path.chmod(0o644)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    Warehouse(f"duckdb:{nightjar.folder}/team.duckdb").publish(run)
    with duckdb.connect(nightjar.folder / "team.duckdb") as connection:
        connection.execute("UPDATE segments.version SET number = 99")
    for name in ("outputs/warehouse", "duckdb:team.duckdb"):
        assert f"is at version 99, this Nightjar knows version {SCHEMA}" in refused(name)
    (nightjar.folder / "other.duckdb").write_text("no database")
    reason = refused("duckdb:other.duckdb")
    assert reason.startswith("Cannot write the warehouse duckdb:other.duckdb: IO Error: The file ")
    assert "is not a valid DuckDB database file" in reason


def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch):
    s3fs = pytest.importorskip("s3fs", reason="needs pip install 'nightjar-evals[s3]'")
    monkeypatch.setattr("nightjar.warehouse.storage.store.PATIENCE_SECONDS", 1.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(WarehouseError, match=r"the warehouse s3://team/runs: no answer within 1 s"):
            Warehouse("s3://team/runs").check_writable()
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_package_that_is_missing_is_named(nightjar, fork, serve):
    (nightjar.folder / "s3fs.py").write_text("raise ImportError('no s3fs here')")
    server, source = serve(), f"import sys; sys.path.insert(0, {str(nightjar.folder)!r}); {NIGHTJAR}"
    command = ["eval", "run", "arithmetic", "--direct", "--warehouse", "s3://team/runs", "-m", "m", "-b", server.url]
    process = fork.python(source, *command, env=nightjar.env, cwd=nightjar.folder, stderr=PIPE)
    [line] = process.communicate()[1].splitlines()
    assert (process.returncode, server.stats().received) == (1, 0)
    assert "Error: Cannot open the warehouse s3://team/runs: a package is missing" in line
    assert "pip install 'nightjar-evals[s3]'" in line


@pytest.mark.parametrize("location", ["team/runs", "duckdb:team/runs.duckdb", "memory://writability/warehouse"])
def test_the_check_creates_and_changes_nothing(tmp_path, monkeypatch, run_writer, location):
    import duckdb
    import fsspec

    def there():
        return files_in(tmp_path), memory.find("/writability", withdirs=True)

    monkeypatch.chdir(tmp_path)
    warehouse, memory = Warehouse(location), fsspec.filesystem("memory")
    warehouse.check_writable()
    assert files_in(tmp_path) == {}
    warehouse.publish(run_writer.write(tmp_path / "run-1"))
    before = there()
    warehouse.check_writable()
    assert there() == before
    if location.startswith("duckdb:"):
        with duckdb.connect("team/runs.duckdb"):  # another writes it meanwhile
            warehouse.check_writable()


@pytest.fixture
def started(nightjar, serve):
    """A run that has begun when a file takes the place of its warehouse."""
    run = nightjar.start_eval("arithmetic", "-n", 40, "-c", 4, server=serve(faults=Faults(latency_ms=50)))
    run.wait_until(lambda: nightjar.runs and nightjar.run.count_lines("results.jsonl") > 3)
    (nightjar.folder / "outputs/warehouse").touch()
    return run


@pytest.mark.long
def test_a_warehouse_that_breaks_leaves_the_results_and_says_how_to_publish_them(nightjar, started):
    ended = started.wait()
    assert ended.code == 1
    assert nightjar.run.metadata["status"] == "completed"
    assert nightjar.run.metadata["scored"] == len(nightjar.run.results) == 120
    assert "published_at" not in nightjar.run.metadata
    path = nightjar.run.path.relative_to(nightjar.folder)
    [line] = ended.errors
    assert line.endswith(f"The results are in {path}. To publish them later: nightjar publish {path}")
    assert "120 of 120 scored" in ended.stdout
    assert "not published in outputs/warehouse" in ended.stdout
    assert f"Next:      nightjar publish {path}" in ended.stdout
    (nightjar.folder / "outputs/warehouse").unlink()
    _, *command = shlex.split(line.partition("To publish them later: ")[2])
    assert nightjar.start(*command).wait().code == 0
    assert nightjar.sql("SELECT status, scored FROM runs") == [("completed", 120)]


def test_ctrl_c_works_as_usual_with_a_warehouse_that_breaks(nightjar, started):
    started.send(signal.SIGINT)
    ended = started.wait()
    assert ended.code == 130
    assert nightjar.run.metadata["status"] == "cancelled"
    assert "To publish them later: nightjar publish outputs/" in ended.errors[-1]


@pytest.mark.long
def test_commands_that_change_a_disk_that_became_read_only_are_refused(nightjar, mount, run_writer, tmp_path):
    disk, run_dir = mount("size=4m"), run_writer.write(tmp_path / "run-1")
    Warehouse(disk).publish(run_dir)
    mount("remount,ro")
    for command in ("prices set m --input 1 --output 2", "prices remove m", f"import {run_dir}", f"rebuild {run_dir}"):
        line = nightjar.start("warehouse", *command.split(), "--warehouse", disk).wait().only_line
        assert f"Cannot write the warehouse {disk}: Read-only file system ({disk}/segments). {ADVICE}" in line
