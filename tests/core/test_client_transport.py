"""The fast transport behaves like the SDK's own client, on the same server."""

import asyncio
import contextlib
import gzip
import itertools
import json
import tracemalloc

import pytest

from nightjar.clients import ClientConfig
from nightjar.clients.failures import classify
from nightjar.clients.status_errors import HttpResponse, status_error
from nightjar.model_server import Faults, FixedAnswer, ModelServer

KEY = "sk-very-secret-0123456789"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}
ANSWER = {
    "id": "c1", "object": "chat.completion", "created": 17, "model": "served",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}],
}  # fmt: skip
EVENTS = (
    b'data: {"id":"c1","object":"chat.completion.chunk","created":17,"model":"served",'
    b'"choices":[{"index":0,"delta":{"content":"4"}}]}\n\ndata: [DONE]\n\n'
)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)


@pytest.fixture
async def fast():
    """Makes clients with the fast transport, and closes them in the end."""
    from nightjar.clients.openai_sdk import AiohttpOpenAI

    async with contextlib.AsyncExitStack() as stack:

        def make(url, **fields):
            client = AiohttpOpenAI(ClientConfig(api_base_url=url, api_key_var="TEST_KEY", **fields))
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture(scope="module")
def openai():
    import openai  # 1 s

    return openai


async def error_of(client):
    from openai import OpenAIError

    with pytest.raises(OpenAIError) as caught:
        await client.chat.completions.create(**ASKED)
    return caught.value


def facts(error):
    names = ("status_code", "message", "body", "code", "param", "type", "request_id")
    return (type(error), *(getattr(error, name, None) for name in names))


STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529)
TOLD = b'{"error": {"message": "no luck", "type": "t", "code": 5, "param": "p"}}'
BODIES = [b"", b"<html>", b"[1]", b'"text"', b'{"detail": "x"}', b'{"error": "no luck"}', b'{"error": null}']


async def test_errors_of_every_status_and_body_are_those_of_the_sdk(canned, fast, openai):
    client = fast(canned.url)
    async with openai.AsyncOpenAI(base_url=canned.url, api_key=KEY, max_retries=0) as plain:
        for status, body in [*((status, TOLD) for status in STATUSES), *((502, body) for body in BODIES)]:
            canned.reply(body, status, x_request_id="r1", retry_after="7")
            mine, theirs = await error_of(client), await error_of(plain)
            assert facts(mine) == facts(theirs), (status, body)
            assert mine.response.headers["retry-after"] == theirs.response.headers["retry-after"]


async def test_errors_without_the_sdk_and_of_timeouts_are_those_of_the_sdk(openai, fast):
    import httpx2

    async with openai.AsyncOpenAI(api_key=KEY) as plain:
        for status, body in itertools.product(STATUSES, [*BODIES, TOLD]):
            received = httpx2.Response(status, content=body, request=httpx2.Request("POST", "http://any"))
            theirs = plain._make_status_error_from_response(received)
            mine = status_error(HttpResponse("http://any", status, {}, body))
            named = [(type(error).__name__, error.status_code, *facts(error)[3:]) for error in (mine, theirs)]
            assert named[0] == named[1], (status, body)
            assert body != TOLD or str(mine) == str(theirs)  # the SDK drops the words of other bodies
    with ModelServer(FixedAnswer("4"), faults=Faults(latency_ms=60_000)) as server:
        how = {"base_url": server.url, "api_key": KEY, "max_retries": 0, "timeout": 0.05}
        async with openai.AsyncOpenAI(**how) as plain:
            mine, theirs = await error_of(fast(server.url, timeout=0.05)), await error_of(plain)
        with pytest.raises(openai.APITimeoutError):
            await fast(server.url).chat.completions.create(**ASKED, timeout=0.05)
    assert facts(mine)[:3] == facts(theirs)[:3]
    assert type(mine) is openai.APITimeoutError


async def test_both_transports_send_the_same_body_and_key_and_give_the_sdk_s_types(canned, fast, openai):
    canned.reply(ANSWER)
    extra = {"stop": ["\n"], "temperature": 0.5, "extra_body": {"top_k": 3}, "extra_headers": {"X-Session": "s"}}
    async with openai.AsyncOpenAI(base_url=canned.url, api_key=KEY) as plain:
        for client in (fast(canned.url), plain):
            found = await client.chat.completions.create(**ASKED, **extra)
            assert (type(found), found.choices[0].message.content) == (openai.types.chat.ChatCompletion, "4")
    mine, theirs = canned.requests
    assert mine[2] == theirs[2] == {**ASKED, "stop": ["\n"], "temperature": 0.5, "top_k": 3}
    names = ("Authorization", "Content-Type", "Accept", "X-Session")
    assert [mine[1][name] for name in names] == [theirs[1][name] for name in names]
    counts = ["X-Stainless-Retry-Count" in headers for _, headers, _ in canned.requests]
    assert counts == [False, True], "only the SDK's own transport counts retries"


async def test_other_responses_options_and_routes_use_the_sdk_s_transport(canned, fast):
    client = fast(canned.url)
    canned.reply(ANSWER, x_request_id="r1")
    raw = await client.chat.completions.with_raw_response.create(**ASKED)
    assert (raw.headers["x-request-id"], raw.parse().choices[0].message.content) == ("r1", "4")
    async with client.chat.completions.with_streaming_response.create(**ASKED) as response:
        assert b'"4"' in await response.read()
    await client.chat.completions.create(**ASKED, extra_query={"v": "2"})
    assert "X-Stainless-Retry-Count" in canned.requests[-1][1]
    canned.reply(EVENTS, Content_Type="text/event-stream")
    chunks = [chunk async for chunk in await client.chat.completions.create(**ASKED, stream=True)]
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["4"]
    canned.reply({"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "x"}]})
    assert [model.id async for model in client.models.list()] == ["m"]
    canned.reply(ANSWER)
    client = fast(canned.url, extra_headers={"X-Team": "t"})
    async with client.with_options(timeout=3.0) as changed:
        await changed.chat.completions.create(**ASKED)
    headers = canned.requests[-1][1]
    assert (changed.timeout, headers["Authorization"], headers["X-Team"]) == (3.0, f"Bearer {KEY}", "t")


@pytest.mark.slow
async def test_anthropic_s_errors_headers_and_options_are_those_of_the_sdk(canned):
    import anthropic  # 1 s, for slow tests alone

    from nightjar.clients.anthropic_sdk import AiohttpAnthropic

    asked, url = {**ASKED, "max_tokens": 9}, canned.url.removesuffix("/v1")
    async with (
        AiohttpAnthropic(ClientConfig(api_base_url=canned.url, api_key_var="TEST_KEY")) as client,
        anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as plain,
    ):
        for status in (400, 401, 403, 404, 413, 429, 500, 529):
            canned.reply({"type": "error", "error": {"type": "t", "message": "no luck"}}, status, request_id="r1")
            errors = []
            for each in (client, plain):
                with pytest.raises(anthropic.AnthropicError) as caught:
                    await each.messages.create(**asked)
                errors.append(facts(caught.value))
            assert errors[0] == errors[1], status
        (path, mine, sent), (_, theirs, sent_by_sdk) = canned.requests[-2:]
        names = ("Authorization", "X-Api-Key", "anthropic-version", "Content-Type")
        assert [mine.get(name) for name in names] == [theirs.get(name) for name in names]
        assert (path, sent, sent_by_sdk) == ("/v1/messages", asked, asked)
        block = {"type": "text", "text": "4"}
        canned.reply({"id": "m1", "type": "message", "role": "assistant", "content": [block]}, request_id="r1")
        raw = await client.messages.with_raw_response.create(**asked)
        assert (raw.headers["request-id"], (await raw.parse()).content[0].text) == ("r1", "4")
        async with client.with_options(timeout=3.0) as changed:
            await changed.messages.create(**asked)
        assert (changed.timeout, canned.requests[-1][0]) == (3.0, "/v1/messages")


async def test_a_key_that_the_server_echoes_is_hidden(canned, fast):
    client = fast(canned.url)
    echoes = [(status, {"error": {"message": f"Incorrect API key: {KEY}."}}) for status in (401, 400, 500)]
    for status, body in [*echoes, (200, f"<pre>Authorization: Bearer {KEY}</pre>".encode())]:
        canned.reply(body, status)
        error = await error_of(client)
        assert KEY not in f"{error} {error.body} {error.response.text}"
        assert "[secret]" in str(error) or status == 200
        assert "authorization" not in error.request.headers
    canned.reply({**ANSWER, "model": KEY})
    assert (await client.chat.completions.create(**ASKED)).model == "[secret]"


async def test_another_host_gets_nothing_by_a_redirect(canned, fast):
    client, elsewhere = fast(canned.url), canned.url.replace("127.0.0.1", "localhost") + "/elsewhere"
    for status in (301, 302, 303, 307, 308):
        canned.reply(b"", status, Location=elsewhere)
        error = await error_of(client)
        assert (elsewhere in str(error), classify(error).is_permanent) == (True, True), status
    assert [path for path, _, _ in canned.requests] == ["/v1/chat/completions"] * 5


async def test_answers_without_end_or_that_unpack_to_a_huge_one_are_given_up(fast, canned):
    sent = 0

    async def endless(reader, writer):
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while sent < 100_000_000:
                writer.write(b"2710\r\n" + b" " * 10_000 + b"\r\n")
                sent += 10_000
                await writer.drain()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        error = await error_of(fast(url, max_response_bytes=1_000_000))
    assert "1,000,000 bytes (max_response_bytes)" in str(error)
    assert sent < 20_000_000
    packed = gzip.compress(json.dumps({**ANSWER, "padding": " " * 20_000_000}).encode())
    canned.reply(packed, Content_Encoding="gzip")
    tracemalloc.start()
    error = await error_of(fast(canned.url, max_response_bytes=1_000_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "1,000,000 bytes" in str(error)
    assert (len(packed) < 100_000, peak < 10_000_000) == (True, True)
