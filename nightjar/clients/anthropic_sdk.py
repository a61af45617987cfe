"""Anthropic's SDK, for environments that ask for an SDK client. It is in the extra ``anthropic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nightjar.clients.config import ClientConfig, resolve_client_config
from nightjar.clients.sdk_client import SendsByAiohttp
from nightjar.core.extras import require_extra

if TYPE_CHECKING:
    import anthropic
    from anthropic import AsyncAnthropic
else:
    anthropic = require_extra("anthropic", "anthropic", "An AsyncAnthropic client")
    AsyncAnthropic = anthropic.AsyncAnthropic


class AiohttpAnthropic(SendsByAiohttp, AsyncAnthropic):
    """An ``AsyncAnthropic`` that sends JSON requests through aiohttp. The base URL may end with ``/v1``."""

    _sdk, _kind = anthropic, AsyncAnthropic

    @staticmethod
    def _address(url: str) -> str:
        return url.removesuffix("/v1")  # the SDK's routes begin with /v1


def setup_anthropic_client(config: ClientConfig) -> AsyncAnthropic:
    """Returns an SDK client of an endpoint (of replica ``client_idx``). Raises ``MissingKeyError`` without a key.

    Example:
        >>> setup_anthropic_client(ClientConfig(api_base_url="http://localhost:8000/v1")).max_retries
        0
    """
    return AiohttpAnthropic(resolve_client_config(config))
