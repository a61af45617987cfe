"""``nightjar sql``: what it prints, in every format, and how it teaches."""

import csv
import io
import json
import re

import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from nightjar.cli.sql import sql
from nightjar.errors import ConfigError, WarehouseError
from nightjar.warehouse import Warehouse

METADATA = {
    "run_id": "run-1",
    "env_id": "gsm8k",
    "model": "m",
    "status": "completed",
    "avg_reward": 0.5,
    "pass_threshold": 0.5,
    "rollouts": 2,
    "scored": 2,
    "failed": 0,
}
ROLLOUTS = [
    {
        "example_id": 0,
        "example_hash": "a",
        "rollout_index": 0,
        "reward": 1.0,
        "metrics": {"correct": 1.0, "ratio": None},
        "completion": [{"role": "assistant", "content": "four\n\x1b[31m" + "x" * 200}],
    },
    {"example_id": 1, "example_hash": "b", "rollout_index": 0, "reward": 0.0, "metrics": {"correct": 0.0}},
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

    def run(*arguments, stdin=None):
        return CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)

    return run


@pytest.fixture
def terminal(monkeypatch):
    """Makes rich believe that tables go to a terminal of so many columns."""

    def terminal(columns):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    return terminal


def test_a_table_goes_to_stdout_and_the_count_and_the_time_to_stderr(run):
    result = run("SELECT example_id, reward FROM rollouts ORDER BY example_id")
    assert result.exit_code == 0
    assert result.stdout == (
        "example_id  reward\n"
        "──────────  ──────\n"
        "         0     1.0\n"
        "         1     0.0\n"
    )  # fmt: skip
    assert re.fullmatch(r"2 rows in \d+\.\d\d s\n", result.stderr)


def test_a_pipe_gets_all_of_a_cell_on_one_line_and_no_control_characters(run):
    result = run("SELECT completion->>'$[0].content' AS text, NULL::TEXT AS nothing FROM rollouts LIMIT 1")
    assert result.stdout.splitlines()[2] == "four ?[31m" + "x" * 200 + "  NULL"
    assert result.stderr.startswith("1 row in")


def test_a_terminal_gets_long_cells_cut(run, terminal):
    terminal(120)
    result = run("SELECT completion->>'$[0].content' AS text, 1 AS n FROM rollouts LIMIT 1")
    assert result.stdout.splitlines()[2] == "four ?[31m" + "x" * (80 - len("four ?[31m") - len("…")) + "…  1"


def test_a_terminal_gets_numbers_and_times_in_brief_and_a_pipe_in_full(run, terminal):
    query = "SELECT 2 / 3 AS a, 1.0::DOUBLE AS b, 0.000123456 ::DOUBLE AS c, 12345678.9::DOUBLE AS d, "
    query += "TIMESTAMPTZ '2026-11-20 18:00:01.5+00' AS e"
    assert run(query).stdout.splitlines()[2].split("  ") == [
        "0.6666666666666666", "1.0", "0.000123456", "12345678.9", "2026-11-20 18:00:01.500000+00:00",
    ]  # fmt: skip
    terminal(120)
    assert run(query).stdout.splitlines()[2].split() == [
        "0.6667", "1.0", "0.000123", "12345678.9", "2026-11-20", "18:00Z",
    ]  # fmt: skip
    assert "0.6666666666666666" in run(query, "--full").stdout


def test_wide_characters_stay_in_their_column(run, terminal):
    terminal(40)
    result = run("SELECT '日本語' AS text, 1 AS n UNION ALL SELECT repeat('語', 40), 2")
    assert result.stdout.splitlines()[2:] == ["日本語" + " " * (37 - 6) + "  1", "語" * 18 + "…  2"]


def test_numbers_are_never_cut(run, terminal):
    terminal(36)
    result = run("SELECT 123456789012345678 AS n, repeat('x', 50) AS text")
    assert result.stdout.splitlines()[2] == "123456789012345678  " + "x" * 15 + "…"


def test_a_table_is_not_squeezed_when_it_is_no_terminal(run):
    header, _, row = run("SELECT * FROM runs").stdout.splitlines()
    assert "dataset_fingerprint" in header
    assert "gsm8k" in row


def test_a_table_too_wide_for_the_terminal_becomes_blocks(run, terminal):
    terminal(60)
    lines = run("SELECT * FROM runs").stdout.splitlines()
    assert lines[0].startswith("── row 1 ──")
    assert ["env_id", "gsm8k"] in [line.split() for line in lines]
    assert ["rollouts_per_example", "NULL"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 60


def test_all_of_a_long_text_goes_on_below_itself(run, terminal):
    terminal(60)
    query = "SELECT 1 AS n, 'one' || chr(10) || repeat('word ', 20) AS text"
    assert run(query, "--full").stdout.splitlines()[1:] == [
        "n     1",
        "text  one",
        "      " + "word " * 10 + "word",
        "      " + "word " * 8 + "word",
    ]


def test_a_terminal_gets_the_first_thousand_rows(run, terminal):
    terminal(60)
    result = run("FROM range(1500)")
    assert result.stdout.splitlines()[-1].strip() == "999"
    assert "The first 1,000 of 1,500 rows; --full shows all.\n" in result.stderr
    assert run("FROM range(1500)", "--full").stdout.splitlines()[-1].strip() == "1499"


def test_an_empty_answer_is_a_header(run):
    result = run("SELECT run_id FROM runs WHERE false")
    assert result.stdout.split()[0] == "run_id"
    assert result.stderr.startswith("0 rows in")


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
    assert "reward DOUBLE" in run(stdin="").stdout


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


def test_parquet_goes_to_a_file_or_a_pipe(run, tmp_path):
    path = tmp_path / "rows.parquet"
    result = run("SELECT example_id, reward FROM rollouts ORDER BY ALL", "--output", str(path))
    assert result.stdout == ""
    assert re.fullmatch(rf"2 rows in \S+ s, written to {re.escape(str(path))}\n", result.stderr)
    assert parquet.read_table(path).to_pydict() == {"example_id": [0, 1], "reward": [1.0, 0.0]}
    piped = run("SELECT 1 AS n", "--format", "parquet").stdout_bytes
    assert parquet.read_table(io.BytesIO(piped)).to_pydict() == {"n": [1]}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", "n,text\n1,é\n"),
        ("rows.md", "| n | text |\n| ---: | --- |\n| 1 | é |\n"),
        ("rows.txt", "n  text\n─  ────\n1  é\n"),
    ],
)
def test_the_suffix_of_the_output_names_its_format(run, tmp_path, name, content):
    run("SELECT 1 AS n, 'é' AS text", "--output", str(tmp_path / name))
    assert (tmp_path / name).read_text("utf-8") == content


def test_a_query_that_fails_leaves_the_file_as_it_was(run, tmp_path):
    path = tmp_path / "rows.json"
    run("SELECT 1 AS n", "--output", str(path))
    with pytest.raises(WarehouseError):
        run("SELECT nothing", "--output", str(path))
    assert json.loads(path.read_text()) == [{"n": 1}]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.json"]


def test_a_file_that_cannot_be_written_is_named(run, tmp_path):
    with pytest.raises(ConfigError, match=r"Cannot write '.*nowhere/rows.csv': No such file or directory"):
        run("SELECT 1", "--output", str(tmp_path / "nowhere" / "rows.csv"))


def test_a_query_is_run_by_its_name(run):
    result = run("hardest", "-P", "env=gsm8k", "--parameter", "limit=1", "--format", "csv")
    assert result.stdout.splitlines()[0].startswith("example_id,avg_reward,rollouts")
    assert result.stdout.splitlines()[1].startswith("1,0.0,1")


def test_values_are_bound_in_sql_too(run):
    query = "SELECT env_id FROM runs WHERE env_id = $env"
    assert run(query, "-P", "env=gsm8k", "--format", "csv").stdout == "env_id\ngsm8k\n"
    assert run(query, "-P", "env=' OR true", "--format", "csv").stdout == "env_id\n"


def test_a_parameter_without_a_value_is_a_usage_error(run):
    assert run("hardest", "-P", "gsm8k").exit_code == 2


def test_the_names_are_listed_with_what_they_answer_and_take(run):
    text = run("--list").stdout
    assert re.search(r"^hardest +The hardest examples of an environment", text, re.MULTILINE)
    assert re.search(r"^ +env \[model\] \[limit=20\]$", text, re.MULTILINE)
    listed = {query["name"]: query for query in json.loads(run("--list", "--json").stdout)}
    assert listed["flips"]["parameters"][0] == {
        "name": "a",
        "type": "text",
        "required": True,
        "default": None,
        "about": "run_id of the run before",
    }


def test_the_sql_of_a_name_can_be_read(run):
    assert "FROM flips($a, $b)" in run("--list", "flips").stdout


def test_statements_on_stdin_run_one_by_one(run):
    text = "SELECT ';' AS a; -- done;\nSELECT 2 AS b;"
    assert run("--format", "csv", stdin=text).stdout == "a\n;\n\nb\n2\n"
    assert run("--json", stdin=text).stdout == '[\n  {\n    "a": ";"\n  }\n]\n[\n  {\n    "b": 2\n  }\n]\n'


def test_stdin_that_is_no_sql_runs_nothing(run):
    with pytest.raises(WarehouseError, match='syntax error at or near "SELCT"'):
        run(stdin="SELECT 1; SELCT 2")


def test_a_file_takes_the_rows_of_one_statement(run, tmp_path):
    assert run("--output", str(tmp_path / "rows.csv"), stdin="SELECT 1; SELECT 2").exit_code == 2
    run("--output", str(tmp_path / "rows.csv"), stdin="SELECT 1 AS n;")
    assert (tmp_path / "rows.csv").read_text() == "n\n1\n"


def test_a_query_is_stopped_after_the_timeout(run):
    with pytest.raises(WarehouseError, match=r"stopped after 0\.2 s"):
        run("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b", "--timeout", "0.2")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_timeout_is_a_number_of_seconds(run, seconds):
    assert run("SELECT 1", "--timeout", seconds).exit_code == 2


def test_help_names_the_tables(run):
    text = run("--help").stdout
    for word in ("runs", "rollouts", "metrics", "errors", "leaderboard", "--warehouse", "--format"):
        assert word in text
