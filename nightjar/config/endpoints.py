"""Model providers by name: where they are, which variable holds their key, which protocol they speak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired, TypeAlias, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from nightjar.clients import ClientType
from nightjar.clients.config import NOT_TO_BE_SHOWN, BaseUrl, EndpointClientConfig
from nightjar.config.named_headers import NamedHeaders
from nightjar.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Provider:
    """What a provider says of its endpoint, under the names of the fields of ``RunConfig``.

    Attributes:
        base_url: where requests go.
        api_key_var: the environment variable with the key.
        api_client_type: the protocol.

    Example:
        >>> Provider("http://localhost:8000/v1", "VLLM_API_KEY").api_client_type
        'openai_chat_completions'
    """

    base_url: str
    api_key_var: str
    api_client_type: ClientType = "openai_chat_completions"


def _check_variable(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise PydanticCustomError(NOT_TO_BE_SHOWN, "must be the name of the environment variable that holds the key")
    return name


VariableName: TypeAlias = Annotated[str, AfterValidator(_check_variable)]
"""The name of an environment variable; what is none may be the key itself, which is not repeated."""


class Replica(BaseModel):
    """One of several places that answer for one endpoint.

    Example:
        >>> Replica(base_url="http://localhost:8001/v1", api_key_var="VLLM_API_KEY").headers
        {}
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: BaseUrl
    """Where requests go."""
    api_key_var: VariableName
    """The environment variable with the key."""
    headers: NamedHeaders = Field(default_factory=dict)
    """HTTP headers of every request to it, by the variables that hold their values."""

    def client_config(self, headers: dict[str, str]) -> EndpointClientConfig:
        """Returns how it is reached; ``headers`` are those of all replicas."""
        return EndpointClientConfig(
            api_base_url=self.base_url, api_key_var=self.api_key_var, extra_headers={**self.headers, **headers}
        )


class Endpoint(TypedDict):
    """One variant of an endpoint in a registry: a replica, where an endpoint has several.

    Attributes:
        key: the environment variable that holds the key.
        url: where requests go, without the route.
        model: the model's name there.
        api_client_type: the protocol.
        extra_headers: HTTP headers sent with every request.

    Example:
        >>> endpoint = Endpoint(key="VLLM_API_KEY", url="http://localhost:8000/v1", model="qwen3-8b")
        >>> endpoint.get("api_client_type", "openai_chat_completions")
        'openai_chat_completions'
    """

    key: str
    url: str
    model: str
    api_client_type: NotRequired[ClientType]
    extra_headers: NotRequired[dict[str, str]]


Endpoints: TypeAlias = dict[str, list[Endpoint]]
"""A registry: an endpoint's name to its variants; a single one is a list of one."""

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
"""The providers, by ``ProviderName``."""


def find_provider(name: str) -> Provider:
    """Returns a provider by name.

    Raises:
        ConfigError: there is none of that name; the choices are listed.

    Example:
        >>> find_provider("openai").api_key_var
        'OPENAI_API_KEY'
    """
    if name not in PROVIDERS:
        raise ConfigError(f"Unknown provider {name!r}. Choose one of: {', '.join(sorted(PROVIDERS))}")
    return PROVIDERS[name]
