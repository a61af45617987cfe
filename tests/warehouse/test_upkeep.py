"""Packing, pruning, importing and repairing while something else fails or changes."""

import logging
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from drawing import drawn

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="module")
def packing():
    from nightjar.warehouse.writing import packing

    return packing


@pytest.fixture(scope="module")
def repair():
    from nightjar.warehouse import repair

    return repair


@pytest.fixture(scope="module")
def doctor():
    from nightjar.warehouse import doctor

    return doctor


TEXTS = "SELECT count(*), count(prompt), count(DISTINCT prompt::VARCHAR) FROM rollouts"
AT_ONCE = timedelta(0)


@pytest.fixture
def evals(tmp_path):
    return tmp_path / "evals"


@pytest.fixture
def house(tmp_path):
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def folder(house):
    return house.store()


def run_ids(location):
    return [run_id for (run_id,) in Warehouse(location).query("SELECT run_id FROM runs ORDER BY run_id").rows]


def packs(folder):
    return [segment for segment in folder.catalog().live.values() if segment.is_pack]


def loose(folder):
    return [segment for segment in folder.catalog().live.values() if not segment.is_pack]


def test_a_run_without_a_start_is_pruned_as_old_as_its_publication(house, evals, write_run, run_writer):
    """It is published now, so it is the newest."""
    from nightjar.warehouse.pruning import Criteria, candidates

    house.publish(write_run(evals, "of-2020", started_at="2020-01-01T00:00:00+00:00"))
    house.publish(run_writer.write(evals / "unstarted", run_id="unstarted", model="openai/gpt", started_at=None))
    found = candidates(house.store(), Criteria(keep_last=1))
    assert [candidate.run_id for candidate in found] == ["of-2020"]


@pytest.fixture
def first(house, folder, evals, write_run, packing):
    """The examples of a pack of two runs; two more runs with the same examples are published later."""
    for name in ("run-1", "run-2", "run-3", "run-4"):
        house.publish(write_run(evals, name, examples=3), tidies=False)
        if name == "run-2":
            packing.pack_everything(folder)
            [pack] = packs(folder)
    return Path(folder.file(pack.segment_id, "examples"))


@pytest.mark.long
@pytest.mark.parametrize("damaged", drawn(["prompt", "content_id", "cut off", "missing"], 2))
def test_no_later_pack_relies_on_a_damaged_one(house, folder, evals, first, damage, damaged, packing, repair):
    if damaged == "missing":
        first.unlink()
    elif damaged == "cut off":
        damage.truncate(first)
    else:
        damage.flip(first, damaged)
    packing.merge(folder, loose(folder))
    packing.remove_retired(folder, AT_ONCE)
    for name in ("run-1", "run-2"):
        shutil.rmtree(evals / name)
    repair.fix(folder, deep=True)
    assert run_ids(house.folder) == ["run-3", "run-4"]
    assert Warehouse(house.folder).query(TEXTS).rows == [(12, 12, 3)]


def test_later_packs_rely_on_a_sound_pack_but_a_rebuild_takes_no_examples_from_a_damaged_one(
    house, folder, first, damage, evals, packing, repair
):
    """The later runs rely on its examples, and are kept; the other run directories have the same ones, sound."""
    packing.merge(folder, loose(folder))
    assert sorted(pack.rows["examples"] for pack in packs(folder)) == [0, 3]
    assert house.query(TEXTS).rows == [(24, 24, 3)]
    before = house.query("SELECT DISTINCT prompt::VARCHAR FROM rollouts ORDER BY ALL").rows
    damage.flip(first, "prompt")
    for name in ("run-3", "run-4"):
        shutil.rmtree(evals / name)
    report = repair.rebuild(folder, [evals / "run-1", evals / "run-2"])
    assert (report.published, sorted(report.kept), report.is_whole) == (2, ["run-3", "run-4"], True)
    after = Warehouse(house.folder)
    assert after.query(TEXTS).rows == [(24, 24, 3)]
    assert after.query("SELECT DISTINCT prompt::VARCHAR FROM rollouts ORDER BY ALL").rows == before


@pytest.fixture
def many(evals, write_run, monkeypatch, packing):
    monkeypatch.setattr(packing, "FAN_IN", 4)
    monkeypatch.setattr("nightjar.warehouse.writing.publishing.FAN_IN", 4)
    for number in range(8):
        write_run(evals, f"run-{number:02}")
    return evals


def test_an_old_damaged_segment_ends_no_import(house, folder, many, tmp_path, write_run, damage, caplog, packing):
    from nightjar.importers import import_all

    house.publish(write_run(tmp_path / "old", "old"))
    damage.flip(next(folder.segments_path.glob("old.*/rollouts.parquet")), "reward")
    with caplog.at_level(logging.WARNING):
        imported = list(import_all(house, [many]))
    assert [one.novelty for one in imported] == ["new"] * 8
    assert "small segments were not packed: Segment 'old." in caplog.text
    assert len(folder.catalog().holders) == 9


def test_importing_nothing_that_can_be_read_makes_no_warehouse(house, evals, write_run, caplog):
    from nightjar.importers import import_all

    (write_run(evals, "bad") / "results.jsonl").write_text("no JSON\nat all\n")
    [imported] = import_all(house, [evals])
    assert (bool(imported.error), caplog.text) == (True, "")


@pytest.fixture
def runs(house, folder, evals, write_run, monkeypatch, packing):
    monkeypatch.setattr(packing, "LOCK_TIMEOUT_SECONDS", 0.1)
    for name in ("run-1", "run-2"):
        house.publish(write_run(evals, name), tidies=False)
    return evals


def test_one_program_packs_prunes_or_repairs_at_a_time(folder, runs, packing, repair):
    from nightjar.warehouse.pruning import prune

    for work in (
        repair.fix,
        packing.pack_everything,
        lambda folder: prune(folder, ["run-1"]),
        lambda folder: repair.rebuild(folder, []),
    ):
        with folder.packing_alone(), pytest.raises(WarehouseError, match="is being packed, pruned or repaired by"):
            work(Warehouse(folder.path).store())
    assert run_ids(folder.path) == ["run-1", "run-2"]


def test_a_fix_holds_the_lock(folder, runs, monkeypatch, repair):
    held, set_aside = [], repair.set_aside

    def look(folder, name):
        with Warehouse(folder.path).store().packing_alone() as alone:
            held.append(not alone)
        return set_aside(folder, name)

    next(folder.segments_path.glob("run-1.*/segment.json")).unlink()
    monkeypatch.setattr(repair, "set_aside", look)
    repair.fix(folder)
    assert held == [True]


def test_a_segment_that_is_gone_is_not_set_aside(folder, runs, monkeypatch, repair):
    """A person removes it after it was seen."""
    [path] = folder.segments_path.glob("run-1.*")
    (path / "segment.json").unlink()
    monkeypatch.setattr(repair, "file_faults", lambda *_, **__: shutil.rmtree(path) or [])
    assert repair.fix(folder).set_aside == {}
    assert run_ids(folder.path) == ["run-2"]


@pytest.fixture
def outdated(house, folder, evals, write_run, monkeypatch, packing):
    """A large pack of four runs, of which a newer version of the first so many is published."""
    monkeypatch.setattr(packing, "LARGE_ROLLOUTS", 16)

    def publish(newer):
        for number in range(4):
            house.publish(write_run(evals, f"run-{number}"), tidies=False)
        packing.pack_everything(folder)
        [pack] = packs(folder)
        for number in range(newer):
            house.publish(write_run(evals, f"run-{number}", attempt=2), tidies=number == newer - 1)
        return pack

    return publish


def test_the_doctor_says_what_compact_gains_of_runs_that_were_published_again(folder, outdated, doctor):
    pack = outdated(newer=2)
    assert pack.segment_id in folder.catalog().live
    diagnosis = doctor.diagnose(folder)
    assert diagnosis.is_clean
    [finding] = diagnosis.findings
    assert (
        finding.what
        == f"2 runs in large packs were published again: packing would free about {pack.size / 2e6:,.1f} MB"
    )
    assert finding.remedy == f"nightjar warehouse compact --warehouse {folder.path}"


def test_a_publish_rewrites_a_large_pack_that_is_mostly_outdated(house, folder, outdated, doctor, packing):
    pack = outdated(newer=3)
    assert pack.segment_id in folder.catalog().retired
    packing.remove_retired(folder, AT_ONCE)
    assert sum(one.rows["rollouts"] for one in folder.catalog().segments.values()) == 16
    assert house.query(TEXTS).rows == [(16, 16, 2)]
    assert doctor.diagnose(folder, deep=True).findings == []


@pytest.mark.long
@pytest.mark.parametrize("newer", drawn([1, 2, 3, 4], 1))
def test_compact_leaves_nothing_of_runs_that_were_published_again(house, folder, outdated, newer, doctor, packing):
    outdated(newer)
    packing.pack_everything(folder)
    assert sum(one.rows["rollouts"] for one in folder.catalog().segments.values()) == 16
    assert house.query(TEXTS).rows == [(16, 16, 2)]
    assert not any(folder.catalog().dead_runs(one) for one in folder.catalog().segments.values())
    assert doctor.diagnose(folder, deep=True).findings == []


@pytest.mark.long
def test_small_packs_of_runs_that_were_published_again_do_not_pile_up(
    house, folder, evals, write_run, monkeypatch, packing
):
    """Every fourth publish of the same run makes a pack of four others, which the next ones replace."""
    monkeypatch.setattr(packing, "FAN_IN", 4)
    for attempt in range(1, 5):
        for number in range(4):
            house.publish(write_run(evals, f"run-{number}", attempt=attempt))
    packing.remove_retired(folder, AT_ONCE)
    assert 0 < sum(one.is_pack for one in folder.catalog().segments.values()) < 4
    assert house.query(TEXTS).rows == [(16, 16, 2)]


def test_many_small_segments_are_packed_a_part_at_a_time(house, folder, evals, write_run, monkeypatch, packing):
    monkeypatch.setattr(packing, "MOST_AT_ONCE", 4)
    for number in range(10):
        house.publish(write_run(evals, f"run-{number}"), tidies=False)
    assert packing.pack_everything(folder) == 4  # of 4, 4 and 2 segments, and of these packs
    assert len(folder.catalog().needed) == 1
    assert len(run_ids(house.folder)) == 10


def test_the_doctor_does_not_name_a_segment_that_was_removed_meanwhile(
    house, folder, evals, write_run, monkeypatch, doctor
):
    from nightjar.warehouse.storage.store import Fault

    for name in ("run-1", "run-2"):
        house.publish(write_run(evals, name))
    described, seen = doctor.described_segments, iter([[Fault("run-0.1", "segment.json", "is missing")], []])
    monkeypatch.setattr(doctor, "described_segments", lambda folder: (described(folder)[0], next(seen)))
    assert doctor.diagnose(folder).findings == []
