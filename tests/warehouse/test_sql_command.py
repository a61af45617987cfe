"""``nightjar sql``: what it prints, in every format, and how it teaches."""

import csv
import io
import json
import re

import pytest
import typer
from typer.testing import CliRunner

from nightjar.errors import ConfigError, WarehouseError
from nightjar.warehouse import Warehouse

COMPLETION = [{"role": "assistant", "content": "four\n\x1b[31m" + "x" * 200}]


@pytest.fixture(scope="module")
def publish(run_writer):
    def publish(folder, run_id, *rollouts, **told):
        counts = {"rollouts": len(rollouts), "scored": len(rollouts), "failed": 0, "rollouts_per_example": None}
        told = {"run_id": run_id, "model": "m", "status": "completed", **counts, **told}
        Warehouse(folder / "warehouse").publish(run_writer.write(folder / run_id, rollouts, **told))
        return folder / "warehouse"

    return publish


@pytest.fixture(scope="module")
def folder(tmp_path_factory, publish, run_writer):
    right = {"example_hash": "a", "metrics": {"correct": 1.0, "ratio": None}, "completion": COMPLETION}
    wrong = {"example_hash": "b", "metrics": {"correct": 0.0}, "completion": None}
    rollouts = [run_writer.rollout(0, 0, 1.0, **right), run_writer.rollout(1, 0, 0.0, **wrong)]
    return publish(tmp_path_factory.mktemp("published"), "run-1", *rollouts)


@pytest.fixture
def run(folder, monkeypatch):
    from nightjar.cli.sql.command import sql

    monkeypatch.setenv("NIGHTJAR_WAREHOUSE", str(folder))
    app = typer.Typer()
    app.command()(sql)
    return lambda *arguments, stdin=None: CliRunner().invoke(app, arguments, input=stdin, catch_exceptions=False)


@pytest.fixture(scope="module")
def parquet():
    return pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def terminal(monkeypatch):
    """Makes rich believe that tables go to a terminal of so many columns."""

    def terminal(columns):
        for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", str(columns))):
            monkeypatch.setenv(name, value)

    return terminal


WORDS = "word " * 10 + "word"


def test_a_table_goes_to_stdout_and_the_count_and_the_time_to_stderr(run):
    result = run("SELECT example_id, reward FROM rollouts ORDER BY example_id")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "example_id  reward", "──────────  ──────", "         0     1.0", "         1     0.0",
    ]  # fmt: skip
    assert re.fullmatch(r"2 rows in \d+\.\d\d s\n", result.stderr)


def test_a_pipe_gets_all_of_a_cell_on_one_line_but_a_plan_keeps_its_lines(run):
    result = run("SELECT completion->>'$[0].content' AS text, NULL::TEXT AS nothing FROM rollouts LIMIT 1")
    assert result.stdout.splitlines()[2] == "four ?[31m" + "x" * 200 + "  NULL"
    assert result.stderr.startswith("1 row in")
    assert "\n" in run("EXPLAIN SELECT * FROM runs").stdout.strip()


def test_a_terminal_gets_numbers_and_times_in_brief_and_a_pipe_in_full(run, terminal):
    query = "SELECT 2 / 3 AS a, 1.0::DOUBLE AS b, 0.000123456 ::DOUBLE AS c, 12345678.9::DOUBLE AS d, "
    query += "TIMESTAMPTZ '2026-11-20 18:00:01.5+00' AS e, 62.89308::DOUBLE AS f, ['one', 'two'] AS g"
    assert run(query).stdout.splitlines()[2].split("  ") == [
        "0.6666666666666666", "1.0", "0.000123456", "12345678.9", "2026-11-20 18:00:01.500000+00:00",
        "62.89308", '["one", "two"]',
    ]  # fmt: skip
    terminal(120)
    assert run(query).stdout.splitlines()[2].split() == [
        "0.6667", "1.0", "0.000123", "12345678.9", "2026-11-20", "18:00Z",
        "62.89", "one,", "two",
    ]  # fmt: skip
    assert "0.6666666666666666" in run(query, "--full").stdout
    query = "SELECT 0.00012345678 AS a, 12.5::DECIMAL(18, 2) AS b, [2 / 3, 1 / 3] AS c, {x: [1 / 3]} AS d"
    assert run(query).stdout.splitlines()[2].split("  ") == [
        "0.000123", "12.50", "[0.6667, 0.3333]", '{"x": [0.3333]}',
    ]  # fmt: skip
    assert "0.6666666666666666" in run(query, "--format", "json").stdout


@pytest.mark.parametrize(("columns", "statement", "lines"), [
    (120, "SELECT completion->>'$[0].content' AS text, 1 AS n FROM rollouts LIMIT 1",
     ["four ?[31m" + "x" * (80 - len("four ?[31m") - len("…")) + "…  1"]),
    (40, "SELECT '日本語' AS text, 1 AS n UNION ALL SELECT repeat('語', 40), 2",
     ["日本語" + " " * (37 - 6) + "  1", "語" * 18 + "…  2"]),
    (46, "SELECT 123456789012345678 AS n, repeat('x', 50) AS text", ["123456789012345678  " + "x" * 25 + "…"]),
], ids=["long cells", "wide characters", "numbers"])  # fmt: skip
def test_a_terminal_gets_cells_cut_but_no_numbers(run, terminal, columns, statement, lines):
    terminal(columns)
    assert run(statement).stdout.splitlines()[2:] == lines


@pytest.mark.parametrize(("columns", "statement", "options", "lines"), [
    (40, "SELECT 'openai/gpt-4.1-mini' AS model, 'number-theory-02' AS env_id, 1234567 AS n", (),
     ["model   openai/gpt-4.1-mini", "env_id  number-theory-02", "n       1234567"]),
    (60, "SELECT repeat('word ', 40) AS text, repeat('x', 30) AS a, repeat('y', 30) AS b", (),
     [f"text  {WORDS}", f"      {WORDS}", f"      {WORDS[:-1]}…", "a     " + "x" * 30, "b     " + "y" * 30]),
    (60, "SELECT 1 AS n, 'one' || chr(10) || repeat('word ', 20) AS text", ("--full",),
     ["n     1", "text  one", f"      {WORDS}", f"      {WORDS[10:]}"]),
], ids=["names to be told apart", "three lines of a long text", "all of a long text"])  # fmt: skip
def test_what_does_not_fit_is_shown_in_blocks(run, terminal, columns, statement, options, lines):
    terminal(columns)
    assert run(statement, *options).stdout.splitlines()[1:] == lines


def test_a_table_too_wide_for_the_terminal_becomes_blocks(run, terminal):
    header, _, row = run("SELECT * FROM runs").stdout.splitlines()
    assert "dataset_fingerprint" in header
    assert "gsm8k" in row
    terminal(60)
    lines = run("SELECT * FROM runs").stdout.splitlines()
    assert lines[0].startswith("── row 1 ──")
    assert ["rollouts_per_example", "NULL"] in [line.split() for line in lines]
    assert max(map(len, lines)) <= 60


def test_a_terminal_gets_a_thousand_rows_and_what_is_marked_in_a_long_text(run, terminal):
    terminal(60)
    result = run("FROM range(1500)")
    assert result.stdout.splitlines()[-1].strip() == "999"
    assert "The first 1,000 of 1,500 rows; --full shows all.\n" in result.stderr
    assert run("FROM range(1500)", "--full").stdout.splitlines()[-1].strip() == "1499"
    result = run("SELECT repeat('a', 80) || '«hit»' || repeat('b', 80) AS passage, 'x' AS c")
    line = result.stdout.splitlines()[2]
    assert re.fullmatch(r"…a+«hit»b+…  x", line)
    assert len(line) == 60


def test_an_honest_nothing_is_said_on_stderr_and_stdout_stays_valid(run):
    header = "flip,example_id,correct_a,correct_b,reward_a,reward_b,example_hash\n"
    for form, nothing in (("json", "[]\n"), ("csv", header)):
        result = run("flips", "-P", "a=run-1", "-P", "b=run-1", "--format", form)
        assert (result.exit_code, result.stdout) == (0, nothing)
        assert re.fullmatch(r"No rows in \d\.\d\d s\n", result.stderr)


@pytest.fixture(scope="module")
def models(tmp_path_factory, publish, run_writer):
    """A warehouse where 'a' and 'b' ran in the same environment on different examples, and 'c' in another."""
    folder = tmp_path_factory.mktemp("models")
    for model, env_id, example_hash in (("a", "sums", "1"), ("b", "sums", "2"), ("c", "chess", "1")):
        publish(folder, model, run_writer.rollout(0, 0, example_hash=example_hash), env_id=env_id, model=model)
    return str(folder / "warehouse")


def test_models_without_an_example_in_common_have_none_to_show(run, models):
    for given, row in (
        ("-P b=b", "sums,0,,,,,0,0,0"), ("-P b=c", ",0,,,,,0,0,0"), ("-P b=b -P env=chess", "chess,0,,,,,0,0,0"),
    ):  # fmt: skip
        result = run("compare", "-P", "a=a", *given.split(), "--format", "csv", "--warehouse", models)
        assert result.stdout.splitlines()[1:] == [row]


def test_what_the_warehouse_does_not_have_is_an_error_and_writes_nothing(run, tmp_path):
    path = tmp_path / "rows"
    for form in ("table", "json", "parquet"):
        with pytest.raises(WarehouseError, match=r"^Unknown environment 'gsm8'. Did you mean 'gsm8k'\?$"):
            run("history", "-P", "env=gsm8", "--format", form, "--output", str(path))
        assert not path.exists()


def test_json_is_a_list_of_objects(run):
    values = {
        "text": ("'a\"b'", 'a"b'), "day": ("DATE '2026-11-20'", "2026-11-20"),
        "moment": ("TIMESTAMPTZ '2026-11-20 18:00:00+00'", "2026-11-20 18:00:00+00:00"), "decimal": ("1.25", 1.25),
        "huge": (f"{2**127 - 1}::HUGEINT", 2**127 - 1),
        "map": ("MAP {'a': 1.5, 'b': 'nan'::DOUBLE}", {"a": 1.5, "b": None}),
        "numbered": ("MAP {1: true}", {"1": True}), "list": ("[DATE '2026-11-20', NULL]", ["2026-11-20", None]),
        "struct": ("{'x': 'inf'::DOUBLE}", {"x": None}), "not_a_number": ("'nan'::DOUBLE", None),
        "nothing": ("NULL", None), "document": ("""'{"k": [1]}'::JSON""", {"k": [1]}),
        "bytes": (r"'\xAB'::BLOB", "ab"),
        "id": ("'00000000-0000-0000-0000-000000000001'::UUID", "00000000-0000-0000-0000-000000000001"),
    }  # fmt: skip
    columns = ", ".join(f"{value} AS {name}" for name, (value, _) in values.items())
    result = run(f"SELECT {columns}", "--json")
    assert run(f"SELECT {columns}", "--format", "json").stdout == result.stdout
    assert json.loads(result.stdout) == [{name: expected for name, (_, expected) in values.items()}]
    assert "NaN" not in result.stdout


def test_json_has_messages_as_json_and_csv_as_text(run):
    (first,) = json.loads(run("SELECT completion FROM rollouts LIMIT 1", "--json").stdout)
    assert first["completion"] == COMPLETION
    assert json.loads(run("SELECT 1 WHERE false", "--json").stdout) == []
    statement = "SELECT completion, metrics.value, true AS yes, [1, 2] AS list"
    statement += " FROM rollouts JOIN metrics USING (run_id, example_id) WHERE name = 'ratio'"
    header, row = csv.reader(io.StringIO(run(statement, "--format", "csv").stdout))
    assert header == ["completion", "value", "yes", "list"]
    assert json.loads(row[0]) == COMPLETION
    assert row[1:] == ["", "true", "[1, 2]"]


def test_markdown_escapes_what_would_break_a_row(run):
    result = run("SELECT 'a|b' || chr(10) || 'c' AS text, 1.5::DOUBLE AS n", "--format", "markdown")
    assert result.stdout == "| text | n |\n| --- | ---: |\n| a\\|b<br>c | 1.5 |\n"


def test_without_a_statement_it_teaches_with_examples_that_run(run):
    shown = run().stdout
    for part in ("rollouts: the final record", "reward DOUBLE", "NULL for a failed", "Examples:"):
        assert part in shown
    assert "reward DOUBLE" in run(stdin="").stdout
    statements = [line.split('"')[1] for line in shown.splitlines() if 'nightjar sql "' in line]
    assert [run(statement).exit_code for statement in statements] == [0, 0, 0]
    assert json.loads(run("--json").stdout)[0].keys() == {"table", "about", "column", "type", "note"}


def test_parquet_goes_to_a_file_or_a_pipe(run, parquet, tmp_path):
    path = tmp_path / "rows.parquet"
    result = run("SELECT example_id, reward FROM rollouts ORDER BY ALL", "--output", str(path))
    assert result.stdout == ""
    assert re.fullmatch(rf"2 rows in \S+ s, written to {re.escape(str(path))}\n", result.stderr)
    assert parquet.read_table(path).to_pydict() == {"example_id": [0, 1], "reward": [1.0, 0.0]}
    piped = run("SELECT 1 AS n", "--format", "parquet").stdout_bytes
    assert parquet.read_table(io.BytesIO(piped)).to_pydict() == {"n": [1]}


def test_the_suffix_of_the_output_names_its_format(run, tmp_path):
    contents = {
        "rows.csv": "n,text\n1,é\n", "rows.md": "| n | text |\n| ---: | --- |\n| 1 | é |\n",
        "rows.txt": "n  text\n─  ────\n1  é\n",
    }  # fmt: skip
    for name in contents:
        run("SELECT 1 AS n, 'é' AS text", "--output", str(tmp_path / name))
    assert {name: (tmp_path / name).read_text("utf-8") for name in contents} == contents
    for name in ("rows.xlsx", "rows.csv.gz", "rows.tsv"):  # these name none
        result = run("SELECT 1 AS n", "--output", str(tmp_path / name))
        said = " ".join(re.sub(r"[^\x20-\x7e]", " ", result.stderr).split())
        assert "Choose one of: .txt, .csv, .json, .md, .parquet, or give --format" in said
        assert (result.exit_code, (tmp_path / name).exists()) == (2, False)
        run("SELECT 1 AS n", "--output", str(tmp_path / name), "--format", "csv")
        assert (tmp_path / name).read_text() == "n\n1\n"


def test_a_query_that_fails_leaves_the_file_and_one_that_cannot_be_written_is_named(run, tmp_path):
    path = tmp_path / "rows.json"
    run("SELECT 1 AS n", "--output", str(path))
    with pytest.raises(WarehouseError):
        run("SELECT nothing", "--output", str(path))
    assert json.loads(path.read_text()) == [{"n": 1}]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.json"]
    with pytest.raises(ConfigError, match=r"Cannot write '.*nowhere/rows.csv': No such file or directory"):
        run("SELECT 1", "--output", str(tmp_path / "nowhere" / "rows.csv"))


def test_a_query_is_run_by_its_name_and_a_value_is_bound_and_not_pasted(run):
    result = run("hardest", "-P", "env=gsm8k", "--parameter", "limit=1", "--format", "csv")
    assert result.stdout.splitlines()[0].startswith("example_id,avg_reward,rollouts")
    assert result.stdout.splitlines()[1].startswith("1,0.0,1")
    query = "SELECT env_id FROM runs WHERE env_id = $env"
    assert run(query, "-P", "env=' OR true", "--format", "csv").stdout == "env_id\n"


def test_a_value_is_read_by_what_it_stands_beside(run):
    values = [
        ("reward > $x", "0.5", 1), ("reward > $x", "1e0", 0), ("example_id IN ($x, 7)", "1", 1),
        ("metrics['correct'] = $x", "1", 1), ("correct = $x", "true", 1), ("example_hash = $x", "a", 1),
        ("example_id < $x::INTEGER * 1", "1", 1), ("'0123' = $x", "0123", 2), ("'0123' = $x", "123", 0),
        ("'1e5' = $x", "1e5", 2), ("'100000' = $x", "1e5", 0), ("TIMESTAMPTZ '2026-11-02' > $x", "2026-11-01", 2),
        ("TIMESTAMPTZ '2026-11-02' > $x", "2026-11-02 01:00", 0),
    ]  # fmt: skip
    for condition, value, count in values:
        result = run(f"SELECT count(*) AS n FROM rollouts WHERE {condition}", "-P", f"x={value}", "--format", "csv")
        assert result.stdout == f"n\n{count}\n", (condition, value)


def test_a_limit_is_a_number(run, parquet, tmp_path):
    path = tmp_path / "rows"
    for form, count in (("csv", lambda: path.read_text().count("\n") - 1),
                        ("parquet", lambda: parquet.read_table(path).num_rows)):  # fmt: skip
        run("FROM rollouts LIMIT $n", "-P", "n=1", "--format", form, "--output", str(path))
        assert count() == 1


def test_wrong_values_of_parameters_are_named(run):
    for statement, values, message in (
        ("SELECT to_days($n)", {"n": "few"}, r"Binder Error: .*\$n::INTEGER"),
        ("SELECT reward * $n FROM rollouts", {"n": "few"}, r"Binder Error: .*\$n::INTEGER"),
        ("WITH g AS (SELECT $n AS n) FROM rollouts, g WHERE reward > n", {"n": "x"}, r"Binder Error: .*\$n::INT"),
        ("SELECT reward > $n FROM rollouts", {"n": "few"}, r"Could not convert string 'few' to DOUBLE$"),
        ("FROM runs WHERE env_id = $env LIMIT $n", {"n": 1}, r"needs a value for 'env'\. It takes: env, n"),
        ("FROM runs WHERE env_id = 'e'", {"n": 1}, r"has no parameter 'n'\. It takes: no parameters"),
        ("FROM runs LIMIT", {"n": 1}, 'The query failed: Parser Error: syntax error at or near "LIMIT"'),
        ("compare", {"a": "m", "b": "m"}, r"'compare' takes two models, found 'm' twice\.$"),
    ):  # fmt: skip
        with pytest.raises(WarehouseError, match=message):
            run(statement, *(word for name, value in values.items() for word in ("-P", f"{name}={value}")))


def test_wrong_usage_exits_with_2(run):
    usages = ["hardest -P gsm8k", "hardest -P =gsm8k", "hardest -P env=a -P env=b", "hardest --format xml"]
    usages += [f"hardest --timeout {seconds}" for seconds in ("0", "-1", "nan", "inf")]
    assert {usage: run(*usage.split()).exit_code for usage in usages} == dict.fromkeys(usages, 2)


def test_statements_of_a_pipe_get_their_values_and_a_failure_says_which_it_was(run, tmp_path):
    result = run("--format", "csv", "-P", "a=1", "-P", "B=2", stdin="SELECT $a AS a; SELECT $b AS b; SELECT 3 AS c")
    assert result.stdout == "a\n1\n\nb\n2\n\nc\n3\n"
    with pytest.raises(WarehouseError, match=r"has no parameter 'z'. It takes: a\."):
        run("-P", "z=1", stdin="SELECT $a; SELECT 1")
    with pytest.raises(WarehouseError, match=r"^Statement 2 of 3: The query failed: .*nothing"):
        run(stdin="SELECT 1; SELECT nothing; SELECT 3")
    with pytest.raises(WarehouseError, match='syntax error at or near "SELCT"'):
        run(stdin="SELECT 1; SELCT 2")
    assert run("--output", str(tmp_path / "rows.csv"), stdin="SELECT 1; SELECT 2").exit_code == 2
    run("--output", str(tmp_path / "rows.csv"), stdin="SELECT 1 AS n;")
    assert (tmp_path / "rows.csv").read_text() == "n\n1\n"


def test_the_names_are_listed_with_what_they_answer_and_take(run):
    text = run("--list").stdout
    assert re.search(r"^hardest +The hardest examples of an environment", text, re.MULTILINE)
    assert re.search(r"^ +env \[model\] \[limit=20\]$", text, re.MULTILINE)
    assert "FROM flips($a, $b)" in run("--list", "flips").stdout
    listed = {query["name"]: query for query in json.loads(run("--list", "--json").stdout)}
    about = {"required": True, "default": None, "about": "run_id of the earlier run"}
    assert listed["flips"]["parameters"][0] == {"name": "a", "type": "run", **about}


def test_statements_and_names_on_stdin_run_one_by_one(run):
    text = "SELECT ';' AS a; -- done;\nSELECT 2 AS b;"
    assert run("--format", "csv", stdin=text).stdout == "a\n;\n\nb\n2\n"
    assert run("--json", stdin=text).stdout == '[\n  {\n    "a": ";"\n  }\n]\n[\n  {\n    "b": 2\n  }\n]\n'
    assert run("--format", "csv", stdin="leaderboard\n").stdout.startswith("env_id,model,avg_reward")


def test_a_query_is_stopped_after_the_timeout(run):
    with pytest.raises(WarehouseError, match=r"stopped after 0\.2 s"):
        run("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b", "--timeout", "0.2")


def completed(warehouse, text):
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from nightjar.cli.sql.prompt import SqlCompleter

    document = Document(text, len(text))
    return [one.text for one in SqlCompleter(warehouse).get_completions(document, CompleteEvent())]


def test_words_and_values_are_completed_by_what_there_is(folder):
    words = {
        ".run history env=": "env=gsm8k", "history env=gs": "env=gsm8k", "FROM runs;\nhistory env=": "env=gsm8k",
        "SELECT run_id FROM leader": "leaderboard", "SELECT leaderboard.avg_rew": "avg_reward", "SELE": "SELECT",
        ".sche": ".schema", ".run hard": "hardest", ".run hardest env=sums mod": "model=",
        "FROM runs SELECT mod": "model",
    }  # fmt: skip
    warehouse = Warehouse(folder)
    assert {text: completed(warehouse, text)[0] for text in words} == words
    assert "MODE" in completed(warehouse, "FROM runs SELECT mod")
