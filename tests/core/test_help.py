"""What ``--help`` shows on a terminal of 80 columns."""

import inspect
from importlib import import_module

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import COMMANDS as TABLE
from nightjar.cli.app import GROUPS, app, summary

COMMANDS = [
    "", "demo", "sql", "publish", "up", "status", "deploy", "down", "model-server",
    "eval", "eval run", "eval list", "eval get", "eval stats", "eval samples", "eval report", "eval merge",
    "eval view-config", "eval push", "eval pull", "eval logs", "eval stop", "eval retry", "eval rescore", "eval repair",
    "eval", "eval run", "eval list", "eval get", "eval stats", "eval samples", "eval view-config", "eval push",
    "eval pull", "eval logs", "eval stop", "eval retry", "eval rescore", "eval repair",
    "config", "config show", "config get", "config set", "config unset",
    "cache", "cache info", "cache clear", "view", "export", "compare", "gate", "trend", "plan", "leaderboard",
    "nights", "nights show", "nights accept", "nights judge",
    "list", "serve", "validate", "package", "data", "data get",
    "env", "env init", "env install", "env list", "env validate",
    "warehouse", "warehouse info", "warehouse doctor", "warehouse rebuild", "warehouse import", "warehouse export",
    "warehouse compact", "warehouse prune", "warehouse prices", "warehouse prices set", "warehouse prices remove",
]  # fmt: skip


@pytest.fixture
def shown(monkeypatch):
    def shown(command):
        monkeypatch.setenv("COLUMNS", "80")
        ended = CliRunner().invoke(app, [*command.split(), "--help"])
        assert ended.exit_code == 0
        return ended.output

    return shown


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_cut_off(shown, command):
    assert "…" not in shown(command)


def test_the_list_of_commands_above_is_complete():
    assert set(COMMANDS) - {""} == {*TABLE, *GROUPS}


@pytest.mark.parametrize("command", TABLE)
def test_the_list_of_commands_says_what_the_command_does(command):
    module, _, name = TABLE[command].partition(":")
    docstring = inspect.getdoc(getattr(import_module(f"nightjar.cli.{module}"), name))
    assert " ".join(docstring.split("\n\n")[0].split()) == summary(command)


def test_lines_end_where_the_terminal_does(shown):
    first, second = shown("eval run").splitlines()[5:7]
    assert first.strip() == "The run appears in the Prefect UI if a Prefect server is configured, or"
    assert second.strip() == "'nightjar up' runs one; otherwise it runs in this process. Every finished"
