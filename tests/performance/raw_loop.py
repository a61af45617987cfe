"""The least a Python client can do: ``raw_loop.py URL N CONCURRENCY [FILE [REQUESTS]]`` posts with bare aiohttp.

It has N conversations, each with so many requests (one by default) that repeat all messages. The first messages are
sums, or the questions of a JSON lines file, over and over.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp


async def main(url: str, n: int, concurrency: int, asked: list[str], requests: int) -> None:
    connector = aiohttp.TCPConnector(limit=concurrency)
    questions = iter(range(n))

    async def ask(session: aiohttp.ClientSession, messages: list[Any]) -> Any:
        body = {"model": "local", "messages": messages}
        async with session.post(f"{url}/chat/completions", json=body) as response:
            return json.loads(await response.read())

    async def ask_repeatedly(session: aiohttp.ClientSession) -> None:
        for number in questions:
            messages: list[Any] = [{"role": "user", "content": asked[number % len(asked)]}]
            for _ in range(requests):
                said = (await ask(session, messages))["choices"][0]["message"]
                calls = said.get("tool_calls") or []
                results = [{"role": "tool", "tool_call_id": call["id"], "content": "2"} for call in calls]
                messages += [said, *(results or [{"role": "user", "content": "Go on."}])]

    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(ask_repeatedly(session))


if len(sys.argv) > 4:
    questions = [json.loads(line)["question"] for line in Path(sys.argv[4]).read_text().splitlines()]
else:
    questions = [f"What is ({number} + 4) * 3?" for number in range(99)]
requests = int(sys.argv[5]) if len(sys.argv) > 5 else 1
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), questions, requests))
