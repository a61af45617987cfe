"""Reads an endpoint's keys and team from environment variables, or from Prime's configuration file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nightjar.clients.config import EndpointClientConfig
from nightjar.clients.providers import PROVIDERS, is_loopback, is_same_host, key_variable
from nightjar.core.secrecy import DISTINCTIVE_LENGTH, note_secrets, resolve, rewrite_error
from nightjar.core.secret_signs import HIDDEN
from nightjar.errors import ConfigError, MissingKeyError

NO_KEY = "EMPTY"
"""Sent to endpoints that need no key, because the SDKs require one."""

_PRIME = PROVIDERS["prime"]

_logger = logging.getLogger(__name__)


def load_prime_config() -> dict[str, Any]:
    """Returns the content of ``~/.prime/config.json``, or an empty dict. Warns if the file is damaged.

    Example:
        >>> isinstance(load_prime_config(), dict)
        True
    """
    try:
        path = Path.home() / ".prime" / "config.json"
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, RuntimeError, ValueError) as error:
        _logger.warning("Cannot read ~/.prime/config.json: %s", error)
        return {}
    if isinstance(found, dict):
        return found
    _logger.warning("~/.prime/config.json is ignored: expected an object, found %s", type(found).__name__)
    return {}


def resolve_api_key(config: EndpointClientConfig, *, is_needed: bool = False) -> str:
    """Returns the key of an endpoint from its variable. ``PRIME_API_KEY`` may also be in ``~/.prime/config.json``.

    If the configuration names no variable, the variable of the host is used (``key_variable``). Endpoints on loopback
    need no key, unless ``is_needed``. Other endpoints without a key raise ``MissingKeyError``. ``ConfigError`` means
    that no key belongs to the host, or that no HTTP header can carry the key.

    Example:
        >>> resolve_api_key(EndpointClientConfig(api_base_url="http://localhost:8000/v1", api_key_var="NOT_SET"))
        'EMPTY'
    """
    is_named = "api_key_var" in config.model_fields_set
    variable = config.api_key_var if is_named else key_variable(config.api_base_url)
    key = os.environ.get(variable, "").strip()
    if key:
        return _sendable(key, f"Environment variable {variable!r}")
    if variable == _PRIME.api_key_var and _is_prime(config) and (saved := _saved("api_key")):
        return _sendable(saved, "'api_key' in ~/.prime/config.json")
    if not is_needed and is_loopback(config.api_base_url):
        return NO_KEY
    raise MissingKeyError([variable])


def request_headers(config: EndpointClientConfig) -> dict[str, str]:
    """Returns the headers of every request, except the key: ``extra_headers``, and the team for Prime's host."""
    headers = resolve(config.extra_headers)
    if config.api_key_var != _PRIME.api_key_var or not _is_prime(config):
        return headers
    team = os.environ.get("PRIME_TEAM_ID", "").strip() or _saved("team_id")
    return {**({"X-Prime-Team-ID": _sendable(team, "The team id")} if team else {}), **headers}


def _is_prime(config: EndpointClientConfig) -> bool:
    return is_same_host(config.api_base_url, _PRIME.base_url)


def _saved(name: str) -> str:
    value = load_prime_config().get(name)
    return value.strip() if isinstance(value, str) else ""


def _sendable(value: str, source: str) -> str:
    note_secrets(value)
    if value.isascii() and value.isprintable():
        return value
    raise ConfigError(f"{source} holds characters that no HTTP header can carry")


def ensure_keys(keys: Iterable[str]) -> None:
    """Raises a ``MissingKeyError`` that names all environment variables that are unset or empty. Hides their values.

    Example:
        >>> ensure_keys(["PATH"])
    """
    values = {key: os.environ.get(key, "") for key in keys}
    note_secrets(*values.values())
    if missing := [key for key, value in values.items() if not value]:
        raise MissingKeyError(missing)


class key_hidden:  # noqa: N801 - used like a function; a generator would cost each request a microsecond
    """Removes the key of a user's SDK client from errors and their causes, because servers echo the key."""

    __slots__ = ("_sdk_client",)

    def __init__(self, sdk_client: Any) -> None:
        self._sdk_client = sdk_client

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception):
            key = getattr(self._sdk_client, "api_key", None)
            if isinstance(key, str) and len(key) >= DISTINCTIVE_LENGTH:
                rewrite_error(error, lambda text: text.replace(key, HIDDEN))
