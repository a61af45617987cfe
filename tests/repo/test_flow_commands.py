"""Flows and deployments: prefect.yaml, and the flow runs that the flows' modules say to start."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
import yaml

from nightjar.hosting.deployments import DEPLOYMENTS, deployment_name
from nightjar.hosting.server import FLOWS, POOL
from nightjar.warehouse.reading.named_queries import find_query, is_name

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
COMMANDS = {
    command
    for path in (ROOT / "flows").glob("*.py")
    for command in re.findall(r"prefect deployment run ([^\n`]+)", path.read_text())
}  # fmt: skip


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_flow_run_is_started_as_it_is_written(command: str) -> None:
    name, *options = shlex.split(command)
    flow = {deployment_name(each): each.flow for each in DEPLOYMENTS}[name]
    given = dict(option.split("=", 1) for option in options if option != "-p")
    assert given.keys() <= flow.parameters.properties.keys()
    if is_name(given.get("sql", "FROM runs")):
        assert find_query(given["sql"])


def test_prefect_yaml_declares_what_up_registers() -> None:
    text = (ROOT / "deployments" / "prefect.yaml").read_text()
    declared = yaml.safe_load(text)
    assert declared["pull"] == []
    assert declared["deployments"] == [
        {
            "name": name or flow.name, "description": description,
            "entrypoint": f"{flow.fn.__module__}.{flow.fn.__name__}", "work_pool": {"name": POOL},
        }
        for flow, description, name, _ in DEPLOYMENTS
    ]  # fmt: skip
    assert f"prefect work-pool create {POOL} --type process\n" in text
    assert f"prefect worker start --pool {POOL}\n" in text


def test_every_flow_has_a_deployment() -> None:
    flows = "".join(path.read_text() for path in (ROOT / "flows").glob("*.py"))
    named = set(re.findall(r'^@checked_flow\(\s*"([\w-]+)"', flows, re.MULTILINE))
    assert {each.flow.name for each in DEPLOYMENTS} == set(FLOWS) == named


@pytest.mark.parametrize("flow", [each.flow for each in DEPLOYMENTS], ids=lambda flow: flow.name)
def test_every_flow_validates_its_parameters(flow) -> None:
    parameters = inspect.signature(flow.fn).parameters.values()
    asked = {"env_id": "e"} if flow.name == "evaluate" else {p.name: "x" for p in parameters if p.default is p.empty}
    assert asked.items() <= flow.validate_parameters(asked).items()
