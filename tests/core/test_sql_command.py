"""``nightjar sql``: what it prints, in every format, and how it teaches."""

import csv
import io
import json

import pytest
import typer
from typer.testing import CliRunner

from nightjar.cli.sql import sql
from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse

METADATA = {
    "run_id": "run-1",
    "env_id": "gsm8k",
    "model": "m",
    "status": "completed",
    "avg_reward": 0.5,
}
ROLLOUTS = [
    {
        "example_id": 0,
        "rollout_index": 0,
        "reward": 1.0,
        "metrics": {"correct": 1.0, "ratio": None},
        "completion": [{"role": "assistant", "content": "four\n\x1b[31m" + "x" * 200}],
    },
    {"example_id": 1, "rollout_index": 0, "reward": 0.0, "metrics": {"correct": 0.0}},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("run")
    (run_dir / "metadata.json").write_text(json.dumps(METADATA))
    lines = "".join(json.dumps(rollout) + "\n" for rollout in ROLLOUTS)
    (run_dir / "results.jsonl").write_text(lines)
    folder = tmp_path_factory.mktemp("warehouse")
    Warehouse(folder).publish(run_dir)
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.setenv("NIGHTJAR_WAREHOUSE", str(folder))
    app = typer.Typer()
    app.command()(sql)
    return lambda *arguments: CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_table_goes_to_stdout_and_the_count_to_stderr(run):
    result = run("SELECT example_id, reward FROM rollouts ORDER BY example_id")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert lines[0] == ["example_id", "reward"]
    assert lines[2:] == [["0", "1.0"], ["1", "0.0"]]
    assert result.stderr == "2 rows\n"


def test_a_table_cuts_long_cells_and_shows_no_control_characters(run):
    result = run("SELECT completion->>'$[0].content' AS text, NULL::TEXT AS nothing FROM rollouts LIMIT 1")
    cell = result.stdout.splitlines()[2]
    assert cell.strip().startswith("four ?[31mxxx")
    assert "x…   NULL" in cell
    assert cell.count("x") == 80 - len("four ?[31m") - len("…")
    assert result.stderr == "1 row\n"


def test_a_table_is_not_squeezed_when_it_is_no_terminal(run):
    result = run("SELECT * FROM runs")
    header, _, row = result.stdout.splitlines()
    assert "dataset_fingerprint" in header
    assert "gsm8k" in row


def test_a_table_too_wide_for_the_terminal_becomes_blocks(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "60")
    lines = [line.split() for line in run("SELECT * FROM runs").stdout.splitlines()]
    assert lines[0] == ["row", "1"]
    assert ["env_id", "gsm8k"] in lines
    assert ["rollouts_per_example", "NULL"] in lines


def test_an_empty_answer_is_a_header(run):
    result = run("SELECT run_id FROM runs WHERE false")
    assert result.stdout.split()[0] == "run_id"
    assert result.stderr == "0 rows\n"


def test_a_plan_keeps_its_lines(run):
    assert "\n" in run("EXPLAIN SELECT * FROM runs").stdout.strip()


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "json"]])
def test_json_is_a_list_of_objects(run, arguments):
    values = {
        "text": "'a\"b'",
        "day": "DATE '2026-11-20'",
        "moment": "TIMESTAMPTZ '2026-11-20 18:00:00+00'",
        "decimal": "1.25",
        "huge": "170141183460469231731687303715884105727::HUGEINT",
        "map": "MAP {'a': 1.5, 'b': 'nan'::DOUBLE}",
        "numbered": "MAP {1: true}",
        "list": "[DATE '2026-11-20', NULL]",
        "struct": "{'x': 'inf'::DOUBLE}",
        "not_a_number": "'nan'::DOUBLE",
        "nothing": "NULL",
        "document": """'{"k": [1]}'::JSON""",
        "bytes": r"'\xAB'::BLOB",
        "id": "'00000000-0000-0000-0000-000000000001'::UUID",
    }
    columns = ", ".join(f"{value} AS {name}" for name, value in values.items())
    result = run(f"SELECT {columns}", *arguments)
    assert json.loads(result.stdout) == [
        {
            "text": 'a"b',
            "day": "2026-11-20",
            "moment": "2026-11-20 18:00:00+00:00",
            "decimal": 1.25,
            "huge": 170141183460469231731687303715884105727,
            "map": {"a": 1.5, "b": None},
            "numbered": {"1": True},
            "list": ["2026-11-20", None],
            "struct": {"x": None},
            "not_a_number": None,
            "nothing": None,
            "document": {"k": [1]},
            "bytes": "ab",
            "id": "00000000-0000-0000-0000-000000000001",
        }
    ]
    assert "NaN" not in result.stdout


def test_json_has_messages_as_json_and_no_rows_as_an_empty_list(run):
    (first,) = json.loads(run("SELECT completion FROM rollouts LIMIT 1", "--json").stdout)
    assert first["completion"] == ROLLOUTS[0]["completion"]
    assert json.loads(run("SELECT 1 WHERE false", "--json").stdout) == []


def test_csv_is_whole(run):
    result = run(
        "SELECT completion, metrics.value, true AS yes, [1, 2] AS list"
        " FROM rollouts JOIN metrics USING (run_id, example_id) WHERE name = 'ratio'",
        "--format",
        "csv",
    )
    header, row = csv.reader(io.StringIO(result.stdout))
    assert header == ["completion", "value", "yes", "list"]
    assert json.loads(row[0]) == ROLLOUTS[0]["completion"]
    assert row[1:] == ["", "true", "[1, 2]"]


def test_markdown_escapes_what_would_break_a_row(run):
    result = run("SELECT 'a|b' || chr(10) || 'c' AS text, 1.5::DOUBLE AS n", "--format", "markdown")
    assert result.stdout == "| text | n |\n| --- | ---: |\n| a\\|b<br>c | 1.5 |\n"


def test_without_a_statement_it_teaches(run):
    result = run()
    for part in (
        "rollouts: an attempt",
        "reward DOUBLE",
        "* reward: NULL for a failed",
        "Examples:",
    ):
        assert part in result.stdout
    assert result.stdout.count('nightjar sql "') == 3


def test_the_examples_that_it_teaches_run(run):
    examples = [line for line in run().stdout.splitlines() if 'nightjar sql "' in line]
    statements = [line.split('"')[1] for line in examples]
    assert [run(statement).exit_code for statement in statements] == [0, 0, 0]


def test_without_a_statement_the_catalog_comes_in_any_format(run):
    records = json.loads(run("--json").stdout)
    assert records[0].keys() == {"table", "about", "column", "type", "note"}


def test_the_option_goes_before_the_environment(run, tmp_path):
    with pytest.raises(WarehouseError, match=r"No warehouse at .*elsewhere"):
        run("SELECT 1", "--warehouse", str(tmp_path / "elsewhere"))


def test_an_unknown_format_is_a_usage_error(run):
    assert run("SELECT 1", "--format", "xml").exit_code == 2


def test_help_names_the_tables(run):
    text = run("--help").stdout
    for word in ("runs", "rollouts", "metrics", "errors", "leaderboard", "--warehouse", "--format"):
        assert word in text
