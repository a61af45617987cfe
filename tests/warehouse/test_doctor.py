"""``nightjar warehouse doctor``: what it finds in a damaged warehouse, and which remedy it names."""

from pathlib import Path

import pytest

from nightjar.warehouse import Warehouse


@pytest.fixture
def tmp_path(restored, write_run):
    """A folder with a warehouse of two runs, each in a segment of its own."""

    def prepare(folder):
        for name, examples in (("run-1", 3), ("run-2", 1)):
            Warehouse(folder / "warehouse").publish(write_run(folder / "evals", name, examples=examples))

    return restored(prepare)


@pytest.fixture
def folder(tmp_path):
    return Warehouse(tmp_path / "warehouse").store()


def diagnose(folder, **options):
    from nightjar.warehouse.doctor import diagnose

    return diagnose(folder, **options)


def fix(folder):
    from nightjar.warehouse.repair import fix

    fix(folder)


def fix_line(folder, options=""):
    return f"nightjar warehouse doctor --fix{options} --warehouse {folder.path}"


def segment(folder, run_id="run-1"):
    [path] = folder.segments_path.glob(f"{run_id}.*")
    return path


def found(folder, *, needs_action=True, **options):
    """The findings as (what, remedy)."""
    findings = diagnose(folder, **options).findings
    return [(one.what, one.remedy) for one in findings if one.needs_action == needs_action]


def notes(folder):
    return found(folder, needs_action=False)


def rewrite(folder, run_id, **relations):
    """Replaces the segment of a run by one with other rows: {rows} in a relation are those it has."""
    import duckdb

    from nightjar.warehouse.reading.relations import selection
    from nightjar.warehouse.storage.segments import KINDS, Source

    old = folder.catalog().holders[run_id]
    rows = {kind: selection(kind, [Source((old.segment_id,))], folder.file) for kind in KINDS}
    changed = {kind: relations.get(kind, "{rows}").format(rows=f"({rows[kind]})") for kind in KINDS}
    with duckdb.connect() as connection:
        folder.write_segment(
            connection, f"{run_id}.9", versions=dict(old.versions), replaces=[old.segment_id],
            relations={kind: f"SELECT * FROM {what}" for kind, what in changed.items()},
        )  # fmt: skip
    folder.remove(old.segment_id)


def test_a_sound_warehouse_is_clean_and_printed(folder, nightjar):
    diagnosis = diagnose(folder, deep=True)
    assert diagnosis.findings == []
    assert diagnosis.totals == {"runs": 2, "rollouts": 8, "attempts": 8, "examples": 3}
    assert (diagnosis.segments, diagnosis.packs) == (2, 0)
    sizes, files = diagnosis.sizes, folder.segments_path.glob("*/*.parquet")
    assert sizes.live == sum(file.stat().st_size for file in files) == sum(sizes.kinds.values())
    assert (sizes.retired, sizes.leftovers) == (0, 0)
    ended = nightjar("warehouse", "doctor", "--warehouse", folder.path)
    assert ended.code == 0
    assert "2 runs, 8 rollouts, 8 attempts, 3 examples" in ended.out
    assert ended.out.endswith("\nAll is well.\n")
    record = nightjar("warehouse", "doctor", "--warehouse", folder.path, "--json").json
    assert (record["is_clean"], record["findings"], record["totals"]["rollouts"]) == (True, [], 8)


def test_a_newer_version_of_a_run_and_one_in_progress_are_no_finding(folder, tmp_path, write_run):
    Warehouse(folder.path).publish(write_run(tmp_path / "evals", "run-1", attempt=2))
    Warehouse(folder.path).publish(write_run(tmp_path / "evals", "run-3", status="running", scored=1))
    diagnosis = diagnose(folder)
    assert (diagnosis.findings, diagnosis.sizes.retired > 0) == ([], True)


def test_a_missing_file_is_printed_with_what_to_do(folder, nightjar):
    path = segment(folder)
    (path / "rollouts.parquet").unlink()
    what = f"Segment '{path.name}' (run 'run-1'): rollouts.parquet is missing"
    assert found(folder) == [(what, fix_line(folder))]
    assert diagnose(folder).totals == {"runs": 1, "rollouts": 2, "attempts": 2, "examples": 1}
    ended = nightjar("warehouse", "doctor", "--warehouse", folder.path)
    assert ended.code == 1
    assert f"Needs action:\n  {what}\n    → {fix_line(folder)}\n" in ended.out


def test_the_remedy_of_contradicting_rows_is_a_rebuild_from_the_run_directory(folder):
    rebuild = f"nightjar warehouse rebuild {folder.path.parent}/evals/run-1 --warehouse {folder.path}"
    rewrite(
        folder,
        "run-1",
        rollouts="(FROM {rows} WHERE example_id <> 1 OR rollout_index = 0)",
        examples="(FROM {rows} WHERE answer <> '2')",
    )
    says = {"its aggregates are of 6 rollouts, but it has 5", "2 rollouts have lost the content of their example"}
    assert {(f"Run 'run-1': {what}", rebuild) for what in says} <= set(found(folder))
    rewrite(folder, "run-2", rollouts="(FROM {rows} UNION ALL (FROM {rows} LIMIT 1))")
    says = ["1 rollouts are there several times", "its aggregates are of 2 rollouts, but it has 3"]
    assert [f"Run 'run-2': {what}" in dict(found(folder)) for what in says] == [True, True]


def test_rows_without_their_run_and_a_segment_that_contradicts_its_description(folder):
    rewrite(folder, "run-1", attempts="(SELECT * REPLACE ('who' AS run_id) FROM {rows})")
    remedy = f"nightjar warehouse rebuild FOLDER… --warehouse {folder.path}"
    assert found(folder)[0] == ("Run 'who': 6 attempts of a run that is not there", remedy)
    rewrite(folder, "run-2", runs="(SELECT * REPLACE ('1' AS version) FROM {rows})")
    assert [what for what, _ in found(folder) if "contradicts runs.parquet" in what] != []


def test_a_segment_without_columns(folder):
    rewrite(folder, "run-1", runs="(SELECT * EXCLUDE (protocol, suite) FROM {rows})")
    assert "runs.parquet lacks the columns suite, protocol" in found(folder)[0][0]


class TestTheSnapshot:
    @pytest.fixture
    def snapshot(self, folder):
        return folder.path / "nightjar.duckdb"

    def test_missing(self, folder, snapshot):
        import duckdb

        snapshot.unlink()
        assert found(folder) == [(f"{snapshot} is missing", fix_line(folder))]
        (folder.path / "nightjar.duckdb.wal").write_bytes(b"")
        assert "write-ahead file" in found(folder)[0][0]
        fix(folder)
        assert diagnose(folder).findings == []
        with duckdb.connect(str(snapshot), read_only=True) as connection:
            assert connection.execute("SELECT count(*) FROM rollouts").fetchall() == [(8,)]

    def test_not_a_database_or_moved_to_another_place(self, folder, damage, snapshot):
        damage.overwrite(snapshot, lambda _: b"no database, but long enough to be read" * 300)
        assert "nightjar.duckdb cannot be used" in found(folder)[0][0]
        moved = Warehouse(folder.path.rename(folder.path.with_name("moved"))).store()
        assert "moved/nightjar.duckdb cannot be used" in found(moved)[0][0]
        fix(moved)
        assert found(moved) == []

    def test_older_than_the_last_publish(self, folder, tmp_path, write_run, damage, snapshot):
        old = snapshot.read_bytes()
        Warehouse(folder.path).publish(write_run(tmp_path / "evals", "run-3"))
        damage.overwrite(snapshot, lambda _: old)
        assert notes(folder) == [(f"{snapshot} does not show the newest runs", fix_line(folder))]
        assert found(folder) == []

    def test_under_another_name_it_is_the_same(self, folder, tmp_path, monkeypatch):
        link = tmp_path / "link"
        link.symlink_to(folder.path, target_is_directory=True)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        for name in (link, tmp_path / "elsewhere" / ".." / folder.path.name, Path("..", folder.path.name)):
            assert diagnose(Warehouse(name).store()).findings == []
            fix(Warehouse(name).store())
        assert diagnose(folder).findings == []


class TestOtherFiles:
    def test_of_a_killed_process_are_removed_by_fix_but_not_of_a_living_one(self, folder, nightjar, fork):
        script = (
            "import os, sys; from pathlib import Path; from nightjar.warehouse.storage.folder import Folder\n"
            "with Folder(Path(sys.argv[1])).scratch() as scratch:\n"
            "    (scratch / 'runs.parquet').write_bytes(bytes(1_000_000)); os._exit(9)\n"
        )
        assert fork.python(script, folder.path).wait() == 9
        assert notes(folder) == [("1 leftover of killed processes, 1.0 MB", fix_line(folder))]
        assert diagnose(folder).sizes.leftovers == 1_000_000
        assert nightjar("warehouse", "doctor", "--fix", "--warehouse", folder.path).code == 0
        assert notes(folder) == []
        with folder.scratch():
            assert notes(folder) == []

    def test_of_others_are_named_and_left_alone(self, folder):
        segment(folder).chmod(0o755)
        strangers = [folder.path / "notes.txt", segment(folder) / "more.txt", folder.segments_path / "stray.parquet"]
        for path in strangers:
            path.write_text("mine")
        assert [what for what, _ in notes(folder)] == [f"{path} was not written by Nightjar" for path in strangers]
        fix(folder)
        assert len(notes(folder)) == 3
        (folder.segments_path / "empty").mkdir()
        [(what, remedy)] = found(folder)
        assert what.startswith("Segment 'empty' is ignored: segment.json cannot be read: ")
        assert remedy == fix_line(folder)
