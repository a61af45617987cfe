"""Clients: one protocol for every kind of model endpoint.

The classes load on first use, because the SDKs take half a second to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nightjar.clients.client import Client
from nightjar.clients.config import (
    ClientConfig,
    ClientType,
    EndpointClientConfig,
    resolve_client_config,
    resolve_client_configs,
)
from nightjar.clients.credentials import load_prime_config, resolve_api_key
from nightjar.errors import ConfigError

if TYPE_CHECKING:
    from nightjar.clients.anthropic_messages import AnthropicMessagesClient, setup_anthropic_client
    from nightjar.clients.openai_chat import OpenAIChatCompletionsClient
    from nightjar.clients.openai_chat_token import OpenAIChatCompletionsTokenClient
    from nightjar.clients.openai_client import setup_openai_client
    from nightjar.clients.openai_completions import OpenAICompletionsClient
    from nightjar.clients.openai_responses import OpenAIResponsesClient
    from nightjar.clients.replicas import ReplicaClient

__all__ = [
    "AnthropicMessagesClient",
    "Client",
    "ClientConfig",
    "ClientType",
    "EndpointClientConfig",
    "OpenAIChatCompletionsClient",
    "OpenAIChatCompletionsTokenClient",
    "OpenAICompletionsClient",
    "OpenAIResponsesClient",
    "ReplicaClient",
    "load_prime_config",
    "resolve_api_key",
    "resolve_client",
    "resolve_client_config",
    "resolve_client_configs",
    "setup_anthropic_client",
    "setup_openai_client",
]

_MODULES = {
    "AnthropicMessagesClient": "anthropic_messages",
    "OpenAIChatCompletionsClient": "openai_chat",
    "OpenAIChatCompletionsTokenClient": "openai_chat_token",
    "OpenAICompletionsClient": "openai_completions",
    "OpenAIResponsesClient": "openai_responses",
    "ReplicaClient": "replicas",
    "setup_anthropic_client": "anthropic_messages",
    "setup_openai_client": "openai_client",
}
_OF_CLIENT_TYPE: dict[ClientType, str] = {
    "openai_chat_completions": "OpenAIChatCompletionsClient",
    "openai_completions": "OpenAICompletionsClient",
    "openai_chat_completions_token": "OpenAIChatCompletionsTokenClient",
    "openai_responses": "OpenAIResponsesClient",
    "anthropic_messages": "AnthropicMessagesClient",
}
_OF_SDK_CLIENT = {
    ("openai", "AsyncOpenAI"): "OpenAIChatCompletionsClient",
    ("anthropic", "AsyncAnthropic"): "AnthropicMessagesClient",
}


def resolve_client(client_or_config: Any, *, is_per_rollout: bool = False) -> Client[Any, Any, Any, Any]:
    """Returns a client for a configuration, an SDK client, or a client.

    Args:
        client_or_config: a ``ClientConfig``; an ``AsyncOpenAI``, which is asked for chat completions; an
            ``AsyncAnthropic``; or a client, which is returned as it is.
        is_per_rollout: where there are several replicas, each rollout is given one, instead of each group.

    Raises:
        ConfigError: it is none of these.
        MissingKeyError: the endpoint's key is not set.

    Example:
        >>> config = ClientConfig(api_base_url="http://localhost:8000/v1", client_type="openai_completions")
        >>> type(resolve_client(config)).__name__
        'OpenAICompletionsClient'
    """
    if isinstance(client_or_config, Client):
        return client_or_config
    made: Client[Any, Any, Any, Any]
    if not isinstance(client_or_config, ClientConfig):
        made = _load(_class_for_sdk_client(client_or_config))(client_or_config)
        return made
    kind = _load(_OF_CLIENT_TYPE[client_or_config.client_type])
    clients = [kind(config) for config in resolve_client_configs(client_or_config)]
    made = clients[0]
    if len(clients) > 1:
        made = _load("ReplicaClient")(clients, client_or_config, is_per_rollout=is_per_rollout)
    return made


def _class_for_sdk_client(sdk_client: object) -> str:
    for kind in type(sdk_client).__mro__:
        name = _OF_SDK_CLIENT.get((kind.__module__.partition(".")[0], kind.__name__))
        if name is not None:
            return name
    raise ConfigError(
        f"Not a client, a ClientConfig or an SDK client: {sdk_client!r}. SDK clients are AsyncOpenAI and AsyncAnthropic"
    )


def _load(name: str) -> Any:
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
