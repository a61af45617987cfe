"""Makes a client from a configuration or from a user's SDK client."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nightjar.clients.client import AnyClient, Client
from nightjar.clients.config import ClientConfig, resolve_client_configs
from nightjar.clients.protocols import PROTOCOLS, ClientType
from nightjar.clients.replicas import ReplicaClient
from nightjar.errors import ConfigError


def resolve_client(client_or_config: Any, *, is_per_rollout: bool = False) -> AnyClient:
    """Returns a client for a configuration or an SDK client (``AsyncOpenAI`` for chat completions, ``AsyncAnthropic``).

    A client is returned unchanged. Any other object raises ``ConfigError``. Raises ``MissingKeyError`` if the
    endpoint's key is not set. ``is_per_rollout`` assigns replicas to rollouts instead of groups.

    Example:
        >>> config = ClientConfig(api_base_url="http://localhost:8000/v1", client_type="openai_completions")
        >>> type(resolve_client(config)).__name__
        'OpenAICompletionsClient'
    """
    if isinstance(client_or_config, Client):
        return client_or_config
    if not isinstance(client_or_config, ClientConfig):
        return _client(_type_for_sdk_client(client_or_config), client_or_config)
    configs = resolve_client_configs(client_or_config)
    clients = [_client(client_or_config.client_type, config) for config in configs]
    if len(clients) > 1:
        clients = [ReplicaClient(clients, client_or_config, is_per_rollout=is_per_rollout)]
    if not client_or_config.middleware:
        return clients[0]
    from nightjar.clients.middleware_client import with_middleware

    return with_middleware(clients[0], client_or_config.middleware)


def _client(client_type: ClientType, client_or_config: Any) -> AnyClient:
    protocol = PROTOCOLS[client_type]
    module = import_module(f"nightjar.clients.{protocol.module}")  # its SDK takes half a second to import
    client: AnyClient = getattr(module, protocol.client)(client_or_config)
    return client


def _type_for_sdk_client(sdk_client: object) -> ClientType:
    names = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(sdk_client).__mro__}
    for client_type, protocol in PROTOCOLS.items():
        if protocol.sdk_client in names:
            return client_type
    known = " and ".join(protocol.sdk_client[1] for protocol in PROTOCOLS.values() if protocol.sdk_client)
    raise ConfigError(f"Not a client, a ClientConfig or an SDK client: {sdk_client!r}. SDK clients are {known}")
