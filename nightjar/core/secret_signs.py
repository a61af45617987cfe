"""Patterns of secrets: names, forms of keys, URLs with passwords. No other module has patterns of secrets.

Some patterns are part of JSON schemas, so that Prefect's server refuses a secret before storing it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

HIDDEN = "[secret]"

_GAP = r"[\W_]*"
_NOT_BEFORE_TOKEN = "max|eos|bos|pad|unk|sep|cls|stop|mask|end|start|image|per"  # noqa: S105
SECRET_NAME = (
    rf"(?i)(?:(?:api|access|account|private|secret){_GAP}key|authorization|passw(?:or)?d|passphrase|secret|credential"
    rf"|cookie|bearer)(?:s|\d+)?{_GAP}$|^(?!.*(?:{_NOT_BEFORE_TOKEN}){_GAP}token{_GAP}$).*token{_GAP}$"
)
"""A regular expression that finds names of settings and headers with secret values."""
_VARIABLE_NAME = r"(?i)(?:key|token|secret|password|credentials?|connection_string)$"

_KEYS = (
    r"sk-(?!learn)[\w-]{8,}|sk_(?:live|test)_\w{8,}|nvapi[-_][\w-]{8,}|hf_[A-Za-z0-9]{16,}|gh[opsu]_\w{16,}"
    r"|github_pat_\w{16,}|gsk_\w{16,}|pit_\w{16,}|xox[abprs]-[\w-]{8,}|AKIA[A-Z0-9]{16}"
)
KEY_FORMS = (
    rf"(?<![A-Za-z0-9_-])(?:{_KEYS}|(?<=[Bb]earer )(?=\S*\d)[\w.+/=-]{{16,}}"
    r"|(?<=[Bb]asic )(?=\S*[\d=])[\w+/=-]{12,})"
)
"""A regular expression that finds values that look like keys."""
_URL_WITH_LOGIN = r"(://[^/\s:@'\"\[]*:)(?!\$|\d+(?:[/?#'\",\s]|$))[^\s\"]{1,1000}@"
SECRET_FORMS = f"{KEY_FORMS}|{_URL_WITH_LOGIN}"
"""Finds also passwords in URLs, which may contain ``/``. ``$NAME`` is no password."""

_IN_URLS = ("key", "token", "secret", "passw", "passphrase", "pwd", "cred")
_ADDRESS_NAME = rf"(?:{'|'.join(_IN_URLS)}|(?<![A-Za-z])(?:sig|sas))"
_ADDRESS_USER = r"(?<=\w\w)(:/+)([^/:\s]{0,1000}:\S{0,1000}|[^/\s]{1,1000})@"
ADDRESS_WITH_SECRET = rf"(?i){_ADDRESS_NAME}\w*(?:['\"]?\s*=|['\"]\s*:)|{_ADDRESS_USER}"
"""A regular expression that finds secrets and users in the address of a warehouse."""
NAME_IN_QUERY = "|".join((*_IN_URLS, "sig", "sas", "pass", "auth", "code"))
"""A regular expression that finds names of keys in the query of a base URL."""

_WEB_USER = r"(https?://)[^/\s:@'\"]{1,1000}@"
_QUERY_VALUE = r"([?&][^\s=?&'\"]+=)[^\s&'\"]+"
_CREDENTIAL = r"(?i)\s*(?:bearer|basic|token) +(\S+)\s*"
_ASSIGNED = r"(?<![\w.-])([\w.-]++)(?:(?:\\*['\"])?\s*=(?!=)\s*|\\*['\"]\s*:\s*(?=\\*['\"]))"
_VALUE = r"'(?:''|\\.|[^'\\])*'|\"(?:\"\"|\\.|[^\"\\])*\"|\\+(['\"]).*?\\+\1|['\"]?[^\s;&'\",()\[\]{}]++(?![(\[])"


def is_secret_name(name: object) -> bool:
    """Returns whether a name belongs to a secret (``X-Api-Key``), not to a variable with a secret (``api_key_var``)."""
    return re.search(SECRET_NAME, str(name)) is not None


@lru_cache(maxsize=10_000)
def is_secret_variable(name: str) -> bool:
    """Returns whether an environment variable holds a secret, judged by its name."""
    return re.search(_VARIABLE_NAME, name) is not None or is_secret_name(name)


def looks_secret(text: str) -> bool:
    """Returns whether the text contains a likely key, or a URL with a password."""
    return re.search(SECRET_FORMS, text) is not None


def has_address_secret(address: str) -> bool:
    return re.search(ADDRESS_WITH_SECRET, address) is not None


def passwords_of(address: str) -> list[str]:
    """Returns the passwords in a URL, each also with its user, as libraries quote them."""
    users = (found[2] for found in re.finditer(_ADDRESS_USER, address))
    return [part for user in users if ":" in user for part in (user, user.partition(":")[2])]


def credential_of(value: str) -> str | None:
    """Returns ``TOKEN`` for a header value such as ``Bearer TOKEN``, and None for any other text."""
    return found[1] if (found := re.fullmatch(_CREDENTIAL, value)) else None


def without_signs(text: str) -> str:
    """Hides passwords and users in URLs, values that look like keys, and values that are assigned to secret names."""
    text = _without_assigned(re.sub(KEY_FORMS, HIDDEN, text), is_secret_name, HIDDEN)
    return re.sub(f"{_WEB_USER}|{_URL_WITH_LOGIN}", rf"\g<1>\g<2>{HIDDEN}@", text)


def without_address_secrets(text: str, shown: str) -> str:
    """Hides secrets in the address of a warehouse, or in a message about it, and the values after ``?name=``."""
    text = re.sub(_ADDRESS_USER, rf"\g<1>{shown}@", re.sub(KEY_FORMS, shown, text))
    text = _without_assigned(text, lambda name: re.search(f"(?i){_ADDRESS_NAME}", name) is not None, shown)
    return re.sub(_QUERY_VALUE, rf"\g<1>{shown}", text)


def _without_assigned(text: str, is_secret: Callable[[str], bool], shown: str) -> str:
    parts, done = [], 0
    for found in re.finditer(_ASSIGNED, text):
        if found.start() >= done and is_secret(found[1]) and (value := re.compile(_VALUE).match(text, found.end())):
            parts += [text[done : found.end()], shown]
            done = value.end()
    return "".join([*parts, text[done:]]) if parts else text
