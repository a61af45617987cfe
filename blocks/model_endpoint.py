"""``ModelEndpoint``: where a model is reached, with its key."""

from __future__ import annotations

import re
from typing import Any, Self, cast, get_args

from prefect.blocks.core import Block
from prefect.types import SecretDict
from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

import nightjar.clients
from blocks.appearance import DOCUMENTATION_URL, LOGO_URL, SCHEMA_VERSION
from nightjar.clients import ClientConfig, ClientType
from nightjar.config import PROVIDERS, Provider, find_provider
from nightjar.secrecy import in_environment


class ModelEndpoint(Block):
    """Where a model is reached, with its key; a run names it as its endpoint.

    Example:
        ```python
        from blocks import ModelEndpoint

        ModelEndpoint(provider="openai", key="sk-1234567890", max_concurrent=16).save("BLOCK_NAME")
        endpoint = ModelEndpoint.load("BLOCK_NAME")
        client = endpoint.get_client()
        ```
    """

    _block_type_name = "Nightjar Model Endpoint"
    _block_type_slug = "nightjar-model-endpoint"
    _block_schema_version = SCHEMA_VERSION
    _documentation_url = DOCUMENTATION_URL
    _logo_url = LOGO_URL

    model_config = ConfigDict(hide_input_in_errors=True)

    provider: str = Field(
        default="",
        description="Provider whose base URL, protocol and key variable hold where they are not set here.",
        json_schema_extra={"enum": ["", *PROVIDERS]},
    )
    base_url: str = Field(default="", description="Base URL, without the route; empty for the provider's.")
    model: str = Field(
        default="", description="Model, as the endpoint names it, for runs that leave theirs at its default."
    )
    client_type: str = Field(
        default="",
        description="Protocol; empty for the provider's, or OpenAI's chat completions.",
        json_schema_extra={"enum": ["", *get_args(ClientType)]},
    )
    key: SecretStr = Field(
        default=SecretStr(""), description="Key; empty where an environment variable of the worker holds it."
    )
    key_variable: str = Field(
        default="",
        description="Environment variable of the worker that holds the key, where none is set here; empty for the "
        "provider's.",
    )
    headers: SecretDict = Field(
        default_factory=lambda: SecretDict({}), description='HTTP headers of every request, such as {"X-Team": "…"}.'
    )
    max_concurrent: int = Field(
        default=0,
        ge=0,
        description="Rollouts generated at once at the most, by all runs that name this block; 0 for what each says.",
    )
    request_timeout: float = Field(
        default=0.0, ge=0, description="Seconds that a request may take at the most; 0 for what the run says."
    )
    input_price: float = Field(
        default=0.0, ge=0, description="Price of a million tokens given, for a warehouse that has none of the model."
    )
    output_price: float = Field(
        default=0.0, ge=0, description="Price of a million tokens answered, for a warehouse that has none of the model."
    )

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: SecretDict) -> SecretDict:
        for name, value in headers.get_secret_value().items():
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"the value of header {name!r} must be a text")
        return headers

    @model_validator(mode="after")
    def _check_endpoint(self) -> Self:
        if not self.provider and not self.base_url:
            raise ValueError("it has neither a provider nor a base URL")
        self.client_config()
        return self

    def client_config(self) -> ClientConfig:
        """Returns how the endpoint is reached, with the names of ``variables`` in the place of secrets."""
        known = find_provider(self.provider) if self.provider else Provider(self.base_url, self._variable("KEY"))
        own_key = self._variable("KEY") if self.key.get_secret_value() else ""
        config = ClientConfig(
            client_type=cast("ClientType", self.client_type or known.api_client_type),
            api_base_url=self.base_url or known.base_url,
            api_key_var=own_key or self.key_variable or known.api_key_var,
            extra_headers={name: f"${variable}" for name, variable in self._header_variables().items()},
        )
        return config.model_copy(update={"timeout": self.request_timeout}) if self.request_timeout else config

    def variables(self) -> dict[str, str]:
        """Returns the environment variables that a client needs, called after the block, with their values."""
        values = self.headers.get_secret_value()
        found = {variable: values[name] for name, variable in self._header_variables().items()}
        key = self.key.get_secret_value()
        return {**found, self._variable("KEY"): key} if key else found

    def get_client(self) -> nightjar.clients.Client[Any, Any, Any, Any]:
        """Returns a client of the endpoint, which knows the secrets; the environment stays as it is.

        Raises:
            MissingKeyError: the key is not in the block, and its variable is not set.
        """
        with in_environment(self.variables()):
            return nightjar.clients.resolve_client(self.client_config())

    def _header_variables(self) -> dict[str, str]:
        names = self.headers.get_secret_value()
        return {name: self._variable(f"HEADER_{number}") for number, name in enumerate(names, start=1)}

    def _variable(self, what: str) -> str:
        name = re.sub(r"[^A-Z0-9]", "_", (self._block_document_name or "endpoint").upper())
        return f"NIGHTJAR_{name}_{what}"
