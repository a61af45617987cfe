"""Retries of requests after temporary errors.

Earlier turns are neither requested nor paid for again. A model server counts its requests.
"""

import asyncio
import itertools
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from nightjar.clients import ClientConfig, resolve_client
from nightjar.core.messages import UserMessage
from nightjar.environments import MultiTurnEnv, ToolEnv
from nightjar.environments.rubrics import Rubric
from nightjar.errors import DatasetError
from nightjar.model_server import Answer, Faults, ModelServer, Script, last_user_text, tool_call
from nightjar.model_server.faults import FaultInjector

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Counting:
    def answer(self, messages):
        turn = sum(message["role"] == "assistant" for message in messages) + 1
        return Answer(question=last_user_text(messages), text=f"turn {turn}")


class Talk(MultiTurnEnv):
    """Asks for turns 2, 3, …; keeps how often rollouts were prepared and cleaned up."""

    def __init__(self, **kwargs):
        rubric = Rubric(funcs=[lambda completion: float(len(completion))])
        super().__init__(**{"dataset": [{"question": "turn 1?"}], "max_turns": 3, "rubric": rubric} | kwargs)
        self.prepared = 0

    async def setup_state(self, state):
        self.prepared += 1

    async def env_response(self, messages, state):
        return [UserMessage(content=f"turn {len(state['trajectory']) + 1}?")]


def faults_at(rate, *fails, **options):
    """Returns faults that hit exactly these of the first requests."""
    for seed in itertools.count():
        faults = Faults(**{rate: 0.5}, seed=seed, **options)
        injector = FaultInjector(faults)
        if all((injector.draw().fault is not None) == is_failing for is_failing in fails):
            return faults
    raise AssertionError


@pytest.fixture
def no_waiting(no_waiting, monkeypatch):
    monkeypatch.setattr("nightjar.clients.retries.wait_seconds", lambda *_: 0.0)


@pytest_asyncio.fixture(loop_scope="module")
async def serve():
    async with AsyncExitStack() as ending:

        def serve(answerer=None, max_retries=10, **options):
            server = ending.enter_context(ModelServer(answerer or Counting(), **options))
            client = resolve_client(ClientConfig(api_base_url=server.base_url, max_retries=max_retries))
            ending.push_async_callback(client.close)
            return server, client

        yield serve


async def evaluate(env, client, **how):
    async with asyncio.timeout(120):
        results = await env.evaluate(client, "m", **how)
    return results["outputs"]


@pytest.mark.parametrize("rate", ["rate_429", "rate_500", "rate_dropped", "rate_overloaded"])
async def test_earlier_turns_are_not_requested_again(serve, no_waiting, rate):
    server, client = serve(faults=faults_at(rate, False, True, True, False, False))
    env = Talk()
    [row] = await evaluate(env, client)
    assert [message["content"] for message in row["completion"][::2]] == ["turn 1", "turn 2", "turn 3"]
    assert (row["error"], row["attempts"], env.prepared) == (None, 1, 1)
    assert server.stats().questions == {"turn 1?": 1, "turn 2?": 1, "turn 3?": 1}
    assert server.stats().received == 5
    usage = row["token_usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (2 + 6 + 10, 6), "tokens are counted once"


async def test_tools_are_not_called_again_and_each_request_has_its_own_retries(serve, no_waiting):
    called = []

    def look(where: str) -> str:
        called.append(where)
        return "nothing"

    script = Script([tool_call("look", where="here"), tool_call("look", where="there"), "Nothing."])
    server, client = serve(script, faults=faults_at("rate_500", False, True, False, True, False))
    [row] = await evaluate(ToolEnv(tools=[look], dataset=[{"question": "Look!"}]), client)
    assert (called, row["error"]) == (["here", "there"], None)
    assert (server.stats().received, server.stats().answered) == (5, 3)
    server, client = serve(faults=faults_at("rate_500", False, True, True, False, True, True, False), max_retries=2)
    [row] = await evaluate(Talk(), client)
    assert (row["error"], server.stats().received) == (None, 7)


@pytest.mark.parametrize("max_retries", [0, 2])
async def test_no_more_retries_than_allowed(serve, no_waiting, max_retries):
    server, client = serve(faults=faults_at("rate_500", False, True, True, True, True), max_retries=max_retries)
    env = Talk()
    [row] = await evaluate(env, client)
    assert row["error"]["error"] == "ModelError"
    assert (server.stats().received, row["attempts"], env.prepared) == (2 + max_retries, 1, 1)
    assert [message["content"] for message in row["completion"] or []][:1] == ["turn 1"]


async def test_a_failed_attempt_is_repeated_from_its_start(serve, no_waiting):
    faults = faults_at("rate_500", False, True, True, False, False, False)
    server, client = serve(faults=faults, max_retries=1)
    env = Talk()
    [row] = await evaluate(env, client, max_retries=1)
    assert (row["error"], row["attempts"], env.prepared) == (None, 2, 2)
    assert server.stats().received == 6


async def test_permanent_errors_and_prompts_that_are_too_long_are_not_retried(serve, no_waiting):
    class Refusing(Counting):
        def answer(self, messages):
            if last_user_text(messages) == "turn 2?":
                raise DatasetError("I do not know")
            return super().answer(messages)

    server, client = serve(Refusing())
    [row] = await evaluate(Talk(), client, max_retries=5)
    assert "I do not know" in row["error"]["message"]
    assert (server.stats().received, row["attempts"]) == (2, 1)
    server, client = serve(max_context_tokens=5)
    [row] = await evaluate(Talk(), client, max_retries=5)
    assert (row["error"], row["stop_condition"], row["is_truncated"]) == (None, "prompt_too_long", True)
    assert server.stats().received == 2


async def test_waits_are_those_that_the_endpoint_asks_for_and_count_against_the_time_of_the_rollout(serve, monkeypatch):
    monkeypatch.setattr("nightjar.clients.retries.wait_seconds", lambda *_: 60.0)
    server, client = serve(faults=faults_at("rate_500", False, True))
    [row] = await evaluate(Talk(timeout_seconds=0.3), client, max_retries=5)
    assert (row["error"], row["stop_condition"], row["reward"]) == (None, "timeout_reached", 1.0)
    assert server.stats().received == 2
    asked_for = []

    def note(attempts, failure, _):
        asked_for.append((attempts, failure.retry_after_seconds))
        return 0.0

    monkeypatch.setattr("nightjar.clients.retries.wait_seconds", note)
    _, client = serve(faults=faults_at("rate_429", False, True, True, False, False, retry_after_seconds=7))
    [row] = await evaluate(Talk(), client)
    assert (row["error"], asked_for) == (None, [(1, 7.0), (2, 7.0)])


@pytest.mark.parametrize("method", ["run_rollout", "run_group", "rollout"])
async def test_a_rollout_or_group_outside_of_a_run_has_retries_too(serve, no_waiting, method):
    rollout_input = {"prompt": [UserMessage(content="turn 1?")], "example_id": 0, "rollout_index": 0}
    server, client = serve(faults=faults_at("rate_500", False, True, False, False))
    run = getattr(Talk(), method)
    states = await run([rollout_input] if method == "run_group" else rollout_input, client, "m", {})
    state = states[0] if method == "run_group" else states
    assert (state["error"], len(state["trajectory"]), server.stats().received) == (None, 3, 4)


async def test_a_waiting_rollout_holds_no_place(serve, monkeypatch):
    """One request at once is allowed; while one rollout waits, the other is generated."""
    monkeypatch.setattr("nightjar.clients.retries.wait_seconds", lambda *_: 0.2)
    server, client = serve(faults=faults_at("rate_500", True, False, False, False))
    asked = Talk(dataset=[{"question": "turn 1 of a?"}, {"question": "turn 1 of b?"}], max_turns=1)
    await evaluate(asked, client, max_concurrent=1)
    assert list(server.stats().questions) == ["turn 1 of b?", "turn 1 of a?"]


async def test_many_concurrent_rollouts_all_end(serve, no_waiting):
    server, client = serve(faults=Faults(rate_429=0.1, rate_500=0.1, rate_dropped=0.05, seed=4))
    env = Talk(dataset=[{"question": f"turn 1 of {number}?"} for number in range(30)])
    rows = await evaluate(env, client, max_concurrent=8)
    assert [(row["error"], row["attempts"]) for row in rows] == [(None, 1)] * 30
    assert (server.stats().answered, server.stats().received > 100) == (90, True)
