"""The answers of the model server in each protocol, as the official clients validate them."""

import json

import pytest
from late import late

from nightjar.model_server import Answer, FixedAnswer, ModelServer, Script, ToolCallAnswer, tool_call

pytestmark = pytest.mark.slow  # the SDKs take seconds to import

anthropic, openai = late("anthropic", "openai")
QUESTION = {"role": "user", "content": "What is one plus two?"}
SCHEMA = {"type": "object", "properties": {"a": {}, "b": {}}}
OPTIONS = {"api_key": "any", "max_retries": 0}


async def chat(server, messages=(QUESTION,), **options):
    async with openai.AsyncOpenAI(base_url=server.url, _strict_response_validation=True, **OPTIONS) as client:
        return await client.chat.completions.create(model="m", messages=list(messages), **options)


async def complete(server, prompt="Once upon a time", **options):
    is_strict = not options.get("echo")  # the first token has no probability, for which the SDK's type has no room
    async with openai.AsyncOpenAI(base_url=server.url, _strict_response_validation=is_strict, **OPTIONS) as client:
        return await client.completions.create(model="m", prompt=prompt, **options)


async def respond(server, items=(QUESTION,), **options):
    async with openai.AsyncOpenAI(base_url=server.url, _strict_response_validation=True, **OPTIONS) as client:
        return await client.responses.create(model="m", input=list(items), **options)


async def message(server, messages=(QUESTION,), **options):
    how = {"base_url": server.root_url, "_strict_response_validation": True, **OPTIONS}
    async with anthropic.AsyncAnthropic(**how) as client:
        return await client.messages.create(model="m", messages=list(messages), max_tokens=100, **options)


def conclude(messages):
    return f"The sum is {messages[-1]['content']}."


class Listening:
    """Answers "yes", and remembers what it was asked."""

    def answer(self, messages):
        self.messages = messages
        return Answer("q", "yes")


async def heard(ask, *args, **options):
    listening = Listening()
    with ModelServer(listening) as server:
        await ask(server, *args, **options)
    return listening.messages


async def test_a_chat_completion_and_the_list_of_models():
    with ModelServer(FixedAnswer("forty two")) as server:
        completion = await chat(server)
        async with openai.AsyncOpenAI(base_url=server.url, api_key="any") as client:
            assert [model.id for model in (await client.models.list()).data] == ["local"]
    choice, usage = completion.choices[0], completion.usage
    assert (completion.model, completion.object) == ("m", "chat.completion")
    assert (choice.logprobs, hasattr(choice, "token_ids")) == (None, False)
    assert (choice.message.content, choice.finish_reason) == ("forty two", "stop")
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 2, 7)


async def test_tool_calls_of_chat_completions_and_their_results():
    tool = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
    with ModelServer(Script([tool_call("add", a=1, b=2), conclude])) as server:
        first = await chat(server, tools=[tool])
        said = first.choices[0].message
        result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "3"}
        second = await chat(server, [QUESTION, said, result], tools=[tool])
    call = said.tool_calls[0]
    assert (first.choices[0].finish_reason, said.content, call.type) == ("tool_calls", None, "function")
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1, "b": 2})
    assert (second.choices[0].finish_reason, second.choices[0].message.content) == ("stop", "The sum is 3.")


async def test_ids_of_calls_are_unique_unless_they_are_given():
    given = ToolCallAnswer("call_7", "add", '{"a": 1')
    answer = Answer("q", "Let me see.", tool_calls=(tool_call("add", a=1), tool_call("add", a=3), given))
    with ModelServer(Script(lambda messages: answer)) as server:
        said = [(await chat(server)).choices[0].message for _ in range(2)]
    assert said[0].content == "Let me see."
    assert len({call.id for message in said for call in message.tool_calls}) == 5
    assert (said[0].tool_calls[2].id, said[0].tool_calls[2].function.arguments) == ("call_7", '{"a": 1')


async def test_words_of_a_call_are_tokens():
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    calls = [{"id": "1", "type": "function", "function": function}]
    called = {"role": "assistant", "content": "Hm, let me see.", "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": "1", "content": "It is 3"}
    with ModelServer(Script(lambda messages: ToolCallAnswer("2", "add", '{"a": 1}'))) as server:
        usage = (await chat(server, [QUESTION, called, result])).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (5 + (4 + 1 + 4) + 3, 1 + 2)
    assert usage.total_tokens == usage.prompt_tokens + 3


async def test_a_limit_cuts_reasoning_then_text_then_calls():
    calls = (tool_call("add", a=1), tool_call("sub"))
    answer = Answer("q", "five six", reasoning="one two three four", tool_calls=calls)
    with ModelServer(Script([answer])) as server:
        for limit, reasoning, text, names, finish_reason in (
            (3, "one two three", "", [], "length"),
            (4, "one two three four", "", [], "length"),
            (5, "one two three four", "five", [], "length"),
            (7, "one two three four", "five six", [], "length"),
            (8, "one two three four", "five six", ["add"], "length"),
            (10, "one two three four", "five six", ["add", "sub"], "tool_calls"),
        ):
            completion = await chat(server, max_completion_tokens=limit)
            choice, said = completion.choices[0], completion.choices[0].message
            assert (said.reasoning_content, said.content, choice.finish_reason) == (reasoning, text, finish_reason)
            assert [call.function.name for call in said.tool_calls or []] == names
            assert completion.usage.completion_tokens <= limit


async def test_a_text_completion():
    for prompt in ("Once upon a time", ["Once upon a time"]):
        with ModelServer(FixedAnswer(" there was a king")) as server:
            completion = await complete(server, prompt)
            assert server.stats().questions == {"Once upon a time": 1}
        choice = completion.choices[0]
        assert (choice.text, choice.finish_reason, choice.logprobs) == (" there was a king", "stop", None)
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (4, 4)


async def test_the_echo_of_a_text_completion_has_the_prompt_and_its_log_probabilities():
    scored = {"echo": True, "logprobs": 1, "max_tokens": 1}
    with ModelServer(FixedAnswer(" a king")) as server:
        choice, again = [(await complete(server, **scored)).choices[0] for _ in range(2)]
        other = (await complete(server, "Twice upon a time", **scored)).choices[0]
        unscored = (await complete(server, echo=True)).choices[0]
    assert choice.text == "Once upon a time a"
    assert choice.logprobs.tokens == ["Once", " upon", " a", " time", " a"]
    assert choice.logprobs.text_offset == [0, 4, 9, 11, 16]
    first, *values = choice.logprobs.token_logprobs
    assert first is choice.logprobs.top_logprobs[0] is None
    assert values == again.logprobs.token_logprobs[1:]
    assert values[:-1] != other.logprobs.token_logprobs[1:-1], "a probability depends on the text before it"
    tops = [max(top.values()) for top in choice.logprobs.top_logprobs[1:]]
    assert all(top == value if value >= -1 else top > value for top, value in zip(tops, values, strict=True))
    assert (unscored.text, unscored.logprobs) == ("Once upon a time a king", None)


async def test_token_ids_of_text_completions():
    with ModelServer(FixedAnswer(" a time")) as server:
        completion = await complete(server, logprobs=0, extra_body={"return_token_ids": True})
        cut = (await complete(server, max_tokens=2, extra_body={"return_token_ids": True})).choices[0]
    choice = completion.choices[0]
    assert len(choice.prompt_token_ids) == completion.usage.prompt_tokens == 4
    assert len(choice.token_ids) == completion.usage.completion_tokens == 3  # with the end token
    assert len(choice.logprobs.token_logprobs) == 3
    assert choice.token_ids[:2] == choice.prompt_token_ids[2:]  # the same words
    assert (cut.token_ids, cut.finish_reason) == (choice.token_ids[:2], "length")


async def test_reasoning_and_tool_calls_of_responses_and_their_results():
    tool = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": None}
    calls = Answer("q", "One moment.", reasoning="Add them.", tool_calls=(tool_call("add", a=1, b=2),))
    with ModelServer(Script([calls, conclude])) as server:
        first = await respond(server, tools=[tool])
        reasoning, said, call = first.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
        second = await respond(server, [QUESTION, *first.output, result], tools=[tool])
    assert (first.status, first.incomplete_details, first.error) == ("completed", None, None)
    assert [(part.type, part.text) for part in reasoning.summary] == [("summary_text", "Add them.")]
    assert said.content[0].text == "One moment."
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 1, "b": 2})
    assert first.usage.output_tokens_details.reasoning_tokens == 2
    assert (second.output_text, second.usage.output_tokens_details.reasoning_tokens) == ("The sum is 3.", 0)


async def test_items_of_responses_become_chat_messages_for_the_answerer():
    call = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look:"}, image]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well: "}]}, call,
        {**call, "call_id": "call_2"}, result,
        {**result, "call_id": "call_2", "output": [{"type": "input_text", "text": "4"}]},
        {"role": "assistant", "content": "Seven."}, {"role": "user", "content": "Thanks."},
    ]  # fmt: skip
    function = {"name": "add", "arguments": "{}"}
    calls = [{"id": name, "type": "function", "function": function} for name in ("call_1", "call_2")]
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert await heard(respond, items, instructions="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, shown]},
        {"role": "assistant", "content": "Well: ", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "4"}]},
        {"role": "assistant", "content": "Seven."},
        {"role": "user", "content": "Thanks."},
    ]


async def test_thinking_and_tool_calls_of_anthropic_messages_and_their_results():
    tool = {"name": "add", "input_schema": SCHEMA}
    calls = Answer("q", "", reasoning="Add them.", tool_calls=(tool_call("add", a=1, b=2),))
    with ModelServer(Script([calls, conclude])) as server:
        first = await message(server, tools=[tool])
        thinking, use = first.content
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "3"}
        turns = [QUESTION, first.to_param(), {"role": "user", "content": [result]}]
        second = await message(server, turns, tools=[tool])
    assert (thinking.type, thinking.thinking, bool(thinking.signature)) == ("thinking", "Add them.", True)
    assert (use.type, use.name, use.input) == ("tool_use", "add", {"a": 1, "b": 2})
    assert (first.stop_reason, first.usage.output_tokens_details.thinking_tokens) == ("tool_use", 2)
    assert (second.content[0].text, second.stop_reason) == ("The sum is 3.", "end_turn")
    assert second.usage.cache_read_input_tokens == 0


async def test_an_empty_anthropic_message_has_no_block():
    with ModelServer(FixedAnswer("")) as server:
        empty = await message(server)
    assert (empty.content, empty.stop_reason) == ([], "end_turn")


async def test_arguments_in_anthropic_messages_are_always_an_object():
    for arguments in ('{"a": 1}', '{"a": 1', "[1]"):
        with ModelServer(Script([ToolCallAnswer("toolu_1", "add", arguments)])) as server:
            block = (await message(server)).content[0]
        sent = {"a": 1} if arguments == '{"a": 1}' else {"INVALID_JSON": arguments}
        assert (block.id, block.input) == ("toolu_1", sent)


async def test_anthropic_messages_become_chat_messages_for_the_answerer():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text = {"type": "text", "text": "Add."}
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Well: "}, {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1}},
    ]  # fmt: skip
    messages = [
        {"role": "user", "content": [image, text]},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [text]}, text]},
    ]
    function = {"name": "add", "arguments": '{"a":1}'}
    calls = [{"id": "1", "type": "function", "function": function}]
    assert await heard(message, messages, system=[{"type": "text", "text": "Be brief."}]) == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [shown, text]},
        {"role": "assistant", "content": "Well: ", "reasoning_content": "Hm.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": [text]},
        {"role": "user", "content": [text]},
    ]
