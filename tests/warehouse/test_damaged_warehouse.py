"""A damaged warehouse: every message names what is damaged and what to do, and doing that ends in a sound warehouse."""

import os
import re
import shlex
import shutil
from functools import partial

import pytest
from drawing import drawn

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

ALL = "SELECT count(*), sum(reward), max(completion::VARCHAR) FROM rollouts"


@pytest.fixture
def tmp_path(restored, write_run):
    """A folder with a warehouse of two runs of three examples, each in a segment of its own."""

    def prepare(folder):
        for name in ("run-1", "run-2"):
            Warehouse(folder / "warehouse").publish(write_run(folder / "evals", name, examples=3))

    return restored(prepare)


@pytest.fixture
def house(tmp_path):
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture(scope="module")
def duckdb():
    import duckdb

    return duckdb


def diagnose(house):
    from nightjar.warehouse.doctor import diagnose

    return diagnose(house.store())


def to_do(house):
    """The only finding that needs action."""
    [finding] = [one for one in diagnose(house).findings if one.needs_action]
    return finding


def fix(house, **options):
    """Repairs a warehouse; returns which segments were set aside, and where they are."""
    from nightjar.warehouse.repair import fix

    return fix(house.store(), **options).set_aside


def segment(house, run_id="run-1"):
    [path] = house.folder.glob(f"segments/{run_id}.*")
    return path


DAMAGE = {
    "segment.json is garbage": lambda to, path: to.overwrite(path / "segment.json", lambda _: b"{"),
    "segment.json is of another shape": lambda to, path: to.describe(path, sizes=[1, 2]),
    "segment.json has another length": lambda to, path: to.describe(
        path, sizes=dict.fromkeys(("runs", "rollouts", "attempts", "examples"), 9)
    ),
    "segment.json has another version": lambda to, path: to.describe(path, versions={"run-1": "9"}),
    "segment.json has another run": lambda to, path: to.describe(path, versions={"who": "9"}),
    "segment.json is missing": lambda _, path: (path / "segment.json").unlink(),
    "a file is truncated": lambda to, path: to.truncate(path / "rollouts.parquet"),
    "a file is missing": lambda _, path: (path / "rollouts.parquet").unlink(),
    "a file is empty": lambda to, path: to.overwrite(path / "examples.parquet", lambda _: b""),
    "a file holds zeros": lambda to, path: to.overwrite(path / "attempts.parquet", lambda c: bytes(len(c))),
    "runs.parquet is missing": lambda _, path: (path / "runs.parquet").unlink(),
    "a footer is torn": lambda to, path: to.overwrite(path / "runs.parquet", lambda c: c[:-60] + bytes(50) + c[-10:]),
    "a byte of a text is flipped": lambda to, path: to.flip(path / "rollouts.parquet", "completion"),
    "a byte of a key is flipped": lambda to, path: to.flip(path / "rollouts.parquet", "run_id"),
    "a byte of a number is flipped": lambda to, path: to.flip(path / "rollouts.parquet", "reward"),
    "all is gone": lambda _, path: [file.unlink() for file in path.iterdir()],
}


@pytest.mark.parametrize("what", drawn(DAMAGE, 4))
def test_doing_what_is_said_ends_in_a_sound_warehouse_with_all_runs(house, nightjar, tmp_path, damage, what):
    """A user asks, and then types what each answer says, until there is nothing more to type."""
    DAMAGE[what](damage, segment(house))
    doctor = f"nightjar warehouse doctor --deep --warehouse {house.folder}"
    ended = nightjar("sql", ALL, "--warehouse", house.folder)
    typed = []
    while command := advised(ended) or ("" if typed else doctor):  # a changed number shows in no answer
        typed.append(command.replace("RUN_DIR", f"{tmp_path}/evals/run-1").partition(", for the run directory")[0])
        assert len(typed) == len(set(typed)), typed
        ended = nightjar(*shlex.split(typed[-1])[1:])
        if "doctor" not in command:
            ended = nightjar(*doctor.split()[1:])
    assert ended.code == 0
    assert "All is well." in ended.out
    assert Warehouse(house.folder).query(ALL).rows[0][:2] == (12, 8.0)
    hashes = Warehouse(house.folder).query("SELECT DISTINCT example_hash FROM examples ORDER BY 1").rows
    assert hashes == [("hash-0",), ("hash-1",), ("hash-2",)]


@pytest.mark.parametrize("what", drawn([name for name in DAMAGE if name.startswith(("a ", "runs", "all"))], 2))
def test_the_other_runs_work_after_one_fix_and_nothing_is_deleted(house, tmp_path, damage, duckdb, what):
    DAMAGE[what](damage, segment(house))
    shutil.rmtree(tmp_path / "evals" / "run-1")
    files = {path.name for path in segment(house).iterdir()}
    [(name, path)] = fix(house, deep=True).items()
    assert path == house.folder / "damaged" / name
    assert {path.name for path in path.iterdir()} == files
    assert Warehouse(house.folder).query("SELECT run_id FROM runs").rows == [("run-2",)]
    with duckdb.connect(str(house.folder / "nightjar.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT run_id FROM runs").fetchall() == [("run-2",)]
    assert to_do(house).what == f"Run 'run-1' is missing since a damaged segment was set aside: {path}"


def advised(ended):
    """The first command that a message, or else a report, says to type about what needs action; empty without any."""
    urgent = ended.out.partition("Good to know:")[0]
    found = re.search(r"Run: (nightjar .*)", ended.err) or re.search(r"→ (nightjar .*)", urgent)
    return found[1] if found else ""


def test_a_query_names_segment_run_file_and_command(house, damage):
    from nightjar.warehouse.writing.packing import pack_everything

    path = segment(house)
    length = (path / "rollouts.parquet").stat().st_size
    damage.truncate(path / "rollouts.parquet")
    what = rf"rollouts.parquet has {length // 2:,} bytes instead of {length:,}\. Run: nightjar warehouse doctor"
    for ask in (
        lambda: house.query("FROM runs"), lambda: house.query_arrow(ALL), lambda: house.connect().execute(ALL),
        lambda: pack_everything(house.store()),
    ):  # fmt: skip
        with pytest.raises(WarehouseError, match=rf"^Segment '{path.name}' \(run 'run-1'\) is damaged: {what}"):
            ask()


def test_an_error_about_a_flipped_byte_has_one_line(house, damage):
    """DuckDB's message depends on what is in memory, and is not always text."""
    damage.flip(segment(house) / "rollouts.parquet", "completion")
    with pytest.raises(WarehouseError, match=r"^The query failed: .+$"):
        house.query(ALL)


def test_an_error_without_a_message_may_be_damage(house, duckdb):
    from nightjar.warehouse.database import explained

    for raised, said in (
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), "it contains text that is not UTF-8"),
        (duckdb.InvalidInputException("Invalid Input Error: "), "Invalid Input Error:"),
    ):

        def fail(_connection, raised=raised):
            with explained("The query failed"):
                raise raised

        advice = f"That may be damage. Run: nightjar warehouse doctor --deep --warehouse {house.folder}"
        with pytest.raises(WarehouseError, match=rf"^The query failed: {said}\. {advice}$"):
            house._backend.ask(fail)


def test_a_query_warns_once_of_a_segment_that_does_not_count(house, caplog):
    path = segment(house)
    (path / "segment.json").unlink()
    fresh = Warehouse(house.folder)
    for _ in range(2):
        assert fresh.query("SELECT run_id FROM runs").rows == [("run-2",)]
    [warning] = caplog.messages
    assert warning.startswith(f"Segment '{path.name}' is ignored: its segment.json is missing. Run: nightjar ")


def test_a_query_works_again_in_the_same_process_after_a_fix(house, damage, tmp_path):
    damage.overwrite(segment(house) / "runs.parquet", lambda content: bytes(len(content)))
    with pytest.raises(WarehouseError):
        house.query(ALL)
    fix(house)
    house.publish(tmp_path / "evals" / "run-1")
    assert house.query("SELECT count(*) FROM rollouts").rows == [(12,)]


def test_a_mistake_of_the_user_reads_no_files(house, monkeypatch):
    from nightjar.warehouse.reading.querying import run_arrow_query, run_query

    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("a file is read"))
    path = house.folder / "segments"
    for sql in (
        "SELECT strptime('x', '%Y')", "FROM nowhere", "SELEC 1", "SELECT error('parquet')",
        f"FROM read_parquet('{path}/*/nope.parquet')",
        f"SELECT error('parquet {segment(house)}/rollouts.parquet {segment(house)}/runs.parquet')",
    ):  # fmt: skip
        for run in (run_query, run_arrow_query):
            with pytest.raises(WarehouseError, match="The query failed: "):
                house._backend.ask(partial(run, sql=sql, parameters=None))


def test_a_file_that_never_existed_is_looked_for_once(house):
    from nightjar.warehouse.database import explained

    asked = []

    def question(connection):
        asked.append(connection)
        with explained("The query failed"):
            connection.execute(f"FROM read_parquet('{house.folder}/segments/*/nope.parquet')")

    with pytest.raises(WarehouseError, match="No files found"):
        house._backend.ask(question)
    assert len(asked) == 1


def test_a_file_that_was_removed_meanwhile_is_looked_for_again_within_the_time_limit(house, write_run):
    from nightjar.warehouse.reading.process import TimeLimit
    from nightjar.warehouse.reading.querying import run_query, run_stoppable

    limit, tries = TimeLimit(0.5), []

    def question(connection):
        tries.append(len(tries))
        house.publish(write_run(house.folder.parent / "evals", f"more-{len(tries)}"))
        for sql in ("SELECT sleep_ms(300)", f"FROM read_parquet('{house.folder}/segments/*/nope.parquet')"):
            run_stoppable(partial(run_query, connection, sql, None), connection, limit)

    with pytest.raises(WarehouseError, match=r"stopped after 0\.5 s"):
        house._backend.ask(question)
    assert tries == [0, 1]


def test_an_error_quotes_the_path_in_the_command(house, damage, tmp_path):
    moved = house.folder.rename(tmp_path / "our house")
    damage.truncate(next(moved.glob("segments/run-1.*/runs.parquet")))
    with pytest.raises(WarehouseError, match=f"--warehouse '{moved}'$"):
        Warehouse(moved).query(ALL)


def test_the_message_about_an_object_store_says_what_to_move_away(tmp_path):
    import fsspec

    store = fsspec.filesystem("memory")
    for number, (name, content, what) in enumerate([
        ("rollouts.parquet", None, "(run 'run-1') is damaged: rollouts.parquet is missing"),
        ("rollouts.parquet", bytes(1000), "(run 'run-1') is damaged: rollouts.parquet has 1,000 bytes instead of "),
        ("segment.json", b"{", "is damaged: segment.json: "),
    ]):  # fmt: skip
        url = f"memory://damaged/{number}"
        Warehouse(url).publish(tmp_path / "evals" / "run-1")
        [path] = [path for path in store.find(url) if path.endswith(name)]
        store.rm_file(path)
        if content is not None:
            store.pipe_file(path, content)
        advice = rf"\. Move {url}/segments/{path.split('/')[-2]} away, .*: nightjar warehouse import RUN_DIR .* {url}$"
        with pytest.raises(WarehouseError, match=re.escape(what) + ".*" + advice):
            Warehouse(url).query("SELECT reward FROM rollouts")


def test_a_lost_run_whose_directory_is_elsewhere_can_be_published(house, damage, nightjar, tmp_path):
    run_dir = tmp_path / "evals" / "run-1"
    shutil.rmtree(run_dir)
    path = segment(house)
    damage.truncate(path / "rollouts.parquet")
    record = nightjar("warehouse", "doctor", "--fix", "--json", "--warehouse", house.folder).json
    assert record["fixed"]["set_aside"] == {path.name: str(house.folder / "damaged" / path.name)}
    finding = to_do(house)
    assert (finding.runs, str(run_dir) in finding.remedy) == (("run-1",), True)
    assert finding.remedy.startswith(f"nightjar publish RUN_DIR --warehouse {house.folder}, ")
    shutil.rmtree(house.folder / "damaged")
    assert diagnose(house).findings == []


def test_an_older_version_counts_while_the_newer_is_set_aside(house, write_run, damage, tmp_path):
    old = segment(house)
    house.publish(write_run(tmp_path / "evals", "run-1", attempt=2))
    [new] = [path for path in house.folder.glob("segments/run-1.*") if path != old]
    damage.truncate(new / "rollouts.parquet")
    run_dir = (tmp_path / "evals" / "run-1").rename(tmp_path / "moved")
    fix(house)
    assert house.query("SELECT DISTINCT attempts FROM rollouts WHERE run_id = 'run-1'").rows == [(1,)]
    assert to_do(house).what.startswith("Run 'run-1' counts with an older version since a damaged segment was set")
    house.publish(run_dir)
    assert diagnose(house).is_clean


def test_a_segment_set_aside_can_be_removed_when_its_runs_are_published_again(house, damage):
    damage.truncate(segment(house) / "rollouts.parquet")
    [path] = fix(house).values()
    [finding] = diagnose(house).findings
    assert (str(path) in finding.what, finding.remedy, finding.needs_action) == (True, "remove it", False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_not_set_aside(house):
    (segment(house) / "rollouts.parquet").chmod(0)
    assert fix(house, deep=True) == {}
    [finding] = diagnose(house).findings
    assert finding.remedy == "give yourself the right to read it, or check the disk"


@pytest.fixture
def packs(house, write_run, tmp_path):
    """Two packs; the second relies on the examples of the first."""
    from nightjar.warehouse.writing.packing import merge, pack_everything

    store = house.store()
    for name in ("run-3", "run-4", "run-5", "run-6"):
        house.publish(write_run(tmp_path / "evals", name, examples=3))
        if name == "run-4":
            pack_everything(store)
            [first] = store.catalog().live
    merge(store, [one for one in store.catalog().live.values() if not one.is_pack])
    return house.folder / "segments" / first


def test_the_examples_of_a_pack_that_others_rely_on_are_kept(house, packs, damage, nightjar, tmp_path):
    damage.truncate(packs / "rollouts.parquet")
    evals = (tmp_path / "evals").rename(tmp_path / "moved")
    ended = nightjar("warehouse", "doctor", "--fix", "--warehouse", house.folder)
    assert f"Set aside: segment '{packs.name}' is damaged" in ended.out
    assert "its examples are kept" in ended.out
    assert "Runs 'run-1', 'run-2', 'run-3', 'run-4' are missing" in ended.out
    fresh = Warehouse(house.folder)
    counts = "SELECT run_id, count(examples.prompt) FROM rollouts JOIN examples USING (example_hash) GROUP BY ALL"
    assert sorted(fresh.query(counts).rows) == [("run-5", 6), ("run-6", 6)]
    evals.rename(tmp_path / "evals")
    repair(house, nightjar)


def repair(house, nightjar):
    """Runs what the doctor says, until it has nothing more to say."""
    while command := advised(nightjar("warehouse", "doctor", "--warehouse", house.folder)):
        assert nightjar(*shlex.split(command)[1:]).code == 0, command
    assert nightjar("warehouse", "doctor", "--deep", "--warehouse", house.folder).code == 0


def test_lost_examples_are_named_run_by_run(house, packs, damage, nightjar, tmp_path):
    damage.truncate(packs / "examples.parquet")
    evals = (tmp_path / "evals").rename(tmp_path / "moved")
    ended = nightjar("warehouse", "doctor", "--fix", "--warehouse", house.folder)
    assert "Run 'run-5': 6 rollouts have lost the content of their example" in ended.out
    evals.rename(tmp_path / "evals")
    repair(house, nightjar)


def test_a_damaged_line_of_the_prices_is_named(house):
    header, path = b"model,since,input,output\n", house.folder / "prices.csv"
    for content, line, fault in (
        (b"\x00\x01garbage", 1, "expected 'model,since,input,output', found '\\x00\\x01garbage'"),
        (b"model;since;input;output\n", 1, "expected 'model,since,input,output', found 'model;since;input;output'"),
        (header + b"m,2026-01-01,-1,2\n", 2, "A price of 'm' is negative or not a number: -1.0, 2.0"),
        (header + b"m,2026-01-01,1\n", 2, "expected 4 values, found 3: 'm,2026-01-01,1'"),
        (header + b"m,2026-01-01,1,2\n\nm,may,1,2\n", 4, "Cannot read the date 'may'"),
        (header + b"m,2026-01-01,1,free\n", 2, "Cannot read the price 'free'. "),
        (header + b",2026-01-01,1,2\n", 2, "the line has no model"),
        (header + b"m\xff,2026-01-01,1,2\n", 2, "it is not UTF-8 text: "),
    ):
        path.write_bytes(content)
        finding = to_do(house)
        assert finding.what.startswith(f"prices.csv, line {line}: {fault}")
        assert finding.remedy.startswith("repair this line in an editor")
        with pytest.raises(WarehouseError, match=re.escape(f"prices.csv, line {line}: {fault}") + f".*: {path}$"):
            house.query("FROM runs")


@pytest.mark.parametrize("name", drawn(["a?access_mode=x", "# 100%41", 'o\'b "größe 日本"', "[ab]*", "-{a,b};"], 1))
def test_an_odd_name_of_the_folder_breaks_nothing(tmp_path, write_run, nightjar, duckdb, name):
    base = tmp_path / name
    folder, where = base / "warehouse", ["--warehouse", base / "warehouse"]
    for run_id in ("run-1", "run-2"):
        Warehouse(folder).publish(write_run(base / "evals", run_id))
    for command in ("doctor --deep", "compact --now", "doctor --fix"):
        ended = nightjar("warehouse", *command.split(), *where)
        assert (ended.code, ended.err.count("Cannot")) == (0, 0), (command, ended.out, ended.err)
    assert Warehouse(folder).query("SELECT count(*) FROM rollouts").rows == [(8,)]
    with Warehouse(folder).connect() as connection:
        assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(8,)]
    for target in ("out", "out.duckdb"):
        assert nightjar("warehouse", "export", base / target, *where).code == 0
    for database in (folder / "nightjar.duckdb", base / "out.duckdb"):
        with duckdb.connect(str(database), read_only=True) as connection:
            assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(8,)]


def test_a_folder_with_a_backslash_is_refused_at_once(tmp_path, nightjar):
    folder = tmp_path / "a\\b"
    ended = nightjar("sql", "FROM runs", "--warehouse", folder)
    assert ended.code == 1
    assert "DuckDB takes the backslash in its name for a slash. Name another folder." in ended.err
    with pytest.raises(WarehouseError, match="Name another folder"):
        Warehouse(folder)
    assert not folder.exists()
