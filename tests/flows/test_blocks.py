"""Blocks: Prefect's own tests of them, and runs that name them on a real server."""

import itertools
import json
import os
import re
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prefect.logging.handlers import APILogWorker
from prefect.testing.standard_test_suites import BlockStandardTestSuite

from nightjar import blocks
from nightjar.blocks import EnvironmentSecrets, HubPublisher, ModelEndpoint, ResultsWarehouse
from nightjar.core.messages import UserMessage
from nightjar.errors import ConfigError
from nightjar.flows.evaluation import evaluate
from nightjar.model_server import ArithmeticSolver, ModelServer
from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.long

BLOCKS = [getattr(blocks, name) for name in blocks.__all__]
KEY, TEAM, JUDGE = "sk-key-tell-nobody-0123456789", "team-tell-nobody-0123456789", "judge-tell-nobody-0123456789"
PASSWORD, LITERAL = "password-tell-nobody-0123456789", "literal-tell-nobody-0123456789"


@pytest.mark.parametrize("block", BLOCKS)
class TestStandard(BlockStandardTestSuite):
    @pytest.fixture
    def block(self, request):
        return request.param

    def test_has_a_valid_image(self, block):
        """Prefect's own test downloads the logo; this one checks that it is a logo of Prefect's."""
        assert str(block._logo_url).startswith("https://raw.githubusercontent.com/PrefectHQ/")


@pytest.mark.parametrize("block", BLOCKS)
def test_slug_and_schema_version_are_explicit(block):
    assert block.get_block_type_slug().startswith("nightjar-")
    assert block._block_type_slug == block.get_block_type_slug()
    assert block.get_block_schema_version() == "1.0.0"


def test_fields_are_only_added_with_defaults():
    """Users have saved blocks with these fields, so they stay; new fields have defaults."""
    saved = {
        EnvironmentSecrets: {"values"},
        HubPublisher: {"repo_name", "token", "private"},
        ModelEndpoint: {
            "provider", "base_url", "model", "client_type", "key", "key_variable", "headers", "max_concurrent",
            "request_timeout", "input_price", "output_price",
        },
        ResultsWarehouse: {"location"},
    }  # fmt: skip
    for block, fields in saved.items():
        assert fields <= block.model_fields.keys()
        assert {name for name, field in block.model_fields.items() if field.is_required()} <= {"location"}


class TestModelEndpoint:
    async def test_gives_a_client_and_leaves_the_environment_unchanged(self):
        before = dict(os.environ)
        with ModelServer(ArithmeticSolver(), require_key=KEY) as server:
            endpoint = ModelEndpoint(base_url=server.url, key=KEY)
            async with endpoint.get_client() as client:
                response = await client.get_response([UserMessage(content="2 + 2?")], "any", {})
        assert "4" in str(response.message.content)
        assert dict(os.environ) == before

    def test_shows_no_secret(self):
        endpoint = ModelEndpoint(provider="openai", key=KEY, headers={"X-Team": TEAM})
        shown = f"{endpoint!r} {endpoint} {endpoint.model_dump_json()} {endpoint.client_config()!r}"
        assert KEY not in shown
        assert TEAM not in shown

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({}, "neither a provider nor a base URL"),
            ({"base_url": f"http://user:{PASSWORD}@host/v1"}, "must not hold a user, a password"),
            ({"provider": "openai", "headers": {"X-Team": [TEAM]}}, "the value of header 'X-Team' must be a text"),
        ],
        ids=str,
    )
    def test_a_validation_error_hides_the_value(self, fields, message):
        with pytest.raises(ValueError, match=message) as caught:
            ModelEndpoint(**fields)
        assert "tell-nobody" not in str(caught.value)


class Echo(BaseHTTPRequestHandler):
    """Returns the headers of each request, every other time in an error."""

    asked = itertools.count()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        said = json.dumps(dict(self.headers.items()))
        is_error = next(self.asked) % 2
        message = {"role": "assistant", "content": f"{said} \\boxed{{1}}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        body = json.dumps({"error": {"message": f"Rejected: {said}"}} if is_error else answer).encode()
        self.send_response(500 if is_error else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def echo():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


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
SECRETS = {"key": KEY, "team": TEAM, "judge": JUDGE, "password": PASSWORD, "literal": LITERAL}
NAMED = {"env_id": "careless", "endpoint": "vault", "secrets": "judges", "warehouse": "block:team"}


@pytest.fixture(scope="module")
def vault(prefect_server, echo):
    """Saves the blocks that the runs of these tests name."""
    secrets = {"key": KEY, "headers": {"X-Team": TEAM}}
    ModelEndpoint(base_url=echo, model="m", max_concurrent=4, input_price=0.4, **secrets).save("vault")
    EnvironmentSecrets(values={"JUDGE_API_KEY": JUDGE}).save("judges")
    ResultsWarehouse(location="outputs/of-the-team").save("team")


def read_run(folder):
    """Returns the attempts and the configuration of the one run."""
    [config] = folder.rglob("config.json")
    return config.with_name("attempts.jsonl").read_text(), json.loads(config.read_text())


def found_in(*folders):
    """Returns the secrets found in run directories, logs and the database of Prefect's server, each with its place."""
    contents = {}
    for path in [path for folder in folders for path in folder.rglob("*")]:
        with suppress(OSError):  # it was there a moment ago
            contents[str(path)] = path.read_bytes() if path.is_file() else b""
    assert any(b"[secret]" in text for path, text in contents.items() if "prefect.db" in path)
    for kind in ("runs", "rollouts", "attempts", "examples"):
        contents[kind] = str(Warehouse("outputs/of-the-team").query(f"FROM segments.{kind}").rows).encode()
    return {
        f"{name} in {path}" for path, text in contents.items() for name in SECRETS if SECRETS[name].encode() in text
    }


WRITTEN_OUT = [
    {"base_url": f"http://user:{PASSWORD}@127.0.0.1/v1"},
    {"sampling_args": {"extra_headers": {"X-Team": LITERAL}}},
    {"headers": {"X-Team": LITERAL}},
]


@pytest.mark.slow
@pytest.mark.usefixtures("vault")
async def test_secrets_reach_a_run_and_are_written_nowhere(services, own_folder):
    (own_folder / "environments").mkdir()
    (own_folder / "environments" / "careless.py").write_text(CARELESS)
    before = dict(os.environ)
    size = {"num_examples": 12, "rollouts_per_example": 2, "request_retries": 0}
    ended = await evaluate(**NAMED, **size, return_state=True)
    assert ended.is_failed()
    assert "The judge refuses [secret]" in ended.message
    assert "Rejected: " in ended.message
    broken = await evaluate(**NAMED, env_args={"is_broken": True}, return_state=True)
    assert "No judge takes [secret]" in broken.message
    assert dict(os.environ) == before

    for wrong in WRITTEN_OUT:
        with pytest.raises(ConfigError, match=r"because it is (stored|written down)"):
            await evaluate(env_id="arithmetic", **wrong)
    for wrong in [*WRITTEN_OUT, {"warehouse": f"ducklake:postgres:dbname=runs password={PASSWORD}"}]:
        refused = services.create("evaluate", {"env_id": "arithmetic", **wrong})
        assert refused.is_client_error, "the form is refused before Prefect writes it down"
        assert re.search("is (stored|written down)", refused.text)

    APILogWorker.instance().drain()
    attempts, config = read_run(own_folder)
    assert "X-Team" in attempts
    assert (config["api_key_var"], config["headers"]) == ("NIGHTJAR_VAULT_KEY", {"X-Team": "$NIGHTJAR_VAULT_HEADER_1"})
    assert config["max_concurrent"] == 4
    published = Warehouse("outputs/of-the-team")
    assert published.query("SELECT max(reward) FROM rollouts").rows == [(len(JUDGE),)]
    assert published.query("SELECT model, input FROM prices").rows == [("m", 0.4)]
    assert found_in(services.folder, own_folder) == set()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"endpoint": "nowhere"},
            "There is no ModelEndpoint block 'nowhere'; known blocks: vault. Create one in the UI: Blocks",
        ),
        ({"base_url": "http://127.0.0.1:1/v1"}, "Block 'vault' sets the endpoint: remove base_url"),
        ({"warehouse": "ducklake:postgres:dbname=runs password=s3cret"}, "holds a secret"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("vault")
async def test_a_wrong_block_or_warehouse_fails_the_run_with_the_reason(wrong, message):
    ended = await evaluate(**{**NAMED, **wrong}, return_state=True)
    assert ended.is_failed()
    assert message in ended.message
