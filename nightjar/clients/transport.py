"""Posts JSON to an endpoint through aiohttp, in a tenth of the time of the official SDKs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from multidict import CIMultiDict
from pydantic import BaseModel
from pydantic_core import from_json

from nightjar.clients.config import EndpointClientConfig
from nightjar.clients.credentials import NO_KEY, request_headers, resolve_api_key
from nightjar.clients.error_bodies import error_in
from nightjar.clients.failures import TOO_LARGE
from nightjar.clients.plain_posts import REDIRECTS, CleanConnector, Heard, PlainPosts, Received, content_of
from nightjar.clients.protocols import PROTOCOLS
from nightjar.clients.providers import PROVIDERS, is_same_host
from nightjar.clients.status_errors import (
    APIConnectionError,
    APIResponseValidationError,
    APITimeoutError,
    HttpResponse,
    error_of,
    status_error,
)
from nightjar.core.calling.loops import PerLoop
from nightjar.core.secrecy import hide_bytes, note_secrets
from nightjar.core.secret_signs import HIDDEN

_OF_OPENAI = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
"""Headers that OpenAI's host gets, and the variables that hold their values, as in OpenAI's SDK."""


class Answer(dict[str, Any]):
    """A JSON object whose fields are also attributes, as in the SDKs' objects. A missing field is None.

    Example:
        >>> Answer(choices=[{"message": {"content": "4"}}]).choices[0].message.content
        '4'
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _wrapped(self.get(name))


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return Answer(value)
    return [_wrapped(item) for item in value] if isinstance(value, list) else value


class _Connections(NamedTuple):
    session: aiohttp.ClientSession
    posts: PlainPosts


class Endpoint:
    """The connections to one endpoint, with its key and headers. Raises ``MissingKeyError`` without a key.

    ``heard`` is called with the headers of every response. ``headers`` returns the headers of every request.
    """

    def __init__(
        self,
        config: EndpointClientConfig,
        key: str | None = None,
        *,
        headers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.api_key = key or resolve_api_key(config)
        note_secrets(self.api_key)
        self.base_url, _, self.query = config.api_base_url.partition("?")
        self.heard: Heard | None = None
        self.config = config
        self._headers = headers or self.usual_headers
        self._secret = b"" if self.api_key == NO_KEY else self.api_key.encode()
        self._connections = PerLoop(self._connect, lambda connections: connections.session.close())
        self._proxy = _proxy_for(config.api_base_url)
        if headers is None:
            self.usual_headers()  # raises now if a header names an unset variable

    def url(self, path: str) -> str:
        """Returns the URL of a path below the base URL, with the query of the base URL."""
        url = path if "://" in path else f"{self.base_url}{path}"
        return f"{url}?{self.query}" if self.query else url

    async def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None, seconds: Any = None
    ) -> Answer:
        """Sends one request, and returns the JSON object of its response. Raises a ``status_errors.APIError``."""
        response = await self.exchange(self.url(path), encoded(body), headers, seconds)
        return Answer(self.fields_of(response))

    def fields_of(self, response: HttpResponse) -> dict[str, Any]:
        """Returns the fields of a successful response, without secrets. Raises an error for any other response."""
        if response.status_code >= 400 or response.status_code in REDIRECTS:  # noqa: PLR2004 - HTTP's own border
            raise status_error(response, self.advice_on(response))
        try:
            fields = from_json(hide_bytes(response.content))  # it keeps integers of more than 64 bits
        except ValueError as error:
            raise _unreadable(self.without_key(response)) from error
        if found := error_in(fields):
            raise error_of(found, self.without_key(response))
        if not isinstance(fields, dict):
            raise _unreadable(self.without_key(response))
        return fields

    def advice_on(self, response: HttpResponse) -> str:
        """Returns the end of the message for a base URL whose route does not exist, or an empty text."""
        if response.status_code != HTTPStatus.NOT_FOUND:
            return ""
        return f" for {response.url}{_likely_url(self.base_url, response.url)}"

    async def exchange(
        self, url: str, payload: bytes, headers: Mapping[str, str] | None = None, seconds: Any = None
    ) -> HttpResponse:
        """Sends one request, and returns the response. In a response with an error status, secrets are hidden."""
        connections = await self._connections.get()
        session = connections.session
        limit = aiohttp.ClientTimeout(total=seconds) if isinstance(seconds, int | float) else session.timeout
        try:
            if self._proxy is None and not headers and connections.posts.can_send(url):
                received = await connections.posts.send(url, payload, limit, self.heard)
            else:
                received = await self._send(session, url, payload, headers, limit)
        except TimeoutError as error:
            raise APITimeoutError from error
        except (aiohttp.ClientError, OSError) as error:
            raise APIConnectionError(f"Cannot reach {url}: {error or type(error).__name__}") from error
        return self._response(url, received)

    def _response(self, url: str, received: Received) -> HttpResponse:
        status, headers, content = received
        if status in REDIRECTS:
            return self.without_key(HttpResponse(url, status, headers, _no_redirect(headers)))
        if content is None:
            said = f"the response has more than {self.config.max_response_bytes:,} bytes (max_response_bytes)"
            raise APIResponseValidationError(said, HttpResponse(url, status, headers, b""), TOO_LARGE)
        response = HttpResponse(url, status, headers, content)
        return response if status < 400 else self.without_key(response)  # noqa: PLR2004

    def without_key(self, response: HttpResponse) -> HttpResponse:
        """Hides the key and other secrets that a server echoes, so that no message or file contains a secret."""
        content = response.content.replace(self._secret, HIDDEN.encode()) if self._secret else response.content
        return HttpResponse(response.url, response.status_code, response.headers, hide_bytes(content))

    async def close(self) -> None:
        await self._connections.close()

    async def _send(
        self,
        session: aiohttp.ClientSession,
        url: str,
        payload: bytes,
        headers: Mapping[str, str] | None,
        limit: aiohttp.ClientTimeout,
    ) -> Received:
        """Sends a request through a proxy, or with headers of its own."""
        request: Any = {"data": payload, "proxy": self._proxy, "timeout": limit, "allow_redirects": False}
        async with session.post(url, headers=headers or None, **request) as response:
            if self.heard is not None:
                self.heard(response.headers)
            content = await content_of(response.status, response.content, self.config.max_response_bytes)
            if content is None:
                response.close()
            return Received(response.status, response.headers, content)

    def usual_headers(self) -> Mapping[str, str]:
        """Returns the headers of every request to an endpoint of OpenAI's protocols."""
        headers = CIMultiDict(
            {
                "Accept": "application/json",
                "Content-Type": "application/json",
                "User-Agent": "nightjar",
                "Authorization": f"Bearer {self.api_key}",
            }
        )
        if is_same_host(self.base_url, PROVIDERS["openai"].base_url):
            headers.update(
                {name: value for name, variable in _OF_OPENAI.items() if (value := os.environ.get(variable))}
            )
        headers.update(request_headers(self.config))
        return headers

    def _connect(self) -> _Connections:
        config = self.config
        session = aiohttp.ClientSession(
            connector=CleanConnector(limit=config.max_connections),
            timeout=aiohttp.ClientTimeout(total=config.timeout, sock_connect=config.connect_timeout),
            headers=self._headers(),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return _Connections(session, PlainPosts(session, config.max_response_bytes))


def encoded(fields: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(fields, default=_as_data)
    except TypeError:  # integers of more than 64 bits; halves of surrogate pairs, which no server can be sent
        return json.dumps(fields, default=_as_data, ensure_ascii=False).encode(errors="replace")


def _as_data(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _unreadable(response: HttpResponse) -> APIResponseValidationError:
    return APIResponseValidationError(f"not the JSON that the protocol promises: {response.content[:200]!r}", response)


def _no_redirect(received: Mapping[str, str]) -> bytes:
    """Returns an error body for a redirect.

    The redirect is not followed, because prompts, headers and keys must not go to another address.
    """
    elsewhere = received.get("Location", "somewhere else")
    return orjson.dumps(
        {"error": {"message": f"The endpoint redirects to {elsewhere}. Use that address as the base URL"}}
    )


def _likely_url(url: str, asked: str) -> str:
    """Returns advice for a base URL whose route does not exist."""
    given = url.removesuffix("/v1")  # which a client adds
    for route in (protocol.route for protocol in PROTOCOLS.values()):
        if given.endswith(route):
            return f". The base URL is probably {given.removesuffix(route)}"
    return "" if re.search(r"/v\d", asked) else f". The base URL is perhaps {url}/v1"


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
