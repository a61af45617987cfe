"""Where an environment is got from, in a configuration, which is written down: never with a password."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from nightjar.clients.config import NOT_TO_BE_SHOWN

_RULE = "must not hold a user of the web, a password or a query, because it is written down: let git or pip know them"
_REFUSED = {"description": f"The source of an environment {_RULE}", "pattern": r"https?://[^/]*@|://[^/]*:[^/]*@|\?"}
_SCHEMES = {"https", "http", "ssh", "file"}


def _check(source: str) -> str:
    if source.startswith("sha256:") and not re.fullmatch(r"sha256:[0-9a-f]{64}", source):
        raise ValueError("must be sha256: and 64 hexadecimal digits")
    if "://" not in source:
        return source
    try:
        parts = urlsplit(source.removeprefix("git+"))
    except ValueError:
        raise ValueError("is no URL") from None
    if parts.query or parts.password or (parts.username and parts.scheme != "ssh"):
        raise PydanticCustomError(NOT_TO_BE_SHOWN, _RULE)
    if parts.scheme not in _SCHEMES:
        raise ValueError("must start with https://, or with git+https:// or git+ssh:// for a repository")
    return source


EnvironmentSource: TypeAlias = Annotated[
    str, AfterValidator(_check), WithJsonSchema({"type": "string", "not": _REFUSED})
]
"""``owner/name@version``, a wheel, ``git+https://…``, ``sha256:…``. The schema has Prefect's server refuse secrets."""
