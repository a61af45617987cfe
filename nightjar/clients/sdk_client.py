"""Clients on an official SDK. JSON requests are sent by aiohttp, which takes about a tenth of the SDK's time."""

from __future__ import annotations

import inspect
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, ClassVar, cast
from urllib.parse import parse_qsl, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import orjson
from pydantic import BaseModel, ValidationError

from nightjar.clients.client import Client, ClientT, MessagesT, ResponseT, ToolT
from nightjar.clients.config import EndpointClientConfig
from nightjar.clients.credentials import HIDDEN_KEY, NO_KEY, request_headers, resolve_api_key
from nightjar.clients.failures import named_error
from nightjar.clients.protocols import PROTOCOLS
from nightjar.core.calling.loops import PerLoop
from nightjar.core.rollout.state import SamplingArgs
from nightjar.core.secrecy import DISTINCTIVE_LENGTH, hide_bytes, resolve

_RAW_RESPONSE_HEADER = "X-Stainless-Raw-Response"  # the SDKs' way to ask for a response that is not parsed
_OPTIONS = frozenset({"headers", "extra_json", "timeout", "security"})
_OPTIONS_OF_TRACING = "span_"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_LEFT_OUT = frozenset({"Omit", "NotGiven"})  # the SDKs' names for "not given"; each has its own classes


_ERROR_TYPES = {
    "api_error": 500,
    "authentication_error": 401,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "server_error": 500,
}
"""Types of errors in OpenAI's and Anthropic's protocols, and the HTTP status of each."""


class SendsByAiohttp:
    """A mixin before an SDK's class. Sends JSON requests through aiohttp. Raises ``MissingKeyError`` without a key."""

    _sdk: Any
    """The module ``openai`` or ``anthropic``."""
    _kind: Any
    heard: Callable[[Mapping[str, str]], None] | None = None
    """Called with the headers of every response."""

    def __init__(self, config: EndpointClientConfig, key: str | None = None) -> None:
        key = key or resolve_api_key(config)
        url, _, self._query = config.api_base_url.partition("?")
        self._url = self._address(url)
        super().__init__(  # type: ignore[call-arg]
            api_key=key,
            base_url=self._url,
            default_query=dict(parse_qsl(self._query)) or None,
            timeout=config.timeout,
            max_retries=0,
            default_headers=request_headers(config) or None,
        )
        self._endpoint = config
        self._secret = b"" if key == NO_KEY else key.encode()
        self._sessions = PerLoop(self._new_session, aiohttp.ClientSession.close)
        self._proxy = _proxy_for(config.api_base_url)

    @staticmethod
    def _address(url: str) -> str:
        return url

    async def post(self, path: str, *, cast_to: Any, body: Any = None, **kwargs: Any) -> Any:
        """Sends one request, with the arguments and exceptions of the SDK."""
        if not _can_send(cast_to, kwargs):
            return await super().post(path, cast_to=cast_to, body=body, **kwargs)  # type: ignore[misc]
        url = path if "://" in path else f"{self._url}{path}"
        url += f"?{self._query}" if self._query else ""
        options = kwargs.get("options") or {}
        payload = _encoded({**_without_omitted(body), **(options.get("extra_json") or {})})
        headers = _without_omitted(options.get("headers"))
        status, received, content = await self._exchange(url, payload, headers, options.get("timeout"))
        if status >= 400 or status in _REDIRECTS:  # noqa: PLR2004 - HTTP's own border
            response = _response(url, status, received, self._without_key(content))
            raise self._status_error(response)
        return self._parsed(url, cast_to, status, received, content)

    def copy(self, **options: Any) -> Any:
        """Returns the SDK's own client for the same endpoint, with changed options."""
        names = ("api_key", "base_url", "timeout", "max_retries")
        known = {name: getattr(self, name) for name in names}
        return self._kind(**known, default_headers=self._custom_headers).copy(**options)  # type: ignore[attr-defined]

    with_options = copy

    async def close(self) -> None:
        await self._sessions.close()
        await super().close()  # type: ignore[misc]

    async def _exchange(
        self, url: str, payload: bytes, headers: dict[str, str], seconds: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        session = await self._sessions.get()
        limit = aiohttp.ClientTimeout(total=seconds) if isinstance(seconds, int | float) else session.timeout
        options: Any = {"proxy": self._proxy, "timeout": limit, "allow_redirects": False}
        try:
            async with session.post(url, data=payload, headers=headers, **options) as response:
                if self.heard is not None:
                    self.heard(response.headers)
                if response.status in _REDIRECTS:
                    return response.status, response.headers, _no_redirect(response.headers)
                return response.status, response.headers, await self._content(url, response)
        except TimeoutError as error:
            raise self._sdk.APITimeoutError(request=httpx2.Request("POST", url)) from error
        except (aiohttp.ClientError, OSError) as error:
            message = f"Cannot reach {url}: {error or type(error).__name__}"
            raise self._sdk.APIConnectionError(message=message, request=httpx2.Request("POST", url)) from error

    async def _content(self, url: str, response: aiohttp.ClientResponse) -> bytes:
        """Returns the unpacked body. Stops reading as soon as the body is too long."""
        most, parts, size = self._endpoint.max_response_bytes, [], 0
        async for part in response.content.iter_any():
            parts.append(part)
            size += len(part)
            if size > most:
                response.close()
                said = f"the response has more than {most:,} bytes (max_response_bytes)"
                shown = _response(url, response.status, response.headers, b"")
                raise self._sdk.APIResponseValidationError(response=shown, body=None, message=said)
        return b"".join(parts)

    def _parsed(self, url: str, cast_to: Any, status: int, received: Mapping[str, str], content: bytes) -> Any:
        if len(self._secret) >= DISTINCTIVE_LENGTH:
            content = content.replace(self._secret, HIDDEN_KEY.encode())
        content = hide_bytes(content)
        try:
            return cast_to.model_validate_json(content)
        except ValidationError as error:
            invalid = error
        try:
            fields = orjson.loads(content)
            if error_status := _error_status(fields):
                response = _response(url, error_status, received, self._without_key(content))
                raise self._status_error(response)
            # Servers that only resemble the provider leave fields out; the SDK accepts such responses.
            return cast_to.construct(**fields)
        except (orjson.JSONDecodeError, TypeError):
            response = _response(url, status, received, self._without_key(content))
            raise self._sdk.APIResponseValidationError(
                response=response,
                body=None,
                message=f"not the JSON that the protocol promises: {response.content[:200]!r}",
            ) from invalid

    def _status_error(self, response: httpx2.Response) -> Exception:
        error: Exception = self._make_status_error_from_response(response)  # type: ignore[attr-defined]
        if response.status_code == HTTPStatus.NOT_FOUND:
            asked = str(response.request.url)
            error.args = (f"{error} for {asked}{_likely_url(self._url, asked)}",)
        return error

    def _without_key(self, content: bytes) -> bytes:
        """Hides the key and other secrets that a server echoes, so that no message or file contains a secret."""
        return hide_bytes(content.replace(self._secret, HIDDEN_KEY.encode()) if self._secret else content)

    def _new_session(self) -> aiohttp.ClientSession:
        config, own_headers = self._endpoint, {**self.default_headers, **self.auth_headers}  # type: ignore[attr-defined]
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=config.max_connections),
            timeout=aiohttp.ClientTimeout(total=config.timeout, sock_connect=config.connect_timeout),
            headers=_without_omitted(own_headers),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def _likely_url(url: str, asked: str) -> str:
    """Returns advice for a base URL whose route does not exist."""
    for protocol in PROTOCOLS.values():
        if url.endswith(protocol.route):
            return f". The base URL is probably {url.removesuffix(protocol.route)}"
    return "" if re.search(r"/v\d", asked) else f". The base URL is perhaps {url}/v1"


def _response(url: str, status: int, received: Mapping[str, str], content: bytes) -> httpx2.Response:
    kept = {name: value for name, value in received.items() if name.lower() not in _OF_THE_WIRE}
    return httpx2.Response(status, headers=kept, content=content, request=httpx2.Request("POST", url))


def _error_status(fields: Any) -> int | None:
    """Returns the status of an error object that a router sent with status 200. Returns None for any other body."""
    error = fields.get("error") if isinstance(fields, dict) else None
    if not error or fields.get("choices") or fields.get("content") or "output" in fields:
        return None
    code = str(error.get("code") or error.get("status") or "") if isinstance(error, dict) else ""
    if code.isdecimal() and 400 <= int(code) <= 599:  # noqa: PLR2004 - HTTP's own borders
        return int(code)
    return _ERROR_TYPES.get(str(error.get("type"))) or 502 if isinstance(error, dict) else 502


def _no_redirect(received: Mapping[str, str]) -> bytes:
    """Returns an error body for a redirect.

    It is not followed: prompts, headers and keys must not go to another address.
    """
    elsewhere = received.get("Location", "somewhere else")
    return orjson.dumps(
        {"error": {"message": f"The endpoint redirects to {elsewhere}. Use that address as the base URL"}}
    )


def _can_send(cast_to: Any, arguments: Mapping[str, Any]) -> bool:
    """Returns whether aiohttp can send this ``post`` of the SDK, which needs no stream, file or raw response."""
    options = arguments.get("options") or {}
    is_raw = _RAW_RESPONSE_HEADER in (options.get("headers") or {})
    is_plain = not (is_raw or any(arguments.get(key) for key in ("stream", "content", "files")))
    has_usual_options = all(name in _OPTIONS or name.startswith(_OPTIONS_OF_TRACING) for name in options)
    return is_plain and has_usual_options and _is_parsed(cast_to)


@lru_cache
def _is_parsed(cast_to: Any) -> bool:
    return isinstance(cast_to, type) and issubclass(cast_to, BaseModel)


def _encoded(fields: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(fields, default=_as_data)
    except TypeError:  # integers of more than 64 bits; halves of surrogate pairs, which no server can be sent
        return json.dumps(fields, default=_as_data, ensure_ascii=False).encode(errors="replace")


def _as_data(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _without_omitted(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (fields or {}).items() if type(value).__name__ not in _LEFT_OUT}


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


class SdkClient(Client[ClientT, MessagesT, ResponseT, ToolT]):
    """A client on an official SDK. Arguments without an SDK parameter (``top_k``) are sent in ``extra_body``."""

    prompt_field: ClassVar[str] = "messages"

    async def close(self) -> None:
        await cast("Any", self.client).close()

    async def get_native_response(
        self,
        prompt: MessagesT,
        model: str,
        sampling_args: SamplingArgs,
        tools: list[ToolT] | None = None,
        **kwargs: Any,
    ) -> ResponseT:
        """Calls the provider once. Raises ``OverlongPromptError``, ``InvalidModelResponseError`` or ``ConfigError``."""
        arguments = {"model": model, self.prompt_field: prompt, **call_arguments(sampling_args, kwargs)}
        if tools:
            arguments["tools"] = tools
        try:
            return await self.send(self.native_arguments(arguments))
        except Exception as error:
            if known := named_error(error, model):
                raise known from error
            raise

    @abstractmethod
    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Converts the arguments of a request to the protocol's arguments. May change the given dict."""

    @abstractmethod
    async def send(self, arguments: dict[str, Any]) -> ResponseT:
        """Sends one request."""


def call_arguments(sampling_args: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Merges sampling arguments with one request's arguments, which win. Headers and ``extra_body`` merge by name."""
    joined = {**sampling_args, **further}
    joined.pop("state", None)
    for name in ("extra_headers", "extra_body"):
        if sampling_args.get(name) and further.get(name):
            joined[name] = {**sampling_args[name], **further[name]}
    if joined.get("extra_headers"):
        joined["extra_headers"] = resolve(joined["extra_headers"])
    return {name: value for name, value in joined.items() if value is not None}


async def call_sdk(create: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Calls ``create``. Arguments without a parameter go into ``extra_body``."""
    known = _parameters(getattr(create, "__func__", create))
    if known is None:
        return await create(**arguments)
    named = {name: value for name, value in arguments.items() if name in known}
    if len(named) < len(arguments):
        unknown = {name: value for name, value in arguments.items() if name not in known}
        named["extra_body"] = {**unknown, **(arguments.get("extra_body") or {})}
    return await create(**named)


@lru_cache(maxsize=64)
def _parameters(create: Callable[..., Any]) -> frozenset[str] | None:
    parameters = inspect.signature(create).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)
