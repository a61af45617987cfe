"""Clients: one protocol for every kind of model endpoint.

The classes load on first use, because the SDKs take half a second to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nightjar.clients.client import Client
from nightjar.clients.config import (
    ClientConfig,
    ClientType,
    EndpointClientConfig,
    resolve_api_key,
)
from nightjar.errors import ConfigError

if TYPE_CHECKING:
    from nightjar.clients.openai_chat import OpenAIChatCompletionsClient

__all__ = [
    "Client",
    "ClientConfig",
    "ClientType",
    "EndpointClientConfig",
    "OpenAIChatCompletionsClient",
    "resolve_api_key",
    "resolve_client",
]


def resolve_client(client_or_config: Any) -> Client[Any, Any, Any, Any]:
    """Returns a client for a configuration, an SDK client, or a client.

    Raises:
        ConfigError: it is none of these, or of a protocol that is not supported.
        MissingKeyError: the endpoint's key is not set.
    """
    if isinstance(client_or_config, Client):
        return client_or_config
    if isinstance(client_or_config, ClientConfig):
        kind = client_or_config.client_type
        if kind != "openai_chat_completions":
            raise ConfigError(f"Client type {kind!r} is not supported. Choose 'openai_chat_completions'.")
    elif type(client_or_config).__module__.partition(".")[0] != "openai":
        raise ConfigError(f"Not a client, a ClientConfig or an SDK client: {client_or_config!r}")
    from nightjar.clients.openai_chat import OpenAIChatCompletionsClient

    return OpenAIChatCompletionsClient(client_or_config)


def __getattr__(name: str) -> Any:
    if name == "OpenAIChatCompletionsClient":
        from nightjar.clients.openai_chat import OpenAIChatCompletionsClient

        return OpenAIChatCompletionsClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
