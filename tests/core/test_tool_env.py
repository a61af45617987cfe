"""``ToolEnv``: a model that calls Python functions."""

import asyncio
import functools
import json
import logging
import threading

import pytest

from nightjar.core.messages import AssistantMessage, TextMessage, ToolCall, ToolMessage, UserMessage
from nightjar.core.rollout.state import State
from nightjar.environments import ToolEnv, ToolMonitorRubric, is_valid_tool_content_parts
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ToolCallError, ToolError, ToolParseError

DATASET = [{"question": "What is 4 squared?", "answer": "16"}]


def square(x: int) -> int:
    """Squares a number."""
    return x * x


async def offset(x: int, by: int = 1) -> int:
    return x + by


def fail() -> None:
    raise ValueError("no luck")


def tool_env(*tools, **kwargs):
    return ToolEnv(tools=list(tools), dataset=DATASET, **kwargs)


def asking(*calls):
    """Returns a message that asks for calls; each is a name and its arguments, as JSON text or as data."""
    return AssistantMessage(
        tool_calls=[
            ToolCall(id=f"call_{number}", name=name, arguments=given if isinstance(given, str) else json.dumps(given))
            for number, (name, given) in enumerate(calls)
        ]
    )


async def answers(env, *calls):
    return await env.env_response([UserMessage(content="?"), asking(*calls)], State(trajectory=[]))


async def answer(env, name, given):
    (message,) = await answers(env, (name, given))
    return message.content


@pytest.fixture
def play(attempt, response):
    """Makes one attempt; an answer of the model is a text, or a list of calls (name, arguments)."""

    def turn(said):
        return said if isinstance(said, str) else response("", tool_calls=asking(*said).model_dump()["tool_calls"])

    return lambda env, *said: attempt(env, *map(turn, said))


async def test_the_model_calls_tools_in_ten_turns_by_default_and_then_answers(play):
    state, client = await play(tool_env(square), [("square", {"x": 4})], "It is 16.")
    assert state["completion"][1] == ToolMessage(content="16", tool_call_id="call_0")
    assert state["completion"][2].content == "It is 16."
    assert (state["stop_condition"], state["error"]) == ("no_tools_called", None)
    assert client.asked[1][0][-1] == state["completion"][1]
    for how, turns in (({}, 10), ({"max_turns": 3}, 3)):
        _, client = await play(tool_env(square, **how), [("square", {"x": 4})])
        assert len(client.asked) == turns


async def test_calls_of_one_message_run_in_order_and_are_answered_in_order(play):
    began = []

    async def slow(name: str) -> str:
        began.append(name)
        await asyncio.sleep(0.01 if name == "a" else 0)
        began.append(f"end of {name}")
        return name

    state, _ = await play(tool_env(slow), [("slow", {"name": "a"}), ("slow", {"name": "b"})], "done")
    answered = [(message.tool_call_id, message.content) for message in state["completion"][1:3]]
    assert answered == [("call_0", "a"), ("call_1", "b")]
    assert began == ["a", "end of a", "b", "end of b"]


async def test_calls_are_counted(play):
    env = tool_env(square, offset, rubric=Rubric([lambda completion: 1.0]))
    both = [("square", {"x": 4}), ("offset", {"x": 1})]
    state, _ = await play(env, both, [("square", "oops"), ("cube", {})], "done")
    await env.rubric.score_group([state])
    counted = {name: state["metrics"][name] for name in ("total_tool_calls", "square_calls", "offset_calls")}
    assert counted == {"total_tool_calls": 4, "square_calls": 2, "offset_calls": 1}
    assert state["reward"] == 1.0


async def test_a_blocking_tool_holds_up_no_other_rollout(play):
    both = threading.Barrier(2, timeout=60)

    def meet() -> str:
        both.wait()
        return "met"

    env = tool_env(meet)
    played = await asyncio.gather(*(play(env, [("meet", {})], "done") for _ in range(2)))
    assert [state["completion"][1].content for state, _ in played] == ["met", "met"]


async def test_results_become_text_but_content_parts_stay_content_parts():
    def give():
        return result

    odd_parts = {"text": "no type"}, {"type": "audio", "data": ""}, {"type": ["text"]}
    for result in (16, None, {"a": 1}, [1, 2], *([part] for part in odd_parts)):
        assert await answer(tool_env(give), "give", {}) == str(result)

    def give() -> list:
        return parts

    for parts in ([], [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}]):
        assert is_valid_tool_content_parts(parts)
        assert (await tool_env(give).call_tool("give", {}, "call_0"))["content"] == parts
    others = ["text", None, 3, {"type": "text"}, [1], ["a", {"type": "text", "text": ""}]]
    assert not any(map(is_valid_tool_content_parts, others))


async def test_errors_of_calls_are_shown_to_the_model_and_the_other_calls_are_made():
    """The texts are those of Python and of verifiers 0.1.14, which models and results were compared with."""
    texts = {
        ("square", '{"x": invalid json}'): "Expecting value: line 1 column 7 (char 6)",
        ("square", ""): "Expecting value: line 1 column 1 (char 0)",
        ("square", "[4]"): "Expected tool arguments to be a dict, got list: [4]",
        ("square", "null"): "Expected tool arguments to be a dict, got NoneType: None",
        ("square", "{}"): "square() missing 1 required positional argument: 'x'",
        ("square", '{"x": 1, "y": 2}'): "square() got an unexpected keyword argument 'y'",
        ("square", '{"x": "a"}'): "can't multiply sequence by non-int of type 'str'",
        ("cube", '{"x": 4}'): "'cube'", ("fail", "{}"): "no luck", ("square", '{"x": 3}'): "9",
    }  # fmt: skip
    said = await answers(tool_env(square, fail), *texts)
    assert dict(zip(texts, [message.content for message in said], strict=True)) == texts


async def test_arguments_may_have_any_name_and_those_with_stars_take_lists_and_objects():
    for name in ("self", "func", "tool_name", "args", "kwargs"):
        exec(f"def tool({name}: int): return {name}", scope := {})
        assert await answer(tool_env(scope["tool"]), "tool", {name: 3}) == "3"

    def put(first: int, *rest: int, last: int = 0, **named: int) -> str:
        return f"{first} {rest} {last} {named}"

    def by_position(x: int, y: int = 2, /) -> str:
        return f"{x} {y}"

    env = tool_env(put, by_position)
    given = {"first": 1, "rest": [2, 3], "last": 4, "named": {"n": 5}}
    assert await answer(env, "put", given) == "1 (2, 3) 4 {'n': 5}"
    assert await answer(env, "put", {"first": 1, "m": 7}) == "1 () 0 {'m': 7}"
    assert await answer(env, "by_position", {"x": 1}) == "1 2"
    assert "got an unexpected keyword argument 'z'" in await answer(env, "by_position", {"x": 1, "z": 2})


async def test_methods_partials_and_callables_are_tools():
    class Shop:
        price = 3

        def buy(self, count: int) -> int:
            return count * self.price

        def __call__(self, count: int) -> int:
            return -count

    env = tool_env(Shop().buy, functools.partial(offset, by=10), Shop())
    assert list(env.tool_map) == ["buy", "offset", "Shop"]
    assert await answer(env, "buy", {"count": 2}) == "6"
    assert await answer(env, "offset", {"x": 1}) == "11"
    assert await answer(env, "Shop", {"count": 2}) == "-2"


@pytest.mark.parametrize(
    ("call", "error", "cause"),
    [(("square", "{"), ToolParseError, json.JSONDecodeError), (("fail", {}), ToolCallError, ValueError)],
)
async def test_stop_errors_end_the_rollout_with_their_cause(play, call, error, cause):
    state, _ = await play(tool_env(square, fail, stop_errors=[cause]), [call], "never")
    assert (type(state["error"]), type(state["error"].__cause__)) == (error, cause)
    assert cause.__name__ in str(state["error"])
    assert (state["stop_condition"], len(state["trajectory"])) == ("has_error", 1)
    assert [message.role for message in state["completion"]] == ["assistant"]
    state, _ = await play(tool_env(fail, stop_errors=[KeyError]), [("fail", {})], "sorry")
    assert (state["error"], state["completion"][1].content) == (None, "no luck")


async def test_an_error_formatter_words_the_errors_and_a_tool_that_ends_more_than_itself_costs_its_rollout(play):
    env = tool_env(fail, error_formatter=lambda error: f"Error: {type(error).__name__}")
    assert await answer(env, "fail", {}) == "Error: ValueError"
    state, _ = await play(tool_env(fail, error_formatter=lambda error: error.reason), [("fail", {})], "never")
    assert isinstance(state["error"], AttributeError)

    async def quit_() -> None:
        raise leave

    for leave in (SystemExit, asyncio.CancelledError):
        state, _ = await play(tool_env(quit_), [("quit_", {})], "never")
        assert leave.__name__ in str(state["error"])


async def test_an_environment_s_response_needs_tool_calls_and_a_message_without_any_ends_the_rollout():
    for last in ([AssistantMessage(content="hi")], [UserMessage(content="?")], []):
        with pytest.raises(ToolError, match=r"env_response\(\) of 'ToolEnv' needs tool calls, found"):
            await tool_env(square).env_response(last, State())
    no_calls = [AssistantMessage(content="16")], [AssistantMessage(content="16", tool_calls=[])]
    others = [], [asking(("square", {}))], [TextMessage(content="16")]
    for said, stops in (*((said, True) for said in no_calls), *((said, False) for said in others)):
        assert await tool_env(square).no_tools_called(State(trajectory=[{"completion": said}])) is stops
    assert not await tool_env(square).no_tools_called(State(trajectory=[]))


async def test_added_and_removed_tools_are_offered_called_and_counted_or_gone_and_one_name_has_one_tool(caplog):
    env = tool_env(square)
    env.add_tool(offset)
    assert env.tools == [square, offset]
    assert [tool.name for tool in env.tool_defs] == ["square", "offset"]
    assert env.tool_monitor_rubric.tool_names == ["square", "offset"]
    assert await answer(env, "offset", {"x": 1}) == "2"
    env = tool_env(square, offset)
    env.remove_tool(square)
    assert (env.tools, list(env.tool_map)) == ([offset], ["offset"])
    assert [tool.name for tool in env.tool_defs] == ["offset"]
    assert [func.__name__ for func in env.tool_monitor_rubric.funcs] == ["total_tool_calls", "offset_calls"]
    assert await answer(env, "square", {"x": 1}) == "'square'"
    with pytest.raises(ValueError, match=r"Tool 'offset' is not offered\. Choose one of: square"):
        tool_env(square).remove_tool(offset)

    def other(x: int, base: int) -> int: ...

    other.__name__ = "square"
    with caplog.at_level(logging.WARNING):
        env = tool_env(square, other)
    assert (env.tools, len(env.tool_defs), env.tool_map) == ([other], 1, {"square": other})
    assert "Two tools are called 'square'" in caplog.text


async def test_the_monitor_rubric_counts_a_tool_once_also_in_conversations_as_dicts():
    rubric = ToolMonitorRubric(["a"], funcs=[len], weights=[2.0])
    rubric.add_tool_metric("a")
    rubric.remove_tool_metric("b")
    assert rubric.tool_names == ["a"]
    assert [func.__name__ for func in rubric.funcs] == ["len", "total_tool_calls", "a_calls"]
    assert rubric.weights == [2.0, 0.0, 0.0]
    called = {"role": "assistant", "tool_calls": [{"id": "1", "name": "a", "arguments": "{}"}]}
    completion = [called, {"role": "tool", "tool_call_id": "1", "content": "a"}, {"role": "assistant"}]
    assert await ToolMonitorRubric().total_tool_calls(completion) == 1
