"""SQL in the web view."""

import csv
import io
import re
from contextlib import ExitStack

import pytest

HOSTILE = "</textarea><script>alert(1)</script>\u202e"


@pytest.fixture(scope="module")
def view(shared_house, browse):
    """A client of a warehouse with a run of two examples."""
    shared_house.publish_rows("run", status="completed", env_id="gsm8k")
    return browse(shared_house.warehouse)


def asked(view, q, address="/sql", **more):
    return view.get(address, params={"q": q, **more})


def cells(told):
    return re.findall(r"<td[^>]*>(.*?)</td>", told.text)


def test_named_queries_and_tables_are_listed_and_results_are_tables(view):
    told = view.get("/sql")
    assert told.status_code == 200
    for words in ("/sql?q=hardest", "/sql?q=FROM+rollouts+LIMIT+20", "NULL for a failed rollout, never 0"):
        assert words in told.text
    told = asked(view, "SELECT run_id, count(*) AS n FROM rollouts GROUP BY ALL; -- all")
    assert cells(told) == ['<a href="/runs/run">run</a>', "4"]
    assert "1 row<" in told.text
    assert asked(view, "DESCRIBE runs").status_code == asked(view, "EXPLAIN FROM runs").status_code == 200
    assert "No rows." in asked(view, "FROM runs WHERE false").text
    told = asked(view, "hardest")  # asks for its parameters
    assert (told.status_code, 'name="p.env"' in told.text, "<td" in told.text) == (200, True, False)
    told = asked(view, "hardest", **{"p.env": "gsm8k", "p.limit": "1"})
    assert "1 row<" in told.text
    assert asked(view, "hardest", **{"p.env": "gsm8k", "p.limit": "few"}).status_code == 400
    assert cells(asked(view, "SELECT reward FROM rollouts WHERE reward > $least", **{"p.least": "0.5"})) == ["1"]


def test_a_long_or_wide_result_is_cut_with_a_notice(view):
    told = asked(view, "SELECT i FROM range(5000) AS t(i) ORDER BY i DESC")
    assert "The first 1,000 rows" in told.text
    assert (cells(told)[0], len(cells(told))) == ("4999", 1000)
    told = asked(view, f"SELECT {', '.join(f'{n} AS c{n}' for n in range(200))} FROM range(1000)")
    assert "The first 250 rows" in told.text


@pytest.mark.long
def test_a_result_that_would_fill_the_memory_is_refused(view):
    wide = ", ".join(f"{n} AS c{n}" for n in range(2000))
    for statement in ("repeat('x', 50000000) AS run_id", "repeat('x', 1000000) FROM range(1000)"):
        told = asked(view, f"SELECT {statement}")
        assert (told.status_code, "larger than 0.032 GB" in told.text) == (400, True)
    told = asked(view, f"SELECT {wide} FROM range(1000)", "/sql/answer.json")
    assert (told.status_code, "larger than 0.032 GB" in told.text) == (400, True)


def test_pages_are_answered_while_statements_run(view, monkeypatch):
    from nightjar.view import pages
    from nightjar.warehouse.reading.process import MOST_AT_ONCE

    monkeypatch.setattr(pages, "_WAIT_SECONDS", 0.1)
    with ExitStack() as running:
        for _ in range(MOST_AT_ONCE - 1):
            running.enter_context(pages.user_query())
        assert "Other statements are still running" in asked(view, "FROM runs").text
        assert "Other statements" in view.get("/runs/run/samples?where=true").text
        assert view.get("/").status_code == view.get("/runs/run/0/0").status_code == 200
    assert asked(view, "FROM runs").status_code == 200


def test_an_error_is_shown_next_to_the_field(view):
    for statement, words in {
        "SELEC 1": "syntax error", "hardst": "Did you mean", "SELECT 1; SELECT 2": "found 2",
        "-- nothing": "found 0", "DROP VIEW runs": "DROP is refused", "COPY runs TO 'runs.csv'": "COPY is refused",
        "FROM read_text('/etc/passwd')": "Permission Error", "SELECT 1) UNION (SELECT 2": "syntax error",
        "FROM runs WHERE env_id = $env": "env", "FROM rollouts WHERE run_id = 'typo'": "typo",
        "FROM pairs('run', 'typo')": "typo", f"SELECT '{HOSTILE}": "unterminated",
    }.items():  # fmt: skip
        told = asked(view, statement)
        assert told.status_code == 400, statement
        assert words in re.search(r'role="alert">(.*?)</p>', told.text, re.DOTALL)[1]
        told = asked(view, statement, "/sql/answer.csv")
        assert (told.status_code, words in told.text) == (400, True), statement


def test_query_and_result_are_escaped_and_a_result_can_be_downloaded(view):
    told = asked(view, f"SELECT '{HOSTILE}' AS \"{HOSTILE}\", 1 AS n", chart="bars")
    assert told.status_code == 200
    assert "<script>alert" not in told.text
    assert told.text.count("</textarea>") == 1
    told = asked(view, "SELECT example_id, reward FROM rollouts ORDER BY ALL", "/sql/answer.csv")
    assert told.headers["content-disposition"] == 'attachment; filename="answer.csv"'
    assert list(csv.reader(io.StringIO(told.text)))[:2] == [["example_id", "reward"], ["0", "0.0"]]
    told = asked(view, "SELECT run_id FROM runs", "/sql/answer.json")
    assert told.json() == [{"run_id": "run"}]
    assert asked(view, "FROM runs", "/sql/answer.exe").status_code == 400


def test_two_columns_are_drawn_and_so_are_extreme_numbers(view):
    rows = "SELECT * FROM (VALUES ('a', -1.0), ('b', 3.0), ('c', NULL)) AS t(name, n)"
    told = asked(view, rows, chart="bars")
    assert re.findall(r'<rect x="(\S+)%" width="(\S+)%"', told.text) == [("0.0", "25.0"), ("25.0", "75.0")]
    assert "n by name: 2 bars" in told.text
    told = asked(view, rows, chart="line")
    assert re.findall(r'<circle cx="(\S+)%" cy="(\S+)"', told.text) == [("6.0", "180.0"), ("98.0", "0.0")]
    days = "SELECT DATE '2026-01-01' + i::INTEGER AS day, 10 - i AS n, i AS m FROM (VALUES (2), (0), (1)) AS t(i)"
    told = asked(view, days, chart="line", x="day", y="m")
    assert re.findall(r"<title>2026-01-0(\d: \d)</title>", told.text) == ["1: 0", "2: 1", "3: 2"]
    for q in ("SELECT 'a' AS a", "SELECT 1 AS a WHERE false", "SELECT 'nan'::DOUBLE AS a"):
        assert "<svg" not in asked(view, q, chart="line").text
    assert "<svg" in asked(view, "SELECT 1 AS a", chart="line").text
    for statement in (
        "SELECT 1e308 AS a UNION ALL SELECT -1e308", "SELECT 1.7e308 AS a", "SELECT 5e-324 AS a UNION ALL SELECT 0",
        "SELECT TIMESTAMP '0001-01-01' AS d, 1 AS a UNION ALL SELECT TIMESTAMP '9999-12-31', 2",
        "SELECT 'infinity'::TIMESTAMPTZ AS d, 1 AS a", "SELECT 10::HUGEINT**38 AS a UNION ALL SELECT 1",
    ):  # fmt: skip
        for chart in ("bars", "line"):
            assert "<figure" in asked(view, statement, chart=chart).text, (statement, chart)
