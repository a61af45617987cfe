"""Clients on an official SDK, and SDK clients that send JSON through aiohttp."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import httpx2
from pydantic import BaseModel, ValidationError

from nightjar.clients.config import EndpointClientConfig
from nightjar.clients.credentials import request_headers
from nightjar.clients.plain_posts import Heard
from nightjar.clients.status_errors import (
    APIError,
    APIResponseValidationError,
    APIStatusError,
    APITimeoutError,
    HttpResponse,
)
from nightjar.clients.transport import Endpoint, encoded

_RAW_RESPONSE_HEADER = "X-Stainless-Raw-Response"  # the SDKs' way to ask for a response that is not parsed
_OPTIONS = frozenset({"headers", "extra_json", "timeout", "security"})
_OPTIONS_OF_TRACING = "span_"
_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_LEFT_OUT = frozenset({"Omit", "NotGiven"})  # the SDKs' names for "not given"; each has its own classes


class SendsByAiohttp:
    """A mixin before an SDK's class. Sends JSON requests through aiohttp. Raises ``MissingKeyError`` without a key."""

    _sdk: Any
    """The module ``openai`` or ``anthropic``."""
    _kind: Any

    def __init__(self, config: EndpointClientConfig, key: str | None = None) -> None:
        self._endpoint = Endpoint(config, key, headers=self._sdk_headers)
        self._endpoint.base_url = self._address(self._endpoint.base_url)
        super().__init__(  # type: ignore[call-arg]
            api_key=self._endpoint.api_key,
            base_url=self._endpoint.base_url,
            default_query=dict(parse_qsl(self._endpoint.query)) or None,
            timeout=config.timeout,
            max_retries=0,
            default_headers=request_headers(config) or None,
        )

    @staticmethod
    def _address(url: str) -> str:
        return url

    @property
    def heard(self) -> Heard | None:
        """Called with the headers of every response."""
        return self._endpoint.heard

    @heard.setter
    def heard(self, heard: Heard | None) -> None:
        self._endpoint.heard = heard

    async def post(self, path: str, *, cast_to: Any, body: Any = None, **kwargs: Any) -> Any:
        """Sends one request, with the arguments and exceptions of the SDK."""
        if not _can_send(cast_to, kwargs):
            return await super().post(path, cast_to=cast_to, body=body, **kwargs)  # type: ignore[misc]
        options = kwargs.get("options") or {}
        payload = encoded({**_without_omitted(body), **(options.get("extra_json") or {})})
        headers = _without_omitted(options.get("headers"))
        try:
            response = await self._endpoint.exchange(self._endpoint.url(path), payload, headers, options.get("timeout"))
            return _as_sdk_object(cast_to, self._endpoint.fields_of(response))
        except APIError as error:
            raise self._sdk_error(error, self._endpoint.url(path)) from (error.__cause__ or error)

    def copy(self, **options: Any) -> Any:
        """Returns the SDK's own client for the same endpoint, with changed options."""
        names = ("api_key", "base_url", "timeout", "max_retries")
        known = {name: getattr(self, name) for name in names}
        return self._kind(**known, default_headers=self._custom_headers).copy(**options)  # type: ignore[attr-defined]

    with_options = copy

    async def close(self) -> None:
        await self._endpoint.close()
        await super().close()  # type: ignore[misc]

    def _sdk_headers(self) -> Mapping[str, str]:
        return _without_omitted({**self.default_headers, **self.auth_headers})  # type: ignore[attr-defined]

    def _sdk_error(self, error: APIError, url: str) -> Exception:
        if not isinstance(error, APIStatusError) or isinstance(error, APIResponseValidationError):
            return sdk_error(self._sdk, error, url)
        found: Exception = self._make_status_error_from_response(_sdk_response(error.response))  # type: ignore[attr-defined]
        if advice := self._endpoint.advice_on(error.response):
            found.args = (f"{found}{advice}",)
        return found


def sdk_error(sdk: Any, error: APIError, url: str) -> Exception:
    """Returns an SDK's error of the same name. ``sdk`` is the module ``openai`` or ``anthropic``."""
    kind, known = getattr(sdk, type(error).__name__), dict[str, Any]()
    if isinstance(error, APIStatusError):
        known = {"message": error.message, "response": _sdk_response(error.response), "body": error.body}
    else:
        known = {"request": httpx2.Request("POST", url)}
        if not isinstance(error, APITimeoutError):
            known["message"] = error.message
    found: Exception = kind(**known)
    return found


def _sdk_response(received: HttpResponse) -> httpx2.Response:
    kept = {name: value for name, value in received.headers.items() if name.lower() not in _OF_THE_WIRE}
    request = httpx2.Request("POST", received.url)
    return httpx2.Response(received.status_code, headers=kept, content=received.content, request=request)


def _as_sdk_object(cast_to: Any, fields: dict[str, Any]) -> Any:
    """Servers that only resemble the provider leave fields out. The SDK accepts such responses."""
    try:
        return cast_to.model_validate(fields)
    except ValidationError:
        return cast_to.construct(**fields)


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


def _without_omitted(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (fields or {}).items() if type(value).__name__ not in _LEFT_OUT}
