"""Keys and team: from environment variables, or from the configuration file of Prime's own command line."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nightjar.clients.config import EndpointClientConfig
from nightjar.errors import ConfigError, MissingKeyError, error_chain
from nightjar.secrecy import DISTINCTIVE_LENGTH, note_secrets, resolve

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
NO_KEY = "EMPTY"
"""Sent to endpoints that need no key: the SDKs insist on one."""
HIDDEN_KEY = "[API key]"
"""Stands where a server has echoed a key."""

_PRIME_KEY_VAR = "PRIME_API_KEY"
_TEAM_VAR = "PRIME_TEAM_ID"
_TEAM_HEADER = "X-Prime-Team-ID"

_logger = logging.getLogger(__name__)


def load_prime_config() -> dict[str, Any]:
    """Returns what is in ``~/.prime/config.json``; nothing where it is missing, or with a warning where it is broken.

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
    _logger.warning("~/.prime/config.json is left aside: expected an object, found %s", type(found).__name__)
    return {}


def resolve_api_key(config: EndpointClientConfig, *, is_needed: bool = False) -> str:
    """Returns the key of an endpoint; endpoints on this machine need none.

    It is read from the variable that the configuration names. ``PRIME_API_KEY`` may also be the ``api_key``
    of ``~/.prime/config.json``.

    Args:
        config: the endpoint.
        is_needed: there must be one, also where the endpoint is on loopback.

    Raises:
        MissingKeyError: there is none, and it is needed or the endpoint is not on loopback.
        ConfigError: no HTTP header can carry it.

    Example:
        >>> resolve_api_key(EndpointClientConfig(api_base_url="http://localhost:8000/v1", api_key_var="NOT_SET"))
        'EMPTY'
    """
    key = os.environ.get(config.api_key_var, "").strip()
    if key:
        note_secrets(key)
        return _sendable(key, f"Environment variable {config.api_key_var!r}")
    if config.api_key_var == _PRIME_KEY_VAR and (saved := _saved("api_key")):
        return _sendable(saved, "'api_key' in ~/.prime/config.json")
    if not is_needed and urlsplit(config.api_base_url).hostname in LOOPBACK_HOSTS:
        return NO_KEY
    raise MissingKeyError([config.api_key_var])


def request_headers(config: EndpointClientConfig) -> dict[str, str]:
    """Returns the headers of every request, beside the key: ``extra_headers``, and the team for Prime's key.

    The team is ``PRIME_TEAM_ID``, or ``team_id`` in ``~/.prime/config.json``; ``extra_headers`` may name another.

    Raises:
        MissingKeyError: a variable that a header names is not set.
        ConfigError: no HTTP header can carry the team, or the value of such a variable.
    """
    headers = resolve(config.extra_headers)
    if config.api_key_var != _PRIME_KEY_VAR:
        return headers
    team = os.environ.get(_TEAM_VAR, "").strip() or _saved("team_id")
    return {**({_TEAM_HEADER: _sendable(team, "The team id")} if team else {}), **headers}


def _saved(name: str) -> str:
    value = load_prime_config().get(name)
    return value.strip() if isinstance(value, str) else ""


def _sendable(value: str, source: str) -> str:
    if value.isascii() and value.isprintable():
        return value
    raise ConfigError(f"{source} holds characters that no HTTP header can carry")


def ensure_keys(keys: Iterable[str]) -> None:
    """Makes sure that environment variables are set, before anything is paid for.

    Raises:
        MissingKeyError: some are not, or are empty; all of them are named.

    Example:
        >>> ensure_keys(["PATH"])
    """
    missing = [key for key in keys if not os.environ.get(key)]
    if missing:
        raise MissingKeyError(missing)


class key_hidden:  # noqa: N801 - used like a function; as a generator it would cost each request a microsecond
    """Takes the key of an SDK client that the user made out of what errors and their causes say: servers echo it."""

    __slots__ = ("_sdk_client",)

    def __init__(self, sdk_client: Any) -> None:
        self._sdk_client = sdk_client

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception):
            key = getattr(self._sdk_client, "api_key", None)
            if isinstance(key, str) and len(key) >= DISTINCTIVE_LENGTH:
                _hide(key, error)


def _hide(key: str, error: Exception) -> None:
    for cause in error_chain(error):
        cause.args = tuple(arg.replace(key, HIDDEN_KEY) if isinstance(arg, str) else arg for arg in cause.args)
        if isinstance(message := getattr(cause, "message", None), str):
            cause.message = message.replace(key, HIDDEN_KEY)  # type: ignore[attr-defined]  # of the SDK's errors
