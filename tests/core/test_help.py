"""What ``--help`` shows on a terminal of 80 columns."""

import inspect
from importlib import import_module

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import COMMANDS, GROUPS, app, summary


@pytest.fixture
def shown(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def shown(command):
        ended = CliRunner().invoke(app, [*command.split(), "--help"])
        assert ended.exit_code == 0
        return ended.output

    return shown


@pytest.mark.slow
def test_every_command_has_help_of_which_nothing_is_cut_off_and_a_summary(shown):
    texts = [shown(command) for command in ("", *GROUPS, *COMMANDS)]
    assert [text for text in texts if "Usage:" not in text or "…" in text] == []
    for command, place in COMMANDS.items():
        module, _, name = place.partition(":")
        docstring = inspect.getdoc(getattr(import_module(f"nightjar.cli.{module}"), name))
        assert " ".join(docstring.split("\n\n")[0].split()) == summary(command)


def test_lines_end_where_the_terminal_does(shown):
    first, second = shown("eval run").splitlines()[5:7]
    assert first.strip() == "The run appears in the Prefect UI if a Prefect server is configured, or"
    assert second.strip() == "'nightjar up' runs one; otherwise it runs in this process. Every finished"
