"""Answers of endpoints that are damaged anywhere: an answer all the same, or an invalid one, and never a crash."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import httpx
import pytest
from damage import CASES, damaged

from nightjar.clients import ClientConfig, resolve_client
from nightjar.errors import Error, InvalidModelResponseError
from nightjar.messages import UserMessage
from nightjar.testing import FixedAnswer, ModelServer

pytestmark = pytest.mark.slow
MOST_SECONDS = 5.0
VERSION = {"anthropic-version": "2023-06-01"}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "openai_chat_completions": ("/chat/completions", CHAT),
    "openai_completions": ("/completions", {"model": "m", "prompt": "2+2?"}),
    "openai_responses": ("/responses", {"model": "m", "input": "2+2?"}),
    "anthropic_messages": ("/messages", {**CHAT, "max_tokens": 9}),
}


@pytest.fixture(scope="module")
def answers() -> dict[str, bytes]:
    """What the model server says in each protocol."""
    with ModelServer(FixedAnswer("4, because 2 and 2 are 4")) as server:
        urls = {kind: (f"{server.url}{path}", body) for kind, (path, body) in ASKED.items()}
        found = {kind: httpx.post(url, json=body, headers=VERSION) for kind, (url, body) in urls.items()}
    return {kind: response.raise_for_status().content for kind, response in found.items()}


@pytest.mark.parametrize("kind", ASKED)
async def test_an_answer_is_taken_or_refused(canned: Any, answers: dict[str, bytes], kind: str) -> None:
    chance, taken, refused = random.Random(kind), 0, 0
    async with resolve_client(ClientConfig(api_base_url=canned.url, client_type=kind, max_retries=0)) as client:
        for case in range(CASES):
            canned.reply(damaged(answers[kind], chance))
            begun = time.monotonic()
            try:
                response = await client.get_response([UserMessage(content="2+2?")], "m", {"max_tokens": 9}, None)
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
                    await client.get_response([UserMessage(content="2+2?")], "m", {}, None)
                    taken += 1
                except Error:
                    refused += 1
    assert taken
    assert refused
