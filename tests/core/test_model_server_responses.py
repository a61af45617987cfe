"""The model server in OpenAI's Responses API, seen through the official client."""

import json

import openai
import pytest

from nightjar.model_server import Answer, FixedAnswer, ModelServer, Script, tool_call

ADD = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": None}
QUESTION = {"role": "user", "content": "What is one plus two?"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "3"}


async def ask(server, items=(QUESTION,), **options):
    client = openai.AsyncOpenAI(
        base_url=server.base_url, api_key="any", max_retries=0, _strict_response_validation=True
    )
    async with client:
        return await client.responses.create(
            model="m", input=items if isinstance(items, str) else list(items), **options
        )


class Listening:
    """Answers "yes", and remembers what it was asked."""

    def answer(self, messages):
        self.messages = messages
        return Answer("q", "yes")


class TestResponses:
    async def test_text(self):
        with ModelServer(FixedAnswer("It is three.")) as server:
            response = await ask(server, "What is one plus two?")
        assert response.output_text == "It is three."
        assert (response.status, response.incomplete_details, response.error) == ("completed", None, None)
        assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (5, 3, 8)
        assert response.usage.output_tokens_details.reasoning_tokens == 0

    async def test_tool_round_trip_with_reasoning(self):
        def conclude(messages):
            return f"The sum is {messages[-1]['content']}."

        calls = Answer("q", "One moment.", reasoning="Add them.", tool_calls=(tool_call("add", a=1, b=2),))
        with ModelServer(Script([calls, conclude])) as server:
            first = await ask(server, tools=[ADD])
            reasoning, message, call = first.output
            result = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
            second = await ask(server, [QUESTION, *first.output, result], tools=[ADD])
        assert first.status == "completed"
        assert [(part.type, part.text) for part in reasoning.summary] == [("summary_text", "Add them.")]
        assert message.content[0].text == "One moment."
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 1, "b": 2})
        assert first.usage.output_tokens_details.reasoning_tokens == 2
        assert second.output_text == "The sum is 3."

    async def test_max_output_tokens_cuts_the_answer(self):
        with ModelServer(FixedAnswer("one two three")) as server:
            response = await ask(server, max_output_tokens=2)
        assert response.output_text == "one two"
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert response.usage.output_tokens == 2

    async def test_answerer_sees_chat_messages(self):
        items = [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look:"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
                ],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well: "}]},
            CALL,
            {**CALL, "call_id": "call_2"},
            RESULT,
            {**RESULT, "call_id": "call_2", "output": [{"type": "input_text", "text": "4"}]},
            {"role": "assistant", "content": "Seven."},
            {"role": "user", "content": "Thanks."},
        ]
        listening = Listening()
        with ModelServer(listening) as server:
            await ask(server, items, instructions="Be brief.")
        function = {"name": "add", "arguments": "{}"}
        assert listening.messages == [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": "Well: ",
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": function},
                    {"id": "call_2", "type": "function", "function": function},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "3"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "4"}]},
            {"role": "assistant", "content": "Seven."},
            {"role": "user", "content": "Thanks."},
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("items", "param", "complaint"),
        [
            ([QUESTION, CALL, QUESTION], "input", "No tool output found for function call call_1"),
            ([QUESTION, RESULT], "input", "No tool call found for function call output with call_id call_1"),
            ([QUESTION, {"type": "item_reference", "id": "x"}], "input[1]", "'item_reference' is not an input item"),
            ([{"role": "tool", "content": "3"}], "input[0]", "is not an input item"),
            (
                [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
                "input[0].content[0]",
                "'text' is not a content part",
            ),
            ([], "input", "a list that is not empty"),
        ],
    )
    async def test_input_that_does_not_fit_together(self, items, param, complaint):
        with (
            ModelServer(FixedAnswer("yes")) as server,
            pytest.raises(openai.BadRequestError, match=complaint) as caught,
        ):
            await ask(server, items)
        assert caught.value.param == param

    async def test_nothing_is_stored(self):
        with ModelServer(FixedAnswer("yes")) as server, pytest.raises(openai.BadRequestError) as caught:
            await ask(server, previous_response_id="resp_1")
        assert caught.value.param == "previous_response_id"
