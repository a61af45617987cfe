"""Gym servers as benchmarks and as solvers."""

import json

import pytest

from nightjar.errors import ConfigError, DatasetError, Error, InfraError
from nightjar.model_server import ModelServer, Script, tool_call


@pytest.fixture(scope="module")
def nemo():
    import nightjar.compat.nemo.environments.gym  # imports jinja2 and tenacity

    return nightjar.compat.nemo


@pytest.fixture
def gym(canned):
    """A server whose address has no path."""
    canned.url = canned.url.removesuffix("/v1")
    return canned


@pytest.fixture
def rows(tmp_path):
    """Writes the problems of a native server, and returns the query that names them."""

    def write(*rows):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"?protocol=native&data={tmp_path / 'rows.jsonl'}"

    return write


async def test_an_agent_of_nemo_gym_answers(gym, nemo):
    said = nemo.environments.gym_protocol.wrap_text_as_gym_response("It is 5")
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    gym.reply({"response": said | {"usage": usage}, "reward": 0.25})
    task = nemo.environments.SeedResult("4 + 1?", "5", {"gold": {"answer": 5}}, system="Be brief.")
    solver = nemo.GymSolver(gym.url, trust_reward=True, model_id="m", model_url="http://model/v1")
    other_solver = nemo.GymSolver(gym.url, gym_agent="simple")
    solved, other = await solver.solve(task), await other_solver.solve(task)
    for each in (solver, other_solver):
        await each.close()
    assert (solved.response, solved.reward, other.reward) == ("It is 5", 0.25, None)
    assert (solved.model_response.prompt_tokens, solved.model_response.completion_tokens) == (7, 3)
    [(path, _, body), (_, _, named)] = gym.requests
    asked_for = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "4 + 1?"}]
    assert (path, body["responses_create_params"]) == ("/run", {"input": asked_for, "model": "m"})
    assert (body["gold"], body["expected_answer"], body["base_url"]) == ({"answer": 5}, "5", "http://model/v1")
    assert named["agent"] == "simple"


async def test_answers_without_a_reward_and_problems_that_a_server_lacks_are_errors(gym, nemo, monkeypatch):
    endpoint = nemo.environments.gym_environment.GymEndpoint
    monkeypatch.setattr(endpoint._called.retry, "wait", lambda state: 0)
    env = nemo.environments.gym.GymEnvironment(gym.url)
    for status, value, kind, match in (
        (200, b"nothing", Error, "JSON"), (200, [], Error, "JSON object"), (200, {"reward": None}, Error, "reward"),
        (422, {"detail": "what?"}, Error, "422"), (503, {"detail": "later"}, InfraError, "503"),
    ):  # fmt: skip
        gym.requests.clear()
        gym.reply(value, status)
        with pytest.raises(kind, match=match):
            await env.verify("4", "4")
        assert len(gym.requests) == (3 if kind is InfraError else 1)
    await env.close()
    env = nemo.environments.gym.GymEnvironment(gym.url, protocol="native")
    gym.reply({})
    with pytest.raises(DatasetError, match="number of problems"):
        await env.dataset_size()
    with pytest.raises(DatasetError, match=r"\?protocol=native&data=FILE"):
        await env.seed(0)
    gym.reply({"prompt": "?", "images": ["/etc/passwd"]})
    with pytest.raises(DatasetError, match="not a URL: '/etc/passwd'"):
        await env.seed(0)
    await env.close()


async def test_a_native_server_gets_the_whole_row(gym, rows, nemo):
    asked = {"input": "2+2?", "instructions": "Be brief."}
    first = {"responses_create_params": asked, "expected_answer": "4", "tests": [1]}
    asked = nemo.environments.gym_protocol.wrap_text_as_responses_create_params("3+3?")
    second = {"responses_create_params": asked, "metadata": {"category": "even"}}

    def choose(path, body):
        gym.reply({}, 404) if path == "/seed_session" else gym.reply(body | {"reward": 1, "tests_passed": 3})

    gym.choose = choose
    env = nemo.get_environment(f"gym://{gym.url[7:]}{rows(first, second)}")
    bundle = await nemo.run_evaluation(env, nemo.OracleSolver())
    await env.close()
    assert bundle["benchmark"]["scores"]["mean_reward"]["value"] == 1.0
    scored = [body for path, _, body in gym.requests if path == "/verify"]
    with_tests, other = sorted(scored, key=lambda body: "tests" not in body)
    assert {name: with_tests[name] for name in first} == first
    assert (with_tests["response"]["output_text"], other["metadata"]) == ("4", {"category": "even"})
    assert [row["scoring_details"]["tests_passed"] for row in bundle["_results"]] == [3, 3]
    seed = await env.seed(0)
    assert [message["content"] for message in seed.messages] == ["Be brief.", "2+2?"]


async def test_a_native_server_has_a_session_for_each_rollout(gym, rows, nemo):
    def choose(path, body):
        is_new = path == "/seed_session"
        gym.reply({"reward": 1.0}, **({"Set_Cookie": f"session={body['gold']}; Path=/"} if is_new else {}))

    gym.choose = choose
    problems = [{"responses_create_params": {"input": f"{n}?"}, "expected_answer": str(n), "gold": n} for n in (0, 1)]
    env = nemo.get_environment(f"gym://{gym.url[7:]}{rows(*problems)}")
    await nemo.run_evaluation(env, nemo.OracleSolver(), n_repeats=2)
    await env.close()
    sent = [
        (path, headers.get("Cookie"), body["gold"], body.get("response", {}).get("output_text"))
        for path, headers, body in gym.requests
    ]
    assert sorted(sent, key=str) == [
        *[("/seed_session", None, 0, None)] * 2, *[("/seed_session", None, 1, None)] * 2,
        *[("/verify", "session=0", 0, "0")] * 2, *[("/verify", "session=1", 1, "1")] * 2,
    ]  # fmt: skip


def test_texts_messages_and_addresses_of_all_forms(nemo):
    gym_protocol = nemo.environments.gym_protocol
    text_of = gym_protocol.extract_assistant_text
    assert text_of("4") == "4"
    assert text_of({"output": [{"type": "reasoning"}, {"role": "assistant", "content": "4"}]}) == "4"
    assert text_of({"choices": [{"message": {"content": None}}]}) == ""
    for wrong in (None, 4, {}, {"choices": []}):
        with pytest.raises(ValueError, match="neither a text"):
            text_of(wrong)
    asked = {"role": "user", "content": [{"text": "2+"}, {"text": "2?"}]}
    rcp = {"input": [{"role": "developer", "content": "Short."}, asked]}
    assert gym_protocol.extract_prompt_from_rcp(rcp) == "2+2?"
    assert [message["role"] for message in gym_protocol.messages_from_rcp(rcp)] == ["system", "user"]
    assert nemo.get_environment("gym://localhost:9090").endpoint == "http://localhost:9090"
    assert isinstance(nemo.get_environment("gym://cmd:serve --port {port}?x=1"), nemo.ManagedGymEnvironment)
    for option, match in (("dat=x", "unknown option 'dat'"), ("protocol=x", "Unknown protocol 'x'")):
        with pytest.raises(ConfigError, match=match):
            nemo.get_environment(f"gym://localhost:9090?{option}")
    with pytest.raises(ConfigError, match="server_cmd"):
        nemo.ManagedGymEnvironment()


NUMBER, ASKED = ({"$ref": f"#/components/schemas/{name}"} for name in ("Number", "Asked"))
OPENAPI = {
    "paths": {
        "/double": {"post": {
            "summary": "Doubles a number.", "requestBody": {"content": {"application/json": {"schema": ASKED}}},
        }},
        "/verify": {"post": {}}, "/state/{name}": {"post": {}}, "/health": {"get": {}},
    },
    "components": {"schemas": {
        "Asked": {"type": "object", "properties": {"a": NUMBER}}, "Number": {"type": "integer"},
    }},
}  # fmt: skip


async def test_a_model_calls_the_tools_of_a_server_which_must_be_available(gym, nemo):
    def choose(path, body):
        if path == "/openapi.json":
            gym.reply(OPENAPI)
        else:
            gym.reply({"double": 2 * body["a"]}) if body["a"] < 30 else gym.reply({"detail": "too large"}, 422)

    gym.choose = choose
    turns = [tool_call("double", a=21), tool_call("double", a=99), tool_call("verify", a=1), "It is 42"]
    with ModelServer(Script(turns), keep_requests=10) as server:
        solver = nemo.ReActSolver(
            nemo.ModelClient(server.url, "m"), nemo.solvers.HttpToolBackend(gym.url, session_id="s-1")
        )
        solved = await solver.solve(nemo.environments.SeedResult("21 + 21?", "42"))
        await solver.close()
        [tool] = server.requests[0].body["tools"]
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert tool["function"] == {"name": "double", "description": "Doubles a number.", "parameters": parameters}
    assert solved.response == "It is 42"
    told = [turn["content"] for turn in solved.trajectory if turn["role"] == "tool"]
    assert told == ['{"double": 42}', 'HTTP 422: {"detail": "too large"}', "There is no tool 'verify'"]
    assert [body for _, _, body in gym.requests[1:]] == [{"session_id": "s-1", "a": a} for a in (21, 99)]
    with ModelServer(Script([tool_call("double", a=1)])) as server:
        solver = nemo.ReActSolver(nemo.ModelClient(server.url, "m"), nemo.solvers.HttpToolBackend("http://127.0.0.1:9"))
        with pytest.raises(InfraError, match="does not respond"):
            await solver.solve(nemo.environments.SeedResult("?", "2"))
        await solver.close()
