"""The flow runs that the README and the flows' modules say to start: the deployments and parameters are there."""

import re
import shlex
from pathlib import Path

import pytest

from nightjar.hosting.deployments import DEPLOYMENTS, deployment_name
from nightjar.warehouse.reading.named_queries import find_query, is_name

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *(f"flows/{path.name}" for path in (ROOT / "flows").glob("*.py")))
COMMANDS = {
    command
    for page in PAGES
    for command in re.findall(r"prefect deployment run ([^\n`]+)", (ROOT / page).read_text())
}  # fmt: skip


def test_the_readme_says_how_a_query_is_started() -> None:
    assert "query/query -p sql=leaderboard" in COMMANDS


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_flow_run_is_started_as_it_is_written(command: str) -> None:
    name, *options = shlex.split(command)
    flow = {deployment_name(each): each.flow for each in DEPLOYMENTS}[name]
    given = dict(option.split("=", 1) for option in options if option != "-p")
    assert given.keys() <= flow.parameters.properties.keys()
    if is_name(given.get("sql", "FROM runs")):
        assert find_query(given["sql"])
