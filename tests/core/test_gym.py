"""Gym servers as benchmarks and as solvers, against a server of this file."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nightjar.compat.nemo import (
    GymSolver,
    ManagedGymEnvironment,
    ModelClient,
    OracleSolver,
    ReActSolver,
    get_environment,
    run_evaluation,
)
from nightjar.compat.nemo.environments import SeedResult
from nightjar.compat.nemo.environments.gym import GymDataset, GymEnvironment
from nightjar.compat.nemo.environments.gym_protocol import (
    extract_assistant_text,
    extract_prompt_from_rcp,
    messages_from_rcp,
    wrap_text_as_gym_response,
    wrap_text_as_responses_create_params,
)
from nightjar.compat.nemo.solvers import HttpToolBackend
from nightjar.errors import ConfigError, DatasetError, Error, InfraError
from nightjar.model_server import ModelServer, Script, tool_call


class Asked(list):
    """What was asked, and the cookies that came with it."""

    def __init__(self):
        super().__init__()
        self.cookies = []


@contextmanager
def answering(answers):
    """Serves what a function of path and body returns: a status, a value, and a cookie where there is one.

    It gives the address and what was asked; ``asked.cookies`` came with that.
    """
    asked = Asked()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.path, json.loads(text) if text else None))
            asked.cookies.append((self.path, self.headers.get("Cookie")))
            status, value, *cookies = answers(*asked[-1])
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for cookie in cookies:
                self.send_header("Set-Cookie", cookie)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the library's name

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_an_agent_of_nemo_gym_answers():
    said = wrap_text_as_gym_response("It is 5") | {"usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}}
    with answering(lambda *_: (200, {"response": said, "reward": 0.25})) as (url, asked):
        task = SeedResult("4 + 1?", "5", {"gold": {"answer": 5}}, system="Be brief.")
        solver = GymSolver(url, trust_reward=True, model_id="m", model_url="http://model/v1")
        solved = await solver.solve(task)
        other = await GymSolver(url, gym_agent="simple").solve(task)
        await solver.close()
    assert (solved.response, solved.reward, other.reward) == ("It is 5", 0.25, None)
    assert (solved.model_response.prompt_tokens, solved.model_response.completion_tokens) == (7, 3)
    [(path, body), (_, named)] = asked
    asked_for = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "4 + 1?"}]
    assert (path, body["responses_create_params"]) == ("/run", {"input": asked_for, "model": "m"})
    assert (body["gold"], body["expected_answer"], body["base_url"]) == ({"answer": 5}, "5", "http://model/v1")
    assert named["agent"] == "simple"


@pytest.mark.parametrize(
    ("status", "value", "kind", "match"),
    [
        (200, b"nothing", Error, "invalid JSON"),
        (200, [], Error, "no JSON object"),
        (200, {"reward": None}, Error, "returned no numeric reward"),
        (422, {"detail": "what?"}, Error, "status 422"),
        (503, {"detail": "later"}, InfraError, "status 503"),
    ],
)
async def test_a_server_that_gives_no_reward_is_an_error_and_no_zero(status, value, kind, match):
    with answering(lambda *_: (status, value)) as (url, asked):
        env = GymEnvironment(url)
        with pytest.raises(kind, match=match):
            await env.verify("4", "4")
        await env.close()
    assert len(asked) == (3 if kind is InfraError else 1)


async def test_a_server_without_problems_says_what_to_do():
    with answering(lambda *_: (200, {})) as (url, _):
        env = GymEnvironment(url, protocol="native")
        with pytest.raises(DatasetError, match="returned no number of problems"):
            await env.dataset_size()
        with pytest.raises(DatasetError, match=r"Name a file with them: \?protocol=native&data=FILE"):
            await env.seed(0)
        await env.close()


async def test_a_server_does_not_have_files_of_this_machine_sent_to_a_model():
    with answering(lambda *_: (200, {"prompt": "?", "images": ["/etc/passwd"]})) as (url, _):
        env = GymEnvironment(url)
        with pytest.raises(DatasetError, match="returned an image that is not a URL: '/etc/passwd'"):
            await env.seed(0)
        await env.close()


async def test_a_native_server_is_sent_all_of_the_row(tmp_path):
    rows = [
        {
            "responses_create_params": {"input": "2+2?", "instructions": "Be brief."},
            "expected_answer": "4",
            "tests": [1],
        },
        {"responses_create_params": wrap_text_as_responses_create_params("3+3?"), "metadata": {"category": "even"}},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def answer(path, body):
        return (404, {}) if path == "/seed_session" else (200, body | {"reward": 1, "tests_passed": 3})

    with answering(answer) as (url, asked):
        env = get_environment(f"gym://{url[7:]}?protocol=native&data={tmp_path / 'rows.jsonl'}")
        bundle = await run_evaluation(env, OracleSolver())
        await env.close()
    assert bundle["benchmark"]["scores"]["mean_reward"]["value"] == 1.0
    scored = [body for path, body in asked if path == "/verify"]
    first, second = sorted(scored, key=lambda body: "tests" not in body)
    assert {name: first[name] for name in rows[0]} == rows[0]
    assert (first["response"]["output_text"], second["metadata"]) == ("4", {"category": "even"})
    assert [row["scoring_details"]["tests_passed"] for row in bundle["_results"]] == [3, 3]
    seed = await env.seed(0)
    assert [message["content"] for message in seed.messages] == ["Be brief.", "2+2?"]
    assert len(GymDataset(tmp_path / "rows.jsonl")) == 2


async def test_a_native_server_has_a_session_for_each_rollout(tmp_path):
    rows = [{"responses_create_params": {"input": f"{n}?"}, "expected_answer": str(n), "gold": n} for n in range(2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def answer(path, body):
        return (200, {}, f"session={body['gold']}; Path=/") if path == "/seed_session" else (200, {"reward": 1.0})

    with answering(answer) as (url, asked):
        env = get_environment(f"gym://{url[7:]}?protocol=native&data={tmp_path / 'rows.jsonl'}")
        await run_evaluation(env, OracleSolver(), n_repeats=2)
        await env.close()
    assert sorted(asked.cookies, key=str) == [
        *[("/seed_session", None)] * 4, *[("/verify", "session=0")] * 2, *[("/verify", "session=1")] * 2,
    ]  # fmt: skip
    sent = [(body["gold"], body.get("response", {}).get("output_text")) for _, body in asked]
    assert sorted(sent, key=str) == [*[(0, "0")] * 2, *[(0, None)] * 2, *[(1, "1")] * 2, *[(1, None)] * 2]


def test_texts_of_all_shapes():
    assert extract_assistant_text("4") == "4"
    assert extract_assistant_text({"output": [{"type": "reasoning"}, {"role": "assistant", "content": "4"}]}) == "4"
    assert extract_assistant_text({"choices": [{"message": {"content": None}}]}) == ""
    for wrong in (None, 4, {}, {"choices": []}):
        with pytest.raises(ValueError, match="neither a text"):
            extract_assistant_text(wrong)
    rcp = {
        "input": [
            {"role": "developer", "content": "Short."},
            {"role": "user", "content": [{"text": "2+"}, {"text": "2?"}]},
        ]
    }
    assert extract_prompt_from_rcp(rcp) == "2+2?"
    assert [message["role"] for message in messages_from_rcp(rcp)] == ["system", "user"]


def test_uris_say_what_they_mean():
    assert get_environment("gym://localhost:9090").endpoint == "http://localhost:9090"
    managed = get_environment("gym://cmd:serve --port {port}?x=1")
    assert isinstance(managed, ManagedGymEnvironment)
    with pytest.raises(ConfigError, match="unknown option 'dat'"):
        get_environment("gym://localhost:9090?dat=x")
    with pytest.raises(ConfigError, match="Unknown protocol 'x'"):
        get_environment("gym://localhost:9090?protocol=x")
    with pytest.raises(ConfigError, match="one of: server_cmd"):
        ManagedGymEnvironment()


OPENAPI = {
    "paths": {
        "/double": {
            "post": {
                "summary": "Doubles a number.",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Asked"}}}},
            }
        },
        "/verify": {"post": {}},
        "/state/{name}": {"post": {}},
        "/health": {"get": {}},
    },
    "components": {
        "schemas": {
            "Asked": {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Number"}}},
            "Number": {"type": "integer"},
        }
    },
}


async def test_a_model_calls_the_tools_of_a_server():
    def answer(path, body):
        if path == "/openapi.json":
            return 200, OPENAPI
        return (200, {"double": 2 * body["a"]}) if body["a"] < 30 else (422, {"detail": "too large"})

    turns = [tool_call("double", a=21), tool_call("double", a=99), tool_call("verify", a=1), "It is 42"]
    with answering(answer) as (url, asked), ModelServer(Script(turns), keep_requests=10) as server:
        solver = ReActSolver(ModelClient(server.url, "m"), HttpToolBackend(url, session_id="s-1"))
        solved = await solver.solve(SeedResult("21 + 21?", "42"))
        await solver.close()
        [tool] = server.requests[0].body["tools"]
    assert tool["function"] == {
        "name": "double",
        "description": "Doubles a number.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    }
    assert solved.response == "It is 42"
    told = [turn["content"] for turn in solved.trajectory if turn["role"] == "tool"]
    assert told == ['{"double": 42}', 'HTTP 422: {"detail": "too large"}', "There is no tool 'verify'"]
    assert asked[1:] == [("/double", {"session_id": "s-1", "a": a}) for a in (21, 99)]


async def test_tools_that_are_away_are_no_wrong_answer():
    with ModelServer(Script([tool_call("double", a=1)])) as server:
        solver = ReActSolver(ModelClient(server.url, "m"), HttpToolBackend("http://127.0.0.1:9"))
        with pytest.raises(InfraError, match="does not respond"):
            await solver.solve(SeedResult("?", "2"))
        await solver.close()
