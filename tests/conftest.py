"""What tests share: states, a scripted client, and an HTTP server that answers what a test says.

Before the first test it says which will be skipped on this machine, and what changes that.
"""

import contextlib
import functools
import gc
import json
import logging
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiohttp import web

from nightjar.clients import Client
from nightjar.core.messages import AssistantMessage, Response, ResponseMessage, ToolCall, Usage, UserMessage
from nightjar.core.rollout.state import new_state

TESTS = Path(__file__).parent
# Collection makes many objects and drops hardly any: without the garbage collector it takes a third less.
gc.disable()
# Without bytecode every process would compile every test and library anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.path.append(str(TESTS / "forking"))
EXTRAS = {
    "docker": "docker",
    "gymnasium": "gym",
    "mlflow": "mlflow",
    "moto": "dev",
    "nltk": "textarena",
    "playwright": "dev",
    "reasoning_gym": "reasoning-gym",
    "s3fs": "s3",
    "textarena": "textarena",
    "vl_convert": "svg",
    "wandb": "wandb",
}
"""The modules that tests need beyond Nightjar's dependencies, and which extra brings each."""


LONGEST_FIRST = ("flows/test_services.py", "flows", "side_by_side", "durability", "processes", "repo", "warehouse")


def pytest_collection_modifyitems(items):
    """Puts the longest files first, so that at the end short ones keep every process busy."""

    def place(item):
        folder = item.nodeid.removeprefix("tests/")
        return next((n for n, first in enumerate(LONGEST_FIRST) if folder.startswith(first)), len(LONGEST_FIRST))

    items.sort(key=place)


def pytest_collection_finish(session):
    """Keeps what was collected out of all later garbage collections."""
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path, config):
    """Does not import files whose tests are all slow if slow tests are left out."""
    if "not slow" not in (config.option.markexpr or "") or not collection_path.name.startswith("test_"):
        return None
    marks = (line for line in collection_path.read_text("utf-8").splitlines() if line.startswith("pytestmark ="))
    return True if any("mark.slow" in line for line in marks) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives each process a file at a time, but all of ``flows`` to one: the server that they share starts in 20 s."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadFilesOfOneServer(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "flows" if nodeid.startswith("tests/flows/") else super()._split_scope(nodeid)

    return LoadFilesOfOneServer(config, log)


def pytest_report_header():
    return [f"will be skipped: {tests}. {remedy}" for tests, remedy in what_is_skipped()]


def what_is_skipped():
    """Yields which tests cannot run on this machine, and what to do for them to run."""
    from nightjar.sandboxes import LocalProvider

    if problem := LocalProvider.problem():
        yield "tests of sandboxes", problem
    if sys.platform != "linux" or os.geteuid() != 0:
        yield "tests that mount a disk or become another user", "Run them as root on Linux, in a container."
    if not (TESTS.parents[1] / "shared/data/gsm8k").is_dir():
        yield "tests with a real model's answers to GSM8K", "Put the data into ../shared/data/gsm8k."
    if not list(Path("~/.duckdb/extensions").expanduser().glob("*/*/ducklake.*")):
        yield "tests of DuckLake", "Install DuckDB's extension: duckdb.execute('INSTALL ducklake')."
    for module, extra in EXTRAS.items():
        if find_spec(module) is None:
            yield f"tests that need {module}", f"Install it: .venv/bin/pip install -e '.[{extra}]'."


@pytest.fixture(scope="session")
def fork():
    """Starts Nightjar's commands and other programs quickly, in processes of their own; see ``forking/forked.py``."""
    from forked import ForkServer

    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session", autouse=True)
def one_tls_context():
    """Makes the TLS context of HTTP clients once: each takes 20 ms and more, and tests make hundreds of clients."""
    import httpx

    transports = httpx._transports.default
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transports, "create_ssl_context", functools.cache(transports.create_ssl_context))
        yield


@pytest.fixture
def make_state():
    """Makes a State as ``Environment.init_state`` documents it, without an environment."""

    def make(example_id=0, rollout_index=0, *, columns=None, usage=None, **fields):
        rollout_input = {
            "prompt": [UserMessage(content="2+2?")],
            "example_id": example_id,
            "rollout_index": rollout_index,
            **(columns or {}),
        }
        state = new_state(rollout_input, model="m", trajectory_id="t", **fields)
        if usage:
            state["usage_tracker"].increment(**usage)
        return state

    return make


@pytest.fixture
def answered(make_state):
    """Makes a generated rollout of an example whose answer is 4."""

    def make(text="4", rollout_index=0, **columns):
        return make_state(
            0, rollout_index, columns={"answer": "4", **columns}, completion=[AssistantMessage(content=text)]
        )

    return make


def say(content="", *, tool_calls=None, finish_reason="stop", usage=(3, 2)):
    """Returns a model's response; usage is (prompt tokens, completion tokens), or None."""
    counts = usage and Usage(
        prompt_tokens=usage[0], completion_tokens=usage[1], reasoning_tokens=0, total_tokens=sum(usage)
    )
    return Response(
        id="r",
        created=1,
        model="served",
        usage=counts,
        message=ResponseMessage(
            content=content,
            tool_calls=tool_calls and [ToolCall(**call) for call in tool_calls],
            finish_reason=finish_reason,
            is_truncated=finish_reason == "length",
        ),
    )


@pytest.fixture
def response():
    return say


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """Takes back what a command that ran in this process has done to logging: its stderr is gone."""
    logger = logging.getLogger("nightjar")
    level, before, last_resort = logger.level, (logger.propagate, list(logger.handlers)), logging.lastResort
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers[:] = before
    logging.lastResort = last_resort


class ScriptedClient(Client):
    """Gives prepared answers in turn, raises those that are errors, and keeps what it was asked.

    An answer may be a function of the prompt; the last answer is repeated.
    """

    def __init__(self, *answers, config=None):
        super().__init__(None)
        self.config = config
        self.answers = list(answers)
        self.asked = []
        self.kwargs = []

    async def request_once(self, prompt, model, sampling_args, tools=None, **kwargs):
        self.asked.append((list(prompt), model, dict(sampling_args), tools))
        self.kwargs.append(kwargs)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer = answer(prompt) if callable(answer) else answer
        if hasattr(answer, "__await__"):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return say(answer) if isinstance(answer, str) else answer

    setup_client = to_native_prompt = to_native_tool = None
    get_native_response = raise_from_native_response = from_native_response = None

    async def close(self):
        pass


@pytest.fixture
def scripted_client():
    return ScriptedClient


@pytest.fixture
def attempt(scripted_client):
    """Makes one attempt at an example against a model with these answers; returns the state and the client."""
    from nightjar.environments import EnvironmentRollouts

    async def attempt(env, *answers, example_id=0, sampling_args=None, **columns):
        client = scripted_client(*answers)
        rollouts = EnvironmentRollouts(env, client, "m", sampling_args or {})
        return await rollouts.attempt(rollouts.input(example_id, 0) | columns), client

    return attempt


@pytest.fixture
def play(attempt):
    """Makes and scores one attempt at an example; returns the state and the client."""

    async def play(env, *answers, example_id=0):
        state, client = await attempt(env, *answers, example_id=example_id)
        await env.rubric.score_group([state])
        return state, client

    return play


@pytest.fixture
def no_waiting(monkeypatch):
    """Retries do not wait."""
    monkeypatch.setattr("nightjar.engine.limits.RetryPolicy.wait_seconds", lambda *_: 0.0)


class CannedServer:
    """Answers requests as ``reply`` says, which ``choose`` may call for each path and body; keeps what it was sent.

    ``addresses`` are the paths with their queries.
    """

    def __init__(self):
        self.status, self.headers, self.body = 200, {}, b""
        self.requests, self.addresses = [], []
        self.url = ""
        self.choose = lambda path, body: None

    def reply(self, body, status=200, **headers):
        """Sets the answer; a dict is sent as JSON, and header names are written with underscores."""
        self.status = status
        self.headers = {"Content-Type": "application/json"}
        self.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def handle(self, request):
        body = await request.read()
        sent = json.loads(body) if body else None
        self.requests.append((request.path, request.headers.copy(), sent))
        self.addresses.append(str(request.rel_url))
        self.choose(request.path, sent)
        return web.Response(status=self.status, headers=self.headers, body=self.body)


@pytest.fixture
async def canned():
    server = CannedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


@pytest.fixture
def http_server():
    """Starts HTTP servers that answer with the status, content and headers of ``reply(request, body)``."""
    with contextlib.ExitStack() as stack:

        def start(reply):
            class Handler(BaseHTTPRequestHandler):
                def do_POST(self):
                    body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                    status, content, headers = reply(self, body)
                    content = content if isinstance(content, bytes) else json.dumps(content).encode()
                    self.send_response(status, headers.get("X-Reason"))
                    for name, value in {"Content-Type": "application/json", **headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

                def log_message(self, *_):
                    pass

            Handler.do_GET = Handler.do_POST
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            server.handle_error = lambda *_: None  # a client has gone
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start


METADATA = {
    "run_id": "run-1",
    "status": "incomplete",
    "env_id": "gsm8k",
    "env_args": {"split": "test"},
    "extra_env_kwargs": {"max_turns": 4},
    "env_version": "1.2.0",
    "model": "openai/gpt-4.1-mini",
    "base_url": "https://api.example.com/v1",
    "num_examples": 2,
    "rollouts_per_example": 2,
    "sampling_args": {"temperature": 0.5},
    "dataset_fingerprint": "f00d",
    "date": "2026-11-20",
    "time": "18:00:00",
    "time_ms": 61000.5,
    "started_at": "2026-11-20T20:00:00+02:00",
    "finished_at": "2026-11-20T18:01:01Z",
    "rollouts": 4,
    "scored": 3,
    "failed": 1,
    "truncated": 1,
    "coverage": 0.75,
    "avg_reward": 0.5,
    "stderr": 0.25,
    "avg_metrics": {"correct": 0.5, "length": 12.0},
    "avg_error": 0.25,
    "pass_at_k": {"1": 0.5},
    "pass_all_k": {"1": 0.5},
    "pass_threshold": 0.5,
    "usage": {"input_tokens": 300, "output_tokens": 60},
    "errors": {"ModelError -> RateLimitError": 1},
    "stop_conditions": {"done": 3},
    "served_models": ["gpt-4.1-mini-2026"],
    "version_info": {"nightjar_version": "0.1.0", "nightjar_commit": "abc", "env_commit": "def"},
    "state_columns": [],
    "flow_run_id": None,
}

FAILURE = {
    "error": "ModelError",
    "message": "429 Too Many Requests",
    "phase": "generation",
    "error_chain_repr": "ModelError -> RateLimitError",
    "error_chain_str": "ModelError: 429",
    "traceback": None,
}


class RunWriter:
    """Writes run directories by hand, as docs/reference/run-directory.md describes them.

    Unless told otherwise, a run of two examples and two rollouts each, one of which failed.
    """

    def __init__(self):
        self.metadata = METADATA
        self.failure = FAILURE

    def rollout(self, example_id, rollout_index, reward=1.0, /, **fields):
        return {
            "example_id": example_id,
            "rollout_index": rollout_index,
            "example_hash": f"hash-{example_id}",
            "prompt": [{"role": "user", "content": "2 + 2?"}],
            "completion": [{"role": "assistant", "content": "4"}],
            "answer": "4",
            "info": {"level": 1},
            "task": "math",
            "reward": reward,
            "advantage": 0.25,
            "metrics": {"correct": reward, "length": 12.0},
            "error": None,
            "timing": {"generation_ms": 10.5, "scoring_ms": 0.5, "total_ms": 11.0},
            "is_completed": True,
            "is_truncated": False,
            "stop_condition": "done",
            "token_usage": {"input_tokens": 100, "output_tokens": 20},
            "attempts": 1,
            "model": "gpt-4.1-mini-2026",
            **fields,
        }

    def failed(self, example_id, rollout_index, /, **fields):
        nothing = {"reward": None, "advantage": None, "metrics": {}, "completion": None, "model": None}
        failure = {"error": self.failure, "attempts": 3}
        return self.rollout(example_id, rollout_index) | nothing | failure | fields

    def attempt(self, example_id, rollout_index, attempt=1, /, *, finished_at=1_795_000_000.0, error=None, **fields):
        step = {"prompt": 0, "completion": 0, "response": None, "is_truncated": False, "reward": None, "extras": {}}
        ended = {"stop_condition": "done", "is_completed": True, "is_truncated": False, "trajectory_id": "t"}
        state = {"extras": {}, "completion": [], "trajectory": [step], **ended}
        return {
            "example_id": example_id,
            "rollout_index": rollout_index,
            "example_hash": f"hash-{example_id}",
            "attempt": attempt,
            "finished_at": finished_at,
            "error": error,
            "generation_ms": 10.5,
            "token_usage": {"input_tokens": 100, "output_tokens": 20},
            "state": None if error else state,
            **fields,
        }

    @property
    def rollouts(self):
        return [self.rollout(0, 0, 1.0), self.rollout(0, 1, 0.0), self.rollout(1, 0, 0.5), self.failed(1, 1)]

    def write(self, folder, rollouts=None, attempts=None, /, **metadata):
        """Writes a run directory; a line that is text is written as it is."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metadata.json").write_text(json.dumps({**self.metadata, **metadata}))
        self._write_lines(folder / "results.jsonl", self.rollouts if rollouts is None else rollouts)
        if attempts is not None:
            self._write_lines(folder / "attempts.jsonl", attempts)
        return folder

    def _write_lines(self, path, rows):
        path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="session")
def run_writer():
    return RunWriter()


@pytest.fixture(scope="session")
def s3_variables():
    """Starts an object store, and gives the variables that say where it is."""
    moto = pytest.importorskip("moto.server", reason="needs pip install -e '.[dev]'")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    where = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    yield where | {
        "AWS_ACCESS_KEY_ID": "an-access-key", "AWS_SECRET_ACCESS_KEY": "a-secret-key",
        "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    running.stop()


@pytest.fixture
def engine():
    """The client of a real container engine; skips the test without an engine."""
    from nightjar.sandboxes import DockerProvider

    if not DockerProvider.is_available(timeout_seconds=20):
        pytest.skip("No container engine answers. Install podman (apt-get install podman) and set DOCKER_HOST")
    provider = DockerProvider()
    yield provider._client
    provider.close()
