"""Configuration of an endpoint: base URL, names of credentials, timeouts, replicas."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from nightjar.clients.protocols import ClientType
from nightjar.core.secret_signs import NAME_IN_QUERY, looks_secret

NOT_TO_BE_SHOWN = "not_to_be_shown"
"""The type of a validation error whose input must not be shown."""
_WRITTEN_DOWN = (
    "must not hold a user, a password, a fragment or a key in its query, because it is stored. "
    "Name the environment variable that holds the key: api_key_var (-k), or headers"
)
_QUERY = rf"(?:(?![^=]*(?:{NAME_IN_QUERY}))[\w.-]+=[\w.,:-]{{0,32}}(?:&|$))+$"
_REFUSED_URL = rf"(?i)^\w*:?/*[^/?]*@|#|\?(?!{_QUERY})"
"""Finds a user, a fragment, or a query that may hold a key."""


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    is_url = parts.scheme in {"http", "https"} and bool(parts.hostname)
    if "@" in (parts.netloc if is_url else url) or re.search(_REFUSED_URL, url) or looks_secret(url):
        raise PydanticCustomError(NOT_TO_BE_SHOWN, _WRITTEN_DOWN)
    if not is_url:
        raise ValueError("must start with http:// or https:// and name a host")
    address, query_mark, query = url.partition("?")
    return address.rstrip("/") + query_mark + query


_REFUSED = {"description": f"A base URL {_WRITTEN_DOWN}", "type": "string", "pattern": _REFUSED_URL}
BaseUrl = Annotated[str, AfterValidator(_check_url), WithJsonSchema({"type": "string", "not": _REFUSED})]
"""The URL of an endpoint, without the route; a query (``?api-version=…``) is sent with every request.

Its JSON schema lets Prefect's server refuse a password.
"""


class EndpointClientConfig(BaseModel):
    """One replica of an endpoint. Unset fields come from the ``ClientConfig`` that contains the replica."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    client_idx: int = 0
    api_key_var: str = "PRIME_API_KEY"
    """The environment variable that holds the key. The key itself is never stored."""
    api_base_url: BaseUrl = "https://api.pinference.ai/api/v1"
    timeout: float = Field(default=3600.0, gt=0)
    """Time limit in seconds of one request, from sending to the last byte of the response."""
    connect_timeout: float = Field(default=5.0, gt=0)
    """Time limit in seconds to establish a connection."""
    max_connections: int = Field(default=28000, gt=0)
    max_keepalive_connections: int = Field(default=28000, gt=0)
    """Accepted for compatibility, without effect. The pool keeps all idle connections."""
    max_response_bytes: int = Field(default=64_000_000, gt=0)
    """Maximum size of an unpacked response in bytes. A longer response is an error."""
    max_concurrent: int = Field(default=0, ge=0)
    """Maximum number of concurrent requests of this process to the endpoint. 0 means no limit."""
    max_retries: int = Field(default=10, ge=0)
    """Number of retries of a request after temporary errors."""
    extra_headers: dict[str, str] = Field(default_factory=dict)
    """HTTP headers of every request. ``$NAME`` stands for the value of an environment variable."""

    @field_validator("extra_headers", mode="before")
    @classmethod
    def _check_headers(cls, headers: object) -> object:
        if not isinstance(headers, dict):
            raise ValueError("extra_headers must be a dict")  # noqa: TRY004 - pydantic collects ValueErrors
        for name, value in headers.items():
            if not isinstance(name, str) or not name.strip():
                raise ValueError(f"extra_headers keys must be non-empty strings, found {name!r}")
            if not isinstance(value, str):
                raise ValueError(f"extra_headers values must be strings, found {value!r} for {name!r}")  # noqa: TRY004
            if not (name + value).isprintable():
                raise ValueError(f"extra_headers: {name!r} holds a character that no HTTP header can carry")
        return headers


class ClientConfig(EndpointClientConfig):
    """An endpoint, as configuration of a client.

    ``renderer`` and the fields after it have no effect. They are accepted for programs written for verifiers, where
    they configure a client that makes token ids locally.
    """

    client_type: ClientType = "openai_chat_completions"
    endpoint_configs: list[EndpointClientConfig] = Field(default_factory=list)
    """Replicas that share the load. If empty, ``api_base_url`` is the only endpoint."""
    middleware: list[dict[str, Any]] = Field(default_factory=list)
    """Middleware for every request and response, see ``nightjar.clients.middleware``."""
    extra_headers_from_state: dict[str, str] = Field(default_factory=dict)
    """State fields by HTTP header. The value is read from the rollout's state at each request."""
    renderer: str = "auto"
    renderer_model_name: str | None = None
    renderer_pool_size: int | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    preserve_all_thinking: bool = False
    preserve_thinking_between_tool_calls: bool = False

    @field_validator("endpoint_configs", mode="before")
    @classmethod
    def _flatten(cls, entries: object) -> object:
        return [_flat_endpoint(entry) for entry in entries] if isinstance(entries, list) else entries


def _flat_endpoint(entry: Any) -> Any:
    """Returns the fields of a replica, which has no replicas itself.

    For a ``ClientConfig``, returns only the set fields.
    """
    if isinstance(entry, ClientConfig):
        fields = entry.model_dump(exclude_unset=True, include={"endpoint_configs", *EndpointClientConfig.model_fields})
    elif isinstance(entry, dict):
        fields = dict(entry)
    else:
        return entry
    if fields.pop("endpoint_configs", None):
        raise ValueError("ClientConfig.endpoint_configs entries cannot include endpoint_configs")
    return fields


def resolve_client_configs(config: ClientConfig) -> list[ClientConfig]:
    """Returns a complete configuration for each replica. Without replicas, returns a copy of ``config``.

    Example:
        >>> config = ClientConfig(timeout=60, endpoint_configs=[{"api_base_url": "http://localhost:8001/v1"}])
        >>> [(replica.api_base_url, replica.timeout) for replica in resolve_client_configs(config)]
        [('http://localhost:8001/v1', 60.0)]
    """
    endpoints = config.endpoint_configs
    return [_merged(config, endpoint) for endpoint in endpoints] or [config.model_copy(deep=True)]


def resolve_client_config(config: ClientConfig) -> ClientConfig:
    """Returns the complete configuration of replica ``client_idx`` (modulo the number of replicas).

    Example:
        >>> config = ClientConfig(endpoint_configs=[{"api_base_url": "http://localhost:8001/v1"}])
        >>> resolve_client_config(config).api_base_url
        'http://localhost:8001/v1'
    """
    resolved = resolve_client_configs(config)
    return resolved[config.client_idx % len(resolved)]


def _merged(config: ClientConfig, endpoint: EndpointClientConfig) -> ClientConfig:
    own = {name: getattr(endpoint, name) for name in endpoint.model_fields_set}
    return config.model_copy(update={**own, "endpoint_configs": []}, deep=True)
