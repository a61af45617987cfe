"""What is typed or pasted at the prompt of ``nightjar sql``, taken apart."""

from nightjar.cli.sql.input import command_of, goes_on, is_whole, take_apart


def test_commands_names_and_statements():
    commands = [".tables", "leaderboard", "history env=gsm8k", "FROM runs"]
    parts = {
        "": [], "\n\n": [],
        "SELECT 1;": ["SELECT 1;"],
        "SELECT 1;\n\n  SELECT\n2;\n": ["SELECT 1;", "SELECT\n2;"],
        "SELECT 1; SELECT 2;": ["SELECT 1; SELECT 2;"],
        "SELECT 'a;\n.tables\nb';": ["SELECT 'a;\n.tables\nb';"],
        "-- first\nFROM runs; -- all\n.tables": ["-- first\nFROM runs; -- all", ".tables"],
        "\n".join(commands): commands,
        "SELCT 1;\nSELECT 2;": ["SELCT 1;", "SELECT 2;"],
        "leaderbord\nerrors;": ["leaderbord", "errors;"],
        "SELECT\n1; /* one */ -- two\nFROM\nruns ;  ": ["SELECT\n1; /* one */ -- two", "FROM\nruns ;"],
    }  # fmt: skip
    assert {text: take_apart(text) for text in parts} == parts


def test_a_statement_goes_on():
    texts = [
        "SELECT", "from", "WITH", "SELECT 1", "SELECT ';'", "FROM runs -- ;", "FROM runs;\nSELECT", "create",
        "(SELECT 1)", "-- all of them", "/* all */ FROM runs", "values (1)", "PIVOT runs", "explain", "describe runs",
        "SET x = 1", "SELECT 1\nhardset gsm8k", "SUMMARIZE runs", "'text'",
    ]  # fmt: skip
    assert [text for text in texts if not goes_on(text)] == []
    for line in ("  'a;b' AS x, -- one; of many", "", "SELECT 'it''s';"):  # thousands of lines are read once
        assert goes_on("SELECT\n" + f"{line}\n" * 2000 + "FROM")


def test_a_line_is_enough():
    texts = [
        "", ".schema runs", "leaderboard", "leaderbord", "hardest env=gsm8k", "exit", "\\d", "FROM runs;",
        "hardset gsm8k", "hardest -P env=gsm8k", "SELCT 1", "frm runs", "where is it", "search text='5",
    ]  # fmt: skip
    assert [text for text in texts if goes_on(text)] == []


def test_what_stands_for_a_command():
    commands = {
        "help": ".help", "?": ".help", "EXIT;": ".quit", "quit;": ".quit", "\\q": ".quit", "\\d": "\\d",
        ".schema runs": ".schema runs", "leaderboard": None, "SELCT a = 1": None, "update x=1": None,
        "SELECT 'a=b';": None, "search text='5 apples' limit=3;": ".run search text='5 apples' limit=3",
    }  # fmt: skip
    runs = ["hardest -P env=gsm8k --parameter limit=3", "hardset -P env=gsm8k", "hardset gsm8k", "history env"]
    runs += ["search text='5 apples", "whatever env=gsm8k"]
    commands |= {text: f".run {text}" for text in runs}
    assert {text: command_of(text) for text in commands} == commands


def test_a_command_on_a_line_of_its_own_cuts_a_statement_off():
    for command in (".quit", ".help", ".QUIT;", ".format csv", ".exit", "\\q"):
        parts = take_apart(f"SELECT run_id,\n  {command}\nleaderboard")
        assert parts == ["SELECT run_id,", command, "leaderboard"]
        assert [is_whole(part) for part in parts] == [False, True, True]
        assert not goes_on(f"SELECT run_id,\n{command}")
    for text in ("SELECT 'a\n.quit", "SELECT 1 /* a\n.quit", "SELECT $$\n.quit", "FROM runs\n.upper()"):
        assert (take_apart(text), goes_on(text)) == ([text], True)  # what only looks like a command
