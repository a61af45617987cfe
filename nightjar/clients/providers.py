"""Providers of models, by name, and the host that each provider's key belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from nightjar.clients.protocols import ClientType
from nightjar.errors import ConfigError

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Provider:
    """Defaults for the endpoint of a provider, named like the fields of ``RunConfig``."""

    base_url: str
    api_key_var: str
    api_client_type: ClientType = "openai_chat_completions"


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
_KEYS = {urlsplit(provider.base_url)[:2]: provider.api_key_var for provider in PROVIDERS.values()}
"""Variables by scheme and host of a provider."""


def find_provider(name: str) -> Provider:
    if name not in PROVIDERS:
        raise ConfigError(f"Unknown provider {name!r}. Choose one of: {', '.join(sorted(PROVIDERS))}")
    return PROVIDERS[name]


def is_same_host(one: str, other: str) -> bool:
    """Returns whether two URLs name the same host, with the same scheme and port."""
    return urlsplit(one)[:2] == urlsplit(other)[:2]


def is_loopback(base_url: str) -> bool:
    return urlsplit(base_url).hostname in LOOPBACK_HOSTS


def key_variable(base_url: str) -> str:
    """Returns the variable that holds the key of an endpoint for which no variable is named.

    A provider's key is sent to the provider's host only. Raises ``ConfigError`` for any other host, because a variable
    must be named.

    Example:
        >>> key_variable("https://api.openai.com/v1"), key_variable("http://localhost:8001/v1")
        ('OPENAI_API_KEY', 'VLLM_API_KEY')
    """
    if is_loopback(base_url):
        return _LOCAL.api_key_var
    parts = urlsplit(base_url)
    if (found := _KEYS.get(parts[:2])) is None:
        raise ConfigError(
            f"No key belongs to the host {parts.hostname!r}: name the variable that holds its key, -k NAME "
            "(api_key_var). If the host needs no key, any text will do: export NAME=none"
        )
    return found


def is_usual_key(base_url: str, variable: str) -> bool:
    """Returns whether the variable is used for the host without being named."""
    try:
        return key_variable(base_url) == variable
    except ConfigError:
        return False
