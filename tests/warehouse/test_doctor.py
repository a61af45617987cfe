"""``nightjar warehouse doctor``: what it finds in a warehouse that was damaged, and what it says to do."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from nightjar.warehouse import Warehouse
from nightjar.warehouse.doctor import diagnose
from nightjar.warehouse.reading.relations import selection
from nightjar.warehouse.repair import fix
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import KINDS, Source, write_files


def rebuild(folder, run_id):
    return f"nightjar warehouse rebuild {folder.path.parent}/evals/{run_id} --warehouse {folder.path}"


def fix_line(folder, options=""):
    return f"nightjar warehouse doctor --fix{options} --warehouse {folder.path}"


@pytest.fixture
def tmp_path(restored, write_run):
    """A folder with a warehouse of two runs, each in a segment of its own."""

    def prepare(folder):
        for name, examples in (("run-1", 3), ("run-2", 1)):
            Warehouse(folder / "warehouse").publish(write_run(folder / "evals", name, examples=examples))

    return restored(prepare)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "warehouse")


def segment(folder, run_id="run-1"):
    [path] = folder.segments_path.glob(f"{run_id}.*")
    return path


def overwrite(path, change):
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))


def found(folder, **options):
    """What needs action, as (what, remedy)."""
    return [(one.what, one.remedy) for one in diagnose(folder, **options).findings if one.needs_action]


def notes(folder):
    return [(one.what, one.remedy) for one in diagnose(folder).findings if not one.needs_action]


def rewrite(folder, run_id, **relations):
    """Puts a segment of other rows in the place of a run's: {rows} in a relation are those it has."""
    old = folder.catalog().holders[run_id]
    rows = {kind: selection(kind, [Source((old.segment_id,))], folder.file) for kind in KINDS}
    changed = {kind: relations.get(kind, "{rows}").format(rows=f"({rows[kind]})") for kind in KINDS}
    with folder.scratch() as scratch, duckdb.connect() as connection:
        new = write_files(
            connection,
            scratch,
            segment_id=f"{run_id}.9",
            versions=dict(old.versions),
            relations={kind: f"SELECT * FROM {what}" for kind, what in changed.items()},
            replaces=[old.segment_id],
        )
        folder.commit(new, scratch)
    folder.remove(old.segment_id)


class TestAWholeOne:
    def test_is_clean(self, folder):
        diagnosis = diagnose(folder, deep=True)
        assert diagnosis.findings == []
        assert vars(diagnosis.totals) == {"runs": 2, "rollouts": 8, "attempts": 8, "examples": 3}
        assert (diagnosis.segments, diagnosis.packs) == (2, 0)

    def test_sizes_are_those_on_disk(self, folder):
        sizes = diagnose(folder).sizes
        files = [*folder.segments_path.glob("*/*.parquet")]
        assert sizes.live == sum(file.stat().st_size for file in files) == sum(sizes.kinds.values())
        assert (sizes.retired, sizes.leftovers) == (0, 0)

    def test_a_newer_version_of_a_run_is_no_finding(self, folder, tmp_path, write_run):
        Warehouse(folder.path).publish(write_run(tmp_path / "evals", "run-1", attempt=2))
        diagnosis = diagnose(folder)
        assert diagnosis.findings == []
        assert diagnosis.sizes.retired > 0

    def test_what_is_printed(self, folder, nightjar):
        ended = nightjar("warehouse", "doctor", "--warehouse", folder.path)
        assert ended.code == 0
        assert "2 runs, 8 rollouts, 8 attempts, 3 examples" in ended.out
        assert ended.out.endswith("\nAll is well.\n")

    def test_in_json(self, folder, nightjar):
        record = nightjar("warehouse", "doctor", "--warehouse", folder.path, "--json").json
        assert (record["is_clean"], record["findings"], record["totals"]["rollouts"]) == (True, [], 8)


class TestDamagedFiles:
    def test_a_missing_file(self, folder):
        path = segment(folder)
        (path / "rollouts.parquet").unlink()
        what = f"Segment '{path.name}' (run 'run-1'): rollouts.parquet is missing"
        assert found(folder) == [(what, fix_line(folder))]

    def test_a_file_that_is_too_short(self, folder):
        path = segment(folder) / "examples.parquet"
        length = path.stat().st_size
        overwrite(path, lambda content: content[:-10])
        assert f"examples.parquet has {length - 10:,} bytes instead of {length:,}" in found(folder)[0][0]

    def test_a_footer_that_cannot_be_read(self, folder):
        overwrite(segment(folder) / "runs.parquet", lambda content: content[:-10] + b"x" * 10)
        [(what, remedy)] = found(folder)
        assert "runs.parquet" in what
        assert remedy == fix_line(folder)

    def test_the_other_segments_are_examined_all_the_same(self, folder):
        (segment(folder) / "rollouts.parquet").unlink()
        assert vars(diagnose(folder).totals) == {"runs": 1, "rollouts": 2, "attempts": 2, "examples": 1}

    def test_damage_inside_shows_when_all_is_read(self, folder):
        path = segment(folder) / "rollouts.parquet"
        where = f"SELECT data_page_offset FROM parquet_metadata('{path}') WHERE path_in_schema = 'completion'"
        with duckdb.connect() as connection:
            start = connection.execute(where).fetchall()[0][0] + 40
        overwrite(path, lambda content: content[:start] + bytes(40) + content[start + 40 :])
        assert found(folder, deep=False) == []
        [(what, remedy)] = found(folder, deep=True)
        assert "rollouts.parquet is not as it was written: SHA-256 " in what
        assert remedy == fix_line(folder, " --deep")

    @pytest.mark.parametrize("content", [None, b"{", b"[]"])
    def test_no_use_of_segment_json(self, folder, content):
        path = segment(folder) / "segment.json"
        path.chmod(0o644)
        path.unlink() if content is None else path.write_bytes(content)
        [(what, remedy)] = found(folder)[:1]
        assert what.startswith(f"Segment '{path.parent.name}' does not count: ")
        assert remedy == fix_line(folder)

    def test_its_run_is_published_again(self, folder):
        path = segment(folder) / "segment.json"
        path.chmod(0o644)
        path.write_bytes(b"{")
        assert fix(folder).published == ["run-1"]
        assert diagnose(folder).is_clean
        assert Warehouse(folder.path).query("SELECT count(*) FROM rollouts").rows == [(8,)]


class TestRowsThatContradict:
    def test_a_rollout_that_is_there_twice(self, folder):
        rewrite(folder, "run-1", rollouts="(FROM {rows} UNION ALL (FROM {rows} LIMIT 1))")
        assert ("Run 'run-1': 1 rollouts are there several times", rebuild(folder, "run-1")) in found(folder)
        assert ("Run 'run-1': its aggregates are of 6 rollouts, but it has 7", rebuild(folder, "run-1")) in found(
            folder
        )

    def test_a_rollout_that_is_missing(self, folder):
        rewrite(folder, "run-1", rollouts="(FROM {rows} LIMIT 5)")
        assert found(folder)[0] == (
            "Run 'run-1': its aggregates are of 6 rollouts, but it has 5",
            rebuild(folder, "run-1"),
        )

    def test_an_example_that_is_missing(self, folder):
        rewrite(folder, "run-1", examples="(FROM {rows} WHERE answer <> '2')")
        assert found(folder)[0] == (
            "Run 'run-1': 2 rollouts have lost the content of their example",
            rebuild(folder, "run-1"),
        )

    def test_rollouts_of_no_run(self, folder):
        rewrite(folder, "run-1", attempts="(SELECT * REPLACE ('who' AS run_id) FROM {rows})")
        remedy = f"nightjar warehouse rebuild FOLDER… --warehouse {folder.path}"
        assert found(folder)[0] == ("Run 'who': 6 attempts of a run that is not there", remedy)

    def test_another_version_than_segment_json_says(self, folder):
        rewrite(folder, "run-1", runs="(SELECT * REPLACE ('1' AS version) FROM {rows})")
        assert "contradicts runs.parquet" in found(folder)[0][0]

    def test_a_segment_without_a_column_of_its_version(self, folder):
        rewrite(folder, "run-1", runs="(SELECT * EXCLUDE (protocol, suite) FROM {rows})")
        assert "runs.parquet lacks the columns suite, protocol" in found(folder)[0][0]

    def test_a_run_that_goes_on_has_no_count_yet(self, folder, tmp_path, write_run):
        run = write_run(tmp_path / "evals", "run-3", status="running", scored=1)
        Warehouse(folder.path).publish(run)
        assert found(folder) == []


class TestTheDatabaseFile:
    def test_missing(self, folder):
        (folder.path / "nightjar.duckdb").unlink()
        assert found(folder) == [(f"{folder.path}/nightjar.duckdb is missing", fix_line(folder))]

    def test_no_database(self, folder):
        overwrite(folder.path / "nightjar.duckdb", lambda _: b"no database, but long enough to be read" * 300)
        assert "nightjar.duckdb cannot be used" in found(folder)[0][0]

    def test_older_than_the_last_publish(self, folder, tmp_path, write_run):
        path = folder.path / "nightjar.duckdb"
        old = path.read_bytes()
        Warehouse(folder.path).publish(write_run(tmp_path / "evals", "run-3"))
        overwrite(path, lambda _: old)
        assert notes(folder) == [(f"{path} does not show the newest runs", fix_line(folder))]
        assert found(folder) == []

    def test_moved_to_another_place(self, folder):
        moved = Folder(folder.path.rename(folder.path.with_name("moved")))
        assert "moved/nightjar.duckdb cannot be used" in found(moved)[0][0]
        fix(moved)
        assert found(moved) == []

    def test_under_another_name_it_is_the_same(self, folder, tmp_path, monkeypatch):
        link = tmp_path / "link"
        link.symlink_to(folder.path, target_is_directory=True)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        for name in (link, tmp_path / "elsewhere" / ".." / folder.path.name, Path("..", folder.path.name)):
            assert diagnose(Folder(name)).findings == []
            fix(Folder(name))
        assert diagnose(folder).findings == []

    def test_a_write_ahead_file_beside_it(self, folder):
        (folder.path / "nightjar.duckdb.wal").write_bytes(b"")
        assert "write-ahead file" in found(folder)[0][0]

    def test_fixed(self, folder):
        path = folder.path / "nightjar.duckdb"
        path.unlink()
        (folder.path / "nightjar.duckdb.wal").write_bytes(b"")
        fix(folder)
        assert diagnose(folder).findings == []
        with duckdb.connect(str(path), read_only=True) as connection:
            assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(8,)]


class TestWhatDoesNotBelongThere:
    def test_what_a_killed_process_left(self, folder, nightjar):
        """A process writes half a segment and ends without a word."""
        script = (
            "import os, sys; from pathlib import Path; from nightjar.warehouse.storage.folder import Folder\n"
            "with Folder(Path(sys.argv[1])).scratch() as scratch:\n"
            "    (scratch / 'runs.parquet').write_bytes(bytes(1_000_000)); os._exit(9)\n"
        )
        assert subprocess.run([sys.executable, "-c", script, str(folder.path)]).returncode == 9
        assert notes(folder) == [("1 leftover of killed processes, 1.0 MB", fix_line(folder))]
        assert diagnose(folder).sizes.leftovers == 1_000_000
        assert nightjar("warehouse", "doctor", "--warehouse", folder.path).code == 0
        assert nightjar("warehouse", "doctor", "--fix", "--warehouse", folder.path).code == 0
        assert notes(folder) == []

    def test_what_a_living_process_writes_is_none(self, folder):
        with folder.scratch():
            assert notes(folder) == []

    def test_files_of_others(self, folder):
        (folder.path / "notes.txt").write_text("mine")
        (folder.segments_path / "stray.parquet").write_bytes(b"")
        segment(folder).chmod(0o755)
        (segment(folder) / "more.txt").write_text("")
        said = [what for what, _ in notes(folder)]
        assert said == [
            f"{path} is not Nightjar's"
            for path in (
                folder.path / "notes.txt",
                segment(folder) / "more.txt",
                folder.segments_path / "stray.parquet",
            )
        ]
        fix(folder)
        assert len(notes(folder)) == 3

    def test_a_folder_without_files(self, folder):
        (folder.segments_path / "empty").mkdir()
        assert found(folder) == [
            ("Segment 'empty' does not count: segment.json cannot be read: No such file or directory", fix_line(folder))
        ]


def test_findings_are_printed_with_what_to_do(folder, nightjar):
    path = segment(folder)
    (path / "rollouts.parquet").unlink()
    ended = nightjar("warehouse", "doctor", "--warehouse", folder.path)
    assert ended.code == 1
    assert "Needs action:" in ended.out
    assert (
        f"  Segment '{path.name}' (run 'run-1'): rollouts.parquet is missing\n    → {fix_line(folder)}\n" in ended.out
    )
