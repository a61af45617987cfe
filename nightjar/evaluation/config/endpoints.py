"""Providers of models, by name, and replicas of endpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from nightjar.clients import ClientType
from nightjar.clients.config import NOT_TO_BE_SHOWN, BaseUrl, EndpointClientConfig
from nightjar.errors import ConfigError
from nightjar.evaluation.config.fields import NamedHeaders


@dataclass(frozen=True, slots=True)
class Provider:
    """Defaults for the endpoint of a provider, named like the fields of ``RunConfig``."""

    base_url: str
    api_key_var: str
    api_client_type: ClientType = "openai_chat_completions"


def _check_variable(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise PydanticCustomError(NOT_TO_BE_SHOWN, "must be the name of the environment variable that holds the key")
    return name


VariableName: TypeAlias = Annotated[str, AfterValidator(_check_variable)]
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
_LOCAL = Provider("http://localhost:8000/v1", "VLLM_API_KEY")

PROVIDERS: dict[str, Provider] = {
    "prime": Provider("https://api.pinference.ai/api/v1", "PRIME_API_KEY"),
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": Provider("https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic_messages"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "minimax": Provider("https://api.minimax.chat/v1", "MINIMAX_API_KEY"),
    "glm": Provider("https://open.bigmodel.cn/api/paas/v4", "GLM_API_KEY"),
    "local": _LOCAL,
    "vllm": _LOCAL,
}


def find_provider(name: str) -> Provider:
    if name not in PROVIDERS:
        raise ConfigError(f"Unknown provider {name!r}. Choose one of: {', '.join(sorted(PROVIDERS))}")
    return PROVIDERS[name]
