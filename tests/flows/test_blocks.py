"""Blocks: Prefect's own tests of them, and runs that name them on a real server."""

import json
import os
import re

import pytest

from nightjar.core.messages import UserMessage
from nightjar.errors import ConfigError
from nightjar.model_server import ArithmeticSolver, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

KEY, TEAM, JUDGE = "sk-key-tell-nobody-0123456789", "team-tell-nobody-0123456789", "judge-tell-nobody-0123456789"
PASSWORD, LITERAL = "password-tell-nobody-0123456789", "literal-tell-nobody-0123456789"
SAVED = {
    "EnvironmentSecrets": {"values"},
    "HubPublisher": {"repo_name", "token", "private"},
    "ModelEndpoint": {
        "provider", "base_url", "model", "client_type", "key", "key_variable", "headers", "max_concurrent",
        "request_timeout", "input_price", "output_price",
    },
    "ResultsWarehouse": {"location"},
}  # fmt: skip
"""The fields of blocks that users have saved: they stay, and new fields have defaults."""


@pytest.fixture(scope="module")
def blocks(prefect):
    from nightjar import blocks

    return blocks


def test_every_block_passes_prefects_own_tests_and_keeps_its_slug_version_and_fields(blocks):
    from prefect.testing.standard_test_suites import BlockStandardTestSuite

    own = BlockStandardTestSuite
    assert {*SAVED} == {*blocks.__all__}
    for block, saved in ((getattr(blocks, name), fields) for name, fields in SAVED.items()):
        own.test_has_a_description(own, block)
        own.test_has_a_documentation_url(own, block)
        own.test_all_fields_have_a_description(own, block)
        own.test_has_a_valid_code_example(own, block)
        assert str(block._logo_url).startswith("https://raw.githubusercontent.com/PrefectHQ/")
        assert block.get_block_type_slug() == block._block_type_slug
        assert block._block_type_slug.startswith("nightjar-")
        assert block.get_block_schema_version() == "1.0.0"
        assert saved <= block.model_fields.keys()
        assert {name for name, field in block.model_fields.items() if field.is_required()} <= {"location"}


async def test_an_endpoint_gives_a_client_and_leaves_the_environment_unchanged(blocks):
    before = dict(os.environ)
    with ModelServer(ArithmeticSolver(), require_key=KEY) as server:
        async with blocks.ModelEndpoint(base_url=server.url, key=KEY).get_client() as client:
            response = await client.get_response([UserMessage(content="2 + 2?")], "any", {})
    assert "4" in str(response.message.content)
    assert dict(os.environ) == before


def test_an_endpoint_and_its_validation_errors_show_no_secret(blocks):
    endpoint = blocks.ModelEndpoint(provider="openai", key=KEY, headers={"X-Team": TEAM})
    shown = f"{endpoint!r} {endpoint} {endpoint.model_dump_json()} {endpoint.client_config()!r}"
    for fields, message in (
        ({}, "neither a provider nor a base URL"),
        ({"base_url": f"http://user:{PASSWORD}@host/v1"}, "must not hold a user, a password"),
        ({"provider": "openai", "headers": {"X-Team": [TEAM]}}, "the value of header 'X-Team' must be a text"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            blocks.ModelEndpoint(**fields)
        shown += str(caught.value)
    assert "tell-nobody" not in shown


CARELESS = """
import logging, os
import nightjar as vf

def reward(completion, answer) -> float:
    key = os.environ["JUDGE_API_KEY"]
    logging.getLogger("nightjar.careless").warning("The judge's key is %s", key)
    if answer == "1":
        raise RuntimeError(f"The judge refuses {key}")
    return float(len(key))

def load_environment(is_broken=False):
    if is_broken:
        raise RuntimeError(f"No judge takes {os.environ['JUDGE_API_KEY']}")
    rows = [{"question": f"{n} + 1?", "answer": str(n % 3)} for n in range(12)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[reward]))
"""
NAMED = {"env_id": "careless", "endpoint": "vault", "secrets": "judges", "warehouse": "block:team"}
WRITTEN_OUT = [
    {"base_url": f"http://user:{PASSWORD}@127.0.0.1/v1"},
    {"sampling_args": {"extra_headers": {"X-Team": LITERAL}}},
    {"headers": {"X-Team": LITERAL}},
]


async def test_blocks_reach_a_run_and_wrong_blocks_and_written_out_secrets_are_refused(
    services, blocks, in_process, own_folder
):
    evaluate = in_process.evaluate
    (own_folder / "environments").mkdir()
    (own_folder / "environments" / "careless.py").write_text(CARELESS)
    before = dict(os.environ)
    size = {"num_examples": 12, "rollouts_per_example": 2, "request_retries": 0}
    with ModelServer(ArithmeticSolver(), require_key=KEY, keep_requests=100) as model:
        prices = {"input_price": 0.4, "max_concurrent": 4}
        endpoint = blocks.ModelEndpoint(base_url=model.url, model="m", key=KEY, headers={"X-Team": TEAM}, **prices)
        await endpoint.asave("vault")
        await blocks.EnvironmentSecrets(values={"JUDGE_API_KEY": JUDGE}).asave("judges")
        await blocks.ResultsWarehouse(location="outputs/of-the-team").asave("team")
        for wrong, message in (
            (size, "The judge refuses [secret]"),
            ({"env_args": {"is_broken": True}}, "No judge takes [secret]"),
            ({"endpoint": "nowhere"}, "There is no ModelEndpoint block 'nowhere'; known blocks: vault. "),
            ({"base_url": "http://127.0.0.1:1/v1"}, "Block 'vault' sets the endpoint: remove base_url"),
            ({"warehouse": "ducklake:postgres:dbname=runs password=s3cret"}, "holds a secret"),
        ):
            ended = await evaluate(**{**NAMED, **wrong}, return_state=True)
            assert ended.is_failed()
            assert message in ended.message
    assert dict(os.environ) == before

    for wrong in WRITTEN_OUT:
        with pytest.raises(ConfigError, match=r"because it is (stored|written down)"):
            await evaluate(env_id="arithmetic", **wrong)
    for wrong in [*WRITTEN_OUT, {"warehouse": f"ducklake:postgres:dbname=runs password={PASSWORD}"}]:
        refused = services.create("evaluate", {"env_id": "arithmetic", **wrong})
        assert refused.is_client_error, "the form is refused before Prefect writes it down"
        assert re.search("is (stored|written down)", refused.text)

    assert {request.headers["X-Team"] for request in model.requests} == {TEAM}
    [config] = (json.loads(path.read_text()) for path in own_folder.rglob("config.json"))
    assert (config["api_key_var"], config["headers"]) == ("NIGHTJAR_VAULT_KEY", {"X-Team": "$NIGHTJAR_VAULT_HEADER_1"})
    assert config["max_concurrent"] == 4
    published = Warehouse("outputs/of-the-team")
    assert published.query("SELECT max(reward) FROM rollouts").rows == [(len(JUDGE),)]
    assert published.query("SELECT model, input FROM prices").rows == [("m", 0.4)]
