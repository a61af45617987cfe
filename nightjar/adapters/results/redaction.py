"""Keeps secrets out of what is copied from the settings of other programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_SECRET_NAMES = re.compile(
    r"apikey|authorization|passw|secret|credential|cookie|privatekey|accesskey|headers|bearer|(?<!max)token$"
)
_SECRET_VALUES = re.compile(r"\s*(bearer|basic)\s+\S|(sk|nvapi|hf|ghp|pit|xox[bp])[-_]\w{8}", re.IGNORECASE)
_SEPARATORS = re.compile(r"[^a-z0-9]")


def without_secrets(value: Any) -> Any:
    """Returns settings without what is or looks like a secret: keys, tokens, passwords, headers, credentials in URLs.

    Example:
        >>> without_secrets({"temperature": 0, "max_tokens": 9, "api_key": "k", "judge": {"HF_TOKEN": "t", "n": 1}})
        {'temperature': 0, 'max_tokens': 9, 'judge': {'n': 1}}
    """
    if isinstance(value, Mapping):
        return {
            _plain(name): without_secrets(item)
            for name, item in value.items()
            if not (_is_secret_name(name) or _is_secret_value(item))
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in value if not _is_secret_value(item)]
    if isinstance(value, str):
        return public_url(value) if "://" in value else _plain(value)
    return value


def public_url(url: str) -> str:
    """Returns a URL without user, password and query; several may be joined by commas.

    Example:
        >>> public_url("https://me:pass@host:8000/v1?api_key=k,http://localhost/v1")
        'https://host:8000/v1,http://localhost/v1'
    """
    return ",".join(_public_url(part) for part in _plain(url).split(","))


def _public_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if not parts.netloc:
        return url
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAMES.search(_SEPARATORS.sub("", name.lower())))


def _is_secret_value(value: Any) -> bool:
    return isinstance(value, str) and bool(_SECRET_VALUES.match(value))


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode()
