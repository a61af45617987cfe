"""A warehouse of tables: in a DuckDB file, and in a DuckLake where DuckDB's extension for it is installed.

What ``ANYWHERE`` marks holds for an object store, too.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from subprocess import PIPE

import pytest
from programs import PUBLISH, READ

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.tables import SCHEMA

ANYWHERE = pytest.mark.parametrize("location", ["duckdb", "ducklake", "memory"], indirect=True)
LAKE = "ducklake:postgres:dbname=runs host=db"


def contents(warehouse):
    relations = ("rollouts", "attempts", "metrics", "errors", "examples", "leaderboard", "pass_at_k", "retries")
    runs = "(SELECT * EXCLUDE (version, published_at, run_dir) FROM runs)"
    return [warehouse.query(f"FROM {relation} ORDER BY ALL").rows for relation in (runs, *relations)]


def has_ducklake():
    import duckdb

    with duckdb.connect(":memory:", config={"autoinstall_known_extensions": False}) as connection:
        try:
            connection.execute("LOAD ducklake")
        except duckdb.Error:
            return False
    return True


@pytest.fixture(params=["duckdb", "ducklake"])
def location(request, tmp_path):
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/warehouse"
    if request.param == "ducklake" and not has_ducklake():
        pytest.skip("needs DuckDB's extension ducklake: INSTALL ducklake")
    (tmp_path / "team").mkdir()
    return f"{request.param}:{tmp_path}/team/warehouse.db"


@pytest.fixture
def database(tmp_path):
    """The path of a warehouse in a DuckDB file."""
    (tmp_path / "team").mkdir()
    return tmp_path / "team/warehouse.db"


@pytest.fixture
def warehouse(location):
    return Warehouse(location)


@pytest.fixture
def run_dirs(tmp_path, run_writer):
    failed = run_writer.attempt(1, 1, error=run_writer.failure)
    attempts = [run_writer.attempt(0, 0), run_writer.attempt(0, 1), run_writer.attempt(1, 0), failed]
    return [run_writer.write(tmp_path / f"run-{i}", None, attempts, run_id=f"run-{i}") for i in range(2)]


@pytest.fixture
def start(fork):
    """Starts a script in a process of its own, which ends with the test."""
    with ExitStack() as started:
        yield lambda *arguments: started.enter_context(fork.python(*arguments, stdout=PIPE, stderr=PIPE))


@ANYWHERE
@pytest.mark.long
def test_a_run_reads_like_one_in_a_folder(warehouse, run_dirs, tmp_path):
    local = Warehouse(tmp_path / "warehouse")
    for house in (local, warehouse):
        assert [house.publish(run_dir, tidies=False).is_new for run_dir in run_dirs] == [True] * 2
    expected = contents(local)
    assert contents(warehouse) == expected
    assert not warehouse.publish(run_dirs[0]).is_new
    assert contents(warehouse) == expected
    assert warehouse.catalog().rows == local.catalog().rows
    assert warehouse.query_arrow("FROM rollouts ORDER BY ALL") == local.query_arrow("FROM rollouts ORDER BY ALL")


@ANYWHERE
def test_nothing_but_the_warehouse_can_be_read_or_changed(warehouse, run_dirs, tmp_path):
    warehouse.publish(run_dirs[0])
    (tmp_path / "secret.txt").write_text("secret")
    with pytest.raises(WarehouseError, match="disabled by configuration"):
        warehouse.query(f"FROM read_text('{tmp_path}/secret.txt')")
    for sql in ("DELETE FROM segments.runs", "DETACH served", "SET threads = 1", "CALL pragma_version()", "VACUUM"):
        with pytest.raises(WarehouseError, match="is refused"):
            warehouse.query(sql)
    assert warehouse.query("SELECT count(*) FROM runs").rows == [(1,)]


@ANYWHERE
def test_there_is_no_warehouse_at_first_and_then_the_newest_version_counts_whatever_the_order(
    warehouse, location, tmp_path, run_writer
):
    for action in (lambda: warehouse.query("FROM runs"), warehouse.connect):
        with pytest.raises(WarehouseError, match=f"No warehouse at {location}. Run an evaluation first"):
            action()
    old = run_writer.write(tmp_path / "old", status="incomplete", finished_at="2026-11-20T18:01:00Z")
    new = run_writer.write(tmp_path / "new", status="completed", finished_at="2026-11-20T18:02:00Z")
    for run_dir in (old, new, old):
        warehouse.publish(run_dir)
    assert warehouse.query("SELECT status FROM runs").rows == [("completed",)]
    assert warehouse.query("SELECT count(*) FROM rollouts").rows == [(4,)]


@pytest.mark.long
def test_a_content_is_kept_once_and_a_damaged_run_changes_nothing(warehouse, run_dirs, tmp_path, run_writer):
    for run_dir in run_dirs:
        warehouse.publish(run_dir)
    assert warehouse.query("SELECT count(*) FROM segments.examples").rows == [(2,)]
    before = warehouse.query("FROM runs ORDER BY ALL").rows, warehouse.query("FROM rollouts ORDER BY ALL").rows
    with pytest.raises(WarehouseError, match=r"Cannot read .*results\.jsonl"):
        warehouse.publish(run_writer.write(tmp_path / "bad", ["{]\n", "{}\n"], run_id="run-0"))
    after = warehouse.query("FROM runs ORDER BY ALL").rows, warehouse.query("FROM rollouts ORDER BY ALL").rows
    assert after == before


def test_a_notebook_gets_a_connection_that_cannot_write_and_prices_are_kept(warehouse, run_dirs):
    import duckdb

    warehouse.publish(run_dirs[0])
    added = "INSERT INTO prices VALUES ('openai/gpt-4.1-mini', '2026-01-01', 2.0, 10.0)"
    with duckdb.connect() as connection:
        warehouse._backend._change(connection, lambda connection: connection.execute(added))
    assert warehouse.query("SELECT cost FROM runs").rows == [((300 * 2 + 60 * 10) / 1e6,)]
    with closing(warehouse.connect()) as connection:
        assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(4,)]
        with pytest.raises(duckdb.Error, match="read-only"):
            connection.execute("DELETE FROM served.segments.runs")


def test_other_tools_find_the_views_and_a_database_of_theirs_is_no_warehouse(database, run_dirs):
    import duckdb

    Warehouse(f"duckdb:{database}").publish(run_dirs[0])
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT env_id, avg_reward FROM leaderboard").fetchall() == [("gsm8k", 0.5)]
        assert connection.execute("FROM flips('run-0', 'run-0')").fetchall() == []
    with duckdb.connect(f"{database}.other") as connection:
        connection.execute("CREATE TABLE runs (a INTEGER)")
    with pytest.raises(WarehouseError, match="No warehouse at"):
        Warehouse(f"duckdb:{database}.other").query("FROM runs")


def test_the_next_publish_gives_tables_of_the_first_release_the_new_columns(database, run_dirs, run_writer):
    import duckdb

    warehouse, path = Warehouse(f"duckdb:{database}"), str(database)
    told = {"rescored_from": "run-0", "api_client_type": "openai_responses", "version_info": {"env_hash": "ab12"}}
    warehouse.publish(run_writer.write(run_dirs[0], run_id="run-0", **told))
    with duckdb.connect(path) as connection:
        rewards = ("reward_examples", "lowest_reward", "highest_reward")
        for column in ("env_hash", "scoring_hash", "rescored_from", "protocol", *rewards):
            connection.execute(f"ALTER TABLE segments.runs DROP COLUMN {column}")
        for column in ("finish_reason", "model_ms", "cached_calls"):
            connection.execute(f"ALTER TABLE segments.rollouts DROP COLUMN {column}")
        connection.execute("UPDATE segments.version SET number = 3")
    sql = "SELECT rescored_from, protocol, env_hash, scoring_hash FROM runs WHERE rescored_from IS NOT NULL"
    assert warehouse.query(sql).rows == [("run-0", "openai_responses", "ab12", None)]
    warehouse.publish(run_dirs[1])
    with duckdb.connect(path) as connection:
        assert connection.execute(sql).fetchall() == [("run-0", "openai_responses", "ab12", None)]
        assert connection.execute("SELECT number FROM segments.version").fetchall() == [(SCHEMA,)]


@pytest.mark.long
def test_processes_publish_and_read_at_once(start, warehouse, location, run_dirs, tmp_path, run_writer):
    warehouse.publish(run_dirs[0])
    others = [run_writer.write(tmp_path / f"other-{i}", run_id=f"other-{i}") for i in range(3)]
    words = ((PUBLISH, location, *run_dirs), (PUBLISH, location, *others, run_dirs[1]), (READ, location, 5))
    for process in [start(*each) for each in words]:
        assert (process.communicate(timeout=90)[1], process.returncode) == ("", 0)
    assert warehouse.query("SELECT count(*), count(DISTINCT run_id) FROM runs").rows == [(5, 5)]
    assert warehouse.query("SELECT count(*) FROM rollouts").rows == [(20,)]


def test_threads_publish_the_same_first_run_at_once(location, run_dirs):
    house = Warehouse(location)
    with ThreadPoolExecutor(4) as pool:
        news = [one.is_new for one in pool.map(house.publish, run_dirs[:1] * 4)]
    assert sorted(news) == [False, False, False, True]
    assert house.query("SELECT count(*) FROM rollouts").rows == [(4,)]


def test_a_file_that_stays_open_elsewhere_is_an_error_after_a_while(database, run_dirs, monkeypatch):
    import duckdb

    from nightjar.warehouse import served

    monkeypatch.setattr(served, "PATIENCE_SECONDS", 0.3)
    house = Warehouse(f"duckdb:{database}")
    house.publish(run_dirs[0])
    refused = pytest.raises(WarehouseError, match=r"Cannot publish .*warehouse\.db.* is already attached")
    with duckdb.connect(str(database), read_only=True), refused:
        house.publish(run_dirs[1])
    assert house.publish(run_dirs[1]).is_new


def test_an_address_names_what_is_attached():
    from nightjar.warehouse.served import ServedWarehouse

    for location, *expected in (
        ("md:runs", "md:runs", "runs", ("motherduck",)),
        ("motherduck:runs", "md:runs", "runs", ("motherduck",)),
        ("ducklake:lake.ducklake", "ducklake:lake.ducklake", "served", ("ducklake",)),
        ("ducklake:sqlite:lake.db", "ducklake:sqlite:lake.db", "served", ("sqlite", "ducklake")),
        (f"{LAKE}?data_path=s3://team/lake/", LAKE, "served", ("postgres", "ducklake")),
    ):  # fmt: skip
        house = ServedWarehouse(location)
        assert [house.target, house.catalog, house.extensions] == expected
        assert house.data_path == ("s3://team/lake/" if "data_path" in location else None)


def test_a_secret_in_the_location_is_refused_and_not_shown():
    for location in (
        "md:runs?motherduck_token=eyJhbGciOi", "ducklake:postgres:dbname=runs password=eyJhbGciOi host=db",
        "ducklake:postgres:dbname=runs password='eyJhbGciOi x' host=db",
        "ducklake:postgres:postgresql://ann:eyJhbGciOi@db/runs",
    ):  # fmt: skip
        with pytest.raises(WarehouseError, match="holds a secret") as caught:
            Warehouse(location)
        assert "eyJhbGciOi" not in str(caught.value)


def test_motherduck_needs_a_token(monkeypatch, run_dirs):
    for name in ("MOTHERDUCK_TOKEN", "motherduck_token"):
        monkeypatch.delenv(name, raising=False)
    house = Warehouse("md:runs")
    for action in (lambda: house.query("FROM runs"), lambda: house.publish(run_dirs[0])):
        with pytest.raises(WarehouseError, match="Cannot open the warehouse md:runs: set MOTHERDUCK_TOKEN"):
            action()


def test_a_missing_extension_says_so_and_shows_no_token(monkeypatch):
    from nightjar.warehouse import served

    monkeypatch.setenv("PGPASSWORD", "eyJhbGciOi")
    monkeypatch.setitem(served._CATALOGS, "postgres", "no_such_extension")
    with pytest.raises(WarehouseError) as caught:
        Warehouse("ducklake:postgres:dbname=eyJhbGciOi").connect()
    assert str(caught.value).startswith("Cannot open the warehouse ducklake:postgres:dbname=***: DuckDB ")
    assert "needs its extension 'no_such_extension', which is not installed" in str(caught.value)
    assert "eyJhbGciOi" not in str(caught.value)


def test_an_address_needs_a_name_and_has_no_segments():
    from nightjar.warehouse.backend import open_store

    with pytest.raises(WarehouseError, match="names no database"):
        Warehouse("md:")
    with pytest.raises(WarehouseError, match="The warehouse md:runs keeps tables"):
        open_store("md:runs")
