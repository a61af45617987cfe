"""What was compared and decided, kept beside the runs and asked in SQL."""

from datetime import UTC, datetime

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import COMPARISONS, GATE_DECISIONS, GateDecision, Night, RecordedComparison

NOW = datetime(2026, 11, 22, 3, tzinfo=UTC)
WRITE = """
import sys
from datetime import UTC, datetime
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import COMPARISONS, RecordedComparison
location, name = sys.argv[1:]
for number in range(10):
    one = RecordedComparison(f"{name}-{number}", datetime.now(UTC), "gsm8k", "PASS", "", "reward", "higher_is_better",
                             ["a"], ["b"], 0.05)
    Warehouse(location).write_rows(COMPARISONS, [one])
"""


def decision(gate_id="g1", verdict="NO-GO"):
    return GateDecision(gate_id, NOW, verdict, "gsm8k is worse", "release.yaml", "ab", "a", "b", 0.05, 0.025, "holm",
                        10, "nightly", "2026-11-22", 1, ["gsm8k"])  # fmt: skip


def comparison(comparison_id="c1", **told):
    return RecordedComparison(comparison_id, NOW, "gsm8k", "BREACH", "", "reward", "higher_is_better", ["a"], ["b"],
                              0.05, **{"gate_id": "g1", "pairs": 40, "low": -0.5, **told})  # fmt: skip


@pytest.fixture(
    params=["{}/warehouse", "memory://decisions-{}", "duckdb:{}/tables.db"], ids=["folder", "url", "tables"]
)
def warehouse(request, tmp_path, write_run):
    house = Warehouse(request.param.format(tmp_path))
    house.publish(write_run(tmp_path / "runs", "0a1b2c3d4e5f"))
    return house


def test_are_tables_wherever_the_runs_are(warehouse):
    assert (warehouse.rows(COMPARISONS), warehouse.rows(GATE_DECISIONS)) == ([], [])
    warehouse.write_rows(GATE_DECISIONS, [decision(), decision("g2", "GO"), decision("g2", "INCONCLUSIVE")])
    warehouse.write_rows(COMPARISONS, [comparison(), comparison("c2", high=float("inf"))])
    assert warehouse.rows(GATE_DECISIONS) == [decision(), decision("g2", "INCONCLUSIVE")]
    columns = "gate_id, verdict, night::VARCHAR, level, breached, made_at::VARCHAR"
    told = ("2026-11-22", 0.025, ["gsm8k"], "2026-11-22 03:00:00+00")
    kept = warehouse.query(f"SELECT {columns} FROM gate_decisions").rows
    assert kept == [("g1", "NO-GO", *told), ("g2", "INCONCLUSIVE", *told)]
    rows = warehouse.query("SELECT benchmark, pairs, low, high, candidate_runs FROM comparisons").rows
    assert rows == [("gsm8k", 40, -0.5, None, ["b"])] * 2


@pytest.mark.slow
@pytest.mark.parametrize("place", ["{}/warehouse", "duckdb:{}/tables.db"])
def test_two_who_write_at_once_lose_nothing(place, tmp_path, fork):
    location = place.format(tmp_path)
    writers = [fork.python(WRITE, location, name) for name in ("one", "two")]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert len(Warehouse(location).rows(COMPARISONS)) == 20


def test_tables_of_an_older_nightjar_get_them_when_they_are_needed(tmp_path, write_run):
    import duckdb

    warehouse = Warehouse(f"duckdb:{tmp_path}/tables.db")
    warehouse.publish(write_run(tmp_path / "runs", "0a1b2c3d4e5f"))
    with duckdb.connect(f"{tmp_path}/tables.db") as connection:
        connection.execute("DROP TABLE segments.gate_decisions")
    assert warehouse.query("FROM gate_decisions").rows == []
    warehouse.write_rows(GATE_DECISIONS, [decision()])
    assert warehouse.query("SELECT verdict FROM gate_decisions").rows == [("NO-GO",)]


def test_a_damaged_line_is_named(tmp_path):
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.write_rows(GATE_DECISIONS, [decision()])
    warehouse.write_night(Night("nightly", "2026-11-01", "running"))
    for name, line, read in (
        ("gate_decisions", "{", lambda: warehouse.rows(GATE_DECISIONS)), ("nights", "{}", warehouse.nights),
    ):  # fmt: skip
        with (warehouse.folder / f"{name}.jsonl").open("a") as file:
            file.write(f"{line}\n")
        with pytest.raises(WarehouseError, match=rf"{name}.jsonl, line 2: .*Repair or remove the file"):
            read()
