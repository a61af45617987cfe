"""Replicas of endpoints, and endpoints of a registry."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from nightjar.clients import ClientType
from nightjar.clients.config import NOT_TO_BE_SHOWN, BaseUrl, EndpointClientConfig
from nightjar.core.secret_signs import KEY_FORMS, looks_secret
from nightjar.evaluation.config.fields import NamedHeaders


def _check_variable(name: str) -> str:
    if not (name.isascii() and name.isidentifier()) or looks_secret(name):
        raise PydanticCustomError(NOT_TO_BE_SHOWN, "must be the name of the environment variable that holds the key")
    return name


_VARIABLE = {"type": "string", "pattern": r"^[A-Za-z_]\w*$", "not": {"type": "string", "pattern": KEY_FORMS}}
VariableName: TypeAlias = Annotated[str, AfterValidator(_check_variable), WithJsonSchema(_VARIABLE)]
"""Name of an environment variable. A wrong value may be the key itself, so error messages do not show it."""


class Replica(BaseModel):
    """One of several places that serve an endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: BaseUrl
    api_key_var: VariableName
    headers: NamedHeaders = Field(default_factory=dict)
    """HTTP headers of every request to the replica. The values name variables."""

    def client_config(self, headers: dict[str, str]) -> EndpointClientConfig:
        return EndpointClientConfig(
            api_base_url=self.base_url, api_key_var=self.api_key_var, extra_headers={**self.headers, **headers}
        )


class Endpoint(TypedDict):
    """One variant of an endpoint in a registry. If an endpoint has several variants, they are replicas."""

    key: str
    url: str
    model: str
    api_client_type: NotRequired[ClientType]
    extra_headers: NotRequired[dict[str, str]]


Endpoints: TypeAlias = dict[str, list[Endpoint]]

ProviderName: TypeAlias = Literal[
    "prime", "openai", "anthropic", "openrouter", "deepseek", "minimax", "glm", "local", "vllm"
]
