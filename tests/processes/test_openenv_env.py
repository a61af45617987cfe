"""OpenEnvEnv: real servers in local sandboxes, spoken to through a tunnel; see openenv_world.py for the world."""

import asyncio
import io
import json
import shutil
import tarfile
from importlib import import_module
from pathlib import Path

import orjson
import pytest

from nightjar.core.rollout import records
from nightjar.environments.games.openenv_env import OpenEnvEnv, parse_action, render_messages, tool_result
from nightjar.environments.games.openenv_server import (
    BuildManifest,
    OpenEnvError,
    ServerRefusedError,
    needed_packages,
    packed,
    read_manifest,
    takes_tool_calls,
)
from nightjar.errors import SandboxError
from nightjar.sandboxes import LocalProvider, SandboxCreationError, SandboxRefusedError

WORLD = Path(__file__).with_name("openenv_world.py")
PORT = 8123

isolated = pytest.mark.skipif(LocalProvider.problem() is not None, reason=str(LocalProvider.problem()))


def render(observation, context):
    text = observation["prompt"] if context == "reset" else f"{observation['prompt']}, {observation['guesses']} tried"
    return [{"role": "user", "content": text}]


@pytest.fixture
def project(tmp_path):
    def write(contract="gym", transport="ws", command=None, **fields):
        shutil.copy(WORLD, tmp_path / "server.py")
        command = command or f"cd /app/env && python3 server.py {PORT} {contract} {transport}"
        manifest = {"image": "box:1", "port": PORT, "start_command": command, "contract": contract} | fields
        (tmp_path / ".build.json").write_text(json.dumps(manifest))
        return tmp_path

    return write


def box(folder, **kwargs):
    settings = {"num_train_examples": 2, "num_eval_examples": 3, "seed": 40, "sandbox_provider": LocalProvider()}
    return OpenEnvEnv(folder, prompt_renderer=render, **settings | kwargs)


def said(messages):
    return [message.content for message in messages]


@isolated
@pytest.mark.parametrize("transport", ["ws", "http"])
async def test_actions_are_taken_until_the_world_ends_the_episode(project, play, transport):
    env = box(project(transport=transport))
    state, client = await play(env, '{"guess": 1}', '```json\n{"guess": 2}\n```', "thanks")
    assert said(client.asked[0][0]) == ["Box 42: guess the number"]
    assert said(state["completion"]) == [
        '{"guess": 1}', "higher, 1 tried", '```json\n{"guess": 2}\n```', "right, 2 tried", "thanks",
    ]  # fmt: skip
    assert [step["reward"] for step in state["trajectory"]] == [-0.1, 1.0, 0.0]
    assert (state["reward"], state["stop_condition"], state["error"]) == (0.9, "openenv_done", None)
    assert state["metrics"] == {"sum_step_rewards": 0.9, "num_turns": 3.0}


@isolated
async def test_actions_end_without_a_last_word_and_are_scored_the_same_when_read_back_from_disk(
    project, play, make_state
):
    state, client = await play(env := box(project(), ask_after_end=False), '{"guess": 2}')
    assert (len(client.asked), state["reward"], env._servers) == (1, 1.0, set())
    assert said(state["completion"]) == ['{"guess": 2}', "right, 1 tried"]
    row, unsaved = records.attempt_row(state, 1, "h")
    restored = records.restore_state(make_state(columns=dict(env.examples[0])), orjson.loads(orjson.dumps(row)))
    await env.rubric.score_group([restored])
    assert (unsaved, restored["reward"]) == ([], 1.0)


@isolated
@pytest.mark.slow
@pytest.mark.parametrize("transport", ["ws", "http"])
async def test_actions_that_are_invalid_end_the_episode_without_a_reward(project, play, transport):
    env = box(project(transport=transport))
    no_json = "Failed to parse action JSON. Provide a JSON object matching the action schema."
    no_number = "Server error: guess must be an integer (code: VALIDATION_ERROR)"
    for answer, reason in (("two", no_json), ('{"guess": "two"}', no_number)):
        state, _ = await play(env, answer)
        assert said(state["completion"])[1] == f"Action Parsing Error: {reason}"
        assert (state["reward"], state["error"], state["openenv_done"]) == (0.0, None, True)


@isolated
async def test_actions_that_the_world_fails_on_are_an_error_and_all_are_taken_within_the_limit_of_turns(project, play):
    state, _ = await play(env := box(project(), max_turns=2), '{"guess": 99}')
    assert ("the box broke" in str(state["error"]), state["reward"]) == (True, None)
    state, client = await play(env, '{"guess": 1}', '{"guess": 2}')
    assert (len(client.asked), state["reward"], state["stop_condition"]) == (2, 0.9, "max_turns_reached")


@isolated
async def test_actions_of_several_rollouts_are_taken_in_worlds_of_their_own(project, play):
    env = box(project())
    len(env.examples)
    guesses = (play(env, '{"guess": 1}', f'{{"guess": {n + 2}}}', example_id=n) for n in range(3))
    played = await asyncio.gather(*guesses)
    assert [state["reward"] for state, _ in played] == [0.9, 0.9, 0.9]


def call(name, **arguments):
    return {"id": f"call-{name}", "name": name, "arguments": json.dumps(arguments)}


@isolated
@pytest.mark.parametrize("transport", ["ws", "http"])
async def test_tool_calls_are_made_until_the_model_makes_none(project, play, response, transport):
    looks = response(tool_calls=[call("look"), call("open", number=7)])
    state, client = await play(box(project("mcp", transport)), looks, "I give up")
    assert [tool.name for tool in client.asked[0][3]] == ["look", "open"]
    assert client.asked[0][3][1].parameters["required"] == ["number"]
    assert said(state["completion"][1:3]) == ['{"last_digit": 2}', "locked"]
    assert (state["reward"], state["stop_condition"]) == (0.25, "mcp_no_tool_calls")


@isolated
async def test_tool_calls_end_when_the_world_ends_the_episode(project, play, response):
    opens = response(tool_calls=[call("look"), call("open", number=2)])
    state, client = await play(box(project("mcp"), ask_after_end=False), opens)
    assert (len(client.asked), state["reward"], state["openenv_done"]) == (1, 1.25, True)
    assert said(state["completion"])[1:] == ['{"last_digit": 2}', "open"]


@isolated
async def test_tool_calls_that_fail_are_shown_to_the_model(project, play, response):
    odd = [{"id": given, "name": "look", "arguments": given} for given in ("[1]", "{")]
    odd.append({"id": "5", "name": " ", "arguments": "{}"})
    wrong = response(tool_calls=[call("dance"), call("open"), *odd])
    state, _ = await play(box(project("mcp")), wrong, "sorry")
    assert said(state["completion"])[1:-1] == [
        '{"error": {"message": "no tool dance"}}',
        "Error: Server error: 'number' (code: EXECUTION_ERROR)",
        "Error: tool arguments must be an object",
        "Error: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "Error: tool name cannot be empty",
    ]
    assert (state["reward"], state["error"]) == (0.0, None)


@isolated
def test_datasets_are_what_the_world_shows_after_a_reset(project):
    seen = []

    def curious(observation, *, context, action_schema, contract, seed):
        seen.append((context, "tool_name" in action_schema["properties"], contract, seed))
        return [{"role": "user", "content": observation["prompt"]}]

    env = OpenEnvEnv(
        project("mcp"), prompt_renderer=curious, num_train_examples=2, num_eval_examples=3, seed=40,
        sandbox_provider=LocalProvider(), system_prompt="Guess.",
    )  # fmt: skip
    assert len(env.examples) == 3
    assert [message["content"] for message in env.examples[2]["prompt"]] == ["Guess.", "Box 44: guess the number"]
    assert [env.examples[n]["info"] for n in range(3)] == [{"seed": 42}, {"seed": 43}, {"seed": 44}]
    assert max(seen) == ("reset", True, "mcp", 44)


@isolated
def test_datasets_start_no_server_before_they_are_needed(project):
    class Unwilling(LocalProvider):
        def new_sandbox(self, request):
            raise AssertionError("no sandbox is needed yet")

    assert box(project(), sandbox_provider=Unwilling()).manifest.port == PORT


@isolated
def test_datasets_are_refused_where_the_contract_is_another(project):
    folder = project("mcp")
    command = f"cd /app/env && python3 server.py {PORT} gym ws"
    manifest = json.loads((folder / ".build.json").read_text()) | {"start_command": command}
    (folder / ".build.json").write_text(json.dumps(manifest))
    with pytest.raises(OpenEnvError, match=r"\.build\.json says 'mcp', but the server takes no tool calls"):
        len(box(folder).examples)


@isolated
def test_servers_that_do_not_start_are_an_error_with_their_output(project):
    with pytest.raises(SandboxError, match=r"(?s)has ended with exit code 3.*It wrote: no licence"):
        len(box(project(command="echo no licence; exit 3"), startup_timeout_seconds=600).examples)
    env = box(project(command="echo thinking; sleep 600"), startup_timeout_seconds=2)
    with pytest.raises(SandboxError, match=r"(?s)not healthy after 2 s: .*refused.*It wrote: thinking"):
        len(env.examples)


@isolated
async def test_servers_that_do_not_start_are_an_error_of_the_rollout(project, play):
    class Once(LocalProvider):
        made = 0

        def new_sandbox(self, request):
            if self.made:
                raise SandboxRefusedError("no more sandboxes")
            self.made = 1
            return super().new_sandbox(request)

    state, client = await play(box(project(), sandbox_provider=Once()), '{"guess": 2}')
    assert (str(state["error"]), state["reward"], client.asked) == ("no more sandboxes", None, [])


@isolated
async def test_servers_that_do_not_start_are_started_again_where_the_sandbox_did_not_start(project, play):
    class Shaky(LocalProvider):
        made = 0

        def new_sandbox(self, request):
            self.made += 1
            sandbox = super().new_sandbox(request)
            if self.made % 3:
                sandbox.start = self.fail
            return sandbox

        async def fail(self):
            raise SandboxCreationError("out of luck")

    provider = Shaky()
    state, _ = await play(box(project(), sandbox_provider=provider, base_delay=0.01), '{"guess": 2}')
    assert (state["reward"], provider.made) == (1.0, 6)  # the third time for the dataset, and for the rollout


def test_projects_with_a_wrong_missing_or_broken_manifest_and_without_a_renderer_are_refused(project, tmp_path):
    wrong = {"image": " ", "port": "eighty", "start_command": None, "contract": "rest"}
    for field, value in wrong.items():
        with pytest.raises(OpenEnvError, match=f"`{field}` must be .*, found {value!r}") as raised:
            read_manifest(project(**{field: value}))
        assert isinstance(raised.value, RuntimeError)
    for text, problem in (
        ("{", "Cannot read"),
        ("[]", r"expected a JSON object, found \[\]"),
        (None, "has no .*vf-build"),
    ):
        (tmp_path / ".build.json").write_text(text) if text else (tmp_path / ".build.json").unlink()
        with pytest.raises(OpenEnvError, match=problem):
            OpenEnvEnv(tmp_path, prompt_renderer=render)
    with pytest.raises(ValueError, match="no/such/place"):
        OpenEnvEnv("no/such/place", prompt_renderer=render)
    with pytest.raises(ValueError, match="prompt_renderer"):
        OpenEnvEnv(project())


def test_a_project_is_next_to_the_file_that_makes_the_environment(tmp_path, project, monkeypatch):
    folder = project()
    (tmp_path / "proj").mkdir()
    shutil.copy(folder / ".build.json", tmp_path / "proj")
    module = tmp_path / "boxes_next_to_their_project.py"
    module.write_text(
        "from nightjar.environments.games.openenv_env import OpenEnvEnv\n"
        "class Boxes(OpenEnvEnv): pass\n"
        "load_environment = lambda: Boxes(prompt_renderer=print)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert import_module(module.stem).load_environment().openenv_project == str(tmp_path / "proj")


def test_a_project_is_packed_without_caches_and_names_the_packages_that_it_needs(project):
    folder = project()
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "server.pyc").write_text("x")
    with tarfile.open(fileobj=io.BytesIO(packed(folder))) as tar:
        assert sorted(tar.getnames()) == [".", "./.build.json", "./server.py"]
    assert needed_packages(folder) == []
    wanted = '["openenv-core[core]==0.2.1", "numpy >= 2"]'
    (folder / "pyproject.toml").write_text(f"[project]\ndependencies = {wanted}\n")
    assert needed_packages(folder) == ["openenv-core[core]", "numpy"]


def test_messages_become_actions_or_are_refused():
    single = {"properties": {"message": {"type": "string"}, "metadata": {"type": "object"}}, "required": ["message"]}
    assert parse_action('{"a": 1}', {}) == {"a": 1}
    assert parse_action("hello", {"properties": {"word": {"type": "string"}}}) == {"word": "hello"}
    expected = {"hello": "hello", '"quoted"': '"quoted"', "```\nhello\n```": "hello"}
    assert {text: parse_action(text, single)["message"] for text in expected} == expected
    for schema in ({}, {"properties": {"n": {"type": "integer"}}, "required": ["n"]}):
        with pytest.raises(ValueError, match="Failed to parse action JSON"):
            parse_action("hello", schema)


async def test_a_renderer_may_be_async_and_must_return_messages():
    async def later(observation, **details):
        return [{"role": "user", "content": f"{observation} {sorted(details)}"}]

    assert said(await render_messages(later, "box", "reset", seed=1)) == ["box ['context', 'seed']"]
    none = "must return a non-empty list of chat messages for step, found"
    empty = [{"role": "assistant", "content": None}], "a message without content for step, at index 0"
    for rendered, problem in (("hello", f"{none} 'hello'"), ([], rf"{none} \[\]"), empty):
        with pytest.raises(OpenEnvError, match=problem):
            await render_messages(lambda observation, rendered=rendered: rendered, {}, "step")


def test_schemas_of_tool_calls_are_recognised_and_results_of_tools_unwrapped():
    assert takes_tool_calls({"properties": {"tool_name": {}, "arguments": {}}})
    assert takes_tool_calls({"anyOf": [{"properties": {"type": {"enum": ["call_tool"]}}}]})
    assert not takes_tool_calls({"properties": {"guess": {"type": "integer"}}})
    assert not takes_tool_calls({"properties": {"move": {"enum": [["a"], "left"]}}})
    assert not takes_tool_calls(None)
    assert tool_result({"result": {"content": [], "data": [1]}, "error": None}) == [1]
    assert tool_result({"result": None, "error": {"message": "no"}}) == {"error": {"message": "no"}}
    assert tool_result({"result": "plain"}) == "plain"
    assert tool_result("bare") == "bare"


def test_an_error_of_a_server_names_the_fields_that_are_wrong():
    errors = [{"loc": ["guess"], "msg": "no number"}]
    error = ServerRefusedError({"message": "Invalid", "code": "VALIDATION_ERROR", "errors": errors})
    assert str(error) == "Server error: Invalid; guess: no number (code: VALIDATION_ERROR)"


def test_a_start_command_is_that_of_a_copy_outside_the_image():
    command = "cd /app/env && /app/.venv/bin/uvicorn server.app:app --port 8000"
    manifest = BuildManifest(image="echo:1", start_command=command, contract="gym")
    local = "cd /workspace/project && python3 -m uvicorn server.app:app --port 8000"
    assert manifest.local_command("/workspace/project") == local
