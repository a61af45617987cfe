"""A night that ends with a gate, and a gate of its own, on a real server."""

import json

import pytest

from nightjar.model_server import ArithmeticSolver, ModelServer

pytestmark = pytest.mark.long

SUITE = """\
model = "gated"
api_base_url = "{url}"
num_examples = 40
rollouts_per_example = 1
request_retries = 0

[[eval]]
env_id = "arithmetic"
"""


async def test_a_no_go_of_the_gate_fails_the_night(services, run_deployed):
    (services.folder / "gate.yaml").write_text("version: 1\nbaseline: {accepted_nights: 7}\n")
    states = {}
    for night, error_rate in {"2026-11-20": 0.0, "2026-11-21": 1.0}.items():
        with ModelServer(ArithmeticSolver(error_rate)) as server:
            (services.folder / "gated.toml").write_text(SUITE.format(url=server.url))
            told = {"suite": "gated.toml", "night": night, "in_place": True, "gate": "gate.yaml"}
            states[night] = (await run_deployed("benchmark/nightly-benchmark", **told))["state"]
    first, second = states.values()
    assert first["type"] == "COMPLETED"
    assert "; gate INCONCLUSIVE: 1 of 1 benchmarks undecided: arithmetic" in first["message"]
    assert (second["type"], second["name"]) == ("FAILED", "NO-GO")
    assert "; gate NO-GO: 1 of 1 benchmarks did not pass: arithmetic (supporting)" in second["message"]
    nights = json.loads(services.run("nights", "--suite", "gated", "--json").stdout)
    assert {night["line"] for night in nights} == {first["message"], second["message"]}

    again = await run_deployed("gate", policy="gate.yaml", suite="gated")
    assert (again["state_type"], again["state_name"]) == ("FAILED", "NO-GO")
    assert services.artifact(again["id"], "gate-gated").startswith("## NO-GO\n\n1 of 1 benchmarks did not pass")
    asked = services.run("sql", "SELECT night, verdict FROM gate_decisions WHERE suite = 'gated'", "--format", "csv")
    assert sorted(asked.stdout.split()[1:]) == ["2026-11-20,INCONCLUSIVE", "2026-11-21,NO-GO", "2026-11-21,NO-GO"]
