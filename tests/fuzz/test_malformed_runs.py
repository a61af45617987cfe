"""A run of which five in seven answers are malformed, in each protocol: they fail, the others are scored."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from damage import damaged
from drawing import drawn

from nightjar.clients.protocols import PROTOCOLS
from nightjar.model_server import FixedAnswer, ModelServer

pytestmark = [pytest.mark.slow, pytest.mark.long]
MALFORMED, SOUND = 100, 40
TIMEOUT_SECONDS = 2
HEAD = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nConnection: close\r\n%s\r\n"
KINDS = [kind for kind in PROTOCOLS if kind != "openai_chat_completions_token"]
FIELDS = {
    "openai_chat_completions": {"messages": [{"role": "user", "content": "?"}]},
    "openai_completions": {"prompt": "?"},
    "openai_responses": {"input": "?"},
    "anthropic_messages": {"messages": [{"role": "user", "content": "?"}], "max_tokens": 9},
}


def response(body: bytes, status: int = 200, headers: bytes = b"") -> bytes:
    return HEAD % (status, headers + b"Content-Length: %d\r\n" % len(body)) + body


def malformed(sound: bytes) -> list[bytes | tuple[bytes, ...]]:
    """Returns a hundred answers; the parts of a tuple are sent a second apart."""
    chance = random.Random(5)
    bomb = zlib.compressobj(9, wbits=31)
    bombed = b"".join(bomb.compress(bytes(1_000_000)) for _ in range(80)) + bomb.flush()
    zipped = b"Content-Encoding: gzip\r\n"
    fields = json.loads(sound)
    oddities: list[Any] = [None, "", -1, 10**26, True, [], {}, [None], [[]], {"a": 1}]
    odd = [json.dumps({**fields, name: value}).encode() for name in fields for value in oddities]
    http: list[bytes | tuple[bytes, ...]] = [
        b"",
        b"HTTP/1.1",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"\x00\xff\x00\xff" * 50,
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + sound[:20],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 50_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        response(b""),
        response(b"null"),
        response(b"[" * 100_000),
        response(b"data: {}\n\ndata: [DONE]\n\n", headers=b"X-A: 1\r\n"),
        response(b"<html>busy</html>", 200),
        response(bombed, headers=zipped),
        response(gzip.compress(sound)[:-12], headers=zipped),
        response(b"not gzip", headers=zipped),
        response(json.dumps({"error": {"code": 502, "message": "no"}}).encode()),
        response(json.dumps({"error": "overloaded"}).encode()),
        *(response(b"", status, b"Location: http://127.0.0.1:9/v1\r\n") for status in (301, 302, 303, 307, 308)),
        *(response(sound, status) for status in (304, 400, 418, 500, 599)),
        (HEAD % (200, b"Content-Length: 20\r\n"), *[b" "] * 20),
        (b"HTTP/1.1 200 OK\r\n", *[b"X-Slow: 1\r\n"] * 20),
    ]
    garbled = [response(damaged(sound, chance)[: chance.randrange(1, 40)]) for _ in range(20)]
    return [*http, *garbled, *(response(body) for body in chance.sample(odd, MALFORMED - len(http) - len(garbled)))]


@contextmanager
def serving(sound: bytes, bad: list[bytes | tuple[bytes, ...]]) -> Iterator[str]:
    """Gives two of seven questions a sound answer, and each other one a malformed answer of its own."""
    order: dict[bytes, int] = {}
    ready: Future[tuple[int, Callable[[], object]]] = Future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError):  # the client may go away
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            position = order.setdefault(await reader.readexactly(length), len(order))
            block, place = divmod(position, 7)
            parts = response(sound) if place < 2 else bad[5 * block + place - 2]
            for part in (parts,) if isinstance(parts, bytes) else parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0 if isinstance(parts, bytes) else 1)

    async def serve() -> None:
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            ready.set_result((server.sockets[0].getsockname()[1], partial(loop.call_soon_threadsafe, is_over.set)))
            await is_over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    port, stop = ready.result(30)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        stop()
        thread.join()


@pytest.mark.parametrize("kind", drawn(KINDS, 2))
def test_malformed_answers_fail_their_rollouts_and_no_others(kind: Any, fork: Any, tmp_path: Path) -> None:
    import httpx

    headers = {"anthropic-version": "2023-06-01"}
    with ModelServer(FixedAnswer("4")) as server:
        url = server.root_url + ("/v1" + PROTOCOLS[kind].route)
        sound = httpx.post(url, json={"model": "m", **FIELDS[kind]}, headers=headers).raise_for_status().content
    count = MALFORMED + SOUND
    words = ["eval", "run", "arithmetic", "--direct", "--json", "-m", "m", "--api-client-type", kind, "-r", 1, "-c", 8]
    words += ["-n", count, "--request-retries", 0, "--request-timeout", TIMEOUT_SECONDS, "--max-tokens", 9]
    with serving(sound, malformed(sound)) as url:
        options = {"cwd": tmp_path, "env": {**os.environ, "PRIME_API_KEY": "any"}, "stdout": PIPE, "stderr": PIPE}
        process = fork.nightjar(*words, "-b", url, **options)
        stdout, stderr = process.communicate(timeout=240)

    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    metadata = json.loads(stdout)
    [results] = tmp_path.glob("outputs/evals/*/*/results.jsonl")
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(rows) == count
    assert all((row["reward"] is None) == (row["error"] is not None) for row in rows)
    assert SOUND <= metadata["scored"] < count - 30
