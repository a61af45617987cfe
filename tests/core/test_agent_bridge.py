"""The HTTP server between agents and the model, asked by the providers' own SDKs and by raw requests."""

import asyncio
import contextlib
import json

import aiohttp
import pytest

from nightjar.core.messages import (
    AssistantMessage,
    ImageUrlContentPart,
    SystemMessage,
    TextContentPart,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from nightjar.environments.agents import bridge as bridge_module
from nightjar.environments.agents.bridge import AgentBridge
from nightjar.errors import InfraError, ServiceError

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Tells the weather.", "parameters": SCHEMA}
WEATHER = Tool(**FUNCTION)
OSLO = '{"city": "Oslo"}'
CALL = {"id": "call_1", "name": "weather", "arguments": OSLO}
USER = {"messages": [{"role": "user", "content": "Hi"}]}
ASKED = [
    SystemMessage(content="Be brief."),
    UserMessage(content="Weather in Oslo?"),
    AssistantMessage(content="Let me see.", tool_calls=[ToolCall(**CALL)]),
    ToolMessage(tool_call_id="call_1", content="rain"),
]

CHAT_TOOL = {"type": "function", "function": FUNCTION}
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": OSLO}}
CHAT = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Weather in Oslo?"},
    {"role": "assistant", "content": "Let me see.", "tool_calls": [CHAT_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
]
RESPONSES_TOOL = {"type": "function", **FUNCTION}
ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "Weather in Oslo?"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": OSLO},
    {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
]
MESSAGES_TOOL = {"name": "weather", "description": "Tells the weather.", "input_schema": SCHEMA}
USE = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}}
TURNS = [
    {"role": "user", "content": "Weather in Oslo?"},
    {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, USE]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "rain"}]},
]

with_claude = pytest.mark.slow  # the SDK of Anthropic takes two seconds to import


@pytest.fixture
def conversation(bridge):
    return bridge.open("tested")


@pytest.fixture
async def gpt(bridge, conversation):
    import openai

    url = f"{bridge.url}{conversation.path}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=conversation.token, max_retries=2) as client:
        yield client


@pytest.fixture
async def claude(bridge, conversation):
    import anthropic

    url = f"{bridge.url}{conversation.path}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key=conversation.token, max_retries=2) as client:
        yield client


async def answered(conversation, asking, response):
    """Answers one request; returns the request, and what the agent got."""
    task = asyncio.create_task(asking)
    request = await asyncio.wait_for(conversation.next_request(), 60)
    request.answer(response)
    return request, await task


async def answered_both_ways(conversation, api, final, said, **arguments):
    """Yields what the agent gets of a response as a whole, and at the end of a stream."""
    yield (await answered(conversation, api.create(**arguments), said))[1]

    async def streamed():
        async with api.stream(**arguments) as stream:
            return await getattr(stream, final)()

    yield (await answered(conversation, streamed(), said))[1]


@contextlib.asynccontextmanager
async def connected(bridge):
    """Yields the reader and the writer of a connection."""
    reader, writer = await asyncio.open_connection(bridge.host, bridge.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def status_of(connection, request):
    """Sends bytes on a connection; returns the status of the response."""
    connection[1].write(request)
    return int((await connection[0].readline()).split()[1])


async def post(bridge, conversation, path, body, **headers):
    """Posts a raw body; returns status and body of the response."""
    headers = {"Authorization": f"Bearer {conversation.token}"} | headers
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with aiohttp.request("POST", f"{bridge.url}{conversation.path}{path}", data=data, headers=headers) as got:
        return got.status, await got.json()


async def test_a_request_in_chat_completions_arrives_in_nightjars_form(conversation, gpt, response):
    choice = {"tool_choice": {"type": "function", "function": {"name": "weather"}}}
    asking = gpt.chat.completions.create(
        model="any", messages=CHAT, tools=[CHAT_TOOL], temperature=0.5, stop=["END"], max_completion_tokens=9, **choice
    )
    request, got = await answered(conversation, asking, response("Rain.", usage=(7, 2)))
    assert (request.messages, request.tools) == (ASKED, [WEATHER])
    assert request.sampling_args == {"temperature": 0.5, "stop": ["END"], "max_tokens": 9, **choice}
    assert (got.model, got.choices[0].message.content, got.choices[0].finish_reason) == ("tested", "Rain.", "stop")
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (7, 2, 9)
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}}]
    asking = gpt.chat.completions.create(model="any", messages=[{"role": "user", "content": parts}])
    request, _ = await answered(conversation, asking, response("A map."))
    image = ImageUrlContentPart(image_url={"url": "data:,", "detail": "low"})
    assert request.messages == [UserMessage(content=[TextContentPart(text="What?"), image])]


async def test_tool_calls_in_chat_completions_are_answered_whole_and_in_chunks(conversation, gpt, response):
    said = response("", tool_calls=[CALL, CALL | {"id": "call_2"}], finish_reason="tool_calls")
    arguments = {"model": "any", "messages": CHAT[:2], "tools": [CHAT_TOOL]}
    async for got in answered_both_ways(conversation, gpt.chat.completions, "get_final_completion", said, **arguments):
        calls = [(call.id, call.function.name, call.function.arguments) for call in got.choices[0].message.tool_calls]
        assert calls == [("call_1", "weather", '{"city": "Oslo"}'), ("call_2", "weather", '{"city": "Oslo"}')]
        assert (got.choices[0].finish_reason, got.usage.total_tokens) == ("tool_calls", 5)

    async def streamed():
        stream = await gpt.chat.completions.create(model="any", messages=CHAT[:2], stream=True)
        return [(chunk.choices[0].delta.content, chunk.choices[0].finish_reason) async for chunk in stream]

    _, choices = await answered(conversation, streamed(), response("Rain."))
    assert choices == [("", None), ("Rain.", None), (None, "stop")]


async def test_a_request_in_responses_arrives_in_nightjars_form(conversation, gpt, response):
    asking = gpt.responses.create(
        model="any", instructions="Be brief.", input=ITEMS, tools=[RESPONSES_TOOL], max_output_tokens=9,
        tool_choice={"type": "function", "name": "weather"}, reasoning={"effort": "low"}, parallel_tool_calls=False,
    )  # fmt: skip
    request, got = await answered(conversation, asking, response("Rain.", usage=(7, 2)))
    assert (request.messages, request.tools) == (ASKED, [WEATHER])
    assert request.sampling_args == {
        "max_tokens": 9, "parallel_tool_calls": False, "reasoning_effort": "low",
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }  # fmt: skip
    assert (got.output_text, got.status, got.usage.input_tokens, got.usage.total_tokens) == ("Rain.", "completed", 7, 9)
    asking = gpt.responses.create(model="any", input="Hi")
    request, got = await answered(conversation, asking, response("Ho", finish_reason="length"))
    assert request.messages == [UserMessage(content="Hi")]
    assert (got.status, got.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_reasoning_and_tool_calls_in_responses_are_answered_whole_and_in_a_stream(conversation, gpt, response):
    said = response("Let me see.", tool_calls=[CALL], finish_reason="tool_calls")
    said.message.reasoning_content = "It may rain."
    arguments = {"model": "any", "input": "Weather?", "tools": [RESPONSES_TOOL]}
    async for got in answered_both_ways(conversation, gpt.responses, "get_final_response", said, **arguments):
        reasoning, text, call = got.output
        assert reasoning.summary[0].text == "It may rain."
        assert text.content[0].text == got.output_text == "Let me see."
        assert (call.call_id, call.name, call.arguments) == ("call_1", "weather", '{"city": "Oslo"}')


@with_claude
async def test_a_request_in_messages_arrives_in_nightjars_form(conversation, claude, response):
    asking = claude.messages.create(
        model="any", max_tokens=9, system=[{"type": "text", "text": "Be brief."}], messages=TURNS,
        tools=[MESSAGES_TOOL], stop_sequences=["END"],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )  # fmt: skip
    request, got = await answered(conversation, asking, response("Rain.", usage=(7, 2)))
    call = ToolCall(id="call_1", name="weather", arguments='{"city":"Oslo"}')
    assert request.messages == [*ASKED[:2], AssistantMessage(content="Let me see.", tool_calls=[call]), ASKED[3]]
    sampled = {"stop": ["END"], "max_tokens": 9, "tool_choice": "required", "parallel_tool_calls": False}
    assert (request.tools, request.sampling_args) == ([WEATHER], sampled)
    assert (got.model, got.content[0].text, got.stop_reason) == ("tested", "Rain.", "end_turn")
    assert (got.usage.input_tokens, got.usage.output_tokens) == (7, 2)


@with_claude
async def test_turns_of_messages_become_several_messages_and_thinking_is_kept_for_an_agent_that_enabled_it(
    conversation, claude, response
):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "rain"}]}
    turn = {"role": "user", "content": [result, {"type": "text", "text": "And here?"}, image]}
    asking = claude.messages.create(model="any", max_tokens=9, messages=[*TURNS[:2], turn])
    request, _ = await answered(conversation, asking, response("Rain."))
    picture = ImageUrlContentPart(image_url={"url": "data:image/png;base64,AAAA"})
    assert request.messages[2:] == [
        ToolMessage(tool_call_id="call_1", content="rain"),
        UserMessage(content=[TextContentPart(text="And here?"), picture]),
    ]
    said = response("Rain.")
    said.message.reasoning_content = "It may rain."
    for thinking, kinds in (
        ({"type": "disabled"}, ["text"]),
        ({"type": "enabled", "budget_tokens": 1024}, ["thinking", "text"]),
    ):
        asking = claude.messages.create(model="any", max_tokens=2048, messages=TURNS[:1], thinking=thinking)
        _, got = await answered(conversation, asking, said)
        assert [block.type for block in got.content] == kinds
    thought = {"type": "thinking", "thinking": "It may rain.", "signature": "abc"}
    turn = {"role": "assistant", "content": [thought, {"type": "text", "text": "Rain."}]}
    asking = claude.messages.create(model="any", max_tokens=9, messages=[TURNS[0], turn, *USER["messages"]])
    request, _ = await answered(conversation, asking, response("Yes."))
    thinking = {"reasoning_content": "It may rain.", "thinking_blocks": [thought]}
    assert request.messages[1] == AssistantMessage(content="Rain.", **thinking)


@with_claude
async def test_tool_calls_in_messages_are_answered_whole_and_in_a_stream(conversation, claude, response):
    said = response("Let me see.", tool_calls=[CALL], finish_reason="tool_calls")
    arguments = {"model": "any", "max_tokens": 9, "messages": TURNS[:1], "tools": [MESSAGES_TOOL]}
    async for got in answered_both_ways(conversation, claude.messages, "get_final_message", said, **arguments):
        text, call = got.content
        assert text.text == "Let me see."
        assert (call.id, call.name, call.input) == ("call_1", "weather", {"city": "Oslo"})
        assert (got.stop_reason, got.usage.output_tokens) == ("tool_use", 2)


@with_claude
async def test_tokens_are_counted_roughly_and_both_sdks_list_the_model(gpt, claude):
    counted = await claude.messages.count_tokens(model="any", messages=[{"role": "user", "content": "a" * 4000}])
    assert counted.input_tokens == pytest.approx(1000, rel=0.1)
    for client in (gpt, claude):
        assert [model.id async for model in client.models.list()] == ["tested"]


async def test_requests_wait_in_their_order_and_any_text_is_sent(conversation, gpt, response):
    asked, taken = [], []
    for text in ("one", "two"):
        asking = gpt.chat.completions.create(model="any", messages=[{"role": "user", "content": text}])
        asked.append(asyncio.create_task(asking))
        taken.append(await conversation.next_request())
    for request in reversed(taken):
        request.answer(response(request.messages[0].content.upper()))
    assert [(await task).choices[0].message.content for task in asked] == ["ONE", "TWO"]
    _, got = await answered(conversation, gpt.chat.completions.create(model="any", **USER), response("half \ud83d"))
    assert got.choices[0].message.content == "half \ud83d"


@with_claude
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_failure_reaches_the_agent_at_once(conversation, gpt, claude, is_streamed):
    how = {"model": "any", **USER, "stream": is_streamed}
    for asking in (gpt.chat.completions.create(**how), claude.messages.create(max_tokens=9, **how)):
        task = asyncio.create_task(asking)
        (await conversation.next_request()).fail(502, "The model is away.")
        with pytest.raises(Exception, match=r"The model is away\.") as failed:
            await task
        assert (type(failed.value).__name__, failed.value.status_code) == ("InternalServerError", 502)
    assert conversation.take_request() is None  # no SDK has tried again


@with_claude
async def test_a_stream_shows_signs_of_life_until_its_end(response):
    import anthropic
    import openai

    bridge = AgentBridge(keep_alive_seconds=0.02)
    await bridge.start()
    conversation = bridge.open("tested")
    base, key = f"{bridge.url}{conversation.path}", conversation.token
    how = {"model": "m", "stream": True}
    async with (
        openai.AsyncOpenAI(base_url=f"{base}/v1", api_key=key) as gpt,
        anthropic.AsyncAnthropic(base_url=base, api_key=key) as claude,
    ):

        async def asked(create, **fields):
            return [event async for event in await create(**how, **fields)]

        for ask, errors in (
            (lambda: asked(gpt.chat.completions.create, **USER), openai.APIError),
            (lambda: asked(gpt.responses.create, input="Hi"), openai.APIError),
            (lambda: asked(claude.messages.create, max_tokens=9, **USER), anthropic.APIError),
        ):
            task = asyncio.create_task(ask())
            request = await conversation.next_request()
            await asyncio.sleep(0.07)
            request.answer(response("Ho"))
            assert "Ho" in str(await task)
            task = asyncio.create_task(ask())
            request = await conversation.next_request()
            await asyncio.sleep(0.07)
            request.fail(502, "The model is away.")
            with pytest.raises(errors, match="The model is away"):
                await task
    await bridge.stop()


async def test_a_closed_conversation_fails_requests_and_the_request_of_an_agent_that_has_gone_is_dropped(
    bridge, conversation, response, caplog, gpt
):
    for is_taken in (False, True):
        task = asyncio.create_task(post(bridge, conversation, "/v1/chat/completions", USER))
        await asyncio.wait_for(conversation.wait_for_request(), 60)
        taken = conversation.take_request() if is_taken else None
        task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(60):
            while conversation._unanswered:  # noqa: ASYNC110 - the server notices it by itself
                await asyncio.sleep(0.01)
        assert conversation.take_request() is None
    taken.answer(response("too late"))
    taken.fail(502, "too late")
    assert not caplog.records

    import openai

    waiting = [asyncio.create_task(gpt.chat.completions.create(model="m", **USER)) for _ in range(2)]
    for _ in waiting:
        await conversation.next_request()
    conversation.close()
    for task in waiting:
        with pytest.raises(openai.APIStatusError, match="The rollout has ended") as failed:
            await task
        assert failed.value.status_code == 503
    with pytest.raises(openai.AuthenticationError):
        await gpt.chat.completions.create(model="m", **USER)
    with pytest.raises(InfraError, match="closed"):
        await conversation.next_request()


async def test_a_key_opens_its_own_conversation_only(bridge, conversation):
    other = bridge.open("other")
    chat, messages = "/v1/chat/completions", "/v1/messages"
    for path in (chat, messages, "/v1/models", "/v1/unknown"):
        for headers in ({"Authorization": f"Bearer {other.token}"}, {"Authorization": ""}, {"x-api-key": "é"}):
            status, body = await post(bridge, conversation, path, {}, **headers)
            assert (status, "Wrong or missing API key" in body["error"]["message"]) == (401, True)
    _, body = await post(bridge, conversation, chat, {}, Authorization="x")
    assert body["error"]["code"] == "invalid_api_key"
    _, body = await post(bridge, conversation, messages, {}, Authorization="x")
    assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
    key = {"x-api-key": other.token}
    async with aiohttp.request("POST", f"{bridge.url}/rollout/none{chat}", headers=key) as got:
        assert got.status == 401


async def test_unsupported_endpoints_and_failures_are_answered_with_a_message(
    bridge, conversation, monkeypatch, caplog
):
    status, body = await post(bridge, conversation, "/v1/embeddings", {})
    assert status == 404
    assert body["error"]["message"] == (
        "Unsupported: POST /v1/embeddings. The server supports POST /v1/chat/completions, POST /v1/responses, "
        "POST /v1/messages, POST /v1/messages/count_tokens, GET /v1/models."
    )
    monkeypatch.setattr("nightjar.environments.agents.bridge_chat.parse", lambda body: 1 / 0)
    status, body = await post(bridge, conversation, "/v1/chat/completions", USER)
    assert (status, body["error"]["message"]) == (500, "The server of the model failed to handle this request.")
    assert "ZeroDivisionError" in caplog.text


async def test_an_invalid_request_is_refused_with_the_name_of_the_field(bridge, conversation):
    for path, body, problem in (
        ("chat/completions", b"{", "The body is not valid JSON"),
        ("chat/completions", b'{"a": "\xff"}', "The body is not valid JSON"),
        ("chat/completions", b"[]", "The body: expected an object, found []"),
        ("chat/completions", b'{"a":' * 200 + b"1" + b"}" * 200, "nested more than 128 levels"),
        ("chat/completions", {}, "messages: expected a list, but the field is missing"),
        ("chat/completions", {"messages": []}, "messages: expected a list with at least one element"),
        ("chat/completions", {"messages": ["Hi"]}, "messages[0]: expected an object, found 'Hi'"),
        ("chat/completions", {"messages": [{"role": "bot"}]}, "messages[0].role: expected one of system"),
        ("chat/completions", {"messages": [{"role": "user", "content": 1}]}, "messages[0].content: expected"),
        (
            "chat/completions", {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
            "messages[0].content[0].type: expected one of text, refusal, image_url",
        ),
        ("chat/completions", USER | {"temperature": "hot"}, "temperature: expected a number, found 'hot'"),
        ("chat/completions", USER | {"max_tokens": True}, "max_tokens: expected an integer, found True"),
        ("chat/completions", USER | {"max_tokens": 0}, "max_tokens: expected a positive integer, found 0"),
        ("chat/completions", USER | {"n": 2}, "n: expected 1"),
        ("chat/completions", USER | {"stream": "yes"}, "stream: expected true or false, found 'yes'"),
        ("chat/completions", USER | {"stop": [1]}, "stop: expected a text or a list of texts"),
        ("chat/completions", USER | {"tools": [{"type": "function"}]}, "tools[0].function: expected an object"),
        ("chat/completions", USER | {"tool_choice": "some"}, "tool_choice: expected one of auto, none, required"),
        ("responses", {"input": ""}, "input: expected a list, found ''"),
        ("responses", {"input": "Hi", "previous_response_id": "r"}, "previous_response_id: the server"),
        ("responses", {"input": [{"type": "item_reference", "id": "r"}]}, "input[0].type: expected one of message"),
        ("responses", {"input": "Hi", "tools": [{"type": "web_search"}]}, "tools[0].type: the server has no tool"),
        ("messages", {}, "messages: expected a list"),
        ("messages", USER | {"tools": [{"name": "x"}]}, "tools[0].input_schema: expected an object"),
        ("messages", USER | {"tools": [{"name": "x", "type": "bash_1"}]}, "tools[0].type: the server has no tool"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "x"}]}]}, "messages[0].content[0].type"),
        ("messages/count_tokens", {"messages": 1}, "messages: expected a list, found 1"),
    ):  # fmt: skip
        status, answer = await post(bridge, conversation, f"/v1/{path}", body)
        told = problem in answer["error"]["message"], "request_id" in answer  # Anthropic's form of an error
        assert (status, *told) == (400, True, path.startswith("messages")), (body, answer)
    assert conversation.take_request() is None


async def test_the_size_of_a_request_of_its_values_and_of_all_requests_is_limited(bridge, conversation, monkeypatch):
    assert bridge_module.MAX_BODY_BYTES == 64 * 2**20
    monkeypatch.setattr(bridge_module, "MAX_BODY_BYTES", 2**20 - 1)
    small = AgentBridge()
    await small.start()
    status, body = await post(small, small.open("tested"), "/v1/messages", b" " * 2**20)
    assert (status, body["error"]["message"][:23]) == (413, "The body is larger than")
    await small.stop()
    for value, count, problem in (
        (b"{}", 300_000, "The body has more than 500,000 commas and brackets"),
        (b"1", 20_001, "messages: expected at most 20,000 elements"),
    ):
        values = b'{"messages": [%s]}' % b",".join([value] * count)
        status, body = await post(bridge, conversation, "/v1/chat/completions", values)
        assert (status, body["error"]["type"]) == (413, "invalid_request_error")
        assert problem in body["error"]["message"]
    monkeypatch.setattr("nightjar.environments.agents.conversation._MOST_RECEIVED_BYTES", 2**19)
    status, body = await post(bridge, conversation, "/v1/chat/completions", USER | {"note": "x" * 2**19})
    told = "The requests of this agent have more than 0.5 MB."
    assert (status, body["error"]["message"]) == (413, told)


async def test_an_address_has_a_limited_number_of_connections_and_bad_http_leaves_no_log(bridge, monkeypatch, caplog):
    get = b"GET / HTTP/1.1\r\nHost: x\r\n"
    monkeypatch.setattr(bridge_module, "_MOST_CONNECTIONS", 2)
    async with connected(bridge) as first, connected(bridge):
        async with connected(bridge) as too_many:
            with contextlib.suppress(ConnectionError):
                assert await too_many[0].read() == b""
        assert await status_of(first, get + b"\r\n") == 401
    async with connected(bridge) as later:
        assert await status_of(later, get + b"\r\n") == 401
    async with connected(bridge) as no_http:
        assert await status_of(no_http, get + b"X: %s\r\n\r\n" % (b"y" * 100_000)) == 400
    assert caplog.text == ""


async def test_an_agent_cannot_queue_any_number_of_requests(bridge, conversation):
    asking = [asyncio.create_task(post(bridge, conversation, "/v1/chat/completions", USER)) for _ in range(65)]
    done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    [(status, body)] = [task.result() for task in done]
    assert (status, body["error"]["message"]) == (429, "64 requests of this agent already wait for an answer.")
    conversation.close()
    assert {status for status, _ in await asyncio.gather(*asking)} == {429, 503}


async def test_a_port_in_use_is_reported(bridge):
    await bridge.start()  # does nothing
    with pytest.raises(ServiceError, match=f"Cannot listen on port {bridge.port} of 127.0.0.1"):
        await AgentBridge().start(port=bridge.port)
