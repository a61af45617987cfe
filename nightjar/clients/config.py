"""Where a model is reached: base URL, credentials by name, timeouts."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from nightjar.errors import ConfigError, MissingKeyError

ClientType: TypeAlias = Literal[
    "openai_chat_completions",
    "openai_completions",
    "openai_chat_completions_token",
    "openai_responses",
    "anthropic_messages",
]

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
NO_KEY = "EMPTY"
"""Sent to endpoints that need no key: the SDKs insist on one."""


class EndpointClientConfig(BaseModel):
    """One replica of an endpoint."""

    model_config = ConfigDict(extra="forbid")

    client_idx: int = 0
    """Its position among the replicas."""
    api_key_var: str = "PRIME_API_KEY"
    """The environment variable that holds the key. The key itself is never stored."""
    api_base_url: str = "https://api.pinference.ai/api/v1"
    """Where requests go, without the route (``/chat/completions``)."""
    timeout: float = Field(default=3600.0, gt=0)
    """Seconds for one request, from sending to the last byte of the answer."""
    connect_timeout: float = Field(default=5.0, gt=0)
    """Seconds to establish a connection."""
    max_connections: int = Field(default=28000, gt=0)
    """Connections open at once."""
    max_keepalive_connections: int = Field(default=28000, gt=0)
    """Idle connections that are kept; accepted for compatibility, the pool keeps what was open."""
    max_retries: int = Field(default=10, ge=0)
    """Accepted for compatibility: Nightjar retries whole attempts (``--max-retries``), not requests."""
    extra_headers: dict[str, str] = Field(default_factory=dict)
    """HTTP headers sent with every request."""

    @field_validator("api_base_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must start with http:// or https:// and name a host")
        return url.rstrip("/")


class ClientConfig(EndpointClientConfig):
    """An endpoint as a client is made from it."""

    client_type: ClientType = "openai_chat_completions"
    """The protocol."""
    endpoint_configs: list[EndpointClientConfig] = Field(default_factory=list)
    """Replicas that share the load; empty when ``api_base_url`` is the only one."""
    extra_headers_from_state: dict[str, str] = Field(default_factory=dict)
    """HTTP header to state field: the value is read from the state of the rollout at each request."""

    @field_validator("endpoint_configs", mode="before")
    @classmethod
    def _check_not_nested(cls, value: object) -> object:
        for entry in value if isinstance(value, list) else []:
            nested = entry.get("endpoint_configs") if isinstance(entry, dict) else None
            if nested or isinstance(entry, ClientConfig):
                raise ValueError("ClientConfig.endpoint_configs entries cannot include endpoint_configs")
        return value


def resolve_api_key(config: EndpointClientConfig) -> str:
    """Returns the key of an endpoint; endpoints on this machine need none.

    Raises:
        MissingKeyError: the variable is not set, and the endpoint is not on loopback.
    """
    key = os.environ.get(config.api_key_var, "").strip()
    if key:
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"Environment variable {config.api_key_var!r} holds characters that no HTTP header can carry"
            )
        return key
    if urlsplit(config.api_base_url).hostname in LOOPBACK_HOSTS:
        return NO_KEY
    raise MissingKeyError([config.api_key_var])
