"""Plain posts and aiohttp's session give the same responses and errors, and send the same requests."""

import asyncio
import gzip
from contextlib import asynccontextmanager

import aiohttp
import pytest

from nightjar.clients import ClientConfig
from nightjar.clients.plain_posts import PlainPosts
from nightjar.clients.status_errors import APIError
from nightjar.clients.transport import Endpoint

JSON = b'{"choices": [1]}'
GZIP = gzip.compress(JSON, mtime=0)
OK = b"HTTP/1.1 200 OK\r\n"
ELSEWHERE = b'{"error":{"message":"The endpoint redirects to /v2. Use that address as the base URL"}}'
BY_A_SESSION = {"X-Own": "1"}
"""A header of one request, which only a session sends."""


@asynccontextmanager
async def answering(said):
    """Sends raw bytes after each request. Yields the URL and the requests of each connection."""
    connections = []

    async def answer(reader, writer):
        requests = []
        connections.append(requests)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                requests.append(head + await reader.readexactly(2))
                writer.write(said)
                if b"close" in said:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", connections


async def outcomes(url, headers=None, count=2, **config):
    """Returns the responses or errors of several requests."""
    endpoint, found = Endpoint(ClientConfig(api_base_url=url, **config)), []
    for _ in range(count):
        try:
            response = await endpoint.exchange(endpoint.url("/chat"), b"{}", headers)
            found.append((response.status_code, response.content))
        except APIError as error:
            found.append((type(error).__name__, str(error)))
    await endpoint.close()
    return found


def plain(length, more=b""):
    return OK + more + b"Content-Length: %d\r\n\r\n" % length


async def test_any_response_is_read_as_by_a_session():
    for said, first in [
        (plain(16) + JSON, (200, JSON)),
        (plain(0), (200, b"")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + plain(16) + JSON, (200, JSON)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", (101, b"")),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n10\r\n" + JSON + b"\r\n0\r\n\r\n", (200, JSON)),
        (plain(len(GZIP), b"Content-Encoding: gzip\r\n") + GZIP, (200, JSON)),
        (plain(16, b"Connection: close\r\n") + JSON, (200, JSON)),
        (OK + b"Connection: close\r\n\r\n" + JSON, (200, JSON)),
        (b"HTTP/1.1 307 Moved\r\nLocation: /v2\r\nContent-Length: 99\r\n\r\n", (307, ELSEWHERE)),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy", (503, b"busy")),
        (plain(99, b"Connection: close\r\n") + JSON, ("APIConnectionError", "Response payload is not completed")),
        (plain(3, b"Content-Encoding: gzip\r\n") + b"???", ("APIConnectionError", "Can not decode content-encoding")),
        (b"HTTP/1.1 abc\r\n\r\n", ("APIConnectionError", "400, message")),
        (b"close", ("APIConnectionError", "Cannot reach")),
    ]:
        async with answering(said) as (url, _):
            quick, usual = await outcomes(url), await outcomes(url, BY_A_SESSION)
        assert quick == usual
        assert quick[0][0] == first[0]
        assert quick[0][1] == first[1] if isinstance(first[1], bytes) else first[1] in quick[0][1]


async def test_the_same_request_is_sent_and_the_connection_is_kept():
    async with answering(plain(16) + JSON) as (url, connections):
        await outcomes(url, extra_headers={"X-Team": "Zoë"})
        await outcomes(url, {"X-Team": "Zoë"})
    quick, usual = ([sorted(request.split(b"\r\n")) for request in requests] for requests in connections)
    assert quick == usual
    assert len(quick) == 2


@pytest.mark.parametrize("headers", [None, BY_A_SESSION])
async def test_the_headers_of_a_response_are_heard_although_its_body_never_ends(headers):
    heard = []
    async with answering(plain(99, b"X-RateLimit-Remaining: 0\r\n")) as (url, _):
        endpoint = Endpoint(ClientConfig(api_base_url=url, timeout=0.05))
        endpoint.heard = lambda received: heard.append(received["x-ratelimit-remaining"])
        with pytest.raises(APIError):
            await endpoint.exchange(endpoint.url("/chat"), b"{}", headers)
        await endpoint.close()
    assert heard == ["0"]


@pytest.mark.parametrize("headers", [None, BY_A_SESSION])
async def test_a_late_second_response_answers_no_other_request(headers):
    async def answer(reader, writer):
        await reader.readuntil(b"{}")
        writer.write(plain(16) + JSON)
        await asyncio.sleep(0.02)
        writer.write(plain(5) + b"wrong")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        endpoint = Endpoint(ClientConfig(api_base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        for _ in range(2):
            assert (await endpoint.exchange(endpoint.url("/chat"), b"{}", headers)).content == JSON
            await asyncio.sleep(0.05)
        await endpoint.close()


async def test_a_connection_whose_request_was_not_sent_to_its_end_is_closed():
    large = b"{}" + bytes(20_000_000)  # more than the buffers of the sockets hold
    async with answering(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong") as (url, connections):
        endpoint = Endpoint(ClientConfig(api_base_url=url, timeout=5))
        for _ in range(2):
            response = await endpoint.exchange(endpoint.url("/chat"), large)
            assert (response.status_code, response.content) == (413, b"long")
        await endpoint.close()
    assert len(connections) == 2


async def test_a_slow_or_cancelled_request_ends_with_a_timeout_and_its_connection_is_closed():
    async with answering(plain(16)) as (url, connections):
        assert [kind for kind, _ in await outcomes(url, timeout=0.2)] == ["APITimeoutError"] * 2
        endpoint = Endpoint(ClientConfig(api_base_url=url))
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(endpoint.exchange(endpoint.url("/chat"), b"{}"), 0.2)
        await endpoint.close()
    assert len(connections) == 4


async def test_a_session_sends_what_is_unusual():
    url = "http://127.0.0.1:1/v1/chat"
    for address, headers in [
        ("http://me:word@127.0.0.1:1/v1/chat", {}), ("ftp://127.0.0.1:1/v1/chat", {}), ("http:///v1/chat", {}),
        ("http://127.0.0.1:99999/v1/chat", {}), (url, {"Expect": "100-continue"}), (url, {"X-Two": "a\r\nX-Lines: b"}),
    ]:  # fmt: skip
        async with aiohttp.ClientSession(headers=headers) as session:
            assert not PlainPosts(session, 100).can_send(address)
    async with aiohttp.ClientSession() as session:
        assert PlainPosts(session, 100).can_send(f"{url}?version=2")
