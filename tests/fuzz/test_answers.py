"""Answers of endpoints that are damaged anywhere: an answer all the same, or an invalid one, and never a crash."""

import asyncio
import gzip
import json
import random
import time
from contextlib import closing, suppress
from typing import Any

import pytest
from damage import CASES, damaged

from nightjar.clients import ClientConfig, ClientType, resolve_client
from nightjar.clients.protocols import PROTOCOLS
from nightjar.core.messages import UserMessage
from nightjar.errors import Error, InvalidModelResponseError
from nightjar.model_server import FixedAnswer, ModelServer

pytestmark = pytest.mark.slow
MOST_SECONDS = 5.0
ASKED = [UserMessage(content="2+2?")]


@pytest.fixture(scope="module")
def answers() -> dict[str, bytes]:
    """The responses of the model server to the same request in each protocol."""
    with ModelServer(FixedAnswer("4, because 2 and 2 are 4"), keep_requests=1) as server:
        return {kind: asyncio.run(answer_of(server, kind)) for kind in PROTOCOLS}


async def answer_of(server: ModelServer, kind: ClientType) -> bytes:
    async with resolve_client(ClientConfig(api_base_url=server.url, client_type=kind)) as client:
        await client.get_response(ASKED, "m", {"max_tokens": 9}, None)
    [sent] = server.requests
    headers = {name: value for name, value in sent.headers.items() if name == "anthropic-version"}
    import httpx

    async with httpx.AsyncClient() as http:
        response = await http.post(f"{server.root_url}{sent.path}", json=sent.body, headers=headers)
    return response.raise_for_status().content


@pytest.mark.parametrize("kind", PROTOCOLS)
async def test_an_answer_is_taken_or_refused(canned: Any, answers: dict[str, bytes], kind: str) -> None:
    chance, taken, refused = random.Random(kind), 0, 0
    async with resolve_client(ClientConfig(api_base_url=canned.url, client_type=kind, max_retries=0)) as client:
        for case in range(CASES):
            canned.reply(damaged(answers[kind], chance))
            begun = time.monotonic()
            try:
                response = await client.get_response(ASKED, "m", {"max_tokens": 9}, None)
            except InvalidModelResponseError:
                refused += 1
            else:
                json.dumps(response.model_dump(mode="json"))
                taken += 1
            assert time.monotonic() - begun < MOST_SECONDS, case
    assert taken
    assert refused


HEAD = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nConnection: close\r\n%s\r\n"


def response(body: bytes, status: int = 200, headers: bytes = b"") -> bytes:
    return HEAD % (status, headers + b"Content-Length: %d\r\n" % len(body)) + body


def malformed(sound: bytes) -> list[bytes]:
    zipped = b"Content-Encoding: gzip\r\n"
    return [
        b"",
        b"HTTP/1.1",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"\x00\xff\x00\xff" * 50,
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + sound[:20],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 50_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        *(response(body) for body in (b"", b"null", b"[" * 100_000, b"<html>busy</html>")),
        response(b"data: {}\n\ndata: [DONE]\n\n", headers=b"X-A: 1\r\n"),
        response(gzip.compress(sound)[:-12], headers=zipped),
        response(b"not gzip", headers=zipped),
        response(json.dumps({"error": {"code": 502, "message": "no"}}).encode()),
        response(json.dumps({"error": "overloaded"}).encode()),
        *(response(b"", status, b"Location: http://127.0.0.1:9/v1\r\n") for status in (301, 302, 303, 307, 308)),
        *(response(sound, status) for status in (304, 400, 418, 500, 599)),
    ]


@pytest.mark.parametrize("kind", [kind for kind in PROTOCOLS if kind != "openai_chat_completions_token"])
async def test_whatever_comes_in_the_place_of_http_is_taken_or_an_error(answers: dict[str, bytes], kind: str) -> None:
    sound, chance, taken, refused = answers[kind], random.Random(4), 0, 0
    whole, replies = response(sound), malformed(sound)
    for _ in range(CASES):
        place = chance.randrange(len(whole) - len(sound))
        replies.append(damaged(whole[: place + 40], chance) + whole[place + 40 :])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):  # the client may go away
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await writer.drain()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        config = ClientConfig(api_base_url=url, timeout=MOST_SECONDS, max_retries=0, client_type=kind)
        async with resolve_client(config) as client:
            for reply in replies:  # noqa: B007 - the server sends it
                try:
                    await client.get_response(ASKED, "m", {"max_tokens": 9}, None)
                    taken += 1
                except Error:
                    refused += 1
    assert taken
    assert refused >= len(malformed(sound))
