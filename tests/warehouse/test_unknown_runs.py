"""Queries about unknown runs are errors; other queries are neither slower nor refused."""

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.known_values import asked_runs


@pytest.fixture(scope="module")
def house(tmp_path_factory, write_run):
    folder = tmp_path_factory.mktemp("unknown")
    warehouse = Warehouse(folder / "warehouse")
    for run_id, examples in (("a1b2c3d4e5f6", 4), ("0f1e2d3c4b5a", 3)):
        warehouse.publish(write_run(folder / "runs", run_id, examples=examples))
    return warehouse


A, B = "a1b2c3d4e5f6", "0f1e2d3c4b5a"


def test_a_run_that_is_not_there_is_an_error_however_it_is_asked(house):
    for query in (
        "FROM {}('typo', ?)", "FROM {}(?, 'typo')", "SELECT count(*) FROM {}('typo', ?)",
        "SELECT example_id FROM {}(?, 'typo') LIMIT 1", "SELECT count(*) FROM {}(?, 'typo') WHERE correct_a",
        "SELECT reward_a FROM {}('typo', ?) WHERE reward_a > 3 AND example_hash LIKE 'x%'",
        "FROM rollouts WHERE example_hash IN (SELECT example_hash FROM {}(?, 'typo'))",
        "FROM {}(?, 'typo') JOIN example_rewards USING (example_hash)",
    ):  # fmt: skip
        for macro in ("pairs", "flips"):
            with pytest.raises(WarehouseError, match="No run 'typo' in this warehouse"):
                house.query(query.format(macro), [A])


def test_runs_that_are_there_are_compared_as_before(house):
    assert house.query("SELECT count(*) FROM pairs(?, ?)", [A, B]).rows == [(3,)]
    assert house.query("FROM flips($a, $b)", {"a": A, "b": B}).rows == []
    described = house.query("DESCRIBE FROM pairs(?, ?)", [A, B]).rows
    assert [row[:2] for row in described] == [
        ("example_id", "BIGINT"), ("reward_a", "DOUBLE"), ("reward_b", "DOUBLE"), ("difference", "DOUBLE"),
        ("correct_a", "DOUBLE"), ("correct_b", "DOUBLE"), ("example_hash", "VARCHAR"),
    ]  # fmt: skip


def test_a_connection_of_one_s_own_reports_it_too_and_the_inner_macros_do_not(house):
    with house.connect() as connection, pytest.raises(Exception, match="No run 'typo' in this warehouse"):
        connection.execute("FROM flips('typo', ?)", [A]).fetchall()
    assert house.query("FROM paired(['typo'], [?])", [A]).rows == []
    assert house.query("FROM example_results(['typo'])").rows == []


def test_an_unknown_run_is_an_error(house, nightjar):
    for number, statement in enumerate([
        "SELECT * FROM pass_at_k WHERE run_id = 'typo'", "FROM rollouts WHERE 'typo' = run_id AND reward > 0",
        "FROM runs AS r WHERE r.run_id = 'typo'::VARCHAR", "FROM runs WHERE RUN_ID IN ('typo', 'other')",
        "SELECT * FROM runs JOIN rollouts USING (run_id) WHERE rollouts.run_id = 'typo'",
        "WITH chosen AS (FROM rollouts WHERE run_id = 'typo') FROM chosen", "FROM flips('typo', 'other')",
    ]):  # fmt: skip
        form = ([], ["--json"], ["--format", "csv"])[number % 3]
        ended = nightjar("sql", statement, *form, "--warehouse", house.folder)
        assert (ended.code, ended.out, "No run 'typo' in th" in ended.err) == (1, "", True), statement


def test_a_parameter_is_looked_up_and_of_several_ids_the_unknown_one_is_named(house, nightjar):
    asked = ("sql", "FROM cost WHERE run_id = $run", "--warehouse", house.folder, "-P")
    assert "No run 'a1b2c3' in the warehouse. Did you mean 'a1b2c3d4e5f6'?" in nightjar(*asked, "run=a1b2c3").err
    assert nightjar(*asked, f"run={A}").code == 0
    statement = f"FROM rollouts WHERE run_id IN ('{A}', 'typo') AND reward > 5"
    assert "No run 'typo' in the warehouse." in nightjar("sql", statement, "--warehouse", house.folder).err
    found = nightjar("sql", f"FROM runs WHERE run_id IN ('{A}', 'typo')", "--json", "--warehouse", house.folder)
    assert [run["run_id"] for run in found.json] == [A]


def test_other_answers_stay_as_they_are(house, nightjar):
    for statement in (
        f"FROM rollouts WHERE run_id = '{A}' AND reward > 5", "FROM runs WHERE run_id LIKE 'typo%'",
        "FROM runs WHERE model = 'typo'", f"FROM runs WHERE run_id NOT IN ('typo', '{A}', '{B}')",
        f"FROM runs WHERE NOT (run_id = 'typo' OR run_id IN ('{A}', '{B}'))",
        "FROM runs WHERE run_id IN (SELECT 'typo')", "SELECT count(*) FROM runs WHERE run_id = 'typo'",
    ):  # fmt: skip
        ended = nightjar("sql", statement, "--json", "--warehouse", house.folder)
        assert ended.code == 0, ended.err
        assert ended.json in ([], [{"count_star()": 0}], None), statement


def test_the_warehouse_answers_with_no_rows_and_only_select_statements_name_runs(house):
    # programs ask for runs that may come yet
    assert house.query("FROM runs WHERE run_id = ?", ["typo"]).rows == []
    assert asked_runs("EXPLAIN FROM runs WHERE run_id = 'typo'", None, house.query) in ([], ["typo"])
    assert asked_runs("run_id is no SQL", None, house.query) == []
    sql = "FROM runs WHERE run_id = 'x' OR run_id IN ('y', 'x', $z)"
    assert asked_runs(sql, {"z": "z"}, house.query) == ["x", "y", "z"]
    assert asked_runs(sql, None, house.query) == ["x", "y"]
