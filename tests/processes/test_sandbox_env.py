"""``SandboxEnv``: a shell for the model, in a sandbox of its own for each rollout."""

import asyncio
import json
import os

import psutil
import pytest

from nightjar.clients import ClientConfig
from nightjar.environments.rubrics import Rubric
from nightjar.environments.tools.sandbox_env import SandboxEnv
from nightjar.errors import ConfigError, SandboxError
from nightjar.model_server import ModelServer, Script, tool_call
from nightjar.sandboxes import (
    CommandResult,
    LocalProvider,
    Sandbox,
    SandboxCreationError,
    SandboxProvider,
    SandboxRefusedError,
)

needs_bubblewrap = pytest.mark.skipif(LocalProvider.problem() is not None, reason=str(LocalProvider.problem()))
DATASET = [{"question": "What is there?"}]


class Scripted(Sandbox):
    """A sandbox that runs nothing, and fails as its provider says."""

    def __init__(self, number, fail):
        self.id, self.fail, self.is_closed = f"scripted-{number}", fail, False

    async def start(self):
        self.fail("start")

    async def spawn(self, *_, **__):
        raise NotImplementedError

    async def exec(self, command, *_, **__):
        self.fail("exec")
        return CommandResult(f"ran {command}", "", 0)

    async def end_processes(self):
        self.fail("end_processes")

    async def close(self):
        self.fail("close")
        self.close_now()

    def close_now(self):
        self.is_closed = True


class ScriptedProvider(SandboxProvider):
    name = "scripted"

    def __init__(self, **failures):
        self.failures, self.sandboxes, self.requests = failures, [], []

    def fail(self, where):
        if self.failures.get(where):
            raise self.failures[where].pop(0)

    def new_sandbox(self, request):
        self.requests.append(request)
        self.fail("new")
        self.sandboxes.append(Scripted(len(self.sandboxes), self.fail))
        return self.sandboxes[-1]


def environment(provider="local", **options):
    limits = {"memory_gb": 0.25, "base_delay": 0.001, "dataset": DATASET}
    return SandboxEnv(sandbox_provider=provider, **{**limits, **options})


@pytest.fixture
async def shell(make_state):
    """Gives the tool ``bash`` of an environment, as it is called in a rollout."""
    used = []

    async def make(env, **columns):
        state = make_state(**columns)
        state = await env.setup_state(state) or state
        used.append((env, state))

        async def bash(command):
            return await env.bash(**env.update_tool_args("bash", {"command": command}, [], state))

        bash.state = state
        return bash

    yield make
    for env, state in used:
        await env.destroy_sandbox(state)


async def evaluate(env, *turns, **options):
    with ModelServer(Script(turns)) as server:
        config = ClientConfig(api_base_url=server.base_url, api_key_var="NO_KEY")
        return (await env.evaluate(config, "any", **options))["outputs"]


def tool_answers(row):
    return [message["content"] for message in row["completion"] if message["role"] == "tool"]


def test_the_tool_takes_a_command_and_hides_the_rest():
    env = environment()
    assert env.update_tool_args("other", {"x": 1}, [], {}) == {"x": 1}
    assert [(tool.name, list(tool.parameters["properties"])) for tool in env.tool_defs] == [("bash", ["command"])]


@needs_bubblewrap
async def test_the_tool_shows_output_errors_and_a_timeout(shell):
    bash = await shell(environment(timeout_per_command_seconds=30))
    shown = {
        "echo out": "out", "echo err >&2": "stderr:\nerr", "echo out; echo err >&2": "out\nstderr:\nerr",
        "true": "(no output)", "printf '  \\n'": "(no output)", "printf '\\n  indented \\n\\n'; exit 3": "indented",
    }  # fmt: skip
    assert {command: await bash(command) for command in shown} == shown
    bash = await shell(environment(timeout_per_command_seconds=1))
    assert await bash("sleep 600") == "Error: Command timed out after 1s"
    assert bash.state["sandbox_state"]["command_execution_times"] == [1.0]


@needs_bubblewrap
async def test_commands_run_where_the_state_says_with_the_variables_and_limits_of_the_environment(shell):
    bash = await shell(environment(environment_vars={"TOKEN": "t-1"}, max_output_bytes=21))
    await bash("mkdir below")
    bash.state["working_dir"] = "/workspace/below"
    assert await bash("pwd; echo $TOKEN") == "/workspace/below\nt-1"
    assert await bash("pwd; echo 123456") == "/workspace/below\n1234\n[cut: more than 21 bytes]"


async def test_the_state_can_be_saved_and_records_waiting_only_once(shell):
    bash = await shell(environment(ScriptedProvider()))
    assert bash.state["sandbox_state"] == {"ready": False, "ready_wait_time": 0.0, "command_execution_times": []}
    await bash("one")
    waited = bash.state["sandbox_state"]["ready_wait_time"]
    await bash("two")
    saved = json.loads(json.dumps({name: bash.state[name] for name in ("sandbox_id", "sandbox_state")}))
    times = saved["sandbox_state"].pop("command_execution_times")
    assert saved == {"sandbox_id": "scripted-0", "sandbox_state": {"ready": True, "ready_wait_time": waited}}
    assert len(times) == 2


async def test_a_request_carries_what_the_environment_was_given_and_may_depend_on_the_example(shell):
    class ByExample(SandboxEnv):
        def get_sandbox_request(self, state):
            return self.sandbox_request.model_copy(update={"docker_image": state["info"]["image"]})

    provider = ScriptedProvider()
    options = {"docker_image": "debian:12", "cpu_cores": 3, "labels": ["a"], "team_id": "t"}
    await shell(environment(provider, **options))
    env = ByExample(dataset=DATASET, sandbox_provider=provider)
    await shell(env, columns={"info": {"image": "alpine:3"}})
    [given, own] = provider.requests
    assert (given.docker_image, given.cpu_cores, given.labels) == ("debian:12", 3, ["a"])
    assert (own.docker_image, env.sandbox_request.docker_image) == ("alpine:3", "python:3.11-slim")


def test_an_unknown_provider_is_an_error_at_once():
    with pytest.raises(ConfigError, match="Unknown sandbox provider 'moon'"):
        environment("moon")


async def test_a_failed_start_is_tried_again(shell, caplog):
    provider = ScriptedProvider(start=[SandboxCreationError("busy"), OSError("busy")])
    bash = await shell(environment(provider, max_retries=3))
    assert await bash("ls") == "ran ls"
    assert caplog.text.count("busy") == 2


@pytest.mark.parametrize(("where", "error", "retries", "kind", "tries"), [
    ("start", SandboxCreationError("busy"), 2, SandboxCreationError, 2),
    ("start", asyncio.CancelledError("busy"), 5, asyncio.CancelledError, 1),
    ("new", SandboxRefusedError("busy"), 5, SandboxCreationError, 1),
    ("start", OSError("busy"), 1, SandboxError, 1),
], ids=["a sandbox", "a cancellation", "the machine", "another error"])  # fmt: skip
async def test_a_failed_start_is_raised_after_so_many_tries(shell, where, error, retries, kind, tries):
    provider = ScriptedProvider(**{where: [error] * 9})
    with pytest.raises(kind, match=r"busy|^$"):  # a cancellation loses its text
        await (await shell(environment(provider, max_retries=retries)))("ls")
    assert len(provider.failures[where]) == 9 - tries


async def test_a_failure_of_the_sandbox_ends_the_rollout_or_is_shown_to_the_model_as_the_environment_says():
    ends, shows = (
        ScriptedProvider(exec=[SandboxError("it has ended")]),
        ScriptedProvider(exec=[SandboxError("it has ended")]),
    )
    turns = tool_call("bash", command="ls"), "Done."
    [row] = await evaluate(environment(ends), *turns)
    assert ("it has ended" in json.dumps(row["error"], default=str), row["reward"]) == (True, None)
    [row] = await evaluate(environment(shows, stop_errors=[]), *turns)
    assert (row.get("error"), tool_answers(row)) == (None, ["it has ended"])


async def test_a_command_that_is_no_text_is_shown_to_the_model():
    for command in (None, 7, ["ls", 7], {"run": "ls"}):
        turns = tool_call("bash", command=command), tool_call("bash", command="ls"), "Done."
        [row] = await evaluate(environment(ScriptedProvider()), *turns)
        wrong, right = tool_answers(row)
        assert (row.get("error"), repr(command) in wrong, right) == (None, True, "ran ls")


async def test_a_sandbox_that_cannot_be_deleted_is_a_warning_and_remembered(make_state, caplog):
    provider = ScriptedProvider(close=[OSError("stuck") for _ in range(3)])
    env = environment(provider, max_retries=2)
    await env.destroy_sandbox(make_state())  # it never had one
    state = make_state()
    await env.setup_state(state)
    assert caplog.records == []
    await env.destroy_sandbox(state)
    assert (caplog.records[-1].levelname, "scripted-0: stuck" in caplog.text) == ("WARNING", True)
    assert env.active_sandboxes == {"scripted-0"}
    await env.destroy_sandbox(state)
    assert env.active_sandboxes == set()


async def test_the_end_looks_at_the_sandbox_and_then_deletes_it_also_if_looking_fails():
    class Looking(SandboxEnv):
        async def post_rollout(self, state):
            found = await self.sandbox_client.execute_command(state["sandbox_id"], "count")
            state["found"] = found.stdout

    async def counted(state) -> float:
        return float(state["found"] == "ran count")

    for failures, reward in (({}, 1.0), ({"exec": [ValueError("nothing there")]}, None)):
        provider = ScriptedProvider(**failures)
        env = Looking(dataset=DATASET, sandbox_provider=provider, rubric=Rubric(funcs=[counted]))
        [row] = await evaluate(env, "Nothing to do.")
        assert (row["reward"], "nothing there" in json.dumps(row["error"], default=str)) == (reward, reward is None)
        assert [sandbox.is_closed for sandbox in provider.sandboxes] == [True]
        assert env.active_sandboxes == set()


async def test_several_sandboxes_are_deleted_by_their_ids_and_remembered_if_that_fails(make_state, caplog):
    env = environment(provider := ScriptedProvider(), max_retries=1)
    for _ in range(3):
        await env.setup_state(make_state())
    await env.bulk_delete_sandboxes(["scripted-0", "scripted-2"])
    assert env.active_sandboxes == {"scripted-1"}
    await env.teardown_sandboxes()
    assert env.active_sandboxes == set()
    assert all(sandbox.is_closed for sandbox in provider.sandboxes)

    async def fail(_):
        raise RuntimeError("Deletion failed")

    env.active_sandboxes, env.sandbox_client.bulk_delete = {"a", "b"}, fail
    await env.bulk_delete_sandboxes(["a"])
    assert env.active_sandboxes == {"a", "b"}
    assert "Failed to bulk delete sandboxes ['a']: Deletion failed" in caplog.text


@needs_bubblewrap
async def test_rollouts_have_a_sandbox_each_and_metrics_and_leave_no_process_behind():
    async def is_alone(completion) -> float:
        return float(completion[-2]["content"] == "0")

    env = environment(dataset=[{"question": str(number)} for number in range(6)], rubric=Rubric(funcs=[is_alone]))
    commands = [tool_call("bash", command=f"touch mine; sleep 6{os.getpid()} &") for _ in range(2)]
    rows = await evaluate(env, *commands, tool_call("bash", command="ls | grep -vc mine"), "Done.")
    assert [row["reward"] for row in rows] == [1.0] * 6
    assert {row["metrics"]["bash_calls"] for row in rows} == {3}
    assert all(row["metrics"]["sandbox_ready_wait_time"] >= 0 for row in rows)
    assert all(row["metrics"]["sandbox_command_execution_time"] > 0 for row in rows)
    assert not [one for one in psutil.Process().children(recursive=True) if one.name() == "bwrap"]


async def test_rollouts_wait_outside_their_time_limit_while_all_sandboxes_are_in_use():
    provider, open_at_once = ScriptedProvider(), []

    class Slow(SandboxEnv):
        async def post_rollout(self, state):
            open_at_once.append(sum(not sandbox.is_closed for sandbox in provider.sandboxes))
            await asyncio.sleep(0.8)

    env = Slow(dataset=DATASET * 6, sandbox_provider=provider, hook_timeout_seconds=1.5, timeout_seconds=1.5)
    env.set_max_sandboxes(2)
    rows = await evaluate(env, "Done.")
    assert ([row["error"] for row in rows], max(open_at_once), len(open_at_once)) == ([None] * 6, 2, 6)


@needs_bubblewrap
async def test_rollouts_have_the_provider_of_the_variable(monkeypatch):
    monkeypatch.setenv("NIGHTJAR_SANDBOX", "local")
    env = SandboxEnv(dataset=DATASET, memory_gb=0.25)
    [row] = await evaluate(env, tool_call("bash", command="whoami"), "Done.")
    assert row["completion"][1]["content"] == "user"
