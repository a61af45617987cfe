"""The model server in OpenAI's chat completions, seen through the official client."""

import json

import openai
import pytest
from openai.types.chat import ChatCompletion

from nightjar.model_server import Answer, FixedAnswer, ModelServer, Script, ToolCallAnswer, tool_call

ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {}, "b": {}}}},
}
QUESTION = {"role": "user", "content": "What is one plus two?"}
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "3"}


def client_of(server, **options):
    return openai.AsyncOpenAI(
        base_url=server.base_url, api_key="any", max_retries=0, _strict_response_validation=True, **options
    )


async def ask(server, messages=(QUESTION,), **options) -> ChatCompletion:
    async with client_of(server) as client:
        return await client.chat.completions.create(model="m", messages=list(messages), **options)


class TestToolCalls:
    async def test_round_trip(self):
        def conclude(messages):
            return f"The sum is {messages[-1]['content']}."

        with ModelServer(Script([tool_call("add", a=1, b=2), conclude])) as server:
            first = await ask(server, tools=[ADD])
            said = first.choices[0].message
            result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "3"}
            second = await ask(server, [QUESTION, said, result], tools=[ADD])
        assert first.choices[0].finish_reason == "tool_calls"
        assert said.content is None
        assert said.tool_calls[0].type == "function"
        assert said.tool_calls[0].function.name == "add"
        assert json.loads(said.tool_calls[0].function.arguments) == {"a": 1, "b": 2}
        assert second.choices[0].finish_reason == "stop"
        assert second.choices[0].message.content == "The sum is 3."

    async def test_several_calls_beside_a_text(self):
        calls = (tool_call("add", a=1, b=2), tool_call("add", a=3, b=4))
        answer = Answer(question="q", text="Let me see.", tool_calls=calls)
        with ModelServer(Script([answer])) as server:
            message = (await ask(server)).choices[0].message
        assert message.content == "Let me see."
        assert len({call.id for call in message.tool_calls}) == 2

    async def test_id_and_broken_arguments_are_sent_as_written(self):
        with ModelServer(Script([ToolCallAnswer("call_7", "add", '{"a": 1')])) as server:
            call = (await ask(server)).choices[0].message.tool_calls[0]
        assert (call.id, call.function.arguments) == ("call_7", '{"a": 1')

    async def test_made_up_ids_differ_between_answers(self):
        with ModelServer(Script(lambda messages: tool_call("add"))) as server:
            ids = {(await ask(server)).choices[0].message.tool_calls[0].id for _ in range(3)}
        assert len(ids) == 3

    async def test_words_of_a_call_are_tokens(self):
        called = {
            "role": "assistant",
            "content": "Hm, let me see.",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
            ],
        }
        result = {"role": "tool", "tool_call_id": "1", "content": "It is 3"}
        with ModelServer(Script(lambda messages: ToolCallAnswer("2", "add", '{"a": 1}'))) as server:
            usage = (await ask(server, [QUESTION, called, result])).usage
        assert usage.prompt_tokens == 5 + (4 + 1 + 4) + 3
        assert usage.completion_tokens == 1 + 2
        assert usage.total_tokens == usage.prompt_tokens + 3


class TestReasoning:
    async def test_reasoning_comes_beside_the_text(self):
        with ModelServer(Script([Answer("q", "It is three.", reasoning="One and two.")])) as server:
            completion = await ask(server)
        assert completion.choices[0].message.reasoning_content == "One and two."
        assert completion.choices[0].message.content == "It is three."
        assert completion.usage.completion_tokens == 6
        assert completion.usage.completion_tokens_details.reasoning_tokens == 3


class TestMaxTokens:
    ANSWER = Answer(
        "q", "five six", reasoning="one two three four", tool_calls=(tool_call("add", a=1), tool_call("sub"))
    )

    @pytest.mark.parametrize(
        ("limit", "reasoning", "text", "calls", "finish_reason"),
        [
            (3, "one two three", "", [], "length"),
            (4, "one two three four", "", [], "length"),
            (5, "one two three four", "five", [], "length"),
            (7, "one two three four", "five six", [], "length"),
            (8, "one two three four", None, ["add"], "length"),
            (10, "one two three four", None, ["add", "sub"], "tool_calls"),
        ],
    )
    async def test_cuts_reasoning_then_text_then_calls(self, limit, reasoning, text, calls, finish_reason):
        with ModelServer(Script([self.ANSWER])) as server:
            completion = await ask(server, max_completion_tokens=limit)
        message = completion.choices[0].message
        assert message.reasoning_content == reasoning
        assert message.content == (text if text is not None else "five six")
        assert [call.function.name for call in message.tool_calls or []] == calls
        assert completion.choices[0].finish_reason == finish_reason
        assert completion.usage.completion_tokens <= limit


class TestRefusals:
    @pytest.mark.parametrize(
        ("messages", "complaint"),
        [
            ([QUESTION, RESULT], "must be a response to a preceding message"),
            ([QUESTION, CALLED], "have no response: 1"),
            ([QUESTION, CALLED, QUESTION, RESULT], "have no response: 1"),
            ([QUESTION, CALLED, RESULT, RESULT], "must be a response to a preceding message"),
            (
                [QUESTION, {**CALLED, "tool_calls": [{"id": "1", "name": "add", "arguments": "{}"}]}],
                "tool call needs an id",
            ),
            ([QUESTION, CALLED, {"role": "tool", "content": "3"}], "needs a tool_call_id"),
        ],
    )
    async def test_conversation_that_does_not_fit_together(self, messages, complaint):
        with ModelServer(FixedAnswer("yes")) as server:
            with pytest.raises(openai.BadRequestError, match=complaint):
                await ask(server, messages)
            assert server.stats().refused == 1
