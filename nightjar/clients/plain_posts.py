"""Posts over the connections of an aiohttp session, in half of the CPU time of ``ClientSession.post``.

For each request, a session makes a URL, headers, a request, a response, timers and a task. ``PlainPosts`` prepares a
request once, because the requests to one URL differ only in their bodies. aiohttp still connects, keeps connections and
parses responses.
"""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDictProxy
from yarl import URL

from nightjar.core.calling.time_limits import time_limit

_FIRST_FINAL_STATUS = 200
_OF_A_BODY = frozenset({"content-encoding", "content-length", "expect", "transfer-encoding"})
_MOST_URLS = 64
_PLAIN_URL = re.compile(r"(?i)https?://[^/?#@]+[/?#]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Received(NamedTuple):
    """A response. ``content`` is the unpacked body, or None if the body is too long."""

    status: int
    headers: CIMultiDictProxy[str]
    content: bytes | None


async def read_up_to(payload: aiohttp.StreamReader, max_bytes: int) -> bytes | None:
    """Returns the unpacked body. Returns None as soon as it is longer than ``max_bytes``."""
    parts, size = [], 0
    while part := await payload.readany():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            return None
    return b"".join(parts)


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

    async def send(self, url: str, body: bytes, limits: aiohttp.ClientTimeout) -> Received:
        """Sends one request. Raises the same errors as ``ClientSession.post``."""
        prepared, connector = self._prepared[url], self._session.connector
        assert prepared is not None, "can_send was not called"
        assert connector is not None, "the session is closed"
        with time_limit(limits.total or None):
            connection = await connector.connect(prepared.request, [], limits)
            try:
                received = await self._exchange(connection, b"%b%d\r\n\r\n%b" % (prepared.head, len(body), body))
            except HttpProcessingError as error:
                connection.close()
                raise aiohttp.ClientResponseError(
                    prepared.request.request_info, (), status=error.code, message=error.message, headers=error.headers
                ) from error
            except BaseException:
                connection.close()
                raise
        connection.release()  # aiohttp closes it if the body was not read to its end
        return received

    async def _exchange(self, connection: aiohttp.connector.Connection, sent: bytes) -> Received:
        protocol, transport = connection.protocol, connection.transport
        assert protocol is not None
        assert transport is not None
        protocol.set_response_params(read_until_eof=True)
        transport.write(sent)
        message, payload = await protocol.read()
        while message.code < _FIRST_FINAL_STATUS:
            message, payload = await protocol.read()
        return Received(message.code, message.headers, await read_up_to(payload, self._max_bytes))

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
