"""Agent programs as environments: real processes, a real bridge, and the model server as the model under test."""

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest
from waiting import until

from nightjar.clients import ClientConfig
from nightjar.environments import tear_down
from nightjar.environments.agents.cli_agent_env import CliAgentEnv
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ModelError, OverlongPromptError, SandboxError
from nightjar.model_server import Faults, ModelServer, Script, tool_call

AGENT = '''
"""An agent with one tool, which adds numbers, in the protocol and with the key of its environment."""
import json, os, sys, urllib.request

TOOL = {"name": "add", "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}

def ask(messages, **fields):
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "max_tokens": 50, "temperature": 0.9,
            "tools": [{"type": "function", "function": TOOL}], **fields}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)["choices"][0]["message"]

def main(question):
    messages = [{"role": "system", "content": "You add."}, {"role": "user", "content": question}]
    while True:
        said = ask(messages)
        messages.append({name: said[name] for name in ("role", "content", "tool_calls") if name in said})
        if not said.get("tool_calls"):
            break
        for call in said["tool_calls"]:
            numbers = json.loads(call["function"]["arguments"])
            print("add", *numbers.values(), flush=True)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(sum(numbers.values()))})
    with open("answer", "w") as answer:
        answer.write(said["content"])
'''
ADDS = Script(
    [tool_call("add", a=1, b=2), tool_call("add", a=3, b=4), lambda messages: f"It is {messages[-1]['content']}."]
)


async def reads_answer(state):
    return float(state.get("answer_file") == state["answer"])


def read(sandbox, name):
    """Returns the text of a file in the sandbox's folder, or None."""
    path = Path(sandbox.workspace, name)
    return path.read_text() if path.exists() else None


class LocalAgentEnv(CliAgentEnv):
    """Runs agents as processes of this machine, and takes notes of its hooks."""

    def __init__(self, sandbox, source="main('1 + 2 + 4?')", **options):
        Path(sandbox.workspace, "agent.py").write_text(AGENT + source)
        command = options.pop("run_command", f"exec {sys.executable} -S agent.py")
        rubric = options.pop("rubric", None) or Rubric(funcs=[reads_answer])
        super().__init__(command, dataset=[{"question": "1+2+4?", "answer": "It is 7."}], rubric=rubric, **options)
        self.sandbox, self.hooks = sandbox, []

    async def start_sandbox(self, state):
        self.hooks.append("start_sandbox")
        return self.sandbox, "127.0.0.1"

    async def post_sandbox_setup(self, state):
        self.hooks.append("post_sandbox_setup")
        await self.sandbox_of(state).upload(b"ready", "setup")

    async def build_env_vars(self, state):
        self.hooks.append("build_env_vars")
        return await super().build_env_vars(state) | {"RUN": state["rollout_id"]}

    async def post_rollout(self, state):
        self.hooks.append("post_rollout")
        state["answer_file"] = read(self.sandbox, "answer")


@pytest.fixture
def make_env(plain_sandbox):
    def make(source="main('1 + 2 + 4?')", **options):
        return LocalAgentEnv(plain_sandbox, source, **options)

    return make


async def evaluated(env, server, protocol="openai_chat_completions", **how):
    """Evaluates an environment against a model server; returns the rows of its rollouts."""
    results = await env.evaluate(ClientConfig(api_base_url=server.base_url, client_type=protocol), "local", **how)
    await tear_down(env)
    return results["outputs"]


async def test_an_agent_with_two_tool_turns_is_answered_recorded_and_scored(make_env, plain_sandbox, tmp_path):
    env = make_env(environment_vars={"MINE": "7"})
    with ModelServer(ADDS, keep_requests=5) as server:
        [row] = await evaluated(env, server, sampling_args={"temperature": 0.5}, results_path=tmp_path / "run")
        requests = server.requests
    assert row["prompt"] == [{"role": "system", "content": "You add."}, {"role": "user", "content": "1 + 2 + 4?"}]
    assert [(each["role"], each.get("content")) for each in row["completion"]] == [
        ("assistant", None), ("tool", "3"), ("assistant", None), ("tool", "7"), ("assistant", "It is 7."),
    ]  # fmt: skip
    assert row["completion"][0]["tool_calls"][0]["name"] == "add"
    assert (row["reward"], row["stop_condition"], row["error"]) == (1.0, "agent_completed", None)
    assert row["metrics"] == {"reads_answer": 1.0, "num_turns": 3.0, "agent_timeout": 0.0, "agent_error": 0.0}
    assert (row["agent_exit_code"], row["agent_log"]) == (0, "add 1 2\nadd 3 4\n")
    assert [len(request.body["messages"]) for request in requests] == [2, 4, 6]
    sent = requests[0].body
    assert sent["tools"][0]["function"]["name"] == "add"
    assert (sent["model"], sent["temperature"], sent["max_completion_tokens"]) == ("local", 0.5, 50)
    assert env.hooks == ["start_sandbox", "post_sandbox_setup", "build_env_vars", "post_rollout"]
    assert (plain_sandbox.closed, env._agents) == (1, {})
    [attempt] = [json.loads(line) for line in (tmp_path / "run/attempts.jsonl").read_text().splitlines()]
    assert [step["prompt"] for step in attempt["state"]["trajectory"]] == [2, 4, 6]  # each message is stored once


async def test_the_model_may_have_another_protocol_than_the_agent(make_env):
    source = """
def ask(messages, ask=ask):
    return ask(messages, tool_choice={"type": "function", "function": {"name": "add"}}, parallel_tool_calls=False)
main('1 + 2 + 4?')
"""
    for protocol, choice in {
        "openai_chat_completions": {"type": "function", "function": {"name": "add"}},
        "openai_responses": {"type": "function", "name": "add"},
        "anthropic_messages": {"type": "tool", "name": "add", "disable_parallel_tool_use": True},
    }.items():
        with ModelServer(ADDS, keep_requests=5) as server:
            [row] = await evaluated(make_env(source), server, protocol)
            choices = [request.body["tool_choice"] for request in server.requests]
        assert (row["reward"], choices) == (1.0, [choice] * 3)


async def test_a_program_that_ends_without_an_answer_is_scored(make_env, play):
    for source, exit_code, log, turns, metric in (
        ("sys.exit(3)", 3, "", 0, 1.0),
        ("print('done')", 0, "done\n", 0, 0.0),
        ("ask([{'role': 'user', 'content': '1 + 1?'}]); os._exit(4)", 4, "", 1, 1.0),
    ):
        state, _ = await play(make_env(source), "2")
        assert (state["error"], state["stop_condition"], len(state["trajectory"])) == (None, "agent_completed", turns)
        found = (state["agent_exit_code"], state["agent_log"], state["metrics"]["agent_error"])
        assert found == (exit_code, log, metric)


@pytest.mark.parametrize(
    ("error", "status", "stop_condition"),
    [
        (ModelError("Model 'm': http://intern/v1 failed"), "502 Bad Gateway", "has_error"),
        (OverlongPromptError("too long"), "400 Bad Request", "prompt_too_long"),
    ],
)
async def test_an_error_of_the_model_reaches_the_agent_and_ends_the_rollout(
    make_env, attempt, error, status, stop_condition
):
    source = """
try:
    main('1 + 1?')
except urllib.error.HTTPError as error:
    open("error.new", "w").write(f"{error.code} {error.reason} {error.read().decode()}")
    os.rename("error.new", "error")
"""
    env = make_env(source, run_command=f"{sys.executable} -S agent.py; sleep 60")
    end_program = env._end_program

    async def end_later(agent, state):
        await asyncio.to_thread(until, lambda: read(env.sandbox, "error"))
        await end_program(agent, state)

    env._end_program = end_later
    state, _ = await attempt(env, error)
    assert (state["stop_condition"], state["agent_exit_code"]) == (stop_condition, None)
    assert state["error"] is (error if stop_condition == "has_error" else None)
    told = read(env.sandbox, "error")
    assert (told.startswith(status), "intern" in told) == (True, False)


async def test_an_agent_out_of_time_is_killed_and_scored_and_no_hook_limits_its_pauses(make_env, play, attempt):
    env = make_env("main('1 + 1?'); import time; time.sleep(60)", timeout_seconds=2)
    state, _ = await play(env, "It is 7.")
    assert (state["stop_condition"], state["error"], state["reward"]) == ("timeout_reached", None, 1.0)
    assert (state["metrics"]["agent_timeout"], state["metrics"]["agent_error"]) == (1.0, 0.0)
    assert (state["agent_exit_code"], state["completion"][-1].content) == (None, "It is 7.")
    env = make_env("import time; time.sleep(0.5); main('1 + 1?')", hook_timeout_seconds=0.3)
    state, _ = await attempt(env, "It is 7.")
    assert (state["error"], state["answer_file"]) == (None, "It is 7.")


async def test_max_turns_ends_the_program_and_a_call_without_an_id_gets_one(make_env, attempt, response):
    def call(prompt):
        arguments = f'{{"a": {len(prompt)}}}'
        return response(
            None, tool_calls=[{"id": "", "name": "add", "arguments": arguments}], finish_reason="tool_calls"
        )

    state, client = await attempt(make_env(max_turns=2), call)
    assert (state["stop_condition"], len(client.asked), state["agent_exit_code"]) == ("max_turns_reached", 2, None)
    state, client = await attempt(make_env(), call, "It is 7.")
    prompt = client.asked[1][0]
    [called] = prompt[2].tool_calls
    assert (called.id[:5], prompt[3].tool_call_id) == ("call_", called.id)
    assert prompt[2] is state["trajectory"][0]["completion"][0]


async def test_sampling_arguments_of_the_run_win(make_env, attempt):
    for of_run, sent in (
        ({}, {"temperature": 0.9, "max_tokens": 50}),
        ({"temperature": 0, "max_completion_tokens": 9}, {"temperature": 0, "max_completion_tokens": 9}),
        ({"temperature": None, "seed": 3}, {"temperature": 0.9, "max_tokens": 50, "seed": 3}),
    ):
        _, client = await attempt(make_env(), "It is 7.", sampling_args=of_run)
        assert client.asked[0][2] == {"n": 1, "extra_body": {}, **sent}


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_sandbox_can_be_kept_for_scoring(make_env, plain_sandbox, is_kept):
    async def reads_sandbox(state):
        try:
            return float(await env.sandbox_of(state).download("answer") == b"It is 7.")
        except SandboxError as error:
            told = "The sandbox of this rollout is closed. Set keep_sandbox_for_scoring=True to keep it"
            return -float(str(error) == told)

    env = make_env(keep_sandbox_for_scoring=is_kept, rubric=Rubric(funcs=[reads_sandbox]))
    with ModelServer(ADDS) as server:
        [row] = await evaluated(env, server)
    assert (row["reward"], plain_sandbox.closed) == (1.0 if is_kept else -1.0, 1)


async def test_a_failing_hook_fails_the_rollout_and_closes_the_sandbox(make_env, attempt, plain_sandbox):
    async def fail(state):
        raise SandboxError("no space")

    env = make_env()
    env.post_sandbox_setup = fail
    state, _ = await attempt(env, "2")
    assert (str(state["error"]), plain_sandbox.closed, env._agents) == ("no space", 1, {})


async def test_many_agents_at_once_share_one_bridge(make_env, caplog):
    caplog.set_level(logging.WARNING)
    with ModelServer(ADDS, faults=Faults(latency_ms=5)) as server:
        rows = await evaluated(make_env(), server, rollouts_per_example=8)
        assert server.stats().answered == 24
    assert [row["completion"][-1]["content"] for row in rows] == ["It is 7."] * 8
    assert [row["agent_log"] for row in rows] == ["add 1 2\nadd 3 4\n"] * 8
    assert not caplog.records
