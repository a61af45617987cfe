"""``StatefulToolEnv``: tools whose arguments the rollout completes."""

import functools
import inspect
from typing import Any

import pytest
from pydantic import BaseModel

from nightjar.core.messages import AssistantMessage, ToolCall, UserMessage
from nightjar.core.rollout import records
from nightjar.core.rollout.state import State
from nightjar.environments import StatefulToolEnv, convert_func_to_tool_def, filter_signature
from nightjar.errors import SandboxError, ToolCallError

DATASET = [{"question": "What is 4 + 3?", "answer": "7"}]


class Place(BaseModel):
    x: int


class Session:
    """Nothing that JSON can express."""


def add(x: int, offset: int) -> int:
    """Adds.

    Args:
        x: What the model gives.
        offset: What the environment gives.
    """
    return x + offset


class Adding(StatefulToolEnv):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, dataset=DATASET, **kwargs)
        self.add_tool(add, args_to_skip=["offset"])

    def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
        state["updated"] = [*state.get("updated", []), tool_name]
        return {**tool_args, "offset": state["offset"]}

    async def setup_state(self, state):
        state["offset"] = 3


def completing(update):
    return type("Completing", (Adding,), {"update_tool_args": update})()


def asking(name, arguments):
    return AssistantMessage(tool_calls=[ToolCall(id="call_0", name=name, arguments=arguments)])


async def answer(env, arguments, name="add", **state):
    (message,) = await env.env_response([UserMessage(content="?"), asking(name, arguments)], State(offset=3, **state))
    return message.content


@pytest.fixture
def play(attempt, response):
    """Makes one attempt in which the model calls ``add`` once."""

    async def play(env, arguments='{"x": 4}'):
        call = {"id": "call_0", "name": "add", "arguments": arguments}
        return (await attempt(env, response("", tool_calls=[call]), "7"))[0]

    return play


def offered(env, name="add"):
    return next(tool for tool in env.tool_defs if tool.name == name)


async def test_arguments_are_completed_from_the_state_in_place_or_by_a_coroutine(play):
    state = await play(Adding())
    assert (state["completion"][1].content, state["updated"]) == ("7", ["add"])
    assert await answer(Adding(), '{"x": 4, "offset": 1000}') == "7"

    async def update(self, tool_name, tool_args, messages, state, **kwargs):
        return tool_args | {"offset": 10}

    in_place = completing(lambda self, name, tool_args, *args, **kwargs: tool_args.update(offset=5))
    assert await answer(in_place, '{"x": 4}') == "9"
    assert await answer(completing(update), '{"x": 4}') == "14"


async def test_the_hook_sees_the_conversation_and_further_arguments():
    seen = {}

    def update(self, tool_name, tool_args, messages, state, **kwargs):
        seen.update(kwargs, messages=len(messages))
        return tool_args | {"offset": 0}

    await completing(update).env_response([UserMessage(content="?"), asking("add", '{"x": 1}')], State(), depth=2)
    assert seen == {"messages": 2, "depth": 2}


async def test_arguments_that_cannot_be_read_and_tools_fail_as_in_a_tool_env(play):
    state = await play(Adding(), arguments="[1]")
    assert state["completion"][1].content == "Expected tool arguments to be a dict, got list: [1]"
    assert "updated" not in state
    state = await play(Adding(stop_errors=[TypeError]), arguments='{"y": 4}')
    assert isinstance(state["error"], ToolCallError)
    assert await answer(Adding(), '{"y": 4}') == "add() got an unexpected keyword argument 'y'"


async def test_an_exception_of_the_hook_is_the_rollout_s_error(play):
    def update(self, tool_name, tool_args, messages, state, **kwargs):
        raise error

    for error in (KeyError("offset"), SandboxError("gone")):
        state = await play(completing(update))
        assert (state["error"], state["stop_condition"]) == (error, "has_error")
        assert "raise error" in records.error_row(error)["traceback"]
    state = await play(completing(lambda self, tool_name, tool_args, *args, **kwargs: [tool_args]))
    assert "'Completing' returned [{'x': 4}]" in str(state["error"])


def test_hidden_arguments_are_not_offered_but_all_of_tools_from_the_constructor():
    env = Adding()
    assert offered(env).parameters == {
        "type": "object", "title": "add_args",
        "properties": {"x": {"title": "X", "type": "integer", "description": "What the model gives."}},
        "required": ["x"], "additionalProperties": False,
    }  # fmt: skip
    assert env.skipped_args == {"add": ["offset"]}
    with pytest.raises(TypeError, match="update_tool_args"):
        StatefulToolEnv(dataset=DATASET)

    def look(x: int) -> int: ...

    env = Adding([look])
    assert env.skipped_args == {"add": ["offset"]}
    env.remove_tool(look)
    env.remove_tool(add)
    assert (env.tools, env.tool_map, env.tool_defs, env.skipped_args) == ([], {}, [], {})


def test_hidden_arguments_may_have_any_type_and_leave_no_trace_but_types_of_others_stay_defined():
    def look(where: str, hidden=None) -> str: ...

    def move(here: Place, there: Place) -> str: ...

    for hint in (dict, dict[str, Any], Session, "Missing", list[Place] | None):
        look.__annotations__["hidden"] = hint
        env = Adding()
        env.add_tool(look, args_to_skip=["hidden"])
        parameters = offered(env, "look").parameters
        assert (list(parameters["properties"]), parameters["additionalProperties"]) == (["where"], False)
        assert "$defs" not in parameters
    env.add_tool(move, args_to_skip=["there"])
    assert list(offered(env, "move").parameters["$defs"]) == ["Place"]


async def test_methods_and_partials_may_have_hidden_arguments():
    class Shop:
        async def buy(self, item: str, basket: list) -> str:
            """Buys.

            Args:
                item: What to buy.
            """
            return f"{item} for {basket}"

    env = completing(lambda self, name, args, *_, **kwargs: args | ({"basket": [1]} if name == "buy" else {}))
    env.add_tool(Shop().buy, args_to_skip=["basket"])
    assert offered(env, "buy").parameters["properties"]["item"]["description"] == "What to buy."
    assert await answer(env, '{"item": "milk"}', name="buy") == "milk for [1]"
    env.remove_tool(env.tool_map["add"])
    env.add_tool(functools.partial(add, offset=2), args_to_skip=["nothing"])
    assert list(offered(env).parameters["properties"]) == ["x"]
    assert await answer(env, '{"x": 4}') == "6"


def test_filter_signature_does_not_change_the_function_and_finds_its_hints():
    before = (inspect.signature(add), dict(add.__annotations__), dict(vars(add)))
    filtered = filter_signature(add, ["offset"])
    assert (inspect.signature(add), add.__annotations__, vars(add)) == before
    assert (list(inspect.signature(filtered).parameters), filtered.__name__) == (["x"], "add")
    assert filtered(1, offset=2) == 3

    def go(to: "Place", hidden: "Missing") -> None: ...  # noqa: F821 - hidden

    tool = convert_func_to_tool_def(filter_signature(go, ["hidden"]))
    assert tool.parameters["properties"] == {"to": {"$ref": "#/$defs/Place"}}
