"""The least a Python client can do: ``raw_loop.py URL N CONCURRENCY [FILE]`` posts N questions with bare aiohttp.

They are sums, or those of a JSON lines file, over and over.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp


async def main(url: str, n: int, concurrency: int, asked: list[str]) -> None:
    connector = aiohttp.TCPConnector(limit=concurrency)
    questions = iter(range(n))

    async def ask_repeatedly(session: aiohttp.ClientSession) -> None:
        for number in questions:
            content = asked[number % len(asked)]
            body = {"model": "local", "messages": [{"role": "user", "content": content}]}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                json.loads(await response.read())

    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(ask_repeatedly(session))


if len(sys.argv) > 4:
    questions = [json.loads(line)["question"] for line in Path(sys.argv[4]).read_text().splitlines()]
else:
    questions = [f"What is ({number} + 4) * 3?" for number in range(99)]
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), questions))
