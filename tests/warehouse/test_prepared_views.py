"""The database with the views that the cache folder holds: it saves time and changes no answer."""

import pytest

from nightjar.warehouse import Warehouse

QUERY = "SELECT env_id, runs FROM leaderboard, (SELECT count(*) AS runs FROM runs)"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/views"


def test_a_damaged_or_outdated_database_is_replaced(house, cache):
    house.publish("run", [1, 0])
    answers = [Warehouse(house.warehouse.folder).query(QUERY).rows]
    [prepared] = cache.iterdir()
    content = prepared.read_bytes()
    prepared.write_bytes(content[:5000])
    (cache / "0123-1.4.0-4567.duckdb").write_bytes(content)
    answers.append(Warehouse(house.warehouse.folder).query(QUERY).rows)
    [replaced] = cache.iterdir()
    assert len(replaced.read_bytes()) == len(content)
    answers.append(Warehouse(house.warehouse.folder).query(QUERY).rows)
    assert list(cache.iterdir()) == [replaced]
    assert answers == [[("gsm8k", 1)]] * 3


def test_a_cache_folder_that_cannot_be_used_changes_nothing(house, cache):
    cache.parent.write_text("a file in place of the folder")
    house.publish("run", [1, 0])
    assert Warehouse(house.warehouse.folder).query(QUERY).rows == [("gsm8k", 1)]
    house.warehouse.tidy()
    assert (house.warehouse.folder / "nightjar.duckdb").exists()
