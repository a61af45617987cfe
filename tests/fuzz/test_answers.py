"""Answers of endpoints that are damaged anywhere: an answer all the same, or an invalid one, and never a crash."""

import asyncio
import json
import random
import time
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


async def test_whatever_comes_in_the_place_of_http(answers: dict[str, bytes]) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    body = answers["openai_chat_completions"]
    chance, whole, now = random.Random(4), head % len(body) + body, b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(now)
        await writer.drain()
        writer.close()

    taken = refused = 0
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with resolve_client(ClientConfig(api_base_url=url, timeout=MOST_SECONDS, max_retries=0)) as client:
            for _ in range(CASES):
                place = chance.randrange(len(head))
                now = damaged(whole[: place + 40], chance) + whole[place + 40 :]
                try:
                    await client.get_response(ASKED, "m", {}, None)
                    taken += 1
                except Error:
                    refused += 1
    assert taken
    assert refused
