"""Flows and deployments: prefect.yaml, and the flow runs that the flows' modules say to start."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
import yaml

from nightjar.hosting.server import FLOWS, POOL
from nightjar.warehouse.reading.named_queries import find_query, is_name

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def deployments():
    from nightjar.hosting import deployments

    return deployments


def test_a_flow_run_is_started_as_it_is_written(deployments):
    text = "".join(path.read_text() for path in (ROOT / "flows").glob("*.py"))
    commands = re.findall(r"prefect deployment run ([^\n`]+)", text)
    assert len(commands) > 5
    flows = {deployments.deployment_name(each): each.flow for each in deployments.DEPLOYMENTS}
    for command in commands:
        name, *options = shlex.split(command)
        given = dict(option.split("=", 1) for option in options if option != "-p")
        assert given.keys() <= flows[name].parameters.properties.keys()
        if is_name(given.get("sql", "FROM runs")):
            assert find_query(given["sql"])


def test_prefect_yaml_declares_what_up_registers(deployments):
    text = (ROOT / "deployments" / "prefect.yaml").read_text()
    declared = yaml.safe_load(text)
    assert declared["pull"] == []
    assert declared["deployments"] == [
        {
            "name": name or flow.name, "description": description,
            "entrypoint": f"{flow.fn.__module__}.{flow.fn.__name__}", "work_pool": {"name": POOL},
        }
        for flow, description, name, _ in deployments.DEPLOYMENTS
    ]  # fmt: skip
    assert f"prefect work-pool create {POOL} --type process\n" in text
    assert f"prefect worker start --pool {POOL}\n" in text


def test_every_flow_has_a_deployment_and_validates_its_parameters(deployments):
    flows = [each.flow for each in deployments.DEPLOYMENTS]
    text = "".join(path.read_text() for path in (ROOT / "flows").glob("*.py"))
    named = set(re.findall(r'^@checked_flow\(\s*"([\w-]+)"', text, re.MULTILINE))
    assert {flow.name for flow in flows} == set(FLOWS) == named
    for flow in flows:
        parameters = inspect.signature(flow.fn).parameters.values()
        needed = {p.name: "x" for p in parameters if p.default is p.empty}
        asked = {"env_id": "e"} if flow.name == "evaluate" else needed
        assert asked.items() <= flow.validate_parameters(asked).items()
