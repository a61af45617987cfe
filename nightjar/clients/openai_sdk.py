"""OpenAI's SDK, for environments that ask for an SDK client. Its import takes a second."""

from __future__ import annotations

import openai
from openai import AsyncOpenAI

from nightjar.clients.config import ClientConfig, resolve_client_config
from nightjar.clients.sdk_client import SendsByAiohttp


class AiohttpOpenAI(SendsByAiohttp, AsyncOpenAI):
    _sdk, _kind = openai, AsyncOpenAI


def setup_openai_client(config: ClientConfig) -> AsyncOpenAI:
    """Returns an SDK client of an endpoint (of replica ``client_idx``). Raises ``MissingKeyError`` without a key.

    Example:
        >>> setup_openai_client(ClientConfig(api_base_url="http://localhost:8000/v1")).max_retries
        0
    """
    return AiohttpOpenAI(resolve_client_config(config))
