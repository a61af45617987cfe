"""The least a Python client can do: ``raw_loop.py URL N CONCURRENCY`` posts N questions with bare aiohttp."""

from __future__ import annotations

import asyncio
import json
import sys

import aiohttp


async def main(url: str, n: int, concurrency: int) -> None:
    """Asks n questions, so many at once."""
    connector = aiohttp.TCPConnector(limit=concurrency)
    questions = iter(range(n))

    async def ask_repeatedly(session: aiohttp.ClientSession) -> None:
        for number in questions:
            content = f"What is ({number % 99} + 4) * 3?"
            body = {"model": "local", "messages": [{"role": "user", "content": content}]}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                json.loads(await response.read())

    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(ask_repeatedly(session))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
