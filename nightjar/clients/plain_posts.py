"""Posts over the connections of an aiohttp session, in half of the CPU time of ``ClientSession.post``.

For each request, a session makes a URL, headers, a request, a response, timers and a task. ``PlainPosts`` prepares a
request once, because the requests to one URL differ only in their bodies. aiohttp still connects, keeps connections and
parses responses.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy
from yarl import URL

from nightjar.core.calling.time_limits import time_limit

Heard: TypeAlias = Callable[[Mapping[str, str]], None]
"""Is called with the headers of a response, before the body is read."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_INTERIM = frozenset(range(100, 200)) - {101}
_OF_A_BODY = frozenset({"content-encoding", "content-length", "expect", "transfer-encoding"})
_MOST_URLS = 64
_PLAIN_URL = re.compile(r"(?i)https?://[^/?#@]+[/?#]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Received(NamedTuple):
    """A response. ``content`` is the unpacked body, empty for a redirect, and None if the body is too long."""

    status: int
    headers: CIMultiDictProxy[str]
    content: bytes | None


async def content_of(status: int, payload: aiohttp.StreamReader, max_bytes: int) -> bytes | None:
    """Returns the unpacked body. Returns None as soon as it is longer than ``max_bytes``.

    The body of a redirect is not read: it may be damaged or endless, and only the address matters.
    """
    if status in REDIRECTS:
        return b""
    parts, size = [], 0
    while part := await payload.readany():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            return None
    return b"".join(parts)


class CleanConnector(aiohttp.TCPConnector):
    """Closes a kept connection on which something arrived after its response.

    A faulty server or proxy may send a second response late, which would answer the next request.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._used: WeakSet[Any] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's
    ) -> aiohttp.connector.Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol: Any = connection.protocol
            if protocol not in self._used:
                self._used.add(protocol)
                return connection
            if not protocol.should_close:
                return connection
            connection.close()


class _Prepared(NamedTuple):
    request: aiohttp.ClientRequest
    head: bytes


class PlainPosts:
    """Posts bodies with the headers of a session. ``max_bytes`` limits the body of a response."""

    def __init__(self, session: aiohttp.ClientSession, max_bytes: int) -> None:
        self._session = session
        self._max_bytes = max_bytes
        self._prepared: dict[str, _Prepared | None] = {}

    def can_send(self, url: str) -> bool:
        """Returns whether requests to a URL need nothing that only a session does, such as a login in the URL."""
        if url not in self._prepared:
            if len(self._prepared) >= _MOST_URLS:
                self._prepared.clear()
            self._prepared[url] = self._prepare(url)
        return self._prepared[url] is not None

    async def send(self, url: str, body: bytes, limits: aiohttp.ClientTimeout, heard: Heard | None) -> Received:
        """Sends one request. Raises the same errors as ``ClientSession.post``."""
        prepared, connector = self._prepared[url], self._session.connector
        assert prepared is not None, "can_send was not called"
        assert connector is not None, "the session is closed"
        with time_limit(max(limits.total or 0.0, 0.0) or None):
            connection = await connector.connect(prepared.request, [], limits)
            try:
                sent = b"%b%d\r\n\r\n%b" % (prepared.head, len(body), body)
                received, can_be_reused = await self._exchange(connection, sent, heard)
            except HttpProcessingError as error:
                connection.close()
                raise aiohttp.ClientResponseError(
                    prepared.request.request_info, (), status=error.code, message=error.message, headers=error.headers
                ) from error
            except BaseException:
                connection.close()
                raise
        if can_be_reused:
            connection.release()
        else:
            connection.close()
        return received

    async def _exchange(
        self, connection: aiohttp.connector.Connection, sent: bytes, heard: Heard | None
    ) -> tuple[Received, bool]:
        """Returns a response, and whether it was read and the request was sent to their ends."""
        protocol, transport = connection.protocol, connection.transport
        assert protocol is not None
        if transport is None:
            raise aiohttp.ClientConnectionResetError("the connection was closed before the request")
        protocol.set_response_params(read_until_eof=True)
        transport.write(sent)
        message, payload = await protocol.read()
        while message.code in _INTERIM:
            message, payload = await protocol.read()
        if heard is not None:
            heard(message.headers)
        received = Received(message.code, message.headers, await content_of(message.code, payload, self._max_bytes))
        return received, payload.at_eof() and not transport.get_write_buffer_size()

    def _prepare(self, url: str) -> _Prepared | None:
        headers, session = self._session.headers, self._session
        if not _PLAIN_URL.match(url) or any(name.lower() in _OF_A_BODY for name in headers):
            return None
        try:
            request = aiohttp.ClientRequest(
                "POST", URL(url), headers=headers, loop=asyncio.get_running_loop(), session=session
            )
        except ValueError:
            return None
        lines = [f"POST {request.url.raw_path_qs} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in request.headers.items() if name != "Content-Length"]
        if any(map(_CONTROL.search, lines)):
            return None  # a session refuses them
        return _Prepared(request, "\r\n".join([*lines, "Content-Length: "]).encode())
