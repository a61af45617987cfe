"""What is typed or pasted at the prompt of ``nightjar sql``, taken apart."""

import pytest

from nightjar.cli.sql_input import command_of, goes_on, take_apart


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("\n\n", []),
        ("SELECT 1;", ["SELECT 1;"]),
        ("SELECT 1;\n\n  SELECT\n2;\n", ["SELECT 1;", "SELECT\n2;"]),
        ("SELECT 1; SELECT 2;", ["SELECT 1; SELECT 2;"]),
        ("SELECT 'a;\n.tables\nb';", ["SELECT 'a;\n.tables\nb';"]),
        ("-- first\nFROM runs; -- all\n.tables", ["-- first\nFROM runs; -- all", ".tables"]),
        (
            ".tables\nleaderboard\nhistory env=gsm8k\nFROM runs",
            [".tables", "leaderboard", "history env=gsm8k", "FROM runs"],
        ),
        ("SELCT 1;\nSELECT 2;", ["SELCT 1;", "SELECT 2;"]),
        ("leaderbord\nerrors;", ["leaderbord", "errors;"]),
    ],
)
def test_commands_names_and_statements(text, parts):
    assert take_apart(text) == parts


@pytest.mark.parametrize(
    "text", ["SELECT", "from", "WITH", "SELECT 1", "SELECT ';'", "FROM runs -- ;", "FROM runs;\nSELECT", "create"]
)
def test_a_statement_goes_on(text):
    assert goes_on(text)


@pytest.mark.parametrize(
    "text", ["", ".schema runs", "leaderboard", "leaderbord", "hardest env=gsm8k", "exit", "\\d", "FROM runs;"]
)
def test_a_line_is_enough(text):
    assert not goes_on(text)


@pytest.mark.parametrize(
    ("part", "command"),
    [
        ("help", ".help"),
        ("?", ".help"),
        ("EXIT;", ".quit"),
        ("\\q", ".quit"),
        ("\\d", "\\d"),
        (".schema runs", ".schema runs"),
        ("search text='5 apples' limit=3;", ".run search text='5 apples' limit=3"),
        ("leaderboard", None),
        ("history env", None),
        ("SELECT 'a=b';", None),
    ],
)
def test_what_stands_for_a_command(part, command):
    assert command_of(part) == command
