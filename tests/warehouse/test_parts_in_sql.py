"""A part of a run counts until the run is there, whichever is published first, packed or not."""

from itertools import permutations

import pytest
from drawing import drawn

from nightjar.engine.runs import RunDirectory
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

NAMES = ("gsm8k-1", "gsm8k-1.part-1-of-2", "gsm8k-1.part-2-of-2")


@pytest.fixture
def runs(tmp_path, write_run):
    return {name: write_run(tmp_path / "runs", name) for name in (*NAMES, "other", "other.part-3-of-2")}


def shown(house, relation="rollouts"):
    return sorted({run_id for (run_id,) in house.query(f"SELECT run_id FROM {relation}").rows})


@pytest.mark.parametrize("order", drawn(permutations(NAMES), 3))
def test_the_order_of_publishing_does_not_matter(tmp_path, runs, order):
    house = Warehouse(tmp_path / "house")
    for number, name in enumerate(order, start=1):
        house.publish(runs[name])
        known = order[:number]
        assert shown(house) == (["gsm8k-1"] if "gsm8k-1" in known else sorted(known))
        assert shown(house, "leaderboard") == shown(house, "history") == [each for each in known if each == "gsm8k-1"]


@pytest.mark.parametrize("packs", [0, 2])
def test_parts_do_not_come_back_when_their_run_is_pruned(tmp_path, runs, packs):
    from nightjar.warehouse.pruning import prune
    from nightjar.warehouse.storage.archives import Archives
    from nightjar.warehouse.writing.packing import pack_everything, remove_retired

    house = Warehouse(tmp_path / "house")
    store = house.store()
    for name in (*NAMES[1:], "other", "other.part-3-of-2"):
        house.publish(runs[name])
    if packs > 1:
        pack_everything(store)
    house.publish(runs["gsm8k-1"])
    if packs:
        pack_everything(store)
    assert shown(house) == ["gsm8k-1", "other", "other.part-3-of-2"], "there is no part 3 of 2"
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"pushed")
    for name in (NAMES[1], "other"):
        Archives(store).put(name, "000000004-0-0-0-9f03", archive)

    prune(store, ["gsm8k-1"])

    assert shown(house) == shown(house, "runs") == ["other", "other.part-3-of-2"]
    assert (Archives(store).newest(NAMES[1]), Archives(store).newest("other")) == (None, "000000004-0-0-0-9f03")
    remove_retired(store)
    assert "gsm8k-1" not in "".join(path.name for path in store.segments_path.iterdir())
    assert RunDirectory(runs["gsm8k-1"]).has_metadata()
