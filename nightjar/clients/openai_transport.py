"""The OpenAI SDK's client with a faster way to send: aiohttp instead of httpx.

The SDK's types, headers, exceptions and status handling stay; what a JSON ``POST`` costs falls to about
a tenth, because the request is not rebuilt from options each time, the parameters are not
transformed message by message, and the body is validated once. Everything else the SDK can
do (streams, files, raw responses) takes the SDK's own way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import orjson
from openai import APIConnectionError, APIResponseValidationError, APITimeoutError, AsyncOpenAI
from openai._types import Omit
from pydantic import BaseModel, ValidationError

from nightjar.clients.config import NO_KEY, EndpointClientConfig, resolve_api_key

_FAST_OPTIONS = frozenset({"headers", "extra_json", "timeout", "security"})
_RAW_RESPONSE_HEADER = "X-Stainless-Raw-Response"  # the SDK's way to ask for a response that is not parsed
_DISTINCTIVE_KEY = 16  # characters from which on a key is no word that an answer may hold by chance
_HIDDEN_KEY = b"[API key]"


class AiohttpOpenAI(AsyncOpenAI):
    """``AsyncOpenAI`` that sends JSON requests through aiohttp, once each: Nightjar does the retries.

    Args:
        config: the endpoint; its key is read from the environment.

    Raises:
        MissingKeyError: the key's variable is not set.
    """

    def __init__(self, config: EndpointClientConfig) -> None:
        super().__init__(
            api_key=resolve_api_key(config),
            base_url=config.api_base_url,
            timeout=config.timeout,
            max_retries=0,
            default_headers=config.extra_headers or None,
        )
        self._config = config
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._proxy = _proxy_for(config.api_base_url)

    async def post(self, path: str, *, cast_to: Any, body: Any = None, **kwargs: Any) -> Any:
        """Sends one request; the arguments and the exceptions are those of the SDK."""
        options = kwargs.get("options") or {}
        is_raw = _RAW_RESPONSE_HEADER in (options.get("headers") or {})
        is_plain = not (is_raw or any(kwargs.get(key) for key in ("stream", "content", "files")))
        is_parsed = isinstance(cast_to, type) and issubclass(cast_to, BaseModel)
        if not (is_plain and is_parsed and _FAST_OPTIONS.issuperset(options)):
            return await super().post(path, cast_to=cast_to, body=body, **kwargs)
        url = f"{self._config.api_base_url}{path}"
        headers = _without_omitted(options.get("headers"))
        payload = orjson.dumps({**body, **(options.get("extra_json") or {})})
        status, received, content = await self._send(url, payload, headers, options.get("timeout"))
        if status >= 400:  # noqa: PLR2004 - HTTP's own border
            raise self._make_status_error_from_response(
                self._response(url, status, received, self._without_key(content))
            )
        return self._parsed(url, cast_to, status, received, content)

    async def _send(
        self,
        url: str,
        payload: bytes,
        headers: dict[str, str],
        timeout: Any,  # noqa: ASYNC109 - the SDK's word
    ) -> tuple[int, Mapping[str, str], bytes]:
        session = self._open_session()
        limit = aiohttp.ClientTimeout(total=timeout) if isinstance(timeout, int | float) else None
        try:
            async with session.post(
                url,
                data=payload,
                headers=headers,
                proxy=self._proxy,
                timeout=limit or session.timeout,
                allow_redirects=True,
            ) as response:
                return response.status, response.headers, await response.read()
        except TimeoutError as error:
            raise APITimeoutError(request=httpx2.Request("POST", url)) from error
        except (aiohttp.ClientError, OSError) as error:
            message = f"Cannot reach {url}: {error or type(error).__name__}"
            raise APIConnectionError(message=message, request=httpx2.Request("POST", url)) from error

    def _parsed(self, url: str, cast_to: Any, status: int, received: Mapping[str, str], content: bytes) -> Any:
        if len(self.api_key) >= _DISTINCTIVE_KEY:
            content = self._without_key(content)
        try:
            return cast_to.model_validate_json(content)
        except ValidationError as error:
            invalid = error
        try:
            # Servers that only resemble OpenAI leave fields out; the SDK takes those as they come.
            return cast_to.construct(**orjson.loads(content))
        except (orjson.JSONDecodeError, TypeError):
            response = self._response(url, status, received, self._without_key(content))
            raise APIResponseValidationError(
                response=response,
                body=None,
                message=f"not the JSON that the protocol promises: {response.content[:200]!r}",
            ) from invalid

    def _response(self, url: str, status: int, received: Mapping[str, str], content: bytes) -> httpx2.Response:
        """Returns a response as the SDK's errors carry it."""
        kept = {
            key: value
            for key, value in received.items()
            if key.lower() not in {"content-encoding", "content-length", "transfer-encoding"}
        }
        request = httpx2.Request("POST", url)
        return httpx2.Response(status, headers=kept, content=content, request=request)

    def _without_key(self, content: bytes) -> bytes:
        """Hides the key where a server echoes it, so that no message and no file ever holds it."""
        return content if self.api_key == NO_KEY else content.replace(self.api_key.encode(), _HIDDEN_KEY)

    def _open_session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop or self._session.closed:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._config.max_connections),
                timeout=aiohttp.ClientTimeout(total=self._config.timeout, sock_connect=self._config.connect_timeout),
                headers=_without_omitted({**self.default_headers, **self.auth_headers}),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def copy(self, **options: Any) -> AsyncOpenAI:  # type: ignore[override]
        """Returns the SDK's own client for the same endpoint, with some options changed."""
        plain = AsyncOpenAI(
            api_key=self.api_key,
            base_url=self.base_url,
            timeout=self.timeout,
            max_retries=self.max_retries,
            default_headers=self._custom_headers,
        )
        return plain.copy(**options)

    with_options = copy  # type: ignore[assignment]

    async def close(self) -> None:
        """Closes the connections."""
        if self._session is not None and self._loop is asyncio.get_running_loop():
            await self._session.close()
        await super().close()


def _without_omitted(headers: Any) -> dict[str, str]:
    return {key: value for key, value in (headers or {}).items() if not isinstance(value, Omit)}


def _proxy_for(url: str) -> str | None:
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
