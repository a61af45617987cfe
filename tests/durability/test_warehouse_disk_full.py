"""A full disk of the warehouse: a publish that does not fit leaves everything as it was, and is completed later."""

import random
import shutil

import pytest
from drawing import drawn

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

FAN_IN = 4


@pytest.fixture
def disk(mount):
    return mount("size=1500k")


@pytest.fixture
def grow(mount):
    return lambda: mount("remount,size=32m")


@pytest.fixture
def make_run(tmp_path, run_writer):
    """Writes runs with texts that cannot be compressed."""

    def make(run_id, kilobytes):
        text = random.Random(run_id).randbytes(kilobytes * 500).hex()
        rollouts = [run_writer.rollout(0, 0, completion=[{"role": "assistant", "content": text}])]
        whole = {"num_examples": 1, "rollouts": 1, "scored": 1, "failed": 0, "status": "completed"}
        return run_writer.write(tmp_path / "runs" / run_id, rollouts, run_id=run_id, **whole)

    return make


def fill(disk, leaving_bytes):
    with (disk / "filler").open("wb") as filler:
        while (free := shutil.disk_usage(disk).free) > leaving_bytes:
            filler.write(b"x" * min(4096, free - leaving_bytes))
            filler.flush()


def run_ids(folder):
    warehouse = Warehouse(folder)
    whole = warehouse.query("SELECT run_id FROM runs JOIN rollouts USING (run_id) WHERE length(completion::TEXT) > 0")
    return sorted(run_id for (run_id,) in whole.rows)


def check(folder):
    from nightjar.warehouse.doctor import diagnose
    from nightjar.warehouse.storage.folder import Folder

    findings = diagnose(Folder(folder), deep=True).findings
    assert [finding for finding in findings if finding.needs_action] == []
    assert [path for path in (folder / "segments").iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("leaving_bytes", drawn([0, 4096, 20_000, 60_000], 1))
def test_a_publish_that_does_not_fit_changes_nothing(disk, grow, make_run, leaving_bytes):
    folder = disk / "warehouse"
    warehouse = Warehouse(folder)
    warehouse.publish(make_run("first", 20))
    fill(disk, leaving_bytes)
    files = {path for path in folder.rglob("*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(WarehouseError, match="No space left on device") as caught:
            warehouse.publish(make_run("large", 200))
        assert "\n" not in str(caught.value)
        assert {path for path in folder.rglob("*") if path.is_file()} == files
        assert run_ids(folder) == ["first"]
        check(folder)
    grow()
    assert warehouse.publish(make_run("large", 200)).is_new
    assert run_ids(folder) == ["first", "large"]
    check(folder)


def test_a_pack_and_a_snapshot_that_do_not_fit_fail_no_publish(disk, grow, make_run, monkeypatch, caplog):
    monkeypatch.setattr("nightjar.warehouse.writing.packing.FAN_IN", FAN_IN)
    folder = disk / "warehouse"
    warehouse = Warehouse(folder)
    for number in range(FAN_IN - 1):
        warehouse.publish(make_run(f"run-{number}", 100))
    fill(disk, 200_000)
    assert warehouse.publish(make_run("run-3", 100)).is_new
    assert "The run is published, but small segments were not packed: Cannot pack the warehouse" in caplog.text
    assert "Cannot replace" in caplog.text
    assert caplog.text.count("No space left on device") == 2
    assert run_ids(folder) == ["run-0", "run-1", "run-2", "run-3"]
    assert not any(path.name.startswith((".", "pack-")) for path in folder.rglob("*"))
    grow()
    caplog.clear()
    assert warehouse.publish(make_run("run-4", 1)).is_new
    assert caplog.text == ""
    assert len(list((folder / "segments").glob("pack-*"))) == 1
    assert run_ids(folder) == [f"run-{number}" for number in range(5)]
    check(folder)
