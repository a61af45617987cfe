"""``nightjar warehouse``: rebuild, import, compact, prune, prices and info, with what goes wrong in practice."""

import pytest

from nightjar.warehouse import Warehouse

EVERYTHING = ("(SELECT * EXCLUDE (run_dir, version) FROM runs)", "rollouts", "attempts", "examples")


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A warehouse in outputs/warehouse of the working directory, as it is by default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    return Warehouse("outputs/warehouse")


@pytest.fixture
def evals(tmp_path):
    return tmp_path / "outputs/evals/gsm8k--gpt"


def publish(house, *run_dirs):
    """Publishes several runs and writes ``nightjar.duckdb`` once."""
    for run_dir in run_dirs:
        house.publish(run_dir, tidies=False)
    house.tidy()


def everything(house):
    return [house.query(f"FROM {relation} ORDER BY ALL").rows for relation in EVERYTHING]


def run_ids(house):
    return [run_id for (run_id,) in house.query("SELECT run_id FROM runs ORDER BY run_id").rows]


def segments(house):
    return sorted(path for path in (house.folder / "segments").iterdir() if not path.name.startswith("."))


def test_a_rebuild_restores_what_was_published(house, evals, write_run, nightjar):
    publish(house, *(write_run(evals, f"run-{number}", examples=number + 1) for number in range(3)))
    before = everything(house)
    ended = nightjar("warehouse", "rebuild")
    assert ended.code == 0
    assert ended.out.startswith("Rebuilt outputs/warehouse from run directories: 3 runs, 12 rollouts")
    assert everything(house) == before
    assert len(segments(house)) == 1
    assert nightjar("warehouse", "doctor").code == 0
    assert nightjar("warehouse", "rebuild").code == 0
    assert everything(house) == before


def test_a_rebuild_without_run_directories_does_nothing_and_with_them_creates_a_warehouse(
    house, evals, write_run, nightjar, tmp_path
):
    (tmp_path / "outputs").mkdir()
    for folder, fault in (("outputs", "No run directories in 'outputs'."), ("nowhere", "no such file or folder")):
        ended = nightjar("warehouse", "rebuild", folder)
        assert (ended.code, fault in ended.err) == (1, True)
    write_run(evals, "run-1")
    write_run(tmp_path / "environments/chess/outputs/evals/chess--gpt", "run-2")
    ended = nightjar("warehouse", "rebuild", "--json")
    assert (ended.json["published"], ended.json["rollouts"]) == (2, 8)
    assert run_ids(house) == ["run-1", "run-2"]


def test_runs_from_elsewhere_and_prices_stay_in_a_rebuild(house, evals, write_run, nightjar, tmp_path):
    house.publish(write_run(evals, "here"))
    publish(house, *(write_run(tmp_path / "elsewhere", f"there-{number}", examples=3) for number in range(2)))
    write_run(evals, "again")
    house.publish(write_run(tmp_path / "elsewhere", "again", attempt=2))
    nightjar("warehouse", "compact")
    nightjar("warehouse", "prices", "set", "openai/gpt", "--input", 1, "--output", 2)
    before = everything(house)
    ended = nightjar("warehouse", "rebuild", "--json")
    there = dict.fromkeys(("there-0", "there-1"), "no run directory")
    assert (ended.code, ended.json["published"]) == (0, 1)
    assert ended.json["kept"] == {"again": "newer than its run directory", **there}
    assert everything(house) == before
    assert house.query("SELECT model, input, output FROM prices").rows == [("openai/gpt", 1.0, 2.0)]
    assert "Kept 3 runs unchanged:\n" in nightjar("warehouse", "rebuild").out


def test_a_damaged_run_directory_is_reported_and_its_run_stays(house, evals, write_run, nightjar):
    publish(house, *(write_run(evals, name) for name in ("good", "bad")))
    before = everything(house)
    (evals / "bad/results.jsonl").write_text('{"example_id": 0}\nno JSON\n{}\n')
    ended = nightjar("warehouse", "rebuild")
    assert ended.code == 1
    assert "bad: its run directory is damaged" in ended.out
    assert "Not read: outputs/evals/gsm8k--gpt/bad" in ended.err
    assert everything(house) == before


@pytest.mark.long
def test_a_rebuild_heals_damaged_segments(house, evals, write_run, nightjar, damage):
    publish(house, *(write_run(evals, f"run-{number}") for number in range(3)))
    nightjar("warehouse", "compact", "--now")
    before = everything(house)
    for file in ("examples.parquet", "segment.json"):
        damage.truncate(segments(house)[0] / file)
        assert nightjar("warehouse", "doctor").code == 1
        assert nightjar("warehouse", "rebuild").code == 0
        assert everything(house) == before, file
        assert nightjar("warehouse", "doctor", "--deep").code == 0


def test_damage_without_run_directories_is_set_aside(house, evals, write_run, nightjar, damage, tmp_path):
    elsewhere = [write_run(tmp_path / "elsewhere", name) for name in ("whole", "lost")]
    publish(house, write_run(evals, "here"), *elsewhere)
    [segment] = [path for path in segments(house) if path.name.startswith("lost")]
    damage.truncate(segment / "rollouts.parquet")
    ended = nightjar("warehouse", "rebuild")
    assert ended.code == 1
    assert "Set aside: segment 'lost." in ended.err
    assert "Lost: 1 run of damaged segments: lost" in ended.err
    assert run_ids(house) == ["here", "whole"]
    assert (house.folder / "damaged" / segment.name / "rollouts.parquet").is_file()
    ended = nightjar("warehouse", "doctor")
    assert ended.code == 1
    assert "Run 'lost' is missing since a damaged segment was set aside" in ended.out
    assert f"→ nightjar publish {tmp_path}/elsewhere/lost --warehouse" in ended.out


@pytest.mark.long
def test_runs_published_during_a_rebuild_are_there(house, evals, write_run, tmp_path, fork):
    for number in range(10):
        write_run(evals, f"run-{number:02d}")
    rebuilding = fork.nightjar("warehouse", "rebuild")
    published = 0
    while rebuilding.poll() is None:
        house.publish(write_run(tmp_path / "elsewhere", f"meanwhile-{published:03d}"))
        published += 1
    assert rebuilding.wait(60) == 0
    assert published > 0
    assert len(run_ids(house)) == 10 + published


@pytest.mark.long
def test_a_rebuild_killed_between_two_new_segments_leaves_every_run(house, evals, write_run, fork):
    """Ends the process when so many new segments are there: of six runs, and of three packs of two each."""
    publish(house, *(write_run(evals, f"run-{number}", examples=2) for number in range(6)))
    before = everything(house)
    script = """
import os, sys
from pathlib import Path
from nightjar.importers import find_run_directories
from nightjar.warehouse import repair
from nightjar.warehouse.writing import packing
from nightjar.warehouse.storage.folder import Folder

packing.LARGE_ROLLOUTS = 8
warehouse = Folder(Path("outputs/warehouse"))
commit, there = Folder.commit, []

def commit_or_die(folder, segment, scratch):
    if folder is warehouse:
        if len(there) == int(sys.argv[1]):
            os._exit(9)
        there.append(segment)
    return commit(folder, segment, scratch)

Folder.commit = commit_or_die
repair.rebuild(warehouse, find_run_directories([Path("outputs")]))
"""
    for put in (3, 8):
        assert fork.python(script, put).wait() == 9
        assert len(list((house.folder / "segments").glob("pack-*"))) == (0 if put == 3 else 2)
        assert everything(house) == before


def test_an_import_tells_newer_and_older_copies_apart(house, write_run, nightjar, tmp_path):
    for name, attempt in (("first", 1), ("second", 2)):
        write_run(tmp_path / name, "run-1", attempt=attempt)
    said = []
    for name in ("first", "second", "second", "first"):
        said.append(nightjar("warehouse", "import", name, "--json").json[0]["novelty"])
        nightjar("warehouse", "compact")
    assert said == ["new", "updated", "already there", "older than what is there"]
    assert "already there" in nightjar("warehouse", "import", "second").out
    assert house.query("SELECT DISTINCT attempts FROM rollouts").rows == [(2,)]


def test_an_import_continues_after_a_damaged_run_or_a_missing_path(house, write_run, nightjar, tmp_path):
    for name in ("a", "b", "c"):
        write_run(tmp_path / "old", name)
    (tmp_path / "old/b/results.jsonl").write_text("no JSON\nat all\n")
    ended = nightjar("warehouse", "import", "nowhere", "old")
    assert ended.code == 1
    assert "Cannot import 'nowhere': there is no such file or folder." in ended.err
    assert "Not imported: old/b" in ended.err
    assert run_ids(house) == ["a", "c"]


def test_small_segments_become_one_and_stay_an_hour_for_their_readers(house, evals, write_run, nightjar):
    from nightjar.warehouse import connect

    publish(house, *(write_run(evals, f"run-{number}") for number in range(3)))
    before = everything(house)
    with connect(house.folder) as notebook:
        ended = nightjar("warehouse", "compact")
        assert notebook.sql("SELECT count(DISTINCT run_id), count(prompt) FROM rollouts").fetchall() == [(3, 12)]
    assert "of replaced segments are removed after an hour; --now removes them at once" in ended.err
    assert (ended.out[:12], "→ 1 segment, " in ended.out) == ("3 segments, ", True)
    assert everything(house) == before
    assert nightjar("warehouse", "doctor").code == 0
    assert nightjar("warehouse", "compact", "--now", "--json").json["after"]["segments"] == 1
    assert len(segments(house)) == 1
    assert everything(house) == before


@pytest.fixture
def nights(restored, write_run, monkeypatch):
    """Four runs of one environment on four nights, and one of another; the first of them share no example."""

    def prepare(folder):
        evals, night = folder / "evals", "2026-01-0{}T00:00:00+00:00"
        sizes = {number: {"examples": 6 - number, "num_examples": 5} for number in range(1, 5)}
        runs = [write_run(evals, f"night-{n}", started_at=night.format(n), **size) for n, size in sizes.items()]
        runs.append(write_run(evals, "other", env_id="chess", status="failed", started_at=night.format(1)))
        publish(Warehouse(folder / "outputs/warehouse"), *runs)

    monkeypatch.chdir(restored(prepare))
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    return Warehouse("outputs/warehouse")


@pytest.mark.long
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_newest_of_each_environment_and_model_stay_and_a_publish_brings_the_others_back(
    nights, nightjar, is_packed
):
    before = everything(nights)
    if is_packed:
        nightjar("warehouse", "compact")
    assert nightjar("warehouse", "prune", "--older-than", "1d", "--keep-last", 1, "--yes").code == 0
    assert run_ids(nights) == ["night-4", "other"]
    counts = "SELECT count(*), count(prompt), (SELECT count(*) FROM examples) FROM rollouts"
    assert nights.query(counts).rows == [(8, 8, 2)]
    assert nights.query("SELECT count(DISTINCT run_id) FROM attempts").rows == [(2,)]
    assert nightjar("warehouse", "doctor", "--deep").code == 0
    for number in (1, 2, 3):
        nights.publish(f"evals/night-{number}", tidies=False)
    assert everything(nights) == before


def test_a_quick_run_is_not_kept_instead_of_a_whole_one(house, evals, write_run, nightjar):
    for day, (run_id, told) in enumerate(
        {"nightly": {"examples": 5}, "quick": {"examples": 1}, "failed": {"status": "failed"}}.items(), 1
    ):
        house.publish(write_run(evals, run_id, started_at=f"2026-01-0{day}T00:00:00Z", **told), tidies=False)
    assert nightjar("warehouse", "prune", "--keep-last", 1, "--yes").code == 0
    assert run_ids(house) == ["nightly"]


def test_prune_removes_nothing_in_a_dry_run_without_a_match_or_without_yes(nights, nightjar):
    ended = nightjar("warehouse", "prune", "--env", "none", "--yes")
    assert (ended.code, ended.err) == (0, "No run meets the conditions: nothing was removed.\n")
    ended = nightjar("warehouse", "prune", "--status", "failed", "--dry-run")
    assert "other" in ended.out
    assert ended.err == "Nothing was removed.\n"
    assert nightjar("warehouse", "prune", "--status", "failed").code == 2
    assert nightjar("warehouse", "prune", "--yes").code == 2
    assert "180d" in nightjar("warehouse", "prune", "--older-than", "soon").err
    assert len(run_ids(nights)) == 5


@pytest.mark.long
def test_no_older_version_takes_the_place_of_a_pruned_run_and_everything_may_go(nights, nightjar, tmp_path, write_run):
    nightjar("warehouse", "compact")
    nights.publish(write_run(tmp_path, "other", env_id="chess", attempt=2, started_at="2026-01-01T00:00:00Z"))
    nightjar("warehouse", "prune", "--env", "chess", "--yes")
    assert run_ids(nights) == ["night-1", "night-2", "night-3", "night-4"]
    assert nightjar("warehouse", "doctor", "--deep").code == 0
    ended = nightjar("warehouse", "prune", "--older-than", "1h", "--yes")
    assert (ended.code, "4 runs, 28 rollouts, about" in ended.out) == (0, True)
    assert (run_ids(nights), segments(nights)) == ([], [])
    assert [nightjar("warehouse", command).code for command in ("info", "doctor")] == [0, 0]


@pytest.mark.long
def test_prune_leaves_the_examples_of_other_runs(house, evals, write_run, nightjar):
    """The second pack has left out the examples that the first one holds, and the first one goes."""
    from nightjar.warehouse.storage.folder import Folder
    from nightjar.warehouse.writing.packing import merge

    publish(house, *(write_run(evals, name, env_id="first", examples=4) for name in ("first-1", "first-2")))
    nightjar("warehouse", "compact")
    later = ("second-1", "second-2", "third")
    publish(house, *(write_run(evals, name, env_id=name[:-2], examples=3) for name in later))
    folder = Folder(house.folder)
    merge(folder, [one for one in folder.catalog().live.values() if not one.is_pack])
    assert [path.name[:4] for path in segments(house) if (path / "segment.json").is_file()].count("pack") == 2
    nightjar("warehouse", "prune", "--env", "first", "--yes")
    assert run_ids(house) == ["second-1", "second-2", "third"]
    counts = "SELECT count(*), count(prompt), (SELECT count(*) FROM examples) FROM rollouts"
    assert house.query(counts).rows == [(18, 18, 3)]
    assert nightjar("warehouse", "doctor", "--deep").code == 0


def test_prices_are_set_listed_and_removed(house, evals, write_run, nightjar):
    house.publish(write_run(evals, "run-1", usage={"input_tokens": 1_000_000, "output_tokens": 500_000}))
    assert "No prices" in nightjar("warehouse", "prices").err
    nightjar("warehouse", "prices", "set", "openai/gpt", "--input", 0.4, "--output", 1.6)
    assert house.query("SELECT cost FROM runs").rows == [(pytest.approx(0.4 + 0.8),)]
    later = ("--since", "2027-01-01", "--json")
    listed = nightjar("warehouse", "prices", "set", "openai/gpt", "--input", 1, "--output", 2, *later).json
    assert [(one["since"][:10], one["input"]) for one in listed] == [("1970-01-01", 0.4), ("2027-01-01", 1.0)]
    assert house.query("SELECT cost FROM runs").rows == [(pytest.approx(1.2),)]
    nightjar("warehouse", "prices", "set", "openai/gpt", "--input", 2, "--output", 2, "--since", "2027-01-01")
    assert [one["input"] for one in nightjar("warehouse", "prices", "--json").json] == [0.4, 2.0]
    assert nightjar("warehouse", "prices", "remove", "openai/gpt").code == 0
    assert house.query("SELECT cost FROM runs").rows == [(None,)]


def test_invalid_prices_are_refused(house, nightjar):
    given = ("warehouse", "prices", "set", "m", "--output", 1, "--input")
    assert "date 'soon'" in nightjar(*given, 1, "--since", "soon").err
    assert nightjar(*given, -1).code == 1
    assert nightjar("warehouse", "prices", "set", "m").code == 2
    assert nightjar("warehouse", "prices", "remove", "m").code == 1


def test_info_shows_location_and_size(house, evals, write_run, nightjar):
    house.publish(write_run(evals, "old", started_at="2025-01-01T00:00:00+00:00"), tidies=False)
    house.publish(write_run(evals, "new", started_at="2026-02-01T12:30:00+00:00"), tidies=False)
    ended = nightjar("warehouse")
    assert "2 runs, 8 rollouts" in ended.out
    assert "Newest run: new: gsm8k | openai/gpt, completed, 2026-02-01 12:30 UTC" in ended.out
    assert nightjar("warehouse", "info").out == ended.out
    record = nightjar("warehouse", "info", "--json").json
    assert (record["runs"], record["rollouts"], record["newest_run"]["run_id"]) == (2, 8, "new")


def test_no_warehouse_is_one_line(house, nightjar):
    for command in ("info", "doctor", "compact", "export x", "prune --older-than 1d --yes"):
        ended = nightjar("warehouse", *command.split())
        assert (ended.code, ended.err.startswith("Error: No warehouse at ")) == (1, True), command
    assert not house.folder.exists()
